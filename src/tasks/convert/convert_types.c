// Which element type each tensor of the output gets, and which architecture name.
//
// Rules, in this order:
// - Ternary weights, and masters that a BitNet rounds when it reads them, are written as codes
// times one scale, in every type of a GGUF, since other programs use floats unrounded. Only a
// folder keeps masters: there config.json asks for the rounding.
// - Embedding and head follow --head-type, else a float --type; else a BitNet's are F16, as the
//   published ones are. Others stay, unless the matrices get fewer bits: then these do, too, as in
//   llama.cpp's files.
// - A mixture gives some matrices more bits (convert_mixtures.c).
// - A type whose blocks do not divide a tensor's rows falls back for this tensor, as in
//   llama.cpp, to a type with smaller blocks.
// - A type that cannot hold the values is refused, and so is a ternary type for other weights.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "tasks/convert/convert_private.h"

static const char *type_name(tern_dtype type) {
    return type == TERN_DTYPE_HF_TERNARY ? "packed ternary" : tern_dtype_name(type);
}

// The one sentence for an impossible type.
static tern_status refuse(const tern_tensor *t, tern_dtype type, const char *why, tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "tensor %s (%s) cannot become %s: %s", t->name,
                     tern_dtype_name(t->type), type_name(type), why);
}

// Ternary weights have one scale. Codes of one or two bits with several scales are other numbers
// than -1, 0 and +1: a type with room for one scale would make them another model.
static tern_status refuse_as_ternary(const tern_tensor *t, tern_dtype type, tern_error *err) {
    const bool has_offsets = tern_dtype_code_max(t->type) > 0; // MLX's, GPTQ's
    const size_t group_n = has_offsets ? tern_dtype_block_n(t->type) : tern_dtype_group_n(t->type);
    char why[160] = "it is not ternary";
    if (group_n)
        snprintf(why, sizeof why,
                 "it has a scale for each group of %zu weights, and ternary weights "
                 "have one for all",
                 group_n);
    return refuse(t, type, why, err);
}

// Whether the conversion may round floats to trits or signs with a scale for each group.
static bool is_forced(const conversion *c) {
    return c->desc->force_ternary && c->has_matrix_type && c->to_gguf &&
           tern_convert_is_forced(c->desc, c->matrix_type);
}

// Whether the conversion turns floats into codes of fewer bits.
static bool gives_fewer_bits(const conversion *c) {
    return c->has_matrix_type && c->to_gguf && (tern_dtype_form_of(c->matrix_type) || is_forced(c));
}

tern_status tern_convert_check_types(conversion *c, tern_error *err) {
    const tern_type asked[] = {c->desc->type, c->desc->head_type};
    for (int i = 0; i < 2; i++) {
        tern_dtype type;
        bool known = tern_type_to_dtype(asked[i], &type);
        if (!known && asked[i] != TERN_TYPE_AUTO)
            return tern_fail(err, TERN_ERR_ARGUMENT, "convert: %d is not an element type",
                             (int)asked[i]);
        if (known && i == 1 && tern_type_is_mixture(asked[i]))
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "convert: %s is for many matrices, and no type for embedding and head",
                             tern_type_name(asked[i]));
        if (known && i == 0 && tern_type_is_mlx(asked[i])) {
            if (!c->to_gguf) continue;
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "GGUF has no type %s: it is of folders",
                             tern_type_name(asked[i]));
        }
        if (known && !c->to_gguf && !tern_dtype_is_float(type) && !tern_dtype_is_ternary(type))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "safetensors have no type %s (they have f32, f16 and bf16, and packed "
                             "ternary weights)",
                             tern_type_name(asked[i]));
        if (known && i == 1 && tern_dtype_is_ternary(type))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "embedding and head are not ternary: they cannot become %s",
                             tern_dtype_name(type));
    }
    c->has_matrix_type = tern_type_to_dtype(c->desc->type, &c->matrix_type);
    if (c->desc->imatrix && !gives_fewer_bits(c))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "convert: an importance matrix says how to round "
                         "to types such as q4_k_m or q8_0; type %s does not",
                         tern_type_name(c->desc->type));
    c->has_head_type = tern_type_to_dtype(c->desc->head_type, &c->head_type);
    return TERN_OK;
}

