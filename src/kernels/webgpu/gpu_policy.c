// How many dispatches a submission may have. A good implementation takes a whole token's in one;
// weak ones fail beyond some number: with an error, by losing the device, by hanging, or by killing
// the process. So the first start on an adapter tries, from everything in one down to one at a
// time, and writes what it is about to try into a file first: if the process dies, the next start
// finds the record and continues with less. Later starts read the result.
//
// The file lies in the desc's state_folder, one for each adapter and library, locked during a
// trial: "works N" or "trying N", 0 for everything in one. If it contains anything else, or cannot
// be written, this counts as the first start. The desc's group decides without it.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os_file.h"
#include "base/strbuf.h"
#include "kernels/webgpu/gpu.h"

static const uint32_t sizes[] = {0, 64, 16, 4, 1};
#define N_SIZES       (sizeof sizes / sizeof *sizes)
#define N_DISPATCHES  300 // about a token's
#define LOCK_SECONDS  10

typedef struct state_file {
    int fd; // -1: there is none; then nothing is remembered
    char *path;
} state_file;

// Makes the folders above, too; if they cannot be made, opening the first file will tell.
static void make_folder(char *folder) {
    for (char *c = folder + 1; *c; c++) {
        if (!tern_is_slash(*c)) continue;
        char slash = *c;
        *c = 0;
        tern_folder_create(folder, true);
        *c = slash;
    }
    tern_folder_create(folder, true);
}

// Of the state file; NULL: memory ran out.
static char *make_path(const tern_device *d) {
    tern_strbuf path = {0};
    tern_strbuf_puts(&path, d->desc->state_folder);
    if (!path.failed) make_folder(path.ptr);
    uint64_t key = tern_hash64(1, d->adapter_key, strlen(d->adapter_key));
    key = tern_hash64(key, d->api.path, strlen(d->api.path));
    tern_strbuf_printf(&path, "/webgpu-%016llx", (unsigned long long)key);
    if (!path.failed) return path.ptr;
    tern_strbuf_free(&path);
    return NULL;
}

// Another process that is trying holds the lock; do not wait for one that hangs.
static tern_status open_state(const tern_device *d, state_file *out, tern_error *err) {
    state_file f = {.fd = -1};
    *out = f;
    if (!d->desc->state_folder || !d->desc->state_folder[0]) return TERN_OK;
    f.path = make_path(d);
    if (!f.path) return tern_fail_memory(err, strlen(d->desc->state_folder));
    f.fd = tern_file_open_shared(f.path, LOCK_SECONDS);
    *out = f;
    return TERN_OK;
}

static void close_state(state_file *f) {
    if (f->fd >= 0) tern_fd_close(f->fd);
    tern_free(f->path);
    *f = (state_file){.fd = -1};
}

// The first of `sizes` to try (N_SIZES: none is left), or one that works.
static size_t read_state(const state_file *f, bool *works) {
    char text[64] = {0}, word[16];
    unsigned n;
    *works = false;
    if (f->fd < 0 || tern_fd_read(f->fd, text, sizeof text - 1) <= 0) return 0;
    if (sscanf(text, "%15s %u", word, &n) != 2) return 0;
    for (size_t i = 0; i < N_SIZES; i++) {
        if (sizes[i] != n) continue;
        *works = strcmp(word, "works") == 0;
        return *works ? i : strcmp(word, "trying") == 0 ? i + 1 : 0;
    }
    return 0;
}

static void write_text(const state_file *f, const char *text) {
    size_t n = strlen(text);
    if (f->fd < 0 || !tern_fd_cut(f->fd, 0) || !tern_fd_write_at(f->fd, text, n, 0)) return;
    tern_fd_sync(f->fd); // the next step may crash the machine
}

static void write_state(const state_file *f, const char *word, uint32_t size) {
    char text[64];
    snprintf(text, sizeof text, "%s %u\n", word, size);
    write_text(f, text);
}

static tern_status refuse(const state_file *f, const tern_error *why, tern_error *err) {
    const char *reason =
        why->message[0] ? why->message : "it ended earlier processes even with one";
    return tern_fail(err, TERN_ERR_DEVICE,
                     "this WebGPU device does not get through %d dispatches: %s%s%s%s",
                     N_DISPATCHES, reason, f->path ? " (it is tried again without the file " : "",
                     f->path ? f->path : "", f->path ? ")" : "");
}

tern_status gpu_policy_choose(tern_device *d, size_t *first, tern_error *err) {
    if (d->desc->group != 0) {
        d->group = d->desc->group > 0 ? (uint32_t)d->desc->group : 0;
        return TERN_OK;
    }
    bool works;
    tern_error why = {0};
    state_file f;
    TERN_TRY(open_state(d, &f, err));
    size_t i = read_state(&f, &works), n_tried = works ? 0 : i;
    if (i < *first) i = *first;
    tern_status status = TERN_ERR_DEVICE;
    for (; i < N_SIZES && !d->lost; i++) {
        d->group = sizes[i];
        if (works) status = TERN_OK;
        if (works) break;
        write_state(&f, "trying", sizes[i]);
        status = gpu_selftest_chain(d, N_DISPATCHES, sizes[i], &why);
        if (status != TERN_ERR_DEVICE) break;
    }
    if (status == TERN_OK && !works) write_state(&f, "works", d->group);
    if (status == TERN_ERR_MEMORY && n_tried == 0) write_text(&f, ""); // not its fault
    if (status == TERN_ERR_MEMORY && n_tried > 0) write_state(&f, "trying", sizes[n_tried - 1]);
    *first = i;
    if (status == TERN_ERR_MEMORY && err) *err = why;
    if (status != TERN_OK && status != TERN_ERR_MEMORY) status = refuse(&f, &why, err);
    close_state(&f);
    return status;
}

bool gpu_policy_has_more(size_t first) {
    return first < N_SIZES;
}
