// Generation: a state machine that is stepped by tern_generate, alone, or by a group, with others.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "session/generate/generation.h"

// ---- Text --------------------------------------------------------------------------------------

void tern_generation_stop(tern_generation *g, tern_stop_reason reason) {
    g->is_over = true;
    g->reason = reason;
}

static void emit(tern_generation *g, const char *text, size_t n) {
    if (!n || !g->on_text) return;
    if (!g->on_text(g->user, text, n) || g->s->is_closed) tern_generation_stop(g, TERN_STOP_CALLER);
}

// Position of the first stop string in text, and which one it is; or SIZE_MAX.
static size_t find_stop(const tern_generation *g, const char *text, size_t n, size_t *which) {
    size_t best = SIZE_MAX;
    const char *s = g->stops;
    for (size_t i = 0; i < g->n_stops; i++, s += strlen(s) + 1) {
        size_t length = strlen(s);
        const char *hit = length ? memmem(text, n, s, length) : NULL;
        if (!hit || (size_t)(hit - text) >= best) continue;
        best = (size_t)(hit - text);
        *which = i;
    }
    return best;
}

// Length of the longest tail of text that is the beginning of a stop string.
static size_t held_back(const tern_generation *g, const char *text, size_t n) {
    size_t most = 0;
    const char *s = g->stops;
    for (size_t i = 0; i < g->n_stops; i++, s += strlen(s) + 1) {
        size_t length = strlen(s);
        for (size_t k = length ? length - 1 : 0; k > most; k--)
            if (k <= n && memcmp(text + n - k, s, k) == 0) {
                most = k;
                break;
            }
    }
    return most;
}

// Passes on the text in g->held that cannot begin a stop string.
static void flush(tern_generation *g, bool at_end) {
    tern_strbuf *held = &g->held;
    if (g->n_said < (size_t)g->excluded.min_tokens && !at_end) { // too early for stop strings
        emit(g, held->ptr, held->len);
        tern_strbuf_clear(held);
        return;
    }
    size_t end = find_stop(g, tern_strbuf_text(held), held->len, &g->stats.stop);
    if (end != SIZE_MAX) {
        emit(g, held->ptr, end);
        if (!g->is_over) tern_generation_stop(g, TERN_STOP_STRING);
        tern_strbuf_clear(held);
        return;
    }
    size_t keep = at_end ? 0 : held_back(g, tern_strbuf_text(held), held->len);
    size_t n = held->len - keep;
    emit(g, held->ptr, n);
    if (n) memmove(held->ptr, held->ptr + n, keep);
    held->len = keep;
}

static void add_text(tern_generation *g, int32_t id) {
    const tern_session *s = g->s;
    if (!s->model->tokenizer) return;
    tern_strbuf_clear(&g->text);
    tern_tokenizer_decode(s->model->tokenizer, &g->decoder, id, &g->text);
    tern_strbuf_append(&g->held, tern_strbuf_text(&g->text), g->text.len);
    flush(g, false);
}

static void end_text(tern_generation *g) {
    if (g->reason == TERN_STOP_CALLER || g->reason == TERN_STOP_STRING) return;
    tern_strbuf_clear(&g->text);
    if (g->s->model->tokenizer) tern_tokenizer_decode_end(&g->decoder, &g->text);
    tern_strbuf_append(&g->held, tern_strbuf_text(&g->text), g->text.len);
    flush(g, true);
}

// Passes on the text of a chosen token, unless it ends the text. *later: the grammar's state after
// it is not known yet.
static tern_status say(tern_generation *g, int32_t id, bool *later, tern_error *err) {
    const bool is_bound = tern_constraint_binds(&g->constraint);
    *later = false;
    if ((tern_token_is_end(g->s->model, id) && (!g->ignore_end || is_bound)) ||
        tern_excluded_is_stop(&g->excluded, id)) {
        tern_generation_stop(g, TERN_STOP_END);
        return TERN_OK;
    }
    if (g->constraint.grammar) TERN_TRY(tern_constraint_take(&g->constraint, id, later, err));
    if (*later) return TERN_OK;
    g->said[g->n_said++] = id;
    add_text(g, id);
    if (!g->is_over && is_bound && g->constraint.at.is_done) tern_generation_stop(g, TERN_STOP_END);
    if (!g->is_over && (int32_t)g->n_said >= g->max_tokens)
        tern_generation_stop(g, TERN_STOP_LENGTH);
    return TERN_OK;
}

