#include "apps/serve/cache/prefix_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utime.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "base/os/os_thread.h"
#include "base/os/os_time.h"

#define NAME_BEGIN    "tern-prefix-" // then the digest, a dash, the text's hash
#define NAME_END      ".session"
#define N_HEX         16
#define RETRY_SECONDS 10 // after a write that failed

struct prefix_files {
    prefix_files_desc desc;
    char *folder;
    uint64_t digest;
    tern_session *probe; // used to inspect files
    tern_thread thread;
    // Shared, under the lock.
    tern_mutex lock;
    tern_condition changed;
    prefix_task *tasks, **tasks_end, *done, **done_end;
    bool closing;
    // Used by the thread alone.
    uint64_t *known; // [n_known] sorted: hashes of the files that were reported
    size_t n_known, capacity;
    double failed; // when a write last failed; 0: the last one did not
};

// ---- Names -------------------------------------------------------------------------------------

static uint64_t owner_number(const prefix_files *f, size_t owner) {
    return f->desc.owners ? f->desc.owners[owner] : 0;
}

// An owner treats other owners' files like other models' files.
static uint64_t digest_of(const prefix_files *f, size_t owner) {
    uint64_t number = owner_number(f, owner);
    return number ? tern_mix64(f->digest ^ number) : f->digest;
}

// The owner whose files have this digest; SIZE_MAX: none here.
static size_t owner_of(const prefix_files *f, uint64_t digest) {
    for (size_t i = 0; i < f->desc.n_owners; i++)
        if (digest_of(f, i) == digest) return i;
    return SIZE_MAX;
}

// The caller frees it. NULL: no memory.
static char *path_of(const prefix_files *f, uint64_t digest, uint64_t hash) {
    char name[sizeof NAME_BEGIN + 2 * N_HEX + sizeof NAME_END];
    snprintf(name, sizeof name, NAME_BEGIN "%016llx-%016llx" NAME_END, (unsigned long long)digest,
             (unsigned long long)hash);
    return tern_path_join(f->folder, name);
}

// Two owners have different hashes for the same text.
static uint64_t hash_text(const prefix_files *f, size_t owner, const int32_t *ids, size_t n) {
    return tern_hash64(n ^ owner_number(f, owner), ids, n * sizeof *ids);
}

static uint64_t hash_of(const prefix_files *f, const prefix_task *t) {
    return hash_text(f, t->owner, t->ids, t->n);
}

// Whether a name is that of a prefix's file.
static bool read_name(const char *name, uint64_t *digest, uint64_t *hash) {
    size_t n = strlen(NAME_BEGIN);
    if (strlen(name) != n + 2 * N_HEX + 1 + strlen(NAME_END) || strncmp(name, NAME_BEGIN, n) != 0)
        return false;
    char *end;
    *digest = strtoull(name + n, &end, 16);
    if (end != name + n + N_HEX || *end != '-') return false;
    *hash = strtoull(end + 1, &end, 16);
    return strcmp(end, NAME_END) == 0;
}

