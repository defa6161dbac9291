#include "base/os/os_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// ---- Paths -------------------------------------------------------------------------------------

char *tern_path_join(const char *folder, const char *name) {
    size_t n = strlen(folder), n_name = strlen(name);
    bool slash = n > 0 && !tern_is_slash(folder[n - 1]);
    char *path = tern_alloc(TERN_MEM_MISC, n + slash + n_name + 1);
    if (!path) return NULL;
    memcpy(path, folder, n);
    if (slash) path[n] = '/';
    memcpy(path + n + slash, name, n_name + 1);
    return path;
}

const char *tern_path_name(const char *path) {
    const char *name = path;
    for (const char *c = path; *c; c++)
        if (tern_is_slash(*c)) name = c + 1;
    return name;
}

char *tern_path_folder(const char *path) {
    size_t n = (size_t)(tern_path_name(path) - path);
    while (n > 1 && tern_is_slash(path[n - 1])) n--; // the root keeps its slash
    return n ? tern_strndup(TERN_MEM_MISC, path, n) : tern_strdup(TERN_MEM_MISC, ".");
}

// ---- Folders -----------------------------------------------------------------------------------

bool tern_folder_is(const char *path) { return tern_path_look(path) == TERN_PATH_FOLDER; }

static tern_status make_folder(const char *folder, bool is_private, tern_error *err) {
    if (tern_folder_create(folder, is_private)) return TERN_OK;
    int reason = errno;
    if (tern_folder_is(folder)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be made: %s", folder,
                     strerror(reason == EEXIST ? ENOTDIR : reason));
}

tern_status tern_folder_make(const char *folder, tern_error *err) {
    return make_folder(folder, false, err);
}

tern_status tern_folder_make_private(const char *folder, tern_error *err) {
    return make_folder(folder, true, err);
}

tern_status tern_names_add(tern_names *names, const char *name, tern_error *err) {
    char *copy = tern_strdup(TERN_MEM_MISC, name);
    if (!copy ||
        tern_array_reserve(TERN_MEM_MISC, &names->list, &names->capacity, names->n, 1) != 0) {
        tern_free(copy);
        return tern_fail_memory(err, strlen(name) + 1);
    }
    names->list[names->n++] = copy;
    return TERN_OK;
}

void tern_names_free(tern_names *names) {
    for (size_t i = 0; i < names->n; i++) tern_free(names->list[i]);
    tern_free(names->list);
    *names = (tern_names){0};
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

tern_status tern_names_add_entry(tern_names *names, const char *name, const char *begin,
                                 const char *end, tern_error *err) {
    size_t n = strlen(name), n_begin = strlen(begin), n_end = strlen(end);
    bool is_itself = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    bool is_asked = n >= n_begin + n_end && strncmp(name, begin, n_begin) == 0 &&
                    strcmp(name + n - n_end, end) == 0;
    tern_status status = is_asked && !is_itself ? tern_names_add(names, name, err) : TERN_OK;
    if (status != TERN_OK) tern_names_free(names);
    return status;
}

tern_status tern_folder_list(tern_names *names, const char *folder, const char *begin,
                             const char *end, tern_error *err) {
    tern_status status = tern_folder_read(names, folder, begin, end, err);
    if (names->n) qsort(names->list, names->n, sizeof *names->list, by_bytes);
    return status;
}

// ---- Stamps and locks --------------------------------------------------------------------------

bool tern_stamp_same(const tern_stamp *a, const tern_stamp *b) {
    return a->device == b->device && a->number == b->number && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

bool tern_path_same(const char *a, const char *b) {
    tern_stamp x = tern_file_stamp(a), y = tern_file_stamp(b);
    return (x.device || x.number) && x.device == y.device && x.number == y.number;
}

tern_status tern_lock_folder(tern_lock *lock, const char *folder, tern_error *err) {
    tern_folder f = {0};
    if (!tern_folder_open(&f, folder, true))
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", folder, strerror(errno));
    tern_lock_state state = tern_folder_lock(&f);
    if (state == TERN_LOCK_HELD)
        lock->folder = f;
    else
        tern_folder_close(&f);
    if (state != TERN_LOCK_TAKEN) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", folder);
}

void tern_unlock(tern_lock *lock) { tern_folder_close(&lock->folder); }
