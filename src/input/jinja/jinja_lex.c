// Template source to tokens.
//
// Outside of tags everything is text; white space that a tag removes is removed here:
//   {%- and -%}  take all white space on their side;
//   %} and #}    take one newline after them (trim_blocks), +%} does not;
//   {% and {#    take the spaces between them and the beginning of their line (lstrip_blocks),
//                {%+ does not; {{ never does.
// Comments and {% raw %} never leave this file. Newlines are \n, and one at the very end is
// dropped. With J_SPACE_KEPT only the signs - remove anything.
#include "input/jinja/jinja.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

typedef struct lexer {
    jarena *arena;
    const char *begin, *at, *end; // the normalised source
    uint32_t line;
    bool keeps_space; // J_SPACE_KEPT
    bool line_start;  // the last tag removed the newline after it: text here begins a line
    jtoken *tokens;
    size_t n, capacity;
    tern_error *err;
} lexer;

static tern_status fail(lexer *x, const char *what) {
    return tern_fail(x->err, TERN_ERR_FORMAT, "line %u: %s", x->line, what);
}

static tern_status add(lexer *x, uint8_t op, jvalue value) {
    if (tern_array_reserve(TERN_MEM_MISC, &x->tokens, &x->capacity, x->n, 1) != 0)
        return tern_fail_memory(x->err, (x->n + 1) * sizeof *x->tokens);
    x->tokens[x->n++] = (jtoken){op, x->line, value};
    return TERN_OK;
}

static void move_to(lexer *x, const char *to) { // counting lines
    for (; x->at < to; x->at++)
        if (*x->at == '\n') x->line++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}
static bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }
static bool looking_at(const lexer *x, const char *p, const char *word) {
    size_t n = strlen(word);
    return (size_t)(x->end - p) >= n && memcmp(p, word, n) == 0;
}

static const char *skip_space(const lexer *x, const char *p) {
    size_t n;
    while (p < x->end && (n = tern_jinja_space(p, (size_t)(x->end - p)))) p += n;
    return p;
}

// ---- Text between tags -------------------------------------------------------------------------

// x->at..tag is text; `sign` is the character after the tag's opening.
static tern_status add_text(lexer *x, const char *tag, char sign, bool is_print) {
    tern_str text = {x->at, (size_t)(tag - x->at)};
    if (sign == '-') {
        text = tern_jinja_strip(text, NULL, false, true);
    } else if (sign != '+' && !is_print && !x->keeps_space) {
        size_t line = text.len; // where the last line of the text begins
        while (line > 0 && text.ptr[line - 1] != '\n') line--;
        tern_str rest = {text.ptr + line, text.len - line};
        if ((line > 0 || x->line_start) && tern_jinja_strip(rest, NULL, true, false).len == 0)
            text.len = line;
    }
    if (text.len) TERN_TRY(add(x, J_OP_TEXT, J_STR_OF(text.ptr, text.len)));
    move_to(x, tag);
    return TERN_OK;
}

// After the end of a tag that closed with `sign`; p is the first character after it.
static void end_tag(lexer *x, const char *p, char sign, bool is_print) {
    if (sign == '-')
        p = skip_space(x, p);
    else if (!is_print && sign != '+' && !x->keeps_space && p < x->end && *p == '\n')
        p++;
    x->line_start = p > x->begin && p[-1] == '\n';
    move_to(x, p);
}

static tern_status lex_comment(lexer *x) {
    for (const char *p = x->at + 2; p < x->end; p++) {
        if (!looking_at(x, p, "#}")) continue;
        char sign = p > x->at + 2 ? p[-1] : 0;
        end_tag(x, p + 2, sign == '-' || sign == '+' ? sign : 0, false);
        return TERN_OK;
    }
    return fail(x, "a comment '{#' without '#}'");
}

// At "{%": the end of "{% word %}" if that is here, else NULL.
static const char *match_word_tag(const lexer *x, const char *p, const char *word, char *sign) {
    p += 2;
    if (p < x->end && (*p == '-' || *p == '+')) p++;
    p = skip_space(x, p);
    if (!looking_at(x, p, word)) return NULL;
    p = skip_space(x, p + strlen(word));
    *sign = p < x->end && (*p == '-' || *p == '+') ? *p++ : 0;
    return looking_at(x, p, "%}") ? p + 2 : NULL;
}

static tern_status lex_raw(lexer *x, const char *content, char begin_sign) {
    move_to(x, begin_sign == '-' ? skip_space(x, content) : content);
    x->line_start = false;
    for (const char *p = x->at; p < x->end; p++) {
        char end_sign;
        const char *after =
            looking_at(x, p, "{%") ? match_word_tag(x, p, "endraw", &end_sign) : NULL;
        if (!after) continue;
        TERN_TRY(add_text(x, p, p[2], false));
        end_tag(x, after, end_sign, false);
        return TERN_OK;
    }
    return fail(x, "'raw' without 'endraw'");
}

