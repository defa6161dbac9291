// Lines of JSON become items: each form of each task, and what is said of a malformed line.
#include <string.h>
#include "base/lines.h"
#include "tasks/eval/eval.h"
#include "tern_tools.h"
#include "tests/support/harness.h"

// Two lines each: a task's name and a line of its file; what the item has then. An item without
// contexts has TruthfulQA's.
#define FORMS "src/tasks/eval/eval_forms.txt"

// As in lm-evaluation-harness: the question asked is the last of seven.
static const char truthfulqa_ends[] = "in Barcelona, Spain.\n\nQ: Do hens sing?\nA:";

static void check_truthfulqa(const tern_strbuf *c) {
    size_t n_end = sizeof truthfulqa_ends - 1, n_questions = 0;
    REQUIRE(c->len > n_end);
    CHECK(!strcmp(c->ptr + c->len - n_end, truthfulqa_ends));
    for (size_t k = 0; k + 3 < c->len; k++)
        n_questions += (k == 0 || c->ptr[k - 1] == '\n') && !memcmp(c->ptr + k, "Q: ", 3);
    CHECK(n_questions == 7);
}

static void check_text(const tern_strbuf *got, tern_str want) {
    CHECK_MSG(got->len == want.len && (!want.len || !memcmp(got->ptr, want.ptr, want.len)), "'%s'",
              tern_strbuf_text(got));
}

static int check_texts(const tern_json_doc *doc, const char *key, const tern_strbuf *got) {
    const tern_json *list = tern_json_get(doc, tern_json_root(doc), key);
    int n = 0;
    for (const tern_json *t = tern_json_first(doc, list); t; t = tern_json_next(doc, list, t))
        check_text(&got[n++], tern_json_str(t));
    return n;
}

static void check_form(const char *form, const tern_eval_item *item, const tern_json_doc *want) {
    const tern_json *root = tern_json_root(want);
    int n_contexts = check_texts(want, "contexts", item->contexts);
    int n = check_texts(want, "continuations", item->continuations);
    CHECK_MSG(item->n_continuations == n && (!n_contexts || item->n_contexts == n_contexts), "%s",
              form);
    if (!n_contexts) check_truthfulqa(&item->contexts[0]);
    CHECK_MSG(item->n == (n > n_contexts ? n : n_contexts), "%s: %d answers", form, item->n);
    CHECK_MSG(item->gold == tern_json_int(tern_json_get(want, root, "gold"), -1), "%s: %d", form,
              item->gold);
    CHECK(item->right == (uint64_t)tern_json_int(tern_json_get(want, root, "right"), 0));
    check_text(&item->description, tern_json_str(tern_json_get(want, root, "description")));
}

// The next form of the file: its task's name is cut off its line. False: there is none.
static bool next_form(tern_lines *forms, const tern_eval_task **task, tern_str *line) {
    bool more = false;
    tern_error err = {0};
    CHECK_MSG(tern_lines_next(forms, &more, &err) == TERN_OK, "%s", err.message);
    char *space = more ? strchr(forms->line.ptr, ' ') : NULL;
    if (!space) return false;
    *space = 0;
    *task = tern_eval_task_find(forms->line.ptr);
    *line = (tern_str){space + 1, strlen(space + 1)};
    CHECK_MSG(*task != NULL, "no task '%s'", forms->line.ptr);
    return *task != NULL;
}

TEST(eval_reads_every_form_of_every_task) {
    tern_lines forms;
    tern_error err = {0};
    const tern_eval_task *task;
    tern_str line;
    bool more;
    REQUIRE_OK(tern_lines_open(&forms, FORMS, &err), err);
    while (next_form(&forms, &task, &line)) {
        tern_eval_item item = {0};
        tern_json_doc want;
        char form[300];
        snprintf(form, sizeof form, "%s", line.ptr);
        REQUIRE_OK(tern_eval_item_read(&item, task, line, &err), err);
        REQUIRE_OK(tern_lines_next(&forms, &more, &err), err);
        REQUIRE_OK(tern_json_parse(&want, forms.line.ptr, forms.line.len, &err), err);
        check_form(form, &item, &want);
        tern_json_free(&want);
        tern_eval_item_free(&item);
    }
    tern_lines_close(&forms);
}

