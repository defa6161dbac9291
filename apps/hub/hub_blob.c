// Files that clients of a server upload, by their SHA-256, and models made of them: see hub.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "apps/hub/hub_private.h"
#include "base/alloc.h"
#include "base/file/out_set.h"
#include "base/os/os_time.h"
#include "base/status.h"

#define BLOBS       ".blobs" // in the models folder, whose list skips it
#define BLOB_PREFIX "sha256-"
#define KEEP_DAYS   1 // a blob that no model was made of

struct hub_blob {
    tern_out_set set;
    tern_out_file file;
    hub_digest digest;
    char *path;
    char wanted[65];
    uint64_t n, n_max; // bytes so far; the most there may be
};

bool hub_digest_is_valid(const char *hex, size_t n) {
    if (n != 64) return false;
    for (size_t i = 0; i < n; i++)
        if (!((hex[i] >= '0' && hex[i] <= '9') || (hex[i] >= 'a' && hex[i] <= 'f'))) return false;
    return true;
}

static char *blob_path(const char *folder, const char *digest) {
    tern_strbuf b = {0};
    tern_strbuf_printf(&b, "%s/" BLOBS "/" BLOB_PREFIX "%s", folder, digest);
    char *path = b.failed ? NULL : tern_strdup(TERN_MEM_MISC, b.ptr);
    tern_strbuf_free(&b);
    return path;
}

bool hub_blob_exists(const char *folder, const char *digest) {
    char *path = blob_path(folder, digest);
    const bool is = path && tern_path_look(path) == TERN_PATH_FILE;
    tern_free(path);
    return is;
}

// ---- Room --------------------------------------------------------------------------------------

// Bytes of all blobs; removes those that have waited for a model too long.
static uint64_t sweep(const char *blobs) {
    tern_names names = {0};
    uint64_t all = 0;
    const uint64_t now = (uint64_t)time(NULL);
    tern_folder_list(&names, blobs, BLOB_PREFIX, "", NULL);
    for (size_t i = 0; i < names.n; i++) {
        char *path = tern_path_join(blobs, names.list[i]);
        const uint64_t made = path ? tern_file_stamp(path).seconds : 0;
        if (made && made + KEEP_DAYS * 86400u < now)
            tern_file_remove(path);
        else if (path)
            all += hub_file_bytes(path);
        tern_free(path);
    }
    tern_names_free(&names);
    return all;
}

static uint64_t bytes_of_models(const char *folder) {
    hub_list list;
    uint64_t all = 0;
    if (hub_list_folder(&list, folder, NULL) != TERN_OK) return 0;
    for (size_t i = 0; i < list.n; i++) all += list.models[i].bytes;
    hub_list_free(&list);
    return all;
}

// What may still be written: at most `bytes_max` (0: no limit) in the folder, and what the disk
// has.
static tern_status find_room(hub_blob *b, const char *folder, const char *blobs,
                             const hub_blob_desc *d, tern_error *err) {
    const uint64_t have = sweep(blobs) + (d->bytes_max ? bytes_of_models(folder) : 0);
    const uint64_t room = tern_disk_room(blobs);
    b->n_max = room;
    if (d->bytes_max) {
        const uint64_t left = d->bytes_max > have ? d->bytes_max - have : 0;
        if (left < b->n_max) b->n_max = left;
    }
    if (d->n_bytes <= b->n_max) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "the file has %.2f GB, and %s room for %.2f GB",
                     (double)d->n_bytes * 1e-9,
                     b->n_max < room ? "--manage leaves" : "the disk has", (double)b->n_max * 1e-9);
}

// ---- Receiving ---------------------------------------------------------------------------------

tern_status hub_blob_open(hub_blob **out, const hub_blob_desc *d, tern_error *err) {
    char *blobs = tern_path_join(d->folder, BLOBS);
    hub_blob *b = tern_alloc(TERN_MEM_MISC, sizeof *b);
    tern_status status = TERN_OK;
    if (b) b->path = blob_path(d->folder, d->digest);
    if (!blobs || !b || !b->path) status = tern_fail_memory(err, sizeof *b);
    if (status == TERN_OK) status = tern_folder_make(d->folder, err);
    if (status == TERN_OK) status = tern_folder_make(blobs, err);
    if (status == TERN_OK) status = find_room(b, d->folder, blobs, d, err);
    if (status == TERN_OK) status = tern_out_open_file(&b->set, b->path, err);
    if (status == TERN_OK) status = tern_out_begin(&b->set, NULL, &b->file, err);
    tern_free(blobs);
    if (status != TERN_OK) {
        hub_blob_drop(b);
        return status;
    }
    snprintf(b->wanted, sizeof b->wanted, "%s", d->digest);
    hub_digest_begin(&b->digest, false);
    *out = b;
    return TERN_OK;
}

tern_status hub_blob_write(hub_blob *b, const void *bytes, size_t n, tern_error *err) {
    b->n += n;
    if (b->n > b->n_max)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the file has more than the %.2f GB that there is room for",
                         (double)b->n_max * 1e-9);
    hub_digest_add(&b->digest, bytes, n);
    return tern_out_write(&b->file, bytes, n, err);
}

