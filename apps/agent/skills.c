// Skills: folders with a SKILL.md, whose front matter has a name and a description. The model gets
// these two, and reads the text with a tool when the task calls for it.
//
//     ---
//     name: release-notes
//     description: How release notes are written here
//     ---
//     Begin with ...
#include <string.h>
#include "apps/agent/tools.h"
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "base/os/os_file.h"
#include "base/utf8.h"

#define SKILL_BYTES       ((size_t)1 << 20)
#define NAME_BYTES        64
#define DESCRIPTION_BYTES 1024

// ---- Front matter ------------------------------------------------------------------------------

void skill_free_head(skill_head *h) {
    tern_strbuf_free(&h->name);
    tern_strbuf_free(&h->description);
    *h = (skill_head){0};
}

static tern_str trimmed(tern_str s) {
    while (s.len && strchr(" \t\r", s.ptr[0])) s.ptr++, s.len--;
    while (s.len && strchr(" \t\r", s.ptr[s.len - 1])) s.len--;
    return s;
}

// A YAML string on one line: plain or quoted.
static void put_scalar(tern_str s, tern_strbuf *out) {
    char quote = s.len > 1 && (s.ptr[0] == '"' || s.ptr[0] == '\'') && s.ptr[s.len - 1] == s.ptr[0]
                     ? s.ptr[0]
                     : 0;
    size_t end = quote ? s.len - 1 : s.len;
    for (size_t i = quote ? 1 : 0; i < end; i++) {
        bool escapes = (quote == '"' && s.ptr[i] == '\\' && i + 1 < end) ||
                       (quote == '\'' && s.ptr[i] == '\'' && i + 1 < end);
        if (escapes) i++;
        tern_strbuf_putc(out, quote == '"' && escapes && s.ptr[i] == 'n' ? ' ' : s.ptr[i]);
    }
}

static tern_str next_line(const char *text, size_t n, size_t *at) {
    size_t from = *at;
    const char *end = from < n ? memchr(text + from, '\n', n - from) : NULL;
    *at = end ? (size_t)(end - text) + 1 : n;
    size_t len = (end ? (size_t)(end - text) : n) - from;
    while (len && text[from + len - 1] == '\r') len--;
    return (tern_str){text + from, len};
}

static bool has_key(tern_str line, const char *key, tern_str *value) {
    size_t n = strlen(key);
    if (line.len <= n || memcmp(line.ptr, key, n) || line.ptr[n] != ':') return false;
    *value = trimmed((tern_str){line.ptr + n + 1, line.len - n - 1});
    return true;
}

// Indented lines continue the value before them, as in YAML's "description: >".
static void read_value(tern_str first, const char *text, size_t n, size_t *at, tern_strbuf *out) {
    bool is_folded = first.len && (first.ptr[0] == '>' || first.ptr[0] == '|');
    tern_strbuf all = {0};
    if (!is_folded) tern_strbuf_append(&all, first.ptr, first.len);
    for (size_t next = *at; next < n; *at = next) {
        tern_str line = next_line(text, n, &next);
        if (!line.len || (line.ptr[0] != ' ' && line.ptr[0] != '\t')) break;
        line = trimmed(line);
        if (all.len) tern_strbuf_putc(&all, ' ');
        tern_strbuf_append(&all, line.ptr, line.len);
    }
    put_scalar((tern_str){tern_strbuf_text(&all), all.len}, out);
    out->failed |= all.failed;
    tern_strbuf_free(&all);
}

tern_status skill_read_head(skill_head *out, const char *text, size_t n, tern_error *err) {
    size_t at = tern_utf8_mark(text, n);
    bool has_end = false;
    *out = (skill_head){0};
    if (!tern_str_is(trimmed(next_line(text, n, &at)), "---"))
        return tern_fail(err, TERN_ERR_FORMAT, "it does not begin with front matter, '---'");
    while (at < n && !has_end) {
        tern_str line = next_line(text, n, &at), value;
        has_end = tern_str_is(trimmed(line), "---");
        tern_strbuf *to = has_key(line, "name", &value)          ? &out->name
                          : has_key(line, "description", &value) ? &out->description
                                                                 : NULL;
        if (has_end || !to) continue;
        tern_strbuf_clear(to);
        read_value(value, text, n, &at, to);
    }
    out->body = at;
    const char *missing = !has_end                ? "an end, '---'"
                          : !out->name.len        ? "a name"
                          : !out->description.len ? "a description"
                                                  : NULL;
    if (missing) return tern_fail(err, TERN_ERR_FORMAT, "its front matter has not %s", missing);
    if (out->name.len > NAME_BYTES || out->description.len > DESCRIPTION_BYTES)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "its name has more than %d bytes, or its description more than %d",
                         NAME_BYTES, DESCRIPTION_BYTES);
    if (out->name.failed || out->description.failed) return tern_fail_memory(err, n);
    if (memchr(out->name.ptr, 0, out->name.len) ||
        memchr(out->description.ptr, 0, out->description.len))
        return tern_fail(err, TERN_ERR_FORMAT, "its front matter has a zero byte");
    return TERN_OK;
}

// ---- All of them -------------------------------------------------------------------------------

typedef struct skill {
    char *name, *path; // of its SKILL.md
} skill;

typedef struct skills {
    skill *list; // [n]
    size_t n, capacity;
} skills;

static void free_skills(void *user) {
    skills *s = user;
    for (size_t i = 0; i < s->n; i++) {
        tern_free(s->list[i].name);
        tern_free(s->list[i].path);
    }
    tern_free(s->list);
    tern_free(s);
}

