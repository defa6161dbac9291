// Hugging Face folders: the JSON files, the shards, and BitNet's packed weights.
#include "formats/file_private.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/utf8.h"

#define CONFIG_BYTES_MAX ((uint64_t)32 << 20) // a thousand times the usual size
#define SHARDS_MAX       512                  // searched for each tensor: a bound on time
#define SINGLE           "model.safetensors"
#define INDEX            "model.safetensors.index.json"

// "folder/name" in the file's arena.
tern_status tern_hf_join(tern_file *file, const char *folder, tern_str name, char **out,
                         tern_error *err) {
    size_t n = strlen(folder);
    *out = tern_arena_take(&file->priv->pool, n + name.len + 2);
    if (!*out) return tern_fail_memory(err, n + name.len + 2);
    memcpy(*out, folder, n);
    if (n && folder[n - 1] != '/') (*out)[n++] = '/';
    memcpy(*out + n, name.ptr, name.len);
    return TERN_OK;
}

static tern_status read_text(tern_file *file, const char *folder, const char *name, tern_str *out,
                             tern_error *err) {
    char *path;
    TERN_TRY(tern_hf_join(file, folder, (tern_str){name, strlen(name)}, &path, err));
    TERN_TRY(tern_file_add_text(file, path, out, err));
    size_t n_mark = out->ptr ? tern_utf8_mark(out->ptr, out->len) : 0;
    *out = (tern_str){out->ptr ? out->ptr + n_mark : NULL, out->len - n_mark};
    return TERN_OK;
}

tern_status tern_hf_read_json(tern_file *file, const char *folder, const char *name,
                              tern_json_doc *doc, tern_error *err) {
    tern_str text;
    TERN_TRY(read_text(file, folder, name, &text, err));
    if (!text.ptr) return TERN_OK;
    tern_status status = text.len > CONFIG_BYTES_MAX
                             ? tern_fail(err, TERN_ERR_FORMAT, "%zu bytes; at most %llu are read",
                                         text.len, (unsigned long long)CONFIG_BYTES_MAX)
                             : tern_json_parse(doc, text.ptr, text.len, err);
    if (status == TERN_OK) return status;
    tern_json_free(doc);
    tern_fail_prefix(err, status, name);
    return tern_fail_prefix(err, status, folder);
}

// ---- Shards ------------------------------------------------------------------------------------

tern_status tern_hf_open_shard(tern_file *file, const char *folder, tern_str name, int shard,
                               tern_error *err) {
    char *path;
    tern_blob all;
    TERN_TRY(tern_hf_join(file, folder, name, &path, err));
    TERN_TRY(tern_file_add_part(file, path, &all, err));
    tern_status status = tern_safetensors_parse(file, shard, &all, err);
    if (status == TERN_OK || status == TERN_ERR_IO) return status; // a failed read names the file
    return tern_fail_prefix(err, status, path);
}

// Links inside the folder may lead anywhere (the hub's cache consists of them), but the index,
// which came with the model, may not.
static bool stays_inside(tern_str name) {
    if (name.len == 0 || name.len > 255 || name.ptr[0] == '/' || memchr(name.ptr, 0, name.len))
        return false;
    for (size_t i = 0; i + 1 < name.len; i++)
        if (name.ptr[i] == '.' && name.ptr[i + 1] == '.') return false;
    return true;
}

// The shards of a weight map, in order of appearance, each once.
typedef struct shard_list {
    tern_str *names;
    size_t n, capacity;
} shard_list;

static tern_status add_shard(tern_file *file, shard_list *list, tern_str name, tern_error *err) {
    for (size_t i = list->n; i-- > 0;) // neighbours in the map are usually in the same shard
        if (tern_str_eq(name, list->names[i])) return TERN_OK;
    if (!stays_inside(name))
        return tern_fail(err, TERN_ERR_FORMAT, "weight_map names a file outside of the folder");
    if (list->n >= SHARDS_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "weight_map names over %d files", SHARDS_MAX);
    if (tern_array_reserve(TERN_MEM_MISC, &list->names, &list->capacity, list->n, 1) != 0)
        return tern_fail_memory(err, (list->n + 1) * sizeof *list->names);
    char *copy = tern_arena_text(&file->priv->pool, name);
    if (!copy) return tern_fail_memory(err, name.len + 1);
    list->names[list->n++] = (tern_str){copy, name.len};
    return TERN_OK;
}

