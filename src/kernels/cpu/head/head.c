// The head's low-bit copy, the proof that it may be trusted, and the rounds of a query.
//
// COPY. A row w [n] is padded with zeros to groups of 512 = 32 x 16 weights, seen as 32 rows of 16
// lanes; each lane of a group is one block of 32 weights with one scale. rho (a float of the row)
// times c (a byte of the block) is the step s of the block's 4-bit codes q: w ~ s (q - 7.5). The 16
// cells of width s tile [-max|w|, max|w|], so that one more bit halves a cell and two quarter it:
//
//     plane 1   4 bits   w^1 = s (2 q - 15) / 2            |w - w^1| <= s/2 per weight
//     plane 2   1 bit    w^2 = s (2 (2q + b) - 31) / 4                  s/4
//     plane 3   1 bit    w^3 = s (2 (4q + 2b + b') - 63) / 8            s/8
//
// For every row the norms |w| and |r_p|, r_p = w - w^p, are kept, rounded up.
//
// In memory, element 16 t + l of a group, t = 4 j + b, is byte 4 l + b of quarter j. A vector of 64
// bytes of codes holds quarter 2 i in the low and 2 i + 1 in the high nibbles; a vector of 64 bytes
// of bits has quarter j in bit j. So the 4 bytes of a 32-bit lane are of one block, as dot-product
// instructions want them, and the 16 scales of a group multiply 16 finished sums at once. Trailing
// vectors of codes that hold only padding are left out. The vectors of four rows (a tile)
// alternate, as do their scales: four rows share each load of x, and memory is still read from
// front to back, as the hardware's prefetching wants it (four streams side by side ran at half the
// speed). For all rows 4.25 bits a weight are read.
//
// QUERY. x = xi X + e with whole numbers X = 128 hi + lo, |X| <= 127 * 128, and x = 128 xi hi + e'
// (the error of hi alone). All sums within a block are exact integers below 2^24. The
// approximations of the logit y = w x:
//
//     a_1 = w^1 . (xi X),   a_p = a_(p-1) + (w^p - w^(p-1)) . (128 xi hi)
//
// THEOREM. Let X' = |x| + |e'| (>= |xi X|, |128 xi hi|, as |e| <= |e'|), G = 2^-23 (n/16 + 64), and
// y the float that matvec computes. If all of these are finite,
//
//     |y - a_p| <= |r_p| |x| + (|w| + |r_1|) |e| + sum_(1<i<=p) (|r_(i-1)| + |r_i|) |e'|
//                  + G (|w| + 2 |r_1|) X' + 2^-100
//
// Proof. The exact difference is r_p x + w^1 e + sum_(1<i<=p) (w^i - w^(i-1)) e'. By Cauchy and
// Schwarz, with |w^1| <= |w| + |r_1| and |w^i - w^(i-1)| <= |r_(i-1)| + |r_i|, these are the first
// three terms. The rest is rounding, u = 2^-24: a sum of products in which no term passes through
// more than m roundings is off by at most m u / (1 - m u) times the sum of the |products|. In
// matvec m = n/16 + 5 (16 chains of fma, then four additions) and that sum is at most |w| |x|. In
// a_1 and in each step after it the terms are block sums, m <= n/512 + 24, and the |products| sum
// to at most (|w| + 2 |r_1|) X', as the |r_1| that is kept is at least |r_2| and |r_3|.
// Together less than (n/8 + 128) u = G. Underflow adds less than 2^-149 for each operation,
// magnified by at most 2^46 (a sum of scaled codes): 2^-100 is more. And no partial sum of matvec
// overflows, as |w| |x| is finite. QED. Where w or x has an infinity or a NaN, or a square
// overflows, a norm is infinite or NaN, the bound is too, and the test below keeps the row.
//
// Several vectors at once are bound by arithmetic. There X = 128 hi alone is used, half the
// products, for every x that it describes well: with e' in the place of e the theorem stands. And
// for DEEP vectors or more, if the query before left many rows open after four bits, all six are
// multiplied at once: a_3 = w^3 . (128 xi hi). Then y - a_3 = r_3 x + w^3 e' and
//
//     |y - a_3| <= |r_3| |x| + (|w| + |r_3|) |e'| + G (|w| + 2 |r_3|) X' + 2^-100
//
// by the same proof, its sum of |products| being at most (|w| + |r_3|) X'.
//
// ROUNDS. 1. a_1 of all rows. 2. The k + 7 rows of greatest a_1 in full: their k-th value M is one
// that k rows reach. 3. A row with a_p + bound < M has y < M: it is none of the k greatest, not
// even by a tie. Rows that pass for p = 1, 2, 3 are computed in full. 4. The k greatest of them. In
// each comparison NaN means keep; if fewer than k values are numbers, M = -infinity keeps all.
//
// SETS. Where only some rows are allowed, a_1 of the others is -infinity: none becomes a seed, and
// none passes round 3, where they are left out by name, too, as M may be -infinity. If so few are
// allowed that reading them in full is less than the first plane, round 4 is all there is.
//
// COST. For Gaussian rows of 2560 the residuals' norms are 0.089, 0.044 and 0.022 |w|. In units of
// the logits' deviation |w| |x| / sqrt(n) that is 4.5, 2.2 and 1.1, while the greatest of 128256
// stands at 4.35: half of the rows need the second plane, 2 % the third, 0.1 % all bits. Trained
// heads have a greatest logit that stands out, and a few hundred rows pass the first test.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "kernels/cpu/head/head.h"
#include "kernels/cpu/head/head_kernels.h"

