// Architectures: each turns a file's own config into a graph. One file each, one row in models.inc.
//
// A model's source file deals with names and hyperparameters, not with memory, kernels or tokens.
#ifndef TERN_MODELS_MODELS_H
#define TERN_MODELS_MODELS_H

#include "formats/formats.h"
#include "graph/graph.h"
#include "media/media.h"

// How a layer mixes positions.
typedef enum tern_layer_kind {
    TERN_LAYER_FULL,   // attention to everything before (encoders: to everything)
    TERN_LAYER_WINDOW, // attention to the nearest `window` positions
    TERN_LAYER_CONV,   // a short convolution
    TERN_LAYER_DELTA,  // a gated delta net
    TERN_LAYER_MAMBA,  // a selective state space (Mamba-2)
    TERN_LAYER_KINDS
} tern_layer_kind;
#define TERN_LAYERS_MAX 1000

// Falcon-H1: factors of the values between its parts; 1 if the file's weights include them.
typedef struct tern_multipliers {
    double ssm_in, ssm_out, ssm[5]; // of the gate, x, B, C and the steps
    double attention_in, attention_out, key, gate, down;
} tern_multipliers;

// The vision tower of a language model; all 0: text only.
#define TERN_VISION_FRAMES 2 // frames of a patch at most: an image is repeated
#define TERN_VISION_DEEP   5 // layers read besides the last one, at most
typedef struct tern_vision {
    const struct tern_tower *tower; // its kind
    int64_t n_layers, n_embd, n_ff, n_heads, n_out;
    int64_t n_patch; // edge of a patch in pixels
    int64_t n_merge; // edge in patches of a block, which becomes one row
    int64_t n_side;  // edge of the grid of learned positions
    int64_t n_image; // edge in pixels of the squares that it sees; 0: of such a grid of patches
    tern_act_kind act;
    double eps; // of its norms
    // Layers whose rows are merged too; the text model adds them to its rows after its first
    // layers. A text model written without its tower keeps n_deep.
    int64_t n_deep;
    int32_t deep[TERN_VISION_DEEP];
    // Placeholder tokens for an image's rows and for a video's, and the tokens around them;
    // -1: not stated
    int64_t image_id, video_id, start_id, end_id;
    int64_t row_id, after_id; // Gemma's folders: the token for a row, and the one after the last
    // If two products turn merged patches into rows: the columns between the two, whether a norm
    // precedes them, and whether they have biases.
    int64_t n_between;
    bool merge_norm, merge_biases;
    bool colors_last; // a patch's numbers pixel by pixel, as this file's matrix takes them
} tern_vision;
int64_t tern_vision_patch_cols(const tern_vision *v); // numbers of a patch
int64_t tern_vision_point_cols(const tern_vision *v); // of its position: tern_g_add_point
#define TERN_VISION_DEEP_NAME "deep.%d" // output for deep[I]; the last layer has "rows"

#define TERN_PLACEHOLDERS_MAX 4

// What only one family's models have: a struct of the family's file, which alone reads and sets it
// (TERN_OWN_CONFIG in core/family.h). All 0 before its reader, and in samples.
#define TERN_OWN_BYTES 4352
typedef union tern_own {
    unsigned char bytes[TERN_OWN_BYTES];
    int64_t whole; // it is aligned for these
    double real;
} tern_own;

