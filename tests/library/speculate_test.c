// Speculation on tiny models: text and distribution stay the same, whatever the drafters say.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/harness.h"
#include "tern.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

static const char *tiny(const tiny_model_desc *desc, const char *name) {
    tern_error err = {0};
    const char *path = test_tmp(name);
    test_check(tiny_model_write(path, desc, &err) == TERN_OK, __FILE__, __LINE__, "%s",
               err.message);
    return path;
}

static tern_session *open_with(tern_model *model, const tern_speculation *speculation,
                               tern_session_desc desc) {
    tern_session *session = NULL;
    tern_error err = {0};
    if (speculation) desc.speculation = *speculation;
    tern_status status = tern_session_open(&session, model, &desc, &err);
    test_check(status == TERN_OK, __FILE__, __LINE__, "%s", err.message);
    return session;
}

// Knows the text: proposes it, with every error_every-th token made wrong.
typedef struct oracle {
    const int32_t *text; // prompt and answer
    size_t n, error_every;
} oracle;

static int32_t from_oracle(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                           int32_t n_max) {
    const oracle *o = user;
    int32_t n = 0;
    (void)ids;
    for (size_t at = n_ids; at < o->n && n < n_max; at++, n++)
        draft[n] = o->error_every && at % o->error_every == 0 ? (o->text[at] + 1) % TINY_N_VOCAB
                                                              : o->text[at];
    return n;
}

// Nonsense, some of it not tokens at all.
static int32_t from_nowhere(void *user, const int32_t *ids, size_t n_ids, int32_t *draft,
                            int32_t n_max) {
    int32_t *state = user;
    (void)ids, (void)n_ids;
    for (int32_t i = 0; i < n_max; i++) {
        *state = (int32_t)((uint32_t)*state * 1664525u + 1013904223u);
        draft[i] = *state % (TINY_N_VOCAB + 8);
    }
    return n_max;
}

static size_t generate(tern_session *s, const int32_t *prompt, size_t n_prompt,
                       const tern_sampling *sampling, int32_t n, int32_t *out,
                       tern_generate_stats *st) {
    tern_error err = {0};
    tern_generate_params p = {.sampling = sampling, .max_tokens = n, .ignore_end = true};
    size_t n_ids = 0;
    tern_status status = tern_generate_ids(s, prompt, n_prompt, &p, st, &err);
    test_check(status == TERN_OK, __FILE__, __LINE__, "%s", err.message);
    const int32_t *ids = tern_session_generated(s, &n_ids);
    memcpy(out, ids, n_ids * sizeof *ids);
    return n_ids;
}

static void make_prompt(int32_t *prompt, size_t n, uint32_t seed) {
    for (uint32_t i = 0; i < n; i++)
        prompt[i] = (int32_t)((i * 2654435761u + seed * 40503u) >> 8) % 60 + (int32_t)seed % 240;
}

// A table from texts that a model has written: what mining would find.
static tern_chains *chains_of(const int32_t *text, size_t n) {
    tern_chain entries[200];
    size_t n_entries = 0;
    tern_chains *c = NULL;
    tern_error err = {0};
    for (size_t at = 0; at + 8 <= n && n_entries < 200; at += 2)
        entries[n_entries++] = (tern_chain){text + at, (int32_t)(2 + at % 7), 0.5f, NULL};
    tern_status status = tern_chains_create(&c, entries, n_entries, &err);
    test_check(status == TERN_OK, __FILE__, __LINE__, "%s", err.message);
    return c;
}

enum { N_PROMPT = 12, N_TEXT = 40, N_PROMPTS = 200 };

