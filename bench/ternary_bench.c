// Speed of the ternary kernels, against what the machine can do.
//
//     ternary_bench [THREADS [VARIANT [TOKENS...]]]
//
// With numbers of tokens: both kernels at each of them, on weights that come from memory, as those
// of a model do. Where the one overtakes the other is where gemv_tokens belongs.
//
// Decode (matrix x vector) is measured over matrices far larger than the caches, next to a plain
// read of as many bytes; prompts (matrix x matrix) next to a loop of multiply-adds that touches no
// memory. Measurements to be compared are interleaved. Other programs on the machine only ever make
// things slower, and some take the processor away for milliseconds: so a pass is timed in pieces of
// a fraction of that, each piece counts with the best of several rounds, and a thread's time is the
// sum of its pieces.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "kernels/cpu/ternary/ternary_kernels.h"

enum { MAX_THREADS = 64, ROUNDS = 9, PIECE = 1 << 20 }; // PIECE: bytes of weights timed at once

static int n_threads = 1;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *must(void *block) {
    if (block) return block;
    fprintf(stderr, "ternary_bench: out of memory\n");
    exit(1);
}
static void *alloc(size_t bytes) { return must(tern_alloc(TERN_MEM_MISC, bytes)); }

// ---- Threads -----------------------------------------------------------------------------------

typedef struct task {
    void (*run)(const struct task *task, int thread);
    const void *user;
    pthread_barrier_t *start;
} task;

typedef struct worker {
    const task *task;
    int index;
} worker;

static void *enter(void *arg) {
    const worker *w = arg;
    pthread_barrier_wait(w->task->start);
    w->task->run(w->task, w->index);
    return NULL;
}

// Runs run(task, thread) on all threads at once.
static void run_all(void (*run)(const task *, int), const void *user) {
    pthread_barrier_t start;
    pthread_t threads[MAX_THREADS];
    worker workers[MAX_THREADS];
    task t = {run, user, &start};
    pthread_barrier_init(&start, NULL, (unsigned)n_threads);
    for (int i = 1; i < n_threads; i++) {
        workers[i] = (worker){&t, i};
        if (pthread_create(&threads[i], NULL, enter, &workers[i])) exit(1);
    }
    pthread_barrier_wait(&start);
    run(&t, 0);
    for (int i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
}

// Thread i's part of n, in multiples of block.
static size_t part(size_t n, size_t block, int i) {
    size_t blocks = (n + block - 1) / block;
    return tern_min_size(n, blocks * (size_t)i / (size_t)n_threads * block);
}

// ---- Timing in pieces --------------------------------------------------------------------------

typedef struct pass {
    // Works on [first, last) of n units.
    void (*work)(const void *user, int thread, size_t first, size_t last);
    const void *user;
    size_t n, block, piece; // a thread's part begins at a multiple of block; units timed at once
    double *best;           // [n / piece + 2 * MAX_THREADS]
} pass;

static void pass_part(const task *t, int thread) {
    const pass *p = t->user;
    size_t first = part(p->n, p->block, thread), last = part(p->n, p->block, thread + 1);
    double *best = p->best + first / p->piece + 2 * (size_t)thread;
    for (size_t i = first; i < last; i += p->piece, best++) {
        double begin = now();
        p->work(p->user, thread, i, tern_min_size(i + p->piece, last));
        double s = now() - begin;
        if (*best == 0 || s < *best) *best = s;
    }
}

static void pass_init(pass *p, void (*work)(const void *, int, size_t, size_t), const void *user,
                      size_t n, size_t block, size_t piece) {
    piece = (piece + block - 1) / block * block;
    *p = (pass){work, user, n, block, piece, NULL};
    p->best = alloc((n / piece + 2 * MAX_THREADS) * sizeof(double));
}

static void pass_run(pass *p) { run_all(pass_part, p); }

// Seconds that the slowest thread needs.
static double pass_end(pass *p) {
    double slowest = 0;
    for (int i = 0; i < n_threads; i++) {
        double *best = p->best + part(p->n, p->block, i) / p->piece + 2 * (size_t)i, sum = 0;
        size_t n = part(p->n, p->block, i + 1) - part(p->n, p->block, i);
        for (size_t k = 0; k < (n + p->piece - 1) / p->piece; k++) sum += best[k];
        if (sum > slowest) slowest = sum;
    }
    tern_free(p->best);
    return slowest;
}

// ---- Limits ------------------------------------------------------------------------------------

static volatile uint64_t sink;

static void read_bytes(const void *user, int thread, size_t first, size_t last) {
    const uint8_t *data = user;
    uint64_t sum[8] = {0};
    (void)thread;
    for (size_t i = first; i < last; i += 64)
        for (size_t k = 0; k < 8; k++) sum[k] += *(const uint64_t *)(data + i + 8 * k);
    for (size_t k = 0; k < 8; k++) sink += sum[k];
}

static void peak_loops(const void *user, int thread, size_t first, size_t last) {
    const tern_ternary_kernels *k = user;
    (void)thread;
    while (first++ < last) k->peak_loop();
}

static double peak_gmac(const tern_ternary_kernels *k) {
    enum { LOOPS = 64 };
    pass p;
    pass_init(&p, peak_loops, k, LOOPS, 1, 1);
    for (int i = 0; i < 3; i++) pass_run(&p);
    return (double)LOOPS * (double)k->peak_loop() / pass_end(&p) * 1e-9;
}

// ---- A matrix and its activations --------------------------------------------------------------

typedef struct job {
    const tern_ternary_kernels *k;
    tern_ternary_matrix w;
    tern_i8_rows x;
    void *prepared, *panels, *scratch[MAX_THREADS];
    float *out;
    uint8_t *repacked;
    size_t repacked_row_bytes;
} job;

static uint32_t random_u32(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 32);
}

