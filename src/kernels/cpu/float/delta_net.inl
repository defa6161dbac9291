// The recurrence of a gated delta net for one value head: contract in kernels.h.
//
// Rows go in tiles, whose gates and unit vectors are computed once. Then each block of columns of
// the state goes through all rows of the tile on its own, in scratch, where it stays in the
// first-level cache. The state is read once for two rows: where a row's k d^T is added and its
// output taken, the next row's decay and S^T k follow in registers.

typedef struct delta_tile {
    const tern_delta_net_args *args;
    size_t first_row, n_rows;
    float *decay, *beta; // [DELTA_NET_ROWS]
    float *q, *k;        // [DELTA_NET_ROWS][dk]
    float *block;        // [dk][columns of the block]
} delta_tile;

// y = x * (1 / sqrt(sum x^2 + eps)) * factor, the products in this order.
VEC_INLINE void delta_unit(float *y, const float *x, size_t n, float eps, float factor) {
    v16 squares = v16_set1(0);
    for (size_t i = 0; i < n; i += 16) {
        v16 a = load_some(x + i, n - i);
        squares = v16_fma(a, a, squares);
    }
    v16 r = v16_set1(1 / sqrtf(v16_sum(squares) + eps)), f = v16_set1(factor);
    for (size_t i = 0; i < n; i += 16)
        store_some(y + i, v16_mul(v16_mul(load_some(x + i, n - i), r), f), n - i);
}

static void delta_gates(const delta_tile *tile) {
    const tern_delta_net_args *args = tile->args;
    float a[DELTA_NET_ROWS] = {0}, b[DELTA_NET_ROWS] = {0};
    for (size_t t = 0; t < tile->n_rows; t++) {
        a[t] = args->a[(tile->first_row + t) * args->gate_stride];
        b[t] = args->b[(tile->first_row + t) * args->gate_stride];
    }
    for (size_t t = 0; t < tile->n_rows; t += 16) {
        v16 step = vec_softplus(v16_add(v16_load(a + t), v16_set1(args->dt_bias)));
        v16_store(tile->decay + t, vec_exp(v16_mul(v16_set1(args->A), step)));
        v16_store(tile->beta + t, logistic(v16_load(b + t)));
    }
}

static void delta_prepare(const delta_tile *tile) {
    const tern_delta_net_args *args = tile->args;
    size_t dk = args->dk;
    float q_scale = 1 / sqrtf((float)dk);
    delta_gates(tile);
    for (size_t t = 0; t < tile->n_rows; t++) {
        size_t at = (tile->first_row + t) * args->stride;
        delta_unit(tile->q + t * dk, args->q + at, dk, args->eps, q_scale);
        delta_unit(tile->k + t * dk, args->k + at, dk, args->eps, 1);
    }
}

// The first row's decayed state to the block, and its S^T k.
VEC_INLINE void delta_begin(const delta_tile *tile, const float *state, int groups, size_t width,
                            v16 *sk) {
    const tern_delta_net_args *args = tile->args;
    v16 decay = v16_set1(tile->decay[0]);
    float *block = tile->block;
    for (int g = 0; g < groups; g++) sk[g] = v16_set1(0);
    for (size_t i = 0; i < args->dk; i++, state += args->state_stride, block += 16 * groups) {
        v16 k = v16_set1(tile->k[i]);
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            v16 s = v16_mul(load_some(state + 16 * g, width), decay);
            v16_store(block + 16 * g, s);
            sk[g] = v16_fma(s, k, sk[g]);
        }
    }
}

