// Times training: `make build/train_bench`, then for example
//
//   build/train_bench webgpu -l 4 -d 256 -f 688 -h 8 -v 4096 -t 32768 -s 512 -r 10
//
// A BitNet decoder (-b 0: a plain float one) with random weights learns from random tokens:
// forward, backward, a step of the optimizer. Prints tokens/s and the floating-point operations of
// the linears and the attention (6 and 12 a weight or score and token, the causal half counted),
// then the time of each kind of kernel; on the CPU, also how near the products come to its peak.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/hash.h"
#include "kernels/webgpu/train/gpu_train.h"
#include "models/models.h"
#include "bench/train_cpu.h"

typedef struct options {
    int n_layers, n_embd, n_ff, n_heads, n_kv_heads, n_vocab, n_tokens, n_span, n_runs, n_threads;
    int bitnet, bf16;
} options;

typedef struct bench {
    options o;
    const tern_train_backend *backend;
    tern_trainer_device *device;
    tern_graph graph, update;
    tern_train_array **arrays, **update_arrays;
    tern_train_array *loss;
    tern_program *program, *optimizer;
    tern_train_batch batch;
    tern_error err;
} bench;

static float next_float(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

static tern_status build_graphs(bench *b) {
    const options *o = &b->o;
    tern_config c = {.n_vocab = o->n_vocab,
                     .n_layers = o->n_layers,
                     .n_embd = o->n_embd,
                     .n_ff = o->n_ff,
                     .n_heads = o->n_heads,
                     .n_kv_heads = o->n_kv_heads,
                     .head_dim = o->n_embd / o->n_heads,
                     .n_context = o->n_span,
                     .rms_eps = 1e-5,
                     .final_rms_eps = 1e-5,
                     .act = TERN_ACTIVATION_SILU,
                     .rope = {.n_rot = o->n_embd / o->n_heads, .halves = true, .base = 10000}};
    c.bitlinear = o->bitnet != 0;
    TERN_TRY(tern_build_decoder(&b->graph, &c, &b->err));
    TERN_TRY(tern_graph_train(&b->graph, &b->err));
    TERN_TRY(tern_graph_differentiate(&b->graph, NULL, &b->err));
    return tern_graph_optimizer(&b->graph, TERN_UPDATE_ADAMW, &b->update, &b->err);
}

static tern_status new_array(bench *b, const tern_value *v, uint32_t *seed,
                             tern_train_array **out) {
    uint64_t n = (uint64_t)v->rows * (uint64_t)v->cols;
    if (n == 0) return TERN_OK;
    TERN_TRY(b->backend->array_new(b->device, n, out, &b->err));
    if (v->kind != TERN_VALUE_WEIGHT) return TERN_OK;
    float *data = tern_alloc_array(TERN_MEM_MISC, n, sizeof *data);
    if (!data) return tern_fail_memory(&b->err, n * sizeof *data);
    for (uint64_t i = 0; i < n; i++) data[i] = v->rows == 1 ? 1 : 0.05f * next_float(seed);
    tern_status status = b->backend->write(*out, 0, n, data, &b->err);
    tern_free(data);
    return status;
}

static tern_status build_arrays(bench *b) {
    uint32_t seed = 1;
    const tern_graph *g = &b->graph, *u = &b->update;
    b->arrays = tern_alloc_array(TERN_MEM_MISC, g->n_values, sizeof *b->arrays);
    b->update_arrays = tern_alloc_array(TERN_MEM_MISC, u->n_values, sizeof *b->arrays);
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == TERN_VALUE_WEIGHT || g->values[v].kind == TERN_VALUE_STATE)
            TERN_TRY(new_array(b, &g->values[v], &seed, &b->arrays[v]));
    for (size_t v = 0; v < u->n_values; v++) {
        tern_vid same = tern_graph_find(g, u->values[v].name);
        if (same >= 0)
            b->update_arrays[v] = b->arrays[same];
        else
            TERN_TRY(new_array(b, &u->values[v], &seed, &b->update_arrays[v]));
    }
    b->loss = b->arrays[tern_graph_find(g, "loss")];
    return TERN_OK;
}

