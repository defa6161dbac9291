// Moonshine's streaming variants: an encoder whose rows, 50 per second, are final soon after the
// speech, and Moonshine's decoder.
//
//   stem:     x = asinh(k norm(frame)), of frames of 80 samples; x = silu(Wx)
//             x = silu(conv1 x + b); x = conv2 x + b
//   encoder:  x = x + attention(norm(x)) Wo;  x = x + gelu(norm(x) Wup + b) Wdown + b
//   encoded:  (norm(x) + positions) Wproj, the product only if the decoder has another width
//
// A frame's norm is over its own samples; convolutions, of five rows every two, look back only. The
// encoder has no RoPE: each layer attends to a window of rows, most layers also some rows ahead.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/media/moonshine.h"

#define FRAME     80 // samples, a row of pcm
#define TAPS      5
#define STEP      2
#define N_FRAMES  3072 // at most: 15.36 seconds
#define N_SOURCE  768  // rows of the encoder at most
#define N_LEAST   64   // rows that a model must be able to attend to: 1.28 seconds
#define FRAME_EPS 1e-6f

// The encoder's own sizes. Layer i attends back[i] rows (itself included) and fewer than ahead[i]
// rows ahead.
#define LAYERS_MAX 64
typedef struct streaming {
    int64_t n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    int32_t back[LAYERS_MAX], ahead[LAYERS_MAX];
} streaming;
TERN_OWN_CONFIG(streaming)

// ---- Graphs ------------------------------------------------------------------------------------

// The encoder's sizes in the decoder's members, for the blocks that both use.
static tern_config encoder_of(const tern_config *c) {
    const streaming *s = own(c);
    tern_config e = *c;
    e.n_embd = s->n_embd;
    e.n_ff = s->n_ff;
    e.n_heads = s->n_heads;
    e.n_kv_heads = s->n_kv_heads;
    e.head_dim = s->head_dim;
    return e;
}

static tern_vid convolution(tern_graph *g, const tern_config *c, tern_vid x, const char *dim,
                            const char *name, int64_t n_out, int64_t n_in) {
    x = tern_g_padded_windows(g, x, tern_g_dim(g, dim), STEP * n_in, TAPS * n_in, (TAPS - 1) * n_in,
                              0, true);
    return tern_block_biased(g, c, x, name, n_out, TAPS * n_in);
}

static tern_vid stem(tern_graph *g, const tern_config *c) {
    int64_t n = c->n_embd;
    tern_vid x = tern_g_input(g, "pcm", tern_g_dim(g, "samples"), FRAME, TERN_VALUE_F32);
    x = tern_g_layer_norm(g, x, -1, -1, FRAME_EPS);
    x = tern_g_scale_by(g, x, tern_g_vector(g, "enc.frame_gain", 1));
    x = tern_g_act(g, x, TERN_ACTIVATION_ASINH);
    x = tern_g_linear(g, x, tern_g_matrix(g, "enc.frame.weight", n, FRAME));
    x = tern_g_act(g, x, TERN_ACTIVATION_SILU);
    x = convolution(g, c, x, "strides", "enc.conv1", 2 * n, n);
    x = tern_g_act(g, x, TERN_ACTIVATION_SILU);
    return convolution(g, c, x, "tokens", "enc.conv2", n, 2 * n);
}

static tern_vid attention(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    tern_attention_attrs attrs = {.n_heads = (int32_t)c->n_heads,
                                  .n_kv_heads = (int32_t)c->n_kv_heads,
                                  .head_dim = (int32_t)c->head_dim,
                                  .scale = 1.0f / sqrtf((float)c->head_dim),
                                  .window = own(c)->back[g->layer]};
    attrs.bidirectional = own(c)->ahead[g->layer] > 1; // 1: none ahead, as with 0
    if (attrs.bidirectional) attrs.ahead = own(c)->ahead[g->layer];
    tern_vid q = tern_block_linear(g, c, x, "enc.blk.%d.attn_q.weight", n_q, c->n_embd);
    tern_vid k = tern_block_linear(g, c, x, "enc.blk.%d.attn_k.weight", n_kv, c->n_embd);
    tern_vid v = tern_block_linear(g, c, x, "enc.blk.%d.attn_v.weight", n_kv, c->n_embd);
    tern_vid keys = tern_g_positional_state(g, "cache_k.%d", n_kv, 0);
    tern_vid values = tern_g_positional_state(g, "cache_v.%d", n_kv, 0);
    tern_g_kv_store(g, k, v, keys, values, attrs.n_kv_heads, attrs.head_dim);
    tern_vid y = tern_g_attention(g, q, keys, values, &attrs);
    return tern_block_linear(g, c, y, "enc.blk.%d.attn_output.weight", c->n_embd, n_q);
}

