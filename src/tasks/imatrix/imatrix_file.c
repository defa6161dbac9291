// Files of importance, in llama.cpp's forms.
//
//   GGUF    general.type "imatrix", imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size; for
//           each matrix NAME.in_sum2 [columns, experts], sums of squares, and NAME.counts
//           [1, experts], rows that were summed; both F32, of one dimension without experts.
//   older   i32 n; n times: i32 length, name, i32 calls, i32 count, f32 [count], means of squares
//           times calls; then perhaps i32 chunks, i32 length, the text's name. Little-endian.
#include "tasks/imatrix/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file/blob.h"

#define NAME_MAX_BYTES 255
#define SUMS           ".in_sum2"
#define COUNTS         ".counts"

// ---- A set -------------------------------------------------------------------------------------

static tern_status add(tern_importances *s, tern_str name, size_t n, tern_importance **out,
                       tern_error *err) {
    if (tern_array_reserve(TERN_MEM_FILE, &s->list, &s->capacity, s->n, 1) != 0)
        return tern_fail_memory(err, (s->n + 1) * sizeof *s->list);
    tern_importance *m = &s->list[s->n];
    *m = (tern_importance){.n = n};
    m->name = tern_alloc(TERN_MEM_FILE, name.len + 1);
    m->means = tern_alloc_array(TERN_MEM_FILE, n, sizeof *m->means);
    s->n++; // freed in any case
    if (!m->name || !m->means) return tern_fail_memory(err, name.len + n * sizeof *m->means);
    memcpy(m->name, name.ptr, name.len);
    m->name[name.len] = 0;
    *out = m;
    return TERN_OK;
}

const tern_importance *tern_importances_find(const tern_importances *s, const char *name) {
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0) return &s->list[i];
    return NULL;
}

void tern_importances_free(tern_importances *s) {
    for (size_t i = 0; i < s->n; i++) {
        tern_free(s->list[i].name);
        tern_free(s->list[i].means);
    }
    tern_free(s->list);
    tern_free(s->dataset);
    *s = (tern_importances){0};
}

static bool is_mean(float x) { return isfinite(x) && x >= 0; }

static tern_status keep_dataset(tern_importances *s, tern_str name, tern_error *err) {
    s->dataset = tern_alloc(TERN_MEM_FILE, name.len + 1);
    if (!s->dataset) return tern_fail_memory(err, name.len);
    if (name.len) memcpy(s->dataset, name.ptr, name.len);
    s->dataset[name.len] = 0;
    return TERN_OK;
}

// ---- The older form ----------------------------------------------------------------------------

typedef struct cursor {
    const uint8_t *at;
    uint64_t left;
} cursor;

static bool take(cursor *c, uint64_t n, const uint8_t **out) {
    if (n > c->left) return false;
    *out = c->at;
    c->at += n;
    c->left -= n;
    return true;
}

static bool take_count(cursor *c, uint32_t most, uint32_t *out) {
    const uint8_t *b;
    if (!take(c, 4, &b)) return false;
    *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return *out <= most;
}

static tern_status cut(const char *path, uint32_t entry, tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s: entry %" PRIu32 " of the importance matrix is cut off, or it is not one",
                     path, entry);
}

static tern_status take_entry(tern_importances *s, cursor *c, const char *path, uint32_t i,
                              tern_error *err) {
    const uint8_t *name, *values;
    uint32_t length, n_calls, n;
    tern_importance *m;
    bool whole = take_count(c, NAME_MAX_BYTES, &length) && length > 0 && take(c, length, &name) &&
                 !memchr(name, 0, length) && take_count(c, INT32_MAX, &n_calls) &&
                 take_count(c, INT32_MAX, &n) && n > 0 && take(c, 4 * (uint64_t)n, &values);
    if (!whole) return cut(path, i, err);
    TERN_TRY(add(s, (tern_str){(const char *)name, length}, n, &m, err));
    for (uint32_t k = 0; k < n; k++) {
        memcpy(&m->means[k], values + 4 * (size_t)k, 4);
        if (n_calls > 0) m->means[k] /= (float)n_calls;
        if (!is_mean(m->means[k]))
            return tern_fail(err, TERN_ERR_FORMAT,
                             "%s: %s: number %" PRIu32 " is not a mean of squares", path, m->name,
                             k);
    }
    return TERN_OK;
}

