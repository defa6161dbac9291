// Derivatives, and the rows that remember them.
#include <string.h>
#include "base/alloc.h"
#include "grammar/term/term.h"

// A union of at least this many terms has a row if it is repeated.
#define WIDE 4

static void keep(tern_byteset *same, const tern_byteset *s, bool inside) {
    for (int i = 0; i < 4; i++) same->w[i] &= inside ? s->w[i] : ~s->w[i];
}

// ---- Rows ---------------------------------------------------------------------------------------

static bool is_single(const tern_term_node *n) { return n->first >= 1 && n->first <= 256; }

// A row for at most this many bytes has steps for these only.
#define NARROW 8

// A union of many terms, as for characters. If it is repeated, its row has, after the steps, for
// each byte the term of the set of bytes that take the same step.
static bool is_wide(const tern_terms *t, tern_term a) {
    const tern_term_node *n = &t->nodes[a];
    return n->kind == TERN_KIND_EITHER && n->b >= WIDE && !(n->flags & TERN_TERM_HARD) &&
           tern_byteset_count(&t->sets[n->first]) > NARROW;
}

static uint32_t *row_of(tern_terms *t, tern_term a) {
    tern_term_node *n = &t->nodes[a];
    if (n->row) return t->rows[n->row - 1];
    const unsigned n_ways = tern_byteset_count(&t->sets[n->first]);
    const size_t n_steps = n_ways <= NARROW ? n_ways : is_wide(t, a) ? 512 : 256;
    size_t had = t->rows_capacity;
    uint32_t *row = NULL;
    if ((!t->bytes_max || t->bytes < t->bytes_max) &&
        tern_array_reserve(TERN_MEM_SESSION, &t->rows, &t->rows_capacity, t->n_rows, 1) == 0)
        row = tern_alloc(TERN_MEM_SESSION, n_steps * sizeof *row);
    if (!row) {
        const bool is_large = t->bytes_max && t->bytes >= t->bytes_max;
        tern_terms_fail(t, is_large ? TERN_TERMS_TOO_LARGE : TERN_TERMS_NO_MEMORY);
        return NULL;
    }
    memset(row, 0xFF, n_steps * sizeof *row);
    t->bytes += n_steps * sizeof *row + (t->rows_capacity - had) * sizeof *t->rows;
    t->rows[t->n_rows++] = row;
    n->row = (uint32_t)t->n_rows;
    if (n_steps <= NARROW) n->flags |= TERN_TERM_NARROW;
    return row;
}

// The step of a byte, which must be in the term's first set.
static uint32_t *step_at(const tern_terms *t, tern_term a, uint32_t *row, unsigned byte) {
    const tern_term_node *n = &t->nodes[a];
    return row + (n->flags & TERN_TERM_NARROW ? tern_byteset_rank(&t->sets[n->first], byte) : byte);
}

// Writes a step for all bytes of `same`.
static void fill_row(const tern_terms *t, tern_term a, uint32_t *row, const tern_byteset *same,
                     uint32_t to) {
    const tern_byteset first = *tern_term_first(t, a);
    const bool narrow = t->nodes[a].flags & TERN_TERM_NARROW;
    unsigned rank = 0;
    for (unsigned i = 0; i < 4; i++)
        for (uint64_t w = narrow ? first.w[i] : same->w[i]; w; w &= w - 1, rank++) {
            const unsigned byte = i * 64 + (unsigned)__builtin_ctzll(w);
            if (tern_byteset_has(same, byte)) row[narrow ? rank : byte] = to;
        }
}

// ---- Derivatives --------------------------------------------------------------------------------

static tern_term derive(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same);

static bool push(tern_terms *t, tern_term a) {
    if (tern_array_reserve(TERN_MEM_SESSION, &t->stack, &t->stack_capacity, t->n_stack, 1) != 0) {
        tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
        return false;
    }
    t->stack[t->n_stack++] = a;
    return true;
}

// Pops the terms on the stack from `from` on, and returns their union or intersection.
static tern_term pop_list(tern_terms *t, bool both, size_t from) {
    const size_t n = t->n_stack - from;
    tern_term few[16], *parts = few, result = TERN_TERM_NOTHING;
    // The constructors use the same stack, above these terms, and may move it: they get a copy.
    if (n > 16) parts = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *parts);
    if (!parts) {
        tern_terms_fail(t, TERN_TERMS_NO_MEMORY);
    } else if (n) {
        memcpy(parts, t->stack + from, n * sizeof *parts);
        result = both ? tern_term_both(t, parts, n) : tern_term_either(t, parts, n);
    }
    if (parts != few) tern_free(parts);
    t->n_stack = from;
    return result;
}

static tern_term derive_list(tern_terms *t, const tern_term_node *n, unsigned byte,
                             tern_byteset *same) {
    const size_t from = t->n_stack;
    const bool both = n->kind == TERN_KIND_BOTH;
    for (size_t i = 0; i < n->b; i++) {
        tern_term d = derive(t, t->lists[n->a + i], byte, same);
        if (!d && !both) continue;
        if (!d || !push(t, d)) {
            t->n_stack = from;
            return TERN_TERM_NOTHING;
        }
    }
    return pop_list(t, both, from);
}

