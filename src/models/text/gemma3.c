// Gemma 3 (arXiv:2503.19786) and EmbeddingGemma (arXiv:2509.20354).
//
//   x = sqrt(n_embd) table[ids], and for images the tower's rows (siglip.c)
//   per layer:  x = x + norm(attention(norm(x)));  x = x + norm(feed_forward(norm(x)))
//
// Five of six layers have a window and their own RoPE. Rows of an image attend to its end, whatever
// the window. EmbeddingGemma is the same without a mask and without a head: the mean of its rows,
// through two products, is the embedding.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    bool windowed = c->layers[g->layer] == TERN_LAYER_WINDOW;
    const tern_attention_block block = {.head_norms = true,
                                        .bidirectional = c->bidirectional,
                                        .images = tern_config_both_ways(c),
                                        .window = windowed ? c->window : 0,
                                        .rope = windowed ? &c->window_rope : &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    a = tern_block_attention(g, c, a, &block);
    a = tern_block_norm(g, a, "blk.%d.post_attention_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, a);
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    f = tern_block_feed_forward(g, c, f);
    f = tern_block_norm(g, f, "blk.%d.post_ffw_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, f);
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(
        g, c,
        &(tern_stack){.layer = layer,
                      .begin = tern_config_has_vision(c) ? tern_block_given : NULL,
                      .final_norm = "output_norm.weight",
                      .embedding_scale = sqrtf((float)c->n_embd)},
        err);
}

// Only the end of an encoder: pooled rows of any texts become their embeddings.
static tern_status build_dense(tern_graph *g, const tern_config *c, tern_error *err) {
    tern_dim sequences = tern_g_dim(g, "sequences");
    tern_block_embedding(g, c, tern_g_input(g, "pooled", sequences, c->n_embd, TERN_VALUE_F32));
    return tern_graph_check(g, err);
}

static bool has_dense(const tern_config *c) { return c->n_dense > 0; }

// ---- Config ------------------------------------------------------------------------------------

#define WINDOW_MAX (INT32_MAX / 2)
#define PATTERN    6 // by default, each 6th layer has full attention

static tern_status read_layers(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t pattern = PATTERN;
    tern_config_int(s, NULL, "_sliding_window_pattern", &pattern);
    return tern_config_window_layers(s, c, "sliding_window_pattern", pattern, false, err);
}

// The scale of scores is 1 / sqrt(query_pre_attn_scalar). GGUF has no key for it that all programs
// write: the 27B (62 layers) uses n_embd / n_heads, all others head_dim.
static tern_status read_scale(const tern_config_source *s, tern_config *c, tern_error *err) {
    double scale;
    bool large = c->n_layers == 62;
    c->query_scalar = large ? (double)c->n_embd / (double)c->n_heads : (double)c->head_dim;
    if (s->file->kind == TERN_FILE_HF) {
        c->query_scalar = 256;
        tern_config_float(s, NULL, "query_pre_attn_scalar", &c->query_scalar);
    } else if (tern_config_float(s, "attention.scale", NULL, &scale)) {
        c->query_scalar = 1 / (scale * scale);
    }
    if (c->query_scalar > 0 && isfinite(c->query_scalar)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config: query_pre_attn_scalar is %g", c->query_scalar);
}

static tern_status refuse_caps(const tern_config_source *s, tern_error *err) {
    static const char *const names[][2] = {{"attn_logit_softcapping", "attn_logit_softcapping"},
                                           {"final_logit_softcapping", "final_logit_softcapping"}};
    double cap;
    for (size_t i = 0; i < 2; i++)
        if (tern_config_float(s, names[i][0], names[i][1], &cap) && cap != 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "config: %s is not supported", names[i][0]);
    return TERN_OK;
}

static tern_status read_window(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t window;
    TERN_TRY(tern_config_need(s, "attention.sliding_window", "sliding_window", 1, WINDOW_MAX,
                              &window, err));
    c->window = (int32_t)window;
    TERN_TRY(tern_config_rope(s, c, "sliding_attention", &c->window_rope, err));
    if (c->window_rope.scaling != TERN_ROPE_NONE)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: the RoPE of layers with a window is scaled: no file of Gemma 3 "
                         "can say so");
    if (c->window_rope.n_rot == c->rope.n_rot) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config: RoPE turns %d numbers of a head in layers with a window, and %d in "
                     "the others: no file of Gemma 3 can say so",
                     (int)c->window_rope.n_rot, (int)c->rope.n_rot);
}

// BitNet's embedding model in GGUF has no windows, and one RoPE base.
static bool lacks_windows(const tern_config_source *s, const tern_config *c) {
    int64_t window;
    return s->file->kind == TERN_FILE_GGUF && c->input_norms &&
           !tern_config_int(s, "attention.sliding_window", NULL, &window);
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(refuse_caps(s, err));
    if (!lacks_windows(s, c)) {
        TERN_TRY(read_layers(s, c, err));
        TERN_TRY(read_window(s, c, err));
    }
    return read_scale(s, c, err);
}

static tern_status read_decoder(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(read(s, c, err));
    TERN_TRY(tern_config_vision(s, c, err));
    return tern_config_pooling(s, c, err);
}

static tern_status put_window(tern_gguf_writer *w, const char *name, const tern_config *c,
                              int64_t window) {
    char key[160];
    uint8_t flags[TERN_LAYERS_MAX];
    if (window > 0) {
        snprintf(key, sizeof key, "%s.attention.sliding_window", name);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, window));
        snprintf(key, sizeof key, "%s.rope.freq_base_swa", name);
        TERN_TRY(tern_gguf_put_f32(w, key, c->window_rope.base));
    }
    if (c->query_scalar != (double)c->head_dim) {
        snprintf(key, sizeof key, "%s.attention.scale", name);
        TERN_TRY(tern_gguf_put_f32(w, key, (float)(1 / sqrt(c->query_scalar))));
    }
    bool usual = true;
    for (int64_t i = 0; i < c->n_layers; i++) {
        flags[i] = c->layers[i] == TERN_LAYER_WINDOW;
        usual &= flags[i] == ((i + 1) % PATTERN != 0);
    }
    if (usual || window == 0) return TERN_OK;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", name);
    return tern_gguf_put_array(w, key, TERN_META_BOOL, flags, (size_t)c->n_layers);
}

