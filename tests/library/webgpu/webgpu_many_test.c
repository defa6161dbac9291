// Many timelines on one GPU, as a server has them: leases of one model, stepped together and alone,
// with prompts among them.
#include <string.h>
#include "gpu_fixture.h"
#include "runtime/runtime.h"
#include "tests/support/tiny_model.h"

#define N_LEASES  4
#define N_STEPS   14
#define N_IDS     80
#define FORKED_AT 26

typedef struct line { // a timeline, and what the model says after each of its tokens
    tern_lease *lease;
    int32_t ids[N_IDS], n_ids, n_done; // known tokens; computed ones
    float logits[N_IDS];
} line;

static void begin(line *l, int number, int32_t n_vocab) {
    static const int32_t n_prompt[N_LEASES] = {20, 3, 33, 1};
    *l = (line){.n_ids = n_prompt[number]};
    for (int32_t i = 0; i < l->n_ids; i++)
        l->ids[i] = 3 + (i * 37 + number * 11 + i / 3) % (n_vocab - 3);
}

// The next tokens of some lines in one batch: what of each was not computed.
static tern_status step(tern_model *m, line *const *lines, int32_t n, tern_error *err) {
    tern_work works[N_LEASES] = {{0}};
    int32_t ids[N_LEASES];
    float logits[N_LEASES];
    for (int32_t i = 0; i < n; i++)
        works[i] = (tern_work){.lease = lines[i]->lease,
                               .ids = lines[i]->ids + lines[i]->n_done,
                               .n_ids = lines[i]->n_ids - lines[i]->n_done,
                               .first_pos = lines[i]->n_done,
                               .n_outputs = 1};
    const tern_wants wanted = {.top_k = 1, .top_ids = ids, .top_logits = logits};
    TERN_TRY(tern_model_compute(m, works, n, &wanted, err));
    for (int32_t i = 0; i < n; i++) {
        line *l = lines[i];
        l->n_done = l->n_ids;
        l->logits[l->n_done - 1] = logits[i];
        l->ids[l->n_ids++] = ids[i];
    }
    return TERN_OK;
}

static bool is_same(const line *a, const line *b) {
    size_t n = (size_t)(a->n_done < b->n_done ? a->n_done : b->n_done);
    return memcmp(a->ids, b->ids, (n + 1) * sizeof *a->ids) == 0 &&
           memcmp(a->logits, b->logits, n * sizeof *a->logits) == 0;
}

// Each line alone, all at once, one after the other, some together; one is forked, one is swapped.
static tern_status play(tern_model *m, line *alone, line *mixed, tern_error *err) {
    int32_t n_vocab = (int32_t)m->config.n_vocab;
    line *all[N_LEASES];
    for (int i = 0; i < N_LEASES; i++) {
        line *one = &alone[i];
        all[i] = &mixed[i];
        begin(&alone[i], i, n_vocab);
        begin(&mixed[i], i, n_vocab);
        TERN_TRY(tern_lease_open(&one->lease, m, 256, TERN_KV_F16, err));
        for (int k = 0; k < N_STEPS; k++) TERN_TRY(step(m, &one, 1, err));
        TERN_TRY(tern_lease_open(&mixed[i].lease, m, 256, TERN_KV_F16, err));
    }
    tern_lease *fork = mixed[0].lease;
    mixed[0] = alone[0];
    mixed[0].lease = fork;
    mixed[0].n_done = FORKED_AT;
    mixed[0].n_ids = FORKED_AT + 1;
    TERN_TRY(tern_lease_fork(alone[0].lease, FORKED_AT, fork, err));
    CHECK(tern_lease_bytes(fork) > 0); // it has pages before it computes
    tern_lease_close(alone[0].lease);  // its pages are others' from now on
    alone[0].lease = NULL;
    for (int k = 0; k < N_STEPS;) {
        int32_t n = k % 5 == 4 ? 1 : N_LEASES;
        // Alone, one after the other: each has steps computed ahead that the next one must not get.
        for (int i = 0; i < N_LEASES; i += n)
            for (int again = 0; again < (n == 1 ? 3 : 1); again++)
                TERN_TRY(step(m, all + i, n, err));
        k += n == 1 ? 3 : 1;
        if (k % 7 == 6) TERN_TRY(tern_lease_swap_out(mixed[k % N_LEASES].lease, err));
    }
    return TERN_OK;
}

