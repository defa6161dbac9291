// Keys and values: storing them, and attention over them. Layout of the blocks: kernels.h.
//
// Query rows (token, head) are taken in tiles of up to 12. A tile walks over the positions in spans
// of 64, which begin at multiples of 64 whatever the rows see: scores (queries x keys), one step of
// the online softmax, then the weighted sum of values. Both products are outer-product tiles, rows
// x 16-lane columns kept in registers. Each element is one chain of fmas in the order of the
// dimensions or positions, and a span in which a row sees nothing leaves its sums as they are. So a
// row's bits do not depend on which rows share its tile. The values of positions that a row does
// not see are never multiplied, since they may be left over from another text and not even be
// numbers; blocks in which no row of the tile sees anything are not read at all.

enum { TILE_ROWS = ATTENTION_TILE_ROWS, SPAN = ATTENTION_SPAN, CHUNK = ATTENTION_CHUNK };
enum { PAGE = TERN_PAGE_POSITIONS, SPAN_BLOCKS = SPAN / PAGE };

// Positions begin .. end - 1.
typedef struct attention_range {
    size_t begin, end;
} attention_range;

typedef struct attention_tile {
    const tern_attention_args *a;
    size_t first_row, n_rows;
    attention_range sees[TILE_ROWS]; // both ends never fall from row to row
    size_t hd16;                     // head_dim rounded up to 16
    size_t block_bytes;              // of 16 positions
    // The span: its first position, those of its blocks in which some row sees something, and where
    // they and the next span's keys lie.
    size_t from, first_block, end_block;
    const uint8_t *k[SPAN_BLOCKS], *v[SPAN_BLOCKS], *next_k[SPAN_BLOCKS];
    float *acc;   // [n_rows][hd16] weighted sum of values so far
    float *q;     // [chunks of head_dim][TILE_ROWS][CHUNK] queries times a->scale
    float *s;     // [TILE_ROWS][SPAN] scores, then weights
    float *w;     // of a Q4_0 cache, as q is then: see attention_q4.inl
    float *sum;   // [n_rows][16] partial sums of the weights
    float *m;     // [n_rows] greatest score so far
    float *shift; // [16] exp(m - m') of this span
} attention_tile;

// What row (token, head) number `row` of the call sees.
static attention_range row_sees(const tern_attention_args *a, size_t row) {
    size_t pos = a->first_pos + row / a->n_heads, window = a->window > 0 ? (size_t)a->window : 0;
    attention_range sees = {0, a->causal ? pos + 1 : a->n_positions};
    if (window && pos >= window) sees.begin = pos - window + 1;
    size_t ahead = a->ahead > 0 ? (size_t)a->ahead : window;
    if (window && !a->causal && pos + ahead < sees.end) sees.end = pos + ahead;
    size_t image = a->ends ? (size_t)a->ends[row / a->n_heads] : 0;
    if (image > sees.end) sees.end = image;
    return sees;
}

// The same of row r of the tile in the span, counted from the span's beginning: within 0 .. SPAN.
VEC_INLINE attention_range sees_in_span(const attention_tile *t, size_t r) {
    attention_range sees = t->sees[r];
    size_t begin = sees.begin > t->from ? sees.begin - t->from : 0;
    size_t end = sees.end > t->from ? sees.end - t->from : 0;
    return (attention_range){begin < SPAN ? begin : SPAN, end < SPAN ? end : SPAN};
}

// Goes to the span that begins at `from`. Blocks that no row sees get the address of one that is
// seen, so that prefetching has a valid address.
static void span_open(attention_tile *t, size_t from) {
    const tern_attention_args *a = t->a;
    size_t first = t->sees[0].begin / PAGE, last = (t->sees[t->n_rows - 1].end - 1) / PAGE;
    size_t block = from / PAGE;
    t->from = from;
    t->first_block = first > block ? first - block : 0;
    t->end_block = last - block < SPAN_BLOCKS ? last - block + 1 : SPAN_BLOCKS;
    for (size_t i = 0; i < SPAN_BLOCKS; i++) {
        size_t b = block + i < first ? first : block + i < last ? block + i : last;
        size_t next = block + i + SPAN_BLOCKS < last ? block + i + SPAN_BLOCKS : last;
        t->k[i] = a->pages[b].memory + a->k_offset;
        t->v[i] = a->pages[b].memory + a->v_offset;
        t->next_k[i] = a->pages[next].memory + a->k_offset;
    }
}

