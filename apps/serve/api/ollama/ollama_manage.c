// Ollama's interface, changing which models there are: /api/pull, create, copy, delete, push, and
// blobs, the files to create from. Only for clients that may (ollama_may_manage); only within
// the models folder. Files are written and removed by tasks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "apps/serve/api/ollama/ollama.h"
#include "apps/serve/http/keys.h"
#include "apps/serve/http/serve_log.h"
#include "apps/serve/request/away.h"
#include "base/alloc.h"
#include "base/os/os_thread.h"
#include "base/status.h"

typedef struct managing { // owns all until it is done
    task task;
    const serve_desc *desc;
    tasks *tasks;
    char *name;       // a model's or a preset's
    tern_strbuf json; // of a preset; "": there is none
    char *weights;    // the name of a model that is made of these blobs; NULL: none is
    hub_blob_file *files;
    size_t n_files;
    tern_strbuf room; // their names and digests
    bool streams;
    tern_error err;
    // A pull's; what follows is under the lock.
    tern_mutex lock;
    hub_pull_progress now;
    char digest[65];
    uint64_t bytes_before; // of the folder; only the task's
} managing;

// ---- Who may -----------------------------------------------------------------------------------

bool ollama_may_manage(const request *req, api_error *e) {
    const serve_desc *d = req->server->desc;
    const char *refusal = manage_refusal(d, req->http);
    if (refusal)
        api_fail(e, 403, NULL, NULL, "%s", refusal);
    else if (!d->folder || !req->server->managers)
        api_fail(e, 400, NULL, NULL,
                 "this server has only the models that its command line names: see --models");
    else if (req->server->stopping)
        api_fail(e, 503, "stopping", NULL, "the server is stopping");
    return e->status == 0;
}

// "model", or "name" in older clients. {NULL, 0}: refused.
static tern_str read_name(const fields *f, const char *key) {
    tern_str name = field_text(f, key);
    if (!name.len && !strcmp(key, "model")) name = field_text(f, "name");
    if (!name.len) field_fail(f, key, "a model's name");
    if (memchr(name.ptr ? name.ptr : "", 0, name.len) || name.len > 300)
        field_fail(f, key, "a name of at most 300 bytes");
    return f->error->status ? (tern_str){NULL, 0} : name;
}

// The model of exactly this name: one that only resembles it is not removed.
static served *find_exactly(const request *req, tern_str name) {
    served *s = registry_find(req->server->registry, name, NULL);
    name = name_without_latest(name);
    return s && http_same_name(name, s->about.name) ? s : NULL;
}

// ---- Tasks -------------------------------------------------------------------------------------

static void free_managing(managing *m) {
    if (!m) return;
    tern_mutex_free(&m->lock);
    tern_strbuf_free(&m->json);
    tern_strbuf_free(&m->room);
    tern_free(m->files);
    tern_free(m->weights);
    tern_free(m->name);
    tern_free(m);
}

static void done(task *e);

static managing *new_managing(request *req, tern_str name, void (*run)(task *e), api_error *e) {
    managing *m = e->status ? NULL : tern_alloc(TERN_MEM_SESSION, sizeof *m);
    if (m) {
        tern_mutex_init(&m->lock);
        m->task = (task){.run = run, .done = done};
        m->desc = req->server->desc;
        m->tasks = req->server->managers;
        m->name = tern_strndup(TERN_MEM_SESSION, name.ptr, name.len);
        if (m->name) return m;
        free_managing(m);
    }
    api_fail_memory(e);
    return NULL;
}

// Takes ownership.
static void begin(request *req, managing *m, api_error *e) {
    if (m && (m->json.failed || m->room.failed)) api_fail_memory(e);
    if (!e->status) {
        request_run(req, req->server->managers, &m->task, NULL);
        return;
    }
    free_managing(m);
    reply_error(req, e);
}

static void put_status(request *req, const char *status) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "status", status);
    tern_json_close(&w, '}');
    if (req->is_stream) {
        tern_strbuf_putc(&out, '\n');
        reply_piece(req, &out);
    } else {
        reply_json(req, &out);
    }
    tern_strbuf_free(&out);
}

