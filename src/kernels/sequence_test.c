// Sequences alone, over a pool whose pages are a few numbers: pages that are cut, shared, copied,
// kept, given back, swapped and begun again; also when memory fails at any point.
// tests/mutants/list has the bug that each check was written for.
#include "kernels/sequence.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/backend.h"
#include "tests/support/harness.h"

// ---- A page pool -------------------------------------------------------------------------------
//
// A page of positions holds a token each. The page of fixed states holds one number, which depends
// on all tokens so far.

enum { EACH = 4, WINDOW = 6, N_TOKENS = 64 };

struct tern_page_pool {
    int n_pages[TERN_PAGE_GROUPS]; // in use or free, as the cache has asked for them
};

static tern_status page_pool_open(tern_plan *p, const tern_page_layout *layout,
                                  const tern_cache_desc *desc, tern_page_pool **out,
                                  tern_error *err) {
    (void)p, (void)layout, (void)desc;
    *out = tern_alloc(TERN_MEM_KV, sizeof **out);
    return *out ? TERN_OK : tern_fail_memory(err, sizeof **out);
}
static void page_pool_close(tern_page_pool *s) { tern_free(s); }
static int32_t page_positions(const tern_page_pool *s) {
    (void)s;
    return EACH;
}
static uint64_t page_bytes(const tern_page_pool *s, int group) {
    (void)s, (void)group;
    return EACH * sizeof(int32_t);
}
static tern_status page_new(tern_page_pool *s, int group, tern_page *out, tern_error *err) {
    out->memory = tern_alloc(TERN_MEM_KV, EACH * sizeof(int32_t));
    if (!out->memory) return tern_fail_memory(err, EACH * sizeof(int32_t));
    s->n_pages[group]++;
    return TERN_OK;
}
static void page_free(tern_page_pool *s, int group, tern_page page) {
    s->n_pages[group]--;
    memset(page.memory, 0xEE, EACH * sizeof(int32_t)); // a later read sees this
    tern_free(page.memory);
}
// All that move bytes may fail, as on a device.
static tern_status move(void *to, const void *from, tern_error *err) {
    void *staging = tern_alloc(TERN_MEM_KV, EACH * sizeof(int32_t));
    if (!staging) return tern_fail_memory(err, EACH * sizeof(int32_t));
    if (from)
        memcpy(to, from, EACH * sizeof(int32_t));
    else
        memset(to, 0, EACH * sizeof(int32_t));
    tern_free(staging);
    return TERN_OK;
}
static tern_status page_copy(tern_page_pool *s, int group, tern_page from, tern_page to,
                             tern_error *err) {
    (void)s, (void)group;
    return move(to.memory, from.memory, err);
}
static tern_status page_clear(tern_page_pool *s, int group, tern_page page, tern_error *err) {
    (void)s, (void)group;
    return move(page.memory, NULL, err);
}
static tern_status page_read(tern_page_pool *s, int group, tern_page page, void *to,
                             tern_error *err) {
    (void)s, (void)group;
    return move(to, page.memory, err);
}
static tern_status page_write(tern_page_pool *s, int group, tern_page page, const void *from,
                              tern_error *err) {
    (void)s, (void)group;
    return move(page.memory, from, err);
}

static const tern_backend backend = {.page_pool_open = page_pool_open,
                                     .page_pool_close = page_pool_close,
                                     .page_positions = page_positions,
                                     .page_bytes = page_bytes,
                                     .page_new = page_new,
                                     .page_free = page_free,
                                     .page_copy = page_copy,
                                     .page_clear = page_clear,
                                     .page_read = page_read,
                                     .page_write = page_write};

// The states; their groups are numbered in this order.
typedef struct kinds {
    bool all, windowed, fixed;
} kinds;