static void fill_rows(tern_ternary_matrix *w, uint8_t *data) {
    int8_t *q = alloc(w->n_in);
    uint8_t *rows = alloc(64 * w->row_bytes);
    for (size_t r = 0; r < 64; r++) { // 64 different rows, repeated
        for (size_t i = 0; i < w->n_in; i++) q[i] = (int8_t)(random_u32() % 3) - 1;
        tern_ternary_pack_row(w->packing, q, w->n_in, rows + r * w->row_bytes);
    }
    for (size_t r = 0; r < w->n_rows; r++)
        memcpy(data + r * w->row_bytes, rows + r % 64 * w->row_bytes, w->row_bytes);
    w->data = data;
    tern_free(q), tern_free(rows);
}

static void job_init(job *j, const tern_ternary_kernels *k, tern_packing packing, size_t n_in,
                     size_t n_rows, size_t n_tokens) {
    *j = (job){.k = k};
    j->w = (tern_ternary_matrix){packing, NULL, n_in, n_rows, tern_ternary_row_bytes(packing, n_in),
                                 0.02f};
    fill_rows(&j->w, alloc(n_rows * j->w.row_bytes));
    j->x.n_tokens = n_tokens;
    j->x.stride = (n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD;
    j->x.q = alloc(n_tokens * j->x.stride);
    j->x.sum = alloc(n_tokens * sizeof *j->x.sum);
    j->x.inv_scale = alloc(n_tokens * sizeof *j->x.inv_scale);
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t i = 0; i < n_in; i++) {
            j->x.q[t * j->x.stride + i] = (int8_t)(random_u32() & 255);
            j->x.sum[t] += j->x.q[t * j->x.stride + i];
        }
    j->prepared = alloc(k->prepared_bytes(packing, n_in, n_tokens));
    k->prepare(packing, j->prepared, &j->x, n_in, 0, n_tokens);
    j->panels = alloc(k->panels_bytes(n_in, n_tokens));
    for (int i = 0; i < n_threads; i++) j->scratch[i] = alloc(k->gemm_scratch_bytes(n_in));
    j->out = alloc(n_tokens * n_rows * sizeof(float));
}

static void job_free(job *j) {
    tern_free((void *)j->w.data), tern_free(j->x.q), tern_free(j->x.sum);
    tern_free(j->x.inv_scale), tern_free(j->prepared), tern_free(j->panels), tern_free(j->out);
    for (int i = 0; i < n_threads; i++) tern_free(j->scratch[i]);
}

