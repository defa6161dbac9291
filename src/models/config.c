// The file's config, read into tern_config and written back: one table maps each field in both
// worlds.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/models.h"

#define TERN_ARCH_ROW(name) extern const tern_arch tern_arch_##name;
#include "models/models.inc"
#undef TERN_ARCH_ROW

const tern_arch *const *tern_arch_list(size_t *n) {
    static const tern_arch *const list[] = {
#define TERN_ARCH_ROW(name) &tern_arch_##name,
#include "models/models.inc"
#undef TERN_ARCH_ROW
    };
    *n = sizeof list / sizeof *list;
    return list;
}

// ---- The table ---------------------------------------------------------------------------------

// gguf: the key after "<architecture>."; hf: the member of config.json, or two separated by '|', of
// which the first one present counts.
typedef struct int_field {
    size_t offset;
    const char *gguf, *hf;
    int64_t least, most; // least 0: the field may be absent
} int_field;

typedef struct float_field {
    size_t offset;
    const char *gguf, *hf;
    double otherwise;
} float_field;

#define HEAD_DIM_MAX 65536
#define AT(member) offsetof(tern_config, member)

static const int_field int_fields[] = {
    {AT(n_layers), "block_count", "num_hidden_layers", 1, 1000},
    {AT(n_embd), "embedding_length", "hidden_size", 1, 1 << 20},
    {AT(n_ff), "feed_forward_length", "intermediate_size", 1, 1 << 22},
    {AT(n_heads), "attention.head_count", "num_attention_heads", 1, 65536},
    {AT(n_kv_heads), "attention.head_count_kv", "num_key_value_heads", 0, 65536},
    {AT(head_dim), "attention.key_length", "head_dim", 0, HEAD_DIM_MAX},
    {AT(n_context), "context_length", "max_position_embeddings", 0, INT32_MAX},
    {AT(n_vocab), "vocab_size", "vocab_size", 0, 1 << 24},
};

static const float_field float_fields[] = {
    {AT(rms_eps), "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-5},
};

// ---- Access to both worlds ---------------------------------------------------------------------

typedef struct reader {
    const tern_file *file;
    char prefix[64]; // GGUF
} reader;

static const tern_json *hf_field(const reader *r, const char *path) {
    return tern_json_path(&r->file->config, path);
}

static bool read_float(const reader *r, const char *gguf, const char *hf, double *value) {
    if (r->file->kind == TERN_FILE_GGUF) {
        char key[160];
        snprintf(key, sizeof key, "%s.%s", r->prefix, gguf);
        return tern_file_meta_float(r->file, key, value);
    }
    const tern_json *j = hf ? hf_field(r, hf) : NULL;
    if (!tern_json_is(j, TERN_JSON_NUMBER)) return false;
    *value = j->number;
    return true;
}

// Some files give one value a layer (an array); only equal ones are supported here.
static bool read_first_of_array(const tern_file *file, const char *key, int64_t *value) {
    const tern_meta *meta = tern_file_meta(file, key);
    if (!meta || meta->type != TERN_META_ARRAY || meta->n == 0) return false;
    double first, d;
    if (!tern_meta_element(meta, 0, &first) || !(fabs(first) < 0x1p53)) return false;
    for (uint64_t i = 1; i < meta->n; i++)
        if (!tern_meta_element(meta, i, &d) || d != first) return false;
    *value = (int64_t)first;
    return true;
}

static bool read_int(const reader *r, const char *gguf, const char *hf, int64_t *value) {
    if (r->file->kind == TERN_FILE_GGUF) {
        char key[160];
        snprintf(key, sizeof key, "%s.%s", r->prefix, gguf);
        return tern_file_meta_int(r->file, key, value) || read_first_of_array(r->file, key, value);
    }
    const tern_json *j = hf ? hf_field(r, hf) : NULL;
    if (!tern_json_is(j, TERN_JSON_NUMBER)) return false;
    *value = tern_json_int(j, -1);
    return true;
}

static tern_str read_str(const reader *r, const char *gguf, const char *hf) {
    tern_str s = {NULL, 0};
    if (r->file->kind == TERN_FILE_GGUF) {
        char key[160];
        snprintf(key, sizeof key, "%s.%s", r->prefix, gguf);
        tern_file_meta_str(r->file, key, &s);
        return s;
    }
    return hf ? tern_json_str(hf_field(r, hf)) : s;
}

// ---- Which architecture ------------------------------------------------------------------------

static bool in_list(const char *const *list, tern_str name) {
    for (; *list; list++)
        if (tern_str_is(name, *list)) return true;
    return false;
}

static tern_status find_arch(const tern_file *file, reader *r, const tern_arch **arch,
                             tern_error *err) {
    bool gguf = file->kind == TERN_FILE_GGUF;
    tern_str name = {NULL, 0};
    if (gguf)
        tern_file_meta_str(file, "general.architecture", &name);
    else
        name = tern_json_str(tern_json_path(&file->config, "model_type"));
    const char *key = gguf ? "general.architecture" : "config.json: model_type";
    if (!name.ptr || name.len == 0 || name.len >= sizeof r->prefix)
        return tern_fail(err, TERN_ERR_FORMAT, "%s is missing", key);
    memcpy(r->prefix, name.ptr, name.len);
    r->prefix[name.len] = 0;
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t i = 0; i < n; i++) {
        if (!in_list(gguf ? list[i]->gguf_names : list[i]->hf_types, name)) continue;
        *arch = list[i];
        return TERN_OK;
    }
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s is \"%s\": this architecture is not supported",
                     key, r->prefix);
}

