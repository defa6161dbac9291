// Finds the packed matrices of a folder, by config.json and its tensors, and replaces each by one
// tensor: "x.weight", of a type that kernels read (hf_packed.h).
//
// Numbers of bits and groups follow from the sizes of tensors where possible, so that variants need
// no special rules; config.json decides the rest.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/hf/hf_packed.h"

typedef struct finder {
    tern_file *file;
    const tern_json_doc *doc; // config.json, or an older program's file
    tern_json_doc side;
    const tern_json *settings;
    bool *gone; // [n_tensors]: belongs to a matrix taken
    tern_strbuf name;
    bool no_memory; // for a name: a tensor not found may still exist
    uint32_t bits;  // the widths seen, a bit each
    uint64_t group_min, group_max;
    size_t n_found;
    tern_error *err;
} finder;

// ---- Settings ----------------------------------------------------------------------------------

static const tern_json *setting(const finder *f, const char *key) {
    return tern_json_get(f->doc, f->settings, key);
}

static int64_t setting_int(const finder *f, const char *key, const char *or_key) {
    const tern_json *v = setting(f, key);
    return tern_json_int(v ? v : setting(f, or_key), 0);
}

static tern_status refuse_setting(const finder *f, const char *key, tern_str value) {
    return tern_fail(f->err, TERN_ERR_UNSUPPORTED, "config.json: %s \"%.*s\" is not supported", key,
                     (int)(value.len < 40 ? value.len : 40), value.ptr ? value.ptr : "");
}

// ---- Tensors -----------------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n > n_end && strcmp(name + n - n_end, end) == 0;
}

// The tensor with t's name, but `other` instead of `end`.
static tern_tensor *sibling(finder *f, const tern_tensor *t, const char *end, const char *other) {
    tern_strbuf_clear(&f->name);
    tern_strbuf_append(&f->name, t->name, strlen(t->name) - strlen(end));
    tern_strbuf_printf(&f->name, "%s", other);
    f->no_memory |= f->name.failed;
    if (f->name.failed) return NULL;
    const tern_tensor *found = tern_file_tensor(f->file, f->name.ptr);
    return found ? &f->file->tensors[found - f->file->tensors] : NULL;
}

static void leave_out(finder *f, const tern_tensor *t) {
    if (t) f->gone[t - f->file->tensors] = true;
}

static bool has_shape(const tern_tensor *t, uint64_t rows, uint64_t cols) {
    return t->ne[0] == cols && t->ne[1] == rows && t->ne[2] == 1 && t->ne[3] == 1;
}

static tern_status misfit(const finder *f, const tern_tensor *t, const char *what) {
    return tern_fail(f->err, TERN_ERR_FORMAT, "tensor '%s' is %s [%llu, %llu]: %s", t->name,
                     tern_dtype_name(t->type), (unsigned long long)t->ne[1],
                     (unsigned long long)t->ne[0], what);
}

static tern_status missing(const finder *f, const tern_tensor *t, const char *what) {
    if (f->no_memory) return tern_fail_memory(f->err, strlen(t->name));
    return tern_fail(f->err, TERN_ERR_FORMAT, "tensor '%s' is packed, but there is no '%s' of it",
                     t->name, what);
}

// Puts the matrix p, whose sizes agree, in the place of t, the tensor with the codes.
static tern_status put(finder *f, tern_tensor *t, const char *end, const tern_packed *p) {
    tern_packed *kept = tern_arena_take(&f->file->priv->pool, sizeof *kept);
    size_t n = strlen(t->name) - strlen(end);
    char *name = tern_arena_take(&f->file->priv->pool, n + sizeof ".weight");
    if (!kept || !name) return tern_fail_memory(f->err, sizeof *kept + n);
    memcpy(name, t->name, n);
    memcpy(name + n, ".weight", sizeof ".weight");
    *kept = *p;
    tern_status status = tern_packed_settle(kept, f->err);
    if (status != TERN_OK) return tern_fail_prefix(f->err, status, name);
    uint64_t outer = t->n_dims == 3 ? t->ne[2] : 1;
    t->name = name;
    t->type = kept->type;
    t->ne[0] = p->n_cols;
    t->ne[1] = p->n_rows / outer;
    if (__builtin_mul_overflow(p->n_rows, kept->row_bytes, &t->bytes))
        return tern_fail(f->err, TERN_ERR_FORMAT, "tensor '%s' is too large", name);
    t->data = tern_blob_made(&kept->maker, t->bytes);
    f->bits |= 1u << (p->bits & 31);
    if (f->n_found == 0 || p->group < f->group_min) f->group_min = p->group;
    if (p->group > f->group_max) f->group_max = p->group;
    f->n_found++;
    return TERN_OK;
}

