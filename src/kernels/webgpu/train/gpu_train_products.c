// Matrix products of a training graph. The matrix units multiply halves and add float32. Workgroups
// round a factor when they load it, all that read it the same; so one that many read is faster as
// halves in memory. Either its op writes halves, if only the units read them (is_half), or it is
// rounded into a buffer before the product, which the next product of it finds there. And rows
// should lie along the reduction, which is how the units take them: the factors of a gradient are
// turned. The bits are the same in all ways.
#include "kernels/webgpu/train/gpu_train_steps.h"

// ---- Halves ------------------------------------------------------------------------------------

// Uses of scratch: of each, one value is held in each size. Both factors of dW may have one size.
enum { OF_TOKENS = 4, OF_GRADIENTS, OF_WEIGHTS, OF_HEAD, TURNED }; // TURNED + each of them

static bool may_be_halves(const tern_program *p, tern_vid v) {
    const tern_value *value = &p->g.values[v];
    return value->cols % 16 == 0 && !value->is_coded;
}

// Whether the units compute a product of W: y = x W^T, dx = dy W or dW = dy^T x. Codes are decoded
// in stripes of any number of rows.
static bool is_of_halves(const tern_program *p, const tern_value *w) {
    return !w->is_coded && gpu_train_by_units(p, (uint64_t)w->rows, (uint64_t)w->cols);
}

static const tern_value *weight_of(const tern_program *p, const tern_node *n) {
    return &p->g.values[n->in[n->op == TERN_OP_LINEAR_GRAD_W ? 2 : 1]];
}

bool gpu_train_takes_halves(const tern_program *p, const tern_node *n, int input) {
    bool is_product =
        n->op == TERN_OP_LINEAR || n->op == TERN_OP_LINEAR_GRAD_X || n->op == TERN_OP_LINEAR_GRAD_W;
    return is_product && input < 2 && may_be_halves(p, n->in[input]) &&
           is_of_halves(p, weight_of(p, n));
}

void gpu_train_forget_halves(tern_program *p) {
    for (size_t i = 0; i < p->n_slots; i++) p->slots[i].holds = GPU_NO_VALUE;
}

static gpu_slot *slot_of_halves(tern_program *p, tern_vid v, bool turned) {
    for (size_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].use >= OF_TOKENS && (p->slots[i].use >= TURNED) == turned &&
            p->slots[i].holds == v)
            return &p->slots[i];
    return NULL;
}

static tern_status add_halves(tern_program *p, tern_vid v, int use, tern_error *err) {
    const uint64_t cols4 = stride4(p, v),
                   n_rows = is_const(p, v) ? (uint64_t)p->g.values[v].rows : 0;
    const bool turned = use >= TURNED;
    gpu_slot *slot;
    TERN_TRY(gpu_train_slot(p, use, gpu_train_rows_in_memory(p, v) * cols4 * 8, &slot, err));
    slot->holds = v;
    gpu_train_step *s;
    if (turned)
        s = add(p, p->is_half[v] ? GPU_TRAIN_TURN_HALF : GPU_TRAIN_TURN, fixed(groups(cols4, 8)),
                n_rows ? fixed(groups(n_rows, 64)) : each(64));
    else
        s = add(p, GPU_TRAIN_ROUND_HALF, fixed(groups(16 * cols4, 256)),
                n_rows ? fixed(groups(n_rows, 16)) : each(16));
    set(s, "COLS4", (double)cols4);
    set(s, "COUNT", (double)n_rows);
    if (turned) set(s, "LD4", (double)(gpu_train_rows_in_memory(p, v) / 4));
    bind_value(p, s, v);
    bind(s, slot->buffer);
    return TERN_OK;
}

// A factor of a product as memory has it.
typedef struct factor {
    wgpu_buffer buffer;
    uint64_t ld;     // in vec4s, of halves eight
    bool half, by_k; // by_k: a row for each step of the reduction
} factor;

