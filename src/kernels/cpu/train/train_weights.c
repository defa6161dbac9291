// What training does to whole weights: rounding, norms, and a step of each optimizer. All threads
// of the team call a function with the same step; sums are cut by their length alone, so that the
// bits do not depend on the threads.
#include <math.h>
#include <string.h>
#include "kernels/cpu/train/cpu_train.h"

// Long sums of floats are cut in pieces that are added in double.
enum { PIECE = 4096 };

static double sum_piece(const cpu_train_run *run, tern_op op, const float *x, size_t n) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    return op == TERN_OP_TERNARIZE ? k->sum_abs(x, n) : k->dot(x, x, n);
}

// Sum of |x| (ternarize) or of squares over a whole weight, for every thread; a barrier inside.
static double team_sum(cpu_train_run *run, cpu_train_step *s, const tern_team *team, const float *x,
                       size_t n) {
    size_t length = (cpu_train_part_length(n, PIECE) + PIECE - 1) / PIECE * PIECE, first, last;
    double sum = 0, *sums = run->program->sums;
    while (tern_team_claim(&s->counter, n, length, &first, &last)) {
        double part = 0;
        for (size_t i = first; i < last; i += PIECE)
            part += sum_piece(run, s->node->op, x + i, last - i < PIECE ? last - i : PIECE);
        sums[first / length] = part;
    }
    tern_team_barrier(team);
    for (size_t i = 0; i * length < n; i++) sum += sums[i];
    return sum;
}

void cpu_train_ternarize(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_size(run, s->node->in[0]), first, last;
    cpu_train_share(team, n, &first, &last);
    const float *w = cpu_train_floats(run, s->node->in[0], first, last, o.out[0]);
    if (w == o.out[0]) tern_team_barrier(team);
    float gamma = (float)(team_sum(run, s, team, w, n) / (double)n);
    if (first < last)
        cpu_train_kernels(run)->ternarize(o.out[0] + first, w + first, gamma, last - first);
}

// n: of whole blocks. x and out may be the same.
static void round_in_part(tern_dtype type, const float *x, size_t n, float unrounded, float *out) {
    enum { MOST = 1024 };
    float rounded[MOST];
    for (size_t at = 0; at < n; at += MOST) {
        const size_t length = n - at < MOST ? n - at : MOST;
        tern_dtype_round(type, x + at, NULL, length, rounded, NULL);
        for (size_t i = 0; i < length; i++)
            out[at + i] = rounded[i] + unrounded * (x[at + i] - rounded[i]);
    }
}

void cpu_train_fake_quantize(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    cpu_operands o = cpu_train_operands(run, s->node);
    const tern_dtype type = (tern_dtype)s->node->dtype;
    const size_t block = tern_dtype_block_n(type);
    size_t n = cpu_train_size(run, s->node->in[0]), first, last;
    size_t length = (cpu_train_part_length(n, PIECE) + block - 1) / block * block;
    (void)team;
    while (tern_team_claim(&s->counter, n, length, &first, &last)) {
        const float *w = cpu_train_floats(run, s->node->in[0], first, last, o.out[0]);
        if (run->batch->unrounded > 0)
            round_in_part(type, w + first, last - first, run->batch->unrounded, o.out[0] + first);
        else
            tern_dtype_round(type, w + first, NULL, last - first, o.out[0] + first, NULL);
    }
}

void cpu_train_squares(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    cpu_operands o = cpu_train_operands(run, s->node);
    double sum = team_sum(run, s, team, o.in[0], cpu_train_size(run, s->node->in[0]));
    if (team->thread == 0) o.in[1][0] += (float)sum;
}

void cpu_train_zero(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    size_t n = cpu_train_size(run, s->node->in[0]), first, last;
    cpu_train_share(team, n, &first, &last);
    if (first < last)
        memset(cpu_train_value(run, s->node->in[0]) + first, 0, (last - first) * sizeof(float));
}

// ---- AdamW -------------------------------------------------------------------------------------

// The factor of all gradients that gives them a norm of clip at most.
static float grad_scale(const tern_train_batch *b, const float *norm2) {
    float norm = sqrtf(*norm2);
    return b->clip > 0 && norm > b->clip ? b->clip / norm : 1;
}

static float rate_of(const cpu_train_run *run, const cpu_train_step *s) {
    return run->batch->rate * s->node->update.factor;
}

static float kept(const cpu_train_run *run, const cpu_train_step *s) {
    return 1 - (s->node->update.decays ? rate_of(run, s) * run->batch->decay : 0);
}

