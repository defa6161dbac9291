// Added tokens: texts that become one token wherever they occur, before any splitting or merging.
//
// They are sorted, so that tokens with a common prefix are adjacent: a search narrows the range of
// candidates byte by byte and keeps the last complete one, like a trie without nodes. A bitmap of
// first bytes skips nearly all places of a text at once.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

static int compare(tern_str a, tern_str b) {
    size_t n = a.len < b.len ? a.len : b.len;
    int order = memcmp(a.ptr, b.ptr, n);
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_tokens(const void *a, const void *b) {
    const tern_added_token *x = a, *y = b;
    int order = compare(x->text, y->text);
    return order ? order : (x->id > y->id) - (x->id < y->id);
}

tern_status tern_added_push(tern_added *a, const tern_added_token *token, tern_error *err) {
    // A text is valid UTF-8: invalid UTF-8 could only match inside a character.
    if (token->text.len == 0 || !tern_unicode_is_valid(token->text.ptr, token->text.len))
        return TERN_OK;
    if (token->text.len > TERN_ADDED_TOKEN_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tokenizer: an added token of %zu bytes",
                         token->text.len);
    if (tern_array_reserve(TERN_MEM_TOKENIZER, &a->tokens, &a->capacity, a->n, 1) != 0)
        return tern_fail_memory(err, (a->n + 1) * 2 * sizeof *a->tokens);
    char *text = tern_strndup(TERN_MEM_TOKENIZER, token->text.ptr, token->text.len);
    if (!text) return tern_fail_memory(err, token->text.len);
    a->tokens[a->n] = *token;
    a->tokens[a->n++].text.ptr = text;
    unsigned char first = (unsigned char)text[0];
    a->first_bytes[first / 32] |= 1u << first % 32;
    return TERN_OK;
}

void tern_added_sort(tern_added *a) {
    if (a->n) qsort(a->tokens, a->n, sizeof *a->tokens, compare_tokens);
}

void tern_added_free(tern_added *a) {
    for (size_t i = 0; i < a->n; i++) tern_free((void *)(uintptr_t)a->tokens[i].text.ptr);
    tern_free(a->tokens);
    *a = (tern_added){0};
}

// Byte k of a token, -1 past its end: among sorted tokens with equal first k bytes these are in
// order.
static int byte_of(const tern_added_token *token, size_t k) {
    return k < token->text.len ? (unsigned char)token->text.ptr[k] : -1;
}

// The first token in [low, high) whose byte k is at least `byte`.
static size_t lower_bound(const tern_added *a, size_t low, size_t high, size_t k, int byte) {
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (byte_of(&a->tokens[middle], k) < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const tern_added_token *longest_at(const tern_added *a, bool special, const char *text,
                                          size_t n) {
    const tern_added_token *best = NULL;
    size_t low = 0, high = a->n;
    for (size_t k = 0; k < n; k++) {
        int byte = (unsigned char)text[k];
        low = lower_bound(a, low, high, k, byte);
        high = lower_bound(a, low, high, k, byte + 1);
        if (low == high) break;
        // Tokens that end here come first.
        for (size_t i = low; i < high && a->tokens[i].text.len == k + 1; i++)
            if (special || !a->tokens[i].special) {
                best = &a->tokens[i];
                break;
            }
    }
    return best;
}

static bool word_before(const char *text, size_t at) {
    size_t begin = at;
    uint32_t c;
    if (at == 0) return false;
    do begin--;
    while (begin > 0 && ((unsigned char)text[begin] & 0xC0) == 0x80);
    return tern_utf8_decode(text + begin, at - begin, &c) > 0 && tern_unicode_is_word(c);
}

static bool word_after(const char *text, size_t n, size_t at) {
    uint32_t c;
    return at < n && tern_utf8_decode(text + at, n - at, &c) > 0 && tern_unicode_is_word(c);
}

static size_t strip_left(const char *text, size_t from, size_t at) {
    while (at > from) {
        size_t before = at - 1;
        uint32_t c;
        while (before > from && ((unsigned char)text[before] & 0xC0) == 0x80) before--;
        if (tern_utf8_decode(text + before, at - before, &c) <= 0 || !tern_unicode_is_space(c))
            break;
        at = before;
    }
    return at;
}

static size_t strip_right(const char *text, size_t n, size_t at) {
    uint32_t c;
    while (at < n) {
        int length = tern_utf8_decode(text + at, n - at, &c);
        if (length <= 0 || !tern_unicode_is_space(c)) break;
        at += (size_t)length;
    }
    return at;
}

const tern_added_token *tern_added_find(const tern_added *a, bool special, tern_str all,
                                        size_t from, tern_match_span *out) {
    const char *text = all.ptr;
    const size_t n = all.len;
    out->start = out->end = n;
    if (a->n == 0) return NULL;
    for (size_t at = from; at < n; at++) {
        unsigned char first = (unsigned char)text[at];
        if (!(a->first_bytes[first / 32] >> first % 32 & 1)) continue;
        const tern_added_token *token = longest_at(a, special, text + at, n - at);
        if (!token) continue;
        size_t stop = at + token->text.len;
        if (token->single_word && (word_before(text, at) || word_after(text, n, stop))) {
            at = stop - 1; // none here, nor inside this token
            continue;
        }
        out->start = token->lstrip ? strip_left(text, from, at) : at;
        out->end = token->rstrip ? strip_right(text, n, stop) : stop;
        return token;
    }
    return NULL;
}
