// Answers: filters cut the part to compare from them, and exact_match compares, both as in
// lm-evaluation-harness, with Python's expressions run by PCRE2.
//
// PCRE2's limit counts backtracking from one place of the text, so the steps for a text are at most
// its length times the limit; with TERN_EVAL_SEARCH_MAX bytes that is seconds even for expressions
// made to be slow.
#include "tasks/eval/file/eval_file.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>
#include "base/alloc.h"
#include "base/utf8.h"

#define PATTERN_MAX  4096u
#define STEPS_MIN    4000u
#define HEAP_MAX_KIB 16384u

// ---- Expressions -------------------------------------------------------------------------------

static void *regex_alloc(size_t bytes, void *user) {
    (void)user;
    return tern_alloc(TERN_MEM_MISC, bytes);
}
static void regex_dealloc(void *block, void *user) {
    (void)user;
    tern_free(block);
}

tern_status tern_eval_regex_compile(void **out, tern_str pattern, tern_error *err) {
    *out = NULL;
    if (pattern.len == 0 || pattern.len > PATTERN_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "an expression of %zu bytes: expected 1 to %u",
                         pattern.len, PATTERN_MAX);
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_dealloc, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    pcre2_code *code = NULL;
    int reason = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_SIZE offset = 0;
    if (context) {
        pcre2_set_parens_nest_limit(context, 100);
        code = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &reason, &offset,
                             context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    if (!code && (reason == PCRE2_ERROR_NOMEMORY || reason == PCRE2_ERROR_HEAP_FAILED))
        return tern_fail_memory(err, pattern.len);
    if (!code) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(reason, why, sizeof why);
        return tern_fail(err, TERN_ERR_FORMAT, "the expression is wrong at byte %zu: %s",
                         (size_t)offset + 1, (const char *)why);
    }
    uint32_t n_backward = 0; // each takes the length of the text it repeats
    if (pcre2_pattern_info(code, PCRE2_INFO_BACKREFMAX, &n_backward) != 0 || n_backward) {
        pcre2_code_free(code);
        return tern_fail(err, TERN_ERR_FORMAT, "expressions with back references are not run");
    }
    *out = code;
    return TERN_OK;
}

void tern_eval_regex_free(void *code) { pcre2_code_free(code); }

// A search that goes on from match to match.
typedef struct finder {
    const pcre2_code *code;
    pcre2_general_context *general;
    pcre2_match_context *limits;
    pcre2_match_data *found;
    tern_str text;
    size_t at;
    bool not_empty; // at `at` an empty match was found already
} finder;

static void finder_close(finder *f) {
    pcre2_match_data_free(f->found);
    pcre2_match_context_free(f->limits);
    pcre2_general_context_free(f->general);
}

static tern_status finder_open(finder *f, const void *code, tern_str text, tern_error *err) {
    *f = (finder){.code = code, .text = text};
    if (text.len > TERN_EVAL_SEARCH_MAX)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "a text of %zu bytes: expressions search at most %zu", text.len,
                         TERN_EVAL_SEARCH_MAX);
    f->general = pcre2_general_context_create(regex_alloc, regex_dealloc, NULL);
    f->limits = f->general ? pcre2_match_context_create(f->general) : NULL;
    f->found = f->limits ? pcre2_match_data_create_from_pattern(f->code, f->general) : NULL;
    if (f->found) {
        pcre2_set_match_limit(f->limits, STEPS_MIN + (uint32_t)text.len);
        pcre2_set_heap_limit(f->limits, HEAP_MAX_KIB);
        return TERN_OK;
    }
    finder_close(f);
    return tern_fail_memory(err, sizeof *f);
}

// The next match, as Python's finditer: empty ones count, but not twice at one place.
static tern_status finder_next(finder *f, bool *more, tern_error *err) {
    *more = false;
    if (f->at > f->text.len) return TERN_OK;
    uint32_t options = PCRE2_NO_UTF_CHECK | (f->not_empty ? PCRE2_NOTEMPTY_ATSTART : 0);
    int rc = pcre2_match(f->code, (PCRE2_SPTR)(f->text.ptr ? f->text.ptr : ""), f->text.len, f->at,
                         options, f->found, f->limits);
    if (rc == PCRE2_ERROR_NOMATCH) return TERN_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return tern_fail_memory(err, f->text.len);
    if (rc < 0)
        return tern_fail(err, TERN_ERR_FORMAT, "an expression takes too long with this text");
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(f->found);
    *more = span[0] <= span[1]; // \K may turn them round
    f->not_empty = span[0] == span[1];
    f->at = span[1];
    return TERN_OK;
}

// Group i of the match; 0 is all of it.
static tern_str group(const finder *f, uint32_t i) {
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(f->found) + 2 * i;
    if (span[0] == PCRE2_UNSET || span[1] < span[0]) return TERN_STR("");
    return (tern_str){f->text.ptr + span[0], span[1] - span[0]};
}

// What findall gives for the match: all of it, or the first of its groups that has a text.
static tern_str match_text(const finder *f) {
    uint32_t n = pcre2_get_ovector_count(f->found);
    tern_str s = group(f, n > 1 ? 1 : 0);
    for (uint32_t i = 2; i < n && !s.len; i++) s = group(f, i);
    return s;
}

// ---- Filters -----------------------------------------------------------------------------------

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static tern_str strip_left(tern_str s) {
    while (s.len && is_space(s.ptr[0])) s.ptr++, s.len--;
    return s;
}
static tern_str strip(tern_str s) {
    s = strip_left(s);
    while (s.len && is_space(s.ptr[s.len - 1])) s.len--;
    return s;
}

