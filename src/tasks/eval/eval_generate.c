// Tasks that generate: the model's greedy text after the question, up to a stop, is the answer.
//
// Several items are answered at once, in a group: the weights are read once for all, and the
// examples, with which all prompts begin, are computed once: a session is forked for each item from
// the one that read the first prompt. Items are counted, and written to the results file, in the
// order of their lines, whichever is done first.
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "tasks/eval/eval_run.h"

#define N_PARALLEL 8
#define N_WAITING  4 // items for each that runs: those done early wait for the ones before

typedef struct waiting { // an item
    tern_eval_record record;
    tern_session *session; // NULL: done
    tern_strbuf answer, right;
    bool was_known, is_done;
    size_t line;
    tern_error why;
    struct waiting *next;
    struct tern_eval_generator *of;
} waiting;

struct tern_eval_generator {
    tern_group *group;
    waiting *first, *last;
    int n_running, n_waiting;
    bool has_front;
};

static void free_waiting(waiting *w) {
    tern_session_close(w->session);
    tern_strbuf_free(&w->answer);
    tern_strbuf_free(&w->right);
    tern_free(w);
}

void tern_eval_generate_close(tern_eval_job *r) {
    tern_eval_generator *g = r->generator;
    if (!g) return;
    tern_group_close(g->group); // cancels those that run; their sessions are closed below
    while (g->first) {
        waiting *next = g->first->next;
        free_waiting(g->first);
        g->first = next;
    }
    tern_free(g);
    r->generator = NULL;
}

static tern_status open_generator(tern_eval_job *r, tern_error *err) {
    const int32_t n_context = tern_session_n_context(r->session);
    if (r->generator) return TERN_OK;
    if (r->file.max_tokens >= n_context)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: an answer of %d tokens (max_gen_toks) leaves no room for a question "
                         "in a context of %d",
                         r->file.name, r->file.max_tokens, (int)n_context);
    r->generator = tern_alloc(TERN_MEM_MISC, sizeof *r->generator);
    if (!r->generator) return tern_fail_memory(err, sizeof *r->generator);
    return tern_group_open(&r->generator->group, r->session->model, NULL, err);
}

// ---- Answers -----------------------------------------------------------------------------------

// Only whole characters of UTF-8, and no zero bytes.
static bool on_text(void *user, const char *text, size_t n) {
    waiting *w = user;
    for (size_t i = 0; i < n;) {
        uint32_t code = 0;
        int length = tern_utf8_decode(text + i, n - i, &code);
        if (length > 0 && code)
            tern_strbuf_append(&w->answer, text + i, (size_t)length);
        else
            tern_strbuf_puts(&w->answer, "\xEF\xBF\xBD");
        i += length > 0 ? (size_t)length : 1;
    }
    return true;
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *why) {
    waiting *w = user;
    (void)stats;
    w->why = *why;
    w->is_done = true;
    w->of->n_running--;
    tern_session_close(session);
    w->session = NULL;
}

// The item's metrics: for each filter whether what it takes from the answer is right.
static tern_status judge(const tern_eval_job *r, waiting *w, tern_error *err) {
    const tern_str answer = {tern_strbuf_text(&w->answer), w->answer.len};
    const tern_str right = {tern_strbuf_text(&w->right), w->right.len};
    tern_strbuf taken = {0};
    tern_status status = TERN_OK;
    for (int i = 0; i < r->file.n_filters && status == TERN_OK; i++) {
        const tern_eval_filter *filter = &r->file.filters[i];
        char name[sizeof filter->name + 16];
        bool same = false;
        status = tern_eval_filter_apply(filter, answer, &taken, err);
        const tern_str got = {tern_strbuf_text(&taken), taken.len};
        if (status == TERN_OK)
            status = tern_eval_answer_matches(&r->file.match, got, right, &same, err);
        snprintf(name, sizeof name, "exact_match%s%s", *filter->name ? "," : "", filter->name);
        tern_eval_put_metric(&w->record, name, same);
    }
    tern_strbuf_free(&taken);
    return status;
}

static tern_status count(tern_eval_job *r, waiting *w, tern_error *err) {
    tern_error why = w->why, fault = {0};
    tern_status status = why.status;
    if (status == TERN_OK && w->answer.failed) status = tern_fail_memory(&why, w->answer.len);
    if (status == TERN_OK) status = judge(r, w, &why);
    if (status != TERN_OK) {
        tern_lines at = {.path = r->lines.path, .number = w->line};
        (void)tern_lines_fail(&at, &fault, status, why.message);
        return tern_eval_run_leave_out(r, status, &fault, err);
    }
    w->record.answer = w->answer.ptr ? w->answer.ptr : (char[]){""};
    return tern_eval_run_count(r, &w->record, w->was_known, err);
}

