// Packed matrices of folders, decoded: the layouts of MLX, GPTQ, AWQ, compressed-tensors and FP8.
//
// A number is scale * (code - zero), or scale * code + bias. scale * zero is exact in float for
// 16-bit scales, and then so is the sum: the result is the number that the original program would
// compute in float32, with at most one rounding.
#include "formats/hf/hf_packed.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"

#define TILE_ROWS 16 // rows taken at once: a cache line holds this many words of a column stream

// Held while rows are made.
typedef struct source {
    const tern_packed *p;
    tern_hold codes, scales, zeros;
    uint64_t first_row; // of the held codes
} source;

// ---- Streams -----------------------------------------------------------------------------------

static const uint8_t awq_shift[8] = {0, 16, 4, 20, 8, 24, 12, 28};

// Code i of a stream whose words are `stride` apart.
static uint32_t stream_code(const uint32_t *words, uint64_t stride, uint64_t i, int bits) {
    uint64_t bit = i * (uint64_t)bits, word = bit / 32 * stride;
    uint32_t in = (uint32_t)(bit % 32), v = words[word] >> in;
    if (in + (uint32_t)bits > 32) v |= words[word + stride] << (32 - in);
    return v & ((1u << bits) - 1);
}

// All n codes of one.
static void read_stream(const uint32_t *words, uint64_t stride, uint64_t n, int bits,
                        uint8_t *out) {
    uint64_t per = 32 / (uint64_t)bits;
    uint32_t mask = (1u << bits) - 1;
    if (32 % bits != 0) { // codes that straddle two words
        for (uint64_t i = 0; i < n; i++) out[i] = (uint8_t)stream_code(words, stride, i, bits);
        return;
    }
    for (uint64_t i = 0; i < n; i += per, words += stride) {
        uint64_t here = n - i < per ? n - i : per;
        uint32_t word = *words;
        for (uint64_t k = 0; k < here; k++, word >>= bits) out[i + k] = (uint8_t)(word & mask);
    }
}

static uint64_t stream_words(uint64_t n, int bits) { return (n * (uint64_t)bits + 31) / 32; }

