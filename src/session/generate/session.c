// A session: one timeline of tokens over a model, and generation that continues it.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "session/generate/generation.h"

#define DEFAULT_CONTEXT_MAX 8192

// ---- Opening -----------------------------------------------------------------------------------

static tern_status set_loras(tern_session *s, const tern_session_desc *desc, tern_error *err) {
    const size_t n = (size_t)s->model->n_loras;
    if (desc->n_lora_scales == 0) return TERN_OK;
    TERN_NEED_ARRAY(desc->lora_scales, desc->n_lora_scales);
    if (desc->n_lora_scales != n)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%zu scales of adapters: the model has %zu that sessions choose from",
                         desc->n_lora_scales, n);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(desc->lora_scales[i]))
            return tern_fail(err, TERN_ERR_ARGUMENT, "adapter %zu: a scale of %g makes no sense", i,
                             (double)desc->lora_scales[i]);
    tern_lease_set_loras(s->lease, desc->lora_scales);
    return TERN_OK;
}

tern_status tern_session_open(tern_session **out, tern_model *model, const tern_session_desc *desc,
                              tern_error *err) {
    tern_clear(err);
    static const tern_session_desc defaults = {0};
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(model);
    if (model->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", model->path);
    if (model->config.pooling != TERN_POOLING_NONE)
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "%s: the model is an encoder: it makes vectors and has no scores of next tokens",
            model->path);
    if (model->config.n_source)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the model writes down what is said in a sound, and does not go on "
                         "with texts",
                         model->path);
    TERN_TRY(tern_model_refuse_damaged(model, err));
    if (!desc) desc = &defaults;
    int32_t trained = model->info.n_context_train;
    if (desc->n_context < 0 || desc->n_context > 1 << 24)
        return tern_fail(err, TERN_ERR_ARGUMENT, "context of %d tokens: expected 1 to %d",
                         desc->n_context, 1 << 24);
    if (desc->n_keep < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "n_keep is %d: expected 1 or more, or 0",
                         desc->n_keep);
    tern_session *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->model = model;
    tern_model_hold(model);
    s->desc = *desc;
    s->desc.lora_scales = NULL; // the caller's; the lease has a copy
    s->desc.n_lora_scales = 0;
    s->n_context = desc->n_context                 ? desc->n_context
                   : trained < DEFAULT_CONTEXT_MAX ? trained
                                                   : DEFAULT_CONTEXT_MAX;
    if (s->desc.n_keep <= 0) s->desc.n_keep = 4;
    if (s->desc.n_keep > s->n_context / 2) s->desc.n_keep = s->n_context / 2;
    tern_kv_type *kv_type = &s->desc.kv_type;
    tern_status status =
        tern_kv_choose(&model->graphs[0].fused, s->n_context, *kv_type, kv_type, err);
    if (status == TERN_OK) status = tern_lease_open(&s->lease, model, s->n_context, *kv_type, err);
    if (status == TERN_OK) status = set_loras(s, desc, err);
    if (status == TERN_OK && desc->profile) status = tern_lease_start_profile(s->lease, err);
    if (status == TERN_OK && tern_speculation_is_on(&s->desc.speculation))
        status = tern_speculator_open(&s->speculator, s, err);
    if (status != TERN_OK) {
        tern_session_close(s);
        return status;
    }
    tern_model_log(model, TERN_LOG_DEBUG, "a session of %d tokens", (int)s->n_context);
    *out = s;
    return TERN_OK;
}

static void free_session(tern_session *s) {
    tern_lease_close(s->lease);
    tern_speculator_close(s->speculator);
    tern_free(s->generated);
    tern_free(s->token_logprobs);
    tern_free(s->scores);
    tern_free(s->profile);
    tern_model_let_go(s->model);
    tern_free(s);
}

static void free_if_over(tern_session *s) {
    if (s->is_closed && s->n_calls == 0 && s->n_holders == 0) free_session(s);
}

void tern_session_close(tern_session *s) {
    if (!s || s->is_closed) return;
    if (!tern_group_leave(s) || s->n_calls > 0) tern_session_cancel(s);
    s->is_closed = true;
    free_if_over(s);
}

// ---- Calls -------------------------------------------------------------------------------------

