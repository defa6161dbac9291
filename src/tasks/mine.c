// Mining chains: frequent runs of tokens, judged by the model, packed into buckets.
//
// SCORE. The model reads a sample of the corpus, windows spread evenly over it. Wherever the front
// x_1 .. x_(n-1) of a candidate stands, whatever follows, the probability that the model gives x_n
// is added up: the mean q(x_1 .. x_n) is how often a drafted x_n would be accepted there. (The mean
// over the places where x_n does follow would be flattering.) The mean probability of a chain is
// that of q over its tokens behind the first, and its score that times its frequency in the whole
// corpus.
//
// PACK. Candidates by falling score, put into a prefix tree with as many leaves as there are
// buckets: one that is the front of a chosen chain is served by it; one whose front is a chosen
// chain makes that chain longer, in its bucket; any other takes a bucket of its own while there is
// one. A draft ends at its first wrong token. So every token behind the third must have at least
// the least probability, and so must the last one; the second and third may be what a longer match
// is made of: "States" is likely behind "the United", which need not be so behind "of".
//
// Probabilities are summed in fixed point, so that the result depends neither on the order nor on
// the number of processes.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "formats/chains.h"
#include "formats/shard.h"
#include "runtime/runtime.h"
#include "tasks/ngrams.h"

enum { WINDOW = 256, SKIP = 16, ROWS = 16 }; // tokens of a window; of them unscored; at once
#define FIXED ((double)(1 << 24))

// ---- The corpus --------------------------------------------------------------------------------

typedef struct shard_list {
    tern_shard **shards;
    uint64_t *first; // [n + 1]: document numbers
    size_t n;
} shard_list;

static tern_shard *find_document(shard_list *l, uint64_t *document) {
    size_t i = 0;
    while (*document >= l->first[i + 1]) i++;
    *document -= l->first[i];
    return l->shards[i];
}

static uint64_t document_tokens(void *self, uint64_t document) {
    tern_shard *s = find_document(self, &document);
    return tern_shard_document(s, document + 1) - tern_shard_document(s, document);
}

static tern_status read_document(void *self, uint64_t document, uint64_t first, uint64_t n,
                                 int32_t *ids, tern_error *err) {
    tern_shard *s = find_document(self, &document);
    return tern_shard_read(s, tern_shard_document(s, document) + first, n, ids, err);
}

static void close_shards(shard_list *l) {
    for (size_t i = 0; l->shards && i < l->n; i++) tern_shard_close(l->shards[i]);
    tern_free(l->shards);
    tern_free(l->first);
}

static tern_status open_shards(shard_list *l, tern_corpus *corpus, const tern_model *model,
                               const tern_mine_desc *d, tern_error *err) {
    l->shards = tern_alloc_array(TERN_MEM_MISC, d->n_shards, sizeof(tern_shard *));
    l->first = tern_alloc_array(TERN_MEM_MISC, d->n_shards + 1, sizeof *l->first);
    if (!l->shards || !l->first) return tern_fail_memory(err, d->n_shards * sizeof *l->first);
    l->n = d->n_shards;
    *corpus = (tern_corpus){.self = l,
                            .document_tokens = document_tokens,
                            .read = read_document,
                            .end_id = -1};
    for (size_t i = 0; i < d->n_shards; i++) {
        TERN_TRY(tern_shard_open(&l->shards[i], d->shards[i], err));
        const tern_shard_info *info = tern_shard_get_info(l->shards[i]);
        if ((int64_t)info->n_vocab > model->info.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s: tokens of a vocabulary of %u, but the model has %d", info->path,
                             (unsigned)info->n_vocab, (int)model->info.n_vocab);
        if (i > 0 && info->end_id != corpus->end_id)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: another end token than in %s",
                             info->path, d->shards[0]);
        corpus->end_id = info->end_id;
        corpus->n_tokens += info->n_tokens;
        corpus->n_documents += info->n_documents;
        l->first[i + 1] = corpus->n_documents;
    }
    if (corpus->n_tokens == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "there are no tokens in the shards");
    return TERN_OK;
}

// ---- Scores ------------------------------------------------------------------------------------

