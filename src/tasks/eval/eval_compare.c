// How far a model is from another one, over the windows of a text.
//
// Both read the same windows, and of each token that counts both have a choice, a distribution over
// the vocabulary. The divergence of Kullback and Leibler says in one number how unlike two choices
// are, whatever the text's own token is: 0 for equal ones, and what a text costs more, in nats for
// a token, if it is written by the reference and guessed by the model. It sees a change in a few
// hundred tokens for which the perplexity needs a book. Definitions and percentiles are those of
// llama.cpp's tools/perplexity (--kl-divergence); there the reference's logits are rounded to 16
// bits in a file, here both models are at hand.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "tasks/eval/eval_windows.h"
#include "tasks/tasks.h"

#define LOGITS_BYTES ((size_t)64 << 20) // of both models, held at once

typedef struct side {
    tern_session *session;
    float *logits; // [n_rows, n_vocab]
    tern_eval_sum nll;
} side;

typedef struct comparing {
    side model, reference;
    size_t n_rows, n_vocab;
    tern_eval_windows w;
    double *kl, *p_change;  // of each token that counts [n]
    tern_eval_token *token; // the next one's, or NULL
    size_t n, n_same_top;
    tern_eval_sum log_ratio, product; // product: of both nll
} comparing;

// ---- One token ---------------------------------------------------------------------------------

// ln p of the logit i is logits[i] - shift.
static size_t read_row(const float *logits, size_t n, double *shift) {
    double log_sum;
    size_t top = tern_logits_greatest(logits, n, &log_sum);
    *shift = (double)logits[top] + log_sum;
    return top;
}

static tern_status compare_rows(comparing *c, size_t row, int32_t target, tern_error *err) {
    const float *p = c->reference.logits + row * c->n_vocab,
                *q = c->model.logits + row * c->n_vocab;
    double p_shift, q_shift, kl = 0;
    size_t p_top = read_row(p, c->n_vocab, &p_shift), q_top = read_row(q, c->n_vocab, &q_shift);
    for (size_t i = 0; i < c->n_vocab; i++) {
        double p_log = (double)p[i] - p_shift;
        if (p_log > -50) kl += exp(p_log) * (p_log - ((double)q[i] - q_shift));
    }
    double p_log = (double)p[target] - p_shift, q_log = (double)q[target] - q_shift;
    if (!isfinite(p_log)) return tern_session_fail_scores(c->reference.session, err);
    if (!isfinite(q_log) || !isfinite(kl)) return tern_session_fail_scores(c->model.session, err);
    c->kl[c->n] = kl > 0 ? kl : 0; // rounding
    c->p_change[c->n++] = exp(q_log) - exp(p_log);
    c->n_same_top += p_top == q_top;
    if (c->token)
        *c->token++ = (tern_eval_token){
            (float)c->kl[c->n - 1], (float)exp((double)p[p_top] - p_shift), true, p_top == q_top};
    tern_eval_sum_add(&c->model.nll, -q_log);
    tern_eval_sum_add(&c->reference.nll, -p_log);
    tern_eval_sum_add(&c->log_ratio, p_log - q_log);
    tern_eval_sum_add(&c->product, p_log * q_log);
    return TERN_OK;
}

// ---- The text ----------------------------------------------------------------------------------

static tern_status read_ids(side *s, const int32_t *ids, size_t n, bool scored, tern_error *err) {
    return tern_session_logits(s->session, ids, n, scored ? s->logits : NULL, err);
}

static tern_status compare_window(comparing *c, tern_error *err) {
    const tern_eval_windows *w = &c->w;
    size_t n = w->end - w->begin - 1;
    tern_session_reset(c->model.session);
    tern_session_reset(c->reference.session);
    for (size_t done = 0, k; done < n; done += k) {
        bool scored = w->targets[done] >= 0;
        for (k = 0; done + k < n && (w->targets[done + k] >= 0) == scored; k++)
            if (scored && k == c->n_rows) break;
        TERN_TRY(read_ids(&c->reference, w->fed + done, k, scored, err));
        TERN_TRY(read_ids(&c->model, w->fed + done, k, scored, err));
        for (size_t i = 0; scored && i < k; i++)
            TERN_TRY(compare_rows(c, i, w->targets[done + i], err));
    }
    return TERN_OK;
}

static tern_status check_sizes(const comparing *c, tern_error *err) {
    const tern_model *a = c->model.session->model, *b = c->reference.session->model;
    if (a->info.n_vocab == b->info.n_vocab) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "%s has %d tokens and the reference %s %d: only models of one vocabulary "
                     "can be compared",
                     a->path, (int)a->info.n_vocab, b->path, (int)b->info.n_vocab);
}

