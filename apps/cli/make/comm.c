// The group of processes that `mpirun` started: build/tern-mpi is the command line with this file
// compiled for MPI; in build/tern there is no group.
#include "apps/cli/console/cli.h"
#include "tern_train.h"

#if TERN_MPI
#include <mpi.h>
#include <stdlib.h>

typedef struct group {
    MPI_Request *requests;
    size_t n, capacity;
} group;

static bool sum_begin(void *self, float *data, size_t n) {
    group *g = self;
    enum { PIECE = 1 << 24 }; // counts are int
    for (size_t at = 0; at < n; at += PIECE) {
        if (g->n == g->capacity) {
            g->capacity = 2 * g->capacity + 16;
            g->requests = must_alloc(g->requests, g->capacity, sizeof *g->requests);
        }
        int count = (int)(n - at < PIECE ? n - at : PIECE), done;
        if (MPI_Iallreduce(MPI_IN_PLACE, data + at, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                           &g->requests[g->n]) != MPI_SUCCESS)
            return false;
        g->n++;
        // Lets the pending sums progress while this process computes.
        if (MPI_Testall((int)g->n, g->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            return false;
        if (done) g->n = 0;
    }
    return true;
}

static bool sum_finish(void *self) {
    group *g = self;
    bool ok = MPI_Waitall((int)g->n, g->requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    g->n = 0;
    return ok;
}

// A process that fails takes the others down: they would wait for it for ever.
static void leave(int status, void *unused) {
    (void)unused;
    if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
}

const tern_comm *cli_comm(void) {
    static group g;
    static tern_comm comm = {.self = &g, .sum_begin = sum_begin, .sum_finish = sum_finish};
    if (comm.size == 0) {
        int level;
        MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
        MPI_Comm_rank(MPI_COMM_WORLD, &comm.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &comm.size);
        on_exit(leave, NULL);
    }
    return &comm;
}

#else

const tern_comm *cli_comm(void) { return NULL; }

#endif
