// Opens and closes a store; its tables, and totals.
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"
#include "runtime/runtime.h"
#include "store/store.h"

#define NAME           "memory.sqlite"
#define APPLICATION_ID 0x7465726E // "tern", in SQLite's header
#define VERSION        2
#define WITHOUT_PAIRS  1 // the previous version: its index has no pairs of characters
#define TEXT_(x)       #x
#define TEXT(x)        TEXT_(x)

// Ids are never reused (AUTOINCREMENT), so an id that a reader has seen stays valid or is gone. The
// index uses the texts in chunk. There are no triggers: SQLite would run those of an untrusted
// file.
static const char tables[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('deleted', 0);"
    "CREATE TABLE record(id INTEGER PRIMARY KEY AUTOINCREMENT, source BLOB, metadata BLOB,"
    " created INTEGER NOT NULL, digest INTEGER NOT NULL);"
    "CREATE INDEX record_source ON record(source);"
    "CREATE TABLE chunk(id INTEGER PRIMARY KEY AUTOINCREMENT, record INTEGER NOT NULL,"
    " first INTEGER NOT NULL, line INTEGER NOT NULL, n_tokens INTEGER NOT NULL,"
    " heading TEXT NOT NULL, text TEXT NOT NULL);"
    "CREATE INDEX chunk_record ON chunk(record);"
    "CREATE TABLE code(id INTEGER PRIMARY KEY, q8 BLOB NOT NULL);"
    "CREATE TABLE vector(id INTEGER PRIMARY KEY, f32 BLOB NOT NULL);"
    "CREATE VIRTUAL TABLE words USING fts5(heading, text, content='chunk', content_rowid='id',"
    " tokenize='porter unicode61 remove_diacritics 2');PRAGMA application_id = " TEXT(
        APPLICATION_ID) ";PRAGMA user_version = " TEXT(VERSION) ";";

// ---- The file -----------------------------------------------------------------------------------

static tern_status find_path(tern_memory_store *s, const char *folder, bool must_exist,
                             tern_error *err) {
    s->path = tern_path_join(folder, NAME);
    if (!s->path) return tern_fail_memory(err, strlen(folder));
    if (!must_exist) {
        TERN_TRY(tern_folder_make_private(folder, err));
        // Created before SQLite would create it readable for all: its other files get the
        // permissions of this one.
        int fd = tern_file_create_private(s->path);
        if (fd >= 0) tern_fd_close(fd);
        return TERN_OK;
    }
    if (tern_path_look(s->path) != TERN_PATH_FILE)
        return tern_fail(err, TERN_ERR_IO, "%s: there is no memory here", folder);
    return TERN_OK;
}

// Switching to the log needs exclusive access for a moment, for which SQLite does not wait.
static tern_status use_log(tern_memory_store *s, tern_error *err) {
    double end = tern_seconds() + s->wait_seconds;
    for (;;) {
        int code = sqlite3_exec(s->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        if (code == SQLITE_OK) return TERN_OK;
        if ((code & 0xFF) != SQLITE_BUSY || tern_seconds() > end) return tern_store_fail(s, err);
        tern_sleep(0.01);
    }
}

static tern_status open_file(tern_memory_store *s, tern_error *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(s->path, &s->db, flags, NULL) != SQLITE_OK) return tern_store_fail(s, err);
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, (int)(s->wait_seconds * 1000));
    // The file may be untrusted: no code in it is run.
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)NULL);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, (int *)NULL);
    TERN_TRY(tern_store_run(s,
                            "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
                            "PRAGMA secure_delete = ON; PRAGMA cache_size = -16384",
                            err));
    TERN_TRY(use_log(s, err));
    return tern_store_run(s, "PRAGMA synchronous = FULL", err); // on the disk at each commit
}

static tern_status look_at_tables(tern_memory_store *s, bool *are_there, tern_error *err) {
    int64_t id, version, n;
    TERN_TRY(tern_store_int(s, "PRAGMA application_id", -1, 0, &id, err));
    TERN_TRY(tern_store_int(s, "PRAGMA user_version", -1, 0, &version, err));
    TERN_TRY(tern_store_int(s, "SELECT count(*) FROM sqlite_master", -1, 0, &n, err));
    *are_there = n > 0;
    if (n > 0 && id != APPLICATION_ID)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: a SQLite file of another program", s->path);
    s->has_pairs = n == 0 || version >= VERSION;
    if (n > 0 && version != VERSION && version != WITHOUT_PAIRS)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: version %lld, and this program knows %d",
                         s->path, (long long)version, VERSION);
    return TERN_OK;
}

