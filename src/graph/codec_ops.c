// Ops of codecs, which turn codes into sound: building.
#include <stdio.h>
#include "graph/build.h"

tern_vid tern_g_code_digits(tern_graph *g, tern_vid codes, const int32_t levels[TERN_PIECES_MAX]) {
    tern_digits_attrs digits = {0};
    while (digits.n < TERN_PIECES_MAX && levels[digits.n] > 0) {
        digits.levels[digits.n] = levels[digits.n];
        digits.n++;
    }
    return tern_g_op(g, &(tern_node){.op = TERN_OP_CODE_DIGITS, TERN_IN(codes), .digits = digits});
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
    return tern_g_op(g, &(tern_node){.op = op, TERN_IN(x, w, bias, state), .causal = *a});
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
    return tern_g_op(g, &(tern_node){.op = TERN_OP_HALF_SNAKE, TERN_IN(x, alpha)});
}
