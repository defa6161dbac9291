// Answers that are bound by a grammar.
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/strbuf.h"
#include "tern.h"
#include "tests/support/harness.h"

static const char path[] = "models/stories.gguf"; // tests run in the repository's root

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static const struct {
    tern_grammar_kind kind;
    const char *text;
} grammars[] = {
    {TERN_GRAMMAR_JSON_SCHEMA,
     "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 12}, "
     "\"age\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 99}, \"kinds\": {\"type\": "
     "\"array\", \"items\": {\"enum\": [\"cat\", \"dog\"]}, \"maxItems\": 3}}, \"required\": "
     "[\"name\", \"age\", \"kinds\"], \"additionalProperties\": false}"},
    {TERN_GRAMMAR_JSON_SCHEMA, "{\"type\": \"array\", \"minItems\": 2, \"maxItems\": 4, \"items\": "
                               "{\"oneOf\": [{\"type\": \"boolean\"}, {\"type\": \"object\", "
                               "\"additionalProperties\": {\"type\": \"null\"}}]}}"},
    {TERN_GRAMMAR_JSON, NULL},
    {TERN_GRAMMAR_REGEX, " (a|an|the) [a-z]{2,8}( and [a-z]{2,8}){0,3}\\."},
    {TERN_GRAMMAR_GBNF, "root ::= sentence+\nsentence ::= \" \" word (\" \" word){1,4} [.!]\n"
                        "word ::= [A-Z]? [a-z]+"},
    {TERN_GRAMMAR_LARK, "start: sum\nsum: NUMBER | sum (\"+\" | \"-\") sum | \"(\" sum \")\"\n"
                        "NUMBER: /[1-9][0-9]{0,3}/\n"},
};
enum { N_GRAMMARS = sizeof grammars / sizeof *grammars };

static tern_grammar *open_one(tern_model *model, int i) {
    tern_grammar *g = NULL;
    tern_error err = {0};
    const tern_grammar_desc desc = {.kind = grammars[i].kind, .text = grammars[i].text};
    bool ok = tern_grammar_open(&g, model, &desc, &err) == TERN_OK;
    CHECK_MSG(ok, "%d: %s", i, err.message);
    return g;
}

// Raises the tokens that end an answer, so that there is an end wherever the grammar allows it.
static size_t raise_ends(const tern_model *model, tern_logit_bias *out, size_t capacity) {
    tern_model_info info;
    size_t n = 0;
    tern_model_get_info(model, &info);
    for (int32_t id = 0; id < info.n_vocab && n < capacity; id++)
        if (tern_token_is_end(model, id)) out[n++] = (tern_logit_bias){id, 50};
    return n;
}

static void check_answer(tern_grammar *g, const tern_strbuf *text, tern_stop_reason reason) {
    size_t n_possible = 0;
    bool is_accepted = false;
    tern_error err = {0};
    CHECK(tern_grammar_check(g, tern_strbuf_text(text), text->len, &n_possible, &is_accepted,
                             &err) == TERN_OK);
    CHECK_MSG(n_possible == text->len, "wrong from byte %zu on: %s", n_possible,
              tern_strbuf_text(text));
    CHECK_MSG(is_accepted == (reason == TERN_STOP_END) || reason == TERN_STOP_LENGTH,
              "stopped by %d: %s", (int)reason, tern_strbuf_text(text));
}

// Whatever is drawn, what comes out is what the grammar says; at a high temperature the model would
// say nothing of the kind.
// Seen to fail with candidates that are not masked, and with a place that does not go on with
// forced tokens.
TEST(grammar_answers_are_what_the_grammar_says) {
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    tern_logit_bias ends[8];
    size_t n_ends = raise_ends(model, ends, sizeof ends / sizeof *ends);
    for (int i = 0; i < N_GRAMMARS; i++) {
        tern_grammar *g = open_one(model, i);
        int n_ended = 0;
        for (uint64_t seed = 1; g && seed <= (test_is_long() ? 400 : 12); seed++) {
            tern_strbuf text = {0};
            tern_generate_stats stats = {0};
            const tern_sampling sampling = {.temperature = (float)(seed % 4), .seed = seed};
            const tern_generate_params params = {.sampling = &sampling,
                                                 .max_tokens = 120,
                                                 .grammar = g,
                                                 .ignore_end = seed % 5 == 0,
                                                 .biases = ends,
                                                 .n_biases = seed % 3 == 0 ? n_ends : 0,
                                                 .on_text = collect,
                                                 .user = &text};
            tern_session_reset(session);
            tern_status status = tern_generate(session, "Once upon a time", &params, &stats, &err);
            CHECK_MSG(status == TERN_OK, "%s", err.message);
            check_answer(g, &text, stats.reason);
            n_ended += stats.reason == TERN_STOP_END;
            tern_strbuf_free(&text);
        }
        CHECK_MSG(n_ended > 0, "grammar %d ended %d times", i, n_ended);
        tern_grammar_close(g);
    }
    tern_session_close(session);
    tern_model_close(model);
}

