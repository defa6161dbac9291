// Writing safetensors into a folder. The layout is in safetensors.c.
#include <string.h>
#include "base/alloc.h"
#include "formats/tensor_writer.h"

#define SINGLE           "model.safetensors"
#define INDEX            "model.safetensors.index.json"
#define HEADER_ALIGNMENT 64 // the data of the first tensor begins at a multiple of it

struct tern_st_writer {
    tern_writer base;   // first, so that begin_part finds the rest
    const char *single; // the name of a file that is not split
};

// NULL: safetensors lacks the type.
static const char *dtype_name(tern_dtype type) {
    switch (type) {
    case TERN_DTYPE_F32:
    case TERN_DTYPE_F16:
    case TERN_DTYPE_BF16:
    case TERN_DTYPE_F64:
    case TERN_DTYPE_U8:
    case TERN_DTYPE_I8:
    case TERN_DTYPE_I32:
    case TERN_DTYPE_I64:
    case TERN_DTYPE_U32: return tern_dtype_name(type); // the names are the same
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
    // transformers refuses files that do not name the framework of their tensors.
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
    if (w->n_parts == 1)
        tern_strbuf_puts(b, ((const tern_st_writer *)w)->single);
    else
        tern_strbuf_printf(b, "model-%05zu-of-%05zu.safetensors", part + 1, w->n_parts);
}

static tern_status begin_part(tern_writer *w, size_t part, tern_error *err) {
    tern_strbuf name = {0}, head = {0};
    put_part_name(&name, w, part);
    put_header(&head, w, part);
    tern_status status = TERN_OK;
    if (name.failed || head.failed) status = tern_fail_memory(err, name.len + head.len);
    if (status == TERN_OK) status = tern_out_begin(&w->out, name.ptr, &w->file, err);
    if (status == TERN_OK) status = tern_out_write(&w->file, head.ptr, head.len, err);
    tern_strbuf_free(&name);
    tern_strbuf_free(&head);
    return status;
}

static tern_status write_index(tern_writer *w, tern_error *err) {
    tern_strbuf text = {0};
    uint64_t total = 0;
    for (size_t i = 0; i < w->n_tensors; i++) total += w->tensors[i].bytes;
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
    tern_status status = text.failed ? tern_fail_memory(err, text.len)
                                     : tern_out_put(&w->out, INDEX, text.ptr, text.len, err);
    tern_strbuf_free(&text);
    return status;
}

// ---- Life --------------------------------------------------------------------------------------

tern_status tern_st_writer_open(tern_st_writer **out, const char *folder, uint64_t split_bytes,
                                tern_error *err) {
    *out = NULL;
    tern_st_writer *w = tern_alloc(TERN_MEM_FILE, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    tern_status status = tern_writer_init(&w->base, folder, split_bytes, 1, err);
    if (status == TERN_OK) status = tern_out_open(&w->base.out, folder, true, err);
    w->base.begin_part = begin_part;
    w->single = SINGLE;
    if (status == TERN_OK)
        *out = w;
    else
        tern_st_writer_free(w);
    return status;
}

void tern_st_writer_name(tern_st_writer *w, const char *single) { w->single = single; }

tern_status tern_st_declare(tern_st_writer *w, const char *name, tern_dtype type, int n_dims,
                            const uint64_t *shape_outer_first) {
    if (w->base.failed.status != TERN_OK) return w->base.failed.status;
    if (!dtype_name(type) || !strcmp(name, "__metadata__"))
        return tern_fail(&w->base.failed, TERN_ERR_ARGUMENT,
                         "tensor '%s': %s does not exist in safetensors", name,
                         tern_dtype_name(type));
    return tern_writer_declare(&w->base, name, type, n_dims, shape_outer_first,
                               n_dims > 0 ? shape_outer_first[n_dims - 1] : 1);
}

tern_status tern_st_write(tern_st_writer *w, const void *bytes, uint64_t n, tern_error *err) {
    return tern_writer_write(&w->base, bytes, n, err);
}

tern_status tern_st_put_file(tern_st_writer *w, const char *name, const void *bytes, size_t n,
                             tern_error *err) {
    return tern_out_put(&w->base.out, name, bytes, n, err);
}

tern_status tern_st_copy_file(tern_st_writer *w, const char *folder, const char *name,
                              tern_error *err) {
    tern_mapping m;
    char *path = tern_path_join(folder, name);
    if (!path) return tern_fail_memory(err, strlen(folder) + strlen(name) + 2);
    tern_status status = tern_mapping_open(&m, path, true, err);
    tern_free(path);
    if (status != TERN_OK || !m.bytes) return status;
    status = tern_st_put_file(w, name, m.bytes, (size_t)m.n, err);
    tern_mapping_close(&m);
    return status;
}

// "model-00001-of-00002.safetensors"
static bool is_part_name(const char *name) {
    static const char form[] = "model-#####-of-#####.safetensors";
    if (strlen(name) != sizeof form - 1) return false;
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '#' ? name[i] < '0' || name[i] > '9' : name[i] != form[i]) return false;
    return true;
}

// Files of an earlier model that readers would open: mixed with the new ones they would form a
// third model.
static tern_status remove_stale(tern_writer *w, tern_error *err) {
    static const char *const read[] = {"config.json",
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "chat_template.jinja",
                                       "modules.json",
                                       SINGLE,
                                       INDEX};
    tern_names parts = {0};
    tern_status status = tern_folder_list(&parts, w->path, "model-", ".safetensors", err);
    for (size_t i = 0; status == TERN_OK && i < sizeof read / sizeof *read; i++)
        if (!tern_out_has(&w->out, read[i])) status = tern_out_remove(&w->out, read[i], err);
    for (size_t i = 0; status == TERN_OK && i < parts.n; i++)
        if (is_part_name(parts.list[i]) && !tern_out_has(&w->out, parts.list[i]))
            status = tern_out_remove(&w->out, parts.list[i], err);
    tern_names_free(&parts);
    return status;
}

tern_status tern_st_writer_finish(tern_st_writer *w, tern_error *err) {
    tern_writer *base = &w->base;
    TERN_TRY(tern_writer_end(base, err));
    if (base->n_parts > 1) TERN_TRY(write_index(base, err));
    bool is_model = strcmp(w->single, SINGLE) == 0;
    if (is_model) TERN_TRY(remove_stale(base, err));
    const char *last = tern_out_has(&base->out, "config.json") ? "config.json"
                       : base->n_parts > 1                     ? INDEX
                                                               : w->single;
    return tern_writer_commit(base, last, err);
}

void tern_st_writer_free(tern_st_writer *w) {
    if (!w) return;
    tern_writer_deinit(&w->base);
    tern_free(w);
}
