// What a term does with whole characters, whichever they are.
//
// Most of the inside of a string is of one piece: letters may follow letters, as many as a token
// has. So a term is looked at by classes of characters: if all characters of a class may come, and
// lead to a few terms, that is a step, and a few steps say what becomes of all tokens below a node
// of the vocabulary's tree.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask_open.h"

// Tokens of more characters (lines of dashes, blanks) are walked.
#define CHARS_MAX 256
// Terms that are looked at to see that any number of characters may come.
#define CLOSED_MAX 128
// How often that is tried in front of a term.
#define TRIES_MAX 8
#define NO_ENTRY  UINT32_MAX

typedef struct targets {
    tern_term at[TERN_REACH_TERMS];
    uint32_t n;
} targets;

static bool add_target(targets *out, tern_term to) {
    for (uint32_t i = 0; i < out->n; i++)
        if (out->at[i] == to) return true;
    if (!to || out->n == TERN_REACH_TERMS) return false;
    out->at[out->n++] = to;
    return true;
}

// Where the first bytes of characters led from a term, of which many lead to the same.
typedef struct vias {
    struct {
        tern_term via;
        unsigned low, high;
        targets to;
        bool holds;
    } at[8];
    uint32_t n;
} vias;

// Adds the terms that all characters lead to of which n bytes, the first of them low to high, are
// missing; false: one may not come, or there are too many.
static bool add_after_bytes(tern_terms *t, tern_term a, int n, unsigned low, unsigned high,
                            targets *out) {
    tern_term last = TERN_TERM_NOTHING;
    for (unsigned byte = low; byte <= high; byte++) {
        const tern_term to = tern_term_step(t, a, byte);
        if (to && to == last) continue;
        if (!to || !(n == 1 ? add_target(out, to) : add_after_bytes(t, to, n - 1, 0x80, 0xBF, out)))
            return false;
        last = to;
    }
    return true;
}

// The same after the first byte of a character, which led to `via`.
static bool add_after_first(tern_terms *t, tern_term via, unsigned byte, vias *known,
                            targets *out) {
    const unsigned low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    const unsigned high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    uint32_t i = 0, n = known->n < 8 ? known->n : 8;
    while (i < n &&
           (known->at[i].via != via || known->at[i].low != low || known->at[i].high != high))
        i++;
    if (i == n) {
        i = known->n++ % 8;
        known->at[i].via = via;
        known->at[i].low = low;
        known->at[i].high = high;
        known->at[i].to.n = 0;
        known->at[i].holds = add_after_bytes(t, via,
                                             byte < 0xE0   ? 1
                                             : byte < 0xF0 ? 2
                                                           : 3,
                                             low, high, &known->at[i].to);
    }
    for (uint32_t k = 0; k < known->at[i].to.n; k++)
        if (!add_target(out, known->at[i].to.at[k])) return false;
    return known->at[i].holds;
}

// The same of all characters of a class.
static bool add_after_class(tern_terms *t, tern_term a, unsigned class, vias *known, targets *out) {
    unsigned first, last;
    tern_char_class_bytes(class, &first, &last);
    for (unsigned byte = first; byte <= last; byte++) {
        const tern_term to = tern_term_step(t, a, byte);
        if (!to || !(byte < 0x80 ? add_target(out, to) : add_after_first(t, to, byte, known, out)))
            return false;
    }
    return true;
}

// The entry of a term; NO_ENTRY: there is no memory for it.
static uint32_t find_reach(tern_automaton *a, tern_term term) {
    if (term < a->reach_of_capacity && a->reach_of[term]) return a->reach_of[term] - 1;
    if (tern_array_reserve(TERN_MEM_SESSION, &a->reaches, &a->reaches_capacity, a->n_reaches, 1) ||
        tern_array_reserve(TERN_MEM_SESSION, &a->reach_of, &a->reach_of_capacity, term, 1))
        return NO_ENTRY;
    a->reaches[a->n_reaches] = (tern_reach){0};
    a->reach_of[term] = (uint32_t)++a->n_reaches;
    a->bytes += sizeof *a->reaches;
    return (uint32_t)a->n_reaches - 1;
}

// Looks at the classes that were not looked at; false: one of them does not lead on.
static bool look(tern_automaton *a, tern_term term, tern_reach *r, uint64_t classes) {
    vias known = {.n = 0};
    for (uint64_t w = classes & ~r->known; w; w &= w - 1) {
        const unsigned class = (unsigned)__builtin_ctzll(w);
        if (a->terms.effort > a->reach_effort_max) a->reach_work = 0;
        if (!a->reach_work) return false;
        a->reach_work--;
        targets to = {.n = 0};
        bool holds = add_after_class(&a->terms, term, class, &known, &to);
        for (uint32_t i = 0; i < to.n && holds; i++)
            holds = !tern_term_is_nullable(&a->terms, to.at[i]);
        r->known |= (uint64_t)1 << class;
        memcpy(r->to[class], to.at, sizeof to.at);
        if (holds) continue;
        r->bad |= (uint64_t)1 << class;
        return false;
    }
    return true;
}

