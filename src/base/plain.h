// Text from elsewhere (of a model, a tool, a server, a file) as people may see it on a terminal.
// What a terminal would obey, and what shows nothing or changes the order of what is shown, is
// written as its number instead: \u{202E}. A byte that is no UTF-8 is \x{FF}.
#ifndef TERN_BASE_PLAIN_H
#define TERN_BASE_PLAIN_H

#include "base/strbuf.h"

#include <stdint.h>

typedef struct tern_plain { // zero-initialise
    // Running text: its line ends and tabs stay, and so do joiners and selectors of variants where
    // scripts and images need them, behind a character that is shown and no letter of ASCII's.
    // Otherwise all is one line, with \n and \t, and without any of those.
    bool is_text;
    uint32_t before; // the last character, for pieces of a text
} tern_plain;

// Whether a character shows as itself, wherever it stands.
bool tern_plain_is(uint32_t code);
// Appends a text, or a piece of one that is cut between characters.
void tern_plain_put(tern_plain *p, const char *text, size_t n, tern_strbuf *out);
// The same for the next character alone: returns how many bytes of the text it has.
#define TERN_PLAIN_BYTES 16
size_t tern_plain_next(tern_plain *p, const char *text, size_t n, char out[TERN_PLAIN_BYTES],
                       size_t *n_out);
// Appends a text that is one line.
void tern_plain_line(const char *text, size_t n, tern_strbuf *out);

#endif
