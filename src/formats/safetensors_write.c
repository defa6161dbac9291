// Writing safetensors into a folder. The layout is in safetensors.c.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "formats/tensor_writer.h"

#define HEADER_ALIGNMENT 64 // the data of the first tensor begins at a multiple of it

struct tern_st_writer {
    tern_writer base; // first, so that begin_part finds the rest
};

// NULL: a type that safetensors does not have.
static const char *dtype_name(tern_dtype type) {
    switch (type) {
    case TERN_DTYPE_F32: case TERN_DTYPE_F16: case TERN_DTYPE_BF16: case TERN_DTYPE_F64:
    case TERN_DTYPE_U8: case TERN_DTYPE_I8: case TERN_DTYPE_I32: case TERN_DTYPE_I64:
        return tern_dtype_name(type); // they are called the same
    default: return NULL;
    }
}

static void put_tensor(tern_strbuf *b, const tern_planned *t, uint64_t offset) {
    tern_strbuf_json(b, t->name, strlen(t->name));
    tern_strbuf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(t->type));
    for (int i = 0; i < t->n_dims; i++)
        tern_strbuf_printf(b, "%s%llu", i ? "," : "", (unsigned long long)t->ne[i]);
    tern_strbuf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
                       (unsigned long long)(offset + t->bytes));
}

static void put_header(tern_strbuf *b, const tern_writer *w, size_t part) {
    uint64_t n_header = 0, offset = 0;
    tern_strbuf_append(b, &n_header, 8);
    // transformers refuses files that do not say which framework's tensors they hold.
    tern_strbuf_puts(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < w->n_tensors; i++) {
        if (w->tensors[i].part != part) continue;
        tern_strbuf_putc(b, ',');
        put_tensor(b, &w->tensors[i], offset);
        offset += w->tensors[i].bytes;
    }
    tern_strbuf_putc(b, '}');
    while (!b->failed && b->len % HEADER_ALIGNMENT) tern_strbuf_putc(b, ' ');
    if (b->failed) return;
    n_header = b->len - 8;
    memcpy(b->ptr, &n_header, 8);
}

static void put_part_name(tern_strbuf *b, const tern_writer *w, size_t part) {
    if (w->n_parts == 1) tern_strbuf_puts(b, "model.safetensors");
    else tern_strbuf_printf(b, "model-%05zu-of-%05zu.safetensors", part + 1, w->n_parts);
}

static tern_status begin_file(tern_writer *w, tern_strbuf *path, tern_strbuf *head,
                              tern_error *err) {
    tern_status status = TERN_OK;
    if (path->failed || head->failed) status = tern_fail_memory(err, path->len + head->len);
    if (status == TERN_OK) status = tern_out_begin(&w->out, path->ptr, err);
    if (status == TERN_OK) status = tern_out_write(&w->out, head->ptr, head->len, err);
    tern_strbuf_free(path);
    tern_strbuf_free(head);
    return status;
}

static tern_status begin_part(tern_writer *w, size_t part, tern_error *err) {
    tern_strbuf path = {0}, head = {0};
    tern_strbuf_printf(&path, "%s/", w->path);
    put_part_name(&path, w, part);
    put_header(&head, w, part);
    return begin_file(w, &path, &head, err);
}

static tern_status write_index(tern_writer *w, tern_error *err) {
    tern_strbuf path = {0}, text = {0};
    uint64_t total = 0;
    for (size_t i = 0; i < w->n_tensors; i++) total += w->tensors[i].bytes;
    tern_strbuf_printf(&path, "%s/model.safetensors.index.json", w->path);
    tern_strbuf_printf(&text, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {",
                       (unsigned long long)total);
    for (size_t i = 0; i < w->n_tensors; i++) {
        tern_strbuf_puts(&text, i ? ",\n    " : "\n    ");
        tern_strbuf_json(&text, w->tensors[i].name, strlen(w->tensors[i].name));
        tern_strbuf_puts(&text, ": \"");
        put_part_name(&text, w, w->tensors[i].part);
        tern_strbuf_putc(&text, '"');
    }
    tern_strbuf_puts(&text, "\n  }\n}\n");
    TERN_TRY(begin_file(w, &path, &text, err));
    return tern_out_end(&w->out, err);
}

// ---- Life --------------------------------------------------------------------------------------

tern_status tern_st_writer_open(tern_st_writer **out, const char *folder, uint64_t split_bytes,
                                tern_error *err) {
    *out = NULL;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be made: %s", folder, strerror(errno));
    tern_st_writer *w = tern_alloc(TERN_MEM_FILE, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    tern_status status = tern_writer_init(&w->base, folder, split_bytes, 1, err);
    w->base.begin_part = begin_part;
    if (status == TERN_OK) *out = w;
    else tern_st_writer_free(w);
    return status;
}

tern_status tern_st_declare(tern_st_writer *w, const char *name, tern_dtype type, int n_dims,
                            const uint64_t *shape_outer_first) {
    if (w->base.failed.status != TERN_OK) return w->base.failed.status;
    if (!dtype_name(type) || !strcmp(name, "__metadata__"))
        return tern_fail(&w->base.failed, TERN_ERR_ARGUMENT, "tensor '%s': %s does not exist in "
                         "safetensors", name, tern_dtype_name(type));
    return tern_writer_declare(&w->base, name, type, n_dims, shape_outer_first,
                               n_dims > 0 ? shape_outer_first[n_dims - 1] : 1);
}

tern_status tern_st_write(tern_st_writer *w, const void *bytes, uint64_t n, tern_error *err) {
    return tern_writer_write(&w->base, bytes, n, err);
}

// The single file and the index exclude each other: a left-over of an earlier model in the same
// folder would be read instead of, or beside, the new one.
static void remove_stale(const tern_writer *w) {
    tern_strbuf path = {0};
    tern_strbuf_printf(&path, "%s/model.safetensors%s", w->path,
                       w->n_parts > 1 ? "" : ".index.json");
    if (!path.failed) unlink(path.ptr);
    tern_strbuf_free(&path);
}

tern_status tern_st_writer_finish(tern_st_writer *w, tern_error *err) {
    tern_writer *base = &w->base;
    TERN_TRY(tern_writer_end(base, err));
    if (base->n_parts > 1) TERN_TRY(write_index(base, err));
    TERN_TRY(tern_writer_commit(base, base->out.n_paths - 1, err));
    remove_stale(base);
    return TERN_OK;
}

void tern_st_writer_free(tern_st_writer *w) {
    if (!w) return;
    tern_writer_deinit(&w->base);
    tern_free(w);
}
