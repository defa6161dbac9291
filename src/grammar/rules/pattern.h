// Private to the grammar folder: ECMA-262 regular expressions, as in JSON Schema's `pattern`,
// compiled to terms.
//
// Supported: . classes, \d \w \s, \p{general category} and their complements, escapes, groups (also
// named and non-capturing), alternatives, * + ? {m,n} and their lazy forms, ^ $, and lookahead
// outside of repeats. Not supported, and refused by name and place: backreferences, lookbehind, \b,
// \B, other properties, flags.
#ifndef TERN_GRAMMAR_PATTERN_H
#define TERN_GRAMMAR_PATTERN_H

#include "grammar/term/term.h"

// What a dot does not match: ECMA-262's ends of lines, a line feed as in Python, or nothing.
typedef enum tern_pattern_dot { TERN_DOT_LINES, TERN_DOT_LINE, TERN_DOT_ALL } tern_pattern_dot;

typedef struct tern_pattern_way {
    tern_spelling spelling;
    bool is_search; // a match anywhere counts, as for `pattern`; else the whole text must match
    bool is_part;   // of a larger text, which its own lookahead would have to see: refused
    bool any_case;  // of ASCII letters
    tern_pattern_dot dot;
} tern_pattern_way;

// The texts that the pattern matches; `out` is NOTHING if there are none.
tern_status tern_pattern_term(tern_terms *t, const char *pattern, size_t n, tern_pattern_way way,
                              tern_term *out, tern_error *err);

// ---- Inside (pattern.c reads, pattern_term.c makes terms) ---------------------------------------

typedef enum tern_pattern_kind {
    TERN_PATTERN_EMPTY,
    TERN_PATTERN_CODES,  // codes[a]
    TERN_PATTERN_CAT,    // the b nodes at parts + a, one after the other
    TERN_PATTERN_EITHER, // one of them
    TERN_PATTERN_REPEAT, // a, min to max times
    TERN_PATTERN_BEGIN,  // ^
    TERN_PATTERN_END,    // $
    TERN_PATTERN_AHEAD,  // (?=a)
    TERN_PATTERN_NOT_AHEAD,
} tern_pattern_kind;

typedef struct tern_pattern_node {
    tern_pattern_kind kind;
    uint32_t a, b, min, max;
    bool asserts; // has ^ $ or lookahead inside
    bool begins;  // has ^ inside
    uint32_t at;  // place in the pattern
} tern_pattern_node;

typedef struct tern_pattern {
    tern_pattern_node *nodes;
    size_t n_nodes, nodes_capacity;
    uint32_t *parts;
    size_t n_parts, parts_capacity;
    tern_codes *codes;
    size_t n_codes, codes_capacity, n_ranges; // n_ranges: of all codes
    tern_pattern_way way;
} tern_pattern;

#define TERN_PATTERN_REPEAT_MAX 100000
tern_status tern_pattern_parse(tern_terms *t, tern_pattern *p, const char *pattern, size_t n,
                               uint32_t *root, tern_error *err);
void tern_pattern_free(tern_pattern *p);
// Adds the characters with the property of this name, as in \p{...}. False: the name is not known
// (pattern_property.c).
bool tern_pattern_property(tern_terms *t, tern_codes *c, const char *name, size_t n);

#endif
