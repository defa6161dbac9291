// The greatest logits.
#include "kernels/webgpu/ops/gpu_op.h"

static gpu_dispatch *add_top_step(tern_plan *p, gpu_kernel kernel, gpu_phase phase, int64_t n_vocab,
                                  gpu_place from, gpu_place to) {
    bool by_part = from == GPU_LOGITS;
    gpu_dispatch *d = add(p, kernel, by_part ? GPU_TOP_PARTS_N : 1, GPU_ROWS_CHUNK);
    if (by_part) set(d, "COLS", (double)n_vocab);
    set(d, "PARTS", GPU_TOP_PARTS_N);
    bind_place(d, from, -1);
    bind_place(d, to, -1);
    if (kernel == GPU_TOP_ROW) bind_place(d, GPU_IDS, -1);
    d->phase = phase;
    return d;
}

// Those of few rows that are screened are found with their exact logits.
static void add_parts(tern_plan *p, int64_t n_vocab) {
    gpu_dispatch *d =
        add_top_step(p, GPU_TOP_PARTS, GPU_PHASE_PARTS, n_vocab, GPU_LOGITS, GPU_TOP_PARTS_MEMORY);
    if (!GPU_SCREENS_HEADS || p->screened_few == 0) return;
    gpu_dispatch few = *d;
    d->kinds &= ~(uint32_t)GPU_FEW_STEPS;
    few.kinds = GPU_FEW_STEPS;
    few.screen = GPU_UNSCREENED;
    p->dispatches[p->n_dispatches++] = few;
}

static void add_top(tern_plan *p, int64_t n_vocab) {
    add_parts(p, n_vocab);
    add_top_step(p, GPU_TOP_ROW, GPU_PHASE_TOP, n_vocab, GPU_TOP_PARTS_MEMORY, GPU_TOP_MEMORY);
    // With a smaller vocabulary some parts have no logits, and a row is soon read.
    if (n_vocab < GPU_TOP_PARTS_N * GPU_TOP_THREADS) return;
    p->makes_lists = true;
    add_top_step(p, GPU_TOP_LEAST, GPU_PHASE_LIST, n_vocab, GPU_TOP_PARTS_MEMORY, GPU_TOP_LISTS);
    add_top_step(p, GPU_TOP_LIST, GPU_PHASE_LIST, n_vocab, GPU_LOGITS, GPU_TOP_LISTS);
}

tern_status gpu_op_LINEAR_TOP_K(tern_plan *p, const tern_node *n, tern_error *err) {
    TERN_TRY(gpu_add_logits(p, n, err));
    add_top(p, p->weights[n->in[1]]->n_rows);
    return TERN_OK;
}

tern_status gpu_op_TOP_K(tern_plan *p, const tern_node *n, tern_error *err) {
    (void)err;
    add_top(p, cols(p, n->in[0]));
    return TERN_OK;
}
