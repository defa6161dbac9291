// Private to the grammar folder: regular languages of bytes, as terms.
//
// A term is a number. It stands for an expression built from smaller terms, and the same expression
// always has the same number (hash-consing), so that "the language of what may follow" is a number,
// too: Brzozowski's derivative of a term by a byte is the term of what may come after it, and once
// computed it is looked up in a row of 256. That makes every term a state of a deterministic
// automaton, which is built only as far as texts lead. Intersection and complement are terms like
// any others; JSON Schema's allOf, not, and counts need them.
//
// A store may be used by one thread at a time.
#ifndef TERN_GRAMMAR_TERM_H
#define TERN_GRAMMAR_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include "base/status.h"
#include "base/strbuf.h"

typedef struct tern_byteset {
    uint64_t w[4];
} tern_byteset;

static inline bool tern_byteset_has(const tern_byteset *s, unsigned byte) {
    return s->w[byte >> 6] >> (byte & 63) & 1;
}
static inline void tern_byteset_add(tern_byteset *s, unsigned byte) {
    s->w[byte >> 6] |= (uint64_t)1 << (byte & 63);
}
tern_byteset tern_byteset_range(unsigned first, unsigned last); // both are in it
static inline bool tern_byteset_is_empty(const tern_byteset *s) {
    return !(s->w[0] | s->w[1] | s->w[2] | s->w[3]);
}
static inline unsigned tern_byteset_count(const tern_byteset *s) {
    int n = 0;
    for (int i = 0; i < 4; i++) n += __builtin_popcountll(s->w[i]);
    return (unsigned)n;
}
// How many of the set are less than the byte.
static inline unsigned tern_byteset_rank(const tern_byteset *s, unsigned byte) {
    int n = __builtin_popcountll(s->w[byte >> 6] & (((uint64_t)1 << (byte & 63)) - 1));
    for (unsigned i = 0; i < byte >> 6; i++) n += __builtin_popcountll(s->w[i]);
    return (unsigned)n;
}
bool tern_byteset_within(const tern_byteset *s, const tern_byteset *whole);

typedef uint32_t tern_term;
#define TERN_TERM_NOTHING ((tern_term)0) // no text
#define TERN_TERM_EMPTY   ((tern_term)1) // the empty text
#define TERN_TERM_ALL     ((tern_term)2) // every text
#define TERN_TERM_ANY     ((tern_term)3) // every byte
#define TERN_NO_LIMIT     UINT32_MAX

typedef enum tern_term_kind {
    TERN_KIND_NOTHING,
    TERN_KIND_EMPTY,
    TERN_KIND_SET,     // one byte of sets[a]
    TERN_KIND_TEXT,    // b bytes at pool + a
    TERN_KIND_CAT,     // a, then b; a is not a CAT
    TERN_KIND_EITHER,  // one of the b terms at lists + a, in rising order
    TERN_KIND_BOTH,    // all of them
    TERN_KIND_NOT,     // not a
    TERN_KIND_REPEAT,  // a, from b to c times
    TERN_KIND_MULTIPLE // digits of a number: see term_number.c
} tern_term_kind;

enum {
    TERN_TERM_NULLABLE = 1, // the empty text is in it
    TERN_TERM_HARD = 2,     // has BOTH, NOT or MULTIPLE: only a search shows if it has a text
    TERN_TERM_ALIVE = 4,    // it has a text
    TERN_TERM_DEAD = 8,     // it has no text
    TERN_TERM_NARROW = 16,  // its row has steps for the bytes of `first` only, in their order
};

typedef struct tern_term_node {
    uint8_t kind, flags;
    uint8_t way;   // the first byte on the way to a text, if known; else 0
    uint8_t depth; // of nested parts; a part that follows another one is not nested in it
    uint32_t a, b, c;
    uint32_t shortest; // no text of it has fewer bytes
    uint32_t first;    // in sets: no text begins with a byte outside it; it may be too large
    uint32_t row;  // in rows, + 1; 0: none. If only one byte can come first: the term after it, + 1
    uint32_t mark; // of a search
} tern_term_node;

// In a row: a step that was not taken yet, and the mark of one whose target may turn out dead.
#define TERN_STEP_UNKNOWN   UINT32_MAX
#define TERN_STEP_UNCHECKED ((uint32_t)1 << 31)

// Why a store failed: all its functions return NOTHING then. Work that takes too long is given up
// as a whole; tern_terms_allow lets new work begin.
typedef enum tern_terms_fault {
    TERN_TERMS_FINE,
    TERN_TERMS_NO_MEMORY,
    TERN_TERMS_TOO_LARGE,
    TERN_TERMS_TOO_DEEP,
    TERN_TERMS_TOO_LONG, // more work than its budget
    TERN_TERMS_STOPPED,  // the thread was cancelled
} tern_terms_fault;

// Derivatives are computed by recursion into parts.
#define TERN_TERM_DEPTH_MAX 100

