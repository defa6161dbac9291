// Private to the grammar folder.
#ifndef TERN_GRAMMAR_VOCAB_TREE_H
#define TERN_GRAMMAR_VOCAB_TREE_H

#include "grammar/grammar.h"

// Children of a node are adjacent: those of node i are nodes[i].child up to nodes[i + 1].child.
// Tokens are sorted by their bytes, so that those below a node are one stretch of ids.
typedef struct tern_tree_node {
    uint32_t child;
    uint32_t ids;   // where the ids of tokens that end here begin
    uint16_t n_own; // how many tokens end here
    uint8_t byte;
    uint8_t depth; // 255: or more
} tern_tree_node;

typedef struct tern_tree {
    tern_tree_node *nodes; // [n_nodes + 1], the root first
    size_t n_nodes;
    uint32_t *ids;
    size_t n_ids;
} tern_tree;

// A tree's nodes in depth-first order, as a walk meets them: for walks that meet most of them.
typedef struct tern_flat_node {
    uint32_t end; // of the nodes below
    uint32_t ids; // where the tokens that end here begin; those of the next node come after them
} tern_flat_node;

#define TERN_FLAT_LARGE     128 // nodes below
#define TERN_FLAT_DEPTH_MAX (UINT16_MAX / 2)

typedef struct tern_flat_tree {
    tern_flat_node *nodes; // [n + 1]
    uint8_t *bytes;        // [n]
    uint16_t *depths;      // [n] depth of the node * 2, + 1 if it is large
    uint32_t *node;        // [n] the same node in the tree
    uint32_t n_of[256];    // how many nodes have this byte
    size_t n;
} tern_flat_tree;

// A token or a node of a tree, and how many characters of a string it has.
typedef struct tern_counted {
    uint32_t what, n_chars;
} tern_counted;

// The tokens inside a JSON string of any number of characters of one kind, up to its quote.
typedef struct tern_string_tokens {
    uint64_t *all;                // [n_words] tokens that stay in the string or end with its quote
    tern_counted *inside, *ended; // the special tokens of both kinds
    tern_counted *exits;          // where the string has ended and tokens go on: node * 2 + tree
    size_t n_inside, n_ended, n_exits;
} tern_string_tokens;

// Tokens are of two kinds, each in a tree of its own. Plain ones may stand within a JSON string as
// they are: whole characters (the last one may be cut), no quote, no backslash, no control. So the
// inside of any string is a known mask, and only the special ones have to be looked at.
enum { TERN_TREE_PLAIN, TERN_TREE_SPECIAL, TERN_TREES };

struct tern_vocab_tree {
    size_t n_vocab, n_words; // words of a mask
    size_t depth_max;        // the length of the longest token
    tern_tree trees[TERN_TREES];
    tern_flat_tree flat; // of plain tokens
    uint64_t *plain;     // [n_words] the mask of plain tokens
    uint32_t *by_chars;  // plain tokens, those with the most characters first
    uint32_t *n_over;    // [depth_max + 1] how many of these have more than i characters
    uint32_t *by_bytes;  // [n_long] tokens of more than TERN_LONG bytes, the longest first
    size_t n_long;
    tern_string_tokens string; // of any characters
    int32_t *ends;
    size_t n_ends;
    char *pool;     // the tokens' bytes
    uint32_t *text; // [n_vocab + 1] where they begin
    size_t bytes;
};

// Tokens with more bytes are few, and kept in a list.
#define TERN_LONG 16

// Fills in `string` from the trees (mask_string.c).
tern_status tern_vocab_tree_find_string(tern_vocab_tree *v, tern_error *err);
void tern_string_tokens_free(tern_string_tokens *s);

#endif
