// Limits that few tokens come to.
//
// A term that counts is another one after each character, and a walk of it makes a term for each
// place of the tree. Without its greatest counts (`.{1,63}` as `.+`) it has some more texts, but
// none that is shorter than these counts: each turn of a repeat has a byte at least. So a token
// after which it can come to an end within that length is allowed by both or by none; only the few
// tokens that are longer have to be followed. Where a complement is in the way its inside stays as
// it is: then the term without limits has all texts of the other.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask_open.h"

// Lesser limits stay.
#define LIMIT_MIN 40
// Terms that are looked at to find how far their ends are, and derivatives.
#define CLOSED_MAX 1500
#define EFFORT_MAX 25000
#define UNKNOWN    UINT32_MAX

// ---- Without limits -----------------------------------------------------------------------------

static tern_relaxed relax(tern_automaton *a, tern_term term, int depth);

static void note_limit(tern_relaxed *r, uint32_t limit) {
    if (limit < r->limit) r->limit = limit;
}

// The parts of a union or an intersection. That characters are characters is no news to a pattern.
static void relax_list(tern_automaton *a, const tern_term_node *n, tern_relaxed *r, int depth) {
    tern_terms *t = &a->terms;
    tern_term *parts = tern_alloc_array(TERN_MEM_SESSION, n->b, sizeof *parts);
    bool has_easy = false;
    size_t n_parts = 0;
    if (!parts) return;
    for (uint32_t i = 0; i < n->b; i++) {
        const tern_relaxed part = relax(a, t->lists[n->a + i], depth);
        note_limit(r, part.limit);
        parts[n_parts++] = part.term;
    }
    const tern_term any = a->any_char ? tern_term_repeat(t, a->any_char, 0, TERN_NO_LIMIT) : 0;
    for (size_t i = 0; i < n_parts; i++)
        has_easy = has_easy || (parts[i] != any && !(t->nodes[parts[i]].flags & TERN_TERM_HARD));
    for (size_t i = 0; i < n_parts && n->kind == TERN_KIND_BOTH && has_easy; i++)
        if (parts[i] == any) parts[i] = TERN_TERM_ALL;
    r->term = (n->kind == TERN_KIND_BOTH ? tern_term_both : tern_term_either)(t, parts, n_parts);
    tern_free(parts);
}

