// Private to training: pairs of texts as token ids, for embedding models and for preferences.
#ifndef TERN_TRAIN_PAIRS_H
#define TERN_TRAIN_PAIRS_H

#include "input/input.h"

enum { TERN_NEGATIVES_MAX = 32 };

typedef struct tern_pair_text {
    size_t first; // in the ids
    int32_t n;
    int32_t n_prompt; // of an answer: the tokens before it, which are not scored; at least 1
    uint64_t key;     // equal if the ids are equal
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
    // Preferences are two texts each: the chosen answer and the rejected one. With labels: an
    // answer, and to the same prompt that of the line before, which tells how far the model has
    // drifted.
    uint8_t *labels;  // [n] 1: a good answer; NULL: there are none
    size_t n_without; // left out, since nothing of an answer is within `length`
} tern_pairs;

// A .jsonl file, also with .gz, or a folder of such. Lines without a query are skipped. length:
// maximum tokens of a text; longer texts keep their first tokens.
tern_status tern_pairs_open(tern_pairs **out, const char *path, const tern_tokenizer *tokenizer,
                            int32_t length, tern_error *err);
typedef struct tern_preferences_source {
    const char *path;
    const tern_tokenizer *tokenizer;
    const tern_template *template;
    int32_t length; // as above, of a prompt with its answer
    bool labelled;  // lines have a "completion" and a "label" instead of "chosen" and "rejected"
} tern_preferences_source;
tern_status tern_pairs_open_preferences(tern_pairs **out, const tern_preferences_source *source,
                                        tern_error *err);
void tern_pairs_close(tern_pairs *p); // NULL is allowed

#endif
