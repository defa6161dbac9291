// The tensors of a model: their names in both formats, their roles, and whether a file has those
// that its graph reads.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "models/models.h"

// ---- Names -------------------------------------------------------------------------------------

// Matches name against a pattern with at most one %d; *layer is its number.
static bool match(const char *pattern, const char *name, int *layer) {
    const char *hole = strstr(pattern, "%d");
    *layer = -1;
    if (!hole) return strcmp(pattern, name) == 0;
    size_t front = (size_t)(hole - pattern);
    if (strncmp(pattern, name, front) != 0) return false;
    int value = 0, digits = 0;
    const char *at = name + front;
    for (; *at >= '0' && *at <= '9' && digits < 6; at++, digits++) value = value * 10 + (*at - '0');
    *layer = value;
    return digits > 0 && strcmp(at, hole + 2) == 0;
}

static bool fill(const char *pattern, int layer, char *out, size_t size) {
    const char *hole = strstr(pattern, "%d");
    int n = hole ? snprintf(out, size, "%.*s%d%s", (int)(hole - pattern), pattern, layer, hole + 2)
                 : snprintf(out, size, "%s", pattern);
    return n > 0 && (size_t)n < size;
}

// The prefixes of the decoder's tensors in files, the longest first; tables of rows have one.
static const char *const prefixes[] = {"model.language_model.",
                                       "model.text_model.",
                                       "language_model.model.",
                                       "language_model.",
                                       "model.",
                                       "bert.",
                                       "roberta.",
                                       "vit.",
                                       ""};
#define N_PREFIXES (sizeof prefixes / sizeof *prefixes)

static const char *without_prefix(const char *name) {
    size_t i = 0;
    while (strncmp(name, prefixes[i], strlen(prefixes[i])) != 0) i++; // the last one always matches
    return name + strlen(prefixes[i]);
}

static bool match_gguf(const tern_tensor_row *row, const char *name, int *layer) {
    return match(row->gguf, name, layer) || (row->gguf_also && match(row->gguf_also, name, layer));
}

const tern_tensor_row *tern_arch_row(const tern_arch *arch, const char *gguf_name) {
    int layer;
    for (const tern_tensor_row *row = arch->tensors; row->gguf; row++)
        if (match_gguf(row, gguf_name, &layer)) return row;
    return NULL;
}

bool tern_arch_name_usual(const tern_arch *arch, const char *gguf_name, char *out, size_t size) {
    int layer;
    const tern_tensor_row *row = tern_arch_row(arch, gguf_name);
    return row && match_gguf(row, gguf_name, &layer) && fill(row->gguf, layer, out, size);
}

tern_role tern_arch_role(const tern_arch *arch, const char *gguf_name) {
    const tern_tensor_row *row = tern_arch_row(arch, gguf_name);
    return row ? row->role : TERN_ROLE_VECTOR;
}

bool tern_arch_is_layer_matrix(const tern_arch *arch, const tern_value *v) {
    const tern_role role = tern_arch_role(arch, v->name);
    const bool is_other = role == TERN_ROLE_VECTOR || role == TERN_ROLE_TABLE ||
                          role == TERN_ROLE_HEAD || role == TERN_ROLE_FLOATS;
    return v->kind == TERN_VALUE_WEIGHT && v->is_matrix && !is_other;
}

int tern_tensor_block(const char *gguf_name, const char **rest) {
    if (strncmp(gguf_name, "blk.", 4) != 0) return -1;
    int block = 0, digits = 0;
    const char *at = gguf_name + 4;
    for (; *at >= '0' && *at <= '9' && digits < 6; at++, digits++) block = block * 10 + (*at - '0');
    if (digits == 0 || *at != '.') return -1;
    if (rest) *rest = at + 1;
    return block;
}

const char *tern_role_name(tern_role role) {
    static const char *const names[] = {
        [TERN_ROLE_Q] = "q",       [TERN_ROLE_K] = "k",       [TERN_ROLE_V] = "v",
        [TERN_ROLE_O] = "o",       [TERN_ROLE_GATE] = "gate", [TERN_ROLE_UP] = "up",
        [TERN_ROLE_DOWN] = "down",
    };
    return names[role];
}

bool tern_arch_name_to_hf(const tern_arch *arch, const char *gguf_name, char *out, size_t size) {
    static const char usual[] = "model.";
    int layer;
    char name[128];
    const tern_tensor_row *row = tern_arch_row(arch, gguf_name);
    if (!row || !row->hf || !match_gguf(row, gguf_name, &layer) ||
        !fill(row->hf, layer, name, sizeof name))
        return false;
    bool other = arch->hf_prefix && strncmp(name, usual, sizeof usual - 1) == 0 &&
                 !tern_tensor_is_vision(gguf_name);
    int n = snprintf(out, size, "%s%s", other ? arch->hf_prefix : "",
                     other ? name + sizeof usual - 1 : name);
    return n > 0 && (size_t)n < size;
}