// Scales [groups][rows], or [rows][groups] with `stride` of them per row.
static void set_scales(tern_packed *p, const tern_tensor *t, bool by_group, uint64_t stride) {
    p->scales = t->data;
    p->scale_type = t->type;
    p->rows_per_scale = 1;
    p->scale_row = by_group ? 1 : stride;
    p->scale_group = by_group ? p->n_rows : 1;
}

// The group of each column, if it does not follow from the column's place.
static tern_status set_order(finder *f, tern_packed *p, const tern_tensor *t) {
    if (!t) return TERN_OK;
    if (t->type != TERN_DTYPE_I32 || t->n_dims != 1 || t->ne[0] != p->n_cols)
        return misfit(f, t, "not a group for each column");
    uint32_t *list = tern_arena_take(&f->file->priv->pool, (size_t)p->n_cols * sizeof *list);
    if (!list) return tern_fail_memory(f->err, (size_t)p->n_cols * sizeof *list);
    TERN_TRY(tern_blob_read(&t->data, 0, p->n_cols * sizeof *list, list, f->err));
    bool in_order = true;
    for (uint64_t c = 0; c < p->n_cols; c++) {
        if (list[c] >= p->n_groups) return misfit(f, t, "a group that there is not");
        in_order &= list[c] == c / p->group;
    }
    if (!in_order) p->group_of = list;
    leave_out(f, t);
    return TERN_OK;
}

// Columns of a group, by config.json (0: not given; negative: all columns), or by the number of
// groups.
static bool find_group(tern_packed *p, int64_t said, uint64_t n_groups) {
    uint64_t group = said > 0 ? (uint64_t)said : p->n_cols;
    bool agrees = said != 0 && (p->n_cols + group - 1) / group == n_groups;
    p->n_groups = n_groups;
    p->group = agrees ? group : n_groups ? p->n_cols / n_groups : 0;
    return agrees || (n_groups && p->n_cols % n_groups == 0);
}

// ---- MLX ---------------------------------------------------------------------------------------

// A module's settings in config.json: its own object, or the common one.
static const tern_json *module_settings(finder *f, const tern_tensor *t, const char *end) {
    tern_strbuf_clear(&f->name);
    tern_strbuf_append(&f->name, t->name, strlen(t->name) - strlen(end));
    f->no_memory |= f->name.failed;
    const tern_json *own = f->name.failed ? NULL : setting(f, f->name.ptr);
    return tern_json_is(own, TERN_JSON_OBJECT) ? own : f->settings;
}

static tern_status set_mlx_mode(finder *f, tern_packed *p, const tern_json *of,
                                const tern_tensor *scales, const tern_tensor *biases) {
    tern_str mode = tern_json_str(tern_json_get(f->doc, of, "mode"));
    if (!mode.ptr) mode = tern_json_str(setting(f, "mode"));
    if (biases) {
        p->zero = TERN_ZERO_BIAS;
        p->zeros = biases->data;
        if (biases->type == scales->type && tern_dtype_is_float(scales->type) &&
            biases->bytes == scales->bytes)
            return TERN_OK;
        return misfit(f, biases, "not one for each scale, or of another type");
    }
    bool mx8 = tern_str_is(mode, "mxfp8"), nv4 = tern_str_is(mode, "nvfp4");
    if (!mx8 && !nv4 && !tern_str_is(mode, "mxfp4")) return refuse_setting(f, "mode", mode);
    if (scales->type != TERN_DTYPE_U8) return misfit(f, scales, "not scales of a byte");
    p->scale_type = nv4 ? TERN_DTYPE_F8_E4M3 : TERN_DTYPE_U8;
    p->zero = TERN_ZERO_NONE;
    p->is_e2m1 = !mx8;
    p->bits = mx8 ? 8 : 4;
    if (mx8) p->layout = TERN_PACKED_E4M3;
    return TERN_OK;
}

