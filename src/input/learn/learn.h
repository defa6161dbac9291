// Learning a byte-level BPE vocabulary from text (Sennrich, Haddow, Birch 2016): shared by its
// files. The public interface is tern_bpe_trainer in input.h.
//
//     text ─ splitter ─→ words, counted (learn_words.c) ─ merges (learn_merges.c) ─→ vocabulary
//          ─→ tokenizer.json (tok_write.c)
//
// A merge never crosses the end of a word, so the counts of its words are enough to describe a text
// of any size.
#ifndef TERN_INPUT_LEARN_LEARN_H
#define TERN_INPUT_LEARN_LEARN_H

#include "input/input.h"
#include "input/tokenizer/tok.h"

// ---- Words and how often they come --------------------------------------------------------------

typedef struct tern_word {
    uint64_t hash, count;
    size_t at; // of tern_words.text
    uint32_t n;
} tern_word;

typedef struct tern_words {
    char *text;
    tern_word *list;
    uint32_t *slots; // position + 1, 0: free; open addressing, at most half full
    size_t n, capacity, n_text, text_capacity, n_slots;
    size_t n_bytes_max;                       // for all of this, roughly; 0: no limit
    uint64_t n_seen, n_forgotten, n_too_long; // words of the text
} tern_words;

tern_status tern_words_add(tern_words *w, const char *word, size_t n, tern_error *err);
void tern_words_free(tern_words *w);

// ---- Tokens and merges --------------------------------------------------------------------------

// Tokens: the special ones, the 256 bytes in the order of GPT-2's alphabet, then merges, until
// there are n_vocab or no pair occurs min_count times. The most frequent pair is merged first;
// among equal ones the pair with the smaller ids. Consumes the words.
tern_status tern_learn_merges(tern_learned *out, tern_words *words, const tern_bpe_desc *desc,
                              tern_error *err);
void tern_learned_free(tern_learned *l);

#endif