// ---- Fields that need thought ------------------------------------------------------------------

bool tern_act_from_name(tern_str name, tern_act_kind *out) {
    // Other names that transformers has for the same functions.
    static const struct {
        const char *name;
        tern_act_kind kind;
    } also[] = {
        {"swish", TERN_ACTIVATION_SILU},
        {"gelu_python", TERN_ACTIVATION_GELU},
        {"gelu_new", TERN_ACTIVATION_GELU_TANH},
        {"gelu_fast", TERN_ACTIVATION_GELU_TANH},
        {"gelu_accurate", TERN_ACTIVATION_GELU_TANH},
        {"gelu_python_tanh", TERN_ACTIVATION_GELU_TANH},
    };
    for (int i = 0; i < TERN_ACTIVATION_NONE; i++)
        if (tern_str_is(name, tern_act_name((tern_act_kind)i))) {
            *out = (tern_act_kind)i;
            return true;
        }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (tern_str_is(name, also[i].name)) {
            *out = also[i].kind;
            return true;
        }
    return false;
}

static tern_status read_act(const reader *r, const tern_arch *arch, tern_config *c,
                            tern_error *err) {
    tern_str act = read_str(r, "hidden_activation", "hidden_act");
    c->act = TERN_ACTIVATION_SILU;
    if (act.ptr) {
        if (tern_act_from_name(act, &c->act)) return TERN_OK;
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "activation \"%.*s\" is not supported",
                         (int)(act.len < 64 ? act.len : 64), act.ptr);
    }
    if (r->file->kind == TERN_FILE_GGUF && arch->gguf_act)
        c->act = arch->gguf_act(r->prefix, c, &c->guess);
    return TERN_OK;
}