void tern_session_cancel(tern_session *s) {
    if (s) tern_cancel_request(&s->cancel);
}

void tern_session_begin(tern_session *s) {
    if (s->n_calls++ == 0) tern_cancel_reset(&s->cancel);
}

void tern_session_end(tern_session *s) {
    s->n_calls--;
    free_if_over(s);
}

void tern_session_enter(tern_session_call *call, tern_session *s) {
    call->session = s;
    tern_session_begin(s);
    tern_cancel_enter(&call->scope, &s->cancel);
}

void tern_session_leave(const tern_session_call *call) {
    tern_cancel_leave(&call->scope);
    tern_session_end(call->session);
}

void tern_session_hold(tern_session *s) { s->n_holders++; }

void tern_session_let_go(tern_session *s) {
    if (!s) return;
    s->n_holders--;
    free_if_over(s);
}

void tern_session_reset(tern_session *s) {
    if (!s || s->running) return;
    s->n_tokens = 0;
    tern_speculator_cut(s->speculator, 0);
}

tern_status tern_session_truncate(tern_session *s, size_t n_tokens, tern_error *err) {
    tern_clear(err);
    size_t unused;
    TERN_NEED(s);
    TERN_TRY(tern_session_check_idle(s, err));
    if (n_tokens > s->n_tokens)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a timeline of %zu tokens cannot be truncated to %zu", s->n_tokens,
                         n_tokens);
    if (tern_lease_last_cut(s->lease, n_tokens) != n_tokens)
        return tern_fail(err, TERN_ERR_ARGUMENT, "an image would be cut at token %zu", n_tokens);
    tern_session_keep_common(s, tern_session_tokens(s), n_tokens, 0);
    return tern_session_count_reused(s, &unused, err);
}

int32_t tern_session_n_context(const tern_session *s) { return s ? s->n_context : 0; }
tern_kv_type tern_session_kv_type(const tern_session *s) {
    return s ? s->desc.kv_type : TERN_KV_AUTO;
}

const float *tern_session_lora_scales(const tern_session *s, size_t *n) {
    const bool has = s && s->model->n_loras > 0;
    if (n) *n = has ? (size_t)s->model->n_loras : 0;
    return has ? tern_lease_loras(s->lease) : NULL;
}

static int by_seconds(const void *a, const void *b) {
    double x = ((const tern_profile_row *)a)->seconds, y = ((const tern_profile_row *)b)->seconds;
    return (x < y) - (x > y);
}

tern_status tern_session_profile(tern_session *s, const tern_profile_row **rows, size_t *n_rows,
                                 tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED(rows);
    TERN_NEED(n_rows);
    const tern_profile *p = tern_lease_profile(s->lease);
    *rows = NULL;
    *n_rows = 0;
    if (!p) return tern_fail(err, TERN_ERR_ARGUMENT, "the session was opened without a profile");
    if (!s->profile) s->profile = tern_alloc(TERN_MEM_SESSION, sizeof *s->profile);
    if (!s->profile) return tern_fail_memory(err, sizeof *s->profile);
    *s->profile = *p;
    qsort(s->profile->rows, p->n, sizeof *p->rows, by_seconds);
    *rows = s->profile->rows;
    *n_rows = p->n;
    return TERN_OK;
}

const char *tern_session_notice(tern_session *s) { return s ? tern_lease_notice(s->lease) : NULL; }
size_t tern_session_n_tokens(const tern_session *s) { return s ? s->n_tokens : 0; }

const int32_t *tern_session_generated(const tern_session *s, size_t *n_ids) {
    const tern_generation *g = s ? s->running : NULL;
    if (n_ids) *n_ids = g ? g->n_said : s ? s->n_generated : 0;
    return g ? g->said : s ? s->generated : NULL;
}

const tern_token_logprob *tern_session_token_logprobs(const tern_session *s, size_t *n_tokens,
                                                      size_t *n_each) {
    bool any = s && s->n_each_logprobs > 0;
    size_t n = any && s->running ? s->running->n_said : any ? s->n_generated : 0;
    if (n_tokens) *n_tokens = n;
    if (n_each) *n_each = any ? s->n_each_logprobs : 0;
    return any ? s->token_logprobs : NULL;
}

