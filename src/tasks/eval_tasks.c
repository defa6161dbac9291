// The tasks of tern_eval_choice: a table of how the JSON of each becomes text. The prompts are
// those of lm-evaluation-harness; between context and continuation stands one space.
//
// A template is text with fields: "{goal}" is the string at that key, "{question.stem}" goes
// deeper, and "{x|strip|capitalize}" is filtered. A field that ends in * stands for the elements of
// a list, and its template makes as many texts: "{choices.text*}" reads both {"text": ["a", "b"]}
// and [{"text": "a"}, {"text": "b"}].
#include "tasks/eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utf8proc.h>
#include "base/os_file.h"
#include "base/utf8.h"

typedef enum gold_rule {
    GOLD_FIRST,     // always the first answer
    GOLD_INDEX,     // the field counts from 0; true is 1
    GOLD_ONE_BASED, // it counts from 1
    GOLD_LABEL,     // it is one of the list `labels`
} gold_rule;

// The same task is published with different fields: each way is a layout, known by its mark.
typedef struct layout {
    const char *mark; // a field that no earlier layout of the task has
    const char *contexts[2], *continuations[2]; // templates
    gold_rule rule;
    const char *gold, *labels;
    bool wikihow; // HellaSwag: remove the marks of the site that it was taken from
} layout;

struct tern_eval_task {
    const char *name;
    const char *files[4]; // usual names; of a folder: ends with a slash
    unsigned metrics;
    layout layouts[3];
};

// MosaicML's evaluation sets have a query, a list of choices and the index of the right one.
#define QUERY_LAYOUT(context)                                                                      \
    {.mark = "query", .contexts = {context}, .continuations = {"{choices*}"},                      \
     .rule = GOLD_INDEX, .gold = "gold"}
#define LABELLED_LAYOUT(mark_, context, list)                                                      \
    {.mark = mark_, .contexts = {context}, .continuations = {"{" list ".text*}"},                  \
     .rule = GOLD_LABEL, .gold = "answerKey", .labels = list ".label"}
#define ARC(name_, file1, file2, file3)                                                            \
    {.name = name_,                                                                                \
     .files = {file1, file2, file3},                                                               \
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,                                                    \
     .layouts = {                                                                                  \
         LABELLED_LAYOUT("question.stem", "Question: {question.stem}\nAnswer:",                    \
                         "question.choices"),                                                      \
         LABELLED_LAYOUT("question", "Question: {question}\nAnswer:", "choices"),                  \
         QUERY_LAYOUT("{query}\nAnswer:")}}

