// Architectures: each turns a file's own config into a graph. One file each, one row in models.inc.
//
// A model file knows names and hyperparameters, and nothing of memory, kernels or tokens.
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

// Falcon-H1's: factors of what stands between its parts, 1 where a file has them in its weights.
typedef struct tern_multipliers {
    double ssm_in, ssm_out, ssm[5]; // of the gate, x, B, C and the steps
    double attention_in, attention_out, key, gate, down;
} tern_multipliers;

// The tower of a language model that sees; all 0: it reads text alone.
#define TERN_VISION_FRAMES 2 // of a patch at most: an image is repeated
#define TERN_VISION_DEEP   5 // layers whose rows are read besides the last one's, at most
typedef struct tern_vision {
    const struct tern_tower *tower; // its kind
    int64_t n_layers, n_embd, n_ff, n_heads, n_out;
    int64_t n_patch; // edge of a patch in pixels
    int64_t n_merge; // edge in patches of a block, which becomes a row
    int64_t n_side;  // edge of the grid of learnt places
    tern_act_kind act;
    double eps; // of its norms
    // Layers whose rows are merged, too; the text adds them to its rows after its first layers. Of
    // a text that is written alone the number stays.
    int64_t n_deep;
    int32_t deep[TERN_VISION_DEEP];
    // Tokens that stand in a text for an image's rows and for a video's, and those around them;
    // -1: not stated
    int64_t image_id, video_id, start_id, end_id;
    int64_t row_id, after_id; // of Gemma's folders: what stands for a row, and after the last one
    // Where rows are made of merged patches by two products: how many numbers lie between these,
    // whether a norm stands before them, and whether they have biases.
    int64_t n_between;
    bool merge_norm, merge_biases;
    bool colors_last; // a patch's numbers pixel by pixel, as this file's matrix takes them
} tern_vision;
int64_t tern_vision_patch_cols(const tern_vision *v); // numbers of a patch
int64_t tern_vision_point_cols(const tern_vision *v); // of its place in the grid: tern_g_add_point
#define TERN_VISION_DEEP_NAME "deep.%d" // the graph's output of deep[I]; that of the last is "rows"

// Of Whisper: its spectrogram, and tokens that it does not write, or not as the first; all 0: it is
// none.
#define TERN_WHISPER_NEVER_MAX 256
#define TERN_WHISPER_FIRST_MAX 8
typedef struct tern_whisper {
    int64_t n_mels, n_frames; // bins; rows of the encoder in a window, 50 a second
    bool is_multilingual;
    int32_t never[TERN_WHISPER_NEVER_MAX], never_first[TERN_WHISPER_FIRST_MAX];
    int32_t n_never, n_never_first;
} tern_whisper;

// Of Moonshine's streaming variants: the encoder has sizes of its own, and its layers see so many
// rows back, the row itself included, and less than so many ahead; n_embd 0: it is none.
#define TERN_STREAMING_LAYERS_MAX 64
typedef struct tern_streaming {
    int64_t n_embd, n_ff, n_heads, n_kv_heads, head_dim;
    int32_t back[TERN_STREAMING_LAYERS_MAX], ahead[TERN_STREAMING_LAYERS_MAX];
} tern_streaming;

// A codec's decoder (nanocodec.c); n_stages 0: the model is none.
#define TERN_CODEC_STAGES   8
#define TERN_CODEC_BRANCHES 4
#define TERN_CODEC_BLOCKS   4
typedef struct tern_codec {
    int32_t n_codes; // of a frame
    int32_t levels[TERN_PIECES_MAX];
    int32_t n_stages, n_branches, n_blocks;
    int32_t rates[TERN_CODEC_STAGES], kernels[TERN_CODEC_BRANCHES], dilations[TERN_CODEC_BLOCKS];
    int32_t in_taps, out_taps;
    bool is_grouped;    // an upsampling convolution has a group for each output
    int64_t n_channels; // before the first stage; each halves them
    int64_t rate;       // samples a second
    int64_t n_frame;    // samples of a frame
} tern_codec;

