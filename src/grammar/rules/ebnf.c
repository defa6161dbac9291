// Compiles the rules of GBNF and Lark grammars; those that are regular become terms.
#include "grammar/rules/ebnf.h"

#include <string.h>
#include "base/alloc.h"

// A term with parts nested deeper becomes a rule, which has no limit.
#define TERM_DEPTH_MAX 40
// So does a rule that is a longer term: a term in front of another one is copied.
#define TERM_LENGTH_MAX 256

// What a part of a grammar became: a term, or an expression.
typedef struct made {
    bool is_term;
    bool is_wide;    // the term repeats a large set: it is better not joined with what follows
    uint32_t length; // of the term: parts one after the other
    tern_term term;
    tern_expr expr;
} made;

// A node that is being made, nested in the one before.
typedef struct making {
    uint32_t node;
    bool in_terminal;
    uint32_t n_parts; // of it that are made
    made all;         // of these, in a CAT
} making;

typedef struct maker {
    tern_ebnf *e;
    tern_rules *r;
    tern_term ignored; // any number of ignored texts between terminals; EMPTY: none
    making *making;
    size_t n_making, making_capacity;
    made *ways; // of choices that are being made
    size_t n_ways, ways_capacity;
} maker;

static tern_expr expr_of(const maker *m, const made *a) {
    if (!a->is_term) return a->expr;
    // A term that ends for certain is a good place to cut; one that may go on is not.
    bool ends = !tern_term_is_nullable(m->r->terms, a->term);
    return a->is_wide && ends ? tern_expr_open(m->r, a->term) : tern_expr_term(m->r, a->term);
}

static bool is_wide(const tern_terms *t, tern_term a) {
    const tern_byteset *s = tern_term_first(t, a);
    int n = 0;
    for (int i = 0; i < 4; i++) n += __builtin_popcountll(s->w[i]);
    return n > 64;
}

// Whether a terminal's term repeats a large set not deeper than `depth`.
static bool repeats_wide(const tern_terms *t, tern_term a, int depth) {
    const tern_term_node *n = &t->nodes[a];
    if (depth == 0) return false;
    if (n->kind == TERN_KIND_REPEAT)
        return n->c > 1 && (is_wide(t, n->a) || repeats_wide(t, n->a, depth - 1));
    if (n->kind == TERN_KIND_CAT)
        return repeats_wide(t, n->a, depth - 1) || repeats_wide(t, n->b, depth - 1);
    const bool has_list = n->kind == TERN_KIND_EITHER || n->kind == TERN_KIND_BOTH;
    for (uint32_t i = 0; has_list && i < n->b && i < 8; i++)
        if (repeats_wide(t, t->lists[n->a + i], depth - 1)) return true;
    return false;
}

// ---- Rules --------------------------------------------------------------------------------------

// A use of a rule: its term, or a call.
static made use_rule(const maker *m, const tern_ebnf_rule *d) {
    if (d->state == 2) return (made){true, d->is_wide, d->length, d->term, 0};
    return (made){.expr = tern_expr_call(m->r, d->rule)};
}

// A rule that is regular and not recursive becomes a term: making it shows whether it is. *is_new:
// it has to be made.
static tern_status begin_rule(maker *m, uint32_t index, bool *is_new) {
    tern_ebnf_rule *d = &m->e->rules[index];
    *is_new = d->state == 0;
    if (d->state == 0) {
        d->state = 1;
        d->rule = tern_rules_new(m->r);
    } else if (d->state == 1) {
        if (d->is_terminal)
            return tern_fail(m->e->err, TERN_ERR_UNSUPPORTED,
                             "grammar: line %u: the terminal '%.*s' is made of itself", d->line,
                             (int)(d->name.len < 200 ? d->name.len : 200), d->name.ptr);
        d->state = 3;
    }
    return TERN_OK;
}

static void end_rule(const maker *m, uint32_t index, const made *body) {
    tern_ebnf_rule *d = &m->e->rules[index];
    // One that called itself while it was being made stays a rule.
    const bool is_long = body->length > TERM_LENGTH_MAX && !d->is_terminal;
    if (d->state == 1 && body->is_term && !is_long) {
        d->state = 2;
        d->length = body->length;
        d->term = body->term;
        d->is_wide = body->is_wide;
    } else {
        d->state = 3;
    }
    tern_rules_define(m->r, d->rule, expr_of(m, body));
}

