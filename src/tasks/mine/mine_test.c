// Mining: counts against brute force, the same from several processes, and tables worth having.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "formats/shard/shard.h"
#include "tasks/mine/ngrams.h"
#include "tern_tools.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

// ---- A corpus in memory ------------------------------------------------------------------------

enum { N_DOCUMENTS = 60, N_EACH = 900, N_WORDS = 40, END = 0 };

static int32_t text[N_DOCUMENTS][N_EACH];

static uint64_t each(void *self, uint64_t document) {
    (void)self;
    return N_EACH - document; // of different lengths
}

static tern_status read_text(void *self, uint64_t document, uint64_t first, uint64_t n,
                             int32_t *ids, tern_error *err) {
    (void)self, (void)err;
    memcpy(ids, text[document] + first, n * sizeof *ids);
    return TERN_OK;
}

static tern_corpus make_corpus(void) {
    uint32_t state = 7;
    tern_corpus c = {
        .n_documents = N_DOCUMENTS, .document_tokens = each, .read = read_text, .end_id = END};
    for (int d = 0; d < N_DOCUMENTS; d++)
        for (int i = 0; i < N_EACH; i++) {
            state = state * 1664525u + 1013904223u;
            uint32_t r = state >> 16; // most words follow from the one before
            int32_t any = (int32_t)(r / 4) % N_WORDS;
            text[d][i] = i > 0 && r % 4 ? (text[d][i - 1] * 7 + 3) % N_WORDS : any;
        }
    for (int d = 0; d < N_DOCUMENTS; d++) c.n_tokens += each(NULL, (uint64_t)d);
    return c;
}

static uint64_t brute_force(const int32_t *gram, int n) {
    uint64_t count = 0;
    for (int d = 0; d < N_DOCUMENTS; d++)
        for (int i = 0; i + n <= N_EACH - d; i++)
            count += memcmp(text[d] + i, gram, (size_t)n * sizeof *gram) == 0;
    return count;
}

TEST(mine_counts_are_exact_and_complete) {
    tern_corpus c = make_corpus();
    tern_error err = {0};
    tern_ngrams g;
    // Few cells: most of them are shared, so that the second pass has to tell n-grams apart.
    for (size_t memory = 1 << 15; memory <= 1 << 24; memory <<= 9) {
        REQUIRE_OK(tern_ngrams_count(&g, &c, &(tern_ngrams_desc){.memory = memory}, &err), err);
        for (int n = 2; n <= 8; n++) {
            CHECK(g.n[n] > 0 && g.least[n] >= g.least[n - 1]);
            for (size_t i = 0; i < g.n[n]; i += 1 + g.n[n] / 40) {
                const tern_ngram *gram = &g.at[n][i];
                CHECK(gram->count == brute_force(gram->tokens, n) && gram->count >= g.least[n]);
                CHECK(tern_ngrams_lower(&g, n, gram->tokens, n) == i);
                for (int k = 0; k < n; k++) CHECK(gram->tokens[k] != END);
            }
            // Frequent n-grams are found.
            for (int d = 0; d < N_DOCUMENTS; d += 7)
                for (int i = 5; i + n <= N_EACH - d; i += 101) {
                    const int32_t *at = text[d] + i;
                    bool has_end = false;
                    for (int k = 0; k < n; k++) has_end |= at[k] == END;
                    if (has_end || brute_force(at, n) < g.least[n]) continue;
                    size_t found = tern_ngrams_lower(&g, n, at, n);
                    CHECK(found < g.n[n] &&
                          !memcmp(g.at[n][found].tokens, at, (size_t)n * sizeof *at));
                }
        }
        tern_ngrams_free(&g);
    }
}

// ---- Several processes, played by threads ------------------------------------------------------

enum { RANKS = 3 };
typedef struct group {
    pthread_barrier_t barrier;
    float *data[RANKS];
} group;
typedef struct member {
    group *group;
    tern_comm comm;
    tern_corpus corpus;
    tern_ngrams grams;
    tern_status status;
} member;

static bool sum_begin(void *self, float *data, size_t n) {
    member *m = self;
    m->group->data[m->comm.rank] = data;
    pthread_barrier_wait(&m->group->barrier);
    if (m->comm.rank == 0)
        for (size_t i = 0; i < n; i++)
            for (int r = 1; r < RANKS; r++) data[i] += m->group->data[r][i];
    pthread_barrier_wait(&m->group->barrier);
    if (m->comm.rank > 0) memcpy(data, m->group->data[0], n * sizeof *data);
    pthread_barrier_wait(&m->group->barrier);
    return true;
}

