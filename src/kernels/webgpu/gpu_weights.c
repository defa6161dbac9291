// Weights as the kernels read them: ternary codes in tiles (ternary_gemv.wgsl) in slabs, float
// matrices and tables as rows of f16, f32 or int8 with scales (float_linear.wgsl), both in parts
// that fit a binding, vectors as f32. Everything is read, converted and sent in pieces, so that the
// host never holds a large matrix, nor a second copy of it where it is mapped.
#include <string.h>
#include "base/alloc.h"
#include "base/ternary.h"
#include "kernels/webgpu/gpu.h"

#define PIECE_BYTES ((uint64_t)4 << 20)
#define STORAGE     (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

// ---- Ternary -----------------------------------------------------------------------------------

static uint64_t tile_bytes(int64_t n_cols) {
    return (uint64_t)gpu_blocks(n_cols) * 128;
}

static int64_t n_tiles(int64_t n_rows) {
    return (n_rows + GPU_TILE_ROWS - 1) / GPU_TILE_ROWS;
}

static uint64_t tiles_bytes(int64_t tiles, int64_t n_cols) {
    return gpu_round(GPU_HEADER_BYTES + (uint64_t)tiles * tile_bytes(n_cols), 256);
}

// Into how many parts of equal tiles a matrix is cut to fit the GPU's bindings; 0: a tile is too
// large.
static int64_t n_ternary_parts(const tern_device *d, const tern_weight_source *s) {
    int64_t most = (int64_t)((d->part_bytes_max - GPU_HEADER_BYTES) / tile_bytes(s->n_cols));
    return most < 1 ? 0 : (n_tiles(s->n_rows) + most - 1) / most;
}

static uint64_t ternary_bytes(const tern_device *d, const tern_weight_source *s) {
    int64_t n = n_ternary_parts(d, s), tiles = n_tiles(s->n_rows), each = n ? tiles / n : 0;
    int64_t longer = n ? tiles % n : 0;
    return (uint64_t)longer * tiles_bytes(each + 1, s->n_cols) +
           (uint64_t)(n - longer) * tiles_bytes(each, s->n_cols);
}

// All matrices are known beforehand, so slabs are made exactly as large as needed.
tern_status gpu_tune(tern_device *d, const tern_weight_source *sources, size_t n, tern_error *err) {
    (void)err;
    d->ternary_bytes_left = 0;
    for (size_t i = 0; i < n; i++)
        if (sources[i].is_matrix && !sources[i].is_head)
            d->ternary_bytes_left += ternary_bytes(d, &sources[i]);
    return TERN_OK;
}