static tern_status read_rope_scaling(const reader *r, tern_config *c, tern_error *err) {
    bool gguf = r->file->kind == TERN_FILE_GGUF;
    // transformers 5 writes rope_parameters, 4 wrote rope_scaling.
    bool v5 = !gguf && tern_json_is(hf_field(r, "rope_parameters"), TERN_JSON_OBJECT);
    const char *group = v5 ? "rope_parameters" : "rope_scaling";
    char dotted[96];
#define HF(member) (snprintf(dotted, sizeof dotted, "%s.%s", group, member), dotted)
    tern_rope_attrs *a = &c->rope;
    double d;
    a->factor = read_float(r, "rope.scaling.factor", HF("factor"), &d) ? (float)d : 1.0f;
    tern_str type = read_str(r, "rope.scaling.type", HF("rope_type"));
    if (!type.ptr) type = read_str(r, "rope.scaling.type", HF("type"));
    int64_t original = c->n_context;
    if (!read_int(r, "rope.scaling.original_context_length", HF("original_max_position_embeddings"),
                  &original))
        original = c->n_context;
    if (original < 1 || original > INT32_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "RoPE scaling: trained with %" PRId64
                         " tokens makes no sense", original);
    a->n_context_orig = (int32_t)original;
    if (gguf && tern_file_tensor(r->file, "rope_freqs.weight")) {
        a->scaling = TERN_ROPE_FACTORS;
        return TERN_OK;
    }
    if (!type.ptr || tern_str_is(type, "default") || tern_str_is(type, "none")) return TERN_OK;
    if (tern_str_is(type, "linear")) {
        if (a->factor != 1.0f) a->scaling = TERN_ROPE_LINEAR;
    } else if (tern_str_is(type, "llama3")) {
        a->scaling = TERN_ROPE_LLAMA3;
        a->low_freq_factor = read_float(r, "", HF("low_freq_factor"), &d) ? (float)d : 1.0f;
        a->high_freq_factor = read_float(r, "", HF("high_freq_factor"), &d) ? (float)d : 4.0f;
    } else if (tern_str_is(type, "yarn")) {
        a->scaling = TERN_ROPE_YARN;
        a->beta_fast =
            read_float(r, "rope.scaling.yarn_beta_fast", HF("beta_fast"), &d) ? (float)d : 32;
        a->beta_slow =
            read_float(r, "rope.scaling.yarn_beta_slow", HF("beta_slow"), &d) ? (float)d : 1;
        a->attn_factor =
            read_float(r, "rope.scaling.attn_factor", HF("attention_factor"), &d) ? (float)d : 0;
    } else
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "RoPE scaling \"%.*s\" is not supported",
                         (int)(type.len < 64 ? type.len : 64), type.ptr);
#undef HF
    const float numbers[] = {a->factor,    a->low_freq_factor, a->high_freq_factor,
                             a->beta_fast, a->beta_slow,       a->attn_factor};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i]) || (i == 0 && !(numbers[i] > 0)))
            return tern_fail(err, TERN_ERR_FORMAT, "RoPE scaling: a factor of %g makes no sense",
                             (double)numbers[i]);
    return TERN_OK;
}

static tern_status read_rope(const reader *r, const tern_arch *arch, tern_config *c,
                             tern_error *err) {
    double d;
    int64_t n_rot = c->head_dim;
    bool has_base = read_float(r, "rope.freq_base", "rope_theta", &d) ||
                    read_float(r, "rope.freq_base", "rope_parameters.rope_theta", &d);
    c->rope.base = has_base ? (float)d : 10000.0f;
    if (r->file->kind == TERN_FILE_GGUF)
        read_int(r, "rope.dimension_count", NULL, &n_rot);
    else if (read_float(r, "", "partial_rotary_factor", &d))
        n_rot = d > 0 && d <= 1 ? (int64_t)((double)c->head_dim * d) : 0;
    if (n_rot < 2 || n_rot % 2 != 0 || n_rot > c->head_dim || !(c->rope.base > 0) ||
        !isfinite(c->rope.base))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "RoPE over %" PRId64 " of %" PRId64
                         " dimensions with base %g makes no sense",
                         n_rot, c->head_dim, (double)c->rope.base);
    c->rope.n_rot = (int32_t)n_rot;
    c->rope.halves = r->file->kind == TERN_FILE_HF || !arch->gguf_rope_neighbours;
    return read_rope_scaling(r, c, err);
}

static tern_status check_epsilon(const char *name, double value, tern_error *err) {
    if (value >= 0 && value < 1) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config: %s is %g, expected 0 to 1", name, value);
}