// ---- Inside tags -------------------------------------------------------------------------------

static int hex_value(const char *p, int n) {
    int value = 0;
    for (int i = 0; i < n; i++) {
        char c = p[i];
        int digit = is_digit(c)            ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0 || value > 0x10FFFF) return -1;
        value = value << 4 | digit;
    }
    return value;
}

// Python's escapes. p is after the backslash; returns where the escape ends, NULL if it is invalid.
// No escape is shorter than its text, so `to` may lag behind in the same buffer.
static const char *unescape(const char *p, const char *end, char **to) {
    static const char from[] = "\\'\"abfnrtv", into[] = "\\'\"\a\b\f\n\r\t\v";
    const char *hit = strchr(from, *p);
    if (*p == '\n') return p + 1; // a line continued
    if (*p && hit) {
        *(*to)++ = into[hit - from];
        return p + 1;
    }
    int n_hex = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
    if (n_hex) {
        int code = end - p > n_hex ? hex_value(p + 1, n_hex) : -1;
        if (code < 0 || code > 0x10FFFF) return NULL;
        *to += tern_utf8_encode((uint32_t)code, *to);
        return p + 1 + n_hex;
    }
    if (*p >= '0' && *p <= '7') {
        uint32_t code = 0;
        for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
            code = code * 8 + (uint32_t)(*p++ - '0');
        *to += tern_utf8_encode(code, *to);
        return p;
    }
    *(*to)++ = '\\'; // an unknown escape stays as it is written
    *(*to)++ = *p;
    return p + 1;
}

static tern_status lex_string(lexer *x) {
    char quote = *x->at;
    const char *p = x->at + 1, *start = p;
    bool has_escapes = false;
    while (p < x->end && *p != quote) {
        if (*p == '\\') has_escapes = true, p++;
        p++;
    }
    if (p >= x->end) return fail(x, "a string without end");
    jvalue value = J_STR_OF(start, p - start);
    if (has_escapes) {
        char *copy = tern_jinja_arena_alloc(x->arena, (size_t)(p - start) + 4), *to = copy;
        if (!copy) return tern_fail_memory(x->err, (size_t)(p - start));
        for (const char *q = start; q < p;) {
            if (*q != '\\') {
                *to++ = *q++;
                continue;
            }
            q = unescape(q + 1, p, &to);
            if (!q) return fail(x, "a string with a wrong \\x, \\u or \\U escape");
        }
        value = J_STR_OF(copy, to - copy);
    }
    TERN_TRY(add(x, J_OP_STRING, value));
    move_to(x, p + 1);
    return TERN_OK;
}

// Copies digits without their underscores after spelling[*n]; *n reaches DIGITS_MAX when there are
// too many.
#define DIGITS_MAX 60
static const char *copy_digits(const lexer *x, const char *p, int base, char *spelling, size_t *n) {
    for (; p < x->end && (*p == '_' || (base == 16 ? hex_value(p, 1) >= 0 : is_digit(*p))); p++)
        if (*p != '_' && *n < DIGITS_MAX) spelling[(*n)++] = *p;
    return p;
}

static tern_status lex_number(lexer *x, bool after_dot) {
    char spelling[DIGITS_MAX + 4];
    size_t n = 0;
    int base = 10;
    bool is_float = false;
    const char *p = x->at;
    if (*p == '0' && p + 1 < x->end && p[1] && strchr("xXoObB", p[1])) {
        base = (p[1] | 32) == 'x' ? 16 : (p[1] | 32) == 'o' ? 8 : 2;
        p += 2;
    }
    p = copy_digits(x, p, base, spelling, &n);
    if (base == 10 && !after_dot && x->end - p >= 2 && *p == '.' && is_digit(p[1])) {
        is_float = true;
        spelling[n++] = '.';
        p = copy_digits(x, p + 1, base, spelling, &n);
    }
    if (base == 10 && !after_dot && x->end - p >= 2 && (*p | 32) == 'e') {
        bool has_sign = p[1] == '+' || p[1] == '-';
        if (p + 1 + has_sign < x->end && is_digit(p[1 + has_sign])) {
            is_float = true;
            spelling[n++] = 'e';
            if (has_sign) spelling[n++] = p[1];
            p = copy_digits(x, p + 1 + has_sign, base, spelling, &n);
        }
    }
    spelling[n] = 0;
    char *end;
    errno = 0;
    jvalue value =
        is_float ? J_FLOAT_OF(strtod(spelling, &end)) : J_INT_OF(strtoll(spelling, &end, base));
    if (n == 0 || n >= DIGITS_MAX || *end || (!is_float && errno))
        return fail(x, "a number that is not valid or too large");
    TERN_TRY(add(x, J_OP_NUMBER, value));
    x->at = p;
    return TERN_OK;
}

