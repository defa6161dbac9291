// A small model to evaluate, and its scores computed again from plain logits.
#ifndef TERN_TASKS_EVAL_FIXTURE_H
#define TERN_TASKS_EVAL_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tern_tools.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

static const char story[] =
    "Once upon a time there was a hen. She and the other hens sang on and on.\n"
    "The sun went down, and then the hen went to rest in her nest. \u00c4h, the end.";
#define STORY_WORDS 34

typedef struct rig {
    tern_model *model;
    tern_session *session;
    tern_model_info info;
} rig;

static bool rig_open(rig *r, unsigned seed, int n_batch) {
    tern_error err = {0};
    char name[32];
    snprintf(name, sizeof name, "eval%u.gguf", seed);
    const char *path = test_tmp(name);
    tern_model_desc desc = {.n_threads = 1, .n_batch = n_batch};
    tern_session_desc session = {.n_context = 96, .kv_type = TERN_KV_F32};
    bool ok = tiny_model_write(path, &(tiny_model_desc){.seed = seed}, &err) == TERN_OK &&
              tern_model_open(&r->model, path, &desc, &err) == TERN_OK &&
              tern_session_open(&r->session, r->model, &session, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (ok) tern_model_get_info(r->model, &r->info);
    return ok;
}

static void rig_close(rig *r) {
    tern_session_close(r->session);
    tern_model_close(r->model);
}
// ln p of ids[first..n), by logits of the whole sequence; *greedy: each was the greatest.
static inline double slow_score(rig *r, const int32_t *ids, size_t first, size_t n, bool *greedy) {
    size_t n_vocab = (size_t)r->info.n_vocab;
    float *logits = malloc(n * n_vocab * sizeof *logits);
    double sum = 0;
    *greedy = true;
    tern_session_reset(r->session);
    CHECK(tern_session_logits(r->session, ids, n, logits, NULL) == TERN_OK);
    for (size_t i = first; i < n; i++) {
        const float *row = logits + (i - 1) * n_vocab;
        double z = 0;
        for (size_t v = 0; v < n_vocab; v++) {
            z += exp((double)row[v]);
            if (row[v] > row[ids[i]]) *greedy = false;
        }
        sum += (double)row[ids[i]] - log(z);
    }
    free(logits);
    return sum;
}

#endif