static tern_status read_sizes(const reader *r, tern_config *c, tern_error *err) {
    for (size_t i = 0; i < sizeof int_fields / sizeof *int_fields; i++) {
        const int_field *f = &int_fields[i];
        int64_t value = 0;
        bool gguf = r->file->kind == TERN_FILE_GGUF;
        const char *key = gguf ? f->gguf : f->hf;
        bool found = read_int(r, f->gguf, f->hf, &value);
        if (!found && f->least > 0)
            return tern_fail(err, TERN_ERR_FORMAT, "config: %s%s%s is missing",
                             gguf ? r->prefix : "", gguf ? "." : "", key);
        if (found && (value < (f->least ? f->least : 1) || value > f->most))
            return tern_fail(err, TERN_ERR_FORMAT,
                             "config: %s is %" PRId64 ", expected 1 to %" PRId64, key, value,
                             f->most);
        *(int64_t *)((char *)c + f->offset) = value;
    }
    for (size_t i = 0; i < sizeof float_fields / sizeof *float_fields; i++) {
        const float_field *f = &float_fields[i];
        double value = f->otherwise;
        read_float(r, f->gguf, f->hf, &value);
        TERN_TRY(check_epsilon(f->gguf, value, err));
        *(double *)((char *)c + f->offset) = value;
    }
    return TERN_OK;
}

// BitNet in transformers: its quantizer puts BitLinears in the place of another model's linears.
// "online": the weights are masters, rounded at each use; else they are packed codes.
static tern_status read_quantization(const reader *r, tern_config *c, tern_error *err) {
    const tern_json *q = hf_field(r, "quantization_config");
    if (!tern_json_is(q, TERN_JSON_OBJECT)) return TERN_OK;
    tern_str method = tern_json_str(hf_field(r, "quantization_config.quant_method"));
    if (!tern_str_is(method, "bitnet"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: quant_method \"%.*s\" is not supported (bitnet is)",
                         (int)(method.len < 40 ? method.len : 40), method.ptr ? method.ptr : "");
    tern_str mode = tern_json_str(hf_field(r, "quantization_config.quantization_mode"));
    bool online = tern_str_is(mode, "online");
    if (mode.ptr && !online && !tern_str_is(mode, "offline"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: quantization_mode \"%.*s\" is neither online nor offline",
                         (int)(mode.len < 40 ? mode.len : 40), mode.ptr);
    if (online) c->bitlinear = true;
    const tern_json *norms = hf_field(r, "quantization_config.use_rms_norm");
    c->input_norms = tern_json_bool(norms, false);
    c->input_norm_eps = tern_json_number(hf_field(r, "quantization_config.rms_norm_eps"), 1e-6);
    const tern_json *kept = hf_field(r, "quantization_config.modules_to_not_convert");
    for (const tern_json *k = tern_json_first(&r->file->config, kept); k;
         k = tern_json_next(&r->file->config, kept, k)) {
        tern_str name = tern_json_str(k);
        if (tern_str_is(name, "lm_head") || tern_str_is(name, "model.embed_tokens")) continue;
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: modules_to_not_convert has \"%.*s\"; only lm_head may keep "
                         "its weights", (int)(name.len < 64 ? name.len : 64),
                         name.ptr ? name.ptr : "");
    }
    return TERN_OK;
}

static tern_status read_linears(const reader *r, const tern_arch *arch, tern_config *c,
                                tern_error *err) {
    const tern_file *file = r->file;
    c->bitlinear = arch->always_ternary;
    c->input_norm_eps = 1e-6;
    if (file->kind == TERN_FILE_HF) return read_quantization(r, c, err);
    c->input_norms = tern_file_tensor(file, "blk.0.attn_q_norm_in.weight") != NULL;
    read_float(r, "norm_in_rms_epsilon", NULL, &c->input_norm_eps);
    return TERN_OK;
}

// Sliding windows are not computed. Up to a window's length they are what full attention is, so
// that is how long a context may be.
static void limit_to_window(const reader *r, tern_config *c) {
    int64_t window = 0;
    bool is_used = r->file->kind == TERN_FILE_GGUF ||
                   tern_json_bool(hf_field(r, "use_sliding_window"), true);
    if (!is_used || !read_int(r, "attention.sliding_window", "sliding_window", &window)) return;
    if (window <= 0) return;
    c->n_window = window;
    if (c->n_context > window) c->n_context = window;
}

// transformers uses the embedding table if config.json says that it is tied, even if the folder has
// a head; if it does not say so but there is no head, nothing else can be meant.
static bool has_tied_head(const reader *r, const tern_arch *arch) {
    return !tern_model_tensor(r->file, arch, "output.weight") ||
           (r->file->kind == TERN_FILE_HF &&
            tern_json_bool(hf_field(r, "tie_word_embeddings"), false));
}

tern_status tern_model_read(const tern_file *file, const tern_arch **arch, tern_config *c,
                            tern_error *err) {
    reader r = {.file = file};
    *c = (tern_config){0};
    TERN_TRY(find_arch(file, &r, arch, err));
    TERN_TRY(read_sizes(&r, c, err));
    if (c->n_kv_heads == 0) c->n_kv_heads = c->n_heads;
    if (c->head_dim == 0) c->head_dim = c->n_embd / c->n_heads;
    if (c->n_context == 0) c->n_context = 2048;
    limit_to_window(&r, c);
    if (c->head_dim < 2 || c->head_dim % 2 != 0 || c->head_dim > HEAD_DIM_MAX ||
        c->n_heads % c->n_kv_heads != 0)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " heads, %" PRId64 " key heads and %" PRId64
                         " dimensions a head do not fit together",
                         c->n_heads, c->n_kv_heads, c->head_dim);
    double final_eps = c->rms_eps;
    read_float(&r, "final_norm_rms_epsilon", "final_norm_eps", &final_eps);
    TERN_TRY(check_epsilon("final_norm_eps", final_eps, err));
    c->final_rms_eps = final_eps;
    const tern_tensor *table = tern_model_tensor(file, *arch, "token_embd.weight");
    if (!table || table->n_dims != 2)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor token_embd.weight is missing or not a matrix");
    c->n_vocab = (int64_t)table->ne[1]; // the real size
    c->tied_head = has_tied_head(&r, *arch);
    c->sub_norms = tern_model_tensor(file, *arch, "blk.0.attn_sub_norm.weight") != NULL;
    bool gguf = file->kind == TERN_FILE_GGUF;
    c->bos_id = c->eos_id = -1;
    if (gguf) {
        tern_file_meta_int(file, "tokenizer.ggml.bos_token_id", &c->bos_id);
        tern_file_meta_int(file, "tokenizer.ggml.eos_token_id", &c->eos_id);
    } else {
        c->bos_id = tern_json_int(hf_field(&r, "bos_token_id"), -1);
        c->eos_id = tern_json_int(hf_field(&r, "eos_token_id"), -1);
    }
    TERN_TRY(read_linears(&r, *arch, c, err));
    TERN_TRY(check_epsilon("the norms in front of projections", c->input_norm_eps, err));
    TERN_TRY(read_act(&r, *arch, c, err));
    return read_rope(&r, *arch, c, err);
}

