// Expressions, laid out as a network, and what is known about its nodes.
#include "grammar/rules/rules.h"

#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"

#define RULE_LENGTH 32 // parts of a long sequence of expressions: the rest becomes a rule

// ---- Expressions --------------------------------------------------------------------------------

typedef enum expr_kind {
    IS_EMPTY,
    IS_NOTHING,
    IS_TERM,
    IS_CAT,
    IS_EITHER,
    IS_CALL,
    IS_LOOP
} expr_kind;

static uint32_t fail(tern_rules *r) {
    r->failed = true;
    return TERN_EXPR_NOTHING;
}

static uint64_t hash_expr(const tern_rules *r, const tern_expr_node *e) {
    if (e->kind == IS_EITHER) return tern_hash64(e->kind, r->lists + e->a, e->b * sizeof *r->lists);
    return tern_mix64(tern_mix64((uint64_t)e->kind << 1 | e->is_open) ^ (uint64_t)e->a << 32 ^
                      e->b);
}

static bool same_expr(const tern_rules *r, const tern_expr_node *x, const tern_expr_node *y) {
    if (x->kind != y->kind || x->is_open != y->is_open || x->b != y->b) return false;
    return x->a == y->a || (x->kind == IS_EITHER &&
                            memcmp(r->lists + x->a, r->lists + y->a, x->b * sizeof *r->lists) == 0);
}

static bool grow_exprs(tern_rules *r) {
    if (r->n_exprs * 2 < r->n_expr_slots) return true;
    size_t more = r->n_expr_slots ? r->n_expr_slots * 2 : 256;
    uint32_t *slots = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < r->n_exprs; i++) {
        size_t at = hash_expr(r, &r->exprs[i]) & (more - 1);
        while (slots[at]) at = (at + 1) & (more - 1);
        slots[at] = (uint32_t)i + 1;
    }
    tern_free(r->expr_slots);
    r->expr_slots = slots;
    r->n_expr_slots = more;
    return true;
}

// The list of an EITHER is the last one in r->lists, and is dropped if the expression exists
// already.
static tern_expr new_expr(tern_rules *r, tern_expr_node e) {
    if (r->failed || !grow_exprs(r) ||
        tern_array_reserve(TERN_MEM_SESSION, &r->exprs, &r->exprs_capacity, r->n_exprs, 1) != 0)
        return fail(r);
    size_t mask = r->n_expr_slots - 1, at = hash_expr(r, &e) & mask;
    for (; r->expr_slots[at]; at = (at + 1) & mask)
        if (same_expr(r, &r->exprs[r->expr_slots[at] - 1], &e)) {
            if (e.kind == IS_EITHER) r->n_lists = e.a;
            return r->expr_slots[at] - 1;
        }
    r->exprs[r->n_exprs] = e;
    r->expr_slots[at] = (uint32_t)++r->n_exprs;
    return (tern_expr)r->n_exprs - 1;
}

static uint32_t new_node(tern_rules *r, tern_net_node n) {
    if (r->failed ||
        tern_array_reserve(TERN_MEM_SESSION, &r->nodes, &r->nodes_capacity, r->n_nodes, 1) != 0)
        return fail(r);
    r->nodes[r->n_nodes] = n;
    return (uint32_t)r->n_nodes++;
}

tern_status tern_rules_open(tern_rules *r, tern_terms *terms, tern_error *err) {
    *r = (tern_rules){.terms = terms};
    new_expr(r, (tern_expr_node){.kind = IS_EMPTY});
    new_expr(r, (tern_expr_node){.kind = IS_NOTHING});
    new_node(r, (tern_net_node){.kind = TERN_NET_ACCEPT, .has_text = true, .is_empty = true});
    new_node(r, (tern_net_node){.kind = TERN_NET_RETURN, .has_text = true, .is_empty = true});
    // Empty lists point into r->lists, too: it must not be NULL.
    if (tern_array_reserve(TERN_MEM_SESSION, &r->lists, &r->lists_capacity, 0, 1)) fail(r);
    return r->failed ? tern_fail_memory(err, sizeof *r->nodes) : TERN_OK;
}

void tern_rules_close(tern_rules *r) {
    tern_free(r->exprs);
    tern_free(r->expr_slots);
    tern_free(r->laid_keys);
    tern_free(r->laid_nodes);
    tern_free(r->nodes);
    tern_free(r->lists);
    tern_free(r->rules);
    tern_free(r->laying);
    tern_free(r->ways);
    *r = (tern_rules){0};
}