// A text that a search found: the next term often has it, too, or a suffix of it.
enum { TERN_HINTS = 4, TERN_HINT_MAX = 16 };
typedef struct tern_hint {
    uint8_t bytes[TERN_HINT_MAX], n;
} tern_hint;

// A term without the limits that few texts reach.
typedef struct tern_relaxed {
    tern_term term; // 0: not computed yet
    uint32_t limit; // the least limit that was dropped; UINT32_MAX: none was
} tern_relaxed;

// A set of Unicode characters: ranges in rising order that do not touch.
typedef struct tern_code_range {
    uint32_t first, last;
} tern_code_range;
typedef struct tern_codes {
    tern_code_range *ranges;
    size_t n, capacity;
    bool failed;
} tern_codes;
#define TERN_CODE_MAX 0x10FFFF

// The characters of some of Unicode's categories, as bits.
typedef struct tern_property {
    uint32_t categories;
    tern_codes codes;
} tern_property;

typedef struct tern_terms {
    tern_term_node *nodes;
    size_t n_nodes, nodes_capacity;
    uint32_t *slots; // hash table of nodes, + 1
    size_t n_slots;
    tern_byteset *sets;
    size_t n_sets, sets_capacity;
    uint32_t *set_slots;
    size_t n_set_slots;
    uint32_t *lists;
    size_t n_lists, lists_capacity;
    char *pool;
    size_t n_pool, pool_capacity;
    uint32_t **rows; // of 256, or fewer
    size_t n_rows, rows_capacity;
    uint32_t *stack; // of constructors
    size_t n_stack, stack_capacity;
    size_t bytes, bytes_max; // allocated, and the most that may be
    uint64_t effort;         // parts of derivatives so far
    // In steps of some ten nanoseconds: all work so far, when to check the budget and for
    // cancellation next, and the budget. Not in time, so that the outcome is the same on all
    // machines.
    uint64_t work, work_next, work_max;
    uint64_t secret; // seed of name hashes: nobody can choose names that collide
    // Once a store has failed, its functions return NOTHING.
    bool failed;
    tern_terms_fault fault;
    tern_hint hints[TERN_HINTS]; // of the last searches for a text
    size_t n_hints;
    tern_term any_char;    // of a JSON string, if the grammar is of JSON; else NOTHING
    tern_relaxed *relaxed; // [relaxed_capacity] by term
    size_t relaxed_capacity;
    tern_property *properties; // of patterns, each once
    size_t n_properties, properties_capacity;
    bool is_ready;     // the grammar is compiled: searches are kept short
    bool is_undecided; // a search for a text was given up: the term counts as alive
} tern_terms;

// bytes_max: 0: no limit.
tern_status tern_terms_open(tern_terms *t, size_t bytes_max, tern_error *err);
void tern_terms_close(tern_terms *t);
// Fails if the store has failed.
tern_status tern_terms_check(const tern_terms *t, tern_error *err);
tern_term tern_terms_fail(tern_terms *t, tern_terms_fault why); // returns NOTHING

// The budget of the work that follows; 0: none. Work that was given up may be tried again: the
// results that it left are valid and are not computed again.
void tern_terms_allow(tern_terms *t, uint64_t work);
bool tern_terms_look(tern_terms *t); // checks the budget and cancellation
// Counts work; false: give up.
static inline bool tern_terms_work(tern_terms *t, uint64_t n) {
    t->work += n;
    return t->work < t->work_next ? !t->failed : tern_terms_look(t);
}
// Called for the n-th probe of a look-up by name: the first 64 cost nothing; more do not happen by
// chance.
static inline void tern_terms_probe(tern_terms *t, size_t n) { t->work += n > 64; }

// ---- Making terms (term.c) ----------------------------------------------------------------------

tern_term tern_term_set(tern_terms *t, tern_byteset s);
tern_term tern_term_byte(tern_terms *t, unsigned byte);
tern_term tern_term_text(tern_terms *t, const void *bytes, size_t n);
tern_term tern_term_cat(tern_terms *t, tern_term a, tern_term b);
tern_term tern_term_either(tern_terms *t, const tern_term *terms, size_t n);
tern_term tern_term_or(tern_terms *t, tern_term a, tern_term b);
tern_term tern_term_both(tern_terms *t, const tern_term *terms, size_t n);
tern_term tern_term_and(tern_terms *t, tern_term a, tern_term b);
tern_term tern_term_not(tern_terms *t, tern_term a);
tern_term tern_term_repeat(tern_terms *t, tern_term a, uint32_t min, uint32_t max);

// Room for more of an array of the table, counted. False: the store has failed.
#define TERN_TERMS_RESERVE(t, array, capacity, n, more)                                            \
    tern_terms_reserve(t, (void **)(array), capacity, n, more, sizeof **(array))
