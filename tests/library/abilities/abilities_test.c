// What every family can do when it runs. tests/library/models/families_test.c has what their files
// mean, tests/library/models/oracle_test.c their numbers.
#include <stdlib.h>
#include <string.h>
#include "formats/formats.h"
#include "runtime/runtime.h"
#include "session/session.h"
#include "tern_tools.h"
#include "tests/library/abilities/abilities_fixture.h"
#include "tests/support/harness.h"

#define EACH_FAMILY(f)                                                                             \
    for (const family *f = families; f < families + N_FAMILIES; f++)                               \
        if (f->embeds)                                                                             \
            continue;                                                                              \
        else

// ---- Running -----------------------------------------------------------------------------------

#define N_CONTEXT 400
#define N_MOST    320 // tokens of a text here

typedef struct running {
    tern_model *model;
    tern_session *session;
    int32_t n_vocab;
} running;

static bool start(running *r, const char *path, const tern_model_desc *md,
                  const tern_session_desc *sd) {
    static const tern_model_desc one = {.n_threads = 1}; // models so small gain nothing by more
    const tern_session_desc usual = {.n_context = N_CONTEXT, .kv_type = TERN_KV_F32};
    tern_model_info info;
    tern_error err = {0};
    *r = (running){0};
    bool ok = tern_model_open(&r->model, path, md ? md : &one, &err) == TERN_OK &&
              tern_session_open(&r->session, r->model, sd ? sd : &usual, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", path, err.message);
    if (!ok) {
        tern_model_close(r->model);
        return false;
    }
    tern_model_get_info(r->model, &info);
    r->n_vocab = info.n_vocab;
    return true;
}

static void finish(running *r) {
    tern_session_close(r->session);
    tern_model_close(r->model);
}

// Sampled, since random weights repeat themselves where greed chooses.
static size_t say(tern_session *s, const int32_t *ids, size_t n_ids, int32_t n, int32_t *said,
                  tern_generate_stats *st) {
    const tern_sampling sampling = {.temperature = 1.5f, .seed = 11};
    const tern_generate_params p = {.sampling = &sampling, .max_tokens = n, .ignore_end = true};
    tern_error err = {0};
    size_t n_said = 0;
    tern_status status = tern_generate_ids(s, ids, n_ids, &p, st, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    const int32_t *all = tern_session_generated(s, &n_said);
    if (n_said) memcpy(said, all, n_said * sizeof *said);
    return n_said;
}

// What a session that knows nothing says.
static size_t say_afresh(tern_model *m, const int32_t *ids, size_t n_ids, int32_t n,
                         int32_t *said) {
    const tern_session_desc sd = {.n_context = N_CONTEXT, .kv_type = TERN_KV_F32};
    tern_generate_stats st = {0};
    tern_session *s;
    tern_error err = {0};
    if (tern_session_open(&s, m, &sd, &err) != TERN_OK) return 0;
    size_t n_said = say(s, ids, n_ids, n, said, &st);
    CHECK_MSG(st.n_reused == 0, "a new session has %zu tokens", st.n_reused);
    tern_session_close(s);
    return n_said;
}

// ---- One answer --------------------------------------------------------------------------------

// Longer than every window and than a chunk of a delta net. Seen to fail with a convolution that
// sees no row before its batch.
TEST(abilities_bits_depend_on_no_batch_thread_or_kernel) {
    static const tern_model_desc ways[] = {
        {.n_batch = 512, .n_threads = 1, .cpu_features = "scalar"},
        {.n_batch = 1, .n_threads = 2},
        {.n_batch = 7, .n_threads = 3, .cpu_features = "avx2"},
        {.n_batch = 64, .n_threads = 4},
        {.n_batch = 64, .n_threads = 1, .cpu_features = "scalar"},
        {.n_batch = 512, .n_threads = 2, .cpu_features = "avx512"}};
    enum { N = 150 };
    int32_t ids[N];
    EACH_FAMILY(f) {
        float *want = NULL;
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            running r;
            tern_error err = {0};
            if (!start(&r, f->folder, &ways[i], NULL)) continue;
            size_t n = (size_t)N * (size_t)r.n_vocab;
            float *got = calloc(n, sizeof *got);
            fill_ids(ids, N, r.n_vocab, 5);
            CHECK(tern_session_logits(r.session, ids, N, got, &err) == TERN_OK);
            if (!want) want = calloc(n, sizeof *want), memcpy(want, got, n * sizeof *got);
            CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "%s, way %zu", f->name, i);
            free(got);
            finish(&r);
        }
        free(want);
    }
}

