// JSON, written member by member; commas are added automatically.
//
//     tern_json_writer w = {.out = &text};
//     tern_json_open(&w, NULL, '{');
//     tern_json_put_text(&w, "model", name);
//     tern_json_open(&w, "ids", '[');
//     for (...) tern_json_put_int(&w, NULL, id);
//     tern_json_close(&w, ']');
//     tern_json_close(&w, '}');
//
// key is the member's name in an object, and NULL in an array and at the top. If memory runs out,
// the text's `failed` is set. The output has no line breaks, so that a value may be a line of a
// stream.
#ifndef TERN_BASE_JSON_WRITE_H
#define TERN_BASE_JSON_WRITE_H

#include <stdint.h>
#include "base/json/json.h"
#include "base/strbuf.h"

typedef struct tern_json_writer {
    tern_strbuf *out;
    bool follows; // a value comes before in the same object or array
} tern_json_writer;

void tern_json_open(tern_json_writer *w, const char *key, char bracket);         // '{' or '['
void tern_json_close(tern_json_writer *w, char bracket);                         // '}' or ']'
void tern_json_put_text(tern_json_writer *w, const char *key, const char *text); // NULL: null
void tern_json_put_bytes(tern_json_writer *w, const char *key, const char *bytes, size_t n);
void tern_json_put_int(tern_json_writer *w, const char *key, int64_t value);
void tern_json_put_number(tern_json_writer *w, const char *key, double value);
void tern_json_put_float(tern_json_writer *w, const char *key, float value); // a float's digits
void tern_json_put_bool(tern_json_writer *w, const char *key, bool value);
void tern_json_put_null(tern_json_writer *w, const char *key);
// A value that is already JSON: "{}", "[1,2]".
void tern_json_put_raw(tern_json_writer *w, const char *key, const char *json);
// A parsed value with its subtree; NULL: null.
void tern_json_put_value(tern_json_writer *w, const char *key, const tern_json_doc *doc,
                         const tern_json *value);
// The same for a member, with its parsed name.
void tern_json_put_member(tern_json_writer *w, tern_str name, const tern_json_doc *doc,
                          const tern_json *value);

#endif
