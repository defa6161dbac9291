// ViT (arXiv:2010.11929): images in squares. A square of p x p pixels (red, then green, then blue)
// is a row; before them comes a row for the whole image, whose last state becomes the scores.
//
//   x = table[ids] + patches Wpatch + b
//   per layer:  x = x + attention(norm(x)) Wo + b;  x = x + act(norm(x) Wup + b) Wdown + b
//   scores = norm(x)[0] Whead + b
//
// ids are positions: 0 the whole image, 1 the first square; so the table is the position table, and
// ids are counted instead of tokenized. The row of the whole has no pixels (zeros), and its own
// vector instead of the squares' bias: the table's first row includes the difference (numbers), so
// that all rows are computed alike.
//
// Two libraries write them: transformers (ViTForImageClassification), and timm, whose folders use
// other names, store queries, keys and values as one, and have very little in config.json.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "models/core/family.h"

#define COLORS    3
#define PATCH_MAX 256
#define IMAGE_MAX 4096

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid begin(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x) {
    (void)ids;
    int64_t n = COLORS * c->n_patch * c->n_patch;
    tern_vid patches = tern_g_input(g, "patches", tern_g_dim(g, "tokens"), n, TERN_VALUE_F32);
    return tern_g_add(g, x, tern_block_biased(g, c, patches, "patch_embd", c->n_embd, n));
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.biases = true, .bidirectional = true};
    tern_vid a = tern_block_layer_norm(g, c, x, "blk.%d.attn_norm", true);
    a = tern_block_attention(g, c, a, &block);
    x = tern_g_add(g, x, tern_g_bias(g, a, tern_g_vector(g, "blk.%d.attn_output.bias", c->n_embd)));
    tern_vid f = tern_block_layer_norm(g, c, x, "blk.%d.ffn_norm", true);
    f = tern_block_biased(g, c, f, "blk.%d.ffn_up", c->n_ff, c->n_embd);
    f = tern_block_biased(g, c, tern_g_act(g, f, c->act), "blk.%d.ffn_down", c->n_embd, c->n_ff);
    return tern_g_add(g, x, f);
}

static void end(tern_graph *g, const tern_config *c, tern_vid pooled) {
    tern_vid y = tern_block_layer_norm(g, c, pooled, "output_norm", true);
    if (c->n_labels)
        tern_g_output(g, tern_block_biased(g, c, y, "cls.output", c->n_labels, c->n_embd),
                      "scores");
    tern_block_embedding(g, c, y);
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .begin = begin, .end = end}, err);
}

// Adds the difference to the first row of the file's position table (see above).
static tern_status numbers(const tern_file *file, const tern_arch *arch, const tern_tensor *table,
                           float *x, tern_error *err) {
    const tern_tensor *whole = tern_arch_tensor(file, arch, "class_embd");
    const tern_tensor *bias = tern_arch_tensor(file, arch, "patch_embd.bias");
    size_t n_embd = (size_t)table->ne[0];
    if (!whole || !bias || whole->ne[0] != n_embd || bias->ne[0] != n_embd ||
        whole->ne[1] * whole->ne[2] * whole->ne[3] != 1 || bias->n_dims != 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s is missing or has another width than the positions",
                         whole ? bias ? bias->name : "patch_embd.bias" : "class_embd");
    float *row = tern_alloc_array(TERN_MEM_MISC, 2 * n_embd, sizeof *row);
    if (!row) return tern_fail_memory(err, 2 * n_embd * sizeof *row);
    tern_status status = tern_tensor_decode(whole, row, err);
    if (status == TERN_OK) status = tern_tensor_decode(bias, row + n_embd, err);
    for (size_t i = 0; status == TERN_OK && i < n_embd; i++) x[i] += row[i] - row[n_embd + i];
    tern_free(row);
    return status;
}

