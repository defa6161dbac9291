// Text to shards: duplicates, splits, and the way back to text.
#include "train/data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "formats/formats.h"
#include "formats/shard/shard.h"
#include "input/input.h"
#include "tern.h"
#include "tests/support/harness.h"

// A path that lasts: those of test_tmp are overwritten by later ones.
typedef struct kept {
    char path[600];
} kept;
static kept keep(const char *name) {
    kept k;
    snprintf(k.path, sizeof k.path, "%s", test_tmp(name));
    return k;
}

// ---- Duplicates ---------------------------------------------------------------------------------

// n words; words [from, to) differ between salts.
static tern_strbuf make_words(uint64_t seed, int n, int from, int to, uint64_t salt) {
    tern_strbuf b = {0};
    for (int i = 0; i < n; i++) {
        uint64_t other = i >= from && i < to ? salt << 40 : 0;
        uint64_t r = tern_mix64(seed * 100003 + (uint64_t)i + other);
        tern_strbuf_printf(&b, "w%llu ", (unsigned long long)(r % 5000));
    }
    return b;
}

static tern_sketch sketch(tern_str text) {
    tern_sketcher s = {0};
    tern_sketch out = {0};
    tern_sketch_text(&s, text, true, &out, NULL);
    tern_free(s.words);
    return out;
}

static tern_sketch sketch_words(uint64_t seed, int n, int from, int to, uint64_t salt) {
    tern_strbuf b = make_words(seed, n, from, to, salt);
    tern_sketch out = sketch((tern_str){b.ptr, b.len});
    tern_strbuf_free(&b);
    return out;
}

TEST(sketch_sees_words_only) {
    tern_sketch a = sketch(TERN_STR("The  cat, sat:\non THE mat!"));
    tern_sketch b = sketch(TERN_STR("the cat sat on the mat"));
    tern_sketch c = sketch(TERN_STR("the cat sat on the mats"));
    tern_sketch d = sketch(TERN_STR("?!")), e = sketch(TERN_STR("!!"));
    CHECK(a.exact == b.exact && b.exact != c.exact && d.exact != e.exact && d.exact != a.exact);
    CHECK(tern_sketch_likeness(&a, &b) == 1);
}

// n words whose last k differ: n - 4 shingles each, n - 4 - k of them in both.
TEST(sketch_estimates_the_likeness) {
    double total = 0;
    int n_pairs = 0;
    for (int k = 0; k <= 200; k += 20) {
        for (uint64_t seed = 1; seed <= 10; seed++) {
            tern_sketch a = sketch_words(seed, 404, 0, 0, 0);
            tern_sketch b = sketch_words(seed, 404, 404 - k, 404, 1);
            double truth = (400.0 - k) / (400.0 + k), got = tern_sketch_likeness(&a, &b);
            CHECK_MSG(got > truth - 0.18 && got < truth + 0.18, "%g, estimated %g", truth, got);
            total += got - truth;
            n_pairs++;
        }
    }
    CHECK_MSG(total / n_pairs > -0.02 && total / n_pairs < 0.02, "bias %g", total / n_pairs);
}

TEST(dedup_finds_near_duplicates) {
    enum { N = 300 };
    tern_dedup_desc desc = {.exact = true, .near = true, .threshold = 0.8};
    tern_dedup *d;
    tern_error err = {0};
    tern_verdict v;
    REQUIRE_OK(tern_dedup_open(&d, &desc, &err), err);
    int n_near = 0, n_far = 0;
    for (uint64_t i = 0; i < N; i++) {
        tern_sketch s = sketch_words(i, 204, 0, 0, 0);
        REQUIRE_OK(tern_dedup_check(d, &s, &v, &err), err);
        CHECK(v == TERN_UNIQUE);
    }
    for (uint64_t i = 0; i < N; i++) {
        tern_sketch same = sketch_words(i, 204, 0, 0, 0), far = sketch_words(i, 204, 100, 204, 2);
        tern_sketch near = sketch_words(i, 204, 195, 204, 1); // likeness 191 / 209 = 0.91
        tern_dedup_check(d, &same, &v, &err);
        CHECK(v == TERN_SAME);
        tern_dedup_check(d, &near, &v, &err);
        n_near += v == TERN_NEAR;
        tern_dedup_check(d, &far, &v, &err); // 0.32
        n_far += v != TERN_UNIQUE;
    }
    CHECK_MSG(n_near > N * 98 / 100 && n_far == 0, "%d near of %d, %d far", n_near, N, n_far);
    tern_dedup_close(d);
}

