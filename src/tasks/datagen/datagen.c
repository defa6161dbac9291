// tern datagen: a model's answers to many prompts; those that pass are kept.
#include "tasks/datagen/datagen.h"

#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"
#include "base/hash.h"
#include "base/os/os_time.h"

#define N_AHEAD 4 // items that may wait for an earlier one to be judged, per item that can run

// ---- Answers -----------------------------------------------------------------------------------

static bool on_text(void *user, const char *text, size_t n) {
    datagen_candidate *c = user;
    tern_strbuf_append(&c->raw, text, n);
    return true;
}

static void on_part(void *user, const tern_part *part) {
    datagen_candidate *c = user;
    if (part->kind == TERN_PART_TEXT) tern_strbuf_append(&c->said, part->text, part->n_bytes);
    if (part->kind == TERN_PART_REASONING)
        tern_strbuf_append(&c->reasoning, part->text, part->n_bytes);
}

// The answer without the marks of reasoning.
static tern_status take_apart(datagen_job *j, datagen_candidate *c, tern_error *err) {
    tern_answer *reader = NULL;
    if (j->desc->raw) {
        tern_strbuf_append(&c->said, c->raw.ptr, c->raw.len);
        return c->said.failed ? tern_fail_memory(err, c->raw.len) : TERN_OK;
    }
    TERN_TRY(tern_answer_open(&reader, j->model, tern_strbuf_text(&c->item->rendered), NULL, err));
    tern_status status =
        tern_answer_put(reader, tern_strbuf_text(&c->raw), c->raw.len, on_part, c, err);
    if (status == TERN_OK) status = tern_answer_end(reader, on_part, c, err);
    if (status == TERN_OK && (c->said.failed || c->reasoning.failed))
        status = tern_fail_memory(err, c->raw.len);
    tern_answer_close(reader);
    return status;
}

// The geometric mean of the probabilities; negative if they are unknown.
static double confidence_of(const tern_session *s) {
    size_t n = 0, n_each = 0;
    double sum = 0;
    const tern_token_logprob *p = tern_session_token_logprobs(s, &n, &n_each);
    if (!p || n == 0) return -1;
    for (size_t i = 0; i < n; i++) sum += (double)p[i * n_each].logprob;
    return exp(sum / (double)n);
}

static tern_status finish(datagen_job *j, datagen_candidate *c, const tern_generate_stats *stats,
                          tern_error *err) {
    size_t n_ids = 0;
    double repetition;
    const int32_t *ids = tern_session_generated(c->session, &n_ids);
    if (c->raw.failed) return tern_fail_memory(err, c->raw.len);
    c->n_tokens = n_ids;
    c->ended = stats->reason == TERN_STOP_END || stats->reason == TERN_STOP_STRING;
    c->confidence = confidence_of(c->session);
    j->stats->n_tokens += n_ids;
    TERN_TRY(tern_datagen_repetition(ids, n_ids, &repetition, err));
    c->variety = 1 - repetition;
    TERN_TRY(take_apart(j, c, err));
    return tern_datagen_measure(j, c, err);
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *why) {
    datagen_candidate *c = user;
    datagen_job *j = c->job;
    if (j->status == TERN_OK)
        j->status = why->status == TERN_OK ? finish(j, c, stats, j->err)
                                           : tern_fail(j->err, why->status, "%s", why->message);
    tern_session_close(session);
    c->session = NULL;
    c->item->n_running--;
    j->n_running--;
}

// ---- Items -------------------------------------------------------------------------------------