static tern_status lex_operator(lexer *x) {
    static const struct {
        char text[3];
        uint8_t op;
    } two[] = {{"//", J_OP_FLOORDIV}, {"**", J_OP_POW}, {"==", J_OP_EQ},
               {"!=", J_OP_NE},       {"<=", J_OP_LE},  {">=", J_OP_GE}};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (looking_at(x, x->at, two[i].text)) {
            x->at += 2;
            return add(x, two[i].op, (jvalue){0});
        }
    if (!*x->at || !strchr("+-*/%~[](){}<>=.:|,;", *x->at)) {
        bool printable = *x->at > 32 && *x->at < 127;
        return tern_fail(x->err, TERN_ERR_FORMAT, "line %u: unexpected '%c'", x->line,
                         printable ? *x->at : '?');
    }
    return add(x, (uint8_t)*x->at++, (jvalue){0});
}

// The end of the tag, if it is here: `%}`, `-%}`, `+%}` or `}}`, `-}}`.
static const char *match_end(const lexer *x, bool is_print, char *sign) {
    const char *p = x->at;
    *sign = 0;
    if (*p == '-' || (*p == '+' && !is_print)) *sign = *p++;
    return looking_at(x, p, is_print ? "}}" : "%}") ? p + 2 : NULL;
}

static tern_status lex_tag(lexer *x, bool is_print) {
    uint32_t first_line = x->line;
    int depth = 0; // of brackets: "}}" may end two dicts
    x->at += 2;
    if (x->at < x->end && (*x->at == '-' || *x->at == '+')) x->at++;
    TERN_TRY(add(x, is_print ? J_OP_PRINT_BEGIN : J_OP_BLOCK_BEGIN, (jvalue){0}));
    for (;;) {
        move_to(x, skip_space(x, x->at));
        if (x->at >= x->end) break;
        char sign, c = *x->at;
        const char *after = depth == 0 ? match_end(x, is_print, &sign) : NULL;
        if (after) {
            TERN_TRY(add(x, is_print ? J_OP_PRINT_END : J_OP_BLOCK_END, (jvalue){0}));
            end_tag(x, after, sign, is_print);
            return TERN_OK;
        }
        bool after_dot = x->n && x->tokens[x->n - 1].op == '.' && x->at[-1] == '.';
        if (c == '"' || c == '\'') {
            TERN_TRY(lex_string(x));
        } else if (is_digit(c)) {
            TERN_TRY(lex_number(x, after_dot));
        } else if (is_name_start(c)) {
            const char *p = x->at;
            while (p < x->end && is_name_char(*p)) p++;
            TERN_TRY(add(x, J_OP_NAME, J_STR_OF(x->at, p - x->at)));
            x->at = p;
        } else {
            TERN_TRY(lex_operator(x));
            if (strchr("([{", c)) depth++;
            if (strchr(")]}", c) && depth-- == 0) return fail(x, "a bracket that was not opened");
        }
    }
    x->line = first_line;
    return fail(x, is_print ? "'{{' without '}}'" : "'{%' without '%}'");
}

// \r\n and \r become \n; the last newline is dropped.
static tern_status normalise(lexer *x, tern_str source) {
    char *copy = tern_jinja_arena_alloc(x->arena, source.len + 1), *to = copy;
    if (!copy) return tern_fail_memory(x->err, source.len);
    for (size_t i = 0; i < source.len; i++) {
        if (source.ptr[i] == '\r') {
            if (i + 1 < source.len && source.ptr[i + 1] == '\n') i++;
            *to++ = '\n';
        } else {
            *to++ = source.ptr[i];
        }
    }
    if (to > copy && to[-1] == '\n' && !x->keeps_space) to--;
    x->begin = x->at = copy;
    x->end = to;
    return TERN_OK;
}

tern_status tern_jinja_lex(jarena *arena, tern_str source, jspace space, jtoken **tokens,
                           tern_error *err) {
    lexer x = {.arena = arena, .line = 1, .line_start = true, .err = err};
    x.keeps_space = space == J_SPACE_KEPT;
    tern_status status = normalise(&x, source);
    while (status == TERN_OK && x.at < x.end) {
        const char *tag = x.at;
        while (tag < x.end && !(*tag == '{' && tag + 1 < x.end && strchr("{%#", tag[1]) && tag[1]))
            tag++;
        if (tag == x.end) {
            status = add(&x, J_OP_TEXT, J_STR_OF(x.at, tag - x.at));
            move_to(&x, tag);
            break;
        }
        char sign = tag + 2 < x.end ? tag[2] : 0, raw_sign = 0;
        const char *raw = tag[1] == '%' ? match_word_tag(&x, tag, "raw", &raw_sign) : NULL;
        status = add_text(&x, tag, sign, tag[1] == '{');
        if (status != TERN_OK) break;
        if (raw)
            status = lex_raw(&x, raw, raw_sign);
        else
            status = tag[1] == '#' ? lex_comment(&x) : lex_tag(&x, tag[1] == '{');
    }
    if (status == TERN_OK) status = add(&x, J_OP_END, (jvalue){0});
    *tokens = x.tokens;
    return status;
}
