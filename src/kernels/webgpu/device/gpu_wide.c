// Codes of four bits and more in tiles (wgsl/wide_codes.wgsl): which types have them, and how a row
// of one is written.
#include <string.h>
#include "base/alloc.h"
#include "kernels/affine.h"
#include "kernels/webgpu/device/gpu.h"

static bool find_form(const tern_weight_source *s, tern_dtype_form *out) {
    const tern_dtype_form *f = tern_dtype_form_of(s->type);
    if (!f) return tern_affine_form(s, out);
    *out = *f;
    return true;
}

// Codes that a table maps to values become a byte each: kernels look nothing up.
bool gpu_wide_find(const tern_weight_source *s, gpu_wide *out) {
    const tern_dtype_form *f = &out->form;
    *out = (gpu_wide){.codes = {0}};
    if (s->n_cols % GPU_BLOCK_COLS != 0 || !find_form(s, &out->form)) return false;
    if (s->n_cols % f->group != 0 || (f->super && s->n_cols % f->super != 0)) return false;
    if (f->group == 16 && f->has_minima) return false; // sums of 16 activations are not kept
    out->codes = (gpu_codes){.bits = f->has_table ? 8 : f->bits,
                             .group = f->group < GPU_BLOCK_COLS ? f->group : GPU_BLOCK_COLS,
                             .super = f->super,
                             .has_minima = f->has_minima,
                             .is_bf16 = f->is_bf16};
    return true;
}

// ---- Reading -----------------------------------------------------------------------------------

static void set_wide_codes(gpu_pipeline *p, gpu_codes c) {
    gpu_set(p, "BITS", c.bits);
    gpu_set(p, "PARTS", (double)gpu_wide_parts(c));
    if (c.super) gpu_set(p, "SUPER", c.super);
    if (c.has_minima) gpu_set(p, "MINIMA", 1);
    if (c.has_minima) gpu_set(p, "OFFSET", gpu_wide_offset(c));
    if (c.is_bf16) gpu_set(p, "BF16", 1);
}

void gpu_set_codes(gpu_pipeline *p, gpu_codes c) {
    if (gpu_is_wide(c)) {
        set_wide_codes(p, c);
        return;
    }
    if (c.group) gpu_set(p, "GROUP", c.group);
    if (c.bits && c.bits != 2) gpu_set(p, "BITS", c.bits);
}

// ---- Writing -----------------------------------------------------------------------------------

bool gpu_wide_row_open(gpu_wide_row *r, const gpu_wide *w, int64_t n_cols) {
    size_t n = (size_t)n_cols, n_groups = n / 16;
    r->wide = *w;
    r->room = tern_alloc(TERN_MEM_MISC, n + n_groups * 6);
    if (!r->room) return false;
    r->parts.scales = r->room;
    r->parts.minima = r->parts.scales + n_groups;
    r->parts.sub_scales = (int8_t *)(r->parts.minima + n_groups);
    r->parts.sub_minima = r->parts.sub_scales + n_groups;
    r->parts.codes = (uint8_t *)(r->parts.sub_minima + n_groups);
    return true;
}

void gpu_wide_row_close(gpu_wide_row *r) { tern_free(r->room); }

tern_status gpu_wide_row_read(gpu_wide_row *r, const tern_weight_source *s, tern_rows *rows,
                              int64_t row, tern_error *err) {
    const tern_dtype_form *f = &r->wide.form;
    TERN_TRY(tern_rows_reach(rows, row, err));
    if (tern_dtype_form_of(s->type)) {
        uint64_t first;
        const void *data = tern_rows_data(rows, row, &first);
        tern_dtype_decode_codes(s->type, data, first, (size_t)s->n_cols, &r->parts);
    } else {
        tern_affine_rows(s, f, row, 1, &r->parts);
    }
    // The code for 0 becomes 0, or, if there are minima, the middle code does.
    int zero = f->has_minima ? gpu_wide_offset(r->wide.codes) : f->zero;
    uint8_t *codes = r->parts.codes;
    for (int64_t i = 0; f->has_table && i < s->n_cols; i++) codes[i] = (uint8_t)f->table[codes[i]];
    for (int64_t i = 0; i < s->n_cols; i++) codes[i] = (uint8_t)(codes[i] - zero);
    return TERN_OK;
}

