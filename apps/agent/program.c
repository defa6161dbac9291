// Tools that are programs: a JSON file has the description for the model and the command. No shell
// sees the arguments: the program gets them on its standard input, as one line of JSON. See
// docs/agent.md.
#include <stdio.h>
#include <string.h>
#include "apps/agent/child.h"
#include "apps/agent/tools.h"
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"

#define FILE_MAX    ((size_t)1 << 20)
#define OUTPUT_MAX  ((size_t)64 << 10) // kept of the output, unless the file says otherwise
#define ERRORS_MAX  ((size_t)4 << 10)
#define DRAINED_MAX ((uint64_t)64 << 20) // that a program may print before it is ended
#define TIMEOUT     60.0
#define TIMEOUT_MAX 86400.0

typedef struct program {
    char *path; // of the file
    char **argv;
    char *folder; // NULL: where tern runs
    child_env env;
    double timeout;
    size_t output_bytes;
    const agent_tools *tools;
} program;

static void free_program(void *user) {
    program *p = user;
    for (char **at = p->argv; at && *at; at++) tern_free(*at);
    tern_free(p->argv);
    tern_free(p->folder);
    tern_free(p->path);
    child_env_free(&p->env);
    tern_free(p);
}

// ---- The file ----------------------------------------------------------------------------------

typedef struct reading {
    program *p;
    const tern_json_doc *doc;
    tern_str name, description;
    tern_strbuf parameters;
    tern_error *err;
} reading;

static tern_status wrong(const reading *r, const tern_json *at, const char *what) {
    return tern_fail(r->err, TERN_ERR_FORMAT, "%s:%u: %s", r->p->path, at ? (unsigned)at->line : 1u,
                     what);
}

static bool has_zero(tern_str s) { return s.len && memchr(s.ptr, 0, s.len); }

// Paths of programs and folders are relative to the file, not to tern's working directory.
static char *from_file(const reading *r, tern_str name) {
    char *text = tern_strndup(TERN_MEM_MISC, name.ptr, name.len), *folder = NULL, *joined = NULL;
    if (text && !tern_is_slash(*text)) {
        folder = tern_path_folder(r->p->path);
        joined = folder ? tern_path_join(folder, text) : NULL;
        // Made absolute, since the program may run in another folder.
        char *real = joined ? tern_path_real(joined) : NULL;
        if (real) {
            tern_free(joined);
            joined = real;
        }
        tern_free(folder);
        tern_free(text);
        return joined;
    }
    return text;
}

static tern_status read_command(reading *r, const tern_json *v) {
    program *p = r->p;
    size_t n = 0;
    if (!tern_json_is(v, TERN_JSON_ARRAY) || v->n == 0)
        return wrong(r, v, "\"command\" must be a list of texts: the program and its arguments");
    p->argv = tern_alloc_array(TERN_MEM_MISC, (size_t)v->n + 1, sizeof *p->argv);
    if (!p->argv) return tern_fail_memory(r->err, v->n * sizeof *p->argv);
    for (const tern_json *e = tern_json_first(r->doc, v); e; e = tern_json_next(r->doc, v, e)) {
        tern_str s = tern_json_str(e);
        if (!s.ptr || has_zero(s) || (n == 0 && !s.len))
            return wrong(r, e,
                         "\"command\" must be a list of texts: the program and its arguments");
        bool is_path = n == 0 && memchr(s.ptr, '/', s.len);
        p->argv[n] = is_path ? from_file(r, s) : tern_strndup(TERN_MEM_MISC, s.ptr, s.len);
        if (!p->argv[n++]) return tern_fail_memory(r->err, s.len);
    }
    return TERN_OK;
}

static tern_status read_env(reading *r, const tern_json *v) {
    if (!tern_json_is(v, TERN_JSON_OBJECT))
        return wrong(r, v, "\"env\" must be an object of texts");
    for (const tern_json *key = tern_json_first(r->doc, v); key;
         key = tern_json_next(r->doc, v, key)) {
        tern_str name = tern_json_str(key), value = tern_json_str(tern_json_value_of(r->doc, key));
        if (!name.len || memchr(name.ptr, '=', name.len) || has_zero(name) || !value.ptr ||
            has_zero(value))
            return wrong(r, key, "\"env\" must be an object of texts");
        child_env_set(&r->p->env, name, value);
    }
    return TERN_OK;
}

static tern_status read_passed(reading *r, const tern_json *v) {
    if (!tern_json_is(v, TERN_JSON_ARRAY))
        return wrong(r, v, "\"pass_env\" must be a list of names");
    for (const tern_json *e = tern_json_first(r->doc, v); e; e = tern_json_next(r->doc, v, e)) {
        tern_str name = tern_json_str(e);
        if (!name.len || has_zero(name)) return wrong(r, e, "\"pass_env\" must be a list of names");
        child_env_pass(&r->p->env, name);
    }
    return TERN_OK;
}

