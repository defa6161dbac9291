// Stopping what takes long: by a request that a thread watches, and by tern_session_cancel from
// another thread and from a signal handler. Whatever was stopped goes on afterwards as if it had
// not been. Nothing depends on when a request arrives: it is made again and again until the call
// has ended, or it is made before.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/support/harness.h"
#include "tern.h"
#include "tern_tools.h"
#include "tern_train.h"
#include "tests/support/tiny_model.h"

#define N_LONG 500
static int32_t ids[N_LONG];
static const tern_sampling greedy = {0};

static tern_model *open_tiny(unsigned seed, int n_batch) {
    tern_error err = {0};
    tern_model *m = NULL;
    const char *path = test_tmp("cancel.gguf");
    const tiny_model_desc tiny = {.seed = seed, .readable = true};
    const tern_model_desc desc = {.n_batch = n_batch, .n_threads = 2};
    bool ok = tiny_model_write(path, &tiny, &err) == TERN_OK &&
              tern_model_open(&m, path, &desc, &err) == TERN_OK;
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    for (int i = 0; i < N_LONG; i++) ids[i] = 3 + i * 7 % 290;
    return m;
}

// ---- Requests from elsewhere -------------------------------------------------------------------

typedef struct asking {
    tern_session *session; // or
    tern_cancel *cancel;
    pthread_t thread, asked; // asked: gets signals instead, if by_signal
    bool by_signal;
    atomic_bool is_over;
} asking;

static void nap(void) {
    const struct timespec a_little = {0, 200000};
    nanosleep(&a_little, NULL);
}

static void *ask(void *user) {
    asking *a = user;
    while (!atomic_load(&a->is_over)) {
        nap();
        if (a->by_signal)
            pthread_kill(a->asked, SIGUSR1);
        else if (a->session)
            tern_session_cancel(a->session);
        else
            tern_cancel_request(a->cancel);
    }
    return NULL;
}

static void begin_asking(asking *a) {
    atomic_init(&a->is_over, false);
    a->asked = pthread_self();
    CHECK(pthread_create(&a->thread, NULL, ask, a) == 0);
}

static void end_asking(asking *a) {
    atomic_store(&a->is_over, true);
    pthread_join(a->thread, NULL);
}

// What a session says that nobody stops.
static void say_whole(tern_model *m, int32_t *out, size_t *n_out) {
    tern_error err = {0};
    tern_session *s = NULL;
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = 8, .ignore_end = true};
    CHECK(tern_session_open(&s, m, NULL, &err) == TERN_OK);
    CHECK(tern_generate_ids(s, ids, N_LONG, &p, NULL, &err) == TERN_OK);
    const int32_t *said = tern_session_generated(s, n_out);
    memcpy(out, said, *n_out * sizeof *out);
    tern_session_close(s);
}

static void check_goes_on(tern_session *s, const int32_t *want, size_t n_want) {
    tern_error err = {0};
    size_t n;
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = 8, .ignore_end = true};
    CHECK(tern_generate_ids(s, ids, N_LONG, &p, NULL, &err) == TERN_OK);
    const int32_t *said = tern_session_generated(s, &n);
    CHECK(n == n_want && memcmp(said, want, n * sizeof *said) == 0);
}

static tern_session *signalled;
static void on_signal(int number) {
    (void)number;
    tern_session_cancel(signalled);
}

// Each call is repeated until a request meets it; all of them do in the end.
static void stop_everything(tern_model *m, bool by_signal) {
    tern_error err = {0};
    int32_t want[8];
    size_t n_want;
    tern_session *s = NULL;
    const tern_session_desc endless = {.shift_context = true};
    const tern_generate_params p = {.sampling = &greedy, .ignore_end = true, .max_tokens = 1 << 20};
    tern_target_score *scores = calloc(N_LONG, sizeof *scores);
    say_whole(m, want, &n_want);
    CHECK(tern_session_open(&s, m, &endless, &err) == TERN_OK && scores);
    asking a = {.session = s, .by_signal = by_signal};
    signalled = s;
    for (int what = 0; what < 4 && s && scores; what++) {
        tern_status status = TERN_OK;
        tern_generate_stats stats = {.reason = TERN_STOP_END};
        begin_asking(&a);
        while (status == TERN_OK && stats.reason != TERN_STOP_CALLER) {
            tern_session_reset(s);
            if (what == 0) status = tern_session_sync(s, ids, N_LONG, NULL, &err);
            if (what == 1) status = tern_session_logits(s, ids, N_LONG, NULL, &err);
            if (what == 2) status = tern_session_logprobs(s, ids, N_LONG, ids, scores, &err);
            if (what == 3) status = tern_generate_ids(s, ids, N_LONG, &p, &stats, &err);
        }
        end_asking(&a);
        CHECK_MSG(status == (what == 3 ? TERN_OK : TERN_ERR_CANCELLED), "%d: %s", what,
                  tern_status_name(status));
        CHECK(err.status == status && (status == TERN_OK) == !err.message[0]);
        CHECK(what == 3 || tern_session_n_tokens(s) < N_LONG);
        check_goes_on(s, want, n_want);
    }
    free(scores);
    tern_session_close(s);
}

