// The nearest vectors: all codes are kept in memory and updated when a recall begins; for the best
// ones by code, the cosine is computed again from the floats.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "store/store_recall.h"

// ---- Codes in memory ----------------------------------------------------------------------------

static tern_status append_codes(tern_memory_store *s, tern_error *err) {
    sqlite3_stmt *st = NULL;
    tern_vectors *v = &s->vectors;
    bool more = true;
    TERN_TRY(tern_store_prepare(s, &st, "SELECT id, q8 FROM code WHERE id > ? ORDER BY id", err));
    sqlite3_bind_int64(st, 1, v->n ? v->ids[v->n - 1] : INT64_MIN);
    tern_status status = TERN_OK;
    while (status == TERN_OK && (status = tern_store_step(s, st, &more, err)) == TERN_OK && more) {
        tern_str row = tern_store_text(st, 1);
        if (row.len != tern_vectors_row_bytes(v->n_dims))
            status = tern_fail(err, TERN_ERR_FORMAT, "%s: damaged: the code of chunk %lld", s->path,
                               (long long)sqlite3_column_int64(st, 0));
        else
            status =
                tern_vectors_add(v, sqlite3_column_int64(st, 0), (const uint8_t *)row.ptr, err);
    }
    sqlite3_finalize(st);
    return status;
}

static tern_status refresh(tern_memory_store *s, tern_error *err) {
    int64_t n_deleted;
    TERN_TRY(
        tern_store_int(s, "SELECT value FROM meta WHERE key = 'deleted'", -1, 0, &n_deleted, err));
    if (n_deleted != s->n_deleted) tern_vectors_clear(&s->vectors);
    s->n_deleted = n_deleted;
    tern_status status = append_codes(s, err);
    if (status != TERN_OK) tern_vectors_clear(&s->vectors);
    return status;
}

// ---- Floats -------------------------------------------------------------------------------------

static int best_first(const void *a, const void *b) {
    const tern_match *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

typedef struct rescorer {
    tern_recall *r;
    float *row, length; // of the query
    size_t n_dims;
} rescorer;

// SQLite's bytes may be unaligned.
static tern_status cosine(const rescorer *x, tern_str bytes, float *out, tern_error *err) {
    if (bytes.len != x->n_dims * sizeof(float))
        return tern_fail(err, TERN_ERR_FORMAT, "%s: damaged: a vector of %zu bytes", x->r->s->path,
                         bytes.len);
    memcpy(x->row, bytes.ptr, bytes.len);
    float own = sqrtf(tern_vectors_dot(&x->r->s->vectors, x->row, x->row));
    float product = tern_vectors_dot(&x->r->s->vectors, x->row, x->r->vector);
    *out = own > 0 && x->length > 0 ? product / (own * x->length) : 0;
    return TERN_OK;
}

static tern_status rescore(const rescorer *x, tern_match *list, size_t n, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool has_row = false;
    tern_memory_store *s = x->r->s;
    TERN_TRY(tern_store_prepare(s, &st, "SELECT f32 FROM vector WHERE id = ?", err));
    tern_status status = TERN_OK;
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        sqlite3_bind_int64(st, 1, list[i].id);
        status = tern_store_step(s, st, &has_row, err);
        if (status == TERN_OK)
            status =
                cosine(x, has_row ? tern_store_text(st, 0) : TERN_STR(""), &list[i].score, err);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    return status;
}

// Searches all floats, for measuring the loss by the codes.
static tern_status read_all(const rescorer *x, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool more = true;
    tern_recall *r = x->r;
    TERN_TRY(tern_store_prepare(r->s, &st, "SELECT id, f32 FROM vector", err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && (status = tern_store_step(r->s, st, &more, err)) == TERN_OK &&
           more) {
        tern_match m = {sqlite3_column_int64(st, 0), 0};
        if (!tern_recall_allows(r, m.id)) continue;
        status = cosine(x, tern_store_text(st, 1), &m.score, err);
        r->near[r->n_near++] = m;
        if (r->n_near < 2 * r->k) continue;
        qsort(r->near, r->n_near, sizeof m, best_first); // drops the worse half
        r->n_near = r->k;
    }
    sqlite3_finalize(st);
    return status;
}

tern_status tern_recall_vectors(tern_recall *r, tern_error *err) {
    tern_memory_store *s = r->s;
    rescorer x = {.r = r, .n_dims = (size_t)s->n_dims};
    x.length = sqrtf(tern_vectors_dot(&s->vectors, r->vector, r->vector));
    x.row = tern_alloc_array(TERN_MEM_MISC, x.n_dims, sizeof *x.row);
    if (!x.row) return tern_fail_memory(err, x.n_dims * sizeof *x.row);
    tern_status status = TERN_OK;
    if (r->query->exact)
        status = read_all(&x, err);
    else {
        status = refresh(s, err);
        if (status == TERN_OK)
            status = tern_vectors_search(
                &s->vectors, s->team,
                &(tern_vectors_query){r->vector, r->allowed, r->n_allowed, 2 * r->k}, r->near,
                &r->n_near, err);
        if (status == TERN_OK) status = rescore(&x, r->near, r->n_near, err);
    }
    tern_free(x.row);
    if (r->n_near) qsort(r->near, r->n_near, sizeof *r->near, best_first);
    if (r->n_near > r->k) r->n_near = r->k;
    while (r->n_near && r->query->least_similarity > 0 &&
           r->near[r->n_near - 1].score < r->query->least_similarity)
        r->n_near--;
    return status;
}
