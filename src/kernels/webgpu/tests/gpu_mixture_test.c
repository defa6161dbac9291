// Mixtures of experts: the GPU against the CPU.
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 41

// Few different scores, so that many are equal.
static void fill_equals(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)row;
    for (int64_t i = 0; i < n; i++) x[i] = (float)(int)(2 * rig_random(seed));
}

typedef struct router {
    int64_t n_experts;
    bool biased;
    rig_fill fill;
    tern_route_attrs attrs;
} router;

static const router routers[] = {
    {7, false, fill_normal, {.n_chosen = 2, .normed = true, .scale = 1}},
    {32, true, fill_normal, {4, .sigmoid = true, .normed = true, .eps = 1e-6f, .scale = 2.5f}},
    {9, false, fill_equals, {.n_chosen = 3, .scale = 1}},
    {128, true, fill_equals, {.n_chosen = 8, .sigmoid = true, .scale = 1}},
    {4, false, fill_normal, {.n_chosen = 4, .scale = 0.5f}},
    {1, false, fill_normal, {.n_chosen = 1, .normed = true, .scale = 1}},
};
#define N_ROUTERS rig_cases(sizeof routers / sizeof *routers, 4)

static tern_vid route(rig *r, const router *of) {
    tern_vid scores = rig_odd_rows(r, of->n_experts, of->fill);
    tern_vid bias = of->biased ? rig_vector(r, of->n_experts, fill_normal) : -1;
    return tern_g_route(&r->g, scores, bias, &of->attrs);
}

// The numbers of the experts, which must be the same, and their weights. Seen to fail: the later of
// equal scores; weights of score + bias; a sum over all experts.
TEST(gpu_routes_to_experts) {
    for (size_t i = 0; i < N_ROUTERS; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_output(&r, route(&r, &routers[i]));
        rig_compare(&r, rig_counts(), RIG_OF_ELEMENT, 1e-5);
        rig_close(&r);
    }
}

// Rows that all experts share, then a row for each. Seen to fail: the expert before; the first
// row for all; the last rows of an expert left out.
TEST(gpu_products_with_experts) {
    static const struct {
        int64_t n_in, n_out;
        tern_dtype type;
    } cases[] = {{64, 20, TERN_DTYPE_Q8_0},
                 {36, 33, TERN_DTYPE_F32},
                 {72, 16, TERN_DTYPE_F16},
                 {256, 64, TERN_DTYPE_Q4_0}};
    for (size_t i = 0; i < rig_cases(4, 3); i++) {
        const router *of = &routers[i];
        int32_t n = (int32_t)of->n_experts, k = of->attrs.n_chosen;
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid to = route(&r, of), x = rig_rows(&r, cases[i].n_in, fill_normal);
        tern_vid w = rig_parts(&r, n, k, cases[i].n_out, cases[i].n_in, cases[i].type, fill_normal);
        tern_vid h = tern_g_experts(&r.g, x, to, w);
        if (cases[i].n_out % 4 == 0) {
            w = rig_parts(&r, n, k, 12, cases[i].n_out, TERN_DTYPE_F32, fill_normal);
            h = tern_g_experts(&r.g, h, to, w);
        }
        rig_output(&r, h);
        rig_compare(&r, rig_counts(), RIG_OF_ROW, 2e-6);
        rig_close(&r);
    }
}

// Seen to fail: numbers of experts taken for weights.
TEST(gpu_sums_of_experts) {
    static const int64_t widths[] = {33, 128};
    for (size_t i = 0; i < 2; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid to = route(&r, &routers[i]);
        tern_vid x = rig_odd_rows(&r, widths[i] * routers[i].attrs.n_chosen, fill_normal);
        rig_output(&r, tern_g_mix(&r.g, x, to));
        rig_compare(&r, rig_counts(), RIG_OF_ROW, 1e-6);
        rig_close(&r);
    }
}

// A row's products do not depend on other rows. Seen to fail: sums over as many threads as there
// are rows.
TEST(gpu_experts_have_the_same_bits_in_any_batch) {
    if (!rig_has_gpu()) return;
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid to = route(&r, &routers[1]), x = rig_rows(&r, 72, fill_normal);
    tern_vid w = rig_parts(&r, 32, 4, 24, 72, TERN_DTYPE_F16, fill_normal);
    rig_show(&r, tern_g_mix(&r.g, tern_g_experts(&r.g, x, to, w), to));
    rig_same_bits(&r, TERN_KV_F32, 0);
    rig_close(&r);
}
