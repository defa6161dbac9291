// Atoms of a text, line by line. The kind of block that a line begins is judged by its first
// characters alone, as in CommonMark for the blocks that matter here: headings, fences, lists,
// tables, paragraphs.
#include "memory/atoms.h"
#include <string.h>
#include "base/alloc.h"

typedef struct cutter {
    const char *text;
    size_t n;
    const tern_chunking *how;
    tern_atoms *out;
    char fence;       // the character of an open fence, or 0
    size_t n_fence;   // its length
    bool after_empty; // the line before was empty
    size_t line;      // this line's number
} cutter;

// ---- Atoms that are too large -------------------------------------------------------------------

static tern_status count(const cutter *c, size_t begin, size_t end, size_t *n, tern_error *err) {
    return c->how->counter.count(c->how->counter.user, c->text + begin, end - begin, n, err);
}

static bool is_inside(const cutter *c, size_t at) { // inside a character of several bytes
    return ((unsigned char)c->text[at] & 0xC0) == 0x80;
}

// A place near the middle to split at: after a blank if there is one, else between characters.
// `begin`: none.
static size_t middle(const cutter *c, size_t begin, size_t end, tern_break *strength) {
    size_t half = begin + (end - begin) / 2;
    *strength = TERN_BREAK_WORD;
    for (size_t step = 0; step < (end - begin) / 2; step++) {
        if (c->text[half - step - 1] == ' ' && half - step > begin) return half - step;
        if (half + step + 1 < end && c->text[half + step] == ' ') return half + step + 1;
    }
    *strength = TERN_BREAK_INSIDE;
    for (size_t at = half; at > begin; at--)
        if (!is_inside(c, at)) return at;
    for (size_t at = half + 1; at < end; at++)
        if (!is_inside(c, at)) return at;
    return begin;
}

static tern_status push(cutter *c, const tern_atom *a, tern_error *err) {
    tern_atoms *out = c->out;
    if (tern_array_reserve(TERN_MEM_MISC, &out->list, &out->capacity, out->n, 1) != 0)
        return tern_fail_memory(err, sizeof *a);
    out->list[out->n++] = *a;
    return TERN_OK;
}

// Splits in halves until they fit; the depth is logarithmic.
static tern_status add(cutter *c, tern_atom a, tern_error *err) {
    tern_break between = TERN_BREAK_WORD;
    if (a.begin == a.end) return TERN_OK;
    TERN_TRY(count(c, a.begin, a.end, &a.n_tokens, err));
    size_t cut = a.n_tokens > c->how->max_tokens ? middle(c, a.begin, a.end, &between) : a.begin;
    if (cut == a.begin) return push(c, &a, err);
    tern_atom left = a, right = a;
    left.end = right.begin = cut;
    right.strength = (uint8_t)between;
    right.level = 0;
    TERN_TRY(add(c, left, err));
    return add(c, right, err);
}

// ---- Sentences ----------------------------------------------------------------------------------

// Length of the end of a sentence at `at`, or 0: a mark, and quotes and brackets after it.
static size_t sentence_end(const char *s, size_t n, size_t at) {
    static const char *const wide[] = {"。", "！", "？", "…"};
    size_t i = at;
    while (i < n && strchr(".!?", s[i]) && s[i]) i++;
    bool is_wide = false;
    for (size_t k = 0; k < sizeof wide / sizeof *wide && i == at; k++) {
        size_t length = strlen(wide[k]);
        if (n - at >= length && memcmp(s + at, wide[k], length) == 0) i += length, is_wide = true;
    }
    if (i == at) return 0;
    while (i < n && strchr("\"')]*_", s[i]) && s[i]) i++;
    if (is_wide) return i - at; // no blank follows
    if (i < n && s[i] != ' ' && s[i] != '\n') return 0;
    size_t next = i;
    while (next < n && (s[next] == ' ' || s[next] == '\n')) next++;
    return next < n && s[next] >= 'a' && s[next] <= 'z' ? 0 : i - at; // "e.g. this"
}

// Adds a line's sentences; the first begins with the break that the line has.
static tern_status add_sentences(cutter *c, size_t begin, size_t end, tern_break strength,
                                 tern_error *err) {
    for (size_t at = begin; at < end;) {
        size_t length = sentence_end(c->text, end, at);
        at += length ? length : 1;
        while (length && at < end && (c->text[at] == ' ' || c->text[at] == '\n')) at++;
        if (!length && at < end) continue;
        TERN_TRY(add(c, (tern_atom){begin, at, 0, c->line, (uint8_t)strength, 0}, err));
        begin = at;
        strength = TERN_BREAK_SENTENCE;
    }
    return TERN_OK;
}

// ---- Lines --------------------------------------------------------------------------------------

typedef struct text_line {
    size_t begin, end; // end: after its newline
    size_t first;      // its first character that is not a blank; the end of its text if all are
    size_t stop;       // the end of its text
} text_line;