// A language model that speaks, whose tokens after those of text are marks and then codes of a
// codec's frames (lfm2.c); n_text 0: it does not.
typedef struct tern_speaking {
    int64_t n_text;               // tokens of text; the marks follow
    int64_t n_codes;              // of a frame
    int64_t n_values;             // of a code
    int64_t n_speaker;            // numbers that describe a voice; 0: it takes none
    bool frames_are_places;       // the tokens of a frame share a place of RoPE
    double rate_least, rate_most; // of what layers learnt to turn faster or slower; 0: nothing
} tern_speaking;

#define TERN_PLACEHOLDERS_MAX 4

// Hyperparameters, as the file states them, in the field's usual names.
typedef struct tern_config {
    int64_t n_vocab, n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_context;
    int64_t n_window;              // of every layer, 0: all
    double rms_eps, final_rms_eps; // final: of the last norm; the same unless the file says so
    tern_act_kind act;
    tern_rope_attrs rope; // of attention to everything
    bool tied_head;       // the output head is the embedding table
    bool sub_norms;       // a norm before attention's output projection and before the down one
    bool bitlinear;       // float weights of the layers are masters, rounded when they are read
    bool input_norms;     // a norm before every projection (use_rms_norm), with its own eps
    double input_norm_eps;
    const char *guess;      // what had to be guessed because the file does not say, or NULL
    int64_t bos_id, eos_id; // -1: not stated
    // Tokens that stand where an image or a sound is given: computed as tokens, they would be what
    // no program computes. The first 0 ends them.
    int32_t placeholders[TERN_PLACEHOLDERS_MAX];
    // What only some families have
    uint8_t layers[TERN_LAYERS_MAX];    // a tern_layer_kind each; all zero: full attention
    int32_t window;                     // of TERN_LAYER_WINDOW: rows see that many positions
    tern_rope_attrs window_rope;        // of TERN_LAYER_WINDOW
    uint8_t unrotated[TERN_LAYERS_MAX]; // layers whose attention has no RoPE
    bool qkv_biases, output_biases;     // of attention's products; qkv: of queries, keys and values
    bool ff_biases;                     // of the feed-forward's
    // Factors of the table's rows and of what a layer's halves add, and what logits are divided by;
    // 0: none
    double embedding_scale, residual_scale, logit_divisor;
    double query_scalar;  // attention's scale is its root's inverse; 0: head_dim's
    bool bidirectional;   // an encoder: no causal mask
    tern_pooling pooling; // NONE: a language model, logits; else a vector of each text
    bool any_length;      // the vectors are as they come, not of length 1
    bool
        appends_eos; // a text is followed by the end's token, even if the tokenizer does not say so
    // Encoders with tables of positions and of segments (BERT's): rows before that of the first
    // position, rows of segments, and the token that ends one (-1: not known)
    int64_t first_position, n_segments, separator_id;
    int64_t n_labels; // scores of a classifier of pairs, which has no vectors; 0: it is none
    int64_t n_patch, n_image; // of a model of images: edges of a square and of the whole; 0: none
    // Of a model that hears: layers of the encoder, rows that the decoder attends to at most,
    // samples of a row of its input, and how many zeros count as samples after the last; 0: it does
    // not hear
    int64_t n_encoder_layers, n_source, n_step, n_padding;
    tern_whisper whisper;
    tern_streaming streaming;
    tern_vision vision;
    tern_codec codec;
    tern_speaking speech;
    float rope_rates[TERN_LAYERS_MAX]; // how many times as fast a layer's RoPE turns; 0: once
    int64_t n_batch_most; // rows that are computed at once at most, 0: as many as usual
    int64_t n_dense;      // rows of the first of the two products after pooling; 0: there are none
    int64_t n_ignored_blocks; // GGUF: blocks after the layers that are not run
    int32_t conv_taps;
    bool conv_bias;         // biases in the convolution and the products around it
    tern_delta_attrs delta; // tiled: the order of the value heads in this file
    tern_ssm_attrs ssm;
    bool ssm_norm; // of what the state space makes, after its gate
    tern_multipliers multipliers;
    // Gemma 4's: heads of layers that see everything have dimensions of their own; the last layers
    // read the keys and values of earlier ones, and may be twice as wide; each layer adds
    // n_per_layer numbers of the token; scores are capped. 0: none of it
    int64_t full_head_dim, n_shared, n_per_layer;
    bool wide_shared;
    double score_cap;
    // Mixtures of experts, in the feed-forward part of all layers but the first n_dense_layers
    int64_t n_experts, n_experts_used, n_ff_expert, n_dense_layers; // n_experts 0: there are none
    bool experts_sigmoid, experts_normed, experts_bias; // how rows are routed: tern_route_attrs
    double experts_scale;
} tern_config;