// ---- Config ------------------------------------------------------------------------------------

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t channels = COLORS;
    const tern_tensor *labels = tern_arch_tensor(s->file, s->arch, "cls.output.weight");
    if (!c->n_patch)
        TERN_TRY(tern_config_need(s, "patch_size", "patch_size", 1, PATCH_MAX, &c->n_patch, err));
    if (!c->n_image)
        TERN_TRY(tern_config_need(s, "image_size", "image_size", 1, IMAGE_MAX, &c->n_image, err));
    TERN_TRY(tern_config_layer_norm_eps(s, "layer_norm_eps", c, err));
    tern_config_int(s, NULL, "num_channels", &channels);
    int64_t side = c->n_image / c->n_patch;
    if (channels != COLORS || c->n_image % c->n_patch != 0 || c->n_vocab != side * side + 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: images of %" PRId64 " x %" PRId64 " pixels of %" PRId64
                         " colours in squares of %" PRId64 " do not fit %" PRId64 " positions",
                         c->n_image, c->n_image, channels, c->n_patch, c->n_vocab);
    c->n_context = c->n_vocab;
    c->bidirectional = true;
    c->pooling = TERN_POOLING_FIRST;
    c->n_labels = labels && labels->n_dims == 2 ? (int64_t)labels->ne[1] : 0;
    return TERN_OK;
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    snprintf(key, sizeof key, "%s.patch_size", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->n_patch));
    snprintf(key, sizeof key, "%s.image_size", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, c->n_image));
    return tern_config_write_encoder(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"patch_size\": %" PRId64 ",\n  \"image_size\": %" PRId64
                       ",\n  \"num_channels\": 3,\n  \"qkv_bias\": true,\n",
                       c->n_patch, c->n_image);
}

// ---- timm --------------------------------------------------------------------------------------

static bool is_timm(const tern_file *file) {
    return file->kind == TERN_FILE_HF && tern_file_tensor(file, "blocks.0.attn.qkv.weight");
}

static bool has(tern_str text, const char *part) {
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= text.len; i++)
        if (memcmp(text.ptr + i, part, n) == 0) return true;
    return false;
}

// No tensor shows the number of heads: it is a member, or follows from the architecture's name.
static int64_t timm_heads(const tern_config_source *s) {
    static const struct {
        const char *name;
        int64_t heads;
    } sizes[] = {{"_tiny_", 3}, {"_small_", 6}, {"_base_", 12}, {"_large_", 16}, {"_huge_", 16}};
    static const char *const members[] = {"num_attention_heads", "num_heads", "heads",
                                          "model_args.num_heads"};
    int64_t n = 0;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (tern_config_int(s, NULL, members[i], &n)) return n;
    tern_str name = tern_config_str(s, NULL, "architecture");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (has(name, sizes[i].name)) return sizes[i].heads;
    return 0;
}

static tern_status timm_sizes(const tern_config_source *s, tern_config *c, tern_error *err) {
    const tern_tensor *patch = tern_arch_tensor(s->file, s->arch, "patch_embd.weight");
    const tern_tensor *table = tern_arch_tensor(s->file, s->arch, "token_embd.weight");
    const tern_tensor *up = tern_arch_tensor(s->file, s->arch, "blk.0.ffn_up.weight");
    char name[64];
    if (!patch || !table || !up || patch->n_dims != 4 || table->ne[1] > INT32_MAX)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor patch_embed.proj.weight, pos_embed or blocks.0.mlp.fc1.weight is "
                         "missing or has another shape");
    c->n_embd = (int64_t)table->ne[0];
    c->n_ff = (int64_t)up->ne[1];
    c->n_patch = (int64_t)patch->ne[0];
    c->n_image = (int64_t)(sqrt((double)table->ne[1] - 1) + 0.5) * c->n_patch;
    for (c->n_layers = 0; c->n_layers < TERN_LAYERS_MAX; c->n_layers++) {
        snprintf(name, sizeof name, "blk.%d.ffn_up.weight", (int)c->n_layers);
        if (!tern_arch_tensor(s->file, s->arch, name)) break;
    }
    c->n_heads = timm_heads(s);
    if (c->n_heads > 0 && c->n_heads <= 65536) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config.json: neither num_heads nor the architecture's name says how many "
                     "heads there are");
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"vit", NULL};
static const char *const hf_types[] = {"vit", NULL};
static const tern_config defaults = {
    .n_layers = 12, .n_embd = 768, .n_ff = 3072, .n_heads = 12, .rms_eps = 1e-12};
static const tern_config timm_defaults = {.rms_eps = 1e-6};

#define BOTH(gguf_, hf_, role_, ...)                                                               \
    TERN_ROW(gguf_ ".weight", hf_ ".weight", .role = (role_), __VA_ARGS__),                        \
        TERN_ROW(gguf_ ".bias", hf_ ".bias", __VA_ARGS__)
#define LAYER(gguf_, hf_, role_) BOTH("blk.%d." gguf_, "vit.encoder.layer.%d." hf_, role_, )

