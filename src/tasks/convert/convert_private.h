// What the parts of a conversion share: convert.c (containers, rows, the main loop),
// convert_types.c (which element type each tensor gets), convert_tokenizer.c.
#ifndef TERN_TASKS_CONVERT_CONVERT_PRIVATE_H
#define TERN_TASKS_CONVERT_CONVERT_PRIVATE_H

#include "base/ternary.h"
#include "formats/formats.h"
#include "models/models.h"
#include "tasks/tasks.h"
#include "tern_tools.h"

typedef struct item {
    const tern_tensor *from; // NULL: `values`, which the input does not have
    const float *values;     // [n_values]
    uint64_t n_values;
    char name[128];  // in the output
    tern_dtype type; // in the output; HF_TERNARY: U8 packed, with a scale tensor after it
    tern_ternary_kind kind;
    tern_moves moves;   // of rows and columns, between the two worlds
    tern_change change; // of numbers, the same
    bool is_column;     // GGUF has a vector as a column
    char folded[128];   // its GGUF name, if rows are multiplied with what that has in them
    bool to_gguf;       // the direction of all of these
    bool same_codes;    // groups of codes are put into the type's blocks as they are
    bool is_layer;      // a matrix that is neither embedding nor head
    const tern_adapter *adapter; // to be merged, or NULL
} item;

typedef struct conversion {
    const tern_convert_desc *desc;
    tern_file *file;
    const tern_arch *arch;
    const char *arch_name; // general.architecture of a GGUF output
    tern_config config;
    tern_adapters adapters;
    bool to_gguf;
    tern_dtype matrix_type, head_type;
    bool has_matrix_type, has_head_type;
    item *items;
    size_t n_items;
    // Tensors that are shares of the input's, or several of them joined, and what those are made of
    tern_tensor *views;
    tern_blob *blobs;
    size_t n_views, n_blobs;
    float *rope_factors;       // for a GGUF
    tern_rope_factors factors; // for config.json
    tern_gguf_writer *gguf;
    tern_st_writer *st;
    uint64_t bytes_done, bytes_all;
    size_t n_folded;    // tensors that have factors in them
    size_t n_rounded;   // tensors of codes that became F16
    size_t n_fallbacks; // tensors whose rows did not fit the requested type
} conversion;

// Tells the caller in one sentence how the output differs from what they may expect.
void tern_convert_note(const conversion *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// A tensor as a matrix: all dimensions but the first are rows.
// The GGUF name of an input tensor; uses `buffer` of n bytes if it has to be built.
const char *tern_convert_gguf_name(const conversion *c, const tern_tensor *t, char *buffer,
                                   size_t n);

// Chooses it->type and what depends on it; refuses a type that would change the model.
tern_status tern_convert_choose_type(conversion *c, item *it, tern_error *err);
// Refuses types that cannot be written, with a sentence that says which can.
tern_status tern_convert_check_types(conversion *c, tern_error *err);
// The number of general.file_type: llama.cpp's and bitnet.cpp's name for the type of most weights.
int64_t tern_convert_file_type(const conversion *c);
// The GGUF type of a folder's groups of codes (convert_groups.c): one whose blocks hold them to the
// bit, else F16.
tern_status tern_convert_find_group_type(const tern_tensor *t, tern_dtype *type, tern_error *err);
// A row of n such codes, whose bytes are given, as blocks of a type that was found.
void tern_convert_put_groups(tern_dtype from, const void *row, size_t n, tern_dtype to,
                             uint8_t *out);
// Chooses c->arch_name, or refuses the requested one.
tern_status tern_convert_choose_arch(conversion *c, tern_error *err);

// tokenizer.json and tokenizer_config.json of a GGUF's vocabulary, and generation_config.json, for
// a folder.
tern_status tern_convert_put_tokenizer(conversion *c, tern_strbuf *json, tern_strbuf *config,
                                       tern_strbuf *generation, tern_error *err);
// The same for a GGUF: the vocabulary of a folder as metadata, checked by reading it back.
tern_status tern_convert_put_vocabulary(conversion *c, tern_error *err);

#endif
