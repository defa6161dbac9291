// Weight norm: in training a weight is a direction v and a length g for each part of its first
// dimension, and files often still have these. Here they become the weight.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/file_private.h"

typedef struct folded {
    tern_blob_maker maker; // first: the maker is the weight
    tern_matrix direction; // a part is a row
    const float *lengths;  // over the length of the row
} folded;

static const char *const spellings[][2] = {
    {".parametrizations.weight.original1", ".parametrizations.weight.original0"},
    {".weight_v", ".weight_g"},
};
static const char gone[] = ""; // the name of lengths that were used, recognized by its address
#define N_SPELLINGS (sizeof spellings / sizeof *spellings)

// ---- Numbers -----------------------------------------------------------------------------------

static tern_status make(const tern_blob_maker *m, uint64_t first, uint64_t n, void *to,
                        tern_error *err) {
    const folded *f = (const folded *)(const void *)m;
    uint64_t row_bytes = (uint64_t)f->direction.n_cols * sizeof(float);
    tern_rows rows;
    float *row = tern_alloc(TERN_MEM_MISC, (size_t)row_bytes);
    if (!row) return tern_fail_memory(err, (size_t)row_bytes);
    tern_rows_open_pieces(&rows, &f->direction);
    tern_status status = TERN_OK;
    for (uint64_t at = first, step; at < first + n; at += step) {
        uint64_t i = at / row_bytes, in = at % row_bytes, left = first + n - at;
        step = left < row_bytes - in ? left : row_bytes - in;
        status = tern_rows_reach(&rows, (int64_t)i, err);
        if (status != TERN_OK) break;
        tern_rows_decode(&rows, (int64_t)i, row);
        for (int64_t k = 0; k < f->direction.n_cols; k++) row[k] *= f->lengths[i];
        memcpy((uint8_t *)to + (at - first), (const uint8_t *)row + in, (size_t)step);
    }
    tern_rows_close(&rows);
    tern_free(row);
    return status;
}

static void drop(const tern_blob_maker *m) {
    tern_blob_drop(&((const folded *)(const void *)m)->direction.data);
}

// g / |v| of each row.
static tern_status measure(folded *f, float *lengths, tern_error *err) {
    tern_rows rows;
    size_t n = (size_t)f->direction.n_cols;
    float *row = tern_alloc_array(TERN_MEM_MISC, n, sizeof *row);
    if (!row) return tern_fail_memory(err, n * sizeof *row);
    tern_rows_open_pieces(&rows, &f->direction);
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < f->direction.n_rows; i++) {
        double sum = 0;
        status = tern_rows_reach(&rows, i, err);
        if (status != TERN_OK) break;
        tern_rows_decode(&rows, i, row);
        for (size_t k = 0; k < n; k++) sum += (double)row[k] * (double)row[k];
        lengths[i] = sum > 0 ? (float)((double)lengths[i] / sqrt(sum)) : 0;
    }
    tern_rows_close(&rows);
    tern_free(row);
    return status;
}

// ---- Tensors -----------------------------------------------------------------------------------

// The spelling with which a direction's name ends; -1: not a direction.
static int spelling_of(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < N_SPELLINGS; i++) {
        size_t end = strlen(spellings[i][0]);
        if (n > end && strcmp(name + n - end, spellings[i][0]) == 0) return (int)i;
    }
    return -1;
}

static tern_tensor *find_lengths(tern_file *file, const char *name, int spelling) {
    char other[256];
    size_t front = strlen(name) - strlen(spellings[spelling][0]);
    int n = snprintf(other, sizeof other, "%.*s%s", (int)front, name, spellings[spelling][1]);
    if (n < 0 || (size_t)n >= sizeof other) return NULL;
    const tern_tensor *t = tern_file_tensor(file, other);
    return t ? &file->tensors[t - file->tensors] : NULL;
}

static const char *folded_name(tern_file *file, const char *name, int spelling) {
    size_t front = strlen(name) - strlen(spellings[spelling][0]);
    char *out = tern_arena_take(&file->priv->pool, front + sizeof ".weight");
    if (!out) return NULL;
    memcpy(out, name, front);
    memcpy(out + front, ".weight", sizeof ".weight");
    return out;
}

static tern_status fold(tern_file *file, tern_tensor *v, tern_tensor *g, int spelling,
                        tern_error *err) {
    uint64_t n_rows = v->ne[v->n_dims - 1], n_all = v->ne[0] * v->ne[1] * v->ne[2] * v->ne[3];
    folded *f = tern_arena_take(&file->priv->pool, sizeof *f);
    float *lengths = tern_arena_take(&file->priv->pool, (size_t)n_rows * sizeof *lengths);
    const char *name = folded_name(file, v->name, spelling);
    if (!f || !lengths || !name) return tern_fail_memory(err, (size_t)n_rows * sizeof *lengths);
    *f = (folded){.maker = {make, drop}, .direction = tern_tensor_matrix(v), .lengths = lengths};
    f->direction.n_rows = (int64_t)n_rows;
    f->direction.n_cols = (int64_t)(n_all / n_rows);
    TERN_TRY(tern_tensor_decode(g, lengths, err));
    TERN_TRY(measure(f, lengths, err));
    v->name = name;
    v->type = TERN_DTYPE_F32;
    v->bytes = n_all * sizeof(float);
    v->data = tern_blob_made(&f->maker, v->bytes);
    g->name = gone;
    return TERN_OK;
}

static bool can_fold(const tern_tensor *v, const tern_tensor *g) {
    uint64_t n = g ? g->ne[0] * g->ne[1] * g->ne[2] * g->ne[3] : 0;
    return g && v->n_dims >= 2 && n == v->ne[v->n_dims - 1] && n > 0 && v->bytes > 0 &&
           tern_dtype_is_float(v->type) && tern_dtype_is_float(g->type);
}

static void close_gaps(tern_file *file) {
    size_t kept = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        if (file->tensors[i].name != gone) file->tensors[kept++] = file->tensors[i];
    file->n_tensors = kept;
}

tern_status tern_hf_fold_weight_norms(tern_file *file, tern_error *err) {
    size_t n_folded = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        tern_tensor *v = &file->tensors[i];
        int spelling = spelling_of(v->name);
        tern_tensor *g = spelling < 0 ? NULL : find_lengths(file, v->name, spelling);
        if (!can_fold(v, g)) continue; // its reader reports that it is unknown
        TERN_TRY(fold(file, v, g, spelling, err));
        n_folded++;
    }
    if (n_folded == 0) return TERN_OK;
    close_gaps(file);
    tern_name_index_free(&file->priv->tensor_index);
    file->tensor_bytes = 0;
    return tern_file_index_tensors(file, err);
}
