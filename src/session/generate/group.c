// Groups: sessions of one model that are stepped together.
//
// A step plans for every session: first those that wait for their next token, then pieces of
// prompts and of timelines that are computed again, in turn. It is then computed in one batch or,
// if the model cannot take all at once, in several. Whatever a callback does (add, cancel, close
// another session), the plan stays valid: sessions that end leave the plan, and new ones wait for
// the next step.
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "session/generate/generation.h"
#include "session/generate/pace.h"

#define LEAST_PIECE 16 // tokens of one session; prompts that come later wait for their turn
#define FIRST_PIECE 8  // beside answers, before its cost is known

typedef struct planned {
    tern_generation *g; // NULL: it has ended meanwhile
    tern_wants wants;   // of the session alone
    bool feeds;
} planned;

struct tern_group {
    tern_model *model;
    int32_t n_piece, n_reserve;
    bool finds_piece; // n_piece and its timing are measured, not given by the caller
    tern_pace pace;
    double step_began;
    int32_t n_fed;                    // rows of prompts in this step
    bool has_answers;                 // in it
    tern_generation **running;        // [n_running] in the order of adding
    size_t n_running, capacity, turn; // turn: whose piece comes first
    tern_scratch *scratch;
    // The step: plan[next .. next + n_now) is being computed.
    planned *plan;
    tern_work *works; // [n_planned] of the plan
    size_t n_planned, next, n_now, plan_capacity;
    bool in_step, in_flight, in_callback, is_closing;
    bool awaits;                    // the step only waits for the helper
    tern_helper helper;             // of grammars
    const tern_generation *calling; // in a callback: its session cannot be closed now; NULL: none
    size_t n_calls;                 // calls in progress on the group; closing it waits
    tern_wants wants;               // of its sessions together
    tern_computation computation;
    double started;
};

