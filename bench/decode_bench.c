// Times a decode step on a GPU at the shape of BitNet b1.58 2B-4T, of Bonsai 1.7B or of another
// published model, with random weights, and the share of each kind of dispatch: how much shorter
// the same step is without that kind. That includes the waiting between dispatches, and needs no
// timestamps.
//
//   decode_bench [-n STEPS] [-p POSITION] [-l LAYERS] [-t TOKENS] [-q SEQUENCES] [-v VOCABULARY]
//                [-b] [-a SHAPE] [-w TYPE] [-s] [-k] [-0] [-m] [-o]
//
// -b: Bonsai 1.7B, Qwen3 with codes in groups (Q2_0), in the table and the head, too.
// -a: a shape of tests/support/real_shapes.c, such as gemma-3-1b (qwen3-0.6b), with -w.
// -w: in a type: q4_0, q8_0, q4_k, q6_k (table and head of q8_0 in the same, else in Q6_K) or
// q4_k_m, which is Q4_K but for the values and the rows down of half of the layers, in Q6_K.
// -t: of more than 8 tokens: a prompt of so many (512 at most), with the last one's logits.
// -q: that many sequences, a step of each together.
// -s: steps of 1, 2, 4 and 8 tokens, as speculation verifies them; for several also the time when
// the device drafts them, and when each token reads the ternary weights for itself.
// -k: times by kernel from the GPU's own clock instead; each dispatch is then a separate pass,
// which costs some microseconds.
// -o: the step alone, without the shares.
// -m: three small layers instead, of two million weights.
// -0: on the library's null device, which computes nothing: what remains is the host's part.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/os/os_time.h"
#include "bench/null_device.h"
#include "kernels/single_test.h"
#include "kernels/webgpu/device/gpu.h"
#include "models/models.h"
#include "tests/support/real_shapes.h"

enum { MOST_ROWS = 512 };

typedef struct bench {
    tern_graph graph;
    tern_device *device;
    tern_weight **weights;
    uint8_t *codes;  // one matrix's, used by all
    uint8_t *floats; // likewise
    int n_steps, position, n_tokens, n_layers;
    int n_sequences;                   // of n_tokens each
    bool by_clock;                     // -k
    bool is_alone;                     // -o
    const real_shape *shape;           // whose family it is; NULL: BitNet
    const char *wide;                  // the type of -w; NULL: none
    uint8_t *blocks[TERN_DTYPE_COUNT]; // any of a type, as many as its largest matrix has
} bench;

static void need(tern_status status, const tern_error *err) {
    if (status == TERN_OK) return;
    fprintf(stderr, "decode_bench: %s\n", err->message);
    exit(1);
}