// With likelihoods all scores are computed, without them those that may come: the greatest of these
// by the exact head, or in full where they are few. Grammars without text that must come, so that
// both ask for every token. Seen to fail with sets that are not handed on, and with the last of the
// rows of a few left out.
TEST(grammar_answers_are_the_same_from_all_scores_and_from_those_of_tokens_that_may_come) {
    static const tern_head_mode heads[] = {TERN_HEAD_EXACT, TERN_HEAD_Q8_0, TERN_HEAD_FILE};
    static const char *const patterns[] = {" [a-z]{2,8}( [a-z]{2,8}){0,9}\\.", "[^0-9]{90,}",
                                           "([ab]+ ?)+", "[^\\u0000-\\uffff]+"};
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        tern_error err = {0};
        tern_model *model;
        tern_session *session;
        const tern_model_desc desc = {.head = heads[h]};
        REQUIRE_OK(tern_model_open(&model, path, &desc, &err), err);
        REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
        for (size_t i = 0; i < 2 * sizeof patterns / sizeof *patterns; i++) {
            tern_grammar *g;
            tern_strbuf texts[2] = {{0}};
            const tern_grammar_desc of = {.kind = TERN_GRAMMAR_REGEX, .text = patterns[i / 2]};
            REQUIRE_OK(tern_grammar_open(&g, model, &of, &err), err);
            const tern_sampling sampling = {.temperature = i % 2 ? 0.9f : 0, .seed = 3};
            for (int all = 0; all < 2; all++) {
                const tern_generate_params params = {.sampling = &sampling,
                                                     .max_tokens = 40,
                                                     .grammar = g,
                                                     .logprobs = all == 1,
                                                     .on_text = collect,
                                                     .user = &texts[all]};
                tern_session_reset(session);
                CHECK(tern_generate(session, "Once upon a time", &params, NULL, &err) == TERN_OK);
            }
            CHECK_MSG(strcmp(tern_strbuf_text(&texts[0]), tern_strbuf_text(&texts[1])) == 0,
                      "head %d: '%s' and '%s'", (int)heads[h], tern_strbuf_text(&texts[0]),
                      tern_strbuf_text(&texts[1]));
            for (int all = 0; all < 2; all++) tern_strbuf_free(&texts[all]);
            tern_grammar_close(g);
        }
        tern_session_close(session);
        tern_model_close(model);
    }
}

static int32_t draft(void *user, const int32_t *ids, size_t n_ids, int32_t *out, int32_t n_max) {
    (void)user;
    for (int32_t i = 0; i < n_max; i++) // some that may come, some that may not
        out[i] = ids[tern_mix64(n_ids + (size_t)i) % n_ids];
    return n_max;
}

