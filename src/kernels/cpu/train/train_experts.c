// Mixtures of experts in training, and their gradients (graph/differentiate.c has the formulas).
//
// A pair is a row and one of its chosen experts. The pairs of an expert, in the order of the rows,
// are gathered to be multiplied with its matrix, PAIRS at a time; experts that nobody chose are not
// touched. A thread computes some columns of one expert, or, where experts add to the same row, of
// all of them one after the other, so that a sum has one order whatever the number of threads.
#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train/cpu_train.h"

enum {
    ROW_BLOCK = 16,
    PAIRS = TERN_GEMM_DEPTH, // a sum over pairs has the order of one over rows
    COLS = 128               // of a thread's part
};

static size_t cols(const tern_program *p, tern_vid v) { return (size_t)p->g->values[v].cols; }
static size_t n_tokens(const cpu_train_run *run) { return (size_t)run->batch->n_tokens; }
static bool claim_rows(const cpu_train_run *run, cpu_train_step *s, size_t *first, size_t *last) {
    return tern_team_claim(&s->counter, n_tokens(run), ROW_BLOCK, first, last);
}

// ---- Routing -----------------------------------------------------------------------------------

// scores: room for them. dweights: of the chosen experts, in the order of the route.
static void route_grad_row(const tern_float_kernels *f, const tern_route_attrs *r,
                           const cpu_route_args *a, const float *route, const float *dweights,
                           float *dx) {
    const size_t k = (size_t)r->n_chosen, n = a->n_experts;
    float sum = 0, along = 0, *scores = a->scores;
    cpu_scores_row(f, r, a->x, n, scores);
    for (size_t i = 0; i < k; i++) sum += scores[(size_t)route[i]];
    const float factor = r->normed ? r->scale / (sum + r->eps) : r->scale;
    for (size_t i = 0; r->normed && i < k; i++)
        along += dweights[i] * scores[(size_t)route[i]] / (sum + r->eps);
    memset(dx, 0, n * sizeof *dx);
    for (size_t i = 0; i < k; i++) dx[(size_t)route[i]] = factor * (dweights[i] - along);
    const float all = r->sigmoid ? 0 : f->dot(dx, scores, n);
    for (size_t e = 0; e < n; e++)
        dx[e] = scores[e] * (r->sigmoid ? dx[e] * (1 - scores[e]) : dx[e] - all);
}

void cpu_train_route(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_node *n = s->node;
    const tern_float_kernels *f = cpu_train_kernels(run);
    const size_t n_experts = cols(run->program, n->in[0]), k = (size_t)n->route.n_chosen;
    const bool back = n->op == TERN_OP_ROUTE_GRAD;
    const float *x = cpu_train_value(run, n->in[0]);
    const float *second = n->n_in > 1 ? cpu_train_value(run, n->in[1]) : NULL; // bias, or the route
    const float *droute = back ? cpu_train_value(run, n->in[2]) : NULL;
    float *out = cpu_train_value(run, n->out[0]);
    cpu_route_args a = {.n_experts = n_experts, .scores = cpu_train_scratch(run, team)};
    for (size_t t, last; claim_rows(run, s, &t, &last);)
        for (; t < last; t++) {
            a.x = x + t * n_experts;
            a.bias = back ? NULL : second;
            if (back)
                route_grad_row(f, &n->route, &a, second + t * 2 * k, droute + t * 2 * k + k,
                               out + t * n_experts);
            else
                cpu_route_row(f, &n->route, &a, out + t * 2 * k);
        }
}

// ---- The sum -----------------------------------------------------------------------------------

static void mix_grad_row(const tern_float_kernels *f, const float *x, const float *weights,
                         const float *dy, size_t d, size_t k, float *dx, float *droute) {
    for (size_t j = 0; j < k; j++) f->scale(dx + j * d, dy, weights[j], d);
    if (!droute) return;
    memset(droute, 0, k * sizeof *droute);
    for (size_t j = 0; j < k; j++) droute[k + j] = f->dot(x + j * d, dy, d);
}

void cpu_train_mix(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_node *n = s->node;
    const tern_float_kernels *f = cpu_train_kernels(run);
    const bool back = n->op == TERN_OP_MIX_GRAD;
    const size_t k = (size_t)n->route.n_chosen, d = cols(run->program, n->in[0]) / k;
    const float *x = cpu_train_value(run, n->in[0]), *route = cpu_train_value(run, n->in[1]);
    const float *dy = back ? cpu_train_value(run, n->in[2]) : NULL;
    float *y = cpu_train_value(run, n->out[0]), *part = cpu_train_scratch(run, team);
    float *droute = n->n_out > 1 ? cpu_train_value(run, n->out[1]) : NULL;
    for (size_t t, last; claim_rows(run, s, &t, &last);)
        for (; t < last; t++) {
            const float *rows = x + t * k * d, *weights = route + t * 2 * k + k;
            if (back) {
                mix_grad_row(f, rows, weights, dy + t * d, d, k, y + t * k * d,
                             droute ? droute + t * 2 * k : NULL);
                continue;
            }
            for (size_t j = 0; j < k; j++) { // rounded as in inference
                f->scale(j ? part : y + t * d, rows + j * d, weights[j], d);
                if (j) f->add(y + t * d, y + t * d, part, d);
            }
        }
}

