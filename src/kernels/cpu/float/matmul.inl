// Matrix products. The dot of two rows is 16 partial sums by fma, added up at the end; that is one
// chain of dependent fmas per dot, so several dots run side by side to hide the latency and to use
// each loaded vector more than once.

VEC_INLINE void put(float *y, float dot, bool accumulate) { *y = accumulate ? *y + dot : dot; }

static float dot(const float *a, const float *b, size_t n) {
    v16 sum = v16_set1(0);
    for (size_t i = 0; i < n; i += 16)
        sum = v16_fma(load_some(a + i, n - i), load_some(b + i, n - i), sum);
    return v16_sum(sum);
}

// ---- Rows of floats ----------------------------------------------------------------------------

// A row of a tile. n is a constant in each use.
VEC_INLINE void put_sums(float *y, const v16 *dots, int n, bool accumulate) {
#ifdef VEC_HAS_SUMS
    if (n == VEC_MATMUL_ROWS) {
        v16 sums = v16_sums(dots);
        if (accumulate) sums = v16_add(v16_load_n(y, (size_t)n), sums);
        v16_store_n(y, sums, (size_t)n);
        return;
    }
#endif
#pragma GCC unroll 8
    for (int j = 0; j < n; j++) put(y + j, v16_sum(dots[j]), accumulate);
}

// n_tokens x n_rows dots beginning at token t and row r; both counts are constants in each use.
VEC_INLINE void matmul_tile(const tern_matmul_args *m, size_t t, size_t r, int n_tokens,
                            int n_rows) {
    const float *x[VEC_MATMUL_TOKENS], *w[VEC_MATMUL_ROWS];
    v16 acc[VEC_MATMUL_TOKENS][VEC_MATMUL_ROWS];
#pragma GCC unroll 8
    for (int i = 0; i < n_tokens; i++) x[i] = m->x + (t + (size_t)i) * m->x_stride;
#pragma GCC unroll 8
    for (int j = 0; j < n_rows; j++) w[j] = m->w + (r + (size_t)j) * m->n_in;
#pragma GCC unroll 8
    for (int i = 0; i < n_tokens; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < n_rows; j++) acc[i][j] = v16_set1(0);
    }
    size_t k = 0;
    for (; k + 16 <= m->n_in; k += 16) {
        v16 a[VEC_MATMUL_TOKENS];
#pragma GCC unroll 8
        for (int i = 0; i < n_tokens; i++) a[i] = v16_load(x[i] + k);
#pragma GCC unroll 8
        for (int j = 0; j < n_rows; j++) {
            v16 b = v16_load(w[j] + k);
#pragma GCC unroll 8
            for (int i = 0; i < n_tokens; i++) acc[i][j] = v16_fma(a[i], b, acc[i][j]);
        }
    }
    size_t left = m->n_in - k;
#pragma GCC unroll 8
    for (int i = 0; i < n_tokens; i++) {
#pragma GCC unroll 8
        for (int j = 0; left && j < n_rows; j++) {
            v16 a = v16_load_n(x[i] + k, left), b = v16_load_n(w[j] + k, left);
            acc[i][j] = v16_fma(a, b, acc[i][j]);
        }
        put_sums(m->y + (t + (size_t)i) * m->y_stride + r, acc[i], n_rows, m->accumulate);
    }
}

// All rows with n_tokens (a constant) tokens from t on.
VEC_INLINE void matmul_rows(const tern_matmul_args *m, size_t t, int n_tokens, size_t n_rows) {
    size_t r = 0;
    for (; r + VEC_MATMUL_ROWS <= n_rows; r += VEC_MATMUL_ROWS) {
        matmul_tile(m, t, r, n_tokens, VEC_MATMUL_ROWS);
    }
    for (; r < n_rows; r++) matmul_tile(m, t, r, n_tokens, 1);
}

static void matmul(const tern_matmul_args *args) {
    const tern_matmul_args m = *args; // which the results cannot overlap
    const size_t n_tokens = m.n_tokens, n_rows = m.n_rows;
    size_t t = 0;
    for (; t + VEC_MATMUL_TOKENS <= n_tokens; t += VEC_MATMUL_TOKENS) {
        matmul_rows(&m, t, VEC_MATMUL_TOKENS, n_rows);
    }
    for (; t < n_tokens; t++) matmul_rows(&m, t, 1, n_rows);
}

// ---- Matrix x vector, rows of any type ---------------------------------------------------------

// One row at a time, though its chain of fmas leaves the processor half idle: memory is then read
// as one stream, which prefetchers handle best, and memory is the limit.
VEC_INLINE void matvec_plain(const tern_matvec_args *m, tern_dtype type) {
    for (size_t r = 0; r < m->n_rows; r++) {
        const uint8_t *row = m->w + r * m->row_bytes;
        v16 acc = v16_set1(0);
        size_t i = 0;
        for (; i + 16 <= m->n_in; i += 16) {
            acc = v16_fma(v16_load(m->x + i), load_plain(type, row, i, i + 16), acc);
        }
        if (i < m->n_in) {
            v16 x = v16_load_n(m->x + i, m->n_in - i);
            acc = v16_fma(x, load_plain(type, row, i, m->n_in), acc);
        }
        put(m->y + r, v16_sum(acc), m->accumulate);
    }
}

