// usage: make_unicode_tables > unicode_tables.inc
// Asks utf8proc about every code point and writes the answers as the tables of
// apps/web/unicode/web_unicode.c, which says how they are read. Linked with the utf8proc whose
// answers are wanted: the same one gives the same bytes.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { N_CODES = 0x110000, SYLLABLE = 0xAC00, N_SYLLABLES = 11172, LONGEST = 32, N_FIRST = 0x180 };

// What these tables have no room for ends the program: nothing does so far.
static void require(bool fits, const char *what, int32_t c) {
    if (fits) return;
    fprintf(stderr, "make_unicode_tables: U+%04X: %s\n", (unsigned)c, what);
    exit(1);
}

// ---- Bytes --------------------------------------------------------------------------------------

// No longer than places of 16 bits reach.
typedef struct bytes {
    uint8_t at[0x10000];
    size_t n;
} bytes;

static void put(bytes *out, unsigned v) {
    require(out->n < sizeof out->at && v < 256, "too much for 16 bits", 0);
    out->at[out->n++] = (uint8_t)v;
}

static void put_number(bytes *out, uint32_t v) {
    for (; v > 127; v >>= 7) put(out, 128 | (v & 127));
    put(out, v);
}

static void put_signed(bytes *out, int32_t v) {
    put_number(out, v < 0 ? 2 * (uint32_t)-v - 1 : 2 * (uint32_t)v);
}

static void begin_table(const char *type, const char *name) {
    printf("static const %s %s[] = {", type, name);
}

static void end_table(void) { printf("\n};\n"); }

// The i-th number of a table.
static void print_number(size_t i, long v) { printf("%s%ld,", i % 20 ? "" : "\n", v); }

static void print_bytes(const char *name, const bytes *b) {
    begin_table("uint8_t", name);
    for (size_t i = 0; i < b->n; i++) print_number(i, b->at[i]);
    end_table();
}

// ---- Properties ---------------------------------------------------------------------------------

static uint8_t values[N_CODES]; // the property at hand
static bytes runs;
static uint8_t kinds[256][2];
static size_t n_kinds;

static unsigned kind_of(uint8_t even, uint8_t odd) {
    for (size_t i = 0; i < n_kinds; i++)
        if (kinds[i][0] == even && kinds[i][1] == odd) return (unsigned)i;
    require(n_kinds < 256, "too many kinds of runs", even);
    kinds[n_kinds][0] = even;
    kinds[n_kinds][1] = odd;
    return (unsigned)n_kinds++;
}

static int repeats(const uint8_t *v, int n, int distance) {
    int length = distance;
    while (length < n && v[length] == v[length - distance]) length++;
    return length < n ? length : n;
}

static void put_page(bytes *out, const uint8_t *v, int n) {
    for (int i = 0; i < n;) {
        int length = repeats(v + i, n - i, 1), both = repeats(v + i, n - i, 2);
        bool alternate = length == 1 && both >= 4;
        if (alternate) length = both;
        put(out, (unsigned)length - 1);
        put(out, kind_of(v[i], v[alternate ? i + 1 : i]));
        i += length;
    }
}

// Where in runs this page stands, which is put there unless it is there already.
static uint16_t place_page(const bytes *page) {
    for (size_t at = 0; at + page->n <= runs.n; at++)
        if (memcmp(runs.at + at, page->at, page->n) == 0) return (uint16_t)at;
    size_t at = runs.n;
    for (size_t i = 0; i < page->n; i++) put(&runs, page->at[i]);
    return (uint16_t)at;
}

static void print_blocks(const char *name, const uint16_t *pages, int n_pages) {
    static uint16_t blocks[256][16];
    char table[64];
    size_t n = 0;
    snprintf(table, sizeof table, "%s_blocks", name);
    begin_table("uint8_t", table);
    for (int page = 0; page < n_pages; page += 16) {
        size_t i = 0;
        while (i < n && memcmp(blocks[i], pages + page, sizeof blocks[i]) != 0) i++;
        require(i < 256, "too many blocks of pages", page);
        if (i == n) memcpy(blocks[n++], pages + page, sizeof blocks[i]);
        print_number((size_t)page / 16, (long)i);
    }
    end_table();
    snprintf(table, sizeof table, "%s_pages", name);
    begin_table("uint16_t", table);
    for (size_t i = 0; i < 16 * n; i++) print_number(i, blocks[i / 16][i % 16]);
    end_table();
}

// values as a property of this name with pages of 1 << shift. places, if there are any: of each
// page two bytes that come before its runs.
static void print_property(const char *name, int shift, const uint16_t *places) {
    static uint16_t pages[N_CODES >> 4];
    static bytes page;
    char table[64];
    int n_pages = N_CODES >> shift;
    runs.n = 0;
    n_kinds = 0;
    for (int i = 0; i < n_pages; i++) {
        page.n = 0;
        if (places) put(&page, places[i] & 255U);
        if (places) put(&page, places[i] >> 8);
        put_page(&page, values + ((size_t)i << shift), 1 << shift);
        pages[i] = place_page(&page);
    }
    print_blocks(name, pages, n_pages);
    snprintf(table, sizeof table, "%s_runs", name);
    print_bytes(table, &runs);
    printf("static const uint8_t %s_kinds[][2] = {", name);
    for (size_t i = 0; i < n_kinds; i++)
        printf("%s{%d, %d},", i % 10 ? "" : "\n", kinds[i][0], kinds[i][1]);
    end_table();
    printf("static const property %s = {%s_blocks, %s_pages, %s_runs, %s_kinds, %d};\n", name, name,
           name, name, name, shift);
}

