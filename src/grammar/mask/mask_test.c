#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/mask/mask_open.h"
#include "grammar/rules/pattern.h"
#include "tests/support/harness.h"

// A vocabulary of all bytes, pieces of the tests' texts, and tokens that are not text.
static const char *const pieces[] = {
    "",      "a",        "ab",       "abc",    "\"",  "\",",  "\":",   "\": \"", "{\"",
    "}",     "\"}",      "},",       "12",     "123", "0",    "-",     "-1",     "1.",
    ".5",    "e+",       "\n",       "\n ",    "  ",  "true", "false", "null",   "\xC3",
    "\xA9",  "\xC3\xA9", "\xE2\x82", "\xAC\"", "\\",  "\\u",  "\\u00", "00e9",   "\\\"",
    "x\"y",  "bcab",     "(((",      "))",     "a+a", "+a)",  ")+(",   "(a",     "ab",
    "zzzz",  "z\"}\n",   ",",        "\"a\":", "[1,", "\":1", "a\":1", "a\":t",  "b\":1",
    "b\":t", "b\":n",    "x\":t",    "ab\":n",
};
enum { N_PIECES = sizeof pieces / sizeof *pieces, N_VOCAB = 256 + N_PIECES + 2 };

static tern_vocab_tree *open_vocab(tern_error *err) {
    static char bytes[256];
    static const int32_t ends[] = {N_VOCAB - 1, N_VOCAB - 2};
    tern_str table[N_VOCAB] = {{0}};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        table[i] = (tern_str){&bytes[i], 1};
    }
    for (int i = 0; i < N_PIECES; i++) table[256 + i] = (tern_str){pieces[i], strlen(pieces[i])};
    tern_vocab_tree *v = NULL;
    tern_status status = tern_vocab_tree_open(&v, table, N_VOCAB, ends, 2, err);
    CHECK_MSG(status == TERN_OK, "%s", err->message);
    return v;
}

// Compares a mask with trying each token byte by byte; returns the number of tokens allowed.
static size_t compare(tern_automaton *a, tern_gplace place) {
    uint64_t bits[(N_VOCAB + 63) / 64];
    size_t n_allowed = 0, n = 0;
    tern_error err = {0};
    bool ok = tern_automaton_mask(a, place, bits, &n_allowed, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    for (int i = 0; i < N_VOCAB && ok; i++) {
        tern_gplace to = place;
        ok = tern_automaton_token(a, &to, i, &err) == TERN_OK;
        bool expected = to != TERN_PLACE_NONE;
        if (i >= N_VOCAB - 2) expected = tern_automaton_accepts(a, place);
        n += expected;
        CHECK_MSG((bits[i >> 6] >> (i & 63) & 1) == expected, "token %d: expected %d", i, expected);
    }
    CHECK_MSG(n == n_allowed, "%zu tokens are allowed, not %zu", n, n_allowed);
    return n;
}

// The place after a random allowed token.
static tern_gplace random_step(tern_automaton *a, tern_gplace place, uint64_t *random) {
    tern_gplace to = TERN_PLACE_NONE;
    for (int tries = 0; tries < 4000 && !to; tries++) {
        to = place;
        *random = tern_mix64(*random + 1);
        tern_automaton_token(a, &to, (int32_t)(*random % (N_VOCAB - 2)), NULL);
    }
    return to;
}

// Compares at the places of a hundred answers of up to twelve random steps.
static void compare_on_ways(tern_automaton *a, uint64_t random) {
    for (int round = 0; round < 100; round++) {
        tern_gplace place = tern_automaton_start(a);
        for (int i = 0; i < 12 && place; i++) {
            CHECK(compare(a, place) > 0);
            place = random_step(a, place, &random);
        }
    }
}

TEST(masks_are_what_trying_each_token_gives) {
    static const char *const patterns[] = {
        "(a|ab|abc)*",
        "\"[^\"\\\\]*\"(,\"a\")?",
        "-?(0|[1-9]\\d*)(\\.\\d+)?(e[+-]?\\d+)?",
        "(\\(|\\)|a|\\+){0,12}",
        ".*",
        "[^\\n]{2,5}\\n?",
        "\\{\"a\": \"([^\"]|\\\\\")*\"\\}\\n",
        "(?!.*zz)[a-z\"}]*",
        "\xC3\xA9\xE2\x82\xAC\"?",
        "true|false|null",
    };
    tern_error err = {0};
    tern_vocab_tree *v = open_vocab(&err);
    REQUIRE(v != NULL);
    uint64_t random = 1;
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        tern_automaton *a;
        const tern_grammar_source source = {.kind = TERN_GRAMMAR_REGEX,
                                            .text = {patterns[p], strlen(patterns[p])}};
        REQUIRE_OK(tern_automaton_open(&a, &source, v, &err), err);
        for (int round = 0; round < 40; round++) {
            tern_gplace place = tern_automaton_start(a);
            for (int i = 0; i < 12 && place; i++) {
                size_t n = compare(a, place);
                CHECK_MSG(n > 0, "%s leads to a dead end", patterns[p]);
                place = random_step(a, place, &random);
            }
        }
        tern_automaton_close(a);
    }
    tern_vocab_tree_close(v);
}

