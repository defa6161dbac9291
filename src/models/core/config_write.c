// Writes the config: as GGUF keys, and as config.json.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/config_fields.h"

#define AT(member) offsetof(tern_config, member)
const tern_int_field tern_int_fields[TERN_N_INT_FIELDS] = {
    {AT(n_layers), "block_count", "num_hidden_layers", true, TERN_LAYERS_MAX},
    {AT(n_embd), "embedding_length", "hidden_size", true, 1 << 20},
    {AT(n_ff), "feed_forward_length", "intermediate_size", true, 1 << 22},
    {AT(n_heads), "attention.head_count", "num_attention_heads", true, 65536},
    {AT(n_kv_heads), "attention.head_count_kv", "num_key_value_heads", false, 65536},
    {AT(head_dim), "attention.key_length", "head_dim", false, TERN_HEAD_DIM_MAX},
    {AT(n_context), "context_length", "max_position_embeddings", false, INT32_MAX},
    {AT(n_vocab), "vocab_size", "vocab_size", false, 1 << 24},
};

// ---- GGUF --------------------------------------------------------------------------------------

static bool has_keys(uint8_t kind) { return kind == TERN_LAYER_FULL || kind == TERN_LAYER_WINDOW; }

// One number per layer, 0 for layers without attention.
static tern_status put_kv_heads(tern_gguf_writer *w, const char *key, const tern_config *c) {
    uint32_t heads[TERN_LAYERS_MAX];
    for (int64_t i = 0; i < c->n_layers; i++)
        heads[i] = has_keys(c->layers[i]) ? (uint32_t)c->n_kv_heads : 0;
    return tern_gguf_put_array(w, key, TERN_META_U32, heads, (size_t)c->n_layers);
}

// The last layers may be twice as wide.
static tern_status put_widths(tern_gguf_writer *w, const char *key, const tern_config *c) {
    uint32_t widths[TERN_LAYERS_MAX];
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool wide = c->wide_shared && i >= c->n_layers - c->n_shared;
        widths[i] = (uint32_t)(wide ? 2 * c->n_ff : c->n_ff);
    }
    return tern_gguf_put_array(w, key, TERN_META_U32, widths, (size_t)c->n_layers);
}

static tern_status put_int_fields(tern_gguf_writer *w, const tern_arch *arch, const char *arch_name,
                                  const tern_config *c) {
    char key[160];
    for (size_t i = 0; i < TERN_N_INT_FIELDS; i++) {
        const tern_int_field *f = &tern_int_fields[i];
        int64_t value = *(const int64_t *)((const char *)c + f->offset);
        snprintf(key, sizeof key, "%s.%s", arch_name, f->gguf);
        if (c->full_head_dim && f->offset == AT(head_dim)) value = c->full_head_dim;
        if (arch->ff_by_layer && f->offset == AT(n_ff)) {
            TERN_TRY(put_widths(w, key, c));
            continue;
        }
        if (arch->kv_heads_by_layer && f->offset == AT(n_kv_heads))
            TERN_TRY(put_kv_heads(w, key, c));
        else
            TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, value));
    }
    return TERN_OK;
}

