// Long, deep and heavy grammars: none uses the stack or more work than its budget.
#include <stdio.h>
#include <string.h>
#include "base/cancel.h"
#include "base/hash.h"
#include "base/strbuf.h"
#include "grammar/mask/automaton.h"
#include "tests/support/harness.h"

enum { N_VOCAB = 257, END = 256 };

static tern_vocab_tree *open_bytes(void) {
    static char bytes[256];
    const int32_t end = END;
    tern_str table[N_VOCAB] = {{0}};
    tern_vocab_tree *v = NULL;
    tern_error err = {0};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        table[i] = (tern_str){&bytes[i], 1};
    }
    CHECK_MSG(tern_vocab_tree_open(&v, table, N_VOCAB, &end, 1, &err) == TERN_OK, "%s",
              err.message);
    return v;
}

// `head`, n times `each`, in which %zu is the index, and `tail`.
static tern_strbuf repeated(const char *head, const char *each, size_t n, const char *tail) {
    tern_strbuf b = {0};
    tern_strbuf_puts(&b, head);
    for (size_t i = 0; i < n; i++) {
        const char *number = strstr(each, "%zu");
        tern_strbuf_append(&b, each, number ? (size_t)(number - each) : strlen(each));
        if (number) tern_strbuf_printf(&b, "%zu%s", i, number + 3);
    }
    tern_strbuf_puts(&b, tail);
    CHECK(!b.failed);
    return b;
}

static tern_automaton *open_text(tern_grammar_kind kind, const tern_strbuf *text,
                                 const tern_vocab_tree *v, tern_error *err) {
    const tern_grammar_source source = {.kind = kind, .text = {text->ptr, text->len}};
    tern_automaton *a;
    return tern_automaton_open(&a, &source, v, err) == TERN_OK ? a : NULL;
}

static bool accepts(tern_automaton *a, const char *text, size_t n) {
    tern_gplace place = tern_automaton_start(a);
    tern_error err = {0};
    CHECK_MSG(tern_automaton_add(a, &place, text, n, &err) == TERN_OK, "%s", err.message);
    return place && tern_automaton_accepts(a, place);
}

