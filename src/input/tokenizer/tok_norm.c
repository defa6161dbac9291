// Normalizers: changes to text before it is split.
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
        size_t start, end;
        TERN_TRY(tern_pattern_find(&s->pattern, m, text, n, from, &start, &end, err));
        if (start >= n) break;
        tern_strbuf_append(out, text + done, start - done);
        tern_strbuf_append(out, s->content, s->n_content);
        // A few bytes may become many, and steps may be stacked.
        if (out->len > TERN_TEXT_MAX)
            return tern_fail(err, TERN_ERR_ARGUMENT, "the normalized text is too long");
        done = from = end;
        if (start == end)
            for (from++; from < n && ((unsigned char)text[from] & 0xC0) == 0x80;) from++;
    }
    tern_strbuf_append(out, text + done, n - done);
    return TERN_OK;
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
        case TERN_NORM_FORM:
            TERN_TRY(tern_unicode_normalize(out, s->form, *text, *n, err));
            break;
        case TERN_NORM_REPLACE: TERN_TRY(replace(s, m, *text, *n, out, err)); break;
        case TERN_NORM_PREPEND:
            if (*n > 0) tern_strbuf_append(out, s->content, s->n_content);
            tern_strbuf_append(out, *text, *n);
            break;
        default: tern_unicode_lower(out, *text, *n);
        }
        if (out->failed) return tern_fail_memory(err, out->len);
        if (out->len > TERN_TEXT_MAX)
            return tern_fail(err, TERN_ERR_ARGUMENT, "the normalized text is too long");
        *text = tern_strbuf_text(out);
        *n = out->len;
    }
    return TERN_OK;
}