static void check_file(const char *path) {
    tern_error err = {0};
    line alone[N_LEASES] = {{0}}, mixed[N_LEASES] = {{0}};
    tern_model *m = gpu_open(path, 64);
    if (!m) return;
    CHECK(tern_model_works_max(m) >= N_LEASES);
    tern_status status = play(m, alone, mixed, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    for (int i = 0; i < N_LEASES; i++) {
        CHECK_MSG(is_same(&alone[i], &mixed[i]), "line %d says something else", i);
        tern_lease_close(alone[i].lease);
        tern_lease_close(mixed[i].lease);
    }
    tern_model_close(m);
}

static void check_model(const tiny_model_desc *desc) {
    tern_error err = {0};
    const char *path = test_tmp("webgpu_many.gguf");
    REQUIRE_OK(tiny_model_write(path, desc, &err), err);
    check_file(path);
}

// Seen to fail with the first row's pages for all.
TEST(webgpu_leases_stepped_together_say_what_each_says_alone) {
    check_model(&(tiny_model_desc){.seed = 3, .head_type = TERN_DTYPE_F16});
}

TEST(webgpu_leases_of_a_float_model_say_what_each_says_alone) {
    if (!test_is_long()) {
        test_skip(TEST_LONG_REASON);
        return;
    }
    check_model(&(tiny_model_desc){
        .seed = 4, .arch = "llama", .type = TERN_DTYPE_F16, .head_type = TERN_DTYPE_F16});
}

// Of families with states of several kinds, and tables that stay on the host. Seen to fail: rows of
// a host's table sent for the batch's first tokens alone.
TEST(webgpu_leases_of_the_families_say_what_each_says_alone) {
    static const char *const paths[] = {"tests/oracles/gemma4", "tests/oracles/granitehybrid",
                                        "tests/oracles/falcon_h1", "tests/oracles/qwen3moe",
                                        "tests/oracles/lfm2moe"};
    for (size_t i = 0; i < (test_is_long() ? sizeof paths / sizeof *paths : 1); i++)
        check_file(paths[i]);
}

// What was computed ahead for one timeline is not another's, though it asks for the same token at
// the same position. Seen to fail without the comparison of versions in gpu_run.c.
TEST(webgpu_steps_ahead_are_their_own_timelines) {
    tern_error err = {0};
    const tiny_model_desc desc = {.seed = 3, .head_type = TERN_DTYPE_F16};
    const char *path = test_tmp("webgpu_many.gguf");
    REQUIRE_OK(tiny_model_write(path, &desc, &err), err);
    tern_model *m = gpu_open(path, 64);
    if (!m) return;
    line a, b, other, *pa = &a, *pb = &b, *po = &other;
    begin(&a, 0, 253);
    begin(&b, 2, 253);
    tern_status status = tern_lease_open(&a.lease, m, 256, TERN_KV_F16, &err);
    if (status == TERN_OK) status = tern_lease_open(&b.lease, m, 256, TERN_KV_F16, &err);
    b.n_ids = 24; // a's length after four steps
    if (status == TERN_OK) status = step(m, &pb, 1, &err);
    for (int k = 0; k < 5 && status == TERN_OK; k++) status = step(m, &pa, 1, &err);
    b.ids[24] = a.ids[24];
    other = b;
    if (status == TERN_OK) status = step(m, &pb, 1, &err);
    // The same again where nothing is ahead: from the beginning, in as many tokens.
    if (status == TERN_OK) status = tern_lease_open(&other.lease, m, 256, TERN_KV_F16, &err);
    other.n_ids = 24;
    other.n_done = 0;
    if (status == TERN_OK) status = step(m, &po, 1, &err);
    other.ids[24] = a.ids[24];
    if (status == TERN_OK) status = step(m, &po, 1, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    CHECK(memcmp(&b.logits[24], &other.logits[24], sizeof(float)) == 0);
    CHECK(b.ids[25] == other.ids[25]);
    CHECK(memcmp(&b.logits[24], &a.logits[24], sizeof(float)) != 0);
    tern_lease_close(a.lease);
    tern_lease_close(b.lease);
    tern_lease_close(other.lease);
    tern_model_close(m);
}
