// A WebGPU device is lost in the middle of an answer: the session goes on elsewhere, with the same
// text. Needs an adapter, as the tests of webgpu_test.c do.
#include "base/alloc.h"
#include "gpu_fixture.h"
#include "tests/support/tiny_model.h"
#include "tern_tools.h"

#define N_TEXT 44

static const int32_t prompt[] = {5, 70, 100, 33, 259, 8, 120, 64, 260, 90, 91, 92};
#define N_PROMPT (sizeof prompt / sizeof *prompt)

static bool generate(tern_session *s, int32_t *text) {
    tern_error err = {0};
    const tern_sampling greedy = {0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = N_TEXT, .ignore_end = true};
    tern_status status = tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err);
    test_check(status == TERN_OK, __FILE__, __LINE__, "%s", err.message);
    size_t n = 0;
    const int32_t *ids = tern_session_generated(s, &n);
    if (n != N_TEXT) return false;
    memcpy(text, ids, N_TEXT * sizeof *text);
    return status == TERN_OK;
}

static void check_place(tern_model *m, tern_session *s, const char *place) {
    tern_model_info info;
    const char *notice = tern_session_notice(s);
    CHECK_MSG(notice && strstr(notice, place), "%s", notice ? notice : "no notice");
    tern_model_get_info(m, &info);
    CHECK_MSG(strncmp(info.device, place, strlen(place)) == 0, "%s", info.device);
    CHECK_MSG(strstr(info.device, "after a loss") != NULL, "%s", info.device);
}

// The first session loses the device in its answer and gets another; the second one meets that loss
// when it is already repaired, and then loses the second device too, which leaves the CPU. is_same:
// whether the CPU has the same numbers.
static void check_losses(const tiny_model_desc *tiny, bool is_same) {
    tern_error err = {0};
    const char *path = test_tmp("webgpu_loss.gguf");
    const tern_session_desc sd = {.n_context = 64};
    int32_t whole[N_TEXT], broken[N_TEXT];
    tern_model *on_cpu = NULL, *m = NULL;
    tern_session *undisturbed = NULL, *first = NULL, *second = NULL;
    REQUIRE_OK(tiny_model_write(path, tiny, &err), err);
    REQUIRE_OK(tern_model_open(&on_cpu, path, NULL, &err), err);
    // However many steps are computed ahead: once in the first answer and once in the second.
    const gpu_play play = {.lose_at = 40};
    if (tern_session_open(&undisturbed, on_cpu, &sd, &err) == TERN_OK &&
        generate(undisturbed, whole))
        m = gpu_open_play(path, 8, &play);
    if (m && tern_session_open(&first, m, &sd, &err) == TERN_OK &&
        tern_session_open(&second, m, &sd, &err) == TERN_OK) {
        CHECK(tern_session_notice(second) == NULL);
        CHECK(tern_session_sync(second, prompt, 3, NULL, &err) == TERN_OK);
        CHECK(generate(first, broken) && (!is_same || !memcmp(whole, broken, sizeof whole)));
        check_place(m, first, "webgpu");
        CHECK(generate(second, broken) && (!is_same || !memcmp(whole, broken, sizeof whole)));
        check_place(m, second, "cpu");
    }
    tern_session_close(first);
    tern_session_close(second);
    tern_model_close(m);
    tern_session_close(undisturbed);
    tern_model_close(on_cpu);
}

TEST(webgpu_lost_devices_are_replaced) {
    const tiny_model_desc tiny = {.seed = 3, .head_type = TERN_DTYPE_F16, .n_layers = 1};
    check_losses(&tiny, true);
}

// The CPU takes over a graph that was lowered for codes in groups on the GPU, of two bits and of
// eight. Seen to fail when it was opened for float activations.
TEST(webgpu_lost_devices_with_codes_in_groups_are_replaced) {
    tiny_model_desc tiny = {.seed = 3,
                            .arch = "qwen3",
                            .type = TERN_DTYPE_Q2_0,
                            .head_type = TERN_DTYPE_Q2_0,
                            .n_layers = 1};
    check_losses(&tiny, true);
    tiny.type = tiny.head_type = TERN_DTYPE_Q8_0;
    check_losses(&tiny, true);
}

