// What the WebAssembly modules have in the place of utf8proc (apps/web/unicode) against utf8proc:
// all code points, all pairs that may compose, and random texts through whole normal forms.
#include <string.h>
#include <utf8proc.h>
#include "tests/support/harness.h"
#include "tests/wasm/unicode_functions.h"

#define UNICODE_TABLE library_unicode
#include "tests/wasm/unicode_functions.inl"

enum { N_CODES = 0x110000, LONGEST = 32 };

static const unicode_functions *const want = &library_unicode, *const got = &web_unicode;

// And of numbers that are none. Seen to fail: runs that alternate taken for even ones, pages of the
// block before.
TEST(web_unicode_has_the_properties_of_all_code_points) {
    int n_wrong = 0;
    int32_t first = 0;
    for (int32_t c = -3; c < N_CODES + 3; c++) {
        bool same = got->category(c) == want->category(c) &&
                    got->combining_class(c) == want->combining_class(c) &&
                    got->lower(c) == want->lower(c) && got->upper(c) == want->upper(c) &&
                    got->title(c) == want->title(c);
        if (!same && n_wrong++ == 0) first = c;
    }
    CHECK_MSG(n_wrong == 0, "%d code points, the first of them %#x", n_wrong, (unsigned)first);
    int32_t far[] = {INT32_MIN, INT32_MAX};
    for (int i = 0; i < 2; i++)
        CHECK(got->category(far[i]) == UTF8PROC_CATEGORY_CN && got->lower(far[i]) == far[i]);
}

typedef ptrdiff_t (*mapping)(int32_t c, int32_t *out, ptrdiff_t room);

// The same length and code points, and nothing written where there is no room.
static bool same_mapping(mapping a, mapping b, int32_t c, ptrdiff_t room) {
    int32_t x[LONGEST], y[LONGEST];
    memset(x, 0x55, sizeof x);
    memset(y, 0x55, sizeof y);
    return a(c, x, room) == b(c, y, room) && memcmp(x, y, sizeof x) == 0;
}

static void check_mapping(const char *name, mapping a, mapping b) {
    int n_wrong = 0;
    int32_t first = 0;
    for (int32_t c = -1; c <= N_CODES; c++) {
        bool same = same_mapping(a, b, c, LONGEST);
        if (c % 7 == 0 || (c >= 0xF900 && c < 0x10000))
            for (int room = 0; room < 4; room++) same = same && same_mapping(a, b, c, room);
        if (!same && n_wrong++ == 0) first = c;
    }
    CHECK_MSG(n_wrong == 0, "%s: %d code points, the first of them %#x", name, n_wrong,
              (unsigned)first);
}

// Seen to fail: to[k] set instead of added to, shapes of compatible ones taken for canonical ones,
// a trailing consonant that is always put, long_folds without its last.
TEST(web_unicode_has_the_mappings_of_all_code_points) {
    check_mapping("canonical", got->canonical, want->canonical);
    check_mapping("compatible", got->compatible, want->compatible);
    check_mapping("fold", got->fold, want->fold);
    int32_t out[LONGEST];
    int boundary = 0;
    CHECK(got->canonical(-1, out, LONGEST) == UTF8PROC_ERROR_NOTASSIGNED);
    CHECK(got->compatible(0xFDFA, out, LONGEST) == 18);
    CHECK(
        got->compatible(0xFDFA, NULL, 0) ==
        utf8proc_decompose_char(0xFDFA, NULL, 0, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &boundary));
}

static bool same_pair(int32_t first, int32_t second) {
    int32_t x[2] = {first, second}, y[2] = {first, second};
    ptrdiff_t n = got->compose(x, 2);
    return n == want->compose(y, 2) && memcmp(x, y, sizeof x) == 0;
}

typedef struct code_list {
    int32_t codes[0x2000];
    size_t n;
} code_list;

static void list_codes(code_list *list, const bool *is_in) {
    list->n = 0;
    for (int32_t c = 0; c < N_CODES && list->n < sizeof list->codes / sizeof *list->codes; c++)
        if (is_in[c]) list->codes[list->n++] = c;
}

// Code points that occur in canonical mappings and those that have one; and of these, what comes
// after another one, and some more.
static void find_parts(code_list *parts, code_list *later) {
    static bool is_part[N_CODES], is_later[N_CODES];
    for (int32_t c = 0; c < N_CODES; c++) {
        int32_t to[LONGEST];
        ptrdiff_t length = want->canonical(c, to, LONGEST);
        if (c >= 0xAC00 && c < 0xD7A4 && c % 97) continue; // of Hangul's syllables some
        if (length == 1 && to[0] == c) continue;
        is_part[c] = true;
        if (c % 16 == 0) is_later[c] = true;
        for (ptrdiff_t i = 0; i < length && i < LONGEST; i++) is_part[to[i]] = true;
        for (ptrdiff_t i = 1; i < length && i < LONGEST; i++) is_later[to[i]] = true;
    }
    list_codes(parts, is_part);
    list_codes(later, is_later);
}

