// What an answer asks of the next batch: a piece of the tokens that its timeline lacks, or its last
// token with those that are likely or certain to follow, and the scores that it will choose from.
#include <string.h>
#include "session/generate/generation.h"

static bool needs_all(const tern_generation *g) {
    const tern_session *s = g->s;
    return tern_sampler_need(&g->sampler) == 0 || s->n_each_logprobs > 0 || g->on_logits ||
           (tern_constraint_binds(&g->constraint) && !tern_lease_takes_masks(s->lease)) ||
           (s->speculator && s->speculator->params.threshold > 0);
}

void tern_generation_rows(const tern_generation *g, size_t *n_rows, size_t *n_logits) {
    const tern_speculator *sp = g->s->speculator;
    *n_rows = 1 + (sp ? (size_t)sp->params.max_length : 0);
    *n_logits = needs_all(g) || g->constraint.grammar ? *n_rows : 0;
}

bool tern_generation_feeds(const tern_generation *g) { return g->n_left > 0; }

// Wants the scores that the sampler needs after each of the last n tokens, whose masks are ready.
static void want(tern_generation *g, size_t n, tern_wants *wants) {
    g->work.n_outputs = (int32_t)n;
    wants->top_k = n ? g->n_top : 0;
}

bool tern_generation_allowed(const tern_generation *g, const uint64_t **rows) {
    const tern_constraint *c = &g->constraint;
    bool some = g->is_bound && g->n_top && !g->drafting.n_each && g->work.n_outputs > 0;
    for (int32_t i = 0; i < g->work.n_outputs; i++)
        rows[i] = some ? c->bits + (size_t)i * c->n_words : NULL;
    return some;
}

// Tokens of the next piece, about n_most. For a session alone, all batches but the last are full.
// If the bits of a row depend on whether its chunk is short, a piece is short exactly where such a
// batch is.
static size_t piece_of(const tern_generation *g, size_t n_most) {
    size_t n_batch = (size_t)g->s->model->n_batch, rest = n_batch - g->n_fed % n_batch;
    size_t few = (size_t)tern_model_same_bits(g->s->model);
    if (rest > g->n_left) rest = g->n_left;
    size_t n = n_most < rest ? n_most : rest;
    if (few >= n_batch) return n;
    if (rest <= few) return rest;
    if (n <= few) n = few + 1;
    if (n < rest && rest - n <= few) n = rest > 2 * few + 1 ? rest - few - 1 : rest;
    return n < rest ? n : rest;
}

// The tokens that the timeline lacks.
static const int32_t *lacked(const tern_generation *g) {
    return tern_session_tokens(g->s) + g->s->n_tokens + g->gap;
}

// A piece of n that cuts no image, where that matters: it grows to the image's end if it can. The
// rest must not be short then, as above.
static size_t keep_images(const tern_generation *g, size_t n) {
    size_t n_batch = (size_t)g->s->model->n_batch, rest = n_batch - g->n_fed % n_batch;
    size_t few = (size_t)tern_model_same_bits(g->s->model);
    size_t whole = tern_lease_cut_near(g->s->lease, lacked(g), g->n_left, n);
    if (rest > g->n_left) rest = g->n_left;
    if (whole == n || few >= n_batch || whole >= rest || rest - whole > few) return whole;
    return tern_lease_cut_near(g->s->lease, lacked(g), g->n_left, rest);
}

// A batch can snapshot one position, so a piece ends at the requested fork, unless that would make
// a long piece a short one.
static size_t end_at_fork(const tern_generation *g, size_t n) {
    size_t first = g->s->n_tokens, few = (size_t)tern_model_same_bits(g->s->model);
    if (g->fork_at <= first || g->fork_at >= first + n) return n;
    size_t head = g->fork_at - first;
    bool any = few >= (size_t)g->s->model->n_batch;
    return any || (head > few && n - head > few) ? head : n;
}

// Whether forced tokens are said without asking the model: not if log-probabilities are kept, or
// the caller sees all scores.
static bool may_force(const tern_generation *g) {
    return tern_constraint_binds(&g->constraint) && !g->s->n_each_logprobs && !g->on_logits &&
           g->sampler.n_excluded == 0;
}

tern_status tern_generation_find_forced(tern_generation *g, bool *later, tern_error *err) {
    *later = false;
    if (!may_force(g)) return TERN_OK;
    return tern_constraint_find_forced(&g->constraint, later, err);
}

int32_t tern_generation_forced(const tern_generation *g) {
    return may_force(g) ? tern_constraint_forced(&g->constraint) : -1;
}

// Finds the tokens that may come and those that must; sets g->is_late if that takes long.
static tern_status plan_mask(tern_generation *g, tern_error *err) {
    if (!g->is_bound) return TERN_OK;
    TERN_TRY(tern_constraint_mask(&g->constraint, &g->is_late, err));
    return g->is_late ? TERN_OK : tern_generation_find_forced(g, &g->is_late, err);
}

