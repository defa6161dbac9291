// Reading GGUF, versions 2 and 3 (little-endian).
//
//     "GGUF"  u32 version  u64 n_tensors  u64 n_kv
//     n_kv      times: string key, u32 type, value
//     n_tensors times: string name, u32 n_dims, u64 ne[n_dims], u32 type, u64 offset
//     padding to `general.alignment` (32 when the key is not there)
//     tensor data; each offset counts from here and is a multiple of the alignment
//
// A string is a u64 length and its bytes. An array is u32 element type, u64 count, elements. Counts
// are compared with the remaining bytes before anything is allocated for them, so that memory is at
// most a small multiple of the file's size.
#include "formats/file_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

#define TENSOR_NAME_MAX 255
#define KEY_MAX         65535 // the specification's limit
#define I2_S_TAIL       32    // after the codes; the scale is the first float

// A metadata entry takes at least: key length and one byte of key, type, one byte of value.
#define KV_BYTES_MIN (8 + 1 + 4 + 1)
// A tensor: name length and one byte, n_dims, type, offset.
#define TENSOR_BYTES_MIN (8 + 1 + 4 + 4 + 8)

// If a file must be read, its front is read in windows. They stay in memory, since texts and arrays
// of the metadata are in them.
#define WINDOW_BYTES ((uint64_t)512 << 10)

typedef struct reader {
    const tern_blob *all;
    uint64_t at;
    const uint8_t *window; // bytes [window_at, window_end)
    uint64_t window_at, window_end;
    tern_file *file;
    tern_error *err;
} reader;

static uint64_t left(const reader *r) { return r->all->n - r->at; }

static tern_status cut_off(reader *r, const char *what) {
    return tern_fail(r->err, TERN_ERR_FORMAT, "the file ends at byte %llu, inside %s",
                     (unsigned long long)r->all->n, what);
}

// The next n bytes in one piece (the file has them); they stay as long as the file.
static tern_status take(reader *r, const uint8_t **out, uint64_t n) {
    if (r->at + n > r->window_end) {
        uint64_t size = n > WINDOW_BYTES ? n : WINDOW_BYTES;
        if (size > left(r)) size = left(r);
        tern_arena *pool = &r->file->priv->pool;
        void *window = size <= SIZE_MAX ? tern_arena_take(pool, (size_t)size) : NULL;
        if (!window) return tern_fail_memory(r->err, (size_t)size);
        TERN_TRY(tern_blob_read(r->all, r->at, size, window, r->err));
        r->window = window;
        r->window_at = r->at;
        r->window_end = r->at + size;
    }
    *out = r->window + (r->at - r->window_at);
    r->at += n;
    return TERN_OK;
}

static tern_status read_bytes(reader *r, void *to, size_t n, const char *what) {
    const uint8_t *bytes = NULL;
    if (left(r) < n) return cut_off(r, what);
    TERN_TRY(take(r, &bytes, n));
    memcpy(to, bytes, n);
    return TERN_OK;
}

static tern_status read_string(reader *r, tern_str *out, const char *what) {
    const uint8_t *bytes = NULL;
    uint64_t n = 0;
    TERN_TRY(read_bytes(r, &n, sizeof n, what));
    if (n > left(r))
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "%s at byte %llu is said to be %llu bytes long; the file has %llu more",
                         what, (unsigned long long)r->at, (unsigned long long)n,
                         (unsigned long long)left(r));
    TERN_TRY(take(r, &bytes, n));
    *out = (tern_str){(const char *)bytes, (size_t)n};
    return TERN_OK;
}

// A name: a terminated copy, since C strings are what callers compare it with.
static tern_status read_name(reader *r, const char **out, size_t n_max, const char *what) {
    tern_str s;
    TERN_TRY(read_string(r, &s, what));
    if (s.len == 0 || s.len > n_max || memchr(s.ptr, 0, s.len))
        return tern_fail(
            r->err, TERN_ERR_FORMAT,
            "%s in front of byte %llu has %zu bytes (1 to %zu, none of them 0, are allowed)", what,
            (unsigned long long)r->at, s.len, n_max);
    *out = tern_arena_text(&r->file->priv->pool, s);
    return *out ? TERN_OK : tern_fail_memory(r->err, s.len + 1);
}

// ---- Metadata ----------------------------------------------------------------------------------

