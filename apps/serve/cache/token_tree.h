// A radix tree of tokenized texts: common prefixes are stored once. A node stands for the text on
// the path from the root to it, and may have a value. Nodes without a value are where texts branch.
#ifndef TERN_SERVE_TOKEN_TREE_H
#define TERN_SERVE_TOKEN_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct token_node {
    struct token_node *parent;    // NULL: the root
    struct token_node **children; // [n_children] sorted by their first token, all different
    size_t n_children, capacity;
    int32_t *ids; // [n_ids] from the parent to this node
    size_t n_ids;
    size_t depth; // tokens from the root to this node
    void *value;  // NULL: none
    bool is_marked;
    // A marked node of its subtree; NULL exactly if there is none. Where it is x, it is x in all
    // nodes from x up to this one. Only nodes with a value are marked.
    struct token_node *marked;
} token_node;

// Zero-initialise it; free it with token_tree_free. One thread at a time.
typedef struct token_tree {
    token_node root;
    size_t n_nodes; // besides the root
} token_tree;

// The node of this text, created if missing; the caller sets its value. NULL: no memory.
token_node *token_tree_add(token_tree *t, const int32_t *ids, size_t n);
// Marks a node, or marks it again: the `marked` of the nodes above it then points to it.
void token_tree_mark(token_node *at);
void token_tree_unmark(token_node *at); // if it is marked
// Removes a node whose value and mark the caller has cleared, and those above it that are useless
// without it; the last one that is not, if only one child is left to it and it has no value, is
// joined with that child. Nodes with values keep their addresses.
void token_tree_prune(token_tree *t, token_node *at);
// *n_common: how many of the first ids a text in the tree shares. The texts that share them are
// those of the returned node's subtree. The nodes above it are prefixes of ids; the node itself is
// one only if its depth is *n_common, and otherwise deeper: ids part from it on the way there.
token_node *token_tree_match(const token_tree *t, const int32_t *ids, size_t n, size_t *n_common);
// The node after `at` in a pre-order walk of the subtree of top. NULL: `at` was the last.
token_node *token_tree_next(const token_node *at, const token_node *top);
// Writes the text of a node: [at->depth].
void token_tree_text(const token_node *at, int32_t *ids);
void token_tree_free(token_tree *t); // does not free values

#endif
