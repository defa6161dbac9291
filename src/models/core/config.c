// Reads a file's config into tern_config: the fields of all families here, the rest in the family's
// own file with the readers of family.h.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/config_fields.h"

// ---- Access to both worlds ---------------------------------------------------------------------

#define KEY_BYTES 160

static void found_odd(const tern_config_source *s, const char *key, const char *expected) {
    if (!s->odd || s->odd->key[0]) return;
    snprintf(s->odd->key, sizeof s->odd->key, "%s", key);
    s->odd->expected = expected;
}

static void is_asked(const tern_config_source *s, const char *key) {
    if (s->watch) s->watch->on_key(s->watch->user, key);
}

static bool is_gguf(const tern_config_source *s) { return s->file->kind == TERN_FILE_GGUF; }

static const char *gguf_key(const tern_config_source *s, const char *name, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "%s.%s", s->prefix, name);
    is_asked(s, key);
    return key;
}

const tern_json *tern_config_json(const tern_config_source *s, const char *path) {
    char nested[KEY_BYTES];
    if (!path) return NULL;
    is_asked(s, path);
    snprintf(nested, sizeof nested, "text_config.%s", path);
    const tern_json *j = tern_json_path(&s->file->config, nested);
    if (!j || j->type == TERN_JSON_NULL) j = tern_json_path(&s->file->config, path);
    const char *const(*names)[2] = s->arch ? s->arch->hf_renamed : NULL;
    for (; !j && names && (*names)[0]; names++)
        if (strcmp(path, (*names)[0]) == 0) j = tern_json_path(&s->file->config, (*names)[1]);
    return j;
}

// Some programs write numbers in quotes.
static bool quoted_number(tern_str text, double *out) {
    tern_json_doc doc;
    if (!text.ptr || text.len == 0 || text.len > 64) return false;
    if (tern_json_parse(&doc, text.ptr, text.len, NULL) != TERN_OK) return false;
    const tern_json *root = tern_json_root(&doc);
    bool is_number = tern_json_is(root, TERN_JSON_NUMBER);
    if (is_number) *out = root->number;
    tern_json_free(&doc);
    return is_number;
}

static bool json_number(const tern_config_source *s, const char *hf, double *out) {
    const tern_json *j = tern_config_json(s, hf);
    if (!j || j->type == TERN_JSON_NULL) return false;
    if (j->type == TERN_JSON_NUMBER)
        *out = j->number;
    else if (!quoted_number(tern_json_str(j), out)) {
        found_odd(s, hf, "a number");
        return false;
    }
    return true;
}

// A key that is present, but with the wrong type.
static bool meta_is_odd(const tern_config_source *s, const char *key, const char *expected) {
    if (tern_file_meta(s->file, key)) found_odd(s, key, expected);
    return false;
}

bool tern_config_float(const tern_config_source *s, const char *gguf, const char *hf, double *out) {
    char key[KEY_BYTES];
    if (!is_gguf(s)) return json_number(s, hf, out);
    if (!gguf) return false;
    return tern_file_meta_float(s->file, gguf_key(s, gguf, key), out) ||
           meta_is_odd(s, key, "a number");
}

// Some files give one value per layer, with 0 for layers to which it does not apply; the others
// must be equal.
static bool read_equal_elements(const tern_file *file, const char *key, bool first_counts,
                                int64_t *value) {
    const tern_meta *meta = tern_file_meta(file, key);
    if (!meta || meta->type != TERN_META_ARRAY) return false;
    double found = 0, d;
    if (first_counts && meta->n > 0 && tern_meta_element(meta, 0, &d) && fabs(d) < 0x1p53) {
        *value = (int64_t)d;
        return true;
    }
    for (uint64_t i = 0; i < meta->n; i++) {
        if (!tern_meta_element(meta, i, &d) || (found != 0 && d != 0 && d != found)) return false;
        if (d != 0) found = d;
    }
    if (found == 0 || !(fabs(found) < 0x1p53)) return false;
    *value = (int64_t)found;
    return true;
}

