// What the parts of a conversion share: convert.c (containers, the main loop), convert_rows.c
// (tensor contents), convert_types.c and convert_mixtures.c (which element type each tensor gets),
// convert_tokenizer.c, convert_tower.c (the vision tower).
#ifndef TERN_TASKS_CONVERT_CONVERT_PRIVATE_H
#define TERN_TASKS_CONVERT_CONVERT_PRIVATE_H

#include "base/os/team.h"
#include "base/dtype/ternary.h"
#include "formats/formats.h"
#include "models/models.h"
#include "tasks/imatrix/imatrix.h"
#include "tasks/tasks.h"
#include "tern_tools.h"

// What a mixture's rules need to know about a model.
typedef struct tern_convert_mixing {
    tern_type mixture;
    int n_layers, n_heads_per_key, n_experts;
    bool has_importance;
    const bool *has_values; // [n_layers] whether it has attention; NULL: all
} tern_convert_mixing;
// The type of a matrix, by its GGUF name, if it is not the mixture's own (convert_mixtures.c);
// false: it is.
bool tern_convert_mix(const tern_convert_mixing *m, const char *name, tern_dtype *type);

typedef struct item {
    const tern_tensor *from; // NULL: `values`, which the input does not have
    const float *values;     // [n_values]
    uint64_t n_values;
    char name[128];  // in the output
    tern_dtype type; // in the output; HF_TERNARY: U8 packed, with a scale tensor after it
    tern_ternary_kind kind;
    tern_moves moves;            // of rows and columns, between the two worlds
    tern_change change;          // of numbers, the same
    bool is_column;              // GGUF stores the vector as a column
    int taps;                    // of a convolution that is flattened
    char folded[128];            // its GGUF name, if the GGUF has factors folded into its rows
    bool to_gguf;                // the direction of all these
    bool same_codes;             // groups of codes go into the type's blocks unchanged
    bool is_layer;               // a matrix that is neither embedding nor head
    const tern_adapter *adapter; // to be merged, or NULL
    // Weight of each column's error, [ne[0]], per ne[1] rows if there are parts; or NULL.
    const float *importance;
    bool importance_of_parts;
    int mlx_bits; // bits of a code if it becomes MLX's tensors; `type` gives the group size
    bool mlx_is_bf16;
    const float *signs; // of columns, if its rows are rotated; or NULL
} item;

typedef struct conversion {
    const tern_convert_desc *desc;
    const tern_rounding *rounding; // the caller's; NULL: none
    const uint64_t *rotation_seed; // NULL: it is not rotated
    tern_graph graph;              // of the model that is
    tern_new_rotation rotation;
    void (*hadamard)(float *y, const float *x, const float *sign, size_t n, size_t block);
    tern_file *file;
    const tern_arch *arch;
    const char *arch_name; // general.architecture of a GGUF output
    tern_arch seeing;      // `arch`, in a folder that has a vision tower
    const char *text_types[2];
    tern_config config; // without the tower, except when converting a tower or to a folder
    tern_vision vision; // the tower, if it is written as a separate file
    tern_adapters adapters;
    bool to_gguf;
    tern_dtype matrix_type, head_type;
    bool has_matrix_type, has_head_type;
    tern_convert_mixing mixing;
    bool *has_values; // that it points to
    tern_importances importances;
    size_t n_important; // tensors that have some
    item *items;
    size_t n_items;
    // Tensors that are parts of the input's, or several of them joined, and what those are made of
    tern_tensor *views;
    tern_blob *blobs;
    size_t n_views, n_blobs;
    float *rope_factors;       // for a GGUF
    tern_rope_factors factors; // for config.json
    tern_team *team;
    tern_gguf_writer *gguf;
    tern_st_writer *st;
    uint64_t bytes_done, bytes_all, bytes_told; // bytes_told: of the current tensor
    size_t n_folded;                            // tensors that have factors in them
    size_t n_rounded;                           // tensors of codes that became F16
    size_t n_fallbacks;                         // tensors whose rows did not fit the requested type
} conversion;