// Drafts of the device are lost with it, and are made anew on the next one.
TEST(webgpu_lost_devices_that_drafted_are_replaced) {
    tern_error err = {0};
    const tiny_model_desc tiny = {.seed = 3, .head_type = TERN_DTYPE_F16, .n_layers = 1};
    const char *path = test_tmp("webgpu_loss.gguf");
    int32_t whole[N_TEXT], broken[N_TEXT];
    tern_model *on_cpu = NULL, *m = NULL;
    tern_session *undisturbed = NULL, *s = NULL;
    tern_chains *c = NULL;
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    REQUIRE_OK(tern_model_open(&on_cpu, path, NULL, &err), err);
    tern_session_desc sd = {.n_context = 64};
    REQUIRE_OK(tern_session_open(&undisturbed, on_cpu, &sd, &err), err);
    CHECK(generate(undisturbed, whole));
    const tern_chain chains[] = {{.tokens = whole + 2, .n_tokens = 6, .confidence = 0.9f},
                                 {.tokens = whole + 14, .n_tokens = 5, .confidence = 0.9f}};
    REQUIRE_OK(tern_chains_create(&c, chains, 2, &err), err);
    const gpu_play play = {.lose_at = 4}; // the prompt is two runs, a draft the third
    m = gpu_open_play(path, 8, &play);
    sd.speculation = (tern_speculation){.chains = c, .always = true};
    if (m && tern_session_open(&s, m, &sd, &err) == TERN_OK) {
        for (int i = 0; i < 2; i++)
            CHECK(generate(s, broken) && memcmp(whole, broken, sizeof whole) == 0);
        check_place(m, s, "cpu"); // after two losses
    }
    tern_session_close(s);
    tern_model_close(m);
    tern_chains_close(c);
    tern_session_close(undisturbed);
    tern_model_close(on_cpu);
}

// ---- Memory runs out while a lost device is replaced -------------------------------------------

typedef struct loser {
    tern_model *m;
    tern_session *s;
    size_t n_failed;
    float *logits, *wanted; // [n_vocab]
    size_t n_vocab;
} loser;

// The model must not get in the way of the request.
static void look_around(const loser *l) {
    tern_model_info info;
    tern_session *other = NULL;
    tern_error err = {0};
    tern_model_get_info(l->m, &info);
    CHECK(info.device && info.device[0]);
    CHECK(tern_session_open(&other, l->m, &(tern_session_desc){.n_context = 16}, &err) ==
          TERN_ERR_MEMORY);
}

// Computes a token, which loses the device, with ever more memory until it suffices.
static void compute_with_ever_more(loser *l, int32_t id) {
    tern_error err = {0};
    tern_status status = TERN_ERR_MEMORY;
    bool is_long = test_is_long();
    for (uint64_t n = 1; status == TERN_ERR_MEMORY && n < 100000; n += 1 + n / (is_long ? 50 : 2)) {
        tern_mem_fail_at(n);
        status = tern_session_logits(l->s, &id, 1, l->logits, &err);
        if (status == TERN_ERR_MEMORY && n < 40) look_around(l);
        tern_mem_fail_at(0);
        l->n_failed += status != TERN_OK;
    }
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    double worst = 0;
    for (size_t i = 0; i < l->n_vocab; i++) {
        double d = (double)l->logits[i] - (double)l->wanted[i];
        if (d > worst || -d > worst) worst = d < 0 ? -d : d;
    }
    CHECK_MSG(worst < 1e-4, "the logits differ by %g", worst);
}

TEST(webgpu_lost_devices_are_replaced_when_memory_is_short) {
    tern_error err = {0};
    const tiny_model_desc tiny = {
        .seed = 5, .arch = "llama", .type = TERN_DTYPE_F16, .separate_head = true, .n_layers = 1};
    const char *path = test_tmp("webgpu_loss.gguf");
    const tern_session_desc sd = {.n_context = 64};
    loser l = {0};
    tern_model *on_cpu = NULL;
    tern_session *s = NULL;
    tern_model_info info;
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    const gpu_play play = {.lose_at = 4}; // three batches of tokens, then it is lost; then again
    l.m = gpu_open_play(path, 4, &play);
    bool ok = l.m && tern_model_open(&on_cpu, path, NULL, &err) == TERN_OK &&
              tern_session_open(&s, on_cpu, &sd, &err) == TERN_OK &&
              tern_session_open(&l.s, l.m, &sd, &err) == TERN_OK;
    if (ok) {
        tern_model_get_info(l.m, &info);
        l.n_vocab = (size_t)info.n_vocab;
        l.logits = calloc(l.n_vocab, sizeof(float));
        l.wanted = calloc(l.n_vocab, sizeof(float));
        CHECK(tern_session_sync(l.s, prompt, N_PROMPT, NULL, &err) == TERN_OK);
        CHECK(tern_session_sync(s, prompt, N_PROMPT, NULL, &err) == TERN_OK);
        CHECK(tern_session_logits(s, &prompt[0], 1, l.wanted, &err) == TERN_OK);
        compute_with_ever_more(&l, prompt[0]);
        const char *notice = tern_session_notice(l.s);
        CHECK_MSG(notice && strstr(notice, "goes on with"), "%s", notice ? notice : "no notice");
        CHECK_MSG(l.n_failed > 5, "only %zu failures", l.n_failed);
    } else if (l.m)
        CHECK_MSG(false, "%s", err.message);
    free(l.logits);
    free(l.wanted);
    tern_session_close(l.s);
    tern_session_close(s);
    tern_model_close(l.m);
    tern_model_close(on_cpu);
}