static tern_vid encoder_layer(tern_graph *g, const tern_config *c, tern_vid x) {
    tern_vid a = tern_block_layer_norm(g, c, x, "enc.blk.%d.attn_norm", false);
    x = tern_g_add(g, x, attention(g, c, a));
    tern_vid f = tern_block_layer_norm(g, c, x, "enc.blk.%d.ffn_norm", false);
    f = tern_block_biased(g, c, f, "enc.blk.%d.ffn_up", c->n_ff, c->n_embd);
    f = tern_g_act(g, f, TERN_ACTIVATION_GELU);
    return tern_g_add(g, x, tern_block_biased(g, c, f, "enc.blk.%d.ffn_down", c->n_embd, c->n_ff));
}

static tern_status build_encoder(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_config e = encoder_of(c);
    tern_vid x = stem(g, &e);
    for (int64_t i = 0; i < c->n_encoder_layers && !g->failed; i++) {
        g->layer = (int32_t)i;
        x = encoder_layer(g, &e, x);
    }
    g->layer = -1;
    x = tern_block_layer_norm(g, &e, x, "enc.output_norm", false);
    tern_vid places = tern_g_table(g, "source_position_embd.weight", c->n_context, e.n_embd);
    x = tern_g_add(g, x, tern_g_positions(g, x, places, 0));
    if (e.n_embd != c->n_embd)
        x = tern_g_linear(g, x, tern_g_matrix(g, "source_proj.weight", c->n_embd, e.n_embd));
    tern_g_output(g, x, "encoded");
    return tern_graph_check(g, err);
}

// ---- Config ------------------------------------------------------------------------------------

static tern_status refuse_window(int64_t layer, tern_error *err) {
    return tern_fail(
        err, TERN_ERR_FORMAT,
        "config: sliding_windows has no two numbers, 1 to %d and 0 to %d, for layer %" PRId64,
        N_SOURCE, N_SOURCE, layer);
}

// Pairs in a folder; in GGUF a flat list.
static bool find_window(const tern_config_source *s, int64_t i, double out[2]) {
    char key[160];
    if (s->file->kind == TERN_FILE_GGUF) {
        snprintf(key, sizeof key, "%s.encoder.sliding_windows", s->prefix);
        const tern_meta *list = tern_file_meta(s->file, key);
        return list && list->type == TERN_META_ARRAY && (uint64_t)(2 * i + 1) < list->n &&
               tern_meta_element(list, (uint64_t)(2 * i), &out[0]) &&
               tern_meta_element(list, (uint64_t)(2 * i + 1), &out[1]);
    }
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = tern_json_path(doc, "encoder_config.sliding_windows");
    const tern_json *pair = tern_json_first(doc, list);
    for (int64_t n = 0; pair && n < i; n++) pair = tern_json_next(doc, list, pair);
    const tern_json *back = pair ? tern_json_first(doc, pair) : NULL;
    const tern_json *ahead = back ? tern_json_next(doc, pair, back) : NULL;
    if (!tern_json_is(back, TERN_JSON_NUMBER) || !tern_json_is(ahead, TERN_JSON_NUMBER))
        return false;
    out[0] = back->number;
    out[1] = ahead->number;
    return true;
}

static tern_status read_windows(const tern_config_source *s, tern_config *c, tern_error *err) {
    for (int64_t i = 0; i < c->n_encoder_layers; i++) {
        double window[2];
        if (!find_window(s, i, window) || !(window[0] >= 1 && window[0] <= N_SOURCE) ||
            !(window[1] >= 0 && window[1] <= N_SOURCE))
            return refuse_window(i, err);
        own_to_set(c)->back[i] = (int32_t)window[0];
        own_to_set(c)->ahead[i] = (int32_t)window[1];
    }
    return TERN_OK;
}