// Twice the number of each 4-bit code, plus 12: 0, 1/2, 1, 3/2, 2, 3, 4, 6 and their negatives.
static uint8_t e2m1_code(uint32_t bits) {
    static const uint8_t twice[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return (uint8_t)(bits & 8 ? 12 - twice[bits & 7] : 12 + twice[bits & 7]);
}

// Codes of one row: code c at out[c].
static void read_row(const source *s, uint64_t row, uint8_t *out) {
    const tern_packed *p = s->p;
    const uint32_t *words = s->codes.data;
    const uint8_t *bytes = s->codes.data;
    uint64_t in = row - s->first_row;
    switch (p->layout) {
    case TERN_PACKED_ROWS:
        read_stream(words + in * p->row_words, 1, p->n_cols, p->bits, out);
        break;
    case TERN_PACKED_COLUMNS: read_stream(words + row, p->n_rows, p->n_cols, p->bits, out); break;
    case TERN_PACKED_AWQ:
        for (uint64_t c = 0; c < p->n_cols; c++)
            out[c] = words[c * (p->n_rows / 8) + row / 8] >> awq_shift[row % 8] & 15;
        break;
    case TERN_PACKED_INT8:
        for (uint64_t c = 0; c < p->n_cols; c++) out[c] = bytes[in * p->n_cols + c] ^ 128u;
        break;
    case TERN_PACKED_E4M3: memcpy(out, bytes + in * p->n_cols, (size_t)p->n_cols); break;
    }
    bool numbers = p->is_e2m1 && p->type != TERN_DTYPE_MXFP4; // which has the same codes
    for (uint64_t c = 0; numbers && c < p->n_cols; c++) out[c] = e2m1_code(out[c]);
}

// ---- Scales and zeros --------------------------------------------------------------------------

static float read_float(tern_dtype type, const void *data, uint64_t i) {
    float f;
    switch (type) {
    case TERN_DTYPE_F16: return tern_f16_to_f32(((const uint16_t *)data)[i]);
    case TERN_DTYPE_BF16: return tern_bf16_to_f32(((const uint16_t *)data)[i]);
    case TERN_DTYPE_U8: return tern_e8m0_to_f32(((const uint8_t *)data)[i]);
    case TERN_DTYPE_F8_E4M3: return tern_e4m3_to_f32(((const uint8_t *)data)[i]);
    default: memcpy(&f, (const uint8_t *)data + 4 * i, 4); return f;
    }
}

static uint32_t read_zero(const source *s, uint64_t row, uint64_t g) {
    const tern_packed *p = s->p;
    const uint32_t *words = s->zeros.data;
    uint32_t mask = (1u << p->bits) - 1, z = 0;
    switch (p->zero) {
    case TERN_ZERO_MIDDLE: return 1u << (p->bits - 1);
    case TERN_ZERO_ALONG:
        z = stream_code(words + g * stream_words(p->n_rows, p->bits), 1, row, p->bits);
        break;
    case TERN_ZERO_AWQ: return words[g * (p->n_rows / 8) + row / 8] >> awq_shift[row % 8] & 15;
    case TERN_ZERO_ROWS: return stream_code(words + row * p->zero_words, 1, g, p->bits);
    case TERN_ZERO_DOWN: return stream_code(words + g, p->n_groups, row, p->bits);
    case TERN_ZERO_INT8: return ((const uint8_t *)s->zeros.data)[row * p->n_groups + g] ^ 128u;
    case TERN_ZERO_BIAS:
    case TERN_ZERO_NONE: return 0;
    }
    return (z + p->zero_is_less) & mask; // in the first version 0 is stored as the greatest code
}

static void read_scale(const source *s, uint64_t row, uint64_t g, float *scale, float *offset) {
    const tern_packed *p = s->p;
    uint64_t at = row / p->rows_per_scale * p->scale_row + g * p->scale_group;
    *scale = read_float(p->scale_type, s->scales.data, at);
    if (p->is_e2m1) {
        *scale *= 0.5f;
        *offset = -12 * *scale;
    } else if (p->zero == TERN_ZERO_BIAS) {
        *offset = read_float(p->scale_type, s->zeros.data, at);
    } else {
        *offset = -(float)read_zero(s, row, g) * *scale;
    }
}

// ---- Rows --------------------------------------------------------------------------------------

static bool is_ternary_type(tern_dtype t) { return tern_dtype_group_n(t) != 0; }

static void pack_block(const tern_packed *p, const uint8_t *codes, float scale, float offset,
                       uint8_t *out) {
    size_t n = tern_dtype_block_n(p->type);
    if (is_ternary_type(p->type)) { // the same codes, in the same order
        uint16_t d = tern_f32_to_f16(p->bits == 1 ? -offset : scale);
        memcpy(out, &d, 2);
        memset(out + 2, 0, n * (size_t)p->bits / 8);
        for (size_t i = 0, per = 8 / (size_t)p->bits; i < n; i++)
            out[2 + i / per] |= (uint8_t)(codes[i] << i % per * (size_t)p->bits);
        return;
    }
    memcpy(out, &scale, 4);
    if (p->layout == TERN_PACKED_E4M3) {
        memcpy(out + 4, codes, n);
        return;
    }
    memcpy(out + 4, &offset, 4);
    bool bytes = tern_dtype_block_bytes(p->type) == 8 + n;
    if (bytes) memcpy(out + 8, codes, n);
    for (size_t i = 0; !bytes && i < n; i += 2)
        out[8 + i / 2] = (uint8_t)(codes[i] | codes[i + 1] << 4);
}

static void make_floats(const source *s, uint64_t row, const uint8_t *codes, uint8_t *out) {
    const tern_packed *p = s->p;
    float scale = 0, offset = 0;
    uint64_t last = UINT64_MAX;
    for (uint64_t c = 0; c < p->n_cols; c++) {
        uint64_t g = p->group_of ? p->group_of[c] : c / p->group;
        if (g != last) read_scale(s, row, g, &scale, &offset);
        last = g;
        float number = p->layout == TERN_PACKED_E4M3 ? scale * tern_e4m3_to_f32(codes[c])
                                                     : scale * (float)codes[c] + offset;
        uint16_t half = tern_f32_to_f16(number);
        if (p->type == TERN_DTYPE_F16)
            memcpy(out + 2 * c, &half, 2);
        else
            memcpy(out + 4 * c, &number, 4);
    }
}

// A byte of scale, then the codes i and 16 + i in a byte.
static void make_mxfp4(const source *s, uint64_t row, const uint8_t *codes, uint8_t *out) {
    const tern_packed *p = s->p;
    const uint8_t *scales = (const uint8_t *)s->scales.data + row * p->scale_row;
    for (uint64_t g = 0; g < p->n_groups; g++, codes += 32, out += 17) {
        out[0] = scales[g];
        for (int i = 0; i < 16; i++) out[1 + i] = (uint8_t)(codes[i] | codes[16 + i] << 4);
    }
}

static void make_row(const source *s, uint64_t row, const uint8_t *codes, uint8_t *out) {
    const tern_packed *p = s->p;
    size_t n = tern_dtype_block_n(p->type);
    if (n == 1 || p->type == TERN_DTYPE_MXFP4) {
        (n == 1 ? make_floats : make_mxfp4)(s, row, codes, out);
        return;
    }
    for (uint64_t c = 0; c < p->n_cols; c += n, out += tern_dtype_block_bytes(p->type)) {
        float scale, offset;
        read_scale(s, row, c / p->group, &scale, &offset);
        pack_block(p, codes + c, scale, offset, out);
    }
}

// ---- Bytes -------------------------------------------------------------------------------------

static void release(source *s) {
    tern_blob_release(&s->codes);
    tern_blob_release(&s->scales);
    tern_blob_release(&s->zeros);
}

// Holds the packed parts; if codes are stored by rows, only those of rows [first, end).
static tern_status hold(source *s, const tern_packed *p, uint64_t first, uint64_t end,
                        tern_error *err) {
    bool by_rows = p->layout != TERN_PACKED_COLUMNS && p->layout != TERN_PACKED_AWQ;
    uint64_t each = p->layout == TERN_PACKED_ROWS ? p->row_words * 4 : p->n_cols;
    tern_blob codes = p->codes;
    *s = (source){.p = p};
    if (by_rows) {
        codes = tern_blob_part(&p->codes, first * each, (end - first) * each);
        s->first_row = first;
    }
    tern_status status = tern_blob_hold(&codes, &s->codes, err);
    if (status == TERN_OK) status = tern_blob_hold(&p->scales, &s->scales, err);
    if (status == TERN_OK && p->zeros.n) status = tern_blob_hold(&p->zeros, &s->zeros, err);
    if (status != TERN_OK) release(s);
    return status;
}

// Bytes [first, first + n) of the rows' bytes, which may begin and end inside a row. Rows are taken
// in tiles, so that codes stored by columns are read one cache line at a time.
static tern_status make(const tern_blob_maker *m, uint64_t first, uint64_t n, void *to,
                        tern_error *err) {
    const tern_packed *p = (const tern_packed *)(const void *)m;
    uint64_t row = first / p->row_bytes, end = (first + n + p->row_bytes - 1) / p->row_bytes;
    source s;
    TERN_TRY(hold(&s, p, row, end, err));
    uint8_t *codes = tern_alloc(TERN_MEM_MISC, TILE_ROWS * (size_t)p->n_cols);
    uint8_t *made = tern_alloc(TERN_MEM_MISC, (size_t)p->row_bytes);
    bool failed = !codes || !made;
    for (uint8_t *out = to; !failed && row < end; row += TILE_ROWS) {
        uint64_t in_tile = end - row < TILE_ROWS ? end - row : TILE_ROWS;
        for (uint64_t r = 0; r < in_tile; r++) read_row(&s, row + r, codes + r * p->n_cols);
        for (uint64_t r = 0; r < in_tile; r++) {
            uint64_t begin = (row + r) * p->row_bytes, from = begin < first ? first - begin : 0;
            uint64_t left = first + n - begin, stop = left < p->row_bytes ? left : p->row_bytes;
            make_row(&s, row + r, codes + r * p->n_cols, made);
            memcpy(out, made + from, (size_t)(stop - from));
            out += stop - from;
        }
    }
    tern_free(codes);
    tern_free(made);
    release(&s);
    return failed ? tern_fail_memory(err, TILE_ROWS * (size_t)p->n_cols) : TERN_OK;
}

static void drop(const tern_blob_maker *m) {
    const tern_packed *p = (const tern_packed *)(const void *)m;
    tern_blob_drop(&p->codes);
}

// ---- What comes out ----------------------------------------------------------------------------

// Whether in every group the codes stand for -1, 0, 1 and 2 (with one bit -1 and 1) times a scale
// that F16 holds.
static tern_status find_ternary(const tern_packed *p, bool *is, tern_error *err) {
    source s;
    TERN_TRY(hold(&s, p, 0, p->n_rows, err));
    *is = true;
    for (uint64_t row = 0; *is && row < p->n_rows; row++)
        for (uint64_t g = 0; *is && g < p->n_groups; g++) {
            float scale, offset, d;
            read_scale(&s, row, g, &scale, &offset);
            d = p->bits == 1 ? -offset : scale;
            *is = (p->bits == 1 ? scale == 2 * d : offset == -d) &&
                  tern_f16_to_f32(tern_f32_to_f16(d)) == d;
        }
    release(&s);
    return TERN_OK;
}

static tern_dtype group_type(const tern_packed *p) {
    static const tern_dtype types[3][3] = {
        {TERN_DTYPE_G4_128, TERN_DTYPE_G4_64, TERN_DTYPE_G4_32},
        {TERN_DTYPE_G8_128, TERN_DTYPE_G8_64, TERN_DTYPE_G8_32},
        {TERN_DTYPE_F8_128, TERN_DTYPE_F8_64, TERN_DTYPE_F8_32},
    };
    if (p->is_e2m1 && p->scale_type == TERN_DTYPE_U8 && p->group == 32) return TERN_DTYPE_MXFP4;
    const tern_dtype *of = types[p->layout == TERN_PACKED_E4M3 ? 2 : p->bits > 4 || p->is_e2m1];
    for (int i = 0; i < 3 && !p->group_of; i++)
        if (p->group % tern_dtype_block_n(of[i]) == 0 && p->n_cols % tern_dtype_block_n(of[i]) == 0)
            return of[i];
    return p->is_e2m1 && p->scale_type == TERN_DTYPE_F8_E4M3 ? TERN_DTYPE_F16 // exact: 6 bits
                                                             : TERN_DTYPE_F32;
}

tern_status tern_packed_settle(tern_packed *p, tern_error *err) {
    bool ternary = false;
    tern_dtype type = p->bits == 1          ? TERN_DTYPE_Q1_0
                      : p->group % 128 == 0 ? TERN_DTYPE_PQ2_0
                                            : TERN_DTYPE_Q2_0;
    bool fits =
        p->zero == TERN_ZERO_BIAS && p->bits <= 2 && p->group % tern_dtype_block_n(type) == 0;
    if (fits) TERN_TRY(find_ternary(p, &ternary, err));
    p->type = ternary ? type : group_type(p);
    p->maker = (tern_blob_maker){make, drop};
    if (tern_dtype_bytes(p->type, p->n_cols, p->n_cols, &p->row_bytes)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "rows of %llu weights are too long",
                     (unsigned long long)p->n_cols);
}
