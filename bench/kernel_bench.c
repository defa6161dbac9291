// Times the float kernels: `make bench-kernels`, then build/kernel_bench [-t THREADS] [PART ...].
//
// Shapes are those of BitNet b1.58 2B-4T. Matrices are larger than any cache; each thread has its
// own rows, as in the engine. Best of several runs; GB/s counts the bytes of the weights or of the
// cache, GMAC/s the multiplications. "calls" has each kernel of the table once more, in all its
// forms, on a row in the cache.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "kernels/cpu/float/checks/float_calls.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/kernels.h"

enum { MAX_THREADS = 64, N_RUNS = 5 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct job {
    const tern_float_kernels *k;
    const tern_gemm_kernels *g;
    void (*run)(const struct job *job, int thread, int n_threads);
    tern_dtype type;
    size_t n_rows, n_in, n_tokens, first_pos;
    float *x, *y;
    void *w;
    size_t row_bytes;
    const tern_page *pages;
    double bytes, macs;
} job;

typedef struct worker {
    const job *j;
    int thread, n_threads;
    pthread_barrier_t *start;
    double seconds;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    w->seconds = 1e9;
    for (int i = 0; i < N_RUNS; i++) {
        pthread_barrier_wait(w->start);
        double begin = now();
        w->j->run(w->j, w->thread, w->n_threads);
        pthread_barrier_wait(w->start);
        double took = now() - begin;
        if (took < w->seconds) w->seconds = took;
    }
    return NULL;
}

static void measure(const char *what, const job *j, int n_threads) {
    pthread_barrier_t start;
    pthread_t threads[MAX_THREADS];
    worker workers[MAX_THREADS];
    pthread_barrier_init(&start, NULL, (unsigned)n_threads);
    for (int i = 0; i < n_threads; i++) {
        workers[i] = (worker){j, i, n_threads, &start, 0};
        if (i && pthread_create(&threads[i], NULL, work, &workers[i])) exit(1);
    }
    work(&workers[0]);
    for (int i = 1; i < n_threads; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    double s = workers[0].seconds;
    printf("| %-8s | %-31s | %2d | %9.3f | %7.2f | %7.2f |\n", j->k->name, what, n_threads, s * 1e3,
           j->bytes / s * 1e-9, j->macs / s * 1e-9);
    fflush(stdout);
}

// The thread's share of n, in multiples of block.
static void share(size_t n, size_t block, int thread, int n_threads, size_t *first, size_t *last) {
    size_t blocks = (n + block - 1) / block, t = (size_t)thread, all = (size_t)n_threads;
    *first = blocks * t / all * block;
    *last = blocks * (t + 1) / all * block;
    if (*last > n) *last = n;
}

static void *buffer(size_t bytes) {
    uint8_t *p = tern_alloc(TERN_MEM_MISC, bytes);
    if (!p) {
        fprintf(stderr, "kernel_bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static float *numbers(size_t n) {
    float *x = buffer(n * sizeof *x);
    uint32_t seed = 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1;
    }
    return x;
}

// ---- matrix x vector ---------------------------------------------------------------------------

static void run_matvec(const job *j, int thread, int n_threads) {
    size_t first, last;
    share(j->n_rows, 16, thread, n_threads, &first, &last);
    const uint8_t *w = (const uint8_t *)j->w + first * j->row_bytes;
    j->k->matvec(&(tern_matvec_args){j->y + first, j->x, w, j->type, j->row_bytes, last - first,
                                     j->n_in, 1, false});
}

static void bench_matvec(const tern_cpu_kernels *kernels, int n_threads) {
    const tern_float_kernels *k = kernels->f;
    static const tern_dtype types[] = {TERN_DTYPE_F16,  TERN_DTYPE_Q6_K, TERN_DTYPE_Q8_0,
                                       TERN_DTYPE_Q4_0, TERN_DTYPE_Q4_K, TERN_DTYPE_Q5_K,
                                       TERN_DTYPE_BF16, TERN_DTYPE_F32};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        job j = {.k = k, .run = run_matvec, .type = types[t], .n_in = 2560};
        uint64_t row_bytes;
        char what[64];
        j.n_rows = types[t] == TERN_DTYPE_F32 ? 32064 : 128256;
        if (!strcmp(k->name, "scalar")) j.n_rows /= 16;
        tern_dtype_bytes(types[t], j.n_in, j.n_in, &row_bytes);
        j.row_bytes = row_bytes;
        j.x = numbers(j.n_in);
        j.y = buffer(j.n_rows * sizeof *j.y);
        j.w = buffer(j.n_rows * j.row_bytes);
        // One encoded row, many times.
        tern_dtype_encode(types[t], j.x, j.n_in, j.w);
        for (size_t r = 1; r < j.n_rows; r++) {
            memcpy((uint8_t *)j.w + r * j.row_bytes, j.w, j.row_bytes);
        }
        j.bytes = (double)j.n_rows * (double)j.row_bytes;
        j.macs = (double)j.n_rows * (double)j.n_in;
        snprintf(what, sizeof what, "matvec %s %zux%zu", tern_dtype_name(types[t]), j.n_rows,
                 j.n_in);
        measure(what, &j, n_threads);
        tern_free(j.x), tern_free(j.y), tern_free(j.w);
    }
}

// ---- matmul ------------------------------------------------------------------------------------

static void run_matmul(const job *j, int thread, int n_threads) {
    size_t first, last;
    share(j->n_rows, 48, thread, n_threads, &first, &last);
    for (size_t r = first; r < last; r += 48) { // a block of rows at a time, as when decoded
        size_t n = last - r < 48 ? last - r : 48;
        j->k->matmul(&(tern_matmul_args){j->y + r, j->x, (const float *)j->w + r * j->n_in,
                                         j->n_rows, j->n_in, j->n_tokens, n, j->n_in, false});
    }
}

static void bench_matmul(const tern_cpu_kernels *kernels, int n_threads) {
    const tern_float_kernels *k = kernels->f;
    static const size_t n_tokens[] = {1, 4, 64, 512};
    size_t cut = !strcmp(k->name, "scalar") ? 16 : 1;
    for (size_t t = 0; t < 4; t++) {
        job j = {.k = k, .run = run_matmul, .n_in = 2560, .n_rows = 6912 / cut};
        char what[64];
        j.n_tokens = n_tokens[t];
        j.x = numbers(j.n_in * j.n_tokens);
        j.w = numbers(j.n_in * j.n_rows);
        j.y = buffer(j.n_rows * j.n_tokens * sizeof *j.y);
        j.bytes = (double)(j.n_rows * j.n_in * sizeof(float));
        j.macs = (double)j.n_rows * (double)j.n_in * (double)j.n_tokens;
        snprintf(what, sizeof what, "matmul %zux%zux%zu", j.n_tokens, j.n_rows, j.n_in);
        measure(what, &j, n_threads);
        tern_free(j.x), tern_free(j.y), tern_free(j.w);
    }
}

// ---- attention ---------------------------------------------------------------------------------

enum { HEAD_DIM = 128, N_KV_HEADS = 5, N_GROUP = 4, N_LAYERS = 30 };

// x: queries, y: output and scratch. A page has the keys, then values, of all layers and heads.
static void run_attention(const job *j, int thread, int n_threads) {
    size_t head_bytes = tern_kv_head_bytes(j->type, HEAD_DIM, TERN_PAGE_POSITIONS);
    size_t stride = N_KV_HEADS * N_GROUP * HEAD_DIM;
    size_t block = j->n_tokens < 12 ? j->n_tokens : 12, blocks = (j->n_tokens + block - 1) / block;
    tern_attention_args a = {.row_stride = stride,
                             .n_heads = N_GROUP,
                             .head_dim = HEAD_DIM,
                             .pages = j->pages,
                             .kv_type = j->type,
                             .causal = true,
                             .scale = 0.088f};
    a.scratch = j->y + j->n_tokens * stride +
                (size_t)thread * ((tern_attention_scratch_floats(&a) + 15) / 16 * 16);
    for (size_t i = 0; i < N_LAYERS * N_KV_HEADS * blocks; i++) {
        if (i % (size_t)n_threads != (size_t)thread) continue;
        size_t head = i / blocks, t = i % blocks * block;
        a.k_offset = head * 2 * head_bytes;
        a.v_offset = a.k_offset + head_bytes;
        a.q = j->x + t * stride + head % N_KV_HEADS * N_GROUP * HEAD_DIM;
        a.out = j->y + t * stride + head % N_KV_HEADS * N_GROUP * HEAD_DIM;
        a.first_pos = j->first_pos + t;
        a.n_tokens = j->n_tokens - t < block ? j->n_tokens - t : block;
        j->k->attention(&a);
    }
}

static void bench_attention_shape(const tern_float_kernels *k, int n_threads, tern_dtype type,
                                  size_t n_tokens, size_t first_pos) {
    job j = {.k = k, .run = run_attention, .type = type, .n_tokens = n_tokens};
    size_t n_pos = first_pos + n_tokens, stride = N_KV_HEADS * N_GROUP * HEAD_DIM;
    size_t n_pages = (n_pos + TERN_PAGE_POSITIONS - 1) / TERN_PAGE_POSITIONS;
    size_t head_bytes = tern_kv_head_bytes(type, HEAD_DIM, TERN_PAGE_POSITIONS);
    size_t page_bytes = 2 * N_LAYERS * N_KV_HEADS * head_bytes + 64;
    tern_attention_args a = {.head_dim = HEAD_DIM};
    char what[64];
    j.first_pos = first_pos;
    j.x = numbers(n_tokens * stride);
    j.w = buffer(n_pages * page_bytes);
    tern_page *pages = buffer(n_pages * sizeof *pages);
    for (size_t b = 0; b < n_pages; b++) pages[b].memory = (uint8_t *)j.w + b * page_bytes;
    j.pages = pages;
    j.y = buffer((n_tokens * stride + MAX_THREADS * (tern_attention_scratch_floats(&a) + 16)) *
                 sizeof(float));
    float *kv = numbers(HEAD_DIM);
    for (size_t h = 0; h < N_LAYERS * N_KV_HEADS; h++) {
        for (size_t p = 0; p < n_pos; p++) {
            uint8_t *keys = pages[p / TERN_PAGE_POSITIONS].memory + h * 2 * head_bytes;
            k->kv_store(&(tern_kv_store_args){keys, keys + head_bytes, kv, kv, type,
                                              p % TERN_PAGE_POSITIONS, HEAD_DIM});
        }
    }
    for (size_t t = 0; t < n_tokens; t++) j.macs += (double)(first_pos + t + 1);
    j.macs *= 2.0 * HEAD_DIM * N_KV_HEADS * N_GROUP * N_LAYERS;
    j.bytes = (double)n_pages * (double)page_bytes;
    snprintf(what, sizeof what, "attention %s %zu tokens at %zu", tern_dtype_name(type), n_tokens,
             first_pos);
    measure(what, &j, n_threads);
    tern_free(j.x), tern_free(j.w), tern_free(j.y), tern_free(pages), tern_free(kv);
}

static void bench_attention(const tern_cpu_kernels *kernels, int n_threads) {
    const tern_float_kernels *k = kernels->f;
    static const tern_dtype types[] = {TERN_DTYPE_F16, TERN_DTYPE_F32, TERN_DTYPE_Q8_0,
                                       TERN_DTYPE_Q4_0};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (strcmp(k->name, "scalar")) {
            bench_attention_shape(k, n_threads, types[t], 512, 0);
            bench_attention_shape(k, n_threads, types[t], 4, 2048);
        }
        bench_attention_shape(k, n_threads, types[t], 1, 2048);
    }
}

// ---- every kernel of the table -----------------------------------------------------------------

enum { N_CALLS = 2000 };

// x: float_call_data; y: what each thread writes, then its scratch; first_pos: the form; w: the row
// of the table.
static void run_call(const job *j, int thread, int n_threads) {
    const float_call_data *d = (const void *)j->x;
    const float_call *c = j->w;
    float *y = j->y + (size_t)thread * 2 * FLOAT_CALL_ROOM;
    const float_call_args a = {d->x, d->w, d, j->n_in, (int)j->first_pos, y, y + FLOAT_CALL_ROOM};
    for (int i = thread; i < N_CALLS; i += n_threads) c->call(j->k, &a);
}

// GB/s: of what is written, alone. The row stays in the cache.
static void bench_calls(const tern_cpu_kernels *kernels, int n_threads) {
    float *y = buffer((size_t)n_threads * 2 * FLOAT_CALL_ROOM * sizeof *y);
    float_call_data *d = buffer(sizeof *d);
    float *x = numbers(FLOAT_CALL_NUMBERS);
    memcpy(d->x, x, sizeof d->x), memcpy(d->w, x, sizeof d->w);
    float_call_data_derive(d);
    for (size_t i = 0; i < FLOAT_CALL_KERNELS; i++) {
        const float_call *c = &float_calls[i];
        for (int form = 0; float_call_is_there(c, kernels->f) && form < c->n_forms; form++) {
            job j = {
                .k = kernels->f, .run = run_call, .n_in = 2560, .x = (float *)(void *)d, .y = y};
            char what[64];
            j.first_pos = (size_t)form;
            j.w = (void *)(uintptr_t)c;
            const float_call_args a = {d->x, d->w, d, j.n_in, form, y, y + FLOAT_CALL_ROOM};
            const float_written written = c->call(j.k, &a);
            j.bytes = (double)(written.n_floats * sizeof(float) + written.n_bytes) * N_CALLS;
            snprintf(what, sizeof what, "%dx %s %s", N_CALLS, c->name, c->forms[form]);
            measure(what, &j, n_threads);
        }
    }
    tern_free(x), tern_free(y), tern_free(d);
}

// ---- layers with a fixed state -----------------------------------------------------------------

// Those of Qwen3.5 0.8B: 18 layers, whose rows are q, k and v of 16 heads.
enum { DELTA_DIM = 128, DELTA_HEADS = 16, DELTA_LAYERS = 18, DELTA_COLS = 3 * 16 * 128, TAPS = 4 };

// x: rows of qkv, whose first numbers are a and b, too; y: output and scratch; w: states.
static void run_delta_net(const job *j, int thread, int n_threads) {
    size_t width = DELTA_HEADS * DELTA_DIM, out_floats = j->n_tokens * width;
    size_t scratch = (tern_delta_net_scratch_floats(DELTA_DIM) + 15) / 16 * 16;
    tern_delta_net_args a = {.a = j->x,
                             .b = j->x + 16,
                             .stride = DELTA_COLS,
                             .out_stride = width,
                             .gate_stride = DELTA_COLS,
                             .n_rows = j->n_tokens,
                             .dk = DELTA_DIM,
                             .dv = DELTA_DIM,
                             .A = -0.5f,
                             .eps = 1e-6f,
                             .state_stride = DELTA_DIM,
                             .scratch = j->y + out_floats + (size_t)thread * scratch};
    for (size_t i = 0; i < DELTA_HEADS * DELTA_LAYERS; i++) {
        if (i % (size_t)n_threads != (size_t)thread) continue;
        a.q = j->x + i % DELTA_HEADS * DELTA_DIM;
        a.k = a.q + width;
        a.v = a.k + width;
        a.out = j->y + i % DELTA_HEADS * DELTA_DIM;
        a.state = (float *)j->w + i * DELTA_DIM * DELTA_DIM;
        j->k->delta_net(&a);
    }
}

// x: rows; y: output; w: states, then weights, of all layers.
static void run_depthwise_conv(const job *j, int thread, int n_threads) {
    tern_conv_args a = {.y = j->y,
                        .x = j->x,
                        .y_stride = DELTA_COLS,
                        .x_stride = DELTA_COLS,
                        .n_rows = j->n_tokens,
                        .n_cols = DELTA_COLS,
                        .n_taps = TAPS,
                        .act = TERN_ACT_SILU};
    share(DELTA_COLS, 256, thread, n_threads, &a.first, &a.last);
    for (size_t i = 0; i < DELTA_LAYERS; i++) {
        a.state = (float *)j->w + i * DELTA_COLS * (2 * TAPS - 1);
        a.w = a.state + DELTA_COLS * (TAPS - 1);
        j->k->conv(&a);
    }
}

static void bench_states(const tern_cpu_kernels *kernels, int n_threads) {
    size_t scratch = (tern_delta_net_scratch_floats(DELTA_DIM) + 15) / 16 * 16;
    size_t states = DELTA_LAYERS * DELTA_HEADS * DELTA_DIM * DELTA_DIM;
    for (size_t n = 512; n; n = n > 1 ? 1 : 0) {
        char what[64];
        job j = {.k = kernels->f, .run = run_delta_net, .n_tokens = n};
        if (n > 1 && !strcmp(j.k->name, "scalar")) continue;
        j.x = numbers(n * DELTA_COLS);
        j.y = numbers(n * DELTA_COLS + (size_t)n_threads * scratch);
        j.w = numbers(states);
        j.bytes = 2.0 * (double)(states * sizeof(float));
        j.macs = 4.0 * (double)(states * n);
        snprintf(what, sizeof what, "delta_net %zu tokens", n);
        measure(what, &j, n_threads);
        j.run = run_depthwise_conv;
        j.bytes = 2.0 * DELTA_LAYERS * DELTA_COLS * (double)(n * sizeof(float));
        j.macs = (double)DELTA_LAYERS * DELTA_COLS * TAPS * (double)n;
        snprintf(what, sizeof what, "conv + silu %zu tokens", n);
        measure(what, &j, n_threads);
        tern_free(j.x), tern_free(j.y), tern_free(j.w);
    }
}

// ---- products of training ----------------------------------------------------------------------

// x W^T, dy W, dy^T x of n_tokens rows and a weight of n_rows x n_in; 3: registers alone.
enum { GEMM_Y, GEMM_DX, GEMM_DW, GEMM_PEAK };

// x: the factors, y: result and scratch; first_pos: which product. Each thread has rows of C.
static void run_gemm(const job *j, int thread, int n_threads) {
    size_t form = j->first_pos, first, last, t = j->n_tokens, out = j->n_rows, in = j->n_in;
    for (uint64_t done = 0; form == GEMM_PEAK && done < (uint64_t)j->macs / (uint64_t)n_threads;)
        done += j->g->peak_loop();
    if (form == GEMM_PEAK) return;
    share(form == GEMM_DW ? out : t, j->g->rows, thread, n_threads, &first, &last);
    const float *b = j->x + t * (in > out ? in : out);
    size_t n = form == GEMM_Y ? out : in;
    cpu_gemm g = {.transpose_a = form == GEMM_DW,
                  .transpose_b = form == GEMM_Y,
                  .accumulate = form == GEMM_DW,
                  .m = last - first,
                  .n = n,
                  .b = b,
                  .ldb = in,
                  .c = j->y + first * n,
                  .ldc = n};
    g.lda = form == GEMM_Y ? in : out;
    g.k = form == GEMM_DW ? t : g.lda;
    g.a = j->x + (form == GEMM_DW ? first : first * g.lda);
    float *scratch = (float *)j->w + (size_t)thread * cpu_gemm_scratch_floats();
    if (g.m) cpu_gemm_run(j->g, &g, scratch);
}

static void bench_gemm_kernels(const char *name, const tern_gemm_kernels *g, int n_threads) {
    static const size_t shapes[][3] = {
        {4096, 256, 256}, {4096, 768, 256}, {4096, 256, 768}, {1024, 2560, 2560}};
    static const char *const forms[] = {"x W'", "dy W", "dy' x"};
    tern_float_kernels named = {.name = name};
    size_t cut = !strcmp(name, "scalar") ? 16 : 1;
    job j = {.k = &named, .g = g, .run = run_gemm, .first_pos = GEMM_PEAK, .macs = 2e10};
    if (cut > 1) j.macs = 1e9;
    measure("gemm, registers alone", &j, n_threads);
    j.w = buffer((size_t)n_threads * cpu_gemm_scratch_floats() * sizeof(float));
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++) {
        char what[64];
        const size_t *s = shapes[i / 3], most = s[1] > s[2] ? s[1] : s[2];
        j.n_tokens = s[0] / cut, j.n_rows = s[1], j.n_in = s[2], j.first_pos = i % 3;
        j.x = numbers((s[0] + most) * most + s[0] * most);
        j.y = buffer((s[0] + most) * most * sizeof(float));
        j.macs = (double)(j.n_tokens * j.n_rows * j.n_in);
        j.bytes = (double)(j.n_rows * j.n_in * sizeof(float));
        snprintf(what, sizeof what, "gemm %s %zux%zux%zu", forms[i % 3], j.n_tokens, j.n_rows,
                 j.n_in);
        measure(what, &j, n_threads);
        tern_free(j.x), tern_free(j.y);
    }
    tern_free(j.w);
}

