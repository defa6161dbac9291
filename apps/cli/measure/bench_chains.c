// tern bench --chains: what speculation gains on a text, and what a run of several tokens costs.
//
// Prompts are pieces of a text, spread over it. Each is answered with and without speculation, one
// right after the other and alternating in order, since the speed of a shared machine varies; the
// answers must be the same. The cost of runs is measured with drafts of every length that are
// certain to be wrong, also in turn, and the fastest round counts.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct result {
    size_t n_prompts, n_same;
    double plain_seconds, seconds; // of generation
    size_t n_tokens;               // of the answers, except the first of each
    tern_draft_stats sum;
    double run_seconds[TERN_DRAFT_MAX + 2]; // [number of tokens], the least
    int n_costs;
} result;

static void add_up(tern_draft_stats *sum, const tern_draft_stats *s) {
    sum->n_steps += s->n_steps;
    sum->n_drafts += s->n_drafts;
    sum->n_drafted += s->n_drafted;
    sum->n_accepted += s->n_accepted;
    sum->draft_seconds += s->draft_seconds;
    for (int i = 0; i < TERN_DRAFTER_COUNT; i++) {
        sum->drafted_by[i] += s->drafted_by[i];
        sum->accepted_by[i] += s->accepted_by[i];
    }
    for (int i = 0; i <= TERN_DRAFT_MAX; i++) {
        sum->accepted_length[i] += s->accepted_length[i];
        sum->drafted_length[i] += s->drafted_length[i];
        sum->accepted_of[i] += s->accepted_of[i];
    }
    for (int i = 0; i < TERN_DRAFT_MAX + 2; i++) {
        sum->n_runs[i] += s->n_runs[i];
        sum->run_seconds[i] += s->run_seconds[i];
    }
}

static bool answer(tern_session *session, const int32_t *prompt, size_t n, int n_answer,
                   tern_generate_stats *stats) {
    tern_error err = {0};
    const tern_sampling greedy = {0};
    const tern_generate_params p = {
        .sampling = &greedy, .max_tokens = n_answer, .ignore_end = true};
    tern_session_reset(session);
    if (tern_generate_ids(session, prompt, n, &p, stats, &err) == TERN_OK) return true;
    fail("%s", err.message);
    return false;
}

// Both answers to one prompt.
static bool compare_once(tern_session *both[2], const ids *corpus, const chains_bench *b, int i,
                         result *r) {
    tern_generate_stats st[2];
    size_t n = (size_t)b->n_prompt < corpus->n ? (size_t)b->n_prompt : corpus->n;
    size_t n_ids[2];
    size_t first = (corpus->n - n) / (size_t)b->n_prompts * (size_t)i;
    for (int k = 0; k < 2; k++) {
        int which = (k + i) % 2;
        if (!answer(both[which], corpus->ptr + first, n, b->n_answer, &st[which])) return false;
    }
    const int32_t *plain = tern_session_generated(both[0], &n_ids[0]);
    const int32_t *drafted = tern_session_generated(both[1], &n_ids[1]);
    r->n_same += n_ids[0] == n_ids[1] && !memcmp(plain, drafted, n_ids[0] * sizeof *plain);
    r->n_prompts++;
    r->plain_seconds += st[0].generate_seconds;
    r->seconds += st[1].generate_seconds;
    r->n_tokens += n_ids[0] > 0 ? n_ids[0] - 1 : 0;
    add_up(&r->sum, &st[1].draft);
    return true;
}

// ---- What runs cost -----------------------------------------------------------------------------

static int32_t draft_zeros(void *user, const int32_t *list, size_t n, int32_t *draft,
                           int32_t n_max) {
    const int *length = user;
    (void)list, (void)n;
    int32_t n_draft = *length < n_max ? *length : n_max;
    memset(draft, 0, (size_t)n_draft * sizeof *draft);
    return n_draft;
}

static bool measure_costs(tern_model *model, const chains_bench *b, const int32_t *prompt, size_t n,
                          result *r) {
    enum { STEPS = 8 };
    session_args args = *b->session;
    int length = 0;
    r->n_costs = b->costs_to;
    args.n_context = (int)n + STEPS + TERN_DRAFT_MAX + 8;
    args.speculation = (tern_speculation){
        .draft = draft_zeros, .draft_user = &length, .always = true, .max_length = TERN_DRAFT_MAX};
    tern_session *session = open_session(model, &args);
    bool ok = session != NULL;
    for (int round = 0; ok && round < b->n_repeats; round++)
        for (length = 0; ok && length < b->costs_to; length++) {
            tern_generate_stats st;
            ok = answer(session, prompt, n, STEPS + length, &st);
            const tern_draft_stats *d = &st.draft;
            int k = length + 1;
            double each = ok && d->n_runs[k] ? d->run_seconds[k] / (double)d->n_runs[k] : 0;
            if (each > 0 && (!r->run_seconds[k] || each < r->run_seconds[k]))
                r->run_seconds[k] = each;
        }
    tern_session_close(session);
    return ok;
}

