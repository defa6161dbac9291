// Perplexity, and the scores that it and the choices are made of, against plain logits.
#include "tasks/eval/eval_fixture.h"

TEST(session_logprobs_are_those_of_the_logits) {
    rig r = {0};
    int32_t ids[40], targets[40];
    tern_target_score got[40];
    if (!rig_open(&r, 41, 7)) return;
    for (int i = 0; i < 40; i++) {
        ids[i] = (i * 37 + 5) % 300;
        targets[i] = i % 9 < 4 ? -1 : (i * 11) % 300;
    }
    REQUIRE(tern_session_logprobs(r.session, ids, 40, targets, got, NULL) == TERN_OK);
    CHECK(tern_session_n_tokens(r.session) == 40);
    for (int i = 0; i < 40; i++) {
        int32_t sequence[41];
        bool greedy;
        if (targets[i] < 0) {
            CHECK(got[i].logprob == 0 && got[i].best == -1);
            continue;
        }
        memcpy(sequence, ids, sizeof ids);
        sequence[i + 1] = targets[i];
        double want = slow_score(&r, sequence, (size_t)i + 1, (size_t)i + 2, &greedy);
        CHECK_MSG(fabs(got[i].logprob - want) < 1e-5, "token %d: %.9g, not %.9g", i, got[i].logprob,
                  want);
        CHECK(greedy == (got[i].best == targets[i]));
    }
    targets[3] = 300;
    CHECK(tern_session_logprobs(r.session, ids, 4, targets, got, NULL) == TERN_ERR_ARGUMENT);
    rig_close(&r);
}

// ---- Perplexity --------------------------------------------------------------------------------

TEST(eval_perplexity_of_both_conventions) {
    rig r = {0};
    tern_perplexity p;
    tern_error err = {0};
    int32_t ids[256], window[32];
    tern_ids all = {ids, 256, 0};
    bool greedy;
    if (!rig_open(&r, 42, 0)) return;
    REQUIRE_OK(tern_tokenize(r.model, story, sizeof story - 1, TERN_TOKENIZE_BOS, &all, &err), err);
    const size_t n = all.n;
    // llama.cpp: windows of 32, the last 15 tokens of each are scored, BOS overwrites the first.
    tern_perplexity_desc desc = {.window = 32};
    REQUIRE_OK(tern_eval_perplexity(r.session, story, sizeof story - 1, &desc, &p, &err), err);
    double sum = 0;
    for (size_t begin = 0; begin + 32 <= n; begin += 32) {
        memcpy(window, ids + begin, sizeof window);
        window[0] = r.info.bos_id;
        sum -= slow_score(&r, window, 17, 32, &greedy);
    }
    CHECK(p.n_tokens == n && p.n_windows == n / 32 && p.n_scored == n / 32 * 15 && p.stride == 32);
    CHECK_MSG(fabs(p.nll / sum - 1) < 1e-6, "%.9g, not %.9g", p.nll, sum);
    CHECK(fabs(p.perplexity / exp(sum / (double)p.n_scored) - 1) < 1e-5);
    // transformers: every token but the first, once.
    desc = (tern_perplexity_desc){
        .convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = 20};
    REQUIRE_OK(tern_eval_perplexity(r.session, story, sizeof story - 1, &desc, &p, &err), err);
    sum = -slow_score(&r, ids, 1, 32, &greedy);
    size_t n_windows = 1;
    for (size_t begin = 20, done = 32; done < n; begin += 20, n_windows++) {
        size_t end = begin + 32 < n ? begin + 32 : n;
        sum -= slow_score(&r, ids + begin, done - begin, end - begin, &greedy);
        done = end;
    }
    CHECK(p.n_scored == n - 1 && p.n_windows == n_windows);
    CHECK_MSG(fabs(p.nll / sum - 1) < 1e-6, "%.9g, not %.9g", p.nll, sum);
    CHECK(p.scored_bytes == sizeof story - 1 && p.scored_words == STORY_WORDS);
    CHECK(fabs(p.bits_per_byte - p.nll / log(2) / (double)(sizeof story - 1)) < 1e-9);
    CHECK(fabs(p.nll_per_word - p.nll / STORY_WORDS) < 1e-9 && p.nll_error > 0);
    desc.n_windows = 2;
    REQUIRE_OK(tern_eval_perplexity(r.session, story, sizeof story - 1, &desc, &p, &err), err);
    CHECK(p.n_windows == 2 && p.n_scored == 31 + 20);
    rig_close(&r);
}

// llama-perplexity -c 256, of llama.cpp 34af94cd9: "PPL = 6.2132 +/- 0.15668".
TEST(eval_perplexity_is_that_of_llama_cpp) {
    const char *text = test_data("text/tinystories/valid_30k.txt");
    const char *path = test_data("models/stories260K/stories260K.f32.gguf");
    tern_model *model;
    tern_session *session;
    tern_perplexity p;
    tern_error err = {0};
    char bytes[1 << 16];
    if (!text || !path) return;
    FILE *f = fopen(text, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    REQUIRE_OK(tern_model_open(&model, path, NULL, &err), err);
    REQUIRE_OK(tern_session_open(&session, model, NULL, &err), err);
    tern_perplexity_desc desc = {.window = 256};
    REQUIRE_OK(tern_eval_perplexity(session, bytes, n, &desc, &p, &err), err);
    CHECK_MSG(fabs(p.perplexity - 6.2132) < 1e-4 && fabs(p.perplexity_error - 0.15668) < 1e-5,
              "%.6f +- %.6f", p.perplexity, p.perplexity_error);
    tern_session_close(session);
    tern_model_close(model);
}

TEST(eval_perplexity_refuses_impossible_windows) {
    rig r = {0};
    tern_perplexity p;
    if (!rig_open(&r, 43, 0)) return;
    static const tern_perplexity_desc bad[] = {
        {.window = 97},
        {.window = 3},
        {.window = 32, .stride = 16},
        {.window = -1},
        {.convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = 33},
        {.convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(tern_eval_perplexity(r.session, story, sizeof story - 1, &bad[i], &p, NULL) ==
              TERN_ERR_ARGUMENT);
    CHECK(tern_eval_perplexity(r.session, "", 0, NULL, &p, NULL) == TERN_ERR_ARGUMENT);
    rig_close(&r);
}
