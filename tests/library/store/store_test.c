// tern_memory.h as programs use it: stores with words alone, and with the vectors of a model.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "tests/support/harness.h"
#include "tern_embed.h"
#include "tern_memory.h"
#include "tern_tools.h"
#include "tests/support/tiny_model.h"

#ifdef TERN_SQLITE
#include <sqlite3.h>

static tern_memory_store *open_at(const char *name, const tern_memory_desc *desc) {
    tern_memory_store *s = NULL;
    tern_error err = {0};
    CHECK_MSG(tern_memory_open(&s, test_tmp(name), desc, &err) == TERN_OK, "%s", err.message);
    return s;
}

static int64_t add(tern_memory_store *s, const char *text, const char *source,
                   const char *metadata) {
    tern_error err = {0};
    tern_memory_added added;
    const tern_memory_item item = {
        .text = text, .n_bytes = strlen(text), .source = source, .metadata = metadata};
    CHECK_MSG(tern_memory_add(s, &item, NULL, &added, &err) == TERN_OK, "%s", err.message);
    return added.id;
}

static tern_memory_hits *recall(tern_memory_store *s, tern_memory_query q, const char *text) {
    tern_memory_hits *hits = NULL;
    tern_error err = {0};
    q.text = text, q.n_bytes = strlen(text);
    CHECK_MSG(tern_memory_recall(s, &q, &hits, &err) == TERN_OK, "%s", err.message);
    return hits;
}

// The records of the hits, best first, as text.
static void check_found(tern_memory_store *s, tern_memory_query q, const char *text,
                        const char *want) {
    char got[256] = "";
    tern_memory_hits *hits = recall(s, q, text);
    for (size_t i = 0; hits && i < hits->n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? " " : "",
                 (long long)hits->list[i].record);
    CHECK_MSG(strcmp(got, want) == 0, "\"%s\" finds %s, not %s", text, got, want);
    tern_memory_hits_free(hits);
}

static bool collect(void *user, const char *text, size_t n) {
    size_t length = strlen(user);
    CHECK(length + n < 8192);
    memcpy((char *)user + length, text, n);
    ((char *)user)[length + n] = 0;
    return true;
}

static bool count(void *user, const tern_memory_record *record) {
    (void)record;
    ++*(int *)user;
    return true;
}

// ---- Words --------------------------------------------------------------------------------------

static void fill(tern_memory_store *s) {
    add(s, "The spare key is under the third flowerpot.", "garden.md", "{\"room\": \"outside\"}");
    add(s, "Tomatoes want water every day, roses do not.", "garden.md",
        "{\"room\": \"outside\", \"year\": 2024, \"tags\": [\"plants\", \"water\"]}");
    add(s, "The router's reset button is at the back.", "office.txt",
        "{\"room\": \"office\", \"year\": 2026, \"by\": {\"name\": \"Ann\"}}");
    add(s, "A key of the office hangs beside the door.", NULL, NULL);
}

// Seen to fail: with the rank's order turned, with a query's quotes left in, and with the index
// left alone by forgetting.
TEST(store_recalls_by_words) {
    tern_memory_store *s = open_at("words.memory", NULL);
    REQUIRE(s);
    fill(s);
    const tern_memory_query any = {0};
    check_found(s, any, "flowerpot", "1");
    check_found(s, any, "where are the ROSES?", "2 1 3 4");
    check_found(s, any, "office keys", "4 1");
    check_found(s, any, "\" OR NEAR( * flowerpot ^ {x} AND", "1");
    check_found(s, any, "nothing like that", "");
    check_found(s, any, "", "");
    check_found(s, any, "* \" - ()", "");
    check_found(s, (tern_memory_query){.n_most = 1}, "office keys", "4");
    tern_error err = {0};
    tern_memory_hits *hits;
    CHECK(tern_memory_recall(
              s, &(tern_memory_query){.text = "x", .n_bytes = 1, .search = TERN_MEMORY_VECTORS},
              &hits, &err) == TERN_ERR_ARGUMENT);
    CHECK(!hits && strstr(err.message, "needs the model"));
    CHECK(tern_memory_forget(s, 4, &err) == TERN_OK);
    check_found(s, any, "office keys", "1");
    CHECK(tern_memory_forget(s, 4, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "there is no record 4"));
    CHECK(tern_memory_compact(s, &err) == TERN_OK);
    check_found(s, any, "office keys", "1");
    tern_memory_close(s);
}

