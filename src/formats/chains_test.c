// Tables of chains: the layout byte by byte, everything that is refused, and the search.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/chains.h"
#include "tests/support/harness.h"

typedef struct bytes {
    uint8_t at[8192];
    size_t n;
} bytes;

static void put(bytes *b, uint64_t v, int n) {
    for (int i = 0; i < n; i++) b->at[b->n++] = (uint8_t)(v >> 8 * i);
}

static void put_float(bytes *b, float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    put(b, bits, 4);
}

static void put_header(bytes *b, uint32_t version, uint32_t n_entries, uint32_t max_length) {
    b->n = 0;
    for (int i = 0; i < 4; i++) put(b, (uint8_t) "CHNB"[i], 1);
    put(b, version, 2);
    put(b, n_entries, 2);
    put(b, max_length, 2);
    put(b, 0xBEEF, 2); // reserved: to be ignored
}

// Writes the checksum after the bytes so far, replacing any there.
static void seal(bytes *b, bool again) {
    if (again) b->n -= 4;
    put(b, tern_crc32(0, b->at, b->n), 4);
}

// The table that the specification describes in words: bucket 3 holds 10, 11, 12 at 0.5, bucket 255
// eight tokens at 1, all others nothing.
static void make_v1(bytes *b) {
    put_header(b, 1, 256, 8);
    for (uint32_t id = 0; id < 256; id++) {
        uint32_t n = id == 3 ? 3 : id == 255 ? 8 : 0;
        put(b, id, 1);
        put(b, id == 7 ? 0xAA : 0, 1); // reserved, too
        put(b, n, 2);
        for (uint32_t i = 0; i < n; i++) put(b, (id == 3 ? 10 : 70000) + i, 4);
        put_float(b, id == 3 ? 0.5f : id == 255 ? 1 : 0);
    }
    seal(b, false);
}

TEST(chains_v1_is_as_specified) {
    bytes b;
    tern_error err = {0};
    tern_chains *c;
    size_t n;
    make_v1(&b);
    CHECK(b.n == 12 + 256 * 8 + 11 * 4 + 4);
    REQUIRE_OK(tern_chains_parse(&c, "t", b.at, b.n, &err), err);
    const tern_chain *e = tern_chains_entries(c, &n);
    CHECK(tern_chains_version(c) == 1 && n == 256);
    CHECK(e[0].n_tokens == 0 && e[3].n_tokens == 3 && e[255].n_tokens == 8);
    CHECK(e[3].tokens[0] == 10 && e[3].tokens[2] == 12 && e[3].confidence == 0.5f);
    CHECK(e[255].tokens[7] == 70007 && e[255].confidence == 1);
    // The saved file differs only in the reserved bytes, which a writer sets to 0.
    const char *path = test_tmp("chains.bin");
    REQUIRE_OK(tern_chains_save(c, path, &err), err);
    uint8_t back[8192];
    FILE *f = fopen(path, "rb");
    REQUIRE(f != NULL);
    size_t n_back = fread(back, 1, sizeof back, f);
    fclose(f);
    b.at[10] = b.at[11] = b.at[12 + 7 * 8 + 12 + 1] = 0;
    seal(&b, true);
    CHECK(n_back == b.n && memcmp(back, b.at, b.n) == 0);
    tern_chains_close(c);
}

static const tern_chain *entry(tern_chains *c, size_t i) {
    size_t n;
    const tern_chain *e = tern_chains_entries(c, &n);
    return i < n ? e + i : NULL;
}

TEST(chains_round_trip_in_both_versions) {
    static const int32_t tokens[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 2000000};
    static tern_chain entries[600];
    tern_error err = {0};
    for (size_t n_entries = 0; n_entries <= 600; n_entries += 200) {
        int32_t longest = n_entries == 200 ? 8 : 16;
        for (size_t i = 0; i < n_entries; i++) {
            int32_t n = (int32_t)(i * 7) % (longest + 1);
            entries[i] = (tern_chain){tokens + 16 - n, n, (float)i / 1000, NULL};
        }
        tern_chains *c, *back;
        const char *path = test_tmp("trip.bin");
        REQUIRE_OK(tern_chains_create(&c, entries, n_entries, &err), err);
        CHECK(tern_chains_version(c) == (n_entries <= 200 ? 1 : 2));
        REQUIRE_OK(tern_chains_save(c, path, &err), err);
        REQUIRE_OK(tern_chains_open(&back, path, &err), err);
        for (size_t i = 0; i < n_entries; i++) {
            const tern_chain *e = entry(back, i);
            REQUIRE(e && e->n_tokens == entries[i].n_tokens);
            CHECK(e->confidence == entries[i].confidence);
            CHECK(memcmp(e->tokens, entries[i].tokens, 4 * (size_t)e->n_tokens) == 0);
            CHECK((e->chances != NULL) == (n_entries > 200));
            for (int32_t k = 1; e->chances && k < e->n_tokens; k++)
                CHECK(e->chances[k] == (uint8_t)(255 * entries[i].confidence + 0.5f));
        }
        CHECK((entry(back, n_entries) != NULL) == (n_entries < 256)); // padded to 256
        tern_chains_close(c);
        tern_chains_close(back);
    }
    entries[0].n_tokens = 17;
    tern_chains *c;
    CHECK(tern_chains_create(&c, entries, 1, &err) == TERN_ERR_FORMAT && c == NULL);
}

