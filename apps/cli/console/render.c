// A word is held back until its end is known, and the beginning of a line until its kind is known:
// a heading, an item of a list, the fence of a block of code. Widths of characters are utf8proc's.
// Blocks of code are not wrapped.
#include "render.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>
#include "apps/system/system.h"
#include "base/plain.h"
#include "cli.h"

#define BOLD       "\033[1m"
#define BOLD_OFF   "\033[22m"
#define ITALIC     "\033[3m"
#define ITALIC_OFF "\033[23m"
#define CODE       "\033[36m"
#define CODE_OFF   "\033[39m"
#define DIM        "\033[2m"

typedef enum line_kind {
    LINE_HEAD, // its first characters, held back in `head`
    LINE_TEXT,
    LINE_HEADING,
    LINE_FENCE, // ``` itself
    LINE_CODE,  // between fences
} line_kind;

struct renderer {
    bool wrap, styled, any;                   // any: something was rendered
    tern_plain plain;                         // filters the text
    text out, word, head;                     // word: with the escape sequences in it
    int columns;                              // of the window, 0: unlimited
    int column, word_width, n_spaces, indent; // indent: of a wrapped line's continuation
    line_kind line;
    bool in_code_block, bold, italic, escaped, joined; // escaped: after a backslash; joined: after
                                                       // a zero-width joiner
    int n_stars, n_ticks, code_ticks; // marks held back; those that opened inline code
    bool after_space, after_word;     // before the marks
};

bool render_may_style(void) {
    const char *no_color = getenv("NO_COLOR");
    return terminal_has_styles(STDOUT_FILENO) && !(no_color && *no_color);
}

renderer *render_open(bool wrap, bool styled) {
    renderer *r = must_alloc(NULL, 1, sizeof *r);
    *r =
        (renderer){.wrap = wrap, .styled = styled, .after_space = true, .plain = {.is_text = true}};
    return r;
}

// ---- Words --------------------------------------------------------------------------------------

static void flush_word(renderer *r) {
    static const char spaces[] = "                ";
    if (r->word.n == 0) return;
    bool fits = r->column + r->n_spaces + r->word_width <= r->columns;
    if (r->columns > 0 && !fits && r->column > r->indent) {
        text_puts(&r->out, "\n");
        r->column = 0;
        r->n_spaces = r->indent;
    }
    for (; r->n_spaces > 0; r->n_spaces--, r->column++) text_append(&r->out, spaces, 1);
    text_append(&r->out, r->word.ptr, r->word.n);
    r->column += r->word_width;
    r->word.n = 0;
    r->word_width = 0;
}

static void style(renderer *r, const char *code) {
    if (r->styled) text_puts(&r->word, code);
}

// One character of text, without markup.
static void put_char(renderer *r, const char *bytes, size_t n, uint32_t code) {
    int width = code == '\t' ? 4 : utf8proc_charwidth((utf8proc_int32_t)code);
    bool modifies = r->joined || (code >= 0x1f3fb && code <= 0x1f3ff) || code == 0x200d;
    bool is_control = code < 32 || (code >= 127 && code < 160);
    r->joined = code == 0x200d;
    r->after_space = code == ' ' || code == '\t';
    r->after_word = !r->after_space && !(code < 128 && ispunct((int)code));
    if (r->line == LINE_CODE || r->line == LINE_FENCE) { // unchanged; the terminal breaks the line
        text_append(&r->word, is_control && code != '\t' ? "?" : bytes, n);
    } else if (r->after_space) {
        flush_word(r);
        r->n_spaces += width;
    } else if (is_control) {
        text_append(&r->word, "?", 1);
        r->word_width++;
    } else {
        bool alone = width == 2 && !modifies; // a line may break before and after it
        if (alone) flush_word(r);
        text_append(&r->word, bytes, n);
        if (!modifies) r->word_width += width;
        if (r->columns > 0 && r->word_width >= r->columns - r->indent) flush_word(r);
    }
}

static void put_ascii(renderer *r, char c, int n) {
    for (int i = 0; i < n; i++) put_char(r, &c, 1, (unsigned char)c);
}

// ---- Inline marks -------------------------------------------------------------------------------

static void set_bold(renderer *r, bool on) {
    r->bold = on;
    style(r, on ? BOLD : BOLD_OFF);
}

static void set_italic(renderer *r, bool on) {
    r->italic = on;
    style(r, on ? ITALIC : ITALIC_OFF);
}

// Stars before the character `next`: emphasis begins before a word and ends after one. A single
// star between words is a product.
static void settle_stars(renderer *r, uint32_t next) {
    int n = r->n_stars;
    bool before_space = next == ' ' || next == '\t' || next == '\n' || next == 0;
    bool is_on = n == 1 ? r->italic : n == 2 ? r->bold : r->bold && r->italic;
    bool ends = is_on && !r->after_space;
    bool begins = !is_on && !before_space && (n != 1 || !r->after_word);
    r->n_stars = 0;
    if (n == 0) return;
    if (!r->styled || n > 3 || !(ends || begins)) {
        put_ascii(r, '*', n);
        return;
    }
    if (n != 1) set_bold(r, begins);
    if (n != 2) set_italic(r, begins);
}

static void settle_ticks(renderer *r) {
    int n = r->n_ticks;
    r->n_ticks = 0;
    if (n == 0) return;
    bool begins = !r->code_ticks, ends = r->code_ticks == n;
    if (!r->styled || n > 2 || !(begins || ends)) {
        put_ascii(r, '`', n);
        return;
    }
    r->code_ticks = begins ? n : 0;
    style(r, begins ? CODE : CODE_OFF);
}