static void gemv(const void *user, int thread, size_t first, size_t last) {
    const job *j = user;
    (void)thread;
    const tern_product to = {first, last, j->out, j->w.n_rows, false};
    j->k->gemv(&j->w, &j->x, j->prepared, &to);
}

static void make_panels(const void *user, int thread, size_t first, size_t last) {
    const job *j = user;
    (void)thread;
    j->k->make_panels(j->panels, &j->x, j->w.n_in, first, last);
}

static void gemm(const void *user, int thread, size_t first, size_t last) {
    const job *j = user;
    const tern_product to = {first, last, j->out, j->w.n_rows, false};
    j->k->gemm(&j->w, &j->x, j->panels, j->scratch[thread], &to);
}

static void repack(const void *user, int thread, size_t first, size_t last) {
    const job *j = user;
    (void)thread;
    for (size_t r = first; r < last; r++)
        j->k->repack_row(j->repacked + r * j->repacked_row_bytes, j->w.data + r * j->w.row_bytes,
                         j->w.n_in);
}

// ---- Measurements ------------------------------------------------------------------------------

static void bench_gemv(const tern_ternary_kernels *k, tern_packing packing, size_t n_in) {
    const size_t n_rows = ((size_t)200 << 20) / tern_ternary_row_bytes(packing, n_in);
    enum { N = 8 };
    job j[N];
    pass read, p[N], packed;
    job_init(&j[0], k, packing, n_in, n_rows, N);
    const size_t row_bytes = j[0].w.row_bytes;
    const double gb = (double)(n_rows * row_bytes) * 1e-9;
    const double gweights = (double)n_rows * (double)n_in * 1e-9;
    pass_init(&read, read_bytes, j[0].w.data, n_rows * row_bytes, 4096, PIECE);
    for (int t = 0; t < N; t++) {
        j[t] = j[0];
        j[t].x.n_tokens = (size_t)t + 1;
        pass_init(&p[t], gemv, &j[t], n_rows, 16, PIECE / row_bytes);
    }
    for (int round = 0; round < ROUNDS; round++) {
        pass_run(&read);
        for (int t = 0; t < N; t++) pass_run(&p[t]);
    }
    printf("%-8s gemv %s-bit %zu: read %.1f GB/s;", k->name, packing ? "1.6" : "2", n_in,
           gb / pass_end(&read));
    for (int t = 0; t < N; t++) {
        double s = pass_end(&p[t]);
        printf(" %d: %.1f GB/s %.0f GMAC/s%s", t + 1, gb / s, gweights * (t + 1) / s,
               t + 1 < N ? "," : "\n");
    }
    if (packing == TERN_PACK_2BIT) {
        j[0].repacked_row_bytes = tern_ternary_row_bytes(TERN_PACK_1_6BIT, n_in);
        j[0].repacked = alloc(n_rows * j[0].repacked_row_bytes);
        pass_init(&packed, repack, &j[0], n_rows, 16, PIECE / row_bytes);
        for (int round = 0; round < 3; round++) pass_run(&packed);
        printf("%-8s repack %zu: %.1f Gw/s\n", k->name, n_in, gweights / pass_end(&packed));
        tern_free(j[0].repacked);
    }
    job_free(&j[0]);
}

static void bench_gemm(const tern_ternary_kernels *k, tern_packing packing, size_t n_in,
                       size_t n_rows, size_t n_tokens, double peak) {
    job j;
    pass panels, product;
    job_init(&j, k, packing, n_in, n_rows, n_tokens);
    pass_init(&panels, make_panels, &j, n_tokens, k->gemm_token_block(n_tokens), n_tokens);
    pass_init(&product, gemm, &j, n_rows, k->gemm_row_block, k->gemm_row_block);
    for (int round = 0; round < ROUNDS; round++) {
        pass_run(&panels);
        pass_run(&product);
    }
    double seconds = pass_end(&product);
    double gmac = (double)n_rows * (double)n_in * (double)n_tokens / seconds * 1e-9;
    printf("%-8s gemm %s-bit %5zu x %5zu x %4zu: %.1f GMAC/s", k->name, packing ? "1.6" : "2", n_in,
           n_rows, n_tokens, gmac);
    printf(" (%.1f%% of %.1f), panels %.3f ms of %.3f ms\n", 100 * gmac / peak, peak,
           pass_end(&panels) * 1e3, seconds * 1e3);
    job_free(&j);
}

