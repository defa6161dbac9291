// Matrix units are an experimental part of the shader language: before they are used, a small
// model's gradients are computed with them and without.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/train/gpu_train.h"

enum { N_VOCAB = 48, N_EMBD = 64, N_HEADS = 2, HEAD_DIM_MAX = 128, N_TOKENS = 140 };
#define TOLERANCE 0.02 // of the relative error; rounding makes a thousandth

// With a key head for two query heads.
static tern_vid add_attention(tern_graph *g, tern_vid x, int head_dim) {
    char name[16];
    tern_vid in[3];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%c%d", "qkv"[i], head_dim);
        in[i] = tern_g_linear(
            g, x, tern_g_matrix(g, name, i == 0 ? N_HEADS * head_dim : head_dim, N_EMBD));
    }
    snprintf(name, sizeof name, "keys%d", head_dim);
    tern_vid keys = tern_g_positional_state(g, name, head_dim, 0);
    snprintf(name, sizeof name, "values%d", head_dim);
    tern_vid values = tern_g_positional_state(g, name, head_dim, 0);
    tern_g_kv_store(g, in[1], in[2], keys, values, 1, head_dim);
    tern_vid y = tern_g_attention(g, in[0], keys, values,
                                  &(tern_attention_attrs){.n_heads = N_HEADS,
                                                          .n_kv_heads = 1,
                                                          .head_dim = head_dim,
                                                          .scale = 1 / sqrtf((float)head_dim)});
    snprintf(name, sizeof name, "o%d", head_dim);
    return tern_g_linear(g, y, tern_g_matrix(g, name, N_EMBD, N_HEADS * head_dim));
}

// Heads of two lengths, and an output head: every kernel with a variant for the units.
static tern_status build_model(tern_graph *g, tern_error *err) {
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "table", N_VOCAB, N_EMBD));
    tern_vid y = tern_g_add(g, add_attention(g, x, 32), add_attention(g, x, HEAD_DIM_MAX));
    tern_vid head = tern_g_matrix(g, "head", N_VOCAB, N_EMBD);
    tern_g_output(g, tern_g_linear(g, tern_g_add(g, x, y), head), "logits");
    TERN_TRY(tern_graph_train(g, err));
    return tern_graph_differentiate(g, NULL, err);
}

static float next_float(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

static tern_status make_arrays(tern_trainer_device *d, const tern_graph *g,
                               tern_train_array **arrays, float *numbers, tern_error *err) {
    uint32_t seed = 1;
    for (size_t i = 0; i < g->n_values; i++) {
        const tern_value *v = &g->values[i];
        uint64_t n = (uint64_t)v->rows * (uint64_t)v->cols;
        bool weight = v->kind == TERN_VALUE_WEIGHT;
        if ((!weight && v->kind != TERN_VALUE_STATE) || n == 0) continue;
        TERN_TRY(gpu_train_array_new(d, n, &arrays[i], err));
        for (uint64_t k = 0; k < n; k++) numbers[k] = next_float(&seed) * 0.3f;
        if (weight) TERN_TRY(gpu_train_write(arrays[i], 0, n, numbers, err));
    }
    return TERN_OK;
}

static tern_status run_once(tern_trainer_device *d, const tern_graph *g,
                            tern_train_array *const *arrays, tern_error *err) {
    int32_t rows[3][N_TOKENS];
    for (int32_t t = 0; t < N_TOKENS; t++) {
        rows[0][t] = t * t % N_VOCAB;
        rows[1][t] = t * 7 % N_VOCAB;
        rows[2][t] = t < 90 ? 0 : 90;
    }
    tern_train_batch b = {.n_tokens = N_TOKENS,
                          .ids = rows[0],
                          .targets = rows[1],
                          .starts = rows[2],
                          .loss_scale = 1.0f / N_TOKENS};
    tern_program *p;
    TERN_TRY(gpu_train_compile(d, g, arrays, N_TOKENS, N_TOKENS, &p, err));
    tern_status status = gpu_train_run(p, &b, err);
    gpu_train_program_free(p);
    return status;
}

// An array after the run without the units (a) and after a second one with them, which has added
// the same again.
static bool has_doubled(tern_train_array *array, const float *a, float *b, tern_error *err) {
    double error = 0, norm = 0;
    if (gpu_train_read(array, 0, array->n, b, err) != TERN_OK) return false;
    for (uint64_t i = 0; i < array->n; i++) {
        double d = (double)b[i] - 2 * (double)a[i];
        error += d * d;
        norm += (double)a[i] * (double)a[i];
    }
    return error <= TOLERANCE * TOLERANCE * norm; // false for NaN
}

#define NUMBERS (N_EMBD * N_HEADS * HEAD_DIM_MAX) // of the largest array
static bool compare(tern_trainer_device *d, const tern_graph *g, tern_train_array **arrays,
                    float *room, tern_error *err) {
    bool same = make_arrays(d, g, arrays, room, err) == TERN_OK;
    d->rounds = false;
    same = same && run_once(d, g, arrays, err) == TERN_OK;
    float *before = room, *after = room + g->n_values * NUMBERS;
    for (size_t i = 0; same && i < g->n_values; i++)
        if (arrays[i] && g->values[i].kind == TERN_VALUE_STATE)
            same = gpu_train_read(arrays[i], 0, arrays[i]->n, before + i * NUMBERS, err) == TERN_OK;
    d->rounds = true;
    d->halves_from = 1;
    same = same && run_once(d, g, arrays, err) == TERN_OK;
    for (size_t i = 0; same && i < g->n_values; i++)
        if (arrays[i] && g->values[i].kind == TERN_VALUE_STATE)
            same = has_doubled(arrays[i], before + i * NUMBERS, after, err);
    d->rounds = false;
    d->halves_from = 0;
    return same;
}

bool gpu_train_rounding_works(tern_trainer_device *d) {
    tern_error err;
    tern_graph g;
    tern_graph_init(&g);
    bool works = build_model(&g, &err) == TERN_OK;
    tern_train_array **arrays = tern_alloc_array(TERN_MEM_MISC, g.n_values + 1, sizeof *arrays);
    float *room = tern_alloc_array(TERN_MEM_MISC, (g.n_values + 1) * NUMBERS, sizeof *room);
    works = works && arrays && room && compare(d, &g, arrays, room, &err);
    for (size_t i = 0; arrays && i < g.n_values; i++) gpu_train_array_free(arrays[i]);
    tern_free(arrays);
    tern_free(room);
    tern_graph_free(&g);
    return works;
}