static tern_relaxed relax_node(tern_automaton *a, tern_term term, int depth) {
    tern_terms *t = &a->terms;
    const tern_term_node n = t->nodes[term];
    tern_relaxed r = {term, UINT32_MAX}, x, y;
    switch ((tern_term_kind)n.kind) {
    case TERN_KIND_CAT:
        x = relax(a, n.a, depth);
        y = relax(a, n.b, depth);
        note_limit(&r, x.limit);
        note_limit(&r, y.limit);
        if (r.limit < UINT32_MAX) r.term = tern_term_cat(t, x.term, y.term);
        break;
    case TERN_KIND_EITHER:
    case TERN_KIND_BOTH:
        relax_list(a, &n, &r, depth);
        if (r.limit == UINT32_MAX) r.term = term;
        break;
    case TERN_KIND_REPEAT: {
        const bool is_free = n.c >= LIMIT_MIN && n.c < TERN_NO_LIMIT;
        x = relax(a, n.a, depth);
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

static tern_relaxed relax(tern_automaton *a, tern_term term, int depth) {
    const tern_relaxed same = {term, UINT32_MAX};
    if (term < a->relaxed_capacity && a->relaxed[term].term) return a->relaxed[term];
    if (depth == 0 || term <= TERN_TERM_ANY ||
        tern_array_reserve(TERN_MEM_SESSION, &a->relaxed, &a->relaxed_capacity, term, 1) != 0)
        return same;
    const tern_relaxed r = relax_node(a, term, depth - 1);
    a->relaxed[term] = r;
    return r;
}

// ---- How far ends are ---------------------------------------------------------------------------

typedef struct closed {
    tern_automaton *a;
    tern_term terms[CLOSED_MAX];
    uint32_t far[CLOSED_MAX];       // from its nearest end
    uint32_t begin[CLOSED_MAX + 1]; // of its edges
    uint32_t *edges;                // indices of terms
    size_t n, n_edges, capacity;
    uint32_t left; // the greatest distance
} closed;

// While terms are looked for, what is kept of each is its index.
#define IS_INDEX ((uint32_t)1 << 31)

static bool add_term(closed *c, tern_term term) {
    tern_automaton *a = c->a;
    if (c->n == CLOSED_MAX ||
        tern_array_reserve(TERN_MEM_SESSION, &a->left, &a->left_capacity, term, 1) != 0)
        return false;
    c->far[c->n] = tern_term_is_nullable(&a->terms, term) ? 0 : UNKNOWN;
    c->terms[c->n++] = term;
    a->left[term] = IS_INDEX | (uint32_t)(c->n - 1);
    return true;
}

// An edge to a term of which it is known how far ends are at most.
static bool add_known(closed *c, size_t from, uint32_t left) {
    if (left == UNKNOWN) return false;
    if (left < c->far[from]) c->far[from] = left; // it is kept + 1
    if (left - 1 > c->left) c->left = left - 1;
    return true;
}

static bool add_edge(closed *c, size_t from, tern_term to) {
    tern_automaton *a = c->a;
    const uint32_t known = to < a->left_capacity ? a->left[to] : 0;
    if (known && (known == UNKNOWN || !(known & IS_INDEX))) return add_known(c, from, known);
    if (!known && !add_term(c, to)) return false;
    if (tern_array_reserve(TERN_MEM_SESSION, &c->edges, &c->capacity, c->n_edges, 1) != 0)
        return false;
    c->edges[c->n_edges++] = a->left[to] & ~IS_INDEX;
    return true;
}

static bool add_edges(closed *c, size_t from) {
    tern_automaton *a = c->a;
    tern_term last = TERN_TERM_NOTHING;
    c->begin[from] = (uint32_t)c->n_edges;
    for (unsigned byte = 0; byte < 256; byte++) {
        const tern_term to = tern_term_step(&a->terms, c->terms[from], byte);
        if (!to || to == last) continue;
        last = to;
        if (!add_edge(c, from, to)) return false;
    }
    c->begin[from + 1] = (uint32_t)c->n_edges;
    return true;
}

// The distance from each term to its nearest end, from those that were found last to the first:
// ends are found late.
static void find_far(closed *c) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (size_t i = c->n; i-- > 0;)
            for (uint32_t k = c->begin[i]; k < c->begin[i + 1]; k++) {
                const uint32_t next = c->far[c->edges[k]];
                if (next >= UNKNOWN - 1 || next + 1 >= c->far[i]) continue;
                c->far[i] = next + 1;
                changed = true;
            }
    }
}

// The greatest distance from a term, or from any that follows it, to its nearest end. It is kept
// for all of these, + 1; UNKNOWN: there are too many.
static uint32_t find_left(tern_automaton *a, tern_term term) {
    if (term < a->left_capacity && a->left[term])
        return a->left[term] == UNKNOWN ? UNKNOWN : a->left[term] - 1;
    closed *c = tern_alloc(TERN_MEM_SESSION, sizeof *c);
    if (!c) return UNKNOWN;
    const uint64_t effort_max = a->terms.effort + EFFORT_MAX;
    c->a = a;
    bool holds = add_term(c, term);
    for (size_t i = 0; i < c->n && holds; i++)
        holds = add_edges(c, i) && a->terms.effort < effort_max && !a->terms.failed;
    if (holds) find_far(c);
    for (size_t i = 0; i < c->n && holds; i++)
        if (c->far[i] > c->left) c->left = c->far[i];
    const uint32_t left = holds && c->left < IS_INDEX - 1 ? c->left : UNKNOWN;
    for (size_t i = 0; i < c->n; i++) a->left[c->terms[i]] = left == UNKNOWN ? UNKNOWN : left + 1;
    tern_free(c->edges);
    tern_free(c);
    return left;
}

tern_term tern_open_relax(tern_automaton *a, tern_term term, uint32_t *limit, uint32_t *left) {
    const tern_relaxed r = relax(a, term, 64);
    if (r.limit == UINT32_MAX || r.term == term || a->terms.failed) return TERN_TERM_NOTHING;
    *limit = r.limit;
    *left = find_left(a, r.term);
    return *left < *limit && *limit - *left >= TERN_LONG ? r.term : TERN_TERM_NOTHING;
}

void tern_open_free_relaxed(tern_automaton *a) {
    tern_free(a->relaxed);
    tern_free(a->left);
    a->relaxed = NULL;
    a->left = NULL;
    a->relaxed_capacity = a->left_capacity = 0;
}
