// Experts of a folder: many tensors of one shape become one.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "formats/file_private.h"

#define EXPERTS     ".experts."
#define EXPERTS_MAX 4096

// "front.experts.0.rest" of `name`: the place of the number; NULL: there is none, or it is not 0.
static const char *number_of(const char *name) {
    const char *at = strstr(name, EXPERTS);
    if (!at) return NULL;
    at += strlen(EXPERTS);
    return at[0] == '0' && at[1] == '.' ? at : NULL;
}

static bool is_like(const tern_tensor *a, const tern_tensor *b) {
    return a->type == b->type && a->bytes == b->bytes && a->n_dims == b->n_dims &&
           memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

// Expert i beside the first one; NULL: none.
static tern_tensor *find_expert(const tern_file *file, const char *first, int i) {
    char name[256];
    const char *at = number_of(first);
    int n = snprintf(name, sizeof name, "%.*s%d%s", (int)(at - first), first, i, at + 1);
    if (n < 0 || (size_t)n >= sizeof name) return NULL;
    const tern_tensor *t = tern_file_tensor(file, name);
    return t ? &file->tensors[t - file->tensors] : NULL;
}

// The name without the number and the point after it.
static const char *joined_name(tern_file *file, const char *first) {
    const char *at = number_of(first);
    size_t front = (size_t)(at - first), rest = strlen(at + 2);
    char *name = tern_arena_take(&file->priv->pool, front + rest + 1);
    if (!name) return NULL;
    memcpy(name, first, front);
    memcpy(name + front, at + 2, rest + 1);
    return name;
}

// Puts the joined tensor in the first one's place; the others are marked by having no bytes.
static tern_status join(tern_file *file, tern_tensor *first, int n, tern_error *err) {
    const char *old = first->name, *name = joined_name(file, old);
    tern_blob *list = tern_arena_take(&file->priv->pool, (size_t)n * sizeof *list);
    if (!name || !list) return tern_fail_memory(err, (size_t)n * sizeof *list);
    for (int i = n - 1; i >= 0; i--) {
        tern_tensor *t = i ? find_expert(file, old, i) : first;
        list[i] = t->data;
        if (i) t->bytes = 0;
    }
    first->name = name;
    first->n_dims = 3;
    first->ne[2] = (uint64_t)n;
    first->data = tern_blob_join(list, (uint64_t)n, first->bytes);
    first->bytes *= (uint64_t)n;
    return TERN_OK;
}

static tern_status join_from(tern_file *file, tern_tensor *first, size_t *n_joined,
                             tern_error *err) {
    int n = 1;
    if (!number_of(first->name) || first->n_dims != 2 || !tern_dtype_is_float(first->type) ||
        first->bytes == 0)
        return TERN_OK;
    for (const tern_tensor *t; n < EXPERTS_MAX && (t = find_expert(file, first->name, n)); n++)
        if (!is_like(first, t)) return TERN_OK; // their reader reports that they are unknown
    *n_joined += (size_t)n;
    return join(file, first, n, err);
}

// Removes the joined tensors, which are empty; in a file no tensor of two dimensions is.
static void close_gaps(tern_file *file) {
    size_t kept = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const tern_tensor *t = &file->tensors[i];
        bool gone = t->bytes == 0 && t->n_dims == 2 && t->ne[0] > 0 && t->ne[1] > 0;
        if (!gone) file->tensors[kept++] = *t;
    }
    file->n_tensors = kept;
}

tern_status tern_hf_join_experts(tern_file *file, tern_error *err) {
    size_t n_joined = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        TERN_TRY(join_from(file, &file->tensors[i], &n_joined, err));
    if (n_joined == 0) return TERN_OK;
    close_gaps(file);
    tern_name_index_free(&file->priv->tensor_index);
    file->tensor_bytes = 0;
    return tern_file_index_tensors(file, err);
}
