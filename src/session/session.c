// A session: one timeline of tokens over a model, and generation that continues it.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os_time.h"
#include "base/utf8.h"
#include "session/session.h"

#define DEFAULT_CONTEXT_MAX 8192

// ---- Opening -----------------------------------------------------------------------------------

// The timeline, and room for the scores of a step.
static tern_status open_rows(tern_session *s, tern_error *err) {
    size_t n_vocab = (size_t)s->model->info.n_vocab, n_top;
    s->n_rows = 1 + (s->speculator ? (size_t)s->speculator->params.max_length : 0);
    n_top = s->n_rows * TERN_TOP_K_MAX;
    s->tokens = tern_alloc_array(TERN_MEM_SESSION, (size_t)s->n_context, sizeof *s->tokens);
    s->top_ids = tern_alloc_array(TERN_MEM_SESSION, n_top, sizeof *s->top_ids);
    s->top_logits = tern_alloc_array(TERN_MEM_SESSION, n_top, sizeof *s->top_logits);
    s->logits = tern_alloc_array(TERN_MEM_SESSION, s->n_rows * n_vocab, sizeof *s->logits);
    if (s->tokens && s->top_ids && s->top_logits && s->logits) return TERN_OK;
    return tern_fail_memory(err, s->n_rows * n_vocab * sizeof *s->logits);
}

tern_status tern_session_open(tern_session **out, tern_model *model, const tern_session_desc *desc,
                              tern_error *err) {
    static const tern_session_desc defaults = {0};
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(model);
    if (model->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", model->path);
    if (model->config.pooling != TERN_POOLING_NONE)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the model is an encoder: it has no scores of next tokens (see tern "
                         "compute)",
                         model->path);
    TERN_TRY(tern_model_refuse_damaged(model, err));
    if (!desc) desc = &defaults;
    int32_t trained = model->info.n_context_train;
    if (desc->n_context < 0 || desc->n_context > 1 << 24)
        return tern_fail(err, TERN_ERR_ARGUMENT, "context of %d tokens: expected 1 to %d",
                         desc->n_context, 1 << 24);
    tern_session *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->model = model;
    s->desc = *desc;
    s->n_context = desc->n_context                 ? desc->n_context
                   : trained < DEFAULT_CONTEXT_MAX ? trained
                                                   : DEFAULT_CONTEXT_MAX;
    if (s->desc.n_keep <= 0) s->desc.n_keep = 4;
    if (s->desc.n_keep > s->n_context / 2) s->desc.n_keep = s->n_context / 2;
    tern_kv_type *kv_type = &s->desc.kv_type;
    tern_status status =
        tern_kv_choose(&model->graphs[0].fused, s->n_context, *kv_type, kv_type, err);
    if (status == TERN_OK)
        status = tern_lease_open(&s->lease, model, s->n_context, *kv_type, err);
    if (status == TERN_OK && desc->profile) status = tern_model_profile_start(s->lease, err);
    if (status == TERN_OK && tern_speculation_is_on(&s->desc.speculation))
        status = tern_speculator_open(&s->speculator, s, err);
    if (status == TERN_OK) status = open_rows(s, err);
    if (status != TERN_OK) {
        tern_session_close(s);
        return status;
    }
    *out = s;
    return TERN_OK;
}

void tern_session_close(tern_session *s) {
    if (!s) return;
    tern_lease_close(s->lease);
    tern_speculator_close(s->speculator);
    tern_sampler_free(&s->sampler);
    tern_strbuf_free(&s->text);
    tern_strbuf_free(&s->held);
    tern_free(s->generated);
    tern_free(s->token_logprobs);
    tern_free(s->tokens);
    tern_free(s->top_ids);
    tern_free(s->top_logits);
    tern_free(s->logits);
    tern_free(s->scores);
    tern_free(s);
}

void tern_session_reset(tern_session *s) {
    if (!s) return;
    s->n_tokens = 0;
    tern_speculator_cut(s->speculator, 0);
}
int32_t tern_session_n_context(const tern_session *s) {
    return s ? s->n_context : 0;
}
tern_kv_type tern_session_kv_type(const tern_session *s) {
    return s ? s->desc.kv_type : TERN_KV_AUTO;
}
static int by_seconds(const void *a, const void *b) {
    double x = ((const tern_profile_row *)a)->seconds, y = ((const tern_profile_row *)b)->seconds;
    return (x < y) - (x > y);
}

tern_status tern_session_profile(tern_session *s, const tern_profile_row **rows, size_t *n_rows,
                                 tern_error *err) {
    TERN_NEED(s);
    TERN_NEED(rows);
    TERN_NEED(n_rows);
    const tern_profile *p = tern_model_profile(s->lease);
    *rows = NULL;
    *n_rows = 0;
    if (!p) return tern_fail(err, TERN_ERR_ARGUMENT, "the session was opened without a profile");
    s->profile = *p;
    qsort(s->profile.rows, p->n, sizeof *p->rows, by_seconds);
    *rows = s->profile.rows;
    *n_rows = p->n;
    return TERN_OK;
}

const char *tern_session_notice(tern_session *s) {
    return s ? tern_model_notice(s->lease) : NULL;
}
size_t tern_session_n_tokens(const tern_session *s) {
    return s ? s->n_tokens : 0;
}

const int32_t *tern_session_generated(const tern_session *s, size_t *n_ids) {
    if (n_ids) *n_ids = s ? s->n_generated : 0;
    return s ? s->generated : NULL;
}

const tern_token_logprob *tern_session_token_logprobs(const tern_session *s, size_t *n_tokens,
                                                      size_t *n_each) {
    bool any = s && s->n_each_logprobs > 0;
    if (n_tokens) *n_tokens = any ? s->n_generated : 0;
    if (n_each) *n_each = any ? s->n_each_logprobs : 0;
    return any ? s->token_logprobs : NULL;
}

// ---- The timeline ------------------------------------------------------------------------------

// What to compute for the last tokens that are appended.
typedef struct wanted {
    size_t n_outputs; // of the last tokens
    float *logits;    // [n_outputs, n_vocab], or NULL
    int32_t top_k;    // into the session's arrays; n_outputs is at most n_rows then
    bool few_ahead;   // as in tern_batch
    tern_drafting *drafting;
    size_t snapshot_at; // as in tern_work
    bool passing;
} wanted;

static tern_status check_ids(const tern_session *s, const int32_t *ids, size_t n, tern_error *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->model->info.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d at place %zu is not in 0..%d",
                             (int)ids[i], i + 1, (int)s->model->info.n_vocab - 1);
    return TERN_OK;
}

