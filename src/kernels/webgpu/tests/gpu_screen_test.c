// The greatest logits of many rows: if found without most of the head, they are, in token and bits,
// those of the rows of logits, which a device computes in full.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/draft_table.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"
#include "kernels/webgpu/run/gpu_instance.h"

enum { N_ROWS = 41, MOST = 40, N_RIVALS = 400 };

// ---- Rows and heads ----------------------------------------------------------------------------

// Whole numbers: equal rows, equal sums, and every third row is zero.
static void fill_equal(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)seed;
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i + row % 2) % 5 - 2) * (float)(row % 3);
}

// Rows that differ by less than an 8-bit step: only exact logits say which is the greatest.
static void fill_close(float *x, int64_t n, int64_t row, uint32_t *seed) {
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(i * 37 % 101 - 50) + (row % 2 ? rig_random(seed) * 1e-3f : 0);
}

// Rounding to 8 bits changes row 33, and in the opposite direction the others, only along x: in the
// copies the others are greater by 0.97 for each column, in truth less by 0.01. No part of the
// bound for that, 0.98, can be left out. Rows after N_RIVALS are zero.
static void fill_along(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)seed;
    for (int64_t i = 0; i < n; i++) {
        float rival = i * 100 < 97 * n ? 0.51f : -0.49f;
        x[i] = row > N_RIVALS ? 0 : row == 33 ? 0.49f : rival;
    }
    x[0] = row > N_RIVALS ? 0 : 127;
}
static void fill_same(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)seed;
    for (int64_t i = 0; i < n; i++) x[i] = 127 * ldexpf(1, (int)(row % 9) - 4);
}

// The same for what rounding takes from x: one row of the head has all of it.
static void fill_lost(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row, (void)seed;
    for (int64_t i = 0; i < n; i++) x[i] = i % 64 ? 0.49f : 127;
}
static void fill_flat(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)seed;
    float own = 127 * (float)((n + 63) / 64) + 0.45f * (float)n;
    for (int64_t i = 0; i < n; i++) x[i] = row == 33 ? 1 : 0;
    if (row != 33 && row <= N_RIVALS) x[0] = (own - (float)row / 64) / 127;
}

// Magnitudes up to what floats hold, and beyond; the great ones of different signs.
static void fill_far(float *x, int64_t n, int64_t row, uint32_t *seed) {
    fill_normal(x, n, row, seed);
    if (row % 50 == 7) x[row % n] = row % 100 == 7 ? INFINITY : -INFINITY;
    if (row % 50 == 8) x[row % n] = NAN;
    for (int64_t i = 0; i < n && row % 50 == 9; i++) x[i] *= 1e37f;
    for (int64_t i = 0; i < n && row % 50 == 10; i++) x[i] *= 1e-37f;
}

// A few columns are far greater than the others, as in many models.
static void fill_outliers(float *x, int64_t n, int64_t row, uint32_t *seed) {
    fill_normal(x, n, row, seed);
    for (int64_t i = row % 7; i < n; i += 97) x[i] *= 40;
}

// ---- Comparing ---------------------------------------------------------------------------------

typedef struct screened {
    int64_t n_vocab, n_in;
    tern_dtype type;
    rig_fill x, head;
    int32_t n;                         // rows
    enum { LISTED, OPEN, EITHER } how; // whether lists suffice for all of them, or for none
} screened;

typedef struct answers {
    tern_sequence *sequences[MOST];
    tern_chunk chunks[MOST];
    int32_t ids[MOST], outputs[MOST], top[MOST];
    float logits[MOST];
    float *rows;
} answers;

// A token of each of n sequences, with all logits, or with the greatest.
static tern_status run(rig_machine *m, answers *a, int32_t n, bool all, tern_error *err) {
    tern_batch b = {.ids = a->ids,
                    .n_tokens = n,
                    .chunks = a->chunks,
                    .n_chunks = n,
                    .outputs = a->outputs,
                    .n_outputs = n,
                    .wants.top_k = !all,
                    .wants.top_ids = a->top,
                    .wants.top_logits = a->logits};
    if (all) tern_batch_bind(&b, tern_graph_scores(&m->g), a->rows);
    TERN_TRY(m->b->submit(m->single.instance, &b, err));
    for (bool done = false; !done;) TERN_TRY(m->b->poll(m->single.instance, &done, err));
    return TERN_OK;
}

