// Conversion between containers and element types, one tensor at a time, a few rows in memory.
//
//   open -> list of output tensors (name, type, how its rows are made) -> header -> rows
//
// Ternary weights are carried as codes and one scale, so they survive any round trip to the bit.
#include "runtime/runtime.h"
#include "tasks/convert/convert_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "input/input.h"

void tern_convert_note(const conversion *c, const char *format, ...) {
    if (!c->desc->on_note) return;
    tern_strbuf text = {0};
    va_list args;
    va_start(args, format);
    tern_strbuf_vprintf(&text, format, args);
    va_end(args);
    if (!text.failed) c->desc->on_note(c->desc->user, text.ptr);
    tern_strbuf_free(&text);
}

// In folders, the patch kernel of a tower that sees two frames has a dimension for the frames.
static bool has_frames(const conversion *c, const item *it) {
    const char *weight = "patch_embed.proj.weight";
    size_t n = strlen(it->name), m = strlen(weight);
    return !c->to_gguf && c->config.vision.n_layers && c->config.vision.tower->n_frames > 1 &&
           n > m && strcmp(it->name + n - m, weight) == 0;
}

// For tables of positions and patch kernels. Folders give them more dimensions, or fewer where
// their numbers go pixel by pixel and not colour by colour.
static int image_shape(const item *it, uint64_t ne[4]) {
    bool to_rows = it->to_gguf != (it->moves.columns.a != 0);
    if (it->change == TERN_CHANGE_LEADING) return it->to_gguf ? ne[1] > 1 ? 2 : 1 : 3;
    if (it->from->n_dims == 1) return 1; // their bias
    if (it->taps && it->to_gguf) {
        ne[0] *= ne[1];
        ne[1] = ne[2];
        ne[2] = 1;
        return 2;
    }
    if (it->taps) {
        ne[2] = ne[1];
        ne[1] = ne[0] / (uint64_t)it->taps;
        ne[0] = (uint64_t)it->taps;
        return 3;
    }
    if (to_rows && it->from->n_dims == 2) return 2;
    if (to_rows) {
        ne[0] *= ne[1] * ne[2];
        ne[1] = ne[3];
        ne[2] = ne[3] = 1;
        return 2;
    }
    uint64_t edge = 1;
    while (3 * (edge + 1) * (edge + 1) <= ne[0]) edge++;
    ne[3] = ne[1];
    ne[2] = 3;
    ne[0] = ne[1] = edge;
    return 4;
}

// The output's dimensions; returns how many.
static int output_shape(const item *it, uint64_t ne[4]) {
    const tern_tensor *t = it->from;
    memcpy(ne, t->ne, sizeof t->ne);
    if (it->is_column) {
        uint64_t length = t->ne[0] * t->ne[1];
        ne[0] = it->to_gguf ? 1 : length;
        ne[1] = it->to_gguf ? length : 1;
        return it->to_gguf ? 2 : 1;
    }
    if (it->change == TERN_CHANGE_TURNED) return t->n_dims;
    if (it->change == TERN_CHANGE_LEADING || it->change >= TERN_CHANGE_FLATTEN)
        return image_shape(it, ne);
    if (it->change == TERN_CHANGE_SCALAR) return it->to_gguf ? 1 : 0;
    if (it->change != TERN_CHANGE_SQUEEZE) return t->n_dims;
    uint64_t n = t->ne[1] * t->ne[2];
    ne[1] = it->to_gguf ? n : 1;
    ne[2] = it->to_gguf ? 1 : n;
    return it->to_gguf ? 2 : 3;
}

// ---- Deciding ----------------------------------------------------------------------------------

// The output's name. *skip: the tensor is not in the output.
static tern_status map_name(const conversion *c, const tern_tensor *t, item *it, bool *skip,
                            tern_error *err) {
    const char *name = t->name;
    size_t n = strlen(name);
    bool from_gguf = c->file->kind == TERN_FILE_GGUF, known;
    *skip = tern_arch_ignores(c->file, c->arch, &c->config, name) != NULL ||
            (!c->to_gguf && tern_convert_is_rope_factors(name));
    if (*skip) return TERN_OK;
    if (from_gguf && c->to_gguf && tern_arch_name_usual(c->arch, name, it->name, sizeof it->name))
        return TERN_OK;
    if (from_gguf == c->to_gguf) {
        known = n < sizeof it->name;
        if (known) memcpy(it->name, name, n + 1);
    } else if (c->to_gguf) {
        known = tern_arch_name_to_gguf(c->arch, name, it->name, sizeof it->name);
    } else {
        known = tern_arch_name_to_hf(c->arch, name, it->name, sizeof it->name);
    }
    if (known) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s is not one of a %s", name,
                     c->arch->name);
}

