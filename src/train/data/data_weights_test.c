// Sources that are taken more than once, or in part.
#include "tests/support/learnt_fixture.h"

enum { N = 200 }; // documents of a source

// "a 17" and a word of its own: the documents of a source.
static void write_source(const path *p, char name) {
    FILE *f = fopen(p->text, "wb");
    for (int i = 0; f && i < N; i++)
        fprintf(f, "{\"text\": \"%c %d w%d\"}\n", name, i, i * 31 % 97);
    if (f) fclose(f);
}

typedef struct counts {
    int of[3][N]; // how often a document of a, b, c is there
    int n_together;
    uint64_t n_tokens[3];
} counts;

static void count_document(counts *c, const tern_tokenizer *t, const int32_t *ids, uint64_t n,
                           int *before) {
    tern_strbuf text = {0};
    tern_decoder d = {0};
    char name = 0;
    int i = -1;
    for (uint64_t k = 0; k < n; k++) tern_tokenizer_decode(t, &d, ids[k], &text);
    tern_tokenizer_decode_end(&d, &text);
    REQUIRE(sscanf(tern_strbuf_text(&text), "%c %d", &name, &i) == 2 && i >= 0 && i < N);
    REQUIRE(name >= 'a' && name <= 'c');
    c->of[name - 'a'][i]++;
    c->n_tokens[name - 'a'] += n;
    c->n_together += *before == name * N + i;
    *before = name * N + i;
    tern_strbuf_free(&text);
}

static bool count_split(counts *c, const path *tokenizer, const char *folder, const char *split) {
    tern_file *file;
    tern_tokenizer *t;
    tern_token_set *set;
    tern_error err = {0};
    tern_token_set_desc desc = {.seq_len = 1, .in_order = true};
    int before = -1;
    *c = (counts){0};
    bool ok = tern_file_open(&file, tokenizer->text, &err) == TERN_OK &&
              tern_tokenizer_open(&t, file, &err) == TERN_OK &&
              tern_token_set_open_folder(&set, folder, split, &desc, &err) == TERN_OK && set;
    CHECK_MSG(ok, "%s", err.message);
    for (size_t i = 0; ok && i < tern_token_set_n_shards(set); i++) {
        tern_shard *s = tern_token_set_shard(set, i);
        for (uint64_t d = 0; d < tern_shard_get_info(s)->n_documents; d++) {
            int32_t ids[64];
            uint64_t first = tern_shard_document(s, d), n = tern_shard_document(s, d + 1) - first;
            ok &= n < 64 && tern_shard_read(s, first, n, ids, &err) == TERN_OK;
            if (ok) count_document(c, t, ids, n, &before);
        }
    }
    if (!ok) return false;
    tern_token_set_close(set);
    tern_tokenizer_free(t);
    tern_file_close(file);
    return true;
}

static path make_sources(path *sources) {
    static const char *const names[3] = {"a.jsonl", "b.jsonl", "c.jsonl"};
    tern_error err = {0};
    path tokenizer = path_of(test_tmp("weights_tok.json"), "");
    tokenizer.text[strlen(tokenizer.text) - 1] = 0;
    test_folder(test_tmp("weights"));
    for (int i = 0; i < 3; i++) {
        sources[i] = path_of(test_tmp("weights"), names[i]);
        write_source(&sources[i], (char)('a' + i));
    }
    const char *text = sources[0].text;
    tern_data_tokenizer_desc desc = {.source = {.paths = &text, .n_paths = 1}, .n_vocab = 270};
    tern_status status = tern_data_tokenizer(tokenizer.text, &desc, NULL, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    return tokenizer;
}

// Fails with copies one after the other, with those held out taken again, and with duplicates that
// come back in a later pass.
TEST(data_takes_sources_by_their_weights) {
    path sources[3], tokenizer = make_sources(sources), out = path_of(test_tmp("weighted"), "x");
    const char *const paths[] = {sources[0].text, sources[1].text, sources[2].text,
                                 sources[0].text};
    const double weights[] = {2.5, 0.25, 1, 3}; // the last has nothing that is new
    tern_data_share shares[4];
    tern_data_build_stats stats;
    tern_error err = {0};
    tern_data_build_desc desc = {
        .source = {.paths = paths, .n_paths = 4, .weights = weights},
        .tokenizer = tokenizer.text,
        .valid = 0.1,
        .shares = shares,
        .n_threads = 2,
    };
    counts train, valid;
    test_folder(test_tmp("weighted"));
    REQUIRE_OK(tern_data_build(out.text, &desc, &stats, &err), err);
    REQUIRE(count_split(&train, &tokenizer, out.text, "train"));
    REQUIRE(count_split(&valid, &tokenizer, out.text, "valid"));
    int n_of[3] = {0}, n_thrice = 0, n_quarter = 0, n_valid = 0;
    for (int i = 0; i < N; i++) {
        for (int s = 0; s < 3; s++) {
            n_of[s] += train.of[s][i];
            n_valid += valid.of[s][i];
            CHECK(valid.of[s][i] <= 1 && (!valid.of[s][i] || !train.of[s][i]));
        }
        CHECK(valid.of[0][i] || train.of[0][i] == 2 || train.of[0][i] == 3);
        CHECK(valid.of[2][i] + train.of[2][i] == 1 && train.of[1][i] <= 1);
        n_thrice += train.of[0][i] == 3;
        n_quarter += train.of[1][i] + valid.of[1][i];
    }
    CHECK_MSG(n_thrice > 60 && n_thrice < 120, "%d thrice", n_thrice);
    CHECK_MSG(n_quarter > 30 && n_quarter < 70, "%d of a quarter", n_quarter);
    CHECK(train.n_together == 0 && stats.n_same == N &&
          stats.n_not_drawn == (uint64_t)(N - n_quarter));
    CHECK(stats.n_read == 4 * N && (uint64_t)n_valid == stats.valid.n_documents);
    for (int s = 0; s < 3; s++)
        CHECK(shares[s].n_documents == (uint64_t)n_of[s] &&
              shares[s].n_tokens == train.n_tokens[s]);
    CHECK(shares[3].n_documents == 0);
}

// A pass after the first finds another file.
static bool change(void *user, const char *stage, double done) {
    const path *p = user;
    (void)stage;
    if (done > 0.4 && done < 0.6) write_source(p, 'x');
    return true;
}

TEST(data_refuses_weights_and_files_that_do_not_fit) {
    path sources[3], tokenizer = make_sources(sources);
    const char *const paths[] = {sources[0].text};
    double weight = 0;
    tern_error err = {0};
    tern_data_build_desc desc = {.source = {.paths = paths, .n_paths = 1, .weights = &weight},
                                 .tokenizer = tokenizer.text,
                                 .n_threads = 1};
    for (int i = 0; i < 2; i++) {
        CHECK(tern_data_build(test_tmp("weighted"), &desc, NULL, &err) == TERN_ERR_ARGUMENT);
        CHECK_MSG(strstr(err.message, "a.jsonl: a weight of "), "%s", err.message);
        weight = 101;
    }
    weight = 2;
    desc.on_progress = change;
    desc.user = &sources[0];
    CHECK(tern_data_build(test_tmp("weighted"), &desc, NULL, &err) == TERN_ERR_IO);
    CHECK_MSG(strstr(err.message, "a.jsonl: was changed while it was read"), "%s", err.message);
}
