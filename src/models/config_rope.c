// RoPE's parameters, which files spell in many ways:
//
//   GGUF            rope.freq_base, rope.dimension_count, rope.scaling.*, or factors as a tensor;
//                   rope.freq_base_swa for layers with a window
//   transformers 4  rope_theta, rope_scaling {rope_type or type, ...}, partial_rotary_factor;
//                   rope_local_base_freq
//   transformers 5  rope_parameters {rope_type, rope_theta, partial_rotary_factor, ...}, or one
//                   such object a layer type
//
// What scales the context scales full attention only, unless the object is the layer type's own.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/family.h"

typedef struct rope_source {
    const tern_config_source *s;
    const tern_config *c;
    char group[64]; // the path in config.json; empty: none
    bool own;       // group is this layer type's
    bool windowed;
    char member[96];
} rope_source;

static bool is_object(const rope_source *r, const char *path) {
    return tern_json_is(tern_config_json(r->s, path), TERN_JSON_OBJECT);
}

static void find_group(rope_source *r, const char *layer_type) {
    snprintf(r->group, sizeof r->group, "rope_parameters.%s", layer_type);
    r->own = is_object(r, r->group);
    if (r->own) return;
    bool v5 = is_object(r, "rope_parameters");
    snprintf(r->group, sizeof r->group, "%s",
             r->windowed ? ""
             : v5        ? "rope_parameters"
                         : "rope_scaling");
}

static const char *in_group(rope_source *r, const char *name) {
    if (!r->group[0]) return NULL;
    snprintf(r->member, sizeof r->member, "%s.%s", r->group, name);
    return r->member;
}

static float number(rope_source *r, const char *gguf, const char *name, double otherwise) {
    double d = otherwise;
    tern_config_float(r->s, r->windowed ? NULL : gguf, in_group(r, name), &d);
    return (float)d;
}

static tern_status read_original(rope_source *r, tern_rope_attrs *a, tern_error *err) {
    int64_t original = r->c->n_context;
    if (!tern_config_int(r->s, r->windowed ? NULL : "rope.scaling.original_context_length",
                         in_group(r, "original_max_position_embeddings"), &original) &&
        !tern_config_int(r->s, NULL, "original_max_position_embeddings", &original))
        original = r->c->n_context;
    if (original < 1 || original > INT32_MAX)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "RoPE scaling: trained with %" PRId64 " tokens makes no sense", original);
    a->n_context_orig = (int32_t)original;
    return TERN_OK;
}

static double mscale(double factor, double m) {
    return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

// What YaRN multiplies cosine and sine by; 0: what follows from the factor. Some files state it as
// two numbers, of which GGUF has the second one only.
static float yarn_magnitude(rope_source *r, const tern_rope_attrs *a) {
    bool gguf = r->s->file->kind == TERN_FILE_GGUF;
    double m = gguf ? 1 : (double)number(r, NULL, "mscale", 0);
    double all = (double)number(r, "rope.scaling.yarn_log_multiplier", "mscale_all_dim", 0);
    float stated = number(r, "rope.scaling.attn_factor", "attention_factor", 0);
    if (stated != 0 || m == 0 || all == 0) return stated;
    return (float)(mscale((double)a->factor, m) / mscale((double)a->factor, all));
}

// Two sets of factors. What cosine and sine are multiplied by follows from how much longer texts
// may be; GGUF states it.
static void read_long(rope_source *r, tern_rope_attrs *a) {
    double length = (double)r->c->n_context, trained = (double)a->n_context_orig;
    bool gguf = r->s->file->kind == TERN_FILE_GGUF;
    a->scaling = TERN_ROPE_LONG;
    a->attn_factor = number(r, "rope.scaling.attn_factor", "attention_factor", 0);
    if (a->attn_factor == 0 && !gguf && length > trained)
        a->attn_factor = (float)sqrt(1 + log(length / trained) / log(trained));
    if (a->attn_factor == 0) a->attn_factor = 1;
}

static tern_status read_type(rope_source *r, tern_str type, tern_rope_attrs *a, tern_error *err) {
    if (!type.ptr || tern_str_is(type, "default") || tern_str_is(type, "none")) return TERN_OK;
    if (tern_str_is(type, "linear")) {
        if (a->factor != 1.0f) a->scaling = TERN_ROPE_LINEAR;
    } else if (tern_str_is(type, "dynamic") && number(r, NULL, "alpha", 0) > 0) {
        double dim = a->n_rot; // a greater base, once and for all
        a->base = (float)((double)a->base *
                          pow((double)number(r, NULL, "alpha", 0), dim / (dim - 2)));
    } else if (tern_str_is(type, "proportional")) { // pairs of the whole head, of which some turn
        a->scaling = TERN_ROPE_PROPORTIONAL;
        a->factor = number(r, NULL, "partial_rotary_factor", 1);
        a->n_rot = (int32_t)r->c->head_dim;
    } else if (tern_str_is(type, "llama3")) {
        a->scaling = TERN_ROPE_LLAMA3;
        a->low_freq_factor = number(r, NULL, "low_freq_factor", 1);
        a->high_freq_factor = number(r, NULL, "high_freq_factor", 4);
    } else if (tern_str_is(type, "longrope") || tern_str_is(type, "su")) {
        read_long(r, a);
    } else if (tern_str_is(type, "yarn")) {
        a->scaling = TERN_ROPE_YARN;
        a->beta_fast = number(r, "rope.scaling.yarn_beta_fast", "beta_fast", 32);
        a->beta_slow = number(r, "rope.scaling.yarn_beta_slow", "beta_slow", 1);
        a->attn_factor = yarn_magnitude(r, a);
    } else
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "RoPE scaling \"%.*s\" is not supported",
                         (int)(type.len < 64 ? type.len : 64), type.ptr);
    return TERN_OK;
}