tern_status tern_config_write_gguf(tern_gguf_writer *w, const tern_arch *arch,
                                   const char *arch_name, const tern_config *c) {
    char key[160];
    if (arch->own_config) return arch->write_gguf(w, arch_name, c);
#define KEY(name) (snprintf(key, sizeof key, "%s.%s", arch_name, name), key)
    TERN_TRY(put_int_fields(w, arch, arch_name, c));
    TERN_TRY(tern_gguf_put_int(w, KEY("attention.value_length"), TERN_META_U32,
                               c->full_head_dim ? c->full_head_dim : c->head_dim));
    TERN_TRY(tern_gguf_put_f32(w, KEY(TERN_GGUF_EPS), (float)c->rms_eps));
    if (c->final_rms_eps != c->rms_eps)
        TERN_TRY(tern_gguf_put_f32(w, KEY("final_norm_rms_epsilon"), (float)c->final_rms_eps));
    if (c->input_norms)
        TERN_TRY(tern_gguf_put_f32(w, KEY("norm_in_rms_epsilon"), (float)c->input_norm_eps));
    TERN_TRY(tern_gguf_put_int(w, KEY("rope.dimension_count"), TERN_META_U32, c->rope.n_rot));
    TERN_TRY(tern_gguf_put_f32(w, KEY("rope.freq_base"), c->rope.base));
    TERN_TRY(tern_gguf_put_str(w, KEY(TERN_GGUF_ACT),
                               (tern_str){tern_act_name(c->act), strlen(tern_act_name(c->act))}));
    const tern_rope_attrs *r = &c->rope;
    if (r->scaling == TERN_ROPE_LONG) {
        TERN_TRY(tern_gguf_put_str(w, KEY("rope.scaling.type"), TERN_STR("longrope")));
        TERN_TRY(tern_gguf_put_int(w, KEY("rope.scaling.original_context_length"), TERN_META_U32,
                                   r->n_context_orig));
        TERN_TRY(tern_gguf_put_f32(w, KEY("rope.scaling.attn_factor"), r->attn_factor));
    }
    if (r->scaling == TERN_ROPE_LINEAR || r->scaling == TERN_ROPE_YARN || r->growth != 0)
        TERN_TRY(tern_gguf_put_int(w, KEY("rope.scaling.original_context_length"), TERN_META_U32,
                                   r->n_context_orig));
    if (r->scaling == TERN_ROPE_LINEAR || r->scaling == TERN_ROPE_YARN) {
        bool yarn = r->scaling == TERN_ROPE_YARN;
        TERN_TRY(tern_gguf_put_str(w, KEY("rope.scaling.type"),
                                   yarn ? TERN_STR("yarn") : TERN_STR("linear")));
        TERN_TRY(tern_gguf_put_f32(w, KEY("rope.scaling.factor"), c->rope.factor));
        if (yarn) {
            TERN_TRY(tern_gguf_put_f32(w, KEY("rope.scaling.yarn_beta_fast"), r->beta_fast));
            TERN_TRY(tern_gguf_put_f32(w, KEY("rope.scaling.yarn_beta_slow"), r->beta_slow));
        }
        if (yarn && r->attn_factor > 0)
            TERN_TRY(tern_gguf_put_f32(w, KEY("rope.scaling.attn_factor"), r->attn_factor));
    }
#undef KEY
    return arch->write_gguf ? arch->write_gguf(w, arch_name, c) : TERN_OK;
}

// GGUF's numbers for the kinds of pooling.
static const int gguf_poolings[] = {[TERN_POOLING_NONE] = 0,
                                    [TERN_POOLING_MEAN] = 1,
                                    [TERN_POOLING_FIRST] = 2,
                                    [TERN_POOLING_LAST] = 3};
static const char *const pooling_names[] = {[TERN_POOLING_NONE] = "none",
                                            [TERN_POOLING_MEAN] = "mean",
                                            [TERN_POOLING_FIRST] = "cls",
                                            [TERN_POOLING_LAST] = "lasttoken"};

tern_status tern_config_write_pooling(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    if (c->pooling == TERN_POOLING_NONE) return TERN_OK;
    snprintf(key, sizeof key, "%s.pooling_type", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, gguf_poolings[c->pooling]));
    if (!c->any_length) return TERN_OK;
    snprintf(key, sizeof key, "%s.pooling_normalize", name);
    return tern_gguf_put_int(w, key, TERN_META_U32, 0);
}

tern_status tern_config_write_encoder(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", name);
    TERN_TRY(tern_gguf_put_f32(w, key, (float)c->rms_eps));
    snprintf(key, sizeof key, "%s.attention.causal", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_BOOL, 0));
    if (c->n_segments > 0)
        TERN_TRY(
            tern_gguf_put_int(w, "tokenizer.ggml.token_type_count", TERN_META_U32, c->n_segments));
    return tern_config_write_pooling(w, name, c);
}

tern_status tern_config_write_scales(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    const struct {
        const char *key;
        double value;
    } scales[] = {{"embedding_scale", c->embedding_scale},
                  {"residual_scale", c->residual_scale},
                  {"logit_scale", c->logit_divisor},
                  {"attention.scale", c->query_scalar > 0 ? 1 / sqrt(c->query_scalar) : 0}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (scales[i].value == 0) continue;
        snprintf(key, sizeof key, "%s.%s", name, scales[i].key);
        TERN_TRY(tern_gguf_put_f32(w, key, (float)scales[i].value));
    }
    return TERN_OK;
}

