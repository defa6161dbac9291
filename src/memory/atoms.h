// A text split into pieces that chunks never cut: the first half of chunking (chunk.c has the
// second).
#ifndef TERN_MEMORY_ATOMS_H
#define TERN_MEMORY_ATOMS_H

#include "memory/memory.h"

typedef enum tern_break { // before an atom, the strongest last
    TERN_BREAK_INSIDE,    // in a word
    TERN_BREAK_WORD,
    TERN_BREAK_SENTENCE,
    TERN_BREAK_LINE, // before a line of a list, a table, code
    TERN_BREAK_PARAGRAPH,
    TERN_BREAK_HEADING,
} tern_break;

typedef struct tern_atom {
    size_t begin, end; // bytes; each begins where the one before it ends
    size_t n_tokens, line;
    uint8_t strength; // tern_break
    uint8_t level;    // 1 to 6: a heading; 0: not a heading
} tern_atom;

typedef struct tern_atoms { // zero-initialise, free list
    tern_atom *list;
    size_t n, capacity;
} tern_atoms;

// Each atom has at most max_tokens tokens, unless it is a single character.
tern_status tern_atoms_find(tern_atoms *out, const char *text, size_t n, const tern_chunking *how,
                            tern_error *err);

#endif