// Seen to fail without the special tokens of a string, without its exits, and with exits for names
// that the schema lists (a text may not come after "ab").
TEST(masks_of_schemas_are_what_trying_each_token_gives) {
    static const char schema[] =
        "{\"properties\": {\"a\": {\"type\": \"string\"}, \"ab\": {\"type\": \"integer\"}}}";
    tern_error err = {0};
    tern_vocab_tree *v = open_vocab(&err);
    REQUIRE(v != NULL);
    tern_automaton *a;
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA, .text = TERN_STR(schema)};
    REQUIRE_OK(tern_automaton_open(&a, &source, v, &err), err);
    tern_gplace name = tern_automaton_start(a);
    REQUIRE_OK(tern_automaton_add(a, &name, "{\"ab", 4, &err), err);
    compare(a, name);
    compare_on_ways(a, 3);
    tern_automaton_close(a);
    tern_vocab_tree_close(v);
}

// Names that match different patterns are in different terms, which are walked together; a name
// ends for some of them only. Seen to fail with each end taken as an end of all terms, or of the
// first one alone, and with the union's tokens left out.
TEST(masks_of_names_with_patterns_are_what_trying_each_token_gives) {
    static const char schema[] =
        "{\"patternProperties\": {\"a\": {\"type\": [\"integer\", \"null\"]}, "
        "\"b\": {\"type\": [\"boolean\", \"null\"]}}, "
        "\"additionalProperties\": {\"type\": \"string\"}}";
    tern_error err = {0};
    tern_vocab_tree *v = open_vocab(&err);
    REQUIRE(v != NULL);
    tern_automaton *a;
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA, .text = TERN_STR(schema)};
    REQUIRE_OK(tern_automaton_open(&a, &source, v, &err), err);
    compare_on_ways(a, 7);
    tern_automaton_close(a);
    tern_vocab_tree_close(v);
}

// A state with more open terms than are walked together, which end in the middle of plain tokens,
// each before a different text. Seen to fail with the terms after the first eight left out.
TEST(masks_of_many_open_terms_are_what_trying_each_token_gives) {
    enum { N_TERMS = TERN_UNION_MAX + 3 };
    static const char *const ends[N_TERMS] = {",", "a)", ".",    "b", "+a", "\"y",
                                              "+", "\"", "\xA9", "z", "-"};
    tern_error err = {0};
    tern_vocab_tree *v = open_vocab(&err);
    tern_automaton *a;
    REQUIRE(v != NULL);
    REQUIRE_OK(tern_automaton_begin(&a, 0, v, &err), err);
    tern_expr ways[N_TERMS];
    for (size_t i = 0; i < N_TERMS; i++) {
        // Most of these bytes are in no other term. Repeated at least 0 or 1 times.
        const tern_term one =
            tern_term_set(&a->terms, tern_byteset_range(22 * (unsigned)i, 22 * (unsigned)i + 30));
        const tern_term some = tern_term_repeat(&a->terms, one, i % 2, 2 + (uint32_t)i);
        const tern_term end = tern_term_text(&a->terms, ends[i], strlen(ends[i]));
        ways[i] = tern_expr_cat(&a->rules, tern_expr_open(&a->rules, some),
                                tern_expr_term(&a->rules, end));
    }
    REQUIRE_OK(tern_automaton_finish(a, tern_expr_either(&a->rules, ways, N_TERMS), &err), err);
    uint64_t random = 9;
    for (int round = 0; round < 60; round++) {
        tern_gplace place = tern_automaton_start(a);
        for (int i = 0; i < 6 && place && !tern_automaton_is_done(a, place); i++) {
            CHECK(compare(a, place) > 0);
            place = random_step(a, place, &random);
        }
    }
    tern_automaton_close(a);
    tern_vocab_tree_close(v);
}

