// The tools of a memory (tern_memory.h). They run on the threads of tasks, which own the stores.
// The embedding model is one of the server's and stays open with the store; the reranker is also
// one of the server's and is opened for recall.
#include <math.h>
#include <string.h>
#include "apps/serve/request/away.h"
#include "apps/serve/api/mcp/mcp_server.h"
#include "base/alloc.h"
#include "base/os/os_thread.h"
#include "tern_memory.h"

#define HITS_MAX  100
#define WHERE_MAX 16
#define N_STORES  2

typedef struct memory_store {
    tern_memory_store *store; // NULL: not opened yet
    bool is_used;             // under the lock
} memory_store;

struct mcp_memory {
    served *embedder; // NULL: search by words alone
    served *reranker; // NULL: none
    bool holds;       // the embedder is open, and stays so
    // One store for each computing task, so that one client's long remember does not delay others'
    // recall.
    tasks *tasks;
    tern_mutex lock;
    memory_store stores[N_STORES];
};

typedef struct memory_job memory_job;
struct memory_job {
    task task;
    const serve_desc *desc;
    mcp_memory *memory;
    tern_memory_store *store; // while it runs
    tern_strbuf text;         // a copy of the arguments: the request may have been freed
    void (*run)(memory_job *j, const fields *f);
    served *reranker; // open until the job is done; NULL: none is needed
    // The result: text for a model, and JSON for a program.
    tern_strbuf words, value;
    tern_error err;
    api_error error;
};

// ---- Arguments ---------------------------------------------------------------------------------

// Reads a text as a C string.
static char *copy_text(const fields *f, const char *name) {
    tern_str s = field_text(f, name);
    char *copy = NULL;
    if (!s.ptr) return NULL;
    if (memchr(s.ptr, 0, s.len))
        field_fail(f, name, "a string without zero bytes");
    else if (!(copy = tern_strndup(TERN_MEM_SESSION, s.ptr, s.len)))
        api_fail_memory(f->error);
    return copy;
}

// A value as filters compare it: a string, or the JSON text of a number or the like.
static char *copy_value(const fields *f, const char *name) {
    const tern_json *v = field_any(f, name);
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    if (!v) field_fail(f, name, "given");
    if (!v || tern_json_is(v, TERN_JSON_STRING)) return copy_text(f, name);
    tern_json_put_value(&w, NULL, f->doc, v);
    if (text.failed) api_fail_memory(f->error);
    return text.ptr;
}

// The index of a word in `words`, which ends with NULL; 0 if the field is absent.
static int read_choice(const fields *f, const char *name, const char *const *words,
                       const char *wanted) {
    tern_str s = field_text(f, name);
    if (!s.ptr) return 0;
    for (int i = 0; words[i]; i++)
        if (tern_str_is(s, words[i])) return i;
    field_fail(f, name, wanted);
    return 0;
}

static tern_memory_filter read_filter(const fields *f) {
    static const char *const words[] = {"=", "!=", "<", "<=", ">", ">=", "begins", NULL};
    tern_memory_filter one = {.key = copy_text(f, "key"), .value = copy_value(f, "value")};
    one.compare =
        (tern_memory_compare)read_choice(f, "compare", words, "=, !=, <, <=, >, >= or begins");
    if (!one.key) field_fail(f, "key", "given");
    return one;
}

static size_t read_where(const fields *f, tern_memory_filter *where) {
    const tern_json *list = field_array(f, "where");
    size_t n = 0;
    if (list && list->n > WHERE_MAX) field_fail(f, "where", "16 conditions at most");
    for (const tern_json *item = tern_json_first(f->doc, list); item && !f->error->status;
         item = tern_json_next(f->doc, list, item)) {
        const fields inner = {f->doc, item, "where.", f->error};
        if (!tern_json_is(item, TERN_JSON_OBJECT))
            field_fail(f, "where", "an array of objects");
        else
            where[n++] = read_filter(&inner);
    }
    return n;
}

static void free_where(tern_memory_filter *where, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tern_free((char *)where[i].key);
        tern_free((char *)where[i].value);
    }
}

// ---- remember ----------------------------------------------------------------------------------

