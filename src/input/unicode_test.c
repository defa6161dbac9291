#include "input/unicode.h"
#include <string.h>
#include "base/alloc.h"
#include "tests/support/harness.h"

static void check_form(tern_normal_form form, const char *from, const char *to, int line) {
    tern_strbuf out = {0};
    tern_error err = {0};
    bool ok = tern_unicode_normalize(&out, form, from, strlen(from), &err) == TERN_OK;
    test_check(ok && strcmp(tern_strbuf_text(&out), to) == 0, __FILE__, line, "\"%s\" gave \"%s\"",
               from, tern_strbuf_text(&out));
    tern_strbuf_free(&out);
}
#define CHECK_FORM(form, from, to) check_form(form, from, to, __LINE__)

TEST(unicode_normal_forms) {
    CHECK_FORM(TERN_NFC, "plain, e\xCC\x81t\xC3\xA9.", "plain, \xC3\xA9t\xC3\xA9.");
    CHECK_FORM(TERN_NFD, "\xC3\xA9", "e\xCC\x81");
    CHECK_FORM(TERN_NFC, "e\xCC\x81", "\xC3\xA9");
    CHECK_FORM(TERN_NFC, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", "\xED\x95\x9C"); // Hangul
    CHECK_FORM(TERN_NFD, "\xED\x95\x9C", "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB");
    CHECK_FORM(TERN_NFKC, "\xEF\xAC\x81 \xC2\xB2", "fi 2");
    CHECK_FORM(TERN_NFKD, "\xEF\xAC\x81\xC3\xA9", "fie\xCC\x81");
    CHECK_FORM(TERN_NFC, "\xE2\x84\xAB", "\xC3\x85"); // the Angstrom sign is a letter
    // A mark below (class 220) comes before one above (230), equal classes keep their order.
    CHECK_FORM(TERN_NFD, "a\xCC\x88\xCC\x81\xCC\xA3", "a\xCC\xA3\xCC\x88\xCC\x81");
    CHECK_FORM(TERN_NFC, "", "");
}

TEST(unicode_orders_a_million_marks_in_no_time) {
    const size_t n = 1 << 20;
    char *text = tern_alloc(TERN_MEM_MISC, 2 * n + 1);
    REQUIRE(text);
    text[0] = 'x';
    for (size_t i = 0; i < n; i++) memcpy(text + 1 + 2 * i, i & 1 ? "\xCC\xA3" : "\xCC\x81", 2);
    tern_strbuf out = {0};
    tern_error err = {0};
    CHECK(tern_unicode_normalize(&out, TERN_NFD, text, 2 * n + 1, &err) == TERN_OK);
    CHECK(out.len == 2 * n + 1 && memcmp(out.ptr + 1, "\xCC\xA3\xCC\xA3", 4) == 0 &&
          memcmp(out.ptr + out.len - 4, "\xCC\x81\xCC\x81", 4) == 0);
    tern_strbuf_free(&out);
    tern_free(text);
}

TEST(unicode_repairs_as_the_standard_recommends) {
    static const struct {
        const char *bad, *good;
    } cases[] = {
        {"a\xFF"
         "b",
         "a\xEF\xBF\xBD"
         "b"},
        {"\xE2\x82", "\xEF\xBF\xBD"}, // cut: one
        {"\xE2\x82x", "\xEF\xBF\xBDx"},
        {"\xF0\x9F\x92\xF0\x9F\x92\xA9", "\xEF\xBF\xBD\xF0\x9F\x92\xA9"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, // a surrogate: three
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},                 // overlong: two
        {"fine", "fine"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_strbuf out = {0};
        tern_unicode_repair(&out, cases[i].bad, strlen(cases[i].bad));
        CHECK_MSG(strcmp(tern_strbuf_text(&out), cases[i].good) == 0, "case %zu", i);
        CHECK(tern_unicode_is_valid(tern_strbuf_text(&out), out.len));
        tern_strbuf_free(&out);
    }
    CHECK(!tern_unicode_is_valid("\x80", 1) && tern_unicode_is_valid(NULL, 0));
}

TEST(unicode_classes) {
    static const struct {
        uint32_t code;
        tern_char_class class;
    } cases[] = {
        {'x', TERN_CHAR_LETTER},   {0x4E2D, TERN_CHAR_LETTER}, {'7', TERN_CHAR_NUMBER},
        {0xB2, TERN_CHAR_NUMBER},  {'\n', TERN_CHAR_NEWLINE},  {'\t', TERN_CHAR_SPACE},
        {0x2028, TERN_CHAR_SPACE}, {0x85, TERN_CHAR_SPACE},    {0xA0, TERN_CHAR_SPACE},
        {0x180E, TERN_CHAR_OTHER}, {0x301, TERN_CHAR_OTHER},   {0, TERN_CHAR_OTHER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_MSG(tern_unicode_class(cases[i].code) == cases[i].class, "%x",
                  (unsigned)cases[i].code);
    CHECK(tern_unicode_is_punct('$') && tern_unicode_is_punct(0x3002));
    CHECK(!tern_unicode_is_punct('a') && !tern_unicode_is_punct(' '));
    CHECK(tern_unicode_is_word('_') && tern_unicode_is_word(0x301) && !tern_unicode_is_word('-'));
    tern_strbuf out = {0};
    tern_unicode_lower(&out, "\xC3\x89\xC4\xB0X", 5);
    CHECK(strcmp(tern_strbuf_text(&out), "\xC3\xA9i\xCC\x87x") == 0);
    tern_strbuf_free(&out);
}
