// The functions of utf8proc that the library uses, with the same answers from smaller tables: 33 KB
// of memory instead of 335, and 20 KB of a page's download (gzip) instead of 75. Only the
// WebAssembly modules contain this file. tools/web/make_unicode_tables.c gets all answers from
// utf8proc and writes the tables; tests/wasm/web_unicode_test.c compares the two. Nothing here is
// ever written: any thread may call.
#include "utf8proc.h"
#include <stdbool.h>

// A property of every code point, a small number. Code points are in pages of 1 << shift, pages in
// blocks of 16: blocks[] has the number of a block, pages[16 * block + page % 16] where the page's
// runs begin. A run is two bytes: its length less 1, and a kind; kinds[kind] has the value of its
// first, third, ... code point and that of its second, fourth, ...: alphabets in which capitals and
// small letters alternate are one run. Equal parts are stored once.
typedef struct property {
    const uint8_t *blocks;
    const uint16_t *pages;
    const uint8_t *runs;
    const uint8_t (*kinds)[2];
    int shift;
} property;

// changes[..][value of cases]: the mapped code point minus the original.
enum { LOWER, UPPER, TITLE, FOLD };

// A code point that case folding maps to several; 0 after the last.
typedef struct long_fold {
    uint16_t code, to[3];
} long_fold;

// The code points that end a composed pair; its pairs begin at byte `pairs`.
typedef struct pair_end {
    uint32_t code;
    uint16_t n, pairs;
} pair_end;

#include "unicode_tables.inc"

enum { N_CODES = 0x110000 };
#define N_OF(table) ((int)(sizeof table / sizeof *table))

static const uint8_t *page_of(const property *p, uint32_t c) {
    uint32_t page = c >> p->shift;
    return p->runs + p->pages[16 * p->blocks[page / 16] + page % 16];
}

static unsigned value_at(const property *p, const uint8_t *run, uint32_t at) {
    for (; at > run[0]; run += 2) at -= run[0] + 1U;
    return p->kinds[run[1]][at & 1];
}

static unsigned value_of(const property *p, utf8proc_int32_t c) {
    uint32_t code = (uint32_t)c < N_CODES ? (uint32_t)c : N_CODES - 1; // the last one is unassigned
    return value_at(p, page_of(p, code), code & ((1U << p->shift) - 1));
}

utf8proc_category_t utf8proc_category(utf8proc_int32_t c) {
    if ((uint32_t)c < sizeof first_categories) return (utf8proc_category_t)first_categories[c];
    return (utf8proc_category_t)value_of(&categories, c);
}

const utf8proc_property_t *utf8proc_get_property(utf8proc_int32_t c) {
    return classes + value_of(&combining, c);
}

utf8proc_int32_t utf8proc_tolower(utf8proc_int32_t c) {
    return c + changes[LOWER][value_of(&cases, c)];
}

utf8proc_int32_t utf8proc_toupper(utf8proc_int32_t c) {
    return c + changes[UPPER][value_of(&cases, c)];
}

utf8proc_int32_t utf8proc_totitle(utf8proc_int32_t c) {
    return c + changes[TITLE][value_of(&cases, c)];
}

// ---- Decomposition ------------------------------------------------------------------------------

// Hangul's syllables, of a leading consonant, a vowel and perhaps a trailing consonant, are
// computed.
enum {
    SYLLABLE = 0xAC00,
    LEAD = 0x1100,
    VOWEL = 0x1161,
    TRAIL = 0x11A7, // one before the first: trail 0 means none
    N_LEADS = 19,
    N_VOWELS = 21,
    N_TRAILS = 28,
    N_SYLLABLES = N_LEADS * N_VOWELS * N_TRAILS,
};

// Seven bits a byte, the lowest first; all but the last have the eighth.
static uint32_t read_number(const uint8_t **in) {
    uint32_t v = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t b = *(*in)++;
        v |= (b & 127U) << shift;
        if (b < 128) return v;
    }
}

// The sign is the lowest bit.
static int32_t read_signed(const uint8_t **in) {
    uint32_t v = read_number(in);
    return (int32_t)(v >> 1) ^ -(int32_t)(v & 1);
}

// One step of c's mapping in the tables; returns the number of its code points. 0: it has none of
// this kind. A shape is 0 for no mapping, 2n - 1 for a canonical one of n code points, 2n for a
// compatible one. A page's runs of shapes come after two bytes, the place of its mappings, each of
// them written as differences to the one before.
static int read_mapping(uint32_t c, bool compatible, int32_t to[UNICODE_LONGEST]) {
    const uint8_t *page = page_of(&shapes, c), *run = page + 2;
    uint32_t at = c & ((1U << shapes.shift) - 1);
    unsigned shape = value_at(&shapes, run, at);
    if (shape == 0 || (shape % 2 == 0 && !compatible)) return 0;
    const uint8_t *in = mappings + (page[0] | page[1] << 8);
    to[0] = (int32_t)(c - at);
    for (int k = 1; k < UNICODE_LONGEST; k++) to[k] = 0;
    for (uint32_t i = 0, begin = 0;; i++) {
        if (i - begin > run[0]) {
            begin = i;
            run += 2;
        }
        int n = (shapes.kinds[run[1]][(i - begin) & 1] + 1) / 2;
        for (int k = 0; k < n; k++) to[k] += read_signed(&in) + (k == 0);
        if (i == at) return n;
    }
}

