// Downloads a model. Each file is written to OWNER/NAME/.tern-pull/, under its content's identifier
// in the hub, so that a part found there can only belong to the same content. It is checked when it
// is whole, and then gets its name by one rename. Existing files are not touched until then.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/hub/hub_private.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_time.h"
#include "base/status.h"

#define ENDPOINT "https://huggingface.co"
#define CHUNK    ((size_t)1 << 20)

typedef struct pull {
    const hub_pull_desc *desc;
    hub_name name;
    tern_strbuf what; // "hf:OWNER/NAME", for messages
    char *endpoint, *revision, *folder, *state;
    hub_plan plan;
    hub_pull_progress progress;
    double told; // when progress was last reported
    size_t n_new;
    // The current file.
    const hub_file *file;
    char *part; // its path
    int fd;
    uint64_t have;
    hub_digest digest;
} pull;

static bool tell(pull *p, bool now) {
    double t = tern_seconds();
    if (!p->desc->on_progress || (!now && t - p->told < 0.1)) return true;
    p->told = t;
    if (p->file) {
        p->progress.digest = p->file->digest;
        p->progress.file_bytes = p->file->bytes == UINT64_MAX ? 0 : p->file->bytes;
        p->progress.file_done = p->have;
    }
    return p->desc->on_progress(p->desc->user, &p->progress);
}

static tern_status fail_cancelled(tern_error *err) {
    return tern_fail(err, TERN_ERR_CANCELLED,
                     "cancelled; what came stays, and the next pull goes on from there");
}

// ---- Answers that are refusals -----------------------------------------------------------------

static tern_status fail_status(const pull *p, const hub_reply *r, tern_error *err) {
    const char *what = tern_strbuf_text(&p->what), *more = r->message;
    const char *colon = *more ? ": " : "";
    switch (r->status) {
    case 401:
        return tern_fail(
            err, TERN_ERR_IO,
            p->desc->token
                ? "%s: the hub does not take the token, or has no such repository (401)%s%s"
                : "%s: the hub has no such repository, or wants a token for "
                  "it (401; --token or HF_TOKEN)%s%s",
            what, colon, more);
    case 403:
        return tern_fail(
            err, TERN_ERR_IO,
            "%s: the hub does not allow it (403); its page may ask to accept a licence%s%s", what,
            colon, more);
    case 404:
        return tern_fail(err, TERN_ERR_IO,
                         "%s: the hub has no such repository, revision or file (404)%s%s", what,
                         colon, more);
    default:
        return tern_fail(err, TERN_ERR_IO, "%s: the hub answers %d%s%s", what, r->status, colon,
                         more);
    }
}

// What to do after a request that failed: try again, or give up with the reason in err.
static bool tries_again(pull *p, const hub_reply *r, int *n_tries, tern_error *err) {
    if (err->status == TERN_ERR_CANCELLED || !r->may_go_on) return false;
    if (++*n_tries > p->desc->n_retries) return false;
    double end = tern_seconds() + (*n_tries < 8 ? 0.125 * (double)(1 << *n_tries) : 16.0);
    while (tern_seconds() < end) {
        tern_sleep(0.1);
        if (tell(p, true)) continue;
        fail_cancelled(err);
        return false;
    }
    return true;
}

// ---- The listing -------------------------------------------------------------------------------

static bool listing_waits(void *user) { return tell(user, true); }

static void put_escaped(tern_strbuf *b, const char *text, bool keeps_slashes) {
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || strchr("-_.~", *c) || (keeps_slashes && *c == '/');
        tern_strbuf_printf(b, plain ? "%c" : "%%%02X", *c);
    }
}