// Both kernels over weights that do not fit into caches. Rounds are interleaved.
static void bench_tokens(const tern_ternary_kernels *k, tern_packing packing, size_t n_in,
                         int n_counts, char **counts, double peak) {
    enum { MOST = 70 };
    const size_t n_rows = ((size_t)80 << 20) / tern_ternary_row_bytes(packing, n_in) / 64 * 64;
    static job jobs[MOST];
    static pass few[MOST], many[MOST];
    if (n_counts > MOST) n_counts = MOST;
    for (int i = 0; i < n_counts; i++) {
        const size_t n_tokens = (size_t)atoi(counts[i]);
        if (i == 0) job_init(&jobs[i], k, packing, n_in, n_rows, MOST);
        jobs[i] = jobs[0];
        jobs[i].x.n_tokens = n_tokens < 1 || n_tokens > MOST ? MOST : n_tokens;
        // Pieces of a fraction of a millisecond, but not so short that claiming them counts.
        const size_t piece = n_tokens < 8 ? 512 : 128;
        pass_init(&few[i], gemv, &jobs[i], n_rows, 64, piece);
        pass_init(&many[i], gemm, &jobs[i], n_rows, 64, piece);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n_counts; i++) {
            k->make_panels(jobs[i].panels, &jobs[i].x, n_in, 0, jobs[i].x.n_tokens);
            pass_run(&few[i]);
            pass_run(&many[i]);
        }
    printf("%-8s %s-bit %zu, tokens: gemv and gemm in %% of %.0f GMAC/s\n", k->name,
           packing ? "1.6" : "2", n_in, peak);
    for (int i = 0; i < n_counts; i++) {
        const double work = (double)n_rows * (double)n_in * (double)jobs[i].x.n_tokens * 1e-9;
        printf(" %zu: %.1f %.1f;", jobs[i].x.n_tokens, 100 * work / pass_end(&few[i]) / peak,
               100 * work / pass_end(&many[i]) / peak);
    }
    putchar('\n');
    job_free(&jobs[0]);
}

int main(int argc, char **argv) {
    static const size_t shapes[][2] = {{2560, 2560}, {2560, 640}, {2560, 6912}, {6912, 2560}};
    const char *names[8];
    size_t n = tern_cpu_kernels_list(names);
    if (argc > 1) n_threads = atoi(argv[1]);
    if (n_threads < 1 || n_threads > MAX_THREADS) n_threads = 1;
    for (size_t v = 0; v < n; v++) {
        tern_cpu_kernels kernels;
        if (argc > 2 ? strcmp(names[v], argv[2]) != 0 : v == 0) continue;
        if (!tern_cpu_kernels_select(names[v], &kernels)) return 1;
        for (int i = 0; argc > 3 && i < 4; i++)
            bench_tokens(kernels.t, i % 2 ? TERN_PACK_1_6BIT : TERN_PACK_2BIT, i < 2 ? 2560 : 6912,
                         argc - 3, argv + 3, peak_gmac(kernels.t));
        if (argc > 3) continue;
        for (int packing = 0; packing < 2; packing++) {
            bench_gemv(kernels.t, (tern_packing)packing, 2560);
            bench_gemv(kernels.t, (tern_packing)packing, 6912);
        }
        double peak = peak_gmac(kernels.t);
        for (int packing = 0; packing < 2; packing++)
            for (size_t i = 0; i < 4; i++)
                bench_gemm(kernels.t, (tern_packing)packing, shapes[i][0], shapes[i][1], 512, peak);
        for (size_t tokens = 8; tokens < 130; tokens = tokens * 5 / 3)
            bench_gemm(kernels.t, TERN_PACK_1_6BIT, 2560, 2560, tokens, peak);
    }
    return 0;
}
