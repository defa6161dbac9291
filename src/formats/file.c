// Building, closing and querying: common to both containers.
#include "formats/file_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"

// ---- Construction ------------------------------------------------------------------------------

tern_status tern_file_new(tern_file **out, const char *path, tern_error *err) {
    *out = NULL;
    tern_file *file = tern_alloc(TERN_MEM_FILE, sizeof *file);
    if (!file) return tern_fail_memory(err, sizeof *file);
    file->priv = tern_alloc(TERN_MEM_FILE, sizeof *file->priv);
    file->path =
        file->priv ? tern_arena_text(&file->priv->pool, (tern_str){path, strlen(path)}) : NULL;
    if (!file->path) {
        tern_file_close(file);
        return tern_fail_memory(err, sizeof *file->priv);
    }
    *out = file;
    return TERN_OK;
}

void tern_file_close(tern_file *file) {
    if (!file) return;
    tern_file_close(file->tower);
    tern_json_free(&file->config);
    tern_json_free(&file->tokenizer_config);
    tern_json_free(&file->generation_config);
    tern_json_free(&file->pooling);
    tern_json_free(&file->sentence);
    tern_json_free(&file->sentence_length);
    tern_json_free(&file->preprocessor);
    tern_free(file->tensors);
    tern_free(file->metas);
    struct tern_file_private *p = file->priv;
    if (p) {
        for (size_t i = 0; i < p->n_maps; i++) tern_mapping_close(&p->maps[i]);
        for (size_t i = 0; i < p->n_files; i++) tern_blob_close(p->files[i]);
        tern_free(p->maps);
        tern_free(p->files);
        tern_name_index_free(&p->tensor_index);
        tern_name_index_free(&p->meta_index);
        tern_arena_free(&p->pool);
        tern_free(p->copy);
        tern_free(p);
    }
    tern_free(file);
}

tern_status tern_file_add_part(tern_file *file, const char *path, tern_blob *all, tern_error *err) {
    struct tern_file_private *p = file->priv;
    if (tern_array_reserve(TERN_MEM_FILE, &p->files, &p->files_capacity, p->n_files, 1) != 0)
        return tern_fail_memory(err, (p->n_files + 1) * sizeof *p->files);
    TERN_TRY(tern_blob_open(&p->files[p->n_files], path, false, all, err));
    p->n_files++;
    return TERN_OK;
}

tern_status tern_file_add_text(tern_file *file, const char *path, tern_str *out, tern_error *err) {
    struct tern_file_private *p = file->priv;
    tern_mapping m;
    *out = (tern_str){NULL, 0};
    if (tern_array_reserve(TERN_MEM_FILE, &p->maps, &p->maps_capacity, p->n_maps, 1) != 0)
        return tern_fail_memory(err, (p->n_maps + 1) * sizeof *p->maps);
    TERN_TRY(tern_mapping_open(&m, path, true, err));
    if (m.bytes) p->maps[p->n_maps++] = m;
    *out = (tern_str){(const char *)m.bytes, (size_t)m.n};
    return TERN_OK;
}

tern_tensor *tern_file_add_tensor(tern_file *file, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_FILE, &file->tensors, &file->priv->tensors_capacity,
                           file->n_tensors, 1) != 0) {
        tern_fail_memory(err, (file->n_tensors + 1) * sizeof *file->tensors);
        return NULL;
    }
    tern_tensor *t = &file->tensors[file->n_tensors++];
    *t = (tern_tensor){.ne = {1, 1, 1, 1}};
    return t;
}

tern_status tern_file_index_tensors(tern_file *file, tern_error *err) {
    file->tensor_bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++) // cannot overflow: all lie in files
        file->tensor_bytes += file->tensors[i].bytes;
    return tern_name_index_build(&file->priv->tensor_index, file->tensors, file->n_tensors,
                                 sizeof *file->tensors, "tensor", err);
}

static int by_place(const void *a, const void *b) {
    const tern_tensor *x = *(const tern_tensor *const *)a, *y = *(const tern_tensor *const *)b;
    if (x->data.at != y->data.at) return x->data.at < y->data.at ? -1 : 1;
    return x < y ? -1 : x > y;
}

static tern_status check_in_order(const tern_tensor *const *sorted, size_t n, const tern_blob *data,
                                  bool gapless, tern_error *err) {
    uint64_t end = data->at; // end of the tensor before
    for (size_t i = 0; i < n; i++) {
        uint64_t begin = sorted[i]->data.at;
        if (begin < end)
            return tern_fail(err, TERN_ERR_FORMAT, "tensor '%s' overlaps '%s'", sorted[i]->name,
                             i ? sorted[i - 1]->name : "the header");
        if (gapless && begin != end)
            return tern_fail(err, TERN_ERR_FORMAT,
                             "%llu bytes before tensor '%s' belong to no tensor",
                             (unsigned long long)(begin - end), sorted[i]->name);
        end = begin + sorted[i]->bytes;
    }
    if (gapless && end != data->at + data->n)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%llu bytes after the last tensor belong to no tensor",
                         (unsigned long long)(data->at + data->n - end));
    return TERN_OK;
}

tern_status tern_file_check_layout(tern_file *file, size_t first, const tern_blob *data,
                                   bool gapless, tern_error *err) {
    size_t n = file->n_tensors - first;
    const tern_tensor **sorted = tern_alloc_array(TERN_MEM_MISC, n, sizeof *sorted);
    if (!sorted) return tern_fail_memory(err, n * sizeof *sorted);
    bool in_order = true; // as in nearly all files
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &file->tensors[first + i];
        if (i > 0 && by_place(&sorted[i - 1], &sorted[i]) > 0) in_order = false;
    }
    if (!in_order) qsort(sorted, n, sizeof *sorted, by_place);
    tern_status status = check_in_order(sorted, n, data, gapless, err);
    tern_free(sorted);
    return status;
}

