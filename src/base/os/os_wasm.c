// WebAssembly with WASI: files through the host, read and never mapped, and no shared libraries.
// (Emscripten has POSIX: os_posix.c.)
//
// Without shared memory there is one thread. With it (-matomics -mbulk-memory) the host starts
// workers on the same memory beforehand; each calls thread_main with its number, from 0 on, and
// waits there for work. Work cannot be given to a worker before it arrives: the host opens models
// when threads_ready says so.
#if defined(__wasi__)
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_library.h"
#include "base/os/os_memory.h"
#include "base/os/os_thread.h"
#include "base/os/os_time.h"

// ---- Threads -----------------------------------------------------------------------------------

#if defined(__wasm_atomics__)
static void wait_while(atomic_int *word, int value) {
    __builtin_wasm_memory_atomic_wait32((int *)word, value, -1);
}
static void wake(atomic_int *word, unsigned n) {
    __builtin_wasm_memory_atomic_notify((int *)word, n);
}
#else
static void wait_while(atomic_int *word, int value) {
    (void)word, (void)value;
    __builtin_trap(); // no other thread could ever change it
}
static void wake(atomic_int *word, unsigned n) { (void)word, (void)n; }
#endif

static atomic_int *word_of(tern_mutex *m) { return (atomic_int *)&m->room; }

enum { FREE, TAKEN, WAITED_FOR }; // a mutex

void tern_mutex_init(tern_mutex *m) { atomic_store(word_of(m), FREE); }
void tern_mutex_free(tern_mutex *m) { (void)m; }
void tern_mutex_lock(tern_mutex *m) {
    int state = FREE;
    if (atomic_compare_exchange_strong(word_of(m), &state, TAKEN)) return;
    // A thread that had to wait cannot tell whether others wait: it leaves the mark for them.
    while (atomic_exchange(word_of(m), WAITED_FOR) != FREE) wait_while(word_of(m), WAITED_FOR);
}
bool tern_mutex_try_lock(tern_mutex *m) {
    int state = FREE;
    return atomic_compare_exchange_strong(word_of(m), &state, TAKEN);
}
void tern_mutex_unlock(tern_mutex *m) {
    if (atomic_exchange(word_of(m), FREE) == WAITED_FOR) wake(word_of(m), 1);
}

void tern_condition_init(tern_condition *c) { atomic_store(word_of(c), 0); }
void tern_condition_free(tern_condition *c) { (void)c; }
void tern_condition_wait(tern_condition *c, tern_mutex *m) {
    int n_wakes = atomic_load(word_of(c));
    tern_mutex_unlock(m);
    wait_while(word_of(c), n_wakes);
    tern_mutex_lock(m);
}
void tern_condition_wake_all(tern_condition *c) {
    atomic_fetch_add(word_of(c), 1);
    wake(word_of(c), UINT32_MAX);
}

#if defined(__wasm_atomics__)
enum { MAX_WORKERS = 64 };
enum { ABSENT, IDLE, GIVEN, BUSY, DONE }; // a worker
static struct worker {
    atomic_int state;
    const tern_thread *work;
} workers[MAX_WORKERS];
static atomic_int n_ready;

// For the host.
__attribute__((export_name("threads_ready"))) int tern_threads_ready(void);
__attribute__((export_name("thread_main"))) void tern_thread_main(int number);

int tern_threads_ready(void) { return atomic_load(&n_ready); }

void tern_thread_main(int number) {
    if (number < 0 || number >= MAX_WORKERS) return;
    struct worker *w = &workers[number];
    atomic_store(&w->state, IDLE);
    atomic_fetch_add(&n_ready, 1);
    for (;;) {
        for (int state; (state = atomic_load(&w->state)) != BUSY;) wait_while(&w->state, state);
        w->work->fn(w->work->arg);
        atomic_store(&w->state, DONE);
        wake(&w->state, UINT32_MAX);
    }
}

bool tern_thread_start(tern_thread *t, void (*fn)(void *arg), void *arg) {
    for (int i = 0; i < MAX_WORKERS; i++) {
        struct worker *w = &workers[i];
        int state = IDLE;
        if (!atomic_compare_exchange_strong(&w->state, &state, GIVEN)) continue;
        *t = (tern_thread){.handle = w, .fn = fn, .arg = arg};
        w->work = t;
        atomic_store(&w->state, BUSY);
        wake(&w->state, UINT32_MAX);
        return true;
    }
    return false;
}

void tern_thread_join(tern_thread *t) {
    struct worker *w = t->handle;
    for (int state; (state = atomic_load(&w->state)) != DONE;) wait_while(&w->state, state);
    atomic_store(&w->state, IDLE);
}

int tern_n_processors(void) { return 1 + atomic_load(&n_ready); } // usable threads
#else
bool tern_thread_start(tern_thread *t, void (*fn)(void *arg), void *arg) {
    (void)t, (void)fn, (void)arg;
    return false;
}
void tern_thread_join(tern_thread *t) { (void)t; }
int tern_n_processors(void) { return 1; }
#endif

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
    uint64_t seed = 0;
    getentropy(&seed, sizeof seed); // the host has no other source
    return seed;
}

// ---- Memory ------------------------------------------------------------------------------------

// WASI's C library was compiled for one thread: its heap allows one thread at a time. (Library code
// that calls it directly, such as PCRE2's allocation, runs on the host's thread while no other
// runs.)
static tern_mutex heap_lock; // all zeros: free
void *tern_heap_take(size_t n) {
    tern_mutex_lock(&heap_lock);
    void *block = aligned_alloc(64, n);
    tern_mutex_unlock(&heap_lock);
    return block;
}
void tern_heap_give(void *block) {
    tern_mutex_lock(&heap_lock);
    free(block);
    tern_mutex_unlock(&heap_lock);
}

void *tern_pages_take(size_t n, bool huge) {
    (void)n, (void)huge;
    return NULL;
}
void tern_pages_give(void *pages, size_t n) { (void)pages, (void)n; }
size_t tern_process_memory_max(void) { // never shrinks
    return __builtin_wasm_memory_size(0) * 65536;
}

size_t tern_process_memory_now(void) { return tern_process_memory_max(); }
uint64_t tern_memory_available(void) { return 0; }

// Files can only be read: base/file/blob.h reads them piece by piece.
void *tern_map(int fd, size_t n) {
    (void)fd, (void)n;
    errno = ENOTSUP;
    return NULL;
}
void tern_unmap(void *mapped, size_t n) { (void)mapped, (void)n; }
void tern_map_drop(const void *part, size_t n) { (void)part, (void)n; }

// ---- Libraries ---------------------------------------------------------------------------------

bool tern_can_load_libraries(void) { return false; }

tern_status tern_library_open(void **library, const char *path, tern_error *err) {
    *library = NULL;
    return tern_fail(err, TERN_ERR_DEVICE, "%s: libraries cannot be loaded here", path);
}
void *tern_library_symbol(void *library, const char *name) {
    (void)library, (void)name;
    return NULL;
}
char *tern_library_of(const void *function) {
    (void)function;
    return NULL;
}
bool tern_gpu_may_be_here(void) { return true; }

tern_status tern_program_folder(char **folder, tern_error *err) {
    *folder = tern_strdup(TERN_MEM_MISC, "");
    return *folder ? TERN_OK : tern_fail_memory(err, 1);
}

#endif
