// Filters that cut text: wordwrap (Python's textwrap), truncate, urlencode and striptags.
#include "input/jinja/jinja.h"

#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

#define FILTER(name) static bool filter_##name(jrun *r, const jcall *c, jvalue *out)

// ---- wordwrap ----------------------------------------------------------------------------------

// The character classes of textwrap's expression.
#define IS_BREAK  1 // white space of ASCII
#define IS_WORD   2 // \w
#define IS_LETTER 4 // \w but not a digit
#define IS_PUNCT  8 // \w or one of !"'&.,?
#define IS_HYPHEN 16
#define IS_BLANK  32 // white space of Unicode

typedef struct line { // of n characters
    const char *text;
    uint32_t *at; // where each character begins, and the end
    uint8_t *is;
    uint32_t n;
} line;

static uint8_t classify(uint32_t code, const char *s, size_t n) {
    uint8_t is = 0;
    if (code < 0x80 && code && strchr("\t\n\v\f\r ", (int)code)) is |= IS_BREAK;
    if (tern_jinja_is_word(code)) {
        bool digit = utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
        is |= digit ? IS_WORD | IS_PUNCT : IS_WORD | IS_PUNCT | IS_LETTER;
    }
    if (code < 0x80 && code && strchr("!\"'&.,?", (int)code)) is |= IS_PUNCT;
    if (code == '-') is |= IS_HYPHEN;
    if (tern_jinja_space(s, n)) is |= IS_BLANK;
    return is;
}

static bool read_line(jrun *r, tern_str s, line *l) {
    l->text = s.ptr;
    l->n = 0;
    l->at = tern_jinja_alloc(r, s.len + 1, sizeof *l->at);
    l->is = l->at ? tern_jinja_alloc(r, s.len + 1, 1) : NULL;
    if (!l->is) return false;
    for (size_t at = 0; at < s.len; l->n++) {
        uint32_t code = 0;
        if (tern_utf8_decode(s.ptr + at, s.len - at, &code) <= 0) code = 0xFFFD;
        l->is[l->n] = classify(code, s.ptr + at, s.len - at);
        l->at[l->n] = (uint32_t)at;
        at += tern_jinja_char(s.ptr + at, s.len - at);
        l->at[l->n + 1] = (uint32_t)at;
    }
    return tern_jinja_work_chars(r, s.len);
}

static bool is(const line *l, int64_t i, uint8_t what) {
    return i >= 0 && i < l->n && (l->is[i] & what);
}

// The end of a run of two or more hyphens between words that begins at i; 0: none.
static uint32_t dash_end(const line *l, uint32_t i) {
    uint32_t end = i;
    if (!is(l, (int64_t)i - 1, IS_PUNCT)) return 0;
    while (is(l, end, IS_HYPHEN)) end++;
    return end >= i + 2 && is(l, end, IS_WORD) ? end : 0;
}

// Whether the hyphen at i may end a line: two letters come before it (or "a-b") and two after.
static bool is_soft_hyphen(const line *l, int64_t i) {
    bool before = (is(l, i - 1, IS_LETTER) && is(l, i - 2, IS_LETTER)) ||
                  (is(l, i - 1, IS_PUNCT) && is(l, i - 2, IS_HYPHEN) && is(l, i - 3, IS_LETTER));
    bool after = is(l, i + 1, IS_LETTER) &&
                 (is(l, i + 2, IS_LETTER) || (is(l, i + 2, IS_HYPHEN) && is(l, i + 3, IS_LETTER)));
    return is(l, i, IS_HYPHEN) && before && after;
}

// The end of the piece that begins at i: white space, a dash, or a word or a part of one.
static uint32_t piece_end(const line *l, uint32_t i, bool hyphens) {
    uint32_t end = i;
    if (is(l, i, IS_BREAK)) {
        while (is(l, end, IS_BREAK)) end++;
        return end;
    }
    if (hyphens && (end = dash_end(l, i))) return end;
    for (end = i + 1; end < l->n && !is(l, end, IS_BREAK); end++) {
        if (!hyphens) continue;
        if (is_soft_hyphen(l, end)) return end + 1;
        if (is(l, end, IS_HYPHEN) && dash_end(l, end)) return end;
    }
    return end;
}

static bool is_blank(const line *l, uint32_t from, uint32_t to) {
    while (from < to && (l->is[from] & IS_BLANK)) from++;
    return from == to;
}

typedef struct wrapping {
    int64_t width;
    bool break_long, hyphens;
    tern_str between;
} wrapping;