static void put_inline(renderer *r, const char *bytes, size_t n, uint32_t code) {
    bool was_escaped = r->escaped;
    r->escaped = false;
    if (was_escaped) {
        bool is_mark = code < 128 && strchr("*_`#\\", (int)code) && code;
        if (!is_mark || !r->styled) put_ascii(r, '\\', 1);
        if (is_mark) {
            put_char(r, bytes, n, code);
            return;
        }
    }
    if (code != '`') settle_ticks(r);
    if (code != '*' || r->code_ticks) settle_stars(r, code);
    if (code == '`')
        r->n_ticks++;
    else if (code == '*' && !r->code_ticks)
        r->n_stars++;
    else if (code == '\\' && !r->code_ticks)
        r->escaped = true;
    else
        put_char(r, bytes, n, code);
}

// ---- Lines --------------------------------------------------------------------------------------

// Columns of the mark that begins an item of a list, with the space after it; 0: not an item.
static int list_mark(const char *s) {
    size_t n = strspn(s, " "), digits = strspn(s + n, "0123456789");
    if (digits > 0 && digits < 4 && (s[n + digits] == '.' || s[n + digits] == ')'))
        n += digits + 1;
    else if (s[n] && strchr("-*+", s[n]))
        n++;
    else
        return 0;
    return s[n] == ' ' ? (int)n + 1 : 0;
}

static void put_head(renderer *r, const char *s) {
    for (; *s; s++) {
        if (r->line == LINE_CODE || r->line == LINE_FENCE)
            put_ascii(r, *s, 1);
        else
            put_inline(r, s, 1, (unsigned char)*s);
    }
}

// The beginning of a line is complete, or the whole line.
static void settle_head(renderer *r) {
    const char *s = r->head.n ? r->head.ptr : "", *mark = s + strspn(s, " ");
    size_t n_hashes = strspn(mark, "#");
    r->indent = 0;
    if (!strncmp(mark, "```", 3)) {
        r->line = LINE_FENCE;
        style(r, DIM);
        put_head(r, s);
    } else if (r->in_code_block) {
        r->line = LINE_CODE;
        put_head(r, s);
    } else if (n_hashes > 0 && n_hashes < 7 && mark[n_hashes] == ' ') {
        r->line = LINE_HEADING;
        style(r, BOLD);
        put_head(r, r->styled ? mark + n_hashes + 1 : s);
    } else {
        int columns = list_mark(s);
        r->line = LINE_TEXT;
        for (int i = 0; i < columns; i++) put_ascii(r, s[i], 1);
        r->indent = columns < 16 ? columns : 16;
        put_head(r, s + columns);
    }
    r->head.n = 0;
}

// Whether a line's beginning may still become a mark.
static bool is_open_head(const renderer *r, uint32_t code) {
    return code < 128 && code && strchr(" #`-*+.)0123456789", (int)code) && r->head.n < 12;
}

static void end_line(renderer *r) {
    if (r->line == LINE_HEAD) settle_head(r);
    if (r->escaped) put_ascii(r, '\\', 1);
    settle_ticks(r);
    settle_stars(r, '\n');
    if (r->bold) set_bold(r, false);
    if (r->italic) set_italic(r, false);
    if (r->code_ticks) style(r, CODE_OFF);
    if (r->line == LINE_HEADING || r->line == LINE_FENCE) style(r, BOLD_OFF);
    if (r->line == LINE_FENCE) {
        r->in_code_block = !r->in_code_block;
        style(r, r->in_code_block ? CODE : CODE_OFF);
    }
    r->code_ticks = 0;
    r->escaped = false;
    flush_word(r);
    r->column = r->n_spaces = 0;
    r->line = LINE_HEAD;
    r->after_space = true;
    r->after_word = false;
}

static void put_text(renderer *r, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t code;
        utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(n - i), &code);
        size_t used = length > 0 ? (size_t)length : 1;
        uint32_t c = length > 0 ? (uint32_t)code : 0xfffd;
        const char *bytes = length > 0 ? s + i : "\xef\xbf\xbd";
        size_t n_bytes = length > 0 ? used : 3;
        i += used;
        if (c == '\n') {
            end_line(r);
            text_puts(&r->out, "\n");
        } else if (r->line == LINE_HEAD && is_open_head(r, c)) {
            text_append(&r->head, bytes, n_bytes);
        } else {
            if (r->line == LINE_HEAD) settle_head(r);
            if (r->line == LINE_CODE || r->line == LINE_FENCE)
                put_char(r, bytes, n_bytes, c);
            else
                put_inline(r, bytes, n_bytes, c);
        }
    }
}

bool render_text(renderer *r, const char *s, size_t n) {
    tern_strbuf shown = {0};
    if (r->wrap) r->columns = terminal_columns(STDOUT_FILENO);
    r->any |= n > 0;
    if (r->columns < 20) r->columns = 0; // too narrow for words, or not known
    tern_plain_put(&r->plain, s, n, &shown);
    put_text(r, tern_strbuf_text(&shown), shown.len);
    tern_strbuf_free(&shown);
    if (r->line == LINE_CODE || r->line == LINE_FENCE) flush_word(r);
    bool ok = r->out.n == 0 || write_out(NULL, r->out.ptr, r->out.n);
    r->out.n = 0;
    return ok;
}

bool render_close(renderer *r) {
    end_line(r);
    if (r->in_code_block && r->styled) text_puts(&r->out, CODE_OFF);
    text_puts(&r->out, "\n");
    bool ok = !r->any || write_out(NULL, r->out.ptr, r->out.n);
    free(r->out.ptr);
    free(r->word.ptr);
    free(r->head.ptr);
    free(r);
    return ok;
}
