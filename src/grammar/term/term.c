// Constructors of terms: each expression is made once.
//
// They apply the laws that keep the number of derivatives finite (union and intersection have no
// order and no duplicates), and laws that keep it small.
#include "grammar/term/term.h"

#include <stdlib.h>
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

// Room for one more of an array, counted.
#define RESERVE(t, array, capacity, n, more)                                                       \
    reserve(t, (void **)(array), capacity, n, more, sizeof **(array))
static bool reserve(tern_terms *t, void **array, size_t *capacity, size_t n, size_t more,
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
    if (!RESERVE(t, &t->sets, &t->sets_capacity, t->n_sets, 1)) return 0;
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
    if (!RESERVE(t, &t->nodes, &t->nodes_capacity, t->n_nodes, 1)) return TERN_TERM_NOTHING;
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
    (void)RESERVE(t, &t->stack, &t->stack_capacity, 0, 1); // empty lists point into it, too
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

// ---- Small ones ---------------------------------------------------------------------------------

tern_term tern_term_set(tern_terms *t, tern_byteset s) {
    if (tern_byteset_is_empty(&s)) return TERN_TERM_NOTHING;
    const tern_term_node n = {.kind = TERN_KIND_SET, .a = intern_set(t, &s)};
    return tern_term_intern(t, &n, &s);
}

tern_term tern_term_byte(tern_terms *t, unsigned byte) {
    return tern_term_set(t, tern_byteset_range(byte, byte));
}

// n bytes at pool + at.
static tern_term text_at(tern_terms *t, size_t at, size_t n) {
    unsigned byte = (unsigned char)t->pool[at];
    if (n == 1) return tern_term_byte(t, byte);
    const tern_byteset first = tern_byteset_range(byte, byte);
    const tern_term_node node = {.kind = TERN_KIND_TEXT, .a = (uint32_t)at, .b = (uint32_t)n};
    return tern_term_intern(t, &node, &first);
}

// Bytes of the pool that are searched for a text: the parts of characters, which many terms have,
// are made first.
#define SEARCHED 4096

tern_term tern_term_text(tern_terms *t, const void *bytes, size_t n) {
    if (n == 0) return TERN_TERM_EMPTY;
    if (n >= UINT32_MAX - t->n_pool) return tern_terms_fail(t, TERN_TERMS_TOO_LARGE);
    // Equal texts become one term if the earlier one is found quickly.
    const size_t n_seen = t->n_pool < SEARCHED ? t->n_pool : SEARCHED;
    const char *hit = n_seen && n < 64 ? memmem(t->pool, n_seen, bytes, n) : NULL;
    if (hit) return text_at(t, (size_t)(hit - t->pool), n);
    if (!RESERVE(t, &t->pool, &t->pool_capacity, t->n_pool, n)) return TERN_TERM_NOTHING;
    memcpy(t->pool + t->n_pool, bytes, n);
    t->n_pool += n;
    return text_at(t, t->n_pool - n, n);
}

tern_term tern_term_text_rest(tern_terms *t, tern_term text) {
    return text_at(t, t->nodes[text].a + 1, t->nodes[text].b - 1);
}

// `a` is not a CAT, and neither is NOTHING or EMPTY.
static tern_term cat_one(tern_terms *t, tern_term a, tern_term b) {
    const tern_term_node *n = &t->nodes[a], *m = &t->nodes[b];
    tern_byteset first = *tern_term_first(t, a);
    bool nullable = n->flags & TERN_TERM_NULLABLE;
    for (int i = 0; i < 4 && nullable; i++) first.w[i] |= tern_term_first(t, b)->w[i];
    const tern_term_node node = {.kind = TERN_KIND_CAT,
                                 .flags = (uint8_t)((n->flags & m->flags & TERN_TERM_NULLABLE) |
                                                    ((n->flags | m->flags) & TERN_TERM_HARD)),
                                 .a = a,
                                 .b = b};
    return tern_term_intern(t, &node, &first);
}

static bool push(tern_terms *t, tern_term a);

tern_term tern_term_cat(tern_terms *t, tern_term a, tern_term b) {
    const size_t from = t->n_stack;
    if (!a || !b) return TERN_TERM_NOTHING;
    if (a == TERN_TERM_EMPTY) return b;
    if (b == TERN_TERM_EMPTY) return a;
    // The first part of `a` is put in front last.
    for (; t->nodes[a].kind == TERN_KIND_CAT; a = t->nodes[a].b)
        if (!push(t, t->nodes[a].a)) b = TERN_TERM_NOTHING;
    if (b) b = cat_one(t, a, b);
    while (t->n_stack > from && b) b = cat_one(t, t->stack[--t->n_stack], b);
    t->n_stack = from;
    return b;
}

tern_term tern_term_repeat(tern_terms *t, tern_term a, uint32_t min, uint32_t max) {
    const tern_term_node *n = &t->nodes[a];
    if (min > max) return TERN_TERM_NOTHING;
    if (a == TERN_TERM_NOTHING) return min ? TERN_TERM_NOTHING : TERN_TERM_EMPTY;
    if (max == 0 || a == TERN_TERM_EMPTY) return TERN_TERM_EMPTY;
    if (n->flags & TERN_TERM_NULLABLE) min = 0;
    if (max == 1 && min == 1) return a;
    if (a == TERN_TERM_ALL || (a == TERN_TERM_ANY && min == 0 && max == TERN_NO_LIMIT))
        return TERN_TERM_ALL;
    if (n->kind == TERN_KIND_REPEAT && n->b == 0 && n->c == TERN_NO_LIMIT) return a;
    if (max == 1) return tern_term_or(t, TERN_TERM_EMPTY, a);
    const tern_byteset first = *tern_term_first(t, a);
    const tern_term_node node = {
        .kind = TERN_KIND_REPEAT,
        .flags = (uint8_t)((min == 0 ? TERN_TERM_NULLABLE : 0) | (n->flags & TERN_TERM_HARD)),
        .a = a,
        .b = min,
        .c = max};
    return tern_term_intern(t, &node, &first);
}

tern_term tern_term_not(tern_terms *t, tern_term a) {
    const tern_term_node *n = &t->nodes[a];
    if (n->kind == TERN_KIND_NOT) return n->a;
    const tern_byteset first = t->sets[257];
    const tern_term_node node = {.kind = TERN_KIND_NOT,
                                 .flags =
                                     (uint8_t)(TERN_TERM_HARD | (~n->flags & TERN_TERM_NULLABLE)),
                                 .a = a};
    return tern_term_intern(t, &node, &first);
}

// ---- Unions and intersections -------------------------------------------------------------------

static bool push(tern_terms *t, tern_term a) {
    if (!tern_terms_work(t, 1)) return false;
    if (!RESERVE(t, &t->stack, &t->stack_capacity, t->n_stack, 1)) return false;
    t->stack[t->n_stack++] = a;
    return true;
}

// Puts the terms of a list on the stack; a list of the same kind is replaced by its terms.
static bool push_flat(tern_terms *t, unsigned kind, const tern_term *terms, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const tern_term_node node = t->nodes[terms[i]];
        if (node.kind != kind) {
            if (!push(t, terms[i])) return false;
            continue;
        }
        for (size_t j = 0; j < node.b; j++)
            if (!push(t, t->lists[node.a + j])) return false;
    }
    return true;
}

