#include "apps/serve/cache/token_tree.h"

#include <string.h>
#include "base/alloc.h"

// ---- Children ----------------------------------------------------------------------------------

// The index where a child that begins with id is, or would be.
static size_t place_of(const token_node *at, int32_t id) {
    size_t from = 0, to = at->n_children;
    while (from < to) {
        size_t middle = (from + to) / 2;
        if (at->children[middle]->ids[0] < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static token_node *child_of(const token_node *at, int32_t id) {
    size_t i = place_of(at, id);
    return i < at->n_children && at->children[i]->ids[0] == id ? at->children[i] : NULL;
}

static token_node *make_node(token_tree *t, token_node *parent, const int32_t *ids, size_t n) {
    token_node *made = tern_alloc(TERN_MEM_SESSION, sizeof *made);
    if (made) made->ids = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *made->ids);
    if (!made || !made->ids) {
        tern_free(made);
        return NULL;
    }
    memcpy(made->ids, ids, n * sizeof *ids);
    made->n_ids = n;
    made->parent = parent;
    made->depth = parent->depth + n;
    t->n_nodes++;
    return made;
}

static void free_node(token_tree *t, token_node *at) {
    tern_free(at->children);
    tern_free(at->ids);
    tern_free(at);
    t->n_nodes--;
}

static token_node *add_leaf(token_tree *t, token_node *at, const int32_t *ids, size_t n) {
    if (tern_array_reserve(TERN_MEM_SESSION, &at->children, &at->capacity, at->n_children, 1) != 0)
        return NULL;
    token_node *leaf = make_node(t, at, ids, n);
    if (!leaf) return NULL;
    size_t i = place_of(at, ids[0]);
    memmove(at->children + i + 1, at->children + i, (at->n_children - i) * sizeof *at->children);
    at->children[i] = leaf;
    at->n_children++;
    return leaf;
}

// Splits the edge to `at` after n of its ids by a new node.
static token_node *split(token_tree *t, token_node *at, size_t n) {
    token_node *parent = at->parent, *middle = make_node(t, parent, at->ids, n);
    if (!middle) return NULL;
    if (tern_array_reserve(TERN_MEM_SESSION, &middle->children, &middle->capacity, 0, 1) != 0) {
        free_node(t, middle);
        return NULL;
    }
    parent->children[place_of(parent, at->ids[0])] = middle;
    middle->children[middle->n_children++] = at;
    middle->marked = at->marked;
    at->parent = middle;
    at->n_ids -= n;
    memmove(at->ids, at->ids + n, at->n_ids * sizeof *at->ids);
    return middle;
}

// ---- Texts -------------------------------------------------------------------------------------

static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = 0, most = n_a < n_b ? n_a : n_b;
    while (n < most && a[n] == b[n]) n++;
    return n;
}

token_node *token_tree_match(const token_tree *t, const int32_t *ids, size_t n, size_t *n_common) {
    const token_node *at = &t->root;
    size_t i = 0;
    while (i < n && i == at->depth) {
        const token_node *child = child_of(at, ids[i]);
        if (!child) break;
        i += common(child->ids, child->n_ids, ids + i, n - i);
        at = child;
    }
    *n_common = i;
    return (token_node *)at;
}

token_node *token_tree_add(token_tree *t, const int32_t *ids, size_t n) {
    size_t n_common;
    token_node *at = token_tree_match(t, ids, n, &n_common);
    if (n_common < at->depth) at = split(t, at, n_common - at->parent->depth);
    if (!at || n_common == n) return at;
    token_node *leaf = add_leaf(t, at, ids + n_common, n - n_common);
    if (!leaf) token_tree_prune(t, at);
    return leaf;
}

// A node where texts no longer branch is merged into its only child. If memory is out it stays,
// which is harmless.
static void join(token_tree *t, token_node *at) {
    token_node *child = at->children[0], *parent = at->parent;
    size_t n = at->n_ids + child->n_ids;
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *ids);
    if (!ids) return;
    memcpy(ids, at->ids, at->n_ids * sizeof *ids);
    memcpy(ids + at->n_ids, child->ids, child->n_ids * sizeof *ids);
    tern_free(child->ids);
    child->ids = ids;
    child->n_ids = n;
    child->parent = parent;
    parent->children[place_of(parent, ids[0])] = child;
    free_node(t, at);
}

void token_tree_prune(token_tree *t, token_node *at) {
    while (at->parent && !at->value && at->n_children == 0) {
        token_node *parent = at->parent;
        size_t i = place_of(parent, at->ids[0]);
        parent->n_children--;
        memmove(parent->children + i, parent->children + i + 1,
                (parent->n_children - i) * sizeof *parent->children);
        free_node(t, at);
        at = parent;
    }
    if (at->parent && !at->value && at->n_children == 1) join(t, at);
}

void token_tree_mark(token_node *at) {
    at->is_marked = true;
    for (token_node *k = at; k; k = k->parent) k->marked = at;
}

void token_tree_unmark(token_node *at) {
    at->is_marked = false;
    for (token_node *k = at; k && k->marked == at; k = k->parent) { // above, it is another one
        k->marked = k->is_marked ? k : NULL;
        for (size_t i = 0; !k->marked && i < k->n_children; i++) k->marked = k->children[i]->marked;
    }
}

token_node *token_tree_next(const token_node *at, const token_node *top) {
    if (at->n_children > 0) return at->children[0];
    for (; at != top; at = at->parent) {
        const token_node *parent = at->parent;
        size_t i = place_of(parent, at->ids[0]) + 1;
        if (i < parent->n_children) return parent->children[i];
    }
    return NULL;
}

void token_tree_text(const token_node *at, int32_t *ids) {
    for (; at->parent; at = at->parent)
        memcpy(ids + at->parent->depth, at->ids, at->n_ids * sizeof *ids);
}

void token_tree_free(token_tree *t) {
    token_node *at = &t->root;
    while (at->n_children > 0 || at->parent) {
        if (at->n_children > 0) {
            at = at->children[at->n_children - 1];
            continue;
        }
        token_node *parent = at->parent;
        parent->n_children--; // `at` was the last child
        free_node(t, at);
        at = parent;
    }
    tern_free(t->root.children);
    *t = (token_tree){0};
}
