#include "apps/serve/engine/slots.h"

#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/status.h"

// ---- What other slots have ---------------------------------------------------------------------

static prefix_key key_of(const job *j) {
    return (prefix_key){j->owner, j->n_loras ? j->lora_scales : NULL};
}

static bool is_same_key(const job *a, const job *b) {
    return a->owner == b->owner && a->n_loras == b->n_loras &&
           !memcmp(a->lora_scales, b->lora_scales, a->n_loras * sizeof *a->lora_scales);
}

static size_t common_prefix(const job *a, const job *b) {
    size_t n = 0, most = a->n_ids < b->n_ids ? a->n_ids : b->n_ids;
    if (!is_same_key(a, b)) return 0;
    while (n < most && a->ids[n] == b->ids[n]) n++;
    return n;
}

// How much of a job's prompt can be forked from another slot's session once that has computed it.
// At least one token is left to compute.
static size_t shareable(const slot *from, const job *j) {
    size_t n = common_prefix(from->job, j), before_last = from->job->n_ids - 1;
    if (n == j->n_ids) n--;
    if (tern_session_cuts_freely(from->session)) return n;
    return n >= before_last ? before_last : 0; // the session can go back there
}

static bool has_computed(const slot *from, size_t n) {
    size_t n_prompt = from->job->n_ids, n_done = tern_session_n_tokens(from->session);
    return n_done >= (tern_session_cuts_freely(from->session) ? n : n_prompt);
}

static const slot *best_slot(const slots *s, const job *j, size_t *n) {
    const slot *best = NULL;
    *n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!s->list[i].job) continue;
        size_t k = shareable(&s->list[i], j);
        if (k <= *n || k < PREFIX_LEAST || !has_computed(&s->list[i], k)) continue;
        *n = k;
        best = &s->list[i];
    }
    return best;
}

#define DISK_SECONDS 10 // the longest that a job waits for a disk

// Whether to wait for a longer prefix from disk. It is fetched once: if it is evicted again before
// the job's turn, there is no room for it.
static bool awaits_disk(slots *s, job *j, size_t have) {
    size_t n;
    cached_prefix *kept = prefix_cache_find(&s->prefixes, key_of(j), j->ids, j->n_ids, false, &n);
    // All of it is read, which is some ten times as fast as computing it.
    if (!kept || kept->session || n <= have + PREFIX_LEAST + n / 8) return false;
    double now = tern_seconds();
    if (j->looked == 0) j->looked = now;
    if (now > j->looked + DISK_SECONDS) return false;
    if (kept->is_moving) return true;
    bool asks = !j->has_fetched;
    j->has_fetched = true;
    return asks && prefix_cache_fetch(&s->prefixes, kept);
}

bool slots_should_wait(slots *s, job *j) {
    size_t kept, have;
    if (s->n_busy == s->n) return true;
    best_slot(s, j, &have);
    prefix_cache_find(&s->prefixes, key_of(j), j->ids, j->n_ids, true, &kept);
    if (kept > have) have = kept;
    if (awaits_disk(s, j, have)) return true;
    for (size_t i = 0; i < s->n; i++) {
        const slot *other = &s->list[i];
        size_t n = other->job ? shareable(other, j) : 0;
        if (n > have + PREFIX_LEAST && !has_computed(other, n)) return true;
    }
    return false;
}

// ---- Taking ------------------------------------------------------------------------------------

bool slots_give_back(slots *s) { return prefix_cache_give_back(&s->prefixes); }

// A session with the longest available prefix of the job.
static tern_status open_session(slots *s, const job *j, tern_session **out, tern_error *err) {
    size_t n_kept, n_running;
    cached_prefix *kept =
        prefix_cache_find(&s->prefixes, key_of(j), j->ids, j->n_ids, true, &n_kept);
    const slot *running = best_slot(s, j, &n_running);
    tern_status status = TERN_ERR_ARGUMENT; // there is none
    if (kept && n_kept >= n_running)
        status = prefix_cache_fork(&s->prefixes, kept, n_kept, out, err);
    if (status != TERN_OK && running)
        status = tern_session_fork(out, running->session, n_running, err);
    if (status == TERN_OK) return TERN_OK;
    s->prefixes.view.counts.n_not_found++;
    tern_session_desc desc = s->desc.prefixes.files.session;
    desc.lora_scales = j->lora_scales;
    desc.n_lora_scales = j->n_loras;
    return tern_session_open(out, s->desc.prefixes.files.model, &desc, err);
}

