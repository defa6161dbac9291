// Gemma 4 E2B and E4B, the text part.
//
//   x = sqrt(n_embd) table[ids]
//   p = (norm_by_layer(x Wp / sqrt(n_embd)) + sqrt(n_per_layer) per_layer_table[ids]) / sqrt(2)
//   per layer i:  x = x + norm(attention(norm(x)));  x = x + norm(feed_forward(norm(x)))
//                 x = (x + norm((gelu(x Wgate) * p_i) Wproj)) * scalar
//
// Queries, keys and values are normed by head, values without a weight. Full-attention layers have
// wider heads, and RoPE turns a part of each. The last layers make no keys and values: they read
// those of the last layer of their kind that makes some. Scores are capped.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

static bool is_shared(const tern_config *c, int64_t layer) {
    return layer >= c->n_layers - c->n_shared;
}

// The layer whose keys and values layer i reads.
static int32_t donor_of(const tern_config *c, int32_t layer) {
    int32_t i = layer;
    if (!is_shared(c, layer)) return layer;
    while (i > 0 && (is_shared(c, i) || c->layers[i] != c->layers[layer])) i--;
    return i;
}

static void store(tern_graph *g, const tern_config *c, tern_vid x, int64_t dim,
                  const tern_rope_attrs *rope, tern_vid keys, tern_vid values) {
    int64_t n = c->n_kv_heads * dim;
    tern_vid k = tern_block_linear(g, c, x, "blk.%d.attn_k.weight", n, c->n_embd);
    tern_vid v = tern_block_linear(g, c, x, "blk.%d.attn_v.weight", n, c->n_embd);
    k = tern_block_norm(g, k, "blk.%d.attn_k_norm.weight", dim, c->rms_eps);
    k = tern_g_rope(g, k, -1, (int32_t)c->n_kv_heads, (int32_t)dim, rope);
    v = tern_g_group_norm(g, v, dim, (float)c->rms_eps);
    tern_g_kv_store(g, k, v, keys, values, (int32_t)c->n_kv_heads, (int32_t)dim);
}

static tern_vid attention(tern_graph *g, const tern_config *c, tern_vid x) {
    int32_t layer = g->layer;
    bool windowed = c->layers[layer] == TERN_LAYER_WINDOW;
    const tern_rope_attrs *rope = windowed ? &c->window_rope : &c->rope;
    int64_t dim = windowed ? c->head_dim : c->full_head_dim;
    int32_t window = windowed ? c->window : 0;
    tern_vid q = tern_block_linear(g, c, x, "blk.%d.attn_q.weight", c->n_heads * dim, c->n_embd);
    q = tern_block_norm(g, q, "blk.%d.attn_q_norm.weight", dim, c->rms_eps);
    q = tern_g_rope(g, q, -1, (int32_t)c->n_heads, (int32_t)dim, rope);
    g->layer = donor_of(c, layer); // states are named by the layer that fills them
    tern_vid keys = tern_g_positional_state(g, "cache_k.%d", c->n_kv_heads * dim, window);
    tern_vid values = tern_g_positional_state(g, "cache_v.%d", c->n_kv_heads * dim, window);
    g->layer = layer;
    if (!is_shared(c, layer)) store(g, c, x, dim, rope, keys, values);
    const tern_attention_attrs attrs = {.n_heads = (int32_t)c->n_heads,
                                        .n_kv_heads = (int32_t)c->n_kv_heads,
                                        .head_dim = (int32_t)dim,
                                        .scale = 1,
                                        .window = window};
    tern_vid o = tern_g_attention(g, q, keys, values, &attrs);
    return tern_block_linear(g, c, o, "blk.%d.attn_output.weight", c->n_embd, c->n_heads * dim);
}

