// Writing GGUF version 3. The layout is in gguf.c.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/tensor_writer.h"

#define ALIGNMENT       32
#define TENSOR_NAME_MAX 63 // longer ones are refused by other readers

struct tern_gguf_writer {
    tern_writer base;  // first, so that begin_part finds the rest
    tern_strbuf metas; // entries as in the file
    const char **keys;
    size_t n_keys, keys_capacity;
};

static void put_u32(tern_strbuf *b, uint32_t value) { tern_strbuf_append(b, &value, 4); }
static void put_u64(tern_strbuf *b, uint64_t value) { tern_strbuf_append(b, &value, 8); }
static void put_text(tern_strbuf *b, tern_str text) {
    put_u64(b, text.len);
    tern_strbuf_append(b, text.ptr, text.len);
}
static void put_key(tern_strbuf *b, const char *key, tern_meta_type type) {
    put_text(b, (tern_str){key, strlen(key)});
    put_u32(b, (uint32_t)type);
}

// ---- Metadata ----------------------------------------------------------------------------------

static tern_status refuse(tern_gguf_writer *w, const char *key, const char *why) {
    return tern_fail(&w->base.failed, TERN_ERR_ARGUMENT, "metadata '%s' %s", key, why);
}

// Before an entry: its key and type.
static tern_status begin_meta(tern_gguf_writer *w, const char *key, tern_meta_type type) {
    tern_writer *base = &w->base;
    if (base->failed.status != TERN_OK) return base->failed.status;
    if (base->planned) return refuse(w, key, "comes after data");
    for (size_t i = 0; i < w->n_keys; i++)
        if (!strcmp(w->keys[i], key)) return refuse(w, key, "is there twice");
    if (tern_array_reserve(TERN_MEM_FILE, &w->keys, &w->keys_capacity, w->n_keys, 1) != 0)
        return tern_fail_memory(&base->failed, (w->n_keys + 1) * sizeof *w->keys);
    w->keys[w->n_keys] = tern_arena_text(&base->pool, (tern_str){key, strlen(key)});
    if (!w->keys[w->n_keys]) return tern_fail_memory(&base->failed, strlen(key) + 1);
    w->n_keys++;
    put_key(&w->metas, key, type);
    return TERN_OK;
}

static tern_status end_meta(tern_gguf_writer *w) {
    return w->metas.failed ? tern_fail_memory(&w->base.failed, w->metas.len) : TERN_OK;
}

tern_status tern_gguf_put_str(tern_gguf_writer *w, const char *key, tern_str value) {
    TERN_TRY(begin_meta(w, key, TERN_META_STRING));
    put_text(&w->metas, value);
    return end_meta(w);
}

static bool fits(tern_meta_type type, int64_t v) {
    switch (type) {
    case TERN_META_U8: return v >= 0 && v <= UINT8_MAX;
    case TERN_META_I8: return v >= INT8_MIN && v <= INT8_MAX;
    case TERN_META_U16: return v >= 0 && v <= UINT16_MAX;
    case TERN_META_I16: return v >= INT16_MIN && v <= INT16_MAX;
    case TERN_META_U32: return v >= 0 && v <= UINT32_MAX;
    case TERN_META_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case TERN_META_U64: return v >= 0;
    case TERN_META_I64: return true;
    case TERN_META_BOOL: return v == 0 || v == 1;
    default: return false;
    }
}

tern_status tern_gguf_put_int(tern_gguf_writer *w, const char *key, tern_meta_type type,
                              int64_t value) {
    if (!fits(type, value)) return refuse(w, key, "does not fit its type");
    TERN_TRY(begin_meta(w, key, type));
    tern_strbuf_append(&w->metas, &value, tern_meta_type_bytes(type)); // the low bytes
    return end_meta(w);
}

tern_status tern_gguf_put_f32(tern_gguf_writer *w, const char *key, float value) {
    TERN_TRY(begin_meta(w, key, TERN_META_F32));
    tern_strbuf_append(&w->metas, &value, sizeof value);
    return end_meta(w);
}

tern_status tern_gguf_put_strings(tern_gguf_writer *w, const char *key, const tern_str *values,
                                  size_t n) {
    TERN_TRY(begin_meta(w, key, TERN_META_ARRAY));
    put_u32(&w->metas, TERN_META_STRING);
    put_u64(&w->metas, n);
    for (size_t i = 0; i < n; i++) put_text(&w->metas, values[i]);
    return end_meta(w);
}