// ---- Values that a type cannot hold ------------------------------------------------------------

// The greatest magnitude; infinite if a weight is infinite or not a number.
static tern_status find_largest(const item *it, float *largest, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(it->from);
    tern_status status = TERN_OK;
    tern_rows rows;
    if (it->kind.is_ternary) {
        *largest = fabsf(it->kind.scale);
        return TERN_OK;
    }
    float *row = tern_alloc_array(TERN_MEM_MISC, (size_t)m.n_cols, sizeof *row);
    if (!row) return tern_fail_memory(err, (size_t)m.n_cols * sizeof *row);
    *largest = 0;
    tern_rows_open_pieces(&rows, &m);
    for (int64_t r = 0; r < m.n_rows; r++) {
        status = tern_rows_reach(&rows, r, err);
        if (status != TERN_OK) break;
        tern_rows_decode(&rows, r, row);
        for (int64_t i = 0; i < m.n_cols; i++)
            if (!(fabsf(row[i]) <= *largest))
                *largest = isfinite(row[i]) ? fabsf(row[i]) : INFINITY;
    }
    tern_rows_close(&rows);
    tern_free(row);
    tern_blob_drop(&m.data);
    return status;
}

// The greatest number that a type holds: F16's greatest, in blocks times the steps of their scale.
static float limit_of(tern_dtype type) {
    if (type == TERN_DTYPE_F32 || type == TERN_DTYPE_BF16) return INFINITY;
    if (type == TERN_DTYPE_MXFP4) return 12 * 0x1p124f;
    if (type == TERN_DTYPE_Q8_0) return 127 * 65504.0f;
    return tern_dtype_form_of(type) ? 8 * 65504.0f : 65504;
}

// asked: the type was requested, so no other one is acceptable.
static tern_status check_range(const conversion *c, item *it, bool asked, tern_error *err) {
    bool scale_is_float = it->type == TERN_DTYPE_I2_S || it->type == TERN_DTYPE_HF_TERNARY;
    if (isinf(limit_of(it->type)) || scale_is_float || it->type == it->from->type) return TERN_OK;
    float largest = 0;
    TERN_TRY(find_largest(it, &largest, err));
    if (isinf(largest))
        return tern_fail(err, TERN_ERR_FORMAT, "tensor %s has a weight that is not a finite number",
                         it->from->name);
    if (largest <= (it->kind.is_ternary ? 65504 : limit_of(it->type))) return TERN_OK;
    if (asked)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tensor %s (%s) cannot become %s: it has weights up to %g, and %s holds "
                         "%g at most; f32 and bf16 hold them",
                         it->from->name, tern_dtype_name(it->from->type), tern_dtype_name(it->type),
                         (double)largest, tern_dtype_name(it->type), (double)limit_of(it->type));
    tern_dtype other = it->from->type == TERN_DTYPE_BF16 ? TERN_DTYPE_BF16 : TERN_DTYPE_F32;
    tern_convert_note(c, "%s is %s, not %s: it has weights up to %g", it->name,
                      tern_dtype_name(other), tern_dtype_name(it->type), (double)largest);
    it->type = other;
    return TERN_OK;
}

// ---- Blocks and rows ---------------------------------------------------------------------------

// As in llama.cpp. Ternary weights are exact in all of them.
static tern_dtype fall_back(tern_dtype type) {
    switch (type) {
    case TERN_DTYPE_Q4_K: return TERN_DTYPE_Q5_0;
    case TERN_DTYPE_Q5_K: return TERN_DTYPE_Q5_1;
    case TERN_DTYPE_Q6_K: return TERN_DTYPE_Q8_0;
    case TERN_DTYPE_IQ4_XS: return TERN_DTYPE_IQ4_NL;
    case TERN_DTYPE_Q2_K:
    case TERN_DTYPE_Q3_K:
    case TERN_DTYPE_TQ1_0:
    case TERN_DTYPE_TQ2_0:
    case TERN_DTYPE_I2_S: return TERN_DTYPE_Q4_0;
    case TERN_DTYPE_PQ2_0:
    case TERN_DTYPE_PTQ1_0: return TERN_DTYPE_Q2_0;
    default: return TERN_DTYPE_F16;
    }
}

