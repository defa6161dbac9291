// A timeline under the caller's control: cut to a length, continued by ids alone, its last scores
// read; a prompt's progress; and a sampler of the caller's own. All of it gives the bits that a
// session gives which was told the whole text at once.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tern.h"
#include "tern_tools.h"

// Plain attention, delta nets, convolutions, windows, Mamba: states that go back in their own ways.
static const char *const families[] = {
    "tests/oracles/llama",
    "tests/oracles/qwen35/model.gguf",
    "tests/oracles/lfm2/model.gguf",
    "tests/oracles/gemma3/model.gguf",
    "tests/oracles/granitehybrid/model.gguf",
};
enum { N_FAMILIES = sizeof families / sizeof *families, N_IDS = 90, N_SAID = 6 };
static const tern_sampling greedy = {0};

typedef struct opened {
    tern_model *model;
    tern_session *session;
    int32_t n_vocab, ids[N_IDS];
} opened;

static bool open_path(opened *o, const char *path) {
    tern_error err = {0};
    tern_model_info info;
    *o = (opened){0};
    const tern_model_desc desc = {.n_batch = 32, .n_threads = 1};
    const tern_session_desc session = {.n_context = 200};
    bool ok = tern_model_open(&o->model, path, &desc, &err) == TERN_OK &&
              tern_session_open(&o->session, o->model, &session, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    tern_model_get_info(o->model, &info);
    o->n_vocab = info.n_vocab;
    for (int i = 0; ok && i < N_IDS; i++) o->ids[i] = (int32_t)(1 + i * 7 % (info.n_vocab - 1));
    return ok;
}

static bool open_tiny(opened *o) {
    tern_error err = {0};
    const char *path = test_memory_tmp("timeline.gguf");
    const tiny_model_desc tiny = {.seed = 5, .readable = true};
    bool ok = tiny_model_write(path, &tiny, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    return ok && open_path(o, path);
}

static void close_opened(opened *o) {
    tern_session_close(o->session);
    tern_model_close(o->model);
}

// What a new session says after the first n ids.
static size_t say_whole(const opened *o, size_t n, int32_t *said) {
    tern_error err = {0};
    tern_session *s = NULL;
    size_t n_said = 0;
    const tern_session_desc desc = {.n_context = 200};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = N_SAID, .ignore_end = true};
    CHECK(tern_session_open(&s, o->model, &desc, &err) == TERN_OK);
    CHECK_MSG(tern_generate_ids(s, o->ids, n, &p, NULL, &err) == TERN_OK, "%s", err.message);
    const int32_t *ids = tern_session_generated(s, &n_said);
    if (n_said) memcpy(said, ids, n_said * sizeof *said);
    tern_session_close(s);
    return n_said;
}

static void check_said(const opened *o, const int32_t *want, size_t n_want, const char *what) {
    size_t n;
    const int32_t *said = tern_session_generated(o->session, &n);
    CHECK_MSG(n == n_want && !memcmp(said, want, n * sizeof *said), "%s: other tokens", what);
}

// Seen to fail: with the timeline's end one too early or late, with states that are not cut, with
// ids that replace the timeline in spite of `append`, with the last token not computed again.
TEST(timeline_is_truncated_and_continued_by_ids_alone) {
    for (size_t f = 0; f < N_FAMILIES; f++) {
        opened o;
        tern_error err = {0};
        int32_t want[N_SAID];
        tern_generate_stats stats;
        const tern_generate_params p = {
            .sampling = &greedy, .max_tokens = N_SAID, .ignore_end = true, .append = true};
        if (!open_path(&o, families[f])) return;
        const size_t n_want = say_whole(&o, 60, want);
        // Another text after 41 tokens, which is dropped again; then the rest of the first.
        REQUIRE_OK(tern_session_sync(o.session, o.ids, 41, NULL, &err), err);
        REQUIRE_OK(tern_session_logits(o.session, o.ids + 3, 20, NULL, &err), err);
        REQUIRE_OK(tern_session_truncate(o.session, 41, &err), err);
        CHECK(tern_session_n_tokens(o.session) == 41);
        REQUIRE_OK(tern_generate_ids(o.session, o.ids + 41, 19, &p, &stats, &err), err);
        CHECK_MSG(stats.n_prompt == 60, "%zu", stats.n_prompt);
        check_said(&o, want, n_want, families[f]);
        // Nothing is appended: it goes on from where it is.
        REQUIRE_OK(tern_session_truncate(o.session, 60, &err), err);
        REQUIRE_OK(tern_generate_ids(o.session, NULL, 0, &p, NULL, &err), err);
        check_said(&o, want, n_want, families[f]);
        // The ids may be the timeline's own.
        REQUIRE_OK(tern_session_truncate(o.session, 0, &err), err);
        REQUIRE_OK(tern_session_logits(o.session, o.ids, 60, NULL, &err), err);
        const int32_t *own = tern_session_tokens(o.session);
        REQUIRE_OK(tern_session_truncate(o.session, 30, &err), err);
        REQUIRE_OK(tern_generate_ids(o.session, own + 30, 30, &p, NULL, &err), err);
        check_said(&o, want, n_want, families[f]);
        close_opened(&o);
    }
}

// Seen to fail: with the scores before the last token, with a timeline that is longer afterwards.
TEST(timeline_gives_the_scores_after_its_last_token) {
    for (size_t f = 0; f < N_FAMILIES; f++) {
        opened o;
        tern_error err = {0};
        if (!open_path(&o, families[f])) return;
        const size_t row = (size_t)o.n_vocab * sizeof(float);
        float *want = malloc(40 * row), *last = malloc(row);
        REQUIRE(want && last);
        CHECK(tern_session_last_logits(o.session, last, &err) == TERN_ERR_ARGUMENT);
        REQUIRE_OK(tern_session_logits(o.session, o.ids, 40, want, &err), err);
        for (int i = 0; i < 2; i++) {
            REQUIRE_OK(tern_session_last_logits(o.session, last, &err), err);
            CHECK_MSG(!memcmp(last, want + 39 * (size_t)o.n_vocab, row), "%s", families[f]);
            CHECK(tern_session_n_tokens(o.session) == 40);
        }
        REQUIRE_OK(tern_session_truncate(o.session, 17, &err), err);
        REQUIRE_OK(tern_session_last_logits(o.session, last, &err), err);
        CHECK_MSG(!memcmp(last, want + 16 * (size_t)o.n_vocab, row), "%s", families[f]);
        free(want);
        free(last);
        close_opened(&o);
    }
}

// Texts: a BOS only at the timeline's beginning.
TEST(timeline_is_continued_by_text) {
    opened o;
    tern_error err = {0};
    int32_t whole[64], part[64];
    tern_ids all = {whole, 64, 0}, rest = {part, 64, 0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = 3, .append = true};
    if (!open_path(&o, "models/stories.gguf")) return;
    REQUIRE_OK(tern_generate(o.session, "Once upon", &p, NULL, &err), err);
    REQUIRE_OK(tern_tokenize(o.model, "Once upon", 9, TERN_TOKENIZE_BOS, &all, &err), err);
    REQUIRE_OK(tern_session_truncate(o.session, all.n, &err), err);
    REQUIRE_OK(tern_generate(o.session, " a time", &p, NULL, &err), err);
    REQUIRE_OK(tern_tokenize(o.model, " a time", 7, TERN_TOKENIZE_SPECIAL, &rest, &err), err);
    memcpy(whole + all.n, part, rest.n * sizeof *part);
    CHECK(!memcmp(tern_session_tokens(o.session), whole, (all.n + rest.n) * sizeof *whole));
    close_opened(&o);
}

TEST(timeline_refuses_what_it_does_not_have) {
    opened o;
    tern_error err = {0};
    const tern_message message = {"user", "Hello", NULL, 0};
    const tern_generate_params p = {.append = true, .max_tokens = 2};
    if (!open_tiny(&o)) return;
    REQUIRE_OK(tern_session_sync(o.session, o.ids, 20, NULL, &err), err);
    CHECK(tern_session_truncate(o.session, 21, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "20") && strstr(err.message, "21"), "%s", err.message);
    CHECK(tern_session_n_tokens(o.session) == 20);
    CHECK(tern_chat_answer(o.session, &message, 1, &p, NULL, &err) == TERN_ERR_ARGUMENT);
    tern_session_reset(o.session);
    CHECK(tern_generate_ids(o.session, NULL, 0, &p, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_session_sync(o.session, o.ids, N_IDS, NULL, &err) == TERN_OK);
    int32_t many[150] = {0};
    CHECK(tern_generate_ids(o.session, many, 111, &p, NULL, &err) == TERN_ERR_CONTEXT_FULL);
    CHECK_MSG(strstr(err.message, "201"), "%s", err.message);
    close_opened(&o);
}

// ---- Progress ----------------------------------------------------------------------------------

typedef struct progress {
    double last;
    int n, stop_at;
    bool falls, has_word;
} progress;

static bool on_progress(void *user, const char *phase, double fraction) {
    progress *p = user;
    p->falls |= fraction <= p->last || fraction > 1;
    p->has_word |= strcmp(phase, "prompt") != 0;
    p->last = fraction;
    return ++p->n != p->stop_at;
}

// Seen to fail: with no call for the last piece, with the share of the new tokens instead of all.
TEST(timeline_tells_the_progress_of_a_prompt) {
    opened o;
    tern_error err = {0};
    progress all = {0}, some = {.stop_at = 2}, more = {0};
    tern_generate_stats stats;
    tern_generate_params p = {.sampling = &greedy,
                              .max_tokens = 2,
                              .ignore_end = true,
                              .on_progress = on_progress,
                              .user = &all};
    if (!open_tiny(&o)) return;
    REQUIRE_OK(tern_generate_ids(o.session, o.ids, N_IDS, &p, NULL, &err), err);
    CHECK(all.n == 3 && all.last == 1 && !all.falls && !all.has_word); // 32 + 32 + 26
    tern_session_reset(o.session);
    p.user = &some;
    REQUIRE_OK(tern_generate_ids(o.session, o.ids, N_IDS, &p, &stats, &err), err);
    CHECK(some.n == 2 && stats.reason == TERN_STOP_CALLER && stats.n_generated == 0);
    CHECK(tern_session_n_tokens(o.session) == 64);
    p.user = &more; // what was read stays
    REQUIRE_OK(tern_generate_ids(o.session, o.ids, N_IDS, &p, &stats, &err), err);
    CHECK_MSG(more.n == 1 && more.last == 1 && stats.n_reused == 64, "%d", more.n);
    close_opened(&o);
}

// ---- A sampler of the caller's own --------------------------------------------------------------

typedef struct chooser {
    const opened *o;
    int n;
    int32_t forbidden, wanted; // -1: none
    bool picks, bad;           // the greatest itself, instead of leaving it to the library
    int stop_at;
    int32_t seen[64]; // the last id of each call
} chooser;

static int32_t on_logits(void *user, const tern_logits *at) {
    chooser *c = user;
    int32_t best = 0;
    c->bad |= at->n_vocab != c->o->n_vocab || at->n_generated != (size_t)c->n;
    if (c->n < 64) c->seen[c->n] = at->ids[at->n_ids - 1];
    c->n++;
    if (c->n == c->stop_at) return TERN_LOGITS_STOP;
    if (c->wanted >= 0) return c->wanted;
    if (c->forbidden >= 0) at->logits[c->forbidden] = -INFINITY;
    for (int32_t i = 1; i < at->n_vocab; i++)
        if (at->logits[i] > at->logits[best]) best = i;
    return c->picks ? best : TERN_LOGITS_SAMPLE;
}

static tern_status ask(opened *o, chooser *c, tern_generate_params *p, tern_error *err) {
    c->o = o;
    p->on_logits = on_logits;
    p->user = c;
    p->ignore_end = true;
    if (!p->max_tokens) p->max_tokens = N_SAID;
    tern_session_reset(o->session);
    return tern_generate_ids(o->session, o->ids, 30, p, NULL, err);
}

// Seen to fail: with changed scores that the sampler does not see, with a choice that is sampled
// again, with one call fewer than tokens.
TEST(timeline_asks_a_sampler_of_the_callers_own) {
    opened o;
    tern_error err = {0};
    int32_t want[N_SAID];
    size_t n;
    if (!open_tiny(&o)) return;
    say_whole(&o, 30, want);
    for (int picks = 0; picks < 2; picks++) { // nothing is changed: the same text
        chooser c = {.forbidden = -1, .wanted = -1, .picks = picks};
        tern_generate_params p = {.sampling = &greedy};
        REQUIRE_OK(ask(&o, &c, &p, &err), err);
        check_said(&o, want, N_SAID, "unchanged");
        CHECK(c.n == N_SAID && !c.bad && c.seen[0] == o.ids[29] && c.seen[1] == want[0]);
    }
    chooser without = {.forbidden = want[0], .wanted = -1};
    tern_generate_params p = {.sampling = &greedy, .logprobs = true};
    REQUIRE_OK(ask(&o, &without, &p, &err), err);
    const int32_t *said = tern_session_generated(o.session, &n);
    for (size_t i = 0; i < n; i++) CHECK(said[i] != want[0]);
    // Log-probabilities are the model's own: the one that was excluded had more.
    size_t n_tokens, n_each;
    const tern_token_logprob *row = tern_session_token_logprobs(o.session, &n_tokens, &n_each);
    CHECK(n_tokens == n && n_each == 1 && row[0].logprob < 0);
    chooser fixed = {.forbidden = -1, .wanted = 7};
    p.logprobs = false;
    REQUIRE_OK(ask(&o, &fixed, &p, &err), err);
    said = tern_session_generated(o.session, &n);
    for (size_t i = 0; i < N_SAID; i++) CHECK(n == N_SAID && said[i] == 7);
    chooser stops = {.forbidden = -1, .wanted = -1, .stop_at = 3};
    REQUIRE_OK(ask(&o, &stops, &p, &err), err);
    tern_session_generated(o.session, &n);
    CHECK(n == 2);
    close_opened(&o);
}

static int32_t leave_nothing(void *user, const tern_logits *at) {
    for (int32_t i = 0; i < at->n_vocab; i++) at->logits[i] = *(float *)user;
    return TERN_LOGITS_SAMPLE;
}

TEST(timeline_refuses_what_a_sampler_may_not_choose) {
    opened o;
    tern_error err = {0};
    const int32_t allowed[] = {5, 6};
    float values[] = {-INFINITY, NAN};
    if (!open_tiny(&o)) return;
    for (int i = 0; i < 3; i++) {
        chooser c = {.forbidden = -1, .wanted = i == 0 ? o.n_vocab : i == 1 ? INT32_MAX : 7};
        tern_generate_params p = {.sampling = &greedy,
                                  .allowed_token_ids = allowed,
                                  .n_allowed_token_ids = i == 2 ? 2 : 0};
        CHECK(ask(&o, &c, &p, &err) == TERN_ERR_ARGUMENT);
        CHECK_MSG(strstr(err.message, "on_logits"), "%s", err.message);
    }
    for (int i = 0; i < 2; i++) {
        const tern_generate_params p = {
            .max_tokens = 2, .on_logits = leave_nothing, .user = &values[i]};
        CHECK(tern_generate_ids(o.session, o.ids, 30, &p, NULL, &err) == TERN_ERR_ARGUMENT);
        CHECK_MSG(strstr(err.message, "on_logits"), "%s", err.message);
    }
    close_opened(&o);
}

// With drafts, with a grammar, and in a group it is asked the same: once for each token, in order.
// Seen to fail: with the grammar's mask after the caller, with forced tokens that it does not see.
TEST(timeline_asks_the_same_with_drafts_grammars_and_groups) {
    opened o;
    tern_error err = {0};
    int32_t want[N_SAID];
    if (!open_tiny(&o)) return;
    say_whole(&o, 30, want);
    const tern_session_desc drafting = {
        .n_context = 200,
        .speculation = {.lookup = true, .online = true, .always = true, .token_cost = 0.1f}};
    tern_session_close(o.session);
    REQUIRE_OK(tern_session_open(&o.session, o.model, &drafting, &err), err);
    for (int i = 0; i < 2; i++) { // the second time its drafts are right
        chooser c = {.forbidden = -1, .wanted = -1, .picks = true};
        tern_generate_params p = {.sampling = &greedy};
        REQUIRE_OK(ask(&o, &c, &p, &err), err);
        check_said(&o, want, N_SAID, "with drafts");
        CHECK(c.n == N_SAID && !c.bad);
        for (int k = 0; k < N_SAID; k++) CHECK(c.seen[k] == (k ? want[k - 1] : o.ids[29]));
    }
    chooser c = {.forbidden = -1, .wanted = -1, .picks = true, .o = &o};
    const tern_generate_params p = {.sampling = &greedy,
                                    .max_tokens = N_SAID,
                                    .ignore_end = true,
                                    .on_logits = on_logits,
                                    .user = &c};
    tern_group *group = NULL;
    size_t n_running = 1;
    tern_session_reset(o.session);
    REQUIRE_OK(tern_group_open(&group, o.model, NULL, &err), err);
    REQUIRE_OK(tern_group_add(group, o.session, o.ids, 30, &p, &err), err);
    while (n_running > 0) REQUIRE_OK(tern_group_step(group, &n_running, &err), err);
    tern_group_close(group);
    check_said(&o, want, N_SAID, "in a group");
    tern_grammar *grammar = NULL;
    const tern_grammar_desc abc = {.text = "abc[de]", .kind = TERN_GRAMMAR_REGEX};
    chooser bound = {.forbidden = -1, .wanted = -1, .picks = true, .o = &o};
    REQUIRE_OK(tern_grammar_open(&grammar, o.model, &abc, &err), err);
    tern_generate_params q = {.sampling = &greedy, .grammar = grammar};
    size_t n;
    bool is_accepted = false;
    REQUIRE_OK(ask(&o, &bound, &q, &err), err);
    const int32_t *said = tern_session_generated(o.session, &n);
    char text[16] = "";
    for (size_t i = 0; i < n && i < 8; i++) {
        size_t n_bytes;
        const char *piece = tern_token_text(o.model, said[i], &n_bytes);
        if (strlen(text) + n_bytes < sizeof text) strncat(text, piece, n_bytes);
    }
    REQUIRE_OK(tern_grammar_check(grammar, text, strlen(text), NULL, &is_accepted, &err), err);
    CHECK_MSG(is_accepted && bound.n >= (int)n && !bound.bad, "%s: %d calls", text, bound.n);
    tern_grammar_close(grammar);
    close_opened(&o);
}

// Its own session is closed in the callback: the answer ends.
static int32_t close_it(void *user, const tern_logits *at) {
    (void)at;
    tern_session_close(user);
    return 5;
}

TEST(timeline_is_closed_in_a_samplers_callback) {
    opened o;
    tern_error err = {0};
    tern_generate_stats stats;
    if (!open_tiny(&o)) return;
    const tern_generate_params p = {.max_tokens = 9, .on_logits = close_it, .user = o.session};
    REQUIRE_OK(tern_generate_ids(o.session, o.ids, 30, &p, &stats, &err), err);
    CHECK(stats.reason == TERN_STOP_CALLER && stats.n_generated == 0);
    tern_model_close(o.model);
}
