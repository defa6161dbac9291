// Whisper (arXiv:2212.04356): speech to text. An encoder turns a spectrogram of a 30-second window
// into rows, 50 per second, and a decoder writes the text, with times, in a hundred languages.
//
//   stem:     x = gelu(conv1 mel + b); x = gelu(conv2 x + b) + positions
//   encoder:  x = x + attention(norm(x)) Wo + b;  x = x + gelu(norm(x) Wup + b) Wdown + b
//   decoder:  x = row of the table + position
//             x = x + attention(norm(x)) Wo + b;  x = x + attention(norm(x), encoded) Wo + b
//             x = x + gelu(norm(x) Wup + b) Wdown + b
//
// Norms have biases, and so have all products except those that make keys. Convolutions are
// products of windows of three rows, with a row of zeros before the first and after the last. The
// decoder attends to separate states, as Moonshine's does.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

#define TAPS         3
#define STEP_2       2
#define N_FRAMES     1500 // rows of the encoder in all published models
#define N_SOURCE     1504 // a multiple of 16
#define CONTEXT_MOST 896
#define HOP          160 // samples per row of the spectrogram; two rows make one of the encoder

#define NEVER_MAX 256
#define FIRST_MAX 8
typedef struct whisper {
    int64_t n_mels, n_frames; // bins; rows of the encoder in a window, 50 a second
    bool is_multilingual;
    int32_t never[NEVER_MAX], never_first[FIRST_MAX]; // tokens never written, or not as the first
    int32_t n_never, n_never_first;
} whisper;
TERN_OWN_CONFIG(whisper)

// ---- Graphs ------------------------------------------------------------------------------------

static tern_attention_attrs heads_of(const tern_config *c) {
    return (tern_attention_attrs){.n_heads = (int32_t)c->n_heads,
                                  .n_kv_heads = (int32_t)c->n_kv_heads,
                                  .head_dim = (int32_t)c->head_dim,
                                  .scale = 1.0f / sqrtf((float)c->head_dim)};
}

// Names of a layer's parts, "enc.blk.%d.attn" and what follows.
static const char *part(char out[64], const char *of, const char *which) {
    snprintf(out, 64, "%s_%s", of, which);
    return out;
}

static tern_vid biased(tern_graph *g, const tern_config *c, tern_vid x, const char *of,
                       const char *which) {
    char name[64];
    return tern_block_biased(g, c, x, part(name, of, which), c->n_embd, c->n_embd);
}

static tern_vid keys_of(tern_graph *g, const tern_config *c, tern_vid x, const char *of) {
    char name[64];
    return tern_block_linear(g, c, x, part(name, of, "k.weight"), c->n_embd, c->n_embd);
}

static tern_vid convolution(tern_graph *g, const tern_config *c, tern_vid x, const char *dim,
                            int64_t n_in, int64_t step, const char *name) {
    x = tern_g_padded_windows(g, x, tern_g_dim(g, dim), step * n_in, TAPS * n_in, n_in, n_in, true);
    return tern_g_act(g, tern_block_biased(g, c, x, name, c->n_embd, TAPS * n_in), c->act);
}

// Attention within a sequence: to all rows in the encoder, to those before in the decoder.
static tern_vid own_attention(tern_graph *g, const tern_config *c, tern_vid x, const char *of,
                              bool is_encoder) {
    tern_attention_attrs attrs = heads_of(c);
    attrs.bidirectional = is_encoder;
    tern_vid q = biased(g, c, x, of, "q"), k = keys_of(g, c, x, of), v = biased(g, c, x, of, "v");
    tern_vid keys = tern_g_positional_state(g, "cache_k.%d", c->n_embd, 0);
    tern_vid values = tern_g_positional_state(g, "cache_v.%d", c->n_embd, 0);
    tern_g_kv_store(g, k, v, keys, values, attrs.n_kv_heads, attrs.head_dim);
    return biased(g, c, tern_g_attention(g, q, keys, values, &attrs), of, "output");
}

