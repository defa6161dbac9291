// Where a long text is cut for a TTS model: models speak some seconds well, and no more than their
// context holds.
#include <string.h>
#include "base/utf8.h"
#include "session/media/speak.h"

typedef struct cut_places {
    size_t sentence, clause, word, letter; // bytes before the last cut of each kind
} cut_places;

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

// "Dr.", "Mrs.", "J.": a short word that begins with a capital is taken for an abbreviation.
static bool is_abbreviation(const char *text, size_t dot) {
    size_t n = 0;
    while (n < dot && (is_upper(text[dot - 1 - n]) || is_lower(text[dot - 1 - n]))) n++;
    return n > 0 && n <= 3 && is_upper(text[dot - n]);
}

static bool is_in(uint32_t code, const uint32_t *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (list[i] == code) return true;
    return false;
}

// Marks that end a sentence, or a clause, even without a space after them.
static bool ends_sentence_alone(uint32_t c) {
    static const uint32_t list[] = {'\n', 0x3002, 0xff01, 0xff1f, 0x0964};
    return is_in(c, list, sizeof list / sizeof *list);
}
static bool ends_clause(uint32_t c) {
    static const uint32_t list[] = {',', ';', ':', 0x3001, 0xff0c, 0xff1b, 0xff1a, 0x060c};
    return is_in(c, list, sizeof list / sizeof *list);
}
static bool ends_sentence(uint32_t c) {
    static const uint32_t list[] = {'.', '!', '?', 0x2026, 0x061f};
    return is_in(c, list, sizeof list / sizeof *list);
}
static bool closes(uint32_t c) {
    static const uint32_t list[] = {'"', '\'', ')', ']', 0x2019, 0x201c, 0x201d, 0xbb, 0x300d};
    return is_in(c, list, sizeof list / sizeof *list);
}

// Notes which kinds of cut are possible after the character of `bytes` at `at`; *open: a sentence
// has ended if only closing marks and a space follow.
static void look(const char *text, size_t n, size_t at, size_t bytes, uint32_t c, bool *open,
                 cut_places *p) {
    size_t behind = at + bytes;
    bool space_follows = behind == n || is_space(text[behind]);
    p->letter = behind;
    if (c < 128 && is_space((char)c)) p->word = behind;
    if (ends_sentence_alone(c)) p->sentence = behind;
    if (ends_clause(c) && (space_follows || c >= 128)) p->clause = behind;
    if (ends_sentence(c))
        *open = !(c == '.' && is_abbreviation(text, at));
    else if (!closes(c))
        *open = false;
    if (!*open || !space_follows) return;
    size_t next = behind;
    while (next < n && is_space(text[next])) next++;
    if (next == n || !is_lower(text[next])) p->sentence = behind;
}

size_t tern_speak_cut(const char *text, size_t n, size_t n_most) {
    cut_places p = {0};
    bool open = false;
    size_t at = 0, n_read = 0;
    for (; at < n && n_read < n_most; n_read++) {
        uint32_t c = 0;
        int bytes = tern_utf8_decode(text + at, n - at, &c);
        if (bytes < 1) bytes = 1; // invalid UTF-8: a byte is a character
        look(text, n, at, (size_t)bytes, c, &open, &p);
        at += (size_t)bytes;
    }
    if (at == n) return n;
    return p.sentence ? p.sentence : p.clause ? p.clause : p.word ? p.word : p.letter;
}