static const tern_eval_task tasks[] = {
    {.name = "hellaswag",
     .files = {"hellaswag.jsonl", "hellaswag_val.jsonl", "hellaswag_validation.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,
     .layouts = {{.mark = "ctx_a",
                  .contexts = {"{activity_label}: {ctx_a} {ctx_b|capitalize}"},
                  .continuations = {"{endings*}"},
                  .rule = GOLD_INDEX, .gold = "label", .wikihow = true},
                 QUERY_LAYOUT("{query}")}},
    ARC("arc_easy", "arc_easy.jsonl", "ARC-Easy-Test.jsonl", "ARC-Easy.jsonl"),
    ARC("arc_challenge", "arc_challenge.jsonl", "ARC-Challenge-Test.jsonl", "ARC-Challenge.jsonl"),
    {.name = "piqa",
     .files = {"piqa.jsonl", "piqa_validation.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,
     .layouts = {{.mark = "goal",
                  .contexts = {"Question: {goal}\nAnswer:"},
                  .continuations = {"{sol1}", "{sol2}"},
                  .rule = GOLD_INDEX, .gold = "label"},
                 QUERY_LAYOUT("{query|chomp}\nAnswer:")}},
    {.name = "winogrande",
     .files = {"winogrande.jsonl", "winogrande_validation.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "sentence",
                  .contexts = {"{sentence|before_blank}{option1}",
                               "{sentence|before_blank}{option2}"},
                  .continuations = {"{sentence|after_blank|strip}"},
                  .rule = GOLD_ONE_BASED, .gold = "answer"},
                 {.mark = "context_options",
                  .contexts = {"{context_options*}"},
                  .continuations = {"{continuation}"},
                  .rule = GOLD_INDEX, .gold = "gold"}}},
    {.name = "boolq",
     .files = {"boolq.jsonl", "boolq_validation.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "label",
                  .contexts = {"{passage}\nQuestion: {question}?\nAnswer:"},
                  .continuations = {"no", "yes"},
                  .rule = GOLD_INDEX, .gold = "label"},
                 {.mark = "answer",
                  .contexts = {"{passage}\nQuestion: {question}?\nAnswer:"},
                  .continuations = {"no", "yes"},
                  .rule = GOLD_INDEX, .gold = "answer"},
                 QUERY_LAYOUT("{query|without_passage}\nAnswer:")}},
    {.name = "openbookqa",
     .files = {"openbookqa.jsonl", "openbook_qa.jsonl", "openbookqa_test.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_NORM,
     .layouts = {LABELLED_LAYOUT("question.stem", "{question.stem}", "question.choices"),
                 LABELLED_LAYOUT("question_stem", "{question_stem}", "choices"),
                 QUERY_LAYOUT("{query}")}},
    {.name = "lambada",
     .files = {"lambada.jsonl", "lambada_openai.jsonl", "lambada_test.jsonl"},
     .metrics = TERN_EVAL_ACC | TERN_EVAL_PERPLEXITY,
     .layouts = {{.mark = "text",
                  .contexts = {"{text|but_last_word}"},
                  .continuations = {"{text|last_word}"}},
                 {.mark = "context",
                  .contexts = {"{context}"},
                  .continuations = {"{continuation}"}}}},
    {.name = "blimp",
     .files = {"blimp/", "blimp.jsonl"},
     .metrics = TERN_EVAL_ACC,
     .layouts = {{.mark = "sentence_good",
                  .contexts = {""},
                  .continuations = {"{sentence_good}", "{sentence_bad}"}}}},
};
#define N_TASKS (sizeof tasks / sizeof *tasks)

const char *tern_eval_task_name(size_t i) {
    return i < N_TASKS ? tasks[i].name : NULL;
}

const tern_eval_task *tern_eval_task_find(const char *name) {
    for (size_t i = 0; i < N_TASKS; i++)
        if (!strcmp(tasks[i].name, name)) return &tasks[i];
    return NULL;
}

unsigned tern_eval_task_metrics(const tern_eval_task *task) {
    return task->metrics;
}

const tern_strbuf *tern_eval_context(const tern_eval_item *item, int answer) {
    return &item->contexts[item->n_contexts > 1 ? answer : 0];
}
const tern_strbuf *tern_eval_continuation(const tern_eval_item *item, int answer) {
    return &item->continuations[item->n_continuations > 1 ? answer : 0];
}

void tern_eval_item_free(tern_eval_item *item) {
    for (int i = 0; i < TERN_EVAL_ANSWERS_MAX; i++) {
        tern_strbuf_free(&item->contexts[i]);
        tern_strbuf_free(&item->continuations[i]);
    }
}

// ---- Filters -----------------------------------------------------------------------------------

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

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

// Parts of a text at a place in it: the whole and nothing when the place is not there.
static tern_str until(tern_str s, const char *place) {
    return place ? (tern_str){s.ptr, (size_t)(place - s.ptr)} : s;
}
static tern_str behind(tern_str s, const char *place) {
    return place ? (tern_str){place + 1, s.len - (size_t)(place + 1 - s.ptr)} : TERN_STR("");
}
static tern_str before_blank(tern_str s) {
    return until(s, memchr(s.ptr, '_', s.len));
}
static tern_str after_blank(tern_str s) {
    return behind(s, memchr(s.ptr, '_', s.len));
}
static tern_str but_last_word(tern_str s) {
    const char *space = memrchr(s.ptr, ' ', s.len);
    return space ? until(s, space) : TERN_STR("");
}
static tern_str last_word(tern_str s) {
    const char *space = memrchr(s.ptr, ' ', s.len);
    return space ? behind(s, space) : s;
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
};

// As Python's str.capitalize: the first character in title case, all others in lower case.
static void append_capitalized(tern_strbuf *out, tern_str s) {
    char bytes[4];
    for (size_t i = 0; i < s.len;) {
        uint32_t code = 0;
        int n = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (n <= 0) return; // cannot be: JSON strings are valid
        utf8proc_int32_t c = (utf8proc_int32_t)code;
        c = i == 0 ? utf8proc_totitle(c) : utf8proc_tolower(c);
        tern_strbuf_append(out, bytes, (size_t)tern_utf8_encode((uint32_t)c, bytes));
        i += (size_t)n;
    }
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
        if (end > i && end < length && b->ptr[end] == ']') i = end;
        else b->ptr[n++] = b->ptr[i];
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

// The value at "a.b.c". index >= 0: that element of the one list that is met on the way.
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
        v = v->type == TERN_JSON_OBJECT ? tern_json_get(doc, v, key) : NULL;
        i += n + (dot != NULL);
    }
    return index >= 0 ? NULL : v; // a list was asked for and there is none
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
    bool capitalize = false;
    while (names.len) { // "|name|name"
        names = (tern_str){names.ptr + 1, names.len - 1};
        tern_str name = until(names, memchr(names.ptr, '|', names.len));
        names = (tern_str){names.ptr + name.len, names.len - name.len};
        for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
            if (tern_str_is(name, filters[i].name)) text = filters[i].cut(text);
        capitalize |= tern_str_is(name, "capitalize");
    }
    if (capitalize) append_capitalized(out, text);
    else tern_strbuf_append(out, text.ptr, text.len);
}