const char *tern_convert_gguf_name(const conversion *c, const tern_tensor *t, char *buffer,
                                   size_t n) {
    if (c->file->kind == TERN_FILE_GGUF) return t->name;
    return tern_arch_name_to_gguf(c->arch, t->name, buffer, n) ? buffer : t->name;
}

// ---- Tensors that are one in one world and several in the other ---------------------------------

static bool is_row_of(const tern_tensor_row *row, const char *hf) {
    return row->gguf && row->hf && strcmp(row->hf, hf) == 0;
}

static tern_status add_item(conversion *c, const tern_tensor *from, const char *name,
                            tern_error *err) {
    item *it = &c->items[c->n_items];
    *it = (item){.from = from};
    snprintf(it->name, sizeof it->name, "%s", name);
    TERN_TRY(tern_convert_choose_type(c, it, err));
    it->signs = tern_new_rotation_signs(&c->rotation, it->name);
    if (it->signs && it->kind.is_ternary)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s is ternary, and its weights could not be after a rotation",
                         from->name);
    tern_blob_drop(&from->data);
    c->bytes_all += from->bytes;
    c->n_items++;
    return TERN_OK;
}

static const tern_tensor *keep_view(conversion *c, tern_tensor view) {
    c->views[c->n_views] = view;
    return &c->views[c->n_views++];
}

// A folder's tensor becomes several of a GGUF. Their table rows are adjacent.
static tern_status add_shares(conversion *c, const tern_tensor *t, const tern_tensor_row *row,
                              tern_error *err) {
    char layer_name[128], name[128];
    tern_arch_name_to_gguf(c->arch, t->name, layer_name, sizeof layer_name);
    int layer = tern_tensor_block(layer_name, NULL);
    if (layer < 0) layer = 0;
    for (const tern_tensor_row *r = row; is_row_of(r, row->hf); r++) {
        tern_tensor view = tern_tensor_share(t, r->share, r->shares);
        const char *hole = strstr(r->gguf, "%d");
        int front = (int)(hole - r->gguf);
        snprintf(name, sizeof name, "%.*s%d%s", front, r->gguf, layer, hole + 2);
        TERN_TRY(add_item(c, keep_view(c, view), name, err));
    }
    return TERN_OK;
}

// And the reverse, at the first of them.
static tern_status add_joined(conversion *c, const tern_tensor *t, const tern_tensor_row *row,
                              const char *name, tern_error *err) {
    char other[128];
    int layer = tern_tensor_block(t->name, NULL);
    tern_tensor all = *t;
    tern_blob *list = &c->blobs[c->n_blobs];
    if (row->share > 0) return TERN_OK;
    if (layer < 0) layer = 0;
    for (const tern_tensor_row *r = row; is_row_of(r, row->hf); r++) {
        const char *hole = strstr(r->gguf, "%d");
        snprintf(other, sizeof other, "%.*s%d%s", (int)(hole - r->gguf), r->gguf, layer, hole + 2);
        const tern_tensor *part = tern_file_tensor(c->file, other);
        if (!part || part->type != t->type || part->bytes != t->bytes ||
            part->type == TERN_DTYPE_I2_S)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s: %s has another type or size, and a folder has both as one",
                             t->name, other);
        c->blobs[c->n_blobs++] = part->data;
    }
    all.ne[1] *= (uint64_t)row->shares;
    all.bytes *= (uint64_t)row->shares;
    all.data = tern_blob_join(list, (uint64_t)row->shares, t->bytes);
    return add_item(c, keep_view(c, all), name, err);
}

// A folder stores each expert separately.
static tern_status add_experts(conversion *c, const tern_tensor *t, const char *name,
                               tern_error *err) {
    static const char word[] = ".experts.";
    const char *at = strstr(name, word) + sizeof word - 1;
    char one[128];
    if (t->type == TERN_DTYPE_I2_S)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s: experts of type I2_S share a scale",
                         t->name);
    for (uint64_t i = 0, n = t->ne[2]; i < n; i++) {
        snprintf(one, sizeof one, "%.*s%d.%s", (int)(at - name), name, (int)i, at);
        TERN_TRY(add_item(c, keep_view(c, tern_tensor_share(t, (int)i, (int)n)), one, err));
    }
    return TERN_OK;
}

