// The dispatches of each op of a training graph.
#include "base/alloc.h"
#include "kernels/webgpu/train/gpu_train_steps.h"

// How many numbers a weight or state has.
static uint64_t n_numbers(const tern_program *p, tern_vid v) {
    return (uint64_t)p->g.values[v].rows * (uint64_t)p->g.values[v].cols;
}

void gpu_train_add_parts(tern_program *p, wgpu_buffer parts, uint64_t n4, uint32_t chunk,
                         tern_vid to) {
    gpu_train_step *s = add(p, GPU_TRAIN_ADD_PARTS, fixed(groups(n4, 64)), fixed(1));
    set(s, "N4", (double)n4);
    set(s, "CHUNK", chunk);
    bind(s, parts);
    bind_value(p, s, to);
}

// ---- Rows and elements -------------------------------------------------------------------------

// Rows that a norm makes of a token's: heads, of as many columns as the weight w has.
static uint64_t n_groups(const tern_program *p, tern_vid x, tern_vid w) {
    return cols(p, w) < cols(p, x) ? (uint64_t)(cols(p, x) / cols(p, w)) : 1;
}

static tern_status check_groups(const tern_program *p, tern_vid x, tern_vid w, tern_error *err) {
    if (n_groups(p, x, w) == 1 || cols(p, w) % 4 == 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s has %lld columns, and the GPU trains norms of multiples of 4 only",
                     p->g.values[w].name, (long long)cols(p, w));
}

static tern_status add_rows(tern_program *p, const tern_node *n, gpu_kernel kernel,
                            tern_error *err) {
    tern_vid x = n->in[0], w = n->n_in > 1 ? n->in[1] : x;
    TERN_TRY(check_groups(p, x, w, err));
    const bool in_groups = n->op == TERN_OP_QUANTIZE && n->group;
    uint64_t n_rows = in_groups ? (uint64_t)(cols(p, x) / n->group) : n_groups(p, x, w);
    gpu_train_step *s = add(p, kernel, each(8), fixed(n_rows));
    set(s, "COLS4", (double)(stride4(p, x) / n_rows));
    set(s, "GROUPS", (double)n_rows);
    set(s, "EPS", tern_node_has(n, TERN_ATTRS_NORM) ? (double)n->norm.eps : 0);
    for (int i = 0; i < n->n_in; i++) bind_value(p, s, n->in[i]);
    bind_value(p, s, n->out[0]);
    return TERN_OK;
}

static tern_status add_quantize(tern_program *p, const tern_node *n, tern_error *err) {
    bool half = p->is_half[n->out[0]];
    if (n->op == TERN_OP_QUANTIZE)
        return add_rows(p, n, half ? GPU_TRAIN_QUANTIZE_HALF : GPU_TRAIN_QUANTIZE, err);
    return add_rows(p, n, half ? GPU_TRAIN_NORM_QUANTIZE_HALF : GPU_TRAIN_NORM_QUANTIZE, err);
}

// A norm of groups of columns, without a weight, and its gradient.
static tern_status add_group_norm(tern_program *p, const tern_node *n, tern_error *err) {
    const bool back = n->op == TERN_OP_GROUP_NORM_GRAD;
    const tern_vid x = n->in[0];
    const uint64_t n_rows = (uint64_t)(cols(p, x) / n->norm.group);
    wgpu_buffer root;
    if (n->norm.group % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a norm of %d columns, and the GPU trains multiples of 4 only",
                         (int)n->norm.group);
    gpu_train_step *s = add(p, back ? GPU_TRAIN_NORM_GRAD : GPU_TRAIN_NORM, each(8), fixed(n_rows));
    set(s, "COLS4", n->norm.group / 4);
    set(s, "GROUPS", (double)n_rows);
    set(s, "EPS", (double)n->norm.eps);
    set(s, "PLAIN", 1);
    bind_value(p, s, x);
    bind_value(p, s, x); // no weight
    if (back) bind_value(p, s, n->in[1]);
    if (back) bind_value(p, s, n->in[1]); // nothing to add to
    bind_value(p, s, n->out[0]);
    if (!back) return TERN_OK;
    TERN_TRY(gpu_train_scratch(p, 1, (uint64_t)p->n_rows * n_rows * sizeof(float), &root, err));
    bind(s, root);
    return TERN_OK;
}

