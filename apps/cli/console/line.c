// Line editing by libedit, with keys read here: a Ctrl-C while waiting for a key must end the line
// and not the program, whereas libedit would read on.
#include "line.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>
#include <wchar.h>
#include "base/os/lazy.h"

#define HISTORY_MAX 1000
#define PASTE_MAX   ((size_t)1 << 20) // bytes; longer input is cut

struct line_reader {
    EditLine *el; // NULL: not a terminal
    History *history;
    char *history_path; // NULL: none
    line_complete_fn complete;
    void *user;
    const char *prompt;
    char *line; // from getline, or a copy of libedit's
    size_t capacity;
    struct termios before; // of the terminal
    bool has_before;
};

// Set by the signal handler, which can reach nothing else.
static volatile sig_atomic_t interrupted, resized;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void on_resize(int signal_number) {
    (void)signal_number;
    resized = 1;
}

bool line_interrupted(void) { return interrupted != 0; }
void line_clear_interrupt(void) { interrupted = 0; }

// ---- Keys --------------------------------------------------------------------------------------

// For libedit: 1 and a character, 0 at the end, -1 if interrupted.
static int read_key(EditLine *el, wchar_t *out) {
    mbstate_t state = {0};
    for (;;) {
        char byte;
        if (resized) {
            resized = 0;
            el_resize(el);
            el_set(el, EL_REFRESH);
        }
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR && !interrupted) continue; // e.g. the window's size changed
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue; // a character of several bytes
        if (used == (size_t)-1) {         // not a character: skipped
            state = (mbstate_t){0};
            continue;
        }
        return 1;
    }
}

// Text pasted between a terminal's marks is text, not keys: its lines are one message, which only
// Enter sends.
static unsigned char take_paste(EditLine *el, int key) {
    static const char end[] = "\033[201~";
    const size_t n_end = sizeof end - 1;
    text all = {0};
    size_t n = 0;
    char byte;
    (void)key;
    text_puts(&all, "");
    while (all.n < n_end || memcmp(all.ptr + all.n - n_end, end, n_end) != 0) {
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got < 0 && errno == EINTR && !interrupted) continue;
        if (got <= 0) break;
        if (all.n == PASTE_MAX) all.n -= n_end; // the end mark may still come
        text_append(&all, &byte, 1);
    }
    if (all.n >= n_end && !memcmp(all.ptr + all.n - n_end, end, n_end)) all.n -= n_end;
    for (size_t i = 0; i < all.n; i++) {
        char c = all.ptr[i];
        if (c == '\r' && i + 1 < all.n && all.ptr[i + 1] == '\n') continue;
        if (c == '\r') c = '\n';
        if ((unsigned char)c >= 32 || c == '\n' || c == '\t') all.ptr[n++] = c;
    }
    while (n && all.ptr[n - 1] == '\n') n--;
    all.ptr[n] = 0;
    const bool ok = n == 0 || el_insertstr(el, all.ptr) == 0;
    free(all.ptr);
    return ok ? CC_REFRESH : CC_ERROR;
}

// Characters that look like one, such as a joined emoji or a letter with accents, are deleted
// together.
static unsigned char delete_cluster(EditLine *el, int key) {
    const LineInfo *info = el_line(el);
    const size_t n = (size_t)(info->cursor - info->buffer);
    utf8proc_int32_t before = 0, code, state = 0;
    int n_last = 0;
    (void)key;
    for (size_t i = 0; i < n;) {
        utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)info->buffer + i,
                                                 (utf8proc_ssize_t)(n - i), &code);
        if (used <= 0) return CC_ERROR; // not in this locale
        const bool begins = !i || utf8proc_grapheme_break_stateful(before, code, &state);
        n_last = begins ? 1 : n_last + 1;
        before = code;
        i += (size_t)used;
    }
    if (!n_last) return CC_ERROR;
    el_deletestr(el, n_last);
    return CC_REFRESH;
}

static char *get_prompt(EditLine *el) {
    line_reader *r = NULL;
    el_get(el, EL_CLIENTDATA, &r);
    return (char *)r->prompt;
}

// ---- History -----------------------------------------------------------------------------------

// $XDG_STATE_HOME/tern/history, else ~/.tern_history; none without a home.
static void find_history(line_reader *r) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (state && *state == '/') {
        char *folder = line_join(state, "/tern");
        mkdir(folder, 0700);
        r->history_path = line_join(folder, "/history");
        free(folder);
    } else if (home && *home == '/') {
        r->history_path = line_join(home, "/.tern_history");
    }
}