static text_line line_at(const cutter *c, size_t at) {
    const char *feed = memchr(c->text + at, '\n', c->n - at);
    text_line l = {at, feed ? (size_t)(feed - c->text) + 1 : c->n, at, 0};
    l.stop = feed ? l.end - 1 : l.end;
    while (l.stop > at && strchr(" \t\r", c->text[l.stop - 1])) l.stop--;
    while (l.first < l.stop && strchr(" \t", c->text[l.first])) l.first++;
    return l;
}

static size_t run_of(const cutter *c, const text_line *l, char mark) {
    size_t n = 0;
    while (l->first + n < l->stop && c->text[l->first + n] == mark) n++;
    return n;
}

static bool opens_or_closes_fence(cutter *c, const text_line *l) {
    char mark = l->first < l->stop ? c->text[l->first] : 0;
    size_t n = mark == '`' || mark == '~' ? run_of(c, l, mark) : 0;
    if (c->fence) {
        if (mark != c->fence || n < c->n_fence || l->first + n != l->stop) return false;
        c->fence = 0;
        return true;
    }
    if (n < 3) return false;
    c->fence = mark;
    c->n_fence = n;
    return true;
}

// 1 to 6: "## Title", or a line underlined with = or -; the underline then belongs to it.
static int heading_level(const cutter *c, text_line *l) {
    size_t n = run_of(c, l, '#');
    if (l->first - l->begin > 3 || l->first == l->stop) return 0;
    if (n >= 1 && n <= 6 && (l->first + n == l->stop || c->text[l->first + n] == ' '))
        return (int)n;
    if (l->end == c->n || !c->after_empty) return 0;
    text_line next = line_at(c, l->end);
    for (const char *mark = "=-"; *mark; mark++)
        if (run_of(c, &next, *mark) >= 3 && next.first + run_of(c, &next, *mark) == next.stop &&
            c->text[l->first] != *mark) {
            l->end = next.end;
            return *mark == '=' ? 1 : 2;
        }
    return 0;
}

// Lines of lists, tables and quotations are atoms by themselves.
static bool stands_alone(const cutter *c, const text_line *l) {
    const char *s = c->text + l->first;
    size_t n = l->stop - l->first, digits = 0;
    if (n >= 1 && (*s == '|' || *s == '>')) return true;
    if (n >= 2 && strchr("-*+", *s) && s[1] == ' ') return true;
    while (digits < n && s[digits] >= '0' && s[digits] <= '9') digits++;
    return digits > 0 && digits + 1 < n && strchr(".)", s[digits]) && s[digits + 1] == ' ';
}

// The break before a line that is not a heading. A line after a heading stays with it.
static tern_break break_before(const cutter *c, const text_line *l, bool is_code) {
    if (c->out->n && c->out->list[c->out->n - 1].level) return TERN_BREAK_WORD;
    if (c->after_empty) return TERN_BREAK_PARAGRAPH;
    if (is_code || stands_alone(c, l)) return TERN_BREAK_LINE;
    size_t at = l->begin;
    while (at > 0 && strchr(" \t\r\n", c->text[at - 1])) at--;
    return at > 0 && strchr(".!?:;\"')", c->text[at - 1]) ? TERN_BREAK_SENTENCE : TERN_BREAK_WORD;
}

static tern_status add_line(cutter *c, text_line *l, tern_error *err) {
    bool markdown = c->how->format == TERN_MEMORY_MARKDOWN;
    bool was_code = c->how->format == TERN_MEMORY_CODE || c->fence;
    tern_break strength = break_before(c, l, was_code);
    if (markdown && opens_or_closes_fence(c, l)) {
        was_code = true;
    }
    if (was_code) {
        // In code, an empty line inside a block is less than one between blocks.
        if (strength == TERN_BREAK_PARAGRAPH && l->first > l->begin) strength = TERN_BREAK_LINE;
        return add(c, (tern_atom){l->begin, l->end, 0, c->line, (uint8_t)strength, 0}, err);
    }
    int level = markdown ? heading_level(c, l) : 0;
    if (level)
        return add(c, (tern_atom){l->begin, l->end, 0, c->line, TERN_BREAK_HEADING, (uint8_t)level},
                   err);
    return add_sentences(c, l->begin, l->end, strength, err);
}

tern_status tern_atoms_find(tern_atoms *out, const char *text, size_t n, const tern_chunking *how,
                            tern_error *err) {
    cutter c = {.text = text, .n = n, .how = how, .out = out, .after_empty = true, .line = 1};
    for (size_t at = 0; at < n; c.line++) {
        text_line l = line_at(&c, at);
        at = l.end;
        if (l.first == l.stop) { // belongs to the atom before it
            if (out->n) out->list[out->n - 1].end = l.end;
            c.after_empty = true;
            continue;
        }
        size_t before = out->n;
        TERN_TRY(add_line(&c, &l, err));
        if (before == 0 && out->n) out->list[0].begin = 0; // empty lines at the beginning
        c.after_empty = out->n > before && out->list[before].level != 0;
        if (l.end > at) c.line++; // a heading with its underline
        at = l.end;
    }
    return TERN_OK;
}