bool tern_arch_name_to_gguf(const tern_arch *arch, const char *hf_name, char *out, size_t size) {
    int layer;
    const char *name = without_prefix(hf_name);
    for (const tern_tensor_row *row = arch->tensors; row->gguf; row++)
        if ((row->hf && match(without_prefix(row->hf), name, &layer)) ||
            (row->hf_also && match(without_prefix(row->hf_also), name, &layer)))
            return fill(row->gguf, layer, out, size);
    return false;
}

// Under this name, after whichever prefix.
static const tern_tensor *find_name(const tern_file *file, const char *hf) {
    char full[160];
    const tern_tensor *t = tern_file_tensor(file, hf);
    for (size_t i = 0; !t && i < N_PREFIXES; i++) {
        snprintf(full, sizeof full, "%s%s", prefixes[i], without_prefix(hf));
        t = tern_file_tensor(file, full);
    }
    return t;
}

static const tern_tensor *find_in_folder(const tern_file *file, const tern_arch *arch,
                                         const char *gguf_name) {
    char hf[128];
    if (!tern_arch_name_to_hf(arch, gguf_name, hf, sizeof hf)) return NULL;
    const tern_tensor *t = find_name(file, hf);
    const tern_tensor_row *row = t ? NULL : tern_arch_row(arch, gguf_name);
    int layer;
    if (!row || !row->hf_also || !match_gguf(row, gguf_name, &layer)) return t;
    return fill(row->hf_also, layer, hf, sizeof hf) ? find_name(file, hf) : NULL;
}

const tern_tensor *tern_arch_tensor(const tern_file *file, const tern_arch *arch,
                                    const char *gguf_name) {
    char also[128];
    if (file->kind == TERN_FILE_HF) return find_in_folder(file, arch, gguf_name);
    const tern_tensor *t = tern_file_tensor(file, gguf_name);
    const tern_tensor_row *row = t ? NULL : tern_arch_row(arch, gguf_name);
    int layer;
    if (!row || !row->gguf_also || !match_gguf(row, gguf_name, &layer)) return t;
    return fill(row->gguf_also, layer, also, sizeof also) ? tern_file_tensor(file, also) : NULL;
}

// ---- What a file has -------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

// The scale of a packed weight, which the reader of the folder has already included.
static bool is_packed_scale(const tern_file *file, const char *name) {
    static const char end[] = "_scale";
    char weight[256];
    size_t n = strlen(name);
    if (!ends_with(name, ".weight_scale") || n >= sizeof weight) return false;
    memcpy(weight, name, n - (sizeof end - 1));
    weight[n - (sizeof end - 1)] = 0;
    const tern_tensor *t = tern_file_tensor(file, weight);
    return t && t->type == TERN_DTYPE_HF_TERNARY;
}

// Scales beside a GGUF's matrix of NVFP4: the file's reader has included the first.
static const char *of_nvfp4(const tern_file *file, const char *name) {
#ifndef TERN_NO_GRIDS
    const char *const ends[] = {".scale", ".input_scale"};
    char weight[256];
    for (int i = 0; i < 2; i++) {
        const int n = (int)(strlen(name) - strlen(ends[i]));
        if (!ends_with(name, ends[i]) || n > 240) continue;
        snprintf(weight, sizeof weight, "%.*s.weight", n, name);
        const tern_tensor *t = tern_file_tensor(file, weight);
        if (t && t->type == TERN_DTYPE_NVFP4)
            return i ? "for activations in NVFP4, which are not used"
                     : "the scale of a matrix, read with it";
    }
#endif
    (void)file, (void)name;
    return NULL;
}

static const char *ignored_by_table(const tern_ignored *list, const char *name) {
    for (const tern_ignored *i = list; i && i->why; i++)
        if (i->begin ? strncmp(name, i->begin, strlen(i->begin)) == 0 : ends_with(name, i->end))
            return i->why;
    return NULL;
}