// Hyperparameters, as the file states them, in the field's usual names. tools/check_families.sh
// refuses members that only one family reads.
typedef struct tern_config {
    int64_t n_vocab, n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_context;
    int64_t n_window;              // window of every layer, 0: all positions
    double rms_eps, final_rms_eps; // final: of the last norm; the same unless the file differs
    tern_act_kind act;
    tern_rope_attrs rope; // of full attention
    bool tied_head;       // the output head is the embedding table
    bool sub_norms;       // a norm before attention's output projection and before the down one
    bool bitlinear;       // float weights of the layers are masters, rounded when they are read
    bool input_norms;     // a norm before every projection (use_rms_norm), with its own eps
    double input_norm_eps;
    const char *guess;      // a guess that was needed since the file does not say, or NULL
    int64_t bos_id, eos_id; // -1: not stated
    // Placeholder tokens for images and sounds. They must not be computed as tokens: no program
    // does that. The first 0 ends the list.
    int32_t placeholders[TERN_PLACEHOLDERS_MAX];
    // What only some families have
    uint8_t layers[TERN_LAYERS_MAX];    // a tern_layer_kind each; all zero: full attention
    int32_t window;                     // of TERN_LAYER_WINDOW: how many positions a row sees
    tern_rope_attrs window_rope;        // of TERN_LAYER_WINDOW
    uint8_t unrotated[TERN_LAYERS_MAX]; // layers whose attention has no RoPE
    bool qkv_biases, output_biases;     // of attention's products; qkv: of queries, keys and values
    bool ff_biases;                     // of the feed-forward's
    // Factors of the table's rows and of each half-layer's output; divisor of the logits. 0: none
    double embedding_scale, residual_scale, logit_divisor;
    double query_scalar;  // attention's scale is 1 / its square root; 0: head_dim's
    bool bidirectional;   // an encoder: no causal mask
    tern_pooling pooling; // NONE: a language model with logits; else one vector per text
    bool any_length;      // the vectors are as they come, not of length 1
    bool appends_eos;     // the end token follows a text, even if the tokenizer does not say so
    // Encoders with a table of segments: its rows, and the token that ends a segment (-1: unknown)
    int64_t n_segments, separator_id;
    int64_t n_labels;         // scores of a classifier of pairs, which has no vectors; 0: not one
    int64_t n_patch, n_image; // image models: edge of a patch and of the image; 0: not one
    // Speech models: layers of the encoder, most rows that the decoder attends to, samples per row
    // of the input, and how many zeros are appended to the samples; 0: not one
    int64_t n_encoder_layers, n_source, n_step, n_padding;
    tern_vision vision;
    int64_t n_batch_most; // most rows computed at once, 0: as many as usual
    int64_t n_dense;      // outputs of the first of two products after pooling; 0: no such products
    int64_t n_ignored_blocks; // GGUF: blocks after the layers that are not run
    int32_t conv_taps;
    bool conv_bias;         // biases in the convolution and the products around it
    tern_delta_attrs delta; // tiled: the order of the value heads in this file
    tern_ssm_attrs ssm;
    bool ssm_norm; // a norm of the state space's output, after its gate
    tern_multipliers multipliers;
    // Gemma 4: heads of full-attention layers have their own dimensions; the last layers read the
    // keys and values of earlier ones, and may be twice as wide; each layer adds n_per_layer
    // numbers of the token; scores are capped. 0: none of these
    int64_t full_head_dim, n_shared, n_per_layer;
    bool wide_shared;
    double score_cap;
    // Mixtures of experts, in the feed-forward part of all layers but the first n_dense_layers
    int64_t n_experts, n_experts_used, n_ff_expert, n_dense_layers; // n_experts 0: none
    bool experts_sigmoid, experts_normed, experts_bias; // how rows are routed: tern_route_attrs
    double experts_scale;
    tern_own own;
} tern_config;

// Whether an image's rows attend to each other in the text, and so must be computed at once.
bool tern_config_both_ways(const tern_config *c);
// Columns of the decoder's input "rows", the rows that stand for an image in a text.
int64_t tern_config_given_cols(const tern_config *c);

// What a tensor is for.
typedef enum tern_role {
    TERN_ROLE_VECTOR, // norms, biases, taps of convolutions: read as floats, never quantized
    TERN_ROLE_TABLE,
    TERN_ROLE_HEAD,
    TERN_ROLE_MATRIX, // of a product with none of the names below
    TERN_ROLE_FLOATS, // the same, but its numbers are neither ternary nor quantized
    TERN_ROLE_Q,
    TERN_ROLE_K,
    TERN_ROLE_V,
    TERN_ROLE_O,
    TERN_ROLE_GATE,
    TERN_ROLE_UP,
    TERN_ROLE_DOWN,
} tern_role;

