// LFM2 (Liquid AI, 2025): most layers mix positions by a short convolution between two gates, the
// others by attention with normed heads. LFM2 MoE has experts in all layers but the first ones.
//
//   per layer:  x = x + mixer(norm(x));  x = x + feed_forward(norm(x))
//   short conv: B, C, X = norm(x) Win;  mixer = (C * conv(B * X)) Wout
//
// Kani-TTS is an LFM2 for text to speech: its vocabulary has marks and the codes of a codec after
// the text tokens. In its second version the four tokens of a frame share a RoPE position, layers
// have learned RoPE rates, and a row describes the voice.
//
// LFM2-VL is the vision-language model: the rows of its tower (siglip.c) stand in the text like
// tokens'.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

// Of Kani-TTS; n_text 0: it does not speak.
typedef struct kani {
    tern_speaking speech;
    float rope_rates[TERN_LAYERS_MAX]; // factor of the speed at which a layer's RoPE turns; 0: 1
} kani;
TERN_OWN_CONFIG(kani)

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid short_conv(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t n = c->n_embd;
    tern_vid bcx = tern_block_linear(g, c, x, "blk.%d.shortconv.in_proj.weight", 3 * n, n);
    tern_vid in_gate = tern_g_columns(g, bcx, 3 * n, 0, n);
    tern_vid out_gate = tern_g_columns(g, bcx, 3 * n, n, n);
    tern_vid u = tern_g_mul(g, in_gate, tern_g_columns(g, bcx, 3 * n, 2 * n, n));
    tern_vid taps = tern_g_array(g, "blk.%d.shortconv.conv.weight", n, c->conv_taps);
    tern_vid tail = tern_g_fixed_state(g, "conv_tail.%d", c->conv_taps - 1, n);
    tern_vid y = tern_g_depthwise_conv(g, u, taps, -1, tail, TERN_ACTIVATION_NONE);
    return tern_block_linear(g, c, tern_g_mul(g, out_gate, y), "blk.%d.shortconv.out_proj.weight",
                             n, n);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    tern_rope_attrs rope = c->rope;
    const tern_attention_block block = {.head_norms = true, .rope = &rope};
    if (own(c)->rope_rates[g->layer] > 0) {
        rope.scaling = TERN_ROPE_LINEAR;
        rope.factor = 1 / own(c)->rope_rates[g->layer];
    }
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    tern_vid mixed = c->layers[g->layer] == TERN_LAYER_CONV ? short_conv(g, c, a)
                                                            : tern_block_attention(g, c, a, &block);
    x = tern_g_add(g, x, mixed);
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, tern_block_experts(g, c, f));
}

// For text to speech: RoPE's positions and the row of a voice are inputs.
static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    tern_dim tokens = tern_g_dim(g, "tokens");
    tern_vid places = tern_g_input(g, "places", tokens, 3, TERN_VALUE_I32); // RoPE's
    if (places >= 0) g->values[places].is_optional = true;
    if (own(c)->speech.n_speaker == 0) return x;
    return tern_g_replace(g, x, tern_g_input(g, "rows", tokens, c->n_embd, TERN_VALUE_F32), ids);
}
#define BEGIN(c)                                                                                   \
    (own(c)->speech.frames_are_places ? begin : tern_config_has_vision(c) ? tern_block_given : NULL)

// The last norm has the embedding's name in both formats.
static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(
        g, c,
        &(tern_stack){.layer = layer, .begin = BEGIN(c), .final_norm = "token_embd_norm.weight"},
        err);
}

// ---- Config ------------------------------------------------------------------------------------

// GGUF: layers without heads of keys are convolutions.
static tern_status read_gguf_layers(const tern_config_source *s, tern_config *c, tern_error *err) {
    char key[160];
    double n_heads;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", s->prefix);
    const tern_meta *heads = tern_file_meta(s->file, key);
    if (!heads || heads->type != TERN_META_ARRAY || heads->n != (uint64_t)c->n_layers)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %s is not an array of %" PRId64
                         " numbers, which says what layers are convolutions",
                         key, c->n_layers);
    for (int64_t i = 0; i < c->n_layers; i++) {
        bool known = tern_meta_element(heads, (uint64_t)i, &n_heads);
        c->layers[i] = known && n_heads == 0 ? TERN_LAYER_CONV : TERN_LAYER_FULL;
    }
    return TERN_OK;
}

