// The server's readers of requests. The first byte says of which route, the rest is the body. The
// server is stopping: whatever is to be computed is refused when all of it has been read, with what
// was read still there to be looked at.
#include <math.h>
#include <string.h>
#include "apps/serve/request/generation_request.h"
#include "base/alloc.h"
#include "fuzz/support.h"

static const char *const paths[] = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/generate",
    "/api/chat",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/completion",
    "/embedding",
    "/v1/rerank",
    "/tokenize",
    "/detokenize",
    "/apply-template",
};
static const char *const aliases[] = {"gpt-4=stories"};
static const serve_model models[] = {{"models/stories.gguf", NULL},
                                     {"tests/oracles/bert/model.gguf", "bert"},
                                     {"tests/oracles/bert_ranker", NULL}};
static const serve_desc desc = {.models = models,
                                .n_models = sizeof models / sizeof *models,
                                .aliases = {aliases, 1},
                                .opening = {.n_threads = 1},
                                .keep_seconds = -1,
                                .session = {.n_context = 256},
                                .host = "127.0.0.1",
                                .n_parallel = 2,
                                .n_queue = 6,
                                .is_silent = true};
static server the_server;

static void wake(void *user) { (void)user; }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    the_server = (server){.desc = &desc, .stopping = true};
    fuzz_require(tasks_open(&the_server.tasks, 1, 1, wake, NULL, NULL) == TERN_OK);
    fuzz_require(tasks_open(&the_server.readers, 1, 1, wake, NULL, NULL) == TERN_OK);
    fuzz_require(registry_open(&the_server.registry, &desc, wake, NULL, NULL) == TERN_OK);
    for (size_t i = 1; i < the_server.registry->n; i++)
        fuzz_require(served_open_now(the_server.registry->list[i], NULL) == TERN_OK);
    return 0;
}

// ---- The answer --------------------------------------------------------------------------------

typedef struct answer {
    tern_strbuf bytes;
    int n_ends;
} answer;

static void sink_write(void *to, const char *bytes, size_t n) {
    answer *a = to;
    fuzz_require(a->n_ends == 0);
    tern_strbuf_append(&a->bytes, bytes, n);
}
static void sink_end(void *to) { ((answer *)to)->n_ends++; }

static void check_answer(const request *req, const answer *a) {
    if (a->bytes.failed || req->is_broken) return; // memory is out
    const char *body = a->bytes.ptr ? strstr(a->bytes.ptr, "\r\n\r\n") : NULL;
    fuzz_require(body && a->n_ends == 1);
    fuzz_require(req->status == 200 ||
                 (req->status >= 400 && req->status <= 503 && req->status != 500));
    body += 4;
    fuzz_require(fuzz_is_json(body, a->bytes.len - (size_t)(body - a->bytes.ptr)));
}

// What would be computed.
static void check_ask(const request *req, const generation *a) {
    const tern_sampling *s = &a->sampling;
    fuzz_require(a->n >= 1 && a->n <= 128 && a->n_prompts >= 1 && a->model);
    fuzz_require(a->n_prompts <= desc.n_queue + desc.n_parallel);
    fuzz_require(isfinite(s->temperature) && s->top_p <= 1 && s->min_p <= 1 && s->top_k >= -1 &&
                 isfinite(s->repeat_penalty) && fabsf(s->frequency_penalty) <= 2 &&
                 fabsf(s->presence_penalty) <= 2);
    fuzz_require(a->params.max_tokens >= 0 && a->params.n_top_logprobs <= TERN_TOP_LOGPROBS_MAX);
    for (size_t i = 0; i < a->params.n_stops; i++) fuzz_require(a->stops[i][0] != 0);
    for (size_t i = 0; i < a->params.n_biases; i++)
        fuzz_require(a->biases[i].id >= 0 && a->biases[i].id < req->model->info.n_vocab);
    for (size_t i = 0; i < a->n_prompts; i++) {
        const generation_prompt *p = &a->prompts[i];
        fuzz_require(p->n_ids > 0 && p->n_ids < (size_t)req->model->n_context);
        for (size_t k = 0; k < p->n_ids; k++)
            fuzz_require(p->ids[k] >= 0 && p->ids[k] < req->model->info.n_vocab);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const sink to_answer = {.write = sink_write, .end = sink_end};
    answer a = {.n_ends = 0};
    if (n == 0) return 0;
    const char *path = paths[bytes[0] % (sizeof paths / sizeof *paths)];
    const http_request http = {.method = TERN_STR("POST"),
                               .path = {path, strlen(path)},
                               .host = TERN_STR("localhost"),
                               .minor = 1,
                               .keeps_alive = true,
                               .body = {(const char *)bytes + 1, n - 1}};
    request *req = tern_alloc(TERN_MEM_SESSION, sizeof *req);
    if (!req) return 0;
    *req = (request){.server = &the_server, .sink = &to_answer, .to = &a, .http = &http};
    request_begin(req);
    check_answer(req, &a);
    bool is_read = req->status == 503 && strstr(tern_strbuf_text(&a.bytes), "is stopping");
    if (is_read && req->generation && req->generation->writer) check_ask(req, req->generation);
    for (size_t i = 0; i < the_server.registry->n; i++)
        registry_keep(the_server.registry->list[i], -1);
    request_free(req);
    for (size_t i = 0; i < the_server.registry->n; i++)
        fuzz_require(the_server.registry->list[i]->n_users == 0);
    tern_strbuf_free(&a.bytes);
    return 0;
}
