// Qwen3.5's tower: pictures become rows that stand in a text like those of its tokens.
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
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
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

tern_status tern_build_qwen_vision(tern_graph *g, const tern_config *config, tern_error *err) {
    const tern_vision *v = &config->vision;
    const tern_config c = {.n_embd = v->n_embd,
                           .n_ff = v->n_ff,
                           .n_heads = v->n_heads,
                           .head_dim = v->n_embd / v->n_heads,
                           .rms_eps = 1e-6,
                           .act = v->act};
    tern_dim tokens = tern_g_dim(g, "tokens");
    int64_t n = tern_vision_patch_cols(v);
    char name[32];
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

// ---- Config ------------------------------------------------------------------------------------

static tern_status need(const tern_config_source *s, const char *name, int64_t most, int64_t *out,
                        tern_error *err) {
    return tern_config_need(s, NULL, name, 1, most, out, err);
}

// Of a folder that has the tower; others are models of text, whatever their config says.
tern_status tern_config_qwen_vision(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_vision v = {0};
    int64_t places, frames = TERN_VISION_FRAMES, colors = 3;
    const tern_json *deep = tern_config_json(s, "vision_config.deepstack_visual_indexes");
    bool there = tern_model_tensor(s->file, s->arch, "v.patch_embd.weight") != NULL;
    if (s->file->kind == TERN_FILE_GGUF || !there) return TERN_OK;
    if (tern_json_is(deep, TERN_JSON_ARRAY) && tern_json_first(&s->file->config, deep))
        return TERN_OK; // rows of several layers are another model's
    TERN_TRY(need(s, "vision_config.depth", 1000, &v.n_layers, err));
    TERN_TRY(need(s, "vision_config.hidden_size", 65536, &v.n_embd, err));
    TERN_TRY(need(s, "vision_config.intermediate_size", 1 << 20, &v.n_ff, err));
    TERN_TRY(need(s, "vision_config.num_heads", 4096, &v.n_heads, err));
    TERN_TRY(need(s, "vision_config.patch_size", 64, &v.n_patch, err));
    TERN_TRY(need(s, "vision_config.spatial_merge_size", 8, &v.n_merge, err));
    TERN_TRY(need(s, "vision_config.num_position_embeddings", 1 << 20, &places, err));
    TERN_TRY(need(s, "vision_config.out_hidden_size", 1 << 20, &v.n_out, err));
    TERN_TRY(tern_config_need(s, NULL, "image_token_id", 0, c->n_vocab - 1, &v.picture_id, err));
    v.video_id = v.start_id = v.end_id = -1;
    tern_config_int(s, NULL, "video_token_id", &v.video_id);
    tern_config_int(s, NULL, "vision_start_token_id", &v.start_id);
    tern_config_int(s, NULL, "vision_end_token_id", &v.end_id);
    tern_config_int(s, NULL, "vision_config.temporal_patch_size", &frames);
    tern_config_int(s, NULL, "vision_config.in_channels", &colors);
    tern_str act = tern_config_str(s, NULL, "vision_config.hidden_act");
    v.act = TERN_ACTIVATION_GELU_TANH;
    if (act.ptr && !tern_act_from_name(act, &v.act))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "config.json: vision_config.hidden_act is "
                         "\"%.*s\", which is not known", (int)(act.len < 40 ? act.len : 40),
                         act.ptr);
    while (v.n_side * v.n_side < places) v.n_side++;
    if (v.n_side * v.n_side != places || v.n_embd % v.n_heads || v.n_embd / v.n_heads % 4 ||
        v.n_embd / v.n_heads > TERN_HEAD_DIM_MAX || v.n_out != c->n_embd ||
        frames != TERN_VISION_FRAMES || colors != 3)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config.json: vision_config: a grid of %" PRId64 " places, %" PRId64
                         " dimensions of %" PRId64 " heads, rows of %" PRId64
                         ", patches of %" PRId64 " frames and %" PRId64
                         " colours do not fit together",
                         places, v.n_embd, v.n_heads, v.n_out, frames, colors);
    c->vision = v;
    return TERN_OK;
}