// Greedy text is the same on 200 prompts, for every drafter.
TEST(speculation_keeps_the_greedy_text_of_200_prompts) {
    const char *path = tiny(&(tiny_model_desc){.seed = 31, .head_type = TERN_DTYPE_F16}, "g.gguf");
    const char *small = tiny(&(tiny_model_desc){.seed = 31, .n_layers = 1}, "small.gguf");
    tern_model *model, *draft;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    REQUIRE_OK(tern_model_open(&draft, small, &(tern_model_desc){.n_threads = 1}, &err), err);
    static int32_t want[N_PROMPTS][N_TEXT], whole[N_PROMPT + N_TEXT];
    tern_session *plain = open_with(model, NULL, (tern_session_desc){.n_context = 64});
    int32_t prompt[N_PROMPT], got[N_TEXT], noise = 1;
    for (unsigned i = 0; i < N_PROMPTS; i++) {
        make_prompt(prompt, N_PROMPT, i);
        generate(plain, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, want[i], NULL);
    }
    tern_chains *chains = chains_of(want[0], sizeof want / sizeof **want);
    oracle o = {whole, N_PROMPT + N_TEXT, 5};
    const tern_speculation kinds[] = {
        {.chains = chains},
        {.lookup = true, .always = true},
        {.online = true, .max_length = 16},
        {.draft_model = draft, .always = true, .max_length = 3},
        {.draft = from_oracle, .draft_user = &o, .always = true, .max_length = 16},
        {.draft = from_nowhere, .draft_user = &noise, .always = true},
        {.chains = chains, .lookup = true, .online = true, .draft_model = draft, .threshold = 0.5f},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        tern_session *s = open_with(model, &kinds[k], (tern_session_desc){.n_context = 64});
        size_t n_different = 0, n_accepted = 0;
        for (unsigned i = 0; i < N_PROMPTS; i++) {
            tern_generate_stats st;
            make_prompt(prompt, N_PROMPT, i);
            memcpy(whole, prompt, sizeof prompt);
            memcpy(whole + N_PROMPT, want[i], sizeof want[i]);
            size_t n = generate(s, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, got, &st);
            n_different += n != N_TEXT || memcmp(got, want[i], sizeof got) != 0;
            n_accepted += st.draft.n_accepted;
            CHECK(st.draft.n_steps + st.draft.n_accepted >= N_TEXT - 1);
        }
        CHECK_MSG(n_different == 0, "drafters %zu: %zu texts differ", k, n_different);
        CHECK_MSG(n_accepted > 0 || kinds[k].draft == from_nowhere, "drafters %zu: nothing", k);
        tern_session_close(s);
    }
    tern_chains_close(chains);
    tern_session_close(plain);
    tern_model_close(draft);
    tern_model_close(model);
}

// With the same seed every draw is the same, also after penalties and filters.
TEST(speculation_keeps_every_draw_of_a_seed) {
    static const tern_sampling ways[] = {
        {.temperature = 1.5f, .top_k = 40, .top_p = 0.95f, .min_p = 0.01f},
        {.temperature = 4, .top_k = 0, .top_p = 1},
        {.temperature = 2,
         .top_k = 12,
         .top_p = 1,
         .repeat_penalty = 1.3f,
         .presence_penalty = 0.5f},
        {.temperature = 3, .top_p = 1, .frequency_penalty = 0.4f, .min_p = 0.02f},
        {.temperature = 0, .repeat_penalty = 1.2f},
        {.temperature = 3,
         .top_p = 1,
         .top_k = 50,
         .xtc_probability = 0.5f,
         .xtc_threshold = 0.05f,
         .dry_multiplier = 1,
         .dry_base = 1.5f,
         .dry_allowed_length = 1,
         .dry_penalty_last_n = -1},
        {.temperature = 2, .top_p = 1, .mirostat = 1, .mirostat_tau = 3, .mirostat_eta = 0.2f},
        {.temperature = 2, .top_p = 1, .mirostat = 2, .mirostat_tau = 4, .mirostat_eta = 0.1f},
        {.temperature = 2,
         .top_p = 1,
         .typical_p = 0.8f,
         .dynatemp_range = 1,
         .dynatemp_exponent = 1,
         .top_n_sigma = 2,
         .samplers = "tyskd"},
    };
    const char *path = tiny(&(tiny_model_desc){.seed = 32}, "sampled.gguf");
    tern_model *model;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    int32_t prompt[N_PROMPT], want[N_TEXT], got[N_TEXT], whole[N_PROMPT + N_TEXT];
    oracle o = {whole, N_PROMPT + N_TEXT, 4};
    const tern_speculation p = {.draft = from_oracle, .draft_user = &o, .always = true};
    tern_session *plain = open_with(model, NULL, (tern_session_desc){0});
    tern_session *s = open_with(model, &p, (tern_session_desc){0});
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (uint32_t seed = 1; seed <= 20; seed++) {
            tern_sampling sampling = ways[way];
            tern_generate_stats st;
            sampling.seed = seed;
            make_prompt(prompt, N_PROMPT, seed);
            generate(plain, prompt, N_PROMPT, &sampling, N_TEXT, want, NULL);
            memcpy(whole, prompt, sizeof prompt);
            memcpy(whole + N_PROMPT, want, sizeof want);
            size_t n = generate(s, prompt, N_PROMPT, &sampling, N_TEXT, got, &st);
            CHECK_MSG(n == N_TEXT && memcmp(got, want, sizeof got) == 0, "way %zu, seed %u", way,
                      (unsigned)seed);
            CHECK(st.draft.n_accepted > N_TEXT / 2);
        }
    tern_session_close(plain);
    tern_session_close(s);
    tern_model_close(model);
}

