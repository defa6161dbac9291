// The common part of vision-language models' towers: images become rows that stand in a text like
// its tokens' rows.
//
//   x = patches Wpatch + b + a learned position vector
//   per layer:  x = x + attention(norm(x)) Wo + b;  x = x + act(norm(x) Wup + b) Wdown + b
//
// Every patch attends to all of its image, so one layer's keys and values are not needed after it:
// all layers share one state. The position vectors are a square grid, which is stretched over every
// image, whatever its shape.
//
// How the last rows are processed, and the names in files, differ by tower: qwen_vision.c,
// siglip.c.
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "models/core/config_fields.h"
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

tern_config tern_vision_config(const tern_vision *v) {
    return (tern_config){.n_embd = v->n_embd,
                         .n_ff = v->n_ff,
                         .n_heads = v->n_heads,
                         .head_dim = v->n_embd / v->n_heads,
                         .rms_eps = v->eps,
                         .act = v->act};
}

int64_t tern_vision_patch_cols(const tern_vision *v) {
    return v->tower->n_frames * 3 * v->n_patch * v->n_patch;
}

int64_t tern_vision_point_cols(const tern_vision *v) { return v->tower->widens ? 4 : 2; }

tern_vid tern_block_patches(tern_graph *g, const tern_config *c, const tern_vision *v) {
    tern_dim tokens = tern_g_dim(g, "tokens");
    int64_t n = tern_vision_patch_cols(v);
    tern_vid patches = tern_g_input(g, "patches", tokens, n, TERN_VALUE_F32);
    tern_vid points = tern_g_input(g, "points", tokens, tern_vision_point_cols(v), TERN_VALUE_F32);
    tern_vid x = tern_block_biased(g, c, patches, "v.patch_embd", c->n_embd, n);
    return tern_g_add_point(
        g, x, points, tern_g_array(g, "v.position_embd.weight", v->n_side * v->n_side, c->n_embd));
}

typedef struct projections {
    tern_vid q, k, v;
} projections;

static projections project(tern_graph *g, const tern_config *c, tern_vid x, bool apart) {
    int64_t n = c->n_embd;
    if (apart)
        return (projections){tern_block_biased(g, c, x, "v.blk.%d.attn_q", n, n),
                             tern_block_biased(g, c, x, "v.blk.%d.attn_k", n, n),
                             tern_block_biased(g, c, x, "v.blk.%d.attn_v", n, n)};
    tern_vid all = tern_block_biased(g, c, x, "v.blk.%d.attn_qkv", 3 * n, n);
    return (projections){tern_g_columns(g, all, 3 * n, 0, n), tern_g_columns(g, all, 3 * n, n, n),
                         tern_g_columns(g, all, 3 * n, 2 * n, n)};
}

static tern_vid attend(tern_graph *g, const tern_config *c, tern_vid x, const tern_tower *tower) {
    const tern_rope_attrs rope = {.n_rot = (int32_t)c->head_dim,
                                  .halves = true,
                                  .base = 10000,
                                  .factor = 1,
                                  .axes = TERN_ROPE_PLANE};
    int64_t n = c->n_embd;
    projections p = project(g, c, x, tower->apart);
    if (tower->turns) {
        p.q = tern_g_rope(g, p.q, -1, (int32_t)c->n_heads, (int32_t)c->head_dim, &rope);
        p.k = tern_g_rope(g, p.k, -1, (int32_t)c->n_heads, (int32_t)c->head_dim, &rope);
    }
    tern_vid keys = tern_g_positional_state(g, "v.cache_k", n, 0);
    tern_vid values = tern_g_positional_state(g, "v.cache_v", n, 0);
    tern_g_kv_store(g, p.k, p.v, keys, values, (int32_t)c->n_heads, (int32_t)c->head_dim);
    tern_vid o = tern_g_attention(g, p.q, keys, values,
                                  &(tern_attention_attrs){.n_heads = (int32_t)c->n_heads,
                                                          .n_kv_heads = (int32_t)c->n_heads,
                                                          .head_dim = (int32_t)c->head_dim,
                                                          .scale = 1 / sqrtf((float)c->head_dim),
                                                          .bidirectional = true});
    return tern_block_biased(g, c, o, "v.blk.%d.attn_out", n, n);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x, const tern_tower *tower) {
    tern_vid a = tern_block_layer_norm(g, c, x, "v.blk.%d.ln1", true);
    x = tern_g_add(g, x, attend(g, c, a, tower));
    tern_vid f = tern_block_layer_norm(g, c, x, "v.blk.%d.ln2", true);
    f = tern_block_biased(g, c, f, "v.blk.%d.ffn_up", c->n_ff, c->n_embd);
    f = tern_g_act(g, f, c->act);
    return tern_g_add(g, x, tern_block_biased(g, c, f, "v.blk.%d.ffn_down", c->n_embd, c->n_ff));
}

