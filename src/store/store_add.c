// Writing items: a record, its chunks, their vectors, all in one transaction.
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "store/store.h"

static void bind_bytes(sqlite3_stmt *st, int column, const tern_strbuf *b) {
    sqlite3_bind_text64(st, column, tern_strbuf_text(b), b->len, SQLITE_STATIC, SQLITE_UTF8);
}

// ---- Rows ---------------------------------------------------------------------------------------

static tern_status put_record(tern_memory_store *s, const tern_store_item *item, int64_t *id,
                              tern_error *err) {
    sqlite3_stmt *st = NULL;
    TERN_TRY(tern_store_prepare(
        s, &st, "INSERT INTO record(source, metadata, created, digest) VALUES(?, ?, ?, ?)", err));
    if (item->has_source) bind_bytes(st, 1, &item->source);
    bind_bytes(st, 2, &item->metadata);
    sqlite3_bind_int64(st, 3, item->created ? item->created : (int64_t)time(NULL));
    sqlite3_bind_int64(st, 4, (int64_t)item->digest);
    tern_status status = tern_store_do(s, st, err);
    sqlite3_finalize(st);
    *id = sqlite3_last_insert_rowid(s->db);
    return status;
}

typedef struct chunk_writer {
    tern_memory_store *s;
    sqlite3_stmt *chunk, *words, *code, *vector;
    uint8_t *row; // one code
} chunk_writer;

static tern_status put_vector(chunk_writer *w, const float *vector, int64_t id, tern_error *err) {
    size_t n = (size_t)w->s->n_dims;
    tern_vectors_encode(w->row, vector, n);
    sqlite3_bind_int64(w->code, 1, id);
    sqlite3_bind_blob64(w->code, 2, w->row, tern_vectors_row_bytes(n), SQLITE_STATIC);
    TERN_TRY(tern_store_do(w->s, w->code, err));
    sqlite3_bind_int64(w->vector, 1, id);
    sqlite3_bind_blob64(w->vector, 2, vector, n * sizeof *vector, SQLITE_STATIC);
    return tern_store_do(w->s, w->vector, err);
}

static tern_status put_chunk(chunk_writer *w, const tern_store_item *item, size_t i, int64_t record,
                             tern_error *err) {
    const tern_text_chunk *c = &item->chunks.list[i];
    const char *heading = tern_strbuf_text(&item->chunks.headings) + c->heading;
    const char *text = tern_strbuf_text(&item->text) + c->begin;
    sqlite3_bind_int64(w->chunk, 1, record);
    sqlite3_bind_int64(w->chunk, 2, (int64_t)c->begin);
    sqlite3_bind_int64(w->chunk, 3, (int64_t)c->line);
    sqlite3_bind_int64(w->chunk, 4, (int64_t)c->n_tokens);
    sqlite3_bind_text64(w->chunk, 5, heading, c->n_heading, SQLITE_STATIC, SQLITE_UTF8);
    sqlite3_bind_text64(w->chunk, 6, text, c->end - c->begin, SQLITE_STATIC, SQLITE_UTF8);
    TERN_TRY(tern_store_do(w->s, w->chunk, err));
    int64_t id = sqlite3_last_insert_rowid(w->s->db);
    sqlite3_bind_int64(w->words, 1, id);
    TERN_TRY(tern_store_do_words(w->s, w->words, (tern_str){heading, c->n_heading},
                                 (tern_str){text, c->end - c->begin}, err));
    if (!item->vectors) return TERN_OK;
    return put_vector(w, item->vectors + i * (size_t)w->s->n_dims, id, err);
}

static tern_status put_chunks(tern_memory_store *s, const tern_store_item *item, int64_t record,
                              tern_error *err) {
    chunk_writer w = {.s = s};
    tern_status status = tern_store_prepare(
        s, &w.chunk,
        "INSERT INTO chunk(record, first, line, n_tokens, heading, text) VALUES(?, ?, ?, ?, ?, ?)",
        err);
    if (status == TERN_OK)
        status = tern_store_prepare(s, &w.words,
                                    "INSERT INTO words(rowid, heading, text) VALUES(?, ?, ?)", err);
    if (status == TERN_OK)
        status = tern_store_prepare(s, &w.code, "INSERT INTO code VALUES(?, ?)", err);
    if (status == TERN_OK)
        status = tern_store_prepare(s, &w.vector, "INSERT INTO vector VALUES(?, ?)", err);
    w.row = tern_alloc(TERN_MEM_MISC, tern_vectors_row_bytes((size_t)s->n_dims));
    if (status == TERN_OK && !w.row) status = tern_fail_memory(err, 1);
    for (size_t i = 0; i < item->chunks.n && status == TERN_OK; i++)
        status = put_chunk(&w, item, i, record, err);
    sqlite3_finalize(w.chunk);
    sqlite3_finalize(w.words);
    sqlite3_finalize(w.code);
    sqlite3_finalize(w.vector);
    tern_free(w.row);
    return status;
}

