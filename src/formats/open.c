// Opens a model by its path, whatever its format.
#include <errno.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/file/out_set.h"
#include "formats/file_private.h"

// "a/b.safetensors" opens the folder "a" and names "b.safetensors"; "a/b.json" and "a/b.model" only
// a tokenizer.
static tern_status open_folder_of(tern_file *file, const char *path, tern_error *err) {
    const char *slash = strrchr(path, '/');
    size_t n_folder = slash ? (size_t)(slash - path) : 0;
    tern_str folder = n_folder ? (tern_str){path, n_folder} : slash ? TERN_STR("/") : TERN_STR(".");
    char *copy = tern_strndup(TERN_MEM_MISC, folder.ptr, folder.len);
    if (!copy) return tern_fail_memory(err, folder.len + 1);
    const char *name = slash ? slash + 1 : path;
    if (tern_name_ends(name, ".index.json")) name = NULL;
    bool tokenizer = name && (tern_name_ends(name, ".json") || tern_name_ends(name, ".model"));
    tern_status status = tokenizer ? tern_hf_open_tokenizer(file, copy, name, err)
                                   : tern_hf_open_folder(file, copy, name, err);
    tern_free(copy);
    return status;
}

// When files that belong together are replaced, such as a split set, the first file is removed
// first.
static tern_status check_whole(const char *path, tern_error *err) {
    if (!*tern_path_name(path)) return TERN_OK; // "folder/"
    char *folder = tern_path_folder(path);
    if (!folder) return tern_fail_memory(err, strlen(path) + 1);
    tern_status status = tern_out_check(folder, tern_path_name(path), err);
    tern_free(folder);
    return status;
}

static tern_status open_any(tern_file *file, const char *path, tern_error *err) {
    TERN_TRY(check_whole(path, err));
    tern_path_kind kind = tern_path_look(path);
    if (kind == TERN_PATH_NONE)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (kind == TERN_PATH_FOLDER) return tern_hf_open_folder(file, path, NULL, err);
    if (tern_name_ends(path, ".safetensors") || tern_name_ends(path, ".json") ||
        tern_name_ends(path, ".model"))
        return open_folder_of(file, path, err);
    return tern_gguf_open_files(file, path, err);
}

// Kernels read tensors in place, so they must be aligned.
static tern_status open_bytes(tern_file *file, const tern_bytes *bytes, tern_error *err) {
    const void *at = bytes->bytes;
    if ((uintptr_t)at % 64 != 0) {
        file->priv->copy = tern_alloc_open(TERN_MEM_FILE, bytes->n_bytes);
        if (!file->priv->copy) return tern_fail_memory(err, bytes->n_bytes);
        memcpy(file->priv->copy, at, bytes->n_bytes);
        at = file->priv->copy;
    }
    const tern_blob all = tern_blob_of(at, bytes->n_bytes);
    return tern_gguf_open_blob(file, &all, err);
}

static tern_status check_order(const char *path, tern_error *err) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    // Otherwise a GGUF would seem big-endian, and a safetensors' header longer than the file.
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%.300s: tern reads models on little-endian machines, and this one is "
                     "big-endian",
                     path);
#endif
    (void)path, (void)err;
    return TERN_OK;
}

tern_status tern_file_open_bytes(tern_file **out, const char *name, const tern_bytes *bytes,
                                 tern_error *err) {
    tern_file *file;
    *out = NULL;
    if (!name) name = "memory";
    TERN_TRY(check_order(name, err));
    TERN_TRY(tern_file_new(&file, name, err));
    tern_status status = open_bytes(file, bytes, err);
    if (status == TERN_OK)
        *out = file;
    else
        tern_file_close(file);
    return status;
}

tern_status tern_file_open_with(tern_file **out, const char *path, tern_parse_fn *foreign,
                                tern_error *err) {
    tern_file *file;
    *out = NULL;
    TERN_TRY(check_order(path, err));
    TERN_TRY(tern_file_new(&file, path, err));
    file->priv->foreign = foreign;
    tern_status status = open_any(file, path, err);
    if (status == TERN_OK)
        *out = file;
    else
        tern_file_close(file);
    return status;
}

tern_status tern_file_open(tern_file **out, const char *path, tern_error *err) {
    return tern_file_open_with(out, path, NULL, err);
}

tern_status tern_file_open_foreign(tern_file **out, const char *path, tern_error *err) {
    return tern_file_open_with(out, path, tern_whisper_bin_parse, err);
}