static void compare(const screened *c, const answers *a, int device) {
    for (int32_t t = 0; t < c->n; t++) {
        const float *row = a->rows + t * c->n_vocab;
        int32_t best = -1;
        for (int32_t i = 0; i < c->n_vocab; i++)
            if (!isnan(row[i]) && (best < 0 || row[i] > row[best])) best = i;
        if (best < 0) continue; // no number
        bool is_same = a->top[t] == best && memcmp(&a->logits[t], &row[best], 4) == 0;
        CHECK_MSG(is_same, "device %d, %lld x %lld, row %d: %d with %a, not %d with %a", device,
                  (long long)c->n_vocab, (long long)c->n_in, (int)t, (int)a->top[t],
                  (double)a->logits[t], (int)best, (double)row[best]);
        if (!is_same) return;
    }
}

// What the approximate logits of few rows leave open: head_bound.wgsl's float_at, of place_of.
static tern_status check_few(rig_machine *m, const screened *c, answers *a, tern_error *err) {
    const tern_instance *in = m->single.instance;
    uint32_t places[GPU_FEW];
    TERN_TRY(gpu_read(m->d, in->screen_lists, 0, places, (uint64_t)c->n * 4, err));
    TERN_TRY(gpu_read(m->d, in->logits, 0, a->rows, (uint64_t)(c->n * c->n_vocab) * 4, err));
    for (int32_t t = 0; t < c->n; t++) {
        uint32_t bits = places[t] >> 31 ? places[t] & 0x7fffffff : ~places[t];
        float least = -3e38f;
        int64_t open = 0;
        if (places[t] != 0) memcpy(&least, &bits, sizeof least);
        for (int64_t i = 0; i < c->n_vocab; i++) open += a->rows[t * c->n_vocab + i] >= least;
        bool is_right = c->how == EITHER || (open > GPU_SCREEN_LIST) == (c->how == OPEN);
        CHECK_MSG(in->has_copy && open > 0 && is_right, "%lld x %lld, row %d: %lld tokens are open",
                  (long long)c->n_vocab, (long long)c->n_in, (int)t, (long long)open);
    }
    return TERN_OK;
}

// How many tokens each row has left open.
static tern_status check_lists(rig_machine *m, const screened *c, tern_error *err) {
    uint32_t n[MOST], open = 0, none = 0;
    const tern_instance *in = m->single.instance;
    TERN_TRY(gpu_read(m->d, in->screen_lists, 0, n, (uint64_t)c->n * sizeof *n, err));
    for (int32_t t = 0; t < c->n; t++) {
        open += n[t] > GPU_SCREEN_LIST;
        none += n[t] == 0 || n[t] > c->n_vocab;
    }
    uint32_t want = c->how == OPEN ? (uint32_t)c->n : 0;
    CHECK_MSG(none == 0 && in->has_copy && (c->how == EITHER || open == want),
              "%lld x %lld: %u of %d rows are open, %u have no list", (long long)c->n_vocab,
              (long long)c->n_in, open, (int)c->n, none);
    return TERN_OK;
}

static tern_status check_on(const screened *c, rig *r, rig_device device, answers *a,
                            tern_error *err) {
    rig_machine m;
    tern_status status = rig_set_up(&m, r, device, true, c->n, 4, TERN_KV_F16, err);
    for (int32_t i = 0; status == TERN_OK && i < c->n; i++) {
        a->ids[i] = (i * 7 + 3) % N_ROWS;
        a->outputs[i] = i;
        status = tern_sequence_open(&a->sequences[i], m.single.cache, err);
        if (status == TERN_OK) status = tern_sequence_reserve(a->sequences[i], 1, err);
        a->chunks[i] = (tern_chunk){.sequence = a->sequences[i], .n_tokens = 1};
    }
    if (status == TERN_OK) status = run(&m, a, c->n, true, err);
    if (status == TERN_OK) status = run(&m, a, c->n, false, err);
    if (status == TERN_OK) compare(c, a, device);
    if (status == TERN_OK)
        status = c->n <= GPU_FEW ? check_few(&m, c, a, err) : check_lists(&m, c, err);
    for (int32_t i = 0; i < c->n; i++) tern_sequence_close(a->sequences[i]);
    memset(a->sequences, 0, sizeof a->sequences);
    rig_take_down(&m);
    return status;
}

