// Moonshine (arXiv:2410.15608): speech to text. An encoder turns a recording into rows, 41.6 per
// second, and a decoder writes the text, token by token.
//
//   stem:     x = norm(tanh(conv1 pcm)); x = gelu(conv2 x + b); x = gelu(conv3 x + b)
//   encoder:  x = x + attention(norm(x)) Wo;  x = x + gelu(norm(x) Wup + b) Wdown + b
//   decoder:  x = x + attention(norm(x)) Wo;  x = x + attention(norm(x), encoded) Wo
//             v, g = norm(x) Wup + b;  x = x + (silu(g) v) Wdown + b
//
// The stem's norm takes its means over the whole recording, which must be complete before the first
// row. Convolutions are products of windows: 128 numbers every 64 (the file has 127 taps; the last
// one is zero), then 7 rows every 3, then 3 every 2. The decoder attends to separate states: keys
// and values of the encoder's rows, made with the first token.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/media/moonshine.h"

#define STEP      64 // samples from a window of the first convolution to the next, a row of pcm
#define TAPS      127
#define TAPS_2    7
#define STEP_2    3
#define TAPS_3    3
#define STEP_3    2
#define N_WINDOWS 4096 // of the first convolution at most: 16 seconds
#define N_SOURCE  688  // rows of the encoder at most, a multiple of 16

// ---- Graphs ------------------------------------------------------------------------------------

static tern_attention_attrs heads_of(const tern_config *c) {
    return (tern_attention_attrs){.n_heads = (int32_t)c->n_heads,
                                  .n_kv_heads = (int32_t)c->n_kv_heads,
                                  .head_dim = (int32_t)c->head_dim,
                                  .scale = 1.0f / sqrtf((float)c->head_dim)};
}

static tern_vid linear(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                       int64_t n_out, int64_t n_in) {
    return tern_block_linear(g, c, x, name, n_out, n_in);
}

static tern_vid stem(tern_graph *g, const tern_config *c) {
    int64_t n = c->n_embd;
    tern_vid x = tern_g_input(g, "pcm", tern_g_dim(g, "samples"), STEP, TERN_VALUE_F32);
    x = tern_g_windows(g, x, tern_g_dim(g, "hops"), STEP, TAPS + 1, false);
    x = tern_g_linear(g, x, tern_g_matrix(g, "enc.conv1.weight", n, TAPS + 1));
    x = tern_g_whole_norm(g, tern_g_act(g, x, TERN_ACTIVATION_TANH),
                          tern_g_vector(g, "enc.conv_norm.weight", n),
                          tern_g_vector(g, "enc.conv_norm.bias", n), 1e-5f);
    x = tern_g_windows(g, x, tern_g_dim(g, "strides"), STEP_2 * n, TAPS_2 * n, true);
    x = tern_block_biased(g, c, x, "enc.conv2", 2 * n, TAPS_2 * n);
    x = tern_g_act(g, x, TERN_ACTIVATION_GELU);
    x = tern_g_windows(g, x, tern_g_dim(g, "tokens"), STEP_3 * 2 * n, TAPS_3 * 2 * n, true);
    x = tern_block_biased(g, c, x, "enc.conv3", n, TAPS_3 * 2 * n);
    return tern_g_act(g, x, TERN_ACTIVATION_GELU);
}

static tern_vid encoder_attention(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    int32_t dim = (int32_t)c->head_dim;
    tern_attention_attrs attrs = heads_of(c);
    attrs.bidirectional = true;
    tern_vid q = linear(g, c, x, "enc.blk.%d.attn_q.weight", n_q, c->n_embd);
    tern_vid k = linear(g, c, x, "enc.blk.%d.attn_k.weight", n_kv, c->n_embd);
    tern_vid v = linear(g, c, x, "enc.blk.%d.attn_v.weight", n_kv, c->n_embd);
    q = tern_g_rope(g, q, -1, attrs.n_heads, dim, &c->rope);
    k = tern_g_rope(g, k, -1, attrs.n_kv_heads, dim, &c->rope);
    tern_vid keys = tern_g_positional_state(g, "cache_k.%d", n_kv, 0);
    tern_vid values = tern_g_positional_state(g, "cache_v.%d", n_kv, 0);
    tern_g_kv_store(g, k, v, keys, values, attrs.n_kv_heads, dim);
    tern_vid y = tern_g_attention(g, q, keys, values, &attrs);
    return linear(g, c, y, "enc.blk.%d.attn_output.weight", c->n_embd, n_q);
}

static tern_vid encoder_layer(tern_graph *g, const tern_config *c, tern_vid x) {
    tern_vid a = tern_block_layer_norm(g, c, x, "enc.blk.%d.attn_norm", false);
    x = tern_g_add(g, x, encoder_attention(g, c, a));
    tern_vid f = tern_block_layer_norm(g, c, x, "enc.blk.%d.ffn_norm", false);
    f = tern_block_biased(g, c, f, "enc.blk.%d.ffn_up", c->n_ff, c->n_embd);
    f = tern_g_act(g, f, TERN_ACTIVATION_GELU);
    f = tern_block_biased(g, c, f, "enc.blk.%d.ffn_down", c->n_embd, c->n_ff);
    return tern_g_add(g, x, f);
}

