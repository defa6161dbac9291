// Measures which packing of ternary weights is faster here, on a slice of the model's own matrices
// that is larger than the caches: 1.6 bits a weight are 20% fewer bytes, and pay if the processor
// can unpack them as fast as memory delivers them.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "kernels/cpu/cpu.h"

#define SAMPLE_BYTES ((size_t)64 << 20) // of 2-bit codes; less would measure the last-level cache
#define N_ROUNDS     6

typedef struct sample {
    const tern_ternary_kernels *k;
    tern_ternary_matrix m; // one tall matrix
    tern_i8_rows x;
    void *prepared;
    float *out;
    atomic_size_t counter;
} sample;

static void multiply(void *ctx, const tern_team *team) {
    sample *s = ctx;
    for (size_t first, last; tern_team_claim_guided(
             team, &s->counter, (tern_claim){s->m.n_rows, 16, 64}, &first, &last);) {
        const tern_product to = {first, last, s->out, s->m.n_rows, false};
        s->k->gemv(&s->m, &s->x, s->prepared, &to);
    }
}

static double time_packing(tern_device *d, sample *s) {
    s->k->prepare(s->m.packing, s->prepared, &s->x, s->m.n_in, 0, 1);
    atomic_store(&s->counter, 0);
    double start = tern_seconds();
    tern_team_run(d->team, multiply, s);
    return tern_seconds() - start;
}

typedef struct repack_job {
    const tern_ternary_kernels *k;
    const tern_ternary_matrix *from;
    uint8_t *to;
    size_t row_bytes;
    atomic_size_t counter;
} repack_job;

static void repack(void *ctx, const tern_team *team) {
    repack_job *job = ctx;
    (void)team;
    for (size_t row, last; tern_team_claim(&job->counter, job->from->n_rows, 64, &row, &last);)
        for (; row < last; row++)
            job->k->repack_row(job->to + row * job->row_bytes,
                               job->from->data + row * job->from->row_bytes, job->from->n_in);
}

// The largest contiguous stretch of rows of one width. Consecutive matrices of a file are not
// adjacent to the byte, so the sample is the largest single matrix, walked repeatedly over copies
// in new memory.
static const tern_weight_source *largest(const tern_weight_source *sources, size_t n,
                                         size_t *total) {
    const tern_weight_source *best = NULL;
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        const tern_weight_source *s = &sources[i];
        if (!s->is_matrix || s->is_head || s->type != TERN_DTYPE_I2_S || s->n_cols % 128 != 0)
            continue;
        *total += (size_t)s->bytes;
        if (!best || s->bytes > best->bytes) best = s;
    }
    return best;
}

static bool open_sample(tern_device *d, const tern_weight_source *s, const void *data_of_one,
                        sample *two, sample *five) {
    size_t n_in = (size_t)s->n_cols, row_bytes = n_in / 4;
    size_t copies = SAMPLE_BYTES / ((size_t)s->n_rows * row_bytes) + 1;
    size_t n_rows = copies * (size_t)s->n_rows;
    uint8_t *data = tern_alloc(TERN_MEM_WEIGHTS, n_rows * row_bytes + 64);
    *two = (sample){.k = d->kernels.t, .m = {TERN_PACK_2BIT, data, n_in, n_rows, row_bytes, 1}};
    two->x.stride = (n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD;
    two->x.n_tokens = 1;
    two->x.q = tern_alloc(TERN_MEM_MISC, two->x.stride);
    two->x.inv_scale = tern_alloc(TERN_MEM_MISC, sizeof(float));
    two->x.sum = tern_alloc(TERN_MEM_MISC, sizeof(int32_t));
    size_t prepared_2 = d->kernels.t->prepared_bytes(TERN_PACK_2BIT, n_in, 1);
    size_t prepared_5 = d->kernels.t->prepared_bytes(TERN_PACK_1_6BIT, n_in, 1);
    two->prepared = tern_alloc(TERN_MEM_MISC, prepared_2 > prepared_5 ? prepared_2 : prepared_5);
    two->out = tern_alloc_array(TERN_MEM_MISC, n_rows, sizeof(float));
    *five = *two;
    five->m.packing = TERN_PACK_1_6BIT;
    five->m.row_bytes = tern_ternary_row_bytes(TERN_PACK_1_6BIT, n_in);
    uint8_t *packed = tern_alloc(TERN_MEM_WEIGHTS, n_rows * five->m.row_bytes + 64);
    five->m.data = packed;
    if (!data || !packed || !two->x.q || !two->x.inv_scale || !two->x.sum || !two->prepared ||
        !two->out)
        return false;
    for (size_t i = 0; i < copies; i++)
        memcpy(data + i * (size_t)s->n_rows * row_bytes, data_of_one,
               (size_t)s->n_rows * row_bytes);
    repack_job job = {
        .k = d->kernels.t, .from = &two->m, .to = packed, .row_bytes = five->m.row_bytes};
    tern_team_run(d->team, repack, &job);
    return true;
}

static void close_sample(sample *two, sample *five) {
    tern_free((void *)two->m.data);
    tern_free((void *)five->m.data);
    tern_free(two->x.q);
    tern_free(two->x.inv_scale);
    tern_free(two->x.sum);
    tern_free(two->prepared);
    tern_free(two->out);
}

static void measure(tern_device *d, sample *two, sample *five) {
    double best_two = 1e9, best_five = 1e9;
    for (int i = 0; i < N_ROUNDS; i++) {
        double t = time_packing(d, two);
        if (t < best_two) best_two = t;
        t = time_packing(d, five);
        if (t < best_five) best_five = t;
    }
    d->packing = best_five < best_two ? TERN_PACK_1_6BIT : TERN_PACK_2BIT;
}

// Without memory for the sample, the packing that needs none is kept.
tern_status cpu_tune(tern_device *d, const tern_weight_source *sources, size_t n, tern_error *err) {
    if (d->ternary_wanted != TERN_TERNARY_AUTO) return TERN_OK;
    size_t total;
    tern_hold h;
    const tern_weight_source *s = largest(sources, n, &total);
    if (!s || total < SAMPLE_BYTES) return TERN_OK; // fits in caches: fewer bytes buy nothing
    tern_status status = tern_blob_hold(&s->data, &h, err);
    if (status != TERN_OK) return status == TERN_ERR_MEMORY ? TERN_OK : status;
    sample two, five;
    if (open_sample(d, s, h.data, &two, &five)) measure(d, &two, &five);
    close_sample(&two, &five);
    tern_blob_release(&h);
    return TERN_OK;
}
