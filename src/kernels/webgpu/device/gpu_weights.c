// Weights as the kernels read them: codes in tiles (codes.wgsl) in slabs, float
// matrices and tables as rows of f16, f32 or int8 with scales (float_linear.wgsl), both in parts
// that fit a binding, vectors as f32. Everything is read, converted and sent in pieces, so that the
// host never holds a large matrix, nor a second copy of it where it is mapped; a poll sends a few,
// while the device takes them.
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/ternary.h"
#include "kernels/webgpu/device/gpu.h"

#define PIECE_BYTES ((uint64_t)8 << 20)
#ifdef TERN_NO_MATRIX // a browser, where one thread alone calls the engine
#define MAY_SHARE false
#else
#define MAY_SHARE true
#endif
#define ALONE_BYTES ((uint64_t)128 << 10) // of a matrix that one thread packs
#define SHARE_BYTES ((uint64_t)32 << 20)  // least weights that threads are started for
#define POLL_BYTES  ((uint64_t)16 << 20)  // of the source that a poll reads
#define STORAGE     (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

// ---- Tiles of codes ----------------------------------------------------------------------------

static const gpu_codes ternary = {.bits = 2};

// Codes of one or two bits with a scale for each group. Groups of 256 have their scale twice.
static gpu_codes narrow_codes(const tern_weight_source *s) {
    size_t group = tern_dtype_group_n(s->type);
    return (gpu_codes){.bits = s->type == TERN_DTYPE_Q1_0 ? 1 : 2,
                       .group = (uint16_t)(group > 128 ? 128 : group)};
}

// Tables are looked up in tiles, too, so that a table that is also the head is stored once.
static bool is_narrow(const tern_device *d, const tern_weight_source *s) {
    tern_weight_source table = *s;
    tern_dtype other;
    bool is_apart = s->is_table && !(s->is_head && !tern_head_type(s->head, &other));
    table.is_matrix = true;
    table.is_head = table.as_floats = false;
    return tern_weight_in_groups(s, d->precise) ||
           (is_apart && tern_weight_in_groups(&table, false));
}

// How a weight lies in tiles, unless it has one scale, and whether it is multiplied with int8
// activations.
typedef struct tiling {
    gpu_wide wide; // for codes of one or two bits only `codes` is set
    bool multiplies;
} tiling;

// Products with codes of four bits and more are the CPU's (cpu_is_grouped). Heads of them are
// multiplied with floats; rows of Q8_0 have a form that more kernels take.
static bool find_tiling(const tern_device *d, const tern_weight_source *s, tiling *out) {
    tern_dtype other;
    *out = (tiling){.multiplies = tern_weight_in_groups(s, d->precise)};
    out->wide.codes = narrow_codes(s);
    if (is_narrow(d, s)) return true;
    bool is_kept = s->is_table || (s->is_head && !tern_head_type(s->head, &other));
    is_kept = is_kept && s->type != TERN_DTYPE_Q8_0;
    out->multiplies = !d->precise && !s->as_floats && s->is_matrix && !s->is_head;
    return s->n_parts == 0 && (out->multiplies || is_kept) && gpu_wide_find(s, &out->wide);
}

