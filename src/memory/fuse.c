// Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): scores of different kinds cannot be
// added, ranks can. 60 is the paper's constant: it keeps one first place from deciding alone.
#include <stdlib.h>
#include "memory/memory.h"

static int by_id(const void *a, const void *b) {
    const tern_fused *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int best_first(const void *a, const void *b) {
    const tern_fused *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return by_id(a, b);
}

void tern_fuse(tern_fused *out, size_t *n, const int64_t *a, size_t n_a, const int64_t *b,
               size_t n_b) {
    size_t n_all = n_a + n_b, n_out = 0;
    for (size_t i = 0; i < n_a; i++) out[i] = (tern_fused){a[i], 0, {(int32_t)i + 1, 0}};
    for (size_t i = 0; i < n_b; i++) out[n_a + i] = (tern_fused){b[i], 0, {0, (int32_t)i + 1}};
    if (n_all) qsort(out, n_all, sizeof *out, by_id);
    for (size_t i = 0; i < n_all; i++) {
        if (n_out && out[n_out - 1].id == out[i].id) {
            for (int k = 0; k < 2; k++)
                if (out[i].ranks[k]) out[n_out - 1].ranks[k] = out[i].ranks[k];
        } else {
            out[n_out++] = out[i];
        }
    }
    for (size_t i = 0; i < n_out; i++)
        for (int k = 0; k < 2; k++)
            if (out[i].ranks[k]) out[i].score += 1.0f / (60.0f + (float)out[i].ranks[k]);
    if (n_out) qsort(out, n_out, sizeof *out, best_first);
    *n = n_out;
}
