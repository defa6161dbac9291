// What memory a group takes: steps, idle sessions, common fronts; and what it does without.
#include <string.h>
#include "base/alloc.h"
#include "tests/library/group/group_fixture.h"
#include "tests/support/tiny_model.h"

TEST(group_steps_allocate_nothing) {
    static answer a[8];
    tern_model *m = open_tiny(47, 0);
    uint32_t random = 10;
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            tern_session *s = a[i].session;
            answer_draw(&a[i], &random, TINY_N_VOCAB);
            const tern_session_desc desc = desc_of(i % 5);
            a[i].session = s ? s : open_session(m, &desc);
            a[i].params.sampling = &samplings[i % 4];
            a[i].params.max_tokens = N_ANSWER;
            a[i].params.logprobs = false;
            answer_add(g, &a[i]);
        }
        // The model's instance is made in the first step.
        size_t n_running = round == 0 ? step_group(g) : 1;
        uint64_t before = tern_heap_get().n_allocs;
        while (n_running > 0) n_running = step_group(g);
        uint64_t n = tern_heap_get().n_allocs - before;
        // What the ends keep of their answers, once a session.
        CHECK_MSG(n <= (round == 0 ? 8 * 2 : 8), "%llu allocations", (unsigned long long)n);
    }
    // Steps in which none ends.
    for (int i = 0; i < 8; i++) answer_add(g, &a[i]);
    uint64_t before = tern_heap_get().n_allocs;
    for (int k = 0; k < 3; k++) step_group(g);
    CHECK(tern_heap_get().n_allocs == before);
    tern_group_close(g);
    for (int i = 0; i < 8; i++) tern_session_close(a[i].session);
    tern_model_close(m);
}

enum { N_IDLE = 1000, N_IDLE_TOKENS = 100, MOST_BESIDE_PAGES = 2048 };

// A session with that many tokens, come by in different ways.
static tern_session *make_idle(tern_model *m, tern_group *g, int way, uint32_t *random) {
    tern_generate_params params = {.sampling = &samplings[0], .max_tokens = 41, .ignore_end = true};
    tern_session *s = open_session(m, &(tern_session_desc){.n_context = 512});
    int32_t prompt[N_IDLE_TOKENS];
    size_t n = 60;
    tern_status status = TERN_OK;
    for (int t = 0; t < N_IDLE_TOKENS; t++) prompt[t] = (int32_t)draw_number(random, 40);
    if (way == 7) { // it held much more before
        params.max_tokens = 0;
        status = tern_generate_ids(s, prompt, n, &params, NULL, NULL);
        params.max_tokens = 1;
        n = N_IDLE_TOKENS;
    }
    if (way % 2) {
        if (status == TERN_OK) status = tern_generate_ids(s, prompt, n, &params, NULL, NULL);
    } else {
        status = tern_group_add(g, s, prompt, n, &params, NULL);
        while (step_group(g) > 0) {
        }
    }
    CHECK(status == TERN_OK && tern_session_n_tokens(s) == N_IDLE_TOKENS);
    return s;
}

// 1,000 sessions that hold 100 tokens each and rest: their pages, and at most 2 KB.
TEST(group_idle_sessions_cost_their_pages) {
    static tern_session *idle[N_IDLE];
    for (size_t i = 0; i < N_GROUP_FAMILIES; i++) {
        tern_model *m = open_family(&group_families[i], 48, 0);
        int32_t prompt[N_IDLE_TOKENS] = {0};
        uint32_t random = 4;
        size_t before = 0, pages = 0;
        if (!m) return;
        tern_group *g = open_group(m, NULL);
        tern_session *fresh = open_session(m, &(tern_session_desc){.n_context = 512});
        CHECK(tern_session_sync(fresh, prompt, N_IDLE_TOKENS, NULL, NULL) == TERN_OK);
        tern_session_close(make_idle(m, g, 7, &random)); // what all share is there then
        tern_session_close(make_idle(m, g, 0, &random));
        for (int k = 0; k < N_IDLE; k++) {
            if (k == 0) before = tern_heap_get().heap_now;
            idle[k] = make_idle(m, g, k % 40, &random);
            pages += (size_t)tern_session_bytes(idle[k]);
            CHECK(tern_session_bytes(idle[k]) <= 3 * tern_session_bytes(fresh)); // with snapshots
        }
        size_t all = tern_heap_get().heap_now - before;
        CHECK_MSG(all <= pages + (size_t)N_IDLE * MOST_BESIDE_PAGES, "%s: %zu bytes beside %zu",
                  group_families[i].name, (all - pages) / N_IDLE, pages / N_IDLE);
        for (int k = 0; k < N_IDLE; k++) tern_session_close(idle[k]);
        tern_session_close(fresh);
        tern_group_close(g);
        tern_model_close(m);
    }
}