static double usual_scalar(const tern_config *c) {
    return c->n_layers == 62 ? (double)c->n_embd / (double)c->n_heads : (double)c->head_dim;
}

static const char *differs(const tern_config *c) {
    double usual = usual_scalar(c);
    if (fabs(c->query_scalar - usual) < 1e-5 * usual) return NULL;
    return "scale the scores of attention by the size of its heads, not by query_pre_attn_scalar";
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    TERN_TRY(tern_config_write_pooling(w, name, c));
    return put_window(w, name, c, c->window);
}

// If no layer has a window (layer_types says so), its numbers are still written, for programs that
// need some.
static void put_window_json(const tern_config *c, int64_t window, tern_strbuf *out) {
    const tern_rope_attrs *rope = window > 0 ? &c->window_rope : &c->rope;
    tern_strbuf_printf(out,
                       "  \"sliding_window\": %" PRId64 ",\n  \"rope_local_base_freq\": %.9g,\n"
                       "  \"query_pre_attn_scalar\": %.17g,\n",
                       window > 0 ? window : c->n_context, (double)rope->base, c->query_scalar);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_config_write_pooling_json(c, out);
    put_window_json(c, c->window, out);
}

// ---- EmbeddingGemma's --------------------------------------------------------------------------

static bool is_encoder(const tern_file *file) {
    const char *const paths[] = {"use_bidirectional_attention",
                                 "text_config.use_bidirectional_attention"};
    if (file->kind == TERN_FILE_GGUF) return true; // it has its own name there
    for (int i = 0; i < 2; i++)
        if (tern_json_bool(tern_json_path(&file->config, paths[i]), false)) return true;
    return false;
}

// Files state the width of the window; a row sees half of it to each side, itself included. Some
// versions of transformers write the bound that they compute from it instead: 257 for 512, which is
// odd.
static tern_status read_encoder(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(read(s, c, err));
    if (c->window % 2 == 0) c->window = c->window / 2 + 1;
    c->bidirectional = true;
    TERN_TRY(tern_config_pooling(s, c, err));
    if (c->pooling == TERN_POOLING_NONE) c->pooling = TERN_POOLING_MEAN;
    const tern_tensor *dense = tern_arch_tensor(s->file, s->arch, "dense_2.weight");
    c->n_dense = dense ? (int64_t)dense->ne[1] : 0;
    return TERN_OK;
}

// The width that the bound was computed from; the bound itself if no width gives it.
static int64_t width_of(const tern_config *c) {
    int64_t width = 2 * ((int64_t)c->window - 1);
    return width >= 1 && width <= WINDOW_MAX ? width : c->window;
}

static tern_status write_encoder_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"dense_2_feat_in", c->n_embd},
                {"dense_2_feat_out", c->n_dense},
                {"dense_3_feat_in", c->n_dense},
                {"dense_3_feat_out", c->n_embd}};
    TERN_TRY(put_window(w, name, c, width_of(c)));
    TERN_TRY(tern_config_write_pooling(w, name, c));
    for (size_t i = 0; c->n_dense && i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", name, keys[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, keys[i].value));
    }
    return TERN_OK;
}

