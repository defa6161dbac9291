// A model that moves to another device while threads ask it things. The first device is the CPU
// behind a table of functions that can say that it was lost; `make tsan` runs these, too.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include "runtime/runtime.h"
#include "tests/harness.h"
#include "tests/tiny_model.h"

static atomic_bool lost, over;
static atomic_int users, users_max, n_asked;

static bool says_lost(const tern_device *d) {
    (void)d;
    return lost;
}

static tern_status submit_if_there(tern_instance *i, const tern_batch *batch, tern_error *err) {
    int n = atomic_fetch_add(&users, 1) + 1;
    for (int most = users_max; n > most && !atomic_compare_exchange_weak(&users_max, &most, n);) {}
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); // so that others come along
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
    lost = over = false;
    users = users_max = n_asked = 0;
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

// At the n-th token, -1: never, the device is lost.
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
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = N_TEXT, .ignore_end = true};
    losing l = {.at = lose_at};
    tern_status status = tern_session_open(&s, m, &(tern_session_desc){.n_context = 64}, &err);
    if (status == TERN_OK)
        status = tern_generate_ids(s, prompt, N_PROMPT, &p, on_text, &l, NULL, &err);
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

// Everything that may be asked of a model that is shared.
static void *ask(void *user) {
    tern_model *m = user;
    tern_error err = {0};
    bool ok = true;
    while (!over) {
        tern_model_info info;
        tern_session *s = NULL;
        tern_model_get_info(m, &info);
        ok = ok && info.device && strncmp(info.device, "cpu ", 4) == 0 && info.n_threads == 1;
        ok = ok && tern_graph_report(m, TERN_FORMAT_JSON, ignore, NULL, &err) == TERN_OK;
        ok = ok && tern_session_open(&s, m, &(tern_session_desc){.n_context = 16}, &err) == TERN_OK;
        ok = ok && tern_session_logits(s, prompt, 2, NULL, &err) == TERN_OK;
        tern_session_close(s);
        n_asked++;
    }
    test_check(ok, __FILE__, __LINE__, "%s", err.message);
    return NULL;
}

// Seen to fail under the thread sanitizer when tern_graph_report reads m->now without the lock.
TEST(placement_moves_while_others_ask) {
    static tern_backend backend;
    int32_t whole[N_TEXT], broken[N_TEXT];
    tern_model_info info;
    pthread_t threads[2];
    tern_model *m = open_on(&backend, true);
    REQUIRE(m != NULL);
    generate(m, -1, whole);
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, ask, m) == 0);
    while (n_asked < 2) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    generate(m, N_TEXT / 2, broken);
    for (int before = n_asked; n_asked < before + 2;)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    over = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(memcmp(whole, broken, sizeof whole) == 0);
    tern_model_get_info(m, &info);
    CHECK_MSG(strstr(info.device, "after a loss") != NULL, "%s", info.device);
    tern_model_close(m);
}

// Seen to fail when begin_use takes no lock: three batches at once on a device for one thread.
TEST(placement_lets_threads_take_turns_on_a_device) {
    for (int is_shared = 0; is_shared < 2; is_shared++) {
        static tern_backend backend;
        pthread_t threads[3];
        tern_model *m = open_on(&backend, is_shared != 0);
        REQUIRE(m != NULL);
        for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, ask, m) == 0);
        while (n_asked < 30) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        over = true;
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
        if (is_shared) CHECK_MSG(users_max > 1, "no two batches met: nothing was tested");
        else CHECK_MSG(users_max == 1, "%d batches at once", users_max);
        tern_model_close(m);
    }
}