static int64_t n_tiles(int64_t n_rows) { return (n_rows + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS; }

static uint64_t tiles_bytes(int64_t tiles, gpu_codes c, int64_t n_cols) {
    return gpu_round(GPU_HEADER_BYTES + (uint64_t)tiles * gpu_tile_bytes(c, n_cols), 256);
}

// Into how many parts of equal tiles a matrix is cut to fit the GPU's bindings; 0: a tile is too
// large.
static int64_t n_tile_parts(const tern_device *d, gpu_codes c, const tern_weight_source *s) {
    uint64_t each = gpu_tile_bytes(c, s->n_cols);
    int64_t most = (int64_t)((d->part_bytes_max - GPU_HEADER_BYTES) / each);
    return most < 1 ? 0 : (n_tiles(s->n_rows) + most - 1) / most;
}

static uint64_t matrix_bytes(const tern_device *d, gpu_codes c, const tern_weight_source *s) {
    int64_t n = n_tile_parts(d, c, s), tiles = n_tiles(s->n_rows), each = n ? tiles / n : 0;
    int64_t longer = n ? tiles % n : 0;
    return (uint64_t)longer * tiles_bytes(each + 1, c, s->n_cols) +
           (uint64_t)(n - longer) * tiles_bytes(each, c, s->n_cols);
}

static bool may_be_ternary(const tern_weight_source *s) {
    return s->is_matrix && !s->is_head && s->n_parts == 0;
}

// Heads and tables are not in slabs.
static bool in_slabs(const tern_weight_source *s) { return may_be_ternary(s) && !s->is_table; }

// Bytes of the slabs that a matrix takes; t: its tiling, if it has one.
static uint64_t slab_bytes_of(const tern_device *d, const tern_weight_source *s, const tiling *t) {
    return in_slabs(s) ? matrix_bytes(d, t ? t->wide.codes : ternary, s) : 0;
}

#ifndef TERN_NO_TRAINING
uint64_t gpu_tiles_bytes(const tern_device *d, const tern_weight_source *s, bool is_ternary) {
    tiling t = {.wide.codes = ternary};
    return is_ternary || find_tiling(d, s, &t) ? matrix_bytes(d, t.wide.codes, s) : 0;
}
#endif

// All matrices are known beforehand, so slabs are made exactly as large as needed.
tern_status gpu_tune(tern_device *d, const tern_weight_source *sources, size_t n, tern_error *err) {
    (void)err;
    uint64_t bytes = 0;
    d->tiles_bytes_left = 0;
    d->n_to_bind = n;
    for (size_t i = 0; i < n; i++) {
        tiling t;
        bytes += sources[i].bytes;
        bool is_tiled = in_slabs(&sources[i]) && find_tiling(d, &sources[i], &t);
        d->tiles_bytes_left += slab_bytes_of(d, &sources[i], is_tiled ? &t : NULL);
    }
    if (MAY_SHARE && bytes >= SHARE_BYTES && !d->team &&
        tern_team_open(&d->team, d->n_threads, NULL) != TERN_OK)
        d->team = NULL; // then this thread packs alone
    return TERN_OK;
}

static tern_status slab_take(tern_device *d, uint64_t bytes, gpu_part *part, tern_error *err) {
    if (d->n_slabs == 0 || d->slab_used + bytes > d->slab_bytes) {
        uint64_t size = d->tiles_bytes_left > bytes ? d->tiles_bytes_left : bytes;
        if (size > d->part_bytes_max) size = d->part_bytes_max;
        if (tern_array_reserve(TERN_MEM_GRAPH, &d->slabs, &d->slabs_capacity, d->n_slabs, 1) != 0)
            return tern_fail_memory(err, sizeof *d->slabs);
        TERN_TRY(gpu_buffer_new(d, GPU_USE_WEIGHTS, size, STORAGE, "codes of weights",
                                &d->slabs[d->n_slabs], err));
        d->n_slabs++;
        d->slab_bytes = size;
        d->slab_used = 0;
    }
    part->buffer = d->slabs[d->n_slabs - 1];
    part->offset = d->slab_used;
    part->bytes = bytes;
    d->slab_used += bytes;
    return TERN_OK;
}

// Packs numbers of a row into the words of its tile, as in codes.wgsl: -1, 0, 1 and 2 of 64 columns
// in four words, or -1 and 1 of 128.
static void pack_block(const int8_t *codes, uint32_t *out) {
    uint32_t c[16];
    memcpy(c, codes, sizeof c);
    // In each byte: 11 -> 0, 00 -> 1, 01 -> 2, without a carry into the next.
    for (int i = 0; i < 16; i++) c[i] = ((c[i] & 0x03030303u) + 0x01010101u) & 0x03030303u;
    for (int i = 0; i < 4; i++)
        out[i] = c[4 * i] | c[4 * i + 1] << 2 | c[4 * i + 2] << 4 | c[4 * i + 3] << 6;
}

static void pack_block_of_bits(const int8_t *codes, uint32_t *out) {
    for (int i = 0; i < 4; i++) {
        out[i] = 0;
        for (int j = 0; j < 8; j++)
            for (int b = 0; b < 4; b++)
                out[i] |= (uint32_t)(codes[32 * i + 4 * j + b] > 0) << (8 * b + j);
    }
}

static void pack_row(gpu_codes c, const int8_t *codes, int64_t blocks, uint32_t *to) {
    for (int64_t b = 0; c.bits == 2 && b < blocks; b++)
        pack_block(codes + b * GPU_BLOCK_COLS, to + b * 32);
    for (int64_t b = 0; c.bits == 1 && b < blocks / 2; b++)
        pack_block_of_bits(codes + b * 2 * GPU_BLOCK_COLS, to + b * 32);
}

static tern_status reserve_parts(tern_weight *w, size_t n, tern_error *err) {
    gpu_part *grown = tern_realloc(TERN_MEM_WEIGHTS, w->parts, n * sizeof *grown);
    if (!grown) return tern_fail_memory(err, n * sizeof *grown);
    w->parts = grown;
    return TERN_OK;
}

// A matrix that is larger than a binding is cut into parts of whole tiles, each with its header.
static tern_status take_parts(tern_device *d, tern_weight *w, const tern_weight_source *s,
                              tern_error *err) {
    int64_t n_parts = n_tile_parts(d, w->codes, s), tiles = n_tiles(s->n_rows), first = 0;
    w->owns_buffers = !in_slabs(s);
    if (n_parts < 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: eight rows are larger than a GPU's binding", s->name);
    TERN_TRY(reserve_parts(w, (size_t)n_parts, err));
    for (int64_t i = 0; i < n_parts; i++) {
        int64_t n = tiles / n_parts + (i < tiles % n_parts);
        gpu_part *part = &w->parts[w->n_parts];
        *part = (gpu_part){.first_row = first * GPU_TILE_ROWS};
        part->bytes = tiles_bytes(n, w->codes, s->n_cols);
        TERN_TRY(w->owns_buffers ? gpu_buffer_new(d, GPU_USE_WEIGHTS, part->bytes, STORAGE, s->name,
                                                  &part->buffer, err)
                                 : slab_take(d, part->bytes, part, err));
        first += n;
        part->n_rows = (i + 1 < n_parts ? first * GPU_TILE_ROWS : s->n_rows) - part->first_row;
        w->n_parts++;
    }
    return TERN_OK;
}

static const char *layout_of(gpu_codes c) {
    switch (c.bits) {
    case 1: return "1-bit groups";
    case 2: return c.group ? "2-bit groups" : "2-bit";
    case 4: return "4-bit groups";
    case 5: return "5-bit groups";
    case 6: return "6-bit groups";
    default: return "8-bit groups";
    }
}

static tern_status bind_tiles(tern_device *d, tern_weight *w, gpu_codes c, bool multiplies,
                              const tern_weight_source *s, tern_error *err) {
    w->form = GPU_FORM_TILES;
    w->codes = c;
    w->info.kind = !c.group     ? TERN_WEIGHT_TERNARY
                   : multiplies ? TERN_WEIGHT_GROUPED
                                : TERN_WEIGHT_FLOAT;
    w->info.layout = layout_of(c);
    if (multiplies || s->is_head) w->info.bytes_per_token = matrix_bytes(d, c, s);
    return take_parts(d, w, s, err);
}

// ---- Rows of floats ----------------------------------------------------------------------------

// Where rows come from: the file, or a head mode's conversion of the file's rows. tern_rows_reach
// comes before each row.
typedef struct row_source {
    const tern_weight_source *s;
    tern_rows rows;
    tern_dtype type; // of the rows, or to convert them to
    float *floats;
    void *converted; // a row of another type than the file's
} row_source;

static tern_status row_source_open(row_source *r, const tern_weight_source *s, tern_dtype type,
                                   tern_error *err) {
    uint64_t bytes = 0;
    *r = (row_source){.s = s, .type = type};
    uint64_t n_cols = (uint64_t)s->n_cols;
    tern_matrix m = tern_weight_matrix(s);
    tern_rows_open_pieces(&r->rows, &m);
    if (type != s->type && !tern_dtype_bytes(type, n_cols, n_cols, &bytes))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: rows of %lld cannot be %s (blocks of %zu)",
                         s->name, (long long)s->n_cols, tern_dtype_name(type),
                         tern_dtype_block_n(type));
    r->floats = tern_alloc_array(TERN_MEM_MISC, (size_t)s->n_cols, sizeof *r->floats);
    r->converted = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
    return r->floats && r->converted ? TERN_OK : tern_fail_memory(err, (size_t)s->n_cols * 4);
}

static void row_source_close(row_source *r) {
    tern_rows_close(&r->rows);
    tern_free(r->floats);
    tern_free(r->converted);
}

// The row is element *first and the following ones of the result.
static const void *row_find(const row_source *r, int64_t row, uint64_t *first) {
    if (r->type == r->s->type) return tern_rows_data(&r->rows, row, first);
    tern_rows_decode(&r->rows, row, r->floats);
    tern_dtype_encode(r->type, r->floats, (size_t)r->s->n_cols, r->converted);
    *first = 0;
    return r->converted;
}

static const float *row_floats(const row_source *r, int64_t row) {
    uint64_t first;
    const void *data = row_find(r, row, &first);
    tern_dtype_decode(r->type, data, first, (size_t)r->s->n_cols, r->s->scale, r->floats);
    return r->floats;
}

// Q8_0 and Q4_0 are integers of a byte and an f16 scale for each 32 of them: the same in this form.
static void write_q8_row(const row_source *r, int64_t row, uint8_t *out) {
    uint64_t first;
    size_t n_cols = (size_t)r->s->n_cols, each = tern_dtype_block_bytes(r->type);
    const uint8_t *block = row_find(r, row, &first);
    block += first / 32 * each;
    memset(out, 0, (size_t)gpu_q8_row_bytes(r->s->n_cols));
    for (size_t b = 0; b < n_cols / 32; b++, block += each) {
        memcpy(out + n_cols + 2 * b, block, 2);
        if (r->type == TERN_DTYPE_Q8_0) memcpy(out + 32 * b, block + 2, 32);
        for (int i = 0; r->type == TERN_DTYPE_Q4_0 && i < 16; i++) {
            out[32 * b + (size_t)i] = (uint8_t)((block[2 + i] & 15) - 8);
            out[32 * b + 16 + (size_t)i] = (uint8_t)((block[2 + i] >> 4) - 8);
        }
    }
}

static void write_row(const row_source *r, gpu_form form, int64_t row, uint8_t *out) {
    size_t n_cols = (size_t)r->s->n_cols;
    uint64_t first;
    if (form == GPU_FORM_Q8)
        write_q8_row(r, row, out);
    else if (form == GPU_FORM_F32)
        memcpy(out, row_floats(r, row), n_cols * 4);
    else if (r->type == TERN_DTYPE_F16) {
        const uint8_t *halves = row_find(r, row, &first);
        memcpy(out, halves + first * 2, n_cols * 2);
    } else
        tern_dtype_encode(TERN_DTYPE_F16, row_floats(r, row), n_cols, out);
}

static uint64_t row_bytes_of(gpu_form form, int64_t n_cols) {
    return form == GPU_FORM_Q8 ? gpu_q8_row_bytes(n_cols)
                               : (uint64_t)n_cols * (form == GPU_FORM_F16 ? 2 : 4);
}

// A head may be converted.
static tern_dtype type_of(const tern_weight_source *s) {
    tern_dtype type = s->type;
    if (s->is_head && !s->is_table) tern_head_type(s->head, &type);
    return type;
}

// The nearest of the forms: exact, except for the last bits of types whose blocks have scales of
// two levels, which become f16. F16 only if all numbers fit.
static gpu_form form_of(const tern_weight_source *s) {
    tern_dtype type = type_of(s);
    if (type == TERN_DTYPE_Q8_0 || type == TERN_DTYPE_Q4_0) return GPU_FORM_Q8;
    return type == TERN_DTYPE_F32 || s->n_cols % 8 != 0 ? GPU_FORM_F32 : GPU_FORM_F16;
}

static tern_status bind_parts(tern_device *d, tern_weight *w, const tern_weight_source *s,
                              gpu_form form, tern_error *err) {
    const char *name = s->name;
    w->form = form;
    w->info.layout = w->form == GPU_FORM_Q8    ? tern_dtype_name(type_of(s))
                     : w->form == GPU_FORM_F16 ? "F16"
                                               : "F32";
    uint64_t row_bytes = row_bytes_of(w->form, w->n_cols);
    int64_t rows_max = (int64_t)(d->part_bytes_max / row_bytes) / 8 * 8;
    if (rows_max < 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: eight rows are larger than a GPU's binding", name);
    TERN_TRY(reserve_parts(w, (size_t)((w->n_rows + rows_max - 1) / rows_max), err));
    w->owns_buffers = true;
    if (s->is_matrix) w->info.bytes_per_token = row_bytes * (uint64_t)w->n_rows;
    if (s->n_parts > 0)
        w->info.bytes_per_token =
            w->info.bytes_per_token / (uint64_t)s->n_parts * (uint64_t)s->n_parts_read;
    for (int64_t first = 0; first < w->n_rows; first += rows_max) {
        gpu_part *part = &w->parts[w->n_parts];
        *part = (gpu_part){.first_row = first};
        part->n_rows = w->n_rows - first < rows_max ? w->n_rows - first : rows_max;
        part->bytes = (uint64_t)part->n_rows * row_bytes;
        TERN_TRY(
            gpu_buffer_new(d, GPU_USE_WEIGHTS, part->bytes, STORAGE, name, &part->buffer, err));
        w->n_parts++;
    }
    return TERN_OK;
}

static tern_status check_rows(const tern_weight_source *s, tern_error *err) {
    if (s->type == TERN_DTYPE_HF_TERNARY)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: a packed ternary %s is not supported",
                         s->name, s->is_head ? "head" : "table");
    if (s->n_cols % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the GPU's kernels need rows of a multiple of 4 elements, not %lld",
                         s->name, (long long)s->n_cols);
    return TERN_OK;
}

// A table on the host: the few rows that a batch needs are read and sent with it.
static tern_status bind_host(tern_weight *w, const tern_weight_source *s, tern_error *err) {
    w->form = GPU_FORM_HOST;
    w->info.layout = "on the host";
    w->table = tern_weight_matrix(s);
    uint64_t bytes = tern_matrix_row_bytes(&w->table);
    w->table_row = tern_alloc(TERN_MEM_WEIGHTS, (size_t)bytes + 1);
    w->row = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)s->n_cols, sizeof *w->row);
    return w->table_row && w->row ? TERN_OK : tern_fail_memory(err, (size_t)bytes);
}