tern_status hub_blob_end(hub_blob *b, tern_error *err) {
    char found[65];
    hub_digest_end(&b->digest, found);
    if (strcmp(found, b->wanted) != 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the file's digest is sha256:%s", found);
    TERN_TRY(tern_out_end(&b->file, err));
    return tern_out_commit(&b->set, NULL, err);
}

void hub_blob_drop(hub_blob *b) {
    if (!b) return;
    tern_out_drop(&b->file);
    tern_out_close(&b->set);
    tern_free(b->path);
    tern_free(b);
}

// ---- Models of blobs ---------------------------------------------------------------------------

static bool is_gguf(const hub_blob_file *file) {
    return hub_ends((tern_str){file->name, strlen(file->name)}, ".gguf");
}

static tern_status check_folder(const hub_blob_file *files, size_t n, tern_error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *name = files[i].name;
        if (is_gguf(&files[i]))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "a GGUF file among others: a model is one of them, or a folder");
        if (*name == '.' || strchr(name, '/') || strchr(name, '\\') || !hub_is_folder_file(name))
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "'%s' is not a file of a model's folder",
                             name);
    }
    return TERN_OK;
}

// Moves the blobs into a folder, or back.
static tern_status move(const char *folder, const char *to, const hub_blob_file *files, size_t n,
                        bool back, tern_error *err) {
    tern_status status = TERN_OK;
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        char *blob = blob_path(folder, files[i].digest), *path = tern_path_join(to, files[i].name);
        if (!blob || !path)
            status = tern_fail_memory(err, strlen(to));
        else if (!tern_path_rename(back ? path : blob, back ? blob : path) && !back)
            status =
                tern_fail(err, TERN_ERR_ARGUMENT, "there is no blob sha256:%s", files[i].digest);
        tern_free(blob);
        tern_free(path);
    }
    return status;
}

static tern_status check_model(const char *path, tern_error *err) {
    hub_facts facts;
    TERN_TRY(hub_read_facts(&facts, path, err));
    return facts.refusal[0] ? tern_fail(err, TERN_ERR_UNSUPPORTED, "%s", facts.refusal) : TERN_OK;
}

// The folders above it.
static tern_status make_parents(const char *folder, const char *name, tern_error *err) {
    tern_status status = TERN_OK;
    for (const char *s = strchr(name, '/'); s && status == TERN_OK; s = strchr(s + 1, '/')) {
        tern_strbuf b = {0};
        tern_strbuf_printf(&b, "%s/%.*s", folder, (int)(s - name), name);
        status = b.failed ? tern_fail_memory(err, b.len) : tern_folder_make(b.ptr, err);
        tern_strbuf_free(&b);
    }
    return status;
}

// staging: FOLDER/.blobs/.new-NUMBER; to: the model's path, of a folder or of its one file.
static tern_status install(const char *folder, const char *staging, const char *to,
                           const hub_install *m, bool is_folder, tern_error *err) {
    if (is_folder) TERN_TRY(check_folder(m->files, m->n_files, err));
    if (tern_path_look(to) != TERN_PATH_NONE)
        return tern_fail(err, TERN_ERR_ARGUMENT, "there is a model '%s'", m->name);
    if (!tern_folder_create(staging, false))
        return tern_fail(err, TERN_ERR_IO, "%s: the folder cannot be made", staging);
    tern_status status = move(folder, staging, m->files, m->n_files, false, err);
    char *one = is_folder ? NULL : tern_path_join(staging, m->files[0].name);
    if (status == TERN_OK && !is_folder && !one) status = tern_fail_memory(err, strlen(staging));
    if (status == TERN_OK) status = check_model(one ? one : staging, err);
    if (status == TERN_OK) status = make_parents(folder, m->name, err);
    if (status == TERN_OK && !tern_path_rename(one ? one : staging, to))
        status = tern_fail(err, TERN_ERR_IO, "%s: the file cannot be put there", to);
    if (status != TERN_OK) move(folder, staging, m->files, m->n_files, true, NULL);
    tern_folder_remove(staging);
    tern_folder_sync(folder);
    tern_free(one);
    return status;
}

tern_status hub_install_blobs(const char *folder, const hub_install *m, tern_error *err) {
    tern_strbuf staging = {0}, to = {0};
    const bool is_folder = m->n_files != 1 || !is_gguf(m->files);
    const hub_blob_file one = {"model.gguf", is_folder ? "" : m->files[0].digest};
    const hub_install gguf = {m->name, &one, 1}; // whatever the client calls it
    tern_strbuf_printf(&staging, "%s/" BLOBS "/.new-%016llx", folder,
                       (unsigned long long)tern_random_seed());
    tern_strbuf_printf(&to, "%s/%s%s", folder, m->name, is_folder ? "" : ".gguf");
    tern_status status =
        staging.failed || to.failed
            ? tern_fail_memory(err, to.len)
            : install(folder, staging.ptr, to.ptr, is_folder ? m : &gguf, is_folder, err);
    tern_strbuf_free(&staging);
    tern_strbuf_free(&to);
    return status;
}
