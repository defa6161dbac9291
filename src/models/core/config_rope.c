// RoPE's parameters, which files state in many ways:
//
//   GGUF            rope.freq_base, rope.dimension_count, rope.scaling.*, or factors as a tensor;
//                   rope.freq_base_swa for layers with a window; rope.scale_linear in old files
//   transformers 4  rope_theta, rope_scaling {rope_type or type, ...}, partial_rotary_factor;
//                   rope_local_base_freq
//   transformers 5  rope_parameters {rope_type, rope_theta, partial_rotary_factor, ...}, or one
//                   such object a layer type
//
// Context scaling applies to full attention only, unless the object is for one layer type.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

typedef struct rope_source {
    const tern_config_source *s;
    const tern_config *c;
    // Paths in config.json; the earlier one wins; n 0: none.
    char groups[2][64];
    int n_groups;
    bool own; // one of them is for this layer type
    bool windowed;
    char member[96];
} rope_source;

static bool is_gguf(const rope_source *r) { return r->s->file->kind == TERN_FILE_GGUF; }

static tern_status find_object(const rope_source *r, const char *path, bool *found,
                               tern_error *err) {
    const tern_json *j = tern_config_json(r->s, path);
    bool is_object = tern_json_is(j, TERN_JSON_OBJECT);
    *found = is_object && j->n > 0;
    if (!j || j->type == TERN_JSON_NULL || is_object) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config.json: %s is not an object", path);
}

static void add_group(rope_source *r, const char *path) {
    snprintf(r->groups[r->n_groups++], sizeof r->groups[0], "%s", path);
}

// If rope_scaling is present, transformers 5 uses it instead of rope_parameters; if these are by
// layer type, it changes only full attention's.
static tern_status find_groups(rope_source *r, const char *layer_type, tern_error *err) {
    char own[64];
    bool v4 = false, v5 = false;
    if (is_gguf(r)) return TERN_OK;
    snprintf(own, sizeof own, "rope_parameters.%s", layer_type);
    TERN_TRY(find_object(r, own, &r->own, err));
    TERN_TRY(find_object(r, "rope_scaling", &v4, err));
    TERN_TRY(find_object(r, "rope_parameters", &v5, err));
    if (v4 && !r->windowed) add_group(r, "rope_scaling");
    if (r->own)
        add_group(r, own);
    else if (v5 && !v4 && !r->windowed)
        add_group(r, "rope_parameters");
    return TERN_OK;
}

// The path of a member in the first group that has it; valid until the next call.
static const char *in_groups(rope_source *r, const char *name) {
    for (int i = 0; i < r->n_groups; i++) {
        snprintf(r->member, sizeof r->member, "%s.%s", r->groups[i], name);
        const tern_json *j = tern_config_json(r->s, r->member);
        if (j && j->type != TERN_JSON_NULL) return r->member;
    }
    return NULL;
}

static bool has_number(rope_source *r, const char *name, double *d) {
    return tern_config_float(r->s, NULL, in_groups(r, name), d);
}

static float number(rope_source *r, const char *gguf, const char *name, double otherwise) {
    double d = otherwise;
    if (is_gguf(r))
        tern_config_float(r->s, r->windowed ? NULL : gguf, NULL, &d);
    else
        has_number(r, name, &d);
    return (float)d;
}

// A member that transformers requires, too.
static tern_status need_number(rope_source *r, const char *gguf, const char *name, float *out,
                               tern_error *err) {
    double d = 0;
    *out = number(r, gguf, name, 0);
    if (is_gguf(r) || has_number(r, name, &d)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "config.json: RoPE is scaled without a number %s", name);
}

static tern_status read_original(rope_source *r, tern_rope_attrs *a, tern_error *err) {
    static const char name[] = "original_max_position_embeddings";
    int64_t original = r->c->n_context;
    const char *gguf = r->windowed ? NULL : "rope.scaling.original_context_length";
    if (!tern_config_int(r->s, gguf, name, &original) && !is_gguf(r))
        tern_config_int(r->s, NULL, in_groups(r, name), &original);
    if (original < 1 || original > INT32_MAX)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "RoPE scaling: trained with %" PRId64 " tokens makes no sense", original);
    a->n_context_orig = (int32_t)original;
    return TERN_OK;
}

static double mscale(double factor, double m) { return factor > 1 ? 0.1 * m * log(factor) + 1 : 1; }

// YaRN's multiplier of cosine and sine; 0: derived from the factor. Some files state it as two
// numbers; GGUF has only the second.
static float yarn_magnitude(rope_source *r, const tern_rope_attrs *a) {
    double m = is_gguf(r) ? 1 : (double)number(r, NULL, "mscale", 0);
    double all = (double)number(r, "rope.scaling.yarn_log_multiplier", "mscale_all_dim", 0);
    float stated = number(r, "rope.scaling.attn_factor", "attention_factor", 0);
    if (stated != 0 || m == 0 || all == 0) return stated;
    return (float)(mscale((double)a->factor, m) / mscale((double)a->factor, all));
}

