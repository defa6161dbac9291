// Training an adapter (LoRA, arXiv:2106.09685): matrices W of a frozen base get pairs of low-rank
// ones,
//
//   y = W x + s B (A x),   s = alpha / rank,
//
// with A random and B zero at first, so that the first step has the base's loss. DoRA
// (arXiv:2402.09353) also trains the length m of each row of the sum, at first that of the base's:
//
//   y = m / |W + s B A| (W x + s B (A x)),
//
// where the length |...| is a constant for the gradient, as in the paper's section 4.3.
//
// The base is computed as in inference: the same passes insert the adapter and lower the linears,
// so that those with ternary weights read quantized activations. Its matrices stay as the file has
// them, mapped where files can be, or in a GPU's form of the same codes, and their rows are decoded
// wherever they are multiplied (QLoRA, arXiv:2305.14314): master weights are rounded there, and a
// Hugging Face folder's rows put in GGUF's order, in which the adapter is written. What a GPU has
// no form for is decoded once, to floats.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/dtype/ternary.h"
#include "train/trainer.h"

#define SCALE_NAME "lora.scale" // s I, see tern_pass_low_rank
#define RANK_MAX   4096
#define STRIPE     ((size_t)1 << 20) // floats that are decoded at once

struct tern_lora_base {
    tern_file *file;
    tern_frozen frozen;
    unsigned targets; // a bit for each tern_role
};

// Each role whose matrices can have adapters is a bit in `targets`.
static unsigned bit_of(tern_role role) { return tern_role_name(role) ? 1u << role : 0; }

static unsigned all_targets(void) {
    unsigned all = 0;
    for (int role = 0; role <= TERN_ROLE_DOWN; role++) all |= bit_of((tern_role)role);
    return all;
}

// ---- Opening -----------------------------------------------------------------------------------

static bool is_word(const char *name, const char *text, size_t n) {
    return name && strlen(name) == n && memcmp(name, text, n) == 0;
}

// The last part of a module's name in a folder: q_proj of model.layers.0.self_attn.q_proj.weight.
static bool is_module(const char *hf, const char *text, size_t n) {
    const char *end = hf ? strrchr(hf, '.') : NULL, *begin = end;
    while (begin && begin > hf && begin[-1] != '.') begin--;
    return end && (size_t)(end - begin) == n && memcmp(begin, text, n) == 0;
}

// By tern's name, or by the family's own in folders.
static unsigned find_target(const tern_arch *arch, const char *name, size_t n) {
    unsigned bits = 0;
    if (is_word("all-linear", name, n)) return all_targets();
    for (int role = 0; role <= TERN_ROLE_DOWN; role++)
        if (is_word(tern_role_name((tern_role)role), name, n)) return 1u << role;
    for (const tern_tensor_row *row = arch->tensors; row->gguf || row->hf; row++)
        if (is_module(row->hf, name, n) || is_module(row->hf_also, name, n))
            bits |= bit_of(row->role);
    return bits;
}

static tern_status read_targets(const tern_arch *arch, const char *list, unsigned *out,
                                tern_error *err) {
    *out = list ? 0 : all_targets();
    for (const char *at = list; at && *at;) {
        size_t n = strcspn(at, ",");
        unsigned bits = find_target(arch, at, n);
        if (!bits)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "train: lora_targets: a %s has no matrix '%.*s': expected some of "
                             "q,k,v,o,gate,up,down, modules such as q_proj, or all-linear",
                             arch->name, (int)n, at);
        *out |= bits;
        at += n + (at[n] == ',');
    }
    if (*out) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "train: an adapter needs at least one matrix");
}

// Checked before any work: a graph is cheap, reading data and weights is not.
static tern_status check_ops(const tern_trainer *t, tern_error *err) {
    tern_graph g;
    tern_graph_init(&g);
    tern_status status = tern_arch_build(&g, t->base->file, t->arch, &t->config, err);
    const char *op = status == TERN_OK ? tern_graph_untrainable(&g) : NULL;
    if (op)
        status = tern_fail(err, TERN_ERR_UNSUPPORTED,
                           "%s models cannot be trained: %s has no gradient", t->arch->name, op);
    tern_graph_free(&g);
    return status;
}

