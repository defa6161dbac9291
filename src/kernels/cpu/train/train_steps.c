// One function per op of training. All threads of the team call it with the same step, and share
// out rows or stretches of a weight. Sums over rows or over a weight are cut into parts by their
// length alone and added in order, so that the bits of a run depend neither on the number of
// threads nor on which of them was faster.
#include <math.h>
#include <string.h>
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/train/cpu_train.h"

typedef cpu_operands operands;
static operands values_of(const cpu_train_run *run, const tern_node *n) {
    return cpu_train_operands(run, n);
}
static size_t n_rows(const cpu_train_run *run) { return run->n_rows; }
static size_t cols(const cpu_train_run *run, tern_vid v) { return cpu_train_cols(run, v); }
static bool claim_rows(const cpu_train_run *run, cpu_train_step *s, size_t *first, size_t *last) {
    return cpu_train_claim_rows(run, s, first, last);
}

// ---- Rows --------------------------------------------------------------------------------------

static void step_embed(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    operands o = values_of(run, s->node);
    const tern_vid w = s->node->in[1];
    const bool coded = cpu_train_is_coded(run, w);
    size_t n = cols(run, s->node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            const size_t id = (size_t)run->batch->ids[t];
            if (coded)
                cpu_train_decode(run, w, id, cpu_train_scratch(run, team), o.out[0] + t * n);
            else
                memcpy(o.out[0] + t * n, o.in[1] + id * n, n * sizeof(float));
        }
}

// Groups of as many columns as the weight has are normed one by one: heads of queries and keys.
static void step_rms_norm(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    operands o = values_of(run, s->node);
    size_t row = cols(run, s->node->out[0]), n = cols(run, s->node->in[1]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t at = first * row; at < last * row; at += n)
            cpu_train_kernels(run)->rms_norm(o.out[0] + at, o.in[0] + at, o.in[1], n,
                                             s->node->norm.eps);
}

static void step_layer_norm(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    operands o = values_of(run, s->node);
    size_t n = cols(run, s->node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t at = first * n; at < last * n; at += n)
            cpu_train_kernels(run)->layer_norm(o.out[0] + at, o.in[0] + at, o.in[1], o.in[2], n,
                                               s->node->norm.eps);
}

static void step_quantize(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    operands o = values_of(run, s->node);
    const tern_float_kernels *k = cpu_train_kernels(run);
    size_t n = cols(run, s->node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++)
            (s->node->group ? k->fake_quantize_groups : k->fake_quantize)(o.out[0] + t * n,
                                                                          o.in[0] + t * n, n);
}

static void step_rope(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_program *p = run->program;
    const tern_node *n = s->node;
    operands o = values_of(run, n);
    size_t row = cols(run, n->out[0]), half = (size_t)n->rope.angles.n_rot / 2, first, last;
    const float *cos_table = p->rope_tables + (size_t)s->rope * p->rope_stride;
    const float *sin_table = cos_table + (size_t)p->n_span * half * (n->rope.inverse ? 2 : 1);
    while (claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++) {
            size_t at = (t - (size_t)run->batch->starts[t]) * half;
            memcpy(o.out[0] + t * row, o.in[0] + t * row, row * sizeof(float));
            for (int h = 0; h < n->rope.n_heads; h++)
                cpu_train_kernels(run)->rope(o.out[0] + t * row + (size_t)(h * n->rope.head_dim),
                                             cos_table + at, sin_table + at,
                                             (size_t)n->rope.angles.n_rot, n->rope.angles.halves);
        }
}