// The value that chi-square with this many degrees of freedom exceeds once in 10^4 runs (Wilson and
// Hilferty 1931).
static double chi_square_limit(double degrees) {
    double v = 2 / (9 * degrees), z = 3.719, c = 1 - v + z * sqrt(v);
    return degrees * c * c * c;
}

// Two samples, the second drawn with speculation and other seeds: chi-square for both coming from
// one distribution. Cells with few entries are merged.
static void check_same(const uint32_t *a, const uint32_t *b, size_t n_cells, const char *what) {
    double chi = 0, rest_a = 0, rest_b = 0;
    int n = 0;
    for (size_t i = 0; i <= n_cells; i++) {
        double x = i < n_cells ? a[i] : rest_a, y = i < n_cells ? b[i] : rest_b;
        if (i < n_cells && x + y < 20) {
            rest_a += x, rest_b += y;
            continue;
        }
        if (x + y == 0) continue;
        chi += (x - y) * (x - y) / (x + y);
        n++;
    }
    CHECK_MSG(n > 4, "%s: only %d cells say nothing", what, n);
    CHECK_MSG(chi < chi_square_limit(n - 1), "%s: chi-square %.1f in %d cells", what, chi, n);
}

// The distribution of the tokens after a prompt is that of plain sampling, whatever is drafted.
TEST(speculation_keeps_the_distribution) {
    enum { N = 2500, LENGTH = 3 };
    static const tern_sampling ways[] = {
        {.temperature = 1, .top_k = 0, .top_p = 1},
        {.temperature = 3, .top_k = 30, .top_p = 0.9f, .min_p = 0.01f},
        {.temperature = 2, .top_k = 20, .repeat_penalty = 1.5f, .frequency_penalty = 1},
    };
    const char *path = tiny(&(tiny_model_desc){.seed = 33, .n_layers = 1, .readable = true},
                            "chi.gguf"); // readable: its logits are small
    tern_model *model;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    int32_t whole[8 + LENGTH], got[LENGTH];
    make_prompt(whole, 8, 5);
    // The likeliest text as the draft: often right, often wrong.
    tern_session *plain = open_with(model, NULL, (tern_session_desc){.n_context = 16});
    generate(plain, whole, 8, &(tern_sampling){0}, LENGTH, whole + 8, NULL);
    oracle o = {whole, 8 + LENGTH, 0};
    const tern_speculation p = {.draft = from_oracle, .draft_user = &o, .always = true};
    tern_session *s = open_with(model, &p, (tern_session_desc){.n_context = 16});
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        static uint32_t counts[2][LENGTH][TINY_N_VOCAB];
        memset(counts, 0, sizeof counts);
        size_t n_accepted = 0, n_refused = 0;
        for (uint32_t i = 0; i < 2 * N; i++) {
            tern_generate_stats st;
            tern_sampling sampling = ways[way];
            sampling.seed = i + 1;
            generate(i % 2 ? s : plain, whole, 8, &sampling, LENGTH, got, &st);
            for (size_t k = 0; k < LENGTH; k++) counts[i % 2][k][got[k]]++;
            n_accepted += st.draft.n_accepted;
            n_refused += st.draft.n_drafted - st.draft.n_accepted;
        }
        CHECK_MSG(n_accepted > 50 && n_refused > 50, "way %zu: %zu accepted, %zu refused", way,
                  n_accepted, n_refused);
        check_same(counts[0][1], counts[1][1], TINY_N_VOCAB, "second token");
        check_same(counts[0][2], counts[1][2], TINY_N_VOCAB, "third token");
    }
    tern_session_close(plain);
    tern_session_close(s);
    tern_model_close(model);
}