// ---- Texts with a common front -----------------------------------------------------------------

typedef struct turn {
    const char *what;
    size_t n_kept;   // of the text before, at its beginning
    size_t n_new;    // tokens after that
    unsigned seed;   // which ones
    size_t n_reused; // at least: what is computed again is a few tokens
} turn;

// A conversation: each row's prompt is the front of the whole text before (prompt and answer), and
// new tokens. The first answers of a prompt, another answer, the next turn, that turn edited twice
// and answered again, and an earlier turn edited.
#define N_ANSWER 60
static const turn turns[] = {
    {"the first prompt", 0, 70, 1, 0},      {"another answer", 70, 0, 0, 69},
    {"the next turn", 130, 20, 2, 129},     {"another answer to it", 150, 0, 0, 149},
    {"that turn edited", 133, 25, 3, 128},  {"and again", 133, 15, 4, 128},
    {"and again, longer", 133, 40, 5, 128}, {"another answer at the end", 173, 0, 0, 172},
    {"a further turn", 233, 10, 6, 232},
};

// The text is that of a session that knows nothing, and what need not be computed is not. Seen to
// fail: n_reused counting the common front; a lasting snapshot put in the place of the last one;
// pages of windows given back that a snapshot needs; nothing remembered where a turn begins.
TEST(abilities_a_common_front_is_computed_once) {
    EACH_FAMILY(f) {
        running r;
        static int32_t text[N_MOST + N_ANSWER], want[N_ANSWER];
        size_t n_text = 0;
        if (!start(&r, f->folder, NULL, NULL)) continue;
        for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
            const turn *t = &turns[i];
            tern_generate_stats st = {0};
            size_t n = t->n_kept + t->n_new;
            CHECK(t->n_kept <= n_text);
            fill_ids(text + t->n_kept, t->n_new, r.n_vocab, t->seed);
            size_t n_want = say_afresh(r.model, text, n, N_ANSWER, want);
            size_t n_said = say(r.session, text, n, N_ANSWER, text + n, &st);
            n_text = n + n_said;
            CHECK_MSG(n_said == n_want && memcmp(text + n, want, n_want * sizeof *want) == 0,
                      "%s, %s: another text", f->name, t->what);
            // The text before had the factors of longer ones.
            size_t least = f->n_short > 0 && n <= (size_t)f->n_short ? 0 : t->n_reused;
            CHECK_MSG(st.n_reused >= least && st.n_reused < n,
                      "%s, %s: %zu of %zu tokens reused, not %zu", f->name, t->what, st.n_reused, n,
                      least);
        }
        finish(&r);
    }
}

// Several texts after one long front, as in multiple choice: the front is computed at most twice.
// Seen to fail without the snapshot of what is computed again.
TEST(abilities_a_front_of_many_texts_is_remembered) {
    EACH_FAMILY(f) {
        running r;
        int32_t ids[200];
        if (!start(&r, f->folder, NULL, NULL)) continue;
        fill_ids(ids, 150, r.n_vocab, 8);
        for (unsigned i = 0; i < 4; i++) {
            size_t n_reused = 0;
            tern_error err = {0};
            fill_ids(ids + 150, 50, r.n_vocab, 20 + i);
            CHECK_MSG(tern_session_sync(r.session, ids, 200, &n_reused, &err) == TERN_OK, "%s",
                      err.message);
            CHECK_MSG(i < 2 || n_reused == 150, "%s, text %u: %zu reused", f->name, i, n_reused);
        }
        finish(&r);
    }
}

