// The texts of a grammar: literals, classes, regular expressions, Lark's library of terminals.
//
// Each becomes a term in the spelling and within the limits of the place where the grammar's texts
// stand: as they are, or as JSON writes them in a string.
#include "base/alloc.h"
#include "base/utf8.h"
#include "grammar/rules/ebnf_reader.h"
#include "grammar/rules/pattern.h"

typedef tern_ebnf_reader reader;
#define refuse tern_ebnf_refuse
#define is_at  tern_ebnf_is_at
#define eat    tern_ebnf_eat

// A term of the grammar's own characters, as far as the place allows its texts.
static tern_status own_term(reader *r, tern_term a, uint32_t *out) {
    const tern_term within = r->e->way->within;
    tern_terms *t = r->e->terms;
    // Most literals are within anyway, and stay simple.
    if (within && tern_term_is_alive(t, tern_term_and(t, a, tern_term_not(t, within))))
        a = tern_term_and(t, a, within);
    return tern_ebnf_term(r, a, out);
}

// ---- Characters ---------------------------------------------------------------------------------

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static tern_status read_hex(reader *r, int n, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < n; i++, r->at++) {
        int d = r->at < r->n ? hex_digit(r->text[r->at]) : -1;
        if (d < 0) return refuse(r, "an escape with too few hexadecimal digits");
        *code = *code << 4 | (uint32_t)d;
    }
    if (*code > TERN_CODE_MAX || (*code >= 0xD800 && *code < 0xE000))
        return refuse(r, "an escape that is not a character");
    return TERN_OK;
}

static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// One character of a literal or a class.
static tern_status read_code(reader *r, uint32_t *code) {
    static const char letters[] = "nrtfvb0", values[] = "\n\r\t\f\v\b\0";
    if (!eat(r, "\\")) {
        int length = r->at < r->n ? tern_utf8_decode(r->text + r->at, r->n - r->at, code) : 0;
        if (length <= 0) return refuse(r, "invalid UTF-8, or a text without end");
        r->at += (size_t)length;
        return TERN_OK;
    }
    if (r->at >= r->n) return refuse(r, "a backslash without a character");
    char c = r->text[r->at++];
    const char *hit = c ? strchr(letters, c) : NULL;
    if (hit)
        *code = (unsigned char)values[hit - letters];
    else if (c == 'x')
        return read_hex(r, 2, code);
    else if (c == 'u')
        return read_hex(r, 4, code);
    else if (c == 'U')
        return read_hex(r, 8, code);
    else if (is_letter_or_digit(c))
        return refuse(r, "an unknown escape");
    else
        *code = (unsigned char)c;
    return TERN_OK;
}

static tern_term code_term(const reader *r, uint32_t first, uint32_t last) {
    tern_code_range range = {first, last};
    return tern_term_codes(r->e->terms, &(tern_codes){.ranges = &range, .n = 1},
                           r->e->way->spelling);
}