static tern_status get_listing(pull *p, tern_error *err) {
    tern_strbuf url = {0}, text = {0};
    hub_reply reply;
    int n_tries = 0;
    tern_strbuf_printf(&url, "%s/api/models/%.*s/%.*s/revision/", p->endpoint,
                       (int)p->name.owner.len, p->name.owner.ptr, (int)p->name.name.len,
                       p->name.name.ptr);
    put_escaped(&url, p->revision, false);
    tern_strbuf_puts(&url, "?blobs=true");
    if (url.failed) return tern_fail_memory(err, 0);
    tern_status status;
    do {
        status = hub_get(url.ptr, p->desc->token, listing_waits, p, &text, &reply, err);
        if (status != TERN_OK && reply.status >= 400) status = fail_status(p, &reply, err);
    } while (status != TERN_OK && reply.was_reached && tries_again(p, &reply, &n_tries, err));
    if (status == TERN_OK) {
        status = hub_plan_read(&p->plan, &p->name, p->desc->text_only, tern_strbuf_text(&text),
                               text.len, err);
        if (status != TERN_OK) tern_fail_prefix(err, status, tern_strbuf_text(&p->what));
    }
    tern_strbuf_free(&text);
    tern_strbuf_free(&url);
    return status;
}

// ---- A file ------------------------------------------------------------------------------------

static void begin_digest(pull *p) {
    char head[40];
    hub_digest_begin(&p->digest, p->file->is_git);
    if (!p->file->is_git) return;
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)p->file->bytes);
    hub_digest_add(&p->digest, head, (size_t)n + 1); // with its 0 byte
}

// Adds a file's content to the digest, as far as it can be read; *n: bytes.
static tern_status read_into_digest(pull *p, const char *path, uint64_t *n, tern_error *err) {
    int fd;
    uint64_t size, before = p->progress.done;
    begin_digest(p);
    TERN_TRY(tern_file_open_regular(&fd, path, &size, err));
    char *chunk = tern_alloc(TERN_MEM_MISC, CHUNK);
    tern_status status = chunk ? TERN_OK : tern_fail_memory(err, CHUNK);
    p->progress.is_checking = true;
    for (*n = 0; status == TERN_OK;) {
        int64_t got = tern_fd_read(fd, chunk, CHUNK);
        if (got < 0) status = tern_fail(err, TERN_ERR_IO, "%s: %s", path, strerror(errno));
        if (got <= 0) break;
        hub_digest_add(&p->digest, chunk, (size_t)got);
        *n += (uint64_t)got;
        p->progress.done = before + *n;
        if (!tell(p, false)) status = fail_cancelled(err);
    }
    p->progress.is_checking = false;
    p->progress.done = before;
    tern_fd_close(fd);
    tern_free(chunk);
    return status;
}

static bool digest_is_right(pull *p, char is[65]) {
    hub_digest d = p->digest;
    hub_digest_end(&d, is);
    return !p->file->digest[0] || !strcmp(is, p->file->digest);
}

static uint64_t size_there(const char *path) { // UINT64_MAX: it does not exist
    int fd;
    uint64_t n = 0;
    if (tern_file_open_regular(&fd, path, &n, NULL) != TERN_OK) return UINT64_MAX;
    tern_fd_close(fd);
    return n;
}

// Whether the file exists, whole and equal to the hub's.
static tern_status is_there(pull *p, const char *path, bool *is, tern_error *err) {
    char digest[65];
    uint64_t n;
    *is = false;
    // Nothing to compare it with: download again.
    if (!p->file->digest[0] || p->file->bytes == UINT64_MAX) return TERN_OK;
    tern_error why = {0};
    if (size_there(path) != p->file->bytes) return TERN_OK;
    tern_status status = read_into_digest(p, path, &n, &why);
    if (status == TERN_ERR_CANCELLED) return fail_cancelled(err);
    *is = status == TERN_OK && digest_is_right(p, digest);
    return TERN_OK;
}

static bool restart_part(pull *p, tern_error *err) {
    p->progress.done -= p->have;
    p->have = 0;
    begin_digest(p);
    if (tern_fd_cut(p->fd, 0)) return true;
    tern_fail(err, TERN_ERR_IO, "%s: %s", p->part, strerror(errno));
    return false;
}

static bool file_begins(void *user, uint64_t from, tern_error *err) {
    pull *p = user;
    if (from == p->have) return true;
    if (from == 0) return restart_part(p, err); // the server does not support ranges
    tern_fail(err, TERN_ERR_FORMAT, "%s: the hub sends another part than was asked for",
              p->file->name);
    return false;
}