// A vocabulary of all texts of one and two of 16 letters, and of n texts of three.
enum { N_LETTERS = 16, N_SHORT = N_LETTERS + N_LETTERS * N_LETTERS, N_NODES_MAX = 4200 };

static tern_vocab_tree *open_letters(size_t n, tern_error *err) {
    static char texts[N_NODES_MAX][4];
    static tern_str table[N_NODES_MAX];
    tern_vocab_tree *v = NULL;
    size_t k = 0;
    for (size_t i = 0; i < N_SHORT + n; i++, k++) {
        size_t length = 1 + (i >= N_LETTERS) + (i >= N_SHORT), number = i;
        if (i >= N_LETTERS) number -= length == 2 ? N_LETTERS : N_SHORT;
        for (size_t at = length; at-- > 0; number /= N_LETTERS)
            texts[k][at] = (char)('a' + number % N_LETTERS);
        table[k] = (tern_str){texts[k], length};
    }
    table[k++] = TERN_STR("\"");
    const tern_status status = tern_vocab_tree_open(&v, table, k, NULL, 0, err);
    CHECK_MSG(status == TERN_OK, "%s", err->message);
    return v;
}

// An excluded character changes everything after it: each node is a difference. Differences are
// looked for up to the limit; beyond it the search is given up and its notes are dropped. Seen to
// fail with a limit of one node less, and of one more; and with the notes kept.
TEST(differences_are_looked_for_up_to_a_limit) {
    enum { LIMIT = 4096, N_AT_LIMIT = LIMIT - N_SHORT };
    static const char schema[] = "{\"type\": \"string\", \"not\": {\"pattern\": \"[abc]b\"}}";
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA, .text = TERN_STR(schema)};
    for (int way = 0; way < 4; way++) {
        const size_t over = way % 2;
        const bool may_walk = way >= 2;
        static uint64_t bits[N_NODES_MAX / 64 + 1];
        tern_error err = {0};
        tern_automaton *a;
        uint32_t open;
        size_t n_allowed = 0, n = 0;
        tern_vocab_tree *v = open_letters(N_AT_LIMIT + over, &err);
        REQUIRE(v != NULL);
        REQUIRE_OK(tern_automaton_open(&a, &source, v, &err), err);
        tern_gplace place = tern_automaton_start(a);
        REQUIRE_OK(tern_automaton_add(a, &place, "\"", 1, &err), err);
        const tern_span configs = a->states.infos[place].configs;
        REQUIRE(configs.n == 1);
        const tern_term term = a->states.configs[configs.at].term;
        const tern_open_way how = may_walk ? TERN_OPEN_WALK : TERN_OPEN_KNOWN;
        REQUIRE_OK(tern_automaton_find_open(a, term, how, &open, &err), err);
        CHECK((open == TERN_OPEN_NONE) == (over > 0 && !may_walk));
        REQUIRE_OK(tern_automaton_mask(a, place, bits, &n_allowed, &err), err);
        for (size_t i = 0; i < v->n_vocab; i++) {
            tern_gplace to = place;
            REQUIRE_OK(tern_automaton_token(a, &to, (int32_t)i, &err), err);
            CHECK_MSG((bits[i >> 6] >> (i & 63) & 1) == (to != TERN_PLACE_NONE), "token %zu", i);
            n += to != TERN_PLACE_NONE;
        }
        CHECK(n == n_allowed && n > 3000 && n < LIMIT);
        tern_automaton_close(a);
        tern_vocab_tree_close(v);
    }
}