static bool go_on(void *user, const char *phase, double fraction) {
    memory_job *j = user;
    (void)phase;
    (void)fraction;
    if (j->memory->embedder) scheduler_wait_step(j->memory->embedder->scheduler);
    return !tern_cancel_is_requested(&j->task.cancel);
}

static void add(memory_job *j, const tern_memory_item *item, bool replace) {
    tern_memory_added added = {0};
    tern_json_writer w = {.out = &j->value};
    const tern_memory_add_params params = {.replace = replace, .on_progress = go_on, .user = j};
    if (tern_memory_add(j->store, item, &params, &added, &j->err) != TERN_OK) return;
    tern_json_open(&w, NULL, '{');
    tern_json_put_int(&w, "record", added.id);
    tern_json_put_int(&w, "passages", (int64_t)added.n_chunks);
    tern_json_put_int(&w, "blacked_out", (int64_t)added.n_redacted);
    tern_json_put_bool(&w, "was_there", added.was_there);
    tern_json_close(&w, '}');
    tern_strbuf_printf(&j->words,
                       added.was_there ? "That is known already, as record %lld."
                                       : "Remembered as record %lld.",
                       (long long)added.id);
    if (added.n_redacted)
        tern_strbuf_printf(&j->words,
                           added.n_redacted == 1 ? " %zu secret was blacked out."
                                                 : " %zu secrets were blacked out.",
                           added.n_redacted);
}

static void remember(memory_job *j, const fields *f) {
    static const char *const formats[] = {"auto", "text", "markdown", "code", NULL};
    tern_str text = field_text(f, "text");
    fields metadata = fields_within(f, "metadata", "metadata.");
    bool replace = field_bool(f, "replace", false);
    tern_strbuf about = {0};
    tern_json_writer w = {.out = &about};
    tern_memory_item item = {.text = text.ptr, .n_bytes = text.len};
    item.format =
        (tern_memory_format)read_choice(f, "format", formats, "auto, text, markdown or code");
    if (text.len == 0) field_fail(f, "text", "given");
    item.source = copy_text(f, "source");
    if (replace && !item.source) field_fail(f, "source", "given with 'replace'");
    if (metadata.object) tern_json_put_value(&w, NULL, f->doc, metadata.object);
    if (about.failed) api_fail_memory(f->error);
    item.metadata = about.ptr;
    if (!f->error->status) add(j, &item, replace);
    tern_free((char *)item.source);
    tern_strbuf_free(&about);
}

// ---- recall ------------------------------------------------------------------------------------

static void put_hit(tern_json_writer *w, const tern_memory_hit *h) {
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "record", h->record);
    tern_json_put_bytes(w, "text", h->text, h->n_bytes);
    tern_json_put_text(w, "source", h->source);
    tern_json_put_text(w, "heading", h->heading);
    tern_json_put_int(w, "line", h->first_line);
    tern_json_put_raw(w, "metadata", h->metadata);
    tern_json_put_int(w, "created", h->created);
    tern_json_put_float(w, "score", h->score);
    if (!isnan(h->similarity)) tern_json_put_float(w, "similarity", h->similarity);
    if (!isnan(h->relevance)) tern_json_put_float(w, "relevance", h->relevance);
    tern_json_close(w, '}');
}

static void put_hits(memory_job *j, const tern_memory_hits *hits) {
    tern_json_writer w = {.out = &j->value};
    tern_json_open(&w, NULL, '{');
    tern_json_open(&w, "passages", '[');
    for (size_t i = 0; i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        put_hit(&w, h);
        tern_strbuf_printf(&j->words, "%s[record %lld%s%s]\n", i ? "\n\n" : "",
                           (long long)h->record, *h->source ? ", " : "", h->source);
        tern_strbuf_append(&j->words, h->text, h->n_bytes);
    }
    if (hits->n == 0) tern_strbuf_puts(&j->words, "Nothing that fits is remembered.");
    tern_json_close(&w, ']');
    tern_json_put_int(&w, "tokens", hits->n_tokens);
    tern_json_close(&w, '}');
}