// What GGUF stores for Hugging Face's number w.
typedef enum tern_change {
    TERN_CHANGE_NONE,
    TERN_CHANGE_PLUS_ONE,  // 1 + w: norms stored around zero
    TERN_CHANGE_MINUS_EXP, // -e^w: decay rates stored as logarithms
    TERN_CHANGE_SQUEEZE,   // w, but [n, taps] instead of [n, 1, taps]
    TERN_CHANGE_LEADING,   // w, but [rows, n] instead of [1, rows, n], and [n] instead of [1, 1, n]
    TERN_CHANGE_SCALAR,    // w, but [1] instead of []
    TERN_CHANGE_FLATTEN,   // w, but [n, colors * edge * edge] instead of [n, colors, edge, edge],
                           // or [n, columns * taps] instead of [n, columns, taps]
    TERN_CHANGE_PADDED,    // the same; graphs read rows with zeros up to a multiple of 4 columns
    TERN_CHANGE_TURNED,    // w in both; its columns are the rows of the graph's matrix
} tern_change;

// Rows or columns that have another order in GGUF (orders.c).
typedef enum tern_order_kind {
    TERN_ORDER_SAME,
    TERN_ORDER_ROPE,    // RoPE's pairs next to each other, in each head
    TERN_ORDER_V_HEADS, // a delta net's value heads, by key head instead of by group
    TERN_ORDER_V_EACH,  // one number per value head
    TERN_ORDER_QKV,     // queries and keys, then value heads
    TERN_ORDER_COLORS,  // of a patch: color by color instead of pixel by pixel
} tern_order_kind;

// One tensor in the two formats; %d is the layer.
typedef struct tern_tensor_row { // small, since pages load hundreds
    const char *gguf, *hf;       // hf NULL: not a tensor there
    tern_role role : 8;
    tern_change change : 8;
    tern_order_kind rows : 8, columns : 8;
    const char *gguf_also, *hf_also; // another name for it in some files
    // A folder's tensor holds the rows of `shares` GGUF tensors, one after the other; this is
    // number `share`. The rows of one folder's tensor follow each other in this table. shares 0:
    // one tensor in both.
    int8_t share, shares;
    int8_t taps;      // of a FLATTENed convolution along one axis; 0: a square one
    bool gguf_column; // a vector that GGUF stores as a matrix with one column
    bool is_computed; // the graph reads the output of tern_arch.numbers
} tern_tensor_row;

// A tensor in files that the graph does not read, by the beginning or the end of its name, and why
// that is correct.
typedef struct tern_ignored {
    const char *begin, *end, *why; // one of begin and end is set
} tern_ignored;

// The sampling that a family's authors recommend, used if a file has none; a member below 0: no
// advice.
typedef struct tern_sampling_defaults {
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
} tern_sampling_defaults;

// Called with each key that a config reader asks for, present or not: a path in config.json, or a
// GGUF key.
typedef struct tern_config_watch {
    void (*on_key)(void *user, const char *key);
    void *user;
} tern_config_watch;

// Where the readers of a config look (config.c).
typedef struct tern_config_source {
    const tern_file *file;
    const struct tern_arch *arch;
    char prefix[64]; // GGUF: general.architecture
    // The first key whose value has the wrong type. To ignore it would give another model. Empty:
    // none.
    struct tern_config_odd {
        char key[160];
        const char *expected; // "a number"
    } * odd;
    const tern_config_watch *watch; // NULL: none
} tern_config_source;

#include "models/arch_media.h" // towers, recognizers, speakers

// Names in a folder's config.json: model_type and architectures.
typedef struct tern_model_folder {
    const char *type, *class_name;
} tern_model_folder;

// What training from scratch can make of this architecture.
typedef enum tern_fresh { TERN_FRESH_NONE, TERN_FRESH_FLOATS, TERN_FRESH_TERNARY } tern_fresh;

// A graph of an architecture. An input named like a value of an earlier graph is that value: this
// is how one part of a model feeds the next.
#define TERN_GRAPHS_MAX 8 // of a model
typedef struct tern_graph_row {
    const char *name;                       // "decoder", "encoder" ...
    bool (*is_there)(const tern_config *c); // NULL: in every model of the architecture
    tern_status (*build)(tern_graph *g, const tern_config *c, tern_error *err);
    int32_t n_rows; // in any dimension: it is compiled for at least this many, however short
                    // batches are
} tern_graph_row;

