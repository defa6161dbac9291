// SQLite's functions over the page's: see sqlite3.h. A column's value is copied here when it is
// requested.
#include <stdbool.h>
#include <string.h>
#include "sqlite3.h"
#include "apps/web/web.h"
#include "base/alloc.h"

#define COLUMNS 8 // of a row, at most

WEB_IMPORT(sqlite, open) int32_t js_open(void);
WEB_IMPORT(sqlite, close) int32_t js_close(void);
WEB_IMPORT(sqlite, config) int32_t js_config(int32_t what, int32_t value);
WEB_IMPORT(sqlite, exec) int32_t js_exec(const char *sql, uint32_t n);
WEB_IMPORT(sqlite, errcode) int32_t js_errcode(void);
WEB_IMPORT(sqlite, errmsg) uint32_t js_errmsg(char *to, uint32_t n);
WEB_IMPORT(sqlite, changes) int32_t js_changes(void);
WEB_IMPORT(sqlite, autocommit) int32_t js_autocommit(void);
WEB_IMPORT(sqlite, rowid) int64_t js_rowid(void);
WEB_IMPORT(sqlite, prepare) int32_t js_prepare(const char *sql, uint32_t n); // 0: failed
WEB_IMPORT(sqlite, step) int32_t js_step(int32_t st);
WEB_IMPORT(sqlite, reset) int32_t js_reset(int32_t st);
WEB_IMPORT(sqlite, finalize) int32_t js_finalize(int32_t st);
WEB_IMPORT(sqlite, bind_int) int32_t js_bind_int(int32_t st, int32_t at, int64_t value);
WEB_IMPORT(sqlite, bind_bytes)
int32_t js_bind_bytes(int32_t st, int32_t at, const void *bytes, uint32_t n, int32_t is_text);
WEB_IMPORT(sqlite, column_int) int64_t js_column_int(int32_t st, int32_t column);
WEB_IMPORT(sqlite, column_bytes) int32_t js_column_bytes(int32_t st, int32_t column);
WEB_IMPORT(sqlite, column_read) void js_column_read(int32_t st, int32_t column, void *to);

struct sqlite3 {
    char message[300];
};
struct sqlite3_stmt {
    int32_t handle;
    void *columns[COLUMNS]; // copies of this row's columns
};
static sqlite3 the_one; // opened by the page

// ---- The file -----------------------------------------------------------------------------------

int sqlite3_open_v2(const char *path, sqlite3 **db, int flags, const char *vfs) {
    (void)path, (void)flags, (void)vfs;
    *db = &the_one;
    return js_open();
}
int sqlite3_close(sqlite3 *db) { return db ? js_close() : SQLITE_OK; }
int sqlite3_extended_result_codes(sqlite3 *db, int on) {
    (void)db, (void)on; // they are on
    return SQLITE_OK;
}
int sqlite3_busy_timeout(sqlite3 *db, int ms) {
    (void)db, (void)ms; // nothing else uses the file
    return SQLITE_OK;
}
int sqlite3_db_config(sqlite3 *db, int what, int value, int *out) {
    (void)db, (void)out;
    return js_config(what, value);
}
int sqlite3_exec(sqlite3 *db, const char *sql, void *callback, void *user, char **error) {
    (void)db, (void)callback, (void)user, (void)error;
    return js_exec(sql, (uint32_t)strlen(sql));
}
int sqlite3_extended_errcode(sqlite3 *db) {
    (void)db;
    return js_errcode();
}
const char *sqlite3_errmsg(sqlite3 *db) {
    db->message[js_errmsg(db->message, sizeof db->message - 1)] = 0;
    return db->message;
}
int sqlite3_changes(sqlite3 *db) {
    (void)db;
    return js_changes();
}
int sqlite3_get_autocommit(sqlite3 *db) {
    (void)db;
    return js_autocommit();
}
int64_t sqlite3_last_insert_rowid(sqlite3 *db) {
    (void)db;
    return js_rowid();
}

// ---- Statements ---------------------------------------------------------------------------------

int sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **st, const char **tail) {
    (void)db, (void)n, (void)tail;
    *st = NULL;
    sqlite3_stmt *made = tern_alloc(TERN_MEM_MISC, sizeof *made);
    if (!made) return SQLITE_NOMEM;
    *made = (sqlite3_stmt){.handle = js_prepare(sql, (uint32_t)strlen(sql))};
    if (made->handle) {
        *st = made;
        return SQLITE_OK;
    }
    tern_free(made);
    return js_errcode();
}

static void forget_row(sqlite3_stmt *st) {
    for (int i = 0; i < COLUMNS; i++) {
        tern_free(st->columns[i]);
        st->columns[i] = NULL;
    }
}
int sqlite3_step(sqlite3_stmt *st) {
    forget_row(st);
    return js_step(st->handle);
}
int sqlite3_reset(sqlite3_stmt *st) {
    forget_row(st);
    return js_reset(st->handle);
}
int sqlite3_finalize(sqlite3_stmt *st) {
    if (!st) return SQLITE_OK;
    forget_row(st);
    int code = js_finalize(st->handle);
    tern_free(st);
    return code;
}

int sqlite3_bind_int64(sqlite3_stmt *st, int at, int64_t value) {
    return js_bind_int(st->handle, at, value);
}
int sqlite3_bind_text(sqlite3_stmt *st, int at, const char *text, int n, sqlite3_destructor free) {
    (void)free;
    return js_bind_bytes(st->handle, at, text, n < 0 ? (uint32_t)strlen(text) : (uint32_t)n, 1);
}
int sqlite3_bind_text64(sqlite3_stmt *st, int at, const char *text, uint64_t n,
                        sqlite3_destructor free, unsigned char encoding) {
    (void)encoding;
    return sqlite3_bind_text(st, at, text, (int)n, free);
}
int sqlite3_bind_blob(sqlite3_stmt *st, int at, const void *bytes, int n, sqlite3_destructor free) {
    (void)free;
    return js_bind_bytes(st->handle, at, bytes, (uint32_t)n, 0);
}
int sqlite3_bind_blob64(sqlite3_stmt *st, int at, const void *bytes, uint64_t n,
                        sqlite3_destructor free) {
    return sqlite3_bind_blob(st, at, bytes, (int)n, free);
}

int64_t sqlite3_column_int64(sqlite3_stmt *st, int column) {
    return js_column_int(st->handle, column);
}
int sqlite3_column_bytes(sqlite3_stmt *st, int column) {
    return js_column_bytes(st->handle, column);
}
// NULL: no value, an empty one, or out of memory.
const void *sqlite3_column_blob(sqlite3_stmt *st, int column) {
    int32_t n = js_column_bytes(st->handle, column);
    if (n <= 0) return NULL;
    tern_free(st->columns[column]);
    st->columns[column] = tern_alloc(TERN_MEM_MISC, (size_t)n);
    if (st->columns[column]) js_column_read(st->handle, column, st->columns[column]);
    return st->columns[column];
}