// A vocabulary of all bytes, all texts of three of some characters, tokens that end or continue a
// string after two, and some long ones. Many tokens share prefixes, as in real ones.
enum { N_CHARS = 6, N_TAILS = 4, N_WORDS_MAX = 1024, WORD_MAX = 96 };

static tern_vocab_tree *open_words(char (*words)[WORD_MAX], size_t *n, tern_error *err) {
    static const char *const chars[N_CHARS] = {"a", "b", "\xC3\xA9", "0", " ", "-"};
    static const char *const tails[N_TAILS] = {"\"", "\"}", "\\n", "\\u0061"};
    static tern_str table[N_WORDS_MAX];
    tern_vocab_tree *v = NULL;
    *n = 0;
    for (int i = 0; i < 256; i++) words[(*n)++][0] = (char)i;
    for (int i = 0; i < N_CHARS * 7 * 7; i++) {
        const int second = i / N_CHARS % 7, third = i / N_CHARS / 7;
        if (second == 0 && third > 0) continue;
        snprintf(words[(*n)++], sizeof *words, "%s%s%s", chars[i % N_CHARS],
                 second ? chars[second - 1] : "", third ? chars[third - 1] : "");
        for (int k = 0; k < N_TAILS && third == 0; k++)
            snprintf(words[(*n)++], sizeof *words, "%s%s%s", chars[i % N_CHARS],
                     second ? chars[second - 1] : "", tails[k]);
    }
    for (int i = 0; i < 3; i++, (*n)++) // long ones of one character each
        for (int k = 0; k < 20; k++) strcat(words[*n], chars[i]);
    for (int i = 0; i < 20; i++, (*n)++) { // longer ones that stay in a string or end it
        for (int k = 0; k < 38 + i; k++) strcat(words[*n], chars[i % 4 == 3 && k % 7 == 6 ? 5 : 0]);
        strcat(words[*n], i % 2 ? "" : i % 4 ? "\"" : "\"]");
    }
    for (size_t i = 0; i < *n; i++) table[i] = (tern_str){words[i], i == 0 ? 1 : strlen(words[i])};
    const tern_status status = tern_vocab_tree_open(&v, table, *n, NULL, 0, err);
    CHECK_MSG(status == TERN_OK, "%s", err->message);
    return v;
}

// Takes random allowed words, and compares the mask before each with trying all words.
static void compare_words(tern_automaton *a, size_t n, uint64_t *random) {
    uint64_t bits[N_WORDS_MAX / 64];
    tern_gplace place = tern_automaton_start(a);
    tern_error err = {0};
    for (int step = 0; step < 14 && place; step++) {
        tern_gplace next = TERN_PLACE_NONE;
        size_t n_allowed = 0, n_expected = 0;
        const size_t wanted = (size_t)(*random = tern_mix64(*random + 1)) % n;
        REQUIRE_OK(tern_automaton_mask(a, place, bits, &n_allowed, &err), err);
        for (size_t i = 0; i < n; i++) {
            const size_t id = (wanted + i) % n;
            tern_gplace to = place;
            REQUIRE_OK(tern_automaton_token(a, &to, (int32_t)id, &err), err);
            CHECK_MSG((bits[id >> 6] >> (id & 63) & 1) == (to != TERN_PLACE_NONE),
                      "step %d, token %zu: expected %d", step, id, to != TERN_PLACE_NONE);
            n_expected += to != TERN_PLACE_NONE;
            if (!next) next = to;
        }
        CHECK(n_allowed == n_expected);
        place = next;
    }
}

