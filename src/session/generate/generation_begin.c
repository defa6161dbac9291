// Beginning an answer: what is asked of it, memory for all of its steps, and its prompt.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "session/generate/generation.h"

static void free_generation(tern_spare *spare) {
    tern_generation *g = (tern_generation *)spare;
    tern_free(g->stops);
    tern_free(g->biases);
    tern_free(g->said);
    tern_free(g->changed);
    tern_sampler_free(&g->sampler);
    tern_excluded_free(&g->excluded);
    tern_constraint_free(&g->constraint);
    tern_strbuf_free(&g->text);
    tern_strbuf_free(&g->held);
    tern_free(g);
}
static const tern_spare_kind generation_kind = {sizeof(tern_generation), free_generation};

// One that was used before keeps its allocated memory.
static void clear(tern_generation *g) {
    tern_generation old = *g;
    *g = (tern_generation){.spare = old.spare,
                           .stops = old.stops,
                           .stops_capacity = old.stops_capacity,
                           .biases = old.biases,
                           .biases_capacity = old.biases_capacity,
                           .said = old.said,
                           .said_capacity = old.said_capacity,
                           .changed = old.changed,
                           .changed_capacity = old.changed_capacity,
                           .excluded = old.excluded,
                           .sampler = {.counts = old.sampler.counts,
                                       .counts_capacity = old.sampler.counts_capacity,
                                       .repeats = old.sampler.repeats,
                                       .repeats_capacity = old.sampler.repeats_capacity,
                                       .breakers = old.sampler.breakers},
                           .constraint = {.bits = old.constraint.bits,
                                          .bits_capacity = old.constraint.bits_capacity,
                                          .forced = old.constraint.forced,
                                          .text = old.constraint.text},
                           .text = old.text,
                           .held = old.held};
    tern_strbuf_clear(&g->text);
    tern_strbuf_clear(&g->held);
}

static tern_status keep_stops(tern_generation *g, const tern_generate_params *p, tern_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_stops; i++) n += strlen(p->stops[i]) + 1;
    if (tern_array_reserve(TERN_MEM_SESSION, &g->stops, &g->stops_capacity, 0, n) != 0)
        return tern_fail_memory(err, n);
    char *to = g->stops;
    for (size_t i = 0; i < p->n_stops; i++) {
        size_t length = strlen(p->stops[i]) + 1;
        memcpy(to, p->stops[i], length);
        to += length;
    }
    g->n_stops = p->n_stops;
    return TERN_OK;
}

static int by_id(const void *a, const void *b) {
    int32_t x = ((const tern_logit_bias *)a)->id, y = ((const tern_logit_bias *)b)->id;
    return (x > y) - (x < y);
}

static tern_status keep_biases(tern_generation *g, const tern_generate_params *p, tern_error *err) {
    size_t n = p->n_biases;
    for (size_t i = 0; i < n; i++)
        if (p->biases[i].id < 0 || p->biases[i].id >= g->sampler.n_vocab ||
            !(p->biases[i].bias < INFINITY))
            return tern_fail(err, TERN_ERR_ARGUMENT, "a bias of %g for token %d makes no sense",
                             (double)p->biases[i].bias, (int)p->biases[i].id);
    if (tern_array_reserve(TERN_MEM_SESSION, &g->biases, &g->biases_capacity, 0, n) != 0)
        return tern_fail_memory(err, n * sizeof *g->biases);
    if (n) memcpy(g->biases, p->biases, n * sizeof *g->biases);
    if (n) qsort(g->biases, n, sizeof *g->biases, by_id);
    for (size_t i = 1; i < n; i++)
        if (g->biases[i].id == g->biases[i - 1].id)
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d has two biases: expected one",
                             (int)g->biases[i].id);
    g->sampler.biases = g->biases;
    g->sampler.n_biases = n;
    return TERN_OK;
}

