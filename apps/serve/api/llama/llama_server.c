// llama-server's own routes about the server. llama_tokens.c has those about tokens.
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "base/alloc.h"
#include "base/os/os_time.h"

// In llama-server's errors the code is the status, as a number.
static void put_error(tern_json_writer *w, const request *req, const api_error *e) {
    const char *type = e->status == 401   ? "authentication_error"
                       : e->status == 404 ? "not_found_error"
                       : e->status == 403 ? "permission_error"
                       : e->status == 501 ? "not_supported_error"
                       : e->status == 503 ? "unavailable_error"
                       : e->status == 429 ? "rate_limit_error"
                       : e->status >= 500 ? "server_error"
                                          : "invalid_request_error";
    (void)req;
    tern_json_open(w, NULL, '{');
    tern_json_open(w, "error", '{');
    tern_json_put_int(w, "code", e->status);
    tern_json_put_text(w, "message", e->message);
    tern_json_put_text(w, "type", type);
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}
const error_format error_format_llama = {
    .put_error = put_error, .unsupported = 501, .is_llamas = true};

// ---- Looking -----------------------------------------------------------------------------------

// Not healthy: a step has taken minutes, or the server is stopping.
void llama_health(request *req) {
    api_error e = {0};
    tern_strbuf out = {0};
    if (req->server->stopping)
        api_fail(&e, 503, NULL, NULL, "the server is stopping");
    else if (req->server->is_leaving)
        api_fail(&e, 503, NULL, NULL, "the server is about to stop");
    else if (registry_is_stuck(req->server->registry, tern_seconds()))
        api_fail(&e, 503, NULL, NULL, "the model has been computing one step for minutes");
    if (e.status) {
        reply_error(req, &e);
        return;
    }
    tern_strbuf_puts(&out, "{\"status\":\"ok\"}");
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

void server_version(request *req) {
    tern_strbuf out = {0};
    tern_strbuf_printf(&out, "{\"version\":\"%s\"}", tern_version());
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

// The values from the model's files are known while it is open.
static void put_sampling(tern_json_writer *w, const served *s) {
    const tern_model_info *i = &s->info;
    bool is_open = s->state == SERVED_OPEN;
    tern_json_open(w, "params", '{');
    tern_json_put_float(w, "temperature", is_open && i->temperature >= 0 ? i->temperature : 0.8f);
    tern_json_put_int(w, "top_k", is_open && i->top_k >= 0 ? i->top_k : 40);
    tern_json_put_float(w, "top_p", is_open && i->top_p >= 0 ? i->top_p : 0.95f);
    tern_json_put_float(w, "min_p", is_open && i->min_p >= 0 ? i->min_p : 0.05f);
    tern_json_put_float(w, "repeat_penalty",
                        is_open && i->repeat_penalty > 0 ? i->repeat_penalty : 1);
    tern_json_put_int(w, "n_predict", -1);
    tern_json_close(w, '}');
}

static int64_t context_of(const request *req, const served *s) {
    int64_t wanted = req->server->desc->session.n_context, most = s->facts.n_context;
    if (s->state == SERVED_OPEN) return s->n_context;
    return wanted ? wanted : most < 8192 ? most : 8192;
}

// The model that the query names, or the default one; if there is neither, llama-server's answer
// for several models.
void llama_props(request *req) {
    tern_strbuf out = {0}, room = {0};
    tern_json_writer w = {.out = &out};
    tern_error err = {0};
    api_error e = {0};
    tern_str name = request_query(req, "model", &room);
    const served *s = registry_find(req->server->registry, name, &err);
    tern_strbuf_free(&room);
    if (!s && name.len) {
        api_fail(&e, 404, "model_not_found", "model", "%s", err.message);
        reply_error(req, &e);
        return;
    }
    tern_json_open(&w, NULL, '{');
    if (!s) tern_json_put_text(&w, "role", "router");
    tern_json_open(&w, "default_generation_settings", '{');
    tern_json_put_int(&w, "n_ctx", s ? context_of(req, s) : 0);
    if (s) put_sampling(&w, s);
    tern_json_close(&w, '}');
    tern_json_put_int(&w, "total_slots", (int64_t)req->server->desc->n_parallel);
    tern_json_put_text(&w, "model_alias", s ? s->about.name : "tern");
    tern_json_put_text(&w, "model_path", s ? s->about.path : "none");
    tern_json_open(&w, "modalities", '{');
    tern_json_put_bool(&w, "vision", s && served_sees(s));
    tern_json_put_bool(&w, "audio", registry_recognizer(req->server->registry) != NULL);
    tern_json_close(&w, '}');
    tern_json_put_text(&w, "build_info", tern_version());
    tern_json_put_bool(&w, "is_sleeping", s && s->state != SERVED_OPEN);
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void put_params(tern_json_writer *w, const slot_view *v) {
    const tern_sampling *p = &v->sampling;
    int64_t most = v->max_tokens ? v->max_tokens : -1;
    tern_json_open(w, "params", '{');
    tern_json_put_int(w, "n_predict", most);
    tern_json_put_int(w, "max_tokens", most);
    tern_json_put_int(w, "seed", (int64_t)p->seed);
    tern_json_put_float(w, "temperature", p->temperature);
    tern_json_put_int(w, "top_k", p->top_k);
    tern_json_put_float(w, "top_p", p->top_p);
    tern_json_put_float(w, "min_p", p->min_p);
    tern_json_put_float(w, "repeat_penalty", p->repeat_penalty);
    tern_json_put_int(w, "repeat_last_n", p->penalty_window);
    tern_json_put_float(w, "presence_penalty", p->presence_penalty);
    tern_json_put_float(w, "frequency_penalty", p->frequency_penalty);
    tern_json_put_bool(w, "ignore_eos", v->ignores_end);
    tern_json_close(w, '}');
    tern_json_open(w, "next_token", '{');
    tern_json_put_bool(w, "has_next_token", true);
    tern_json_put_bool(w, "has_new_line", v->has_new_line);
    tern_json_put_int(w, "n_remain", most < 0 ? -1 : most - (int64_t)v->n_generated);
    tern_json_put_int(w, "n_decoded", (int64_t)v->n_generated);
    tern_json_close(w, '}');
}

// Never shows a text: a client that may see the slots may not read others' texts.
static void put_slot(tern_json_writer *w, const served *s, size_t i, const slot_view *v) {
    tern_json_open(w, NULL, '{');
    tern_json_put_int(w, "id", (int64_t)i);
    tern_json_put_int(w, "id_task", v->job ? (int64_t)v->job : -1);
    tern_json_put_text(w, "model", s->about.name);
    tern_json_put_int(w, "n_ctx", s->n_context);
    tern_json_put_bool(w, "speculative", false);
    tern_json_put_bool(w, "is_processing", v->job != 0);
    if (v->job) {
        tern_json_put_int(w, "n_prompt_tokens", (int64_t)v->n_prompt);
        put_params(w, v);
    }
    tern_json_close(w, '}');
}

// Returns whether one is free.
static bool put_slots(tern_json_writer *w, const served *s) {
    size_t n = scheduler_look_slots(s->scheduler, NULL, 0), n_busy = 0;
    slot_view *list = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *list);
    w->out->failed |= !list;
    if (list) scheduler_look_slots(s->scheduler, list, n);
    for (size_t i = 0; i < n && list; i++) {
        put_slot(w, s, i, &list[i]);
        n_busy += list[i].job != 0;
    }
    tern_free(list);
    return n_busy < n;
}

// The slots of all open models, or of the one that the query names.
void llama_slots(request *req) {
    registry *r = req->server->registry;
    tern_strbuf out = {0}, room = {0};
    tern_json_writer w = {.out = &out};
    tern_error err = {0};
    api_error e = {0};
    bool has_free = false;
    tern_str name = request_query(req, "model", &room);
    const served *only = name.ptr ? registry_find(r, name, &err) : NULL;
    tern_json_open(&w, NULL, '[');
    for (size_t i = 0; i < r->n; i++) {
        const served *s = r->list[i];
        if (s->state == SERVED_OPEN && (!only || s == only)) has_free |= put_slots(&w, s);
    }
    tern_json_close(&w, ']');
    if (name.ptr && !only) api_fail(&e, 404, "model_not_found", "model", "%s", err.message);
    tern_strbuf_clear(&room);
    if (!has_free && tern_str_is(request_query(req, "fail_on_no_slot", &room), "1"))
        api_fail(&e, 503, NULL, NULL, "no slot is free");
    if (e.status)
        reply_error(req, &e);
    else
        reply_json(req, &out);
    tern_strbuf_free(&room);
    tern_strbuf_free(&out);
}

// ---- Loading -----------------------------------------------------------------------------------

static void reply_success(request *req) {
    tern_strbuf out = {0};
    tern_strbuf_puts(&out, "{\"success\":true}");
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

void llama_load(request *req) {
    reply_success(req); // the model is open whenever this is called
}

void llama_unload(request *req) {
    api_error e = {0};
    if (req->model->state != SERVED_OPEN) {
        api_fail(&e, 400, NULL, "model", "model '%s' is not loaded", req->model->about.name);
        reply_error(req, &e);
        return;
    }
    registry_drop(req->model);
    reply_success(req);
}

// ---- Counts ------------------------------------------------------------------------------------

static metrics_model look_at(const served *s) {
    scheduler_view v = {0};
    if (s->state == SERVED_OPEN) scheduler_look(s->scheduler, &v);
    return (metrics_model){.name = s->about.name,
                           .counts = &s->counts,
                           .n_running = v.n_running,
                           .n_waiting = v.n_waiting,
                           .n_steps = v.n_steps,
                           .n_step_jobs = v.n_step_jobs,
                           .prefixes = v.prefixes,
                           .bytes = s->bytes,
                           .is_open = s->state == SERVED_OPEN};
}

// Only models that were open at least once: a folder may have hundreds.
void llama_metrics(request *req) {
    const registry *r = req->server->registry;
    tern_strbuf out = {0};
    size_t n = 0;
    metrics_model *models = tern_alloc_array(TERN_MEM_SESSION, r->n, sizeof *models);
    for (size_t i = 0; i < r->n && models; i++)
        if (r->list[i]->counts.n_loads) models[n++] = look_at(r->list[i]);
    out.failed = !models;
    metrics_put(&req->server->metrics, models, n, req->server->n_connections, &out);
    metrics_put_process(&out, req->server->born);
    reply_whole(req, 200, "text/plain; version=0.0.4; charset=utf-8", &out);
    tern_strbuf_free(&out);
    tern_free(models);
}