TEST(dedup_remembers_what_fits) {
    tern_dedup_desc desc = {.exact = true, .n_bytes_max = 1 << 20};
    tern_dedup *d;
    tern_error err = {0};
    tern_verdict v;
    size_t before = tern_mem_get_stats().total_now, most = 0;
    REQUIRE_OK(tern_dedup_open(&d, &desc, &err), err);
    for (uint64_t i = 1; i <= 200000; i++) {
        tern_sketch s = {.exact = tern_mix64(i)}, recent = {.exact = tern_mix64(i - i % 1000 / 2)};
        REQUIRE_OK(tern_dedup_check(d, &s, &v, &err), err);
        CHECK(v == TERN_UNIQUE);
        REQUIRE_OK(tern_dedup_check(d, &recent, &v, &err), err);
        CHECK(v == TERN_SAME);
        size_t now = tern_mem_get_stats().total_now - before;
        if (now > most) most = now;
    }
    CHECK(tern_dedup_n_forgotten(d) > 100000);
    CHECK_MSG(most <= (1 << 20) + 4096, "%zu bytes", most);
    tern_dedup_close(d);
    desc.near = true;
    CHECK(tern_dedup_open(&d, &desc, &err) == TERN_ERR_ARGUMENT);
}

// ---- Everything ---------------------------------------------------------------------------------

enum { N_DOCUMENTS = 200 };

// Documents 0 to N - 1, each followed by a copy in capitals if i % 10 == 0 (the same words), or by
// one with an added word if i % 10 == 5.
static void make_corpus(const char *path) {
    FILE *f = fopen(path, "wb");
    for (uint64_t i = 0; f && i < N_DOCUMENTS; i++) {
        tern_strbuf b = make_words(i, 120, 0, 0, 0);
        fprintf(f, "%s<|endoftext|>\n", b.ptr);
        for (size_t k = 0; k < b.len; k++)
            if (b.ptr[k] == 'w') b.ptr[k] = 'W';
        if (i % 10 == 0) fprintf(f, "%s<|endoftext|>", b.ptr);
        if (i % 10 == 5) fprintf(f, "%s more<|endoftext|>", b.ptr);
        tern_strbuf_free(&b);
    }
    if (f) fclose(f);
}

static tern_status make_tokenizer(const char *texts, const char *out, tern_error *err) {
    tern_data_tokenizer_desc desc = {.source = {.paths = &texts, .n_paths = 1}, .n_vocab = 400};
    return tern_data_tokenizer(out, &desc, NULL, err);
}

