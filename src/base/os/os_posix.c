// Linux, macOS, the BSDs and Emscripten.
#if !defined(_WIN32) && !defined(__wasi__)
#include <dlfcn.h>
#include <errno.h>
#if defined(__linux__)
#include <link.h>
#endif
#if defined(__APPLE__)
#include <fcntl.h>
#include <mach-o/dyld.h>
#include <sys/random.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_library.h"
#include "base/os/os_memory.h"
#include "base/os/os_processors.h"
#include "base/os/os_thread.h"
#include "base/os/os_time.h"

// ---- Threads -----------------------------------------------------------------------------------

_Static_assert(sizeof(pthread_mutex_t) <= sizeof(tern_mutex), "room for a mutex");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(tern_condition), "room for a condition");
_Static_assert(sizeof(pthread_t) <= sizeof(void *), "room for a thread");

static pthread_mutex_t *mutex_of(tern_mutex *m) { return (pthread_mutex_t *)&m->room; }
static pthread_cond_t *condition_of(tern_condition *c) { return (pthread_cond_t *)&c->room; }

void tern_mutex_init(tern_mutex *m) { pthread_mutex_init(mutex_of(m), NULL); }
void tern_mutex_free(tern_mutex *m) { pthread_mutex_destroy(mutex_of(m)); }
void tern_mutex_lock(tern_mutex *m) { pthread_mutex_lock(mutex_of(m)); }
bool tern_mutex_try_lock(tern_mutex *m) { return pthread_mutex_trylock(mutex_of(m)) == 0; }
void tern_mutex_unlock(tern_mutex *m) { pthread_mutex_unlock(mutex_of(m)); }

void tern_condition_init(tern_condition *c) { pthread_cond_init(condition_of(c), NULL); }
void tern_condition_free(tern_condition *c) { pthread_cond_destroy(condition_of(c)); }
void tern_condition_wake_all(tern_condition *c) { pthread_cond_broadcast(condition_of(c)); }
void tern_condition_wait(tern_condition *c, tern_mutex *m) {
    pthread_cond_wait(condition_of(c), mutex_of(m));
}

static void *begin(void *ctx) {
    const tern_thread *t = ctx;
    t->fn(t->arg);
    return NULL;
}

bool tern_thread_start(tern_thread *t, void (*fn)(void *arg), void *arg) {
    pthread_t id;
    *t = (tern_thread){.fn = fn, .arg = arg};
    if (pthread_create(&id, NULL, begin, t) != 0) return false;
    memcpy(&t->handle, &id, sizeof id);
    return true;
}

void tern_thread_join(tern_thread *t) {
    pthread_t id;
    memcpy(&id, &t->handle, sizeof id);
    pthread_join(id, NULL);
}

#if defined(__linux__)
// The processors that this process may run on: if it is restricted to one (taskset, a container's
// cpuset), more spinning threads are useless. A kernel for more processors than cpu_set_t has needs
// a larger set.
static int n_allowed(int n_online) {
    for (size_t n = CPU_SETSIZE; n <= (size_t)1 << 20; n *= 4) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (!set) return n_online;
        int n_set = sched_getaffinity(0, CPU_ALLOC_SIZE(n), set) == 0
                        ? CPU_COUNT_S(CPU_ALLOC_SIZE(n), set)
                    : errno == EINVAL ? -1
                                      : n_online;
        CPU_FREE(set);
        if (n_set >= 0) return n_set;
    }
    return n_online;
}
#endif

int tern_n_processors(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int n = online > 0 ? (int)online : 1;
#if defined(__linux__)
    n = tern_processors_granted("", n_allowed(n));
#endif
    return n > 0 ? n : 1;
}

// ---- Time --------------------------------------------------------------------------------------

double tern_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void tern_sleep(double seconds) {
    time_t whole = (time_t)seconds;
    nanosleep(&(struct timespec){whole, (long)((seconds - (double)whole) * 1e9)}, NULL);
}

bool tern_local_time(struct tm *now) {
    time_t t = time(NULL);
    return localtime_r(&t, now) != NULL;
}

uint64_t tern_random_seed(void) {
    uint64_t seed;
    if (getentropy(&seed, sizeof seed) == 0) return seed;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    seed = tern_mix64((uint64_t)t.tv_sec << 30 ^ (uint64_t)t.tv_nsec ^ (uintptr_t)&t);
    return tern_mix64(seed ^ (uint64_t)getpid() << 40);
}