TEST(speculation_counts_what_it_did) {
    const char *path = tiny(&(tiny_model_desc){.seed = 34}, "counts.gguf");
    tern_model *model;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    int32_t prompt[N_PROMPT], want[N_TEXT], got[N_TEXT], whole[N_PROMPT + N_TEXT];
    tern_session *plain = open_with(model, NULL, (tern_session_desc){0});
    tern_generate_stats st;
    make_prompt(prompt, N_PROMPT, 9);
    generate(plain, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, want, &st);
    CHECK(st.draft.n_steps == N_TEXT - 1 && st.draft.n_drafts == 0 && st.draft.speedup == 0);
    memcpy(whole, prompt, sizeof prompt);
    memcpy(whole + N_PROMPT, want, sizeof want);
    oracle o = {whole, N_PROMPT + N_TEXT, 0};
    tern_speculation p = {.draft = from_oracle, .draft_user = &o, .always = true, .max_length = 4};
    // All is right: a step yields 5 tokens; the first of the 40 comes from the prompt's scores.
    tern_session *s = open_with(model, &p, (tern_session_desc){0});
    generate(s, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, got, &st);
    CHECK(memcmp(got, want, sizeof got) == 0);
    CHECK(st.draft.n_steps == 8 && st.draft.n_drafts == 8);
    CHECK(st.draft.n_drafted == 31 && st.draft.n_accepted == 31); // the last step needs 3
    CHECK(st.draft.accepted_length[4] == 7 && st.draft.accepted_length[3] == 1);
    CHECK(st.draft.drafted_length[4] == 7 && st.draft.accepted_of[4] == 28);
    CHECK(st.draft.drafted_by[TERN_DRAFTER_CALLER] == 31 && st.draft.n_runs[5] == 7);
    CHECK(tern_session_n_tokens(s) == N_PROMPT + N_TEXT - 1); // as without
    tern_session_close(s);
    // All is wrong: nothing is accepted. (When it gives up: speculate_gain_test.c.)
    for (int always = 0; always < 2; always++) {
        o.error_every = 1;
        p.always = always;
        s = open_with(model, &p, (tern_session_desc){0});
        for (int i = 0; i < 4; i++)
            generate(s, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, got, &st);
        CHECK(memcmp(got, want, sizeof got) == 0);
        CHECK(st.draft.n_accepted == 0 && st.draft.n_steps == N_TEXT - 1);
        CHECK(always ? st.draft.n_drafts == N_TEXT - 2 : st.draft.n_drafts <= N_TEXT - 2);
        tern_session_close(s);
    }
    tern_session_close(plain);
    tern_model_close(model);
}

static bool stop_after_nine(void *user, const char *text, size_t n) {
    (void)text, (void)n;
    return ++*(int *)user < 9;
}

