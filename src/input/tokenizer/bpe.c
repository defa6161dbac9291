#include "input/tokenizer/bpe.h"

#include "base/alloc.h"
#include "base/cancel.h"

// ---- Merges -------------------------------------------------------------------------------------

#define FREE_SLOT  UINT32_MAX
#define PROBES_MAX 1024 // only a hostile table needs more

static size_t slot_of(const tern_merges *m, uint32_t left, uint32_t right) {
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (size_t)(h ^ h >> 32) & (m->n_slots - 1);
}

tern_status tern_merges_init(tern_merges *m, size_t n_merges, tern_error *err) {
    *m = (tern_merges){.n_slots = 16};
    while (m->n_slots - m->n_slots / 4 < n_merges) m->n_slots *= 2;
    m->slots = tern_alloc_array(TERN_MEM_TOKENIZER, m->n_slots, sizeof *m->slots);
    if (!m->slots) return tern_fail_memory(err, m->n_slots * sizeof *m->slots);
    for (size_t i = 0; i < m->n_slots; i++) m->slots[i].left = FREE_SLOT;
    return TERN_OK;
}

void tern_merges_deinit(tern_merges *m) {
    tern_free(m->slots);
    *m = (tern_merges){0};
}

bool tern_merges_add(tern_merges *m, int32_t left, int32_t right, uint32_t order, int32_t id) {
    uint32_t l = (uint32_t)left, r = (uint32_t)right;
    size_t i = slot_of(m, l, r);
    for (int probes = 0; m->slots[i].left != FREE_SLOT; probes++) {
        if (m->slots[i].left == l && m->slots[i].right == r) return true;
        if (probes == PROBES_MAX) return false;
        i = (i + 1) & (m->n_slots - 1);
    }
    m->slots[i] = (tern_merge){l, r, order, id};
    m->n++;
    return true;
}

const tern_merge *tern_merges_slot(const tern_merges *m, int32_t left, int32_t right) {
    return &m->slots[slot_of(m, (uint32_t)left, (uint32_t)right)];
}

const tern_merge *tern_merges_find(const tern_merges *m, int32_t left, int32_t right) {
    uint32_t l = (uint32_t)left, r = (uint32_t)right;
    if (m->n == 0) return NULL;
    for (size_t i = slot_of(m, l, r);; i = (i + 1) & (m->n_slots - 1)) {
        if (m->slots[i].left == l && m->slots[i].right == r) return &m->slots[i];
        if (m->slots[i].left == FREE_SLOT) return NULL;
    }
}

// ---- Words --------------------------------------------------------------------------------------

void tern_bpe_free(tern_bpe *b) {
    tern_free(b->symbols);
    tern_free(b->heap);
    *b = (tern_bpe){0};
}

bool tern_bpe_push(tern_bpe *b, uint32_t at, uint32_t n, int32_t id) {
    if (tern_array_reserve(TERN_MEM_MISC, &b->symbols, &b->symbols_capacity, b->n_symbols, 1) != 0)
        return false;
    int32_t index = (int32_t)b->n_symbols++;
    b->symbols[index] = (tern_symbol){at, n, id, index - 1, -1};
    if (index > 0) b->symbols[index - 1].next = index;
    return true;
}

// A binary heap with the smallest order on top.
static void sift_down(tern_merge_candidate *heap, size_t n, size_t i) {
    tern_merge_candidate moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= moving.order) break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void sift_up(tern_merge_candidate *heap, size_t i) {
    tern_merge_candidate moving = heap[i];
    for (size_t parent; i > 0; i = parent) {
        parent = (i - 1) / 2;
        if (heap[parent].order <= moving.order) break;
        heap[i] = heap[parent];
    }
    heap[i] = moving;
}

// Appends the pair (left, right) if it can be merged. False: out of memory.
static bool consider(tern_bpe *b, int32_t left, int32_t right, tern_bpe_pair_fn pair,
                     const void *user) {
    uint32_t order;
    int32_t id;
    if (left < 0 || right < 0) return true;
    const tern_symbol *l = &b->symbols[left], *r = &b->symbols[right];
    if (!pair(user, l, r, &order, &id)) return true;
    if (tern_array_reserve(TERN_MEM_MISC, &b->heap, &b->heap_capacity, b->n_heap, 1) != 0)
        return false;
    b->heap[b->n_heap++] =
        (tern_merge_candidate){(uint64_t)order << 32 | (uint32_t)left, l->n + r->n, id};
    return true;
}

#define LOOK_EACH 65536 // merges between two checks for cancellation

bool tern_bpe_run(tern_bpe *b, tern_bpe_pair_fn pair, const void *user) {
    b->n_heap = 0;
    for (size_t i = 1; i < b->n_symbols; i++)
        if (!consider(b, (int32_t)i - 1, (int32_t)i, pair, user)) return false;
    for (size_t i = b->n_heap / 2; i-- > 0;) sift_down(b->heap, b->n_heap, i);
    for (size_t n = 1; b->n_heap > 0; n++) {
        if (n % LOOK_EACH == 0 && tern_is_cancelled()) return false; // a word may be megabytes
        tern_merge_candidate best = b->heap[0];
        b->heap[0] = b->heap[--b->n_heap];
        if (b->n_heap > 1) sift_down(b->heap, b->n_heap, 0);
        int32_t at = (int32_t)(uint32_t)best.order;
        tern_symbol *left = &b->symbols[at];
        if (left->n == 0 || left->next < 0) continue;
        // Symbols only ever grow: if the two still have the same total size, they are the same two.
        tern_symbol *right = &b->symbols[left->next];
        if (left->n + right->n != best.n) continue;
        left->id = best.id;
        left->n = best.n;
        left->next = right->next;
        right->n = 0;
        if (left->next >= 0) b->symbols[left->next].prev = at;
        size_t n_before = b->n_heap;
        if (!consider(b, left->prev, at, pair, user)) return false;
        if (b->n_heap > n_before) sift_up(b->heap, n_before);
        n_before = b->n_heap;
        if (!consider(b, at, left->next, pair, user)) return false;
        if (b->n_heap > n_before) sift_up(b->heap, n_before);
    }
    return true;
}
