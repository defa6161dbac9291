// Fuzzing of task files: the file, a zero byte, a line of data, a zero byte, an answer. What an
// accepted file makes of them must be consistent.
#include <stdlib.h>
#include <string.h>
#include "tasks/eval/eval.h"
#include "tasks/eval/file/eval_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void check_item(const tern_eval_file *f, tern_eval_item *item, tern_str line) {
    tern_error err = {0};
    tern_status status = tern_eval_file_item(f, line, item, &err);
    require(status == TERN_OK || err.message[0]);
    if (status != TERN_OK) return;
    require(item->n_contexts == 1 && item->n == item->n_continuations);
    require(f->generates ? item->n == 1 : item->n >= 2 && item->n <= TERN_EVAL_ANSWERS_MAX);
    require(item->gold >= 0 && item->gold < item->n);
    for (int a = 0; a < item->n; a++)
        require(f->generates || tern_eval_continuation(item, a)->len > 0);
}

// An answer that is its own right one matches, whatever is ignored.
static void check_answer(const tern_eval_file *f, tern_str answer) {
    tern_strbuf out = {0};
    tern_error err = {0};
    for (int i = 0; i < f->n_filters; i++) {
        bool same = false;
        tern_status status = tern_eval_filter_apply(&f->filters[i], answer, &out, &err);
        const tern_str got = {tern_strbuf_text(&out), out.len};
        if (status == TERN_OK) status = tern_eval_answer_matches(&f->match, got, got, &same, &err);
        require(status == TERN_OK ? same : err.message[0] != 0);
    }
    tern_strbuf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_eval_file f;
    tern_eval_item item = {0};
    tern_error err = {0};
    char *text = malloc(n + 1); // the parts are terminated
    if (!text) return 0;
    memcpy(text, bytes, n);
    text[n] = 0;
    const char *end = text + n, *line = text + strlen(text) + 1;
    tern_status status = tern_eval_file_open(&f, "task.json", text, &err);
    require(status == TERN_OK || err.message[0]);
    if (status == TERN_OK && line <= end) {
        const size_t n_line = strlen(line);
        check_item(&f, &item, (tern_str){line, n_line});
        const char *answer = line + n_line + 1;
        tern_json_doc quoted; // an answer is valid UTF-8, as a text of JSON is
        if (answer <= end && tern_json_parse(&quoted, answer, strlen(answer), NULL) == TERN_OK) {
            tern_str s = tern_json_str(tern_json_root(&quoted));
            if (s.ptr) check_answer(&f, s);
            tern_json_free(&quoted);
        }
    }
    tern_eval_file_close(&f);
    tern_eval_item_free(&item);
    free(text);
    return 0;
}