typedef struct tern_arch {
    const char *name;              // for messages
    const char *const *gguf_names; // general.architecture values, NULL-terminated; the first one is
                                   // written by conversion
    const char *const *hf_types;   // config.json model_type values; the first one is written
    const char *hf_class;          // config.json: architectures
    const tern_model_folder *hf_windowed; // both names, for a model with one window; NULL: the same
    bool (*is_mine)(const tern_file *file); // among several with the same name; NULL: always
    const tern_tensor_row *tensors;         // ends with one without names
    const tern_ignored *ignored;            // ends with one without a reason; NULL: none
    const tern_config *defaults;            // for members missing in config.json; NULL: none
    // Takes sizes missing in a folder's config.json from its tensors; NULL: config.json has them
    // all.
    tern_status (*sizes)(const tern_config_source *s, tern_config *c, tern_error *err);
    // Reads the rest of a config after its sizes, and writes it; NULL: there is no rest.
    tern_status (*read)(const tern_config_source *s, tern_config *c, tern_error *err);
    tern_status (*write_gguf)(tern_gguf_writer *w, const char *name, const tern_config *c);
    void (*write_json)(const tern_config *c, tern_strbuf *out);
    // Whether a tensor of a folder or GGUF is not read, by its GGUF name; NULL: only `ignored`.
    const char *(*ignores)(const tern_config *c, const char *gguf_name);
    // How other programs treat a GGUF of such a config differently, as the rest of a sentence;
    // NULL: they compute the same.
    const char *(*differs)(const tern_config *c);
    // Factor between a row of the Hugging Face tensor and GGUF's, which has config.json's scales
    // folded in. NULL: 1.
    double (*folded)(const tern_config *c, const char *gguf_name, int64_t row);
    // Changes the numbers x of an is_computed tensor into those that the graph reads.
    tern_status (*numbers)(const tern_file *file, const struct tern_arch *arch,
                           const tern_tensor *t, float *x, tern_error *err);
    // Ends with one without a name. A model's first graph is its main one, which sessions run and
    // training trains.
    const tern_graph_row *graphs;
    // The activation that programs compute for a GGUF of this name; *guess: why, unless the name
    // alone decides. NULL: always `act`.
    tern_act_kind (*gguf_act)(const char *gguf_name, const tern_config *c, const char **guess);
    tern_act_kind act;     // if a file does not say
    const char *hf_prefix; // written instead of "model." in front of names; NULL: "model."
    // This family's own names of config.json members; NULL: the usual ones.
    const char *hf_eps, *hf_act;
    // RoPE in folders. turns_part: the share of a head that RoPE turns if config.json has none; 0:
    // always whole heads, as in transformers' code for the family, whatever a file says.
    double turns_part;
    bool rope_is_long;   // the only scaling that the family has is two sets of factors
    bool rope_grows;     // queries grow with their position
    bool rope_has_alpha; // the family has a fixed, greater base
    const char *const (*hf_renamed)[2]; // usual name, own name; ends with {NULL}. NULL: none
    // RoPE's pairs are neighbours among a head's dimensions instead of in its two halves, in GGUF
    // and in folders (tern_rope_attrs.halves is the opposite). If only in GGUF, conversion moves
    // rows of q and k: they are TERN_ORDER_ROPE in `tensors`.
    bool gguf_rope_neighbours, hf_rope_neighbours;
    const tern_arch_media *media; // what it sees, hears and says with; NULL: nothing
    const tern_seeing_names *hf_sees;
    bool reads_deep;       // rows of several layers of a tower: tern_vision.deep
    bool own_config;       // its own reader and writers handle all of the config: no vocabulary, no
                           // attention
    bool mixed_layers;     // config.json lists the kind of each layer
    bool windows_by_layer; // its own reader reads them
    bool ff_by_layer;      // GGUF's feed_forward_length is an array: the first value counts
    bool has_experts;      // its own reader reads them
    bool kv_heads_by_layer; // GGUF's head_count_kv is an array: 0 where a layer has no attention
    const tern_sampling_defaults *sampling;
    // A small model of this family, which device checks run. NULL: none.
    const tern_config *sample;
    tern_fresh fresh;
} tern_arch;

// The architecture of a file; checks the config for sense (no zero, no absurd size).
tern_status tern_arch_read(const tern_file *file, const tern_arch **arch, tern_config *config,
                           tern_error *err);