// Each of these crashed when every piece, alternative, head or rule was read by recursion.
TEST(long_grammars_are_compiled_without_recursion) {
    static const struct {
        tern_grammar_kind kind;
        const char *head, *each;
        size_t n;
        const char *tail, *yes, *no;
    } cases[] = {
        {TERN_GRAMMAR_REGEX, "b|", "a", 100000, "", "b", "a"},
        {TERN_GRAMMAR_REGEX, "", "x%zu|", 20000, "y", "x19999", "x20000"},
        {TERN_GRAMMAR_REGEX, "(?:", "ab", 20000, "|c)*d", "ccd", "ab"},
        {TERN_GRAMMAR_REGEX, "(?:", "ab", 20000, ")?d", "d", "abd"},
        {TERN_GRAMMAR_REGEX, "", "(?:a|)", 30000, "b", "aaab", "aaa"},
        {TERN_GRAMMAR_REGEX, "", "a?b*", 30000, "c", "abbac", "abba"},
        {TERN_GRAMMAR_REGEX, "(?:", "a?", 20000, "^|b)c", "bc", "aac"},
        {TERN_GRAMMAR_JSON_SCHEMA, "{\"pattern\":\"^(?:b|", "a", 100000,
         ")$\",\"type\":\"string\"}", "\"b\"", "\"a\""},
        {TERN_GRAMMAR_GBNF, "root ::= \"b\" | ", "[ab] ", 50000, "", "b", "a"},
        {TERN_GRAMMAR_GBNF, "root ::= ", "\"x%zu\" | ", 20000, "\"y\"", "x19999", "x20000"},
        {TERN_GRAMMAR_LARK, "start: \"b\" | ", "/a/ ", 20000, "\n", "b", "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        tern_strbuf text = repeated(cases[i].head, cases[i].each, cases[i].n, cases[i].tail);
        tern_automaton *a = open_text(cases[i].kind, &text, NULL, &err);
        CHECK_MSG(a != NULL, "case %zu: %s", i, err.message);
        CHECK_MSG(!a || accepts(a, cases[i].yes, strlen(cases[i].yes)), "case %zu", i);
        CHECK_MSG(!a || !accepts(a, cases[i].no, strlen(cases[i].no)), "case %zu", i);
        tern_automaton_close(a);
        tern_strbuf_free(&text);
    }
}

// Chains of rules that call the next one, in three forms: seen to be refused as nested too deep,
// and to take seconds when names are searched, and lines counted, from the beginning.
TEST(rules_may_call_each_other_in_long_chains) {
    enum { N = 16000 };
    static const char *const forms[] = {"\"a\" r%zu\n", "\"a\"* [x] r%zu | \"b\"\n",
                                        "\"a\" r%zu \"c\"? | root\n"};
    for (size_t form = 0; form < 3; form++) {
        tern_error err = {0};
        tern_strbuf text = {0};
        tern_strbuf_puts(&text, "root ::= r0\n");
        for (size_t i = 0; i < N; i++) {
            tern_strbuf_printf(&text, "r%zu ::= ", i);
            const char *number = strstr(forms[form], "%zu");
            tern_strbuf_append(&text, forms[form], (size_t)(number - forms[form]));
            tern_strbuf_printf(&text, "%zu%s", i + 1, number + 3);
        }
        tern_strbuf_printf(&text, "r%d ::= \"z\"", N);
        tern_automaton *a = open_text(TERN_GRAMMAR_GBNF, &text, NULL, &err);
        CHECK_MSG(a != NULL, "form %zu: %s", form, err.message);
        // A few hundred steps for each rule: less than if each looked at all others.
        CHECK_MSG(!a || a->terms.work < 300 * (uint64_t)N, "form %zu: %llu steps", form,
                  a ? (unsigned long long)a->terms.work : 0);
        tern_gplace place = a ? tern_automaton_start(a) : TERN_PLACE_NONE;
        CHECK(!a || (tern_automaton_add(a, &place, "a", 1, &err) == TERN_OK && place));
        tern_automaton_close(a);
        tern_strbuf_free(&text);
    }
}

// A sequence of parts that may be empty has as many terms after each character as parts are left:
// its masks took minutes.
TEST(masks_of_parts_that_may_be_empty_take_little_work) {
    static const char *const each[] = {"a?", "(?:a|bc)?", "a*b?"};
    tern_vocab_tree *v = open_bytes();
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        uint64_t bits[(N_VOCAB + 63) / 64];
        tern_error err = {0};
        tern_strbuf text = repeated("", each[i], 2000, "");
        tern_automaton *a = open_text(TERN_GRAMMAR_REGEX, &text, v, &err);
        CHECK_MSG(a != NULL, "%s", err.message);
        tern_gplace place = a ? tern_automaton_start(a) : TERN_PLACE_NONE;
        for (int n = 0; a && n < 4; n++) {
            const uint64_t worked = a->terms.work;
            CHECK_MSG(tern_automaton_mask(a, place, bits, NULL, &err) == TERN_OK, "%s",
                      err.message);
            CHECK(bits['a' / 64] >> 'a' % 64 & 1 && bits[END / 64] >> END % 64 & 1);
            CHECK_MSG(a->terms.work - worked < 1000000, "%s: %llu steps", each[i],
                      (unsigned long long)(a->terms.work - worked));
            CHECK(tern_automaton_token(a, &place, 'a', &err) == TERN_OK && place);
        }
        tern_automaton_close(a);
        tern_strbuf_free(&text);
    }
    tern_vocab_tree_close(v);
}

// A mask that needs more than its budget fails with that error and spoils nothing: with a larger
// budget, or in small portions, it is the same as without one.
TEST(masks_that_are_given_up_are_found_later) {
    static const char *const patterns[] = {
        "(?:[ab]{1,9}c?){1,40}d", "(?=.*a.{20}b)[ab]{10,60}", "(?:\\w{1,50} ?){5,40}\\.",
        "(?!.*abab)[a-d]{0,200}", "[^x]*(?:a|b).{30}",
    };
    tern_vocab_tree *v = open_bytes();
    size_t n_slow = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        uint64_t bits[(N_VOCAB + 63) / 64], expected[(N_VOCAB + 63) / 64];
        tern_error err = {0};
        tern_strbuf text = repeated(patterns[i], "", 0, "");
        tern_automaton *a = open_text(TERN_GRAMMAR_REGEX, &text, v, &err);
        tern_automaton *whole = open_text(TERN_GRAMMAR_REGEX, &text, v, &err);
        CHECK_MSG(a && whole, "%s", err.message);
        tern_gplace place = a ? tern_automaton_start(a) : 0, other = place;
        for (size_t n = 0; a && whole && n < 12; n++) {
            tern_status status = TERN_ERR_UNSUPPORTED;
            CHECK(tern_automaton_mask(whole, other, expected, NULL, &err) == TERN_OK);
            for (uint64_t work = 20; status != TERN_OK && work < 1 << 30; work += 20 + work / 8) {
                tern_automaton_limit(a, work);
                status = tern_automaton_mask(a, place, bits, NULL, &err);
                n_slow += status != TERN_OK;
                CHECK((status == TERN_OK) == !tern_automaton_is_slow(a));
                CHECK_MSG(status == TERN_OK || strstr(err.message, "takes too long"), "%s",
                          err.message);
            }
            CHECK_MSG(status == TERN_OK && memcmp(bits, expected, sizeof bits) == 0,
                      "%s: the mask after %zu bytes", patterns[i], n);
            tern_automaton_limit(a, 0);
            const int32_t byte = "abca"[n % 4];
            tern_gplace to = place;
            CHECK(tern_automaton_token(a, &to, byte, &err) == TERN_OK);
            if (!to) break;
            place = to;
            CHECK(tern_automaton_token(whole, &other, byte, &err) == TERN_OK && other);
        }
        tern_automaton_close(a);
        tern_automaton_close(whole);
        tern_strbuf_free(&text);
    }
    CHECK(n_slow > 50);
    tern_vocab_tree_close(v);
}

