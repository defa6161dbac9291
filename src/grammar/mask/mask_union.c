// Several open terms of one state, walked together.
//
// Their union takes every token that any of them takes, and needs one walk in place of many: an
// object with patterns has a term for the names of each set of patterns, and each would be walked
// over the whole vocabulary. Only where a text ends it matters which term's it is. Such nodes are
// few, and the terms are followed to them one by one.
#include <stdlib.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

static int by_ends(const void *a, const void *b) {
    const tern_union_exit *x = a, *y = b;
    if (x->ends != y->ends) return x->ends < y->ends ? -1 : 1;
    return x->exit < y->exit ? -1 : x->exit > y->exit;
}

static tern_status find_exits(tern_automaton *a, const tern_term *terms, size_t n,
                              tern_open_union *u, tern_error *err) {
    const tern_open_mask *m = &a->opens[u->open];
    u->exits = tern_alloc_array(TERN_MEM_SESSION, m->n_exits, sizeof *u->exits);
    if (!u->exits) return tern_fail_memory(err, m->n_exits * sizeof *u->exits);
    for (size_t i = 0; i < m->n_exits; i++) {
        tern_union_exit *e = &u->exits[u->n_exits++];
        *e = (tern_union_exit){.exit = m->exits[i]};
        for (size_t k = 0; k < n; k++)
            e->ends |= (uint32_t)tern_open_ends_at(a, terms[k], e->exit) << k;
    }
    qsort(u->exits, u->n_exits, sizeof *u->exits, by_ends);
    return tern_automaton_check(a, err);
}

tern_status tern_open_unite(tern_automaton *a, const tern_term *terms, size_t n,
                            tern_open_union *out, tern_error *err) {
    *out = (tern_open_union){.open = TERN_OPEN_NONE};
    // Whether a union has a text may take too long to find, even if it is quickly found for each
    // part.
    if (n < 2 || a->terms.is_undecided) return TERN_OK;
    const tern_term whole = tern_term_either(&a->terms, terms, n);
    TERN_TRY(tern_automaton_check(a, err));
    TERN_TRY(tern_automaton_find_open(a, whole, TERN_OPEN_SHORT, &out->open, err));
    if (a->terms.is_undecided) out->open = TERN_OPEN_NONE;
    return out->open == TERN_OPEN_NONE ? TERN_OK : find_exits(a, terms, n, out, err);
}
