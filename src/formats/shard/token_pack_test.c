// Documents in windows: each in one, whole, and as few windows as the rule gives.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/shard/shard.h"
#include "formats/shard/shard_private.h"
#include "tests/support/harness.h"

// The rule as it is written in books: each document, longest first, into the fullest window that
// has room for it.
static uint32_t count_windows(const uint32_t *lengths, uint32_t n, uint32_t capacity) {
    uint32_t *rooms = calloc(n + 1, sizeof *rooms), n_windows = 0;
    for (uint32_t length = capacity; length > 0; length--) {
        for (uint32_t i = 0; i < n; i++) {
            if (lengths[i] != length) continue;
            uint32_t best = n_windows;
            for (uint32_t w = 0; w < n_windows; w++)
                if (rooms[w] >= length && (best == n_windows || rooms[w] < rooms[best])) best = w;
            if (best == n_windows) rooms[n_windows++] = capacity;
            rooms[best] -= length;
        }
    }
    free(rooms);
    return n_windows;
}

static void check_pack(uint32_t n, uint32_t capacity, uint32_t longest, uint64_t seed) {
    uint32_t *lengths = calloc(n + 1, sizeof *lengths);
    uint8_t *seen = calloc(n + 1, 1);
    tern_token_pack pack;
    tern_error err = {0};
    for (uint32_t i = 0; i < n; i++) lengths[i] = 1 + (uint32_t)(tern_mix64(seed + i) % longest);
    REQUIRE_OK(tern_token_pack_make(&pack, lengths, n, capacity, &err), err);
    for (uint32_t w = 0; w < pack.n_windows; w++) {
        uint64_t sum = 0;
        CHECK(pack.firsts[w] < pack.firsts[w + 1]);
        for (uint32_t k = pack.firsts[w]; k < pack.firsts[w + 1]; k++) {
            CHECK(k == pack.firsts[w] || pack.documents[k - 1] < pack.documents[k]);
            seen[pack.documents[k]]++;
            sum += lengths[pack.documents[k]];
        }
        CHECK_MSG(sum <= capacity, "window %u has %llu of %u", w, (unsigned long long)sum,
                  capacity);
    }
    for (uint32_t i = 0; i < n; i++) CHECK(seen[i] == 1);
    uint32_t wanted = count_windows(lengths, n, capacity);
    CHECK_MSG(pack.n_windows == wanted, "%u of %u: %u windows, not %u", n, capacity, pack.n_windows,
              wanted);
    tern_token_pack_free(&pack);
    free(lengths);
    free(seen);
}

// Fails if the search for room misses a word of its upper levels.
TEST(token_pack_is_best_fit_decreasing) {
    check_pack(0, 10, 1, 0);
    check_pack(1, 1, 1, 0);
    for (uint64_t seed = 0; seed < 40; seed++) {
        check_pack(50, 8, 8, seed << 20);
        check_pack(300, 100, 100, seed << 20);
        check_pack(300, 5000, 4000, seed << 20);
    }
    check_pack(1500, 300000, 290000, 7);
}

// ---- Sequences ----------------------------------------------------------------------------------

enum { N_DOCUMENTS = 60, LENGTH = 24 };

static uint64_t length_of(uint64_t document) { return 1 + document * 7 % 31; } // some are too long

// Two shards; token i of document d is d * 100 + i, the last one the end token, 9999.
static void write_documents(const char *const paths[2]) {
    for (int s = 0; s < 2; s++) {
        tern_shard_desc desc = {.n_vocab = 10000, .end_id = 9999, .block_bytes = 4096};
        tern_shard_writer *w;
        tern_error err = {0};
        REQUIRE_OK(tern_shard_writer_open(&w, paths[s], &desc, &err), err);
        for (uint64_t d = s ? 25 : 0; d < (s ? N_DOCUMENTS : 25); d++) {
            int32_t ids[64];
            uint64_t n = length_of(d);
            for (uint64_t i = 0; i < n; i++) ids[i] = (int32_t)(d * 100 + i);
            ids[n - 1] = 9999;
            REQUIRE_OK(tern_shard_write(w, ids, n, &err), err);
            if (d == 30) REQUIRE_OK(tern_shard_leave_out(w, 1, 2, &err), err);
        }
        REQUIRE_OK(tern_shard_writer_finish(w, &err), err);
        tern_shard_writer_free(w);
    }
}

// Reads a window that begins with the documents' tokens; says which documents it has.
static void check_window(const int32_t *ids, const uint8_t *marks, int n, int *seen) {
    for (int i = 0; i < n && marks[i] != TERN_TOKEN_PADDING;) {
        CHECK(marks[i] & TERN_TOKEN_BEGINS);
        int d = ids[i] == 9999 ? -1 : ids[i] / 100; // of one token: any
        uint64_t length = d < 0 ? 1 : length_of((uint64_t)d);
        if (d >= 0) seen[d]++;
        for (uint64_t k = 0; k < length && i < n; k++, i++) {
            CHECK(ids[i] == (k + 1 < length ? d * 100 + (int)k : 9999));
            CHECK((marks[i] & ~TERN_TOKEN_UNSCORED) == (k ? 0 : TERN_TOKEN_BEGINS));
            CHECK(((marks[i] & TERN_TOKEN_UNSCORED) != 0) == (d == 30 && k == 1));
        }
    }
}

static void check_set(const char *const paths[2], tern_packing packing, bool leads) {
    tern_token_set_desc desc = {.seq_len = LENGTH, .seed = 5, .packing = packing};
    tern_token_set *set;
    tern_error err = {0};
    int seen[N_DOCUMENTS] = {0};
    uint64_t n_padding = 0, n_tokens = 0;
    REQUIRE_OK(tern_token_set_open(&set, paths, 2, &desc, &err), err);
    REQUIRE_OK(tern_token_set_pack(set, leads, &err), err);
    uint64_t n = tern_token_set_n_sequences(set);
    for (uint64_t i = 0; i < n; i++) {
        int32_t ids[LENGTH + 1];
        uint8_t marks[LENGTH + 1];
        REQUIRE_OK(tern_token_set_sequence(set, 3, i, ids, marks, &err), err);
        CHECK(!leads || (ids[0] == 9999 && marks[0] == 0));
        check_window(ids + leads, marks + leads, LENGTH + 1 - leads, seen);
        for (int k = leads; k <= LENGTH; k++) {
            n_padding += marks[k] == TERN_TOKEN_PADDING;
            n_tokens += marks[k] != TERN_TOKEN_PADDING;
        }
    }
    for (uint64_t d = 0; d < N_DOCUMENTS; d++) CHECK(length_of(d) == 1 || seen[d] == 1);
    tern_token_set_layout layout = tern_token_set_get_layout(set);
    CHECK(layout.n_padding == n_padding);
    CHECK(layout.n_truncated + n_tokens == tern_token_set_n_tokens(set) && layout.n_truncated > 0);
    CHECK(packing == TERN_PACKING_NONE ? n == N_DOCUMENTS : n < N_DOCUMENTS * 3 / 4);
    tern_token_set_close(set);
}

// Fails if a document of the second shard is read from the first.
TEST(token_set_has_whole_documents) {
    static char first[600], second[600];
    const char *const paths[2] = {first, second};
    strcpy(first, test_tmp("pack0.tern"));
    strcpy(second, test_tmp("pack1.tern"));
    write_documents(paths);
    for (int leads = 0; leads < 2; leads++) {
        check_set(paths, TERN_PACKING_NONE, leads);
        check_set(paths, TERN_PACKING_BFD, leads);
    }
}
