// An item of a task from its line of JSON: the templates of eval_tasks.c filled in.
#include "tasks/eval/eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/utf8.h"

const tern_strbuf *tern_eval_context(const tern_eval_item *item, int answer) {
    return &item->contexts[item->n_contexts > 1 ? answer : 0];
}
const tern_strbuf *tern_eval_continuation(const tern_eval_item *item, int answer) {
    return &item->continuations[item->n_continuations > 1 ? answer : 0];
}

void tern_eval_item_free(tern_eval_item *item) {
    tern_strbuf_free(&item->description);
    for (int i = 0; i < TERN_EVAL_ANSWERS_MAX; i++) {
        tern_strbuf_free(&item->contexts[i]);
        tern_strbuf_free(&item->continuations[i]);
    }
}

// ---- Filters -----------------------------------------------------------------------------------

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static tern_str strip(tern_str s) {
    while (s.len && is_space(s.ptr[0])) s.ptr++, s.len--;
    while (s.len && is_space(s.ptr[s.len - 1])) s.len--;
    return s;
}

static tern_str chomp(tern_str s) { // one newline at the end
    return s.len && s.ptr[s.len - 1] == '\n' ? (tern_str){s.ptr, s.len - 1} : s;
}

static tern_str without_passage(tern_str s) {
    static const char word[] = "Passage: ";
    size_t n = sizeof word - 1;
    return s.len >= n && !memcmp(s.ptr, word, n) ? (tern_str){s.ptr + n, s.len - n} : s;
}

// Parts of a text at a place in it: the whole and nothing if the place is not found.
static tern_str until(tern_str s, const char *place) {
    return place ? (tern_str){s.ptr, (size_t)(place - s.ptr)} : s;
}
static tern_str after(tern_str s, const char *place) {
    return place ? (tern_str){place + 1, s.len - (size_t)(place + 1 - s.ptr)} : TERN_STR("");
}
static tern_str before_blank(tern_str s) { return until(s, memchr(s.ptr, '_', s.len)); }
static tern_str after_blank(tern_str s) { return after(s, memchr(s.ptr, '_', s.len)); }
static tern_str but_last_word(tern_str s) {
    const char *space = memrchr(s.ptr, ' ', s.len);
    return space ? until(s, space) : TERN_STR("");
}
static tern_str but_last_character(tern_str s) {
    while (s.len && (s.ptr[s.len - 1] & 0xc0) == 0x80) s.len--; // the rest of a UTF-8 sequence
    return (tern_str){s.ptr, s.len - (s.len > 0)};
}
static tern_str connector(tern_str s) { // COPA's question decides what joins premise and answer
    return tern_str_is(s, "cause") ? TERN_STR("because") : TERN_STR("therefore");
}
static tern_str last_word(tern_str s) {
    const char *space = memrchr(s.ptr, ' ', s.len);
    return space ? after(s, space) : s;
}

typedef struct filter {
    const char *name;
    tern_str (*cut)(tern_str s);
} filter;
static const filter filters[] = {
    {"strip", strip},
    {"chomp", chomp},
    {"without_passage", without_passage},
    {"before_blank", before_blank},
    {"after_blank", after_blank},
    {"but_last_word", but_last_word},
    {"last_word", last_word},
    {"but_last_character", but_last_character},
    {"connector", connector},
};

// As Python's str.capitalize: the first character in title case, all others in lower case.
static void append_capitalized(tern_strbuf *out, tern_str s) {
    char bytes[4];
    for (size_t i = 0; i < s.len;) {
        uint32_t code = 0;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) return; // impossible: JSON strings are valid
        utf8proc_int32_t c = (utf8proc_int32_t)code;
        c = i == 0 ? utf8proc_totitle(c) : utf8proc_tolower(c);
        tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode((uint32_t)c, bytes));
        i += (size_t)n;
    }
}

// The first character in lower case, all others unchanged.
static void append_uncapitalized(tern_strbuf *out, tern_str s) {
    char bytes[4];
    uint32_t code = 0;
    int n = tern_utf8_decode(s.ptr, s.len, &code);
    if (n <= 0) return;
    code = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode(code, bytes));
    tern_strbuf_append(out, s.ptr + n, s.len - (size_t)n);
}

