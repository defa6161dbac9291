// Codes of four bits and more: products on the GPU against the scalar CPU kernels, which are the
// specification.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/webgpu/tests/gpu_rig_test.h"

#define N_ROWS 23

// ---- Blocks of any bits ------------------------------------------------------------------------

// The offset of a folder's group, as a multiple of its scale.
typedef enum offset { MIDDLE, MINIMUM, ZERO } offset;

// Where a block has numbers of 16 bits, less 1; 0: nowhere.
static const struct {
    tern_dtype type;
    uint8_t numbers[2];
    offset offset; // of G types
} types[] = {{TERN_DTYPE_Q4_K, {1, 3}, MIDDLE}, {TERN_DTYPE_Q8_0, {1}, MIDDLE},
             {TERN_DTYPE_Q6_K, {209}, MIDDLE},  {TERN_DTYPE_G4_64, {0}, MINIMUM},
             {TERN_DTYPE_Q5_1, {1, 3}, MIDDLE}, {TERN_DTYPE_Q4_0, {1}, MIDDLE},
             {TERN_DTYPE_Q5_K, {1, 3}, MIDDLE}, {TERN_DTYPE_G8_32, {0}, MINIMUM},
             {TERN_DTYPE_Q4_1, {1, 3}, MIDDLE}, {TERN_DTYPE_G4_128, {0}, ZERO},
             {TERN_DTYPE_Q3_K, {109}, MIDDLE},  {TERN_DTYPE_MXFP4, {0}, MIDDLE},
             {TERN_DTYPE_IQ4_XS, {1}, MIDDLE},  {TERN_DTYPE_IQ4_NL, {1}, MIDDLE},
             {TERN_DTYPE_Q5_0, {1}, MIDDLE},    {TERN_DTYPE_G8_128, {0}, MIDDLE},
             {TERN_DTYPE_G8_64, {0}, MINIMUM}};
enum { N_TYPES = sizeof types / sizeof *types };

// One in five is too small for a normal F16, as scales of two layers often are.
static uint16_t scale_bits(uint32_t *seed, size_t block) {
    float x = rig_random(seed) * (block % 5 == 3 ? 4e-5f : 0.02f);
    return tern_f32_to_f16(block % 17 == 9 ? 0 : x);
}

// BF16 numbers, as MLX has them; scales that F16 holds, too, for zeros.
static void put_affine(uint8_t *block, size_t i, uint32_t *seed) {
    bool is_zero = types[i].offset == ZERO;
    float scale = tern_bf16_to_f32(tern_f32_to_bf16(rig_random(seed) * 0.02f));
    if (is_zero || scale == 0) scale = ldexpf(1 + rintf(rig_random(seed) * 3) / 4, -7);
    unsigned code_max = tern_dtype_code_max(types[i].type);
    float zero = is_zero ? rintf(rig_random(seed) * 7 + 7) : (float)((code_max + 1) / 2);
    float offset_value = -zero * scale;
    if (types[i].offset == MINIMUM)
        offset_value = tern_bf16_to_f32(tern_f32_to_bf16(rig_random(seed) * 0.1f));
    memcpy(block, &scale, 4);
    memcpy(block + 4, &offset_value, 4);
}

static void fill_bytes(uint8_t *data, uint64_t bytes, size_t i, uint32_t *seed) {
    size_t each = tern_dtype_block_bytes(types[i].type);
    for (uint64_t k = 0; k < bytes; k++) data[k] = (uint8_t)(rig_random(seed) * 127.9f + 128);
    for (size_t b = 0; b < bytes / each; b++) {
        uint8_t *block = data + b * each;
        if (b % 7 < 2) memset(block, b % 7 ? 0xff : 0, each); // the greatest sums
        if (tern_dtype_code_max(types[i].type)) put_affine(block, i, seed);
        if (types[i].type == TERN_DTYPE_MXFP4) block[0] = (uint8_t)(110 + block[0] % 12);
        for (int k = 0; k < 2 && types[i].numbers[k] > 0; k++) {
            uint16_t bits = scale_bits(seed, b + (size_t)k);
            memcpy(block + types[i].numbers[k] - 1, &bits, 2);
        }
    }
}