// Whether an image's rows see each other in the text, so that they are computed at once.
bool tern_config_both_ways(const tern_config *c);
// Numbers of a row that stands in a text for a part of an image: the decoder's input "rows".
int64_t tern_config_given_cols(const tern_config *c);

// What a tensor is for.
typedef enum tern_role {
    TERN_ROLE_VECTOR, // norms, biases, taps of convolutions: read as floats, never quantized
    TERN_ROLE_TABLE,
    TERN_ROLE_HEAD,
    TERN_ROLE_MATRIX, // of a product that has none of the names below
    TERN_ROLE_FLOATS, // the same, of numbers that are neither ternary nor quantized
    TERN_ROLE_Q,
    TERN_ROLE_K,
    TERN_ROLE_V,
    TERN_ROLE_O,
    TERN_ROLE_GATE,
    TERN_ROLE_UP,
    TERN_ROLE_DOWN,
} tern_role;

// What GGUF has instead of Hugging Face's number w.
typedef enum tern_change {
    TERN_CHANGE_NONE,
    TERN_CHANGE_PLUS_ONE,  // 1 + w: norms that are stored around zero
    TERN_CHANGE_MINUS_EXP, // -e^w: decay rates that are stored as logarithms
    TERN_CHANGE_SQUEEZE,   // w, but [n, taps] instead of [n, 1, taps]
    TERN_CHANGE_LEADING,   // w, but [rows, n] instead of [1, rows, n], and [n] of [1, 1, n]
    TERN_CHANGE_SCALAR,    // w, but [1] instead of []
    TERN_CHANGE_FLATTEN,   // w, but [n, colors * edge * edge] instead of [n, colors, edge, edge],
                           // or [n, columns * taps] instead of [n, columns, taps]
    TERN_CHANGE_PADDED,    // the same; graphs read rows with zeros up to a multiple of 4 columns
    TERN_CHANGE_TURNED,    // w in both, whose columns are the rows of the matrix that graphs read
} tern_change;

// Rows or columns that stand in another order in GGUF (orders.c).
typedef enum tern_order_kind {
    TERN_ORDER_SAME,
    TERN_ORDER_ROPE,    // the pairs of RoPE beside each other, in each head
    TERN_ORDER_V_HEADS, // a delta net's value heads, by key head and not by group
    TERN_ORDER_V_EACH,  // one number a value head
    TERN_ORDER_QKV,     // queries and keys, then value heads
    TERN_ORDER_COLORS,  // of a patch: colour by colour, and not pixel by pixel
} tern_order_kind;

// One tensor in the two worlds; %d is the layer.
typedef struct tern_tensor_row {
    const char *gguf, *hf; // hf NULL: not a tensor there
    tern_role role;
    tern_change change;
    tern_order_kind rows, columns;
    const char *gguf_also, *hf_also; // another name that files have for it
    // Folders have `shares` tensors of GGUF as one, their rows one after the other; this is number
    // `share`. Rows of one folder's tensor follow each other here. shares 0: it is one in both.
    int share, shares;
    int taps;         // of a FLATTENed convolution along one axis; 0: of squares
    bool gguf_column; // a vector that GGUF has as a matrix with one column
    bool is_computed; // the graph reads what tern_arch.numbers makes of those that are
} tern_tensor_row;

// A tensor that files have and the graph does not read, by the beginning or the end of its name,
// and why that is all right.
typedef struct tern_ignored {
    const char *begin, *end, *why; // of the first two, one is given
} tern_ignored;

// What a family's makers advise where a file says nothing; a member below 0: nothing.
typedef struct tern_generation_defaults {
    float temperature, top_p, min_p, repeat_penalty;
    int32_t top_k;
} tern_generation_defaults;

