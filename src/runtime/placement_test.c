// A model that moves to another device while threads query it. The first device is the CPU wrapped
// in a table of functions that can report a loss; `make tsan` runs these, too.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "runtime/runtime.h"
#include "tern_tools.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static atomic_bool lost, over;
static atomic_bool meets; // who submits waits until another does, too
static atomic_int users, users_max;

static bool says_lost(const tern_device *d) {
    (void)d;
    return lost;
}

static tern_status submit_if_there(tern_instance *i, const tern_batch *batch, tern_error *err) {
    int n = atomic_fetch_add(&users, 1) + 1;
    for (int most = users_max; n > most && !atomic_compare_exchange_weak(&users_max, &most, n);) {
    }
    const struct timespec a_little = {.tv_nsec = 200000};
    nanosleep(&a_little, NULL); // so that other threads join, where they are not waited for
    for (int k = 0; k < 300000 && meets && users_max < 2 && !over; k++) nanosleep(&a_little, NULL);
    meets = false;
    tern_status status = lost ? tern_fail(err, TERN_ERR_DEVICE, "the test took the device away")
                              : tern_backend_cpu.submit(i, batch, err);
    atomic_fetch_sub(&users, 1);
    return status;
}

static tern_model *open_on(tern_backend *backend, bool is_shared) {
    tern_error err = {0};
    tern_model *m = NULL;
    const char *path = test_tmp("placement.gguf");
    *backend = tern_backend_cpu;
    backend->is_shared = is_shared;
    backend->is_lost = says_lost;
    backend->submit = submit_if_there;
    lost = over = meets = false;
    users = users_max = 0;
    if (tiny_model_write(path, &(tiny_model_desc){.seed = 3, .n_layers = 1}, &err) != TERN_OK ||
        tern_model_open(&m, path, &(tern_model_desc){.n_threads = 1}, &err) != TERN_OK)
        test_check(false, __FILE__, __LINE__, "%s", err.message);
    else
        m->now->backend = backend;
    return m;
}

static const int32_t prompt[] = {5, 70, 100, 33, 259, 8, 120, 64};
#define N_PROMPT 8
#define N_TEXT   24

// The device is lost at the n-th token; -1: never.
typedef struct losing {
    int n, at;
} losing;
static bool on_text(void *user, const char *text, size_t n_bytes) {
    losing *l = user;
    (void)text, (void)n_bytes;
    if (l->n++ == l->at) lost = true;
    return true;
}

