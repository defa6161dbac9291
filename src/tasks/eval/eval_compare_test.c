// A model against another one, computed again the slow way from all logits of a window.
#include "tasks/eval/eval_fixture.h"
#include "tasks/tasks.h"

enum { WINDOW = 32, SCORED = 15 };

static double *probabilities(rig *r, const int32_t *ids, size_t n) { // ln p [n, n_vocab]
    size_t n_vocab = (size_t)r->info.n_vocab;
    float *logits = malloc(n * n_vocab * sizeof *logits);
    double *out = malloc(n * n_vocab * sizeof *out);
    tern_session_reset(r->session);
    CHECK(tern_session_logits(r->session, ids, n, logits, NULL) == TERN_OK);
    for (size_t i = 0; i < n; i++) {
        double z = 0;
        for (size_t v = 0; v < n_vocab; v++) z += exp((double)logits[i * n_vocab + v]);
        for (size_t v = 0; v < n_vocab; v++)
            out[i * n_vocab + v] = (double)logits[i * n_vocab + v] - log(z);
    }
    free(logits);
    return out;
}

static size_t likeliest(const double *row, size_t n) {
    size_t top = 0;
    for (size_t v = 1; v < n; v++)
        if (row[v] > row[top]) top = v;
    return top;
}

static bool near(double got, double want) { return fabs(got - want) < 1e-5 * (1 + fabs(want)); }

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// numpy's percentiles: of n sorted numbers the one at share * (n - 1), in a line between two.
static double at_share(const double *sorted, size_t n, double share) {
    double at = share * (double)(n - 1), below = floor(at);
    size_t i = (size_t)below;
    return i + 1 < n ? sorted[i] + (at - below) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

static void check_distribution(const char *what, const tern_distribution *d, double *x, size_t n) {
    double sum = 0, squares = 0, apart = 0;
    for (size_t i = 0; i < n; i++) sum += x[i], squares += x[i] * x[i];
    for (size_t i = 0; i < n; i++) apart += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    qsort(x, n, sizeof *x, by_value);
    CHECK_MSG(near(d->mean, sum / (double)n), "%s: %.9g, not %.9g", what, d->mean, sum / (double)n);
    CHECK(near(d->error, sqrt(apart / (double)(n - 1) / (double)n)));
    CHECK(near(d->rms, sqrt(squares / (double)n)));
    const double shares[] = {0, 0.01, 0.05, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1};
    const double got[] = {d->min, d->p1,  d->p5,  d->p10,  d->median,
                          d->p90, d->p95, d->p99, d->p999, d->max};
    for (size_t i = 0; i < sizeof got / sizeof *got; i++)
        CHECK_MSG(near(got[i], at_share(x, n, shares[i])), "%s, %g: %.9g, not %.9g", what,
                  shares[i], got[i], at_share(x, n, shares[i]));
}

// With few rows at once (n_batch 7), so that a window's rows come in pieces. Seen to fail: with the
// divergence the other way round; with targets that are one token late; with both perplexities of
// one model.
TEST(eval_compare_is_what_all_logits_say) {
    rig a = {0}, b = {0};
    tern_eval_comparison c;
    tern_error err = {0};
    int32_t ids[256];
    double kl[256] = {0}, change[256] = {0}, ratio = 0;
    size_t n = 0, same = 0;
    bool greedy;
    tern_ids all = {ids, 256, 0};
    if (!rig_open(&a, 51, 7) || !rig_open(&b, 52, 0)) return;
    const size_t n_vocab = (size_t)a.info.n_vocab;
    const tern_bytes text = {story, sizeof story - 1};
    REQUIRE_OK(tern_tokenize(a.model, story, sizeof story - 1, TERN_TOKENIZE_BOS, &all, &err), err);
    for (size_t begin = 0; begin + WINDOW <= all.n; begin += WINDOW) {
        int32_t first = ids[begin];
        ids[begin] = a.info.bos_id;
        double *q = probabilities(&a, ids + begin, WINDOW);
        double *p = probabilities(&b, ids + begin, WINDOW);
        ratio += slow_score(&b, ids + begin, WINDOW - SCORED, WINDOW, &greedy) -
                 slow_score(&a, ids + begin, WINDOW - SCORED, WINDOW, &greedy);
        ids[begin] = first;
        for (size_t i = WINDOW - SCORED; i < WINDOW; i++, n++) {
            const double *pi = p + (i - 1) * n_vocab, *qi = q + (i - 1) * n_vocab;
            int32_t target = ids[begin + i];
            for (size_t v = 0; v < n_vocab; v++) kl[n] += exp(pi[v]) * (pi[v] - qi[v]);
            change[n] = exp(qi[target]) - exp(pi[target]);
            same += likeliest(pi, n_vocab) == likeliest(qi, n_vocab);
        }
        free(p);
        free(q);
    }
    const tern_perplexity_desc desc = {.window = WINDOW};
    REQUIRE_OK(tern_eval_compare(a.session, b.session, text, &desc, &c, &err), err);
    CHECK(n > 30 && c.model.n_scored == n && c.reference.n_scored == n);
    CHECK_MSG(near(c.log_ratio, ratio / (double)n), "%.9g, not %.9g", c.log_ratio,
              ratio / (double)n);
    CHECK(near(c.same_top, (double)same / (double)n) && c.kl.mean > 0.001);
    check_distribution("kl", &c.kl, kl, n);
    check_distribution("p", &c.p_change, change, n);
    tern_perplexity alone[2];
    REQUIRE_OK(tern_eval_perplexity(a.session, story, sizeof story - 1, &desc, &alone[0], &err),
               err);
    REQUIRE_OK(tern_eval_perplexity(b.session, story, sizeof story - 1, &desc, &alone[1], &err),
               err);
    CHECK(near(c.model.perplexity, alone[0].perplexity));
    CHECK(near(c.reference.perplexity, alone[1].perplexity));
    CHECK(c.model.scored_words == alone[0].scored_words && c.reference.n_windows == n / SCORED);
    rig_close(&a);
    rig_close(&b);
}

TEST(eval_compare_of_a_model_with_itself_is_nothing) {
    rig a = {0}, b = {0};
    tern_eval_comparison c;
    tern_error err = {0};
    const tern_bytes text = {story, sizeof story - 1};
    if (!rig_open(&a, 53, 7) || !rig_open(&b, 53, 7)) return;
    tern_perplexity_desc desc = {
        .convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 32, .stride = 20};
    REQUIRE_OK(tern_eval_compare(a.session, b.session, text, &desc, &c, &err), err);
    CHECK(c.kl.max == 0 && c.p_change.min == 0 && c.p_change.max == 0 && c.log_ratio == 0);
    CHECK(c.same_top == 1 && near(c.correlation, 1) && c.model.n_scored == c.model.n_tokens - 1);
    CHECK(tern_eval_compare(a.session, a.session, text, &desc, &c, &err) == TERN_ERR_ARGUMENT);
    desc.window = 97; // of a context of 96
    CHECK(tern_eval_compare(a.session, b.session, text, &desc, &c, &err) == TERN_ERR_ARGUMENT);
    rig_close(&a);
    rig_close(&b);
}

// What each token says adds up to what is said of all; a document's first is not scored.
static void check_tokens(const tern_eval_token *tokens, size_t n, const tern_eval_comparison *c) {
    double kl = 0, same = 0;
    size_t scored = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(tokens[i].is_scored == (i % (n / 2) != 0));
        CHECK(!tokens[i].is_scored || (tokens[i].certainty > 0 && tokens[i].certainty <= 1));
        scored += tokens[i].is_scored;
        kl += (double)tokens[i].kl;
        same += tokens[i].same_top;
    }
    CHECK(scored == c->model.n_scored && fabs(kl / (double)scored / c->kl.mean - 1) < 1e-5);
    CHECK(near(same / (double)scored, c->same_top));
}