enum { BLOCK = 256, WORD = 64, MAX_N_IN = 1 << 20, MORE_SEEDS = 7, DEEP = 8, SAMPLE = 16 };

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

// ---- The copy ----------------------------------------------------------------------------------

// Takes `bytes` of the block, from *at on; the block is NULL when sizes are only counted.
static void *part(uint8_t *memory, uint64_t *at, uint64_t bytes) {
    void *here = memory ? memory + *at : NULL;
    *at += (bytes + 63) / 64 * 64;
    return here;
}

static uint64_t tiles_of(uint64_t n_rows) { return (n_rows + TERN_HEAD_TILE - 1) / TERN_HEAD_TILE; }

static uint8_t *codes_of(const tern_head *h, size_t row) {
    return h->codes + row / TERN_HEAD_TILE * TERN_HEAD_CODE_STEP * h->n_vectors +
           64 * (row % TERN_HEAD_TILE);
}

static uint8_t *scales_of(const tern_head *h, size_t row) {
    return h->scales + row / TERN_HEAD_TILE * TERN_HEAD_SCALE_STEP * h->n_groups +
           TERN_HEAD_LANES * (row % TERN_HEAD_TILE);
}

static uint8_t *bits_of(const tern_head *h, int plane, size_t row) {
    return h->bits[plane - 1] + row * 64 * h->n_groups;
}

static uint64_t lay_out(tern_head *h, uint8_t *memory) {
    uint64_t at = 0, n_rows = h->w.n_rows, n_tiles = tiles_of(n_rows);
    h->codes = part(memory, &at, n_tiles * TERN_HEAD_CODE_STEP * h->n_vectors);
    h->scales = part(memory, &at, n_tiles * TERN_HEAD_SCALE_STEP * h->n_groups);
    for (int i = 0; i < 2; i++)
        h->bits[i] = part(memory, &at, n_tiles * TERN_HEAD_TILE * 64 * h->n_groups);
    h->rho = part(memory, &at, n_rows * sizeof(float));
    h->norm_w = part(memory, &at, n_rows * sizeof(float));
    for (int p = 0; p < TERN_HEAD_PLANES; p++)
        h->norm_r[p] = part(memory, &at, n_rows * sizeof(float));
    return at;
}

tern_status tern_head_create(tern_head **out, const tern_head_matrix *w,
                             const tern_cpu_kernels *kernels, tern_error *err) {
    *out = NULL;
    if (w->n_in == 0 || w->n_in > MAX_N_IN || w->n_rows > INT32_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a head of %zu rows of %zu cannot be screened (rows of 1 to %d)",
                         w->n_rows, w->n_in, MAX_N_IN);
    tern_head *h = tern_alloc(TERN_MEM_WEIGHTS, sizeof *h);
    if (!h) return tern_fail_memory(err, sizeof *h);
    h->w = *w;
    h->f = kernels->f;
    h->k = kernels->h;
    h->n_vectors = (w->n_in + TERN_HEAD_VECTOR - 1) / TERN_HEAD_VECTOR;
    h->n_groups = (w->n_in + TERN_HEAD_GROUP - 1) / TERN_HEAD_GROUP;
    h->rounding = 0x1p-23f * ((float)w->n_in / 16 + 64);
    h->bytes = lay_out(h, NULL);
    h->memory = h->bytes <= SIZE_MAX / 2 ? tern_alloc(TERN_MEM_WEIGHTS, (size_t)h->bytes) : NULL;
    if (!h->memory) {
        tern_status status = tern_fail_memory(err, (size_t)h->bytes);
        tern_free(h);
        return status;
    }
    lay_out(h, h->memory);
    *out = h;
    return TERN_OK;
}

void tern_head_free(tern_head *h) {
    if (!h) return;
    tern_free(h->memory);
    tern_free(h);
}

size_t tern_head_build_scratch_bytes(const tern_head *h) {
    return h->n_groups * (TERN_HEAD_GROUP + TERN_HEAD_LANES) * sizeof(float);
}

uint64_t tern_head_bytes(const tern_head *h) { return h->bytes; }

uint64_t tern_head_screen_bytes(const tern_head *h) {
    uint64_t row = 64 * h->n_vectors + TERN_HEAD_LANES * h->n_groups + 3 * sizeof(float);
    return h->w.n_rows * row; // codes and scales; rho, |w| and |r_1|
}

