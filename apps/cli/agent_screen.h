// What a person sees of an agent's run, and is asked. Whatever comes from elsewhere stands behind a
// margin or in the middle of a line, so that none of it can look like a line of tern's own.
#ifndef TERN_CLI_AGENT_SCREEN_H
#define TERN_CLI_AGENT_SCREEN_H

#include <stdio.h>
#include "base/plain.h"
#include "cli.h"

typedef struct agent_screen { // zero-initialise
    FILE *f;                  // of the open line
    const char *margin;       // of the lines after its first
    tern_plain plain;
    tern_strbuf word;                         // held back until its end
    int columns;                              // of the window; 0: any number
    int column, word_width, n_blanks, n_ends; // the last two: that come before the word
    bool is_open, failed;                     // failed: what was written was lost
} agent_screen;

// A piece of the model's text, on standard output.
void screen_text(agent_screen *s, const char *bytes, size_t n);
// Ends the text, if there is one.
void screen_end_text(agent_screen *s);
// A line of tern's own on standard error, with what comes from elsewhere behind it. NULL: nothing.
void screen_line(const char *own, const char *bytes, size_t n, const char *after);
// Shows the two and reads a line, which was typed after that. False: none came.
bool screen_ask(const char *bytes, size_t n, const char *own, text *line);
void screen_free(agent_screen *s);

#endif