static void append_spaced(tern_strbuf *out, tern_str s) { // a_name with spaces
    for (size_t i = 0; i < s.len; i++) tern_strbuf_putc(out, s.ptr[i] == '_' ? ' ' : s.ptr[i]);
}

// HellaSwag's clean-up, in place; each step in the order and manner of the harness.
static void remove_wikihow_marks(tern_strbuf *b) {
    static const char title[] = " [title]";
    size_t n_title = sizeof title - 1, n = 0;
    if (b->failed || !b->ptr) return;
    tern_str s = strip((tern_str){b->ptr, b->len});
    for (size_t i = 0; i < s.len;) {
        bool hit = s.len - i >= n_title && !memcmp(s.ptr + i, title, n_title);
        b->ptr[n++] = hit ? '.' : s.ptr[i];
        if (hit) b->ptr[n++] = ' ';
        i += hit ? n_title : 1;
    }
    size_t length = n;
    n = 0;
    for (size_t i = 0; i < length; i++) { // [anything in one line]
        size_t end = i;
        if (b->ptr[i] == '[')
            while (end < length && b->ptr[end] != ']' && b->ptr[end] != '\n') end++;
        if (end > i && end < length && b->ptr[end] == ']')
            i = end;
        else
            b->ptr[n++] = b->ptr[i];
    }
    length = n;
    n = 0;
    for (size_t i = 0; i < length; i++) { // two spaces become one
        b->ptr[n++] = b->ptr[i];
        if (b->ptr[i] == ' ' && i + 1 < length && b->ptr[i + 1] == ' ') i++;
    }
    b->len = n;
    b->ptr[n] = 0;
}

// ---- Templates ---------------------------------------------------------------------------------

static const tern_json *element(const tern_json_doc *doc, const tern_json *list, int index) {
    const tern_json *e = tern_json_first(doc, list);
    for (int i = 0; e && i < index; i++) e = tern_json_next(doc, list, e);
    return e;
}

// The value at "a.b.c". index >= 0: this element of the one list on the path.
static const tern_json *value_at(const tern_json_doc *doc, tern_str path, int index) {
    const tern_json *v = tern_json_root(doc);
    for (size_t i = 0; v && i <= path.len;) {
        if (v->type == TERN_JSON_ARRAY && index >= 0) {
            v = element(doc, v, index);
            index = -1;
            continue;
        }
        if (i == path.len) break;
        const char *dot = memchr(path.ptr + i, '.', path.len - i);
        size_t n = (dot ? (size_t)(dot - path.ptr) : path.len) - i;
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)n, path.ptr + i);
        bool is_number = n > 0 && n < 4 && strspn(key, "0123456789") == n;
        if (v->type == TERN_JSON_ARRAY && is_number)
            v = element(doc, v, atoi(key));
        else
            v = v->type == TERN_JSON_OBJECT ? tern_json_get(doc, v, key) : NULL;
        i += n + (dot != NULL);
    }
    return index >= 0 ? NULL : v; // a list was expected
}

// "name|filter|filter" in the table
typedef struct field {
    tern_str path, filters;
    bool is_list;
} field;

static field parse_field(tern_str s) {
    const char *bar = memchr(s.ptr, '|', s.len);
    size_t n = bar ? (size_t)(bar - s.ptr) : s.len;
    field f = {.path = {s.ptr, n}, .filters = {s.ptr + n, s.len - n}};
    f.is_list = n > 0 && s.ptr[n - 1] == '*';
    f.path.len -= f.is_list;
    return f;
}

static void append_filtered(tern_strbuf *out, tern_str text, tern_str names) {
    void (*append)(tern_strbuf * out, tern_str s) = NULL; // the last filter may change letters
    while (names.len) {                                   // "|name|name"
        names = (tern_str){names.ptr + 1, names.len - 1};
        tern_str name = until(names, memchr(names.ptr, '|', names.len));
        names = (tern_str){names.ptr + name.len, names.len - name.len};
        for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
            if (tern_str_is(name, filters[i].name)) text = filters[i].cut(text);
        if (tern_str_is(name, "capitalize")) append = append_capitalized;
        if (tern_str_is(name, "uncapitalize")) append = append_uncapitalized;
        if (tern_str_is(name, "spaced")) append = append_spaced;
    }
    if (append)
        append(out, text);
    else
        tern_strbuf_append(out, text.ptr, text.len);
}

