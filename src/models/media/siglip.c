// SigLIP's tower (arXiv:2303.15343, and 2502.14786 for the second), which several families use: the
// layers of all towers (vision.c), with learned position vectors and no RoPE, and a norm after the
// last one.
//
// LFM2-VL has the second, for images that keep their shape. The grid of learned positions is
// resized to each image as images are: positions lie in the middle of their cells, and if an image
// has fewer patches than the grid has cells, a patch takes a mixture of all cells that it covers.
//
//   rows = act(norm(four x in one) W1 + b) W2 + b
//
// Gemma 3 has the first, for squares of one size; the grid of positions is the grid of patches. A
// row is the mean of a block of patches.
//
//   rows = norm(mean x of a block) W
#include <inttypes.h>
#include <stdio.h>
#include <stddef.h>
#include <string.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

tern_vid tern_block_siglip(tern_graph *g, const tern_config *c, const tern_vision *v) {
    tern_vid unused[TERN_VISION_DEEP];
    tern_vid x = tern_block_seen(g, c, v, tern_block_patches(g, c, v), unused);
    return tern_block_layer_norm(g, c, x, "v.post_ln", true);
}

static tern_vid product(tern_graph *g, const tern_config *c, tern_vid x, int which, int64_t n_out,
                        int64_t n_in) {
    const char *name = which == 1 ? "mm.1" : "mm.2";
    const char *weight = which == 1 ? "mm.1.weight" : "mm.2.weight";
    return c->qkv_biases ? tern_block_biased(g, c, x, name, n_out, n_in)
                         : tern_block_linear(g, c, x, weight, n_out, n_in);
}

tern_status tern_build_lfm2_vision(tern_graph *g, const tern_config *config, tern_error *err) {
    const tern_vision *v = &config->vision;
    const tern_config c = tern_vision_config(v);
    tern_config block = c; // of patches that become one row
    int64_t group = v->n_merge * v->n_merge;
    block.n_embd = c.n_embd * group;
    block.rms_eps = 1e-5;
    block.qkv_biases = v->merge_biases;
    tern_vid x = tern_g_merge(g, tern_block_siglip(g, &c, v), (int32_t)group);
    if (v->merge_norm) x = tern_block_layer_norm(g, &block, x, "mm.input_norm", true);
    x = tern_g_act(g, product(g, &block, x, 1, v->n_between, block.n_embd), TERN_ACTIVATION_GELU);
    tern_g_output(g, product(g, &block, x, 2, v->n_out, v->n_between), "rows");
    return tern_graph_check(g, err);
}

// The mean of n_rows rows, which x has side by side in one row.
static tern_vid mean(tern_graph *g, tern_vid x, int64_t n, int64_t n_rows) {
    tern_vid sum = tern_g_columns(g, x, n * n_rows, 0, n);
    for (int64_t i = 1; i < n_rows; i++)
        sum = tern_g_add(g, sum, tern_g_columns(g, x, n * n_rows, i * n, n));
    return tern_g_scale(g, sum, 1 / (float)n_rows);
}

tern_status tern_build_gemma3_vision(tern_graph *g, const tern_config *config, tern_error *err) {
    const tern_vision *v = &config->vision;
    const tern_config c = tern_vision_config(v);
    int64_t group = v->n_merge * v->n_merge;
    tern_vid x = tern_g_merge(g, tern_block_siglip(g, &c, v), (int32_t)group);
    x = mean(g, x, c.n_embd, group);
    x = tern_block_norm(g, x, "mm.soft_emb_norm.weight", c.n_embd, c.rms_eps);
    x = tern_g_linear(g, x, tern_g_matrix(g, "mm.input_projection.weight", v->n_out, c.n_embd));
    tern_g_output(g, x, "rows");
    return tern_graph_check(g, err);
}

// ---- Config ------------------------------------------------------------------------------------

// The tokens around an image come with it (session/media/see.c).
static const tern_tower_token lfm2_tokens[] = {
    {"image_token_id", "image_token_index", "<image>", offsetof(tern_vision, image_id)},
    {NULL, NULL, NULL, 0},
};

// In a text, an image replaces the token that begins one; the processor adds the other tokens.
static const tern_tower_token gemma3_tokens[] = {
    {"boi_token_index", "boi_token_id", "<start_of_image>", offsetof(tern_vision, image_id)},
    {"eoi_token_index", "eoi_token_id", "<end_of_image>", offsetof(tern_vision, after_id)},
    {"image_token_index", "image_token_id", "<image_soft_token>", offsetof(tern_vision, row_id)},
    {NULL, NULL, NULL, 0},
};

static const tern_tower_size gemma3_sizes[] = {
    TERN_SIGLIP_SIZES,
    {"projector.scale_factor", NULL, 64, 4, offsetof(tern_vision, n_merge)},
    {"projection_dim", NULL, 1 << 20, 0, offsetof(tern_vision, n_out)},
    {NULL, NULL, 0, 0, 0},
};

