// DoRA (arXiv:2402.09353): an adapter with a magnitude m for each row of its matrix, which becomes
//
//   row i of W + B A, times m_i / |row i of W + B A|.
#include <math.h>
#include <stdio.h>
#include "base/alloc.h"
#include "base/dtype/ternary.h"
#include "models/core/adapter.h"

// NULL: the file has none.
static const char *end_of_names(const tern_adapter_reader *r) {
    if (r->file->kind == TERN_FILE_GGUF) return ".lora_m";
    return r->is_dora ? ".lora_magnitude_vector" : NULL;
}

void tern_dora_find(const tern_adapter_reader *r, const char *name, tern_adapter_parts *of) {
    const char *end = end_of_names(r);
    char tensor[192];
    if (!end) return;
    snprintf(tensor, sizeof tensor, "%s%s", name, end);
    of->magnitudes = tern_file_tensor(r->file, tensor);
}

bool tern_dora_cut(const tern_adapter_reader *r, const char *tensor, char *front, size_t size) {
    const char *end = end_of_names(r);
    return end && tern_adapter_cut_end(tensor, end, front, size);
}

// The factors are those of one matrix W + B A: nothing can be added to it, and no session's scale
// changes it.
tern_status tern_dora_check(const tern_adapter_reader *r, const tern_adapter_parts *of,
                            const tern_adapter *before, const char *weight, tern_error *err) {
    const tern_tensor *m = of->magnitudes;
    const tern_tensor_row *row = tern_arch_row(r->arch, weight);
    if (before && (m || before->magnitudes))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s: %s has two adapters: one of DoRA cannot be added to another",
                         of->a->name, weight);
    if (!r->is_dora && !m) return TERN_OK;
    if (!m)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s has no lora_magnitude_vector beside it, but use_dora is on",
                         of->a->name);
    if (r->set->apart)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "an adapter of DoRA: sessions cannot choose it; "
                         "merge it into the model (tern convert --lora)");
    if (tern_arch_is_rotated(r->base) || (row && row->change != TERN_CHANGE_NONE))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s: %s is stored in another form, beside which DoRA is not "
                         "supported",
                         m->name, weight);
    if (m->n_dims != 1 || m->ne[0] != of->b->ne[1] || !tern_dtype_is_float(m->type))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s (%s, %llu numbers) is not a vector of the %llu rows' floats",
                         m->name, tern_dtype_name(m->type), (unsigned long long)m->ne[0],
                         (unsigned long long)of->b->ne[1]);
    return TERN_OK;
}

tern_status tern_dora_read(const tern_adapter_reader *r, const tern_adapter_parts *of,
                           tern_adapter *p, tern_error *err) {
    const tern_tensor *t = of->magnitudes;
    size_t n = (size_t)p->n_out;
    tern_moves moves = {0};
    tern_hold h;
    bool is_whole = true;
    if (r->file->kind != r->base->kind) moves = tern_arch_moves(r->arch, r->config, p->weight);
    p->magnitudes = tern_alloc_array(TERN_MEM_WEIGHTS, n, sizeof *p->magnitudes);
    if (!p->magnitudes) return tern_fail_memory(err, n * sizeof *p->magnitudes);
    TERN_TRY(tern_blob_hold(&t->data, &h, err));
    for (size_t i = 0; i < n; i++) {
        int64_t from = tern_order_source(&moves.rows, (int64_t)i, r->base->kind == TERN_FILE_GGUF);
        tern_dtype_decode(t->type, h.data, (uint64_t)from, 1, t->scale, &p->magnitudes[i]);
        is_whole &= isfinite(p->magnitudes[i]) != 0;
    }
    tern_blob_release(&h);
    return tern_adapter_refuse_damaged(t, is_whole, err);
}

static double factor_of(const tern_adapter *p, int64_t row, const float *sum) {
    const float length = tern_row_length(sum, (size_t)p->n_in);
    if (length == 0) return 0; // a row of zeros has no direction
    return (double)p->magnitudes[row] / (double)length;
}

void tern_dora_scale(const tern_adapter *p, int64_t row, float *sum) {
    const double factor = factor_of(p, row, sum);
    for (int64_t i = 0; i < p->n_in; i++) sum[i] = (float)((double)sum[i] * factor);
}

// W as products read it: code * scale where that is ternary, also if the file has masters.
static tern_status fill_factors(tern_adapter *p, const tern_matrix *w,
                                const tern_ternary_kind *kind, float *row, tern_error *err) {
    tern_codes codes;
    bool is_whole = true;
    TERN_TRY(tern_codes_open(&codes, w, kind, false, err));
    for (int64_t i = 0; i < p->n_out; i++) {
        tern_codes_decode(&codes, kind, i, row);
        tern_adapter_add_row(p, i, row);
        p->factors[i] = (float)factor_of(p, i, row);
        is_whole &= isfinite(p->factors[i]) != 0;
    }
    tern_codes_close(&codes);
    if (is_whole) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "tensor %s: a row's norm with the adapter gives no factor (NaN or infinite)",
                     p->weight);
}

tern_status tern_adapters_find_factors(tern_adapters *set, const tern_file *base,
                                       const tern_arch *arch, const tern_config *c,
                                       tern_error *err) {
    for (size_t i = 0; i < set->n; i++) {
        tern_adapter *p = &set->list[i];
        tern_ternary_kind kind;
        if (!p->magnitudes) continue;
        tern_matrix w = tern_tensor_matrix(tern_arch_tensor(base, arch, p->weight));
        TERN_TRY(tern_ternary_find(&w, c->bitlinear, &kind, err));
        p->factors = tern_alloc_array(TERN_MEM_WEIGHTS, (size_t)p->n_out, sizeof *p->factors);
        float *row = tern_alloc_array(TERN_MEM_MISC, (size_t)p->n_in, sizeof *row);
        tern_status status =
            p->factors && row ? fill_factors(p, &w, &kind, row, err)
                              : tern_fail_memory(err, (size_t)(p->n_in + p->n_out) * sizeof *row);
        tern_free(row);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

bool tern_adapters_has_factors(const void *set, const char *name) {
    const tern_adapter *p = tern_adapters_find(set, name);
    return p && p->factors;
}
