// A GGUF model's vision tower is a second file with the architecture "clip": llama.cpp's mmproj.
// Here its tensors are added to the model's, as if all were in one file. For towers that want it, a
// patch's two frames are joined in one matrix, and so are queries, keys and values, which some
// writers keep separate.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/file_private.h"

#define PATCH "v.patch_embd.weight"

// ---- A patch's frames --------------------------------------------------------------------------

static bool same_shape(const tern_tensor *a, const tern_tensor *b) {
    return a->type == b->type && a->bytes == b->bytes && memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

// [rows, colors, edge, edge] each become [rows, colors, frames, edge, edge], with the first two
// merged in one dimension: the kernels of both frames, interleaved.
static tern_status join_frames(tern_file *file, tern_tensor *t, tern_error *err) {
    const tern_tensor *halves[] = {t, tern_file_tensor(file->tower, PATCH ".1")};
    uint64_t edge = t->ne[0], n = t->ne[2] * t->ne[3], each;
    if (!halves[1])
        return tern_fail(err, TERN_ERR_FORMAT, "tensor " PATCH ".1 is missing: the second frame's");
    bool whole = t->n_dims == 4 && t->ne[1] == edge && edge > 0 && edge <= 64 && n <= 1 << 20 &&
                 tern_dtype_is_float(t->type) && same_shape(t, halves[1]) &&
                 tern_dtype_bytes(t->type, edge * edge, edge * edge, &each) && each * n == t->bytes;
    if (!whole)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor " PATCH " and " PATCH ".1 are not two frames' squares of floats");
    tern_blob *list = tern_arena_take(&file->priv->pool, 2 * (size_t)n * sizeof *list);
    if (!list) return tern_fail_memory(err, 2 * (size_t)n * sizeof *list);
    for (uint64_t i = 0; i < 2 * n; i++)
        list[i] = tern_blob_part(&halves[i % 2]->data, i / 2 * each, each);
    t->ne[2] = 2;
    t->ne[3] = n;
    t->data = tern_blob_join(list, 2 * n, each);
    t->bytes *= 2;
    return TERN_OK;
}

// ---- Queries, keys and values ------------------------------------------------------------------

static const char *const parts[] = {".attn_q.", ".attn_k.", ".attn_v."};

// Where one of them is in the name of a layer's tensor; NULL: in none. *which: 0 to 2.
static const char *part_of(const char *name, int *which) {
    for (*which = 0; *which < 3; ++*which) {
        const char *at = strncmp(name, "v.blk.", 6) == 0 ? strstr(name, parts[*which]) : NULL;
        if (at) return at;
    }
    return NULL;
}

static tern_status join_attention(tern_file *file, tern_tensor *t, const char *at,
                                  tern_error *err) {
    struct tern_file_private *p = file->priv;
    const char *rest = at + strlen(parts[0]);
    size_t front = (size_t)(at - t->name), n_name = strlen(t->name) + 3;
    char *name = tern_arena_take(&p->pool, n_name);
    tern_blob *list = tern_arena_take(&p->pool, 3 * sizeof *list);
    if (!name || !list) return tern_fail_memory(err, n_name + 3 * sizeof *list);
    for (int i = 0; i < 3; i++) {
        snprintf(name, n_name, "%.*s%s%s", (int)front, t->name, parts[i], rest);
        const tern_tensor *part = tern_file_tensor(file->tower, name);
        if (!part || !same_shape(part, t))
            return tern_fail(err, TERN_ERR_FORMAT,
                             "tensor %s is missing, or of another shape or type than %s", name,
                             t->name);
        list[i] = part->data;
    }
    snprintf(name, n_name, "%.*s.attn_qkv.%s", (int)front, t->name, rest);
    t->name = name;
    t->data = tern_blob_join(list, 3, t->bytes);
    t->bytes *= 3;
    t->ne[t->n_dims > 1 ? 1 : 0] *= 3;
    return TERN_OK;
}

// ---- Rows of layers in between -----------------------------------------------------------------

// Their mergers have the layer's number here, and are numbered from 0 in folders.
static tern_status count_merger(tern_file *file, tern_tensor *t, tern_error *err) {
    static const char begin[] = "v.deepstack.";
    const tern_meta *flags = tern_file_meta(file->tower, "clip.vision.is_deepstack_layers");
    const char *at = t->name + sizeof begin - 1;
    uint64_t layer = 0, n = 0;
    double flag = 0;
    for (; *at >= '0' && *at <= '9' && layer < 100000; at++)
        layer = 10 * layer + (uint64_t)(*at - '0');
    for (uint64_t i = 0; flags && i <= layer && i < flags->n; i++)
        if (tern_meta_element(flags, i, &flag) && flag != 0) n++;
    if (*at != '.' || flag == 0 || !flags || layer >= flags->n)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s is of no layer that clip.vision.is_deepstack_layers names",
                         t->name);
    size_t n_name = sizeof begin + 24 + strlen(at);
    char *name = tern_arena_take(&file->priv->pool, n_name);
    if (!name) return tern_fail_memory(err, n_name);
    snprintf(name, n_name, "%s%llu%s", begin, (unsigned long long)n - 1, at);
    t->name = name;
    return TERN_OK;
}

