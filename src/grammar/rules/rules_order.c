// The order in which rules call each other before anything is read, and which are left-recursive.
#include "base/alloc.h"
#include "grammar/rules/rules.h"

// Tarjan's strongly connected components over "may begin with", without recursion. They come out
// callees first.
typedef struct components {
    tern_rules *r;
    uint32_t *index, *low, *stack; // [n_rules]
    bool *on_stack;
    uint32_t *seen; // [n_nodes] the rule that saw it last, + 1
    size_t n_stack;
    uint32_t next, n_groups;
    // Edges of a rule are found once: [n_edges] from its place on.
    uint32_t *edges;
    size_t n_edges, edges_capacity;
    uint32_t *begin, *at, *path; // [n_rules + 1]
} components;

// Appends the rules that may be called at `node` before anything is taken.
static bool add_edges(components *c, uint32_t rule, uint32_t *todo, size_t todo_max) {
    tern_rules *r = c->r;
    size_t n = 0;
    todo[n++] = r->rules[rule].start;
    while (n) {
        uint32_t at = todo[--n];
        const tern_net_node *node = &r->nodes[at];
        if (!tern_terms_work(r->terms, 1)) return false;
        if (c->seen[at] == rule + 1 || !node->has_text) continue;
        c->seen[at] = rule + 1;
        uint32_t follower = UINT32_MAX;
        if (node->kind == TERN_NET_TERM && tern_term_is_nullable(r->terms, node->a))
            follower = node->b;
        if (node->kind == TERN_NET_CALL) {
            if (tern_array_reserve(TERN_MEM_SESSION, &c->edges, &c->edges_capacity, c->n_edges,
                                   1) != 0)
                return false;
            c->edges[c->n_edges++] = node->a;
            if (r->nodes[r->rules[node->a].start].is_empty) follower = node->b;
        }
        if (follower != UINT32_MAX && n < todo_max) todo[n++] = follower;
        for (size_t k = 0; node->kind == TERN_NET_EITHER && k < node->b && n < todo_max; k++)
            todo[n++] = r->lists[node->a + k];
    }
    return true;
}

static void enter(components *c, uint32_t rule) {
    c->index[rule] = c->low[rule] = ++c->next;
    c->stack[c->n_stack++] = rule;
    c->on_stack[rule] = true;
    c->at[rule] = c->begin[rule];
}

static void leave(components *c, uint32_t rule) {
    if (c->low[rule] != c->index[rule]) return;
    uint32_t member;
    bool is_alone = c->stack[c->n_stack - 1] == rule;
    do {
        member = c->stack[--c->n_stack];
        c->on_stack[member] = false;
        tern_rule_info *info = &c->r->rules[member];
        info->group = c->n_groups;
        info->is_left_recursive = !is_alone;
        for (size_t k = c->begin[member]; k < c->begin[member + 1]; k++)
            if (c->edges[k] == member) info->is_left_recursive = true;
    } while (member != rule);
    c->n_groups++;
}

static void find_components(components *c) {
    for (uint32_t root = 0; root < c->r->n_rules; root++) {
        size_t n = 0;
        if (c->index[root]) continue;
        c->path[n++] = root;
        enter(c, root);
        while (n) {
            uint32_t rule = c->path[n - 1];
            if (c->at[rule] < c->begin[rule + 1]) {
                uint32_t to = c->edges[c->at[rule]++];
                if (!c->index[to]) {
                    c->path[n++] = to;
                    enter(c, to);
                } else if (c->on_stack[to] && c->index[to] < c->low[rule]) {
                    c->low[rule] = c->index[to];
                }
                continue;
            }
            leave(c, rule);
            if (--n && c->low[rule] < c->low[c->path[n - 1]]) c->low[c->path[n - 1]] = c->low[rule];
        }
    }
}

tern_status tern_rules_order(tern_rules *r, tern_error *err) {
    size_t n = r->n_rules, n_todo = r->n_nodes + r->n_lists + 1;
    components c = {.r = r};
    uint32_t *block = tern_alloc_array(TERN_MEM_SESSION, 6 * (n + 1) + r->n_nodes + n_todo, 4);
    c.on_stack = tern_alloc(TERN_MEM_SESSION, n + 1);
    bool ok = block && c.on_stack;
    if (ok) {
        uint32_t **parts[] = {&c.index, &c.low, &c.stack, &c.begin, &c.at, &c.path};
        for (size_t i = 0; i < 6; i++) *parts[i] = block + i * (n + 1);
        c.seen = block + 6 * (n + 1);
        for (uint32_t i = 0; i < n && ok; i++) {
            c.begin[i] = (uint32_t)c.n_edges;
            ok = add_edges(&c, i, c.seen + r->n_nodes, n_todo);
        }
        c.begin[n] = (uint32_t)c.n_edges;
    }
    if (ok) find_components(&c);
    for (size_t i = 0; i < n && ok; i++) r->rules[i].group = c.n_groups - 1 - r->rules[i].group;
    tern_free(block);
    tern_free(c.on_stack);
    tern_free(c.edges);
    TERN_TRY(tern_terms_check(r->terms, err));
    return ok ? TERN_OK : tern_fail_memory(err, n_todo * 4);
}
