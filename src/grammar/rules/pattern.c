// Reads a regular expression into a tree.
#include "grammar/rules/pattern.h"

#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

#define DEPTH_MAX  100     // of groups, which are read and made by recursion
#define RANGES_MAX 1000000 // of all sets of characters together

typedef struct reader {
    tern_terms *t;
    tern_pattern *p;
    const char *text;
    size_t n, at;
    int depth;
    tern_error *err;
} reader;

static tern_status refuse(const reader *r, size_t at, const char *what) {
    return tern_fail(r->err, TERN_ERR_UNSUPPORTED, "pattern: %s at character %zu of '%.*s'", what,
                     at + 1, (int)(r->n < 200 ? r->n : 200), r->text);
}

static bool is_at(const reader *r, const char *text) {
    size_t n = strlen(text);
    return r->n - r->at >= n && memcmp(r->text + r->at, text, n) == 0;
}

static bool eat(reader *r, const char *text) {
    if (!is_at(r, text)) return false;
    r->at += strlen(text);
    return true;
}

static bool is_list(tern_pattern_kind kind) {
    return kind == TERN_PATTERN_CAT || kind == TERN_PATTERN_EITHER;
}

static tern_status new_node(reader *r, tern_pattern_node node, uint32_t *out) {
    tern_pattern *p = r->p;
    if (tern_array_reserve(TERN_MEM_SESSION, &p->nodes, &p->nodes_capacity, p->n_nodes, 1) != 0)
        return tern_fail_memory(r->err, sizeof *p->nodes);
    const bool has_inside = node.kind == TERN_PATTERN_REPEAT || node.kind > TERN_PATTERN_END;
    const uint32_t *inside = is_list(node.kind) ? p->parts + node.a : &node.a;
    const size_t n = is_list(node.kind) ? node.b : has_inside;
    node.asserts = node.kind >= TERN_PATTERN_BEGIN;
    node.begins = node.kind == TERN_PATTERN_BEGIN;
    for (size_t i = 0; i < n; i++) {
        node.asserts |= p->nodes[inside[i]].asserts;
        node.begins |= p->nodes[inside[i]].begins;
    }
    p->nodes[p->n_nodes] = node;
    *out = (uint32_t)p->n_nodes++;
    return TERN_OK;
}

// The parts of a list while it is read.
typedef struct part_list {
    uint32_t *at;
    size_t n, capacity;
} part_list;

static tern_status add_part(reader *r, part_list *l, uint32_t part) {
    if (tern_array_reserve(TERN_MEM_SESSION, &l->at, &l->capacity, l->n, 1) != 0)
        return tern_fail_memory(r->err, l->n * sizeof *l->at);
    l->at[l->n++] = part;
    return TERN_OK;
}

static tern_status list_node(reader *r, tern_pattern_kind kind, const part_list *l, uint32_t *out) {
    tern_pattern *p = r->p;
    if (l->n == 0) return new_node(r, (tern_pattern_node){0}, out);
    *out = l->at[0];
    if (l->n == 1) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &p->parts, &p->parts_capacity, p->n_parts, l->n) != 0)
        return tern_fail_memory(r->err, l->n * sizeof *l->at);
    const tern_pattern_node node = {kind, .a = (uint32_t)p->n_parts, .b = (uint32_t)l->n};
    memcpy(p->parts + p->n_parts, l->at, l->n * sizeof *l->at);
    p->n_parts += l->n;
    return new_node(r, node, out);
}

// Takes ownership of the set.
static tern_status codes_node(reader *r, tern_codes *c, uint32_t *out) {
    tern_pattern *p = r->p;
    p->n_ranges += c->n;
    if (p->n_ranges > RANGES_MAX) {
        tern_codes_free(c);
        return refuse(r, r->at, "too many sets of characters");
    }
    if (c->failed ||
        tern_array_reserve(TERN_MEM_SESSION, &p->codes, &p->codes_capacity, p->n_codes, 1) != 0) {
        tern_codes_free(c);
        return tern_fail_memory(r->err, sizeof *c);
    }
    p->codes[p->n_codes++] = *c;
    return new_node(
        r, (tern_pattern_node){.kind = TERN_PATTERN_CODES, .a = (uint32_t)p->n_codes - 1}, out);
}

