// See agent_log.h.
#include "apps/agent/agent_log.h"

#include <string.h>
#include <time.h>
#include "base/json/json_write.h"
#include "base/os/os_file.h"

tern_status agent_log_open(agent_log *log, const char *path, tern_error *err) {
    *log = (agent_log){.fd = -1, .path = path};
    return tern_file_open_log(&log->fd, path, UINT64_MAX, true, err); // has the chat: private
}

void agent_log_close(agent_log *log) {
    if (log->fd >= 0) tern_fd_close(log->fd);
    log->fd = -1;
    tern_strbuf_free(&log->line);
}

// False: do not write.
static bool open_line(agent_log *log, tern_json_writer *w, const char *kind) {
    struct timespec now;
    if (log->fd < 0 || log->err.status != TERN_OK) return false;
    tern_strbuf_clear(&log->line);
    *w = (tern_json_writer){.out = &log->line};
    tern_json_open(w, NULL, '{');
    clock_gettime(CLOCK_REALTIME, &now);
    tern_json_put_number(w, "time", (double)(now.tv_sec * 1000 + now.tv_nsec / 1000000) / 1000);
    tern_json_put_text(w, "kind", kind);
    return true;
}

static void close_line(agent_log *log, tern_json_writer *w) {
    tern_json_close(w, '}');
    tern_strbuf_putc(&log->line, '\n');
    if (log->line.failed)
        tern_fail_memory(&log->err, log->line.len);
    else if (!tern_fd_write(log->fd, log->line.ptr, log->line.len))
        tern_fail(&log->err, TERN_ERR_IO, "%s: the transcript cannot be written", log->path);
}

void agent_log_begin(agent_log *log, const agent_log_start *s) {
    tern_json_writer w;
    if (!open_line(log, &w, "start")) return;
    tern_json_put_text(&w, "version", tern_version());
    tern_json_put_text(&w, "model", s->model);
    tern_json_put_int(&w, "context", s->n_context);
    tern_json_put_text(&w, "task", s->task);
    if (s->system) tern_json_put_text(&w, "system", s->system);
    tern_json_put_int(&w, "max_steps", s->desc->max_steps);
    tern_json_put_int(&w, "max_tokens", s->desc->max_tokens);
    tern_json_put_number(&w, "max_seconds", s->desc->max_seconds);
    tern_json_open(&w, "tools", '[');
    for (size_t i = 0; i < s->tools->n; i++) {
        const agent_tool *t = &s->tools->list[i];
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "name", t->name);
        tern_json_put_text(&w, "description", t->description);
        if (t->parameters) tern_json_put_raw(&w, "parameters", t->parameters);
        if (*t->from) tern_json_put_text(&w, "from", t->from);
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    close_line(log, &w);
}

static void put_call(tern_json_writer *w, const tern_agent_call *call, bool arguments) {
    tern_json_put_text(w, "id", call->id);
    tern_json_put_text(w, "name", call->name);
    if (arguments) tern_json_put_raw(w, "arguments", call->arguments);
}

static void put_stats(tern_json_writer *w, const tern_generate_stats *s) {
    static const char *const reasons[] = {"end", "length", "stop", "context", "cancelled"};
    tern_json_put_int(w, "prompt_tokens", (int64_t)s->n_prompt);
    tern_json_put_int(w, "reused_tokens", (int64_t)s->n_reused);
    tern_json_put_int(w, "generated_tokens", (int64_t)s->n_generated);
    tern_json_put_text(w, "stop_reason", reasons[s->reason]);
    tern_json_put_int(w, "seed", (int64_t)s->seed);
}

void agent_log_event(agent_log *log, const tern_agent_event *e, const char *allowed) {
    static const char *const kinds[] = {[TERN_AGENT_NOTE] = "note",
                                        [TERN_AGENT_MESSAGE] = "message",
                                        [TERN_AGENT_CALL] = "call",
                                        [TERN_AGENT_RESULT] = "result",
                                        [TERN_AGENT_SHORTENED] = "shortened"};
    size_t n_kinds = sizeof kinds / sizeof *kinds;
    tern_json_writer w;
    const char *kind = (size_t)e->kind < n_kinds ? kinds[e->kind] : NULL;
    if (!kind || !open_line(log, &w, kind)) return;
    if (e->kind == TERN_AGENT_NOTE) tern_json_put_text(&w, "text", e->text);
    if (e->kind == TERN_AGENT_MESSAGE) {
        tern_json_put_raw(&w, "message", e->text);
        put_stats(&w, e->stats);
        tern_json_put_number(&w, "seconds", e->seconds);
    }
    if (e->call) put_call(&w, e->call, e->kind == TERN_AGENT_CALL);
    if (e->kind == TERN_AGENT_RESULT) {
        tern_json_put_bool(&w, "failed", e->failed);
        if (allowed) tern_json_put_text(&w, "allowed", allowed);
        tern_json_put_number(&w, "seconds", e->seconds);
    }
    if (e->kind == TERN_AGENT_RESULT || e->kind == TERN_AGENT_SHORTENED) {
        tern_json_put_int(&w, "bytes_before", (int64_t)e->n_before);
        tern_json_put_bytes(&w, "content", e->text, e->n_bytes);
    }
    close_line(log, &w);
}

static void put_result(tern_json_writer *w, const tern_agent_result *r, const tern_error *failure) {
    bool ok = failure->status == TERN_OK;
    tern_json_put_bool(w, "finished", ok && r->end == TERN_AGENT_FINISHED);
    tern_json_put_text(w, "reason", ok ? tern_agent_end_name(r->end) : "failed");
    if (!ok) tern_json_put_text(w, "error", failure->message);
    tern_json_put_bytes(w, "answer", r->answer ? r->answer : "", r->n_bytes);
    tern_json_put_int(w, "steps", r->n_steps);
    tern_json_put_int(w, "calls", r->n_calls);
    tern_json_put_int(w, "failed_calls", r->n_failed);
    tern_json_put_int(w, "shortened", r->n_shortened);
    tern_json_put_int(w, "prompt_tokens", (int64_t)r->n_prompt);
    tern_json_put_int(w, "generated_tokens", (int64_t)r->n_generated);
    tern_json_put_number(w, "seconds", r->seconds);
}

void agent_log_end(agent_log *log, const tern_agent_result *result, const tern_error *failure) {
    tern_json_writer w;
    if (!open_line(log, &w, "end")) return;
    put_result(&w, result, failure);
    close_line(log, &w);
}

tern_status agent_put_result(const tern_agent_result *result, const tern_error *failure,
                             tern_text_fn put, void *put_user, tern_error *err) {
    tern_strbuf line = {0};
    tern_json_writer w = {.out = &line};
    tern_json_open(&w, NULL, '{');
    put_result(&w, result, failure);
    tern_json_close(&w, '}');
    tern_strbuf_putc(&line, '\n');
    tern_status status = line.failed ? tern_fail_memory(err, line.len) : TERN_OK;
    if (status == TERN_OK) put(put_user, line.ptr, line.len);
    tern_strbuf_free(&line);
    return status;
}