static uint64_t state = 1;
static uint64_t random_bits(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

// Q2_0: any codes, and a scale of about 0.02.
static void fill_groups(bench *b, size_t n) {
    size_t each = tern_dtype_block_bytes(TERN_DTYPE_Q2_0);
    n /= tern_dtype_block_n(TERN_DTYPE_Q2_0);
    b->codes = malloc(n * each);
    if (!b->codes) exit(1);
    for (size_t i = 0; i < n * each; i++)
        b->codes[i] = (uint8_t)(i % each == 0   ? random_bits() >> 20
                                : i % each == 1 ? 0x24
                                                : random_bits() >> 24);
}

// ---- Codes of four bits and more ---------------------------------------------------------------

// Where a block has scales of 16 bits, and what the upper byte of these is.
static const struct {
    const char *name;
    tern_dtype type;
    int scales[2];
    uint8_t exponent;
} wides[] = {{"q4_0", TERN_DTYPE_Q4_0, {0, 0}, 0x20},
             {"q8_0", TERN_DTYPE_Q8_0, {0, 0}, 0x10},
             {"q4_k", TERN_DTYPE_Q4_K, {0, 2}, 0x08},
             {"q6_k", TERN_DTYPE_Q6_K, {208, 208}, 0x04}};
enum { N_WIDES = sizeof wides / sizeof *wides };

static tern_dtype wide_type(const char *name) {
    if (strcmp(name, "q4_k_m") == 0) return TERN_DTYPE_Q4_K;
    for (size_t i = 0; i < N_WIDES; i++)
        if (strcmp(name, wides[i].name) == 0) return wides[i].type;
    fprintf(stderr, "decode_bench: -w is q4_0, q8_0, q4_k, q6_k or q4_k_m\n");
    exit(2);
}

// Of a Q4_K_M file: the first and last eighth of the layers and a third of the others.
static bool has_more_bits(const bench *b, const char *name) {
    int layer = 0, n = b->n_layers;
    if (!strstr(name, "attn_v") && !strstr(name, "ffn_down")) return false;
    for (const char *p = name; *p; p++)
        if (*p >= '0' && *p <= '9') {
            layer = atoi(p);
            break;
        }
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

static tern_dtype wide_type_of(const bench *b, const tern_value *v) {
    tern_dtype type = wide_type(b->wide);
    if (!v->is_matrix && !v->is_table) return TERN_DTYPE_F32;
    if (v->is_table) return type == TERN_DTYPE_Q8_0 ? type : TERN_DTYPE_Q6_K;
    bool mixed = strcmp(b->wide, "q4_k_m") == 0;
    return mixed && has_more_bits(b, v->name) ? TERN_DTYPE_Q6_K : type;
}

static void fill_wide(bench *b, size_t n_max) {
    for (size_t i = 0; i < N_WIDES; i++) {
        size_t each = tern_dtype_block_bytes(wides[i].type);
        size_t n = n_max / tern_dtype_block_n(wides[i].type);
        uint8_t *to = b->blocks[wides[i].type] = malloc(n * each + 8);
        if (!to) exit(1);
        for (size_t k = 0; k < n * each; k += 8) {
            uint64_t bits = random_bits();
            memcpy(to + k, &bits, 8);
        }
        for (size_t k = 0; k < n; k++)
            for (int s = 0; s < 2; s++) to[k * each + wides[i].scales[s] + 1] = wides[i].exponent;
    }
}

// ---- Weights -----------------------------------------------------------------------------------

// Numbers of the largest table or other matrix.
static size_t largest(const tern_graph *g, bool table) {
    size_t n = 0;
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *w = &g->values[v];
        size_t its = (size_t)(w->rows * w->cols);
        if (w->kind == TERN_VALUE_WEIGHT && w->is_table == table && its > n) n = its;
    }
    return n;
}

// I2_S: any byte whose four fields are at most 2. F16: numbers of about 0.02.
static void fill(bench *b, size_t n_codes, size_t n_floats) {
    if (b->wide) {
        fill_wide(b, n_floats);
        return;
    }
    if (b->shape) {
        fill_groups(b, n_floats > n_codes ? n_floats : n_codes);
        return;
    }
    b->codes = calloc(n_codes, 1);
    b->floats = malloc(n_floats * 2);
    if (!b->codes || !b->floats) exit(1);
    for (size_t i = 0; i < n_codes; i++) {
        uint64_t r = random_bits() >> 8;
        for (int k = 0; k < 4; k++) b->codes[i] |= (uint8_t)((r >> 8 * k) % 3 << 2 * k);
    }
    for (size_t i = 0; i < n_floats; i++) {
        uint16_t h = (uint16_t)(0x2400 | (random_bits() >> 20 & 0x83ff));
        memcpy(b->floats + 2 * i, &h, 2);
    }
}

static void bind_weights(bench *b) {
    tern_graph *g = &b->graph;
    tern_error err = {0};
    float *ones = malloc(sizeof *ones * 8192);
    tern_weight_source *sources = calloc(g->n_values, sizeof *sources);
    tern_weight_kind *kinds = calloc(g->n_values, sizeof *kinds);
    b->weights = calloc(2 * g->n_values, sizeof(tern_weight *));
    if (!ones || !sources || !kinds || !b->weights) exit(1);
    for (int i = 0; i < 8192; i++) ones[i] = 1;
    for (size_t v = 0; v < g->n_values; v++) {
        const tern_value *value = &g->values[v];
        if (value->kind != TERN_VALUE_WEIGHT) continue;
        bool ternary = value->is_matrix && !value->is_table;
        sources[v] = (tern_weight_source){
            .name = value->name,
            .n_rows = value->rows,
            .n_cols = value->cols,
            .scale = 0.02f,
            .is_matrix = value->is_matrix,
            .is_table = value->is_table,
            .is_head = value->is_table,
            .type = ternary           ? TERN_DTYPE_I2_S
                    : value->is_table ? TERN_DTYPE_F16
                                      : TERN_DTYPE_F32,
        };
        bool in_groups = b->shape != NULL && (ternary || value->is_table);
        if (in_groups) sources[v].type = TERN_DTYPE_Q2_0;
        if (b->wide) sources[v].type = wide_type_of(b, value);
        if (!value->is_matrix && !value->is_table) sources[v].n_rows = 1;
        uint64_t n = (uint64_t)sources[v].n_rows * (uint64_t)value->cols;
        tern_dtype_bytes(sources[v].type, n, (uint64_t)value->cols, &sources[v].bytes);
        const void *data = b->wide && in_groups   ? (void *)b->blocks[sources[v].type]
                           : ternary || in_groups ? (void *)b->codes
                           : value->is_table      ? (void *)b->floats
                                                  : ones;
        sources[v].data = tern_blob_of(data, sources[v].bytes);
    }
    need(tern_backend_webgpu.tune(b->device, sources, g->n_values, &err), &err);
    for (size_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != TERN_VALUE_WEIGHT) continue;
        tern_weight_info info = {0};
        need(tern_backend_bind(&tern_backend_webgpu, b->device, &sources[v], &b->weights[v], &err),
             &err);
        tern_backend_webgpu.weight_info(b->weights[v], &info);
        kinds[v] = info.kind;
    }
    need(tern_pass_lower(g, kinds, &err), &err);
    need(tern_pass_fuse(g, &err), &err);
    free(ones);
    free(sources);
    free(kinds);
}