static tern_status plan_piece(tern_generation *g, int32_t n_most, tern_wants *wants,
                              tern_error *err) {
    const tern_session *s = g->s;
    size_t n = piece_of(g, (size_t)n_most);
    if (g->is_prompt) n = end_at_fork(g, n);
    n = keep_images(g, n);
    bool chooses = g->is_prompt && n == g->n_left;
    if (chooses) TERN_TRY(plan_mask(g, err));
    if (g->is_late) return TERN_OK;
    want(g, chooses, wants);
    g->work.ids = lacked(g);
    g->work.n_ids = (int32_t)n;
    // Where another answer to the same prompt would begin, or another prompt.
    bool forks = g->fork_at > s->n_tokens && g->fork_at <= s->n_tokens + n;
    if (g->is_prompt) g->work.snapshot_at = (int32_t)(forks ? g->fork_at : g->stats.n_prompt - 1);
    return TERN_OK;
}

// Plans the last token, the forced tokens after it, and if there are none, the draft, if any.
static tern_status plan_step(tern_generation *g, tern_wants *wants, tern_error *err) {
    tern_session *s = g->s;
    tern_speculator *sp = s->speculator;
    size_t n_draft = 0, n_left = (size_t)g->max_tokens - g->n_said;
    size_t room = (size_t)s->n_context - s->n_tokens;
    g->step_ids[0] = g->id;
    if (sp) sp->draft.n = 0;
    TERN_TRY(plan_mask(g, err));
    if (g->is_late) return TERN_OK;
    if (sp && g->n_more == 0) {
        size_t n_max = (n_left < room ? n_left : room) - 1, next = s->n_tokens + 1;
        // A rejected draft must not have moved the text into a longer length class.
        size_t end = (size_t)tern_lease_rope_limit(s->lease, (int32_t)(next + n_max));
        if (end >= next) n_max = end - next;
        TERN_TRY(tern_lease_set_ids(s->lease, s->n_tokens, &g->id, 1, err));
        TERN_TRY(tern_speculator_draft(sp, tern_session_tokens(s), s->n_tokens + 1,
                                       n_max < TERN_DRAFT_MAX ? (int32_t)n_max : TERN_DRAFT_MAX,
                                       err));
        while (n_draft < (size_t)sp->draft.n && sp->draft.tokens[n_draft] < TERN_IMAGE_TOKENS_IDS)
            n_draft++; // rows of images cannot be guessed
        if (g->is_bound)
            TERN_TRY(tern_constraint_masks(&g->constraint, sp->draft.tokens, &n_draft, err));
        sp->draft.n = (int32_t)n_draft;
        memcpy(g->step_ids + 1, sp->draft.tokens, n_draft * sizeof *g->step_ids);
    }
    want(g, 1 + n_draft, wants);
    wants->few_ahead = sp != NULL || g->constraint.grammar;
    g->work.ids = g->step_ids;
    g->work.n_ids = 1 + (int32_t)(g->n_more + n_draft);
    if (!n_draft) return TERN_OK;
    g->work.snapshot_at = (int32_t)s->n_tokens + 1; // to return to after a rejected draft
    g->work.passing = true;
    return TERN_OK;
}

// The same with the device's own drafts, n_each tokens a run: the tokens that it reports are the
// model's choices already, in order, one to a row with one score each.
static void plan_drafting(tern_generation *g, int32_t n_each, tern_wants *wants) {
    const tern_session *s = g->s;
    size_t n_left = (size_t)g->max_tokens - g->n_said;
    g->step_ids[0] = g->id;
    g->work.ids = g->step_ids;
    g->work.n_ids = 1;
    g->drafting = (tern_drafting){.before = tern_session_tokens(s),
                                  .n_before = (int32_t)s->n_tokens,
                                  .n_each = n_each,
                                  .n_max = TERN_TOP_K_MAX,
                                  .n_wanted = n_left < INT32_MAX ? (int32_t)n_left : INT32_MAX};
    want(g, 1, wants);
    wants->drafting = &g->drafting;
}

tern_status tern_generation_plan(tern_generation *g, int32_t n_most, bool alone, tern_wants *wants,
                                 tern_error *err) {
    const tern_session *s = g->s;
    g->work = (tern_work){.lease = s->lease, .first_pos = (int32_t)s->n_tokens};
    g->n_before = s->n_tokens;
    g->n_ahead = 0;
    g->is_late = false;
    g->drafting.n_each = 0;
    g->is_bound = tern_constraint_binds(&g->constraint);
    g->n_top = needs_all(g) ? 0 : tern_sampler_need(&g->sampler);
    if (g->n_left > 0) {
        TERN_TRY(plan_piece(g, n_most, wants, err));
    } else {
        bool may = alone && s->speculator && s->n_each_logprobs == 0 && !g->constraint.grammar &&
                   !g->on_logits && tern_sampler_need(&g->sampler) == 1;
        int32_t n_each = may ? tern_device_drafts_choose(s->speculator) : 0;
        if (n_each)
            plan_drafting(g, n_each, wants);
        else
            TERN_TRY(plan_step(g, wants, err));
    }
    return TERN_OK;
}