static tern_vid feed_forward(tern_graph *g, const tern_config *c, tern_vid x, const char *side) {
    char norm[64], up[64], down[64];
    snprintf(norm, sizeof norm, "%sblk.%%d.ffn_norm", side);
    snprintf(up, sizeof up, "%sblk.%%d.ffn_up", side);
    snprintf(down, sizeof down, "%sblk.%%d.ffn_down", side);
    tern_vid f = tern_block_layer_norm(g, c, x, norm, true);
    f = tern_g_act(g, tern_block_biased(g, c, f, up, c->n_ff, c->n_embd), c->act);
    return tern_g_add(g, x, tern_block_biased(g, c, f, down, c->n_embd, c->n_ff));
}

static tern_status build_encoder(tern_graph *g, const tern_config *c, tern_error *err) {
    tern_vid x = tern_g_input(g, "mel", tern_g_dim(g, "hops"), own(c)->n_mels, TERN_VALUE_F32);
    x = convolution(g, c, x, "strides", own(c)->n_mels, 1, "enc.conv1");
    x = convolution(g, c, x, "tokens", c->n_embd, STEP_2, "enc.conv2");
    tern_vid places = tern_g_table(g, "enc.position_embd.weight", own(c)->n_frames, c->n_embd);
    x = tern_g_add(g, x, tern_g_positions(g, x, places, 0));
    for (int64_t i = 0; i < c->n_encoder_layers && !g->failed; i++) {
        g->layer = (int32_t)i;
        tern_vid a = tern_block_layer_norm(g, c, x, "enc.blk.%d.attn_norm", true);
        x = tern_g_add(g, x, own_attention(g, c, a, "enc.blk.%d.attn", true));
        x = feed_forward(g, c, x, "enc.");
    }
    g->layer = -1;
    tern_g_output(g, tern_block_layer_norm(g, c, x, "enc.output_norm", true), "encoded");
    return tern_graph_check(g, err);
}

static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    tern_vid places = tern_g_table(g, "position_embd.weight", c->n_context, c->n_embd);
    tern_g_input(g, "encoded", tern_g_dim(g, "frames"), c->n_embd, TERN_VALUE_F32);
    tern_g_fixed_state(g, "source_n", 1, 1);
    return tern_g_add(g, x, tern_g_positions(g, ids, places, 0));
}

static tern_vid cross_attention(tern_graph *g, const tern_config *c, tern_vid x) {
    static const char of[] = "blk.%d.cross_attn";
    tern_attention_attrs attrs = heads_of(c);
    tern_vid rows = tern_graph_find(g, "encoded"), n = tern_graph_find(g, "source_n");
    tern_vid k = keys_of(g, c, rows, of), v = biased(g, c, rows, of, "v");
    tern_vid keys = tern_g_fixed_state(g, "source_k.%d", c->n_source, c->n_embd);
    tern_vid values = tern_g_fixed_state(g, "source_v.%d", c->n_source, c->n_embd);
    tern_g_source_store(g, k, v, keys, values, n, &attrs);
    tern_vid y = tern_g_cross_attention(g, biased(g, c, x, of, "q"), keys, values, n, &attrs);
    return biased(g, c, y, of, "output");
}

static tern_vid decoder_layer(tern_graph *g, const tern_config *c, tern_vid x) {
    tern_vid a = tern_block_layer_norm(g, c, x, "blk.%d.attn_norm", true);
    x = tern_g_add(g, x, own_attention(g, c, a, "blk.%d.attn", false));
    a = tern_block_layer_norm(g, c, x, "blk.%d.cross_attn_norm", true);
    x = tern_g_add(g, x, cross_attention(g, c, a));
    return feed_forward(g, c, x, "");
}

