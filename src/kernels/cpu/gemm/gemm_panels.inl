// Panels, over the 16-lane vector; included after
//
//   GEMM_VALUES            values of k in a word
//   GEMM_UNIT              words of an inner step; panels are padded to whole steps
//   gemm_along(x, left)    16 words along a row that has `left` more values of k
//   gemm_across(x, ld, cols, left)  one word for each of 16 columns; `cols` remain

VEC_INLINE size_t panel_words(size_t depth) {
    return (depth + GEMM_VALUES * GEMM_UNIT - 1) / (GEMM_VALUES * GEMM_UNIT) * GEMM_UNIT;
}

// Turns rows of X into columns of a panel, 16 words at a time. A group that is wider than the rest
// of the tile overwrites the beginning of the next word's columns, so groups go from last to first.
VEC_INLINE void pack_along(float *to, const float *x, size_t ld, size_t n, size_t depth,
                           size_t tile) {
    for (size_t k = 0; k < depth; k += 16 * GEMM_VALUES, to += 16 * tile)
        for (size_t g = (tile - 1) / VEC_TURN_ROWS + 1; g-- > 0;) {
            v16 rows[VEC_TURN_ROWS];
#pragma GCC unroll 16
            for (size_t i = 0; i < VEC_TURN_ROWS; i++) {
                size_t row = g * VEC_TURN_ROWS + i;
                rows[i] = v16_set1(0);
                if (row < tile && row < n) {
                    rows[i] = gemm_along(x + row * ld + k, depth - k);
                    __builtin_prefetch(x + (row + tile) * ld + k, 0);
                }
            }
            v16_turn(to + g * VEC_TURN_ROWS, tile, rows);
        }
}

// Copies columns of X, a few values of k at a time so that whole cache lines are used.
VEC_INLINE void pack_across(float *to, const float *x, size_t ld, size_t n, size_t depth,
                            size_t tile) {
    const size_t panel = panel_words(depth) * tile;
    for (size_t k0 = 0; k0 < depth; k0 += 8) {
        size_t end = k0 + 8 < depth ? k0 + 8 : depth;
        for (size_t k = k0 + 8; k < k0 + 16; k++) // prefetch what comes next
            for (size_t p = 0; p < n; p += 16) __builtin_prefetch(x + k * ld + p, 0);
        for (size_t p = 0; p < n; p += tile) {
            float *at = to + p / tile * panel + k0 / GEMM_VALUES * tile;
            for (size_t k = k0; k < end; k += GEMM_VALUES, at += tile)
                for (size_t j = 0; j < tile; j += 16) {
                    v16 word = v16_set1(0);
                    if (j < n - p)
                        word = gemm_across(x + k * ld + p + j, ld, n - p - j, depth - k);
                    size_t words = (depth - k + GEMM_VALUES - 1) / GEMM_VALUES;
                    store_some(at + j, word, words * tile - j); // the next panel has begun already
                }
        }
    }
    const size_t words = (depth + GEMM_VALUES - 1) / GEMM_VALUES;
    for (size_t p = 0; p < n; p += tile)
        memset(to + p / tile * panel + words * tile, 0, (panel - words * tile) * sizeof *to);
}

VEC_INLINE void pack_panels(float *to, const float *x, size_t ld, size_t n, size_t depth,
                            size_t tile) {
    const size_t panel = panel_words(depth) * tile;
    for (size_t p = 0; p < n; p += tile)
        pack_along(to + p / tile * panel, x + p * ld, ld, n - p, depth, tile);
}
