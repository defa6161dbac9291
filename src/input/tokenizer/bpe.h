// Byte-pair encoding: a word starts as a sequence of symbols (token ids), and the best pair of
// neighbours is replaced by its merged token until no pair can be merged. The best pair has the
// smallest order; among equal ones it is the leftmost.
//
// Neighbours are kept in a linked list and candidates in a heap: n log n for n symbols, so a "word"
// of a megabyte takes little longer than a megabyte of words.
#ifndef TERN_INPUT_TOKENIZER_BPE_H
#define TERN_INPUT_TOKENIZER_BPE_H

#include "base/status.h"

// ---- Merges: (left id, right id) -> order, merged id --------------------------------------------

typedef struct tern_merge {
    uint32_t left, right; // ids; left == UINT32_MAX: a free slot
    uint32_t order;       // smaller merges first
    int32_t id;
} tern_merge;

// A hash table, open addressing, at most 3/4 full.
typedef struct tern_merges {
    tern_merge *slots;
    size_t n_slots, n; // n_slots is a power of two
} tern_merges;

tern_status tern_merges_init(tern_merges *m, size_t n_merges, tern_error *err);
void tern_merges_deinit(tern_merges *m);
// Adds one of at most n_merges; a pair that is there already keeps its first entry. False: the
// table is hostile (too many pairs collide).
bool tern_merges_add(tern_merges *m, int32_t left, int32_t right, uint32_t order, int32_t id);
// The slot where the search for a pair begins.
const tern_merge *tern_merges_slot(const tern_merges *m, int32_t left, int32_t right);
const tern_merge *tern_merges_find(const tern_merges *m, int32_t left, int32_t right); // or NULL

// ---- Words --------------------------------------------------------------------------------------

typedef struct tern_symbol {
    uint32_t at, n;     // bytes of the word; n == 0: merged into another one
    int32_t id;         // -1: not a token; its text can still be part of one
    int32_t prev, next; // indices, -1: none
} tern_symbol;

typedef struct tern_merge_candidate { // a pair that could be merged
    uint64_t order;                   // order << 32 | index of the left symbol
    uint32_t n;                       // bytes of both; otherwise the pair is out of date
    int32_t id;
} tern_merge_candidate;

// Scratch for one thread; zero-initialise, free with tern_bpe_free, reusable.
typedef struct tern_bpe {
    tern_symbol *symbols;
    tern_merge_candidate *heap;
    size_t n_symbols, symbols_capacity, n_heap, heap_capacity;
} tern_bpe;
void tern_bpe_free(tern_bpe *b);

// Appends a symbol to the word; set n_symbols to 0 to begin one. False: out of memory.
bool tern_bpe_push(tern_bpe *b, uint32_t at, uint32_t n, int32_t id);

// Whether a pair of symbols can be merged; *order, *id: of the merge.
typedef bool (*tern_bpe_pair_fn)(const void *user, const tern_symbol *left,
                                 const tern_symbol *right, uint32_t *order, int32_t *id);
// Merges; afterwards the symbols from index 0 along `next` are the word's tokens. False: memory.
bool tern_bpe_run(tern_bpe *b, tern_bpe_pair_fn pair, const void *user);

#endif
