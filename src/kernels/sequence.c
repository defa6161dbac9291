#include <string.h>
#include "base/alloc.h"
#include "kernels/sequence_private.h"

// ---- Pages -------------------------------------------------------------------------------------

tern_status tern_cache_open(tern_cache **out, const tern_backend *backend, tern_plan *plan,
                            const tern_graph *g, const tern_cache_desc *desc, tern_error *err) {
    *out = NULL;
    tern_cache *c = tern_alloc(TERN_MEM_KV, sizeof *c);
    if (!c) return tern_fail_memory(err, sizeof *c);
    c->backend = backend;
    tern_mutex_init(&c->lock);
    tern_status status = tern_page_layout_of(g, &c->layout, err);
    if (status == TERN_OK)
        status = backend->page_pool_open(plan, &c->layout, desc, &c->page_pool, err);
    if (status != TERN_OK) {
        tern_cache_close(c);
        return status;
    }
    c->page_positions = backend->page_positions(c->page_pool);
    *out = c;
    return TERN_OK;
}

static void drop_free(tern_cache *c) {
    for (int i = 0; i < c->layout.n_groups; i++)
        while (c->free[i]) {
            held_page *p = c->free[i];
            c->free[i] = p->next;
            c->n_pages[i]--;
            c->n_free[i]--;
            c->backend->page_free(c->page_pool, i, p->page);
            tern_free(p);
        }
}

void tern_cache_close(tern_cache *c) {
    if (!c) return;
    drop_free(c);
    if (c->page_pool) c->backend->page_pool_close(c->page_pool);
    tern_mutex_free(&c->lock);
    tern_free(c);
}

tern_page_pool *tern_cache_page_pool(const tern_cache *c) { return c->page_pool; }

uint64_t tern_cache_bytes(const tern_cache *c) {
    uint64_t bytes = 0;
    for (int i = 0; i < c->layout.n_groups; i++)
        bytes += c->n_pages[i] * c->backend->page_bytes(c->page_pool, i);
    return bytes;
}

void tern_cache_used(tern_cache *c, uint64_t *device, uint64_t *host) {
    tern_mutex_lock(&c->lock);
    for (int i = 0; i < c->layout.n_groups; i++) {
        uint64_t bytes = c->backend->page_bytes(c->page_pool, i);
        *device += (c->n_pages[i] - c->n_free[i]) * bytes;
        *host += c->n_out[i] * bytes;
    }
    tern_mutex_unlock(&c->lock);
}

