// The meaning of the numbers in tern_sampling: tern.h says which of them have a default below zero
// and which at it.
#include <string.h>
#include "session/session.h"
#include "tests/harness.h"

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
    const tern_model_info silent = {.n_vocab = 8, .temperature = -1, .top_k = -1, .top_p = -1,
                                    .min_p = -1, .repeat_penalty = -1};
    const tern_model_info says = {.n_vocab = 8, .temperature = 0.25f, .top_k = 7, .top_p = 0.5f,
                                  .min_p = 0.125f, .repeat_penalty = 1.5f};
    const tern_sampling standard = tern_sampling_default(), zeros = {0};
    check(settled(&standard, &silent), 0.8f, 40, 0.95f, 0.05f, 1);
    check(settled(NULL, &silent), 0.8f, 40, 0.95f, 0.05f, 1);
    check(settled(&standard, &says), 0.25f, 7, 0.5f, 0.125f, 1.5f);
    check(settled(NULL, &says), 0.25f, 7, 0.5f, 0.125f, 1.5f);
    check(settled(&zeros, &says), 0, 0, 0, 0, 1); // greedy, whatever the file says
    tern_sampling favour = standard;
    favour.frequency_penalty = favour.presence_penalty = -0.5f; // values, not defaults
    favour = settled(&favour, &silent);
    CHECK(favour.frequency_penalty == -0.5f && favour.presence_penalty == -0.5f);
}