// ---- Tensors -----------------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

// The scale of a packed weight, which the reader of the folder has built in.
static bool is_packed_scale(const tern_file *file, const char *name) {
    static const char end[] = "_scale";
    char weight[256];
    size_t n = strlen(name);
    if (!ends_with(name, ".weight_scale") || n >= sizeof weight) return false;
    memcpy(weight, name, n - (sizeof end - 1));
    weight[n - (sizeof end - 1)] = 0;
    const tern_tensor *t = tern_file_tensor(file, weight);
    return t && t->type == TERN_DTYPE_HF_TERNARY;
}

const char *tern_model_ignores(const tern_file *file, const tern_arch *arch, const tern_config *c,
                               const char *name) {
    bool gguf = file->kind == TERN_FILE_GGUF;
    for (const tern_ignored *i = arch->ignored; i && i->end; i++)
        if (ends_with(name, i->end)) return i->why;
    if (gguf && strncmp(name, "adam.", 5) == 0 && tern_file_meta(file, "tern.train.step"))
        return "moments of the optimizer, which only training uses";
    if (!gguf && is_packed_scale(file, name)) return "the scale of a packed weight, read with it";
    char head[128];
    if (!gguf && c->tied_head && tern_model_name_to_hf(arch, "output.weight", head, sizeof head) &&
        strcmp(name, head) == 0)
        return "config.json ties the head to the embedding table";
    return NULL;
}

static bool is_read(const tern_file *file, const tern_arch *arch, const tern_graph *g,
                    const char *name) {
    char gguf[128];
    if (file->kind == TERN_FILE_HF) {
        if (!tern_model_name_to_gguf(arch, name, gguf, sizeof gguf)) return false;
        name = gguf;
    }
    tern_vid v = tern_graph_find(g, name);
    return v >= 0 && g->values[v].kind == TERN_VALUE_WEIGHT;
}