static void bench_gemm(const tern_cpu_kernels *kernels, int n_threads) {
    bench_gemm_kernels(kernels->f->name, kernels->g, n_threads);
    if (cpu_gemm_bf16() && !strcmp(kernels->f->name, "avx512"))
        bench_gemm_kernels("bf16", cpu_gemm_bf16(), n_threads);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(const tern_cpu_kernels *k, int n_threads);
    } parts[] = {{"matvec", bench_matvec}, {"matmul", bench_matmul}, {"attention", bench_attention},
                 {"calls", bench_calls},   {"states", bench_states}, {"gemm", bench_gemm}};
    int n_threads = 1, first = 1;
    const char *only = NULL;
    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (!strcmp(argv[first], "-t"))
            n_threads = atoi(argv[first + 1]);
        else if (!strcmp(argv[first], "-k"))
            only = argv[first + 1];
        else
            break;
    }
    if ((first < argc && argv[first][0] == '-') || n_threads < 1 || n_threads > MAX_THREADS) {
        fprintf(stderr, "usage: kernel_bench [-t THREADS] [-k KERNELS] "
                        "[matvec|matmul|attention|calls|states|gemm ...]\n");
        return 2;
    }
    printf("| kernels  | what                            |  t |        ms |    GB/s |  GMAC/s |\n"
           "|----------|---------------------------------|----|-----------|---------|---------|\n");
    const char *names[8];
    size_t n = tern_cpu_kernels_list(names);
    for (size_t i = n; i-- > 0;) {
        tern_cpu_kernels k;
        if (only && strcmp(only, names[i])) continue;
        if (!tern_cpu_kernels_select(names[i], &k)) continue;
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            bool wanted = first == argc;
            for (int a = first; a < argc; a++) wanted |= !strcmp(argv[a], parts[p].name);
            if (wanted) parts[p].run(&k, n_threads);
        }
    }
    return 0;
}
