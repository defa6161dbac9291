// An answer as a sequence of blocks: texts, reasoning, tool calls. Anthropic's interface and
// OpenAI's newer one send them one after another; the others join all blocks of a kind.
#ifndef TERN_SERVE_BLOCKS_H
#define TERN_SERVE_BLOCKS_H

#include "base/strbuf.h"
#include "tern.h"

typedef enum block_kind { BLOCK_TEXT, BLOCK_REASONING, BLOCK_CALL } block_kind;

// Which of the request's tools a call is of. Used by /v1/responses.
typedef struct called_tool {
    bool is_known, is_custom; // is_known: it has been looked for
    tern_str space, name;     // of the request's body
} called_tool;

typedef struct answer_block {
    block_kind kind;
    tern_strbuf text; // of a call: its arguments, JSON
    tern_strbuf name; // of a call: the function's
    char id[12];      // of a call
    int call;         // of a call: which one, from 0
    bool is_whole;    // of a call: it is complete; else it was cut, or goes on
    called_tool tool; // of a call
} answer_block;

// A new piece of a block's text, perhaps empty.
typedef struct answer_part {
    size_t block, at, n;
    bool begins; // it is the block's first
} answer_part;

typedef struct blocks {
    answer_block *list; // [n]
    size_t n, capacity;
    answer_part *parts; // [n_parts] since the last blocks_take
    size_t n_parts, parts_capacity;
    tern_answer *answer; // separates text, reasoning and calls; NULL: all is text
    const char *salt;    // of the calls' ids, with the choice's index
    int index;
    int n_calls;
    bool one_call; // further calls are left out
    bool skips;    // such a call is being generated
    bool failed;   // no memory
} blocks;

// The next piece of the answer's text; at_end: the last one. False: no memory.
bool blocks_take(blocks *b, const char *text, size_t n, bool at_end);
void blocks_free(blocks *b);
// The text so far of all blocks of a kind, appended.
void blocks_text(const blocks *b, block_kind kind, tern_strbuf *out);
// Whether the answer has calls and all of them are complete.
bool blocks_end_in_calls(const blocks *b);
const char *block_arguments(const answer_block *b); // JSON, "{}" if there are none
bool block_has_object(const answer_block *b);       // whether they are an object; not if cut

#endif
