// A rotated basis for a float model: which of its matrices get it, their signs, and what a file
// says of it (hadamard.c reads that).
//
// The file has rows H(s * w) of a matrix W, so that W x is their product with H(s * x): H and signs
// are orthogonal. Outliers of inputs are spread over a block, and rounding loses less.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "models/models.h"

#define PREFIX "prism.hadamard."
enum { BLOCK_LEAST = 128, BLOCK_MOST = 1024 }; // a GPU transforms a block in a workgroup

// ---- Which matrices ----------------------------------------------------------------------------

static bool is_candidate(const tern_graph *g, const tern_arch *arch, tern_vid v) {
    const tern_value *w = &g->values[v];
    bool is_read = false;
    if (!tern_arch_is_layer_matrix(arch, w) || w->cols % BLOCK_LEAST) return false;
    for (size_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k] != v) continue;
            if (g->nodes[i].op != TERN_OP_LINEAR || k != 1) return false;
            is_read = true;
        }
    return is_read;
}

static size_t add_width(tern_new_rotation *r, int64_t cols) {
    for (size_t i = 0; i < r->n_widths; i++)
        if (r->widths[i] == cols) return 0;
    r->widths[r->n_widths++] = (int32_t)cols;
    while (cols % r->block) r->block /= 2;
    return (size_t)cols;
}

static void draw_signs(tern_new_rotation *r, uint64_t seed) {
    const uint64_t first = tern_mix64(seed + 0x9e3779b97f4a7c15u);
    for (size_t i = 0; i < r->n_signs; i++)
        r->signs[i] = tern_mix64(first + i * 0x9e3779b97f4a7c15u) & 1 ? -1.0f : 1.0f;
}

tern_status tern_arch_new_rotation(tern_new_rotation *out, const tern_graph *g,
                                   const tern_arch *arch, uint64_t seed, tern_error *err) {
    tern_new_rotation *r = out;
    *r = (tern_new_rotation){.block = BLOCK_MOST, .g = g};
    r->matrices = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *r->matrices);
    r->widths = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *r->widths);
    if (!r->matrices || !r->widths) return tern_fail_memory(err, g->n_values * sizeof(tern_vid));
    for (size_t v = 0; v < g->n_values; v++) {
        if (!is_candidate(g, arch, (tern_vid)v)) continue;
        r->matrices[r->n_matrices++] = (tern_vid)v;
        r->n_signs += add_width(r, g->values[v].cols);
    }
    r->signs = tern_alloc_array(TERN_MEM_GRAPH, r->n_signs + 1, sizeof *r->signs);
    if (!r->signs) return tern_fail_memory(err, r->n_signs * sizeof *r->signs);
    draw_signs(r, seed);
    return TERN_OK;
}

void tern_new_rotation_free(tern_new_rotation *r) {
    tern_free(r->matrices);
    tern_free(r->widths);
    tern_free(r->signs);
}

const float *tern_new_rotation_signs(const tern_new_rotation *r, const char *name) {
    const float *signs = r->signs;
    size_t i = 0, k = 0;
    while (i < r->n_matrices && strcmp(r->g->values[r->matrices[i]].name, name) != 0) i++;
    if (i == r->n_matrices) return NULL;
    while (r->widths[k] != r->g->values[r->matrices[i]].cols) signs += r->widths[k++];
    return signs;
}

// ---- What a file says --------------------------------------------------------------------------

static tern_status put_names(const tern_new_rotation *r, tern_gguf_writer *w) {
    tern_str *names = tern_alloc_array(TERN_MEM_GRAPH, r->n_matrices + 1, sizeof *names);
    if (!names) return TERN_ERR_MEMORY;
    for (size_t i = 0; i < r->n_matrices; i++) {
        const char *name = r->g->values[r->matrices[i]].name;
        names[i] = (tern_str){name, strlen(name)};
    }
    tern_status status = tern_gguf_put_strings(w, PREFIX "weight_names", names, r->n_matrices);
    tern_free(names);
    return status;
}

static tern_status put_signs(const tern_new_rotation *r, tern_gguf_writer *w) {
    int8_t *values = tern_alloc(TERN_MEM_GRAPH, r->n_signs + 1);
    if (!values) return TERN_ERR_MEMORY;
    for (size_t i = 0; i < r->n_signs; i++) values[i] = r->signs[i] < 0 ? -1 : 1;
    tern_status status =
        tern_gguf_put_array(w, PREFIX "sign_values", TERN_META_I8, values, r->n_signs);
    tern_free(values);
    return status;
}

tern_status tern_new_rotation_put(const tern_new_rotation *r, tern_gguf_writer *w) {
    TERN_TRY(tern_gguf_put_int(w, PREFIX "version", TERN_META_U32, 1));
    TERN_TRY(tern_gguf_put_int(w, PREFIX "block_size", TERN_META_U32, r->block));
    TERN_TRY(
        tern_gguf_put_str(w, PREFIX "transform", TERN_STR("normalized-sylvester-walsh-hadamard")));
    TERN_TRY(tern_gguf_put_str(w, PREFIX "axis", TERN_STR("input-last-dimension")));
    TERN_TRY(tern_gguf_put_str(w, PREFIX "sign_mode", TERN_STR("explicit")));
    TERN_TRY(tern_gguf_put_array(w, PREFIX "sign_widths", TERN_META_I32, r->widths, r->n_widths));
    TERN_TRY(put_signs(r, w));
    return put_names(r, w);
}