static void print_profile(const tern_profile *p) {
    for (size_t i = 0; p && i < p->n; i++)
        printf("  %-20s %6.2f us, %7.1f GB/s\n", p->rows[i].name,
               p->rows[i].seconds * 1e6 / (double)p->rows[i].n_calls,
               (double)p->rows[i].bytes / p->rows[i].seconds * 1e-9);
}

static tern_single open_single(const bench *b, tern_plan *plan) {
    tern_error err = {0};
    tern_single s;
    const tern_cache_desc desc = {.kv_type = TERN_KV_F16, .n_context = 4096};
    need(tern_single_open(&s, &tern_backend_webgpu, plan, &b->graph, &desc, &err), &err);
    return s;
}

// Room for all steps at once, as a session has it for its answer, and for what is computed ahead.
enum { WARM = 8, AHEAD = 16 };
static void reserve(const bench *b, tern_sequence *s) {
    tern_error err = {0};
    int n_steps = b->n_steps + WARM + AHEAD;
    need(tern_sequence_reserve(s, b->position + n_steps * b->n_tokens, &err), &err);
}

// Sequences of one length, of which each batch has the next tokens; one token of each is the one
// that was found last.
typedef struct crowd {
    tern_single first;
    tern_sequence *rest[MOST_ROWS]; // [n - 1]
    tern_chunk chunks[MOST_ROWS];
    int32_t ids[MOST_ROWS], outputs[MOST_ROWS], top[MOST_ROWS];
    float logits[MOST_ROWS];
    tern_batch batch;
} crowd;