static tern_status add_layer_norm(tern_program *p, const tern_node *n, tern_error *err) {
    if (cols(p, n->in[0]) % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a norm of %lld columns, and the GPU trains multiples of 4 only",
                         (long long)cols(p, n->in[0]));
    gpu_train_step *s = add(p, GPU_TRAIN_LAYER_NORM, each(8), fixed(1));
    set(s, "COLS4", (double)stride4(p, n->in[0]));
    set(s, "EPS", (double)n->norm.eps);
    set(s, "PLAIN", n->n_in < 2);
    set(s, "BIASED", n->n_in > 2);
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->in[n->n_in > 1 ? 1 : 0]);
    bind_value(p, s, n->in[n->n_in > 2 ? 2 : 0]);
    bind_value(p, s, n->out[0]);
    return TERN_OK;
}

// Tokens whose share of a small weight's gradient is one part, of at most 128.
static uint32_t tokens_a_part(const tern_program *p) {
    uint32_t chunk = groups((uint64_t)p->n_rows, 128);
    return chunk < 64 ? 64 : chunk;
}

static tern_status add_norm_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    tern_vid x = n->in[0], w = n->in[1], dy = n->in[2], dw = n->in[3];
    TERN_TRY(check_groups(p, x, w, err));
    uint64_t n_rows = n_groups(p, x, w), cols4 = stride4(p, x) / n_rows;
    wgpu_buffer root, parts;
    TERN_TRY(gpu_train_scratch(p, 1, (uint64_t)p->n_rows * n_rows * 2 * sizeof(float), &root, err));
    const bool centered = n->op == TERN_OP_LAYER_NORM_GRAD;
    gpu_train_step *s =
        add(p, centered ? GPU_TRAIN_LAYER_NORM_GRAD : GPU_TRAIN_NORM_GRAD, each(8), fixed(n_rows));
    set(s, "ADD", n->n_in > 4);
    set(s, "COLS4", (double)cols4);
    set(s, "GROUPS", (double)n_rows);
    set(s, "EPS", (double)n->norm.eps);
    bind_value(p, s, x);
    bind_value(p, s, w);
    bind_value(p, s, dy);
    if (!centered) bind_value(p, s, n->n_in > 4 ? n->in[4] : dy);
    bind_value(p, s, n->out[0]);
    bind(s, root);
    if (dw == w) return TERN_OK; // frozen
    uint32_t chunk = tokens_a_part(p);
    uint64_t n_parts = groups((uint64_t)p->n_rows, chunk);
    TERN_TRY(gpu_train_scratch(p, 2, n_parts * cols4 * 16, &parts, err));
    s = add(p, GPU_TRAIN_NORM_GRAD_W, fixed(groups(cols4, 64)), each(chunk));
    set(s, "COLS4", (double)cols4);
    set(s, "GROUPS", (double)n_rows);
    set(s, "CENTERED", centered);
    set(s, "CHUNK", chunk);
    bind_value(p, s, x);
    bind_value(p, s, dy);
    bind(s, parts);
    bind(s, root);
    gpu_train_add_parts(p, parts, cols4, chunk, dw);
    return TERN_OK;
}

static void add_elements(tern_program *p, const tern_node *n, gpu_kernel kernel) {
    uint64_t cols4 = stride4(p, n->out[0]);
    gpu_train_step *s = add(p, kernel, fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "ACT", tern_node_has(n, TERN_ATTRS_ACT) ? n->act.kind : 0);
    set(s, "FACTOR",
        tern_node_has(n, TERN_ATTRS_SCALE)      ? (double)n->scale
        : tern_node_has(n, TERN_ATTRS_SOFT_CAP) ? (double)n->soft_cap
                                                : 0);
    for (int i = 0; i < n->n_in; i++) bind_value(p, s, n->in[i]);
    for (int i = 0; i < n->n_out; i++) bind_value(p, s, n->out[i]);
}