static void generate(tern_model *model, tern_grammar *g, const tern_speculation *speculation,
                     tern_strbuf *text) {
    tern_error err = {0};
    tern_session *session;
    const tern_session_desc desc = {.speculation = *speculation};
    const tern_sampling sampling = {.temperature = 0.9f, .seed = 7};
    const tern_generate_params params = {
        .sampling = &sampling, .max_tokens = 80, .grammar = g, .on_text = collect, .user = text};
    REQUIRE_OK(tern_session_open(&session, model, &desc, &err), err);
    tern_generate_stats stats = {0};
    tern_status status =
        tern_generate(session, "Once upon a time there was a cat and a dog", &params, &stats, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    tern_session_close(session);
}

// Seen to fail with one mask for all rows of a draft.
TEST(grammar_answers_do_not_depend_on_speculation) {
    tern_error err = {0};
    tern_model *model;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    const tern_speculation ways[] = {
        {0}, {.lookup = true, .always = true}, {.draft = draft, .always = true}};
    for (int i = 0; i < N_GRAMMARS; i++) {
        tern_grammar *g = open_one(model, i);
        tern_strbuf texts[3] = {{0}};
        for (int k = 0; g && k < 3; k++) generate(model, g, &ways[k], &texts[k]);
        for (int k = 1; k < 3; k++)
            CHECK_MSG(strcmp(tern_strbuf_text(&texts[0]), tern_strbuf_text(&texts[k])) == 0,
                      "%s and %s", tern_strbuf_text(&texts[0]), tern_strbuf_text(&texts[k]));
        for (int k = 0; k < 3; k++) tern_strbuf_free(&texts[k]);
        tern_grammar_close(g);
    }
    tern_model_close(model);
}

typedef struct one_of_many {
    tern_strbuf text;
    tern_stop_reason reason;
    bool ended;
} one_of_many;
static bool collect_many(void *user, const char *text, size_t n) {
    one_of_many *o = user;
    return collect(&o->text, text, n);
}
static void on_end(void *user, tern_session *s, const tern_generate_stats *stats,
                   const tern_error *err) {
    one_of_many *o = user;
    (void)s;
    CHECK_MSG(err->status == TERN_OK, "%s", err->message);
    o->reason = stats->reason;
    o->ended = true;
}

// Some bound, some not, and two by the same grammar: each says what it says alone.
TEST(grammar_answers_in_a_group_are_those_alone) {
    enum { N = 2 * N_GRAMMARS };
    tern_error err = {0};
    tern_model *model;
    tern_group *group;
    tern_session *sessions[N] = {0};
    tern_grammar *all[N_GRAMMARS] = {0};
    one_of_many outs[N] = {0};
    tern_ids ids = {(int32_t[64]){0}, 64, 0};
    size_t n_running = 1;
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_group_open(&group, model, NULL, &err), err);
    REQUIRE_OK(tern_tokenize(model, "Once upon a time", 16, TERN_TOKENIZE_BOS, &ids, &err), err);
    const tern_sampling sampling = {.temperature = 0.9f, .seed = 11};
    tern_generate_params params = {.sampling = &sampling, .max_tokens = 60};
    for (int i = 0; i < N; i++) {
        int k = i % N_GRAMMARS;
        if (!all[k]) all[k] = open_one(model, k);
        params.grammar = i == 3 ? NULL : all[k];
        REQUIRE_OK(tern_session_open(&sessions[i], model, NULL, &err), err);
        params.on_text = collect_many;
        params.on_end = on_end;
        params.user = &outs[i];
        REQUIRE_OK(tern_group_add(group, sessions[i], ids.ids, ids.n, &params, &err), err);
    }
    while (n_running > 0 && tern_group_step(group, &n_running, &err) == TERN_OK) {
    }
    for (int i = 0; i < N; i++) {
        tern_strbuf alone = {0};
        tern_generate_stats stats = {0};
        params.grammar = i == 3 ? NULL : all[i % N_GRAMMARS];
        CHECK(outs[i].ended);
        tern_session_reset(sessions[i]);
        params.on_text = collect;
        params.user = &alone;
        CHECK(tern_generate_ids(sessions[i], ids.ids, ids.n, &params, &stats, &err) == TERN_OK);
        CHECK_MSG(strcmp(tern_strbuf_text(&alone), tern_strbuf_text(&outs[i].text)) == 0,
                  "%d: '%s' alone, '%s' in a group", i, tern_strbuf_text(&alone),
                  tern_strbuf_text(&outs[i].text));
        if (params.grammar) check_answer(params.grammar, &outs[i].text, outs[i].reason);
        tern_strbuf_free(&alone);
        tern_strbuf_free(&outs[i].text);
        tern_session_close(sessions[i]);
    }
    for (int i = 0; i < N_GRAMMARS; i++) tern_grammar_close(all[i]);
    tern_group_close(group);
    tern_model_close(model);
}

