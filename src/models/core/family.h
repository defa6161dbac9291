// Building blocks for the families' files: readers of a config, and blocks of a graph.
#ifndef TERN_MODELS_FAMILY_H
#define TERN_MODELS_FAMILY_H

#include "models/models.h"

// ---- What only this family has -----------------------------------------------------------------

// Declares own(c) and own_to_set(c): tern_config.own as a struct of this file.
#define TERN_OWN_CONFIG(type)                                                                      \
    _Static_assert(sizeof(type) <= TERN_OWN_BYTES, #type " does not fit tern_config.own");         \
    static inline const type *own(const tern_config *c) {                                          \
        return (const type *)(const void *)&c->own;                                                \
    }                                                                                              \
    static inline type *own_to_set(tern_config *c) { return (type *)(void *)&c->own; }

// ---- Reading a config (config.c) ---------------------------------------------------------------
//
// gguf: the key after "<architecture>."; hf: a path in config.json, looked for in text_config
// first, which holds the decoder of models with images or sound. Either may be NULL: not in that
// format. False: absent, null, or of the wrong type, for which the file is refused in the end.
// Numbers may be quoted.

bool tern_config_int(const tern_config_source *s, const char *gguf, const char *hf, int64_t *out);
bool tern_config_float(const tern_config_source *s, const char *gguf, const char *hf, double *out);
tern_str tern_config_str(const tern_config_source *s, const char *gguf, const char *hf);
bool tern_config_bool(const tern_config_source *s, const char *hf, bool otherwise);
const tern_json *tern_config_json(const tern_config_source *s, const char *hf);
// Required, and from least to most.
tern_status tern_config_need(const tern_config_source *s, const char *gguf, const char *hf,
                             int64_t least, int64_t most, int64_t *out, tern_error *err);
// layer_types of config.json into c->layers; kinds not in `allowed` (a bit each) are refused.
// *found: whether config.json has it.
tern_status tern_config_layer_types(const tern_config_source *s, tern_config *c, unsigned allowed,
                                    bool *found, tern_error *err);
// GGUF: an array of flags says which layers are of `kind`; the others have full attention. False:
// no such array.
bool tern_config_layer_flags(const tern_config_source *s, tern_config *c, const char *gguf,
                             tern_layer_kind kind);
// Layers with a window between those with full attention, from layer_types of config.json, flags of
// GGUF, or a period of layers, whose HF key is `key`, by default `every`. The last of each period
// is full, or the first.
tern_status tern_config_window_layers(const tern_config_source *s, tern_config *c, const char *key,
                                      int64_t every, bool first, tern_error *err);
// An array of flags in GGUF, one per layer. False: none.
bool tern_config_flags(const tern_config_source *s, const char *gguf, int64_t n, uint8_t *flags);
// One window for all layers, into c->n_window; 0: none. `otherwise`: if config.json lacks the
// member. Read only by families whose layers have one.
tern_status tern_config_window(const tern_config_source *s, int64_t otherwise, tern_config *c,
                               tern_error *err);
// Whether the text part of a folder has this model_type.
bool tern_config_is_text_of(const tern_config_source *s, const char *type);
// RoPE for the layers of one type, "full_attention" or "sliding_attention".
tern_status tern_config_rope(const tern_config_source *s, const tern_config *c,
                             const char *layer_type, tern_rope_attrs *out, tern_error *err);
// Experts: how many, how wide, how many a row goes to, whether their weights are normed.
tern_status tern_config_experts(const tern_config_source *s, tern_config *c, tern_error *err);
// The sizes of Mamba-2 layers (mamba.c).
tern_status tern_config_mamba(const tern_config_source *s, tern_config *c, tern_error *err);
// The epsilon of LayerNorms, also of the final one, into c->rms_eps; hf: the member of config.json.
tern_status tern_config_layer_norm_eps(const tern_config_source *s, const char *hf, tern_config *c,
                                       tern_error *err);
// Which products have biases in a GGUF: only its tensors show it.
void tern_config_gguf_biases(const tern_config_source *s, tern_config *c);
// How an embedding model pools: GGUF's pooling_type, or the folder's modules.
tern_status tern_config_pooling(const tern_config_source *s, tern_config *c, tern_error *err);
// The factors in Granite's and MiniCPM's GGUFs, except attention's, which only Granite has; if a
// file has none, those of c stay.
tern_status tern_config_gguf_scales(const tern_config_source *s, tern_config *c, tern_error *err);
tern_status tern_config_check_scale(const char *name, double value, tern_error *err);
// Qwen2's and Qwen3's windows (qwen3.c), written together with the pooling.
tern_status tern_config_qwen_windows(const tern_config_source *s, tern_config *c, tern_error *err);
tern_status tern_config_write_qwen_gguf(tern_gguf_writer *w, const char *name,
                                        const tern_config *c);
void tern_config_write_qwen_json(const tern_config *c, tern_strbuf *out);

// The tower, if a file has one (vision.c). Qwen3-VL's and Qwen3.5's tower, and RoPE's axes
// (qwen_vision.c).
#define TERN_CLIP      "clip.vision."
#define TERN_TOWER_OWN "tern.vision." // keys that llama.cpp's files lack
tern_status tern_config_vision(const tern_config_source *s, tern_config *c, tern_error *err);
tern_status tern_config_qwen_vision(const tern_config_source *s, tern_config *c, tern_error *err);
// How the rotated pairs are divided among time, rows and columns: as in the file, else by thirds.
void tern_config_rope_sections(const tern_config *c, int32_t out[4]);
tern_status tern_config_write_sections(tern_gguf_writer *w, const char *name, const tern_config *c);

// ---- Writing one (config_write.c) --------------------------------------------------------------

// GGUF keys of encoders with LayerNorms: epsilon, no mask, segments, pooling.
tern_status tern_config_write_encoder(tern_gguf_writer *w, const char *name, const tern_config *c);
tern_status tern_config_write_pooling(tern_gguf_writer *w, const char *name, const tern_config *c);
void tern_config_write_pooling_json(const tern_config *c, tern_strbuf *out);
// "embedding_scale" and so on, those that are set.
tern_status tern_config_write_scales(tern_gguf_writer *w, const char *name, const tern_config *c);
tern_status tern_config_write_mamba(tern_gguf_writer *w, const char *name, const tern_config *c);
void tern_config_write_mamba_json(const tern_config *c, tern_strbuf *out);
tern_status tern_config_write_experts(tern_gguf_writer *w, const char *name, const tern_config *c);
void tern_config_write_experts_json(const tern_config *c, tern_strbuf *out);
// c->n_window, if there is one; in a folder, null means none.
tern_status tern_config_write_window(tern_gguf_writer *w, const char *name, const tern_config *c);
void tern_config_write_window_json(const tern_config *c, tern_strbuf *out);
// tern_arch.differs for families whose windows other programs ignore.
const char *tern_config_windows_differ(const tern_config *c);
// c->window, and which layers have it.
tern_status tern_config_write_windows(tern_gguf_writer *w, const char *name, const tern_config *c);
// The rotated share of a head, as a number that gives n_rot again when a reader multiplies it with
// the head's dimensions and truncates.
double tern_config_rotary_factor(const tern_rope_attrs *r, int64_t head_dim);

// ---- Building a graph (decoder.c) --------------------------------------------------------------

typedef struct tern_attention_block {
    // "blk.%d.attn_q_norm.weight" and attn_k_norm: queries and keys are normed by head before RoPE.
    bool head_norms;
    bool row_norms;        // instead: the queries of all heads together, and the keys
    bool norms_after_rope; // the norms of queries and keys come after RoPE
    bool biases;           // "blk.%d.attn_q.bias" and attn_k, attn_v
    bool output_bias;      // "blk.%d.attn_output.bias"
    bool fused;            // "blk.%d.attn_qkv.weight" makes queries, then keys, then values
    // attn_q makes a query and a gate per head; the head's result is multiplied by sigmoid(gate).
    bool gate;
    bool sub_norm; // "blk.%d.attn_sub_norm.weight": before the output projection
    bool bidirectional;
    bool images;                 // rows of an image attend to its end
    float key_scale;             // of keys before RoPE; 0: none
    int32_t window;              // 0: all
    const tern_rope_attrs *rope; // NULL: none
} tern_attention_block;

// Reads rows that are already normed; without the residual.
tern_vid tern_block_attention(tern_graph *g, const tern_config *c, tern_vid x,
                              const tern_attention_block *block);
// Vectors of texts from pooled rows: through two products if the config has them, of length 1
// unless it says otherwise.
void tern_block_embedding(tern_graph *g, const tern_config *c, tern_vid pooled);
// With "blk.%d.ffn_gate.bias" and ffn_up, ffn_down if c->ff_biases.
tern_vid tern_block_feed_forward(tern_graph *g, const tern_config *c, tern_vid x);
// Feed-forward whose up matrix makes gate and value in one product: "blk.%d.ffn_up.weight".
tern_vid tern_block_fused_feed_forward(tern_graph *g, const tern_config *c, tern_vid x);
// x plus the half-layer's output `added`, times c->residual_scale if there is one.
tern_vid tern_block_residual(tern_graph *g, const tern_config *c, tern_vid x, tern_vid added);
// tern_stack.begin of vision-language models: puts the rows of images in their places in the text.
// tern_block_deep: adds the tower's rows to them after layer g->layer.
tern_vid tern_block_given(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x);
tern_vid tern_block_deep(tern_graph *g, const tern_config *c, tern_vid x);
// A tower's config; the rows of its patches; these rows after all layers. deep: after the layers of
// v->deep.
tern_config tern_vision_config(const tern_vision *v);
tern_vid tern_block_patches(tern_graph *g, const tern_config *c, const tern_vision *v);
tern_vid tern_block_seen(tern_graph *g, const tern_config *c, const tern_vision *v, tern_vid x,
                         tern_vid deep[TERN_VISION_DEEP]);
// SigLIP's rows of all patches, after its last norm (siglip.c).
tern_vid tern_block_siglip(tern_graph *g, const tern_config *c, const tern_vision *v);
// A whole layer of a Llama or BitNet.
tern_vid tern_block_llama(tern_graph *g, const tern_config *c, tern_vid x);
// A whole layer whose norms come after attention and feed-forward instead of before.
tern_vid tern_block_normed_after(tern_graph *g, const tern_config *c, tern_vid x,
                                 const tern_attention_block *block);
tern_vid tern_block_mamba(tern_graph *g, const tern_config *c, tern_vid x);
// Experts if the layer has them, else the plain feed-forward.
tern_vid tern_block_experts(tern_graph *g, const tern_config *c, tern_vid x);
tern_vid tern_block_norm(tern_graph *g, tern_vid x, const char *name, int64_t n, double eps);
// A LayerNorm of whole rows, "NAME.weight" and, if it is biased, "NAME.bias"; and a product with
// its bias.
tern_vid tern_block_layer_norm(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                               bool is_biased);
tern_vid tern_block_biased(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                           int64_t n_out, int64_t n_in);
// A layer's product: a BitLinear if the config says so.
tern_vid tern_block_linear(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                           int64_t n_out, int64_t n_in);

typedef struct tern_stack {
    tern_vid (*layer)(tern_graph *g, const tern_config *c, tern_vid x); // g->layer says which
    // Changes the table's rows before the layers; NULL: nothing to do.
    tern_vid (*begin)(tern_graph *g, const tern_config *c, tern_vid ids, tern_vid x);
    // Processes a text's pooled row; NULL: it becomes the embedding.
    void (*end)(tern_graph *g, const tern_config *c, tern_vid pooled);
    const char *final_norm; // its name, NULL: none
    bool layer_norm;        // it is a LayerNorm without bias, and its name lacks ".weight"
    bool norm_bias;         // with a bias
    float embedding_scale;  // 0: c->embedding_scale
} tern_stack;

// ids -> table -> layers -> final norm -> logits, or an embedding for models that pool. Rows are
// named as transformers counts its hidden_states: hidden.0 from the table, hidden.I after I layers,
// hidden.N after the last one and the final norm.
tern_status tern_build_stack(tern_graph *g, const tern_config *c, const tern_stack *stack,
                             tern_error *err);

// A family's function that writes a config: programs that do not convert, such as web pages, are
// built without.
#ifdef TERN_NO_WRITERS
#define TERN_WRITER(function_) (1 ? NULL : (function_))
#else
#define TERN_WRITER(function_) (function_)
#endif

// A small config of the family, for tests of what runs: programs without them, such as web pages,
// are built without.
#ifdef TERN_NO_SAMPLES
#define TERN_SAMPLE_CONFIG(config_) (1 ? NULL : &(config_))
#else
#define TERN_SAMPLE_CONFIG(config_) (&(config_))
#endif

// ---- Rows of graphs ----------------------------------------------------------------------------

#define TERN_GRAPHS(...)                                                                           \
    (const tern_graph_row[]) {                                                                     \
        __VA_ARGS__, { .name = NULL }                                                              \
    }
#define TERN_DECODER(build_)                                                                       \
    { .name = "decoder", .is_there = tern_config_scores, .build = build_ }
#define TERN_VISION(build_)                                                                        \
    { .name = "vision", .is_there = tern_config_has_vision, .build = build_ }
#define TERN_ENCODER(build_)                                                                       \
    { .name = "encoder", .is_there = tern_config_pools, .build = build_ }
tern_status tern_build_qwen_vision(tern_graph *g, const tern_config *config, tern_error *err);
tern_status tern_build_lfm2_vision(tern_graph *g, const tern_config *config, tern_error *err);
tern_status tern_build_gemma3_vision(tern_graph *g, const tern_config *config, tern_error *err);
extern const tern_tower tern_tower_qwen;                    // qwen_vision.c
extern const tern_tower tern_tower_lfm2, tern_tower_gemma3; // siglip.c
bool tern_config_has_vision(const tern_config *c);          // images in its text
bool tern_config_scores(const tern_config *c);              // next tokens
bool tern_config_pools(const tern_config *c);               // rows of a text to one vector

// ---- Rows of tensors ---------------------------------------------------------------------------

#define TERN_ROW(gguf_, hf_, ...)                                                                  \
    { .gguf = (gguf_), .hf = (hf_), __VA_ARGS__ }
#define TERN_MATRIX(gguf_, hf_, role_) TERN_ROW(gguf_ ".weight", hf_ ".weight", .role = (role_))
#define TERN_NORM(gguf_, hf_, change_) TERN_ROW(gguf_ ".weight", hf_ ".weight", .change = (change_))
#define TERN_ROWS_END                                                                              \
    { .gguf = NULL }
// The same for each layer.
#define TERN_LAYER_ROW(gguf_, hf_, ...)                                                            \
    TERN_ROW("blk.%d." gguf_, "model.layers.%d." hf_, __VA_ARGS__)
#define TERN_LAYER_MATRIX(gguf_, hf_, role_)                                                       \
    TERN_MATRIX("blk.%d." gguf_, "model.layers.%d." hf_, role_)
#define TERN_LAYER_NORM(gguf_, hf_, change_)                                                       \
    TERN_NORM("blk.%d." gguf_, "model.layers.%d." hf_, change_)

#define TERN_ROWS_TABLE_AND_HEAD                                                                   \
    TERN_MATRIX("token_embd", "model.embed_tokens", TERN_ROLE_TABLE),                              \
        TERN_MATRIX("output", "lm_head", TERN_ROLE_HEAD)

#define TERN_ROWS_ATTENTION                                                                        \
    TERN_LAYER_MATRIX("attn_q", "self_attn.q_proj", TERN_ROLE_Q),                                  \
        TERN_LAYER_MATRIX("attn_k", "self_attn.k_proj", TERN_ROLE_K),                              \
        TERN_LAYER_MATRIX("attn_v", "self_attn.v_proj", TERN_ROLE_V),                              \
        TERN_LAYER_MATRIX("attn_output", "self_attn.o_proj", TERN_ROLE_O)

// For families that have RoPE's pairs next to each other in GGUF alone (gguf_rope_neighbours).
#define TERN_ROWS_ATTENTION_NEIGHBOURS                                                             \
    TERN_LAYER_ROW("attn_q.weight", "self_attn.q_proj.weight", .role = TERN_ROLE_Q,                \
                   .rows = TERN_ORDER_ROPE),                                                       \
        TERN_LAYER_ROW("attn_k.weight", "self_attn.k_proj.weight", .role = TERN_ROLE_K,            \
                       .rows = TERN_ORDER_ROPE),                                                   \
        TERN_LAYER_MATRIX("attn_v", "self_attn.v_proj", TERN_ROLE_V),                              \
        TERN_LAYER_MATRIX("attn_output", "self_attn.o_proj", TERN_ROLE_O)

// Biases of all of a layer's products; order_: of those of q and k, ROPE if their rows have it.
#define TERN_LAYER_BIAS(gguf_, hf_, order_)                                                        \
    TERN_LAYER_ROW(gguf_ ".bias", hf_ ".bias", .columns = TERN_ORDER_##order_)
#define TERN_ROWS_BIASES(order_)                                                                   \
    TERN_LAYER_BIAS("attn_q", "self_attn.q_proj", order_),                                         \
        TERN_LAYER_BIAS("attn_k", "self_attn.k_proj", order_),                                     \
        TERN_LAYER_BIAS("attn_v", "self_attn.v_proj", SAME),                                       \
        TERN_LAYER_BIAS("attn_output", "self_attn.o_proj", SAME),                                  \
        TERN_LAYER_BIAS("ffn_gate", "mlp.gate_proj", SAME),                                        \
        TERN_LAYER_BIAS("ffn_up", "mlp.up_proj", SAME),                                            \
        TERN_LAYER_BIAS("ffn_down", "mlp.down_proj", SAME)

// RoPE's factors, which folders have in config.json.
#define TERN_ROWS_ROPE_FACTORS                                                                     \
    {.gguf = "rope_freqs.weight"},                                                                 \
        TERN_ROW("rope_factors_short.weight", "rope_factors_short.weight"),                        \
        TERN_ROW("rope_factors_long.weight", "rope_factors_long.weight")

#define TERN_ROWS_FEED_FORWARD                                                                     \
    TERN_LAYER_MATRIX("ffn_gate", "mlp.gate_proj", TERN_ROLE_GATE),                                \
        TERN_LAYER_MATRIX("ffn_up", "mlp.up_proj", TERN_ROLE_UP),                                  \
        TERN_LAYER_MATRIX("ffn_down", "mlp.down_proj", TERN_ROLE_DOWN)

#define TERN_ROWS_MAMBA                                                                            \
    TERN_LAYER_MATRIX("ssm_in", "mamba.in_proj", TERN_ROLE_MATRIX),                                \
        TERN_LAYER_ROW("ssm_conv1d.weight", "mamba.conv1d.weight", .change = TERN_CHANGE_SQUEEZE), \
        TERN_LAYER_ROW("ssm_conv1d.bias", "mamba.conv1d.bias"),                                    \
        TERN_LAYER_ROW("ssm_dt.bias", "mamba.dt_bias"),                                            \
        TERN_LAYER_ROW("ssm_a", "mamba.A_log", .change = TERN_CHANGE_MINUS_EXP,                    \
                       .gguf_column = true),                                                       \
        TERN_LAYER_ROW("ssm_d", "mamba.D", .gguf_column = true),                                   \
        TERN_LAYER_NORM("ssm_norm", "mamba.norm", TERN_CHANGE_NONE),                               \
        TERN_LAYER_MATRIX("ssm_out", "mamba.out_proj", TERN_ROLE_MATRIX)

// Experts, which folders store separately (formats/hf/hf_experts.c): the names of gate, up and
// down.
#define TERN_ROWS_EXPERTS(module_, gate_, up_, down_)                                              \
    TERN_LAYER_MATRIX("ffn_gate_inp", module_ ".gate", TERN_ROLE_FLOATS),                          \
        TERN_LAYER_MATRIX("ffn_gate_exps", module_ ".experts." gate_, TERN_ROLE_MATRIX),           \
        TERN_LAYER_MATRIX("ffn_up_exps", module_ ".experts." up_, TERN_ROLE_MATRIX),               \
        TERN_LAYER_MATRIX("ffn_down_exps", module_ ".experts." down_, TERN_ROLE_MATRIX)

// Llama's, except biases.
#define TERN_ROWS_LLAMA                                                                            \
    TERN_ROWS_TABLE_AND_HEAD, TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),            \
        TERN_ROWS_ROPE_FACTORS, TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE), \
        TERN_ROWS_ATTENTION_NEIGHBOURS,                                                            \
        TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),                 \
        TERN_ROWS_FEED_FORWARD, TERN_ROWS_INPUT_NORMS

