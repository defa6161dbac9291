// Perplexity of a text: exp of the mean of -ln p(token | the tokens before it in its window).
#include "base/alloc.h"
#include "tasks/eval/eval_windows.h"

static tern_status score(tern_session *session, tern_eval_windows *w, tern_perplexity *out,
                         tern_error *err) {
    tern_eval_sum nll = {0};
    tern_status status = TERN_OK;
    tern_target_score *scores = tern_alloc_array(TERN_MEM_MISC, (size_t)w->window, sizeof *scores);
    if (!scores) return tern_fail_memory(err, (size_t)w->window * sizeof *scores);
    while (tern_eval_windows_next(w, out)) {
        size_t n = w->end - w->begin - 1;
        tern_session_reset(session);
        TERN_TRY_GOTO(tern_session_logprobs(session, w->fed, n, w->targets, scores, err));
        for (size_t i = 0; i < n; i++)
            if (w->targets[i] >= 0) tern_eval_sum_add(&nll, -scores[i].logprob);
        TERN_TRY_GOTO(tern_eval_windows_progress(w, "perplexity", err));
    }
    tern_eval_perplexity_of(out, &nll);
    if (w->desc->on_progress) w->desc->on_progress(w->desc->user, "perplexity", 1);
fail:
    tern_free(scores);
    return status;
}

tern_status tern_eval_perplexity(tern_session *session, const char *text, size_t n_bytes,
                                 const tern_perplexity_desc *desc, tern_perplexity *out,
                                 tern_error *err) {
    tern_clear(err);
    static const tern_perplexity_desc defaults = {0};
    TERN_NEED(session);
    TERN_NEED(text);
    TERN_NEED(out);
    if (!desc) desc = &defaults;
    TERN_NEED_ENUM(desc->convention, TERN_PERPLEXITY_TRANSFORMERS);
    *out = (tern_perplexity){0};
    tern_eval_windows w;
    tern_session_call call;
    tern_session_enter(&call, session);
    tern_status status = tern_eval_windows_open(&w, session, (tern_str){text, n_bytes},
                                                tern_session_n_context(session), desc, err);
    if (status == TERN_OK) status = score(session, &w, out, err);
    tern_eval_windows_close(&w);
    tern_session_leave(&call);
    return status;
}