static tern_status build_decoder(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {.layer = decoder_layer,
                              .begin = begin,
                              .final_norm = "output_norm",
                              .layer_norm = true,
                              .norm_bias = true};
    return tern_build_stack(g, c, &stack, err);
}

// ---- Config ------------------------------------------------------------------------------------

// Tokens that are never written, or not first: lists in generation_config.json, in config.json of
// older folders, and in GGUF.
static tern_status read_tokens(const tern_config_source *s, const char *name, int64_t n_vocab,
                               int32_t *out, int32_t most, int32_t *n, tern_error *err) {
    char key[160];
    double id;
    *n = 0;
    snprintf(key, sizeof key, "%s.%s", s->prefix, name);
    if (s->file->kind == TERN_FILE_GGUF) {
        const tern_meta *list = tern_file_meta(s->file, key);
        for (uint64_t i = 0; list && list->type == TERN_META_ARRAY && i < list->n; i++) {
            if (*n == most || !tern_meta_element(list, i, &id) || id < 0 || id >= (double)n_vocab)
                return tern_fail(err, TERN_ERR_FORMAT,
                                 "%s lists ids that are not tokens, or too many", key);
            out[(*n)++] = (int32_t)id;
        }
        return TERN_OK;
    }
    const tern_json_doc *doc = &s->file->generation_config;
    const tern_json *list = tern_json_path(doc, name);
    if (!tern_json_is(list, TERN_JSON_ARRAY)) {
        doc = &s->file->config;
        list = tern_json_path(doc, name);
    }
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e)) {
        int64_t token = tern_json_int(e, -1);
        if (*n == most || token < 0 || token >= n_vocab)
            return tern_fail(err, TERN_ERR_FORMAT, "%s lists ids that are not tokens, or too many",
                             name);
        out[(*n)++] = (int32_t)token;
    }
    return TERN_OK;
}

static tern_status need_same(const tern_config_source *s, const char *hf, int64_t value,
                             tern_error *err) {
    int64_t n = value;
    tern_config_int(s, NULL, hf, &n);
    if (n == value) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config.json: %s is %" PRId64 ": expected %" PRId64 ", as the decoder has", hf,
                     n, value);
}

static tern_status check_vocabulary(const tern_config *c, tern_error *err) {
    int64_t first = c->n_vocab - own(c)->n_frames - 1;
    if (c->eos_id >= 0 && c->bos_id > c->eos_id && c->bos_id + 7 <= first) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: a text begins with token %" PRId64 " and ends with %" PRId64
                     ", which does not fit %" PRId64 " tokens with %" PRId64 " for times",
                     c->bos_id, c->eos_id, c->n_vocab, own(c)->n_frames + 1);
}