// x.scales, beside x.weight of words.
static tern_status take_mlx(finder *f, const tern_tensor *scales) {
    static const char end[] = ".scales";
    if (!ends_with(scales->name, end)) return TERN_OK;
    tern_tensor *t = sibling(f, scales, end, ".weight");
    tern_tensor *biases = sibling(f, scales, end, ".biases");
    if (!t || t->type != TERN_DTYPE_U32 || t->n_dims < 2) return TERN_OK;
    const tern_json *of = module_settings(f, scales, end);
    tern_packed p = {
        .codes = t->data, .n_rows = t->ne[1] * t->ne[2] * t->ne[3], .row_words = t->ne[0]};
    p.bits = (int)tern_json_int(tern_json_get(f->doc, of, "bits"), setting_int(f, "bits", ""));
    set_scales(&p, scales, false, scales->ne[0]);
    TERN_TRY(set_mlx_mode(f, &p, of, scales, biases));
    if (p.bits < 1 || p.bits == 7 || p.bits > 8 || t->ne[0] > UINT64_MAX / 32)
        return tern_fail(f->err, TERN_ERR_UNSUPPORTED, "tensor '%s': codes of %d bits", t->name,
                         p.bits);
    p.n_cols = t->ne[0] * 32 / (uint64_t)p.bits;
    int64_t said =
        tern_json_int(tern_json_get(f->doc, of, "group_size"), setting_int(f, "group_size", ""));
    bool same_rows = scales->ne[1] * scales->ne[2] * scales->ne[3] == p.n_rows;
    if (!same_rows || !find_group(&p, said, scales->ne[0]) || p.group * p.n_groups != p.n_cols)
        return misfit(f, scales, "not a scale for each group of the weight");
    leave_out(f, scales);
    leave_out(f, biases);
    return put(f, t, ".weight", &p);
}

// ---- GPTQ and AWQ ------------------------------------------------------------------------------

typedef struct columns { // x.qweight and its siblings
    tern_tensor *codes, *zeros, *scales, *order;
} columns;

static tern_status find_columns(finder *f, tern_tensor *t, columns *out) {
    static const char end[] = ".qweight";
    *out = (columns){t, sibling(f, t, end, ".qzeros"), sibling(f, t, end, ".scales"),
                     sibling(f, t, end, ".g_idx")};
    if (!out->zeros) return missing(f, t, "qzeros");
    if (!out->scales) return missing(f, t, "scales");
    if (t->type != TERN_DTYPE_I32 || t->n_dims != 2)
        return misfit(f, t, "not I32 in two dimensions");
    if (out->zeros->type != TERN_DTYPE_I32) return misfit(f, out->zeros, "not I32");
    if (!tern_dtype_is_float(out->scales->type)) return misfit(f, out->scales, "not floats");
    leave_out(f, out->zeros);
    leave_out(f, out->scales);
    return TERN_OK;
}

static tern_status take_gptq(finder *f, tern_tensor *t) {
    columns c;
    if (!ends_with(t->name, ".qweight")) return TERN_OK;
    TERN_TRY(find_columns(f, t, &c));
    tern_str version = tern_json_str(setting(f, "checkpoint_format"));
    if (version.ptr && !tern_str_is(version, "gptq") && !tern_str_is(version, "gptq_v2"))
        return refuse_setting(f, "checkpoint_format", version);
    tern_packed p = {.layout = TERN_PACKED_COLUMNS,
                     .zero = TERN_ZERO_ALONG,
                     .zero_is_less = !tern_str_is(version, "gptq_v2"),
                     .n_rows = t->ne[0],
                     .codes = t->data,
                     .zeros = c.zeros->data};
    uint64_t bits = c.zeros->ne[0] <= UINT32_MAX ? c.zeros->ne[0] * 32 / p.n_rows : 0;
    p.bits = (int)(bits < 9 ? bits : 0);
    if (p.bits != 2 && p.bits != 3 && p.bits != 4 && p.bits != 8)
        return tern_fail(f->err, TERN_ERR_UNSUPPORTED,
                         "tensor '%s': GPTQ's zeros of 2, 3, 4 or 8 "
                         "bits for %llu rows are not %llu words",
                         t->name, (unsigned long long)p.n_rows, (unsigned long long)c.zeros->ne[0]);
    if (t->ne[1] > UINT64_MAX / 32) return misfit(f, t, "too large");
    p.n_cols = t->ne[1] * 32 / bits;
    if (!find_group(&p, setting_int(f, "group_size", ""), c.scales->ne[1]) ||
        !has_shape(c.scales, p.n_groups, p.n_rows))
        return misfit(f, c.scales, "not a scale for each group of the weight");
    if (!has_shape(c.zeros, p.n_groups, (p.n_rows * bits + 31) / 32))
        return misfit(f, c.zeros, "not a zero for each scale");
    set_scales(&p, c.scales, true, 0);
    TERN_TRY(set_order(f, &p, c.order));
    return put(f, t, ".qweight", &p);
}