static tern_status list_shards(tern_file *file, const tern_json_doc *doc, shard_list *list,
                               tern_error *err) {
    const tern_json *map = tern_json_get(doc, tern_json_root(doc), "weight_map");
    if (!tern_json_is(map, TERN_JSON_OBJECT))
        return tern_fail(err, TERN_ERR_FORMAT, "no weight_map");
    for (const tern_json *k = tern_json_first(doc, map); k; k = tern_json_next(doc, map, k))
        TERN_TRY(add_shard(file, list, tern_json_str(tern_json_value_of(doc, k)), err));
    return TERN_OK;
}

// Every tensor in the index must be in the shard that the index gives.
static tern_status check_promises(const tern_file *file, const tern_json_doc *doc,
                                  const shard_list *list, tern_error *err) {
    const tern_json *map = tern_json_get(doc, tern_json_root(doc), "weight_map");
    tern_strbuf name = {0};
    tern_status status = TERN_OK;
    for (const tern_json *k = tern_json_first(doc, map); k && status == TERN_OK;
         k = tern_json_next(doc, map, k)) {
        tern_str key = tern_json_str(k), shard = tern_json_str(tern_json_value_of(doc, k));
        tern_strbuf_clear(&name);
        tern_strbuf_append(&name, key.ptr, key.len);
        if (name.failed) status = tern_fail_memory(err, key.len + 1);
        if (status != TERN_OK) break;
        const tern_tensor *t = tern_file_tensor(file, tern_strbuf_text(&name));
        if (!t || !tern_str_eq(shard, list->names[t->shard]))
            status = tern_fail(err, TERN_ERR_FORMAT, "tensor '%s' is not in %.*s",
                               tern_strbuf_text(&name), (int)shard.len, shard.ptr);
    }
    tern_strbuf_free(&name);
    return status;
}

static tern_status open_shards(tern_file *file, const char *folder, const tern_json_doc *doc,
                               tern_error *err) {
    shard_list list = {0};
    tern_status status = list_shards(file, doc, &list, err);
    if (status != TERN_OK) goto fail;
    for (size_t i = 0; i < list.n; i++)
        TERN_TRY_GOTO(tern_hf_open_shard(file, folder, list.names[i], (int)i, err));
    TERN_TRY_GOTO(tern_file_index_tensors(file, err));
    status = check_promises(file, doc, &list, err);
fail:
    tern_free(list.names);
    return status;
}

// ---- BitNet's packed weights -------------------------------------------------------------------

static tern_status read_scale(const tern_tensor *s, bool divides, float *out, tern_error *err) {
    float value = 0;
    if (s->ne[0] * s->ne[1] * s->ne[2] * s->ne[3] != 1)
        return tern_fail(err, TERN_ERR_FORMAT, "'%s' has more than one element", s->name);
    if (!tern_dtype_is_float(s->type))
        return tern_fail(err, TERN_ERR_FORMAT, "'%s' is %s, not F32, F16 or BF16", s->name,
                         tern_dtype_name(s->type));
    TERN_TRY(tern_tensor_decode(s, &value, err));
    if (divides) value = 1 / value;
    if (!isfinite(value) || value == 0)
        return tern_fail(err, TERN_ERR_FORMAT, "'%s' is not a usable scale", s->name);
    *out = value;
    return TERN_OK;
}

static tern_status find_scale(const tern_tensor **out, const tern_file *file, const tern_tensor *t,
                              tern_error *err) {
    tern_strbuf name = {0};
    tern_strbuf_printf(&name, "%s_scale", t->name);
    bool failed = name.failed;
    *out = failed ? NULL : tern_file_tensor(file, name.ptr);
    tern_strbuf_free(&name);
    if (failed) return tern_fail_memory(err, strlen(t->name));
    if (!*out)
        return tern_fail(err, TERN_ERR_FORMAT, "tensor '%s' is packed, but there is no '%s_scale'",
                         t->name, t->name);
    return TERN_OK;
}

