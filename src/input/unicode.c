#include "input/unicode.h"

#include <string.h>
#include <utf8proc.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/input.h"

static tern_char_class class_of_category(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return TERN_CHAR_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return TERN_CHAR_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return TERN_CHAR_SPACE;
    default: return TERN_CHAR_OTHER;
    }
}

tern_char_class tern_unicode_class(uint32_t c) {
    if (c < 0x80) {
        if ((c | 0x20) - 'a' < 26) return TERN_CHAR_LETTER;
        if (c - '0' < 10) return TERN_CHAR_NUMBER;
        if (c == '\n' || c == '\r') return TERN_CHAR_NEWLINE;
        return c == ' ' || c - 9 < 5 ? TERN_CHAR_SPACE : TERN_CHAR_OTHER;
    }
    return c == 0x85 ? TERN_CHAR_SPACE : class_of_category(c);
}

bool tern_unicode_is_space(uint32_t c) { return tern_unicode_class(c) >= TERN_CHAR_SPACE; }

bool tern_unicode_is_punct(uint32_t c) {
    if (c < 0x80) return c > ' ' && c < 0x7F && tern_unicode_class(c) == TERN_CHAR_OTHER;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool tern_unicode_is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return tern_unicode_class(c) == TERN_CHAR_LETTER || c == 0x200C || c == 0x200D;
    }
}

bool tern_unicode_is_control(uint32_t c) {
    if (c < 0x80) return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

bool tern_unicode_is_han(uint32_t c) {
    // Extension E begins at 2B820, but the library that makes all files uses 2B920.
    static const uint32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                         {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                         {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; c >= 0x3400 && i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

bool tern_unicode_is_mark(uint32_t c, bool only_nonspacing) {
    if (c < 0x300) return false;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    bool other = k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
    return k == UTF8PROC_CATEGORY_MN || (other && !only_nonspacing);
}

size_t tern_unicode_bad_length(const char *bytes, size_t n) {
    uint32_t code;
    for (size_t k = n < 3 ? n : 3; k > 1; k--)
        if (tern_utf8_decode(bytes, k, &code) == -1) return k;
    return 1;
}

bool tern_unicode_is_valid(const char *bytes, size_t n) {
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int length = (unsigned char)bytes[i] < 0x80 ? 1 : tern_utf8_decode(bytes + i, n - i, &code);
        if (length <= 0) return false;
        i += (size_t)length;
    }
    return true;
}

void tern_unicode_repair(tern_strbuf *out, const char *bytes, size_t n) {
    size_t good = 0; // bytes[good..i) are well formed and not yet written
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int length = tern_utf8_decode(bytes + i, n - i, &code);
        if (length > 0) {
            i += (size_t)length;
            continue;
        }
        tern_strbuf_append(out, bytes + good, i - good);
        tern_strbuf_append(out, "\xEF\xBF\xBD", 3);
        good = i += tern_unicode_bad_length(bytes + i, n - i);
    }
    tern_strbuf_append(out, bytes + good, n - good);
}

// ---- Normalization forms ------------------------------------------------------------------------
//
// An ASCII character is the same in every form, and nothing before it combines with characters
// after it, so text is cut there: ASCII is copied, and each stretch of one ASCII character and the
// non-ASCII ones after it is decomposed, put in canonical order and, for the C forms, composed.
//
// Canonical order sorts each run of combining marks by class, keeping equal ones in place. The
// library's loop takes quadratic time, which a text of only marks would exploit; this is a counting
// sort.

typedef struct code_list {
    utf8proc_int32_t *codes;
    size_t n, capacity;
} code_list;

static int combining_class(utf8proc_int32_t c) {
    return (int)utf8proc_get_property(c)->combining_class;
}

static bool append_decomposed(code_list *list, uint32_t c, int options) {
    utf8proc_int32_t parts[32]; // the longest decomposition (U+FDFA, compatible) has 18
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, parts, 32,
                                                 (utf8proc_option_t)options, &boundary);
    if (n < 0 || n > 32) {
        parts[0] = (utf8proc_int32_t)c;
        n = 1;
    }
    if (tern_array_reserve(TERN_MEM_MISC, &list->codes, &list->capacity, list->n, (size_t)n) != 0)
        return false;
    for (utf8proc_ssize_t i = 0; i < n; i++) list->codes[list->n++] = parts[i];
    return true;
}

// Sorts marks[0..n) by class; spare has room for n.
static void sort_marks(utf8proc_int32_t *marks, size_t n, utf8proc_int32_t *spare) {
    size_t starts[257] = {0};
    for (size_t i = 0; i < n; i++) starts[(combining_class(marks[i]) & 255) + 1]++;
    for (size_t k = 1; k < 257; k++) starts[k] += starts[k - 1];
    for (size_t i = 0; i < n; i++) spare[starts[combining_class(marks[i]) & 255]++] = marks[i];
    for (size_t i = 0; i < n; i++) marks[i] = spare[i];
}

static bool order_marks(code_list *list) {
    utf8proc_int32_t *spare = NULL;
    for (size_t i = 0; i < list->n;) {
        size_t begin = i;
        bool sorted = true;
        for (int last = 0, k; i < list->n && (k = combining_class(list->codes[i])) != 0; i++) {
            if (k < last) sorted = false;
            last = k;
        }
        if (!sorted) {
            if (!spare) spare = tern_alloc_array(TERN_MEM_MISC, list->n - begin, sizeof *spare);
            if (!spare) return false;
            sort_marks(list->codes + begin, i - begin, spare);
        }
        if (i == begin) i++;
    }
    tern_free(spare);
    return true;
}

// text[0..n) is one stretch as described above.
static bool normalize_stretch(tern_strbuf *out, code_list *list, tern_normal_form form,
                              const char *text, size_t n) {
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == TERN_NFKC || form == TERN_NFKD) options |= UTF8PROC_COMPAT;
    list->n = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int length = tern_utf8_decode(text + i, n - i, &c);
        if (length <= 0) break;
        if (!append_decomposed(list, c, options)) return false;
        i += (size_t)length;
    }
    if (!order_marks(list)) return false;
    if (form == TERN_NFC || form == TERN_NFKC) {
        utf8proc_ssize_t left =
            utf8proc_normalize_utf32(list->codes, (utf8proc_ssize_t)list->n,
                                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        if (left >= 0) list->n = (size_t)left;
    }
    for (size_t i = 0; i < list->n; i++) {
        char bytes[4];
        tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode((uint32_t)list->codes[i], bytes));
    }
    return true;
}

