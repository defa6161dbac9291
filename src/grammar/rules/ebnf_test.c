#include <string.h>
#include "base/alloc.h"
#include "grammar/mask/automaton.h"
#include "tests/support/harness.h"

typedef struct ebnf_case {
    tern_grammar_kind kind;
    const char *text, *yes[8], *no[8];
} ebnf_case;

static bool accepts(tern_automaton *a, const char *text) {
    tern_gplace place = tern_automaton_start(a);
    tern_error err = {0};
    CHECK(tern_automaton_add(a, &place, text, strlen(text), &err) == TERN_OK);
    return place != TERN_PLACE_NONE && tern_automaton_accepts(a, place);
}

static void check_cases(const ebnf_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tern_automaton *a = NULL;
        tern_error err = {0};
        const tern_grammar_source source = {.kind = cases[i].kind,
                                            .text = {cases[i].text, strlen(cases[i].text)}};
        bool ok = tern_automaton_open(&a, &source, NULL, &err) == TERN_OK;
        CHECK_MSG(ok, "%s: %s", cases[i].text, err.message);
        for (size_t k = 0; ok && k < 8 && cases[i].yes[k]; k++)
            CHECK_MSG(accepts(a, cases[i].yes[k]), "%s refuses '%s'", cases[i].text,
                      cases[i].yes[k]);
        for (size_t k = 0; ok && k < 8 && cases[i].no[k]; k++)
            CHECK_MSG(!accepts(a, cases[i].no[k]), "%s accepts '%s'", cases[i].text,
                      cases[i].no[k]);
        tern_automaton_close(a);
    }
}

