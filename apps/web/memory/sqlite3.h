// SQLite as src/store uses it, in a page: the functions of its C interface, over the page's SQLite
// (packages/tern/src/memory/sqlite.ts), a separate module with separate memory. Replaces SQLite's
// header; names and numbers are SQLite's.
#ifndef TERN_APPS_WEB_MEMORY_SQLITE3_H
#define TERN_APPS_WEB_MEMORY_SQLITE3_H

#include <stdint.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
typedef void (*sqlite3_destructor)(void *);

enum {
    SQLITE_OK = 0,
    SQLITE_PERM = 3,
    SQLITE_BUSY = 5,
    SQLITE_LOCKED = 6,
    SQLITE_NOMEM = 7,
    SQLITE_READONLY = 8,
    SQLITE_IOERR = 10,
    SQLITE_CORRUPT = 11,
    SQLITE_FULL = 13,
    SQLITE_CANTOPEN = 14,
    SQLITE_NOTADB = 26,
    SQLITE_ROW = 100,
    SQLITE_DONE = 101,
};
enum { SQLITE_OPEN_READWRITE = 2, SQLITE_OPEN_CREATE = 4, SQLITE_OPEN_NOMUTEX = 0x8000 };
enum { SQLITE_DBCONFIG_ENABLE_TRIGGER = 1003, SQLITE_DBCONFIG_ENABLE_VIEW = 1015 };
enum { SQLITE_UTF8 = 1 };
#define SQLITE_STATIC    ((sqlite3_destructor)0)
#define SQLITE_TRANSIENT ((sqlite3_destructor)-1) // all are copied at once

int sqlite3_open_v2(const char *path, sqlite3 **db, int flags, const char *vfs);
int sqlite3_close(sqlite3 *db);
int sqlite3_extended_result_codes(sqlite3 *db, int on);
int sqlite3_busy_timeout(sqlite3 *db, int ms);
int sqlite3_db_config(sqlite3 *db, int what, int value, int *out);
int sqlite3_exec(sqlite3 *db, const char *sql, void *callback, void *user, char **error);
int sqlite3_extended_errcode(sqlite3 *db);
const char *sqlite3_errmsg(sqlite3 *db); // valid until the next call
int sqlite3_changes(sqlite3 *db);
int sqlite3_get_autocommit(sqlite3 *db);
int64_t sqlite3_last_insert_rowid(sqlite3 *db);

int sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **st, const char **tail);
int sqlite3_step(sqlite3_stmt *st);
int sqlite3_reset(sqlite3_stmt *st);
int sqlite3_finalize(sqlite3_stmt *st);
int sqlite3_bind_int64(sqlite3_stmt *st, int at, int64_t value);
int sqlite3_bind_text(sqlite3_stmt *st, int at, const char *text, int n, sqlite3_destructor free);
int sqlite3_bind_text64(sqlite3_stmt *st, int at, const char *text, uint64_t n,
                        sqlite3_destructor free, unsigned char encoding);
int sqlite3_bind_blob(sqlite3_stmt *st, int at, const void *bytes, int n, sqlite3_destructor free);
int sqlite3_bind_blob64(sqlite3_stmt *st, int at, const void *bytes, uint64_t n,
                        sqlite3_destructor free);
int64_t sqlite3_column_int64(sqlite3_stmt *st, int column);
const void *sqlite3_column_blob(sqlite3_stmt *st, int column);
int sqlite3_column_bytes(sqlite3_stmt *st, int column);

#endif
