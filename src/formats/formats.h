// Opened model files: tensors and metadata, whatever the container.
//
// A GGUF file (v2, v3, split sets) or a Hugging Face folder (safetensors, also sharded with an
// index, config.json and the tokenizer's files). Tensor data is mapped and never copied or, where
// files cannot be mapped, read while it is held (base/file/blob.h). Nothing in a file is trusted:
// sizes, offsets, counts and lengths are checked with overflow-safe arithmetic before use, tensors
// may not overlap or leave the file, and messages name the file, the field and the reason.
#ifndef TERN_FORMATS_FORMATS_H
#define TERN_FORMATS_FORMATS_H

#include "base/json/json.h"
#include "base/file/out_set.h"
#include "base/dtype/matrix.h"
#include "base/strbuf.h"
#include "tern_tools.h"

typedef enum tern_file_kind { TERN_FILE_GGUF, TERN_FILE_HF } tern_file_kind;

typedef struct tern_tensor {
    const char *name; // as in the file
    tern_dtype type;
    uint32_t type_id; // GGUF: the type's number in the file, even if it is unknown
    int n_dims;
    uint64_t ne[4]; // ne[0] is the row's length (GGUF order); unused ones are 1
    tern_blob data; // of `bytes`; aligned when held: to 32 in GGUF, else to its elements
    uint64_t bytes;
    float scale; // I2_S, HF_TERNARY, NVFP4: value = code * scale (already inverted if needed)
    int shard;   // index of its file
} tern_tensor;

// Metadata value types; the numbers are GGUF's.
typedef enum tern_meta_type {
    TERN_META_U8,
    TERN_META_I8,
    TERN_META_U16,
    TERN_META_I16,
    TERN_META_U32,
    TERN_META_I32,
    TERN_META_F32,
    TERN_META_BOOL,
    TERN_META_STRING,
    TERN_META_ARRAY,
    TERN_META_U64,
    TERN_META_I64,
    TERN_META_F64,
} tern_meta_type;

typedef struct tern_meta {
    const char *key; // terminated copy
    tern_meta_type type;
    tern_meta_type element_type; // of an array
    uint64_t n;                  // elements of an array; bytes of a string; else 1
    const void *data;            // little-endian bytes in the file, unaligned; strings: the text
    const tern_str *strings;     // of an array of strings, else NULL
} tern_meta;

typedef struct tern_file {
    tern_file_kind kind;
    const char *path;
    tern_tensor *tensors;
    size_t n_tensors;
    tern_meta *metas; // GGUF only
    size_t n_metas;
    // Hugging Face only. Absent files have no root; texts stay as long as the file.
    tern_json_doc config, tokenizer_config, generation_config;
    // From a sentence-transformers folder: its pooling module, the prompts, the longest text.
    tern_json_doc pooling, sentence, sentence_length;
    tern_json_doc preprocessor; // how images are preprocessed
    bool any_length;            // it has modules, and none normalizes its vectors
    tern_str tokenizer_json;    // text of tokenizer.json, parsed on demand
    tern_str tokenizer_model;   // sentencepiece's tokenizer.model, if tokenizer.json is missing
    tern_str chat_template;     // text of chat_template.jinja
    // How its matrices are packed ("GPTQ, 4 bits, groups of 128"), if they are and can be read; or
    // why they cannot. They appear as tensors of the types that they are decoded to.
    const char *packing, *cannot_unpack;
    // MLX writes convolutions as [n, taps, 1], which are transposed here; its norms already include
    // the 1 that other programs leave out.
    bool norms_are_ready;
    // A GGUF's second file, llama.cpp's mmproj, whose tensors are among these; NULL: none.
    struct tern_file *tower;
    uint64_t tensor_bytes;          // of all tensors
    struct tern_file_private *priv; // open files, name index
} tern_file;

tern_status tern_file_open(tern_file **out, const char *path, tern_error *err);
// A GGUF in memory, which is copied unless its address is a multiple of 64; else it must stay as
// long as the file is open. name: for messages; NULL: "memory".
tern_status tern_file_open_bytes(tern_file **out, const char *name, const tern_bytes *bytes,
                                 tern_error *err);
// Also whisper.cpp's ggml-*.bin, which only conversion reads (whisper_bin.c).
tern_status tern_file_open_foreign(tern_file **out, const char *path, tern_error *err);
// A folder may have only a config or a tokenizer. For callers that need weights: fails if it has
// none, and names the folder's GGUF files.
tern_status tern_file_need_weights(const tern_file *file, tern_error *err);
void tern_file_close(tern_file *file);
// Adds a vision tower's tensors to a model's (gguf_tower.c); call this before keeping pointers to
// tensors. `tower` is closed with the file, even if this fails.
tern_status tern_file_add_tower(tern_file *file, tern_file *tower, bool joins, tern_error *err);
// The kind of a tower, as llama.cpp names it; empty: not given.
tern_str tern_file_projector(const tern_file *tower);

// NULL: not found.
const tern_tensor *tern_file_tensor(const tern_file *file, const char *name);
const tern_meta *tern_file_meta(const tern_file *file, const char *key);
// Typed access to GGUF metadata; any integer type converts, false if absent or of another kind.
bool tern_file_meta_int(const tern_file *file, const char *key, int64_t *value);
bool tern_file_meta_float(const tern_file *file, const char *key, double *value);
bool tern_file_meta_bool(const tern_file *file, const char *key, bool *value);
bool tern_file_meta_str(const tern_file *file, const char *key, tern_str *value);
// Bytes of one value; 0 for strings, arrays and invalid types.
size_t tern_meta_type_bytes(tern_meta_type type);
// Element i of an array of numbers, converted.
bool tern_meta_element(const tern_meta *meta, uint64_t i, double *value);
// A number or a bool as it is: of a single value (i is 0), or element i of an array.
typedef struct tern_meta_number {
    enum { TERN_META_NO_NUMBER, TERN_META_IS_INT, TERN_META_IS_FLOAT, TERN_META_IS_BOOL } kind;
    int64_t i; // of INT and BOOL
    double f;
} tern_meta_number;
tern_meta_number tern_meta_number_at(const tern_meta *meta, uint64_t i);