// [in, out / 8], zeros [groups, out / 8]; or by rows, padded to whole words.
static tern_status take_awq(finder *f, tern_tensor *t) {
    columns c;
    if (!ends_with(t->name, ".qweight")) return TERN_OK;
    TERN_TRY(find_columns(f, t, &c));
    tern_str version = tern_json_str(setting(f, "version"));
    bool said_rows = tern_str_is(version, "gemv") || tern_str_is(version, "GEMV");
    bool said_columns = tern_str_is(version, "gemm") || tern_str_is(version, "GEMM");
    if (version.ptr && !said_rows && !said_columns) return refuse_setting(f, "version", version);
    int64_t bits = setting_int(f, "bits", "w_bit");
    int64_t said = setting_int(f, "group_size", "q_group_size");
    if (bits != 0 && bits != 4)
        return tern_fail(f->err, TERN_ERR_UNSUPPORTED, "config.json: AWQ of %lld bits",
                         (long long)bits);
    bool by_rows = said_rows || (!said_columns && c.zeros->ne[1] == t->ne[1]);
    uint64_t words = t->ne[0], lines = t->ne[1];
    if (words > UINT64_MAX / 32) return misfit(f, t, "too large");
    tern_packed p = {.bits = 4,
                     .codes = t->data,
                     .zeros = c.zeros->data,
                     .layout = by_rows ? TERN_PACKED_ROWS : TERN_PACKED_AWQ,
                     .zero = by_rows ? TERN_ZERO_ROWS : TERN_ZERO_AWQ,
                     .n_rows = by_rows ? lines : words * 8,
                     .n_cols = by_rows ? words * 8 : lines,
                     .row_words = words,
                     .zero_words = c.zeros->ne[0]};
    uint64_t group = said > 0 ? (uint64_t)said : p.n_cols;
    uint64_t n_groups = by_rows ? (p.n_cols + group - 1) / group : c.scales->ne[1];
    bool fits = find_group(&p, said, n_groups);
    if (by_rows)
        fits = fits && n_groups <= c.scales->ne[0] && n_groups <= p.zero_words * 8 &&
               has_shape(c.scales, lines, c.scales->ne[0]) &&
               has_shape(c.zeros, lines, p.zero_words);
    else
        fits =
            fits && has_shape(c.scales, n_groups, p.n_rows) && has_shape(c.zeros, n_groups, words);
    if (!fits) return misfit(f, c.scales, "not a scale and a zero for each group of the weight");
    set_scales(&p, c.scales, !by_rows, c.scales->ne[0]);
    return put(f, t, ".qweight", &p);
}

// ---- compressed-tensors and FP8 ----------------------------------------------------------------