// add, mul, scale, act, glu and their gradients go over blocks of whole rows as over one long row.
static void step_elementwise(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_float_kernels *k = cpu_train_kernels(run);
    const tern_node *node = s->node;
    operands o = values_of(run, node);
    tern_cpu_act act = tern_node_has(node, TERN_ATTRS_ACT) ? cpu_act_of(node->act.kind) : 0;
    size_t row = cols(run, node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last)) {
        size_t at = first * row, n = (last - first) * row;
        float *y = o.out[0] + at, *a = o.in[0] + at, *b = o.in[1] ? o.in[1] + at : NULL;
        switch (node->op) {
        case TERN_OP_ADD: k->add(y, a, b, n); break;
        case TERN_OP_MUL: k->mul(y, a, b, n); break;
        case TERN_OP_SCALE: k->scale(y, a, node->scale, n); break;
        case TERN_OP_ACT: k->act(y, a, n, act); break;
        case TERN_OP_GLU: k->glu(y, a, b, n, act); break;
        case TERN_OP_ACT_GRAD: k->act_grad(y, a, b, n, act); break;
        default:
            k->glu_grad(&(tern_glu_grad_args){y, o.out[1] + at, a, b, o.in[2] + at, n}, act);
            break;
        }
    }
}

// y = x minus its mean; y may be x.
static void center(float *y, const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i];
    float mean = (float)(sum / (double)n);
    for (size_t i = 0; i < n; i++) y[i] = x[i] - mean;
}

// A row of a LayerNorm's gradient: rms_norm's for the centered row, and itself centered.
static void layer_norm_grad(const tern_float_kernels *k, const tern_rms_norm_grad_args *args,
                            float *centered) {
    tern_rms_norm_grad_args a = *args;
    center(centered, a.x, a.n);
    a.x = centered;
    k->rms_norm_grad(&a);
    center(a.dx, a.dx, a.n);
}

// Each part of the rows has its own sum for the norm's weight, if that is trained.
static void step_norm_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_node *node = s->node;
    const tern_program *p = run->program;
    const tern_float_kernels *k = cpu_train_kernels(run);
    operands o = values_of(run, node);
    bool trained = p->g->values[node->in[3]].kind == TERN_VALUE_STATE;
    size_t row = cols(run, node->out[0]), n = cols(run, node->in[1]);
    size_t length = cpu_train_part_length(n_rows(run), CPU_TRAIN_ROW_BLOCK), first, last;
    while (tern_team_claim(&s->counter, n_rows(run), length, &first, &last)) {
        float *dw = trained ? p->parts + first / length * p->part_floats : NULL;
        if (dw) memset(dw, 0, n * sizeof *dw);
        for (size_t at = first * row; at < last * row; at += n) {
            const tern_rms_norm_grad_args a = {.dx = o.out[0] + at,
                                               .dw = dw,
                                               .x = o.in[0] + at,
                                               .w = o.in[1],
                                               .dy = o.in[2] + at,
                                               .residual = o.in[4] ? o.in[4] + at : NULL,
                                               .n = n,
                                               .eps = node->norm.eps};
            if (node->op == TERN_OP_LAYER_NORM_GRAD)
                layer_norm_grad(k, &a, cpu_train_scratch(run, team));
            else
                k->rms_norm_grad(&a);
        }
    }
    if (!trained) return;
    tern_team_barrier(team);
    cpu_train_share(team, n, &first, &last);
    float *dw = o.in[3] + first;
    for (size_t i = 0; first < last && i * length < n_rows(run); i++)
        k->add(dw, dw, p->parts + i * p->part_floats + first, last - first);
}

static void step_bias(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    operands o = values_of(run, s->node);
    size_t n = cols(run, s->node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++)
            cpu_train_kernels(run)->add(o.out[0] + t * n, o.in[0] + t * n, o.in[1], n);
}

static void step_scale_by(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_float_kernels *k = cpu_train_kernels(run);
    operands o = values_of(run, s->node);
    const bool by_column = cols(run, s->node->in[1]) > 1;
    size_t n = cols(run, s->node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t at = first * n; at < last * n; at += n) {
            if (by_column)
                k->mul(o.out[0] + at, o.in[0] + at, o.in[1], n);
            else
                k->scale(o.out[0] + at, o.in[0] + at, o.in[1][0], n);
        }
}

