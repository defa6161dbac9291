// Mining chains: frequent runs of tokens, judged by the model, packed into buckets.
//
// SCORE. The model reads a sample of the corpus, windows spread evenly over it. Wherever the prefix
// x_1 .. x_(n-1) of a candidate occurs, whatever follows, the model's probability of x_n is added
// up: the mean q(x_1 .. x_n) is how often a drafted x_n would be accepted there. (The mean over the
// places where x_n does follow would be flattering.) The mean probability of a chain is that of q
// over its tokens after the first, and its score is that times its frequency in the whole corpus.
//
// OWN TEXT. Drafts are for the model's text, not the corpus's, and the likeliest tokens of a model
// are far more predictable than what people write. So the model may write the corpus: many texts,
// each started with some tokens of a corpus or with tokens drawn from the model, and continued with
// the likeliest ones. Then q is the share of the places with the prefix at which x_n came: the
// acceptance of a greedy draft itself.
//
// PACK. Candidates by falling score go into a prefix tree with as many leaves as there are buckets:
// a candidate that is the prefix of a chosen chain is served by it; one whose prefix is a chosen
// chain makes that chain longer, in its bucket; any other takes its own bucket while there is one.
// A draft ends at its first wrong token. So every token that no match reaches, those after the
// third (in a table of version 2 the fifth), must have at least the least probability and be the
// likeliest after its prefix, and so must the last one; earlier ones may be what a longer match is
// made of: "States" is likely after "the United", but need not be after "of".
//
// Probabilities are summed in fixed point, so that the result depends neither on the order nor on
// the number of processes.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/hash.h"
#include "formats/chains.h"
#include "formats/shard/shard.h"
#include "runtime/runtime.h"
#include "tasks/mine/ngrams.h"
#include "tern_tools.h"

enum { WINDOW = 256, SKIP = 16, ROWS = 16 }; // tokens: of a window; unscored in it; per batch
enum { BEGINNING = 32, OWN = 160 };          // tokens of a generated text: given, written
#define FIXED ((double)(1 << 24))

// ---- The corpus --------------------------------------------------------------------------------

typedef struct shard_list {
    tern_names paths;
    tern_shard **shards; // [n]
    uint64_t *first;     // [n + 1]: document numbers
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
    tern_names_free(&l->paths);
}

// The named shards, and the training shards of named folders.
static tern_status list_shards(shard_list *l, const tern_mine_desc *d, tern_error *err) {
    for (size_t i = 0; i < d->n_shards; i++) {
        size_t before = l->paths.n;
        if (!tern_folder_is(d->shards[i])) {
            TERN_TRY(tern_names_add(&l->paths, d->shards[i], err));
            continue;
        }
        TERN_TRY(tern_shard_folder(&l->paths, d->shards[i], "train", err));
        if (l->paths.n == before)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there are no shards train-* in it",
                             d->shards[i]);
    }
    return TERN_OK;
}

static tern_status open_shards(shard_list *l, tern_corpus *corpus, const tern_model *model,
                               const tern_mine_desc *d, tern_error *err) {
    TERN_TRY(list_shards(l, d, err));
    l->n = l->paths.n;
    l->shards = tern_alloc_array(TERN_MEM_MISC, l->n, sizeof(tern_shard *));
    l->first = tern_alloc_array(TERN_MEM_MISC, l->n + 1, sizeof *l->first);
    if (!l->shards || !l->first) return tern_fail_memory(err, l->n * sizeof *l->first);
    *corpus = (tern_corpus){
        .self = l, .document_tokens = document_tokens, .read = read_document, .end_id = -1};
    for (size_t i = 0; i < l->n; i++) {
        TERN_TRY(tern_shard_open(&l->shards[i], l->paths.list[i], err));
        const tern_shard_info *info = tern_shard_get_info(l->shards[i]);
        if ((int64_t)info->n_vocab > model->info.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s: tokens of a vocabulary of %u, but the model has %d", info->path,
                             (unsigned)info->n_vocab, (int)model->info.n_vocab);
        if (i > 0 && info->end_id != corpus->end_id)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: another end token than in %s", info->path,
                             l->paths.list[0]);
        corpus->end_id = info->end_id;
        corpus->n_tokens += info->n_tokens;
        corpus->n_documents += info->n_documents;
        l->first[i + 1] = corpus->n_documents;
    }
    if (corpus->n_tokens == 0 && d->generate_tokens == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "there are no tokens in the shards");
    return TERN_OK;
}