// Row t's k d^T into the block and its output; the next row's decay and S^T k, which take the place
// of row t's.
VEC_INLINE void delta_next(const delta_tile *tile, size_t t, int groups, const v16 *d, v16 *sk,
                           v16 *o) {
    size_t dk = tile->args->dk;
    const float *q_t = tile->q + t * dk, *k_t = tile->k + t * dk, *k_next = k_t + dk;
    v16 decay = v16_set1(tile->decay[t + 1]);
    float *block = tile->block;
    for (int g = 0; g < groups; g++) sk[g] = o[g] = v16_set1(0);
    for (size_t i = 0; i < dk; i++, block += 16 * groups) {
        v16 k = v16_set1(k_t[i]), q = v16_set1(q_t[i]), next = v16_set1(k_next[i]);
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            v16 s = v16_fma(k, d[g], v16_load(block + 16 * g));
            o[g] = v16_fma(s, q, o[g]);
            s = v16_mul(s, decay);
            v16_store(block + 16 * g, s);
            sk[g] = v16_fma(s, next, sk[g]);
        }
    }
}

// The last row's k d^T and output; the block back to the state.
VEC_INLINE void delta_end(const delta_tile *tile, float *state, int groups, size_t width,
                          const v16 *d, v16 *o) {
    const tern_delta_net_args *args = tile->args;
    size_t t = tile->n_rows - 1;
    const float *q_t = tile->q + t * args->dk, *k_t = tile->k + t * args->dk, *block = tile->block;
    for (int g = 0; g < groups; g++) o[g] = v16_set1(0);
    for (size_t i = 0; i < args->dk; i++, state += args->state_stride, block += 16 * groups) {
        v16 k = v16_set1(k_t[i]), q = v16_set1(q_t[i]);
#pragma GCC unroll 4
        for (int g = 0; g < groups; g++) {
            v16 s = v16_fma(k, d[g], v16_load(block + 16 * g));
            store_some(state + 16 * g, s, width);
            o[g] = v16_fma(s, q, o[g]);
        }
    }
}

// `groups` groups of 16 columns from column c on, or one of `width`; both constants in each use,
// but for the width of the end.
VEC_INLINE void delta_columns(const delta_tile *tile, size_t c, int groups, size_t width) {
    const tern_delta_net_args *args = tile->args;
    v16 sk[DELTA_NET_COLS / 16], o[DELTA_NET_COLS / 16], d[DELTA_NET_COLS / 16];
    const float *v = args->v + tile->first_row * args->stride + c;
    float *out = args->out + tile->first_row * args->out_stride + c;
    delta_begin(tile, args->state + c, groups, width, sk);
    for (size_t t = 0; t < tile->n_rows; t++, v += args->stride, out += args->out_stride) {
        v16 beta = v16_set1(tile->beta[t]);
        for (int g = 0; g < groups; g++)
            d[g] = v16_mul(beta, v16_sub(load_some(v + 16 * g, width), sk[g]));
        if (t + 1 < tile->n_rows) delta_next(tile, t, groups, d, sk, o);
        else delta_end(tile, args->state + c, groups, width, d, o);
        for (int g = 0; g < groups; g++) store_some(out + 16 * g, o[g], width);
    }
}

static void delta_net(const tern_delta_net_args *args) {
    float *scratch = args->scratch;
    delta_tile tile = {.args = args, .decay = scratch, .beta = scratch + DELTA_NET_ROWS};
    tile.block = scratch + 2 * DELTA_NET_ROWS;
    tile.q = tile.block + DELTA_NET_COLS * args->dk;
    tile.k = tile.q + DELTA_NET_ROWS * args->dk;
    for (size_t t = 0; t < args->n_rows; t += DELTA_NET_ROWS) {
        size_t left = args->n_rows - t, c = 0;
        tile.first_row = t;
        tile.n_rows = left < DELTA_NET_ROWS ? left : DELTA_NET_ROWS;
        delta_prepare(&tile);
        for (; VEC_DELTA_GROUPS > 1 && c + 16 * VEC_DELTA_GROUPS <= args->dv;
             c += 16 * VEC_DELTA_GROUPS)
            delta_columns(&tile, c, VEC_DELTA_GROUPS, 16);
        for (; c + 16 <= args->dv; c += 16) delta_columns(&tile, c, 1, 16);
        if (c < args->dv) delta_columns(&tile, c, 1, args->dv - c);
    }
}
