// Makes terms of a regular expression, from its end to its beginning: each part is given the term
// of all that comes after it. So `$` and looking ahead, which speak of what comes after, are
// intersections with it.
#include <string.h>
#include "grammar/pattern.h"

typedef struct maker {
    tern_terms *t;
    const tern_pattern *p;
    tern_spelling spelling;
    tern_term any_text; // of valid characters
    tern_term rest;     // what may come after the pattern
    const char *text;
    size_t n;
    tern_error *err;
} maker;

static tern_status refuse(const maker *m, uint32_t at, const char *what) {
    return tern_fail(m->err, TERN_ERR_UNSUPPORTED, "pattern: %s at character %zu of '%.*s'", what,
                     (size_t)at + 1, (int)(m->n < 200 ? m->n : 200), m->text);
}

static tern_status make(maker *m, uint32_t node, tern_term next, bool at_begin, tern_term *out);

// Of a part without assertions; what comes after it matters to nothing inside.
static tern_status make_plain(maker *m, uint32_t node, tern_term *out) {
    return make(m, node, TERN_TERM_EMPTY, false, out);
}

// `a`, then `b`. Where ^ is inside of b it holds only if nothing was matched before.
static tern_status make_cat(maker *m, const tern_pattern_node *n, tern_term next, bool at_begin,
                            tern_term *out) {
    const tern_pattern_node *a = &m->p->nodes[n->a];
    bool asks = at_begin && m->p->nodes[n->b].begins, stays = a->kind >= TERN_PATTERN_BEGIN;
    tern_term rest, plain;
    if (!asks || a->asserts) {
        if (asks && !stays) return refuse(m, m->p->nodes[n->b].at, "a second ^");
        TERN_TRY(make(m, n->b, next, asks, &rest));
        return make(m, n->a, rest, at_begin, out);
    }
    TERN_TRY(make_plain(m, n->a, &plain));
    TERN_TRY(make(m, n->b, next, false, &rest));
    *out = tern_term_cat(m->t, plain, rest);
    if (!tern_term_is_nullable(m->t, plain)) return TERN_OK;
    TERN_TRY(make(m, n->b, next, true, &rest));
    *out = tern_term_or(m->t, *out, rest);
    return TERN_OK;
}

static tern_status make(maker *m, uint32_t node, tern_term next, bool at_begin, tern_term *out) {
    const tern_pattern_node *n = &m->p->nodes[node];
    tern_terms *t = m->t;
    tern_term a, b;
    switch (n->kind) {
    case TERN_PATTERN_EMPTY: *out = next; return TERN_OK;
    case TERN_PATTERN_CODES:
        *out = tern_term_cat(t, tern_term_codes(t, &m->p->codes[n->a], m->spelling), next);
        return TERN_OK;
    case TERN_PATTERN_CAT: return make_cat(m, n, next, at_begin, out);
    case TERN_PATTERN_EITHER:
        TERN_TRY(make(m, n->a, next, at_begin, &a));
        TERN_TRY(make(m, n->b, next, at_begin, &b));
        *out = tern_term_or(t, a, b);
        return TERN_OK;
    case TERN_PATTERN_REPEAT:
        TERN_TRY(make_plain(m, n->a, &a));
        *out = tern_term_cat(t, tern_term_repeat(t, a, n->min, n->max), next);
        return TERN_OK;
    case TERN_PATTERN_BEGIN: *out = at_begin ? next : TERN_TERM_NOTHING; return TERN_OK;
    case TERN_PATTERN_END:
        *out = tern_term_is_nullable(t, next) ? TERN_TERM_EMPTY : TERN_TERM_NOTHING;
        return TERN_OK;
    case TERN_PATTERN_AHEAD:
    case TERN_PATTERN_NOT_AHEAD:
        // It sees the rest of the pattern and what may come after that.
        TERN_TRY(make(m, n->a, m->any_text, at_begin, &a));
        if (n->kind == TERN_PATTERN_NOT_AHEAD) a = tern_term_not(t, a);
        *out = tern_term_and(t, next, a);
        return TERN_OK;
    }
    return refuse(m, n->at, "an unknown part");
}

tern_status tern_pattern_term(tern_terms *t, const char *pattern, size_t n, tern_pattern_way way,
                              tern_term *out, tern_error *err) {
    tern_pattern p = {0};
    uint32_t root = 0;
    tern_term any = tern_term_any_code(t, way.spelling), here, later = TERN_TERM_NOTHING;
    maker m = {.t = t, .p = &p, .spelling = way.spelling, .text = pattern, .n = n, .err = err};
    m.any_text = tern_term_repeat(t, any, 0, TERN_NO_LIMIT);
    m.rest = way.is_search ? m.any_text : TERN_TERM_EMPTY;
    *out = TERN_TERM_NOTHING;
    tern_status status = tern_pattern_parse(&p, pattern, n, &root, err);
    if (status == TERN_OK) status = make(&m, root, m.rest, true, &here);
    if (status == TERN_OK && way.is_search) status = make(&m, root, m.rest, false, &later);
    tern_pattern_free(&p);
    if (status != TERN_OK) return status;
    later = tern_term_cat(t, tern_term_repeat(t, any, 1, TERN_NO_LIMIT), later);
    *out = tern_term_or(t, here, later);
    if (!tern_term_is_alive(t, *out)) *out = TERN_TERM_NOTHING;
    return tern_terms_check(t, err);
}