tern_status tern_gguf_put_array(tern_gguf_writer *w, const char *key, tern_meta_type element_type,
                                const void *values, size_t n) {
    size_t bytes = tern_meta_type_bytes(element_type), total;
    if (bytes == 0 || __builtin_mul_overflow(n, bytes, &total))
        return refuse(w, key, "cannot be an array of this type");
    TERN_TRY(begin_meta(w, key, TERN_META_ARRAY));
    put_u32(&w->metas, (uint32_t)element_type);
    put_u64(&w->metas, n);
    tern_strbuf_append(&w->metas, values, total);
    return end_meta(w);
}

tern_status tern_gguf_put_meta(tern_gguf_writer *w, const tern_meta *m) {
    // Keys that describe the source's files and not the model are set anew.
    if (!strcmp(m->key, "general.alignment") || !strncmp(m->key, "split.", 6)) return TERN_OK;
    if (m->type == TERN_META_STRING)
        return tern_gguf_put_str(w, m->key, (tern_str){m->data, (size_t)m->n});
    if (m->type == TERN_META_ARRAY && m->element_type == TERN_META_STRING)
        return tern_gguf_put_strings(w, m->key, m->strings, (size_t)m->n);
    if (m->type == TERN_META_ARRAY)
        return tern_gguf_put_array(w, m->key, m->element_type, m->data, (size_t)m->n);
    TERN_TRY(begin_meta(w, m->key, m->type));
    tern_strbuf_append(&w->metas, m->data, tern_meta_type_bytes(m->type));
    return end_meta(w);
}

tern_status tern_gguf_written_meta(const tern_gguf_writer *w, tern_file **out, tern_error *err) {
    TERN_TRY(tern_file_new(out, "GGUF", err));
    const uint64_t counts[] = {0, w->n_keys};
    const uint32_t version = 3;
    size_t n = 8 + sizeof counts + w->metas.len;
    char *bytes = tern_arena_take(&(*out)->priv->pool, n); // lives as long as the file
    tern_gguf_split split;
    tern_status status = TERN_OK;
    if (!bytes) status = tern_fail_memory(err, n);
    if (bytes) {
        memcpy(bytes, "GGUF", 4);
        memcpy(bytes + 4, &version, 4);
        memcpy(bytes + 8, counts, sizeof counts);
        memcpy(bytes + 8 + sizeof counts, tern_strbuf_text(&w->metas), w->metas.len);
        const tern_blob all = tern_blob_of(bytes, n);
        status = tern_gguf_parse(*out, 0, &all, &split, err);
    }
    if (status == TERN_OK) return TERN_OK;
    tern_file_close(*out);
    *out = NULL;
    return status;
}

// ---- Parts -------------------------------------------------------------------------------------