static uint32_t four(const uint8_t *codes) {
    uint32_t w;
    memcpy(&w, codes, sizeof w);
    return w;
}

// Sixty-four codes of a row, four at once: words of eight nibbles and their higher bits, or of four
// bytes.
static void put_codes(gpu_codes c, const uint8_t *codes, size_t row, uint32_t *to) {
    uint32_t *high = to + 64;
    if (c.bits == 8) {
        for (size_t i = 0; i < 16; i++) memcpy(to + i / 4 * 32 + 4 * row + i % 4, codes + 4 * i, 4);
        return;
    }
    const uint32_t low = 0x0f0f0f0fu;
    for (size_t i = 0; i < 8; i++)
        to[i / 4 * 32 + 4 * row + i % 4] =
            (four(codes + 8 * i) & low) | (four(codes + 8 * i + 4) & low) << 4;
    if (c.bits == 4) return;
    size_t bits = c.bits - 4u, each = 8 / bits; // fours of columns in a word
    const uint32_t up = ((1u << bits) - 1) * 0x01010101u;
    for (size_t i = 0; i < 16 / each; i++) {
        uint32_t word = 0;
        for (size_t j = 0; j < each; j++)
            word |= (four(codes + 4 * (each * i + j)) >> 4 & up) << (bits * j);
        high[16 / each * row + i] = word;
    }
}

static uint32_t two(uint16_t low, uint16_t high) { return low | (uint32_t)high << 16; }

// A block's scales and minima, as scales_of in wide_codes.wgsl reads them.
static void put_scales(const gpu_wide_row *r, size_t block, size_t row, uint32_t *to) {
    const gpu_codes c = r->wide.codes;
    const tern_dtype_codes *p = &r->parts;
    size_t n = gpu_wide_parts(c), at = block * GPU_BLOCK_COLS / r->wide.form.group;
    if (c.super) {
        uint8_t bytes[4] = {0};
        memcpy(bytes, p->sub_scales + at, n);
        if (c.has_minima) memcpy(bytes + n, p->sub_minima + at, n);
        to[row] = two((uint16_t)(bytes[0] | bytes[1] << 8), (uint16_t)(bytes[2] | bytes[3] << 8));
    } else if (n == 1) {
        to[row] = two(p->scales[at], c.has_minima ? p->minima[at] : 0);
    } else {
        to[row] = two(p->scales[at], p->scales[at + 1]);
        if (c.has_minima) to[8 + row] = two(p->minima[at], p->minima[at + 1]);
    }
}

void gpu_wide_row_put(const gpu_wide_row *r, int64_t n_cols, size_t in_tile, uint32_t *tile) {
    const gpu_codes c = r->wide.codes;
    const tern_dtype_codes *p = &r->parts;
    size_t n_blocks = (size_t)gpu_blocks(n_cols), each = gpu_wide_scale_words(c) * GPU_TILE_ROWS;
    uint32_t *scales = tile + n_blocks * 16 * c.bits, *front = scales + n_blocks * each;
    for (size_t b = 0; b < n_blocks; b++) {
        put_codes(c, p->codes + b * GPU_BLOCK_COLS, in_tile, tile + b * 16 * c.bits);
        put_scales(r, b, in_tile, scales + b * each);
    }
    for (size_t i = 0; c.super && i < (size_t)n_cols / c.super; i++)
        front[i * GPU_TILE_ROWS + in_tile] = two(p->scales[i], c.has_minima ? p->minima[i] : 0);
}