// U8 [out / 4, in] with a sibling "..._scale" is a ternary matrix [out, in]. The two linear classes
// of transformers use the scale in opposite ways: `autobitlinear` multiplies the product by it and
// `bitlinear`, the default, divides.
tern_status tern_hf_resolve_ternary(tern_file *file, tern_error *err) {
    const tern_json *q = tern_json_path(&file->config, "quantization_config");
    if (!tern_str_is(tern_json_str(tern_json_get(&file->config, q, "quant_method")), "bitnet"))
        return TERN_OK;
    tern_str linear = tern_json_str(tern_json_get(&file->config, q, "linear_class"));
    bool multiplies = tern_str_is(linear, "autobitlinear");
    if (linear.ptr && !multiplies && !tern_str_is(linear, "bitlinear"))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config.json: linear_class is '%.*s', neither bitlinear nor autobitlinear",
                         (int)(linear.len < 40 ? linear.len : 40), linear.ptr);
    for (size_t i = 0; i < file->n_tensors; i++) {
        tern_tensor *t = &file->tensors[i];
        if (t->type != TERN_DTYPE_U8 || t->n_dims != 2) continue;
        const tern_tensor *scale;
        TERN_TRY(find_scale(&scale, file, t, err));
        TERN_TRY(read_scale(scale, !multiplies, &t->scale, err));
        t->ne[1] *= 4; // bounded: the packed bytes are in the file
        t->type = TERN_DTYPE_HF_TERNARY;
    }
    return TERN_OK;
}

// ---- Arrays of config.json ---------------------------------------------------------------------

// RoPE's factors, which are tensors in GGUF, with these names.
static tern_status add_array(tern_file *file, const tern_json *list, const char *name,
                             tern_error *err) {
    const tern_json_doc *doc = &file->config;
    size_t n = 0;
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e)) n++;
    if (n == 0) return tern_fail(err, TERN_ERR_FORMAT, "config.json: no numbers for %s", name);
    tern_tensor *t = tern_file_add_tensor(file, err);
    float *x = t ? tern_arena_take(&file->priv->pool, n * sizeof *x) : NULL;
    if (!x) return tern_fail_memory(err, n * sizeof *x);
    *t = (tern_tensor){.name = name,
                       .type = TERN_DTYPE_F32,
                       .n_dims = 1,
                       .ne = {n, 1, 1, 1},
                       .data = tern_blob_of(x, n * sizeof *x),
                       .bytes = n * sizeof *x,
                       .scale = 1};
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e))
        *x++ = (float)tern_json_number(e, NAN);
    return TERN_OK;
}

static tern_status add_rope_factors(tern_file *file, tern_error *err) {
    // In the order of precedence (models/core/config_rope.c).
    static const char *const groups[] = {"text_config.rope_scaling", "rope_scaling",
                                         "text_config.rope_parameters", "rope_parameters",
                                         "rope_parameters.full_attention"};
    static const char *const names[][2] = {{"short_factor", "rope_factors_short.weight"},
                                           {"long_factor", "rope_factors_long.weight"}};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const tern_json *group = tern_json_path(&file->config, groups[i]);
        const tern_json *lists[2];
        for (int k = 0; k < 2; k++) lists[k] = tern_json_get(&file->config, group, names[k][0]);
        if (!tern_json_is(lists[0], TERN_JSON_ARRAY) || !tern_json_is(lists[1], TERN_JSON_ARRAY))
            continue;
        for (int k = 0; k < 2; k++) TERN_TRY(add_array(file, lists[k], names[k][1], err));
        return TERN_OK;
    }
    return TERN_OK;
}

// ---- MLX's convolutions ------------------------------------------------------------------------

#define TAPS_MAX 16

// [n, taps, 1] instead of [n, 1, taps]: the same numbers in the same order.
static void turn_convolutions(tern_file *file) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        tern_tensor *t = &file->tensors[i];
        if (t->n_dims != 3 || t->ne[0] != 1 || t->ne[1] < 2 || t->ne[1] > TAPS_MAX ||
            !strstr(t->name, "conv"))
            continue;
        t->ne[0] = t->ne[1];
        t->ne[1] = 1;
        file->norms_are_ready = true;
    }
}

// ---- Folders -----------------------------------------------------------------------------------

// Whether the index lists the file among its shards.
static bool index_names(const tern_json_doc *doc, const char *file_name) {
    const tern_json *map = tern_json_get(doc, tern_json_root(doc), "weight_map");
    for (const tern_json *k = tern_json_first(doc, map); k; k = tern_json_next(doc, map, k))
        if (tern_str_is(tern_json_str(tern_json_value_of(doc, k)), file_name)) return true;
    return false;
}