// ---- Choosing ----------------------------------------------------------------------------------

// Records the log-probability of the next token that is said.
static tern_status keep_logprobs(tern_generation *g, const float *logits, int32_t id,
                                 tern_error *err) {
    tern_session *s = g->s;
    size_t n = s->n_each_logprobs, n_used = g->n_said * n;
    if (n == 0) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_SESSION, &s->token_logprobs, &s->token_logprobs_capacity,
                           n_used, n) != 0)
        return tern_fail_memory(err, (n_used + n) * sizeof *s->token_logprobs);
    return tern_rank_logprobs(logits, s->model->info.n_vocab, id, s->token_logprobs + n_used, n,
                              err);
}

static const float *row_of(const tern_generation *g, const tern_scores *x, size_t row) {
    return x->logits + row * (size_t)g->s->model->info.n_vocab;
}

// Collects the candidates of a whole row that the grammar allows; returns how many.
static size_t keep_allowed(const tern_generation *g, const tern_scores *x, size_t row,
                           const float *logits, float *greatest, bool *is_number) {
    const tern_constraint *c = &g->constraint;
    const uint64_t *bits = c->bits + row * c->n_words;
    size_t n = 0;
    for (size_t i = 0; i < c->n_words; i++)
        for (uint64_t w = bits[i]; w; w &= w - 1) {
            size_t id = i * 64 + (size_t)__builtin_ctzll(w);
            x->candidates[n++] = (tern_candidate){logits[id], (int32_t)id};
            *greatest = logits[id] > *greatest ? logits[id] : *greatest;
            *is_number &= !isnan(logits[id]);
        }
    return n;
}

// Shows a row of scores to the caller, who may change them in g->changed. *id: its choice; -1:
// none.
static tern_status ask_caller(tern_generation *g, const tern_scores *x, size_t row, int32_t *id,
                              tern_error *err) {
    tern_session *s = g->s;
    const size_t n_vocab = (size_t)s->model->info.n_vocab;
    const float *logits = row_of(g, x, row);
    const uint64_t *bits = g->is_bound ? g->constraint.bits + row * g->constraint.n_words : NULL;
    for (size_t i = 0; i < n_vocab; i++) {
        if (isnan(logits[i])) return tern_session_fail_scores(s, err);
        bool may = !bits || bits[i / 64] >> i % 64 & 1;
        g->changed[i] = may ? logits[i] : -INFINITY;
    }
    const tern_logits at = {.logits = g->changed,
                            .ids = tern_session_tokens(s),
                            .n_ids = s->n_tokens,
                            .n_generated = g->n_said,
                            .n_vocab = (int32_t)n_vocab};
    *id = g->on_logits(g->user, &at);
    if (*id == TERN_LOGITS_STOP || s->is_closed) {
        tern_generation_stop(g, TERN_STOP_CALLER);
        return TERN_OK;
    }
    tern_candidate one = {.id = *id};
    if (*id == TERN_LOGITS_SAMPLE) return TERN_OK;
    if (*id >= 0 && (size_t)*id < n_vocab && (!bits || bits[*id / 64] >> *id % 64 & 1) &&
        tern_excluded_apply(&g->excluded, &one, 1, at.ids, at.n_ids, g->n_said) == 1)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "on_logits chose token %d, which may not come here: it is not in the "
                     "vocabulary, or excluded by the grammar, allowed_token_ids or bad_words",
                     (int)*id);
}