tern_status tern_importances_parse(tern_importances *out, const char *path, const uint8_t *bytes,
                                   uint64_t n, tern_error *err) {
    cursor c = {bytes, n};
    uint32_t n_entries, length;
    const uint8_t *name;
    if (!take_count(&c, INT32_MAX, &n_entries) || n_entries == 0) return cut(path, 0, err);
    for (uint32_t i = 0; i < n_entries; i++) TERN_TRY(take_entry(out, &c, path, i, err));
    uint32_t n_chunks;
    if (!take_count(&c, INT32_MAX, &n_chunks)) return TERN_OK; // the oldest files end here
    out->n_chunks = n_chunks;
    bool named = take_count(&c, 1 << 16, &length) && take(&c, length, &name);
    return named ? keep_dataset(out, (tern_str){(const char *)name, length}, err) : TERN_OK;
}

static tern_status read_old(tern_importances *out, const char *path, const tern_blob *all,
                            tern_error *err) {
    tern_hold hold;
    TERN_TRY(tern_blob_hold(all, &hold, err));
    tern_status status = tern_importances_parse(out, path, hold.data, all->n, err);
    tern_blob_release(&hold);
    return status;
}

// ---- GGUF --------------------------------------------------------------------------------------

static tern_status read_matrix(tern_importances *out, const tern_file *f, const tern_tensor *sums,
                               tern_error *err) {
    size_t length = strlen(sums->name) - strlen(SUMS);
    char name[NAME_MAX_BYTES + sizeof COUNTS];
    tern_importance *m;
    if (length == 0 || length > NAME_MAX_BYTES)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: tensor %s has no matrix's name", f->path,
                         sums->name);
    memcpy(name, sums->name, length);
    memcpy(name + length, COUNTS, sizeof COUNTS);
    const tern_tensor *counts = tern_file_tensor(f, name);
    uint64_t n_cols = sums->ne[0], n_parts = sums->ne[1];
    bool fits = counts && sums->type == TERN_DTYPE_F32 && counts->type == TERN_DTYPE_F32 &&
                sums->n_dims <= 2 && counts->n_dims <= 2 && n_parts > 0 && n_cols > 0 &&
                counts->ne[0] * counts->ne[1] == n_parts;
    if (!fits)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: %s: expected floats, and as many counts as it has rows", f->path,
                         sums->name);
    TERN_TRY(add(out, (tern_str){name, length}, (size_t)(n_cols * n_parts), &m, err));
    float *rows = tern_alloc_array(TERN_MEM_FILE, (size_t)n_parts, sizeof *rows);
    if (!rows) return tern_fail_memory(err, (size_t)n_parts * sizeof *rows);
    tern_status status = tern_tensor_decode(sums, m->means, err);
    if (status == TERN_OK) status = tern_tensor_decode(counts, rows, err);
    for (size_t i = 0; status == TERN_OK && i < m->n; i++) {
        float n = rows[i / n_cols];
        m->means[i] = n > 0 ? m->means[i] / n : 0;
        if (!is_mean(m->means[i]) || !is_mean(n))
            status = tern_fail(err, TERN_ERR_FORMAT, "%s: %s: number %zu is not a sum of squares",
                               f->path, sums->name, i);
    }
    tern_free(rows);
    return status;
}

static tern_status read_gguf(tern_importances *out, const tern_file *f, tern_error *err) {
    static const size_t end = sizeof SUMS - 1;
    tern_str type = {NULL, 0};
    tern_file_meta_str(f, "general.type", &type);
    if (f->kind != TERN_FILE_GGUF || !tern_str_is(type, "imatrix"))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: expected an importance matrix (general.type imatrix)", f->path);
    for (size_t i = 0; i < f->n_tensors; i++) {
        const char *name = f->tensors[i].name;
        size_t n = strlen(name);
        if (n >= end && strcmp(name + n - end, SUMS) == 0)
            TERN_TRY(read_matrix(out, f, &f->tensors[i], err));
    }
    if (out->n == 0) return tern_fail(err, TERN_ERR_FORMAT, "%s: no matrix is in it", f->path);
    tern_file_meta_int(f, "imatrix.chunk_count", &out->n_chunks);
    const tern_meta *names = tern_file_meta(f, "imatrix.datasets");
    bool named = names && names->strings && names->n > 0;
    return named ? keep_dataset(out, names->strings[0], err) : TERN_OK;
}

