// Reads grammars in GBNF and in Lark's notation.
//
//     GBNF    root ::= "a" [b-c]* (x | "\n"){2,3}          # a comment
//     Lark    start: "a" /[b-c]*/ (x | "\n")~2..3          // a comment
//             X: "x"i        %ignore WS        %import common.WS
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/rules/ebnf_reader.h"

#define DEPTH_MAX  80 // of brackets, which are read by recursion
#define REPEAT_MAX 10000

typedef tern_ebnf_reader reader;
#define refuse tern_ebnf_refuse
#define is_at  tern_ebnf_is_at
#define eat    tern_ebnf_eat

static uint32_t line_of(reader *r) {
    for (; r->counted < r->at && r->counted < r->n; r->counted++)
        r->line += r->text[r->counted] == '\n';
    return r->line;
}

tern_status tern_ebnf_refuse(reader *r, const char *what) {
    return tern_fail(r->e->err, TERN_ERR_UNSUPPORTED, "grammar: line %u: %s", line_of(r), what);
}

static bool at_comment(const reader *r) { return is_at(r, "#") || (r->lark && is_at(r, "//")); }

// Skips blanks and comments; with `lines`, also newlines.
static void skip_space(reader *r, bool lines) {
    for (; r->at < r->n; r->at++) {
        if (at_comment(r))
            while (r->at < r->n && r->text[r->at] != '\n') r->at++;
        if (r->at >= r->n) return;
        char c = r->text[r->at];
        if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n')) return;
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static tern_str read_name(reader *r) {
    size_t from = r->at;
    while (r->at < r->n && is_name(r->text[r->at]) && !(r->lark && is_at(r, "->"))) r->at++;
    return (tern_str){r->text + from, r->at - from};
}

// ---- The tree -----------------------------------------------------------------------------------

static tern_status node(reader *r, tern_ebnf_node n, uint32_t *out) {
    tern_ebnf *e = r->e;
    if (tern_array_reserve(TERN_MEM_SESSION, &e->nodes, &e->nodes_capacity, e->n_nodes, 1) != 0)
        return tern_fail_memory(e->err, sizeof n);
    e->nodes[e->n_nodes] = n;
    *out = (uint32_t)e->n_nodes++;
    return TERN_OK;
}

tern_status tern_ebnf_term(reader *r, tern_term a, uint32_t *out) {
    TERN_TRY(tern_terms_check(r->e->terms, r->e->err));
    return node(r, (tern_ebnf_node){.kind = TERN_EBNF_TERM, .a = a}, out);
}

static uint64_t hash_name(const tern_ebnf *e, tern_str name) {
    return tern_hash64(e->terms->secret, name.ptr, name.len);
}

uint32_t tern_ebnf_find(const tern_ebnf *e, tern_str name) {
    if (!e->n_slots) return UINT32_MAX;
    const size_t mask = e->n_slots - 1;
    size_t n = 0;
    for (size_t at = hash_name(e, name) & mask; e->slots[at];
         at = (at + 1) & mask, tern_terms_probe(e->terms, ++n))
        if (tern_str_eq(e->rules[e->slots[at] - 1].name, name)) return e->slots[at] - 1;
    return UINT32_MAX;
}

static bool grow_names(tern_ebnf *e) {
    if (e->n_rules * 2 < e->n_slots) return true;
    const size_t more = e->n_slots ? e->n_slots * 2 : 64, mask = more - 1;
    uint32_t *slots = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < e->n_rules; i++) {
        size_t at = hash_name(e, e->rules[i].name) & mask;
        while (slots[at]) at = (at + 1) & mask;
        slots[at] = (uint32_t)i + 1;
    }
    tern_free(e->slots);
    e->slots = slots;
    e->n_slots = more;
    return true;
}

// The rule of a name, made when the name is met first.
static tern_status rule_named(reader *r, tern_str name, uint32_t *out) {
    tern_ebnf *e = r->e;
    *out = tern_ebnf_find(e, name);
    if (*out != UINT32_MAX) return TERN_OK;
    if (!grow_names(e) ||
        tern_array_reserve(TERN_MEM_SESSION, &e->rules, &e->rules_capacity, e->n_rules, 1) != 0)
        return tern_fail_memory(e->err, sizeof *e->rules);
    bool is_terminal = r->lark && name.len && name.ptr[name.ptr[0] == '_' && name.len > 1] >= 'A' &&
                       name.ptr[name.ptr[0] == '_' && name.len > 1] <= 'Z';
    size_t at = hash_name(e, name) & (e->n_slots - 1);
    while (e->slots[at]) at = (at + 1) & (e->n_slots - 1);
    e->rules[e->n_rules] =
        (tern_ebnf_rule){.name = name, .line = line_of(r), .is_terminal = is_terminal};
    e->slots[at] = (uint32_t)++e->n_rules;
    *out = (uint32_t)e->n_rules - 1;
    return TERN_OK;
}

// ---- Expressions --------------------------------------------------------------------------------

static tern_status read_either(reader *r, uint32_t *out);

// Whether a rule begins here: a name and its sign.
static bool at_rule(const reader *r) {
    reader look = *r;
    if (r->lark) {
        while (eat(&look, "?") || eat(&look, "!")) {
        }
        if (is_at(&look, "%")) return true;
    }
    tern_str name = read_name(&look);
    if (!name.len) return false;
    skip_space(&look, false);
    if (r->lark && eat(&look, ".")) {
        read_name(&look);
        skip_space(&look, false);
    }
    return r->lark ? is_at(&look, ":") || is_at(&look, "{") : is_at(&look, "::=");
}

// Whether an expression ends here. It goes on over the end of a line unless a rule begins.
static bool at_end(reader *r) {
    reader next = *r;
    skip_space(&next, false);
    if (next.at < r->n && r->text[next.at] == '\n') {
        skip_space(&next, true);
        if (at_rule(&next)) return true;
    }
    r->at = next.at;
    return r->at >= r->n || is_at(r, "|") || is_at(r, ")") || (r->lark && is_at(r, "]")) ||
           (r->lark && is_at(r, "->"));
}

static tern_status read_bracket(reader *r, const char *close, uint32_t *out) {
    if (++r->depth > DEPTH_MAX) return refuse(r, "nested more than 80 deep");
    TERN_TRY(read_either(r, out));
    skip_space(r, true);
    if (!eat(r, close)) return refuse(r, "a bracket that is not closed");
    r->depth--;
    return TERN_OK;
}

static tern_status read_atom(reader *r, uint32_t *out) {
    if (eat(r, "\"")) return tern_ebnf_literal(r, out);
    if (eat(r, "(")) return read_bracket(r, ")", out);
    if (r->lark && eat(r, "[")) {
        TERN_TRY(read_bracket(r, "]", out));
        return node(r, (tern_ebnf_node){TERN_EBNF_REPEAT, *out, 0, 0, 1}, out);
    }
    if (r->lark && eat(r, "/")) return tern_ebnf_pattern(r, out);
    if (!r->lark && eat(r, "[")) return tern_ebnf_class(r, out);
    if (!r->lark && eat(r, ".")) return tern_ebnf_any(r, out);
    if (is_at(r, "<")) return refuse(r, "tokens by name (<...>) are not known");
    tern_str name = read_name(r);
    if (!name.len) return refuse(r, "a literal, a class, a bracket or a name is expected");
    uint32_t rule;
    TERN_TRY(rule_named(r, name, &rule));
    if (r->in_terminal && !r->e->rules[rule].is_terminal)
        return refuse(r, "a terminal is made of terminals only");
    return node(r, (tern_ebnf_node){TERN_EBNF_RULE, rule, 0, 0, 0}, out);
}

static bool read_count(reader *r, uint32_t *out) {
    size_t from = r->at;
    uint64_t v = 0;
    for (; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++)
        if (v < UINT32_MAX) v = v * 10 + (uint64_t)(r->text[r->at] - '0');
    if (r->at == from) return false;
    *out = v < TERN_NO_LIMIT ? (uint32_t)v : TERN_NO_LIMIT - 1;
    return true;
}

// * + ? {m,n}, in Lark also ~m..n; *found: whether there is one.
static tern_status read_counts(reader *r, uint32_t *min, uint32_t *max, bool *found) {
    *min = 0;
    *max = TERN_NO_LIMIT;
    *found = true;
    if (eat(r, "*")) return TERN_OK;
    if (eat(r, "+")) {
        *min = 1;
        return TERN_OK;
    }
    if (eat(r, "?")) {
        *max = 1;
        return TERN_OK;
    }
    bool is_tilde = r->lark && eat(r, "~");
    *found = is_tilde || eat(r, "{");
    if (!*found) return TERN_OK;
    skip_space(r, false);
    bool has_min = read_count(r, min);
    skip_space(r, false);
    if (is_tilde ? eat(r, "..") : eat(r, ",")) {
        skip_space(r, false);
        if (!read_count(r, max) && is_tilde) return refuse(r, "a count is expected");
        skip_space(r, false);
    } else {
        *max = *min;
        if (!has_min) return refuse(r, "a count is expected");
    }
    if (!is_tilde && !eat(r, "}")) return refuse(r, "a count that is not closed");
    if (*min > *max) return refuse(r, "a count that falls");
    if (*min > REPEAT_MAX || (*max > REPEAT_MAX && *max != TERN_NO_LIMIT))
        return refuse(r, "a count over 10000");
    return TERN_OK;
}

typedef struct part_list {
    uint32_t *at;
    size_t n, capacity;
} part_list;

static tern_status add_part(reader *r, part_list *l, uint32_t part) {
    if (tern_array_reserve(TERN_MEM_SESSION, &l->at, &l->capacity, l->n, 1) != 0)
        return tern_fail_memory(r->e->err, l->n * sizeof *l->at);
    l->at[l->n++] = part;
    return TERN_OK;
}

// The node of a list; frees the list.
static tern_status list_node(reader *r, tern_ebnf_kind kind, part_list *l, uint32_t *out) {
    tern_ebnf *e = r->e;
    tern_status status = TERN_OK;
    if (l->n == 1) {
        *out = l->at[0];
    } else if (l->n == 0) {
        status = node(r, (tern_ebnf_node){0}, out);
    } else if (tern_array_reserve(TERN_MEM_SESSION, &e->parts, &e->parts_capacity, e->n_parts,
                                  l->n) != 0) {
        status = tern_fail_memory(e->err, l->n * sizeof *l->at);
    } else {
        memcpy(e->parts + e->n_parts, l->at, l->n * sizeof *l->at);
        e->n_parts += l->n;
        status = node(
            r, (tern_ebnf_node){kind, (uint32_t)(e->n_parts - l->n), (uint32_t)l->n, 0, 0}, out);
    }
    tern_free(l->at);
    return status;
}

static tern_status read_piece(reader *r, uint32_t *out) {
    tern_ebnf_node n = {TERN_EBNF_REPEAT, 0, 0, 0, 0};
    bool found;
    TERN_TRY(read_atom(r, out));
    for (int i = 0;; i++) {
        TERN_TRY(read_counts(r, &n.min, &n.max, &found));
        if (!found) return TERN_OK;
        if (i > 20) return refuse(r, "too many repeats of repeats");
        n.a = *out;
        TERN_TRY(node(r, n, out));
    }
}

static tern_status read_cat(reader *r, uint32_t *out) {
    part_list l = {0};
    tern_status status = TERN_OK;
    while (status == TERN_OK && !at_end(r)) {
        uint32_t piece;
        status = read_piece(r, &piece);
        if (status == TERN_OK) status = add_part(r, &l, piece);
    }
    if (status != TERN_OK) {
        tern_free(l.at);
        return status;
    }
    TERN_TRY(list_node(r, TERN_EBNF_CAT, &l, out));
    if (!r->lark || !eat(r, "->")) return TERN_OK;
    skip_space(r, false); // a name for the alternative, which is not needed here
    read_name(r);
    return at_end(r) ? TERN_OK : refuse(r, "something after the name of an alternative");
}

static tern_status read_either(reader *r, uint32_t *out) {
    part_list l = {0};
    tern_status status;
    do {
        uint32_t way;
        if (l.n) skip_space(r, true);
        status = read_cat(r, &way);
        if (status == TERN_OK) status = add_part(r, &l, way);
    } while (status == TERN_OK && eat(r, "|"));
    if (status != TERN_OK) {
        tern_free(l.at);
        return status;
    }
    return list_node(r, TERN_EBNF_EITHER, &l, out);
}

// ---- Rules --------------------------------------------------------------------------------------

static tern_status define(reader *r, tern_str name, uint32_t body) {
    uint32_t rule;
    TERN_TRY(rule_named(r, name, &rule));
    tern_ebnf_rule *d = &r->e->rules[rule];
    if (d->is_defined) return refuse(r, "a rule that is defined twice");
    d->is_defined = true;
    d->node = body;
    return TERN_OK;
}

static tern_status import_one(reader *r) {
    tern_str name = read_name(r), as = name;
    skip_space(r, false);
    if (eat(r, "->")) {
        skip_space(r, false);
        as = read_name(r);
    }
    uint32_t body = 0;
    TERN_TRY(tern_ebnf_common(r, name, &body));
    return define(r, as, body);
}

// After %.
static tern_status read_order(reader *r) {
    tern_str name = read_name(r);
    uint32_t body, rule;
    skip_space(r, false);
    if (tern_str_is(name, "ignore")) {
        static const char ignored[] = "%ignore"; // not a name that a grammar can have
        r->in_terminal = true;
        TERN_TRY(read_either(r, &body));
        r->in_terminal = false;
        TERN_TRY(rule_named(r, TERN_STR(ignored), &rule));
        tern_ebnf_rule *d = &r->e->rules[rule];
        if (d->is_defined) {
            part_list two = {0};
            TERN_TRY(add_part(r, &two, d->node));
            TERN_TRY(add_part(r, &two, body));
            TERN_TRY(list_node(r, TERN_EBNF_EITHER, &two, &body));
        }
        d->is_defined = d->is_ignored = d->is_terminal = true;
        d->node = body;
        return TERN_OK;
    }
    // As llama-server's grammars begin that are Lark's.
    if (tern_str_is(name, "llguidance"))
        return eat(r, "{}") ? TERN_OK : refuse(r, "%llguidance with options");
    if (!tern_str_is(name, "import")) return refuse(r, "only %import and %ignore are known");
    if (!eat(r, "common")) return refuse(r, "%import knows only the library 'common'");
    if (eat(r, ".")) return import_one(r);
    skip_space(r, false);
    if (!eat(r, "(")) return refuse(r, "%import common.NAME or common (NAME, ...) is expected");
    do {
        skip_space(r, true);
        TERN_TRY(import_one(r));
        skip_space(r, true);
    } while (eat(r, ","));
    return eat(r, ")") ? TERN_OK : refuse(r, "a bracket that is not closed");
}

static tern_status read_rule(reader *r) {
    if (r->lark) {
        if (eat(r, "%")) return read_order(r);
        while (eat(r, "?") || eat(r, "!")) {
        }
    }
    tern_str name = read_name(r);
    uint32_t body, rule;
    if (!name.len) return refuse(r, "a rule is expected");
    skip_space(r, false);
    if (r->lark && eat(r, ".")) { // a priority, which is not needed: all alternatives are followed
        read_name(r);
        skip_space(r, false);
    }
    if (r->lark && is_at(r, "{")) return refuse(r, "templates are not known");
    if (!eat(r, r->lark ? ":" : "::="))
        return refuse(r, r->lark ? "':' is expected" : "'::=' is expected");
    TERN_TRY(rule_named(r, name, &rule));
    r->in_terminal = r->e->rules[rule].is_terminal;
    skip_space(r, true);
    TERN_TRY(read_either(r, &body));
    r->in_terminal = false;
    return define(r, name, body);
}

tern_status tern_ebnf_read(tern_ebnf *e, uint32_t *root) {
    reader r = {.e = e,
                .lark = e->way->notation == TERN_NOTATION_LARK,
                .text = e->text.ptr,
                .n = e->text.len,
                .line = 1};
    const char *start = r.lark ? "start" : "root";
    for (skip_space(&r, true); r.at < r.n; skip_space(&r, true)) {
        TERN_TRY(read_rule(&r));
        skip_space(&r, false);
        if (r.at < r.n && r.text[r.at] != '\n') return refuse(&r, "something after a rule");
    }
    for (size_t i = 0; i < e->n_rules; i++)
        if (!e->rules[i].is_defined)
            return tern_fail(e->err, TERN_ERR_UNSUPPORTED,
                             "grammar: line %u: '%.*s' is not defined", e->rules[i].line,
                             (int)e->rules[i].name.len, e->rules[i].name.ptr);
    *root = tern_ebnf_find(e, (tern_str){start, strlen(start)});
    if (*root == UINT32_MAX)
        return tern_fail(e->err, TERN_ERR_UNSUPPORTED, "grammar: no rule is called '%s'", start);
    return TERN_OK;
}
