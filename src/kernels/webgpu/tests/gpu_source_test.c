// Ops of models that hear: windows and norms along a sound, and attention to what a sequence is
// about. The GPU against the CPU, with as many rows as a batch says.
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define COLS   20
#define FRAMES 150

// A batch that counts `n_frames` of the input "frames", at `position`; the output "shown".
static float *run_frames(rig_machine *m, const float *frames, int64_t n_frames, int32_t n_tokens,
                         int32_t position, int64_t *n_out) {
    tern_error err = {0};
    int32_t ids[FRAMES] = {0};
    tern_vid in = tern_graph_find(&m->g, "frames"), shown = tern_graph_find(&m->g, "shown");
    tern_batch batch = {.ids = ids, .n_tokens = n_tokens};
    batch.counts[m->g.values[in].dim] = n_frames;
    tern_graph_count_windows(&m->g, -1, 0, batch.counts);
    tern_batch_bind(&batch, in, n_frames ? (void *)(uintptr_t)frames : NULL);
    int64_t counts[TERN_DIMS_MAX];
    tern_batch_counts(&batch, &m->g, counts);
    *n_out = tern_graph_rows(&m->g, shown, counts) * m->g.values[shown].cols;
    float *out = tern_alloc_array(TERN_MEM_MISC, (size_t)*n_out + 1, sizeof *out);
    if (!out) abort();
    tern_batch_bind(&batch, shown, out);
    tern_status status = tern_single_run(&m->single, &batch, position, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", m->b->name, err.message);
    if (status == TERN_OK) return out;
    tern_free(out);
    return NULL;
}

// The greatest difference, as a part of the greatest number.
static double difference(const float *a, const float *b, int64_t n) {
    double worst = 0, most = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)a[i] - (double)b[i]);
        if (!(off <= worst)) worst = off; // not a number is the worst
        most = fmax(most, fabs((double)b[i]));
    }
    return worst / most;
}

typedef struct frames_batch {
    int32_t n_frames, n_tokens, position;
} frames_batch;

// Batches one after the other on one sequence of each device.
static void compare(const rig *r, const frames_batch *batches, size_t n, double bound) {
    if (!rig_has_gpu()) return;
    float frames[FRAMES * COLS];
    uint32_t seed = 11;
    fill_normal(frames, FRAMES * COLS, 0, &seed);
    for (int d = RIG_GPU; d < RIG_DEVICES; d++) {
        tern_error err = {0};
        rig_machine cpu, gpu;
        tern_status a = rig_set_up(&cpu, r, RIG_CPU, true, FRAMES, 64, TERN_KV_F32, &err);
        tern_status b = rig_set_up(&gpu, r, (rig_device)d, true, FRAMES, 64, TERN_KV_F32, &err);
        CHECK_MSG(a == TERN_OK && b == TERN_OK, "%s", err.message);
        for (size_t i = 0; i < n && a == TERN_OK && b == TERN_OK; i++) {
            const frames_batch *now = &batches[i];
            int64_t n_want, n_got;
            float *want =
                run_frames(&cpu, frames, now->n_frames, now->n_tokens, now->position, &n_want);
            float *got =
                run_frames(&gpu, frames, now->n_frames, now->n_tokens, now->position, &n_got);
            if (want && got) {
                double off = difference(got, want, n_want);
                CHECK(n_want == n_got);
                CHECK_MSG(off <= bound, "batch %zu: %g off", i, off);
            }
            tern_free(want);
            tern_free(got);
        }
        rig_take_down(&cpu);
        rig_take_down(&gpu);
    }
}

static tern_vid frames_of(rig *r) {
    return tern_g_input(&r->g, "frames", tern_g_dim(&r->g, "frames"), COLS, TERN_VALUE_F32);
}

