// How an answer is taken apart while it comes: between answer.c, which knows marks, and the readers
// of what stands between the marks of a call, one for each way of writing calls.
//
// Everything goes byte by byte and nothing is looked at twice, so that pieces may be cut anywhere
// and a call's arguments are passed on as they are made. What was passed on is never taken back: a
// body is known to be a call when its function's name is complete; until then its bytes are kept,
// and if it is no call after all they are text.
#ifndef TERN_INPUT_ANSWER_ANSWER_H
#define TERN_INPUT_ANSWER_ANSWER_H

#include "base/json.h"
#include "base/json_write.h"
#include "input/input.h"

typedef enum call_fed {
    CALL_MORE, // within a call
    CALL_REST, // between calls: the body may end here
    CALL_BAD,  // not how calls are written
} call_fed;

// A JSON value that is copied: where it is.
typedef struct call_copy {
    uint32_t depth;
    bool in_string, escaped;
} call_copy;

enum { CALL_DEPTH_MAX = 64 };

typedef struct call_frame {
    char close;  // the bracket that ends it
    char assign; // between key and value; 0: an array
} call_frame;

typedef struct call_state {
    uint8_t at;   // where its reader is: an enum of the reader's
    bool in_list; // calls stand in brackets
    bool comma;   // one has come, and perhaps an element after it
    bool has_name, has_arguments;
    uint32_t depth; // objects around the members, or frames
    call_copy copy;
    call_frame frames[CALL_DEPTH_MAX];
    char quote;                // ends the string
    bool is_key;               // the string or word is one
    uint32_t matched;          // bytes of a mark so far
    uint32_t n_hex;            // digits of an escape to come
    tern_str type;             // of the parameter, by its function's schema
    const tern_json *function; // the schema's, NULL: unknown
} call_state;

typedef enum answer_at { ANSWER_TEXT, ANSWER_REASONING, ANSWER_CALL, ANSWER_SKIP } answer_at;

struct tern_answer {
    tern_answer_style style;
    char *tools_text; // what tools points into
    tern_json_doc tools;
    bool calls; // tools were given, and the family has a way of calling them
    bool with_special;
    answer_at at;
    tern_strbuf in;   // not passed on yet: perhaps the beginning of a mark, or spaces before one
    bool has_begun;   // something other than spaces was passed on or stood in marks
    bool skips_space; // after a mark: spaces are not passed on
    tern_strbuf raw;  // a body's bytes, with its mark, until it is known to be a call
    call_state call;
    bool rests;     // call: between calls
    bool has_calls; // the body has one that was passed on
    bool is_open;   // the name was passed on, the end was not
    bool has_ended;
    tern_strbuf name, arguments, word;
    uint32_t n_calls;
    tern_part_fn on_part; // during put and end
    void *user;
};

// The four ways of writing calls; each gets the bytes after the mark, one by one.
call_fed tern_call_feed_json(tern_answer *a, char c);
call_fed tern_call_feed_named(tern_answer *a, char c);
call_fed tern_call_feed_literal(tern_answer *a, char c);
call_fed tern_call_feed_tags(tern_answer *a, char c);

// For them: the name is complete, the call is complete. False: no such function, where that makes
// it text (a whole answer that is JSON may be meant for people).
bool tern_call_begin(tern_answer *a);
void tern_call_finish(tern_answer *a);

// Copies a JSON value to the arguments; true after its last byte. It must begin with a bracket.
bool tern_call_copy(tern_answer *a, char c);
// A byte of a string, as JSON writes it.
void tern_call_put_char(tern_strbuf *out, char c);
// Whether the word is a number, true, false or null as JSON writes them. Without memory to look at
// it the word has failed.
bool tern_call_is_json(tern_strbuf *word, bool scalars_only);
bool tern_call_is_space(char c);

#endif
