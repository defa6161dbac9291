// Expressions of pre-tokenizers, run by PCRE2 with bounded time.
//
// PCRE2's own limits count backtracking, but not how far one plain loop runs: "x+y" over a million
// x reads 10^12 / 2 characters with hardly any backtracking. So a search sees only a window of the
// text. If the result could depend on text after the window, PCRE2 returns "partial"; then that
// place is searched alone, with windows that double each time, whose sizes are taken from a budget
// proportional to the text. Useful expressions need a larger window only for a longer match and
// stay far below the budget; the others fail. For a single match the text ends with the largest
// window. So the time for a text is proportional to its length for every expression.
#include "input/tokenizer/split/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include "base/alloc.h"

#define WINDOW_MIN      128u
#define WINDOW_MAX      (32u << 10)
#define STEPS_PER_START 4000u
#define STEPS_PER_BYTE  8u
#define BUDGET_PER_BYTE 4u
#define BUDGET_MIN      (1u << 20)
#define PATTERN_MAX     (16u << 10)

static void *regex_alloc(size_t bytes, void *user) {
    (void)user;
    return tern_alloc(TERN_MEM_TOKENIZER, bytes);
}

static void regex_dealloc(void *block, void *user) {
    (void)user;
    tern_free(block);
}

// Expressions were written for another engine (Oniguruma), which has set operations in classes;
// PCRE2 would silently read these as plain characters.
static const char *unsupported_part(const char *s, size_t n) {
    bool in_class = false;
    size_t class_at = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\') {
            i++;
            if (!in_class && i < n && s[i] == 'X') return "\\X"; // pages lack its tables
        } else if (!in_class && s[i] == '[') {
            in_class = true;
            if (i + 1 < n && s[i + 1] == '^') i++;
            class_at = i + 1;
        } else if (in_class && s[i] == ']' && i > class_at)
            in_class = false;
        else if (in_class && s[i] == '&' && i + 1 < n && s[i + 1] == '&')
            return "&& in a class";
        else if (in_class && s[i] == '[' && i + 1 < n && s[i + 1] == ':') {
            const char *close = memmem(s + i, n - i, ":]", 2);
            if (close) i = (size_t)(close - s) + 1;
        } else if (in_class && s[i] == '[')
            return "a class inside a class";
    }
    return NULL;
}

tern_status tern_regex_compile(tern_pattern *p, tern_error *err) {
    const char *odd = unsupported_part(p->text, p->n_text);
    if (odd)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tokenizer: the expression \"%.200s\" has %s",
                         p->text, odd);
    if (p->n_text > PATTERN_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tokenizer: an expression of %zu bytes",
                         p->n_text);
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_dealloc, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    pcre2_code *code = NULL;
    int reason = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE offset = 0;
    if (context) {
        pcre2_set_parens_nest_limit(context, 100);
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
        code = pcre2_compile((PCRE2_SPTR)p->text, p->n_text, options, &reason, &offset, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (!code && (reason == PCRE2_ERROR_NOMEMORY || reason == PCRE2_ERROR_HEAP_FAILED))
        return tern_fail_memory(err, p->n_text);
    if (!code) {
        char why[128];
        if (pcre2_get_error_message(reason, (PCRE2_UCHAR *)why, sizeof why) < 0) why[0] = 0;
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tokenizer: the expression \"%.200s\" cannot be used: %s (at byte %zu)",
                         p->text, why, (size_t)offset);
    }
    uint32_t n_backward = 0; // each takes the length of the text it repeats
    if (pcre2_pattern_info(code, PCRE2_INFO_BACKREFMAX, &n_backward) != 0 || n_backward) {
        pcre2_code_free(code);
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tokenizer: the expression \"%.200s\" has back references", p->text);
    }
    // Without a just-in-time compiler, matching is interpreted; the answer is the same.
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    p->code = code;
    return TERN_OK;
}

void tern_regex_free(void *code) { pcre2_code_free(code); }

void tern_matcher_begin(tern_matcher *m, size_t n_text) {
    m->budget = n_text * BUDGET_PER_BYTE + BUDGET_MIN;
}

void tern_matcher_close(tern_matcher *m) {
    pcre2_match_data_free(m->match);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->jit_stack);
    pcre2_general_context_free(m->general);
    *m = (tern_matcher){0};
}

static bool prepare(tern_matcher *m) {
    if (m->jit_stack) return true;
    if (!m->general) m->general = pcre2_general_context_create(regex_alloc, regex_dealloc, NULL);
    if (!m->general) return false;
    if (!m->match) m->match = pcre2_match_data_create(1, m->general);
    if (!m->context) m->context = pcre2_match_context_create(m->general);
    if (!m->match || !m->context) return false;
    m->jit_stack = pcre2_jit_stack_create(32 << 10, 1 << 20, m->general);
    if (!m->jit_stack) return false;
    pcre2_jit_stack_assign(m->context, NULL, m->jit_stack);
    pcre2_set_heap_limit(m->context, 16 << 10); // KiB
    return true;
}

static size_t window_end(const char *text, size_t n, size_t from, size_t window) {
    if (window >= n - from) return n;
    size_t end = from + window;
    while (end < n && ((unsigned char)text[end] & 0xC0) == 0x80) end++;
    return end;
}

// One search in text from `from` on; only: just for a match that begins at `from`.
static int search(const tern_pattern *p, tern_matcher *m, tern_str text, size_t from, bool only,
                  bool partial) {
    uint32_t options = PCRE2_NO_UTF_CHECK | (partial ? PCRE2_PARTIAL_HARD : 0);
    uint32_t steps = STEPS_PER_START + STEPS_PER_BYTE * (uint32_t)(text.len - from);
    pcre2_set_match_limit(m->context, steps);
    pcre2_set_offset_limit(m->context, only ? from : PCRE2_UNSET);
    int rc =
        pcre2_match(p->code, (PCRE2_SPTR)text.ptr, text.len, from, options, m->match, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, (PCRE2_SPTR)text.ptr, text.len, from, options | PCRE2_NO_JIT,
                         m->match, m->context);
    return rc;
}

tern_status tern_regex_find(const tern_pattern *p, tern_matcher *m, tern_str all, size_t from,
                            tern_match_span *out, tern_error *err) {
    const char *text = all.ptr;
    const size_t n = all.len;
    if (!prepare(m)) return tern_fail_memory(err, 1 << 10);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(m->match);
    size_t window = WINDOW_MIN;
    out->start = out->end = n;
    while (from < n) {
        bool only = window > WINDOW_MIN;
        size_t edge = window_end(text, n, from, window);
        if (only && edge - from > m->budget) break;
        if (only) m->budget -= edge - from;
        int rc = search(p, m, (tern_str){text, edge}, from, only, edge < n && window < WINDOW_MAX);
        if (rc >= 0 && span[0] >= from && span[1] >= span[0] && span[1] <= n) {
            *out = (tern_match_span){span[0], span[1]};
            return TERN_OK;
        }
        if (rc == PCRE2_ERROR_PARTIAL && span[0] >= from && span[0] < edge) {
            from = span[0];
            window *= 2;
        } else if (rc == PCRE2_ERROR_NOMATCH) { // nothing begins here
            from = only ? window_end(text, n, from, 1) : edge;
            window = WINDOW_MIN;
        } else if (rc == PCRE2_ERROR_NOMEMORY) {
            return tern_fail_memory(err, 0);
        } else
            break;
    }
    if (from >= n) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "tokenizer: the expression \"%.200s\" takes too long on this text", p->text);
}
