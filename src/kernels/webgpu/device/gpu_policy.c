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
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"
#include "base/strbuf.h"
#include "kernels/webgpu/device/gpu.h"

static const uint32_t sizes[] = {0, 64, 16, 4, 1};
#define N_SIZES      (sizeof sizes / sizeof *sizes)
#define N_DISPATCHES 300 // about a token's
#define LOCK_SECONDS 10

typedef struct state_file {
    int fd; // -1: there is none; then nothing is remembered
    char *path;
} state_file;

struct gpu_policy {
    tern_device *device;
    const tern_webgpu_desc *desc;
    state_file file;
    bool is_ready; // the file was read
    double began;
    size_t at, n_tried; // of `sizes`: the one now; those that failed in earlier starts
    bool works;         // the one now, by the file
    gpu_trial *trial;   // being tried; NULL: none
};

// Makes the folders above, too; if that fails, so does opening the first file.
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

// Path of the state file; NULL: memory ran out.
static char *make_path(const tern_device *d, const char *folder) {
    tern_strbuf path = {0};
    tern_strbuf_puts(&path, folder);
    if (!path.failed) make_folder(path.ptr);
    uint64_t key = tern_hash64(1, d->adapter_key, strlen(d->adapter_key));
    key = tern_hash64(key, d->api.path, strlen(d->api.path));
    tern_strbuf_printf(&path, "/webgpu-%016llx", (unsigned long long)key);
    if (!path.failed) return path.ptr;
    tern_strbuf_free(&path);
    return NULL;
}

// Another process that is trying holds the lock: not for long, unless it hangs. False: not yet
// open.
static bool open_state(gpu_policy *p) {
    state_file *f = &p->file;
    bool taken = false, late = tern_seconds() >= p->began + LOCK_SECONDS;
    if (f->path) f->fd = tern_file_open_shared(f->path, late, &taken);
    return !taken;
}

// The first of `sizes` to try (N_SIZES: none is left), or one that works.
static size_t read_state(const state_file *f, bool *works) {
    char text[64] = {0};
    *works = false;
    if (f->fd < 0 || tern_fd_read(f->fd, text, sizeof text - 1) <= 0) return 0;
    char *number = strchr(text, ' '), *end;
    if (!number) return 0;
    *number++ = 0;
    unsigned long n = strtoul(number, &end, 10);
    if (end == number) return 0;
    for (size_t i = 0; i < N_SIZES; i++) {
        if (sizes[i] != n) continue;
        *works = strcmp(text, "works") == 0;
        return *works ? i : strcmp(text, "trying") == 0 ? i + 1 : 0;
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

// The trial did not end because of the device: the file gets its previous contents back.
static void forget_trial(const gpu_policy *p) {
    if (p->n_tried == 0)
        write_text(&p->file, "");
    else
        write_state(&p->file, "trying", sizes[p->n_tried - 1]);
}

tern_status gpu_policy_begin(gpu_policy **out, tern_device *d, const tern_webgpu_desc *desc,
                             size_t first, tern_error *err) {
    *out = NULL;
    gpu_policy *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    *p = (gpu_policy){.device = d, .desc = desc, .at = first, .began = tern_seconds()};
    p->file.fd = -1;
    const char *folder = desc->group == 0 ? desc->state_folder : NULL;
    if (folder && folder[0] && !(p->file.path = make_path(d, folder))) {
        tern_free(p);
        return tern_fail_memory(err, strlen(folder));
    }
    *out = p;
    return TERN_OK;
}

// Begins a trial of the current size, or polls it.
static tern_status try_one(gpu_policy *p, bool *done, tern_error *err) {
    if (p->trial) return gpu_trial_poll(p->trial, done, err);
    p->device->group = sizes[p->at];
    *done = p->works;
    if (p->works) return TERN_OK;
    write_state(&p->file, "trying", sizes[p->at]);
    return gpu_trial_begin(&p->trial, p->device, N_DISPATCHES, sizes[p->at], err);
}

static tern_status go_on(gpu_policy *p, bool *done, tern_error *err) {
    tern_error why = {0};
    tern_status status = p->at < N_SIZES ? try_one(p, done, &why) : TERN_ERR_DEVICE;
    if (status == TERN_OK && !*done) return TERN_OK;
    if (status == TERN_OK && p->works) return TERN_OK;
    gpu_trial_close(p->trial);
    p->trial = NULL;
    if (status == TERN_OK) write_state(&p->file, "works", p->device->group);
    if (status == TERN_ERR_MEMORY) forget_trial(p);
    if (status == TERN_ERR_MEMORY && err) *err = why;
    if (status == TERN_OK || status == TERN_ERR_MEMORY) return status;
    if (p->at < N_SIZES) p->at++;
    bool goes_on = status == TERN_ERR_DEVICE && p->at < N_SIZES && !p->device->lost;
    return goes_on ? TERN_OK : refuse(&p->file, &why, err);
}

tern_status gpu_policy_poll(gpu_policy *p, bool *done, size_t *first, tern_error *err) {
    *done = p->desc->group != 0;
    if (*done) {
        p->device->group = p->desc->group > 0 ? (uint32_t)p->desc->group : 0;
        return TERN_OK;
    }
    if (!p->is_ready) {
        if (!open_state(p)) return TERN_OK;
        size_t known = read_state(&p->file, &p->works);
        p->n_tried = p->works ? 0 : known;
        if (p->at < known) p->at = known;
        p->is_ready = true;
    }
    tern_status status = go_on(p, done, err);
    *first = p->at;
    return status;
}

void gpu_policy_close(gpu_policy *p) {
    if (!p) return;
    if (p->trial) forget_trial(p);
    gpu_trial_close(p->trial);
    if (p->file.fd >= 0) tern_fd_close(p->file.fd);
    tern_free(p->file.path);
    tern_free(p);
}

bool gpu_policy_has_more(size_t first) { return first < N_SIZES; }