static void close_item(const datagen_job *j, datagen_item *item) {
    for (int32_t i = 0; item->candidates && i < j->desc->n_candidates; i++) {
        datagen_candidate *c = &item->candidates[i];
        tern_session_close(c->session);
        tern_strbuf_free(&c->raw);
        tern_strbuf_free(&c->said);
        tern_strbuf_free(&c->reasoning);
        tern_json_free(&c->object);
    }
    for (size_t i = 0; item->mentions && i < j->desc->n_mentions; i++)
        tern_strbuf_free(&item->mentions[i]);
    tern_strbuf_free(&item->system);
    tern_strbuf_free(&item->prompt);
    tern_strbuf_free(&item->rendered);
    tern_free(item->mentions);
    tern_free(item->candidates);
    tern_free(item->ids);
    tern_free(item);
}

// A different number for each candidate; a double holds it, so JSON keeps it.
static uint64_t random_seed(const datagen_job *j, int64_t item, int32_t candidate) {
    uint64_t n = tern_mix64(j->desc->sampling->seed + 0x9E3779B97F4A7C15u * (uint64_t)(item + 1));
    n = tern_mix64(n + (uint64_t)candidate) >> 11;
    return n ? n : 1;
}

// The timeline of the first prompt: later ones share their common beginning with it, such as a long
// system message.
static tern_status open_front(datagen_job *j, const datagen_item *item, tern_error *err) {
    const tern_session_desc desc = {.n_context = j->desc->n_context};
    TERN_TRY(tern_session_open(&j->front, j->model, &desc, err));
    TERN_TRY(tern_session_digest(j->front, &j->model_digest, err));
    j->settings = tern_datagen_settings(j);
    if (!j->settings) return tern_fail_memory(err, 0);
    if (item->n_ids >= (size_t)tern_session_n_context(j->front)) return TERN_OK;
    return tern_session_sync(j->front, item->ids, item->n_ids, NULL, err);
}

static size_t n_in_common(const datagen_job *j, const datagen_item *item) {
    const int32_t *front = tern_session_tokens(j->front);
    size_t n = tern_session_n_tokens(j->front), i = 0;
    if (n > item->n_ids - 1) n = item->n_ids - 1;
    while (i < n && front[i] == item->ids[i]) i++;
    return i;
}

static tern_status begin_candidate(datagen_job *j, datagen_candidate *c, tern_session *from,
                                   size_t n_shared, tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    tern_sampling sampling = *d->sampling;
    sampling.seed = c->random_seed;
    const tern_generate_params params = {.sampling = &sampling,
                                         .max_tokens = d->max_tokens,
                                         .stops = d->stops,
                                         .n_stops = d->n_stops,
                                         .grammar = j->grammar,
                                         .logprobs = !j->grammar,
                                         .with_special = j->with_special,
                                         .on_text = on_text,
                                         .on_end = on_end,
                                         .user = c};
    const datagen_item *item = c->item;
    TERN_TRY(tern_session_fork(&c->session, from, n_shared, err));
    TERN_TRY(tern_group_add(j->group, c->session, item->ids, item->n_ids, &params, err));
    c->item->n_running++;
    j->n_running++;
    return TERN_OK;
}

// The prompt of several candidates is computed once.
static tern_status begin_candidates(datagen_job *j, datagen_item *item, tern_error *err) {
    tern_session *root = NULL;
    tern_status status = TERN_OK;
    size_t n_shared = n_in_common(j, item);
    if (j->desc->n_candidates > 1) {
        status = tern_session_fork(&root, j->front, n_shared, err);
        n_shared = item->n_ids - 1;
        if (status == TERN_OK) status = tern_session_sync(root, item->ids, n_shared, NULL, err);
    }
    for (int32_t i = 0; i < j->desc->n_candidates && status == TERN_OK; i++)
        status = begin_candidate(j, &item->candidates[i], root ? root : j->front, n_shared, err);
    tern_session_close(root);
    return status;
}

