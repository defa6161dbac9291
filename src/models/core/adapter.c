// Reading LoRA adapters. Two containers:
//
//   GGUF (llama.cpp's convert_lora_to_gguf): general.type "adapter", adapter.type "lora",
//     adapter.lora.alpha; for the matrix NAME the tensors NAME.lora_a [rank, n_in] and
//     NAME.lora_b [n_out, rank]. Scale alpha / rank. Tern's have DoRA's magnitudes, too, as
//     NAME.lora_m [n_out].
//   PEFT: adapter_config.json and adapter_model.safetensors; for the module M the tensors
//     base_model.model.M.lora_A.weight and ...lora_B.weight, same shapes. Scale lora_alpha / rank,
//     or lora_alpha / sqrt(rank) with use_rslora; alpha_pattern overrides it for some modules.
//     With use_dora (arXiv:2402.09353) also ...lora_magnitude_vector [n_out]: row i of W + B A is
//     then multiplied by factor i, so that its norm is the magnitude.
//
// The file's own scale and, unless sessions have scales, the caller's are multiplied into B.
// Anything else in an adapter (biases, whole modules) is refused by name: leaving it out would be
// another model.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "models/core/adapter.h"

#define RANK_STEP 16 // kernels read this many floats at once
#define RANK_MAX  4096

// ---- One matrix --------------------------------------------------------------------------------

static tern_status grow(tern_adapter *p, int64_t rank, tern_error *err) {
    int64_t room = (p->rank + rank + RANK_STEP - 1) / RANK_STEP * RANK_STEP;
    if (room <= p->room) return TERN_OK;
    float *a = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)(room * p->n_in), sizeof *a);
    float *b = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)(p->n_out * room), sizeof *b);
    if (!a || !b) {
        tern_free(a);
        tern_free(b);
        return tern_fail_memory(err, (size_t)(room * (p->n_in + p->n_out)) * sizeof *a);
    }
    if (p->rank) {
        memcpy(a, p->a, (size_t)(p->rank * p->n_in) * sizeof *a);
        for (int64_t row = 0; row < p->n_out; row++)
            memcpy(b + row * room, p->b + row * p->room, (size_t)p->rank * sizeof *b);
    }
    tern_free(p->a);
    tern_free(p->b);
    p->a = a;
    p->b = b;
    p->room = room;
    return TERN_OK;
}

tern_status tern_adapter_refuse_damaged(const tern_tensor *t, bool is_whole, tern_error *err) {
    if (is_whole) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "tensor %s: some of its numbers are not numbers (NaN or infinite)", t->name);
}

// Appends A's rows.
static tern_status append_a(tern_adapter *p, const tern_tensor *t, const tern_order *columns,
                            bool to_gguf, float *scratch, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(t);
    tern_rows rows;
    bool is_whole = true;
    TERN_TRY(tern_rows_open(&rows, &m, err));
    for (int64_t k = 0; k < m.n_rows; k++) {
        float *row = p->a + (p->rank + k) * p->n_in;
        tern_rows_decode(&rows, k, row);
        for (int64_t i = 0; i < p->n_in; i++) is_whole &= isfinite(row[i]) != 0;
        tern_order_columns(columns, to_gguf, row, p->n_in, scratch);
    }
    tern_rows_close(&rows);
    return tern_adapter_refuse_damaged(t, is_whole, err);
}

// Appends B's columns.
static tern_status append_b(tern_adapter *p, const tern_tensor *t, const tern_order *order,
                            bool to_gguf, float scale, float *scratch, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(t);
    tern_rows rows;
    bool is_whole = true;
    TERN_TRY(tern_rows_open(&rows, &m, err));
    for (int64_t i = 0; i < p->n_out; i++) {
        tern_rows_decode(&rows, tern_order_source(order, i, to_gguf), scratch);
        for (int64_t k = 0; k < m.n_cols; k++) {
            float b = scratch[k] * scale; // which may overflow, too
            is_whole &= isfinite(b) != 0;
            p->b[i * p->room + p->rank + k] = b;
        }
    }
    tern_rows_close(&rows);
    return tern_adapter_refuse_damaged(t, is_whole, err);
}