tern_status tern_config_write_window(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    if (c->n_window == 0) return TERN_OK;
    snprintf(key, sizeof key, "%s.attention.sliding_window", name);
    return tern_gguf_put_int(w, key, TERN_META_U32, c->n_window);
}

const char *tern_config_windows_differ(const tern_config *c) {
    return c->n_window || c->window ? "compute attention without its window" : NULL;
}

void tern_config_write_window_json(const tern_config *c, tern_strbuf *out) {
    if (c->n_window)
        tern_strbuf_printf(out, "  \"sliding_window\": %" PRId64 ",\n", c->n_window);
    else
        tern_strbuf_puts(out, "  \"sliding_window\": null,\n");
}

tern_status tern_config_write_windows(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    uint8_t flags[TERN_LAYERS_MAX];
    for (int64_t i = 0; i < c->n_layers; i++) flags[i] = c->layers[i] == TERN_LAYER_WINDOW;
    snprintf(key, sizeof key, "%s.attention.sliding_window", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->window));
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", name);
    return tern_gguf_put_array(w, key, TERN_META_BOOL, flags, (size_t)c->n_layers);
}

// ---- config.json -----------------------------------------------------------------------------

double tern_config_rotary_factor(const tern_rope_attrs *r, int64_t head_dim) {
    double factor = (double)r->n_rot / (double)head_dim;
    return (double)head_dim * factor < r->n_rot ? nextafter(factor, 2) : factor;
}

static void put_long_rope(const tern_rope_attrs *r, const tern_rope_factors *factors,
                          tern_strbuf *out) {
    static const char *const names[2] = {"short_factor", "long_factor"};
    tern_strbuf_printf(out,
                       "  \"original_max_position_embeddings\": %d,\n  \"rope_scaling\": "
                       "{\"rope_type\": \"longrope\", \"original_max_position_embeddings\": %d, "
                       "\"attention_factor\": %.9g",
                       (int)r->n_context_orig, (int)r->n_context_orig, (double)r->attn_factor);
    for (int k = 0; k < 2; k++) {
        tern_strbuf_printf(out, ", \"%s\": [", names[k]);
        for (int i = 0; i < r->n_rot / 2; i++)
            tern_strbuf_printf(out, "%s%.9g", i ? ", " : "", (double)factors->of[k][i]);
        tern_strbuf_puts(out, "]");
    }
    tern_strbuf_puts(out, "},\n");
}

// The end of rope_scaling, with the members that any kind of scaling may have.
static void end_scaling(const tern_rope_attrs *r, bool has_original, tern_strbuf *out) {
    if (r->growth != 0)
        tern_strbuf_printf(out, ", \"llama_4_scaling_beta\": %.9g", (double)r->growth);
    if (r->growth != 0 && !has_original)
        tern_strbuf_printf(out, ", \"original_max_position_embeddings\": %d",
                           (int)r->n_context_orig);
    tern_strbuf_puts(out, "},\n");
}