static tern_status reserve_text(tern_generation *g, tern_error *err) {
    // Room for text, so that steps allocate nothing: no piece is longer than this, except in
    // vocabularies with absurd entries, which cost an allocation.
    tern_strbuf *buffers[] = {&g->text, &g->held};
    for (int i = 0; i < 2; i++)
        if (tern_array_reserve(TERN_MEM_SESSION, &buffers[i]->ptr, &buffers[i]->capacity, 0,
                               1024 + g->stops_capacity) != 0)
            return tern_fail_memory(err, 1024);
    // An answer in a context that does not move is no longer than that, whatever max_tokens is.
    const bool is_held = !g->refit.make_room && !g->s->desc.shift_context;
    const int32_t n_context = g->s->n_context;
    size_t n = (size_t)(is_held && g->max_tokens > n_context ? n_context : g->max_tokens) + 1;
    if (tern_array_reserve(TERN_MEM_SESSION, &g->said, &g->said_capacity, 0, n) != 0)
        return tern_fail_memory(err, n * sizeof *g->said);
    size_t n_vocab = g->on_logits ? (size_t)g->s->model->info.n_vocab : 0;
    if (tern_array_reserve(TERN_MEM_SESSION, &g->changed, &g->changed_capacity, 0, n_vocab) != 0)
        return tern_fail_memory(err, n_vocab * sizeof *g->changed);
    return TERN_OK;
}

static tern_status prepare(tern_generation *g, const tern_generation_desc *desc,
                           const tern_generate_params *params, tern_error *err) {
    tern_session *s = g->s;
    // Without a limit: as many as fit; a shifting context never fills, so it gets a limit.
    g->max_tokens = params->max_tokens;
    if (g->max_tokens <= 0) g->max_tokens = s->desc.shift_context ? 1 << 20 : s->n_context;
    g->ignore_end = params->ignore_end;
    g->fork_at = params->fork_at > 0 ? (size_t)params->fork_at : 0;
    g->on_text = params->on_text;
    g->on_end = params->on_end;
    g->on_progress = params->on_progress;
    g->on_logits = params->on_logits;
    g->user = params->user;
    g->decoder.with_special = params->with_special;
    g->decoder.started = true; // the text continues: the space before its first word is kept
    if (desc->refit) g->refit = *desc->refit;
    TERN_TRY(tern_constraint_begin(&g->constraint, s->model, params->grammar, err));
    TERN_TRY(tern_sampler_prepare(&g->sampler, params->sampling, &s->model->info, err));
    if (params->n_top_logprobs < 0 || params->n_top_logprobs > TERN_TOP_LOGPROBS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d likeliest tokens: expected 0 to %d",
                         (int)params->n_top_logprobs, TERN_TOP_LOGPROBS_MAX);
    s->n_each_logprobs = params->logprobs ? 1 + (size_t)params->n_top_logprobs : 0;
    TERN_TRY(tern_speculator_begin(s->speculator, &params->drafts, err));
    TERN_TRY(keep_biases(g, params, err));
    TERN_TRY(tern_excluded_begin(&g->excluded, s->model, params, err));
    g->sampler.n_excluded = tern_excluded_most(&g->excluded);
    TERN_TRY(tern_sampler_reserve(&g->sampler, s->model, params, s->n_context, err));
    TERN_TRY(keep_stops(g, params, err));
    return reserve_text(g, err);
}