const char *tern_arch_ignores(const tern_file *file, const tern_arch *arch, const tern_config *c,
                              const char *name) {
    bool gguf = file->kind == TERN_FILE_GGUF;
    const char *why = ignored_by_table(arch->ignored, name);
    char seen[128];
    if (why && c->vision.n_layers && !gguf && tern_arch_name_to_gguf(arch, name, seen, sizeof seen))
        return NULL; // of a tower that is present
    if (!why && gguf) why = of_nvfp4(file, name);
    if (why) return why;
    int block = gguf && c->n_ignored_blocks ? tern_tensor_block(name, NULL) : -1;
    if (block >= c->n_layers && block < c->n_layers + c->n_ignored_blocks)
        return "of a block that predicts further tokens, which is not run";
    if (gguf && strncmp(name, "adam.", 5) == 0 && tern_file_meta(file, "tern.train.step"))
        return "moments of the optimizer, which only training uses";
    if (!gguf && is_packed_scale(file, name)) return "the scale of a packed weight, read with it";
    char other[128];
    if (c->pooling != TERN_POOLING_NONE && gguf && tern_arch_role(arch, name) == TERN_ROLE_HEAD)
        return "the head scores next tokens: only vectors of texts are computed";
    bool known = gguf || tern_arch_name_to_gguf(arch, name, other, sizeof other);
    if (known && arch->ignores) why = arch->ignores(c, gguf ? name : other);
    if (why) return why;
    if (gguf || !known || tern_arch_role(arch, other) != TERN_ROLE_HEAD) return NULL;
    if (c->pooling != TERN_POOLING_NONE)
        return "the head scores next tokens: only vectors of texts are computed";
    if (c->tied_head) return "config.json ties the head to the embedding table";
    return NULL;
}

// If a file has a tensor under two names, one of them is read.
static bool is_read(const tern_file *file, const tern_arch *arch, const tern_graph *const *graphs,
                    int n_graphs, const tern_tensor *t) {
    char gguf[128];
    bool known = file->kind == TERN_FILE_HF
                     ? tern_arch_name_to_gguf(arch, t->name, gguf, sizeof gguf)
                     : tern_arch_name_usual(arch, t->name, gguf, sizeof gguf);
    const tern_tensor_row *row = known ? tern_arch_row(arch, gguf) : NULL;
    if (row && row->is_computed) return tern_arch_tensor(file, arch, gguf) == t;
    for (int i = 0; known && i < n_graphs; i++) {
        tern_vid v = tern_graph_find(graphs[i], gguf);
        if (v >= 0 && graphs[i]->values[v].kind == TERN_VALUE_WEIGHT)
            return tern_arch_tensor(file, arch, gguf) == t;
    }
    return false;
}

tern_status tern_arch_refuse_unread(const tern_file *file, const tern_arch *arch,
                                    const tern_config *c, const tern_graph *const *graphs,
                                    int n_graphs, tern_error *err) {
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        if (is_read(file, arch, graphs, n_graphs, &file->tensors[i]) ||
            tern_arch_ignores(file, arch, c, name))
            continue;
        char known[128];
        if (ends_with(name, ".bias") && tern_arch_name_to_gguf(arch, name, known, sizeof known))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s: a bias that config.json says is not there", name);
        if (ends_with(name, ".bias"))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s: a %s with biases is not supported", name, arch->name);
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s is not one that a %s of this config reads: without it the "
                         "model would be another",
                         name, arch->name);
    }
    return TERN_OK;
}

// A convolution along one axis has its taps as columns in a folder.
static bool has_taps(const tern_tensor *t, const tern_value *v, const tern_tensor_row *row) {
    bool flat = t->n_dims == 2;
    uint64_t n = flat ? t->ne[0] : t->ne[0] * t->ne[1], n_rows = flat ? t->ne[1] : t->ne[2];
    if (row->change == TERN_CHANGE_PADDED) n = (n + 3) / 4 * 4;
    bool fits = flat || (t->n_dims == 3 && t->ne[0] == (uint64_t)row->taps);
    return fits && (int64_t)n == v->cols && (int64_t)n_rows == v->rows;
}

// A SQUEEZE tensor may keep its dimension of 1.
static bool has_shape(const tern_tensor *t, const tern_value *v, const tern_tensor_row *row) {
    int64_t n_rows = (int64_t)t->ne[1], n_more = (int64_t)t->ne[2];
    if (row && row->taps) return has_taps(t, v, row);
    if (row && row->change == TERN_CHANGE_TURNED)
        return t->n_dims == 2 && (int64_t)t->ne[0] == v->rows && (int64_t)t->ne[1] == v->cols;
    if (row && row->change == TERN_CHANGE_FLATTEN && t->n_dims == 4)
        return (int64_t)(t->ne[0] * t->ne[1] * t->ne[2]) * (int64_t)t->ne[3] == v->cols * v->rows &&
               (int64_t)t->ne[3] % v->rows == 0;
    if (row && row->change == TERN_CHANGE_SQUEEZE && n_rows == 1) {
        n_rows = n_more;
        n_more = 1;
    }
    if (row && row->gguf_column && t->ne[0] == 1) // a row here
        return n_rows == v->cols && v->rows == 1 && n_more == 1 && t->ne[3] == 1;
    int64_t parts = v->parts ? v->parts : 1;
    return (int64_t)t->ne[0] == v->cols && n_rows * parts == v->rows && n_more == parts &&
           t->ne[3] == 1;
}

