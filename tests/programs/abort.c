// All ways to stop: from another thread, by a request that lasts, in each callback. What was
// computed stays, and the next call goes on from there.
#include <pthread.h>
#include "program.h"

enum { N_LONG = 300 };
static int32_t ids[N_LONG];

typedef struct stopper {
    tern_session *session;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool may_stop; // the answer has begun
} stopper;

static void *stop_it(void *user) {
    stopper *s = (stopper *)user;
    pthread_mutex_lock(&s->lock);
    while (!s->may_stop) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    tern_session_cancel(s->session);
    return NULL;
}

static bool on_text(void *user, const char *bytes, size_t n) {
    stopper *s = (stopper *)user;
    (void)bytes, (void)n;
    pthread_mutex_lock(&s->lock);
    s->may_stop = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return true;
}

// It would never end: the context moves along.
static void stop_from_a_thread(tern_model *model) {
    tern_error err = ZEROS;
    tern_session_desc endless = ZEROS;
    tern_generate_params params = ZEROS;
    tern_generate_stats stats;
    pthread_t thread;
    stopper s;
    memset(&s, 0, sizeof s);
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.changed, NULL);
    endless.shift_context = true;
    NEED(tern_session_open(&s.session, model, &endless, &err), err);
    params.ignore_end = true;
    params.max_tokens = 1 << 20;
    params.on_text = on_text;
    params.user = &s;
    CHECK(pthread_create(&thread, NULL, stop_it, &s) == 0);
    NEED(tern_generate_ids(s.session, ids, 20, &params, &stats, &err), err);
    pthread_join(thread, NULL);
    CHECK(stats.reason == TERN_STOP_CALLER);
    tern_session_close(s.session);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
}

static void stop_by_a_request(tern_session *session, const char *path) {
    tern_error err = ZEROS;
    tern_cancel request = ZEROS;
    tern_model *other = NULL;
    tern_generate_stats stats;
    tern_generate_params params = ZEROS;
    params.max_tokens = 3;
    CHECK(tern_cancel_watch(&request) == NULL);
    tern_cancel_request(&request);
    CHECK(tern_model_open(&other, path, NULL, &err) == TERN_ERR_CANCELLED && !other);
    CHECK(tern_session_sync(session, ids, N_LONG, NULL, &err) == TERN_ERR_CANCELLED);
    NEED(tern_generate_ids(session, ids, N_LONG, &params, &stats, &err), err);
    CHECK(stats.reason == TERN_STOP_CALLER && stats.n_generated == 0);
    tern_cancel_reset(&request);
    NEED(tern_generate_ids(session, ids, N_LONG, &params, &stats, &err), err);
    CHECK(stats.reason != TERN_STOP_CALLER);
    CHECK(tern_cancel_watch(NULL) == &request);
}

static bool never(void *user, const char *phase, double fraction) {
    (void)user, (void)phase, (void)fraction;
    return false;
}

static bool no_text(void *user, const char *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return false;
}

static int32_t no_token(void *user, const tern_logits *at) {
    (void)user, (void)at;
    return TERN_LOGITS_STOP;
}

static void stop_in_callbacks(tern_session *session, const char *path) {
    tern_error err = ZEROS;
    tern_model *other = NULL;
    tern_model_desc desc = ZEROS;
    tern_generate_stats stats;
    desc.on_progress = never;
    CHECK(tern_model_open(&other, path, &desc, &err) == TERN_ERR_CANCELLED && !other);
    for (int i = 0; i < 3; i++) {
        tern_generate_params params = ZEROS;
        params.max_tokens = 3;
        params.ignore_end = true;
        if (i == 0) params.on_progress = never;
        if (i == 1) params.on_logits = no_token;
        if (i == 2) params.on_text = no_text;
        NEED(tern_generate_ids(session, ids, 40, &params, &stats, &err), err);
        CHECK(stats.reason == TERN_STOP_CALLER);
    }
    CHECK(tern_session_save_bytes(session, no_text, NULL, &err) == TERN_ERR_CANCELLED);
}

int main(int argc, char **argv) {
    tern_error err = ZEROS;
    tern_model *model = NULL;
    tern_session *session = NULL;
    if (argc < 2) return 2;
    for (int i = 0; i < N_LONG; i++) ids[i] = 3 + i * 7 % 290;
    NEED(tern_model_open(&model, argv[1], NULL, &err), err);
    NEED(tern_session_open(&session, model, NULL, &err), err);
    stop_from_a_thread(model);
    stop_by_a_request(session, argv[1]);
    stop_in_callbacks(session, argv[1]);
    tern_session_close(session);
    tern_model_close(model);
    return n_failed != 0;
}