static void print_categories(void) {
    for (int32_t c = 0; c < N_CODES; c++) values[c] = (uint8_t)utf8proc_category(c);
    begin_table("uint8_t", "first_categories");
    for (size_t c = 0; c < N_FIRST; c++) print_number(c, values[c]);
    end_table();
    print_property("categories", 7, NULL);
}

// Few classes occur: the property is a place in the list of them.
static void print_classes(void) {
    int classes[256], n = 0;
    begin_table("utf8proc_property_t", "classes");
    for (int32_t c = 0; c < N_CODES; c++) {
        int class = utf8proc_get_property(c)->combining_class, i = 0;
        while (i < n && classes[i] != class) i++;
        require(i < 256, "too many combining classes", c);
        if (i == n) {
            classes[n++] = class;
            printf("{%d},", class);
        }
        values[c] = (uint8_t)i;
    }
    end_table();
    print_property("combining", 7, NULL);
}

// ---- Case ---------------------------------------------------------------------------------------

static int decompose(int32_t c, int options, int32_t out[LONGEST]) {
    int boundary = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, out, LONGEST, (utf8proc_option_t)options, &boundary);
    require(n > 0 && n <= LONGEST, "a mapping of no length or too long", c);
    return (int)n;
}

// Every combination of changes once: all their lower ones, all upper ones, and so on.
static void print_changes(void) {
    static int32_t changes[256][4];
    int n = 0;
    for (int32_t c = 0; c < N_CODES; c++) {
        int32_t folded[LONGEST], to = decompose(c, UTF8PROC_CASEFOLD, folded) == 1 ? folded[0] : c;
        int32_t change[4] = {utf8proc_tolower(c) - c, utf8proc_toupper(c) - c,
                             utf8proc_totitle(c) - c, to - c};
        int i = 0;
        while (i < n && memcmp(changes[i], change, sizeof change) != 0) i++;
        require(i < 256, "too many changes of case", c);
        if (i == n) memcpy(changes[n++], change, sizeof change);
        values[c] = (uint8_t)i;
    }
    printf("static const int32_t changes[4][%d] = {", n);
    for (int k = 0; k < 4; k++) {
        printf("{");
        for (int i = 0; i < n; i++) print_number((size_t)i, changes[i][k]);
        printf("},\n");
    }
    end_table();
}

static void print_long_folds(void) {
    begin_table("long_fold", "long_folds");
    for (int32_t c = 0; c < N_CODES; c++) {
        int32_t to[LONGEST] = {0};
        int length = decompose(c, UTF8PROC_CASEFOLD, to);
        if (length == 1) continue;
        require(length <= 3 && c < 0x10000, "a long folding that is too long", c);
        for (int k = 0; k < 3; k++) require(to[k] < 0x10000, "a long folding to large codes", c);
        printf("\n{%d, {%d, %d, %d}},", c, to[0], to[1], to[2]);
    }
    end_table();
}

// ---- Decomposition ------------------------------------------------------------------------------

static bool is_syllable(int32_t c) { return c >= SYLLABLE && c < SYLLABLE + N_SYLLABLES; }

// Canonical, one step: what is composed of all but the last code point, and the last, if there is
// such a code point; else all of it, which has the same outcome.
static int canonical_step(int32_t c, int32_t to[LONGEST]) {
    int n = decompose(c, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, to);
    if (n <= 2) return n;
    int32_t start[LONGEST], again[LONGEST];
    memcpy(start, to, sizeof start);
    if (utf8proc_normalize_utf32(start, n - 1, UTF8PROC_STABLE | UTF8PROC_COMPOSE) != 1) return n;
    if (decompose(start[0], UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, again) != n - 1) return n;
    if (memcmp(to, again, (size_t)(n - 1) * sizeof *to) != 0) return n;
    to[1] = to[n - 1];
    to[0] = start[0];
    return 2;
}

// A mapping and its shape, as web_unicode.c counts them.
static int mapping_of(int32_t c, int32_t to[LONGEST], int *shape) {
    *shape = 0;
    if (is_syllable(c)) return 0;
    int n = canonical_step(c, to);
    if (n > 1 || to[0] != c) {
        *shape = 2 * n - 1;
        return n;
    }
    n = decompose(c, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, to);
    if (n == 1 && to[0] == c) return 0;
    *shape = 2 * n;
    return n;
}

