// First weights: random ones, or those of a model's file in the order and with the numbers that
// graphs read, whatever the file's type and format.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "train/trainer.h"

// ---- A file's numbers --------------------------------------------------------------------------

tern_status tern_weight_rows_open(tern_weight_rows *out, const tern_frozen *from,
                                  const tern_value *v, tern_error *err) {
    tern_weight_rows *r = out;
    *r = (tern_weight_rows){.from = from, .name = v->name};
    TERN_TRY(tern_arch_weight(from->file, from->arch, v, &r->tensor, err));
    if (!v->is_matrix && !v->is_table) { // files have vectors as columns, too
        r->tensor.ne[0] = (uint64_t)v->cols;
        r->tensor.ne[1] = (uint64_t)v->rows;
        r->tensor.ne[2] = 1;
    }
    const tern_tensor_row *facts = tern_arch_row(from->arch, v->name);
    if (from->file->kind == TERN_FILE_HF && facts) {
        r->moves = tern_arch_moves(from->arch, from->config, v->name);
        r->change = tern_arch_change(from->file, facts);
    }
    size_t n = (size_t)r->tensor.ne[0];
    r->scratch = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->scratch);
    return r->scratch ? TERN_OK : tern_fail_memory(err, n * sizeof *r->scratch);
}

tern_status tern_weight_rows_begin(tern_weight_rows *r, const tern_ternary_kind *kind,
                                   tern_error *err) {
    tern_matrix m = tern_tensor_matrix(&r->tensor);
    r->kind = *kind;
    return tern_codes_open(&r->codes, &m, kind, false, err);
}

// As conversion to GGUF folds them in, to the same bits.
static void fold(const tern_weight_rows *r, int64_t row, float *x, int64_t n) {
    const tern_arch *arch = r->from->arch;
    if (!r->from->factors || !arch->folded) return;
    const double factor = arch->folded(r->from->factors, r->name, row);
    for (int64_t i = 0; factor != 1 && i < n; i++) x[i] = (float)((double)x[i] * factor);
}

void tern_weight_rows_read(tern_weight_rows *r, int64_t row, float *out) {
    const int64_t n = (int64_t)r->tensor.ne[0], from = tern_order_source(&r->moves.rows, row, true);
    tern_codes_decode(&r->codes, &r->kind, from, out);
    tern_order_columns(&r->moves.columns, true, out, n, r->scratch);
    tern_change_apply(r->change, true, out, (size_t)n);
    fold(r, from, out, n);
}

void tern_weight_rows_read_in(const tern_weight_rows *r, int64_t row, float *room, float *out) {
    tern_weight_rows own = *r;
    own.scratch = room;
    own.codes = tern_codes_in(&r->codes, room + r->tensor.ne[0]);
    tern_weight_rows_read(&own, row, out);
}

void tern_weight_rows_close(tern_weight_rows *r) {
    tern_codes_close(&r->codes);
    tern_free(r->scratch);
    tern_blob_drop(&r->tensor.data);
}

// ---- Random ones -------------------------------------------------------------------------------

bool tern_all_finite(const float *x, uint64_t n) {
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        any |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !any;
}

static uint64_t mix(uint64_t *state) { // splitmix64 (Steele, Lea, Flood 2014)
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Box and Muller: two uniform numbers make a normal one.
static float normal(uint64_t *state) {
    double u = ((double)(mix(state) >> 11) + 1) * 0x1p-53, v = (double)(mix(state) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v));
}

void tern_trainer_normal(const tern_trainer *t, const tern_slot *s, float deviation, float *data) {
    uint64_t state = t->desc.seed, n = s->n_rows * s->n_cols;
    for (const char *c = s->name; *c; c++) state = mix(&state) ^ (uint64_t)(unsigned char)*c;
    for (uint64_t i = 0; i < n; i++) data[i] = deviation * normal(&state);
}

static void random_weight(const tern_trainer *t, const tern_slot *s, float *data) {
    bool ends_branch =
        tern_name_ends(s->name, "attn_output.weight") || tern_name_ends(s->name, "ffn_down.weight");
    float deviation = ends_branch ? 0.02f / sqrtf(2 * (float)t->config.n_layers) : 0.02f;
    if (s->is_matrix)
        tern_trainer_normal(t, s, deviation, data);
    else
        for (uint64_t i = 0; i < s->n_rows * s->n_cols; i++) data[i] = 1;
}

// Ternary weights w = c * scale become master weights that round to the same codes: their mean must
// be the scale, so they are divided by the share of codes that are not 0.
static void masters_of(float *w, uint64_t n) {
    double sum = 0;
    float scale = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += fabs((double)w[i]);
        scale = fmaxf(scale, fabsf(w[i]));
    }
    if (sum == 0) return;
    float factor = (float)((double)scale * (double)n / sum);
    for (uint64_t i = 0; i < n; i++) w[i] *= factor;
}

// ---- Those of a model --------------------------------------------------------------------------

static const tern_value *value_of(const tern_trainer *t, const char *name) {
    const tern_graph *g = &t->train.graph;
    return &g->values[tern_graph_find(g, name)];
}