static void fit_rows(conversion *c, item *it) {
    const tern_tensor *t = it->from;
    tern_dtype wanted = it->type;
    uint64_t bytes, n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    if (it->type == TERN_DTYPE_HF_TERNARY) return;
    while (!tern_dtype_bytes(it->type, n, t->ne[0], &bytes)) it->type = fall_back(it->type);
    if (it->type == wanted) return;
    if (c->n_fallbacks++ == 0)
        tern_convert_note(c,
                          "%s is %s, not %s: its rows of %llu weights are not whole blocks of "
                          "%zu; so it is with others of this shape",
                          it->name, tern_dtype_name(it->type), tern_dtype_name(wanted),
                          (unsigned long long)t->ne[0], tern_dtype_block_n(wanted));
}

// ---- Matrices ----------------------------------------------------------------------------------

// A ternary matrix plus something is not ternary. Masters in a folder take the sum as floats, to be
// rounded at each use.
static tern_status allow_merge(const conversion *c, item *it, tern_error *err) {
    bool to_float = !c->has_matrix_type || tern_dtype_is_float(c->matrix_type);
    if (!c->to_gguf && it->kind.mean > 0 && to_float) it->kind.is_ternary = false;
    if (!it->adapter || c->desc->force_ternary || !it->kind.is_ternary) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "tensor %s: an adapter cannot be merged into ternary weights without rounding "
                     "the sum to -1, 0 and +1, which makes another model; load it beside them, "
                     "or force the rounding",
                     it->from->name);
}

// The float type of a folder in place of quantized weights. F16 exactly holds small numbers times a
// group's F16 scale.
static tern_dtype float_for(tern_dtype type) {
    if (tern_dtype_is_float(type)) return type;
    bool in_memory = tern_dtype_ggml_id(type) < 0;
    return tern_dtype_group_n(type) || in_memory ? TERN_DTYPE_F16 : TERN_DTYPE_BF16;
}

// Types that exist only in memory stand for a folder's packing; no file can have them.
static tern_status name_in_memory(conversion *c, item *it, tern_error *err) {
    tern_dtype type = it->type;
    if (type == TERN_DTYPE_NVFP4 && it->from->scale != 1) { // its scale would be left behind
        it->type = TERN_DTYPE_F32;
        if (c->n_rounded++ == 0)
            tern_convert_note(c, "%s is F32: the scale of its NVFP4 is apart; so are others",
                              it->name);
        return TERN_OK;
    }
    if (!c->to_gguf || tern_dtype_ggml_id(type) >= 0) return TERN_OK;
    TERN_TRY(tern_convert_find_group_type(it->from, &it->type, err));
    it->same_codes = it->type != TERN_DTYPE_F16 && !it->moves.columns.a && !it->adapter;
    if (!it->same_codes) it->type = TERN_DTYPE_F16;
    if (it->same_codes || c->n_rounded++ > 0) return TERN_OK;
    tern_convert_note(c, "%s is F16, rounded: no GGUF type has these numbers (%s); so are others",
                      it->name, c->file->packing ? c->file->packing : "packed");
    return TERN_OK;
}

// In a folder: floats, or ternary weights packed.
static tern_status choose_for_folder(const conversion *c, item *it, tern_error *err) {
    bool to_float = c->has_matrix_type && tern_dtype_is_float(c->matrix_type);
    if (it->kind.is_ternary && !to_float) {
        it->type = TERN_DTYPE_HF_TERNARY;
        if (it->from->ne[1] % 4 == 0) return TERN_OK;
        return refuse(it->from, it->type, "packing needs a multiple of four rows", err);
    }
    it->type = to_float ? c->matrix_type : float_for(it->from->type);
    tern_convert_choose_mlx(c, it, it->type);
    return TERN_OK;
}