// Seen to fail (it does not end): with a request that is only looked at in groups; between batches
// alone, where the model's batch is the whole prompt.
TEST(cancel_a_session_stops_whatever_it_does) {
    static const int batches[] = {7, 512};
    for (int i = 0; i < 2; i++) {
        tern_model *m = open_tiny(3, batches[i]);
        REQUIRE(m);
        stop_everything(m, false);
        tern_model_close(m);
    }
}

TEST(cancel_may_be_requested_in_a_signal_handler) {
    struct sigaction on = {.sa_handler = on_signal}, before;
    tern_model *m = open_tiny(3, 64);
    REQUIRE(m);
    sigaction(SIGUSR1, &on, &before);
    stop_everything(m, true);
    sigaction(SIGUSR1, &before, NULL);
    tern_model_close(m);
}

typedef struct ending {
    int n_ends;
    tern_stop_reason reason;
} ending;

static void on_end(void *user, tern_session *s, const tern_generate_stats *stats,
                   const tern_error *err) {
    ending *e = user;
    (void)s;
    CHECK_MSG(err->status == TERN_OK, "%s", err->message);
    e->n_ends++;
    e->reason = stats->reason;
}

TEST(cancel_ends_one_session_of_a_group) {
    for (int alone = 0; alone < 2; alone++) {
        tern_error err = {0};
        int32_t want[8];
        size_t n_want, n_running = 2, n;
        ending ends[2] = {{0}};
        tern_group *g = NULL;
        tern_session *s[2] = {NULL};
        tern_model *m = open_tiny(5, alone ? 512 : 32);
        REQUIRE(m);
        say_whole(m, want, &n_want);
        const tern_session_desc endless = {.shift_context = true};
        tern_generate_params p = {.sampling = &greedy,
                                  .ignore_end = true,
                                  .max_tokens = 1 << 20,
                                  .on_end = on_end,
                                  .user = &ends[0]};
        REQUIRE_OK(tern_group_open(&g, m, NULL, &err), err);
        REQUIRE_OK(tern_session_open(&s[0], m, &endless, &err), err);
        REQUIRE_OK(tern_session_open(&s[1], m, NULL, &err), err);
        REQUIRE_OK(tern_group_add(g, s[0], ids, N_LONG, &p, &err), err);
        p.max_tokens = 8;
        p.user = &ends[1];
        if (!alone) REQUIRE_OK(tern_group_add(g, s[1], ids, N_LONG, &p, &err), err);
        asking a = {.session = s[0]};
        begin_asking(&a);
        while (n_running > 0) REQUIRE_OK(tern_group_step(g, &n_running, &err), err);
        end_asking(&a);
        CHECK(ends[0].n_ends == 1 && ends[0].reason == TERN_STOP_CALLER);
        const int32_t *said = tern_session_generated(s[1], &n);
        if (!alone) CHECK(ends[1].n_ends == 1 && ends[1].reason == TERN_STOP_LENGTH);
        if (!alone) CHECK(n == n_want && memcmp(said, want, n * sizeof *said) == 0);
        tern_group_close(g);
        check_goes_on(s[0], want, n_want);
        tern_session_close(s[0]);
        tern_session_close(s[1]);
        tern_model_close(m);
    }
}

// ---- A request that a thread watches -----------------------------------------------------------

static void cancelled(const char *what, tern_status status, const tern_error *err) {
    test_check(status == TERN_ERR_CANCELLED && err->message[0], __FILE__, __LINE__, "%s: %s (%s)",
               what, tern_status_name(status), err->message);
}
#define CANCELLED(call) cancelled(#call, (call), &err)

