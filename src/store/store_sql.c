// Calls SQLite for the other files, and turns its errors into sentences.
#include "base/alloc.h"
#include "store/store.h"

tern_status tern_store_fail(const tern_memory_store *s, tern_error *err) {
    int code = s->db ? sqlite3_extended_errcode(s->db) : SQLITE_NOMEM;
    const char *said = s->db ? sqlite3_errmsg(s->db) : "";
    switch (code & 0xFF) {
    case SQLITE_NOMEM: return tern_fail(err, TERN_ERR_MEMORY, "%s: out of memory", s->path);
    case SQLITE_FULL:
        return tern_fail(err, TERN_ERR_IO, "%s: the disk is full: nothing was changed", s->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return tern_fail(err, TERN_ERR_IO,
                         "%s: another process is writing, and did not end in %g s", s->path,
                         s->wait_seconds);
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return tern_fail(err, TERN_ERR_FORMAT, "%s: not a memory, or damaged (%s)", s->path, said);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
        return tern_fail(err, TERN_ERR_IO, "%s: %s (SQLite's error %d)", s->path, said, code);
    default:
        return tern_fail(err, TERN_ERR_FORMAT, "%s: %s (SQLite's error %d)", s->path, said, code);
    }
}

tern_status tern_store_run(tern_memory_store *s, const char *sql, tern_error *err) {
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? TERN_OK
                                                                   : tern_store_fail(s, err);
}

tern_status tern_store_prepare(tern_memory_store *s, sqlite3_stmt **out, const char *sql,
                               tern_error *err) {
    return sqlite3_prepare_v2(s->db, sql, -1, out, NULL) == SQLITE_OK ? TERN_OK
                                                                      : tern_store_fail(s, err);
}

tern_status tern_store_step(tern_memory_store *s, sqlite3_stmt *st, bool *has_row,
                            tern_error *err) {
    int code = sqlite3_step(st);
    *has_row = code == SQLITE_ROW;
    return code == SQLITE_ROW || code == SQLITE_DONE ? TERN_OK : tern_store_fail(s, err);
}

tern_status tern_store_do(tern_memory_store *s, sqlite3_stmt *st, tern_error *err) {
    bool has_row;
    tern_status status = tern_store_step(s, st, &has_row, err);
    sqlite3_reset(st);
    return status;
}

tern_status tern_store_int(tern_memory_store *s, const char *sql, int64_t id, int64_t otherwise,
                           int64_t *out, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool has_row = false;
    TERN_TRY(tern_store_prepare(s, &st, sql, err));
    if (id >= 0) sqlite3_bind_int64(st, 1, id);
    tern_status status = tern_store_step(s, st, &has_row, err);
    *out = has_row ? sqlite3_column_int64(st, 0) : otherwise;
    sqlite3_finalize(st);
    return status;
}

tern_status tern_store_begin(tern_memory_store *s, const char *begin, tern_error *err) {
    return tern_store_run(s, begin, err);
}

tern_status tern_store_end(tern_memory_store *s, tern_status status, tern_error *err) {
    if (status == TERN_OK) status = tern_store_run(s, "COMMIT", err);
    // After some failures SQLite has already rolled back.
    if (status != TERN_OK && !sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

tern_str tern_store_text(sqlite3_stmt *st, int column) {
    const void *bytes = sqlite3_column_blob(st, column);
    return (tern_str){bytes ? bytes : "", bytes ? (size_t)sqlite3_column_bytes(st, column) : 0};
}