static size_t place_of(const prefix_files *f, uint64_t hash) {
    size_t from = 0, to = f->n_known;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (f->known[middle] < hash)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static bool is_known(const prefix_files *f, uint64_t hash) {
    size_t i = place_of(f, hash);
    return i < f->n_known && f->known[i] == hash;
}

static void know(prefix_files *f, uint64_t hash) { // if memory is out, it is reported again
    if (is_known(f, hash) ||
        tern_array_reserve(TERN_MEM_SESSION, &f->known, &f->capacity, f->n_known, 1) != 0)
        return;
    size_t i = place_of(f, hash);
    memmove(f->known + i + 1, f->known + i, (f->n_known++ - i) * sizeof *f->known);
    f->known[i] = hash;
}

static void forget(prefix_files *f, uint64_t hash) {
    if (!is_known(f, hash)) return;
    size_t i = place_of(f, hash);
    memmove(f->known + i, f->known + i + 1, (--f->n_known - i) * sizeof *f->known);
}

// ---- Tasks -------------------------------------------------------------------------------------

static prefix_task *make_task(prefix_task_kind kind, tern_session *session, size_t owner,
                              const int32_t *ids, size_t n) {
    prefix_task *t = tern_alloc(TERN_MEM_SESSION, sizeof *t + n * sizeof *ids);
    if (!t) return NULL;
    t->kind = kind;
    t->session = session;
    t->owner = owner;
    t->n = n;
    if (n) memcpy(t->ids, ids, n * sizeof *ids);
    return t;
}

void prefix_task_free(prefix_task *t) {
    tern_session_close(t->session);
    tern_free(t);
}

static void put_done(prefix_files *f, prefix_task *t) {
    tern_mutex_lock(&f->lock);
    t->next = NULL;
    *f->done_end = t;
    f->done_end = &t->next;
    tern_mutex_unlock(&f->lock);
    f->desc.wake(f->desc.user);
}

static void save(prefix_files *f, prefix_task *t, const char *path) {
    tern_error err = {0};
    struct stat info;
    if (f->failed > 0 && tern_seconds() - f->failed < RETRY_SECONDS) return;
    t->is_done = tern_session_save(t->session, path, &err) == TERN_OK && stat(path, &info) == 0;
    if (t->is_done) {
        t->bytes = (uint64_t)info.st_size;
        know(f, hash_of(f, t));
    } else if (f->failed == 0) {
        f->desc.complain(f->desc.user, err.message); // once, and not for each
    }
    f->failed = t->is_done ? 0 : tern_seconds();
}

static bool has_text(const tern_session *s, const prefix_task *t) {
    return tern_session_n_tokens(s) == t->n &&
           !memcmp(tern_session_tokens(s), t->ids, t->n * sizeof *t->ids);
}

// An unusable file is removed: it is damaged, or of another text with the same hash.
static void load(prefix_files *f, prefix_task *t, const char *path) {
    tern_error err = {0};
    tern_status status = tern_session_open(&t->session, f->desc.model, &f->desc.session, &err);
    if (status == TERN_OK) status = tern_session_load(t->session, path, &err);
    t->is_done = status == TERN_OK && has_text(t->session, t);
    if (t->is_done) {
        utime(path, NULL); // marks it as used
        return;
    }
    if (status == TERN_OK || status == TERN_ERR_FORMAT) tern_file_remove(path);
    if (status != TERN_ERR_IO) f->desc.complain(f->desc.user, err.message);
    forget(f, hash_of(f, t));
    tern_session_close(t->session);
    t->session = NULL;
}

// ---- Looking -----------------------------------------------------------------------------------

typedef struct found_file {
    uint64_t digest, hash, bytes;
    tern_stamp used;
} found_file;

static int by_use(const void *a, const void *b) { // the least recently used first
    const tern_stamp *x = &((const found_file *)a)->used, *y = &((const found_file *)b)->used;
    if (x->seconds != y->seconds) return x->seconds < y->seconds ? -1 : 1;
    return (x->nanoseconds > y->nanoseconds) - (x->nanoseconds < y->nanoseconds);
}

// All prefix files in the folder, including other models'. NULL: none, or no memory.
static found_file *list_files(const prefix_files *f, size_t *n) {
    tern_names names = {0};
    *n = 0;
    tern_folder_read(&names, f->folder, NAME_BEGIN, NAME_END, NULL);
    found_file *list = tern_alloc_array(TERN_MEM_SESSION, names.n, sizeof *list);
    for (size_t i = 0; list && i < names.n; i++) {
        found_file x = {0};
        struct stat info;
        char *path = tern_path_join(f->folder, names.list[i]);
        if (path && read_name(names.list[i], &x.digest, &x.hash) &&
            tern_path_look_at(path) == TERN_PATH_FILE && stat(path, &info) == 0) {
            x.bytes = (uint64_t)info.st_size;
            x.used = tern_file_stamp(path);
            list[(*n)++] = x;
        }
        tern_free(path);
    }
    tern_names_free(&names);
    if (list && *n) qsort(list, *n, sizeof *list, by_use);
    return list;
}

// Removes the oldest files of other models and owners if all files together exceed the limit.
static void remove_oldest(const prefix_files *f, const found_file *list, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) bytes += list[i].bytes;
    for (size_t i = 0; i < n && bytes > f->desc.bytes; i++) {
        if (owner_of(f, list[i].digest) != SIZE_MAX) continue; // prefix_cache.c decides about these
        char *path = path_of(f, list[i].digest, list[i].hash);
        if (path && tern_file_remove(path)) bytes -= list[i].bytes;
        tern_free(path);
    }
}

static void report_file(prefix_files *f, const found_file *file, int32_t *ids, size_t capacity) {
    const size_t owner = owner_of(f, file->digest);
    tern_ids text = {ids, capacity, 0};
    char *path = path_of(f, file->digest, file->hash);
    tern_status status = path ? tern_session_peek(f->probe, path, &text, NULL) : TERN_ERR_MEMORY;
    bool fits = status == TERN_OK && text.n <= capacity,
         is_its = fits && hash_text(f, owner, ids, text.n) == file->hash;
    prefix_task *t = is_its ? make_task(PREFIX_FOUND, NULL, owner, ids, text.n) : NULL;
    if (status == TERN_ERR_FORMAT || (fits && !is_its)) tern_file_remove(path);
    tern_free(path);
    if (!t) return;
    t->bytes = file->bytes;
    t->is_done = true;
    know(f, file->hash);
    put_done(f, t);
}

static void scan(prefix_files *f) {
    size_t n, capacity = (size_t)tern_session_n_context(f->probe);
    found_file *list = list_files(f, &n);
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, capacity, sizeof *ids);
    for (size_t i = 0; ids && i < n; i++)
        if (owner_of(f, list[i].digest) != SIZE_MAX && !is_known(f, list[i].hash))
            report_file(f, &list[i], ids, capacity);
    remove_oldest(f, list, n);
    tern_free(ids);
    tern_free(list);
}