static gpu_kernel glu_grad_of(const tern_program *p, const tern_node *n) {
    return p->is_half[n->out[0]] ? GPU_TRAIN_GLU_GRAD_HALF : GPU_TRAIN_GLU_GRAD;
}

static void add_pieces(tern_program *p, const tern_node *n) {
    static const char *const ends[] = {"END0", "END1", "END2", "END3"};
    static const char *const factors[] = {"FACTOR0", "FACTOR1", "FACTOR2", "FACTOR3", "FACTOR4"};
    uint64_t cols4 = stride4(p, n->out[0]);
    gpu_train_step *s = add(p, GPU_TRAIN_SCALE_PIECES, fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    for (int i = 0, end = 0; i < TERN_PIECES_MAX; i++) {
        end += n->pieces.widths[i];
        if (i < 4) set(s, ends[i], end);
        set(s, factors[i], (double)n->pieces.factors[i]);
    }
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->out[0]);
}

static tern_status add_columns(tern_program *p, const tern_node *n, tern_error *err) {
    bool back = n->op == TERN_OP_COLUMNS_GRAD;
    uint64_t cols4 = stride4(p, n->out[0]);
    if (n->columns.group % 4 != 0 || n->columns.first % 4 != 0 || n->columns.width % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU trains with columns in multiples of 4, not %d at %d of %d",
                         (int)n->columns.width, (int)n->columns.first, (int)n->columns.group);
    gpu_train_step *s = add(p, back ? GPU_TRAIN_COLUMNS_GRAD : GPU_TRAIN_COLUMNS,
                            fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "GROUP4", n->columns.group / 4);
    set(s, "FIRST4", n->columns.first / 4);
    set(s, "WIDTH4", n->columns.width / 4);
    set(s, "ADD", n->n_in > 1);
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->out[0]);
    return TERN_OK;
}

// The op of inference, a workgroup for each block of each row.
#define GROUPS_MAX 65535 // in a direction
static tern_status add_transform(tern_program *p, const tern_node *n, tern_error *err) {
    const tern_rotation *r = &n->rotation;
    const int64_t n_blocks = cols(p, n->in[0]) / r->block;
    if (p->n_rows > GROUPS_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU trains weights in a rotated basis with up to %d tokens at once "
                         "(micro_tokens)",
                         GROUPS_MAX);
    gpu_train_step *s = add(p, GPU_TRAIN_HADAMARD, fixed((uint64_t)n_blocks), each(1));
    TERN_TRY(gpu_set_transform(p->device->gpu, &s->what, r, n_blocks, err));
    bind_value(p, s, n->in[0]);
    bind(s, r->has_signs ? p->buffers[n->in[1]] : p->ids); // without signs it is not read
    bind_value(p, s, n->out[0]);
    return TERN_OK;
}

static void add_turned_columns(tern_program *p, const tern_node *n) {
    const uint64_t cols4 = stride4(p, n->out[0]);
    gpu_train_step *s = add(p, GPU_TRAIN_TURN_COLUMNS, fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "EACH4", n->rotation.each / 4);
    set(s, "REPEATS", n->rotation.repeats);
    set(s, "GROUPS", n->rotation.groups);
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->out[0]);
}

static tern_status add_rotation(tern_program *p, const tern_node *n, tern_error *err) {
    const tern_rotation *r = &n->rotation;
    const int64_t n_cols = cols(p, n->in[0]);
    if (n_cols % 4 != 0 || (r->groups && r->each % 4 != 0))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the GPU trains rotations of columns in multiples of 4, not of %lld in "
                         "groups of %d",
                         (long long)n_cols, (int)r->each);
    if (r->block > 1 || r->has_signs) return add_transform(p, n, err);
    add_turned_columns(p, n);
    return TERN_OK;
}