tern_status tern_arch_read_watched(const tern_file *file, const tern_config_watch *watch,
                                   const tern_arch **arch, tern_config *config, tern_error *err);
// Fails, with its name, on a tensor that none of the graphs (as the architecture built them) reads:
// without it, this would be another model. The architecture lists those that may be left out; see
// also tern_arch_ignores.
tern_status tern_arch_refuse_unread(const tern_file *file, const tern_arch *arch,
                                    const tern_config *c, const tern_graph *const *graphs,
                                    int n_graphs, tern_error *err);
// Whether the file's tensors are those that the architecture's graphs read: none missing, none
// extra, in shapes and types that can run. Needs memory for the graphs during the call.
tern_status tern_arch_check(const tern_file *file, const tern_arch *arch, const tern_config *c,
                            tern_error *err);
// Why a tensor of the file may be left out; NULL: it may not.
const char *tern_arch_ignores(const tern_file *file, const tern_arch *arch, const tern_config *c,
                              const char *name);
// The architecture's; NULL: it has none.
static inline const tern_tower *tern_tower_of(const tern_arch *arch) {
    return arch->media ? arch->media->tower : NULL;
}
static inline const tern_recognizer *tern_recognizer_of(const tern_arch *arch) {
    return arch->media ? arch->media->recognizer : NULL;
}
static inline const tern_speaker *tern_speaker_of(const tern_arch *arch) {
    return arch->media ? arch->media->speaker : NULL;
}
static inline bool tern_is_codec(const tern_arch *arch) {
    return arch->media && arch->media->codec;
}
// Whether the tower of a GGUF (llama.cpp's mmproj) fits this model.
bool tern_arch_fits_tower(const tern_arch *arch, const tern_config *c, const tern_file *tower);
// The graphs that a model of this config has, the main one first. Returns how many.
int tern_arch_graphs(const tern_arch *arch, const tern_config *c,
                     const tern_graph_row *out[TERN_GRAPHS_MAX]);
// Fails if the file lacks layers of its config.
tern_status tern_arch_check_layers(const tern_file *file, const tern_arch *arch,
                                   const tern_config *c, tern_error *err);
// The main graph of a config's model, whatever the file.
tern_status tern_arch_build_main(tern_graph *g, const tern_arch *arch, const tern_config *c,
                                 tern_error *err);
// The same for a file, which must have all layers.
tern_status tern_arch_build(tern_graph *g, const tern_file *file, const tern_arch *arch,
                            const tern_config *c, tern_error *err);
// All graphs, into graphs[0 ..]; a value that flows between two has the same shape and type in
// both. *n: how many were begun; the caller frees them with tern_graph_free, also after a failure.
tern_status tern_arch_build_all(tern_graph *graphs, int *n, const tern_file *file,
                                const tern_arch *arch, const tern_config *c, tern_error *err);
// The latest graph before `graph` that makes the value of its input v; -1: none.
int tern_arch_flow(const tern_graph *const *graphs, int graph, tern_vid v);
const tern_arch *const *tern_arch_list(size_t *n);
// The architecture that training from scratch uses, with BitLinears or without.
const tern_arch *tern_arch_fresh(bool bitlinear);
// The tensor with this GGUF name, in either kind of file; NULL: not there.
const tern_tensor *tern_arch_tensor(const tern_file *file, const tern_arch *arch,
                                    const char *gguf_name);
// The tensor of a graph's weight, its shape and type checked.
// If a folder stores several as one tensor, *out is its share of the rows.
tern_status tern_arch_weight(const tern_file *file, const tern_arch *arch, const tern_value *v,
                             tern_tensor *out, tern_error *err);
// A share of a tensor's rows.
tern_tensor tern_tensor_share(const tern_tensor *t, int share, int shares);
// The numbers that the graph reads, if they differ from the file's; NULL: they do not, or the
// tensor is not small. The caller frees them with tern_free.
tern_status tern_arch_numbers(const tern_file *file, const tern_arch *arch, const tern_tensor *t,
                              const char *gguf_name, float **out, tern_error *err);
