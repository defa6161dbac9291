// Blacks out secrets: each expression of a list in turn, over the whole text.
#include <string.h>
#include "base/alloc.h"
#include "memory/memory.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define PATTERN_MAX  4096u    // bytes
#define MATCH_MAX    2000000u // PCRE2's steps of one search
#define HEAP_MAX_KIB 65536u

// ---- Checks of what was found -------------------------------------------------------------------

// Luhn: every second digit from the right doubled, the sum of all digits ends in 0. One number of
// ten passes by chance; rows of one digit and the like are not cards.
static bool is_card_number(const char *s, size_t n) {
    int sum = 0, n_digits = 0;
    for (size_t i = n; i-- > 0;) {
        if (s[i] < '0' || s[i] > '9') continue;
        int d = s[i] - '0';
        if (n_digits++ % 2 == 1) d = d < 5 ? 2 * d : 2 * d - 9;
        sum += d;
    }
    return sum % 10 == 0 && sum > 0;
}

// ISO 13616: the first four characters moved to the end, letters as 10 to 35, is 1 modulo 97.
static bool is_iban(const char *s, size_t n) {
    char packed[40];
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ') continue;
        if (length == sizeof packed) return false;
        packed[length++] = s[i];
    }
    unsigned rest = 0;
    for (size_t i = 0; i < length; i++) {
        char c = packed[(i + 4) % length];
        if (c >= '0' && c <= '9')
            rest = (rest * 10 + (unsigned)(c - '0')) % 97;
        else
            rest = (rest * 100 + (unsigned)(c - 'A') + 10) % 97;
    }
    return length >= 15 && length <= 34 && rest == 1;
}

static const struct rule {
    const char *name, *pattern;
    bool (*check)(const char *s, size_t n);
} rules[] = {
#define RULE(name, pattern, check) {name, pattern, check},
#include "memory/redact_rules.inc"
#undef RULE
};
enum { N_RULES = sizeof rules / sizeof *rules };

const char *tern_memory_rule(size_t i, const char **pattern) {
    if (pattern) *pattern = i < N_RULES ? rules[i].pattern : NULL;
    return i < N_RULES ? rules[i].name : NULL;
}

// ---- Redactors ----------------------------------------------------------------------------------

typedef struct expression {
    const struct rule *rule; // NULL: a pattern from the caller
    pcre2_code *code;
} expression;

struct tern_redactor {
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_match_data *found;
    expression *list;
    size_t n;
};

static void *redact_alloc(size_t bytes, void *user) {
    (void)user;
    return tern_alloc(TERN_MEM_MISC, bytes);
}

static void redact_dealloc(void *block, void *user) {
    (void)user;
    tern_free(block);
}

static tern_status compile(tern_redactor *r, const char *pattern, const struct rule *rule,
                           tern_error *err) {
    int reason = 0;
    PCRE2_SIZE offset = 0;
    size_t n = strlen(pattern);
    if (n == 0 || n > PATTERN_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "redaction: the expression has %zu bytes: expected 1 to %u", n,
                         PATTERN_MAX);
    pcre2_compile_context *context = pcre2_compile_context_create(r->general);
    if (!context) return tern_fail_memory(err, sizeof *r);
    pcre2_set_parens_nest_limit(context, 100);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, n, PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C,
                                     &reason, &offset, context);
    pcre2_compile_context_free(context);
    if (!code && reason == PCRE2_ERROR_HEAP_FAILED) return tern_fail_memory(err, n);
    if (!code) {
        PCRE2_UCHAR text[128];
        pcre2_get_error_message(reason, text, sizeof text);
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "redaction: the expression \"%.200s\" is wrong at byte %zu: %s", pattern,
                         (size_t)offset + 1, (const char *)text);
    }
    r->list[r->n++] = (expression){rule, code};
    return TERN_OK;
}

