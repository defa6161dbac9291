// Times products with codes in groups, on one thread: `make
// build/grouped_bench`, then build/grouped_bench [VARIANT [COLUMNS]].
//
// One token from memory, in GB/s of the packed matrix and G weights/s; 2, 4, 8 and 512 tokens in G
// multiply-adds/s, and beside them the int8 peak, measured between the others since clocks and
// neighbours change. Slices of rows are timed and the best counts: other programs do not matter
// much.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/dtype/half.h"
#include "kernels/cpu/grouped/grouped.h"
#include "kernels/cpu/kernels.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *room(size_t n) {
    void *p = NULL;
    if (posix_memalign(&p, 64, (n + 63) / 64 * 64)) exit(1);
    memset(p, 0x3C, n); // no number of 16 bits that makes floats below the normal ones
    return p;
}

static double peak(const tern_cpu_kernels *k) {
    double best = 0;
    for (int i = 0; i < 20; i++) {
        double start = now();
        double macs = (double)k->t->peak_loop();
        double rate = macs / (now() - start);
        if (rate > best) best = rate;
    }
    return best * 1e-9;
}

static tern_grouped_rows tokens_new(const tern_grouped_kernels *k, size_t n_in, size_t n) {
    tern_grouped_rows x = {room(n_in * n), room(n_in / 64 * n * 4), room(n_in / 64 * n * 28),
                           room(n_in / 64 * n * 28), .n_tokens = n};
    tern_grouped_arrange(k, &x);
    for (size_t i = 0; i < n_in * n; i++) x.q[i] = (int8_t)(i * 7919 % 255 - 127);
    for (size_t i = 0; i < n_in / 64 * n; i++) x.scale[i] = 1e-3f;
    return x;
}

// Multiply-adds a second, the best of slices of `step` rows over all of the matrix, `rounds` times.
static double rate(const tern_grouped_kernels *k, const tern_grouped_matrix *m, size_t n,
                   size_t step, int rounds) {
    tern_grouped_rows x = tokens_new(k, m->n_in, n);
    void *scratch = room(tern_grouped_scratch_bytes(k, m));
    float *out = room(n * m->n_rows * 4);
    double best = 1e9;
    for (int i = 0; i < rounds; i++)
        for (size_t row = 0; row + step <= m->n_rows; row += step) {
            double start = now();
            k->multiply(m, &x, scratch, &(tern_product){row, row + step, out, m->n_rows, false});
            double took = now() - start;
            if (took < best) best = took;
        }
    free(x.q), free(x.scale), free(x.minus), free(x.minus_scaled), free(scratch), free(out);
    return (double)step * (double)m->n_in * (double)n / best * 1e-9;
}

static void measure(const char *name, const tern_cpu_kernels *k, tern_grouped_matrix m) {
    m.n_rows = ((size_t)96 << 20) / m.n_in / 32 * 32; // larger than caches
    if (m.bits <= 2)
        m.block_bytes = tern_grouped_block_bytes(m.n_in, m.group, m.bits);
    else if (!tern_grouped_wide_fits(&m))
        exit(1);
    m.data = room(m.n_rows / 16 * m.block_bytes);
    double one = rate(k->q, &m, 1, 2048, 3), top = peak(k);
    printf("%-7s %5.3f bits  1: %6.2f GB/s %6.1f G/s ", name,
           (double)m.block_bytes / 2 / (double)m.n_in,
           one * (double)m.block_bytes / 16 / (double)m.n_in, one);
    static const size_t counts[] = {2, 4, 8, 512};
    for (int i = 0; i < 4; i++) {
        tern_grouped_matrix part = m;
        if (counts[i] == 512) part.n_rows = 2048;
        double r =
            rate(k->q, &part, counts[i], counts[i] == 512 ? 256 : 512, counts[i] == 512 ? 4 : 1);
        printf(" %zu: %6.1f (%2.0f%%)", counts[i], r, 100 * r / top);
    }
    printf("  peak %.1f\n", peak(k));
    free((void *)m.data);
}

int main(int argc, char **argv) {
    tern_cpu_kernels k;
    size_t n_in = argc > 2 ? (size_t)atoi(argv[2]) : 2048;
    if (!tern_cpu_kernels_select(argc > 1 && *argv[1] ? argv[1] : NULL, &k)) return 2;
    static const struct {
        const char *name;
        tern_grouped_matrix m;
    } forms[] = {
        {"Q2_0", {.bits = 2, .group = 64}},
        {"Q1_0", {.bits = 1, .group = 128}},
        {"Q4_0", {.bits = 4, .group = 32, .zero = 8}},
        {"Q4_K", {.bits = 4, .group = 32, .super = 256, .has_minima = true}},
        {"Q5_0", {.bits = 5, .group = 32, .zero = 16}},
        {"Q5_K", {.bits = 5, .group = 32, .super = 256, .has_minima = true}},
        {"Q6_K", {.bits = 6, .group = 16, .super = 256, .zero = 32}},
        {"Q8_0", {.bits = 8, .group = 32, .zero = 128}},
        {"IQ4_XS", {.bits = 4, .group = 32, .super = 256, .zero = 128, .has_table = true}},
        {"MLX4/64", {.bits = 4, .group = 64, .has_minima = true, .is_bf16 = true}},
        {"GPTQ128", {.bits = 4, .group = 128, .zero = 8}},
    };
    printf("%s, %zu columns\n", k.q->name, n_in);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        tern_grouped_matrix m = forms[i].m;
        m.n_in = n_in;
        measure(forms[i].name, &k, m);
    }
    return 0;
}