// Codes go to a weight that its graph rounds: in another one their steps would be lost.
static tern_status check_kind(const tern_trainer *t, const tern_file *file, const tern_slot *s,
                              const tern_ternary_kind *kind, tern_error *err) {
    if (!kind->is_ternary || s->is_ternary || tern_tensor_block(s->name, NULL) < 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: %s is ternary, and a GGUF of a %s cannot have master weights: train an "
                     "adapter (lora_rank) for it",
                     file->path, s->name, t->arch->name);
}

static tern_status decode(const tern_trainer *t, const tern_file *file, const tern_slot *s,
                          tern_weight_rows *r, float *data, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(&r->tensor);
    tern_ternary_kind kind = {0};
    uint64_t n_rows = tern_grown_has(t, s) ? (uint64_t)t->grown.n_rows : s->n_rows;
    if (s->is_matrix) TERN_TRY(tern_ternary_find(&m, false, &kind, err));
    TERN_TRY(check_kind(t, file, s, &kind, err));
    TERN_TRY(tern_weight_rows_begin(r, &kind, err));
    for (uint64_t i = 0; i < n_rows; i++)
        tern_weight_rows_read(r, (int64_t)i, data + i * s->n_cols);
    if (kind.is_ternary) masters_of(data, n_rows * s->n_cols);
    if (tern_grown_has(t, s)) tern_grown_fill(t, s, data);
    return TERN_OK;
}

tern_status tern_trainer_read_first(const tern_trainer *t, const tern_slot *s, float *data,
                                    tern_error *err) {
    const tern_file *file = t->tokenizer_file; // the whole model's
    tern_weight_rows r;
    tern_frozen from = {.file = file, .arch = t->arch, .config = &t->config};
    if (file->kind == TERN_FILE_HF) from.factors = &t->factors;
    tern_value v = *value_of(t, s->name);
    if (tern_grown_has(t, s)) v.rows = t->grown.n_rows;
    tern_status status = tern_weight_rows_open(&r, &from, &v, err);
    if (status == TERN_OK) status = decode(t, file, s, &r, data, err);
    tern_weight_rows_close(&r);
    return status == TERN_OK ? tern_qat_take_start(t, s, data, err) : status;
}

static tern_status weight_of_model(tern_trainer *t, const tern_slot *s, float *data,
                                   tern_error *err) {
    size_t n = (size_t)(s->n_rows * s->n_cols);
    TERN_TRY(tern_trainer_read_first(t, s, data, err));
    t->init_sum = tern_crc32(t->init_sum, data, n * sizeof *data);
    if (tern_all_finite(data, n)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s holds a number that is not finite: no model to begin from", s->name);
}

static tern_status init_slots(tern_trainer *t, tern_error *err) {
    for (size_t i = 0; i < t->n_slots; i++) {
        tern_slot *s = &t->slots[i];
        if (!s->is_weight || !s->is_kept) continue;
        uint64_t n = s->n_rows * s->n_cols;
        float *data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *data);
        if (!data) return tern_fail_memory(err, n * sizeof *data);
        tern_status status = TERN_OK;
        if (t->desc.init)
            status = weight_of_model(t, s, data, err);
        else
            random_weight(t, s, data);
        if (status == TERN_OK) status = t->backend->write(s->array, 0, n, data, err);
        tern_free(data);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

tern_status tern_trainer_init_weights(tern_trainer *t, tern_error *err) {
    if (t->base) return tern_lora_init(t, err);
    if (!t->desc.init) return init_slots(t, err);
    const tern_graph *g = &t->train.graph;
    tern_status status = TERN_OK;
    if (!t->contrastive) // an embedding model may lack layers and a head
        status = tern_arch_refuse_unread(t->tokenizer_file, t->arch, &t->config, &g, 1, err);
    if (status == TERN_OK) status = init_slots(t, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, t->desc.init);
}

static tern_status load_factors(tern_trainer *t, tern_vid v, tern_error *err) {
    if (v < 0 || tern_value_is_teacher(&t->train.graph.values[v])) return TERN_OK;
    tern_slot *s = tern_trainer_slot(t, t->train.graph.values[v].name);
    const uint64_t n = s->n_rows * s->n_cols;
    float *data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *data);
    if (!data) return tern_fail_memory(err, n * sizeof *data);
    tern_status status = tern_trainer_read_first(t, s, data, err);
    if (status == TERN_OK) status = t->backend->write(s->array, 0, n, data, err);
    tern_free(data);
    return status;
}

tern_status tern_trainer_write_signs(const tern_trainer *t, const tern_file *file,
                                     const tern_slot *s, tern_error *err) {
    float *data;
    TERN_TRY(tern_arch_signs(file, (int64_t)s->n_cols, &data, err));
    tern_status status = t->backend->write(s->array, 0, s->n_cols, data, err);
    tern_free(data);
    return status;
}

tern_status tern_trainer_load_factors(tern_trainer *t, tern_error *err) {
    const tern_graph *g = &t->train.graph;
    for (size_t i = 0; t->desc.init && !t->base && i < t->n_slots; i++)
        if (tern_tensor_is_sign(t->slots[i].name))
            TERN_TRY(tern_trainer_write_signs(t, t->tokenizer_file, &t->slots[i], err));
    for (size_t i = 0; t->desc.init && !t->base && i < g->n_nodes; i++)
        for (int k = 0; g->nodes[i].op == TERN_OP_ROPE && k < 2; k++)
            TERN_TRY(load_factors(t, tern_node_optional(&g->nodes[i], k), err));
    return TERN_OK;
}
