// What a term does with whole characters, whichever they are.
//
// Most of the inside of a string is of one piece: letters may follow letters, as many as a token
// has. So a term is looked at by classes of characters: if all characters of a class lead to the
// same term, that is a step, and a few steps say what becomes of all tokens below a node of the
// vocabulary's tree.
#include <string.h>
#include "base/alloc.h"
#include "grammar/mask_open.h"

// Tokens of more characters (lines of dashes, blanks) are walked.
#define CHARS_MAX 256
#define SEVERAL UINT32_MAX // terms, and not one

// The one term that all characters lead to of which n bytes, the first of them low to high, are
// missing.
static tern_term after_bytes(tern_terms *t, tern_term a, int n, unsigned low, unsigned high) {
    tern_term one = SEVERAL, last = TERN_TERM_NOTHING, after_last = TERN_TERM_NOTHING;
    for (unsigned byte = low; byte <= high; byte++) {
        tern_term to = tern_term_step(t, a, byte);
        if (to && n > 1) {
            if (to != last) after_last = after_bytes(t, to, n - 1, 0x80, 0xBF);
            last = to;
            to = after_last;
        }
        if (to == SEVERAL || (byte > low && to != one)) return SEVERAL;
        one = to;
    }
    return one;
}

// The one term that all characters of a class lead to.
static tern_term after_class(tern_terms *t, tern_term a, unsigned class) {
    unsigned first, last;
    tern_term one = SEVERAL, via = TERN_TERM_NOTHING;
    tern_char_class_bytes(class, &first, &last);
    for (unsigned byte = first; byte <= last; byte++) {
        tern_term to = tern_term_step(t, a, byte);
        if (to && byte >= 0x80) {
            const unsigned low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
            const unsigned high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
            if (to == via && byte != 0xF1 && byte != 0xF4) continue; // as the byte before
            via = to;
            to = after_bytes(t, to, byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3, low, high);
        }
        if (to == SEVERAL || (byte > first && to != one)) return SEVERAL;
        one = to;
    }
    return one;
}

// The entry of a term; SEVERAL: there is no memory for it.
static uint32_t find_reach(tern_automaton *a, tern_term term) {
    if (term < a->reach_of_capacity && a->reach_of[term]) return a->reach_of[term] - 1;
    if (tern_array_reserve(TERN_MEM_SESSION, &a->reaches, &a->reaches_capacity, a->n_reaches, 1) ||
        tern_array_reserve(TERN_MEM_SESSION, &a->reach_of, &a->reach_of_capacity, term, 1))
        return SEVERAL;
    a->reaches[a->n_reaches] = (tern_reach){0};
    a->reach_of[term] = (uint32_t)++a->n_reaches;
    a->bytes += sizeof *a->reaches;
    return (uint32_t)a->n_reaches - 1;
}

// Looks at the classes that were not looked at; false: one of them does not lead on.
static bool look(tern_automaton *a, tern_term term, tern_reach *r, uint64_t classes) {
    for (uint64_t w = classes & ~r->known; w; w &= w - 1) {
        const unsigned class = (unsigned)__builtin_ctzll(w);
        if (!a->reach_work) return false;
        a->reach_work--;
        const tern_term to = after_class(&a->terms, term, class);
        r->known |= (uint64_t)1 << class;
        r->to[class] = to;
        if (to && to != SEVERAL && !tern_term_is_nullable(&a->terms, to)) continue;
        r->bad |= (uint64_t)1 << class;
        return false;
    }
    return true;
}

// What is known of n characters: 1 they may come, 0 they may not, -1 neither is.
static int recall(const tern_reach *r, uint64_t classes, uint32_t n_chars) {
    for (uint32_t k = 0; k < r->n_seen && k < N_SEEN; k++) {
        if (r->seen[k].classes != classes) continue;
        if (n_chars <= r->seen[k].holds) return 1;
        return n_chars >= r->seen[k].fails ? 0 : -1;
    }
    return -1;
}

static void remember(tern_reach *r, uint64_t classes, uint32_t n_chars, bool holds) {
    uint32_t k = 0;
    while (k < r->n_seen && k < N_SEEN && r->seen[k].classes != classes) k++;
    if (k == r->n_seen || k == N_SEEN) {
        k = r->n_seen++ % N_SEEN;
        r->seen[k].classes = classes;
        r->seen[k].holds = 0;
        r->seen[k].fails = UINT32_MAX;
    }
    *(holds ? &r->seen[k].holds : &r->seen[k].fails) = n_chars;
}

static bool takes(tern_automaton *a, tern_term term, uint64_t classes, uint32_t n_chars) {
    const uint32_t at = find_reach(a, term);
    if (at == SEVERAL) return false;
    tern_reach *r = &a->reaches[at];
    if (r->bad & classes) return false;
    const int known = recall(r, classes, n_chars);
    if (known >= 0) return known;
    if (!look(a, term, r, classes)) return false;
    bool holds = true;
    tern_term last = term;
    for (uint64_t w = n_chars > 1 ? classes : 0; w && holds; w &= w - 1) {
        const tern_term to = a->reaches[at].to[__builtin_ctzll(w)]; // entries may move
        if (to == term || to == last) continue;
        last = to;
        holds = takes(a, to, classes, n_chars - 1);
    }
    if (holds || a->reach_work) remember(&a->reaches[at], classes, n_chars, holds);
    return holds;
}

bool tern_open_takes(tern_automaton *a, tern_term term, uint64_t classes, uint32_t n_chars) {
    return n_chars <= CHARS_MAX && takes(a, term, classes, n_chars);
}

void tern_open_free_reaches(tern_automaton *a) {
    tern_free(a->reaches);
    tern_free(a->reach_of);
    a->reaches = NULL;
    a->reach_of = NULL;
    a->n_reaches = a->reaches_capacity = a->reach_of_capacity = 0;
}