static void put_tensors(tern_strbuf *b, const tern_writer *w, size_t part) {
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const tern_planned *t = &w->tensors[i];
        if (t->part != part) continue;
        put_text(b, (tern_str){t->name, strlen(t->name)});
        put_u32(b, (uint32_t)t->n_dims);
        tern_strbuf_append(b, t->ne, (size_t)t->n_dims * 8);
        put_u32(b, (uint32_t)tern_dtype_ggml_id(t->type));
        put_u64(b, offset);
        offset += (t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
}

// A set is described by three keys in each of its files; the model's metadata is in the first only.
static void put_head(tern_strbuf *b, const tern_gguf_writer *w, size_t part) {
    const tern_writer *base = &w->base;
    bool is_set = base->n_parts > 1;
    uint64_t n_tensors = 0;
    for (size_t i = 0; i < base->n_tensors; i++) n_tensors += base->tensors[i].part == part;
    tern_strbuf_puts(b, "GGUF");
    put_u32(b, 3);
    put_u64(b, n_tensors);
    put_u64(b, (part == 0 ? w->n_keys : 0) + (is_set ? 3 : 0));
    if (part == 0) tern_strbuf_append(b, w->metas.ptr, w->metas.len);
    if (is_set) {
        put_key(b, "split.no", TERN_META_U16);
        tern_strbuf_append(b, &(uint16_t){(uint16_t)part}, 2);
        put_key(b, "split.count", TERN_META_U16);
        tern_strbuf_append(b, &(uint16_t){(uint16_t)base->n_parts}, 2);
        put_key(b, "split.tensors.count", TERN_META_I32);
        put_u32(b, (uint32_t)base->n_tensors);
    }
    put_tensors(b, base, part);
    while (!b->failed && b->len % ALIGNMENT) tern_strbuf_putc(b, 0);
}

// "x.gguf" -> "x-00001-of-00003.gguf"
static void put_part_name(tern_strbuf *b, const tern_writer *w, size_t part) {
    const char *name = tern_path_name(w->path);
    size_t n = strlen(name);
    if (n > 5 && !strcmp(name + n - 5, ".gguf")) n -= 5;
    tern_strbuf_append(b, name, n);
    tern_strbuf_printf(b, "-%05zu-of-%05zu.gguf", part + 1, w->n_parts);
}

static tern_status open_out(tern_writer *w, tern_error *err) {
    if (w->n_parts == 1) return tern_out_open_file(&w->out, w->path, err);
    char *folder = tern_path_folder(w->path);
    tern_status status = folder ? tern_out_open(&w->out, folder, false, err)
                                : tern_fail_memory(err, strlen(w->path) + 1);
    tern_free(folder);
    return status;
}

static tern_status begin_part(tern_writer *base, size_t part, tern_error *err) {
    tern_strbuf name = {0}, head = {0};
    if (base->n_parts > 1) put_part_name(&name, base, part);
    put_head(&head, (const tern_gguf_writer *)base, part);
    tern_status status = TERN_OK;
    if (name.failed || head.failed) status = tern_fail_memory(err, name.len + head.len);
    if (status == TERN_OK && part == 0) status = open_out(base, err);
    if (status == TERN_OK) status = tern_out_begin(&base->out, name.ptr, &base->file, err);
    if (status == TERN_OK) status = tern_out_write(&base->file, head.ptr, head.len, err);
    tern_strbuf_free(&name);
    tern_strbuf_free(&head);
    return status;
}

// ---- Life --------------------------------------------------------------------------------------

tern_status tern_gguf_writer_open(tern_gguf_writer **out, const char *path, uint64_t split_bytes,
                                  tern_error *err) {
    *out = NULL;
    tern_gguf_writer *w = tern_alloc(TERN_MEM_FILE, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    tern_status status = tern_writer_init(&w->base, path, split_bytes, ALIGNMENT, err);
    w->base.begin_part = begin_part;
    if (status == TERN_OK)
        *out = w;
    else
        tern_gguf_writer_free(w);
    return status;
}

tern_status tern_gguf_declare(tern_gguf_writer *w, const char *name, tern_dtype type, int n_dims,
                              const uint64_t *ne) {
    if (w->base.failed.status != TERN_OK) return w->base.failed.status;
    if (strlen(name) > TENSOR_NAME_MAX)
        return tern_fail(&w->base.failed, TERN_ERR_ARGUMENT,
                         "tensor '%s': GGUF has room for %d bytes of name", name, TENSOR_NAME_MAX);
    if (tern_dtype_ggml_id(type) < 0)
        return tern_fail(&w->base.failed, TERN_ERR_ARGUMENT,
                         "tensor '%s': %s does not exist in GGUF", name, tern_dtype_name(type));
    if (n_dims > 4)
        return tern_fail(&w->base.failed, TERN_ERR_ARGUMENT,
                         "tensor '%s': GGUF has no %d dimensions", name, n_dims);
    return tern_writer_declare(&w->base, name, type, n_dims, ne, n_dims > 0 ? ne[0] : 1);
}

tern_status tern_gguf_write(tern_gguf_writer *w, const void *bytes, uint64_t n, tern_error *err) {
    return tern_writer_write(&w->base, bytes, n, err);
}

tern_status tern_gguf_write_i2_s_scale(tern_gguf_writer *w, float scale, tern_error *err) {
    uint8_t tail[32] = {0};
    memcpy(tail, &scale, sizeof scale);
    return tern_writer_write(&w->base, tail, sizeof tail, err);
}

tern_status tern_gguf_writer_finish(tern_gguf_writer *w, tern_error *err) {
    tern_writer *base = &w->base;
    tern_strbuf first = {0};
    TERN_TRY(tern_writer_end(base, err));
    if (base->n_parts > 1) put_part_name(&first, base, 0); // the one that readers open
    tern_status status = first.failed ? tern_fail_memory(err, strlen(base->path))
                                      : tern_writer_commit(base, first.ptr, err);
    tern_strbuf_free(&first);
    return status;
}

tern_status tern_gguf_writer_put_in(tern_gguf_writer *w, tern_out_set *set, const char *name,
                                    tern_error *err) {
    tern_strbuf head = {0};
    if (w->base.n_tensors > 0)
        tern_fail(&w->base.failed, TERN_ERR_ARGUMENT, "a file of a set can have no tensors");
    if (w->base.failed.status != TERN_OK) {
        if (err) *err = w->base.failed;
        return tern_fail_prefix(err, w->base.failed.status, name);
    }
    put_head(&head, w, 0);
    tern_status status = head.failed ? tern_fail_memory(err, head.len)
                                     : tern_out_put(set, name, head.ptr, head.len, err);
    tern_strbuf_free(&head);
    return status;
}

void tern_gguf_writer_free(tern_gguf_writer *w) {
    if (!w) return;
    tern_writer_deinit(&w->base);
    tern_strbuf_free(&w->metas);
    tern_free(w->keys);
    tern_free(w);
}