static tern_status read_string_array(reader *r, tern_meta *m) {
    tern_str *strings = NULL;
    if (m->n > left(r) / 8) return cut_off(r, m->key); // each has at least its length
    strings = tern_arena_take(&r->file->priv->pool, (size_t)m->n * sizeof *strings);
    if (!strings) return tern_fail_memory(r->err, (size_t)m->n * sizeof *strings);
    m->strings = strings;
    for (uint64_t i = 0; i < m->n; i++) TERN_TRY(read_string(r, &strings[i], m->key));
    return TERN_OK;
}

static tern_status read_array(reader *r, tern_meta *m) {
    uint32_t type = 0;
    TERN_TRY(read_bytes(r, &type, sizeof type, m->key));
    TERN_TRY(read_bytes(r, &m->n, sizeof m->n, m->key));
    m->element_type = (tern_meta_type)type;
    if (type == TERN_META_STRING) return read_string_array(r, m);
    if (type == TERN_META_ARRAY)
        return tern_fail(r->err, TERN_ERR_UNSUPPORTED, "metadata '%s' is an array of arrays",
                         m->key);
    size_t bytes = tern_meta_type_bytes(m->element_type);
    if (bytes == 0)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "metadata '%s' is an array of the unknown type %u", m->key, type);
    if (m->n > left(r) / bytes) return cut_off(r, m->key);
    const uint8_t *elements;
    TERN_TRY(take(r, &elements, m->n * bytes));
    m->data = elements;
    return TERN_OK;
}

static tern_status read_meta(reader *r, tern_meta *m) {
    uint32_t type = 0;
    TERN_TRY(read_name(r, &m->key, KEY_MAX, "a metadata key"));
    TERN_TRY(read_bytes(r, &type, sizeof type, m->key));
    m->type = (tern_meta_type)type;
    m->n = 1;
    if (type == TERN_META_ARRAY) return read_array(r, m);
    if (type == TERN_META_STRING) {
        tern_str s;
        TERN_TRY(read_string(r, &s, m->key));
        m->data = s.ptr;
        m->n = s.len;
        return TERN_OK;
    }
    size_t bytes = tern_meta_type_bytes(m->type);
    if (bytes == 0)
        return tern_fail(r->err, TERN_ERR_FORMAT, "metadata '%s' has the unknown type %u", m->key,
                         type);
    if (left(r) < bytes) return cut_off(r, m->key);
    const uint8_t *value;
    TERN_TRY(take(r, &value, bytes));
    m->data = value;
    return TERN_OK;
}

static tern_status read_metas(reader *r, uint64_t n_kv) {
    tern_file *f = r->file;
    if (n_kv > left(r) / KV_BYTES_MIN)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "%llu metadata entries do not fit into the %llu bytes of the file",
                         (unsigned long long)n_kv, (unsigned long long)r->all->n);
    f->metas = tern_alloc_array(TERN_MEM_FILE, (size_t)n_kv, sizeof *f->metas);
    if (!f->metas) return tern_fail_memory(r->err, (size_t)n_kv * sizeof *f->metas);
    for (uint64_t i = 0; i < n_kv; i++) {
        TERN_TRY(read_meta(r, &f->metas[i]));
        f->n_metas++;
    }
    return tern_name_index_build(&f->priv->meta_index, f->metas, f->n_metas, sizeof *f->metas,
                                 "metadata key", r->err);
}

static int64_t int_or(const tern_file *file, const char *key, int64_t otherwise) {
    int64_t value;
    return tern_file_meta_int(file, key, &value) ? value : otherwise;
}

// ---- Tensors -----------------------------------------------------------------------------------

static tern_status read_shape(reader *r, tern_tensor *t, uint64_t *n_elements) {
    uint32_t n_dims = 0;
    TERN_TRY(read_bytes(r, &n_dims, sizeof n_dims, t->name));
    if (n_dims > 4)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tensor '%s' has %u dimensions; at most 4 are possible", t->name, n_dims);
    t->n_dims = (int)n_dims;
    *n_elements = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        TERN_TRY(read_bytes(r, &t->ne[i], sizeof t->ne[i], t->name));
        if (t->ne[i] == 0 || __builtin_mul_overflow(*n_elements, t->ne[i], n_elements) ||
            *n_elements > INT64_MAX)
            return tern_fail(r->err, TERN_ERR_FORMAT,
                             "tensor '%s' has an impossible dimension %u: %llu", t->name, i,
                             (unsigned long long)t->ne[i]);
    }
    return TERN_OK;
}

