#include "base/file/out_set.h"

#include <errno.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/strbuf.h"

#define BUFFER_BYTES ((size_t)256 << 10)
#define STAGING      ".tern-partial-"
#define COMMIT       ".tern-commit"

static tern_status fail_path(tern_error *err, const char *path, const char *what) {
    return tern_fail(err, TERN_ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

static tern_status fail_join(tern_error *err, const char *a, const char *b) {
    return tern_fail_memory(err, strlen(a) + strlen(b) + 2);
}

// ---- What others left --------------------------------------------------------------------------

static void remove_private(tern_folder *f, const char *path) {
    tern_names names = {0};
    tern_folder_names(f, &names, NULL);
    for (size_t i = 0; i < names.n; i++) tern_folder_remove_entry(f, names.list[i]);
    tern_names_free(&names);
    tern_folder_remove(path);
}

// Removes private folders of dead writers, whose locks nobody holds.
static void remove_left_overs(const char *folder) {
    tern_names names = {0};
    tern_folder_list(&names, folder, STAGING, "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        tern_folder f = {0};
        bool ok = path && tern_folder_open_private(&f, path, folder);
        if (ok && tern_folder_lock(&f) == TERN_LOCK_HELD) remove_private(&f, path);
        tern_folder_close(&f);
        tern_free(path);
    }
    tern_names_free(&names);
}

// Moves one file out of a committed folder; an empty folder marks a name to remove.
static tern_status publish_one(const tern_folder *f, const char *folder, const char *name,
                               tern_error *err) {
    char *to = tern_path_join(folder, name);
    if (!to) return fail_join(err, folder, name);
    tern_status status = TERN_OK;
    bool ok = tern_folder_has_folder(f, name)
                  ? (tern_file_remove(to) || errno == ENOENT) && tern_folder_remove_entry(f, name)
                  : tern_folder_move_entry(f, name, to);
    if (!ok)
        status = tern_fail(err, TERN_ERR_IO,
                           "%s: cannot be replaced: %s; the new files lie in %s/" COMMIT, to,
                           strerror(errno), folder);
    tern_free(to);
    return status;
}

static tern_status publish(const tern_folder *f, const char *folder, const char *last,
                           tern_error *err) {
    tern_names names = {0};
    tern_status status = tern_folder_names(f, &names, err);
    for (size_t i = 0; status == TERN_OK && i < names.n; i++)
        if (!last || strcmp(names.list[i], last) != 0)
            status = publish_one(f, folder, names.list[i], err);
    tern_names_free(&names);
    if (status == TERN_OK && last) {
        tern_folder_sync(folder);
        status = publish_one(f, folder, last, err);
    }
    char *commit = tern_path_join(folder, COMMIT);
    if (status == TERN_OK && commit) tern_folder_remove(commit);
    tern_free(commit);
    tern_folder_sync(folder);
    return status;
}

// Waits for another writer's commit, which takes milliseconds, and finishes that of a dead writer.
static tern_status settle(const char *folder, tern_error *err) {
    char *path = tern_path_join(folder, COMMIT);
    tern_status status = path ? TERN_OK : fail_join(err, folder, COMMIT);
    enum { TRIES = 200 };
    for (int i = 0; status == TERN_OK; i++) {
        tern_folder f;
        bool is_open = tern_folder_open_private(&f, path, folder);
        if (!is_open && errno == ENOENT) break;
        if (!is_open) {
            status = fail_path(err, path, "is in the way");
            break;
        }
        tern_lock_state state = tern_folder_lock(&f);
        bool is_dead = state == TERN_LOCK_HELD || (state == TERN_LOCK_NONE && i == TRIES);
        if (is_dead) status = publish(&f, folder, NULL, err);
        tern_folder_close(&f);
        if (!is_dead && i == TRIES)
            status = tern_fail(err, TERN_ERR_IO, "%s: another process is writing there", folder);
        if (!is_dead) tern_sleep(0.05);
    }
    tern_free(path);
    return status;
}

tern_status tern_out_check(const char *folder, const char *name, tern_error *err) {
    tern_strbuf path = {0};
    tern_strbuf_printf(&path, "%s%s" COMMIT "/%s", folder, *folder ? "/" : "", name);
    if (path.failed) return fail_join(err, folder, name);
    bool is_there = tern_path_look(path.ptr) != TERN_PATH_NONE;
    tern_strbuf_free(&path);
    if (!is_there) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s: its writer was stopped while it replaced these "
                     "files; run that command again",
                     folder);
}

// ---- Opening -----------------------------------------------------------------------------------

// Creates a private folder, locked before another writer can take it for a left-over.
static tern_status make_staging(tern_out_set *set, tern_error *err) {
    for (int i = 0; i < 1000; i++) {
        tern_strbuf path = {0};
        tern_strbuf_printf(&path, "%s/" STAGING "%016llx", set->folder,
                           (unsigned long long)tern_random_seed());
        if (path.failed) return fail_join(err, set->folder, STAGING);
        bool made = tern_folder_create(path.ptr, true);
        if (!made && errno != EEXIST) {
            tern_strbuf_free(&path);
            return fail_path(err, set->folder, "cannot be written");
        }
        // Between the two calls another writer's clean-up may have removed it: try another name.
        if (made && tern_lock_folder(&set->own_staging, path.ptr, NULL) == TERN_OK &&
            (!set->own_staging.folder.is_open || tern_folder_has_name(&set->own_staging.folder))) {
            set->staging = path.ptr;
            return TERN_OK;
        }
        tern_unlock(&set->own_staging);
        tern_strbuf_free(&path);
    }
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: no name is free", set->folder);
}

static tern_status open_folder(tern_out_set *set, bool own, tern_error *err) {
    if (own) {
        set->made_folder = tern_folder_create(set->folder, false);
        if (!set->made_folder) TERN_TRY(tern_folder_make(set->folder, err));
        TERN_TRY(tern_lock_folder(&set->own_folder, set->folder, err));
    }
    TERN_TRY(settle(set->folder, err));
    remove_left_overs(set->folder);
    return make_staging(set, err);
}

tern_status tern_out_open(tern_out_set *set, const char *folder, bool own, tern_error *err) {
    *set = (tern_out_set){0};
    set->folder = tern_strdup(TERN_MEM_MISC, folder);
    tern_status status =
        set->folder ? open_folder(set, own, err) : tern_fail_memory(err, strlen(folder) + 1);
    if (status != TERN_OK) tern_out_close(set);
    return status;
}

static tern_status open_device(tern_out_set *set, const char *path, tern_error *err) {
    bool is_stdout;
    set->is_device = true;
    set->device = tern_device_open(path, &is_stdout);
    if (set->device < 0) return fail_path(err, path, "cannot be opened");
    set->only = tern_strdup(TERN_MEM_MISC, is_stdout ? "standard output" : path);
    return set->only ? TERN_OK : tern_fail_memory(err, strlen(path) + 1);
}

static tern_status open_place(tern_out_set *set, const char *path, tern_error *err) {
    if (tern_device_is(path)) return open_device(set, path, err);
    const char *name = tern_path_name(path);
    if (!*name || tern_folder_is(path)) {
        errno = *path ? EISDIR : ENOENT;
        return fail_path(err, path, "cannot be written");
    }
    set->folder = tern_path_folder(path);
    set->only = tern_strdup(TERN_MEM_MISC, name);
    if (!set->folder || !set->only) return tern_fail_memory(err, strlen(path) + 2);
    return open_folder(set, false, err);
}

tern_status tern_out_open_file(tern_out_set *set, const char *path, tern_error *err) {
    char *target = NULL;
    *set = (tern_out_set){.device = -1};
    // NULL: a dangling link, which is replaced itself.
    if (!tern_device_is(path) && tern_path_look_at(path) == TERN_PATH_LINK)
        target = tern_path_real(path);
    else
        errno = 0;
    if (!target && errno == ENOMEM) return tern_fail_memory(err, strlen(path) + 1);
    tern_status status = open_place(set, target ? target : path, err);
    tern_free(target);
    if (status != TERN_OK) tern_out_close(set);
    return status;
}

// ---- Writing -----------------------------------------------------------------------------------

static tern_status create(tern_out_file *f, const char *name, tern_error *err) {
    tern_out_set *set = f->set;
    f->buffer = tern_alloc(TERN_MEM_MISC, BUFFER_BYTES);
    f->path = set->is_device ? tern_strdup(TERN_MEM_MISC, name) : tern_path_join(set->folder, name);
    if (!f->buffer || !f->path) return tern_fail_memory(err, BUFFER_BYTES);
    if (set->is_device) {
        f->fd = set->device;
        set->device = -1;
        if (f->fd >= 0) return TERN_OK;
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: holds one file", f->path);
    }
    if (tern_path_look_at(f->path) == TERN_PATH_FOLDER) { // would stop the commit half-way
        errno = EISDIR;
        return fail_path(err, f->path, "cannot be written");
    }
    char *staged = tern_out_staged(set, name);
    if (!staged) return fail_join(err, set->staging, name);
    f->fd = set->is_private ? tern_file_create_private(staged)
                            : tern_file_create(staged, f->path); // a private file stays private
    tern_free(staged);
    if (f->fd < 0) return fail_path(err, f->path, "cannot be written");
    return tern_names_add(&set->names, name, err);
}

tern_status tern_out_begin(tern_out_set *set, const char *name, tern_out_file *f, tern_error *err) {
    *f = (tern_out_file){.set = set, .fd = -1};
    set->n_open++;
    tern_status status = create(f, name ? name : set->only, err);
    if (status != TERN_OK) tern_out_drop(f);
    return status;
}

static tern_status fail_write(tern_out_file *f, tern_error *err) {
    f->failed = true;
    return fail_path(err, f->path, "cannot be written");
}

static tern_status write_fd(tern_out_file *f, const uint8_t *bytes, uint64_t n, tern_error *err) {
    return tern_fd_write(f->fd, bytes, n) ? TERN_OK : fail_write(f, err);
}

static tern_status flush(tern_out_file *f, tern_error *err) {
    size_t n = f->n_buffered;
    f->n_buffered = 0;
    return write_fd(f, f->buffer, n, err);
}

tern_status tern_out_write(tern_out_file *f, const void *bytes, uint64_t n, tern_error *err) {
    if (n > BUFFER_BYTES - f->n_buffered) TERN_TRY(flush(f, err));
    if (n >= BUFFER_BYTES) return write_fd(f, bytes, n, err);
    if (n) memcpy(f->buffer + f->n_buffered, bytes, (size_t)n);
    f->n_buffered += (size_t)n;
    return TERN_OK;
}

tern_status tern_out_rewrite(tern_out_file *f, uint64_t offset, const void *bytes, size_t n,
                             tern_error *err) {
    TERN_TRY(flush(f, err));
    return tern_fd_write_at(f->fd, bytes, n, offset) ? TERN_OK : fail_write(f, err);
}

tern_status tern_out_end(tern_out_file *f, tern_error *err) {
    tern_out_set *set = f->set;
    if (!set || f->failed)
        return tern_fail(err, TERN_ERR_ARGUMENT, "writing %s failed before", set ? f->path : "it");
    TERN_TRY(flush(f, err));
    bool ok = set->is_device || tern_fd_sync(f->fd);
    ok = tern_fd_close(f->fd) && ok;
    f->fd = -1;
    if (!ok) return fail_write(f, err);
    set->n_open--;
    tern_out_drop(f);
    return TERN_OK;
}

void tern_out_drop(tern_out_file *f) {
    if (!f->set) return;
    if (f->fd >= 0) tern_fd_close(f->fd);
    tern_free(f->buffer);
    tern_free(f->path);
    *f = (tern_out_file){0};
}

tern_status tern_out_put(tern_out_set *set, const char *name, const void *bytes, size_t n,
                         tern_error *err) {
    tern_out_file f;
    TERN_TRY(tern_out_begin(set, name, &f, err));
    tern_status status = tern_out_write(&f, bytes, n, err);
    if (status == TERN_OK) status = tern_out_end(&f, err);
    tern_out_drop(&f);
    return status;
}

// ---- The whole set -----------------------------------------------------------------------------

bool tern_out_has(const tern_out_set *set, const char *name) {
    for (size_t i = 0; i < set->names.n; i++)
        if (!strcmp(set->names.list[i], name)) return true;
    return false;
}

char *tern_out_staged(const tern_out_set *set, const char *name) {
    return tern_path_join(set->staging, name);
}

tern_status tern_out_remove(tern_out_set *set, const char *name, tern_error *err) {
    char *path = tern_path_join(set->folder, name), *mark = tern_out_staged(set, name);
    tern_status status = path && mark ? TERN_OK : fail_join(err, set->folder, name);
    tern_path_kind kind = status == TERN_OK ? tern_path_look_at(path) : TERN_PATH_NONE;
    bool is_there = kind != TERN_PATH_NONE && kind != TERN_PATH_FOLDER;
    if (is_there && !tern_folder_create(mark, true))
        status = fail_path(err, path, "cannot be removed");
    if (is_there && status == TERN_OK) status = tern_names_add(&set->gone, name, err);
    tern_free(path);
    tern_free(mark);
    return status;
}

static tern_status commit_one(tern_out_set *set, tern_error *err) {
    const char *name = set->names.list[0];
    char *from = tern_out_staged(set, name), *to = tern_path_join(set->folder, name);
    tern_status status = from && to ? TERN_OK : fail_join(err, set->staging, name);
    if (status == TERN_OK && !tern_path_rename(from, to))
        status = fail_path(err, to, "cannot be replaced");
    tern_free(from);
    tern_free(to);
    if (status != TERN_OK) return status;
    tern_folder_remove(set->staging);
    tern_folder_sync(set->folder);
    return TERN_OK;
}

static tern_status commit_all(tern_out_set *set, const char *last, tern_error *err) {
    char *commit = tern_path_join(set->folder, COMMIT);
    char *decides = tern_path_join(set->folder, last);
    tern_status status = commit && decides ? TERN_OK : fail_join(err, set->folder, COMMIT);
    tern_folder_sync(set->staging);
    tern_folder f = {0};
    if (status == TERN_OK && !tern_folder_open(&f, set->staging, false))
        status = fail_path(err, set->staging, "cannot be opened");
    while (status == TERN_OK && !tern_folder_rename(&f, set->staging, commit))
        status = errno == ENOTEMPTY || errno == EEXIST ? settle(set->folder, err)
                                                       : fail_path(err, commit, "cannot be made");
    if (status == TERN_OK) { // from here on the commit will finish, if need be by another writer
        tern_folder_sync(set->folder);
        tern_file_remove(decides);
        status = publish(&f, set->folder, last, err);
        tern_free(set->staging);
        set->staging = NULL;
    }
    tern_folder_close(&f);
    tern_free(commit);
    tern_free(decides);
    return status;
}

tern_status tern_out_commit(tern_out_set *set, const char *last, tern_error *err) {
    tern_status status = TERN_OK;
    if (set->n_open || (!set->is_device && !set->staging))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: not all that was begun is written",
                         set->folder ? set->folder : set->only);
    if (set->is_device) return TERN_OK;
    if (set->names.n == 1 && set->gone.n == 0)
        status = commit_one(set, err);
    else if (set->names.n > 0)
        status = commit_all(set, last ? last : set->names.list[0], err);
    if (status != TERN_OK) return status;
    tern_free(set->staging); // nothing left to remove
    set->staging = NULL;
    set->made_folder = false;
    return TERN_OK;
}