// Appends tokens in batches. After a failure the timeline holds the batches that were computed.
static tern_status append(tern_session *s, const int32_t *ids, size_t n, const wanted *w,
                          tern_error *err) {
    size_t n_vocab = (size_t)s->model->info.n_vocab;
    if (n > (size_t)s->n_context - s->n_tokens)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL,
                         "%zu tokens do not fit into a context of %d, of which %zu are used", n,
                         (int)s->n_context, s->n_tokens);
    TERN_TRY(check_ids(s, ids, n, err));
    for (size_t done = 0; done < n;) {
        size_t left = n - done, batch_max = (size_t)s->model->n_batch;
        size_t take = left < batch_max ? left : batch_max;
        size_t n_later = left - take; // tokens of later batches
        size_t outputs = w->n_outputs > n_later ? w->n_outputs - n_later : 0;
        if (outputs > take) outputs = take;
        size_t first_output = n - w->n_outputs; // index in ids of the first wanted one
        size_t batch_first_output = done + take - outputs, row = batch_first_output - first_output;
        const tern_work work = {.lease = s->lease,
                                .ids = ids + done,
                                .n_ids = (int32_t)take,
                                .first_pos = (int32_t)s->n_tokens,
                                .n_outputs = (int32_t)outputs,
                                .snapshot_at = (int32_t)w->snapshot_at,
                                .passing = w->passing};
        const tern_wanted batch = {
            .outputs = {"logits"},
            .data = {w->logits && outputs ? w->logits + row * n_vocab : NULL},
            .n_bindings = 1,
            .top_k = w->top_k,
            .top_ids = w->top_k && outputs ? s->top_ids + row * (size_t)w->top_k : NULL,
            .top_logits = w->top_k && outputs ? s->top_logits + row * (size_t)w->top_k : NULL,
            .few_ahead = w->few_ahead,
            .drafting = w->drafting,
        };
        TERN_TRY(tern_model_compute(s->model, &work, 1, &batch, err));
        memcpy(s->tokens + s->n_tokens, ids + done, take * sizeof *ids);
        s->n_tokens += take;
        done += take;
    }
    return TERN_OK;
}