// Is told every key that a reader of a config asks for, there or not: a path in config.json, or
// GGUF's.
typedef struct tern_config_watch {
    void (*on_key)(void *user, const char *key);
    void *user;
} tern_config_watch;

// Where the readers of a config look (config.c).
typedef struct tern_config_source {
    const tern_file *file;
    const struct tern_arch *arch;
    char prefix[64]; // GGUF: general.architecture
    // The first key whose value is of another kind than its reader can take: to go on as if it were
    // not there would be another model. Empty: there is none.
    struct tern_config_odd {
        char key[160];
        const char *expected; // "a number"
    } * odd;
    const tern_config_watch *watch; // NULL: nobody
} tern_config_source;

// A kind of tower, and how files call what it is made of (vision.c). Numbers are int64_t of
// tern_vision.
typedef struct tern_tower_size { // the last one has no names
    const char *gguf, *hf; // a key after "clip.vision."; a member of config.json, NULL: it has none
    int64_t most, usual;   // usual: where a file says nothing; 0: it must
    size_t offset;
} tern_tower_size;
typedef struct tern_tower_token {    // the first is an image's, the last one has no text
    const char *hf, *hf_also, *text; // members of config.json, the name in the vocabulary
    size_t offset;
} tern_tower_token;
typedef struct tern_tower {
    const char *projector; // llama.cpp's name of it
    const tern_tower_size *sizes;
    const tern_tower_token *tokens;
    const char *hf_places; // config.json: how many places the grid has
    int64_t n_frames;      // of a patch
    bool turns;            // RoPE by row and column
    bool apart;            // queries, keys and values have matrices of their own
    bool tiles;    // large images are cut into squares, and what stands around these in a text
                   // comes with them
    bool widens;   // where images have fewer patches than the grid has places, a patch's
                   // vector is of all places that it covers
    bool one_size; // every image becomes the square that the grid of places is made for
    const char *before, *after; // texts around an image's rows, which come with it; NULL: none
    bool both_ways;             // in the text an image's rows see all of it, those after them, too
    tern_status (*read)(const tern_config_source *s, const tern_config *c, tern_vision *v,
                        tern_error *err);                            // the rest of it
    tern_status (*write)(tern_gguf_writer *w, const tern_vision *v); // likewise; NULL: nothing
    // Members of a folder's config.json, and of its vision_config, each after a comma.
    void (*write_json)(const tern_vision *v, tern_strbuf *top, tern_strbuf *vision);
} tern_tower;
// What a folder of an architecture with its tower is called: model_type and architectures, the
// types of both parts, image_processor_type.
typedef struct tern_seeing_names {
    const char *type, *class_name, *text_type, *vision_type, *processor;
} tern_seeing_names;

// What a folder is called: model_type and architectures.
typedef struct tern_model_folder {
    const char *type, *class_name;
} tern_model_folder;

// What training from nothing makes of this architecture.
typedef enum tern_fresh { TERN_FRESH_NONE, TERN_FRESH_FLOATS, TERN_FRESH_TERNARY } tern_fresh;

// A graph of an architecture. An input that has the name of a value of an earlier graph is that
// value: so what one part of a model makes flows into the next.
#define TERN_GRAPHS_MAX 8 // of a model
typedef struct tern_graph_row {
    const char *name;                       // "decoder", "encoder" ...
    bool (*is_there)(const tern_config *c); // NULL: in every model of the architecture
    tern_status (*build)(tern_graph *g, const tern_config *c, tern_error *err);
    int32_t n_rows; // of any dimension: what it is compiled for at least, however short batches are
} tern_graph_row;