// ---- Completion --------------------------------------------------------------------------------

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Tab: adds the common beginning of all candidates; if that adds nothing, lists them.
static unsigned char complete_word(EditLine *el, int key) {
    line_reader *r = NULL;
    string_list words = {0};
    (void)key;
    el_get(el, EL_CLIENTDATA, &r);
    const LineInfo *info = el_line(el);
    size_t n = (size_t)(info->cursor - info->buffer);
    char *line = must_alloc(NULL, n + 1, 1);
    memcpy(line, info->buffer, n);
    line[n] = 0;
    size_t start = r->complete ? r->complete(r->user, line, &words) : n, typed = n - start;
    size_t common = words.n ? strlen(words.items[0]) : 0;
    for (size_t i = 1; i < words.n; i++) {
        size_t k = 0;
        while (k < common && words.items[0][k] == words.items[i][k]) k++;
        common = k;
    }
    unsigned char result = words.n ? CC_REFRESH : CC_ERROR;
    if (common > typed) {
        text more = {0};
        text_append(&more, words.items[0] + typed, common - typed);
        if (words.n == 1 && words.items[0][common - 1] != '/') text_puts(&more, " ");
        if (el_insertstr(el, more.ptr) != 0) result = CC_ERROR;
        free(more.ptr);
    } else if (words.n > 1) {
        qsort(words.items, words.n, sizeof *words.items, by_text);
        putchar('\n');
        for (size_t i = 0; i < words.n; i++) printf("%s%s", i ? "  " : "", words.items[i]);
        putchar('\n');
        result = CC_REDISPLAY;
    }
    for (size_t i = 0; i < words.n; i++) free((char *)words.items[i]);
    free(words.items);
    free(line);
    return result;
}

static void open_editor(line_reader *r) {
    HistEvent event;
    tern_error err = {0};
    if (TERN_LAZY_LOAD(edit, &err) != TERN_OK) { // lines as the terminal has them
        fprintf(stderr, "%s\n", err.message);
        return;
    }
    struct sigaction action = {.sa_handler = on_resize};
    sigaction(SIGWINCH, &action, NULL);
    r->has_before = tcgetattr(STDIN_FILENO, &r->before) == 0;
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) setlocale(LC_CTYPE, "C.UTF-8"); // models speak UTF-8
    r->el = el_init("tern", stdin, stdout, stderr);
    r->history = r->el ? history_init() : NULL;
    if (!r->history) return;
    history(r->history, &event, H_SETSIZE, HISTORY_MAX);
    history(r->history, &event, H_SETUNIQUE, 1);
    find_history(r);
    if (r->history_path) history(r->history, &event, H_LOAD, r->history_path);
    el_set(r->el, EL_CLIENTDATA, r);
    el_set(r->el, EL_PROMPT, get_prompt);
    el_set(r->el, EL_EDITOR, "emacs");
    el_set(r->el, EL_HIST, history, r->history);
    el_set(r->el, EL_GETCFN, read_key);
    el_set(r->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(r->el, EL_ADDFN, "tern-complete", "Complete a command or a file", complete_word);
    el_set(r->el, EL_BIND, "^I", "tern-complete", NULL);
    el_set(r->el, EL_ADDFN, "tern-paste", "Insert what the terminal pastes", take_paste);
    el_set(r->el, EL_BIND, "\\e[200~", "tern-paste", NULL);
    el_set(r->el, EL_ADDFN, "tern-delete", "Delete one visible character", delete_cluster);
    el_set(r->el, EL_BIND, "^?", "tern-delete", NULL);
    el_set(r->el, EL_BIND, "^H", "tern-delete", NULL);
}

// ---- Lines -------------------------------------------------------------------------------------

line_reader *line_open(bool interactive, line_complete_fn complete, void *user) {
    line_reader *r = must_alloc(NULL, 1, sizeof *r);
    *r = (line_reader){.complete = complete, .user = user};
    // No SA_RESTART: a read must return.
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    if (interactive) open_editor(r);
    return r;
}

void line_close(line_reader *r) {
    HistEvent event;
    if (r->history && r->history_path) {
        mode_t old = umask(077); // conversations are private
        history(r->history, &event, H_SAVE, r->history_path);
        umask(old);
    }
    if (r->history) history_end(r->history);
    if (r->el) el_end(r->el);
    if (r->has_before) tcsetattr(STDIN_FILENO, TCSADRAIN, &r->before);
    free(r->line);
    free(r->history_path);
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

static char *edit_line(line_reader *r) {
    bool warned = false;
    for (;;) {
        int n = 0;
        interrupted = 0;
        const char *got = el_gets(r->el, &n);
        if (got && n > 0) {
            HistEvent event;
            size_t length = strlen(got);
            while (length && strchr("\r\n", got[length - 1])) length--;
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

static void mark_pastes(bool marks) {
    const char *terminal = getenv("TERM");
    if (!terminal || !strcmp(terminal, "dumb")) return;
    fputs(marks ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

char *line_read(line_reader *r, const char *prompt) {
    if (!r->el) return interrupted ? NULL : read_plain(r);
    r->prompt = prompt;
    el_set(r->el, EL_PREP_TERM, 1); // before the prompt is shown: the editor must get the reply
    mark_pastes(true);
    char *line = edit_line(r);
    mark_pastes(false);
    struct termios quiet; // a Ctrl-C during an answer is not echoed into it
    if (tcgetattr(STDIN_FILENO, &quiet) == 0) {
        quiet.c_lflag &= ~(tcflag_t)ECHOCTL;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
    }
    return line;
}