static tern_status check_vocabularies(const comparing *c, tern_str text, tern_error *err) {
    const tern_model *a = c->model.session->model, *b = c->reference.session->model;
    tern_ids other = {0};
    TERN_TRY(check_sizes(c, err));
    tern_status status = tern_eval_encode(c->reference.session, text, c->w.desc, &other, err);
    const tern_ids *own = &c->w.ids;
    size_t at = 0, n = own->n < other.n ? own->n : other.n;
    while (status == TERN_OK && at < n && own->ids[at] == other.ids[at]) at++;
    bool equal = status == TERN_OK && own->n == other.n && at == n &&
                 c->w.bos == tern_eval_bos(c->reference.session, c->w.desc);
    tern_free(other.ids);
    return status != TERN_OK || equal
               ? status
               : tern_fail(err, TERN_ERR_ARGUMENT,
                           "%s and the reference %s make other tokens of the text, from token %zu "
                           "on: only models of one vocabulary can be compared",
                           a->path, b->path, at + 1);
}

// n: tokens that may count.
static tern_status allocate(comparing *c, size_t n, tern_error *err) {
    const tern_model *a = c->model.session->model, *b = c->reference.session->model;
    size_t most = (size_t)(a->n_batch < b->n_batch ? a->n_batch : b->n_batch);
    size_t rows = LOGITS_BYTES / 2 / (c->n_vocab * sizeof(float));
    c->n_rows = rows < 1 ? 1 : rows > most ? most : rows;
    const size_t bytes = c->n_rows * c->n_vocab * sizeof(float);
    c->model.logits = tern_alloc(TERN_MEM_MISC, bytes);
    c->reference.logits = tern_alloc(TERN_MEM_MISC, bytes);
    if (!c->model.logits || !c->reference.logits) return tern_fail_memory(err, bytes);
    // With a stride of less than a window a token counts once all the same.
    c->kl = tern_alloc_array(TERN_MEM_MISC, n, sizeof *c->kl);
    c->p_change = tern_alloc_array(TERN_MEM_MISC, n, sizeof *c->p_change);
    return c->kl && c->p_change ? TERN_OK : tern_fail_memory(err, n * sizeof *c->kl);
}

// ---- What comes out ----------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, size_t n, double share) {
    double at = share * (double)(n - 1);
    size_t below = (size_t)at;
    double part = at - (double)below;
    return below + 1 < n ? (1 - part) * sorted[below] + part * sorted[below + 1] : sorted[n - 1];
}

static tern_distribution distribution(double *x, size_t n) { // sorts them
    tern_eval_sum sum = {0};
    for (size_t i = 0; i < n; i++) tern_eval_sum_add(&sum, x[i]);
    qsort(x, n, sizeof *x, by_value);
    return (tern_distribution){.mean = tern_eval_sum_mean(&sum),
                               .error = tern_eval_sum_error(&sum),
                               .rms = sqrt(sum.squares / sum.n),
                               .min = x[0],
                               .p1 = percentile(x, n, 0.01),
                               .p5 = percentile(x, n, 0.05),
                               .p10 = percentile(x, n, 0.1),
                               .median = percentile(x, n, 0.5),
                               .p90 = percentile(x, n, 0.9),
                               .p95 = percentile(x, n, 0.95),
                               .p99 = percentile(x, n, 0.99),
                               .p999 = percentile(x, n, 0.999),
                               .max = x[n - 1]};
}

static double correlation(const comparing *c) {
    const tern_eval_sum *x = &c->model.nll, *y = &c->reference.nll;
    double mx = tern_eval_sum_mean(x), my = tern_eval_sum_mean(y), n = x->n;
    double vx = x->squares / n - mx * mx, vy = y->squares / n - my * my;
    double together = tern_eval_sum_mean(&c->product) - mx * my;
    return vx > 0 && vy > 0 ? together / sqrt(vx * vy) : 1;
}

static void finish(comparing *c, tern_eval_comparison *out) {
    double n = (double)c->n, same = (double)c->n_same_top / n;
    out->reference = out->model; // the same windows and bytes
    tern_eval_perplexity_of(&out->model, &c->model.nll);
    tern_eval_perplexity_of(&out->reference, &c->reference.nll);
    out->log_ratio = tern_eval_sum_mean(&c->log_ratio);
    out->log_ratio_error = tern_eval_sum_error(&c->log_ratio);
    out->correlation = correlation(c);
    out->kl = distribution(c->kl, c->n);
    out->p_change = distribution(c->p_change, c->n);
    out->same_top = same;
    out->same_top_error = n > 1 ? sqrt(same * (1 - same) / (n - 1)) : 0;
}

static tern_status compare(comparing *c, tern_str text, const tern_perplexity_desc *desc,
                           tern_eval_comparison *out, tern_error *err) {
    size_t a = tern_session_n_context(c->model.session);
    size_t b = tern_session_n_context(c->reference.session);
    TERN_TRY(tern_eval_windows_open(&c->w, c->model.session, text, a < b ? a : b, desc, err));
    c->n_vocab = (size_t)c->model.session->model->info.n_vocab;
    TERN_TRY(check_vocabularies(c, text, err));
    TERN_TRY(allocate(c, c->w.ids.n, err));
    while (tern_eval_windows_next(&c->w, &out->model)) {
        TERN_TRY(compare_window(c, err));
        TERN_TRY(tern_eval_windows_progress(&c->w, "comparing", err));
    }
    finish(c, out);
    if (desc->on_progress) desc->on_progress(desc->user, "comparing", 1);
    return TERN_OK;
}

