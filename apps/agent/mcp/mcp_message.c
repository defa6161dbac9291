// A server's output: its messages as JSON, and the text that models read of its tools and results.
// From a message that is nested too deeply only the parts that are too deep are dropped.
#include <stdio.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/utf8.h"

#define DESCRIPTION_MAX ((size_t)4 << 10)          // bytes that the model reads of it
#define DEPTH_MOST      (TERN_JSON_DEPTH_MAX - 16) // tools are put into nested JSON

// A copy in which values that are nested too deeply are replaced by MCP_TOO_DEEP. False: there are
// none.
static bool prune(const char *text, size_t n, tern_strbuf *out) {
    size_t depth = 0, from = 0;
    bool in_string = false, escaped = false, any = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            in_string = c != '"' || escaped;
            escaped = c == '\\' && !escaped;
        } else if (c == '"') {
            in_string = true;
        } else if ((c == '{' || c == '[') && ++depth == DEPTH_MOST) {
            tern_strbuf_append(out, text + from, i - from);
            tern_strbuf_puts(out, "\"" MCP_TOO_DEEP "\"");
            any = true;
        } else if ((c == '}' || c == ']') && depth && depth-- == DEPTH_MOST) {
            from = i + 1;
        }
    }
    if (depth < DEPTH_MOST) tern_strbuf_append(out, text + from, n - from);
    return any;
}

tern_status mcp_parse(tern_json_doc *doc, const char *text, size_t n, tern_strbuf *pruned,
                      tern_error *err) {
    tern_status status = tern_json_parse(doc, text, n, err);
    if (status != TERN_ERR_FORMAT) return status;
    tern_strbuf_clear(pruned);
    if (!prune(text, n, pruned)) return status; // the error was another one
    if (pruned->failed) return tern_fail_memory(err, n);
    return tern_json_parse(doc, pruned->ptr, pruned->len, err);
}

// ---- Tools -------------------------------------------------------------------------------------

bool mcp_tool_name(const char *server, tern_str name, char out[AGENT_NAME_BYTES]) {
    size_t n = (size_t)snprintf(out, AGENT_NAME_BYTES, "%s_", server), i = 0;
    bool is_same = true;
    for (; i < name.len && n < AGENT_NAME_BYTES - 1; i++) {
        if (((unsigned char)name.ptr[i] & 0xC0) == 0x80) continue; // already replaced
        char l = (char)(name.ptr[i] | 32);
        bool is_plain = (l >= 'a' && l <= 'z') || (name.ptr[i] >= '0' && name.ptr[i] <= '9') ||
                        name.ptr[i] == '_' || name.ptr[i] == '-';
        is_same &= (unsigned char)name.ptr[i] < 0x80; // a replaced character loses information
        out[n++] = is_plain ? name.ptr[i] : '_';
    }
    out[n] = 0;
    return is_same && i == name.len;
}

void mcp_tool_description(tern_strbuf *out, const tern_json_doc *doc, const tern_json *tool,
                          tern_str name, bool has_name) {
    tern_str text = tern_json_str(tern_json_get(doc, tool, "description"));
    if (!text.len) text = tern_json_str(tern_json_get(doc, tool, "title"));
    if (!has_name)
        tern_strbuf_append(out, name.ptr,
                           name.len < 400 ? name.len : tern_utf8_complete_prefix(name.ptr, 400));
    if (!has_name && text.len) tern_strbuf_puts(out, ": ");
    size_t n = text.len <= DESCRIPTION_MAX ? text.len
                                           : tern_utf8_complete_prefix(text.ptr, DESCRIPTION_MAX);
    if (text.len) tern_strbuf_append(out, text.ptr, n);
    if (n < text.len) tern_strbuf_puts(out, " ...");
}

// ---- Results -----------------------------------------------------------------------------------

static void put_other(tern_strbuf *out, const tern_json_doc *doc, const tern_json *part) {
    tern_str type = tern_json_str(tern_json_get(doc, part, "type"));
    const tern_json *resource = tern_json_get(doc, part, "resource");
    tern_str text = tern_json_str(tern_json_get(doc, resource, "text"));
    tern_str uri = tern_json_str(tern_json_get(doc, resource ? resource : part, "uri"));
    tern_str kind = tern_json_str(tern_json_get(doc, resource ? resource : part, "mimeType"));
    if (text.ptr) {
        tern_strbuf_append(out, text.ptr, text.len);
        return;
    }
    tern_strbuf_putc(out, '[');
    tern_strbuf_append(out, type.ptr ? type.ptr : "part", type.ptr ? type.len : 4);
    if (kind.len) tern_strbuf_putc(out, ' '), tern_strbuf_append(out, kind.ptr, kind.len);
    if (uri.len) tern_strbuf_putc(out, ' '), tern_strbuf_append(out, uri.ptr, uri.len);
    tern_strbuf_puts(out, ", which is not shown]");
}

void mcp_put_result(tern_strbuf *out, const tern_json_doc *doc, const tern_json *result) {
    const tern_json *content = tern_json_get(doc, result, "content");
    const tern_json *structured = tern_json_get(doc, result, "structuredContent");
    bool is_list = tern_json_is(content, TERN_JSON_ARRAY);
    for (const tern_json *part = is_list ? tern_json_first(doc, content) : NULL; part;
         part = tern_json_next(doc, content, part)) {
        tern_str text = tern_json_str(tern_json_get(doc, part, "text"));
        if (out->len) tern_strbuf_putc(out, '\n');
        if (text.ptr && tern_str_is(tern_json_str(tern_json_get(doc, part, "type")), "text"))
            tern_strbuf_append(out, text.ptr, text.len);
        else
            put_other(out, doc, part);
    }
    tern_json_writer w = {.out = out};
    if (!out->len && structured) tern_json_put_value(&w, NULL, doc, structured);
    if (!out->len) tern_strbuf_puts(out, "[no output]");
}