// Ignored texts may come after a terminal.
static void add_ignored(const maker *m, made *a) {
    if (a->is_term && m->ignored != TERN_TERM_EMPTY)
        a->term = tern_term_cat(m->r->terms, a->term, m->ignored);
}

// ---- Parts --------------------------------------------------------------------------------------

// Puts `a` in front of `*out`.
static void put_before(const maker *m, const made *a, bool in_terminal, made *out) {
    tern_terms *t = m->r->terms;
    // The end of a wide term is a good place to cut, unless both are in one terminal.
    bool cut = !in_terminal && a->is_term && a->is_wide && out->is_wide &&
               !tern_term_is_nullable(t, a->term);
    if (a->is_term && out->is_term && !cut)
        *out = (made){true, a->is_wide || out->is_wide, a->length + out->length,
                      tern_term_cat(t, a->term, out->term), 0};
    else
        *out = (made){.expr = tern_expr_cat(m->r, expr_of(m, a), expr_of(m, out))};
}

// A choice between the last n of m->ways.
static tern_status join_ways(maker *m, size_t n, made *out) {
    const made *ways = m->ways + (m->n_ways - n);
    tern_term *terms = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *terms);
    tern_expr *exprs = tern_alloc_array(TERN_MEM_SESSION, n + 1, sizeof *exprs);
    tern_status status = terms && exprs ? TERN_OK : tern_fail_memory(m->e->err, n * 8);
    size_t n_terms = 0, n_exprs = 0;
    made all = {.is_term = true};
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        if (ways[i].is_term)
            terms[n_terms++] = ways[i].term;
        else
            exprs[n_exprs++] = ways[i].expr;
        all.is_wide = all.is_wide || (ways[i].is_term && ways[i].is_wide);
        if (ways[i].is_term && ways[i].length > all.length) all.length = ways[i].length;
    }
    if (status == TERN_OK) {
        all.term = tern_term_either(m->r->terms, terms, n_terms);
        *out = all;
        if (n_exprs) {
            if (n_terms) exprs[n_exprs++] = expr_of(m, &all);
            *out = (made){.expr = tern_expr_either(m->r, exprs, n_exprs)};
        }
    }
    tern_free(terms);
    tern_free(exprs);
    return status;
}

static void repeat(const maker *m, const tern_ebnf_node *n, made *out) {
    if (out->is_term) {
        tern_term one = out->term;
        out->term = tern_term_repeat(m->r->terms, one, n->min, n->max);
        if (n->max > 1 && is_wide(m->r->terms, one)) out->is_wide = true;
    } else {
        // Otherwise each copy of a long expression would be laid out.
        tern_expr one =
            n->max > 1 && n->max != TERN_NO_LIMIT ? tern_expr_rule(m->r, out->expr) : out->expr;
        *out = (made){.expr = tern_expr_repeat(m->r, one, n->min, n->max)};
    }
}

static tern_status begin(maker *m, uint32_t node, bool in_terminal) {
    if (tern_array_reserve(TERN_MEM_SESSION, &m->making, &m->making_capacity, m->n_making, 1) != 0)
        return tern_fail_memory(m->e->err, m->n_making * sizeof *m->making);
    m->making[m->n_making++] =
        (making){node, in_terminal, 0, {.is_term = true, .term = TERN_TERM_EMPTY}};
    return TERN_OK;
}

// *out: the part of a list that was made last; if *done, becomes the whole list, else the next part
// was begun.
static tern_status go_on_list(maker *m, const tern_ebnf_node *n, made *out, bool *done) {
    making *now = &m->making[m->n_making - 1];
    const uint32_t part = now->n_parts++;
    const bool in_terminal = now->in_terminal, is_cat = n->kind == TERN_EBNF_CAT;
    if (part > 0 && is_cat) {
        put_before(m, out, in_terminal, &now->all);
    } else if (part > 0) {
        if (tern_array_reserve(TERN_MEM_SESSION, &m->ways, &m->ways_capacity, m->n_ways, 1) != 0)
            return tern_fail_memory(m->e->err, m->n_ways * sizeof *m->ways);
        m->ways[m->n_ways++] = *out;
    }
    *done = part == n->b;
    if (!*done) // from the last to the first, so that the rest is at hand
        return begin(m, m->e->parts[n->a + (is_cat ? n->b - 1 - part : part)], in_terminal);
    *out = now->all;
    if (is_cat) return TERN_OK;
    TERN_TRY(join_ways(m, n->b, out));
    m->n_ways -= n->b;
    return TERN_OK;
}