static int rising(const void *a, const void *b) {
    tern_term x = *(const tern_term *)a, y = *(const tern_term *)b;
    return x < y ? -1 : x > y;
}

// Sorts the list on the stack from `from` on, and keeps each term once.
static void sort_unique(tern_terms *t, size_t from) {
    size_t n = t->n_stack - from, n_rising = 1, m = 0;
    if (n < 2) return;
    tern_term *terms = t->stack + from;
    while (n_rising < n && terms[n_rising - 1] < terms[n_rising]) n_rising++;
    if (n_rising == n) return; // mostly
    qsort(terms, n, sizeof *terms, rising);
    for (size_t i = 0; i < n; i++)
        if (m == 0 || terms[m - 1] != terms[i]) terms[m++] = terms[i];
    t->n_stack = from + m;
}

// The term of the list on the stack from `from` on.
static tern_term list_term(tern_terms *t, tern_term_kind kind, size_t from) {
    const tern_term *terms = t->stack + from;
    size_t n = t->n_stack - from;
    if (n == 1) return terms[0];
    bool both = kind == TERN_KIND_BOTH, nullable = both;
    tern_byteset first = t->sets[both ? 257 : 0];
    uint8_t hard = both ? TERN_TERM_HARD : 0;
    for (size_t i = 0; i < n; i++) {
        const tern_term_node *node = &t->nodes[terms[i]];
        const tern_byteset *s = &t->sets[node->first];
        for (int k = 0; k < 4; k++) first.w[k] = both ? first.w[k] & s->w[k] : first.w[k] | s->w[k];
        hard |= node->flags & TERN_TERM_HARD;
        if (both)
            nullable = nullable && (node->flags & TERN_TERM_NULLABLE);
        else
            nullable = nullable || (node->flags & TERN_TERM_NULLABLE);
    }
    if (both && tern_byteset_is_empty(&first))
        return nullable ? TERN_TERM_EMPTY : TERN_TERM_NOTHING;
    if (!RESERVE(t, &t->lists, &t->lists_capacity, t->n_lists, n)) return TERN_TERM_NOTHING;
    memcpy(t->lists + t->n_lists, t->stack + from, n * sizeof *t->lists);
    const tern_term_node node = {.kind = (uint8_t)kind,
                                 .flags = (uint8_t)(hard | (nullable ? TERN_TERM_NULLABLE : 0)),
                                 .a = (uint32_t)t->n_lists,
                                 .b = (uint32_t)n};
    t->n_lists += n;
    return tern_term_intern(t, &node, &first);
}