static code_list parts, later;

// Seen to fail: Hangul's vowels counted from one, a first code point that is only the next one
// there is, U+11A7 kept (which utf8proc drops).
TEST(web_unicode_composes_the_same_pairs) {
    static const int32_t some[] = {'a', 0x301, 0x1100, 0x11A7, 0xAC00, 0x3099, 0x110BA};
    find_parts(&parts, &later);
    int n_wrong = 0, n_composed = 0;
    for (size_t i = 0; i < parts.n; i++)
        for (size_t j = 0; j < later.n; j++) {
            int32_t pair[2] = {parts.codes[i], later.codes[j]};
            n_wrong += !same_pair(pair[0], pair[1]);
            n_composed += want->compose(pair, 2) == 1;
        }
    CHECK_MSG(n_wrong == 0, "%d pairs", n_wrong);
    CHECK_MSG(n_composed > 900, "only %d pairs are one code point", n_composed);
    for (int32_t c = 0; c < N_CODES; c++)
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
            n_wrong += !same_pair(c, some[i]) || !same_pair(some[i], c);
    CHECK_MSG(n_wrong == 0, "%d pairs with any code point", n_wrong);
}

// ---- Texts --------------------------------------------------------------------------------------

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static int32_t random_code(uint32_t *state) {
    switch (next_random(state) % 8) {
    case 0: return (int32_t)(0x1100 + next_random(state) % 0x100); // Hangul's letters...
    case 1: return (int32_t)(0xAC00 + next_random(state) % 11172); // ...and syllables
    case 2: return (int32_t)(0x300 + next_random(state) % 0x70);   // marks
    case 3: return (int32_t)(next_random(state) % N_CODES);
    default: return parts.codes[next_random(state) % parts.n];
    }
}

// Code points and decomposed ones, of which here and there two neighbours have changed places.
static int random_text(uint32_t *state, int32_t *text, int n) {
    int length = 0;
    while (length < n) {
        int32_t to[LONGEST] = {random_code(state)};
        int k = next_random(state) % 2 ? 1 : (int)want->canonical(to[0], to, LONGEST);
        for (int i = 0; i < k && length < n; i++) text[length++] = to[i];
    }
    for (uint32_t i = next_random(state) % (2 * (uint32_t)n); i + 1 < (uint32_t)n; i += 4) {
        int32_t c = text[i];
        text[i] = text[i + 1];
        text[i + 1] = c;
    }
    return length;
}

static void order_marks(const unicode_functions *f, int32_t *codes, ptrdiff_t n) {
    for (ptrdiff_t i = 1; i < n; i++) {
        int32_t c = codes[i];
        ptrdiff_t j = i;
        for (; j > 0 && f->combining_class(c) &&
               f->combining_class(codes[j - 1]) > f->combining_class(c);
             j--)
            codes[j] = codes[j - 1];
        codes[j] = c;
    }
}

typedef struct form {
    bool compatible, ordered, composed;
} form;

static ptrdiff_t normalize(const unicode_functions *f, form to, const int32_t *text, int n,
                           int32_t *out, ptrdiff_t room) {
    mapping map = to.compatible ? f->compatible : f->canonical;
    ptrdiff_t length = 0;
    for (int i = 0; i < n; i++) length += map(text[i], out + length, room - length);
    if (to.ordered) order_marks(f, out, length);
    return to.composed ? f->compose(out, length) : length;
}

// NFD, NFKD, NFC, NFKC, and marks that nobody put in order. Seen to fail: marks that compose across
// one of their own class, a class forgotten where a lower one follows, a starter that stays the
// first.
TEST(web_unicode_normalizes_texts_alike) {
    enum { N = 12, ROOM = 18 * N };
    static const form forms[] = {{0, 1, 0}, {1, 1, 0}, {0, 1, 1}, {1, 1, 1}, {0, 0, 1}};
    static int32_t x[ROOM], y[ROOM];
    find_parts(&parts, &later);
    uint32_t state = 1;
    int n_wrong = 0, n_composed = 0;
    for (int round = 0; round < 40000; round++) {
        int32_t text[N];
        int n = random_text(&state, text, 1 + (int)(next_random(&state) % N));
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            ptrdiff_t a = normalize(got, forms[i], text, n, x, ROOM);
            ptrdiff_t b = normalize(want, forms[i], text, n, y, ROOM);
            n_wrong += a != b || memcmp(x, y, (size_t)b * sizeof *x) != 0;
            n_composed += forms[i].ordered && forms[i].composed && b < n;
        }
    }
    CHECK_MSG(n_wrong == 0, "%d texts", n_wrong);
    CHECK_MSG(n_composed > 1000, "only %d texts became shorter", n_composed);
}
