// Folders of shards: manifest.json lists what belongs together. It is written last, so a folder
// without it is unfinished, and one whose shards do not match it mixes two builds.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/file_private.h"
#include "formats/shard/shard.h"

static tern_status fail_entry(const char *folder, tern_str name, const char *reason,
                              tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "%s/%.*s: %s", folder, (int)name.len, name.ptr, reason);
}

static tern_status check_shard(const char *path, const tern_json_doc *doc, const tern_json *entry,
                               tern_error *err) {
    tern_shard *shard;
    tern_strbuf sum = {0};
    TERN_TRY(tern_shard_open(&shard, path, err));
    const tern_shard_info *info = tern_shard_get_info(shard);
    tern_strbuf_printf(&sum, "%08x", info->checksum);
    bool same =
        tern_json_int(tern_json_get(doc, entry, "tokens"), -1) == (int64_t)info->n_tokens &&
        tern_json_int(tern_json_get(doc, entry, "documents"), -1) == (int64_t)info->n_documents &&
        tern_str_is(tern_json_str(tern_json_get(doc, entry, "checksum")), tern_strbuf_text(&sum));
    tern_status status = sum.failed ? tern_fail_memory(err, 16) : TERN_OK;
    if (status == TERN_OK && !same)
        status = tern_fail(err, TERN_ERR_FORMAT,
                           "%s: not the shard that manifest.json describes; build the folder again",
                           path);
    tern_strbuf_free(&sum);
    tern_shard_close(shard);
    return status;
}

// The name must be split-00000.tern and on, in order: so no name is in the manifest twice.
static tern_status add_entry(tern_names *paths, const char *folder, const char *split,
                             const tern_json_doc *doc, const tern_json *entry, tern_error *err) {
    tern_str name = tern_json_str(tern_json_get(doc, entry, "file"));
    tern_strbuf path = {0};
    if (!tern_str_is(tern_json_str(tern_json_get(doc, entry, "split")), split)) return TERN_OK;
    tern_strbuf_printf(&path, "%s/%s-%05zu.tern", folder, split, paths->n);
    tern_status status = path.failed ? tern_fail_memory(err, strlen(folder) + 32) : TERN_OK;
    if (status == TERN_OK && !tern_str_is(name, tern_path_name(path.ptr)))
        status = fail_entry(folder, TERN_STR("manifest.json"), "its shards are out of order", err);
    if (status == TERN_OK) status = check_shard(path.ptr, doc, entry, err);
    if (status == TERN_OK) status = tern_names_add(paths, path.ptr, err);
    tern_strbuf_free(&path);
    return status;
}

// Shards that are not in the manifest: those of an earlier build, or put there by hand.
static tern_status check_others(const tern_names *paths, const char *folder, const char *split,
                                tern_error *err) {
    tern_names names = {0};
    tern_strbuf begin = {0};
    tern_strbuf_printf(&begin, "%s-", split);
    tern_status status = begin.failed ? tern_fail_memory(err, 16)
                                      : tern_folder_list(&names, folder, begin.ptr, ".tern", err);
    for (size_t i = 0; status == TERN_OK && i < names.n; i++)
        if (i >= paths->n || strcmp(names.list[i], tern_path_name(paths->list[i])) != 0)
            status = fail_entry(folder, (tern_str){names.list[i], strlen(names.list[i])},
                                "not in manifest.json; build the folder again", err);
    tern_strbuf_free(&begin);
    tern_names_free(&names);
    return status;
}

static tern_status read_manifest(tern_names *paths, const char *folder, const char *split,
                                 const tern_mapping *m, tern_error *err) {
    tern_json_doc doc;
    tern_status status = tern_json_parse(&doc, (const char *)m->bytes, (size_t)m->n, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, "manifest.json");
    const tern_json *list = tern_json_get(&doc, tern_json_root(&doc), "shards");
    if (!tern_json_is(list, TERN_JSON_ARRAY))
        status = fail_entry(folder, TERN_STR("manifest.json"), "it lists no shards", err);
    else
        for (const tern_json *e = tern_json_first(&doc, list); e && status == TERN_OK;
             e = tern_json_next(&doc, list, e))
            status = add_entry(paths, folder, split, &doc, e, err);
    tern_json_free(&doc);
    return status == TERN_OK ? check_others(paths, folder, split, err) : status;
}

static tern_status list_folder(tern_names *paths, const char *folder, const char *split,
                               tern_error *err) {
    tern_mapping m;
    TERN_TRY(tern_out_check(folder, "manifest.json", err));
    char *path = tern_path_join(folder, "manifest.json");
    if (!path) return tern_fail_memory(err, strlen(folder) + 16);
    tern_status status = tern_mapping_open(&m, path, true, err);
    tern_free(path);
    TERN_TRY(status);
    if (m.bytes) {
        status = read_manifest(paths, folder, split, &m, err);
        tern_mapping_close(&m);
        return status;
    }
    tern_names others = {0};
    TERN_TRY(tern_folder_list(&others, folder, "", ".tern", err));
    if (others.n)
        status = tern_fail(
            err, TERN_ERR_FORMAT,
            "%s: there is no manifest.json, so its build did not end; build it again", folder);
    tern_names_free(&others);
    return status;
}

tern_status tern_shard_folder(tern_names *paths, const char *folder, const char *split,
                              tern_error *err) {
    tern_names found = {0};
    tern_status status = list_folder(&found, folder, split, err);
    for (size_t i = 0; status == TERN_OK && i < found.n; i++)
        status = tern_names_add(paths, found.list[i], err);
    tern_names_free(&found);
    return status;
}

tern_status tern_token_set_open_folder(tern_token_set **out, const char *folder, const char *split,
                                       const tern_token_set_desc *desc, tern_error *err) {
    tern_names paths = {0};
    char *manifest = tern_path_join(folder, "manifest.json");
    *out = NULL;
    if (!manifest) return tern_fail_memory(err, strlen(folder) + 16);
    tern_stamp before = tern_file_stamp(manifest); // writers remove it first and write it last
    tern_status status = tern_shard_folder(&paths, folder, split, err);
    if (status == TERN_OK && paths.n > 0)
        status = tern_token_set_open(out, (const char *const *)paths.list, paths.n, desc, err);
    tern_stamp after = tern_file_stamp(manifest);
    if (status == TERN_OK && !tern_stamp_same(&before, &after)) {
        tern_token_set_close(*out);
        *out = NULL;
        status =
            tern_fail(err, TERN_ERR_IO, "%s: was replaced while it was opened; try again", folder);
    }
    tern_names_free(&paths);
    tern_free(manifest);
    return status;
}