bool tern_terms_reserve(tern_terms *t, void **array, size_t *capacity, size_t n, size_t more,
                        size_t each);
// The term of a node whose flags are filled in.
tern_term tern_term_intern(tern_terms *t, const tern_term_node *n, const tern_byteset *first);
// What follows the first byte of a TEXT.
tern_term tern_term_text_rest(tern_terms *t, tern_term text);

static inline bool tern_term_is_nullable(const tern_terms *t, tern_term a) {
    return t->nodes[a].flags & TERN_TERM_NULLABLE;
}
static inline const tern_byteset *tern_term_first(const tern_terms *t, tern_term a) {
    return &t->sets[t->nodes[a].first];
}
// Whether it may have a text besides the empty one.
static inline bool tern_term_goes_on(const tern_terms *t, tern_term a) {
    return t->nodes[a].first != 0;
}

// ---- Automata (term_step.c) ---------------------------------------------------------------------

// The derivative; it may have no text. *same: keeps those of its bytes that have this derivative.
tern_term tern_term_derive(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same);
tern_term tern_term_step_slowly(tern_terms *t, tern_term a, unsigned byte);
// The term after byte; NOTHING: no text begins with it.
static inline tern_term tern_term_step(tern_terms *t, tern_term a, unsigned byte) {
    const tern_term_node *n = &t->nodes[a];
    if (!tern_byteset_has(&t->sets[n->first], byte)) return TERN_TERM_NOTHING;
    if (n->row && n->first >= 256 + 2) {
        const bool narrow = n->flags & TERN_TERM_NARROW;
        const unsigned at = narrow ? tern_byteset_rank(&t->sets[n->first], byte) : byte;
        uint32_t to = t->rows[n->row - 1][at];
        if (!(to & TERN_STEP_UNCHECKED)) return to;
    }
    return tern_term_step_slowly(t, a, byte);
}
// The row of 256 steps of a term, known or not; NULL: it has none.
static inline const uint32_t *tern_term_row(const tern_terms *t, tern_term a) {
    const tern_term_node *n = &t->nodes[a];
    const bool is_whole = n->first >= 256 + 2 && !(n->flags & TERN_TERM_NARROW);
    return n->row && is_whole ? t->rows[n->row - 1] : NULL;
}
// Whether any text is in it (term_alive.c). A search that takes too long is given up and returns
// true.
bool tern_term_is_alive(tern_terms *t, tern_term a);
bool tern_term_matches(tern_terms *t, tern_term a, const char *text, size_t n);

// ---- Without limits (term_relax.c) --------------------------------------------------------------

// A term that has all texts of this one, and no others of up to `limit` bytes.
tern_relaxed tern_term_relax(tern_terms *t, tern_term term);

// ---- Numbers (term_number.c) --------------------------------------------------------------------

// Decimal numbers (a sign, digits, perhaps a point and digits, no exponent): the multiples of
// m * 10^-n_decimals; m > 0, n_decimals < 32. Other terms say which form they have.
tern_term tern_term_multiple(tern_terms *t, uint32_t m, uint32_t n_decimals);
tern_term tern_term_multiple_derive(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same);

// A decimal number: its digits before the point, and those after it without trailing zeros.
typedef struct tern_decimal {
    bool is_negative;
    char digits[800];
    size_t n_whole, n_digits; // digits[0..n_whole) is "0" or does not begin with 0
} tern_decimal;
// Reads JSON's spelling; false: too many digits.
bool tern_decimal_read(tern_decimal *d, const char *text, size_t n);
// Numbers of at least, or at most, the bound; `whole`: digits only, else they may have a fraction.
tern_term tern_term_at_least(tern_terms *t, const tern_decimal *bound, bool strict, bool whole);
tern_term tern_term_at_most(tern_terms *t, const tern_decimal *bound, bool strict, bool whole);
// All spellings of the number without an exponent.
tern_term tern_term_equal(tern_terms *t, const tern_decimal *d);

// ---- Characters (term_codes.c) ------------------------------------------------------------------

void tern_codes_add(tern_codes *c, uint32_t first, uint32_t last);
void tern_codes_add_all(tern_codes *c, const tern_codes *from);
void tern_codes_normalize(tern_codes *c); // after adding, before anything else
void tern_codes_invert(tern_codes *c);
void tern_codes_free(tern_codes *c);

// How a text's characters become bytes.
typedef enum tern_spelling {
    TERN_SPELL_UTF8,
    TERN_SPELL_JSON, // inside a JSON string: also with every escape that JSON has
} tern_spelling;
tern_term tern_term_codes(tern_terms *t, const tern_codes *c, tern_spelling spelling);
// Any character.
tern_term tern_term_any_code(tern_terms *t, tern_spelling spelling);
// The text in its usual spelling: in JSON only with the escapes that it must have.
tern_term tern_term_spelled(tern_terms *t, const char *text, size_t n, tern_spelling spelling);

#endif
