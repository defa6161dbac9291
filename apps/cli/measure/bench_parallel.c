// tern bench --parallel: tokens per second of many sequences stepped together.
//
// First all prompts, in large batches; then all steps. Each number of sequences has separate
// sessions, which start afresh in each round.
#include "apps/cli/console/cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct speeds {
    int n;                              // sequences
    double prompts, total, least, most; // tokens/s of all
} speeds;

typedef struct parallel {
    tern_group *group;
    tern_session **sessions;
    int n, n_prompt;
    int32_t *prompts; // [n, n_prompt]
    tern_error err;   // of a session
} parallel;

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    parallel *p = user;
    (void)session, (void)stats;
    if (err->status != TERN_OK) p->err = *err;
}

static bool add_all(parallel *p, int n_tokens) {
    const tern_sampling greedy = {0};
    const tern_generate_params params = {.sampling = &greedy,
                                         .max_tokens = n_tokens,
                                         .ignore_end = true,
                                         .on_end = on_end,
                                         .user = p};
    for (int i = 0; i < p->n; i++)
        if (tern_group_add(p->group, p->sessions[i], p->prompts + (size_t)i * (size_t)p->n_prompt,
                           (size_t)p->n_prompt, &params, &p->err) != TERN_OK)
            return false;
    return true;
}

static bool step_all(parallel *p) {
    size_t n_running = 1;
    while (n_running > 0)
        if (tern_group_step(p->group, &n_running, &p->err) != TERN_OK) return false;
    return p->err.status == TERN_OK;
}