// ---- Characters and classes ---------------------------------------------------------------------

static const tern_code_range digits[] = {{'0', '9'}};
static const tern_code_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const tern_code_range spaces[] = {
    {9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
    {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const tern_code_range line_feed[] = {{'\n', '\n'}};
static const tern_code_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static void add_class(tern_codes *c, const tern_code_range *ranges, size_t n, bool inverted) {
    tern_codes one = {0};
    for (size_t i = 0; i < n; i++) tern_codes_add(&one, ranges[i].first, ranges[i].last);
    if (inverted) tern_codes_invert(&one);
    c->failed = c->failed || one.failed;
    tern_codes_add_all(c, &one);
    tern_codes_free(&one);
}
#define ADD_CLASS(c, ranges, inverted)                                                             \
    add_class(c, ranges, sizeof(ranges) / sizeof *(ranges), inverted)

static void add_dot(const reader *r, tern_codes *c) {
    if (r->p->way.dot == TERN_DOT_ALL)
        tern_codes_add(c, 0, TERN_CODE_MAX);
    else if (r->p->way.dot == TERN_DOT_LINE)
        ADD_CLASS(c, line_feed, true);
    else
        ADD_CLASS(c, line_ends, true);
}

// Adds the characters from first to last; in any case, if the pattern's letters are.
static void add_codes(const reader *r, tern_codes *c, uint32_t first, uint32_t last) {
    tern_codes_add(c, first, last);
    for (uint32_t base = 'A'; r->p->way.any_case && base <= 'a'; base += 0x20) {
        const uint32_t low = first > base ? first : base;
        const uint32_t high = last < base + 25 ? last : base + 25;
        if (low <= high) tern_codes_add(c, low ^ 0x20, high ^ 0x20);
    }
}

// After a backslash: \p{Letter} and its like. False: the name is not known, and is refused as an
// escape.
static bool eat_property(reader *r, tern_codes *c) {
    const char *begin = r->text + r->at + 2;
    bool has_braces = (is_at(r, "p{") || is_at(r, "P{"));
    const char *end = has_braces ? memchr(begin, '}', r->n - r->at - 2) : NULL;
    tern_codes one = {0};
    bool is_known = end && tern_pattern_property(r->t, &one, begin, (size_t)(end - begin));
    if (is_known && r->text[r->at] == 'P') tern_codes_invert(&one);
    if (is_known) {
        tern_codes_add_all(c, &one);
        c->failed |= one.failed;
        r->at = (size_t)(end + 1 - r->text);
    }
    tern_codes_free(&one);
    return is_known;
}

// After a backslash: \d and its like are added. False: it is none of these.
static bool eat_class(reader *r, tern_codes *c) {
    if (r->at >= r->n) return false;
    switch (r->text[r->at]) {
    case 'p':
    case 'P': return eat_property(r, c);
    case 'd': ADD_CLASS(c, digits, false); break;
    case 'D': ADD_CLASS(c, digits, true); break;
    case 'w': ADD_CLASS(c, words, false); break;
    case 'W': ADD_CLASS(c, words, true); break;
    case 's': ADD_CLASS(c, spaces, false); break;
    case 'S': ADD_CLASS(c, spaces, true); break;
    default: return false;
    }
    r->at++;
    return true;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool eat_hex(reader *r, int n, uint32_t *code) {
    if (r->n - r->at < (size_t)n) return false;
    uint32_t v = 0;
    for (int i = 0; i < n; i++) {
        int d = hex_digit(r->text[r->at + (size_t)i]);
        if (d < 0) return false;
        v = v << 4 | (uint32_t)d;
    }
    r->at += (size_t)n;
    *code = v;
    return true;
}

// After \u.
static tern_status read_unicode(reader *r, size_t from, uint32_t *code) {
    if (eat(r, "{")) {
        uint32_t v = 0;
        size_t n = 0;
        for (; r->at < r->n && hex_digit(r->text[r->at]) >= 0 && n < 8; n++)
            v = v << 4 | (uint32_t)hex_digit(r->text[r->at++]);
        if (n == 0 || !eat(r, "}") || v > TERN_CODE_MAX) return refuse(r, from, "a wrong \\u{}");
        *code = v;
    } else if (!eat_hex(r, 4, code)) {
        return refuse(r, from, "\\u without four hexadecimal digits");
    }
    size_t back = r->at;
    uint32_t low;
    if (*code >= 0xD800 && *code < 0xDC00 && eat(r, "\\u") && eat_hex(r, 4, &low) &&
        low >= 0xDC00 && low < 0xE000) {
        *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
        return TERN_OK;
    }
    r->at = back;
    if (*code >= 0xD800 && *code < 0xE000) return refuse(r, from, "half of a surrogate pair");
    return TERN_OK;
}

// After a backslash that does not begin a class.
static tern_status read_escape(reader *r, bool in_class, uint32_t *code) {
    static const char letters[] = "fnrtv", values[] = "\f\n\r\t\v";
    size_t from = r->at - 1;
    if (r->at >= r->n) return refuse(r, from, "a backslash without a character");
    char c = r->text[r->at];
    const char *hit = c ? strchr(letters, c) : NULL;
    if (hit) {
        *code = (unsigned char)values[hit - letters];
        r->at++;
        return TERN_OK;
    }
    if (c == 'b' && in_class) {
        *code = '\b';
        r->at++;
        return TERN_OK;
    }
    if (c == 'u') {
        r->at++;
        return read_unicode(r, from, code);
    }
    if (c == 'x') {
        r->at++;
        return eat_hex(r, 2, code) ? TERN_OK : refuse(r, from, "\\x without two hex digits");
    }
    if (c == 'c' && r->n - r->at >= 2 && (r->text[r->at + 1] | 0x20) >= 'a' &&
        (r->text[r->at + 1] | 0x20) <= 'z') {
        *code = (unsigned char)r->text[r->at + 1] & 31;
        r->at += 2;
        return TERN_OK;
    }
    if (c == '0' && (r->n - r->at < 2 || r->text[r->at + 1] < '0' || r->text[r->at + 1] > '9')) {
        *code = 0;
        r->at++;
        return TERN_OK;
    }
    if (c >= '0' && c <= '9') return refuse(r, from, "a reference back (\\1)");
    if (c == 'b' || c == 'B') return refuse(r, from, "a word boundary (\\b)");
    if (c == 'p' || c == 'P') return refuse(r, from, "an unknown property (\\p)");
    if (c == 'k') return refuse(r, from, "a reference back (\\k)");
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return refuse(r, from, "an unknown escape");
    int length = tern_utf8_decode(r->text + r->at, r->n - r->at, code);
    if (length <= 0) return refuse(r, from, "invalid UTF-8");
    r->at += (size_t)length;
    return TERN_OK;
}

static tern_status read_code(reader *r, uint32_t *code) {
    int length = tern_utf8_decode(r->text + r->at, r->n - r->at, code);
    if (length <= 0) return refuse(r, r->at, "invalid UTF-8");
    r->at += (size_t)length;
    return TERN_OK;
}

// A member of a class. is_class: it was \d or one of its like, and is added already.
static tern_status read_member(reader *r, tern_codes *c, bool *is_class, uint32_t *code) {
    *is_class = false;
    if (!eat(r, "\\")) return read_code(r, code);
    *is_class = eat_class(r, c);
    return *is_class ? TERN_OK : read_escape(r, true, code);
}

// After [.
static tern_status read_set(reader *r, tern_codes *c) {
    size_t from = r->at - 1;
    bool inverted = eat(r, "^");
    while (!eat(r, "]")) {
        uint32_t first = 0, last = 0;
        bool is_class, is_class_too;
        if (r->at >= r->n) return refuse(r, from, "[ without ]");
        size_t member = r->at;
        TERN_TRY(read_member(r, c, &is_class, &first));
        bool is_range = is_at(r, "-") && r->n - r->at >= 2 && r->text[r->at + 1] != ']';
        if (!is_range) {
            if (!is_class) add_codes(r, c, first, first);
            continue;
        }
        r->at++;
        TERN_TRY(read_member(r, c, &is_class_too, &last));
        if (is_class || is_class_too) { // [\w-.] is three members
            tern_codes_add(c, '-', '-');
            if (!is_class) add_codes(r, c, first, first);
            if (!is_class_too) add_codes(r, c, last, last);
        } else if (first > last) {
            return refuse(r, member, "a range that falls");
        } else {
            add_codes(r, c, first, last);
        }
    }
    tern_codes_normalize(c);
    if (inverted) tern_codes_invert(c);
    return TERN_OK;
}

// ---- Structure ----------------------------------------------------------------------------------

static tern_status read_either(reader *r, uint32_t *out);

// After (.
static tern_status read_group(reader *r, uint32_t *out) {
    size_t from = r->at - 1;
    tern_pattern_kind kind = TERN_PATTERN_EMPTY;
    if (eat(r, "?="))
        kind = TERN_PATTERN_AHEAD;
    else if (eat(r, "?!"))
        kind = TERN_PATTERN_NOT_AHEAD;
    else if (is_at(r, "?<=") || is_at(r, "?<!"))
        return refuse(r, from, "looking behind");
    else if (eat(r, "?<") || eat(r, "?P<")) {
        while (r->at < r->n && r->text[r->at] != '>') r->at++;
        if (!eat(r, ">")) return refuse(r, from, "(?< without >");
    } else if (!eat(r, "?:") && is_at(r, "?")) {
        return refuse(r, from, "an unknown kind of group");
    }
    if (kind != TERN_PATTERN_EMPTY && r->p->way.is_part)
        return refuse(r, from, "looking ahead, beyond the terminal,");
    if (++r->depth > DEPTH_MAX) return refuse(r, from, "groups nested more than 100 deep");
    TERN_TRY(read_either(r, out));
    r->depth--;
    if (!eat(r, ")")) return refuse(r, from, "( without )");
    if (kind == TERN_PATTERN_EMPTY) return TERN_OK;
    return new_node(r, (tern_pattern_node){.kind = kind, .a = *out, .at = (uint32_t)from}, out);
}

static tern_status read_atom(reader *r, uint32_t *out) {
    const uint32_t from = (uint32_t)r->at;
    tern_codes c = {0};
    uint32_t code = 0;
    tern_status status = TERN_OK;
    if (eat(r, "(")) return read_group(r, out);
    if (eat(r, "^")) return new_node(r, (tern_pattern_node){TERN_PATTERN_BEGIN, .at = from}, out);
    if (eat(r, "$")) return new_node(r, (tern_pattern_node){TERN_PATTERN_END, .at = from}, out);
    if (is_at(r, "*") || is_at(r, "+") || is_at(r, "?"))
        return refuse(r, from, "nothing that could be repeated");
    if (eat(r, "."))
        add_dot(r, &c);
    else if (eat(r, "["))
        status = read_set(r, &c);
    else if (!eat(r, "\\"))
        status = read_code(r, &code);
    else if (!eat_class(r, &c))
        status = read_escape(r, false, &code);
    else
        code = UINT32_MAX;
    bool is_one = status == TERN_OK && c.n == 0 && code != UINT32_MAX && r->text[from] != '[';
    if (is_one) add_codes(r, &c, code, code);
    tern_codes_normalize(&c);
    if (status == TERN_OK) return codes_node(r, &c, out);
    tern_codes_free(&c);
    return status;
}

static bool eat_number(reader *r, uint32_t *out) {
    size_t from = r->at;
    uint64_t v = 0;
    for (; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        if (v < UINT32_MAX) v = v * 10 + (uint64_t)(r->text[r->at] - '0');
    *out = v < UINT32_MAX ? (uint32_t)v : UINT32_MAX - 1;
    return r->at > from;
}

// Whether a count stands here; a brace that does not begin one is a literal.
static bool eat_counts(reader *r, uint32_t *min, uint32_t *max) {
    size_t from = r->at;
    *min = 0;
    *max = TERN_NO_LIMIT;
    if (eat(r, "*")) return true;
    if (eat(r, "+")) {
        *min = 1;
        return true;
    }
    if (eat(r, "?")) {
        *max = 1;
        return true;
    }
    if (eat(r, "{") && eat_number(r, min)) {
        if (!eat(r, ","))
            *max = *min;
        else if (!is_at(r, "}"))
            eat_number(r, max);
        if (eat(r, "}")) return true;
    }
    r->at = from;
    return false;
}

static tern_status read_piece(reader *r, uint32_t *out) {
    tern_pattern_node n = {.kind = TERN_PATTERN_REPEAT};
    size_t from = r->at;
    TERN_TRY(read_atom(r, &n.a));
    n.at = (uint32_t)r->at;
    *out = n.a;
    if (!eat_counts(r, &n.min, &n.max)) return TERN_OK;
    eat(r, "?"); // a lazy repeat matches the same texts
    if (n.min > n.max) return refuse(r, n.at, "a count that falls");
    if (n.min > TERN_PATTERN_REPEAT_MAX ||
        (n.max > TERN_PATTERN_REPEAT_MAX && n.max != TERN_NO_LIMIT))
        return refuse(r, n.at, "a count over 100000");
    if (r->p->nodes[n.a].asserts) return refuse(r, from, "^, $ or looking ahead that is repeated");
    TERN_TRY(new_node(r, n, out));
    size_t next = r->at;
    uint32_t again;
    if (eat_counts(r, &again, &again)) return refuse(r, next, "a repeat of a repeat");
    return TERN_OK;
}

static tern_status read_cat(reader *r, uint32_t *out) {
    part_list parts = {0};
    tern_status status = TERN_OK;
    while (status == TERN_OK && r->at < r->n && !is_at(r, "|") && !(is_at(r, ")") && r->depth)) {
        uint32_t piece;
        status = is_at(r, ")") ? refuse(r, r->at, ") without (") : read_piece(r, &piece);
        if (status == TERN_OK) status = add_part(r, &parts, piece);
    }
    if (status == TERN_OK) status = list_node(r, TERN_PATTERN_CAT, &parts, out);
    tern_free(parts.at);
    return status;
}

static tern_status read_either(reader *r, uint32_t *out) {
    part_list ways = {0};
    tern_status status;
    do {
        uint32_t way;
        status = read_cat(r, &way);
        if (status == TERN_OK) status = add_part(r, &ways, way);
    } while (status == TERN_OK && eat(r, "|"));
    if (status == TERN_OK) status = list_node(r, TERN_PATTERN_EITHER, &ways, out);
    tern_free(ways.at);
    return status;
}

tern_status tern_pattern_parse(tern_terms *t, tern_pattern *p, const char *pattern, size_t n,
                               uint32_t *root, tern_error *err) {
    reader r = {.t = t, .p = p, .text = pattern, .n = n, .err = err};
    return read_either(&r, root);
}

void tern_pattern_free(tern_pattern *p) {
    for (size_t i = 0; i < p->n_codes; i++) tern_codes_free(&p->codes[i]);
    tern_free(p->codes);
    tern_free(p->parts);
    tern_free(p->nodes);
    *p = (tern_pattern){0};
}