// The op of inference, and its gradient: those of a norm with a weight of ones.
static void step_group_norm(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const tern_node *node = s->node;
    operands o = values_of(run, node);
    float *ones = cpu_train_scratch(run, team);
    size_t row = cols(run, node->out[0]), n = (size_t)node->norm.group, first, last;
    for (size_t i = 0; i < n; i++) ones[i] = 1;
    while (claim_rows(run, s, &first, &last))
        for (size_t at = first * row; at < last * row; at += n)
            if (node->op == TERN_OP_GROUP_NORM)
                k->rms_norm(o.out[0] + at, o.in[0] + at, ones, n, node->norm.eps);
            else
                k->rms_norm_grad(&(tern_rms_norm_grad_args){.dx = o.out[0] + at,
                                                            .x = o.in[0] + at,
                                                            .w = ones,
                                                            .dy = o.in[1] + at,
                                                            .n = n,
                                                            .eps = node->norm.eps});
}

// The op of inference, and its gradient.
static void step_hadamard(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const tern_rotation *r = &s->node->rotation;
    operands o = values_of(run, s->node);
    const float *signs = r->has_signs ? o.in[1] : NULL;
    float *moved = cpu_train_scratch(run, team);
    size_t n = cols(run, s->node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t at = first * n; at < last * n; at += n) {
            const float *x = o.in[0] + at;
            if (r->groups) x = cpu_rotation_order(r, x, n, moved);
            k->hadamard(o.out[0] + at, x, r->inverse ? NULL : signs, n, (size_t)r->block);
            if (r->inverse && signs) k->mul(o.out[0] + at, o.out[0] + at, signs, n);
        }
}

static void step_cap(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const tern_node *node = s->node;
    operands o = values_of(run, node);
    float *capped = cpu_train_scratch(run, team);
    size_t n = cols(run, node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t at = first * n; at < last * n; at += n) {
            if (node->op == TERN_OP_CAP) {
                k->soft_cap(o.out[0] + at, o.in[0] + at, node->soft_cap, n);
                continue;
            }
            k->soft_cap(capped, o.in[0] + at, node->soft_cap, n);
            memcpy(o.out[0] + at, o.in[1] + at, n * sizeof *capped);
            k->soft_cap_grad(o.out[0] + at, capped, node->soft_cap, n);
        }
}

static void step_pieces(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_node *node = s->node;
    operands o = values_of(run, node);
    size_t n = cols(run, node->out[0]), first, last;
    while (claim_rows(run, s, &first, &last))
        for (size_t t = first; t < last; t++)
            for (size_t i = 0, at = t * n; i < TERN_PIECES_MAX;
                 at += (size_t)node->pieces.widths[i++])
                cpu_train_kernels(run)->scale(o.out[0] + at, o.in[0] + at, node->pieces.factors[i],
                                              (size_t)node->pieces.widths[i]);
}

// Each thread has a stretch of the columns, so that a sum has one order.
static void step_bias_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    operands o = values_of(run, s->node);
    size_t n = cols(run, s->node->in[0]), first, last;
    cpu_train_share(team, n, &first, &last);
    float *db = o.in[1] + first;
    for (size_t t = 0; first < last && t < n_rows(run); t++)
        cpu_train_kernels(run)->add(db, db, o.in[0] + t * n + first, last - first);
}

// Each thread has a stretch of the columns: two rows may have the same token.
static void step_embed_grad(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    operands o = values_of(run, s->node);
    size_t n = cols(run, s->node->in[1]), first, last;
    cpu_train_share(team, n, &first, &last);
    for (size_t t = 0; t < n_rows(run); t++) {
        float *dw = o.in[2] + (size_t)run->batch->ids[t] * n + first;
        cpu_train_kernels(run)->add(dw, dw, o.in[1] + t * n + first, last - first);
    }
}