// Seen to fail: with numbers compared as text, with lists that fit never, and with NOT_EQUAL that
// a record without the member misses.
TEST(store_filters_by_metadata) {
    tern_memory_store *s = open_at("filters.memory", NULL);
    REQUIRE(s);
    fill(s);
    static const struct {
        tern_memory_filter filter;
        const char *want;
    } rows[] = {
        {{"room", "outside", TERN_MEMORY_EQUAL}, "1 2"},
        {{"room", "outside", TERN_MEMORY_NOT_EQUAL}, "3 4"},
        {{"year", "2024.0", TERN_MEMORY_EQUAL}, "2"},
        {{"year", "999", TERN_MEMORY_GREATER}, "2 3"},
        {{"year", "2026", TERN_MEMORY_GREATER_EQUAL}, "3"},
        {{"year", "2026", TERN_MEMORY_LESS}, "2"},
        {{"year", "2026", TERN_MEMORY_LESS_EQUAL}, "2 3"},
        {{"tags", "water", TERN_MEMORY_EQUAL}, "2"},
        {{"tags", "water", TERN_MEMORY_NOT_EQUAL}, "1 3 4"},
        {{"by.name", "Ann", TERN_MEMORY_EQUAL}, "3"},
        {{"source", "garden.md", TERN_MEMORY_EQUAL}, "1 2"},
        {{"source", "gar", TERN_MEMORY_BEGINS}, "1 2"},
        {{"created", "1000", TERN_MEMORY_LESS}, ""},
        {{"none", "x", TERN_MEMORY_EQUAL}, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tern_memory_query q = {.filters = &rows[i].filter, .n_filters = 1};
        char got[64] = "";
        tern_memory_hits *hits = recall(s, q, "the key of the router and the tomatoes want water");
        for (int id = 1; id <= 4; id++)
            for (size_t k = 0; hits && k < hits->n; k++)
                if (hits->list[k].record == id)
                    snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d", *got ? " " : "",
                             id);
        CHECK_MSG(strcmp(got, rows[i].want) == 0, "filter %zu: %s, not %s", i, got, rows[i].want);
        tern_memory_hits_free(hits);
    }
    const tern_memory_filter both[] = {{"room", "outside", TERN_MEMORY_EQUAL},
                                       {"year", "2024", TERN_MEMORY_EQUAL}};
    int n = 0;
    int64_t n_forgotten;
    tern_error err = {0};
    CHECK(tern_memory_list(s, both, 2, count, &n, &err) == TERN_OK && n == 1);
    CHECK(tern_memory_forget_where(s, both, 2, &n_forgotten, &err) == TERN_OK && n_forgotten == 1);
    CHECK(tern_memory_forget_where(s, NULL, 0, &n_forgotten, &err) == TERN_ERR_ARGUMENT);
    n = 0;
    CHECK(tern_memory_list(s, NULL, 0, count, &n, &err) == TERN_OK && n == 3);
    tern_memory_close(s);
}

// Without a model four bytes are a token. Seen to fail: with the empty line between texts not
// counted, and with packing that ends at the first text that does not fit.
TEST(store_packs_a_budget_of_tokens) {
    tern_memory_store *s = open_at("budget.memory", NULL);
    REQUIRE(s);
    add(s, "apple apple apple apple of a long text that takes quite some tokens", NULL, NULL);
    add(s, "apple apple tree", NULL, NULL); // 4 tokens
    add(s, "apple pie here", NULL, NULL);   // 4 tokens
    static const int budgets[] = {0, 100, 9, 8, 7, 4, 3};
    static const size_t fit[] = {3, 3, 2, 2, 1, 1, 0}; // 8: 16 + 2 + 14 bytes
    for (size_t i = 0; i < 7; i++) {
        tern_memory_hits *hits = recall(s, (tern_memory_query){.max_tokens = budgets[i]}, "apple");
        REQUIRE(hits);
        size_t bytes = 0;
        for (size_t k = 0; k < hits->n; k++) bytes += hits->list[k].n_bytes + (k ? 2 : 0);
        CHECK_MSG(hits->n == fit[i], "%d tokens: %zu hits", budgets[i], hits->n);
        CHECK(hits->n_bytes == bytes && strlen(hits->context) == bytes);
        CHECK(hits->n_tokens == (int64_t)(bytes + 3) / 4);
        CHECK(!budgets[i] || hits->n_tokens <= budgets[i]);
        tern_memory_hits_free(hits);
    }
    tern_memory_close(s);
}

