// Calls as a programming language writes them: LFM2's [f(a="x", n=1)], and Gemma's
// f{a:<|"|>x<|"|>,n:1}.
//
// Both are objects with other brackets: a call's arguments are a frame that ( or { opens, with keys
// and values, and nested frames for lists and objects. Values become JSON byte by byte.
#include "input/answer/answer.h"

#include <string.h>

enum {       // call_state.at
    AT_ITEM, // before a call
    AT_NAME,
    AT_KEY, // in a frame: before a key or the end
    AT_ASSIGN,
    AT_VALUE, // before a value, or the end of a list
    AT_AFTER, // after a value
    AT_QUOTE, // in the mark before a string
    AT_STRING,
    AT_ESCAPE,
    AT_HEX,
    AT_WORD,
};

static bool is_python(const tern_answer *a) { return !a->style.quote; }

static call_frame *frame(tern_answer *a) { return &a->call.frames[a->call.depth - 1]; }

// The comma before an element is written when the element comes: Python allows one before the end.
static void begin_element(tern_answer *a) {
    if (a->call.comma) tern_strbuf_putc(&a->arguments, ',');
    a->call.comma = false;
}

static call_fed push(tern_answer *a, char close, char assign) {
    call_state *s = &a->call;
    if (s->depth == CALL_DEPTH_MAX) return CALL_BAD;
    tern_strbuf_putc(&a->arguments, assign ? '{' : '[');
    s->frames[s->depth++] = (call_frame){close, assign};
    return s->at = assign ? AT_KEY : AT_VALUE, CALL_MORE;
}

static call_fed pop(tern_answer *a) {
    call_state *s = &a->call;
    tern_strbuf_putc(&a->arguments, frame(a)->assign ? '}' : ']');
    s->comma = false, s->at = AT_AFTER;
    if (--s->depth) return CALL_MORE;
    tern_call_finish(a);
    return s->at = AT_ITEM, CALL_REST;
}

static call_fed begin_string(tern_answer *a, char quote, bool is_key) {
    call_state *s = &a->call;
    s->quote = quote, s->is_key = is_key, s->matched = 1;
    s->at = is_python(a) ? AT_STRING : AT_QUOTE;
    tern_strbuf_putc(&a->arguments, '"');
    return CALL_MORE;
}

static call_fed end_string(tern_answer *a) {
    tern_strbuf_putc(&a->arguments, '"');
    a->call.at = a->call.is_key ? AT_ASSIGN : AT_AFTER;
    return CALL_MORE;
}

static bool is_quote(const tern_answer *a, char c) {
    return is_python(a) ? c == '"' || c == '\'' : c == *a->style.quote;
}

static call_fed begin_word(tern_answer *a, char c, bool is_key) {
    a->call.is_key = is_key, a->call.at = AT_WORD;
    tern_strbuf_clear(&a->word);
    tern_strbuf_putc(&a->word, c);
    return CALL_MORE;
}