// A patch kernel as rows, whose numbers can be permuted.
static const tern_tensor *view_rows(conversion *c, const tern_tensor *t) {
    tern_tensor rows = *t;
    rows.n_dims = 2;
    rows.ne[0] *= rows.ne[1] * rows.ne[2];
    rows.ne[1] = rows.ne[3];
    rows.ne[2] = rows.ne[3] = 1;
    return keep_view(c, rows);
}

static tern_status add_tensor(conversion *c, const tern_tensor *t, tern_error *err) {
    bool from_gguf = c->file->kind == TERN_FILE_GGUF, skip;
    char buffer[128];
    item it = {.from = t};
    TERN_TRY(map_name(c, t, &it, &skip, err));
    if (skip) return TERN_OK;
    const tern_tensor_row *row =
        tern_arch_row(c->arch, tern_convert_gguf_name(c, t, buffer, sizeof buffer));
    if (row && row->shares && from_gguf != c->to_gguf)
        return c->to_gguf ? add_shares(c, t, row, err) : add_joined(c, t, row, it.name, err);
    if (!c->to_gguf && from_gguf && t->n_dims == 4 && row && row->columns == TERN_ORDER_COLORS)
        t = view_rows(c, t);
    if (!c->to_gguf && t->n_dims == 3 && strstr(it.name, ".experts."))
        return add_experts(c, t, it.name, err);
    return add_item(c, t, it.name, err);
}

static tern_status tell(const conversion *c, const char *phase, double part, tern_error *err) {
    const tern_convert_desc *d = c->desc;
    if (tern_progress(d->on_progress, d->user, phase, part)) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "conversion was cancelled");
}

#define SHARES_MAX 8
static tern_status list_items(conversion *c, tern_error *err) {
    size_t n = 2;
    for (size_t i = 0; i < c->file->n_tensors; i++) {
        uint64_t parts = c->file->tensors[i].n_dims == 3 ? c->file->tensors[i].ne[2] : 0;
        n += parts > SHARES_MAX && parts <= c->file->tensors[i].bytes ? (size_t)parts : SHARES_MAX;
    }
    c->items = tern_alloc_array(TERN_MEM_FILE, n, sizeof *c->items);
    c->views = tern_alloc_array(TERN_MEM_FILE, n, sizeof *c->views);
    c->blobs = tern_alloc_array(TERN_MEM_FILE, n, sizeof *c->blobs);
    if (!c->items || !c->views || !c->blobs) return tern_fail_memory(err, n * sizeof *c->items);
    for (size_t i = 0; i < c->file->n_tensors; i++) {
        TERN_TRY(add_tensor(c, &c->file->tensors[i], err)); // may read all of it
        TERN_TRY(tell(c, "read", (double)(i + 1) / (double)c->file->n_tensors, err));
    }
    return TERN_OK;
}

// ---- Tensors -----------------------------------------------------------------------------------

tern_status tern_convert_tell(const conversion *c, uint64_t bytes, tern_error *err) {
    return tell(c, "convert", (double)(c->bytes_done + bytes) / (double)c->bytes_all, err);
}

tern_status tern_convert_write_items(conversion *c, tern_error *err) {
    for (size_t i = 0; i < c->n_items; i++) {
        const tern_tensor *t = c->items[i].from;
        if (!t) {
            const item *it = &c->items[i];
            TERN_TRY(tern_convert_write(c, it->values, it->n_values * sizeof(float), err));
            continue;
        }
        c->bytes_told = 0;
        TERN_TRY(tern_convert_write_item(c, &c->items[i], err));
        tern_blob_drop(&t->data);
        c->bytes_done += t->bytes;
        TERN_TRY(tern_convert_tell(c, 0, err));
    }
    return TERN_OK;
}

// ---- GGUF header -------------------------------------------------------------------------------

