// Every variant against sums written out here, to the bit: random and worst-case numbers, both
// widths of codes, both groups, every number of tokens up to two blocks, ranges of rows.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "kernels/cpu/check_random.h"
#include "kernels/cpu/grouped/tests/grouped_check.h"
#include "kernels/cpu/kernels.h"
#include "tests/support/harness.h"

typedef struct problem {
    tern_grouped_matrix m;
    size_t n_tokens, out_stride;
    int8_t *w;        // [rows up to a block][n_in]
    uint16_t *scales; // [the same][n_in / group]
    uint8_t *data;
    int8_t *q;      // [n_tokens][n_in]
    float *scale;   // [n_tokens][n_in / 64]
    int32_t *minus; // [n_tokens][n_in / 64][7]: the last of seven is read
    tern_grouped_rows x;
    void *scratch;         // enough for any variant
    float *expected, *out; // [n_tokens][out_stride]
} problem;

static void *array(size_t n, size_t size) {
    void *block = tern_alloc_array(TERN_MEM_MISC, n, size);
    if (!block) abort();
    return block;
}

static void fill_numbers(problem *p, bool worst) {
    size_t n_rows = (p->m.n_rows + 15) / 16 * 16, n_in = p->m.n_in, n_groups = n_in / 64;
    for (size_t i = 0; i < n_rows * n_in; i++) {
        int code = worst ? p->m.bits == 2 ? 3 : 1 : (int)(random_u32() % (p->m.bits == 2 ? 4 : 2));
        p->w[i] = (int8_t)(p->m.bits == 2 ? code - 1 : 2 * code - 1);
    }
    for (size_t i = 0; i < n_rows * (n_in / p->m.group); i++)
        p->scales[i] = tern_f32_to_f16(((float)(random_u32() % 2001) - 1000) * 1e-4f);
    memset(p->minus, 0, p->n_tokens * n_groups * 7 * sizeof *p->minus);
    for (size_t t = 0; t < p->n_tokens; t++)
        for (size_t i = 0; i < n_in; i++) {
            p->q[t * n_in + i] = worst ? (t & 1 ? -127 : 127) : (int8_t)(random_u32() % 255 - 127);
            p->minus[(t * n_groups + i / 64) * 7 + 6] -= p->q[t * n_in + i];
        }
    for (size_t i = 0; i < p->n_tokens * n_groups; i++)
        p->scale[i] = (float)(random_u32() % 1000) * 1e-5f;
}

// By the definition in grouped.h.
static float expected(const problem *p, size_t t, size_t r) {
    float sum = 0;
    size_t n_in = p->m.n_in;
    for (size_t g = 0; g < n_in / 64; g++) {
        int32_t acc = 0;
        for (size_t i = g * 64; i < g * 64 + 64; i++)
            acc += p->w[r * n_in + i] * p->q[t * n_in + i];
        float product = (float)acc * p->scale[t * (n_in / 64) + g];
        uint16_t bits = p->scales[r * (n_in / p->m.group) + g * 64 / p->m.group];
        sum = sum + tern_f16_to_f32(bits) * product;
    }
    return sum;
}

static problem problem_new(size_t n_in, size_t group, int bits, size_t n_rows, size_t n_tokens,
                           bool worst) {
    tern_cpu_kernels best;
    problem p = {.n_tokens = n_tokens, .out_stride = n_rows + 3};
    size_t n_blocks = (n_rows + 15) / 16, n_groups = n_in / 64;
    p.m = (tern_grouped_matrix){.n_in = n_in,
                                .n_rows = n_rows,
                                .group = (uint16_t)group,
                                .bits = (uint8_t)bits,
                                .block_bytes = tern_grouped_block_bytes(n_in, group, bits)};
    p.w = array(n_blocks * 16, n_in);
    p.scales = array(n_blocks * 16, n_in / group * 2);
    p.q = array(n_tokens, n_in);
    p.scale = array(n_tokens, n_groups * 4);
    p.minus = array(n_tokens, n_groups * 28);
    p.x = (tern_grouped_rows){array(n_tokens, n_in), array(n_tokens, n_groups * 4),
                              array(n_tokens, n_groups * 28), array(n_tokens, n_groups * 28),
                              .n_tokens = n_tokens};
    p.expected = array(n_tokens, p.out_stride * 4);
    p.out = array(n_tokens, p.out_stride * 4);
    if (posix_memalign((void **)&p.data, 64, n_blocks * p.m.block_bytes)) abort();
    p.m.data = p.data;
    tern_cpu_kernels_select(NULL, &best);
    p.scratch = array(tern_grouped_scratch_bytes(best.q, &p.m), 1);
    fill_numbers(&p, worst);
    for (size_t b = 0; b < n_blocks; b++)
        tern_grouped_pack(&p.m, p.w + b * 16 * n_in, p.scales + b * 16 * (n_in / group),
                          p.data + b * p.m.block_bytes);
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++) p.expected[t * p.out_stride + r] = expected(&p, t, r);
    return p;
}

