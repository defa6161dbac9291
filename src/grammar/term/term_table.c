// The table of terms: each expression is there once; what it costs is counted and bounded.
#include "grammar/term/term.h"

#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/hash.h"
#include "base/os/os_time.h"

// ---- Sets of bytes ------------------------------------------------------------------------------

tern_byteset tern_byteset_range(unsigned first, unsigned last) {
    tern_byteset s = {{0}};
    for (unsigned b = first; b <= last; b++) tern_byteset_add(&s, b);
    return s;
}

bool tern_byteset_within(const tern_byteset *s, const tern_byteset *whole) {
    uint64_t outside = 0;
    for (int i = 0; i < 4; i++) outside |= s->w[i] & ~whole->w[i];
    return !outside;
}

// ---- Budgets ------------------------------------------------------------------------------------

// Steps of work between two checks of whether to stop: about a millisecond.
#define LOOK_EACH 50000

tern_term tern_terms_fail(tern_terms *t, tern_terms_fault why) {
    if (!t->failed) t->fault = why;
    t->failed = true;
    return TERN_TERM_NOTHING;
}

static void look_later(tern_terms *t) {
    t->work_next = t->work + LOOK_EACH;
    if (t->work_next > t->work_max) t->work_next = t->work_max;
}

void tern_terms_allow(tern_terms *t, uint64_t work) {
    if (t->failed && t->fault >= TERN_TERMS_TOO_LONG) t->failed = false;
    t->n_stack = 0;
    t->work_max = work && work < UINT64_MAX - t->work ? t->work + work : UINT64_MAX;
    look_later(t);
}

bool tern_terms_look(tern_terms *t) {
    if (t->failed) return false;
    if (t->work >= t->work_max) return tern_terms_fail(t, TERN_TERMS_TOO_LONG);
    if (tern_is_cancelled()) return tern_terms_fail(t, TERN_TERMS_STOPPED);
    look_later(t);
    return true;
}

bool tern_terms_reserve(tern_terms *t, void **array, size_t *capacity, size_t n, size_t more,
                        size_t each) {
    size_t had = *capacity;
    if (n + more <= had) return true;
    if (t->failed) return false;
    if (t->bytes_max && t->bytes > t->bytes_max) {
        tern_terms_fail(t, TERN_TERMS_TOO_LARGE);
        return false;
    }
    if (tern_array_reserve_(TERN_MEM_SESSION, array, capacity, n, more, each) != 0) {
        tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
        return false;
    }
    t->bytes += (*capacity - had) * each;
    return true;
}

// Doubles a table of numbers + 1 that is more than half full.
static bool grow_slots(tern_terms *t, uint32_t **slots, size_t *n_slots, size_t n,
                       uint64_t (*hash)(const tern_terms *t, size_t i)) {
    if (*slots && n * 2 < *n_slots) return true;
    size_t more = *n_slots ? *n_slots * 2 : 1024;
    uint32_t *grown = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *grown);
    if (!grown) {
        tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = hash(t, i) & (more - 1);
        while (grown[at]) at = (at + 1) & (more - 1);
        grown[at] = (uint32_t)i + 1;
    }
    t->bytes += (more - *n_slots) * sizeof *grown;
    tern_free(*slots);
    *slots = grown;
    *n_slots = more;
    return true;
}

static uint64_t hash_bytes(const tern_byteset *s) {
    uint64_t h = 0;
    for (int i = 0; i < 4; i++) h = tern_mix64(h ^ s->w[i]);
    return h;
}
static uint64_t hash_of_set(const tern_terms *t, size_t i) { return hash_bytes(&t->sets[i]); }

static uint32_t intern_set(tern_terms *t, const tern_byteset *s) {
    if (!grow_slots(t, &t->set_slots, &t->n_set_slots, t->n_sets, hash_of_set)) return 0;
    size_t mask = t->n_set_slots - 1, at = hash_bytes(s) & mask;
    for (; t->set_slots[at]; at = (at + 1) & mask)
        if (memcmp(&t->sets[t->set_slots[at] - 1], s, sizeof *s) == 0) return t->set_slots[at] - 1;
    if (!TERN_TERMS_RESERVE(t, &t->sets, &t->sets_capacity, t->n_sets, 1)) return 0;
    t->sets[t->n_sets] = *s;
    t->set_slots[at] = (uint32_t)++t->n_sets;
    return (uint32_t)t->n_sets - 1;
}