// The derivative of a, then b; if a may be empty, also that of b, and so on.
static tern_term derive_cat(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same) {
    const size_t from = t->n_stack;
    for (;;) {
        const tern_term_node n = t->nodes[a];
        const bool is_cat = n.kind == TERN_KIND_CAT && tern_byteset_has(&t->sets[n.first], byte);
        tern_term d = derive(t, is_cat ? n.a : a, byte, same);
        if (is_cat) d = tern_term_cat(t, d, n.b);
        const bool is_last = !is_cat || !tern_term_is_nullable(t, n.a) || t->failed;
        if (is_last && t->n_stack == from) return d;
        if (d && !push(t, d)) break;
        if (is_last) break;
        a = n.b;
    }
    return pop_list(t, false, from);
}

// The same of a wide union.
static tern_term derive_wide(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same) {
    if (!tern_byteset_has(tern_term_first(t, a), byte)) return derive(t, a, byte, same);
    uint32_t *row = row_of(t, a);
    if (!row) return TERN_TERM_NOTHING;
    uint32_t *alikes = row + 256;
    if (alikes[byte] == TERN_STEP_UNKNOWN) {
        const tern_term_node n = t->nodes[a];
        tern_byteset alike = t->sets[257];
        const tern_term to = derive_list(t, &n, byte, &alike), bytes = tern_term_set(t, alike);
        if (t->failed) return TERN_TERM_NOTHING;
        fill_row(t, a, row, &alike, to);
        fill_row(t, a, alikes, &alike, bytes);
    }
    keep(same, &t->sets[t->nodes[alikes[byte]].a], true);
    return row[byte];
}

static tern_term derive(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same) {
    t->effort++;
    if (!tern_terms_work(t, 1)) return TERN_TERM_NOTHING;
    const tern_byteset *begins = tern_term_first(t, a);
    if (!tern_byteset_has(begins, byte)) {
        keep(same, begins, false);
        return TERN_TERM_NOTHING;
    }
    // Copies, as new terms may move both.
    const tern_term_node n = t->nodes[a];
    const tern_byteset first = *begins;
    switch ((tern_term_kind)n.kind) {
    case TERN_KIND_NOTHING:
    case TERN_KIND_EMPTY: break;
    case TERN_KIND_SET: keep(same, &first, true); return TERN_TERM_EMPTY;
    case TERN_KIND_TEXT: keep(same, &first, true); return tern_term_text_rest(t, a);
    case TERN_KIND_CAT: return derive_cat(t, a, byte, same);
    case TERN_KIND_EITHER:
    case TERN_KIND_BOTH: return derive_list(t, &n, byte, same);
    case TERN_KIND_NOT: return tern_term_not(t, derive(t, n.a, byte, same));
    case TERN_KIND_REPEAT: {
        uint32_t min = n.b ? n.b - 1 : 0, max = n.c == TERN_NO_LIMIT ? n.c : n.c - 1;
        tern_term one =
            is_wide(t, n.a) ? derive_wide(t, n.a, byte, same) : derive(t, n.a, byte, same);
        return tern_term_cat(t, one, tern_term_repeat(t, n.a, min, max));
    }
    case TERN_KIND_MULTIPLE: return tern_term_multiple_derive(t, a, byte, same);
    }
    return TERN_TERM_NOTHING;
}

tern_term tern_term_derive(tern_terms *t, tern_term a, unsigned byte, tern_byteset *same) {
    *same = t->sets[257];
    return derive(t, a, byte, same);
}

// The derivative, marked as unchecked unless it is known whether it is dead.
static uint32_t raw_step(tern_terms *t, tern_term a, unsigned byte) {
    if (is_single(&t->nodes[a]) && t->nodes[a].row) return t->nodes[a].row - 1;
    uint32_t *row = is_single(&t->nodes[a]) ? NULL : row_of(t, a);
    if (t->failed) return TERN_TERM_NOTHING;
    if (row && *step_at(t, a, row, byte) != TERN_STEP_UNKNOWN) return *step_at(t, a, row, byte);
    tern_byteset same;
    uint32_t to = tern_term_derive(t, a, byte, &same);
    if (t->failed) return TERN_TERM_NOTHING;
    const tern_term_node *n = &t->nodes[to];
    if (n->flags & TERN_TERM_HARD && !(n->flags & TERN_TERM_ALIVE)) to |= TERN_STEP_UNCHECKED;
    if (!row) {
        t->nodes[a].row = to + 1;
        return to;
    }
    fill_row(t, a, row, &same, to);
    return to;
}

tern_term tern_term_step_slowly(tern_terms *t, tern_term a, unsigned byte) {
    uint32_t to = raw_step(t, a, byte);
    if (!(to & TERN_STEP_UNCHECKED) || t->failed) return t->failed ? TERN_TERM_NOTHING : to;
    to &= ~TERN_STEP_UNCHECKED;
    if (!tern_term_is_alive(t, to)) to = TERN_TERM_NOTHING;
    if (t->failed) return TERN_TERM_NOTHING;
    if (is_single(&t->nodes[a])) {
        t->nodes[a].row = to + 1;
        return to;
    }
    uint32_t *row = t->rows[t->nodes[a].row - 1];
    const uint32_t old = *step_at(t, a, row, byte);
    const unsigned n =
        t->nodes[a].flags & TERN_TERM_NARROW ? tern_byteset_count(tern_term_first(t, a)) : 256;
    for (unsigned i = 0; i < n; i++)
        if (row[i] == old) row[i] = to;
    return to;
}

bool tern_term_matches(tern_terms *t, tern_term a, const char *text, size_t n) {
    for (size_t i = 0; i < n && a; i++) a = tern_term_step(t, a, (unsigned char)text[i]);
    return tern_term_is_nullable(t, a);
}