// Keeps the common front of the timeline and ids; the last n_again tokens of ids are recomputed.
static size_t keep_common(tern_session *s, const int32_t *ids, size_t n_ids, size_t n_again) {
    size_t most = n_ids > n_again ? n_ids - n_again : 0, common = 0;
    while (common < s->n_tokens && common < most && s->tokens[common] == ids[common]) common++;
    s->n_tokens = common; // later keys and values are overwritten before use
    tern_speculator_cut(s->speculator, common);
    return common;
}

tern_status tern_session_sync(tern_session *s, const int32_t *ids, size_t n_ids, size_t *n_reused,
                              tern_error *err) {
    TERN_NEED(s);
    TERN_NEED_ARRAY(ids, n_ids);
    size_t common = keep_common(s, ids, n_ids, 0);
    if (n_reused) *n_reused = common;
    return append(s, ids + common, n_ids - common, &(wanted){0}, err);
}

tern_status tern_session_logits(tern_session *s, const int32_t *ids, size_t n_ids, float *logits,
                                tern_error *err) {
    TERN_NEED(s);
    TERN_NEED_ARRAY(ids, n_ids);
    return append(s, ids, n_ids, &(wanted){.n_outputs = logits ? n_ids : 0, .logits = logits}, err);
}

tern_status tern_session_fail_scores(const tern_session *s, tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT, "%s: the scores of the next token are not numbers: "
                     "weights are damaged (NaN or infinite)", s->model->path);
}

tern_status tern_session_greedy(tern_session *s, const int32_t *ids, size_t n_ids, int32_t *next,
                                int32_t n_next, tern_error *err) {
    size_t n_known = keep_common(s, ids, n_ids, 1);
    wanted best = {.n_outputs = 1, .top_k = 1, .few_ahead = true};
    TERN_TRY(append(s, ids + n_known, n_ids - n_known, &best, err));
    for (int32_t i = 0; i < n_next; i++) {
        next[i] = s->top_ids[0];
        if (!isfinite(s->top_logits[0])) return tern_session_fail_scores(s, err);
        if (i + 1 < n_next) TERN_TRY(append(s, &next[i], 1, &best, err));
    }
    return TERN_OK;
}

// Drops the oldest half after the first n_keep tokens. The rest gets new positions, so its keys and
// values are computed again: slower than rotating the cached keys, but with the same numbers as if
// the text had begun there.
static tern_status shift(tern_session *s, const wanted *w, tern_error *err) {
    size_t keep = (size_t)s->desc.n_keep, drop = (s->n_tokens - keep) / 2;
    if (drop == 0) drop = 1;
    size_t n = s->n_tokens - drop;
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, n + 1, sizeof *ids);
    if (!ids) return tern_fail_memory(err, n * sizeof *ids);
    memcpy(ids, s->tokens, keep * sizeof *ids);
    memcpy(ids + keep, s->tokens + keep + drop, (n - keep) * sizeof *ids);
    s->n_tokens = keep;
    tern_speculator_cut(s->speculator, keep);
    tern_status status = append(s, ids + keep, n - keep, w, err);
    tern_free(ids);
    return status;
}

// ---- Generation --------------------------------------------------------------------------------

typedef struct generation {
    tern_session *s;
    const tern_generate_params *params;
    const tern_refit *refit; // or NULL
    tern_text_fn on_text;
    void *user;
    tern_decoder decoder;
    tern_stop_reason reason;
    bool stopped;
    size_t n_steps;
} generation;