// The next token, from the row-th row of scores.
static tern_status choose(tern_generation *g, const tern_scores *x, size_t row, int32_t *id,
                          tern_error *err) {
    const tern_session *s = g->s;
    int32_t k = g->drafting.n_each ? 1 : g->n_top;
    size_t n = k ? (size_t)k : (size_t)s->model->info.n_vocab, first = row * (size_t)x->top_k;
    const float *logits = k ? x->top_logits + first : row_of(g, x, row);
    const int32_t *ids = k ? x->top_ids + first : NULL;
    float greatest = -INFINITY;
    bool is_number = true;
    if (g->on_logits) {
        TERN_TRY(ask_caller(g, x, row, id, err));
        if (g->is_over || *id >= 0) return TERN_OK;
        logits = g->changed;
    }
    if (g->is_bound && !k) n = keep_allowed(g, x, row, logits, &greatest, &is_number);
    while (g->is_bound && k && n && ids[n - 1] == INT32_MAX) n--; // fewer tokens are allowed
    for (size_t i = 0; i < n && (k || !g->is_bound); i++) {
        x->candidates[i] = (tern_candidate){logits[i], ids ? ids[i] : (int32_t)i};
        greatest = logits[i] > greatest ? logits[i] : greatest;
        is_number &= !isnan(logits[i]);
    }
    if (g->on_logits && (!is_number || !isfinite(greatest)))
        return tern_fail(err, TERN_ERR_ARGUMENT, "on_logits left %s",
                         is_number ? "no token" : "scores that are not numbers (NaN)");
    if (!is_number || !isfinite(greatest)) return tern_session_fail_scores(s, err);
    const int32_t *recent = tern_session_tokens(s);
    n = tern_excluded_apply(&g->excluded, x->candidates, n, recent, s->n_tokens, g->n_said);
    if (n == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "no token is left that may come: see "
                         "allowed_token_ids, bad_words and the grammar");
    *id = tern_sampler_choose(&g->sampler, x->candidates, n, recent, s->n_tokens);
    return TERN_OK;
}

// Whether the probability of a greedy choice reaches the threshold, if one is set.
static bool is_sure(const tern_generation *g, const tern_scores *x, size_t row, int32_t id) {
    float threshold = g->s->speculator->params.threshold;
    if (threshold == 0 || g->sampler.params.temperature != 0) return true;
    size_t n_vocab = (size_t)g->s->model->info.n_vocab;
    const float *logits = row_of(g, x, row);
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)(logits[i] - logits[id]));
    return sum * (double)threshold <= 1;
}

// ---- A full context ----------------------------------------------------------------------------

// Drops the oldest half after the first n_keep tokens. The rest gets new positions, so its keys and
// values are computed again: slower than rotating the cached keys, but with the same numbers as if
// the text had begun there.
static tern_status shift(tern_generation *g, tern_error *err) {
    tern_session *s = g->s;
    size_t keep = tern_lease_last_cut(s->lease, (size_t)s->desc.n_keep), n = s->n_tokens - keep;
    g->gap = tern_lease_cut_near(s->lease, tern_session_tokens(s) + keep, n, n > 1 ? n / 2 : 1);
    g->n_left = s->n_tokens - keep - g->gap;
    g->n_fed = 0;
    s->n_tokens = keep;
    tern_speculator_cut(s->speculator, keep);
    return tern_lease_announce_length(s->lease, keep + g->n_left, err);
}

// Uses the caller's refit. The last chosen token is not in the timeline yet: the next step appends
// it.
static tern_status refit(tern_generation *g, tern_error *err) {
    tern_session *s = g->s;
    tern_ids ids = {0};
    const size_t n_there = g->n_said - 1 - g->n_more;
    tern_status status = g->refit.make_room(g->refit.user, g->said, n_there, &ids, err);
    if (status == TERN_OK) status = tern_session_check_ids(s, ids.ids, ids.n, err);
    if (status == TERN_OK) {
        size_t common = tern_session_keep_common(s, ids.ids, ids.n, 0);
        status = tern_lease_set_ids(s->lease, common, ids.ids + common, ids.n - common, err);
        if (status == TERN_OK) status = tern_lease_announce_length(s->lease, ids.n, err);
        g->gap = g->n_fed = 0;
        g->n_left = ids.n - common;
    }
    tern_free(ids.ids);
    return status;
}

static tern_status make_room(tern_generation *g, tern_error *err) {
    const tern_session *s = g->s;
    g->is_prompt = false;
    if (s->n_tokens < (size_t)s->n_context) return TERN_OK;
    if (g->refit.make_room) return refit(g, err);
    if (s->desc.shift_context) return shift(g, err);
    tern_generation_stop(g, TERN_STOP_CONTEXT);
    return TERN_OK;
}