static void write_encoder_json(const tern_config *c, tern_strbuf *out) {
    put_window_json(c, width_of(c), out);
    tern_strbuf_puts(out, "  \"use_bidirectional_attention\": true,\n");
    tern_config_write_pooling_json(c, out);
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"gemma3", NULL};
static const char *const encoder_gguf_names[] = {"gemma-embedding", NULL};
static const char *const hf_types[] = {"gemma3_text", "gemma3", NULL};
// Values missing in the config of the published 4B.
static const tern_config defaults = {.tied_head = true,
                                     .n_heads = 8,
                                     .n_kv_heads = 4,
                                     .head_dim = 256,
                                     .n_context = 131072,
                                     .rms_eps = 1e-6,
                                     .rope = {.base = 1e6f}};
static const tern_sampling_defaults sampling = {
    .temperature = 1, .top_k = 64, .top_p = 0.95f, .min_p = -1, .repeat_penalty = -1};

#define SAMPLE                                                                                     \
    TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32), .window_rope = TERN_SAMPLE_ROPE(32), .window = 9,   \
                 .act = TERN_ACTIVATION_GELU_TANH, .layers = {TERN_LAYER_WINDOW, TERN_LAYER_FULL}
static const tern_config sample = {SAMPLE};
static const tern_config encoder_sample = {SAMPLE, .bidirectional = true,
                                           .pooling = TERN_POOLING_MEAN, .n_dense = 72};

#define NORM(gguf_, hf_) TERN_LAYER_NORM(gguf_, hf_, TERN_CHANGE_PLUS_ONE)
static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_PLUS_ONE),
    NORM("attn_norm", "input_layernorm"),
    TERN_ROWS_ATTENTION,
    NORM("attn_q_norm", "self_attn.q_norm"),
    NORM("attn_k_norm", "self_attn.k_norm"),
    NORM("post_attention_norm", "post_attention_layernorm"),
    NORM("ffn_norm", "pre_feedforward_layernorm"),
    TERN_ROWS_FEED_FORWARD,
    NORM("post_ffw_norm", "post_feedforward_layernorm"),
    TERN_ROWS_INPUT_NORMS,
    TERN_MATRIX("dense_2", "2_Dense.linear", TERN_ROLE_MATRIX),
    TERN_MATRIX("dense_3", "3_Dense.linear", TERN_ROLE_MATRIX),
    TERN_ROWS_SIGLIP(TERN_ORDER_SAME),
    TERN_NORM("mm.soft_emb_norm", "model.multi_modal_projector.mm_soft_emb_norm",
              TERN_CHANGE_PLUS_ONE),
    TERN_ROW("mm.input_projection.weight", "model.multi_modal_projector.mm_input_projection_weight",
             .role = TERN_ROLE_FLOATS, .change = TERN_CHANGE_TURNED),
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {TERN_IGNORED_ROPE, TERN_IGNORED_IMAGES, {NULL, NULL, NULL}};

#define BOTH                                                                                       \
    .hf_types = hf_types, .hf_act = "hidden_activation", .act = TERN_ACTIVATION_GELU_TANH,         \
    .tensors = tensors, .ignored = ignored, .defaults = &defaults, .mixed_layers = true,           \
    .windows_by_layer = true, .differs = differs

const tern_arch tern_arch_gemma3 = {
    BOTH,
    .name = "gemma3",
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_ENCODER(build),
                          TERN_VISION(tern_build_gemma3_vision)),
    .media = &(const tern_arch_media){.tower = &tern_tower_gemma3},
    .hf_sees = &(const tern_seeing_names){"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text",
                                          "siglip_vision_model", "Gemma3ImageProcessor"},
    .gguf_names = gguf_names,
    .hf_class = "Gemma3ForCausalLM",
    .read = read_decoder,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};

const tern_arch tern_arch_embeddinggemma = {
    BOTH,
    .name = "embeddinggemma",
    .graphs = TERN_GRAPHS(TERN_ENCODER(build),
                          {.name = "dense", .is_there = has_dense, .build = build_dense}),
    .gguf_names = encoder_gguf_names,
    .hf_class = "Gemma3TextModel",
    .hf_prefix = "",
    .is_mine = is_encoder,
    .read = read_encoder,
    .write_gguf = TERN_WRITER(write_encoder_gguf),
    .write_json = TERN_WRITER(write_encoder_json),
    .sample = TERN_SAMPLE_CONFIG(encoder_sample),
};