// Heavy grammars are refused after a bounded amount of work, while they are compiled or before a
// token: none of these ended within a minute.
TEST(heavy_grammars_are_refused_by_name) {
    static const struct {
        tern_grammar_kind kind;
        const char *head, *each;
        size_t n;
        const char *tail;
    } cases[] = {
        {TERN_GRAMMAR_REGEX, "", "(?:a{0,30}b{0,30}c{0,30})?", 2000, ""},
        {TERN_GRAMMAR_REGEX, "", "(?:(?:a|b){0,99}(?:b|c){0,99}){0,99}", 300, ""},
        {TERN_GRAMMAR_REGEX, "", "(?=.*x%zu.*)", 3000, ".*"},
        {TERN_GRAMMAR_REGEX, "", "(?!.*[ab].{%zu}[^a])", 300, ".*"},
        {TERN_GRAMMAR_REGEX, "", "\\p{L}", 30000, ""},
        {TERN_GRAMMAR_REGEX, ".*a", ".", 3000, ""},
    };
    tern_vocab_tree *v = open_bytes();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bits[(N_VOCAB + 63) / 64];
        tern_error err = {0};
        tern_status status = TERN_OK;
        tern_strbuf text = repeated(cases[i].head, cases[i].each, cases[i].n, cases[i].tail);
        tern_automaton *a = open_text(cases[i].kind, &text, v, &err);
        tern_gplace place = a ? tern_automaton_start(a) : TERN_PLACE_NONE;
        for (int n = 0; a && place && status == TERN_OK && n < 100; n++) {
            status = tern_automaton_mask(a, place, bits, NULL, &err);
            if (status == TERN_OK) status = tern_automaton_token(a, &place, "ab"[n % 2], &err);
        }
        CHECK_MSG((a && status == TERN_OK) || strstr(err.message, "too complicated") ||
                      strstr(err.message, "too many sets"),
                  "case %zu: %s", i, err.message);
        tern_automaton_close(a);
        tern_strbuf_free(&text);
    }
    tern_vocab_tree_close(v);
}

