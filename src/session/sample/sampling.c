// The meaning of the numbers in tern_sampling: defaults, ranges, and which samplers act.
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "session/session.h"

// A field, its range, and the value that replaces negative ones; NAN: negative ones are values, or
// refused, according to the range.
typedef struct field {
    const char *name;
    size_t at;
    bool is_int;
    double least, most, usual;
} field;

#define NUMBER(name, least, most, usual)                                                           \
    { #name, offsetof(tern_sampling, name), false, least, most, usual }
#define WHOLE(name, least, most, usual)                                                            \
    { #name, offsetof(tern_sampling, name), true, least, most, usual }
#define ANY (double)FLT_MAX
static const field fields[] = {
    NUMBER(temperature, 0, 1e6, 0.8),
    WHOLE(top_k, 0, INT32_MAX, 40),
    NUMBER(top_p, 0, 1, 0.95),
    NUMBER(min_p, 0, 1, 0.05),
    NUMBER(repeat_penalty, 0, ANY, 1),
    NUMBER(frequency_penalty, -ANY, ANY, NAN),
    NUMBER(presence_penalty, -ANY, ANY, NAN),
    WHOLE(penalty_window, 0, INT32_MAX, 0),
    NUMBER(top_n_sigma, 0, ANY, 0),
    NUMBER(typical_p, 0, 1, 1),
    NUMBER(xtc_probability, 0, 1, 0),
    NUMBER(xtc_threshold, 0, 1, 0.1),
    NUMBER(dynatemp_range, 0, 1e6, 0),
    NUMBER(dynatemp_exponent, 0, 1e6, 1),
    NUMBER(dry_multiplier, 0, ANY, 0),
    NUMBER(dry_base, 0, ANY, 1.75),
    WHOLE(dry_allowed_length, 0, INT32_MAX, 2),
    WHOLE(dry_penalty_last_n, -1, INT32_MAX, -1),
    WHOLE(mirostat, 0, 2, NAN),
    NUMBER(mirostat_tau, 0, 1e6, 5),
    NUMBER(mirostat_eta, 0, 1e6, 0.1),
};

tern_sampling tern_sampling_default(void) {
    return (tern_sampling){.temperature = -1,
                           .top_k = -1,
                           .top_p = -1,
                           .min_p = -1,
                           .repeat_penalty = -1,
                           .xtc_threshold = -1,
                           .dynatemp_exponent = -1,
                           .dry_base = -1,
                           .dry_allowed_length = -1,
                           .dry_penalty_last_n = -1,
                           .mirostat_tau = -1,
                           .mirostat_eta = -1,
                           .has_defaults = true};
}

static double pick(double asked, double files) { return asked < 0 && files >= 0 ? files : asked; }

// Replaces negative ones by the file's defaults, else by the usual ones.
static void take_files(tern_sampling *p, const tern_model_info *info) {
    p->temperature = (float)pick((double)p->temperature, (double)info->temperature);
    p->top_k = p->top_k < 0 && info->top_k >= 0 ? info->top_k : p->top_k;
    p->top_p = (float)pick((double)p->top_p, (double)info->top_p);
    p->min_p = (float)pick((double)p->min_p, (double)info->min_p);
    p->repeat_penalty = (float)pick((double)p->repeat_penalty, (double)info->repeat_penalty);
}

static tern_status settle(tern_sampling *p, tern_error *err) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const field *f = &fields[i];
        char *at = (char *)p + f->at;
        int32_t whole;
        float number;
        memcpy(&whole, at, sizeof whole);
        memcpy(&number, at, sizeof number);
        double value = f->is_int ? (double)whole : (double)number;
        if (isnan(value)) // all comparisons are false, so it would pass for the default
            return tern_fail(err, TERN_ERR_ARGUMENT, "sampling: %s is not a number", f->name);
        if (value < 0 && isfinite(value) && !isnan(f->usual)) value = f->usual;
        if (!(value >= f->least && value <= f->most))
            return tern_fail(err, TERN_ERR_ARGUMENT, "sampling: %s %g: expected %g to %g", f->name,
                             value, f->least, f->most);
        whole = (int32_t)value;
        number = (float)value;
        if (f->is_int)
            memcpy(at, &whole, sizeof whole);
        else
            memcpy(at, &number, sizeof number);
    }
    return TERN_OK;
}

static tern_status settle_order(tern_sampling *p, tern_error *err) {
    const size_t n = strnlen(p->samplers, sizeof p->samplers);
    if (n == sizeof p->samplers)
        return tern_fail(err, TERN_ERR_ARGUMENT, "sampling: samplers: more than %zu letters",
                         n - 1);
    if (n == 0) memcpy(p->samplers, TERN_SAMPLERS, sizeof TERN_SAMPLERS);
    if (!strcmp(p->samplers, "-")) p->samplers[0] = 0;
    for (const char *at = p->samplers; *at; at++)
        if (!strchr(TERN_SAMPLERS, *at))
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "sampling: samplers: there is no '%c', only letters of %s", *at,
                             TERN_SAMPLERS);
    return TERN_OK;
}

static uint64_t splitmix(uint64_t *state) { // Vigna's, for seeds of xoshiro
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

tern_status tern_sampler_prepare(tern_sampler *s, const tern_sampling *params,
                                 const tern_model_info *info, tern_error *err) {
    tern_sampling p = params ? *params : tern_sampling_default();
    if (!p.has_defaults && p.top_p == 0) p.top_p = 1; // not set
    take_files(&p, info);
    TERN_TRY(settle(&p, err));
    TERN_TRY(settle_order(&p, err));
    if (p.repeat_penalty == 0) p.repeat_penalty = 1;
    if (p.penalty_window == 0) p.penalty_window = 64;
    if (p.dry_multiplier > 0 && p.dry_base < 1)
        return tern_fail(err, TERN_ERR_ARGUMENT, "sampling: dry_base %g: expected 1 or more",
                         (double)p.dry_base);
    if (p.seed == 0) {
        p.seed = tern_random_seed() >> 32; // short enough to type
        if (p.seed == 0) p.seed = 1;
    }
    uint64_t state = p.seed;
    for (int i = 0; i < 4; i++) s->rng[i] = splitmix(&state);
    s->params = p;
    s->n_vocab = info->n_vocab;
    s->mu = 2 * (double)p.mirostat_tau;
    s->n_biases = s->n_excluded = 0;
    s->has_penalties =
        !p.mirostat && strchr(p.samplers, 'e') &&
        (p.repeat_penalty != 1 || p.frequency_penalty != 0 || p.presence_penalty != 0);
    s->has_dry =
        !p.mirostat && strchr(p.samplers, 'd') && p.dry_multiplier > 0 && p.dry_penalty_last_n != 0;
    s->is_plain = !strcmp(p.samplers, TERN_SAMPLERS) && !p.mirostat && !s->has_dry &&
                  p.top_n_sigma == 0 && (p.typical_p == 0 || p.typical_p == 1) &&
                  p.dynatemp_range == 0 && (p.xtc_probability == 0 || p.xtc_threshold > 0.5f);
    return TERN_OK;
}