// Folders: layer_types, or the older list of the layers with attention.
static tern_status read_folder_layers(const tern_config_source *s, tern_config *c,
                                      tern_error *err) {
    bool found;
    const tern_json_doc *doc = &s->file->config;
    TERN_TRY(
        tern_config_layer_types(s, c, 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_CONV, &found, err));
    if (found) return TERN_OK;
    const tern_json *list = tern_config_json(s, "full_attn_idxs");
    if (!tern_json_is(list, TERN_JSON_ARRAY))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config.json: neither layer_types nor full_attn_idxs says what layers are "
                         "convolutions");
    for (int64_t i = 0; i < c->n_layers; i++) c->layers[i] = TERN_LAYER_CONV;
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e)) {
        int64_t i = tern_json_int(e, -1);
        if (i < 0 || i >= c->n_layers)
            return tern_fail(err, TERN_ERR_FORMAT,
                             "config.json: full_attn_idxs has %" PRId64 " of %" PRId64 " layers", i,
                             c->n_layers);
        c->layers[i] = TERN_LAYER_FULL;
    }
    return TERN_OK;
}

// ---- Config of a model that speaks -------------------------------------------------------------

#define MARKS       10    // tokens between the text tokens and the first code
#define TEXT_TOKENS 64400 // of the first version, whose files do not state it
#define CODE_VALUES 4032

// The layers' learned RoPE rates: between two bounds, by the sigmoid of a number.
static tern_status read_rates(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_speaking *v = &own_to_set(c)->speech;
    bool learnt =
        s->file->kind == TERN_FILE_GGUF || tern_config_bool(s, "use_learnable_rope", false);
    v->rate_least = 0.1;
    v->rate_most = 2;
    tern_config_float(s, "speech.rate_least", "alpha_min", &v->rate_least);
    tern_config_float(s, "speech.rate_most", "alpha_max", &v->rate_most);
    if (!(v->rate_least > 0 && v->rate_most >= v->rate_least && v->rate_most < 1e6))
        return tern_fail(err, TERN_ERR_FORMAT, "config: RoPE that turns %g to %g times as fast",
                         v->rate_least, v->rate_most);
    for (int64_t i = 0; learnt && i < c->n_layers; i++) {
        char name[64];
        float w;
        snprintf(name, sizeof name, "blk.%d.rope_rate", (int)i);
        const tern_tensor *t = tern_arch_tensor(s->file, s->arch, name);
        if (!t) continue;
        if (t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] != 1 || !tern_dtype_is_float(t->type) ||
            c->rope.scaling != TERN_ROPE_NONE)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s: not one number for a RoPE that is not scaled", t->name);
        TERN_TRY(tern_tensor_decode(t, &w, err));
        double rate = v->rate_least + (v->rate_most - v->rate_least) / (1 + exp(-(double)w));
        own_to_set(c)->rope_rates[i] = isfinite(rate) ? (float)rate : 0;
    }
    return TERN_OK;
}

static tern_status read_codes(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_speaking *v = &own_to_set(c)->speech;
    int64_t step = 1, places = 0;
    double audio_step = 1;
    v->n_codes = 4;
    v->n_values = CODE_VALUES;
    tern_config_int(s, "speech.codes", "tokens_per_frame", &v->n_codes);
    tern_config_int(s, "speech.values", "codebook_size", &v->n_values);
    tern_config_float(s, NULL, "audio_step", &audio_step);
    if (v->n_text < 0 || v->n_codes < 1 || v->n_codes > 64 || v->n_values < 1 ||
        v->n_values > 1 << 24 || v->n_text + MARKS + v->n_codes * v->n_values > c->n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " tokens of text and %" PRId64 " codes of %" PRId64
                         " values do not fit a vocabulary of %" PRId64,
                         v->n_text, v->n_codes, v->n_values, c->n_vocab);
    if (audio_step != (double)step)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: audio_step %g is not supported (1 is): RoPE's position "
                         "grows by it with each frame",
                         audio_step);
    tern_config_int(s, "speech.frames_are_places", NULL, &places);
    v->frames_are_places = s->file->kind == TERN_FILE_GGUF
                               ? places != 0
                               : tern_config_json(s, "tokens_per_frame") != NULL;
    const tern_tensor *speaker = tern_arch_tensor(s->file, s->arch, "speaker.weight");
    if (speaker && speaker->n_dims == 2 && (int64_t)speaker->ne[1] == c->n_embd &&
        speaker->ne[0] <= 1 << 16)
        v->n_speaker = (int64_t)speaker->ne[0];
    return read_rates(s, c, err);
}