// Of a prompt only the last row.
static int n_outputs_of(const bench *b) {
    return b->n_sequences * (b->n_tokens > GPU_FEW ? 1 : b->n_tokens);
}

static void open_crowd(const bench *b, tern_plan *plan, crowd *c) {
    tern_error err = {0};
    *c = (crowd){.first = open_single(b, plan)};
    for (int i = 0; i < b->n_sequences - 1; i++)
        need(tern_sequence_open(&c->rest[i], c->first.cache, &err), &err);
    reserve(b, c->first.sequence);
    for (int i = 0; i < b->n_sequences - 1; i++) reserve(b, c->rest[i]);
    int n = b->n_tokens * b->n_sequences, n_outputs = n_outputs_of(b);
    for (int i = 0; i < n; i++) c->ids[i] = i;
    for (int i = 0; i < n_outputs; i++) c->outputs[i] = (i + 1) * (n / n_outputs) - 1;
    c->ids[0] = 1;
    c->batch = (tern_batch){.ids = c->ids,
                            .n_tokens = n,
                            .outputs = c->outputs,
                            .n_outputs = n_outputs,
                            .wants.top_k = 1,
                            .wants.top_ids = c->top,
                            .wants.top_logits = c->logits};
}

static void close_crowd(const bench *b, crowd *c) {
    for (int i = 0; i < b->n_sequences - 1; i++) tern_sequence_close(c->rest[i]);
    tern_single_close(&c->first);
}

static void place_crowd(const bench *b, crowd *c, int32_t position) {
    tern_error err = {0};
    for (int i = 0; i < b->n_sequences; i++) {
        tern_single one = c->first;
        tern_batch share = {.n_tokens = b->n_tokens};
        if (i > 0) one.sequence = c->rest[i - 1];
        need(tern_single_place(&one, &share, &c->chunks[i], position, &err), &err);
    }
    c->batch.chunks = c->chunks;
    c->batch.n_chunks = b->n_sequences;
}

// Of the tokens and logits of the last series of steps: the same number, the same bits.
static uint64_t text;
static void add_to_text(const crowd *c, int n) {
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &c->logits[i], sizeof bits);
        text = (text ^ (uint32_t)c->top[i]) * 0x100000001b3u;
        text = (text ^ bits) * 0x100000001b3u;
    }
}

// host: the part spent in submitting, if not NULL.
static double seconds_a_step(const bench *b, tern_plan *plan, bool profiled, double *host) {
    tern_error err = {0};
    crowd c;
    open_crowd(b, plan, &c);
    tern_instance *in = c.first.instance;
    if (profiled) need(tern_backend_webgpu.profile_start(in, &err), &err);
    double start = 0, submitting = 0;
    text = 0xcbf29ce484222325u;
    for (int i = 0; i < b->n_steps + WARM; i++) {
        bool done = false;
        if (i == WARM) start = tern_seconds();
        place_crowd(b, &c, b->position + i);
        double before = tern_seconds();
        need(tern_backend_webgpu.submit(in, &c.batch, &err), &err);
        if (i >= WARM) submitting += tern_seconds() - before;
        while (!done) need(tern_backend_webgpu.poll(in, &done, &err), &err);
        add_to_text(&c, n_outputs_of(b));
        for (int k = 0; k < (b->n_tokens == 1 ? b->n_sequences : 1); k++) c.ids[k] = c.top[k];
    }
    double seconds = (tern_seconds() - start) / b->n_steps;
    if (profiled) print_profile(tern_backend_webgpu.profile_read(in));
    if (host) *host = submitting / b->n_steps;
    close_crowd(b, &c);
    return seconds;
}