// ---- The timeline ------------------------------------------------------------------------------

const int32_t *tern_session_tokens(const tern_session *s) {
    return s ? tern_lease_ids(s->lease) : NULL;
}

tern_status tern_session_check_idle(tern_session *s, tern_error *err) {
    if (s->group && tern_cancel_is_requested(&s->cancel)) tern_group_stop(s);
    if (!s->running) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "the session is generating: cancel that first");
}

// Whether a token is a placeholder for an image or a sound.
static bool is_placeholder(const tern_config *c, int32_t id) {
    for (int i = 0; i < TERN_PLACEHOLDERS_MAX && c->placeholders[i]; i++)
        if (c->placeholders[i] == id) return true;
    return false;
}

tern_status tern_session_check_ids(const tern_session *s, const int32_t *ids, size_t n,
                                   tern_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (ids[i] >= s->model->info.n_vocab && ids[i] < TERN_IMAGE_TOKENS_IDS))
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d at place %zu is not in 0..%d",
                             (int)ids[i], i + 1, (int)s->model->info.n_vocab - 1);
        if (is_placeholder(&s->model->config, ids[i]))
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "token %d at place %zu stands for an image or a sound, and none can "
                             "be given to this model",
                             (int)ids[i], i + 1);
    }
    return TERN_OK;
}

// The results wanted for the last appended tokens.
typedef struct wanted {
    size_t n_outputs; // of the last tokens
    float *logits;    // [n_outputs, n_vocab], or NULL
    int32_t *top_id;  // the argmax of one output, or NULL
    float *top_logit;
    size_t snapshot_at; // a position to snapshot on the way; 0: none
} wanted;

// Appends tokens in batches. After a failure the timeline holds the batches that were computed.
static tern_status append(tern_session *s, const int32_t *ids, size_t n, const wanted *w,
                          tern_error *err) {
    size_t n_vocab = (size_t)s->model->info.n_vocab;
    if (n > (size_t)s->n_context - s->n_tokens)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL,
                         "%zu tokens do not fit into a context of %d with %zu in use", n,
                         (int)s->n_context, s->n_tokens);
    TERN_TRY(tern_session_check_ids(s, ids, n, err));
    // The ids may be the timeline's own, which moves as it grows.
    TERN_TRY(tern_lease_make_room(s->lease, s->n_tokens + n, &ids, NULL, err));
    TERN_TRY(tern_lease_hold_images(s->lease, ids, n, err));
    TERN_TRY(tern_lease_announce_length(s->lease, s->n_tokens + n, err));
    for (size_t done = 0; done < n;) {
        size_t left = n - done, batch_max = (size_t)s->model->n_batch;
        size_t take = left < batch_max ? left : batch_max;
        take = tern_lease_cut_near(s->lease, ids + done, left, take);
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
                                .passing = true};
        const tern_wants wants = {
            .outputs = {"logits"},
            .data = {w->logits && outputs ? w->logits + row * n_vocab : NULL},
            .top_k = w->top_id && outputs ? 1 : 0,
            .top_ids = w->top_id,
            .top_logits = w->top_logit,
            .few_ahead = w->top_id != NULL,
        };
        TERN_TRY(tern_model_compute(s->model, &work, 1, &wants, err));
        s->n_tokens += take;
        done += take;
    }
    return TERN_OK;
}

size_t tern_session_keep_common(tern_session *s, const int32_t *ids, size_t n_ids, size_t n_again) {
    const int32_t *tokens = tern_session_tokens(s);
    size_t most = n_ids > n_again ? n_ids - n_again : 0, common = 0;
    while (common < s->n_tokens && common < most && tokens[common] == ids[common]) common++;
    common = tern_lease_last_cut(s->lease, common);
    s->n_tokens = common; // later keys and values are overwritten before use
    tern_speculator_cut(s->speculator, common);
    return common;
}

tern_status tern_session_count_reused(tern_session *s, size_t *n_reused, tern_error *err) {
    int32_t n_left;
    TERN_TRY(tern_lease_keep_prefix(s->lease, (int32_t)s->n_tokens, &n_left, err));
    *n_reused = (size_t)n_left;
    return TERN_OK;
}