tern_status tern_unicode_normalize(tern_strbuf *out, tern_normal_form form, const char *text,
                                   size_t n, tern_error *err) {
    code_list list = {0};
    bool ok = true;
    for (size_t i = 0; i < n && ok;) {
        size_t begin = i;
        while (i < n && (unsigned char)text[i] < 0x80) i++;
        size_t ascii = i - (i > begin && i < n); // the last one may carry a mark
        tern_strbuf_append(out, text + begin, ascii - begin);
        while (i < n && (unsigned char)text[i] >= 0x80) i++;
        if (i > ascii) ok = normalize_stretch(out, &list, form, text + ascii, i - ascii);
    }
    tern_free(list.codes);
    return ok && !out->failed ? TERN_OK : tern_fail_memory(err, n);
}

void tern_unicode_lower(tern_strbuf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t c;
        char bytes[4];
        int length = tern_utf8_decode(text + i, n - i, &c);
        if (length <= 0) return;
        i += (size_t)length;
        if (c == 0x130) { // the one letter whose lower case is two characters
            tern_strbuf_append(out, "i\xCC\x87", 3);
            continue;
        }
        c = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
        tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode(c, bytes));
    }
}

tern_status tern_text_mentions(tern_str text, tern_str part, bool *out, tern_error *err) {
    tern_strbuf in = {0}, wanted = {0};
    tern_unicode_lower(&in, text.ptr, text.len);
    tern_unicode_lower(&wanted, part.ptr, part.len);
    bool failed = in.failed || wanted.failed;
    *out = strstr(tern_strbuf_text(&in), tern_strbuf_text(&wanted)) != NULL;
    tern_strbuf_free(&in);
    tern_strbuf_free(&wanted);
    return failed ? tern_fail_memory(err, text.len + part.len) : TERN_OK;
}
