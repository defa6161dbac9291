// Calls in tags, as Qwen3.5 and Qwen3-Coder write them:
//
//     <function=f>
//     <parameter=town>
//     Ghent
//     </parameter>
//     </function>
//
// A value has no quotes: the function's schema says whether 12 is a number or a text.
#include "input/answer/answer.h"

#include <string.h>

enum { AT_ITEM, AT_TAG, AT_VALUE, AT_VALUE_END }; // call_state.at

static const char end_of_value[] = "</parameter>";
enum { END_BYTES = sizeof end_of_value - 1 };

static tern_str type_of(const tern_answer *a, const char *key) {
    const tern_json *at = tern_json_get(&a->tools, a->call.function, "parameters");
    at = tern_json_get(&a->tools, tern_json_get(&a->tools, at, "properties"), key);
    return tern_json_str(tern_json_get(&a->tools, at, "type"));
}

static call_fed begin_parameter(tern_answer *a, const char *key) {
    call_state *s = &a->call;
    tern_strbuf_puts(&a->arguments, s->comma ? "," : "{");
    tern_strbuf_json(&a->arguments, key, strlen(key));
    tern_strbuf_putc(&a->arguments, ':');
    s->comma = true;
    s->type = type_of(a, key);
    s->is_key = false; // for a text: its quote was written
    s->matched = 0;
    tern_strbuf_clear(&a->word);
    return s->at = AT_VALUE, CALL_MORE;
}

static call_fed end_tag(tern_answer *a) {
    call_state *s = &a->call;
    const char *tag = tern_strbuf_text(&a->word);
    s->at = AT_ITEM;
    if (!strncmp(tag, "function=", 9) && !a->is_open && tag[9]) {
        tern_strbuf_clear(&a->name);
        tern_strbuf_puts(&a->name, tag + 9);
        s->comma = false;
        return tern_call_begin(a) ? CALL_MORE : CALL_BAD;
    }
    if (!strncmp(tag, "parameter=", 10) && a->is_open) return begin_parameter(a, tag + 10);
    const char *close = a->style.close ? a->style.close : "<";
    bool is_end = !strncmp(tag, close + 1, strlen(tag)) && strlen(tag) + 2 == strlen(close);
    if ((strcmp(tag, "/function") && !is_end) || !a->is_open) return CALL_BAD;
    tern_strbuf_puts(&a->arguments, s->comma ? "}" : "{}");
    tern_call_finish(a);
    return is_end ? CALL_LAST : CALL_REST;
}

static void put_chars(tern_answer *a, size_t n) {
    for (size_t i = 0; i < n; i++) tern_call_put_char(&a->arguments, a->word.ptr[i]);
}

// Passes a long text on, in whole characters, except bytes that may be its end.
static void put_early(tern_answer *a) {
    size_t n = a->word.len;
    if (n < 64 + END_BYTES || !tern_str_is(a->call.type, "string")) return;
    n -= END_BYTES + 1; // the mark and the newline before it
    while (n && ((unsigned char)a->word.ptr[n] & 0xc0) == 0x80) n--;
    size_t skip = !a->call.is_key && *a->word.ptr == '\n';
    if (!a->call.is_key) tern_strbuf_putc(&a->arguments, '"');
    a->call.is_key = true;
    for (size_t i = skip; i < n; i++) tern_call_put_char(&a->arguments, a->word.ptr[i]);
    memmove(a->word.ptr, a->word.ptr + n, a->word.len - n + 1);
    a->word.len -= n;
}