tern_tensor tern_tensor_share(const tern_tensor *t, int share, int shares) {
    tern_tensor part = *t;
    uint64_t n = (uint64_t)shares;
    if (t->n_dims == 3) {
        part.n_dims = 2;
        part.ne[2] /= n;
    } else if (t->n_dims == 1) {
        part.ne[0] /= n;
    } else {
        part.ne[1] /= n;
    }
    part.bytes /= n;
    part.data = tern_blob_part(&t->data, (uint64_t)share * part.bytes, part.bytes);
    return part;
}

// I2_S has one scale; the rows of packed weights are far apart.
static bool can_share(const tern_tensor *t, int shares) {
    uint64_t n_rows = t->n_dims == 1 ? t->ne[0] : t->ne[1];
    return n_rows % (uint64_t)shares == 0 && t->type != TERN_DTYPE_I2_S &&
           t->type != TERN_DTYPE_HF_TERNARY;
}

tern_status tern_arch_weight(const tern_file *file, const tern_arch *arch, const tern_value *v,
                             tern_tensor *out, tern_error *err) {
    const tern_tensor *t = tern_arch_tensor(file, arch, v->name);
    const tern_tensor_row *row = tern_arch_row(arch, v->name);
    char hf[128];
    bool named = file->kind == TERN_FILE_HF && tern_arch_name_to_hf(arch, v->name, hf, sizeof hf);
    if (t) *out = *t;
    if (named && t && row->shares) {
        if (!can_share(t, row->shares))
            return tern_fail(
                err, TERN_ERR_UNSUPPORTED,
                "tensor %s has type %s and %llu rows, which are not those of %d matrices", t->name,
                tern_dtype_name(t->type), (unsigned long long)t->ne[1], row->shares);
        *out = tern_tensor_share(t, row->share, row->shares);
        t = out;
    }
    if (!t) return tern_fail(err, TERN_ERR_FORMAT, "tensor %s is missing", named ? hf : v->name);
    bool vector = !v->is_matrix && !v->is_table;
    if (!has_shape(t, v, row))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s is %llu x %llu, but the config makes it %lld x %lld", t->name,
                         (unsigned long long)t->ne[1], (unsigned long long)t->ne[0],
                         (long long)v->rows, (long long)v->cols);
    bool number = t->type == TERN_DTYPE_I8 || t->type == TERN_DTYPE_I32 ||
                  t->type == TERN_DTYPE_I64 || t->type == TERN_DTYPE_F64 ||
                  t->type == TERN_DTYPE_U8;
    if (t->type == TERN_DTYPE_UNKNOWN)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s has the unknown element type %u",
                         t->name, t->type_id);
    if (!tern_dtype_is_readable(t->type))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s has type %s, which can be listed but not run", t->name,
                         tern_dtype_name(t->type));
    if ((vector && !tern_dtype_is_float(t->type)) || number)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s has type %s, which a %s cannot have",
                         t->name, tern_dtype_name(t->type), vector ? "vector" : "weight matrix");
    return TERN_OK;
}

// Looks for the last layer before a graph is built: to build a graph of many missing layers, only
// to refuse it, would take long.
tern_status tern_arch_check_layers(const tern_file *file, const tern_arch *arch,
                                   const tern_config *c, tern_error *err) {
    char name[TERN_NAME_BYTES] = "", wanted[TERN_NAME_BYTES] = "";
    for (const tern_tensor_row *t = arch->tensors; t->gguf; t++) {
        if (!strstr(t->gguf, "%d") || !fill(t->gguf, (int)c->n_layers - 1, name, sizeof name))
            continue;
        if (tern_arch_tensor(file, arch, name)) return TERN_OK;
        if (!wanted[0]) memcpy(wanted, name, sizeof wanted); // for the message
    }
    return tern_fail(err, TERN_ERR_FORMAT,
                     "tensor %s is missing: the config has %" PRId64 " layers", wanted,
                     c->n_layers);
}

bool tern_tensor_is_vision(const char *gguf_name) {
    return strncmp(gguf_name, "v.", 2) == 0 || strncmp(gguf_name, "mm.", 3) == 0;
}