// How all answers are parsed: determined once, since all prompts end alike.
static tern_status open_grammar(datagen_job *j, const datagen_item *item, tern_error *err) {
    const char *prompt = j->desc->raw ? NULL : tern_strbuf_text(&item->rendered);
    if (prompt) {
        tern_answer *reader;
        TERN_TRY(tern_answer_open(&reader, j->model, prompt, NULL, err));
        j->with_special = tern_answer_with_special(reader);
        tern_answer_close(reader);
    }
    if (!j->desc->grammar) return TERN_OK;
    tern_grammar_desc desc = *j->desc->grammar;
    if (prompt) desc.prompt = prompt;
    return tern_grammar_open(&j->grammar, j->model, &desc, err);
}

static tern_status new_item(datagen_job *j, int64_t number, datagen_item **out, tern_error *err) {
    size_t n = (size_t)j->desc->n_candidates;
    datagen_item *item = *out = tern_alloc(TERN_MEM_SESSION, sizeof *item);
    if (!item) return tern_fail_memory(err, sizeof *item);
    item->number = number;
    item->candidates = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *item->candidates);
    if (!item->candidates) return tern_fail_memory(err, n * sizeof *item->candidates);
    for (size_t i = 0; i < n; i++) {
        datagen_candidate *c = &item->candidates[i];
        c->job = j, c->item = item;
        c->random_seed = random_seed(j, number, (int32_t)i);
    }
    return tern_datagen_item_prompt(j, item, err);
}

static tern_status begin_item(datagen_job *j, tern_error *err) {
    datagen_item *item;
    tern_status status = new_item(j, j->next_item, &item, err);
    if (item) { // now owned by the job
        *(j->last ? &j->last->next : &j->first) = item;
        j->last = item;
        j->n_pending++;
        j->next_item++;
    }
    if (status != TERN_OK) return status;
    j->stats->n_items++;
    item->no_room = item->n_ids >= (size_t)tern_session_n_context(j->front);
    return item->no_room ? TERN_OK : begin_candidates(j, item, err);
}

// ---- The run -----------------------------------------------------------------------------------

static bool is_complete(const datagen_job *j) {
    return (int64_t)j->n_accepted >= j->desc->n_records ||
           (j->n_pending == 0 && j->stats->n_items >= j->desc->n_items_max);
}

// Begins no more items than are needed if all of them pass.
static bool may_begin(const datagen_job *j) {
    const tern_datagen_desc *d = j->desc;
    return (int64_t)j->n_accepted + j->n_pending < d->n_records &&
           j->stats->n_items < d->n_items_max && j->n_pending < N_AHEAD * d->n_parallel &&
           (j->n_running == 0 || j->n_running + d->n_candidates <= d->n_parallel);
}

static tern_status judge_those_over(datagen_job *j, tern_error *err) {
    tern_status status = TERN_OK;
    while (j->first && j->first->n_running == 0 && status == TERN_OK && !is_complete(j)) {
        datagen_item *item = j->first;
        status = tern_datagen_judge(j, item, err);
        j->first = item->next;
        if (!j->first) j->last = NULL;
        j->n_pending--;
        close_item(j, item);
    }
    return status;
}