static tern_status read_scaling(rope_source *r, tern_rope_attrs *a, tern_error *err) {
    bool gguf = r->s->file->kind == TERN_FILE_GGUF;
    a->factor = number(r, "rope.scaling.factor", "factor", 1);
    const char *key = r->windowed ? NULL : "rope.scaling.type";
    tern_str type = tern_config_str(r->s, key, in_group(r, "rope_type"));
    if (!type.ptr) type = tern_config_str(r->s, key, in_group(r, "type"));
    TERN_TRY(read_original(r, a, err));
    if (gguf && !r->windowed && tern_file_tensor(r->s->file, "rope_freqs.weight")) {
        a->scaling = TERN_ROPE_FACTORS;
        return TERN_OK;
    }
    if (gguf && !r->windowed && tern_file_tensor(r->s->file, "rope_factors_short.weight"))
        type = TERN_STR("longrope");
    TERN_TRY(read_type(r, type, a, err));
    a->growth = number(r, "attention.temperature_scale", "llama_4_scaling_beta", 0);
    const float numbers[] = {a->factor,    a->low_freq_factor, a->high_freq_factor, a->beta_fast,
                             a->beta_slow, a->attn_factor,     a->base,             a->growth};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!isfinite(numbers[i]) || (i == 0 && !(numbers[i] > 0)))
            return tern_fail(err, TERN_ERR_FORMAT, "RoPE scaling: a factor of %g makes no sense",
                             (double)numbers[i]);
    return TERN_OK;
}

static double read_base(rope_source *r) {
    const tern_config *defaults = r->s->arch->defaults;
    bool stated = r->s->file->kind == TERN_FILE_GGUF || r->windowed || !defaults;
    double d = !stated && defaults->rope.base > 0 ? (double)defaults->rope.base : 10000;
    if (r->own && tern_config_float(r->s, NULL, in_group(r, "rope_theta"), &d)) return d;
    if (r->windowed) {
        tern_config_float(r->s, "rope.freq_base_swa", "rope_local_base_freq", &d);
        return d;
    }
    if (!tern_config_float(r->s, "rope.freq_base", "rope_theta", &d))
        tern_config_float(r->s, NULL, in_group(r, "rope_theta"), &d);
    return d;
}

static int64_t read_rotated(rope_source *r) {
    int64_t n_rot = r->c->head_dim;
    double d;
    if (r->s->file->kind == TERN_FILE_GGUF) {
        bool own = r->windowed && tern_config_int(r->s, "rope.dimension_count_swa", NULL, &n_rot);
        if (!own) tern_config_int(r->s, "rope.dimension_count", NULL, &n_rot);
        return n_rot;
    }
    bool found = tern_config_float(r->s, NULL, in_group(r, "partial_rotary_factor"), &d) ||
                 tern_config_float(r->s, NULL, "partial_rotary_factor", &d);
    if (!found) return n_rot;
    return d > 0 && d <= 1 ? (int64_t)((double)n_rot * d) : 0;
}

tern_status tern_config_rope(const tern_config_source *s, const tern_config *c,
                             const char *layer_type, tern_rope_attrs *a, tern_error *err) {
    rope_source r = {.s = s, .c = c, .windowed = strcmp(layer_type, "sliding_attention") == 0};
    find_group(&r, layer_type);
    a->base = (float)read_base(&r);
    int64_t n_rot = read_rotated(&r);
    // Of an odd share, as 51 of 64, transformers turns a dimension more, at the frequencies of 51.
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
    a->halves = s->file->kind == TERN_FILE_HF || !s->arch->gguf_rope_neighbours;
    return read_scaling(&r, a, err);
}