static void put_rope(const tern_arch *arch, const tern_config *c, const tern_rope_factors *factors,
                     tern_strbuf *out) {
    const tern_rope_attrs *r = &c->rope;
    tern_strbuf_printf(out, "  \"rope_theta\": %.9g,\n", (double)r->base);
    if (arch->turns_part > 0 && !c->full_head_dim)
        tern_strbuf_printf(out, "  \"partial_rotary_factor\": %.17g,\n",
                           tern_config_rotary_factor(r, c->head_dim));
    if (r->axes == TERN_ROPE_MIXED && r->scaling == TERN_ROPE_NONE) {
        int32_t shares[4];
        tern_config_rope_sections(c, shares);
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"default\", "
                           "\"mrope_interleaved\": true, \"mrope_section\": [%d, %d, %d]},\n",
                           (int)shares[0], (int)shares[1], (int)shares[2]);
    }
    if (r->scaling == TERN_ROPE_NONE && r->growth != 0) {
        tern_strbuf_puts(out, "  \"rope_scaling\": {\"rope_type\": \"default\"");
        end_scaling(r, false, out);
    }
    if (r->scaling == TERN_ROPE_LINEAR) {
        tern_strbuf_printf(out, "  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": %.9g",
                           (double)r->factor);
        end_scaling(r, false, out);
    }
    if (r->scaling == TERN_ROPE_PROPORTIONAL && !c->full_head_dim)
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"proportional\", "
                           "\"partial_rotary_factor\": %.9g},\n",
                           (double)r->factor);
    if (r->scaling == TERN_ROPE_LONG) put_long_rope(r, factors, out);
    if (r->scaling == TERN_ROPE_YARN) {
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": %.9g, "
                           "\"original_max_position_embeddings\": %d, \"beta_fast\": %.9g, "
                           "\"beta_slow\": %.9g",
                           (double)r->factor, (int)r->n_context_orig, (double)r->beta_fast,
                           (double)r->beta_slow);
        if (r->attn_factor > 0)
            tern_strbuf_printf(out, ", \"attention_factor\": %.9g", (double)r->attn_factor);
        end_scaling(r, true, out);
    }
    if (r->scaling == TERN_ROPE_LLAMA3) {
        tern_strbuf_printf(out,
                           "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %.9g, "
                           "\"low_freq_factor\": %.9g, \"high_freq_factor\": %.9g, "
                           "\"original_max_position_embeddings\": %d",
                           (double)r->factor, (double)r->low_freq_factor,
                           (double)r->high_freq_factor, (int)r->n_context_orig);
        end_scaling(r, true, out);
    }
}

// A folder with one config lacks the modules that state it in other folders.
void tern_config_write_pooling_json(const tern_config *c, tern_strbuf *out) {
    if (c->pooling == TERN_POOLING_NONE) return;
    tern_strbuf_printf(out, "  \"tern_pooling\": \"%s\",\n", pooling_names[c->pooling]);
    if (c->any_length) tern_strbuf_puts(out, "  \"tern_pooling_any_length\": true,\n");
}

static void put_layer_types(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_puts(out, "  \"layer_types\": [");
    for (int64_t i = 0; i < c->n_layers; i++)
        tern_strbuf_printf(out, "%s\"%s\"", i ? ", " : "",
                           tern_layer_kind_name((tern_layer_kind)c->layers[i]));
    tern_strbuf_puts(out, "],\n");
}

static void put_quantization(const tern_config *c, const char *mode, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"quantization_config\": {\"quant_method\": \"bitnet\", "
                       "\"linear_class\": \"autobitlinear\", \"quantization_mode\": \"%s\"",
                       mode);
    if (c->input_norms)
        tern_strbuf_printf(out, ", \"use_rms_norm\": true, \"rms_norm_eps\": %.9g",
                           c->input_norm_eps);
    tern_strbuf_puts(out, "},\n");
}

tern_status tern_config_check_folder(const tern_arch *arch, const tern_config *c, tern_error *err) {
    tern_rope_scaling scaling = c->rope.scaling;
    bool is_own = arch->own_config || c->full_head_dim;
    if (arch->turns_part == 0 && !is_own && c->rope.n_rot != c->head_dim)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "RoPE turns %d of a head's %" PRId64
                         " dimensions, which a %s's config.json cannot say: it stays GGUF",
                         (int)c->rope.n_rot, c->head_dim, arch->name);
    bool biases = c->output_biases || c->ff_biases, all = c->qkv_biases == c->output_biases;
    if (tern_arch_row(arch, "blk.0.attn_output.bias") && !is_own &&
        (!all || (biases && arch->hf_windowed && c->n_window)))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "biases of %s, which a config.json cannot say: it stays GGUF",
                         all ? "layers with a window" : "a part of attention's products");
    if (!arch->rope_is_long || scaling == TERN_ROPE_NONE || scaling == TERN_ROPE_LONG)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "RoPE is scaled in a way that a %s's config.json cannot say: it stays GGUF",
                     arch->name);
}