static tern_status build_encoder(tern_graph *g, const tern_config *c, tern_error *err) {
    tern_vid x = stem(g, c);
    for (int64_t i = 0; i < c->n_encoder_layers && !g->failed; i++) {
        g->layer = (int32_t)i;
        x = encoder_layer(g, c, x);
    }
    g->layer = -1;
    tern_g_output(g, tern_block_layer_norm(g, c, x, "enc.output_norm", false), "encoded");
    return tern_graph_check(g, err);
}

static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    (void)ids;
    tern_g_input(g, "encoded", tern_g_dim(g, "frames"), c->n_embd, TERN_VALUE_F32);
    tern_g_fixed_state(g, "source_n", 1, 1);
    return x;
}

static tern_vid cross_attention(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    tern_attention_attrs attrs = heads_of(c);
    tern_vid rows = tern_graph_find(g, "encoded"), n = tern_graph_find(g, "source_n");
    tern_vid k = linear(g, c, rows, "blk.%d.cross_attn_k.weight", n_kv, c->n_embd);
    tern_vid v = linear(g, c, rows, "blk.%d.cross_attn_v.weight", n_kv, c->n_embd);
    tern_vid keys = tern_g_fixed_state(g, "source_k.%d", c->n_source, n_kv);
    tern_vid values = tern_g_fixed_state(g, "source_v.%d", c->n_source, n_kv);
    tern_g_source_store(g, k, v, keys, values, n, &attrs);
    tern_vid q = linear(g, c, x, "blk.%d.cross_attn_q.weight", n_q, c->n_embd);
    tern_vid y = tern_g_cross_attention(g, q, keys, values, n, &attrs);
    return linear(g, c, y, "blk.%d.cross_attn_output.weight", c->n_embd, n_q);
}

static tern_vid decoder_layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.rope = &c->rope};
    tern_vid a = tern_block_layer_norm(g, c, x, "blk.%d.attn_norm", false);
    x = tern_g_add(g, x, tern_block_attention(g, c, a, &block));
    a = tern_block_layer_norm(g, c, x, "blk.%d.cross_attn_norm", false);
    x = tern_g_add(g, x, cross_attention(g, c, a));
    tern_vid f = tern_block_layer_norm(g, c, x, "blk.%d.ffn_norm", false);
    f = tern_block_biased(g, c, f, "blk.%d.ffn_up", 2 * c->n_ff, c->n_embd);
    tern_vid value = tern_g_columns(g, f, 2 * c->n_ff, 0, c->n_ff);
    tern_vid gate = tern_g_columns(g, f, 2 * c->n_ff, c->n_ff, c->n_ff);
    f = tern_g_mul(g, tern_g_act(g, gate, c->act), value);
    return tern_g_add(g, x, tern_block_biased(g, c, f, "blk.%d.ffn_down", c->n_embd, c->n_ff));
}

tern_status tern_moonshine_decoder(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {
        .layer = decoder_layer, .begin = begin, .final_norm = "output_norm", .layer_norm = true};
    return tern_build_stack(g, c, &stack, err);
}

// ---- Config ------------------------------------------------------------------------------------

static tern_status need_same(const tern_config_source *s, const char *hf, int64_t value,
                             tern_error *err) {
    int64_t n = value;
    tern_config_int(s, NULL, hf, &n);
    if (n == value) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config.json: %s is %" PRId64 ": expected %" PRId64 ", as the decoder has", hf,
                     n, value);
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_str act = tern_config_str(s, NULL, "encoder_hidden_act");
    tern_config_int(s, "decoder_start_token_id", "decoder_start_token_id", &c->bos_id);
    tern_config_int(s, "decoder_end_token_id", NULL, &c->eos_id);
    c->rms_eps = c->final_rms_eps = 1e-5; // transformers' LayerNorms; no config member
    c->rope.halves = false;
    c->n_source = N_SOURCE;
    c->n_step = STEP;
    c->n_padding = 1; // windows are one longer than the taps
    TERN_TRY(tern_config_need(s, "encoder.block_count", "encoder_num_hidden_layers", 1,
                              TERN_LAYERS_MAX, &c->n_encoder_layers, err));
    TERN_TRY(need_same(s, "encoder_num_attention_heads", c->n_heads, err));
    TERN_TRY(need_same(s, "encoder_num_key_value_heads", c->n_kv_heads, err));
    if (act.ptr && !tern_str_is(act, "gelu"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: encoder_hidden_act \"%.*s\" is not supported (gelu is)",
                         (int)(act.len < 40 ? act.len : 40), act.ptr);
    return TERN_OK;
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    snprintf(key, sizeof key, "%s.encoder.block_count", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->n_encoder_layers));
    snprintf(key, sizeof key, "%s.decoder_start_token_id", name);
    if (c->bos_id >= 0) TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->bos_id));
    snprintf(key, sizeof key, "%s.decoder_end_token_id", name);
    return c->eos_id >= 0 ? tern_gguf_put_int(w, key, TERN_META_U32, c->eos_id) : TERN_OK;
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"encoder_num_hidden_layers\": %" PRId64
                       ",\n  \"decoder_num_hidden_layers\": %" PRId64
                       ",\n  \"encoder_num_attention_heads\": %" PRId64
                       ",\n  \"decoder_num_attention_heads\": %" PRId64
                       ",\n  \"encoder_num_key_value_heads\": %" PRId64
                       ",\n  \"decoder_num_key_value_heads\": %" PRId64
                       ",\n  \"encoder_hidden_act\": \"gelu\",\n  \"is_encoder_decoder\": true,\n"
                       "  \"decoder_start_token_id\": %" PRId64 ",\n",
                       c->n_encoder_layers, c->n_layers, c->n_heads, c->n_heads, c->n_kv_heads,
                       c->n_kv_heads, c->bos_id);
}