// ---- Libraries ---------------------------------------------------------------------------------

#if defined(__linux__)
static int find_loader(struct dl_phdr_info *program, size_t size, void *found) {
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++)
        if (program->dlpi_phdr[i].p_type == PT_INTERP) *(bool *)found = true;
    return 1; // the program comes first; its libraries are not examined
}
#endif

// In a program that is linked statically, glibc's dlopen loads a second C library beside the first,
// and libraries that use it crash. musl's loads nothing.
bool tern_can_load_libraries(void) {
#if defined(__linux__)
    bool found = false;
    dl_iterate_phdr(find_loader, &found);
    return found;
#else
    return true;
#endif
}

tern_status tern_library_open(void **library, const char *path, tern_error *err) {
    *library = NULL;
    if (!tern_can_load_libraries())
        return tern_fail(err, TERN_ERR_DEVICE,
                         "%.200s: this program is linked statically and cannot load libraries",
                         path);
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *library ? TERN_OK : tern_fail(err, TERN_ERR_DEVICE, "%s", dlerror());
}

void *tern_library_symbol(void *library, const char *name) { return dlsym(library, name); }

char *tern_library_of(const void *function) {
    Dl_info info;
    bool known = dladdr((void *)(uintptr_t)function, &info) && info.dli_fname;
    return known ? tern_strdup(TERN_MEM_MISC, info.dli_fname) : NULL;
}

#if defined(__linux__)
// Device nodes of drivers: DRM, NVIDIA, AMD's compute, WSL, Adreno and Mali.
bool tern_gpu_may_be_here(void) {
    static const char *const nodes[] = {"/dev/nvidiactl", "/dev/nvidia0",  "/dev/kfd",
                                        "/dev/dxg",       "/dev/kgsl-3d0", "/dev/mali0"};
    char node[32];
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        if (access(nodes[i], F_OK) == 0) return true;
    for (int i = 128; i < 192; i++) {
        snprintf(node, sizeof node, "/dev/dri/renderD%d", i);
        if (access(node, F_OK) == 0) return true;
    }
    return false;
}
#else
bool tern_gpu_may_be_here(void) { return true; }
#endif

#if defined(__APPLE__)
// It may have been started by a link: libraries lie beside the program itself.
tern_status tern_program_folder(char **folder, tern_error *err) {
    uint32_t size = 0;
    *folder = NULL;
    _NSGetExecutablePath(NULL, &size);
    char *path = tern_alloc_open(TERN_MEM_MISC, size + 1);
    if (!path) return tern_fail_memory(err, size + 1);
    char *real = _NSGetExecutablePath(path, &size) == 0 ? realpath(path, NULL) : NULL;
    char *slash = real ? strrchr(real, '/') : NULL;
    tern_free(path);
    if (slash) *slash = 0;
    *folder = tern_strdup(TERN_MEM_MISC, slash ? real : "");
    free(real);
    return *folder ? TERN_OK : tern_fail_memory(err, size + 1);
}
#else
tern_status tern_program_folder(char **folder, tern_error *err) {
    *folder = NULL;
    for (size_t size = 256;; size *= 2) {
        char *path = tern_realloc(TERN_MEM_MISC, *folder, size);
        if (!path) {
            tern_free(*folder);
            *folder = NULL;
            return tern_fail_memory(err, size);
        }
        *folder = path;
        ssize_t n = readlink("/proc/self/exe", path, size - 1);
        if (n >= 0 && (size_t)n == size - 1) continue; // perhaps truncated
        path[n > 0 ? n : 0] = 0;
        char *slash = strrchr(path, '/');
        *(slash ? slash : path) = 0;
        return TERN_OK;
    }
}
#endif

// ---- What Darwin lacks -------------------------------------------------------------------------

#if defined(__APPLE__)
int pipe2(int ends[2], int flags) {
    if (pipe(ends) != 0) return -1;
    for (int i = 0; i < 2; i++) {
        if (flags & O_CLOEXEC) fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        if (flags & O_NONBLOCK) fcntl(ends[i], F_SETFL, fcntl(ends[i], F_GETFL) | O_NONBLOCK);
    }
    return 0;
}

void *memrchr(const void *text, int c, size_t n) {
    const unsigned char *bytes = text;
    while (n-- > 0)
        if (bytes[n] == (unsigned char)c) return (void *)(bytes + n);
    return NULL;
}
#endif

#endif