typedef struct tern_arch {
    const char *name;              // as people are told
    const char *const *gguf_names; // general.architecture values, NULL-terminated; the first one is
                                   // written by conversion
    const char *const *hf_types;   // config.json model_type values; the first one is written
    const char *hf_class;          // config.json: architectures
    const tern_model_folder *hf_windowed;   // both, of a model with one window; NULL: the same
    bool (*is_mine)(const tern_file *file); // of several with the same name; NULL: always
    const tern_tensor_row *tensors;         // ends with one that has no names
    const tern_ignored *ignored;            // ends with one that has no reason; NULL: none
    const tern_config *defaults;            // of members that config.json leaves out; NULL: none
    // A folder's sizes that config.json leaves out, from its tensors; NULL: it has them all.
    tern_status (*sizes)(const tern_config_source *s, tern_config *c, tern_error *err);
    // The rest of a config whose sizes are read, and of one to be written; NULL: there is none.
    tern_status (*read)(const tern_config_source *s, tern_config *c, tern_error *err);
    tern_status (*write_gguf)(tern_gguf_writer *w, const char *name, const tern_config *c);
    void (*write_json)(const tern_config *c, tern_strbuf *out);
    // Whether a tensor of a folder or GGUF is not read, by its GGUF name; NULL: no other is.
    const char *(*ignores)(const tern_config *c, const char *gguf_name);
    // What programs other than tern do with a GGUF of such a config instead, as the rest of a
    // sentence; NULL: they compute the same.
    const char *(*differs)(const tern_config *c);
    // What a row of a folder's tensor is multiplied with to be GGUF's, whose weights have in them
    // what config.json states as factors. NULL: always 1.
    double (*folded)(const tern_config *c, const char *gguf_name, int64_t row);
    // Changes the numbers x of a tensor that is_computed to those that the graph reads.
    tern_status (*numbers)(const tern_file *file, const struct tern_arch *arch,
                           const tern_tensor *t, float *x, tern_error *err);
    // Ends with one that has no name. The first that a model has is its main one: sessions run it,
    // training trains it.
    const tern_graph_row *graphs;
    // The activation that programs compute for a GGUF of this name; *guess: why, unless the name
    // alone decides. NULL: always `act`.
    tern_act_kind (*gguf_act)(const char *gguf_name, const tern_config *c, const char **guess);
    tern_act_kind act;     // where a file does not say
    const char *hf_prefix; // written instead of "model." in front of names; NULL: that
    // Members of config.json that this family spells differently; NULL: the usual ones.
    const char *hf_eps, *hf_act;
    // RoPE in folders. turns_part: the share of a head that turns where config.json does not say;
    // 0: heads turn whole, as transformers' code for the family has it, whatever a file says.
    double turns_part;
    bool rope_is_long;   // of what scales it, the family has two sets of factors alone
    bool rope_grows;     // queries grow with their position
    bool rope_has_alpha; // the family has a greater base, once and for all
    const char *const (*hf_renamed)[2]; // usual name, own name; ends with {NULL}. NULL: none
    // GGUF of this architecture stores the rows of q and k so that RoPE pairs are neighbours,
    // Hugging Face so that they are halves of the head: conversion moves rows.
    bool gguf_rope_neighbours;
    const tern_tower *tower; // that it sees with; NULL: it does not
    const tern_seeing_names *hf_sees;
    bool reads_deep;   // rows of several layers of a tower: tern_vision.deep
    bool own_config;   // its own reader and writers have all of it: no vocabulary and no attention
    bool mixed_layers; // config.json lists the kind of each layer
    bool windows_by_layer;  // its own reader reads them
    bool ff_by_layer;       // GGUF's feed_forward_length is an array: the first one counts
    bool has_experts;       // its own reader reads them
    bool kv_heads_by_layer; // GGUF's head_count_kv is an array: 0 where a layer has no attention
    const tern_generation_defaults *generation;
    // A small model of this family: what checks of devices run. NULL: there is none.
    const tern_config *sample;
    tern_fresh fresh;
} tern_arch;

// The architecture of a file, its config checked for sense (no zero, no absurd size).
tern_status tern_model_read(const tern_file *file, const tern_arch **arch, tern_config *config,
                            tern_error *err);
tern_status tern_model_read_watched(const tern_file *file, const tern_config_watch *watch,
                                    const tern_arch **arch, tern_config *config, tern_error *err);
// Fails, by name, on a tensor that none of the graphs (as the architecture built them) reads:
// without it the model would be another one. The architecture lists those that may be left out; see
// also tern_model_ignores.
tern_status tern_model_refuse_unread(const tern_file *file, const tern_arch *arch,
                                     const tern_config *c, const tern_graph *const *graphs,
                                     int n_graphs, tern_error *err);