static int use_of(const tern_program *p, const tern_node *n, int input) {
    if (is_const(p, n->in[input])) return OF_WEIGHTS;
    return n->op != TERN_OP_LINEAR && input == 0 ? OF_GRADIENTS : OF_TOKENS;
}

// Rounding reads and writes a factor once, which a workgroup for each 128 of the other factor's
// rows (`others`) then reads at half of the bytes.
#define OTHERS_MIN 1024
static tern_status find_factor(tern_program *p, const tern_node *n, int input, uint64_t others,
                               factor *out, tern_error *err) {
    const tern_vid v = n->in[input];
    const uint64_t least = p->device->halves_from ? p->device->halves_from : OTHERS_MIN;
    const bool by_k = n->op == TERN_OP_LINEAR_GRAD_W || (n->op == TERN_OP_LINEAR_GRAD_X && input);
    *out = (factor){p->buffers[v], stride4(p, v) / (p->is_half[v] ? 2 : 1), p->is_half[v], by_k};
    if (!gpu_train_takes_halves(p, n, input) || (out->half && !by_k)) return TERN_OK;
    if (!slot_of_halves(p, v, by_k)) {
        if (others < least) return TERN_OK;
        TERN_TRY(add_halves(p, v, use_of(p, n, input) + (by_k ? TURNED : 0), err));
    }
    const uint64_t ld = by_k ? gpu_train_rows_in_memory(p, v) / 8 : stride4(p, v) / 2;
    *out = (factor){slot_of_halves(p, v, by_k)->buffer, ld, true, false};
    return TERN_OK;
}

// The weight of a head that is computed in pieces is rounded once, before all of them.
tern_status gpu_train_add_head_halves(tern_program *p, tern_error *err) {
    gpu_train_forget_halves(p);
    for (size_t i = p->head.first; i < p->head.end; i++) {
        const tern_node *n = &p->g.nodes[i];
        const bool back = n->op == TERN_OP_LINEAR_GRAD_X;
        if ((n->op != TERN_OP_LINEAR && !back) || !gpu_train_takes_halves(p, n, 1)) continue;
        if (slot_of_halves(p, n->in[1], back) || (p->is_half[n->in[1]] && !back)) continue;
        TERN_TRY(add_halves(p, n->in[1], OF_HEAD + (back ? TURNED : 0), err));
    }
    return TERN_OK;
}

// ---- Products ----------------------------------------------------------------------------------

// Parts of a reduction over all tokens: as many as keep the device busy, of at least 256 rows.
#define BUSY_GROUPS 528 // four rounds of what the largest devices run at once
static uint32_t chunk_of(uint64_t n_rows, uint64_t tiles) {
    uint64_t parts = tiles < BUSY_GROUPS ? BUSY_GROUPS / tiles : 1;
    uint64_t chunk = gpu_round(groups(n_rows, parts), 8);
    return (uint32_t)(chunk < 256 ? 256 : chunk);
}

// C = A B with these rows, columns and reduction length (0: tokens), see train_gemm.wgsl.
typedef struct product {
    uint64_t m, n, k;
    bool adds, unscales;
    factor a, b;
    wgpu_buffer c;
    uint64_t ldc;            // in vec4s
    uint64_t a_from, c_from; // columns
    double flops;            // a token
} product;

