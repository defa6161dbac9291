// The dispatches of delta nets and state spaces in a training graph, and of their gradients: see
// train_scan.wgsl.
#include "kernels/webgpu/train/gpu_train_steps.h"

enum { DIM_MAX = 256 }; // of a state: what a thread has of it in private memory

typedef struct scan {
    bool delta, tiled;
    uint64_t n_k, n_v, dk, dv, q_at, k_at, v_at;
    double eps;
    tern_vid x, a, b, rate, bias, d; // b and d: another value where the op has none
} scan;

static scan scan_of(const tern_node *n) {
    if (n->op == TERN_OP_SSM_SEQ || n->op == TERN_OP_SSM_GRAD) {
        const tern_ssm_attrs *m = &n->ssm;
        scan s = {.n_k = (uint64_t)m->n_groups,
                  .n_v = (uint64_t)m->n_heads,
                  .dk = (uint64_t)m->n_state,
                  .dv = (uint64_t)m->head_dim,
                  .x = n->in[0],
                  .a = n->in[1],
                  .b = n->in[1],
                  .rate = n->in[2],
                  .d = n->in[3],
                  .bias = n->in[4]};
        s.k_at = s.n_v * s.dv;
        s.q_at = s.k_at + s.n_k * s.dk;
        return s;
    }
    const tern_delta_attrs *m = &n->delta;
    scan s = {.delta = true,
              .tiled = m->tiled,
              .eps = (double)m->eps,
              .n_k = (uint64_t)m->n_k_heads,
              .n_v = (uint64_t)m->n_v_heads,
              .dk = (uint64_t)m->head_dim,
              .dv = (uint64_t)m->v_dim,
              .x = n->in[0],
              .a = n->in[1],
              .b = n->in[2],
              .rate = n->in[3],
              .d = n->in[3],
              .bias = n->in[4]};
    s.k_at = s.n_k * s.dk;
    s.v_at = 2 * s.k_at;
    return s;
}

static tern_status check_scan(const tern_program *p, const scan *m, tern_error *err) {
    if (m->dk <= DIM_MAX && m->dv <= DIM_MAX && cols(p, m->x) % 4 == 0 && m->n_v * m->dv % 4 == 0)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "the GPU trains states of at most %d x %d, in rows of multiples of 4, not %d "
                     "of %d x %d",
                     DIM_MAX, DIM_MAX, (int)m->n_v, (int)m->dk, (int)m->dv);
}

static uint64_t gates_stride(const tern_program *p, const scan *m) { return stride4(p, m->a) * 4; }

static gpu_train_step *add_scan_step(tern_program *p, const scan *m, gpu_kernel kernel,
                                     gpu_count grid) {
    gpu_train_step *s = add(p, kernel, grid, each(16));
    set(s, "N_K", (double)m->n_k);
    set(s, "N_V", (double)m->n_v);
    set(s, "DK", (double)m->dk);
    set(s, "DV", (double)m->dv);
    set(s, "DELTA", m->delta);
    set(s, "TILED", m->tiled);
    set(s, "EPS", m->eps);
    set(s, "LD", (double)cols(p, m->x));
    set(s, "LDY", (double)(m->n_v * m->dv));
    set(s, "LDG", (double)gates_stride(p, m));
    set(s, "Q_AT", (double)m->q_at);
    set(s, "K_AT", (double)m->k_at);
    set(s, "V_AT", (double)m->v_at);
    return s;
}

// Rows of scratch.
static tern_status rows_of(tern_program *p, int use, uint64_t n, wgpu_buffer *out,
                           tern_error *err) {
    return gpu_train_scratch(p, use, (uint64_t)p->n_rows * n * sizeof(float), out, err);
}

static tern_status add_gates(tern_program *p, const scan *m, wgpu_buffer *facts, tern_error *err) {
    const uint64_t n = 2 * (m->n_k + m->n_v);
    TERN_TRY(rows_of(p, 1, n, facts, err));
    gpu_train_step *s = add_scan_step(p, m, GPU_TRAIN_SCAN_GATES, fixed(groups(16 * n, 256)));
    const tern_vid in[] = {m->x, m->a, m->b, m->rate, m->bias};
    for (int i = 0; i < 5; i++) bind_value(p, s, in[i]);
    bind(s, *facts);
    return TERN_OK;
}

static void add_forward(tern_program *p, const scan *m, wgpu_buffer facts, wgpu_buffer to,
                        bool keeps) {
    gpu_train_step *s = add_scan_step(p, m, GPU_TRAIN_SCAN, fixed(groups(m->dv, 64)));
    s->grid[2] = fixed(m->n_v);
    set(s, "KEEPS", keeps);
    bind_value(p, s, m->x);
    bind(s, facts);
    bind(s, p->spans);
    bind_value(p, s, m->d);
    bind(s, to);
}

