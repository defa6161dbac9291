#include "input/tokenizer/split/split.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "tests/support/harness.h"

static uint32_t next_random(uint32_t *state) {
    return (*state = *state * 1664525u + 1013904223u) >> 8;
}

// Characters that the expressions treat differently, and some that only look different.
static size_t random_text(uint32_t *r, char *out, size_t n_chars) {
    static const uint32_t codes[] = {
        'a',    'S',    't',    'R',    'e',    'v',     'm',     'l',     'L',   'd',   '\'',
        '\'',   '0',    '7',    ' ',    ' ',    ' ',     '\t',    '\n',    '\r',  '\v',  '.',
        '/',    '$',    '_',    0x85,   0xA0,   0xB2,    0xE9,    0x17F,   0x301, 0x661, 0x2028,
        0x2167, 0x3000, 0x4E2D, 0xAC00, 0x200B, 0x1F600, 0x10400, 0x1D7D8, 0};
    size_t n = 0;
    for (size_t i = 0; i < n_chars; i++)
        n += (size_t)tern_utf8_encode(codes[next_random(r) % (sizeof codes / sizeof *codes)],
                                      out + n);
    return n;
}

static void compare_with_regex(const char *expression, tern_pattern_kind kind) {
    tern_splitter fast = {0}, slow = {0};
    tern_error err = {0};
    char wrapped[512]; // a spelling that is not recognised
    snprintf(wrapped, sizeof wrapped, "(?:%s)", expression);
    tern_split_step *a = tern_splitter_add(&fast), *b = tern_splitter_add(&slow);
    REQUIRE_OK(
        tern_pattern_open_regex(&a->pattern, (tern_str){expression, strlen(expression)}, &err),
        err);
    REQUIRE_OK(tern_pattern_open_regex(&b->pattern, (tern_str){wrapped, strlen(wrapped)}, &err),
               err);
    CHECK(a->pattern.kind == kind && b->pattern.kind == TERN_PATTERN_REGEX);
    tern_pieces x = {0}, y = {0};
    uint32_t r = 7;
    for (int i = 0; i < 20000; i++) {
        char text[256];
        size_t n = random_text(&r, text, 1 + next_random(&r) % 16);
        CHECK(tern_splitter_run(&fast, text, n, true, &x, &err) == TERN_OK);
        CHECK(tern_splitter_run(&slow, text, n, true, &y, &err) == TERN_OK);
        bool same = x.n == y.n && memcmp(x.list, y.list, x.n * sizeof *x.list) == 0;
        CHECK_MSG(same, "%s: \"%.*s\"", expression, (int)n, text);
        if (!same) break;
    }
    tern_pieces_free(&x);
    tern_pieces_free(&y);
    tern_splitter_close(&fast);
    tern_splitter_close(&slow);
}

#define TAIL(digits)                                                                               \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"       \
    "|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"

TEST(split_llama3_is_its_expression) {
    compare_with_regex("(?i:'s|'t|'re|'ve|'m|'ll|'d)" TAIL("\\p{N}{1,3}"), TERN_PATTERN_LLAMA3);
    compare_with_regex(
        "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])" TAIL("\\p{N}{1,3}"),
        TERN_PATTERN_LLAMA3);
}
TEST(split_qwen2_is_its_expression) {
    compare_with_regex("(?i:'s|'t|'re|'ve|'m|'ll|'d)" TAIL("\\p{N}"), TERN_PATTERN_LLAMA3);
}
TEST(split_gpt2_is_its_expression) {
    compare_with_regex(GPT2 "|\\s+", TERN_PATTERN_GPT2);
    compare_with_regex(GPT2, TERN_PATTERN_GPT2);
}
TEST(split_digits_are_their_expression) {
    compare_with_regex("\\p{N}", TERN_PATTERN_DIGIT);
    compare_with_regex("\\p{N}+", TERN_PATTERN_DIGITS);
}

// Pieces joined by '|'.
static void check_split(const char *expression, tern_split_behavior behavior, bool invert,
                        const char *text, const char *expected, int line) {
    tern_splitter s = {0};
    tern_error err = {0};
    tern_split_step *step = tern_splitter_add(&s);
    step->behavior = behavior;
    step->invert = invert;
    REQUIRE_OK(
        tern_pattern_open_regex(&step->pattern, (tern_str){expression, strlen(expression)}, &err),
        err);
    tern_pieces p = {0};
    tern_strbuf joined = {0};
    CHECK(tern_splitter_run(&s, text, strlen(text), true, &p, &err) == TERN_OK);
    for (size_t i = 0; i < p.n; i++) {
        if (i) tern_strbuf_putc(&joined, '|');
        tern_strbuf_append(&joined, p.text + p.list[i].at, p.list[i].n);
    }
    test_check(strcmp(tern_strbuf_text(&joined), expected) == 0, __FILE__, line, "gave %s",
               tern_strbuf_text(&joined));
    tern_strbuf_free(&joined);
    tern_pieces_free(&p);
    tern_splitter_close(&s);
}
#define CHECK_SPLIT(expression, behavior, invert, text, expected)                                  \
    check_split(expression, behavior, invert, text, expected, __LINE__)