static bool is_multilingual(const tern_config_source *s, int64_t n_vocab) {
    int64_t flag = 0;
    if (tern_config_int(s, "multilingual", NULL, &flag)) return flag != 0;
    const tern_json *said = tern_json_path(&s->file->generation_config, "is_multilingual");
    if (!said) said = tern_json_path(&s->file->config, "is_multilingual");
    return tern_json_bool(said, n_vocab >= 51865); // English-only models have 51,864
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    whisper *w = own_to_set(c);
    if (tern_config_bool(s, "scale_embedding", false))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: scale_embedding is not supported");
    tern_config_int(s, "decoder_start_token_id", "decoder_start_token_id", &c->bos_id);
    tern_config_int(s, "decoder_end_token_id", NULL, &c->eos_id);
    c->rms_eps = c->final_rms_eps = 1e-5; // no config member
    w->n_mels = 80;
    w->n_frames = N_FRAMES;
    tern_config_int(s, "mel_bins", "num_mel_bins", &w->n_mels);
    tern_config_int(s, "encoder.context_length", "max_source_positions", &w->n_frames);
    if (w->n_mels < 4 || w->n_mels > 512 || w->n_frames < 16 || w->n_frames > N_FRAMES)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: %" PRId64 " bins of %" PRId64
                         " frames are not supported (4 to 512 of 16 to %d are)",
                         w->n_mels, w->n_frames, N_FRAMES);
    // num_hidden_layers is the encoder's.
    if (s->file->kind == TERN_FILE_HF)
        TERN_TRY(
            tern_config_need(s, NULL, "decoder_layers", 1, TERN_LAYERS_MAX, &c->n_layers, err));
    TERN_TRY(tern_config_need(s, "encoder.block_count", "encoder_layers", 1, TERN_LAYERS_MAX,
                              &c->n_encoder_layers, err));
    TERN_TRY(need_same(s, "encoder_attention_heads", c->n_heads, err));
    TERN_TRY(need_same(s, "encoder_ffn_dim", c->n_ff, err));
    if (c->n_kv_heads != c->n_heads || c->head_dim * c->n_heads != c->n_embd)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " heads do not divide %" PRId64 " columns", c->n_heads,
                         c->n_embd);
    if (c->n_context < 8 || c->n_context > CONTEXT_MOST)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: texts of %" PRId64 " tokens (8 to %d are supported)",
                         c->n_context, CONTEXT_MOST);
    c->n_source = (w->n_frames + 15) / 16 * 16;
    c->n_step = HOP;
    w->is_multilingual = is_multilingual(s, c->n_vocab);
    TERN_TRY(check_vocabulary(c, err));
    TERN_TRY(read_tokens(s, "suppress_tokens", c->n_vocab, w->never, NEVER_MAX, &w->n_never, err));
    return read_tokens(s, "begin_suppress_tokens", c->n_vocab, w->never_first, FIRST_MAX,
                       &w->n_never_first, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"encoder.block_count", c->n_encoder_layers},
                   {"encoder.context_length", own(c)->n_frames},
                   {"mel_bins", own(c)->n_mels},
                   {"decoder_start_token_id", c->bos_id},
                   {"decoder_end_token_id", c->eos_id},
                   {"multilingual", own(c)->is_multilingual}};
    char key[160];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", name, numbers[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, numbers[i].value));
    }
    snprintf(key, sizeof key, "%s.suppress_tokens", name);
    TERN_TRY(tern_gguf_put_array(w, key, TERN_META_I32, own(c)->never, (size_t)own(c)->n_never));
    snprintf(key, sizeof key, "%s.begin_suppress_tokens", name);
    return tern_gguf_put_array(w, key, TERN_META_I32, own(c)->never_first,
                               (size_t)own(c)->n_never_first);
}

static void put_tokens(tern_strbuf *out, const char *name, const int32_t *ids, int32_t n) {
    tern_strbuf_printf(out, "  \"%s\": [", name);
    for (int32_t i = 0; i < n; i++) tern_strbuf_printf(out, "%s%d", i ? ", " : "", (int)ids[i]);
    tern_strbuf_puts(out, "],\n");
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(
        out,
        "  \"d_model\": %" PRId64 ",\n  \"encoder_layers\": %" PRId64
        ",\n  \"decoder_layers\": %" PRId64 ",\n  \"encoder_attention_heads\": %" PRId64
        ",\n  \"decoder_attention_heads\": %" PRId64 ",\n  \"encoder_ffn_dim\": %" PRId64
        ",\n  \"decoder_ffn_dim\": %" PRId64 ",\n  \"num_mel_bins\": %" PRId64
        ",\n  \"max_source_positions\": %" PRId64 ",\n  \"max_target_positions\": %" PRId64
        ",\n  \"is_encoder_decoder\": true,\n  \"is_multilingual\": %s,\n"
        "  \"decoder_start_token_id\": %" PRId64 ",\n",
        c->n_embd, c->n_encoder_layers, c->n_layers, c->n_heads, c->n_heads, c->n_ff, c->n_ff,
        own(c)->n_mels, own(c)->n_frames, c->n_context, own(c)->is_multilingual ? "true" : "false",
        c->bos_id);
    put_tokens(out, "suppress_tokens", own(c)->never, own(c)->n_never);
    put_tokens(out, "begin_suppress_tokens", own(c)->never_first, own(c)->n_never_first);
}

