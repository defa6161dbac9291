// Lines from the user: with editing and history on a terminal, else unchanged.
#ifndef TERN_CLI_LINE_H
#define TERN_CLI_LINE_H

#include <stdbool.h>
#include "cli.h"

typedef struct line_reader line_reader;

// Completions of the word before the cursor: adds whole words to `out`, which the caller frees, and
// returns where in `line`, the text before the cursor, the word begins.
typedef size_t (*line_complete_fn)(void *user, const char *line, string_list *out);

// interactive: standard input and output are a terminal; Tab then completes. From now on Ctrl-C
// does not end the program.
line_reader *line_open(bool interactive, line_complete_fn complete, void *user);
// Adds the files and folders whose names begin with `path`; a folder's name ends with a slash.
void line_complete_path(const char *path, string_list *out);
void line_add_word(string_list *out, const char *word); // a copy
char *line_join(const char *front, const char *back);   // the caller frees it
void line_close(line_reader *r);                        // saves the history
// One line without its newline, valid until the next call; NULL if the user leaves (end of input,
// Ctrl-D on an empty line, Ctrl-C twice on an empty line).
char *line_read(line_reader *r, const char *prompt);

// Whether Ctrl-C was pressed since this was cleared.
bool line_interrupted(void);
void line_clear_interrupt(void);

#endif