// ---- The thread --------------------------------------------------------------------------------

static void do_task(prefix_files *f, prefix_task *t) {
    char *path = path_of(f, digest_of(f, t->owner), hash_of(f, t));
    if (t->kind == PREFIX_SCAN)
        scan(f);
    else if (!path)
        f->desc.complain(f->desc.user, "out of memory");
    else if (t->kind == PREFIX_SAVE)
        save(f, t, path);
    else if (t->kind == PREFIX_LOAD)
        load(f, t, path);
    else if (t->kind == PREFIX_REMOVE) {
        tern_file_remove(path); // perhaps it is gone already
        forget(f, hash_of(f, t));
    }
    tern_free(path);
    if (t->kind == PREFIX_SAVE) {
        tern_session_close(t->session);
        t->session = NULL;
    }
}

static void run(void *arg) {
    prefix_files *f = arg;
    tern_mutex_lock(&f->lock);
    while (f->tasks || !f->closing) {
        prefix_task *t = f->tasks;
        if (!t) {
            tern_condition_wait(&f->changed, &f->lock);
            continue;
        }
        f->tasks = t->next;
        if (!f->tasks) f->tasks_end = &f->tasks;
        tern_mutex_unlock(&f->lock);
        do_task(f, t);
        put_done(f, t);
        tern_mutex_lock(&f->lock);
    }
    tern_mutex_unlock(&f->lock);
}

bool prefix_files_do(prefix_files *f, prefix_task_kind kind, tern_session *session, size_t owner,
                     const int32_t *ids, size_t n) {
    prefix_task *t = make_task(kind, session, owner, ids, n);
    if (!t) return false;
    t->held = tern_session_bytes(session);
    tern_mutex_lock(&f->lock);
    if (kind == PREFIX_LOAD) {
        t->next = f->tasks;
        if (!f->tasks) f->tasks_end = &t->next;
        f->tasks = t;
    } else {
        *f->tasks_end = t;
        f->tasks_end = &t->next;
    }
    tern_mutex_unlock(&f->lock);
    tern_condition_wake_all(&f->changed);
    return true;
}

prefix_task *prefix_files_take(prefix_files *f) {
    tern_mutex_lock(&f->lock);
    prefix_task *list = f->done;
    f->done = NULL;
    f->done_end = &f->done;
    tern_mutex_unlock(&f->lock);
    return list;
}

// ---- Beginning and end -------------------------------------------------------------------------

static void free_files(prefix_files *f) {
    for (prefix_task *t = f->done, *next; t; t = next) {
        next = t->next;
        prefix_task_free(t);
    }
    tern_session_close(f->probe);
    tern_condition_free(&f->changed);
    tern_mutex_free(&f->lock);
    tern_free(f->known);
    tern_free(f->folder);
    tern_free(f);
}

static tern_status open_folder(prefix_files *f, tern_error *err) {
    const char *folder = f->desc.folder;
    // For this user alone: it has other clients' texts, and sessions continue from its files.
    TERN_TRY(tern_folder_make_private(folder, err));
    if (tern_folder_is_others(folder))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: other users may write there: a cache must be this user's alone "
                         "(chmod go-w)",
                         folder);
    f->folder = tern_strdup(TERN_MEM_SESSION, folder);
    return f->folder ? TERN_OK : tern_fail_memory(err, strlen(folder));
}

tern_status prefix_files_open(prefix_files **out, const prefix_files_desc *desc, tern_error *err) {
    *out = NULL;
    prefix_files *f = tern_alloc(TERN_MEM_SESSION, sizeof *f);
    if (!f) return tern_fail_memory(err, sizeof *f);
    f->desc = *desc;
    if (!f->desc.owners) f->desc.n_owners = 1;
    f->tasks_end = &f->tasks;
    f->done_end = &f->done;
    tern_mutex_init(&f->lock);
    tern_condition_init(&f->changed);
    tern_status status = open_folder(f, err);
    if (status == TERN_OK) status = tern_session_open(&f->probe, desc->model, &desc->session, err);
    if (status == TERN_OK) status = tern_session_digest(f->probe, &f->digest, err);
    if (status == TERN_OK) scan(f);
    if (status == TERN_OK && !tern_thread_start(&f->thread, run, f))
        status = tern_fail(err, TERN_ERR_UNSUPPORTED, "the system has no thread to give");
    if (status == TERN_OK)
        *out = f;
    else
        free_files(f);
    return status;
}

void prefix_files_close(prefix_files *f) {
    if (!f) return;
    tern_mutex_lock(&f->lock);
    f->closing = true;
    tern_mutex_unlock(&f->lock);
    tern_condition_wake_all(&f->changed);
    tern_thread_join(&f->thread);
    free_files(f);
}