static tern_status read_tensor(reader *r, tern_tensor *t, uint64_t *offset) {
    uint64_t n_elements = 0;
    uint32_t type = 0;
    TERN_TRY(read_name(r, &t->name, TENSOR_NAME_MAX, "a tensor name"));
    TERN_TRY(read_shape(r, t, &n_elements));
    TERN_TRY(read_bytes(r, &type, sizeof type, t->name));
    TERN_TRY(read_bytes(r, offset, sizeof *offset, t->name));
    t->type_id = type;
    if (!tern_dtype_from_ggml_id(type, &t->type)) t->type = TERN_DTYPE_UNKNOWN;
    if (!tern_dtype_bytes(t->type, n_elements, t->ne[0], &t->bytes)) {
        t->bytes = 0; // of a type that can only be listed: see gguf_sizes.c
        if (!tern_dtype_is_readable(t->type)) return TERN_OK;
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tensor '%s': rows of %llu elements are not whole blocks of %zu (%s)",
                         t->name, (unsigned long long)t->ne[0], tern_dtype_block_n(t->type),
                         tern_dtype_name(t->type));
    }
    return TERN_OK;
}

static tern_status place_tensor(reader *r, tern_tensor *t, uint64_t offset, const tern_blob *data,
                                uint64_t alignment) {
    uint64_t n_data = data->n;
    if (offset % alignment)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tensor '%s' begins at %llu, not at a multiple of %llu", t->name,
                         (unsigned long long)offset, (unsigned long long)alignment);
    if (offset > n_data || t->bytes > n_data - offset || t->bytes == 0)
        return tern_fail(
            r->err, TERN_ERR_FORMAT,
            "tensor '%s' leaves the file: %llu bytes at %llu of %llu (is the file cut off?)",
            t->name, (unsigned long long)t->bytes, (unsigned long long)offset,
            (unsigned long long)n_data);
    t->data = tern_blob_part(data, offset, t->bytes);
    if (t->type == TERN_DTYPE_I2_S) {
        TERN_TRY(
            tern_blob_read(&t->data, t->bytes - I2_S_TAIL, sizeof t->scale, &t->scale, r->err));
        if (!isfinite(t->scale))
            return tern_fail(r->err, TERN_ERR_FORMAT,
                             "the scale of tensor '%s' is not a finite number", t->name);
    }
    return TERN_OK;
}

static tern_status read_tensors(reader *r, uint64_t n_tensors, int shard, uint64_t alignment) {
    tern_file *f = r->file;
    size_t first = f->n_tensors;
    if (n_tensors > left(r) / TENSOR_BYTES_MIN)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "%llu tensors do not fit into the %llu bytes of the file",
                         (unsigned long long)n_tensors, (unsigned long long)r->all->n);
    uint64_t *offsets = tern_alloc_array(TERN_MEM_MISC, (size_t)n_tensors, sizeof *offsets);
    if (!offsets) return tern_fail_memory(r->err, (size_t)n_tensors * sizeof *offsets);
    tern_status status = TERN_OK;
    for (uint64_t i = 0; i < n_tensors; i++) {
        tern_tensor *t = tern_file_add_tensor(f, r->err);
        if (!t) TERN_TRY_GOTO(TERN_ERR_MEMORY);
        t->shard = shard;
        TERN_TRY_GOTO(read_tensor(r, t, &offsets[i]));
    }
    uint64_t data_at = r->at + alignment - 1;
    data_at -= data_at % alignment; // perhaps beyond the end: an error only if there are tensors
    tern_blob data = tern_blob_part(r->all, data_at, UINT64_MAX);
    tern_tensor *tensors = n_tensors ? f->tensors + first : NULL;
    TERN_TRY_GOTO(
        tern_gguf_settle_sizes(tensors, offsets, (size_t)n_tensors, data.n, alignment, r->err));
    for (uint64_t i = 0; i < n_tensors; i++)
        TERN_TRY_GOTO(place_tensor(r, &f->tensors[first + i], offsets[i], &data, alignment));
    status = tern_file_check_layout(f, first, &data, false, r->err);
fail:
    tern_free(offsets);
    return status;
}

// ---- Files -------------------------------------------------------------------------------------