// ---- Guesses -----------------------------------------------------------------------------------

typedef struct knower {
    const int32_t *text;
    size_t n;
    int32_t n_vocab;
} knower;

// Every fifth token wrong: drafts are accepted in part.
static int32_t guess(void *user, const int32_t *ids, size_t n_ids, int32_t *draft, int32_t n_max) {
    const knower *k = user;
    int32_t n = 0;
    (void)ids;
    for (size_t at = n_ids; at < k->n && n < n_max; at++, n++)
        draft[n] = (k->text[at] + (at % 5 == 0)) % k->n_vocab;
    return n;
}

static void check_stats(const char *what, const tern_draft_stats *d, size_t n_said) {
    size_t drafted = 0, accepted = 0, steps = 0;
    for (int i = 0; i < TERN_DRAFTER_COUNT; i++)
        drafted += d->drafted_by[i], accepted += d->accepted_by[i];
    for (int i = 0; i < TERN_DRAFT_MAX + 2; i++) steps += d->n_runs[i];
    CHECK_MSG(d->n_drafts > 0 && d->n_drafted == drafted && d->n_accepted == accepted, "%s", what);
    CHECK_MSG(d->n_steps == steps, "%s: %zu steps, %zu runs", what, d->n_steps, steps);
    // The first token comes from the prompt's run; each step gives one and what was accepted.
    CHECK_MSG(n_said == 1 + d->n_steps + d->n_accepted, "%s: %zu tokens in %zu steps, %zu accepted",
              what, n_said, d->n_steps, d->n_accepted);
}

// Seen to fail: fixed states that are not restored after a refused draft.
TEST(abilities_speculation_leaves_the_text) {
    enum { N_PROMPT = 40, N = 100 };
    static int32_t text[N_PROMPT + N], said[N];
    EACH_FAMILY(f) {
        running r;
        tern_error err = {0};
        if (!start(&r, f->folder, NULL, NULL)) continue;
        fill_ids(text, N_PROMPT, r.n_vocab, 3);
        memcpy(text + N_PROMPT / 2, text, N_PROMPT / 2 * sizeof *text); // for lookup
        say_afresh(r.model, text, N_PROMPT, N, text + N_PROMPT);
        knower k = {text, N_PROMPT + N, r.n_vocab};
        const tern_chain entries[] = {{text + N_PROMPT, 4, 0.9f, NULL},
                                      {text + N_PROMPT + 50, 4, 0.9f, NULL}};
        tern_chains *chains = NULL;
        CHECK(tern_chains_create(&chains, entries, 2, &err) == TERN_OK);
        const struct {
            const char *name;
            tern_speculation by;
        } ways[] = {
            {"a caller", {.draft = guess, .draft_user = &k, .always = true, .max_length = 16}},
            {"lookup", {.lookup = true, .always = true}},
            {"online", {.online = true, .always = true}},
            {"a model", {.draft_model = r.model, .always = true, .max_length = 5}},
            {"chains", {.chains = chains, .always = true}},
        };
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            tern_session_desc sd = {.n_context = N_CONTEXT, .kv_type = TERN_KV_F32};
            tern_generate_stats st = {0};
            tern_session *s;
            char what[80];
            sd.speculation = ways[i].by;
            snprintf(what, sizeof what, "%s, %s", f->name, ways[i].name);
            if (tern_session_open(&s, r.model, &sd, &err) != TERN_OK) {
                CHECK_MSG(false, "%s: %s", what, err.message);
                continue;
            }
            for (int again = 0; again < 2; again++) { // the second time after the first's drafts
                size_t n_said = say(s, text, N_PROMPT, N, said, &st);
                CHECK_MSG(n_said == N && memcmp(said, text + N_PROMPT, sizeof said) == 0,
                          "%s: another text", what);
                check_stats(what, &st.draft, n_said);
            }
            tern_session_close(s);
        }
        tern_chains_close(chains);
        finish(&r);
    }
}

// ---- A full context ----------------------------------------------------------------------------

