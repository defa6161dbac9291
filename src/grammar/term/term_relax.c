// Terms without their greatest counts (`.{1,63}` as `.+`).
//
// A term with counts is a new term after each character, so a walk makes a term for each place.
// Without limits it has more texts, but only longer ones: each round of a repeat has at least one
// byte. So both have the same short texts; and if the term without limits has no text, neither has
// the other. The inside of a complement is not changed: so all texts of a term are texts of the one
// without limits.
#include <string.h>
#include "base/alloc.h"
#include "grammar/term/term.h"

// Smaller limits stay.
#define LIMIT_MIN 40

static tern_relaxed relax(tern_terms *t, tern_term term, int depth);

static void note_limit(tern_relaxed *r, uint32_t limit) {
    if (limit < r->limit) r->limit = limit;
}

// The parts of a union or an intersection. A part that only demands characters adds nothing to a
// pattern.
static void relax_list(tern_terms *t, const tern_term_node *n, tern_relaxed *r, int depth) {
    tern_term *parts = tern_alloc_array(TERN_MEM_SESSION, n->b, sizeof *parts);
    bool has_easy = false;
    size_t n_parts = 0;
    if (!parts) return;
    for (uint32_t i = 0; i < n->b; i++) {
        const tern_relaxed part = relax(t, t->lists[n->a + i], depth);
        note_limit(r, part.limit);
        parts[n_parts++] = part.term;
    }
    const tern_term any = t->any_char ? tern_term_repeat(t, t->any_char, 0, TERN_NO_LIMIT) : 0;
    for (size_t i = 0; i < n_parts; i++)
        has_easy = has_easy || (parts[i] != any && !(t->nodes[parts[i]].flags & TERN_TERM_HARD));
    for (size_t i = 0; i < n_parts && n->kind == TERN_KIND_BOTH && has_easy; i++)
        if (parts[i] == any) parts[i] = TERN_TERM_ALL;
    r->term = (n->kind == TERN_KIND_BOTH ? tern_term_both : tern_term_either)(t, parts, n_parts);
    tern_free(parts);
}

static tern_relaxed relax_node(tern_terms *t, tern_term term, int depth) {
    const tern_term_node n = t->nodes[term];
    tern_relaxed r = {term, UINT32_MAX}, x, y;
    switch ((tern_term_kind)n.kind) {
    case TERN_KIND_CAT:
        x = relax(t, n.a, depth);
        y = relax(t, n.b, depth);
        note_limit(&r, x.limit);
        note_limit(&r, y.limit);
        if (r.limit < UINT32_MAX) r.term = tern_term_cat(t, x.term, y.term);
        break;
    case TERN_KIND_EITHER:
    case TERN_KIND_BOTH:
        relax_list(t, &n, &r, depth);
        if (r.limit == UINT32_MAX) r.term = term;
        break;
    case TERN_KIND_REPEAT: {
        const bool is_free = n.c >= LIMIT_MIN && n.c < TERN_NO_LIMIT;
        x = relax(t, n.a, depth);
        note_limit(&r, x.limit);
        if (is_free) note_limit(&r, n.c);
        if (r.limit < UINT32_MAX)
            r.term = tern_term_repeat(t, x.term, n.b, is_free ? TERN_NO_LIMIT : n.c);
        break;
    }
    case TERN_KIND_NOTHING:
    case TERN_KIND_EMPTY:
    case TERN_KIND_SET:
    case TERN_KIND_TEXT:
    case TERN_KIND_NOT:
    case TERN_KIND_MULTIPLE: break;
    }
    return r;
}

static tern_relaxed relax(tern_terms *t, tern_term term, int depth) {
    const tern_relaxed same = {term, UINT32_MAX};
    if (term < t->relaxed_capacity && t->relaxed[term].term) return t->relaxed[term];
    if (depth == 0 || term <= TERN_TERM_ANY ||
        tern_array_reserve(TERN_MEM_SESSION, &t->relaxed, &t->relaxed_capacity, term, 1) != 0)
        return same;
    const tern_relaxed r = relax_node(t, term, depth - 1);
    if (t->failed) return same;
    t->relaxed[term] = r;
    return r;
}

tern_relaxed tern_term_relax(tern_terms *t, tern_term term) { return relax(t, term, 64); }
