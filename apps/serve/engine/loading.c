// Models open and close: see registry.h.
//
//     CLOSED -- asked for --> WANTED -- there is memory --> OPENING --> OPEN
//        ^                                                               |
//        +----------- CLOSING <-- nobody uses it, and it has to go ------+
//
// A model has to go when it has been unused for a while, or when another one needs its memory and
// it is the least recently used. If all are in use, that one is *leaving*: its running work goes
// on, new requests for it wait until it has closed and opened again. So two models that do not fit
// together take turns, and neither waits for ever.
#include <stdint.h>
#include <string.h>
#include "apps/serve/engine/shared_grammar.h"
#include "apps/serve/engine/registry.h"
#include "apps/serve/http/serve_log.h"
#include "base/alloc.h"
#include "tern.h"
#include "tern_embed.h"
#include "base/os/os_time.h"
#include "base/status.h"

// ---- On the thread that opens and closes -------------------------------------------------------

static tern_status open_pieces(served *s, tern_progress_fn on_progress, tern_error *err) {
    tern_model_desc desc = s->registry->desc->opening;
    tern_opening *o;
    bool done = false;
    if (s->device) desc.device = s->device;
    desc.on_progress = on_progress;
    TERN_TRY(tern_model_open_begin(&o, s->about.path, &desc, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && !done) {
        if (tern_cancel_is_requested(&s->task.cancel))
            status = tern_fail(err, TERN_ERR_CANCELLED, "the server is stopping");
        else
            status = tern_model_open_poll(o, &done, &s->model, err);
    }
    tern_opening_close(o);
    return status;
}

// Sessions that cannot be opened are an error here, once, not for each client.
static tern_status measure_context(served *s, tern_error *err) {
    tern_embedding_info info;
    tern_session *probe;
    tern_embedding_get_info(s->model, &info);
    s->n_context = info.max_length;
    if (!s->generates) return TERN_OK;
    TERN_TRY(tern_session_open(&probe, s->model, &s->registry->desc->session, err));
    s->n_context = tern_session_n_context(probe);
    tern_session_close(probe);
    return TERN_OK;
}

static void look_at_model(served *s) {
    s->token_bytes = 0;
    tern_model_get_info(s->model, &s->info);
    // Else an encoder, or a model for transcription.
    tern_media_info media;
    tern_model_get_media_info(s->model, &media);
    s->generates = strcmp(s->info.head, "none") != 0 && !media.is_asr;
    for (int32_t i = 0; i < s->info.n_vocab; i++) {
        size_t n = 0;
        tern_token_text(s->model, i, &n);
        if (n > s->token_bytes) s->token_bytes = n;
    }
    tern_model_get_infill_info(s->model, &s->infill);
}

static prefix_cache_desc prefixes_of(const served *s) {
    const serve_desc *d = s->registry->desc;
    bool has_own_memory = s->info.device_memory.weights > 0; // else its memory is the host's
    return (prefix_cache_desc){
        .bytes = {[PREFIX_ON_DEVICE] = has_own_memory ? d->cache_device : d->cache_memory,
                  [PREFIX_IN_MEMORY] = has_own_memory ? d->cache_memory : 0,
                  [PREFIX_ON_DISK] = d->cache_disk},
        .files = {.folder = s->generates ? d->cache_folder : NULL,
                  .bytes = d->cache_disk,
                  .owners = s->registry->owners,
                  .n_owners = s->registry->n_owners,
                  .model = s->model,
                  .session = d->session}};
}

static void complain(void *user, const char *what) {
    (void)user;
    log_line("trouble", "%s", what);
}

static tern_status open_all(served *s, tern_progress_fn on_progress, tern_error *err) {
    const registry *r = s->registry;
    const serve_desc *d = r->desc;
    TERN_TRY(open_pieces(s, on_progress, err));
    look_at_model(s);
    scheduler_desc desc = {.slots = {.n_parallel = d->n_parallel, .prefixes = prefixes_of(s)},
                           .n_waiting_max = d->n_queue,
                           .wake = r->wake,
                           .complain = d->is_silent ? NULL : complain,
                           .user = r->user};
    tern_status status = measure_context(s, err);
    if (status == TERN_OK) status = scheduler_open(&s->scheduler, &desc, err);
    if (status != TERN_OK) served_close_now(s);
    return status;
}

static void run_open(task *e) {
    served *s = (served *)e;
    const registry *r = s->registry;
    open_all(s, r->is_first ? r->desc->opening.on_progress : NULL, &s->error);
}

void served_close_now(served *s) {
    scheduler_close(s->scheduler);
    formats_free(s);
    tern_model_close(s->model);
    s->scheduler = NULL;
    s->model = NULL;
    s->info = (tern_model_info){0};
}

static void run_close(task *e) { served_close_now((served *)e); }

// ---- Who waits ---------------------------------------------------------------------------------

static void wake_waiting(served *s, const tern_error *err) {
    model_wait *list = s->waiting;
    s->waiting = NULL;
    if (!err)
        for (const model_wait *w = list; w; w = w->next) s->n_users++; // before any is released
    for (model_wait *next; list; list = next) {
        next = list->next;
        list->model = NULL;
        list->ready(list, err);
    }
}

static void append_wanted(served *s) {
    served **end = &s->registry->wanted;
    while (*end) end = &(*end)->next_wanted;
    s->next_wanted = NULL;
    *end = s;
    s->state = SERVED_WANTED;
}

static void take_wanted(served *s) {
    served **at = &s->registry->wanted;
    while (*at != s) at = &(*at)->next_wanted;
    *at = s->next_wanted;
    s->state = SERVED_CLOSED;
}

// ---- Opening and closing -----------------------------------------------------------------------

static void go_on(registry *r);
static void done_open(task *e);

static void done_close(task *e) {
    served *s = (served *)e;
    served_close_now(s); // if it never ran: the server ends
    s->state = SERVED_CLOSED;
    s->is_leaving = false;
    s->bytes = (uint64_t)s->facts.file_bytes;
    s->keep_seconds = s->registry->desc->keep_seconds;
    if (s->registry->stopping) return;
    if (!s->registry->desc->is_silent) log_line("closed", "model=\"%s\"", s->about.name);
    if (s->waiting) append_wanted(s);
    go_on(s->registry);
}

static void submit(served *s, served_state state, void (*run)(task *e), void (*done)(task *e)) {
    s->state = state;
    s->task = (task){.run = run, .done = done};
    tasks_submit(s->registry->opener, &s->task);
}

static void start_close(served *s) {
    scheduler_view v;
    scheduler_look(s->scheduler, &v);
    s->counts.n_steps += v.n_steps;
    s->counts.n_step_jobs += v.n_step_jobs;
    prefix_cache_add_counts(&s->counts.prefixes, &v.prefixes.counts);
    submit(s, SERVED_CLOSING, run_close, done_close);
}

static void close_if_due(served *s, double now) {
    if (s->state != SERVED_OPEN || s->n_users > 0 || s->registry->stopping) return;
    if (s->is_leaving || (s->keep_seconds >= 0 && now - s->used >= s->keep_seconds)) start_close(s);
}

// It is open.
static void settle(served *s, double seconds) {
    s->state = SERVED_OPEN;
    s->used = tern_seconds();
    s->counts.n_loads++;
    s->counts.load_seconds += seconds;
    s->bytes = s->info.file_bytes;
    if (s->info.device_memory.now > s->bytes) s->bytes = s->info.device_memory.now;
    if (s->registry->desc->is_silent) return;
    log_line("opened", "model=\"%s\" seconds=%.3f device=\"%s\" context=%d", s->about.name, seconds,
             s->info.device, (int)s->n_context);
    if (s->info.template_guess)
        log_line("note", "model=\"%s\" %s", s->about.name, s->info.template_guess);
}

tern_status served_open_now(served *s, tern_error *err) {
    TERN_TRY(open_all(s, s->registry->desc->opening.on_progress, err));
    settle(s, s->info.load_seconds);
    return TERN_OK;
}

// ---- Memory ------------------------------------------------------------------------------------

// Bytes of models that are open or opening; with `all` also of those that are leaving or closing.
static uint64_t count_bytes(const registry *r, bool all) {
    uint64_t sum = 0;
    for (size_t i = 0; i < r->n; i++) {
        const served *s = r->list[i];
        bool goes = s->state == SERVED_CLOSING || s->is_leaving;
        if (s->state >= SERVED_OPENING && (all || !goes)) sum += s->bytes;
    }
    return sum;
}

// Unused models go first, then the least recently used one.
static bool goes_before(const served *a, const served *b) {
    if ((a->n_users == 0) != (b->n_users == 0)) return a->n_users == 0;
    return a->used < b->used;
}

static served *next_to_go(const registry *r) {
    served *best = NULL;
    for (size_t i = 0; i < r->n; i++) {
        served *s = r->list[i];
        if (s->state == SERVED_OPEN && !s->is_leaving && (!best || goes_before(s, best))) best = s;
    }
    return best;
}

// True: it fits now. Else models have begun to close for it.
static bool make_room(registry *r, uint64_t bytes) {
    uint64_t most = r->desc->models_bytes;
    if (most == 0) return true;
    for (served *s; count_bytes(r, false) + bytes > most && (s = next_to_go(r));) {
        s->is_leaving = true;
        close_if_due(s, tern_seconds());
    }
    return count_bytes(r, true) + bytes <= most;
}

// Keeps leaving models open if no caller waits for another model any more.
static void let_stay(registry *r) {
    for (size_t i = 0; i < r->n; i++) {
        served *s = r->list[i];
        if (s->state != SERVED_OPEN || !s->is_leaving || s->is_gone) continue;
        s->is_leaving = false;
        wake_waiting(s, NULL);
    }
}

static void refuse_size(served *s) {
    tern_error err = {0};
    tern_fail(&err, TERN_ERR_MEMORY,
              "model '%s' has %.2f GB of weights, and --models-memory is %.2f GB", s->about.name,
              (double)s->bytes * 1e-9, (double)s->registry->desc->models_bytes * 1e-9);
    wake_waiting(s, &err);
}

static bool is_any_going(const registry *r) {
    for (size_t i = 0; i < r->n; i++) {
        const served *s = r->list[i];
        if (s->state == SERVED_CLOSING || (s->state == SERVED_OPEN && s->is_leaving)) return true;
    }
    return false;
}

// One at a time: models that wait for memory open in the order of their requests.
static void go_on(registry *r) {
    while (r->wanted && !r->stopping) {
        served *s = r->wanted;
        if (s->is_short && is_any_going(r)) return;
        bool too_large = r->desc->models_bytes && s->bytes > r->desc->models_bytes;
        if (!too_large && !make_room(r, s->bytes)) return;
        take_wanted(s);
        s->is_short = false;
        if (too_large)
            refuse_size(s);
        else
            submit(s, SERVED_OPENING, run_open, done_open);
    }
}

// The count has only weights, and a GPU's memory is not the host's: if opening fails for lack of
// memory, it is tried again with another model closed. False: another error, or there is no other
// model.
static bool try_with_less(served *s) {
    served *other = s->error.status == TERN_ERR_MEMORY ? next_to_go(s->registry) : NULL;
    if (!other || !s->waiting) return false;
    s->is_short = true;
    s->state = SERVED_WANTED;
    s->next_wanted = s->registry->wanted;
    s->registry->wanted = s;
    other->is_leaving = true;
    close_if_due(other, tern_seconds());
    return true;
}

static void done_open(task *e) {
    served *s = (served *)e;
    s->state = SERVED_CLOSED;
    if (s->registry->stopping) { // no caller waits
        served_close_now(s);
        return;
    }
    if (s->model) {
        settle(s, s->info.load_seconds);
        wake_waiting(s, NULL);
        close_if_due(s, tern_seconds()); // perhaps all users have gone
    } else if (!try_with_less(s)) {
        if (!s->registry->desc->is_silent && !s->registry->is_first)
            log_line("failed", "model=\"%s\" reason=\"%s\"", s->about.name, s->error.message);
        wake_waiting(s, &s->error);
    }
    s->registry->is_first = false;
    go_on(s->registry);
}

// ---- From requests -----------------------------------------------------------------------------

void registry_ask(served *s, model_wait *w) {
    model_wait **end = &s->waiting;
    while (*end) end = &(*end)->next;
    w->next = NULL;
    w->model = s;
    *end = w;
    s->used = tern_seconds();
    if (s->registry->stopping) {
        tern_error err = {0};
        tern_fail(&err, TERN_ERR_CANCELLED, "the server is stopping");
        wake_waiting(s, &err);
    } else if (s->state == SERVED_OPEN && !s->is_leaving) {
        wake_waiting(s, NULL);
    } else if (s->state == SERVED_CLOSED) {
        append_wanted(s);
        go_on(s->registry);
    }
}

void registry_ask_first(registry *r, model_wait *w) {
    served *s = r->list[0];
    w->next = NULL;
    w->model = s;
    s->waiting = w;
    r->is_first = true;
    submit(s, SERVED_OPENING, run_open, done_open);
}

void registry_forget(model_wait *w) {
    served *s = w->model;
    if (!s) return;
    model_wait **at = &s->waiting;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    w->model = NULL;
    if (s->waiting || s->state != SERVED_WANTED) return;
    take_wanted(s);
    let_stay(s->registry);
    go_on(s->registry);
}

void registry_hold(served *s) { s->n_users++; }

void registry_release(served *s) {
    s->n_users--;
    s->used = tern_seconds();
    close_if_due(s, s->used);
}

void registry_keep(served *s, double seconds) { s->keep_seconds = seconds; }

void registry_drop(served *s) {
    if (s->state != SERVED_OPEN) return;
    s->is_leaving = true;
    close_if_due(s, tern_seconds());
}

void registry_take(registry *r) { tasks_take_done(r->opener); }

void registry_tick(registry *r, double now) {
    for (size_t i = 0; i < r->n; i++) {
        const served *s = r->list[i];
        close_if_due(r->list[i], now);
        if (s->state == SERVED_OPEN && r->desc->cache_folder) scheduler_tick(s->scheduler);
    }
}

void registry_stop(registry *r) {
    tern_error err = {0};
    r->stopping = true;
    tern_fail(&err, TERN_ERR_CANCELLED, "the server is stopping");
    for (size_t i = 0; i < r->n; i++) {
        served *s = r->list[i];
        if (s->state == SERVED_OPEN) scheduler_stop(s->scheduler);
        if (s->state == SERVED_OPENING) tern_cancel_request(&s->task.cancel);
        wake_waiting(s, &err);
    }
}
