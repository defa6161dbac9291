// A radix tree of texts as tokens: what several begin with is there once. Each node is the text on
// the way from the root to it, and may have a value. All nodes without one are where texts part.
#ifndef TERN_SERVE_TOKEN_TREE_H
#define TERN_SERVE_TOKEN_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct token_node {
    struct token_node *parent;    // NULL: the root
    struct token_node **children; // [n_children] sorted by their first token, all different
    size_t n_children, capacity;
    int32_t *ids; // [n_ids] from the parent to here
    size_t n_ids;
    size_t depth; // tokens from the root to here
    void *value;  // NULL: none
    bool is_marked;
    struct token_node *marked; // one of the marked ones of its subtree; NULL: there is none
} token_node;

// Zero-initialise; free it with token_tree_free. One thread at a time.
typedef struct token_tree {
    token_node root;
    size_t n_nodes; // besides the root
} token_tree;

// The node of this text, made if there is none; the caller sets its value. NULL: no memory.
token_node *token_tree_add(token_tree *t, const int32_t *ids, size_t n);
// Marks a node, again if it is: it becomes what the nodes above it tell of.
void token_tree_mark(token_node *at);
void token_tree_unmark(token_node *at); // if it is
// The caller has cleared the node's value and its mark: it goes, and so does what is of no use
// without it.
void token_tree_prune(token_tree *t, token_node *at);
// How many of the ids' prefix some text begins with: *n_common. The texts that do are all those of
// the subtree of the node that is returned; the nodes above it are prefixes of ids.
token_node *token_tree_match(const token_tree *t, const int32_t *ids, size_t n, size_t *n_common);
// The node after `at` in the subtree of top, each node before those below it. NULL: it was the
// last.
token_node *token_tree_next(const token_node *at, const token_node *top);
// Writes the text of a node: [at->depth].
void token_tree_text(const token_node *at, int32_t *ids);
void token_tree_free(token_tree *t); // values are the caller's

#endif