tern_status tern_lora_open(tern_trainer *t, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    if (!d->init) return tern_fail(err, TERN_ERR_ARGUMENT, "train: an adapter needs a model");
    if (d->lora_rank < 1 || d->lora_rank > RANK_MAX || !(d->lora_alpha >= 0) ||
        !isfinite(d->lora_alpha))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: an adapter of rank %d with alpha %g: "
                         "expected 1 to %d, and a number above 0",
                         d->lora_rank, (double)d->lora_alpha, RANK_MAX);
    if (d->lora_alpha == 0) t->desc.lora_alpha = d->rslora ? 16 : 2 * (float)d->lora_rank;
    tern_lora_base *b = t->base = tern_alloc(TERN_MEM_GRAPH, sizeof *b);
    if (!b) return tern_fail_memory(err, sizeof *b);
    TERN_TRY(tern_file_open(&b->file, d->init, err));
    tern_status status = tern_file_need_weights(b->file, err);
    if (status == TERN_OK) status = tern_arch_read(b->file, &t->arch, &t->config, err);
    if (status == TERN_OK) tern_config_order_as_gguf(t->arch, &t->config);
    if (status == TERN_OK) status = check_ops(t, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, d->init);
    b->frozen = (tern_frozen){.file = b->file, .arch = t->arch, .config = &t->config};
    return read_targets(t->arch, d->lora_targets, &b->targets, err);
}

void tern_lora_close(tern_lora_base *b) {
    if (!b) return;
    tern_frozen_free(&b->frozen);
    tern_file_close(b->file);
    tern_free(b);
}

float tern_lora_scale(const tern_train_desc *d) {
    float rank = (float)d->lora_rank;
    return d->lora_alpha / (d->rslora ? sqrtf(rank) : rank);
}

const tern_file *tern_lora_file(const tern_lora_base *b) { return b->file; }
uint32_t tern_lora_base_sum(const tern_lora_base *b) { return b->frozen.sum; }

void tern_lora_put_targets(const tern_lora_base *b, tern_strbuf *out) {
    const char *between = "";
    for (int role = 0; role <= TERN_ROLE_DOWN; role++) {
        if (!(b->targets >> role & 1)) continue;
        tern_strbuf_printf(out, "%s%s", between, tern_role_name((tern_role)role));
        between = ",";
    }
}

// ---- The graph ---------------------------------------------------------------------------------

// Parts of a matrix that folders have as one get no adapter: no program would load it.
static int64_t rank_of(const void *ctx, const char *weight) {
    const tern_trainer *t = ctx;
    const tern_tensor_row *row = tern_arch_row(t->arch, weight);
    if (row && row->shares) return 0;
    bool is_target = t->base->targets & bit_of(tern_arch_role(t->arch, weight));
    return is_target ? t->desc.lora_rank : 0;
}

bool tern_lora_is_trained(const tern_value *v) {
    return v->kind == TERN_VALUE_WEIGHT &&
           (tern_name_ends(v->name, ".lora_a") || tern_name_ends(v->name, ".lora_b") ||
            tern_name_ends(v->name, ".lora_m"));
}

bool tern_lora_is_base(const tern_value *v) {
    return v->kind == TERN_VALUE_WEIGHT && !tern_lora_is_trained(v) && strcmp(v->name, SCALE_NAME);
}