bool tern_config_int(const tern_config_source *s, const char *gguf, const char *hf, int64_t *out) {
    char key[KEY_BYTES];
    if (is_gguf(s)) {
        if (!gguf) return false;
        gguf_key(s, gguf, key);
        bool flag, first_counts = s->arch->ff_by_layer && strcmp(gguf, "feed_forward_length") == 0;
        if (tern_file_meta_bool(s->file, key, &flag)) {
            *out = flag;
            return true;
        }
        return tern_file_meta_int(s->file, key, out) ||
               read_equal_elements(s->file, key, first_counts, out) ||
               meta_is_odd(s, key, "a whole number, the same for all layers");
    }
    double d;
    if (!json_number(s, hf, &d)) return false;
    if (d != floor(d) || !(fabs(d) <= 0x1p53)) {
        found_odd(s, hf, "a whole number");
        return false;
    }
    *out = (int64_t)d;
    return true;
}

bool tern_config_bool(const tern_config_source *s, const char *hf, bool otherwise) {
    const tern_json *j = is_gguf(s) ? NULL : tern_config_json(s, hf);
    if (!j || j->type == TERN_JSON_NULL) return otherwise;
    if (j->type == TERN_JSON_NUMBER) return j->number != 0;
    if (j->type != TERN_JSON_BOOL) found_odd(s, hf, "true or false");
    return tern_json_bool(j, otherwise);
}

tern_str tern_config_str(const tern_config_source *s, const char *gguf, const char *hf) {
    char key[KEY_BYTES];
    tern_str text = {NULL, 0};
    if (!is_gguf(s)) {
        const tern_json *j = tern_config_json(s, hf);
        if (j && j->type != TERN_JSON_NULL && j->type != TERN_JSON_STRING)
            found_odd(s, hf, "a text");
        return tern_json_str(j);
    }
    if (gguf && !tern_file_meta_str(s->file, gguf_key(s, gguf, key), &text))
        meta_is_odd(s, key, "a text");
    return text;
}

static tern_status check_range(const char *key, int64_t value, int64_t least, int64_t most,
                               tern_error *err) {
    if (value >= least && value <= most) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64, key, value,
                     least, most);
}

tern_status tern_config_need(const tern_config_source *s, const char *gguf, const char *hf,
                             int64_t least, int64_t most, int64_t *out, tern_error *err) {
    const char *key = is_gguf(s) ? gguf : hf;
    if (tern_config_int(s, gguf, hf, out)) return check_range(key, *out, least, most, err);
    return tern_fail(err, TERN_ERR_FORMAT, "config: %s%s%s is missing", is_gguf(s) ? s->prefix : "",
                     is_gguf(s) ? "." : "", key);
}

// ---- Sizes -------------------------------------------------------------------------------------

static tern_status check_epsilon(const char *name, double value, tern_error *err) {
    if (value >= 0 && value < 1) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config: %s is %g, expected 0 to 1", name, value);
}

// Tokens use different experts; a single one is the ordinary feed-forward.
static tern_status refuse_experts(const tern_config_source *s, tern_error *err) {
    static const char *const names[] = {"num_experts", "num_local_experts"};
    int64_t n = 0;
    if (s->arch->has_experts) return TERN_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_config_int(s, i ? NULL : "expert_count", names[i], &n) && n > 1)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "config: %" PRId64 " experts: mixtures of experts are not supported",
                             n);
    return TERN_OK;
}

// Member i of the table.
static int64_t *field(tern_config *c, size_t i) {
    return (int64_t *)((char *)c + tern_int_fields[i].offset);
}

static tern_status read_sizes(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool folder = !is_gguf(s);
    tern_config d = folder && s->arch->defaults ? *s->arch->defaults : (tern_config){0};
    for (size_t i = 0; i < TERN_N_INT_FIELDS; i++) *field(c, i) = *field(&d, i);
    if (folder && s->arch->sizes) TERN_TRY(s->arch->sizes(s, c, err));
    for (size_t i = 0; i < TERN_N_INT_FIELDS; i++) {
        const tern_int_field *f = &tern_int_fields[i];
        int64_t value = *field(c, i);
        const char *key = is_gguf(s) ? f->gguf : f->hf;
        if (f->is_required && value == 0)
            TERN_TRY(tern_config_need(s, f->gguf, f->hf, 1, f->most, &value, err));
        else if (tern_config_int(s, f->gguf, f->hf, &value))
            TERN_TRY(check_range(key, value, 1, f->most, err));
        *field(c, i) = value;
    }
    c->rms_eps = s->arch->defaults && !is_gguf(s) ? s->arch->defaults->rms_eps : 1e-5;
    tern_config_float(s, TERN_GGUF_EPS, s->arch->hf_eps ? s->arch->hf_eps : TERN_HF_EPS,
                      &c->rms_eps);
    TERN_TRY(check_epsilon(TERN_GGUF_EPS, c->rms_eps, err));
    return refuse_experts(s, err);
}

