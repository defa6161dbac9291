// How numbers differ between the two formats: the order of rows or columns, and a few values. Both
// loading and conversion use this.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "models/models.h"

// ---- Orders ------------------------------------------------------------------------------------

// All known orders transpose: RoPE's pairs are [2][half] rows of a head in one format and [half][2]
// in the other, value heads [key heads][repeats] and [repeats][key heads].
static tern_order order_of(tern_order_kind kind, const tern_config *c) {
    const tern_delta_attrs *d = &c->delta;
    int64_t groups = d->n_k_heads, repeats = groups ? d->n_v_heads / groups : 0;
    switch (kind) {
    case TERN_ORDER_ROPE: return (tern_order){0, 2, c->head_dim / 2, 1};
    case TERN_ORDER_V_HEADS: return (tern_order){0, groups, repeats, d->v_dim};
    case TERN_ORDER_V_EACH: return (tern_order){0, groups, repeats, 1};
    case TERN_ORDER_QKV: return (tern_order){2 * groups * d->head_dim, groups, repeats, d->v_dim};
    case TERN_ORDER_COLORS: return (tern_order){0, c->vision.n_patch * c->vision.n_patch, 3, 1};
    case TERN_ORDER_SAME: break;
    }
    return (tern_order){0};
}

tern_moves tern_arch_moves(const tern_arch *arch, const tern_config *c, const char *gguf_name) {
    const tern_tensor_row *row = tern_arch_row(arch, gguf_name);
    if (!row) return (tern_moves){0};
    return (tern_moves){order_of(row->rows, c), order_of(row->columns, c)};
}

int64_t tern_order_source(const tern_order *o, int64_t row, bool to_gguf) {
    if (o->a == 0 || row < o->first) return row;
    int64_t in = row - o->first, group = o->a * o->b * o->unit, base = in - in % group;
    int64_t block = in % group / o->unit, rest = in % o->unit;
    int64_t from =
        to_gguf ? block % o->a * o->b + block / o->a : block % o->b * o->a + block / o->b;
    return o->first + base + from * o->unit + rest;
}

void tern_order_columns(const tern_order *o, bool to_gguf, float *row, int64_t n, float *scratch) {
    if (o->a == 0) return;
    memcpy(scratch, row, (size_t)n * sizeof *row);
    for (int64_t i = 0; i < n; i++) row[i] = scratch[tern_order_source(o, i, to_gguf)];
}

// ---- Numbers -----------------------------------------------------------------------------------

tern_change tern_arch_change(const tern_file *file, const tern_tensor_row *row) {
    bool is_done = file->norms_are_ready && row->change == TERN_CHANGE_PLUS_ONE;
    return is_done ? TERN_CHANGE_NONE : row->change;
}

// The logarithm, rounded to float, of a float's exponential is that float again.
void tern_change_apply(tern_change change, bool to_gguf, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (change == TERN_CHANGE_PLUS_ONE) x[i] += to_gguf ? 1 : -1;
        if (change == TERN_CHANGE_MINUS_EXP)
            x[i] = (float)(to_gguf ? -exp((double)x[i]) : log(-(double)x[i]));
    }
}

// Pads rows with zeros to a multiple of 4 columns, in place, from the last row to the first.
static tern_status pad(const tern_tensor *t, float **out, tern_error *err) {
    bool flat = t->n_dims == 2;
    size_t n = (size_t)(flat ? t->ne[0] : t->ne[0] * t->ne[1]);
    size_t n_rows = (size_t)(flat ? t->ne[1] : t->ne[2]), width = (n + 3) / 4 * 4;
    float *x = tern_alloc_array(TERN_MEM_WEIGHTS, n_rows * width, sizeof *x);
    if (!x) return tern_fail_memory(err, n_rows * width * sizeof *x);
    tern_status status = tern_tensor_decode(t, x, err);
    for (size_t i = n_rows; status == TERN_OK && i-- > 0;) {
        memmove(x + i * width, x + i * n, n * sizeof *x);
        memset(x + i * width + n, 0, (width - n) * sizeof *x);
    }
    if (status == TERN_OK)
        *out = x;
    else
        tern_free(x);
    return status;
}

static tern_status turn(const tern_tensor *t, float **out, tern_error *err) {
    size_t n_cols = (size_t)t->ne[0], n_rows = (size_t)t->ne[1], n = n_cols * n_rows;
    float *x = tern_alloc_array(TERN_MEM_MISC, n, sizeof *x);
    float *turned = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *turned);
    tern_status status =
        x && turned ? tern_tensor_decode(t, x, err) : tern_fail_memory(err, n * sizeof *x);
    for (size_t i = 0; status == TERN_OK && i < n; i++)
        turned[i % n_cols * n_rows + i / n_cols] = x[i];
    tern_free(x);
    if (status == TERN_OK)
        *out = turned;
    else
        tern_free(turned);
    return status;
}

tern_status tern_arch_numbers(const tern_file *file, const tern_arch *arch, const tern_tensor *t,
                              const char *gguf_name, float **out, tern_error *err) {
    const tern_tensor_row *row = tern_arch_row(arch, gguf_name);
    tern_change change = row ? tern_arch_change(file, row) : TERN_CHANGE_NONE;
    bool shaped = change >= TERN_CHANGE_SQUEEZE, hf = file->kind == TERN_FILE_HF;
    *out = NULL;
    if (change == TERN_CHANGE_PADDED) return pad(t, out, err);
    if (change == TERN_CHANGE_TURNED) return turn(t, out, err);
    if (!row || (!row->is_computed && (change == TERN_CHANGE_NONE || shaped))) return TERN_OK;
    if (!row->is_computed && !hf && t->type == TERN_DTYPE_F32) return TERN_OK;
    size_t n = (size_t)(t->ne[0] * t->ne[1] * t->ne[2]);
    float *x = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *x);
    if (!x) return tern_fail_memory(err, n * sizeof *x);
    tern_status status = tern_tensor_decode(t, x, err);
    if (status == TERN_OK && row->is_computed) status = arch->numbers(file, arch, t, x, err);
    if (status != TERN_OK) {
        tern_free(x);
        return status;
    }
    if (hf) tern_change_apply(row->change, true, x, n);
    *out = x;
    return TERN_OK;
}
