// Private to the grammar folder: a compiled grammar.
#ifndef TERN_GRAMMAR_AUTOMATON_H
#define TERN_GRAMMAR_AUTOMATON_H

#include "grammar/grammar.h"
#include "grammar/rules/state.h"
#include "grammar/mask/vocab_tree.h"

// A growing list of tokens or nodes.
typedef struct tern_list {
    uint32_t *at;
    size_t n, capacity;
} tern_list;

// Tokens: those of `base`, less the removed ones, and the added ones.
typedef struct tern_token_set {
    const uint64_t *base; // [n_words], or NULL
    uint64_t *own;        // the same as base, if no other set shares it
    uint32_t *changes;    // removed ones, then added ones
    uint32_t n_removed, n_added;
    size_t n_allowed;
} tern_token_set;

// A term that takes many whole tokens, such as the inside of a string, and may be part of many
// states: its tokens, and the nodes of the vocabulary's trees where a text of it ends and tokens go
// on.
typedef struct tern_open_mask {
    tern_token_set set;
    uint32_t *exits; // node * 2 + tree
    size_t n_exits;
} tern_open_mask;

// The mask of a state: the tokens of an open term, and more.
typedef struct tern_mask {
    uint32_t open; // in opens, + 1; 0: none
    tern_token_set set;
} tern_mask;

// A term that many characters lead back to (mask_home.c). stays: the first bytes of these
// characters, and all continuation bytes.
typedef struct tern_home {
    uint8_t stays[256];
} tern_home;

// Terms as states of walks over the plain tree (mask_flat.c), from 1 on.
typedef struct tern_flat_row {
    uint32_t to[256];
} tern_flat_row;

typedef struct tern_flat_states {
    tern_flat_row *rows; // [n + 1]
    tern_term *terms;    // [n + 1]
    size_t n, rows_capacity, terms_capacity;
    uint32_t *of; // [of_capacity] by term
    size_t of_capacity;
} tern_flat_states;

// Strings of one kind of characters: automata of JSON have many.
typedef struct tern_string_kind {
    tern_term one;
    tern_string_tokens tokens;
} tern_string_kind;

// What is known of the lengths of a term's texts; see mask_string.c.
typedef struct tern_lengths {
    uint32_t shortest, left;
    bool is_known;
} tern_lengths;

// One level of a walk: the children left to visit, the state whose configurations the terms belong
// to, where the terms lie, whether they are that state's own, and the bytes that they may take.
typedef struct tern_walk_level {
    uint32_t child, end;
    tern_gstate state;
    uint32_t terms;
    bool is_state;
    tern_byteset first;
} tern_walk_level;

struct tern_automaton {
    tern_terms terms;
    tern_rules rules;
    tern_states states;
    const tern_vocab_tree *vocab;
    tern_term any_char;      // of a JSON string, if the grammar is of JSON; else NOTHING
    size_t bytes, bytes_max; // of masks
    uint64_t work_max;       // set by tern_automaton_limit
    tern_mask *masks;
    size_t n_masks, masks_capacity;
    uint32_t *mask_of; // [mask_of_capacity] by state, + 1
    size_t mask_of_capacity;
    tern_open_mask *opens;
    size_t n_opens, opens_capacity;
    uint32_t *open_of; // [open_of_capacity] by term, + 1; or which ways do not find one
    size_t open_of_capacity;
    tern_home *homes;
    size_t n_homes, homes_capacity;
    uint32_t
        *home_of; // [home_of_capacity] by term: 0 not looked for, 1 not a home, else in homes, + 2
    size_t home_of_capacity;
    tern_flat_states flat;
    tern_string_kind *strings;
    size_t n_strings, strings_capacity;
    tern_lengths *lengths; // [lengths_capacity] by term
    size_t lengths_capacity;
    uint32_t *left; // [left_capacity] by term: see mask_relax.c
    size_t left_capacity;
    // Scratch.
    tern_walk_level *levels; // [depth_max + 2]
    tern_term *slots;
    size_t slots_capacity;
    uint64_t *bits;  // of the mask being found; zero between masks
    uint64_t *more;  // the same for a set being made on the side
    tern_list found; // tokens of that mask that are not in the open mask
    bool is_dense;   // `found` is incomplete: use `bits`
    tern_list exits;
};

// Opens one without rules; front ends add them and call finish with the expression of the whole
// text.
tern_status tern_automaton_begin(tern_automaton **out, size_t bytes_max, const tern_vocab_tree *v,
                                 tern_error *err);
tern_status tern_automaton_finish(tern_automaton *a, tern_expr root, tern_error *err);

tern_status tern_automaton_check(const tern_automaton *a, tern_error *err);
// Applies the changes of a set.
void tern_token_set_write(const tern_token_set *s, uint64_t *bits);
void tern_token_set_free(tern_token_set *s);

// How an open term's mask may be found.
typedef enum tern_open_way {
    TERN_OPEN_KNOWN, // it is known already, or follows from what is known of strings
    TERN_OPEN_SHORT, // or by a walk that meets few new terms
    TERN_OPEN_WALK,  // or by any walk
} tern_open_way;
// The index of an open term's mask (mask_open.c), valid until masks are freed; NONE: not found in
// this way.
#define TERN_OPEN_NONE UINT32_MAX
tern_status tern_automaton_find_open(tern_automaton *a, tern_term term, tern_open_way way,
                                     uint32_t *out, tern_error *err);
// Finds the mask of a state (mask.c).
tern_status tern_automaton_find_mask(tern_automaton *a, tern_gstate state, const tern_mask **out,
                                     tern_error *err);
void tern_automaton_free_masks(tern_automaton *a);

#endif
