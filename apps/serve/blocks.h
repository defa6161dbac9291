// An answer in blocks, in their order: texts, reasoning, calls of tools. Anthropic's and OpenAI's
// newer interfaces send them one after another; the others gather those of a kind.
#ifndef TERN_SERVE_BLOCKS_H
#define TERN_SERVE_BLOCKS_H

#include "base/strbuf.h"
#include "tern.h"

typedef enum block_kind { BLOCK_TEXT, BLOCK_REASONING, BLOCK_CALL } block_kind;

typedef struct answer_block {
    block_kind kind;
    tern_strbuf text; // of a call: its arguments, JSON
    tern_strbuf name; // of a call: the function's
    char id[12];      // of a call
    int call;         // of a call: which one, from 0
    bool is_whole;    // a call's end has come; else it was cut, or goes on
} answer_block;

// What has come: a piece of a block's text, perhaps empty.
typedef struct answer_part {
    size_t block, at, n;
    bool begins; // it is the block's first
} answer_part;

typedef struct blocks {
    answer_block *list; // [n]
    size_t n, capacity;
    answer_part *parts; // [n_parts] since the last blocks_take
    size_t n_parts, parts_capacity;
    tern_answer *answer; // takes texts apart; NULL: all is text
    const char *salt;    // of the calls' ids, with the choice's index
    int index;
    int n_calls;
    bool one_call; // further ones are left out
    bool skips;    // one of these is coming
    bool failed;   // no memory
} blocks;

// The next piece of the answer's text; at_end: the last one. False: no memory.
bool blocks_take(blocks *b, const char *text, size_t n, bool at_end);
void blocks_free(blocks *b);
// The text so far of all blocks of a kind, appended.
void blocks_text(const blocks *b, block_kind kind, tern_strbuf *out);
// Whether the answer is complete calls, and no cut one.
bool blocks_end_in_calls(const blocks *b);
const char *block_arguments(const answer_block *b); // JSON, "{}" where none came
bool block_has_object(const answer_block *b); // they are one: those of a call that was cut are not

#endif