static tern_expr term_expr(tern_rules *r, tern_term a, bool is_open) {
    if (a == TERN_TERM_EMPTY) return TERN_EXPR_EMPTY;
    if (!tern_term_is_alive(r->terms, a)) return TERN_EXPR_NOTHING;
    return new_expr(r, (tern_expr_node){.kind = IS_TERM, .is_open = is_open, .a = a});
}

tern_expr tern_expr_term(tern_rules *r, tern_term a) { return term_expr(r, a, false); }
tern_expr tern_expr_open(tern_rules *r, tern_term a) { return term_expr(r, a, true); }

tern_expr tern_expr_cat(tern_rules *r, tern_expr a, tern_expr b) {
    if (a == TERN_EXPR_NOTHING || b == TERN_EXPR_NOTHING) return TERN_EXPR_NOTHING;
    if (a == TERN_EXPR_EMPTY) return b;
    if (b == TERN_EXPR_EMPTY) return a;
    return new_expr(r, (tern_expr_node){.kind = IS_CAT, .a = a, .b = b});
}

tern_expr tern_expr_either(tern_rules *r, const tern_expr *exprs, size_t n) {
    size_t from = r->n_lists;
    if (r->failed ||
        tern_array_reserve(TERN_MEM_SESSION, &r->lists, &r->lists_capacity, from, n) != 0)
        return fail(r);
    for (size_t i = 0; i < n; i++) {
        bool is_new = exprs[i] != TERN_EXPR_NOTHING;
        for (size_t k = from; k < r->n_lists && is_new && n < 64; k++)
            is_new = r->lists[k] != exprs[i];
        if (is_new) r->lists[r->n_lists++] = exprs[i];
    }
    n = r->n_lists - from;
    if (n <= 1) r->n_lists = from;
    if (n == 0) return TERN_EXPR_NOTHING;
    if (n == 1) return r->lists[from];
    return new_expr(r, (tern_expr_node){.kind = IS_EITHER, .a = (uint32_t)from, .b = (uint32_t)n});
}

tern_expr tern_expr_or(tern_rules *r, tern_expr a, tern_expr b) {
    return tern_expr_either(r, (const tern_expr[]){a, b}, 2);
}

tern_expr tern_expr_call(tern_rules *r, tern_rule rule) {
    return new_expr(r, (tern_expr_node){.kind = IS_CALL, .a = rule});
}

tern_expr tern_expr_loop(tern_rules *r, tern_expr a) {
    if (a == TERN_EXPR_NOTHING || a == TERN_EXPR_EMPTY) return TERN_EXPR_EMPTY;
    return new_expr(r, (tern_expr_node){.kind = IS_LOOP, .a = a});
}

tern_expr tern_expr_repeat(tern_rules *r, tern_expr a, uint32_t min, uint32_t max) {
    tern_expr e = TERN_EXPR_EMPTY;
    if (max == TERN_NO_LIMIT) e = tern_expr_loop(r, a);
    for (uint32_t i = min; max != TERN_NO_LIMIT && i < max && !r->failed; i++) {
        e = tern_expr_or(r, TERN_EXPR_EMPTY, tern_expr_cat(r, a, e));
        if (i % RULE_LENGTH == 0) e = tern_expr_rule(r, e);
    }
    for (uint32_t i = 0; i < min && !r->failed; i++) {
        e = tern_expr_cat(r, a, e);
        if (i % RULE_LENGTH == RULE_LENGTH - 1) e = tern_expr_rule(r, e);
    }
    return e;
}

tern_expr tern_expr_rule(tern_rules *r, tern_expr e) {
    if (e <= TERN_EXPR_NOTHING || r->failed) return e;
    tern_rule rule = tern_rules_new(r);
    tern_rules_define(r, rule, e);
    return tern_expr_call(r, rule);
}

bool tern_expr_is_term(const tern_rules *r, tern_expr e) { return r->exprs[e].kind == IS_TERM; }

tern_rule tern_rules_new(tern_rules *r) {
    if (tern_array_reserve(TERN_MEM_SESSION, &r->rules, &r->rules_capacity, r->n_rules, 1) != 0) {
        r->failed = true;
        return 0;
    }
    r->rules[r->n_rules] = (tern_rule_info){.expr = TERN_EXPR_NOTHING};
    return (tern_rule)r->n_rules++;
}

void tern_rules_define(tern_rules *r, tern_rule rule, tern_expr expr) {
    if (rule >= r->n_rules) return;
    r->rules[rule].expr = expr;
    r->rules[rule].is_defined = true;
}

// ---- The network --------------------------------------------------------------------------------