// Inputs of each token for each layer, from the token itself and from the rows before the layers.
static tern_vid per_layer(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t n = c->n_per_layer, all = n * c->n_layers;
    int32_t layer = g->layer;
    tern_vid made = tern_graph_find(g, "per_layer");
    if (made >= 0) return made;
    g->layer = -1;
    tern_vid table = tern_g_host_table(g, "per_layer_token_embd.weight", c->n_vocab, all);
    tern_vid token = tern_g_embed(g, tern_graph_find(g, "ids"), table);
    token = tern_g_scale(g, token, sqrtf((float)n));
    tern_vid w = tern_g_matrix(g, "per_layer_model_proj.weight", all, c->n_embd);
    tern_vid rows = tern_g_scale(g, tern_g_linear(g, x, w), 1 / sqrtf((float)c->n_embd));
    rows = tern_block_norm(g, rows, "per_layer_proj_norm.weight", n, c->rms_eps);
    made = tern_g_scale(g, tern_g_add(g, rows, token), sqrtf(0.5f));
    tern_g_call(g, made, "per_layer");
    g->layer = layer;
    return made;
}

static tern_vid add_per_layer(tern_graph *g, const tern_config *c, tern_vid x, tern_vid all) {
    int64_t n = c->n_per_layer;
    tern_vid p = tern_g_columns(g, all, n * c->n_layers, n * g->layer, n);
    tern_vid y = tern_block_linear(g, c, x, "blk.%d.inp_gate.weight", n, c->n_embd);
    y = tern_g_mul(g, tern_g_act(g, y, c->act), p);
    y = tern_block_linear(g, c, y, "blk.%d.proj.weight", c->n_embd, n);
    y = tern_block_norm(g, y, "blk.%d.post_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, y);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    tern_vid all = c->n_per_layer ? per_layer(g, c, x) : -1;
    tern_config own = *c;
    if (c->wide_shared && is_shared(c, g->layer)) own.n_ff *= 2;
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    a = attention(g, c, a);
    a = tern_block_norm(g, a, "blk.%d.post_attention_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, a);
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    f = tern_block_feed_forward(g, &own, f);
    f = tern_block_norm(g, f, "blk.%d.post_ffw_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, f);
    if (c->n_per_layer) x = add_per_layer(g, c, x, all);
    return tern_g_scale_by(g, x, tern_g_vector(g, "blk.%d.layer_output_scale.weight", 1));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c,
                            &(tern_stack){.layer = layer,
                                          .final_norm = "output_norm.weight",
                                          .embedding_scale = sqrtf((float)c->n_embd)},
                            err);
}

// ---- Config ------------------------------------------------------------------------------------

static tern_status refuse(const tern_config_source *s, tern_error *err) {
    static const char *const names[] = {"attention_k_eq_v", "enable_moe_block"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_config_bool(s, names[i], false))
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "config.json: %s is not supported",
                             names[i]);
    // "vision": for images, which are not supported here.
    const tern_json *both = tern_config_json(s, "use_bidirectional_attention");
    if (both && both->type != TERN_JSON_NULL && !tern_str_is(tern_json_str(both), "vision") &&
        tern_json_bool(both, true))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: use_bidirectional_attention is not supported");
    // transformers ignores it for this family, and for others uses it instead of rope_parameters.
    const tern_json *scaling = tern_config_json(s, "rope_scaling");
    if (tern_json_is(scaling, TERN_JSON_OBJECT) && scaling->n > 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: a gemma4 with rope_scaling is not supported");
    return TERN_OK;
}

// For folders without RoPE parameters.
static void default_ropes(const tern_config_source *s, tern_config *c) {
    if (s->file->kind == TERN_FILE_GGUF || tern_config_json(s, "rope_parameters")) return;
    c->rope.scaling = TERN_ROPE_PROPORTIONAL;
    c->rope.factor = 0.25f;
}

static tern_status refuse_ropes(const tern_config *c, tern_error *err) {
    bool full = c->rope.scaling == TERN_ROPE_NONE || c->rope.scaling == TERN_ROPE_PROPORTIONAL;
    if (full && c->window_rope.scaling == TERN_ROPE_NONE) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config: a gemma4 whose RoPE is scaled is not supported");
}

static tern_status read_layers(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool found;
    unsigned allowed = 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_WINDOW;
    TERN_TRY(tern_config_layer_types(s, c, allowed, &found, err));
    if (found ||
        tern_config_layer_flags(s, c, "attention.sliding_window_pattern", TERN_LAYER_WINDOW))
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config: nothing says which layers have a window");
}

// transformers writes the head size of full layers as a number, or layer by layer if they differ.
static int64_t json_full_head_dim(const tern_config_source *s, const tern_config *c) {
    int64_t dim = c->head_dim;
    char member[64];
    if (tern_config_int(s, NULL, "global_head_dim", &dim)) return dim;
    for (int64_t i = 0; i < c->n_layers; i++) {
        snprintf(member, sizeof member, "per_layer_config.%d.head_dim", (int)i);
        if (c->layers[i] == TERN_LAYER_FULL && tern_config_int(s, NULL, member, &dim)) return dim;
    }
    return dim;
}

// GGUF has the greater size, and a second key for layers with a window.
static tern_status read_heads(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_config full = *c;
    if (s->file->kind == TERN_FILE_GGUF) {
        full.full_head_dim = c->head_dim;
        tern_config_int(s, "attention.key_length_swa", NULL, &c->head_dim);
    } else {
        full.full_head_dim = json_full_head_dim(s, c);
    }
    c->full_head_dim = full.head_dim = full.full_head_dim;
    if (c->head_dim < 2 || c->full_head_dim < 2 || c->head_dim % 2 || c->full_head_dim % 2 ||
        c->head_dim > 65536 || c->full_head_dim > 65536)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: heads of %" PRId64 " and %" PRId64 " dimensions make no sense",
                         c->head_dim, c->full_head_dim);
    c->rope = (tern_rope_attrs){0};
    TERN_TRY(tern_config_rope(s, &full, "full_attention", &c->rope, err));
    return tern_config_rope(s, c, "sliding_attention", &c->window_rope, err);
}

// GGUF's RoPE factors are 1 for the pairs that turn and very large for the others.
static tern_status read_factors(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_tensor *t = tern_file_tensor(s->file, "rope_freqs.weight");
    float factors[4096];
    int n = 0, pairs = c->rope.n_rot / 2;
    if (s->file->kind != TERN_FILE_GGUF || !t) return TERN_OK;
    if (t->ne[0] != (uint64_t)pairs || pairs > 4096 || !tern_dtype_is_float(t->type))
        return tern_fail(err, TERN_ERR_FORMAT, "tensor %s has not %d numbers", t->name, pairs);
    TERN_TRY(tern_tensor_decode(t, factors, err));
    while (n < pairs && factors[n] == 1) n++;
    for (int i = n; i < pairs; i++)
        if (!(factors[i] > 1e20f))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s has factors that are neither 1 nor infinite", t->name);
    c->rope.scaling = TERN_ROPE_PROPORTIONAL;
    c->rope.factor = (float)n / (float)pairs;
    return TERN_OK;
}

// Placeholders whose rows come from a vision or audio part; without it, there are none.
static void read_placeholders(const tern_config_source *s, tern_config *c) {
    static const struct {
        const char *hf, *text;
        int64_t usual;
    } tokens[] = {{"image_token_id", "<|image|>", 258880},
                  {"audio_token_id", "<|audio|>", 258881},
                  {"video_token_id", "<|video|>", 258884}};
    const tern_meta *list = tern_file_meta(s->file, "tokenizer.ggml.tokens");
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    bool is_whole = !gguf && tern_config_json(s, "text_config");
    int n = 0;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        int64_t id = is_whole ? tokens[i].usual : 0;
        tern_config_int(s, NULL, tokens[i].hf, &id);
        for (uint64_t t = 0; gguf && list && list->strings && t < list->n; t++)
            if (tern_str_is(list->strings[t], tokens[i].text)) id = (int64_t)t;
        if (id > 0 && id < c->n_vocab) c->placeholders[n++] = (int32_t)id;
    }
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t window;
    char key[64] = "blk.0.ffn_gate.weight";
    TERN_TRY(refuse(s, err));
    read_placeholders(s, c);
    TERN_TRY(read_layers(s, c, err));
    TERN_TRY(tern_config_need(s, "attention.sliding_window", "sliding_window", 1, INT32_MAX / 2,
                              &window, err));
    c->window = (int32_t)window;
    TERN_TRY(read_heads(s, c, err));
    default_ropes(s, c);
    TERN_TRY(read_factors(s, c, err));
    TERN_TRY(refuse_ropes(c, err));
    if (!tern_config_int(s, "attention.shared_kv_layers", "num_kv_shared_layers", &c->n_shared))
        c->n_shared = 0;
    if (!tern_config_int(s, "embedding_length_per_layer_input", "hidden_size_per_layer_input",
                         &c->n_per_layer))
        c->n_per_layer = 0;
    if (c->n_shared < 0 || c->n_shared >= c->n_layers || c->n_per_layer < 0 ||
        c->n_per_layer > 65536)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " shared layers and %" PRId64
                         " numbers a layer make no sense",
                         c->n_shared, c->n_per_layer);
    for (int64_t i = c->n_layers - c->n_shared; i < c->n_layers; i++) {
        int32_t donor = donor_of(c, (int32_t)i);
        if (is_shared(c, donor) || c->layers[donor] != c->layers[i])
            return tern_fail(err, TERN_ERR_FORMAT,
                             "config: no layer has keys and values for layer %" PRId64, i);
    }
    tern_config_float(s, "final_logit_softcapping", "final_logit_softcapping", &c->score_cap);
    if (!(c->score_cap >= 0) || !isfinite(c->score_cap))
        return tern_fail(err, TERN_ERR_FORMAT, "config: a cap of %g makes no sense", c->score_cap);
    snprintf(key, sizeof key, "blk.%d.ffn_gate.weight", (int)c->n_layers - 1);
    const tern_tensor *last = tern_arch_tensor(s->file, s->arch, key);
    bool wide = tern_config_bool(s, "use_double_wide_mlp", false);
    c->wide_shared = c->n_shared > 0 && (gguf ? last && (int64_t)last->ne[1] == 2 * c->n_ff : wide);
    return TERN_OK;
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"attention.key_length_swa", c->head_dim},
                {"attention.value_length_swa", c->head_dim},
                {"rope.dimension_count_swa", c->window_rope.n_rot},
                {"attention.shared_kv_layers", c->n_shared},
                {"embedding_length_per_layer_input", c->n_per_layer}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", name, keys[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, keys[i].value));
    }
    snprintf(key, sizeof key, "%s.rope.freq_base_swa", name);
    TERN_TRY(tern_gguf_put_f32(w, key, c->window_rope.base));
    if (c->score_cap != 0) {
        snprintf(key, sizeof key, "%s.final_logit_softcapping", name);
        TERN_TRY(tern_gguf_put_f32(w, key, (float)c->score_cap));
    }
    return tern_config_write_windows(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    bool is_share = c->rope.scaling == TERN_ROPE_PROPORTIONAL;
    tern_strbuf_printf(
        out,
        "  \"sliding_window\": %d,\n  \"global_head_dim\": %" PRId64
        ",\n  \"num_kv_shared_layers\": %" PRId64 ",\n  \"hidden_size_per_layer_input\": %" PRId64
        ",\n  \"vocab_size_per_layer_input\": %" PRId64 ",\n  \"use_double_wide_mlp\": %s,\n",
        (int)c->window, c->full_head_dim, c->n_shared, c->n_per_layer, c->n_vocab,
        c->wide_shared ? "true" : "false");
    if (c->score_cap != 0)
        tern_strbuf_printf(out, "  \"final_logit_softcapping\": %.17g,\n", c->score_cap);
    tern_strbuf_printf(
        out,
        "  \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"%s\", "
        "\"rope_theta\": %.9g, \"partial_rotary_factor\": %.17g}, "
        "\"sliding_attention\": {\"rope_type\": \"default\", "
        "\"rope_theta\": %.9g, \"partial_rotary_factor\": %.17g}},\n",
        is_share ? "proportional" : "default", (double)c->rope.base,
        is_share ? (double)c->rope.factor : tern_config_rotary_factor(&c->rope, c->full_head_dim),
        (double)c->window_rope.base, tern_config_rotary_factor(&c->window_rope, c->head_dim));
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *ignores(const tern_config *c, const char *gguf_name) {
    const char *part;
    if (strcmp(gguf_name, "rope_freqs.weight") == 0)
        return "RoPE's frequencies are computed from the config";
    int layer = tern_tensor_block(gguf_name, &part);
    if (layer < 0 || !is_shared(c, layer)) return NULL;
    if (strncmp(part, "attn_k", 6) == 0 || strncmp(part, "attn_v", 6) == 0)
        return "of a layer that reads the keys and values of another";
    return NULL;
}

static const char *const gguf_names[] = {"gemma4", NULL};
static const char *const hf_types[] = {"gemma4_text", "gemma4", NULL};
static const tern_config defaults = {.tied_head = true, .rms_eps = 1e-6, .rope = {.base = 1e6f}};
static const tern_sampling_defaults sampling = {
    .temperature = 1, .top_k = 64, .top_p = 0.95f, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {
    .n_vocab = 260,
    .n_layers = 4,
    .n_embd = 96,
    .n_ff = 160,
    .n_heads = 3,
    .n_kv_heads = 1,
    .head_dim = 32,
    .n_context = 64,
    .rms_eps = 1e-6,
    .final_rms_eps = 1e-6,
    .tied_head = true,
    .bos_id = -1,
    .eos_id = -1,
    .rope = TERN_SAMPLE_ROPE(64),
    .window_rope = TERN_SAMPLE_ROPE(32),
    .window = 9,
    .act = TERN_ACTIVATION_GELU_TANH,
    .layers = {TERN_LAYER_WINDOW, TERN_LAYER_FULL, TERN_LAYER_WINDOW, TERN_LAYER_FULL},
    .full_head_dim = 64,
    .n_shared = 2,
    .n_per_layer = 12,
    .wide_shared = true,
    .score_cap = 30};

#define NORM(gguf_, hf_) TERN_LAYER_NORM(gguf_, hf_, TERN_CHANGE_NONE)
static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_MATRIX("per_layer_token_embd", "model.embed_tokens_per_layer", TERN_ROLE_TABLE),
    TERN_MATRIX("per_layer_model_proj", "model.per_layer_model_projection", TERN_ROLE_FLOATS),
    TERN_NORM("per_layer_proj_norm", "model.per_layer_projection_norm", TERN_CHANGE_NONE),
    NORM("attn_norm", "input_layernorm"),
    TERN_ROWS_ATTENTION,
    NORM("attn_q_norm", "self_attn.q_norm"),
    NORM("attn_k_norm", "self_attn.k_norm"),
    NORM("post_attention_norm", "post_attention_layernorm"),
    NORM("ffn_norm", "pre_feedforward_layernorm"),
    TERN_ROWS_FEED_FORWARD,
    NORM("post_ffw_norm", "post_feedforward_layernorm"),
    TERN_LAYER_MATRIX("inp_gate", "per_layer_input_gate", TERN_ROLE_MATRIX),
    TERN_LAYER_MATRIX("proj", "per_layer_projection", TERN_ROLE_MATRIX),
    NORM("post_norm", "post_per_layer_input_norm"),
    TERN_LAYER_ROW("layer_output_scale.weight", "layer_scalar"),
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {
    TERN_IGNORED_ROPE,
    TERN_IGNORED_IMAGES,
    {"model.audio_tower.", NULL, "of the part that hears: only text is computed"},
    {"model.embed_vision.", NULL, "brings images to the text: only text is computed"},
    {"model.embed_audio.", NULL, "brings sound to the text: only text is computed"},
    {NULL, NULL, NULL},
};

const tern_arch tern_arch_gemma4 = {
    .name = "gemma4",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Gemma4ForCausalLM",
    .hf_act = "hidden_activation",
    .act = TERN_ACTIVATION_GELU_TANH,
    .tensors = tensors,
    .ignored = ignored,
    .ignores = ignores,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .turns_part = 1,
    .mixed_layers = true,
    .windows_by_layer = true,
    .ff_by_layer = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
