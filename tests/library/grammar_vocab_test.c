// Masks over real vocabularies, compared with trying each token.
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "tests/support/grammar_data.h"
#include "tests/support/harness.h"

// Walks from random place to random place; every mask is compared.
static void compare_masks(const grammar_vocabulary *v, tern_grammar_kind kind, const char *pattern,
                          int n_places) {
    tern_error err = {0};
    tern_automaton *a;
    const tern_grammar_source source = {.kind = kind, .text = {pattern, strlen(pattern)}};
    REQUIRE_OK(tern_automaton_open(&a, &source, v->tree, &err), err);
    uint64_t *bits = calloc((v->n + 63) / 64, sizeof *bits), random = strlen(pattern);
    tern_gplace place = tern_automaton_start(a);
    size_t n_wrong = 0;
    for (int i = 0; i < n_places; i++) {
        size_t n_allowed = 0, n = 0, n_ends = 0;
        int32_t chosen = -1;
        CHECK_MSG(tern_automaton_mask(a, place, bits, &n_allowed, &err) == TERN_OK, "%s",
                  err.message);
        for (size_t id = 0; id < v->n; id++) {
            bool allowed = bits[id / 64] >> (id % 64) & 1;
            if (!v->bytes[id].len) { // the ends, and tokens that are no text
                n_ends += allowed;
                continue;
            }
            tern_gplace to = place;
            tern_automaton_token(a, &to, (int32_t)id, &err);
            n_wrong += allowed != (to != TERN_PLACE_NONE);
            random = tern_mix64(random + id);
            if (allowed && random % ++n == 0) chosen = (int32_t)id;
        }
        CHECK((n_ends > 0) == tern_automaton_accepts(a, place));
        CHECK(n + n_ends == n_allowed);
        if (chosen < 0 || i % 12 == 11)
            place = tern_automaton_start(a);
        else
            tern_automaton_token(a, &place, chosen, &err);
    }
    CHECK_MSG(n_wrong == 0, "%s: %zu tokens are wrong", pattern, n_wrong);
    free(bits);
    tern_automaton_close(a);
}

static tern_grammar_kind kind_of(const char *text) {
    if (strncmp(text, "root", 4) == 0) return TERN_GRAMMAR_GBNF;
    if (strncmp(text, "start", 5) == 0) return TERN_GRAMMAR_LARK;
    return *text == '{' ? TERN_GRAMMAR_JSON_SCHEMA : TERN_GRAMMAR_REGEX;
}

TEST(grammar_masks_over_real_vocabularies_are_what_each_token_gives) {
    static const char *const names[] = {"tokenizers/llama3_1/tokenizer.json",
                                        "tokenizers/qwen3/tokenizer.json",
                                        "tokenizers/gemma3/tokenizer.json"};
    static const char *const patterns[] = {
        "[{] ?\"name\": \"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt])*\","
        "\\s?\"age\": (0|[1-9]\\d*)\\}",
        "[a-z]+([ -][a-z]+){0,5}\\.",
        "(?=.*\\d)[\\w .,]{10,80}!",
        "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?",
        "[^]*",
        "(red|green|blue|reddish)(, (red|green|blue|reddish))*",
        "[\\u0400-\\u04ff ]+|[\\u4e00-\\u9fff]+",
        "root ::= line+\nline ::= \"- \" item \"\\n\"\nitem ::= [^\\n]+ | \"[\" item \"]\"",
        "start: expr\nexpr: expr OP expr | NAME | \"(\" expr \")\"\nOP: /[-+*]/\n"
        "NAME: /[a-z]\\w*/\n%ignore \" \"",
        "{\"properties\": {\"name\": {\"maxLength\": 12, \"type\": \"string\"}, \"nations\": {}}}",
        "{\"type\": \"string\", \"pattern\": \"^[a-z ]+$\", \"maxLength\": 30}",
        "{\"type\": [\"string\", \"number\"], \"minLength\": 40, \"maxLength\": 3000}",
        "{\"anyOf\": [{\"type\": \"string\", \"pattern\": \"a.*b\"}, {\"type\": \"string\", "
        "\"minLength\": 3}], \"not\": {\"enum\": [\"abc\", \"xyzzy\"]}}",
    };
    for (size_t i = 0; i < 3; i++) {
        const char *path = test_data(names[i]);
        grammar_vocabulary v;
        if (!path) return;
        if (grammar_vocabulary_open(&v, path))
            for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++)
                compare_masks(&v, kind_of(patterns[k]), patterns[k], test_is_long() ? 400 : 4);
        grammar_vocabulary_close(&v);
    }
}