// ---- Taking results ----------------------------------------------------------------------------

// Tokens that may be said before the next step: they are computed at once, with the last one.
static size_t step_max(const tern_generation *g) {
    const tern_session *s = g->s;
    size_t room = (size_t)s->n_context - s->n_tokens, most = (size_t)tern_model_same_bits(s->model);
    if (most > TERN_DRAFT_MAX + 1) most = TERN_DRAFT_MAX + 1;
    return most < room ? most : room;
}

// The chosen token has been said.
static tern_status put_said(tern_generation *g, tern_error *err) {
    if (g->n_since_step == 0) {
        g->id = g->chosen;
        if (!g->is_over) TERN_TRY(make_room(g, err));
    } else {
        g->step_ids[g->n_since_step] = g->chosen;
        g->n_more = g->n_since_step;
    }
    g->n_since_step++;
    g->chosen = -1;
    return TERN_OK;
}

// Says the chosen token, and then those that the grammar forces.
tern_status tern_generation_settle(tern_generation *g, tern_error *err) {
    bool later;
    while (!g->is_settled && !g->is_over) {
        if (g->chosen >= 0) {
            TERN_TRY(say(g, g->chosen, &later, err));
            if (later) return TERN_OK;
            TERN_TRY(put_said(g, err));
        }
        if (g->is_over || g->n_left > 0 || g->n_since_step >= step_max(g)) break;
        TERN_TRY(tern_generation_find_forced(g, &later, err));
        if (later) return TERN_OK;
        g->chosen = tern_generation_forced(g);
        g->is_settled = g->chosen < 0;
    }
    g->is_settled = true;
    return TERN_OK;
}

// No token is allowed: the text has ended, or the grammar has no text from here.
static tern_status end_of_grammar(tern_generation *g, size_t row, tern_error *err) {
    if (!g->constraint.can_end[row])
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "the grammar leads to where no text goes on");
    tern_generation_stop(g, TERN_STOP_END);
    return TERN_OK;
}

// Chooses from a row of scores, unless there is no choice.
static tern_status choose_next(tern_generation *g, const tern_scores *x, size_t row,
                               tern_error *err) {
    g->chosen = tern_generation_forced(g);
    if (g->is_bound && g->constraint.n_allowed[row] == 0) return end_of_grammar(g, row, err);
    if (g->chosen < 0) TERN_TRY(choose(g, x, row, &g->chosen, err));
    if (!g->s->n_each_logprobs || g->is_over) return TERN_OK;
    return keep_logprobs(g, row_of(g, x, row), g->chosen, err);
}

// The scores after the last token are in the first row: choose, and pass on. A token that was
// drafted is already computed, and the scores after it are in the next row.
static tern_status go_on(tern_generation *g, const tern_scores *x, tern_error *err) {
    tern_session *s = g->s;
    for (size_t row = 0;; row++) {
        bool later, too_late = false;
        TERN_TRY(choose_next(g, x, row, err));
        if (g->is_over) return TERN_OK;
        const int32_t id = g->chosen;
        bool drafted = row < g->n_ahead && id == g->ahead[row];
        g->n_since_step = 0;
        g->is_settled = false;
        TERN_TRY(say(g, id, &later, err));
        // Tokens computed in advance were not checked by a grammar that binds only from here on.
        drafted = drafted && !later && g->is_bound == tern_constraint_binds(&g->constraint);
        if (drafted && !g->is_over && is_sure(g, x, row, id)) {
            TERN_TRY(tern_generation_find_forced(g, &too_late, err));
            s->n_tokens += !too_late;
            if (!too_late) continue;
        }
        if (s->speculator)
            tern_speculator_judge(s->speculator, (int32_t)row + (drafted && g->is_over), g->is_over,
                                  id);
        if (!later) TERN_TRY(put_said(g, err));
        return tern_generation_settle(g, err);
    }
}

