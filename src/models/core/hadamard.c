// Weights in a rotated basis, as GGUF files declare them under prism.hadamard.*: which weights, and
// which rotation. Anything unknown is refused: without its rotation a model runs, but writes
// nonsense.
//
//   version           1 or 2
//   block_size        a power of two
//   transform         "normalized-sylvester-walsh-hadamard"
//   axis              "input-last-dimension"
//   sign_mode         "identity", or "explicit":
//   sign_widths       numbers of columns, and
//   sign_values       for each of them as many +1 and -1, one after the other
//   weight_names      matrices W stored so that y = W H(s * x)
//   inverse_weight_names    tables stored so that a row is s * H(what is stored); as a head, such a
//                     table is multiplied with H(s * x)
//   gdn_v_grouped     a delta net's output projection reads value heads in Hugging Face's order
//   tied_output       the head is the table
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "models/models.h"

#define PREFIX "prism.hadamard."

typedef struct contract {
    const tern_file *file;
    const tern_arch *arch;
    const tern_config *config;
    int64_t block;
    bool has_signs, grouped;
    const tern_meta *widths, *values, *names, *inverse; // the last may be NULL
    bool *is_used;                                      // by name
} contract;

static const char *const known[] = {"version",       "block_size",   "transform",
                                    "axis",          "sign_mode",    "sign_widths",
                                    "sign_values",   "weight_names", "inverse_weight_names",
                                    "gdn_v_grouped", "tied_output"};

static tern_status refuse(const char *key, const char *why, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     PREFIX "%s %s: the weights are in a rotated basis that is not understood", key,
                     why);
}

bool tern_arch_is_rotated(const tern_file *file) {
    for (size_t i = 0; i < file->n_metas; i++)
        if (strncmp(file->metas[i].key, PREFIX, strlen(PREFIX)) == 0) return true;
    return false;
}

tern_status tern_arch_copy_rotation(const tern_file *file, tern_gguf_writer *w) {
    for (size_t i = 0; i < file->n_metas; i++)
        if (strncmp(file->metas[i].key, PREFIX, strlen(PREFIX)) == 0)
            TERN_TRY(tern_gguf_put_meta(w, &file->metas[i]));
    return TERN_OK;
}

static tern_status refuse_unknown_keys(const tern_file *file, tern_error *err) {
    for (size_t i = 0; i < file->n_metas; i++) {
        const char *key = file->metas[i].key;
        if (strncmp(key, PREFIX, strlen(PREFIX)) != 0) continue;
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(key + strlen(PREFIX), known[k]) != 0) k++;
        if (k == sizeof known / sizeof *known)
            return refuse(key + strlen(PREFIX), "is not known", err);
    }
    return TERN_OK;
}

static const tern_meta *find_array(const tern_file *file, const char *key, bool of_strings) {
    const tern_meta *m = tern_file_meta(file, key);
    if (!m || m->type != TERN_META_ARRAY) return NULL;
    return (m->strings != NULL) == of_strings || m->n == 0 ? m : NULL;
}

// Where the signs of a width begin among the values; -1: none.
static int64_t find_signs(const tern_meta *widths, int64_t width) {
    double at = 0, each = 0;
    for (uint64_t i = 0; i < widths->n; i++, at += each) {
        if (!tern_meta_element(widths, i, &each) || !(each >= 1 && each <= 1 << 24)) return -1;
        if ((int64_t)each == width) return (int64_t)at;
    }
    return -1;
}

static tern_status read_signs(contract *r, tern_error *err) {
    tern_str mode = {0};
    double sum = 0, each = 0;
    tern_file_meta_str(r->file, PREFIX "sign_mode", &mode);
    r->has_signs = tern_str_is(mode, "explicit");
    if (!r->has_signs)
        return tern_str_is(mode, "identity") ? TERN_OK
                                             : refuse("sign_mode", "is not a known mode", err);
    r->widths = find_array(r->file, PREFIX "sign_widths", false);
    r->values = find_array(r->file, PREFIX "sign_values", false);
    if (!r->widths || !r->values) return refuse("sign_mode", "is explicit, without signs", err);
    for (uint64_t i = 0; i < r->widths->n; i++)
        if (tern_meta_element(r->widths, i, &each)) sum += each;
    if (sum != (double)r->values->n)
        return refuse("sign_values", "are not as many as sign_widths say", err);
    for (uint64_t i = 0; i < r->values->n; i++)
        if (!tern_meta_element(r->values, i, &each) || fabs(each) != 1)
            return refuse("sign_values", "has a number that is neither 1 nor -1", err);
    return TERN_OK;
}