static void change_case(tern_strbuf *out, tern_str s, bool to_upper) {
    char bytes[4];
    for (size_t i = 0; i < s.len;) {
        uint32_t code = 0;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) return; // impossible: texts are valid
        utf8proc_int32_t c = (utf8proc_int32_t)code;
        c = to_upper ? utf8proc_toupper(c) : utf8proc_tolower(c);
        tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode((uint32_t)c, bytes));
        i += (size_t)n;
    }
}

// Match number `select` of the expression; from the end if that is negative.
static tern_status select_match(const tern_eval_step *step, tern_str text, tern_strbuf *out,
                                tern_error *err) {
    finder f;
    bool more = true;
    int n = 0, wanted = step->select;
    tern_str chosen = {0};
    for (int pass = 0; pass < 2; pass++) { // first they are counted
        TERN_TRY(finder_open(&f, step->code, text, err));
        tern_status status = finder_next(&f, &more, err);
        for (int i = 0; status == TERN_OK && more; i++) {
            if (pass == 0) n++;
            if (pass == 1 && i == wanted) {
                chosen = match_text(&f);
                break;
            }
            status = finder_next(&f, &more, err);
        }
        finder_close(&f);
        TERN_TRY(status);
        if (pass == 0 && wanted < 0) wanted += n;
        if (wanted < 0 || wanted >= n) break;
    }
    const char *instead = step->instead ? step->instead : "[invalid]";
    if (chosen.len == 0) chosen = (tern_str){instead, strlen(instead)};
    chosen = strip(chosen);
    tern_strbuf_append(out, chosen.ptr, chosen.len);
    return TERN_OK;
}

static tern_status apply_step(const tern_eval_step *step, tern_str text, tern_strbuf *out,
                              tern_error *err) {
    if (step->kind == TERN_STEP_REGEX) return select_match(step, text, out, err);
    if (step->kind == TERN_STEP_REMOVE_WHITESPACE) {
        text = strip_left(text);
        tern_strbuf_append(out, text.ptr, text.len);
    } else {
        change_case(out, text, step->kind == TERN_STEP_UPPERCASE);
    }
    return TERN_OK;
}

tern_status tern_eval_filter_apply(const tern_eval_filter *filter, tern_str answer,
                                   tern_strbuf *out, tern_error *err) {
    tern_strbuf next = {0};
    tern_status status = TERN_OK;
    tern_strbuf_clear(out);
    tern_strbuf_append(out, answer.ptr, answer.len);
    for (int i = 0; i < filter->n_steps && status == TERN_OK && !out->failed; i++) {
        tern_str text = {tern_strbuf_text(out), out->len};
        tern_strbuf_clear(&next);
        status = apply_step(&filter->steps[i], text, &next, err);
        tern_strbuf swap = *out;
        *out = next;
        next = swap;
    }
    tern_strbuf_free(&next);
    if (status != TERN_OK) return status;
    return out->failed ? tern_fail_memory(err, answer.len) : TERN_OK;
}

// ---- Exact match -------------------------------------------------------------------------------

static tern_status remove_matches(const void *code, tern_strbuf *text, tern_error *err) {
    finder f;
    tern_strbuf rest = {0};
    size_t kept = 0;
    bool more;
    TERN_TRY(finder_open(&f, code, (tern_str){tern_strbuf_text(text), text->len}, err));
    tern_status status = finder_next(&f, &more, err);
    while (status == TERN_OK && more) {
        tern_str whole = group(&f, 0);
        size_t begin = (size_t)(whole.ptr - f.text.ptr);
        if (whole.len) {
            tern_strbuf_append(&rest, f.text.ptr + kept, begin - kept);
            kept = begin + whole.len;
        }
        status = finder_next(&f, &more, err);
    }
    tern_strbuf_append(&rest, f.text.ptr + kept, f.text.len - kept);
    finder_close(&f);
    tern_strbuf_free(text);
    *text = rest;
    return status;
}

// Python's string.punctuation and string.digits.
static bool is_dropped(const tern_eval_match *m, unsigned char c) {
    bool is_number = c >= '0' && c <= '9';
    bool is_letter = (c | 32) >= 'a' && (c | 32) <= 'z';
    if (is_number) return m->ignore_numbers;
    return m->ignore_punctuation && c > ' ' && c < 127 && !is_letter;
}

static tern_status normalise(const tern_eval_match *m, tern_str text, tern_strbuf *out,
                             tern_error *err) {
    tern_strbuf small = {0};
    tern_strbuf_append(out, text.ptr, text.len);
    for (int i = 0; i < m->n_ignored && !out->failed; i++)
        TERN_TRY(remove_matches(m->ignored[i], out, err));
    if (m->ignore_case && !out->failed) {
        change_case(&small, (tern_str){tern_strbuf_text(out), out->len}, false);
        tern_strbuf_free(out);
        *out = small;
    }
    if (out->failed) return tern_fail_memory(err, text.len);
    size_t n = 0;
    for (size_t i = 0; i < out->len; i++)
        if (!is_dropped(m, (unsigned char)out->ptr[i])) out->ptr[n++] = out->ptr[i];
    out->len = n;
    return TERN_OK;
}

tern_status tern_eval_answer_matches(const tern_eval_match *m, tern_str answer, tern_str right,
                                     bool *same, tern_error *err) {
    tern_strbuf a = {0}, b = {0};
    tern_status status = normalise(m, answer, &a, err);
    if (status == TERN_OK) status = normalise(m, right, &b, err);
    *same = status == TERN_OK && a.len == b.len && (!a.len || !memcmp(a.ptr, b.ptr, a.len));
    tern_strbuf_free(&a);
    tern_strbuf_free(&b);
    return status;
}
