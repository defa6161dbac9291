// Exchanges without sockets: requests as bytes, answers as bytes, and what is left of them when
// memory ends anywhere.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "apps/serve/request/generation_request.h"
#include "apps/serve/request/away.h"
#include "base/json/json_write.h"
#include "base/alloc.h"
#include "tests/serve/patience.h"
#include "tests/support/harness.h"

typedef struct fixture {
    server server;
    serve_desc desc;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool is_woken;
    // The answer.
    char bytes[1 << 16];
    size_t n;
    bool is_over;
} fixture;

static void wake(void *user) {
    fixture *d = user;
    pthread_mutex_lock(&d->lock);
    d->is_woken = true;
    pthread_cond_signal(&d->woken);
    pthread_mutex_unlock(&d->lock);
}

static bool open_fixture(fixture *d, tern_pooling pooling) {
    static const serve_model model = {.path = "models/stories.gguf"};
    tern_error err = {0};
    *d = (fixture){0};
    pthread_mutex_init(&d->lock, NULL);
    patient_condition(&d->woken);
    d->desc = (serve_desc){.models = &model,
                           .n_models = 1,
                           .opening = {.n_threads = 1, .pooling = pooling},
                           .keep_seconds = -1,
                           .host = "127.0.0.1",
                           .session = {.n_context = 4096},
                           .n_parallel = 2,
                           .n_queue = 2,
                           .cache_memory = 64 << 20,
                           .is_silent = true};
    d->server = (server){.desc = &d->desc};
    bool ok = !tasks_open(&d->server.tasks, 1, 4, wake, d, &err);
    ok = ok && !tasks_open(&d->server.readers, 1, 4, wake, d, &err);
    ok = ok && !tasks_open(&d->server.managers, 1, 4, wake, d, &err);
    ok = ok && !registry_open(&d->server.registry, &d->desc, wake, d, &err);
    CHECK_MSG(ok, "%s", err.message);
    return ok;
}

static void close_fixture(fixture *d) {
    tasks_close(d->server.tasks);
    tasks_close(d->server.readers);
    tasks_close(d->server.managers);
    registry_close(d->server.registry);
    share_free(&d->server.inflight);
    pthread_cond_destroy(&d->woken);
    pthread_mutex_destroy(&d->lock);
}

static void sink_write(void *to, const char *bytes, size_t n) {
    fixture *d = to;
    CHECK(!d->is_over && d->n + n < sizeof d->bytes);
    if (d->n + n >= sizeof d->bytes) return;
    memcpy(d->bytes + d->n, bytes, n);
    d->n += n;
    d->bytes[d->n] = 0;
}
static void sink_end(void *to) {
    fixture *d = to;
    CHECK(!d->is_over); // once
    d->is_over = true;
}
static const sink fixture_sink = {.write = sink_write, .end = sink_end};

// Takes events until `over`, or until the scheduler is idle.
static bool take_until(fixture *d, const bool *over) {
    const struct timespec end = time_in(600); // however slow the machine is
    for (;;) {
        scheduler_view v;
        server_take_events(&d->server);
        scheduler_look(d->server.registry->list[0]->scheduler, &v);
        if (over ? *over : v.n_running + v.n_waiting == 0) break;
        pthread_mutex_lock(&d->lock);
        int late = 0;
        const struct timespec soon = time_in(0.005); // its view of what runs changes without events
        while (!d->is_woken && !late) late = pthread_cond_timedwait(&d->woken, &d->lock, &soon);
        d->is_woken = false;
        pthread_mutex_unlock(&d->lock);
        if (soon.tv_sec > end.tv_sec) return false;
    }
    server_take_events(&d->server);
    return true;
}