// Blocks take longer to unpack than to fetch, so several rows are worked on side by side; meanwhile
// the next rows are fetched, in memory order.
VEC_INLINE void matvec_blocks(const tern_matvec_args *m, tern_dtype type, size_t block_n,
                              size_t block_bytes) {
    unpacked u[VEC_MATVEC_ROWS];
    for (size_t r = 0; r < m->n_rows; r += VEC_MATVEC_ROWS) {
        const uint8_t *row[VEC_MATVEC_ROWS], *next = m->w + (r + VEC_MATVEC_ROWS) * m->row_bytes;
        v16 acc[VEC_MATVEC_ROWS];
#pragma GCC unroll 8
        for (size_t j = 0; j < VEC_MATVEC_ROWS; j++) { // past the end, repeat the last row
            acc[j] = v16_set1(0);
            row[j] = m->w + (r + j < m->n_rows ? r + j : m->n_rows - 1) * m->row_bytes;
        }
        for (size_t i = 0; i + block_n <= m->n_in; i += block_n) {
            for (size_t p = 0; p < VEC_MATVEC_ROWS * block_bytes; p += 64) {
                __builtin_prefetch(next + p, 0, 2);
            }
            next += VEC_MATVEC_ROWS * block_bytes;
#pragma GCC unroll 8
            for (int j = 0; j < VEC_MATVEC_ROWS; j++) {
                unpack(&u[j], type, row[j], block_n);
                row[j] += block_bytes;
            }
            for (size_t g = 0; g < block_n / 16; g++) {
                v16 x = v16_load(m->x + i + 16 * g);
#pragma GCC unroll 8
                for (int j = 0; j < VEC_MATVEC_ROWS; j++) {
                    acc[j] = v16_fma(x, unpacked_group(&u[j], type, g), acc[j]);
                }
            }
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < VEC_MATVEC_ROWS; j++) {
            if (r + j < m->n_rows) put(m->y + r + j, v16_sum(acc[j]), m->accumulate);
        }
    }
}

// Types that do not deserve a loop of their own: the ternary ones are multiplied as integers
// elsewhere.
static void matvec_by_pieces(const tern_matvec_args *m, tern_dtype type) {
    float piece[256];
    for (size_t r = 0; r < m->n_rows; r++) {
        v16 acc = v16_set1(0);
        for (size_t i = 0; i < m->n_in; i += 256) {
            size_t n = m->n_in - i < 256 ? m->n_in - i : 256;
            decode(type, m->w + r * m->row_bytes, i, n, m->scale, piece);
            for (size_t k = 0; k < n; k += 16) {
                acc = v16_fma(load_some(m->x + i + k, n - k), load_some(piece + k, n - k), acc);
            }
        }
        put(m->y + r, v16_sum(acc), m->accumulate);
    }
}

static void matvec(const tern_matvec_args *args) {
    const tern_matvec_args m = *args; // which the results cannot overlap
    const tern_dtype type = m.type;
#ifndef VEC_ONE_LOOP
    size_t block_n = tern_dtype_block_n(type), block_bytes = tern_dtype_block_bytes(type);
#endif
    switch (type) {
    case TERN_DTYPE_F32: matvec_plain(&m, TERN_DTYPE_F32); break;
    case TERN_DTYPE_F16: matvec_plain(&m, TERN_DTYPE_F16); break;
    case TERN_DTYPE_BF16: matvec_plain(&m, TERN_DTYPE_BF16); break;
#ifndef VEC_ONE_LOOP
    case TERN_DTYPE_Q8_0: matvec_blocks(&m, TERN_DTYPE_Q8_0, 32, 34); break;
    case TERN_DTYPE_Q4_0: matvec_blocks(&m, TERN_DTYPE_Q4_0, 32, 18); break;
    case TERN_DTYPE_Q4_K: matvec_blocks(&m, TERN_DTYPE_Q4_K, 256, 144); break;
    case TERN_DTYPE_Q5_K: matvec_blocks(&m, TERN_DTYPE_Q5_K, 256, 176); break;
    case TERN_DTYPE_Q6_K: matvec_blocks(&m, TERN_DTYPE_Q6_K, 256, 210); break;
    case TERN_DTYPE_G4_32:
    case TERN_DTYPE_G4_64:
    case TERN_DTYPE_G4_128: matvec_blocks(&m, TERN_DTYPE_G4_32, block_n, block_bytes); break;
    case TERN_DTYPE_G8_32:
    case TERN_DTYPE_G8_64:
    case TERN_DTYPE_G8_128: matvec_blocks(&m, TERN_DTYPE_G8_32, block_n, block_bytes); break;
#endif
    default: matvec_by_pieces(&m, type); break;
    }
}