// A scale for all, for each row, for each group of each, or for blocks of rows and columns.
static tern_status set_block_scales(finder *f, tern_packed *p, const tern_tensor *t) {
    const tern_json *block = setting(f, "weight_block_size");
    const tern_json *first = tern_json_first(f->doc, block);
    const tern_json *second = first ? tern_json_next(f->doc, block, first) : NULL;
    uint64_t n_rows = t->n_dims > 1 ? t->ne[1] : t->ne[0], n_groups = t->n_dims > 1 ? t->ne[0] : 1;
    int64_t rows = tern_json_int(first, 128);
    int64_t cols = tern_json_int(second, n_rows == p->n_rows ? 0 : 128);
    if (!tern_dtype_is_float(t->type)) return misfit(f, t, "not floats");
    bool fits = t->ne[2] == 1 && t->ne[3] == 1 && rows > 0 &&
                find_group(p, n_groups == 1 ? -1 : cols, n_groups);
    set_scales(p, t, false, n_groups);
    if (n_rows == 1)
        p->rows_per_scale = p->n_rows;
    else if (n_rows != p->n_rows) {
        p->rows_per_scale = (uint64_t)rows;
        fits = fits && (p->n_rows + (uint64_t)rows - 1) / (uint64_t)rows == n_rows;
    }
    return fits ? TERN_OK : misfit(f, t, "not the scales of the weight's rows or blocks");
}

// x.weight of bytes.
static tern_status take_bytes(finder *f, tern_tensor *t) {
    static const char end[] = ".weight";
    bool is_float = t->type == TERN_DTYPE_F8_E4M3;
    if (!ends_with(t->name, end) || (!is_float && t->type != TERN_DTYPE_I8) || t->n_dims != 2)
        return TERN_OK;
    tern_tensor *scales = sibling(f, t, end, ".weight_scale");
    if (!scales) scales = sibling(f, t, end, ".weight_scale_inv");
    tern_tensor *zeros = sibling(f, t, end, ".weight_zero_point");
    if (!scales) return missing(f, t, "weight_scale");
    tern_packed p = {.bits = 8,
                     .n_rows = t->ne[1],
                     .n_cols = t->ne[0],
                     .codes = t->data,
                     .layout = is_float ? TERN_PACKED_E4M3 : TERN_PACKED_INT8,
                     .zero = is_float ? TERN_ZERO_NONE : TERN_ZERO_MIDDLE};
    TERN_TRY(set_block_scales(f, &p, scales));
    leave_out(f, scales);
    leave_out(f, sibling(f, t, end, ".input_scale"));
    leave_out(f, sibling(f, t, end, ".input_zero_point"));
    if (zeros) {
        if (is_float || zeros->type != TERN_DTYPE_I8 || zeros->bytes != p.n_rows * p.n_groups)
            return misfit(f, zeros, "not a zero of a byte for each scale");
        p.zero = TERN_ZERO_INT8;
        p.zeros = zeros->data;
        leave_out(f, zeros);
    }
    return put(f, t, end, &p);
}

static tern_status set_zero_points(finder *f, tern_packed *p, const tern_tensor *zeros) {
    uint64_t words = (p->n_rows * (uint64_t)p->bits + 31) / 32;
    if (!zeros) return TERN_OK;
    if (zeros->type != TERN_DTYPE_I32 || !has_shape(zeros, words, p->n_groups))
        return misfit(f, zeros, "not a zero for each scale");
    p->zero = TERN_ZERO_DOWN;
    p->zeros = zeros->data;
    leave_out(f, zeros);
    return TERN_OK;
}

static bool fills(uint64_t n_cols, int64_t bits, uint64_t words) {
    return bits >= 2 && bits <= 8 && (n_cols * (uint64_t)bits + 31) / 32 == words;
}

// Bits of a code: those of a config.json group that fill a row's words, else the only number that
// does. 0: none, or several.
static int find_bits(const finder *f, uint64_t n_cols, uint64_t words) {
    const tern_json_doc *doc = f->doc;
    const tern_json *groups = setting(f, "config_groups");
    for (const tern_json *k = tern_json_first(doc, groups); k; k = tern_json_next(doc, groups, k)) {
        const tern_json *weights = tern_json_get(doc, tern_json_value_of(doc, k), "weights");
        int64_t bits = tern_json_int(tern_json_get(doc, weights, "num_bits"), 0);
        if (fills(n_cols, bits, words)) return (int)bits;
    }
    int found = 0;
    for (int bits = 2; bits <= 8; bits++) {
        if (!fills(n_cols, bits, words)) continue;
        if (found) return 0;
        found = bits;
    }
    return found;
}

