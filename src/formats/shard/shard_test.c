// Shards and sets of them: round trips, damage, order.
#include "formats/shard/shard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tests/support/harness.h"

// Document i of a test has 1 + 37 i % 101 tokens; token t of the whole text is this.
static int32_t token_of(uint64_t t, uint32_t n_vocab) { return (int32_t)(tern_mix64(t) % n_vocab); }
static uint64_t length_of(uint64_t document) { return 1 + document * 37 % 101; }

// Documents [first, first + n), whose first token is *token of the whole text.
static tern_status write_shard(const char *path, uint32_t n_vocab, uint64_t first, uint64_t n,
                               uint64_t *token, tern_error *err) {
    tern_shard_desc desc = {
        .n_vocab = n_vocab, .end_id = 0, .tokenizer_hash = 77, .block_bytes = 4096};
    tern_shard_writer *w;
    int32_t ids[101];
    TERN_TRY(tern_shard_writer_open(&w, path, &desc, err));
    tern_status status = TERN_OK;
    for (uint64_t d = first; d < first + n && status == TERN_OK; d++) {
        for (uint64_t i = 0; i < length_of(d); i++) ids[i] = token_of((*token)++, n_vocab);
        status = tern_shard_write(w, ids, length_of(d), err);
    }
    if (status == TERN_OK) status = tern_shard_writer_finish(w, err);
    tern_shard_writer_free(w);
    return status;
}

static uint8_t *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = NULL;
    if (f && fseek(f, 0, SEEK_END) == 0) {
        *n = (size_t)ftell(f);
        rewind(f);
        bytes = malloc(*n + 1);
        if (bytes && fread(bytes, 1, *n, f) != *n) *n = 0;
    }
    if (f) fclose(f);
    return bytes;
}

TEST(crc32_is_the_common_one) {
    CHECK(tern_crc32(0, "123456789", 9) == 0xCBF43926);
    CHECK(tern_crc32(tern_crc32(0, "1234", 4), "56789", 5) == 0xCBF43926);
    CHECK(tern_crc32(0, NULL, 0) == 0);
    size_t n = 70001; // long enough for the method with tables
    uint8_t *bytes = malloc(n);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)tern_mix64(i);
    uint32_t pieces = 0;
    for (size_t i = 0; i < n; i += 1000)
        pieces = tern_crc32(pieces, bytes + i, n - i < 1000 ? n - i : 1000);
    CHECK(tern_crc32(0, bytes, n) == pieces);
    free(bytes);
}

TEST(shard_round_trip) {
    static const uint32_t vocabularies[] = {1, 300, 65536, 65537, 200000};
    for (size_t v = 0; v < sizeof vocabularies / sizeof *vocabularies; v++) {
        const char *path = test_tmp("round.tern");
        uint32_t n_vocab = vocabularies[v];
        tern_shard *s;
        tern_error err = {0};
        uint64_t n = 0;
        REQUIRE_OK(write_shard(path, n_vocab, 0, 400, &n, &err), err);
        REQUIRE_OK(tern_shard_open(&s, path, &err), err);
        const tern_shard_info *info = tern_shard_get_info(s);
        CHECK(info->n_tokens == n && info->n_documents == 400 && info->n_vocab == n_vocab);
        CHECK(info->tokenizer_hash == 77 && info->end_id == 0);
        CHECK(info->token_bytes == (n_vocab <= 65536 ? 2 : 4) && info->n_blocks > 5);
        REQUIRE_OK(tern_shard_check(s, 0, info->n_blocks, &err), err);
        int32_t *ids = malloc(n * sizeof *ids);
        REQUIRE_OK(tern_shard_read(s, 0, n, ids, &err), err);
        bool same = true;
        for (uint64_t i = 0; i < n; i++) same &= ids[i] == token_of(i, n_vocab);
        CHECK(same);
        uint64_t at = 0;
        for (uint64_t d = 0; d < 400; d++) {
            CHECK(tern_shard_document(s, d) == at);
            CHECK(tern_shard_document_at(s, at) == d);
            at += length_of(d);
            CHECK(tern_shard_document_at(s, at - 1) == d);
        }
        CHECK(tern_shard_document(s, 400) == n);
        CHECK(tern_shard_read(s, n - 1, 2, ids, &err) == TERN_ERR_ARGUMENT);
        CHECK(tern_shard_read(s, UINT64_MAX, 2, ids, &err) == TERN_ERR_ARGUMENT);
        tern_shard_close(s);
        free(ids);
    }
}