// An ASCII letter in the other case.
static uint32_t other_case(uint32_t code) {
    bool is_letter = (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
    return is_letter ? code ^ 0x20 : code;
}

// The term of a literal's characters.
static tern_term literal_term(const reader *r, const uint32_t *codes, size_t n, bool any_case) {
    tern_terms *t = r->e->terms;
    tern_strbuf plain = {0};
    tern_term all = TERN_TERM_EMPTY;
    for (size_t i = 0; i < n && !any_case; i++) {
        char bytes[4];
        tern_strbuf_append(&plain, bytes, (size_t)tern_utf8_encode(codes[i], bytes));
    }
    if (plain.len) all = tern_term_spelled(t, plain.ptr, plain.len, r->e->way->spelling);
    if (plain.failed) all = tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
    tern_strbuf_free(&plain);
    for (size_t i = n; i-- > 0 && any_case;) {
        tern_term one = tern_term_or(t, code_term(r, codes[i], codes[i]),
                                     code_term(r, other_case(codes[i]), other_case(codes[i])));
        all = tern_term_cat(t, one, all);
    }
    return all;
}

// After "a".. : the last character of a range.
static tern_status read_last(reader *r, uint32_t first, uint32_t *out) {
    uint32_t last = 0;
    if (!eat(r, "\"") || is_at(r, "\"")) return refuse(r, "a range is \"a\"..\"z\"");
    TERN_TRY(read_code(r, &last));
    if (!eat(r, "\"")) return refuse(r, "a range is \"a\"..\"z\"");
    if (first > last) return refuse(r, "a range that falls");
    return own_term(r, code_term(r, first, last), out);
}

tern_status tern_ebnf_literal(reader *r, uint32_t *out) {
    uint32_t *codes = NULL, first = 0;
    size_t n = 0, capacity = 0;
    tern_status status = TERN_OK;
    tern_term all = TERN_TERM_EMPTY;
    while (status == TERN_OK && !eat(r, "\"")) {
        if (tern_array_reserve(TERN_MEM_SESSION, &codes, &capacity, n, 1) != 0)
            status = tern_fail_memory(r->e->err, capacity);
        else
            status = read_code(r, &codes[n++]);
    }
    const bool is_range = status == TERN_OK && r->lark && eat(r, "..");
    if (is_range && n != 1) status = refuse(r, "a range is \"a\"..\"z\"");
    if (n) first = codes[0];
    const bool any_case = status == TERN_OK && !is_range && r->lark && eat(r, "i");
    if (status == TERN_OK && !is_range) all = literal_term(r, codes, n, any_case);
    tern_free(codes);
    TERN_TRY(status);
    return is_range ? read_last(r, first, out) : own_term(r, all, out);
}

tern_status tern_ebnf_class(reader *r, uint32_t *out) {
    tern_codes c = {0};
    bool inverted = eat(r, "^");
    tern_status status = TERN_OK;
    while (status == TERN_OK && !eat(r, "]")) {
        uint32_t first = 0, last;
        status = read_code(r, &first);
        last = first;
        if (status == TERN_OK && is_at(r, "-") && !is_at(r, "-]")) {
            r->at++;
            status = read_code(r, &last);
        }
        if (status == TERN_OK && first > last) status = refuse(r, "a range that falls");
        tern_codes_add(&c, first, last);
    }
    tern_codes_normalize(&c);
    if (inverted) tern_codes_invert(&c);
    tern_term a = status == TERN_OK ? tern_term_codes(r->e->terms, &c, r->e->way->spelling) : 0;
    tern_codes_free(&c);
    TERN_TRY(status);
    return own_term(r, a, out);
}

tern_status tern_ebnf_any(reader *r, uint32_t *out) {
    return own_term(r, code_term(r, 0, TERN_CODE_MAX), out);
}

static tern_status add_pattern(reader *r, tern_str text, tern_pattern_way way, uint32_t *out) {
    tern_term a;
    tern_error err = {0};
    const tern_status status = tern_pattern_term(r->e->terms, text.ptr, text.len, way, &a, &err);
    if (status == TERN_ERR_UNSUPPORTED) return refuse(r, err.message);
    if (status != TERN_OK) return tern_fail(r->e->err, status, "%s", err.message);
    return own_term(r, a, out);
}

// Lark's are Python's: a dot is any character but a line feed.
static tern_pattern_way usual_way(const reader *r) {
    return (tern_pattern_way){
        .spelling = r->e->way->spelling, .dot = TERN_DOT_LINE, .is_part = true};
}

// /pattern/flags
tern_status tern_ebnf_pattern(reader *r, uint32_t *out) {
    const size_t from = r->at;
    bool in_class = false;
    for (; r->at < r->n && (in_class || r->text[r->at] != '/'); r->at++) {
        char c = r->text[r->at];
        if (c == '\n') return refuse(r, "a regular expression without end");
        if (c == '\\')
            r->at++;
        else if (c == '[')
            in_class = true;
        else if (c == ']')
            in_class = false;
    }
    if (r->at >= r->n) return refuse(r, "a regular expression without end");
    const tern_str text = {r->text + from, r->at++ - from};
    tern_pattern_way way = usual_way(r);
    for (; r->at < r->n && is_letter_or_digit(r->text[r->at]); r->at++) {
        const char flag = r->text[r->at];
        if (flag == 'i')
            way.any_case = true;
        else if (flag == 's')
            way.dot = TERN_DOT_ALL;
        else if (flag != 'u')
            return refuse(r, "of a regular expression's flags only i, s and u are known");
    }
    return add_pattern(r, text, way, out);
}

// ---- Lark's library ----------------------------------------------------------------------------

// Lark's library of terminals.
static const char *const common[][2] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9A-Fa-f]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"NUMBER", "[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT",
     "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"SIGNED_NUMBER",
     "[+-]?(?:[0-9]+(?:[eE][+-]?[0-9]+)?|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"C_COMMENT", "/\\*(?:[^*]|\\*+[^*/])*\\*+/"},
};

tern_status tern_ebnf_common(reader *r, tern_str name, uint32_t *out) {
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (tern_str_is(name, common[i][0]))
            return add_pattern(r, (tern_str){common[i][1], strlen(common[i][1])}, usual_way(r),
                               out);
    return refuse(r, "%import of a name that 'common' does not have");
}
