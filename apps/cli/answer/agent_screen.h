// What the user sees of an agent's run, and the questions. Text from elsewhere stands behind a
// margin or in the middle of a line, so that it cannot look like a line from tern.
#ifndef TERN_CLI_AGENT_SCREEN_H
#define TERN_CLI_AGENT_SCREEN_H

#include <stdio.h>
#include "base/plain.h"
#include "apps/cli/console/cli.h"

typedef struct agent_screen { // zero-initialise
    FILE *f;                  // stream of the open line
    const char *margin;       // of the lines after the first
    tern_plain plain;
    tern_strbuf word;                         // held back until its end
    int columns;                              // of the window; 0: unlimited
    int column, word_width, n_blanks, n_ends; // the last two: before the word
    bool is_open, failed;                     // failed: output was lost
} agent_screen;

// A piece of the model's text, on standard output.
void screen_text(agent_screen *s, const char *bytes, size_t n);
// Ends the text, if one is open.
void screen_end_text(agent_screen *s);
// A line from tern on standard error, followed by text from elsewhere. NULL: nothing.
void screen_line(const char *own, const char *bytes, size_t n, const char *after);
// Shows the two and reads a line typed after that. False: none came.
bool screen_ask(const char *bytes, size_t n, const char *own, text *line);
void screen_free(agent_screen *s);

#endif
