// Private to ebnf_read.c and ebnf_text.c: where the reading of a grammar's text stands.
#ifndef TERN_GRAMMAR_EBNF_READER_H
#define TERN_GRAMMAR_EBNF_READER_H

#include <string.h>
#include "grammar/rules/ebnf.h"

typedef struct tern_ebnf_reader {
    tern_ebnf *e;
    bool lark;
    const char *text;
    size_t n, at;
    int depth;
    bool in_terminal;
    size_t counted; // bytes in which newlines were counted
    uint32_t line;  // after them
} tern_ebnf_reader;

// "grammar: line 3: ..."
tern_status tern_ebnf_refuse(tern_ebnf_reader *r, const char *what);
tern_status tern_ebnf_term(tern_ebnf_reader *r, tern_term a, uint32_t *node);

static inline bool tern_ebnf_is_at(const tern_ebnf_reader *r, const char *s) {
    const size_t n = strlen(s);
    return r->n - r->at >= n && memcmp(r->text + r->at, s, n) == 0;
}

static inline bool tern_ebnf_eat(tern_ebnf_reader *r, const char *s) {
    if (!tern_ebnf_is_at(r, s)) return false;
    r->at += strlen(s);
    return true;
}

// Texts of a grammar (ebnf_text.c), each after its first character.
tern_status tern_ebnf_literal(tern_ebnf_reader *r, uint32_t *node); // "
tern_status tern_ebnf_class(tern_ebnf_reader *r, uint32_t *node);   // [
tern_status tern_ebnf_pattern(tern_ebnf_reader *r, uint32_t *node); // /
tern_status tern_ebnf_any(tern_ebnf_reader *r, uint32_t *node);     // .
// The terminal of this name in Lark's library 'common'.
tern_status tern_ebnf_common(tern_ebnf_reader *r, tern_str name, uint32_t *node);

#endif