// The kept |r_1| is never below |r_2| and |r_3|, even if the row happens to lie on the first grid.
// Norms are square roots of float sums: off by less than a factor 1 + G, and each residual by two
// roundings of numbers the size of w. Anything too small to be squared is below 2^-60.
static void round_up_norms(const tern_head *h, size_t r, const tern_head_row *row) {
    float factor = 1 + h->rounding, w = row->norm_w * factor + 0x1p-60f;
    h->norm_w[r] = w;
    for (int p = 0; p < TERN_HEAD_PLANES; p++)
        h->norm_r[p][r] = row->norm_r[p] * factor + w * 0x1p-21f + 0x1p-60f;
    for (int p = 1; p < TERN_HEAD_PLANES; p++)
        if (!(h->norm_r[p][r] <= h->norm_r[0][r])) h->norm_r[0][r] = h->norm_r[p][r];
}

void tern_head_build(tern_head *h, size_t first_row, size_t last_row, void *scratch) {
    const tern_head_matrix *w = &h->w;
    float *floats = scratch;
    for (size_t r = first_row; r < last_row; r++) {
        tern_head_row row = {.codes = codes_of(h, r),
                             .scales = scales_of(h, r),
                             .bits = {bits_of(h, 1, r), bits_of(h, 2, r)}};
        h->f->decode(w->type, (const uint8_t *)w->data + r * w->row_bytes, 0, w->n_in, w->scale,
                     floats);
        h->k->quantize(&row, floats, w->n_in);
        h->rho[r] = row.rho;
        round_up_norms(h, r, &row);
    }
}

// ---- Lists of the greatest ---------------------------------------------------------------------

// True when (a, id a) comes after (b, id b): smaller, or equal with the higher id.
static bool is_below(float a, int32_t id_a, float b, int32_t id_b) {
    return a < b || (a == b && id_a > id_b);
}

// A heap whose root is the worst of those kept; full from the start, with entries worse than any.
typedef struct top_list {
    int32_t *ids;
    float *values;
    int32_t n;
} top_list;

static top_list top_open(int32_t *ids, float *values, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        ids[i] = INT32_MAX;
        values[i] = -INFINITY;
    }
    return (top_list){ids, values, n};
}

static void top_swap(const top_list *t, int32_t i, int32_t j) {
    float v = t->values[i];
    int32_t id = t->ids[i];
    t->values[i] = t->values[j];
    t->ids[i] = t->ids[j];
    t->values[j] = v;
    t->ids[j] = id;
}

static bool top_is_below(const top_list *t, int32_t i, int32_t j) {
    return is_below(t->values[i], t->ids[i], t->values[j], t->ids[j]);
}

static void top_sift(const top_list *t, int32_t n) {
    for (int32_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && top_is_below(t, child + 1, child)) child++;
        if (!top_is_below(t, child, at)) return;
        top_swap(t, at, child);
    }
}

static void top_put(const top_list *t, int32_t id, float value) {
    if (!is_below(t->values[0], t->ids[0], value, id)) return;
    t->values[0] = value;
    t->ids[0] = id;
    top_sift(t, t->n);
}