// ---- Printing -----------------------------------------------------------------------------------

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

// The expected speedup, if each further token of a run costs token_cost of a step.
static double foreseen(const result *r, double token_cost) {
    double cost = 0;
    for (int k = 1; k < TERN_DRAFT_MAX + 2; k++)
        cost += (double)r->sum.n_runs[k] * (1 + token_cost * (k - 1));
    return ratio((double)r->n_tokens, cost);
}

static void print_md(const result *r, const char *device, double token_cost) {
    if (r->n_prompts) {
        printf("%zu prompts on %s; %zu answers are the same with and without drafts\n\n",
               r->n_prompts, device, r->n_same);
        printf("| one token a run | with drafts | speed-up | accepted | tokens a step |\n");
        printf("|---:|---:|---:|---:|---:|\n");
        printf("| %.1f tokens/s | %.1f tokens/s | %.2f | %.1f%% | %.2f |\n\n",
               ratio((double)r->n_tokens, r->plain_seconds), ratio((double)r->n_tokens, r->seconds),
               ratio(r->plain_seconds, r->seconds),
               100 * ratio((double)r->sum.n_accepted, (double)r->sum.n_drafted),
               1 + ratio((double)r->sum.n_accepted, (double)r->sum.n_steps));
        if (token_cost > 0)
            printf("Where a further token of a run costs %g runs of one, the speed-up is %.2f.\n\n",
                   token_cost, foreseen(r, token_cost));
    }
    printf("| tokens of a run | ms | of one |\n|---:|---:|---:|\n");
    for (int k = 1; k <= r->n_costs; k++)
        printf("| %d | %.3f | %.2f |\n", k, 1e3 * r->run_seconds[k],
               ratio(r->run_seconds[k], r->run_seconds[1]));
    fflush(stdout);
    print_drafts(&r->sum, true);
}

static void print_json(const result *r, const char *device, double token_cost) {
    printf("{\"device\":");
    put_json(stdout, device, strlen(device));
    printf(",\"prompts\":%zu,\"same\":%zu,\"tokens\":%zu", r->n_prompts, r->n_same, r->n_tokens);
    put_number(stdout, "plain_tokens_per_second", "%.3f",
               ratio((double)r->n_tokens, r->plain_seconds));
    put_number(stdout, "tokens_per_second", "%.3f", ratio((double)r->n_tokens, r->seconds));
    put_number(stdout, "speedup", "%.4f", ratio(r->plain_seconds, r->seconds));
    if (token_cost > 0) put_number(stdout, "foreseen_speedup", "%.4f", foreseen(r, token_cost));
    printf(",\"run_seconds\":[");
    for (int k = 1; k <= r->n_costs; k++) printf("%s%.6f", k > 1 ? "," : "", r->run_seconds[k]);
    printf("],\"speculation\":");
    put_drafts(stdout, &r->sum);
    printf("}\n");
}

// ---- All ----------------------------------------------------------------------------------------

static bool read_ids(const tern_model *model, const char *path, ids *out) {
    text t = {0};
    bool ok = text_read(&t, path) && tokenize(model, t.ptr, t.n, TERN_TOKENIZE_PLAIN, out);
    free(t.ptr);
    if (ok && out->n == 0) ok = fail("%s: there is no text in it", path) == EXIT_OK;
    return ok;
}

static bool compare_all(tern_model *model, const chains_bench *b, const ids *corpus, result *r) {
    session_args args = *b->session;
    if (!args.n_context) args.n_context = b->n_prompt + b->n_answer + 8;
    tern_speculation none = {0}, drafters = args.speculation;
    tern_session *both[2];
    for (int k = 0; k < 2; k++) {
        args.speculation = k ? drafters : none;
        both[k] = open_session(model, &args);
    }
    bool ok = both[0] && both[1];
    for (int i = 0; ok && i < b->n_prompts; i++) ok = compare_once(both, corpus, b, i, r);
    for (int k = 0; k < 2; k++) tern_session_close(both[k]);
    return ok;
}

int bench_chains(const command *self, model_args *model_options, const chains_bench *b) {
    int status;
    tern_model_info info;
    result r = {0};
    ids corpus = {0};
    const int32_t some[] = {1, 2, 3, 4, 5, 6, 7, 8};
    tern_model *model = open_model(self, model_options, &status);
    if (!model) return status;
    tern_model_get_info(model, &info);
    bool ok = open_speculation(b->speculation, model_options, &b->session->speculation);
    if (ok && b->text) ok = read_ids(model, b->text, &corpus) && compare_all(model, b, &corpus, &r);
    if (ok) ok = measure_costs(model, b, some, sizeof some / sizeof *some, &r);
    if (ok) (b->json ? print_json : print_md)(&r, info.device, (double)b->speculation->token_cost);
    free(corpus.ptr);
    close_speculation(&b->session->speculation);
    tern_model_close(model);
    return !ok || r.n_same < r.n_prompts ? EXIT_FAILED : EXIT_OK;
}