static void add_depthwise_conv(tern_program *p, const tern_node *n) {
    bool back = n->op == TERN_OP_DEPTHWISE_CONV_GRAD_X;
    uint64_t cols4 = stride4(p, n->out[0]);
    gpu_train_step *s = add(p, back ? GPU_TRAIN_DEPTHWISE_CONV_GRAD_X : GPU_TRAIN_DEPTHWISE_CONV,
                            fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "TAPS", (double)cols(p, n->in[1]));
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->in[1]);
    bind(s, p->spans);
    bind_value(p, s, n->out[0]);
}

// dw += sum over rows of dy and x
static tern_status add_conv_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    tern_vid dy = n->in[0], x = n->in[1], dw = n->in[2];
    uint64_t cols4 = stride4(p, x), taps = (uint64_t)cols(p, dw);
    uint32_t chunk = tokens_a_part(p);
    wgpu_buffer parts;
    TERN_TRY(gpu_train_scratch(p, 1, groups((uint64_t)p->n_rows, chunk) * cols4 * taps * 16, &parts,
                               err));
    gpu_train_step *s =
        add(p, GPU_TRAIN_DEPTHWISE_CONV_GRAD_W, fixed(groups(cols4, 64)), each(chunk));
    set(s, "COLS4", (double)cols4);
    set(s, "TAPS", (double)taps);
    set(s, "CHUNK", chunk);
    bind_value(p, s, x);
    bind_value(p, s, dy);
    bind(s, p->spans);
    bind(s, parts);
    gpu_train_add_parts(p, parts, cols4 * taps, chunk, dw);
    return TERN_OK;
}

static tern_status add_bias_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    uint64_t cols4 = stride4(p, n->in[0]);
    uint32_t chunk = tokens_a_part(p);
    wgpu_buffer parts;
    TERN_TRY(gpu_train_scratch(p, 1, groups((uint64_t)p->n_rows, chunk) * cols4 * 16, &parts, err));
    gpu_train_step *s = add(p, GPU_TRAIN_BIAS_GRAD, fixed(groups(cols4, 64)), each(chunk));
    set(s, "COLS4", (double)cols4);
    set(s, "CHUNK", chunk);
    bind_value(p, s, n->in[0]);
    bind(s, parts);
    gpu_train_add_parts(p, parts, cols4, chunk, n->in[1]);
    return TERN_OK;
}

static void add_embed(tern_program *p, const tern_node *n) {
    if (p->g.values[n->in[1]].is_coded) {
        gpu_train_add_embed_of_codes(p, n);
        return;
    }
    uint64_t cols4 = stride4(p, n->out[0]);
    gpu_train_step *s = add(p, GPU_TRAIN_EMBED, fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "N_ROWS", (double)p->g.values[n->in[1]].rows);
    bind_value(p, s, n->in[1]);
    bind_value(p, s, n->out[0]);
    bind(s, p->ids);
}

// The scored rows of a piece, and back: put_scored goes over all rows of the run.
static void add_scored(tern_program *p, const tern_node *n) {
    bool back = n->op == TERN_OP_PUT_SCORED;
    uint64_t cols4 = stride4(p, n->out[0]);
    gpu_train_step *s = add(p, back ? GPU_TRAIN_PUT_SCORED : GPU_TRAIN_EMBED,
                            fixed(groups(16 * cols4, 256)), each(back ? GPU_EACH_ALL + 16 : 16));
    set(s, "COLS4", (double)cols4);
    set(s, "N_ROWS", (double)p->n_rows);
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->out[0]);
    bind(s, back ? p->places : p->taken);
}

static void add_embed_gradient(tern_program *p, const tern_node *n) {
    uint64_t cols4 = stride4(p, n->in[1]);
    gpu_train_step *s = add(p, GPU_TRAIN_EMBED_GRAD, fixed(groups(cols4, 16)), each(GPU_EACH_ID));
    set(s, "COLS4", (double)cols4);
    bind_value(p, s, n->in[1]);
    bind(s, p->order);
    bind(s, p->found);
    bind_value(p, s, n->in[2]);
}

