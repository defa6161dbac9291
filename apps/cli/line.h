// Lines from the user: with editing and history in a terminal, else as they come.
#ifndef TERN_CLI_LINE_H
#define TERN_CLI_LINE_H

#include <stdbool.h>

typedef struct line_reader line_reader;

// interactive: standard input and output are a terminal. From now on Ctrl-C does not end the
// program.
line_reader *line_open(bool interactive);
void line_close(line_reader *r); // saves the history
// One line without its newline, valid until the next call; NULL when the user leaves (end of input,
// Ctrl-D on an empty line, Ctrl-C twice on an empty line).
char *line_read(line_reader *r, const char *prompt);

// Whether Ctrl-C was pressed since it was cleared.
bool line_interrupted(void);
void line_clear_interrupt(void);

#endif