// Weights of a convolution, [outputs][columns][taps], as [taps][columns][outputs].
static tern_status turn_convolution(tern_weight *w, size_t n_out, tern_error *err) {
    size_t taps = (size_t)w->n_cols, n_in = (size_t)w->n_rows / n_out;
    float *to = tern_alloc_array(TERN_MEM_WEIGHTS, n_in * n_out, taps * sizeof *to);
    if (!to) return tern_fail_memory(err, n_in * n_out * taps * sizeof *to);
    for (size_t o = 0; o < n_out; o++)
        for (size_t i = 0; i < n_in; i++)
            for (size_t j = 0; j < taps; j++)
                to[(j * n_in + i) * n_out + o] = w->vector[(o * n_in + i) * taps + j];
    tern_free(w->vector);
    w->vector = to;
    return TERN_OK;
}

// A vector, or an array of few numbers.
static tern_status bind_vector(tern_device *d, tern_weight *w, const tern_weight_source *s,
                               tern_error *err) {
    size_t n = (size_t)(s->n_rows * s->n_cols);
    w->form = GPU_FORM_VECTOR;
    w->info.layout = "F32";
    w->vector = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof(float));
    if (!w->vector) return tern_fail_memory(err, n * sizeof(float));
    tern_matrix m = tern_weight_matrix(s);
    TERN_TRY(tern_matrix_decode(&m, w->vector, err));
    if (s->n_conv_outputs > 0) TERN_TRY(turn_convolution(w, (size_t)s->n_conv_outputs, err));
    w->owns_buffers = true;
    w->parts[0].bytes = gpu_round(n * sizeof(float), 16);
    w->parts[0].n_rows = 1;
    TERN_TRY(gpu_buffer_new(d, GPU_USE_WEIGHTS, w->parts[0].bytes, STORAGE, s->name,
                            &w->parts[0].buffer, err));
    w->n_parts = 1;
    return TERN_OK;
}