static uint32_t lay_term(tern_rules *r, tern_term a, bool is_open, uint32_t next) {
    const tern_net_node follower = r->nodes[next];
    if (!is_open && follower.kind == TERN_NET_TERM)
        return new_node(r, (tern_net_node){.kind = TERN_NET_TERM,
                                           .is_open = follower.is_open,
                                           .a = tern_term_cat(r->terms, a, follower.a),
                                           .b = follower.b});
    const tern_net_node node = {.kind = TERN_NET_TERM, .is_open = is_open, .a = a, .b = next};
    return new_node(r, node);
}

// Whether two ways can be joined to one term: both lead to the same node and, if one is open, no
// byte can begin both.
static bool can_join(const tern_rules *r, const tern_net_node *x, const tern_net_node *y) {
    if (x->kind != TERN_NET_TERM || y->kind != TERN_NET_TERM || x->b != y->b) return false;
    if (!x->is_open && !y->is_open) return true;
    const tern_byteset *p = tern_term_first(r->terms, x->a), *q = tern_term_first(r->terms, y->a);
    if (tern_term_is_nullable(r->terms, x->a) || tern_term_is_nullable(r->terms, y->a))
        return false;
    for (int i = 0; i < 4; i++)
        if (p->w[i] & q->w[i]) return false;
    return true;
}

// The node of a choice whose ways are the last n of r->ways.
static uint32_t lay_either(tern_rules *r, size_t n) {
    uint32_t *ways = r->ways + (r->n_ways - n);
    tern_term *terms = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *terms);
    size_t n_left = 0, n_terms = 0;
    tern_net_node joined = {0};
    if (!terms) return fail(r);
    for (size_t i = 0; i < n; i++) {
        const tern_net_node *node = &r->nodes[ways[i]];
        // Terms with the same next node become one node, for their union.
        bool fits = node->kind == TERN_NET_TERM && (n_terms == 0 || can_join(r, &joined, node));
        if (!fits) {
            ways[n_left++] = ways[i];
            continue;
        }
        terms[n_terms++] = node->a;
        if (n_terms == 1)
            joined = *node;
        else if (joined.is_open || node->is_open) { // the next can_join needs its first bytes
            joined.a = tern_term_or(r->terms, joined.a, node->a);
            joined.is_open = true;
        }
    }
    if (n_terms) {
        joined.a = tern_term_either(r->terms, terms, n_terms);
        ways[n_left++] = new_node(r, joined);
    }
    tern_free(terms);
    if (r->failed || n_left == 1) return r->failed ? TERN_EXPR_NOTHING : ways[0];
    if (tern_array_reserve(TERN_MEM_SESSION, &r->lists, &r->lists_capacity, r->n_lists, n_left))
        return fail(r);
    memcpy(r->lists + r->n_lists, ways, n_left * sizeof *ways);
    r->n_lists += n_left;
    return new_node(r, (tern_net_node){.kind = TERN_NET_EITHER,
                                       .a = (uint32_t)(r->n_lists - n_left),
                                       .b = (uint32_t)n_left});
}

// A choice between another round and going on. A round leads back to the choice; the two ways are
// filled in after both are laid out.
static uint32_t begin_loop(tern_rules *r) {
    if (tern_array_reserve(TERN_MEM_SESSION, &r->lists, &r->lists_capacity, r->n_lists, 2) != 0)
        return fail(r);
    r->n_lists += 2;
    return new_node(
        r, (tern_net_node){.kind = TERN_NET_EITHER, .a = (uint32_t)(r->n_lists - 2), .b = 2});
}

// Where an expression before a node lies, or will: without this table, a shared part of an
// expression would be laid out once for every way to it.
static uint32_t *laid_at(tern_rules *r, tern_expr e, uint32_t next) {
    if (r->n_laid * 2 >= r->n_laid_slots) {
        size_t more = r->n_laid_slots ? r->n_laid_slots * 2 : 256;
        uint64_t *keys = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *keys);
        uint32_t *nodes = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *nodes);
        for (size_t i = 0; i < r->n_laid_slots && keys && nodes; i++) {
            if (!r->laid_keys[i]) continue;
            size_t at = tern_mix64(r->laid_keys[i]) & (more - 1);
            while (keys[at]) at = (at + 1) & (more - 1);
            keys[at] = r->laid_keys[i];
            nodes[at] = r->laid_nodes[i];
        }
        if (!keys || !nodes) {
            tern_free(keys);
            tern_free(nodes);
            fail(r);
            return NULL;
        }
        tern_free(r->laid_keys);
        tern_free(r->laid_nodes);
        r->laid_keys = keys;
        r->laid_nodes = nodes;
        r->n_laid_slots = more;
    }
    const uint64_t key = ((uint64_t)e << 32 | next) + 1;
    size_t mask = r->n_laid_slots - 1, at = tern_mix64(key) & mask;
    while (r->laid_keys[at] && r->laid_keys[at] != key) at = (at + 1) & mask;
    if (!r->laid_keys[at]) r->n_laid++;
    r->laid_keys[at] = key;
    return &r->laid_nodes[at];
}

