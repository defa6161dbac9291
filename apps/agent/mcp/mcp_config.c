// The MCP servers of --mcp. A file has the format that other programs use, too: {"mcpServers":
// {"NAME": {"command": ..., "args": [...], "env": {...}} or {"url": ..., "headers": {...}}}}.
#include <stdlib.h>
#include <string.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/alloc.h"

#define CONFIG_MAX ((size_t)1 << 20)

typedef struct words { // [n + 1] ends with NULL
    char **list;
    size_t n, capacity;
    bool failed;
} words;

static void add_word(words *w, const char *text, size_t n) {
    char *copy = tern_strndup(TERN_MEM_MISC, text, n);
    if (!copy || tern_array_reserve(TERN_MEM_MISC, &w->list, &w->capacity, w->n, 2) != 0) {
        tern_free(copy);
        w->failed = true;
        return;
    }
    w->list[w->n++] = copy;
    w->list[w->n] = NULL;
}

// ---- A file ------------------------------------------------------------------------------------

typedef struct reading {
    const char *path;
    const tern_json_doc *doc;
    tern_error *err;
} reading;

static tern_status wrong(const reading *r, const tern_json *at, const char *what) {
    return tern_fail(r->err, TERN_ERR_FORMAT, "%s:%u: %s", r->path, at ? (unsigned)at->line : 1u,
                     what);
}

static bool is_text(tern_str s) { return s.ptr && !(s.len && memchr(s.ptr, 0, s.len)); }

// "${NAME}" is replaced by this program's environment variable, so that the file needs no keys.
static bool expand(tern_str s, tern_strbuf *out) {
    for (size_t i = 0; i < s.len; i++) {
        const char *end = s.len - i > 3 && s.ptr[i] == '$' && s.ptr[i + 1] == '{'
                              ? memchr(s.ptr + i, '}', s.len - i)
                              : NULL;
        if (!end) {
            tern_strbuf_putc(out, s.ptr[i]);
            continue;
        }
        char *name = tern_strndup(TERN_MEM_MISC, s.ptr + i + 2, (size_t)(end - s.ptr) - i - 2);
        const char *value = name ? getenv(name) : NULL;
        if (value) tern_strbuf_puts(out, value);
        tern_free(name);
        if (!value) return false;
        i = (size_t)(end - s.ptr);
    }
    return !out->failed;
}

// The members of an object whose values are strings.
static tern_status read_pairs(const reading *r, const tern_json *o, const char *complaint,
                              void (*put)(void *to, tern_str name, tern_str value), void *to) {
    if (o && !tern_json_is(o, TERN_JSON_OBJECT)) return wrong(r, o, complaint);
    for (const tern_json *key = o ? tern_json_first(r->doc, o) : NULL; key;
         key = tern_json_next(r->doc, o, key)) {
        tern_str name = tern_json_str(key), value = tern_json_str(tern_json_value_of(r->doc, key));
        tern_strbuf text = {0};
        if (!name.len || !is_text(name) || !is_text(value)) return wrong(r, key, complaint);
        bool ok = expand(value, &text);
        if (ok) put(to, name, (tern_str){tern_strbuf_text(&text), text.len});
        tern_strbuf_free(&text);
        if (!ok) return wrong(r, key, "it names a variable that is not set");
    }
    return TERN_OK;
}

static void put_env(void *to, tern_str name, tern_str value) { child_env_set(to, name, value); }

static void put_field(void *to, tern_str name, tern_str value) {
    tern_strbuf line = {0};
    words *w = to;
    tern_strbuf_append(&line, name.ptr, name.len);
    tern_strbuf_puts(&line, ": ");
    tern_strbuf_append(&line, value.ptr, value.len);
    // A line's end would begin another field.
    for (size_t i = 0; i < line.len; i++)
        if ((unsigned char)line.ptr[i] < 32) line.ptr[i] = ' ';
    if (line.failed)
        w->failed = true;
    else
        add_word(w, line.ptr, line.len);
    tern_strbuf_free(&line);
}