// ---- What is stored -----------------------------------------------------------------------------

static bool shout(void *user, const char *text, size_t n, tern_text_fn keep, void *keep_user) {
    (void)user;
    if (n >= 4 && memcmp(text, "stop", 4) == 0) return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i] == 'z' ? 'Z' : text[i];
        if (!keep(keep_user, &c, 1)) return false;
    }
    return true;
}

// Seen to fail: with metadata, or the source, stored as it came.
TEST(store_has_no_secret) {
    tern_memory_store *s = open_at("secrets.memory", NULL);
    char all[8192] = "";
    tern_error err = {0};
    REQUIRE(s);
    add(s, "Write to bob@example.com about \"Zebra\".", "mail/bob@example.com",
        "{\"from\": {\"who\": [\"bob@example.com\"]}, \"card\": 4111111111111111, \"n\": 3}");
    const char *patterns[] = {"Z\\w+"};
    const tern_memory_add_params params = {.patterns = patterns, .n_patterns = 1, .redact = shout};
    const tern_memory_item item = {.text = "Zebra puzzle", .n_bytes = 12};
    const tern_memory_item stop = {.text = "stop puzzle", .n_bytes = 11};
    tern_memory_added added;
    CHECK(tern_memory_add(s, &item, &params, &added, &err) == TERN_OK && added.n_redacted == 2);
    CHECK(tern_memory_add(s, &stop, &params, &added, &err) == TERN_ERR_CANCELLED && !added.id);
    CHECK(tern_memory_export(s, NULL, 0, collect, all, &err) == TERN_OK);
    CHECK_MSG(strstr(all, "{\"text\":\"Write to [redacted email] about \\\"Zebra\\\".\","
                          "\"source\":\"mail/[redacted email]\",\"metadata\":"
                          "{\"from\":{\"who\":[\"[redacted email]\"]},"
                          "\"card\":\"[redacted card]\",\"n\":3},\"created\":"),
              "%s", all);
    CHECK_MSG(strstr(all, "{\"text\":\"[redacted] puZZle\","), "%s", all);
    CHECK(!strstr(all, "example.com") && !strstr(all, "stop"));
    tern_memory_close(s);
    // Nor has the file, in any of its pages.
    size_t n;
    char path[600];
    snprintf(path, sizeof path, "%s/memory.sqlite", test_tmp("secrets.memory"));
    char *bytes = test_read(path, &n);
    REQUIRE(bytes);
    CHECK(memmem(bytes, n, "redacted", 8) && !memmem(bytes, n, "bob@", 4));
    CHECK(!memmem(bytes, n, "4111111111111111", 16));
    free(bytes);
}

// What was forgotten is in no page after `compact`. Seen to fail: without optimizing the index.
TEST(store_forgets_for_good) {
    tern_memory_store *s = open_at("forget.memory", NULL);
    tern_error err = {0};
    REQUIRE(s);
    add(s, "an ordinary note", NULL, NULL);
    int64_t id = add(s, "the xylophonist meets the quartermaster", "xylo.txt", NULL);
    CHECK(tern_memory_forget(s, id, &err) == TERN_OK);
    CHECK_MSG(tern_memory_compact(s, &err) == TERN_OK, "%s", err.message);
    static const char *const ends[] = {"", "-wal"};
    for (int i = 0; i < 2; i++) {
        size_t n;
        char path[600];
        snprintf(path, sizeof path, "%s/memory.sqlite%s", test_tmp("forget.memory"), ends[i]);
        char *bytes = test_read(path, &n);
        CHECK(!bytes || (!memmem(bytes, n, "xylo", 4) && !memmem(bytes, n, "quartermast", 11)));
        CHECK(i > 0 || (bytes && memmem(bytes, n, "ordinary", 8)));
        free(bytes);
    }
    tern_memory_close(s);
}