// Picks some columns of every group, or adds them back.
static void step_columns(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    (void)team;
    const tern_node *node = s->node;
    bool back = node->op == TERN_OP_COLUMNS_GRAD;
    operands o = values_of(run, node);
    size_t group = (size_t)node->columns.group, width = (size_t)node->columns.width, row_first,
           row_last;
    size_t n_groups = cols(run, node->in[0]) / (back ? width : group);
    float *wide = back ? o.out[0] : o.in[0], *narrow = back ? o.in[0] : o.out[0];
    while (claim_rows(run, s, &row_first, &row_last)) {
        size_t first = row_first * n_groups, last = row_last * n_groups;
        if (back && node->n_in == 1)
            memset(wide + first * group, 0, (last - first) * group * sizeof *wide);
        for (size_t i = first; i < last; i++) {
            float *a = wide + i * group + (size_t)node->columns.first, *b = narrow + i * width;
            if (!back)
                memcpy(b, a, width * sizeof *b);
            else
                cpu_train_kernels(run)->add(a, a, b, width);
        }
    }
}

// ---- Convolution -------------------------------------------------------------------------------

enum { CONV_COLS = 64 }; // of a task: all rows, so that sums over them have one order

static void conv_rows(const cpu_train_run *run, const tern_node *n, const operands *o,
                      size_t first_col, size_t last_col, float *tail) {
    const tern_program *p = run->program;
    size_t d = cols(run, n->in[0]),
           taps = cols(run, n->in[n->op == TERN_OP_DEPTHWISE_CONV_GRAD_W ? 2 : 1]);
    const tern_float_kernels *k = cpu_train_kernels(run);
    for (size_t i = 0; i < p->n_documents; i++) {
        size_t length = (size_t)(p->documents[i + 1] - p->documents[i]);
        size_t at = (size_t)p->documents[i] * d;
        tern_conv_grad_args grad = {.dy = o->in[0] + at,
                                    .n_rows = length,
                                    .n_cols = d,
                                    .n_taps = taps,
                                    .first = first_col,
                                    .last = last_col};
        if (n->op == TERN_OP_DEPTHWISE_CONV_GRAD_X) {
            grad.dx = o->out[0] + at, grad.w = o->in[1];
            k->conv_grad_x(&grad);
        }
        if (n->op == TERN_OP_DEPTHWISE_CONV_GRAD_W) {
            grad.dw = o->in[2], grad.x = o->in[1] + at;
            k->conv_grad_w(&grad);
        }
        if (n->op != TERN_OP_DEPTHWISE_CONV_SEQ) continue;
        memset(tail, 0, (taps - 1) * d * sizeof *tail);
        k->conv(&(tern_conv_args){.y = o->out[0] + at,
                                  .x = o->in[0] + at,
                                  .y_stride = d,
                                  .x_stride = d,
                                  .w = o->in[1],
                                  .state = tail,
                                  .n_rows = length,
                                  .n_cols = d,
                                  .n_taps = taps,
                                  .first = first_col,
                                  .last = last_col});
    }
}

static void step_depthwise_conv(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    operands o = values_of(run, s->node);
    size_t first, last;
    while (tern_team_claim(&s->counter, cols(run, s->node->in[0]), CONV_COLS, &first, &last))
        conv_rows(run, s->node, &o, first, last, cpu_train_scratch(run, team));
}

// ---- Linears -----------------------------------------------------------------------------------

static void multiply(const cpu_train_run *run, cpu_train_step *s, const tern_team *team,
                     const cpu_gemm *g) {
    cpu_gemm_team(run->program->device->gemm, g, team, &s->counter, cpu_train_scratch(run, team));
}