static void generate(tern_model *m, int lose_at, int32_t *ids) {
    tern_error err = {0};
    tern_session *s = NULL;
    const tern_sampling greedy = {0};
    losing l = {.at = lose_at};
    const tern_generate_params p = {.sampling = &greedy,
                                    .max_tokens = N_TEXT,
                                    .ignore_end = true,
                                    .on_text = on_text,
                                    .user = &l};
    tern_status status = tern_session_open(&s, m, &(tern_session_desc){.n_context = 64}, &err);
    if (status == TERN_OK) status = tern_generate_ids(s, prompt, N_PROMPT, &p, NULL, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    size_t n = 0;
    const int32_t *text = s ? tern_session_generated(s, &n) : NULL;
    CHECK(n == N_TEXT);
    if (n == N_TEXT) memcpy(ids, text, N_TEXT * sizeof *ids);
    if (lose_at >= 0 && s) CHECK(tern_session_notice(s) != NULL);
    tern_session_close(s);
}

static bool ignore(void *user, const char *text, size_t n_bytes) {
    (void)user, (void)text;
    return n_bytes > 0;
}

// All queries that a shared model allows, each on a thread: one query's lock must not order another
// query that takes none.
static bool ask_info(tern_model *m, tern_error *err) {
    tern_model_info info;
    (void)err;
    tern_model_get_info(m, &info);
    return info.device && strncmp(info.device, "cpu ", 4) == 0 && info.n_threads == 1;
}

static bool ask_report(tern_model *m, tern_error *err) {
    return tern_graph_report(m, NULL, TERN_FORMAT_JSON, ignore, NULL, err) == TERN_OK;
}

static bool ask_session(tern_model *m, tern_error *err) {
    tern_session *s = NULL;
    bool ok = tern_session_open(&s, m, &(tern_session_desc){.n_context = 16}, err) == TERN_OK &&
              tern_session_logits(s, prompt, 2, NULL, err) == TERN_OK;
    tern_session_close(s);
    return ok;
}

typedef struct asker {
    tern_model *m;
    bool (*ask)(tern_model *m, tern_error *err);
    pthread_t thread;
    atomic_int n;
} asker;

static void *ask_on(void *user) {
    asker *a = user;
    tern_error err = {0};
    bool ok = true;
    while (!over) {
        ok = ok && a->ask(a->m, &err);
        a->n++;
    }
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    return NULL;
}

#define N_ASKERS 3
static void begin_asking(asker *a, tern_model *m, bool (*const *asks)(tern_model *, tern_error *)) {
    for (int i = 0; i < N_ASKERS; i++) {
        a[i].m = m;
        a[i].ask = asks[i];
        a[i].n = 0;
        CHECK(pthread_create(&a[i].thread, NULL, ask_on, &a[i]) == 0);
    }
}

// Until each has queried n times more.
static void wait_for(asker *a, int n) {
    for (int i = 0; i < N_ASKERS; i++)
        for (int before = a[i].n; a[i].n < before + n;)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void end_asking(asker *a) {
    over = true;
    for (int i = 0; i < N_ASKERS; i++) pthread_join(a[i].thread, NULL);
}

// Seen to fail under the thread sanitizer when tern_model_print_plan takes no lock.
TEST(placement_moves_while_others_ask) {
    static bool (*const asks[])(tern_model *, tern_error *) = {ask_info, ask_report, ask_session};
    static tern_backend backend;
    int32_t whole[N_TEXT], broken[N_TEXT];
    tern_model_info info;
    asker askers[N_ASKERS];
    tern_model *m = open_on(&backend, true);
    REQUIRE(m != NULL);
    generate(m, -1, whole);
    begin_asking(askers, m, asks);
    wait_for(askers, 2);
    generate(m, N_TEXT / 2, broken);
    wait_for(askers, 2);
    end_asking(askers);
    CHECK(memcmp(whole, broken, sizeof whole) == 0);
    tern_model_get_info(m, &info);
    CHECK_MSG(strstr(info.device, "after a loss") != NULL, "%s", info.device);
    tern_model_close(m);
}

// Seen to fail when begin_use takes no lock: three batches at once on a device for one thread; and
// when it takes one for every device.
TEST(placement_lets_threads_take_turns_on_a_device) {
    static bool (*const asks[])(tern_model *, tern_error *) = {ask_session, ask_session,
                                                               ask_session};
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        static tern_backend backend;
        asker askers[N_ASKERS];
        tern_model *m = open_on(&backend, is_shared != 0);
        REQUIRE(m != NULL);
        meets = is_shared;
        begin_asking(askers, m, asks);
        wait_for(askers, 10);
        end_asking(askers);
        if (is_shared)
            CHECK_MSG(users_max > 1, "no two batches met in a minute");
        else
            CHECK_MSG(users_max == 1, "%d batches at once", users_max);
        tern_model_close(m);
    }
}

// Seen to fail when the choice that suits the device replaces the one that was made.
TEST(placement_batches_are_what_is_wanted_or_suits_the_device) {
    static const tern_model_desc descs[] = {{.n_threads = 1}, {.n_threads = 1, .n_batch = 40}};
    static const int32_t batches[] = {TERN_BATCH, 40};
    tern_error err = {0};
    const char *path = test_tmp("batches.gguf");
    const tiny_model_desc tiny = {.seed = 3, .n_layers = 1};
    REQUIRE_OK(tiny_model_write(path, &tiny, &err), err);
    for (int i = 0; i < 2; i++) {
        tern_model *m;
        tern_model_info info;
        REQUIRE_OK(tern_model_open(&m, path, &descs[i], &err), err);
        tern_model_get_info(m, &info);
        CHECK_MSG(info.n_batch == batches[i], "%d", (int)info.n_batch);
        tern_model_close(m);
    }
}