// Appends the file's A and B, after those of other files.
static tern_status append(const tern_adapter_reader *r, tern_adapter *p, const tern_tensor *a,
                          const tern_tensor *b, float scale, tern_error *err) {
    int64_t rank = (int64_t)a->ne[1];
    bool to_gguf = r->base->kind == TERN_FILE_GGUF;
    tern_moves moves = {0};
    if (r->file->kind != r->base->kind) moves = tern_arch_moves(r->arch, r->config, p->weight);
    TERN_TRY(grow(p, rank, err));
    size_t n_scratch = (size_t)(rank > p->n_in ? rank : p->n_in);
    float *scratch = tern_alloc_array(TERN_MEM_MISC, n_scratch, sizeof *scratch);
    if (!scratch) return tern_fail_memory(err, n_scratch * sizeof *scratch);
    tern_status status = append_a(p, a, &moves.columns, to_gguf, scratch, err);
    if (status == TERN_OK) status = append_b(p, b, &moves.rows, to_gguf, scale, scratch, err);
    if (status == TERN_OK) p->rank += rank;
    tern_free(scratch);
    return status;
}

static bool is_plain(const tern_tensor *t) {
    return t->ne[2] == 1 && t->ne[3] == 1 && !tern_dtype_is_ternary(t->type) &&
           (tern_dtype_is_float(t->type) || t->type == TERN_DTYPE_Q8_0);
}

static tern_status check_shapes(const tern_adapter_reader *r, const tern_tensor *a,
                                const tern_tensor *b, const char *weight, tern_error *err) {
    const tern_tensor *w = tern_arch_tensor(r->base, r->arch, weight);
    tern_role role = tern_arch_role(r->arch, weight);
    if (!w || role == TERN_ROLE_TABLE || role == TERN_ROLE_HEAD)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s: %s", a->name,
                         w ? "adapters of the embedding or the output head are not supported"
                           : "the model has no such matrix");
    const tern_tensor_row *row = tern_arch_row(r->arch, weight);
    if (w->n_dims == 3 || (row && row->shares))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s: adapters of %s are not supported",
                         a->name, w->n_dims == 3 ? "experts" : "a matrix that GGUF has in pieces");
    bool folder = r->base->kind == TERN_FILE_HF;
    if (r->arch->folded && r->of_folder != folder)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s: a %s's GGUF has factors in its weights, its folder beside "
                         "them: the adapter is one of the %s",
                         a->name, r->arch->name, folder ? "GGUF" : "folder");
    if (w->n_dims < 2 || role == TERN_ROLE_VECTOR)
        return tern_fail(err, TERN_ERR_FORMAT, "tensor %s: %s is not a matrix", a->name, weight);
    if (!is_plain(a) || !is_plain(b))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s is %s: expected two dimensions of F32, F16, BF16 or Q8_0",
                         a->name, tern_dtype_name(a->type));
    if (a->ne[0] != w->ne[0] || b->ne[1] != w->ne[1] || a->ne[1] != b->ne[0] || a->ne[1] > RANK_MAX)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s: %llu x %llu and %llu x %llu do not make the model's %llu x "
                         "%llu with a rank of at most %d",
                         a->name, (unsigned long long)b->ne[1], (unsigned long long)b->ne[0],
                         (unsigned long long)a->ne[1], (unsigned long long)a->ne[0],
                         (unsigned long long)w->ne[1], (unsigned long long)w->ne[0], RANK_MAX);
    return TERN_OK;
}

