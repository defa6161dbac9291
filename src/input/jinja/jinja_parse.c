// Tokens to tree, by recursive descent; one function for each level of precedence, loosest first:
//   x if c else y | or | and | not | comparisons, in | + - | ~ | * / // % | ** | unary | postfix
// Filters and tests bind tighter than any binary operator and looser than postfix: `-a.b|abs` is
// `(-a.b)|abs`, and `not a is b` is `not (a is b)`. Nesting is limited here so that neither this
// parser nor the evaluator can exhaust the C stack.
#include "input/jinja/jinja.h"

#include <stdio.h>
#include <string.h>

#define NESTING_MAX 100

typedef struct parser {
    jarena *arena;
    const jtoken *at; // ends with J_OP_END, which is never passed
    int depth, n_loops;
    uint8_t uses; // J_USES_... of the macro that is being read
    uint8_t escape;
    jprogram *program;
    tern_error *err;
} parser;

static tern_status parse_expression(parser *p, jnode **out);
static tern_status parse_unary(parser *p, bool with_filters, jnode **out);
static tern_status parse_body(parser *p, const char *const *ends, jnode **out);

// ---- Tokens and nodes --------------------------------------------------------------------------

static const char *describe(const jtoken *t, char buffer[48]) {
    switch (t->op) {
    case J_OP_END: return "the end of the template";
    case J_OP_TEXT: return "text";
    case J_OP_BLOCK_BEGIN: return "'{%'";
    case J_OP_BLOCK_END: return "'%}'";
    case J_OP_PRINT_BEGIN: return "'{{'";
    case J_OP_PRINT_END: return "'}}'";
    case J_OP_STRING: return "a string";
    case J_OP_NUMBER: return "a number";
    case J_OP_FLOORDIV: return "'//'";
    case J_OP_POW: return "'**'";
    case J_OP_EQ: return "'=='";
    case J_OP_NE: return "'!='";
    case J_OP_LE: return "'<='";
    case J_OP_GE: return "'>='";
    case J_OP_NAME:
        snprintf(buffer, 48, "'%.*s'", (int)(t->value.n < 40 ? t->value.n : 40), t->value.s);
        return buffer;
    default: snprintf(buffer, 48, "'%c'", t->op); return buffer;
    }
}

static tern_status unexpected(parser *p, const char *expected) {
    char found[48];
    return tern_fail(p->err, TERN_ERR_FORMAT, "line %u: expected %s, found %s", p->at->line,
                     expected, describe(p->at, found));
}

static bool is_name(const jtoken *t, const char *name) {
    return t->op == J_OP_NAME && t->value.n == strlen(name) &&
           !memcmp(t->value.s, name, t->value.n);
}

static bool skip(parser *p, uint8_t op) {
    if (p->at->op != op) return false;
    p->at++;
    return true;
}

static bool skip_name(parser *p, const char *name) {
    if (!is_name(p->at, name)) return false;
    p->at++;
    return true;
}

static tern_status expect(parser *p, uint8_t op) {
    char wanted[48];
    const jtoken t = {.op = op, .value = J_STR_LIT("name")};
    return skip(p, op) ? TERN_OK : unexpected(p, describe(&t, wanted));
}

static tern_status new_node(parser *p, jkind kind, jnode **out) {
    *out = tern_jinja_arena_alloc(p->arena, sizeof **out);
    if (!*out) return tern_fail_memory(p->err, sizeof **out);
    (*out)->kind = (uint8_t)kind;
    (*out)->line = p->at->line;
    (*out)->escape = p->escape;
    return TERN_OK;
}

static tern_status enter(parser *p) {
    if (++p->depth <= NESTING_MAX) return TERN_OK;
    return tern_fail(p->err, TERN_ERR_FORMAT, "line %u: nested deeper than %d levels", p->at->line,
                     NESTING_MAX);
}

static tern_status expect_name(parser *p, jvalue *name) {
    if (p->at->op != J_OP_NAME) return unexpected(p, "a name");
    *name = p->at++->value;
    return TERN_OK;
}

// ---- Expressions -------------------------------------------------------------------------------