static void check(const screened *c, int n_devices) {
    answers *a = calloc(1, sizeof *a);
    rig r;
    if (!a) abort();
    a->rows = calloc((size_t)c->n_vocab * MOST, sizeof *a->rows);
    if (!a->rows) abort();
    rig_open(&r, N_ROWS);
    r.screens = true;
    rig_head(&r, rig_rows(&r, c->n_in, c->x), c->n_vocab, c->type, c->head);
    for (int d = RIG_GPU; d < n_devices; d++) {
        tern_error err = {0};
        tern_status status = check_on(c, &r, (rig_device)d, a, &err);
        CHECK_MSG(status == TERN_OK, "%s", err.message);
    }
    rig_close(&r);
    free(a->rows);
    free(a);
}

// Seen to fail: with 0.98 of the bound; without what rounding x loses; with lists of tokens that
// reach the greatest upper bound instead of the greatest lower one; without the kernel of all rows
// where lists are too short; with the sums of float_linear.wgsl in another order. With few rows:
// with 0.98 of the bound, upper bounds for lower ones, only the upper part of x, only eight tokens
// of a workgroup computed in full, a chain in another order, and the first row's x for all.
TEST(gpu_screened_heads_have_the_greatest_logits) {
    static const screened cases[] = {
        {1003, 200, TERN_DTYPE_F16, fill_outliers, fill_normal, 17, LISTED},
        {600, 1024, TERN_DTYPE_F32, fill_same, fill_along, 12, LISTED},
        {600, 1024, TERN_DTYPE_F32, fill_lost, fill_flat, 12, LISTED},
        {600, 1024, TERN_DTYPE_F32, fill_normal, fill_close, 12, OPEN},
        {600, 1024, TERN_DTYPE_F32, fill_kinds, fill_far, 12, EITHER},
        {1003, 200, TERN_DTYPE_F16, fill_outliers, fill_normal, 1, LISTED},
        {700, 320, TERN_DTYPE_F16, fill_normal, fill_normal, 7, LISTED},
        {600, 1024, TERN_DTYPE_F32, fill_same, fill_along, 2, LISTED},
        {600, 1024, TERN_DTYPE_F32, fill_lost, fill_flat, 3, LISTED},
        {600, 1024, TERN_DTYPE_F32, fill_normal, fill_close, 2, OPEN},
        {600, 200, TERN_DTYPE_F32, fill_kinds, fill_far, 8, EITHER},
        {700, 512, TERN_DTYPE_Q6_K, fill_outliers, fill_normal, 17, LISTED},
        {600, 256, TERN_DTYPE_Q4_K, fill_normal, fill_close, 12, OPEN},
        // In the long run:
        {1003, 2304, TERN_DTYPE_Q4_K, fill_outliers, fill_normal, 40, LISTED},
        {700, 320, TERN_DTYPE_Q5_0, fill_kinds, fill_kinds, 9, EITHER},
        {600, 72, TERN_DTYPE_F32, fill_normal, fill_equal, 9, LISTED},
        {600, 64, TERN_DTYPE_F32, fill_far, fill_normal, 40, EITHER},
        {700, 320, TERN_DTYPE_Q8_0, fill_outliers, fill_normal, 33, LISTED},
        {300, 128, TERN_DTYPE_F32, fill_normal, fill_close, 40, LISTED},
        {3000, 128, TERN_DTYPE_F16, fill_normal, fill_close, 12, OPEN},
        {1, 4, TERN_DTYPE_F32, fill_normal, fill_normal, 9, LISTED},
        {40000, 60, TERN_DTYPE_BF16, fill_kinds, fill_kinds, 16, EITHER},
        {5000, 2560, TERN_DTYPE_F16, fill_normal, fill_normal, 40, LISTED},
        {70000, 60, TERN_DTYPE_BF16, fill_kinds, fill_kinds, 1, EITHER},
        {40000, 128, TERN_DTYPE_F16, fill_normal, fill_normal, 1, LISTED},
        {1, 4, TERN_DTYPE_F32, fill_normal, fill_normal, 1, LISTED},
        {700, 320, TERN_DTYPE_F16, fill_far, fill_far, 5, EITHER},
    };
    if (!rig_has_gpu()) return;
    size_t n = rig_cases(sizeof cases / sizeof *cases, 13);
    for (size_t i = 0; i < n; i++) check(&cases[i], test_is_long() ? RIG_DEVICES : RIG_GPU_LEAST);
}

// ---- Drafts ------------------------------------------------------------------------------------

enum { N_DRAFTED = 24 };