static void end_with_error(request *req, const tern_error *err) {
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    api_error e = {0};
    api_fail(&e, err->status == TERN_ERR_ARGUMENT ? 400 : 500, NULL, NULL, "%s", err->message);
    if (!req->is_stream) {
        reply_error(req, &e);
        return;
    }
    error_format_ollama.put_error(&w, req, &e);
    tern_strbuf_putc(&out, '\n');
    reply_piece(req, &out);
    reply_end(req);
    tern_strbuf_free(&out);
}

static void end_well(request *req, const managing *m) {
    tern_strbuf none = {0};
    if (m->streams) {
        if (!req->is_stream) reply_stream(req, "application/x-ndjson");
        put_status(req, "writing manifest");
        put_status(req, "success");
        reply_end(req);
    } else if (tern_str_ends((tern_str){req->route, strlen(req->route)}, "/copy") ||
               tern_str_ends((tern_str){req->route, strlen(req->route)}, "/delete")) {
        reply_whole(req, 200, NULL, &none);
    } else {
        put_status(req, "success");
    }
}

static void done(task *e) {
    managing *m = (managing *)e;
    request *req = e->user;
    if (req) {
        registry *r = req->server->registry;
        req->task = NULL;
        if (!m->desc->is_silent)
            log_line("models", "id=%s route=%s model=\"%s\" done=%s", req->id, req->route, m->name,
                     m->err.status == TERN_OK ? "true" : "false");
        registry_look_again(r);
        registry_refresh(r);
        if (m->err.status == TERN_OK)
            end_well(req, m);
        else
            end_with_error(req, &m->err);
    }
    free_managing(m);
}

// ---- Pull --------------------------------------------------------------------------------------

static bool on_progress(void *user, const hub_pull_progress *p) {
    managing *m = user;
    const uint64_t most = m->desc->manage_bytes;
    if (most && p->all > most - (m->bytes_before < most ? m->bytes_before : most)) {
        tern_fail(&m->err, TERN_ERR_ARGUMENT,
                  "its files have %.2f GB, and --manage leaves room for %.2f GB",
                  (double)p->all * 1e-9,
                  m->bytes_before < most ? (double)(most - m->bytes_before) * 1e-9 : 0.0);
        return false;
    }
    tern_mutex_lock(&m->lock);
    m->now = *p;
    snprintf(m->digest, sizeof m->digest, "%s", p->digest ? p->digest : "");
    tern_mutex_unlock(&m->lock);
    tasks_report(m->tasks, &m->task);
    return !tern_cancel_is_requested(&m->task.cancel);
}

static void run_pull(task *e) {
    managing *m = (managing *)e;
    hub_list list;
    char *name = NULL;
    size_t n_new;
    tern_error err = {0};
    if (hub_list_folder(&list, m->desc->folder, NULL) == TERN_OK) {
        for (size_t i = 0; i < list.n; i++) m->bytes_before += list.models[i].bytes;
        hub_list_free(&list);
    }
    const hub_pull_desc desc = {.folder = m->desc->folder,
                                .name = m->name,
                                .endpoint = m->desc->hub_endpoint,
                                .token = m->desc->hub_token,
                                .n_retries = 5,
                                .on_progress = on_progress,
                                .user = m};
    if (m->desc->pull(&desc, &name, &n_new, &err) != TERN_OK && m->err.status == TERN_OK)
        m->err = err; // else on_progress says why
    free(name);
}

// As Ollama has it, by file.
static void send_progress(task *e) {
    managing *m = (managing *)e;
    request *req = e->user;
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    if (!req || !m->streams) return;
    tern_mutex_lock(&m->lock);
    const hub_pull_progress now = m->now;
    char digest[80], status[48];
    snprintf(digest, sizeof digest, "sha256:%s", m->digest);
    tern_mutex_unlock(&m->lock);
    if (!req->is_stream) reply_stream(req, "application/x-ndjson");
    if (now.is_checking)
        snprintf(status, sizeof status, "verifying sha256 digest");
    else if (now.file_bytes && digest[7])
        snprintf(status, sizeof status, "pulling %.12s", digest + 7);
    else
        snprintf(status, sizeof status, "pulling manifest");
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "status", status);
    if (now.file_bytes && digest[7]) {
        tern_json_put_text(&w, "digest", digest);
        tern_json_put_int(&w, "total", (int64_t)now.file_bytes);
        tern_json_put_int(&w, "completed", (int64_t)now.file_done);
    }
    tern_json_close(&w, '}');
    tern_strbuf_putc(&out, '\n');
    reply_piece(req, &out);
    tern_strbuf_free(&out);
}