static tern_status parse_args(parser *p, jnode **list) { // after '('
    uint8_t latest = 0;                                  // positional arguments come first
    for (bool first = true; !skip(p, ')'); first = false) {
        if (!first) {
            TERN_TRY(expect(p, ','));
            if (skip(p, ')')) break;
        }
        jnode *arg;
        TERN_TRY(new_node(p, J_ARG, &arg));
        if (p->at->op == '*' || p->at->op == J_OP_POW) {
            arg->op = p->at++->op;
        } else if (p->at->op == J_OP_NAME && p->at[1].op == '=') {
            arg->op = '=';
            arg->value = p->at->value;
            p->at += 2;
        }
        if (arg->op == 0 && latest != 0) return unexpected(p, "a named argument");
        latest = arg->op ? arg->op : latest;
        TERN_TRY(parse_expression(p, &arg->a));
        *list = arg;
        list = &arg->next;
    }
    return TERN_OK;
}

// Items up to the closing token; a comma may stand after the last one.
static tern_status parse_items(parser *p, uint8_t close, bool pairs, jnode **list) {
    while (!skip(p, close)) {
        for (int i = 0; i <= pairs; i++) {
            TERN_TRY(parse_expression(p, list));
            list = &(*list)->next;
            if (i < pairs) TERN_TRY(expect(p, ':'));
        }
        if (p->at->op != close) TERN_TRY(expect(p, ','));
    }
    return TERN_OK;
}

static bool ends_tuple(const parser *p) {
    uint8_t op = p->at->op;
    return op == J_OP_PRINT_END || op == J_OP_BLOCK_END || op == ')' || is_name(p->at, "in") ||
           is_name(p->at, "recursive");
}

static tern_status parse_or(parser *p, jnode **out);

// One expression, or a tuple if commas follow. with_if: `a if b` belongs to it.
static tern_status parse_tuple(parser *p, bool with_if, bool may_be_empty, jnode **out) {
    jnode *first = NULL, **last = &first, *tuple;
    bool is_tuple = false;
    TERN_TRY(new_node(p, J_TUPLE_OF, &tuple));
    while (!ends_tuple(p)) {
        TERN_TRY(with_if ? parse_expression(p, last) : parse_or(p, last));
        last = &(*last)->next;
        if (!skip(p, ',')) break;
        is_tuple = true;
    }
    if (!first && !may_be_empty) return unexpected(p, "an expression");
    tuple->list = first;
    *out = first && !is_tuple ? first : tuple;
    return TERN_OK;
}

static tern_status parse_string(parser *p, jnode *node) { // "a" "b" is one string
    size_t n = 0;
    const jtoken *t = p->at;
    for (; t->op == J_OP_STRING; t++) n += t->value.n;
    node->value = p->at->value;
    if (t > p->at + 1) {
        char *joined = tern_jinja_arena_alloc(p->arena, n + 1), *to = joined;
        if (!joined) return tern_fail_memory(p->err, n);
        for (const jtoken *q = p->at; q < t; to += q++->value.n) memcpy(to, q->value.s, q->value.n);
        node->value = J_STR_OF(joined, n);
    }
    p->at = t;
    return TERN_OK;
}

static tern_status parse_primary(parser *p, jnode **out) {
    jnode *node;
    TERN_TRY(new_node(p, J_CONST, &node));
    *out = node;
    switch (p->at->op) {
    case J_OP_NAME:
        if (is_name(p->at, "true") || is_name(p->at, "True"))
            node->value = J_BOOL_OF(true);
        else if (is_name(p->at, "false") || is_name(p->at, "False"))
            node->value = J_BOOL_OF(false);
        else if (is_name(p->at, "none") || is_name(p->at, "None"))
            node->value = J_NONE_VALUE;
        else {
            node->kind = J_NAME;
            node->value = p->at->value;
            if (is_name(p->at, "self")) p->program->uses_self = true;
            if (is_name(p->at, "varargs")) p->uses |= J_USES_VARARGS;
            if (is_name(p->at, "kwargs")) p->uses |= J_USES_KWARGS;
            if (is_name(p->at, "caller")) p->uses |= J_USES_CALLER;
        }
        p->at++;
        return TERN_OK;
    case J_OP_STRING: return parse_string(p, node);
    case J_OP_NUMBER: node->value = p->at++->value; return TERN_OK;
    case '(':
        p->at++;
        TERN_TRY(parse_tuple(p, true, true, out));
        return expect(p, ')');
    case '[':
        p->at++;
        node->kind = J_LIST_OF;
        return parse_items(p, ']', false, &node->list);
    case '{':
        p->at++;
        node->kind = J_DICT_OF;
        return parse_items(p, '}', true, &node->list);
    default: return unexpected(p, "an expression");
    }
}