static void top_sort(const top_list *t) {
    for (int32_t n = t->n - 1; n > 0; n--) {
        top_swap(t, 0, n);
        top_sift(t, n);
    }
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

static void lay_out_lane(head_lane *q, uint8_t *memory, uint64_t *at) {
    uint64_t n_rows = q->h->w.n_rows, n_groups = q->h->n_groups;
    q->codes.lo = part(memory, at, n_groups * TERN_HEAD_GROUP);
    q->codes.sum_x = part(memory, at, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    q->approx = part(memory, at, tiles_of(n_rows) * TERN_HEAD_TILE * sizeof(float));
    q->block_top = part(memory, at, (n_rows / BLOCK + 1) * sizeof(float));
    q->ids = part(memory, at, n_rows * sizeof(int32_t));
    q->values = part(memory, at, n_rows * sizeof(float));
}

// What all lanes read by turns lies together, in few pages.
static uint64_t lay_out_query(tern_head_query *q, uint8_t *memory) {
    uint64_t at = 0, n_groups = q->h->n_groups;
    for (size_t i = 0; i < q->n_max; i++)
        q->lanes[i].codes.hi = part(memory, &at, n_groups * TERN_HEAD_GROUP);
    for (size_t i = 0; i < q->n_max; i++)
        q->lanes[i].codes.sum_hi = part(memory, &at, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    for (size_t i = 0; i < q->n_max; i++) lay_out_lane(&q->lanes[i], memory, &at);
    return at;
}

tern_status tern_head_query_create(tern_head_query **out, const tern_head *h, size_t n_max,
                                   tern_error *err) {
    *out = NULL;
    tern_head_query *q = tern_alloc(TERN_MEM_SESSION, sizeof *q);
    if (!q) return tern_fail_memory(err, sizeof *q);
    q->h = h;
    q->n_max = n_max < TERN_HEAD_VECTORS_MAX ? n_max : TERN_HEAD_VECTORS_MAX;
    for (size_t i = 0; i < q->n_max; i++) q->lanes[i].h = h;
    uint64_t bytes = lay_out_query(q, NULL);
    q->memory = bytes <= SIZE_MAX / 2 ? tern_alloc(TERN_MEM_SESSION, (size_t)bytes) : NULL;
    if (!q->memory) {
        tern_status status = tern_fail_memory(err, (size_t)bytes);
        tern_free(q);
        return status;
    }
    lay_out_query(q, q->memory);
    *out = q;
    return TERN_OK;
}

void tern_head_query_free(tern_head_query *q) {
    if (!q) return;
    tern_free(q->memory);
    tern_free(q);
}

size_t tern_head_query_max(const tern_head_query *q) { return q->n_max; }

typedef struct x_norms {
    double x, e, e_hi; // |x|, |e|, |e'|
} x_norms;

// Quantizes x; the sums of squares and the errors, whose factors have 24 and 15 bits, are double.
static x_norms quantize_x(head_lane *q, const float *x) {
    size_t n = q->h->w.n_in, n_groups = q->h->n_groups;
    double squares = 0, squares_e = 0, squares_hi = 0;
    float most = 0;
    for (size_t i = 0; i < n; i++) {
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        squares += (double)x[i] * x[i];
    }
    float xi = most / (127 * 128);
    // The greatest number must not exceed 127 * 128, nor xi be too coarse to divide by.
    bool is_plain = isfinite(squares) && isfinite(most) && xi > 0x1p-100f;
    if (!is_plain) xi = 0;
    q->half_xi = xi / 2;
    double per_xi = is_plain ? 1 / (double)xi : 0;
    memset(q->codes.hi, 0, n_groups * TERN_HEAD_GROUP);
    memset(q->codes.lo, 0, n_groups * TERN_HEAD_GROUP);
    memset(q->codes.sum_x, 0, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    memset(q->codes.sum_hi, 0, n_groups * TERN_HEAD_LANES * sizeof(int32_t));
    for (size_t i = 0; i < n; i++) {
        size_t g = i / TERN_HEAD_GROUP, t = i % TERN_HEAD_GROUP / TERN_HEAD_LANES;
        size_t lane = i % TERN_HEAD_LANES, at = TERN_HEAD_GROUP * g + t / 4 * 64 + 4 * lane + t % 4;
        int32_t code = is_plain ? (int32_t)rint(x[i] * per_xi) : 0;
        if (code > 127 * 128) code = 127 * 128;
        if (code < -127 * 128) code = -127 * 128;
        int32_t hi = (code + 64 + 128 * 128) / 128 - 128, lo = code - 128 * hi;
        double e = x[i] - (double)xi * code, e_hi = x[i] - (double)xi * (128 * hi);
        q->codes.hi[at] = (int8_t)hi;
        q->codes.lo[at] = (int8_t)lo;
        q->codes.sum_x[TERN_HEAD_LANES * g + lane] += 15 * code;
        q->codes.sum_hi[TERN_HEAD_LANES * g + lane] += hi;
        squares_e += e * e;
        squares_hi += e_hi * e_hi;
    }
    return (x_norms){sqrt(squares), sqrt(squares_e), sqrt(squares_hi)};
}

// Coarser than this, and the error of hi would count beside that of the 4-bit codes.
#define COARSE_ERROR (1.0 / 64)

static void begin_lane(head_lane *q, const float *x, int32_t k, bool is_alone) {
    x_norms norm = quantize_x(q, x);
    double slack = q->h->rounding, up = 1 + 0x1p-20; // for the roundings of norms and bounds
    const float least = 0x1p-126f; // more than what a conversion to float loses by underflow
    double e_hi = norm.e_hi > norm.e ? norm.e_hi : norm.e;
    q->is_coarse = !is_alone && e_hi <= COARSE_ERROR * norm.x;
    if (q->is_coarse) norm.e = e_hi;
    double rounding = slack * (norm.x + e_hi);
    q->x = x;
    q->k = k;
    q->least = -INFINITY;
    for (int p = 0; p < TERN_HEAD_PLANES; p++) {
        double at_r[TERN_HEAD_PLANES] = {norm.e + 2 * rounding};
        for (int i = 1; i <= p; i++) {
            at_r[i - 1] += e_hi;
            at_r[i] += e_hi;
        }
        at_r[p] += norm.x;
        for (int i = 0; i < TERN_HEAD_PLANES; i++) q->at_r[p][i] = (float)(at_r[i] * up) + least;
    }
    q->at_w = (float)((norm.e + rounding) * up) + least;
    q->at_r_deep = (float)((norm.x + norm.e + 2 * rounding) * up) + least;
    q->is_deep = false;
    atomic_store(&q->n_listed, 0);
    atomic_store(&q->n_open, 0);
    for (int i = 0; i < 2; i++) atomic_store(&q->n_passed[i], 0);
}

// Lists the rows that are allowed, if they are few: reading them in full is half of the first plane
// or less.
static bool list_few(head_lane *q) {
    const tern_head *h = q->h;
    const uint64_t most = tern_head_screen_bytes(h) / 2 / (h->w.row_bytes ? h->w.row_bytes : 1);
    const size_t n_words = (h->w.n_rows + WORD - 1) / WORD;
    size_t n = 0;
    for (size_t i = 0; i < n_words && n <= most; i++)
        n += (size_t)__builtin_popcountll(q->allowed[i]);
    if (n > most) return false;
    n = 0;
    for (size_t i = 0; i < n_words; i++)
        for (uint64_t w = q->allowed[i]; w; w &= w - 1) {
            const size_t row = i * WORD + (size_t)__builtin_ctzll(w);
            if (row < h->w.n_rows) q->ids[n++] = (int32_t)row;
        }
    atomic_store(&q->n_listed, n);
    return true;
}

void tern_head_begin(tern_head_query *q, const float *x, size_t n_x, int32_t k,
                     const uint64_t *const *allowed) {
    bool few = allowed != NULL;
    for (size_t i = 0; i < n_x; i++) {
        q->lanes[i].allowed = allowed ? allowed[i] : NULL;
        few = few && q->lanes[i].allowed;
    }
    q->n = n_x;
    q->round = SCREEN;
    size_t n_coarse = 0;
    for (size_t i = 0; i < n_x; i++) {
        begin_lane(&q->lanes[i], x + i * q->h->w.n_in, k, n_x == 1);
        n_coarse += q->lanes[i].is_coarse;
    }
    for (size_t i = 0; i < n_x && few; i++) few = list_few(&q->lanes[i]);
    if (few) q->round = FEW;
    for (size_t i = 0; i < n_x && !few; i++) atomic_store(&q->lanes[i].n_listed, 0);
    if (!q->is_open || !q->h->k->screen_deep || n_coarse < DEEP) return;
    for (size_t i = 0; i < n_x; i++) q->lanes[i].is_deep = q->lanes[i].is_coarse;
}

size_t tern_head_n_items(const tern_head_query *q) {
    size_t n = 0;
    for (size_t i = 0; i < q->n && q->round == FEW; i++) n += atomic_load(&q->lanes[i].n_listed);
    if (q->round == FEW) return n;
    return q->round == SEED ? q->n * (size_t)q->lanes[0].n_seeds : q->h->w.n_rows;
}

size_t tern_head_block(const tern_head_query *q) {
    return q->round == SEED ? 1 : q->round == FEW ? 8 : BLOCK;
}

// ---- Round 1 -----------------------------------------------------------------------------------

static bool is_allowed(const head_lane *q, size_t row) {
    return !q->allowed || q->allowed[row / WORD] >> row % WORD & 1;
}

// Whether one of the lanes wants one of the rows.
static bool is_wanted(const tern_head_query *q, size_t first, size_t last) {
    for (size_t i = 0; i < q->n; i++) {
        const uint64_t *allowed = q->lanes[i].allowed;
        if (!allowed) return true;
        for (size_t w = first / WORD; w * WORD < last; w++)
            if (allowed[w]) return true;
    }
    return false;
}

// Makes rows that are not allowed less than all others.
static void leave_out(head_lane *q, size_t first, size_t last) {
    for (size_t w = first / WORD; w * WORD < last; w++)
        for (uint64_t bits = ~q->allowed[w]; bits; bits &= bits - 1) {
            size_t row = w * WORD + (size_t)__builtin_ctzll(bits);
            if (row < last) q->approx[row] = -INFINITY;
        }
}

// Turns sums into a_1, and finds the greatest of the block.
static void finish_screen(head_lane *q, size_t first, size_t last) {
    const float *rho = q->h->rho + first;
    const float unit = q->half_xi * (q->is_deep ? 32 : q->is_coarse ? 128 : 1);
    float *approx = q->approx + first, top = -INFINITY;
    for (size_t i = 0; i < last - first; i++) approx[i] *= rho[i] * unit;
    if (q->allowed) leave_out(q, first, last);
    for (size_t i = 0; i < last - first; i++) {
        top = approx[i] > top ? approx[i] : top;
    }
    q->block_top[first / BLOCK] = top;
}

// Some rows against the lanes of a group: as many at once as share the unpacking.
static void screen_together(const tern_head *h, head_lane *const *lanes, size_t n, size_t first,
                            size_t last) {
    const size_t n_parts = (n + TERN_HEAD_SHARED - 1) / TERN_HEAD_SHARED;
    for (size_t part = 0; part < n_parts; part++) {
        const size_t begin = n * part / n_parts, end = n * (part + 1) / n_parts;
        const tern_head_vector *x[TERN_HEAD_SHARED];
        float *out[TERN_HEAD_SHARED];
        for (size_t i = begin; i < end; i++) {
            x[i - begin] = &lanes[i]->codes;
            out[i - begin] = lanes[i]->approx + first;
        }
        h->k->screen_hi(out, &(tern_head_screen){.codes = codes_of(h, first),
                                                 .scales = scales_of(h, first),
                                                 .x = x,
                                                 .n_x = end - begin,
                                                 .n_tiles = tiles_of(last - first),
                                                 .n_vectors = h->n_vectors});
    }
}

// The same with all six bits.
static void screen_deeply(const tern_head *h, head_lane *const *lanes, size_t n, size_t first,
                          size_t last) {
    const tern_head_vector *x[TERN_HEAD_VECTORS_MAX];
    float *out[TERN_HEAD_VECTORS_MAX];
    for (size_t i = 0; i < n; i++) {
        x[i] = &lanes[i]->codes;
        out[i] = lanes[i]->approx + first;
    }
    h->k->screen_deep(out, &(tern_head_screen){.codes = codes_of(h, first),
                                               .scales = scales_of(h, first),
                                               .bits = {bits_of(h, 1, first), bits_of(h, 2, first)},
                                               .x = x,
                                               .n_x = n,
                                               .n_tiles = tiles_of(last - first),
                                               .n_vectors = h->n_vectors});
}

static void screen_block(tern_head_query *q, size_t first, size_t last) {
    const tern_head *h = q->h;
    head_lane *coarse[TERN_HEAD_VECTORS_MAX];
    size_t n_coarse = 0;
    if (!is_wanted(q, first, last)) {
        for (size_t i = 0; i < q->n; i++) q->lanes[i].block_top[first / BLOCK] = -INFINITY;
        return;
    }
    for (size_t i = 0; i < q->n; i++) {
        head_lane *lane = &q->lanes[i];
        if (lane->is_coarse)
            coarse[n_coarse++] = lane;
        else
            h->k->screen(lane->approx + first, codes_of(h, first), scales_of(h, first),
                         &lane->codes, tiles_of(last - first), h->n_vectors);
    }
    if (n_coarse && coarse[0]->is_deep)
        screen_deeply(h, coarse, n_coarse, first, last);
    else
        screen_together(h, coarse, n_coarse, first, last);
    for (size_t i = 0; i < q->n; i++) finish_screen(&q->lanes[i], first, last);
}

// The seeds: a heap over all rows; most blocks need no look inside.
static void choose_seeds(head_lane *q) {
    size_t n_rows = q->h->w.n_rows, wanted = (size_t)q->k + MORE_SEEDS;
    q->n_seeds = (int32_t)(wanted < n_rows ? wanted : n_rows);
    top_list t = top_open(q->ids, q->values, q->n_seeds);
    for (size_t first = 0; first < n_rows; first += BLOCK) {
        size_t last = first + BLOCK < n_rows ? first + BLOCK : n_rows;
        if (!(q->block_top[first / BLOCK] > t.values[0])) continue;
        for (size_t r = first; r < last; r++)
            if (is_allowed(q, r)) top_put(&t, (int32_t)r, q->approx[r]);
    }
}

// ---- Rounds 2 and 3 ----------------------------------------------------------------------------

static float exact_logit(const head_lane *q, size_t row) {
    const tern_head_matrix *w = &q->h->w;
    float y;
    q->h->f->matvec(&(tern_matvec_args){.y = &y,
                                        .x = q->x,
                                        .w = (const uint8_t *)w->data + row * w->row_bytes,
                                        .type = w->type,
                                        .row_bytes = w->row_bytes,
                                        .n_rows = 1,
                                        .n_in = w->n_in,
                                        .scale = w->scale});
    return y;
}

static float bound(const head_lane *q, size_t row, int plane) {
    const tern_head *h = q->h;
    float b = h->norm_w[row] * q->at_w + 0x1p-100f;
    for (int i = 0; i <= plane; i++) b += h->norm_r[i][row] * q->at_r[plane][i];
    return b;
}

// Which vectors still want a row of the block: bit i for lane i.
typedef uint32_t lane_set;
_Static_assert(TERN_HEAD_VECTORS_MAX <= 32, "a bit for every lane");

// Marks the rows that are allowed, and by their upper bounds, `high`, may reach M.
static bool mark_allowed(const head_lane *q, size_t first, size_t last, const float *high,
                         lane_set *sets, lane_set lane) {
    bool any = false;
    for (size_t i = 0; i < last - first; i++) {
        if (high[i] < q->least || !is_allowed(q, first + i)) continue;
        sets[i] |= lane;
        any = true;
    }
    return any;
}

// Adds the lane to the sets of the rows that the first round does not rule out. True: there are
// some.
static bool mark_survivors(const head_lane *q, size_t first, size_t last, lane_set *sets,
                           lane_set lane) {
    const float *approx = q->approx + first, *norm_w = q->h->norm_w + first;
    const float *norm_r = q->h->norm_r[q->is_deep ? 2 : 0] + first;
    float at_w = q->at_w, at_r = q->is_deep ? q->at_r_deep : q->at_r[0][0], least = q->least;
    float high[BLOCK];
    for (size_t i = 0; i < last - first; i++)
        high[i] = approx[i] + (norm_w[i] * at_w + norm_r[i] * at_r + 0x1p-100f);
    if (q->allowed) return mark_allowed(q, first, last, high, sets, lane);
    lane_set any = 0;
    for (size_t i = 0; i < last - first; i++) {
        lane_set survives = high[i] < least ? 0 : lane;
        sets[i] |= survives;
        any |= survives;
    }
    return any != 0;
}

// Counts the rows of the block that plane 1 would have left open for a deep lane, by a_3 instead of
// a_1.
static void count_open(head_lane *q, size_t first, size_t last) {
    size_t n = 0;
    for (size_t i = first; i < last; i++)
        n += !(q->approx[i] + q->h->norm_w[i] * q->at_w + q->h->norm_r[0][i] * q->at_r[0][0] <
               q->least);
    atomic_fetch_add_explicit(&q->n_open, n, memory_order_relaxed);
}

// The next bit of plane p for one row and the lanes of its set: a_p becomes a_(p+1). Returns the
// lanes for which that does not rule the row out either.
static lane_set refine_row(tern_head_query *q, size_t row, lane_set set, int p,
                           uint32_t n_passed[]) {
    const tern_head *h = q->h;
    const tern_head_vector *x[TERN_HEAD_VECTORS_MAX];
    head_lane *lanes[TERN_HEAD_VECTORS_MAX];
    float sums[TERN_HEAD_VECTORS_MAX];
    const float step = p == 1 ? 64 : 32; // half of that of hi in the plane
    size_t n = 0;
    lane_set left = 0;
    for (lane_set rest = set; rest; rest &= rest - 1) {
        lanes[n] = &q->lanes[__builtin_ctz(rest)];
        x[n] = &lanes[n]->codes;
        n++;
    }
    h->k->refine(sums, bits_of(h, p, row), scales_of(h, row), x, n, h->n_groups);
    for (size_t i = 0; i < n; i++) {
        float a = lanes[i]->approx[row] += h->rho[row] * (lanes[i]->half_xi * step) * sums[i];
        size_t lane = (size_t)(lanes[i] - q->lanes);
        n_passed[lane]++;
        if (!(a + bound(lanes[i], row, p) < lanes[i]->least)) left |= (lane_set)1 << lane;
    }
    return left;
}

// The rows of the block that some of the lanes want, as places in it.
static size_t places_of(const lane_set *sets, size_t n_rows, lane_set some, uint8_t places[BLOCK]) {
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        places[n] = (uint8_t)i;
        n += (sets[i] & some) != 0;
    }
    return n;
}

// As many vectors go over a block together as the first-level cache holds.
enum { TOGETHER = 8 };

// Rows of a block, counted from `first`.
typedef struct block_rows {
    size_t first, n;
    uint8_t *places; // [n]
    lane_set *sets;  // of each row of the block
} block_rows;

// Keeps those of the rows that plane p does not rule out for all of the lanes. Prefetches the bits
// of later rows, which the hardware cannot guess.
static void refine_rows(tern_head_query *q, block_rows *rows, lane_set some, int p) {
    const size_t first = rows->first, n = rows->n;
    uint8_t *places = rows->places;
    lane_set *sets = rows->sets;
    enum { AHEAD = 4 };
    const tern_head *h = q->h;
    uint32_t n_passed[TERN_HEAD_VECTORS_MAX] = {0};
    size_t n_left = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            const uint8_t *ahead = bits_of(h, p, first + places[i + AHEAD]);
            for (size_t g = 0; g < h->n_groups; g++) __builtin_prefetch(ahead + 64 * g);
        }
        lane_set *set = &sets[places[i]];
        lane_set left = refine_row(q, first + places[i], *set & some, p, n_passed);
        *set = (*set & ~some) | left;
        places[n_left] = places[i];
        n_left += left != 0;
    }
    for (size_t i = 0; i < q->n; i++)
        if (n_passed[i])
            atomic_fetch_add_explicit(&q->lanes[i].n_passed[p - 1], n_passed[i],
                                      memory_order_relaxed);
    rows->n = n_left;
}

// A row that passed all tests, for each lane of its set.
static void list_row(tern_head_query *q, size_t row, lane_set set) {
    for (; set; set &= set - 1) {
        head_lane *lane = &q->lanes[__builtin_ctz(set)];
        size_t at = atomic_fetch_add_explicit(&lane->n_listed, 1, memory_order_relaxed);
        lane->ids[at] = (int32_t)row;
        lane->values[at] = exact_logit(lane, row);
    }
}

// Tests with the other planes the rows that the first round leaves open for lanes of `some`.
static void refine_lanes(tern_head_query *q, size_t first, size_t last, lane_set *sets,
                         lane_set some) {
    uint8_t places[BLOCK];
    block_rows rows = {first, places_of(sets, last - first, some, places), places, sets};
    for (int p = 1; p < TERN_HEAD_PLANES; p++) refine_rows(q, &rows, some, p);
}

static void refine_block(tern_head_query *q, size_t first, size_t last) {
    lane_set sets[BLOCK] = {0}, any = 0;
    if (!is_wanted(q, first, last)) return;
    for (size_t i = 0; i < q->n; i += TOGETHER) {
        lane_set shallow = 0;
        for (size_t k = i; k < q->n && k < i + TOGETHER; k++) {
            const lane_set lane = (lane_set)1 << k;
            if (q->lanes[k].is_deep && first / BLOCK % SAMPLE == 0)
                count_open(&q->lanes[k], first, last);
            if (!mark_survivors(&q->lanes[k], first, last, sets, lane)) continue;
            any |= lane;
            if (!q->lanes[k].is_deep) shallow |= lane;
        }
        if (shallow) refine_lanes(q, first, last, sets, shallow);
    }
    if (!any) return;
    for (size_t i = 0; i < last - first; i++) list_row(q, first + i, sets[i]);
}

static void work_on_seeds(tern_head_query *q, size_t first, size_t last) {
    size_t n_seeds = (size_t)q->lanes[0].n_seeds;
    for (size_t i = first; i < last; i++) {
        head_lane *lane = &q->lanes[i / n_seeds];
        size_t seed = i % n_seeds;
        if (lane->ids[seed] == INT32_MAX) continue; // fewer than asked for if the a_1 are NaN
        lane->values[seed] = exact_logit(lane, (size_t)lane->ids[seed]);
    }
}

// Computes the logits of the lanes' lists, which follow each other.
static void work_on_few(tern_head_query *q, size_t first, size_t last) {
    size_t before = 0;
    for (size_t i = 0; i < q->n && before < last; i++) {
        head_lane *lane = &q->lanes[i];
        const size_t n = atomic_load(&lane->n_listed);
        const size_t end = last - before < n ? last - before : n;
        for (size_t at = first > before ? first - before : 0; at < end; at++)
            lane->values[at] = exact_logit(lane, (size_t)lane->ids[at]);
        before += n;
    }
}

void tern_head_work(tern_head_query *q, size_t first, size_t last) {
    if (q->round == FEW) {
        work_on_few(q, first, last);
        return;
    }
    if (q->round == SEED) {
        work_on_seeds(q, first, last);
        return;
    }
    for (size_t at = first; at < last; at += BLOCK) {
        size_t end = at + BLOCK < last ? at + BLOCK : last;
        if (q->round == SCREEN)
            screen_block(q, at, end);
        else
            refine_block(q, at, end);
    }
}

// The best k of the first n in the list.
static void choose_best(head_lane *lane, size_t n, int32_t *ids, float *values, bool sorted) {
    top_list t = top_open(ids, values, lane->k);
    for (size_t i = 0; i < n; i++) top_put(&t, lane->ids[i], lane->values[i]);
    lane->least = values[0];
    if (sorted) top_sort(&t);
}

// True: an eighth of the rows or more needed another plane, and six bits at once would be faster.
static bool left_many_open(const tern_head_query *q) {
    uint64_t n_open = 0;
    for (size_t i = 0; i < q->n; i++) {
        const head_lane *lane = &q->lanes[i];
        n_open += lane->is_deep ? SAMPLE * (uint64_t)atomic_load(&lane->n_open)
                                : atomic_load(&lane->n_passed[0]);
    }
    return n_open * 8 >= (uint64_t)q->n * q->h->w.n_rows;
}

bool tern_head_next(tern_head_query *q, int32_t *ids, float *values) {
    for (size_t i = 0; i < q->n; i++) {
        head_lane *lane = &q->lanes[i];
        size_t at = i * (size_t)lane->k;
        if (q->round == SCREEN)
            choose_seeds(lane);
        else if (q->round == SEED)
            choose_best(lane, (size_t)lane->n_seeds, ids + at, values + at, false);
        else
            choose_best(lane, atomic_load(&lane->n_listed), ids + at, values + at, true);
    }
    if (q->round == FEW) return false;
    if (q->round == REFINE) {
        q->is_open = left_many_open(q);
        return false;
    }
    q->round = q->round == SCREEN ? SEED : REFINE;
    return true;
}

tern_head_stats tern_head_query_stats(const tern_head_query *q, size_t i) {
    const tern_head *h = q->h;
    const head_lane *lane = &q->lanes[i];
    tern_head_stats s = {.is_deep = lane->is_deep,
                         .n_exact = atomic_load(&lane->n_listed),
                         .bytes = tern_head_screen_bytes(h)};
    for (int p = 0; p < 2; p++) {
        s.n_refined[p] = atomic_load(&lane->n_passed[p]);
        s.bytes += s.n_refined[p] * 64 * (uint64_t)h->n_groups;
    }
    s.bytes += s.n_refined[0] * TERN_HEAD_LANES * (uint64_t)h->n_groups;
    if (lane->is_deep) s.bytes += h->w.n_rows * 128 * (uint64_t)h->n_groups;
    const size_t n_seeds = q->round == FEW ? 0 : (size_t)lane->n_seeds;
    if (q->round == FEW) s.bytes = 0;
    s.bytes += (s.n_exact + n_seeds) * (uint64_t)h->w.row_bytes;
    return s;
}