tern_status tern_importances_read(tern_importances *out, const char *path, tern_error *err) {
    tern_blob_file *file = NULL;
    tern_blob all;
    char magic[4] = {0};
    *out = (tern_importances){0};
    TERN_TRY(tern_blob_open(&file, path, false, &all, err));
    tern_status status =
        all.n < sizeof magic ? TERN_OK : tern_blob_read(&all, 0, sizeof magic, magic, err);
    bool is_gguf = memcmp(magic, "GGUF", 4) == 0;
    if (status == TERN_OK && !is_gguf) status = read_old(out, path, &all, err);
    tern_blob_close(file);
    if (status == TERN_OK && is_gguf) {
        tern_file *f = NULL;
        status = tern_file_open(&f, path, err);
        if (status == TERN_OK) status = read_gguf(out, f, err);
        tern_file_close(f);
    }
    if (status != TERN_OK) tern_importances_free(out);
    return status;
}

// ---- Writing -----------------------------------------------------------------------------------

// One part adds no dimension: ggml writes it so, and some readers count rows by dimensions.
static tern_status declare(tern_gguf_writer *w, const tern_collected *m) {
    const uint64_t sums[] = {(uint64_t)m->n_cols, (uint64_t)m->n_parts};
    const uint64_t counts[] = {1, (uint64_t)m->n_parts};
    int n_dims = m->n_parts > 1 ? 2 : 1;
    char name[NAME_MAX_BYTES + sizeof SUMS];
    snprintf(name, sizeof name, "%s" SUMS, m->name);
    TERN_TRY(tern_gguf_declare(w, name, TERN_DTYPE_F32, n_dims, sums));
    snprintf(name, sizeof name, "%s" COUNTS, m->name);
    return tern_gguf_declare(w, name, TERN_DTYPE_F32, n_dims, counts);
}

static tern_status write_floats(tern_gguf_writer *w, const double *x, int64_t n, tern_error *err) {
    float piece[256];
    for (int64_t i = 0; i < n;) {
        size_t k = 0;
        for (; i < n && k < sizeof piece / sizeof *piece; i++) piece[k++] = (float)x[i];
        TERN_TRY(tern_gguf_write(w, piece, k * sizeof *piece, err));
    }
    return TERN_OK;
}

static tern_status write_all(tern_gguf_writer *w, const tern_collection *c, tern_error *err) {
    const tern_collected *list = c->list;
    const size_t n = c->n;
    const char *dataset = c->dataset;
    const tern_str name = {dataset, dataset ? strlen(dataset) : 0};
    // Failures here are reported when the writer is finished.
    tern_gguf_put_str(w, "general.type", (tern_str){"imatrix", 7});
    tern_gguf_put_strings(w, "imatrix.datasets", &name, dataset ? 1 : 0);
    tern_gguf_put_int(w, "imatrix.chunk_count", TERN_META_U32, c->n_chunks);
    tern_gguf_put_int(w, "imatrix.chunk_size", TERN_META_U32, c->chunk_size);
    for (size_t i = 0; i < n; i++) declare(w, &list[i]);
    for (size_t i = 0; i < n; i++) {
        TERN_TRY(write_floats(w, list[i].sums, list[i].n_cols * list[i].n_parts, err));
        TERN_TRY(write_floats(w, list[i].counts, list[i].n_parts, err));
    }
    return tern_gguf_writer_finish(w, err);
}

tern_status tern_collected_write(const tern_collection *c, const char *path, tern_error *err) {
    tern_gguf_writer *w;
    TERN_TRY(tern_gguf_writer_open(&w, path, 0, err));
    tern_status status = write_all(w, c, err);
    tern_gguf_writer_free(w);
    return status;
}