// Seen to take 22 and 55 seconds when each name was searched among all.
TEST(schemas_with_many_names_take_little_work) {
    static const struct {
        const char *head, *each, *tail, *text;
    } cases[] = {
        {"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{",
         "\"p%zu\":{\"type\":\"integer\"},", "\"q\":true}}", "{\"p7\": 1, \"p19999\": 2}"},
        {"{\"type\":\"object\",\"required\":[", "\"p%zu\",", "\"q\"],\"maxProperties\":2}", NULL},
        {"{\"$ref\":\"#/$defs/d19999\",\"$defs\":{\"d\":{\"type\":\"integer\"},",
         "\"d%zu\":{\"allOf\":[{\"$ref\":\"#/$defs/d\"}]},", "\"e\":true}}", "7"},
        {"{\"allOf\":[", "{\"$ref\":\"#/$defs/d%zu\"},", "{\"type\":\"integer\"}]}", NULL},
        {"{\"enum\":[", "\"v%zu\",", "7]}", "\"v19999\""},
    };
    enum { N = 20000 };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        tern_strbuf text = repeated(cases[i].head, cases[i].each, N, cases[i].tail);
        tern_automaton *a = open_text(TERN_GRAMMAR_JSON_SCHEMA, &text, NULL, &err);
        CHECK_MSG((a != NULL) == (cases[i].text != NULL), "case %zu: %s", i, err.message);
        CHECK_MSG(!a || a->terms.work < 600 * (uint64_t)N, "case %zu: %llu steps", i,
                  a ? (unsigned long long)a->terms.work : 0);
        CHECK(!a || accepts(a, cases[i].text, strlen(cases[i].text)));
        tern_automaton_close(a);
        tern_strbuf_free(&text);
    }
    // A chain of references, each to the next.
    tern_error err = {0};
    tern_strbuf chain = {0};
    tern_strbuf_puts(&chain, "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < N; i++)
        tern_strbuf_printf(&chain, "\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i, i + 1);
    tern_strbuf_printf(&chain, "\"d%d\":{\"type\":\"integer\"}}}", N);
    tern_automaton *a = open_text(TERN_GRAMMAR_JSON_SCHEMA, &chain, NULL, &err);
    CHECK_MSG(a && a->terms.work < 600 * (uint64_t)N, "%s", err.message);
    CHECK(!a || (accepts(a, "12", 2) && !accepts(a, "true", 4)));
    tern_automaton_close(a);
    tern_strbuf_free(&chain);
}

// Names that collide if the hash function is public: each of N would look at all others. Seen to
// count half a million steps with the length of the name as the seed.
TEST(names_that_meet_take_little_work) {
    enum { N = 1000, MASK = 4095 };
    static const struct {
        tern_grammar_kind kind;
        const char *head, *each, *tail;
    } cases[] = {
        {TERN_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{", "\"%.8s\":true,",
         "\"x\":true}}"},
        {TERN_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"required\":[", "\"%.8s\",", "\"x\"]}"},
        {TERN_GRAMMAR_GBNF, "root ::= \"a\"\n", "%.8s ::= \"b\"\n", "x ::= root"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_error err = {0};
        tern_strbuf text = {0};
        char name[9];
        tern_strbuf_puts(&text, cases[i].head);
        for (uint32_t n = 0, found = 0; found < N; n++) {
            snprintf(name, sizeof name, "a%07u", (unsigned)n);
            if (tern_hash64(8, name, 8) & MASK) continue;
            const char *number = strchr(cases[i].each, '%');
            tern_strbuf_append(&text, cases[i].each, (size_t)(number - cases[i].each));
            tern_strbuf_printf(&text, "%s%s", name, number + 4);
            found++;
        }
        tern_strbuf_puts(&text, cases[i].tail);
        tern_automaton *a = open_text(cases[i].kind, &text, NULL, &err);
        CHECK_MSG(a != NULL, "case %zu: %s", i, err.message);
        CHECK_MSG(!a || a->terms.work < 500 * (uint64_t)N, "case %zu: %llu steps", i,
                  a ? (unsigned long long)a->terms.work : 0);
        tern_automaton_close(a);
        tern_strbuf_free(&text);
    }
}

// When the thread is cancelled, a grammar is given up within some milliseconds, while it is
// compiled or before a token; the thread of another answer goes on with the results so far.
TEST(grammars_are_given_up_where_cancelled) {
    tern_strbuf text = repeated("", "(?:\\p{L}{1,30}|x%zu)?", 300, "");
    tern_vocab_tree *v = open_bytes();
    tern_automaton *a, *slow;
    uint64_t bits[(N_VOCAB + 63) / 64];
    tern_error err = {0};
    tern_cancel cancel = {0};
    const tern_grammar_source source = {.kind = TERN_GRAMMAR_REGEX, .text = {text.ptr, text.len}};
    tern_cancel_request(&cancel);
    tern_cancel_watch(&cancel);
    CHECK(tern_automaton_open(&a, &source, NULL, &err) == TERN_ERR_CANCELLED && !a);
    tern_cancel_watch(NULL);
    tern_strbuf heavy = repeated(".*a", ".", 3000, "");
    CHECK((slow = open_text(TERN_GRAMMAR_REGEX, &heavy, v, &err)));
    tern_gplace place = slow ? tern_automaton_start(slow) : TERN_PLACE_NONE;
    tern_status status = slow ? TERN_OK : TERN_ERR_FORMAT;
    tern_cancel_watch(&cancel);
    for (int n = 0; status == TERN_OK && n < 400; n++) {
        const uint64_t before = tern_automaton_work(slow);
        status = tern_automaton_mask(slow, place, bits, NULL, &err);
        CHECK(tern_automaton_work(slow) - before < 100000);
        tern_gplace to = place;
        if (status == TERN_OK) status = tern_automaton_token(slow, &to, 'a', &err);
        if (status == TERN_OK) place = to;
    }
    CHECK(status == TERN_ERR_CANCELLED || !slow);
    tern_cancel_watch(NULL);
    CHECK(!slow || tern_automaton_mask(slow, place, bits, NULL, &err) == TERN_OK);
    tern_automaton_close(slow);
    tern_vocab_tree_close(v);
    tern_strbuf_free(&heavy);
    tern_strbuf_free(&text);
}
