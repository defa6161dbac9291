// The tower of Qwen3-VL and Qwen3.5: pictures become rows that stand in a text like those of its
// tokens.
//
//   x = patches Wpatch + b + a learnt vector of the place
//   per layer:  x = x + attention(norm(x)) Wo + b;  x = x + act(norm(x) Wup + b) Wdown + b
//   rows = gelu(four norm(x) in one W0 + b) W2 + b
//
// A patch is a square of two frames; a picture is both. The vectors of places are a square grid,
// which lies over every picture whatever its shape is: a patch takes a mixture of the four nearest.
// RoPE turns a half of a head's pairs by the row and the others by the column. Every patch sees all
// of its picture, so one layer's keys and values are forgotten when the next one begins: all layers
// share one state. Patches come in blocks of 2 x 2, which become a row in the end.
//
// Qwen3-VL reads the rows of some layers in between, too ("deepstack"): merged likewise, they are
// added to the picture's rows in the text after its first layers, one set a layer.
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "models/config_fields.h"
#include "models/family.h"

static tern_vid attend(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t n = c->n_embd;
    const tern_rope_attrs rope = {.n_rot = (int32_t)c->head_dim,
                                  .halves = true,
                                  .base = 10000,
                                  .factor = 1,
                                  .axes = TERN_ROPE_PLANE};
    tern_vid qkv = tern_block_biased(g, c, x, "v.blk.%d.attn_qkv", 3 * n, n);
    tern_vid q = tern_g_columns(g, qkv, 3 * n, 0, n);
    tern_vid k = tern_g_columns(g, qkv, 3 * n, n, n);
    tern_vid v = tern_g_columns(g, qkv, 3 * n, 2 * n, n);
    q = tern_g_rope(g, q, -1, (int32_t)c->n_heads, (int32_t)c->head_dim, &rope);
    k = tern_g_rope(g, k, -1, (int32_t)c->n_heads, (int32_t)c->head_dim, &rope);
    tern_vid keys = tern_g_positional_state(g, "v.cache_k", n, 0);
    tern_vid values = tern_g_positional_state(g, "v.cache_v", n, 0);
    tern_g_kv_store(g, k, v, keys, values, (int32_t)c->n_heads, (int32_t)c->head_dim);
    tern_vid o = tern_g_attention(g, q, keys, values,
                                  &(tern_attention_attrs){.n_heads = (int32_t)c->n_heads,
                                                          .n_kv_heads = (int32_t)c->n_heads,
                                                          .head_dim = (int32_t)c->head_dim,
                                                          .scale = 1 / sqrtf((float)c->head_dim),
                                                          .bidirectional = true});
    return tern_block_biased(g, c, o, "v.blk.%d.attn_out", n, n);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    x = tern_g_add(g, x, attend(g, c, tern_block_layer_norm(g, c, x, "v.blk.%d.ln1", true)));
    tern_vid f = tern_block_layer_norm(g, c, x, "v.blk.%d.ln2", true);
    f = tern_block_biased(g, c, f, "v.blk.%d.ffn_up", c->n_ff, c->n_embd);
    f = tern_g_act(g, f, c->act);
    return tern_g_add(g, x, tern_block_biased(g, c, f, "v.blk.%d.ffn_down", c->n_embd, c->n_ff));
}

static tern_vid merge(tern_graph *g, const tern_config *c, const tern_vision *v, tern_vid x) {
    int64_t n = c->n_embd * v->n_merge * v->n_merge;
    x = tern_block_layer_norm(g, c, x, "v.post_ln", true);
    x = tern_g_merge(g, x, (int32_t)(v->n_merge * v->n_merge));
    x = tern_g_act(g, tern_block_biased(g, c, x, "mm.0", n, n), TERN_ACTIVATION_GELU);
    return tern_block_biased(g, c, x, "mm.2", v->n_out, n);
}

// The same of a layer in between: the norm is that of all patches of a block together.
static tern_vid merge_deep(tern_graph *g, const tern_config *c, const tern_vision *v, tern_vid x) {
    tern_config block = *c;
    int64_t n = block.n_embd = c->n_embd * v->n_merge * v->n_merge;
    x = tern_g_merge(g, x, (int32_t)(v->n_merge * v->n_merge));
    x = tern_block_layer_norm(g, &block, x, "v.deepstack.%d.norm", true);
    x = tern_block_biased(g, c, x, "v.deepstack.%d.fc1", n, n);
    x = tern_g_act(g, x, TERN_ACTIVATION_GELU);
    return tern_block_biased(g, c, x, "v.deepstack.%d.fc2", v->n_out, n);
}

