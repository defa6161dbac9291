// The dispatches of mixtures of experts in a training graph, and of their gradients.
#include "kernels/webgpu/train/gpu_train_steps.h"

// Numbers from one row of a value to the next.
static double ld(const tern_program *p, tern_vid v) { return (double)stride4(p, v) * 4; }

static gpu_train_step *add_route_step(tern_program *p, gpu_kernel kernel, const tern_node *n,
                                      tern_vid route) {
    gpu_train_step *s = add(p, kernel, each(64), fixed(1));
    set(s, "CHOSEN", n->route.n_chosen);
    set(s, "SIGMOIDS", n->route.sigmoid);
    set(s, "NORMED", n->route.normed);
    set(s, "EPS", (double)n->route.eps);
    set(s, "FACTOR", (double)n->route.scale);
    set(s, "EXPERTS", (double)cols(p, n->in[0]));
    set(s, "LD", ld(p, n->in[0]));
    set(s, "LD_ROUTE", ld(p, route));
    bind_value(p, s, n->in[0]);
    return s;
}

void gpu_train_add_route(tern_program *p, const tern_node *n) {
    gpu_train_step *s = add_route_step(p, GPU_TRAIN_ROUTE, n, n->out[0]);
    set(s, "BIASED", n->n_in > 1);
    bind_value(p, s, n->in[n->n_in > 1 ? 1 : 0]);
    bind_value(p, s, n->out[0]);
}

void gpu_train_add_route_gradient(tern_program *p, const tern_node *n) {
    gpu_train_step *s = add_route_step(p, GPU_TRAIN_ROUTE_GRAD, n, n->in[1]);
    bind_value(p, s, n->in[1]);
    bind_value(p, s, n->in[2]);
    bind_value(p, s, n->out[0]);
}

static gpu_train_step *add_mix_step(tern_program *p, gpu_kernel kernel, const tern_node *n,
                                    tern_vid sum) {
    gpu_train_step *s = add(p, kernel, fixed(16), each(16));
    set(s, "CHOSEN", n->route.n_chosen);
    set(s, "COLS", (double)cols(p, sum));
    set(s, "LD", ld(p, sum));
    set(s, "LD_WIDE", ld(p, n->in[0]));
    set(s, "LD_ROUTE", ld(p, n->in[1]));
    return s;
}

void gpu_train_add_mix(tern_program *p, const tern_node *n) {
    gpu_train_step *s = add_mix_step(p, GPU_TRAIN_MIX, n, n->out[0]);
    s->grid[0] = fixed(groups(64 * stride4(p, n->out[0]), 256));
    bind_value(p, s, n->in[0]);
    bind_value(p, s, n->in[1]);
    bind_value(p, s, n->out[0]);
}

void gpu_train_add_mix_gradient(tern_program *p, const tern_node *n) {
    gpu_train_step *s = add_mix_step(p, GPU_TRAIN_MIX_GRAD, n, n->in[2]);
    s->grid[0] = fixed(groups(64 * stride4(p, n->in[0]), 256));
    bind_value(p, s, n->in[1]);
    bind_value(p, s, n->in[2]);
    bind_value(p, s, n->out[0]);
    if (n->n_out < 2) return;
    s = add_mix_step(p, GPU_TRAIN_MIX_GRAD_ROUTE, n, n->in[2]);
    for (int i = 0; i < 3; i++) bind_value(p, s, n->in[i]);
    bind_value(p, s, n->out[1]);
}

// x, y: the values of the op, or their gradients; w: the matrices, or theirs.
typedef struct experts_of {
    tern_vid x, y, w;
} experts_of;

static tern_status add_experts_step(tern_program *p, gpu_kernel kernel, const tern_node *n,
                                    const experts_of *v, gpu_train_step **out, tern_error *err) {
    int64_t k = n->route.n_chosen, n_in = cols(p, v->w), n_out = cols(p, v->y) / k;
    if (n_in % 4 != 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s has %lld columns, and the GPU trains experts of multiples of 4 only",
                         p->g.values[v->w].name, (long long)n_in);
    gpu_train_step *s = *out = add(p, kernel, fixed(1), each(16));
    set(s, "CHOSEN", (double)k);
    set(s, "IN4", (double)(n_in / 4));
    set(s, "N_OUT", (double)n_out);
    set(s, "SHARED", cols(p, v->x) == n_in);
    set(s, "LDX4", (double)stride4(p, v->x));
    set(s, "LDY", ld(p, v->y));
    set(s, "LD_ROUTE", ld(p, n->in[1]));
    return TERN_OK;
}

tern_status gpu_train_add_experts(tern_program *p, const tern_node *n, tern_error *err) {
    gpu_train_step *s = NULL;
    const experts_of v = {n->in[0], n->out[0], n->in[2]};
    TERN_TRY(add_experts_step(p, GPU_TRAIN_EXPERTS, n, &v, &s, err));
    s->grid[0] = fixed(groups(16 * stride4(p, v.y), 256));
    for (int i = 0; i < 3; i++) bind_value(p, s, n->in[i]);
    bind_value(p, s, v.y);
    return TERN_OK;
}

// The same for a sum over the experts, which share x.
tern_status gpu_train_add_experts_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    gpu_train_step *s = NULL;
    const experts_of v = {n->out[0], n->in[0], n->in[2]};
    TERN_TRY(add_experts_step(p, GPU_TRAIN_EXPERTS_GRAD_X, n, &v, &s, err));
    s->grid[0] = fixed(groups(16 * stride4(p, v.x), 256));
    bind_value(p, s, n->in[1]);
    bind_value(p, s, v.w);
    bind_value(p, s, v.y);
    bind_value(p, s, v.x);
    return TERN_OK;
}

tern_status gpu_train_add_experts_weights(tern_program *p, const tern_node *n, tern_error *err) {
    gpu_train_step *s = NULL;
    const experts_of v = {n->in[2], n->in[0], n->in[3]};
    TERN_TRY(add_experts_step(p, GPU_TRAIN_EXPERTS_GRAD_W, n, &v, &s, err));
    const int64_t n_out = cols(p, v.y) / n->route.n_chosen;
    s->grid[0] = fixed(groups((uint64_t)cols(p, v.w) / 4, 64));
    s->grid[1] = fixed((uint64_t)n_out);
    s->grid[2] = fixed((uint64_t)(p->g.values[v.w].rows / n_out));
    bind_value(p, s, v.x);
    bind_value(p, s, n->in[1]);
    bind_value(p, s, v.y);
    bind_value(p, s, v.w);
    return TERN_OK;
}