// If a text ends in the middle of a draft, everything is as without drafts.
TEST(speculation_ends_and_shifts_where_plain_decoding_does) {
    const char *path = tiny(&(tiny_model_desc){.seed = 35, .readable = true}, "ends.gguf");
    tern_model *model;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    enum { N = 100 };
    static int32_t prompt[N_PROMPT], want[N], got[N], whole[N_PROMPT + N];
    make_prompt(prompt, N_PROMPT, 3);
    oracle o = {whole, N_PROMPT + N, 7};
    const tern_speculation p = {.draft = from_oracle, .draft_user = &o, .always = true};
    for (int shift = 0; shift < 2; shift++) {
        tern_session_desc d = {.n_context = 32, .shift_context = shift};
        tern_session *plain = open_with(model, NULL, d), *s = open_with(model, &p, d);
        tern_generate_stats a, b;
        memcpy(whole, prompt, sizeof prompt);
        size_t n = generate(plain, prompt, N_PROMPT, &(tern_sampling){0}, N, want, &a);
        memcpy(whole + N_PROMPT, want, n * sizeof *want);
        CHECK(generate(s, prompt, N_PROMPT, &(tern_sampling){0}, N, got, &b) == n);
        CHECK(memcmp(got, want, n * sizeof *got) == 0 && a.reason == b.reason);
        CHECK(b.draft.n_accepted > 5);
        CHECK(tern_session_n_tokens(s) == tern_session_n_tokens(plain));
        for (int way = 0; way < 2; way++) { // the caller stops; a stop string
            int calls[2] = {0};
            const tern_sampling greedy = {0};
            const char *stops[] = {way ? "e" : "\n\n\n"};
            tern_generate_params params = {.sampling = &greedy,
                                           .max_tokens = N,
                                           .stops = stops,
                                           .n_stops = 1,
                                           .ignore_end = true,
                                           .on_text = stop_after_nine};
            for (int k = 0; k < 2; k++) {
                params.user = &calls[k];
                REQUIRE_OK(
                    tern_generate_ids(k ? s : plain, prompt, N_PROMPT, &params, k ? &b : &a, &err),
                    err);
            }
            CHECK(a.reason == b.reason && a.n_generated == b.n_generated && calls[0] == calls[1]);
        }
        tern_session_close(plain);
        tern_session_close(s);
    }
    tern_model_close(model);
}

TEST(speculation_allocates_nothing_while_generating) {
    const char *path = tiny(&(tiny_model_desc){.seed = 36}, "still.gguf");
    tern_model *model;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    int32_t prompt[N_PROMPT], got[N_TEXT];
    make_prompt(prompt, N_PROMPT, 4);
    const tern_speculation p = {
        .lookup = true, .online = true, .draft_model = model, .always = true};
    tern_session *s = open_with(model, &p, (tern_session_desc){0});
    generate(s, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, got, NULL);
    uint64_t before = tern_heap_get().n_allocs;
    generate(s, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, got, NULL);
    CHECK(tern_heap_get().n_allocs == before);
    tern_session_close(s);
    tern_model_close(model);
}

TEST(speculation_refuses_what_cannot_be) {
    const char *path = tiny(&(tiny_model_desc){.seed = 37}, "refuses.gguf");
    tern_model *model;
    tern_session *s;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    const int32_t foreign[] = {1, 128000};
    tern_chains *chains;
    REQUIRE_OK(tern_chains_create(&chains, &(tern_chain){foreign, 2, 1, NULL}, 1, &err), err);
    const struct {
        tern_speculation p;
        const char *reason;
    } cases[] = {
        {{.lookup = true, .max_length = 17}, "drafts of 17 tokens"},
        {{.lookup = true, .max_length = -1}, "drafts of -1 tokens"},
        {{.lookup = true, .threshold = 1.5f}, "threshold 1.5"},
        {{.lookup = true, .token_cost = -1}, "cost of a further token -1"},
        {{.chains = chains}, "token 128000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tern_session_desc d = {.speculation = cases[i].p};
        CHECK(tern_session_open(&s, model, &d, &err) == TERN_ERR_ARGUMENT && s == NULL);
        CHECK_MSG(strstr(err.message, cases[i].reason) != NULL, "%s", err.message);
    }
    // Failing allocations.
    const tern_session_desc d = {.speculation = {.online = true, .draft_model = model}};
    size_t before = tern_heap_get().heap_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status == TERN_ERR_MEMORY && n < 1000; n++) {
        tern_mem_fail_at(n);
        status = tern_session_open(&s, model, &d, &err);
        tern_mem_fail_at(0);
        tern_session_close(s);
        CHECK(tern_heap_get().heap_now == before);
    }
    CHECK(status == TERN_OK);
    tern_chains_close(chains);
    tern_model_close(model);
}

