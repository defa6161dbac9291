// The modules of a sentence-transformers folder: they turn a model's rows into one vector.
//
//   modules.json        [{"path": "", "type": "...Transformer"}, {"path": "1_Pooling", ...}, ...]
//   1_Pooling/config.json        pooling_mode_mean_tokens, pooling_mode_lasttoken ...
//   2_Dense/model.safetensors    linear.weight; becomes the tensor "2_Dense.linear.weight"
//   config_sentence_transformers.json   {"prompts": {"query": "..."}, "default_prompt_name": ...}
//   sentence_bert_config.json           {"max_seq_length": 512}
//
// Dense modules that are more than a product, and modules of other kinds, are refused: without them
// the vectors would be different.
#include <string.h>
#include "formats/file_private.h"

#define MODULES_MAX 16

// The path must be a folder beside the model's files, not a way out of it.
static bool is_plain(tern_str path) {
    if (path.len == 0 || path.len > 64 || path.ptr[0] == '.') return false;
    return !memchr(path.ptr, '/', path.len) && !memchr(path.ptr, 0, path.len);
}

static tern_status check_dense(const tern_json_doc *config, tern_str path, tern_error *err) {
    tern_str act = tern_json_str(tern_json_path(config, "activation_function"));
    bool bias = tern_json_bool(tern_json_path(config, "bias"), false);
    if (!bias && (!act.ptr || tern_str_ends(act, ".Identity"))) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%.*s: a dense module with %s is not supported",
                     (int)path.len, path.ptr, bias ? "a bias" : "an activation");
}

static tern_status open_dense(tern_file *file, const char *inside, tern_str path, tern_error *err) {
    tern_json_doc config = {0};
    size_t first = file->n_tensors;
    TERN_TRY(tern_hf_read_json(file, inside, "config.json", &config, err));
    tern_status status = check_dense(&config, path, err);
    tern_json_free(&config);
    TERN_TRY(status);
    TERN_TRY(tern_hf_open_shard(file, inside, TERN_STR("model.safetensors"), 0, err));
    for (size_t i = first; i < file->n_tensors; i++) {
        tern_tensor *t = &file->tensors[i];
        size_t n = strlen(t->name);
        char *name = tern_arena_take(&file->priv->pool, path.len + 1 + n + 1);
        if (!name) return tern_fail_memory(err, path.len + n);
        memcpy(name, path.ptr, path.len);
        name[path.len] = '.';
        memcpy(name + path.len + 1, t->name, n);
        t->name = name;
    }
    return TERN_OK;
}

static tern_status open_module(tern_file *file, const char *folder, const tern_json_doc *doc,
                               const tern_json *module, tern_error *err) {
    tern_str path = tern_json_str(tern_json_get(doc, module, "path"));
    tern_str type = tern_json_str(tern_json_get(doc, module, "type"));
    char *inside;
    if (tern_str_ends(type, ".Normalize")) file->any_length = false;
    if (tern_str_ends(type, ".Transformer") || tern_str_ends(type, ".Normalize")) return TERN_OK;
    bool pooling = tern_str_ends(type, ".Pooling"), dense = tern_str_ends(type, ".Dense");
    if (!pooling && !dense)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "modules of type '%.*s' are not supported",
                         (int)(type.len < 80 ? type.len : 80), type.ptr ? type.ptr : "");
    if (!is_plain(path))
        return tern_fail(err, TERN_ERR_FORMAT, "a module's path is not a folder beside the model");
    TERN_TRY(tern_hf_join(file, folder, path, &inside, err));
    if (dense) return open_dense(file, inside, path, err);
    tern_json_free(&file->pooling);
    return tern_hf_read_json(file, inside, "config.json", &file->pooling, err);
}

tern_status tern_hf_open_modules(tern_file *file, const char *folder, tern_error *err) {
    tern_json_doc doc = {0};
    int n = 0;
    TERN_TRY(
        tern_hf_read_json(file, folder, "config_sentence_transformers.json", &file->sentence, err));
    TERN_TRY(
        tern_hf_read_json(file, folder, "sentence_bert_config.json", &file->sentence_length, err));
    TERN_TRY(tern_hf_read_json(file, folder, "modules.json", &doc, err));
    const tern_json *list = tern_json_root(&doc);
    tern_status status = TERN_OK;
    file->any_length = list != NULL;
    if (list && !tern_json_is(list, TERN_JSON_ARRAY))
        status = tern_fail(err, TERN_ERR_FORMAT, "no list of modules");
    for (const tern_json *m = list ? tern_json_first(&doc, list) : NULL; m && status == TERN_OK;
         m = tern_json_next(&doc, list, m))
        status = ++n > MODULES_MAX ? tern_fail(err, TERN_ERR_FORMAT, "over %d modules", MODULES_MAX)
                                   : open_module(file, folder, &doc, m, err);
    tern_json_free(&doc);
    if (status == TERN_OK || status == TERN_ERR_IO) return status; // a failed read names the file
    tern_fail_prefix(err, status, "modules.json");
    return tern_fail_prefix(err, status, folder);
}