// x.weight_packed, with x.weight_shape.
static tern_status take_words(finder *f, tern_tensor *t) {
    static const char end[] = ".weight_packed";
    if (!ends_with(t->name, end)) return TERN_OK;
    tern_tensor *scales = sibling(f, t, end, ".weight_scale");
    tern_tensor *shape = sibling(f, t, end, ".weight_shape");
    int64_t size[2];
    if (!scales) return missing(f, t, "weight_scale");
    if (!shape || t->type != TERN_DTYPE_I32)
        return tern_fail(f->err, TERN_ERR_UNSUPPORTED, "tensor '%s': %s codes %s a weight_shape",
                         t->name, tern_dtype_name(t->type), shape ? "with" : "without");
    if (shape->type != TERN_DTYPE_I64 || shape->bytes != sizeof size)
        return misfit(f, shape, "not two I64");
    TERN_TRY(tern_blob_read(&shape->data, 0, sizeof size, size, f->err));
    if (size[0] <= 0 || size[1] <= 0 || size[1] > INT64_MAX / 64 || (uint64_t)size[0] != t->ne[1])
        return misfit(f, t, "not what weight_shape says");
    tern_packed p = {.n_rows = (uint64_t)size[0],
                     .n_cols = (uint64_t)size[1],
                     .codes = t->data,
                     .row_words = t->ne[0]};
    p.bits = find_bits(f, p.n_cols, t->ne[0]);
    if (p.bits == 0) return misfit(f, t, "not what weight_shape and num_bits say");
    TERN_TRY(set_block_scales(f, &p, scales));
    if (p.rows_per_scale != 1 && p.rows_per_scale != p.n_rows)
        return misfit(f, scales, "not the scales of the weight's rows");
    TERN_TRY(set_zero_points(f, &p, sibling(f, t, end, ".weight_zero_point")));
    TERN_TRY(set_order(f, &p, sibling(f, t, end, ".weight_g_idx")));
    leave_out(f, scales);
    leave_out(f, shape);
    return put(f, t, end, &p);
}

static tern_status take_compressed(finder *f, tern_tensor *t) {
    static const char *const known[] = {"pack-quantized",  "int-quantized",   "float-quantized",
                                        "naive-quantized", "mixed-precision", "dense"};
    tern_str format = tern_json_str(setting(f, "format"));
    bool ok = !format.ptr;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) ok |= tern_str_is(format, known[i]);
    if (!ok) return refuse_setting(f, "format", format);
    TERN_TRY(take_words(f, t));
    return ends_with(t->name, ".weight_packed") ? TERN_OK : take_bytes(f, t);
}

static tern_status take_mlx_tensor(finder *f, tern_tensor *t) { return take_mlx(f, t); }

// ---- Folders -----------------------------------------------------------------------------------

typedef struct method {
    const char *name, *text; // quant_method in config.json; in reports
    tern_status (*take)(finder *f, tern_tensor *t);
} method;

static const method methods[] = {
    {"gptq", "GPTQ", take_gptq},
    {"awq", "AWQ", take_awq},
    {"compressed-tensors", "compressed-tensors", take_compressed},
    {"fp8", "FP8", take_bytes},
    {"mlx", "MLX", take_mlx_tensor}, // has no quant_method
};
#define N_METHODS (sizeof methods / sizeof *methods)

// auto-round writes other programs' layouts, and names them.
static tern_str layout_of(const finder *f, tern_str name) {
    tern_str packing = tern_json_str(setting(f, "packing_format"));
    if (!tern_str_is(name, "auto-round")) return name;
    if (tern_str_is(packing, "auto_round:auto_gptq")) return TERN_STR("gptq");
    return tern_str_is(packing, "auto_round:auto_awq") ? TERN_STR("awq") : name;
}

static bool has_columns(const tern_file *file) {
    for (size_t i = 0; i < file->n_tensors; i++)
        if (ends_with(file->tensors[i].name, ".qweight")) return true;
    return false;
}