void tern_out_close(tern_out_set *set) {
    tern_folder f = {0};
    if (set->staging && tern_folder_open(&f, set->staging, false)) remove_private(&f, set->staging);
    tern_folder_close(&f);
    if (set->is_device && set->device >= 0) tern_fd_close(set->device);
    if (set->made_folder) tern_folder_remove(set->folder); // only when it is empty
    tern_unlock(&set->own_staging);
    tern_unlock(&set->own_folder);
    tern_names_free(&set->names);
    tern_names_free(&set->gone);
    tern_free(set->staging);
    tern_free(set->folder);
    tern_free(set->only);
    *set = (tern_out_set){0};
}

// ---- Files alone -------------------------------------------------------------------------------

struct tern_output {
    tern_out_set set;
    tern_out_file file;
};

static tern_status open_output(tern_output **out, const char *path, bool is_private,
                               tern_error *err) {
    if (!out || !path) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_open: NULL argument");
    tern_output *o = *out = NULL;
    o = tern_alloc(TERN_MEM_MISC, sizeof *o);
    if (!o) return tern_fail_memory(err, sizeof *o);
    tern_status status = tern_out_open_file(&o->set, path, err);
    o->set.is_private = is_private;
    if (status == TERN_OK) status = tern_out_begin(&o->set, NULL, &o->file, err);
    if (status == TERN_OK)
        *out = o;
    else
        tern_output_close(o);
    return status;
}