// ---- Look-up -----------------------------------------------------------------------------------

const tern_tensor *tern_file_tensor(const tern_file *file, const char *name) {
    int64_t i =
        tern_name_index_find(&file->priv->tensor_index, file->tensors, sizeof *file->tensors, name);
    return i < 0 ? NULL : &file->tensors[i];
}

const tern_meta *tern_file_meta(const tern_file *file, const char *key) {
    int64_t i =
        tern_name_index_find(&file->priv->meta_index, file->metas, sizeof *file->metas, key);
    return i < 0 ? NULL : &file->metas[i];
}

size_t tern_meta_type_bytes(tern_meta_type type) {
    switch (type) {
    case TERN_META_U8:
    case TERN_META_I8:
    case TERN_META_BOOL: return 1;
    case TERN_META_U16:
    case TERN_META_I16: return 2;
    case TERN_META_U32:
    case TERN_META_I32:
    case TERN_META_F32: return 4;
    case TERN_META_U64:
    case TERN_META_I64:
    case TERN_META_F64: return 8;
    case TERN_META_STRING:
    case TERN_META_ARRAY: break;
    }
    return 0;
}

static tern_meta_number read_number(tern_meta_type type, const uint8_t *p) {
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
    } v = {0};
    size_t bytes = tern_meta_type_bytes(type);
    if (bytes == 0) return (tern_meta_number){.kind = TERN_META_NO_NUMBER};
    memcpy(&v, p, bytes);
    int64_t i = 0;
    switch (type) {
    case TERN_META_U8: i = v.u8; break;
    case TERN_META_I8: i = v.i8; break;
    case TERN_META_U16: i = v.u16; break;
    case TERN_META_I16: i = v.i16; break;
    case TERN_META_U32: i = v.u32; break;
    case TERN_META_I32: i = v.i32; break;
    case TERN_META_I64: i = v.i64; break;
    case TERN_META_BOOL: return (tern_meta_number){TERN_META_IS_BOOL, v.u8 != 0, v.u8 != 0};
    case TERN_META_F32: return (tern_meta_number){TERN_META_IS_FLOAT, 0, v.f32};
    case TERN_META_F64: return (tern_meta_number){TERN_META_IS_FLOAT, 0, v.f64};
    case TERN_META_U64:
        if (v.u64 > INT64_MAX) return (tern_meta_number){TERN_META_IS_FLOAT, 0, (double)v.u64};
        i = v.i64;
        break;
    default: return (tern_meta_number){.kind = TERN_META_NO_NUMBER};
    }
    return (tern_meta_number){TERN_META_IS_INT, i, (double)i};
}

static tern_meta_number meta_number(const tern_file *file, const char *key) {
    const tern_meta *m = tern_file_meta(file, key);
    return m ? read_number(m->type, m->data) : (tern_meta_number){.kind = TERN_META_NO_NUMBER};
}

bool tern_file_meta_int(const tern_file *file, const char *key, int64_t *value) {
    tern_meta_number v = meta_number(file, key);
    if (v.kind == TERN_META_IS_INT) *value = v.i;
    return v.kind == TERN_META_IS_INT;
}

bool tern_file_meta_float(const tern_file *file, const char *key, double *value) {
    tern_meta_number v = meta_number(file, key);
    bool ok = v.kind == TERN_META_IS_INT || v.kind == TERN_META_IS_FLOAT;
    if (ok) *value = v.f;
    return ok;
}

bool tern_file_meta_bool(const tern_file *file, const char *key, bool *value) {
    tern_meta_number v = meta_number(file, key);
    if (v.kind == TERN_META_IS_BOOL) *value = v.i != 0;
    return v.kind == TERN_META_IS_BOOL;
}

bool tern_file_meta_str(const tern_file *file, const char *key, tern_str *value) {
    const tern_meta *m = tern_file_meta(file, key);
    if (!m || m->type != TERN_META_STRING) return false;
    *value = (tern_str){m->data, (size_t)m->n};
    return true;
}

tern_meta_number tern_meta_number_at(const tern_meta *meta, uint64_t i) {
    const bool is_array = meta->type == TERN_META_ARRAY;
    const tern_meta_type type = is_array ? meta->element_type : meta->type;
    const size_t bytes = tern_meta_type_bytes(type); // 0: strings, arrays
    if (bytes == 0 || i >= (is_array ? meta->n : 1))
        return (tern_meta_number){.kind = TERN_META_NO_NUMBER};
    return read_number(type, (const uint8_t *)meta->data + i * bytes);
}

bool tern_meta_element(const tern_meta *meta, uint64_t i, double *value) {
    if (meta->type != TERN_META_ARRAY) return false;
    tern_meta_number v = tern_meta_number_at(meta, i);
    if (v.kind != TERN_META_NO_NUMBER) *value = v.f;
    return v.kind != TERN_META_NO_NUMBER;
}

// ---- Tensors as matrices -----------------------------------------------------------------------

tern_matrix tern_tensor_matrix(const tern_tensor *t) {
    return (tern_matrix){t->type, t->data, (int64_t)(t->ne[1] * t->ne[2] * t->ne[3]),
                         (int64_t)t->ne[0], t->scale};
}

tern_status tern_tensor_decode(const tern_tensor *t, float *out, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(t);
    return tern_matrix_decode(&m, out, err);
}