// A matrix that stays floats.
static void choose_float_type(const conversion *c, item *it) {
    bool as_asked = c->has_matrix_type && tern_dtype_is_float(c->matrix_type);
    it->type = as_asked ? c->matrix_type : it->from->type;
    if (!c->to_gguf) it->type = float_for(it->type);
}

static tern_status choose_matrix_type(conversion *c, item *it, const char *gguf_name,
                                      tern_error *err) {
    if (!c->to_gguf && tern_tensor_is_vision(gguf_name)) { // its matrices are few: floats
        choose_float_type(c, it);
        return TERN_OK;
    }
    tern_matrix m = tern_tensor_matrix(it->from);
    bool ternary_wanted = c->has_matrix_type && tern_dtype_is_ternary(c->matrix_type);
    tern_status status = tern_ternary_find(&m, c->config.bitlinear, &it->kind, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, it->from->name);
    if (c->adapters.n) TERN_TRY(allow_merge(c, it, err));
    // Master weights that stay floats: transformers rounds them itself.
    if (!c->to_gguf && it->kind.mean > 0 && c->has_matrix_type && !ternary_wanted)
        it->kind.is_ternary = false;
    if (ternary_wanted && !it->kind.is_ternary && !is_forced(c))
        return refuse_as_ternary(it->from, c->matrix_type, err);
    if (!c->to_gguf) return choose_for_folder(c, it, err);
    bool mixes = gives_fewer_bits(c) && !it->kind.is_ternary;
    if (c->has_matrix_type) it->type = c->matrix_type;
    if (c->has_matrix_type && mixes) tern_convert_mix(&c->mixing, gguf_name, &it->type);
    if (!c->has_matrix_type) it->type = it->kind.is_ternary ? TERN_DTYPE_I2_S : it->from->type;
    return TERN_OK;
}

// The type that llama.cpp gives to the head, or to a table that is also the head.
static tern_dtype type_of_head(const conversion *c, const item *it) {
    if (c->matrix_type == TERN_DTYPE_MXFP4 || is_forced(c)) return TERN_DTYPE_Q8_0;
    bool whole_blocks = it->from->ne[0] % tern_dtype_block_n(c->matrix_type) == 0;
    bool six = whole_blocks && c->matrix_type != TERN_DTYPE_Q8_0;
    return six ? TERN_DTYPE_Q6_K : TERN_DTYPE_Q8_0;
}

// Embedding and head. is_head: the logits are made with it.
static void choose_head_type(const conversion *c, item *it, bool is_head) {
    bool from_hf = c->file->kind == TERN_FILE_HF;
    bool as_it_is = !c->has_matrix_type && !c->config.bitlinear;
    it->type = it->from->type;
    if (c->has_head_type)
        it->type = c->head_type;
    else if (c->has_matrix_type && tern_dtype_is_float(c->matrix_type))
        it->type = c->matrix_type;
    else if (gives_fewer_bits(c) && !c->config.bitlinear)
        it->type = is_head || is_forced(c) ? type_of_head(c, it) : c->matrix_type;
    else if (from_hf && c->to_gguf && !as_it_is)
        it->type = TERN_DTYPE_F16;
    else if (!c->to_gguf)
        it->type = float_for(it->type);
    if (!c->has_head_type) tern_convert_choose_mlx(c, it, it->type);
}