// The kind of each matrix of a model. The head's activations are never quantized.
static tern_status find_kinds(tern_frozen *f, const tern_graph *g, tern_weight_kind *lowered,
                              tern_error *err) {
    tern_tensor x;
    for (size_t i = 0; i < g->n_nodes; i++) {
        const tern_node *n = &g->nodes[i];
        if (n->op != TERN_OP_LINEAR) continue;
        const tern_node *made =
            g->values[n->in[1]].producer >= 0 ? &g->nodes[g->values[n->in[1]].producer] : NULL;
        tern_vid w = made ? made->in[0] : n->in[1];
        if (!tern_lora_is_base(&g->values[w])) continue;
        TERN_TRY(tern_arch_weight(f->file, f->arch, &g->values[w], &x, err));
        tern_matrix m = tern_tensor_matrix(&x);
        TERN_TRY(tern_ternary_find(&m, made != NULL, &f->kinds[w], err));
        tern_blob_drop(&x.data); // a look at all of it need not stay resident
        bool head = g->values[n->out[0]].kind == TERN_VALUE_OUTPUT;
        if (f->kinds[w].is_ternary && !head) lowered[w] = TERN_WEIGHT_TERNARY;
    }
    return TERN_OK;
}

// For a device, whose threads read rows at once.
static void decode_row(const void *ctx, size_t row, float *room, float *out) {
    tern_weight_rows_read_in(ctx, (int64_t)row, room, out);
}

static size_t row_of(const void *ctx, size_t row) {
    const tern_weight_rows *r = ctx;
    return (size_t)tern_order_source(&r->moves.rows, (int64_t)row, true);
}

// Rows in another order are still the file's; other numbers or columns are not.
static tern_train_codes codes_of(const tern_weight_rows *r, const tern_ternary_kind *kind,
                                 tern_weight_source *room) {
    const tern_matrix m = tern_tensor_matrix(&r->tensor);
    const bool other =
        r->moves.columns.a || r->change || (r->from->factors && r->from->arch->folded);
    *room = (tern_weight_source){.name = r->name,
                                 .type = m.type,
                                 .data = m.data,
                                 .bytes = r->tensor.bytes,
                                 .n_rows = m.n_rows,
                                 .n_cols = m.n_cols,
                                 .scale = m.scale,
                                 .ternarize = kind->is_ternary && tern_dtype_is_float(m.type)};
    return (tern_train_codes){.decode = decode_row,
                              .ctx = r,
                              .bytes = r->tensor.bytes,
                              .source = other ? NULL : room,
                              .row_of = r->moves.rows.a ? row_of : NULL};
}

static tern_status find_codes(const tern_trainer *t, tern_frozen *f, tern_value *v,
                              const tern_ternary_kind *kind, tern_error *err) {
    tern_weight_rows r;
    tern_weight_source source;
    tern_status status = tern_weight_rows_open(&r, f, v, err);
    const tern_train_codes codes = codes_of(&r, kind, &source);
    if (status == TERN_OK)
        status = t->backend->codes_bytes(t->device, &codes, &v->codes_bytes, err);
    tern_weight_rows_close(&r);
    v->is_coded = v->codes_bytes > 0;
    return status;
}

static tern_status keep_codes(const tern_trainer *t, tern_frozen *f, tern_graph *g,
                              tern_error *err) {
    for (size_t i = 0; i < g->n_values; i++) {
        tern_value *v = &g->values[i];
        if (tern_lora_is_base(v) && (v->is_matrix || v->is_table) &&
            tern_graph_decodes(g, (tern_vid)i))
            TERN_TRY(find_codes(t, f, v, &f->kinds[i], err));
    }
    return TERN_OK;
}

void tern_frozen_free(tern_frozen *f) {
    for (size_t v = 0; f->coded && v < f->n_kinds; v++) tern_weight_rows_close(&f->coded[v]);
    tern_free(f->coded);
    tern_free(f->kinds);
}

tern_status tern_frozen_lower(const tern_trainer *t, tern_frozen *f, tern_graph *g,
                              tern_error *err) {
    f->n_kinds = g->n_values;
    f->kinds = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *f->kinds);
    f->coded = tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *f->coded);
    tern_weight_kind *lowered =
        tern_alloc_array(TERN_MEM_GRAPH, g->n_values + 1, sizeof *lowered); // zero: float
    tern_status status = f->kinds && f->coded && lowered
                             ? TERN_OK
                             : tern_fail_memory(err, g->n_values * sizeof *f->coded);
    if (status == TERN_OK) status = find_kinds(f, g, lowered, err);
    if (status == TERN_OK) status = tern_pass_lower(g, lowered, err);
    if (status == TERN_OK) status = keep_codes(t, f, g, err);
    tern_free(lowered);
    return status;
}