static tern_status read_encoder(const tern_config_source *s, tern_config *c, tern_error *err) {
    streaming *e = own_to_set(c);
    *e = (streaming){.n_embd = 320, .n_ff = 1280, .n_heads = 8}; // transformers' own
    const struct {
        const char *gguf, *hf;
        int64_t most, *to;
    } sizes[] = {
        {"encoder.embedding_length", "encoder_config.hidden_size", 65536, &e->n_embd},
        {"encoder.feed_forward_length", "encoder_config.intermediate_size", 1 << 20, &e->n_ff},
        {"encoder.head_count", "encoder_config.num_attention_heads", 1024, &e->n_heads},
        {"encoder.head_count_kv", "encoder_config.num_key_value_heads", 1024, &e->n_kv_heads},
        {"encoder.key_length", "encoder_config.head_dim", 4096, &e->head_dim},
        {"encoder.block_count", "encoder_config.num_hidden_layers", LAYERS_MAX,
         &c->n_encoder_layers}};
    c->n_encoder_layers = 6;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t said;
        if (!tern_config_int(s, sizes[i].gguf, sizes[i].hf, &said)) continue;
        TERN_TRY(
            tern_config_need(s, sizes[i].gguf, sizes[i].hf, 1, sizes[i].most, sizes[i].to, err));
    }
    if (!e->n_kv_heads) e->n_kv_heads = e->n_heads;
    if (!e->head_dim) e->head_dim = e->n_embd / e->n_heads;
    if (e->head_dim >= 2 && e->head_dim % 2 == 0 && e->n_heads % e->n_kv_heads == 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: an encoder of %" PRId64 " heads, %" PRId64 " key heads and %" PRId64
                     " dimensions a head does not fit together",
                     e->n_heads, e->n_kv_heads, e->head_dim);
}

// Settings that a folder could have, but no published model does.
static tern_status refuse_others(const tern_config_source *s, tern_error *err) {
    tern_str act = tern_config_str(s, NULL, "encoder_config.hidden_act");
    double rate = 16000, frame = 5;
    tern_config_float(s, NULL, "encoder_config.sample_rate", &rate);
    tern_config_float(s, NULL, "encoder_config.frame_ms", &frame);
    if (!tern_config_json(s, "rope_parameters")) // its default differs from other models'
        return tern_fail(err, TERN_ERR_FORMAT, "config.json: rope_parameters is missing");
    if (act.ptr && !tern_str_is(act, "gelu"))
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "config.json: encoder_config.hidden_act \"%.*s\" is not supported (gelu is)",
            (int)(act.len < 40 ? act.len : 40), act.ptr);
    if (rate == 16000 && frame == 5) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config.json: frames of %g ms of %g samples a second are not supported (5 of "
                     "16000 are)",
                     frame, rate);
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_config_int(s, "decoder_start_token_id", "decoder_start_token_id", &c->bos_id);
    tern_config_int(s, "decoder_end_token_id", NULL, &c->eos_id);
    c->rms_eps = c->final_rms_eps = 1e-5; // transformers' LayerNorms; no config member
    c->rope.halves = false;
    if (c->n_context < N_LEAST)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: places for %" PRId64 " rows: at least %d are needed",
                         c->n_context, N_LEAST);
    c->n_source = c->n_context < N_SOURCE ? c->n_context / 16 * 16 : N_SOURCE;
    c->n_step = FRAME;
    if (s->file->kind == TERN_FILE_HF) TERN_TRY(refuse_others(s, err));
    TERN_TRY(read_encoder(s, c, err));
    return read_windows(s, c, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    const streaming *e = own(c);
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {
        {"encoder.block_count", c->n_encoder_layers}, {"encoder.embedding_length", e->n_embd},
        {"encoder.feed_forward_length", e->n_ff},     {"encoder.head_count", e->n_heads},
        {"encoder.head_count_kv", e->n_kv_heads},     {"encoder.key_length", e->head_dim},
        {"decoder_start_token_id", c->bos_id},        {"decoder_end_token_id", c->eos_id}};
    int32_t windows[2 * LAYERS_MAX];
    char key[160];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value < 0) continue;
        snprintf(key, sizeof key, "%s.%s", name, numbers[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, numbers[i].value));
    }
    for (int64_t i = 0; i < c->n_encoder_layers; i++) {
        windows[2 * i] = e->back[i];
        windows[2 * i + 1] = e->ahead[i];
    }
    snprintf(key, sizeof key, "%s.encoder.sliding_windows", name);
    return tern_gguf_put_array(w, key, TERN_META_I32, windows, (size_t)(2 * c->n_encoder_layers));
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    const streaming *e = own(c);
    tern_strbuf_printf(
        out,
        "  \"encoder_config\": {\"model_type\": \"moonshine_streaming_encoder\", "
        "\"hidden_act\": \"gelu\", \"hidden_size\": %" PRId64 ", \"intermediate_size\": %" PRId64
        ", \"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": %" PRId64
        ", \"num_key_value_heads\": %" PRId64 ", \"head_dim\": %" PRId64
        ", \"sample_rate\": 16000, \"frame_ms\": 5.0, \"sliding_windows\": [",
        e->n_embd, e->n_ff, c->n_encoder_layers, e->n_heads, e->n_kv_heads, e->head_dim);
    for (int64_t i = 0; i < c->n_encoder_layers; i++)
        tern_strbuf_printf(out, "%s[%d, %d]", i ? ", " : "", (int)e->back[i], (int)e->ahead[i]);
    tern_strbuf_printf(out,
                       "]},\n  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": "
                       "%.9g, \"partial_rotary_factor\": %.17g},\n"
                       "  \"is_encoder_decoder\": true,\n"
                       "  \"decoder_start_token_id\": %" PRId64 ",\n",
                       (double)c->rope.base, tern_config_rotary_factor(&c->rope, c->head_dim),
                       c->bos_id);
}

