// How text from elsewhere is shown to people.
#include "base/plain.h"

#include <string.h>
#include "base/utf8.h"
#include "tests/support/harness.h"

static void check(bool is_text, const char *text, size_t n, const char *want) {
    for (size_t cut = 0; cut <= n; cut++) { // in two pieces, cut between characters
        if (cut < n && ((unsigned char)text[cut] & 0xC0) == 0x80) continue;
        tern_plain p = {.is_text = is_text};
        tern_strbuf out = {0};
        tern_plain_put(&p, text, cut, &out);
        tern_plain_put(&p, text + cut, n - cut, &out);
        CHECK_MSG(!strcmp(tern_strbuf_text(&out), want), "%s", tern_strbuf_text(&out));
        tern_strbuf_free(&out);
    }
}

// Seen to fail: with a joiner behind another one kept; with the last character lost between pieces;
// with tags taken for characters.
TEST(plain_text) {
    static const struct {
        const char *text, *line, *running; // NULL: as the line
    } rows[] = {
        {"plain, \xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x98\x80",
         "plain, \xC3\xA9 \xE4\xBD\xA0 \xF0\x9F\x98\x80", NULL},
        {"a\tb\nc\rd", "a\\tb\\nc\\u{0D}d", "a\tb\nc\\u{0D}d"},
        {"\x1B[31mred\x7F\xC2\x9B", "\\u{1B}[31mred\\u{7F}\\u{9B}", NULL},
        {"rm \xE2\x80\xAEgpj.tac\xE2\x80\xAC", "rm \\u{202E}gpj.tac\\u{202C}", NULL},
        {"\xE2\x81\xA6x\xE2\x80\x8B\xE2\x80\xA8\xE2\x80\xA9",
         "\\u{2066}x\\u{200B}\\u{2028}\\u{2029}", NULL},
        {"\xF3\xA0\x81\x81\xF3\xA0\x84\x80", "\\u{E0041}\\u{E0100}", NULL},
        {"\xEF\xBB\xBFx\xC2\xADy\xE3\x85\xA4", "\\u{FEFF}x\\u{AD}y\\u{3164}", NULL},
        // A heart with its variant, a family, a key, and a word of Persian; but no rows of them.
        {"\xE2\x9D\xA4\xEF\xB8\x8F", "\xE2\x9D\xA4\\u{FE0F}", "\xE2\x9D\xA4\xEF\xB8\x8F"},
        {"\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9",
         "\xF0\x9F\x91\xA8\\u{200D}\xF0\x9F\x91\xA9",
         "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9"},
        {"1\xEF\xB8\x8F\xE2\x83\xA3", "1\\u{FE0F}\xE2\x83\xA3", "1\xEF\xB8\x8F\xE2\x83\xA3"},
        {"\xD9\x85\xDB\x8C\xE2\x80\x8C\xD8\xAE", "\xD9\x85\xDB\x8C\\u{200C}\xD8\xAE",
         "\xD9\x85\xDB\x8C\xE2\x80\x8C\xD8\xAE"},
        {"\xE2\x9D\xA4\xEF\xB8\x8F\xEF\xB8\x8E", "\xE2\x9D\xA4\\u{FE0F}\\u{FE0E}",
         "\xE2\x9D\xA4\xEF\xB8\x8F\\u{FE0E}"},
        {"a\xE2\x80\x8D"
         "b",
         "a\\u{200D}b", NULL},
        {"\xE2\x80\x8D", "\\u{200D}", NULL},
        // Invalid UTF-8.
        {"a\xC3(\xFF", "a\\x{C3}(\\x{FF}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].text);
        check(false, rows[i].text, n, rows[i].line);
        check(true, rows[i].text, n, rows[i].running ? rows[i].running : rows[i].line);
    }
    check(false, "a\0b", 3, "a\\u{00}b");
}

// Shown text is shown again unchanged, whatever it came from.
TEST(plain_of_plain) {
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        char bytes[4];
        tern_strbuf once = {0}, twice = {0};
        tern_plain_line(bytes, (size_t)tern_utf8_encode(code, bytes), &once);
        tern_plain_line(once.ptr, once.len, &twice);
        CHECK_MSG(!strcmp(once.ptr, twice.ptr), "%04X: %s", (unsigned)code, once.ptr);
        tern_strbuf_free(&once);
        tern_strbuf_free(&twice);
    }
}
