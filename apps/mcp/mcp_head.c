#include "apps/mcp/mcp_head.h"

#include <stdio.h>
#include <string.h>

static int digit_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Whether padded base64 decodes to the text: compared digit by digit, so that only the canonical
// encoding is accepted.
static bool is_base64_of(tern_str code, tern_str text) {
    if (code.len != (text.len + 2) / 3 * 4) return false;
    for (size_t i = 0, at = 0; i < code.len; i += 4, at += 3) {
        size_t n = text.len - at < 3 ? text.len - at : 3;
        unsigned group = 0;
        for (size_t k = 0; k < 3; k++)
            group = group << 8 | (k < n ? (unsigned char)text.ptr[at + k] : 0);
        for (size_t k = 0; k < 4; k++) {
            int wanted = (int)(group >> (18 - 6 * k) & 63);
            if (k > n ? code.ptr[i + k] != '=' : digit_of(code.ptr[i + k]) != wanted) return false;
        }
    }
    return true;
}

bool mcp_field_says(tern_str field, tern_str text) {
    static const char begin[] = "=?base64?", end[] = "?=";
    const size_t front = sizeof begin - 1, back = sizeof end - 1;
    if (field.len >= front + back && !memcmp(field.ptr, begin, front) &&
        !memcmp(field.ptr + field.len - back, end, back))
        return is_base64_of((tern_str){field.ptr + front, field.len - front - back}, text);
    return tern_str_eq(field, text);
}

// The value that Mcp-Name repeats; {NULL, 0}: none.
static tern_str name_of(const jsonrpc_message *m) {
    bool by_name = tern_str_is(m->method, "tools/call") || tern_str_is(m->method, "prompts/get");
    bool by_uri = tern_str_is(m->method, "resources/read");
    if (!by_name && !by_uri) return (tern_str){NULL, 0};
    return tern_json_str(tern_json_get(m->doc, m->params, by_name ? "name" : "uri"));
}

static bool agrees(tern_str field, const char *name, tern_str said, char *why, size_t n) {
    if (field.ptr && mcp_field_says(field, said)) return true;
    snprintf(why, n, "the header %s %s", name,
             field.ptr ? "is not what the body says" : "is missing");
    return false;
}

bool mcp_head_agrees(const mcp_head *h, const jsonrpc_message *m, char *why, size_t n) {
    tern_str name = name_of(m);
    return agrees(h->method, "Mcp-Method", m->method, why, n) &&
           (!name.ptr || agrees(h->name, "Mcp-Name", name, why, n));
}