tern_status tern_build_qwen_vision(tern_graph *g, const tern_config *config, tern_error *err) {
    const tern_vision *v = &config->vision;
    const tern_config c = {.n_embd = v->n_embd,
                           .n_ff = v->n_ff,
                           .n_heads = v->n_heads,
                           .head_dim = v->n_embd / v->n_heads,
                           .rms_eps = v->eps,
                           .act = v->act};
    tern_dim tokens = tern_g_dim(g, "tokens");
    int64_t n = tern_vision_patch_cols(v);
    char name[32];
    tern_vid deep[TERN_VISION_DEEP];
    int64_t n_deep = 0;
    tern_vid patches = tern_g_input(g, "patches", tokens, n, TERN_VALUE_F32);
    tern_vid points = tern_g_input(g, "points", tokens, 2, TERN_VALUE_F32);
    tern_g_input(g, "places", tokens, 3, TERN_VALUE_I32); // RoPE's
    tern_vid x = tern_block_biased(g, &c, patches, "v.patch_embd", c.n_embd, n);
    x = tern_g_add_point(g, x, points,
                         tern_g_array(g, "v.position_embd.weight", v->n_side * v->n_side,
                                      c.n_embd));
    for (int64_t i = 0; i < v->n_layers && !g->failed; i++) {
        snprintf(name, sizeof name, "patches.%d", (int)i);
        tern_g_call(g, x, name);
        g->layer = (int32_t)i;
        x = layer(g, &c, x);
        if (n_deep < v->n_deep && v->deep[n_deep] == i) deep[n_deep++] = x;
    }
    for (int64_t i = 0; i < n_deep; i++) {
        g->layer = (int32_t)i;
        snprintf(name, sizeof name, TERN_VISION_DEEP_NAME, (int)i);
        tern_g_output(g, merge_deep(g, &c, v, deep[i]), name);
    }
    g->layer = -1;
    snprintf(name, sizeof name, "patches.%d", (int)v->n_layers);
    tern_g_call(g, x, name);
    tern_g_output(g, merge(g, &c, v, x), "rows");
    return tern_graph_check(g, err);
}

int64_t tern_vision_patch_cols(const tern_vision *v) {
    return TERN_VISION_FRAMES * 3 * v->n_patch * v->n_patch;
}

bool tern_config_sees(const tern_config *c) { return c->vision.n_layers > 0; }

// ---- In a text ---------------------------------------------------------------------------------

int64_t tern_config_given_cols(const tern_config *c) {
    return c->n_embd * (1 + c->vision.n_deep);
}

tern_vid tern_block_given(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    tern_dim tokens = tern_g_dim(g, "tokens");
    tern_vid rows = tern_g_input(g, "rows", tokens, tern_config_given_cols(c), TERN_VALUE_F32);
    tern_vid places = tern_g_input(g, "places", tokens, 3, TERN_VALUE_I32); // RoPE's
    if (places >= 0) g->values[places].is_optional = true;
    return tern_g_replace(g, x, rows, ids);
}

tern_vid tern_block_deep(tern_graph *g, const tern_config *c, tern_vid x) {
    if (!tern_config_sees(c) || g->layer >= c->vision.n_deep) return x;
    return tern_g_add_given(g, x, tern_graph_find(g, "rows"), tern_graph_find(g, "ids"),
                            (1 + g->layer) * c->n_embd);
}

// ---- Config ------------------------------------------------------------------------------------

#define CLIP      "clip.vision."
#define PROJECTOR "qwen3vl_merger"
#define OWN       "tern.vision." // what llama.cpp's files do not say

// Tokens of places: members of config.json, names in the vocabulary, where a picture's is needed.
static const struct {
    const char *hf, *text;
    size_t offset;
} tokens[] = {
    {"image_token_id", "<|image_pad|>", offsetof(tern_vision, picture_id)},
    {"video_token_id", "<|video_pad|>", offsetof(tern_vision, video_id)},
    {"vision_start_token_id", "<|vision_start|>", offsetof(tern_vision, start_id)},
    {"vision_end_token_id", "<|vision_end|>", offsetof(tern_vision, end_id)},
};
#define N_TOKENS (sizeof tokens / sizeof *tokens)

static int64_t *token(tern_vision *v, size_t i) {
    return (int64_t *)((char *)v + tokens[i].offset);
}

