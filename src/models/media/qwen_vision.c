// The tower of Qwen3-VL and Qwen3.5. It has the layers of all towers (vision.c); its own part:
//
//   rows = gelu(four norm(x) in one W0 + b) W2 + b
//
// A patch is a square of two frames; an image is both. RoPE turns a half of a head's pairs by the
// row and the others by the column. Patches come in blocks of 2 x 2, which become one row in the
// end. The grid of learned positions is stretched to the image: a patch interpolates between the
// four nearest.
//
// Qwen3-VL also reads the rows of some intermediate layers ("deepstack"): merged likewise, they are
// added to the image's rows in the text after its first layers, one set per layer.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "models/core/config_fields.h"
#include "models/core/family.h"

static tern_vid merge(tern_graph *g, const tern_config *c, const tern_vision *v, tern_vid x) {
    int64_t n = c->n_embd * v->n_merge * v->n_merge;
    x = tern_block_layer_norm(g, c, x, "v.post_ln", true);
    x = tern_g_merge(g, x, (int32_t)(v->n_merge * v->n_merge));
    x = tern_g_act(g, tern_block_biased(g, c, x, "mm.0", n, n), TERN_ACTIVATION_GELU);
    return tern_block_biased(g, c, x, "mm.2", v->n_out, n);
}

// The same for an intermediate layer: the norm is over all patches of a block together.
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
    const tern_config c = tern_vision_config(v);
    tern_vid deep[TERN_VISION_DEEP];
    char name[32];
    tern_vid x = tern_block_patches(g, &c, v);
    tern_g_input(g, "places", tern_g_dim(g, "tokens"), 3, TERN_VALUE_I32); // RoPE's
    x = tern_block_seen(g, &c, v, x, deep);
    for (int64_t i = 0; i < v->n_deep && !g->failed; i++) {
        g->layer = (int32_t)i;
        snprintf(name, sizeof name, TERN_VISION_DEEP_NAME, (int)i);
        tern_g_output(g, merge_deep(g, &c, v, deep[i]), name);
    }
    g->layer = -1;
    tern_g_output(g, merge(g, &c, v, x), "rows");
    return tern_graph_check(g, err);
}

// ---- Config ------------------------------------------------------------------------------------

// Placeholder tokens; only an image's is required.
static const tern_tower_token tokens[] = {
    {"image_token_id", NULL, "<|image_pad|>", offsetof(tern_vision, image_id)},
    {"video_token_id", NULL, "<|video_pad|>", offsetof(tern_vision, video_id)},
    {"vision_start_token_id", NULL, "<|vision_start|>", offsetof(tern_vision, start_id)},
    {"vision_end_token_id", NULL, "<|vision_end|>", offsetof(tern_vision, end_id)},
    {NULL, NULL, NULL, 0},
};

#define SIZE(gguf_, hf_, most_, field_)                                                            \
    { gguf_, "vision_config." hf_, most_, 0, offsetof(tern_vision, field_) }
static const tern_tower_size sizes[] = {
    SIZE("block_count", "depth", 1000, n_layers),
    SIZE("embedding_length", "hidden_size", 65536, n_embd),
    SIZE("feed_forward_length", "intermediate_size", 1 << 20, n_ff),
    SIZE("attention.head_count", "num_heads", 4096, n_heads),
    SIZE("patch_size", "patch_size", 64, n_patch),
    SIZE("spatial_merge_size", "spatial_merge_size", 8, n_merge),
    SIZE("projection_dim", "out_hidden_size", 1 << 20, n_out),
    {NULL, NULL, 0, 0, 0},
};

// A layer read besides the last one.
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
    const tern_meta *flags = tern_file_meta(tower, TERN_CLIP "is_deepstack_layers");
    double flag;
    for (int64_t i = 0; flags && i < v->n_layers; i++)
        if (tern_meta_element(flags, (uint64_t)i, &flag) && flag != 0)
            TERN_TRY(add_deep(v, i, err));
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, const tern_config *c, tern_vision *v,
                        tern_error *err) {
    (void)c;
    return s->file->tower ? read_clip_deep(s->file->tower, v, err) : read_json_deep(s, v, err);
}

static tern_status write(tern_gguf_writer *w, const tern_vision *v) {
    uint8_t deep[TERN_LAYERS_MAX] = {0};
    for (int64_t i = 0; i < v->n_deep; i++) deep[v->deep[i]] = 1;
    return tern_gguf_put_array(w, TERN_CLIP "is_deepstack_layers", TERN_META_BOOL, deep,
                               (size_t)v->n_layers);
}

static void write_json(const tern_vision *v, tern_strbuf *top, tern_strbuf *vision) {
    (void)top;
    tern_strbuf_puts(vision, ",\n  \"in_channels\": 3,\n  \"temporal_patch_size\": 2,\n"
                             "  \"deepstack_visual_indexes\": [");
    for (int64_t i = 0; i < v->n_deep; i++)
        tern_strbuf_printf(vision, "%s%d", i ? ", " : "", (int)v->deep[i]);
    tern_strbuf_puts(vision, "]");
}

const tern_tower tern_tower_qwen = {.projector = "qwen3vl_merger",
                                    .sizes = sizes,
                                    .tokens = tokens,
                                    .hf_places = "num_position_embeddings",
                                    .write_json = TERN_WRITER(write_json),
                                    .joined = true,
                                    .n_frames = 2,
                                    .turns = true,
                                    .read = read,
                                    .write = write};

// ---- Where a text's rows are -------------------------------------------------------------------

static void read_sections(const tern_config_source *s, tern_config *c) {
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = tern_config_json(s, "rope_scaling.mrope_section");
    int32_t shares[4];
    char key[96];
    double share;
    int i = 0;
    if (!list) list = tern_config_json(s, "rope_parameters.mrope_section");
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

tern_status tern_config_qwen_vision(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(tern_config_vision(s, c, err));
    if (!tern_config_has_vision(c)) return TERN_OK;
    c->rope.axes = TERN_ROPE_MIXED;
    read_sections(s, c);
    return TERN_OK;
}

tern_status tern_config_write_sections(tern_gguf_writer *w, const char *name,
                                       const tern_config *c) {
    int32_t shares[4];
    char key[160];
    tern_config_rope_sections(c, shares);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", name);
    return tern_gguf_put_array(w, key, TERN_META_I32, shares, 4);
}