void ollama_pull(request *req) {
    api_error e = {0};
    const fields f = fields_of_body(req, &e);
    const tern_str name = ollama_may_manage(req, &e) ? read_name(&f, "model") : (tern_str){NULL, 0};
    const bool streams = field_bool(&f, "stream", true);
    if (!e.status && !req->server->desc->pull)
        api_fail(&e, 501, NULL, NULL, "this server was built without libcurl, and cannot download");
    managing *m = new_managing(req, name_without_latest(name), run_pull, &e);
    if (m) {
        m->streams = streams;
        m->task.progress = send_progress;
    }
    begin(req, m, &e);
}

// ---- Delete ------------------------------------------------------------------------------------

static void run_delete(task *e) {
    managing *m = (managing *)e;
    uint64_t bytes;
    hub_remove(m->desc->folder, m->name, &bytes, &m->err);
}

static void run_delete_preset(task *e) {
    managing *m = (managing *)e;
    preset_remove(m->desc->folder, (tern_str){m->name, strlen(m->name)}, &m->err);
}

void ollama_delete(request *req) {
    api_error e = {0};
    const fields f = fields_of_body(req, &e);
    tern_str name = ollama_may_manage(req, &e) ? read_name(&f, "model") : (tern_str){NULL, 0};
    const preset *p = e.status ? NULL : registry_preset(req->server->registry, name);
    served *s = e.status || p ? NULL : find_exactly(req, name);
    if (p)
        name = (tern_str){p->name, strlen(p->name)};
    else if (s)
        name = (tern_str){s->about.name, strlen(s->about.name)};
    else
        api_fail(&e, 404, NULL, "model", "model '%.*s' not found",
                 name.len < 100 ? (int)name.len : 100, name.ptr ? name.ptr : "");
    if (s && s->is_given)
        api_fail(&e, 400, NULL, "model", "model '%s' is named by the server's command line",
                 s->about.name);
    managing *m = new_managing(req, name, p ? run_delete_preset : run_delete, &e);
    if (m && s) registry_drop(s); // running answers come to their end
    begin(req, m, &e);
}

// ---- Create and copy ---------------------------------------------------------------------------

static void run_write(task *e) {
    managing *m = (managing *)e;
    const hub_install made = {m->weights, m->files, m->n_files};
    if (m->weights && hub_install_blobs(m->desc->folder, &made, &m->err) != TERN_OK) return;
    if (!m->json.len) return;
    preset_write(m->desc->folder, (tern_str){m->name, strlen(m->name)}, &m->json, &m->err);
}

// A name for a preset. False: refused.
static bool check_new_name(const request *req, const fields *f, const char *key, tern_str name) {
    if (f->error->status) return false;
    if (!preset_name_is_valid(name_without_latest(name)))
        field_fail(f, key, "a name of letters, digits, '-', '_', '.', '/' and one ':'");
    else if (find_exactly(req, name))
        api_fail(f->error, 400, NULL, key, "'%s': there is a model of this name", key);
    else if (req->server->registry->presets.n >= PRESETS_MAX)
        api_fail(f->error, 400, NULL, key, "there are %d such names already", PRESETS_MAX);
    return f->error->status == 0;
}

static const char *const members[] = {"system", "messages", "parameters", "license"};
#define N_MEMBERS (sizeof members / sizeof *members)

// {"name", "from"} and the members that the request has, else those of the preset that it is made
// from. It stays open.
static void put_preset(managing *m, const fields *f, const char *from, const preset *other) {
    tern_json_writer w = {.out = &m->json};
    tern_json_doc doc = {0};
    if (other) m->json.failed |= tern_json_parse(&doc, other->json, other->n_json, NULL) != TERN_OK;
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "name", m->name);
    tern_json_put_text(&w, "from", from);
    for (size_t i = 0; i < N_MEMBERS; i++) {
        const tern_json *own = f ? field_any(f, members[i]) : NULL;
        const tern_json *old = other ? tern_json_get(&doc, tern_json_root(&doc), members[i]) : NULL;
        if (own)
            tern_json_put_value(&w, members[i], f->doc, own);
        else if (old)
            tern_json_put_value(&w, members[i], &doc, old);
    }
    tern_json_close(&w, '}');
    tern_json_free(&doc);
}