static void recall(memory_job *j, const fields *f) {
    tern_memory_filter where[WHERE_MAX];
    tern_memory_hits *hits = NULL;
    tern_str text = field_text(f, "query");
    tern_memory_query query = {.text = text.ptr, .n_bytes = text.len, .filters = where};
    query.n_most = (int32_t)field_int(f, "limit", 0, 1, HITS_MAX);
    query.max_tokens = (int32_t)field_int(f, "max_tokens", 0, 1, INT32_MAX);
    query.reranker = j->reranker ? j->reranker->model : NULL;
    query.n_candidates = j->desc->n_candidates;
    if (text.len == 0) field_fail(f, "query", "given");
    query.n_filters = read_where(f, where);
    if (!f->error->status && tern_memory_recall(j->store, &query, &hits, &j->err) == TERN_OK)
        put_hits(j, hits);
    tern_memory_hits_free(hits);
    free_where(where, query.n_filters);
}

// ---- forget ------------------------------------------------------------------------------------

static void forget(memory_job *j, const fields *f) {
    tern_memory_filter where[WHERE_MAX];
    tern_memory_store *store = j->store;
    int64_t n_records = 1, id = field_int(f, "record", 0, 1, INT64_MAX);
    size_t n = read_where(f, where);
    if ((id == 0) == (n == 0)) field_fail(f, "record", "given, or 'where' in its place");
    tern_status status = f->error->status ? TERN_ERR_ARGUMENT
                         : n ? tern_memory_forget_where(store, where, n, &n_records, &j->err)
                             : tern_memory_forget(store, id, &j->err);
    if (status == TERN_OK) {
        tern_strbuf_printf(&j->value, "{\"forgotten\":%lld}", (long long)n_records);
        tern_strbuf_printf(&j->words, "%lld record%s forgotten.", (long long)n_records,
                           n_records == 1 ? "" : "s");
    }
    free_where(where, n);
}

// ---- On the tasks' thread --------------------------------------------------------------------

// There are as many stores as tasks that compute at once, since these tasks never pause.
static memory_store *take_store(mcp_memory *m) {
    tern_mutex_lock(&m->lock);
    memory_store *s = m->stores[0].is_used ? &m->stores[1] : &m->stores[0];
    s->is_used = true;
    tern_mutex_unlock(&m->lock);
    return s;
}

static void give_store(mcp_memory *m, memory_store *s) {
    tern_mutex_lock(&m->lock);
    s->is_used = false;
    tern_mutex_unlock(&m->lock);
}

static tern_status open_store(memory_job *j, memory_store *at, tern_error *err) {
    mcp_memory *m = j->memory;
    const tern_memory_desc desc = {.model = m->embedder ? m->embedder->model : NULL,
                                   .n_threads = j->desc->opening.n_threads};
    if (!at->store) TERN_TRY(tern_memory_open(&at->store, j->desc->memory_folder, &desc, err));
    j->store = at->store;
    return TERN_OK;
}

static void run_with(memory_job *j, memory_store *at) {
    tern_json_doc doc;
    if (open_store(j, at, &j->err) != TERN_OK) return;
    if (tern_json_parse(&doc, j->text.ptr, j->text.len, &j->err) != TERN_OK) return;
    const fields f = {&doc, tern_json_root(&doc), "", &j->error};
    j->run(j, &f);
    tern_json_free(&doc);
}

static void run(task *e) {
    memory_job *j = (memory_job *)e;
    memory_store *at = take_store(j->memory);
    run_with(j, at);
    give_store(j->memory, at);
}

// ---- On the loop's thread ----------------------------------------------------------------------

static void reply(request *req, memory_job *j) {
    tern_strbuf line = {0};
    if (j->err.status != TERN_OK) api_fail_status(&j->error, &j->err, NULL);
    if (j->words.failed || j->value.failed) api_fail_memory(&j->error);
    if (!j->value.len) api_fail(&j->error, 503, "stopping", NULL, "the server is stopping");
    if (j->error.status) {
        reply_error(req, &j->error);
        return;
    }
    tern_json_writer w = mcp_open_result(&req->mcp->call, &line);
    mcp_put_text(&w, tern_strbuf_text(&j->words), j->words.len);
    tern_json_put_raw(&w, "structuredContent", tern_strbuf_text(&j->value));
    tern_json_put_bool(&w, "isError", false);
    mcp_close_result(&w);
    mcp_reply(req, 200, &line);
    tern_strbuf_free(&line);
}