// Whether the file's tensors are what the architecture's graphs read: none missing, none extra, in
// shapes and types that can run. Memory: the graphs, during the call.
tern_status tern_model_check(const tern_file *file, const tern_arch *arch, const tern_config *c,
                             tern_error *err);
// Why a tensor of the file may be left out; NULL: it may not.
const char *tern_model_ignores(const tern_file *file, const tern_arch *arch, const tern_config *c,
                               const char *name);
// Whether a GGUF's file of the part that sees is one that its model can see with.
bool tern_model_fits_tower(const tern_arch *arch, const tern_config *c, const tern_file *tower);
// The graphs that a model of this config has, the main one first. Returns how many.
int tern_model_graphs(const tern_arch *arch, const tern_config *c,
                      const tern_graph_row *out[TERN_GRAPHS_MAX]);
// Fails when the file has not all layers that its config has.
tern_status tern_model_check_layers(const tern_file *file, const tern_arch *arch,
                                    const tern_config *c, tern_error *err);
// The main graph of a config's model, from whatever file.
tern_status tern_model_build_main(tern_graph *g, const tern_arch *arch, const tern_config *c,
                                  tern_error *err);
// The same of a file's, which has all layers.
tern_status tern_model_build(tern_graph *g, const tern_file *file, const tern_arch *arch,
                             const tern_config *c, tern_error *err);
// All of them, into graphs[0 ..]; what flows between them is of one shape and type on both sides.
// *n: those begun, to be freed with tern_graph_free whether this fails or not.
tern_status tern_model_build_all(tern_graph *graphs, int *n, const tern_file *file,
                                 const tern_arch *arch, const tern_config *c, tern_error *err);
// The latest of the graphs before `graph` that makes what flows into its input v; -1: none.
int tern_model_flow(const tern_graph *const *graphs, int graph, tern_vid v);
const tern_arch *const *tern_arch_list(size_t *n);
// The architecture that training from nothing makes, with BitLinears or without.
const tern_arch *tern_arch_fresh(bool bitlinear);
// The tensor with this GGUF name, in either kind of file; NULL: not there.
const tern_tensor *tern_model_tensor(const tern_file *file, const tern_arch *arch,
                                     const char *gguf_name);
// The tensor of a graph's weight, its shape and type checked.
// Where a folder has several as one, *out is its share of the rows.
tern_status tern_model_weight(const tern_file *file, const tern_arch *arch, const tern_value *v,
                              tern_tensor *out, tern_error *err);
// A share of a tensor's rows.
tern_tensor tern_tensor_share(const tern_tensor *t, int share, int shares);
// The numbers that the graph reads, where they are not those of the file; NULL: they are, or the
// tensor is not a small one. The caller frees them with tern_free.
tern_status tern_model_numbers(const tern_file *file, const tern_arch *arch, const tern_tensor *t,
                               const char *gguf_name, float **out, tern_error *err);
// Weights in a rotated basis (hadamard.c). Whether a file declares them; a graph that computes with
// them; signs, which are weights of graphs and no tensors: the caller frees them with tern_free.
bool tern_model_is_rotated(const tern_file *file);
tern_status tern_model_rotate(tern_graph *g, const tern_file *file, const tern_arch *arch,
                              const tern_config *c, tern_error *err);
bool tern_model_is_sign(const char *name);
tern_status tern_model_signs(const tern_file *file, int64_t width, float **out, tern_error *err);
// The Hugging Face name of a GGUF one and the reverse, into a buffer of `size`; false: unknown.
bool tern_model_name_to_hf(const tern_arch *arch, const char *gguf_name, char *out, size_t size);
bool tern_model_name_to_gguf(const tern_arch *arch, const char *hf_name, char *out, size_t size);
// The name that graphs and llama.cpp have for a GGUF tensor, which some files call otherwise.
bool tern_model_name_usual(const tern_arch *arch, const char *gguf_name, char *out, size_t size);
// The facts of a tensor by its GGUF name, or NULL; and its role, VECTOR where it is not known.
const tern_tensor_row *tern_model_row(const tern_arch *arch, const char *gguf_name);
tern_role tern_model_role(const tern_arch *arch, const char *gguf_name);
// The number in GGUF's "blk.7.ffn_up.weight", -1: it is of no block. rest (may be NULL): what comes
// after the second period.
int tern_model_block_of(const char *gguf_name, const char **rest);
// "q", "down" ... of a role that adapters can be trained for, or NULL.
const char *tern_role_name(tern_role role);