static void refuses(const bytes *b, tern_status status, const char *reason) {
    tern_chains *c;
    tern_error err = {0};
    // A copy of exact size, so that a sanitizer sees any read outside.
    uint8_t *copy = malloc(b->n + !b->n);
    memcpy(copy, b->at, b->n);
    tern_status got = tern_chains_parse(&c, "table", copy, b->n, &err);
    CHECK_MSG(got == status && strstr(err.message, reason) && !strncmp(err.message, "table: ", 7),
              "status %d, \"%s\": expected %d, \"%s\"", (int)got, err.message, (int)status, reason);
    CHECK(c == NULL);
    tern_chains_close(c);
    free(copy);
}

TEST(chains_refuse_what_is_malformed) {
    enum { ENTRY_3 = 12 + 3 * 8 };
    static const struct {
        size_t at;
        int n;
        uint64_t value;
        tern_status status;
        const char *reason;
    } edits[] = {
        {0, 1, 'X', TERN_ERR_FORMAT, "CHNB"},
        {4, 2, 0, TERN_ERR_UNSUPPORTED, "version 0"},
        {4, 2, 3, TERN_ERR_UNSUPPORTED, "version 3"},
        {6, 2, 255, TERN_ERR_FORMAT, "255 chains"},
        {8, 2, 9, TERN_ERR_FORMAT, "at most 9"},
        {ENTRY_3, 1, 4, TERN_ERR_FORMAT, "chain 3 is numbered 4"},
        {ENTRY_3 + 2, 2, 9, TERN_ERR_FORMAT, "chain 3 has 9 tokens"},
        {ENTRY_3 + 4, 4, 0xFFFFFFFF, TERN_ERR_FORMAT, "-1 is not a token"},
        {ENTRY_3 + 16, 4, 0x7FC00000, TERN_ERR_FORMAT, "confidence nan"},
        {ENTRY_3 + 16, 4, 0x7F800000, TERN_ERR_FORMAT, "confidence inf"},
        {ENTRY_3 + 16, 4, 0xBF800000, TERN_ERR_FORMAT, "confidence -1"},
    };
    bytes b;
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        make_v1(&b);
        for (int k = 0; k < edits[i].n; k++)
            b.at[edits[i].at + (size_t)k] = (uint8_t)(edits[i].value >> 8 * k);
        seal(&b, true);
        refuses(&b, edits[i].status, edits[i].reason);
    }
    make_v1(&b);
    b.at[ENTRY_3 + 4] ^= 1;
    refuses(&b, TERN_ERR_FORMAT, "checksum");
    for (make_v1(&b); b.n > 0;) { // every shorter length
        b.n--;
        refuses(&b, TERN_ERR_FORMAT, b.n < 16 ? "too few" : "checksum");
    }
    make_v1(&b);
    b.n -= 4;
    put(&b, 0, 4);
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "4 bytes follow");
    make_v1(&b);
    b.n -= 8; // the last entry lost its end
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "ends in chain 255");
    // Entry 0 takes the bytes that entry 1 needs: when only an entry's own bytes were checked, two
    // tokens were written outside the table, and entry 1 was blamed.
    put_header(&b, 2, 2, 8);
    put(&b, 0, 2), put(&b, 2, 2);
    for (int i = 0; i < 4; i++) put(&b, 7, 4);
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "ends in chain 0");
    put_header(&b, 2, 0, 8);
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "0 chains");
    put_header(&b, 2, 65535, 8);
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "too few for 65535");
    put_header(&b, 2, 1, 17);
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "at most 17");
    put_header(&b, 2, 1, 2);
    for (int i = 0; i < 8; i++) put(&b, 0, 4);
    seal(&b, false);
    refuses(&b, TERN_ERR_FORMAT, "too many");
}