static tern_status parse_subscript(parser *p, jnode **key) { // after '['
    jnode *slice;
    *key = NULL;
    TERN_TRY(new_node(p, J_SLICE, &slice));
    if (p->at->op != ':') TERN_TRY(parse_expression(p, key));
    if (p->at->op == ':') {
        slice->a = *key;
        *key = slice;
        p->at++;
        if (p->at->op != ':' && p->at->op != ']') TERN_TRY(parse_expression(p, &slice->b));
        if (skip(p, ':') && p->at->op != ']') TERN_TRY(parse_expression(p, &slice->c));
    }
    return expect(p, ']');
}

// .name [key] (args), repeated.
static tern_status parse_postfix(parser *p, jnode **node) {
    for (;;) {
        jnode *outer;
        uint8_t op = p->at->op;
        if (op != '.' && op != '[' && op != '(') return TERN_OK;
        TERN_TRY(new_node(p, op == '(' ? J_CALL : op == '[' ? J_ITEM : J_ATTR, &outer));
        outer->a = *node;
        p->at++;
        if (op == '(') {
            TERN_TRY(parse_args(p, &outer->list));
        } else if (op == '[') {
            TERN_TRY(parse_subscript(p, &outer->b));
        } else if (p->at->op == J_OP_NUMBER && p->at->value.type == J_INT) {
            outer->kind = J_ITEM; // a.0 is a[0]
            TERN_TRY(parse_primary(p, &outer->b));
        } else {
            TERN_TRY(expect_name(p, &outer->value));
        }
        *node = outer;
    }
}

static tern_status parse_filter(parser *p, jnode **node) { // after '|'
    jnode *filter;
    TERN_TRY(new_node(p, J_FILTER, &filter));
    TERN_TRY(expect_name(p, &filter->value));
    filter->builtin = tern_jinja_find_filter(filter->value.s, filter->value.n);
    filter->a = *node;
    *node = filter;
    return skip(p, '(') ? parse_args(p, &filter->list) : TERN_OK;
}

static tern_status parse_test(parser *p, jnode **node) { // after `is`
    jnode *test, *not = NULL;
    if (is_name(p->at, "not")) {
        TERN_TRY(new_node(p, J_NOT, &not ));
        p->at++;
    }
    TERN_TRY(new_node(p, J_TEST, &test));
    TERN_TRY(expect_name(p, &test->value));
    test->builtin = tern_jinja_find_test(test->value.s, test->value.n);
    test->a = *node;
    const jtoken *t = p->at;
    if (skip(p, '(')) {
        TERN_TRY(parse_args(p, &test->list));
    } else if ((t->op == J_OP_NAME && !is_name(t, "else") && !is_name(t, "or") &&
                !is_name(t, "and") && !is_name(t, "is") && !is_name(t, "if") && !is_name(t, "in") &&
                !is_name(t, "not")) ||
               t->op == J_OP_STRING || t->op == J_OP_NUMBER || t->op == '[' || t->op == '{') {
        TERN_TRY(new_node(p, J_ARG, &test->list)); // `x is divisibleby 3`
        TERN_TRY(parse_primary(p, &test->list->a));
        TERN_TRY(parse_postfix(p, &test->list->a));
    }
    if (not ) not ->a = test;
    *node = not ? not : test;
    return TERN_OK;
}

static tern_status parse_filters(parser *p, jnode **node) {
    for (;;) {
        if (skip(p, '|'))
            TERN_TRY(parse_filter(p, node));
        else if (skip_name(p, "is"))
            TERN_TRY(parse_test(p, node));
        else if (p->at->op == '(')
            TERN_TRY(parse_postfix(p, node)); // x|filter(a)(b)
        else
            return TERN_OK;
    }
}