// ---- Recognition -------------------------------------------------------------------------------
//
// The rules are OpenAI's. All published vocabularies end alike: the token that begins a text,
// languages, six others, and a token for each frame's time.

#define FRAME_SECONDS   0.02 // per row of the encoder, and per timestamp token
#define FIRST_TIME_MOST 50   // timestamp tokens: a text begins in the first second

// Languages, in the order of their tokens.
static const char *const languages[] = {
    "en", "zh", "de", "es",  "ru", "ko", "fr", "ja", "pt", "tr", "pl", "ca", "nl", "ar", "sv",
    "it", "id", "hi", "fi",  "vi", "he", "uk", "el", "ms", "cs", "ro", "da", "hu", "ta", "no",
    "th", "ur", "hr", "bg",  "lt", "la", "mi", "ml", "cy", "sk", "te", "fa", "lv", "bn", "sr",
    "az", "sl", "kn", "et",  "mk", "br", "eu", "is", "hy", "ne", "mn", "bs", "kk", "sq", "sw",
    "gl", "mr", "pa", "si",  "km", "sn", "yo", "so", "af", "oc", "ka", "be", "tg", "sd", "gu",
    "am", "yi", "lo", "uz",  "fo", "ht", "ps", "tk", "nn", "mt", "sa", "lb", "my", "bo", "tl",
    "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue"};
#define N_LANGUAGES ((int32_t)(sizeof languages / sizeof *languages))

static int32_t first_time(const tern_config *c) {
    return (int32_t)(c->n_vocab - own(c)->n_frames - 1);
}
static int32_t no_times(const tern_config *c) { return first_time(c) - 1; }
static int32_t silence(const tern_config *c) { return first_time(c) - 2; }
static int32_t transcribe(const tern_config *c) { return first_time(c) - 5; }
static int32_t translate(const tern_config *c) { return first_time(c) - 6; }
static int32_t first_language(const tern_config *c) { return (int32_t)c->bos_id + 1; }

static double window(const tern_config *c) { return (double)own(c)->n_frames * FRAME_SECONDS; }
static int64_t bins(const tern_config *c) { return own(c)->n_mels; }
static bool translates(const tern_config *c) { return own(c)->is_multilingual; }
static bool is_text(const tern_config *c, int32_t id) { return id < c->eos_id; }

static const char *language(const tern_config *c, int32_t i) {
    int32_t n = own(c)->is_multilingual ? translate(c) - first_language(c) : 1;
    return i >= 0 && i < n && i < N_LANGUAGES ? languages[i] : NULL;
}

// The language and the task.
static int32_t prompt(const tern_recognition *r, int32_t *out) {
    const tern_config *c = r->config;
    int32_t n = 0;
    if (own(c)->is_multilingual) {
        out[n++] = first_language(c) + r->language;
        out[n++] = r->translates ? translate(c) : transcribe(c);
    }
    if (!r->with_times) out[n++] = no_times(c);
    return n;
}

static void forbid(float *logits, int32_t from, int32_t to) {
    for (int32_t i = from; i < to; i++) logits[i] = -INFINITY;
}

// Timestamps come in pairs, the end of a segment and the beginning of the next, and never decrease;
// the first token is a timestamp in the first second.
static void forbid_times(const tern_recognition *r, float *logits) {
    const int32_t *ids = r->ids, n = r->n_ids, times = first_time(r->config);
    const int32_t n_vocab = (int32_t)r->config->n_vocab;
    bool last = n > 0 && ids[n - 1] >= times, before = n < 2 || ids[n - 2] >= times;
    if (n == 0) {
        forbid(logits, 0, times);
        forbid(logits, times + FIRST_TIME_MOST + 1, n_vocab);
        return;
    }
    if (last && before)
        forbid(logits, times, n_vocab);
    else if (last)
        forbid(logits, 0, (int32_t)r->config->eos_id);
    int32_t k = n;
    while (k > 0 && ids[k - 1] < times) k--;
    if (k > 0) forbid(logits, times, ids[k - 1] + !(last && !before));
}