// Metadata of a Hugging Face folder as GGUF keys.
static tern_status put_hf_meta(conversion *c, const char *out_path, tern_error *err) {
    tern_gguf_writer *w = c->gguf;
    const char *arch_name = c->arch_name;
    const char *base = tern_path_name(out_path);
    size_t base_length = strlen(base) > 5 ? strlen(base) - 5 : 0; // without ".gguf"
    TERN_TRY(
        tern_gguf_put_str(w, "general.architecture", (tern_str){arch_name, strlen(arch_name)}));
    TERN_TRY(tern_gguf_put_str(w, "general.name", (tern_str){base, base_length}));
    TERN_TRY(tern_config_write_gguf(w, c->arch, arch_name, &c->config));
    TERN_TRY(tern_gguf_put_int(w, "general.file_type", TERN_META_U32, tern_convert_file_type(c)));
    TERN_TRY(tern_gguf_put_int(w, "general.quantization_version", TERN_META_U32, 2));
    TERN_TRY(tern_sampling_write_gguf(w, c->file));
    TERN_TRY(tern_prompts_write_gguf(w, c->file, err));
    TERN_TRY(tern_images_write_gguf(w, c->file, &c->config, err));
    return tern_convert_put_vocabulary(c, err);
}

// Blocks that are not run are not written: the key that counts them is dropped, and the number of
// blocks is replaced.
static bool tells_ignored_blocks(const conversion *c, const char *key, tern_str arch) {
    static const char *const names[] = {"nextn_predict_layers", "block_count"};
    if (!c->config.n_ignored_blocks || strncmp(key, arch.ptr, arch.len) != 0) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (key[arch.len] == '.' && strcmp(key + arch.len + 1, names[i]) == 0) return true;
    return false;
}

// Metadata of a GGUF file, copied except for what the conversion changes.
static tern_status copy_meta(conversion *c) {
    const char *arch_name = c->arch_name;
    tern_str old = {NULL, 0};
    tern_file_meta_str(c->file, "general.architecture", &old);
    bool renamed = !tern_str_is(old, arch_name);
    char key[256];
    for (size_t i = 0; i < c->file->n_metas; i++) {
        tern_meta m = c->file->metas[i];
        if (strncmp(m.key, "split.", 6) == 0 || strcmp(m.key, "general.file_type") == 0) continue;
        if (strncmp(m.key, "tern.train.", 11) == 0 || tells_ignored_blocks(c, m.key, old)) continue;
        if (strncmp(m.key, "quantize.imatrix.", 17) == 0) continue; // of the input's quantization
        if (renamed && strcmp(m.key, "general.architecture") == 0) {
            TERN_TRY(tern_gguf_put_str(c->gguf, m.key, (tern_str){arch_name, strlen(arch_name)}));
            continue;
        }
        if (renamed && strncmp(m.key, old.ptr, old.len) == 0 && m.key[old.len] == '.') {
            snprintf(key, sizeof key, "%s%s", arch_name, m.key + old.len);
            m.key = key;
        }
        TERN_TRY(tern_gguf_put_meta(c->gguf, &m));
    }
    if (c->config.n_ignored_blocks) {
        snprintf(key, sizeof key, "%s.block_count", arch_name);
        TERN_TRY(tern_gguf_put_int(c->gguf, key, TERN_META_U32, c->config.n_layers));
    }
    // The old name may have said which activation; the new one need not.
    snprintf(key, sizeof key, "%.*s.hidden_activation", (int)old.len, old.ptr);
    if (renamed && !tern_file_meta(c->file, key)) {
        const char *act = tern_act_name(c->config.act);
        snprintf(key, sizeof key, "%s.hidden_activation", arch_name);
        TERN_TRY(tern_gguf_put_str(c->gguf, key, (tern_str){act, strlen(act)}));
    }
    TERN_TRY(
        tern_gguf_put_int(c->gguf, "general.file_type", TERN_META_U32, tern_convert_file_type(c)));
    if (tern_file_meta(c->file, "general.quantization_version")) return TERN_OK;
    return tern_gguf_put_int(c->gguf, "general.quantization_version", TERN_META_U32, 2);
}

// Under llama.cpp's keys.
static tern_status put_importance(conversion *c) {
    const char *path = c->desc->imatrix, *dataset = c->importances.dataset;
    TERN_TRY(tern_gguf_put_str(c->gguf, "quantize.imatrix.file", (tern_str){path, strlen(path)}));
    if (dataset)
        TERN_TRY(tern_gguf_put_str(c->gguf, "quantize.imatrix.dataset",
                                   (tern_str){dataset, strlen(dataset)}));
    TERN_TRY(tern_gguf_put_int(c->gguf, "quantize.imatrix.entries_count", TERN_META_U32,
                               (int64_t)c->importances.n));
    return tern_gguf_put_int(c->gguf, "quantize.imatrix.chunks_count", TERN_META_U32,
                             c->importances.n_chunks);
}

