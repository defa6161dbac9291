// Compiles a regular expression into a term, from its end to its beginning: each part gets the term
// of everything after it. So `$` and lookahead, which constrain that, are intersections with it.
#include "base/alloc.h"
#include "grammar/rules/pattern.h"

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

// The term of a part without assertions, for which it does not matter what comes after.
static tern_status make_plain(maker *m, uint32_t node, tern_term *out) {
    return make(m, node, TERN_TERM_EMPTY, false, out);
}

// Parts one after the other, from the last to the first. A ^ in a later part holds only if nothing
// was matched before.
static tern_status make_cat(maker *m, const tern_pattern_node *n, tern_term next, bool at_begin,
                            tern_term *out) {
    const tern_pattern *p = m->p;
    tern_term rest = next, first = next; // the term from here on; and if this is the beginning
    bool begins = false;                 // a later part has ^ inside
    for (uint32_t i = n->b; i-- > 0;) {
        const uint32_t node = p->parts[n->a + i];
        const tern_pattern_node *a = &p->nodes[node];
        const tern_term later = first;
        tern_term one;
        TERN_TRY(make(m, node, rest, false, &one));
        first = one;
        if (at_begin && begins && a->asserts) {
            if (a->kind < TERN_PATTERN_BEGIN) return refuse(m, a->at, "a second ^");
            TERN_TRY(make(m, node, later, true, &first));
        } else if (at_begin && begins) {
            // If this part alone may be empty, the later ones may be at the beginning.
            tern_term plain;
            TERN_TRY(make_plain(m, node, &plain));
            if (tern_term_is_nullable(m->t, plain)) first = tern_term_or(m->t, one, later);
        } else if (at_begin && a->begins) {
            TERN_TRY(make(m, node, rest, true, &first));
        }
        rest = one;
        begins = begins || a->begins;
        TERN_TRY(tern_terms_check(m->t, m->err));
    }
    *out = at_begin ? first : rest;
    return TERN_OK;
}

static tern_status make_either(maker *m, const tern_pattern_node *n, tern_term next, bool at_begin,
                               tern_term *out) {
    tern_term *ways = tern_alloc_array(TERN_MEM_SESSION, n->b, sizeof *ways);
    tern_status status = ways ? TERN_OK : tern_fail_memory(m->err, n->b * sizeof *ways);
    for (uint32_t i = 0; i < n->b && status == TERN_OK; i++) {
        status = make(m, m->p->parts[n->a + i], next, at_begin, &ways[i]);
        if (status == TERN_OK) status = tern_terms_check(m->t, m->err);
    }
    if (status == TERN_OK) *out = tern_term_either(m->t, ways, n->b);
    tern_free(ways);
    return status;
}

static tern_status make(maker *m, uint32_t node, tern_term next, bool at_begin, tern_term *out) {
    const tern_pattern_node *n = &m->p->nodes[node];
    tern_terms *t = m->t;
    tern_term a;
    switch (n->kind) {
    case TERN_PATTERN_EMPTY: *out = next; return TERN_OK;
    case TERN_PATTERN_CODES:
        tern_terms_work(t, 1 + m->p->codes[n->a].n);
        *out = tern_term_cat(t, tern_term_codes(t, &m->p->codes[n->a], m->spelling), next);
        return TERN_OK;
    case TERN_PATTERN_CAT: return make_cat(m, n, next, at_begin, out);
    case TERN_PATTERN_EITHER:
        if (n->asserts) return make_either(m, n, next, at_begin, out);
        TERN_TRY(make_either(m, n, TERN_TERM_EMPTY, false, &a));
        *out = tern_term_cat(t, a, next);
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
        // Lookahead sees the rest of the pattern and any text after that.
        TERN_TRY(make(m, n->a, m->any_text, at_begin, &a));
        if (n->kind == TERN_PATTERN_NOT_AHEAD) a = tern_term_not(t, a);
        *out = tern_term_and(t, next, a);
        return TERN_OK;
    }
    return refuse(m, n->at, "an unknown part");
}

tern_status tern_pattern_term(tern_terms *t, const char *pattern, size_t n, tern_pattern_way way,
                              tern_term *out, tern_error *err) {
    tern_pattern p = {.way = way};
    uint32_t root = 0;
    tern_term any = tern_term_any_code(t, way.spelling), here, later = TERN_TERM_NOTHING;
    maker m = {.t = t, .p = &p, .spelling = way.spelling, .text = pattern, .n = n, .err = err};
    m.any_text = tern_term_repeat(t, any, 0, TERN_NO_LIMIT);
    m.rest = way.is_search ? m.any_text : TERN_TERM_EMPTY;
    *out = TERN_TERM_NOTHING;
    tern_status status = tern_pattern_parse(t, &p, pattern, n, &root, err);
    if (status == TERN_OK) status = make(&m, root, m.rest, true, &here);
    if (status == TERN_OK && way.is_search) status = make(&m, root, m.rest, false, &later);
    tern_pattern_free(&p);
    if (status != TERN_OK) return status;
    later = tern_term_cat(t, tern_term_repeat(t, any, 1, TERN_NO_LIMIT), later);
    *out = tern_term_or(t, here, later);
    if (!tern_term_is_alive(t, *out)) *out = TERN_TERM_NOTHING;
    return tern_terms_check(t, err);
}