TEST(shard_without_documents) {
    tern_shard *s;
    tern_error err = {0};
    uint64_t n = 0;
    REQUIRE_OK(write_shard(test_tmp("none.tern"), 10, 0, 0, &n, &err), err);
    REQUIRE_OK(tern_shard_open(&s, test_tmp("none.tern"), &err), err);
    CHECK(tern_shard_get_info(s)->n_tokens == 0 && tern_shard_document(s, 0) == 0);
    tern_shard_close(s);
}

TEST(shard_appears_when_it_is_complete) {
    const char *path = test_tmp("unfinished.tern");
    tern_shard_desc desc = {.n_vocab = 5, .end_id = -1};
    tern_shard_writer *w;
    tern_error err = {0};
    int32_t ids[] = {1, 2, 5};
    struct stat st;
    REQUIRE_OK(tern_shard_writer_open(&w, path, &desc, &err), err);
    REQUIRE_OK(tern_shard_write(w, ids, 2, &err), err);
    CHECK(tern_shard_write(w, ids, 3, &err) == TERN_ERR_ARGUMENT); // 5 is not a token
    CHECK(strstr(err.message, "token 5 is not in the vocabulary of 5"));
    CHECK(tern_shard_writer_finish(w, &err) == TERN_ERR_ARGUMENT);
    tern_shard_writer_free(w);
    tern_names left = {0};
    CHECK(tern_folder_list(&left, test_tmp(""), ".tern-", "", &err) == TERN_OK && left.n == 0);
    tern_names_free(&left);
    CHECK(stat(path, &st) != 0);
}

// Opens a copy of the bytes that ends where they do and checks everything.
static tern_status open_and_check(const uint8_t *bytes, size_t n, tern_error *err) {
    tern_shard *s;
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    tern_status status = tern_shard_open_bytes(&s, "copy.tern", copy, n, err);
    if (status == TERN_OK) {
        status = tern_shard_check(s, 0, tern_shard_get_info(s)->n_blocks, err);
        tern_shard_close(s);
    }
    free(copy);
    return status;
}

