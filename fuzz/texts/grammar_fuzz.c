// Grammars: the first byte says of which kind, then comes its text, and after a zero byte a text to
// be looked at with it. Whatever is accepted must hold together: what must come may come, a mask
// has the tokens that may come byte by byte and no others, and the same text leads to the same
// place.
#include <string.h>
#include "fuzz/support.h"
#include "grammar/mask/automaton.h"

enum { N_BYTES = 256, N_WORDS = 12, N_VOCAB = N_BYTES + N_WORDS + 1, END = N_VOCAB - 1 };
#define STEPS_MAX  48
#define EFFORT_MAX 3000000 // of the whole input: a second or so with all checks

static const char *const words[N_WORDS] = {"{\"", "\":",    "\", \"", "true", "null",     "}}",
                                           "aa",  "\n    ", "0.5",    "\\u",  "\xC3\xA9", "[TOOL"};
static tern_vocab_tree *vocab;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static char bytes[N_BYTES];
    tern_str tokens[N_VOCAB] = {{0}};
    const int32_t end = END;
    tern_error err = {0};
    (void)argc;
    (void)argv;
    for (size_t i = 0; i < N_BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (tern_str){bytes + i, 1};
    }
    for (size_t i = 0; i < N_WORDS; i++)
        tokens[N_BYTES + i] = (tern_str){words[i], strlen(words[i])};
    fuzz_require(tern_vocab_tree_open(&vocab, tokens, N_VOCAB, &end, 1, &err) == TERN_OK);
    return 0;
}

static bool goes_on(const tern_automaton *a, tern_status status, const tern_error *err) {
    if (status != TERN_OK) fuzz_require(err->message[0] != 0);
    return status == TERN_OK && a->terms.effort < EFFORT_MAX;
}

static bool check_mask(tern_automaton *a, tern_gplace place) {
    uint64_t bits[(N_VOCAB + 63) / 64] = {0};
    size_t n_allowed = 0, n = 0;
    tern_error err = {0};
    if (!goes_on(a, tern_automaton_mask(a, place, bits, &n_allowed, &err), &err)) return false;
    for (int32_t id = 0; id < N_VOCAB; id++) {
        tern_gplace to = place;
        const bool is_in = bits[id / 64] >> (id % 64) & 1;
        if (!goes_on(a, tern_automaton_token(a, &to, id, &err), &err)) return false;
        const bool may = id == END ? tern_automaton_accepts(a, place) : to != TERN_PLACE_NONE;
        fuzz_require(is_in == may || a->terms.is_undecided);
        n += is_in;
    }
    fuzz_require(n == n_allowed);
    return true;
}

// What must come may come, and nothing else may.
static bool check_forced(tern_automaton *a, tern_gplace place) {
    tern_strbuf forced = {0};
    tern_error err = {0};
    bool ok = goes_on(a, tern_automaton_forced(a, place, 20, &forced, &err), &err);
    tern_gplace to = place;
    if (ok) ok = goes_on(a, tern_automaton_add(a, &to, forced.ptr, forced.len, &err), &err);
    fuzz_require(!ok || to != TERN_PLACE_NONE);
    if (ok && forced.len) {
        const char other = (char)(forced.ptr[0] + 1);
        to = place;
        ok = goes_on(a, tern_automaton_add(a, &to, &other, 1, &err), &err);
        fuzz_require(!ok || to == TERN_PLACE_NONE);
    }
    tern_strbuf_free(&forced);
    return ok;
}

static void walk(tern_automaton *a, const uint8_t *text, size_t n) {
    tern_gplace place = tern_automaton_start(a), again = place;
    tern_error err = {0};
    size_t steps = 0;
    for (size_t i = 0; i < n && steps < STEPS_MAX; i++, steps++) {
        tern_gplace to = place;
        const char byte = (char)text[i];
        if (i % 4 == 0 && (!check_mask(a, place) || !check_forced(a, place))) return;
        if (!goes_on(a, tern_automaton_add(a, &to, &byte, 1, &err), &err)) return;
        if (to == TERN_PLACE_NONE) { // then what must come, or anything that may
            uint64_t bits[(N_VOCAB + 63) / 64] = {0};
            if (!goes_on(a, tern_automaton_mask(a, place, bits, NULL, &err), &err)) return;
            int32_t id = (int32_t)(text[i] % N_BYTES);
            for (int k = 0; k < N_BYTES && !(bits[id / 64] >> (id % 64) & 1); k++)
                id = (id + 1) % N_BYTES;
            if (!(bits[id / 64] >> (id % 64) & 1)) break;
            to = place;
            if (!goes_on(a, tern_automaton_token(a, &to, id, &err), &err)) return;
        }
        place = to;
    }
    if (tern_automaton_is_done(a, place)) fuzz_require(tern_automaton_accepts(a, place));
    if (goes_on(a, tern_automaton_add(a, &again, (const char *)text, n < 8 ? n : 8, &err), &err)) {
        tern_gplace third = tern_automaton_start(a);
        if (tern_automaton_add(a, &third, (const char *)text, n < 8 ? n : 8, &err) == TERN_OK)
            fuzz_require(third == again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const tern_call_form forms[] = {
        {.body = TERN_CALLS_JSON,
         .open = TERN_STR("<tool_call>"),
         .close = TERN_STR("</tool_call>")},
        {.body = TERN_CALLS_TAGS, .is_open = true, .close = TERN_STR("</tool_call>")},
        {.body = TERN_CALLS_PYTHON, .one_call = true, .open = TERN_STR("[TOOL")},
        {.body = TERN_CALLS_BRACED,
         .open = TERN_STR("call:"),
         .quote = TERN_STR("<|"),
         .forbidden = TERN_STR("<|")},
        {.body = TERN_CALLS_NAMED, .open = TERN_STR("[TOOL"), .args = TERN_STR("[ARGS]")},
    };
    if (n == 0) return 0;
    const unsigned kind = bytes[0] % (TERN_GRAMMAR_CALLS + 1), form = bytes[0] / 8 % 5;
    const uint8_t *text = bytes + 1, *zero = memchr(text, 0, n - 1);
    const size_t n_text = zero ? (size_t)(zero - text) : n - 1;
    const tern_str choices[2] = {{(const char *)text, n_text / 2}, TERN_STR("aa")};
    const tern_grammar_source source = {.kind = (tern_grammar_kind)kind,
                                        .text = {(const char *)text, n_text},
                                        .bytes_max = 16 << 20,
                                        .compact = bytes[0] & 128,
                                        .choices = choices,
                                        .n_choices = 2,
                                        .calls = &forms[form]};
    tern_automaton *a;
    tern_error err = {0};
    if (tern_automaton_open(&a, &source, vocab, &err) != TERN_OK) {
        fuzz_require(!a && err.message[0]);
        return 0;
    }
    if (zero && a->terms.effort < EFFORT_MAX) walk(a, zero + 1, n - n_text - 2);
    tern_automaton_close(a);
    return 0;
}
