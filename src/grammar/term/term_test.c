#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/rules/pattern.h"
#include "tests/support/harness.h"

static tern_term make(tern_terms *t, const char *pattern, bool is_search, tern_error *err) {
    tern_term a = TERN_TERM_NOTHING;
    const tern_pattern_way way = {.spelling = TERN_SPELL_UTF8, .is_search = is_search};
    CHECK_MSG(tern_pattern_term(t, pattern, strlen(pattern), way, &a, err) == TERN_OK, "%s: %s",
              pattern, err->message);
    return a;
}

// Seen to fail with derivatives that ignore the parts after one that may be empty; with ^ that
// holds everywhere; with a count whose minimum does not decrease.
TEST(patterns_match_what_they_say) {
    static const struct {
        const char *pattern, *yes[6], *no[6];
    } cases[] = {
        {"^a*b$", {"b", "ab", "aaab"}, {"", "a", "ba", "abb"}},
        {"^(a|bc)+$", {"a", "bc", "abca"}, {"", "b", "ac"}},
        {"^[a-c]{2,3}$", {"ab", "abc"}, {"a", "abcd", "ad"}},
        {"^x{3}$", {"xxx"}, {"xx", "xxxx"}},
        {"^(ab?){2,}$", {"aa", "aba", "abab", "aaaa"}, {"a", "ab", "abb"}},
        {"b", {"b", "abc", "xxb"}, {"", "a", "\xC3\xA9"}},
        {"^b|c$", {"b", "bx", "xc", "c"}, {"xb", "cx"}},
        {"(^|,)x", {"x", "a,x", "xa"}, {"ax", ""}},
        {"^.$", {"a", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"", "ab", "\n", "\xC3", "\xFF"}},
        {"^[^a]$", {"b", "\n", "\xE2\x82\xAC"}, {"a", ""}},
        {"^\\d{4}-\\d\\d$", {"2024-01"}, {"2024-1", "x024-01"}},
        {"^[\\w.-]+$", {"a_b", ".-"}, {"a b", ""}},
        {"^\\u00e9\\x41$",
         {"\xC3\xA9"
          "A"},
         {"e"}},
        {"^[\\u{1F600}-\\u{1F64F}]$", {"\xF0\x9F\x98\x80"}, {"\xF0\x9F\x97\x80"}},
        {"^\\ud83d\\ude00$", {"\xF0\x9F\x98\x80"}, {"\xF0\x9F\x98\x81"}},
        {"^(?=.*\\d)(?=.*[a-z]).{3,}$", {"a1x", "xx1", "1aa"}, {"aaa", "111", "a1"}},
        {"^(?!foo).+$", {"fo", "bar", "xfoo"}, {"foo", "foobar", ""}},
        {"^a(?!b)", {"a", "ac"}, {"ab"}},
        {"^(?:a(?=b)b|c)$", {"ab", "c"}, {"a", "ac"}},
        {"^$", {""}, {"a"}},
        {"", {"", "a"}, {"\xFF"}},
        {"^(a*)*$", {"", "aaa"}, {"b"}},
        {"^(|a)(^b|c)$", {"b", "c", "ac"}, {"ab", "a"}},
        {"a{,2}", {"a{,2}"}, {"aa"}},
        {"^[]$", {NULL}, {"", "a"}},
        {"^[^]$", {"a", "\n"}, {""}},
        {"^(?<year>\\d)x??$", {"1", "1x"}, {"x"}},
        {"^\\p{Lu}\\p{Ll}+$", {"Ab", "\xC3\x89t\xC3\xA9"}, {"ab", "AB", "A1"}},
        {"^[\\p{Letter}\\p{Mark}'-]+$", {"O'Neil", "\xE4\xB8\x80", "e\xCC\x81"}, {"a b", "7"}},
        {"^\\P{L}$", {"1", " ", "\xF0\x9F\x98\x80"}, {"a", "\xC3\xA9", "\xC3"}},
        {"^[^\\p{gc=Nd}\\P{ASCII}]$", {"a", " "}, {"1", "\xC3\xA9"}},
        {"^\\p{General_Category=Decimal_Number}$", {"1", "\xD9\xA3"}, {"\xC2\xBD", "x"}},
        {"^\\p{Any}\\p{Assigned}$",
         {"\xCD\xB8"
          "a"},
         {"a\xCD\xB8", "a"}},
        {"^\\p{Cs}$", {NULL}, {"a"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_terms t;
        tern_error err = {0};
        REQUIRE_OK(tern_terms_open(&t, 0, &err), err);
        tern_term a = make(&t, cases[i].pattern, true, &err);
        for (size_t k = 0; k < 6 && cases[i].yes[k]; k++)
            CHECK_MSG(tern_term_matches(&t, a, cases[i].yes[k], strlen(cases[i].yes[k])),
                      "%s does not match '%s'", cases[i].pattern, cases[i].yes[k]);
        for (size_t k = 0; k < 6 && cases[i].no[k]; k++)
            CHECK_MSG(!tern_term_matches(&t, a, cases[i].no[k], strlen(cases[i].no[k])),
                      "%s matches '%s'", cases[i].pattern, cases[i].no[k]);
        tern_terms_close(&t);
    }
}

// In a JSON string a character may be written in several ways, and counts as one.
TEST(patterns_see_through_the_escapes_of_json) {
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"^a$", "a", true},
        {"^a$", "\\u0061", true},
        {"^.$", "\\ud83d\\ude00", true},
        {"^.$", "\\uD83D\\uDE00", true},
        {"^.$", "\\ud83d", false},
        {"^.$", "\\ude00\\ud83d", false},
        {"^.$", "\"", false},
        {"^.$", "\\\"", true},
        {"^.$", "\\n", false},
        {"^[^a]$", "\\n", true},
        {"^[^a]$", "\n", false},
        {"^\\/$", "\\/", true},
        {"^\\/$", "/", true},
        {"^\\\\$", "\\\\", true},
        {"^\\\\$", "\\u005C", true},
        {"^[a-z]{2}$", "a\\u007A", true},
        {"^[a-z]{2}$", "a\\u007B", false},
        {"^\\u00e9$", "\\u00E9", true},
        {"^\\u00e9$", "\xC3\xA9", true},
        {"^.{2}$", "\\u00e", false},
    };
    tern_terms t;
    tern_error err = {0};
    REQUIRE_OK(tern_terms_open(&t, 0, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_term a;
        REQUIRE_OK(tern_pattern_term(&t, cases[i].pattern, strlen(cases[i].pattern),
                                     (tern_pattern_way){TERN_SPELL_JSON, .is_search = true}, &a,
                                     &err),
                   err);
        CHECK_MSG(tern_term_matches(&t, a, cases[i].text, strlen(cases[i].text)) ==
                      cases[i].matches,
                  "%s on %s", cases[i].pattern, cases[i].text);
    }
    tern_terms_close(&t);
}

TEST(patterns_that_are_not_known_are_refused_by_name_and_place) {
    static const char *const cases[][2] = {
        {"(a)\\1", "reference back (\\1) at character 4"},
        {"(?<=a)b", "looking behind at character 1"},
        {"a\\b", "word boundary (\\b) at character 2"},
        {"\\p{Script=Greek}", "an unknown property (\\p) at character 1"},
        {"\\p{Letters}", "an unknown property"},
        {"\\pL", "an unknown property"},
        {"[\\p{L]", "an unknown property"},
        {"(a", "( without ) at character 1"},
        {"a)", ") without ("},
        {"[a", "[ without ]"},
        {"*a", "nothing that could be repeated"},
        {"a**", "a repeat of a repeat"},
        {"[z-a]", "range that falls"},
        {"a{3,2}", "count that falls"},
        {"a{1000000}", "count over 100000"},
        {"(?i)a", "unknown kind of group"},
        {"\\Aa", "unknown escape"},
        {"(?=a)*", "that is repeated"},
        {"(^a|b)^", "a second ^"},
        {"\\ud800", "half of a surrogate pair"},
        {"a\\", "backslash without a character"},
    };
    tern_terms t;
    tern_error err = {0};
    REQUIRE_OK(tern_terms_open(&t, 0, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_term a;
        tern_status status =
            tern_pattern_term(&t, cases[i][0], strlen(cases[i][0]),
                              (tern_pattern_way){TERN_SPELL_UTF8, .is_search = true}, &a, &err);
        CHECK_MSG(status == TERN_ERR_UNSUPPORTED && strstr(err.message, cases[i][1]), "%s: %s",
                  cases[i][0], err.message);
    }
    tern_terms_close(&t);
}

// A language without texts must be recognized: a prefix that leads nowhere is worse than an error.
// Seen to fail with a search that marks everything it saw as dead once it finds a text.
TEST(terms_know_whether_a_text_is_left) {
    tern_terms t;
    tern_error err = {0};
    REQUIRE_OK(tern_terms_open(&t, 0, &err), err);
    tern_term short_ones = make(&t, "^.{0,3}$", true, &err);
    tern_term long_ones = make(&t, "^.*abcd$|^xy$", true, &err);
    tern_term both = tern_term_and(&t, short_ones, long_ones);
    CHECK(tern_term_is_alive(&t, both));
    CHECK(tern_term_step(&t, both, 'a') == TERN_TERM_NOTHING); // abcd has four characters
    CHECK(tern_term_step(&t, both, 'x') != TERN_TERM_NOTHING);
    CHECK(tern_term_matches(&t, both, "xy", 2) && !tern_term_matches(&t, both, "abcd", 4));
    tern_term two_ways =
        tern_term_and(&t, make(&t, "^.{0,4}$", true, &err), make(&t, "^xy$|^pqrs$", true, &err));
    CHECK(tern_term_is_alive(&t, two_ways)); // by the shorter way, and still by the other one
    CHECK(tern_term_step(&t, two_ways, 'p') != TERN_TERM_NOTHING);
    tern_term even = make(&t, "^(aa)*$", true, &err), odd = make(&t, "^a(aa)*$", true, &err);
    CHECK(!tern_term_is_alive(&t, tern_term_and(&t, even, odd)));
    CHECK(!tern_term_is_alive(&t, tern_term_and(&t, even, tern_term_not(&t, even))));
    CHECK(tern_term_or(&t, even, odd) == tern_term_or(&t, odd, even));
    tern_terms_close(&t);
}

// Counts of the same term are one state, not one for each way to count. Seen to fail (a union of
// hundreds) without joining repeats.
TEST(counting_twice_does_not_multiply_states) {
    tern_terms t;
    tern_error err = {0};
    REQUIRE_OK(tern_terms_open(&t, 0, &err), err);
    tern_term a = make(&t, "^(a|aa){0,400}$", true, &err);
    for (int i = 0; i < 300; i++) a = tern_term_step(&t, a, 'a');
    CHECK(tern_term_is_nullable(&t, a));
    CHECK_MSG(t.nodes[a].kind != TERN_KIND_EITHER || t.nodes[a].b < 6, "%u", t.nodes[a].b);
    tern_terms_close(&t);
}

// At the memory limit there is an error, and the term that failed has no texts.
TEST(terms_have_a_limit) {
    tern_terms t;
    tern_error err = {0};
    REQUIRE_OK(tern_terms_open(&t, 1 << 20, &err), err);
    tern_term a = make(&t, "(a|b)*a(a|b){300}", true, &err);
    for (unsigned i = 0; i < 100000 && a; i++)
        a = tern_term_step(&t, a, (unsigned)(tern_mix64(i) & 1) + 'a');
    CHECK(tern_terms_check(&t, &err) == TERN_ERR_UNSUPPORTED);
    CHECK(a == TERN_TERM_NOTHING);
    tern_terms_close(&t);
}

TEST(terms_survive_every_allocation_that_fails) {
    tern_error err;
    bool finished = false;
    static const char pattern[] = "^(?=.*b)[a-f]{2,3}(x|y|z|\\d)*$";
    for (uint64_t n = 1; n < 1000 && !finished; n++) {
        tern_terms t;
        tern_term a = TERN_TERM_NOTHING;
        tern_mem_fail_at(n);
        tern_status status = tern_terms_open(&t, 0, &err);
        if (status == TERN_OK)
            status =
                tern_pattern_term(&t, pattern, strlen(pattern),
                                  (tern_pattern_way){TERN_SPELL_JSON, .is_search = true}, &a, &err);
        if (status == TERN_OK) {
            finished = tern_term_matches(&t, a, "abx", 3);
            if (!finished) status = tern_terms_check(&t, &err);
        }
        tern_mem_fail_at(0);
        CHECK(finished || status == TERN_ERR_MEMORY);
        tern_terms_close(&t);
    }
    CHECK(finished);
}