tern_vid tern_block_seen(tern_graph *g, const tern_config *c, const tern_vision *v, tern_vid x,
                         tern_vid deep[TERN_VISION_DEEP]) {
    char name[32];
    int64_t n_deep = 0;
    for (int64_t i = 0; i < v->n_layers && !g->failed; i++) {
        snprintf(name, sizeof name, "patches.%d", (int)i);
        tern_g_call(g, x, name);
        g->layer = (int32_t)i;
        x = layer(g, c, x, v->tower);
        if (n_deep < v->n_deep && v->deep[n_deep] == i) deep[n_deep++] = x;
    }
    g->layer = -1;
    snprintf(name, sizeof name, "patches.%d", (int)v->n_layers);
    tern_g_call(g, x, name);
    return x;
}

bool tern_config_has_vision(const tern_config *c) { return c->vision.n_layers > 0; }

bool tern_config_both_ways(const tern_config *c) {
    return tern_config_has_vision(c) && c->vision.tower->both_ways;
}

// ---- In a text ---------------------------------------------------------------------------------

int64_t tern_config_given_cols(const tern_config *c) { return c->n_embd * (1 + c->vision.n_deep); }

tern_vid tern_block_given(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    tern_dim tokens = tern_g_dim(g, "tokens");
    tern_vid rows = tern_g_input(g, "rows", tokens, tern_config_given_cols(c), TERN_VALUE_F32);
    if (c->rope.axes == TERN_ROPE_MIXED) {
        tern_vid places = tern_g_input(g, "places", tokens, 3, TERN_VALUE_I32); // RoPE's
        if (places >= 0) g->values[places].is_optional = true;
    }
    return tern_g_replace(g, x, rows, ids);
}

tern_vid tern_block_deep(tern_graph *g, const tern_config *c, tern_vid x) {
    if (!tern_config_has_vision(c) || g->layer >= c->vision.n_deep) return x;
    return tern_g_add_given(g, x, tern_graph_find(g, "rows"), tern_graph_find(g, "ids"),
                            (1 + g->layer) * c->n_embd);
}

// ---- Config ------------------------------------------------------------------------------------

static int64_t *number(tern_vision *v, size_t offset) { return (int64_t *)((char *)v + offset); }

static tern_status refuse_act(const char *where, tern_str act, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s is \"%.*s\", which is not known", where,
                     (int)(act.len < 40 ? act.len : 40), act.ptr);
}

static tern_status read_json(const tern_config_source *s, tern_vision *v, tern_error *err) {
    const tern_tower *t = v->tower;
    int64_t frames = t->n_frames, colors = 3;
    for (const tern_tower_size *f = t->sizes; f->gguf; f++) {
        int64_t *value = number(v, f->offset);
        *value = f->usual;
        if (!f->hf) continue;
        if (!f->usual || tern_config_json(s, f->hf))
            TERN_TRY(tern_config_need(s, NULL, f->hf, 1, f->most, value, err));
    }
    for (const tern_tower_token *k = t->tokens; k->text; k++) {
        if (k->hf_also) tern_config_int(s, NULL, k->hf_also, number(v, k->offset));
        tern_config_int(s, NULL, k->hf, number(v, k->offset));
    }
    tern_config_int(s, NULL, "vision_config.temporal_patch_size", &frames);
    tern_config_int(s, NULL, "vision_config.in_channels", &colors);
    tern_config_int(s, NULL, "vision_config.num_channels", &colors);
    tern_config_float(s, NULL, "vision_config.layer_norm_eps", &v->eps);
    if (frames != t->n_frames || colors != 3)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: vision_config: patches of %" PRId64 " frames and %" PRId64
                         " colours are not supported",
                         frames, colors);
    tern_str act = tern_config_str(s, NULL, "vision_config.hidden_act");
    if (act.ptr && !tern_act_from_name(act, &v->act))
        return refuse_act("config.json: vision_config.hidden_act", act, err);
    return TERN_OK;
}

// A token by its name, as llama.cpp finds it; files without a vocabulary may have its number.
static void find_token(const tern_file *file, const tern_tower_token *token, int64_t *out) {
    const tern_meta *list = tern_file_meta(file, "tokenizer.ggml.tokens");
    char key[64];
    snprintf(key, sizeof key, TERN_TOWER_OWN "%s", token->hf);
    tern_file_meta_int(file->tower, key, out);
    for (uint64_t t = 0; list && list->strings && t < list->n; t++)
        if (tern_str_is(list->strings[t], token->text)) *out = (int64_t)t;
}

