// Private to the grammar folder: rules that call each other, over terms.
//
// They form a recursive transition network: nodes that read a text of a term, call a rule, choose,
// or return. Front ends build expressions; tern_rules_define lays them out. Adjacent terms are
// merged, so that most of a grammar is automaton rather than network.
#ifndef TERN_GRAMMAR_RULES_H
#define TERN_GRAMMAR_RULES_H

#include "grammar/term/term.h"

typedef uint32_t tern_rule;
typedef uint32_t tern_expr;
#define TERN_EXPR_EMPTY   ((tern_expr)0)
#define TERN_EXPR_NOTHING ((tern_expr)1)

typedef enum tern_net_kind {
    TERN_NET_ACCEPT, // the whole text is there
    TERN_NET_RETURN,
    TERN_NET_TERM,   // a text of term a, then node b
    TERN_NET_EITHER, // the b nodes at lists + a
    TERN_NET_CALL,   // rule a, then node b
} tern_net_kind;
#define TERN_NODE_ACCEPT 0
#define TERN_NODE_RETURN 1

typedef struct tern_net_node {
    uint8_t kind;
    bool is_open;  // of a term: what follows is not joined to it
    bool has_text; // a text leads from here to a return
    bool is_empty; // the empty text does
    uint32_t a, b;
} tern_net_node;

typedef struct tern_rule_info {
    tern_expr expr;
    uint32_t start; // node
    bool is_defined;
    // Rules that may begin with each other share a group; callers have lower numbers.
    uint32_t group;
    bool is_left_recursive;
} tern_rule_info;

typedef struct tern_expr_node {
    uint8_t kind;
    bool is_open;
    uint32_t a, b;
} tern_expr_node;

typedef struct tern_rules {
    tern_terms *terms;
    tern_expr_node *exprs;
    size_t n_exprs, exprs_capacity;
    uint32_t *expr_slots; // hash table of expressions, + 1: the same one has the same number
    size_t n_expr_slots;
    uint64_t *laid_keys; // of laid out expressions: expression << 32 | next node, + 1
    uint32_t *laid_nodes;
    size_t n_laid, n_laid_slots;
    tern_net_node *nodes;
    size_t n_nodes, nodes_capacity;
    uint32_t *lists;
    size_t n_lists, lists_capacity;
    tern_rule_info *rules;
    size_t n_rules, rules_capacity;
    uint32_t root;              // node
    struct tern_laying *laying; // expressions that are being laid out, each within the one before
    size_t n_laying, laying_capacity;
    uint32_t *ways; // nodes of choices that are being laid out
    size_t n_ways, ways_capacity;
    bool failed;
} tern_rules;

tern_status tern_rules_open(tern_rules *r, tern_terms *terms, tern_error *err);
void tern_rules_close(tern_rules *r);

// Expressions. After a failure these return NOTHING, and tern_rules_finish fails.
tern_expr tern_expr_term(tern_rules *r, tern_term a);
// The same for a term whose mask is worth keeping apart from what follows: a string, a number.
tern_expr tern_expr_open(tern_rules *r, tern_term a);
tern_expr tern_expr_cat(tern_rules *r, tern_expr a, tern_expr b);
tern_expr tern_expr_either(tern_rules *r, const tern_expr *exprs, size_t n);
tern_expr tern_expr_or(tern_rules *r, tern_expr a, tern_expr b);
tern_expr tern_expr_call(tern_rules *r, tern_rule rule);
tern_expr tern_expr_loop(tern_rules *r, tern_expr a); // any number of times, none too
tern_expr tern_expr_repeat(tern_rules *r, tern_expr a, uint32_t min, uint32_t max);

// A call of a new rule for `e`: for expressions that are long, nested or used in many places.
tern_expr tern_expr_rule(tern_rules *r, tern_expr e);

bool tern_expr_is_term(const tern_rules *r, tern_expr e);

tern_rule tern_rules_new(tern_rules *r);
void tern_rules_define(tern_rules *r, tern_rule rule, tern_expr expr);
// Finds each rule's group, once all are laid out (rules_order.c).
tern_status tern_rules_order(tern_rules *r, tern_error *err);
// Lays out the rules, from `root` on. Fails if the grammar accepts no text.
tern_status tern_rules_finish(tern_rules *r, tern_expr root, tern_error *err);

#endif
