// See train_products.h. In a file of its own, since a device of the CPU and one of the GPU are not
// known in the same file.
#include "bench/train_products.h"

#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "kernels/cpu/train/cpu_train.h"

// The product that a node is, of `rows` rows and a weight of [n_out, n_in]; false: it is none.
static bool product_of(const tern_graph *g, const tern_node *n, size_t rows, cpu_gemm *out) {
    bool y_xw = n->op == TERN_OP_LINEAR, dx_dyw = n->op == TERN_OP_LINEAR_GRAD_X;
    if (!y_xw && !dx_dyw && n->op != TERN_OP_LINEAR_GRAD_W) return false;
    const tern_value *w = &g->values[n->op == TERN_OP_LINEAR_GRAD_W ? n->in[2] : n->in[1]];
    size_t n_out = (size_t)w->rows, n_in = (size_t)w->cols;
    *out = (cpu_gemm){.alpha = 1, .lda = n_in, .ldb = n_in, .ldc = n_in};
    if (y_xw) { // x W^T
        out->transpose_b = true;
        out->m = rows, out->n = out->ldc = n_out, out->k = n_in;
    } else if (dx_dyw) { // dy W
        out->m = rows, out->n = n_in, out->k = out->lda = n_out;
    } else { // dy^T x
        out->transpose_a = true;
        out->m = out->lda = n_out, out->n = n_in, out->k = rows;
    }
    return true;
}

// Floats of the largest factor or product.
static size_t most_floats(const tern_graph *g, size_t rows) {
    size_t most = 1;
    cpu_gemm p;
    for (size_t i = 0; i < g->n_nodes; i++)
        if (product_of(g, &g->nodes[i], rows, &p)) {
            size_t sizes[] = {p.m * p.k, p.k * p.n, p.m * p.n};
            for (int k = 0; k < 3; k++)
                if (sizes[k] > most) most = sizes[k];
        }
    return most;
}

double train_products_seconds(const tern_graph *g, int32_t n_tokens, int n_threads,
                              const char **name) {
    size_t rows = (size_t)n_tokens, n = (most_floats(g, rows) + 15) / 16 * 16;
    float *x = aligned_alloc(64, n * sizeof *x), *y = aligned_alloc(64, n * sizeof *y);
    float *scratch = aligned_alloc(64, (cpu_gemm_float.scratch_floats + 16) / 16 * 64);
    double best = 0;
    for (size_t i = 0; x && i < n; i++) x[i] = (float)(i * 2654435761u % 1000) / 1000 - 0.5f;
    if (n_threads == 0) n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int before = cpu_gemm_set_threads(n_threads);
    for (int round = 0; x && y && scratch && round < 4; round++) {
        double begin = tern_seconds();
        for (size_t i = 0; i < g->n_nodes; i++) {
            cpu_gemm p;
            if (!product_of(g, &g->nodes[i], rows, &p)) continue;
            p.a = p.b = x;
            p.c = y;
            cpu_gemm_float.run(&p, scratch);
        }
        double seconds = tern_seconds() - begin;
        if (round == 0 || seconds < best) best = seconds;
    }
    cpu_gemm_set_threads(before);
    free(x);
    free(y);
    free(scratch);
    *name = cpu_gemm_float.name;
    return best;
}