static void emit(generation *g, const char *text, size_t n) {
    if (n == 0 || !g->on_text || g->on_text(g->user, text, n)) return;
    g->stopped = true;
    g->reason = TERN_STOP_CALLER;
}

// Position of the first stop string in text, or SIZE_MAX.
static size_t find_stop(const generation *g, const char *text, size_t n) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < g->params->n_stops; i++) {
        const char *stop = g->params->stops[i];
        size_t length = strlen(stop);
        const char *hit = length ? memmem(text, n, stop, length) : NULL;
        if (hit && (size_t)(hit - text) < best) best = (size_t)(hit - text);
    }
    return best;
}

// Length of the longest tail of text that is the beginning of a stop string.
static size_t held_back(const generation *g, const char *text, size_t n) {
    size_t most = 0;
    for (size_t i = 0; i < g->params->n_stops; i++) {
        size_t length = strlen(g->params->stops[i]);
        for (size_t k = length ? length - 1 : 0; k > most; k--)
            if (k <= n && memcmp(text + n - k, g->params->stops[i], k) == 0) {
                most = k;
                break;
            }
    }
    return most;
}

// Passes on the text in s->held that is certain.
static void flush(generation *g, bool at_end) {
    tern_strbuf *held = &g->s->held;
    size_t stop = find_stop(g, tern_strbuf_text(held), held->len);
    if (stop != SIZE_MAX) {
        emit(g, held->ptr, stop);
        if (!g->stopped) {
            g->stopped = true;
            g->reason = TERN_STOP_STRING;
        }
        tern_strbuf_clear(held);
        return;
    }
    size_t keep = at_end ? 0 : held_back(g, tern_strbuf_text(held), held->len);
    size_t n = held->len - keep;
    emit(g, held->ptr, n);
    if (n) memmove(held->ptr, held->ptr + n, keep);
    held->len = keep;
}

static void add_text(generation *g, int32_t id) {
    tern_session *s = g->s;
    if (!s->model->tokenizer) return;
    tern_strbuf_clear(&s->text);
    tern_tokenizer_decode(s->model->tokenizer, &g->decoder, id, &s->text);
    tern_strbuf_append(&s->held, tern_strbuf_text(&s->text), s->text.len);
    flush(g, false);
}

static void end_text(generation *g) {
    tern_session *s = g->s;
    if (g->reason == TERN_STOP_CALLER || g->reason == TERN_STOP_STRING) return;
    tern_strbuf_clear(&s->text);
    if (s->model->tokenizer) tern_tokenizer_decode_end(&g->decoder, &s->text);
    tern_strbuf_append(&s->held, tern_strbuf_text(&s->text), s->text.len);
    tern_stop_reason reason = g->reason;
    flush(g, true);
    if (g->reason != TERN_STOP_CALLER && g->reason != TERN_STOP_STRING) g->reason = reason;
}

// What the sampler needs of the scores after each of the last n tokens.
static wanted wanted_scores(tern_session *s, size_t n) {
    int32_t k = tern_sampler_need(&s->sampler);
    bool need_all = k == 0 || s->n_each_logprobs > 0 ||
                    (s->speculator && s->speculator->params.threshold > 0);
    return need_all ? (wanted){.n_outputs = n, .logits = s->logits}
                    : (wanted){.n_outputs = n, .top_k = k};
}

// Records how likely the next token of s->generated was.
static tern_status keep_logprobs(tern_session *s, size_t row, int32_t id, tern_error *err) {
    size_t n = s->n_each_logprobs, n_vocab = (size_t)s->model->info.n_vocab;
    size_t n_used = s->n_generated * n;
    if (n == 0) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &s->token_logprobs, &s->token_logprobs_capacity,
                           n_used, n) != 0)
        return tern_fail_memory(err, (n_used + n) * sizeof *s->token_logprobs);
    tern_rank_logprobs(s->logits + row * n_vocab, n_vocab, id, s->token_logprobs + n_used, n);
    return TERN_OK;
}