// y = x W^T; for the gradient, dx (+)= dy W.
static void step_linear(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_node *node = s->node;
    if (cpu_train_is_coded(run, node->in[1])) {
        cpu_train_linear_codes(run, s, team);
        return;
    }
    operands o = values_of(run, node);
    bool back = node->op == TERN_OP_LINEAR_GRAD_X;
    size_t n_in = cols(run, node->in[0]), n_out = cols(run, node->out[0]);
    multiply(run, s, team,
             &(cpu_gemm){.transpose_b = !back,
                         .accumulate = back && node->n_in > 2,
                         .m = n_rows(run),
                         .n = n_out,
                         .k = n_in,
                         .a = o.in[0],
                         .lda = n_in,
                         .b = o.in[1],
                         .ldb = back ? n_out : n_in,
                         .c = o.out[0],
                         .ldc = n_out});
}

// dW += dy^T x
static void step_linear_grad_w(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_node *node = s->node;
    operands o = values_of(run, node);
    size_t n_out = cols(run, node->in[0]), n_in = cols(run, node->in[1]);
    multiply(run, s, team,
             &(cpu_gemm){.transpose_a = true,
                         .accumulate = true,
                         .m = n_out,
                         .n = n_in,
                         .k = n_rows(run),
                         .a = o.in[0],
                         .lda = n_out,
                         .b = o.in[1],
                         .ldb = n_in,
                         .c = o.in[2],
                         .ldc = n_in});
}

// ---- The table ---------------------------------------------------------------------------------

cpu_train_fn cpu_train_fn_for(tern_op op) {
    switch (op) {
    case TERN_OP_EMBED: return step_embed;
    case TERN_OP_RMS_NORM: return step_rms_norm;
    case TERN_OP_LAYER_NORM: return step_layer_norm;
    case TERN_OP_QUANTIZE: return step_quantize;
    case TERN_OP_TERNARIZE: return cpu_train_ternarize;
    case TERN_OP_FAKE_QUANTIZE: return cpu_train_fake_quantize;
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_GRAD_X: return step_linear;
    case TERN_OP_LINEAR_GRAD_W: return step_linear_grad_w;
    case TERN_OP_ROPE: return step_rope;
    case TERN_OP_ADD:
    case TERN_OP_MUL:
    case TERN_OP_SCALE:
    case TERN_OP_ACT:
    case TERN_OP_GLU:
    case TERN_OP_ACT_GRAD:
    case TERN_OP_GLU_GRAD: return step_elementwise;
    case TERN_OP_SCALE_BY: return step_scale_by;
    case TERN_OP_ROW_FACTORS: return cpu_train_row_factors;
    case TERN_OP_SCALE_PIECES: return step_pieces;
    case TERN_OP_GROUP_NORM:
    case TERN_OP_GROUP_NORM_GRAD: return step_group_norm;
    case TERN_OP_HADAMARD: return step_hadamard;
    case TERN_OP_CAP:
    case TERN_OP_CAP_GRAD: return step_cap;
    case TERN_OP_BIAS: return step_bias;
    case TERN_OP_BIAS_GRAD: return step_bias_grad;
    case TERN_OP_COLUMNS:
    case TERN_OP_COLUMNS_GRAD: return step_columns;
    case TERN_OP_DEPTHWISE_CONV_SEQ:
    case TERN_OP_DEPTHWISE_CONV_GRAD_X:
    case TERN_OP_DEPTHWISE_CONV_GRAD_W: return step_depthwise_conv;
    case TERN_OP_ATTENTION_SEQ:
    case TERN_OP_ATTENTION_GRAD: return cpu_train_attention;
    case TERN_OP_SSM_SEQ:
    case TERN_OP_SSM_GRAD: return cpu_train_ssm;
    case TERN_OP_DELTA_NET_SEQ:
    case TERN_OP_DELTA_NET_GRAD: return cpu_train_delta;
    case TERN_OP_ROUTE:
    case TERN_OP_ROUTE_GRAD: return cpu_train_route;
    case TERN_OP_EXPERTS:
    case TERN_OP_EXPERTS_GRAD_X:
    case TERN_OP_EXPERTS_GRAD_SUM:
    case TERN_OP_EXPERTS_GRAD_W: return cpu_train_experts;
    case TERN_OP_MIX:
    case TERN_OP_MIX_GRAD: return cpu_train_mix;
    case TERN_OP_POOL_SEQ: return cpu_train_pool;
    case TERN_OP_POOL_GRAD: return cpu_train_pool_grad;
    case TERN_OP_TAKE_SCORED: return cpu_train_take_scored;
    case TERN_OP_PUT_SCORED: return cpu_train_put_scored;
    case TERN_OP_KEEP_SCORED: return cpu_train_keep_scored;
    case TERN_OP_CROSS_ENTROPY: return cpu_train_cross_entropy;
    case TERN_OP_CROSS_ENTROPY_GRAD: return cpu_train_cross_entropy_grad;
    case TERN_OP_KEEP_TOP: return cpu_train_keep_top;
    case TERN_OP_DISTILL: return cpu_train_distill;
    case TERN_OP_DISTILL_GRAD: return cpu_train_distill_grad;
    case TERN_OP_SUM_INTO: return cpu_train_sum_into;
    case TERN_OP_SQUARES_INTO: return cpu_train_squares;
    case TERN_OP_ZERO: return cpu_train_zero;
    case TERN_OP_EMBED_GRAD: return step_embed_grad;
    case TERN_OP_LAYER_NORM_GRAD:
    case TERN_OP_RMS_NORM_GRAD: return step_norm_grad;
    case TERN_OP_ADAMW: return cpu_train_adamw;
    case TERN_OP_ADAMW8: return cpu_train_adamw8;
    case TERN_OP_MUON: return cpu_train_muon;
    default: return NULL;
    }
}

