// Private to the grammar folder: shared by the parts of mask_open.c.
#ifndef TERN_GRAMMAR_MASK_OPEN_H
#define TERN_GRAMMAR_MASK_OPEN_H

#include "grammar/mask/automaton.h"

tern_status tern_list_add(tern_list *l, uint32_t x, tern_error *err);

// Allows the tokens ids[0..n) in a->more.
static inline void tern_open_allow(tern_automaton *a, const uint32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) a->more[ids[i] >> 6] |= (uint64_t)1 << (ids[i] & 63);
}

// ---- Walks (mask_walk.c) ------------------------------------------------------------------------

// Allows the tokens of a tree that the term takes in a->more, and notes its exits. Not *done: that
// would raise terms.effort above effort_max; some tokens may be allowed already.
tern_status tern_open_walk(tern_automaton *a, int which, tern_term term, uint64_t effort_max,
                           bool *done, tern_error *err);
// The same for the plain tree, whose nodes lie in the order of the walk (mask_flat.c). Not *done
// also if the term leads to too many others.
tern_status tern_open_walk_flat(tern_automaton *a, tern_term term, uint64_t effort_max, bool *done,
                                tern_error *err);
void tern_open_free_flat(tern_automaton *a);
// Notes the tokens of a tree that one of two terms takes and the other does not: those that `term`
// lacks in `gone`, others in `more`. a->exits has those of `like`, and gets those of `term`.
typedef struct tern_difference_lists {
    size_t n_left; // how many nodes may be met; SIZE_MAX: there were more, the lists are incomplete
    tern_list *gone, *more;
} tern_difference_lists;
tern_status tern_open_walk_difference(tern_automaton *a, int which, tern_term term, tern_term like,
                                      tern_difference_lists *out, tern_error *err);

// Whether a text of the term ends at a node: node * 2 + tree (mask_open.c).
bool tern_open_ends_at(tern_automaton *a, tern_term term, uint32_t exit);

// ---- Unions (mask_union.c) ----------------------------------------------------------------------

// At most this many terms are walked together: states of a union multiply.
enum { TERN_UNION_MAX = 8 };

// A node where texts end and tokens go on. ends: bit i is set if a text of term i ends there.
typedef struct tern_union_exit {
    uint32_t exit, ends;
} tern_union_exit;

typedef struct tern_open_union {
    uint32_t open;          // its mask, in opens; NONE: its terms are better walked one by one
    tern_union_exit *exits; // the caller frees them; those of the same terms are adjacent
    size_t n_exits;
} tern_open_union;

tern_status tern_open_unite(tern_automaton *a, const tern_term *terms, size_t n,
                            tern_open_union *out, tern_error *err);

// ---- Homes (mask_home.c) ------------------------------------------------------------------------

// The bytes after which a walk is back at the term, [256]; NULL: none, or not known.
const uint8_t *tern_open_home(tern_automaton *a, tern_term term);
void tern_open_free_homes(tern_automaton *a);

// ---- Terms without limits (mask_relax.c) --------------------------------------------------------

// A term that has all texts of another one, and longer ones. Texts of up to `limit` bytes are the
// same; from any point of a text an end is at most `left` bytes away.
typedef struct tern_open_relaxed {
    tern_term term;
    uint32_t limit, left;
} tern_open_relaxed;

bool tern_open_relax(tern_automaton *a, tern_term term, tern_open_relaxed *out); // false: none
void tern_open_free_relaxed(tern_automaton *a);

// ---- Strings (mask_string.c) --------------------------------------------------------------------

// A term as a string: `min` to `max` characters (texts of `one`), then a quote.
typedef struct tern_counted_string {
    tern_term one;
    uint32_t min, max;
} tern_counted_string;

bool tern_string_is_counted(tern_automaton *a, tern_term term, tern_counted_string *out);
// A string such that the term has all its texts but a few: the term is an intersection of the
// string and of complements. NOTHING: there is none.
tern_term tern_string_like(tern_automaton *a, tern_term term);
// The term without its greatest length, if no token can reach that; else NOTHING.
tern_term tern_string_uncounted(tern_automaton *a, tern_term term);
// *base: the tokens of the same string without limits. gone: those of them that the string with
// limits does not take.
tern_status tern_string_find(tern_automaton *a, const tern_counted_string *s, const uint64_t **base,
                             tern_list *gone, tern_error *err);
void tern_string_free_kinds(tern_automaton *a);

#endif
