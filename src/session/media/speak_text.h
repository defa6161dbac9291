// Private to src/session: where a long text is split for speaking.
#ifndef TERN_SESSION_SPEAK_TEXT_H
#define TERN_SESSION_SPEAK_TEXT_H

#include <stdbool.h>
#include <stddef.h>

// Characters that are spoken in one piece: some fifteen seconds.
#define TERN_SPEAK_CHARACTERS 240

// Bytes of the first piece of a text, of up to n_most characters (at least 1): all of a text that
// has no more, else up to the end of the last sentence in them, or of a clause, a word, a letter.
// 0 only if n is 0.
size_t tern_speak_cut(const char *text, size_t n, size_t n_most);

#endif