// How many characters of a piece longer than a line are put into the `left` places of this line.
static uint32_t break_point(const line *l, uint32_t from, uint32_t left, bool hyphens) {
    uint32_t hyphen = left;
    while (hyphens && hyphen > 0 && !(l->is[from + hyphen - 1] & IS_HYPHEN)) hyphen--;
    if (!hyphens || hyphen <= 1) return left;
    for (uint32_t i = 0; i + 1 < hyphen; i++)
        if (!(l->is[from + i] & IS_HYPHEN)) return hyphen;
    return left;
}

// Fills one line from *at on; *end is where the piece at *at ends. The line is [*from, *to).
static bool fill(jrun *r, const line *l, const wrapping *w, uint32_t *at, uint32_t *end,
                 uint32_t *from, uint32_t *to) {
    uint32_t last = *at; // where the line's last piece begins
    *from = *at;
    while (*at < l->n && *end - *from <= w->width) {
        last = *at;
        *at = *end;
        if (*at < l->n) *end = piece_end(l, *at, w->hyphens);
    }
    *to = *at;
    if (*at<l->n && * end - *at> w->width) {
        uint32_t left = (uint32_t)w->width - (*at - *from);
        if (!tern_jinja_work(r, left)) return false;
        if (w->break_long) {
            last = *at;
            *to = *at += break_point(l, *at, left, w->hyphens);
        } else if (*at == *from) {
            last = *at;
            *to = *at = *end;
            if (*at < l->n) *end = piece_end(l, *at, w->hyphens);
        }
    }
    if (*to > *from || last == *to) *to = is_blank(l, last, *to) ? last : *to;
    return true;
}

static bool wrap_line(jrun *r, tern_str s, const wrapping *w) {
    line l;
    bool any = false;
    if (!read_line(r, s, &l)) return false;
    if (w->width <= 0) return tern_jinja_fail(r, "wordwrap() to a width of less than 1");
    uint32_t at = 0, end = l.n ? piece_end(&l, 0, w->hyphens) : 0, from, to;
    while (at < l.n) {
        if (any && is_blank(&l, at, end)) { // white space between lines
            at = end;
            if (at < l.n) end = piece_end(&l, at, w->hyphens);
            if (at == l.n) break;
        }
        if (!fill(r, &l, w, &at, &end, &from, &to)) return false;
        if (to == from) continue;
        if ((any && !tern_jinja_put(r, w->between.ptr, w->between.len)) ||
            !tern_jinja_put(r, l.text + l.at[from], l.at[to] - l.at[from]))
            return false;
        any = true;
    }
    return true;
}

FILTER(wordwrap) { // width, break_long_words, wrapstring, break_on_hyphens
    wrapping w = {.break_long = c->arg[1].type == J_MISSING || tern_jinja_truth(c->arg[1]),
                  .hyphens = c->arg[3].type == J_MISSING || tern_jinja_truth(c->arg[3])};
    tern_str s;
    size_t mark = r->out->len;
    if (!tern_jinja_arg_str(r, c->self, NULL, &s) ||
        !tern_jinja_arg_int(r, c->arg[0], 79, &w.width) ||
        !tern_jinja_arg_str(r, c->arg[2], "\n", &w.between))
        return false;
    for (size_t at = 0; at < s.len;) {
        size_t end = at, length = 0;
        while (end < s.len && !(length = tern_jinja_line_end(s.ptr + end, s.len - end))) end++;
        if ((at && !tern_jinja_put(r, w.between.ptr, w.between.len)) ||
            !wrap_line(r, (tern_str){s.ptr + at, end - at}, &w))
            return false;
        at = end + length;
    }
    return tern_jinja_take(r, mark, out);
}

// ---- truncate ----------------------------------------------------------------------------------

FILTER(truncate) { // length, killwords, end, leeway
    jvalue end = c->arg[2].type == J_MISSING ? J_STR_LIT("...") : c->arg[2], s = c->self, part;
    int64_t length, leeway, n, n_end, most;
    if (!tern_jinja_arg_int(r, c->arg[0], 255, &length) ||
        !tern_jinja_arg_int(r, c->arg[3], 5, &leeway) || !tern_jinja_length(r, end, &n_end))
        return false;
    if (length < n_end || leeway < 0)
        return tern_jinja_fail(r, "truncate: a length of %lld, a leeway of %lld", (long long)length,
                               (long long)leeway);
    *out = s;
    if (!tern_jinja_length(r, s, &n)) return false;
    if (__builtin_add_overflow(length, leeway, &most) || n <= most) return true;
    const jvalue stop = J_INT_OF(length - n_end);
    if (s.type != J_STRING) return tern_jinja_fail(r, "truncate: not a string");
    if (!tern_jinja_slice(r, s, NULL, &stop, NULL, &part)) return false;
    const char *space = part.n ? memrchr(part.s, ' ', part.n) : NULL;
    if (space && !tern_jinja_truth(c->arg[1])) part.n = (uint32_t)(space - part.s);
    return tern_jinja_binary(r, '+', part, end, out);
}