// At most this many parts in front of repeats are compared.
#define HEADS_MAX 32

// If x and y are repeats of the same term, with the same parts in front and behind, and their
// ranges of counts overlap or touch: one repeat with both ranges. Without this, counting states
// multiply, as in (a|aa){0,9}.
static tern_term join_repeats(tern_terms *t, tern_term x, tern_term y) {
    tern_term rest = TERN_TERM_EMPTY, heads[HEADS_MAX];
    size_t n = 0;
    for (; t->nodes[x].kind == TERN_KIND_CAT && t->nodes[y].kind == TERN_KIND_CAT; n++) {
        if (t->nodes[x].a != t->nodes[y].a) {
            if (t->nodes[x].b != t->nodes[y].b) return TERN_TERM_NOTHING;
            rest = t->nodes[x].b;
            x = t->nodes[x].a;
            y = t->nodes[y].a;
            break;
        }
        if (n == HEADS_MAX) return TERN_TERM_NOTHING;
        heads[n] = t->nodes[x].a; // the repeats come later
        x = t->nodes[x].b;
        y = t->nodes[y].b;
    }
    const tern_term_node *p = &t->nodes[x], *q = &t->nodes[y];
    if (p->kind != TERN_KIND_REPEAT || q->kind != TERN_KIND_REPEAT || p->a != q->a)
        return TERN_TERM_NOTHING;
    uint32_t low = p->b < q->b ? p->b : q->b, high = p->c > q->c ? p->c : q->c;
    uint32_t first_end = p->b <= q->b ? p->c : q->c, second = p->b > q->b ? p->b : q->b;
    if (first_end < high && first_end + 1 < second) return TERN_TERM_NOTHING;
    tern_term joined = tern_term_cat(t, tern_term_repeat(t, p->a, low, high), rest);
    while (n > 0) joined = tern_term_cat(t, heads[--n], joined);
    return joined;
}

// Joins repeats in a list on the stack. Lists stay short if repeats are joined each time; a long
// one is not searched.
static void join_all(tern_terms *t, size_t from) {
    if (t->n_stack - from > 16) return;
    for (size_t i = from; i < t->n_stack; i++)
        for (size_t k = i + 1; k < t->n_stack; k++) {
            tern_term joined = join_repeats(t, t->stack[i], t->stack[k]);
            if (!joined) continue;
            t->stack[i] = joined;
            t->stack[k] = t->stack[--t->n_stack];
            k = i;
        }
}

// Merges the sets of the list into one; drops EMPTY if another term has the empty text.
static bool tidy_union(tern_terms *t, size_t from) {
    tern_byteset sum = {{0}};
    size_t to = from, n_sets = 0;
    bool has_empty = false, is_nullable = false;
    for (size_t i = from; i < t->n_stack; i++) {
        tern_term a = t->stack[i];
        const tern_term_node *node = &t->nodes[a];
        if (a == TERN_TERM_ALL) {
            t->stack[from] = a;
            t->n_stack = from + 1;
            return true;
        }
        if (node->kind == TERN_KIND_NOTHING) continue;
        if (node->kind == TERN_KIND_EMPTY) {
            has_empty = true;
            continue;
        }
        is_nullable = is_nullable || (node->flags & TERN_TERM_NULLABLE);
        if (node->kind == TERN_KIND_SET) {
            for (int k = 0; k < 4; k++) sum.w[k] |= t->sets[node->a].w[k];
            if (n_sets++) continue;
        }
        t->stack[to++] = a;
    }
    t->n_stack = to;
    if (n_sets > 1) {
        tern_term joined = tern_term_set(t, sum);
        for (size_t i = from; i < to; i++)
            if (t->nodes[t->stack[i]].kind == TERN_KIND_SET) t->stack[i] = joined;
    }
    if (has_empty && !is_nullable && !push(t, TERN_TERM_EMPTY)) return false;
    return !t->failed;
}