static bool same_files(const char *a, const char *b) {
    size_t n, m;
    char *x = test_read(a, &n), *y = test_read(b, &m);
    bool same = n > 0 && n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

// Marks the documents in the set, by their text; false if one is not in the corpus.
static bool mark_documents(const char *folder, const char *name, tern_tokenizer *t, int *marks) {
    tern_token_set *set;
    tern_token_set_desc desc = {.seq_len = 8, .in_order = true, .check_all = true};
    tern_error err = {0};
    bool ok = tern_token_set_open_folder(&set, folder, name, &desc, &err) == TERN_OK;
    if (!ok || !set) return false;
    for (size_t i = 0; i < tern_token_set_n_shards(set); i++) {
        tern_shard *s = tern_token_set_shard(set, i);
        for (uint64_t d = 0; d < tern_shard_get_info(s)->n_documents; d++) {
            uint64_t first = tern_shard_document(s, d), end = tern_shard_document(s, d + 1);
            int32_t ids[4096];
            tern_strbuf text = {0};
            tern_decoder decoder = {0};
            ok &=
                end - first <= 4096 && tern_shard_read(s, first, end - first, ids, &err) == TERN_OK;
            ok &= ids[end - first - 1] == tern_shard_get_info(s)->end_id;
            for (uint64_t k = 0; ok && k + first + 1 < end; k++)
                tern_tokenizer_decode(t, &decoder, ids[k], &text);
            int found = -1;
            for (int k = 0; ok && k < N_DOCUMENTS && found < 0; k++) {
                tern_strbuf b = make_words((uint64_t)k, 120, 0, 0, 0);
                if (text.len == b.len - 1 && !memcmp(text.ptr, b.ptr, text.len)) found = k;
                tern_strbuf_free(&b);
            }
            ok &= found >= 0;
            if (found >= 0) marks[found]++;
            tern_strbuf_free(&text);
        }
    }
    tern_token_set_close(set);
    return ok;
}

TEST(data_build_makes_shards_that_hold_each_text_once) {
    kept text = keep("corpus.txt"), tok = keep("tok"), out = keep("built");
    const char *texts = text.path;
    tern_error err = {0};
    make_corpus(texts);
    REQUIRE_OK(make_tokenizer(texts, test_tmp("tok/"), &err), err);
    tern_data_build_desc desc = {.source = {.paths = &texts, .n_paths = 1},
                                 .tokenizer = tok.path,
                                 .valid = 0.2,
                                 .drop_near = true,
                                 .shard_tokens = 40000,
                                 .n_threads = 3,
                                 .licence = "CC0 \"x\""};
    tern_data_build_stats stats;
    test_folder(out.path);
    test_write(test_tmp("built/valid-00001.tern"), "old", 3); // of an earlier build: must go
    REQUIRE_OK(tern_data_build(out.path, &desc, &stats, &err), err);
    CHECK(access(test_tmp("built/valid-00001.tern"), F_OK) != 0);
    CHECK(stats.n_read == 240 && stats.n_same == 20 && stats.n_near == 20);
    CHECK(stats.train.n_documents + stats.valid.n_documents == N_DOCUMENTS);
    CHECK(stats.valid.n_documents > 20 && stats.valid.n_documents < 60);
    CHECK(stats.train.n_shards > 1 && stats.valid.n_shards == 1);

    tern_file *file;
    tern_tokenizer *t;
    int train[N_DOCUMENTS] = {0}, valid[N_DOCUMENTS] = {0};
    REQUIRE_OK(tern_file_open(&file, test_tmp("built/tokenizer.json"), &err), err);
    REQUIRE_OK(tern_tokenizer_open(&t, file, &err), err);
    CHECK(mark_documents(out.path, "train", t, train));
    CHECK(mark_documents(out.path, "valid", t, valid));
    for (int i = 0; i < N_DOCUMENTS; i++) CHECK(train[i] + valid[i] == 1);
    tern_tokenizer_free(t);
    tern_file_close(file);

    desc.n_threads = 1; // the same bytes
    REQUIRE_OK(tern_data_build(test_tmp("again"), &desc, &stats, &err), err);
    CHECK(same_files(test_tmp("built/train-00000.tern"), test_tmp("again/train-00000.tern")));
    CHECK(same_files(test_tmp("built/train-00001.tern"), test_tmp("again/train-00001.tern")));
    CHECK(same_files(test_tmp("built/valid-00000.tern"), test_tmp("again/valid-00000.tern")));
    CHECK(same_files(test_tmp("built/manifest.json"), test_tmp("again/manifest.json")));

    size_t n_manifest;
    char *manifest = test_read(test_tmp("built/manifest.json"), &n_manifest);
    tern_json_doc doc;
    REQUIRE_OK(tern_json_parse(&doc, manifest, n_manifest, &err), err);
    CHECK(tern_str_is(tern_json_str(tern_json_path(&doc, "licence")), "CC0 \"x\""));
    CHECK(tern_json_int(tern_json_path(&doc, "train.tokens"), 0) == (int64_t)stats.train.n_tokens);
    tern_json_free(&doc);
    free(manifest);
}

TEST(data_build_wraps_chats_with_special_tokens) {
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"w1 w2 w3\"}, "
                               "{\"role\": \"assistant\", \"content\": \"w4 w5\"}]}\n";
    kept text = keep("corpus2.txt"), tok = keep("tok.json"), out = keep("chats");
    tern_error err = {0};
    make_corpus(text.path);
    REQUIRE_OK(make_tokenizer(text.path, tok.path, &err), err);
    const char *chats = test_write(test_tmp("chats.jsonl"), chat, sizeof chat - 1);
    tern_data_build_desc desc = {.source = {.paths = &chats, .n_paths = 1}, .tokenizer = tok.path};
    tern_data_build_stats stats;
    tern_shard *s;
    int32_t ids[256];
    REQUIRE_OK(tern_data_build(out.path, &desc, &stats, &err), err);
    CHECK(stats.train.n_documents == 1 && stats.valid.n_shards == 0);
    REQUIRE_OK(tern_shard_open(&s, test_tmp("chats/train-00000.tern"), &err), err);
    uint64_t n = tern_shard_get_info(s)->n_tokens;
    REQUIRE(n < 256);
    REQUIRE_OK(tern_shard_read(s, 0, n, ids, &err), err);
    int counts[3] = {0};
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] < 3) counts[ids[i]]++;
    CHECK(ids[0] == 1 && ids[n - 1] == 0 && counts[0] == 1 && counts[1] == 2 && counts[2] == 2);
    tern_shard_close(s);
    desc.end = "<no>";
    CHECK(tern_data_build(out.path, &desc, &stats, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "has no token '<no>'"));
}

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

