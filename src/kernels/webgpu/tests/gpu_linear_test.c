// Products with ternary and float matrices: the GPU against the CPU.
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 41

// ---- Ternary, exactly --------------------------------------------------------------------------

// The integers of a product, from outputs that are 0.5 (the codes' scale) * unit of the row * sum.
static void check_integers(const rig *r, const float *got, int32_t n_tokens, int64_t n_in,
                           const char *device) {
    static const double units[] = {1, 0.25, 64};
    const float *x = (const float *)r->sources[0].data.memory;
    const float *w = (const float *)r->sources[1].data.memory;
    int64_t n_out = r->sources[1].n_rows, n_wrong = 0;
    for (int32_t t = 0; t < n_tokens; t++) {
        int64_t row = (t * 7 + 3) % N_ROWS;
        double unit = units[row % 3];
        for (int64_t o = 0; o < n_out; o++) {
            double sum = 0; // of integers far below 2^53
            for (int64_t i = 0; i < n_in; i++)
                sum += (double)x[row * n_in + i] / unit * ((double)w[o * n_in + i] * 2);
            n_wrong += !(fabs((double)got[t * n_out + o] / (0.5 * unit) - sum) < 0.5);
        }
    }
    CHECK_MSG(n_wrong == 0, "%s: %lld of %lld sums of %lld x %lld are wrong", device,
              (long long)n_wrong, (long long)(n_tokens * n_out), (long long)n_out, (long long)n_in);
}

// A whole number below 2^20 that comes out of a float within half a step is that number: the
// float's own rounding is a sixteenth.
static void check_ternary(int64_t n_out, int64_t n_in, rig_fill codes, rig_batches how,
                          int32_t n_tokens) {
    static const struct {
        rig_device device;
        const char *name;
    } devices[] = {{RIG_CPU, "CPU"}, {RIG_GPU, "GPU"}, {RIG_GPU_LEAST, "GPU, least limits"}};
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = rig_rows(&r, n_in, fill_integers);
    tern_vid w = rig_matrix(&r, n_out, n_in, TERN_DTYPE_F32, true, codes);
    rig_show(&r, tern_g_bitlinear(&r.g, x, w));
    for (int d = 0; d < 3; d++) {
        float *got = rig_run(&r, devices[d].device, how, true);
        if (got) check_integers(&r, got, n_tokens, n_in, devices[d].name);
        tern_free(got);
    }
    rig_close(&r);
}

TEST(gpu_ternary_products_are_exact) {
    static const struct {
        int64_t n_out, n_in;
        rig_fill codes;
    } cases[] = {{20, 132, fill_codes},  {4, 6912, fill_plus},   {68, 60, fill_minus},
                 {4, 4, fill_codes},     {8, 64, fill_codes},    {12, 68, fill_minus},
                 {68, 60, fill_plus},    {36, 6912, fill_codes}, {132, 320, fill_codes},
                 {128, 2560, fill_codes}};
    // Steps, and each tile of many rows.
    static const rig_batches few = {.n_tokens = {1, 3, 8, 9, 20, 40, 130}};
    if (!rig_has_gpu()) return;
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++)
        check_ternary(cases[i].n_out, cases[i].n_in, cases[i].codes,
                      test_is_long() ? rig_counts() : few, test_is_long() ? 192 : 211);
}

// ---- Groups and sums ---------------------------------------------------------------------------

// Two to four products of one input, each with rows of its own; then their concatenation, by
// matrices that put each to its place.
static tern_vid place;
static void fill_place(float *x, int64_t n, int64_t row, uint32_t *seed) {
    (void)seed;
    for (int64_t i = 0; i < n; i++) x[i] = i == row - place ? 1 : 0;
}