static tern_status make_batch(bench *b) {
    size_t n = (size_t)b->o.n_tokens;
    int32_t *rows = tern_alloc_array(TERN_MEM_MISC, 3 * n, sizeof *rows);
    if (!rows) return tern_fail_memory(&b->err, 3 * n * sizeof *rows);
    uint32_t seed = 5;
    for (size_t t = 0; t < n; t++) {
        float a = next_float(&seed), c = next_float(&seed);
        rows[t] = (int32_t)(a * a * c * c * (float)b->o.n_vocab) % b->o.n_vocab; // few are frequent
        rows[n + t] = (rows[t] * 7 + 3) % b->o.n_vocab;
        rows[2 * n + t] = (int32_t)t / b->o.n_span * b->o.n_span;
    }
    b->batch = (tern_train_batch){.n_tokens = b->o.n_tokens,
                                  .ids = rows,
                                  .targets = rows + n,
                                  .starts = rows + 2 * n,
                                  .loss_scale = 1.0f / (float)n,
                                  .rate = 1e-3f,
                                  .beta1 = 0.9f,
                                  .beta2 = 0.95f,
                                  .eps = 1e-8f,
                                  .decay = 0.1f,
                                  .clip = 1};
    return TERN_OK;
}

static tern_status prepare(bench *b) {
    double begin = tern_seconds();
    const tern_webgpu_desc webgpu = {.library = getenv("TERN_WEBGPU_LIB")};
    const tern_trainer_desc desc = {
        .n_threads = b->o.n_threads, .bf16 = b->o.bf16 != 0, .webgpu = &webgpu};
    TERN_TRY(b->backend->open(&b->device, &desc, &b->err));
    TERN_TRY(build_graphs(b));
    TERN_TRY(build_arrays(b));
    TERN_TRY(make_batch(b));
    double opened = tern_seconds();
    int32_t n = b->o.n_tokens, span = b->o.n_span;
    TERN_TRY(b->backend->compile(b->device, &b->graph, b->arrays, n, span, &b->program, &b->err));
    TERN_TRY(b->backend->compile(b->device, &b->update, b->update_arrays, n, span, &b->optimizer,
                                 &b->err));
    tern_program_bytes bytes = b->backend->program_bytes(b->program);
    printf("%s: opened in %.2f s, compiled in %.2f s, %.0f MB of temporaries\n",
           b->backend->describe(b->device), opened - begin, tern_seconds() - opened,
           (double)(bytes.own + bytes.shared) / 1e6);
    return TERN_OK;
}

static tern_status one_step(bench *b, int64_t step) {
    b->batch.step = step;
    TERN_TRY(b->backend->run(b->program, &b->batch, &b->err));
    return b->backend->run(b->optimizer, &b->batch, &b->err);
}

// Waits for everything that was submitted.
static tern_status read_loss(bench *b, float *loss) {
    TERN_TRY(b->backend->read(b->loss, 0, 1, loss, &b->err));
    float zero = 0;
    return b->backend->write(b->loss, 0, 1, &zero, &b->err);
}

static double flops_a_token(const bench *b) {
    double n = 0, d = b->o.n_embd;
    for (size_t i = 0; i < b->graph.n_values; i++) {
        const tern_value *v = &b->graph.values[i];
        if (v->kind == TERN_VALUE_WEIGHT && v->is_matrix) n += (double)v->rows * (double)v->cols;
    }
    return 6 * n + 12.0 * b->o.n_layers * d * b->o.n_span / 2;
}

// CRC-32 of all weights: equal runs have equal bits, on the CPU with any number of threads.
static uint32_t bits_of_weights(const bench *b) {
    uint32_t crc = 0;
    for (size_t v = 0; v < b->graph.n_values; v++) {
        const tern_value *w = &b->graph.values[v];
        const float *data = w->kind == TERN_VALUE_WEIGHT ? b->backend->host(b->arrays[v]) : NULL;
        if (data) crc = tern_crc32(crc, data, (size_t)w->rows * (size_t)w->cols * sizeof *data);
    }
    return crc;
}