// Sizes: keys after "clip.vision.", members of vision_config.
static const struct {
    const char *gguf, *hf;
    int64_t most;
    size_t offset;
} sizes[] = {
    {"block_count", "depth", 1000, offsetof(tern_vision, n_layers)},
    {"embedding_length", "hidden_size", 65536, offsetof(tern_vision, n_embd)},
    {"feed_forward_length", "intermediate_size", 1 << 20, offsetof(tern_vision, n_ff)},
    {"attention.head_count", "num_heads", 4096, offsetof(tern_vision, n_heads)},
    {"patch_size", "patch_size", 64, offsetof(tern_vision, n_patch)},
    {"spatial_merge_size", "spatial_merge_size", 8, offsetof(tern_vision, n_merge)},
    {"projection_dim", "out_hidden_size", 1 << 20, offsetof(tern_vision, n_out)},
};
#define N_SIZES (sizeof sizes / sizeof *sizes)

static int64_t *size(tern_vision *v, size_t i) {
    return (int64_t *)((char *)v + sizes[i].offset);
}

static tern_status refuse_act(const char *where, tern_str act, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s is \"%.*s\", which is not known", where,
                     (int)(act.len < 40 ? act.len : 40), act.ptr);
}

// A layer that is read besides the last one.
static tern_status add_deep(tern_vision *v, int64_t layer, tern_error *err) {
    bool fits = v->n_deep < TERN_VISION_DEEP && layer >= 0 && layer < v->n_layers &&
                (!v->n_deep || layer > v->deep[v->n_deep - 1]);
    if (fits) v->deep[v->n_deep++] = (int32_t)layer;
    if (fits) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "deepstack layers: expected at most %d of %" PRId64 ", in their order",
                     TERN_VISION_DEEP, v->n_layers);
}

static tern_status read_json_deep(const tern_config_source *s, tern_vision *v, tern_error *err) {
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = tern_config_json(s, "vision_config.deepstack_visual_indexes");
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return TERN_OK;
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e))
        TERN_TRY(add_deep(v, tern_json_int(e, -1), err));
    return TERN_OK;
}

static tern_status read_clip_deep(const tern_file *tower, tern_vision *v, tern_error *err) {
    const tern_meta *flags = tern_file_meta(tower, CLIP "is_deepstack_layers");
    double flag;
    for (int64_t i = 0; flags && i < v->n_layers; i++)
        if (tern_meta_element(flags, (uint64_t)i, &flag) && flag != 0)
            TERN_TRY(add_deep(v, i, err));
    return TERN_OK;
}

// *places: of the grid.
static tern_status read_json(const tern_config_source *s, tern_vision *v, int64_t *places,
                             tern_error *err) {
    int64_t frames = TERN_VISION_FRAMES, colors = 3;
    char name[64];
    for (size_t i = 0; i < N_SIZES; i++) {
        snprintf(name, sizeof name, "vision_config.%s", sizes[i].hf);
        TERN_TRY(tern_config_need(s, NULL, name, 1, sizes[i].most, size(v, i), err));
    }
    TERN_TRY(tern_config_need(s, NULL, "vision_config.num_position_embeddings", 1, 1 << 20, places,
                              err));
    for (size_t i = 0; i < N_TOKENS; i++) tern_config_int(s, NULL, tokens[i].hf, token(v, i));
    tern_config_int(s, NULL, "vision_config.temporal_patch_size", &frames);
    tern_config_int(s, NULL, "vision_config.in_channels", &colors);
    if (frames != TERN_VISION_FRAMES || colors != 3)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: vision_config: patches of %" PRId64 " frames and %" PRId64
                         " colours are not supported", frames, colors);
    tern_str act = tern_config_str(s, NULL, "vision_config.hidden_act");
    if (act.ptr && !tern_act_from_name(act, &v->act))
        return refuse_act("config.json: vision_config.hidden_act", act, err);
    return read_json_deep(s, v, err);
}

// A token by its name, as llama.cpp finds it; files without a vocabulary may say its number.
static void find_token(const tern_file *file, size_t i, int64_t *out) {
    const tern_meta *list = tern_file_meta(file, "tokenizer.ggml.tokens");
    char key[64];
    snprintf(key, sizeof key, OWN "%s", tokens[i].hf);
    tern_file_meta_int(file->tower, key, out);
    for (uint64_t t = 0; list && list->strings && t < list->n; t++)
        if (tern_str_is(list->strings[t], tokens[i].text)) *out = (int64_t)t;
}

