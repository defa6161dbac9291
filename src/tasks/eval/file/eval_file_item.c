// A line of data, and the templates of a task file, become an item.
#include "tasks/eval/file/eval_file.h"

#include <string.h>
#include "base/utf8.h"
#include "tasks/eval/eval.h"

// The field whose name the text is, else the template filled in.
static tern_status fill(const tern_eval_text *t, const tern_json_doc *doc, tern_str line,
                        tern_strbuf *out, tern_error *err) {
    tern_strbuf_clear(out);
    if (!t->source) return TERN_OK;
    const tern_json *field = tern_json_get(doc, tern_json_root(doc), t->source);
    tern_str text = tern_json_str(field);
    if (!text.ptr) return tern_template_render(t->template, line.ptr, line.len, out, err);
    tern_strbuf_append(out, text.ptr, text.len);
    return out->failed ? tern_fail_memory(err, text.len) : TERN_OK;
}

static tern_status add_choice(tern_eval_item *item, tern_str text, tern_error *err) {
    if (item->n_continuations == TERN_EVAL_ANSWERS_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "doc_to_choice: more than %d answers",
                         TERN_EVAL_ANSWERS_MAX);
    if (!text.len)
        return tern_fail(err, TERN_ERR_FORMAT, "doc_to_choice: answer %d is not a text, or empty",
                         item->n_continuations + 1);
    tern_strbuf *out = &item->continuations[item->n_continuations++];
    tern_strbuf_clear(out);
    tern_strbuf_append(out, text.ptr, text.len);
    return out->failed ? tern_fail_memory(err, text.len) : TERN_OK;
}

static tern_status check_choices(tern_eval_item *item, tern_error *err) {
    item->n = item->n_continuations;
    if (item->n > 1) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "doc_to_choice: %d answer%s to choose from", item->n,
                     item->n == 1 ? "" : "s");
}

// The texts of a list, or the values of an object.
static tern_status add_choices(tern_eval_item *item, const tern_json_doc *doc,
                               const tern_json *list, tern_error *err) {
    bool is_object = tern_json_is(list, TERN_JSON_OBJECT);
    item->n_continuations = 0;
    if (!is_object && !tern_json_is(list, TERN_JSON_ARRAY))
        return tern_fail(err, TERN_ERR_FORMAT, "doc_to_choice: expected a list of texts");
    for (const tern_json *v = tern_json_first(doc, list); v; v = tern_json_next(doc, list, v))
        TERN_TRY(add_choice(item, tern_json_str(is_object ? tern_json_value_of(doc, v) : v), err));
    return check_choices(item, err);
}

// ---- A list that a template wrote --------------------------------------------------------------

// Templates write lists as Python does, ['a', "it's"], or with tojson as JSON: texts in either
// quotes with the escapes of both.
typedef struct writing {
    const char *at, *end;
} writing;