// Writes text number `index` of a template; *more false: it has no such text.
static tern_status fill(const tern_json_doc *doc, const char *template, int index, tern_strbuf *out,
                        bool *more, tern_error *err) {
    bool has_list = strchr(template, '*') != NULL;
    tern_strbuf_clear(out);
    *more = has_list || index == 0;
    for (const char *p = template; *more && *p;) {
        const char *open = p + strcspn(p, "{"), *close = open + strcspn(open, "}");
        tern_strbuf_append(out, p, (size_t)(open - p));
        if (!*close) break;
        field f = parse_field((tern_str){open + 1, (size_t)(close - open - 1)});
        const tern_json *v = value_at(doc, f.path, f.is_list ? index : -1);
        if (f.is_list && !v && index > 0)
            *more = false;
        else if (!tern_json_is(v, TERN_JSON_STRING))
            return tern_fail(err, TERN_ERR_FORMAT, "the field '%.*s' is %s", (int)f.path.len,
                             f.path.ptr, v ? "not a string" : "missing");
        else
            append_filtered(out, tern_json_str(v), f.filters);
        p = close + 1;
    }
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

// All texts of a layout's templates.
static tern_status fill_all(const tern_json_doc *doc, const char *const *templates, bool wikihow,
                            tern_strbuf *out, int *n, tern_error *err) {
    *n = 0;
    for (int t = 0; t < TERN_EVAL_TEMPLATES && templates[t]; t++)
        for (int index = 0;; index++) {
            bool more;
            tern_strbuf past_end = {0};
            tern_strbuf *to = *n < TERN_EVAL_ANSWERS_MAX ? &out[*n] : &past_end;
            tern_status status = fill(doc, templates[t], index, to, &more, err);
            tern_strbuf_free(&past_end);
            TERN_TRY(status);
            if (!more) break;
            if (to == &past_end)
                return tern_fail(err, TERN_ERR_FORMAT, "more than %d answers",
                                 TERN_EVAL_ANSWERS_MAX);
            if (wikihow) remove_wikihow_marks(to);
            ++*n;
        }
    return TERN_OK;
}

// ---- The right answer --------------------------------------------------------------------------

// A number, even one written as text ("3"), or true and false; -1: something else.
static int64_t read_index(const tern_json *v) {
    tern_str s = tern_json_str(v);
    if (tern_json_is(v, TERN_JSON_BOOL)) return tern_json_bool(v, false);
    if (!s.ptr) return tern_json_int(v, -1);
    int64_t n = s.len && s.len < 4 ? 0 : -1;
    for (size_t i = 0; i < s.len && n >= 0; i++)
        n = s.ptr[i] >= '0' && s.ptr[i] <= '9' ? n * 10 + s.ptr[i] - '0' : -1;
    return n;
}

static int64_t find_label(const tern_json_doc *doc, const char *labels, tern_str gold) {
    tern_str path = {labels, strlen(labels)};
    gold = strip(gold);
    if (gold.len == 0) return -1; // a missing label has no text, either
    for (int i = 0; i < TERN_EVAL_ANSWERS_MAX; i++)
        if (tern_str_eq(tern_json_str(value_at(doc, path, i)), gold)) return i;
    return -1;
}

// "A" is 0, and so on.
static int64_t read_letter(const tern_json *v) {
    tern_str s = strip(tern_json_str(v));
    return s.len == 1 && s.ptr[0] >= 'A' && s.ptr[0] <= 'Z' ? s.ptr[0] - 'A' : read_index(v);
}

// A list of 1 and 0, as many as there are answers; both are among them.
static tern_status read_many(const tern_json_doc *doc, const char *path, tern_eval_item *item,
                             tern_error *err) {
    tern_str where = {path, strlen(path)};
    item->right = 0;
    for (int i = 0; i < item->n; i++) {
        int64_t label = read_index(value_at(doc, where, i));
        if (label != 0 && label != 1)
            return tern_fail(err, TERN_ERR_FORMAT, "'%s' has no 0 or 1 for answer %d", path, i + 1);
        item->right |= (uint64_t)label << i;
    }
    if (item->right && !value_at(doc, where, item->n)) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "'%s' has no 1, or more values than answers", path);
}