static void take_step(tern_generation *g, const tern_scores *x, double seconds) {
    tern_session *s = g->s;
    tern_speculator *sp = s->speculator;
    s->n_tokens += 1 + g->n_more;
    g->stats.draft.n_steps += g->drafting.n_each ? (size_t)g->drafting.n_runs : 1;
    if (g->drafting.n_each) {
        g->n_ahead = (size_t)g->drafting.n - 1;
        g->ahead = x->top_ids;
        tern_device_drafts_ran(sp, &g->drafting, seconds);
    } else if (sp) {
        g->n_ahead = (size_t)g->work.n_ids - 1 - g->n_more;
        g->ahead = g->step_ids + 1 + g->n_more;
        tern_speculator_ran(sp, g->work.n_ids, seconds);
    }
    g->n_more = 0;
}

// Whether the answer may begin, or the next piece of its prompt be computed.
static bool tell_progress(tern_generation *g) {
    const size_t n = g->stats.n_prompt;
    if (!g->is_prompt || !g->on_progress) return true;
    bool goes_on = g->on_progress(g->user, "prompt", (double)(n - g->n_left) / (double)n);
    if (!goes_on || g->s->is_closed) tern_generation_stop(g, TERN_STOP_CALLER);
    return !g->is_over;
}

tern_status tern_generation_take(tern_generation *g, const tern_scores *scores, double seconds,
                                 tern_error *err) {
    if (g->n_left == 0) {
        take_step(g, scores, seconds);
        return go_on(g, scores, err);
    }
    g->s->n_tokens += (size_t)g->work.n_ids;
    g->n_left -= (size_t)g->work.n_ids;
    g->n_fed += (size_t)g->work.n_ids;
    if (!tell_progress(g) || !g->is_prompt || g->n_left > 0) return TERN_OK;
    g->prompt_done = tern_seconds();
    return go_on(g, scores, err);
}

// ---- Ending ------------------------------------------------------------------------------------

static tern_status keep_said(tern_generation *g, tern_error *err) {
    tern_session *s = g->s;
    if (s->generated_capacity > 4 * (g->n_said + 64)) { // left from a longer answer
        tern_free(s->generated);
        s->generated = NULL;
        s->generated_capacity = 0;
    }
    if (tern_array_reserve(TERN_MEM_SESSION, &s->generated, &s->generated_capacity, 0, g->n_said) !=
        0)
        return tern_fail_memory(err, g->n_said * sizeof *s->generated);
    if (g->n_said) memcpy(s->generated, g->said, g->n_said * sizeof *s->generated);
    s->n_generated = g->n_said;
    return TERN_OK;
}

tern_status tern_generation_end(tern_generation *g, tern_status status, tern_generate_stats *stats,
                                tern_error *err) {
    tern_session *s = g->s;
    if (status == TERN_OK) end_text(g);
    double now = tern_seconds();
    if (g->prompt_done == 0) g->prompt_done = now;
    tern_generate_stats st = g->stats;
    size_t n_steps = st.draft.n_steps;
    st.prompt_seconds = g->prompt_done - g->began;
    st.generate_seconds = now - g->prompt_done;
    st.n_generated = g->n_said;
    st.reason = g->reason;
    if (s->speculator) {
        st.draft = s->speculator->stats;
        st.draft.speedup = tern_speculator_speedup(s->speculator, g->n_said, st.generate_seconds);
    }
    st.draft.n_steps = n_steps;
    tern_status kept = keep_said(g, status == TERN_OK ? err : NULL);
    if (status == TERN_OK) status = kept;
    if (status == TERN_OK && (g->text.failed || g->held.failed))
        status = tern_fail_memory(err, g->held.len);
    if (stats) *stats = st;
    static const char *const reasons[] = {"its end", "max_tokens", "a stop string",
                                          "the full context", "the caller"};
    tern_model_log(s->model, TERN_LOG_DEBUG,
                   "%zu tokens of prompt, %zu of them reused, in %.3f s; %zu generated in %.3f s: "
                   "%s",
                   st.n_prompt, st.n_reused, st.prompt_seconds, st.n_generated, st.generate_seconds,
                   status == TERN_OK ? reasons[st.reason] : tern_status_name(status));
    s->running = NULL;
    tern_constraint_end(&g->constraint);
    tern_lease_trim(s->lease);
    tern_model_give_spare(s->model, &g->spare);
    return status;
}