static tern_status add_rope(tern_program *p, const tern_node *n, tern_error *err) {
    int index;
    TERN_TRY(tern_rope_list_find(&p->ropes, n, NULL, NULL, &index, err));
    uint64_t pairs = (uint64_t)cols(p, n->in[0]) / 2;
    gpu_train_step *s = add(p, GPU_TRAIN_ROPE, fixed(groups(16 * pairs, 256)), each(16));
    set(s, "HEAD_DIM", n->rope.head_dim);
    set(s, "N_ROT", n->rope.angles.n_rot);
    set(s, "HALVES", n->rope.angles.halves);
    set(s, "PAIRS", (double)pairs);
    set(s, "LD", (double)stride4(p, n->in[0]) * 4);
    set(s, "SIGN", n->rope.inverse ? -1 : 1);
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->out[0]);
    bind(s, p->spans);
    bind(s, p->angles[index]);
    return TERN_OK;
}

// ---- Loss --------------------------------------------------------------------------------------

static void add_loss(tern_program *p, const tern_node *n) {
    bool back = n->op == TERN_OP_CROSS_ENTROPY_GRAD;
    gpu_train_step *s = add(p, back ? GPU_TRAIN_LOSS_GRAD : GPU_TRAIN_LOSS, fixed(16), each(16));
    uint32_t threads = 32;
    while (threads < 256 && threads < stride4(p, n->in[0])) threads *= 2;
    set(s, "THREADS", threads);
    set(s, "COLS", (double)cols(p, n->in[0]));
    set(s, "LD4", (double)stride4(p, n->in[0]));
    if (!back) bind_value(p, s, n->in[0]);
    bind(s, p->targets);
    bind_value(p, s, n->out[0]);
    bind_value(p, s, back ? n->in[2] : n->out[1]);
    if (back) bind(s, p->weights);
}

static void add_distill(tern_program *p, const tern_node *n) {
    bool back = n->op == TERN_OP_DISTILL_GRAD;
    int64_t own = cols(p, n->in[0]), other = cols(p, n->in[2]);
    gpu_train_step *s =
        add(p, back ? GPU_TRAIN_DISTILL_GRAD : GPU_TRAIN_DISTILL, fixed(16), each(16));
    uint32_t threads = 32;
    while (threads < 256 && threads < stride4(p, n->in[0])) threads *= 2;
    set(s, "THREADS", threads);
    set(s, "COLS", (double)own);
    set(s, "LD4", (double)stride4(p, n->in[0]));
    set(s, "COMMON", (double)(own < other ? own : other));
    set(s, "TEACHER_LD4", (double)stride4(p, n->in[2]));
    set(s, "RATIO", (double)n->distill.ratio);
    set(s, "TEMPERATURE", (double)n->distill.temperature);
    if (!back) bind_value(p, s, n->in[0]);
    bind(s, p->targets);
    bind_value(p, s, n->in[2]);
    for (int i = 0; i < n->n_out; i++) bind_value(p, s, n->out[i]);
    if (back) bind_value(p, s, n->in[3]);
    if (back) bind(s, p->weights);
}

static void add_keep(tern_program *p, const tern_node *n) {
    gpu_train_step *s = add(p, GPU_TRAIN_KEEP_SCORED, each(256), fixed(1));
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->in[1]);
}

static void add_sum(tern_program *p, const tern_node *n) {
    gpu_train_step *s = add(p, GPU_TRAIN_SUM_ROWS, fixed(1), fixed(1));
    set(s, "COLS", (double)cols(p, n->in[0]));
    set(s, "LD", (double)stride4(p, n->in[0]) * 4);
    int32_t from = p->g.values[n->in[0]].producer; // the losses themselves are not scaled
    set(s, "BACK",
        from >= 0 && p->g.nodes[from].op != TERN_OP_CROSS_ENTROPY &&
            p->g.nodes[from].op != TERN_OP_DISTILL);
    bind_value(p, s, n->in[1]);
    bind_value(p, s, n->in[0]);
}

