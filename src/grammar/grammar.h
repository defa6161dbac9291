// Grammars for generation: which tokens may come next.
//
//     a regular expression, a JSON schema ... ── compiled ──▶ terms and rules ── texts ──▶ states
//     a vocabulary's bytes ── sorted ──▶ a trie ── walked with a state ──▶ a mask of tokens
//
// Grammars work on bytes. Tokens that are not text, such as those that mark calls, are represented
// by a special byte and their names: no other token has that byte.
//
// A grammar is compiled once; its automaton is built lazily, as far as texts lead, and kept. A
// token is allowed if and only if its bytes can be continued to a text that the grammar accepts.
#ifndef TERN_GRAMMAR_GRAMMAR_H
#define TERN_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include "base/status.h"
#include "base/strbuf.h"

#define TERN_CONTROL_SIGN 0xFF // before the names of tokens that do not show in texts

// ---- Vocabularies -------------------------------------------------------------------------------

// A vocabulary as a tree of bytes. Read-only after creation: any number of threads and grammars may
// share it.
typedef struct tern_vocab_tree tern_vocab_tree;

// bytes[i] is what token i adds to a text; a token that adds nothing is never allowed, except the
// tokens `ends`, which are allowed where the text may end. The arguments are copied.
tern_status tern_vocab_tree_open(tern_vocab_tree **out, const tern_str *bytes, size_t n_vocab,
                                 const int32_t *ends, size_t n_ends, tern_error *err);
void tern_vocab_tree_close(tern_vocab_tree *v);
tern_str tern_vocab_tree_token(const tern_vocab_tree *v, int32_t id); // its bytes
size_t tern_vocab_tree_bytes(const tern_vocab_tree *v);               // of memory

// ---- Grammars -----------------------------------------------------------------------------------

typedef struct tern_automaton tern_automaton;

// How a model's family writes calls of tools between its marks.
typedef enum tern_calls {
    TERN_CALLS_NONE,
    TERN_CALLS_JSON,   // {"name": "f", "arguments": {"a": 1}}, one or a list
    TERN_CALLS_NAMED,  // f[ARGS]{"a": 1}
    TERN_CALLS_TAGS,   // <function=f><parameter=a>1</parameter></function>
    TERN_CALLS_PYTHON, // [f(a=1)]
    TERN_CALLS_BRACED, // f{a:1}
} tern_calls;

typedef struct tern_call_form {
    tern_calls body;
    bool is_list;         // of JSON: calls stand in brackets, within one pair of marks
    bool is_bare;         // without marks, between semicolons, and "arguments" are "parameters"
    tern_str open, close; // around a call, or around a list of them; close may be empty
    tern_str args;        // of NAMED: between name and arguments
    tern_str quote, forbidden; // of BRACED: around strings, and what these may not contain
    tern_str only;             // this function alone; empty: all
    bool one_call;
    bool is_open; // the opening mark has been written
} tern_call_form;

typedef struct tern_grammar_source {
    tern_grammar_kind kind;
    tern_str text;
    size_t bytes_max; // of memory that its automaton and masks may take; 0: 256 MB
    bool compact;     // JSON without spaces
    bool anywhere;    // of a regular expression: it may match a part of the text
    // Reasoning before the answer: any text up to think_close. It begins with think_open, or is
    // left out; if think_open is empty, it has begun already. Both empty: no reasoning.
    tern_str think_open, think_close;
    const tern_str *choices;
    size_t n_choices;
    const tern_call_form *calls;                 // the text is a list of tools
    const struct tern_grammar_source *otherwise; // texts of this grammar are accepted, too
} tern_grammar_source;

// v must outlive it; one thread at a time may use it. v may be NULL: then there are no masks. This
// function and those below stop when the thread is cancelled (base/cancel.h).
tern_status tern_automaton_open(tern_automaton **out, const tern_grammar_source *source,
                                const tern_vocab_tree *v, tern_error *err);
void tern_automaton_close(tern_automaton *a);

// ---- Budgets ------------------------------------------------------------------------------------

// How much work one call of the functions below may do, in steps of some 50 ns (0: half a second's
// worth). A call that needs more fails; then tern_automaton_is_slow is true, and the same call may
// be made again: it goes on from the results of the first one.
void tern_automaton_limit(tern_automaton *a, uint64_t work);
bool tern_automaton_is_slow(const tern_automaton *a);
uint64_t tern_automaton_work(const tern_automaton *a); // all so far

// ---- Texts --------------------------------------------------------------------------------------

typedef uint32_t tern_gplace; // the state after a text; equal places have equal continuations
#define TERN_PLACE_NONE ((tern_gplace)0)

tern_gplace tern_automaton_start(const tern_automaton *a);
// *place NONE: no accepted text begins like that.
tern_status tern_automaton_add(tern_automaton *a, tern_gplace *place, const char *bytes, size_t n,
                               tern_error *err);
bool tern_automaton_accepts(const tern_automaton *a, tern_gplace place);
// Whether nothing can follow.
bool tern_automaton_is_done(const tern_automaton *a, tern_gplace place);
// Appends the bytes that must come next, as far as there is only one choice; at most n_max.
tern_status tern_automaton_forced(tern_automaton *a, tern_gplace place, size_t n_max,
                                  tern_strbuf *out, tern_error *err);

// The tokens that may come next: bit i % 64 of bits[i / 64], [(n_vocab + 63) / 64]. n_allowed, if
// not NULL: how many.
tern_status tern_automaton_mask(tern_automaton *a, tern_gplace place, uint64_t *bits,
                                size_t *n_allowed, tern_error *err);
// Without a mask, byte by byte: moves to the place after the token; NONE: it may not come.
tern_status tern_automaton_token(tern_automaton *a, tern_gplace *place, int32_t token,
                                 tern_error *err);

#endif
