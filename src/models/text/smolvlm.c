// SmolVLM, SmolVLM2 and Idefics 3 (arXiv:2504.05299, 2408.12637): a Llama that sees with SigLIP.
//
// The tower sees squares of one size. An image's longer edge is made a few squares long, the image
// is cut into those, and in the end it is shown as a whole, as one square. A block of patches
// becomes one row:
//
//   rows = (patches of a block in one) W
//
// The text model's GGUF is a Llama's, and is of this family if a tower is beside it.
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include "models/core/config_fields.h"
#include "models/core/family.h"

extern const tern_arch tern_arch_llama; // its text

// ---- Graph -------------------------------------------------------------------------------------

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {.layer = tern_block_llama,
                              .begin = tern_config_has_vision(c) ? tern_block_given : NULL,
                              .final_norm = "output_norm.weight"};
    return tern_build_stack(g, c, &stack, err);
}

static tern_status build_vision(tern_graph *g, const tern_config *config, tern_error *err) {
    const tern_vision *v = &config->vision;
    const tern_config c = tern_vision_config(v);
    int64_t group = v->n_merge * v->n_merge;
    tern_vid x = tern_g_merge(g, tern_block_siglip(g, &c, v), (int32_t)group);
    tern_g_output(g, tern_block_linear(g, &c, x, "mm.model.fc.weight", v->n_out, c.n_embd * group),
                  "rows");
    return tern_graph_check(g, err);
}

// ---- Config ------------------------------------------------------------------------------------

static const tern_tower_token tokens[] = {
    {"image_token_id", NULL, "<image>", offsetof(tern_vision, image_id)},
    {NULL, NULL, NULL, 0},
};

// Published folders lack the sizes that are the usual ones.
static const tern_tower_size sizes[] = {
    TERN_SIGLIP_SIZE("block_count", "num_hidden_layers", 1000, 12, n_layers),
    TERN_SIGLIP_SIZE("embedding_length", "hidden_size", 65536, 1152, n_embd),
    TERN_SIGLIP_SIZE("feed_forward_length", "intermediate_size", 1 << 20, 3072, n_ff),
    TERN_SIGLIP_SIZE("attention.head_count", "num_attention_heads", 4096, 16, n_heads),
    TERN_SIGLIP_SIZE("patch_size", "patch_size", 64, 32, n_patch),
    {"projector.scale_factor", "scale_factor", 64, 2, offsetof(tern_vision, n_merge)},
    {"projection_dim", NULL, 1 << 20, 0, offsetof(tern_vision, n_out)},
    {NULL, NULL, 0, 0, 0},
};

// A patch that a square's edge would cut is left out: 27 of 14 pixels are in 384.
static tern_status read_vision(const tern_config_source *s, const tern_config *c, tern_vision *v,
                               tern_error *err) {
    v->n_image = 224;
    if (s->file->kind == TERN_FILE_HF) {
        v->n_out = c->n_embd;
        tern_config_int(s, NULL, "vision_config.image_size", &v->n_image);
    } else {
        tern_file_meta_int(s->file->tower, TERN_CLIP "image_size", &v->n_image);
    }
    if (v->n_image > 0 && v->n_image / v->n_patch == v->n_side && v->n_side % v->n_merge == 0)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "squares of %" PRId64 " pixels a side, patches of %" PRId64
                     ", a grid of %" PRId64 " places a side and blocks of %" PRId64
                     " patches a side do not fit together",
                     v->n_image, v->n_patch, v->n_side, v->n_merge);
}

static void write_vision_json(const tern_vision *v, tern_strbuf *top, tern_strbuf *vision) {
    (void)top;
    tern_strbuf_printf(vision,
                       ",\n  \"image_size\": %" PRId64 ",\n  \"num_channels\": 3,\n"
                       "  \"layer_norm_eps\": %.9g",
                       v->n_image, v->eps);
}

// A row of squares ends with a line break, and the last one with two.
#define AROUND "<fake_token_around_image>"
static void name_tile(size_t row, size_t column, char *out, size_t size) {
    snprintf(out, size, "%s" AROUND "<row_%zu_col_%zu>", row && !column ? "\n" : "", row + 1,
             column + 1);
}

static const tern_tower tower = {.projector = "idefics3",
                                 .sizes = sizes,
                                 .tokens = tokens,
                                 .n_frames = 1,
                                 .apart = true,
                                 .one_size = true,
                                 .tiles = true,
                                 .tile = name_tile,
                                 .whole = "\n\n" AROUND "<global-img>",
                                 .uncut = AROUND "<global-img>",
                                 .before = "",
                                 .after = AROUND,
                                 .hf_text = "model.text_model.",
                                 .read = read_vision,
                                 .write_json = TERN_WRITER(write_vision_json)};

static bool is_mine(const tern_file *file) {
    return file->kind == TERN_FILE_HF ||
           (file->tower && tern_str_is(tern_file_projector(file->tower), tower.projector));
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(tern_arch_llama.read(s, c, err));
    if (c->n_window)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: a window of %" PRId64 " positions is not supported with images",
                         c->n_window);
    return tern_config_vision(s, c, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    return tern_arch_llama.write_gguf(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_arch_llama.write_json(c, out);
}

// ---- Tables ------------------------------------------------------------------------------------

#define SEES "model.vision_model."
static const tern_tensor_row tensors[] = {
    TERN_ROWS_LLAMA,
    TERN_ROWS_BIASES(ROPE),
    TERN_ROWS_SIGLIP_AT(SEES, SEES, TERN_ORDER_SAME),
    TERN_MATRIX("mm.model.fc", "model.connector.modality_projection.proj", TERN_ROLE_MATRIX),
    TERN_ROWS_END,
};
static const tern_ignored ignored[] = {
    TERN_IGNORED_ROPE,
    {SEES, NULL, "of the part that sees images: only text is computed"},
    {"model.connector.", NULL, "brings images to the text: only text is computed"},
    {NULL, NULL, NULL},
};
static const tern_config defaults = {.rms_eps = 1e-6};
static const char *const gguf_names[] = {"llama", NULL};
static const char *const hf_types[] = {"smolvlm", "idefics3", NULL};

const tern_arch tern_arch_smolvlm = {
    .name = "smolvlm",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "LlamaForCausalLM",
    .is_mine = is_mine,
    .tensors = tensors,
    .ignored = ignored,
    .gguf_rope_neighbours = true,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_ENCODER(build), TERN_VISION(build_vision)),
    .media = &(const tern_arch_media){.tower = &tower},
    .hf_sees = &(const tern_seeing_names){"smolvlm", "SmolVLMForConditionalGeneration", "llama",
                                          "smolvlm_vision", "SmolVLMImageProcessor"},
};