tern_status tern_group_open(tern_group **out, tern_model *model, const tern_group_desc *desc,
                            tern_error *err) {
    tern_clear(err);
    static const tern_group_desc defaults = {0};
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(model);
    if (!desc) desc = &defaults;
    if (model->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", model->path);
    if (desc->n_piece < 0 || desc->n_reserve < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a group with pieces of %d and room for %d",
                         (int)desc->n_piece, (int)desc->n_reserve);
    tern_group *group = tern_alloc(TERN_MEM_SESSION, sizeof *group);
    if (!group) return tern_fail_memory(err, sizeof *group);
    group->model = model;
    tern_model_hold(model);
    group->finds_piece = desc->n_piece == 0;
    group->n_piece = desc->n_piece ? desc->n_piece : FIRST_PIECE;
    if (group->n_piece > model->n_batch) group->n_piece = model->n_batch;
    group->n_reserve = desc->n_reserve ? desc->n_reserve : 256;
    tern_helper_open(&group->helper);
    *out = group;
    return TERN_OK;
}

// ---- Ending ------------------------------------------------------------------------------------

static void forget(tern_group *group, const tern_generation *g) {
    size_t i = 0;
    for (size_t k = group->next; k < group->n_planned; k++)
        if (group->plan[k].g == g) group->plan[k].g = NULL;
    while (i < group->n_running && group->running[i] != g) i++;
    if (i == group->n_running) return;
    group->n_running--;
    memmove(group->running + i, group->running + i + 1,
            (group->n_running - i) * sizeof *group->running);
    if (group->turn > i) group->turn--;
}

static void end(tern_group *group, tern_generation *g) {
    tern_generate_stats stats;
    tern_session *s = g->s;
    tern_end_fn on_end = g->on_end;
    void *user = g->user;
    tern_error failure = g->failure;
    forget(group, g);
    group->in_callback = true;
    group->calling = g;
    failure.status = tern_generation_end(g, failure.status, &stats, &failure);
    group->calling = NULL;
    s->group = NULL;
    if (s->is_closed) on_end = NULL; // in its own callback
    tern_session_end(s);
    if (on_end) on_end(user, s, &stats, &failure);
    group->in_callback = false;
}

// Ends all that are over. Callbacks may add sessions and cancel others.
static void end_those_over(tern_group *group) {
    for (size_t i = 0; i < group->n_running;) {
        tern_generation *g = group->running[i];
        if (!g->is_over || g->in_flight) {
            i++;
            continue;
        }
        end(group, g);
        i = 0;
    }
}

static void fail(tern_generation *g, tern_status status, const tern_error *why) {
    g->is_over = true;
    g->failure = *why;
    g->failure.status = status;
}

// Ends those that were cancelled: requests come from any thread, so they are polled here.
static void take_requests(tern_group *group) {
    for (size_t i = 0; i < group->n_running; i++) {
        tern_generation *g = group->running[i];
        if (!g->is_over && tern_cancel_is_requested(&g->s->cancel))
            tern_generation_stop(g, TERN_STOP_CALLER);
    }
}

static void land(tern_group *group) {
    for (size_t i = group->next; i < group->next + group->n_now; i++)
        if (group->plan[i].g) group->plan[i].g->in_flight = false;
    group->in_flight = false;
}

// Drops the results of the batch in flight.
static void give_up_step(tern_group *group) {
    if (group->in_flight) tern_computation_cancel(&group->computation);
    land(group);
    group->n_planned = group->next = group->n_now = 0;
    group->in_step = group->awaits = false;
}

bool tern_group_leave(tern_session *s) {
    tern_group *group = s->group;
    tern_generation *g = s->running;
    if (!group || !g) return true;
    if (g == group->calling) return false;
    if (g->in_flight) give_up_step(group);
    forget(group, g);
    g->reason = TERN_STOP_CALLER;
    tern_generation_end(g, TERN_OK, NULL, NULL);
    s->group = NULL;
    tern_session_end(s);
    return true;
}

static void free_group(tern_group *group) {
    group->n_calls = 1; // callbacks find it in use
    give_up_step(group);
    while (group->n_running > 0) {
        tern_generation *g = group->running[group->n_running - 1];
        if (!g->is_over) g->reason = TERN_STOP_CALLER;
        end(group, g);
    }
    tern_helper_close(&group->helper);
    tern_scratch_give(group->model, group->scratch);
    tern_free(group->running);
    tern_free(group->plan);
    tern_free(group->works);
    tern_model_let_go(group->model);
    tern_free(group);
}

void tern_group_close(tern_group *group) {
    if (!group || group->is_closing) return;
    group->is_closing = true;
    if (group->n_calls == 0) free_group(group);
}

static void leave(tern_group *group) {
    if (--group->n_calls == 0 && group->is_closing) free_group(group);
}

void tern_group_stop(tern_session *s) {
    tern_group *group = s->group;
    if (!group || !s->running) return;
    tern_generation_stop(s->running, TERN_STOP_CALLER);
    if (group->in_callback) return;
    group->n_calls++;
    end_those_over(group);
    leave(group);
}

// ---- Adding ------------------------------------------------------------------------------------

static tern_status grow_plan(tern_group *group, tern_error *err) {
    size_t n = group->capacity;
    if (group->plan_capacity >= n) return TERN_OK;
    planned *plan = tern_realloc(TERN_MEM_SESSION, group->plan, n * sizeof *plan);
    if (!plan) return tern_fail_memory(err, n * sizeof *plan);
    group->plan = plan;
    tern_work *works = tern_realloc(TERN_MEM_SESSION, group->works, n * sizeof *works);
    if (!works) return tern_fail_memory(err, n * sizeof *works);
    group->works = works;
    group->plan_capacity = n;
    return TERN_OK;
}

// Reserves memory for a step of all running sessions. Not while one is in flight, which uses the
// same memory.
static tern_status make_ready(tern_group *group, tern_error *err) {
    size_t rows = 0, most = (size_t)group->model->n_batch;
    bool any_logits = false;
    TERN_TRY(grow_plan(group, err));
    for (size_t i = 0; i < group->n_running; i++) {
        size_t n_rows, n_logits;
        tern_generation_rows(group->running[i], &n_rows, &n_logits);
        rows += n_rows;
        any_logits |= n_logits > 0;
    }
    if (rows > most) rows = most;
    size_t n_logits = any_logits ? rows : 0;
    if (!group->scratch)
        return tern_scratch_take(group->model, rows, n_logits, &group->scratch, err);
    return tern_scratch_grow(group->scratch, group->model, rows, n_logits, err);
}

static tern_status check_added(const tern_group *group, const tern_session *s, tern_error *err) {
    if (s->model != group->model)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the session is of another model than the group");
    if (s->desc.profile)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a session with a profile runs alone");
    if (group->is_closing) return tern_fail(err, TERN_ERR_ARGUMENT, "the group is being closed");
    return TERN_OK;
}

tern_status tern_group_add(tern_group *group, tern_session *s, const int32_t *ids, size_t n_ids,
                           const tern_generate_params *params, tern_error *err) {
    tern_clear(err);
    tern_generation *g;
    TERN_NEED(group);
    TERN_NEED(s);
    TERN_TRY(check_added(group, s, err));
    const tern_generation_desc desc = {
        .ids = ids, .n_ids = n_ids, .params = params, .n_reserve = group->n_reserve};
    if (tern_array_reserve(TERN_MEM_SESSION, &group->running, &group->capacity, group->n_running,
                           1) != 0)
        return tern_fail_memory(err, (group->n_running + 1) * sizeof *group->running);
    TERN_TRY(tern_session_check_idle(s, err));
    tern_session_begin(s);
    tern_status status = tern_generation_begin(&g, s, &desc, err);
    if (status != TERN_OK) {
        tern_session_end(s);
        return status;
    }
    s->group = group;
    g->constraint.is_beside = true;
    g->constraint.helper = &group->helper;
    g->constraint.cancel = &s->cancel;
    group->running[group->n_running++] = g;
    status = group->in_step ? TERN_OK : make_ready(group, err);
    if (status != TERN_OK) tern_group_leave(s);
    return status;
}

// ---- Planning a step ---------------------------------------------------------------------------

// A session that runs out of memory ends; the others go on.
static int32_t plan_one(tern_group *group, tern_generation *g, int32_t n_most) {
    planned *p = &group->plan[group->n_planned];
    tern_error err = {0};
    *p = (planned){.g = g, .feeds = tern_generation_feeds(g)};
    tern_cancel_scope scope;
    tern_cancel_enter(&scope, &g->s->cancel); // masks and drafts may take long
    tern_status status = tern_generation_plan(g, n_most, group->n_running == 1, &p->wants, &err);
    tern_cancel_leave(&scope);
    if (status == TERN_ERR_CANCELLED && tern_cancel_is_requested(&g->s->cancel)) {
        tern_generation_stop(g, TERN_STOP_CALLER);
        return 0;
    }
    if (status == TERN_OK && !g->is_late)
        status = tern_lease_reserve(g->s->lease, g->work.first_pos + g->work.n_ids, &err);
    if (status != TERN_OK) {
        fail(g, status, &err);
        return 0;
    }
    if (g->is_late) return 0;
    group->works[group->n_planned++] = g->work;
    return g->work.n_ids;
}

// After a step: sets how many rows of prompts the next ones have.
static void find_piece(tern_group *group) {
    if (!group->has_answers) return;
    tern_pace_note(&group->pace, group->n_fed, tern_seconds() - group->step_began);
    int32_t rows = tern_pace_rows(&group->pace, group->model->n_batch);
    if (group->finds_piece && rows > 0) group->n_piece = rows;
}

// Whether the prompts wait: for others, to be read together, or for a step that measures the time
// without prompts.
static bool prompts_wait(tern_group *group) {
    if (group->finds_piece && group->n_planned > 0 && tern_pace_rests(&group->pace)) return true;
    int32_t n_prompts = 0, n_answers = (int32_t)group->n_planned;
    int64_t n_rows = 0;
    for (size_t i = 0; i < group->n_running; i++) {
        const tern_generation *g = group->running[i];
        if (g->is_over || !tern_generation_feeds(g)) continue;
        n_prompts++;
        n_rows += (int64_t)g->n_left;
    }
    return group->finds_piece && tern_pace_waits(&group->pace, n_prompts, n_rows, n_answers,
                                                 group->n_piece, tern_seconds());
}

static void plan_pieces(tern_group *group, int32_t budget) {
    size_t n = group->n_running, first = group->turn, n_waiting = 0;
    for (size_t i = 0; i < n; i++)
        n_waiting += !group->running[i]->is_over && tern_generation_feeds(group->running[i]);
    for (size_t i = 0; i < n && budget > 0; i++) {
        size_t at = (first + i) % n;
        tern_generation *g = group->running[at];
        if (g->is_over || !tern_generation_feeds(g)) continue;
        int32_t piece = budget / (int32_t)n_waiting;
        if (piece < LEAST_PIECE) piece = LEAST_PIECE;
        budget -= plan_one(group, g, piece < budget ? piece : budget);
        n_waiting--;
        group->turn = at + 1;
    }
}

static void plan_step(tern_group *group) {
    group->n_planned = group->next = group->n_now = 0;
    int32_t n_tokens = 0, n_batch = group->model->n_batch;
    for (size_t i = 0; i < group->n_running; i++) {
        tern_generation *g = group->running[i];
        if (!g->is_over && g->is_settled && !tern_generation_feeds(g))
            n_tokens += plan_one(group, g, 0);
    }
    int32_t left = n_batch - n_tokens, most = group->n_planned ? group->n_piece : n_batch;
    if (!prompts_wait(group)) plan_pieces(group, left > 0 && left < most ? left : most);
    group->n_fed = 0;
    for (size_t i = 0; i < group->n_planned; i++)
        if (group->plan[i].feeds) group->n_fed += group->works[i].n_ids;
    group->has_answers = n_tokens > 0;
}

// ---- Computing it ------------------------------------------------------------------------------

// How many of the planned works the next batch can take.
static size_t count_next(const tern_group *group) {
    int32_t n_tokens = 0, most = tern_model_works_max(group->model);
    size_t i = group->next;
    const tern_work *first = &group->works[i];
    for (; i < group->n_planned && i - group->next < (size_t)most; i++) {
        const tern_work *w = &group->works[i];
        n_tokens += w->n_ids;
        if (n_tokens > group->model->n_batch || !group->plan[i].g ||
            !tern_lease_can_share_batch(first->lease, w->lease))
            break;
    }
    return i - group->next;
}

static void want(tern_group *group) {
    tern_scratch *x = group->scratch;
    tern_wants *w = &group->wants;
    size_t row = 0;
    *w = (tern_wants){.outputs = {"logits"}, .top_ids = x->top_ids, .top_logits = x->top_logits};
    for (size_t i = group->next; i < group->next + group->n_now; i++) {
        const tern_wants *one = &group->plan[i].wants;
        const int32_t n_rows = group->works[i].n_outputs;
        if (n_rows == 0) continue;
        if (one->top_k == 0) w->data[0] = x->logits;
        if (one->top_k > w->top_k) w->top_k = one->top_k;
        w->few_ahead |= one->few_ahead;
        if (tern_generation_allowed(group->plan[i].g, x->allowed + row)) w->allowed = x->allowed;
        if (one->drafting) w->drafting = one->drafting;
        row += (size_t)n_rows;
    }
}

// A batch of one session can be cancelled midway.
static const tern_cancel *request_of(const tern_group *group) {
    const tern_generation *g = group->n_now == 1 ? group->plan[group->next].g : NULL;
    return g ? &g->s->cancel : NULL;
}

// Whether the batch failed because of that: the session's generation is then over, and the step
// continues.
static bool was_stopped(tern_group *group, tern_status status, tern_error *err) {
    if (status != TERN_ERR_CANCELLED || !tern_cancel_is_requested(request_of(group))) return false;
    tern_generation_stop(group->plan[group->next].g, TERN_STOP_CALLER);
    group->next++;
    group->n_now = 0;
    tern_clear(err);
    return true;
}

static tern_status begin_batch(tern_group *group, tern_error *err) {
    tern_cancel_scope scope;
    group->n_now = count_next(group);
    want(group);
    group->started = tern_seconds();
    tern_cancel_enter(&scope, request_of(group));
    tern_status status =
        tern_computation_begin(&group->computation, group->model, group->works + group->next,
                               (int32_t)group->n_now, &group->wants, err);
    tern_cancel_leave(&scope);
    return status;
}

// Begins the next batch of the step; if none is left, the step is over.
static tern_status begin_next(tern_group *group, tern_error *err) {
    tern_status status;
    do {
        while (group->next < group->n_planned && !group->plan[group->next].g) group->next++;
        group->n_now = 0;
        if (group->next == group->n_planned) {
            if (group->in_step) find_piece(group);
            group->in_step = false;
            return TERN_OK;
        }
        status = begin_batch(group, err);
    } while (was_stopped(group, status, err));
    group->in_step = group->in_flight = status == TERN_OK;
    for (size_t i = group->next; group->in_flight && i < group->next + group->n_now; i++)
        group->plan[i].g->in_flight = true;
    return status;
}

// Continues generations that stopped in the middle of a token, as far as their grammars allow.
static void settle_some(tern_group *group) {
    for (size_t i = 0; i < group->n_running && !group->is_closing; i++) {
        tern_generation *g = group->running[i];
        tern_error err = {0};
        if (g->is_over || g->is_settled || tern_constraint_is_away(&g->constraint)) continue;
        group->in_callback = true;
        group->calling = g;
        tern_status status = tern_generation_settle(g, &err);
        group->calling = NULL;
        group->in_callback = false;
        if (status != TERN_OK) fail(g, status, &err);
        i = SIZE_MAX; // the callback may have closed others
    }
}

// Whether some session could take part in a step, or end.
static bool is_any_ready(const tern_group *group) {
    bool any = group->n_running == 0;
    for (size_t i = 0; i < group->n_running && !any; i++) {
        const tern_generation *g = group->running[i];
        any = g->is_over || tern_cancel_is_requested(&g->s->cancel) ||
              !tern_constraint_is_away(&g->constraint);
    }
    return any;
}

static tern_status begin_step(tern_group *group, tern_error *err) {
    if (group->in_step || group->in_callback)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the group's last step is not done yet");
    take_requests(group);
    end_those_over(group);
    settle_some(group);
    end_those_over(group);
    if (group->is_closing) return tern_fail(err, TERN_ERR_CANCELLED, "the group was closed");
    TERN_TRY(make_ready(group, err));
    group->step_began = tern_seconds();
    plan_step(group);
    group->awaits = group->in_step = group->n_planned == 0 && !is_any_ready(group);
    return group->awaits ? TERN_OK : begin_next(group, err);
}

tern_status tern_group_begin(tern_group *group, tern_error *err) {
    tern_clear(err);
    TERN_NEED(group);
    group->n_calls++;
    tern_status status = begin_step(group, err);
    leave(group);
    return status;
}

// The batch is computed: every session continues with its rows.
static void take_results(tern_group *group) {
    const tern_scratch *x = group->scratch;
    size_t n_vocab = (size_t)group->model->info.n_vocab, row = 0, n = group->n_now;
    size_t first = group->next, top_k = (size_t)group->wants.top_k;
    double seconds = tern_seconds() - group->started;
    for (size_t i = first; i < first + n; i++)
        if (n > 1 && group->plan[i].feeds) seconds = 0; // mostly a prompt's
    group->in_callback = true;
    for (size_t i = first; i < first + n; i++) {
        tern_generation *g = group->plan[i].g;
        const tern_scores scores = {.logits = x->logits ? x->logits + row * n_vocab : NULL,
                                    .top_ids = x->top_ids + row * top_k,
                                    .top_logits = x->top_logits + row * top_k,
                                    .top_k = (int32_t)top_k,
                                    .candidates = x->candidates};
        tern_error err = {0};
        row += (size_t)group->works[i].n_outputs;
        if (!g || g->is_over || group->is_closing) continue; // cancelled meanwhile
        group->calling = g;
        tern_status status = tern_generation_take(g, &scores, seconds, &err);
        group->calling = NULL;
        if (status != TERN_OK) fail(g, status, &err);
    }
    group->in_callback = false;
    group->next = first + n;
    group->n_now = 0;
}

static tern_status go_on(tern_group *group, tern_error *err) {
    bool done = true;
    if (group->awaits) {
        group->awaits = group->in_step = !is_any_ready(group);
        return TERN_OK;
    }
    if (group->in_flight) {
        tern_cancel_scope scope;
        tern_cancel_enter(&scope, request_of(group));
        tern_status status = tern_computation_poll(&group->computation, &done, err);
        tern_cancel_leave(&scope);
        if (status == TERN_OK && !done) return TERN_OK;
        land(group);
        if (!was_stopped(group, status, err)) {
            TERN_TRY(status);
            take_requests(group);
            take_results(group);
        }
        end_those_over(group);
    }
    return group->is_closing ? TERN_OK : begin_next(group, err);
}

static tern_status poll_step(tern_group *group, bool *done, size_t *n_running, tern_error *err) {
    *done = true;
    if (group->in_callback)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a group is not stepped in a callback");
    tern_status status = group->in_step ? go_on(group, err) : TERN_OK;
    if (status != TERN_OK || group->is_closing) give_up_step(group);
    if (!group->in_step) {
        take_requests(group);
        end_those_over(group);
    }
    *done = !group->in_step;
    if (n_running) *n_running = group->is_closing ? 0 : group->n_running;
    return status;
}

tern_status tern_group_poll(tern_group *group, bool *done, size_t *n_running, tern_error *err) {
    tern_clear(err);
    TERN_NEED(group);
    TERN_NEED(done);
    group->n_calls++;
    tern_status status = poll_step(group, done, n_running, err);
    leave(group);
    return status;
}

// A step with nothing to compute ends soon, even if the helper is not done: the caller may want to
// add a session.
static void wait_some(tern_group *group) {
    for (int i = 0; group->awaits && i < 10; i++) {
        if (is_any_ready(group)) break;
        tern_sleep(5e-4);
    }
    if (group->awaits) group->awaits = group->in_step = false;
}

tern_status tern_group_step(tern_group *group, size_t *n_running, tern_error *err) {
    tern_clear(err);
    if (n_running) *n_running = group ? group->n_running : 0;
    TERN_NEED(group);
    group->n_calls++;
    tern_status status = begin_step(group, err);
    wait_some(group);
    for (bool done = false; status == TERN_OK && !done;)
        status = poll_step(group, &done, n_running, err);
    if (group->is_closing && status == TERN_ERR_CANCELLED) status = TERN_OK, tern_clear(err);
    if (group->is_closing && n_running) *n_running = 0;
    leave(group);
    return status;
}

void tern_group_get_info(const tern_group *group, tern_group_info *info) {
    if (info) *info = (tern_group_info){0};
    if (!group || !info) return;
    *info = (tern_group_info){.n_running = group->n_running,
                              .n_piece = group->n_piece,
                              .step_seconds = group->pace.step_seconds,
                              .row_seconds = tern_pace_row_seconds(&group->pace),
                              .prompt_seconds = tern_pace_prompt_seconds(&group->pace)};
}