// Dimension d of the 16 positions of a block.
VEC_INLINE v16 load_key(tern_dtype type, const uint8_t *block, size_t head_dim, size_t d) {
    if (type == TERN_DTYPE_F32) return v16_load((const float *)block + 16 * d);
    if (type == TERN_DTYPE_F16) return v16_from_f16(block + 32 * d);
    const int8_t *q = (const int8_t *)block + kv_groups(head_dim) * 64;
    return v16_mul(v16_load((const float *)block + 16 * (d / 32)), v16_from_i8(q + 16 * d));
}

// Dimensions 16c..16c+15 of a position, `lane` its number in the block.
VEC_INLINE v16 load_value(tern_dtype type, const uint8_t *block, size_t head_dim, size_t lane,
                          size_t c) {
    size_t at = lane * head_dim + 16 * c;
    if (type == TERN_DTYPE_F32) return v16_load((const float *)block + at);
    if (type == TERN_DTYPE_F16) return v16_from_f16(block + 2 * at);
    size_t groups = kv_groups(head_dim);
    const float *scale = (const float *)block + lane * groups;
    const int8_t *q = (const int8_t *)block + 64 * groups;
    return v16_mul(v16_set1(scale[c / 2]), v16_from_i8(q + at));
}

// ---- The two products --------------------------------------------------------------------------
//
// With one token in the call memory is the limit, and a span is too short for the hardware to
// predict what comes next. So each product prefetches, element by element, what the next one will
// read: the scores this span's values, the sums of values the next span's keys.

VEC_INLINE size_t kv_bytes_of_16(tern_dtype type) {
    return type == TERN_DTYPE_F32 ? 64 : type == TERN_DTYPE_F16 ? 32 : 16;
}

// Scores of rows r.. with blocks c.. of keys, over dimensions d0..d0+n_d of one chunk.
typedef struct score_part {
    size_t r, c, d0, n_d;
} score_part;

VEC_INLINE void score_tile(const attention_tile *t, tern_dtype type, const score_part part,
                           int rows, int cols) {
    const size_t d0 = part.d0, n_d = part.n_d;
    const float *q = t->q + d0 * TILE_ROWS + part.r * CHUNK;
    float *s = t->s + part.r * SPAN + 16 * part.c;
    const uint8_t *k[4], *v[4];
#pragma GCC unroll 4
    for (int c = 0; c < cols; c++) {
        k[c] = t->k[part.c + (size_t)c];
        v[c] = t->v[part.c + (size_t)c];
    }
    v16 acc[TILE_ROWS][4];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            acc[i][c] = d0 ? v16_load(s + i * SPAN + 16 * c) : v16_set1(0);
        }
    }
    for (size_t d = 0; d < n_d; d++) {
        v16 b[4];
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) {
            b[c] = load_key(type, k[c], t->a->head_dim, d0 + d);
            __builtin_prefetch(v[c] + (d0 + d) * kv_bytes_of_16(type), 0, 2);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            v16 a = v16_set1(q[(size_t)i * CHUNK + d]);
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++) acc[i][c] = v16_fma(a, b[c], acc[i][c]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) v16_store(s + i * SPAN + 16 * c, acc[i][c]);
    }
}

// Adds the positions from + j0 .. from + j1 - 1 to columns c0.. of rows r...
typedef struct value_part {
    size_t j0, j1, r, c0;
} value_part;