// The model that a new name is made from. NULL: there is none.
static const served *find_source(const request *req, const fields *f, const char *key,
                                 tern_str name, const preset **other) {
    registry *r = req->server->registry;
    *other = NULL;
    if (f->error->status) return NULL;
    *other = registry_preset(r, name);
    if (*other) name = (tern_str){(*other)->from, strlen((*other)->from)};
    const served *s = registry_find(r, name, NULL);
    if (!s)
        api_fail(f->error, 404, NULL, key, "model '%.*s' not found",
                 name.len < 100 ? (int)name.len : 100, name.ptr ? name.ptr : "");
    return s;
}

void ollama_copy(request *req) {
    api_error e = {0};
    const fields f = fields_of_body(req, &e);
    const preset *other = NULL;
    const bool may = ollama_may_manage(req, &e);
    const tern_str from = may ? read_name(&f, "source") : (tern_str){NULL, 0},
                   to = may ? read_name(&f, "destination") : (tern_str){NULL, 0};
    const served *s = find_source(req, &f, "source", from, &other);
    check_new_name(req, &f, "destination", to);
    managing *m = new_managing(req, name_without_latest(to), run_write, &e);
    if (m) put_preset(m, NULL, s->about.name, other);
    begin(req, m, &e);
}

static void check_messages(const fields *f) {
    const tern_json *list = field_array(f, "messages");
    for (const tern_json *m = list ? tern_json_first(f->doc, list) : NULL; m && !f->error->status;
         m = tern_json_next(f->doc, list, m)) {
        const fields each = {f->doc, m, "messages.", f->error};
        const tern_str role = field_text(&each, "role");
        if (!tern_json_is(m, TERN_JSON_OBJECT) || !field_text(&each, "content").ptr)
            field_fail(&each, "content", "a string");
        if (!tern_str_is(role, "user") && !tern_str_is(role, "assistant") &&
            !tern_str_is(role, "system"))
            field_fail(&each, "role", "system, user or assistant");
    }
}

// Numbers, and what stops; others would not be found out before somebody asks.
static void check_parameters(const fields *f) {
    static const char *const known[] = {"temperature",
                                        "top_k",
                                        "top_p",
                                        "min_p",
                                        "typical_p",
                                        "seed",
                                        "repeat_penalty",
                                        "num_ctx",
                                        "repeat_last_n",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "mirostat",
                                        "num_keep",
                                        "mirostat_tau",
                                        "mirostat_eta",
                                        "num_predict",
                                        "num_batch",
                                        "num_thread",
                                        "num_gpu",
                                        "tfs_z"};
    const fields inner = fields_within(f, "parameters", "parameters.");
    for (const tern_json *key = inner.object ? tern_json_first(f->doc, inner.object) : NULL;
         key && !f->error->status; key = tern_json_next(f->doc, inner.object, key)) {
        const tern_str name = tern_json_str(key);
        const tern_json *value = tern_json_value_of(f->doc, key);
        char shown[40];
        bool is_known = false;
        snprintf(shown, sizeof shown, "%.*s", name.len < 39 ? (int)name.len : 39, name.ptr);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known |= tern_str_is(name, known[i]);
        if (tern_str_is(name, "stop")) {
            if (!tern_json_is(value, TERN_JSON_STRING) && !tern_json_is(value, TERN_JSON_ARRAY))
                field_fail(&inner, "stop", "a string, or a list of strings");
        } else if (!is_known) {
            api_fail(f->error, 400, NULL, "parameters", "'parameters.%s' is not known", shown);
        } else if (!tern_json_is(value, TERN_JSON_NUMBER)) {
            field_fail(&inner, shown, "a number");
        }
    }
}