TEST(eval_has_a_form_for_every_layout_of_every_task) {
    for (size_t t = 0; tern_eval_task_name(t); t++) {
        const tern_eval_task *task = tern_eval_task_find(tern_eval_task_name(t)), *found;
        size_t n = 0, n_layouts = 0;
        tern_lines forms;
        tern_error err = {0};
        tern_str line;
        bool more;
        while (n_layouts < TERN_EVAL_LAYOUTS && task->layouts[n_layouts].mark) n_layouts++;
        REQUIRE_OK(tern_lines_open(&forms, FORMS, &err), err);
        while (next_form(&forms, &found, &line)) {
            n += found == task;
            REQUIRE_OK(tern_lines_next(&forms, &more, &err), err);
        }
        tern_lines_close(&forms);
        n += !strncmp(task->name, "arc_", 4) ? 2 : 0; // both have the same layouts; one
        CHECK_MSG(n >= n_layouts, "%s: %zu forms of %zu", task->name, n, n_layouts); // has the rest
    }
    CHECK(!tern_eval_task_find("") && !tern_eval_task_find("mmluu") && !tern_eval_task_find("mml"));
}

TEST(eval_says_what_an_item_lacks) {
    char many[512] = "{\"query\":\"q\",\"gold\":0,\"choices\":[\"a\"";
    for (int i = 0; i < TERN_EVAL_ANSWERS_MAX; i++) strcat(many, ",\"a\"");
    strcat(many, "]}");
    const struct {
        const char *task, *line, *says;
    } bad[] = {
        {"piqa", "{\"goal\":1,\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}",
         "'goal' is not a string"},
        {"piqa", "{\"goal\":\"a\",\"sol1\":\"a\",\"label\":0}", "'sol2' is missing"},
        {"piqa", "{\"goal\":\"a\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":2}",
         "'label' names none"},
        {"piqa", "{\"goal\":\"a\",\"sol1\":\"a\",\"sol2\":\"b\"}", "'label' names none"},
        {"piqa", "[\"goal\"]", "expected an object with 'goal' or 'query'"},
        {"piqa", "{\"goal\":", "not JSON"},
        {"hellaswag", "{\"query\":\"q\",\"choices\":[],\"gold\":0}", "'choices' is missing"},
        {"hellaswag", "{\"query\":\"q\",\"choices\":[\"a\",2],\"gold\":0}",
         "'choices' is not a string"},
        {"hellaswag", many, "more than 64 answers"},
        {"copa", "{\"premise\":\"P.\",\"choice1\":\"a\",\"choice2\":\"b\",\"label\":0}",
         "'question' is missing"},
        {"mmlu", "{\"question\":\"q\",\"choices\":[\"1\",\"2\",\"3\"],\"answer\":0}",
         "'choices.3' is missing"},
        {"mmlu", "{\"question\":\"q\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],\"answer\":\"E\"}",
         "'answer' names none"},
        {"truthfulqa_mc2",
         "{\"question\":\"q\",\"mc2_targets\":{\"choices\":[\"a\",\"b\"],\"labels\":[0,0]}}",
         "has no 1, or more values"},
        {"truthfulqa_mc2",
         "{\"question\":\"q\",\"mc2_targets\":{\"choices\":[\"a\",\"b\"],"
         "\"labels\":[1,0,1]}}",
         "has no 1, or more values"},
        {"truthfulqa_mc2",
         "{\"question\":\"q\",\"mc2_targets\":{\"choices\":[\"a\",\"b\"],\"labels\":[1]}}",
         "no 0 or 1 for answer 2"},
        {"winogrande", "{\"sentence\":\"_\",\"option1\":\"a\",\"option2\":\"b\",\"answer\":\"0\"}",
         "'answer' names none"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tern_eval_item item = {0};
        tern_error err = {0};
        tern_str line = {bad[i].line, strlen(bad[i].line)};
        CHECK(tern_eval_item_read(&item, tern_eval_task_find(bad[i].task), line, &err) ==
              TERN_ERR_FORMAT);
        CHECK_MSG(strstr(err.message, bad[i].says) != NULL, "%s: %s", bad[i].line, err.message);
        tern_eval_item_free(&item);
    }
}
