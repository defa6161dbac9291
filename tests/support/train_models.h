// Graphs that tests of training train, whatever the device.
#ifndef TERN_TESTS_TRAIN_MODELS_H
#define TERN_TESTS_TRAIN_MODELS_H

#include <string.h>
#include "models/models.h"

// Products of columns that two parts of a row share, so that their gradients add up: no model has
// this.
static inline tern_status build_overlapping_columns(tern_graph *g, const tern_config *c,
                                                    tern_error *err) {
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "token_embd.weight", c->n_vocab, 24));
    tern_vid y = tern_g_mul(g, tern_g_columns(g, x, 12, 0, 8), tern_g_columns(g, x, 12, 4, 8));
    tern_vid head = tern_g_matrix(g, "output.weight", c->n_vocab, 16);
    tern_g_output(g, tern_g_linear(g, y, head), "logits");
    return tern_graph_check(g, err);
}

// The terms of a sum have one gradient, to which a product of one of them adds before the other is
// read. No model has this either.
static inline tern_status build_shared_sums(tern_graph *g, const tern_config *c, tern_error *err) {
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "token_embd.weight", c->n_vocab, 24));
    tern_vid a = tern_g_act(g, x, TERN_ACTIVATION_SILU);
    tern_vid b = tern_g_act(g, x, TERN_ACTIVATION_GELU);
    tern_vid y = tern_g_linear(g, a, tern_g_matrix(g, "again.weight", 24, 24));
    tern_vid sum = tern_g_add(g, a, b);
    tern_vid z = tern_g_linear(g, sum, tern_g_matrix(g, "last.weight", 24, 24));
    tern_vid head = tern_g_matrix(g, "output.weight", c->n_vocab, 24);
    tern_g_output(g, tern_g_linear(g, tern_g_mul(g, y, z), head), "logits");
    return tern_graph_check(g, err);
}

// Rotated inputs of matrices: with columns of heads that change places, and without.
static inline tern_status build_rotated(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_rotation plain = {.block = 32, .has_signs = true},
                        turned = {.block = 16,
                                  .has_signs = true,
                                  .repeats = 2,
                                  .groups = 3,
                                  .each = 16},
                        back = {.block = 8, .inverse = true};
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "token_embd.weight", c->n_vocab, 96));
    tern_vid y = tern_g_hadamard(g, x, tern_g_vector(g, "hadamard.sign.96", 96), &plain);
    y = tern_g_linear(g, y, tern_g_matrix(g, "first.weight", 192, 96));
    y = tern_g_hadamard(g, y, tern_g_vector(g, "hadamard.sign.192", 192), &turned);
    y = tern_g_linear(g, y, tern_g_matrix(g, "again.weight", 96, 192));
    y = tern_g_add(g, tern_g_hadamard(g, y, -1, &back), x);
    tern_g_output(g, tern_g_linear(g, y, tern_g_matrix(g, "output.weight", c->n_vocab, 96)),
                  "logits");
    return tern_graph_check(g, err);
}

// Matrices that each step rounds to trits.
static inline tern_status build_rounded(tern_graph *g, const tern_config *c, tern_error *err) {
    tern_dtype types[32] = {TERN_DTYPE_F32};
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "token_embd.weight", c->n_vocab, 128));
    tern_vid y = tern_g_linear(g, x, tern_g_matrix(g, "first.weight", 128, 128));
    y = tern_g_linear(g, tern_g_act(g, y, TERN_ACTIVATION_SILU),
                      tern_g_matrix(g, "again.weight", 128, 128));
    tern_vid head = tern_g_matrix(g, "output.weight", c->n_vocab, 128);
    tern_g_output(g, tern_g_linear(g, tern_g_add(g, x, y), head), "logits");
    types[tern_graph_find(g, "first.weight")] = TERN_DTYPE_PQ2_0;
    types[tern_graph_find(g, "again.weight")] = TERN_DTYPE_PQ2_0;
    return tern_pass_fake_quantize(g, types, err);
}

// The decoder of this name, NULL for Llama's or BitNet's, "columns", "sums", "rotated" or
// "rounded" for the above; with a soft cap of its attention's scores, which no family here has,
// where that is not 0.
static inline tern_status build_to_train(tern_graph *g, const tern_config *c, const char *name,
                                         float soft_cap, tern_error *err) {
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    tern_status (*build)(tern_graph * g, const tern_config *c, tern_error *err) =
        tern_build_decoder;
    for (size_t i = 0; name && i < n; i++)
        if (strcmp(list[i]->name, name) == 0) build = list[i]->graphs->build;
    if (name && strcmp(name, "columns") == 0) build = build_overlapping_columns;
    if (name && strcmp(name, "sums") == 0) build = build_shared_sums;
    if (name && strcmp(name, "rounded") == 0) build = build_rounded;
    if (name && strcmp(name, "rotated") == 0) build = build_rotated;
    TERN_TRY(build(g, c, err));
    for (size_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_ATTENTION) g->nodes[i].attention.soft_cap = soft_cap;
    return TERN_OK;
}

#endif