// A window that the longest text fits into is dropped (Phi-4-mini states 262,144).
tern_status tern_config_window(const tern_config_source *s, int64_t otherwise, tern_config *c,
                               tern_error *err) {
    const tern_json *json = is_gguf(s) ? NULL : tern_config_json(s, "sliding_window");
    int64_t window = is_gguf(s) || json ? 0 : otherwise; // null: no window
    tern_config_int(s, "attention.sliding_window", "sliding_window", &window);
    TERN_TRY(check_range("sliding_window", window, 0, INT32_MAX, err));
    c->n_window = window < c->n_context ? window : 0;
    return TERN_OK;
}

bool tern_config_is_text_of(const tern_config_source *s, const char *type) {
    return !is_gguf(s) && tern_str_is(tern_config_str(s, NULL, "model_type"), type);
}

static tern_status settle_sizes(tern_config *c, tern_error *err) {
    if (c->n_kv_heads == 0) c->n_kv_heads = c->n_heads;
    if (c->head_dim == 0) c->head_dim = c->n_embd / c->n_heads;
    if (c->n_context == 0) c->n_context = 2048;
    if (c->head_dim >= 2 && c->head_dim % 2 == 0 && c->head_dim <= TERN_HEAD_DIM_MAX &&
        c->n_heads % c->n_kv_heads == 0)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: %" PRId64 " heads, %" PRId64 " key heads and %" PRId64
                     " dimensions a head do not fit together",
                     c->n_heads, c->n_kv_heads, c->head_dim);
}

// ---- Layers ------------------------------------------------------------------------------------

static const char *const layer_names[TERN_LAYER_KINDS] = {
    [TERN_LAYER_FULL] = "full_attention", [TERN_LAYER_WINDOW] = "sliding_attention",
    [TERN_LAYER_CONV] = "conv",           [TERN_LAYER_DELTA] = "linear_attention",
    [TERN_LAYER_MAMBA] = "mamba",
};
const char *tern_layer_kind_name(tern_layer_kind kind) { return layer_names[kind]; }

// An allowed kind, by its name; TERN_LAYER_KINDS: none has it. transformers renamed some.
static int kind_of(tern_str name, unsigned allowed) {
    static const struct {
        const char *name;
        int kind;
    } also[] = {{"attention", TERN_LAYER_FULL}, {"linear_attention", TERN_LAYER_MAMBA}};
    for (int kind = 0; kind < TERN_LAYER_KINDS; kind++)
        if (allowed >> kind & 1 && tern_str_is(name, layer_names[kind])) return kind;
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (allowed >> also[i].kind & 1 && tern_str_is(name, also[i].name)) return also[i].kind;
    return TERN_LAYER_KINDS;
}

tern_status tern_config_layer_types(const tern_config_source *s, tern_config *c, unsigned allowed,
                                    bool *found, tern_error *err) {
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = is_gguf(s) ? NULL : tern_config_json(s, "layer_types");
    int64_t n = 0;
    *found = tern_json_is(list, TERN_JSON_ARRAY);
    if (!*found) return TERN_OK;
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e)) {
        tern_str name = tern_json_str(e);
        int kind = kind_of(name, allowed);
        if (kind == TERN_LAYER_KINDS)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "config.json: layer_types has \"%.*s\", which a %s has not",
                             (int)(name.len < 40 ? name.len : 40), name.ptr ? name.ptr : "",
                             s->arch->name);
        if (n < c->n_layers) c->layers[n] = (uint8_t)kind;
        n++;
    }
    if (n == c->n_layers) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config.json: layer_types has %" PRId64 " entries for %" PRId64 " layers", n,
                     c->n_layers);
}

bool tern_config_flags(const tern_config_source *s, const char *gguf, int64_t n, uint8_t *flags) {
    char key[KEY_BYTES];
    double flag;
    const tern_meta *list = is_gguf(s) ? tern_file_meta(s->file, gguf_key(s, gguf, key)) : NULL;
    if (!list || list->type != TERN_META_ARRAY || list->n < (uint64_t)n) return false;
    for (int64_t i = 0; i < n; i++) {
        if (!tern_meta_element(list, (uint64_t)i, &flag)) return false;
        flags[i] = flag != 0;
    }
    return true;
}

