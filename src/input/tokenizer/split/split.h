// Cuts text into pieces that are then tokenized one by one ("pre-tokenization").
//
// A *pattern* finds matches in text: one of the well-known expressions of the Llama-3, Qwen2 and
// GPT-2 families, written by hand and an order of magnitude faster than a regex engine; or any
// other expression, by PCRE2; or a literal, or a class of characters. A *step* says what becomes of
// matches and of the text between them. A *splitter* is a list of steps, each applied to all pieces
// of the one before it.
//
// All text here is valid UTF-8, and pieces begin and end at characters.
#ifndef TERN_INPUT_TOKENIZER_SPLIT_H
#define TERN_INPUT_TOKENIZER_SPLIT_H

#include "base/status.h"
#include "base/strbuf.h"

// ---- Patterns -----------------------------------------------------------------------------------

typedef enum tern_pattern_kind {
    TERN_PATTERN_LITERAL,
    TERN_PATTERN_REGEX,
    TERN_PATTERN_LLAMA3, // also Qwen2's, which differs in max_digits
    TERN_PATTERN_GPT2,
    TERN_PATTERN_DIGIT,  // one \p{N}
    TERN_PATTERN_DIGITS, // a run of them
    TERN_PATTERN_PUNCT,  // one punctuation character
    TERN_PATTERN_SPACE,  // one White_Space character
} tern_pattern_kind;

typedef struct tern_pattern {
    tern_pattern_kind kind;
    int max_digits; // LLAMA3: \p{N}{1,max_digits}
    bool fold;      // LLAMA3: (?i:'s), where by Unicode's rules U+017F matches s, too
    char *text;     // of a literal or an expression, terminated
    size_t n_text;
    void *code; // pcre2_code of an expression
} tern_pattern;

// Chooses the fast form if the expression is a known one.
tern_status tern_pattern_open_regex(tern_pattern *p, tern_str expression, tern_error *err);
// Only the fast form, which owns no memory; false: there is none for the expression.
bool tern_pattern_is_known(tern_pattern *p, tern_str expression);
tern_status tern_pattern_open_literal(tern_pattern *p, tern_str text, tern_error *err);
void tern_pattern_close(tern_pattern *p);

// Scratch of one thread for running expressions; zero-initialise, close at the end.
typedef struct tern_matcher {
    void *general, *match, *context, *jit_stack;
    size_t budget; // bytes that searches of this text may still read again
} tern_matcher;
void tern_matcher_close(tern_matcher *m);
// Call before the first search in a text of n bytes, which bounds the time: searches that look far
// ahead again and again fail instead of hanging.
void tern_matcher_begin(tern_matcher *m, size_t n_text);

// Finds the first match in text[from..len): start <= end; start = len: none.
typedef struct tern_match_span {
    size_t start, end;
} tern_match_span;
tern_status tern_pattern_find(const tern_pattern *p, tern_matcher *m, tern_str text, size_t from,
                              tern_match_span *out, tern_error *err);

// The hand-written patterns: the end of the match at `at`, at < n (they match everywhere).
size_t tern_split_llama3(const char *text, size_t n, size_t at, int max_digits, bool fold);
size_t tern_split_gpt2(const char *text, size_t n, size_t at);

// PCRE2's part of the above (split_regex.c).
tern_status tern_regex_compile(tern_pattern *p, tern_error *err);
void tern_regex_free(void *code);
tern_status tern_regex_find(const tern_pattern *p, tern_matcher *m, tern_str text, size_t from,
                            tern_match_span *out, tern_error *err);

// ---- Splitters ----------------------------------------------------------------------------------

typedef enum tern_split_behavior { // with "-" as the pattern, "a--b" becomes
    TERN_SPLIT_ISOLATED,           // a - - b
    TERN_SPLIT_REMOVED,            // a b
    TERN_SPLIT_MERGE_PREVIOUS,     // a- - b
    TERN_SPLIT_MERGE_NEXT,         // a - -b
    TERN_SPLIT_CONTIGUOUS,         // a -- b
} tern_split_behavior;

typedef enum tern_step_kind {
    TERN_STEP_SPLIT,
    TERN_STEP_PREFIX_SPACE, // puts ' ' before a piece that does not begin with one
    TERN_STEP_METASPACE,    // ' ' becomes U+2581, and `prepend` says whether one is prepended
} tern_step_kind;

typedef enum tern_prepend {
    TERN_PREPEND_NEVER,
    TERN_PREPEND_FIRST,
    TERN_PREPEND_ALWAYS
} tern_prepend;

typedef struct tern_split_step {
    tern_step_kind kind;
    tern_pattern pattern;
    tern_split_behavior behavior;
    bool invert; // the text between matches counts as the match
    tern_prepend prepend;
} tern_split_step;

#define TERN_SPLIT_STEPS_MAX 16
typedef struct tern_splitter {
    tern_split_step steps[TERN_SPLIT_STEPS_MAX];
    int n_steps;
} tern_splitter;

// A fresh zeroed step at the end; NULL when there are too many.
tern_split_step *tern_splitter_add(tern_splitter *s);
void tern_splitter_close(tern_splitter *s);

typedef struct tern_piece {
    uint32_t at, n; // bytes in tern_pieces.text
} tern_piece;

typedef struct tern_pieces { // zero-initialise, free with tern_pieces_free; may be used again
    const char *text;
    tern_piece *list, *spare;
    size_t n, capacity, spare_n, spare_capacity;
    tern_strbuf rewritten[2]; // text changed by steps
    tern_matcher matcher;
} tern_pieces;
void tern_pieces_free(tern_pieces *p);

// Splits text[0..n), n < 2^31, which must outlive the use of *out. is_first: it begins the whole
// text.
tern_status tern_splitter_run(const tern_splitter *s, const char *text, size_t n, bool is_first,
                              tern_pieces *out, tern_error *err);

#endif
