// Pure functions for the carriers of MCP: server-sent events, values of fields, words.
#include <string.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/alloc.h"

// ---- Server-sent events ------------------------------------------------------------------------

static void take_line(mcp_events *e) {
    const char *s = tern_strbuf_text(&e->line);
    if (e->line.len >= 5 && !memcmp(s, "data:", 5)) {
        size_t from = e->line.len > 5 && s[5] == ' ' ? 6 : 5;
        if (e->has_data) tern_strbuf_putc(&e->data, '\n');
        tern_strbuf_append(&e->data, s + from, e->line.len - from);
        e->has_data = true;
    }
    tern_strbuf_clear(&e->line);
}

bool mcp_events_put(mcp_events *e, char c) {
    bool after_cr = e->after_cr;
    e->after_cr = c == '\r';
    if (c != '\n' && c != '\r') {
        if (e->line.len + e->data.len < MCP_MESSAGE_MAX) tern_strbuf_putc(&e->line, c);
        return false;
    }
    if (c == '\n' && after_cr) return false; // CR has ended the line already
    bool is_end = e->line.len == 0;
    if (!is_end) take_line(e);
    if (!is_end || !e->has_data) return false;
    e->has_data = false;
    return true;
}

void mcp_events_free(mcp_events *e) {
    tern_strbuf_free(&e->line);
    tern_strbuf_free(&e->data);
}

// ---- Fields of HTTP ----------------------------------------------------------------------------

static bool is_plain(tern_str s) {
    if (!s.len || s.ptr[0] == ' ' || s.ptr[s.len - 1] == ' ') return false;
    if (s.len >= 2 && !memcmp(s.ptr, "=?", 2)) return false;
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 32 || (unsigned char)s.ptr[i] > 126) return false;
    return true;
}

void mcp_field_value(tern_str text, tern_strbuf *out) {
    if (is_plain(text)) {
        tern_strbuf_append(out, text.ptr, text.len);
        return;
    }
    tern_strbuf_puts(out, "=?base64?");
    tern_strbuf_base64(out, text.ptr, text.len);
    tern_strbuf_puts(out, "?=");
}

// ---- Words -------------------------------------------------------------------------------------

void agent_free_words(char **words) {
    for (char **at = words; at && *at; at++) tern_free(*at);
    tern_free(words);
}

// One word, from line[*at] on; NULL: no memory, or a quote is not closed (*is_open).
static char *take_word(const char *line, size_t *at, bool *is_open) {
    tern_strbuf word = {0};
    char quote = 0;
    size_t i = *at;
    for (; line[i] && (quote || !strchr(" \t\n", line[i])); i++) {
        if (quote ? line[i] == quote : line[i] == '"' || line[i] == '\'')
            quote = quote ? 0 : line[i];
        else if (line[i] == '\\' && quote != '\'' && line[i + 1])
            tern_strbuf_putc(&word, line[++i]);
        else
            tern_strbuf_putc(&word, line[i]);
    }
    *at = i;
    *is_open = quote != 0;
    char *copy =
        *is_open || word.failed ? NULL : tern_strdup(TERN_MEM_MISC, tern_strbuf_text(&word));
    tern_strbuf_free(&word);
    return copy;
}

tern_status agent_split_words(const char *line, char ***words, tern_error *err) {
    char **list = NULL;
    size_t n = 0, capacity = 0, at = 0;
    bool is_open = false, ok = true;
    *words = NULL;
    while (ok) {
        while (line[at] && strchr(" \t\n", line[at])) at++;
        ok = tern_array_reserve(TERN_MEM_MISC, &list, &capacity, n, 2) == 0;
        if (!ok || !line[at]) break;
        ok = (list[n] = take_word(line, &at, &is_open)) != NULL;
        n += ok;
        if (list) list[n] = NULL;
    }
    if (ok && n) {
        *words = list;
        return TERN_OK;
    }
    agent_free_words(list);
    if (is_open) return tern_fail(err, TERN_ERR_ARGUMENT, "a quote has no end in: %.200s", line);
    return ok ? tern_fail(err, TERN_ERR_ARGUMENT, "there is no command")
              : tern_fail_memory(err, strlen(line));
}
