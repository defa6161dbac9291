// A GPU that answers only when the test lets it: opening a model, moving it after a loss and
// generating wait for nothing, need every answer, and can be given up at any of them. Needs an
// adapter, as the tests of webgpu_test.c do.
#include "base/alloc.h"
#include "gpu_fixture.h"
#include "tests/support/tiny_model.h"

#define N_ANSWERS 3  // the adapter, the device, the trial of a submission
#define N_POLLS   20 // that make no difference while an answer is missing

static const char *write_model(void) {
    tern_error err = {0};
    const char *path = test_tmp("webgpu_opening.gguf");
    const tiny_model_desc tiny = {.seed = 3, .head_type = TERN_DTYPE_F16, .n_layers = 1};
    tern_status status = tiny_model_write(path, &tiny, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return path;
}

typedef struct watched {
    int n_calls;
    double fraction;
} watched;
static bool watch(void *user, const char *phase, double fraction) {
    watched *w = user;
    CHECK(strcmp(phase, "load") == 0 && fraction >= w->fraction && fraction <= 1);
    w->fraction = fraction;
    w->n_calls++;
    return true;
}

static tern_status begin(tern_opening **out, const char *path, watched *w, tern_error *err) {
    const gpu_play play = {.holds = true};
    const tern_model_desc desc = {.device = "webgpu",
                                  .webgpu = gpu_webgpu(&play),
                                  .n_batch = 16,
                                  .on_progress = w ? watch : NULL,
                                  .user = w};
    return tern_model_open_begin(out, path, &desc, err);
}

// Polls until it is done, or no poll makes a difference any more. Kernels are compiled meanwhile.
static tern_status poll_some(tern_opening *o, bool *done, tern_model **m, tern_error *err) {
    tern_status status = TERN_OK;
    *done = false;
    for (int i = 0; status == TERN_OK && !*done && (i < N_POLLS || gpu_play_is_compiling()); i++)
        status = tern_model_open_poll(o, done, m, err);
    return status;
}

static bool generates(tern_model *m) {
    tern_error err = {0};
    tern_session *s = NULL;
    float logit = 0;
    const int32_t ids[] = {5, 70, 100};
    tern_model_info info;
    tern_model_get_info(m, &info);
    float *logits = calloc(3 * (size_t)info.n_vocab, sizeof *logits);
    gpu_webgpu(&(gpu_play){0}); // from here on answers come by themselves
    bool ok = tern_session_open(&s, m, &(tern_session_desc){.n_context = 16}, &err) == TERN_OK &&
              tern_session_logits(s, ids, 3, logits, &err) == TERN_OK;
    for (int32_t i = 0; i < info.n_vocab; i++) logit += logits[i] * logits[i];
    tern_session_close(s);
    free(logits);
    CHECK_MSG(ok && logit > 0, "%s", err.message);
    return ok;
}

// Seen to fail when the device's step, and when the trial's, is taken without its answer.
TEST(webgpu_opening_needs_every_answer) {
    tern_error err = {0};
    tern_opening *o = NULL;
    tern_model *m = NULL;
    watched w = {0};
    const char *path = write_model();
    tern_status status = begin(&o, path, &w, &err);
    int n = 0;
    bool done = false;
    if (status == TERN_OK) status = poll_some(o, &done, &m, &err);
    for (; status == TERN_OK && !done && n < 10 && gpu_play_answer(); n++) {
        CHECK(w.fraction == 0 && !m);
        status = poll_some(o, &done, &m, &err);
    }
    if (gpu_is_absent(err.message)) { // said at once, or by the first answer
        tern_opening_close(o);
        return;
    }
    CHECK_MSG(status == TERN_OK && done, "%s", err.message);
    CHECK_MSG(n == N_ANSWERS, "%d answers", n);
    CHECK(w.n_calls > 1 && w.fraction > 0.9);
    if (m) CHECK(generates(m));
    tern_model *again = NULL; // a further poll gives the same again
    CHECK(tern_model_open_poll(o, &done, &again, &err) == TERN_OK && done && again == m);
    tern_opening_close(o);
    tern_model_close(m);
}

// Given up after each answer, and before it was seen. Seen to fail when gpu_device_close does not
// close the trials, and when a map that is pending is not left to its callback.
TEST(webgpu_opening_can_be_given_up_anywhere) {
    const char *path = write_model();
    int n_alive = gpu_play_n_alive();
    for (int k = 0; k < 2 * N_ANSWERS + 2; k++) {
        tern_error err = {0};
        tern_opening *o = NULL;
        tern_model *m = NULL;
        bool done = false;
        size_t before = tern_mem_get_stats().total_now;
        tern_status status = begin(&o, path, NULL, &err);
        for (int i = 0; status == TERN_OK && i < k; i++)
            if (i % 2)
                gpu_play_answer();
            else
                status = poll_some(o, &done, &m, &err);
        if (gpu_is_absent(err.message)) {
            tern_opening_close(o);
            return;
        }
        CHECK_MSG(status == TERN_OK, "%s", err.message);
        CHECK_MSG(done == (k > 2 * N_ANSWERS), "%d steps", k);
        tern_opening_close(o);
        tern_model_close(m);
        CHECK_MSG(gpu_play_n_alive() == n_alive, "%d steps: %d objects", k,
                  gpu_play_n_alive() - n_alive);
        CHECK_MSG(tern_mem_get_stats().total_now == before, "%d steps: %zd bytes", k,
                  (ssize_t)(tern_mem_get_stats().total_now - before));
    }
}

// Seen to fail when a trial that failed is not closed.
TEST(webgpu_opening_survives_failing_allocations) {
    const char *path = write_model();
    tern_status status = TERN_ERR_MEMORY;
    int n_failed = 0, n_alive = gpu_play_n_alive();
    tern_error err = {0};
    for (uint64_t n = 1; status == TERN_ERR_MEMORY && n < 100000; n += 1 + n / 20) {
        tern_opening *o = NULL;
        tern_model *m = NULL;
        bool done = false;
        size_t before = tern_mem_get_stats().total_now;
        tern_mem_fail_at(n);
        status = begin(&o, path, NULL, &err);
        while (status == TERN_OK && !done) {
            gpu_play_answer();
            status = tern_model_open_poll(o, &done, &m, &err);
        }
        tern_mem_fail_at(0);
        n_failed += status == TERN_ERR_MEMORY;
        tern_opening_close(o);
        tern_model_close(m);
        if (gpu_is_absent(err.message)) return;
        CHECK_MSG(tern_mem_get_stats().total_now == before, "allocation %d", (int)n);
        CHECK(gpu_play_n_alive() == n_alive);
    }
    CHECK_MSG(status == TERN_OK && n_failed > 40, "%d failures: %s", n_failed, err.message);
}

// ---- Generating --------------------------------------------------------------------------------

#define N_TEXT 20
static const int32_t prompt[] = {5, 70, 100, 33, 259, 8, 120, 64, 260, 90, 91, 92};
#define N_PROMPT (sizeof prompt / sizeof *prompt)

typedef struct text {
    tern_session *session;
    int32_t ids[N_TEXT];
    size_t n;
    int n_ends;
} text;

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    text *t = user;
    const int32_t *ids = tern_session_generated(session, &t->n);
    (void)stats;
    CHECK_MSG(err->status == TERN_OK && t->n == N_TEXT, "%zu tokens: %s", t->n, err->message);
    if (t->n == N_TEXT) memcpy(t->ids, ids, sizeof t->ids);
    t->n_ends++;
}