static bool file_comes(void *user, const void *bytes, size_t n, tern_error *err) {
    pull *p = user;
    if (p->file->bytes - p->have < n) {
        tern_fail(err, TERN_ERR_FORMAT, "%s: more comes than the %llu bytes that the hub names",
                  p->file->name, (unsigned long long)p->file->bytes);
        return false;
    }
    if (!tern_fd_write(p->fd, bytes, n)) {
        tern_fail(err, TERN_ERR_IO, "%s: %s%s", p->part, strerror(errno),
                  errno == ENOSPC ? "; what came stays, and the next pull goes on from there" : "");
        return false;
    }
    hub_digest_add(&p->digest, bytes, n);
    p->have += n;
    p->progress.done += n;
    if (tell(p, false)) return true;
    fail_cancelled(err);
    return false;
}

static bool file_waits(void *user) { return tell(user, true); }

static tern_status fetch_rest(pull *p, const char *url, tern_error *err) {
    int n_tries = 0;
    hub_reply reply;
    while (p->have != p->file->bytes) {
        uint64_t before = p->have;
        const hub_request r = {.url = url,
                               .token = p->desc->token,
                               .from = p->have,
                               .on_begin = file_begins,
                               .on_bytes = file_comes,
                               .on_wait = file_waits,
                               .user = p};
        tern_status status = hub_fetch(&r, &reply, err);
        if (status == TERN_OK && p->file->bytes == UINT64_MAX) return TERN_OK;
        if (status == TERN_OK && p->have < p->file->bytes) {
            reply.may_go_on = true;
            status = tern_fail(err, TERN_ERR_IO, "the hub ended the file early");
        }
        if (status == TERN_OK) continue;
        if (reply.status == 416 && p->have > 0) { // the file has changed, or the part is too long
            if (!restart_part(p, err)) return TERN_ERR_IO;
            if (n_tries++ < 3) continue;
        }
        if (reply.status >= 400) status = fail_status(p, &reply, err);
        if (p->have > before) n_tries = 0;
        if (tries_again(p, &reply, &n_tries, err)) continue;
        if (reply.may_go_on && err->status != TERN_ERR_CANCELLED) {
            tern_error why = *err;
            return tern_fail(
                err, TERN_ERR_IO,
                "%s: %s; %llu of %llu bytes are there, and the next pull goes on from there",
                p->file->name, why.message, (unsigned long long)p->have,
                (unsigned long long)p->file->bytes);
        }
        return err->status;
    }
    return TERN_OK;
}

static tern_status finish_file(pull *p, const char *path, tern_error *err) {
    char is[65];
    if (!digest_is_right(p, is)) {
        tern_file_remove(p->part);
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: wrong checksum: the hub names %s, what came has %s; it was removed",
                         p->file->name, p->file->digest, is);
    }
    if (!tern_fd_sync(p->fd))
        return tern_fail(err, TERN_ERR_IO, "%s: %s", p->part, strerror(errno));
    if (!tern_path_rename(p->part, path))
        return tern_fail(err, TERN_ERR_IO, "%s: %s", path, strerror(errno));
    return TERN_OK;
}

// Creates every folder of a path but the last part.
static tern_status make_folders(const char *path, tern_error *err) {
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char *folder = tern_strndup(TERN_MEM_MISC, path, (size_t)(slash - path));
        tern_status status = folder ? tern_folder_make(folder, err) : tern_fail_memory(err, 0);
        tern_free(folder);
        TERN_TRY(status);
    }
    return TERN_OK;
}

// The part's name: the content's digest, or the file's origin if the hub gives no digest.
static char *part_path(const pull *p) {
    tern_strbuf b = {0};
    uint64_t where = tern_hash64(1, p->file->name, strlen(p->file->name));
    where = tern_hash64(where, p->plan.commit ? p->plan.commit : p->revision,
                        strlen(p->plan.commit ? p->plan.commit : p->revision));
    if (p->file->digest[0])
        tern_strbuf_printf(&b, "%s/%s", p->state, p->file->digest);
    else
        tern_strbuf_printf(&b, "%s/from-%016llx", p->state, (unsigned long long)where);
    char *path = b.failed ? NULL : tern_strdup(TERN_MEM_MISC, b.ptr);
    tern_strbuf_free(&b);
    return path;
}