// Sends a request; the answer's status, 0: it is broken. fail_at: of the allocations from the
// request's bytes on.
static int ask_for(fixture *d, const char *path, const char *body, uint64_t fail_at,
                   uint64_t *n_allocs) {
    char head[400];
    size_t used;
    http_reader reader = {.limits = {.head_bytes = 4096, .n_fields = 50, .body_bytes = 1 << 20}};
    request *req = tern_alloc(TERN_MEM_SESSION, sizeof *req);
    snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n",
             body ? "POST" : "GET", path, body ? strlen(body) : 0);
    http_progress p = http_reader_feed(&reader, head, strlen(head), &used);
    if (body) p = http_reader_feed(&reader, body, strlen(body), &used);
    CHECK(p == HTTP_READY);
    *req = (request){.server = &d->server, .sink = &fixture_sink, .to = d, .http = &reader.request};
    d->n = 0;
    d->is_over = false;
    uint64_t before = tern_mem_get_stats().n_allocs;
    tern_mem_fail_at(fail_at);
    request_begin(req);
    bool ok = take_until(d, &d->is_over);
    tern_mem_fail_at(0);
    *n_allocs = tern_mem_get_stats().n_allocs - before;
    CHECK_MSG(ok, "%s: no answer in ten minutes", path);
    int status = req->is_broken ? 0 : d->n > 12 ? atoi(d->bytes + 9) : -1;
    request_free(req);
    CHECK(take_until(d, NULL));
    http_reader_free(&reader);
    return status;
}

typedef struct asked {
    const char *path, *body;
    bool has_times; // or counts: its length differs from answer to answer
} asked;

static const asked asks[] = {
    {"/health", NULL, false},
    {"/v1/models", NULL, false},
    {"/metrics", NULL, true},
    {"/tokenize", "{\"content\":\"a fox\",\"with_pieces\":true}", false},
    {"/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"a fox\"}]}", false},
    {"/v1/completions",
     "{\"prompt\":[\"a\",[5,6]],\"max_tokens\":3,\"n\":2,\"logprobs\":2,\"stop\":"
     "[\"x\",\"zz\"],\"logit_bias\":{\"7\":-100},\"echo\":false,\"seed\":1}",
     false},
    {"/v1/chat/completions",
     "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"developer\",\"content\":"
     "\"b\"},"
     "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a fox\"}]}],\"max_tokens\":3,"
     "\"stream\":true,\"logprobs\":true,\"seed\":1,\"top_logprobs\":1,\"stream_options\":{"
     "\"include_usage\":true}}",
     false},
    {"/v1/messages",
     "{\"model\":\"stories\",\"system\":[{\"type\":\"text\",\"text\":\"a\"}],\"messages\":"
     "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"},"
     "{\"role\":\"assistant\",\"content\":\"A\"}],\"temperature\":0,\"max_tokens\":3}",
     false},
    {"/api/generate", "{\"prompt\":\"a fox\",\"options\":{\"num_predict\":3}}", true},
    {"/completion", "{\"prompt\":[\"a\",5],\"n_predict\":3,\"n_probs\":1,\"return_tokens\":true}",
     true},
    {"/v1/responses",
     "{\"instructions\":\"a\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
     "\"text\":\"a fox\"}]}],\"max_output_tokens\":3,\"stream\":true,\"seed\":1,\"top_logprobs\":1,"
     "\"metadata\":{\"a\":\"b\"}}",
     false},
    {"/v1/models/none", NULL, false},
};

// What is read on a thread of its own, filled by fill_long.
static char long_content[24000], long_chat[24000], long_prompts[24000];
static const asked longs[] = {
    {"/tokenize", long_content, false},
    {"/v1/messages/count_tokens", long_chat, false},
    {"/v1/completions", long_prompts, false}, // the last of its prompts is none
};

static void fill_long(void) {
    tern_strbuf words = {0};
    for (int i = 0; i < 2000; i++) tern_strbuf_puts(&words, " together");
    snprintf(long_content, sizeof long_content, "{\"content\":\"%s\"}", words.ptr);
    snprintf(long_chat, sizeof long_chat,
             "{\"model\":\"stories\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":"
             "\"%s\"},{\"role\":\"assistant\",\"content\":\"Well\"}]}",
             words.ptr);
    snprintf(long_prompts, sizeof long_prompts, "{\"prompt\":[\"%s\",\"a fox\",[-1]]}", words.ptr);
    tern_strbuf_free(&words);
}

static const asked embeds[] = {
    {"/v1/embeddings",
     "{\"input\":[\"a fox\",[5,6]],\"encoding_format\":\"base64\",\"dimensions\":9}", false},
    {"/embedding", "{\"content\":\"a\"}", false},
    {"/api/embed", "{\"input\":\"a\"}", true},
    {"/v1/models/none", NULL, false},
};