tern_status tern_session_sync(tern_session *s, const int32_t *ids, size_t n_ids, size_t *n_reused,
                              tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED_ARRAY(ids, n_ids);
    TERN_TRY(tern_session_check_idle(s, err));
    tern_session_call call;
    tern_session_enter(&call, s);
    size_t common = tern_session_keep_common(s, ids, n_ids, 0), unused;
    tern_status status = tern_session_count_reused(s, n_reused ? n_reused : &unused, err);
    if (status == TERN_OK) status = append(s, ids + common, n_ids - common, &(wanted){0}, err);
    tern_session_leave(&call);
    return status;
}

tern_status tern_session_logits(tern_session *s, const int32_t *ids, size_t n_ids, float *logits,
                                tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED_ARRAY(ids, n_ids);
    TERN_TRY(tern_session_check_idle(s, err));
    const wanted w = {.n_outputs = logits ? n_ids : 0, .logits = logits};
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = append(s, ids, n_ids, &w, err);
    tern_session_leave(&call);
    return status;
}

tern_status tern_session_last_logits(tern_session *s, float *logits, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED(logits);
    TERN_TRY(tern_session_check_idle(s, err));
    const size_t n = s->n_tokens;
    if (n == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "there is no last token: the timeline is empty");
    const wanted w = {.n_outputs = 1, .logits = logits};
    tern_session_call call;
    tern_session_enter(&call, s);
    const int32_t *ids = tern_session_tokens(s);
    size_t common = tern_session_keep_common(s, ids, n, 1);
    tern_status status = append(s, ids + common, n - common, &w, err);
    tern_session_leave(&call);
    return status;
}

tern_status tern_session_fail_scores(const tern_session *s, tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s: the scores of the next token are not numbers: "
                     "weights are damaged (NaN or infinite)",
                     s->model->path);
}

tern_status tern_session_greedy(tern_session *s, const int32_t *ids, size_t n_ids, int32_t *next,
                                int32_t n_next, tern_error *err) {
    float greatest;
    size_t n_known = tern_session_keep_common(s, ids, n_ids, 1);
    for (int32_t i = 0; i < n_next; i++) {
        const wanted best = {.n_outputs = 1,
                             .top_id = &next[i],
                             .top_logit = &greatest,
                             .snapshot_at = i ? 0 : n_ids}; // the next text will begin with ids
        TERN_TRY(i ? append(s, &next[i - 1], 1, &best, err)
                   : append(s, ids + n_known, n_ids - n_known, &best, err));
        if (!isfinite(greatest)) return tern_session_fail_scores(s, err);
    }
    return TERN_OK;
}

// ---- Shared fronts, and memory -----------------------------------------------------------------

static tern_status check_not_computed(const tern_session *s, tern_error *err) {
    if (!s->running || !s->running->in_flight) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "the session is being computed: finish the step first");
}

tern_status tern_session_fork(tern_session **out, tern_session *from, size_t n_tokens,
                              tern_error *err) {
    tern_clear(err);
    tern_session *s;
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(from);
    TERN_TRY(check_not_computed(from, err));
    if (n_tokens > from->n_tokens)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a fork of %zu tokens from a session of %zu",
                         n_tokens, from->n_tokens);
    tern_session_desc desc = from->desc;
    desc.lora_scales = tern_session_lora_scales(from, &desc.n_lora_scales);
    TERN_TRY(tern_session_open(&s, from->model, &desc, err));
    tern_status status = tern_lease_fork(from->lease, (int32_t)n_tokens, s->lease, err);
    if (status != TERN_OK) {
        tern_session_close(s);
        return status;
    }
    s->n_tokens = n_tokens;
    *out = s;
    return TERN_OK;
}

bool tern_session_cuts_freely(const tern_session *s) {
    return s && tern_lease_forks_anywhere(s->lease);
}

tern_status tern_session_swap_out(tern_session *s, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_TRY(check_not_computed(s, err));
    tern_lease_trim(s->lease);
    return tern_lease_swap_out(s->lease, err);
}

uint64_t tern_session_bytes(const tern_session *s) { return s ? tern_lease_bytes(s->lease) : 0; }