static tern_status add_pair(const tern_adapter_reader *r, const tern_adapter_parts *of,
                            const char *weight, tern_error *err) {
    tern_adapters *set = r->set;
    const tern_tensor *a = of->a, *b = of->b;
    if (!b) return tern_fail(err, TERN_ERR_FORMAT, "tensor %s has no B beside it", a->name);
    TERN_TRY(check_shapes(r, a, b, weight, err));
    char name[sizeof set->list->name];
    snprintf(name, sizeof name, set->apart ? "%s.%d" : "%s", weight, set->n_files);
    tern_adapter *p = (tern_adapter *)tern_adapters_find(set, name);
    TERN_TRY(tern_dora_check(r, of, p, weight, err));
    if (!p) {
        if (tern_array_reserve(TERN_MEM_WEIGHTS, &set->list, &set->capacity, set->n, 1) != 0)
            return tern_fail_memory(err, (set->n + 1) * sizeof *set->list);
        p = &set->list[set->n++];
        *p = (tern_adapter){.n_in = (int64_t)a->ne[0], .n_out = (int64_t)b->ne[1]};
        snprintf(p->weight, sizeof p->weight, "%s", weight);
        snprintf(p->name, sizeof p->name, "%s", name);
    }
    double rank = (double)a->ne[1];
    // llama.cpp: no alpha, or 0, means alpha = rank.
    double scale = r->scale * (of->alpha != 0 ? of->alpha / (r->by_root ? sqrt(rank) : rank) : 1);
    if (of->magnitudes) TERN_TRY(tern_dora_read(r, of, p, err));
    return append(r, p, a, b, (float)scale, err);
}

// ---- Names -------------------------------------------------------------------------------------

bool tern_adapter_cut_end(const char *text, const char *end, char *front, size_t size) {
    size_t n = strlen(text), n_end = strlen(end);
    if (n < n_end || n - n_end >= size || strcmp(text + n - n_end, end) != 0) return false;
    memcpy(front, text, n - n_end);
    front[n - n_end] = 0;
    return true;
}

// ---- GGUF --------------------------------------------------------------------------------------

static tern_status refuse_other(const tern_tensor *t, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s is not part of a pair of A and B",
                     t->name);
}

static tern_status check_gguf(const tern_adapter_reader *r, tern_error *err) {
    tern_str type = {0}, kind = {0}, name = {0};
    tern_file_meta_str(r->file, "general.type", &type);
    tern_file_meta_str(r->file, "adapter.type", &kind);
    tern_file_meta_str(r->file, "general.architecture", &name);
    if (!tern_str_is(type, "adapter") || !tern_str_is(kind, "lora"))
        return tern_fail(
            err, TERN_ERR_FORMAT, "no LoRA adapter: general.type is '%.*s', adapter.type '%.*s'",
            (int)type.len, type.ptr ? type.ptr : "", (int)kind.len, kind.ptr ? kind.ptr : "");
    for (int i = 0; r->arch->gguf_names[i]; i++)
        if (tern_str_is(name, r->arch->gguf_names[i])) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "an adapter of a %.*s, but the model is a %s",
                     (int)name.len, name.ptr ? name.ptr : "", r->arch->name);
}

static tern_status read_gguf(tern_adapter_reader *r, tern_error *err) {
    char weight[64], other[80];
    TERN_TRY(check_gguf(r, err));
    tern_file_meta_float(r->file, "adapter.lora.alpha", &r->alpha);
    if (!isfinite(r->alpha))
        return tern_fail(err, TERN_ERR_FORMAT, "adapter.lora.alpha is %g", r->alpha);
    tern_file_meta_bool(r->file, TERN_LORA_OF_FOLDER, &r->of_folder);
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        const tern_tensor *t = &r->file->tensors[i];
        if (tern_adapter_cut_end(t->name, ".lora_a", weight, sizeof weight)) {
            snprintf(other, sizeof other, "%s.lora_b", weight);
            tern_adapter_parts of = {t, tern_file_tensor(r->file, other), NULL, r->alpha};
            tern_dora_find(r, weight, &of);
            TERN_TRY(add_pair(r, &of, weight, err));
            continue;
        }
        bool known = tern_adapter_cut_end(t->name, ".lora_b", weight, sizeof weight) ||
                     tern_dora_cut(r, t->name, weight, sizeof weight);
        if (known) snprintf(other, sizeof other, "%s.lora_a", weight);
        if (!known || !tern_file_tensor(r->file, other)) return refuse_other(t, err);
    }
    return TERN_OK;
}

// ---- PEFT --------------------------------------------------------------------------------------

