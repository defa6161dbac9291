#include "kernels/cpu/pool.h"

#include <pthread.h>
#include <unistd.h>
#include "base/alloc.h"

// A wait inside a token is a few microseconds when every thread has a core: spin for about ten. If
// it takes longer, the thread that we wait for has lost its core, to another program or to one of
// us, and gets it back soonest if this thread sleeps. Measured with one busy program on two cores:
// 27 tokens/s against 8 with sched_yield and 13 to 17 with spinning on; alone, no difference.
#define SPINS_OWN_CORE    1000
#define SPINS_SHARED_CORE 100

struct tern_pool {
    int n_threads, n_started;
    int n_spins; // before a waiting thread sleeps
    pthread_t *threads;
    tern_team *teams;
    pthread_mutex_t run_lock; // one run at a time
    pthread_mutex_t lock;     // for sleeping
    pthread_cond_t wake;
    tern_team_fn fn;
    void *ctx;
    // Each on its own cache line: they are what the threads spin on.
    _Alignas(64) atomic_uint generation; // grows with every run; workers wait for it
    _Alignas(64) atomic_int n_arrived;   // barrier
    _Alignas(64) atomic_uint phase;      // barrier: grows when all have arrived
    _Alignas(64) atomic_int n_sleeping;
    atomic_bool stop;
};

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Waits until *word is no longer `old`.
static void wait_change(tern_pool *p, atomic_uint *word, unsigned old) {
    for (int i = 0; i < p->n_spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (atomic_load(word) == old) pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

// Changes *word and wakes the sleepers. The sequentially consistent order of "change, then look for
// sleepers" here and "announce sleep, then look again" there means that none is missed.
static void change(tern_pool *p, atomic_uint *word) {
    atomic_fetch_add(word, 1);
    if (atomic_load(&p->n_sleeping) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

void tern_team_barrier(const tern_team *team) {
    tern_pool *p = team->pool;
    if (p->n_threads == 1) return;
    unsigned phase = atomic_load_explicit(&p->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&p->n_arrived, 1, memory_order_acq_rel) == p->n_threads - 1) {
        atomic_store_explicit(&p->n_arrived, 0, memory_order_relaxed);
        change(p, &p->phase);
        return;
    }
    wait_change(p, &p->phase, phase);
}

static void *worker(void *arg) {
    tern_team *team = arg;
    tern_pool *p = team->pool;
    for (unsigned seen = 0;; seen++) {
        wait_change(p, &p->generation, seen);
        if (atomic_load(&p->stop)) return NULL;
        p->fn(p->ctx, team);
        tern_team_barrier(team);
    }
}

void tern_pool_run(tern_pool *p, tern_team_fn fn, void *ctx) {
    pthread_mutex_lock(&p->run_lock);
    p->fn = fn;
    p->ctx = ctx;
    if (p->n_threads > 1) change(p, &p->generation);
    fn(ctx, &p->teams[0]);
    tern_team_barrier(&p->teams[0]);
    pthread_mutex_unlock(&p->run_lock);
}

tern_status tern_pool_open(tern_pool **out, int n_threads, tern_error *err) {
    *out = NULL;
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (n_threads == 0) n_threads = n_cores > 0 ? (int)n_cores : 1;
    if (n_threads < 0 || n_threads > 1024)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d threads: expected 1 to 1024", n_threads);
    tern_pool *p = tern_alloc(TERN_MEM_GRAPH, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    p->n_threads = n_threads;
    p->n_spins = n_threads <= n_cores ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
    p->n_started = 1;
    p->threads = tern_alloc_array(TERN_MEM_GRAPH, (size_t)n_threads, sizeof *p->threads);
    p->teams = tern_alloc_array(TERN_MEM_GRAPH, (size_t)n_threads, sizeof *p->teams);
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    if (!p->threads || !p->teams) {
        tern_pool_close(p);
        return tern_fail_memory(err, sizeof *p->threads);
    }
    for (int i = 0; i < n_threads; i++) p->teams[i] = (tern_team){i, n_threads, p};
    for (int i = 1; i < n_threads; i++, p->n_started++) {
        if (pthread_create(&p->threads[i], NULL, worker, &p->teams[i]) == 0) continue;
        tern_pool_close(p);
        return tern_fail(err, TERN_ERR_MEMORY, "thread %d of %d could not be started", i,
                         n_threads);
    }
    *out = p;
    return TERN_OK;
}

void tern_pool_close(tern_pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    change(p, &p->generation);
    for (int i = 1; i < p->n_started; i++) pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->run_lock);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    tern_free(p->threads);
    tern_free(p->teams);
    tern_free(p);
}

int tern_pool_n_threads(const tern_pool *p) {
    return p->n_threads;
}