// ---- Sending -----------------------------------------------------------------------------------

// What a thread reads rows of a source with, and converts them in.
typedef struct packer {
    tern_codes codes; // of ternary matrices
    row_source rows;  // the other matrices
    int8_t *codes_row;
    uint16_t *scales; // of a row of codes in groups
    gpu_wide_row wide;
    bool fits; // while looking: all its numbers fit f16
    tern_error error;
} packer;

// How far a weight has been sent, or compared with its source.
typedef struct gpu_sending {
    const tern_weight_source *s;
    tern_weight_source head; // of a table: what its head is made of
    tern_ternary_kind kind;
    tiling tiling; // if is_tiled
    bool is_tiled;
    packer *packers; // by thread; NULL: no row was read yet
    int n_packers;
    void *piece; // [per_piece] tiles or rows as the kernels read them; NULL: nothing was sent yet
    int64_t per_piece;
    bool is_looking; // whether all numbers fit f16; the parts are made after that
    size_t part;     // next: `at` is the tile or row in it; while looking, the row of all
    int64_t at;
    bool is_done;
} gpu_sending;

static void sending_close(gpu_sending *x) {
    if (!x) return;
    for (int i = 0; i < x->n_packers; i++) {
        packer *p = &x->packers[i];
        tern_codes_close(&p->codes);
        row_source_close(&p->rows);
        gpu_wide_row_close(&p->wide);
        tern_free(p->codes_row);
        tern_free(p->scales);
    }
    tern_free(x->packers);
    tern_free(x->piece);
    tern_free(x);
}