// Each allocation of each request fails in turn; the last one is refused.
static void fail_in_turn(fixture *d, const asked *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const asked *a = &list[i];
        uint64_t n_allocs, ignored;
        int expected = ask_for(d, a->path, a->body, 0, &n_allocs);
        size_t n_whole = d->n;
        CHECK_MSG(expected / 100 == (i + 1 == n ? 4 : 2), "%s: %s", a->path, d->bytes);
        size_t step = test_is_long() || n_allocs < 40 ? 1 : 1 + n_allocs / 40;
        for (uint64_t at = 1; at <= n_allocs; at += step) {
            int status = ask_for(d, a->path, a->body, at, &ignored);
            bool says_so = status == 0 || status == 503 || strstr(d->bytes, "out of memory");
            // What was cached has a digit more or less.
            bool is_whole = status == expected &&
                            (a->has_times || (d->n <= n_whole + 2 && d->n + 2 >= n_whole));
            CHECK_MSG(says_so || is_whole, "%s: %d, %zu of %zu bytes, when allocation %d fails: %s",
                      a->path, status, d->n, n_whole, (int)at, d->bytes);
        }
    }
}

// The engine's allocations are among those that fail. Seen to fail: with bytes that are sent
// although some were lost, with a path that is not freed.
TEST(serve_answers_survive_failing_allocations) {
    static fixture d;
    size_t before = tern_mem_get_stats().total_now; // other tests' device
    if (!open_fixture(&d, TERN_POOLING_NONE)) return;
    fail_in_turn(&d, asks, sizeof asks / sizeof *asks);
    close_fixture(&d);
    CHECK_MSG(tern_mem_get_stats().total_now == before, "%zd bytes are left",
              (ssize_t)(tern_mem_get_stats().total_now - before));
}

// Seen to fail: with the first of two texts kept when there is no memory for the second; with an
// ask kept when the handler is called again.
TEST(serve_long_texts_survive_failing_allocations) {
    static fixture d;
    size_t before = tern_mem_get_stats().total_now;
    if (!open_fixture(&d, TERN_POOLING_NONE)) return;
    fill_long();
    fail_in_turn(&d, longs, sizeof longs / sizeof *longs);
    close_fixture(&d);
    CHECK_MSG(tern_mem_get_stats().total_now == before, "%zd bytes are left",
              (ssize_t)(tern_mem_get_stats().total_now - before));
}

// Seen to fail: with the texts of a request that is refused kept.
TEST(serve_vectors_survive_failing_allocations) {
    static fixture d;
    size_t before = tern_mem_get_stats().total_now;
    if (!open_fixture(&d, TERN_POOLING_MEAN)) return;
    fail_in_turn(&d, embeds, sizeof embeds / sizeof *embeds);
    close_fixture(&d);
    CHECK_MSG(tern_mem_get_stats().total_now == before, "%zd bytes are left",
              (ssize_t)(tern_mem_get_stats().total_now - before));
}

#define CHAT "\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

// ---- Before the first model is open ------------------------------------------------------------

// In llama-server's words, which programs wait for. Seen to fail: with 200, with a prompt that is
// answered, with the list of models refused.
TEST(serve_says_that_its_model_is_loading) {
    static fixture d;
    static const struct {
        const char *path, *body, *words;
        int status;
    } all[] = {
        {"/health", NULL,
         "{\"error\":{\"code\":503,\"message\":\"Loading model\",\"type\":\"unavailable_error\"}}",
         503},
        {"/v1/health", NULL, "Loading model", 503},
        {"/props", NULL, "Loading model", 503},
        {"/completion", "{\"prompt\":\"a\"}", "unavailable_error", 503},
        {"/v1/chat/completions", "{" CHAT "}", "\"message\":\"Loading model\"", 503},
        {"/v1/messages", "{" CHAT "}", "Loading model", 503},
        {"/api/chat", "{" CHAT "}", "{\"error\":\"Loading model\"}", 503},
        {"/v1/models", NULL, "stories", 200},
        {"/api/tags", NULL, "stories", 200},
        {"/nowhere", NULL, "nowhere", 404},
    };
    uint64_t ignored;
    if (!open_fixture(&d, TERN_POOLING_NONE)) return;
    d.server.is_loading = true;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int status = ask_for(&d, all[i].path, all[i].body, 0, &ignored);
        CHECK_MSG(status == all[i].status && strstr(d.bytes, all[i].words), "%s: %s", all[i].path,
                  d.bytes);
    }
    d.server.is_loading = false;
    CHECK(ask_for(&d, "/health", NULL, 0, &ignored) == 200);
    CHECK(ask_for(&d, "/v1/chat/completions", "{" CHAT "}", 0, &ignored) == 200);
    close_fixture(&d);
}

