// A sequence as bytes:
//
//     u32 positions of a page, u32 groups, i32 positions
//     for each group: u32 kind, i32 window, u64 bytes of a page
//     (snapshots: 3 lasting ones and the passing one) i32 position, 0: none
//     for each group of positions: a byte for each page, 1: it is there; then the pages
//     the fixed states, if there are any, then those of each snapshot
//
// Numbers have the machine's byte order, as the pages have: a program that writes a file must store
// the model and arithmetic (runtime/digest.c) with it, and a checksum.
#include <string.h>
#include "base/alloc.h"
#include "kernels/sequence_private.h"

typedef struct front {
    uint32_t page_positions, n_groups;
    int32_t n_positions, unused;
    struct {
        uint32_t kind;
        int32_t window;
        uint64_t page_bytes;
    } groups[TERN_PAGE_GROUPS];
    int32_t snapshots[TERN_SNAPSHOTS + 1];
} front;

// The header from the cache: equal for all sequences of a model with one type of keys and values.
static front front_of(const tern_cache *c) {
    front f;
    memset(&f, 0, sizeof f);
    f.page_positions = (uint32_t)c->page_positions;
    f.n_groups = (uint32_t)c->layout.n_groups;
    for (int g = 0; g < c->layout.n_groups; g++) {
        f.groups[g].kind = (uint32_t)c->layout.groups[g].kind;
        f.groups[g].window = c->layout.groups[g].window;
        f.groups[g].page_bytes = c->backend->page_bytes(c->page_pool, g);
    }
    return f;
}

static int32_t pages_of(const tern_cache *c, int32_t n_positions) {
    return n_positions / c->page_positions + (n_positions % c->page_positions != 0);
}

static bool is_fixed(const tern_cache *c, int group) { return group == c->layout.fixed; }

// Room for one page.
static tern_status make_room(const tern_cache *c, uint8_t **out, tern_error *err) {
    uint64_t most = 1;
    for (int g = 0; g < c->layout.n_groups; g++) {
        uint64_t bytes = c->backend->page_bytes(c->page_pool, g);
        if (bytes > most) most = bytes;
    }
    *out = tern_alloc(TERN_MEM_KV, (size_t)most);
    return *out ? TERN_OK : tern_fail_memory(err, (size_t)most);
}

// ---- Writing -----------------------------------------------------------------------------------

typedef struct writer {
    const tern_sequence *s;
    tern_sequence_put put;
    void *user;
    uint8_t *room;
} writer;

static tern_status put_page(const writer *w, int group, const held_page *p, tern_error *err) {
    const tern_cache *c = w->s->cache;
    size_t bytes = (size_t)c->backend->page_bytes(c->page_pool, group);
    if (p->out) return w->put(w->user, p->out, bytes, err);
    TERN_TRY(c->backend->page_read(c->page_pool, group, p->page, w->room, err));
    return w->put(w->user, w->room, bytes, err);
}

static tern_status put_positions(const writer *w, int group, tern_error *err) {
    const tern_sequence *s = w->s;
    const page_table *t = &s->tables[group];
    int32_t n = pages_of(s->cache, s->n_positions);
    for (int32_t i = 0; i < n; i++) {
        const uint8_t there = t->held[i] != NULL;
        TERN_TRY(w->put(w->user, &there, 1, err));
    }
    for (int32_t i = 0; i < n; i++)
        if (t->held[i]) TERN_TRY(put_page(w, group, t->held[i], err));
    return TERN_OK;
}

static tern_status put_fixed(const writer *w, const front *f, tern_error *err) {
    const tern_sequence *s = w->s;
    int g = s->cache->layout.fixed;
    if (g < 0 || s->n_positions == 0) return TERN_OK;
    TERN_TRY(put_page(w, g, s->tables[g].held[0], err));
    for (int i = 0; i <= TERN_SNAPSHOTS; i++)
        if (f->snapshots[i]) TERN_TRY(put_page(w, g, s->snapshots[i].page, err));
    return TERN_OK;
}

static tern_status put_all(const writer *w, tern_error *err) {
    const tern_sequence *s = w->s;
    front f = front_of(s->cache);
    f.n_positions = s->n_positions;
    for (int i = 0; i <= TERN_SNAPSHOTS; i++) {
        int32_t n = s->snapshots[i].position;
        if (n <= s->n_positions && tern_sequence_reaches_back(s, n)) f.snapshots[i] = n;
    }
    TERN_TRY(w->put(w->user, &f, sizeof f, err));
    for (int g = 0; g < s->cache->layout.n_groups; g++)
        if (!is_fixed(s->cache, g)) TERN_TRY(put_positions(w, g, err));
    return put_fixed(w, &f, err);
}

bool tern_sequence_is_whole(const tern_sequence *s, int32_t n_positions) {
    return s->n_positions <= n_positions && !s->is_torn;
}