static size_t drafts_of(const tern_generate_stats *st, size_t from, size_t to) {
    size_t n = 0;
    for (size_t i = from; i <= to; i++) n += st->draft.drafted_length[i];
    return n;
}

// One answer's limits: what is drafted, never what is said. Seen to fail with those of the answer
// before.
TEST(speculation_of_one_answer_can_be_limited) {
    const char *path = tiny(&(tiny_model_desc){.seed = 39}, "limits.gguf");
    tern_model *model;
    tern_error err = {0};
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    int32_t prompt[N_PROMPT], want[N_TEXT], whole[N_PROMPT + N_TEXT];
    make_prompt(prompt, N_PROMPT, 5);
    tern_session *plain = open_with(model, NULL, (tern_session_desc){.n_context = 64});
    generate(plain, prompt, N_PROMPT, &(tern_sampling){0}, N_TEXT, want, NULL);
    memcpy(whole, prompt, sizeof prompt);
    memcpy(whole + N_PROMPT, want, sizeof want);
    oracle o = {whole, N_PROMPT + N_TEXT, 0};
    const tern_speculation how = {
        .lookup = true, .draft = from_oracle, .draft_user = &o, .always = true};
    tern_session *s = open_with(model, &how, (tern_session_desc){.n_context = 64});
    const tern_draft_limits limits[] = {
        {0},
        {.none = true},
        {.most = 2},
        {.least = 5},
        {.without = {[TERN_DRAFTER_LOOKUP] = true, [TERN_DRAFTER_CALLER] = true}},
        {.without = {[TERN_DRAFTER_LOOKUP] = true}},
        {.chance = 1},
        {.most = 3, .least = 4},
        {0},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const tern_draft_limits *l = &limits[i];
        const tern_generate_params p = {.sampling = &(tern_sampling){0},
                                        .max_tokens = N_TEXT,
                                        .ignore_end = true,
                                        .drafts = *l};
        tern_generate_stats st;
        size_t n;
        REQUIRE_OK(tern_generate_ids(s, prompt, N_PROMPT, &p, &st, &err), err);
        const int32_t *ids = tern_session_generated(s, &n);
        CHECK_MSG(n == N_TEXT && !memcmp(ids, want, sizeof want), "limits %zu: another text", i);
        const bool has_none = l->none || l->without[TERN_DRAFTER_CALLER] || l->chance == 1 ||
                              (l->most && l->least > l->most);
        CHECK_MSG((st.draft.n_drafted == 0) == has_none, "limits %zu: %zu tokens", i,
                  st.draft.n_drafted);
        if (l->most) CHECK(drafts_of(&st, (size_t)l->most + 1, TERN_DRAFT_MAX) == 0);
        if (l->least) CHECK(drafts_of(&st, 1, (size_t)l->least - 1) == 0);
        if (l->without[TERN_DRAFTER_LOOKUP]) CHECK(st.draft.drafted_by[TERN_DRAFTER_LOOKUP] == 0);
    }
    const tern_draft_limits wrong[] = {{.most = -1}, {.least = -1}, {.chance = NAN}, {.chance = 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const tern_generate_params p = {.max_tokens = 1, .drafts = wrong[i]};
        CHECK(tern_generate_ids(plain, prompt, N_PROMPT, &p, NULL, &err) == TERN_ERR_ARGUMENT);
        CHECK(strstr(err.message, "expected 0 "));
    }
    tern_session_close(plain);
    tern_session_close(s);
    tern_model_close(model);
}