TEST(chains_search_prefers_the_longest_match_and_then_confidence) {
    static const int32_t a[] = {1, 2, 3, 4}, b[] = {2, 3, 9}, c1[] = {3, 5}, c2[] = {3, 6, 7},
                         c3[] = {3, 8}, whole[] = {7, 8, 9};
    const tern_chain entries[] = {{a, 4, 0.1f, NULL}, {b, 3, 0.2f, NULL},  {c1, 2, 0.7f, NULL},
                                  {NULL, 0, 0, NULL}, {c2, 3, 0.9f, NULL}, {c3, 2, 0.9f, NULL},
                                  {whole, 3, 1, NULL}};
    static const struct {
        int32_t recent[4];
        size_t n_recent, n_matched;
        int32_t next; // -1: nothing
    } cases[] = {
        {{5, 1, 2, 3}, 4, 3, 4}, // three tokens, although others are more confident
        {{5, 0, 2, 3}, 4, 2, 9}, // two
        {{5, 0, 0, 3}, 4, 1, 6}, // one: 0.9 before 0.7, then the longer
        {{3}, 1, 1, 6},          // at the beginning of a text
        {{2, 3}, 2, 2, 9},       {{7, 8, 9}, 3, 0, -1}, // a complete chain has no continuation
        {{0, 7, 8}, 3, 2, 9},    {{4}, 1, 0, -1},       {{0}, 0, 0, -1},
    };
    tern_chains *t;
    tern_error err = {0};
    REQUIRE_OK(tern_chains_create(&t, entries, sizeof entries / sizeof *entries, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 0;
        const tern_chain *e = tern_chains_find(t, cases[i].recent, cases[i].n_recent, &n);
        CHECK_MSG((e ? e->tokens[n] : -1) == cases[i].next, "case %zu", i);
        CHECK_MSG(!e || n == cases[i].n_matched, "case %zu matches %zu tokens", i, n);
    }
    tern_chains_close(t);
}

// A table of version 2 matches more past tokens: five instead of three.
TEST(chains_v2_search_matches_five_tokens) {
    static const int32_t a[] = {1, 2, 3, 4, 5, 6, 7}, b[] = {3, 4, 5, 8};
    tern_chain entries[257] = {{a, 7, 0.3f, NULL}, {b, 4, 0.9f, NULL}};
    for (size_t n_entries = 2; n_entries <= 257; n_entries += 255) {
        tern_chains *c;
        tern_error err = {0};
        size_t n = 0;
        REQUIRE_OK(tern_chains_create(&c, entries, n_entries, &err), err);
        const tern_chain *e = tern_chains_find(c, a, 5, &n);
        if (n_entries == 2)
            CHECK(e && n == 3 && e->tokens[n] == 8);
        else
            CHECK(e && n == 5 && e->tokens[n] == 6);
        e = tern_chains_find(c, a, 6, &n); // 2 ... 6 begins no chain, nor do its shorter ends
        CHECK(!e);
        tern_chains_close(c);
    }
}

// Version 2 has a probability for each token: the likeliest next one counts, not the whole chain.
TEST(chains_v2_search_prefers_the_likeliest_next_token) {
    static const int32_t a[] = {1, 2, 3, 4}, b[] = {1, 5};
    static const uint8_t in_a[] = {0, 50, 250, 250}, in_b[] = {0, 90};
    static tern_chain entries[257] = {{a, 4, 0.7f, in_a}, {b, 2, 0.35f, in_b}};
    tern_chains *c, *back;
    tern_error err = {0};
    size_t n = 0;
    const char *path = test_tmp("v2.bin");
    REQUIRE_OK(tern_chains_create(&c, entries, 257, &err), err);
    REQUIRE_OK(tern_chains_save(c, path, &err), err);
    REQUIRE_OK(tern_chains_open(&back, path, &err), err);
    const tern_chain *e = tern_chains_find(back, a, 1, &n);
    CHECK(e && n == 1 && e->tokens[1] == 5 && e->chances[1] == 90);
    e = tern_chains_find(back, a, 2, &n);
    CHECK(e && n == 2 && e->tokens[2] == 3 && !memcmp(e->chances, in_a, 4));
    tern_chains_close(back);
    tern_chains_close(c);
}

TEST(chains_survive_failing_allocations) {
    bytes b;
    tern_error err = {0};
    make_v1(&b);
    const char *path = test_tmp("oom.bin");
    size_t before = tern_mem_get_stats().total_now;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 1000; n++) {
        tern_chains *c = NULL;
        tern_mem_fail_at(n);
        status = tern_chains_parse(&c, "t", b.at, b.n, &err);
        if (status == TERN_OK) status = tern_chains_save(c, path, &err);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        tern_chains_close(c);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK(status == TERN_OK);
}