// The text after the first n_keep tokens and half of the rest is gone: then the numbers are those
// of a text that is that from its beginning. Seen to fail when states stay as they are and only
// the positions are renamed.
TEST(abilities_a_full_context_is_shifted) {
    enum { CONTEXT = 64, KEEP = 4, N_PROMPT = 40 };
    const tern_session_desc sd = {
        .n_context = CONTEXT, .kv_type = TERN_KV_F32, .shift_context = true, .n_keep = KEEP};
    static int32_t text[N_PROMPT + 200], want[200];
    EACH_FAMILY(f) {
        running r;
        tern_generate_stats st = {0};
        tern_error err = {0};
        const int32_t greedy = 60;
        const tern_sampling sampling = {.temperature = 0};
        tern_generate_params p = {.sampling = &sampling, .max_tokens = greedy, .ignore_end = true};
        if (!start(&r, f->folder, NULL, &sd)) continue;
        fill_ids(text, N_PROMPT, r.n_vocab, 7);
        CHECK(tern_generate_ids(r.session, text, N_PROMPT, &p, &st, &err) == TERN_OK);
        size_t n = 0, until = CONTEXT - N_PROMPT + 1;
        const int32_t *said = tern_session_generated(r.session, &n);
        CHECK_MSG(n == (size_t)greedy && st.reason == TERN_STOP_LENGTH, "%s: %zu", f->name, n);
        memcpy(text + N_PROMPT, said, n * sizeof *said);
        // When it was full the last token was chosen, and not yet computed.
        size_t drop = (CONTEXT - KEEP) / 2, left = CONTEXT - drop;
        memmove(text + KEEP, text + KEEP + drop, (N_PROMPT + n - KEEP - drop) * sizeof *text);
        tern_session_reset(r.session);
        p.max_tokens = (int32_t)drop;
        CHECK(tern_generate_ids(r.session, text, left + 1, &p, &st, &err) == TERN_OK);
        const int32_t *again = tern_session_generated(r.session, &n);
        memcpy(want, again, n * sizeof *want);
        CHECK_MSG(until + drop - 1 < (size_t)greedy && n == drop, "%s: lengths", f->name);
        CHECK_MSG(memcmp(want, text + left + 1, (drop - 1) * sizeof *want) == 0,
                  "%s: another text after the shift", f->name);
        finish(&r);
    }
}

// ---- Reports -----------------------------------------------------------------------------------

