// tern bench: prompt and generation speed for each number of threads, compared with what the
// machine can do. Prompts are bound by arithmetic, so their speed is compared with the int8 peak;
// generation is bound by bytes, so its speed is compared with the read bandwidth.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_args {
    model_args model;
    session_args session;
    count_list prompts, answers, threads;
    int n_repeats, n_before, format; // a position in "md|json|csv"
    bool no_limits, profile;
} bench_args;

typedef struct row {
    bool is_prompt;
    int n_tokens, n_threads;
    int n_before;               // tokens before an answer
    size_t i_threads;           // in the list of numbers of threads
    double median, least, most; // tokens/s
    uint64_t bytes_per_token;
    double gb_per_s, percent_of_read, percent_of_int8; // negative: not known
    double load_seconds, macs_per_token;               // macs_per_token 0: not int8
    tern_profile_row *profile;                         // of a separate run
    size_t n_profile;
} row;

typedef struct table {
    row *rows;
    size_t n;
    char model[256], device[128], ternary[32], head[64];
    uint64_t n_params;
    tern_machine_limits limits[COUNT_LIST_MAX]; // for each number of threads
    size_t n_limits, peak_bytes;
    tern_device_memory memory; // with one session: now and peak
    const char *cache;
} table;

// ---- One measurement ----------------------------------------------------------------------------

static bool ignore_text(void *user, const char *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return true;
}

// Seconds for n tokens of prompt or of answer; negative after printing why not. What is before an
// answer is computed once: it stays in the session.
static double measure_once(tern_session *session, const int32_t *tokens, const row *r, int n) {
    tern_error err = {0};
    if (r->n_before <= 1) tern_session_reset(session);
    if (r->is_prompt) {
        double start = seconds_now();
        if (tern_session_sync(session, tokens, (size_t)n, NULL, &err) == TERN_OK)
            return seconds_now() - start;
        fail("%s", err.message);
        return -1;
    }
    // n + 1 tokens: the first comes from the prompt's scores, the others from a step each.
    const tern_sampling greedy = {0};
    const tern_generate_params params = {
        .sampling = &greedy, .max_tokens = n + 1, .ignore_end = true, .on_text = ignore_text};
    tern_generate_stats stats;
    if (tern_generate_ids(session, tokens, (size_t)r->n_before, &params, &stats, &err) == TERN_OK)
        return stats.generate_seconds;
    fail("%s", err.message);
    return -1;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool measure(tern_session *session, const int32_t *tokens, int n_repeats, row *r) {
    double *speeds = must_alloc(NULL, (size_t)n_repeats, sizeof *speeds);
    // Caches, pages and clocks settle in a run that is not counted.
    int n_warm = r->is_prompt ? r->n_tokens : r->n_tokens < 16 ? r->n_tokens : 16;
    bool ok = measure_once(session, tokens, r, n_warm) >= 0;
    for (int i = 0; ok && i < n_repeats; i++) {
        double seconds = measure_once(session, tokens, r, r->n_tokens);
        ok = seconds >= 0;
        speeds[i] = r->n_tokens / (seconds > 0 ? seconds : 1e-9);
    }
    qsort(speeds, ok ? (size_t)n_repeats : 0, sizeof *speeds, by_value);
    size_t middle = (size_t)n_repeats / 2;
    r->median = n_repeats % 2 ? speeds[middle] : (speeds[middle - 1] + speeds[middle]) / 2;
    r->least = speeds[0];
    r->most = speeds[n_repeats - 1];
    free(speeds);
    return ok;
}

// Times the kernels in a separate session, since timing makes it slower.
static bool profile(tern_model *model, session_args options, const int32_t *tokens, row *r) {
    const tern_profile_row *rows;
    tern_error err = {0};
    options.profile = true;
    tern_session *session = open_session(model, &options);
    bool ok = session && measure_once(session, tokens, r, r->n_tokens) >= 0;
    if (ok && tern_session_profile(session, &rows, &r->n_profile, &err) == TERN_OK) {
        r->profile = must_alloc(NULL, r->n_profile, sizeof *rows);
        memcpy(r->profile, rows, r->n_profile * sizeof *rows);
    }
    tern_session_close(session);
    return ok;
}

// Multiply-accumulates for a prompt token: all weights but the embedding table, where one row is
// looked up (as the output head, it is multiplied with the last token only).
static double macs_per_token(const tern_model_info *info) {
    if (!strcmp(info->ternary_layout, "none")) return 0;
    double embedding = (double)info->n_vocab * info->n_embd;
    return (double)info->n_params > embedding ? (double)info->n_params - embedding : 0;
}

// Compares the speeds with the machine's limits, once those were measured too.
static void compare(row *r, const tern_machine_limits *limits) {
    r->gb_per_s = r->percent_of_read = r->percent_of_int8 = -1;
    if (!r->is_prompt) r->gb_per_s = r->median * (double)r->bytes_per_token * 1e-9;
    if (!r->is_prompt && limits->read_gb_per_second > 0)
        r->percent_of_read = 100 * r->gb_per_s / limits->read_gb_per_second;
    if (r->is_prompt && limits->int8_gmac_per_second > 0 && r->macs_per_token > 0)
        r->percent_of_int8 =
            100 * r->median * r->macs_per_token * 1e-9 / limits->int8_gmac_per_second;
}

// ---- All measurements ---------------------------------------------------------------------------

static int largest(const count_list *list) {
    int most = 0;
    for (size_t i = 0; i < list->n; i++) most = list->at[i] > most ? list->at[i] : most;
    return most;
}

static bool add_rows(const bench_args *args, tern_model *model, tern_session *session,
                     const int32_t *tokens, const tern_model_info *info, size_t i_threads,
                     table *t) {
    const count_list *lists[] = {&args->prompts, &args->answers};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++) {
            row r = {
                .is_prompt = k == 0,
                .n_tokens = lists[k]->at[i],
                .n_before = k == 0 ? 0 : args->n_before,
                .n_threads = info->n_threads ? info->n_threads : args->threads.at[i_threads],
                .i_threads = i_threads,
                .bytes_per_token = info->bytes_per_token,
                .macs_per_token = macs_per_token(info),
                .load_seconds = info->load_seconds,
            };
            if (r.n_tokens == 0) continue;
            if (!measure(session, tokens, args->n_repeats, &r)) return false;
            if (args->profile && !profile(model, args->session, tokens, &r)) return false;
            t->rows = must_alloc(t->rows, t->n + 1, sizeof *t->rows);
            t->rows[t->n++] = r;
        }
    return true;
}