// A product with a factor has more digits than F16 holds, so it is F32 unless another type was
// requested.
static void fold(conversion *c, item *it, const char *name) {
    bool is_folded = false;
    for (int64_t row = 0; !is_folded && row < (int64_t)it->from->ne[1]; row++)
        is_folded = c->arch->folded(&c->config, name, row) != 1;
    if (!is_folded) return;
    snprintf(it->folded, sizeof it->folded, "%s", name);
    it->kind = (tern_ternary_kind){0};
    it->same_codes = false;
    bool head = !it->is_layer, asked = c->has_matrix_type || (head && c->has_head_type);
    if (asked || it->type == TERN_DTYPE_F32) return;
    it->type = TERN_DTYPE_F32;
    if (c->n_folded++ == 0)
        tern_convert_note(c, "%s is F32: GGUF has factors of config.json in it; so are others",
                          it->name);
}

static bool makes_logits(const conversion *c, const tern_tensor_row *row) {
    return row->role == TERN_ROLE_HEAD ||
           (c->config.tied_head && strcmp(row->gguf, "token_embd.weight") == 0);
}

// The importance of a matrix's columns, if the type can use it.
static tern_status find_importance(conversion *c, item *it, tern_error *err) {
    const tern_importance *m = tern_importances_find(&c->importances, it->name);
    const uint64_t *ne = it->from->ne;
    uint64_t n_parts = ne[2] * ne[3];
    const bool is_rounded =
        tern_dtype_form_of(it->type) || tern_convert_is_forced(c->desc, it->type);
    if (!m || !is_rounded || it->kind.is_ternary) return TERN_OK;
    if (m->n != ne[0] && (m->n / ne[0] != n_parts || m->n % ne[0]))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: %s has %zu numbers, and the tensor %llu columns in %llu parts",
                         c->desc->imatrix, it->name, m->n, (unsigned long long)ne[0],
                         (unsigned long long)n_parts);
    it->importance = m->means;
    it->importance_of_parts = m->n != ne[0];
    c->n_important++;
    return TERN_OK;
}

tern_status tern_convert_choose_type(conversion *c, item *it, tern_error *err) {
    char buffer[128];
    const tern_tensor *t = it->from;
    const char *name = tern_convert_gguf_name(c, t, buffer, sizeof buffer);
    const tern_tensor_row *row = tern_arch_row(c->arch, name);
    bool head = row && (row->role == TERN_ROLE_TABLE || row->role == TERN_ROLE_HEAD);
    it->adapter = tern_adapters_find(&c->adapters, name);
    it->to_gguf = c->to_gguf;
    if ((c->file->kind == TERN_FILE_HF) == c->to_gguf && row) {
        it->moves = tern_arch_moves(c->arch, &c->config, name);
        it->change = tern_arch_change(c->file, row);
        it->is_column = row->gguf_column;
        it->taps = row->taps;
    } else if (row && row->change != tern_arch_change(c->file, row)) {
        it->change = row->change; // a folder's, from a GGUF, where it is already done
    }
    // Norms and other small numbers: exact, and every loader expects this.
    if (t->n_dims < 2 || (row && row->role == TERN_ROLE_VECTOR)) {
        it->type = c->to_gguf || !tern_dtype_is_float(t->type) ? TERN_DTYPE_F32 : t->type;
        return TERN_OK;
    }
    it->is_layer = !head;
    if (row && row->role == TERN_ROLE_FLOATS)
        choose_float_type(c, it);
    else if (head)
        choose_head_type(c, it, makes_logits(c, row));
    else
        TERN_TRY(choose_matrix_type(c, it, name, err));
    TERN_TRY(name_in_memory(c, it, err));
    if (c->to_gguf && c->file->kind == TERN_FILE_HF && c->arch->folded) fold(c, it, name);
    fit_rows(c, it);
    TERN_TRY(find_importance(c, it, err));
    TERN_TRY(check_range(c, it, head ? c->has_head_type || c->has_matrix_type : true, err));
    return TERN_OK;
}

void tern_convert_note_rounding(conversion *c) {
    for (size_t i = 0; i < c->n_items; i++) {
        const item *it = &c->items[i];
        bool was_rounded = it->from && !tern_dtype_is_float(it->from->type) && !it->kind.is_ternary;
        if (!was_rounded || it->same_codes || it->type == it->from->type ||
            tern_dtype_is_float(it->type))
            continue;
        tern_convert_note(c,
                          "weights that were rounded are rounded again (%s from %s to %s); from "
                          "the model in floats less would be lost",
                          it->name, tern_dtype_name(it->from->type), type_name(it->type));
        return;
    }
}

