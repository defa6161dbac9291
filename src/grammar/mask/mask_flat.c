// The walk of one term through the plain tokens, when it may meet most of them.
//
// One loop over the nodes in their order (tern_flat_tree), with a state for each depth. Consecutive
// nodes have consecutive tokens: these are allowed together when a node comes that is not taken.
// States are terms whose steps lie in rows of one array: an entry is the next state, with a mark if
// more has to be done than to go on.
//
// Below a home, a term that most characters lead back to, the loop goes on to the next node that
// leads away.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/mask_open.h"

// Entries of rows. The rare ones are not greater than 0 as signed numbers.
#define UNKNOWN  ((uint32_t)0)
#define RARE     ((uint32_t)1 << 31)
#define IS_TAKEN ((uint32_t)1 << 30) // else no token goes on with the byte
#define MAY_END  ((uint32_t)1 << 29)
#define STATE    (MAY_END - 1) // 0: no token goes on

// States that are kept, of 1 KB each. Only terms with counts have more, and meet each state a few
// times.
#define STATES_MAX 8192

// Nodes that take as long as one step of work.
#define NODES_A_STEP 32

// A home that the walk is below.
typedef struct home_below {
    uint32_t end, outer_end; // of the nodes below the home, and below the node that led to it
    uint32_t home;           // index in homes, which may move
    uint32_t state;
} home_below;

typedef struct flat_walk {
    tern_automaton *a;
    const tern_flat_tree *f;
    uint32_t *states; // [depth] the state before the nodes there
    home_below *homes;
    uint32_t n_homes;
    uint32_t from; // the first node whose tokens are allowed and not yet noted
    uint64_t effort_max;
    bool is_full; // too many states, or too much effort
    tern_error *err;
} flat_walk;

// ---- States -------------------------------------------------------------------------------------

// The state of a term; 0: no room.
static uint32_t state_of(tern_automaton *a, tern_term term) {
    tern_flat_states *s = &a->flat;
    if (term < s->of_capacity && s->of[term]) return s->of[term];
    if (s->n >= STATES_MAX ||
        tern_array_reserve(TERN_MEM_SESSION, &s->of, &s->of_capacity, term, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &s->terms, &s->terms_capacity, s->n, 2) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &s->rows, &s->rows_capacity, s->n, 2) != 0)
        return 0;
    const uint32_t state = (uint32_t)++s->n;
    s->terms[state] = term;
    s->of[term] = state;
    a->bytes += sizeof *s->rows;
    return state;
}

void tern_open_free_flat(tern_automaton *a) {
    tern_free(a->flat.rows);
    tern_free(a->flat.terms);
    tern_free(a->flat.of);
    a->flat = (tern_flat_states){0};
}

// Finds an entry. UNKNOWN: no room.
static uint32_t find_step(flat_walk *w, uint32_t state, unsigned byte) {
    tern_terms *t = &w->a->terms;
    const tern_term to = tern_term_step(t, w->a->flat.terms[state], byte);
    uint32_t entry = RARE;
    if (t->failed) return UNKNOWN;
    if (to) {
        const uint32_t next = tern_term_goes_on(t, to) ? state_of(w->a, to) : 0;
        const bool may_end = tern_term_is_nullable(t, to);
        if (tern_term_goes_on(t, to) && !next) return UNKNOWN;
        entry = next && !may_end ? next : next | RARE | IS_TAKEN | (may_end ? MAY_END : 0);
    }
    w->a->flat.rows[state].to[byte] = entry;
    return entry;
}

// ---- Nodes --------------------------------------------------------------------------------------

// Notes the tokens of nodes up to `end`; the next ones begin at `next`.
static void note(flat_walk *w, uint32_t end, uint32_t next) {
    const uint32_t ids = w->f->nodes[w->from].ids;
    tern_open_allow(w->a, w->a->vocab->trees[TERN_TREE_PLAIN].ids + ids,
                    w->f->nodes[end].ids - ids);
    w->from = next;
}