static tern_status packer_open(packer *p, const gpu_sending *x, tern_error *err) {
    const tern_weight_source *s = x->s;
    const tern_matrix m = tern_weight_matrix(s);
    if (x->kind.is_ternary) return tern_codes_open(&p->codes, &m, &x->kind, true, err);
    if (!s->is_matrix && !s->is_table) return TERN_OK;
    TERN_TRY(check_rows(s, err));
    return row_source_open(&p->rows, s, type_of(s), err);
}

// Threads share what is in memory; from a file, a piece is read by one of them.
static tern_status open_packers(const tern_device *d, gpu_sending *x, tern_error *err) {
    bool shares = MAY_SHARE && d->team && x->s->data.memory && x->s->bytes > ALONE_BYTES;
    int n = shares ? d->team->n_threads : 1;
    x->packers = tern_alloc_array(TERN_MEM_MISC, (size_t)n, sizeof *x->packers);
    if (!x->packers) return tern_fail_memory(err, (size_t)n * sizeof *x->packers);
    while (x->n_packers < n) TERN_TRY(packer_open(&x->packers[x->n_packers++], x, err));
    return TERN_OK;
}

static tern_status sending_open(const tern_device *d, gpu_sending **out,
                                const tern_weight_source *s, tern_error *err) {
    const tern_matrix m = tern_weight_matrix(s);
    tern_status status = TERN_OK;
    *out = NULL;
    gpu_sending *x = tern_alloc(TERN_MEM_MISC, sizeof *x);
    if (!x) return tern_fail_memory(err, sizeof *x);
    x->s = s;
    if (may_be_ternary(s)) {
        status = tern_ternary_find(&m, s->ternarize, &x->kind, err);
        if (status != TERN_OK) TERN_TRY_GOTO(tern_fail_prefix(err, status, s->name));
    }
    if (s->is_matrix || s->is_table) {
        if (!x->kind.is_ternary) TERN_TRY_GOTO(check_rows(s, err));
        x->is_tiled = find_tiling(d, s, &x->tiling);
    }
    *out = x;
    return TERN_OK;
fail:
    sending_close(x);
    return status;
}

// Room for a row, once the form is known.
static tern_status open_row(packer *p, const gpu_sending *x, const tern_weight *w,
                            tern_error *err) {
    if (w->form != GPU_FORM_TILES) return TERN_OK;
    size_t n_codes = (size_t)gpu_blocks(w->n_cols) * GPU_BLOCK_COLS;
    if (gpu_is_wide(w->codes))
        return gpu_wide_row_open(&p->wide, &x->tiling.wide, w->n_cols)
                   ? TERN_OK
                   : tern_fail_memory(err, n_codes);
    p->codes_row = tern_alloc(TERN_MEM_MISC, n_codes);
    p->scales = tern_alloc_array(TERN_MEM_MISC, n_codes / GPU_BLOCK_COLS, sizeof *p->scales);
    return p->codes_row && p->scales ? TERN_OK : tern_fail_memory(err, n_codes);
}

