// A team of threads that work through the same list of steps together.
//
// tern_team_run calls fn once on every thread (the caller is thread 0) and returns when all are
// done. Inside, tern_team_barrier separates the steps. Waiting threads spin for a short while,
// since a barrier in the decode loop comes every few microseconds, and then sleep, since a laptop's
// battery matters. One run at a time: callers take turns in
// the order in which they come.
#ifndef TERN_BASE_TEAM_H
#define TERN_BASE_TEAM_H

#include <stdatomic.h>
#include "base/status.h"

// A team as one of its threads sees it. tern_team_open gives thread 0's view.
typedef struct tern_team {
    int thread, n_threads; // 0 <= thread < n_threads
    struct tern_team_shared *shared;
} tern_team;

typedef void (*tern_team_fn)(void *ctx, const tern_team *team);

// n_threads: 0 for one per core. Fails with TERN_ERR_MEMORY if the system gives no more threads.
tern_status tern_team_open(tern_team **out, int n_threads, tern_error *err);
void tern_team_close(tern_team *team); // what tern_team_open gave; NULL is allowed
void tern_team_run(const tern_team *team, tern_team_fn fn, void *ctx); // not from inside fn
// All threads of the team must arrive before any continues; what they wrote before is visible to
// all afterwards.
void tern_team_barrier(const tern_team *team);

// Claims the next block of [0, n): *first, *last. False if nothing is left. The counter must be 0
// at the start of a step.
static inline bool tern_team_claim(atomic_size_t *counter, size_t n, size_t block, size_t *first,
                                   size_t *last) {
    size_t at = atomic_fetch_add_explicit(counter, block, memory_order_relaxed);
    if (at >= n) return false;
    *first = at;
    *last = at + block < n ? at + block : n;
    return true;
}

// The same in blocks that begin large and shrink: a quarter of the rest for two threads, an eighth
// for four, but at least `least` and a multiple of `granule`. Long blocks stream memory better,
// short ones let the threads finish together.
typedef struct tern_claim {
    size_t n, granule, least;
} tern_claim;
static inline bool tern_team_claim_guided(const tern_team *team, atomic_size_t *counter,
                                          tern_claim of, size_t *first, size_t *last) {
    const size_t n = of.n;
    size_t at = atomic_load_explicit(counter, memory_order_relaxed), block;
    do {
        if (at >= n) return false;
        block = (n - at) / (2 * (size_t)team->n_threads) / of.granule * of.granule;
        if (block < of.least) block = of.least;
        if (block > n - at) block = n - at;
    } while (!atomic_compare_exchange_weak_explicit(counter, &at, at + block, memory_order_relaxed,
                                                    memory_order_relaxed));
    *first = at;
    *last = at + block;
    return true;
}

#endif