// The first node from `at` on whose byte does not stay.
static uint32_t skip(const uint8_t *bytes, uint32_t at, uint32_t end, const uint8_t *stays) {
    while (at + 4 <= end &&
           (stays[bytes[at]] & stays[bytes[at + 1]] & stays[bytes[at + 2]] & stays[bytes[at + 3]]))
        at += 4;
    while (at < end && stays[bytes[at]]) at++;
    return at;
}

// After a large node that led to a home, the nodes below it are walked from the home.
static void go_home(flat_walk *w, uint32_t at, uint32_t state, uint32_t *end) {
    tern_automaton *a = w->a;
    const tern_term term = a->flat.terms[state];
    if (tern_term_is_nullable(&a->terms, term) || !tern_open_home(a, term)) return;
    w->homes[w->n_homes++] = (home_below){w->f->nodes[at].end, *end, a->home_of[term] - 2, state};
    *end = at + 1;
}

// Goes on to the next node that leads away from a home, or behind its nodes.
static uint32_t leave_home(flat_walk *w, uint32_t at, uint32_t *end) {
    const home_below *h = &w->homes[w->n_homes - 1];
    at = skip(w->f->bytes, at, h->end, w->a->homes[h->home].stays);
    if (at == h->end) {
        *end = h->outer_end;
        w->n_homes--;
    } else {
        *end = w->f->nodes[at].end;
        w->states[w->f->depths[at] / 2] = h->state;
    }
    return at;
}

// Handles a node whose entry is rare; *at becomes the next node.
static tern_status take_rare(flat_walk *w, uint32_t *at, uint32_t entry) {
    const uint32_t node = *at, end = w->f->nodes[node].end;
    if (entry & MAY_END && end > node + 1)
        TERN_TRY(tern_list_add(&w->a->exits, w->f->node[node] << 1 | TERN_TREE_PLAIN, w->err));
    if (entry & STATE) {
        w->states[w->f->depths[node] / 2 + 1] = entry & STATE;
        *at = node + 1;
        return TERN_OK;
    }
    note(w, entry & IS_TAKEN ? node + 1 : node, end);
    *at = end;
    return TERN_OK;
}

static tern_status walk(flat_walk *w) {
    const tern_flat_tree *f = w->f;
    uint32_t at = 1, end = (uint32_t)f->n;
    go_home(w, 0, w->states[1], &end);
    for (;;) {
        if (at == end) {
            if (w->n_homes == 0) break;
            at = leave_home(w, at, &end);
            continue;
        }
        uint32_t *state = &w->states[f->depths[at] / 2];
        uint32_t entry = w->a->flat.rows[*state].to[f->bytes[at]];
        if (entry == UNKNOWN) {
            entry = find_step(w, *state, f->bytes[at]);
            w->is_full = entry == UNKNOWN || w->a->terms.effort > w->effort_max;
            if (w->is_full || w->a->terms.failed) return tern_terms_check(&w->a->terms, w->err);
        }
        if (entry & RARE) {
            TERN_TRY(take_rare(w, &at, entry));
            continue;
        }
        state[1] = entry;
        if (f->depths[at] & 1) go_home(w, at, entry, &end);
        at++;
    }
    note(w, at, at);
    return tern_terms_check(&w->a->terms, w->err);
}

tern_status tern_open_walk_flat(tern_automaton *a, tern_term term, uint64_t effort_max, bool *done,
                                tern_error *err) {
    const size_t n = a->vocab->depth_max + 2, n_exits = a->exits.n;
    flat_walk w = {.a = a, .f = &a->vocab->flat, .effort_max = effort_max, .err = err};
    const uint32_t start = state_of(a, term);
    tern_status status = TERN_OK;
    *done = false;
    if (!tern_terms_work(&a->terms, w.f->n / NODES_A_STEP)) return tern_terms_check(&a->terms, err);
    if (!start) return TERN_OK;
    w.states = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *w.states);
    w.homes = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *w.homes);
    if (w.states && w.homes) {
        w.states[1] = start;
        status = walk(&w);
        *done = !w.is_full;
    } else {
        status = tern_fail_memory(err, n * sizeof *w.homes);
    }
    if (!*done) a->exits.n = n_exits;
    tern_free(w.states);
    tern_free(w.homes);
    return status;
}