// Windows spread evenly over a corpus, requested in rising order.
typedef struct windows {
    const tern_corpus *corpus;
    uint64_t n;                // of them
    size_t length;             // of each, where its document is long enough
    uint64_t document, before; // place of the last one; tokens before that document
} windows;

// A window begins at its part of the corpus, or as far before it as needed to be full, within its
// document.
static tern_status read_window(windows *w, uint64_t index, int32_t *ids, size_t *n,
                               tern_error *err) {
    const tern_corpus *c = w->corpus;
    uint64_t share = c->n_tokens / w->n, rest = c->n_tokens % w->n;
    uint64_t at = share * index + (index < rest ? index : rest);
    while (w->before + c->document_tokens(c->self, w->document) <= at)
        w->before += c->document_tokens(c->self, w->document++);
    uint64_t length = c->document_tokens(c->self, w->document), first = at - w->before;
    if (length - first < w->length) first = length > w->length ? length - w->length : 0;
    *n = (size_t)(length - first < w->length ? length - first : w->length);
    return c->read(c->self, w->document, first, *n, ids, err);
}

// ---- The model's own text ----------------------------------------------------------------------

// Documents of at most OWN tokens. Each process has every size-th document.
typedef struct own_text {
    tern_session *session;
    windows *beginnings; // NULL: the model makes them up
    int32_t *ids;        // [n_here][OWN]
    int32_t *n;          // [n_here] tokens of each
    uint64_t n_here, rank, size;
} own_text;

static uint64_t own_tokens(void *self, uint64_t document) {
    const own_text *t = self;
    return (uint64_t)t->n[document / t->size];
}

static tern_status own_read(void *self, uint64_t document, uint64_t first, uint64_t n, int32_t *ids,
                            tern_error *err) {
    const own_text *t = self;
    (void)err;
    memcpy(ids, t->ids + document / t->size * OWN + first, (size_t)n * sizeof *ids);
    return TERN_OK;
}

// Without a beginning, a text begins with tokens drawn from the model: a different one each time.
static tern_status make_beginning(own_text *t, const tern_model_info *info, uint64_t document,
                                  int32_t *ids, size_t *n, tern_error *err) {
    int32_t start = info->bos_id >= 0 ? info->bos_id : info->eos_id >= 0 ? info->eos_id : 0;
    const tern_sampling draw = {.temperature = 1, .top_p = 1, .seed = document + 1};
    const tern_generate_params p = {
        .sampling = &draw, .max_tokens = BEGINNING - 1, .ignore_end = true};
    ids[0] = start;
    TERN_TRY(tern_generate_ids(t->session, ids, 1, &p, NULL, err));
    const int32_t *drawn = tern_session_generated(t->session, n);
    memcpy(ids + 1, drawn, *n * sizeof *ids);
    ++*n;
    return TERN_OK;
}

static tern_status write_own(own_text *t, const tern_model_info *info, uint64_t document,
                             tern_error *err) {
    int32_t ids[BEGINNING];
    size_t n = 0;
    const tern_sampling greedy = {0};
    const tern_generate_params p = {.sampling = &greedy, .max_tokens = OWN};
    uint64_t here = document / t->size;
    if (t->beginnings)
        TERN_TRY(read_window(t->beginnings, document, ids, &n, err));
    else
        TERN_TRY(make_beginning(t, info, document, ids, &n, err));
    TERN_TRY(tern_generate_ids(t->session, ids, n, &p, NULL, err));
    const int32_t *written = tern_session_generated(t->session, &n);
    memcpy(t->ids + here * OWN, written, n * sizeof *written);
    t->n[here] = (int32_t)n;
    return TERN_OK;
}