// ---- How text is to be sampled (generation.c) --------------------------------------------------

typedef enum tern_generation_field {
    TERN_GENERATION_TEMPERATURE,
    TERN_GENERATION_TOP_K,
    TERN_GENERATION_TOP_P,
    TERN_GENERATION_MIN_P,
    TERN_GENERATION_REPEAT_PENALTY,
    TERN_GENERATION_FIELDS
} tern_generation_field;
float tern_generation_read(const tern_file *file, tern_generation_field which); // -1: not said
// What the file says of it, for files of the other world; ends: the tokens that end a text. JSON:
// nothing, where config.json says all.
tern_status tern_generation_write_gguf(tern_gguf_writer *w, const tern_file *from);
void tern_generation_write_json(const tern_file *from, const int32_t *ends, size_t n_ends,
                                tern_strbuf *out);

// ---- Texts to embed (prompts.c) ----------------------------------------------------------------

#define TERN_PROMPTS_MAX 256
typedef struct tern_prompts { // texts of the file
    tern_str names[TERN_PROMPTS_MAX], texts[TERN_PROMPTS_MAX];
    size_t n;
    tern_str first;     // the name of the one that is used by default; {NULL}: none
    int64_t max_length; // tokens of a text; 0: not said
} tern_prompts;
tern_status tern_prompts_read(const tern_file *file, tern_prompts *out, tern_error *err);
// What a folder says of them, as keys of GGUF.
tern_status tern_prompts_write_length(tern_gguf_writer *w, int64_t n_tokens); // of a text
tern_status tern_prompts_write_gguf(tern_gguf_writer *w, const tern_file *from, tern_error *err);

// ---- Images (images.c) --------------------------------------------------------------------------

typedef struct tern_image_rules {
    int32_t width, height; // that the model reads
    int32_t shorter; // the shorter edge becomes this first, and then the middle is cut out; 0: both
                     // edges become what the model reads, whatever becomes of the shape
    bool rounds;     // where the middle is between two pixels: the even one; else the first
    tern_image_filter filter;
    float factor; // of a byte, before the mean is taken off and the rest divided by the deviation
    float mean[3], deviation[3];
} tern_image_rules;
tern_status tern_images_read(const tern_file *file, const tern_config *c, tern_image_rules *out,
                             tern_error *err);
// How a language model that sees wants them: any shape, so many pixels, edges that are multiples of
// a block's. n_pixels_max: fewer than the file allows; 0: what it says, at most
// TERN_VISION_PIXELS.
#define TERN_VISION_PIXELS ((int64_t)1 << 20)
// Towers with `tiles` see the whole of an image that has more than `tolerance` times these pixels,
// and before that squares of `tile` pixels that it is cut into.
typedef struct tern_vision_rules {
    int64_t edge;        // of a square, whatever an image's shape is; 0: it keeps its shape
    int64_t least, most; // pixels
    bool one_at_least;   // before they are compared, an edge is a block's at least
    int64_t tile, tiles_least, tiles_most; // most 0: no squares
    double tolerance;
    bool whole_too; // of an image that is cut
    tern_image_filter filter;
    float factor, mean[3], deviation[3];
} tern_vision_rules;
tern_status tern_vision_rules_read(const tern_file *file, const tern_vision *v,
                                   int64_t n_pixels_max, tern_vision_rules *out, tern_error *err);
// The size that an image is given: multiples of `edge`.
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
// The keys of the part that sees, in a file of its own (vision.c).
tern_status tern_config_write_vision(tern_gguf_writer *w, const tern_config *c);
// config.json of a folder that has both; text: the text's alone (tern_config_write_json).
void tern_config_write_vision_json(const tern_arch *arch, const tern_config *c, const char *text,
                                   tern_strbuf *out);