bool tern_config_layer_flags(const tern_config_source *s, tern_config *c, const char *gguf,
                             tern_layer_kind kind) {
    if (!tern_config_flags(s, gguf, c->n_layers, c->layers)) return false;
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layers[i] = (uint8_t)(c->layers[i] ? kind : TERN_LAYER_FULL);
    return true;
}

tern_status tern_config_window_layers(const tern_config_source *s, tern_config *c, const char *key,
                                      int64_t every, bool first, tern_error *err) {
    static const char gguf[] = "attention.sliding_window_pattern"; // flags, or the period
    bool found;
    unsigned allowed = 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_WINDOW;
    TERN_TRY(tern_config_layer_types(s, c, allowed, &found, err));
    if (found || tern_config_layer_flags(s, c, gguf, TERN_LAYER_WINDOW)) return TERN_OK;
    tern_config_int(s, gguf, key, &every);
    if (every < 1)
        return tern_fail(err, TERN_ERR_FORMAT, "config: %s is %" PRId64 ", expected 1 or more", key,
                         every);
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layers[i] = (first ? i : i + 1) % every ? TERN_LAYER_WINDOW : TERN_LAYER_FULL;
    return TERN_OK;
}

// ---- Fields that need thought ------------------------------------------------------------------

bool tern_act_from_name(tern_str name, tern_act_kind *out) {
    // transformers' other names for the same functions.
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

static tern_status read_act(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_arch *arch = s->arch;
    tern_str act = tern_config_str(s, TERN_GGUF_ACT, arch->hf_act ? arch->hf_act : TERN_HF_ACT);
    c->act = arch->act;
    if (act.ptr) {
        if (tern_act_from_name(act, &c->act)) return TERN_OK;
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "activation \"%.*s\" is not supported",
                         (int)(act.len < 64 ? act.len : 64), act.ptr);
    }
    if (is_gguf(s) && arch->gguf_act) c->act = arch->gguf_act(s->prefix, c, &c->guess);
    return TERN_OK;
}

// Refuses a method that formats/hf/hf_quant.c unpacks but found nothing for, or an unknown one.
static tern_status refuse_method(tern_str method, tern_error *err) {
    static const char *const known[] = {"gptq", "awq", "compressed-tensors", "fp8", "mlx"};
    int n = (int)(method.len < 40 ? method.len : 40);
    const char *name = method.ptr ? method.ptr : "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (tern_str_is(method, known[i]))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "config.json: quant_method is \"%.*s\", but no tensor is stored in a "
                             "way of %.*s that is read here",
                             n, name, n, name);
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config.json: quant_method \"%.*s\" is not supported (bitnet, gptq, awq, "
                     "compressed-tensors, fp8 and MLX's are)",
                     n, name);
}

// BitNet in transformers: its quantizer replaces another model's linears by BitLinears. "online":
// the weights are masters, rounded at each use; else they are packed codes.
static tern_status read_quantization(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_json *q = tern_config_json(s, "quantization_config");
    if (s->file->cannot_unpack)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s", s->file->cannot_unpack);
    if (!tern_json_is(q, TERN_JSON_OBJECT) || s->file->packing) return TERN_OK;
    tern_str method = tern_json_str(tern_config_json(s, "quantization_config.quant_method"));
    if (!tern_str_is(method, "bitnet")) return refuse_method(method, err);
    tern_str mode = tern_json_str(tern_config_json(s, "quantization_config.quantization_mode"));
    bool online = tern_str_is(mode, "online");
    if (mode.ptr && !online && !tern_str_is(mode, "offline"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: quantization_mode \"%.*s\" is neither online nor offline",
                         (int)(mode.len < 40 ? mode.len : 40), mode.ptr);
    if (online) c->bitlinear = true;
    const tern_json *norms = tern_config_json(s, "quantization_config.use_rms_norm");
    c->input_norms = tern_json_bool(norms, false);
    c->input_norm_eps =
        tern_json_number(tern_config_json(s, "quantization_config.rms_norm_eps"), 1e-6);
    const tern_json *kept = tern_config_json(s, "quantization_config.modules_to_not_convert");
    for (const tern_json *k = tern_json_first(&s->file->config, kept); k;
         k = tern_json_next(&s->file->config, kept, k)) {
        tern_str name = tern_json_str(k);
        if (tern_str_is(name, "lm_head") || tern_str_is(name, "model.embed_tokens")) continue;
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: modules_to_not_convert has \"%.*s\"; only lm_head may keep "
                         "its weights",
                         (int)(name.len < 64 ? name.len : 64), name.ptr ? name.ptr : "");
    }
    return TERN_OK;
}