static tern_status delete_source(tern_memory_store *s, const tern_store_item *item,
                                 tern_error *err) {
    for (;;) {
        sqlite3_stmt *st = NULL;
        bool found = false;
        TERN_TRY(tern_store_prepare(s, &st, "SELECT id FROM record WHERE source = ? LIMIT 1", err));
        bind_bytes(st, 1, &item->source);
        tern_status status = tern_store_step(s, st, &found, err);
        int64_t id = found ? sqlite3_column_int64(st, 0) : 0;
        sqlite3_finalize(st);
        if (status != TERN_OK || !found) return status;
        TERN_TRY(tern_store_delete(s, id, err));
    }
}

// ---- Items --------------------------------------------------------------------------------------

tern_status tern_store_find_same(tern_memory_store *s, const tern_store_item *item, int64_t *id,
                                 tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool has_row = false;
    *id = 0;
    if (!item->has_source) return TERN_OK;
    TERN_TRY(
        tern_store_prepare(s, &st, "SELECT id FROM record WHERE source = ? AND digest = ?", err));
    bind_bytes(st, 1, &item->source);
    sqlite3_bind_int64(st, 2, (int64_t)item->digest);
    tern_status status = tern_store_step(s, st, &has_row, err);
    if (has_row) *id = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return status;
}

tern_status tern_store_write_item(tern_memory_store *s, const tern_store_item *item, bool replace,
                                  int64_t *id, tern_error *err) {
    TERN_TRY(tern_store_know_model(s, err)); // another process may have been the first to add
    if (item->vectors && s->n_dims == 0) TERN_TRY(tern_store_put_model(s, err));
    if (!item->vectors && s->n_dims)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: it has vectors of \"%s\": open it with this model to add to it",
                         s->path, s->model_name);
    if (replace && item->has_source) TERN_TRY(delete_source(s, item, err));
    TERN_TRY(put_record(s, item, id, err));
    return put_chunks(s, item, *id, err);
}

tern_status tern_store_check_params(const tern_memory_add_params *p, tern_error *err) {
    TERN_NEED_EACH(p->patterns, p->n_patterns);
    if (p->chunk_tokens < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "chunks of %d tokens: expected 1 or more",
                         (int)p->chunk_tokens);
    return TERN_OK;
}

static tern_status add(tern_memory_store *s, tern_store_item *item, const tern_memory_add_params *p,
                       tern_memory_added *added, tern_error *err) {
    added->n_chunks = item->chunks.n;
    added->n_redacted = item->n_redacted;
    if (p->replace) TERN_TRY(tern_store_find_same(s, item, &added->id, err));
    added->was_there = added->id != 0;
    if (added->was_there) return TERN_OK;
    TERN_TRY(tern_store_embed_item(s, item, p, err));
    TERN_TRY(tern_store_begin(s, "BEGIN IMMEDIATE", err));
    tern_status status = tern_store_write_item(s, item, p->replace, &added->id, err);
    return tern_store_end(s, status, err);
}

tern_status tern_memory_add(tern_memory_store *store, const tern_memory_item *item,
                            const tern_memory_add_params *params, tern_memory_added *added,
                            tern_error *err) {
    tern_clear(err);
    static const tern_memory_add_params none;
    tern_memory_added ignored;
    tern_redactor *redactor;
    tern_store_item made;
    if (!added) added = &ignored;
    *added = (tern_memory_added){0};
    TERN_NEED(store);
    TERN_NEED(item);
    TERN_NEED_ARRAY(item->text, item->n_bytes);
    TERN_NEED_ENUM(item->format, TERN_MEMORY_CODE);
    if (!params) params = &none;
    TERN_TRY(tern_store_check_params(params, err));
    TERN_TRY(tern_redactor_open(&redactor, params->keep_secrets, params->patterns,
                                params->n_patterns, err));
    tern_use_enter(&store->use);
    tern_status status = tern_store_make_item(store, &made, item, params, redactor, err);
    tern_redactor_close(redactor);
    if (status == TERN_OK) {
        status = add(store, &made, params, added, err);
        tern_store_free_item(&made);
        if (status != TERN_OK) added->id = 0;
    }
    tern_store_leave(store);
    return status;
}
