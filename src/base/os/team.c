#include "base/os/team.h"

#include "base/alloc.h"
#include "base/os/os_thread.h"
#include "base/turns.h"

// A wait inside a token is a few microseconds when every thread has a core: spin for about ten. If
// it takes longer, the awaited thread has lost its core, to another program or to another thread of
// the team, and gets it back soonest if this thread sleeps. Measured with one busy program on two
// cores: 27 tokens/s against 8 with sched_yield and 13 to 17 with spinning on; alone, no
// difference.
#define SPINS_OWN_CORE    1000
#define SPINS_SHARED_CORE 100

struct tern_team_shared {
    int n_threads, n_started;
    int n_spins; // before a waiting thread sleeps
    tern_thread *threads;
    tern_team *views; // one per thread
    tern_turns runs;  // one at a time
    tern_mutex lock;  // for sleeping
    tern_condition wake;
    tern_team_fn fn;
    void *ctx;
    // Each on its own cache line: they are what the threads spin on.
    _Alignas(64) atomic_uint generation; // grows with every run; workers wait for it
    _Alignas(64) atomic_int n_arrived;   // barrier
    _Alignas(64) atomic_uint phase;      // barrier: grows when all have arrived
    _Alignas(64) atomic_int n_sleeping;
    atomic_bool stop;
};
typedef struct tern_team_shared shared;

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#elif defined(__wasm__) // has no such instruction: this takes about as long as x86's
    for (volatile int i = 0; i < 10; i++) {
    }
#endif
}

// Waits until *word is no longer `old`.
static void wait_change(shared *s, atomic_uint *word, unsigned old) {
    for (int i = 0; i < s->n_spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return;
        relax();
    }
    tern_mutex_lock(&s->lock);
    atomic_fetch_add(&s->n_sleeping, 1);
    while (atomic_load(word) == old) tern_condition_wait(&s->wake, &s->lock);
    atomic_fetch_sub(&s->n_sleeping, 1);
    tern_mutex_unlock(&s->lock);
}

// Changes *word and wakes the sleepers. The sequentially consistent order of "change, then look for
// sleepers" here and "announce sleep, then look again" there means that none is missed.
static void change(shared *s, atomic_uint *word) {
    atomic_fetch_add(word, 1);
    if (atomic_load(&s->n_sleeping) == 0) return;
    tern_mutex_lock(&s->lock);
    tern_condition_wake_all(&s->wake);
    tern_mutex_unlock(&s->lock);
}

void tern_team_barrier(const tern_team *team) {
    shared *s = team->shared;
    if (s->n_threads == 1) return;
    unsigned phase = atomic_load_explicit(&s->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&s->n_arrived, 1, memory_order_acq_rel) == s->n_threads - 1) {
        atomic_store_explicit(&s->n_arrived, 0, memory_order_relaxed);
        change(s, &s->phase);
        return;
    }
    wait_change(s, &s->phase, phase);
}

static void worker(void *arg) {
    const tern_team *team = arg;
    shared *s = team->shared;
    for (unsigned seen = 0;; seen++) {
        wait_change(s, &s->generation, seen);
        if (atomic_load(&s->stop)) return;
        s->fn(s->ctx, team);
        tern_team_barrier(team);
    }
}

void tern_team_run(const tern_team *team, tern_team_fn fn, void *ctx) {
    shared *s = team->shared;
    tern_turns_take(&s->runs);
    s->fn = fn;
    s->ctx = ctx;
    if (s->n_threads > 1) change(s, &s->generation);
    fn(ctx, team);
    tern_team_barrier(team);
    tern_turns_give(&s->runs);
}

static void release(shared *s) {
    if (s->n_started > 1) {
        atomic_store(&s->stop, true);
        change(s, &s->generation);
    }
    for (int i = 1; i < s->n_started; i++) tern_thread_join(&s->threads[i]);
    tern_turns_free(&s->runs);
    tern_mutex_free(&s->lock);
    tern_condition_free(&s->wake);
    tern_free(s->threads);
    tern_free(s->views);
    tern_free(s);
}

tern_status tern_team_open(tern_team **out, int n_threads, tern_error *err) {
    *out = NULL;
    int n_cores = tern_n_processors();
    if (n_threads == 0) n_threads = n_cores;
    if (n_threads < 0 || n_threads > 1024)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d threads: expected 1 to 1024", n_threads);
    shared *s = tern_alloc(TERN_MEM_GRAPH, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->n_threads = n_threads;
    s->n_spins = n_threads <= n_cores ? SPINS_OWN_CORE : SPINS_SHARED_CORE;
    s->n_started = 1;
    s->threads = tern_alloc_array(TERN_MEM_GRAPH, (size_t)n_threads, sizeof *s->threads);
    s->views = tern_alloc_array(TERN_MEM_GRAPH, (size_t)n_threads, sizeof *s->views);
    tern_turns_init(&s->runs);
    tern_mutex_init(&s->lock);
    tern_condition_init(&s->wake);
    if (!s->threads || !s->views) {
        release(s);
        return tern_fail_memory(err, (size_t)n_threads * sizeof *s->views);
    }
    for (int i = 0; i < n_threads; i++) s->views[i] = (tern_team){i, n_threads, s};
    for (int i = 1; i < n_threads; i++, s->n_started++) {
        if (tern_thread_start(&s->threads[i], worker, &s->views[i])) continue;
        release(s);
        return tern_fail(err, TERN_ERR_MEMORY, "thread %d of %d could not be started", i,
                         n_threads);
    }
    *out = &s->views[0];
    return TERN_OK;
}

void tern_team_close(tern_team *team) {
    if (team) release(team->shared);
}