// Writes a template's text number `index`; *more false: it has no such text.
static tern_status fill(const tern_json_doc *doc, const char *template, int index, tern_strbuf *out,
                        bool *more, tern_error *err) {
    bool has_list = strchr(template, '*') != NULL;
    tern_strbuf_clear(out);
    *more = has_list || index == 0;
    for (const char *p = template; *more && *p;) {
        const char *open = strchrnul(p, '{'), *close = strchrnul(open, '}');
        tern_strbuf_append(out, p, (size_t)(open - p));
        if (!*close) break;
        field f = parse_field((tern_str){open + 1, (size_t)(close - open - 1)});
        const tern_json *v = value_at(doc, f.path, f.is_list ? index : -1);
        if (f.is_list && !v && index > 0) *more = false;
        else if (!tern_json_is(v, TERN_JSON_STRING))
            return tern_fail(err, TERN_ERR_FORMAT, "the field '%.*s' is %s", (int)f.path.len,
                             f.path.ptr, v ? "no text" : "missing");
        else append_filtered(out, tern_json_str(v), f.filters);
        p = close + 1;
    }
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

// All texts of one or two templates.
static tern_status fill_all(const tern_json_doc *doc, const char *const templates[2], bool wikihow,
                            tern_strbuf *out, int *n, tern_error *err) {
    *n = 0;
    for (int t = 0; t < 2 && templates[t]; t++)
        for (int index = 0; ; index++) {
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

// A number, also one that is written as text ("3"), or true and false; -1: something else.
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
    for (int i = 0; i < TERN_EVAL_ANSWERS_MAX; i++)
        if (tern_str_eq(tern_json_str(value_at(doc, path, i)), gold)) return i;
    return -1;
}

static tern_status read_gold(const tern_json_doc *doc, const layout *l, tern_eval_item *item,
                             tern_error *err) {
    item->gold = 0;
    if (l->rule == GOLD_FIRST) return TERN_OK;
    const tern_json *v = value_at(doc, (tern_str){l->gold, strlen(l->gold)}, -1);
    int64_t gold = l->rule == GOLD_LABEL ? find_label(doc, l->labels, tern_json_str(v))
                                         : read_index(v) - (l->rule == GOLD_ONE_BASED);
    if (gold < 0 || gold >= item->n)
        return tern_fail(err, TERN_ERR_FORMAT, "'%s' names none of the %d answers", l->gold,
                         item->n);
    item->gold = (int)gold;
    return TERN_OK;
}

// ---- Items -------------------------------------------------------------------------------------

static const layout *find_layout(const tern_eval_task *task, const tern_json_doc *doc) {
    for (int i = 0; i < 3 && task->layouts[i].mark; i++) {
        const char *mark = task->layouts[i].mark;
        if (value_at(doc, (tern_str){mark, strlen(mark)}, -1)) return &task->layouts[i];
    }
    return NULL;
}

static tern_status fail_layout(const tern_eval_task *task, tern_error *err) {
    char marks[128] = "";
    for (int i = 0; i < 3 && task->layouts[i].mark; i++) {
        size_t n = strlen(marks);
        snprintf(marks + n, sizeof marks - n, "%s'%s'", i ? " or " : "", task->layouts[i].mark);
    }
    return tern_fail(err, TERN_ERR_FORMAT, "not an item of %s: expected an object with %s",
                     task->name, marks);
}

tern_status tern_eval_item_read(tern_eval_item *item, const tern_eval_task *task, tern_str line,
                                tern_error *err) {
    tern_json_doc doc;
    TERN_TRY(tern_json_parse(&doc, line.ptr, line.len, err));
    const layout *l = find_layout(task, &doc);
    tern_status status = TERN_OK;
    if (!l) TERN_TRY_GOTO(fail_layout(task, err));
    TERN_TRY_GOTO(fill_all(&doc, l->contexts, l->wikihow, item->contexts, &item->n_contexts, err));
    TERN_TRY_GOTO(fill_all(&doc, l->continuations, l->wikihow, item->continuations,
                           &item->n_continuations, err));
    item->n = item->n_contexts > 1 ? item->n_contexts : item->n_continuations;
    TERN_TRY_GOTO(read_gold(&doc, l, item, err));
fail:
    tern_json_free(&doc);
    return status;
}

// ---- Files -------------------------------------------------------------------------------------

static bool ends_with_slash(const char *s) { return *s && s[strlen(s) - 1] == '/'; }

// Builds a path in *out; whether it is there.
static bool is_there(tern_strbuf *out, const char *folder, const char *name, bool wants_folder) {
    struct stat st;
    tern_strbuf_clear(out);
    tern_strbuf_printf(out, "%s/%s", folder, name);
    if (out->failed || stat(out->ptr, &st) != 0) return false;
    return wants_folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode);
}

// A file of the task's in exactly this folder. What is called "blimp/" may have its files in
// "blimp/data/", as the authors' repository has.
static bool find_in(const tern_eval_task *task, const char *folder, tern_strbuf *path) {
    for (int i = 0; i < 4 && task->files[i]; i++) {
        bool is_folder = ends_with_slash(task->files[i]);
        tern_strbuf inner = {0};
        tern_strbuf_printf(&inner, "%sdata", task->files[i]);
        bool found = is_folder && !inner.failed && is_there(path, folder, inner.ptr, true);
        tern_strbuf_free(&inner);
        if (found || is_there(path, folder, task->files[i], is_folder)) return true;
    }
    return false;
}

bool tern_eval_find_file(const char *task_name, const char *folder, tern_text_fn on_path,
                         void *user) {
    const tern_eval_task *task = task_name ? tern_eval_task_find(task_name) : NULL;
    tern_strbuf path = {0}, inner = {0};
    tern_names names = {0};
    if (!task || !folder || !on_path) return false;
    bool found = find_in(task, folder, &path);
    if (!found) tern_folder_list(&names, folder, "", "", NULL);
    for (size_t i = 0; i < names.n && !found; i++)
        if (names.list[i][0] != '.' && is_there(&inner, folder, names.list[i], true))
            found = find_in(task, inner.ptr, &path);
    if (found) on_path(user, path.ptr, path.len);
    tern_names_free(&names);
    tern_strbuf_free(&inner);
    tern_strbuf_free(&path);
    return found;
}
