// Patterns without a regex engine, above all the three that nearly all byte-level BPE vocabularies
// were trained with. Alternatives of an expression are tried in order and the first match wins, so
// each function below goes through the alternatives from the top.
#include "input/tokenizer/split/split.h"

#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/unicode.h"

// The character at `at`, its class and where it ends. Text is valid, so decoding cannot fail.
typedef struct cursor {
    uint32_t code;
    tern_char_class class;
    size_t end;
} cursor;

static inline cursor look(const char *text, size_t n, size_t at) {
    cursor c = {0, TERN_CHAR_OTHER, at};
    if (at >= n) return c;
    c.code = (unsigned char)text[at];
    int length = 1;
    if (c.code >= 0x80) length = tern_utf8_decode(text + at, n - at, &c.code);
    c.end = at + (length > 0 ? (size_t)length : 1);
    c.class = tern_unicode_class(c.code);
    return c;
}

// The end of the run of `class` that begins at `at`, at most `most` characters.
static size_t run_of(const char *text, size_t n, size_t at, tern_char_class class, size_t most) {
    for (; at < n && most > 0; most--) {
        cursor c = look(text, n, at);
        if (c.class != class) break;
        at = c.end;
    }
    return at;
}

// 's 't 're 've 'm 'll 'd after the apostrophe at `at`; 0: none of them.
static size_t contraction(const char *text, size_t n, size_t at, bool any_case, bool fold) {
    size_t left = n - at;
    if (left < 2) return 0;
    int bit = any_case ? 0x20 : 0;
    int a = (unsigned char)text[at + 1] | bit, b = left > 2 ? (unsigned char)text[at + 2] | bit : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    // U+017F, the long s, folds to s.
    if (fold && left > 2 && memcmp(text + at + 1, "\xC5\xBF", 2) == 0) return at + 3;
    return 0;
}

// White space from `at`, for \s*[\r\n]+ (if newlines) and \s+(?!\S) and \s+: up to the last newline
// of the run; else all but its last character if more text follows; else all.
static size_t white_space(const char *text, size_t n, size_t at, bool newlines) {
    size_t after_newline = 0, last = at, end = at;
    while (end < n) {
        cursor c = look(text, n, end);
        if (c.class < TERN_CHAR_SPACE) break;
        last = end;
        end = c.end;
        if (c.class == TERN_CHAR_NEWLINE) after_newline = end;
    }
    if (newlines && after_newline) return after_newline;
    return end < n && last > at ? last : end;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d) | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,3} | ?[^\s\p{L}\p{N}]+[\r\n]*