// Whether it is one of the batch's, by what it is for.
static bool takes_part(const bench *b, const gpu_dispatch *d) {
    uint32_t n = (uint32_t)(b->n_tokens * b->n_sequences);
    bool by_output = d->rows == GPU_ROWS_OUTPUTS || d->rows == GPU_ROWS_CHUNK;
    uint32_t n_rows = by_output ? (uint32_t)n_outputs_of(b) : n;
    gpu_kind kind = b->n_tokens > GPU_FEW ? GPU_PROMPTS
                    : n > GPU_FEW         ? GPU_MANY_STEPS
                                          : GPU_FEW_STEPS;
    bool rows = d->rows == GPU_ROWS_PARTS || (d->rows_min <= n_rows && n_rows <= d->rows_max);
    bool few = kind != GPU_FEW_STEPS || (d->tokens_min <= n && n <= d->tokens_max);
    return rows && few && (d->kinds & kind) != 0;
}

static int count_dispatches(const bench *b, const tern_plan *plan) {
    int n = 0;
    for (size_t i = 0; i < plan->n_dispatches; i++) n += takes_part(b, &plan->dispatches[i]);
    return n;
}

static void measure_kinds(const bench *b, tern_plan *plan, double whole) {
    uint32_t *kinds = calloc(plan->n_dispatches, sizeof *kinds);
    if (!kinds) exit(1);
    for (size_t i = 0; i < plan->n_dispatches; i++) kinds[i] = plan->dispatches[i].kinds;
    for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
        int n = 0;
        uint32_t x = 0;
        for (size_t i = 0; i < plan->n_dispatches; i++) {
            gpu_dispatch *d = &plan->dispatches[i];
            if ((int)d->what.kernel != k || !takes_part(b, d)) continue;
            n++;
            x = d->x;
            d->kinds = 0;
        }
        if (n == 0) continue;
        double without = seconds_a_step(b, plan, false, NULL);
        printf("  %-20s %4d x %6.2f us  %7.1f us, groups %u\n", gpu_kernel_entry((gpu_kernel)k), n,
               (whole - without) * 1e6 / n, (whole - without) * 1e6, x);
        for (size_t i = 0; i < plan->n_dispatches; i++) plan->dispatches[i].kinds = kinds[i];
    }
    free(kinds);
}

#define LEFT_OUT (1u << 20) // added to tokens_min: more than a batch may have

// Whether several tokens use the kernels of one, each with workgroups that read the weights.
static void read_for_each(tern_plan *plan, bool each) {
    for (size_t i = 0; i < plan->n_dispatches; i++) {
        gpu_dispatch *d = &plan->dispatches[i];
        gpu_kernel k = d->what.kernel;
        if (k == GPU_NORM_LINEAR3 || k == GPU_NORM_GLU || k == GPU_NORM_LINEAR_ADD ||
            k == GPU_PARTS_LINEAR_ADD)
            d->tokens_max = d->tokens_max % LEFT_OUT + (each ? LEFT_OUT : 0);
        if (k == GPU_ROW_QUANTIZE || k == GPU_PARTS_QUANTIZE || k == GPU_FEW_LINEAR3 ||
            k == GPU_FEW_GLU || k == GPU_FEW_LINEAR_ADD)
            d->tokens_min = d->tokens_min % LEFT_OUT + (each ? LEFT_OUT : 0);
    }
}

static double seconds_warm(const bench *b, tern_plan *plan, double *host) {
    seconds_a_step(b, plan, false, NULL);
    return seconds_a_step(b, plan, false, host);
}