// The next token, from the row-th row of scores.
static tern_status choose(tern_session *s, size_t row, int32_t *id, tern_error *err) {
    wanted w = wanted_scores(s, 1);
    size_t n_vocab = (size_t)s->model->info.n_vocab, n = w.top_k ? (size_t)w.top_k : n_vocab;
    const float *logits = w.top_k ? s->top_logits + row * n : s->logits + row * n;
    const int32_t *ids = s->top_ids + row * n;
    float greatest = -INFINITY;
    bool is_number = true;
    for (size_t i = 0; i < n; i++) {
        s->sampler.candidates[i] = (tern_candidate){logits[i], w.top_k ? ids[i] : (int32_t)i};
        greatest = logits[i] > greatest ? logits[i] : greatest;
        is_number &= !isnan(logits[i]);
    }
    if (!is_number || !isfinite(greatest)) return tern_session_fail_scores(s, err);
    *id = tern_sampler_choose(&s->sampler, n, s->tokens, s->n_tokens);
    return TERN_OK;
}

// Whether the model is as sure of a greedy choice as the threshold asks, if one is set.
static bool is_sure(const tern_session *s, size_t row, int32_t id) {
    float threshold = s->speculator->params.threshold;
    if (threshold == 0 || s->sampler.params.temperature != 0) return true;
    size_t n_vocab = (size_t)s->model->info.n_vocab;
    const float *logits = s->logits + row * n_vocab;
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)(logits[i] - logits[id]));
    return sum * (double)threshold <= 1;
}

// Appends a token and the draft that follows it, if any: the token's scores are in the first row,
// those of the draft in the rows after it. The timeline grows by the one token.
static tern_status step(tern_session *s, int32_t id, size_t n_left, tern_error *err) {
    tern_speculator *sp = s->speculator;
    int32_t run[TERN_DRAFT_MAX + 1] = {id};
    size_t n_draft = 0, room = (size_t)s->n_context - s->n_tokens;
    if (sp) {
        size_t n_max = (n_left < room ? n_left : room) - 1;
        s->tokens[s->n_tokens] = id;
        TERN_TRY(tern_speculator_draft(sp, s->tokens, s->n_tokens + 1,
                                       n_max < TERN_DRAFT_MAX ? (int32_t)n_max : TERN_DRAFT_MAX,
                                       err));
        n_draft = (size_t)sp->draft.n;
        memcpy(run + 1, sp->draft.tokens, n_draft * sizeof *run);
    }
    wanted w = wanted_scores(s, 1 + n_draft);
    w.few_ahead = sp != NULL;
    w.snapshot_at = n_draft ? s->n_tokens + 1 : 0; // where drafts that are refused lead back to
    w.passing = true;
    double start = tern_seconds();
    TERN_TRY(append(s, run, 1 + n_draft, &w, err));
    s->n_tokens -= n_draft;
    s->n_ahead = n_draft;
    s->n_runs = 1;
    if (!sp) return TERN_OK;
    s->ahead = sp->draft.tokens;
    tern_speculator_ran(sp, 1 + (int32_t)n_draft, tern_seconds() - start);
    return TERN_OK;
}

// The same with the device's own drafts, n_each tokens a run: the tokens that it reports are the
// model's choices already, in order, one to a row with one score each.
static tern_status device_step(tern_session *s, int32_t id, int32_t n_each, size_t n_left,
                               tern_error *err) {
    tern_drafting q = {.before = s->tokens,
                       .n_before = (int32_t)s->n_tokens,
                       .n_each = n_each,
                       .n_max = TERN_TOP_K_MAX,
                       .n_wanted = n_left < INT32_MAX ? (int32_t)n_left : INT32_MAX};
    double start = tern_seconds();
    TERN_TRY(append(s, &id, 1, &(wanted){.n_outputs = 1, .top_k = 1, .drafting = &q}, err));
    s->ahead = s->top_ids;
    s->n_ahead = (size_t)q.n - 1;
    s->n_runs = (size_t)q.n_runs;
    memcpy(s->tokens + s->n_tokens, s->ahead, s->n_ahead * sizeof *s->tokens);
    tern_device_drafts_ran(s->speculator, &q, tern_seconds() - start);
    return TERN_OK;
}

