// The meaning of the numbers in tern_sampling: tern.h says for which of them a negative value is
// the default, and for which 0.
#include <math.h>
#include <stddef.h>
#include <string.h>
#include "session/session.h"
#include "tests/support/harness.h"

static tern_sampling settled(const tern_sampling *params, const tern_model_info *info) {
    tern_sampler s = {0};
    tern_error err = {0};
    tern_status status = tern_sampler_prepare(&s, params, info, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    tern_sampling p = s.params;
    p.seed = 0;
    return p;
}

static void check(tern_sampling p, float temperature, int32_t top_k, float top_p, float min_p,
                  float repeat) {
    CHECK(p.temperature == temperature && p.top_k == top_k && p.top_p == top_p);
    CHECK(p.min_p == min_p && p.repeat_penalty == repeat);
    CHECK(p.frequency_penalty == 0 && p.presence_penalty == 0 && p.penalty_window == 64);
}

// Seen to fail if tern_sampling_default() leaves min_p at zero.
TEST(sampling_defaults_are_what_the_header_says) {
    const tern_model_info silent = {.n_vocab = 8,
                                    .temperature = -1,
                                    .top_k = -1,
                                    .top_p = -1,
                                    .min_p = -1,
                                    .repeat_penalty = -1};
    const tern_model_info says = {.n_vocab = 8,
                                  .temperature = 0.25f,
                                  .top_k = 7,
                                  .top_p = 0.5f,
                                  .min_p = 0.125f,
                                  .repeat_penalty = 1.5f};
    const tern_sampling standard = tern_sampling_default(), zeros = {0};
    check(settled(&standard, &silent), 0.8f, 40, 0.95f, 0.05f, 1);
    check(settled(NULL, &silent), 0.8f, 40, 0.95f, 0.05f, 1);
    check(settled(&standard, &says), 0.25f, 7, 0.5f, 0.125f, 1.5f);
    check(settled(NULL, &says), 0.25f, 7, 0.5f, 0.125f, 1.5f);
    check(settled(&zeros, &says), 0, 0, 1, 0, 1); // greedy, whatever the file's defaults
    tern_sampling said = standard;
    said.top_p = 0; // only the likeliest, not a default
    CHECK(settled(&said, &says).top_p == 0 && settled(&said, &silent).top_p == 0);
    tern_sampling favour = standard;
    favour.frequency_penalty = favour.presence_penalty = -0.5f; // values, not defaults
    favour = settled(&favour, &silent);
    CHECK(favour.frequency_penalty == -0.5f && favour.presence_penalty == -0.5f);
    CHECK(favour.xtc_threshold == 0.1f && favour.dry_base == 1.75f && favour.mirostat_tau == 5);
    CHECK(favour.dry_allowed_length == 2 && favour.dry_penalty_last_n == -1);
    CHECK(favour.mirostat_eta == 0.1f && favour.dynatemp_exponent == 1 && favour.typical_p == 0);
    CHECK(!strcmp(favour.samplers, TERN_SAMPLERS));
}

static void check_refused(tern_sampling p, const char *name) {
    const tern_model_info info = {.n_vocab = 8,
                                  .temperature = -1,
                                  .top_k = -1,
                                  .top_p = -1,
                                  .min_p = -1,
                                  .repeat_penalty = -1};
    tern_sampler s = {0};
    tern_error err = {0};
    CHECK_MSG(tern_sampler_prepare(&s, &p, &info, &err) == TERN_ERR_ARGUMENT, "%s", name);
    CHECK_MSG(strstr(err.message, name), "%s: '%s'", name, err.message);
}

// Each by its own name. Seen to fail with the range of min_p left out.
TEST(sampling_refuses_numbers_that_are_none) {
    static const struct {
        const char *name;
        size_t at;
    } floats[] = {
#define AT(name) {#name, offsetof(tern_sampling, name)}
        AT(temperature),
        AT(top_p),
        AT(min_p),
        AT(repeat_penalty),
        AT(frequency_penalty),
        AT(presence_penalty),
        AT(top_n_sigma),
        AT(typical_p),
        AT(xtc_probability),
        AT(xtc_threshold),
        AT(dynatemp_range),
        AT(dynatemp_exponent),
        AT(dry_multiplier),
        AT(dry_base),
        AT(mirostat_tau),
        AT(mirostat_eta),
    };
    static const float none[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        for (size_t k = 0; k < 3; k++) {
            tern_sampling p = tern_sampling_default();
            memcpy((char *)&p + floats[i].at, &none[k], sizeof none[k]);
            check_refused(p, floats[i].name);
        }
    tern_sampling p = tern_sampling_default();
    p.mirostat = 3;
    check_refused(p, "mirostat 3");
    p = tern_sampling_default();
    p.dry_multiplier = 1, p.dry_base = 0.5f;
    check_refused(p, "dry_base 0.5");
    p = tern_sampling_default();
    memcpy(p.samplers, "kz", 3);
    check_refused(p, "samplers: there is no 'z'");
    memset(p.samplers, 'k', sizeof p.samplers);
    check_refused(p, "more than 15");
}