tern_status gpu_train_add_scan(tern_program *p, const tern_node *n, tern_error *err) {
    const scan m = scan_of(n);
    wgpu_buffer facts;
    TERN_TRY(check_scan(p, &m, err));
    TERN_TRY(add_gates(p, &m, &facts, err));
    add_forward(p, &m, facts, p->buffers[n->out[0]], false);
    return TERN_OK;
}

// Scratch of a gradient. u and found: as y; dq and dk: for each value head.
typedef struct scan_room {
    wgpu_buffer facts, u, found, dq, dk, dots;
    wgpu_buffer third, drate; // outputs, or scratch where they are not asked for
} scan_room;

static tern_status make_room(tern_program *p, const scan *m, const tern_node *n, scan_room *r,
                             tern_error *err) {
    const int rate_at = m->delta ? 3 : 2, third_at = m->delta ? 2 : 3;
    const uint64_t ldg = gates_stride(p, m);
    TERN_TRY(rows_of(p, 2, m->n_v * m->dv, &r->u, err));
    TERN_TRY(rows_of(p, 3, m->n_v * m->dv, &r->found, err));
    TERN_TRY(rows_of(p, 4, m->n_v * m->dk, &r->dq, err));
    TERN_TRY(rows_of(p, 5, m->n_v * m->dk, &r->dk, err));
    TERN_TRY(rows_of(p, 6, 2 * ldg, &r->dots, err));
    TERN_TRY(rows_of(p, 7, ldg, &r->drate, err));
    TERN_TRY(rows_of(p, 8, ldg, &r->third, err));
    if (rate_at < n->n_out) r->drate = p->buffers[n->out[rate_at]];
    if (third_at < n->n_out) r->third = p->buffers[n->out[third_at]];
    return TERN_OK;
}

static void add_scans_back(tern_program *p, const scan *m, const tern_node *n, const scan_room *r) {
    const wgpu_buffer x = p->buffers[m->x], dy = p->buffers[n->in[5]], dx = p->buffers[n->out[0]];
    const struct {
        gpu_kernel kernel;
        uint64_t dim;
        wgpu_buffer buffers[8];
        int n_buffers;
    } scans[] = {
        {GPU_TRAIN_SCAN_BACK,
         m->dv,
         {x, r->facts, p->spans, dy, p->buffers[m->d], r->found, dx},
         7},
        {GPU_TRAIN_SCAN_ROWS, m->dk, {x, r->facts, p->spans, dy, r->u, r->found, r->dq, r->dk}, 8},
        {GPU_TRAIN_SCAN_ROWS_BACK, m->dk, {x, r->facts, p->spans, dy, r->u, r->found, r->dk}, 7}};
    for (int i = 0; i < 3; i++) {
        gpu_train_step *s = add_scan_step(p, m, scans[i].kernel, fixed(groups(scans[i].dim, 64)));
        s->grid[2] = fixed(m->n_v);
        for (int k = 0; k < scans[i].n_buffers; k++) bind(s, scans[i].buffers[k]);
    }
}

tern_status gpu_train_add_scan_gradient(tern_program *p, const tern_node *n, tern_error *err) {
    const scan m = scan_of(n);
    scan_room r;
    TERN_TRY(check_scan(p, &m, err));
    TERN_TRY(add_gates(p, &m, &r.facts, err));
    TERN_TRY(make_room(p, &m, n, &r, err));
    const uint64_t ldg = gates_stride(p, &m);
    const wgpu_buffer x = p->buffers[m.x], dy = p->buffers[n->in[5]], dx = p->buffers[n->out[0]];
    if (m.delta) add_forward(p, &m, r.facts, r.u, true);
    add_scans_back(p, &m, n, &r);
    const wgpu_buffer dots[] = {x, r.facts, r.third, dy, r.u, r.found, r.dq, r.dots};
    gpu_train_step *s = add_scan_step(p, &m, GPU_TRAIN_SCAN_DOTS, fixed(groups(16 * ldg, 256)));
    for (int i = 0; i < 8; i++) bind(s, dots[i]);
    const wgpu_buffer gates[] = {r.dots,
                                 p->buffers[m.a],
                                 p->spans,
                                 p->buffers[m.rate],
                                 p->buffers[m.bias],
                                 p->buffers[n->out[1]],
                                 r.drate};
    s = add_scan_step(p, &m, GPU_TRAIN_SCAN_GATES_BACK, fixed(groups(ldg, 64)));
    for (int i = 0; i < 7; i++) bind(s, gates[i]);
    s = add_scan_step(p, &m, GPU_TRAIN_SCAN_HEADS_BACK, fixed(groups(16 * m.n_k, 256)));
    const wgpu_buffer heads[] = {x, r.facts, r.dq, r.dk, dx};
    for (int i = 0; i < 5; i++) bind(s, heads[i]);
    return TERN_OK;
}
