// Grammars in texts become rules; those that are regular become terms.
#include "grammar/ebnf.h"

#include <string.h>
#include "base/alloc.h"

#define DEPTH_MAX 1000

// What a part of a grammar became: a term, or an expression.
typedef struct made {
    bool is_term;
    bool is_wide; // the term repeats a large set: what follows it is better kept apart
    tern_term term;
    tern_expr expr;
} made;

typedef struct maker {
    tern_ebnf *e;
    tern_rules *r;
    tern_term ignored; // any number of what may come between terminals; EMPTY: nothing may
    int depth;
} maker;

static tern_status make(maker *m, uint32_t node, bool in_terminal, made *out);

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

// Whether a term of a terminal repeats a large set somewhere near.
static bool repeats_wide(const tern_terms *t, tern_term a, int depth) {
    const tern_term_node *n = &t->nodes[a];
    if (depth == 0) return false;
    if (n->kind == TERN_KIND_REPEAT)
        return n->c > 1 && (is_wide(t, n->a) || repeats_wide(t, n->a, depth - 1));
    if (n->kind == TERN_KIND_CAT)
        return repeats_wide(t, n->a, depth - 1) || repeats_wide(t, n->b, depth - 1);
    for (uint32_t i = 0; n->kind == TERN_KIND_EITHER && i < n->b && i < 8; i++)
        if (repeats_wide(t, t->lists[n->a + i], depth - 1)) return true;
    return false;
}

// ---- Rules --------------------------------------------------------------------------------------

// A rule that is not recursive and regular is a term; which it is shows by making it.
static tern_status make_rule(maker *m, uint32_t index, made *out) {
    tern_ebnf_rule *d = &m->e->rules[index];
    if (d->state == 0) {
        d->state = 1;
        d->rule = tern_rules_new(m->r);
        TERN_TRY(make(m, d->node, d->is_terminal, out));
        d = &m->e->rules[index];
        // One that called itself while it was being made stays a rule.
        if (d->state == 1 && out->is_term) {
            d->state = 2;
            d->term = out->term;
            d->is_wide = out->is_wide;
        } else {
            d->state = 3;
        }
        tern_rules_define(m->r, d->rule, expr_of(m, out));
    } else if (d->state == 1) {
        if (d->is_terminal)
            return tern_fail(m->e->err, TERN_ERR_UNSUPPORTED,
                             "grammar: line %u: the terminal '%.*s' is made of itself", d->line,
                             (int)d->name.len, d->name.ptr);
        d->state = 3;
    }
    if (d->state == 2)
        *out = (made){true, d->is_wide, d->term, 0};
    else
        *out = (made){.expr = tern_expr_call(m->r, d->rule)};
    return TERN_OK;
}

// Between terminals may be what is ignored.
static void add_ignored(const maker *m, made *a) {
    if (a->is_term && m->ignored != TERN_TERM_EMPTY)
        a->term = tern_term_cat(m->r->terms, a->term, m->ignored);
}

// ---- Parts --------------------------------------------------------------------------------------

// `a` in front of `*out`.
static void put_before(const maker *m, const made *a, bool in_terminal, made *out) {
    tern_terms *t = m->r->terms;
    // Behind a wide term that has ended is a place to cut, unless both are in one terminal.
    bool cut = !in_terminal && a->is_term && a->is_wide && out->is_wide &&
               !tern_term_is_nullable(t, a->term);
    if (a->is_term && out->is_term && !cut)
        *out = (made){true, a->is_wide || out->is_wide, tern_term_cat(t, a->term, out->term), 0};
    else
        *out = (made){.expr = tern_expr_cat(m->r, expr_of(m, a), expr_of(m, out))};
}

static tern_status make_cat(maker *m, const tern_ebnf_node *n, bool in_terminal, made *out) {
    made one;
    *out = (made){.is_term = true, .term = TERN_TERM_EMPTY};
    for (uint32_t i = n->b; i-- > 0;) {
        TERN_TRY(make(m, m->e->parts[n->a + i], in_terminal, &one));
        put_before(m, &one, in_terminal, out);
    }
    return TERN_OK;
}