static tern_status read_number(const reading *r, const tern_json *v, const char *complaint,
                               double least, double most, double *out) {
    *out = tern_json_number(v, -1);
    return *out >= least && *out <= most ? TERN_OK : wrong(r, v, complaint);
}

static tern_status read_text(const reading *r, const tern_json *v, const char *complaint,
                             tern_str *out) {
    *out = tern_json_str(v);
    return out->ptr && !has_zero(*out) ? TERN_OK : wrong(r, v, complaint);
}

static tern_status read_member(reading *r, tern_str name, const tern_json *v) {
    double number;
    tern_str text;
    if (tern_str_is(name, "name")) return read_text(r, v, "\"name\" must be a text", &r->name);
    if (tern_str_is(name, "description"))
        return read_text(r, v, "\"description\" must be a text", &r->description);
    if (tern_str_is(name, "parameters")) {
        tern_json_writer w = {.out = &r->parameters};
        tern_json_put_value(&w, NULL, r->doc, v);
        return tern_json_is(v, TERN_JSON_OBJECT)
                   ? TERN_OK
                   : wrong(r, v, "\"parameters\" must be a JSON Schema of an object");
    }
    if (tern_str_is(name, "command")) return read_command(r, v);
    if (tern_str_is(name, "env")) return read_env(r, v);
    if (tern_str_is(name, "pass_env")) return read_passed(r, v);
    if (tern_str_is(name, "timeout"))
        return read_number(r, v, "\"timeout\" must be seconds, up to 86400", 0.001, TIMEOUT_MAX,
                           &r->p->timeout);
    if (tern_str_is(name, "output_bytes")) {
        TERN_TRY(read_number(r, v, "\"output_bytes\" must be a number, up to 16777216", 1, 1 << 24,
                             &number));
        r->p->output_bytes = (size_t)number;
        return TERN_OK;
    }
    if (tern_str_is(name, "cwd")) {
        TERN_TRY(read_text(r, v, "\"cwd\" must be the path of a folder", &text));
        tern_free(r->p->folder);
        r->p->folder = from_file(r, text);
        if (!r->p->folder) return tern_fail_memory(r->err, text.len);
        return tern_folder_is(r->p->folder) ? TERN_OK : wrong(r, v, "\"cwd\" is not a folder");
    }
    char complaint[160];
    snprintf(complaint, sizeof complaint, "there is no member '%.*s' of tools",
             name.len < 80 ? (int)name.len : 80, name.ptr);
    return wrong(r, v, complaint);
}

static tern_status read_members(reading *r) {
    const tern_json *root = tern_json_root(r->doc);
    if (!tern_json_is(root, TERN_JSON_OBJECT)) return wrong(r, root, "a tool is an object");
    child_env_add_usual(&r->p->env);
    // Passed variables come first, so that values in the file override them.
    const tern_json *passed = tern_json_get(r->doc, root, "pass_env");
    if (passed) TERN_TRY(read_passed(r, passed));
    for (const tern_json *key = tern_json_first(r->doc, root); key;
         key = tern_json_next(r->doc, root, key)) {
        if (tern_str_is(tern_json_str(key), "pass_env")) continue;
        TERN_TRY(read_member(r, tern_json_str(key), tern_json_value_of(r->doc, key)));
    }
    if (!r->name.len) return wrong(r, root, "\"name\" is missing");
    if (!r->p->argv) return wrong(r, root, "\"command\" is missing");
    return r->p->env.failed || r->parameters.failed ? tern_fail_memory(r->err, 0) : TERN_OK;
}

// ---- A call ------------------------------------------------------------------------------------

typedef struct running {
    program *p;
    child c;
    tern_strbuf in, out, errors;
    size_t n_in; // bytes written
    uint64_t n_out;
    const char *ended; // why it was ended; NULL: it was not
} running;

static void exchange_bytes(running *r) {
    size_t n;
    const bool writes = r->n_in < r->in.len;
    child_wait(&r->c, writes, 0.02);
    if (child_read(&r->c, CHILD_OUT, &r->out, r->p->output_bytes, &n)) r->n_out += n;
    child_read(&r->c, CHILD_ERRORS, &r->errors, ERRORS_MAX, &n);
    if (writes && child_write(&r->c, r->in.ptr + r->n_in, r->in.len - r->n_in, &n)) r->n_in += n;
    if (r->n_in == r->in.len) child_close(&r->c, CHILD_IN);
}

// Reads what it wrote before it ended, but does not wait for processes that it left behind.
static void take_rest(running *r) {
    size_t n = 1;
    while (r->n_out < DRAINED_MAX && n &&
           child_read(&r->c, CHILD_OUT, &r->out, r->p->output_bytes, &n))
        r->n_out += n;
    for (n = 1; n && child_read(&r->c, CHILD_ERRORS, &r->errors, ERRORS_MAX, &n);) {
        if (r->errors.len >= ERRORS_MAX) break;
    }
}

