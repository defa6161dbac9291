#include "apps/serve/api/prompt_scores.h"

#include <math.h>
#include "apps/serve/request/away.h"
#include "base/alloc.h"

#define SCORES_BYTES (8 << 20) // of logits at a time: those of a few tokens, between two pauses

static bool go_on(request *req) {
    if (request_is_cancelled(req)) return false;
    scheduler_wait_step(req->model->scheduler);
    return request_pause(req);
}

static tern_status score_prompt(request *req, generation_prompt *p, float *logits, size_t n_rows,
                                tern_error *err) {
    const served *s = req->model;
    const size_t n_each = 1 + (size_t)req->generation->params.n_top_logprobs;
    const size_t n_vocab = (size_t)s->info.n_vocab;
    const tern_session_desc desc = {.n_context = s->n_context,
                                    .lora_scales = req->generation->lora_scales,
                                    .n_lora_scales = req->generation->n_loras};
    tern_session *session = NULL;
    tern_status status = tern_session_open(&session, s->model, &desc, err);
    for (size_t i = 0, n; i + 1 < p->n_ids && status == TERN_OK && go_on(req); i += n) {
        n = p->n_ids - 1 - i < n_rows ? p->n_ids - 1 - i : n_rows;
        status = tern_session_logits(session, p->ids + i, n, logits, err);
        for (size_t k = 0; k < n && status == TERN_OK; k++)
            status = tern_rank_logprobs(logits + k * n_vocab, s->info.n_vocab, p->ids[i + k + 1],
                                        p->scores + (i + k + 1) * n_each, n_each, err);
    }
    tern_session_close(session);
    return status;
}

static void compute(request *req) {
    generation *a = req->generation;
    const size_t n_each = 1 + (size_t)a->params.n_top_logprobs;
    const size_t row_bytes = (size_t)req->model->info.n_vocab * sizeof(float);
    const size_t n_rows = row_bytes < SCORES_BYTES ? SCORES_BYTES / row_bytes : 1;
    float *logits = tern_alloc_array(TERN_MEM_SESSION, n_rows, row_bytes);
    tern_error err = {0};
    api_error e = {0};
    if (!logits) api_fail_memory(&e);
    for (size_t i = 0; i < a->n_prompts && !e.status && !request_is_cancelled(req); i++) {
        generation_prompt *p = &a->prompts[i];
        p->scores = tern_alloc_array(TERN_MEM_SESSION, p->n_ids * n_each, sizeof *p->scores);
        if (!p->scores) {
            api_fail_memory(&e);
        } else {
            p->scores[0] = (tern_token_logprob){p->ids[0], NAN}; // nothing is before it
            if (score_prompt(req, p, logits, n_rows, &err) != TERN_OK)
                api_fail_status(&e, &err, "prompt");
        }
    }
    tern_free(logits);
    if (e.status && !request_is_cancelled(req)) reply_error(req, &e);
}

static void answer(request *req) {
    api_error e = {0};
    generation_begin(req, &e);
}

static void begin(request *req) {
    request_do_away(req, req->server->tasks, false, compute, answer);
}

void prompt_scores_begin(request *req, api_error *e) {
    if (e->status || req->generation->n_prompts == 0)
        generation_begin(req, e);
    else
        request_then(req, begin);
}