// Only timestamps may follow if together they are likelier than the best text token.
static void prefer_times(const tern_config *c, float *logits) {
    float most = -INFINITY;
    double times = 0;
    for (int32_t i = 0; i < first_time(c); i++) most = fmaxf(most, logits[i]);
    if (most == -INFINITY) return;
    for (int32_t i = first_time(c); i < c->n_vocab; i++) times += exp((double)(logits[i] - most));
    if (times > 1) forbid(logits, 0, first_time(c));
}

static void allow(const tern_recognition *r, float *logits) {
    const tern_config *c = r->config;
    const whisper *w = own(c);
    for (int32_t i = 0; i < w->n_never; i++) logits[w->never[i]] = -INFINITY;
    forbid(logits, (int32_t)c->eos_id + 1, first_time(c));
    for (int32_t i = 0; r->n_ids == 0 && i < w->n_never_first; i++)
        logits[w->never_first[i]] = -INFINITY;
    if (r->with_times) {
        forbid_times(r, logits);
        prefer_times(c, logits);
    } else {
        forbid(logits, first_time(c), (int32_t)c->n_vocab);
    }
}

// A segment ends where a pair of timestamps begins. Without pairs the text is one; a lone timestamp
// at the end closes the last one, else the next window begins with it.
static int32_t segments(const tern_recognition *r, int64_t rows, tern_recognition_segment *out,
                        int64_t *next_window) {
    const int32_t *ids = r->ids, n = r->n_ids, times = first_time(r->config);
    int32_t begin = 0, last_time = 0, n_out = 0;
    bool lone_end = n > 1 && ids[n - 1] >= times && ids[n - 2] < times;
    for (int32_t i = 1; i <= n; i++) {
        bool pair = i < n && ids[i] >= times && ids[i - 1] >= times;
        if (ids[i - 1] >= times) last_time = ids[i - 1] - times;
        if (!pair && !(i == n && lone_end && begin > 0)) continue;
        out[n_out++] = (tern_recognition_segment){.first = begin,
                                                  .end = i,
                                                  .start = (ids[begin] - times) * FRAME_SECONDS,
                                                  .stop = (ids[i - 1] - times) * FRAME_SECONDS};
        begin = i;
    }
    *next_window = rows;
    if (begin > 0) {
        int64_t used = 2 * (ids[begin - 1] - times);
        if (!lone_end && used > 0) *next_window = used;
        return n_out;
    }
    double end = last_time > 0 ? last_time * FRAME_SECONDS : (double)rows * TERN_RECOGNIZER_ROW;
    out[0] = (tern_recognition_segment){.end = n, .stop = end};
    return n > 0;
}

static const tern_recognizer recognizer = {
    .window = window,
    .bins = bins,
    .allow = allow,
    .prompt = prompt,
    .language = language,
    .first_language = first_language,
    .silence = silence,
    .translates = translates,
    .is_text = is_text,
    .segments = segments,
    .doubts = {.unsure = -1, .repeated = 2, .no_speech = 0.6, .hotter = 0.2, .n_more = 5}};

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"whisper", NULL};
static const char *const hf_types[] = {"whisper", NULL};
static const char *const renamed[][2] = {
    {"hidden_size", "d_model"},
    {"intermediate_size", "decoder_ffn_dim"},
    {"num_hidden_layers", "decoder_layers"},
    {"num_attention_heads", "decoder_attention_heads"},
    {"max_position_embeddings", "max_target_positions"},
    {NULL, NULL},
};
static const tern_config defaults = {.n_context = 448, .rms_eps = 1e-5, .rope = {.base = 10000}};