// An expression that is being laid out before `next`, and how many of its parts are done.
typedef struct tern_laying {
    tern_expr expr;
    uint32_t next, n_parts, choice; // choice: the node of a loop
} laying;

static bool begin_laying(tern_rules *r, tern_expr expr, uint32_t next) {
    if (r->failed || !tern_terms_work(r->terms, 1) ||
        tern_array_reserve(TERN_MEM_SESSION, &r->laying, &r->laying_capacity, r->n_laying, 1)) {
        r->failed = true;
        return false;
    }
    r->laying[r->n_laying++] = (laying){expr, next, 0, 0};
    return true;
}

// *node: where the part laid out last is, for the last of r->laying (0: no part yet). True: all of
// it is laid out, at *node. False: the next part has been begun.
static bool go_on_laying(tern_rules *r, uint32_t *node) {
    laying *l = &r->laying[r->n_laying - 1];
    const tern_expr_node e = r->exprs[l->expr];
    const uint32_t part = l->n_parts++, next = l->next;
    switch ((expr_kind)e.kind) {
    case IS_EMPTY: *node = next; return true;
    case IS_NOTHING:
        *node = new_node(r, (tern_net_node){.kind = TERN_NET_EITHER, .a = 0, .b = 0});
        return true;
    case IS_TERM: *node = lay_term(r, e.a, e.is_open, next); return true;
    case IS_CALL:
        *node = new_node(r, (tern_net_node){.kind = TERN_NET_CALL, .a = e.a, .b = next});
        return true;
    case IS_CAT: // the second one first, as the first one leads to it
        return part == 2 || !begin_laying(r, part ? e.a : e.b, part ? *node : next);
    case IS_EITHER:
        if (part > 0 &&
            tern_array_reserve(TERN_MEM_SESSION, &r->ways, &r->ways_capacity, r->n_ways, 1) != 0) {
            fail(r);
            return true;
        }
        if (part > 0) r->ways[r->n_ways++] = *node;
        if (part < e.b) return !begin_laying(r, r->lists[e.a + part], next);
        *node = lay_either(r, e.b);
        r->n_ways -= e.b;
        return true;
    case IS_LOOP:
        if (part == 0) {
            l->choice = begin_loop(r);
            return r->failed || !begin_laying(r, e.a, l->choice);
        }
        r->lists[r->nodes[l->choice].a] = *node;
        r->lists[r->nodes[l->choice].a + 1] = next;
        *node = l->choice;
        return true;
    }
    return true;
}

// The node that reads `expr` and goes on at `next`.
static uint32_t lay(tern_rules *r, tern_expr expr, uint32_t next) {
    uint32_t node = 0, *known;
    r->n_laying = r->n_ways = 0;
    begin_laying(r, expr, next);
    while (r->n_laying && !r->failed) {
        const laying l = r->laying[r->n_laying - 1];
        const bool is_shared = r->exprs[l.expr].kind >= IS_CAT;
        if (is_shared && l.n_parts == 0) {
            known = laid_at(r, l.expr, l.next);
            if (known && *known) {
                node = *known;
                r->n_laying--;
                continue;
            }
        }
        if (r->failed || !go_on_laying(r, &node) || r->failed) continue;
        r->n_laying--;
        known = is_shared ? laid_at(r, l.expr, l.next) : NULL;
        if (known) *known = node;
    }
    return node;
}

// ---- What is known of nodes ---------------------------------------------------------------------

// Sets has_text and is_empty of a node from the nodes that it leads to; returns whether they
// changed.
static bool find_texts_of(tern_rules *r, tern_net_node *n) {
    bool has_text = false, is_empty = false;
    if (n->kind == TERN_NET_TERM) {
        has_text = r->nodes[n->b].has_text;
        is_empty = r->nodes[n->b].is_empty && tern_term_is_nullable(r->terms, n->a);
    } else if (n->kind == TERN_NET_CALL) {
        const tern_net_node *start = &r->nodes[r->rules[n->a].start];
        has_text = start->has_text && r->nodes[n->b].has_text;
        is_empty = start->is_empty && r->nodes[n->b].is_empty;
    } else {
        for (size_t k = 0; k < n->b; k++) {
            const tern_net_node *way = &r->nodes[r->lists[n->a + k]];
            has_text = has_text || way->has_text;
            is_empty = is_empty || way->is_empty;
        }
    }
    const bool is_new = has_text != n->has_text || is_empty != n->is_empty;
    n->has_text = has_text;
    n->is_empty = is_empty;
    return is_new;
}