// The Hugging Face name for a GGUF name and the reverse, into a buffer of `size`; false: unknown.
bool tern_arch_name_to_hf(const tern_arch *arch, const char *gguf_name, char *out, size_t size);
bool tern_arch_name_to_gguf(const tern_arch *arch, const char *hf_name, char *out, size_t size);
// The name of a GGUF tensor in graphs and llama.cpp; some files use another.
bool tern_arch_name_usual(const tern_arch *arch, const char *gguf_name, char *out, size_t size);
// A tensor's row by its GGUF name, or NULL; and its role, VECTOR if unknown.
const tern_tensor_row *tern_arch_row(const tern_arch *arch, const char *gguf_name);
tern_role tern_arch_role(const tern_arch *arch, const char *gguf_name);
// A weight that conversion rounds to small types: neither table nor head, nor what stays in floats.
bool tern_arch_is_layer_matrix(const tern_arch *arch, const tern_value *v);
// The number in GGUF's "blk.7.ffn_up.weight", -1: not in a block. rest (may be NULL): the text
// after the second period.
int tern_tensor_block(const char *gguf_name, const char **rest);
// "q", "down" ... of a role that adapters can be trained for, or NULL.
const char *tern_role_name(tern_role role);

// ---- Sampling settings of files (sampling_defaults.c) ------------------------------------------

typedef enum tern_sampling_field {
    TERN_SAMPLING_TEMPERATURE,
    TERN_SAMPLING_TOP_K,
    TERN_SAMPLING_TOP_P,
    TERN_SAMPLING_MIN_P,
    TERN_SAMPLING_REPEAT_PENALTY,
    TERN_SAMPLING_FIELDS
} tern_sampling_field;
float tern_sampling_read(const tern_file *file, tern_sampling_field which); // -1: not stated
// The file's sampling settings, for files of the other format; ends: the tokens that end a text.
// JSON: empty if config.json says all.
tern_status tern_sampling_write_gguf(tern_gguf_writer *w, const tern_file *from);
void tern_sampling_write_json(const tern_file *from, const int32_t *ends, size_t n_ends,
                              tern_strbuf *out);

// ---- Texts to embed (prompts.c) ----------------------------------------------------------------

#define TERN_PROMPTS_MAX 256
typedef struct tern_prompts { // texts of the file
    tern_str names[TERN_PROMPTS_MAX], texts[TERN_PROMPTS_MAX];
    size_t n;
    tern_str first;     // the name of the default one; {NULL}: none
    int64_t max_length; // most tokens of a text; 0: not stated
} tern_prompts;
tern_status tern_prompts_read(const tern_file *file, tern_prompts *out, tern_error *err);
// A folder's prompts, as GGUF keys.
tern_status tern_prompts_write_length(tern_gguf_writer *w, int64_t n_tokens); // of a text
tern_status tern_prompts_write_gguf(tern_gguf_writer *w, const tern_file *from, tern_error *err);

// What a decoder that reranks reads around the query and the document; files have no such template.
// The first and the last part contain special tokens.
typedef struct tern_rerank_prompt {
    const char *name, *mark; // whose it is; a token that its vocabulary has
    const char *front, *instruction, *back;
} tern_rerank_prompt;
extern const tern_rerank_prompt tern_rerank_prompt_usual;

// ---- Images (images.c) --------------------------------------------------------------------------

typedef struct tern_image_rules {
    int32_t width, height; // that the model reads
    int32_t shorter; // first the shorter edge is resized to this, then the middle is cropped; 0:
                     // the image is resized to width x height, whatever its shape
    bool rounds;     // if the middle is between two pixels: the even one; else the first
    tern_image_filter filter;
    float factor; // of a byte, before the mean is subtracted and the rest divided by the deviation
    float mean[3], deviation[3];
} tern_image_rules;
tern_status tern_images_read(const tern_file *file, const tern_config *c, tern_image_rules *out,
                             tern_error *err);