static void free_job(memory_job *j) {
    tern_strbuf_free(&j->text);
    tern_strbuf_free(&j->words);
    tern_strbuf_free(&j->value);
    tern_free(j);
}

static void done(task *e) {
    memory_job *j = (memory_job *)e;
    request *req = e->user;
    if (req) {
        req->task = NULL;
        reply(req, j);
    }
    if (j->reranker) registry_release(j->reranker);
    free_job(j);
}

// The store needs its model for as long as it is open.
static void hold_embedder(mcp_memory *m) {
    if (m->embedder && !m->holds) registry_hold(m->embedder);
    m->holds = m->embedder != NULL;
}

static void hand_over(request *req) {
    mcp_memory *m = req->server->mcp->memory;
    hold_embedder(m);
    request_run(req, m->tasks, req->task, req->task_model);
}

static void submit(request *req, void (*run_tool)(memory_job *j, const fields *f)) {
    server *s = req->server;
    mcp_memory *m = s->mcp->memory;
    api_error e = {0};
    fields f = fields_of_body(req, &e);
    memory_job *j = tern_alloc(TERN_MEM_SESSION, sizeof *j);
    if (j) {
        tern_json_writer w = {.out = &j->text};
        j->task = (task){.run = run, .done = done};
        j->desc = s->desc;
        j->memory = m;
        j->run = run_tool;
        if (f.object)
            tern_json_put_value(&w, NULL, f.doc, f.object);
        else
            tern_strbuf_puts(&j->text, "{}");
    }
    if (!j || j->text.failed) api_fail_memory(&e);
    if (!e.status) {
        mcp_begin_stream(req);
        j->reranker = req->model == m->reranker ? m->reranker : NULL;
        req->task = &j->task;
        req->task_model = j->reranker;
        request_then(req, hand_over);
        return;
    }
    if (j) free_job(j);
    reply_error(req, &e);
}

static void remember_now(request *req) { submit(req, remember); }
static void recall_now(request *req) { submit(req, recall); }
static void forget_now(request *req) { submit(req, forget); }

static void with_model(request *req, served *model, void (*handle)(request *req)) {
    req->model = model;
    if (model)
        request_with_model(req, handle);
    else
        handle(req);
}

// Once the store's model is open.
static void with_store(request *req, void (*handle)(request *req)) {
    with_model(req, req->server->mcp->memory->embedder, handle);
}

// A request holds one model: the store's is held for the store before the reranker is asked for.
static void ask_reranker(request *req) {
    mcp_memory *m = req->server->mcp->memory;
    hold_embedder(m);
    if (req->holds) registry_release(req->model);
    req->holds = false;
    with_model(req, m->reranker, recall_now);
}
static void recall_ranked(request *req) { request_then(req, ask_reranker); }

void mcp_remember(request *req) { with_store(req, remember_now); }
void mcp_recall(request *req) {
    with_store(req, req->server->mcp->memory->reranker ? recall_ranked : recall_now);
}
void mcp_forget(request *req) { with_store(req, forget_now); }

// ---- Beginning and end -------------------------------------------------------------------------

tern_status mcp_memory_open(server *s, tern_error *err) {
    const serve_desc *d = s->desc;
    if (!d->memory_folder) return TERN_OK;
    mcp_memory *m = s->mcp->memory = tern_alloc(TERN_MEM_SESSION, sizeof *m);
    if (!m) return tern_fail_memory(err, sizeof *m);
    served **models = s->registry->list; // the command line's come first
    *m = (mcp_memory){.embedder = d->embedder ? models[d->embedder - 1] : NULL,
                      .reranker = d->reranker ? models[d->reranker - 1] : NULL};
    tern_mutex_init(&m->lock);
    return tasks_open(&m->tasks, N_STORES, d->n_queue, s->registry->wake, s->registry->user, err);
}

void mcp_memory_take(server *s) { tasks_take_done(s->mcp->memory->tasks); }

void mcp_memory_close(server *s) {
    mcp_memory *m = s->mcp->memory;
    if (!m) return;
    tasks_close(m->tasks);
    for (size_t i = 0; i < N_STORES; i++) tern_memory_close(m->stores[i].store);
    tern_mutex_free(&m->lock);
    if (m->holds) registry_release(m->embedder);
    tern_free(m);
}