static tern_status read_speech(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_speaking *v = &own_to_set(c)->speech;
    tern_config_int(s, "speech.text_tokens", "text_vocab_size", &v->n_text);
    if (v->n_text == 0 && c->n_vocab >= TEXT_TOKENS + MARKS + 4 * CODE_VALUES &&
        c->n_vocab < TEXT_TOKENS + MARKS + 4 * CODE_VALUES + 64)
        v->n_text = TEXT_TOKENS;
    return v->n_text == 0 ? TERN_OK : read_codes(s, c, err);
}

static tern_status write_speech(tern_gguf_writer *w, const char *name, const tern_config *c) {
    const tern_speaking *v = &own(c)->speech;
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"text_tokens", v->n_text},
                   {"codes", v->n_codes},
                   {"values", v->n_values},
                   {"frames_are_places", v->frames_are_places}};
    char key[160];
    for (size_t i = 0; v->n_text && i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.speech.%s", name, numbers[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, numbers[i].value));
    }
    if (v->n_text == 0) return TERN_OK;
    snprintf(key, sizeof key, "%s.speech.rate_least", name);
    TERN_TRY(tern_gguf_put_f32(w, key, (float)v->rate_least));
    snprintf(key, sizeof key, "%s.speech.rate_most", name);
    return tern_gguf_put_f32(w, key, (float)v->rate_most);
}

static void write_speech_json(const tern_config *c, tern_strbuf *out) {
    const tern_speaking *v = &own(c)->speech;
    if (v->n_text == 0) return;
    tern_strbuf_printf(out, "  \"text_vocab_size\": %" PRId64 ",\n", v->n_text);
    if (!v->frames_are_places) return;
    tern_strbuf_printf(out,
                       "  \"tokens_per_frame\": %" PRId64 ",\n  \"codebook_size\": %" PRId64
                       ",\n  \"audio_step\": 1.0,\n  \"use_learnable_rope\": true,\n"
                       "  \"alpha_min\": %.9g,\n  \"alpha_max\": %.9g,\n",
                       v->n_codes, v->n_values, v->rate_least, v->rate_most);
}

// Tokens after those of text; and one text token.
enum { SPEECH = 1, SPEECH_END, HUMAN, HUMAN_END, ANSWER, ANSWER_END };
enum { TEXT_END = 2 };

static const tern_speaking *speaking_of(const tern_config *c) {
    return own(c)->speech.n_text > 0 ? &own(c)->speech : NULL;
}

static int32_t before_text(const tern_speaking *v, int32_t *out) {
    out[0] = (int32_t)v->n_text + HUMAN;
    return 1;
}

static int32_t after_text(const tern_speaking *v, int32_t *out) {
    const int32_t text = (int32_t)v->n_text;
    const int32_t marks[] = {TEXT_END, text + HUMAN_END, text + ANSWER, text + SPEECH};
    memcpy(out, marks, sizeof marks);
    return sizeof marks / sizeof *marks;
}

static int32_t frame(const tern_speaking *v, int32_t code) {
    return (int32_t)(v->n_text + MARKS + code * v->n_values);
}

// The first version may also end the answer.
static int32_t ends(const tern_speaking *v, int32_t *out) {
    out[0] = (int32_t)v->n_text + SPEECH_END;
    out[1] = (int32_t)v->n_text + ANSWER_END;
    return v->frames_are_places ? 1 : 2;
}

static double seconds(const tern_speaking *v) { return v->frames_are_places ? 60 : 24; }
static float temperature(const tern_speaking *v) { return v->frames_are_places ? 1 : 0.6f; }

static const tern_speaker speaker = {.of = speaking_of,
                                     .before = before_text,
                                     .after = after_text,
                                     .frame = frame,
                                     .ends = ends,
                                     .seconds = seconds,
                                     .temperature = temperature,
                                     .top_p = 0.95f,
                                     .repeat_penalty = 1.1f};

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t taps;
    if (tern_config_bool(s, "conv_bias", false))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: conv_bias: biases around the convolution are not supported");
    TERN_TRY(tern_config_need(s, "shortconv.l_cache", "conv_L_cache", 2, 8, &taps, err));
    c->conv_taps = (int32_t)taps;
    // The width is config.json's number times a factor, rounded; the tensor has the result.
    const tern_tensor *gate = tern_arch_tensor(s->file, s->arch, "blk.0.ffn_gate.weight");
    if (!gguf && gate) c->n_ff = (int64_t)gate->ne[1];
    TERN_TRY(read_speech(s, c, err));
    TERN_TRY(tern_config_vision(s, c, err));
    return gguf ? read_gguf_layers(s, c, err) : read_folder_layers(s, c, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    snprintf(key, sizeof key, "%s.shortconv.l_cache", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->conv_taps));
    return write_speech(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"conv_L_cache\": %d,\n  \"conv_bias\": false,\n"
                       "  \"block_auto_adjust_ff_dim\": false,\n",
                       (int)c->conv_taps);
    write_speech_json(c, out);
}