// use_gelu is the one with tanh.
static tern_status read_gguf_act(const tern_file *tower, tern_vision *v, tern_error *err) {
    bool gelu = false, silu = false;
    tern_str act = {NULL, 0};
    tern_file_meta_bool(tower, "clip.use_gelu", &gelu);
    tern_file_meta_bool(tower, "clip.use_silu", &silu);
    if (silu) v->act = TERN_ACTIVATION_SILU;
    if (tern_file_meta_str(tower, OWN "hidden_act", &act)) {
        if (!tern_act_from_name(act, &v->act)) return refuse_act(OWN "hidden_act", act, err);
    } else if (!gelu && !silu) {
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "neither clip.use_gelu nor clip.use_silu: "
                         "another activation is not supported");
    }
    return TERN_OK;
}

static tern_status read_clip(const tern_config_source *s, tern_vision *v, int64_t *places,
                             tern_error *err) {
    const tern_file *tower = s->file->tower;
    const tern_tensor *grid = tern_file_tensor(tower, "v.position_embd.weight");
    tern_str projector = {NULL, 0};
    char key[64];
    tern_file_meta_str(tower, "clip.projector_type", &projector);
    tern_file_meta_str(tower, CLIP "projector_type", &projector);
    if (!tern_str_is(projector, PROJECTOR))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "clip.projector_type is \"%.*s\": a %s sees with " PROJECTOR,
                         (int)(projector.len < 40 ? projector.len : 40),
                         projector.ptr ? projector.ptr : "", s->arch->name);
    for (size_t i = 0; i < N_SIZES; i++) {
        int64_t *value = size(v, i);
        snprintf(key, sizeof key, CLIP "%s", sizes[i].gguf);
        tern_file_meta_int(tower, key, value);
        if (*value < 1 || *value > sizes[i].most)
            return tern_fail(err, TERN_ERR_FORMAT, "%s is missing, or not 1 to %" PRId64, key,
                             sizes[i].most);
    }
    for (size_t i = 0; i < N_TOKENS; i++) find_token(s->file, i, token(v, i));
    tern_file_meta_float(tower, CLIP "attention.layer_norm_epsilon", &v->eps);
    if (!(v->eps >= 0 && v->eps < 1))
        return tern_fail(err, TERN_ERR_FORMAT, CLIP "attention.layer_norm_epsilon is %g", v->eps);
    *places = grid ? (int64_t)grid->ne[1] : 0;
    TERN_TRY(read_clip_deep(tower, v, err));
    return read_gguf_act(tower, v, err);
}

static tern_status check(const tern_vision *v, const tern_config *c, int64_t places,
                         tern_error *err) {
    if (v->n_side * v->n_side != places || !places || v->n_embd % v->n_heads ||
        v->n_embd / v->n_heads % 4 || v->n_embd / v->n_heads > TERN_HEAD_DIM_MAX ||
        v->n_out != c->n_embd)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "a grid of %" PRId64 " places, %" PRId64 " dimensions of %" PRId64
                         " heads and rows of %" PRId64 " for a text of %" PRId64
                         " do not fit together",
                         places, v->n_embd, v->n_heads, v->n_out, c->n_embd);
    if (v->picture_id < 0 || v->picture_id >= c->n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "image_token_id is %" PRId64 ", and no <|image_pad|> is in the vocabulary "
                         "of %" PRId64 " tokens", v->picture_id, c->n_vocab);
    if (v->n_deep > c->n_layers)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "rows of %" PRId64 " layers of the tower for %" PRId64 " of the text",
                         v->n_deep, c->n_layers);
    return TERN_OK;
}

void tern_config_rope_sections(const tern_config *c, int32_t out[4]) {
    const int32_t *said = c->rope.sections;
    int32_t n = c->rope.n_rot / 2;
    bool is_said = said[0] || said[1] || said[2];
    out[0] = is_said ? said[0] : (n + 2) / 3;
    out[1] = is_said ? said[1] : (n + 1) / 3;
    out[2] = is_said ? said[2] : n / 3;
    out[3] = 0;
}

static void read_sections(const tern_config_source *s, tern_config *c) {
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = tern_config_json(s, "rope_parameters.mrope_section");
    int32_t shares[4];
    char key[96];
    double share;
    int i = 0;
    if (!list) list = tern_config_json(s, "rope_scaling.mrope_section");
    tern_config_rope_sections(c, shares);
    for (const tern_json *e = tern_json_first(doc, list); e && i < 3;
         e = tern_json_next(doc, list, e))
        shares[i++] = (int32_t)tern_json_int(e, 0);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", s->prefix);
    const tern_meta *said = s->file->kind == TERN_FILE_GGUF ? tern_file_meta(s->file, key) : NULL;
    for (i = 0; said && i < 3; i++)
        if (tern_meta_element(said, (uint64_t)i, &share) && share >= 0 && share <= 65536)
            shares[i] = (int32_t)share;
    for (i = 0; i < 3; i++) c->rope.sections[i] = shares[i];
}