// The norms in front of each projection: as transformers' BitNet quantizer adds them to any model
// (use_rms_norm), and as BitNet's embedding models name them.
#define TERN_INPUT_NORM(gguf_, hf_)                                                                \
    TERN_LAYER_ROW(gguf_ "_norm_in.weight", hf_ ".rms_norm.weight",                                \
                   .hf_also = "model.layers.%d." hf_ ".norm.weight")
#define TERN_ROWS_INPUT_NORMS                                                                      \
    TERN_INPUT_NORM("attn_q", "self_attn.q_proj"), TERN_INPUT_NORM("attn_k", "self_attn.k_proj"),  \
        TERN_INPUT_NORM("attn_v", "self_attn.v_proj"),                                             \
        TERN_INPUT_NORM("attn_output", "self_attn.o_proj"),                                        \
        TERN_INPUT_NORM("ffn_gate", "mlp.gate_proj"), TERN_INPUT_NORM("ffn_up", "mlp.up_proj"),    \
        TERN_INPUT_NORM("ffn_down", "mlp.down_proj")

// Those of Qwen's tower. The mergers of intermediate layers are numbered 0, 1 ...; llama.cpp's
// files use the layers' numbers instead (formats/gguf/gguf_tower.c).
#define TERN_SEEN(gguf_, hf_, role_)                                                               \
    TERN_MATRIX(gguf_, "model.visual." hf_, TERN_ROLE_##role_),                                    \
        TERN_ROW(gguf_ ".bias", "model.visual." hf_ ".bias")
#define TERN_ROWS_QWEN_VISION                                                                      \
    TERN_ROW("v.patch_embd.weight", "model.visual.patch_embed.proj.weight",                        \
             .role = TERN_ROLE_FLOATS, .change = TERN_CHANGE_FLATTEN),                             \
        TERN_ROW("v.patch_embd.bias", "model.visual.patch_embed.proj.bias"),                       \
        TERN_ROW("v.position_embd.weight", "model.visual.pos_embed.weight"),                       \
        TERN_SEEN("v.blk.%d.ln1", "blocks.%d.norm1", VECTOR),                                      \
        TERN_SEEN("v.blk.%d.attn_qkv", "blocks.%d.attn.qkv", MATRIX),                              \
        TERN_SEEN("v.blk.%d.attn_out", "blocks.%d.attn.proj", MATRIX),                             \
        TERN_SEEN("v.blk.%d.ln2", "blocks.%d.norm2", VECTOR),                                      \
        TERN_SEEN("v.blk.%d.ffn_up", "blocks.%d.mlp.linear_fc1", MATRIX),                          \
        TERN_SEEN("v.blk.%d.ffn_down", "blocks.%d.mlp.linear_fc2", MATRIX),                        \
        TERN_SEEN("v.post_ln", "merger.norm", VECTOR),                                             \
        TERN_SEEN("mm.0", "merger.linear_fc1", MATRIX),                                            \
        TERN_SEEN("mm.2", "merger.linear_fc2", MATRIX),                                            \
        TERN_SEEN("v.deepstack.%d.norm", "deepstack_merger_list.%d.norm", VECTOR),                 \
        TERN_SEEN("v.deepstack.%d.fc1", "deepstack_merger_list.%d.linear_fc1", MATRIX),            \
        TERN_SEEN("v.deepstack.%d.fc2", "deepstack_merger_list.%d.linear_fc2", MATRIX)

// Those of a SigLIP tower, behind either of two prefixes of transformers' names; and its sizes
// (tern_tower_size).
#define TERN_SIGLIP_ROW(at_, also_, gguf_, end_, hf_, ...)                                         \
    TERN_ROW(gguf_ end_, at_ hf_ end_, .hf_also = also_ hf_ end_, __VA_ARGS__)
#define TERN_SIGLIP(at_, also_, gguf_, hf_, role_)                                                 \
    TERN_SIGLIP_ROW(at_, also_, gguf_, ".weight", hf_, .role = TERN_ROLE_##role_),                 \
        TERN_SIGLIP_ROW(at_, also_, gguf_, ".bias", hf_, .role = TERN_ROLE_VECTOR)
#define TERN_SIGLIP_LAYER(at_, also_, gguf_, hf_, role_)                                           \
    TERN_SIGLIP(at_, also_, "v.blk.%d." gguf_, "encoder.layers.%d." hf_, role_)
#define TERN_ROWS_SIGLIP_AT(at_, also_, patch_columns_)                                            \
    TERN_SIGLIP_ROW(at_, also_, "v.patch_embd", ".weight", "embeddings.patch_embedding",           \
                    .role = TERN_ROLE_FLOATS, .change = TERN_CHANGE_FLATTEN,                       \
                    .columns = (patch_columns_)),                                                  \
        TERN_SIGLIP_ROW(at_, also_, "v.patch_embd", ".bias", "embeddings.patch_embedding",         \
                        .role = TERN_ROLE_VECTOR),                                                 \
        TERN_SIGLIP_ROW(at_, also_, "v.position_embd", ".weight", "embeddings.position_embedding", \
                        .role = TERN_ROLE_VECTOR),                                                 \
        TERN_SIGLIP_LAYER(at_, also_, "ln1", "layer_norm1", VECTOR),                               \
        TERN_SIGLIP_LAYER(at_, also_, "attn_q", "self_attn.q_proj", MATRIX),                       \
        TERN_SIGLIP_LAYER(at_, also_, "attn_k", "self_attn.k_proj", MATRIX),                       \
        TERN_SIGLIP_LAYER(at_, also_, "attn_v", "self_attn.v_proj", MATRIX),                       \
        TERN_SIGLIP_LAYER(at_, also_, "attn_out", "self_attn.out_proj", MATRIX),                   \
        TERN_SIGLIP_LAYER(at_, also_, "ln2", "layer_norm2", VECTOR),                               \
        TERN_SIGLIP_LAYER(at_, also_, "ffn_up", "mlp.fc1", MATRIX),                                \
        TERN_SIGLIP_LAYER(at_, also_, "ffn_down", "mlp.fc2", MATRIX),                              \
        TERN_SIGLIP(at_, also_, "v.post_ln", "post_layernorm", VECTOR)
#define TERN_ROWS_SIGLIP(patch_columns_)                                                           \
    TERN_ROWS_SIGLIP_AT("model.vision_tower.vision_model.", "model.vision_tower.", patch_columns_)
#define TERN_SIGLIP_SIZE(gguf_, hf_, most_, usual_, field_)                                        \
    { gguf_, "vision_config." hf_, most_, usual_, offsetof(tern_vision, field_) }
#define TERN_SIGLIP_SIZES                                                                          \
    TERN_SIGLIP_SIZE("block_count", "num_hidden_layers", 1000, 12, n_layers),                      \
        TERN_SIGLIP_SIZE("embedding_length", "hidden_size", 65536, 768, n_embd),                   \
        TERN_SIGLIP_SIZE("feed_forward_length", "intermediate_size", 1 << 20, 3072, n_ff),         \
        TERN_SIGLIP_SIZE("attention.head_count", "num_attention_heads", 4096, 12, n_heads),        \
        TERN_SIGLIP_SIZE("patch_size", "patch_size", 64, 16, n_patch)

// Tensors of other parts in a model's files, when only the text is computed.
#define TERN_IGNORED_IMAGES                                                                        \
    {"model.visual.", NULL, "of the part that sees images: only text is computed"},                \
        {"visual.", NULL, "of the part that sees images: only text is computed"},                  \
        {"model.vision_tower.", NULL, "of the part that sees images: only text is computed"},      \
        {"vision_tower.", NULL, "of the part that sees images: only text is computed"},            \
        {"model.multi_modal_projector.", NULL,                                                     \
         "brings images to the text: only text is computed"},                                      \
        {"multi_modal_projector.", NULL, "brings images to the text: only text is computed"}, {    \
        "audio_tower.", NULL, "of the part that hears: only text is computed"                      \
    }

#define TERN_IGNORED_ROPE                                                                          \
    {NULL, ".rotary_emb.inv_freq", "RoPE's frequencies are computed from the config"}, {           \
        NULL, ".attn_rot_embd.weight", "RoPE's frequencies are computed from the config"           \
    }

extern const tern_tensor_row tern_decoder_tensors[]; // Llama's
extern const tern_ignored tern_decoder_ignored[];    // TERN_IGNORED_ROPE alone

// ---- Samples -----------------------------------------------------------------------------------

// Sizes that are not multiples of vector lengths; a text of some 30 tokens exceeds a window of 9.
#define TERN_SAMPLE                                                                                \
    .n_vocab = 260, .n_layers = 2, .n_embd = 96, .n_ff = 160, .n_heads = 3, .n_kv_heads = 1,       \
    .head_dim = 32, .n_context = 64, .rms_eps = 1e-5, .final_rms_eps = 1e-5, .tied_head = true,    \
    .bos_id = -1, .eos_id = -1
#define TERN_SAMPLE_ROPE(n_rot_)                                                                   \
    { .n_rot = (n_rot_), .halves = true, .base = 10000, .factor = 1 }

// Reads the config of a file whose family s->arch is: config.c.
tern_status tern_config_read(tern_config_source *s, tern_config *c, tern_error *err);

#endif
