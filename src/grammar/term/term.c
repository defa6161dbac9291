// Constructors of terms: each expression is made once.
//
// They apply the laws that keep the number of derivatives finite (union and intersection have no
// order and no duplicates), and laws that keep it small.
#include "grammar/term/term.h"

#include <stdlib.h>
#include <string.h>

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
    if (!TERN_TERMS_RESERVE(t, &t->pool, &t->pool_capacity, t->n_pool, n)) return TERN_TERM_NOTHING;
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
    if (!TERN_TERMS_RESERVE(t, &t->stack, &t->stack_capacity, t->n_stack, 1)) return false;
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
    if (!TERN_TERMS_RESERVE(t, &t->lists, &t->lists_capacity, t->n_lists, n))
        return TERN_TERM_NOTHING;
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