tern_status tern_model_refuse_unread(const tern_file *file, const tern_arch *arch,
                                     const tern_config *c, const tern_graph *g, tern_error *err) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        if (is_read(file, arch, g, name) || tern_model_ignores(file, arch, c, name)) continue;
        if (ends_with(name, ".bias"))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s: a %s with biases is not supported", name, arch->name);
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s is not one that a %s of this config reads: without it the "
                         "model would be another", name, arch->name);
    }
    return TERN_OK;
}

tern_status tern_model_weight(const tern_file *file, const tern_arch *arch, const tern_value *v,
                              const tern_tensor **out, tern_error *err) {
    const tern_tensor *t = *out = tern_model_tensor(file, arch, v->name);
    char hf[128];
    bool named = file->kind == TERN_FILE_HF && tern_model_name_to_hf(arch, v->name, hf, sizeof hf);
    if (!t) return tern_fail(err, TERN_ERR_FORMAT, "tensor %s is missing", named ? hf : v->name);
    bool vector = !v->is_matrix && !v->is_table;
    if ((int64_t)t->ne[0] != v->cols || (int64_t)t->ne[1] != v->rows || t->ne[2] != 1 ||
        t->ne[3] != 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s is %llu x %llu, but the config makes it %lld x %lld", t->name,
                         (unsigned long long)t->ne[1], (unsigned long long)t->ne[0],
                         (long long)v->rows, (long long)v->cols);
    bool number = t->type == TERN_DTYPE_I8 || t->type == TERN_DTYPE_I32 ||
                  t->type == TERN_DTYPE_I64 || t->type == TERN_DTYPE_F64 ||
                  t->type == TERN_DTYPE_U8;
    if (t->type == TERN_DTYPE_UNKNOWN)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s has the unknown element type %u",
                         t->name, t->type_id);
    if (!tern_dtype_is_readable(t->type))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s has type %s, which can be listed but not run", t->name,
                         tern_dtype_name(t->type));
    if ((vector && !tern_dtype_is_float(t->type)) || number)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s has type %s, which a %s cannot have",
                         t->name, tern_dtype_name(t->type), vector ? "vector" : "weight matrix");
    return TERN_OK;
}

// The last layer is looked for first: a graph of layers that are not in the file would be built to
// be refused, and of many of them that takes long.
tern_status tern_model_build(tern_graph *g, const tern_file *file, const tern_arch *arch,
                             const tern_config *c, tern_error *err) {
    char name[64];
    snprintf(name, sizeof name, "blk.%" PRId64 ".attn_norm.weight", c->n_layers - 1);
    if (tern_model_tensor(file, arch, name)) return arch->build(g, c, err);
    return tern_fail(err, TERN_ERR_FORMAT, "tensor %s is missing: the config has %" PRId64
                     " layers", name, c->n_layers);
}

tern_status tern_model_check(const tern_file *file, const tern_arch *arch, const tern_config *c,
                             tern_error *err) {
    tern_graph g;
    tern_graph_init(&g);
    tern_status status = tern_model_build(&g, file, arch, c, err);
    for (size_t v = 0; status == TERN_OK && v < g.n_values; v++) {
        const tern_tensor *t;
        if (g.values[v].kind == TERN_VALUE_WEIGHT)
            status = tern_model_weight(file, arch, &g.values[v], &t, err);
    }
    if (status == TERN_OK) status = tern_model_refuse_unread(file, arch, c, &g, err);
    tern_graph_free(&g);
    return status;
}

// ---- Names -------------------------------------------------------------------------------------

// Matches name against a pattern with at most one %d; *layer is its number.
static bool match(const char *pattern, const char *name, int *layer) {
    const char *hole = strstr(pattern, "%d");
    *layer = -1;
    if (!hole) return strcmp(pattern, name) == 0;
    size_t front = (size_t)(hole - pattern);
    if (strncmp(pattern, name, front) != 0) return false;
    int value = 0, digits = 0;
    const char *at = name + front;
    for (; *at >= '0' && *at <= '9' && digits < 6; at++, digits++) value = value * 10 + (*at - '0');
    *layer = value;
    return digits > 0 && strcmp(at, hole + 2) == 0;
}

