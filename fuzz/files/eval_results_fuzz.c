// Fuzzing of the results file of an evaluation: an accepted file can be queried, takes one more
// item, and is accepted again with that item in it.
#include <string.h>
#include "fuzz/support.h"
#include "tasks/eval/eval.h"

static const char header[] = "{\"tern_eval\":1}";

static tern_status open_store(tern_eval_store *s, const char *path, tern_error *err) {
    return tern_eval_store_open(s, path, header, "piqa", "items.jsonl", err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *path = fuzz_write("results.jsonl", bytes, n);
    tern_eval_store s;
    tern_error err = {0};
    const tern_eval_record *found;
    tern_status status = open_store(&s, path, &err);
    fuzz_require(status == TERN_OK || err.message[0]);
    if (status != TERN_OK) return 0;
    uint64_t next = s.n ? s.records[s.n - 1].item + 1 : 0;
    for (size_t i = 0; i < s.n; i++) {
        const tern_eval_record r = s.records[i];
        status = tern_eval_store_find(&s, r.item, r.hash, r.scores.n, &found, &err);
        fuzz_require(status == TERN_OK && found && found->scores.n == r.scores.n);
    }
    const tern_eval_record one = {
        .item = next, .hash = 7, .scores = {.logprobs = {-1.5, -2}, .greedy = {true}, .n = 2}};
    status = tern_eval_store_add(&s, &one, &err);
    tern_eval_store_close(&s);
    if (status != TERN_OK || open_store(&s, path, &err) != TERN_OK) {
        fuzz_require(err.status == TERN_ERR_MEMORY);
        return 0;
    }
    fuzz_require(s.n > 0 && s.records[s.n - 1].item == next && s.records[s.n - 1].hash == 7);
    tern_eval_store_close(&s);
    return 0;
}
