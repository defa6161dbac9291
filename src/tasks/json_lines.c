// Texts of JSON lines: for programs without a JSON reader.
#include <stdio.h>
#include <string.h>
#include "base/json/json.h"
#include "tern_tools.h"

// A line is a string, or an object that has the text as a member.
static tern_status give(const char *line, size_t n, const char *field, tern_text_fn on_text,
                        void *user, tern_error *err) {
    tern_json_doc doc = {0};
    TERN_TRY(tern_json_parse_part(&doc, line, n, err));
    const tern_json *root = tern_json_root(&doc);
    tern_str text = tern_json_str(
        tern_json_is(root, TERN_JSON_OBJECT) ? tern_json_get(&doc, root, field) : root);
    tern_status status = TERN_OK;
    if (!text.ptr)
        status = tern_fail(err, TERN_ERR_FORMAT,
                           "expected a string, or an object with a string \"%.80s\"", field);
    else if (!on_text(user, text.ptr, text.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    tern_json_free(&doc);
    return status;
}

tern_status tern_json_lines(const char *bytes, size_t n, const char *field, tern_text_fn on_text,
                            void *user, tern_error *err) {
    tern_clear(err);
    TERN_NEED_ARRAY(bytes, n);
    TERN_NEED(on_text);
    size_t number = 1;
    for (size_t at = 0, end; at < n; at = end + 1, number++) {
        const char *feed = memchr(bytes + at, '\n', n - at);
        end = feed ? (size_t)(feed - bytes) : n;
        size_t blank = at;
        while (blank < end && strchr(" \t\r", bytes[blank]) && bytes[blank]) blank++;
        if (blank == end) continue;
        tern_status status = give(bytes + at, end - at, field ? field : "text", on_text, user, err);
        if (status == TERN_OK) continue;
        char which[40];
        snprintf(which, sizeof which, "line %zu", number);
        return tern_fail_prefix(err, status, which);
    }
    return TERN_OK;
}