// Room for a piece, when the first one is sent.
static tern_status open_piece(const tern_device *d, gpu_sending *x, const tern_weight *w,
                              tern_error *err) {
    if (w->form == GPU_FORM_VECTOR || x->piece) return TERN_OK;
    bool in_tiles = w->form == GPU_FORM_TILES;
    uint64_t each =
        in_tiles ? gpu_tile_bytes(w->codes, w->n_cols) : row_bytes_of(w->form, w->n_cols);
    int64_t n = in_tiles ? n_tiles(w->n_rows) : w->n_rows;
    x->per_piece = (int64_t)(PIECE_BYTES / each);
    if (x->per_piece < 1) x->per_piece = 1;
    if (x->per_piece > n) x->per_piece = n;
    if (!x->packers) TERN_TRY(open_packers(d, x, err));
    for (int i = 0; i < x->n_packers; i++) TERN_TRY(open_row(&x->packers[i], x, w, err));
    x->piece = tern_alloc_array(TERN_MEM_MISC, (size_t)x->per_piece, (size_t)each);
    return x->piece ? TERN_OK : tern_fail_memory(err, (size_t)x->per_piece * (size_t)each);
}

// ---- Rows shared by threads --------------------------------------------------------------------

typedef struct rows_job rows_job;
typedef tern_status rows_fn(const rows_job *j, packer *p, int64_t i, tern_error *err);
struct rows_job {
    const tern_weight *w;
    gpu_sending *x;
    rows_fn *fn;
    size_t n; // fn is called for 0 .. n - 1
    atomic_size_t claimed;
};

static void do_share(void *ctx, const tern_team *team) {
    rows_job *j = ctx;
    packer *p = &j->x->packers[team->thread];
    size_t at, end, block = j->n / (8 * (size_t)team->n_threads) + 1;
    while (tern_team_claim(&j->claimed, j->n, block, &at, &end))
        for (; at < end && p->error.status == TERN_OK; at++) j->fn(j, p, (int64_t)at, &p->error);
}

static tern_status run_rows(const tern_device *d, rows_job *j, tern_error *err) {
    static const tern_team alone = {.thread = 0, .n_threads = 1};
    if (MAY_SHARE && j->x->n_packers > 1)
        tern_team_run(d->team, do_share, j);
    else
        do_share(j, &alone);
    for (int i = 0; i < j->x->n_packers; i++) {
        const tern_error *why = &j->x->packers[i].error;
        if (why->status == TERN_OK) continue;
        if (err) *err = *why;
        return why->status;
    }
    return TERN_OK;
}

// A row's numbers go to codes_row, and its scales, if it has some of its own, to their places in a
// tile.
static tern_status read_codes(const rows_job *j, packer *p, int64_t row, uint16_t *scales,
                              tern_error *err) {
    const tern_weight *w = j->w;
    uint64_t first;
    if (!w->codes.group) {
        TERN_TRY(tern_rows_reach(&p->codes.rows, row, err));
        memcpy(p->codes_row, tern_codes_row(&p->codes, row), (size_t)w->n_cols);
        return TERN_OK;
    }
    TERN_TRY(tern_rows_reach(&p->rows.rows, row, err));
    const void *data = tern_rows_data(&p->rows.rows, row, &first);
    tern_dtype type = j->x->s->type;
    size_t n_cols = (size_t)w->n_cols, group = tern_dtype_group_n(type);
    tern_dtype_decode_groups(type, data, first, n_cols, p->codes_row, p->scales);
    for (size_t g = 0; g < n_cols / w->codes.group; g++)
        scales[g * GPU_TILE_ROWS] = p->scales[g * w->codes.group / group];
    return TERN_OK;
}

// A row of the matrix, into its place in a tile.
static tern_status put_row(const rows_job *j, packer *p, int64_t row, size_t in_tile, uint8_t *tile,
                           tern_error *err) {
    const tern_weight *w = j->w;
    int64_t blocks = gpu_blocks(w->n_cols);
    uint64_t scales_at = (uint64_t)blocks * 64 * w->codes.bits;
    if (gpu_is_wide(w->codes)) {
        TERN_TRY(gpu_wide_row_read(&p->wide, j->x->s, &p->rows.rows, row, err));
        gpu_wide_row_put(&p->wide, w->n_cols, in_tile, (uint32_t *)tile);
        return TERN_OK;
    }
    TERN_TRY(read_codes(j, p, row, (uint16_t *)(tile + scales_at) + in_tile, err));
    pack_row(w->codes, p->codes_row, blocks, (uint32_t *)tile + in_tile * 4);
    return TERN_OK;
}

static tern_status put_tile(const rows_job *j, packer *p, int64_t i, tern_error *err) {
    const tern_weight *w = j->w;
    uint8_t *tile = (uint8_t *)j->x->piece + (uint64_t)i * gpu_tile_bytes(w->codes, w->n_cols);
    int64_t first = w->parts[j->x->part].first_row + (j->x->at + i) * GPU_TILE_ROWS;
    for (int64_t r = 0; r < GPU_TILE_ROWS; r++) {
        int64_t row = first + r < w->n_rows ? first + r : w->n_rows - 1; // past the end: not read
        TERN_TRY(put_row(j, p, row, (size_t)r, tile, err));
    }
    return TERN_OK;
}