// BitNet's embedding models are not marked in config.json, only by their tensors' names.
static bool has_own_input_norms(const tern_config_source *s) {
    static const char end[] = "q_proj.norm.weight";
    const tern_tensor *t = tern_arch_tensor(s->file, s->arch, "blk.0.attn_q_norm_in.weight");
    size_t n = t ? strlen(t->name) : 0;
    return n >= sizeof end - 1 && strcmp(t->name + n - (sizeof end - 1), end) == 0;
}

static tern_status read_linears(const tern_config_source *s, tern_config *c, tern_error *err) {
    c->input_norm_eps = c->rms_eps;
    if (!is_gguf(s) && !tern_config_json(s, "quantization_config") && has_own_input_norms(s)) {
        c->bitlinear = c->input_norms = true;
        return TERN_OK;
    }
    if (!is_gguf(s)) return read_quantization(s, c, err);
    c->input_norms = tern_file_tensor(s->file, "blk.0.attn_q_norm_in.weight") != NULL;
    tern_config_float(s, "norm_in_rms_epsilon", NULL, &c->input_norm_eps);
    return TERN_OK;
}

// transformers uses the embedding table if config.json ties it, even if the folder has a head.
// Without a head it must be tied. The top level takes precedence over the decoder's config.
static bool has_tied_head(const tern_config_source *s) {
    if (!tern_arch_tensor(s->file, s->arch, "output.weight")) return true;
    if (is_gguf(s)) return false;
    const tern_json *whole = tern_json_path(&s->file->config, "tie_word_embeddings");
    if (tern_json_is(whole, TERN_JSON_BOOL)) return tern_json_bool(whole, false);
    bool usual = s->arch->defaults && s->arch->defaults->tied_head;
    return tern_config_bool(s, "tie_word_embeddings", usual);
}

void tern_config_gguf_biases(const tern_config_source *s, tern_config *c) {
    c->qkv_biases = tern_file_tensor(s->file, "blk.0.attn_q.bias") != NULL;
    c->output_biases = tern_file_tensor(s->file, "blk.0.attn_output.bias") != NULL;
    c->ff_biases = tern_file_tensor(s->file, "blk.0.ffn_down.bias") != NULL;
}

// ---- Factors -----------------------------------------------------------------------------------

tern_status tern_config_check_scale(const char *name, double value, tern_error *err) {
    if (value > 0 && isfinite(value)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config: %s is %g, expected a positive number", name,
                     value);
}

tern_status tern_config_gguf_scales(const tern_config_source *s, tern_config *c, tern_error *err) {
    double scale;
    const struct {
        const char *key;
        double *value;
    } scales[] = {{"embedding_scale", &c->embedding_scale},
                  {"residual_scale", &c->residual_scale},
                  {"logit_scale", &c->logit_divisor}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (tern_config_float(s, scales[i].key, NULL, &scale) && scale != 0) {
            TERN_TRY(tern_config_check_scale(scales[i].key, scale, err));
            *scales[i].value = scale;
        }
    return TERN_OK;
}

// ---- Encoders with LayerNorms ------------------------------------------------------------------

tern_status tern_config_layer_norm_eps(const tern_config_source *s, const char *hf, tern_config *c,
                                       tern_error *err) {
    c->rms_eps = s->arch->defaults ? s->arch->defaults->rms_eps : 1e-5;
    tern_config_float(s, "attention.layer_norm_epsilon", hf, &c->rms_eps);
    return check_epsilon(hf, c->rms_eps, err);
}

// ---- Embeddings --------------------------------------------------------------------------------

static const struct {
    const char *flag, *name; // in a pooling module's config: the older form and the newer
    int gguf;
    tern_pooling pooling;
} poolings[] = {
    {"pooling_mode_mean_tokens", "mean", 1, TERN_POOLING_MEAN},
    {"pooling_mode_cls_token", "cls", 2, TERN_POOLING_FIRST},
    {"pooling_mode_lasttoken", "lasttoken", 3, TERN_POOLING_LAST},
};
#define N_POOLINGS (sizeof poolings / sizeof *poolings)

static tern_status gguf_pooling(int64_t type, tern_config *c, tern_error *err) {
    for (size_t i = 0; i < N_POOLINGS; i++)
        if (poolings[i].gguf == type) c->pooling = poolings[i].pooling;
    if (type == 0 || c->pooling != TERN_POOLING_NONE) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config: pooling_type %" PRId64
                     " is not supported (1, 2 and 3 are: mean, first and last)",
                     type);
}