static tern_adamw adamw_of(const cpu_train_run *run, const cpu_train_step *s, const float *norm2) {
    const tern_train_batch *b = run->batch;
    return (tern_adamw){.beta1 = b->beta1,
                        .beta2 = b->beta2,
                        .eps = b->eps,
                        .grad_scale = grad_scale(b, norm2),
                        .rate_1 = (float)(rate_of(run, s) / (1 - pow(b->beta1, (double)b->step))),
                        .inverse_2 = (float)(1 / (1 - pow(b->beta2, (double)b->step))),
                        .keep = kept(run, s)};
}

void cpu_train_adamw(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_size(run, s->node->in[0]), first, last;
    tern_adamw a = adamw_of(run, s, o.in[4]);
    const cpu_masters w = cpu_train_masters(run, s->node->in[0]);
    float room[CPU_TRAIN_BLOCK];
    cpu_train_share(team, n, &first, &last);
    for (size_t count; first < last; first += count) {
        count = w.data || last - first < CPU_TRAIN_BLOCK ? last - first : CPU_TRAIN_BLOCK;
        float *block = cpu_train_take(&w, first, count, room);
        cpu_train_kernels(run)->adamw(block, o.in[2] + first, o.in[3] + first, o.in[1] + first,
                                      count, &a);
        cpu_train_put(&w, first, count, block);
    }
}

// ---- AdamW with moments of 8 bits --------------------------------------------------------------

// A block of TERN_ADAMW8_BLOCK moments is a float, the largest magnitude, and a byte for each:
// sign and size c of largest * (c / most)^4. The fourth power spans ten decades in a byte, since
// second moments of a block differ by as many; its steps are 1.6% to 12% of the number. (Block-wise
// 8-bit states: arXiv:2110.02861.)
enum { BLOCK = TERN_ADAMW8_BLOCK, MOST_SIGNED = 127, MOST = 255 };
_Static_assert((int)BLOCK <= (int)CPU_TRAIN_BLOCK, "a block of weights is taken at once");

static float fourth(float x) { return x * x * (x * x); }

static void unpack(const float *block, bool is_signed, size_t n, float *out) {
    const uint8_t *codes = (const uint8_t *)(block + 1);
    float most = is_signed ? MOST_SIGNED : MOST;
    for (size_t i = 0; i < n; i++) {
        int c = is_signed ? (int8_t)codes[i] : codes[i];
        float size = block[0] * fourth((float)(c < 0 ? -c : c) / most);
        out[i] = c < 0 ? -size : size;
    }
}

