// The list of tools, and functions that tools share. See tools.h.
#include "apps/agent/tools.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/utf8.h"

static bool is_taken(const agent_tools *t, const char *name) {
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->list[i].name, name)) return true;
    return false;
}

bool agent_tools_make_distinct(const agent_tools *t, char name[AGENT_NAME_BYTES]) {
    const size_t n = strlen(name);
    const bool was_taken = is_taken(t, name);
    // With many clashing names, only a few numbers are tried.
    for (size_t number = 2; is_taken(t, name); number += number < 10 || number > t->n ? 1 : t->n) {
        char end[24];
        size_t n_end = (size_t)snprintf(end, sizeof end, "_%zu", number);
        size_t at = n + n_end < AGENT_NAME_BYTES ? n : AGENT_NAME_BYTES - 1 - n_end;
        memcpy(name + at, end, n_end + 1);
    }
    return was_taken;
}

tern_status agent_tools_add(agent_tools *t, const char *name, const char *description,
                            const char *parameters, agent_tool **out, tern_error *err) {
    if (is_taken(t, name))
        return tern_fail(err, TERN_ERR_ARGUMENT, "two tools are called '%.100s'", name);
    if (tern_array_reserve(TERN_MEM_MISC, &t->list, &t->capacity, t->n, 1) != 0)
        return tern_fail_memory(err, sizeof **out);
    agent_tool tool = {.name = tern_strdup(TERN_MEM_MISC, name),
                       .description = tern_strdup(TERN_MEM_MISC, description ? description : ""),
                       .parameters = parameters ? tern_strdup(TERN_MEM_MISC, parameters) : NULL,
                       .from = ""};
    if (!tool.name || !tool.description || (parameters && !tool.parameters)) {
        tern_free(tool.name);
        tern_free(tool.description);
        tern_free(tool.parameters);
        return tern_fail_memory(err, strlen(name));
    }
    *out = &t->list[t->n++];
    **out = tool;
    return TERN_OK;
}

void agent_tools_free(agent_tools *t) {
    for (size_t i = 0; i < t->n; i++) {
        agent_tool *tool = &t->list[i];
        if (tool->free) tool->free(tool->user);
        tern_free(tool->name);
        tern_free(tool->description);
        tern_free(tool->parameters);
    }
    tern_free(t->list);
    t->list = NULL;
    t->n = t->capacity = 0;
}

tern_status agent_read_file(tern_strbuf *out, const char *path, size_t n_most, tern_error *err) {
    int fd;
    uint64_t n = 0;
    TERN_TRY(tern_file_open_regular(&fd, path, &n, err));
    tern_status status = TERN_OK;
    if (n > n_most)
        status =
            tern_fail(err, TERN_ERR_FORMAT, "%s: %llu bytes, more than the %zu that it may have",
                      path, (unsigned long long)n, n_most);
    char *bytes = status == TERN_OK ? tern_alloc(TERN_MEM_MISC, (size_t)n + 1) : NULL;
    if (status == TERN_OK && !bytes) status = tern_fail_memory(err, (size_t)n);
    int64_t got = status == TERN_OK ? tern_fd_read(fd, bytes, (size_t)n) : 0;
    if (got < 0) status = tern_fail(err, TERN_ERR_IO, "%s: it cannot be read", path);
    size_t n_mark = status == TERN_OK ? tern_utf8_mark(bytes, (size_t)got) : 0;
    if (status == TERN_OK) tern_strbuf_append(out, bytes + n_mark, (size_t)got - n_mark);
    if (status == TERN_OK && out->failed) status = tern_fail_memory(err, (size_t)n);
    tern_free(bytes);
    tern_fd_close(fd);
    return status;
}

bool agent_tool_fail(tern_text_fn put, void *put_user, const char *format, ...) {
    tern_strbuf text = {0};
    va_list args;
    va_start(args, format);
    tern_strbuf_vprintf(&text, format, args);
    va_end(args);
    put(put_user, tern_strbuf_text(&text), text.len);
    tern_strbuf_free(&text);
    return false;
}

bool agent_tool_put(tern_text_fn put, void *put_user, const tern_strbuf *text) {
    put(put_user, tern_strbuf_text(text), text->len);
    return true;
}