size_t cpu_train_scratch_floats(const tern_program *p, const tern_node *n) {
    switch (n->op) {
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_GRAD_X:
    case TERN_OP_LINEAR_GRAD_W:
    case TERN_OP_MUON: return cpu_gemm_scratch_floats();
    case TERN_OP_DEPTHWISE_CONV_SEQ: return (size_t)(p->g->values[n->in[0]].cols * TERN_CONV_TAPS);
    case TERN_OP_ATTENTION_SEQ:
    case TERN_OP_ATTENTION_GRAD: return cpu_train_attention_floats(p, n);
    case TERN_OP_SSM_SEQ:
    case TERN_OP_SSM_GRAD: return cpu_train_ssm_floats(p, n);
    case TERN_OP_DELTA_NET_SEQ:
    case TERN_OP_DELTA_NET_GRAD: return cpu_train_delta_floats(p, n);
    case TERN_OP_EXPERTS:
    case TERN_OP_EXPERTS_GRAD_X:
    case TERN_OP_EXPERTS_GRAD_SUM:
    case TERN_OP_EXPERTS_GRAD_W: return cpu_train_experts_floats(p, n);
    case TERN_OP_DISTILL:
    case TERN_OP_DISTILL_GRAD: return 3 * (size_t)p->g->values[n->in[0]].cols;
    case TERN_OP_GROUP_NORM:
    case TERN_OP_GROUP_NORM_GRAD: return (size_t)n->norm.group;
    case TERN_OP_HADAMARD: return n->rotation.groups ? (size_t)p->g->values[n->in[0]].cols : 0;
    case TERN_OP_ROUTE:
    case TERN_OP_ROUTE_GRAD:
    case TERN_OP_MIX:
    case TERN_OP_LAYER_NORM_GRAD:
    case TERN_OP_KEEP_TOP:
    case TERN_OP_CAP_GRAD: return (size_t)p->g->values[n->in[0]].cols;
    default: return 0;
    }
}

size_t cpu_train_part_floats(const tern_program *p, const tern_node *n) {
    if (n->op == TERN_OP_SSM_GRAD) return cpu_train_ssm_part_floats(p, n);
    bool is_norm = n->op == TERN_OP_RMS_NORM_GRAD || n->op == TERN_OP_LAYER_NORM_GRAD;
    return is_norm ? (size_t)p->g->values[n->in[1]].cols : 0;
}