// GGUF's number for the gating function: 2 is the sigmoid.
static tern_status read_moe(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t gating = 2;
    TERN_TRY(read(s, c, err));
    TERN_TRY(tern_config_experts(s, c, err));
    if (tern_config_int(s, "expert_gating_func", NULL, &gating) && gating != 2)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: expert_gating_func %" PRId64 " is not supported (2 is: sigmoid)",
                         gating);
    TERN_TRY(tern_config_need(s, "leading_dense_block_count", "num_dense_layers", 0, c->n_layers,
                              &c->n_dense_layers, err));
    bool biased = tern_config_bool(s, "use_expert_bias", true);
    char name[64];
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", (int)c->n_dense_layers);
    c->experts_bias = gguf ? tern_file_tensor(s->file, name) != NULL : biased;
    c->experts_sigmoid = true;
    return TERN_OK;
}

static tern_status write_moe_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    TERN_TRY(write_gguf(w, name, c));
    TERN_TRY(tern_config_write_experts(w, name, c));
    snprintf(key, sizeof key, "%s.expert_gating_func", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, 2));
    snprintf(key, sizeof key, "%s.leading_dense_block_count", name);
    return tern_gguf_put_int(w, key, TERN_META_U32, c->n_dense_layers);
}

static void write_moe_json(const tern_config *c, tern_strbuf *out) {
    write_json(c, out);
    tern_config_write_experts_json(c, out);
    tern_strbuf_printf(out, "  \"num_dense_layers\": %" PRId64 ",\n  \"use_expert_bias\": %s,\n",
                       c->n_dense_layers, c->experts_bias ? "true" : "false");
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"lfm2", NULL};
// Without its tower LFM2-VL is an LFM2, and is written to folders as one.
static const char *const hf_types[] = {"lfm2", "lfm2_vl", "lfm2-vl", NULL};
// The first models' config.json has the number that the width is computed from.
static const char *const renamed[][2] = {{"intermediate_size", "block_ff_dim"}, {NULL}};
static const tern_config defaults = {.tied_head = true, .rms_eps = 1e-5, .rope = {.base = 1e6f}};
static const tern_sampling_defaults sampling = {
    .temperature = 0.3f, .top_k = -1, .top_p = -1, .min_p = 0.15f, .repeat_penalty = 1.05f};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU,
                                   .layers = {TERN_LAYER_CONV, TERN_LAYER_FULL}, .conv_taps = 3};

static const char *const moe_gguf_names[] = {"lfm2moe", NULL};
static const char *const moe_hf_types[] = {"lfm2_moe", NULL};
static const tern_config moe_sample = {TERN_SAMPLE,
                                       .rope = TERN_SAMPLE_ROPE(32),
                                       .act = TERN_ACTIVATION_SILU,
                                       .layers = {TERN_LAYER_CONV, TERN_LAYER_FULL},
                                       .conv_taps = 3,
                                       .n_experts = 6,
                                       .n_experts_used = 2,
                                       .n_ff_expert = 44,
                                       .n_dense_layers = 1,
                                       .experts_sigmoid = true,
                                       .experts_normed = true,
                                       .experts_bias = true,
                                       .experts_scale = 1};