// Reports in one sentence how the output differs from what the caller may expect.
void tern_convert_note(const conversion *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Bytes of the tensors, in the order in which they were declared.
tern_status tern_convert_write(conversion *c, const void *bytes, uint64_t n, tern_error *err);
// Reports progress, with these bytes of the current tensor written; an error if the caller stops
// it.
tern_status tern_convert_tell(const conversion *c, uint64_t bytes, tern_error *err);
tern_status tern_convert_write_item(conversion *c, const item *it, tern_error *err);
// Chooses which tensors are rotated, and how; refuses an input that cannot be.
tern_status tern_convert_begin_rotation(conversion *c, tern_error *err);
// All items, in a GGUF.
tern_status tern_convert_declare_items(conversion *c, tern_error *err);
tern_status tern_convert_write_items(conversion *c, tern_error *err);

// Writes mmproj-NAME.gguf beside the output NAME.gguf (convert_tower.c), except the finish; *t is
// closed whether this fails or not.
tern_status tern_convert_begin_tower(const conversion *c, const tern_vision *v, const char *out,
                                     conversion *t, tern_error *err);
void tern_convert_close_tower(conversion *t); // a zeroed one is allowed
// A folder's files of images: with a tower, whose config is added, and without one.
tern_status tern_convert_write_vision(conversion *c, tern_strbuf *config, tern_error *err);
tern_status tern_convert_write_images(conversion *c, tern_strbuf *config, tern_error *err);

// The GGUF name of an input tensor; uses `buffer` of n bytes if it has to be built.
const char *tern_convert_gguf_name(const conversion *c, const tern_tensor *t, char *buffer,
                                   size_t n);

tern_status tern_convert_read_mixing(conversion *c, tern_error *err);
// Chooses it->type and what depends on it; refuses a type that would change the model.
tern_status tern_convert_choose_type(conversion *c, item *it, tern_error *err);
// Refuses types that cannot be written, with a sentence that says which can.
tern_status tern_convert_check_types(conversion *c, tern_error *err);
// Whether floats are rounded to this type, of trits or signs, because the caller insists.
static inline bool tern_convert_is_forced(const tern_convert_desc *d, tern_dtype type) {
    return d->force_ternary && tern_dtype_group_n(type) && tern_dtype_is_rounded_to(type);
}
// The number of general.file_type: llama.cpp's and bitnet.cpp's name for the type of most weights.
int64_t tern_convert_file_type(const conversion *c);
// The GGUF type of a folder's groups of codes (convert_groups.c): one whose blocks hold them to the
// bit, else F16.
tern_status tern_convert_find_group_type(const tern_tensor *t, tern_dtype *type, tern_error *err);
// Converts a row of n such codes (its bytes) to blocks of the type found above.
void tern_convert_put_groups(tern_dtype from, const void *row, size_t n, tern_dtype to,
                             uint8_t *out);
// MLX's folders (convert_mlx.c): whether the model can be one; whether a tensor is packed, given
// the float type that it would have otherwise; then its tensors, their bytes, and the additions to
// config.json.
tern_status tern_convert_check_mlx(conversion *c, tern_error *err);
bool tern_convert_choose_mlx(const conversion *c, item *it, tern_dtype as_floats);
tern_status tern_convert_declare_mlx(conversion *c, const item *it);
void tern_convert_mlx_sizes(const item *it, size_t n, size_t *words, size_t *scales);
void tern_convert_put_mlx(const item *it, const float *x, size_t n, uint8_t *codes, uint8_t *out);
void tern_convert_put_mlx_config(const conversion *c, tern_strbuf *json);
// RoPE's factors (convert_rope.c): whether a GGUF's tensor has them; reading them for config.json;
// adding them to a GGUF's tensors.
bool tern_convert_is_rope_factors(const char *name);
tern_status tern_convert_take_rope_factors(conversion *c, tern_error *err);
tern_status tern_convert_add_rope_factors(conversion *c, tern_error *err);
// Chooses c->arch_name, or refuses the requested one.
tern_status tern_convert_choose_arch(conversion *c, tern_error *err);
// Says so if codes are rounded to other codes.
void tern_convert_note_rounding(conversion *c);

// tokenizer.json and tokenizer_config.json of a GGUF's vocabulary, and generation_config.json, for
// a folder.
tern_status tern_convert_put_tokenizer(conversion *c, tern_strbuf *json, tern_strbuf *config,
                                       tern_strbuf *generation, tern_error *err);
// The same for a GGUF: the vocabulary of a folder as metadata, checked by reading it back.
tern_status tern_convert_put_vocabulary(conversion *c, tern_error *err);

#endif