// How a vision-language model reads images: any shape, a limited number of pixels, edges that are
// multiples of a block's. n_pixels_max: a limit below the file's; 0: the file's, at most
// TERN_VISION_PIXELS.
#define TERN_VISION_PIXELS ((int64_t)1 << 20)
// A tower with `tiles` cuts an image of more than tolerance * most pixels into squares whose edge
// is `tile`; then it sees the whole as a thumbnail.
typedef struct tern_vision_rules {
    int64_t edge;   // of a square, whatever the image's shape; 0: it keeps its shape
    int64_t longer; // of an image that is cut into such squares, its longer edge; 0: another rule
    int64_t least, most; // pixels
    bool one_at_least;   // before they are compared, an edge is raised to a block's
    int64_t tile, tiles_least, tiles_most; // most 0: no squares
    double tolerance;
    bool whole_too; // a thumbnail after the tiles
    tern_image_filter filter;
    float factor, mean[3], deviation[3];
} tern_vision_rules;
tern_status tern_vision_rules_read(const tern_file *file, const tern_vision *v,
                                   int64_t n_pixels_max, tern_vision_rules *out, tern_error *err);
// The size that an image is resized to: multiples of `edge`.
tern_status tern_vision_size(const tern_vision_rules *r, int64_t edge, int32_t width,
                             int32_t height, int32_t *to_width, int32_t *to_height,
                             tern_error *err);
// How many squares it is cut into; 0 and 0: none.
void tern_vision_tiles(const tern_vision_rules *r, const tern_vision *v, int32_t width,
                       int32_t height, int32_t *across, int32_t *down);
tern_status tern_vision_rules_write_json(const tern_file *from, const tern_arch *arch,
                                         const tern_vision *v, tern_strbuf *out, tern_error *err);
tern_status tern_vision_rules_write_gguf(tern_gguf_writer *w, const tern_file *from,
                                         const tern_vision *v, tern_error *err);
// The names of labels 0 .. n - 1, texts of the file; {NULL}: it has none.
void tern_images_labels(const tern_file *file, tern_str *labels, size_t n);
tern_status tern_images_write_gguf(tern_gguf_writer *w, const tern_file *from, const tern_config *c,
                                   tern_error *err);
// For a folder: preprocessor_config.json; and the labels as the last members of a config.json,
// which ends with its closing brace.
tern_status tern_images_write_json(const tern_file *from, const tern_config *c, tern_strbuf *out,
                                   tern_error *err);
tern_status tern_images_put_labels(const tern_file *from, const tern_config *c, tern_strbuf *config,
                                   tern_error *err);

// ---- Configs and names -------------------------------------------------------------------------

// An activation by its name in config.json; false: not known.
bool tern_act_from_name(tern_str name, tern_act_kind *out);
// Writes the config as GGUF keys under the prefix `arch_name`.
tern_status tern_config_write_gguf(tern_gguf_writer *w, const tern_arch *arch,
                                   const char *arch_name, const tern_config *c);
// The keys of the vision tower, which is a separate file (vision.c).
tern_status tern_config_write_vision(tern_gguf_writer *w, const tern_config *c);
// config.json of a folder with text model and tower; text: the text model's
// (tern_config_write_json).
void tern_config_write_vision_json(const tern_arch *arch, const tern_config *c, const char *text,
                                   tern_strbuf *out);
// Whether a tensor belongs to the vision tower, by its GGUF name.
bool tern_tensor_is_vision(const char *gguf_name);
// RoPE's factors for shorter and for longer texts (TERN_ROPE_LONG).
typedef struct tern_rope_factors {
    float of[2][TERN_ROPE_PAIRS_MAX];
} tern_rope_factors;
// Refuses a config that a file of the family cannot express.
tern_status tern_config_check_folder(const tern_arch *arch, const tern_config *c, tern_error *err);
tern_status tern_config_check_gguf(const tern_arch *arch, const tern_config *c, tern_error *err);
// config.json text for a Hugging Face folder; model_type and architectures by arch. factors: read
// if c->rope.scaling is TERN_ROPE_LONG.
void tern_config_write_json(const tern_arch *arch, const tern_config *c, const char *dtype,
                            const char *ternary_mode, const tern_rope_factors *factors,
                            tern_strbuf *out);
// The config of the same model with its tensors in GGUF's order.
void tern_config_order_as_gguf(const tern_arch *arch, tern_config *c);
// A folder's config becomes that of its GGUF, where `folded` factors are in the weights. False:
// that cannot be, since table and head are one matrix and have different factors.
bool tern_config_fold(const tern_arch *arch, tern_config *c);
// How many factors of RoPE a config.json has as numbers and a GGUF as the tensor rope_freqs.weight;
// 0: none. The others' are tensors of the model.
int tern_config_n_rope_freqs(const tern_config *c);
void tern_config_rope_freqs(const tern_config *c, float *factors);

