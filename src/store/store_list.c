// Lists records, and forgets them.
#include "base/alloc.h"
#include "store/store.h"

// ---- Records ------------------------------------------------------------------------------------

// The text of a record: its chunks, each without the part repeated from the one before it.
static tern_status read_text(tern_memory_store *s, int64_t id, tern_strbuf *out, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool more = true;
    TERN_TRY(tern_store_prepare(s, &st,
                                "SELECT first, text FROM chunk WHERE record = ? ORDER BY id", err));
    sqlite3_bind_int64(st, 1, id);
    tern_status status = TERN_OK;
    while (status == TERN_OK && (status = tern_store_step(s, st, &more, err)) == TERN_OK && more) {
        int64_t first = sqlite3_column_int64(st, 0);
        tern_str text = tern_store_text(st, 1);
        if (first < 0 || (uint64_t)first > out->len || out->len - (uint64_t)first > text.len)
            status = tern_fail(err, TERN_ERR_FORMAT, "%s: damaged: the chunks of record %lld",
                               s->path, (long long)id);
        else
            tern_strbuf_append(out, text.ptr + (out->len - (size_t)first),
                               text.len - (out->len - (size_t)first));
    }
    sqlite3_finalize(st);
    return status == TERN_OK && out->failed ? tern_fail_memory(err, out->len) : status;
}

typedef struct reader {
    tern_memory_store *s;
    tern_memory_record_fn on_record;
    void *user;
    bool with_text;
    tern_strbuf source, metadata, text;
} reader;

static const char *keep(tern_strbuf *to, tern_str bytes) {
    tern_strbuf_clear(to);
    tern_strbuf_append(to, bytes.ptr, bytes.len);
    return tern_strbuf_text(to);
}

static tern_status give(reader *x, sqlite3_stmt *st, tern_error *err) {
    tern_memory_record record = {.id = sqlite3_column_int64(st, 0),
                                 .created = sqlite3_column_int64(st, 3),
                                 .n_chunks = sqlite3_column_int64(st, 4),
                                 .n_tokens = sqlite3_column_int64(st, 5),
                                 .n_bytes = sqlite3_column_int64(st, 6)};
    record.source = keep(&x->source, tern_store_text(st, 1));
    record.metadata = keep(&x->metadata, tern_store_text(st, 2));
    if (x->with_text) {
        tern_strbuf_clear(&x->text);
        TERN_TRY(read_text(x->s, record.id, &x->text, err));
        record.text = tern_strbuf_text(&x->text);
    }
    if (x->source.failed || x->metadata.failed) return tern_fail_memory(err, 1);
    if (!x->on_record(x->user, &record)) return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    return TERN_OK;
}

#define SELECT_RECORDS                                                                             \
    "SELECT record.id, source, metadata, created, count(*), sum(n_tokens),"                        \
    " max(first + length(CAST(text AS BLOB)))"                                                     \
    " FROM record JOIN chunk ON chunk.record = record.id "