// ---- Products ----------------------------------------------------------------------------------

typedef struct mixture {
    const cpu_train_run *run;
    const float *route, *w, *x, *dy;
    float *y; // y, dx or dw
    size_t n_rows, k, n_experts;
    size_t n_in, n_out;         // of an expert
    bool shared;                // a row of x is read by all of its experts
    bool coded;                 // the experts are decoded one after the other
    float *left, *right, *gemm; // room: [PAIRS][n_in or n_out], [PAIRS][COLS], the product's own
} mixture;

static size_t widest(size_t a, size_t b) { return a > b ? a : b; }

static mixture mixture_of(const cpu_train_run *run, const tern_node *n, float *room) {
    const bool forward = n->op == TERN_OP_EXPERTS, weight = n->op == TERN_OP_EXPERTS_GRAD_W;
    const tern_value *w = &run->program->g->values[n->in[weight ? 3 : 2]];
    const tern_value *x = &run->program->g->values[n->in[weight ? 2 : 0]];
    mixture m = {.run = run,
                 .route = cpu_train_value(run, n->in[1]),
                 .n_rows = n_tokens(run),
                 .k = (size_t)n->route.n_chosen,
                 .n_in = (size_t)w->cols};
    m.coded = !weight && cpu_train_is_coded(run, n->in[2]);
    m.w = weight || m.coded ? NULL : cpu_train_value(run, n->in[2]);
    m.y = cpu_train_value(run, weight ? n->in[3] : n->out[0]);
    m.dy = forward ? NULL : cpu_train_value(run, n->in[0]);
    if (forward || weight) m.x = cpu_train_value(run, n->in[weight ? 2 : 0]);
    m.n_out = forward ? cols(run->program, n->out[0]) / m.k : cols(run->program, n->in[0]) / m.k;
    m.n_experts = (size_t)w->rows / m.n_out;
    m.shared = n->op == TERN_OP_EXPERTS_GRAD_SUM || (m.x && (size_t)x->cols == m.n_in);
    m.left = room;
    m.right = m.left + PAIRS * widest(m.n_in, m.n_out);
    m.gemm = m.right + PAIRS * COLS;
    return m;
}

// The next pairs of an expert from `at` on, as row * k + place in the route; their number.
static size_t next_pairs(const mixture *m, size_t expert, size_t *at, size_t pairs[PAIRS]) {
    size_t n = 0;
    for (; n < PAIRS && *at < m->n_rows * m->k; ++*at) {
        const size_t row = *at / m->k, place = *at % m->k;
        if (m->route[row * 2 * m->k + place] == (float)expert) pairs[n++] = *at;
    }
    return n;
}

static size_t row_of(const mixture *m, size_t pair) { return m->shared ? pair / m->k : pair; }

// Columns of the pairs' rows, `stride` apart.
static void gather(float *to, const float *from, size_t stride, size_t n_cols, const size_t *rows,
                   size_t n) {
    for (size_t i = 0; i < n; i++)
        memcpy(to + i * n_cols, from + rows[i] * stride, n_cols * sizeof *to);
}

static void multiply(const mixture *m, const cpu_gemm *g) {
    cpu_gemm_run(m->run->program->device->gemm, g, m->gemm);
}

// Its matrix; of those that are decoded, the last one that was.
static const float *expert_of(const mixture *m, size_t expert) {
    return m->coded ? m->w : m->w + expert * m->n_out * m->n_in;
}

// Columns [first, first + width) of y, of an expert.
static void forward(const mixture *m, size_t expert, size_t first, size_t width) {
    size_t pairs[PAIRS], rows[PAIRS];
    for (size_t at = 0, n; (n = next_pairs(m, expert, &at, pairs)) > 0;) {
        for (size_t i = 0; i < n; i++) rows[i] = row_of(m, pairs[i]);
        gather(m->left, m->x, m->n_in, m->n_in, rows, n);
        multiply(m, &(cpu_gemm){.transpose_b = true,
                                .m = n,
                                .n = width,
                                .k = m->n_in,
                                .a = m->left,
                                .lda = m->n_in,
                                .b = expert_of(m, expert) + first * m->n_in,
                                .ldb = m->n_in,
                                .c = m->right,
                                .ldc = width});
        for (size_t i = 0; i < n; i++)
            memcpy(m->y + pairs[i] * m->n_out + first, m->right + i * width, width * sizeof *m->y);
    }
}

// The same of dx; rows that experts share are added up.
static void back(const mixture *m, size_t expert, size_t first, size_t width) {
    size_t pairs[PAIRS];
    for (size_t at = 0, n; (n = next_pairs(m, expert, &at, pairs)) > 0;) {
        gather(m->left, m->dy, m->n_out, m->n_out, pairs, n);
        multiply(m, &(cpu_gemm){.m = n,
                                .n = width,
                                .k = m->n_out,
                                .a = m->left,
                                .lda = m->n_out,
                                .b = expert_of(m, expert) + first,
                                .ldb = m->n_in,
                                .c = m->right,
                                .ldc = width});
        for (size_t i = 0; i < n; i++) {
            float *dx = m->y + row_of(m, pairs[i]) * m->n_in + first;
            if (m->shared)
                cpu_train_kernels(m->run)->add(dx, dx, m->right + i * width, width);
            else
                memcpy(dx, m->right + i * width, width * sizeof *dx);
        }
    }
}