// Counts what is done and has nothing before it.
static tern_status count_first(tern_eval_job *r, tern_error *err) {
    tern_eval_generator *g = r->generator;
    while (g->first && g->first->is_done) {
        waiting *w = g->first;
        g->first = w->next;
        if (!g->first) g->last = NULL;
        g->n_waiting--;
        tern_status status = count(r, w, err);
        free_waiting(w);
        TERN_TRY(status);
    }
    return TERN_OK;
}

// Until fewer than n items run and wait.
static tern_status step_until(tern_eval_job *r, int n_running, int n_waiting, tern_error *err) {
    tern_eval_generator *g = r->generator;
    TERN_TRY(count_first(r, err));
    while (g->n_running > n_running || g->n_waiting > n_waiting) {
        TERN_TRY(tern_group_step(g->group, NULL, err));
        TERN_TRY(count_first(r, err));
        if (!tern_progress(r->desc->on_progress, r->desc->user, r->task->name, r->done))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    return TERN_OK;
}

// ---- Questions ---------------------------------------------------------------------------------

// The prompt's last tokens, as many as leave room for the answer.
static void cut_prompt(tern_eval_job *r, bool *cut) {
    size_t most = (size_t)(tern_session_n_context(r->session) - r->file.max_tokens);
    *cut = r->context.n > most;
    if (!*cut) return;
    memmove(r->context.ids, r->context.ids + r->context.n - most, most * sizeof *r->context.ids);
    r->context.n = most;
}

// Forks a session that has the prompt's beginning in common with the first prompt.
static tern_status fork_front(tern_eval_job *r, tern_session **out, tern_error *err) {
    const tern_ids *ids = &r->context;
    if (!r->generator->has_front)
        TERN_TRY(tern_session_sync(r->session, ids->ids, ids->n - 1, NULL, err));
    r->generator->has_front = true;
    const int32_t *front = tern_session_tokens(r->session);
    size_t n = tern_session_n_tokens(r->session), i = 0;
    if (n > ids->n - 1) n = ids->n - 1;
    while (i < n && front[i] == ids->ids[i]) i++;
    return tern_session_fork(out, r->session, i, err);
}

static tern_status begin(tern_eval_job *r, waiting *w, tern_error *err) {
    const tern_sampling sampling = {.temperature = r->file.temperature, .seed = w->record.item + 1};
    const char *stops[TERN_EVAL_LIST_MAX];
    for (int i = 0; i < r->file.n_stops; i++) stops[i] = r->file.stops[i];
    const tern_generate_params params = {.sampling = &sampling,
                                         .max_tokens = r->file.max_tokens,
                                         .stops = stops,
                                         .n_stops = (size_t)r->file.n_stops,
                                         .on_text = on_text,
                                         .on_end = on_end,
                                         .user = w};
    TERN_TRY(tern_eval_run_front(r, 0, &r->text, err));
    const tern_str text = {tern_strbuf_text(&r->text), r->text.len};
    TERN_TRY(tern_eval_run_encode(r, text, true, &r->context, err));
    if (r->context.n == 0) return tern_fail(err, TERN_ERR_FORMAT, "the question has no tokens");
    cut_prompt(r, &w->record.scores.cut);
    TERN_TRY(fork_front(r, &w->session, err));
    TERN_TRY(tern_group_add(w->of->group, w->session, r->context.ids, r->context.n, &params, err));
    w->of->n_running++;
    return TERN_OK;
}

tern_status tern_eval_generate(tern_eval_job *r, const tern_eval_record *record, const char *known,
                               tern_error *err) {
    TERN_TRY(open_generator(r, err));
    tern_eval_generator *g = r->generator;
    const int n = r->desc->n_parallel ? r->desc->n_parallel : N_PARALLEL;
    TERN_TRY(step_until(r, n - 1, n * N_WAITING - 1, err));
    waiting *w = tern_alloc(TERN_MEM_MISC, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    *w = (waiting){.record = *record, .of = g, .line = r->lines.number};
    *(g->last ? &g->last->next : &g->first) = w;
    g->last = w;
    g->n_waiting++;
    const tern_strbuf *right = tern_eval_continuation(&r->item, 0);
    tern_strbuf_append(&w->right, right->ptr, right->len);
    w->was_known = w->is_done = known != NULL;
    if (known) tern_strbuf_puts(&w->answer, known);
    if (w->right.failed) return tern_fail_memory(err, right->len);
    tern_status status = known ? TERN_OK : begin(r, w, &w->why);
    if (status == TERN_OK) return TERN_OK;
    w->is_done = true; // and will be left out, or end the run
    w->why.status = status;
    return TERN_OK;
}

tern_status tern_eval_generate_finish(tern_eval_job *r, tern_error *err) {
    return r->generator ? step_until(r, 0, 0, err) : TERN_OK;
}