static tern_status measure(bench *b) {
    float loss = 0;
    int64_t step = 1;
    for (int i = 0; i < 2; i++) TERN_TRY(one_step(b, step++)); // the first ones load and clear
    TERN_TRY(read_loss(b, &loss));
    double begin = tern_seconds();
    for (int i = 0; i < b->o.n_runs; i++) TERN_TRY(one_step(b, step++));
    double submitted = tern_seconds();
    TERN_TRY(read_loss(b, &loss));
    double seconds = (tern_seconds() - begin) / b->o.n_runs;
    double rate = b->o.n_tokens / seconds;
    printf("%.2f ms a step of %d tokens (%.2f on the host), %.0f tokens/s, %.3f TFLOP/s, "
           "mean loss %.3f\n",
           seconds * 1e3, b->o.n_tokens, (submitted - begin) / b->o.n_runs * 1e3, rate,
           rate * flops_a_token(b) * 1e-12, (double)loss / b->o.n_runs / b->o.n_tokens);
    if (b->backend == &tern_train_cpu)
        printf("weights after %d steps: CRC-32 %08x\n", b->o.n_runs + 2, bits_of_weights(b));
    return TERN_OK;
}

// ---- What a step is made of -----------------------------------------------------------------

typedef struct kind { // of kernel, or of step
    char name[48];
    int count;
    double seconds, flops;
} kind;
#define KINDS 64

typedef struct kinds {
    kind of[KINDS];
    double seconds;
} kinds;

static void add_kind(kinds *k, const char *name, double seconds, double flops) {
    int i = 0;
    while (i < KINDS - 1 && k->of[i].name[0] && strcmp(k->of[i].name, name) != 0) i++;
    snprintf(k->of[i].name, sizeof k->of[i].name, "%.47s", name);
    k->of[i].count++;
    k->of[i].seconds += seconds;
    k->of[i].flops += flops;
    k->seconds += seconds;
}