// What is known of n characters: 1 they may come, 0 they may not, -1 neither is.
static int recall(const tern_reach *r, uint64_t classes, uint32_t n_chars) {
    for (uint32_t k = 0; k < r->n_seen && k < TERN_REACH_SEEN; k++) {
        const uint64_t seen = r->seen[k].classes;
        if (!(classes & ~seen) && n_chars <= r->seen[k].holds) return 1;
        if (!(seen & ~classes) && n_chars >= r->seen[k].fails) return 0;
    }
    return -1;
}

static void remember(tern_reach *r, uint64_t classes, uint32_t n_chars, bool holds) {
    uint32_t k = 0;
    while (k < r->n_seen && k < TERN_REACH_SEEN && r->seen[k].classes != classes) k++;
    if (k == r->n_seen || k == TERN_REACH_SEEN) {
        k = r->n_seen++ % TERN_REACH_SEEN;
        r->seen[k].classes = classes;
        r->seen[k].holds = 0;
        r->seen[k].fails = UINT32_MAX;
    }
    *(holds ? &r->seen[k].holds : &r->seen[k].fails) = n_chars;
}

static bool takes(tern_automaton *a, tern_term term, uint64_t classes, uint32_t n_chars) {
    const uint32_t at = find_reach(a, term);
    if (at == NO_ENTRY) return false;
    tern_reach *r = &a->reaches[at];
    if (r->bad & classes) return false;
    const int known = recall(r, classes, n_chars);
    if (known >= 0) return known;
    if (!a->reach_work) return false;
    a->reach_work--;
    if (!look(a, term, r, classes)) return false;
    bool holds = true;
    tern_term last = term;
    for (uint64_t w = n_chars > 1 ? classes : 0; w && holds; w &= w - 1)
        for (uint32_t i = 0; i < TERN_REACH_TERMS && holds; i++) {
            const tern_term to = a->reaches[at].to[__builtin_ctzll(w)][i]; // entries may move
            if (!to || to == term || to == last) continue;
            last = to;
            holds = takes(a, to, classes, n_chars - 1);
        }
    if (holds || a->reach_work) remember(&a->reaches[at], classes, n_chars, holds);
    return holds;
}

// Whether any number of characters may come: where all terms that they lead to are few, and none
// of them has an end.
static bool takes_any(tern_automaton *a, tern_term term, uint64_t classes) {
    tern_term all[CLOSED_MAX];
    size_t n = 0;
    const uint32_t round = ++a->reach_round;
    all[n++] = term;
    for (size_t i = 0; i < n; i++) {
        const uint32_t at = find_reach(a, all[i]);
        if (at == NO_ENTRY) return false;
        a->reaches[at].round = round;
        if (recall(&a->reaches[at], classes, UINT32_MAX) == 1) continue;
        if (a->reaches[at].bad & classes || !look(a, all[i], &a->reaches[at], classes))
            return false;
        for (uint64_t w = classes; w; w &= w - 1)
            for (uint32_t k = 0; k < TERN_REACH_TERMS; k++) {
                const tern_term to = a->reaches[at].to[__builtin_ctzll(w)][k];
                const uint32_t next = to ? find_reach(a, to) : NO_ENTRY;
                if (!to) break;
                if (next == NO_ENTRY || (a->reaches[next].round != round && n == CLOSED_MAX))
                    return false;
                if (a->reaches[next].round == round) continue;
                a->reaches[next].round = round;
                all[n++] = to;
            }
    }
    for (size_t i = 0; i < n; i++)
        remember(&a->reaches[a->reach_of[all[i]] - 1], classes, UINT32_MAX, true);
    return true;
}

bool tern_open_takes(tern_automaton *a, tern_term term, uint64_t classes, uint32_t n_chars) {
    const uint64_t all = ((uint64_t)1 << TERN_CHAR_CLASSES) - 1;
    const uint32_t at = find_reach(a, term);
    if (at == NO_ENTRY || a->reaches[at].bad & classes || !a->reach_work) return false;
    const int known = recall(&a->reaches[at], classes, n_chars);
    if (known >= 0) return known;
    // What holds of all characters, or of any number, need not be asked again.
    if (a->reaches[at].n_tries++ < TRIES_MAX) {
        if (!a->reaches[at].bad && takes_any(a, term, all)) return true;
        if (takes_any(a, term, classes)) return true;
        if (!a->reaches[at].bad && n_chars <= CHARS_MAX && takes(a, term, all, n_chars))
            return true;
    }
    return n_chars <= CHARS_MAX && takes(a, term, classes, n_chars);
}

void tern_open_free_reaches(tern_automaton *a) {
    tern_free(a->reaches);
    tern_free(a->reach_of);
    a->reaches = NULL;
    a->reach_of = NULL;
    a->n_reaches = a->reaches_capacity = a->reach_of_capacity = 0;
}