tern_status tern_convert_declare_items(conversion *c, tern_error *err) {
    for (size_t i = 0; i < c->n_items; i++) {
        const item *it = &c->items[i];
        uint64_t ne[4] = {it->n_values};
        int n_dims = it->from ? output_shape(it, ne) : 1;
        tern_status status = tern_gguf_declare(c->gguf, it->name, it->type, n_dims, ne);
        if (status != TERN_OK)
            return tern_fail(err, status, "tensor %s could not be declared: %s", it->name,
                             tern_status_name(status));
    }
    return TERN_OK;
}

static tern_status write_gguf(conversion *c, const char *out, tern_error *err) {
    TERN_TRY(tern_gguf_writer_open(&c->gguf, out, c->desc->split_bytes, err));
    tern_status status = c->file->kind == TERN_FILE_HF ? put_hf_meta(c, out, err) : copy_meta(c);
    if (status == TERN_OK && c->desc->imatrix) status = put_importance(c);
    if (status == TERN_OK && c->rotation_seed)
        status = tern_new_rotation_put(&c->rotation, c->gguf);
    if (status != TERN_OK && (!err || err->status == TERN_OK)) return tern_fail_memory(err, 0);
    if (status != TERN_OK) return status;
    TERN_TRY(tern_convert_declare_items(c, err));
    return tern_convert_write_items(c, err);
}

// Both files are whole before the first of them gets its name.
static tern_status to_gguf(conversion *c, const char *out, tern_error *err) {
    conversion tower = {0};
    tern_status status = TERN_OK;
    if (c->vision.n_layers) status = tern_convert_begin_tower(c, &c->vision, out, &tower, err);
    if (status == TERN_OK) status = write_gguf(c, out, err);
    if (status == TERN_OK && tower.gguf) status = tern_gguf_writer_finish(tower.gguf, err);
    if (status == TERN_OK) status = tern_gguf_writer_finish(c->gguf, err);
    tern_convert_close_tower(&tower);
    const char *differs = c->arch->differs ? c->arch->differs(&c->config) : NULL;
    if (status == TERN_OK && differs)
        tern_convert_note(c, "programs other than tern will %s", differs);
    return status;
}

// ---- Hugging Face folder -----------------------------------------------------------------------

static tern_status declare_st(conversion *c, const item *it) {
    uint64_t ne[4], shape[4];
    const tern_vision *v = &c->config.vision;
    if (has_frames(c, it)) {
        uint64_t edge = (uint64_t)v->n_patch;
        const uint64_t all[] = {(uint64_t)v->n_embd, 3, (uint64_t)v->tower->n_frames, edge, edge};
        return tern_st_declare(c->st, it->name, it->type, 5, all);
    }
    int n_dims = output_shape(it, ne);
    if (it->mlx_bits) return tern_convert_declare_mlx(c, it);
    for (int k = 0; k < n_dims; k++) shape[k] = ne[n_dims - 1 - k];
    if (it->type != TERN_DTYPE_HF_TERNARY)
        return tern_st_declare(c->st, it->name, it->type, n_dims, shape);
    shape[0] /= 4;
    char scale_name[160];
    snprintf(scale_name, sizeof scale_name, "%s_scale", it->name);
    uint64_t one = 1;
    TERN_TRY(tern_st_declare(c->st, it->name, TERN_DTYPE_U8, n_dims, shape));
    return tern_st_declare(c->st, scale_name, TERN_DTYPE_F32, 1, &one);
}

static tern_status write_tokenizer(conversion *c, tern_error *err) {
    tern_strbuf json = {0}, config = {0}, generation = {0};
    tern_status status = tern_convert_put_tokenizer(c, &json, &config, &generation, err);
    if (status == TERN_OK && json.len)
        status = tern_st_put_file(c->st, "tokenizer.json", json.ptr, json.len, err);
    if (status == TERN_OK && json.len)
        status = tern_st_put_file(c->st, "tokenizer_config.json", config.ptr, config.len, err);
    if (status == TERN_OK && generation.len)
        status =
            tern_st_put_file(c->st, "generation_config.json", generation.ptr, generation.len, err);
    tern_strbuf_free(&generation);
    tern_strbuf_free(&json);
    tern_strbuf_free(&config);
    return status;
}