// Text without a choice costs no steps of its own: its tokens come with the next one.
// Seen to fail without forced text (a step for each token), and with steps that count as one token.
TEST(grammar_text_without_a_choice_takes_no_steps) {
    static const char literal[] = "the little bear and the old fox went to the river";
    tern_error err = {0};
    tern_model *model;
    tern_session *session;
    tern_grammar *g;
    tern_strbuf text = {0}, pattern = {0};
    tern_generate_stats stats = {0};
    tern_strbuf_printf(&pattern, "(yes|no), %s: (yes|no)", literal);
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    const tern_grammar_desc desc = {.kind = TERN_GRAMMAR_REGEX, .text = pattern.ptr};
    REQUIRE_OK(tern_grammar_open(&g, model, &desc, &err), err);
    const tern_generate_params params = {
        .max_tokens = 100, .grammar = g, .on_text = collect, .user = &text};
    REQUIRE_OK(tern_generate(session, "Well,", &params, &stats, &err), err);
    CHECK_MSG(strstr(tern_strbuf_text(&text), literal) != NULL, "%s", tern_strbuf_text(&text));
    CHECK_MSG(stats.reason == TERN_STOP_END && stats.draft.n_steps + 8 < stats.n_generated,
              "%zu steps for %zu tokens", stats.draft.n_steps, stats.n_generated);
    // What was appended is in the timeline, behind the prompt; the last token is not yet.
    size_t n_generated = 0, n_tokens = tern_session_n_tokens(session);
    const int32_t *generated = tern_session_generated(session, &n_generated);
    const int32_t *timeline = tern_session_tokens(session);
    CHECK_MSG(n_tokens >= stats.n_prompt && n_tokens <= stats.n_prompt + n_generated &&
                  n_tokens + 17 > stats.n_prompt + n_generated,
              "%zu tokens", n_tokens);
    CHECK(memcmp(timeline + stats.n_prompt, generated,
                 (n_tokens - stats.n_prompt) * sizeof *timeline) == 0);
    // With likelihoods every token is asked for.
    const tern_generate_params slow = {.max_tokens = 100, .grammar = g, .logprobs = true};
    tern_session_reset(session);
    REQUIRE_OK(tern_generate(session, "Well,", &slow, &stats, &err), err);
    CHECK(stats.draft.n_steps + 1 >= stats.n_generated);
    tern_grammar_close(g);
    tern_strbuf_free(&text);
    tern_strbuf_free(&pattern);
    tern_session_close(session);
    tern_model_close(model);
}

TEST(grammar_masks_and_refusals_of_the_public_functions) {
    tern_error err = {0};
    tern_model *model, *other;
    tern_session *session;
    tern_grammar *g;
    static const char *const choices[] = {"yes", "no"};
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_model_open(&other, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, other, NULL, &err), err);
    const tern_grammar_desc desc = {
        .kind = TERN_GRAMMAR_CHOICES, .choices = choices, .n_choices = 2};
    REQUIRE_OK(tern_grammar_open(&g, model, &desc, &err), err);
    tern_model_info info;
    tern_model_get_info(model, &info);
    size_t n_words = ((size_t)info.n_vocab + 63) / 64, n_possible = 9;
    uint64_t *bits = calloc(n_words, sizeof *bits);
    bool accepted = true;
    CHECK(tern_grammar_mask(g, "yes", 3, bits, n_words, &err) == TERN_OK);
    CHECK(bits[info.eos_id / 64] >> (info.eos_id % 64) & 1);
    CHECK(tern_grammar_mask(g, "maybe", 5, bits, n_words, &err) == TERN_OK);
    for (size_t i = 0; i < n_words; i++) CHECK(bits[i] == 0);
    CHECK(tern_grammar_mask(g, "", 0, bits, n_words - 1, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_grammar_check(g, "no!", 3, &n_possible, &accepted, &err) == TERN_OK);
    CHECK(n_possible == 2 && !accepted);
    const tern_generate_params params = {.grammar = g};
    CHECK(tern_generate(session, "Well,", &params, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "another model") != NULL);
    const tern_grammar_desc wrong = {.kind = TERN_GRAMMAR_REGEX, .text = "(a"};
    tern_grammar *none = g;
    CHECK(tern_grammar_open(&none, model, &wrong, &err) == TERN_ERR_UNSUPPORTED && !none);
    tern_grammar_close(g);
    free(bits);
    tern_session_close(session);
    tern_model_close(other);
    tern_model_close(model);
}