// Seen to fail with expressions that go on over the line of the next rule.
TEST(ebnf_gbnf_is_read_as_llama_cpp_does) {
    static const ebnf_case cases[] = {
        {TERN_GRAMMAR_GBNF, "root ::= \"a\" [b-d]+ # comment\n", {"ab", "abcd"}, {"a", "b", "abe"}},
        {TERN_GRAMMAR_GBNF,
         "root ::= x |\n  y\n\nx ::= \"1\" (\"2\"\n | \"3\")? \ny   ::= \"\\x41\\n\\\"\\u00e9\"",
         {"1", "12", "13", "A\n\"\xC3\xA9"},
         {"2", "123", ""}},
        {TERN_GRAMMAR_GBNF,
         "root ::= \"a\"{2} b{1,} [^x]{0,2}\nb ::= \"b\"",
         {"aab", "aabb", "aabcd"},
         {"ab", "aabxx", "aa"}},
        {TERN_GRAMMAR_GBNF,
         "root ::= \"(\" root \")\" | .",
         {"x", "((\xE2\x82\xAC))", "(x)"},
         {"(x", "x)", "xy"}},
        {TERN_GRAMMAR_GBNF,
         "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= [0-9]+ | \"(\" expr \")\"",
         {"1", "1+2", "(1+22)+3", "((4))"},
         {"+1", "1+", "(1", "1 + 2"}},
        {TERN_GRAMMAR_GBNF, "root ::= [\\]\\-a\\\\]+", {"]-a\\"}, {"b", "["}},
        {TERN_GRAMMAR_GBNF, "root ::= [] | \"x\" \"y\"", {"xy"}, {"", "x", "xyx"}},
        {TERN_GRAMMAR_GBNF,
         "root   ::= object\nvalue  ::= object | array | string | (\"true\" | \"null\") ws\n"
         "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" "
         "ws\n"
         "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
         "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" "
         "[0-9a-fA-F]{4}) )* \"\\\"\" ws\nws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
         {"{}", "{\"a\": [true, {\"b\":\"\\u00ff\"}]}\n"},
         {"{\"a\"}", "[]", "{\"a\":tru}"}},
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

// Seen to fail with ignored texts accepted inside terminals, too, with only the regular
// alternatives kept, with a class negated before its letters' other case was added, and with ECMA's
// dot.
TEST(ebnf_lark_is_read) {
    static const ebnf_case cases[] = {
        {TERN_GRAMMAR_LARK, "start: \"a\" B // comment\nB: /[b-d]+/", {"ab", "abcd"}, {"a", "abe"}},
        {TERN_GRAMMAR_LARK,
         "?start: sum\n?sum: product | sum \"+\" product -> add\n?product: atom | product \"*\" "
         "atom\n"
         "atom: NUMBER | \"-\" atom | \"(\" sum \")\"\n%import common.NUMBER\n"
         "%import common.WS_INLINE -> SPACE\n%ignore SPACE\n",
         {"1", " 1 + 2*3", "( 1+ -2.5 )*3 "},
         {"1 2", "1 +", "()", "1 . 5"}},
        {TERN_GRAMMAR_LARK,
         "start: (\"x\"i | [\"y\"] \"z\")~2..3",
         {"xX", "zyz", "yzXz"},
         {"x", "y", "xxxx"}},
        {TERN_GRAMMAR_LARK,
         "start: W (\",\" W)*\nW: L+ (\"_\" L)?\nL: /[a-z]/\n%ignore \" \"",
         {"ab", "a_b, c", " ab "},
         {"a b", "a_ b", ","}},
        {TERN_GRAMMAR_LARK, "start: name{2,3}\nname.2: \"n\"", {"nn", "nnn"}, {"n"}},
        {TERN_GRAMMAR_LARK, "start: \"a\"..\"c\" \"e\"..\"e\"", {"ae", "ce"}, {"de", "a..c"}},
        {TERN_GRAMMAR_LARK,
         "start: /[b-d]x[^y]/i /./ /./s",
         {"BXzz\n", "cxQ\r\r"},
         {"bxyzz", "bxYzz", "axzzz", "bxz\nz"}},
        {TERN_GRAMMAR_LARK,
         "%llguidance {}\n\nstart: (C_COMMENT | CPP_COMMENT LF)+\n%import common (C_COMMENT, LF, "
         "CPP_COMMENT)",
         {"/* a *b **/", "// /*\n/**/"},
         {"/* */ */", "//"}},
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

TEST(ebnf_choices) {
    static const tern_str choices[] = {{"yes", 3}, {"no", 2}, {"yes, but", 8}, {"\xC3\xA9", 2}};
    static const char *const yes[] = {"yes", "no", "yes, but", "\xC3\xA9"}, *const no[] = {"", "ye",
                                                                                           "maybe",
                                                                                           "yes,"};
    tern_automaton *a;
    tern_error err = {0};
    const tern_grammar_source source = {
        .kind = TERN_GRAMMAR_CHOICES, .choices = choices, .n_choices = 4};
    REQUIRE_OK(tern_automaton_open(&a, &source, NULL, &err), err);
    for (size_t i = 0; i < 4; i++) CHECK(accepts(a, yes[i]) && !accepts(a, no[i]));
    tern_automaton_close(a);
    const tern_grammar_source empty = {.kind = TERN_GRAMMAR_CHOICES};
    CHECK(tern_automaton_open(&a, &empty, NULL, &err) == TERN_ERR_ARGUMENT);
}

// Reasoning before the answer is free, up to its end.
TEST(ebnf_grammar_begins_behind_a_text) {
    static const char *const yes[] = {"hm </think>yes", "</think>\n\nno",
                                      "<think>a < b</think> yes"},
                             *const no[] = {"yes", "hm </think>maybe", "</think>a</think>yes",
                                            "</think"};
    static const tern_str choices[] = {{"yes", 3}, {"no", 2}};
    tern_automaton *a;
    tern_error err = {0};
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_CHOICES,
                                        .choices = choices,
                                        .n_choices = 2,
                                        .think_close = TERN_STR("</think>")};
    REQUIRE_OK(tern_automaton_open(&a, &source, NULL, &err), err);
    for (size_t i = 0; i < 3; i++) CHECK_MSG(accepts(a, yes[i]), "%s", yes[i]);
    for (size_t i = 0; i < 4; i++) CHECK_MSG(!accepts(a, no[i]), "%s", no[i]);
    tern_automaton_close(a);
}

TEST(ebnf_errors_name_the_line) {
    static const struct {
        tern_grammar_kind kind;
        const char *text, *message;
    } cases[] = {
        {TERN_GRAMMAR_GBNF, "root ::= x", "line 1: 'x' is not defined"},
        {TERN_GRAMMAR_GBNF, "x ::= \"a\"", "no rule is called 'root'"},
        {TERN_GRAMMAR_GBNF, "root ::= \"a\"\nroot ::= \"b\"",
         "line 2: a rule that is defined twice"},
        {TERN_GRAMMAR_GBNF, "root ::= (\"a\"", "a bracket that is not closed"},
        {TERN_GRAMMAR_GBNF, "root ::= \"a", "without end"},
        {TERN_GRAMMAR_GBNF, "root ::= [z-a]", "a range that falls"},
        {TERN_GRAMMAR_GBNF, "root ::= \"a\"{3,2}", "a count that falls"},
        {TERN_GRAMMAR_GBNF, "root ::= \"a\"{99999}", "a count over 10000"},
        {TERN_GRAMMAR_GBNF, "root ::= <think>", "tokens by name"},
        {TERN_GRAMMAR_GBNF, "root ::= \"\\q\"", "an unknown escape"},
        {TERN_GRAMMAR_GBNF, "root ::= root \"a\"", "no text satisfies"},
        {TERN_GRAMMAR_GBNF, "root = \"a\"", "'::=' is expected"},
        {TERN_GRAMMAR_LARK, "start: A\nA: A \"x\" | \"y\"", "the terminal 'A' is made of itself"},
        {TERN_GRAMMAR_LARK, "start: A\nA: b\nb: \"x\"",
         "line 2: a terminal is made of terminals only"},
        {TERN_GRAMMAR_LARK, "start: \"a\"\n  /a/x", "line 2: of a regular expression's flags"},
        {TERN_GRAMMAR_LARK, "start: /a(?=b)/ /b/", "looking ahead"},
        {TERN_GRAMMAR_LARK, "start: /(?<!b)a/", "looking behind"},
        {TERN_GRAMMAR_LARK, "start: \"ab\"..\"c\"", "a range is"},
        {TERN_GRAMMAR_LARK, "start: \"c\"..\"a\"", "a range that falls"},
        {TERN_GRAMMAR_LARK, "%llguidance {\"a\":1}\nstart: \"a\"", "options"},
        {TERN_GRAMMAR_LARK, "start: \"a\"\n%extend start: \"b\"", "line 2: only %import"},
        {TERN_GRAMMAR_LARK, "%import other.X\nstart: X", "only the library 'common'"},
        {TERN_GRAMMAR_LARK, "start: /(a)\\1/", "reference back"},
        {TERN_GRAMMAR_LARK, "%import common.NOPE\nstart: \"a\"", "'common' does not have"},
        {TERN_GRAMMAR_LARK, "%declare A\nstart: \"a\"", "only %import and %ignore"},
        {TERN_GRAMMAR_LARK, "t{x}: x\nstart: \"a\"", "templates"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_automaton *a = NULL;
        tern_error err = {0};
        const tern_grammar_source source = {.kind = cases[i].kind,
                                            .text = {cases[i].text, strlen(cases[i].text)}};
        tern_status status = tern_automaton_open(&a, &source, NULL, &err);
        CHECK_MSG(status != TERN_OK && strstr(err.message, cases[i].message), "%s: %s",
                  cases[i].text, err.message);
        tern_automaton_close(a);
    }
}
