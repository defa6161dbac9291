// The vision tower of a folder's model, as a separate GGUF beside the language model's: llama.cpp
// calls it an mmproj. Its matrices get the requested type if that is a float type or Q8_0, and stay
// as they are otherwise: they are few, and every image's tokens depend on all of them.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "tasks/convert/convert_private.h"

#define PATCH "v.patch_embd.weight"

// A patch's frames are two tensors here; the folder's one interleaves their kernels.
static tern_status add_frames(conversion *t, const tern_tensor *from, tern_error *err) {
    const tern_vision *v = &t->config.vision;
    uint64_t edge = (uint64_t)v->n_patch, n = (uint64_t)(3 * v->n_embd);
    uint64_t each = from->bytes / (TERN_VISION_FRAMES * n);
    if (!tern_dtype_is_float(from->type) || each * TERN_VISION_FRAMES * n != from->bytes)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s is not made of floats", from->name);
    for (uint64_t f = 0; f < TERN_VISION_FRAMES; f++) {
        tern_blob *list = t->blobs + t->n_blobs;
        for (uint64_t i = 0; i < n; i++)
            list[i] = tern_blob_part(&from->data, (TERN_VISION_FRAMES * i + f) * each, each);
        t->n_blobs += n;
        tern_tensor *half = &t->views[t->n_views++];
        *half = *from;
        half->n_dims = 4;
        half->ne[0] = half->ne[1] = edge;
        half->ne[2] = 3;
        half->ne[3] = n / 3;
        half->bytes = n * each;
        half->data = tern_blob_join(list, n, each);
        item *it = &t->items[t->n_items++];
        *it = (item){.from = half, .to_gguf = true, .type = TERN_DTYPE_F32};
        snprintf(it->name, sizeof it->name, "%s%s", PATCH, f ? ".1" : "");
        t->bytes_all += half->bytes;
    }
    return TERN_OK;
}

// Folders number the mergers of intermediate layers from 0; here they have the layer's number.
static void name_merger(const tern_vision *v, item *it) {
    static const char begin[] = "v.deepstack.";
    char rest[sizeof it->name];
    const char *at = it->name + sizeof begin - 1;
    if (strncmp(it->name, begin, sizeof begin - 1) != 0 || *at < '0' || *at - '0' >= v->n_deep)
        return;
    snprintf(rest, sizeof rest, "%s", at + 1);
    snprintf(it->name, sizeof it->name, "%s%d%.100s", begin, (int)v->deep[*at - '0'], rest);
}

static tern_status add_tensor(conversion *t, const tern_tensor *from, tern_error *err) {
    item it = {.from = from};
    bool known = tern_arch_name_to_gguf(t->arch, from->name, it.name, sizeof it.name);
    if (!known || (strncmp(it.name, "v.", 2) != 0 && strncmp(it.name, "mm.", 3) != 0))
        return TERN_OK;
    bool is_patch = strcmp(it.name, PATCH) == 0;
    if (is_patch && t->config.vision.tower->n_frames > 1) return add_frames(t, from, err);
    TERN_TRY(tern_convert_choose_type(t, &it, err));
    if (is_patch) it.type = TERN_DTYPE_F32; // a kernel of squares there
    name_merger(&t->config.vision, &it);
    t->items[t->n_items++] = it;
    t->bytes_all += from->bytes;
    return TERN_OK;
}

static tern_status list_items(conversion *t, tern_error *err) {
    size_t n = t->file->n_tensors + 1;
    size_t n_squares = (size_t)(TERN_VISION_FRAMES * 3 * t->config.vision.n_embd);
    t->items = tern_alloc_array(TERN_MEM_FILE, n, sizeof *t->items);
    t->views = tern_alloc_array(TERN_MEM_FILE, TERN_VISION_FRAMES, sizeof *t->views);
    t->blobs = tern_alloc_array(TERN_MEM_FILE, n_squares, sizeof *t->blobs);
    if (!t->items || !t->views || !t->blobs) return tern_fail_memory(err, n * sizeof *t->items);
    for (size_t i = 0; i < t->file->n_tensors; i++)
        TERN_TRY(add_tensor(t, &t->file->tensors[i], err));
    return TERN_OK;
}