// A weight of the rig becomes blocks of type i.
static void become_blocks(rig *r, size_t i, bool as_floats) {
    tern_weight_source *s = &r->sources[r->n_sources - 1];
    uint64_t bytes = 0, n_cols = (uint64_t)s->n_cols;
    if (!tern_dtype_bytes(types[i].type, (uint64_t)s->n_rows * n_cols, n_cols, &bytes)) abort();
    uint8_t *data = tern_alloc(TERN_MEM_MISC, (size_t)bytes);
    fill_bytes(data, bytes, i, &r->seed);
    tern_free((void *)s->data.memory);
    s->type = types[i].type;
    s->bytes = bytes;
    s->data = tern_blob_of(data, bytes);
    s->as_floats = as_floats;
}

static tern_vid blocks_matrix(rig *r, int64_t n_out, int64_t n_in, size_t i) {
    tern_vid v = rig_matrix(r, n_out, n_in, TERN_DTYPE_F32, false, fill_plus);
    become_blocks(r, i, false);
    r->has_ternary = true;
    return v;
}

// ---- Products ----------------------------------------------------------------------------------

static void check_bits(const float *want, const float *got, int64_t n, const char *device,
                       tern_dtype type) {
    int64_t n_other = 0;
    for (int64_t i = 0; i < n; i++) n_other += memcmp(want + i, got + i, sizeof *got) != 0;
    CHECK_MSG(n_other == 0, "%s: %lld of %lld products of %s have other bits than %s", device,
              (long long)n_other, (long long)n, tern_dtype_name(type),
              rig_rounds_quotients() ? "the CPU's" : "with all features");
}

// The CPU's, or, where activations are quantized by quotients that round otherwise, those of the
// device with other kernels.
static void compare_bits(rig *r, rig_batches how, tern_dtype type) {
    static const char *const names[] = {"CPU", "GPU", "GPU, least limits"};
    int64_t n = 0;
    for (int i = 0; how.n_tokens[i] > 0; i++) n += how.n_tokens[i];
    float *want = rig_run(r, RIG_CPU, how, true);
    for (int i = RIG_GPU; want && i < RIG_DEVICES; i++) {
        float *got = rig_run(r, (rig_device)i, how, true);
        float *done = got;
        if (got && i == RIG_GPU && !rig_rounds_quotients()) {
            done = want;
            want = got;
        } else if (got)
            check_bits(want, got, n * r->n_shown, names[i], type);
        tern_free(done);
    }
    tern_free(want);
}

// Steps, alone and together, and each tile of many rows.
static const rig_batches counts = {.n_tokens = {1, 3, 8, 9, 20, 40, 70}};

// fill_kinds, and rows with the greatest sums.
static void fill_ends(float *x, int64_t n, int64_t row, uint32_t *seed) {
    fill_kinds(x, n, row, seed);
    for (int64_t k = 0; row % 5 == 4 && k < n; k++) x[k] = (k / 64 % 2 ? -127 : 127) * 0.25f;
}

static void check_products(size_t i, int64_t n_out, int64_t n_in, bool added) {
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = rig_rows(&r, n_in, fill_ends);
    tern_vid y = tern_g_linear(&r.g, x, blocks_matrix(&r, n_out, n_in, i));
    if (added) y = tern_g_add(&r.g, rig_rows(&r, n_out, fill_normal), y);
    rig_show(&r, y);
    compare_bits(&r, counts, types[i].type);
    rig_close(&r);
}

// Seen to fail with F16 scales below 2^-14 taken for zero, with an fma that rounds twice, with
// halves of a block that are cut after 16 columns, and with the first group's sum for all in
// wide_gemm.wgsl.
TEST(gpu_wide_products_have_the_bits_of_the_cpu) {
    static const struct {
        int64_t n_out, n_in;
        bool added;
    } shapes[] = {{20, 512, false}, {36, 1536, true}, {68, 256, false}, {12, 768, true}};
    if (!rig_has_gpu()) return;
    for (size_t i = 0; i < rig_cases(N_TYPES, 4); i++)
        check_products(i, shapes[i % 4].n_out, shapes[i % 4].n_in, shapes[i % 4].added);
}

// ---- Products of halves ------------------------------------------------------------------------

enum { LONG = 1310 }; // tokens of a text

// Relative, of all of them.
static double distance(const float *a, const float *b, int64_t n) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        error += pow((double)a[i] - (double)b[i], 2);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(error / size);
}