// The *n nodes that has_text and is_empty of a node depend on.
static const uint32_t *asked_by(const tern_rules *r, const tern_net_node *node, uint32_t two[2],
                                size_t *n) {
    two[0] = node->b;
    *n = 1;
    if (node->kind == TERN_NET_CALL) two[(*n)++] = r->rules[node->a].start;
    if (node->kind != TERN_NET_EITHER) return two;
    *n = node->b;
    return r->lists + node->a;
}

// Updates node n after `asked` changed; returns whether n did. A choice of thousands does not look
// at all of its ways again.
static bool hear(tern_rules *r, tern_net_node *n, const tern_net_node *asked) {
    if (n->kind != TERN_NET_EITHER) return find_texts_of(r, n);
    const bool is_new = (asked->has_text && !n->has_text) || (asked->is_empty && !n->is_empty);
    n->has_text = n->has_text || asked->has_text;
    n->is_empty = n->is_empty || asked->is_empty;
    return is_new;
}

// The nodes that depend on node i are askers[begin[i]] to askers[begin[i + 1]]; begin [n_nodes +
// 2].
static void find_askers(const tern_rules *r, uint32_t *begin, uint32_t *askers) {
    uint32_t two[2];
    size_t n_asked;
    for (size_t i = 2; i < r->n_nodes; i++) {
        const uint32_t *asked = asked_by(r, &r->nodes[i], two, &n_asked);
        for (size_t k = 0; k < n_asked; k++) begin[asked[k] + 2]++;
    }
    for (size_t i = 0; i < r->n_nodes; i++) begin[i + 2] += begin[i + 1];
    for (size_t i = 2; i < r->n_nodes; i++) {
        const uint32_t *asked = asked_by(r, &r->nodes[i], two, &n_asked);
        for (size_t k = 0; k < n_asked; k++) askers[begin[asked[k] + 1]++] = (uint32_t)i;
    }
}

// Passes changes of nodes on to the nodes that depend on them, until nothing changes.
static tern_status find_texts(tern_rules *r, tern_error *err) {
    const size_t n = r->n_nodes;
    uint32_t two[2];
    size_t n_asked, n_edges = 0, n_todo = 0;
    for (size_t i = 2; i < n; i++) {
        asked_by(r, &r->nodes[i], two, &n_asked);
        n_edges += n_asked;
    }
    uint32_t *begin = tern_alloc_array(TERN_MEM_SESSION, 2 * n + 2 + n_edges, sizeof *begin);
    bool *waits = tern_alloc(TERN_MEM_SESSION, n);
    r->terms->work += n + n_edges;
    if (begin && waits) {
        uint32_t *todo = begin + n + 2, *askers = todo + n;
        find_askers(r, begin, askers);
        for (size_t i = 2; i < n; i++) {
            waits[i] = find_texts_of(r, &r->nodes[i]);
            if (waits[i]) todo[n_todo++] = (uint32_t)i;
        }
        while (n_todo) {
            const uint32_t i = todo[--n_todo];
            waits[i] = false;
            for (uint32_t k = begin[i]; k < begin[i + 1]; k++) {
                const uint32_t asker = askers[k];
                if (!hear(r, &r->nodes[asker], &r->nodes[i]) || waits[asker]) continue;
                waits[asker] = true;
                todo[n_todo++] = asker;
            }
        }
    }
    tern_free(begin);
    tern_free(waits);
    return begin && waits ? TERN_OK : tern_fail_memory(err, n_edges * sizeof *begin);
}

tern_status tern_rules_finish(tern_rules *r, tern_expr root, tern_error *err) {
    for (size_t i = 0; i < r->n_rules && !r->failed; i++) {
        uint32_t start = lay(r, r->rules[i].expr, TERN_NODE_RETURN);
        if (!r->failed) r->rules[i].start = start;
    }
    if (!r->failed) r->root = lay(r, root, TERN_NODE_ACCEPT);
    TERN_TRY(tern_terms_check(r->terms, err));
    if (r->failed) return tern_fail_memory(err, r->n_nodes * sizeof *r->nodes);
    TERN_TRY(find_texts(r, err));
    if (!r->nodes[r->root].has_text)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "no text satisfies the grammar");
    return tern_rules_order(r, err);
}