static bool add(tern_group *g, tern_model *m, text *t, size_t first) {
    tern_error err = {0};
    const tern_sampling greedy = {0};
    const tern_generate_params p = {
        .sampling = &greedy, .max_tokens = N_TEXT, .ignore_end = true, .on_end = on_end, .user = t};
    tern_status status =
        tern_session_open(&t->session, m, &(tern_session_desc){.n_context = 64}, &err);
    if (status == TERN_OK)
        status = tern_group_add(g, t->session, prompt + first, N_PROMPT - first, &p, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return status == TERN_OK;
}

// Steps until nothing runs: polls, and an answer only where polls make no difference. Returns how
// many answers that took, -1: it failed.
static int run(tern_group *g, size_t n_running) {
    tern_error err = {0};
    tern_status status = TERN_OK;
    int n = 0;
    while (status == TERN_OK && n_running > 0) {
        status = tern_group_begin(g, &err);
        for (bool done = false; status == TERN_OK && !done;) {
            for (int i = 0; status == TERN_OK && !done && i < N_POLLS; i++)
                status = tern_group_poll(g, &done, &n_running, &err);
            if (!done) n += gpu_play_answer();
        }
    }
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return status == TERN_OK ? n : -1;
}

// What the CPU says to two prompts.
static bool say_on_cpu(const char *path, text *said) {
    tern_error err = {0};
    tern_model *m = NULL;
    tern_group *g = NULL;
    bool ok = tern_model_open(&m, path, NULL, &err) == TERN_OK &&
              tern_group_open(&g, m, NULL, &err) == TERN_OK && add(g, m, &said[0], 0) &&
              add(g, m, &said[1], 4) && run(g, 2) == 0;
    tern_group_close(g);
    for (int i = 0; i < 2; i++) tern_session_close(said[i].session);
    tern_model_close(m);
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

static tern_model *open_answered(const char *path, const gpu_play *play) {
    tern_error err = {0};
    tern_opening *o = NULL;
    tern_model *m = NULL;
    const tern_model_desc desc = {.device = "webgpu", .webgpu = gpu_webgpu(play), .n_batch = 64};
    tern_status status = tern_model_open_begin(&o, path, &desc, &err);
    for (bool done = false; status == TERN_OK && !done;) {
        gpu_play_answer();
        status = tern_model_open_poll(o, &done, &m, &err);
    }
    tern_opening_close(o);
    if (!gpu_is_absent(err.message)) CHECK_MSG(status == TERN_OK, "%s", err.message);
    return m;
}

// The device is lost in the middle of two answers, and the next one, too. Seen to fail when only
// the first session leaves the lost place.
TEST(webgpu_groups_move_without_waiting) {
    const char *path = write_model();
    tern_error err = {0};
    text said[2] = {{0}}, moved[2] = {{0}};
    tern_model_info info;
    int n_alive = gpu_play_n_alive();
    if (!say_on_cpu(path, said)) return;
    tern_model *m = open_answered(path, &(gpu_play){.holds = true, .lose_at = 8});
    tern_group *g = NULL;
    if (!m) return;
    if (tern_group_open(&g, m, NULL, &err) == TERN_OK && add(g, m, &moved[0], 0) &&
        add(g, m, &moved[1], 4)) {
        int n = run(g, 2);
        // One for each submission before the loss; several may come at once.
        CHECK_MSG(n >= 8 && n < 4 * N_TEXT, "%d answers", n);
    }
    tern_model_get_info(m, &info);
    CHECK_MSG(strncmp(info.device, "cpu", 3) == 0, "%s", info.device); // after two losses
    for (int i = 0; i < 2; i++) {
        CHECK(moved[i].n_ends == 1 && memcmp(said[i].ids, moved[i].ids, sizeof said[i].ids) == 0);
        const char *notice = tern_session_notice(moved[i].session);
        CHECK_MSG(notice && strstr(notice, "goes on with cpu"), "%s", notice ? notice : "none");
    }
    tern_group_close(g);
    for (int i = 0; i < 2; i++) tern_session_close(moved[i].session);
    tern_model_close(m);
    CHECK(gpu_play_n_alive() == n_alive);
}

// A session is closed while the device computes for it and another one, and then the group is; what
// comes of that is nobody's. Seen to fail when a batch takes a readback whose map is pending.
TEST(webgpu_sessions_close_in_the_middle_of_a_step) {
    const char *path = write_model();
    tern_error err = {0};
    text said[2] = {{0}}, here[2] = {{0}};
    int n_alive = gpu_play_n_alive();
    if (!say_on_cpu(path, said)) return;
    tern_model *m = open_answered(path, &(gpu_play){.holds = true});
    tern_group *g = NULL;
    if (!m) return;
    REQUIRE_OK(tern_group_open(&g, m, NULL, &err), err);
    for (int k = 0; k < 3; k++) { // two readbacks, then none is left
        bool done = true;
        text closed = {0};
        here[0] = (text){0};
        CHECK(add(g, m, &here[0], 0) && add(g, m, &closed, 4));
        CHECK(tern_group_begin(g, &err) == TERN_OK);
        for (int i = 0; i < k; i++) { // on their way for `closed`, each
            CHECK(tern_group_poll(g, &done, NULL, &err) == TERN_OK && !done);
            tern_session_close(closed.session);
            closed = (text){0};
            CHECK(add(g, m, &closed, 4) && tern_group_begin(g, &err) == TERN_OK);
        }
        tern_session_close(closed.session);
        CHECK(run(g, 1) > 0);
        CHECK(here[0].n_ends == 1 && memcmp(said[0].ids, here[0].ids, sizeof said[0].ids) == 0);
        tern_session_close(here[0].session);
    }
    CHECK(add(g, m, &here[1], 4) && tern_group_begin(g, &err) == TERN_OK);
    here[1].n_ends = -1; // it is cancelled
    tern_session_close(here[1].session);
    tern_group_close(g);
    tern_model_close(m);
    CHECK(gpu_play_n_alive() == n_alive);
}