// Takes ownership of the path.
static tern_status add_skill(skills *s, char *path, tern_strbuf *told, tern_error *err) {
    tern_strbuf text = {0};
    skill_head head = {0};
    tern_status status = agent_read_file(&text, path, SKILL_BYTES, err);
    if (status == TERN_OK) {
        status = skill_read_head(&head, tern_strbuf_text(&text), text.len, err);
        if (status != TERN_OK) tern_fail_prefix(err, status, path);
    }
    for (size_t i = 0; i < s->n && status == TERN_OK; i++)
        if (!strcmp(s->list[i].name, head.name.ptr))
            status = tern_fail(err, TERN_ERR_ARGUMENT, "%s: a skill is called '%s' already", path,
                               head.name.ptr);
    if (status == TERN_OK &&
        tern_array_reserve(TERN_MEM_MISC, &s->list, &s->capacity, s->n, 1) != 0)
        status = tern_fail_memory(err, sizeof *s->list);
    char *name = status == TERN_OK ? tern_strdup(TERN_MEM_MISC, head.name.ptr) : NULL;
    if (status == TERN_OK && !name) status = tern_fail_memory(err, head.name.len);
    if (status == TERN_OK) {
        s->list[s->n++] = (skill){name, path};
        tern_strbuf_printf(told, "- %s: %s\n", name, head.description.ptr);
    } else {
        tern_free(path);
    }
    skill_free_head(&head);
    tern_strbuf_free(&text);
    return status;
}

static char *skill_path(const char *folder, const char *name) {
    char *inner = name ? tern_path_join(folder, name) : NULL;
    char *path = name && !inner ? NULL : tern_path_join(inner ? inner : folder, "SKILL.md");
    tern_free(inner);
    return path;
}

static tern_status add_folder(skills *s, const char *folder, tern_strbuf *told, tern_error *err) {
    tern_names names = {0};
    char *own = skill_path(folder, NULL);
    if (!own) return tern_fail_memory(err, strlen(folder));
    if (tern_path_look(own) == TERN_PATH_FILE) return add_skill(s, own, told, err);
    tern_free(own);
    size_t before = s->n;
    tern_status status = tern_folder_list(&names, folder, "", "", err);
    for (size_t i = 0; i < names.n && status == TERN_OK; i++) {
        char *path = skill_path(folder, names.list[i]);
        if (!path)
            status = tern_fail_memory(err, strlen(folder));
        else if (tern_path_look(path) == TERN_PATH_FILE)
            status = add_skill(s, path, told, err);
        else
            tern_free(path);
    }
    tern_names_free(&names);
    if (status == TERN_OK && s->n == before)
        status = tern_fail(err, TERN_ERR_IO, "%s: no folder in it has a SKILL.md", folder);
    return status;
}

static bool run_read_skill(void *user, const tern_agent_call *call, tern_text_fn put,
                           void *put_user) {
    const skills *s = user;
    tern_json_doc doc = {0};
    tern_strbuf text = {0};
    tern_error err = {0};
    skill_head head = {0};
    const skill *found = NULL;
    tern_str name = {0};
    if (tern_json_parse(&doc, call->arguments, strlen(call->arguments), NULL) == TERN_OK)
        name = tern_json_str(tern_json_get(&doc, tern_json_root(&doc), "name"));
    for (size_t i = 0; i < s->n; i++)
        if (name.ptr && tern_str_is(name, s->list[i].name)) found = &s->list[i];
    bool ok = found && agent_read_file(&text, found->path, SKILL_BYTES, &err) == TERN_OK &&
              skill_read_head(&head, tern_strbuf_text(&text), text.len, &err) == TERN_OK;
    if (ok)
        put(put_user, text.ptr + head.body, text.len - head.body);
    else
        agent_tool_fail(put, put_user, "%s", found ? err.message : "there is no such skill");
    skill_free_head(&head);
    tern_strbuf_free(&text);
    tern_json_free(&doc);
    return ok;
}

static tern_status add_tool(agent_tools *t, skills *s, tern_error *err) {
    tern_strbuf schema = {0};
    tern_json_writer w = {.out = &schema};
    agent_tool *tool;
    tern_strbuf_puts(&schema,
                     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",");
    tern_json_open(&w, "enum", '[');
    for (size_t i = 0; i < s->n; i++) tern_json_put_text(&w, NULL, s->list[i].name);
    tern_json_close(&w, ']');
    tern_strbuf_puts(&schema, "}},\"required\":[\"name\"],\"additionalProperties\":false}");
    tern_status status =
        schema.failed ? tern_fail_memory(err, schema.len)
                      : agent_tools_add(t, "read_skill",
                                        "Reads one of your skills, before you do what it is for.",
                                        schema.ptr, &tool, err);
    tern_strbuf_free(&schema);
    if (status != TERN_OK) return status;
    tool->is_harmless = true;
    tool->run = run_read_skill;
    tool->user = s;
    tool->free = free_skills;
    return TERN_OK;
}

tern_status agent_add_skills(agent_tools *t, const char *const *folders, size_t n_folders,
                             tern_text_fn put, void *put_user, tern_error *err) {
    if (n_folders == 0) return TERN_OK;
    tern_strbuf told = {0};
    skills *s = tern_alloc(TERN_MEM_MISC, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    tern_status status = TERN_OK;
    for (size_t i = 0; i < n_folders && status == TERN_OK; i++)
        status = add_folder(s, folders[i], &told, err);
    if (status == TERN_OK && told.failed) status = tern_fail_memory(err, told.len);
    if (status == TERN_OK) status = add_tool(t, s, err);
    if (status == TERN_OK)
        put(put_user, tern_strbuf_text(&told), told.len);
    else
        free_skills(s);
    tern_strbuf_free(&told);
    return status;
}