static tern_status parse_unary(parser *p, bool with_filters, jnode **out) {
    TERN_TRY(enter(p));
    if (p->at->op == '-' || p->at->op == '+') {
        TERN_TRY(new_node(p, p->at->op == '-' ? J_NEG : J_POS, out));
        p->at++;
        TERN_TRY(parse_unary(p, false, &(*out)->a));
    } else {
        TERN_TRY(parse_primary(p, out));
    }
    TERN_TRY(parse_postfix(p, out));
    if (with_filters) TERN_TRY(parse_filters(p, out));
    p->depth--;
    return TERN_OK;
}

// The left-associative levels, from ** up to +: level 0 is the tightest.
static tern_status parse_binary(parser *p, int level, jnode **out) {
    static const uint8_t ops[4][5] = {
        {J_OP_POW}, {'*', '/', J_OP_FLOORDIV, '%'}, {'~'}, {'+', '-'}};
    if (level < 0) return parse_unary(p, true, out);
    TERN_TRY(parse_binary(p, level - 1, out));
    while (p->at->op && memchr(ops[level], p->at->op, 4)) {
        jnode *node;
        TERN_TRY(new_node(p, p->at->op == '~' ? J_CONCAT : J_BINARY, &node));
        node->op = p->at++->op;
        node->a = *out;
        *out = node;
        TERN_TRY(parse_binary(p, level - 1, &node->b));
    }
    return TERN_OK;
}

static uint8_t compare_op(parser *p) { // consumes it; 0: none
    static const uint8_t ops[] = {J_OP_EQ, J_OP_NE, J_OP_LE, J_OP_GE, '<', '>'};
    if (memchr(ops, p->at->op, sizeof ops)) return p->at++->op;
    if (skip_name(p, "in")) return J_OP_IN;
    if (!is_name(p->at, "not") || !is_name(p->at + 1, "in")) return 0;
    p->at += 2;
    return J_OP_NOT_IN;
}

static tern_status parse_compare(parser *p, jnode **out) {
    jnode *compare = NULL, **last = NULL;
    TERN_TRY(parse_binary(p, 3, out));
    for (uint8_t op; (op = compare_op(p));) {
        if (!compare) {
            TERN_TRY(new_node(p, J_COMPARE, &compare));
            compare->a = *out;
            *out = compare;
            last = &compare->list;
        }
        TERN_TRY(new_node(p, J_COMPARE_WITH, last));
        (*last)->op = op;
        TERN_TRY(parse_binary(p, 3, &(*last)->a));
        last = &(*last)->next;
    }
    return TERN_OK;
}

static tern_status parse_not(parser *p, jnode **out) {
    if (!is_name(p->at, "not")) return parse_compare(p, out);
    TERN_TRY(enter(p));
    TERN_TRY(new_node(p, J_NOT, out));
    p->at++;
    TERN_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return TERN_OK;
}

static tern_status parse_and(parser *p, jnode **out) {
    TERN_TRY(parse_not(p, out));
    while (is_name(p->at, "and")) {
        jnode *node;
        TERN_TRY(new_node(p, J_AND, &node));
        p->at++;
        node->a = *out;
        *out = node;
        TERN_TRY(parse_not(p, &node->b));
    }
    return TERN_OK;
}

static tern_status parse_or(parser *p, jnode **out) {
    TERN_TRY(parse_and(p, out));
    while (is_name(p->at, "or")) {
        jnode *node;
        TERN_TRY(new_node(p, J_OR, &node));
        p->at++;
        node->a = *out;
        *out = node;
        TERN_TRY(parse_and(p, &node->b));
    }
    return TERN_OK;
}

static tern_status parse_expression(parser *p, jnode **out) {
    TERN_TRY(enter(p));
    TERN_TRY(parse_or(p, out));
    while (is_name(p->at, "if")) {
        jnode *node;
        TERN_TRY(new_node(p, J_COND, &node));
        p->at++;
        node->b = *out;
        *out = node;
        TERN_TRY(parse_or(p, &node->a));
        if (skip_name(p, "else")) TERN_TRY(parse_expression(p, &node->c));
    }
    p->depth--;
    return TERN_OK;
}