static bool sum_finish(void *self) {
    (void)self;
    return true;
}

static void *count(void *arg) {
    member *m = arg;
    const tern_ngrams_desc d = {.memory = 1 << 18, .comm = &m->comm};
    m->status = tern_ngrams_count(&m->grams, &m->corpus, &d, NULL);
    return NULL;
}

TEST(mine_counts_do_not_depend_on_the_number_of_processes) {
    tern_corpus c = make_corpus();
    tern_error err = {0};
    tern_ngrams alone;
    group g;
    member m[RANKS];
    pthread_t threads[RANKS];
    REQUIRE_OK(tern_ngrams_count(&alone, &c, &(tern_ngrams_desc){.memory = 1 << 18}, &err), err);
    pthread_barrier_init(&g.barrier, NULL, RANKS);
    for (int r = 0; r < RANKS; r++) {
        m[r] = (member){.group = &g, .corpus = c};
        m[r].comm = (tern_comm){r, RANKS, &m[r], sum_begin, sum_finish};
        if (pthread_create(&threads[r], NULL, count, &m[r])) abort();
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&g.barrier);
    for (int r = 0; r < RANKS; r++) {
        CHECK(m[r].status == TERN_OK);
        for (int n = 2; n <= 8 && m[r].status == TERN_OK; n++)
            CHECK(m[r].grams.n[n] == alone.n[n] && m[r].grams.least[n] == alone.least[n] &&
                  !memcmp(m[r].grams.at[n], alone.at[n], alone.n[n] * sizeof *alone.at[n]));
        tern_ngrams_free(&m[r].grams);
    }
    tern_ngrams_free(&alone);
}

// ---- Tables ------------------------------------------------------------------------------------

// The text that a tiny model likes best: its own.
static bool write_shard(const char *path, tern_model *model, tern_error *err) {
    const tern_shard_desc desc = {.n_vocab = TINY_N_VOCAB, .end_id = -1};
    const tern_sampling sampling = {.temperature = 0};
    tern_session *s;
    tern_shard_writer *w;
    size_t n;
    if (tern_session_open(&s, model, NULL, err) != TERN_OK) return false;
    tern_status status = tern_shard_writer_open(&w, path, &desc, err);
    for (int32_t i = 0; i < 30 && status == TERN_OK; i++) {
        const int32_t prompt[2] = {i * 9 % 280 + 3, i * 5 % 250 + 3};
        tern_generate_params p = {.sampling = &sampling, .max_tokens = 150, .ignore_end = true};
        status = tern_generate_ids(s, prompt, 2, &p, NULL, err);
        const int32_t *ids = tern_session_generated(s, &n);
        if (status == TERN_OK) status = tern_shard_write(w, ids, n, err);
    }
    if (status == TERN_OK) status = tern_shard_writer_finish(w, err);
    tern_shard_writer_free(w);
    tern_session_close(s);
    return status == TERN_OK;
}

static bool is_prefix(const tern_chain *a, const tern_chain *of) {
    return a->n_tokens > 0 && a->n_tokens <= of->n_tokens &&
           !memcmp(a->tokens, of->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
}

TEST(mine_makes_tables_that_are_packed_and_reproducible) {
    tern_error err = {0};
    tern_model *model;
    tern_chains *tables[2], *few;
    tern_mine_stats st;
    size_t n, n_again;
    const char *path = test_tmp("mine.gguf"), *shard = test_tmp("train-00000.tern");
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 41, .readable = true}, &err), err);
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    REQUIRE_OK(write_shard(shard, model, &err) ? TERN_OK : TERN_ERR_IO, err);
    const char *shards[] = {shard};
    tern_mine_desc d = {
        .shards = shards, .n_shards = 1, .min_probability = 0.2f, .memory = 1 << 20};
    for (int i = 0; i < 2; i++) REQUIRE_OK(tern_mine(&tables[i], model, &d, &st, &err), err);
    const tern_chain *e = tern_chains_entries(tables[0], &n);
    const tern_chain *again = tern_chains_entries(tables[1], &n_again);
    CHECK(tern_chains_version(tables[0]) == 1 && n == 256 && n_again == 256);
    CHECK_MSG(st.n_tokens == 30 * 150 && st.n_scored > 2000 && st.n_chains > 10,
              "%zu chains by %d tokens", st.n_chains, (int)st.n_scored);
    for (size_t i = 0; i < n; i++) {
        CHECK(e[i].n_tokens == again[i].n_tokens && e[i].confidence == again[i].confidence &&
              is_prefix(&e[i], &again[i]) == (e[i].n_tokens > 0));
        CHECK((e[i].n_tokens >= 2 && e[i].n_tokens <= 8) == (i < st.n_chains));
        for (size_t k = 0; k < n; k++) CHECK(k == i || !is_prefix(&e[i], &e[k])); // leaves only
    }
    d.n_buckets = 5;
    d.max_length = 3;
    REQUIRE_OK(tern_mine(&few, model, &d, &st, &err), err);
    CHECK(st.n_chains == 5);
    for (size_t i = 0; i < 5; i++) CHECK(tern_chains_entries(few, &n)[i].n_tokens <= 3);
    tern_chains_close(tables[1]);
    d.max_length = 9;
    CHECK(tern_mine(&tables[1], model, &d, NULL, &err) == TERN_ERR_ARGUMENT);
    tern_chains_close(few);
    tern_chains_close(tables[0]);
    tern_model_close(model);
}