static void describe(table *t, const tern_model_info *info) { // the model closes before we print
    snprintf(t->model, sizeof t->model, "%s", info->path);
    snprintf(t->device, sizeof t->device, "%s", info->device);
    snprintf(t->ternary, sizeof t->ternary, "%s", info->ternary_layout);
    snprintf(t->head, sizeof t->head, "%s", info->head);
    t->n_params = info->n_params;
}

static const char *cache_name(tern_kv_type kv_type) {
    static const char *const names[] = {"", "F32", "F16", "Q8_0", "Q4_0"};
    return names[kv_type];
}

static int bench_threads(const command *self, bench_args *args, size_t i_threads, table *t) {
    int status, n_prompt = largest(&args->prompts),
                n_answer = largest(&args->answers) + 1 + args->n_before;
    tern_model_info info;
    args->model.n_threads = args->threads.at[i_threads];
    tern_model *model = open_model(self, &args->model, &status);
    if (!model) return status;
    tern_model_get_info(model, &info);
    describe(t, &info);
    if (!args->session.n_context)
        args->session.n_context = n_prompt > n_answer ? n_prompt : n_answer;
    // The speed does not depend on the choice of tokens; these are spread over the vocabulary.
    const int n_ids = n_prompt > args->n_before ? n_prompt : args->n_before;
    int32_t *tokens = must_alloc(NULL, (size_t)n_ids + 1, sizeof *tokens);
    for (int i = 0; i <= n_ids; i++)
        tokens[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)info.n_vocab);
    tern_session *session = open_session(model, &args->session);
    status = session && add_rows(args, model, session, tokens, &info, i_threads, t) ? EXIT_OK
                                                                                    : EXIT_FAILED;
    tern_model_get_info(model, &info);
    t->memory = info.device_memory;
    if (session) t->cache = cache_name(tern_session_kv_type(session));
    tern_session_close(session);
    tern_model_close(model);
    free(tokens);
    return status;
}

