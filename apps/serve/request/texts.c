#include "apps/serve/request/texts.h"

#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"

#define N_AT_ONCE 16   // texts computed between two checks for other work
#define N_MOST    4096 // texts of a request

// ---- What is asked for -------------------------------------------------------------------------

texts *texts_new(request *req, const char *param, void (*reply)(request *req, const texts *t),
                 api_error *e) {
    texts *t = tern_alloc(TERN_MEM_SESSION, sizeof *t);
    if (!t) {
        api_fail_memory(e);
        return NULL;
    }
    t->req = req;
    t->model = req->model;
    t->param = param;
    t->reply = reply;
    t->began = tern_seconds();
    return t;
}

void texts_free(texts *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n; i++) {
        tern_free((char *)t->list[i].text);
        tern_free((int32_t *)t->list[i].ids);
    }
    for (size_t i = 0; i < t->n_queries; i++) tern_free((char *)t->queries[i].text);
    tern_free(t->queries);
    tern_free(t->list);
    tern_free(t->query);
    tern_free(t->prompt);
    tern_free(t->numbers);
    tern_free(t->n_tokens);
    tern_free(t->was_cut);
    tern_free(t);
}

static bool add(texts *t, tern_embed_text text, api_error *e) {
    if (t->n == N_MOST)
        api_fail(e, 400, NULL, t->param, "'%s' has more than %d texts", t->param, N_MOST);
    else if ((!text.text && !text.ids) ||
             tern_array_reserve(TERN_MEM_SESSION, &t->list, &t->capacity, t->n, 1) != 0)
        api_fail_memory(e);
    if (e->status) {
        tern_free((char *)text.text);
        tern_free((int32_t *)text.ids);
        return false;
    }
    t->list[t->n++] = text;
    return true;
}

bool texts_add_text(texts *t, tern_str text, api_error *e) {
    char *copy = tern_strndup(TERN_MEM_SESSION, text.ptr ? text.ptr : "", text.len);
    return add(t, (tern_embed_text){.text = copy, .n_bytes = text.len}, e);
}

static void add_ids(texts *t, const fields *f, const tern_json *array) {
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, array->n, sizeof *ids);
    size_t n = 0;
    for (const tern_json *item = tern_json_first(f->doc, array); item && ids;
         item = tern_json_next(f->doc, array, item)) {
        int64_t id = tern_json_int(item, -1);
        if (id < 0 || id >= t->model->info.n_vocab) {
            api_fail(f->error, 400, NULL, t->param, "'%s' has a token that is not in 0..%d",
                     t->param, (int)t->model->info.n_vocab - 1);
            tern_free(ids);
            return;
        }
        ids[n++] = (int32_t)id;
    }
    add(t, (tern_embed_text){.ids = ids, .n_ids = n}, f->error);
}

void texts_add_json(texts *t, const fields *f, const tern_json *item) {
    bool has_any = item && item->n > 0;
    if (tern_json_is(item, TERN_JSON_STRING) && has_any)
        texts_add_text(t, tern_json_str(item), f->error);
    else if (tern_json_is(item, TERN_JSON_ARRAY) && has_any)
        add_ids(t, f, item);
    else
        api_fail(f->error, 400, NULL, t->param,
                 "'%s' must be a text or tokens, or a list of these, and none of them empty",
                 t->param);
}

void texts_add_list(texts *t, const fields *f, const tern_json *value) {
    const tern_json *first = tern_json_first(f->doc, value);
    bool is_list = tern_json_is(value, TERN_JSON_ARRAY) && first;
    if (!is_list || tern_json_is(first, TERN_JSON_NUMBER)) {
        texts_add_json(t, f, value);
        return;
    }
    for (const tern_json *item = first; item && !f->error->status;
         item = tern_json_next(f->doc, value, item))
        texts_add_json(t, f, item);
}

// ---- Computing, away ---------------------------------------------------------------------------

// Between two pieces: lets a step of running answers and other clients go first.
static bool go_on(void *user, const char *phase, double fraction) {
    texts *t = user;
    (void)phase;
    (void)fraction;
    if (request_is_cancelled(t->req)) return false;
    scheduler_wait_step(t->model->scheduler);
    return request_pause(t->req);
}

