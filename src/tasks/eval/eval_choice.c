// Scoring multiple choice by likelihood, by the rules of lm-evaluation-harness:
//
// - The score of an answer is the sum of ln p over the tokens of " " + continuation, given the
// context. Context and continuation are tokenized together and cut where the context alone would
// end; spaces at the context's end count as the continuation's. An empty context is replaced by the
// BOS token (or by EOS, if there is none).
// - acc: the answer with the greatest score is the right one; among equal ones the first counts.
// acc_norm divides scores by the answer's length in characters, acc_bytes in bytes. If several
// answers are right, acc is their share of the probability of all.
// - Texts longer than the model's context lose tokens at the beginning.
//
// The answers of an item share their context: its keys and values are computed once, since the
// session keeps the common beginning of consecutive calls. The same holds for the examples.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/eval/eval_run.h"

// ---- Tokens ------------------------------------------------------------------------------------

static tern_status push(tern_ids *list, int32_t id, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &list->ids, &list->capacity, list->n, 1) != 0)
        return tern_fail_memory(err, (list->n + 1) * sizeof *list->ids);
    list->ids[list->n++] = id;
    return TERN_OK;
}

// The replacement of an empty context.
static tern_status encode_nothing(tern_eval_job *r, tern_error *err) {
    const tern_tokenizer *t = r->session->model->tokenizer;
    int32_t bos = tern_tokenizer_bos(t), id = bos >= 0 ? bos : tern_tokenizer_eos(t);
    r->context.n = 0;
    if (id >= 0) return push(&r->context, id, err);
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: the tokenizer has neither BOS nor EOS to begin a text with",
                     r->session->model->path);
}

// Leaves the context's tokens in r->context, and those of context and continuation in r->whole; the
// first *n_context of these belong to the context.
static tern_status encode_pair(tern_eval_job *r, int answer, size_t *n_context, tern_error *err) {
    const tern_strbuf *continuation = tern_eval_continuation(&r->item, answer);
    tern_strbuf *text = &r->text;
    TERN_TRY(tern_eval_run_front(r, answer, text, err));
    size_t n = text->len;
    bool is_empty = n == 0;
    while (!text->failed && n > 0 && strchr(" \t\n\v\f\r", text->ptr[n - 1])) n--;
    if (!r->desc->apply_chat_template) tern_strbuf_puts(text, r->between);
    tern_strbuf_append(text, continuation->ptr, continuation->len);
    if (text->failed) return tern_fail_memory(err, text->len);
    const tern_str all = {text->ptr, text->len};
    TERN_TRY(tern_eval_run_encode(r, (tern_str){all.ptr, n}, true, &r->context, err));
    TERN_TRY(tern_eval_run_encode(r, all, !is_empty, &r->whole, err));
    *n_context = is_empty ? 0 : r->context.n;
    return is_empty || r->context.n == 0 ? encode_nothing(r, err) : TERN_OK;
}

static tern_status need_room(tern_eval_job *r, size_t n, tern_error *err) {
    if (n <= r->n_room) return TERN_OK;
    tern_target_score *room = tern_realloc(TERN_MEM_MISC, r->scores, n * sizeof *room);
    if (!room) return tern_fail_memory(err, n * sizeof *room);
    r->scores = room;
    r->n_room = n;
    return TERN_OK;
}

// ---- Scores ------------------------------------------------------------------------------------