tern_status tern_output_open(tern_output **out, const char *path, tern_error *err) {
    tern_clear(err);
    return open_output(out, path, false, err);
}

tern_status tern_output_open_private(tern_output **out, const char *path, tern_error *err) {
    return open_output(out, path, true, err);
}

tern_status tern_output_write(tern_output *o, const void *bytes, size_t n, tern_error *err) {
    tern_clear(err);
    if (!o || (!bytes && n))
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_write: NULL argument");
    if (!o->file.set)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_write: already finished");
    return tern_out_write(&o->file, bytes, n, err);
}

tern_status tern_output_finish(tern_output *o, tern_error *err) {
    tern_clear(err);
    if (!o) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_output_finish: NULL argument");
    TERN_TRY(tern_out_end(&o->file, err));
    return tern_out_commit(&o->set, NULL, err);
}

void tern_output_close(tern_output *o) {
    if (!o) return;
    tern_out_drop(&o->file);
    tern_out_close(&o->set);
    tern_free(o);
}

static tern_status write_file(const char *path, const void *bytes, size_t n, bool is_private,
                              tern_error *err) {
    tern_output *o;
    TERN_TRY(open_output(&o, path, is_private, err));
    tern_status status = tern_output_write(o, bytes, n, err);
    if (status == TERN_OK) status = tern_output_finish(o, err);
    tern_output_close(o);
    return status;
}

tern_status tern_file_write(const char *path, const void *bytes, size_t n, tern_error *err) {
    tern_clear(err);
    return write_file(path, bytes, n, false, err);
}

tern_status tern_file_write_private(const char *path, const void *bytes, size_t n,
                                    tern_error *err) {
    return write_file(path, bytes, n, true, err);
}