#define BIAS(gguf_, hf_)          TERN_ROW(gguf_ ".bias", hf_ ".bias")
#define BIASED(gguf_, hf_, role_) TERN_MATRIX(gguf_, hf_, role_), BIAS(gguf_, hf_)
#define CONV(gguf_, hf_)                                                                           \
    TERN_ROW(gguf_ ".weight", hf_ ".weight", .role = TERN_ROLE_FLOATS,                             \
             .change = TERN_CHANGE_FLATTEN, .taps = TAPS),                                         \
        BIAS(gguf_, hf_)
#define ATTENTION(gguf_, hf_, q_, k_, v_, o_)                                                      \
    BIASED(gguf_ "_norm", hf_ "_layer_norm", TERN_ROLE_VECTOR),                                    \
        BIASED(gguf_ "_q", hf_ ".q_proj", q_), TERN_MATRIX(gguf_ "_k", hf_ ".k_proj", k_),         \
        BIASED(gguf_ "_v", hf_ ".v_proj", v_), BIASED(gguf_ "_output", hf_ ".out_proj", o_)
#define FEED_FORWARD(gguf_, hf_, up_, down_)                                                       \
    BIASED(gguf_ "ffn_norm", hf_ "final_layer_norm", TERN_ROLE_VECTOR),                            \
        BIASED(gguf_ "ffn_up", hf_ "fc1", up_), BIASED(gguf_ "ffn_down", hf_ "fc2", down_)
#define ENCODER "model.encoder.layers.%d."
#define DECODER "model.decoder.layers.%d."
#define MATRIX  TERN_ROLE_MATRIX

static const tern_tensor_row tensors[] = {
    CONV("enc.conv1", "model.encoder.conv1"),
    CONV("enc.conv2", "model.encoder.conv2"),
    TERN_MATRIX("enc.position_embd", "model.encoder.embed_positions", TERN_ROLE_VECTOR),
    ATTENTION("enc.blk.%d.attn", ENCODER "self_attn", MATRIX, MATRIX, MATRIX, MATRIX),
    FEED_FORWARD("enc.blk.%d.", ENCODER, MATRIX, MATRIX),
    BIASED("enc.output_norm", "model.encoder.layer_norm", TERN_ROLE_VECTOR),
    TERN_MATRIX("token_embd", "model.decoder.embed_tokens", TERN_ROLE_TABLE),
    TERN_MATRIX("output", "proj_out", TERN_ROLE_HEAD),
    TERN_MATRIX("position_embd", "model.decoder.embed_positions", TERN_ROLE_VECTOR),
    ATTENTION("blk.%d.attn", DECODER "self_attn", TERN_ROLE_Q, TERN_ROLE_K, TERN_ROLE_V,
              TERN_ROLE_O),
    ATTENTION("blk.%d.cross_attn", DECODER "encoder_attn", MATRIX, MATRIX, MATRIX, MATRIX),
    FEED_FORWARD("blk.%d.", DECODER, TERN_ROLE_UP, TERN_ROLE_DOWN),
    BIASED("output_norm", "model.decoder.layer_norm", TERN_ROLE_VECTOR),
    TERN_ROWS_END,
};

const tern_arch tern_arch_whisper = {
    .name = "whisper",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "WhisperForConditionalGeneration",
    .hf_eps = "layer_norm_eps",
    .hf_act = "activation_function",
    .hf_renamed = renamed,
    .tensors = tensors,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS({.name = "decoder", .build = build_decoder, .n_rows = N_SOURCE},
                          {.name = "encoder", .build = build_encoder, .n_rows = 2 * N_FRAMES}),
    .act = TERN_ACTIVATION_GELU,
    .media = &(const tern_arch_media){.recognizer = &recognizer},
};