// ---- Statements --------------------------------------------------------------------------------

// a | a, b | (a, (b, c)) | a.b (only for `set`, on a namespace)
static tern_status parse_target(parser *p, jnode **out);

static tern_status parse_one_target(parser *p, bool with_attr, jnode **out) {
    if (skip(p, '(')) {
        TERN_TRY(enter(p));
        TERN_TRY(parse_target(p, out));
        p->depth--;
        return expect(p, ')');
    }
    TERN_TRY(new_node(p, J_NAME, out));
    TERN_TRY(expect_name(p, &(*out)->value));
    if (!with_attr || !skip(p, '.')) return TERN_OK;
    jnode *attr;
    TERN_TRY(new_node(p, J_ATTR, &attr));
    attr->a = *out;
    *out = attr;
    return expect_name(p, &attr->value);
}

static tern_status parse_target(parser *p, jnode **out) {
    jnode *tuple, **last;
    TERN_TRY(parse_one_target(p, true, out));
    if (p->at->op != ',') return TERN_OK;
    TERN_TRY(new_node(p, J_TUPLE_OF, &tuple));
    tuple->list = *out;
    *out = tuple;
    last = &tuple->list->next;
    while (skip(p, ',') && (p->at->op == J_OP_NAME || p->at->op == '(') && !is_name(p->at, "in")) {
        TERN_TRY(parse_one_target(p, true, last));
        last = &(*last)->next;
    }
    return TERN_OK;
}

static tern_status end_block(parser *p) { return expect(p, J_OP_BLOCK_END); }

// A body up to {% end %}, which is consumed.
static tern_status parse_body_to(parser *p, const char *end, jnode **list) {
    const char *const ends[] = {end, NULL};
    TERN_TRY(end_block(p));
    TERN_TRY(parse_body(p, ends, list));
    p->at++;
    return end_block(p);
}

static tern_status parse_for(parser *p, jnode **out) {
    static const char *const ends[] = {"endfor", "else", NULL};
    jnode *node;
    TERN_TRY(new_node(p, J_FOR, out));
    node = *out;
    TERN_TRY(parse_target(p, &node->a));
    if (!skip_name(p, "in")) return unexpected(p, "'in'");
    TERN_TRY(parse_tuple(p, false, false, &node->b));
    if (skip_name(p, "if")) TERN_TRY(parse_expression(p, &node->c));
    node->op = skip_name(p, "recursive");
    TERN_TRY(end_block(p));
    p->n_loops++;
    TERN_TRY(parse_body(p, ends, &node->list));
    p->n_loops--;
    bool has_else = is_name(p->at++, "else");
    return has_else ? parse_body_to(p, "endfor", &node->orelse) : end_block(p);
}

static tern_status parse_if(parser *p, jnode **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        jnode *node;
        TERN_TRY(new_node(p, J_IF, out));
        node = *out;
        TERN_TRY(parse_tuple(p, false, false, &node->a));
        TERN_TRY(end_block(p));
        TERN_TRY(parse_body(p, ends, &node->list));
        const jtoken *end = p->at++;
        if (is_name(end, "else")) return parse_body_to(p, "endif", &node->orelse);
        if (is_name(end, "endif")) return end_block(p);
        out = &node->orelse; // elif
    }
}

// `set x | upper`: the filters are around a hole, which gets the body's text.
static tern_status parse_hole_filters(parser *p, jnode **out) {
    TERN_TRY(new_node(p, J_HOLE, out));
    while (skip(p, '|')) TERN_TRY(parse_filter(p, out));
    return TERN_OK;
}

static tern_status parse_set(parser *p, jnode **out) {
    jnode *node;
    TERN_TRY(new_node(p, J_SET, out));
    node = *out;
    TERN_TRY(parse_target(p, &node->a));
    if (skip(p, '=')) {
        TERN_TRY(parse_tuple(p, true, false, &node->b));
        return end_block(p);
    }
    node->kind = J_SET_BLOCK;
    TERN_TRY(parse_hole_filters(p, &node->b));
    return parse_body_to(p, "endset", &node->list);
}

