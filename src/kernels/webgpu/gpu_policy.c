// How many dispatches a submission may have. A good implementation takes a whole token's in one;
// weak ones fail beyond some number: with an error, by losing the device, by hanging, or by taking
// the process with them. So the first start on an adapter tries, from everything in one down to one
// at a time, and what it is about to try is written into a file first: when the process does not
// live to write how it went, the next start finds that and goes on with less. Later starts read the
// result.
//
// The file lies in $XDG_CACHE_HOME/tern or ~/.cache/tern, one for each adapter and library, locked
// while it is tried: "works N" or "trying N", 0 for everything in one. Anything else in it, or no
// file that can be written, and it is as if this were the first start.
// TERN_WEBGPU_GROUP=N decides without it. For tests, TERN_WEBGPU_WEAK="kill N" ends the process,
// and "lose N" loses the device, where more than N are tried.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"
#include "kernels/webgpu/gpu.h"

static const uint32_t sizes[] = {0, 64, 16, 4, 1};
#define N_SIZES       (sizeof sizes / sizeof *sizes)
#define N_DISPATCHES  300 // about a token's
#define LOCK_SECONDS  10

typedef struct state_file {
    int fd; // -1: there is none; then nothing is remembered
    char path[600];
} state_file;

// With the folders above; what is wrong with them is said by the first file.
static void make_folder(char *folder) {
    for (char *c = folder + 1; *c; c++) {
        if (*c != '/') continue;
        *c = 0;
        mkdir(folder, 0700);
        *c = '/';
    }
    mkdir(folder, 0700);
}

static bool make_path(const tern_device *d, char *path, size_t size) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[500];
    int n;
    if (cache && cache[0] == '/')
        n = snprintf(folder, sizeof folder, "%s/tern", cache);
    else if (home && home[0] == '/')
        n = snprintf(folder, sizeof folder, "%s/.cache/tern", home);
    else
        return false;
    if (n < 0 || (size_t)n >= sizeof folder) return false;
    make_folder(folder);
    uint64_t key = tern_hash64(1, d->adapter_key, strlen(d->adapter_key));
    key = tern_hash64(key, d->api.path, strlen(d->api.path));
    return snprintf(path, size, "%s/webgpu-%016llx", folder, (unsigned long long)key) < (int)size;
}

// Another process that tries holds the lock; one that hangs is not waited for.
static state_file open_state(const tern_device *d) {
    state_file f = {.fd = -1};
    if (!make_path(d, f.path, sizeof f.path)) return f;
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK; // should a pipe lie there
    f.fd = open(f.path, O_RDWR | O_CREAT | flags, 0600);
    if (f.fd < 0) f.fd = open(f.path, O_RDONLY | flags); // what works may still be known
    time_t end = time(NULL) + LOCK_SECONDS;
    while (f.fd >= 0 && flock(f.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
           time(NULL) < end)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    return f;
}

static void close_state(state_file *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

// The first of `sizes` to try, N_SIZES: none is left; or one that works.
static size_t read_state(const state_file *f, bool *works) {
    char text[64] = {0}, word[16];
    unsigned n;
    *works = false;
    if (f->fd < 0 || pread(f->fd, text, sizeof text - 1, 0) <= 0) return 0;
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
    if (f->fd < 0 || ftruncate(f->fd, 0) != 0 || pwrite(f->fd, text, n, 0) != (ssize_t)n) return;
    fsync(f->fd); // what comes next may take the machine along
}

static void write_state(const state_file *f, const char *word, uint32_t size) {
    char text[64];
    snprintf(text, sizeof text, "%s %u\n", word, size);
    write_text(f, text);
}

static void be_weak(tern_device *d, uint32_t size) {
    const char *text = getenv("TERN_WEBGPU_WEAK");
    char word[8];
    unsigned n;
    if (!text || sscanf(text, "%7s %u", word, &n) != 2 || (size != 0 && size <= n)) return;
    if (strcmp(word, "kill") == 0)
        raise(SIGKILL);
    else
        d->api.DeviceDestroy(d->device);
}

tern_status gpu_policy_choose(tern_device *d, size_t *first, tern_error *err) {
    const char *wanted = getenv("TERN_WEBGPU_GROUP");
    if (wanted && *wanted) {
        d->group = (uint32_t)strtoul(wanted, NULL, 10);
        return TERN_OK;
    }
    bool works;
    tern_error why = {0};
    state_file f = open_state(d);
    size_t i = read_state(&f, &works), n_tried = works ? 0 : i;
    if (i < *first) i = *first;
    tern_status status = TERN_ERR_DEVICE;
    for (; i < N_SIZES && !d->lost; i++) {
        d->group = sizes[i];
        if (works) status = TERN_OK;
        if (works) break;
        write_state(&f, "trying", sizes[i]);
        be_weak(d, sizes[i]);
        status = gpu_selftest_chain(d, N_DISPATCHES, sizes[i], &why);
        if (status != TERN_ERR_DEVICE) break;
    }
    if (status == TERN_OK && !works) write_state(&f, "works", d->group);
    if (status == TERN_ERR_MEMORY && n_tried == 0) write_text(&f, ""); // says nothing of the device
    if (status == TERN_ERR_MEMORY && n_tried > 0) write_state(&f, "trying", sizes[n_tried - 1]);
    close_state(&f);
    *first = i;
    if (status == TERN_OK || status == TERN_ERR_MEMORY) {
        if (err && status != TERN_OK) *err = why;
        return status;
    }
    if (!why.message[0])
        snprintf(why.message, sizeof why.message, "it ended earlier processes even with one");
    return tern_fail(err, TERN_ERR_DEVICE,
                     "this WebGPU device does not get through %d dispatches: %s (it is tried again "
                     "without the file %s)",
                     N_DISPATCHES, why.message, f.path);
}

bool gpu_policy_has_more(size_t first) {
    return first < N_SIZES;
}