// use_gelu is the one with tanh.
static tern_status read_gguf_act(const tern_file *tower, tern_vision *v, tern_error *err) {
    bool gelu = false, silu = false;
    tern_str act = {NULL, 0};
    tern_file_meta_bool(tower, "clip.use_gelu", &gelu);
    tern_file_meta_bool(tower, "clip.use_silu", &silu);
    if (silu) v->act = TERN_ACTIVATION_SILU;
    if (tern_file_meta_str(tower, TERN_TOWER_OWN "hidden_act", &act)) {
        if (!tern_act_from_name(act, &v->act))
            return refuse_act(TERN_TOWER_OWN "hidden_act", act, err);
    } else if (!gelu && !silu) {
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "neither clip.use_gelu nor clip.use_silu: another activation is not supported");
    }
    return TERN_OK;
}

static tern_status read_clip(const tern_config_source *s, tern_vision *v, tern_error *err) {
    const tern_file *tower = s->file->tower;
    tern_str projector = tern_file_projector(tower);
    char key[64];
    if (!tern_str_is(projector, v->tower->projector))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "clip.projector_type is \"%.*s\": a %s sees with %s",
                         (int)(projector.len < 40 ? projector.len : 40),
                         projector.ptr ? projector.ptr : "", s->arch->name, v->tower->projector);
    for (const tern_tower_size *f = v->tower->sizes; f->gguf; f++) {
        int64_t *value = number(v, f->offset);
        *value = f->usual;
        snprintf(key, sizeof key, TERN_CLIP "%s", f->gguf);
        tern_file_meta_int(tower, key, value);
        if (*value < 1 || *value > f->most)
            return tern_fail(err, TERN_ERR_FORMAT, "%s is missing, or not 1 to %" PRId64, key,
                             f->most);
    }
    for (const tern_tower_token *k = v->tower->tokens; k->text; k++)
        find_token(s->file, k, number(v, k->offset));
    tern_file_meta_float(tower, TERN_CLIP "attention.layer_norm_epsilon", &v->eps);
    return read_gguf_act(tower, v, err);
}

static tern_status check(const tern_config_source *s, const tern_vision *v, const tern_config *c,
                         int64_t places, tern_error *err) {
    const tern_tower_token *token = v->tower->tokens; // the first is an image's
    if (!(v->eps >= 0 && v->eps < 1))
        return tern_fail(err, TERN_ERR_FORMAT, "%slayer_norm_eps%s is %g",
                         s->file->tower ? TERN_CLIP "attention." : "vision_config.",
                         s->file->tower ? "ilon" : "", v->eps);
    if (v->n_side * v->n_side != places || !places || v->n_embd % v->n_heads ||
        v->n_embd / v->n_heads % 4 || v->n_embd / v->n_heads > TERN_HEAD_DIM_MAX ||
        v->n_out != c->n_embd)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "a grid of %" PRId64 " places, %" PRId64 " dimensions of %" PRId64
                         " heads and rows of %" PRId64 " for a text of %" PRId64
                         " do not fit together",
                         places, v->n_embd, v->n_heads, v->n_out, c->n_embd);
    if (v->image_id < 0 || v->image_id >= c->n_vocab)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s is %" PRId64 ", and no %s is in the vocabulary of %" PRId64 " tokens",
                         token->hf, v->image_id, token->text, c->n_vocab);
    if (v->n_deep > c->n_layers)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "rows of %" PRId64 " layers of the tower for %" PRId64 " of the text",
                         v->n_deep, c->n_layers);
    if (v->n_deep && !s->arch->reads_deep)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a %s reads the tower's last rows alone, and not those of %" PRId64
                         " layers before it",
                         s->arch->name, v->n_deep);
    return TERN_OK;
}

// For files with a tower; others are text models, whatever their config says.
tern_status tern_config_vision(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_file *tower = s->file->tower;
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    const tern_tensor *grid = tern_arch_tensor(s->file, s->arch, "v.position_embd.weight");
    int64_t places = grid && grid->ne[1] <= 1 << 20 ? (int64_t)grid->ne[1] : 0;
    if (!tern_tower_of(s->arch)) return TERN_OK;
    tern_vision v = {.tower = tern_tower_of(s->arch),
                     .act = TERN_ACTIVATION_GELU_TANH,
                     .eps = 1e-6,
                     .image_id = -1,
                     .video_id = -1,
                     .start_id = -1,
                     .end_id = -1,
                     .row_id = -1,
                     .after_id = -1};
    if (gguf ? !tower : !tern_arch_tensor(s->file, s->arch, "v.patch_embd.weight")) return TERN_OK;
    tern_status status = gguf ? read_clip(s, &v, err) : read_json(s, &v, err);
    while (v.n_side * v.n_side < places) v.n_side++;
    if (status == TERN_OK) status = v.tower->read(s, c, &v, err);
    if (status == TERN_OK) status = check(s, &v, c, places, err);
    if (status == TERN_OK) c->vision = v;
    if (status == TERN_OK || !gguf) return status;
    return tern_fail_prefix(err, status, tower->path);
}