// Seen to fail: with strings that may end before their least length, or take tokens a character too
// long; without a greatest length that a token can reach; with texts of two characters counted as
// one; without a limit that a token exceeds, or a string in a token; with a home that ignores the
// second byte of a character; and without the nodes after a home.
TEST(masks_of_strings_are_what_trying_each_token_gives) {
    static const char *const schemas[] = {
        "{\"maxLength\": 5}",
        "{\"minLength\": 3, \"maxLength\": 40}",
        "{\"pattern\": \"^[ab0]{2,20}$\"}",
        "{\"pattern\": \"^[a-z\xC3\xA9]+(-[a-z]+)*$\", \"maxLength\": 20}",
        "{\"pattern\": \"^[a-z\xC3\xA9]+(-[a-z]+)*$\", \"maxLength\": 50}",
        "{\"pattern\": \"^[a-z\xC3\xA9]+(-[a-z]{4})*$\", \"maxLength\": 15}",
        "{\"pattern\": \"ab|0-\", \"maxLength\": 30}",
        "{\"pattern\": \"^.{0,30}$\"}",
        "{\"pattern\": \"^(?:\\\\S+\\\\s+){0,3}\\\\S+$\", \"maxLength\": 9}",
        "{\"not\": {\"pattern\": \"aab\"}}",
        "{\"not\": {\"pattern\": \"[ab]{4}\"}, \"minLength\": 1}",
        "{\"pattern\": \"^[^a]*$\"}",
        "{\"pattern\": \"^[^0]{3,18}$\"}",
        "{\"pattern\": \"^[a-z]*$\", \"maxLength\": 8}",
        "{\"pattern\": \"^([0-z]|\xC3\xA9\xC3\xA9){0,17}$\"}",
        "{\"pattern\": \"^[^\xC3\xA9]*(?:\xC3\xA9[^a]*)?$\"}",
        "{\"pattern\": \"^[ab]{2,45}$\"}",
        "{\"pattern\": \"^[ab]{0,50}(-a|b)$\"}",
        "{\"pattern\": \"^a*[-b]{0,41}$\", \"maxLength\": 43}",
        "{\"pattern\": \"^(?:[^-]{1,42}-){1,60}a{0,48}b?$\", \"maxLength\": 52}",
        "{\"pattern\": \"^(?!.*00)(?:[^ ]+ +){0,3}[^ ]+$\", \"maxLength\": 47}",
        "{\"pattern\": \"^(?:.{1,44}-){1,50}[a-z0]+$\", \"maxLength\": 55}",
    };
    static char words[N_WORDS_MAX][WORD_MAX];
    size_t n;
    uint64_t random = 5;
    tern_error err = {0};
    tern_vocab_tree *v = open_words(words, &n, &err);
    REQUIRE(v != NULL);
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        char text[200];
        tern_automaton *a;
        const bool is_in_list = i % 2 == 1;
        snprintf(text, sizeof text, "%s{\"type\": \"string\", %s%s",
                 is_in_list ? "{\"type\": \"array\", \"items\": " : "", schemas[i] + 1,
                 is_in_list ? "}" : "");
        const tern_grammar_source source = {.kind = TERN_GRAMMAR_JSON_SCHEMA,
                                            .text = {text, strlen(text)}};
        REQUIRE_OK(tern_automaton_open(&a, &source, v, &err), err);
        for (int round = 0; round < 12; round++) compare_words(a, n, &random);
        tern_automaton_close(a);
    }
    tern_vocab_tree_close(v);
}

TEST(forced_bytes_are_the_only_way_on) {
    static const struct {
        const char *pattern, *after, *forced;
    } cases[] = {
        {"abc(d|e)f", "", "abc"},     {"abc(d|e)f", "abcd", "f"}, {"a|ab", "a", ""},
        {"x(?!.*b)[ab]c", "", "xac"}, {"a{3}", "a", "aa"},        {"[ab]", "", ""},
    };
    tern_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_automaton *a;
        tern_strbuf forced = {0};
        const tern_grammar_source source = {.kind = TERN_GRAMMAR_REGEX,
                                            .text = {cases[i].pattern, strlen(cases[i].pattern)}};
        REQUIRE_OK(tern_automaton_open(&a, &source, NULL, &err), err);
        tern_gplace place = tern_automaton_start(a);
        const char *after = cases[i].after;
        REQUIRE_OK(tern_automaton_add(a, &place, after, strlen(after), &err), err);
        REQUIRE_OK(tern_automaton_forced(a, place, 100, &forced, &err), err);
        CHECK_MSG(strcmp(tern_strbuf_text(&forced), cases[i].forced) == 0, "%s after '%s': '%s'",
                  cases[i].pattern, cases[i].after, tern_strbuf_text(&forced));
        tern_strbuf_free(&forced);
        tern_automaton_close(a);
    }
}

