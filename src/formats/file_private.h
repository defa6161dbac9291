// Shared by the readers of src/formats: a file under construction and its helpers.
//
// The parsers take blobs instead of paths, so that fuzzing and tests need no files. From a blob
// that must be read they keep everything except tensor data. They append to a tern_file whose
// private part owns everything they found:
// - open files (or nothing, if the bytes are the caller's), and those that are wholly in memory,
// - an arena for names, string lists and copies, freed in one go,
// - two name indices, built once the lists that they index are complete.
// Whatever fails, tern_file_close() of the half-built file releases all of it.
#ifndef TERN_FORMATS_FILE_PRIVATE_H
#define TERN_FORMATS_FILE_PRIVATE_H

#include "formats/formats.h"

// In a repository cloned without Git LFS, large files begin with "version https://git-lfs".
#define TERN_LFS_POINTER                                                                           \
    "a Git LFS pointer, which stands for the file: `git lfs pull` or `tern pull` gets it"

// ---- A whole file in memory: mapped, or read ----------------------------------------------------

typedef struct tern_mapping {
    const uint8_t *bytes; // never NULL after a success, even if the file is empty
    uint64_t n;
    tern_blob_file *file; // NULL: the bytes were read, or are the caller's
    tern_hold hold;
} tern_mapping;

// Regular files only. missing_ok: a missing file gives TERN_OK and bytes == NULL.
tern_status tern_mapping_open(tern_mapping *m, const char *path, bool missing_ok, tern_error *err);
void tern_mapping_close(tern_mapping *m);

// ---- An arena: many small blocks with one lifetime ---------------------------------------------

typedef struct tern_arena {
    struct tern_arena_chunk *chunks; // newest first
} tern_arena;

void *tern_arena_take(tern_arena *pool, size_t bytes);  // 16-byte aligned, zeroed; NULL: no memory
char *tern_arena_text(tern_arena *pool, tern_str text); // a terminated copy
void tern_arena_free(tern_arena *pool);

// ---- Names to positions ------------------------------------------------------------------------

// Open addressing over 32-bit positions, at most a quarter full. An attacker can choose a file's
// names, so the length of a probe is capped: names made to collide are refused.
typedef struct tern_name_index {
    uint32_t *slots; // position + 1, 0: empty
    size_t mask;     // number of slots - 1
} tern_name_index;

// Names are read from the `const char *` at the beginning of each of n items of item_bytes; `what`
// names the items in messages. Duplicate names are refused.
tern_status tern_name_index_build(tern_name_index *index, const void *items, size_t n,
                                  size_t item_bytes, const char *what, tern_error *err);
// Position of the name, or -1.
int64_t tern_name_index_find(const tern_name_index *index, const void *items, size_t item_bytes,
                             const char *name);
uint64_t tern_name_hash(const char *name);
void tern_name_index_free(tern_name_index *index);

// ---- Files under construction ------------------------------------------------------------------

// Reads another program's file as the equivalent GGUF.
typedef tern_status tern_parse_fn(tern_file *file, const tern_blob *all, tern_error *err);

struct tern_file_private {
    tern_parse_fn *foreign; // for whisper.cpp's files; NULL: they are refused
    tern_blob_file **files; // with tensors
    size_t n_files, files_capacity;
    tern_mapping *maps; // texts
    size_t n_maps, maps_capacity, tensors_capacity;
    tern_arena pool;
    uint8_t *copy; // of a file in memory; NULL: none
    tern_name_index tensor_index, meta_index;
};

tern_status tern_file_open_with(tern_file **out, const char *path, tern_parse_fn *foreign,
                                tern_error *err);
tern_status tern_file_new(tern_file **out, const char *path, tern_error *err);
// Opens a file with tensors, and keeps it until `file` is closed.
tern_status tern_file_add_part(tern_file *file, const char *path, tern_blob *all, tern_error *err);
// A small file, whole, until `file` is closed. A missing one gives TERN_OK and out->ptr == NULL.
tern_status tern_file_add_text(tern_file *file, const char *path, tern_str *out, tern_error *err);
tern_tensor *tern_file_add_tensor(tern_file *file, tern_error *err); // zeroed; NULL: out of memory
// Call after the last tensor: sums their bytes, refuses duplicate names.
tern_status tern_file_index_tensors(tern_file *file, tern_error *err);
// Refuses tensors [first, n_tensors) that overlap; with gapless, also holes between them and around
// them: they must then fill the part `data` of their file.
tern_status tern_file_check_layout(tern_file *file, size_t first, const tern_blob *data,
                                   bool gapless, tern_error *err);