// A vector of each document, or its gradient in the document's rows.
static void add_pool(tern_program *p, const tern_node *n) {
    bool back = n->op == TERN_OP_POOL_GRAD;
    uint64_t cols4 = stride4(p, n->in[0]);
    gpu_train_step *s = add(p, back ? GPU_TRAIN_POOL_GRAD : GPU_TRAIN_POOL,
                            fixed(groups(16 * cols4, 256)), each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "KIND", n->pool.kind);
    bind_value(p, s, n->in[0]);
    bind(s, p->spans);
    bind(s, p->targets);
    bind_value(p, s, back ? n->out[0] : n->in[2]);
}

// ---- Weights -----------------------------------------------------------------------------------

// Parts of a sum over a whole array, a workgroup each: few enough for one workgroup to add them up.
static uint32_t parts_of(uint64_t count) {
    uint32_t parts = groups(count, 4096);
    return parts < 64 ? parts : 64;
}

static tern_status add_array_parts(tern_program *p, gpu_kernel kernel, tern_vid v,
                                   wgpu_buffer *parts, tern_error *err) {
    uint64_t count = n_numbers(p, v);
    TERN_TRY(gpu_train_scratch(p, 1, 64 * sizeof(float), parts, err));
    gpu_train_step *s = add(p, kernel, fixed(parts_of(count)), fixed(1));
    set(s, "PARTS", parts_of(count));
    set(s, "N4", groups(count, 4));
    bind_value(p, s, v);
    bind(s, *parts);
    return TERN_OK;
}

static tern_status add_ternarize(tern_program *p, const tern_node *n, tern_error *err) {
    wgpu_buffer parts;
    TERN_TRY(add_array_parts(p, GPU_TRAIN_ABS_PARTS, n->in[0], &parts, err));
    uint64_t count = n_numbers(p, n->in[0]);
    gpu_kernel kernel = p->is_half[n->out[0]] ? GPU_TRAIN_TERNARIZE_HALF : GPU_TRAIN_TERNARIZE;
    gpu_train_step *s = add(p, kernel, fixed(groups(count, 4096)), fixed(1));
    set(s, "PARTS", parts_of(count));
    set(s, "N4", groups(count, 4));
    set(s, "N", (double)count);
    bind_value(p, s, n->in[0]);
    bind(s, parts);
    bind_value(p, s, n->out[0]);
    return TERN_OK;
}

static void add_fake_quantize(tern_program *p, const tern_node *n) {
    const tern_dtype type = (tern_dtype)n->dtype;
    const bool in_groups = tern_dtype_group_n(type), bits = type == TERN_DTYPE_Q1_0;
    uint64_t count = n_numbers(p, n->in[0]);
    gpu_train_step *s = add(p, GPU_TRAIN_FAKE_QUANTIZE, fixed(groups(count, 4096)), fixed(1));
    set(s, "N", (double)count);
    set(s, "GROUP", (double)tern_dtype_block_n(type));
    set(s, "KIND", bits ? 1 : in_groups ? 0 : type == TERN_DTYPE_Q4_0 ? 2 : 3);
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->out[0]);
}

static tern_status add_squares(tern_program *p, const tern_node *n, tern_error *err) {
    wgpu_buffer parts;
    TERN_TRY(add_array_parts(p, GPU_TRAIN_SQUARE_PARTS, n->in[0], &parts, err));
    gpu_train_step *s = add(p, GPU_TRAIN_SUM_PARTS, fixed(1), fixed(1));
    set(s, "PARTS", parts_of(n_numbers(p, n->in[0])));
    bind(s, parts);
    bind_value(p, s, n->in[1]);
    return TERN_OK;
}