static tern_status make_either(maker *m, const tern_ebnf_node *n, bool in_terminal, made *out) {
    tern_term *terms = tern_alloc_array(TERN_MEM_SESSION, n->b, sizeof *terms);
    tern_expr *exprs = tern_alloc_array(TERN_MEM_SESSION, n->b + 1, sizeof *exprs);
    tern_status status = terms && exprs ? TERN_OK : tern_fail_memory(m->e->err, n->b * 8);
    size_t n_terms = 0, n_exprs = 0;
    made one, all = {.is_term = true};
    for (uint32_t i = 0; i < n->b && status == TERN_OK; i++) {
        status = make(m, m->e->parts[n->a + i], in_terminal, &one);
        if (status != TERN_OK) break;
        if (one.is_term)
            terms[n_terms++] = one.term;
        else
            exprs[n_exprs++] = one.expr;
        all.is_wide = all.is_wide || (one.is_term && one.is_wide);
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

static tern_status make_repeat(maker *m, const tern_ebnf_node *n, bool in_terminal, made *out) {
    TERN_TRY(make(m, n->a, in_terminal, out));
    if (out->is_term) {
        tern_term one = out->term;
        out->term = tern_term_repeat(m->r->terms, one, n->min, n->max);
        if (n->max > 1 && is_wide(m->r->terms, one)) out->is_wide = true;
    } else {
        // Many copies of something long would be laid out many times.
        tern_expr one =
            n->max > 1 && n->max != TERN_NO_LIMIT ? tern_expr_rule(m->r, out->expr) : out->expr;
        *out = (made){.expr = tern_expr_repeat(m->r, one, n->min, n->max)};
    }
    return TERN_OK;
}

static tern_status make(maker *m, uint32_t node, bool in_terminal, made *out) {
    const tern_ebnf_node n = m->e->nodes[node];
    tern_status status = TERN_OK;
    if (++m->depth > DEPTH_MAX)
        return tern_fail(m->e->err, TERN_ERR_UNSUPPORTED, "grammar: nested too deep");
    switch (n.kind) {
    case TERN_EBNF_EMPTY: *out = (made){.is_term = true, .term = TERN_TERM_EMPTY}; break;
    case TERN_EBNF_TERM:
        *out = (made){.is_term = true, .term = n.a};
        out->is_wide = repeats_wide(m->r->terms, n.a, 5);
        if (!in_terminal) add_ignored(m, out);
        break;
    case TERN_EBNF_CAT: status = make_cat(m, &n, in_terminal, out); break;
    case TERN_EBNF_EITHER: status = make_either(m, &n, in_terminal, out); break;
    case TERN_EBNF_REPEAT: status = make_repeat(m, &n, in_terminal, out); break;
    case TERN_EBNF_RULE:
        status = make_rule(m, n.a, out);
        if (status == TERN_OK && !in_terminal && m->e->rules[n.a].is_terminal) add_ignored(m, out);
        break;
    }
    m->depth--;
    return status;
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

tern_status tern_ebnf_expr(tern_rules *r, tern_str text, tern_notation notation, tern_expr *root,
                           tern_error *err) {
    tern_ebnf e = {.terms = r->terms, .text = text, .err = err};
    maker m = {.e = &e, .r = r};
    uint32_t start = 0;
    made a = {0};
    tern_status status = tern_ebnf_read(&e, notation, &start);
    if (status == TERN_OK) status = make_ignored(&m);
    if (status == TERN_OK) status = make_rule(&m, start, &a);
    if (status == TERN_OK && m.ignored != TERN_TERM_EMPTY)
        *root = tern_expr_cat(r, tern_expr_term(r, m.ignored), expr_of(&m, &a));
    else if (status == TERN_OK)
        *root = expr_of(&m, &a);
    if (status == TERN_OK) status = tern_terms_check(r->terms, err);
    tern_free(e.nodes);
    tern_free(e.parts);
    tern_free(e.rules);
    return status;
}