static tern_status read_contract(contract *r, tern_error *err) {
    const tern_file *f = r->file;
    int64_t version = 0;
    tern_str text = {0};
    TERN_TRY(refuse_unknown_keys(f, err));
    if (!tern_file_meta_int(f, PREFIX "version", &version) || version < 1 || version > 2)
        return refuse("version", "is neither 1 nor 2", err);
    if (!tern_file_meta_int(f, PREFIX "block_size", &r->block) || r->block < 1 ||
        r->block > 1 << 20 || (r->block & (r->block - 1)))
        return refuse("block_size", "is not a power of two", err);
    tern_file_meta_str(f, PREFIX "transform", &text);
    if (!tern_str_is(text, "normalized-sylvester-walsh-hadamard"))
        return refuse("transform", "is not a known one", err);
    text = (tern_str){0};
    tern_file_meta_str(f, PREFIX "axis", &text);
    if (!tern_str_is(text, "input-last-dimension"))
        return refuse("axis", "is not a known one", err);
    TERN_TRY(read_signs(r, err));
    r->names = find_array(f, PREFIX "weight_names", true);
    r->inverse = find_array(f, PREFIX "inverse_weight_names", true);
    if (!r->names) return refuse("weight_names", "is missing", err);
    if (tern_file_meta(f, PREFIX "gdn_v_grouped") &&
        !tern_file_meta_bool(f, PREFIX "gdn_v_grouped", &r->grouped))
        return refuse("gdn_v_grouped", "is not a boolean", err);
    return TERN_OK;
}

// The index of a name in a list, or -1.
static int64_t find_name(const tern_meta *list, const char *name) {
    for (uint64_t i = 0; list && i < list->n; i++)
        if (tern_str_is(list->strings[i], name)) return (int64_t)i;
    return -1;
}

static tern_status rotation_of(void *ctx, const tern_value *w, bool after_table, bool *is,
                               tern_rotation *out, tern_error *err) {
    contract *r = ctx;
    int64_t at = find_name(r->names, w->name);
    bool inverse = find_name(r->inverse, w->name) >= 0;
    *is = inverse || (at >= 0 && !after_table);
    if (at >= 0 && !after_table) r->is_used[at] = true;
    if (!*is) return TERN_OK;
    if (w->cols % r->block)
        return tern_fail(err, TERN_ERR_FORMAT,
                         PREFIX "block_size: the %lld columns of %s are not whole blocks of %lld",
                         (long long)w->cols, w->name, (long long)r->block);
    if (r->has_signs && find_signs(r->widths, w->cols) < 0)
        return tern_fail(err, TERN_ERR_FORMAT, PREFIX "sign_widths has no %lld, which %s needs",
                         (long long)w->cols, w->name);
    *out = (tern_rotation){
        .block = (int32_t)r->block, .has_signs = r->has_signs, .inverse = after_table};
    const tern_tensor_row *row = tern_arch_row(r->arch, w->name);
    const tern_delta_attrs *d = &r->config->delta;
    if (!r->grouped || !row || row->columns != TERN_ORDER_V_HEADS) return TERN_OK;
    out->groups = d->n_k_heads;
    out->repeats = d->n_v_heads / d->n_k_heads;
    out->each = d->v_dim;
    return TERN_OK;
}

// A listed weight that no product reads would be half of a rotation.
static tern_status check_used(const contract *r, tern_error *err) {
    for (uint64_t i = 0; i < r->names->n; i++) {
        char name[TERN_NAME_BYTES];
        tern_str s = r->names->strings[i];
        if (r->is_used[i]) continue;
        size_t n = s.len < sizeof name - 1 ? s.len : sizeof name - 1;
        memcpy(name, s.ptr, n);
        name[n] = 0;
        if (tern_arch_ignores(r->file, r->arch, r->config, name)) continue;
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         PREFIX "weight_names has %s, which a %s does not multiply with", name,
                         r->arch->name);
    }
    return TERN_OK;
}

tern_status tern_arch_rotate(tern_graph *g, const tern_file *file, const tern_arch *arch,
                             const tern_config *c, tern_error *err) {
    contract r = {.file = file, .arch = arch, .config = c};
    if (!tern_arch_is_rotated(file)) return TERN_OK;
    TERN_TRY(read_contract(&r, err));
    r.is_used = tern_alloc_array(TERN_MEM_GRAPH, (size_t)r.names->n + 1, sizeof *r.is_used);
    if (!r.is_used) return tern_fail_memory(err, (size_t)r.names->n);
    tern_status status = tern_pass_rotate(g, rotation_of, &r, err);
    if (status == TERN_OK) status = check_used(&r, err);
    tern_free(r.is_used);
    return status;
}

bool tern_tensor_is_sign(const char *name) { return strncmp(name, "hadamard.sign.", 14) == 0; }

tern_status tern_arch_signs(const tern_file *file, int64_t width, float **out, tern_error *err) {
    const tern_meta *widths = find_array(file, PREFIX "sign_widths", false);
    const tern_meta *values = find_array(file, PREFIX "sign_values", false);
    int64_t first = widths && values ? find_signs(widths, width) : -1;
    if (first < 0) return refuse("sign_widths", "lacks a width", err);
    float *x = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)width, sizeof *x);
    if (!x) return tern_fail_memory(err, (size_t)width * sizeof *x);
    for (int64_t i = 0; i < width; i++) {
        double sign = 1;
        tern_meta_element(values, (uint64_t)(first + i), &sign);
        x[i] = (float)sign;
    }
    *out = x;
    return TERN_OK;
}