static tern_status prepare(tern_redactor *r, bool without_rules, const char *const *patterns,
                           size_t n_patterns, tern_error *err) {
    r->general = pcre2_general_context_create(redact_alloc, redact_dealloc, NULL);
    r->limits = r->general ? pcre2_match_context_create(r->general) : NULL;
    r->found = r->general ? pcre2_match_data_create(1, r->general) : NULL;
    r->list = tern_alloc_array(TERN_MEM_MISC, N_RULES + n_patterns, sizeof *r->list);
    if (!r->limits || !r->found || !r->list)
        return tern_fail_memory(err, (N_RULES + n_patterns) * sizeof *r->list);
    pcre2_set_match_limit(r->limits, MATCH_MAX);
    pcre2_set_heap_limit(r->limits, HEAP_MAX_KIB);
    for (size_t i = 0; i < N_RULES && !without_rules; i++)
        TERN_TRY(compile(r, rules[i].pattern, &rules[i], err));
    for (size_t i = 0; i < n_patterns; i++) TERN_TRY(compile(r, patterns[i], NULL, err));
    return TERN_OK;
}

tern_status tern_redactor_open(tern_redactor **out, bool without_rules, const char *const *patterns,
                               size_t n_patterns, tern_error *err) {
    tern_redactor *r = tern_alloc(TERN_MEM_MISC, sizeof *r);
    *out = NULL;
    if (!r) return tern_fail_memory(err, sizeof *r);
    tern_status status = prepare(r, without_rules, patterns, n_patterns, err);
    if (status == TERN_OK)
        *out = r;
    else
        tern_redactor_close(r);
    return status;
}

void tern_redactor_close(tern_redactor *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) pcre2_code_free(r->list[i].code);
    tern_free(r->list);
    if (r->found) pcre2_match_data_free(r->found);
    if (r->limits) pcre2_match_context_free(r->limits);
    if (r->general) pcre2_general_context_free(r->general);
    tern_free(r);
}

// ---- Texts --------------------------------------------------------------------------------------

static size_t next_character(const char *text, size_t n, size_t at) {
    do at++;
    while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static tern_status apply(const tern_redactor *r, const expression *e, tern_str all,
                         tern_strbuf *out, size_t *n_found, tern_error *err) {
    const char *text = all.ptr;
    const size_t n = all.len;
    size_t copied = 0, at = 0;
    while (at <= n) {
        int m =
            pcre2_match(e->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, r->found, r->limits);
        if (m == PCRE2_ERROR_NOMATCH) break;
        if (m < 0)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "redaction: the expression for \"%s\" takes too long with this text",
                             e->rule ? e->rule->name : "a pattern");
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(r->found);
        size_t begin = place[0], end = place[1];
        bool counts = end > begin && begin >= copied &&
                      (!e->rule || !e->rule->check || e->rule->check(text + begin, end - begin));
        if (counts) {
            tern_strbuf_append(out, text + copied, begin - copied);
            tern_strbuf_printf(out, "[redacted%s%s]", e->rule ? " " : "",
                               e->rule ? e->rule->name : "");
            copied = end;
            ++*n_found;
        }
        // A match that a check refused may hide one that begins later.
        at = counts ? end : next_character(text, n, begin > at ? begin : at);
    }
    tern_strbuf_append(out, text + copied, n - copied);
    return out->failed ? tern_fail_memory(err, n) : TERN_OK;
}

tern_status tern_redact(const tern_redactor *r, const char *text, size_t n, tern_strbuf *out,
                        size_t *n_found, tern_error *err) {
    tern_strbuf now = {0}, next = {0};
    tern_status status = TERN_OK;
    tern_strbuf_append(&now, text, n);
    if (now.failed) status = tern_fail_memory(err, n);
    for (size_t i = 0; i < r->n && status == TERN_OK; i++) {
        tern_strbuf_clear(&next);
        status =
            apply(r, &r->list[i], (tern_str){tern_strbuf_text(&now), now.len}, &next, n_found, err);
        tern_strbuf swap = now;
        now = next;
        next = swap;
    }
    if (status == TERN_OK) tern_strbuf_append(out, tern_strbuf_text(&now), now.len);
    if (status == TERN_OK && out->failed) status = tern_fail_memory(err, n);
    tern_strbuf_free(&now);
    tern_strbuf_free(&next);
    return status;
}
