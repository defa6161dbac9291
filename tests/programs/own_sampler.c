// A sampler of the caller's own: it chooses tokens itself, or changes scores that the library then
// samples from.
#include <math.h>
#include "program.h"

static int32_t greatest(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static int32_t pick(void *user, const tern_logits *at) {
    (void)user;
    return greatest(at->logits, at->n_vocab);
}

// Like a logits processor: what has been said is not said again.
static int32_t no_repetition(void *user, const tern_logits *at) {
    size_t n_prompt = *(const size_t *)user;
    for (size_t i = n_prompt; i < at->n_ids; i++) at->logits[at->ids[i]] = -INFINITY;
    return TERN_LOGITS_SAMPLE;
}

static int32_t stop_at_third(void *user, const tern_logits *at) {
    (void)user;
    return at->n_generated < 2 ? TERN_LOGITS_SAMPLE : TERN_LOGITS_STOP;
}

static const int32_t *generate(tern_session *s, const tern_generate_params *params, size_t *n) {
    tern_error err = ZEROS;
    NEED(tern_generate(s, "Once upon a time", params, NULL, &err), err);
    return tern_session_generated(s, n);
}

int main(int argc, char **argv) {
    tern_error err = ZEROS;
    tern_model *model = NULL;
    tern_session *session = NULL;
    tern_model_info info;
    tern_sampling greedy = ZEROS;
    tern_generate_params params = ZEROS;
    int32_t want[12];
    size_t n, n_prompt;
    if (argc < 2) return 2;
    NEED(tern_model_open(&model, argv[1], NULL, &err), err);
    NEED(tern_session_open(&session, model, NULL, &err), err);
    tern_model_get_info(model, &info);
    params.sampling = &greedy;
    params.max_tokens = 12;
    params.ignore_end = true;
    const int32_t *said = generate(session, &params, &n);
    CHECK(n == 12);
    memcpy(want, said, sizeof want);

    params.on_logits = pick; // the library's greedy text
    said = generate(session, &params, &n);
    CHECK(n == 12 && !memcmp(said, want, sizeof want));

    // By hand, from the scores of the last token: the same again.
    n_prompt = tern_session_n_tokens(session) - 11; // the last token is not in the timeline yet
    float *logits = (float *)malloc((size_t)info.n_vocab * sizeof *logits);
    NEED(tern_session_truncate(session, n_prompt, &err), err);
    for (int i = 0; i < 12 && logits; i++) {
        NEED(tern_session_last_logits(session, logits, &err), err);
        int32_t id = greatest(logits, info.n_vocab);
        CHECK(id == want[i]);
        NEED(tern_session_logits(session, &id, 1, NULL, &err), err); // appends it
    }
    free(logits);

    params.on_logits = no_repetition;
    params.user = &n_prompt;
    said = generate(session, &params, &n);
    CHECK(n == 12);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) CHECK(said[i] != said[k]);

    params.on_logits = stop_at_third;
    generate(session, &params, &n);
    CHECK(n == 2);
    tern_session_close(session);
    tern_model_close(model);
    return n_failed != 0;
}