static void print_mappings(void) {
    enum { SHIFT = 6, SIZE = 1 << SHIFT };
    static bytes mappings;
    static uint16_t places[N_CODES >> SHIFT];
    int32_t last[LONGEST], to[LONGEST];
    int longest = 1;
    size_t begin = 0;
    for (int32_t c = 0; c < N_CODES; c++) {
        if (c % SIZE == 0) {
            begin = mappings.n;
            memset(last, 0, sizeof last);
            last[0] = c;
        }
        int shape, n = mapping_of(c, to, &shape);
        values[c] = (uint8_t)shape;
        if (n > 0) places[c / SIZE] = (uint16_t)begin; // pages without any stay alike
        for (int k = 0; k < n; k++) {
            put_signed(&mappings, to[k] - last[k] - (k == 0));
            last[k] = to[k];
        }
        if (n > longest) longest = n;
    }
    printf("enum { UNICODE_LONGEST = %d };\n", longest);
    print_bytes("mappings", &mappings);
    print_property("shapes", SHIFT, places);
}

// ---- Composition --------------------------------------------------------------------------------

typedef struct pair {
    int32_t first, end, composed;
} pair;

static int by_end(const void *a, const void *b) {
    const pair *x = a, *y = b;
    return x->end != y->end ? (x->end > y->end) - (x->end < y->end)
                            : (x->first > y->first) - (x->first < y->first);
}

static size_t find_pairs(pair *list, size_t room) {
    size_t n = 0;
    for (int32_t c = 0; c < N_CODES; c++) {
        int32_t to[LONGEST];
        if (is_syllable(c) || canonical_step(c, to) != 2) continue;
        pair p = {to[0], to[1], c};
        if (utf8proc_normalize_utf32(to, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE) != 1) continue;
        if (to[0] != c)
            continue; // another name of a composed code point: U+212B, the Angstrom sign
        require(n < room, "too many pairs", c);
        list[n++] = p;
    }
    qsort(list, n, sizeof *list, by_end);
    return n;
}

static void print_pairs(void) {
    static pair list[4096];
    static bytes pairs;
    size_t n = find_pairs(list, sizeof list / sizeof *list);
    begin_table("pair_end", "pair_ends");
    for (size_t i = 0, j; i < n; i = j) {
        size_t place = pairs.n;
        pair last = {0};
        for (j = i; j < n && list[j].end == list[i].end; j++) {
            int32_t more = list[j].first - last.first;
            put_number(&pairs, (uint32_t)more);
            put_signed(&pairs, list[j].composed - last.composed - more);
            last = list[j];
        }
        printf("\n{%d, %zu, %zu},", list[i].end, j - i, place);
    }
    end_table();
    print_bytes("pairs", &pairs);
}

// ---- The header's constants ---------------------------------------------------------------------

#define CHECK(name)          printf("_Static_assert(%s == %d, \"utf8proc.h\");\n", #name, (int)name)
#define CHECK_CATEGORY(name) CHECK(UTF8PROC_CATEGORY_##name)

static void print_checks(void) {
    CHECK(UTF8PROC_STABLE);
    CHECK(UTF8PROC_COMPAT);
    CHECK(UTF8PROC_COMPOSE);
    CHECK(UTF8PROC_DECOMPOSE);
    CHECK(UTF8PROC_CASEFOLD);
    CHECK(UTF8PROC_ERROR_NOTASSIGNED);
    CHECK(UTF8PROC_ERROR_INVALIDOPTS);
    CHECK_CATEGORY(CN);
    CHECK_CATEGORY(LU);
    CHECK_CATEGORY(LL);
    CHECK_CATEGORY(LT);
    CHECK_CATEGORY(LM);
    CHECK_CATEGORY(LO);
    CHECK_CATEGORY(MN);
    CHECK_CATEGORY(MC);
    CHECK_CATEGORY(ME);
    CHECK_CATEGORY(ND);
    CHECK_CATEGORY(NL);
    CHECK_CATEGORY(NO);
    CHECK_CATEGORY(PC);
    CHECK_CATEGORY(PD);
    CHECK_CATEGORY(PS);
    CHECK_CATEGORY(PE);
    CHECK_CATEGORY(PI);
    CHECK_CATEGORY(PF);
    CHECK_CATEGORY(PO);
    CHECK_CATEGORY(SM);
    CHECK_CATEGORY(SC);
    CHECK_CATEGORY(SK);
    CHECK_CATEGORY(SO);
    CHECK_CATEGORY(ZS);
    CHECK_CATEGORY(ZL);
    CHECK_CATEGORY(ZP);
    CHECK_CATEGORY(CC);
    CHECK_CATEGORY(CF);
    CHECK_CATEGORY(CS);
    CHECK_CATEGORY(CO);
}

int main(void) {
    printf("// Unicode %s, from utf8proc %s by tools/web/make_unicode_tables.c\n",
           utf8proc_unicode_version(), utf8proc_version());
    print_checks();
    print_categories();
    print_classes();
    print_changes();
    print_property("cases", 7, NULL);
    print_long_folds();
    print_mappings();
    print_pairs();
    return fflush(stdout) != 0 || ferror(stdout);
}