static bool fill(const char *pattern, int layer, char *out, size_t size) {
    const char *hole = strstr(pattern, "%d");
    int n = hole ? snprintf(out, size, "%.*s%d%s", (int)(hole - pattern), pattern, layer, hole + 2)
                 : snprintf(out, size, "%s", pattern);
    return n > 0 && (size_t)n < size;
}

bool tern_model_name_to_hf(const tern_arch *arch, const char *gguf_name, char *out, size_t size) {
    int layer;
    for (const tern_tensor_name *t = arch->tensors; t->gguf; t++)
        if (t->hf && match(t->gguf, gguf_name, &layer)) return fill(t->hf, layer, out, size);
    return false;
}

bool tern_model_name_to_gguf(const tern_arch *arch, const char *hf_name, char *out, size_t size) {
    int layer;
    for (const tern_tensor_name *t = arch->tensors; t->gguf; t++)
        if (t->hf && match(t->hf, hf_name, &layer)) return fill(t->gguf, layer, out, size);
    return false;
}

const tern_tensor *tern_model_tensor(const tern_file *file, const tern_arch *arch,
                                     const char *gguf_name) {
    char hf[128];
    if (file->kind == TERN_FILE_GGUF) return tern_file_tensor(file, gguf_name);
    return tern_model_name_to_hf(arch, gguf_name, hf, sizeof hf) ? tern_file_tensor(file, hf)
                                                                 : NULL;
}

// ---- Order of rows -----------------------------------------------------------------------------

// Inside a head of 2h rows, halves order has row (j, i) at j * h + i and neighbours order at
// 2 * i + j, for j = 0, 1.
int64_t tern_rope_source_row(int64_t row, int64_t n_rows, int64_t n_heads, bool to_neighbours) {
    if (n_heads == 0) return row;
    int64_t head = n_rows / n_heads, half = head / 2, in = row % head, base = row - in;
    return base + (to_neighbours ? in % 2 * half + in / 2 : in % half * 2 + in / half);
}

int64_t tern_model_rope_heads(const tern_arch *arch, const tern_config *c, const char *gguf_name) {
    static const char q[] = ".attn_q.weight", k[] = ".attn_k.weight";
    size_t n = strlen(gguf_name), n_end = sizeof q - 1;
    if (!arch->gguf_rope_neighbours || n <= n_end) return 0;
    const char *end = gguf_name + n - n_end;
    return !strcmp(end, q) ? c->n_heads : !strcmp(end, k) ? c->n_kv_heads : 0;
}

// ---- Writing -----------------------------------------------------------------------------------

tern_status tern_config_write_gguf(tern_gguf_writer *w, const char *arch_name,
                                   const tern_config *c) {
    char key[160];
#define KEY(name) (snprintf(key, sizeof key, "%s.%s", arch_name, name), key)
    for (size_t i = 0; i < sizeof int_fields / sizeof *int_fields; i++) {
        int64_t value = *(const int64_t *)((const char *)c + int_fields[i].offset);
        TERN_TRY(tern_gguf_put_int(w, KEY(int_fields[i].gguf), TERN_META_U32, value));
    }
    TERN_TRY(tern_gguf_put_int(w, KEY("attention.value_length"), TERN_META_U32, c->head_dim));
    TERN_TRY(tern_gguf_put_f32(w, KEY("attention.layer_norm_rms_epsilon"), (float)c->rms_eps));
    if (c->final_rms_eps != c->rms_eps)
        TERN_TRY(tern_gguf_put_f32(w, KEY("final_norm_rms_epsilon"), (float)c->final_rms_eps));
    if (c->input_norms)
        TERN_TRY(tern_gguf_put_f32(w, KEY("norm_in_rms_epsilon"), (float)c->input_norm_eps));
    TERN_TRY(tern_gguf_put_int(w, KEY("rope.dimension_count"), TERN_META_U32, c->rope.n_rot));
    TERN_TRY(tern_gguf_put_f32(w, KEY("rope.freq_base"), c->rope.base));
    TERN_TRY(tern_gguf_put_str(w, KEY("hidden_activation"),
                               (tern_str){tern_act_name(c->act), strlen(tern_act_name(c->act))}));
    if (c->rope.scaling == TERN_ROPE_LINEAR || c->rope.scaling == TERN_ROPE_YARN) {
        bool yarn = c->rope.scaling == TERN_ROPE_YARN;
        TERN_TRY(tern_gguf_put_str(w, KEY("rope.scaling.type"),
                                   yarn ? TERN_STR("yarn") : TERN_STR("linear")));
        TERN_TRY(tern_gguf_put_f32(w, KEY("rope.scaling.factor"), c->rope.factor));
        TERN_TRY(tern_gguf_put_int(w, KEY("rope.scaling.original_context_length"), TERN_META_U32,
                                   c->rope.n_context_orig));
    }
#undef KEY
    return TERN_OK;
}

