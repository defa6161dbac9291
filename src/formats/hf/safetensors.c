// Reading safetensors: the tensors of one file.
//
//     u64 n_header
//     JSON of n_header bytes: {"__metadata__": {...},
//                              "name": {"dtype": "BF16", "shape": [out, in],
//                                       "data_offsets": [begin, end]}, ...}
//     data; offsets count from here, tensors fill it without holes
//
// Shapes are written outermost first; ne[] is innermost first, so it is the shape reversed.
#include "formats/file_private.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"

#define HEADER_MAX     ((uint64_t)100 << 20) // the specification's limit
#define NAME_MAX_BYTES 1023

typedef struct header {
    tern_file *file;
    tern_json_doc doc;
    tern_blob data;
    int shard;
    tern_error *err;
} header;

static bool dtype_of(tern_str name, tern_dtype *type) {
    static const struct {
        const char *name;
        tern_dtype type;
    } types[] = {
        {"F32", TERN_DTYPE_F32},
        {"F16", TERN_DTYPE_F16},
        {"BF16", TERN_DTYPE_BF16},
        {"U8", TERN_DTYPE_U8},
        {"I8", TERN_DTYPE_I8},
        {"I32", TERN_DTYPE_I32},
        {"I64", TERN_DTYPE_I64},
        {"F64", TERN_DTYPE_F64},
        // Only listed, never decoded.
        {"I16", TERN_DTYPE_I16},
        {"U16", TERN_DTYPE_U16},
        {"U32", TERN_DTYPE_U32},
        {"U64", TERN_DTYPE_U64},
        {"BOOL", TERN_DTYPE_BOOL},
        {"F8_E4M3", TERN_DTYPE_F8_E4M3},
        {"F8_E5M2", TERN_DTYPE_F8_E5M2},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!tern_str_is(name, types[i].name)) continue;
        *type = types[i].type;
        return true;
    }
    return false;
}

// A whole number from 0 to 2^53: beyond that a double is no longer exact, and no file is that
// large.
static bool json_size(const tern_json *value, uint64_t *out) {
    int64_t i = tern_json_int(value, -1);
    *out = (uint64_t)i;
    return i >= 0 && i <= (int64_t)1 << 53;
}

// More than four dimensions (patch embeddings of video have five): the outermost are merged.
static tern_status read_shape(header *h, tern_tensor *t, const tern_json *shape,
                              uint64_t *n_elements) {
    if (!tern_json_is(shape, TERN_JSON_ARRAY))
        return tern_fail(h->err, TERN_ERR_FORMAT, "tensor '%s' has no shape", t->name);
    uint32_t n = shape->n, i = 0;
    t->n_dims = n < 4 ? (int)n : 4;
    *n_elements = 1;
    for (const tern_json *d = tern_json_first(&h->doc, shape); d;
         d = tern_json_next(&h->doc, shape, d), i++) {
        uint64_t size, *ne = &t->ne[n - 1 - i < 3 ? n - 1 - i : 3];
        if (!json_size(d, &size) || size == 0 ||
            __builtin_mul_overflow(*n_elements, size, n_elements) || *n_elements > INT64_MAX)
            return tern_fail(h->err, TERN_ERR_FORMAT, "tensor '%s' has an impossible dimension %u",
                             t->name, i);
        *ne *= size;
    }
    return TERN_OK;
}

static tern_status read_place(header *h, tern_tensor *t, const tern_json *offsets) {
    const tern_json *first = tern_json_first(&h->doc, offsets);
    const tern_json *second = first ? tern_json_next(&h->doc, offsets, first) : NULL;
    uint64_t begin, end;
    if (!tern_json_is(offsets, TERN_JSON_ARRAY) || offsets->n != 2 || !json_size(first, &begin) ||
        !json_size(second, &end))
        return tern_fail(h->err, TERN_ERR_FORMAT, "tensor '%s' has no data_offsets [begin, end]",
                         t->name);
    if (begin > end || end > h->data.n)
        return tern_fail(
            h->err, TERN_ERR_FORMAT,
            "tensor '%s' leaves the file: bytes %llu to %llu of %llu (is the file cut off?)",
            t->name, (unsigned long long)begin, (unsigned long long)end,
            (unsigned long long)h->data.n);
    if (t->type == TERN_DTYPE_UNKNOWN) t->bytes = end - begin;
    if (end - begin != t->bytes)
        return tern_fail(h->err, TERN_ERR_FORMAT,
                         "tensor '%s' needs %llu bytes by its shape, but has %llu", t->name,
                         (unsigned long long)t->bytes, (unsigned long long)(end - begin));
    t->data = tern_blob_part(&h->data, begin, end - begin);
    return TERN_OK;
}