// Before 2024 the settings were in a file beside config.json.
static tern_status find_side_file(finder *f, const char *folder, const method **out) {
    static const char *const names[] = {"quantize_config.json", "quant_config.json"};
    *out = NULL;
    if (!has_columns(f->file)) return TERN_OK;
    for (size_t i = 0; i < 2 && !*out; i++) {
        TERN_TRY(tern_hf_read_json(f->file, folder, names[i], &f->side, f->err));
        f->settings = tern_json_root(&f->side);
        if (f->settings) *out = &methods[i];
    }
    f->doc = &f->side;
    if (*out) return TERN_OK;
    return tern_fail(f->err, TERN_ERR_UNSUPPORTED,
                     "config.json does not say how the weights (.qweight) are packed");
}

static const method *find_method(finder *f) {
    static const char *const places[] = {"quantization_config", "text_config.quantization_config",
                                         "compression_config"};
    const tern_json_doc *doc = f->doc;
    f->settings = tern_json_path(doc, "quantization");
    if (tern_json_is(f->settings, TERN_JSON_OBJECT)) return &methods[N_METHODS - 1];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        f->settings = tern_json_path(doc, places[i]);
        if (!tern_json_is(f->settings, TERN_JSON_OBJECT)) continue;
        tern_str name = tern_json_str(setting(f, "quant_method"));
        if (!name.ptr && setting(f, "group_size")) name = TERN_STR("mlx");
        name = layout_of(f, name);
        for (size_t k = 0; k < N_METHODS; k++)
            if (tern_str_is(name, methods[k].name)) return &methods[k];
    }
    return NULL;
}

static void close_gaps(finder *f) {
    tern_file *file = f->file;
    size_t kept = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        if (!f->gone[i]) file->tensors[kept++] = file->tensors[i];
    file->n_tensors = kept;
}

// "GPTQ, 4 bits, groups of 128".
static tern_status describe(finder *f, const method *m) {
    tern_strbuf *s = &f->name;
    bool any = false;
    tern_strbuf_clear(s);
    tern_strbuf_printf(s, "%s, ", m->text);
    for (int b = 1; b <= 8; b++) {
        if (!(f->bits >> b & 1)) continue;
        tern_strbuf_printf(s, "%s%d", any ? "/" : "", b);
        any = true;
    }
    tern_strbuf_printf(s, " bits, groups of %llu", (unsigned long long)f->group_min);
    if (f->group_max != f->group_min)
        tern_strbuf_printf(s, " to %llu", (unsigned long long)f->group_max);
    char *text =
        s->failed ? NULL : tern_arena_text(&f->file->priv->pool, (tern_str){s->ptr, s->len});
    f->file->packing = text;
    return text ? TERN_OK : tern_fail_memory(f->err, s->len);
}

static tern_status take_all(finder *f, const method *m) {
    size_t n = f->file->n_tensors;
    f->gone = tern_alloc(TERN_MEM_MISC, n + 1);
    if (!f->gone) return tern_fail_memory(f->err, n);
    for (size_t i = 0; i < n; i++) {
        if (f->gone[i]) continue;
        tern_status status = m->take(f, &f->file->tensors[i]);
        if (f->no_memory) return tern_fail_memory(f->err, strlen(f->file->tensors[i].name));
        TERN_TRY(status);
    }
    if (f->n_found == 0) return TERN_OK;
    TERN_TRY(describe(f, m));
    close_gaps(f);
    tern_name_index_free(&f->file->priv->tensor_index);
    return tern_file_index_tensors(f->file, f->err);
}

tern_status tern_hf_resolve_packed(tern_file *file, const char *folder, tern_error *err) {
    tern_error why = {0};
    finder f = {.file = file, .doc = &file->config, .err = &why};
    tern_status status = TERN_OK;
    const method *m = find_method(&f);
    if (!m && !tern_json_path(&file->config, "quantization_config"))
        status = find_side_file(&f, folder, &m);
    if (m) status = take_all(&f, m);
    tern_json_free(&f.side);
    tern_free(f.gone);
    tern_strbuf_free(&f.name);
    if (status == TERN_ERR_UNSUPPORTED) { // the file can still be listed
        file->cannot_unpack =
            tern_arena_text(&file->priv->pool, (tern_str){why.message, strlen(why.message)});
        return file->cannot_unpack ? TERN_OK : tern_fail_memory(err, sizeof why.message);
    }
    if (status != TERN_OK && err) *err = why;
    return status;
}