static tern_status put_meta(conversion *t, const char *path, tern_error *err) {
    tern_gguf_writer *w = t->gguf;
    const char *name = tern_path_name(path);
    TERN_TRY(tern_gguf_put_str(w, "general.architecture", TERN_STR("clip")));
    TERN_TRY(tern_gguf_put_str(w, "general.type", TERN_STR("mmproj")));
    TERN_TRY(tern_gguf_put_str(w, "general.name", (tern_str){name, strlen(name) - 5}));
    TERN_TRY(tern_gguf_put_int(w, "general.file_type", TERN_META_U32, tern_convert_file_type(t)));
    TERN_TRY(tern_gguf_put_int(w, "general.quantization_version", TERN_META_U32, 2));
    TERN_TRY(tern_config_write_vision(w, &t->config));
    return tern_vision_rules_write_gguf(w, t->file, &t->config.vision, err);
}

static tern_status write(conversion *t, const char *path, tern_error *err) {
    TERN_TRY(tern_gguf_writer_open(&t->gguf, path, 0, err));
    tern_status status = put_meta(t, path, err);
    if (status != TERN_OK && (!err || err->status == TERN_OK)) return tern_fail_memory(err, 0);
    TERN_TRY(status);
    TERN_TRY(tern_convert_declare_items(t, err));
    return tern_convert_write_items(t, err);
}

static char *path_beside(const char *out) {
    char *folder = tern_path_folder(out);
    tern_strbuf name = {0};
    tern_strbuf_printf(&name, "mmproj-%s", tern_path_name(out));
    char *path = folder && !name.failed ? tern_path_join(folder, name.ptr) : NULL;
    tern_strbuf_free(&name);
    tern_free(folder);
    return path;
}

tern_status tern_convert_begin_tower(const conversion *c, const tern_vision *v, const char *out,
                                     conversion *t, tern_error *err) {
    *t = (conversion){.desc = c->desc,
                      .file = c->file,
                      .arch = c->arch,
                      .config = c->config,
                      .to_gguf = true,
                      .team = c->team,
                      .matrix_type = c->matrix_type,
                      .mixing = c->mixing};
    t->config.vision = *v;
    t->has_matrix_type = c->has_matrix_type &&
                         (tern_dtype_is_float(c->matrix_type) || c->desc->type == TERN_TYPE_Q8_0);
    char *path = path_beside(out);
    if (!path) return tern_fail_memory(err, strlen(out) + 8);
    tern_status status = list_items(t, err);
    if (status == TERN_OK) status = write(t, path, err);
    if (status == TERN_OK)
        tern_convert_note(c, "the part that sees images is %s, which is read with its model", path);
    tern_free(path);
    return status;
}

void tern_convert_close_tower(conversion *t) {
    tern_gguf_writer_free(t->gguf);
    tern_free(t->items);
    tern_free(t->views);
    tern_free(t->blobs);
}

// ---- A folder's files ---------------------------------------------------------------------------

// Both parts of a folder in one config.json, and the preprocessing of images for the vision tower.
tern_status tern_convert_write_vision(conversion *c, tern_strbuf *config, tern_error *err) {
    const tern_vision *v = &c->config.vision;
    tern_strbuf both = {0}, rules = {0};
    tern_config_write_vision_json(c->arch, &c->config, config->ptr, &both);
    tern_strbuf_free(config);
    *config = both;
    if (both.failed) return tern_fail_memory(err, both.len);
    tern_status status = tern_vision_rules_write_json(c->file, c->arch, v, &rules, err);
    if (status == TERN_OK)
        status = tern_st_put_file(c->st, "preprocessor_config.json", rules.ptr, rules.len, err);
    tern_strbuf_free(&rules);
    return status;
}

// A folder's image preprocessing, and the labels in its config.
tern_status tern_convert_write_images(conversion *c, tern_strbuf *config, tern_error *err) {
    tern_strbuf rules = {0};
    if (c->config.n_labels) TERN_TRY(tern_images_put_labels(c->file, &c->config, config, err));
    tern_status status = tern_images_write_json(c->file, &c->config, &rules, err);
    if (status == TERN_OK)
        status = tern_st_put_file(c->st, "preprocessor_config.json", rules.ptr, rules.len, err);
    tern_strbuf_free(&rules);
    return status;
}