static tern_status slab_take(tern_device *d, uint64_t bytes, gpu_part *part, tern_error *err) {
    if (d->n_slabs == 0 || d->slab_used + bytes > d->slab_bytes) {
        uint64_t size = d->ternary_bytes_left > bytes ? d->ternary_bytes_left : bytes;
        if (size > d->part_bytes_max) size = d->part_bytes_max;
        if (tern_array_reserve(TERN_MEM_GRAPH, &d->slabs, &d->slabs_capacity, d->n_slabs, 1) != 0)
            return tern_fail_memory(err, sizeof *d->slabs);
        TERN_TRY(gpu_buffer_new(d, GPU_USE_WEIGHTS, size, STORAGE, "ternary weights",
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

// Codes -1, 0, 1 of 64 columns into four words; see ternary_gemv.wgsl.
static void pack_block(const int8_t *codes, uint32_t *out) {
    for (int i = 0; i < 4; i++) {
        uint32_t word = 0;
        for (int j = 0; j < 4; j++) {
            uint32_t c;
            memcpy(&c, codes + 16 * i + 4 * j, 4);
            // In each byte: 11 -> 0, 00 -> 1, 01 -> 2, without a carry into the next.
            word |= (((c & 0x03030303u) + 0x01010101u) & 0x03030303u) << (2 * j);
        }
        out[i] = word;
    }
}

static tern_status send_tiles(tern_device *d, const tern_weight *w, const gpu_part *part,
                              tern_codes *reader, tern_error *err) {
    int64_t blocks = gpu_blocks(w->n_cols), tiles = n_tiles(part->n_rows);
    uint64_t each = tile_bytes(w->n_cols);
    int64_t per_piece = (int64_t)(PIECE_BYTES / each) + 1;
    if (per_piece > tiles) per_piece = tiles;
    uint32_t *piece = tern_alloc_array(TERN_MEM_MISC, (size_t)per_piece, (size_t)each);
    int8_t *row = tern_alloc(TERN_MEM_MISC, (size_t)blocks * GPU_BLOCK_COLS);
    tern_status status = piece && row ? TERN_OK : tern_fail_memory(err, (size_t)each);
    for (int64_t tile = 0; status == TERN_OK && tile < tiles; tile += per_piece) {
        int64_t n = tiles - tile < per_piece ? tiles - tile : per_piece;
        for (int64_t r = 0; status == TERN_OK && r < n * GPU_TILE_ROWS; r++) {
            int64_t at = part->first_row + tile * GPU_TILE_ROWS + r;
            uint32_t *to = piece + (uint64_t)(r / 8) * (each / 4) + (uint64_t)(r % 8) * 4;
            if (at >= w->n_rows) at = w->n_rows - 1; // past the end: nobody reads these sums
            status = tern_rows_reach(&reader->rows, at, err);
            if (status != TERN_OK) break;
            memcpy(row, tern_codes_row(reader, at), (size_t)w->n_cols);
            for (int64_t b = 0; b < blocks; b++) pack_block(row + b * GPU_BLOCK_COLS, to + b * 32);
        }
        if (status == TERN_OK)
            gpu_send(d, part->buffer, part->offset + GPU_HEADER_BYTES + (uint64_t)tile * each,
                     piece, (uint64_t)n * each);
    }
    tern_free(piece);
    tern_free(row);
    return status;
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
    int64_t n_parts = n_ternary_parts(d, s), tiles = n_tiles(s->n_rows), first = 0;
    if (n_parts < 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: eight rows are larger than a GPU's binding", s->name);
    TERN_TRY(reserve_parts(w, (size_t)n_parts, err));
    for (int64_t i = 0; i < n_parts; i++) {
        int64_t n = tiles / n_parts + (i < tiles % n_parts);
        gpu_part *part = &w->parts[w->n_parts];
        *part = (gpu_part){.first_row = first * GPU_TILE_ROWS};
        TERN_TRY(slab_take(d, tiles_bytes(n, s->n_cols), part, err));
        first += n;
        part->n_rows = (i + 1 < n_parts ? first * GPU_TILE_ROWS : s->n_rows) - part->first_row;
        w->n_parts++;
    }
    return TERN_OK;
}

static tern_status bind_ternary(tern_device *d, tern_weight *w, const tern_weight_source *s,
                                tern_error *err) {
    w->form = GPU_FORM_TERNARY;
    w->info.kind = TERN_WEIGHT_TERNARY;
    w->info.layout = "2-bit";
    w->info.bytes_per_token = ternary_bytes(d, s);
    return take_parts(d, w, s, err);
}

static tern_status send_ternary(tern_device *d, const tern_weight *w, const tern_matrix *m,
                                const tern_ternary_kind *kind, tern_error *err) {
    tern_codes reader;
    float header[GPU_HEADER_BYTES / 4] = {kind->scale};
    tern_status status = tern_codes_open(&reader, m, kind, true, err);
    for (size_t i = 0; status == TERN_OK && i < w->n_parts; i++) {
        gpu_send(d, w->parts[i].buffer, w->parts[i].offset, header, sizeof header);
        status = send_tiles(d, w, &w->parts[i], &reader, err);
    }
    tern_codes_close(&reader);
    return status;
}

// ---- Rows of floats ----------------------------------------------------------------------------

// Where rows come from: the file, or a head mode's conversion of the file's. Each is asked for
// after tern_rows_reach.
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
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: rows of %lld cannot be %s (blocks of %zu)", s->name,
                         (long long)s->n_cols, tern_dtype_name(type), tern_dtype_block_n(type));
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

// bf16 has a wider range than f16, though hardly any weight needs it.
#define F16_MAX 65000
static tern_status look_for_f16(row_source *r, bool *fits, tern_error *err) {
    *fits = true;
    if (r->s->type == TERN_DTYPE_F16) return TERN_OK;
    for (int64_t row = 0; *fits && row < r->s->n_rows; row++) {
        TERN_TRY(tern_rows_reach(&r->rows, row, err));
        tern_rows_decode(&r->rows, row, r->floats);
        for (int64_t i = 0; i < r->s->n_cols; i++)
            *fits &= r->floats[i] < F16_MAX && r->floats[i] > -F16_MAX;
    }
    return TERN_OK;
}

// The nearest of the forms: exact, except for the last bits of types whose blocks have scales of
// two levels, which become f16.
static tern_status find_form(row_source *r, gpu_form *form, tern_error *err) {
    bool q8 = r->type == TERN_DTYPE_Q8_0 || r->type == TERN_DTYPE_Q4_0, fits;
    *form = q8 ? GPU_FORM_Q8 : GPU_FORM_F32;
    if (q8 || r->type == TERN_DTYPE_F32 || r->s->n_cols % 8 != 0) return TERN_OK;
    TERN_TRY(look_for_f16(r, &fits, err));
    if (fits) *form = GPU_FORM_F16;
    return TERN_OK;
}

static tern_status send_rows(tern_device *d, const tern_weight *w, row_source *r,
                             const gpu_part *part, tern_error *err) {
    uint64_t row_bytes = row_bytes_of(w->form, w->n_cols);
    int64_t per_piece = (int64_t)(PIECE_BYTES / row_bytes) + 1;
    uint8_t *piece = tern_alloc_array(TERN_MEM_MISC, (size_t)per_piece, (size_t)row_bytes);
    tern_status status = piece ? TERN_OK : tern_fail_memory(err, (size_t)row_bytes);
    for (int64_t first = 0; status == TERN_OK && first < part->n_rows; first += per_piece) {
        int64_t n = part->n_rows - first < per_piece ? part->n_rows - first : per_piece;
        for (int64_t i = 0; status == TERN_OK && i < n; i++) {
            int64_t row = part->first_row + first + i;
            status = tern_rows_reach(&r->rows, row, err);
            if (status == TERN_OK) write_row(r, w->form, row, piece + (uint64_t)i * row_bytes);
        }
        if (status == TERN_OK)
            gpu_send(d, part->buffer, part->offset + (uint64_t)first * row_bytes, piece,
                     (uint64_t)n * row_bytes);
    }
    tern_free(piece);
    return status;
}

static tern_status bind_parts(tern_device *d, tern_weight *w, row_source *r, tern_error *err) {
    const char *name = r->s->name;
    TERN_TRY(find_form(r, &w->form, err));
    w->info.layout = w->form == GPU_FORM_Q8 ? tern_dtype_name(r->type)
                     : w->form == GPU_FORM_F16 ? "F16" : "F32";
    uint64_t row_bytes = row_bytes_of(w->form, w->n_cols);
    int64_t rows_max = (int64_t)(d->part_bytes_max / row_bytes) / 8 * 8;
    if (rows_max < 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: eight rows are larger than a GPU's binding", name);
    TERN_TRY(reserve_parts(w, (size_t)((w->n_rows + rows_max - 1) / rows_max), err));
    w->owns_buffers = true;
    if (r->s->is_matrix) w->info.bytes_per_token = row_bytes * (uint64_t)w->n_rows;
    for (int64_t first = 0; first < w->n_rows; first += rows_max) {
        gpu_part *part = &w->parts[w->n_parts];
        *part = (gpu_part){.first_row = first};
        part->n_rows = w->n_rows - first < rows_max ? w->n_rows - first : rows_max;
        part->bytes = (uint64_t)part->n_rows * row_bytes;
        TERN_TRY(gpu_buffer_new(d, GPU_USE_WEIGHTS, part->bytes, STORAGE, name, &part->buffer,
                                err));
        w->n_parts++;
    }
    return TERN_OK;
}

// A head may be converted.
static tern_dtype type_of(const tern_weight_source *s) {
    tern_dtype type = s->type;
    if (s->is_head && !s->is_table) tern_head_type(s->head, &type);
    return type;
}

static tern_status send_all_rows(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                                 tern_error *err) {
    row_source r;
    tern_status status = row_source_open(&r, s, type_of(s), err);
    for (size_t i = 0; status == TERN_OK && i < w->n_parts; i++)
        status = send_rows(d, w, &r, &w->parts[i], err);
    row_source_close(&r);
    return status;
}

static tern_status bind_rows(tern_device *d, tern_weight *w, const tern_weight_source *s,
                             tern_error *err) {
    if (s->type == TERN_DTYPE_HF_TERNARY)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: a packed ternary %s is not supported",
                         s->name, s->is_head ? "head" : "table");
    if (s->n_cols % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the GPU's kernels need rows of a multiple of 4 elements, not %lld",
                         s->name, (long long)s->n_cols);
    row_source r;
    tern_status status = row_source_open(&r, s, type_of(s), err);
    if (status == TERN_OK) status = bind_parts(d, w, &r, err);
    row_source_close(&r);
    return status;
}

// A table that is also the head keeps its own rows, as on the CPU, if a mode converts the head's.
static tern_status bind_table_head(tern_device *d, tern_weight *w, const tern_weight_source *s,
                                   tern_error *err) {
    tern_dtype type;
    if (!s->is_table || !s->is_head || !tern_head_type(s->head, &type) || type == s->type)
        return TERN_OK;
    tern_weight_source head = *s;
    head.is_table = false;
    TERN_TRY(gpu_weight_bind(d, &head, &w->head, err));
    w->info = w->head->info;
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
    w->owns_buffers = true;
    w->parts[0].bytes = gpu_round(n * sizeof(float), 16);
    w->parts[0].n_rows = 1;
    TERN_TRY(gpu_buffer_new(d, GPU_USE_WEIGHTS, w->parts[0].bytes, STORAGE, s->name,
                            &w->parts[0].buffer, err));
    w->n_parts = 1;
    return TERN_OK;
}

// ---- Binding -----------------------------------------------------------------------------------

static tern_status find_kind(const tern_weight_source *s, tern_ternary_kind *kind,
                             tern_error *err) {
    tern_matrix m = tern_weight_matrix(s);
    *kind = (tern_ternary_kind){0};
    if (!s->is_matrix || s->is_head) return TERN_OK;
    return tern_ternary_find(&m, s->ternarize, kind, err);
}

// Sends the file's data to the weight's place, or compares it with what lies there.
static tern_status send_all(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                            const tern_ternary_kind *kind, tern_error *err) {
    tern_matrix m = tern_weight_matrix(s);
    if (w->form == GPU_FORM_TERNARY) return send_ternary(d, w, &m, kind, err);
    if (w->form == GPU_FORM_VECTOR) {
        gpu_send(d, w->parts[0].buffer, 0, w->vector,
                 (uint64_t)(w->n_rows * w->n_cols) * sizeof(float));
        return TERN_OK;
    }
    return send_all_rows(d, w, s, err);
}

tern_status gpu_weight_verify(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                              tern_weight_check *out, tern_error *err) {
    tern_ternary_kind kind;
    *out = (tern_weight_check){0};
    TERN_TRY(find_kind(s, &kind, err));
    d->compare = out;
    tern_status status = send_all(d, w, s, &kind, err);
    if (status == TERN_OK && w->head) {
        tern_weight_source head = *s;
        head.is_table = false;
        status = send_all(d, w->head, &head, &kind, err);
    }
    d->compare = NULL;
    return status == TERN_OK ? gpu_check(d, "reading weights back", err) : status;
}

tern_status gpu_weight_bind(tern_device *d, const tern_weight_source *s, tern_weight **out,
                            tern_error *err) {
    *out = NULL;
    tern_status status = TERN_OK;
    tern_ternary_kind kind;
    tern_weight *w = tern_alloc(TERN_MEM_WEIGHTS, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->n_rows = s->n_rows;
    w->n_cols = s->n_cols;
    w->parts = tern_alloc(TERN_MEM_WEIGHTS, sizeof *w->parts);
    if (!w->parts) {
        status = tern_fail_memory(err, sizeof *w->parts);
        goto fail;
    }
    TERN_TRY_GOTO(find_kind(s, &kind, err));
    if (!s->is_matrix && !s->is_table)
        TERN_TRY_GOTO(bind_vector(d, w, s, err));
    else if (kind.is_ternary)
        TERN_TRY_GOTO(bind_ternary(d, w, s, err));
    else {
        TERN_TRY_GOTO(bind_rows(d, w, s, err));
        TERN_TRY_GOTO(bind_table_head(d, w, s, err));
    }
    TERN_TRY_GOTO(send_all(d, w, s, &kind, err));
    if (s->is_matrix && !s->is_head) d->ternary_bytes_left -= ternary_bytes(d, s);
    w->info.bytes_per_token_greedy = w->info.bytes_per_token;
    TERN_TRY_GOTO(gpu_check(d, "sending weights", err));
    *out = w;
    return TERN_OK;
fail:
    gpu_weight_unbind(d, w);
    return status;
}

void gpu_weight_unbind(tern_device *d, tern_weight *w) {
    if (!w) return;
    gpu_weight_unbind(d, w->head);
    for (size_t i = 0; w->owns_buffers && i < w->n_parts; i++)
        gpu_buffer_free(d, GPU_USE_WEIGHTS, w->parts[i].buffer);
    tern_free(w->parts);
    tern_free(w->vector);
    tern_free(w);
}

void gpu_weight_info(const tern_weight *w, tern_weight_info *info) {
    *info = w->info;
}
