// How much of a call's arguments may be passed on before they are complete: as much as brackets and
// a quote can complete to JSON. A key waits for its value, a number for the byte after it, an
// escape for its end.
#include <string.h>
#include "input/answer/answer.h"

enum { // call_json.at
    AT_BEGIN,
    AT_FIRST_KEY, // or the end
    AT_KEY,
    AT_KEY_TEXT,
    AT_COLON,
    AT_FIRST_VALUE, // or the end
    AT_VALUE,
    AT_TEXT,
    AT_SCALAR,
    AT_AFTER,
    AT_END,
};

static bool open_bracket(call_json *j, char c) {
    j->has_begun = true;
    tern_strbuf_putc(&j->closers, c == '{' ? '}' : ']');
    j->at = c == '{' ? AT_FIRST_KEY : AT_FIRST_VALUE;
    return !j->closers.failed;
}

static bool close_bracket(call_json *j, char c) {
    if (!j->closers.len || j->closers.ptr[j->closers.len - 1] != c) return false;
    j->closers.ptr[--j->closers.len] = 0;
    j->at = j->closers.len ? AT_AFTER : AT_END;
    return true;
}

static bool begin_value(call_json *j, char c) {
    if (c == '{' || c == '[') return open_bracket(j, c);
    if (c == '"')
        j->at = AT_TEXT, j->escaped = j->is_high = false;
    else
        j->at = AT_SCALAR;
    return c == '"' || c == '-' || (c >= '0' && c <= '9') || c == 't' || c == 'f' || c == 'n';
}

static bool in_hex(call_json *j, char c) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    const char *at = c ? strchr(c >= 'A' && c <= 'F' ? digits + 16 : digits, c) : NULL;
    if (!at) return false;
    j->unit = j->unit << 4 | (uint32_t)((at - digits) & 15);
    if (--j->n_hex == 0) j->is_high = !j->is_high && j->unit >= 0xD800 && j->unit < 0xDC00;
    return true;
}

static bool in_string(call_json *j, char c) {
    if (j->n_hex) return in_hex(j, c);
    if (j->escaped) {
        j->escaped = false;
        if (c == 'u') j->n_hex = 4, j->unit = 0;
        if (c != 'u') j->is_high = false;
        return c && strchr("\"\\/bfnrtu", c);
    }
    if (c == '\\') return j->escaped = true;
    j->is_high = false;
    if (c == '"') j->at = j->at == AT_KEY_TEXT ? AT_COLON : AT_AFTER;
    return (unsigned char)c >= 0x20;
}

static bool after_value(call_json *j, char c) {
    if (c == '}' || c == ']') return close_bracket(j, c);
    j->at = j->closers.ptr[j->closers.len - 1] == '}' ? AT_KEY : AT_VALUE;
    return c == ',';
}

// A number or a word ended before byte c.
static bool end_scalar(call_json *j, const char *text, size_t n, char c) {
    tern_strbuf word = {0};
    size_t from = n;
    while (from > j->safe && !strchr(" \n\t\r,:[", text[from - 1])) from--;
    tern_strbuf_append(&word, text + from, n - from);
    bool ok = tern_call_is_json(&word, true);
    j->closers.failed |= word.failed;
    tern_strbuf_free(&word);
    j->at = AT_AFTER;
    return ok && (tern_call_is_space(c) || after_value(j, c));
}

static bool scan_byte(call_json *j, const char *text, size_t i) {
    const char c = text[i];
    bool is_space = tern_call_is_space(c);
    switch (j->at) {
    case AT_KEY_TEXT:
    case AT_TEXT: return in_string(j, c);
    case AT_SCALAR:
        if (is_space || c == ',' || c == ']' || c == '}') return end_scalar(j, text, i, c);
        return c != '"' && c != '{' && c != '[';
    case AT_BEGIN: return is_space || (c == '{' && open_bracket(j, c));
    case AT_COLON:
        if (c == ':') j->at = AT_VALUE;
        return is_space || c == ':';
    case AT_FIRST_KEY:
        if (c == '}') return close_bracket(j, c);
        // fall through
    case AT_KEY:
        if (!is_space) j->at = AT_KEY_TEXT, j->escaped = j->is_high = false;
        return is_space || c == '"';
    case AT_FIRST_VALUE:
        if (c == ']') return close_bracket(j, c);
        // fall through
    case AT_VALUE: return is_space || begin_value(j, c);
    case AT_AFTER: return is_space || after_value(j, c);
    default: return is_space;
    }
}

static bool can_be_closed(const call_json *j) {
    if (j->at == AT_TEXT) return !j->escaped && !j->n_hex && !j->is_high;
    return j->at == AT_FIRST_KEY || j->at == AT_FIRST_VALUE || j->at == AT_AFTER || j->at == AT_END;
}

bool tern_call_scan(call_json *j, const char *text, size_t n) {
    for (; j->scanned < n && !j->is_broken; j->scanned++) {
        j->is_broken = !scan_byte(j, text, j->scanned);
        if (j->is_broken || !can_be_closed(j)) continue;
        j->safe = j->scanned + 1;
        j->in_text = j->at == AT_TEXT;
    }
    return !j->is_broken;
}

void tern_call_close(call_json *j, tern_strbuf *out) {
    if (j->in_text) tern_strbuf_putc(out, '"');
    if (!j->has_begun) tern_strbuf_puts(out, "{}");
    while (j->closers.len) tern_strbuf_putc(out, j->closers.ptr[--j->closers.len]);
    out->failed |= j->closers.failed;
}

bool tern_call_is_complete(const call_json *j) { return !j->is_broken && j->at == AT_END; }

void tern_call_free(call_json *j) { tern_strbuf_free(&j->closers); }

// ---- Prose --------------------------------------------------------------------------------------

enum { // answer_prose.at
    LINE_BEGIN,
    LINE_INDENT,
    LINE_FENCE, // marks of a fence
    LINE_INFO,  // after the marks that open a block
    LINE_REST,
};

bool tern_prose_takes_marks(const answer_prose *p) { return !p->fence && p->before != '`'; }

bool tern_prose_at_line(const answer_prose *p) { return p->at == LINE_BEGIN && !p->fence; }

// Three or more marks open a block; at least as many close it.
static void end_fence(answer_prose *p, char c) {
    p->at = LINE_REST;
    if (p->fence && p->n_marks >= p->n_fence && tern_call_is_space(c))
        p->fence = 0;
    else if (!p->fence && p->n_marks >= 3)
        p->fence = p->before, p->n_fence = p->n_marks, p->at = LINE_INFO;
}

void tern_prose_put(answer_prose *p, char c) {
    if (p->at == LINE_BEGIN || p->at == LINE_INDENT) {
        bool is_mark = p->fence ? c == p->fence : c == '`' || c == '~';
        if (is_mark)
            p->at = LINE_FENCE, p->n_marks = 1;
        else
            p->at = c == ' ' ? LINE_INDENT : LINE_REST;
    } else if (p->at == LINE_FENCE) {
        if (c == p->before)
            p->n_marks++;
        else
            end_fence(p, c);
    } else if (p->at == LINE_INFO && c == '`' && p->fence == '`') {
        p->fence = 0, p->at = LINE_REST; // it was code inside a line
    }
    if (c == '\n') p->at = LINE_BEGIN;
    p->before = c;
}