// Whether a tensor is of the part that sees, by its GGUF name.
bool tern_model_is_seen(const char *gguf_name);
// RoPE's factors of shorter texts and of longer ones (TERN_ROPE_LONG).
typedef struct tern_rope_factors {
    float of[2][TERN_ROPE_PAIRS_MAX];
} tern_rope_factors;
// Refuse what no file of the family can say.
tern_status tern_config_check_folder(const tern_arch *arch, const tern_config *c, tern_error *err);
tern_status tern_config_check_gguf(const tern_arch *arch, const tern_config *c, tern_error *err);
// config.json text for a Hugging Face folder; model_type and architectures by arch. factors: read
// where c->rope.scaling is TERN_ROPE_LONG.
void tern_config_write_json(const tern_arch *arch, const tern_config *c, const char *dtype,
                            const char *ternary_mode, const tern_rope_factors *factors,
                            tern_strbuf *out);
// The config of the same model with its tensors in GGUF's order.
void tern_config_order_as_gguf(const tern_arch *arch, tern_config *c);

// ---- Orders and numbers of the two worlds (orders.c) -------------------------------------------

// From `first` on, groups of a * b blocks of `unit` rows: block (i, j) of Hugging Face's a x b is
// block (j, i) of GGUF's b x a. a 0: the same order.
typedef struct tern_order {
    int64_t first, a, b, unit;
} tern_order;
typedef struct tern_moves {
    tern_order rows, columns;
} tern_moves;
// Of a tensor between the two worlds.
tern_moves tern_model_moves(const tern_arch *arch, const tern_config *c, const char *gguf_name);
// The row of the one world that becomes row `row` of the other.
int64_t tern_order_source(const tern_order *order, int64_t row, bool to_gguf);
// Puts the columns of a row in the other world's order; `scratch` is of the same length.
void tern_order_columns(const tern_order *order, bool to_gguf, float *row, int64_t n,
                        float *scratch);
// What GGUF has instead of a file's numbers of this row.
tern_change tern_model_change(const tern_file *file, const tern_tensor_row *row);
// Changes numbers from one world's to the other's, in place.
void tern_change_apply(tern_change change, bool to_gguf, float *x, size_t n);

// ---- Adapters: LoRA, W x + B (A x) -------------------------------------------------------------

typedef struct tern_adapter { // of one matrix, all files together
    char weight[64];          // its GGUF name
    int64_t n_in, n_out;
    int64_t rank, room; // room: the rank with zeros, a multiple of what kernels read at once
    float *a;           // [room, n_in]
    float *b;           // [n_out, room], times each file's scale
} tern_adapter;

// Of an adapter in a GGUF, for architectures with `folded` factors: that it was trained beside a
// folder's weights. What other programs write is beside GGUF's.
#define TERN_LORA_OF_FOLDER "tern.lora.of_folder"

typedef struct tern_adapters {
    tern_adapter *list;
    size_t n, capacity;
} tern_adapters;
// Adds a file's matrices: a GGUF adapter, or a folder with adapter_model.safetensors and
// adapter_config.json (PEFT). Several for the same weight are stacked: their products add up.
// base: the model they are for; rows of B are put in the order of its rows.
tern_status tern_adapters_add(tern_adapters *set, const tern_lora *lora, const tern_file *base,
                              const tern_arch *arch, const tern_config *c, tern_error *err);
// The same by path and scale.
tern_status tern_adapters_read(tern_adapters *set, const char *path, float scale,
                               const tern_file *base, const tern_arch *arch, const tern_config *c,
                               tern_error *err);
void tern_adapters_free(tern_adapters *set);
const tern_adapter *tern_adapters_find(const tern_adapters *set, const char *weight);
int64_t tern_adapters_rank(const void *set, const char *weight); // for tern_pass_low_rank
// Row `row` of B A, added to out [n_in].
void tern_adapter_add_row(const tern_adapter *adapter, int64_t row, float *out);

// ---- The plain decoder (decoder.c) -------------------------------------------------------------

// Llama's, and with config.bitlinear and config.sub_norms BitNet's.
tern_status tern_build_decoder(tern_graph *g, const tern_config *c, tern_error *err);

#endif