static tern_status read_header(reader *r, uint64_t *n_tensors, uint64_t *n_kv) {
    uint32_t magic = 0, version = 0;
    TERN_TRY(read_bytes(r, &magic, sizeof magic, "the header"));
    if (memcmp(&magic, "vers", 4) == 0)
        return tern_fail(r->err, TERN_ERR_FORMAT, "%s", TERN_LFS_POINTER);
    if (memcmp(&magic, "GGUF", 4) != 0)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "neither a GGUF file (wrong first bytes) nor a Hugging Face folder");
    TERN_TRY(read_bytes(r, &version, sizeof version, "the header"));
    if (version == 2u << 24 || version == 3u << 24)
        return tern_fail(r->err, TERN_ERR_UNSUPPORTED, "a big-endian GGUF file");
    if (version != 2 && version != 3)
        return tern_fail(r->err, TERN_ERR_UNSUPPORTED, "GGUF version %u (2 and 3 can be read)",
                         version);
    TERN_TRY(read_bytes(r, n_tensors, sizeof *n_tensors, "the header"));
    return read_bytes(r, n_kv, sizeof *n_kv, "the header");
}

// `keys` is the file whose metadata this is: the real one for shard 0, a temporary one for others.
static tern_status parse_with(tern_file *file, tern_file *keys, int shard, const tern_blob *all,
                              tern_gguf_split *split, tern_error *err) {
    reader r = {.all = all,
                .window = all->memory,
                .window_end = all->memory ? all->n : 0,
                .file = keys,
                .err = err};
    uint64_t n_tensors = 0, n_kv = 0;
    TERN_TRY(read_header(&r, &n_tensors, &n_kv));
    TERN_TRY(read_metas(&r, n_kv));
    *split = (tern_gguf_split){
        .no = int_or(keys, "split.no", -1),
        .count = int_or(keys, "split.count", -1),
        .n_tensors = int_or(keys, "split.tensors.count", -1),
    };
    // Kernels read mapped data in place, and need it at multiples of 32.
    int64_t alignment = int_or(keys, "general.alignment", 32);
    if (alignment < 32 || alignment > 1 << 20 || (alignment & (alignment - 1)))
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "general.alignment is %lld (a power of two between 32 and 1048576 can be read)",
            (long long)alignment);
    r.file = file;
    return read_tensors(&r, n_tensors, shard, (uint64_t)alignment);
}

tern_status tern_gguf_parse(tern_file *file, int shard, const tern_blob *all,
                            tern_gguf_split *split, tern_error *err) {
    file->kind = TERN_FILE_GGUF;
    if (shard == 0) return parse_with(file, file, shard, all, split, err);
    tern_file *passing;
    TERN_TRY(tern_file_new(&passing, "", err));
    tern_status status = parse_with(file, passing, shard, all, split, err);
    tern_file_close(passing);
    return status;
}

// The first part may be whisper.cpp's file instead, which conversion reads as an equivalent GGUF.
static tern_status parse_part(tern_file *file, int shard, const tern_blob *all,
                              tern_gguf_split *split, tern_error *err) {
    if (shard == 0 && tern_whisper_bin_is(all)) {
        *split = (tern_gguf_split){-1, -1, -1};
        if (file->priv->foreign) return file->priv->foreign(file, all, err);
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a file of whisper.cpp, which must be converted first: tern convert");
    }
    return tern_gguf_parse(file, shard, all, split, err);
}

static tern_status open_part(tern_file *file, int shard, const char *path, tern_gguf_split *split,
                             tern_error *err) {
    tern_blob all;
    TERN_TRY(tern_file_add_part(file, path, &all, err));
    tern_status status = parse_part(file, shard, &all, split, err);
    if (status == TERN_OK || status == TERN_ERR_IO) return status; // a failed read names the file
    return tern_fail_prefix(err, status, path);
}

// "x-00001-of-00003.gguf" -> "x-00002-of-00003.gguf" in place; false: not such a name.
static bool name_part(char *path, int64_t from, int64_t to, int64_t count) {
    char old[40], fresh[40];
    int n = snprintf(old, sizeof old, "-%05d-of-%05d.gguf", (int)from + 1, (int)count);
    snprintf(fresh, sizeof fresh, "-%05d-of-%05d.gguf", (int)to + 1, (int)count);
    size_t length = strlen(path);
    if (length <= (size_t)n || strcmp(path + length - n, old) != 0) return false;
    memcpy(path + length - n, fresh, (size_t)n); // five digits hold every u16: the same length
    return true;
}

static tern_status open_other_parts(tern_file *file, char *path, const tern_gguf_split *first,
                                    tern_error *err) {
    for (int i = 1; i < first->count; i++) {
        tern_gguf_split s;
        name_part(path, i - 1, i, first->count);
        TERN_TRY(open_part(file, i, path, &s, err));
        if (s.no != i || s.count != first->count)
            return tern_fail(
                err, TERN_ERR_FORMAT,
                "%s: says that it is part %lld of %lld, not %d of %lld (counted from 0)", path,
                (long long)s.no, (long long)s.count, i, (long long)first->count);
    }
    if (first->n_tensors >= 0 && (uint64_t)first->n_tensors != file->n_tensors)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: the set of %lld files has %zu tensors; split.tensors.count is %lld",
                         file->path, (long long)first->count, file->n_tensors,
                         (long long)first->n_tensors);
    return TERN_OK;
}

