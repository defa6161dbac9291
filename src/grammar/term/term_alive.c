// The search for a text: whether intersections and complements leave any.
//
// Breadth first. Usually a text is near, and only the terms on the way to it become known to have
// one. Otherwise all terms that can be reached are searched once, and known for good.
//
// That is for compiling a grammar. While masks are found there is no time for it: there the texts
// found last are tried first, and then the way with the least lower bound of its length.
#include <string.h>
#include "base/alloc.h"
#include "grammar/term/term.h"

// States that a search may look at before it is given up.
#define SEARCH_MAX 20000
// States that count as near.
#define NEAR 64

typedef struct edge {
    uint32_t from, to; // indices
} edge;

typedef struct search {
    uint32_t *seen, *from; // [n] terms, and the index of the one before, * 256, + the byte
    size_t n, capacity, from_capacity;
    uint32_t *depths; // [n]
    size_t depths_capacity;
    bool is_shortest_first;
    uint64_t *heap; // then the states not looked at: lower bound of the length, and index
    size_t n_heap, heap_capacity, n_done;
    edge *edges;
    size_t n_edges, edges_capacity;
    unsigned way; // the byte that led to a term that has a text
} search;

static bool out_of_memory(tern_terms *t) {
    tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
    return false;
}

// Among equal lengths the last state comes first.
static uint64_t key_of(const tern_terms *t, const search *s, size_t i) {
    return ((uint64_t)s->depths[i] + t->nodes[s->seen[i]].shortest) << 32 | (UINT32_MAX - i);
}

static bool push_heap(search *s, uint64_t key) {
    if (tern_array_reserve(TERN_MEM_SESSION, &s->heap, &s->heap_capacity, s->n_heap, 1) != 0)
        return false;
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2] > key; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = key;
    return true;
}

static size_t pop_heap(search *s) {
    const uint64_t top = s->heap[0], key = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t k = 1; k < s->n_heap; k = 2 * i + 1) {
        if (k + 1 < s->n_heap && s->heap[k + 1] < s->heap[k]) k++;
        if (s->heap[k] >= key) break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = key;
    return UINT32_MAX - (uint32_t)top;
}

// Adds a term that was not seen yet. Its mark is its index, + 1.
static bool visit(tern_terms *t, search *s, tern_term a, uint32_t from) {
    if (tern_array_reserve(TERN_MEM_SESSION, &s->seen, &s->capacity, s->n, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &s->from, &s->from_capacity, s->n, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &s->depths, &s->depths_capacity, s->n, 1) != 0)
        return out_of_memory(t);
    t->nodes[a].mark = (uint32_t)s->n + 1;
    s->seen[s->n] = a;
    s->from[s->n] = from;
    s->depths[s->n] = s->n ? s->depths[from >> 8] + 1 : 0;
    s->n++;
    return !s->is_shortest_first || push_heap(s, key_of(t, s, s->n - 1)) || out_of_memory(t);
}

// Whether a term certainly has a text.
static bool has_text(const tern_terms *t, tern_term a) {
    const tern_term_node *n = &t->nodes[a];
    return a && (!(n->flags & TERN_TERM_HARD) || n->flags & (TERN_TERM_NULLABLE | TERN_TERM_ALIVE));
}

static void mark_alive(tern_terms *t, tern_term a, unsigned way) {
    t->nodes[a].flags |= TERN_TERM_ALIVE;
    t->nodes[a].way = (uint8_t)way;
}

static void mark_way(tern_terms *t, const search *s, size_t i) {
    for (unsigned way = s->way; !(t->nodes[s->seen[i]].flags & TERN_TERM_ALIVE);) {
        mark_alive(t, s->seen[i], way);
        if (i == 0) break;
        way = s->from[i] & 0xFF;
        i = s->from[i] >> 8;
    }
}

// ---- Hints -------------------------------------------------------------------------------------

// Whether the term has the rest of a hint from `at` on; stops as soon as that is known.
static bool follow_hint(tern_terms *t, tern_term a, const tern_hint *h, unsigned at) {
    tern_term way[TERN_HINT_MAX];
    tern_byteset same;
    for (unsigned i = at; i < h->n; i++) {
        way[i] = a;
        a = tern_term_derive(t, a, h->bytes[i], &same);
        if (!a || t->failed) return false;
        if (!has_text(t, a)) continue;
        for (unsigned k = at; k <= i; k++) mark_alive(t, way[k], h->bytes[k]);
        return true;
    }
    return false;
}

static bool try_hints(tern_terms *t, tern_term a) {
    for (size_t i = 0; i < TERN_HINTS && i < t->n_hints; i++) {
        const tern_hint h = t->hints[i];
        for (unsigned at = 0; at < h.n && at < 4 && !t->failed; at++)
            if (follow_hint(t, a, &h, at)) return true;
    }
    return false;
}

// Keeps the text that was found as a hint.
static void keep_hint(tern_terms *t, tern_term a) {
    tern_hint h = {.n = 0};
    tern_byteset same;
    while (h.n < TERN_HINT_MAX && a && t->nodes[a].flags & TERN_TERM_HARD && t->nodes[a].way) {
        h.bytes[h.n++] = t->nodes[a].way;
        a = tern_term_derive(t, a, t->nodes[a].way, &same);
    }
    if (h.n && !t->failed) t->hints[t->n_hints++ % TERN_HINTS] = h;
}

// ---- The search --------------------------------------------------------------------------------