static bool is_on(const tern_json_doc *doc, const char *key) {
    const tern_json *v = tern_json_path(doc, key);
    return v && v->type != TERN_JSON_NULL && !(v->type == TERN_JSON_BOOL && !v->n);
}

static tern_status check_config(tern_adapter_reader *r, tern_error *err) {
    static const char *const other_kinds[] = {
#ifdef TERN_NO_DORA
        "use_dora",
#endif
        "fan_in_fan_out",
        "use_qalora",
        "use_bdlora",
        "layer_replication",
        "alora_invocation_tokens"};
    const tern_json_doc *doc = &r->file->config;
    if (!tern_str_is(tern_json_str(tern_json_path(doc, "peft_type")), "LORA"))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "no LoRA adapter: adapter_config.json has no peft_type LORA");
    for (size_t i = 0; i < sizeof other_kinds / sizeof *other_kinds; i++)
        if (is_on(doc, other_kinds[i]))
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "adapter_config.json: %s is not supported",
                             other_kinds[i]);
    r->alpha = tern_json_number(tern_json_path(doc, "lora_alpha"), 0);
    r->by_root = tern_json_bool(tern_json_path(doc, "use_rslora"), false);
#ifndef TERN_NO_DORA
    r->is_dora = is_on(doc, "use_dora");
#endif
    if (r->alpha != 0 && isfinite(r->alpha)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "adapter_config.json: no lora_alpha other than 0");
}

// alpha_pattern's keys are regular expressions for the end of a module's name; in practice they are
// names.
static tern_status find_alpha(const tern_adapter_reader *r, const char *module, double *alpha,
                              tern_error *err) {
    const tern_json_doc *doc = &r->file->config;
    const tern_json *patterns = tern_json_path(doc, "alpha_pattern");
    size_t n = strlen(module);
    *alpha = r->alpha;
    if (!tern_json_is(patterns, TERN_JSON_OBJECT)) return TERN_OK;
    for (const tern_json *k = tern_json_first(doc, patterns); k;
         k = tern_json_next(doc, patterns, k)) {
        tern_str key = tern_json_str(k);
        for (size_t i = 0; i < key.len; i++)
            if (strchr("^$*+?()[]{}|\\", key.ptr[i]))
                return tern_fail(err, TERN_ERR_UNSUPPORTED,
                                 "adapter_config.json: alpha_pattern '%.*s' is more than a name",
                                 (int)key.len, key.ptr);
        bool fits = n >= key.len && !memcmp(module + n - key.len, key.ptr, key.len) &&
                    (n == key.len || module[n - key.len - 1] == '.');
        if (fits) *alpha = tern_json_number(tern_json_value_of(doc, k), 0);
    }
    if (*alpha != 0 && isfinite(*alpha)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "adapter_config.json: alpha_pattern has no number other than 0 for %s",
                     module);
}

static tern_status read_peft_pair(const tern_adapter_reader *r, const tern_tensor *a,
                                  const char *module, tern_error *err) {
    static const char front[] = "base_model.model.";
    char other[192], hf[160], weight[64];
    tern_adapter_parts of = {.a = a};
    const char *name =
        strncmp(module, front, sizeof front - 1) ? module : module + sizeof front - 1;
    snprintf(other, sizeof other, "%s.lora_B.weight", module);
    snprintf(hf, sizeof hf, "%s.weight", name);
    if (!tern_arch_name_to_gguf(r->arch, hf, weight, sizeof weight))
        return tern_fail(err, TERN_ERR_FORMAT, "tensor %s: a %s has no matrix %s", a->name,
                         r->arch->name, hf);
    TERN_TRY(find_alpha(r, name, &of.alpha, err));
    of.b = tern_file_tensor(r->file, other);
    tern_dora_find(r, module, &of);
    return add_pair(r, &of, weight, err);
}

