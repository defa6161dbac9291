// Private to the grammar folder: grammars written in llama.cpp's GBNF or in Lark's notation.
//
// Both are parsed into the same tree. Regular rules become terms; the others call each other in any
// way: rules may be left-recursive and ambiguous.
#ifndef TERN_GRAMMAR_EBNF_H
#define TERN_GRAMMAR_EBNF_H

#include "grammar/rules/rules.h"

typedef enum tern_notation { TERN_NOTATION_GBNF, TERN_NOTATION_LARK } tern_notation;

typedef struct tern_ebnf_way {
    tern_notation notation;
    tern_spelling spelling; // of the grammar's characters in the texts
    tern_term within;       // what a literal or an expression may match; 0: anything
} tern_ebnf_way;

typedef enum tern_ebnf_kind {
    TERN_EBNF_EMPTY,
    TERN_EBNF_TERM,   // term a
    TERN_EBNF_CAT,    // the b nodes at parts + a, one after the other
    TERN_EBNF_EITHER, // one of them
    TERN_EBNF_REPEAT, // a, min to max times
    TERN_EBNF_RULE,   // rule a
} tern_ebnf_kind;

typedef struct tern_ebnf_node {
    tern_ebnf_kind kind;
    uint32_t a, b, min, max;
} tern_ebnf_node;

typedef struct tern_ebnf_rule {
    tern_str name;
    uint32_t node;
    uint32_t line; // where it is used first, or defined
    bool is_defined;
    bool is_ignored;  // it may come between any two terminals
    bool is_terminal; // of Lark: nothing is ignored inside
    uint8_t state;    // 0 not looked at, 1 being looked at, 2 a term, 3 a rule that is called
    bool is_wide;
    uint32_t length; // of the term, in parts one after the other
    tern_term term;
    tern_rule rule;
} tern_ebnf_rule;

typedef struct tern_ebnf {
    tern_terms *terms;
    tern_ebnf_node *nodes;
    size_t n_nodes, nodes_capacity;
    uint32_t *parts;
    size_t n_parts, parts_capacity;
    tern_ebnf_rule *rules;
    size_t n_rules, rules_capacity;
    uint32_t *slots; // hash table of rules by name, + 1
    size_t n_slots;
    tern_str text;
    const tern_ebnf_way *way;
    tern_error *err;
} tern_ebnf;

// Reads the rules of a grammar (ebnf_read.c); *root: the start rule.
tern_status tern_ebnf_read(tern_ebnf *e, uint32_t *root);
uint32_t tern_ebnf_find(const tern_ebnf *e, tern_str name); // UINT32_MAX: there is none

// ebnf.c
tern_status tern_ebnf_expr(tern_rules *r, tern_str text, const tern_ebnf_way *way, tern_expr *root,
                           tern_error *err);

#endif