// ---- What the file says of itself --------------------------------------------------------------

int64_t tern_convert_file_type(const conversion *c) {
    if (gives_fewer_bits(c)) return tern_type_file_type(c->desc->type);
    uint64_t n_weights[TERN_DTYPE_COUNT] = {0};
    int most = TERN_DTYPE_F32;
    for (size_t i = 0; i < c->n_items; i++) {
        const item *it = &c->items[i];
        if (it->is_layer) n_weights[it->type] += it->from->ne[0] * it->from->ne[1];
    }
    for (int type = 0; type < TERN_DTYPE_COUNT; type++)
        if (n_weights[type] > n_weights[most]) most = type;
    return tern_dtype_file_type((tern_dtype)most);
}

// The activation that other programs compute for an architecture name, whatever the keys say.
static tern_act_kind act_of_name(const conversion *c, const char *name) {
    static const tern_config none = {0};
    const char *guess = NULL;
    return c->arch->gguf_act ? c->arch->gguf_act(name, &none, &guess) : c->arch->act;
}

static bool is_name_of(const tern_arch *arch, const char *name) {
    for (const char *const *n = arch->gguf_names; *n; n++)
        if (strcmp(*n, name) == 0) return true;
    return false;
}

static tern_status refuse_arch(const conversion *c, const char *asked, tern_error *err) {
    tern_strbuf list = {0};
    for (const char *const *n = c->arch->gguf_names; *n; n++)
        if (act_of_name(c, *n) == c->config.act || !c->arch->gguf_names[1])
            tern_strbuf_printf(&list, "%s%s", list.len ? ", " : "", *n);
    if (list.failed) {
        tern_strbuf_free(&list);
        return tern_fail_memory(err, 64);
    }
    tern_fail(err, TERN_ERR_ARGUMENT,
              "architecture '%.64s' would be another model: this one is a "
              "%s with %s, which can be written as %s",
              asked, c->arch->name, tern_act_name(c->config.act),
              list.len ? list.ptr : c->arch->gguf_names[0]);
    tern_strbuf_free(&list);
    return TERN_ERR_ARGUMENT;
}

tern_status tern_convert_choose_arch(conversion *c, tern_error *err) {
    const char *const *names = c->arch->gguf_names;
    const char *asked = c->desc->arch;
    tern_str own = {NULL, 0};
    if (asked && !c->to_gguf)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "architecture '%.64s': only GGUF files have such "
                         "a name; a folder's model_type is %s",
                         asked, c->arch->hf_types[0]);
    if (!c->to_gguf) return TERN_OK;
    c->arch_name = names[0];
    for (int i = 0; names[i] && act_of_name(c, c->arch_name) != c->config.act; i++)
        c->arch_name = names[i];
    bool none_fits = act_of_name(c, c->arch_name) != c->config.act;
    if (none_fits) c->arch_name = names[0];
    // A file keeps its name; a training checkpoint becomes an ordinary model.
    if (!tern_file_meta(c->file, "tern.train.step"))
        tern_file_meta_str(c->file, "general.architecture", &own);
    for (int i = 0; own.ptr && names[i]; i++)
        if (tern_str_is(own, names[i])) c->arch_name = names[i];
    if (asked) {
        bool fits =
            is_name_of(c->arch, asked) && (none_fits || act_of_name(c, asked) == c->config.act);
        if (!fits) return refuse_arch(c, asked, err);
        c->arch_name = asked;
    }
    if (act_of_name(c, c->arch_name) != c->config.act)
        tern_convert_note(
            c, "programs other than tern compute %s for architecture %s, but this model has %s",
            tern_act_name(act_of_name(c, c->arch_name)), c->arch_name,
            tern_act_name(c->config.act));
    return TERN_OK;
}