static void end_value(tern_answer *a) {
    static const char *const spelled[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    tern_strbuf *word = &a->word;
    if (word->failed) return;
    word->len = a->call.n_value;
    if (word->len && word->ptr[word->len - 1] == '\n') word->len--;
    size_t skip = !a->call.is_key && word->len && *word->ptr == '\n';
    if (skip) memmove(word->ptr, word->ptr + 1, --word->len);
    word->ptr[word->len] = 0;
    if (a->call.is_key) {
        put_chars(a, word->len);
        tern_strbuf_putc(&a->arguments, '"');
        return;
    }
    bool is_text = tern_str_is(a->call.type, "string");
    for (size_t i = 0; !is_text && i < sizeof spelled / sizeof *spelled; i++)
        if (!strcmp(word->ptr, spelled[i][0])) {
            tern_strbuf_puts(&a->arguments, spelled[i][1]);
            return;
        }
    if (!is_text && tern_call_is_json(word, false))
        tern_strbuf_append(&a->arguments, word->ptr, word->len);
    else
        tern_strbuf_json(&a->arguments, word->ptr, word->len);
}

static call_fed in_value(tern_answer *a, char c) {
    call_state *s = &a->call;
    tern_strbuf_putc(&a->word, c);
    if (c != end_of_value[s->matched]) {
        s->matched = c == *end_of_value; // the mark's first byte occurs only once in it
        put_early(a);
    } else if (++s->matched == END_BYTES && !a->word.failed) {
        s->n_value = a->word.len - END_BYTES;
        s->n_tail = a->word.len;
        s->at = AT_VALUE_END;
    }
    return CALL_MORE;
}

static bool begins(const char *text, const char *with, size_t n) {
    return !strncmp(text, with, n < strlen(with) ? n : strlen(with));
}

// A value may contain its closing mark: it has ended only if a tag that can follow a value, or the
// body's closing mark, comes next.
static call_fed after_value(tern_answer *a, char c) {
    call_state *s = &a->call;
    tern_strbuf *word = &a->word;
    tern_strbuf_putc(word, c);
    if (word->failed) return CALL_MORE;
    if (s->n_tail + 1 == word->len && tern_call_is_space(c)) return s->n_tail++, CALL_MORE;
    const char *tag = word->ptr + s->n_tail, *close = a->style.close;
    size_t n = word->len - s->n_tail;
    bool is_item = begins(tag, "<parameter=", n) && (n <= 11 || c != '\n');
    if ((close && !strcmp(tag, close)) || (n > 11 && is_item && c == '>') ||
        !strcmp(tag, "</function>")) {
        tern_strbuf next = {0};
        tern_strbuf_append(&next, tag + 1, n - 2);
        end_value(a);
        tern_strbuf_clear(word);
        tern_strbuf_append(word, tern_strbuf_text(&next), next.len);
        word->failed |= next.failed;
        tern_strbuf_free(&next);
        return end_tag(a);
    }
    if (is_item || begins(tag, "</function>", n) || (close && begins(tag, close, n)))
        return CALL_MORE;
    s->at = AT_VALUE;
    for (s->matched = (uint32_t)(n < END_BYTES ? n : END_BYTES - 1); s->matched; s->matched--)
        if (!memcmp(word->ptr + word->len - s->matched, end_of_value, s->matched)) break;
    return CALL_MORE;
}

// Whether a prefix of a value of this type is a different value or invalid.
static bool has_parts(tern_str type) {
    static const char *const types[] = {"integer", "number", "boolean", "null", "array", "object"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (tern_str_is(type, types[i])) return true;
    return false;
}

// The answer ends here: a text that was cut is kept.
void tern_call_cut_tags(tern_answer *a) {
    call_state *s = &a->call;
    if (s->at == AT_VALUE_END) {
        end_value(a);
    } else if (s->at == AT_VALUE && !a->word.failed && !has_parts(s->type)) {
        s->n_value = a->word.len - s->matched;
        end_value(a);
    }
}

call_fed tern_call_feed_tags(tern_answer *a, char c) {
    call_state *s = &a->call;
    switch (s->at) {
    case AT_ITEM:
        if (tern_call_is_space(c)) return a->is_open ? CALL_MORE : CALL_REST;
        tern_strbuf_clear(&a->word);
        return s->at = AT_TAG, c == '<' ? CALL_MORE : CALL_BAD;
    case AT_TAG:
        if (c == '>') return end_tag(a);
        if (c == '\n') return CALL_BAD;
        return tern_strbuf_putc(&a->word, c), CALL_MORE;
    case AT_VALUE: return in_value(a, c);
    default: return after_value(a, c);
    }
}