VEC_INLINE void value_tile(const attention_tile *t, tern_dtype type, const value_part part,
                           int rows, int cols) {
    const size_t j0 = part.j0, j1 = part.j1, r = part.r, c0 = part.c0;
    const float *p = t->s + r * SPAN;
    float *out = t->acc + r * t->hd16 + 16 * c0;
    v16 acc[TILE_ROWS][4];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) acc[i][c] = v16_load(out + (size_t)i * t->hd16 + 16 * c);
    }
    for (size_t j = j0; j < j1;) {
        const uint8_t *block = t->v[j / PAGE], *next_k = t->next_k[j / PAGE];
        size_t end = j / PAGE * PAGE + PAGE < j1 ? j / PAGE * PAGE + PAGE : j1;
        for (; j < end; j++) {
            v16 b[4];
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++) {
                size_t column = c0 + (size_t)c, lane = j % PAGE;
                b[c] = load_value(type, block, t->a->head_dim, lane, column);
                size_t ahead = lane * (t->block_bytes / PAGE);
                __builtin_prefetch(next_k + ahead + column * kv_bytes_of_16(type), 0, 2);
            }
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++) {
                v16 a = v16_set1(p[(size_t)i * SPAN + j]);
#pragma GCC unroll 4
                for (int c = 0; c < cols; c++) acc[i][c] = v16_fma(a, b[c], acc[i][c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int c = 0; c < cols; c++) v16_store(out + (size_t)i * t->hd16 + 16 * c, acc[i][c]);
    }
}

// How the remaining rows and columns are cut into tiles that have register layouts.
VEC_INLINE size_t take_rows(size_t left) {
    return left >= VEC_TILE_ROWS ? VEC_TILE_ROWS : VEC_TILE_ROWS > 4 && left >= 4 ? 4 : 1;
}

VEC_INLINE size_t take_cols(size_t rows, size_t left) {
    size_t most = rows == 1 ? VEC_TILE_1_COLS : rows == 4 ? VEC_TILE_4_COLS : VEC_TILE_COLS;
    return left >= most ? most : 1;
}

#define DISPATCH_TILE(rows, cols, TILE)                                                            \
    do {                                                                                           \
        if ((rows) == 1 && (cols) > 1)                                                             \
            TILE(1, VEC_TILE_1_COLS);                                                              \
        else if ((rows) == 1)                                                                      \
            TILE(1, 1);                                                                            \
        else if ((rows) == 4 && (cols) > 1)                                                        \
            TILE(4, VEC_TILE_4_COLS);                                                              \
        else if ((rows) == 4)                                                                      \
            TILE(4, 1);                                                                            \
        else if ((cols) > 1)                                                                       \
            TILE(VEC_TILE_ROWS, VEC_TILE_COLS);                                                    \
        else                                                                                       \
            TILE(VEC_TILE_ROWS, 1);                                                                \
    } while (0)

VEC_INLINE void span_scores(const attention_tile *t, tern_dtype type) {
    size_t head_dim = t->a->head_dim;
    for (size_t d0 = 0; d0 < head_dim; d0 += CHUNK) {
        size_t n_d = head_dim - d0 < CHUNK ? head_dim - d0 : CHUNK;
        for (size_t r = 0, rows; r < t->n_rows; r += rows) {
            rows = take_rows(t->n_rows - r);
            for (size_t c = t->first_block, cols; c < t->end_block; c += cols) {
                cols = take_cols(rows, t->end_block - c);
#define TILE(R, C) score_tile(t, type, (score_part){r, c, d0, n_d}, R, C)
                DISPATCH_TILE(rows, cols, TILE);
#undef TILE
            }
        }
    }
}

// The last head_dim % 16 columns: the values of a block at a time, padded with zeros.
static void add_last_columns(const attention_tile *t, tern_dtype type, size_t j0, size_t j1,
                             size_t first_row, size_t last_row) {
    size_t head_dim = t->a->head_dim, d0 = head_dim / 16 * 16;
    float values[PAGE][16] = {{0}};
    for (size_t j = j0, end; j < j1; j = end) {
        const uint8_t *block = t->v[j / PAGE];
        end = j / PAGE * PAGE + PAGE < j1 ? j / PAGE * PAGE + PAGE : j1;
        for (size_t i = j; i < end; i++)
            for (size_t d = d0; d < head_dim; d++)
                values[i % PAGE][d - d0] = kv_value_at(type, block, head_dim, i % PAGE, d);
        for (size_t r = first_row; r < last_row; r++) {
            const float *p = t->s + r * SPAN;
            v16 acc = v16_load(t->acc + r * t->hd16 + d0);
            for (size_t i = j; i < end; i++)
                acc = v16_fma(v16_set1(p[i]), v16_load(values[i % PAGE]), acc);
            v16_store(t->acc + r * t->hd16 + d0, acc);
        }
    }
}