// | \s*[\r\n]+ | \s+(?!\S) | \s+
size_t tern_split_llama3(const char *text, size_t n, size_t at, int max_digits, bool fold) {
    cursor c = look(text, n, at), next = look(text, n, c.end);
    if (c.code == '\'') {
        size_t end = contraction(text, n, at, true, fold);
        if (end) return end;
    }
    if (c.class == TERN_CHAR_LETTER) return run_of(text, n, c.end, TERN_CHAR_LETTER, n);
    if (c.class == TERN_CHAR_NUMBER)
        return run_of(text, n, c.end, TERN_CHAR_NUMBER, (size_t)max_digits - 1);
    bool has_next = c.end < n;
    if (has_next && next.class == TERN_CHAR_LETTER && c.class != TERN_CHAR_NEWLINE)
        return run_of(text, n, next.end, TERN_CHAR_LETTER, n);
    if (c.class == TERN_CHAR_OTHER ||
        (c.code == ' ' && has_next && next.class == TERN_CHAR_OTHER)) {
        size_t end = run_of(text, n, c.end, TERN_CHAR_OTHER, n);
        return run_of(text, n, end, TERN_CHAR_NEWLINE, n);
    }
    return white_space(text, n, at, true);
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t tern_split_gpt2(const char *text, size_t n, size_t at) {
    cursor c = look(text, n, at);
    if (c.code == '\'') {
        size_t end = contraction(text, n, at, false, false);
        if (end) return end;
    }
    if (c.code == ' ' && c.end < n) {
        cursor next = look(text, n, c.end);
        if (next.class < TERN_CHAR_SPACE) c = next;
    }
    if (c.class < TERN_CHAR_SPACE) return run_of(text, n, c.end, c.class, n);
    return white_space(text, n, at, false);
}

// ---- Patterns -----------------------------------------------------------------------------------

static const struct {
    const char *text;
    tern_pattern_kind kind;
    int max_digits;
    bool fold;
} known[] = {
#define LLAMA3_TAIL(digits)                                                                        \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"       \
    "|\\s+(?!\\S)|\\s+"
#define FOLDED   "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPELLED  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT2_ALL "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
    {FOLDED LLAMA3_TAIL("\\p{N}{1,3}"), TERN_PATTERN_LLAMA3, 3, true},
    {SPELLED LLAMA3_TAIL("\\p{N}{1,3}"), TERN_PATTERN_LLAMA3, 3, false},
    {FOLDED LLAMA3_TAIL("\\p{N}"), TERN_PATTERN_LLAMA3, 1, true},
    {SPELLED LLAMA3_TAIL("\\p{N}"), TERN_PATTERN_LLAMA3, 1, false},
    {GPT2_ALL "|\\s+", TERN_PATTERN_GPT2, 0, false},
    {GPT2_ALL, TERN_PATTERN_GPT2, 0, false}, // isolated, and the rest is the same \s+
    {"\\p{N}", TERN_PATTERN_DIGIT, 0, false},
    {"\\p{N}+", TERN_PATTERN_DIGITS, 0, false},
};

tern_status tern_pattern_open_literal(tern_pattern *p, tern_str text, tern_error *err) {
    if (!tern_unicode_is_valid(text.ptr, text.len))
        return tern_fail(err, TERN_ERR_FORMAT, "tokenizer: a pattern is not UTF-8");
    *p = (tern_pattern){.kind = TERN_PATTERN_LITERAL, .n_text = text.len};
    p->text = tern_strndup(TERN_MEM_TOKENIZER, text.ptr ? text.ptr : "", text.len);
    return p->text ? TERN_OK : tern_fail_memory(err, text.len);
}

bool tern_pattern_is_known(tern_pattern *p, tern_str expression) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!tern_str_is(expression, known[i].text)) continue;
        *p = (tern_pattern){
            .kind = known[i].kind, .max_digits = known[i].max_digits, .fold = known[i].fold};
        return true;
    }
    return false;
}

tern_status tern_pattern_open_regex(tern_pattern *p, tern_str expression, tern_error *err) {
    if (tern_pattern_is_known(p, expression)) return TERN_OK;
    TERN_TRY(tern_pattern_open_literal(p, expression, err));
    p->kind = TERN_PATTERN_REGEX;
    tern_status status = tern_regex_compile(p, err);
    if (status != TERN_OK) tern_pattern_close(p);
    return status;
}

void tern_pattern_close(tern_pattern *p) {
    tern_regex_free(p->code);
    tern_free(p->text);
    *p = (tern_pattern){0};
}

static bool class_matches(tern_pattern_kind kind, uint32_t code) {
    switch (kind) {
    case TERN_PATTERN_PUNCT: return tern_unicode_is_punct(code);
    case TERN_PATTERN_SPACE: return tern_unicode_is_space(code);
    default: return tern_unicode_class(code) == TERN_CHAR_NUMBER;
    }
}

static void find_class(const tern_pattern *p, const char *text, size_t n, size_t from,
                       size_t *start, size_t *end) {
    cursor c = {0};
    for (*start = from; *start < n; *start = c.end) {
        c = look(text, n, *start);
        if (class_matches(p->kind, c.code)) break;
    }
    if (*start >= n) return;
    *end = p->kind == TERN_PATTERN_DIGITS ? run_of(text, n, c.end, TERN_CHAR_NUMBER, n) : c.end;
}

tern_status tern_pattern_find(const tern_pattern *p, tern_matcher *m, tern_str all, size_t from,
                              tern_match_span *out, tern_error *err) {
    const char *text = all.ptr;
    const size_t n = all.len;
    size_t *start = &out->start, *end = &out->end;
    *start = *end = n;
    if (from >= n) return TERN_OK;
    switch (p->kind) {
    case TERN_PATTERN_REGEX: return tern_regex_find(p, m, all, from, out, err);
    case TERN_PATTERN_LLAMA3:
        *start = from;
        *end = tern_split_llama3(text, n, from, p->max_digits, p->fold);
        break;
    case TERN_PATTERN_GPT2:
        *start = from;
        *end = tern_split_gpt2(text, n, from);
        break;
    case TERN_PATTERN_LITERAL: {
        if (p->n_text == 0) break;
        const char *hit = memmem(text + from, n - from, p->text, p->n_text);
        if (!hit) break;
        *start = (size_t)(hit - text);
        *end = *start + p->n_text;
        break;
    }
    default: find_class(p, text, n, from, start, end);
    }
    return TERN_OK;
}
