// See agent_screen.h. A terminal continues a long line at the very left, without the margin; so
// lines are broken here first.
#include "agent_screen.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>
#include "base/utf8.h"

#define TEXT_MARGIN  "| "
#define LINE_MARGIN  "       "
#define LEAST_WIDTH  20 // of a window; in a narrower one a margin is useless
#define LATE_SECONDS 30 // time to answer if something was typed too early

// ---- Lines --------------------------------------------------------------------------------------

static int window_columns(FILE *f) {
    const int known = terminal_columns(fileno(f));
    return known >= LEAST_WIDTH ? known - 1 : 0; // some terminals break after the last column
}

static void write_bytes(agent_screen *s, const char *bytes, size_t n) {
    s->failed |= s->f == stdout ? !write_out(NULL, bytes, n) : fwrite(bytes, 1, n, s->f) != n;
}

// Rather too wide than too narrow: terminals differ in the widths of symbols and emoji.
static int width_of(uint32_t code) {
    if (code >= 0x2190 && code < 0x2C00) return 2;
    return utf8proc_charwidth((utf8proc_int32_t)code);
}

static void new_line(agent_screen *s) {
    write_bytes(s, "\n", 1);
    write_bytes(s, s->margin, strlen(s->margin));
    s->column = (int)strlen(s->margin);
    s->n_blanks = 0;
}

// Line ends at the end of a text are not shown.
static void put_line_ends(agent_screen *s) {
    for (; s->n_ends > 0; s->n_ends--) new_line(s);
}

static void put_word(agent_screen *s) {
    if (!s->word.len) return;
    put_line_ends(s);
    int wanted = s->column + s->n_blanks + s->word_width;
    if (s->columns && wanted > s->columns && s->column > (int)strlen(s->margin)) new_line(s);
    for (; s->n_blanks > 0; s->n_blanks--, s->column++) write_bytes(s, " ", 1);
    write_bytes(s, s->word.ptr, s->word.len);
    s->column += s->word_width;
    s->word_width = 0;
    tern_strbuf_clear(&s->word);
}

static void put_blanks(agent_screen *s, int n) {
    put_word(s);
    put_line_ends(s);
    s->n_blanks += n;
    if (s->columns && s->column + s->n_blanks >= s->columns) new_line(s);
}

// Text without the control characters that a terminal obeys, except line ends.
static void put_wrapped(agent_screen *s, const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        int length = tern_utf8_decode(bytes + i, n - i, &code);
        size_t used = length > 0 ? (size_t)length : 1;
        int width = width_of(code);
        if (code == '\n') {
            put_word(s);
            s->n_blanks = 0;
            s->n_ends++;
        } else if (code == ' ' || code == '\t') {
            put_blanks(s, code == '\t' ? 4 : 1);
        } else {
            bool is_full =
                s->columns && (int)strlen(s->margin) + s->word_width + width > s->columns;
            if (is_full) put_word(s);
            tern_strbuf_append(&s->word, bytes + i, used);
            s->word_width += width > 0 ? width : 0;
        }
        i += used;
    }
}

static void put_foreign(agent_screen *s, const char *bytes, size_t n) {
    tern_strbuf shown = {0};
    tern_plain_put(&s->plain, bytes, n, &shown);
    put_wrapped(s, tern_strbuf_text(&shown), shown.len);
    s->failed |= shown.failed || s->word.failed;
    tern_strbuf_free(&shown);
}

// ---- The model's text ---------------------------------------------------------------------------

void screen_text(agent_screen *s, const char *bytes, size_t n) {
    if (!n) return;
    if (!s->is_open) {
        s->f = stdout, s->margin = TEXT_MARGIN;
        s->plain = (tern_plain){.is_text = true};
        s->is_open = true;
        s->column = (int)strlen(s->margin);
        write_bytes(s, s->margin, strlen(s->margin));
    }
    s->columns = window_columns(stdout);
    put_foreign(s, bytes, n);
    fflush(stdout);
}

void screen_end_text(agent_screen *s) {
    if (!s->is_open) return;
    put_word(s);
    s->n_blanks = s->n_ends = 0;
    s->is_open = false;
    write_bytes(s, "\n", 1);
}

void screen_free(agent_screen *s) { tern_strbuf_free(&s->word); }

// ---- Lines of tern's own ------------------------------------------------------------------------

static void put_line(const char *own, const char *bytes, size_t n, const char *after) {
    agent_screen s = {.f = stderr, .margin = LINE_MARGIN, .columns = window_columns(stderr)};
    put_wrapped(&s, own, strlen(own));
    put_foreign(&s, bytes, n);
    put_wrapped(&s, after, strlen(after));
    put_word(&s);
    for (; s.n_blanks > 0; s.n_blanks--) fputc(' ', stderr);
    screen_free(&s);
}

void screen_line(const char *own, const char *bytes, size_t n, const char *after) {
    put_line(own, bytes ? bytes : "", bytes ? n : 0, after ? after : "");
    fputc('\n', stderr);
}

// ---- Questions ----------------------------------------------------------------------------------

// Waits until input can be read, or for so long (0: without a limit). In short steps: a signal
// before a wait does not end it.
static bool wait_for_input(double seconds) {
    double end = seconds_now() + seconds;
    while (!was_cancelled() && (seconds <= 0 || seconds_now() < end))
        if (terminal_wait(0.1)) return true;
    return false;
}

// Reads the terminal itself: stdio would keep the input after the line for the next question.
static bool read_line(double seconds, text *line) {
    char bytes[256];
    line->n = 0;
    text_puts(line, "");
    for (;;) {
        if (!wait_for_input(seconds)) return false;
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (was_cancelled() || n == 0 || (n < 0 && errno != EINTR)) return false;
        if (n < 0) continue;
        const char *end = memchr(bytes, '\n', (size_t)n);
        text_append(line, bytes, end ? (size_t)(end - bytes) : (size_t)n);
        if (end) return true;
    }
}

bool screen_ask(const char *bytes, size_t n, const char *own, text *line) {
    // Input typed before a question does not answer it; perhaps a program is typing, unattended.
    bool early = terminal_forget();
    if (early)
        fprintf(stderr,
                "note: what was typed before this question does not answer it; it waits %d "
                "seconds\n",
                LATE_SECONDS);
    put_line("", bytes, n, own);
    bool ok = read_line(early ? LATE_SECONDS : 0, line);
    if (!ok) fputc('\n', stderr);
    return ok;
}