// bf16 has a wider range than f16, though hardly any weight needs it.
#define F16_MAX 65000
static tern_status look_at_row(const rows_job *j, packer *p, int64_t i, tern_error *err) {
    if (!p->fits) return TERN_OK;
    TERN_TRY(tern_rows_reach(&p->rows.rows, j->x->at + i, err));
    tern_rows_decode(&p->rows.rows, j->x->at + i, p->rows.floats);
    for (int64_t k = 0; k < j->w->n_cols; k++)
        p->fits &= p->rows.floats[k] < F16_MAX && p->rows.floats[k] > -F16_MAX;
    return TERN_OK;
}

static tern_status put_floats(const rows_job *j, packer *p, int64_t i, tern_error *err) {
    const tern_weight *w = j->w;
    int64_t row = w->parts[j->x->part].first_row + j->x->at + i;
    TERN_TRY(tern_rows_reach(&p->rows.rows, row, err));
    write_row(&p->rows, w->form, row,
              (uint8_t *)j->x->piece + (uint64_t)i * row_bytes_of(w->form, w->n_cols));
    return TERN_OK;
}

// n tiles, or rows of floats, of the part.
static tern_status send_rows(tern_device *d, const tern_weight *w, gpu_sending *x, int64_t n,
                             tern_error *err) {
    const gpu_part *part = &w->parts[x->part];
    bool in_tiles = w->form == GPU_FORM_TILES;
    uint64_t each =
        in_tiles ? gpu_tile_bytes(w->codes, w->n_cols) : row_bytes_of(w->form, w->n_cols);
    float header[GPU_HEADER_BYTES / 4] = {x->kind.scale};
    rows_job job = {w, x, in_tiles ? put_tile : put_floats, (size_t)n, 0};
    TERN_TRY(run_rows(d, &job, err));
    if (in_tiles && x->at == 0) gpu_send(d, part->buffer, part->offset, header, sizeof header);
    gpu_send(d, part->buffer,
             part->offset + (in_tiles ? GPU_HEADER_BYTES : 0) + (uint64_t)x->at * each, x->piece,
             (uint64_t)n * each);
    return TERN_OK;
}

// The next piece of the weight. *n_rows: how many rows of the source are in it.
static tern_status send_piece(tern_device *d, const tern_weight *w, gpu_sending *x, int64_t *n_rows,
                              tern_error *err) {
    TERN_TRY(open_piece(d, x, w, err));
    const gpu_part *part = &w->parts[x->part];
    bool in_tiles = w->form == GPU_FORM_TILES, is_vector = w->form == GPU_FORM_VECTOR;
    int64_t all = in_tiles ? n_tiles(part->n_rows) : part->n_rows, n = all - x->at;
    if (!is_vector && n > x->per_piece) n = x->per_piece;
    if (is_vector)
        gpu_send(d, part->buffer, 0, w->vector, (uint64_t)(w->n_rows * w->n_cols) * sizeof(float));
    else
        TERN_TRY(send_rows(d, w, x, n, err));
    x->at += n;
    if (x->at == all) {
        x->at = 0;
        x->is_done = ++x->part == w->n_parts;
    }
    *n_rows = in_tiles ? n * GPU_TILE_ROWS : n;
    return TERN_OK;
}

// Compares a bound weight with its source.
static tern_status compare_all(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                               tern_error *err) {
    gpu_sending *x;
    TERN_TRY(sending_open(d, &x, s, err));
    int64_t n;
    tern_status status = TERN_OK;
    while (status == TERN_OK && !x->is_done) status = send_piece(d, w, x, &n, err);
    sending_close(x);
    return status;
}

tern_status gpu_weight_verify(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                              tern_weight_check *out, tern_error *err) {
    *out = (tern_weight_check){0};
    if (w->form == GPU_FORM_HOST) return TERN_OK;
    d->compare = out;
    tern_status status = compare_all(d, w, s, err);
    if (status == TERN_OK && w->head) {
        tern_weight_source head = *s;
        head.is_table = false;
        status = compare_all(d, w->head, &head, err);
    }
    d->compare = NULL;
    return status == TERN_OK ? gpu_check(d, "reading weights back", err) : status;
}

// ---- Binding -----------------------------------------------------------------------------------

static tern_status place(tern_device *d, tern_weight *w, const tern_weight_source *s,
                         tern_error *err) {
    gpu_sending *x = w->sending;
    if (s->on_host && !s->is_matrix) {
        x->is_done = true;
        return bind_host(w, s, err);
    }
    if (!s->is_matrix && !s->is_table) return bind_vector(d, w, s, err);
    if (x->kind.is_ternary) return bind_tiles(d, w, ternary, true, s, err);
    if (x->is_tiled) return bind_tiles(d, w, x->tiling.wide.codes, x->tiling.multiplies, s, err);
    gpu_form form = form_of(s);
    x->is_looking = form == GPU_FORM_F16 && s->type != TERN_DTYPE_F16;
    return x->is_looking ? TERN_OK : bind_parts(d, w, s, form, err);
}