// The share of a head that is rotated, as a number that a reader's product with the head's
// dimensions, cut to an integer, makes n_rot again.
static double rotary_factor(const tern_config *c) {
    double factor = (double)c->rope.n_rot / (double)c->head_dim;
    return (double)c->head_dim * factor < c->rope.n_rot ? nextafter(factor, 2) : factor;
}

void tern_config_write_json(const tern_arch *arch, const tern_config *c, const char *dtype,
                            const char *ternary_mode, tern_strbuf *out) {
    tern_strbuf_printf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
                       arch->hf_class, arch->hf_types[0]);
    for (size_t i = 0; i < sizeof int_fields / sizeof *int_fields; i++)
        tern_strbuf_printf(out, "  \"%s\": %" PRId64 ",\n", int_fields[i].hf,
                           *(const int64_t *)((const char *)c + int_fields[i].offset));
    if (c->bos_id >= 0) tern_strbuf_printf(out, "  \"bos_token_id\": %" PRId64 ",\n", c->bos_id);
    if (c->eos_id >= 0) tern_strbuf_printf(out, "  \"eos_token_id\": %" PRId64 ",\n", c->eos_id);
    tern_strbuf_printf(out, "  \"rms_norm_eps\": %.9g,\n", c->rms_eps);
    if (c->final_rms_eps != c->rms_eps)
        tern_strbuf_printf(out, "  \"final_norm_eps\": %.9g,\n", c->final_rms_eps);
    tern_strbuf_printf(out, "  \"hidden_act\": \"%s\",\n  \"rope_theta\": %.9g,\n",
                       tern_act_name(c->act), (double)c->rope.base);
    if (c->rope.n_rot != c->head_dim)
        tern_strbuf_printf(out, "  \"partial_rotary_factor\": %.17g,\n", rotary_factor(c));
    if (c->rope.scaling == TERN_ROPE_LINEAR)
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": %.9g},\n",
                           (double)c->rope.factor);
    if (c->rope.scaling == TERN_ROPE_YARN)
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": %.9g, "
                           "\"original_max_position_embeddings\": %d},\n",
                           (double)c->rope.factor, (int)c->rope.n_context_orig);
    if (c->rope.scaling == TERN_ROPE_LLAMA3)
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %.9g, "
                           "\"low_freq_factor\": %.9g, \"high_freq_factor\": %.9g, "
                           "\"original_max_position_embeddings\": %d},\n",
                           (double)c->rope.factor, (double)c->rope.low_freq_factor,
                           (double)c->rope.high_freq_factor, (int)c->rope.n_context_orig);
    if (ternary_mode) {
        tern_strbuf_printf(out,
                           "  \"quantization_config\": {\"quant_method\": \"bitnet\", "
                           "\"linear_class\": \"autobitlinear\", \"quantization_mode\": \"%s\"",
                           ternary_mode);
        if (c->input_norms)
            tern_strbuf_printf(out, ", \"use_rms_norm\": true, \"rms_norm_eps\": %.9g",
                               c->input_norm_eps);
        tern_strbuf_puts(out, "},\n");
    }
    tern_strbuf_printf(out,
                       "  \"attention_bias\": false,\n  \"tie_word_embeddings\": %s,\n"
                       "  \"torch_dtype\": \"%s\"\n}\n",
                       c->tied_head ? "true" : "false", dtype);
}