// Two sets of factors. The multiplier of cosine and sine follows from the extension of the context;
// GGUF states it.
static void read_long(rope_source *r, tern_rope_attrs *a) {
    double trained = (double)a->n_context_orig, longer = (double)r->c->n_context / trained;
    a->scaling = TERN_ROPE_LONG;
    a->attn_factor = number(r, "rope.scaling.attn_factor", "attention_factor", 0);
    longer = (double)number(r, NULL, "factor", longer);
    if (a->attn_factor == 0 && !is_gguf(r) && longer > 1)
        a->attn_factor = (float)sqrt(1 + log(longer) / log(trained));
    if (a->attn_factor == 0) a->attn_factor = 1;
}

static tern_status read_yarn(rope_source *r, tern_rope_attrs *a, tern_error *err) {
    const char *truncates = in_groups(r, "truncate");
    if (truncates && !tern_config_bool(r->s, truncates, true))
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "config.json: YaRN whose bounds are not rounded (truncate) is not supported");
    a->scaling = TERN_ROPE_YARN;
    a->beta_fast = number(r, "rope.scaling.yarn_beta_fast", "beta_fast", 32);
    a->beta_slow = number(r, "rope.scaling.yarn_beta_slow", "beta_slow", 1);
    a->attn_factor = yarn_magnitude(r, a);
    return TERN_OK;
}

// A fixed, greater base.
static bool take_alpha(rope_source *r, tern_rope_attrs *a) {
    double alpha = (double)number(r, NULL, "alpha", 0), dim = a->n_rot;
    if (!r->s->arch->rope_has_alpha || !(alpha > 0)) return false;
    a->base = (float)((double)a->base * pow(alpha, dim / (dim - 2)));
    return true;
}

// The kind of scaling, among those that the family has.
static tern_status read_type(rope_source *r, tern_str type, tern_rope_attrs *a, tern_error *err) {
    const tern_arch *arch = r->s->arch;
    bool is_long = tern_str_is(type, "longrope") ||
                   (arch->rope_is_long && (tern_str_is(type, "su") || tern_str_is(type, "yarn")));
    bool others = is_gguf(r) || !arch->rope_is_long;
    if (!type.ptr || tern_str_is(type, "default") || tern_str_is(type, "none")) return TERN_OK;
    if (is_long) {
        read_long(r, a);
        return TERN_OK;
    }
    if (tern_str_is(type, "dynamic") && take_alpha(r, a)) return TERN_OK;
    if (tern_str_is(type, "linear") && others) {
        TERN_TRY(need_number(r, "rope.scaling.factor", "factor", &a->factor, err));
        if (a->factor == 0 && is_gguf(r)) a->factor = number(r, "rope.scale_linear", "", 0);
        if (a->factor == 0 && is_gguf(r)) a->factor = 1;
        if (a->factor != 1.0f) a->scaling = TERN_ROPE_LINEAR;
        return TERN_OK;
    }
    if (tern_str_is(type, "proportional") && others) { // only some pairs of the whole head turn
        a->scaling = TERN_ROPE_PROPORTIONAL;
        a->factor = number(r, NULL, "partial_rotary_factor", 1);
        a->n_rot = (int32_t)r->c->head_dim;
        return TERN_OK;
    }
    if (tern_str_is(type, "llama3") && others && !is_gguf(r)) {
        a->scaling = TERN_ROPE_LLAMA3;
        TERN_TRY(need_number(r, NULL, "factor", &a->factor, err));
        TERN_TRY(need_number(r, NULL, "low_freq_factor", &a->low_freq_factor, err));
        return need_number(r, NULL, "high_freq_factor", &a->high_freq_factor, err);
    }
    if (tern_str_is(type, "yarn") && others) {
        TERN_TRY(need_number(r, "rope.scaling.factor", "factor", &a->factor, err));
        if (a->factor == 0 && is_gguf(r)) a->factor = 1;
        return read_yarn(r, a, err);
    }
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "RoPE scaling \"%.*s\" of a %s is not supported",
                     (int)(type.len < 64 ? type.len : 64), type.ptr, arch->name);
}

// GGUF: a factor without a type is linear, as in llama.cpp.
static tern_str type_of(rope_source *r) {
    tern_str type = {NULL, 0};
    if (is_gguf(r) && r->windowed) return type;
    if (is_gguf(r) && tern_file_tensor(r->s->file, "rope_factors_short.weight"))
        return TERN_STR("longrope");
    if (is_gguf(r)) {
        type = tern_config_str(r->s, "rope.scaling.type", NULL);
        return type.ptr ? type : TERN_STR("linear");
    }
    const char *path = in_groups(r, "rope_type");
    if (!path) path = in_groups(r, "type");
    return path ? tern_config_str(r->s, NULL, path) : type;
}