// Of files that have the tower; others are models of text, whatever their config says.
tern_status tern_config_qwen_vision(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_file *tower = s->file->tower;
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t places = 0;
    tern_vision v = {.act = TERN_ACTIVATION_GELU_TANH, .eps = 1e-6};
    for (size_t i = 0; i < N_TOKENS; i++) *token(&v, i) = -1;
    if (gguf ? !tower : !tern_model_tensor(s->file, s->arch, "v.patch_embd.weight")) return TERN_OK;
    tern_status status = gguf ? read_clip(s, &v, &places, err) : read_json(s, &v, &places, err);
    while (v.n_side * v.n_side < places) v.n_side++;
    if (status == TERN_OK) status = check(&v, c, places, err);
    if (status == TERN_OK && v.n_deep && !s->arch->reads_deep)
        status = tern_fail(err, TERN_ERR_UNSUPPORTED,
                           "a %s reads the tower's last rows alone, and "
                           "not those of %" PRId64 " layers before it",
                           s->arch->name, v.n_deep);
    if (status == TERN_OK) {
        c->vision = v;
        c->rope.axes = TERN_ROPE_MIXED;
        read_sections(s, c);
    }
    if (status == TERN_OK || !gguf) return status;
    return tern_fail_prefix(err, status, tower->path);
}

bool tern_model_fits_tower(const tern_arch *arch, const tern_config *c, const tern_file *tower) {
    tern_str name = {NULL, 0}, projector = {NULL, 0};
    int64_t n_out = 0;
    bool sees = false, deep = false;
    const tern_meta *flags = tern_file_meta(tower, CLIP "is_deepstack_layers");
    double flag;
    for (uint64_t i = 0; flags && i < flags->n; i++)
        deep |= tern_meta_element(flags, i, &flag) && flag != 0;
    for (const tern_graph_row *row = arch->graphs; row->name; row++)
        sees |= strcmp(row->name, "vision") == 0;
    tern_file_meta_str(tower, "general.architecture", &name);
    tern_file_meta_str(tower, "clip.projector_type", &projector);
    tern_file_meta_int(tower, CLIP "projection_dim", &n_out);
    return sees && tern_str_is(name, "clip") && tern_str_is(projector, PROJECTOR) &&
           n_out == c->n_embd && deep == arch->reads_deep;
}

// ---- Writing -----------------------------------------------------------------------------------

tern_status tern_config_write_sections(tern_gguf_writer *w, const char *name,
                                       const tern_config *c) {
    int32_t shares[4];
    char key[160];
    tern_config_rope_sections(c, shares);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", name);
    return tern_gguf_put_array(w, key, TERN_META_I32, shares, 4);
}

tern_status tern_config_write_vision(tern_gguf_writer *w, const tern_config *c) {
    tern_vision v = c->vision;
    uint8_t deep[TERN_LAYERS_MAX] = {0};
    char key[64];
    const char *act = tern_act_name(v.act);
    TERN_TRY(tern_gguf_put_int(w, "clip.has_vision_encoder", TERN_META_BOOL, 1));
    TERN_TRY(tern_gguf_put_str(w, "clip.projector_type", TERN_STR(PROJECTOR)));
    TERN_TRY(tern_gguf_put_int(w, "clip.use_gelu", TERN_META_BOOL,
                               v.act == TERN_ACTIVATION_GELU_TANH));
    if (v.act != TERN_ACTIVATION_GELU_TANH)
        TERN_TRY(tern_gguf_put_str(w, OWN "hidden_act", (tern_str){act, strlen(act)}));
    TERN_TRY(tern_gguf_put_int(w, CLIP "image_size", TERN_META_U32, v.n_side * v.n_patch));
    for (size_t i = 0; i < N_SIZES; i++) {
        snprintf(key, sizeof key, CLIP "%s", sizes[i].gguf);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, *size(&v, i)));
    }
    for (int64_t i = 0; i < v.n_deep; i++) deep[v.deep[i]] = 1;
    TERN_TRY(tern_gguf_put_array(w, CLIP "is_deepstack_layers", TERN_META_BOOL, deep,
                                 (size_t)v.n_layers));
    for (size_t i = 0; i < N_TOKENS; i++) {
        snprintf(key, sizeof key, OWN "%s", tokens[i].hf);
        if (*token(&v, i) >= 0)
            TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, *token(&v, i)));
    }
    return tern_gguf_put_f32(w, CLIP "attention.layer_norm_epsilon", (float)v.eps);
}
