// The recurrence of a selective state space for one head: contract in kernels.h.
//
// Rows go in tiles of 16, whose steps and decays are computed at once. Then each 16 columns of the
// state go through all rows of the tile on their own, and stay in the first-level cache.

enum { SSM_ROWS = 16 };

typedef struct ssm_tile {
    const tern_ssm_args *args;
    size_t first_row, n_rows;
    float step[SSM_ROWS], decay[SSM_ROWS];
} ssm_tile;

static void ssm_prepare(ssm_tile *tile) {
    const tern_ssm_args *args = tile->args;
    float raw[SSM_ROWS] = {0};
    for (size_t t = 0; t < tile->n_rows; t++)
        raw[t] = args->dt[(tile->first_row + t) * args->dt_stride];
    v16 step = vec_softplus(v16_add(v16_load(raw), v16_set1(args->dt_bias)));
    v16_store(tile->step, step);
    v16_store(tile->decay, vec_exp(v16_mul(v16_set1(args->A), step)));
}

// 16 columns from column c on, or `width` at the end.
VEC_INLINE void ssm_columns(const ssm_tile *tile, size_t c, size_t width) {
    const tern_ssm_args *args = tile->args;
    v16 skip = v16_set1(args->D);
    for (size_t t = 0; t < tile->n_rows; t++) {
        size_t row = tile->first_row + t, at = row * args->stride;
        const float *b = args->b + at, *to = args->c + at;
        float *state = args->state + c;
        v16 x = load_some(args->x + at + c, width), y = v16_set1(0);
        v16 d = v16_mul(v16_set1(tile->step[t]), x), decay = v16_set1(tile->decay[t]);
        for (size_t i = 0; i < args->n_state; i++, state += args->state_stride) {
            v16 s = v16_mul(load_some(state, width), decay);
            s = v16_fma(v16_set1(b[i]), d, s);
            store_some(state, s, width);
            y = v16_fma(s, v16_set1(to[i]), y);
        }
        store_some(args->out + row * args->out_stride + c, v16_fma(skip, x, y), width);
    }
}

static void ssm(const tern_ssm_args *args) {
    ssm_tile tile = {.args = args};
    for (size_t t = 0; t < args->n_rows; t += SSM_ROWS) {
        size_t left = args->n_rows - t, c = 0;
        tile.first_row = t;
        tile.n_rows = left < SSM_ROWS ? left : SSM_ROWS;
        ssm_prepare(&tile);
        for (; c + 16 <= args->n_cols; c += 16) ssm_columns(&tile, c, 16);
        if (c < args->n_cols) ssm_columns(&tile, c, args->n_cols - c);
    }
}
