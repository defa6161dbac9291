// Calls as JSON: {"name": "f", "arguments": {...}}, one or several, in brackets or not, with
// "parameters" for Llama 3, also wrapped in OpenAI's "function"; and Mistral's newer f[ARGS]{...}.
#include "input/answer/answer.h"

#include <string.h>

enum {       // call_state.at
    AT_ITEM, // before an object
    AT_KEY,  // in an object, before a member or the end
    AT_KEY_TEXT,
    AT_COLON,
    AT_VALUE,
    AT_NAME,
    AT_ARGUMENTS,
    AT_ARGUMENTS_TEXT, // the object as a string
    AT_SKIP,           // another member's value
    AT_AFTER,          // after a member
    AT_FUNCTION,       // Mistral's name
    AT_OBJECT,         // and the bytes after it
};

bool tern_call_is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

void tern_call_put_char(tern_strbuf *out, char c) {
    if (c == '"' || c == '\\')
        tern_strbuf_printf(out, "\\%c", c);
    else if (c == '\n')
        tern_strbuf_puts(out, "\\n");
    else if ((unsigned char)c < 0x20)
        tern_strbuf_printf(out, "\\u%04x", (unsigned)c);
    else
        tern_strbuf_putc(out, c);
}

bool tern_call_is_json(tern_strbuf *word, bool scalars_only) {
    tern_json_doc doc = {0};
    tern_status status =
        word->len ? tern_json_parse(&doc, word->ptr, word->len, NULL) : TERN_ERR_FORMAT;
    bool ok = status == TERN_OK;
    word->failed |= status == TERN_ERR_MEMORY; // else the result would depend on memory
    uint32_t type = ok ? tern_json_root(&doc)->type : TERN_JSON_STRING;
    tern_json_free(&doc);
    return ok && (!scalars_only || type == TERN_JSON_NULL || type == TERN_JSON_BOOL ||
                  type == TERN_JSON_NUMBER);
}

// Reads one byte of a value: tracks brackets and strings. Models write newlines inside strings,
// which JSON does not allow; these are copied as escapes.
static bool copy(call_copy *k, char c, tern_strbuf *out) {
    if (k->in_string && !k->escaped && (unsigned char)c < 0x20) {
        if (out) tern_call_put_char(out, c);
        return false;
    }
    if (out) tern_strbuf_putc(out, c);
    if (k->escaped)
        k->escaped = false;
    else if (k->in_string && c == '\\')
        k->escaped = true;
    else if (c == '"')
        k->in_string = !k->in_string;
    else if (!k->in_string && (c == '{' || c == '['))
        k->depth++;
    else if (!k->in_string && (c == '}' || c == ']') && k->depth)
        k->depth--;
    return !k->depth && !k->in_string && (c == '}' || c == ']' || c == '"');
}

bool tern_call_copy(tern_answer *a, char c) { return copy(&a->call.copy, c, &a->arguments); }

// After a string's last byte: replaces its spelling by its text.
static bool finish_text(tern_answer *a, char c, tern_strbuf *out) {
    if (!copy(&a->call.copy, c, &a->word)) return false;
    tern_json_doc doc = {0};
    tern_status status = tern_json_parse(&doc, a->word.ptr, a->word.len, NULL);
    if (status == TERN_OK) {
        tern_str text = tern_json_str(tern_json_root(&doc));
        tern_strbuf key = {0}; // out may be the word itself
        tern_strbuf_append(&key, text.ptr, text.len);
        tern_strbuf_clear(out);
        tern_strbuf_append(out, tern_strbuf_text(&key), key.len);
        out->failed |= key.failed;
        tern_strbuf_free(&key);
    }
    out->failed |= status == TERN_ERR_MEMORY;
    tern_json_free(&doc);
    return true;
}

static void begin_text(tern_answer *a, char c) {
    a->call.copy = (call_copy){0};
    tern_strbuf_clear(&a->word);
    copy(&a->call.copy, c, &a->word);
}

static call_fed begin_item(tern_answer *a, char c) {
    call_state *s = &a->call;
    if (c == '{') {
        s->at = AT_KEY, s->depth = 1;
        s->has_name = s->has_arguments = false;
        return CALL_MORE;
    }
    if (c == '[' && !s->in_list) return s->in_list = true, CALL_MORE;
    if (c == ']' && s->in_list) return s->in_list = false, CALL_REST;
    // Between calls; Llama writes semicolons.
    return (c == ',' || c == ';' || tern_call_is_space(c)) ? CALL_REST : CALL_BAD;
}

// Whether a member of this name may be in a call, if the whole answer may be the call.
static bool is_of_calls(const tern_strbuf *key) {
    static const char *const known[] = {"name", "type",      "function",
                                        "id",   "arguments", "parameters"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(tern_strbuf_text(key), known[i])) return true;
    return false;
}