static tern_status read_scaling(rope_source *r, tern_str type, tern_rope_attrs *a,
                                tern_error *err) {
    a->factor = 1;
    TERN_TRY(read_original(r, a, err));
    if (is_gguf(r) && !r->windowed && tern_file_tensor(r->s->file, "rope_freqs.weight")) {
        a->scaling = TERN_ROPE_FACTORS;
        return TERN_OK;
    }
    TERN_TRY(read_type(r, type, a, err));
    if (r->s->arch->rope_grows)
        a->growth = number(r, "attention.temperature_scale", "llama_4_scaling_beta", 0);
    const float numbers[] = {a->factor,    a->low_freq_factor, a->high_freq_factor,
                             a->beta_fast, a->beta_slow,       a->attn_factor,
                             a->base,      a->growth};
    const float most = a->scaling == TERN_ROPE_PROPORTIONAL ? 1 : INFINITY; // a share of the head
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i]) || (i == 0 && !(numbers[i] > 0 && numbers[i] <= most)))
            return tern_fail(err, TERN_ERR_FORMAT, "RoPE scaling: a factor of %g makes no sense",
                             (double)numbers[i]);
    return TERN_OK;
}

static double read_base(rope_source *r) {
    const tern_config *defaults = r->s->arch->defaults;
    bool stated = is_gguf(r) || r->windowed || !defaults;
    double d = !stated && defaults->rope.base > 0 ? (double)defaults->rope.base : 10000;
    if (has_number(r, "rope_theta", &d)) return d;
    if (r->windowed)
        tern_config_float(r->s, "rope.freq_base_swa", "rope_local_base_freq", &d);
    else
        tern_config_float(r->s, "rope.freq_base", "rope_theta", &d);
    return d;
}

static int64_t gguf_rotated(rope_source *r) {
    int64_t n_rot = r->c->head_dim;
    bool own = r->windowed && tern_config_int(r->s, "rope.dimension_count_swa", NULL, &n_rot);
    if (!own) tern_config_int(r->s, "rope.dimension_count", NULL, &n_rot);
    return n_rot;
}

// The rotated share of a head. Only for families whose code in transformers supports one; the
// others' code would ignore it, or fail.
static tern_status read_rotated(rope_source *r, tern_str type, int64_t *n_rot, tern_error *err) {
    static const char name[] = "partial_rotary_factor";
    double usual = r->s->arch->turns_part, d = usual > 0 ? usual : 1;
    *n_rot = gguf_rotated(r);
    if (is_gguf(r)) return TERN_OK;
    if (!has_number(r, name, &d)) tern_config_float(r->s, NULL, name, &d);
    *n_rot = d > 0 && d <= 1 ? (int64_t)((double)r->c->head_dim * d) : 0;
    if (usual > 0 || d == 1 || tern_str_is(type, "proportional")) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "config.json: %s %g: the heads of a %s turn whole",
                     name, d, r->s->arch->name);
}

tern_status tern_config_rope(const tern_config_source *s, const tern_config *c,
                             const char *layer_type, tern_rope_attrs *a, tern_error *err) {
    rope_source r = {.s = s, .c = c, .windowed = strcmp(layer_type, "sliding_attention") == 0};
    int64_t n_rot;
    TERN_TRY(find_groups(&r, layer_type, err));
    tern_str type = type_of(&r);
    a->base = (float)read_base(&r);
    TERN_TRY(read_rotated(&r, type, &n_rot, err));
    // If n_rot is odd, as 51 of 64, transformers turns one more dimension, at 51's frequencies.
    if (s->file->kind == TERN_FILE_HF && n_rot > 2 && n_rot % 2 != 0) {
        a->base = powf(a->base, (float)(n_rot + 1) / (float)n_rot);
        n_rot++;
    }
    if (n_rot < 2 || n_rot % 2 != 0 || n_rot > c->head_dim || !(a->base > 0) || !isfinite(a->base))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "RoPE over %" PRId64 " of %" PRId64
                         " dimensions with base %g makes no sense",
                         n_rot, c->head_dim, (double)a->base);
    a->n_rot = (int32_t)n_rot;
    a->halves = !(s->file->kind == TERN_FILE_HF ? s->arch->hf_rope_neighbours
                                                : s->arch->gguf_rope_neighbours);
    return read_scaling(&r, type, a, err);
}

void tern_config_rope_sections(const tern_config *c, int32_t out[4]) {
    const int32_t *said = c->rope.sections;
    int32_t n = c->rope.n_rot / 2;
    bool is_said = said[0] || said[1] || said[2];
    out[0] = is_said ? said[0] : (n + 2) / 3;
    out[1] = is_said ? said[1] : (n + 1) / 3;
    out[2] = is_said ? said[2] : n / 3;
    out[3] = 0;
}