typedef struct scorer {
    tern_ngrams *grams;
    tern_session *session;
    float *logits; // [ROWS, n_vocab]
    int32_t n_vocab;
} scorer;

// What the scores behind ids[0..n) say of the candidates whose fronts end there.
static void add_scores(scorer *s, const int32_t *ids, size_t n, const float *logits) {
    float most = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < s->n_vocab; i++) most = logits[i] > most ? logits[i] : most;
    for (int32_t i = 0; i < s->n_vocab; i++) sum += exp((double)(logits[i] - most));
    for (int length = TERN_NGRAM_MIN; length <= TERN_NGRAM_MAX; length++) {
        size_t n_front = (size_t)length - 1;
        if (n_front > n) break;
        const int32_t *front = ids + n - n_front;
        for (size_t at = tern_ngrams_lower(s->grams, length, front, (int)n_front);
             at < s->grams->n[length]; at++) {
            tern_ngram *g = &s->grams->at[length][at];
            if (memcmp(g->tokens, front, n_front * sizeof *front) != 0) break;
            double p = exp((double)(logits[g->tokens[n_front]] - most)) / sum;
            g->p_sum += (uint64_t)(p * FIXED + 0.5);
            g->n_p++;
        }
    }
}

// The first tokens of a window have too little in front of them to be judged by.
static tern_status score_window(scorer *s, const int32_t *ids, size_t n, tern_error *err) {
    size_t skip = n > SKIP ? SKIP : 0;
    TERN_TRY(tern_session_sync(s->session, ids, 0, NULL, err));
    TERN_TRY(tern_session_logits(s->session, ids, skip, NULL, err));
    for (size_t at = skip; at < n; at += ROWS) {
        size_t rows = n - at < ROWS ? n - at : ROWS;
        TERN_TRY(tern_session_logits(s->session, ids + at, rows, s->logits, err));
        for (size_t r = 0; r < rows; r++)
            add_scores(s, ids, at + r + 1, s->logits + r * (size_t)s->n_vocab);
    }
    return TERN_OK;
}

// Window `index` of n_windows begins at its part of the corpus, or in front of that so far that it
// is full, in the document that stands there.
static tern_status read_window(const tern_corpus *c, uint64_t index, uint64_t n_windows,
                               uint64_t *document, uint64_t *before, int32_t *ids, size_t *n,
                               tern_error *err) {
    uint64_t at = c->n_tokens / n_windows * index;
    while (*before + c->document_tokens(c->self, *document) <= at)
        *before += c->document_tokens(c->self, (*document)++);
    uint64_t length = c->document_tokens(c->self, *document), first = at - *before;
    if (length - first < WINDOW) first = length > WINDOW ? length - WINDOW : 0;
    *n = (size_t)(length - first < WINDOW ? length - first : WINDOW);
    return c->read(c->self, *document, first, *n, ids, err);
}

static tern_status sum_scores(tern_ngrams *g, const tern_comm *comm, uint64_t *n_scored,
                              tern_error *err) {
    if (!comm || comm->size < 2) return TERN_OK;
    TERN_TRY(tern_ngrams_sum(comm, n_scored, 1, err));
    for (int n = TERN_NGRAM_MIN; n <= TERN_NGRAM_MAX; n++) {
        uint64_t *sums = tern_alloc_array(TERN_MEM_MISC, 2 * g->n[n], sizeof *sums);
        if (!sums) return tern_fail_memory(err, 2 * g->n[n] * sizeof *sums);
        for (size_t i = 0; i < g->n[n]; i++)
            sums[2 * i] = g->at[n][i].p_sum, sums[2 * i + 1] = g->at[n][i].n_p;
        tern_status status = tern_ngrams_sum(comm, sums, 2 * g->n[n], err);
        for (size_t i = 0; i < g->n[n]; i++)
            g->at[n][i].p_sum = sums[2 * i], g->at[n][i].n_p = sums[2 * i + 1];
        tern_free(sums);
        TERN_TRY(status);
    }
    return TERN_OK;
}