#define ROWS                                                                                       \
    TERN_ROWS_TABLE_AND_HEAD,                                                                      \
        TERN_ROW("token_embd_norm.weight", "model.embedding_norm.weight",                          \
                 .gguf_also = "output_norm.weight"),                                               \
        TERN_LAYER_NORM("attn_norm", "operator_norm", TERN_CHANGE_NONE),                           \
        TERN_LAYER_MATRIX("attn_q", "self_attn.q_proj", TERN_ROLE_Q),                              \
        TERN_LAYER_MATRIX("attn_k", "self_attn.k_proj", TERN_ROLE_K),                              \
        TERN_LAYER_MATRIX("attn_v", "self_attn.v_proj", TERN_ROLE_V),                              \
        TERN_LAYER_MATRIX("attn_output", "self_attn.out_proj", TERN_ROLE_O),                       \
        TERN_LAYER_NORM("attn_q_norm", "self_attn.q_layernorm", TERN_CHANGE_NONE),                 \
        TERN_LAYER_NORM("attn_k_norm", "self_attn.k_layernorm", TERN_CHANGE_NONE),                 \
        TERN_LAYER_MATRIX("shortconv.in_proj", "conv.in_proj", TERN_ROLE_MATRIX),                  \
        TERN_LAYER_ROW("shortconv.conv.weight", "conv.conv.weight",                                \
                       .change = TERN_CHANGE_SQUEEZE),                                             \
        TERN_LAYER_MATRIX("shortconv.out_proj", "conv.out_proj", TERN_ROLE_MATRIX),                \
        TERN_LAYER_NORM("ffn_norm", "ffn_norm", TERN_CHANGE_NONE),                                 \
        TERN_LAYER_MATRIX("ffn_gate", "feed_forward.w1", TERN_ROLE_GATE),                          \
        TERN_LAYER_MATRIX("ffn_down", "feed_forward.w2", TERN_ROLE_DOWN),                          \
        TERN_LAYER_MATRIX("ffn_up", "feed_forward.w3", TERN_ROLE_UP)

static const tern_tensor_row tensors[] = {
    ROWS,
    TERN_ROW("blk.%d.rope_rate", "model.learnable_rope_layers.%d.alpha_weight",
             .is_computed = true),
    TERN_ROW("speaker.weight", "model.speaker_emb_projection.weight", .role = TERN_ROLE_FLOATS,
             .is_computed = true),
    TERN_ROWS_SIGLIP(TERN_ORDER_COLORS),
    TERN_NORM("mm.input_norm", "model.multi_modal_projector.layer_norm", TERN_CHANGE_NONE),
    TERN_ROW("mm.input_norm.bias", "model.multi_modal_projector.layer_norm.bias"),
    TERN_MATRIX("mm.1", "model.multi_modal_projector.linear_1", TERN_ROLE_MATRIX),
    TERN_ROW("mm.1.bias", "model.multi_modal_projector.linear_1.bias"),
    TERN_MATRIX("mm.2", "model.multi_modal_projector.linear_2", TERN_ROLE_MATRIX),
    TERN_ROW("mm.2.bias", "model.multi_modal_projector.linear_2.bias"),
    TERN_ROWS_END,
};
static const tern_ignored not_read[] = {TERN_IGNORED_ROPE, TERN_IGNORED_IMAGES, {NULL, NULL, NULL}};
static const tern_tensor_row moe_tensors[] = {
    ROWS, TERN_ROWS_EXPERTS("feed_forward", "w1", "w3", "w2"),
    TERN_LAYER_ROW("exp_probs_b.bias", "feed_forward.expert_bias"), TERN_ROWS_END};

const tern_arch tern_arch_lfm2 = {
    .name = "lfm2",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Lfm2ForCausalLM",
    .hf_eps = "norm_eps",
    .hf_renamed = renamed,
    .tensors = tensors,
    .ignored = not_read,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_VISION(tern_build_lfm2_vision)),
    .media = &(const tern_arch_media){.tower = &tern_tower_lfm2, .speaker = &speaker},
    .hf_sees = &(const tern_seeing_names){"lfm2_vl", "Lfm2VlForConditionalGeneration", "lfm2",
                                          "siglip2_vision_model", "Lfm2VlImageProcessorFast"},
    .mixed_layers = true,
    .kv_heads_by_layer = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};

const tern_arch tern_arch_lfm2moe = {
    .name = "lfm2moe",
    .gguf_names = moe_gguf_names,
    .hf_types = moe_hf_types,
    .hf_class = "Lfm2MoeForCausalLM",
    .hf_eps = "norm_eps",
    .tensors = moe_tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read_moe,
    .write_gguf = TERN_WRITER(write_moe_gguf),
    .write_json = TERN_WRITER(write_moe_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .media = &(const tern_arch_media){.speaker = &speaker},
    .mixed_layers = true,
    .has_experts = true,
    .kv_heads_by_layer = true,
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(moe_sample),
};