// Adds the terms that may follow state i; returns whether one has a text, which near the beginning
// ends the search. The quote comes first, as strings end with it.
static bool expand(tern_terms *t, search *s, size_t i) {
    const tern_term a = s->seen[i];
    tern_byteset left = *tern_term_first(t, a), same;
    bool found = t->nodes[a].flags & TERN_TERM_NULLABLE;
    s->way = 0;
    for (unsigned k = 0; k < 256 && !t->failed && !(found && s->n_done < NEAR); k++) {
        const unsigned byte = k ^ '"';
        if (!tern_byteset_has(&left, byte)) continue;
        tern_term to = tern_term_derive(t, a, byte, &same);
        for (int w = 0; w < 4; w++) left.w[w] &= ~same.w[w];
        if (t->failed) break;
        if (!found && has_text(t, to)) {
            found = true;
            s->way = byte;
        }
        if (!to || has_text(t, to) || t->nodes[to].flags & TERN_TERM_DEAD) continue;
        if (!t->nodes[to].mark && !visit(t, s, to, (uint32_t)i << 8 | byte)) break;
        if (tern_array_reserve(TERN_MEM_SESSION, &s->edges, &s->edges_capacity, s->n_edges, 1) != 0)
            return out_of_memory(t);
        s->edges[s->n_edges++] = (edge){(uint32_t)i, t->nodes[to].mark - 1};
    }
    return found;
}

// Marks states that lead to a state with a text as having one. Edges are sorted by their target, so
// that each is looked at once.
static bool mark_backwards(tern_terms *t, const search *s) {
    uint32_t *begin = tern_alloc_array(TERN_MEM_SESSION, 2 * s->n + s->n_edges + 2, sizeof *begin);
    if (!begin) return out_of_memory(t);
    uint32_t *from = begin + s->n + 1, *todo = from + s->n_edges, n_todo = 0;
    for (size_t i = 0; i < s->n_edges; i++) begin[s->edges[i].to + 1]++;
    for (size_t i = 0; i < s->n; i++) begin[i + 1] += begin[i];
    for (size_t i = 0; i < s->n_edges; i++) from[begin[s->edges[i].to]++] = s->edges[i].from;
    // Now begin[i] is where the edges to i end.
    for (uint32_t i = 0; i < s->n; i++)
        if (t->nodes[s->seen[i]].flags & TERN_TERM_ALIVE) todo[n_todo++] = i;
    while (n_todo) {
        uint32_t i = todo[--n_todo];
        for (uint32_t k = i ? begin[i - 1] : 0; k < begin[i]; k++) {
            tern_term_node *n = &t->nodes[s->seen[from[k]]];
            if (n->flags & TERN_TERM_ALIVE) continue;
            n->flags |= TERN_TERM_ALIVE;
            todo[n_todo++] = from[k];
        }
    }
    tern_free(begin);
    return true;
}

static void decide(tern_terms *t, search *s) {
    bool found = false;
    for (; s->n_done < s->n && s->n_done < SEARCH_MAX && !t->failed; s->n_done++) {
        const size_t i = s->n_done;
        if (!expand(t, s, i)) continue;
        found = true;
        mark_way(t, s, i);
        if (i < NEAR) return; // the other states are still unknown
    }
    if (t->failed) return;
    bool is_whole = s->n_done == s->n;
    if (found && !mark_backwards(t, s)) return;
    t->is_undecided = t->is_undecided || !is_whole;
    for (size_t k = 0; k < s->n; k++) {
        tern_term_node *n = &t->nodes[s->seen[k]];
        if (!(n->flags & TERN_TERM_ALIVE)) n->flags |= is_whole ? TERN_TERM_DEAD : TERN_TERM_ALIVE;
    }
}

// Looks for a text on the shortest ways only.
static void find_near(tern_terms *t, search *s) {
    for (; s->n_heap && s->n_done < NEAR && !t->failed; s->n_done++) {
        const size_t i = pop_heap(s);
        if (!expand(t, s, i)) continue;
        mark_way(t, s, i);
        return;
    }
}

static void look_for_text(tern_terms *t, tern_term a, bool is_shortest_first) {
    search s = {.is_shortest_first = is_shortest_first};
    if (visit(t, &s, a, 0)) (is_shortest_first ? find_near : decide)(t, &s);
    for (size_t i = 0; i < s.n; i++) t->nodes[s.seen[i]].mark = 0;
    tern_free(s.seen);
    tern_free(s.from);
    tern_free(s.edges);
    tern_free(s.depths);
    tern_free(s.heap);
}

// Whether there is no text even without limits, as before a text that is excluded: that takes a few
// terms where counting takes thousands.
static bool is_dead_without_limits(tern_terms *t, tern_term a) {
    const tern_relaxed r = tern_term_relax(t, a);
    if (r.term == a || t->failed || tern_term_is_alive(t, r.term)) return false;
    t->nodes[a].flags |= TERN_TERM_DEAD;
    return true;
}

bool tern_term_is_alive(tern_terms *t, tern_term a) {
    if (!(t->nodes[a].flags & TERN_TERM_HARD)) return a != TERN_TERM_NOTHING;
    if (t->nodes[a].flags & (TERN_TERM_ALIVE | TERN_TERM_NULLABLE)) return true;
    if (t->nodes[a].flags & TERN_TERM_DEAD) return false;
    if (t->is_ready && try_hints(t, a)) return true;
    if (t->is_ready) look_for_text(t, a, true);
    if (t->is_ready && !(t->nodes[a].flags & TERN_TERM_ALIVE) && is_dead_without_limits(t, a))
        return false;
    if (!(t->nodes[a].flags & TERN_TERM_ALIVE) && !t->failed) look_for_text(t, a, false);
    if (t->nodes[a].way) keep_hint(t, a);
    return t->failed || t->nodes[a].flags & TERN_TERM_ALIVE;
}