VEC_INLINE void add_values(const attention_tile *t, tern_dtype type, size_t j0, size_t j1,
                           size_t first_row, size_t last_row) {
    size_t head_dim = t->a->head_dim;
    for (size_t r = first_row, rows; r < last_row; r += rows) {
        rows = take_rows(last_row - r);
        for (size_t c = 0, cols; c < head_dim / 16; c += cols) {
            cols = take_cols(rows, head_dim / 16 - c);
#define TILE(R, C) value_tile(t, type, (value_part){j0, j1, r, c}, R, C)
            DISPATCH_TILE(rows, cols, TILE);
#undef TILE
        }
    }
    if (head_dim % 16) add_last_columns(t, type, j0, j1, first_row, last_row);
}

// ---- The softmax, and all of it ----------------------------------------------------------------

// Scores towards +-soft_cap.
static void span_cap(const attention_tile *t) {
    v16 cap = v16_set1(t->a->soft_cap);
    for (size_t r = 0; r < t->n_rows; r++) {
        float *s = t->s + r * SPAN;
        for (size_t b = t->first_block; b < t->end_block; b++) {
            v16 a = vec_tanh(v16_div(v16_load(s + 16 * b), cap));
            v16_store(s + 16 * b, v16_mul(cap, a));
        }
    }
}

// Scores of block b that a row does not see become -infinity, so that their weights are 0.
VEC_INLINE v16 hide_unseen(v16 scores, size_t b, attention_range sees) {
    static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    v16 lane = v16_load(lanes), nothing = v16_set1(-INFINITY);
    v16 begin = v16_set1((float)sees.begin - (float)(16 * b));
    v16 end = v16_set1((float)sees.end - (float)(16 * b));
    return v16_if_less(lane, begin, nothing, v16_if_less(lane, end, scores, nothing));
}

// Turns scores into weights exp(s - m') and rescales sums and accumulators from m to m'.
static void span_softmax(const attention_tile *t) {
    float before[16] = {0}, now[16] = {0};
    bool sees_some[TILE_ROWS];
    for (size_t r = 0; r < t->n_rows; r++) {
        float *s = t->s + r * SPAN;
        attention_range sees = sees_in_span(t, r);
        sees_some[r] = sees.begin < sees.end;
        if (!sees_some[r]) continue;
        v16 top = v16_set1(t->m[r]);
        for (size_t b = t->first_block; b < t->end_block; b++) {
            v16 a = v16_load(s + 16 * b);
            if (sees.begin > 16 * b || sees.end < 16 * (b + 1)) {
                a = hide_unseen(a, b, sees);
                v16_store(s + 16 * b, a);
            }
            top = v16_max(a, top);
        }
        before[r] = t->m[r];
        t->m[r] = now[r] = v16_top(top);
    }
    v16_store(t->shift, vec_exp(v16_sub(v16_load(before), v16_load(now))));
    for (size_t r = 0; r < t->n_rows; r++) {
        float *s = t->s + r * SPAN, *acc = t->acc + r * t->hd16;
        if (!sees_some[r]) continue;
        v16 m = v16_set1(t->m[r]), shift = v16_set1(t->shift[r]), sum = v16_set1(0);
        for (size_t b = t->first_block; b < t->end_block; b++) {
            v16 p = vec_exp(v16_sub(v16_load(s + 16 * b), m));
            v16_store(s + 16 * b, p);
            sum = v16_add(sum, p);
        }
        v16_store(t->sum + 16 * r, v16_fma(v16_load(t->sum + 16 * r), shift, sum));
        if (t->shift[r] == 1) continue;
        for (size_t d = 0; d < t->hd16; d += 16) {
            v16_store(acc + d, v16_mul(v16_load(acc + d), shift));
        }
    }
}