static tern_status go_on(maker *m, made *out, bool *done) {
    making *now = &m->making[m->n_making - 1];
    const tern_ebnf_node n = m->e->nodes[now->node];
    const bool in_terminal = now->in_terminal;
    *done = true;
    switch (n.kind) {
    case TERN_EBNF_EMPTY: *out = now->all; return TERN_OK;
    case TERN_EBNF_TERM:
        *out = (made){.is_term = true, .length = 1, .term = n.a};
        out->is_wide = repeats_wide(m->r->terms, n.a, 5);
        if (!in_terminal) add_ignored(m, out);
        return TERN_OK;
    case TERN_EBNF_CAT:
    case TERN_EBNF_EITHER: return go_on_list(m, &n, out, done);
    case TERN_EBNF_REPEAT:
        *done = now->n_parts++ > 0;
        if (!*done) return begin(m, n.a, in_terminal);
        repeat(m, &n, out);
        return TERN_OK;
    case TERN_EBNF_RULE: {
        bool is_new = false;
        if (now->n_parts++ > 0)
            end_rule(m, n.a, out);
        else
            TERN_TRY(begin_rule(m, n.a, &is_new));
        *done = !is_new;
        if (is_new) return begin(m, m->e->rules[n.a].node, m->e->rules[n.a].is_terminal);
        *out = use_rule(m, &m->e->rules[n.a]);
        if (!in_terminal && m->e->rules[n.a].is_terminal) add_ignored(m, out);
        return TERN_OK;
    }
    }
    return TERN_OK;
}

static tern_status make(maker *m, uint32_t node, bool in_terminal, made *out) {
    TERN_TRY(begin(m, node, in_terminal));
    while (m->n_making) {
        bool done;
        tern_terms *t = m->r->terms;
        if (!tern_terms_work(t, 1)) return tern_terms_check(t, m->e->err);
        const bool is_inside = m->making[m->n_making - 1].in_terminal;
        TERN_TRY(go_on(m, out, &done));
        if (!done) continue;
        m->n_making--;
        if (out->is_term && !is_inside && t->nodes[out->term].depth > TERM_DEPTH_MAX)
            *out = (made){.expr = tern_expr_rule(m->r, expr_of(m, out))};
    }
    return TERN_OK;
}

static tern_status make_rule(maker *m, uint32_t index, made *out) {
    tern_ebnf *e = m->e;
    if (tern_array_reserve(TERN_MEM_SESSION, &e->nodes, &e->nodes_capacity, e->n_nodes, 1) != 0)
        return tern_fail_memory(e->err, sizeof *e->nodes);
    e->nodes[e->n_nodes++] = (tern_ebnf_node){TERN_EBNF_RULE, index, 0, 0, 0};
    return make(m, (uint32_t)e->n_nodes - 1, true, out);
}

static tern_status make_ignored(maker *m) {
    static const char ignored[] = "%ignore";
    uint32_t rule = tern_ebnf_find(m->e, TERN_STR(ignored));
    made a;
    m->ignored = TERN_TERM_EMPTY;
    if (rule == UINT32_MAX) return TERN_OK;
    TERN_TRY(make_rule(m, rule, &a));
    m->ignored = tern_term_repeat(m->r->terms, a.term, 0, TERN_NO_LIMIT);
    return TERN_OK;
}

tern_status tern_ebnf_expr(tern_rules *r, tern_str text, const tern_ebnf_way *way, tern_expr *root,
                           tern_error *err) {
    tern_ebnf e = {.terms = r->terms, .text = text, .way = way, .err = err};
    maker m = {.e = &e, .r = r};
    uint32_t start = 0;
    made a = {0};
    tern_status status = tern_ebnf_read(&e, &start);
    if (status == TERN_OK) status = make_ignored(&m);
    if (status == TERN_OK) status = make_rule(&m, start, &a);
    if (status == TERN_OK && m.ignored != TERN_TERM_EMPTY)
        *root = tern_expr_cat(r, tern_expr_term(r, m.ignored), expr_of(&m, &a));
    else if (status == TERN_OK)
        *root = expr_of(&m, &a);
    if (status == TERN_OK) status = tern_terms_check(r->terms, err);
    tern_free(m.making);
    tern_free(m.ways);
    tern_free(e.nodes);
    tern_free(e.parts);
    tern_free(e.rules);
    tern_free(e.slots);
    return status;
}