static void problem_free(problem *p) {
    tern_free(p->w), tern_free(p->scales), tern_free(p->q), tern_free(p->scale);
    tern_free(p->minus), tern_free(p->x.q), tern_free(p->x.scale), tern_free(p->x.minus);
    tern_free(p->x.minus_scaled), tern_free(p->scratch);
    tern_free(p->expected), tern_free(p->out);
    free(p->data);
}

// Rows [first, last), once and added to themselves; others must stay.
static void check(const tern_grouped_kernels *k, problem *p, size_t first, size_t last) {
    size_t n_groups = p->m.n_in / 64;
    tern_grouped_arrange(k, &p->x);
    for (size_t t = 0; t < p->n_tokens; t++)
        tern_grouped_put_token(&p->x, p->m.n_in, t, p->q + t * p->m.n_in, p->scale + t * n_groups,
                               p->minus + t * n_groups * 7);
    for (size_t i = 0; i < p->n_tokens * p->out_stride; i++) p->out[i] = -7;
    for (int twice = 0; twice < 2; twice++) {
        k->multiply(&p->m, &p->x, p->scratch,
                    &(tern_product){first, last, p->out, p->out_stride, twice});
        for (size_t t = 0; t < p->n_tokens; t++)
            for (size_t r = 0; r < p->out_stride; r++) {
                float want = p->expected[t * p->out_stride + r];
                want = r < first || r >= last ? -7 : twice ? want + want : want;
                float got = p->out[t * p->out_stride + r];
                if (memcmp(&got, &want, 4) == 0) continue;
                RIGHT(false,
                      "%s: %d bits, group %d, %zu columns, %zu tokens: [%zu, %zu] of "
                      "rows %zu..%zu is %g, not %g",
                      k->name, p->m.bits, p->m.group, p->m.n_in, p->n_tokens, t, r, first, last,
                      (double)got, (double)want);
                return;
            }
    }
}

static void check_all(size_t n_in, size_t n_tokens, bool worst) {
    const char *names[8];
    size_t n = tern_cpu_kernels_list(names);
    for (int which = 0; which < 4; which++) {
        size_t group = which & 1 ? 128 : 64;
        if (n_in % group) continue;
        problem p = problem_new(n_in, group, which & 2 ? 1 : 2, 71, n_tokens, worst);
        for (size_t i = 0; i < n; i++) {
            tern_cpu_kernels k;
            CHECK(tern_cpu_kernels_select(names[i], &k));
            check(k.q, &p, 0, 71);
            check(k.q, &p, 16, 48);
            check(k.q, &p, 64, 71);
            check(k.q, &p, 32, 32);
        }
        problem_free(&p);
    }
}

// Seen to fail: when AVX-512 added fields up after shifting by one bit too few, when halves of 128
// columns took a scale each, when the last block of tokens was laid out as if it were whole, when
// AVX2 took one-bit codes once, when unpacked codes began their sums with 0 or fused the sum with
// scale's product, when all groups of unpacked codes took the first one's scale.
TEST(grouped_products_are_exact) {
    static const size_t widths[] = {64, 128, 192, 2048};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (size_t n_tokens = 1; n_tokens <= (widths[i] > 200 ? 5 : 25); n_tokens++)
            check_all(widths[i], n_tokens, n_tokens % 5 == 4);
    for (size_t n_tokens = 26; n_tokens <= 65; n_tokens += 13) check_all(1088, n_tokens, false);
}

TEST(grouped_products_of_the_greatest_numbers) {
    check_all(4096, 1, true);
    check_all(4096, 3, true);
}

// A row of each type that a file may have, packed: the numbers come back.
TEST(grouped_blocks_are_as_documented) {
    problem p = problem_new(256, 128, 2, 19, 1, false), q = problem_new(256, 128, 1, 19, 1, false);
    for (size_t r = 0; r < 19; r++)
        for (size_t i = 0; i < 256; i++) {
            CHECK(tern_grouped_number(&p.m, r, i) == p.w[r * 256 + i]);
            CHECK(tern_grouped_number(&q.m, r, i) == q.w[r * 256 + i]);
        }
    CHECK(p.m.block_bytes == 256 * 4 + 64 && q.m.block_bytes == 256 * 2 + 64);
    // Row 3, column 21 of two bits: of the second 16 columns number 5: byte 64 + 12 + 1, field 1.
    CHECK((p.data[64 + 13] >> 2 & 3) - 1 == p.w[3 * 256 + 21]);
    problem_free(&p);
    problem_free(&q);
}

// ---- Each kernel of the table ------------------------------------------------------------------

static void check_kernels(const tern_grouped_kernels *k) {
    problem p = problem_new(192, 64, 2, 71, 5, false);
    check(k, &p, 0, 71);
    problem_free(&p);
}

TEST(grouped_kernels_that_are_broken_are_found) { find_each_broken(check_kernels); }
