// Compiled grammars, which are cached with their model, since clients send the same schema again
// and again.
#ifndef TERN_SERVE_SHARED_GRAMMAR_H
#define TERN_SERVE_SHARED_GRAMMAR_H

#include "apps/serve/engine/registry.h"

// A grammar that a request asks for, as tern_grammar_desc has it.
typedef struct format_wanted {
    const char *param; // where the request says so; NULL: it asks for none
    tern_grammar_kind kind;
    tern_strbuf text;  // choices as a JSON list
    tern_strbuf tool;  // of calls: this one alone
    tern_strbuf tools; // not "": calls of these, or `text`
    bool one_call, is_optional;
    char prompt[32]; // of conversations: the end of the rendered prompt
} format_wanted;

// A reference-counted grammar: its model's list, generations and running jobs hold it.
typedef struct shared_grammar shared_grammar;
tern_grammar *shared_grammar_get(const shared_grammar *g);
void shared_grammar_release(shared_grammar *g); // any thread; NULL is allowed
shared_grammar *shared_grammar_hold(shared_grammar *g);

bool format_copy(format_wanted *to, const format_wanted *from); // false: no memory
// Compiles it; any thread.
tern_status shared_grammar_open(shared_grammar **out, const served *s, const format_wanted *w,
                                tern_error *err);
// The model's list, on the loop's thread. A grammar that is found is held for the caller; the list
// holds one that is added.
shared_grammar *formats_find(served *s, const format_wanted *w);
void formats_add(served *s, shared_grammar *g);
void formats_free(served *s);

#endif