static tern_status score_all(scorer *s, const tern_corpus *c, const tern_mine_desc *d,
                             uint64_t *n_scored, tern_error *err) {
    uint64_t wanted = d->score_tokens ? d->score_tokens : 1 << 16;
    uint64_t n_windows = (wanted < c->n_tokens ? wanted : c->n_tokens) / WINDOW + 1;
    uint64_t document = 0, before = 0;
    uint64_t rank = d->comm ? (uint64_t)d->comm->rank : 0;
    uint64_t size = d->comm ? (uint64_t)d->comm->size : 1;
    int32_t ids[WINDOW];
    for (uint64_t i = rank; i < n_windows; i += size) {
        size_t n;
        TERN_TRY(read_window(c, i, n_windows, &document, &before, ids, &n, err));
        TERN_TRY(score_window(s, ids, n, err));
        *n_scored += n;
        if (d->on_progress &&
            !d->on_progress(d->user, "score", (double)(i + 1) / (double)n_windows))
            return tern_fail(err, TERN_ERR_CANCELLED, "mining was cancelled");
    }
    return sum_scores(s->grams, d->comm, n_scored, err);
}

static tern_status score(tern_ngrams *g, const tern_corpus *c, tern_model *model,
                         const tern_mine_desc *d, uint64_t *n_scored, tern_error *err) {
    scorer s = {.grams = g, .n_vocab = model->info.n_vocab};
    const tern_session_desc desc = {.n_context = WINDOW};
    TERN_TRY(tern_session_open(&s.session, model, &desc, err));
    s.logits = tern_alloc_array(TERN_MEM_MISC, (size_t)s.n_vocab * ROWS, sizeof *s.logits);
    tern_status status = s.logits ? score_all(&s, c, d, n_scored, err)
                                  : tern_fail_memory(err, (size_t)s.n_vocab * ROWS * 4);
    tern_free(s.logits);
    tern_session_close(s.session);
    return status;
}

// ---- Packing -----------------------------------------------------------------------------------

typedef struct candidate {
    const int32_t *tokens;
    int32_t n;
    float mean; // probability of the tokens behind the first
    double score;
} candidate;

static const tern_ngram *find_gram(const tern_ngrams *g, const int32_t *tokens, int n) {
    size_t at = tern_ngrams_lower(g, n, tokens, n);
    return &g->at[n][at]; // fronts of what is there are there
}

// False: a token is too unlikely, or the model has not been seen where it could stand.
static bool make_candidate(candidate *out, const tern_ngrams *g, const tern_ngram *gram, int n,
                           double least) {
    double sum = 0;
    for (int k = TERN_NGRAM_MIN; k <= n; k++) {
        const tern_ngram *front = find_gram(g, gram->tokens, k);
        double q = front->n_p ? (double)front->p_sum / FIXED / (double)front->n_p : 0;
        if (q < least && (k == n || k > TERN_CHAINS_MATCH_MAX)) return false;
        sum += q;
    }
    double mean = sum / (n - 1);
    *out = (candidate){gram->tokens, n, (float)mean, (double)gram->count * mean};
    return true;
}

static int by_score(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->n != y->n) return x->n < y->n ? -1 : 1; // fronts first
    for (int32_t i = 0; i < x->n; i++)
        if (x->tokens[i] != y->tokens[i]) return x->tokens[i] < y->tokens[i] ? -1 : 1;
    return 0;
}

static bool is_front(const candidate *a, const candidate *of) {
    return a->n <= of->n && memcmp(a->tokens, of->tokens, (size_t)a->n * sizeof *a->tokens) == 0;
}

static size_t pack(const candidate *sorted, size_t n, candidate *buckets, size_t n_buckets) {
    size_t n_used = 0;
    for (size_t i = 0; i < n; i++) {
        size_t longer = n_used;
        bool is_served = false;
        for (size_t b = 0; b < n_used && !is_served; b++) {
            is_served = is_front(&sorted[i], &buckets[b]);
            if (is_front(&buckets[b], &sorted[i])) longer = b;
        }
        if (is_served || longer == n_buckets) continue;
        buckets[longer] = sorted[i];
        n_used += longer == n_used;
    }
    return n_used;
}