// Strings that several states share, numbers, and lists of lists: value = string | number |
// "[" value ("," value)* "]" | "{" string ":" value "}".
// Seen to fail with an exit of a shared term that is not walked, with only the first term of a
// state stepped, and with no state made where a term ends in the middle of a token.
TEST(masks_of_rules_are_what_trying_each_token_gives) {
    tern_error err = {0};
    tern_vocab_tree *v = open_vocab(&err);
    tern_automaton *a;
    REQUIRE(v != NULL);
    REQUIRE_OK(tern_automaton_begin(&a, 0, v, &err), err);
    tern_rules *r = &a->rules;
    tern_rule value = tern_rules_new(r);
    static const char string[] = "\"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt])*\"",
                      number[] = "-?(0|[1-9]\\d*)(\\.\\d+)?";
    tern_term terms[2];
    const tern_pattern_way way = {.spelling = TERN_SPELL_UTF8};
    REQUIRE_OK(tern_pattern_term(&a->terms, string, strlen(string), way, &terms[0], &err), err);
    REQUIRE_OK(tern_pattern_term(&a->terms, number, strlen(number), way, &terms[1], &err), err);
    tern_expr open = tern_expr_open(r, terms[0]), e = tern_expr_call(r, value), words[6];
    for (size_t i = 0; i < 6; i++)
        words[i] = tern_expr_term(r, tern_term_byte(&a->terms, (unsigned char)"[],:{}"[i]));
    tern_expr list = tern_expr_cat(r, e, tern_expr_loop(r, tern_expr_cat(r, words[2], e)));
    tern_expr pair = tern_expr_cat(r, open, tern_expr_cat(r, words[3], e));
    const tern_expr ways[] = {open, tern_expr_open(r, terms[1]),
                              tern_expr_cat(r, words[0], tern_expr_cat(r, list, words[1])),
                              tern_expr_cat(r, words[4], tern_expr_cat(r, pair, words[5]))};
    tern_rules_define(r, value, tern_expr_either(r, ways, 4));
    REQUIRE_OK(tern_automaton_finish(a, e, &err), err);
    uint64_t random = 5;
    for (int round = 0; round < 200; round++) {
        tern_gplace place = tern_automaton_start(a);
        for (int i = 0; i < 12 && place; i++) {
            CHECK(compare(a, place) > 0);
            place = random_step(a, place, &random);
        }
    }
    tern_automaton_close(a);
    tern_vocab_tree_close(v);
}

// ---- Rules --------------------------------------------------------------------------------------

typedef struct fixture {
    tern_terms terms;
    tern_rules rules;
    tern_states states;
} fixture;

static bool open_rules(fixture *f, tern_error *err) {
    return tern_terms_open(&f->terms, 0, err) == TERN_OK &&
           tern_rules_open(&f->rules, &f->terms, err) == TERN_OK;
}

static void close_rules(fixture *f) {
    tern_states_close(&f->states);
    tern_rules_close(&f->rules);
    tern_terms_close(&f->terms);
}

static bool accepts(fixture *f, const char *text) {
    tern_gstate s = f->states.start;
    for (; *text && s; text++) s = tern_state_step(&f->states, s, (unsigned char)*text);
    return tern_state_accepts(&f->states, s);
}

static tern_expr word(fixture *f, const char *text) {
    return tern_expr_term(&f->rules, tern_term_text(&f->terms, text, strlen(text)));
}
static tern_expr cat3(fixture *f, tern_expr a, tern_expr b, tern_expr c) {
    return tern_expr_cat(&f->rules, a, tern_expr_cat(&f->rules, b, c));
}