// Seconds of the prompts, and of n_answer steps after them; the first token of an answer comes from
// the prompt's scores, which the first step computes again.
static bool measure_once(parallel *p, int n_answer, double *prompts, double *steps) {
    for (int i = 0; i < p->n; i++) tern_session_reset(p->sessions[i]);
    double start = seconds_now();
    if (!add_all(p, 1) || !step_all(p)) return false;
    *prompts = seconds_now() - start;
    if (!add_all(p, n_answer + 1) || tern_group_step(p->group, NULL, &p->err) != TERN_OK)
        return false;
    start = seconds_now();
    bool ok = step_all(p);
    *steps = seconds_now() - start;
    return ok;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static bool measure(parallel *p, const parallel_bench *b, speeds *out) {
    double *prompts = must_alloc(NULL, (size_t)b->n_repeats, sizeof *prompts);
    double *steps = must_alloc(NULL, (size_t)b->n_repeats, sizeof *steps), seconds[2];
    double n = p->n, tokens = n * b->n_answer;
    // Pages and clocks settle in a run that is not counted.
    bool ok = measure_once(p, b->n_answer < 8 ? b->n_answer : 8, &seconds[0], &seconds[1]);
    for (int i = 0; ok && i < b->n_repeats; i++) {
        ok = measure_once(p, b->n_answer, &seconds[0], &seconds[1]);
        prompts[i] = n * p->n_prompt / (seconds[0] > 0 ? seconds[0] : 1e-9);
        steps[i] = tokens / (seconds[1] > 0 ? seconds[1] : 1e-9);
    }
    if (ok) {
        out->prompts = median(prompts, b->n_repeats);
        out->total = median(steps, b->n_repeats); // sorted now
        out->least = steps[0];
        out->most = steps[b->n_repeats - 1];
    } else {
        fail("%s", p->err.message);
    }
    free(prompts);
    free(steps);
    return ok;
}

// Different tokens for each sequence, spread over the vocabulary.
static void make_prompts(parallel *p, int32_t n_vocab) {
    size_t n = (size_t)p->n * (size_t)p->n_prompt;
    p->prompts = must_alloc(NULL, n, sizeof *p->prompts);
    for (size_t i = 0; i < n; i++)
        p->prompts[i] = (int32_t)((uint32_t)(i + 1) * 2654435761u % (uint32_t)n_vocab);
}

static bool run(tern_model *model, const parallel_bench *b, int n, speeds *out) {
    tern_model_info info;
    parallel p = {.n = n, .n_prompt = b->n_prompt};
    session_args session = *b->session;
    if (!session.n_context) session.n_context = b->n_prompt + b->n_answer + 1;
    tern_model_get_info(model, &info);
    const tern_group_desc desc = {.n_reserve = b->n_answer + 1};
    bool ok = tern_group_open(&p.group, model, &desc, &p.err) == TERN_OK;
    if (!ok) fail("%s", p.err.message);
    p.sessions = must_alloc(NULL, (size_t)n, sizeof *p.sessions);
    make_prompts(&p, info.n_vocab);
    int n_open = 0;
    while (ok && n_open < n) {
        p.sessions[n_open] = open_session(model, &session);
        ok = p.sessions[n_open] != NULL;
        n_open += ok;
    }
    *out = (speeds){.n = n};
    ok = ok && measure(&p, b, out);
    tern_group_close(p.group);
    while (n_open > 0) tern_session_close(p.sessions[--n_open]);
    free(p.sessions);
    free(p.prompts);
    return ok;
}

// ---- Printing ----------------------------------------------------------------------------------

static void print_md(const parallel_bench *b, const tern_model_info *info, const speeds *s,
                     size_t n) {
    printf("%s: prompts of %d token%s, then %d step%s; %s\n\n", info->path, b->n_prompt,
           many((uint64_t)b->n_prompt), b->n_answer, many((uint64_t)b->n_answer), info->device);
    printf("| sequences | prompts, tokens/s | tokens/s | from | to | each | of one |\n"
           "|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < n; i++)
        printf("| %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", s[i].n, s[i].prompts,
               s[i].total, s[i].least, s[i].most, s[i].total / s[i].n, s[i].total / s[0].total);
}

static void print_csv(const parallel_bench *b, const tern_model_info *info, const speeds *s,
                      size_t n) {
    printf("sequences,prompt,steps,threads,prompt_tokens_per_second,tokens_per_second,least,most,"
           "each\n");
    for (size_t i = 0; i < n; i++)
        printf("%d,%d,%d,%d,%.3f,%.3f,%.3f,%.3f,%.3f\n", s[i].n, b->n_prompt, b->n_answer,
               info->n_threads, s[i].prompts, s[i].total, s[i].least, s[i].most,
               s[i].total / s[i].n);
}

static void print_json(const parallel_bench *b, const tern_model_info *info, const speeds *s,
                       size_t n) {
    printf("{\"model\":");
    put_json(stdout, info->path, strlen(info->path));
    printf(",\"device\":");
    put_json(stdout, info->device, strlen(info->device));
    printf(",\"threads\":%d,\"prompt\":%d,\"steps\":%d,\"rows\":[", info->n_threads, b->n_prompt,
           b->n_answer);
    for (size_t i = 0; i < n; i++) {
        printf("%s\n{\"sequences\":%d", i ? "," : "", s[i].n);
        put_number(stdout, "prompt_tokens_per_second", "%.3f", s[i].prompts);
        put_number(stdout, "tokens_per_second", "%.3f", s[i].total);
        put_number(stdout, "least", "%.3f", s[i].least);
        put_number(stdout, "most", "%.3f", s[i].most);
        put_number(stdout, "each", "%.3f", s[i].total / s[i].n);
        printf("}");
    }
    printf("\n]}\n");
}

int bench_parallel(const command *self, model_args *model_options, const parallel_bench *b) {
    static void (*const print[])(const parallel_bench *, const tern_model_info *, const speeds *,
                                 size_t) = {print_md, print_json, print_csv};
    speeds rows[COUNT_LIST_MAX];
    tern_model_info info;
    int status;
    tern_model *model = open_model(self, model_options, &status);
    if (!model) return status;
    bool ok = true;
    for (size_t i = 0; ok && i < b->counts.n; i++) ok = run(model, b, b->counts.at[i], &rows[i]);
    tern_model_get_info(model, &info);
    if (ok) print[b->format](b, &info, rows, b->counts.n);
    tern_model_close(model);
    return ok ? EXIT_OK : EXIT_FAILED;
}