static void check_group(int64_t n_in, const int64_t *n_out, int n, bool ternary) {
    rig r;
    rig_open(&r, N_ROWS);
    int64_t n_all = 0;
    for (int i = 0; i < n; i++) n_all += n_out[i];
    tern_vid x = rig_rows(&r, n_in, ternary ? fill_integers : fill_normal), all = -1;
    tern_vid y[4];
    for (int i = 0; i < n; i++) {
        tern_vid w = rig_matrix(&r, n_out[i], n_in, TERN_DTYPE_F32, ternary,
                                ternary ? fill_codes : fill_normal);
        y[i] = ternary ? tern_g_bitlinear(&r.g, x, w) : tern_g_linear(&r.g, x, w);
    }
    place = 0;
    for (int i = 0; i < n; i++) {
        tern_vid w = rig_matrix(&r, n_all, n_out[i], TERN_DTYPE_F32, false, fill_place);
        tern_vid part = tern_g_linear(&r.g, y[i], w);
        all = i ? tern_g_add(&r.g, all, part) : part;
        place += (tern_vid)n_out[i];
    }
    rig_show(&r, all);
    rig_compare(&r, rig_counts(), RIG_OF_ROW, ternary ? 5e-7 : 2e-6);
    rig_close(&r);
}

TEST(gpu_groups_of_products) {
    check_group(192, (const int64_t[]){20, 36, 8, 4}, 4, true);
    check_group(36, (const int64_t[]){12, 8, 4}, 3, false);
    if (!test_is_long()) return;
    check_group(128, (const int64_t[]){64, 32, 32}, 3, true);
    check_group(68, (const int64_t[]){12, 4}, 2, true);
}

// A ternary group with one matrix that is not ternary.
TEST(gpu_groups_of_both_kinds) {
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = rig_rows(&r, 64, fill_integers);
    tern_vid a = rig_matrix(&r, 32, 64, TERN_DTYPE_F32, true, fill_codes);
    tern_vid b = rig_matrix(&r, 32, 64, TERN_DTYPE_F16, false, fill_normal);
    rig_show(&r, tern_g_add(&r.g, tern_g_bitlinear(&r.g, x, a), tern_g_linear(&r.g, x, b)));
    rig_compare(&r, rig_counts(), RIG_OF_ROW, 2e-6);
    rig_close(&r);
}

TEST(gpu_products_added_to_a_residual) {
    static const struct {
        int64_t n_out, n_in;
        bool ternary;
        tern_dtype type;
    } cases[] = {{64, 192, true, TERN_DTYPE_F32},
                 {68, 72, false, TERN_DTYPE_F16},
                 {12, 20, false, TERN_DTYPE_F32},
                 {36, 6912, true, TERN_DTYPE_F32}};
    rig_batches how = rig_counts();
    how.plain = test_is_long();
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        bool ternary = cases[i].ternary;
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, cases[i].n_in, ternary ? fill_integers : fill_normal);
        tern_vid residual = rig_rows(&r, cases[i].n_out, fill_normal);
        tern_vid w = rig_matrix(&r, cases[i].n_out, cases[i].n_in, cases[i].type, ternary,
                                ternary ? fill_codes : fill_normal);
        tern_vid y = ternary ? tern_g_bitlinear(&r.g, x, w) : tern_g_linear(&r.g, x, w);
        rig_show(&r, tern_g_add(&r.g, residual, y));
        rig_compare(&r, how, RIG_OF_ROW, 3e-6);
        rig_close(&r);
    }
}

// ---- Floats ------------------------------------------------------------------------------------

TEST(gpu_float_products) {
    static const struct {
        int64_t n_out, n_in;
        tern_dtype type;
    } cases[] = {{68, 60, TERN_DTYPE_F32},  {132, 200, TERN_DTYPE_F16}, {32, 256, TERN_DTYPE_Q8_0},
                 {36, 60, TERN_DTYPE_F16},  {8, 8, TERN_DTYPE_F16},     {4, 4, TERN_DTYPE_F32},
                 {64, 64, TERN_DTYPE_BF16}, {20, 256, TERN_DTYPE_Q6_K}, {20, 64, TERN_DTYPE_Q4_0}};
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        bool rounds = cases[i].type == TERN_DTYPE_Q6_K; // to f16
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, cases[i].n_in, fill_normal);
        tern_vid w =
            rig_matrix(&r, cases[i].n_out, cases[i].n_in, cases[i].type, false, fill_normal);
        rig_show(&r, tern_g_linear(&r.g, x, w));
        rig_compare(&r, rig_counts(), RIG_OF_ROW, rounds ? 5e-4 : 5e-6);
        rig_close(&r);
    }
}

