// Line editing by libedit, with keys read here: a Ctrl-C while waiting for a key must end the line
// and not the program, and libedit itself would go on reading.
#include "line.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#include "cli.h"

#define HISTORY_MAX 1000

struct line_reader {
    EditLine *el; // NULL: not a terminal
    History *history;
    char history_path[1024]; // empty: none
    const char *prompt;
    char *line; // of getline, or a copy of libedit's
    size_t capacity;
};

// Set by the signal handler, which can reach nothing else.
static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

bool line_interrupted(void) { return interrupted != 0; }
void line_clear_interrupt(void) { interrupted = 0; }

// ---- Keys --------------------------------------------------------------------------------------

// libedit's: 1 and a character, 0 at the end, -1 when interrupted.
static int read_key(EditLine *el, wchar_t *out) {
    mbstate_t state = {0};
    (void)el;
    for (;;) {
        char byte;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR && !interrupted) continue; // e.g. the window's size changed
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue; // a character of several bytes
        if (used == (size_t)-1) { // not a character: left out
            state = (mbstate_t){0};
            continue;
        }
        return 1;
    }
}

static char *get_prompt(EditLine *el) {
    line_reader *r = NULL;
    el_get(el, EL_CLIENTDATA, &r);
    return (char *)r->prompt;
}

// ---- History -----------------------------------------------------------------------------------

// $XDG_STATE_HOME/tern/history, else ~/.tern_history; nowhere without a home.
static void find_history(line_reader *r) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    size_t size = sizeof r->history_path;
    int n = 0;
    if (state && *state == '/') {
        n = snprintf(r->history_path, size, "%s/tern", state);
        if (n > 0 && (size_t)n < size - 16) mkdir(r->history_path, 0700);
        n = snprintf(r->history_path, size, "%s/tern/history", state);
    } else if (home && *home == '/') {
        n = snprintf(r->history_path, size, "%s/.tern_history", home);
    }
    if (n <= 0 || (size_t)n >= size) r->history_path[0] = 0;
}

static void open_editor(line_reader *r) {
    HistEvent event;
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8"); // models speak UTF-8
    r->el = el_init("tern", stdin, stdout, stderr);
    r->history = r->el ? history_init() : NULL;
    if (!r->history) return;
    history(r->history, &event, H_SETSIZE, HISTORY_MAX);
    history(r->history, &event, H_SETUNIQUE, 1);
    find_history(r);
    if (r->history_path[0]) history(r->history, &event, H_LOAD, r->history_path);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, get_prompt);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_GETCFN, read_key);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

// ---- Lines -------------------------------------------------------------------------------------

line_reader *line_open(bool interactive) {
    line_reader *r = must_alloc(NULL, 1, sizeof *r);
    *r = (line_reader){0};
    // No SA_RESTART: a read must return.
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    if (interactive) open_editor(r);
    return r;
}

void line_close(line_reader *r) {
    HistEvent event;
    if (r->history && r->history_path[0]) {
        mode_t old = umask(077); // what one says is nobody else's business
        history(r->history, &event, H_SAVE, r->history_path);
        umask(old);
    }
    if (r->history) history_end(r->history);
    if (r->el) el_end(r->el);
    free(r->line);
    free(r);
    signal(SIGINT, SIG_DFL);
}

static char *read_plain(line_reader *r) {
    ssize_t n = getline(&r->line, &r->capacity, stdin);
    if (n < 0) return NULL; // the end, an error or Ctrl-C
    if (n > 0 && r->line[n - 1] == '\n') r->line[--n] = 0;
    if (n > 0 && r->line[n - 1] == '\r') r->line[n - 1] = 0;
    return r->line;
}

char *line_read(line_reader *r, const char *prompt) {
    bool warned = false;
    if (!r->el) return interrupted ? NULL : read_plain(r);
    r->prompt = prompt;
    for (;;) {
        int n = 0;
        interrupted = 0;
        const char *got = el_gets(r->el, &n);
        if (got && n > 0) {
            HistEvent event;
            size_t length = strcspn(got, "\r\n");
            r->line = must_alloc(r->line, length + 1, 1);
            memcpy(r->line, got, length);
            r->line[length] = 0;
            if (length) history(r->history, &event, H_ENTER, r->line);
            return r->line;
        }
        if (!interrupted) { // Ctrl-D
            putchar('\n');
            return NULL;
        }
        const LineInfo *info = el_line(r->el);
        bool was_empty = info->lastchar == info->buffer;
        printf("^C\n");
        if (was_empty && warned) return NULL;
        if (was_empty) printf("Ctrl-C again, Ctrl-D or /quit leaves.\n");
        warned = was_empty;
    }
}