// If a folder has both, transformers reads the single file and not the index; so do we.
static tern_status open_weights(tern_file *file, const char *folder, const char *only_file,
                                tern_error *err) {
    tern_json_doc doc = {0};
    tern_status status = TERN_OK;
    if (!only_file || !strcmp(only_file, SINGLE)) {
        char *path;
        TERN_TRY(tern_hf_join(file, folder, TERN_STR(SINGLE), &path, err));
        if (tern_path_look(path) != TERN_PATH_NONE || errno != ENOENT) only_file = SINGLE;
    }
    if (!only_file || strcmp(only_file, SINGLE) != 0)
        TERN_TRY(tern_hf_read_json(file, folder, INDEX, &doc, err));
    if (tern_json_root(&doc) && (!only_file || index_names(&doc, only_file))) {
        status = open_shards(file, folder, &doc, err);
        if (status != TERN_OK) tern_fail_prefix(err, status, INDEX);
    } else {
        if (only_file)
            status =
                tern_hf_open_shard(file, folder, (tern_str){only_file, strlen(only_file)}, 0, err);
        if (status == TERN_OK) status = tern_file_index_tensors(file, err);
    }
    tern_json_free(&doc);
    return status;
}

tern_status tern_hf_open_tokenizer(tern_file *file, const char *folder, const char *name,
                                   tern_error *err) {
    file->kind = TERN_FILE_HF;
    size_t n = strlen(name);
    bool is_json = n > 5 && !strcmp(name + n - 5, ".json");
    tern_str *text = is_json ? &file->tokenizer_json : &file->tokenizer_model;
    TERN_TRY(read_text(file, folder, name, text, err));
    if (text->ptr) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "%s/%s: an empty tokenizer", folder, name);
}

// Newer folders have the settings of all processors of a model in one file.
static tern_status read_preprocessor(tern_file *file, const char *folder, tern_error *err) {
    tern_json_doc *doc = &file->preprocessor;
    TERN_TRY(tern_hf_read_json(file, folder, "preprocessor_config.json", doc, err));
    if (tern_json_root(doc)) return TERN_OK;
    TERN_TRY(tern_hf_read_json(file, folder, "processor_config.json", doc, err));
    const tern_json *image = tern_json_path(doc, "image_processor");
    if (tern_json_is(image, TERN_JSON_OBJECT))
        tern_json_keep(doc, image);
    else
        tern_json_free(doc);
    return TERN_OK;
}

#define NAMES_MAX 5

// Appends the GGUF files of a folder: the intended model may be among them, and the user must name
// it.
static void name_ggufs(tern_strbuf *out, const char *folder) {
    tern_names names = {0};
    if (tern_folder_list(&names, folder, "", ".gguf", NULL) != TERN_OK) return;
    for (size_t i = 0; i < names.n && i < NAMES_MAX; i++)
        tern_strbuf_printf(out, "%s%s/%s", i ? ", " : "", folder, names.list[i]);
    if (names.n > NAMES_MAX) tern_strbuf_printf(out, " and %zu more", names.n - NAMES_MAX);
    tern_names_free(&names);
}

// Fails with `missing`, which it frees, or with the folder's GGUF files.
static tern_status fail_with_files(const char *folder, tern_strbuf *missing, tern_error *err) {
    tern_strbuf ggufs = {0};
    name_ggufs(&ggufs, folder);
    tern_status status = ggufs.len > 0
                             ? tern_fail(err, TERN_ERR_FORMAT,
                                         "a folder of GGUF files; name the one that is meant: %s",
                                         tern_strbuf_text(&ggufs))
                             : tern_fail(err, TERN_ERR_FORMAT, "%s", tern_strbuf_text(missing));
    tern_strbuf_free(&ggufs);
    tern_strbuf_free(missing);
    return status;
}

// Its tensors are changes of another model's, under that model's names.
static bool is_adapter(const tern_file *file) {
    tern_str type = {0};
    if (file->kind == TERN_FILE_HF) return tern_json_path(&file->config, "peft_type") != NULL;
    tern_file_meta_str(file, "general.type", &type);
    return tern_str_is(type, "adapter");
}

static tern_status fail_adapter(tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "an adapter, not a model: load it beside its model, or merge it into that "
                     "when you convert it");
}

static bool folder_has(const char *folder, const char *name) {
    char *path = tern_path_join(folder, name);
    bool there = path && tern_path_look(path) == TERN_PATH_FILE;
    tern_free(path);
    return there;
}

