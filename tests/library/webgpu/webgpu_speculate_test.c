// Speculation on WebGPU: a run of several tokens must give the bits that single runs give, or the
// text would depend on what was drafted.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "gpu_fixture.h"
#include "tests/support/harness.h"
#include "tern.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

enum { N = 16, N_PROMPTS = 200, N_PROMPT = 9, N_TEXT = 16 };

// Logits of N tokens, computed in runs of `run` after a prompt of 17.
static bool logits_in_runs(tern_model *m, tern_kv_type kv_type, int run, float *out,
                           int32_t n_vocab) {
    tern_session *s = NULL;
    tern_error err = {0};
    int32_t ids[17 + N];
    for (int i = 0; i < 17 + N; i++) ids[i] = (i * 37 + 11) % 290;
    const tern_session_desc d = {.n_context = 128, .kv_type = kv_type};
    bool ok = tern_session_open(&s, m, &d, &err) == TERN_OK &&
              tern_session_sync(s, ids, 17, NULL, &err) == TERN_OK;
    for (int i = 0; ok && i < N; i += run)
        ok = tern_session_logits(s, ids + 17 + i, (size_t)(N - i < run ? N - i : run),
                                 out + (size_t)i * (size_t)n_vocab, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    tern_session_close(s);
    return ok;
}

static void check_runs(tern_model *m, size_t number, tern_kv_type kv_type) {
    static float one[N * TINY_N_VOCAB], several[N * TINY_N_VOCAB];
    bool ok = logits_in_runs(m, kv_type, 1, one, TINY_N_VOCAB);
    for (int run = 2; ok && run <= 8; run += 3) {
        ok = logits_in_runs(m, kv_type, run, several, TINY_N_VOCAB);
        size_t n_other = 0;
        for (size_t k = 0; k < N * TINY_N_VOCAB; k++)
            n_other += memcmp(&one[k], &several[k], sizeof *one) != 0;
        CHECK_MSG(n_other == 0, "model %zu, runs of %d: %zu of %d logits differ", number, run,
                  n_other, N * TINY_N_VOCAB);
    }
}

TEST(webgpu_runs_of_several_tokens_have_the_bits_of_one) {
    static const tiny_model_desc models[] = {
        {.seed = 51, .head_type = TERN_DTYPE_F16},
        {.seed = 52, .arch = "llama", .type = TERN_DTYPE_F16, .separate_head = true},
    };
    static const tern_kv_type kinds[] = {TERN_KV_F32, TERN_KV_Q8_0};
    for (size_t i = 0; i < (test_is_long() ? 2 : 1); i++) {
        tern_error err = {0};
        const char *path = test_tmp("runs.gguf");
        REQUIRE_OK(tiny_model_write(path, &models[i], &err), err);
        tern_model *m = gpu_open(path, 0);
        if (!m) return;
        for (size_t k = 0; k < 2; k++) check_runs(m, i, kinds[k]);
        tern_model_close(m);
    }
}

// Greedy text with and without drafts. Few prompts if the GPU is a software adapter.
TEST(webgpu_speculation_keeps_the_greedy_text) {
    tern_error err = {0};
    const char *path = test_tmp("drafts.gguf");
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 53}, &err), err);
    tern_model *m = gpu_open(path, 0);
    if (!m) return;
    int n_prompts = test_is_long() ? N_PROMPTS : 2;
    const tern_session_desc plain = {.n_context = 64};
    const tern_session_desc drafts = {.n_context = 64,
                                      .speculation = {.lookup = true, .always = true}};
    tern_session *s[2] = {NULL, NULL};
    REQUIRE_OK(tern_session_open(&s[0], m, &plain, &err), err);
    REQUIRE_OK(tern_session_open(&s[1], m, &drafts, &err), err);
    size_t n_accepted = 0;
    for (int i = 0; i < n_prompts; i++) {
        int32_t prompt[N_PROMPT], text[2][N_TEXT];
        for (int k = 0; k < N_PROMPT; k++) prompt[k] = (i * 13 + k % 4 * 31) % 290;
        for (int k = 0; k < 2; k++) {
            const tern_sampling greedy = {0};
            const tern_generate_params p = {
                .sampling = &greedy, .max_tokens = N_TEXT, .ignore_end = true};
            tern_generate_stats st;
            size_t n;
            REQUIRE_OK(tern_generate_ids(s[k], prompt, N_PROMPT, &p, &st, &err), err);
            memcpy(text[k], tern_session_generated(s[k], &n), sizeof text[k]);
            n_accepted += st.draft.n_accepted;
        }
        CHECK_MSG(memcmp(text[0], text[1], sizeof *text) == 0, "prompt %d", i);
    }
    CHECK(n_accepted > 0);
    for (int k = 0; k < 2; k++) tern_session_close(s[k]);
    tern_model_close(m);
}

// ---- Drafts that the device makes itself -------------------------------------------------------

enum { N_LONG = 40, CHAIN = 8 };

// Greedy text after a prompt; the statistics of the drafts.
static bool say(tern_session *s, const int32_t *prompt, size_t n_prompt, int32_t n, int32_t *text,
                tern_draft_stats *draft) {
    const tern_sampling greedy = {0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = n, .ignore_end = true};
    tern_generate_stats st;
    tern_error err = {0};
    size_t n_said = 0;
    tern_status status = tern_generate_ids(s, prompt, n_prompt, &p, &st, &err);
    test_check(status == TERN_OK, __FILE__, __LINE__, "%s", err.message);
    if (status != TERN_OK) return false;
    const int32_t *ids = tern_session_generated(s, &n_said);
    memcpy(text, ids, n_said * sizeof *text);
    *draft = st.draft;
    return n_said == (size_t)n;
}

