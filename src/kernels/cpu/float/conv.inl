// A causal depthwise convolution along a sequence: contract in kernels.h.
//
// Columns go in blocks, all rows of one before the next, so that the rows which the taps look back
// to are still in the first-level cache; the weights of a block are transposed once.

enum { CONV_BLOCK = 256 }; // columns: with 4 taps, weights and rows are 4 KB each

// Row t of the input, or of the state where t is before the run (t counts from the state's first).
VEC_INLINE const float *conv_row(const tern_conv_args *a, size_t t, size_t n_taps) {
    if (t < n_taps - 1) return a->state + t * a->n_cols;
    return a->x + (t - (n_taps - 1)) * a->x_stride;
}

// w[j][i] = tap j of column first + i.
VEC_INLINE void conv_weights(float (*w)[CONV_BLOCK], const tern_conv_args *a, size_t first,
                             size_t n_cols, size_t n_taps) {
    const float *from = a->w + first * n_taps;
    for (size_t i = 0; i < n_cols; i++) {
        for (size_t j = 0; j < n_taps; j++) w[j][i] = from[i * n_taps + j];
    }
}

// Columns [first, first + n_cols), n_cols <= CONV_BLOCK; n_taps is a constant in each use.
VEC_INLINE void conv_block(const tern_conv_args *a, size_t first, size_t n_cols, size_t n_taps) {
    float w[TERN_CONV_TAPS][CONV_BLOCK];
    conv_weights(w, a, first, n_cols, n_taps);
    for (size_t t = 0; t < a->n_rows; t++) {
        const float *rows[TERN_CONV_TAPS];
        float *y = a->y + t * a->y_stride + first;
        for (size_t j = 0; j < n_taps; j++) rows[j] = conv_row(a, t + j, n_taps) + first;
        for (size_t i = 0; i < n_cols; i += 16) {
            v16 sum = v16_set1(0);
            if (a->bias) sum = load_some(a->bias + first + i, n_cols - i);
            for (size_t j = 0; j < n_taps; j++) {
                v16 tap = load_some(w[j] + i, n_cols - i);
                sum = v16_fma(tap, load_some(rows[j] + i, n_cols - i), sum);
            }
            store_some(y + i, sum, n_cols - i);
        }
        if (a->act != TERN_ACT_NONE) act_row(y, y, n_cols, a->act);
    }
}

// The state's rows move up by n_rows; the places at the end get the last rows of x.
static void conv_keep(const tern_conv_args *a) {
    for (size_t t = 0; t + 1 < a->n_taps; t++) {
        const float *row = conv_row(a, t + a->n_rows, a->n_taps);
        memcpy(a->state + t * a->n_cols + a->first, row + a->first,
               (a->last - a->first) * sizeof(float));
    }
}

VEC_INLINE void conv_columns(const tern_conv_args *a, size_t n_taps) {
    for (size_t first = a->first; first < a->last; first += CONV_BLOCK) {
        size_t left = a->last - first;
        conv_block(a, first, left < CONV_BLOCK ? left : CONV_BLOCK, n_taps);
    }
}

static void conv(const tern_conv_args *a) {
    if (!a->n_rows) return;
    switch (a->n_taps) {
    case 3: conv_columns(a, 3); break;
    case 4: conv_columns(a, 4); break;
    default: conv_columns(a, a->n_taps); break;
    }
    conv_keep(a);
}
