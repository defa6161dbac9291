// The carried model: it knows English when it reads it, and tells a story to its end in a chat.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tern.h"
#include "tests/harness.h"

static const char path[] = "models/stories.gguf"; // tests run in the repository's root

// Nats a token of a text, its first token given.
static double loss_of(tern_model *model, tern_session *session, const char *text) {
    int32_t ids[256];
    double logprobs[256];
    size_t n = 0;
    tern_error err = {0};
    tern_session_reset(session);
    if (tern_tokenize(model, text, strlen(text), TERN_TOKENIZE_BOS, ids, 256, &n, &err) || n > 256)
        return NAN;
    if (tern_session_logprobs(session, ids, n - 1, ids + 1, logprobs, NULL, &err)) return NAN;
    double sum = 0;
    for (size_t i = 0; i + 1 < n; i++) sum -= logprobs[i];
    return sum / (double)(n - 1);
}

TEST(stories_model_prefers_english) {
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    double story = loss_of(model, session,
                           "Once upon a time there was a small bear who lived in the forest with "
                           "his mother. Every morning he went down to the river to look for fish.");
    double shuffled = loss_of(model, session,
                              "River the look for his forest small a upon mother. There down Once "
                              "to went fish was the who time every a in lived bear he morning.");
    CHECK_MSG(story < 3, "a story: %g nats a token", story);
    CHECK_MSG(shuffled > story + 2, "its words shuffled: %g against %g", shuffled, story);
    tern_session_close(session);
    tern_model_close(model);
}

typedef struct answer {
    char text[8192];
    size_t n;
} answer;
static bool collect(void *user, const char *text, size_t n) {
    answer *a = user;
    if (a->n + n >= sizeof a->text) return false;
    memcpy(a->text + a->n, text, n);
    a->n += n;
    return true;
}

TEST(stories_model_answers_in_a_chat_and_ends) {
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    answer prompt = {0}, told = {0};
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    tern_message m = {"user", "Write a bedtime story about a fox."}; // README's
    REQUIRE_OK(tern_chat_format(model, &m, 1, true, collect, &prompt, &err), err);
    CHECK(strstr(prompt.text, "<|im_start|>assistant") != NULL);
    tern_sampling sampling = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f,
                              .seed = 3};
    tern_generate_params p = {.sampling = &sampling};
    tern_generate_stats stats;
    REQUIRE_OK(tern_generate(session, prompt.text, &p, collect, &told, &stats, &err), err);
    CHECK_MSG(stats.n_generated > 50, "%zu tokens", stats.n_generated);
    CHECK_MSG(stats.reason == TERN_STOP_END, "stopped by %d", (int)stats.reason);
    int n_fox = 0;
    for (const char *at = told.text; (at = strstr(at, "fox")); at++) n_fox++;
    CHECK_MSG(n_fox >= 3 && strstr(told.text, " the ") && strstr(told.text, " and "), "told: %s",
              told.text);
    tern_session_close(session);
    tern_model_close(model);
}
