// tern_embed_begin and tern_embed_poll: vectors without waiting.
#include <string.h>
#include "tests/support/harness.h"
#include "tern.h"
#include "tern_embed.h"

enum { N_TEXTS = 23, MOST = 64 };
static int32_t many_ids[N_TEXTS][MOST];

static void make_texts(tern_embed_text *texts, int32_t n_vocab) {
    for (int i = 0; i < N_TEXTS; i++) {
        const int n = i * 29 % MOST + 1; // 1 .. MOST, mixed
        for (int k = 0; k < n; k++) many_ids[i][k] = (i * 131 + k * 17) % n_vocab;
        texts[i] = (tern_embed_text){.ids = many_ids[i], .n_ids = (size_t)n};
    }
}

// Two that are polled in turn, and one that is given up in the middle of its steps. Seen to fail
// with a text that waits for the next step put into it twice.
TEST(embed_in_steps_has_the_same_bits) {
    tern_error err = {0};
    tern_model *m;
    tern_embed_text texts[N_TEXTS];
    tern_embedding *in_steps[3] = {NULL};
    static float want[N_TEXTS * 32];
    const float *got[3];
    const tern_embed_params p = {.n_step = 80};
    bool done[2] = {false};
    int n_polls = 0;
    REQUIRE_OK(tern_model_open(&m, "tests/oracles/embeddinggemma", NULL, &err), err);
    make_texts(texts, 48);
    for (size_t i = 0; i < N_TEXTS; i++)
        REQUIRE_OK(tern_embed(m, &texts[i], 1, NULL, want + i * 32, &err), err);
    for (int i = 0; i < 3; i++)
        REQUIRE_OK(tern_embed_begin(&in_steps[i], m, texts, N_TEXTS, &p, &err), err);
    bool early;
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(tern_embed_poll(in_steps[2], &early, &got[2], &err), err);
        CHECK(!early && !got[2]);
    }
    tern_embed_close(in_steps[2]);
    for (; !done[0] || !done[1]; n_polls++)
        for (int i = 0; i < 2; i++)
            if (!done[i]) REQUIRE_OK(tern_embed_poll(in_steps[i], &done[i], &got[i], &err), err);
    for (int i = 0; i < 2; i++) {
        CHECK(memcmp(got[i], want, sizeof want) == 0);
        tern_embed_close(in_steps[i]);
    }
    CHECK_MSG(n_polls > 5, "%d polls", n_polls);
    tern_model_close(m);
}