static void wait_for_end(running *r, double end) {
    while (!child_has_ended(&r->c)) {
        exchange_bytes(r);
        if (!child_is_open(&r->c, CHILD_OUT) && !child_is_open(&r->c, CHILD_ERRORS))
            tern_sleep(0.005); // nothing to wait on
        if (agent_was_stopped(r->p->tools))
            r->ended = "it was stopped";
        else if (tern_seconds() > end)
            r->ended = "it took too long";
        else if (r->n_out > DRAINED_MAX)
            r->ended = "it wrote too much";
        if (r->ended) return;
    }
    take_rest(r);
}

static bool tell(running *r, tern_text_fn put, void *user) {
    tern_strbuf *t = &r->out;
    bool ok = !r->ended && !r->c.signal && r->c.exit_status == 0;
    size_t kept = t->len;
    if (r->n_out > kept)
        tern_strbuf_printf(t, "\n[cut: it wrote %llu bytes]", (unsigned long long)r->n_out);
    if (!ok && r->errors.len) {
        tern_strbuf_puts(t, t->len ? "\n[errors:]\n" : "");
        tern_strbuf_append(t, r->errors.ptr, r->errors.len);
    }
    const char *between = t->len ? "\n" : "";
    if (r->ended)
        tern_strbuf_printf(t, "%s[the program was ended: %s]", between, r->ended);
    else if (r->c.signal)
        tern_strbuf_printf(t, "%s[the program was ended by signal %d]", between, r->c.signal);
    else if (!ok)
        tern_strbuf_printf(t, "%s[exit status %d]", between, r->c.exit_status);
    else if (!t->len)
        tern_strbuf_puts(t, "[no output]");
    agent_tool_put(put, user, t);
    return ok;
}

static bool run_program(void *user, const tern_agent_call *call, tern_text_fn put, void *put_user) {
    running r = {.p = user};
    tern_error err = {0};
    const child_desc desc = {.argv = (const char *const *)r.p->argv,
                             .folder = r.p->folder,
                             .env = (const char *const *)r.p->env.list};
    double seconds = r.p->timeout;
    if (call->seconds_left > 0 && call->seconds_left < seconds) seconds = call->seconds_left;
    tern_strbuf_puts(&r.in, call->arguments);
    tern_strbuf_putc(&r.in, '\n');
    bool ok = false;
    if (r.in.failed)
        agent_tool_fail(put, put_user, "out of memory");
    else if (child_start(&r.c, &desc, &err) != TERN_OK)
        agent_tool_fail(put, put_user, "%s", err.message);
    else {
        wait_for_end(&r, tern_seconds() + seconds);
        child_kill(&r.c);
        ok = tell(&r, put, put_user);
    }
    tern_strbuf_free(&r.in);
    tern_strbuf_free(&r.out);
    tern_strbuf_free(&r.errors);
    return ok;
}

static tern_status add(agent_tools *t, reading *r, tern_error *err) {
    agent_tool *tool;
    char *name = tern_strndup(TERN_MEM_MISC, r->name.ptr, r->name.len);
    char *description = tern_strndup(TERN_MEM_MISC, r->description.len ? r->description.ptr : "",
                                     r->description.len);
    tern_status status = TERN_OK;
    if (!name || !description) status = tern_fail_memory(err, r->name.len + r->description.len);
    if (status == TERN_OK)
        status = agent_tools_add(t, name, description, r->parameters.len ? r->parameters.ptr : NULL,
                                 &tool, err);
    if (status == TERN_OK) {
        tool->from = r->p->path;
        tool->run = run_program;
        tool->user = r->p;
        tool->free = free_program;
    }
    tern_free(name);
    tern_free(description);
    return status;
}

tern_status agent_add_program(agent_tools *t, const char *path, tern_error *err) {
    tern_strbuf text = {0};
    tern_json_doc doc = {0};
    program *p = tern_alloc(TERN_MEM_MISC, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    *p = (program){.timeout = TIMEOUT, .output_bytes = OUTPUT_MAX, .tools = t};
    p->path = tern_strdup(TERN_MEM_MISC, path);
    tern_status status =
        p->path ? agent_read_file(&text, path, FILE_MAX, err) : tern_fail_memory(err, strlen(path));
    if (status == TERN_OK) {
        status = tern_json_parse(&doc, tern_strbuf_text(&text), text.len, err);
        if (status != TERN_OK) tern_fail_prefix(err, status, path);
    }
    reading r = {.p = p, .doc = &doc, .err = err};
    if (status == TERN_OK) status = read_members(&r);
    if (status == TERN_OK) {
        status = add(t, &r, err);
        if (status == TERN_ERR_ARGUMENT) tern_fail_prefix(err, status, path);
    }
    if (status != TERN_OK) free_program(p);
    tern_strbuf_free(&r.parameters);
    tern_json_free(&doc);
    tern_strbuf_free(&text);
    return status;
}