// Rows [first, first + height) of dW += dy^T x, of an expert.
static void weight_back(const mixture *m, size_t expert, size_t first, size_t height) {
    size_t pairs[PAIRS], rows[PAIRS];
    for (size_t at = 0, n; (n = next_pairs(m, expert, &at, pairs)) > 0;) {
        for (size_t i = 0; i < n; i++) rows[i] = row_of(m, pairs[i]);
        gather(m->left, m->x, m->n_in, m->n_in, rows, n);
        gather(m->right, m->dy + first, m->n_out, height, pairs, n);
        multiply(m, &(cpu_gemm){.transpose_a = true,
                                .accumulate = true,
                                .m = height,
                                .n = m->n_in,
                                .k = n,
                                .a = m->right,
                                .lda = height,
                                .b = m->left,
                                .ldb = m->n_in,
                                .c = m->y + (expert * m->n_out + first) * m->n_in,
                                .ldc = m->n_in});
    }
}

// Zeros where experts that share rows add to them.
static void clear_columns(const mixture *m, size_t first, size_t width) {
    for (size_t t = 0; t < m->n_rows; t++)
        memset(m->y + t * m->n_in + first, 0, width * sizeof *m->y);
}

// Columns of all rows' dx, one expert after the other.
static void sum_back(const mixture *m, size_t first, size_t width) {
    clear_columns(m, first, width);
    for (size_t e = 0; e < m->n_experts; e++) back(m, e, first, width);
}

static bool is_chosen(const mixture *m, size_t expert) {
    size_t at = 0, pairs[PAIRS];
    return next_pairs(m, expert, &at, pairs) > 0;
}

// The team decodes an expert, then shares out its columns; then the next one's. Sums over experts
// have the order of sum_back.
static void experts_in_turn(mixture *m, cpu_train_run *run, cpu_train_step *s,
                            const tern_team *team) {
    const bool is_forward = s->node->op == TERN_OP_EXPERTS;
    const size_t n = is_forward ? m->n_out : m->n_in, blocks = (n + COLS - 1) / COLS;
    size_t unit, end;
    while (s->node->op == TERN_OP_EXPERTS_GRAD_SUM &&
           tern_team_claim(&s->counter, blocks, 1, &unit, &end))
        clear_columns(m, unit * COLS, n - unit * COLS < COLS ? n - unit * COLS : COLS);
    cpu_train_rewind(s, team);
    for (size_t e = 0; e < m->n_experts; e++) {
        if (!is_chosen(m, e)) continue;
        const cpu_train_stripe of = {s->node->in[2], e * m->n_out, m->n_out};
        m->w = cpu_train_decode_rows(run, s, team, &of);
        while (tern_team_claim(&s->counter, blocks, 1, &unit, &end)) {
            const size_t first = unit * COLS, width = n - first < COLS ? n - first : COLS;
            if (is_forward)
                forward(m, e, first, width);
            else
                back(m, e, first, width);
        }
        cpu_train_rewind(s, team);
    }
}

void cpu_train_experts(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_op op = s->node->op;
    mixture m = mixture_of(run, s->node, cpu_train_scratch(run, team));
    const bool by_input = op == TERN_OP_EXPERTS_GRAD_X || op == TERN_OP_EXPERTS_GRAD_SUM;
    const size_t n = by_input ? m.n_in : m.n_out, blocks = (n + COLS - 1) / COLS;
    if (m.coded) {
        experts_in_turn(&m, run, s, team);
        return;
    }
    size_t unit, end, units = op == TERN_OP_EXPERTS_GRAD_SUM ? blocks : blocks * m.n_experts;
    while (tern_team_claim(&s->counter, units, 1, &unit, &end)) {
        const size_t first = unit % blocks * COLS, width = n - first < COLS ? n - first : COLS;
        if (op == TERN_OP_EXPERTS)
            forward(&m, unit / blocks, first, width);
        else if (op == TERN_OP_EXPERTS_GRAD_W)
            weight_back(&m, unit / blocks, first, width);
        else if (op == TERN_OP_EXPERTS_GRAD_X)
            back(&m, unit / blocks, first, width);
        else
            sum_back(&m, first, width);
    }
}

size_t cpu_train_experts_floats(const tern_program *p, const tern_node *n) {
    const bool forward = n->op == TERN_OP_EXPERTS, weight = n->op == TERN_OP_EXPERTS_GRAD_W;
    const size_t n_in = cols(p, n->in[weight ? 3 : 2]);
    const size_t n_out = cols(p, forward ? n->out[0] : n->in[0]) / (size_t)n->route.n_chosen;
    return PAIRS * (widest(n_in, n_out) + COLS) + cpu_gemm_scratch_floats();
}
