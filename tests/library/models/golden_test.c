// Whole models against runs of their own programs (golden/bitllama2c_*, golden/stories260K) and of
// llama.cpp. Needs the data folder; tests/library/models/oracle_test.c needs no data.
#include <stdlib.h>
#include <string.h>
#include "tests/support/closeness.h"
#include "tests/support/harness.h"
#include "tern.h"

// The ids after a label of a golden text file: "all_tokens: 1 403 ...".
static size_t golden_ids(const blob *text, const char *label, int32_t *ids, size_t capacity) {
    char *next = text->bytes ? strstr(text->bytes, label) : NULL;
    size_t n = 0;
    if (!next) return 0;
    for (next += strlen(label); n < capacity; n++) {
        char *end;
        long id = strtol(next, &end, 10);
        if (end == next) break;
        ids[n] = (int32_t)id;
        next = end;
    }
    return n;
}

// ---- Bounds ------------------------------------------------------------------------------------
// One and a half times the reference's difference from itself, as
// tests/reference/peers/self_difference.py prints it, and twice that difference if one run was
// measured instead of ten pairs.

// float32 and float64, four orders of sums: all rows within 2.4e-6 of each other and 3.2e-6 of the
// golden run, the same choices.
static const close_bounds floats = {
    .n_exact = SIZE_MAX, .exact = 4.8e-6, .median = 6e-7, .p90 = 1.3e-6};
// The same for a BitNet: rows are up to 3e-2 (1M) and 4.4e-2 (3M) apart once an activation was
// rounded the other way, and of 200 choices 4 and 3 differ, in gaps of up to 0.011 and (between the
// golden run and the reference) 0.012.
static const close_bounds bit_1m = {
    .exact = 4e-6, .median = 7e-3, .p90 = 1.7e-2, .most = 4.5e-2, .n_choices = 6, .tie = 0.017};
static const close_bounds bit_3m = {
    .exact = 4e-6, .median = 7e-3, .p90 = 1.8e-2, .most = 6.6e-2, .n_choices = 5, .tie = 0.017};
// Rows before the first flip between any two orders of sums, by run.
static const size_t exact_1m[4] = {6, 6, 25, 21}, exact_3m[4] = {1, 1, 3, 11},
                    exact_all[4] = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};

// llama.cpp keeps its cache in F16, and rounds activations to F16, BF16, or 8 bits by blocks. These
// are the distances of the reference with that rounding from the reference without, choosing the
// same tokens.
static const close_bounds cpp_f32 = {.median = 4.6e-4, .p90 = 1e-3, .most = 2e-3};
static const close_bounds cpp_f16 = {.median = 5.8e-4, .p90 = 1.1e-3, .most = 2e-3};
static const close_bounds cpp_bf16 = {.median = 2.8e-3, .p90 = 5.4e-3, .most = 1e-2};
static const close_bounds cpp_ternary = {.median = 8.2e-3, .p90 = 2e-2, .most = 4e-2};

// ---- Runs --------------------------------------------------------------------------------------

// Greedy text is the reference's as far as the reference's own logits determine it: until its two
// best are closer together than `tie` allows.
static void check_text(const char *golden, tern_session *s, const int32_t *ids, size_t n_prompt,
                       size_t n_certain) {
    tern_error err = {0};
    tern_sampling sampling = {0};
    tern_generate_params params = {
        .sampling = &sampling, .max_tokens = (int)(n_certain - n_prompt), .ignore_end = true};
    size_t n;
    if (n_certain <= n_prompt) return;
    REQUIRE_OK(tern_generate_ids(s, ids, n_prompt, &params, NULL, &err), err);
    const int32_t *generated = tern_session_generated(s, &n);
    for (size_t i = 0; i < n_certain - n_prompt; i++) {
        bool same = i < n && generated[i] == ids[n_prompt + i];
        CHECK_MSG(same, "%s: another greedy text from token %zu of %zu", golden, i,
                  n_certain - n_prompt);
        if (!same) return;
    }
}

// Threads change no bit, and are no help with models as small as these.
static const tern_model_desc one_thread = {.n_threads = 1};