static void add_update(tern_program *p, const tern_node *n) {
    uint64_t count = n_numbers(p, n->in[0]);
    bool steps = n->op == TERN_OP_ADAMW;
    gpu_train_step *s =
        add(p, steps ? GPU_TRAIN_ADAMW : GPU_TRAIN_ZERO, fixed(groups(count, 4096)), fixed(1));
    set(s, "N4", groups(count, 4));
    set(s, "DECAYS", steps && n->update.decays);
    if (steps) set(s, "FACTOR", (double)n->update.factor);
    // In the order of the bindings: gradient, weight, norm, moments.
    static const int order[] = {1, 0, 4, 2, 3};
    if (!steps)
        bind_value(p, s, n->in[0]);
    else
        for (int i = 0; i < 5; i++) bind_value(p, s, n->in[order[i]]);
}

// ---- All ---------------------------------------------------------------------------------------

// Whether the op reads a weight's numbers one after the other, and not in rows.
static bool reads_flat(tern_op op) {
    switch (op) {
    case TERN_OP_DEPTHWISE_CONV_SEQ:
    case TERN_OP_DEPTHWISE_CONV_GRAD_X:
    case TERN_OP_DEPTHWISE_CONV_GRAD_W:
    case TERN_OP_SQUARES_INTO:
    case TERN_OP_KEEP_SCORED:
    case TERN_OP_ZERO:
    case TERN_OP_ADAMW: return true;
    default: return false;
    }
}

// Rows are read as vec4: unless they are padded, the columns must be a multiple of four; for data
// that is read flat, the whole size must be.
static tern_status check_inputs(const tern_program *p, const tern_node *n, tern_error *err) {
    for (int i = 0; i < n->n_in; i++) {
        const tern_value *v = &p->g.values[n->in[i]];
        bool is_array = v->kind == TERN_VALUE_WEIGHT || v->kind == TERN_VALUE_STATE;
        if (is_array && !p->buffers[n->in[i]] && !p->is_plan && !v->is_coded)
            return tern_fail(err, TERN_ERR_ARGUMENT, "there is no array for %s", v->name);
        int64_t whole = reads_flat(n->op) ? v->rows * v->cols : v->cols;
        if (is_const(p, n->in[i]) && v->rows > 1 && whole % 4 != 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "%s has %lld columns, and the GPU trains multiples of 4 only", v->name,
                             (long long)v->cols);
    }
    return TERN_OK;
}

