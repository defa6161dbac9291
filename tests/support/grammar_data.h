// What tests of grammars share: vocabularies as bytes, and values of JSON written out again.
#ifndef TERN_TESTS_GRAMMAR_DATA_H
#define TERN_TESTS_GRAMMAR_DATA_H

#include "base/json/json.h"
#include "base/strbuf.h"
#include "grammar/grammar.h"
#include "input/input.h"

typedef struct grammar_vocabulary {
    tern_strbuf pool;
    tern_str *bytes; // [n] of each token
    size_t n;
    const int32_t *ends; // tokens that end a text
    size_t n_ends;
    tern_vocab_tree *tree;
    tern_tokenizer *tokenizer;
} grammar_vocabulary;

// Of a tokenizer.json. A CHECK fails, and false comes back, if it cannot be read.
bool grammar_vocabulary_open(grammar_vocabulary *v, const char *path);
void grammar_vocabulary_close(grammar_vocabulary *v);

// The value as text, with ", " and ": " between parts; numbers keep their kind (1.0 stays 1.0).
void grammar_write_value(const tern_json_doc *d, const tern_json *v, tern_strbuf *out);

#endif