// Positions that all rows see are added to all rows at once. Those before and after, which only
// some of the tokens see, are added token by token; each row takes its positions in order.
VEC_INLINE void span_values(const attention_tile *t, tern_dtype type) {
    size_t begin = sees_in_span(t, t->n_rows - 1).begin, end = sees_in_span(t, 0).end;
    const size_t cuts[] = {0, begin, end > begin ? end : begin, SPAN};
    for (int part = 0; part < 3; part++) {
        if (cuts[part] == cuts[part + 1]) continue;
        for (size_t r = 0, last; r < t->n_rows; r = last) {
            last = part == 1 ? t->n_rows : r + t->a->n_heads - (t->first_row + r) % t->a->n_heads;
            if (last > t->n_rows) last = t->n_rows;
            attention_range sees = sees_in_span(t, r);
            size_t j0 = sees.begin > cuts[part] ? sees.begin : cuts[part];
            size_t j1 = sees.end < cuts[part + 1] ? sees.end : cuts[part + 1];
            if (j0 < j1) add_values(t, type, j0, j1, r, last);
        }
    }
}

// 32 numbers (n of them real) as int8 with one scale, largest / 127.
static float quantize_group(int8_t q[32], const float *x, size_t n) {
    v16 a = load_some(x, n), b = n > 16 ? load_some(x + 16, n - 16) : v16_set1(0);
    float largest = v16_top(v16_max(v16_abs(a), v16_max(v16_abs(b), v16_set1(0))));
    v16 inv = v16_set1(127 / (largest > 1e-30f ? largest : 1e-30f));
    v16 low = v16_set1(-127), high = v16_set1(127);
    v16_store_i8(q, v16_max(v16_min(vec_rint(v16_mul(a, inv)), high), low));
    v16_store_i8(q + 16, v16_max(v16_min(vec_rint(v16_mul(b, inv)), high), low));
    return largest / 127;
}

static bool is_q4(const tern_attention_args *a) {
    return TERN_HAS_Q4_CACHE && a->kv_type == TERN_DTYPE_Q4_0;
}

#if TERN_HAS_Q4_CACHE
#include "kernels/cpu/float/attention_q4.inl"
#else // nothing asks for it
#define q4_set_query(t, r, q) ((void)0)
#define q4_scores(t)          ((void)0)
#define q4_values(t)          ((void)0)
#define kv_store_q4_0(a)      ((void)0)
#endif

static void tile_begin(attention_tile *t) {
    const tern_attention_args *a = t->a;
    v16 scale = v16_set1(a->scale);
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t row = t->first_row + r;
        const float *q = a->q + row / a->n_heads * a->row_stride + row % a->n_heads * a->head_dim;
        for (size_t d = 0; !is_q4(a) && d < a->head_dim; d += 16) {
            float *to = t->q + d / CHUNK * CHUNK * TILE_ROWS + r * CHUNK + d % CHUNK;
            v16_store(to, v16_mul(load_some(q + d, a->head_dim - d), scale));
        }
        if (is_q4(a)) q4_set_query(t, r, q);
        v16_store(t->sum + 16 * r, v16_set1(0));
        t->m[r] = -INFINITY;
        t->sees[r] = row_sees(a, row);
    }
    memset(t->acc, 0, t->n_rows * t->hd16 * sizeof *t->acc);
}

static void tile_end(const attention_tile *t) {
    const tern_attention_args *a = t->a;
    for (size_t r = 0; r < t->n_rows; r++) {
        size_t row = t->first_row + r;
        float *out = a->out + row / a->n_heads * a->row_stride + row % a->n_heads * a->head_dim;
        v16 inv = v16_set1(1 / v16_sum(v16_load(t->sum + 16 * r)));
        for (size_t d = 0; d < a->head_dim; d += 16) {
            v16 o = v16_mul(v16_load(t->acc + r * t->hd16 + d), inv);
            store_some(out + d, o, a->head_dim - d);
        }
        if (is_q4(a))
            hadamard(out, out, NULL, a->head_dim, kv_rotation(a->head_dim));
    }
}