static tern_status to_folder(conversion *c, const char *in, const char *out, tern_error *err) {
    const char *ternary_mode = NULL;
    const char *dtype = "float32";
    TERN_TRY(tern_st_writer_open(&c->st, out, c->desc->split_bytes, err));
    for (size_t i = 0; i < c->n_items; i++) {
        const item *it = &c->items[i];
        tern_status status = declare_st(c, it);
        if (status != TERN_OK)
            return tern_fail(err, status, "tensor %s could not be declared", it->name);
        if (it->type == TERN_DTYPE_HF_TERNARY)
            ternary_mode = "offline";
        else if (it->kind.mean > 0 && !it->kind.is_ternary)
            ternary_mode = "online";
        if (it->from->n_dims >= 2 && it->type == TERN_DTYPE_BF16) dtype = "bfloat16";
        if (it->from->n_dims >= 2 && it->type == TERN_DTYPE_F16) dtype = "float16";
        if (it->mlx_bits) dtype = it->mlx_is_bf16 ? "bfloat16" : "float16";
    }
    TERN_TRY(tern_convert_write_items(c, err));
    tern_strbuf config = {0};
    tern_config_write_json(c->arch, &c->config, dtype, ternary_mode, &c->factors, &config);
    tern_status status = config.failed ? tern_fail_memory(err, config.len) : TERN_OK;
    if (status == TERN_OK && c->config.vision.n_layers)
        status = tern_convert_write_vision(c, &config, err);
    if (status == TERN_OK && tern_type_is_mlx(c->desc->type))
        tern_convert_put_mlx_config(c, &config);
    if (config.failed && status == TERN_OK) status = tern_fail_memory(err, config.len);
    if (status == TERN_OK && c->config.n_image) status = tern_convert_write_images(c, &config, err);
    if (status == TERN_OK)
        status = tern_st_put_file(c->st, "config.json", config.ptr, config.len, err);
    tern_strbuf_free(&config);
    TERN_TRY(status);
    static const char *const others[] = {"tokenizer.json", "tokenizer_config.json",
                                         "special_tokens_map.json", "generation_config.json",
                                         "chat_template.jinja"};
    for (size_t i = 0; c->file->kind == TERN_FILE_HF && i < sizeof others / sizeof *others; i++)
        TERN_TRY(tern_st_copy_file(c->st, in, others[i], err));
    if (c->file->kind == TERN_FILE_GGUF) TERN_TRY(write_tokenizer(c, err));
    return tern_st_writer_finish(c->st, err);
}

// ---- The whole ---------------------------------------------------------------------------------

// In GGUF the table has one factor folded in and the head another: they are not the same matrix.
static tern_status refuse_tied(const conversion *c, tern_error *err) {
    tern_config config = c->config;
    bool folds = c->to_gguf && c->file->kind == TERN_FILE_HF;
    if (!folds || tern_config_fold(c->arch, &config)) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "a %s whose head is its table cannot be written as GGUF: their factors differ",
                     c->arch->name);
}

// In a GGUF the vision tower is a separate file; a folder has it with the text, whose tensors then
// have other names.
static void take_vision(conversion *c) {
    if (c->to_gguf || !c->config.vision.n_layers) {
        c->vision = c->config.vision;
        c->config.vision = (tern_vision){.n_deep = c->config.vision.n_deep};
        return;
    }
    c->seeing = *c->arch;
    c->text_types[0] = c->arch->hf_sees->text_type;
    c->seeing.hf_types = c->text_types;
    const char *prefix = tern_tower_of(c->arch)->hf_text;
    c->seeing.hf_prefix = prefix ? prefix : "model.language_model.";
    c->arch = &c->seeing;
}

