// What the commands share about speculation: opening its drafters, showing its statistics.
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tern_tools.h"

// ---- Opening ------------------------------------------------------------------------------------

// The path of chain-buckets.bin in the model's folder.
static void path_beside(text *path, const char *model) {
    struct stat st;
    const char *slash = strrchr(model, '/');
    bool is_folder = stat(model, &st) == 0 && S_ISDIR(st.st_mode);
    size_t n = is_folder ? strlen(model) : slash ? (size_t)(slash - model) : 0;
    text_append(path, model, n);
    if (is_folder || slash) text_puts(path, "/");
    text_puts(path, "chain-buckets.bin");
}

static bool open_chains(const char *given, const char *model, tern_chains **out) {
    text path = {0};
    tern_error err = {0};
    bool ok = true;
    if (*given)
        text_puts(&path, given);
    else
        path_beside(&path, model);
    if (!*given && access(path.ptr, F_OK) != 0)
        fprintf(stderr, "tern: there is no %s: no chains\n", path.ptr);
    else if (tern_chains_open(out, path.ptr, &err) != TERN_OK)
        ok = fail("%s", err.message) == 0;
    free(path.ptr);
    return ok;
}

bool open_speculation(const speculation_args *args, const model_args *model,
                      tern_speculation *out) {
    tern_chains *chains = NULL;
    *out = (tern_speculation){.lookup = args->lookup,
                              .online = args->online,
                              .max_length = args->max_length,
                              .threshold = args->threshold,
                              .token_cost = args->token_cost};
    if (args->chains && !open_chains(args->chains, model->path, &chains)) return false;
    out->chains = chains;
    if (!args->draft_model) return true;
    const char *path = resolve_model(model->folder, args->draft_model);
    if (!path) return false;
    const tern_model_desc desc = {.device = device_of(model),
                                  .webgpu = cli_webgpu(),
                                  .n_threads = model->n_threads,
                                  .cpu_features = model->cpu_features};
    tern_error err = {0};
    if (tern_model_open(&out->draft_model, path, &desc, &err) == TERN_OK) return true;
    fail("%s", err.message);
    return false;
}

void close_speculation(tern_speculation *s) {
    tern_chains_close((tern_chains *)s->chains);
    tern_model_close(s->draft_model);
    *s = (tern_speculation){0};
}

// ---- Statistics ---------------------------------------------------------------------------------

static const char *const drafter_names[TERN_DRAFTER_COUNT] = {"chains", "lookup", "online", "model",
                                                              "caller"};

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

// A line of a histogram: a number, then a bar that is full at 1.
static void draw(double fraction) {
    enum { WIDTH = 40 };
    for (int i = 0; i < (int)(fraction * WIDTH + 0.5); i++) putc('#', stderr);
    putc('\n', stderr);
}

static void draw_histograms(const tern_draft_stats *s) {
    int most = 0;
    for (int i = 0; i <= TERN_DRAFT_MAX; i++)
        if (s->accepted_length[i] || s->drafted_length[i]) most = i;
    fprintf(stderr, "accepted tokens   drafts\n");
    for (int i = 0; i <= most; i++) {
        fprintf(stderr, "%15d %8zu  ", i, s->accepted_length[i]);
        draw(ratio((double)s->accepted_length[i], (double)s->n_drafts));
    }
    fprintf(stderr, "length of draft   drafts  accepted\n");
    for (int i = 1; i <= most; i++) {
        double share = ratio((double)s->accepted_of[i], (double)(s->drafted_length[i] * (size_t)i));
        if (!s->drafted_length[i]) continue;
        fprintf(stderr, "%15d %8zu %8.0f%%  ", i, s->drafted_length[i], 100 * share);
        draw(share);
    }
}

void print_drafts(const tern_draft_stats *s, bool visualize) {
    if (s->n_drafts == 0) return;
    fprintf(stderr, "speculation: %zu of %zu drafted tokens accepted (%.0f%%)", s->n_accepted,
            s->n_drafted, 100 * ratio((double)s->n_accepted, (double)s->n_drafted));
    for (int d = 0; d < TERN_DRAFTER_COUNT; d++)
        if (s->drafted_by[d])
            fprintf(stderr, ", %s %zu/%zu", drafter_names[d], s->accepted_by[d], s->drafted_by[d]);
    fprintf(stderr, "; %.2f tokens a step", 1 + ratio((double)s->n_accepted, (double)s->n_steps));
    if (s->speedup > 0) fprintf(stderr, "; %.2f times as fast as one a step", s->speedup);
    putc('\n', stderr);
    if (visualize) draw_histograms(s);
}

// Prints up to the last one that is not 0.
static void put_counts(FILE *f, const char *name, const size_t *counts, int n) {
    while (n > 0 && !counts[n - 1]) n--;
    fprintf(f, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) fprintf(f, i ? ",%zu" : "%zu", counts[i]);
    putc(']', f);
}

void put_drafts(FILE *f, const tern_draft_stats *s) {
    bool any = false;
    int longest = TERN_DRAFT_MAX + 1;
    fprintf(f, "{\"steps\":%zu,\"drafts\":%zu,\"drafted\":%zu,\"accepted\":%zu", s->n_steps,
            s->n_drafts, s->n_drafted, s->n_accepted);
    put_number(f, "acceptance_rate", "%.4f", ratio((double)s->n_accepted, (double)s->n_drafted));
    put_number(f, "accepted_per_step", "%.4f", ratio((double)s->n_accepted, (double)s->n_steps));
    put_number(f, "speedup", "%.4f", s->speedup);
    put_counts(f, "accepted_lengths", s->accepted_length, TERN_DRAFT_MAX + 1);
    put_counts(f, "draft_lengths", s->drafted_length, TERN_DRAFT_MAX + 1);
    put_counts(f, "accepted_of_length", s->accepted_of, TERN_DRAFT_MAX + 1);
    fprintf(f, ",\"drafters\":{");
    for (int d = 0; d < TERN_DRAFTER_COUNT; d++) {
        if (!s->drafted_by[d]) continue;
        fprintf(f, "%s\"%s\":{\"drafted\":%zu,\"accepted\":%zu}", any ? "," : "", drafter_names[d],
                s->drafted_by[d], s->accepted_by[d]);
        any = true;
    }
    while (longest > 1 && !s->n_runs[longest]) longest--;
    fprintf(f, "},\"draft_seconds\":%.6f,\"run_seconds\":[", s->draft_seconds);
    for (int k = 1; k <= longest; k++)
        fprintf(f, "%s%.6f", k > 1 ? "," : "", ratio(s->run_seconds[k], (double)s->n_runs[k]));
    fprintf(f, "]}");
}