// ---- Documents ---------------------------------------------------------------------------------

// Windows of a document overlap by a token: the last target of one is the first that the next
// reads, or gives way to BOS.
static tern_status compare_document(comparing *c, const tern_eval_documents *d, size_t begin,
                                    size_t end, tern_error *err) {
    tern_eval_windows *w = &c->w;
    for (size_t at = begin; at + 1 < end; at = w->end - 1) {
        w->begin = at;
        w->end = end - at < (size_t)w->window ? end : at + (size_t)w->window;
        const size_t n = w->end - at - 1;
        memcpy(w->fed, d->ids + at, n * sizeof *w->fed);
        memcpy(w->targets, d->ids + at + 1, n * sizeof *w->targets);
        if (at > begin && w->bos >= 0) w->fed[0] = w->bos;
        c->token = d->tokens ? d->tokens + at + 1 : NULL;
        TERN_TRY(compare_window(c, err));
        w->n_done++;
    }
    return TERN_OK;
}

static tern_status compare_documents(comparing *c, const tern_eval_documents *d,
                                     tern_eval_comparison *out, tern_error *err) {
    static const tern_perplexity_desc usual = {0};
    const size_t n = d->n ? d->ends[d->n - 1] : 0;
    tern_eval_windows *w = &c->w;
    *w = (tern_eval_windows){.window = d->window, .bos = tern_eval_bos(c->model.session, &usual)};
    c->n_vocab = (size_t)c->model.session->model->info.n_vocab;
    TERN_TRY(check_sizes(c, err));
    TERN_TRY(allocate(c, n + 1, err));
    w->fed = tern_alloc_array(TERN_MEM_MISC, (size_t)w->window, sizeof *w->fed);
    w->targets = tern_alloc_array(TERN_MEM_MISC, (size_t)w->window, sizeof *w->targets);
    if (!w->fed || !w->targets) return tern_fail_memory(err, (size_t)w->window * sizeof *w->fed);
    for (size_t i = 0, begin = 0; i < d->n; begin = d->ends[i++]) {
        TERN_TRY(compare_document(c, d, begin, d->ends[i], err));
        if (!tern_progress(d->on_progress, d->user, "comparing", (double)d->ends[i] / (double)n))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    if (c->n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "no document has two tokens");
    out->model = (tern_perplexity){.window = w->window,
                                   .stride = w->window,
                                   .n_windows = w->n_done,
                                   .n_tokens = n,
                                   .n_scored = c->n};
    finish(c, out);
    return TERN_OK;
}

// ---- Both --------------------------------------------------------------------------------------

static void free_comparing(comparing *c) {
    tern_eval_windows_close(&c->w);
    tern_free(c->model.logits);
    tern_free(c->reference.logits);
    tern_free(c->kl);
    tern_free(c->p_change);
}

tern_status tern_eval_compare_documents(tern_session *session, tern_session *reference,
                                        const tern_eval_documents *documents,
                                        tern_eval_comparison *out, tern_error *err) {
    *out = (tern_eval_comparison){0};
    comparing c = {.model.session = session, .reference.session = reference};
    tern_session_call calls[2];
    tern_session_enter(&calls[0], session);
    tern_session_enter(&calls[1], reference);
    tern_status status = compare_documents(&c, documents, out, err);
    tern_session_leave(&calls[1]);
    tern_session_leave(&calls[0]);
    free_comparing(&c);
    return status;
}

tern_status tern_eval_compare(tern_session *session, tern_session *reference, tern_bytes text,
                              const tern_perplexity_desc *desc, tern_eval_comparison *out,
                              tern_error *err) {
    tern_clear(err);
    static const tern_perplexity_desc defaults = {0};
    TERN_NEED(session);
    TERN_NEED(reference);
    TERN_NEED_ARRAY(text.bytes, text.n_bytes);
    TERN_NEED(out);
    if (!desc) desc = &defaults;
    TERN_NEED_ENUM(desc->convention, TERN_PERPLEXITY_TRANSFORMERS);
    if (session == reference)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a session cannot be compared with itself");
    *out = (tern_eval_comparison){0};
    comparing c = {.model.session = session, .reference.session = reference};
    tern_session_call calls[2];
    tern_session_enter(&calls[0], session);
    tern_session_enter(&calls[1], reference);
    tern_status status = compare(&c, (tern_str){text.bytes, text.n_bytes}, desc, out, err);
    tern_session_leave(&calls[1]);
    tern_session_leave(&calls[0]);
    free_comparing(&c);
    return status;
}