// After the models, since measuring allocates memory besides theirs.
static void measure_machine(const bench_args *args, table *t) {
    tern_error err = {0};
    t->peak_bytes = tern_heap_get().process_max;
    for (size_t i = 0; i < args->threads.n && !args->no_limits; i++) {
        if (tern_machine_measure(args->threads.at[i], &t->limits[i], &err) != TERN_OK)
            fail("%s", err.message);
        t->n_limits = i + 1;
    }
    for (size_t i = 0; i < t->n; i++) compare(&t->rows[i], &t->limits[t->rows[i].i_threads]);
}

// ---- Printing -----------------------------------------------------------------------------------

static void put_percent(double percent) {
    if (percent >= 0)
        printf(" %.0f%% |", percent);
    else
        printf(" |");
}

static void print_profiles(FILE *f, const table *t) {
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        char title[64];
        snprintf(title, sizeof title, "%s %d", r->is_prompt ? "pp" : "tg", r->n_tokens);
        if (r->profile) print_profile(f, title, r->profile, r->n_profile);
    }
}

static void print_md(const table *t) {
    printf("%s: %.3f billion weights, products %s, head %s; %s; %.0f MB at most\n", t->model,
           (double)t->n_params * 1e-9, t->ternary, t->head, t->device,
           (double)t->peak_bytes * 1e-6);
    for (size_t i = 0; i < t->n_limits; i++) {
        const tern_machine_limits *l = &t->limits[i];
        if (l->read_gb_per_second > 0)
            printf("%s, %d thread%s: reads %.1f GB/s, int8 %.0f G multiply-adds/s (%s)\n", l->cpu,
                   l->n_threads, many((uint64_t)l->n_threads), l->read_gb_per_second,
                   l->int8_gmac_per_second, l->features);
    }
    print_device_memory(stdout, t->cache, &t->memory);
    putchar('\n');
    printf(
        "| test | threads | tokens/s | from | to | MB/token | GB/s | of read | of int8 | load s |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        printf("| %s %d | %d | %.2f | %.2f | %.2f |", r->is_prompt ? "pp" : "tg", r->n_tokens,
               r->n_threads, r->median, r->least, r->most);
        if (r->is_prompt)
            printf(" | |");
        else
            printf(" %.1f | %.2f |", (double)r->bytes_per_token * 1e-6, r->gb_per_s);
        put_percent(r->percent_of_read);
        put_percent(r->percent_of_int8);
        printf(" %.2f |\n", r->load_seconds);
    }
    print_profiles(stdout, t);
}

static void print_csv(const table *t) {
    printf("test,tokens,threads,tokens_per_second,least,most,bytes_per_token,gb_per_second,"
           "percent_of_read,percent_of_int8,load_seconds,peak_bytes\n");
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        const double optional[] = {r->gb_per_s, r->percent_of_read, r->percent_of_int8};
        printf("%s,%d,%d,%.3f,%.3f,%.3f,%llu", r->is_prompt ? "pp" : "tg", r->n_tokens,
               r->n_threads, r->median, r->least, r->most, (unsigned long long)r->bytes_per_token);
        for (int k = 0; k < 3; k++) {
            if (optional[k] >= 0)
                printf(",%.3f", optional[k]);
            else
                printf(",");
        }
        printf(",%.3f,%zu\n", r->load_seconds, t->peak_bytes);
    }
    print_profiles(stderr, t);
}

static void put_member(const char *name, double value) {
    put_number(stdout, name, "%.3f", value >= 0 ? value : NAN);
}

static void print_json(const table *t) {
    printf("{\"model\":");
    put_json(stdout, t->model, strlen(t->model));
    printf(",\"device\":");
    put_json(stdout, t->device, strlen(t->device));
    printf(",\"cpu\":");
    put_json(stdout, t->limits[0].cpu, strlen(t->limits[0].cpu));
    printf(",\"ternary\":\"%s\",\"head\":\"%s\",\"weights\":%llu,\"limits\":[", t->ternary, t->head,
           (unsigned long long)t->n_params);
    for (size_t i = 0; i < t->n_limits && t->limits[i].read_gb_per_second > 0; i++) {
        printf("%s{\"threads\":%d", i ? "," : "", t->limits[i].n_threads);
        put_member("read_gb_per_second", t->limits[i].read_gb_per_second);
        put_member("int8_gmac_per_second", t->limits[i].int8_gmac_per_second);
        printf("}");
    }
    printf("],\"peak_bytes\":%zu,\"device_memory\":", t->peak_bytes);
    put_device_memory(stdout, &t->memory);
    printf(",\"rows\":[");
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        printf("%s\n{\"test\":\"%s\",\"tokens\":%d,\"before\":%d,\"threads\":%d,"
               "\"bytes_per_token\":%llu",
               i ? "," : "", r->is_prompt ? "pp" : "tg", r->n_tokens, r->n_before, r->n_threads,
               (unsigned long long)r->bytes_per_token);
        put_member("tokens_per_second", r->median);
        put_member("least", r->least);
        put_member("most", r->most);
        put_member("gb_per_second", r->gb_per_s);
        put_member("percent_of_read", r->percent_of_read);
        put_member("percent_of_int8", r->percent_of_int8);
        put_member("load_seconds", r->load_seconds);
        if (r->profile) {
            printf(",\"profile\":");
            put_profile(stdout, r->profile, r->n_profile);
        }
        printf("}");
    }
    printf("\n]}\n");
}