// A rule that begins with itself, and two that begin with each other, one of them after a part that
// may be empty: sum = sum "+" part | part; part = "a" | "(" sum ")" | post; post = part "!" | list
// "f" list; list = "" | "," list. Seen to crash with sets of callers that refer only to the first
// one.
TEST(rules_may_begin_with_themselves) {
    fixture f = {0};
    tern_error err = {0};
    REQUIRE(open_rules(&f, &err));
    tern_rules *r = &f.rules;
    tern_rule sum = tern_rules_new(r), part = tern_rules_new(r), post = tern_rules_new(r),
              list = tern_rules_new(r);
    tern_rules_define(
        r, sum,
        tern_expr_or(r, cat3(&f, tern_expr_call(r, sum), word(&f, "+"), tern_expr_call(r, part)),
                     tern_expr_call(r, part)));
    const tern_expr parts[] = {word(&f, "a"),
                               cat3(&f, word(&f, "("), tern_expr_call(r, sum), word(&f, ")")),
                               tern_expr_call(r, post)};
    tern_rules_define(r, part, tern_expr_either(r, parts, 3));
    tern_rules_define(
        r, post,
        tern_expr_or(r, tern_expr_cat(r, tern_expr_call(r, part), word(&f, "!")),
                     cat3(&f, tern_expr_call(r, list), word(&f, "f"), tern_expr_call(r, list))));
    tern_expr longer = tern_expr_cat(r, word(&f, ","), tern_expr_call(r, list));
    tern_rules_define(r, list, tern_expr_or(r, TERN_EXPR_EMPTY, longer));
    REQUIRE_OK(tern_rules_finish(r, tern_expr_call(r, sum), &err), err);
    REQUIRE_OK(tern_states_open(&f.states, r, 0, &err), err);
    static const char *const yes[] = {"a",   "a+a",    "(a)",     "((a)+a)+a",
                                      "a!",  "a!!+a!", "(a+a)!!", "f",
                                      "f,,", ",,f,!",  "(f,+a)!", "a+f,,,!!+(a)"};
    static const char *const no[] = {"",   "+", "a+",  "(a", "a)", "()",
                                     "!a", ",", "f,a", "aa", "a!a"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        CHECK_MSG(accepts(&f, yes[i]), "%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) CHECK_MSG(!accepts(&f, no[i]), "%s", no[i]);
    // Depth is a stack of sets, each made once.
    tern_strbuf deep = {0};
    for (int i = 0; i < 1000; i++) tern_strbuf_putc(&deep, '(');
    tern_strbuf_putc(&deep, 'a');
    for (int i = 0; i < 1000; i++) tern_strbuf_putc(&deep, ')');
    CHECK(accepts(&f, deep.ptr));
    deep.ptr[deep.len - 1] = '!';
    CHECK(!accepts(&f, deep.ptr));
    tern_strbuf_free(&deep);
    close_rules(&f);
}

// s = s s | "a" has as many derivations of a text as there are binary trees, and pairs = "a" pairs
// "b" | "a" pairs "c" | "" two callers at every byte: both must cost little. Seen to fail (above
// its memory limit) with a separate set for each caller.
TEST(ambiguous_rules_share_what_follows) {
    fixture f = {0};
    tern_error err = {0};
    REQUIRE(open_rules(&f, &err));
    tern_rules *r = &f.rules;
    tern_rule s = tern_rules_new(r), pairs = tern_rules_new(r);
    tern_expr two = tern_expr_cat(r, tern_expr_call(r, s), tern_expr_call(r, s));
    tern_rules_define(r, s, tern_expr_or(r, two, word(&f, "x")));
    const tern_expr ways[] = {TERN_EXPR_EMPTY,
                              cat3(&f, word(&f, "a"), tern_expr_call(r, pairs), word(&f, "b")),
                              cat3(&f, word(&f, "a"), tern_expr_call(r, pairs), word(&f, "c"))};
    tern_rules_define(r, pairs, tern_expr_either(r, ways, 3));
    tern_expr root = tern_expr_cat(r, tern_expr_call(r, pairs), tern_expr_call(r, s));
    REQUIRE_OK(tern_rules_finish(r, root, &err), err);
    REQUIRE_OK(tern_states_open(&f.states, r, 8 << 20, &err), err);
    CHECK(accepts(&f, "aabcxxx") && accepts(&f, "x"));
    CHECK(!accepts(&f, "aabx") && !accepts(&f, "abc"));
    tern_gstate at = f.states.start;
    for (int i = 0; i < 200 && at; i++) at = tern_state_step(&f.states, at, 'a');
    for (int i = 0; i < 200 && at; i++) at = tern_state_step(&f.states, at, "bc"[i % 3 == 0]);
    for (int i = 0; i < 200 && at; i++) at = tern_state_step(&f.states, at, 'x');
    CHECK(tern_state_accepts(&f.states, at));
    CHECK(tern_states_check(&f.states, &err) == TERN_OK);
    close_rules(&f);
}

// Rules without texts are left out; a grammar of nothing else is refused.
TEST(rules_without_texts_are_left_out) {
    fixture f = {0};
    tern_error err = {0};
    REQUIRE(open_rules(&f, &err));
    tern_rules *r = &f.rules;
    tern_rule endless = tern_rules_new(r);
    tern_rules_define(r, endless, tern_expr_cat(r, word(&f, "a"), tern_expr_call(r, endless)));
    tern_expr root = tern_expr_or(r, word(&f, "b"), tern_expr_call(r, endless));
    REQUIRE_OK(tern_rules_finish(r, root, &err), err);
    REQUIRE_OK(tern_states_open(&f.states, r, 0, &err), err);
    CHECK(accepts(&f, "b"));
    CHECK(tern_state_step(&f.states, f.states.start, 'a') == TERN_STATE_DEAD);
    close_rules(&f);
    REQUIRE(open_rules(&f, &err));
    endless = tern_rules_new(r);
    tern_rules_define(r, endless, tern_expr_cat(r, word(&f, "a"), tern_expr_call(r, endless)));
    CHECK(tern_rules_finish(r, tern_expr_call(r, endless), &err) == TERN_ERR_UNSUPPORTED);
    CHECK(strstr(err.message, "no text") != NULL);
    close_rules(&f);
}

// Opens a grammar and gets masks while the n-th allocation fails; true: there were fewer.
static bool survives(const tern_grammar_source *source, tern_str text, const tern_vocab_tree *v,
                     uint64_t n) {
    tern_automaton *a = NULL;
    tern_error err = {0};
    uint64_t bits[(N_VOCAB + 63) / 64];
    tern_mem_fail_at(n);
    tern_status status = tern_automaton_open(&a, source, v, &err);
    tern_gplace place = a ? tern_automaton_start(a) : TERN_PLACE_NONE;
    if (status == TERN_OK) status = tern_automaton_mask(a, place, bits, NULL, &err);
    if (status == TERN_OK) status = tern_automaton_add(a, &place, text.ptr, text.len, &err);
    if (status == TERN_OK) status = tern_automaton_mask(a, place, bits, NULL, &err);
    tern_mem_fail_at(0);
    CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
    tern_automaton_close(a);
    return status == TERN_OK;
}

TEST(automata_survive_every_allocation_that_fails) {
    static const char pattern[] = "(\"[^\"]{0,9}\"|(?!12)\\d+),?a*",
                      schema[] = "{\"patternProperties\": {\"a\": {\"type\": \"null\"}, "
                                 "\"b\": {\"const\": 1}}, \"additionalProperties\": false}";
    const tern_grammar_source sources[] = {
        {.kind = TERN_GRAMMAR_REGEX, .text = TERN_STR(pattern)},
        {.kind = TERN_GRAMMAR_JSON_SCHEMA, .text = TERN_STR(schema)}};
    tern_error err = {0};
    tern_vocab_tree *v = open_vocab(&err);
    REQUIRE(v != NULL);
    for (size_t i = 0; i < 2; i++) {
        bool finished = false;
        for (uint64_t n = 1; n < 5000 && !finished; n++)
            finished = survives(&sources[i], i ? TERN_STR("{\"") : TERN_STR("\"a"), v, n);
        CHECK(finished);
    }
    tern_vocab_tree_close(v);
}