// `given` is the corpus that beginnings come from, empty if there is none; the text replaces it.
static tern_status write_all_own(own_text *t, tern_corpus *given, const tern_model *model,
                                 const tern_mine_desc *d, tern_error *err) {
    tern_model_info info;
    tern_corpus begin = *given;
    uint64_t n_documents = (d->generate_tokens + OWN - 1) / OWN;
    windows w = {.corpus = &begin, .n = n_documents, .length = BEGINNING};
    t->beginnings = given->n_tokens ? &w : NULL;
    tern_model_get_info(model, &info);
    for (uint64_t i = t->rank; i < n_documents; i += t->size) {
        TERN_TRY(write_own(t, &info, i, err));
        if (!tern_progress(d->on_progress, d->user, "write", (double)(i + 1) / (double)n_documents))
            return tern_fail(err, TERN_ERR_CANCELLED, "mining was cancelled");
    }
    uint64_t n_tokens = 0;
    for (uint64_t i = 0; i < t->n_here; i++) n_tokens += (uint64_t)t->n[i];
    TERN_TRY(tern_ngrams_sum(d->comm, &n_tokens, 1, err));
    *given = (tern_corpus){.self = t,
                           .n_documents = n_documents,
                           .n_tokens = n_tokens,
                           .document_tokens = own_tokens,
                           .read = own_read,
                           .end_id = -1};
    return TERN_OK;
}

// The texts repeat their own phrases: drafts from them make generation faster and not different.
static tern_status open_own(own_text *t, tern_model *model, const tern_mine_desc *d,
                            tern_error *err) {
    const tern_session_desc desc = {.n_context = BEGINNING + OWN,
                                    .speculation = {.lookup = true, .online = true}};
    uint64_t n_documents = (d->generate_tokens + OWN - 1) / OWN;
    t->rank = d->comm ? (uint64_t)d->comm->rank : 0;
    t->size = d->comm ? (uint64_t)d->comm->size : 1;
    t->n_here = (n_documents + t->size - 1) / t->size;
    t->ids = tern_alloc_array(TERN_MEM_MISC, t->n_here, OWN * sizeof *t->ids);
    t->n = tern_alloc_array(TERN_MEM_MISC, t->n_here, sizeof *t->n);
    if (!t->ids || !t->n) return tern_fail_memory(err, t->n_here * OWN * sizeof *t->ids);
    return tern_session_open(&t->session, model, &desc, err);
}

static void close_own(own_text *t) {
    tern_session_close(t->session);
    tern_free(t->ids);
    tern_free(t->n);
}

// ---- Scores ------------------------------------------------------------------------------------

typedef struct scorer {
    tern_ngrams *grams;
    tern_session *session;
    float *logits; // [ROWS, n_vocab]
    int32_t n_vocab;
} scorer;

// The model's verdict on the token after some others: its scores, or only its choice.
typedef struct verdict {
    const float *logits; // NULL: `chosen` has all the probability
    float most;
    double sum; // of exp(logit - most)
    int32_t chosen;
} verdict;

static double probability(const verdict *v, int32_t token) {
    if (!v->logits) return token == v->chosen;
    return exp((double)(v->logits[token] - v->most)) / v->sum;
}

// Adds the verdict on the next token to the candidates whose prefixes end with ids[0..n).
static void add_verdict(tern_ngrams *grams, const int32_t *ids, size_t n, const verdict *v) {
    for (int length = TERN_NGRAM_MIN; length <= TERN_NGRAM_MAX; length++) {
        size_t n_prefix = (size_t)length - 1;
        if (n_prefix > n) break;
        const int32_t *prefix = ids + n - n_prefix;
        for (size_t at = tern_ngrams_lower(grams, length, prefix, (int)n_prefix);
             at < grams->n[length]; at++) {
            tern_ngram *g = &grams->at[length][at];
            if (memcmp(g->tokens, prefix, n_prefix * sizeof *prefix) != 0) break;
            g->p_sum += (uint64_t)(probability(v, g->tokens[n_prefix]) * FIXED + 0.5);
            g->n_p++;
        }
    }
}

