// The proof that the head's low-bit copy may be trusted, and the rounds of a query.
//
// The copy (head_copy.c) has three planes: w^1 of 4-bit codes, w^2 and w^3 with a bit more each,
// and the rounded-up norms |w| and |r_p|, r_p = w - w^p.
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
#include <string.h>
#include "kernels/cpu/head/head_parts.h"
#include "kernels/cpu/top_list.h"

enum { MORE_SEEDS = 7, DEEP = 8, SAMPLE = 16 };

// ---- A query -----------------------------------------------------------------------------------

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
        tern_head_begin_lane(&q->lanes[i], x + i * q->h->w.n_in, k, n_x == 1);
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