// ---- Alone -------------------------------------------------------------------------------------

static tern_status step(tern_generation *g, tern_scratch *x, tern_error *err) {
    tern_model *m = g->s->model;
    tern_wants wants = {.outputs = {"logits"}, .top_ids = x->top_ids, .top_logits = x->top_logits};
    TERN_TRY(tern_generation_plan(g, m->n_batch, true, &wants, err));
    if (!wants.top_k && g->work.n_outputs) wants.data[0] = x->logits;
    if (tern_generation_allowed(g, x->allowed)) wants.allowed = x->allowed;
    double start = tern_seconds();
    TERN_TRY(tern_model_compute(m, &g->work, 1, &wants, err));
    const tern_scores scores = {.logits = x->logits,
                                .top_ids = x->top_ids,
                                .top_logits = x->top_logits,
                                .top_k = wants.top_k,
                                .candidates = x->candidates};
    return tern_generation_take(g, &scores, tern_seconds() - start, err);
}

// Steps until it is over, or until it is cancelled.
static tern_status run(tern_generation *g, tern_scratch *scratch, tern_error *err) {
    tern_status status = TERN_OK;
    while (status == TERN_OK && !g->is_over) {
        if (tern_is_cancelled())
            tern_generation_stop(g, TERN_STOP_CALLER);
        else
            status = step(g, scratch, err);
    }
    if (status != TERN_ERR_CANCELLED || !tern_is_cancelled()) return status;
    tern_clear(err);
    tern_generation_stop(g, TERN_STOP_CALLER);
    return TERN_OK;
}

static tern_status generate(tern_session *s, const int32_t *ids, size_t n_ids,
                            const tern_generate_params *params, const tern_refit *way,
                            tern_generate_stats *stats, tern_error *err) {
    tern_generation *g;
    tern_scratch *scratch;
    size_t n_rows, n_logits;
    const tern_generation_desc desc = {
        .ids = ids, .n_ids = n_ids, .params = params, .refit = way, .n_reserve = -1};
    TERN_TRY(tern_generation_begin(&g, s, &desc, err));
    tern_generation_rows(g, &n_rows, &n_logits);
    tern_status status = tern_scratch_take(s->model, n_rows, n_logits, &scratch, err);
    if (status == TERN_OK) status = run(g, scratch, err);
    status = tern_generation_end(g, status, stats, err);
    tern_scratch_give(s->model, scratch);
    return status;
}

tern_status tern_generate_refit(tern_session *s, const int32_t *ids, size_t n_ids,
                                const tern_generate_params *params, const tern_refit *way,
                                tern_generate_stats *stats, tern_error *err) {
    TERN_NEED(s);
    TERN_TRY(tern_session_check_idle(s, err)); // a call from its own callback changes nothing
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = generate(s, ids, n_ids, params, way, stats, err);
    tern_session_leave(&call);
    return status;
}

tern_status tern_generate_ids(tern_session *s, const int32_t *ids, size_t n_ids,
                              const tern_generate_params *params, tern_generate_stats *stats,
                              tern_error *err) {
    tern_clear(err);
    return tern_generate_refit(s, ids, n_ids, params, NULL, stats, err);
}

tern_status tern_generate(tern_session *s, const char *prompt, const tern_generate_params *params,
                          tern_generate_stats *stats, tern_error *err) {
    tern_clear(err);
    tern_ids ids = {0};
    tern_session_call call;
    TERN_NEED(s);
    TERN_NEED(prompt);
    if (!s->model->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer",
                         s->model->path);
    tern_session_enter(&call, s);
    const bool goes_on = params && params->append && s->n_tokens > 0;
    const unsigned flags = TERN_TOKENIZE_SPECIAL | (goes_on ? 0 : TERN_TOKENIZE_BOS);
    tern_status status =
        tern_tokenizer_encode(s->model->tokenizer, prompt, strlen(prompt), flags, &ids, err);
    if (status == TERN_OK) status = tern_generate_ids(s, ids.ids, ids.n, params, stats, err);
    tern_session_leave(&call);
    tern_free(ids.ids);
    return status;
}
