// What the files of the head share: the copy, and a query with its vectors.
#ifndef TERN_KERNELS_CPU_HEAD_PARTS_H
#define TERN_KERNELS_CPU_HEAD_PARTS_H

#include <stdatomic.h>
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/head/head_kernels.h"

enum { BLOCK = 256, WORD = 64 }; // rows that are screened together; of a word of a set

struct tern_head {
    tern_head_matrix w;
    const tern_float_kernels *f;
    const tern_head_kernels *k;
    size_t n_vectors, n_groups; // of a row
    uint64_t bytes;
    float rounding;                                 // G
    float *rho, *norm_w, *norm_r[TERN_HEAD_PLANES]; // [n_rows]
    uint8_t *codes, *scales, *bits[2];
    void *memory;
};

// Takes `bytes` of the block, from *at on; the block is NULL when sizes are only counted.
static inline void *part(uint8_t *memory, uint64_t *at, uint64_t bytes) {
    void *here = memory ? memory + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

static inline uint64_t tiles_of(uint64_t n_rows) {
    return (n_rows + TERN_HEAD_TILE - 1) / TERN_HEAD_TILE;
}

static inline uint8_t *codes_of(const tern_head *h, size_t row) {
    return h->codes + row / TERN_HEAD_TILE * TERN_HEAD_CODE_STEP * h->n_vectors +
           64 * (row % TERN_HEAD_TILE);
}

static inline uint8_t *scales_of(const tern_head *h, size_t row) {
    return h->scales + row / TERN_HEAD_TILE * TERN_HEAD_SCALE_STEP * h->n_groups +
           TERN_HEAD_LANES * (row % TERN_HEAD_TILE);
}

static inline uint8_t *bits_of(const tern_head *h, int plane, size_t row) {
    return h->bits[plane - 1] + row * 64 * h->n_groups;
}

// ---- A query -----------------------------------------------------------------------------------

typedef enum head_round { SCREEN, SEED, REFINE, FEW } head_round;

// The state of one vector. Several go through the rounds together, block by block, so that a block
// of the copy is fetched once for all of them.
typedef struct head_lane {
    const tern_head *h;
    const float *x;
    const uint64_t *allowed; // NULL: all rows
    int32_t k;
    int32_t n_seeds;
    float least; // M
    tern_head_vector codes;
    float half_xi;
    bool is_coarse; // a_1 is of hi alone
    bool is_deep;   // and the first round has computed a_3
    // The bound of the theorem for a_(p+1): at_w |w| + sum of at_r[p][i] |r_(i+1)| + 2^-100.
    float at_w, at_r[TERN_HEAD_PLANES][TERN_HEAD_PLANES];
    float at_r_deep;  // of |r_3|, the only one that counts if is_deep
    float *approx;    // [n_rows, whole tiles]: a_1, a_2, a_3 as rounds and tests go on
    float *block_top; // greatest a_1 of each BLOCK rows
    int32_t *ids;     // [n_rows]: seeds; then rows that passed all tests
    float *values;    // [n_rows]: their logits
    atomic_size_t n_listed, n_passed[2];
    atomic_size_t n_open; // if is_deep: of one block in SAMPLE, what plane 1 would have left open
} head_lane;

struct tern_head_query {
    const tern_head *h;
    head_lane lanes[TERN_HEAD_VECTORS_MAX];
    size_t n, n_max;
    bool is_open; // the last query's first plane left many rows open
    head_round round;
    void *memory;
};

// Quantizes a vector and computes its bounds. is_alone: it is the query's only one.
void tern_head_begin_lane(head_lane *q, const float *x, int32_t k, bool is_alone);

#endif