static gpu_train_step *add_gemm(tern_program *p, const product *f) {
    bool matrix = gpu_train_by_units(p, f->m, f->n);
    gpu_train_step *s = add(p, matrix ? GPU_TRAIN_GEMM_MATRIX : GPU_TRAIN_GEMM,
                            fixed(groups(f->n, 128)), f->m ? fixed(groups(f->m, 128)) : each(128));
    s->flops = f->flops;
    set(s, "M", (double)f->m);
    set(s, "N", (double)f->n);
    set(s, "K", (double)f->k);
    set(s, "A_BY_K", f->a.by_k);
    set(s, "B_BY_K", f->b.by_k);
    set(s, "LDA", (double)f->a.ld);
    set(s, "LDB", (double)f->b.ld);
    set(s, "LDC", (double)f->ldc);
    set(s, "ADD", f->adds);
    if (f->unscales) set(s, "UNSCALE", 1);
    if (f->a.half) set(s, "A_HALF", 1);
    if (f->b.half) set(s, "B_HALF", 1);
    bind(s, f->a.buffer);
    bind(s, f->b.buffer);
    bind(s, f->c);
    s->offsets[0] = f->a_from * sizeof(float);
    s->offsets[2] = f->c_from * sizeof(float);
    return s;
}

// y = x W^T, or dx = dy W: with some rows of W, which are columns of y, or a part of the reduction.
static tern_status add_product_of_rows(tern_program *p, const tern_node *n, uint64_t first,
                                       uint64_t count, tern_error *err) {
    bool back = n->op == TERN_OP_LINEAR_GRAD_X, coded = p->g.values[n->in[1]].is_coded;
    tern_vid x = n->in[0], w = n->in[1], y = n->out[0];
    product f = {.n = back ? (uint64_t)cols(p, y) : count,
                 .k = back ? count : (uint64_t)cols(p, x),
                 .adds = back && (n->n_in > 2 || first > 0),
                 .c = p->buffers[y],
                 .ldc = stride4(p, y),
                 .a_from = back ? first : 0,
                 .c_from = back ? 0 : first,
                 .flops = 2.0 * (double)count * (double)cols(p, w)};
    TERN_TRY(find_factor(p, n, 0, f.n, &f.a, err));
    TERN_TRY(find_factor(p, n, 1, gpu_train_rows(p, x), &f.b, err));
    if (coded) {
        gpu_train_add_decoded(p, w, first, count);
        f.b.buffer = p->decoded;
    }
    set(add_gemm(p, &f), "CHUNK", 1 << 30);
    return TERN_OK;
}

tern_status gpu_train_add_product(tern_program *p, const tern_node *n, tern_error *err) {
    const uint64_t n_rows = (uint64_t)p->g.values[n->in[1]].rows;
    const uint64_t each = gpu_train_stripe(p, n->in[1]);
    for (uint64_t first = 0; first < n_rows; first += each)
        TERN_TRY(
            add_product_of_rows(p, n, first, n_rows - first < each ? n_rows - first : each, err));
    return TERN_OK;
}

// dW += dy^T x, at once or the sums over parts of the tokens first.
tern_status gpu_train_add_weight_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    tern_vid dy = n->in[0], dw = n->in[2];
    uint64_t m = (uint64_t)p->g.values[dw].rows, k = (uint64_t)p->g.values[dw].cols;
    uint64_t n_rows = gpu_train_rows(p, dy);
    uint32_t chunk = chunk_of(n_rows, (uint64_t)groups(m, 128) * groups(k, 128));
    uint64_t parts = groups(n_rows, chunk);
    const bool at_once = parts == 1 && gpu_train_by_units(p, m, k);
    product f = {.m = m,
                 .n = k,
                 .adds = at_once,
                 .unscales = at_once,
                 .c = p->buffers[dw],
                 .ldc = k / 4,
                 .flops = 2.0 * (double)m * (double)k};
    TERN_TRY(find_factor(p, n, 0, k, &f.a, err));
    TERN_TRY(find_factor(p, n, 1, m, &f.b, err));
    if (!at_once) TERN_TRY(gpu_train_scratch(p, 1, parts * m * k * sizeof(float), &f.c, err));
    gpu_train_step *s = add_gemm(p, &f);
    s->grid[2] = each(chunk);
    set(s, "CHUNK", chunk);
    if (!at_once) gpu_train_add_parts(p, f.c, m * k / 4, chunk, dw);
    return TERN_OK;
}