static tern_status read_tensor(header *h, const tern_json *key) {
    tern_str name = tern_json_str(key);
    if (tern_str_is(name, "__metadata__")) return TERN_OK;
    if (name.len == 0 || name.len > NAME_MAX_BYTES || memchr(name.ptr, 0, name.len))
        return tern_fail(h->err, TERN_ERR_FORMAT,
                         "a tensor name of %zu bytes (1 to %d, none of them 0, are allowed)",
                         name.len, NAME_MAX_BYTES);
    tern_tensor *t = tern_file_add_tensor(h->file, h->err);
    if (!t) return TERN_ERR_MEMORY;
    t->shard = h->shard;
    t->name = tern_arena_text(&h->file->priv->pool, name);
    if (!t->name) return tern_fail_memory(h->err, name.len + 1);
    const tern_json *info = tern_json_value_of(&h->doc, key);
    tern_str dtype = tern_json_str(tern_json_get(&h->doc, info, "dtype"));
    uint64_t n_elements = 0;
    if (!dtype.ptr) return tern_fail(h->err, TERN_ERR_FORMAT, "tensor '%s' has no dtype", t->name);
    bool known = dtype_of(dtype, &t->type);
    if (!known) t->type = TERN_DTYPE_UNKNOWN;
    TERN_TRY(read_shape(h, t, tern_json_get(&h->doc, info, "shape"), &n_elements));
    if (known && !tern_dtype_bytes(t->type, n_elements, t->ne[0], &t->bytes))
        return tern_fail(h->err, TERN_ERR_FORMAT, "tensor '%s' is too large", t->name);
    return read_place(h, t, tern_json_get(&h->doc, info, "data_offsets"));
}

// Kernels may use plain loads of an element, but writers before 2023 did not pad the header, and
// nothing demands an order of tensors that keeps data aligned: such tensors are copied if the file
// is mapped. If it is read, they are aligned.
static tern_status align_tensor(tern_file *file, tern_tensor *t, tern_error *err) {
    if ((uintptr_t)t->data.memory % tern_dtype_block_bytes(t->type) == 0) return TERN_OK;
    if (t->bytes > SIZE_MAX) return tern_fail_memory(err, SIZE_MAX);
    void *copy = tern_arena_take(&file->priv->pool, (size_t)t->bytes);
    if (!copy) return tern_fail_memory(err, (size_t)t->bytes);
    memcpy(copy, t->data.memory, (size_t)t->bytes);
    t->data.memory = copy;
    return TERN_OK;
}

static tern_status read_header(header *h, const char *text, uint64_t n) {
    size_t first = h->file->n_tensors;
    TERN_TRY(tern_json_parse(&h->doc, text, (size_t)n, h->err));
    const tern_json *root = tern_json_root(&h->doc);
    if (!tern_json_is(root, TERN_JSON_OBJECT))
        return tern_fail(h->err, TERN_ERR_FORMAT, "the safetensors header is not a JSON object");
    for (const tern_json *k = tern_json_first(&h->doc, root); k;
         k = tern_json_next(&h->doc, root, k))
        TERN_TRY(read_tensor(h, k));
    TERN_TRY(tern_file_check_layout(h->file, first, &h->data, true, h->err));
    for (size_t i = first; i < h->file->n_tensors; i++)
        TERN_TRY(align_tensor(h->file, &h->file->tensors[i], h->err));
    return TERN_OK;
}

tern_status tern_safetensors_parse(tern_file *file, int shard, const tern_blob *all,
                                   tern_error *err) {
    uint64_t n_header, n = all->n;
    tern_hold text;
    if (n < sizeof n_header)
        return tern_fail(err, TERN_ERR_FORMAT, "not a safetensors file: only %llu bytes long",
                         (unsigned long long)n);
    TERN_TRY(tern_blob_read(all, 0, sizeof n_header, &n_header, err));
    if (memcmp(&n_header, "version ", sizeof n_header) == 0)
        return tern_fail(err, TERN_ERR_FORMAT, "%s", TERN_LFS_POINTER);
    if (n_header > HEADER_MAX || n_header > n - sizeof n_header)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "the safetensors header is said to be %llu bytes "
                         "long; the file has %llu more, and 104857600 are allowed",
                         (unsigned long long)n_header, (unsigned long long)(n - sizeof n_header));
    tern_blob written = tern_blob_part(all, sizeof n_header, n_header);
    header h = {
        .file = file,
        .data = tern_blob_part(all, sizeof n_header + n_header, UINT64_MAX),
        .shard = shard,
        .err = err,
    };
    TERN_TRY(tern_blob_hold(&written, &text, err));
    tern_status status = read_header(&h, text.data, n_header);
    tern_json_free(&h.doc);
    tern_blob_release(&text);
    return status;
}