// ---- The table of terms -------------------------------------------------------------------------

static bool has_list(unsigned kind) { return kind == TERN_KIND_EITHER || kind == TERN_KIND_BOTH; }

// Texts are equal if their bytes are at the same place in the pool, which is searched before bytes
// are added.
static uint64_t hash_node(const tern_terms *t, const tern_term_node *n) {
    if (has_list(n->kind)) return tern_hash64(n->kind, t->lists + n->a, n->b * sizeof *t->lists);
    return tern_mix64(tern_mix64(n->kind ^ (uint64_t)n->a << 32 ^ n->b) + n->c);
}
static uint64_t hash_of_node(const tern_terms *t, size_t i) { return hash_node(t, &t->nodes[i]); }

static bool same_node(const tern_terms *t, const tern_term_node *x, const tern_term_node *y) {
    if (x->kind != y->kind || x->b != y->b || x->c != y->c) return false;
    return x->a == y->a || (has_list(x->kind) &&
                            memcmp(t->lists + x->a, t->lists + y->a, x->b * sizeof *t->lists) == 0);
}

// Steps of work for a new term, which is memory outside the caches.
#define NEW_NODE 12

// A lower bound: 0 or 1 if the parts do not show more.
static uint32_t shortest_of(const tern_terms *t, const tern_term_node *n) {
    const bool is_least = n->kind != TERN_KIND_BOTH;
    uint64_t r = 0;
    if (n->flags & TERN_TERM_NULLABLE) return 0;
    switch ((tern_term_kind)n->kind) {
    case TERN_KIND_TEXT: return n->b;
    case TERN_KIND_CAT: r = (uint64_t)t->nodes[n->a].shortest + t->nodes[n->b].shortest; break;
    case TERN_KIND_REPEAT: r = (uint64_t)t->nodes[n->a].shortest * n->b; break;
    case TERN_KIND_EITHER:
    case TERN_KIND_BOTH:
        r = t->nodes[t->lists[n->a]].shortest;
        for (uint32_t i = 1; i < n->b; i++) {
            const uint32_t part = t->nodes[t->lists[n->a + i]].shortest;
            if (is_least ? part < r : part > r) r = part;
        }
        break;
    case TERN_KIND_NOTHING:
    case TERN_KIND_EMPTY: return 0;
    case TERN_KIND_SET:
    case TERN_KIND_NOT:
    case TERN_KIND_MULTIPLE: return 1;
    }
    return r < UINT32_MAX / 2 ? (uint32_t)r : UINT32_MAX / 2;
}

static unsigned depth_of(const tern_terms *t, const tern_term_node *n) {
    unsigned most = 0;
    switch ((tern_term_kind)n->kind) {
    case TERN_KIND_CAT: {
        const unsigned head = t->nodes[n->a].depth + 1u, rest = t->nodes[n->b].depth;
        return head > rest || !tern_term_is_nullable(t, n->a) ? head : rest;
    }
    case TERN_KIND_EITHER:
    case TERN_KIND_BOTH:
        for (uint32_t i = 0; i < n->b; i++)
            if (t->nodes[t->lists[n->a + i]].depth > most)
                most = t->nodes[t->lists[n->a + i]].depth;
        return most + 1;
    case TERN_KIND_NOT:
    case TERN_KIND_REPEAT: return t->nodes[n->a].depth + 1u;
    case TERN_KIND_NOTHING:
    case TERN_KIND_EMPTY:
    case TERN_KIND_SET:
    case TERN_KIND_TEXT:
    case TERN_KIND_MULTIPLE: break;
    }
    return 0;
}