static tern_status bring(pull *p, const char *path, const char *url, tern_error *err) {
    p->part = part_path(p);
    if (!p->part) return tern_fail_memory(err, 0);
    // Locked until it is closed: a second pull of the same file is refused.
    TERN_TRY(tern_file_open_log(&p->fd, p->part, UINT64_MAX, false, err));
    tern_status status = read_into_digest(p, p->part, &p->have, err);
    p->progress.done += p->have;
    if (status == TERN_OK && p->have > p->file->bytes && !restart_part(p, err))
        status = TERN_ERR_IO;
    if (status == TERN_OK) status = fetch_rest(p, url, err);
    if (status == TERN_OK) status = finish_file(p, path, err);
    tern_fd_close(p->fd);
    if (status != TERN_OK && p->have == 0) tern_file_remove(p->part);
    p->n_new += status == TERN_OK;
    return status;
}

static tern_status one_file(pull *p, const hub_file *f, tern_error *err) {
    tern_strbuf url = {0};
    bool is = false;
    char *path = tern_path_join(p->folder, f->name);
    tern_strbuf_printf(&url, "%s/%.*s/%.*s/resolve/", p->endpoint, (int)p->name.owner.len,
                       p->name.owner.ptr, (int)p->name.name.len, p->name.name.ptr);
    put_escaped(&url, p->plan.commit ? p->plan.commit : p->revision, false);
    tern_strbuf_putc(&url, '/');
    put_escaped(&url, f->name, true);
    p->file = f;
    p->have = 0;
    p->progress.file = f->name;
    tern_status status = path && !url.failed ? make_folders(path, err) : tern_fail_memory(err, 0);
    if (status == TERN_OK) status = is_there(p, path, &is, err);
    if (status == TERN_OK && is)
        p->progress.done += f->bytes;
    else if (status == TERN_OK)
        status = bring(p, path, tern_strbuf_text(&url), err);
    tern_free(p->part);
    p->part = NULL;
    tern_free(path);
    tern_strbuf_free(&url);
    return status;
}

// ---- All of it ---------------------------------------------------------------------------------

// Checks the free space before the download and not after hours. Parts that already exist are
// subtracted.
static tern_status check_room(pull *p, tern_error *err) {
    uint64_t need = 0, have = 0;
    for (size_t i = 0; i < p->plan.n; i++) {
        const hub_file *f = p->file = &p->plan.files[i];
        char *part = part_path(p), *path = tern_path_join(p->folder, f->name);
        if (f->bytes != UINT64_MAX && path && size_there(path) != f->bytes) need += f->bytes;
        if (part && size_there(part) != UINT64_MAX) have += size_there(part);
        tern_free(part);
        tern_free(path);
    }
    const uint64_t room = tern_disk_room(p->folder);
    if (need <= have || room >= need - have) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO,
                     "%s: %.1f GB are missing here, and the disk has room for %.1f", p->folder,
                     (double)(need - have) * 1e-9, (double)room * 1e-9);
}

static tern_status all_files(pull *p, tern_error *err) {
    p->progress.n_files = p->plan.n;
    for (size_t i = 0; i < p->plan.n; i++)
        if (p->plan.files[i].bytes != UINT64_MAX) p->progress.all += p->plan.files[i].bytes;
    TERN_TRY(make_folders(p->state, err));
    TERN_TRY(tern_folder_make(p->state, err));
    TERN_TRY(check_room(p, err));
    for (size_t i = 0; i < p->plan.n; i++) {
        p->progress.i_file = i;
        TERN_TRY(one_file(p, &p->plan.files[i], err));
    }
    tern_folder_sync(p->folder);
    tern_folder_remove(p->state); // unless another file of the repository has a part in it
    tell(p, true);
    return TERN_OK;
}

// The downloaded model's name.
static tern_status name_model(const pull *p, char **name, tern_error *err) {
    hub_list list;
    const char *last = p->plan.files[p->plan.n - 1].name;
    char *path = tern_path_join(p->folder, last);
    if (path && !hub_is_gguf_model((tern_str){last, strlen(last)})) {
        char *folder = tern_path_folder(path);
        tern_free(path);
        path = folder;
    }
    if (!path) return tern_fail_memory(err, 0);
    tern_status status = hub_list_folder(&list, p->desc->folder, err);
    for (size_t i = 0; status == TERN_OK && i < list.n; i++)
        if (!strcmp(list.models[i].path, path)) *name = strdup(list.models[i].name);
    hub_list_free(&list);
    if (status == TERN_OK && !*name) status = tern_fail_memory(err, 0);
    tern_free(path);
    return status;
}