static tern_status make_tables(tern_memory_store *s, tern_error *err) {
    bool are_there;
    TERN_TRY(tern_store_begin(s, "BEGIN", err)); // all three numbers from one moment
    tern_status status = tern_store_end(s, look_at_tables(s, &are_there, err), err);
    if (status != TERN_OK || are_there) return status;
    TERN_TRY(tern_store_begin(s, "BEGIN IMMEDIATE", err));
    status = look_at_tables(s, &are_there, err); // another process may have created them
    if (status == TERN_OK && !are_there) status = tern_store_run(s, tables, err);
    return tern_store_end(s, status, err);
}

static tern_status open_store(tern_memory_store *s, const char *folder,
                              const tern_memory_desc *desc, tern_error *err) {
    s->wait_seconds = desc->wait_seconds > 0 ? desc->wait_seconds : 10;
    TERN_TRY(tern_store_take_model(s, err));
    TERN_TRY(find_path(s, folder, desc->must_exist, err));
    TERN_TRY(open_file(s, err));
    TERN_TRY(make_tables(s, err));
    TERN_TRY(tern_team_open(&s->team, desc->n_threads, err));
    return tern_store_know_model(s, err);
}

tern_status tern_memory_open(tern_memory_store **out, const char *folder,
                             const tern_memory_desc *desc, tern_error *err) {
    tern_clear(err);
    static const tern_memory_desc none;
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(folder);
    if (!desc) desc = &none;
    if (desc->n_threads < 0 || desc->n_threads > 1024 || !(desc->wait_seconds <= 1e6))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: n_threads or wait_seconds is out of range",
                         folder);
    tern_memory_store *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    if ((s->model = desc->model)) tern_model_hold(s->model);
    if ((s->counter = desc->counter ? desc->counter : desc->model)) tern_model_hold(s->counter);
    tern_status status = open_store(s, folder, desc, err);
    if (status == TERN_OK)
        *out = s;
    else
        tern_memory_close(s);
    return status;
}

void tern_store_leave(tern_memory_store *s) {
    if (tern_use_end(&s->use)) tern_memory_close(s);
}

void tern_memory_close(tern_memory_store *s) {
    if (!s || tern_use_waits(&s->use)) return;
    sqlite3_close(s->db);
    tern_team_close(s->team);
    tern_vectors_free(&s->vectors);
    tern_free(s->probe);
    tern_free(s->model_name);
    tern_free(s->model_path);
    tern_free(s->path);
    tern_model_let_go(s->model);
    tern_model_let_go(s->counter);
    tern_free(s);
}

// ---- What is in it ------------------------------------------------------------------------------

static tern_status read_info(tern_memory_store *s, tern_memory_info *info, tern_error *err) {
    int64_t pages, page_bytes;
    TERN_TRY(tern_store_know_model(s, err));
    TERN_TRY(tern_store_int(s, "SELECT count(*) FROM record", -1, 0, &info->n_records, err));
    TERN_TRY(tern_store_int(s, "SELECT count(*) FROM chunk", -1, 0, &info->n_chunks, err));
    TERN_TRY(tern_store_int(s, "SELECT sum(n_tokens) FROM chunk", -1, 0, &info->n_tokens, err));
    TERN_TRY(tern_store_int(s, "SELECT count(*) FROM code", -1, 0, &info->n_vectors, err));
    TERN_TRY(tern_store_int(s, "PRAGMA page_count", -1, 0, &pages, err));
    TERN_TRY(tern_store_int(s, "PRAGMA page_size", -1, 0, &page_bytes, err));
    info->n_dims = s->n_dims;
    info->n_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    info->model_name = s->model_name ? s->model_name : "";
    info->model_path = s->model_path ? s->model_path : "";
    return TERN_OK;
}

tern_status tern_memory_get_info(tern_memory_store *store, tern_memory_info *info,
                                 tern_error *err) {
    tern_clear(err);
    TERN_NEED(info);
    *info = (tern_memory_info){.model_name = "", .model_path = ""};
    TERN_NEED(store);
    TERN_TRY(tern_store_begin(store, "BEGIN", err));
    return tern_store_end(store, read_info(store, info, err), err);
}