static tern_status compute(texts *t, size_t first, size_t n) {
    const served *s = t->model;
    scheduler_view v;
    scheduler_look(s->scheduler, &v);
    int32_t n_batch = s->info.n_batch, piece = n_batch / 8 > 0 ? n_batch / 8 : 1;
    int32_t n_step = v.n_running ? piece : n_batch;
    int64_t *n_tokens = t->n_tokens + first;
    float *out = t->numbers + first * t->width;
    const tern_embed_text *own = t->queries ? &t->queries[first] : NULL;
    const tern_rerank_params rank = {.query = own ? own->text : t->query,
                                     .n_bytes = own ? own->n_bytes : t->n_query,
                                     .n_step = n_step,
                                     .n_tokens = n_tokens,
                                     .on_progress = go_on,
                                     .user = t};
    const tern_embed_params embed = {.prompt = t->prompt,
                                     .n_dims = t->n_dims,
                                     .n_step = n_step,
                                     .n_tokens = n_tokens,
                                     .was_cut = t->was_cut + first,
                                     .on_progress = go_on,
                                     .user = t};
    return t->ranks ? tern_rerank(s->model, t->list + first, n, &rank, out, &t->err)
                    : tern_embed(s->model, t->list + first, n, &embed, out, &t->err);
}

static void note_too_long(texts *t, size_t i) {
    const tern_embed_text *text = &t->list[i];
    tern_ids count = {.n = text->n_ids};
    if (text->text)
        tern_tokenize(t->model->model, text->text, text->n_bytes, TERN_TOKENIZE_BOS, &count, NULL);
    t->too_long = i + 1;
    t->n_too_long = count.n;
}

static void compute_all(texts *t) {
    for (size_t i = 0, n; i < t->n && t->too_long == 0; i += n) {
        n = t->n - i < N_AT_ONCE ? t->n - i : N_AT_ONCE;
        if (t->queries) n = 1;
        if (compute(t, i, n) != TERN_OK) return;
        for (size_t k = i; k < i + n && !t->cuts && t->too_long == 0; k++)
            if (t->was_cut[k]) note_too_long(t, k);
    }
}

// ---- The answer --------------------------------------------------------------------------------

size_t texts_count_tokens(const texts *t) {
    size_t sum = 0;
    for (size_t i = 0; i < t->n; i++) sum += (size_t)t->n_tokens[i];
    return sum;
}

static void answer(request *req, texts *t) {
    api_error e = {0};
    tern_embedding_info info;
    tern_embedding_get_info(t->model->model, &info);
    if (t->err.status == TERN_ERR_UNSUPPORTED && req->error_format->unsupported)
        api_fail(&e, req->error_format->unsupported, NULL, NULL, "%s", t->err.message);
    else if (t->err.status != TERN_OK)
        api_fail_status(&e, &t->err, t->param);
    else if (t->too_long)
        api_fail(&e, 400, "context_length_exceeded", t->param,
                 "text %zu of '%s' has %zu tokens; the model takes at most %d", t->too_long,
                 t->param, t->n_too_long, (int)info.max_length);
    if (e.status) {
        reply_error(req, &e);
        return;
    }
    req->n_uncounted_tokens = texts_count_tokens(t);
    t->reply(req, t);
}

static void work(request *req) {
    compute_all(req->texts);
    if (!request_is_cancelled(req)) answer(req, req->texts);
}

// The numbers that the model gives for each text, and memory for them.
static void make_room(texts *t, api_error *e) {
    tern_embedding_info info;
    tern_embedding_get_info(t->model->model, &info);
    t->width = t->ranks ? 1 : (size_t)(t->n_dims ? t->n_dims : info.n_dims);
    t->numbers = tern_alloc_array(TERN_MEM_SESSION, t->n * t->width, sizeof *t->numbers);
    t->n_tokens = tern_alloc_array(TERN_MEM_SESSION, t->n, sizeof *t->n_tokens);
    t->was_cut = tern_alloc_array(TERN_MEM_SESSION, t->n, sizeof *t->was_cut);
    if (!t->numbers || !t->n_tokens || !t->was_cut) api_fail_memory(e);
}

static void begin(request *req) { request_do_away(req, req->server->tasks, false, work, NULL); }

void texts_begin(request *req, texts *t, api_error *e) {
    if (!e->status) make_room(t, e);
    if (!e->status && req->server->stopping)
        api_fail(e, 503, "stopping", NULL, "the server is stopping");
    if (!e->status) {
        req->texts = t;
        request_then(req, begin);
        return;
    }
    texts_free(t);
    reply_error(req, e);
}