static tern_status read_pooling(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_json_doc *doc = &s->file->pooling;
    int64_t type = 0;
    if (is_gguf(s)) {
        int64_t normalize = 1;
        tern_config_int(s, "pooling_type", NULL, &type);
        tern_config_int(s, "pooling_normalize", NULL, &normalize); // our own
        c->any_length = normalize == 0;
        return gguf_pooling(type, c, err);
    }
    tern_str name = tern_json_str(tern_json_path(doc, "pooling_mode"));
    if (!name.ptr) name = tern_config_str(s, NULL, "tern_pooling");
    c->any_length = s->file->any_length || tern_config_bool(s, "tern_pooling_any_length", false);
    for (size_t i = 0; i < N_POOLINGS; i++)
        if (tern_str_is(name, poolings[i].name) ||
            tern_json_bool(tern_json_path(doc, poolings[i].flag), false))
            c->pooling = poolings[i].pooling;
    if (c->pooling != TERN_POOLING_NONE || (!name.ptr && !tern_json_root(doc))) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this way of pooling is not supported (mean, cls and lasttoken are)");
}

// The last row is the end token's: <|endoftext|> in Qwen3-Embedding. Not all files say that it is
// appended: GGUFs of older converters do not.
tern_status tern_config_pooling(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(read_pooling(s, c, err));
    c->appends_eos = c->pooling == TERN_POOLING_LAST;
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

static int64_t first_id(const tern_config_source *s, const char *key) {
    const tern_json *j = tern_config_json(s, key);
    if (tern_json_is(j, TERN_JSON_ARRAY)) j = tern_json_first(&s->file->config, j);
    return tern_json_int(j, -1);
}

static void read_ids(const tern_config_source *s, tern_config *c) {
    c->bos_id = c->eos_id = -1;
    if (is_gguf(s)) {
        tern_file_meta_int(s->file, "tokenizer.ggml.bos_token_id", &c->bos_id);
        tern_file_meta_int(s->file, "tokenizer.ggml.eos_token_id", &c->eos_id);
    } else {
        c->bos_id = first_id(s, "bos_token_id");
        c->eos_id = first_id(s, "eos_token_id");
    }
}

static tern_status read_table(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_tensor *table = tern_arch_tensor(s->file, s->arch, "token_embd.weight");
    if (!table || table->n_dims < 2 || table->ne[2] != 1 || table->ne[3] != 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor token_embd.weight is missing or not a matrix");
    c->n_vocab = (int64_t)table->ne[1]; // the real size
    c->tied_head = has_tied_head(s);
    return TERN_OK;
}

tern_status tern_config_read(tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_arch *arch = s->arch;
    if (arch->own_config) return arch->read(s, c, err);
    TERN_TRY(read_sizes(s, c, err));
    TERN_TRY(settle_sizes(c, err));
    c->final_rms_eps = c->rms_eps;
    tern_config_float(s, "final_norm_rms_epsilon", "final_norm_eps", &c->final_rms_eps);
    TERN_TRY(check_epsilon("final_norm_eps", c->final_rms_eps, err));
    TERN_TRY(read_table(s, c, err));
    read_ids(s, c);
    TERN_TRY(read_linears(s, c, err));
    TERN_TRY(check_epsilon("the norms in front of projections", c->input_norm_eps, err));
    TERN_TRY(read_act(s, c, err));
    TERN_TRY(tern_config_rope(s, c, "full_attention", &c->rope, err));
    return arch->read ? arch->read(s, c, err) : TERN_OK;
}
