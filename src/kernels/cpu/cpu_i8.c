// Quantized activations: how a value of type I8ROWS lies in memory.
#include "kernels/cpu/cpu.h"

static uint64_t round_64(uint64_t n) { return (n + 63) / 64 * 64; }

uint64_t cpu_i8_layout(const tern_device *d, int64_t n_in, int32_t n_tokens, void *memory,
                       cpu_i8 *out) {
    const tern_ternary_kernels *k = d->kernels.t;
    size_t stride = ((size_t)n_in + TERN_I8_PAD - 1) / TERN_I8_PAD * TERN_I8_PAD;
    size_t n = (size_t)n_tokens, most = k->gemv_tokens[d->packing], few = n < most ? n : most;
    uint64_t at_scale = round_64((uint64_t)stride * n), at_sum = at_scale + round_64(n * 4);
    uint64_t at_prepared = at_sum + round_64(n * 4);
    uint64_t at_panels = at_prepared + round_64(k->prepared_bytes(d->packing, (size_t)n_in, few));
    uint64_t end = at_panels + (n > most ? round_64(k->panels_bytes((size_t)n_in, n)) : 0);
    if (memory) {
        uint8_t *m = memory;
        *out = (cpu_i8){.rows = {.q = (int8_t *)m,
                                 .stride = stride,
                                 .inv_scale = (float *)(m + at_scale),
                                 .sum = (int32_t *)(m + at_sum),
                                 .n_tokens = n},
                        .prepared = m + at_prepared,
                        .panels = m + at_panels};
    }
    return end;
}

uint64_t cpu_groups_layout(const tern_device *d, int64_t n_in, int32_t n_tokens, void *memory,
                           tern_grouped_rows *out) {
    size_t n = (size_t)n_tokens, n_groups = (size_t)n_in / TERN_GROUP;
    uint64_t at_scale = round_64((uint64_t)n_in * n);
    uint64_t at_minus = at_scale + round_64(n_groups * n * 4);
    uint64_t each = round_64(n_groups * n * TERN_GROUP_PARTS * 4);
    uint8_t *m = memory;
    if (m) {
        *out = (tern_grouped_rows){.q = memory,
                                   .scale = (float *)(m + at_scale),
                                   .minus = (int32_t *)(m + at_minus),
                                   .minus_scaled = (float *)(m + at_minus + each),
                                   .n_tokens = n};
        tern_grouped_arrange(d->kernels.q, out);
    }
    return at_minus + 2 * each;
}