// The context is r->context, the continuation the last n ids of r->whole.
static tern_status score_continuation(tern_eval_job *r, int answer, size_t n,
                                      tern_eval_scores *scores, tern_error *err) {
    size_t n_context = (size_t)tern_session_n_context(r->session);
    if (n == 0 || n > n_context)
        return tern_fail(err, n ? TERN_ERR_CONTEXT_FULL : TERN_ERR_FORMAT,
                         "answer %d has %zu tokens: expected 1 to %zu, the context's size",
                         answer + 1, n, n_context);
    // The input is the context and all of the continuation except its last token.
    size_t n_before = r->context.n, most = n_context - (n - 1);
    scores->cut |= n_before > most;
    for (size_t i = 0; i < n; i++)
        TERN_TRY(push(&r->context, r->whole.ids[r->whole.n - n + i], err));
    const int32_t *ids = r->context.ids + n_before - 1; // each followed by the next one
    if (n_before > most) n_before = most;
    TERN_TRY(need_room(r, n, err));
    TERN_TRY(tern_session_sync(r->session, ids - (n_before - 1), n_before - 1, NULL, err));
    TERN_TRY(tern_session_logprobs(r->session, ids, n, ids + 1, r->scores, err));
    scores->logprobs[answer] = 0;
    scores->greedy[answer] = true;
    for (size_t i = 0; i < n; i++) {
        scores->logprobs[answer] += r->scores[i].logprob;
        scores->greedy[answer] &= r->scores[i].best == ids[i + 1];
    }
    if (!isnan(scores->logprobs[answer])) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "answer %d: the model produced NaN or infinity",
                     answer + 1);
}

tern_status tern_eval_choice_score(tern_eval_job *r, tern_eval_scores *scores, tern_error *err) {
    *scores = (tern_eval_scores){.n = r->item.n};
    for (int a = 0; a < r->item.n; a++) {
        size_t n_context;
        TERN_TRY(encode_pair(r, a, &n_context, err));
        size_t n = r->whole.n > n_context ? r->whole.n - n_context : 0;
        TERN_TRY(score_continuation(r, a, n, scores, err));
    }
    return TERN_OK;
}

// ---- Metrics -----------------------------------------------------------------------------------

static size_t n_characters(const tern_strbuf *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++) n += (s->ptr[i] & 0xC0) != 0x80;
    return n;
}

// What scores are divided by: the lengths of the item's choices; with several contexts these are
// the contexts.
static const tern_strbuf *choice_text(const tern_eval_item *item, int answer) {
    return item->n_contexts > 1 ? tern_eval_context(item, answer)
                                : tern_eval_continuation(item, answer);
}

enum { BY_NOTHING, BY_CHARACTERS, BY_BYTES };

static int likeliest(const tern_eval_item *item, const tern_eval_scores *s, int by) {
    int best = 0;
    double best_score = -INFINITY;
    for (int a = 0; a < s->n; a++) {
        const tern_strbuf *text = choice_text(item, a);
        double score = s->logprobs[a];
        if (by == BY_CHARACTERS) score /= (double)n_characters(text);
        if (by == BY_BYTES) score /= (double)text->len;
        if (score > best_score) {
            best = a;
            best_score = score;
        }
    }
    return best;
}

// The right answers' share of the probability of all answers.
static double right_mass(const tern_eval_item *item, const tern_eval_scores *s) {
    double most = -INFINITY, all = 0, right = 0;
    for (int a = 0; a < s->n; a++) most = fmax(most, s->logprobs[a]);
    for (int a = 0; a < s->n; a++) {
        double p = exp(s->logprobs[a] - most);
        all += p;
        if (item->right >> a & 1) right += p;
    }
    return right / all;
}

// The item's own metrics, from its scores.
void tern_eval_choice_judge(const tern_eval_job *r, tern_eval_record *record) {
    const tern_eval_item *item = &r->item;
    const tern_eval_scores *s = &record->scores;
    const unsigned metrics = r->task->metrics;
    record->n_metrics = 0;
    tern_eval_put_metric(record, "acc",
                         metrics & TERN_EVAL_MASS ? right_mass(item, s)
                         : metrics & TERN_EVAL_PERPLEXITY
                             ? s->greedy[0]
                             : likeliest(item, s, BY_NOTHING) == item->gold);
    if (metrics & TERN_EVAL_NORM) {
        tern_eval_put_metric(record, "acc_norm", likeliest(item, s, BY_CHARACTERS) == item->gold);
        tern_eval_put_metric(record, "acc_bytes", likeliest(item, s, BY_BYTES) == item->gold);
    }
    if (metrics & TERN_EVAL_PERPLEXITY) tern_eval_put_metric(record, "nll", -s->logprobs[0]);
}
