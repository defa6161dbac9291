// Case from Unicode's SpecialCasing.txt and derived properties, as in Python's str methods: letters
// whose capital is several letters, and which characters have case at all. utf8proc has the rest,
// the mappings of one character to one.
#include <utf8proc.h>
#include "input/unicode.h"

typedef struct special {
    uint16_t code, to[3]; // 0 after the last
} special;

static const special upper_table[] = {
#include "input/upper_case.inl"
};
static const special title_table[] = {
#include "input/title_case.inl"
};

typedef struct range {
    uint32_t first, last;
} range;

// Other_Uppercase and Other_Lowercase: case without the category.
static const range other_upper[] = {
    {0x2160, 0x216F}, {0x24B6, 0x24CF}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189},
};
static const range other_lower[] = {
    {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
    {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
    {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
    {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
    {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
};

#define N_OF(table) (sizeof table / sizeof *table)

static bool in_ranges(const range *table, size_t n, uint32_t c) {
    for (size_t i = 0; i < n && table[i].first <= c; i++)
        if (c <= table[i].last) return true;
    return false;
}

bool tern_unicode_is_upper(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU ||
           in_ranges(other_upper, N_OF(other_upper), c);
}

bool tern_unicode_is_lower(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LL ||
           in_ranges(other_lower, N_OF(other_lower), c);
}

bool tern_unicode_is_title(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
}

bool tern_unicode_is_cased(uint32_t c) {
    return tern_unicode_is_upper(c) || tern_unicode_is_lower(c) || tern_unicode_is_title(c);
}

bool tern_unicode_is_case_ignorable(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
    }
    switch (c) { // Word_Break is MidLetter, MidNumLet or Single_Quote
    case '\'':
    case '.':
    case ':':
    case 0xB7:
    case 0x387:
    case 0x55F:
    case 0x5F4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xFE13:
    case 0xFE52:
    case 0xFE55:
    case 0xFF07:
    case 0xFF0E:
    case 0xFF1A: return true;
    default: return false;
    }
}

static int find_special(const special *table, size_t n, uint32_t c, uint32_t out[3]) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].code < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == n || table[low].code != c) return 0;
    int length = 0;
    for (; length < 3 && table[low].to[length]; length++) out[length] = table[low].to[length];
    return length;
}

int tern_unicode_change_case(uint32_t c, tern_case to, uint32_t out[3]) {
    utf8proc_int32_t code = (utf8proc_int32_t)c;
    int n = 0;
    if (to == TERN_UPPER) n = find_special(upper_table, N_OF(upper_table), c, out);
    if (to == TERN_TITLE) n = find_special(title_table, N_OF(title_table), c, out);
    if (n) return n;
    if (to == TERN_LOWER && c == 0x130) { // a dotted capital keeps its dot
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)(to == TERN_UPPER   ? utf8proc_toupper(code)
                        : to == TERN_TITLE ? utf8proc_totitle(code)
                                           : utf8proc_tolower(code));
    return 1;
}