static const tern_tensor_row tensors[] = {
    TERN_ROW("token_embd.weight", "vit.embeddings.position_embeddings", .role = TERN_ROLE_FLOATS,
             .change = TERN_CHANGE_LEADING, .is_computed = true),
    TERN_ROW("class_embd", "vit.embeddings.cls_token", .change = TERN_CHANGE_LEADING,
             .is_computed = true),
    BOTH("patch_embd", "vit.embeddings.patch_embeddings.projection", TERN_ROLE_FLOATS,
         .change = TERN_CHANGE_FLATTEN),
    LAYER("attn_norm", "layernorm_before", TERN_ROLE_VECTOR),
    LAYER("attn_q", "attention.attention.query", TERN_ROLE_Q),
    LAYER("attn_k", "attention.attention.key", TERN_ROLE_K),
    LAYER("attn_v", "attention.attention.value", TERN_ROLE_V),
    LAYER("attn_output", "attention.output.dense", TERN_ROLE_O),
    LAYER("ffn_norm", "layernorm_after", TERN_ROLE_VECTOR),
    LAYER("ffn_up", "intermediate.dense", TERN_ROLE_UP),
    LAYER("ffn_down", "output.dense", TERN_ROLE_DOWN),
    BOTH("output_norm", "vit.layernorm", TERN_ROLE_VECTOR, ),
    BOTH("cls.output", "classifier", TERN_ROLE_MATRIX, ),
    TERN_ROWS_END,
};

#undef LAYER
#define LAYER(gguf_, hf_, role_) BOTH("blk.%d." gguf_, "blocks.%d." hf_, role_, )
#define SHARE(gguf_, end_, role_, share_)                                                          \
    TERN_ROW("blk.%d." gguf_ end_, "blocks.%d.attn.qkv" end_, .role = (role_), .share = (share_),  \
             .shares = 3)

static const tern_tensor_row timm_tensors[] = {
    TERN_ROW("token_embd.weight", "pos_embed", .role = TERN_ROLE_FLOATS,
             .change = TERN_CHANGE_LEADING, .is_computed = true),
    TERN_ROW("class_embd", "cls_token", .change = TERN_CHANGE_LEADING, .is_computed = true),
    BOTH("patch_embd", "patch_embed.proj", TERN_ROLE_FLOATS, .change = TERN_CHANGE_FLATTEN),
    LAYER("attn_norm", "norm1", TERN_ROLE_VECTOR),
    SHARE("attn_q", ".weight", TERN_ROLE_Q, 0),
    SHARE("attn_k", ".weight", TERN_ROLE_K, 1),
    SHARE("attn_v", ".weight", TERN_ROLE_V, 2),
    SHARE("attn_q", ".bias", TERN_ROLE_VECTOR, 0),
    SHARE("attn_k", ".bias", TERN_ROLE_VECTOR, 1),
    SHARE("attn_v", ".bias", TERN_ROLE_VECTOR, 2),
    LAYER("attn_output", "attn.proj", TERN_ROLE_O),
    LAYER("ffn_norm", "norm2", TERN_ROLE_VECTOR),
    LAYER("ffn_up", "mlp.fc1", TERN_ROLE_UP),
    LAYER("ffn_down", "mlp.fc2", TERN_ROLE_DOWN),
    BOTH("output_norm", "norm", TERN_ROLE_VECTOR, ),
    BOTH("cls.output", "head", TERN_ROLE_MATRIX, ),
    TERN_ROWS_END,
};

// A pooler is a layer from BERT's training; ViT's folders have it by accident.
static const tern_ignored ignored[] = {
    {"pooler.", NULL, "of another task: scores and vectors are of the first row as it is"},
    {"vit.pooler.", NULL, "of another task: scores and vectors are of the first row as it is"},
    {NULL, NULL, NULL},
};

static const tern_config sample = {TERN_SAMPLE,
                                   .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_GELU,
                                   .bidirectional = true,
                                   .pooling = TERN_POOLING_FIRST,
                                   .n_patch = 2,
                                   .n_image = 16,
                                   .n_labels = 5};

const tern_arch tern_arch_vit = {
    .name = "vit",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "ViTForImageClassification",
    .hf_eps = "layer_norm_eps",
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .numbers = numbers,
    .graphs = TERN_GRAPHS(TERN_ENCODER(build)),
    .act = TERN_ACTIVATION_GELU,
    .windows_by_layer = true,
    .sample = TERN_SAMPLE_CONFIG(sample),
};

const tern_arch tern_arch_vit_timm = {
    .name = "vit",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "ViTForImageClassification",
    .hf_eps = "layer_norm_eps",
    .is_mine = is_timm,
    .tensors = timm_tensors,
    .defaults = &timm_defaults,
    .sizes = timm_sizes,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .numbers = numbers,
    .graphs = TERN_GRAPHS(TERN_ENCODER(build)),
    .act = TERN_ACTIVATION_GELU,
    .windows_by_layer = true,
};