// Chains that continue a text, from every second token on. Every fourth chain ends wrong.
static tern_chains *chains_of(const int32_t *text) {
    static int32_t tokens[N_LONG][CHAIN];
    tern_chain entries[N_LONG];
    tern_chains *c = NULL;
    tern_error err = {0};
    size_t n = 0;
    for (int i = 0; i + CHAIN <= N_LONG; i += 2, n++) {
        memcpy(tokens[n], text + i, sizeof tokens[n]);
        if (n % 4 == 3) tokens[n][CHAIN - 1] = (tokens[n][CHAIN - 1] + 1) % 290;
        entries[n] = (tern_chain){.tokens = tokens[n], .n_tokens = CHAIN, .confidence = 0.9f};
    }
    test_check(tern_chains_create(&c, entries, n, &err) == TERN_OK, __FILE__, __LINE__, "%s",
               err.message);
    return c;
}

// A text with all its tokens in chains takes far fewer runs. Then again, shorter and after its own
// beginning, which breaks off the steps computed ahead; and up to the end of the context.
static void check_device_drafts(tern_model *m, const tern_chains *c, int32_t max_length,
                                const int32_t *prompt, const int32_t *text) {
    const tern_session_desc sd = {
        .n_context = N_PROMPT + N_LONG,
        .speculation = {.chains = c, .always = true, .max_length = max_length}};
    int32_t said[N_LONG], longer[N_PROMPT + 10];
    tern_session *s = NULL;
    tern_draft_stats draft;
    tern_error err = {0};
    REQUIRE_OK(tern_session_open(&s, m, &sd, &err), err);
    CHECK(say(s, prompt, N_PROMPT, N_LONG, said, &draft) && memcmp(said, text, sizeof said) == 0);
    size_t most = max_length == 1 ? N_LONG * 3 / 4 : N_LONG / 2;
    CHECK_MSG(draft.n_steps < most, "%zu steps for drafts of %d", draft.n_steps, (int)max_length);
    CHECK(draft.n_drafted >= draft.n_accepted && draft.n_accepted > 0 &&
          draft.accepted_by[TERN_DRAFTER_CHAINS] == draft.n_accepted);
    memcpy(longer, prompt, N_PROMPT * sizeof *prompt);
    memcpy(longer + N_PROMPT, text, 10 * sizeof *text);
    CHECK(say(s, longer, N_PROMPT + 10, 13, said, &draft) &&
          memcmp(said, text + 10, 13 * sizeof *said) == 0);
    CHECK(say(s, longer, N_PROMPT + 3, 1, said, &draft) && said[0] == text[3]);
    CHECK(say(s, longer, N_PROMPT + 4, N_LONG - 4, said, &draft) &&
          memcmp(said, text + 4, (N_LONG - 4) * sizeof *said) == 0);
    tern_session_close(s);
}

TEST(webgpu_drafts_of_the_device_keep_the_text) {
    tern_error err = {0};
    const char *path = test_tmp("device_drafts.gguf");
    int32_t prompt[N_PROMPT], text[N_LONG];
    tern_session *plain = NULL;
    tern_draft_stats draft;
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 54, .n_layers = 1}, &err), err);
    tern_model *m = gpu_open(path, 0);
    if (!m) return;
    for (int k = 0; k < N_PROMPT; k++) prompt[k] = k * 31 % 290;
    const tern_session_desc sd = {.n_context = N_PROMPT + N_LONG};
    REQUIRE_OK(tern_session_open(&plain, m, &sd, &err), err);
    CHECK(say(plain, prompt, N_PROMPT, N_LONG, text, &draft));
    tern_chains *c = chains_of(text);
    for (int32_t max_length = test_is_long() ? 1 : 7; max_length <= 7; max_length += 2)
        check_device_drafts(m, c, max_length, prompt, text);
    tern_session_close(plain);
    tern_chains_close(c);
    tern_model_close(m);
}

// Opening a session whose device drafts, with ever more memory until it suffices.
TEST(webgpu_drafts_of_the_device_without_memory) {
    tern_error err = {0};
    const char *path = test_tmp("device_drafts.gguf");
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 55, .n_layers = 1}, &err), err);
    tern_model *m = gpu_open(path, 0);
    if (!m) return;
    int32_t text[N_LONG];
    for (int k = 0; k < N_LONG; k++) text[k] = k;
    tern_chains *c = chains_of(text);
    const tern_session_desc sd = {.n_context = 64, .speculation.chains = c};
    tern_session *s = NULL;
    tern_status status = TERN_ERR_MEMORY;
    int n_failed = 0;
    for (uint64_t n = 1; status == TERN_ERR_MEMORY && n < 1000; n++) {
        tern_mem_fail_at(n);
        status = tern_session_open(&s, m, &sd, &err);
        tern_mem_fail_at(0);
        n_failed += status != TERN_OK;
    }
    CHECK_MSG(status == TERN_OK && n_failed > 10, "%d failures, then %s", n_failed, err.message);
    tern_session_close(s);
    tern_chains_close(c);
    tern_model_close(m);
}