TEST(shard_with_any_flipped_bit_is_refused_by_name) {
    tern_error err = {0};
    uint64_t n_tokens = 0;
    size_t n = 0;
    REQUIRE_OK(write_shard(test_tmp("flip.tern"), 300, 0, 100, &n_tokens, &err), err);
    uint8_t *bytes = read_file(test_tmp("flip.tern"), &n);
    REQUIRE(bytes && n > 8192);
    REQUIRE_OK(open_and_check(bytes, n, &err), err);
    for (size_t i = 0; i < n; i += i < 64 || i > n - 64 ? 1 : 29) {
        for (int bit = 0; bit < 8; bit += 3) {
            bytes[i] ^= (uint8_t)(1 << bit);
            tern_status status = open_and_check(bytes, n, &err);
            CHECK_MSG((status == TERN_ERR_FORMAT || status == TERN_ERR_UNSUPPORTED) &&
                          !strncmp(err.message, "copy.tern: ", 11),
                      "byte %zu: %s", i, err.message);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    bytes[64 + 4096 + 5] ^= 1;
    CHECK(open_and_check(bytes, n, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "block 1 of "), "%s", err.message);
    free(bytes);
}

TEST(shard_cut_or_lengthened_is_refused) {
    tern_error err = {0};
    uint64_t n_tokens = 0;
    size_t n = 0;
    REQUIRE_OK(write_shard(test_tmp("cut.tern"), 300, 0, 60, &n_tokens, &err), err);
    uint8_t *bytes = read_file(test_tmp("cut.tern"), &n);
    REQUIRE(bytes);
    for (size_t cut = 0; cut < n; cut += cut < 80 ? 1 : 97)
        CHECK(open_and_check(bytes, cut, &err) == TERN_ERR_FORMAT);
    CHECK(open_and_check(bytes, n - 1, &err) == TERN_ERR_FORMAT);
    bytes[n] = 0; // read_file left room for it
    CHECK(open_and_check(bytes, n + 1, &err) == TERN_ERR_FORMAT);
    free(bytes);
}

// An attacker can also fix the checksums.
TEST(shard_with_true_checksums_is_still_not_trusted) {
    static const struct {
        int at, n;
        uint64_t value;
        const char *words;
    } cases[] = {
        {12, 4, 3, "neither 2 nor 4"},
        {16, 4, 0, "vocabulary size"},
        {16, 4, 1u << 31, "vocabulary size"},
        {16, 4, 100, "the vocabulary has 100"},
        {20, 4, 300, "end-of-document"},
        {20, 4, 0xFFFFFFFE, "end-of-document"},
        {24, 8, UINT64_MAX, "cut off"},
        {24, 8, (uint64_t)1 << 63, "cut off"},
        {32, 8, (uint64_t)1 << 61, "cut off"},
        {32, 8, UINT64_MAX, "cut off"},
        {24, 8, 1, "by its header"},
        {48, 4, 0, "power of two"},
        {48, 4, 12288, "power of two"},
        {48, 4, 1u << 31, "by its header"},
        {56, 4, 1, "bytes 56"},
        {8, 4, 3, "version 3"},
    };
    tern_error err = {0};
    uint64_t n_tokens = 0;
    size_t n = 0;
    REQUIRE_OK(write_shard(test_tmp("true.tern"), 300, 0, 60, &n_tokens, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *bytes = read_file(test_tmp("true.tern"), &n);
        REQUIRE(bytes);
        memcpy(bytes + cases[i].at, &cases[i].value, (size_t)cases[i].n);
        uint32_t crc = tern_crc32(0, bytes, 60);
        memcpy(bytes + 60, &crc, 4);
        tern_status status = open_and_check(bytes, n, &err);
        CHECK_MSG(status != TERN_OK && strstr(err.message, cases[i].words), "case %zu: %s", i,
                  err.message);
        free(bytes);
    }
}

// ---- What is not scored -------------------------------------------------------------------------

// Five documents of ten tokens, some of them left out.
static tern_status write_spans(const char *path, tern_error *err) {
    static const tern_token_span spans[5] = {{0}, {0, 10}, {2, 3}, {0}, {9, 10}};
    tern_shard_desc desc = {.n_vocab = 300, .end_id = 0, .block_bytes = 4096};
    tern_shard_writer *w;
    int32_t ids[10];
    TERN_TRY(tern_shard_writer_open(&w, path, &desc, err));
    tern_status status = TERN_OK;
    for (int d = 0; d < 5 && status == TERN_OK; d++) {
        for (int i = 0; i < 10; i++) ids[i] = d * 10 + i;
        status = tern_shard_write(w, ids, 10, err);
        if (status == TERN_OK && spans[d].end)
            status = tern_shard_leave_out(w, spans[d].first, spans[d].end, err);
    }
    if (status == TERN_OK) status = tern_shard_writer_finish(w, err);
    tern_shard_writer_free(w);
    return status;
}

// Fails with the marks of a span that began in an earlier window left out.
TEST(shard_keeps_what_is_not_scored) {
    tern_error err = {0};
    const char *path = test_tmp("spans.tern");
    size_t n;
    REQUIRE_OK(write_spans(path, &err), err);
    uint8_t *bytes = read_file(path, &n);
    REQUIRE(bytes != NULL);
    CHECK(bytes[8] == 2 && bytes[56] == 3);
    tern_token_set *set;
    for (uint32_t length = 3; length < 50; length += 7) {
        tern_token_set_desc desc = {.seq_len = length, .in_order = true};
        REQUIRE_OK(tern_token_set_open(&set, &path, 1, &desc, &err), err);
        CHECK(tern_token_set_has_spans(set));
        for (uint64_t i = 0; i < tern_token_set_n_sequences(set); i++) {
            int32_t ids[50];
            uint8_t marks[50];
            REQUIRE_OK(tern_token_set_sequence(set, 0, i, ids, marks, &err), err);
            for (uint32_t k = 0; k <= length; k++) {
                int32_t t = ids[k];
                bool out = (t >= 10 && t < 20) || t == 22 || t == 49;
                int wanted =
                    (t % 10 == 0 ? TERN_TOKEN_BEGINS : 0) | (out ? TERN_TOKEN_UNSCORED : 0);
                CHECK_MSG(marks[k] == wanted, "token %d of windows of %u: %d", t, length, marks[k]);
            }
        }
        tern_token_set_close(set);
    }
    free(bytes);
}

// Fails without the check of their order.
TEST(shard_spans_are_not_trusted) {
    static const struct {
        size_t at; // of the spans' table: 6 numbers
        uint64_t value;
    } cases[] = {{0, 20}, {1, 10}, {1, 23}, {2, 15}, {5, 51}, {5, UINT64_MAX}, {4, 22}};
    tern_error err = {0};
    size_t n;
    REQUIRE_OK(write_spans(test_tmp("bad_spans.tern"), &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *bytes = read_file(test_tmp("bad_spans.tern"), &n);
        REQUIRE(bytes && n == 64 + 104 + 5 * 8 + 6 * 8 + 4);
        memcpy(bytes + 64 + 104 + 5 * 8 + cases[i].at * 8, &cases[i].value, 8);
        uint32_t crc = tern_crc32(0, bytes + 64, n - 68);
        memcpy(bytes + n - 4, &crc, 4);
        crc = tern_crc32(0, bytes + n - 4, 4);
        memcpy(bytes + 52, &crc, 4);
        crc = tern_crc32(0, bytes, 60);
        memcpy(bytes + 60, &crc, 4);
        CHECK(open_and_check(bytes, n, &err) == TERN_ERR_FORMAT);
        CHECK_MSG(strstr(err.message, "not scored"), "case %zu: %s", i, err.message);
        free(bytes);
    }
}

TEST(shard_writer_refuses_spans_outside_of_the_document) {
    static const tern_token_span wrong[] = {{0, 3}, {1, 1}, {0, 1}, {UINT64_MAX, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tern_shard_desc desc = {.n_vocab = 5, .end_id = -1};
        tern_shard_writer *w;
        tern_error err = {0};
        int32_t ids[] = {1, 2};
        REQUIRE_OK(tern_shard_writer_open(&w, test_tmp("wrong.tern"), &desc, &err), err);
        REQUIRE_OK(tern_shard_write(w, ids, 2, &err), err);
        if (i == 2) REQUIRE_OK(tern_shard_leave_out(w, 0, 2, &err), err);
        CHECK(tern_shard_leave_out(w, wrong[i].first, wrong[i].end, &err) == TERN_ERR_ARGUMENT);
        CHECK(tern_shard_writer_finish(w, &err) == TERN_ERR_ARGUMENT);
        tern_shard_writer_free(w);
    }
}

// ---- Sets ---------------------------------------------------------------------------------------

TEST(permutation_is_a_bijection) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097, 100003};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint64_t n = sizes[k];
        uint8_t *seen = calloc(n, 1);
        uint64_t n_fixed = 0, n_seen = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = tern_permute(i, n, 12345 + k);
            REQUIRE(p < n);
            n_seen += !seen[p];
            seen[p] = 1;
            n_fixed += p == i;
        }
        CHECK(n_seen == n);
        CHECK(n < 100 || n_fixed < 10); // about one expected
        free(seen);
    }
    uint64_t huge = tern_permute(7, UINT64_MAX, 1);
    CHECK(huge < UINT64_MAX && huge != 7);
}

// All 24 orders of four occur, each about equally often.
TEST(permutation_reaches_every_order) {
    int counts[256] = {0}, n_orders = 0;
    for (uint64_t key = 0; key < 24000; key++) {
        int order = 0;
        for (uint64_t i = 0; i < 4; i++) order = order * 4 + (int)tern_permute(i, 4, key);
        counts[order]++;
    }
    for (int i = 0; i < 256; i++) {
        if (!counts[i]) continue;
        n_orders++;
        CHECK_MSG(counts[i] > 500 && counts[i] < 2000, "order %x came %d times", i, counts[i]);
    }
    CHECK_MSG(n_orders == 24, "%d", n_orders);
}

enum { N_SHARDS = 4, N_VOCAB = 300 };

static uint64_t write_set(const char **paths, tern_error *err) {
    static const uint64_t n_documents[N_SHARDS] = {50, 0, 3, 120}; // one is empty
    static const char *const names[N_SHARDS] = {"s0.tern", "s1.tern", "s2.tern", "s3.tern"};
    uint64_t n = 0, first = 0;
    for (int i = 0; i < N_SHARDS; i++) {
        paths[i] = test_tmp(names[i]);
        if (write_shard(paths[i], N_VOCAB, first, n_documents[i], &n, err) != TERN_OK) return 0;
        first += n_documents[i];
    }
    return n;
}

TEST(token_set_is_one_text_in_order) {
    const char *paths[N_SHARDS];
    tern_error err = {0};
    uint64_t n = write_set(paths, &err);
    REQUIRE(n > 0);
    tern_token_set_desc desc = {.seq_len = 64, .in_order = true, .check_all = true};
    tern_token_set *set;
    REQUIRE_OK(tern_token_set_open(&set, paths, N_SHARDS, &desc, &err), err);
    CHECK(tern_token_set_n_tokens(set) == n);
    CHECK(tern_token_set_n_sequences(set) == (n - 1) / 64);
    uint8_t *is_start = calloc(n, 1);
    for (uint64_t d = 0, at = 0; d < 173; at += length_of(d++)) is_start[at] = 1;
    for (uint64_t i = 0; i < tern_token_set_n_sequences(set); i++) {
        int32_t ids[65];
        uint8_t starts[65];
        REQUIRE_OK(tern_token_set_sequence(set, 9, i, ids, starts, &err), err);
        for (uint64_t k = 0; k < 65; k++) {
            CHECK(ids[k] == token_of(i * 64 + k, N_VOCAB));
            CHECK(starts[k] == is_start[i * 64 + k]);
        }
    }
    int32_t ids[65];
    CHECK(tern_token_set_sequence(set, 0, (n - 1) / 64, ids, NULL, &err) == TERN_ERR_ARGUMENT);
    free(is_start);
    tern_token_set_close(set);
}

TEST(token_set_ranks_partition_each_epoch) {
    const char *paths[N_SHARDS];
    tern_error err = {0};
    REQUIRE(write_set(paths, &err) > 0);
    tern_token_set_desc desc = {.seq_len = 16, .seed = 5};
    tern_token_set *set, *again;
    REQUIRE_OK(tern_token_set_open(&set, paths, N_SHARDS, &desc, &err), err);
    REQUIRE_OK(tern_token_set_open(&again, paths, N_SHARDS, &desc, &err), err);
    uint64_t n = tern_token_set_n_sequences(set), n_moved = 0;
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        uint8_t *seen = calloc(n, 1);
        for (uint64_t rank = 0; rank < 3; rank++) {
            for (uint64_t i = rank; i < n; i += 3) {
                uint64_t window = tern_token_set_window(set, epoch, i);
                REQUIRE(window < n);
                CHECK(!seen[window]);
                seen[window] = 1;
                CHECK(tern_token_set_window(again, epoch, i) == window);
                n_moved += epoch && tern_token_set_window(set, epoch - 1, i) != window;
            }
        }
        CHECK(memchr(seen, 0, n) == NULL);
        free(seen);
    }
    CHECK(n_moved > n); // a different order in each epoch
    tern_token_set_close(set);
    tern_token_set_close(again);
}