static tern_status parse_params(parser *p, jnode **list) { // (a, b=1)
    bool has_default = false;
    TERN_TRY(expect(p, '('));
    for (bool first = true; !skip(p, ')'); first = false) {
        if (!first) TERN_TRY(expect(p, ','));
        TERN_TRY(new_node(p, J_PARAM, list));
        TERN_TRY(expect_name(p, &(*list)->value));
        if (skip(p, '=')) {
            has_default = true;
            TERN_TRY(parse_expression(p, &(*list)->a));
        } else if (has_default) {
            return unexpected(p, "a default value");
        }
        list = &(*list)->next;
    }
    return TERN_OK;
}

// The body of a macro is not in a loop, even if the macro is.
static tern_status parse_macro_body(parser *p, const char *end, jnode *macro) {
    parser outer = *p;
    p->n_loops = 0;
    p->uses = 0;
    TERN_TRY(parse_body_to(p, end, &macro->list));
    macro->op = p->uses;
    p->n_loops = outer.n_loops;
    p->uses = outer.uses;
    return TERN_OK;
}

static tern_status parse_macro(parser *p, jnode **out) {
    TERN_TRY(new_node(p, J_MACRO_DEF, out));
    TERN_TRY(expect_name(p, &(*out)->value));
    TERN_TRY(parse_params(p, &(*out)->a));
    return parse_macro_body(p, "endmacro", *out);
}

static tern_status parse_call_block(parser *p, jnode **out) {
    TERN_TRY(new_node(p, J_CALL_BLOCK, out));
    (*out)->value = J_STR_LIT("caller");
    if (p->at->op == '(') TERN_TRY(parse_params(p, &(*out)->a));
    TERN_TRY(parse_expression(p, &(*out)->b));
    if ((*out)->b->kind != J_CALL) return unexpected(p, "a macro's call");
    return parse_macro_body(p, "endcall", *out);
}

static tern_status parse_filter_block(parser *p, jnode **out) {
    jnode *node;
    TERN_TRY(new_node(p, J_FILTER_BLOCK, out));
    node = *out;
    TERN_TRY(new_node(p, J_HOLE, &node->b));
    do TERN_TRY(parse_filter(p, &node->b));
    while (skip(p, '|'));
    return parse_body_to(p, "endfilter", &node->list);
}

static tern_status parse_with(parser *p, jnode **out) {
    TERN_TRY(new_node(p, J_WITH, out));
    for (jnode **last = &(*out)->a; p->at->op != J_OP_BLOCK_END; last = &(*last)->next) {
        if (last != &(*out)->a) TERN_TRY(expect(p, ','));
        TERN_TRY(new_node(p, J_SET, last));
        TERN_TRY(parse_one_target(p, false, &(*last)->a));
        TERN_TRY(expect(p, '='));
        TERN_TRY(parse_expression(p, &(*last)->b));
    }
    return parse_body_to(p, "endwith", &(*out)->list);
}

// {% generation %} marks an assistant's text for training; its body is rendered normally.
static tern_status parse_generation(parser *p, jnode **out) {
    TERN_TRY(new_node(p, J_WITH, out));
    return parse_body_to(p, "endgeneration", &(*out)->list);
}

static tern_status parse_autoescape(parser *p, jnode **out) {
    uint8_t outer = p->escape;
    TERN_TRY(new_node(p, J_AUTOESCAPE, out));
    TERN_TRY(parse_expression(p, &(*out)->a));
    const jnode *whether = (*out)->a;
    if (whether->kind != J_CONST)
        p->escape |= J_ESCAPE_AS_RUN_SAYS;
    else
        p->escape = (uint8_t)((outer & J_ESCAPE_AS_RUN_SAYS) |
                              (tern_jinja_truth(whether->value) ? J_ESCAPE_YES : J_ESCAPE_NO));
    TERN_TRY(parse_body_to(p, "endautoescape", &(*out)->list));
    p->escape = outer;
    return TERN_OK;
}

static bool is_blank(const jnode *n) {
    for (; n; n = n->next)
        if (n->kind != J_TEXT ||
            tern_jinja_strip((tern_str){n->value.s, n->value.n}, NULL, true, false).len)
            return false;
    return true;
}