// Instead of the tables: the gain of speculation.
static int bench_speculation(const command *self, bench_args *args, const char *corpus,
                             const speculation_args *speculation, bool has_prompts, int n_prompts) {
    const chains_bench b = {.speculation = speculation,
                            .session = &args->session,
                            .text = corpus,
                            .n_prompts = n_prompts ? n_prompts : 20,
                            .n_prompt = has_prompts ? args->prompts.at[0] : 64,
                            .n_answer = args->answers.at[0],
                            .n_repeats = args->n_repeats,
                            .costs_to = 9,
                            .json = args->format == 1};
    if (args->format == 2) return bad_usage("bench: --chains prints md or json");
    if (b.n_prompt < 1 || b.n_answer < 1)
        return bad_usage("bench: --chains needs -p and -n over 0");
    args->model.n_threads = args->threads.at[0];
    return bench_chains(self, &args->model, &b);
}

static int bench_many(const command *self, bench_args *args, const count_list *counts,
                      bool has_prompts) {
    const parallel_bench b = {.session = &args->session,
                              .counts = *counts,
                              .n_prompt = has_prompts ? args->prompts.at[0] : 64,
                              .n_answer = args->answers.at[0],
                              .n_repeats = args->n_repeats,
                              .format = args->format};
    if (b.n_prompt < 1 || b.n_answer < 1)
        return bad_usage("bench: --parallel needs -p and -n over 0");
    args->model.n_threads = args->threads.at[0];
    return bench_parallel(self, &args->model, &b);
}

static int bench_servers(server_bench *b, const bench_args *args, bool has_prompts) {
    enum { MD, JSON, CSV, HTML };
    if (args->format == CSV) return bad_usage("bench: --server prints md, json or html");
    b->format = args->format == HTML ? 2 : args->format;
    b->n_prompt = has_prompts ? args->prompts.at[0] : 64;
    b->n_answer = args->answers.at[0];
    b->model = args->model.path;
    if (b->n_prompt < 1 || b->n_answer < 1)
        return bad_usage("bench: --server needs -p and -n over 0");
    return bench_server(b);
}

static int bench_report(void) {
    tern_error err;
    if (tern_machine_report(write_out, NULL, &err) == TERN_OK) return EXIT_OK;
    fail("%s", err.message);
    return EXIT_FAILED;
}