// The head has any number of rows, and is computed for only some of the tokens.
TEST(gpu_heads_of_odd_sizes) {
    static const struct {
        int64_t n_vocab, n_in;
        tern_dtype type;
    } cases[] = {{1, 4, TERN_DTYPE_F32}, {31, 64, TERN_DTYPE_F16}, {1003, 40, TERN_DTYPE_F16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, cases[i].n_in, fill_normal);
        tern_vid w =
            rig_matrix(&r, cases[i].n_vocab, cases[i].n_in, cases[i].type, false, fill_normal);
        r.sources[r.n_sources - 1].is_head = true;
        r.n_shown = cases[i].n_vocab;
        tern_g_output(&r.g, tern_g_linear(&r.g, rig_take_rows(&r, x), w), "logits");
        rig_compare(&r, rig_counts(), RIG_OF_ROW, 5e-6);
        rig_close(&r);
    }
}

// Columns of several steps, the last one not full.
TEST(gpu_heads_give_few_rows_the_bits_of_one) {
    static const struct {
        tern_dtype type;
        int64_t n_in;
    } cases[] = {{TERN_DTYPE_F16, 2600}, {TERN_DTYPE_Q8_0, 4640}, {TERN_DTYPE_F32, 1300}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows(&r, cases[i].n_in, fill_normal);
        tern_vid w = rig_matrix(&r, 71, cases[i].n_in, cases[i].type, false, fill_normal);
        r.sources[r.n_sources - 1].is_head = true;
        r.n_shown = 71;
        tern_g_output(&r.g, tern_g_linear(&r.g, rig_take_rows(&r, x), w), "logits");
        rig_same_bits(&r, TERN_KV_AUTO, 0);
        rig_close(&r);
    }
}

// Heads that a mode converts, alone or when the head is also the table, which keeps its own rows.
TEST(gpu_heads_that_a_mode_converts) {
    static const struct {
        tern_head_mode mode;
        bool tied;
        double tolerance;
    } cases[] = {{TERN_HEAD_Q8_0, true, 5e-6},
                 {TERN_HEAD_Q6_K, false, 5e-4},
                 {TERN_HEAD_Q4_0, false, 5e-6},
                 {TERN_HEAD_EXACT, true, 5e-6},
                 {TERN_HEAD_Q8_0, false, 5e-6}};
    size_t n = rig_cases(sizeof cases / sizeof *cases, 3);
    for (size_t i = 0; i < n; i++) {
        rig r;
        rig_open(&r, N_ROWS);
        tern_vid x = rig_rows_of(&r, 256, TERN_DTYPE_F16, fill_normal);
        tern_vid w = cases[i].tied ? tern_g_matrix(&r.g, "w0", N_ROWS, 256)
                                   : rig_matrix(&r, 35, 256, TERN_DTYPE_F16, false, fill_normal);
        tern_weight_source *head = &r.sources[r.n_sources - 1];
        head->is_matrix = head->is_head = true;
        head->head = cases[i].mode;
        r.n_shown = cases[i].tied ? N_ROWS : 35;
        tern_vid gate = tern_g_act(&r.g, x, TERN_ACTIVATION_SILU);
        tern_g_output(&r.g, tern_g_linear(&r.g, rig_take_rows(&r, gate), w), "logits");
        rig_compare(&r, rig_counts(), RIG_OF_ROW, cases[i].tolerance);
        rig_close(&r);
    }
}

// bf16 beyond the range of f16.
static void fill_far(float *x, int64_t n, int64_t row, uint32_t *seed) {
    for (int64_t i = 0; i < n; i++) x[i] = rig_random(seed) * (row % 2 ? 1e6f : 1.0f);
}

TEST(gpu_weights_beyond_f16) {
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = rig_rows_of(&r, 64, TERN_DTYPE_BF16, fill_far);
    tern_vid w = rig_matrix(&r, 32, 64, TERN_DTYPE_BF16, false, fill_far);
    rig_show(&r, tern_g_linear(&r.g, x, w));
    rig_compare(&r, rig_counts(), RIG_OF_ROW, 5e-6);
    rig_close(&r);
}