// ---- What is long ------------------------------------------------------------------------------

// {"NAME": [n times ITEM]}, with more members behind it.
static char *repeat(const char *before, const char *item, size_t n, const char *after) {
    tern_strbuf out = {0};
    tern_strbuf_puts(&out, before);
    for (size_t i = 0; i < n; i++) tern_strbuf_printf(&out, "%s%s", i ? "," : "", item);
    tern_strbuf_puts(&out, after);
    return out.ptr;
}

static char *many_members(const char *before, size_t n, const char *after) {
    tern_strbuf out = {0};
    tern_strbuf_puts(&out, before);
    for (size_t i = 0; i < n; i++) tern_strbuf_printf(&out, "%s\"%zu\":1", i ? "," : "", i);
    tern_strbuf_puts(&out, after);
    return out.ptr;
}

// However long a request is, the loop's thread handles no more of it, nor of its answer, than is
// short. It counts bytes, and no time. Seen to fail: with a handler that is called on the loop's
// thread, with an answer written there.
TEST(serve_loop_handles_nothing_long) {
    static fixture d;
    struct {
        const char *path;
        char *body;
        int status;
    } all[] = {
        {"/v1/chat/completions", many_members("{" CHAT ",\"logit_bias\":{", 4096, "}}"), 200},
        {"/v1/chat/completions", many_members("{" CHAT ",\"x\":1,", 20000, "}"), 200},
        {"/v1/chat/completions", many_members("{" CHAT ",\"metadata\":{", 20000, "}}"), 200},
        {"/v1/responses",
         many_members("{\"input\":\"a\",\"max_output_tokens\":2,\"x\":{", 20000, "}}"), 200},
        {"/v1/messages", many_members("{" CHAT ",\"metadata\":{", 20000, "}}"), 200},
        {"/api/chat", many_members("{" CHAT ",\"stream\":false,\"x\":{", 20000, "}}"), 200},
        {"/completion", many_members("{\"prompt\":\"a\",\"n_predict\":2,\"x\":{", 20000, "}}"),
         200},
        {"/detokenize", repeat("{\"tokens\":[", "67", 30000, "]}"), 200},
        {"/tokenize", repeat("{\"x\":[", "1", 30000, "],\"content\":\"a\",\"with_pieces\":true}"),
         200},
        {"/apply-template", many_members("{" CHAT ",\"x\":{", 20000, "}}"), 200},
        {"/v1/completions", repeat("{\"max_tokens\":2,\"prompt\":[", "5", 60000, "]}"), 400},
        {"/v1/embeddings", repeat("{\"input\":[", "\"a\"", 20000, "]}"), 400},
        {"/v1/rerank", repeat("{\"query\":\"a\",\"documents\":[", "\"a\"", 20000, "]}"), 400},
        {"/api/show", many_members("{\"model\":\"none\",\"x\":{", 20000, "}}"), 404},
    };
    if (!open_fixture(&d, TERN_POOLING_NONE)) return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uint64_t ignored;
        d.server.n_loop_bytes = 0;
        int status = ask_for(&d, all[i].path, all[i].body, 0, &ignored);
        CHECK_MSG(status == all[i].status, "%s: %.300s", all[i].path, d.bytes);
        CHECK_MSG(d.server.n_loop_bytes <= SHORT_BYTES, "%s: %zu bytes on the loop's thread",
                  all[i].path, d.server.n_loop_bytes);
        tern_free(all[i].body);
    }
    close_fixture(&d);
}