// Factors of pairs are tensors, which not every family's GGUF has.
tern_status tern_config_check_gguf(const tern_arch *arch, const tern_config *c, tern_error *err) {
    const char *factors = NULL, *name = "factors of pairs";
    switch (c->rope.scaling) {
    case TERN_ROPE_LLAMA3: factors = "rope_freqs.weight", name = "llama3"; break;
    case TERN_ROPE_PROPORTIONAL: factors = "rope_freqs.weight", name = "proportional"; break;
    case TERN_ROPE_FACTORS: factors = "rope_freqs.weight"; break;
    case TERN_ROPE_LONG: factors = "rope_factors_long.weight", name = "longrope"; break;
    default: return TERN_OK;
    }
    if (c->full_head_dim || tern_arch_row(arch, factors)) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "a %s whose RoPE is scaled (%s) cannot be written as GGUF: there is no place "
                     "for the factors",
                     arch->name, name);
}

void tern_config_write_json(const tern_arch *arch, const tern_config *c, const char *dtype,
                            const char *ternary_mode, const tern_rope_factors *factors,
                            tern_strbuf *out) {
    tern_model_folder names = {arch->hf_types[0], arch->hf_class};
    if (arch->hf_windowed && c->n_window) names = *arch->hf_windowed;
    tern_strbuf_printf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
                       names.class_name, names.type);
    if (arch->own_config) {
        arch->write_json(c, out);
        tern_strbuf_printf(out, "  \"torch_dtype\": \"%s\"\n}\n", dtype);
        return;
    }
    for (size_t i = 0; i < TERN_N_INT_FIELDS; i++)
        tern_strbuf_printf(out, "  \"%s\": %" PRId64 ",\n", tern_int_fields[i].hf,
                           *(const int64_t *)((const char *)c + tern_int_fields[i].offset));
    if (c->bos_id >= 0) tern_strbuf_printf(out, "  \"bos_token_id\": %" PRId64 ",\n", c->bos_id);
    if (c->eos_id >= 0) tern_strbuf_printf(out, "  \"eos_token_id\": %" PRId64 ",\n", c->eos_id);
    tern_strbuf_printf(out, "  \"%s\": %.9g,\n", arch->hf_eps ? arch->hf_eps : TERN_HF_EPS,
                       c->rms_eps);
    if (c->final_rms_eps != c->rms_eps)
        tern_strbuf_printf(out, "  \"final_norm_eps\": %.9g,\n", c->final_rms_eps);
    tern_strbuf_printf(out, "  \"%s\": \"%s\",\n", arch->hf_act ? arch->hf_act : TERN_HF_ACT,
                       tern_act_name(c->act));
    put_rope(arch, c, factors, out);
    if (arch->mixed_layers) put_layer_types(c, out);
    if (arch->write_json) arch->write_json(c, out);
    if (ternary_mode) put_quantization(c, ternary_mode, out);
    tern_strbuf_printf(out,
                       "  \"attention_bias\": %s,\n  \"tie_word_embeddings\": %s,\n"
                       "  \"torch_dtype\": \"%s\"\n}\n",
                       c->output_biases ? "true" : "false", c->tied_head ? "true" : "false", dtype);
}

void tern_config_order_as_gguf(const tern_arch *arch, tern_config *c) {
    c->rope.halves = c->window_rope.halves = !arch->gguf_rope_neighbours;
    c->delta.tiled = true;
    c->vision.colors_last = false;
}

bool tern_config_fold(const tern_arch *arch, tern_config *c) {
    if (!arch->folded) return true;
    if (c->tied_head &&
        arch->folded(c, "token_embd.weight", 0) != arch->folded(c, "output.weight", 0))
        return false;
    c->multipliers = (tern_multipliers){1, 1, {1, 1, 1, 1, 1}, 1, 1, 1, 1, 1};
    c->embedding_scale = c->logit_divisor = 0;
    return true;
}

int tern_config_n_rope_freqs(const tern_config *c) {
    bool numbers = c->rope.scaling == TERN_ROPE_LLAMA3 || c->rope.scaling == TERN_ROPE_PROPORTIONAL;
    return numbers ? c->rope.n_rot / 2 : 0;
}

void tern_config_rope_freqs(const tern_config *c, float *factors) {
    const tern_rope_attrs *a = &c->rope;
    if (a->scaling == TERN_ROPE_LLAMA3) {
        tern_rope_llama3_factors(a, factors);
        return;
    }
    for (int i = 0; i < tern_config_n_rope_freqs(c); i++) // as in llama.cpp
        factors[i] = i < (int)((float)a->n_rot * a->factor) / 2 ? 1 : 1e30f;
}