// The mined text is what the model writes, also after other beginnings.
TEST(mine_of_own_text_is_what_drafts_need) {
    tern_error err = {0};
    tern_model *model;
    tern_chains *c, *again;
    tern_mine_stats st;
    tern_generate_stats gs;
    tern_session *s;
    size_t n, drafted = 0, accepted = 0;
    const char *path = test_tmp("own.gguf");
    REQUIRE_OK(tiny_model_write(path, &(tiny_model_desc){.seed = 41, .readable = true}, &err), err);
    REQUIRE_OK(tern_model_open(&model, path, &(tern_model_desc){.n_threads = 1}, &err), err);
    const tern_mine_desc d = {
        .generate_tokens = 3000, .max_length = 6, .min_probability = 0.4f, .memory = 1 << 18};
    REQUIRE_OK(tern_mine(&c, model, &d, &st, &err), err);
    REQUIRE_OK(tern_mine(&again, model, &d, NULL, &err), err);
    CHECK_MSG(st.n_tokens <= 19 * 160 && st.n_scored == st.n_tokens && st.n_chains > 20,
              "%zu chains by %d tokens", st.n_chains, (int)st.n_scored);
    const tern_chain *e = tern_chains_entries(c, &n), *f = tern_chains_entries(again, &n);
    for (size_t i = 0; i < n; i++)
        CHECK(f[i].n_tokens == e[i].n_tokens && f[i].confidence == e[i].confidence &&
              is_prefix(&e[i], &f[i]) == (e[i].n_tokens > 0));
    const tern_session_desc with = {.speculation = {.chains = c, .always = true}};
    REQUIRE_OK(tern_session_open(&s, model, &with, &err), err);
    for (int32_t i = 0; i < 20; i++) {
        const int32_t prompt[2] = {i * 9 % 280 + 3, i * 5 % 250 + 3};
        const tern_sampling greedy = {0};
        const tern_generate_params p = {.sampling = &greedy, .max_tokens = 100};
        REQUIRE_OK(tern_generate_ids(s, prompt, 2, &p, &gs, &err), err);
        drafted += gs.draft.n_drafted;
        accepted += gs.draft.n_accepted;
    }
    CHECK_MSG(4 * accepted > drafted, "%zu of %zu accepted", accepted, drafted);
    tern_session_close(s);
    tern_chains_close(again);
    tern_chains_close(c);
    tern_model_close(model);
}

TEST(mine_survives_failing_allocations) {
    tern_corpus c = make_corpus();
    tern_error err = {0};
    tern_ngrams g;
    size_t before = tern_mem_get_stats().total_now;
    c.n_documents = 3;
    tern_status status = TERN_ERR_MEMORY;
    for (uint64_t n = 1; status != TERN_OK && n < 1000; n++) {
        tern_mem_fail_at(n);
        status = tern_ngrams_count(&g, &c, &(tern_ngrams_desc){.memory = 1 << 16}, &err);
        tern_mem_fail_at(0);
        CHECK(status == TERN_OK || status == TERN_ERR_MEMORY);
        if (status == TERN_OK) tern_ngrams_free(&g);
        CHECK(tern_mem_get_stats().total_now == before);
    }
    CHECK(status == TERN_OK);
}
