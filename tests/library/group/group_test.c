// What the sessions of a group say together is what each says alone. Faults that the checks were
// written for stand in tests/mutants/list.
#include <pthread.h>
#include <string.h>
#include "runtime/runtime.h"
#include "tests/library/group/group_fixture.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/tiny_model.h"

TEST(group_sessions_say_what_they_say_alone) {
    static const int32_t pieces[] = {0, 1, 7, 64};
    for (size_t i = 0; i < N_GROUP_FAMILIES; i++) {
        tern_model *m = open_family(&group_families[i], 41, i % 2 ? 64 : 0);
        if (!m) return;
        for (uint32_t k = 0; k < 4; k++)
            check_together(m, group_families[i].name, 100 * (uint32_t)i + k + 1, pieces[k], false);
        tern_model_close(m);
    }
}

typedef struct thread {
    pthread_t id;
    tern_model *model;
    uint32_t seed;
} thread;

static void *run_group(void *ctx) {
    const thread *t = ctx;
    check_together(t->model, "threads", t->seed, 0, false);
    return NULL;
}

// Groups of several threads share a model, its pages and its spares: for `make tsan`, too.
TEST(group_shares_its_model_with_other_threads) {
    enum { N = 3 };
    thread threads[N];
    tern_model *m = open_tiny(52, 64);
    if (!m) return;
    for (uint32_t i = 0; i < N; i++) {
        threads[i] = (thread){.model = m, .seed = 500 + i};
        REQUIRE(pthread_create(&threads[i].id, NULL, run_group, &threads[i]) == 0);
    }
    for (int i = 0; i < N; i++) pthread_join(threads[i].id, NULL);
    tern_model_close(m);
}

// A backend that takes few works at a time.
static int32_t works_max;
static tern_status submit_few(tern_instance *i, const tern_batch *b, tern_error *err) {
    CHECK(b->n_chunks <= works_max && b->n_tokens <= 24);
    return tern_backend_cpu.submit(i, b, err);
}

TEST(group_steps_are_divided_as_the_backend_needs_it) {
    static const int32_t most[] = {1, 3};
    tern_model *m = open_tiny(42, 24);
    tern_backend backend = tern_backend_cpu;
    if (!m) return;
    backend.submit = submit_few;
    m->now->backend = &backend;
    for (int i = 0; i < 2; i++) {
        works_max = backend.n_chunks_max = most[i];
        check_together(m, "few works", 77 + (uint32_t)i, 0, false);
    }
    tern_model_close(m);
}

// On a GPU rows of short chunks have other bits than those of long ones: pieces keep to what each
// session alone does.
TEST(webgpu_group_sessions_say_what_they_say_alone) {
    tern_error err = {0};
    const char *path = test_tmp("group.gguf");
    const tiny_model_desc desc = {.seed = 41, .head_type = TERN_DTYPE_F16};
    REQUIRE_OK(tiny_model_write(path, &desc, &err), err);
    tern_model *m = gpu_open(path, 32);
    if (!m) return;
    check_together(m, "webgpu", 901, 7, false);
    tern_model_close(m);
}

// Drafts on models whose states cannot be cut: snapshots lead back, and the text stays.
TEST(group_speculation_keeps_the_text_of_every_family) {
    for (size_t i = 0; i < N_GROUP_FAMILIES; i++) {
        tern_model *m = open_family(&group_families[i], 43, 0);
        if (!m) return;
        int32_t text[160], n_vocab = 40;
        uint32_t random = 5;
        tern_chain entries[40];
        tern_chains *chains;
        tern_error err = {0};
        for (int k = 0; k < 160; k++) text[k] = (int32_t)draw_number(&random, (uint32_t)n_vocab);
        for (int k = 0; k < 40; k++) entries[k] = (tern_chain){text + 4 * k, 4, 0.5f, NULL};
        REQUIRE_OK(tern_chains_create(&chains, entries, 40, &err), err);
        const tern_speculation kinds[] = {
            {.lookup = true, .always = true},
            {.chains = chains, .always = true},
            {.draft_model = m, .always = true, .max_length = 4}, // all of it right
            {.draft = repeat_first, .always = true, .max_length = 16},
            {.lookup = true, .online = true, .chains = chains},
        };
        size_t n_accepted = 0, n_refused = 0;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            const tern_session_desc desc = {.n_context = 128, .speculation = kinds[k]};
            tern_session *s = open_session(m, &desc);
            for (int t = 0; t < 6; t++) { // in one session, with what it knows from before
                static answer a;
                answer_draw(&a, &random, n_vocab);
                a.params.on_text = answer_on_text;
                a.params.user = &a;
                a.status = tern_generate_ids(s, a.prompt, a.n_prompt, &a.params, &a.stats, &err);
                answer_keep(&a, s);
                a.n_ends = 1;
                n_accepted += a.stats.draft.n_accepted;
                n_refused += a.stats.draft.n_drafted - a.stats.draft.n_accepted;
                answer_check_alone(m, &(tern_session_desc){.n_context = 128}, &a,
                                   group_families[i].name);
            }
            tern_session_close(s);
        }
        CHECK_MSG(n_accepted > 20 && n_refused > 20, "%s: %zu accepted, %zu refused",
                  group_families[i].name, n_accepted, n_refused);
        tern_chains_close(chains);
        tern_model_close(m);
    }
}

TEST(group_refuses_what_cannot_be) {
    tern_model *m = open_tiny(51, 0), *other = open_tiny(51, 0);
    tern_error err = {0};
    tern_group *g = NULL;
    const int32_t ids[] = {1, 2, TINY_N_VOCAB};
    if (!m || !other) return;
    CHECK(tern_group_open(&g, m, &(tern_group_desc){.n_piece = -1}, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_group_open(&g, NULL, NULL, &err) == TERN_ERR_ARGUMENT && !g);
    g = open_group(m, NULL);
    tern_session *s = open_session(m, &(tern_session_desc){.n_context = 8}),
                 *foreign = open_session(other, NULL),
                 *profiled = open_session(m, &(tern_session_desc){.profile = true});
#define ADD(session, ids, n) tern_group_add(g, session, ids, n, NULL, &err)
    CHECK(ADD(foreign, ids, 2) == TERN_ERR_ARGUMENT && strstr(err.message, "another model"));
    CHECK(ADD(profiled, ids, 2) == TERN_ERR_ARGUMENT && strstr(err.message, "profile"));
    CHECK(ADD(s, ids, 3) == TERN_ERR_ARGUMENT && ADD(s, ids, 0) == TERN_ERR_ARGUMENT);
    const int32_t nine[9] = {0};
    CHECK(ADD(s, nine, 9) == TERN_ERR_CONTEXT_FULL);
    CHECK(ADD(s, ids, 2) == TERN_OK && ADD(s, ids, 2) == TERN_ERR_ARGUMENT);
    tern_session_close(s); // while it runs
    size_t n_running = 7;
    CHECK(tern_group_step(g, &n_running, &err) == TERN_OK && n_running == 0);
    tern_session_close(foreign);
    tern_session_close(profiled);
    tern_group_close(g);
    tern_model_close(m);
    tern_model_close(other);
}