static tern_cache *open_cache(kinds k) {
    tern_value values[3];
    tern_graph g = {.values = values};
    tern_cache *c = NULL;
    tern_error err = {0};
    const tern_cache_desc desc = {TERN_KV_F32, 1 << 20};
    memset(values, 0, sizeof values);
    if (k.all) values[g.n_values++].state = TERN_STATE_POSITIONAL;
    if (k.windowed) {
        values[g.n_values].window = WINDOW;
        values[g.n_values++].state = TERN_STATE_POSITIONAL;
    }
    if (k.fixed) values[g.n_values++].state = TERN_STATE_FIXED;
    for (size_t i = 0; i < g.n_values; i++) values[i].kind = TERN_VALUE_STATE;
    tern_status status = tern_cache_open(&c, &backend, NULL, &g, &desc, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return c;
}

// ---- What a run does ---------------------------------------------------------------------------

typedef struct line {
    tern_sequence *s;
    kinds k;
    int32_t tokens[N_TOKENS];
} line;

static int group_of_fixed(kinds k) { return k.all + k.windowed; }

static int32_t fold(int32_t before, int32_t token) {
    return (int32_t)((uint32_t)before * 31u + (uint32_t)token + 1);
}

static void write_token(const line *l, int32_t at) {
    for (int g = 0; g < l->k.all + l->k.windowed; g++)
        ((int32_t *)(void *)tern_sequence_pages(l->s, g)[at / EACH].memory)[at % EACH] =
            l->tokens[at];
    if (!l->k.fixed) return;
    int32_t *state = (int32_t *)(void *)tern_sequence_pages(l->s, group_of_fixed(l->k))[0].memory;
    *state = fold(*state, l->tokens[at]);
}

// Computes up to n positions; a snapshot at `keep`, unless it is 0. fails: after the states were
// changed.
static tern_status compute(line *l, int32_t n, int32_t keep, bool passing, bool fails) {
    tern_page kept = {0};
    bool wanted = false;
    TERN_TRY(tern_sequence_reserve(l->s, n, NULL));
    if (keep) TERN_TRY(tern_sequence_snapshot(l->s, keep, passing, &kept, &wanted, NULL));
    for (int32_t at = tern_sequence_length(l->s); at < n; at++) {
        write_token(l, at);
        if (wanted && at + 1 == keep)
            memcpy(kept.memory, tern_sequence_pages(l->s, group_of_fixed(l->k))[0].memory,
                   sizeof(int32_t));
    }
    if (fails)
        tern_sequence_abandon(l->s);
    else
        tern_sequence_advance(l->s, n);
    return fails ? TERN_ERR_DEVICE : TERN_OK;
}

// Cuts to at most n; recomputes missing positions, as a lease does.
static tern_status go_to(line *l, int32_t n, int32_t *left) {
    TERN_TRY(tern_sequence_swap_in(l->s, NULL));
    TERN_TRY(tern_sequence_cut(l->s, n, left, NULL));
    return compute(l, n, 0, false, false);
}

// Everything that a row at the end would read matches the tokens.
static void check_line(const line *l, int line_number) {
    int32_t n = tern_sequence_length(l->s), state = 0;
    bool ok = true;
    for (int g = 0; g < l->k.all + l->k.windowed; g++) {
        int32_t first = l->k.all && g == 0 ? 0 : n - WINDOW + 1;
        for (int32_t at = first > 0 ? first : 0; at < n; at++) {
            const uint8_t *memory = tern_sequence_pages(l->s, g)[at / EACH].memory;
            ok &= memory && ((const int32_t *)(const void *)memory)[at % EACH] == l->tokens[at];
        }
    }
    for (int32_t at = 0; at < n; at++) state = fold(state, l->tokens[at]);
    if (l->k.fixed && n > 0)
        ok &= *(const int32_t *)(const void *)tern_sequence_pages(l->s, group_of_fixed(l->k))[0]
                   .memory == state;
    test_check(ok, __FILE__, line_number, "states of %d positions", (int)n);
}
#define CHECK_LINE(l) check_line(l, __LINE__)

static bool open_line(line *l, tern_cache *c, kinds k, int32_t seed) {
    *l = (line){.k = k};
    for (int32_t i = 0; i < N_TOKENS; i++) l->tokens[i] = 1000 * seed + i;
    return tern_sequence_open(&l->s, c, NULL) == TERN_OK;
}

static const kinds plain = {.all = true}, windowed = {.all = true, .windowed = true},
                   hybrid = {.all = true, .fixed = true},
                   all_kinds = {.all = true, .windowed = true, .fixed = true};

// ---- Going back --------------------------------------------------------------------------------

TEST(sequence_positions_are_cut_where_one_asks) {
    tern_cache *c = open_cache(plain);
    line l;
    int32_t left;
    REQUIRE(c && open_line(&l, c, plain, 1));
    CHECK(tern_sequence_cuts_freely(l.s) && tern_sequence_length(l.s) == 0);
    CHECK(compute(&l, 23, 0, false, false) == TERN_OK);
    CHECK_LINE(&l);
    for (int32_t n = 30; n >= 0; n -= 3) {
        CHECK(tern_sequence_cut(l.s, n, &left, NULL) == TERN_OK && left == (n < 23 ? n : 23));
        CHECK_LINE(&l);
    }
    l.tokens[0] = 7;
    CHECK(compute(&l, 9, 0, false, false) == TERN_OK);
    CHECK_LINE(&l);
    tern_sequence_close(l.s);
    tern_cache_close(c);
}

TEST(sequence_fixed_states_go_back_to_snapshots) {
    tern_cache *c = open_cache(hybrid);
    line l;
    int32_t left;
    REQUIRE(c && open_line(&l, c, hybrid, 1));
    CHECK(!tern_sequence_cuts_freely(l.s));
    for (int32_t n = 5; n <= 40; n += 5) // lasting ones at 3, 8 ... 38: the last three stay
        CHECK(compute(&l, n, n - 2, false, false) == TERN_OK);
    static const struct {
        int32_t to, left;
    } cuts[] = {{39, 38}, {38, 38}, {37, 33}, {32, 28}, {27, 0}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        CHECK(tern_sequence_cut(l.s, cuts[i].to, &left, NULL) == TERN_OK);
        CHECK_MSG(left == cuts[i].left, "cut to %d: %d are left", (int)cuts[i].to, (int)left);
        CHECK_LINE(&l);
    }
    CHECK(compute(&l, 20, 0, false, false) == TERN_OK);
    CHECK_LINE(&l);
    tern_sequence_close(l.s);
    tern_cache_close(c);
}

// Passing snapshots replace each other, but no lasting one.
TEST(sequence_passing_snapshots_leave_the_lasting_ones) {
    tern_cache *c = open_cache(hybrid);
    line l;
    int32_t left;
    REQUIRE(c && open_line(&l, c, hybrid, 1));
    CHECK(compute(&l, 4, 4, false, false) == TERN_OK);
    for (int32_t n = 6; n <= 30; n += 2) CHECK(compute(&l, n, n - 1, true, false) == TERN_OK);
    CHECK(tern_sequence_cut(l.s, 29, &left, NULL) == TERN_OK && left == 29);
    CHECK_LINE(&l);
    CHECK(tern_sequence_cut(l.s, 27, &left, NULL) == TERN_OK && left == 4);
    CHECK_LINE(&l);
    // Snapshots after a cut are forgotten, even if other tokens come to the same position.
    l.tokens[10] = 5;
    CHECK(compute(&l, 33, 0, false, false) == TERN_OK);
    CHECK(tern_sequence_cut(l.s, 30, &left, NULL) == TERN_OK && left == 4);
    CHECK_LINE(&l);
    tern_sequence_close(l.s);
    tern_cache_close(c);
}

TEST(sequence_windows_give_pages_back_and_begin_again) {
    tern_cache *c = open_cache(windowed);
    line l;
    int32_t left;
    REQUIRE(c && open_line(&l, c, windowed, 1));
    for (int32_t n = 1; n <= 60; n++) {
        CHECK(compute(&l, n, 0, false, false) == TERN_OK);
        CHECK_LINE(&l);
    }
    int32_t held = 0;
    for (int32_t i = 0; i < 60 / EACH; i++) held += tern_sequence_pages(l.s, 1)[i].memory != NULL;
    CHECK_MSG(held >= 2 && held <= 4, "%d pages of a window of %d", (int)held, WINDOW);
    CHECK(tern_cache_page_pool(c)->n_pages[1] <= 5);
    CHECK(tern_sequence_cut(l.s, 58, &left, NULL) == TERN_OK && left == 58); // a short step back
    CHECK_LINE(&l);
    CHECK(tern_sequence_cut(l.s, 30, &left, NULL) == TERN_OK && left == 0);
    CHECK(compute(&l, 30, 0, false, false) == TERN_OK);
    CHECK_LINE(&l);
    tern_sequence_close(l.s);
    tern_cache_close(c);
}

// ---- Sharing -----------------------------------------------------------------------------------

TEST(sequence_forks_share_until_they_write) {
    const kinds each[] = {plain, windowed, hybrid, all_kinds};
    for (size_t k = 0; k < 4; k++) {
        tern_cache *c = open_cache(each[k]);
        line a, b;
        REQUIRE(c && open_line(&a, c, each[k], 1));
        CHECK(compute(&a, 22, 10, false, false) == TERN_OK);
        int pages = tern_cache_page_pool(c)->n_pages[0];
        b = a;
        CHECK(tern_sequence_fork(a.s, 22, &b.s, NULL) == TERN_OK);
        CHECK(tern_sequence_length(b.s) == 22 && tern_cache_page_pool(c)->n_pages[0] == pages);
        CHECK(each[k].fixed || tern_sequence_bytes(a.s) == tern_sequence_bytes(b.s));
        for (int32_t i = 22; i < N_TOKENS; i++) b.tokens[i] = -i;
        for (int32_t n = 23; n <= 50; n += 9) { // in turn, both from within the shared page
            CHECK(compute(&b, n, 0, false, false) == TERN_OK);
            CHECK(compute(&a, n, 0, false, false) == TERN_OK);
            CHECK_LINE(&a);
            CHECK_LINE(&b);
        }
        tern_sequence_close(a.s);
        CHECK_LINE(&b);
        tern_sequence_close(b.s);
        tern_cache_close(c);
    }
}

TEST(sequence_forks_of_a_front_go_as_far_as_states_can) {
    tern_cache *c = open_cache(hybrid);
    line a, b;
    REQUIRE(c && open_line(&a, c, hybrid, 1));
    CHECK(compute(&a, 22, 10, false, false) == TERN_OK);
    b = a;
    CHECK(tern_sequence_fork(a.s, 15, &b.s, NULL) == TERN_OK && tern_sequence_length(b.s) == 10);
    CHECK_LINE(&b);
    CHECK(compute(&b, 30, 0, false, false) == TERN_OK);
    CHECK_LINE(&b);
    tern_sequence_close(b.s);
    CHECK(tern_sequence_fork(a.s, 9, &b.s, NULL) == TERN_OK && tern_sequence_length(b.s) == 0);
    CHECK(compute(&b, 30, 0, false, false) == TERN_OK);
    CHECK_LINE(&b);
    CHECK_LINE(&a);
    tern_sequence_close(a.s);
    tern_sequence_close(b.s);
    tern_cache_close(c);
}

TEST(sequence_rooms_are_given_back) {
    tern_cache *c = open_cache(plain);
    line a;
    REQUIRE(c && open_line(&a, c, plain, 1));
    CHECK(compute(&a, 5, 0, false, false) == TERN_OK);
    uint64_t two = tern_sequence_bytes(a.s);
    CHECK(tern_sequence_reserve(a.s, 4000, NULL) == TERN_OK);
    size_t heap = tern_heap_get().heap_now;
    CHECK(tern_sequence_bytes(a.s) > 100 * two);
    tern_sequence_trim(a.s);
    CHECK(tern_sequence_bytes(a.s) == two);
    CHECK(tern_heap_get().heap_now + 1000 * sizeof(tern_page) < heap); // the tables, too
    CHECK_LINE(&a);
    CHECK(compute(&a, 60, 0, false, false) == TERN_OK);
    CHECK_LINE(&a);
    tern_sequence_close(a.s);
    tern_cache_close(c);
}

// ---- Runs that fail ----------------------------------------------------------------------------

TEST(sequence_states_of_failed_runs_are_not_used) {
    tern_cache *c = open_cache(hybrid);
    line a, b;
    int32_t left;
    REQUIRE(c && open_line(&a, c, hybrid, 1));
    CHECK(compute(&a, 10, 8, false, false) == TERN_OK);
    CHECK(compute(&a, 14, 12, false, true) == TERN_ERR_DEVICE);
    CHECK(tern_sequence_length(a.s) == 10);
    b = a;
    CHECK(tern_sequence_fork(a.s, 10, &b.s, NULL) == TERN_OK && tern_sequence_length(b.s) == 8);
    CHECK_LINE(&b);
    tern_sequence_close(b.s);
    CHECK(tern_sequence_cut(a.s, 10, &left, NULL) == TERN_OK && left == 8);
    CHECK_LINE(&a);
    // The snapshot of the failed run is gone: other tokens came to its position.
    a.tokens[11] = 77;
    CHECK(compute(&a, 14, 0, false, false) == TERN_OK);
    CHECK(tern_sequence_cut(a.s, 12, &left, NULL) == TERN_OK && left == 8);
    CHECK_LINE(&a);
    tern_sequence_close(a.s);
    tern_cache_close(c);
}

// ---- Swapping ----------------------------------------------------------------------------------

// Bytes that sequences hold, which must equal the sum over all open ones.
static uint64_t held(tern_cache *c, uint64_t *host) {
    uint64_t device = 0;
    *host = 0;
    tern_cache_used(c, &device, host);
    return device;
}

// Seen to fail: with pages still counted as out after they come in, or are closed while out.
TEST(sequence_swapped_out_comes_back) {
    tern_cache *c = open_cache(all_kinds);
    line a, b;
    REQUIRE(c && open_line(&a, c, all_kinds, 1));
    CHECK(compute(&a, 30, 0, false, false) == TERN_OK);
    b = a;
    CHECK(tern_sequence_fork(a.s, 30, &b.s, NULL) == TERN_OK);
    CHECK(compute(&b, 40, 0, false, false) == TERN_OK);
    uint64_t all = tern_cache_bytes(c), used, out;
    used = held(c, &out);
    CHECK(used > 0 && used <= all && out == 0); // the others are free
    CHECK(tern_sequence_swap_out(b.s, NULL) == TERN_OK && tern_sequence_is_out(b.s));
    CHECK(held(c, &out) < used && held(c, &out) + out == used);
    CHECK(tern_cache_bytes(c) < all); // shared pages stay
    CHECK_LINE(&a);
    CHECK(tern_sequence_swap_in(b.s, NULL) == TERN_OK && !tern_sequence_is_out(b.s));
    CHECK(tern_cache_bytes(c) == all);
    CHECK_LINE(&a);
    CHECK_LINE(&b);
    CHECK(held(c, &out) == used && out == 0);
    CHECK(tern_sequence_swap_out(b.s, NULL) == TERN_OK);
    tern_sequence_close(b.s); // out
    CHECK(held(c, &out) > 0 && out == 0);
    CHECK_LINE(&a);
    tern_sequence_close(a.s);
    CHECK(tern_cache_page_pool(c)->n_pages[0] == 0);
    tern_cache_close(c);
}

// ---- Memory ------------------------------------------------------------------------------------

// Everything once; TERN_OK, or the first failure.
static tern_status live(tern_cache *c, line *a, line *b) {
    int32_t left;
    if (!open_line(a, c, all_kinds, 1)) return TERN_ERR_MEMORY;
    TERN_TRY(compute(a, 21, 18, false, false));
    *b = *a;
    b->s = NULL;
    TERN_TRY(tern_sequence_fork(a->s, 21, &b->s, NULL));
    TERN_TRY(compute(b, 40, 30, true, false));
    TERN_TRY(tern_sequence_swap_out(b->s, NULL));
    TERN_TRY(go_to(b, 33, &left));
    TERN_TRY(go_to(a, 12, &left));
    return compute(a, 50, 45, true, false); // the snapshot in a page that was given back
}

// Memory may fail anywhere: the states are as before, or can be restored.
TEST(sequence_survives_failing_allocations) {
    size_t before = tern_heap_get().heap_now;
    bool succeeded = false;
    for (uint64_t n = 1; n < 2000 && !succeeded; n++) {
        tern_cache *c = open_cache(all_kinds);
        line a = {0}, b = {0};
        int32_t left;
        REQUIRE(c != NULL);
        tern_mem_fail_at(n);
        succeeded = live(c, &a, &b) == TERN_OK;
        tern_mem_fail_at(0);
        line *both[] = {&a, &b};
        for (int i = 0; i < 2; i++) {
            if (!both[i]->s) continue;
            CHECK(go_to(both[i], tern_sequence_length(both[i]->s), &left) == TERN_OK);
            CHECK_LINE(both[i]);
            CHECK(go_to(both[i], 25, &left) == TERN_OK);
            CHECK_LINE(both[i]);
            CHECK(compute(both[i], 60, 0, false, false) == TERN_OK);
            CHECK_LINE(both[i]);
            tern_sequence_close(both[i]->s);
        }
        tern_cache_close(c);
        CHECK_MSG(tern_heap_get().heap_now == before, "allocation %llu leaks",
                  (unsigned long long)n);
    }
    CHECK(succeeded);
}