VEC_INLINE void attend(const tern_attention_args *a, tern_dtype type) {
    attention_tile t = {.a = a, .hd16 = (a->head_dim + 15) / 16 * 16};
    t.block_bytes = tern_kv_head_bytes(type, a->head_dim, 16);
    t.acc = a->scratch;
    t.q = t.acc + TILE_ROWS * t.hd16;
    t.s = t.q + TILE_ROWS * ((a->head_dim + CHUNK - 1) / CHUNK * CHUNK);
    t.sum = t.s + TILE_ROWS * SPAN;
    t.m = t.sum + TILE_ROWS * 16;
    t.shift = t.m + 16;
    t.w = t.shift + 16;
    size_t n_rows = a->n_tokens * a->n_heads;
    for (; t.first_row < n_rows; t.first_row += TILE_ROWS) {
        t.n_rows = n_rows - t.first_row < TILE_ROWS ? n_rows - t.first_row : TILE_ROWS;
        tile_begin(&t);
        size_t end = t.sees[t.n_rows - 1].end;
        for (size_t from = t.sees[0].begin / SPAN * SPAN; from < end; from += SPAN) {
            span_open(&t, from);
            if (type == TERN_DTYPE_Q4_0)
                q4_scores(&t);
            else
                span_scores(&t, type);
            if (a->soft_cap > 0) span_cap(&t);
            span_softmax(&t);
            if (type == TERN_DTYPE_Q4_0)
                q4_values(&t);
            else
                span_values(&t, type);
        }
        tile_end(&t);
    }
}

static void attention(const tern_attention_args *args) {
    switch (args->kv_type) {
    case TERN_DTYPE_F32: attend(args, TERN_DTYPE_F32); break;
    case TERN_DTYPE_F16: attend(args, TERN_DTYPE_F16); break;
    case TERN_DTYPE_Q8_0: attend(args, TERN_DTYPE_Q8_0); break;
#if TERN_HAS_Q4_CACHE
    case TERN_DTYPE_Q4_0: attend(args, TERN_DTYPE_Q4_0); break;
#endif
    default: break;
    }
}

// ---- Storing -----------------------------------------------------------------------------------

static void kv_store_q8_0(uint8_t *k, uint8_t *v, size_t lane, size_t head_dim, const float *key,
                          const float *value) {
    size_t groups = kv_groups(head_dim);
    int8_t q[32], *k_q = (int8_t *)k + 64 * groups, *v_q = (int8_t *)v + 64 * groups;
    for (size_t g = 0; g < groups; g++) {
        size_t n = head_dim - 32 * g < 32 ? head_dim - 32 * g : 32;
        ((float *)k)[16 * g + lane] = quantize_group(q, key + 32 * g, n);
        for (size_t i = 0; i < n; i++) k_q[(32 * g + i) * 16 + lane] = q[i];
        ((float *)v)[groups * lane + g] = quantize_group(q, value + 32 * g, n);
        memcpy(v_q + lane * head_dim + 32 * g, q, n);
    }
}

static void kv_store_f16(uint16_t *k, uint16_t *v, size_t lane, size_t head_dim, const float *key,
                         const float *value) {
    uint16_t h[16];
    for (size_t d = 0; d < head_dim; d += 16) {
        size_t n = head_dim - d < 16 ? head_dim - d : 16;
        v16_store_f16(h, load_some(key + d, n));
        for (size_t i = 0; i < n; i++) k[(d + i) * 16 + lane] = h[i];
        v16_store_f16(h, load_some(value + d, n));
        memcpy(v + lane * head_dim + d, h, n * sizeof *h);
    }
}

static void kv_store(const tern_kv_store_args *a) {
    void *k = a->k, *v = a->v;
    const float *key = a->key, *value = a->value;
    const tern_dtype kv_type = a->kv_type;
    const size_t lane = a->lane, head_dim = a->head_dim;
    if (TERN_HAS_Q4_CACHE && kv_type == TERN_DTYPE_Q4_0) {
        kv_store_q4_0(a);
    } else if (kv_type == TERN_DTYPE_Q8_0) {
        kv_store_q8_0(k, v, lane, head_dim, key, value);
    } else if (kv_type == TERN_DTYPE_F16) {
        kv_store_f16(k, v, lane, head_dim, key, value);
    } else {
        for (size_t d = 0; d < head_dim; d++) ((float *)k)[d * 16 + lane] = key[d];
        memcpy((float *)v + lane * head_dim, value, head_dim * sizeof *value);
    }
}