// ---- Writing -----------------------------------------------------------------------------------

tern_status tern_config_write_vision(tern_gguf_writer *w, const tern_config *c) {
    tern_vision v = c->vision;
    const char *act = tern_act_name(v.act), *projector = v.tower->projector;
    char key[64];
    TERN_TRY(tern_gguf_put_int(w, "clip.has_vision_encoder", TERN_META_BOOL, 1));
    TERN_TRY(tern_gguf_put_str(w, "clip.projector_type", (tern_str){projector, strlen(projector)}));
    TERN_TRY(
        tern_gguf_put_int(w, "clip.use_gelu", TERN_META_BOOL, v.act == TERN_ACTIVATION_GELU_TANH));
    if (v.act != TERN_ACTIVATION_GELU_TANH)
        TERN_TRY(tern_gguf_put_str(w, TERN_TOWER_OWN "hidden_act", (tern_str){act, strlen(act)}));
    TERN_TRY(tern_gguf_put_int(w, TERN_CLIP "image_size", TERN_META_U32,
                               v.n_image ? v.n_image : v.n_side * v.n_patch));
    for (const tern_tower_size *f = v.tower->sizes; f->gguf; f++) {
        snprintf(key, sizeof key, TERN_CLIP "%s", f->gguf);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, *number(&v, f->offset)));
    }
    for (const tern_tower_token *k = v.tower->tokens; k->text; k++) {
        snprintf(key, sizeof key, TERN_TOWER_OWN "%s", k->hf);
        if (*number(&v, k->offset) >= 0)
            TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, *number(&v, k->offset)));
    }
    if (v.tower->write) TERN_TRY(v.tower->write(w, &v));
    return tern_gguf_put_f32(w, TERN_CLIP "attention.layer_norm_epsilon", (float)v.eps);
}

void tern_config_write_vision_json(const tern_arch *arch, const tern_config *c, const char *text,
                                   tern_strbuf *out) {
    static const char part[] = "vision_config.";
    const tern_seeing_names *names = arch->hf_sees;
    tern_vision v = c->vision;
    tern_strbuf own = {0};
    tern_strbuf_printf(out, "{\n\"architectures\": [\"%s\"],\n\"model_type\": \"%s\"",
                       names->class_name, names->type);
    tern_strbuf_printf(out, ",\n\"tie_word_embeddings\": %s", c->tied_head ? "true" : "false");
    tern_strbuf_printf(&own, "{\n  \"model_type\": \"%s\",\n  \"hidden_act\": \"%s\"",
                       names->vision_type, tern_act_name(v.act));
    if (v.tower->hf_places)
        tern_strbuf_printf(&own, ",\n  \"%s\": %" PRId64, v.tower->hf_places, v.n_side * v.n_side);
    for (const tern_tower_size *f = v.tower->sizes; f->gguf; f++) {
        bool is_own = f->hf && strncmp(f->hf, part, sizeof part - 1) == 0;
        if (f->hf)
            tern_strbuf_printf(is_own ? &own : out, ",\n%s\"%s\": %" PRId64, is_own ? "  " : "",
                               is_own ? f->hf + sizeof part - 1 : f->hf, *number(&v, f->offset));
    }
    for (const tern_tower_token *k = v.tower->tokens; k->text; k++)
        if (*number(&v, k->offset) >= 0)
            tern_strbuf_printf(out, ",\n\"%s\": %" PRId64, k->hf, *number(&v, k->offset));
    v.tower->write_json(&v, out, &own);
    size_t n = text ? strlen(text) : 0;
    while (n && text[n - 1] == '\n') n--;
    tern_strbuf_puts(out, ",\n\"text_config\": ");
    tern_strbuf_append(out, text, n);
    tern_strbuf_puts(out, ",\n\"vision_config\": ");
    tern_strbuf_append(out, own.ptr, own.len);
    tern_strbuf_puts(out, "\n}\n}\n");
    out->failed = out->failed || own.failed;
    tern_strbuf_free(&own);
}
