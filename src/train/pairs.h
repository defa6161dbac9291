// Private to training: pairs of texts as token ids.
#ifndef TERN_TRAIN_PAIRS_H
#define TERN_TRAIN_PAIRS_H

#include "input/input.h"

enum { TERN_NEGATIVES_MAX = 32 };

typedef struct tern_pair_text {
    size_t first; // in the ids
    int32_t n;
    uint64_t key; // equal if the ids are equal
} tern_pair_text;

typedef struct tern_pairs {
    tern_ids ids;          // of all texts, concatenated
    tern_pair_text *texts; // for each pair: query, positive, negatives
    size_t n_texts;
    size_t *firsts; // [n + 1] index of each pair's query
    size_t n;
    int32_t n_negatives_most; // of a pair
    size_t n_cut;             // texts that were longer than `length`
    uint32_t checksum;        // CRC-32 of the ids
} tern_pairs;

// A .jsonl file, also with .gz, or a folder of such. Lines without a query are skipped. length:
// maximum tokens of a text; longer texts keep their first tokens.
tern_status tern_pairs_open(tern_pairs **out, const char *path, const tern_tokenizer *tokenizer,
                            int32_t length, tern_error *err);
void tern_pairs_close(tern_pairs *p); // NULL is allowed

#endif