// ---- urlencode ---------------------------------------------------------------------------------

static bool quote(jrun *r, jvalue v, bool in_query) {
    static const char hex[] = "0123456789ABCDEF";
    jvalue s;
    if (!tern_jinja_to_string(r, v, &s)) return false;
    for (uint32_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.s[i];
        char text[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !in_query);
        if (in_query && c == ' ')
            text[0] = '+';
        else if (plain)
            text[0] = (char)c;
        bool one = plain || (in_query && c == ' ');
        if (!tern_jinja_put(r, text, one ? 1 : 3)) return false;
    }
    return true;
}

FILTER(urlencode) { // of text, or of pairs as the query of an address
    const jvalue *pairs, *pair;
    uint32_t n, n_pair;
    jvalue v = c->self;
    size_t mark = r->out->len;
    const jargs none = {0};
    if (v.type != J_LIST && v.type != J_DICT && v.type != J_UNDEFINED && v.type != J_LOOP)
        return quote(r, v, false) && tern_jinja_take(r, mark, out);
    if (v.type == J_DICT &&
        !tern_jinja_call_builtin(r, tern_jinja_find_method(J_DICT, "items", 5), v, &none, &v))
        return false;
    if (!tern_jinja_iterate(r, v, &pairs, &n)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!tern_jinja_iterate(r, pairs[i], &pair, &n_pair)) return false;
        if (n_pair != 2) return tern_jinja_fail(r, "urlencode() takes text or pairs");
        if ((i && !tern_jinja_put(r, "&", 1)) || !quote(r, pair[0], true) ||
            !tern_jinja_put(r, "=", 1) || !quote(r, pair[1], true))
            return false;
    }
    return tern_jinja_take(r, mark, out);
}

// ---- striptags ---------------------------------------------------------------------------------

// Removes every part from `begin` to `end` from text[0..n), in place.
static size_t cut_out(char *text, size_t n, const char *begin, const char *end) {
    size_t n_begin = strlen(begin), n_end = strlen(end), from = 0, to = 0;
    for (;;) {
        // Text left and right of a removed part may together begin another one, so the search goes
        // on a little before it.
        char *start = n - from ? memmem(text + from, n - from, begin, n_begin) : NULL;
        if (!start) break;
        to = (size_t)(start - text);
        char *stop = memmem(start, n - to, end, n_end);
        if (!stop) break;
        memmove(start, stop + n_end, n - (size_t)(stop + n_end - text));
        n -= (size_t)(stop + n_end - start);
        from = to > n_begin ? to - n_begin : 0;
    }
    return n;
}

static size_t count_byte(tern_str s, char c) {
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += s.ptr[i] == c;
    return n;
}

FILTER(striptags) { // removes tags, squeezes white space, replaces character references
    const jargs none = {0};
    jvalue s, words;
    size_t mark = r->out->len;
    if (!tern_jinja_to_string(r, c->self, &s)) return false;
    // Each tag moves the text after it.
    if (!tern_jinja_work(r, (uint64_t)s.n * (count_byte((tern_str){s.s, s.n}, '<') + 1)))
        return false;
    char *text = tern_jinja_alloc(r, (size_t)s.n + 1, 1);
    if (!text) return false;
    if (s.n) memcpy(text, s.s, s.n);
    size_t n = cut_out(text, s.n, "<!--", "-->");
    n = cut_out(text, n, "<", ">");
    const jbuiltin *split = tern_jinja_find_method(J_STRING, "split", 5);
    if (!tern_jinja_call_builtin(r, split, J_STR_OF(text, n), &none, &words)) return false;
    for (uint32_t i = 0; i < words.list->n; i++) {
        jvalue word = words.list->items[i];
        if ((i && !tern_jinja_put(r, " ", 1)) || !tern_jinja_put(r, word.s, word.n)) return false;
    }
    if (!tern_jinja_take(r, mark, &s)) return false;
    return tern_jinja_unescape_html(r, (tern_str){s.s, s.n}) && tern_jinja_take(r, mark, out);
}

const jbuiltin tern_jinja_wrap_filters[] = {
    {"wordwrap", "?width ?break_long_words ?wrapstring ?break_on_hyphens", filter_wordwrap},
    {"truncate", "?length ?killwords ?end ?leeway", filter_truncate},
    {"urlencode", "", filter_urlencode},
    {"striptags", "", filter_striptags},
    {0},
};