TEST(group_forks_share_a_front) {
    tern_model *m = open_tiny(49, 0);
    tern_error err = {0};
    static answer a[8];
    int32_t front[96];
    uint32_t random = 12;
    if (!m) return;
    const tern_session_desc desc = {.n_context = 256};
    tern_session *system = open_session(m, &desc), *fork = NULL;
    for (int i = 0; i < 96; i++) front[i] = (int32_t)draw_number(&random, 200);
    REQUIRE_OK(tern_session_sync(system, front, 96, NULL, &err), err);
    CHECK(tern_session_fork(&fork, system, 97, &err) == TERN_ERR_ARGUMENT && !fork);
    uint64_t alone = tern_session_bytes(system);
    tern_group *g = open_group(m, NULL);
    for (int i = 0; i < 8; i++) {
        int32_t prompt[100];
        answer_draw(&a[i], &random, TINY_N_VOCAB);
        REQUIRE_OK(tern_session_fork(&a[i].session, system, 96, &err), err);
        CHECK(tern_session_n_tokens(a[i].session) == 96);
        memcpy(prompt, front, sizeof front);
        for (int t = 96; t < 100; t++) prompt[t] = (int32_t)draw_number(&random, 200);
        a[i].params.on_text = answer_on_text;
        a[i].params.on_end = answer_on_end;
        a[i].params.user = &a[i];
        REQUIRE_OK(tern_group_add(g, a[i].session, prompt, 100, &a[i].params, &err), err);
        memcpy(a[i].prompt, prompt + 60, 40 * sizeof *prompt); // for comparing: see below
    }
    while (step_group(g) > 0) {
    }
    uint64_t all = tern_session_bytes(system);
    for (int i = 0; i < 8; i++) {
        CHECK(a[i].stats.n_reused == 96 && a[i].n_ends == 1);
        all += tern_session_bytes(a[i].session);
        answer fresh = a[i];
        int32_t prompt[100];
        memcpy(prompt, front, 60 * sizeof *front);
        memcpy(prompt + 60, a[i].prompt, 40 * sizeof *prompt);
        tern_session *s = open_session(m, &desc);
        REQUIRE_OK(tern_generate_ids(s, prompt, 100, &a[i].params, NULL, &err), err);
        answer_keep(&fresh, s);
        CHECK(fresh.n == a[i].n && !memcmp(fresh.ids, a[i].ids, fresh.n * sizeof *fresh.ids));
        tern_session_close(s);
    }
    // Of nine fronts there is one: each has at most five pages of its own.
    CHECK_MSG(all < 8 * alone, "%llu bytes for nine, %llu for one", (unsigned long long)all,
              (unsigned long long)alone);
    tern_group_close(g);
    for (int i = 0; i < 8; i++) tern_session_close(a[i].session);
    tern_session_close(system);
    tern_model_close(m);
}

// Whatever allocation fails: a session ends with an error or says what it says alone.
TEST(group_survives_failing_allocations) {
    static answer a[3];
    tern_model *m = open_tiny(50, 0);
    if (!m) return;
    bool succeeded = false;
    int n_ended = 0, n_retried = 0, was_added[3];
    for (uint64_t n = 1; n < 600 && !succeeded; n++) {
        uint32_t random = 21;
        tern_error err = {0};
        tern_group *g = NULL;
        tern_mem_fail_at(n);
        tern_status status = tern_group_open(&g, m, &(tern_group_desc){.n_reserve = 1}, &err);
        for (int i = 0; i < 3; i++) {
            answer_draw(&a[i], &random, TINY_N_VOCAB);
            a[i].params.max_tokens = N_ANSWER;
            a[i].session = NULL;
            if (status == TERN_OK) status = tern_session_open(&a[i].session, m, NULL, &err);
            a[i].params.on_text = answer_on_text;
            a[i].params.on_end = answer_on_end;
            a[i].params.user = &a[i];
            if (status == TERN_OK)
                status =
                    tern_group_add(g, a[i].session, a[i].prompt, a[i].n_prompt, &a[i].params, &err);
            was_added[i] = status == TERN_OK;
        }
        succeeded = status == TERN_OK;
        for (size_t n_running = 1; g && n_running > 0;)
            if (tern_group_step(g, &n_running, &err) != TERN_OK) {
                CHECK_MSG(err.status == TERN_ERR_MEMORY, "%s", err.message);
                tern_mem_fail_at(0); // there is memory again
                succeeded = false;
                n_retried++;
                n_running = 1;
            }
        tern_mem_fail_at(0);
        for (int i = 0; i < 3; i++) {
            bool failed = a[i].n_ends && a[i].status != TERN_OK;
            CHECK(a[i].n_ends == was_added[i]);
            if (failed)
                n_ended++, succeeded = false;
            else if (a[i].n_ends)
                answer_check_alone(m, NULL, &a[i], "after a failure");
            tern_session_close(a[i].session);
        }
        tern_group_close(g);
    }
    CHECK(succeeded);
    CHECK_MSG(n_ended > 0, "%d ended, %d steps were tried again", n_ended, n_retried);
    tern_model_close(m);
}