int cmd_bench(const command *self, int argc, char **argv) {
    bench_args args = {.n_repeats = 5, .n_before = 1, .answers = {{128}, 1}, .threads = {{0}, 1}};
    speculation_args speculation = {0};
    const char *corpus = NULL;
    count_list parallel = {0};
    server_bench server = {.users = {{1, 4, 16}, 3}, .seed = 1};
    int n_prompts = 0;
    bool report = false;
    const option options[] = {
        {'p', "prompt", OPTION_COUNTS, &args.prompts, "N,...", "lengths of prompts, 0: none (512)",
         0, 1 << 20},
        {'n', "n-predict", OPTION_COUNTS, &args.answers, "N,...",
         "lengths of answers, 0: none (128)", 0, 1 << 20},
        {'d', "depth", OPTION_COUNT, &args.n_before, "N", "tokens before an answer (1)", 1,
         1 << 24},
        {'t', "threads", OPTION_COUNTS, &args.threads, "N,...",
         "numbers of threads, 0: one for each core (0)", 0, 1024},
        {'r', "repeats", OPTION_COUNT, &args.n_repeats, "N", "runs of each (5)", 1, 1000},
        {'o', "output", OPTION_CHOICE, &args.format, "md|json|csv|html",
         "how to print; html: of servers"},
        {0, "profile", OPTION_FLAG, &args.profile, NULL, "one more run of each, timed by kernel"},
        {0, "no-limits", OPTION_FLAG, &args.no_limits, NULL, "do not measure the machine"},
        {0, "report", OPTION_FLAG, &report, NULL,
         "instead, without a model: the kernels at each level of this processor's instructions"},
        MODEL_OPTIONS_BEGIN(args.model),
        MODEL_OPTIONS_END(args.model),
        SESSION_OPTIONS(args.session),
        OPTIONS_GROUP("Many sequences, instead of the above"),
        {0, "parallel", OPTION_COUNTS, &parallel, "N,...",
         "prompts (64 tokens) and steps of that many sequences together", 1, 100000},
        OPTIONS_GROUP("A load for servers, instead of the above (-m: the model's name there)"),
        {0, "server", OPTION_TEXTS, &server.servers, "URL",
         "of one that speaks OpenAI's interface; several are compared"},
        {0, "users", OPTION_COUNTS, &server.users, "N,...", "requests at once (1,4,16)", 1, 4096},
        {0, "rate", OPTION_NUMBER, &server.rate, "R",
         "instead: R requests a second, at random moments", 0, 100000},
        {0, "requests", OPTION_COUNT, &server.n_requests, "N", "of each load (40, or 4 a user)", 1,
         1000000},
        {0, "shared", OPTION_COUNT, &server.n_shared, "N", "tokens that all prompts begin with (0)",
         0, 1 << 20},
        {0, "range-ratio", OPTION_NUMBER, &server.range_ratio, "R",
         "lengths at random, from N (1 - R) to N (1 + R) (0)", 0, 1},
        {0, "api-key", OPTION_TEXT, &server.key, "KEY", "the servers' key"},
        {0, "seed", OPTION_SEED, &server.seed, "S", "of moments and texts (1)"},
        OPTIONS_GROUP("Speculation, instead of the above"),
        {0, "chains", OPTION_MAYBE, &speculation.chains, "[PATH]",
         "what drafts from a table of chains gain; by itself: what runs of 1 to 9 tokens cost"},
        {'f', "text", OPTION_TEXT, &corpus, "FILE", "... on prompts out of a text"},
        {0, "n-prompts", OPTION_COUNT, &n_prompts, "N", "that many (20), of -p tokens (64)", 1,
         100000},
        {0, "lookup", OPTION_FLAG, &speculation.lookup, NULL, "drafts from the text itself, too"},
        {0, "online-chains", OPTION_FLAG, &speculation.online, NULL, "and from earlier ones"},
        {0, "draft-model", OPTION_TEXT, &speculation.draft_model, "MODEL", "and from a model"},
        {0, "chain-max-length", OPTION_COUNT, &speculation.max_length, "N", "at most (8)", 1,
         TERN_DRAFT_MAX},
        {0, "chain-threshold", OPTION_NUMBER, &speculation.threshold, "P", "see tern run (0)", 0,
         1},
        {0, "token-cost", OPTION_NUMBER, &speculation.token_cost, "C",
         "draft as where a further token of a run costs C runs of one", 0, 1000},
        OPTIONS_END,
    };
    static void (*const print[])(const table *) = {print_md, print_json, print_csv};
    table t = {0};
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (report) return bench_report();
    bool has_prompts = args.prompts.n > 0;
    if (server.servers.n) return bench_servers(&server, &args, has_prompts);
    if (args.format > 2) return bad_usage("bench: -o html is for --server");
    if (!has_prompts) args.prompts = (count_list){{512}, 1};
    if (parallel.n) return bench_many(self, &args, &parallel, has_prompts);
    if (speculation.chains || speculation.lookup || speculation.online || speculation.draft_model)
        return bench_speculation(self, &args, corpus, &speculation, has_prompts, n_prompts);
    for (size_t i = 0; i < args.threads.n && status != EXIT_FAILED; i++) {
        status = bench_threads(self, &args, i, &t);
        if (status == EXIT_USAGE) return status;
    }
    if (status == EXIT_OK) {
        measure_machine(&args, &t);
        print[args.format](&t);
    }
    for (size_t i = 0; i < t.n; i++) free(t.rows[i].profile);
    free(t.rows);
    return status;
}
