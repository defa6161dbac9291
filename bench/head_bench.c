// Times the exact head at the shape of BitNet b1.58 2B-4T, F16 rows ~ N(0, 0.7), normalised x:
// build/head_bench [-t THREADS] [K ...]. "stands out": one row is moved towards x, like the best
// token of a trained model; "plain" reads the same bytes as the first round and does nothing else.
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/cpu/head/head.h"

enum { N_ROWS = 128256, N_IN = 2560, N_QUERIES = 8, N_MOST = 32, N_RUNS = 12, MAX_K = 1024 };

// One thread is timed by the processor time it uses, which busy neighbours disturb less.
static clockid_t which_clock = CLOCK_MONOTONIC;

static double now(void) {
    struct timespec t;
    clock_gettime(which_clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t state = 1;
static float gauss(void) { // sum of 12 uniform numbers
    float sum = -6;
    for (int i = 0; i < 3; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        for (int j = 0; j < 4; j++) sum += (float)(state >> 16 * j & 0xFFFF) * 0x1p-16f;
    }
    return sum;
}

typedef struct bench {
    const tern_head_matrix *w;
    const tern_float_kernels *f;
    tern_head *h;
    tern_head_query *q;
    const float *x;
    float *y;   // of all rows
    size_t n_x; // vectors at once
    int32_t k, *ids;
    float *values;
    int n_threads;
    bool more;
    atomic_size_t counter;
    atomic_uint_fast64_t sum;
    pthread_barrier_t barrier;
    double build, round[4], query, full, plain; // seconds, best of all
} bench;

static bool claim(bench *b, size_t n, size_t block, size_t *first, size_t *last) {
    *first = atomic_fetch_add(&b->counter, block);
    *last = *first + block < n ? *first + block : n;
    return *first < n;
}

static void wait_all(bench *b) { pthread_barrier_wait(&b->barrier); }

static void keep_best(double *best, double seconds) {
    if (*best == 0 || seconds < *best) *best = seconds;
}

static void query_once(bench *b, int thread) {
    double start = now(), begin = start;
    int round = 0;
    if (thread == 0) tern_head_begin(b->q, b->x, b->n_x, b->k, NULL);
    do {
        if (thread == 0) atomic_store(&b->counter, 0);
        wait_all(b);
        size_t n = tern_head_n_items(b->q), block = tern_head_block(b->q);
        for (size_t first, last; claim(b, n, block, &first, &last);)
            tern_head_work(b->q, first, last);
        wait_all(b);
        if (thread == 0) {
            b->more = tern_head_next(b->q, b->ids, b->values);
            keep_best(&b->round[round++], now() - begin);
            begin = now();
        }
        wait_all(b);
    } while (b->more);
    if (thread == 0) keep_best(&b->query, now() - start);
}

static void full_once(bench *b, int thread) {
    double begin = now();
    const tern_head_matrix *w = b->w;
    if (thread == 0) atomic_store(&b->counter, 0);
    wait_all(b);
    for (size_t first, last; claim(b, w->n_rows, 256, &first, &last);)
        b->f->matvec(&(tern_matvec_args){b->y + first, b->x,
                                         (const uint8_t *)w->data + first * w->row_bytes, w->type,
                                         w->row_bytes, last - first, w->n_in, 1, false});
    wait_all(b);
    if (thread == 0) keep_best(&b->full, now() - begin);
}

// Reads as many bytes of W as the first round reads.
static void plain_once(bench *b, int thread) {
    double begin = now();
    size_t n = tern_head_screen_bytes(b->h) / 8;
    const uint64_t *data = b->w->data;
    uint64_t sum = 0;
    if (thread == 0) atomic_store(&b->counter, 0);
    wait_all(b);
    for (size_t first, last; claim(b, n, 1 << 15, &first, &last);)
        for (size_t i = first; i < last; i++) sum += data[i];
    atomic_fetch_add(&b->sum, sum);
    wait_all(b);
    if (thread == 0) keep_best(&b->plain, now() - begin);
}

static void build_all(bench *b, int thread) {
    void *scratch = tern_alloc(TERN_MEM_MISC, tern_head_build_scratch_bytes(b->h));
    if (!scratch) abort();
    double begin = now();
    wait_all(b);
    for (size_t first, last; claim(b, b->w->n_rows, 64, &first, &last);)
        tern_head_build(b->h, first, last, scratch);
    wait_all(b);
    if (thread == 0) b->build = now() - begin;
    tern_free(scratch);
}

typedef struct worker {
    bench *b;
    int thread;
    void (*run)(bench *b, int thread);
    int n_runs;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    for (int i = 0; i < w->n_runs; i++) w->run(w->b, w->thread);
    return NULL;
}

static void run_team(bench *b, void (*run)(bench *, int), int n_runs) {
    pthread_t threads[64];
    worker workers[64];
    pthread_barrier_init(&b->barrier, NULL, (unsigned)b->n_threads);
    atomic_store(&b->counter, 0);
    for (int i = 0; i < b->n_threads; i++) {
        workers[i] = (worker){b, i, run, n_runs};
        if (i > 0) pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    work(&workers[0]);
    for (int i = 1; i < b->n_threads; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&b->barrier);
}

static void measure(bench *b, const char *what, const float *x, int32_t k) {
    tern_head_stats sum = {0};
    memset(b->round, 0, sizeof b->round);
    b->query = 0;
    b->k = k;
    for (int i = 0; i < N_QUERIES; i++) {
        b->x = x + i * N_IN;
        run_team(b, query_once, N_RUNS);
        tern_head_stats s = tern_head_query_stats(b->q, 0);
        for (int j = 0; j < 2; j++) sum.n_refined[j] += s.n_refined[j] / N_QUERIES;
        sum.n_exact += s.n_exact;
        sum.bytes += s.bytes / N_QUERIES;
    }
    double ms = 1e3, mb = 1e-6 * (double)sum.bytes;
    printf("%-12s k %3d: %6.2f ms (rounds %.2f %.3f %.2f), %.1f MB, %.1f GB/s; rows with 5 bits "
           "%zu, 6 bits %zu, all %.1f\n",
           what, k, ms * b->query, ms * b->round[0], ms * b->round[1], ms * b->round[2], mb,
           mb / (ms * b->query), sum.n_refined[0], sum.n_refined[1],
           (double)sum.n_exact / N_QUERIES);
}

// Several vectors at once, k = 1.
static void measure_several(bench *b, const char *what, const float *x) {
    b->k = 1;
    b->x = x;
    printf("%-12s", what);
    for (b->n_x = 1; b->n_x <= N_MOST; b->n_x = b->n_x < 8 ? b->n_x + 1 : b->n_x * 2) {
        memset(b->round, 0, sizeof b->round);
        b->query = 0;
        run_team(b, query_once, N_RUNS);
        printf("%s%zu: %.2f ms (%.2f + %.2f)", b->n_x > 1 ? ", " : " vectors ", b->n_x,
               1e3 * b->query, 1e3 * b->round[0], 1e3 * b->round[2]);
    }
    putchar('\n');
    b->n_x = 1;
}

static void make_x(float *x, const uint16_t *rows) {
    for (int i = 0; i < N_MOST; i++, x += N_IN) {
        double squares = 0;
        for (size_t j = 0; j < N_IN; j++) {
            x[j] = gauss() + (rows ? 0.5f * tern_f16_to_f32(rows[(size_t)i * 999 * N_IN + j]) : 0);
            squares += (double)x[j] * x[j];
        }
        for (size_t j = 0; j < N_IN; j++) x[j] /= (float)sqrt(squares / N_IN);
    }
}

int main(int argc, char **argv) {
    static float x[2][N_MOST * N_IN], values[MAX_K];
    static int32_t ids[MAX_K];
    tern_cpu_kernels kernels;
    tern_error err;
    bench b = {.n_threads = 1, .n_x = 1, .ids = ids, .values = values};
    const char *at_most = getenv("TERN_CPU_FEATURES");
    int arg = 1;
    if (argc > 2 && !strcmp(argv[1], "-t")) b.n_threads = atoi(argv[2]), arg = 3;
    if (b.n_threads < 1 || b.n_threads > 64 || !tern_cpu_kernels_select(at_most, &kernels))
        return 1;
    if (b.n_threads == 1) which_clock = CLOCK_PROCESS_CPUTIME_ID;
    uint16_t *rows = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)N_ROWS * N_IN, sizeof *rows);
    b.y = tern_alloc_array(TERN_MEM_MISC, N_ROWS, sizeof *b.y);
    if (!rows || !b.y) return 1;
    for (size_t i = 0; i < (size_t)N_ROWS * N_IN; i++) rows[i] = tern_f32_to_f16(0.7f * gauss());
    make_x(x[0], NULL);
    make_x(x[1], rows);
    tern_head_matrix w = {TERN_DTYPE_F16, rows, N_IN * sizeof *rows, N_ROWS, N_IN, 1};
    b.w = &w;
    b.f = kernels.f;
    b.x = x[0];
    if (tern_head_create(&b.h, &w, &kernels, &err) ||
        tern_head_query_create(&b.q, b.h, N_MOST, &err))
        return 1;
    run_team(&b, build_all, 1);
    run_team(&b, full_once, N_RUNS);
    run_team(&b, plain_once, N_RUNS);
    double screen = (double)tern_head_screen_bytes(b.h);
    printf("%s, %d threads: copy of %.0f MB built in %.3f s; all rows in full %.2f ms; plain read "
           "of the first round's %.1f MB %.2f ms (%.1f GB/s)\n",
           kernels.name, b.n_threads, 1e-6 * (double)tern_head_bytes(b.h), b.build, 1e3 * b.full,
           1e-6 * screen, 1e3 * b.plain, 1e-9 * screen / b.plain);
    do {
        int32_t k = arg < argc ? atoi(argv[arg]) : 1;
        if (k < 1 || k > MAX_K) return 1;
        measure(&b, "gaussian", x[0], k);
        measure(&b, "stands out", x[1], k);
    } while (++arg < argc);
    measure_several(&b, "gaussian", x[0]);
    measure_several(&b, "stands out", x[1]);
    tern_head_query_free(b.q);
    tern_head_free(b.h);
    tern_free(b.y);
    tern_free(rows);
}