// A block is like a function: loops, macros and {% autoescape %} around it do not apply inside.
static tern_status parse_block(parser *p, jnode **out) {
    static const char *const ends[] = {"endblock", NULL};
    parser outer = *p;
    TERN_TRY(new_node(p, J_BLOCK, out));
    jnode *node = *out;
    TERN_TRY(expect_name(p, &node->value));
    tern_str name = {node->value.s, node->value.n};
    for (const jnode *b = p->program->blocks; b; b = b->orelse)
        if (tern_str_eq(name, (tern_str){b->value.s, b->value.n}))
            return unexpected(p, "a block of another name");
    if (skip_name(p, "scoped")) node->op |= J_BLOCK_SCOPED;
    if (skip_name(p, "required")) node->op |= J_BLOCK_REQUIRED;
    node->orelse = (jnode *)(uintptr_t)p->program->blocks;
    p->program->blocks = node;
    TERN_TRY(end_block(p));
    p->n_loops = 0;
    p->escape = J_ESCAPE_NO;
    TERN_TRY(parse_body(p, ends, &node->list));
    if ((node->op & J_BLOCK_REQUIRED) && !is_blank(node->list))
        return unexpected(p, "an empty required block");
    p->at++;
    if (p->at->op == J_OP_NAME && tern_str_eq(name, (tern_str){p->at->value.s, p->at->value.n}))
        p->at++;
    p->n_loops = outer.n_loops;
    p->uses = outer.uses;
    p->escape = outer.escape;
    return end_block(p);
}

static tern_status parse_break(parser *p, jnode **out) {
    if (!p->n_loops) return unexpected(p, "a loop around 'break' and 'continue'");
    TERN_TRY(new_node(p, is_name(p->at - 1, "break") ? J_BREAK : J_CONTINUE, out));
    return end_block(p);
}

static tern_status parse_statement(parser *p, jnode **out) { // after '{%'
    static const struct {
        const char *name;
        tern_status (*parse)(parser *, jnode **);
    } table[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"generation", parse_generation},
        {"autoescape", parse_autoescape},
        {"block", parse_block},
        {"break", parse_break},
        {"continue", parse_break},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (skip_name(p, table[i].name)) return table[i].parse(p, out);
    return unexpected(p, "a statement");
}

// Statements up to one of the block names in `ends`, at which the parser then stands.
static tern_status parse_body(parser *p, const char *const *ends, jnode **list) {
    TERN_TRY(enter(p));
    for (; p->at->op != J_OP_END; list = &(*list)->next) {
        if (p->at->op == J_OP_TEXT) {
            TERN_TRY(new_node(p, J_TEXT, list));
            (*list)->value = p->at++->value;
        } else if (skip(p, J_OP_PRINT_BEGIN)) {
            TERN_TRY(new_node(p, J_PRINT, list));
            TERN_TRY(parse_tuple(p, true, false, &(*list)->a));
            TERN_TRY(expect(p, J_OP_PRINT_END));
        } else {
            TERN_TRY(expect(p, J_OP_BLOCK_BEGIN));
            for (const char *const *end = ends; *end; end++)
                if (is_name(p->at, *end)) {
                    p->depth--;
                    return TERN_OK;
                }
            TERN_TRY(parse_statement(p, list));
        }
    }
    if (*ends) {
        char wanted[48];
        size_t last = 0;
        while (ends[last + 1]) last++;
        snprintf(wanted, sizeof wanted, "'%s'", ends[last == 1 ? 0 : last]);
        return unexpected(p, wanted);
    }
    p->depth--;
    return TERN_OK;
}

tern_status tern_jinja_parse(jprogram *program, tern_str source, jspace space, tern_error *err) {
    static const char *const no_ends[] = {NULL};
    jtoken *tokens = NULL;
    jnode *body = NULL;
    *program = (jprogram){.arena.max = 256 << 20};
    if (source.len > J_SOURCE_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "the chat template has %zu bytes, more than %zu",
                         source.len, J_SOURCE_MAX);
    tern_status status = tern_jinja_lex(&program->arena, source, space, &tokens, err);
    parser p = {.arena = &program->arena, .at = tokens, .err = err, .program = program};
    if (status == TERN_OK) status = parse_body(&p, no_ends, &body);
    tern_free(tokens);
    program->body = body;
    return status;
}
