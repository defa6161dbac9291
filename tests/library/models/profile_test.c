// A profiled session says where its time went: every op of the graph, or every kernel of the GPU,
// as often as it ran. Nothing else changes: the text is the same.
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/tiny_model.h"

static const int32_t prompt[] = {5, 70, 100, 33, 259, 8, 120, 64, 260, 90, 91, 92};
#define N_PROMPT (sizeof prompt / sizeof *prompt)
#define N_TEXT   6

static bool generate(tern_model *m, bool profile, tern_session **s, int32_t *text) {
    tern_error err = {0};
    const tern_sampling greedy = {0};
    const tern_session_desc sd = {.n_context = 64, .profile = profile};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = N_TEXT, .ignore_end = true};
    size_t n = 0;
    bool ok = tern_session_open(s, m, &sd, &err) == TERN_OK &&
              tern_generate_ids(*s, prompt, N_PROMPT, &p, NULL, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    const int32_t *ids = ok ? tern_session_generated(*s, &n) : NULL;
    if (n != N_TEXT) return false;
    memcpy(text, ids, N_TEXT * sizeof *text);
    return true;
}

static const tern_profile_row *find(const tern_profile_row *rows, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

static void check_profile(tern_model *m) {
    tern_error err = {0};
    tern_session *plain = NULL, *timed = NULL;
    int32_t text[N_TEXT], same[N_TEXT];
    const tern_profile_row *rows;
    size_t n = 0;
    if (generate(m, false, &plain, text) && generate(m, true, &timed, same)) {
        CHECK(memcmp(text, same, sizeof text) == 0);
        CHECK(tern_session_profile(plain, &rows, &n, &err) == TERN_ERR_ARGUMENT && n == 0);
        CHECK(tern_session_profile(timed, &rows, &n, &err) == TERN_OK && n > 5);
        double seconds = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < n; i++) {
            CHECK(i == 0 || rows[i].seconds <= rows[i - 1].seconds);
            CHECK(rows[i].n_calls > 0 && rows[i].seconds >= 0);
            seconds += rows[i].seconds;
            bytes += rows[i].bytes;
        }
        const tern_profile_row *first = find(rows, n, "embed");
        // A prompt in one batch, then a step for every token but the last.
        CHECK_MSG(first && first->n_calls == N_TEXT, "embed: %d times",
                  first ? (int)first->n_calls : -1);
        CHECK(seconds > 0 && bytes > 0);
    }
    tern_session_close(plain);
    tern_session_close(timed);
}

TEST(profile_counts_every_op_and_kernel) {
    tern_error err = {0};
    const tiny_model_desc tiny = {.seed = 3, .head_type = TERN_DTYPE_F16, .n_layers = 1};
    const char *path = test_tmp("profile.gguf");
    tern_model *on_cpu = NULL;
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    REQUIRE_OK(tern_model_open(&on_cpu, path, NULL, &err), err);
    check_profile(on_cpu);
    tern_model *on_gpu = gpu_open(path, 64);
    if (on_gpu) check_profile(on_gpu);
    tern_model_close(on_cpu);
    tern_model_close(on_gpu);
}