tern_status tern_lora_build(tern_trainer *t, tern_graph *g, tern_error *err) {
    TERN_TRY(tern_arch_build(g, t->base->file, t->arch, &t->config, err));
    TERN_TRY(tern_arch_check(t->base->file, t->arch, &t->config, err));
    const tern_low_rank adapters = {
        .rank_of = rank_of, .ctx = t, .scale = SCALE_NAME, .magnitudes = t->desc.dora};
    TERN_TRY(tern_pass_low_rank(g, &adapters, err));
    bool any = false;
    for (size_t v = 0; v < g->n_values; v++) any |= tern_lora_is_trained(&g->values[v]);
    if (!any)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "train: a %s has no matrix of '%s' that can have an adapter",
                         t->arch->name, t->desc.lora_targets ? t->desc.lora_targets : "all");
    return tern_frozen_lower(t, &t->base->frozen, g, err);
}

// ---- The base's weights ------------------------------------------------------------------------

// Checks all rows, and writes them to the slot's array unless they stay as they are.
static tern_status write_rows(tern_trainer *t, const tern_slot *s, tern_weight_rows *r,
                              tern_error *err) {
    uint64_t n = s->n_cols, step = n < STRIPE ? STRIPE / n : 1;
    if (step > s->n_rows) step = s->n_rows;
    float *stripe = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)(step * n), sizeof *stripe);
    if (!stripe) return tern_fail_memory(err, step * n * sizeof *stripe);
    tern_status status = TERN_OK;
    for (uint64_t row = 0; status == TERN_OK && row < s->n_rows; row += step) {
        uint64_t count = step < s->n_rows - row ? step : s->n_rows - row;
        for (uint64_t i = 0; i < count; i++)
            tern_weight_rows_read(r, (int64_t)(row + i), stripe + i * n);
        if (!tern_all_finite(stripe, count * n))
            status = tern_fail(err, TERN_ERR_FORMAT,
                               "%s holds a number that is not finite: no model to begin from",
                               r->tensor.name);
        else if (!s->codes_bytes)
            status = t->backend->write(s->array, row * n, count * n, stripe, err);
    }
    tern_free(stripe);
    return status;
}

tern_status tern_frozen_load(tern_trainer *t, tern_frozen *f, const tern_graph *g, tern_vid w,
                             tern_slot *s, tern_error *err) {
    tern_weight_rows *r = &f->coded[w];
    if (tern_tensor_is_sign(g->values[w].name)) return tern_trainer_write_signs(t, f->file, s, err);
    tern_status status = tern_weight_rows_open(r, f, &g->values[w], err);
    if (status == TERN_OK) status = tern_weight_rows_begin(r, &f->kinds[w], err);
    if (status == TERN_OK) {
        size_t n = (size_t)(r->tensor.bytes < 4096 ? r->tensor.bytes : 4096);
        f->sum = tern_crc32(f->sum, r->codes.rows.hold.data, n);
        status = write_rows(t, s, r, err);
    }
    if (status == TERN_OK && s->codes_bytes) {
        tern_blob_drop(&r->tensor.data); // a look at all of it need not stay resident
        tern_weight_source source;
        const tern_train_codes codes = codes_of(r, &f->kinds[w], &source);
        status = t->backend->array_of_codes(t->device, &codes, &s->array, err);
        if (status == TERN_OK && !t->backend->copies_codes) return TERN_OK;
    }
    tern_weight_rows_close(r);
    *r = (tern_weight_rows){0};
    return status;
}

tern_status tern_lora_load_base(tern_trainer *t, tern_error *err) {
    const tern_graph *g = &t->train.graph;
    tern_frozen *f = &t->base->frozen;
    tern_status status = TERN_OK;
    for (size_t v = 0; status == TERN_OK && v < f->n_kinds; v++)
        if (tern_lora_is_base(&g->values[v]))
            status = tern_frozen_load(t, f, g, (tern_vid)v, tern_trainer_slot(t, g->values[v].name),
                                      err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, t->desc.init);
}

