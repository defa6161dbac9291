// Ids to text, as a stream.
//
// A token may end inside a character: byte-level pieces are cut anywhere, and byte tokens are
// single bytes. So up to three bytes wait in the decoder until their character is complete.
#include <string.h>
#include "base/utf8.h"
#include "input/tokenizer/tok.h"

#define REPLACEMENT "\xEF\xBF\xBD"

// Writes the complete characters of `bytes` and keeps the rest; `last` writes the rest too, as
// U+FFFD.
static void write_whole(tern_decoder *d, const char *bytes, size_t n, bool last, tern_strbuf *out) {
    size_t good = 0, i = 0; // bytes[good..i) are well formed and not yet written
    while (i < n) {
        uint32_t code;
        int length = tern_utf8_decode(bytes + i, n - i, &code);
        if (length > 0) {
            i += (size_t)length;
            continue;
        }
        if (length == -1 && !last) break;
        tern_strbuf_append(out, bytes + good, i - good);
        tern_strbuf_append(out, REPLACEMENT, 3);
        good = i += tern_unicode_bad_length(bytes + i, n - i);
    }
    tern_strbuf_append(out, bytes + good, i - good);
    d->n_pending = (uint8_t)(n - i);
    if (i < n) memmove(d->pending, bytes + i, n - i);
}

static void emit(const tern_tokenizer *t, tern_decoder *d, const char *bytes, size_t n,
                 tern_strbuf *out) {
    if (n == 0) return;
    if (!d->started && t->strip_space && *bytes == ' ') {
        bytes++;
        n--;
    }
    d->started = true;
    if (d->raw) {
        tern_strbuf_append(out, bytes, n);
        return;
    }
    // Bytes that complete or break the pending character, one by one.
    while (n > 0 && d->n_pending > 0) {
        char joined[sizeof d->pending];
        size_t k = d->n_pending;
        memcpy(joined, d->pending, k);
        joined[k++] = *bytes++;
        n--;
        write_whole(d, joined, k, false, out);
    }
    if (n > 0) write_whole(d, bytes, n, false, out);
}

static void emit_spelled(const tern_tokenizer *t, tern_decoder *d, tern_str text,
                         tern_strbuf *out) {
    char bytes[64];
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        uint32_t code;
        int length = tern_utf8_decode(text.ptr + i, text.len - i, &code);
        int byte = length > 0 ? tern_alphabet_byte(code) : -1;
        length = length > 0 ? length : 1;
        if (n + 4 > sizeof bytes) {
            emit(t, d, bytes, n, out);
            n = 0;
        }
        if (byte >= 0) {
            bytes[n++] = (char)byte;
        } else { // not in the alphabet: is itself
            memcpy(bytes + n, text.ptr + i, (size_t)length);
            n += (size_t)length;
        }
        i += (size_t)length;
    }
    emit(t, d, bytes, n, out);
}

static void emit_marked(const tern_tokenizer *t, tern_decoder *d, tern_str text, tern_strbuf *out) {
    for (size_t i = 0; i < text.len;) {
        const char *mark = memmem(text.ptr + i, text.len - i, TERN_SPACE_MARK, 3);
        size_t end = mark ? (size_t)(mark - text.ptr) : text.len;
        emit(t, d, text.ptr + i, end - i, out);
        if (mark) emit(t, d, " ", 1, out);
        i = mark ? end + 3 : end;
    }
}

// A word's first token begins with a space, which the others do not have.
static void emit_wordpiece(const tern_tokenizer *t, tern_decoder *d, tern_str text,
                           tern_strbuf *out) {
    const tern_wordpiece *w = &t->wordpiece;
    bool has_first = text.len >= w->n_first && memcmp(text.ptr, w->first, w->n_first) == 0;
    bool has_rest = text.len >= w->n_rest && memcmp(text.ptr, w->rest, w->n_rest) == 0;
    bool goes_on = w->n_rest ? has_rest : !has_first;
    size_t skip = goes_on ? w->n_rest : has_first ? w->n_first : 0;
    if (skip == text.len) skip = 0;
    bool joins = goes_on || (w->cleans_up && strchr(".?!,", text.ptr[skip]) && text.ptr[skip]);
    if (d->started && !joins) emit(t, d, " ", 1, out);
    emit(t, d, text.ptr + skip, text.len - skip, out);
}

void tern_tokenizer_decode(const tern_tokenizer *t, tern_decoder *d, int32_t id, tern_strbuf *out) {
    if (id < 0 || id >= t->vocab.n) return;
    tern_str text = tern_vocab_text(&t->vocab, id);
    switch (t->vocab.types[id]) {
    case TERN_TOKEN_NONE: return;
    case TERN_TOKEN_CONTROL:
    case TERN_TOKEN_UNKNOWN:
        if (!d->with_special) return;
        if (t->model == TERN_TOKENS_WORDPIECE && d->started) emit(t, d, " ", 1, out);
        emit(t, d, text.ptr, text.len, out);
        return;
    case TERN_TOKEN_BYTE: {
        int value = tern_byte_token_value(text);
        char byte = (char)value;
        if (value >= 0)
            emit(t, d, &byte, 1, out);
        else
            emit(t, d, text.ptr, text.len, out);
        return;
    }
    case TERN_TOKEN_USER:
        if (t->space_marks)
            emit_marked(t, d, text, out);
        else
            emit(t, d, text.ptr, text.len, out);
        return;
    default:
        if (t->model == TERN_TOKENS_WORDPIECE)
            emit_wordpiece(t, d, text, out);
        else if (t->byte_level)
            emit_spelled(t, d, text, out);
        else if (t->space_marks)
            emit_marked(t, d, text, out);
        else
            emit(t, d, text.ptr, text.len, out);
    }
}

void tern_tokenizer_decode_end(tern_decoder *d, tern_strbuf *out) {
    if (d->n_pending == 0) return;
    char rest[sizeof d->pending];
    size_t n = d->n_pending;
    memcpy(rest, d->pending, n);
    write_whole(d, rest, n, true, out);
}