// Factors are off by 2^-12 at most, most of them by less. Long chunks have the same bits in each
// tile, and the others have the bits of integers.
static void check_halves(int64_t n_out, int64_t n_in, size_t i, bool added) {
    const rig_batches whole = {.n_tokens = {LONG}}, cut = {.n_tokens = {131, LONG - 131}};
    const rig_batches pieces = {.n_tokens = {128, 128, 128}};
    const tern_dtype type = i < N_TYPES ? types[i].type : TERN_DTYPE_Q2_0;
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = rig_rows(&r, n_in, fill_normal);
    tern_vid w = i < N_TYPES ? blocks_matrix(&r, n_out, n_in, i)
                             : rig_matrix(&r, n_out, n_in, type, false, fill_two_bits);
    tern_vid y = tern_g_linear(&r.g, x, w);
    if (added) y = tern_g_add(&r.g, rig_rows(&r, n_out, fill_normal), y);
    rig_show(&r, y);
    r.has_ternary = true;
    float *want = rig_run(&r, RIG_GPU, whole, true);
    rig_set_products(TERN_MATMUL_HALF);
    float *got = rig_run(&r, RIG_GPU, whole, true), *other = rig_run(&r, RIG_GPU, cut, true);
    float *same = rig_run(&r, RIG_GPU, pieces, true);
    rig_set_products(TERN_MATMUL_EXACT);
    if (want && got && other && same) {
        double error = distance(got, want, LONG * r.n_shown);
        CHECK_MSG(error > 1e-7 && error < 1e-3, "%s: %g", tern_dtype_name(type), error);
        check_bits(got, other, LONG * r.n_shown, "another tile", type);
        check_bits(want, same, 384 * r.n_shown, "short chunks", type);
    }
    tern_free(want);
    tern_free(got);
    tern_free(other);
    tern_free(same);
    rig_close(&r);
}

// Seen to fail with scales of the block before, and with whole tiles that are four rows too far.
TEST(gpu_long_prompts_take_products_of_halves) {
    if (!rig_has_gpu()) return;
    if (!rig_set_products(TERN_MATMUL_EXACT)) {
        test_skip("the GPU has no matrix units");
        return;
    }
    for (size_t i = 0; i <= N_TYPES; i++) {
        check_halves(388, 512, i, i % 2 == 1);
        check_halves(132, 768, i, i % 2 == 0);
    }
}

// ---- Tables and heads --------------------------------------------------------------------------

static tern_vid blocks_table(rig *r, int64_t n_cols, size_t i) {
    tern_vid x = rig_rows_of(r, n_cols, TERN_DTYPE_F32, fill_plus);
    become_blocks(r, i, false);
    return x;
}

// Rows that are looked up are the CPU's to the bit. Seen to fail with the first group's scale for
// all.
TEST(gpu_wide_tables_have_the_bits_of_the_cpu) {
    if (!rig_has_gpu()) return;
    for (size_t i = 0; i < rig_cases(N_TYPES, 6); i++) {
        rig r;
        rig_open(&r, N_ROWS);
        rig_show(&r, blocks_table(&r, 512, i));
        compare_bits(&r, (rig_batches){.n_tokens = {1, 9}}, types[i].type);
        rig_close(&r);
    }
}

// A table that is the head, too, is stored once; its logits take float activations. Seen to fail
// with codes whose offset was forgotten, and with the first row of x for all.
TEST(gpu_wide_tables_are_heads) {
    if (!rig_has_gpu()) return;
    for (size_t i = 0; i < rig_cases(N_TYPES, 4); i++) {
        rig r;
        rig_open(&r, 1003);
        tern_vid x = blocks_table(&r, 768, i);
        tern_weight_source *head = &r.sources[0];
        head->is_matrix = head->is_head = true;
        r.n_shown = 1003;
        tern_vid w = tern_g_matrix(&r.g, "w0", 1003, 768);
        tern_g_output(&r.g, tern_g_linear(&r.g, rig_take_rows(&r, x), w), "logits");
        rig_compare(&r, rig_counts(), RIG_OF_ROW, 2e-6);
        rig_close(&r);
    }
}

// Every allocation of binding and compiling fails once. Seen to crash where a row's missing room
// was not noticed.
TEST(gpu_wide_codes_survive_failing_allocations) {
    if (!rig_has_gpu()) return;
    rig r;
    rig_open(&r, N_ROWS);
    tern_vid x = blocks_table(&r, 256, 0);
    rig_show(&r, tern_g_linear(&r.g, x, blocks_matrix(&r, 20, 256, 2)));
    rig_fail_allocations(&r);
    rig_close(&r);
}