TEST(split_behaviors) {
    const char *text = "the-final--countdown";
    CHECK_SPLIT("-", TERN_SPLIT_REMOVED, false, text, "the|final|countdown");
    CHECK_SPLIT("-", TERN_SPLIT_ISOLATED, false, text, "the|-|final|-|-|countdown");
    CHECK_SPLIT("-", TERN_SPLIT_MERGE_PREVIOUS, false, text, "the-|final-|-|countdown");
    CHECK_SPLIT("-", TERN_SPLIT_MERGE_NEXT, false, text, "the|-final|-|-countdown");
    CHECK_SPLIT("-", TERN_SPLIT_CONTIGUOUS, false, text, "the|-|final|--|countdown");
    CHECK_SPLIT("[a-z]+", TERN_SPLIT_REMOVED, true, text, "the|final|countdown");
    CHECK_SPLIT("-", TERN_SPLIT_MERGE_PREVIOUS, false, "-a-", "-|a-");
    CHECK_SPLIT("-", TERN_SPLIT_MERGE_NEXT, false, "-a-", "-a|-");
}

TEST(split_takes_empty_matches) {
    CHECK_SPLIT("(?=(\\d{3})+(?!\\d))", TERN_SPLIT_ISOLATED, false, "1234567", "1|234|567");
    CHECK_SPLIT("x*", TERN_SPLIT_REMOVED, false, "a\xC3\xA9xxb", "a|\xC3\xA9|b");
}

TEST(split_sees_past_its_window) { // a match longer than a search's first window
    const size_t n = 20000;
    char *text = tern_alloc(TERN_MEM_MISC, n + 1);
    REQUIRE(text);
    memset(text, 'x', n);
    text[n - 1] = 'y';
    tern_splitter s = {0};
    tern_pieces p = {0};
    tern_error err = {0};
    tern_split_step *step = tern_splitter_add(&s);
    REQUIRE_OK(tern_pattern_open_regex(&step->pattern, TERN_STR("x+(?=y)|y$"), &err), err);
    CHECK(tern_splitter_run(&s, text, n, true, &p, &err) == TERN_OK);
    CHECK(p.n == 2 && p.list[0].n == n - 1 && p.list[1].n == 1);
    tern_pieces_free(&p);
    tern_splitter_close(&s);
    tern_free(text);
}

// Expressions that would backtrack forever end, too.
TEST(split_is_bounded_in_time) {
    static const char *const bombs[] = {
        "(a+)+b",  "a+b",        "(?:a|aa)+b",        "(a*)*b",
        "a*?a++b", "(a|b|ab)*c", "(.*)(.*)(.*)(.*)x", "(?R)?ab|a(?R)b"};
    const size_t n = 1 << 20;
    char *text = tern_alloc(TERN_MEM_MISC, n + 1);
    REQUIRE(text);
    memset(text, 'a', n);
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        tern_splitter s = {0};
        tern_pieces p = {0};
        tern_error err = {0};
        tern_split_step *step = tern_splitter_add(&s);
        clock_t start = clock();
        if (tern_pattern_open_regex(&step->pattern, (tern_str){bombs[i], strlen(bombs[i])}, &err) ==
            TERN_OK)
            (void)tern_splitter_run(&s, text, n, true, &p, &err);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (getenv("TERN_TEST_TIMES")) printf("%s: %.2f s\n", bombs[i], seconds);
        CHECK_MSG(seconds < 10, "%s: %.1f s", bombs[i], seconds);
        tern_pieces_free(&p);
        tern_splitter_close(&s);
    }
    tern_free(text);
}

TEST(split_refuses_what_it_cannot_mean) {
    static const char *const bad[] = {"[a&&[^b]]",     "[a[b]]", "(", "[",        "a{2,1}", "a\\X",
                                      "\\p{Nonsense}", "\\C",    "*", "(?<=a+)b", "(a)\\1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tern_pattern p = {0};
        tern_error err = {0};
        CHECK_MSG(tern_pattern_open_regex(&p, (tern_str){bad[i], strlen(bad[i])}, &err) ==
                      TERN_ERR_UNSUPPORTED,
                  "%s", bad[i]);
        CHECK_MSG(strstr(err.message, bad[i]) != NULL || bad[i][0] == '\\', "%s", err.message);
        tern_pattern_close(&p);
    }
    tern_pattern p = {0};
    CHECK(tern_pattern_open_regex(&p, TERN_STR("[[:alpha:]\\[&]"), NULL) == TERN_OK);
    tern_pattern_close(&p);
}

TEST(split_metaspace_and_prefix) {
    tern_splitter s = {0};
    tern_pieces p = {0};
    tern_error err = {0};
    tern_split_step *step = tern_splitter_add(&s);
    step->kind = TERN_STEP_METASPACE;
    step->prepend = TERN_PREPEND_FIRST;
    step = tern_splitter_add(&s);
    step->behavior = TERN_SPLIT_MERGE_NEXT;
    REQUIRE_OK(tern_pattern_open_literal(&step->pattern, TERN_STR("\xE2\x96\x81"), &err), err);
    CHECK(tern_splitter_run(&s, "a bc", 4, true, &p, &err) == TERN_OK);
    CHECK(p.n == 2 && p.list[0].n == 4 && p.list[1].n == 5);
    CHECK(tern_splitter_run(&s, "a bc", 4, false, &p, &err) == TERN_OK);
    CHECK(p.n == 2 && p.list[0].n == 1);
    tern_splitter_close(&s);
    tern_splitter_add(&s)->kind = TERN_STEP_PREFIX_SPACE;
    CHECK(tern_splitter_run(&s, "ab", 2, true, &p, &err) == TERN_OK);
    CHECK(p.n == 1 && p.list[0].n == 3 && memcmp(p.text, " ab", 3) == 0);
    tern_pieces_free(&p);
    tern_splitter_close(&s);
}