// Seen to fail: without the look at it in each of these.
TEST(cancel_a_request_is_heeded_by_all_that_takes_long) {
    static tern_cancel stop;
    tern_error err = {0};
    int32_t want[8];
    size_t n_want;
    tern_model *m = open_tiny(7, 512), *other = NULL;
    tern_session *s = NULL;
    REQUIRE(m);
    say_whole(m, want, &n_want);
    REQUIRE_OK(tern_session_open(&s, m, NULL, &err), err);
    CHECK(tern_cancel_watch(&stop) == NULL);
    CHECK(!tern_cancel_is_requested(&stop));
    check_goes_on(s, want, n_want); // nobody wants anything
    tern_cancel_request(&stop);
    CHECK(tern_cancel_is_requested(&stop));

    const char *path = test_tmp("cancel.gguf");
    const char *text = "the quick brown fox jumps over the lazy dog and the dog sleeps";
    tern_session_reset(s);
    CANCELLED(tern_session_sync(s, ids, N_LONG, NULL, &err));
    CANCELLED(tern_session_logits(s, ids, N_LONG, NULL, &err));
    CANCELLED(tern_model_open(&other, path, NULL, &err));
    CHECK(!other);
    tern_perplexity ppl;
    const tern_perplexity_desc windows = {.window = 16};
    CANCELLED(tern_eval_perplexity(s, text, strlen(text), &windows, &ppl, &err));
    tern_session *reference = NULL;
    tern_eval_comparison comparison;
    const tern_bytes bytes = {text, strlen(text)};
    REQUIRE_OK(tern_session_open(&reference, m, NULL, &err), err);
    CANCELLED(tern_eval_compare(s, reference, bytes, &windows, &comparison, &err));
    tern_session_close(reference);
    CANCELLED(tern_convert(path, test_tmp("cancelled.gguf"), NULL, &err));
    const tern_imatrix_desc measure = {.text = text, .n_bytes = strlen(text)};
    CANCELLED(tern_imatrix(m, test_tmp("cancelled.imatrix"), &measure, NULL, &err));
    tern_array out = {.name = "logits"}, in = {.name = "ids",
                                               .type = TERN_ARRAY_I32,
                                               .n_dims = 1,
                                               .dims = {N_LONG},
                                               .data = ids};
    const tern_compute_desc compute = {
        .inputs = &in, .n_inputs = 1, .outputs = &out, .n_outputs = 1};
    CANCELLED(tern_compute(m, &compute, &err));
    CANCELLED(tern_session_save(s, test_tmp("cancelled.session"), &err));
    tern_generate_stats stats;
    CHECK(tern_generate_ids(s, ids, N_LONG, NULL, &stats, &err) == TERN_OK);
    CHECK(stats.reason == TERN_STOP_CALLER && stats.n_generated == 0 && !err.message[0]);
    tern_group *g = NULL;
    size_t n_running = 0;
    REQUIRE_OK(tern_group_open(&g, m, NULL, &err), err);
    REQUIRE_OK(tern_group_add(g, s, ids, N_LONG, NULL, &err), err);
    CANCELLED(tern_group_step(g, &n_running, &err));
    tern_group_close(g);

    // Another thread's calls, and this one's when it is over, go on.
    tern_cancel_reset(&stop);
    check_goes_on(s, want, n_want);
    tern_cancel_request(&stop);
    CHECK(tern_cancel_watch(NULL) == &stop);
    check_goes_on(s, want, n_want);
    tern_cancel_reset(&stop);
    tern_session_close(s);
    tern_model_close(m);
}

static bool request(void *user, const char *phase, double fraction) {
    (void)phase, (void)fraction;
    tern_cancel_request(user);
    return true;
}

TEST(cancel_loading_ends_in_the_middle) {
    static tern_cancel stop;
    tern_error err = {0};
    tern_model *m = NULL;
    const char *path = test_tmp("cancel.gguf");
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 9}, &err), err);
    tern_cancel_watch(&stop);
    const tern_model_desc desc = {.on_progress = request, .user = &stop};
    CANCELLED(tern_model_open(&m, path, &desc, &err));
    CHECK(!m);
    tern_cancel_watch(NULL);
    tern_cancel_reset(&stop);
}