// A document that fits is the text of a window whose tokens all count; of several the tokens come
// together, and in windows each but a document's first counts once. Seen to fail: with the text's
// timeline kept from document to document; with windows that do not overlap; with what a token says
// written to the one before it.
TEST(eval_compare_documents_reads_each_alone) {
    rig a = {0}, b = {0};
    tern_eval_comparison text, one, two, cut;
    tern_error err = {0};
    int32_t ids[512];
    tern_ids all = {ids, 512, 0};
    if (!rig_open(&a, 51, 7) || !rig_open(&b, 52, 0)) return;
    const tern_bytes bytes = {story, 72};
    REQUIRE_OK(tern_tokenize(a.model, story, 72, TERN_TOKENIZE_BOS, &all, &err), err);
    REQUIRE(all.n > 40 && all.n < 96);
    const tern_perplexity_desc how = {.convention = TERN_PERPLEXITY_TRANSFORMERS, .window = 96};
    const size_t ends[] = {all.n, 2 * all.n};
    REQUIRE_OK(tern_eval_compare(a.session, b.session, bytes, &how, &text, &err), err);
    memcpy(ids + all.n, ids, all.n * sizeof *ids);
    tern_eval_documents d = {.ids = ids, .ends = ends, .n = 1, .window = 96};
    REQUIRE_OK(tern_eval_compare_documents(a.session, b.session, &d, &one, &err), err);
    CHECK(one.model.nll == text.model.nll && one.kl.mean == text.kl.mean &&
          one.same_top == text.same_top && one.model.n_scored == text.model.n_scored);
    d.n = 2;
    REQUIRE_OK(tern_eval_compare_documents(a.session, b.session, &d, &two, &err), err);
    CHECK(two.model.n_scored == 2 * one.model.n_scored && near(two.kl.mean, one.kl.mean) &&
          near(two.reference.nll, 2 * one.reference.nll));
    tern_eval_token tokens[512] = {{0}};
    d.window = 16;
    d.tokens = tokens;
    REQUIRE_OK(tern_eval_compare_documents(a.session, b.session, &d, &cut, &err), err);
    CHECK(cut.model.n_scored == two.model.n_scored && cut.model.nll != two.model.nll);
    check_tokens(tokens, ends[1], &cut);
    rig_close(&a);
    rig_close(&b);
}
