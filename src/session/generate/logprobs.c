// The likelihood of given tokens, without room for all their scores.
#include <math.h>
#include "base/alloc.h"
#include "session/session.h"

#define SCORES_BYTES ((size_t)64 << 20) // held at once

size_t tern_logits_greatest(const float *logits, size_t n, double *log_sum) {
    size_t top = 0;
    double sum = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[top]) top = i;
    for (size_t i = 0; i < n; i++) sum += (double)expf(logits[i] - logits[top]);
    *log_sum = log(sum);
    return top;
}

// ln softmax(logits)[target].
static double log_probability(const float *logits, size_t n, int32_t target, int32_t *best) {
    double log_sum;
    size_t top = tern_logits_greatest(logits, n, &log_sum);
    *best = (int32_t)top;
    return (double)logits[target] - (double)logits[top] - log_sum;
}

// Puts id into the n best in best [n], which has *n_best so far; ties stay by id.
static void insert(const float *logits, int32_t id, tern_token_logprob *best, size_t n,
                   size_t *n_best) {
    if (*n_best == n && (n == 0 || !(logits[id] > logits[best[n - 1].id]))) return;
    size_t at = *n_best < n ? (*n_best)++ : n - 1;
    for (; at > 0 && logits[id] > logits[best[at - 1].id]; at--) best[at] = best[at - 1];
    best[at].id = id;
}

tern_status tern_rank_logprobs(const float *logits, int32_t n_vocab, int32_t id,
                               tern_token_logprob *out, size_t n_each, tern_error *err) {
    tern_clear(err);
    TERN_NEED(logits);
    TERN_NEED_ARRAY(out, n_each);
    if (id < 0 || id >= n_vocab)
        return tern_fail(err, TERN_ERR_ARGUMENT, "token %d of a vocabulary of %d", (int)id,
                         (int)n_vocab);
    if (n_each == 0) return TERN_OK;
    double log_sum;
    size_t top = tern_logits_greatest(logits, (size_t)n_vocab, &log_sum), n_best = 0;
    for (int32_t i = 0; i < n_vocab && n_each > 1; i++)
        insert(logits, i, out + 1, n_each - 1, &n_best);
    out[0].id = id;
    for (size_t i = 1 + n_best; i < n_each; i++) out[i].id = id;
    for (size_t i = 0; i < n_each; i++)
        out[i].logprob = (float)((double)logits[out[i].id] - (double)logits[top] - log_sum);
    return TERN_OK;
}

static tern_status need_scores(tern_session *s, tern_error *err) {
    size_t row_bytes = (size_t)s->model->info.n_vocab * sizeof *s->scores;
    size_t n = SCORES_BYTES / row_bytes, most = (size_t)s->model->n_batch;
    if (s->scores) return TERN_OK;
    n = n < 1 ? 1 : n > most ? most : n;
    s->scores = tern_alloc_array(TERN_MEM_SESSION, n, row_bytes);
    if (!s->scores) return tern_fail_memory(err, n * row_bytes);
    s->n_scores = n;
    return TERN_OK;
}

static tern_status check_targets(const int32_t *targets, size_t n, int32_t n_vocab,
                                 tern_error *err) {
    for (size_t i = 0; i < n; i++)
        if (targets[i] >= n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "target %d at place %zu is not below %d",
                             (int)targets[i], i + 1, (int)n_vocab);
    return TERN_OK;
}

// How many of the ids to append at once: a stretch without targets, or as many as fit in the rows.
static size_t next_stretch(const int32_t *targets, size_t n, size_t n_rows) {
    size_t k = 0;
    while (k < n && targets[k] < 0) k++;
    return k > 0 ? k : n < n_rows ? n : n_rows;
}

static tern_status score(tern_session *s, const int32_t *ids, size_t n_ids, const int32_t *targets,
                         tern_target_score *out, tern_error *err) {
    size_t n_vocab = (size_t)s->model->info.n_vocab;
    // Ids and targets may be the timeline's own, which moves as it grows.
    size_t room = (size_t)s->n_context - s->n_tokens;
    TERN_TRY(tern_lease_make_room(s->lease, s->n_tokens + (n_ids < room ? n_ids : room), &ids,
                                  &targets, err));
    for (size_t done = 0; done < n_ids;) {
        size_t n = next_stretch(targets + done, n_ids - done, s->n_scores);
        float *scores = targets[done] >= 0 ? s->scores : NULL;
        TERN_TRY(tern_session_logits(s, ids + done, n, scores, err));
        for (size_t i = done; i < done + n; i++) {
            out[i] = (tern_target_score){.best = -1};
            if (targets[i] >= 0)
                out[i].logprob = log_probability(scores + (i - done) * n_vocab, n_vocab, targets[i],
                                                 &out[i].best);
            if (!isfinite(out[i].logprob)) return tern_session_fail_scores(s, err);
        }
        done += n;
    }
    return TERN_OK;
}

tern_status tern_session_logprobs(tern_session *s, const int32_t *ids, size_t n_ids,
                                  const int32_t *targets, tern_target_score *scores,
                                  tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED_ARRAY(ids, n_ids);
    TERN_NEED_ARRAY(targets, n_ids);
    TERN_NEED_ARRAY(scores, n_ids);
    TERN_TRY(need_scores(s, err));
    TERN_TRY(check_targets(targets, n_ids, s->model->info.n_vocab, err));
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = score(s, ids, n_ids, targets, scores, err);
    tern_session_leave(&call);
    return status;
}