tern_status tern_store_each(tern_memory_store *s, const tern_memory_filter *filters, size_t n,
                            bool with_text, tern_memory_record_fn on_record, void *user,
                            tern_error *err) {
    sqlite3_stmt *st = NULL;
    reader x = {.s = s, .on_record = on_record, .user = user, .with_text = with_text};
    bool more = true;
    TERN_TRY(
        tern_store_prepare(s, &st, SELECT_RECORDS "GROUP BY record.id ORDER BY record.id", err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && (status = tern_store_step(s, st, &more, err)) == TERN_OK && more) {
        const tern_store_row row = {tern_store_text(st, 1), tern_store_text(st, 2),
                                    sqlite3_column_int64(st, 3)};
        if (tern_store_fits(filters, n, &row)) status = give(&x, st, err);
    }
    sqlite3_finalize(st);
    tern_strbuf_free(&x.source);
    tern_strbuf_free(&x.metadata);
    tern_strbuf_free(&x.text);
    return status;
}

tern_status tern_memory_list(tern_memory_store *store, const tern_memory_filter *filters,
                             size_t n_filters, tern_memory_record_fn on_record, void *user,
                             tern_error *err) {
    tern_clear(err);
    TERN_NEED(store);
    TERN_NEED(on_record);
    TERN_TRY(tern_store_check_filters(filters, n_filters, err));
    TERN_TRY(tern_store_begin(store, "BEGIN", err));
    tern_use_enter(&store->use);
    tern_status status = tern_store_each(store, filters, n_filters, false, on_record, user, err);
    status = tern_store_end(store, status, err);
    tern_store_leave(store);
    return status;
}

static tern_status show(tern_memory_store *s, int64_t id, tern_memory_record_fn on_record,
                        void *user, tern_error *err) {
    sqlite3_stmt *st = NULL;
    reader x = {.s = s, .on_record = on_record, .user = user, .with_text = true};
    bool found = false;
    TERN_TRY(
        tern_store_prepare(s, &st, SELECT_RECORDS "WHERE record.id = ? GROUP BY record.id", err));
    sqlite3_bind_int64(st, 1, id);
    tern_status status = tern_store_step(s, st, &found, err);
    if (status == TERN_OK && !found)
        status = tern_fail(err, TERN_ERR_ARGUMENT, "%s: there is no record %lld", s->path,
                           (long long)id);
    if (status == TERN_OK) status = give(&x, st, err);
    sqlite3_finalize(st);
    tern_strbuf_free(&x.source);
    tern_strbuf_free(&x.metadata);
    tern_strbuf_free(&x.text);
    return status;
}

tern_status tern_memory_show(tern_memory_store *store, int64_t id, tern_memory_record_fn on_record,
                             void *user, tern_error *err) {
    tern_clear(err);
    TERN_NEED(store);
    TERN_NEED(on_record);
    TERN_TRY(tern_store_begin(store, "BEGIN", err));
    tern_use_enter(&store->use);
    tern_status status = tern_store_end(store, show(store, id, on_record, user, err), err);
    tern_store_leave(store);
    return status;
}

// ---- Forgetting ---------------------------------------------------------------------------------

// Deletes from the index, which needs the old texts.
static tern_status delete_words(tern_memory_store *s, int64_t record, tern_error *err) {
    sqlite3_stmt *chunks = NULL, *words = NULL;
    bool more = true;
    tern_status status =
        tern_store_prepare(s, &chunks, "SELECT id, heading, text FROM chunk WHERE record = ?", err);
    if (status == TERN_OK)
        status = tern_store_prepare(
            s, &words, "INSERT INTO words(words, rowid, heading, text) VALUES('delete', ?, ?, ?)",
            err);
    if (status == TERN_OK) sqlite3_bind_int64(chunks, 1, record);
    while (status == TERN_OK && (status = tern_store_step(s, chunks, &more, err)) == TERN_OK &&
           more) {
        sqlite3_bind_int64(words, 1, sqlite3_column_int64(chunks, 0));
        status = tern_store_do_words(s, words, tern_store_text(chunks, 1),
                                     tern_store_text(chunks, 2), err);
    }
    sqlite3_finalize(chunks);
    sqlite3_finalize(words);
    return status;
}

tern_status tern_store_delete(tern_memory_store *s, int64_t id, tern_error *err) {
    static const char *const steps[] = {
        "DELETE FROM code WHERE id IN (SELECT id FROM chunk WHERE record = ?)",
        "DELETE FROM vector WHERE id IN (SELECT id FROM chunk WHERE record = ?)",
        "DELETE FROM chunk WHERE record = ?",
        "UPDATE meta SET value = value + 1 WHERE key = 'deleted' AND ? > 0",
        "DELETE FROM record WHERE id = ?", // last: its number of changes is checked
    };
    TERN_TRY(delete_words(s, id, err)); // first, while chunk has the texts
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        sqlite3_stmt *st = NULL;
        TERN_TRY(tern_store_prepare(s, &st, steps[i], err));
        sqlite3_bind_int64(st, 1, id);
        tern_status status = tern_store_do(s, st, err);
        sqlite3_finalize(st);
        TERN_TRY(status);
    }
    if (sqlite3_changes(s->db) > 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there is no record %lld", s->path, (long long)id);
}

tern_status tern_memory_forget(tern_memory_store *store, int64_t id, tern_error *err) {
    tern_clear(err);
    TERN_NEED(store);
    TERN_TRY(tern_store_begin(store, "BEGIN IMMEDIATE", err));
    return tern_store_end(store, tern_store_delete(store, id, err), err);
}

typedef struct id_list {
    int64_t *ids;
    size_t n, capacity;
} id_list;

static bool keep_id(void *user, const tern_memory_record *record) {
    id_list *l = user;
    if (tern_array_reserve(TERN_MEM_MISC, &l->ids, &l->capacity, l->n, 1) != 0) return false;
    l->ids[l->n++] = record->id;
    return true;
}

tern_status tern_memory_forget_where(tern_memory_store *store, const tern_memory_filter *filters,
                                     size_t n_filters, int64_t *n_records, tern_error *err) {
    tern_clear(err);
    id_list list = {0};
    if (n_records) *n_records = 0;
    TERN_NEED(store);
    TERN_TRY(tern_store_check_filters(filters, n_filters, err));
    if (n_filters == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: without a filter everything would be forgotten", store->path);
    TERN_TRY(tern_store_begin(store, "BEGIN IMMEDIATE", err));
    tern_status status = tern_store_each(store, filters, n_filters, false, keep_id, &list, err);
    if (status == TERN_ERR_CANCELLED) status = tern_fail_memory(err, list.n * sizeof *list.ids);
    for (size_t i = 0; i < list.n && status == TERN_OK; i++)
        status = tern_store_delete(store, list.ids[i], err);
    status = tern_store_end(store, status, err);
    if (status == TERN_OK && n_records) *n_records = (int64_t)list.n;
    tern_free(list.ids);
    return status;
}

// The index keeps deleted words until it is optimized, the file keeps empty pages, and the log old
// pages.
tern_status tern_memory_compact(tern_memory_store *store, tern_error *err) {
    tern_clear(err);
    TERN_NEED(store);
    TERN_TRY(tern_store_run(store, "INSERT INTO words(words) VALUES('optimize')", err));
    TERN_TRY(tern_store_run(store, "VACUUM", err));
    return tern_store_run(store, "PRAGMA wal_checkpoint(TRUNCATE)", err);
}
