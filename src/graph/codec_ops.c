// Ops of codecs, which turn codes into sound: building.
#include <stdio.h>
#include "graph/build.h"

tern_vid tern_g_code_digits(tern_graph *g, tern_vid codes, const int32_t levels[TERN_PIECES_MAX]) {
    int32_t n_digits = 0;
    if (codes < 0) return -1;
    while (n_digits < TERN_PIECES_MAX && levels[n_digits] > 0) n_digits++;
    tern_node *n = tern_g_node(g, TERN_OP_CODE_DIGITS);
    tern_g_in(g, n, codes);
    tern_vid y = tern_g_out(g, n, codes, TERN_VALUE_F32, g->values[codes].cols * n_digits);
    if (y < 0) return -1;
    n->width = (int32_t)g->values[y].cols;
    for (int i = 0; i < n_digits; i++) n->widths[i] = levels[i];
    return y;
}

// The whole name with its suffix. Names are short; a name that was cut matches no tensor.
static const char *full(char out[TERN_NAME_BYTES], const char *begin, const char *name,
                        const char *end) {
    snprintf(out, TERN_NAME_BYTES, "%s%s%s", begin, name, end);
    return out;
}

// How large the weight is, and how many rows of x the state holds.
typedef struct weight_shape {
    int32_t n_parts;
    int64_t n_each, n_taps, n_before;
} weight_shape;

static tern_vid convolve(tern_graph *g, tern_op op, tern_vid x, const char *name,
                         const tern_causal_attrs *a, weight_shape s) {
    char text[TERN_NAME_BYTES];
    if (x < 0) return -1;
    tern_vid w =
        tern_g_array(g, full(text, "", name, ".weight"), (int64_t)s.n_parts * s.n_each, s.n_taps);
    if (w >= 0) g->values[w].parts = s.n_parts;
    tern_vid bias = tern_g_vector(g, full(text, "", name, ".bias"), a->n_out);
    tern_vid state = tern_g_fixed_state(g, full(text, "tail.", name, ""), s.n_before, a->n_in);
    tern_node *n = tern_g_node(g, op);
    tern_g_in(g, n, x);
    tern_g_in(g, n, w);
    tern_g_in(g, n, bias);
    tern_g_in(g, n, state);
    tern_vid y = tern_g_out(g, n, x, TERN_VALUE_F32, a->n_out);
    if (y >= 0) n->causal = *a;
    return y;
}

tern_vid tern_g_conv1d(tern_graph *g, tern_vid x, const char *name, const tern_causal_attrs *a) {
    return convolve(
        g, TERN_OP_CONV1D, x, name, a,
        (weight_shape){a->n_out, a->n_in, a->taps, (int64_t)(a->taps - 1) * a->dilation});
}

tern_vid tern_g_upsample_conv(tern_graph *g, tern_vid x, const char *name,
                              const tern_causal_attrs *a) {
    int32_t groups = a->groups > 0 ? a->groups : 1;
    tern_vid y = convolve(g, TERN_OP_UPSAMPLE_CONV, x, name, a,
                          (weight_shape){a->n_in, a->n_out / groups, 2 * (int64_t)a->rate, 1});
    if (y >= 0) g->values[y].times *= a->rate;
    return y;
}

tern_vid tern_g_half_snake(tern_graph *g, tern_vid x, tern_vid alpha) {
    if (x < 0) return -1;
    tern_node *n = tern_g_node(g, TERN_OP_HALF_SNAKE);
    tern_g_in(g, n, x);
    tern_g_in(g, n, alpha);
    return tern_g_out(g, n, x, TERN_VALUE_F32, g->values[x].cols);
}