static tern_status read_gold(const tern_json_doc *doc, const tern_eval_layout *l,
                             tern_eval_item *item, tern_error *err) {
    item->gold = 0;
    if (l->rule == TERN_GOLD_FIRST) return TERN_OK;
    if (l->rule == TERN_GOLD_MANY) return read_many(doc, l->gold, item, err);
    const tern_json *v = value_at(doc, (tern_str){l->gold, strlen(l->gold)}, -1);
    int64_t gold = l->rule == TERN_GOLD_LABEL    ? find_label(doc, l->labels, tern_json_str(v))
                   : l->rule == TERN_GOLD_LETTER ? read_letter(v)
                                                 : read_index(v) - (l->rule == TERN_GOLD_ONE_BASED);
    if (gold < 0 || gold >= item->n)
        return tern_fail(err, TERN_ERR_FORMAT, "'%s' names none of the %d answers", l->gold,
                         item->n);
    item->gold = (int)gold;
    return TERN_OK;
}

// ---- Items -------------------------------------------------------------------------------------

static const tern_eval_layout *find_layout(const tern_eval_task *task, const tern_json_doc *doc) {
    for (int i = 0; i < TERN_EVAL_LAYOUTS && task->layouts[i].mark; i++) {
        const char *mark = task->layouts[i].mark;
        if (value_at(doc, (tern_str){mark, strlen(mark)}, -1)) return &task->layouts[i];
    }
    return NULL;
}

static tern_status fail_layout(const tern_eval_task *task, tern_error *err) {
    char marks[128] = "";
    for (int i = 0; i < TERN_EVAL_LAYOUTS && task->layouts[i].mark; i++) {
        size_t n = strlen(marks);
        snprintf(marks + n, sizeof marks - n, "%s'%s'", i ? " or " : "", task->layouts[i].mark);
    }
    return tern_fail(err, TERN_ERR_FORMAT, "not an item of %s: expected an object with %s",
                     task->name, marks);
}

// A choice among texts: with one text the first is always right, and an empty text has no length.
static tern_status check_answers(const tern_eval_task *task, const tern_eval_item *item,
                                 tern_error *err) {
    if (item->n < 2 && !(task->metrics & TERN_EVAL_PERPLEXITY))
        return tern_fail(err, TERN_ERR_FORMAT, "%d answer%s to choose from", item->n,
                         item->n == 1 ? "" : "s");
    for (int i = 0; i < item->n; i++)
        if ((item->n_contexts > 1 ? item->contexts : item->continuations)[i].len == 0)
            return tern_fail(err, TERN_ERR_FORMAT, "answer %d has no text", i + 1);
    return TERN_OK;
}

tern_status tern_eval_item_read(tern_eval_item *item, const tern_eval_task *task, tern_str line,
                                tern_error *err) {
    tern_json_doc doc;
    TERN_TRY(tern_json_parse_part(&doc, line.ptr, line.len, err));
    const tern_eval_layout *l = find_layout(task, &doc);
    tern_status status = TERN_OK;
    bool more;
    if (!l) TERN_TRY_GOTO(fail_layout(task, err));
    tern_strbuf_clear(&item->description);
    if (l->description)
        TERN_TRY_GOTO(fill(&doc, l->description, 0, &item->description, &more, err));
    TERN_TRY_GOTO(fill_all(&doc, l->contexts, l->wikihow, item->contexts, &item->n_contexts, err));
    TERN_TRY_GOTO(fill_all(&doc, l->continuations, l->wikihow, item->continuations,
                           &item->n_continuations, err));
    item->n = item->n_contexts > 1 ? item->n_contexts : item->n_continuations;
    TERN_TRY_GOTO(check_answers(task, item, err));
    TERN_TRY_GOTO(read_gold(&doc, l, item, err));
fail:
    tern_json_free(&doc);
    return status;
}