static tern_status run(datagen_job *j, tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    while (!is_complete(j)) {
        while (may_begin(j)) TERN_TRY(begin_item(j, err));
        if (j->n_running > 0) TERN_TRY(tern_group_step(j->group, NULL, err));
        TERN_TRY(j->status);
        TERN_TRY(judge_those_over(j, err));
        double part = (double)j->n_accepted / (double)d->n_records;
        if (!tern_progress(d->on_progress, d->user, "generate", part))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    return TERN_OK;
}

// The first prompt shows what all have in common. It may belong to another item than the first that
// runs.
static tern_status prepare(datagen_job *j, tern_error *err) {
    datagen_item *item = NULL;
    TERN_TRY(tern_datagen_prompts_open(j, err));
    TERN_TRY(tern_datagen_rules_open(j, err));
    tern_status status = new_item(j, 0, &item, err);
    if (status == TERN_OK) status = open_front(j, item, err);
    if (status == TERN_OK) status = open_grammar(j, item, err);
    if (item) close_item(j, item);
    TERN_TRY(status);
    TERN_TRY(tern_datagen_file_open(j, err));
    return tern_group_open(&j->group, j->model, NULL, err);
}

static void close_job(datagen_job *j) {
    j->status = TERN_ERR_CANCELLED; // on_end only closes running candidates
    tern_group_close(j->group);
    while (j->first) {
        datagen_item *next = j->first->next;
        close_item(j, j->first);
        j->first = next;
    }
    tern_session_close(j->front);
    tern_grammar_close(j->grammar);
    tern_datagen_rules_close(j);
    tern_datagen_prompts_close(j);
    tern_free(j->sketcher.words);
    tern_free(j->accepted);
}

static int32_t or_else(int32_t value, int32_t otherwise) { return value ? value : otherwise; }
static float or_share(float value, float otherwise) { return value != 0 ? value : otherwise; }

static tern_status check(const tern_datagen_desc *d, tern_error *err) {
    TERN_NEED(d->prompt);
    TERN_NEED_ARRAY(d->seeds, d->n_seed_bytes);
    TERN_NEED_EACH(d->stops, d->n_stops);
    TERN_NEED_EACH(d->mentions, d->n_mentions);
    TERN_NEED_EACH(d->required, d->n_required);
    TERN_NEED_EACH(d->forbidden, d->n_forbidden);
    if (d->n_records < 1 || d->n_items_max < 0 || d->n_candidates < 0 || d->n_parallel < 0 ||
        d->n_context < 0 || d->min_tokens < 0 || d->max_tokens < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "tern_datagen: a count is negative, or no records are wanted");
    if (isnan(d->min_quality) || isnan(d->max_repetition) || isnan(d->max_similarity))
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_datagen: %s is not a number",
                         isnan(d->min_quality)      ? "min_quality"
                         : isnan(d->max_repetition) ? "max_repetition"
                                                    : "max_similarity");
    if (d->raw && d->system)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "tern_datagen: a raw prompt has no system message");
    return TERN_OK;
}

tern_status tern_datagen(tern_model *model, const tern_datagen_desc *desc,
                         tern_datagen_stats *stats, tern_error *err) {
    tern_clear(err);
    tern_datagen_stats own;
    if (!stats) stats = &own;
    *stats = (tern_datagen_stats){0};
    TERN_NEED(model);
    TERN_NEED(desc);
    TERN_TRY(check(desc, err));
    const double begun = tern_seconds();
    tern_sampling sampling = desc->sampling ? *desc->sampling : tern_sampling_default();
    tern_datagen_desc d = *desc;
    d.sampling = &sampling;
    d.n_candidates = or_else(d.n_candidates, 1);
    d.n_parallel = or_else(d.n_parallel, 8);
    d.n_context = or_else(d.n_context, 2048);
    d.max_tokens = or_else(d.max_tokens, 256);
    if (!d.n_items_max) d.n_items_max = 4 * d.n_records + 16;
    d.min_quality = or_share(d.min_quality, 0.45f);
    d.max_repetition = or_share(d.max_repetition, 0.25f);
    d.max_similarity = or_share(d.max_similarity, 0.7f);
    datagen_job j = {.desc = &d, .model = model, .stats = stats, .fd = -1, .err = err};
    tern_model_get_info(model, &j.info);
    if (d.n_context > j.info.n_context_train && j.info.n_context_train > 0)
        d.n_context = j.info.n_context_train;
    tern_status status = prepare(&j, err);
    const size_t n_before = j.n_accepted;
    if (status == TERN_OK) status = run(&j, err);
    tern_status closed = tern_datagen_file_close(&j, status == TERN_OK ? err : NULL);
    if (status == TERN_OK) status = closed;
    stats->n_records = (int64_t)j.n_accepted;
    stats->n_accepted = (int64_t)(j.n_accepted - n_before);
    stats->seconds = tern_seconds() - begun;
    close_job(&j);
    return status;
}