// ---- The whole ---------------------------------------------------------------------------------

tern_str tern_file_projector(const tern_file *tower) {
    tern_str name = {NULL, 0};
    tern_file_meta_str(tower, "clip.projector_type", &name);
    tern_file_meta_str(tower, "clip.vision.projector_type", &name);
    return name;
}

// Older files, the first ones of Gemma 3 among them, have the names of a layer's two feed-forward
// products exchanged: the first is the one whose input has the layer's width.
static bool exchanges(const tern_file *tower) {
    const tern_tensor *down = tern_file_tensor(tower, "v.blk.0.ffn_down.weight");
    const tern_tensor *norm = tern_file_tensor(tower, "v.blk.0.ln2.weight");
    return down && norm && down->ne[0] == norm->ne[0] && down->ne[1] != norm->ne[0];
}

static tern_status exchange(tern_file *file, tern_tensor *t, tern_error *err) {
    static const char *const names[] = {".ffn_up.", ".ffn_down."};
    size_t n_name = strlen(t->name) + 3;
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(t->name, names[i]);
        if (!at) continue;
        char *name = tern_arena_take(&file->priv->pool, n_name);
        if (!name) return tern_fail_memory(err, n_name);
        snprintf(name, n_name, "%.*s%s%s", (int)(at - t->name), t->name, names[!i],
                 at + strlen(names[i]));
        t->name = name;
        return TERN_OK;
    }
    return TERN_OK;
}

typedef struct reading {
    bool joins;     // tensors that these files keep separate
    bool exchanges; // the names of products
} reading;

static tern_status add_tensor(tern_file *file, const tern_tensor *from, const reading *how,
                              tern_error *err) {
    bool joins = how->joins;
    int which = 0;
    const char *at = joins ? part_of(from->name, &which) : NULL;
    if (strcmp(from->name, PATCH ".1") == 0 || (at && which > 0)) return TERN_OK; // with the first
    tern_tensor *t = tern_file_add_tensor(file, err);
    if (!t) return TERN_ERR_MEMORY;
    *t = *from;
    if (joins && strcmp(t->name, PATCH) == 0) return join_frames(file, t, err);
    if (strncmp(t->name, "v.deepstack.", 12) == 0) return count_merger(file, t, err);
    if (how->exchanges) TERN_TRY(exchange(file, t, err));
    return at ? join_attention(file, t, at, err) : TERN_OK;
}

tern_status tern_file_add_tower(tern_file *file, tern_file *tower, bool joins, tern_error *err) {
    tern_str arch = {NULL, 0};
    file->tower = tower;
    if (tower->kind == TERN_FILE_GGUF) tern_file_meta_str(tower, "general.architecture", &arch);
    tern_status status = TERN_OK;
    if (file->kind != TERN_FILE_GGUF || !tern_str_is(arch, "clip"))
        status = tern_fail(err, TERN_ERR_ARGUMENT,
                           "this is not an mmproj, which a GGUF's part that "
                           "sees is: its architecture is not clip");
    const reading how = {.joins = joins, .exchanges = exchanges(tower)};
    for (size_t i = 0; status == TERN_OK && i < tower->n_tensors; i++)
        status = add_tensor(file, &tower->tensors[i], &how, err);
    if (status == TERN_OK) {
        tern_name_index_free(&file->priv->tensor_index);
        status = tern_file_index_tensors(file, err);
    }
    return status == TERN_OK ? status : tern_fail_prefix(err, status, tower->path);
}