// A run of those that the device drafts and judges, one after the other without the host.
static double seconds_drafting(const bench *b, tern_plan *plan) {
    enum { ROOM = 64 };
    tern_error err = {0};
    tern_single single = open_single(b, plan);
    tern_instance *in = single.instance;
    tern_chunk chunk;
    tern_draft_table table;
    int32_t ids[3] = {1, 2, 3}, top[ROOM];
    float logits[ROOM];
    need(tern_draft_table_open(&table, 1, 1, 8, &err), &err);
    tern_draft_table_set_run(&table, 0, ids, 2);
    need(tern_backend_webgpu.drafts_open(in, &table, &err), &err);
    tern_drafting q = {
        .before = ids, .n_before = 2, .n_each = b->n_tokens, .n_max = ROOM, .n_wanted = INT32_MAX};
    int32_t pos = b->position + 2;
    tern_batch batch = {.ids = &ids[2],
                        .n_tokens = 1,
                        .n_outputs = 1,
                        .wants.top_k = 1,
                        .wants.top_ids = top,
                        .wants.top_logits = logits,
                        .wants.drafting = &q};
    double start = 0;
    int n_runs = 0;
    for (int i = 0; n_runs < b->n_steps; i++) {
        bool done = false;
        if (i == WARM) start = tern_seconds();
        need(tern_single_place(&single, &batch, &chunk, pos, &err), &err);
        need(tern_backend_webgpu.submit(in, &batch, &err), &err);
        while (!done) need(tern_backend_webgpu.poll(in, &done, &err), &err);
        n_runs += i >= WARM ? q.n_runs : 0;
        pos += q.n;
        ids[2] = top[q.n - 1];
    }
    double seconds = (tern_seconds() - start) / n_runs;
    tern_single_close(&single);
    tern_draft_table_close(&table);
    return seconds;
}

static void measure_parts(const bench *b, tern_plan *plan, double whole) {
    if (b->by_clock)
        seconds_a_step(b, plan, true, NULL);
    else
        measure_kinds(b, plan, whole);
}

static void measure_several(bench *b, tern_plan *plan) {
    double one = 0;
    for (b->n_tokens = 1; b->n_tokens <= GPU_FEW; b->n_tokens *= 2) {
        double host, seconds = seconds_warm(b, plan, &host);
        if (b->n_tokens == 1) one = seconds;
        printf("%d tokens %8.1f us at %d, %.2f times one; the host submits for %.1f us\n",
               b->n_tokens, seconds * 1e6, b->position, seconds / one, host * 1e6);
        measure_parts(b, plan, seconds);
        if (b->n_tokens == 1) continue;
        seconds = seconds_drafting(b, plan);
        printf("  drafted by the device: %8.1f us, %.2f times one\n", seconds * 1e6, seconds / one);
        read_for_each(plan, true);
        seconds = seconds_warm(b, plan, NULL);
        read_for_each(plan, false);
        printf("  each with the kernels of one token: %8.1f us, %.2f times one\n", seconds * 1e6,
               seconds / one);
    }
}

static void measure(const bench *b, tern_plan *plan) {
    double host, whole = seconds_warm(b, plan, &host);
    printf("step %8.1f us at %d, %.0f tokens/s; the host submits for %.1f us; text %016llx; "
           "%d dispatches\n",
           whole * 1e6, b->position, b->n_tokens * b->n_sequences / whole, host * 1e6,
           (unsigned long long)text, count_dispatches(b, plan));
    if (!b->is_alone) measure_parts(b, plan, whole);
}

static void build(bench *b, const tern_config *c) {
    tern_error err = {0};
    const tern_arch *arch = b->shape ? real_shape_arch(b->shape) : NULL;
    tern_graph_init(&b->graph);
    need(arch ? tern_arch_build_main(&b->graph, arch, c, &err)
              : tern_build_decoder(&b->graph, c, &err),
         &err);
}

static const real_shape *shape_called(const char *name) {
    const real_shape *s = real_shape_find(name, strlen(name));
    if (s) return s;
    fprintf(stderr, "decode_bench: -a is one of");
    for (s = real_shapes; s->name; s++) fprintf(stderr, " %s", s->name);
    fprintf(stderr, "\n");
    exit(2);
}