static tern_status choose_chains(tern_chains **out, const tern_ngrams *g, const tern_mine_desc *d,
                                 tern_mine_stats *st, tern_error *err) {
    size_t n_all = 0, n = 0, n_buckets = d->n_buckets ? (size_t)d->n_buckets : 256;
    int longest = d->max_length ? (int)d->max_length : TERN_NGRAM_MAX;
    double least = d->min_probability > 0 ? (double)d->min_probability : 0.5;
    for (int k = TERN_NGRAM_MIN; k <= longest; k++) n_all += g->n[k];
    candidate *list = tern_alloc_array(TERN_MEM_MISC, n_all, sizeof *list);
    candidate *buckets = tern_alloc_array(TERN_MEM_MISC, n_buckets, sizeof *buckets);
    tern_chain *entries = tern_alloc_array(TERN_MEM_MISC, n_buckets, sizeof *entries);
    tern_status status = TERN_OK;
    if (!list || !buckets || !entries)
        TERN_TRY_GOTO(tern_fail_memory(err, n_all * sizeof *list + n_buckets * sizeof *buckets));
    for (int k = TERN_NGRAM_MIN; k <= longest; k++)
        for (size_t i = 0; i < g->n[k]; i++)
            n += make_candidate(&list[n], g, &g->at[k][i], k, least);
    qsort(list, n, sizeof *list, by_score);
    st->n_candidates = n;
    st->n_chains = pack(list, n, buckets, n_buckets);
    for (size_t i = 0; i < st->n_chains; i++)
        entries[i] = (tern_chain){buckets[i].tokens, buckets[i].n, buckets[i].mean};
    TERN_TRY_GOTO(tern_chains_create(out, entries, st->n_chains, err));
fail:
    tern_free(list);
    tern_free(buckets);
    tern_free(entries);
    return status;
}

// ---- All ---------------------------------------------------------------------------------------

static tern_status check_desc(const tern_mine_desc *d, tern_error *err) {
    if (d->n_shards == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "there are no shards to mine");
    if (d->n_buckets < 0 || d->n_buckets > 4096)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d buckets: expected 1 to 4096",
                         (int)d->n_buckets);
    if (d->max_length != 0 && (d->max_length < TERN_NGRAM_MIN || d->max_length > TERN_NGRAM_MAX))
        return tern_fail(err, TERN_ERR_ARGUMENT, "chains of %d tokens: expected %d to %d",
                         (int)d->max_length, TERN_NGRAM_MIN, TERN_NGRAM_MAX);
    if (!(d->min_probability >= 0 && d->min_probability <= 1))
        return tern_fail(err, TERN_ERR_ARGUMENT, "least probability %g: expected 0 to 1",
                         (double)d->min_probability);
    return TERN_OK;
}

tern_status tern_mine(tern_chains **out, tern_model *model, const tern_mine_desc *desc,
                      tern_mine_stats *stats, tern_error *err) {
    if (!out || !model || !desc)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_mine: NULL argument");
    *out = NULL;
    TERN_TRY(check_desc(desc, err));
    double start = tern_seconds();
    shard_list list = {0};
    tern_corpus corpus;
    tern_ngrams grams = {0};
    tern_mine_stats st = {0};
    tern_status status = TERN_OK;
    const tern_ngrams_desc counting = {
        .memory = desc->memory ? (size_t)desc->memory : (size_t)64 << 20,
        .comm = desc->comm,
        .on_progress = desc->on_progress,
        .user = desc->user,
    };
    TERN_TRY_GOTO(open_shards(&list, &corpus, model, desc, err));
    st.n_tokens = corpus.n_tokens;
    TERN_TRY_GOTO(tern_ngrams_count(&grams, &corpus, &counting, err));
    TERN_TRY_GOTO(score(&grams, &corpus, model, desc, &st.n_scored, err));
    TERN_TRY_GOTO(choose_chains(out, &grams, desc, &st, err));
fail:
    tern_ngrams_free(&grams);
    close_shards(&list);
    st.seconds = tern_seconds() - start;
    if (stats) *stats = st;
    return status;
}