static int by_time(const void *a, const void *b) {
    double x = ((const kind *)a)->seconds, y = ((const kind *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

// peak: the device's peak operations a second, 0 if unknown.
static void print_kinds(kinds *k, double peak) {
    qsort(k->of, KINDS, sizeof *k->of, by_time);
    printf("%-36s %5s %9s %6s %8s%s\n", "kernel", "times", "ms", "%", "TFLOP/s",
           peak > 0 ? "  % of peak" : "");
    for (int i = 0; i < KINDS && k->of[i].seconds > 0; i++) {
        const kind *at = &k->of[i];
        printf("%-36s %5d %9.3f %6.1f", at->name, at->count, at->seconds * 1e3,
               100 * at->seconds / k->seconds);
        if (at->flops > 0) printf(" %8.3f", at->flops / at->seconds * 1e-12);
        if (at->flops > 0 && peak > 0) printf(" %10.0f", 100 * at->flops / at->seconds / peak);
        printf("\n");
    }
    printf("%-36s %5s %9.3f\n", "all", "", k->seconds * 1e3);
}

// ---- of the GPU --------------------------------------------------------------------------------

static double constant_of(const gpu_pipeline *p, const char *name) {
    for (int i = 0; i < p->n_constants; i++)
        if (strcmp(p->constants[i].name, name) == 0) return p->constants[i].value;
    return 0;
}

static void name_kernel(const gpu_train_step *s, char name[48]) {
    const char *entry = gpu_kernel_entry(s->what.kernel);
    if (s->flops > 0)
        snprintf(name, 48, "%s %s %gx%g", entry,
                 constant_of(&s->what, "A_BY_K") > 0   ? "dy'x"
                 : constant_of(&s->what, "B_BY_K") > 0 ? "dy W"
                                                       : "x W'",
                 constant_of(&s->what, "M") + constant_of(&s->what, "K"),
                 constant_of(&s->what, "N"));
    else
        snprintf(name, 48, "%s", entry);
}

#define REPEATS 8
static tern_status time_kernels(bench *b, tern_program *p, kinds *k) {
    float loss;
    for (size_t i = 0; i < p->n_steps; i++) {
        gpu_train_repeat(p, i, 1);
        TERN_TRY(read_loss(b, &loss));
        double begin = tern_seconds();
        gpu_train_repeat(p, i, 1);
        TERN_TRY(read_loss(b, &loss));
        double middle = tern_seconds();
        gpu_train_repeat(p, i, 1 + REPEATS);
        TERN_TRY(read_loss(b, &loss));
        double seconds = (tern_seconds() - middle - (middle - begin)) / REPEATS;
        char name[48];
        name_kernel(&p->steps[i], name);
        bool in_head = i >= p->head_first && i < p->head_end && p->piece_rows < b->o.n_tokens;
        double n_pieces = in_head ? ceil((double)b->o.n_tokens / p->piece_rows) : 1;
        add_kind(k, name, seconds > 0 ? seconds * n_pieces : 0, p->steps[i].flops * b->o.n_tokens);
    }
    return TERN_OK;
}

static tern_status print_gpu(bench *b) {
    kinds k = {.seconds = 0};
    TERN_TRY(time_kernels(b, b->program, &k));
    TERN_TRY(time_kernels(b, b->optimizer, &k));
    print_kinds(&k, 0);
    return TERN_OK;
}

// ---- of the CPU --------------------------------------------------------------------------------

static tern_status print_cpu(bench *b) {
    static train_step_time times[4096];
    kinds k = {.seconds = 0};
    tern_program *programs[] = {b->program, b->optimizer};
    double products = 0, flops = 0, peak = train_cpu_peak(b->device);
    for (int i = 0; i < 2; i++) {
        size_t n = train_cpu_times(programs[i], &b->batch, times, 4096);
        for (size_t s = 0; s < n; s++) {
            add_kind(&k, times[s].name, times[s].seconds, times[s].flops);
            if (times[s].flops > 0) products += times[s].seconds, flops += times[s].flops;
        }
    }
    print_kinds(&k, peak);
    printf("products: %.0f%% of the time, %.0f GFLOP/s, %.0f%% of the %.0f that the processor "
           "does on registers\n",
           100 * products / k.seconds, flops / products * 1e-9, 100 * flops / products / peak,
           peak * 1e-9);
    return TERN_OK;
}

// ---- The command -------------------------------------------------------------------------------

static bool read_options(bench *b, int n, char **args) {
    static const char letters[] = "ldfhkvtsrjbx";
    options *o = &b->o;
    int *const targets[] = {&o->n_layers,   &o->n_embd,    &o->n_ff,     &o->n_heads,
                            &o->n_kv_heads, &o->n_vocab,   &o->n_tokens, &o->n_span,
                            &o->n_runs,     &o->n_threads, &o->bitnet,   &o->bf16};
    if (n < 2 || n % 2 != 0) return false;
    b->backend = strcmp(args[1], "webgpu") == 0 ? &tern_train_webgpu : &tern_train_cpu;
    for (int i = 2; i + 1 < n; i += 2) {
        const char *at = args[i][0] == '-' && args[i][1] ? strchr(letters, args[i][1]) : NULL;
        if (!at) return false;
        *targets[at - letters] = atoi(args[i + 1]);
    }
    if (o->n_kv_heads == 0) o->n_kv_heads = o->n_heads;
    return o->n_heads > 0 && o->n_span > 0 && o->n_tokens > 0 && o->n_vocab > 0 && o->n_runs > 0;
}

int main(int n, char **args) {
    static bench b = {.o = {.n_layers = 4,
                            .n_embd = 256,
                            .n_ff = 688,
                            .n_heads = 8,
                            .n_vocab = 4096,
                            .n_tokens = 4096,
                            .n_span = 512,
                            .n_runs = 5,
                            .bitnet = 1}};
    if (!read_options(&b, n, args)) {
        fprintf(stderr, "usage: train_bench cpu|webgpu [-l layers] [-d width] [-f ff] [-h heads] "
                        "[-k kv heads]\n  [-v vocabulary] [-t tokens] [-s span] [-r runs] "
                        "[-j threads] [-b bitnet 0|1] [-x bf16 0|1]\n");
        return 2;
    }
    tern_graph_init(&b.graph);
    tern_graph_init(&b.update);
    tern_status status = prepare(&b);
    if (status == TERN_OK) status = measure(&b);
    if (status == TERN_OK) status = b.backend == &tern_train_webgpu ? print_gpu(&b) : print_cpu(&b);
    if (status != TERN_OK) fprintf(stderr, "train_bench: %s\n", b.err.message);
    return status == TERN_OK ? 0 : 1;
}
