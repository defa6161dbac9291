// How the float model is looked at, and the first ternary one that is made of it. Its weights may
// be rotated before (models/core/new_rotation.c): a float file then stands for the model in all
// stages but the report.
//
//   rtn   each group by itself, its errors weighted by how large inputs are
//   gptq  each matrix by the products of its inputs (gptq.c), which a run over the text collects
#include <string.h>
#include "base/alloc.h"
#include "tasks/tasks.h"
#include "train/ternarize/gptq.h"
#include "train/ternarize/ternarize.h"

enum { MEASURE_TOKENS = 131072 };
#define PRODUCTS_BYTES ((uint64_t)2 << 30)

tern_status tern_ternarize_open(const tern_ternarizing *j, const char *path, tern_model **out) {
    const tern_train_desc *t = &j->heal;
    const tern_model_desc d = {.device = t->device,
                               .webgpu = t->webgpu,
                               .cpu_features = t->cpu_features,
                               .n_threads = t->n_threads};
    return tern_model_open(out, path, &d, j->err);
}

// Windows from all over the text.
static tern_status draw_tokens(const tern_ternarizing *j, int32_t **ids, size_t *n) {
    const int32_t seq = j->settled.seq_len,
                  most = j->desc->measure_tokens ? j->desc->measure_tokens : MEASURE_TOKENS;
    tern_token_set *set;
    const tern_token_set_desc d = {.seq_len = (uint32_t)seq, .seed = j->heal.seed};
    TERN_TRY(tern_token_set_open_folder(&set, j->data, "train", &d, j->err));
    uint64_t windows = set ? tern_token_set_n_sequences(set) : 0;
    const uint64_t wanted = ((uint64_t)most + (uint64_t)seq - 1) / (uint64_t)seq;
    if (windows > wanted) windows = wanted;
    tern_status status = windows ? TERN_OK
                                 : tern_fail(j->err, TERN_ERR_ARGUMENT, "%s: fewer than %d tokens",
                                             j->data, (int)seq);
    *n = (size_t)windows * (size_t)seq;
    *ids = tern_alloc_array(TERN_MEM_MISC, *n + 1, sizeof **ids);
    if (status == TERN_OK && !*ids) status = tern_fail_memory(j->err, *n * sizeof **ids);
    for (uint64_t i = 0; status == TERN_OK && i < windows; i++)
        status = tern_token_set_sequence(set, 0, i, *ids + i * (uint64_t)seq, NULL, j->err);
    tern_token_set_close(set);
    return status;
}

static tern_status measure(const tern_ternarizing *j, const char *model, const char *out) {
    tern_model *m = NULL;
    int32_t *ids = NULL;
    tern_imatrix_desc d = {.window = j->settled.seq_len > 2 ? j->settled.seq_len : 2,
                           .on_progress = j->desc->on_progress,
                           .user = j->desc->user};
    tern_status status = draw_tokens(j, &ids, &d.n_ids);
    d.ids = ids;
    if (status == TERN_OK) status = tern_ternarize_open(j, model, &m);
    if (status == TERN_OK) status = tern_imatrix(m, out, &d, NULL, j->err);
    tern_model_close(m);
    tern_free(ids);
    return status;
}

// The files of the report that are not rotated are rounded by what the model itself multiplies.
tern_status tern_ternarize_measure(tern_ternarizing *j) {
    if (j->desc->rotate) TERN_TRY(measure(j, j->floats, j->importance));
    return measure(j, j->desc->model, j->imatrix);
}

tern_status tern_ternarize_rotate(const tern_ternarizing *j) {
    if (!j->desc->rotate || tern_path_look(j->rotated) != TERN_PATH_NONE) return TERN_OK;
    const tern_convert_desc d = {.type = TERN_TYPE_F32,
                                 .n_threads = j->heal.n_threads,
                                 .on_progress = j->desc->on_progress,
                                 .user = j->desc->user};
    return tern_convert_rotated(j->desc->model, j->rotated, &d, j->heal.seed, j->err);
}

static tern_convert_desc conversion_of(const tern_ternarizing *j, tern_type type,
                                       const char *imatrix) {
    const bool has_type = type == TERN_TYPE_AUTO;
    return (tern_convert_desc){.type = type,
                               .head_type = has_type ? TERN_TYPE_Q8_0 : TERN_TYPE_AUTO,
                               .force_ternary = !has_type,
                               .imatrix = has_type ? NULL : imatrix,
                               .n_threads = j->heal.n_threads,
                               .on_progress = j->desc->on_progress,
                               .user = j->desc->user};
}

tern_status tern_ternarize_convert(const tern_ternarizing *j, const char *in, const char *out,
                                   tern_type type) {
    const tern_convert_desc d =
        conversion_of(j, type, in == j->floats ? j->importance : j->imatrix);
    return tern_convert(in, out, &d, j->err);
}

// ---- By products -------------------------------------------------------------------------------

typedef struct by_products {
    tern_products *products;
    tern_gptq *gptq;
} by_products;

static tern_status round_matrix(void *user, const char *name, tern_dtype type, float *rows,
                                const size_t shape[2], bool *is_rounded, tern_error *err) {
    by_products *b = user;
    const float *sums;
    TERN_TRY(tern_products_of(b->products, name, &sums, err));
    *is_rounded = sums != NULL;
    return sums ? tern_gptq_round(b->gptq, type, rows, shape, sums, err) : TERN_OK;
}

static tern_status convert_by(const tern_ternarizing *j, by_products *b, tern_model *m) {
    int32_t *ids = NULL;
    tern_products_desc d = {.window = j->settled.seq_len > 2 ? j->settled.seq_len : 2,
                            .max_bytes = PRODUCTS_BYTES,
                            .n_threads = j->heal.n_threads,
                            .on_progress = j->desc->on_progress,
                            .user = j->desc->user};
    const tern_convert_desc how = conversion_of(j, j->type, j->importance);
    tern_status status = draw_tokens(j, &ids, &d.n_ids);
    d.ids = ids;
    if (status == TERN_OK) status = tern_products_open(&b->products, m, &d, j->err);
    tern_free(ids);
    if (status != TERN_OK) return status;
    return tern_convert_rounded(j->floats, j->start, &how, &(tern_rounding){round_matrix, b},
                                j->err);
}

static tern_status start_by_products(const tern_ternarizing *j) {
    by_products b = {0};
    tern_model *m = NULL;
    tern_status status = tern_gptq_open(&b.gptq, j->heal.n_threads, j->err);
    if (status == TERN_OK) status = tern_ternarize_open(j, j->floats, &m);
    if (status == TERN_OK) status = convert_by(j, &b, m);
    tern_products_close(b.products);
    tern_gptq_close(b.gptq);
    tern_model_close(m);
    return status;
}

uint64_t tern_ternarize_start_bytes(const tern_trainer *t, const tern_graph *g) {
    uint64_t most = 0;
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].op != TERN_OP_LINEAR) continue;
        const tern_value *w = &g->values[g->nodes[i].in[1]];
        if (tern_tensor_block(w->name, NULL) < 0) continue;
        const uint64_t n_rows = (uint64_t)w->rows, n_cols = (uint64_t)w->cols;
        const uint64_t bytes =
            tern_gptq_bytes(t->qat, n_rows, n_cols) + n_rows * n_cols * sizeof(float);
        if (bytes > most) most = bytes;
    }
    return most + tern_products_most_bytes(t->arch, g, PRODUCTS_BYTES);
}

tern_status tern_ternarize_start(tern_ternarizing *j) {
    if (j->is_gptq) return start_by_products(j);
    return tern_ternarize_convert(j, j->floats, j->start, j->type);
}