// ---- The adapter's -----------------------------------------------------------------------------

// The lengths of the base's rows.
static tern_status first_magnitudes(const tern_trainer *t, const tern_slot *s, float *data,
                                    tern_error *err) {
    const tern_graph *g = &t->train.graph;
    const tern_frozen *f = &t->base->frozen;
    char name[TERN_NAME_BYTES];
    tern_weight_rows r;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(s->name) - strlen(".lora_m")), s->name);
    tern_vid w = tern_graph_find(g, name);
    const size_t n = (size_t)g->values[w].cols;
    float *row = tern_alloc_array(TERN_MEM_MISC, n, sizeof *row);
    if (!row) return tern_fail_memory(err, n * sizeof *row);
    tern_status status = tern_weight_rows_open(&r, f, &g->values[w], err);
    if (status == TERN_OK) status = tern_weight_rows_begin(&r, &f->kinds[w], err);
    for (uint64_t i = 0; status == TERN_OK && i < s->n_cols; i++) {
        tern_weight_rows_read(&r, (int64_t)i, row);
        data[i] = tern_row_length(row, n);
    }
    tern_weight_rows_close(&r);
    tern_free(row);
    return status;
}

// A: normal, with the variance of PEFT's uniform one; B: zero; the diagonal: s.
static void first_numbers(const tern_trainer *t, const tern_slot *s, float *data) {
    uint64_t n = s->n_rows * s->n_cols;
    memset(data, 0, n * sizeof *data);
    if (tern_name_ends(s->name, ".lora_a"))
        tern_trainer_normal(t, s, 1 / sqrtf(3 * (float)s->n_cols), data);
    if (strcmp(s->name, SCALE_NAME) == 0)
        for (uint64_t i = 0; i < s->n_rows; i++)
            data[i * s->n_cols + i] = tern_lora_scale(&t->desc);
}

tern_status tern_lora_init(tern_trainer *t, tern_error *err) {
    for (size_t i = 0; i < t->n_slots; i++) {
        const tern_slot *s = &t->slots[i];
        uint64_t n = s->n_rows * s->n_cols;
        if (!s->is_weight || (!s->is_kept && strcmp(s->name, SCALE_NAME) != 0)) continue;
        float *data = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *data);
        if (!data) return tern_fail_memory(err, n * sizeof *data);
        first_numbers(t, s, data);
        tern_status status = TERN_OK;
        if (tern_name_ends(s->name, ".lora_m")) status = first_magnitudes(t, s, data, err);
        if (status == TERN_OK) status = t->backend->write(s->array, 0, n, data, err);
        tern_free(data);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

tern_status tern_lora_put_meta(const tern_trainer *t, tern_gguf_writer *w) {
    tern_str arch = {t->arch->gguf_names[0], strlen(t->arch->gguf_names[0])};
    tern_file_meta_str(t->base->file, "general.architecture", &arch); // a GGUF has its own
    TERN_TRY(tern_gguf_put_str(w, "general.architecture", arch));
    TERN_TRY(tern_gguf_put_str(w, "general.type", TERN_STR("adapter")));
    TERN_TRY(tern_gguf_put_str(w, "general.name", TERN_STR("tern")));
    TERN_TRY(tern_gguf_put_int(w, "general.file_type", TERN_META_U32, 0));
    TERN_TRY(tern_gguf_put_str(w, "adapter.type", TERN_STR("lora")));
    if (t->arch->folded)
        TERN_TRY(tern_gguf_put_int(w, TERN_LORA_OF_FOLDER, TERN_META_BOOL,
                                   t->base->file->kind == TERN_FILE_HF));
    // Readers divide by the rank.
    const float rank = (float)t->desc.lora_rank, scale = tern_lora_scale(&t->desc);
    return tern_gguf_put_f32(w, "adapter.lora.alpha",
                             t->desc.rslora ? scale * rank : t->desc.lora_alpha);
}
