// How an answer is taken apart while it comes: between answer.c, which knows marks, and the readers
// of what stands between the marks of a call, one for each way of writing calls.
//
// Everything goes byte by byte and nothing is looked at twice, so that pieces may be cut anywhere
// and a call's arguments are passed on as they are made. What was passed on is never taken back: a
// body is known to be a call when its function's name is complete; until then its bytes are kept,
// and if it is no call after all they are text. Of arguments only that is passed on which can be
// closed: an answer that ends within a call leaves JSON all the same.
#ifndef TERN_INPUT_ANSWER_ANSWER_H
#define TERN_INPUT_ANSWER_ANSWER_H

#include "base/use.h"
#include "base/json.h"
#include "base/json_write.h"
#include "input/input.h"

typedef enum call_fed {
    CALL_MORE, // within a call
    CALL_REST, // between calls: the body may end here
    CALL_LAST, // the mark of the body's end was in the call
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
    size_t n_value, n_tail;    // of the word: the value before the mark; up to what follows that
    tern_str type;             // of the parameter, by its function's schema
    const tern_json *function; // the schema's, NULL: unknown
} call_state;

// How far arguments are JSON (answer_close.c).
typedef struct call_json { // zero-initialise
    uint8_t at;            // an enum of its own
    bool escaped, is_high; // is_high: of two escapes that are one character the first
    bool is_broken;        // no JSON: the rest is not passed on
    bool has_begun;        // the object
    uint8_t n_hex;
    uint32_t unit;       // of \u
    size_t scanned;      // bytes of the arguments
    size_t safe;         // and those that can be closed
    bool in_text;        // they end in a string
    tern_strbuf closers; // brackets, the innermost last
} call_json;

// Text as people read it: within blocks of code a mark is spoken of.
typedef struct answer_prose { // zero-initialise
    uint8_t at;               // in its line: an enum of its own
    char fence;               // that encloses it; 0: none
    char before;              // the last byte
    uint32_t n_marks;         // of a fence, in this line
    uint32_t n_fence;         // of the one that encloses it
} answer_prose;

typedef enum answer_at { ANSWER_TEXT, ANSWER_REASONING, ANSWER_CALL, ANSWER_SKIP } answer_at;

struct tern_answer {
    tern_use use;
    const void *owner; // of what style points to
    void (*let_go)(const void *owner);
    tern_answer_style style;
    char *tools_text; // what tools points into
    tern_json_doc tools;
    bool calls; // tools were given, and the family has a way of calling them
    bool with_special;
    answer_at at;
    tern_strbuf in;    // not passed on yet: perhaps the beginning of a mark, or spaces before one
    bool has_begun;    // something other than spaces was passed on or stood in marks
    bool skips_space;  // after a mark: spaces are not passed on
    tern_strbuf raw;   // a body's bytes, with its mark, until it is known to be a call
    size_t n_mark;     // of these: spaces and the mark
    tern_strbuf again; // of them, those to be looked at again
    bool is_unmarked;  // the body began without a mark
    bool skips_rest;   // of a body whose call broke off
    answer_prose prose;
    call_json json;
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

// The answer ends within a call in tags: its last value is written as far as it came.
void tern_call_cut_tags(tern_answer *a);

// For them: the name is complete, the call is complete. False: no such function, where that makes
// it text (a whole answer that is JSON may be meant for people).
bool tern_call_begin(tern_answer *a);
bool tern_call_is_known(tern_answer *a); // the function of this name
void tern_call_finish(tern_answer *a);

// The next bytes of arguments: looks at what is new, and sets what can be passed on. False: it is
// no JSON, and will not be any more.
bool tern_call_scan(call_json *j, const char *text, size_t n);
// What makes JSON of what was passed on.
void tern_call_close(call_json *j, tern_strbuf *out);
bool tern_call_is_complete(const call_json *j);
void tern_call_free(call_json *j);
// Whether a mark may begin after the text so far, and at a line's beginning.
bool tern_prose_takes_marks(const answer_prose *p);
bool tern_prose_at_line(const answer_prose *p);
void tern_prose_put(answer_prose *p, char c);

// Copies a JSON value to the arguments; true after its last byte. It must begin with a bracket.
bool tern_call_copy(tern_answer *a, char c);
// A byte of a string, as JSON writes it.
void tern_call_put_char(tern_strbuf *out, char c);
// Whether the word is a number, true, false or null as JSON writes them. Without memory to look at
// it the word has failed.
bool tern_call_is_json(tern_strbuf *word, bool scalars_only);
bool tern_call_is_space(char c);

#endif