static bool gather(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static int64_t number_in(const tern_strbuf *text, const char *key) {
    tern_json_doc doc = {0};
    tern_error err = {0};
    int64_t n = -1;
    bool ok = tern_json_parse(&doc, text->ptr, text->len, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (ok) n = tern_json_int(tern_json_path(&doc, key), -1);
    tern_json_free(&doc);
    return n;
}

// What inspection says of a step's bytes against what the device binds, which does not count norms
// and the like.
static void check_bytes_per_token(const family *f, const tern_model *m, const tern_strbuf *text) {
    uint64_t small = 0;
    tern_model_info info;
    tern_model_get_info(m, &info);
    for (size_t w = 0; w < m->n_weights; w++)
        if (!m->sources[w].is_matrix && !m->sources[w].is_table) small += m->sources[w].bytes;
    int64_t said = number_in(text, "bytes_per_token"), least = (int64_t)info.bytes_per_token_logits;
    CHECK_MSG(said >= least && said <= least + (int64_t)small, "%s: %lld bytes, not %lld to %lld",
              f->name, (long long)said, (long long)least, (long long)(least + (int64_t)small));
}

// Seen to fail: windows counted at every position; fixed states left out; all experts counted;
// Gemma 4's table of numbers for each layer counted.
TEST(abilities_memory_is_what_is_said) {
    for (const family *f = families; f < families + N_FAMILIES; f++) {
        tern_model *m;
        tern_lease *lease;
        tern_model_info info;
        tern_error err = {0};
        tern_strbuf text = {0};
        static int32_t ids[160];
        const tern_inspect_desc json = {.format = TERN_FORMAT_JSON};
        REQUIRE_OK(tern_model_open(&m, f->folder, NULL, &err), err);
        tern_model_get_info(m, &info);
        CHECK((info.sequence_bytes > 0) == (f->has_fixed || f->window > 0));
        CHECK(tern_inspect(f->folder, &json, gather, &text, &err) == TERN_OK);
        CHECK(number_in(&text, "kv_bytes_per_token") == (int64_t)info.kv_bytes_per_token);
        CHECK(number_in(&text, "sequence_bytes") == (int64_t)info.sequence_bytes);
        check_bytes_per_token(f, m, &text);
        tern_strbuf_free(&text);
        fill_ids(ids, 160, info.n_vocab, 1);
        uint64_t bytes[2] = {0};
        if (!f->embeds && tern_lease_open(&lease, m, N_CONTEXT, TERN_KV_F16, &err) == TERN_OK) {
            for (int32_t i = 0; i < 2; i++) {
                const tern_work work = {
                    .lease = lease, .ids = ids, .n_ids = 160, .first_pos = i * 160};
                CHECK(tern_model_compute(m, &work, 1, &(tern_wants){0}, &err) == TERN_OK);
                bytes[i] = tern_lease_bytes(lease);
            }
            uint64_t grown = bytes[1] - bytes[0], all = 320 * info.kv_bytes_per_token;
            CHECK_MSG(grown == 160 * info.kv_bytes_per_token, "%s: %llu bytes more", f->name,
                      (unsigned long long)grown);
            // Windows are kept in pages of 16 positions, and one page more.
            uint64_t most =
                f->window ? info.sequence_bytes * (uint64_t)(f->window + 48) / (uint64_t)f->window
                          : info.sequence_bytes;
            CHECK_MSG(bytes[1] >= all + info.sequence_bytes && bytes[1] <= all + most,
                      "%s: %llu bytes, said: %llu and %llu", f->name, (unsigned long long)bytes[1],
                      (unsigned long long)all, (unsigned long long)info.sequence_bytes);
            tern_lease_close(lease);
        }
        tern_model_close(m);
    }
}

TEST(abilities_graph_and_diagnosis) {
    for (const family *f = families; f < families + N_FAMILIES; f++) {
        const tern_diagnose_desc desc = {
            .model = f->folder, .n_threads = 1, .quick = true, .format = TERN_FORMAT_JSON};
        tern_model *m;
        tern_error err = {0};
        tern_strbuf text = {0};
        tern_json_doc doc = {0};
        size_t n_failed = 1;
        REQUIRE_OK(tern_model_open(&m, f->folder, NULL, &err), err);
        for (int format = 0; format <= TERN_FORMAT_DOT; format++) {
            tern_strbuf_clear(&text);
            CHECK(tern_graph_report(m, NULL, (tern_format)format, gather, &text, &err) == TERN_OK);
            CHECK_MSG(text.len > 1000, "%s: a graph of %zu bytes", f->name, text.len);
            if (format != TERN_FORMAT_JSON) continue;
            CHECK_MSG(tern_json_parse(&doc, text.ptr, text.len, &err) == TERN_OK, "%s",
                      err.message);
            tern_json_free(&doc);
        }
        tern_model_close(m);
        tern_strbuf_clear(&text);
        // Most of a diagnosis is the kernels', the same for all: in the short run a quarter has
        // one.
        if (test_is_long() || (f - families) % 4 == 0)
            CHECK_MSG(tern_diagnose(&desc, gather, &text, &n_failed, &err) == TERN_OK &&
                          n_failed == 0,
                      "%s: %s%s", f->name, err.message, tern_strbuf_text(&text));
        tern_strbuf_free(&text);
    }
}

// ---- Windows -----------------------------------------------------------------------------------

// Writes the folder of `from` again, its layers all with windows.
static bool make_windowed(const char *from, const char *folder) {
    static const char member[] = "\"sliding_window\":", more[] = "\"sliding_window_pattern\": 99, ";
    char path[700];
    size_t n_config, n_weights;
    tern_st_writer *w = NULL;
    tern_strbuf json = {0};
    tern_error err = {0};
    snprintf(path, sizeof path, "%s/config.json", from);
    char *config = test_read(path, &n_config), *at = config ? strstr(config, member) : NULL;
    char *kinds = config ? strstr(config, "\"layer_types\"") : NULL;
    if (kinds) memcpy(kinds, "\"not_counted\"", 13); // else that would be read
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    char *weights = test_read(path, &n_weights);
    bool ok = at && weights && tern_st_writer_open(&w, folder, 0, &err) == TERN_OK;
    if (ok) {
        tern_strbuf_append(&json, config, (size_t)(at - config));
        tern_strbuf_puts(&json, more);
        tern_strbuf_puts(&json, at);
        ok = tern_st_put_file(w, "config.json", json.ptr, json.len, &err) == TERN_OK &&
             tern_st_writer_finish(w, &err) == TERN_OK;
    }
    tern_st_writer_free(w);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ok = ok && tern_file_write(path, weights, n_weights, &err) == TERN_OK;
    CHECK_MSG(ok, "%s: %s", folder, err.message);
    tern_strbuf_free(&json);
    free(config);
    free(weights);
    return ok;
}

// Where all layers see W positions, the last of 650 tokens depends on the n_layers * (W - 1) before
// it and on none before those, to the bit: whole, in pieces and token by token, whatever pages were
// given back on the way. Seen to fail with a window one wider, and with one narrower.
TEST(abilities_windows_reach_so_far_and_no_further) {
    enum { N = 650 };
    static int32_t ids[N];
    const tern_session_desc sd = {.n_context = N, .kv_type = TERN_KV_F32};
    EACH_FAMILY(f) {
        // Keys and values that layers share reach less far.
        if (!f->window || strcmp(f->name, "gemma4") == 0) continue;
        char folder[600];
        snprintf(folder, sizeof folder, "%s%d", test_tmp("ability_windows"), (int)(f - families));
        if (!make_windowed(f->folder, folder)) continue;
        float *want = NULL, *got = NULL;
        for (int i = 0; i < 5; i++) {
            const tern_model_desc md = {.n_threads = 1, .n_batch = i == 2 ? 1 : i == 3 ? 13 : 512};
            running r;
            tern_error err = {0};
            if (!start(&r, folder, &md, &sd)) continue;
            fill_ids(ids, N, r.n_vocab, 31);
            // 1 to 3: what lies further back is another text; 4: the first tokens within reach, too
            // (with narrower windows they would be without).
            const int n_layers = (int)r.model->config.n_layers, reach = n_layers * (f->window - 1);
            const int n_other = N - 1 - reach + (i == 4 ? n_layers : 0);
            if (i > 0) fill_ids(ids, (size_t)n_other, r.n_vocab, 77);
            got = calloc((size_t)r.n_vocab, sizeof *got);
            if (!want) want = calloc((size_t)r.n_vocab, sizeof *want);
            CHECK(tern_session_sync(r.session, ids, N - 1, NULL, &err) == TERN_OK);
            CHECK(tern_session_logits(r.session, ids + N - 1, 1, i ? got : want, &err) == TERN_OK);
            bool same = !memcmp(want, got, (size_t)r.n_vocab * sizeof *got);
            CHECK_MSG(i == 0 || same == (i < 4), "%s, %d: %s", f->name, i, same ? "same" : "other");
            free(got);
            finish(&r);
        }
        free(want);
    }
}

// ---- Lengths -----------------------------------------------------------------------------------

// How likely each token was that a session says over the length at which RoPE's factors change, and
// the scores of one more; into `scores`.
static size_t say_over(running *r, int32_t n_short, float *logprobs, float *scores) {
    enum { N_OVER = 12 };
    int32_t ids[200];
    size_t n_each, n_said = 0;
    const int32_t one = 7;
    const tern_sampling greedy = {0};
    const tern_generate_params p = {
        .sampling = &greedy, .max_tokens = N_OVER, .ignore_end = true, .logprobs = true};
    tern_error err = {0};
    fill_ids(ids, (size_t)n_short - 4, r->n_vocab, 17);
    CHECK(tern_generate_ids(r->session, ids, (size_t)n_short - 4, &p, NULL, &err) == TERN_OK);
    const tern_token_logprob *each = tern_session_token_logprobs(r->session, &n_said, &n_each);
    for (size_t i = 0; i < n_said; i++) logprobs[i] = each[i * n_each].logprob;
    CHECK(tern_session_logits(r->session, &one, 1, scores, &err) == TERN_OK);
    return n_said;
}

// A text that becomes longer than some factors are for is computed with the others from its
// beginning, as if it had been so long at once; and drafts make no text longer than it is. Seen to
// fail: states left as they were; drafts that go over the length.
TEST(abilities_a_text_may_become_longer) {
    EACH_FAMILY(f) {
        float plain[16], drafted[16];
        running r, by_drafts, fresh;
        size_t n_ids, n;
        tern_error err = {0};
        if (!f->n_short || !start(&r, f->folder, NULL, NULL)) continue;
        const tern_session_desc sd = {
            .n_context = N_CONTEXT,
            .kv_type = TERN_KV_F32,
            .speculation = {.draft_model = r.model, .always = true, .max_length = 5}};
        float *scores = calloc(3 * (size_t)r.n_vocab, sizeof *scores);
        n = say_over(&r, f->n_short, plain, scores);
        CHECK(n == 12);
        if (start(&by_drafts, f->folder, NULL, &sd)) {
            say_over(&by_drafts, f->n_short, drafted, scores + r.n_vocab);
            CHECK_MSG(!memcmp(plain, drafted, n * sizeof *plain), "%s: other scores with drafts",
                      f->name);
            finish(&by_drafts);
        }
        if (start(&fresh, f->folder, NULL, NULL)) {
            n_ids = tern_session_n_tokens(r.session);
            CHECK(tern_session_sync(fresh.session, tern_session_tokens(r.session), n_ids - 1, NULL,
                                    &err) == TERN_OK);
            float *want = scores + 2 * r.n_vocab;
            CHECK(tern_session_logits(fresh.session, tern_session_tokens(r.session) + n_ids - 1, 1,
                                      want, &err) == TERN_OK);
            CHECK_MSG(!memcmp(want, scores, (size_t)r.n_vocab * sizeof *want),
                      "%s: other scores than of the whole text", f->name);
            finish(&fresh);
        }
        free(scores);
        finish(&r);
    }
}

// ---- Thinking ----------------------------------------------------------------------------------

// Qwen3's switch, and templates without one. Seen to fail when the variable is always defined.
TEST(abilities_thinking_is_switched) {
    static const char text[] =
        "{%- for m in messages %}{{ m.content }}|{% endfor -%}"
        "{%- if enable_thinking is defined and enable_thinking is false %}<none>{% endif -%}"
        "{%- if enable_thinking is defined and enable_thinking %}<some>{% endif -%}";
    static const char *const want[] = {"hi|", "hi|<some>", "hi|<none>"};
    const tern_message message = {.role = "user", .content = "hi"};
    const char *vocabulary = OWN "small_tokenizer.json";
    for (int i = TERN_THINKING_AUTO; i <= TERN_THINKING_OFF; i++) {
        const tern_model_desc md = {
            .chat_template = text, .thinking = (tern_thinking)i, .vocab_only = true};
        tern_model *m;
        tern_error err = {0};
        tern_strbuf out = {0};
        REQUIRE_OK(tern_model_open(&m, vocabulary, &md, &err), err);
        CHECK(tern_chat_format(m, &message, 1, gather, &out, &err) == TERN_OK);
        CHECK_MSG(!strcmp(tern_strbuf_text(&out), want[i]), "%d: %s", i, tern_strbuf_text(&out));
        tern_strbuf_free(&out);
        tern_model_close(m);
    }
}