// Appends the contents of one GGUF file. Metadata of shard 0 becomes the file's; in later shards
// only the split keys matter. The blob must outlive the file.
typedef struct tern_gguf_split {
    int64_t no, count, n_tensors; // -1: the key is missing
} tern_gguf_split;
tern_status tern_gguf_parse(tern_file *file, int shard, const tern_blob *all,
                            tern_gguf_split *split, tern_error *err);
// whisper.cpp's files, read as the equivalent GGUF. After tern_whisper_bin_is.
bool tern_whisper_bin_is(const tern_blob *all);
tern_status tern_whisper_bin_parse(tern_file *file, const tern_blob *all, tern_error *err);
// Types and bytes of tensors that only follow from their room in the file (gguf_sizes.c). offsets:
// in the n_data bytes of the file's data.
tern_status tern_gguf_settle_sizes(tern_tensor *tensors, const uint64_t *offsets, size_t n,
                                   uint64_t n_data, uint64_t alignment, tern_error *err);
// Opens path and, if it is the first of a split set, all the others.
tern_status tern_gguf_open_files(tern_file *file, const char *path, tern_error *err);
// The same for one file in memory, which must stay.
tern_status tern_gguf_open_blob(tern_file *file, const tern_blob *all, tern_error *err);

// A tokenizer.json alone, under any name.
tern_status tern_hf_open_tokenizer(tern_file *file, const char *folder, const char *name,
                                   tern_error *err);

// Appends the tensors of one safetensors file.
tern_status tern_safetensors_parse(tern_file *file, int shard, const tern_blob *all,
                                   tern_error *err);
// Turns packed ternary weights of a BitNet folder (see file->config) into HF_TERNARY tensors. After
// tern_file_index_tensors.
tern_status tern_hf_resolve_ternary(tern_file *file, tern_error *err);
// Replaces each packed matrix and its scales by one tensor "x.weight" of a decodable type: MLX,
// GPTQ, AWQ, compressed-tensors, FP8 (hf_quant.c). Unsupported packings are noted in the file, and
// their tensors stay. After tern_file_index_tensors, which is repeated.
tern_status tern_hf_resolve_packed(tern_file *file, const char *folder, tern_error *err);
// Projections whose floats are ternary become codes in groups, if all projections are
// (hf_floats.c).
tern_status tern_hf_resolve_ternary_floats(tern_file *file, tern_error *err);
// A folder has a tensor for each expert, "...experts.0.w1.weight": if they are floats of one type
// and shape, they become one with three dimensions, "...experts.w1.weight", as in GGUF. After
// tern_file_index_tensors, which is repeated.
tern_status tern_hf_join_experts(tern_file *file, tern_error *err);
// Weights that PyTorch keeps as a direction v and a length g for each part of its first dimension
// become g v / |v|, floats that are computed when they are held: "x.weight" instead of
// "x.parametrizations.weight.original0" and "1", or of "x.weight_g" and "x.weight_v". After
// tern_file_index_tensors, which is repeated.
tern_status tern_hf_fold_weight_norms(tern_file *file, tern_error *err);
// Opens a folder; only_file (may be NULL) restricts it to one safetensors file.
tern_status tern_hf_open_folder(tern_file *file, const char *folder, const char *only_file,
                                tern_error *err);

// For the parts of a folder: "folder/name" in the file's arena; a JSON file, if it exists; the
// tensors of a safetensors file.
tern_status tern_hf_join(tern_file *file, const char *folder, tern_str name, char **out,
                         tern_error *err);
tern_status tern_hf_read_json(tern_file *file, const char *folder, const char *name,
                              tern_json_doc *doc, tern_error *err);
tern_status tern_hf_open_shard(tern_file *file, const char *folder, tern_str name, int shard,
                               tern_error *err);
// Reads modules.json, if it exists, and the files that it names (hf_modules.c).
tern_status tern_hf_open_modules(tern_file *file, const char *folder, tern_error *err);

#endif