static tern_status next_step(tern_session *s, int32_t id, size_t n_left, tern_error *err) {
    bool may = s->speculator && s->n_each_logprobs == 0 && tern_sampler_need(&s->sampler) == 1;
    int32_t n_each = may ? tern_device_drafts_choose(s->speculator) : 0;
    return n_each ? device_step(s, id, n_each, n_left, err) : step(s, id, n_left, err);
}

// Shows a token that was chosen, unless it ends the text.
static void say(generation *g, int32_t id, int32_t max_tokens) {
    tern_session *s = g->s;
    if (tern_token_is_end(s->model, id) && !g->params->ignore_end) {
        g->reason = TERN_STOP_END;
        g->stopped = true;
        return;
    }
    s->generated[s->n_generated++] = id;
    add_text(g, id);
    if (g->stopped || (int32_t)s->n_generated < max_tokens) return;
    g->reason = TERN_STOP_LENGTH;
    g->stopped = true;
}

// The caller's own way to go on in a full context. The last chosen token is not in the timeline
// yet: the next step brings it there.
static tern_status refit(generation *g, tern_error *err) {
    tern_session *s = g->s;
    tern_ids ids = {0};
    tern_status status =
        g->refit->make_room(g->refit->user, s->generated, s->n_generated - 1, &ids, err);
    if (status == TERN_OK) {
        size_t common = keep_common(s, ids.ids, ids.n, 0);
        status = append(s, ids.ids + common, ids.n - common, &(wanted){0}, err);
    }
    tern_free(ids.ids);
    return status;
}

// The loop: the scores after the last token are in row `row`; choose, show, append. A token that
// was drafted is appended already, and its scores are in the next row.
static tern_status generate_loop(generation *g, int32_t max_tokens, tern_error *err) {
    tern_session *s = g->s;
    tern_speculator *sp = s->speculator;
    for (size_t row = 0;;) {
        int32_t id = -1;
        TERN_TRY(choose(s, row, &id, err));
        bool drafted = row < s->n_ahead && id == s->ahead[row];
        TERN_TRY(keep_logprobs(s, row, id, err));
        say(g, id, max_tokens);
        if (drafted && !g->stopped && is_sure(s, row, id)) {
            s->n_tokens++;
            row++;
            continue;
        }
        if (sp) tern_speculator_judge(sp, (int32_t)row + (drafted && g->stopped), g->stopped, id);
        if (g->stopped) return TERN_OK;
        if (s->n_tokens == (size_t)s->n_context && g->refit) {
            TERN_TRY(refit(g, err));
        } else if (s->n_tokens == (size_t)s->n_context) {
            if (!s->desc.shift_context) {
                g->reason = TERN_STOP_CONTEXT;
                return TERN_OK;
            }
            TERN_TRY(shift(s, &(wanted){0}, err));
        }
        TERN_TRY(next_step(s, id, (size_t)max_tokens - s->n_generated, err));
        g->n_steps += s->n_runs;
        row = 0;
    }
}

static tern_status prepare(tern_session *s, const tern_generate_params *params, int32_t max_tokens,
                           tern_error *err) {
    TERN_TRY(tern_sampler_prepare(&s->sampler, params->sampling, &s->model->info, err));
    s->n_generated = s->n_ahead = s->n_each_logprobs = 0;
    if (params->n_top_logprobs < 0 || params->n_top_logprobs > TERN_TOP_LOGPROBS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d likeliest tokens: expected 0 to %d",
                         (int)params->n_top_logprobs, TERN_TOP_LOGPROBS_MAX);
    if (params->logprobs) s->n_each_logprobs = 1 + (size_t)params->n_top_logprobs;
    if (s->speculator) {
        s->speculator->stats = (tern_draft_stats){0};
        s->speculator->draft.n = 0;
    }
    if (tern_array_reserve(TERN_MEM_SESSION, &s->generated, &s->generated_capacity, 0,
                           (size_t)max_tokens + 1) != 0)
        return tern_fail_memory(err, (size_t)max_tokens * sizeof *s->generated);
    // Room for text, so that the loop allocates nothing: no piece is longer than this, except in
    // vocabularies with absurd entries, which cost an allocation.
    tern_strbuf *buffers[] = {&s->text, &s->held};
    for (int i = 0; i < 2; i++) {
        tern_strbuf_clear(buffers[i]);
        if (tern_array_reserve(TERN_MEM_SESSION, &buffers[i]->ptr, &buffers[i]->capacity, 0,
                               4096) != 0)
            return tern_fail_memory(err, 4096);
    }
    return TERN_OK;
}

