// Lines from the console of Windows, which edits them itself, with a history of this process's
// lines. It has no calls for completion or for what other processes' lines were.
#include "line.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "apps/system/system.h"

struct line_reader {
    bool interactive;
    text line;
};

static atomic_bool interrupted;

static bool on_interrupt(void) {
    atomic_store(&interrupted, true);
    return true;
}

bool line_interrupted(void) { return atomic_load(&interrupted); }
void line_clear_interrupt(void) { atomic_store(&interrupted, false); }

line_reader *line_open(bool interactive, line_complete_fn complete, void *user) {
    (void)complete, (void)user;
    line_reader *r = must_alloc(NULL, 1, sizeof *r);
    *r = (line_reader){.interactive = interactive};
    system_on_interrupt(on_interrupt, true);
    return r;
}

void line_close(line_reader *r) {
    system_on_interrupt(NULL, false);
    free(r->line.ptr);
    free(r);
}

// One line, with what ends it; false: the end of input, or Ctrl-C.
static bool read_line(line_reader *r) {
    char piece[512];
    r->line.n = 0;
    text_puts(&r->line, "");
    if (r->interactive) return terminal_line(text_collect, &r->line);
    while (fgets(piece, sizeof piece, stdin)) {
        text_puts(&r->line, piece);
        if (r->line.ptr[r->line.n - 1] == '\n') break;
    }
    return r->line.n > 0;
}

static bool take_line(line_reader *r) {
    if (!read_line(r)) return false;
    while (r->line.n && strchr("\r\n", r->line.ptr[r->line.n - 1])) r->line.n--;
    r->line.ptr[r->line.n] = 0;
    return true;
}

char *line_read(line_reader *r, const char *prompt) {
    bool warned = false;
    if (!r->interactive) return line_interrupted() || !take_line(r) ? NULL : r->line.ptr;
    for (;;) {
        line_clear_interrupt();
        fputs(prompt, stdout);
        fflush(stdout);
        if (take_line(r)) return r->line.ptr;
        putchar('\n');
        if (!line_interrupted() || warned) return NULL; // Ctrl-Z, or Ctrl-C twice
        printf("Ctrl-C again, Ctrl-Z and Enter, or /quit leaves.\n");
        warned = true;
    }
}