// A second moment that is not 0 stays so: it divides.
static void pack(const float *x, bool is_signed, size_t n, float *block) {
    uint8_t *codes = (uint8_t *)(block + 1);
    float largest = 0, most = is_signed ? MOST_SIGNED : MOST;
    for (size_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    block[0] = largest;
    for (size_t i = 0; i < n; i++) {
        float share = largest > 0 ? fabsf(x[i]) / largest : 0;
        float root = most * sqrtf(sqrtf(share));
        int c = root > 0 ? (int)rintf(root) : 0; // also of what is not a number
        if (!is_signed && c == 0 && x[i] > 0) c = 1;
        codes[i] = (uint8_t)(x[i] < 0 ? -c : c);
    }
}

void cpu_train_adamw8(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    cpu_operands o = cpu_train_operands(run, s->node);
    size_t n = cpu_train_size(run, s->node->in[0]), first, last;
    size_t n_blocks = (n + BLOCK - 1) / BLOCK;
    tern_adamw a = adamw_of(run, s, o.in[4]);
    const cpu_masters w = cpu_train_masters(run, s->node->in[0]);
    float m[BLOCK], v[BLOCK], room[BLOCK];
    while (tern_team_claim(&s->counter, n_blocks, 16, &first, &last))
        for (size_t i = first; i < last; i++) {
            size_t at = i * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
            float *m8 = o.in[2] + i * TERN_ADAMW8_FLOATS, *v8 = o.in[3] + i * TERN_ADAMW8_FLOATS;
            unpack(m8, true, count, m);
            unpack(v8, false, count, v);
            float *block = cpu_train_take(&w, at, count, room);
            cpu_train_kernels(run)->adamw(block, m, v, o.in[1] + at, count, &a);
            cpu_train_put(&w, at, count, block);
            pack(m, true, count, m8);
            pack(v, false, count, v8);
        }
}

// ---- Muon --------------------------------------------------------------------------------------

// A step along the nearest matrix with equal singular values (Jordan and others, 2024):
//
//   m = momentum m + g,  x = (g + momentum m) / its norm
//   five times  x = a x + b (x x^T) x + c (x x^T)^2 x      (Newton and Schulz)
//   w = w - rate (0.2 sqrt(max(rows, columns)) x + decay w)
//
// The factor gives x the size of AdamW's steps, so that one rate is good for both
// (arXiv:2502.16982). The gradient's memory becomes x; products are of floats in any case.
static const float A = 3.4445f, B = -4.7750f, C = 2.0315f;
enum { ITERATIONS = 5 };

typedef struct muon {
    cpu_train_run *run;
    cpu_train_step *step;
    const tern_team *team;
    size_t rows, cols, side; // side: the lesser one
    float *x, *y, *square;   // y: as x; square: [side][side]
} muon;

static void product(const muon *u, cpu_gemm g) {
    cpu_train_rewind(u->step, u->team);
    cpu_gemm_team(u->run->program->device->kernels.g, &g, u->team, &u->step->counter,
                  cpu_train_scratch(u->run, u->team));
    tern_team_barrier(u->team);
}

// x x^T, or x^T x if that is smaller.
static void multiply_itself(const muon *u) {
    bool wide = u->rows <= u->cols;
    product(u, (cpu_gemm){.transpose_a = !wide,
                          .transpose_b = wide,
                          .m = u->side,
                          .n = u->side,
                          .k = wide ? u->cols : u->rows,
                          .a = u->x,
                          .b = u->x,
                          .c = u->square,
                          .lda = u->cols,
                          .ldb = u->cols,
                          .ldc = u->side});
}

// to (+)= square from, or from square.
static void multiply_square(const muon *u, const float *from, float *to, bool adds) {
    bool wide = u->rows <= u->cols;
    product(u, (cpu_gemm){.accumulate = adds,
                          .m = u->rows,
                          .n = u->cols,
                          .k = u->side,
                          .a = wide ? u->square : from,
                          .b = wide ? from : u->square,
                          .c = to,
                          .lda = wide ? u->side : u->cols,
                          .ldb = wide ? u->cols : u->side,
                          .ldc = u->cols});
}

static void iterate(const muon *u) {
    size_t first, last;
    cpu_train_share(u->team, u->rows * u->cols, &first, &last);
    multiply_itself(u);
    multiply_square(u, u->x, u->y, false);
    for (size_t i = first; i < last; i++) {
        u->x[i] = A * u->x[i] + B * u->y[i];
        u->y[i] *= C;
    }
    multiply_square(u, u->y, u->x, true);
}

// w = by[0] w - by[1] x
static void descend(const cpu_masters *w, const float *x, size_t first, size_t last,
                    const float by[2]) {
    float room[CPU_TRAIN_BLOCK];
    for (size_t n; first < last; first += n) {
        n = last - first < CPU_TRAIN_BLOCK ? last - first : CPU_TRAIN_BLOCK;
        float *block = cpu_train_take(w, first, n, room);
        for (size_t i = 0; i < n; i++) block[i] = by[0] * block[i] - by[1] * x[first + i];
        cpu_train_put(w, first, n, block);
    }
}

void cpu_train_muon(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_train_batch *b = run->batch;
    const tern_value *value = &run->program->g->values[s->node->in[0]];
    cpu_operands o = cpu_train_operands(run, s->node);
    const cpu_masters w = cpu_train_masters(run, s->node->in[0]);
    float *x = o.in[1], *m = o.in[2], scale = grad_scale(b, o.in[3]);
    muon u = {.run = run,
              .step = s,
              .team = team,
              .rows = (size_t)value->rows,
              .cols = (size_t)value->cols,
              .x = x,
              .y = run->program->shared};
    size_t n = u.rows * u.cols, first, last;
    u.side = u.rows < u.cols ? u.rows : u.cols;
    u.square = u.y + n;
    cpu_train_share(team, n, &first, &last);
    for (size_t i = first; i < last; i++) {
        float g = scale * x[i];
        m[i] = b->momentum * m[i] + g;
        x[i] = g + b->momentum * m[i];
    }
    tern_team_barrier(team);
    float norm = (float)sqrt(team_sum(run, s, team, x, n)) + 1e-7f;
    for (size_t i = first; i < last; i++) x[i] /= norm;
    for (int i = 0; i < ITERATIONS; i++) iterate(&u);
    float rate = rate_of(run, s) * 0.2f * sqrtf((float)(u.rows > u.cols ? u.rows : u.cols));
    descend(&w, x, first, last, (const float[]){kept(run, s), rate});
}

size_t cpu_train_shared_floats(const tern_program *p, const tern_node *n) {
    if (n->op != TERN_OP_MUON) return cpu_train_stripe_floats(p, n);
    const tern_value *w = &p->g->values[n->in[0]];
    size_t side = (size_t)(w->rows < w->cols ? w->rows : w->cols);
    return (size_t)(w->rows * w->cols) + side * side;
}