// Each token depends on the last one alone: the text from `first` on, by rows of logits.
static tern_status say(rig_machine *m, answers *a, int32_t first, int32_t *text, tern_error *err) {
    a->ids[0] = first;
    for (int i = 0; i < N_DRAFTED; i++) {
        a->chunks[0] = (tern_chunk){.sequence = a->sequences[0], .n_tokens = 1, .first_pos = i};
        TERN_TRY(run(m, a, 1, true, err));
        int32_t best = 0;
        for (int32_t k = 1; k < N_ROWS; k++)
            if (a->rows[k] > a->rows[best]) best = k;
        a->ids[0] = text[i] = best;
    }
    return TERN_OK;
}

// The same by runs of n_each tokens that the device drafts, from a table that has some of them.
static tern_status draft(rig_machine *m, answers *a, const int32_t *text, int32_t n_each,
                         tern_error *err) {
    tern_draft_table table = {0};
    int32_t said[64], n = 2, known[N_DRAFTED];
    float logits[64];
    memcpy(known, text, sizeof known);
    TERN_TRY(tern_draft_table_open(&table, N_DRAFTED, 1, 8, err));
    tern_draft_table_set_run(&table, 0, known, 8);
    tern_status status = m->b->drafts_open(m->single.instance, &table, err);
    while (status == TERN_OK && n < N_DRAFTED) {
        tern_drafting q = {.before = text,
                           .n_before = n - 1,
                           .n_each = n_each,
                           .n_max = 64,
                           .n_wanted = N_DRAFTED};
        tern_chunk c = {.sequence = a->sequences[1], .n_tokens = 1, .first_pos = n};
        tern_batch b = {.ids = &text[n - 1],
                        .n_tokens = 1,
                        .chunks = &c,
                        .n_chunks = 1,
                        .outputs = a->outputs,
                        .n_outputs = 1,
                        .wants.top_k = 1,
                        .wants.top_ids = said,
                        .wants.top_logits = logits,
                        .wants.drafting = &q};
        status = m->b->submit(m->single.instance, &b, err);
        for (bool done = false; status == TERN_OK && !done;)
            status = m->b->poll(m->single.instance, &done, err);
        for (int32_t i = 0; status == TERN_OK && i < q.n && n + i < N_DRAFTED; i++)
            CHECK_MSG(said[i] == text[n + i], "runs of %d, token %d: %d, not %d", (int)n_each,
                      (int)(n + i), (int)said[i], (int)text[n + i]);
        n += q.n;
    }
    CHECK(status != TERN_OK || m->single.instance->has_copy);
    tern_draft_table_close(&table);
    return status;
}

static tern_status check_drafts(const rig *r, rig_device device, answers *a, tern_error *err) {
    rig_machine m;
    int32_t text[N_DRAFTED];
    tern_status status = rig_set_up(&m, r, device, true, GPU_SCREEN_ROWS, 128, TERN_KV_F16, err);
    for (int i = 0; status == TERN_OK && i < 2; i++) {
        status = tern_sequence_open(&a->sequences[i], m.single.cache, err);
        if (status == TERN_OK) status = tern_sequence_reserve(a->sequences[i], 120, err);
    }
    if (status == TERN_OK) status = say(&m, a, 5, text, err);
    for (int32_t n_each = 2; status == TERN_OK && n_each <= GPU_FEW; n_each += 3)
        status = draft(&m, a, text, n_each, err);
    for (int i = 0; i < 2; i++) tern_sequence_close(a->sequences[i]);
    rig_take_down(&m);
    return status;
}

// Seen to fail: without the copy for runs that the device drafts.
TEST(gpu_screened_heads_of_drafts) {
    if (!rig_has_gpu()) return;
    answers *a = calloc(1, sizeof *a);
    rig r;
    tern_error err = {0};
    if (!a || !(a->rows = calloc((size_t)N_ROWS * MOST, sizeof *a->rows))) abort();
    rig_open(&r, N_ROWS);
    r.screens = true;
    rig_head(&r, rig_rows(&r, 200, fill_normal), N_ROWS, TERN_DTYPE_F16, fill_normal);
    tern_status status = check_drafts(&r, RIG_GPU, a, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    rig_close(&r);
    free(a->rows);
    free(a);
}

TEST(gpu_screened_heads_translate) {
    rig r;
    rig_open(&r, N_ROWS);
    r.screens = true;
    rig_head(&r, rig_rows(&r, 64, fill_normal), 300, TERN_DTYPE_F16, fill_normal);
    rig_translate(&r);
    rig_close(&r);
}
