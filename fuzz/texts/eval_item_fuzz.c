// Fuzzing of evaluation items: a line of JSON, read as each task. The item must be consistent.
#include <stdlib.h>
#include "tasks/eval/eval.h"
#include "tern_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_eval_item item = {0}; // reused, as in a run over a file
    for (size_t i = 0; tern_eval_task_name(i); i++) {
        const tern_eval_task *task = tern_eval_task_find(tern_eval_task_name(i));
        tern_error err = {0};
        tern_str line = {(const char *)bytes, n};
        tern_status status = tern_eval_item_read(&item, task, line, &err);
        require(status == TERN_OK || err.message[0]);
        if (status != TERN_OK) continue;
        require(item.n >= 1 && item.n <= TERN_EVAL_ANSWERS_MAX);
        require(item.gold >= 0 && item.gold < item.n);
        require(item.n_contexts == 1 || item.n_contexts == item.n);
        require(item.n_continuations == 1 || item.n_continuations == item.n);
        for (int a = 0; a < item.n; a++)
            require(!tern_eval_context(&item, a)->failed &&
                    !tern_eval_continuation(&item, a)->failed);
    }
    tern_eval_item_free(&item);
    return 0;
}