static tern_status open_pull(pull *p, tern_error *err) {
    const hub_pull_desc *d = p->desc;
    const char *endpoint = d->endpoint && *d->endpoint ? d->endpoint : ENDPOINT;
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/') n--;
    p->endpoint = tern_strndup(TERN_MEM_MISC, endpoint, n);
    if (!p->endpoint) return tern_fail_memory(err, n);
    if (!hub_name_read(&p->name, d->name, strlen(d->name), p->endpoint))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "'%s' is not a short name (`tern pull --list`) and not of the form "
                         "hf:OWNER/NAME[/FILE][:TYPE][@REVISION]",
                         d->name);
    if (d->revision) p->name.revision = (tern_str){d->revision, strlen(d->revision)};
    tern_str r = p->name.revision.len ? p->name.revision : TERN_STR("main");
    for (size_t i = 0; i < r.len; i++) // it becomes a part of a folder's name
        if (!strchr("-_./", r.ptr[i]) && !(r.ptr[i] >= '0' && r.ptr[i] <= '9') &&
            !((r.ptr[i] | 32) >= 'a' && (r.ptr[i] | 32) <= 'z'))
            return tern_fail(err, TERN_ERR_ARGUMENT, "'%.*s' is not a revision", (int)r.len, r.ptr);
    p->revision = tern_strndup(TERN_MEM_MISC, r.ptr, r.len);
    p->folder = hub_folder_of(d->folder, &p->name);
    p->state = p->folder ? tern_path_join(p->folder, HUB_STATE) : NULL;
    tern_strbuf_printf(&p->what, "hf:%.*s/%.*s", (int)p->name.owner.len, p->name.owner.ptr,
                       (int)p->name.name.len, p->name.name.ptr);
    if (!p->revision || !p->state || p->what.failed) return tern_fail_memory(err, 0);
    return TERN_OK;
}

// After a failure: removes the folders created in vain.
static void remove_if_empty(const pull *p) {
    if (!tern_folder_remove(p->state) && tern_folder_is(p->state)) return;
    char *owner = tern_path_folder(p->folder);
    if (tern_folder_remove(p->folder) && owner) tern_folder_remove(owner);
    tern_free(owner);
}

static void close_pull(pull *p) {
    hub_plan_free(&p->plan);
    tern_strbuf_free(&p->what);
    tern_free(p->endpoint);
    tern_free(p->revision);
    tern_free(p->folder);
    tern_free(p->state);
}

tern_status hub_look(const hub_pull_desc *desc, hub_offer *out, tern_error *err) {
    tern_error local = {0};
    pull p = {.desc = desc, .fd = -1};
    if (!err) err = &local;
    *out = (hub_offer){0};
    tern_status status = open_pull(&p, err);
    if (status == TERN_OK) status = get_listing(&p, err);
    for (size_t i = 0; status == TERN_OK && i < p.plan.n; i++) {
        if (p.plan.files[i].bytes != UINT64_MAX) out->bytes += p.plan.files[i].bytes;
        snprintf(out->shown, sizeof out->shown, "%s", p.plan.files[i].name);
    }
    if (status == TERN_OK) {
        snprintf(out->source, sizeof out->source, "%s", tern_strbuf_text(&p.what) + strlen("hf:"));
        memcpy(out->licence, p.plan.licence, sizeof out->licence);
        out->n_files = p.plan.n;
    }
    close_pull(&p);
    return status;
}

tern_status hub_pull(const hub_pull_desc *desc, char **name, size_t *n_new, tern_error *err) {
    tern_error local = {0};
    pull p = {.desc = desc, .fd = -1};
    if (!err) err = &local;
    *name = NULL;
    tern_status status = open_pull(&p, err);
    if (status == TERN_OK) status = get_listing(&p, err);
    if (status == TERN_OK) status = all_files(&p, err);
    if (status == TERN_OK)
        status = name_model(&p, name, err);
    else if (p.folder)
        remove_if_empty(&p);
    *n_new = p.n_new;
    close_pull(&p);
    return status;
}
