// Folders whose projections are floats with ternary values: -s, 0 and s, with an s for a few rows
// or for each group (TriLM, BitCPM4). They become codes in groups, which hold the same numbers in
// an eighth of the bytes.
//
// config.json does not say so, so the numbers must: all projections of all layers are examined
// until one is not ternary, usually after its first row. So a model trained as floats stays as it
// is at the cost of one row. A model with one scale for each matrix also stays: that is how a
// BitNet looks, whose arithmetic is different.
#include <string.h>
#include "base/alloc.h"
#include "formats/file_private.h"

typedef struct floats {
    tern_blob_maker maker; // first: the maker is the matrix
    tern_matrix from;
    tern_dtype type; // PQ2_0 or Q2_0
    uint64_t row_bytes;
} floats;

// Room for a row in both forms.
typedef struct row_scratch {
    float *numbers;
    uint8_t *bytes;
} row_scratch;

static tern_status open_scratch(row_scratch *s, const floats *f, tern_error *err) {
    s->numbers = tern_alloc_array(TERN_MEM_MISC, (size_t)f->from.n_cols, sizeof *s->numbers);
    s->bytes = tern_alloc(TERN_MEM_MISC, (size_t)f->row_bytes);
    if (s->numbers && s->bytes) return TERN_OK;
    tern_free(s->numbers);
    tern_free(s->bytes);
    return tern_fail_memory(err, (size_t)f->from.n_cols * sizeof *s->numbers);
}

static void close_scratch(row_scratch *s) {
    tern_free(s->numbers);
    tern_free(s->bytes);
}

static bool encode_row(const floats *f, const tern_rows *rows, int64_t row, row_scratch *s) {
    tern_rows_decode(rows, row, s->numbers);
    return tern_dtype_encode_groups(f->type, s->numbers, (size_t)f->from.n_cols, s->bytes);
}

// ---- Bytes -------------------------------------------------------------------------------------

static tern_status make(const tern_blob_maker *m, uint64_t first, uint64_t n, void *to,
                        tern_error *err) {
    const floats *f = (const floats *)(const void *)m;
    row_scratch s;
    tern_rows rows;
    TERN_TRY(open_scratch(&s, f, err));
    tern_rows_open_pieces(&rows, &f->from);
    tern_status status = TERN_OK;
    uint8_t *out = to;
    for (uint64_t at = first; at < first + n;) {
        uint64_t row = at / f->row_bytes, in = at % f->row_bytes, left = first + n - at;
        uint64_t step = left < f->row_bytes - in ? left : f->row_bytes - in;
        status = tern_rows_reach(&rows, (int64_t)row, err);
        if (status != TERN_OK) break;
        if (!encode_row(f, &rows, (int64_t)row, &s)) { // it was ternary when the file was opened
            status =
                tern_fail(err, TERN_ERR_IO, "a matrix of -1, 0 and 1 changed while it was in use");
            break;
        }
        memcpy(out, s.bytes + in, (size_t)step);
        out += step;
        at += step;
    }
    tern_rows_close(&rows);
    close_scratch(&s);
    return status;
}

static void drop(const tern_blob_maker *m) {
    tern_blob_drop(&((const floats *)(const void *)m)->from.data);
}

// ---- Finding them ------------------------------------------------------------------------------

static bool is_projection(const tern_tensor *t) {
    static const char end[] = "_proj.weight";
    size_t n = strlen(t->name);
    return t->n_dims == 2 && tern_dtype_is_float(t->type) && strstr(t->name, "layers.") &&
           n > sizeof end && strcmp(t->name + n - (sizeof end - 1), end) == 0;
}

static bool settle(const tern_tensor *t, floats *out) {
    *out = (floats){.maker = {make, drop}, .from = tern_tensor_matrix(t)};
    out->type = t->ne[0] % 128 == 0 ? TERN_DTYPE_PQ2_0 : TERN_DTYPE_Q2_0;
    return tern_dtype_bytes(out->type, t->ne[0], t->ne[0], &out->row_bytes);
}

// What was found in a matrix; scales are F16, 0: none.
typedef struct image {
    bool is_ternary, varies;
    uint16_t scale;
} image;

static void see_scales(const floats *f, const uint8_t *row, image *out) {
    size_t block = tern_dtype_block_bytes(f->type);
    for (uint64_t at = 0; at < f->row_bytes; at += block) {
        uint16_t d;
        memcpy(&d, row + at, 2);
        if (d == 0) continue;
        out->varies |= out->scale != 0 && out->scale != d;
        out->scale = d;
    }
}

// Examines the first n_rows rows.
static tern_status look_at(const floats *f, int64_t n_rows, image *out, tern_error *err) {
    row_scratch s;
    tern_rows rows;
    tern_status status = TERN_OK;
    *out = (image){.is_ternary = true};
    TERN_TRY(open_scratch(&s, f, err));
    tern_rows_open_pieces(&rows, &f->from);
    for (int64_t row = 0; row < n_rows && out->is_ternary; row++) {
        status = tern_rows_reach(&rows, row, err);
        if (status != TERN_OK) break;
        out->is_ternary = encode_row(f, &rows, row, &s);
        if (out->is_ternary) see_scales(f, s.bytes, out);
    }
    tern_rows_close(&rows);
    close_scratch(&s);
    return status;
}

// Examines a row of each, or (whole) all rows.
static tern_status are_ternary(const tern_file *file, bool whole, bool *yes, tern_error *err) {
    bool varies = !whole;
    *yes = true;
    for (size_t i = 0; i < file->n_tensors && *yes; i++) {
        const tern_tensor *t = &file->tensors[i];
        floats f;
        image seen = {0};
        if (!is_projection(t)) continue;
        if (settle(t, &f)) TERN_TRY(look_at(&f, whole ? f.from.n_rows : 1, &seen, err));
        if (whole) tern_blob_drop(&t->data);
        *yes = seen.is_ternary;
        varies |= seen.varies;
    }
    *yes &= varies;
    return TERN_OK;
}

tern_status tern_hf_resolve_ternary_floats(tern_file *file, tern_error *err) {
    bool yes;
    if (tern_json_path(&file->config, "quantization_config")) return TERN_OK;
    for (int whole = 0; whole < 2; whole++) {
        TERN_TRY(are_ternary(file, whole, &yes, err));
        if (!yes) return TERN_OK;
    }
    for (size_t i = 0; i < file->n_tensors; i++) {
        tern_tensor *t = &file->tensors[i];
        if (!is_projection(t)) continue;
        floats *f = tern_arena_take(&file->priv->pool, sizeof *f);
        if (!f) return tern_fail_memory(err, sizeof *f);
        settle(t, f);
        t->type = f->type;
        t->bytes = f->row_bytes * t->ne[1]; // less than the floats
        t->data = tern_blob_made(&f->maker, t->bytes);
    }
    file->packing = "floats that are ternary";
    file->tensor_bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) file->tensor_bytes += file->tensors[i].bytes;
    return TERN_OK;
}
