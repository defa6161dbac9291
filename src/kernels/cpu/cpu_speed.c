// Times the integer kernels of one level, on one thread and data in a cache: what the instructions
// can do, without memory. bench/*.c measure more, with memory and threads.
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "kernels/cpu/grouped/grouped.h"
#include "kernels/cpu/head/head_kernels.h"
#include "kernels/cpu/kernels.h"

enum { N_IN = 2560, ROWS = 64, PROMPT = 64 }; // TERN_I8_PAD divides N_IN
#define SECONDS 0.02

typedef struct sample {
    const tern_cpu_kernels *k;
    size_t n_tokens;
    tern_ternary_matrix t;
    tern_i8_rows x;
    tern_grouped_matrix q;
    tern_grouped_rows xq;
    tern_head_vector v;
    void *scratch, *prepared;
    float *out;
} sample;

static void run_ternary(sample *s) {
    const tern_product to = {0, ROWS, s->out, ROWS, false};
    if (s->n_tokens == 1)
        s->k->t->gemv(&s->t, &s->x, s->prepared, &to);
    else
        s->k->t->gemm(&s->t, &s->x, s->prepared, s->scratch, &to);
}

static void run_grouped(sample *s) {
    s->k->q->multiply(&s->q, &s->xq, s->scratch, &(tern_product){0, ROWS, s->out, ROWS, false});
}

// As many vectors as share the unpacking stand for a prompt.
static void run_head(sample *s) {
    const tern_head_vector *const x[TERN_HEAD_SHARED] = {&s->v, &s->v, &s->v, &s->v};
    float *const outs[] = {s->out, s->out + ROWS, s->out + 2 * ROWS, s->out + 3 * ROWS};
    const tern_head_screen screen = {.codes = s->q.data,
                                     .scales = s->t.data,
                                     .x = x,
                                     .n_x = s->n_tokens,
                                     .n_tiles = ROWS / TERN_HEAD_TILE,
                                     .n_vectors = N_IN / TERN_HEAD_VECTOR};
    s->k->h->screen_hi(outs, &screen);
}

// The best call of as many as fit into SECONDS, three at least.
static double best_of(sample *s, void (*run)(sample *)) {
    double best = 1e9, end = tern_seconds() + SECONDS;
    for (int i = 0; i < 3 || tern_seconds() < end; i++) {
        double start = tern_seconds();
        run(s);
        double took = tern_seconds() - start;
        if (took < best) best = took;
    }
    return best;
}

// Memory of s->scratch, and of what is rearranged of the activations.
static bool prepare_ternary(sample *s, tern_packing packing) {
    const tern_ternary_kernels *t = s->k->t;
    s->t.packing = packing;
    s->t.row_bytes = tern_ternary_row_bytes(packing, N_IN);
    const bool one = s->n_tokens == 1;
    s->scratch = tern_alloc(TERN_MEM_MISC, t->gemm_scratch_bytes(N_IN));
    s->prepared = tern_alloc(TERN_MEM_MISC, one ? t->prepared_bytes(packing, N_IN, 1)
                                                : t->panels_bytes(N_IN, s->n_tokens));
    if (!s->scratch || !s->prepared) return false;
    if (one)
        t->prepare(packing, s->prepared, &s->x, N_IN, 0, 1);
    else
        t->make_panels(s->prepared, &s->x, N_IN, 0, s->n_tokens);
    return true;
}

static bool prepare_grouped(sample *s, const tern_grouped_matrix *form) {
    const uint8_t *data = s->q.data;
    s->q = *form;
    s->q.data = data, s->q.n_in = N_IN, s->q.n_rows = ROWS;
    s->xq.n_tokens = s->n_tokens;
    tern_grouped_arrange(s->k->q, &s->xq);
    s->scratch =
        tern_alloc(TERN_MEM_MISC,
                   tern_grouped_wide_fits(&s->q) ? tern_grouped_scratch_bytes(s->k->q, &s->q) : 0);
    return s->scratch != NULL;
}

typedef struct family {
    const char *name;
    void (*run)(sample *s);
    tern_packing packing;
    tern_grouped_matrix form; // no bits: ternary, or the head
    size_t n_prompt;
} family;

static const family families[TERN_CPU_SPEEDS / 2] = {
    {"2-bit rows", run_ternary, TERN_PACK_2BIT, {0}, PROMPT},
    {"1.6-bit rows", run_ternary, TERN_PACK_1_6BIT, {0}, PROMPT},
    {"Q8_0", run_grouped, 0, {.bits = 8, .group = 32, .zero = 128}, PROMPT},
    {"Q4_K", run_grouped, 0, {.bits = 4, .group = 32, .super = 256, .has_minima = true}, PROMPT},
    {"head", run_head, 0, {0}, TERN_HEAD_SHARED},
};

static bool time_family(sample *s, const family *f, tern_cpu_speed *out) {
    const bool is_ternary = f->run == run_ternary;
    bool ok = is_ternary ? prepare_ternary(s, f->packing) : true;
    if (f->form.bits) ok = prepare_grouped(s, &f->form);
    *out = (tern_cpu_speed){f->name, s->n_tokens, 0, N_IN / 2 * ROWS, 0};
    out->macs = (double)N_IN * ROWS * (double)s->n_tokens;
    if (is_ternary) out->bytes = (double)s->t.row_bytes * ROWS;
    if (f->form.bits) out->bytes = (double)s->q.block_bytes / TERN_GROUPED_ROWS * ROWS;
    if (ok) out->seconds = best_of(s, f->run);
    tern_free(s->scratch), tern_free(s->prepared);
    s->scratch = s->prepared = NULL;
    return ok;
}

bool tern_cpu_kernels_time(const tern_cpu_kernels *k, tern_cpu_speed out[TERN_CPU_SPEEDS]) {
    enum { PARTS = N_IN / TERN_GROUP * TERN_GROUP_PARTS * PROMPT };
    const size_t most = (size_t)ROWS * N_IN * 2; // of packed rows of any family
    float *numbers = tern_alloc_array(TERN_MEM_MISC, 3 * PARTS + ROWS * PROMPT, sizeof *numbers);
    int8_t *bytes = tern_alloc(TERN_MEM_MISC, 2 * most + PROMPT * N_IN);
    bool ok = numbers && bytes;
    if (ok) memset(bytes, 0x3C, 2 * most + PROMPT * N_IN); // no 16 bits that are a tiny number
    sample s = {.k = k, .out = numbers + 3 * PARTS};
    s.t = (tern_ternary_matrix){.data = (uint8_t *)bytes, .n_in = N_IN, .n_rows = ROWS, .scale = 1};
    s.q.data = (uint8_t *)bytes + most;
    s.x = (tern_i8_rows){bytes + 2 * most, N_IN, numbers, (int32_t *)(void *)numbers, 0};
    s.xq = (tern_grouped_rows){
        s.x.q, numbers, (int32_t *)(void *)(numbers + PARTS), numbers + 2 * PARTS, 0, 0, 0};
    s.v = (tern_head_vector){s.x.q, s.x.q, s.xq.minus, s.xq.minus};
    for (size_t i = 0; ok && i < TERN_CPU_SPEEDS; i++) {
        const family *f = &families[i / 2];
        s.n_tokens = s.x.n_tokens = i % 2 ? f->n_prompt : 1;
        ok = time_family(&s, f, &out[i]);
    }
    tern_free(numbers), tern_free(bytes);
    return ok;
}