tern_status gpu_train_add_node(tern_program *p, const tern_node *n, tern_error *err) {
    TERN_TRY(check_inputs(p, n, err));
    gpu_train_decode_inputs(p, n);
    switch (n->op) {
    case TERN_OP_EMBED: add_embed(p, n); break;
    case TERN_OP_RMS_NORM: return add_rows(p, n, GPU_TRAIN_NORM, err);
    case TERN_OP_QUANTIZE:
    case TERN_OP_NORM_QUANTIZE: return add_quantize(p, n, err);
    case TERN_OP_TERNARIZE: return add_ternarize(p, n, err);
    case TERN_OP_FAKE_QUANTIZE: add_fake_quantize(p, n); break;
    case TERN_OP_LINEAR:
    case TERN_OP_LINEAR_GRAD_X: return gpu_train_add_product(p, n, err);
    case TERN_OP_LINEAR_GRAD_W: return gpu_train_add_weight_gradient(p, n, err);
    case TERN_OP_ROPE: return add_rope(p, n, err);
    case TERN_OP_ATTENTION_SEQ: return gpu_train_add_attention(p, n, err);
    case TERN_OP_ATTENTION_GRAD: return gpu_train_add_attention_gradient(p, n, err);
    case TERN_OP_ADD: add_elements(p, n, GPU_TRAIN_ADD); break;
    case TERN_OP_MUL: add_elements(p, n, GPU_TRAIN_MUL); break;
    case TERN_OP_SCALE: add_elements(p, n, GPU_TRAIN_SCALE); break;
    case TERN_OP_BIAS: add_elements(p, n, GPU_TRAIN_BIAS); break;
    case TERN_OP_BIAS_GRAD: return add_bias_gradient(p, n, err);
    case TERN_OP_HADAMARD: return add_rotation(p, n, err);
    case TERN_OP_COLUMNS:
    case TERN_OP_COLUMNS_GRAD: return add_columns(p, n, err);
    case TERN_OP_DEPTHWISE_CONV_SEQ:
    case TERN_OP_DEPTHWISE_CONV_GRAD_X: add_depthwise_conv(p, n); break;
    case TERN_OP_DEPTHWISE_CONV_GRAD_W: return add_conv_gradient(p, n, err);
    case TERN_OP_ACT: add_elements(p, n, GPU_TRAIN_ACT); break;
    case TERN_OP_GLU: add_elements(p, n, GPU_TRAIN_GLU); break;
    case TERN_OP_ACT_GRAD: add_elements(p, n, GPU_TRAIN_ACT_GRAD); break;
    case TERN_OP_GLU_GRAD: add_elements(p, n, glu_grad_of(p, n)); break;
    case TERN_OP_TAKE_SCORED:
    case TERN_OP_PUT_SCORED: add_scored(p, n); break;
    case TERN_OP_CROSS_ENTROPY:
    case TERN_OP_CROSS_ENTROPY_GRAD: add_loss(p, n); break;
    case TERN_OP_DISTILL:
    case TERN_OP_DISTILL_GRAD: add_distill(p, n); break;
    case TERN_OP_KEEP_SCORED: add_keep(p, n); break;
    case TERN_OP_SUM_INTO: add_sum(p, n); break;
    case TERN_OP_POOL_SEQ:
    case TERN_OP_POOL_GRAD: add_pool(p, n); break;
    case TERN_OP_SQUARES_INTO: return add_squares(p, n, err);
    case TERN_OP_ZERO:
    case TERN_OP_ADAMW: add_update(p, n); break;
    case TERN_OP_EMBED_GRAD: add_embed_gradient(p, n); break;
    case TERN_OP_LAYER_NORM: return add_layer_norm(p, n, err);
    case TERN_OP_LAYER_NORM_GRAD:
    case TERN_OP_RMS_NORM_GRAD: return add_norm_gradient(p, n, err);
    case TERN_OP_GROUP_NORM:
    case TERN_OP_GROUP_NORM_GRAD: return add_group_norm(p, n, err);
    case TERN_OP_SCALE_BY: add_elements(p, n, GPU_TRAIN_SCALE_BY); break;
    case TERN_OP_SCALE_PIECES: add_pieces(p, n); break;
    case TERN_OP_CAP: add_elements(p, n, GPU_TRAIN_CAP); break;
    case TERN_OP_CAP_GRAD: add_elements(p, n, GPU_TRAIN_CAP_GRAD); break;
    case TERN_OP_DELTA_NET_SEQ:
    case TERN_OP_SSM_SEQ: return gpu_train_add_scan(p, n, err);
    case TERN_OP_DELTA_NET_GRAD:
    case TERN_OP_SSM_GRAD: return gpu_train_add_scan_gradient(p, n, err);
    case TERN_OP_ROUTE: gpu_train_add_route(p, n); break;
    case TERN_OP_ROUTE_GRAD: gpu_train_add_route_gradient(p, n); break;
    case TERN_OP_MIX: gpu_train_add_mix(p, n); break;
    case TERN_OP_MIX_GRAD: gpu_train_add_mix_gradient(p, n); break;
    case TERN_OP_EXPERTS: return gpu_train_add_experts(p, n, err);
    case TERN_OP_EXPERTS_GRAD_X:
    case TERN_OP_EXPERTS_GRAD_SUM: return gpu_train_add_experts_gradient(p, n, err);
    case TERN_OP_EXPERTS_GRAD_W: return gpu_train_add_experts_weights(p, n, err);
    default:
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the GPU cannot train with the op %s",
                         tern_op_name(n->op));
    }
    return TERN_OK;
}
