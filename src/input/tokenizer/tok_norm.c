// Normalizers: change text before it is split.
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

tern_status tern_normalizer_add(tern_normalizer *z, tern_norm_kind kind, tern_str content,
                                tern_norm_step **step, tern_error *err) {
    if (z->n_steps == TERN_NORM_STEPS_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "tokenizer: more than %d normalizers",
                         TERN_NORM_STEPS_MAX);
    if (!tern_unicode_is_valid(content.ptr, content.len))
        return tern_fail(err, TERN_ERR_FORMAT, "tokenizer: a normalizer's content is not UTF-8");
    tern_norm_step *s = &z->steps[z->n_steps];
    *s = (tern_norm_step){.kind = kind, .n_content = content.len};
    s->content = tern_strndup(TERN_MEM_TOKENIZER, content.ptr ? content.ptr : "", content.len);
    if (!s->content) return tern_fail_memory(err, content.len);
    z->n_steps++;
    *step = s;
    return TERN_OK;
}

void tern_normalizer_close(tern_normalizer *z) {
    for (int i = 0; i < z->n_steps; i++) {
        tern_pattern_close(&z->steps[i].pattern);
        tern_free(z->steps[i].content);
    }
    z->n_steps = 0;
}

static tern_status replace(const tern_norm_step *s, tern_matcher *m, const char *text, size_t n,
                           tern_strbuf *out, tern_error *err) {
    size_t done = 0, from = 0;
    tern_matcher_begin(m, n);
    while (from < n) {
        tern_match_span span;
        TERN_TRY(tern_pattern_find(&s->pattern, m, (tern_str){text, n}, from, &span, err));
        const size_t start = span.start, end = span.end;
        if (start >= n) break;
        tern_strbuf_append(out, text + done, start - done);
        tern_strbuf_append(out, s->content, s->n_content);
        // A few bytes may become many, and again in each step.
        if (out->len > TERN_TEXT_MAX)
            return tern_fail(err, TERN_ERR_ARGUMENT, "the normalized text is too long");
        done = from = end;
        if (start == end)
            for (from++; from < n && ((unsigned char)text[from] & 0xC0) == 0x80;) from++;
    }
    tern_strbuf_append(out, text + done, n - done);
    return TERN_OK;
}

tern_status tern_normalizer_add_bert(tern_normalizer *z, bool clean, bool pad_han, bool no_accents,
                                     bool lower, tern_error *err) {
    tern_norm_step *step = NULL;
    tern_str none = {0};
    if (clean) TERN_TRY(tern_normalizer_add(z, TERN_NORM_CLEAN, none, &step, err));
    if (pad_han) TERN_TRY(tern_normalizer_add(z, TERN_NORM_PAD_HAN, none, &step, err));
    if (no_accents) {
        TERN_TRY(tern_normalizer_add(z, TERN_NORM_FORM, none, &step, err));
        step->form = TERN_NFD;
        TERN_TRY(tern_normalizer_add(z, TERN_NORM_NO_MARKS, none, &step, err));
        step->left = true;
    }
    return lower ? tern_normalizer_add(z, TERN_NORM_LOWER, none, &step, err) : TERN_OK;
}

// The steps that look at one character at a time.
static void map_chars(const tern_norm_step *s, const char *text, size_t n, tern_strbuf *out) {
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int length = tern_utf8_decode(text + i, n - i, &c);
        if (length <= 0) return; // text is valid
        bool space = s->kind == TERN_NORM_CLEAN && tern_unicode_is_space(c);
        bool gone = s->kind == TERN_NORM_NO_MARKS
                        ? tern_unicode_is_mark(c, s->left)
                        : s->kind == TERN_NORM_CLEAN &&
                              (c == 0 || c == 0xFFFD || tern_unicode_is_control(c));
        bool padded = s->kind == TERN_NORM_PAD_HAN && tern_unicode_is_han(c);
        if (padded) tern_strbuf_putc(out, ' ');
        if (space && !gone)
            tern_strbuf_putc(out, ' ');
        else if (!gone)
            tern_strbuf_append(out, text + i, (size_t)length);
        if (padded) tern_strbuf_putc(out, ' ');
        i += (size_t)length;
    }
}

static void squeeze(const char *text, size_t n, tern_strbuf *out) {
    bool any = false, space = false;
    for (size_t i = 0; i < n; i++) {
        bool is_space = text[i] == ' ';
        if (!is_space && space && any) tern_strbuf_putc(out, ' ');
        if (!is_space) tern_strbuf_putc(out, text[i]);
        any |= !is_space;
        space = is_space;
    }
}

static tern_str strip(const tern_norm_step *s, const char *text, size_t n) {
    size_t begin = 0;
    uint32_t c;
    while (s->left && begin < n) {
        int length = tern_utf8_decode(text + begin, n - begin, &c);
        if (length <= 0 || !tern_unicode_is_space(c)) break;
        begin += (size_t)length;
    }
    while (s->right && n > begin) {
        size_t last = n - 1;
        while (last > begin && ((unsigned char)text[last] & 0xC0) == 0x80) last--;
        if (tern_utf8_decode(text + last, n - last, &c) <= 0 || !tern_unicode_is_space(c)) break;
        n = last;
    }
    return (tern_str){text + begin, n - begin};
}

tern_status tern_normalizer_run(const tern_normalizer *z, tern_matcher *m, tern_strbuf buffers[2],
                                const char **text, size_t *n, tern_error *err) {
    int turn = 0;
    for (int i = 0; i < z->n_steps; i++) {
        const tern_norm_step *s = &z->steps[i];
        if (s->kind == TERN_NORM_STRIP) {
            tern_str inner = strip(s, *text, *n);
            *text = inner.ptr;
            *n = inner.len;
            continue;
        }
        tern_strbuf *out = &buffers[turn];
        turn = !turn;
        tern_strbuf_clear(out);
        switch (s->kind) {
        case TERN_NORM_FORM: TERN_TRY(tern_unicode_normalize(out, s->form, *text, *n, err)); break;
        case TERN_NORM_REPLACE: TERN_TRY(replace(s, m, *text, *n, out, err)); break;
        case TERN_NORM_PREPEND:
            if (*n > 0) tern_strbuf_append(out, s->content, s->n_content);
            tern_strbuf_append(out, *text, *n);
            break;
        case TERN_NORM_LOWER: tern_unicode_lower(out, *text, *n); break;
        case TERN_NORM_SQUEEZE: squeeze(*text, *n, out); break;
        case TERN_NORM_CHARSMAP: tern_charsmap_run(s, *text, *n, out); break;
        default: map_chars(s, *text, *n, out);
        }
        if (out->failed) return tern_fail_memory(err, out->len);
        if (out->len > TERN_TEXT_MAX)
            return tern_fail(err, TERN_ERR_ARGUMENT, "the normalized text is too long");
        *text = tern_strbuf_text(out);
        *n = out->len;
    }
    return TERN_OK;
}