// ---- Scales beside their matrices --------------------------------------------------------------

#ifdef TERN_NO_GRIDS
static tern_status index_tensors(tern_file *file, tern_error *err) {
    return tern_file_index_tensors(file, err);
}
#else
// A matrix of NVFP4 has its last scale in "x.scale" beside "x.weight"; experts have one each.
static tern_status read_scale(tern_tensor *t, const tern_tensor *scales, tern_error *err) {
    const uint64_t n = scales->ne[0];
    if (scales->type != TERN_DTYPE_F32 || scales->n_dims != 1 || n == 0)
        return tern_fail(err, TERN_ERR_FORMAT, "tensor '%s' is not a list of F32", scales->name);
    TERN_TRY(tern_blob_read(&scales->data, 0, sizeof t->scale, &t->scale, err));
    if (!isfinite(t->scale))
        return tern_fail(err, TERN_ERR_FORMAT, "tensor '%s' is not a finite number", scales->name);
    for (uint64_t i = 1; i < n; i++) {
        float other;
        TERN_TRY(tern_blob_read(&scales->data, i * sizeof other, sizeof other, &other, err));
        if (other != t->scale)
            return tern_fail(
                err, TERN_ERR_UNSUPPORTED,
                "tensor '%s': experts of NVFP4 with different scales are not supported",
                scales->name);
    }
    return TERN_OK;
}

static tern_status index_tensors(tern_file *file, tern_error *err) {
    static const char end[] = ".weight";
    TERN_TRY(tern_file_index_tensors(file, err));
    for (size_t i = 0; i < file->n_tensors; i++) {
        tern_tensor *t = &file->tensors[i];
        char name[256 + sizeof ".scale"];
        if (t->type != TERN_DTYPE_NVFP4) continue;
        t->scale = 1;
        const size_t n = strlen(t->name);
        if (!tern_name_ends(t->name, end) || n > 255) continue;
        snprintf(name, sizeof name, "%.*s.scale", (int)(n - (sizeof end - 1)), t->name);
        const tern_tensor *scales = tern_file_tensor(file, name);
        if (scales) TERN_TRY(read_scale(t, scales, err));
    }
    return TERN_OK;
}

#endif

// ---- Opening -----------------------------------------------------------------------------------

tern_status tern_gguf_open_files(tern_file *file, const char *path, tern_error *err) {
    tern_gguf_split split;
    tern_stamp before = tern_file_stamp(path);
    tern_status status = TERN_OK;
    TERN_TRY(open_part(file, 0, path, &split, err));
    if (split.count > 1) {
        char *part = tern_strdup(TERN_MEM_MISC, path);
        if (!part) return tern_fail_memory(err, strlen(path) + 1);
        if (split.count > 65535 || split.no < 0 || split.no >= split.count ||
            !name_part(part, split.no, 0, split.count))
            status = tern_fail(err, TERN_ERR_FORMAT,
                               "%s: part %lld of %lld by its metadata, but "
                               "not by its name (…-00001-of-000NN.gguf)",
                               path, (long long)split.no + 1, (long long)split.count);
        else if (split.no != 0)
            status =
                tern_fail(err, TERN_ERR_ARGUMENT, "%s: part %lld of a set; open its first file, %s",
                          path, (long long)split.no + 1, part);
        else
            status = open_other_parts(file, part, &split, err);
        tern_free(part);
        tern_stamp after = tern_file_stamp(path);
        if (status == TERN_OK && !tern_stamp_same(&before, &after))
            status = tern_fail(err, TERN_ERR_IO, "%s: was replaced while it was opened; try again",
                               path);
        TERN_TRY(status);
    }
    status = index_tensors(file, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, path);
}

tern_status tern_gguf_open_blob(tern_file *file, const tern_blob *all, tern_error *err) {
    tern_gguf_split split;
    tern_status status = parse_part(file, 0, all, &split, err);
    if (status == TERN_OK && split.count > 1)
        status = tern_fail(err, TERN_ERR_UNSUPPORTED,
                           "part %lld of a set of %lld files: a set is opened by its path",
                           (long long)split.no + 1, (long long)split.count);
    if (status == TERN_OK) status = index_tensors(file, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, file->path);
}