// ---- Orders and numbers of the two worlds (orders.c) -------------------------------------------

// From `first` on, groups of a * b blocks of `unit` rows: block (i, j) of Hugging Face's a x b is
// block (j, i) of GGUF's b x a. a 0: the same order.
typedef struct tern_order {
    int64_t first, a, b, unit;
} tern_order;
typedef struct tern_moves {
    tern_order rows, columns;
} tern_moves;
// The moves for a tensor between the two formats.
tern_moves tern_arch_moves(const tern_arch *arch, const tern_config *c, const char *gguf_name);
// The row of one format that becomes row `row` of the other.
int64_t tern_order_source(const tern_order *order, int64_t row, bool to_gguf);
// Puts the columns of a row in the other format's order; `scratch` has the same length.
void tern_order_columns(const tern_order *order, bool to_gguf, float *row, int64_t n,
                        float *scratch);
// How GGUF's numbers differ from the file's for this row.
tern_change tern_arch_change(const tern_file *file, const tern_tensor_row *row);
// Changes numbers from one format's to the other's, in place.
void tern_change_apply(tern_change change, bool to_gguf, float *x, size_t n);

// ---- Adapters: LoRA, W x + B (A x), and DoRA, f (W x + B (A x)) ---------------------------------

typedef struct tern_adapter { // for one matrix, all files together unless they are apart
    char weight[64];          // its GGUF name
    char name[80];            // the same and, if they are apart, the file's number after a point
    int64_t n_in, n_out;
    int64_t rank, room; // room: the rank with zeros, a multiple of what kernels read at once
    float *a;           // [room, n_in]
    float *b;           // [n_out, room], includes each file's scale
    float *magnitudes;  // DoRA: what the norms of the sum's rows become, [n_out]; else NULL
    float *factors;     // f, by tern_adapters_find_factors
} tern_adapter;

// A key of adapters in GGUF, for architectures with `folded` factors: the adapter was trained on a
// folder's weights. Other programs' adapters are for GGUF's.
#define TERN_LORA_OF_FOLDER "tern.lora.of_folder"

typedef struct tern_adapters {
    tern_adapter *list;
    size_t n, capacity;
    bool apart; // each file's matrices stay alone, without its scale
    int n_files;
} tern_adapters;
// Adds a file's matrices: a GGUF adapter, or a folder with adapter_model.safetensors and
// adapter_config.json (PEFT). Several for the same weight are stacked: their products add up.
// base: the model that they are for; the rows of B are put in its order.
tern_status tern_adapters_add(tern_adapters *set, const tern_lora *lora, const tern_file *base,
                              const tern_arch *arch, const tern_config *c, tern_error *err);
void tern_adapters_free(tern_adapters *set);
const tern_adapter *tern_adapters_find(const tern_adapters *set, const char *name);
// For tern_pass_low_rank.
int64_t tern_adapters_rank(const void *set, const char *name);
#ifndef TERN_NO_DORA
#define TERN_HAS_DORA 1
bool tern_adapters_has_factors(const void *set, const char *name);
// Computes DoRA's factors, for which the matrices that have them are read and their products B A
// made, a row at a time.
tern_status tern_adapters_find_factors(tern_adapters *set, const tern_file *base,
                                       const tern_arch *arch, const tern_config *c,
                                       tern_error *err);
#else // pages
#define TERN_HAS_DORA                                       0
#define tern_adapters_has_factors                           NULL
#define tern_adapters_find_factors(set, base, arch, c, err) TERN_OK
#endif
// Row `row` of W in out [n_in] becomes that of the matrix that W and its adapter are together.
void tern_adapter_merge_row(const tern_adapter *adapter, int64_t row, float *out);

// ---- The plain decoder (decoder.c) -------------------------------------------------------------

// Llama's, and with config.bitlinear and config.sub_norms BitNet's.
tern_status tern_build_decoder(tern_graph *g, const tern_config *c, tern_error *err);

#include "models/rotation.h" // weights in a rotated basis

#endif