// Where the job's prompt diverges from others', beyond the prefix that it continues from, so that a
// snapshot is kept there for the next prompt. 0: nowhere, or no snapshot is needed.
static int32_t where_it_diverges(const slots *s, const job *j, size_t n_found) {
    size_t most = prefix_cache_common(&s->prefixes, key_of(j), j->ids, j->n_ids);
    if (s->prefixes.cuts_freely) return 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = s->list[i].job ? common_prefix(s->list[i].job, j) : 0;
        if (n > most) most = n;
    }
    return most > n_found + PREFIX_LEAST && most + 1 < j->n_ids ? (int32_t)most : 0;
}

tern_status slots_take(slots *s, job *j, slot **out, tern_error *err) {
    slot *at = s->list;
    *out = NULL;
    while (at->job) at++;
    tern_status status = open_session(s, j, &at->session, err);
    while (status == TERN_ERR_MEMORY && slots_give_back(s))
        status = open_session(s, j, &at->session, err);
    TERN_TRY(status);
    j->params.fork_at = where_it_diverges(s, j, tern_session_n_tokens(at->session));
    at->job = j;
    at->last = NULL;
    j->slot = at;
    s->n_busy++;
    *out = at;
    return TERN_OK;
}

// ---- Releasing ---------------------------------------------------------------------------------

static void trim(slots *s) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n; i++) bytes += tern_session_bytes(s->list[i].session);
    prefix_cache_trim(&s->prefixes, bytes);
}

void slots_tick(slots *s) {
    trim(s); // other data on the device may have grown
    prefix_cache_tidy(&s->prefixes);
}

void slots_release(slots *s, slot *at, bool keeps) {
    tern_session *session = at->session;
    const job *j = at->job; // which stays until its last event
    size_t n_prompt = j->n_ids, n_shared = (size_t)j->params.fork_at;
    *at = (slot){0};
    s->n_busy--;
    if (keeps)
        at->last = prefix_cache_keep(&s->prefixes, key_of(j), session, n_prompt, n_shared);
    else
        tern_session_close(session);
    trim(s);
}

// ---- What a slot has ---------------------------------------------------------------------------

static void forget_last(void *user, const cached_prefix *gone) {
    const slots *s = user;
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].last == gone) s->list[i].last = NULL;
}

slots_state slots_copy(slots *s, size_t at, size_t owner, tern_session **out, tern_error *err) {
    const slot *from = &s->list[at];
    *out = NULL;
    if (from->job) return SLOTS_BUSY;
    if (!from->last || from->last->space->owner != owner) return SLOTS_READY;
    if (!from->last->session)
        return prefix_cache_fetch(&s->prefixes, from->last) ? SLOTS_COMING : SLOTS_READY;
    tern_session_fork(out, from->last->session, from->last->node->depth, err);
    return SLOTS_READY;
}

void slots_put(slots *s, size_t at, size_t owner, tern_session *session) {
    size_t n;
    const prefix_key key = {owner, tern_session_lora_scales(session, &n)};
    s->list[at].last = prefix_cache_keep(&s->prefixes, key, session, 0, 0);
    trim(s);
}

size_t slots_erase(slots *s, size_t at, size_t owner) {
    cached_prefix *last = s->list[at].last;
    if (last && last->space->owner != owner) return 0;
    size_t n = last ? last->node->depth : 0;
    if (last) prefix_cache_forget(&s->prefixes, last);
    return n;
}

tern_status slots_open(slots *s, const slots_desc *desc, tern_error *err) {
    *s = (slots){.desc = *desc, .n = desc->n_parallel};
    s->list = tern_alloc_array(TERN_MEM_SESSION, s->n, sizeof *s->list);
    if (!s->list) return tern_fail_memory(err, s->n * sizeof *s->list);
    TERN_TRY(prefix_cache_open(&s->prefixes, &desc->prefixes, err));
    s->prefixes.gone = forget_last;
    s->prefixes.user = s;
    return TERN_OK;
}

void slots_close(slots *s) {
    for (size_t i = 0; i < s->n && s->list; i++) tern_session_close(s->list[i].session);
    prefix_cache_close(&s->prefixes);
    tern_free(s->list);
    *s = (slots){0};
}