static void put_word(tern_answer *a) {
    static const char *const spelled[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *word = tern_strbuf_text(&a->word);
    for (size_t i = 0; !a->call.is_key && i < sizeof spelled / sizeof *spelled; i++)
        if (!strcmp(word, spelled[i][0])) {
            tern_strbuf_puts(&a->arguments, spelled[i][1]);
            return;
        }
    bool as_it_is = !a->call.is_key && tern_call_is_json(&a->word, true);
    if (as_it_is)
        tern_strbuf_puts(&a->arguments, word);
    else
        tern_strbuf_json(&a->arguments, word, a->word.len);
}

static bool ends_word(const tern_answer *a, char c) {
    if (c == ',' || c == ')' || c == ']' || c == '}') return true;
    if (a->call.is_key && (c == ':' || c == '=')) return true;
    return is_python(a) && tern_call_is_space(c); // Gemma's words may have spaces
}

static call_fed begin_value(tern_answer *a, char c) {
    if (c == frame(a)->close && !frame(a)->assign) return pop(a);
    begin_element(a);
    if (c == '[') return push(a, ']', 0);
    if (c == '{') return push(a, '}', ':');
    if (c == '(' && is_python(a)) return push(a, ')', 0);
    if (is_quote(a, c)) return begin_string(a, c, false);
    return ends_word(a, c) ? CALL_BAD : begin_word(a, c, false);
}

static call_fed begin_key(tern_answer *a, char c) {
    if (c == frame(a)->close) return pop(a);
    begin_element(a);
    if (is_quote(a, c)) return begin_string(a, c, true);
    return ends_word(a, c) ? CALL_BAD : begin_word(a, c, true);
}

static call_fed after_value(tern_answer *a, char c) {
    if (c == frame(a)->close) return pop(a);
    if (c != ',') return CALL_BAD;
    a->call.comma = true;
    a->call.at = frame(a)->assign ? AT_KEY : AT_VALUE;
    return CALL_MORE;
}

static call_fed between(tern_answer *a, char c);

static call_fed end_word(tern_answer *a, char c) {
    while (a->word.len && tern_call_is_space(a->word.ptr[a->word.len - 1]))
        a->word.ptr[--a->word.len] = 0;
    put_word(a);
    a->call.at = a->call.is_key ? AT_ASSIGN : AT_AFTER;
    return tern_call_is_space(c) ? CALL_MORE : between(a, c);
}

// Between tokens, where spaces are skipped.
static call_fed between(tern_answer *a, char c) {
    call_state *s = &a->call;
    switch (s->at) {
    case AT_KEY: return begin_key(a, c);
    case AT_VALUE: return begin_value(a, c);
    case AT_AFTER: return after_value(a, c);
    default: // AT_ASSIGN
        if (c != frame(a)->assign) return CALL_BAD;
        tern_strbuf_putc(&a->arguments, ':');
        return s->at = AT_VALUE, CALL_MORE;
    }
}

static call_fed in_escape(tern_answer *a, char c) {
    static const char letters[] = "nrtbf/\\\"";
    a->call.at = AT_STRING;
    if (c == '\'')
        tern_strbuf_putc(&a->arguments, c);
    else if (c == 'u')
        tern_strbuf_puts(&a->arguments, "\\u"), a->call.n_hex = 4;
    else if (c == 'x')
        tern_strbuf_puts(&a->arguments, "\\u00"), a->call.n_hex = 2;
    else if (c != '\n') { // a backslash before a newline removes it
        tern_strbuf_puts(&a->arguments, strchr(letters, c) ? "\\" : "\\\\");
        tern_strbuf_putc(&a->arguments, c);
    }
    if (a->call.n_hex) a->call.at = AT_HEX;
    return CALL_MORE;
}

static call_fed in_hex(tern_answer *a, char c) {
    if (!c || !strchr("0123456789abcdefABCDEF", c)) return CALL_BAD;
    tern_strbuf_putc(&a->arguments, c);
    if (!--a->call.n_hex) a->call.at = AT_STRING;
    return CALL_MORE;
}

// A string between marks. A mark that does not complete is part of the text; only a mark's first
// byte can begin it.
static call_fed in_marked(tern_answer *a, char c) {
    call_state *s = &a->call;
    const char *mark = a->style.quote;
    if (c == mark[s->matched]) {
        if (!mark[++s->matched]) return end_string(a);
        return CALL_MORE;
    }
    for (uint32_t i = 0; i < s->matched; i++) tern_call_put_char(&a->arguments, mark[i]);
    s->matched = c == *mark;
    if (!s->matched) tern_call_put_char(&a->arguments, c);
    return CALL_MORE;
}

static call_fed in_string(tern_answer *a, char c) {
    if (!is_python(a)) return in_marked(a, c);
    if (c == a->call.quote) return end_string(a);
    if (c == '\\')
        a->call.at = AT_ESCAPE;
    else
        tern_call_put_char(&a->arguments, c);
    return CALL_MORE;
}

static call_fed in_quote(tern_answer *a, char c) {
    call_state *s = &a->call;
    if (c != a->style.quote[s->matched]) return CALL_BAD;
    if (!a->style.quote[++s->matched]) s->at = AT_STRING, s->matched = 0;
    return CALL_MORE;
}

static call_fed before_call(tern_answer *a, char c) {
    call_state *s = &a->call;
    if (tern_call_is_space(c)) return CALL_REST;
    if (is_python(a)) {
        if (c == '[' && !s->in_list) return s->in_list = true, CALL_MORE;
        if (c == ']' && s->in_list) return s->in_list = false, CALL_REST;
        if (c == ',') return CALL_REST;
    } else if (a->has_calls) {
        return CALL_BAD; // one call for each mark
    }
    tern_strbuf_clear(&a->name);
    tern_strbuf_putc(&a->name, c);
    return s->at = AT_NAME, CALL_MORE;
}

static call_fed in_name(tern_answer *a, char c) {
    bool ends = c == (is_python(a) ? '(' : '{');
    if (!ends && (tern_call_is_space(c) || strchr("([{)]}\"',=", c))) return CALL_BAD;
    if (!ends) return tern_strbuf_putc(&a->name, c), CALL_MORE;
    if (!tern_call_begin(a)) return CALL_BAD;
    return is_python(a) ? push(a, ')', '=') : push(a, '}', ':');
}

call_fed tern_call_feed_literal(tern_answer *a, char c) {
    switch (a->call.at) {
    case AT_ITEM: return before_call(a, c);
    case AT_NAME: return in_name(a, c);
    case AT_QUOTE: return in_quote(a, c);
    case AT_STRING: return in_string(a, c);
    case AT_ESCAPE: return in_escape(a, c);
    case AT_HEX: return in_hex(a, c);
    case AT_WORD:
        if (ends_word(a, c)) return end_word(a, c);
        if (is_python(a) && is_quote(a, c)) return CALL_BAD;
        return tern_strbuf_putc(&a->word, c), CALL_MORE;
    default: return tern_call_is_space(c) ? CALL_MORE : between(a, c);
    }
}