// What would make other weights, or change how the model is asked.
static void refuse_others(const fields *f) {
    static const struct {
        const char *name, *why;
    } rows[] = {
        {"template", "a model has the template of its file (tern serve --chat-template)"},
        {"adapters", "a model is opened with its adapters (tern serve --lora)"},
        {"quantize", "tern convert does this"},
        {"modelfile", "its parts are fields: 'from', 'system', 'parameters', 'messages'"},
        {"path", "its parts are fields: 'from', 'system', 'parameters', 'messages'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tern_json *value = field_any(f, rows[i].name);
        if (value && value->n > 0)
            api_fail(f->error, 400, "unsupported_parameter", rows[i].name,
                     "'%s' is not supported by this server: %s", rows[i].name, rows[i].why);
    }
}

// ---- Models of files ---------------------------------------------------------------------------

#define FILES_MAX 256

// {"model.gguf": "sha256:...", ...}. A name or digest is a place in m->room until all are there.
static void read_files(managing *m, const fields *f, const tern_json *files) {
    size_t at = 0;
    for (const tern_json *key = tern_json_first(f->doc, files); key && !f->error->status;
         key = tern_json_next(f->doc, files, key)) {
        const tern_str name = tern_json_str(key),
                       digest = tern_json_str(tern_json_value_of(f->doc, key));
        const bool is_digest = digest.len == 71 && !memcmp(digest.ptr, "sha256:", 7) &&
                               hub_digest_is_valid(digest.ptr + 7, 64);
        if (!is_digest || !name.len || name.len > 255 || memchr(name.ptr, 0, name.len))
            field_fail(f, "files", "names of files, each with its \"sha256:...\"");
        tern_strbuf_append(&m->room, name.ptr, name.len);
        tern_strbuf_putc(&m->room, 0);
        if (is_digest) tern_strbuf_append(&m->room, digest.ptr + 7, 64);
        tern_strbuf_putc(&m->room, 0);
    }
    m->files = tern_alloc_array(TERN_MEM_SESSION, files->n, sizeof *m->files);
    if (!m->files || m->room.failed) api_fail_memory(f->error);
    if (f->error->status) return;
    for (; m->n_files < files->n; m->n_files++) {
        const char *name = m->room.ptr + at, *digest = name + strlen(name) + 1;
        m->files[m->n_files] = (hub_blob_file){name, digest};
        at = (size_t)(digest - m->room.ptr) + 65;
    }
}

// A model has the request's name if that is a file's and says all; else a preset has, and the model
// is "NAME-weights".
static void name_weights(managing *m, const fields *f) {
    bool has_more = strchr(m->name, ':') != NULL;
    for (size_t i = 0; i < N_MEMBERS; i++) has_more |= field_any(f, members[i]) != NULL;
    tern_strbuf b = {0};
    for (const char *c = m->name; *c; c++) tern_strbuf_putc(&b, *c == ':' ? '-' : *c);
    if (has_more) tern_strbuf_puts(&b, "-weights");
    m->weights = b.failed ? NULL : tern_strdup(TERN_MEM_SESSION, b.ptr);
    tern_strbuf_free(&b);
    if (!m->weights)
        api_fail_memory(f->error);
    else if (has_more)
        put_preset(m, f, m->weights, NULL);
}

// The files of a request, if it has any. NULL: it has none, or is refused.
static const tern_json *find_files(const fields *f) {
    const tern_json *files = field_any(f, "files");
    if (!files || (tern_json_is(files, TERN_JSON_OBJECT) && files->n == 0)) return NULL;
    if (!tern_json_is(files, TERN_JSON_OBJECT) || files->n > FILES_MAX)
        field_fail(f, "files", "an object of at most 256 files");
    if (field_text(f, "from").len) field_fail(f, "from", "left out where there are 'files'");
    return files;
}

void ollama_create(request *req) {
    api_error e = {0};
    const fields f = fields_of_body(req, &e);
    const preset *other = NULL;
    const served *s = NULL;
    const bool may = ollama_may_manage(req, &e);
    const tern_str name = may ? read_name(&f, "model") : (tern_str){NULL, 0};
    if (may) refuse_others(&f);
    const tern_json *files = may ? find_files(&f) : NULL;
    if (!files && !e.status) s = find_source(req, &f, "from", read_name(&f, "from"), &other);
    const bool streams = field_bool(&f, "stream", true);
    check_new_name(req, &f, "model", name);
    field_text(&f, "system");
    check_messages(&f);
    check_parameters(&f);
    managing *m = new_managing(req, name_without_latest(name), run_write, &e);
    if (m) {
        m->streams = streams;
        if (files) read_files(m, &f, files);
        if (files) name_weights(m, &f);
        if (s) put_preset(m, &f, s->about.name, other);
    }
    begin(req, m, &e);
}

void ollama_push(request *req) {
    api_error e = {0};
    api_fail(&e, 501, "unsupported", NULL,
             "this server pushes no models: there is no registry that it has an account with");
    reply_error(req, &e);
}