// The term of a node whose first set and flags are filled in. Its list, if it has one, is the last
// one in t->lists, and is dropped if the term exists already.
tern_term tern_term_intern(tern_terms *t, const tern_term_node *n, const tern_byteset *first) {
    if (t->failed || !grow_slots(t, &t->slots, &t->n_slots, t->n_nodes, hash_of_node))
        return TERN_TERM_NOTHING;
    size_t mask = t->n_slots - 1, at = hash_node(t, n) & mask;
    for (; t->slots[at]; at = (at + 1) & mask)
        if (same_node(t, &t->nodes[t->slots[at] - 1], n)) {
            if (has_list(n->kind)) t->n_lists = n->a;
            return t->slots[at] - 1;
        }
    const unsigned depth = depth_of(t, n);
    if (depth > TERN_TERM_DEPTH_MAX) return tern_terms_fail(t, TERN_TERMS_TOO_DEEP);
    if (t->n_nodes >= TERN_STEP_UNCHECKED - 1) return tern_terms_fail(t, TERN_TERMS_TOO_LARGE);
    if (!TERN_TERMS_RESERVE(t, &t->nodes, &t->nodes_capacity, t->n_nodes, 1))
        return TERN_TERM_NOTHING;
    uint32_t first_id = intern_set(t, first);
    tern_terms_work(t, NEW_NODE);
    if (t->failed) return TERN_TERM_NOTHING;
    t->nodes[t->n_nodes] = *n;
    t->nodes[t->n_nodes].first = first_id;
    t->nodes[t->n_nodes].depth = (uint8_t)depth;
    t->nodes[t->n_nodes].shortest = shortest_of(t, n);
    t->slots[at] = (uint32_t)++t->n_nodes;
    return (tern_term)t->n_nodes - 1;
}

tern_status tern_terms_open(tern_terms *t, size_t bytes_max, tern_error *err) {
    static const tern_byteset all = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
    *t = (tern_terms){.bytes_max = bytes_max, .secret = tern_random_seed()};
    tern_terms_allow(t, 0);
    // Set 0 is empty, 1..256 have one byte each, and 257 has all bytes.
    for (unsigned b = 0; b <= 256; b++) {
        tern_byteset one = {{0}};
        if (b) tern_byteset_add(&one, b - 1);
        intern_set(t, &one);
    }
    intern_set(t, &all);
    const tern_byteset none = {{0}};
    tern_term_node first[] = {
        {.kind = TERN_KIND_NOTHING},
        {.kind = TERN_KIND_EMPTY, .flags = TERN_TERM_NULLABLE},
        {.kind = TERN_KIND_NOT, .flags = TERN_TERM_NULLABLE},
        {.kind = TERN_KIND_SET, .a = 257},
    };
    for (size_t i = 0; i < 4; i++) tern_term_intern(t, &first[i], i < 2 ? &none : &all);
    (void)TERN_TERMS_RESERVE(t, &t->stack, &t->stack_capacity, 0,
                             1); // empty lists point into it, too
    return tern_terms_check(t, err);
}

void tern_terms_close(tern_terms *t) {
    for (size_t i = 0; i < t->n_rows; i++) tern_free(t->rows[i]);
    tern_free(t->rows);
    tern_free(t->nodes);
    tern_free(t->slots);
    tern_free(t->sets);
    tern_free(t->set_slots);
    tern_free(t->lists);
    tern_free(t->pool);
    tern_free(t->stack);
    tern_free(t->relaxed);
    for (size_t i = 0; i < t->n_properties; i++) tern_codes_free(&t->properties[i].codes);
    tern_free(t->properties);
    *t = (tern_terms){0};
}

tern_status tern_terms_check(const tern_terms *t, tern_error *err) {
    if (!t->failed) return TERN_OK;
    switch (t->fault) {
    case TERN_TERMS_FINE:
    case TERN_TERMS_NO_MEMORY: break;
    case TERN_TERMS_TOO_LARGE:
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the grammar takes more than %zu MB: it is too complicated",
                         t->bytes_max >> 20);
    case TERN_TERMS_TOO_DEEP:
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the grammar's parts are nested more than %d deep", TERN_TERM_DEPTH_MAX);
    case TERN_TERMS_TOO_LONG:
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "the grammar takes too long: it is too complicated");
    case TERN_TERMS_STOPPED:
        return tern_fail(err, TERN_ERR_CANCELLED, "the grammar was given up by the caller");
    }
    return tern_fail_memory(err, t->bytes);
}

tern_term tern_term_set(tern_terms *t, tern_byteset s) {
    if (tern_byteset_is_empty(&s)) return TERN_TERM_NOTHING;
    const tern_term_node n = {.kind = TERN_KIND_SET, .a = intern_set(t, &s)};
    return tern_term_intern(t, &n, &s);
}