static int64_t hex_digits(writing *w, int n) {
    int64_t value = 0;
    for (int i = 0; i < n; i++, w->at++) {
        char c = w->at < w->end ? *w->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

// After the backslash.
static bool read_escape(writing *w, tern_strbuf *out) {
    static const char from[] = "nrtbf\\'\"/", to[] = "\n\r\t\b\f\\'\"/";
    char bytes[4], c = w->at < w->end ? *w->at++ : 0;
    const char *plain = c ? strchr(from, c) : NULL;
    if (plain) tern_strbuf_putc(out, to[plain - from]);
    if (plain) return true;
    int64_t code = hex_digits(w, c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0);
    bool is_half = code >= 0xD800 && code < 0xDC00;
    if (is_half && w->end - w->at >= 6 && w->at[0] == '\\' && w->at[1] == 'u') {
        w->at += 2; // JSON's pairs
        code = 0x10000 + ((code - 0xD800) << 10) + (hex_digits(w, 4) - 0xDC00);
    }
    if (!c || !strchr("xuU", c) || code < 0 || code > 0x10FFFF) return false;
    tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode((uint32_t)code, bytes));
    return true;
}

static bool read_quoted(writing *w, tern_strbuf *out) {
    const char quote = *w->at++;
    while (w->at < w->end && *w->at != quote) {
        char c = *w->at++;
        if (c != '\\')
            tern_strbuf_putc(out, c);
        else if (!read_escape(w, out))
            return false;
    }
    return w->at++ < w->end;
}

static void skip_space(writing *w) {
    while (w->at < w->end && strchr(" \t\r\n", *w->at)) w->at++;
}

// The next element, with the comma or bracket before it; *more false: the list has ended.
static bool read_element(writing *w, char before, tern_strbuf *out, bool *more) {
    skip_space(w);
    bool ends = w->at < w->end && *w->at == ']';
    *more = !ends;
    if (!ends && (w->at == w->end || *w->at++ != before)) return false;
    skip_space(w);
    if (!ends && w->at < w->end && (*w->at == '\'' || *w->at == '"')) return read_quoted(w, out);
    *more = false; // "]" after "[" or after a comma at the end
    if (w->at == w->end || *w->at++ != ']') return false;
    skip_space(w);
    return w->at == w->end;
}

static tern_status read_written_list(tern_eval_item *item, const tern_strbuf *text,
                                     tern_error *err) {
    writing w = {tern_strbuf_text(text), tern_strbuf_text(text) + text->len};
    tern_strbuf element = {0};
    tern_status status = TERN_OK;
    item->n_continuations = 0;
    for (bool more = true; more && status == TERN_OK;) {
        tern_strbuf_clear(&element);
        if (!read_element(&w, item->n_continuations ? ',' : '[', &element, &more))
            status = tern_fail(err, TERN_ERR_FORMAT,
                               "doc_to_choice: the template wrote '%.80s': expected a list of "
                               "texts, ['a', 'b']",
                               tern_strbuf_text(text));
        else if (more)
            status = add_choice(item, (tern_str){tern_strbuf_text(&element), element.len}, err);
    }
    if (status == TERN_OK && element.failed) status = tern_fail_memory(err, text->len);
    tern_strbuf_free(&element);
    return status == TERN_OK ? check_choices(item, err) : status;
}

static tern_status read_choices(const tern_eval_file *f, const tern_json_doc *doc, tern_str line,
                                tern_eval_item *item, tern_error *err) {
    tern_strbuf written = {0};
    if (f->choice_list) return add_choices(item, &f->doc, f->choice_list, err);
    const tern_json *field = tern_json_get(doc, tern_json_root(doc), f->choices.source);
    if (field) return add_choices(item, doc, field, err);
    tern_status status = fill(&f->choices, doc, line, &written, err);
    if (status == TERN_OK) status = read_written_list(item, &written, err);
    tern_strbuf_free(&written);
    return status;
}

// The index of the right answer: a number, or one of the answers.
static tern_status find_gold(tern_eval_item *item, const tern_json *field, const tern_strbuf *text,
                             tern_error *err) {
    tern_str s = {tern_strbuf_text(text), text->len};
    int64_t gold = tern_json_int(field, -1);
    if (tern_json_is(field, TERN_JSON_BOOL)) gold = tern_json_bool(field, false);
    if (!field || tern_json_is(field, TERN_JSON_STRING)) {
        gold = s.len && s.len < 4 ? 0 : -1;
        for (size_t i = 0; i < s.len && gold >= 0; i++)
            gold = s.ptr[i] >= '0' && s.ptr[i] <= '9' ? gold * 10 + s.ptr[i] - '0' : -1;
        for (int i = 0; i < item->n && gold < 0; i++)
            if (tern_str_eq(s, (tern_str){item->continuations[i].ptr, item->continuations[i].len}))
                gold = i;
    }
    if (gold < 0 || gold >= item->n)
        return tern_fail(err, TERN_ERR_FORMAT, "doc_to_target: names none of the %d answers",
                         item->n);
    item->gold = (int)gold;
    return TERN_OK;
}

static tern_status read_doc(const tern_eval_file *f, const tern_json_doc *doc, tern_str line,
                            tern_eval_item *item, tern_error *err) {
    tern_strbuf target = {0};
    const tern_json *root = tern_json_root(doc);
    if (!tern_json_is(root, TERN_JSON_OBJECT))
        return tern_fail(err, TERN_ERR_FORMAT, "expected an object");
    item->n = item->n_contexts = item->n_continuations = 1;
    item->gold = 0;
    TERN_TRY(fill(&f->description, doc, line, &item->description, err));
    TERN_TRY(fill(&f->question, doc, line, &item->contexts[0], err));
    if (f->generates) return fill(&f->target, doc, line, &item->continuations[0], err);
    TERN_TRY(read_choices(f, doc, line, item, err));
    const tern_json *field = tern_json_get(doc, root, f->target.source);
    tern_status status = field && !tern_json_is(field, TERN_JSON_STRING)
                             ? TERN_OK
                             : fill(&f->target, doc, line, &target, err);
    if (status == TERN_OK) status = find_gold(item, field, &target, err);
    tern_strbuf_free(&target);
    return status;
}

tern_status tern_eval_file_item(const tern_eval_file *f, tern_str line, tern_eval_item *item,
                                tern_error *err) {
    tern_json_doc doc;
    TERN_TRY(tern_json_parse_part(&doc, line.ptr, line.len, err));
    tern_status status = read_doc(f, &doc, line, item, err);
    tern_json_free(&doc);
    return status;
}