static void put(utf8proc_int32_t *out, utf8proc_ssize_t room, int *n, int32_t c) {
    if (*n < room) out[*n] = c;
    ++*n;
}

static void decompose(int32_t c, bool compatible, utf8proc_int32_t *out, utf8proc_ssize_t room,
                      int *n) {
    int32_t to[UNICODE_LONGEST], syllable = c - SYLLABLE;
    if (syllable >= 0 && syllable < N_SYLLABLES) {
        put(out, room, n, LEAD + syllable / (N_VOWELS * N_TRAILS));
        put(out, room, n, VOWEL + syllable / N_TRAILS % N_VOWELS);
        if (syllable % N_TRAILS) put(out, room, n, TRAIL + syllable % N_TRAILS);
        return;
    }
    int length = read_mapping((uint32_t)c, compatible, to);
    if (length == 0) put(out, room, n, c);
    for (int i = 0; i < length; i++) decompose(to[i], compatible, out, room, n);
}

static void fold(int32_t c, utf8proc_int32_t *out, utf8proc_ssize_t room, int *n) {
    int low = 0, high = N_OF(long_folds);
    while (low < high) {
        int middle = (low + high) / 2;
        if (long_folds[middle].code < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == N_OF(long_folds) || long_folds[low].code != c) {
        put(out, room, n, c + changes[FOLD][value_of(&cases, c)]);
        return;
    }
    for (int k = 0; k < 3 && long_folds[low].to[k]; k++) put(out, room, n, long_folds[low].to[k]);
}

utf8proc_ssize_t utf8proc_decompose_char(utf8proc_int32_t c, utf8proc_int32_t *out,
                                         utf8proc_ssize_t room, utf8proc_option_t options,
                                         int *last_boundclass) {
    (void)last_boundclass;
    int n = 0;
    if (c < 0 || c >= N_CODES) return UTF8PROC_ERROR_NOTASSIGNED;
    if (options == UTF8PROC_CASEFOLD)
        fold(c, out, room, &n);
    else if ((options & ~UTF8PROC_COMPAT) == (UTF8PROC_STABLE | UTF8PROC_DECOMPOSE))
        decompose(c, (options & UTF8PROC_COMPAT) != 0, out, room, &n);
    else
        return UTF8PROC_ERROR_INVALIDOPTS;
    return n;
}

// ---- Composition --------------------------------------------------------------------------------

// Composes two code points; 0: they stay two.
static int32_t compose_hangul(int32_t first, int32_t second) {
    int32_t lead = first - LEAD, syllable = first - SYLLABLE;
    int32_t vowel = second - VOWEL, trail = second - TRAIL;
    if (lead >= 0 && lead < N_LEADS && vowel >= 0 && vowel < N_VOWELS)
        return SYLLABLE + (lead * N_VOWELS + vowel) * N_TRAILS;
    // utf8proc takes U+11A7, trail 0, for a consonant, too, and so drops it.
    if (syllable >= 0 && syllable < N_SYLLABLES && syllable % N_TRAILS == 0 && trail >= 0 &&
        trail < N_TRAILS)
        return first + trail;
    return 0;
}

// The same by the tables. Pairs with one end are sorted by their first code points and written as
// differences to the pair before: the increase of the first, and by how much the composed one's
// increase exceeds it.
static int32_t compose_pair(int32_t first, int32_t second) {
    int low = 0, high = N_OF(pair_ends);
    while (low < high) {
        int middle = (low + high) / 2;
        if (pair_ends[middle].code < (uint32_t)second)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == N_OF(pair_ends) || pair_ends[low].code != (uint32_t)second) return 0;
    const uint8_t *in = pairs + pair_ends[low].pairs;
    int32_t code = 0, composed = 0;
    for (int i = 0; i < pair_ends[low].n && code < first; i++) {
        int32_t more = (int32_t)read_number(&in);
        code += more;
        composed += more + read_signed(&in);
    }
    return code == first ? composed : 0;
}

utf8proc_ssize_t utf8proc_normalize_utf32(utf8proc_int32_t *codes, utf8proc_ssize_t n,
                                          utf8proc_option_t options) {
    if (options != (UTF8PROC_STABLE | UTF8PROC_COMPOSE)) return UTF8PROC_ERROR_INVALIDOPTS;
    utf8proc_ssize_t kept = 0, starter = -1;
    int highest = -1; // highest class between the starter and codes[i]; -1: nothing between
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        int class = utf8proc_get_property(codes[i])->combining_class;
        if (starter >= 0 && class > highest) {
            int32_t composed = compose_hangul(codes[starter], codes[i]);
            if (!composed) composed = compose_pair(codes[starter], codes[i]);
            if (composed) {
                codes[starter] = composed;
                continue;
            }
        }
        codes[kept] = codes[i];
        if (class == 0) starter = kept;
        highest = class == 0 ? -1 : class > highest ? class : highest;
        kept++;
    }
    return kept;
}