// Rows by windows beside one token's. Seen to fail: taps by row where they go by column.
TEST(gpu_windows_along_a_sound) {
    static const struct {
        int64_t step, width, before, after;
        bool by_column;
    } cases[] = {{COLS, 2 * COLS, 0, 0, false},
                 {2 * COLS, 3 * COLS, COLS, COLS, true},
                 {28, 36, 5, 3, false},
                 {2 * COLS, 5 * COLS, 4 * COLS, 0, true}};
    static const frames_batch batches[] = {{150, 1, 0}, {5, 1, 0}, {31, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_open(&r, 4);
        tern_vid x = tern_g_padded_windows(&r.g, frames_of(&r), tern_g_dim(&r.g, "hops"),
                                           cases[i].step, cases[i].width, cases[i].before,
                                           cases[i].after, cases[i].by_column);
        rig_output(&r, tern_g_scale(&r.g, x, 3));
        tern_g_output(&r.g, tern_g_scale(&r.g, rig_rows(&r, 8, fill_normal), 1), "unused");
        compare(&r, batches, 3, 0);
        rig_close(&r);
    }
}

// A product of many rows, whose number comes with the batch, and a norm over all of them, far from
// zero. Seen to fail: squares of rows from their own means alone; rows after the 64th.
TEST(gpu_norms_of_whole_sounds) {
    static const frames_batch batches[] = {{150, 1, 0}, {3, 1, 0}, {65, 1, 0}};
    rig r;
    rig_open(&r, 4);
    tern_dim hops = tern_g_dim(&r.g, "hops");
    tern_vid x = tern_g_windows(&r.g, frames_of(&r), hops, COLS, 2 * COLS, false);
    x = tern_g_linear(&r.g, x, rig_matrix(&r, 68, 2 * COLS, TERN_DTYPE_F32, false, fill_normal));
    x = tern_g_bias(&r.g, x, rig_vector(&r, 68, fill_plus));
    x = tern_g_whole_norm(&r.g, x, rig_vector(&r, 68, fill_normal), rig_vector(&r, 68, fill_normal),
                          1e-5f);
    rig_output(&r, x);
    tern_g_output(&r.g, tern_g_scale(&r.g, rig_rows(&r, 8, fill_normal), 1), "unused");
    compare(&r, batches, 3, 3e-6);
    rig_close(&r);
}

// Rows are stored with a sequence's first tokens and read with all; a later sequence has fewer, and
// one has none. Heads of odd halves, and queries that share keys. Seen to fail: as many rows as a
// sequence before had.
TEST(gpu_attention_to_a_source) {
    static const int32_t heads[][3] = {{4, 4, 36}, {6, 2, 10}, {2, 1, 64}};
    static const frames_batch batches[] = {{150, 1, 0}, {0, 3, 1}, {0, 12, 4},
                                           {17, 2, 0},  {0, 1, 2}, {0, 2, 0}};
    for (size_t i = 0; i < rig_cases(3, 2); i++) {
        tern_attention_attrs a = {.n_heads = heads[i][0],
                                  .n_kv_heads = heads[i][1],
                                  .head_dim = heads[i][2],
                                  .scale = 0.3f};
        int64_t n_kv = a.n_kv_heads * a.head_dim;
        rig r;
        rig_open(&r, 4);
        tern_vid rows = frames_of(&r);
        tern_vid k = tern_g_linear(&r.g, rows,
                                   rig_matrix(&r, n_kv, COLS, TERN_DTYPE_F32, false, fill_normal));
        tern_vid v = tern_g_linear(&r.g, rows,
                                   rig_matrix(&r, n_kv, COLS, TERN_DTYPE_F16, false, fill_normal));
        tern_vid keys = tern_g_fixed_state(&r.g, "source_k.0", 160, n_kv);
        tern_vid values = tern_g_fixed_state(&r.g, "source_v.0", 160, n_kv);
        tern_vid n = tern_g_fixed_state(&r.g, "source_n", 1, 1);
        tern_g_source_store(&r.g, k, v, keys, values, n, &a);
        tern_vid q = rig_rows(&r, (int64_t)a.n_heads * a.head_dim, fill_normal);
        rig_output(&r, tern_g_cross_attention(&r.g, q, keys, values, n, &a));
        compare(&r, batches, 6, 1e-5);
        rig_close(&r);
    }
}