tern_status tern_sequence_write(const tern_sequence *s, tern_sequence_put put, void *user,
                                tern_error *err) {
    writer w = {.s = s, .put = put, .user = user};
    if (s->is_torn)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the states are those of a run that failed");
    TERN_TRY(make_room(s->cache, &w.room, err));
    tern_status status = put_all(&w, err);
    tern_free(w.room);
    return status;
}

// ---- Reading -----------------------------------------------------------------------------------

typedef struct reader {
    tern_sequence *s;
    tern_sequence_get get;
    void *user;
    uint8_t *room;
} reader;

static tern_status get_page(const reader *r, int group, tern_page to, tern_error *err) {
    const tern_cache *c = r->s->cache;
    size_t bytes = (size_t)c->backend->page_bytes(c->page_pool, group);
    TERN_TRY(r->get(r->user, r->room, bytes, err));
    return c->backend->page_write(c->page_pool, group, to, r->room, err);
}

static tern_status get_positions(const reader *r, int group, int32_t n, tern_error *err) {
    tern_sequence *s = r->s;
    page_table *t = &s->tables[group];
    for (int32_t i = 0; i < n; i++) {
        uint8_t there;
        TERN_TRY(r->get(r->user, &there, 1, err));
        TERN_TRY(there ? tern_sequence_append(s, group, err) : tern_sequence_skip(s, group, err));
    }
    for (int32_t i = 0; i < n; i++) {
        if (t->held[i])
            TERN_TRY(get_page(r, group, t->pages[i], err));
        else if (s->cache->layout.groups[group].window == 0)
            return tern_fail(err, TERN_ERR_FORMAT, "page %d is missing", (int)i);
    }
    return TERN_OK;
}

static tern_status get_snapshots(const reader *r, const front *f, tern_error *err) {
    tern_sequence *s = r->s;
    int g = s->cache->layout.fixed;
    for (int i = 0; i <= TERN_SNAPSHOTS; i++) {
        tern_page to;
        bool wanted;
        if (f->snapshots[i] == 0) continue;
        TERN_TRY(
            tern_sequence_snapshot(s, f->snapshots[i], i == TERN_SNAPSHOTS, &to, &wanted, err));
        if (wanted)
            TERN_TRY(get_page(r, g, to, err));
        else if (g >= 0)
            return tern_fail(err, TERN_ERR_FORMAT, "two snapshots of position %d",
                             (int)f->snapshots[i]);
    }
    return TERN_OK;
}

static tern_status get_fixed(const reader *r, const front *f, tern_error *err) {
    tern_sequence *s = r->s;
    int g = s->cache->layout.fixed;
    if (g >= 0 && f->n_positions > 0) {
        TERN_TRY(tern_sequence_append(s, g, err));
        TERN_TRY(get_page(r, g, s->tables[g].pages[0], err));
    }
    return get_snapshots(r, f, err);
}

static tern_status check_front(const tern_cache *c, const front *f, int32_t n_positions,
                               tern_error *err) {
    front own = front_of(c);
    own.n_positions = f->n_positions;
    memcpy(own.snapshots, f->snapshots, sizeof own.snapshots);
    if (memcmp(&own, f, sizeof own) != 0)
        return tern_fail(err, TERN_ERR_FORMAT, "its pages are not those of this model");
    bool ok = f->n_positions >= 0 && f->n_positions <= n_positions;
    for (int i = 0; i <= TERN_SNAPSHOTS; i++)
        ok = ok && f->snapshots[i] >= 0 && f->snapshots[i] <= f->n_positions;
    return ok ? TERN_OK
              : tern_fail(err, TERN_ERR_FORMAT, "states of %d positions of %d tokens",
                          (int)f->n_positions, (int)n_positions);
}

static tern_status get_all(const reader *r, int32_t n_positions, tern_error *err) {
    tern_sequence *s = r->s;
    front f;
    TERN_TRY(r->get(r->user, &f, sizeof f, err));
    TERN_TRY(check_front(s->cache, &f, n_positions, err));
    for (int g = 0; g < s->cache->layout.n_groups; g++)
        if (!is_fixed(s->cache, g))
            TERN_TRY(get_positions(r, g, pages_of(s->cache, f.n_positions), err));
    TERN_TRY(get_fixed(r, &f, err));
    bool ok = tern_sequence_reaches_back(s, f.n_positions);
    for (int i = 0; i <= TERN_SNAPSHOTS; i++)
        ok = ok && (!f.snapshots[i] || tern_sequence_reaches_back(s, f.snapshots[i]));
    if (!ok) return tern_fail(err, TERN_ERR_FORMAT, "pages of a window are missing");
    s->n_positions = f.n_positions;
    s->version++;
    s->is_stale = true;
    return TERN_OK;
}

tern_status tern_sequence_read(tern_sequence *s, int32_t n_positions, tern_sequence_get get,
                               void *user, tern_error *err) {
    reader r = {.s = s, .get = get, .user = user};
    TERN_TRY(make_room(s->cache, &r.room, err));
    tern_status status = get_all(&r, n_positions, err);
    tern_free(r.room);
    return status;
}