static call_fed begin_value(tern_answer *a, char c) {
    call_state *s = &a->call;
    const char *key = tern_strbuf_text(&a->word);
    bool is_function = !strcmp(key, "function");
    if (is_function && c == '{' && s->depth < CALL_DEPTH_MAX) {
        s->depth++, s->at = AT_KEY;
    } else if ((is_function || !strcmp(key, "name")) && c == '"' && !s->has_name) {
        s->at = AT_NAME, begin_text(a, c);
    } else if (!s->has_arguments && (!strcmp(key, "arguments") || !strcmp(key, "parameters"))) {
        s->has_arguments = true, s->copy = (call_copy){0};
        tern_strbuf_clear(&a->arguments);
        if (s->has_name && !a->is_open && !tern_call_begin(a)) return CALL_BAD;
        if (c == '"')
            s->at = AT_ARGUMENTS_TEXT, begin_text(a, c);
        else if (c == '{')
            s->at = AT_ARGUMENTS, tern_call_copy(a, c);
        else if (c == 'n')
            s->at = AT_SKIP, s->has_arguments = false; // null
        else
            return CALL_BAD;
    } else {
        s->at = AT_SKIP, s->copy = (call_copy){0};
        if (copy(&s->copy, c, NULL)) return CALL_BAD; // a closing bracket
    }
    return CALL_MORE;
}

// After a member: the next one, or an end of an object.
static call_fed end_member(tern_answer *a, char c) {
    call_state *s = &a->call;
    if (c == ',') return s->at = AT_KEY, CALL_MORE;
    if (c != '}') return tern_call_is_space(c) ? CALL_MORE : CALL_BAD;
    s->at = AT_AFTER;
    if (--s->depth) return CALL_MORE;
    if (!s->has_name || !a->is_open) return CALL_BAD;
    if (!s->has_arguments) tern_strbuf_puts(&a->arguments, "{}");
    tern_call_finish(a);
    return s->at = AT_ITEM, CALL_REST;
}

static call_fed skip_value(tern_answer *a, char c) {
    call_state *s = &a->call;
    bool is_scalar = !s->copy.depth && !s->copy.in_string;
    if (is_scalar && (c == ',' || c == '}')) return end_member(a, c);
    if (copy(&s->copy, c, NULL)) s->at = AT_AFTER;
    return CALL_MORE;
}

static call_fed end_name(tern_answer *a) {
    a->call.has_name = true, a->call.at = AT_AFTER;
    // Without a mark, a name alone is not a call yet.
    if (a->is_unmarked && !a->call.has_arguments)
        return tern_call_is_known(a) ? CALL_MORE : CALL_BAD;
    return tern_call_begin(a) ? CALL_MORE : CALL_BAD;
}

call_fed tern_call_feed_json(tern_answer *a, char c) {
    call_state *s = &a->call;
    bool is_space = tern_call_is_space(c);
    switch (s->at) {
    case AT_ITEM: return begin_item(a, c);
    case AT_KEY:
        if (c == '"')
            s->at = AT_KEY_TEXT, begin_text(a, c);
        else if (c == '}')
            return end_member(a, c);
        else if (!is_space)
            return CALL_BAD;
        return CALL_MORE;
    case AT_KEY_TEXT:
        if (!finish_text(a, c, &a->word)) return CALL_MORE;
        s->at = AT_COLON;
        return (a->style.is_bare || a->is_unmarked) && !a->is_open && !is_of_calls(&a->word)
                   ? CALL_BAD
                   : CALL_MORE;
    case AT_COLON:
        if (c == ':') s->at = AT_VALUE;
        return c == ':' || is_space ? CALL_MORE : CALL_BAD;
    case AT_VALUE: return is_space ? CALL_MORE : begin_value(a, c);
    case AT_NAME: return finish_text(a, c, &a->name) ? end_name(a) : CALL_MORE;
    case AT_ARGUMENTS:
        if (tern_call_copy(a, c)) s->at = AT_AFTER;
        return CALL_MORE;
    case AT_ARGUMENTS_TEXT:
        if (finish_text(a, c, &a->arguments)) s->at = AT_AFTER;
        return CALL_MORE;
    case AT_SKIP: return skip_value(a, c);
    default: return end_member(a, c);
    }
}

// Mistral: a list in JSON, or the function's name, perhaps [CALL_ID] and an id, [ARGS], and the
// object.
call_fed tern_call_feed_named(tern_answer *a, char c) {
    call_state *s = &a->call;
    if (s->at == AT_FUNCTION) {
        if (c != '[' && c != '{') {
            if (!tern_call_is_space(c)) tern_strbuf_putc(&a->name, c);
            return CALL_MORE;
        }
        if (!a->name.len || !tern_call_begin(a)) return CALL_BAD;
        s->at = AT_OBJECT, s->copy = (call_copy){0};
    }
    if (s->at == AT_OBJECT) {
        if (!s->copy.depth && c != '{') return CALL_MORE;
        if (!tern_call_copy(a, c)) return CALL_MORE;
        tern_call_finish(a);
        return s->at = AT_ITEM, CALL_REST;
    }
    bool is_name =
        s->at == AT_ITEM && !s->in_list && c != '[' && c != '{' && !tern_call_is_space(c);
    if (!is_name) return tern_call_feed_json(a, c);
    s->at = AT_FUNCTION;
    tern_strbuf_clear(&a->name);
    tern_strbuf_putc(&a->name, c);
    return CALL_MORE;
}
