// Text from elsewhere (of a model, a tool, a server, a file) made safe to show on a terminal.
// Control characters, invisible ones, and those that change the order of text are written as their
// numbers: \u{202E}. A byte that is not UTF-8 becomes \x{FF}.
#ifndef TERN_BASE_PLAIN_H
#define TERN_BASE_PLAIN_H

#include "base/strbuf.h"

#include <stdint.h>

typedef struct tern_plain { // zero-initialise
    // Running text: line ends and tabs stay, and so do joiners and variant selectors where scripts
    // and emoji need them, after a visible character that is not an ASCII letter. Otherwise the
    // output is one line, with \n and \t, and without any of those.
    bool is_text;
    uint32_t before; // the last character, for text in pieces
} tern_plain;

// Whether a character shows as itself, wherever it stands.
bool tern_plain_is(uint32_t code);
// Appends a text, or a piece of one that is cut between characters.
void tern_plain_put(tern_plain *p, const char *text, size_t n, tern_strbuf *out);
// The same for the next character alone: returns its length in the text.
#define TERN_PLAIN_BYTES 16
size_t tern_plain_next(tern_plain *p, const char *text, size_t n, char out[TERN_PLAIN_BYTES],
                       size_t *n_out);
// Appends a text as one line.
void tern_plain_line(const char *text, size_t n, tern_strbuf *out);

#endif
