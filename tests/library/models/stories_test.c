// The carried model: it knows English when it reads it, tells a story to its end in a chat, and
// answers questions about a passage and of a few words.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tern.h"
#include "tests/support/harness.h"

static const char path[] = "models/stories.gguf"; // tests run in the repository's root

// Nats a token of a text, its first token given.
static double loss_of(tern_model *model, tern_session *session, const char *text) {
    int32_t ids[256];
    tern_ids all = {ids, 256, 0};
    tern_target_score scores[256];
    tern_error err = {0};
    tern_session_reset(session);
    if (tern_tokenize(model, text, strlen(text), TERN_TOKENIZE_BOS, &all, &err) || all.n > 256)
        return NAN;
    if (tern_session_logprobs(session, ids, all.n - 1, ids + 1, scores, &err)) return NAN;
    double sum = 0;
    for (size_t i = 0; i + 1 < all.n; i++) sum -= scores[i].logprob;
    return sum / (double)(all.n - 1);
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

// What it says to a first message, which ends by itself.
static tern_status ask(tern_model *model, tern_session *session, const char *text,
                       const tern_sampling *sampling, answer *told, tern_error *err) {
    answer prompt = {0};
    tern_message m = {.role = "user", .content = text};
    tern_session_reset(session);
    tern_status st = tern_chat_format(model, &m, 1, collect, &prompt, err);
    if (st) return st;
    CHECK(strstr(prompt.text, "<|im_start|>assistant") != NULL);
    tern_generate_stats stats = {0};
    memset(told, 0, sizeof *told);
    const tern_generate_params p = {.sampling = sampling, .on_text = collect, .user = told};
    st = tern_generate(session, prompt.text, &p, &stats, err);
    CHECK_MSG(st || stats.reason == TERN_STOP_END, "%s: stopped by %d", text, (int)stats.reason);
    return st;
}

TEST(stories_model_answers_in_a_chat_and_ends) {
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    answer told;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    tern_sampling sampling = {
        .temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 3};
    REQUIRE_OK(ask(model, session, "Write a bedtime story about a fox.", &sampling, &told, &err),
               err);
    CHECK_MSG(told.n > 250, "%zu bytes", told.n);
    int n_fox = 0;
    for (const char *at = told.text; (at = strstr(at, "fox")); at++) n_fox++;
    CHECK_MSG(n_fox >= 3 && strstr(told.text, " the ") && strstr(told.text, " and "), "told: %s",
              told.text);
    tern_session_close(session);
    tern_model_close(model);
}

// Passages and questions of prompts.jsonl, which training never saw: two questions about one
// passage have two answers. Seen to fail with the model before, which told stories alone.
TEST(stories_model_answers_questions) {
    static const struct {
        const char *text, *wanted;
    } asked[] = {
        {"Grandpa Joe has a farm on a hill. He keeps seven sheep and one white goat named Snowy. "
         "In winter the animals sleep in the barn. What is the name of the goat?",
         "Snowy."},
        {"Grandpa Joe has a farm on a hill. He keeps seven sheep and one white goat named Snowy. "
         "In winter the animals sleep in the barn. How many sheep does Grandpa Joe have?",
         "Seven."},
        {"Molly has a small brown dog called Biscuit. Every day after school they walk to the "
         "river. What is the dog called?",
         "Biscuit."},
        {"Molly has a small brown dog called Biscuit. Every day after school they walk to the "
         "river. What colour is the dog?",
         "Brown."},
        {"What do you call a baby sheep?", "A lamb."},
        {"Which month follows May?", "June."},
    };
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    answer told;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        REQUIRE_OK(ask(model, session, asked[i].text, &(tern_sampling){0}, &told, &err), err);
        CHECK_MSG(strcmp(told.text, asked[i].wanted) == 0, "%s %s", asked[i].text, told.text);
    }
    tern_session_close(session);
    tern_model_close(model);
}
