// Parses an answer while it is generated: the interface between answer.c, which finds marks, and
// the readers of the bodies between the marks of calls, one for each way of writing calls.
//
// Everything is read byte by byte and only once, so that pieces may be cut anywhere and a call's
// arguments are passed on as they are generated. Nothing that was passed on is taken back: a body
// is known to be a call when its function's name is complete; until then its bytes are kept, and if
// it is not a call after all they are text. Arguments are passed on only as far as they can be
// closed: even an answer that ends within a call leaves valid JSON.
#ifndef TERN_INPUT_ANSWER_ANSWER_H
#define TERN_INPUT_ANSWER_ANSWER_H

#include "base/use.h"
#include "base/json/json.h"
#include "base/json/json_write.h"
#include "input/input.h"

typedef enum call_fed {
    CALL_MORE, // within a call
    CALL_REST, // between calls: the body may end here
    CALL_LAST, // the call included the closing mark of the body
    CALL_BAD,  // not a call
} call_fed;

// Position in a JSON value that is being copied.
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
    uint8_t at;   // the reader's state: an enum of each reader
    bool in_list; // calls stand in brackets
    bool comma;   // a comma has come, and perhaps an element after it
    bool has_name, has_arguments;
    uint32_t depth; // objects around the members, or frames
    call_copy copy;
    call_frame frames[CALL_DEPTH_MAX];
    char quote;                // ends the string
    bool is_key;               // the string or word is a key
    uint32_t matched;          // bytes of a mark so far
    uint32_t n_hex;            // missing digits of an escape
    size_t n_value, n_tail;    // bytes of the word: of the value; with the mark and spaces
    tern_str type;             // of the parameter, from its function's schema
    const tern_json *function; // its schema; NULL: unknown
} call_state;

// How far arguments are valid JSON (answer_close.c).
typedef struct call_json { // zero-initialise
    uint8_t at;            // an enum of answer_close.c
    bool escaped, is_high; // is_high: the first escape of a surrogate pair
    bool is_broken;        // not JSON: the rest is not passed on
    bool has_begun;        // the opening bracket has come
    uint8_t n_hex;
    uint32_t unit;       // of \u
    size_t scanned;      // bytes of the arguments read so far
    size_t safe;         // bytes that can be passed on and closed
    bool in_text;        // the bytes end inside a string
    tern_strbuf closers; // brackets, the innermost last
} call_json;

// Markdown text: in code a mark is only mentioned.
typedef struct answer_prose { // zero-initialise
    uint8_t at;               // position in the line: an enum of answer_close.c
    char fence;               // the character of the enclosing fence; 0: none
    char before;              // the last byte
    uint32_t n_marks;         // of a fence, in this line
    uint32_t n_fence;         // of the enclosing fence
} answer_prose;

typedef enum answer_at { ANSWER_TEXT, ANSWER_REASONING, ANSWER_CALL, ANSWER_SKIP } answer_at;

struct tern_answer {
    tern_use use;
    const void *owner; // of the strings in style
    void (*let_go)(const void *owner);
    tern_answer_style style;
    char *tools_text; // the text that tools points into
    tern_json_doc tools;
    bool calls; // tools were given, and the family can call them
    bool with_special;
    answer_at at;
    tern_strbuf in;    // not passed on yet: perhaps a mark's beginning, or spaces before a mark
    bool has_begun;    // other bytes than spaces have come, as text or between marks
    bool skips_space;  // after a mark: spaces are not passed on
    tern_strbuf raw;   // a body's bytes, with its mark, until it is known to be a call
    size_t n_mark;     // of these: bytes of the mark and of spaces before it
    tern_strbuf again; // of these: bytes to be read again
    bool is_unmarked;  // the body began without a mark
    bool skips_rest;   // the rest of a body whose call was invalid is dropped
    answer_prose prose;
    call_json json;
    call_state call;
    bool rests;     // call: between calls
    bool has_calls; // a call of the body was passed on
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

// The readers call these when the name, and when the call, is complete. False: there is no such
// function, and so the body is text (an answer may be JSON that is not a call).
bool tern_call_begin(tern_answer *a);
bool tern_call_is_known(tern_answer *a); // the function of this name
void tern_call_finish(tern_answer *a);

// text: the arguments so far; reads the new bytes, and sets how many can be passed on. False: they
// are not the beginning of JSON.
bool tern_call_scan(call_json *j, const char *text, size_t n);
// Appends the bytes that complete the passed on arguments to JSON.
void tern_call_close(call_json *j, tern_strbuf *out);
bool tern_call_is_complete(const call_json *j);
void tern_call_free(call_json *j);
// Whether a mark may begin after the text so far; whether a line begins there.
bool tern_prose_takes_marks(const answer_prose *p);
bool tern_prose_at_line(const answer_prose *p);
void tern_prose_put(answer_prose *p, char c);

// Copies a JSON value to the arguments; true after its last byte. It must begin with a bracket.
bool tern_call_copy(tern_answer *a, char c);
// A byte of a string, as JSON writes it.
void tern_call_put_char(tern_strbuf *out, char c);
// Whether the word is a number, true, false or null as JSON writes them. On failure of memory the
// word has failed.
bool tern_call_is_json(tern_strbuf *word, bool scalars_only);
bool tern_call_is_space(char c);

#endif