static tern_status read_gemma3(const tern_config_source *s, const tern_config *c, tern_vision *v,
                               tern_error *err) {
    int64_t n_rows = 256, side = 1, image = v->n_side * v->n_patch;
    bool folder = s->file->kind == TERN_FILE_HF;
    if (folder) {
        v->n_out = c->n_embd;
        tern_config_int(s, NULL, "mm_tokens_per_image", &n_rows);
        tern_config_int(s, NULL, "vision_config.image_size", &image);
        while (side * side < n_rows && side < v->n_side) side++;
        v->n_merge = v->n_side / side;
    } else {
        side = v->n_merge > 0 ? v->n_side / v->n_merge : 0;
        tern_file_meta_int(s->file->tower, TERN_CLIP "image_size", &image);
        n_rows = side * side;
    }
    if (v->n_merge > 0 && side * v->n_merge == v->n_side && side * side == n_rows &&
        image == v->n_side * v->n_patch)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "images of %" PRId64 " pixels a side, patches of %" PRId64
                     ", a grid of %" PRId64 " places a side and %" PRId64
                     " rows do not fit together",
                     image, v->n_patch, v->n_side, n_rows);
}

static void write_gemma3_json(const tern_vision *v, tern_strbuf *top, tern_strbuf *vision) {
    int64_t side = v->n_side / v->n_merge;
    tern_strbuf_printf(top, ",\n\"mm_tokens_per_image\": %" PRId64, side * side);
    tern_strbuf_printf(vision,
                       ",\n  \"image_size\": %" PRId64 ",\n  \"num_channels\": 3,\n"
                       "  \"layer_norm_eps\": %.9g,\n  \"vision_use_head\": false",
                       v->n_side * v->n_patch, v->eps);
}

const tern_tower tern_tower_gemma3 = {.projector = "gemma3",
                                      .sizes = gemma3_sizes,
                                      .tokens = gemma3_tokens,
                                      .n_frames = 1,
                                      .apart = true,
                                      .one_size = true,
                                      .before = "\n\n<start_of_image>",
                                      .after = "<end_of_image>\n\n",
                                      .both_ways = true,
                                      .read = read_gemma3,
                                      .write_json = TERN_WRITER(write_gemma3_json)};

static const tern_tower_size lfm2_sizes[] = {
    TERN_SIGLIP_SIZES,
    {"projector.scale_factor", "downsample_factor", 8, 2, offsetof(tern_vision, n_merge)},
    {"projection_dim", NULL, 1 << 20, 0, offsetof(tern_vision, n_out)},
    {NULL, NULL, 0, 0, 0},
};

static tern_status read_lfm2(const tern_config_source *s, const tern_config *c, tern_vision *v,
                             tern_error *err) {
    const tern_tensor *first = tern_arch_tensor(s->file, s->arch, "mm.1.weight");
    bool folder = s->file->kind == TERN_FILE_HF;
    tern_str act = tern_config_str(s, NULL, "projector_hidden_act");
    int64_t last = -1;
    tern_config_int(s, NULL, "vision_feature_layer", &last);
    if (last != -1 || (act.ptr && !tern_str_is(act, "gelu")))
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "config.json: vision_feature_layer %" PRId64
            " and projector_hidden_act \"%.*s\" are not supported (-1 and \"gelu\" are)",
            last, (int)(act.len < 40 ? act.len : 40), act.ptr ? act.ptr : "");
    if (!first || first->n_dims != 2 || first->ne[1] < 1 || first->ne[1] > 1 << 20)
        return tern_fail(err, TERN_ERR_FORMAT, "tensor %s is missing or no matrix",
                         folder ? "multi_modal_projector.linear_1.weight" : "mm.1.weight");
    if (folder) v->n_out = c->n_embd;
    v->colors_last = folder;
    v->n_between = (int64_t)first->ne[1];
    v->merge_norm = tern_arch_tensor(s->file, s->arch, "mm.input_norm.weight") != NULL;
    v->merge_biases = tern_arch_tensor(s->file, s->arch, "mm.1.bias") != NULL;
    return TERN_OK;
}

static void write_lfm2_json(const tern_vision *v, tern_strbuf *top, tern_strbuf *vision) {
    tern_strbuf_printf(top,
                       ",\n\"vision_feature_layer\": -1,\n\"projector_hidden_act\": \"gelu\",\n"
                       "\"projector_hidden_size\": %" PRId64 ",\n\"projector_bias\": %s,\n"
                       "\"projector_use_layernorm\": %s",
                       v->n_between, v->merge_biases ? "true" : "false",
                       v->merge_norm ? "true" : "false");
    tern_strbuf_printf(vision,
                       ",\n  \"num_channels\": 3,\n  \"layer_norm_eps\": %.9g,\n"
                       "  \"vision_use_head\": false",
                       v->eps);
}

static void name_tile(size_t row, size_t column, char *out, size_t size) {
    snprintf(out, size, "<|img_row_%zu_col_%zu|>", row + 1, column + 1);
}

const tern_tower tern_tower_lfm2 = {.projector = "lfm2",
                                    .sizes = lfm2_sizes,
                                    .tokens = lfm2_tokens,
                                    .hf_places = "num_patches",
                                    .write_json = TERN_WRITER(write_lfm2_json),
                                    .n_frames = 1,
                                    .apart = true,
                                    .widens = true,
                                    .tiles = true,
                                    .tile = name_tile,
                                    .whole = "<|img_thumbnail|>",
                                    .before = "<|image_start|>",
                                    .after = "<|image_end|>",
                                    .read = read_lfm2};