static verdict verdict_of(const float *logits, int32_t n_vocab) {
    verdict v = {.logits = logits, .most = logits[0]};
    for (int32_t i = 1; i < n_vocab; i++) v.most = logits[i] > v.most ? logits[i] : v.most;
    for (int32_t i = 0; i < n_vocab; i++) v.sum += exp((double)(logits[i] - v.most));
    return v;
}

// The first tokens of a window have too little context to be judged by.
static tern_status score_window(scorer *s, const int32_t *ids, size_t n, tern_error *err) {
    size_t skip = n > SKIP ? SKIP : 0;
    TERN_TRY(tern_session_sync(s->session, ids, 0, NULL, err));
    TERN_TRY(tern_session_logits(s->session, ids, skip, NULL, err));
    for (size_t at = skip; at < n; at += ROWS) {
        size_t rows = n - at < ROWS ? n - at : ROWS;
        TERN_TRY(tern_session_logits(s->session, ids + at, rows, s->logits, err));
        for (size_t r = 0; r < rows; r++) {
            verdict v = verdict_of(s->logits + r * (size_t)s->n_vocab, s->n_vocab);
            add_verdict(s->grams, ids, at + r + 1, &v);
        }
    }
    return TERN_OK;
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
    windows w = {.corpus = c, .n = n_windows, .length = WINDOW};
    uint64_t rank = d->comm ? (uint64_t)d->comm->rank : 0;
    uint64_t size = d->comm ? (uint64_t)d->comm->size : 1;
    int32_t ids[WINDOW];
    for (uint64_t i = rank; i < n_windows; i += size) {
        size_t n;
        TERN_TRY(read_window(&w, i, ids, &n, err));
        TERN_TRY(score_window(s, ids, n, err));
        *n_scored += n;
        if (!tern_progress(d->on_progress, d->user, "score", (double)(i + 1) / (double)n_windows))
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

static tern_status score_own(tern_ngrams *g, const own_text *t, const tern_comm *comm,
                             uint64_t *n_scored, tern_error *err) {
    for (uint64_t i = 0; i < t->n_here; i++) {
        const int32_t *ids = t->ids + i * OWN;
        for (int32_t k = 1; k < t->n[i]; k++)
            add_verdict(g, ids, (size_t)k, &(verdict){.chosen = ids[k]});
        *n_scored += (uint64_t)t->n[i];
    }
    return sum_scores(g, comm, n_scored, err);
}

// Among equals the first one counts.
static void mark_likeliest(tern_ngrams *g) {
    for (int n = TERN_NGRAM_MIN; n <= TERN_NGRAM_MAX; n++)
        for (size_t first = 0, at = 0; at < g->n[n]; at++) {
            const int32_t *prefix = g->at[n][at].tokens;
            if (memcmp(prefix, g->at[n][first].tokens, ((size_t)n - 1) * sizeof *prefix) != 0)
                first = at;
            tern_ngram *best = &g->at[n][first], *this = &g->at[n][at];
            if (this != best && this->p_sum <= best->p_sum) continue;
            // `first` follows the best of its group so far, which has the same prefix.
            best->is_likeliest = false;
            this->is_likeliest = true;
            first = at;
        }
}

// ---- Packing -----------------------------------------------------------------------------------

typedef struct candidate {
    const int32_t *tokens;
    int32_t n;
    uint8_t chances[TERN_NGRAM_MAX]; // in 255ths
    float mean;                      // probability of the tokens after the first
    double score;
} candidate;

static const tern_ngram *find_gram(const tern_ngrams *g, const int32_t *tokens, int n) {
    size_t at = tern_ngrams_lower(g, n, tokens, n);
    return &g->at[n][at]; // the prefixes of an entry are entries
}

// False: a token is too unlikely, or the model was not seen where it could occur.
static bool make_candidate(candidate *out, const tern_ngrams *g, const tern_ngram *gram, int n,
                           int match_max, double least) {
    double sum = 0;
    *out = (candidate){.tokens = gram->tokens, .n = n};
    for (int k = TERN_NGRAM_MIN; k <= n; k++) {
        const tern_ngram *prefix = find_gram(g, gram->tokens, k);
        double q = prefix->n_p ? (double)prefix->p_sum / FIXED / (double)prefix->n_p : 0;
        bool is_drafted = k == n || k > match_max;
        if (is_drafted && (q < least || !prefix->is_likeliest)) return false;
        out->chances[k - 1] = (uint8_t)(255 * q + 0.5);
        sum += q;
    }
    double mean = sum / (n - 1);
    out->mean = (float)mean;
    out->score = (double)gram->count * mean;
    return true;
}

static int by_score(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->n != y->n) return x->n < y->n ? -1 : 1; // prefixes first
    for (int32_t i = 0; i < x->n; i++)
        if (x->tokens[i] != y->tokens[i]) return x->tokens[i] < y->tokens[i] ? -1 : 1;
    return 0;
}

// A hash table from all prefixes of the chosen chains to the bucket of one that begins so.
typedef struct prefix_slot {
    const int32_t *tokens; // NULL: empty
    int32_t n;
    uint32_t bucket;
} prefix_slot;

typedef struct packer {
    candidate *buckets;
    size_t n_buckets, n_used;
    prefix_slot *slots;
    size_t n_slots; // a power of two
} packer;

static prefix_slot *find_prefix(const packer *p, const int32_t *tokens, int32_t n) {
    size_t bytes = (size_t)n * sizeof *tokens;
    for (size_t at = (size_t)tern_hash64((uint64_t)n, tokens, bytes);; at++) {
        prefix_slot *s = &p->slots[at & (p->n_slots - 1)];
        if (!s->tokens || (s->n == n && memcmp(s->tokens, tokens, bytes) == 0)) return s;
    }
}

static void pack_one(packer *p, const candidate *c) {
    size_t bucket = p->n_used;
    if (find_prefix(p, c->tokens, c->n)->tokens) return; // served
    for (int32_t k = TERN_NGRAM_MIN; k < c->n; k++) {
        const prefix_slot *s = find_prefix(p, c->tokens, k);
        if (s->tokens && p->buckets[s->bucket].n == k) bucket = s->bucket; // made longer
    }
    if (bucket == p->n_buckets) return;
    p->buckets[bucket] = *c;
    p->n_used += bucket == p->n_used;
    for (int32_t k = TERN_NGRAM_MIN; k <= c->n; k++) {
        prefix_slot *s = find_prefix(p, c->tokens, k);
        if (!s->tokens) *s = (prefix_slot){c->tokens, k, (uint32_t)bucket};
    }
}

static tern_status pack(packer *p, const candidate *sorted, size_t n, size_t n_buckets,
                        tern_error *err) {
    p->n_buckets = n_buckets;
    for (p->n_slots = 64; p->n_slots < 2 * TERN_NGRAM_MAX * n_buckets;) p->n_slots *= 2;
    p->buckets = tern_alloc_array(TERN_MEM_MISC, n_buckets, sizeof *p->buckets);
    p->slots = tern_alloc_array(TERN_MEM_MISC, p->n_slots, sizeof *p->slots);
    if (!p->buckets || !p->slots) return tern_fail_memory(err, p->n_slots * sizeof *p->slots);
    for (size_t i = 0; i < n; i++) pack_one(p, &sorted[i]);
    return TERN_OK;
}

static tern_status choose_chains(tern_chains **out, const tern_ngrams *g, const tern_mine_desc *d,
                                 tern_mine_stats *st, tern_error *err) {
    size_t n_all = 0, n = 0, n_buckets = d->n_buckets ? (size_t)d->n_buckets : 256;
    int longest = d->max_length ? (int)d->max_length : TERN_NGRAM_MAX;
    double least = d->min_probability > 0 ? (double)d->min_probability : 0.5;
    int match_max = tern_chains_match_max(tern_chains_version_for(n_buckets, longest));
    for (int k = TERN_NGRAM_MIN; k <= longest; k++) n_all += g->n[k];
    candidate *list = tern_alloc_array(TERN_MEM_MISC, n_all, sizeof *list);
    packer p = {0};
    tern_chain *entries = tern_alloc_array(TERN_MEM_MISC, n_buckets, sizeof *entries);
    tern_status status = TERN_OK;
    if (!list || !entries) TERN_TRY_GOTO(tern_fail_memory(err, n_all * sizeof *list));
    for (int k = TERN_NGRAM_MIN; k <= longest; k++)
        for (size_t i = 0; i < g->n[k]; i++)
            n += make_candidate(&list[n], g, &g->at[k][i], k, match_max, least);
    qsort(list, n, sizeof *list, by_score);
    st->n_candidates = n;
    TERN_TRY_GOTO(pack(&p, list, n, n_buckets, err));
    st->n_chains = p.n_used;
    for (size_t i = 0; i < st->n_chains; i++) {
        const candidate *c = &p.buckets[i];
        entries[i] = (tern_chain){c->tokens, c->n, c->mean, c->chances};
    }
    TERN_TRY_GOTO(tern_chains_create(out, entries, st->n_chains, err));
fail:
    tern_free(list);
    tern_free(p.buckets);
    tern_free(p.slots);
    tern_free(entries);
    return status;
}

// ---- All ---------------------------------------------------------------------------------------

static tern_status check_desc(const tern_mine_desc *d, tern_error *err) {
    if (d->n_shards == 0 && d->generate_tokens == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "there are no shards to mine");
    if (d->generate_tokens > (uint64_t)1 << 32)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%llu tokens of own text: at most 2^32",
                         (unsigned long long)d->generate_tokens);
    if (d->n_buckets < 0 || d->n_buckets > 65535)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d buckets: expected 1 to 65535",
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
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(model);
    TERN_NEED(desc);
    TERN_NEED_EACH(desc->shards, desc->n_shards);
    TERN_TRY(check_desc(desc, err));
    double start = tern_seconds();
    shard_list list = {0};
    tern_corpus corpus;
    own_text own = {0};
    tern_ngrams grams = {0};
    tern_mine_stats st = {0};
    tern_status status = TERN_OK;
    tern_model_hold(model);
    const tern_ngrams_desc counting = {
        .memory = desc->memory ? (size_t)desc->memory : (size_t)64 << 20,
        .comm = desc->comm,
        .on_progress = desc->on_progress,
        .user = desc->user,
    };
    TERN_TRY_GOTO(open_shards(&list, &corpus, model, desc, err));
    if (desc->generate_tokens) {
        TERN_TRY_GOTO(open_own(&own, model, desc, err));
        TERN_TRY_GOTO(write_all_own(&own, &corpus, model, desc, err));
    }
    st.n_tokens = corpus.n_tokens;
    TERN_TRY_GOTO(tern_ngrams_count(&grams, &corpus, &counting, err));
    if (desc->generate_tokens)
        TERN_TRY_GOTO(score_own(&grams, &own, desc->comm, &st.n_scored, err));
    else
        TERN_TRY_GOTO(score(&grams, &corpus, model, desc, &st.n_scored, err));
    mark_likeliest(&grams);
    TERN_TRY_GOTO(choose_chains(out, &grams, desc, &st, err));
fail:
    tern_ngrams_free(&grams);
    close_own(&own);
    close_shards(&list);
    st.seconds = tern_seconds() - start;
    if (stats) *stats = st;
    tern_model_let_go(model);
    return status;
}