static tern_status run(conversion *c, const char *in, const char *out, tern_error *err) {
    size_t n = strlen(out);
    c->to_gguf = n > 5 && strcmp(out + n - 5, ".gguf") == 0;
    TERN_TRY(tern_convert_check_types(c, err));
    if (c->desc->imatrix) TERN_TRY(tern_importances_read(&c->importances, c->desc->imatrix, err));
    TERN_TRY(tern_file_open_foreign(&c->file, in, err));
    tern_status status = TERN_OK;
    TERN_TRY_GOTO(tern_file_need_weights(c->file, err));
    TERN_TRY_GOTO(tern_arch_read(c->file, &c->arch, &c->config, err));
    TERN_TRY_GOTO(tern_arch_check(c->file, c->arch, &c->config, err));
    const tern_tower_source from = {.model = in, .mmproj = c->desc->mmproj};
    if (!c->to_gguf) TERN_TRY_GOTO(tern_tower_add(c->file, &from, &c->arch, &c->config, err));
    take_vision(c);
    if (tern_arch_is_rotated(c->file) && (!c->to_gguf || c->desc->n_loras))
        TERN_TRY_GOTO(tern_fail(err, TERN_ERR_UNSUPPORTED,
                                "the weights are in a rotated basis (prism.hadamard.*), %s",
                                c->to_gguf ? "into which no adapter can be merged"
                                           : "which a folder cannot say: it stays GGUF"));
    TERN_TRY_GOTO(tern_convert_choose_arch(c, err));
    for (size_t i = 0; i < c->desc->n_loras; i++)
        TERN_TRY_GOTO(
            tern_adapters_add(&c->adapters, &c->desc->loras[i], c->file, c->arch, &c->config, err));
    TERN_TRY_GOTO(tern_convert_check_mlx(c, err));
    TERN_TRY_GOTO(tern_convert_read_mixing(c, err));
    TERN_TRY_GOTO(tern_convert_take_rope_factors(c, err));
    TERN_TRY_GOTO(
        (c->to_gguf ? tern_config_check_gguf : tern_config_check_folder)(c->arch, &c->config, err));
    TERN_TRY_GOTO(refuse_tied(c, err));
    if (c->rotation_seed) TERN_TRY_GOTO(tern_convert_begin_rotation(c, err));
    TERN_TRY_GOTO(list_items(c, err));
    tern_convert_note_rounding(c);
    if (c->desc->imatrix && c->n_important == 0)
        TERN_TRY_GOTO(
            tern_fail(err, TERN_ERR_ARGUMENT,
                      "%s is of another model: no matrix that becomes codes of some bits is in it",
                      c->desc->imatrix));
    TERN_TRY_GOTO(tern_convert_add_rope_factors(c, err));
    TERN_TRY_GOTO(tern_team_open(&c->team, c->desc->n_threads, err));
    TERN_TRY_GOTO(c->to_gguf ? to_gguf(c, out, err) : to_folder(c, in, out, err));
    return TERN_OK;
fail:
    return tern_fail_prefix(err, status, in);
}

static tern_status convert(conversion *of, const char *in, const char *out, tern_error *err) {
    static const tern_convert_desc defaults = {0};
    const tern_convert_desc *desc = of->desc;
    TERN_NEED(in);
    TERN_NEED(out);
    if (desc) TERN_NEED_ARRAY(desc->loras, desc->n_loras);
    if (desc) TERN_NEED_ENUM(desc->type, TERN_TYPE_MLX_Q8);
    if (desc) TERN_NEED_ENUM(desc->head_type, TERN_TYPE_MLX_Q8);
    if (tern_path_same(in, out))
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: input and output are the same", in);
    conversion c = *of;
    if (!desc) c.desc = &defaults;
    tern_status status = run(&c, in, out, err);
    tern_gguf_writer_free(c.gguf);
    tern_st_writer_free(c.st);
    tern_team_close(c.team);
    tern_free(c.rope_factors);
    tern_free(c.has_values);
    tern_free(c.items);
    tern_free(c.views);
    tern_free(c.blobs);
    tern_adapters_free(&c.adapters);
    tern_importances_free(&c.importances);
    tern_new_rotation_free(&c.rotation);
    tern_graph_free(&c.graph);
    tern_file_close(c.file);
    return status;
}

tern_status tern_convert(const char *in, const char *out, const tern_convert_desc *desc,
                         tern_error *err) {
    tern_clear(err);
    return convert(&(conversion){.desc = desc}, in, out, err);
}

tern_status tern_convert_rounded(const char *in, const char *out, const tern_convert_desc *desc,
                                 const tern_rounding *rounding, tern_error *err) {
    tern_clear(err);
    return convert(&(conversion){.desc = desc, .rounding = rounding}, in, out, err);
}

tern_status tern_convert_rotated(const char *in, const char *out, const tern_convert_desc *desc,
                                 uint64_t seed, tern_error *err) {
    tern_clear(err);
    return convert(&(conversion){.desc = desc, .rotation_seed = &seed}, in, out, err);
}