// Puts the prompt where it will be computed, after the prefix that the timeline already has: what
// is equal, or all of it, where the prompt is appended.
static tern_status put_prompt(tern_generation *g, const tern_generation_desc *desc,
                              tern_error *err) {
    tern_session *s = g->s;
    const size_t n_before = desc->appends ? s->n_tokens : 0;
    int32_t answer =
        desc->n_reserve < 0 || desc->n_reserve > g->max_tokens ? g->max_tokens : desc->n_reserve;
    size_t n = n_before + desc->n_ids, room = n + (size_t)answer, most = (size_t)s->n_context;
    const int32_t *ids = desc->ids; // may be the timeline's own, which moves as it grows
    TERN_TRY(tern_lease_make_room(s->lease, room < most ? room : most, &ids, NULL, err));
    TERN_TRY(tern_lease_reserve_ahead(s->lease, (int32_t)(room < most ? room : most), err));
    // Compute the last one again: its scores are needed.
    size_t common = n_before ? n_before : tern_session_keep_common(s, ids, n, 1), n_reused;
    TERN_TRY(tern_lease_announce_length(s->lease, n, err));
    TERN_TRY(tern_session_count_reused(s, &n_reused, err));
    TERN_TRY(tern_lease_set_ids(s->lease, common, ids + (common - n_before), n - common, err));
    g->n_left = n - common;
    g->is_prompt = g->is_settled = true;
    g->id = g->chosen = -1;
    g->stats =
        (tern_generate_stats){.n_prompt = n, .n_reused = n_reused, .seed = g->sampler.params.seed};
    return TERN_OK;
}

static tern_status check_params(const tern_generate_params *params, tern_error *err) {
    TERN_NEED_EACH(params->stops, params->n_stops);
    TERN_NEED_ARRAY(params->biases, params->n_biases);
    TERN_NEED_ARRAY(params->stop_token_ids, params->n_stop_token_ids);
    TERN_NEED_ARRAY(params->allowed_token_ids, params->n_allowed_token_ids);
    TERN_NEED_EACH(params->bad_words, params->n_bad_words);
    TERN_NEED_EACH(params->dry_sequence_breakers, params->n_dry_sequence_breakers);
    if (params->max_tokens < 0 || params->fork_at < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s is %d: expected 1 or more, or 0",
                         params->max_tokens < 0 ? "max_tokens" : "fork_at",
                         (int)(params->max_tokens < 0 ? params->max_tokens : params->fork_at));
    return TERN_OK;
}

// What the prompt is: where nothing is appended to a timeline, that itself.
static tern_status find_prompt(tern_generation_desc *desc, const tern_session *s, tern_error *err) {
    desc->appends = desc->params->append && s->n_tokens > 0;
    if (desc->appends && desc->n_ids == 0) {
        desc->ids = tern_session_tokens(s);
        desc->n_ids = s->n_tokens;
        desc->appends = false;
    }
    const size_t n = desc->n_ids, n_before = desc->appends ? s->n_tokens : 0;
    if (n == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "the prompt is empty: there is nothing to continue");
    if (n > (size_t)s->n_context - n_before)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL,
                         "the prompt has %zu tokens, the context only %d", n_before + n,
                         (int)s->n_context);
    return tern_session_check_ids(s, desc->ids, n, err);
}

tern_status tern_generation_begin(tern_generation **out, tern_session *s,
                                  const tern_generation_desc *wanted, tern_error *err) {
    static const tern_generate_params defaults = {0};
    tern_generation_desc with = *wanted, *desc = &with;
    const tern_generate_params *params = desc->params ? desc->params : &defaults;
    tern_generation *g;
    *out = NULL;
    desc->params = params;
    TERN_NEED_ARRAY(desc->ids, desc->n_ids);
    TERN_TRY(check_params(params, err));
    TERN_TRY(tern_session_check_idle(s, err));
    TERN_TRY(find_prompt(desc, s, err));
    TERN_TRY(tern_model_take_spare(s->model, &generation_kind, &g, err));
    clear(g);
    g->s = s;
    g->began = tern_seconds();
    s->n_generated = 0;
    tern_status status = prepare(g, desc, params, err);
    if (status == TERN_OK) status = put_prompt(g, desc, err);
    if (status != TERN_OK) {
        tern_constraint_end(&g->constraint);
        tern_model_give_spare(s->model, &g->spare);
        return status;
    }
    *out = s->running = g;
    return TERN_OK;
}