tern_status tern_generate_ids(tern_session *s, const int32_t *ids, size_t n_ids,
                              const tern_generate_params *params, tern_text_fn on_text, void *user,
                              tern_generate_stats *stats, tern_error *err) {
    return tern_generate_refit(s, ids, n_ids, params, NULL, on_text, user, stats, err);
}

tern_status tern_generate_refit(tern_session *s, const int32_t *ids, size_t n_ids,
                                const tern_generate_params *params, const tern_refit *way,
                                tern_text_fn on_text, void *user, tern_generate_stats *stats,
                                tern_error *err) {
    static const tern_generate_params defaults = {0};
    if (!params) params = &defaults;
    TERN_NEED(s);
    TERN_NEED_ARRAY(ids, n_ids);
    TERN_NEED_EACH(params->stops, params->n_stops);
    tern_generate_stats st = {.n_prompt = n_ids};
    generation g = {.s = s, .params = params, .refit = way, .on_text = on_text, .user = user};
    g.decoder.started = true; // the text goes on: a space in front of its first word stays
    if (n_ids == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the prompt is empty: there is nothing to continue");
    if (n_ids > (size_t)s->n_context)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL,
                         "the prompt has %zu tokens, the context only %d", n_ids,
                         (int)s->n_context);
    // Without a limit: what fits; a shifting context never fills, so it gets a limit.
    int32_t max_tokens = params->max_tokens;
    if (max_tokens <= 0) max_tokens = s->desc.shift_context ? 1 << 20 : s->n_context;
    TERN_TRY(prepare(s, params, max_tokens, err));
    st.seed = s->sampler.params.seed;
    double start = tern_seconds();
    size_t room = n_ids + (size_t)max_tokens, most = (size_t)s->n_context;
    TERN_TRY(tern_lease_reserve(s->lease, (int32_t)(room < most ? room : most), err));
    st.n_reused = keep_common(s, ids, n_ids, 1); // the last one again: its scores are needed
    wanted w = wanted_scores(s, 1);
    w.snapshot_at = n_ids - 1; // where another answer to the same prompt would begin
    TERN_TRY(append(s, ids + st.n_reused, n_ids - st.n_reused, &w, err));
    double middle = tern_seconds();
    tern_status status = generate_loop(&g, max_tokens, err);
    if (status == TERN_OK) end_text(&g);
    st.prompt_seconds = middle - start;
    st.generate_seconds = tern_seconds() - middle;
    st.n_generated = s->n_generated;
    st.reason = g.reason;
    if (s->speculator) {
        st.draft = s->speculator->stats;
        st.draft.speedup =
            tern_speculator_speedup(s->speculator, s->n_generated, st.generate_seconds);
    }
    st.draft.n_steps = g.n_steps;
    if (status == TERN_OK && (s->text.failed || s->held.failed))
        status = tern_fail_memory(err, s->held.len);
    if (stats) *stats = st;
    return status;
}

tern_status tern_generate(tern_session *s, const char *prompt, const tern_generate_params *params,
                          tern_text_fn on_text, void *user, tern_generate_stats *stats,
                          tern_error *err) {
    tern_ids ids = {0};
    TERN_NEED(s);
    TERN_NEED(prompt);
    if (!s->model->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer",
                         s->model->path);
    tern_status status =
        tern_tokenizer_encode(s->model->tokenizer, prompt, strlen(prompt),
                              TERN_TOKENIZE_SPECIAL | TERN_TOKENIZE_BOS, &ids, err);
    if (status == TERN_OK)
        status = tern_generate_ids(s, ids.ids, ids.n, params, on_text, user, stats, err);
    tern_free(ids.ids);
    return status;
}
