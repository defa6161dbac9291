// tern mine: makes a table of chains for --enable-chains, from a model and shards of its text.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"
#include "tern_train.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// The model's folder, or the folder that contains it.
static void default_output(text *path, const char *model) {
    struct stat st;
    const char *slash = strrchr(model, '/');
    if (stat(model, &st) == 0 && S_ISDIR(st.st_mode))
        text_puts(path, model), text_puts(path, "/");
    else if (slash)
        text_append(path, model, (size_t)(slash - model) + 1);
    text_puts(path, "chain-buckets.bin");
}

static void print_chains(const tern_chains *chains, const tern_model *model, int n_shown) {
    size_t n;
    const tern_chain *e = tern_chains_entries(chains, &n);
    for (size_t i = 0; i < n && (int)i < n_shown && e[i].n_tokens; i++) {
        text shown = {0};
        tern_error err;
        const size_t n_ids = (size_t)e[i].n_tokens;
        const tern_ids chain = {(int32_t *)e[i].tokens, n_ids, n_ids};
        text_puts(&shown, "");
        tern_detokenize(model, &chain, true, text_collect, &shown, &err);
        printf("%5zu  %.3f  ", i, (double)e[i].confidence);
        put_json(stdout, shown.ptr, shown.n);
        putchar('\n');
        free(shown.ptr);
    }
}

static int mine(tern_model *model, const tern_mine_desc *desc, const char *out, int n_shown) {
    tern_chains *chains;
    tern_mine_stats s;
    tern_error err = {0};
    tern_status status = tern_mine(&chains, model, desc, &s, &err);
    end_progress();
    bool is_first = !desc->comm || desc->comm->rank == 0; // the table is the same in every process
    if (status == TERN_OK && is_first) status = tern_chains_save(chains, out, &err);
    if (status == TERN_OK && is_first) {
        printf(
            "%s: %zu chain%s of %zu candidate%s in %llu tokens, judged by %llu of them; %.1f s\n",
            out, s.n_chains, many(s.n_chains), s.n_candidates, many(s.n_candidates),
            (unsigned long long)s.n_tokens, (unsigned long long)s.n_scored, s.seconds);
        print_chains(chains, model, n_shown);
    }
    tern_chains_close(chains);
    return exit_status(status, &err);
}

int cmd_mine(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    tern_mine_desc desc = {0};
    const char *out = NULL, **names = must_alloc(NULL, (size_t)argc, sizeof *names);
    int n_buckets = 0, max_length = 0, n_shown = 0, status, n;
    text beside = {0};
    const option options[] = {
        OPTIONS_GROUP("Chains"),
        {'o', "output", OPTION_TEXT, &out, "FILE", "(chain-buckets.bin next to the model)"},
        {0, "generate", OPTION_SIZE, &desc.generate_tokens, "N",
         "mine N tokens that the model itself writes, begun with some of the shards', if given"},
        {0, "buckets", OPTION_COUNT, &n_buckets, "N", "chains at most (256)", 1, 65535},
        {0, "chain-max-length", OPTION_COUNT, &max_length, "N", "tokens of a chain, 2 to 8 (8)", 2,
         8},
        {0, "min-probability", OPTION_NUMBER, &desc.min_probability, "P",
         "of each token after those in front of it (0.5)", 0, 1},
        {0, "score-tokens", OPTION_SIZE, &desc.score_tokens, "N",
         "tokens that the model judges by, spread over all (64K)", 1},
        {0, "memory", OPTION_SIZE, &desc.memory, "SIZE", "for counting (64M)", 1 << 20},
        {0, "show", OPTION_COUNT, &n_shown, "N", "print the first N chains"},
        MODEL_OPTIONS(model_options),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, names, argc, &n, &status)) {
        free(names);
        return status;
    }
    if (n == 0 && desc.generate_tokens == 0) {
        free(names);
        return bad_usage("mine: no shards (usage: tern %s %s)", self->name, self->usage);
    }
    desc.comm = cli_comm();
    desc.n_buckets = n_buckets;
    desc.max_length = max_length;
    desc.on_progress = show_progress;
    desc.shards = names;
    desc.n_shards = (size_t)n;
    cancel_on_signals("nothing was written");
    tern_model *model = open_model(self, &model_options, &status);
    if (model && !out) default_output(&beside, model_options.path);
    if (model) status = mine(model, &desc, out ? out : beside.ptr, n_shown);
    tern_model_close(model);
    free(beside.ptr);
    free(names);
    return status;
}