tern_status tern_file_need_weights(const tern_file *file, tern_error *err) {
    tern_strbuf what = {0};
    if (is_adapter(file)) return fail_adapter(err);
    if (file->kind != TERN_FILE_HF || file->n_tensors > 0) return TERN_OK;
    bool names_file = tern_path_look(file->path) != TERN_PATH_FOLDER;
    char *folder =
        names_file ? tern_path_folder(file->path) : tern_strdup(TERN_MEM_MISC, file->path);
    if (!folder) return tern_fail_memory(err, strlen(file->path));
    tern_strbuf_printf(&what, "no weights here, %s: neither %s nor %s",
                       tern_json_root(&file->config) ? "only config.json" : "only a tokenizer",
                       SINGLE, INDEX);
    tern_status status = fail_with_files(folder, &what, err);
    tern_free(folder);
    return status;
}

static tern_status read_folder(tern_file *file, const char *folder, const char *only_file,
                               tern_error *err) {
    bool is_adapter = only_file && !strcmp(only_file, "adapter_model.safetensors");
    TERN_TRY(tern_hf_read_json(file, folder, is_adapter ? "adapter_config.json" : "config.json",
                               &file->config, err));
    TERN_TRY(
        tern_hf_read_json(file, folder, "tokenizer_config.json", &file->tokenizer_config, err));
    TERN_TRY(
        tern_hf_read_json(file, folder, "generation_config.json", &file->generation_config, err));
    TERN_TRY(read_preprocessor(file, folder, err));
    TERN_TRY(read_text(file, folder, "tokenizer.json", &file->tokenizer_json, err));
    if (!file->tokenizer_json.ptr)
        TERN_TRY(read_text(file, folder, "tokenizer.model", &file->tokenizer_model, err));
    if (!file->tokenizer_json.ptr && !file->tokenizer_model.ptr) // as T5 and ALBERT have
        TERN_TRY(read_text(file, folder, "spiece.model", &file->tokenizer_model, err));
    TERN_TRY(read_text(file, folder, "chat_template.jinja", &file->chat_template, err));
    if (!only_file) TERN_TRY(tern_hf_open_modules(file, folder, err));
    if (!is_adapter) TERN_TRY(add_rope_factors(file, err));
    TERN_TRY(open_weights(file, folder, only_file, err));
    if (file->n_tensors == 0 && !tern_json_root(&file->config) && !file->tokenizer_json.ptr &&
        !file->tokenizer_model.ptr) {
        tern_strbuf what = {0};
        if (folder_has(folder, "adapter_config.json"))
            return tern_fail_prefix(err, fail_adapter(err), folder);
        tern_strbuf_printf(&what,
                           "no model here: neither %s nor %s nor config.json nor tokenizer.json",
                           SINGLE, INDEX);
        tern_status status = fail_with_files(folder, &what, err);
        return tern_fail_prefix(err, status, folder);
    }
    turn_convolutions(file);
    tern_status status = tern_hf_resolve_ternary(file, err);
    if (status == TERN_OK) status = tern_hf_resolve_packed(file, folder, err);
    if (status == TERN_OK) status = tern_hf_resolve_ternary_floats(file, err);
    if (status == TERN_OK) status = tern_hf_join_experts(file, err);
    if (status == TERN_OK) status = tern_hf_fold_weight_norms(file, err);
    if (status == TERN_OK || status == TERN_ERR_IO) return status; // a failed read names the file
    return tern_fail_prefix(err, status, folder);
}

// Files of two models must not be mixed, neither in a folder whose replacement was interrupted nor
// in one that is being replaced: writers remove config.json first and write it last.
tern_status tern_hf_open_folder(tern_file *file, const char *folder, const char *only_file,
                                tern_error *err) {
    static const char *const last[] = {"config.json", SINGLE, INDEX};
    char *config;
    file->kind = TERN_FILE_HF;
    for (size_t i = 0; i < sizeof last / sizeof *last; i++)
        TERN_TRY(tern_out_check(folder, last[i], err));
    TERN_TRY(tern_hf_join(file, folder, TERN_STR("config.json"), &config, err));
    tern_stamp before = tern_file_stamp(config);
    TERN_TRY(read_folder(file, folder, only_file, err));
    tern_stamp after = tern_file_stamp(config);
    if (tern_stamp_same(&before, &after)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: was replaced while it was opened; try again", folder);
}