// ---- Recognition -------------------------------------------------------------------------------

#define SECONDS_MOST 15.0

static double window(const tern_config *c) {
    (void)c;
    return SECONDS_MOST;
}
static const tern_recognizer recognizer = {.window = window};

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"moonshine", NULL};
static const char *const hf_types[] = {"moonshine", NULL};
static const char *const renamed[][2] = {
    {"num_hidden_layers", "decoder_num_hidden_layers"},
    {"num_attention_heads", "decoder_num_attention_heads"},
    {"num_key_value_heads", "decoder_num_key_value_heads"},
    {NULL, NULL},
};
static const tern_config defaults = {.n_embd = 288,
                                     .n_ff = 1152,
                                     .n_layers = 6,
                                     .n_heads = 8,
                                     .n_context = 512,
                                     .rms_eps = 1e-5,
                                     .rope = {.base = 10000}};

#define ENCODER(gguf_, hf_, role_)                                                                 \
    TERN_MATRIX("enc.blk.%d." gguf_, "model.encoder.layers.%d." hf_, role_)
#define CONV(gguf_, hf_, change_, taps_)                                                           \
    TERN_ROW(gguf_ ".weight", hf_ ".weight", .role = TERN_ROLE_FLOATS, .change = (change_),        \
             .taps = (taps_))

static const tern_tensor_row tensors[] = {
    CONV("enc.conv1", "model.encoder.conv1", TERN_CHANGE_PADDED, TAPS),
    TERN_NORM("enc.conv_norm", "model.encoder.groupnorm", TERN_CHANGE_NONE),
    TERN_MOONSHINE_BIAS("enc.conv_norm", "model.encoder.groupnorm"),
    CONV("enc.conv2", "model.encoder.conv2", TERN_CHANGE_FLATTEN, TAPS_2),
    TERN_MOONSHINE_BIAS("enc.conv2", "model.encoder.conv2"),
    CONV("enc.conv3", "model.encoder.conv3", TERN_CHANGE_FLATTEN, TAPS_3),
    TERN_MOONSHINE_BIAS("enc.conv3", "model.encoder.conv3"),
    ENCODER("attn_norm", "input_layernorm", TERN_ROLE_VECTOR),
    ENCODER("attn_q", "self_attn.q_proj", TERN_ROLE_MATRIX),
    ENCODER("attn_k", "self_attn.k_proj", TERN_ROLE_MATRIX),
    ENCODER("attn_v", "self_attn.v_proj", TERN_ROLE_MATRIX),
    ENCODER("attn_output", "self_attn.o_proj", TERN_ROLE_MATRIX),
    ENCODER("ffn_norm", "post_attention_layernorm", TERN_ROLE_VECTOR),
    ENCODER("ffn_up", "mlp.fc1", TERN_ROLE_MATRIX),
    TERN_MOONSHINE_BIAS("enc.blk.%d.ffn_up", "model.encoder.layers.%d.mlp.fc1"),
    ENCODER("ffn_down", "mlp.fc2", TERN_ROLE_MATRIX),
    TERN_MOONSHINE_BIAS("enc.blk.%d.ffn_down", "model.encoder.layers.%d.mlp.fc2"),
    TERN_NORM("enc.output_norm", "model.encoder.layer_norm", TERN_CHANGE_NONE),
    TERN_ROWS_MOONSHINE_DECODER,
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {TERN_IGNORED_ROPE, {NULL, NULL, NULL}};

const tern_arch tern_arch_moonshine = {
    .name = "moonshine",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "MoonshineForConditionalGeneration",
    .hf_eps = "layer_norm_eps",
    .hf_act = "decoder_hidden_act",
    .hf_renamed = renamed,
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .turns_part = 0.9,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS({.name = "decoder", .build = tern_moonshine_decoder, .n_rows = N_SOURCE},
                          {.name = "encoder", .build = build_encoder, .n_rows = N_WINDOWS}),
    .act = TERN_ACTIVATION_SILU,
    .media = &(const tern_arch_media){.recognizer = &recognizer},
};
