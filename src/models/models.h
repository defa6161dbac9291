// Architectures: each turns a file's own config into a graph. One file each, one row in models.inc.
//
// A model file knows names and hyperparameters, and nothing of memory, kernels or tokens.
#ifndef TERN_MODELS_MODELS_H
#define TERN_MODELS_MODELS_H

#include "formats/formats.h"
#include "graph/graph.h"

// Hyperparameters, as the file states them, in the field's usual names.
typedef struct tern_config {
    int64_t n_vocab, n_layers, n_embd, n_ff, n_heads, n_kv_heads, head_dim, n_context;
    int64_t n_window; // attention sees that many positions, 0: all; n_context is at most this
    double rms_eps, final_rms_eps; // final: of the last norm; the same unless the file says so
    tern_act_kind act;
    tern_rope_attrs rope;
    bool tied_head;         // the output head is the embedding table
    bool sub_norms;         // a norm before attention's output projection and before the down one
    bool bitlinear;         // float weights of the layers are masters, rounded when they are read
    bool input_norms;       // a norm before every projection (use_rms_norm), with its own eps
    double input_norm_eps;
    const char *guess;      // what had to be guessed because the file does not say, or NULL
    int64_t bos_id, eos_id; // -1: not stated
} tern_config;

// The same tensor in the two worlds: GGUF and Hugging Face; %d is the layer.
typedef struct tern_tensor_name {
    const char *gguf, *hf;
} tern_tensor_name;

// A tensor that files have and the graph does not read, by the end of its name, and why that is all
// right.
typedef struct tern_ignored {
    const char *end, *why;
} tern_ignored;

typedef struct tern_arch {
    const char *name;              // "bitnet", "llama"
    const char *const *gguf_names; // general.architecture values, NULL-terminated; the first one is
                                   // written by conversion
    const char *const *hf_types;   // config.json model_type values
    const tern_tensor_name *tensors; // ends with {NULL, NULL}
    const tern_ignored *ignored;     // ends with {NULL, NULL}; NULL: none
    // The activation that programs compute for a GGUF of this name; *guess: why, unless the name
    // alone decides. NULL: always SiLU.
    tern_act_kind (*gguf_act)(const char *gguf_name, const tern_config *c, const char **guess);
    const char *hf_class;            // config.json: architectures
    bool always_ternary;             // float weights are master weights: ternarized at load
    // GGUF of this architecture stores the rows of q and k so that RoPE pairs are neighbours,
    // Hugging Face so that they are halves of the head: conversion moves rows.
    bool gguf_rope_neighbours;
    tern_status (*build)(tern_graph *g, const tern_config *c, tern_error *err);
} tern_arch;

// The architecture of a file, its config checked for sense (no zero, no absurd size).
tern_status tern_model_read(const tern_file *file, const tern_arch **arch, tern_config *config,
                            tern_error *err);
// Fails, by name, on a tensor that the graph (as the architecture built it) does not read: without
// it the model would be another one. The architecture lists those that may be left out; see also
// tern_model_ignores.
tern_status tern_model_refuse_unread(const tern_file *file, const tern_arch *arch,
                                     const tern_config *c, const tern_graph *g, tern_error *err);
// Whether the file's tensors are what the architecture's graph reads: none missing, none extra, in
// shapes and types that can run. Memory: the graph, during the call.
tern_status tern_model_check(const tern_file *file, const tern_arch *arch, const tern_config *c,
                             tern_error *err);
// Why a tensor of the file may be left out; NULL: it may not.
const char *tern_model_ignores(const tern_file *file, const tern_arch *arch, const tern_config *c,
                               const char *name);
// The graph of a file's model; fails when the file has not all layers that its config has.
tern_status tern_model_build(tern_graph *g, const tern_file *file, const tern_arch *arch,
                             const tern_config *c, tern_error *err);
const tern_arch *const *tern_arch_list(size_t *n);
// The tensor with this GGUF name, in either kind of file; NULL: not there.
const tern_tensor *tern_model_tensor(const tern_file *file, const tern_arch *arch,
                                     const char *gguf_name);
// The tensor of a graph's weight, its shape and type checked.
tern_status tern_model_weight(const tern_file *file, const tern_arch *arch, const tern_value *v,
                              const tern_tensor **out, tern_error *err);
// The Hugging Face name of a GGUF one and the reverse, into a buffer of `size`; false: unknown.
bool tern_model_name_to_hf(const tern_arch *arch, const char *gguf_name, char *out, size_t size);
bool tern_model_name_to_gguf(const tern_arch *arch, const char *hf_name, char *out, size_t size);

// An activation by its name in config.json; false: not known.
bool tern_act_from_name(tern_str name, tern_act_kind *out);
// Writes the config as GGUF keys under the prefix `arch_name`, or reads them back: one table, used
// by tern_model_read and by conversion.
tern_status tern_config_write_gguf(tern_gguf_writer *w, const char *arch_name,
                                   const tern_config *c);
// config.json text for a Hugging Face folder; model_type and architectures by arch.
void tern_config_write_json(const tern_arch *arch, const tern_config *c, const char *dtype,
                            const char *ternary_mode, tern_strbuf *out);

// Row moves between the two RoPE conventions: the row of a matrix in the one that becomes row `row`
// in the other. n_heads 0: it stays.
int64_t tern_rope_source_row(int64_t row, int64_t n_rows, int64_t n_heads, bool to_neighbours);
// Heads of a weight whose rows GGUF and Hugging Face have in different order; 0: the same order.
int64_t tern_model_rope_heads(const tern_arch *arch, const tern_config *c, const char *gguf_name);

// ---- Adapters: LoRA, W x + B (A x) -------------------------------------------------------------

typedef struct tern_adapter { // of one matrix, all files together
    char weight[64];          // its GGUF name
    int64_t n_in, n_out;
    int64_t rank, room; // room: the rank with zeros, a multiple of what kernels read at once
    float *a;           // [room, n_in]
    float *b;           // [n_out, room], times each file's scale
} tern_adapter;

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

// ---- Used by the architectures' files ----------------------------------------------------------

// Both families are the same decoder with two differences: where sub-norms stand, and whether the
// linears are BitLinears.
typedef struct tern_decoder_style {
    bool sub_norms; // a norm before the attention's output projection and the down one
    bool bitlinear;
} tern_decoder_style;
extern const tern_ignored tern_decoder_ignored[];
tern_status tern_build_decoder(tern_graph *g, const tern_config *c, tern_decoder_style style,
                               tern_error *err);

#endif