static tern_status make_page(tern_cache *c, int group, held_page **out, tern_error *err) {
    held_page *p = tern_alloc(TERN_MEM_KV, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    tern_status status = c->backend->page_new(c->page_pool, group, &p->page, err);
    if (status != TERN_OK) {
        tern_free(p);
        return status;
    }
    tern_mutex_lock(&c->lock);
    c->n_pages[group]++;
    tern_mutex_unlock(&c->lock);
    *out = p;
    return TERN_OK;
}

// Returns a page to the free ones. Under the lock.
static void give(tern_cache *c, int group, held_page *p) {
    p->next = c->free[group];
    c->free[group] = p;
    c->n_free[group]++;
}

// A page for one holder, with undefined contents; fixed pages are zeroed.
static tern_status take(tern_cache *c, int group, held_page **out, tern_error *err) {
    tern_mutex_lock(&c->lock);
    held_page *p = c->free[group];
    if (p) {
        c->free[group] = p->next;
        c->n_free[group]--;
    }
    tern_mutex_unlock(&c->lock);
    if (!p) TERN_TRY(make_page(c, group, &p, err));
    if (group == c->layout.fixed) {
        tern_status status = c->backend->page_clear(c->page_pool, group, p->page, err);
        if (status != TERN_OK) {
            tern_mutex_lock(&c->lock);
            give(c, group, p);
            tern_mutex_unlock(&c->lock);
            return status;
        }
    }
    p->n_holders = 1;
    p->next = NULL;
    *out = p;
    return TERN_OK;
}

// keep: the page stays for reuse; else its memory is given back.
static void drop(tern_cache *c, int group, held_page *p, bool keep) {
    if (!p) return;
    tern_mutex_lock(&c->lock);
    bool last = --p->n_holders == 0, away = p->out != NULL;
    if (last && keep && !away)
        give(c, group, p);
    else if (last && !away)
        c->n_pages[group]--;
    else if (last)
        c->n_out[group]--;
    tern_mutex_unlock(&c->lock);
    if (!last || (keep && !away)) return;
    if (!away) c->backend->page_free(c->page_pool, group, p->page);
    tern_free(p->out);
    tern_free(p);
}

static held_page *share(tern_cache *c, held_page *p) {
    tern_mutex_lock(&c->lock);
    p->n_holders++;
    tern_mutex_unlock(&c->lock);
    return p;
}

static bool is_shared(tern_cache *c, const held_page *p) {
    tern_mutex_lock(&c->lock);
    bool shared = p->n_holders > 1;
    tern_mutex_unlock(&c->lock);
    return shared;
}

// ---- Sequences ---------------------------------------------------------------------------------

tern_status tern_sequence_open(tern_sequence **out, tern_cache *c, tern_error *err) {
    *out = tern_alloc(TERN_MEM_KV, sizeof **out);
    if (!*out) return tern_fail_memory(err, sizeof **out);
    (*out)->cache = c;
    tern_mutex_lock(&c->lock);
    (*out)->version = ++c->n_sequences << 32;
    tern_mutex_unlock(&c->lock);
    return TERN_OK;
}

static void forget_snapshots(tern_sequence *s, int32_t after) {
    for (int i = 0; i <= TERN_SNAPSHOTS; i++)
        if (s->snapshots[i].position > after) {
            drop(s->cache, s->cache->layout.fixed, s->snapshots[i].page, true);
            s->snapshots[i] = (snapshot){0};
            s->is_stale = true;
        }
}

void tern_sequence_close(tern_sequence *s) {
    if (!s) return;
    tern_cache *c = s->cache;
    for (int i = 0; i <= TERN_SNAPSHOTS; i++) drop(c, c->layout.fixed, s->snapshots[i].page, false);
    for (int g = 0; g < c->layout.n_groups; g++) {
        for (int32_t i = 0; i < s->tables[g].n; i++) drop(c, g, s->tables[g].held[i], false);
        tern_free(s->tables[g].held);
        tern_free(s->tables[g].pages);
    }
    tern_free(s);
}

int32_t tern_sequence_length(const tern_sequence *s) { return s->n_positions; }
uint64_t tern_sequence_version(const tern_sequence *s) { return s->version; }

const tern_page *tern_sequence_pages(const tern_sequence *s, int group) {
    return s->tables[group].pages;
}

static bool has_windows(const tern_cache *c) {
    for (int g = 0; g < c->layout.n_groups; g++)
        if (c->layout.groups[g].window > 0) return true;
    return false;
}

bool tern_sequence_cuts_freely(const tern_sequence *s) {
    return s->cache->layout.fixed < 0 && !has_windows(s->cache);
}

static tern_status grow(page_table *t, int32_t n, tern_error *err) {
    if (n <= t->capacity) return TERN_OK;
    int32_t capacity = t->capacity ? t->capacity : 4;
    while (capacity < n) capacity *= 2;
    size_t room = (size_t)capacity;
    held_page **held = tern_realloc(TERN_MEM_KV, t->held, room * sizeof *held);
    if (!held) return tern_fail_memory(err, room * sizeof *held);
    t->held = held;
    tern_page *pages = tern_realloc(TERN_MEM_KV, t->pages, room * sizeof *pages);
    if (!pages) return tern_fail_memory(err, room * sizeof *pages);
    t->pages = pages;
    t->capacity = capacity;
    return TERN_OK;
}

static void shrink(page_table *t, int32_t n) {
    size_t room = (size_t)n;
    held_page **held = tern_realloc(TERN_MEM_KV, t->held, room * sizeof *held);
    if (held) t->held = held;
    tern_page *pages = held ? tern_realloc(TERN_MEM_KV, t->pages, room * sizeof *pages) : NULL;
    if (pages) t->pages = pages;
    if (held) t->capacity = n;
}

static void set_page(page_table *t, int32_t i, held_page *p) {
    t->held[i] = p;
    t->pages[i] = p ? p->page : (tern_page){0};
}

tern_status tern_sequence_append(tern_sequence *s, int group, tern_error *err) {
    page_table *t = &s->tables[group];
    held_page *p;
    TERN_TRY(grow(t, t->n + 1, err));
    TERN_TRY(take(s->cache, group, &p, err));
    set_page(t, t->n++, p);
    return TERN_OK;
}

tern_status tern_sequence_skip(tern_sequence *s, int group, tern_error *err) {
    page_table *t = &s->tables[group];
    TERN_TRY(grow(t, t->n + 1, err));
    set_page(t, t->n++, NULL);
    return TERN_OK;
}

// Gives the sequence its own page at i, instead of a shared one or one that a window had left.
static tern_status own_page(tern_sequence *s, int group, int32_t i, tern_error *err) {
    page_table *t = &s->tables[group];
    held_page *p;
    if (t->held[i] && !is_shared(s->cache, t->held[i])) return TERN_OK;
    TERN_TRY(take(s->cache, group, &p, err));
    if (!t->held[i]) {
        set_page(t, i, p);
        return TERN_OK;
    }
    tern_status status =
        s->cache->backend->page_copy(s->cache->page_pool, group, t->held[i]->page, p->page, err);
    if (status != TERN_OK) {
        drop(s->cache, group, p, false);
        return status;
    }
    drop(s->cache, group, t->held[i], true);
    set_page(t, i, p);
    return TERN_OK;
}

// So that a backend that must move all pages to make room does it once.
static tern_status expect_pages(const tern_sequence *s, int group, int32_t n, tern_error *err) {
    tern_cache *c = s->cache;
    if (n < 2 || !c->backend->pages_expect) return TERN_OK;
    tern_mutex_lock(&c->lock);
    for (const held_page *p = c->free[group]; p && n > 0; p = p->next) n--;
    tern_mutex_unlock(&c->lock);
    return n > 0 ? c->backend->pages_expect(c->page_pool, group, n, err) : TERN_OK;
}

tern_status tern_sequence_reserve(tern_sequence *s, int32_t n_positions, tern_error *err) {
    const tern_page_layout *l = &s->cache->layout;
    int32_t each = s->cache->page_positions;
    for (int g = 0; g < l->n_groups; g++) {
        bool fixed = l->groups[g].kind == TERN_STATE_FIXED;
        int32_t n = fixed ? 1 : (n_positions + each - 1) / each;
        TERN_TRY(expect_pages(s, g, n - s->tables[g].n, err));
        while (s->tables[g].n < n) TERN_TRY(tern_sequence_append(s, g, err));
        for (int32_t i = fixed ? 0 : s->n_positions / each; i < n; i++)
            TERN_TRY(own_page(s, g, i, err));
    }
    return TERN_OK;
}

void tern_sequence_trim(tern_sequence *s) {
    const tern_page_layout *l = &s->cache->layout;
    int32_t each = s->cache->page_positions, n = (s->n_positions + each - 1) / each;
    if (n < 1) n = 1; // instances may be bound to it
    for (int g = 0; g < l->n_groups; g++) {
        page_table *t = &s->tables[g];
        if (g == l->fixed) continue;
        if (t->n > n) s->version += 2; // positions that a backend has computed ahead are gone
        while (t->n > n) drop(s->cache, g, t->held[--t->n], true);
        if (t->capacity > 16 && t->capacity > 4 * n) shrink(t, n > 4 ? n : 4);
    }
}

int32_t tern_sequence_room(const tern_sequence *s, int32_t n_positions) {
    const tern_page_layout *l = &s->cache->layout;
    int32_t each = s->cache->page_positions, room = n_positions;
    for (int g = 0; g < l->n_groups; g++) {
        const page_table *t = &s->tables[g];
        if (l->groups[g].kind == TERN_STATE_FIXED) continue;
        int32_t i = s->n_positions / each, n = (room + each - 1) / each;
        while (i < n && i < t->n && t->held[i] && !is_shared(s->cache, t->held[i])) i++;
        if (i < n) room = i * each;
    }
    return room;
}

void tern_sequence_abandon(tern_sequence *s) {
    s->version += 2; // positions that a backend has computed ahead are invalid
    s->is_torn = s->cache->layout.fixed >= 0;
}

bool tern_sequence_remembers(const tern_sequence *s, int32_t window, int32_t page) {
    int32_t each = s->cache->page_positions;
    for (int i = 0; i <= TERN_SNAPSHOTS; i++) {
        int32_t n = s->snapshots[i].position;
        if (page * each < n && (page + 1) * each > window_begin(n, window)) return true;
    }
    return false;
}

void tern_sequence_advance(tern_sequence *s, int32_t n_positions) {
    const tern_page_layout *l = &s->cache->layout;
    int32_t each = s->cache->page_positions;
    s->n_positions = n_positions;
    s->version++;
    for (int g = 0; g < l->n_groups; g++) {
        page_table *t = &s->tables[g];
        int32_t window = l->groups[g].window;
        if (!window) continue;
        // One page more than the window reaches stays, so that short steps back are free.
        int32_t end = (n_positions - window) / each - 1;
        for (int32_t i = s->is_stale ? 0 : t->n_swept; i < end; i++) {
            if (!t->held[i] || tern_sequence_remembers(s, window, i)) continue;
            drop(s->cache, g, t->held[i], true);
            set_page(t, i, NULL);
        }
        t->n_swept = end > 0 ? end : 0;
    }
    s->is_stale = false;
}

// ---- Going back --------------------------------------------------------------------------------

bool tern_sequence_reaches_back(const tern_sequence *s, int32_t n) {
    const tern_page_layout *l = &s->cache->layout;
    int32_t each = s->cache->page_positions;
    for (int g = 0; g < l->n_groups; g++) {
        const page_table *t = &s->tables[g];
        int32_t window = l->groups[g].window;
        if (window == 0) continue;
        for (int32_t i = window_begin(n, window) / each; i < t->n && i * each < n; i++)
            if (!t->held[i]) return false;
    }
    return true;
}

static const snapshot *latest(const tern_sequence *s, int32_t at_most) {
    const snapshot *best = NULL;
    for (int i = 0; i <= TERN_SNAPSHOTS; i++) {
        const snapshot *x = &s->snapshots[i];
        if (x->position > 0 && x->position <= at_most && (!best || x->position > best->position))
            best = x;
    }
    return best;
}

// The last position up to n that the sequence can go back to; *from: the snapshot needed, or NULL.
static int32_t way_back(const tern_sequence *s, int32_t n, const snapshot **from) {
    *from = NULL;
    if (s->cache->layout.fixed < 0 && tern_sequence_reaches_back(s, n)) return n;
    for (const snapshot *x = latest(s, n); x; x = latest(s, x->position - 1))
        if (tern_sequence_reaches_back(s, x->position)) {
            *from = x;
            return x->position;
        }
    return 0; // from the beginning; tern_sequence_reserve puts the pages back
}

static tern_status restore(tern_sequence *s, const snapshot *from, tern_error *err) {
    const tern_cache *c = s->cache;
    int g = c->layout.fixed;
    if (g < 0 || s->tables[g].n == 0) return TERN_OK;
    TERN_TRY(own_page(s, g, 0, err));
    tern_page to = s->tables[g].pages[0];
    return from ? c->backend->page_copy(c->page_pool, g, from->page->page, to, err)
                : c->backend->page_clear(c->page_pool, g, to, err);
}

tern_status tern_sequence_cut(tern_sequence *s, int32_t n_positions, int32_t *n_left,
                              tern_error *err) {
    *n_left = s->n_positions;
    if (n_positions >= s->n_positions && !s->is_torn) return TERN_OK;
    s->version++;
    const snapshot *from;
    int32_t n = way_back(s, n_positions < s->n_positions ? n_positions : s->n_positions, &from);
    TERN_TRY(restore(s, from, err));
    s->n_positions = *n_left = n;
    s->is_torn = false;
    s->is_stale = true;
    forget_snapshots(s, n);
    return TERN_OK;
}

// Where the next lasting snapshot goes: a free entry, else that of the one furthest back.
static snapshot *place_of_next(tern_sequence *s) {
    snapshot *to = &s->snapshots[0];
    for (int i = 1; i < TERN_SNAPSHOTS; i++)
        if (s->snapshots[i].position < to->position) to = &s->snapshots[i];
    return to;
}

// Whether there is a snapshot at the position. Turns a passing one into a lasting one if `passing`
// is false.
static bool has_snapshot(tern_sequence *s, int32_t position, bool passing) {
    snapshot *last = &s->snapshots[TERN_SNAPSHOTS];
    for (int i = 0; i < TERN_SNAPSHOTS; i++)
        if (s->snapshots[i].position == position) return true;
    if (last->position != position) return false;
    if (passing) return true;
    snapshot *to = place_of_next(s), old = *to;
    *to = *last;
    *last = (snapshot){0};
    s->is_stale = true;
    drop(s->cache, s->cache->layout.fixed, old.page, true);
    return true;
}

tern_status tern_sequence_snapshot(tern_sequence *s, int32_t position, bool passing, tern_page *out,
                                   bool *wanted, tern_error *err) {
    int g = s->cache->layout.fixed;
    *wanted = false;
    // Short steps back through a window need no snapshot.
    if (position == 0 || (g < 0 && (passing || !has_windows(s->cache)))) return TERN_OK;
    if (has_snapshot(s, position, passing)) return TERN_OK;
    snapshot *x = passing ? &s->snapshots[TERN_SNAPSHOTS] : place_of_next(s);
    if (g >= 0 && !x->page) TERN_TRY(take(s->cache, g, &x->page, err));
    x->position = position;
    s->is_stale = true;
    *wanted = g >= 0;
    if (*wanted) *out = x->page->page;
    return TERN_OK;
}

tern_status tern_sequence_remember(tern_sequence *s, tern_error *err) {
    const tern_cache *c = s->cache;
    int g = c->layout.fixed;
    tern_page to;
    bool wanted;
    if (s->is_torn) return TERN_OK;
    TERN_TRY(tern_sequence_snapshot(s, s->n_positions, false, &to, &wanted, err));
    if (!wanted) return TERN_OK;
    tern_status status = c->backend->page_copy(c->page_pool, g, s->tables[g].pages[0], to, err);
    if (status != TERN_OK) forget_snapshots(s, s->n_positions - 1);
    return status;
}

// ---- Sharing -----------------------------------------------------------------------------------

static tern_status share_tables(tern_sequence *to, const tern_sequence *from, int32_t n,
                                tern_error *err) {
    tern_cache *c = from->cache;
    int32_t each = c->page_positions;
    for (int g = 0; g < c->layout.n_groups; g++) {
        if (g == c->layout.fixed) continue;
        page_table *t = &to->tables[g];
        int32_t n_pages = (n + each - 1) / each;
        TERN_TRY(grow(t, n_pages, err));
        for (; t->n < n_pages; t->n++) {
            held_page *p = from->tables[g].held[t->n];
            set_page(t, t->n, p ? share(c, p) : NULL);
        }
    }
    return TERN_OK;
}

static tern_status share_fixed(tern_sequence *to, const tern_sequence *from, const snapshot *at,
                               tern_error *err) {
    tern_cache *c = from->cache;
    int g = c->layout.fixed;
    if (g < 0 || to->n_positions == 0) return TERN_OK;
    TERN_TRY(tern_sequence_append(to, g, err));
    tern_page source = at ? at->page->page : from->tables[g].pages[0];
    return c->backend->page_copy(c->page_pool, g, source, to->tables[g].pages[0], err);
}

tern_status tern_sequence_fork(tern_sequence *s, int32_t n_positions, tern_sequence **out,
                               tern_error *err) {
    const snapshot *at = NULL;
    int32_t n = n_positions < s->n_positions ? n_positions : s->n_positions;
    if (n < s->n_positions || s->is_torn) n = way_back(s, n, &at);
    TERN_TRY(tern_sequence_open(out, s->cache, err));
    (*out)->n_positions = n;
    tern_status status = share_tables(*out, s, n, err);
    if (status == TERN_OK) status = share_fixed(*out, s, at, err);
    if (status == TERN_OK) return TERN_OK;
    tern_sequence_close(*out);
    *out = NULL;
    return status;
}

// ---- Swapping ----------------------------------------------------------------------------------

static tern_status move_out(tern_sequence *s, int group, int32_t i, tern_error *err) {
    tern_cache *c = s->cache;
    held_page *p = s->tables[group].held[i];
    if (!p || p->out || is_shared(c, p)) return TERN_OK;
    size_t bytes = (size_t)c->backend->page_bytes(c->page_pool, group);
    uint8_t *out = tern_alloc(TERN_MEM_KV, bytes);
    if (!out) return tern_fail_memory(err, bytes);
    tern_status status = c->backend->page_read(c->page_pool, group, p->page, out, err);
    if (status != TERN_OK) {
        tern_free(out);
        return status;
    }
    c->backend->page_free(c->page_pool, group, p->page);
    tern_mutex_lock(&c->lock);
    c->n_pages[group]--;
    c->n_out[group]++;
    p->out = out;
    tern_mutex_unlock(&c->lock);
    s->n_out++;
    return TERN_OK;
}

static tern_status move_in(tern_sequence *s, int group, int32_t i, tern_error *err) {
    tern_cache *c = s->cache;
    held_page *p = s->tables[group].held[i];
    if (!p || !p->out) return TERN_OK;
    tern_page page;
    TERN_TRY(c->backend->page_new(c->page_pool, group, &page, err));
    tern_status status = c->backend->page_write(c->page_pool, group, page, p->out, err);
    if (status != TERN_OK) {
        c->backend->page_free(c->page_pool, group, page);
        return status;
    }
    tern_free(p->out);
    tern_mutex_lock(&c->lock);
    c->n_pages[group]++;
    c->n_out[group]--;
    p->page = page;
    p->out = NULL;
    tern_mutex_unlock(&c->lock);
    set_page(&s->tables[group], i, p);
    s->n_out--;
    return TERN_OK;
}

static tern_status move_all(tern_sequence *s, bool out, tern_error *err) {
    for (int g = 0; g < s->cache->layout.n_groups; g++)
        for (int32_t i = 0; i < s->tables[g].n; i++)
            TERN_TRY(out ? move_out(s, g, i, err) : move_in(s, g, i, err));
    return TERN_OK;
}

// Drops the snapshots first: they can be recomputed.
tern_status tern_sequence_swap_out(tern_sequence *s, tern_error *err) {
    forget_snapshots(s, -1);
    return move_all(s, true, err);
}
tern_status tern_sequence_swap_in(tern_sequence *s, tern_error *err) {
    return s->n_out > 0 ? move_all(s, false, err) : TERN_OK; // called in every step
}
bool tern_sequence_is_out(const tern_sequence *s) { return s->n_out > 0; }

uint64_t tern_sequence_bytes(const tern_sequence *s) {
    tern_cache *c = s->cache;
    uint64_t bytes = 0;
    tern_mutex_lock(&c->lock);
    for (int g = 0; g < c->layout.n_groups; g++)
        for (int32_t i = 0; i < s->tables[g].n; i++) {
            const held_page *p = s->tables[g].held[i];
            if (p) bytes += c->backend->page_bytes(c->page_pool, g) / (uint64_t)p->n_holders;
        }
    for (int i = 0; i <= TERN_SNAPSHOTS; i++)
        if (s->snapshots[i].page) bytes += c->backend->page_bytes(c->page_pool, c->layout.fixed);
    tern_mutex_unlock(&c->lock);
    return bytes;
}