TEST(token_set_refuses_what_does_not_belong_together) {
    const char *paths[2] = {test_tmp("mine.tern"), test_tmp("other.tern")};
    tern_token_set_desc desc = {.seq_len = 16};
    tern_token_set *set;
    tern_error err = {0};
    uint64_t n = 0;
    REQUIRE_OK(write_shard(paths[0], 300, 0, 20, &n, &err), err);
    REQUIRE_OK(write_shard(paths[1], 301, 0, 20, &n, &err), err);
    CHECK(tern_token_set_open(&set, paths, 2, &desc, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "another tokenizer"), "%s", err.message);
    CHECK(tern_token_set_open(&set, paths, 0, &desc, &err) == TERN_ERR_ARGUMENT);
    desc.seq_len = 1 << 20;
    CHECK(tern_token_set_open(&set, paths, 1, &desc, &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(strstr(err.message, "less than one sequence"), "%s", err.message);
    paths[0] = test_tmp("missing.tern");
    CHECK(tern_token_set_open(&set, paths, 1, &desc, &err) == TERN_ERR_IO);
}

// Damage after opening is found by the sequence that touches it.
TEST(token_set_names_the_damaged_shard) {
    const char *paths[N_SHARDS];
    tern_error err = {0};
    REQUIRE(write_set(paths, &err) > 0);
    FILE *f = fopen(paths[3], "r+b");
    REQUIRE(f);
    fseek(f, 64 + 4096 + 100, SEEK_SET); // among the tokens of block 1
    int byte = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(byte ^ 16, f);
    fclose(f);
    tern_token_set_desc desc = {.seq_len = 32};
    tern_token_set *set;
    REQUIRE_OK(tern_token_set_open(&set, paths, N_SHARDS, &desc, &err), err);
    uint64_t n_bad = 0;
    for (uint64_t i = 0; i < tern_token_set_n_sequences(set); i++) {
        int32_t ids[33];
        if (tern_token_set_sequence(set, 0, i, ids, NULL, &err) == TERN_OK) continue;
        n_bad++;
        CHECK_MSG(strstr(err.message, "s3.tern: block 1 of"), "%s", err.message);
    }
    CHECK(n_bad > 0 && n_bad < tern_token_set_n_sequences(set));
    tern_token_set_close(set);
    desc.check_all = true;
    CHECK(tern_token_set_open(&set, paths, N_SHARDS, &desc, &err) == TERN_ERR_FORMAT);
}

TEST(token_set_gives_back_all_memory_when_it_fails) {
    const char *paths[N_SHARDS];
    tern_error err = {0};
    REQUIRE(write_set(paths, &err) > 0);
    tern_token_set_desc desc = {.seq_len = 32};
    size_t before = tern_mem_get_stats().total_now;
    for (uint64_t n = 1;; n++) {
        tern_token_set *set;
        uint64_t token = 0;
        tern_mem_fail_at(n);
        tern_status status = write_shard(paths[0], N_VOCAB, 0, 50, &token, &err);
        if (status == TERN_OK) status = tern_token_set_open(&set, paths, N_SHARDS, &desc, &err);
        tern_mem_fail_at(0);
        if (status == TERN_OK) {
            tern_token_set_close(set);
            CHECK(tern_mem_get_stats().total_now == before);
            break;
        }
        CHECK(status == TERN_ERR_MEMORY);
        CHECK(tern_mem_get_stats().total_now == before);
        REQUIRE(n < 500);
    }
}