// Files store a logarithm; the graph multiplies.
static tern_status numbers(const tern_file *file, const tern_arch *arch, const tern_tensor *t,
                           float *x, tern_error *err) {
    (void)file;
    (void)arch;
    if (t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] != 1)
        return tern_fail(err, TERN_ERR_FORMAT, "tensor %s is not one number", t->name);
    *x = expf(*x);
    return TERN_OK;
}

// ---- Recognition -------------------------------------------------------------------------------

#define SECONDS_MOST    15.0
#define SECONDS_A_FRAME 0.02

static double window(const tern_config *c) {
    double room = (double)c->n_source * SECONDS_A_FRAME;
    return room < SECONDS_MOST ? room : SECONDS_MOST;
}
static const tern_recognizer recognizer = {.window = window, .whole_frames = true};

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"moonshine_streaming", NULL};
static const char *const hf_types[] = {"moonshine_streaming", NULL};
static const tern_config defaults = {.n_embd = 320,
                                     .n_ff = 1280,
                                     .n_layers = 6,
                                     .n_heads = 8,
                                     .n_context = 4096,
                                     .rms_eps = 1e-5,
                                     .rope = {.base = 10000}};

#define ENCODER(gguf_, hf_)                                                                        \
    TERN_MATRIX("enc.blk.%d." gguf_, "model.encoder.layers.%d." hf_, TERN_ROLE_MATRIX)
#define GAMMA(gguf_, hf_) TERN_ROW(gguf_ ".weight", hf_ ".gamma", .change = TERN_CHANGE_PLUS_ONE)
#define CONV(gguf_, hf_)                                                                           \
    TERN_ROW(gguf_ ".weight", hf_ ".weight", .role = TERN_ROLE_FLOATS,                             \
             .change = TERN_CHANGE_FLATTEN, .taps = TAPS),                                         \
        TERN_MOONSHINE_BIAS(gguf_, hf_)

static const tern_tensor_row tensors[] = {
    TERN_ROW("enc.frame_gain", "model.encoder.embedder.comp.log_k", .change = TERN_CHANGE_SCALAR,
             .is_computed = true),
    TERN_MATRIX("enc.frame", "model.encoder.embedder.linear", TERN_ROLE_FLOATS),
    CONV("enc.conv1", "model.encoder.embedder.conv1"),
    CONV("enc.conv2", "model.encoder.embedder.conv2"),
    GAMMA("enc.blk.%d.attn_norm", "model.encoder.layers.%d.input_layernorm"),
    ENCODER("attn_q", "self_attn.q_proj"),
    ENCODER("attn_k", "self_attn.k_proj"),
    ENCODER("attn_v", "self_attn.v_proj"),
    ENCODER("attn_output", "self_attn.o_proj"),
    GAMMA("enc.blk.%d.ffn_norm", "model.encoder.layers.%d.post_attention_layernorm"),
    ENCODER("ffn_up", "mlp.fc1"),
    TERN_MOONSHINE_BIAS("enc.blk.%d.ffn_up", "model.encoder.layers.%d.mlp.fc1"),
    ENCODER("ffn_down", "mlp.fc2"),
    TERN_MOONSHINE_BIAS("enc.blk.%d.ffn_down", "model.encoder.layers.%d.mlp.fc2"),
    GAMMA("enc.output_norm", "model.encoder.final_norm"),
    TERN_MATRIX("source_position_embd", "model.decoder.pos_emb", TERN_ROLE_VECTOR),
    TERN_MATRIX("source_proj", "model.decoder.proj", TERN_ROLE_MATRIX),
    TERN_ROWS_MOONSHINE_DECODER,
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {TERN_IGNORED_ROPE, {NULL, NULL, NULL}};

const tern_arch tern_arch_moonshine_streaming = {
    .name = "moonshine_streaming",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "MoonshineStreamingForConditionalGeneration",
    .hf_eps = "layer_norm_eps",
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .turns_part = 1,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .numbers = numbers,
    .graphs = TERN_GRAPHS({.name = "decoder", .build = tern_moonshine_decoder, .n_rows = N_SOURCE},
                          {.name = "encoder", .build = build_encoder, .n_rows = N_FRAMES}),
    .act = TERN_ACTIVATION_SILU,
    .media = &(const tern_arch_media){.recognizer = &recognizer},
};