// Shorter lists are not searched; a search ends after this many parts that are not in the list.
#define ABSORB_MIN  8
#define ABSORB_MISS 16
#define GONE        ((uint32_t)1 << 31) // in a list: no term has this bit

static uint32_t *find_in(uint32_t *terms, size_t n, tern_term a) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((terms[middle] & ~GONE) < a)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && (terms[low] & ~GONE) == a ? terms + low : NULL;
}

// If a term's first part may be empty, its texts include those of the rest, which is dropped from
// the list. Without this, a?a?a? ... would have as many terms after each character as parts are
// left. The list is in rising order; the terms made last, which are the longer ones, come first
// here.
static void absorb(tern_terms *t, size_t from) {
    uint32_t *terms = t->stack + from;
    const size_t n = t->n_stack - from;
    size_t m = 0;
    if (n < ABSORB_MIN) return;
    for (size_t i = n; i-- > 0;) {
        if (terms[i] & GONE) continue;
        const tern_term_node *node = &t->nodes[terms[i]];
        for (unsigned n_missed = 0; n_missed < ABSORB_MISS && node->kind == TERN_KIND_CAT &&
                                    tern_term_is_nullable(t, node->a) && tern_terms_work(t, 1);) {
            uint32_t *rest = find_in(terms, n, node->b);
            n_missed = rest ? 0 : n_missed + 1;
            if (rest) *rest |= GONE;
            node = &t->nodes[node->b];
        }
    }
    for (size_t i = 0; i < n; i++)
        if (!(terms[i] & GONE)) terms[m++] = terms[i];
    t->n_stack = from + m;
}

tern_term tern_term_either(tern_terms *t, const tern_term *terms, size_t n) {
    size_t from = t->n_stack;
    tern_term result = TERN_TERM_NOTHING;
    if (push_flat(t, TERN_KIND_EITHER, terms, n) && tidy_union(t, from)) {
        sort_unique(t, from);
        absorb(t, from);
        join_all(t, from);
        sort_unique(t, from);
        if (t->n_stack > from) result = list_term(t, TERN_KIND_EITHER, from);
    }
    t->n_stack = from;
    return result;
}

tern_term tern_term_or(tern_terms *t, tern_term a, tern_term b) {
    if (!a || a == b) return b;
    if (!b) return a;
    return tern_term_either(t, (const tern_term[]){a, b}, 2);
}

// Drops terms that change nothing; false: the intersection is empty. If one term is a text, it is
// checked against the others at once.
static bool tidy_intersection(tern_terms *t, size_t from) {
    size_t to = from;
    tern_term text = TERN_TERM_NOTHING;
    for (size_t i = from; i < t->n_stack; i++) {
        tern_term a = t->stack[i];
        if (a == TERN_TERM_NOTHING) return false;
        if (t->nodes[a].kind == TERN_KIND_TEXT) text = a;
        if (a != TERN_TERM_ALL) t->stack[to++] = a;
    }
    t->n_stack = to;
    if (!text) return true;
    const tern_term_node node = t->nodes[text];
    for (size_t i = from; i < t->n_stack; i++) {
        if (t->stack[i] == text) continue;
        tern_term rest = t->stack[i];
        tern_byteset same;
        for (size_t k = 0; k < node.b && rest; k++)
            rest = tern_term_derive(t, rest, (unsigned char)t->pool[node.a + k], &same);
        if (!tern_term_is_nullable(t, rest)) return false;
    }
    t->stack[from] = text;
    t->n_stack = from + 1;
    return true;
}

tern_term tern_term_both(tern_terms *t, const tern_term *terms, size_t n) {
    size_t from = t->n_stack;
    tern_term result = TERN_TERM_NOTHING;
    if (push_flat(t, TERN_KIND_BOTH, terms, n) && tidy_intersection(t, from)) {
        sort_unique(t, from);
        result = t->n_stack > from ? list_term(t, TERN_KIND_BOTH, from) : TERN_TERM_ALL;
    }
    t->n_stack = from;
    return result;
}

tern_term tern_term_and(tern_terms *t, tern_term a, tern_term b) {
    return tern_term_both(t, (const tern_term[]){a, b}, 2);
}