TEST(data_inspect_reports_and_refuses) {
    kept text = keep("corpus3.txt"), tok = keep("tok3.json");
    kept shard = keep("inspected/train-00000.tern");
    const char *texts = text.path;
    tern_error err = {0};
    make_corpus(texts);
    REQUIRE_OK(make_tokenizer(texts, tok.path, &err), err);
    tern_data_build_desc desc = {.source = {.paths = &texts, .n_paths = 1}, .tokenizer = tok.path};
    REQUIRE_OK(tern_data_build(test_tmp("inspected"), &desc, NULL, &err), err);
    tern_data_inspect_desc how = {.format = TERN_FORMAT_JSON, .n_sample = 20};
    tern_strbuf report = {0};
    tern_json_doc doc;
    REQUIRE_OK(tern_data_inspect(shard.path, &how, collect, &report, &err), err);
    REQUIRE_OK(tern_json_parse(&doc, report.ptr, report.len, &err), err);
    CHECK(tern_json_int(tern_json_path(&doc, "documents"), 0) == 220);
    CHECK(tern_json_int(tern_json_path(&doc, "ended"), 0) == 220);
    tern_str begins = tern_json_str(tern_json_path(&doc, "begins"));
    tern_strbuf first = make_words(0, 120, 0, 0, 0);
    CHECK(begins.len > 5 && !memcmp(begins.ptr, first.ptr, begins.len));
    tern_json_free(&doc);
    size_t n_bytes;
    char *bytes = test_read(shard.path, &n_bytes);
    REQUIRE(n_bytes > 0);
    bytes[n_bytes / 2] ^= 4;
    test_write(shard.path, bytes, n_bytes);
    CHECK(tern_data_inspect(shard.path, NULL, collect, &report, &err) == TERN_ERR_FORMAT);
    CHECK_MSG(strstr(err.message, "train-00000.tern: block 0 of"), "%s", err.message);
    free(bytes);
    tern_strbuf_free(&first);
    tern_strbuf_free(&report);
}

// Seen to fail: with the sources' marks ignored.
TEST(data_holds_out_whole_files) {
    static const char train[] = "one two<|endoftext|>three four<|endoftext|>five six";
    static const char held[] = "seven eight<|endoftext|>three four<|endoftext|>nine ten";
    kept texts = keep("learn.txt"), others = keep("held.txt"), tok = keep("held-tok");
    const char *path = texts.path, *other = others.path;
    tern_error err = {0};
    tern_data_build_stats s;
    test_write(test_tmp("learn.txt"), train, sizeof train - 1);
    test_write(test_tmp("held.txt"), held, sizeof held - 1);
    tern_data_tokenizer_desc learn = {.source = {.paths = &path, .n_paths = 1}, .n_vocab = 262};
    REQUIRE_OK(tern_data_tokenizer(test_tmp("held-tok/"), &learn, NULL, &err), err);
    tern_data_build_desc desc = {
        .source = {.paths = &path, .n_paths = 1, .held_out = &other, .n_held_out = 1},
        .tokenizer = tok.path};
    REQUIRE_OK(tern_data_build(test_tmp("held-out"), &desc, &s, &err), err);
    CHECK(s.train.n_documents == 3 && s.valid.n_documents == 2 && s.n_same == 1);
}

TEST(data_gives_back_all_memory_when_it_fails) {
    static const char text[] = "one two<|endoftext|>three four five six seven<|endoftext|>three";
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"w1\", "
                               "\"weight\": 0}]}\n";
    static const double weights[] = {1, 2};
    kept texts = keep("few.txt"), chats = keep("few.jsonl"), tok = keep("few");
    const char *paths[2] = {texts.path, chats.path};
    tern_error err = {0};
    test_write(test_tmp("few.txt"), text, sizeof text - 1);
    test_write(test_tmp("few.jsonl"), chat, sizeof chat - 1);
    for (int what = 0; what < 3; what++) {
        size_t before = tern_mem_get_stats().total_now;
        for (uint64_t n = 1;; n++) {
            tern_strbuf report = {0};
            tern_status status;
            tern_data_tokenizer_desc learn = {.source = {.paths = paths, .n_paths = 2},
                                              .n_vocab = 262};
            tern_data_build_desc desc = {
                .source = {.paths = paths, .n_paths = 2, .weights = weights},
                .tokenizer = tok.path,
                .drop_near = true,
                .n_threads = 1};
            tern_mem_fail_at(n);
            if (what == 0)
                status = tern_data_tokenizer(test_tmp("few/"), &learn, NULL, &err);
            else if (what == 1)
                status = tern_data_build(test_tmp("few2"), &desc, NULL, &err);
            else
                status = tern_data_inspect(test_tmp("few2/train-00000.tern"), NULL, collect,
                                           &report, &err);
            tern_mem_fail_at(0);
            tern_strbuf_free(&report);
            CHECK(tern_mem_get_stats().total_now == before);
            if (status == TERN_OK) break;
            CHECK_MSG(status == TERN_ERR_MEMORY, "%d: %s", what, err.message);
            REQUIRE(n < 3000);
        }
    }
}