// A token to put at the end of a vocabulary: matched in raw text before anything is split.
typedef struct tern_new_token {
    tern_str text;
    bool is_special; // controls the model: plain text never becomes it
} tern_new_token;
// Gives the tokenizer of an opened file these as ids first, first + 1 ..., in the form that it has
// (file_tokens.c). Entries of a GGUF from `first` on, which only fill it up, are replaced.
tern_status tern_file_add_tokens(tern_file *file, size_t first, const tern_new_token *list,
                                 size_t n, tern_error *err);

tern_matrix tern_tensor_matrix(const tern_tensor *t); // rows of all dimensions but the first
// Decodes all of it to floats.
tern_status tern_tensor_decode(const tern_tensor *t, float *out, tern_error *err);

// ---- NPY: one array (npy.c) ---------------------------------------------------------------------

// Like tern_array_read, from memory; `path` is for messages. *out owns its data.
tern_status tern_npy_parse(tern_array *out, const char *path, const uint8_t *bytes, uint64_t n,
                           tern_error *err);

// ---- Writing GGUF, one tensor at a time --------------------------------------------------------

typedef struct tern_gguf_writer tern_gguf_writer;
// path appears only at finish (base/file/out_set.h). After a failed call, all later ones fail, and
// finish reports why.
// split_bytes > 0: starts "name-00001-of-000NN.gguf" files of about that much tensor data.
tern_status tern_gguf_writer_open(tern_gguf_writer **out, const char *path, uint64_t split_bytes,
                                  tern_error *err);
tern_status tern_gguf_put_str(tern_gguf_writer *w, const char *key, tern_str value);
tern_status tern_gguf_put_int(tern_gguf_writer *w, const char *key, tern_meta_type type,
                              int64_t value);
tern_status tern_gguf_put_f32(tern_gguf_writer *w, const char *key, float value);
tern_status tern_gguf_put_strings(tern_gguf_writer *w, const char *key, const tern_str *values,
                                  size_t n);
tern_status tern_gguf_put_array(tern_gguf_writer *w, const char *key, tern_meta_type element_type,
                                const void *values, size_t n);
// Copies one unchanged; skips general.alignment and split.*, which describe files, not models.
tern_status tern_gguf_put_meta(tern_gguf_writer *w, const tern_meta *meta);
// The metadata put so far, as a reader of the file will see it; a file without tensors, which the
// caller closes.
tern_status tern_gguf_written_meta(const tern_gguf_writer *w, tern_file **out, tern_error *err);
// Declares every tensor, in file order, before the first data.
tern_status tern_gguf_declare(tern_gguf_writer *w, const char *name, tern_dtype type, int n_dims,
                              const uint64_t *ne);
// Data of the tensors in declared order, in pieces; each tensor's pieces must add up to its bytes.
tern_status tern_gguf_write(tern_gguf_writer *w, const void *bytes, uint64_t n, tern_error *err);
// The 32 bytes that end an I2_S tensor: its scale, then zeros.
tern_status tern_gguf_write_i2_s_scale(tern_gguf_writer *w, float scale, tern_error *err);
tern_status tern_gguf_writer_finish(tern_gguf_writer *w, tern_error *err); // checks, renames
// Instead of finish, for metadata alone: one more file of a set (base/file/out_set.h). The writer's
// path is not used.
tern_status tern_gguf_writer_put_in(tern_gguf_writer *w, tern_out_set *set, const char *name,
                                    tern_error *err);
void tern_gguf_writer_free(tern_gguf_writer *w); // without finish: leaves nothing

// ---- Writing safetensors -----------------------------------------------------------------------

typedef struct tern_st_writer tern_st_writer;
// Writes folder/model.safetensors, or shards with model.safetensors.index.json when larger than
// split_bytes (0: one file). Creates the folder if needed; at finish all files get their names
// together, and an earlier model's files that readers would open are removed. One writer per
// folder. Same protocol as above; types without a name in safetensors are refused.
tern_status tern_st_writer_open(tern_st_writer **out, const char *folder, uint64_t split_bytes,
                                tern_error *err);
// The name of the one file instead of model.safetensors: then no model's files are removed.
void tern_st_writer_name(tern_st_writer *w, const char *single);
tern_status tern_st_declare(tern_st_writer *w, const char *name, tern_dtype type, int n_dims,
                            const uint64_t *shape_outer_first);
tern_status tern_st_write(tern_st_writer *w, const void *bytes, uint64_t n, tern_error *err);
// One more file of the folder, such as config.json, at any time before finish.
tern_status tern_st_put_file(tern_st_writer *w, const char *name, const void *bytes, size_t n,
                             tern_error *err);
// The same, copied from another folder; a missing file is not an error.
tern_status tern_st_copy_file(tern_st_writer *w, const char *folder, const char *name,
                              tern_error *err);
tern_status tern_st_writer_finish(tern_st_writer *w, tern_error *err);
void tern_st_writer_free(tern_st_writer *w);

#endif