static tern_status add_entry(agent_tools *t, const reading *r, const char *name,
                             const tern_json *o) {
    tern_str command = tern_json_str(tern_json_get(r->doc, o, "command"));
    tern_str url = tern_json_str(tern_json_get(r->doc, o, "url"));
    const tern_json *args = tern_json_get(r->doc, o, "args");
    words argv = {0}, fields = {0}, address = {0};
    child_env env = {0};
    if (!is_text(command) == !is_text(url) || (command.ptr && !command.len))
        return wrong(r, o, "a server has a \"command\" or a \"url\"");
    if (args && !tern_json_is(args, TERN_JSON_ARRAY))
        return wrong(r, args, "\"args\" must be texts");
    child_env_add_usual(&env);
    tern_status status = read_pairs(r, tern_json_get(r->doc, o, "env"),
                                    "\"env\" must be an object of texts", put_env, &env);
    if (status == TERN_OK)
        status = read_pairs(r, tern_json_get(r->doc, o, "headers"),
                            "\"headers\" must be an object of texts", put_field, &fields);
    if (command.ptr)
        add_word(&argv, command.ptr, command.len);
    else
        add_word(&address, url.ptr, url.len);
    for (const tern_json *e = args ? tern_json_first(r->doc, args) : NULL; e && status == TERN_OK;
         e = tern_json_next(r->doc, args, e)) {
        tern_str s = tern_json_str(e);
        if (is_text(s))
            add_word(&argv, s.ptr, s.len);
        else
            status = wrong(r, e, "\"args\" must be texts");
    }
    if (status == TERN_OK && (argv.failed || fields.failed || address.failed || env.failed))
        status = tern_fail_memory(r->err, 0);
    const mcp_server_desc desc = {.name = name,
                                  .argv = (const char *const *)argv.list,
                                  .env = (const char *const *)env.list,
                                  .url = address.n ? address.list[0] : NULL,
                                  .fields = (const char *const *)fields.list,
                                  .n_fields = fields.n};
    if (status == TERN_OK) status = agent_add_server(t, &desc, r->err);
    agent_free_words(argv.list);
    agent_free_words(fields.list);
    agent_free_words(address.list);
    child_env_free(&env);
    return status;
}

static tern_status add_entries(agent_tools *t, const reading *r) {
    const tern_json *list = tern_json_get(r->doc, tern_json_root(r->doc), "mcpServers");
    if (!tern_json_is(list, TERN_JSON_OBJECT))
        return wrong(r, tern_json_root(r->doc), "it must be an object with \"mcpServers\"");
    for (const tern_json *key = tern_json_first(r->doc, list); key;
         key = tern_json_next(r->doc, list, key)) {
        tern_str s = tern_json_str(key);
        const tern_json *o = tern_json_value_of(r->doc, key);
        if (!tern_json_is(o, TERN_JSON_OBJECT)) return wrong(r, o, "a server is an object");
        if (tern_json_bool(tern_json_get(r->doc, o, "disabled"), false)) continue;
        char *name = is_text(s) ? tern_strndup(TERN_MEM_MISC, s.ptr, s.len) : NULL;
        if (!name) return wrong(r, key, "a server without a name");
        tern_status status = add_entry(t, r, name, o);
        tern_free(name);
        TERN_TRY(status);
    }
    return TERN_OK;
}

static tern_status add_file(agent_tools *t, const char *path, tern_error *err) {
    tern_strbuf text = {0};
    tern_json_doc doc = {0};
    tern_status status = agent_read_file(&text, path, CONFIG_MAX, err);
    if (status == TERN_OK) {
        status = tern_json_parse(&doc, tern_strbuf_text(&text), text.len, err);
        if (status != TERN_OK) tern_fail_prefix(err, status, path);
    }
    const reading r = {path, &doc, err};
    if (status == TERN_OK) status = add_entries(t, &r);
    tern_json_free(&doc);
    tern_strbuf_free(&text);
    return status;
}

// ---- Words -------------------------------------------------------------------------------------

// "NAME=", unless it is part of a path.
static const char *after_name(const char *what) {
    size_t n = strspn(what, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n && what[n] == '=' ? what + n + 1 : NULL;
}

tern_status agent_add_servers(agent_tools *t, const char *what, tern_error *err) {
    const char *rest = after_name(what);
    if (!rest) return add_file(t, what, err);
    bool is_address = !strncmp(rest, "http://", 7) || !strncmp(rest, "https://", 8);
    char *name = tern_strndup(TERN_MEM_MISC, what, (size_t)(rest - what) - 1);
    char **argv = NULL;
    child_env env = {0};
    tern_status status = name ? TERN_OK : tern_fail_memory(err, strlen(what));
    if (status == TERN_OK && !is_address) {
        status = agent_split_words(rest, &argv, err);
        if (status == TERN_OK) child_env_add_usual(&env);
        if (env.failed) status = tern_fail_memory(err, 0);
    }
    const mcp_server_desc desc = {.name = name,
                                  .argv = (const char *const *)argv,
                                  .env = (const char *const *)env.list,
                                  .url = is_address ? rest : NULL};
    if (status == TERN_OK) status = agent_add_server(t, &desc, err);
    agent_free_words(argv);
    child_env_free(&env);
    tern_free(name);
    return status;
}