// A file of version 1: its index has whole runs of Chinese characters, and no pairs of them. It
// stays such a file. Seen to fail: with pairs put into it and looked for.
TEST(store_goes_on_with_files_of_version_1) {
    tern_memory_store *s = open_at("first.memory", NULL);
    tern_error err = {0};
    REQUIRE(s);
    tern_memory_close(s);
    char path[600];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/memory.sqlite", test_tmp("first.memory"));
    CHECK(sqlite3_open(path, &db) == SQLITE_OK &&
          sqlite3_exec(db, "PRAGMA user_version = 1", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    REQUIRE((s = open_at("first.memory", NULL)));
    add(s, "the keeper of the lighthouse", NULL, NULL);
    int64_t id = add(s, "東京都の天気", NULL, NULL);
    check_found(s, (tern_memory_query){0}, "lighthouse", "1");
    check_found(s, (tern_memory_query){0}, "東京都の天気", "2");
    check_found(s, (tern_memory_query){0}, "天気", "");
    CHECK_MSG(tern_memory_forget(s, id, &err) == TERN_OK, "%s", err.message);
    check_found(s, (tern_memory_query){0}, "東京都の天気", "");
    CHECK_MSG(tern_memory_compact(s, &err) == TERN_OK, "%s", err.message);
    tern_memory_close(s);
}

// Seen to fail: with export in another order, and with the overlap exported twice.
TEST(store_exports_what_import_reads) {
    char first[8192] = "", second[8192] = "";
    tern_memory_store *s = open_at("export.memory", NULL);
    tern_memory_store *t = open_at("import.memory", NULL);
    tern_error err = {0};
    REQUIRE(s && t);
    fill(s);
    tern_memory_item item = {.text =
                                 "\n\nOne. Two.\t\n\n Three four five six. Seven eight. Nine.\n",
                             .source = "a.txt",
                             .created = 12345};
    item.n_bytes = strlen(item.text);
    const tern_memory_add_params params = {.chunk_tokens = 8, .overlap_tokens = 4};
    tern_memory_added added;
    CHECK(tern_memory_add(s, &item, &params, &added, &err) == TERN_OK && added.n_chunks > 2);
    int64_t n;
    CHECK(tern_memory_export(s, NULL, 0, collect, first, &err) == TERN_OK);
    CHECK(strstr(first, "{\"text\":\"\\n\\nOne. Two.\\t\\n\\n Three four five six. Seven eight. "
                        "Nine.\\n\",\"source\":\"a.txt\",\"metadata\":{},\"created\":12345}\n"));
    CHECK(tern_memory_import(t, first, strlen(first), &params, &n, &err) == TERN_OK && n == 5);
    CHECK(tern_memory_export(t, NULL, 0, collect, second, &err) == TERN_OK);
    CHECK_MSG(strcmp(first, second) == 0, "%s", second);
    // One bad line, and nothing is added.
    static const char *const bad[] = {"\"good\"\n{\"text\": 3}", "\"good\"\n{\"text\": \"\"}",
                                      "\"good\"\n{\"text\": \"x\", \"metadata\": []}",
                                      "\"good\"\n{\"text\": \"x\", \"source\": 1}", "\"good\"\n{"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(tern_memory_import(t, bad[i], strlen(bad[i]), NULL, &n, &err) != TERN_OK && n == 0);
        CHECK_MSG(strstr(err.message, "line 2: "), "%s", err.message);
    }
    int n_records = 0;
    CHECK(tern_memory_list(t, NULL, 0, count, &n_records, &err) == TERN_OK && n_records == 5);
    tern_memory_close(s);
    tern_memory_close(t);
}

TEST(store_replaces_a_source) {
    tern_memory_store *s = open_at("replace.memory", NULL);
    tern_error err = {0};
    REQUIRE(s);
    const tern_memory_add_params params = {.replace = true};
    tern_memory_item item = {.text = "old", .n_bytes = 3, .source = "a"};
    tern_memory_added a, b, c;
    CHECK(tern_memory_add(s, &item, &params, &a, &err) == TERN_OK && !a.was_there);
    CHECK(tern_memory_add(s, &item, &params, &b, &err) == TERN_OK && b.was_there && b.id == a.id);
    item.text = "new";
    CHECK(tern_memory_add(s, &item, &params, &c, &err) == TERN_OK && !c.was_there && c.id != a.id);
    check_found(s, (tern_memory_query){0}, "old", "");
    CHECK(tern_memory_add(s, &item, NULL, &b, &err) == TERN_OK && !b.was_there);
    int n = 0;
    CHECK(tern_memory_list(s, NULL, 0, count, &n, &err) == TERN_OK && n == 2);
    tern_memory_close(s);
}

TEST(store_refuses_what_is_no_text) {
    tern_memory_store *s = open_at("bad.memory", NULL);
    tern_error err = {0};
    REQUIRE(s);
    static const struct {
        tern_memory_item item;
        const char *want;
    } rows[] = {
        {{.text = "a\xff", .n_bytes = 2, .source = "x.bin"}, "x.bin: not text in UTF-8 at byte 2"},
        {{.text = "a\0b", .n_bytes = 3}, "not text in UTF-8 at byte 2"},
        {{.text = " \n", .n_bytes = 2}, "the text is empty"},
        {{.text = "", .n_bytes = 0, .source = "e"}, "e: the text is empty"},
        {{.text = "a", .n_bytes = 1, .metadata = "[1]"}, "metadata: expected a JSON object"},
        {{.text = "a", .n_bytes = 1, .metadata = "{"}, "metadata: "},
        {{.text = "a", .n_bytes = 1, .source = "\xff"}, "source: not text"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(tern_memory_add(s, &rows[i].item, NULL, NULL, &err) != TERN_OK);
        CHECK_MSG(strstr(err.message, rows[i].want), "%s", err.message);
    }
    int n = 0;
    CHECK(tern_memory_list(s, NULL, 0, count, &n, &err) == TERN_OK && n == 0);
    tern_memory_close(s);
    CHECK(tern_memory_open(&s, test_tmp("none.memory"), &(tern_memory_desc){.must_exist = true},
                           &err) == TERN_ERR_IO);
    CHECK(!s && strstr(err.message, "there is no memory here"));
    CHECK(access(test_tmp("none.memory"), F_OK) != 0);
}

// Cut short and overwritten files: a sentence, and nothing worse.
TEST(store_survives_damaged_files) {
    tern_memory_store *s = open_at("damaged.memory", NULL);
    char path[600];
    size_t n;
    REQUIRE(s);
    for (int i = 0; i < 30; i++) fill(s);
    tern_memory_close(s);
    snprintf(path, sizeof path, "%s/memory.sqlite", test_tmp("damaged.memory"));
    char *bytes = test_read(path, &n);
    REQUIRE(bytes && n > 8192);
    uint32_t seed = 3;
    for (int round = 0; round < 60; round++) {
        char *copy = malloc(n);
        size_t kept = round % 3 == 0 ? n * (size_t)(round + 1) / 61 : n;
        memcpy(copy, bytes, n);
        for (int i = 0; i < 20 && kept == n; i++) {
            seed = seed * 1664525 + 1013904223;
            copy[(seed >> 4) % n] = (char)(seed >> 24);
        }
        tern_error err = {0};
        CHECK(tern_file_write(path, copy, kept, &err) == TERN_OK);
        free(copy);
        tern_memory_hits *hits = NULL;
        char all[8] = "";
        (void)all;
        if (tern_memory_open(&s, test_tmp("damaged.memory"), NULL, &err) != TERN_OK) {
            CHECK(err.message[0]);
            continue;
        }
        const tern_memory_query q = {.text = "key tomatoes", .n_bytes = 12};
        if (tern_memory_recall(s, &q, &hits, &err) != TERN_OK) CHECK(err.message[0]);
        tern_memory_hits_free(hits);
        int seen = 0;
        if (tern_memory_list(s, NULL, 0, count, &seen, &err) != TERN_OK) CHECK(err.message[0]);
        if (tern_memory_forget(s, 3, &err) != TERN_OK) CHECK(err.message[0]);
        tern_memory_close(s);
    }
    free(bytes);
    tern_error err = {0};
    CHECK(tern_file_write(path, "no database, but long enough to be looked at as one...", 54,
                          &err) == TERN_OK);
    CHECK(tern_memory_open(&s, test_tmp("damaged.memory"), NULL, &err) == TERN_ERR_FORMAT);
}

// ---- Rerankers ----------------------------------------------------------------------------------

static float relevance_of(tern_model *ranker, const char *query, const char *text) {
    const tern_embed_text document = {.text = text, .n_bytes = strlen(text)};
    float score = NAN;
    tern_error err = {0};
    const tern_rerank_params p = {.query = query, .n_bytes = strlen(query)};
    CHECK_MSG(tern_rerank(ranker, &document, 1, &p, &score, &err) == TERN_OK, "%s", err.message);
    return score;
}

// A ranker's order of the best, which is not that of the words. Seen to fail: with the order
// turned, with only as many candidates read as hits are wanted, without the headings, and with the
// budget filled before the passages were put in order.
TEST(store_has_a_reranker_order_what_it_found) {
    static const char *const texts[] = {"f o x a n d h e n", "t h e f o x", "w h o a n d w h o",
                                        "# t h e\n\nf o x f o x", "o w e"};
    static const char query[] = "f o x";
    tern_memory_store *s = open_at("reranked.memory", NULL);
    tern_model *ranker;
    tern_error err = {0};
    REQUIRE(s);
    REQUIRE_OK(tern_model_open(&ranker, "tests/oracles/bert_ranker", NULL, &err), err);
    for (size_t i = 0; i < 5; i++) add(s, texts[i], i == 3 ? "x.md" : NULL, NULL);
    float best = -INFINITY, last = INFINITY;
    tern_memory_hits *hits = recall(s, (tern_memory_query){.reranker = ranker}, query);
    REQUIRE(hits && hits->n == 5);
    bool same_order = true;
    for (size_t i = 0; i < hits->n; i++) {
        const tern_memory_hit *h = &hits->list[i];
        char whole[100];
        snprintf(whole, sizeof whole, "%s%s%s", h->heading, *h->heading ? "\n\n" : "", h->text);
        const float alone = relevance_of(ranker, query, whole);
        CHECK_MSG(fabsf(h->relevance - alone) < 1e-5f, "%s: %g, not %g", h->text,
                  (double)h->relevance, (double)alone);
        CHECK(h->relevance <= last);
        same_order = same_order && (i == 0 || h->score <= hits->list[i - 1].score);
        last = h->relevance;
        if (h->relevance > best) best = h->relevance;
    }
    CHECK(!same_order && strstr(hits->context, hits->list[4].text));
    const int32_t few = hits->list[0].n_tokens;
    tern_memory_hits_free(hits);
    // One hit is the best of all, and not the first that the words find; so is one that alone fits.
    const tern_memory_query ways[] = {{.reranker = ranker, .n_most = 1},
                                      {.reranker = ranker, .max_tokens = few}};
    for (size_t i = 0; i < 2; i++) {
        hits = recall(s, ways[i], query);
        CHECK(hits && hits->n == 1 && hits->list[0].relevance == best);
        tern_memory_hits_free(hits);
    }
    // Of two that it reads, which come first by words, one is the best.
    hits =
        recall(s, (tern_memory_query){.reranker = ranker, .n_most = 1, .n_candidates = 2}, query);
    CHECK(hits && hits->n == 1 && strcmp(hits->list[0].text, texts[1]) == 0);
    tern_memory_hits_free(hits);
    hits = recall(s, (tern_memory_query){.n_most = 1}, query);
    CHECK(hits && hits->n == 1 && isnan(hits->list[0].relevance));
    tern_memory_hits_free(hits);
    hits = recall(s, (tern_memory_query){.reranker = ranker}, "nothing");
    CHECK(hits && hits->n == 0 && hits->n_bytes == 0);
    tern_memory_hits_free(hits);
    const tern_memory_query wrong = {
        .text = "o", .n_bytes = 1, .reranker = ranker, .n_candidates = 1001};
    CHECK(tern_memory_recall(s, &wrong, &hits, &err) == TERN_ERR_ARGUMENT && !hits);
    CHECK(strstr(err.message, "reads up to 1000"));
    tern_memory_close(s);
    tern_model_close(ranker);
}

// ---- Vectors ------------------------------------------------------------------------------------

static tern_model *open_embedder(const char *name, unsigned seed) {
    tern_error err = {0};
    tern_model *m = NULL;
    const tiny_model_desc desc = {.n_layers = 1, .seed = seed, .name = name};
    const tern_model_desc as = {.pooling = TERN_POOLING_MEAN, .n_threads = 1};
    CHECK(tiny_model_write(test_tmp(name), &desc, &err) == TERN_OK);
    CHECK_MSG(tern_model_open(&m, test_tmp(name), &as, &err) == TERN_OK, "%s", err.message);
    return m;
}

// Seen to fail: with the similarity of the codes, with vectors of the chunk before, and with the
// vectors that were read at first kept after others were added or forgotten elsewhere.
TEST(store_recalls_by_vectors) {
    tern_error err = {0};
    tern_model *m = open_embedder("embedder.gguf", 1);
    REQUIRE(m);
    tern_memory_store *s = open_at("vectors.memory", &(tern_memory_desc){.model = m});
    tern_memory_store *other = open_at("vectors.memory", &(tern_memory_desc){.model = m});
    REQUIRE(s && other);
    char text[64];
    tern_memory_query q = {.search = TERN_MEMORY_VECTORS, .n_most = 5};
    for (int i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "note %d: %c%c%c lies at place %d", i, 'a' + i % 26,
                 'a' + i / 26, 'a' + i % 7, i * 37 % 100);
        add(s, text, NULL, NULL);
        if (i != 50 && i != 199) continue;
        // A text's own vector is the nearest; the codes find what all floats find.
        tern_memory_hits *hits = recall(other, q, text);
        q.exact = true;
        tern_memory_hits *exact = recall(other, q, text);
        q.exact = false;
        REQUIRE(hits && exact && hits->n == 5 && exact->n == 5);
        CHECK(strcmp(hits->list[0].text, text) == 0 && hits->list[0].similarity > 0.9999f);
        for (int k = 0; k < 5; k++) {
            CHECK(hits->list[k].id == exact->list[k].id);
            CHECK(fabsf(hits->list[k].similarity - exact->list[k].similarity) < 1e-6f);
        }
        tern_memory_hits_free(hits);
        tern_memory_hits_free(exact);
    }
    CHECK(tern_memory_forget(s, 200, &err) == TERN_OK);
    static const char parts[] = "Ants build hills here.\n\nBees want yellow sunflowers.";
    const tern_memory_item two = {.text = parts, .n_bytes = strlen(parts)};
    const tern_memory_add_params small = {.chunk_tokens = 30, .overlap_tokens = -1};
    tern_memory_added added;
    CHECK(tern_memory_add(s, &two, &small, &added, &err) == TERN_OK && added.n_chunks == 2);
    tern_memory_hits *bees = recall(other, q, "Bees want yellow sunflowers.");
    REQUIRE(bees && bees->n == 5);
    CHECK(strncmp(bees->list[0].text, "Bees", 4) == 0 && bees->list[0].similarity > 0.9999f);
    tern_memory_hits_free(bees);
    CHECK(tern_memory_forget(s, added.id, &err) == TERN_OK);
    tern_memory_hits *hits = recall(other, q, text);
    REQUIRE(hits && hits->n == 5);
    CHECK(strcmp(hits->list[0].text, text) != 0);
    tern_memory_hits_free(hits);
    tern_memory_info info;
    CHECK(tern_memory_get_info(s, &info, &err) == TERN_OK);
    CHECK(info.n_records == 199 && info.n_vectors == 199 && info.n_dims == 128);
    CHECK(strstr(info.model_path, "embedder.gguf"));
    hits = recall(s, (tern_memory_query){.n_most = 3}, "note 17: rar");
    REQUIRE(hits && hits->n == 3);
    CHECK(hits->list[0].word_rank > 0 && hits->list[0].vector_rank > 0);
    tern_memory_hits_free(hits);
    tern_memory_close(s);
    tern_memory_close(other);
    tern_model_close(m);
}

// Seen to fail: without the sentence's vector compared.
TEST(store_refuses_another_model) {
    tern_error err = {0};
    tern_model *m = open_embedder("one.gguf", 1), *same = open_embedder("copy.gguf", 1),
               *other = open_embedder("other.gguf", 2);
    tern_memory_store *s, *words;
    REQUIRE(m && same && other);
    s = open_at("model.memory", &(tern_memory_desc){.model = m});
    add(s, "a text", NULL, NULL);
    tern_memory_close(s);
    s = open_at("model.memory",
                &(tern_memory_desc){.model = same}); // by what it does, not its name
    tern_memory_close(s);
    CHECK(tern_memory_open(&s, test_tmp("model.memory"), &(tern_memory_desc){.model = other},
                           &err) == TERN_ERR_ARGUMENT);
    CHECK_MSG(!s && strstr(err.message, "one.gguf") && strstr(err.message, "other.gguf"), "%s",
              err.message);
    // Without a model it can be read, and not be added to.
    words = open_at("model.memory", NULL);
    check_found(words, (tern_memory_query){0}, "text", "1");
    const tern_memory_item item = {.text = "b", .n_bytes = 1};
    CHECK(tern_memory_add(words, &item, NULL, NULL, &err) == TERN_ERR_ARGUMENT);
    CHECK(strstr(err.message, "open it with this model"));
    tern_memory_close(words);
    tern_model_close(m);
    tern_model_close(same);
    tern_model_close(other);
}

#endif