int main(int argc, char **argv) {
    bench b = {.n_steps = 100, .n_tokens = 1, .n_sequences = 1};
    tern_error err = {0};
    tern_config c = {.n_vocab = 128256,
                     .n_layers = 30,
                     .n_embd = 2560,
                     .n_ff = 6912,
                     .n_heads = 20,
                     .n_kv_heads = 5,
                     .head_dim = 128,
                     .n_context = 4096,
                     .rms_eps = 1e-5,
                     .final_rms_eps = 1e-5,
                     .act = TERN_ACTIVATION_RELU2,
                     .tied_head = true,
                     .rope = {.n_rot = 128, .halves = true, .base = 500000, .factor = 1}};
    bool several = false, null = false;
    for (int o; (o = getopt(argc, argv, "n:p:l:t:q:v:a:w:bmosk0")) != -1;) {
        if (o == 'b') {
            const tern_config bonsai = {
                .n_vocab = 151936,
                .n_layers = 28,
                .n_embd = 2048,
                .n_ff = 6144,
                .n_heads = 16,
                .n_kv_heads = 8,
                .head_dim = 128,
                .n_context = 4096,
                .rms_eps = 1e-6,
                .final_rms_eps = 1e-6,
                .act = TERN_ACTIVATION_SILU,
                .tied_head = true,
                .rope = {.n_rot = 128, .halves = true, .base = 1e6, .factor = 1}};
            c = bonsai;
            b.shape = shape_called("qwen3-0.6b"); // its family
        }
        if (o == 'm') {
            c.n_layers = 3, c.n_embd = 256, c.n_ff = 680, c.n_heads = 4, c.n_kv_heads = 2;
            c.head_dim = 64, c.rope.n_rot = 64, c.n_vocab = 1000;
        }
        if (o == 'a') b.shape = shape_called(optarg);
        if (o == 'w') b.wide = optarg;
        if (o == 'w' && !b.shape) b.shape = shape_called("qwen3-0.6b");
        if (o == 'a' || o == 'w') c = real_shape_config(b.shape);
        if (o == 'a' && !b.wide) b.wide = "q8_0";
        if (o == 'n') b.n_steps = atoi(optarg);
        if (o == 'p') b.position = atoi(optarg);
        if (o == 'l') c.n_layers = atoi(optarg);
        if (o == 't') b.n_tokens = atoi(optarg);
        if (o == 'q') b.n_sequences = atoi(optarg);
        if (o == 'v') c.n_vocab = atoi(optarg);
        if (o == 'o') b.is_alone = true;
        if (o == 's') several = true;
        if (o == 'k') b.by_clock = true;
        if (o == '0') null = true;
        if (o == '?') return 2;
    }
    if (b.n_tokens < 1 || b.n_sequences < 1 || b.n_tokens * b.n_sequences > MOST_ROWS) {
        fprintf(stderr, "decode_bench: 1 to %d tokens of all sequences\n", MOST_ROWS);
        return 2;
    }
    c.sub_norms = c.bitlinear = !b.shape;
    b.n_layers = c.n_layers;
    build(&b, &c);
    tern_webgpu_desc webgpu = {.library = getenv("TERN_WEBGPU_LIB")};
    if (null) need(null_device_desc(&webgpu, &err), &err);
    const tern_device_desc desc = {.webgpu = &webgpu};
    need(tern_backend_open(&tern_backend_webgpu, &b.device, &desc, &err), &err);
    if (null) call_it_large(b.device);
    size_t matrix = largest(&b.graph, false), table = largest(&b.graph, true);
    fill(&b, matrix, table > matrix ? table : matrix);
    double start = tern_seconds();
    bind_weights(&b);
    printf("%s, weights sent in %.1f s\n", tern_backend_webgpu.describe(b.device),
           tern_seconds() - start);
    tern_plan *plan = NULL;
    need(tern_backend_webgpu.compile(b.device, &b.graph, b.weights, MOST_ROWS, &plan, &err), &err);
    if (several)
        measure_several(&b, plan);
    else
        measure(&b, plan);
    tern_backend_webgpu.plan_free(plan);
    tern_backend_webgpu.close(b.device);
    return 0;
}
