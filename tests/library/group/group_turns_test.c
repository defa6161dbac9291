// Who in a group waits for whom; what may happen in callbacks, and between begin and poll.
#include <string.h>
#include "runtime/runtime.h"
#include "tests/library/group/group_fixture.h"
#include "tests/support/tiny_model.h"

// ---- Who waits for whom ------------------------------------------------------------------------

static answer *begin_long(tern_group *g, tern_model *m, answer *a, size_t n_prompt, int32_t n) {
    *a = (answer){.session = open_session(m, &(tern_session_desc){.n_context = 512}),
                  .n_prompt = n_prompt,
                  .params = {.sampling = &samplings[0], .max_tokens = n, .ignore_end = true}};
    for (size_t i = 0; i < n_prompt && i < N_PROMPT_MAX; i++) a->prompt[i] = (int32_t)(i % 200);
    int32_t ids[400];
    tern_error err = {0};
    for (size_t i = 0; i < n_prompt; i++) ids[i] = (int32_t)((i * 7 + (size_t)n) % 200);
    a->params.on_text = answer_on_text;
    a->params.on_end = answer_on_end;
    a->params.user = a;
    tern_status status = tern_group_add(g, a->session, ids, n_prompt, &a->params, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return a;
}

TEST(group_long_prompts_stall_nobody) {
    static answer a[4];
    tern_model *m = open_tiny(44, 128);
    if (!m) return;
    tern_group *g = open_group(m, &(tern_group_desc){.n_piece = 32});
    begin_long(g, m, &a[0], 10, 60);
    step_group(g);
    begin_long(g, m, &a[1], 400, 5); // by itself in 13 steps
    begin_long(g, m, &a[2], 400, 6);
    step_group(g);
    begin_long(g, m, &a[3], 12, 7);
    size_t first[4] = {0}, n_steps = 2;
    for (; n_steps < 40; n_steps++) {
        CHECK(answer_n_said(&a[0]) == n_steps); // each step, whatever the others do
        size_t x = tern_session_n_tokens(a[1].session), y = tern_session_n_tokens(a[2].session);
        CHECK_MSG(x <= y + 16 && y <= x + 16, "%zu and %zu tokens of two prompts", x, y);
        step_group(g);
        for (int i = 1; i < 4; i++)
            if (!first[i] && answer_n_said(&a[i]) > 0) first[i] = n_steps;
    }
    CHECK_MSG(first[3] <= 5, "the short prompt waited until step %zu", first[3]);
    CHECK_MSG(first[1] >= 20 && first[1] <= 30 && first[2] >= 20 && first[2] <= 30,
              "the long ones were done at %zu and %zu", first[1], first[2]);
    tern_group_close(g);
    for (int i = 0; i < 4; i++) {
        CHECK(a[i].n_ends == 1);
        tern_session_close(a[i].session);
    }
    tern_model_close(m);
}

// ---- Callbacks ---------------------------------------------------------------------------------

typedef struct doing {
    tern_group *group;
    answer answers[6];
    int n_added, n_ended;
    tern_error err;
} doing;
static doing now_doing;

static void add_again(void *user, tern_session *s, const tern_generate_stats *stats,
                      const tern_error *err) {
    doing *d = &now_doing;
    answer *a = user;
    (void)stats;
    d->n_ended++;
    if (err->status != TERN_OK) d->err = *err;
    a->params.on_end = add_again;
    a->params.user = a;
    if (d->n_added++ < 20)
        tern_group_add(d->group, s, a->prompt, a->n_prompt, &a->params, &d->err);
    else
        tern_session_close(s);
}

// Ends others, and is refused what cannot be. Seen to fail with cancelled sessions that end, when
// they are used, within another's callback.
static bool meddle(void *user, const char *text, size_t n) {
    doing *d = &now_doing;
    tern_error err = {0};
    bool done;
    (void)user, (void)text, (void)n;
    tern_session_cancel(d->answers[1].session);
    if (d->n_added == 0) {
        CHECK(tern_session_sync(d->answers[1].session, NULL, 0, NULL, &err) == TERN_ERR_ARGUMENT);
        CHECK(d->answers[1].n_ends == 0);
    }
    tern_session_close(d->answers[2].session);
    d->answers[2].session = NULL;
    CHECK(tern_group_begin(d->group, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_group_poll(d->group, &done, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_session_sync(d->answers[0].session, NULL, 0, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(tern_generate(d->answers[0].session, "the", NULL, NULL, &err) == TERN_ERR_ARGUMENT);
    return d->n_added++ == 0; // the second time this one ends, too
}

TEST(group_callbacks_may_add_cancel_and_close) {
    tern_model *m = open_tiny(45, 0);
    uint32_t random = 3;
    if (!m) return;
    doing *d = &now_doing;
    *d = (doing){.group = open_group(m, NULL)};
    for (int i = 0; i < 4; i++) {
        answer_draw(&d->answers[i], &random, TINY_N_VOCAB);
        tern_error err = {0};
        d->answers[i].params.on_end = add_again;
        d->answers[i].params.user = &d->answers[i];
        REQUIRE_OK(tern_group_add(d->group, open_session(m, NULL), d->answers[i].prompt,
                                  d->answers[i].n_prompt, &d->answers[i].params, &err),
                   err);
    }
    while (step_group(d->group) > 0) {
    }
    CHECK_MSG(d->n_ended == 24 && d->err.status == TERN_OK, "%d ended: %s", d->n_ended,
              d->err.message);
    *d = (doing){.group = d->group};
    for (int i = 0; i < 4; i++) {
        answer *a = &d->answers[i];
        answer_draw(a, &random, TINY_N_VOCAB);
        a->params =
            (tern_generate_params){.sampling = &samplings[0], .max_tokens = 30, .ignore_end = true};
        a->session = open_session(m, NULL);
        a->params.on_text = i ? answer_on_text : meddle;
        a->params.on_end = answer_on_end;
        a->params.user = a;
        REQUIRE(tern_group_add(d->group, a->session, a->prompt, a->n_prompt, &a->params, &d->err) ==
                TERN_OK);
    }
    while (step_group(d->group) > 0) {
    }
    CHECK(d->answers[0].stats.reason == TERN_STOP_CALLER && d->answers[0].n < 30);
    CHECK(d->answers[1].stats.reason == TERN_STOP_CALLER && d->answers[1].n_ends == 1);
    CHECK(d->answers[2].n_ends == 0 && d->answers[2].session == NULL);
    CHECK(d->answers[3].n == 30);
    for (int i = 0; i < 4; i++) tern_session_close(d->answers[i].session);
    tern_group_close(d->group);
    tern_model_close(m);
}

// ---- Without waiting ---------------------------------------------------------------------------

static int n_polls;
static bool lost;
static tern_status poll_late(tern_instance *i, bool *done, tern_error *err) {
    (void)i;
    if (lost) return tern_fail(err, TERN_ERR_DEVICE, "the test took the device away");
    *done = ++n_polls % 3 == 0;
    return TERN_OK;
}
static bool says_lost(const tern_device *d) {
    (void)d;
    return lost;
}
static int n_cancelled;
static void cancel(tern_instance *i) {
    (void)i;
    n_cancelled++;
}

static tern_model *open_late(tern_backend *backend) {
    tern_model *m = open_tiny(46, 0);
    *backend = tern_backend_cpu;
    backend->poll = poll_late;
    backend->cancel = cancel;
    backend->is_lost = says_lost;
    if (m) m->now->backend = backend;
    lost = false;
    return m;
}

// Until it is done; how many polls said that it is not.
static int poll_all(tern_group *g, size_t *n_running) {
    tern_error err = {0};
    int n = 0;
    for (bool done = false; !done; n++)
        if (tern_group_poll(g, &done, n_running, &err) != TERN_OK) break;
    CHECK_MSG(err.status == TERN_OK, "%s", err.message);
    return n - 1;
}

TEST(group_between_begin_and_poll_anything_may_happen) {
    static answer a[5];
    tern_backend backend;
    tern_model *m = open_late(&backend);
    tern_error err = {0};
    uint32_t random = 8;
    size_t n_running = 0;
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    for (int i = 0; i < 5; i++) {
        answer_draw(&a[i], &random, TINY_N_VOCAB);
        a[i].params.max_tokens = N_ANSWER;
        a[i].params.ignore_end = true;
        a[i].params.n_stops = 0;
        a[i].session = open_session(m, NULL);
        if (i < 4) answer_add(g, &a[i]);
    }
    for (int k = 0; k < 4; k++) {
        REQUIRE_OK(tern_group_begin(g, &err), err);
        CHECK(tern_group_begin(g, &err) == TERN_ERR_ARGUMENT);
        CHECK(poll_all(g, &n_running) >= 2);
        CHECK(n_running == 4);
    }
    REQUIRE_OK(tern_group_begin(g, &err), err);
    tern_session *fork = NULL;
    CHECK(tern_session_fork(&fork, a[0].session, 1, &err) == TERN_ERR_ARGUMENT && !fork);
    CHECK(tern_session_swap_out(a[0].session, &err) == TERN_ERR_ARGUMENT);
    answer_add(g, &a[4]);              // from the next step on
    tern_session_cancel(a[1].session); // when this one is done
    size_t said = answer_n_said(&a[1]);
    CHECK(a[1].n_ends == 0);
    poll_all(g, &n_running);
    CHECK(n_running == 4 && a[1].n_ends == 1 && a[1].stats.reason == TERN_STOP_CALLER);
    CHECK(a[1].n == said);
    REQUIRE_OK(tern_group_begin(g, &err), err);
    int polls = n_polls;
    n_cancelled = 0;
    tern_session_close(a[2].session); // does not wait for the step, which is planned again
    CHECK(n_polls == polls && n_cancelled == 1);
    a[2].session = NULL;
    poll_all(g, &n_running);
    CHECK(n_running == 3 && a[2].n_ends == 0);
    REQUIRE_OK(tern_session_fork(&fork, a[0].session, tern_session_n_tokens(a[0].session), &err),
               err); // between steps of the one that it forks from
    tern_session_close(fork);
    while (n_running > 0) n_running = step_group(g);
    for (int i = 0; i < 5; i++)
        if (i % 3 == 0 || i == 4) answer_check_alone(m, NULL, &a[i], "late");
    REQUIRE(answer_add(g, &a[0]));
    REQUIRE_OK(tern_group_begin(g, &err), err);
    tern_group_close(g); // in the middle of a step
    CHECK(a[0].n_ends == 2 && a[0].stats.reason == TERN_STOP_CALLER);
    for (int i = 0; i < 5; i++) tern_session_close(a[i].session);
    tern_model_close(m);
}

TEST(group_goes_on_after_a_lost_device) {
    static answer a[3];
    tern_backend backend;
    tern_model *m = open_late(&backend);
    uint32_t random = 9;
    if (!m) return;
    tern_group *g = open_group(m, NULL);
    for (int i = 0; i < 3; i++) {
        answer_draw(&a[i], &random, TINY_N_VOCAB);
        a[i].session = open_session(m, NULL);
        answer_add(g, &a[i]);
    }
    for (int k = 0; k < 3; k++) step_group(g);
    REQUIRE(tern_group_begin(g, NULL) == TERN_OK);
    lost = true;
    size_t n_running;
    poll_all(g, &n_running);
    while (n_running > 0) n_running = step_group(g);
    for (int i = 0; i < 3; i++) {
        answer_check_alone(m, NULL, &a[i], "lost");
        tern_session_close(a[i].session);
    }
    tern_group_close(g);
    tern_model_close(m);
}

// ---- Memory ------------------------------------------------------------------------------------
