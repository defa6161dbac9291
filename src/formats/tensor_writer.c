#include "formats/tensor_writer.h"

#include <string.h>
#include "base/alloc.h"

tern_status tern_writer_init(tern_writer *w, const char *path, uint64_t split_bytes,
                             uint64_t alignment, tern_error *err) {
    *w = (tern_writer){.split_bytes = split_bytes, .alignment = alignment};
    w->path = tern_strdup(TERN_MEM_FILE, path);
    return w->path ? TERN_OK : tern_fail_memory(err, strlen(path) + 1);
}

void tern_writer_deinit(tern_writer *w) {
    tern_out_drop(&w->file);
    tern_out_close(&w->out);
    tern_arena_free(&w->pool);
    tern_free(w->tensors);
    tern_free(w->path);
}

tern_status tern_writer_declare(tern_writer *w, const char *name, tern_dtype type, int n_dims,
                                const uint64_t *ne, uint64_t n_row) {
    uint64_t n = 1;
    tern_planned t = {.type = type, .n_dims = n_dims, .ne = {1, 1, 1, 1, 1}};
    if (w->planned)
        return tern_fail(&w->failed, TERN_ERR_ARGUMENT, "tensor '%s' is declared after data", name);
    bool ok = n_dims >= 0 && n_dims <= 5 && *name;
    for (int i = 0; ok && i < n_dims; i++) {
        t.ne[i] = ne[i];
        ok = ne[i] > 0 && !__builtin_mul_overflow(n, ne[i], &n);
    }
    if (!ok || n > INT64_MAX || !tern_dtype_bytes(type, n, n_row, &t.bytes))
        return tern_fail(&w->failed, TERN_ERR_ARGUMENT, "tensor '%s' cannot have this shape as %s",
                         name, tern_dtype_name(type));
    if (tern_array_reserve(TERN_MEM_FILE, &w->tensors, &w->capacity, w->n_tensors, 1) != 0)
        return tern_fail_memory(&w->failed, (w->n_tensors + 1) * sizeof t);
    t.name = tern_arena_text(&w->pool, (tern_str){name, strlen(name)});
    if (!t.name) return tern_fail_memory(&w->failed, strlen(name) + 1);
    w->tensors[w->n_tensors++] = t;
    return TERN_OK;
}

// A part ends before the tensor that would make it larger than split_bytes.
static tern_status make_plan(tern_writer *w, tern_error *err) {
    tern_name_index names = {0};
    tern_status status =
        tern_name_index_build(&names, w->tensors, w->n_tensors, sizeof *w->tensors, "tensor", err);
    tern_name_index_free(&names);
    if (status == TERN_ERR_FORMAT) // here the fault is not in a file
        return tern_fail_prefix(err, TERN_ERR_ARGUMENT, "declared twice");
    if (status != TERN_OK) return status;
    uint64_t in_part = 0;
    w->n_parts = 1;
    for (size_t i = 0; i < w->n_tensors; i++) {
        tern_planned *t = &w->tensors[i];
        if (w->split_bytes && in_part && t->bytes > w->split_bytes - in_part) {
            w->n_parts++;
            in_part = 0;
        }
        t->part = w->n_parts - 1;
        in_part += t->bytes < w->split_bytes - in_part ? t->bytes : w->split_bytes - in_part;
    }
    if (w->n_parts > 65535) // a u16 in GGUF, and five digits in file names of both containers
        return tern_fail(err, TERN_ERR_ARGUMENT, "would become %zu files; 65535 are possible",
                         w->n_parts);
    w->planned = true;
    return TERN_OK;
}

// Opens the part of tensor `at`.
static tern_status open_part(tern_writer *w, tern_error *err) {
    size_t part = w->n_tensors ? w->tensors[w->at].part : 0;
    bool is_new =
        !w->part_open || (w->n_written == 0 && w->at > 0 && w->tensors[w->at - 1].part != part);
    if (!is_new) return TERN_OK;
    if (w->part_open) TERN_TRY(tern_out_end(&w->file, err));
    w->part_open = false;
    TERN_TRY(w->begin_part(w, part, err));
    w->part_open = true;
    return TERN_OK;
}

static tern_status write_piece(tern_writer *w, const uint8_t **bytes, uint64_t *n,
                               tern_error *err) {
    static const uint8_t zeros[64];
    if (w->at >= w->n_tensors)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %llu bytes more than the tensors have",
                         w->path, (unsigned long long)*n);
    TERN_TRY(open_part(w, err));
    const tern_planned *t = &w->tensors[w->at];
    uint64_t piece = t->bytes - w->n_written < *n ? t->bytes - w->n_written : *n;
    TERN_TRY(tern_out_write(&w->file, *bytes, piece, err));
    *bytes += piece;
    *n -= piece;
    w->n_written += piece;
    if (w->n_written < t->bytes) return TERN_OK;
    w->at++;
    w->n_written = 0;
    uint64_t n_pad = (w->alignment - t->bytes % w->alignment) % w->alignment;
    return tern_out_write(&w->file, zeros, n_pad, err);
}

// After a failure all later calls report it.
static tern_status check_usable(tern_writer *w, tern_error *err) {
    if (w->failed.status == TERN_OK && !w->planned) make_plan(w, &w->failed);
    if (w->failed.status == TERN_OK) return TERN_OK;
    if (err) *err = w->failed;
    return tern_fail_prefix(err, w->failed.status, w->path);
}

static tern_status remember(tern_writer *w, tern_status status) {
    if (status != TERN_OK) tern_fail(&w->failed, status, "writing failed before");
    return status;
}

tern_status tern_writer_write(tern_writer *w, const void *bytes, uint64_t n, tern_error *err) {
    const uint8_t *p = bytes;
    TERN_TRY(check_usable(w, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && n > 0) status = write_piece(w, &p, &n, err);
    return remember(w, status);
}

tern_status tern_writer_end(tern_writer *w, tern_error *err) {
    TERN_TRY(check_usable(w, err));
    tern_status status = TERN_OK;
    if (w->at < w->n_tensors)
        status = tern_fail(err, TERN_ERR_ARGUMENT, "%s: tensor '%s' got %llu of its %llu bytes",
                           w->path, w->tensors[w->at].name, (unsigned long long)w->n_written,
                           (unsigned long long)w->tensors[w->at].bytes);
    if (status == TERN_OK && !w->part_open) status = open_part(w, err);
    if (status == TERN_OK) status = tern_out_end(&w->file, err);
    return remember(w, status);
}

tern_status tern_writer_commit(tern_writer *w, const char *last, tern_error *err) {
    tern_status status = tern_out_commit(&w->out, last, err);
    tern_fail(&w->failed, TERN_ERR_ARGUMENT, "already finished");
    return status;
}