static tern_status read_peft(tern_adapter_reader *r, tern_error *err) {
    char module[144], other[192];
    r->of_folder = true;
    TERN_TRY(check_config(r, err));
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        const tern_tensor *t = &r->file->tensors[i];
        if (tern_adapter_cut_end(t->name, ".lora_A.weight", module, sizeof module)) {
            TERN_TRY(read_peft_pair(r, t, module, err));
            continue;
        }
        bool known = tern_adapter_cut_end(t->name, ".lora_B.weight", module, sizeof module) ||
                     tern_dora_cut(r, t->name, module, sizeof module);
        if (known) snprintf(other, sizeof other, "%s.lora_A.weight", module);
        if (!known || !tern_file_tensor(r->file, other)) return refuse_other(t, err);
    }
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

static tern_status open_adapter(tern_file **out, const tern_lora *lora, tern_error *err) {
    tern_strbuf inner = {0};
    if (lora->bytes.n_bytes) return tern_file_open_bytes(out, lora->path, &lora->bytes, err);
    tern_strbuf_puts(&inner, lora->path);
    if (tern_folder_is(lora->path)) tern_strbuf_puts(&inner, "/adapter_model.safetensors");
    tern_status status =
        inner.failed ? tern_fail_memory(err, inner.len) : tern_file_open(out, inner.ptr, err);
    tern_strbuf_free(&inner);
    return status;
}

static tern_status read_adapter(tern_adapters *set, const tern_lora *lora, const tern_file *base,
                                const tern_arch *arch, const tern_config *c, tern_error *err) {
    tern_file *file = NULL;
    const char *path = lora->path ? lora->path : "memory";
    TERN_TRY(open_adapter(&file, lora, err));
    const float scale = lora->scale != 0 && !set->apart ? lora->scale : 1;
    tern_adapter_reader r = {
        .set = set, .file = file, .base = base, .arch = arch, .config = c, .scale = scale};
    tern_status status = file->kind == TERN_FILE_GGUF ? read_gguf(&r, err) : read_peft(&r, err);
    if (status == TERN_OK && file->n_tensors == 0)
        status = tern_fail(err, TERN_ERR_FORMAT, "there are no tensors in it");
    tern_file_close(file);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, path);
}

tern_status tern_adapters_add(tern_adapters *set, const tern_lora *lora, const tern_file *base,
                              const tern_arch *arch, const tern_config *c, tern_error *err) {
    tern_adapters aside = {0};
    if (!lora->bytes.n_bytes) TERN_NEED(lora->path);
    TERN_NEED_ARRAY(lora->bytes.bytes, lora->bytes.n_bytes);
    if (!isfinite(lora->scale))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: its scale is %g",
                         lora->path ? lora->path : "memory", (double)lora->scale);
    const bool is_aside = lora->off && !set->apart;
    tern_status status = read_adapter(is_aside ? &aside : set, lora, base, arch, c, err);
    tern_adapters_free(&aside);
    set->n_files++;
    return status;
}

void tern_adapters_free(tern_adapters *set) {
    for (size_t i = 0; i < set->n; i++) {
        tern_free(set->list[i].a);
        tern_free(set->list[i].b);
        tern_free(set->list[i].magnitudes);
        tern_free(set->list[i].factors);
    }
    tern_free(set->list);
    *set = (tern_adapters){0};
}

const tern_adapter *tern_adapters_find(const tern_adapters *set, const char *name) {
    for (size_t i = 0; i < set->n; i++)
        if (!strcmp(set->list[i].name, name)) return &set->list[i];
    return NULL;
}

int64_t tern_adapters_rank(const void *set, const char *name) {
    const tern_adapter *p = tern_adapters_find(set, name);
    return p ? p->room : 0;
}

// ---- The matrix with its adapter ---------------------------------------------------------------

void tern_adapter_add_row(const tern_adapter *p, int64_t row, float *sum) {
    for (int64_t k = 0; k < p->rank; k++) {
        float b = p->b[row * p->room + k];
        for (int64_t i = 0; i < p->n_in; i++) sum[i] += b * p->a[k * p->n_in + i];
    }
}

void tern_adapter_merge_row(const tern_adapter *p, int64_t row, float *out) {
    tern_adapter_add_row(p, row, out);
    if (p->magnitudes) tern_dora_scale(p, row, out);
}