// Returns how many tokens of the greedy text were determined. The reference program's logits are
// for the tokens that it was fed, one row each.
static size_t check_golden_run(tern_model *model, const char *golden, const close_bounds *bounds) {
    char name[256], text_path[600];
    int32_t ids[1024];
    tern_error err = {0};
    tern_session *session;
    closeness c;
    snprintf(name, sizeof name, "%s.txt", golden);
    const char *found = test_data(name);
    snprintf(text_path, sizeof text_path, "%s", found ? found : "");
    snprintf(name, sizeof name, "%s.logits.f32", golden);
    const char *logits_path = test_data(name);
    if (!found || !logits_path) return 0;
    blob text = read_blob(text_path), logits = read_blob(logits_path);
    size_t n_prompt = golden_ids(&text, "prompt_tokens:", ids, 1024);
    size_t n = golden_ids(&text, "all_tokens:", ids, 1024), n_certain = 0, n_text = 0;
    tern_model_info info;
    tern_model_get_info(model, &info);
    size_t n_vocab = (size_t)info.n_vocab, n_rows = logits.n / sizeof(float) / n_vocab;
    const float *want = (const float *)(const void *)logits.bytes;
    if (n_rows > n) n_rows = n;
    float *got = calloc(n_rows * n_vocab + 1, sizeof *got);
    CHECK_MSG(n_rows > 90 && n_prompt > 0 && n_prompt < n_rows, "%s: %zu rows", golden, n_rows);
    tern_status status = tern_session_open(&session, model, NULL, &err);
    if (status == TERN_OK) status = tern_session_logits(session, ids, n_rows, got, &err);
    CHECK_MSG(status == TERN_OK, "%s: %s", golden, err.message);
    if (status == TERN_OK && n_prompt > 0 && n_prompt < n_rows) {
        bool close = close_logits(got, want, n_rows, n_vocab, bounds, &c);
        CHECK_MSG(close, "%s: %s", golden, c.why);
        size_t before = n_prompt - 1; // rows that choose nothing; row t chooses the token t + 1
        n_certain = n_prompt +
                    close_n_certain(want + before * n_vocab, n_rows - before, n_vocab, bounds->tie);
        if (n_certain > n) n_certain = n;
        n_text = n_certain - n_prompt;
        check_text(golden, session, ids, n_prompt, n_certain);
        if (getenv("TERN_TEST_VERBOSE"))
            printf(
                "%s: exact %.1e, first flip %zu, median %.1e, 90%% %.1e, most %.1e, %zu choices, "
                "tie %.3f, %zu of %zu tokens determined\n",
                golden, c.exact, c.first_flip, c.median, c.p90, c.most, c.n_choices, c.tie,
                n_certain, n);
    }
    tern_session_close(session);
    free(got);
    free(text.bytes);
    free(logits.bytes);
    return n_text;
}

static void check_model_runs(const char *model_name, const char *golden, const size_t n_exact[4],
                             close_bounds bounds) {
    tern_error err = {0};
    tern_model *model;
    size_t n_text = 0;
    const char *path = test_data(model_name);
    if (!path) return;
    REQUIRE_OK(tern_model_open(&model, path, &one_thread, &err), err);
    for (int i = 0; i < 4; i++) {
        char name[256];
        snprintf(name, sizeof name, golden, i);
        bounds.n_exact = n_exact[i];
        n_text += check_golden_run(model, name, &bounds);
    }
    CHECK_MSG(n_text > 20, "%s: only %zu tokens of text were determined", model_name, n_text);
    tern_model_close(model);
}

TEST(golden_bitllama2c_from_hugging_face) {
    check_model_runs("models/bitllama2c/hf_1M", "golden/bitllama2c_1M/p%d", exact_1m, bit_1m);
    check_model_runs("models/bitllama2c/hf_3M", "golden/bitllama2c_3M/p%d", exact_3m, bit_3m);
}

TEST(golden_stories260k) {
    check_model_runs("models/stories260K/hf", "golden/stories260K/p%d", exact_all, floats);
    check_model_runs("models/stories260K/stories260K.f32.gguf", "golden/stories260K/p%d", exact_all,
                     floats);
}

TEST(golden_llama_cpp_by_type) {
    static const struct {
        const char *model, *golden;
        const close_bounds *bounds;
    } cases[] = {
        {"models/stories260K/stories260K.f32.gguf", "stories260K/stories260K.f32", &cpp_f32},
        {"models/stories260K/stories260K.F16.gguf", "stories260K/stories260K.F16", &cpp_f16},
        {"models/stories260K/stories260K.BF16.gguf", "stories260K/stories260K.BF16", &cpp_bf16},
        {"models/bitllama2c/bitllama2c_3M.f32.gguf", "bit3M/bitllama2c_3M.f32", &cpp_ternary},
        {"models/bitllama2c/bit3M.Q8_0.gguf", "bit3M/bit3M.Q8_0", &cpp_ternary},
        {"models/bitllama2c/bit3M.Q6_K.gguf", "bit3M/bit3M.Q6_K", &cpp_ternary},
        {"models/bitllama2c/bit3M.Q4_K.gguf", "bit3M/bit3M.Q4_K", &cpp_ternary},
        {"models/bitllama2c/bit3M.TQ1_0.gguf", "bit3M/bit3M.TQ1_0", &cpp_ternary},
        {"models/bitllama2c/bit3M.TQ2_0.gguf", "bit3M/bit3M.TQ2_0", &cpp_ternary},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char golden[256];
        tern_error err = {0};
        tern_model *model;
        const char *path = test_data(cases[i].model);
        if (!path) continue;
        snprintf(golden, sizeof golden, "golden/llama.cpp_c392e5094/%s", cases[i].golden);
        REQUIRE_OK(tern_model_open(&model, path, &one_thread, &err), err);
        check_golden_run(model, golden, cases[i].bounds);
        tern_model_close(model);
    }
}
