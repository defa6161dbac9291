// Master weights in bfloat16: half of the memory of floats, with 8 bits of precision.
//
// A step is often smaller than half of the gap between two such numbers, and rounded to the nearest
// it would be lost each time. So steps are computed in float and rounded at random, up as often as
// the number is near the upper neighbour: on average no step is lost (arXiv:2010.06192). The random
// bits are a function of seed, step, name and index: a run that is resumed, and one with other
// threads, has the same ones.
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "base/hash.h"
#include "kernels/cpu/train/cpu_train.h"

static void decode_row(const void *ctx, size_t row, float *room, float *out) {
    const tern_train_array *a = ctx;
    const uint16_t *from = a->halves + row * a->n_cols;
    (void)room;
    for (uint64_t i = 0; i < a->n_cols; i++) out[i] = tern_bf16_to_f32(from[i]);
}

tern_status cpu_train_array_new_bf16(tern_trainer_device *d, uint64_t n_rows, uint64_t n_cols,
                                     tern_train_array **out, tern_error *err) {
    tern_train_array *a = *out = tern_alloc(TERN_MEM_GRAPH, sizeof *a);
    if (!a) return tern_fail_memory(err, sizeof *a);
    *a = (tern_train_array){.device = d, .n = n_rows * n_cols, .n_cols = n_cols};
    a->codes = (tern_train_codes){.decode = decode_row, .ctx = a};
    a->halves = tern_alloc_array(TERN_MEM_WEIGHTS, a->n, sizeof *a->halves);
    if (a->halves) return TERN_OK;
    uint64_t bytes = a->n * sizeof *a->halves;
    tern_free(a);
    *out = NULL;
    return tern_fail_memory(err, bytes);
}

const float *cpu_train_floats(const cpu_train_run *run, tern_vid w, size_t first, size_t last,
                              float *room) {
    const tern_train_array *a = run->program->arrays[w];
    if (!a || !a->halves) return cpu_train_value(run, w);
    for (size_t i = first; i < last; i++) room[i] = tern_bf16_to_f32(a->halves[i]);
    return room;
}

cpu_masters cpu_train_masters(const cpu_train_run *run, tern_vid w) {
    const tern_train_array *a = run->program->arrays[w];
    const char *name = run->program->g->values[w].name;
    const uint64_t of[] = {run->batch->seed, (uint64_t)run->batch->step};
    return (cpu_masters){.data = a->data,
                         .halves = a->halves,
                         .key = tern_hash64(tern_hash64(0, of, sizeof of), name, strlen(name))};
}

float *cpu_train_take(const cpu_masters *m, size_t first, size_t n, float *room) {
    if (m->data) return m->data + first;
    for (size_t i = 0; i < n; i++) room[i] = tern_bf16_to_f32(m->halves[first + i]);
    return room;
}

// Four numbers share a random word. What is added carries into the upper half as often as the lower
// half is large; infinities and NaNs stay so.
void cpu_train_put(const cpu_masters *m, size_t first, size_t n, const float *from) {
    uint64_t word = 0;
    for (size_t i = 0; !m->data && i < n; i++) {
        const size_t at = first + i;
        if (i == 0 || at % 4 == 0) word = tern_mix64(m->key + at / 4);
        const uint32_t bits = tern_f32_to_bits(from[i]), random = word >> at % 4 * 16 & 0xFFFF;
        const bool is_finite = (bits & 0x7F800000) != 0x7F800000;
        m->halves[at] = is_finite ? (uint16_t)((bits + random) >> 16) : tern_f32_to_bf16(from[i]);
    }
}
