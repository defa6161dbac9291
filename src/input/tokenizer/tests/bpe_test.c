#include "input/tokenizer/bpe.h"
#include <string.h>
#include "base/alloc.h"
#include "tests/support/harness.h"

static bool pair(const void *user, const tern_symbol *left, const tern_symbol *right,
                 uint32_t *order, int32_t *id) {
    const tern_merge *m = tern_merges_find(user, left->id, right->id);
    if (!m) return false;
    *order = m->order;
    *id = m->id;
    return true;
}

// The definition, literally: merges the leftmost pair with the smallest order until there is none.
static size_t merge_plainly(const tern_merges *merges, int32_t *ids, size_t n) {
    for (;;) {
        const tern_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const tern_merge *m = tern_merges_find(merges, ids[i], ids[i + 1]);
            if (m && (!best || m->order < best->order)) {
                best = m;
                at = i;
            }
        }
        if (!best) return n;
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

TEST(bpe_is_the_definition_on_random_words) {
    tern_merges merges;
    tern_error err = {0};
    uint32_t r = 1;
    REQUIRE_OK(tern_merges_init(&merges, 400, &err), err);
    for (int i = 0; i < 400; i++) { // over four letters and their merges
        int32_t left = (int32_t)(next_random(&r) >> 8) % (4 + i) % 12;
        int32_t right = (int32_t)(next_random(&r) >> 8) % (4 + i) % 12;
        CHECK(tern_merges_add(&merges, left, right, (next_random(&r) >> 20) % 97, 4 + i));
    }
    tern_bpe bpe = {0};
    for (int word = 0; word < 2000; word++) {
        int32_t ids[40];
        size_t n = 1 + (next_random(&r) >> 8) % 40;
        bpe.n_symbols = 0;
        for (size_t i = 0; i < n; i++) {
            ids[i] = (int32_t)(next_random(&r) >> 8) % 4;
            REQUIRE(tern_bpe_push(&bpe, (uint32_t)i, 1, ids[i]));
        }
        REQUIRE(tern_bpe_run(&bpe, pair, &merges));
        n = merge_plainly(&merges, ids, n);
        size_t k = 0;
        bool same = true;
        for (int32_t i = 0; i >= 0; i = bpe.symbols[i].next, k++)
            same = same && k < n && bpe.symbols[i].id == ids[k];
        CHECK_MSG(same && k == n, "word %d", word);
    }
    tern_bpe_free(&bpe);
    tern_merges_deinit(&merges);
}

TEST(bpe_takes_a_word_of_a_million_symbols) {
    tern_merges merges;
    tern_error err = {0};
    REQUIRE_OK(tern_merges_init(&merges, 20, &err), err);
    for (int32_t i = 0; i < 20; i++) CHECK(tern_merges_add(&merges, i, i, (uint32_t)i, i + 1));
    tern_bpe bpe = {0};
    for (uint32_t i = 0; i < 1u << 20; i++) REQUIRE(tern_bpe_push(&bpe, i, 1, 0));
    REQUIRE(tern_bpe_run(&bpe, pair, &merges)); // 2^20 symbols 0 are one symbol 20
    CHECK(bpe.symbols[0].id == 20 && bpe.symbols[0].next == -1 && bpe.symbols[0].n == 1u << 20);
    bpe.n_symbols = 0;
    for (uint32_t i = 0; i < 1u << 20; i++) REQUIRE(tern_bpe_push(&bpe, i, 1, 0));
    tern_cancel cancel = {0};
    tern_cancel_request(&cancel);
    tern_cancel_watch(&cancel); // seen to fail: with a check after each word only
    CHECK(!tern_bpe_run(&bpe, pair, &merges));
    tern_cancel_watch(NULL);
    tern_bpe_free(&bpe);
    tern_merges_deinit(&merges);
}

TEST(bpe_keeps_the_first_of_equal_merges) {
    tern_merges merges;
    REQUIRE(tern_merges_init(&merges, 2, NULL) == TERN_OK);
    CHECK(tern_merges_find(&merges, 1, 2) == NULL);
    CHECK(tern_merges_add(&merges, 1, 2, 5, 3) && tern_merges_add(&merges, 1, 2, 1, 4));
    const tern_merge *m = tern_merges_find(&merges, 1, 2);
    CHECK(m && m->order == 5 && m->id == 3 && merges.n == 1);
    CHECK(tern_merges_find(&merges, 2, 1) == NULL);
    tern_merges_deinit(&merges);
}