static tern_status begin(tern_device *d, tern_weight *w, const tern_weight_source *s,
                         tern_error *err) {
    TERN_TRY(sending_open(d, &w->sending, s, err));
    uint64_t bytes = slab_bytes_of(d, s, w->sending->is_tiled ? &w->sending->tiling : NULL);
    TERN_TRY(place(d, w, s, err));
    d->tiles_bytes_left -= bytes < d->tiles_bytes_left ? bytes : d->tiles_bytes_left;
    return TERN_OK;
}

// A table that is also the head keeps its own rows, as on the CPU, if a mode converts the head's.
static tern_status begin_head(tern_device *d, tern_weight *w, tern_error *err) {
    gpu_sending *x = w->sending;
    const tern_weight_source *s = x->s;
    tern_dtype type;
    if (!s->is_table || !s->is_head || !tern_head_type(s->head, &type) || type == s->type)
        return TERN_OK;
    x->head = *s;
    x->head.is_table = false;
    d->n_to_bind++;
    return gpu_weight_bind(d, &x->head, &w->head, err);
}

tern_status gpu_weight_bind(tern_device *d, const tern_weight_source *s, tern_weight **out,
                            tern_error *err) {
    *out = NULL;
    tern_weight *w = tern_alloc(TERN_MEM_WEIGHTS, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->n_rows = s->n_rows;
    w->n_cols = s->n_cols;
    w->parts = tern_alloc(TERN_MEM_WEIGHTS, sizeof *w->parts);
    tern_status status = w->parts ? begin(d, w, s, err) : tern_fail_memory(err, sizeof *w->parts);
    if (status == TERN_OK) status = begin_head(d, w, err);
    if (status == TERN_OK)
        *out = w;
    else
        gpu_weight_unbind(d, w);
    return status;
}

// Some more rows of a matrix whose form depends on whether all its numbers fit f16.
static tern_status look(tern_device *d, tern_weight *w, int64_t *n_rows, tern_error *err) {
    gpu_sending *x = w->sending;
    int64_t n = (int64_t)(PIECE_BYTES / sizeof(float)) / w->n_cols + 1;
    bool fits = true;
    if (n > w->n_rows - x->at) n = w->n_rows - x->at;
    if (!x->packers) TERN_TRY(open_packers(d, x, err));
    for (int i = 0; i < x->n_packers; i++) x->packers[i].fits = true;
    rows_job job = {w, x, look_at_row, (size_t)n, 0};
    TERN_TRY(run_rows(d, &job, err));
    for (int i = 0; i < x->n_packers; i++) fits &= x->packers[i].fits;
    x->at += n;
    *n_rows = n;
    if (fits && x->at < w->n_rows) return TERN_OK;
    x->is_looking = false;
    x->at = 0;
    return bind_parts(d, w, x->s, fits ? GPU_FORM_F16 : GPU_FORM_F32, err);
}

static void finish(tern_device *d, tern_weight *w) {
    w->info.bytes_per_token_greedy = w->info.bytes_per_token;
    sending_close(w->sending);
    w->sending = NULL;
    if (d->n_to_bind == 0 || --d->n_to_bind > 0) return;
    tern_team_close(d->team); // all are bound
    d->team = NULL;
}

tern_status gpu_weight_bind_poll(tern_device *d, tern_weight *w, uint64_t *left, tern_error *err) {
    gpu_sending *x = w->sending;
    *left = x ? 1 : 0;
    if (!x) return TERN_OK;
    uint64_t row_bytes = x->s->bytes / (uint64_t)w->n_rows + 1;
    int64_t n_rows = 0;
    for (uint64_t n = 0; n < POLL_BYTES && !x->is_done; n += (uint64_t)n_rows * row_bytes) {
        if (gpu_is_full(d)) break;
        TERN_TRY(x->is_looking ? look(d, w, &n_rows, err) : send_piece(d, w, x, &n_rows, err));
    }
    TERN_TRY(gpu_check(d, "sending weights", err));
    if (!x->is_done) {
        int64_t done = x->is_looking ? 0 : w->parts[x->part].first_row;
        if (!x->is_looking) done += w->form == GPU_FORM_TILES ? x->at * GPU_TILE_ROWS : x->at;
        *left = (uint64_t)(w->n_rows - done) * row_bytes;
        return TERN_OK;
    }
    *left = 0;
    if (w->head) TERN_TRY(gpu_weight_bind_poll(d, w->head, left, err));
    if (*left == 0) finish(d, w);
    return TERN_OK;
}

void gpu_weight_unbind(tern_device *d, tern_weight *w) {
    if (!w) return;
    gpu_weight_unbind(d, w->head);
    sending_close(w->sending);
    for (size_t i = 0; w->owns_buffers && i < w->n_parts; i++)
        gpu_buffer_free(d, GPU_USE_WEIGHTS, w->parts[i].buffer);
    gpu_buffer_free(d, GPU_USE_WEIGHTS, w->copy);
    tern_free(w->parts);
    tern_free(w->vector);
    tern_free(w->table_row);
    tern_free(w->row);
    tern_free(w);
}

void gpu_weight_info(const tern_weight *w, tern_weight_info *info) {
    *info = w->head ? w->head->info : w->info;
    info->is_bound = !w->sending;
    info->is_settled = !(w->sending && w->sending->is_looking) &&
                       !(w->head && w->head->sending && w->head->sending->is_looking);
}
