// tern datagen: a model writes training data.
#include "apps/cli/console/cli.h"
#include "tern_tools.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct datagen_args {
    model_args model;
    sampling_args sampling;
    grammar_args grammar;
    tern_datagen_desc desc;
    const char *prompt, *template_file, *system, *seeds, *out, *rejected;
    int n_records, n_items;
    string_list mentions, required, forbidden;
    text prompt_text, seeds_text, grammar_text;
    tern_grammar_desc grammar_desc;
    tern_output *rejected_file;
    tern_error rejected_error;
    bool json;
} datagen_args;

// ---- What goes in ------------------------------------------------------------------------------

// The lines of a plain text, as strings of JSON.
static void put_lines(const text *plain, text *out) {
    for (size_t at = 0, end; at < plain->n; at = end + 1) {
        const char *feed = memchr(plain->ptr + at, '\n', plain->n - at);
        end = feed ? (size_t)(feed - plain->ptr) : plain->n;
        size_t n = end - at;
        while (n > 0 && strchr(" \t\r", plain->ptr[at + n - 1])) n--;
        if (n > 0) text_json(out, plain->ptr + at, n);
        text_puts(out, "\n");
    }
}

static bool read_seeds(datagen_args *args) {
    text plain = {0};
    if (!args->seeds) return true;
    if (ends_with(args->seeds, ".jsonl")) return text_read(&args->seeds_text, args->seeds);
    if (!text_read(&plain, args->seeds)) return false;
    put_lines(&plain, &args->seeds_text);
    free(plain.ptr);
    return true;
}

static bool read_inputs(datagen_args *args) {
    tern_datagen_desc *d = &args->desc;
    if (!text_given(&args->prompt_text, args->prompt, args->template_file) || !read_seeds(args))
        return false;
    if (grammar_given(&args->grammar)) {
        if (!describe_grammar(&args->grammar, &args->grammar_text, &args->grammar_desc))
            return false;
        d->grammar = &args->grammar_desc;
    }
    d->prompt = args->prompt_text.ptr;
    d->system = args->system;
    d->seeds = args->seeds ? args->seeds_text.ptr : NULL;
    d->n_seed_bytes = args->seeds_text.n;
    return true;
}

// ---- What comes out ----------------------------------------------------------------------------

static bool put_rejected(datagen_args *args, const tern_datagen_record *r) {
    tern_output *f = args->rejected_file;
    return !f || (tern_output_write(f, r->line, r->n_bytes, &args->rejected_error) == TERN_OK &&
                  tern_output_write(f, "\n", 1, &args->rejected_error) == TERN_OK);
}

static bool on_record(void *user, const tern_datagen_record *r) {
    datagen_args *args = user;
    if (r->reason != TERN_DATAGEN_ACCEPTED) return put_rejected(args, r);
    return args->out || (write_out(NULL, r->line, r->n_bytes) && write_out(NULL, "\n", 1));
}

// "; not kept: 3 cut, 1 similar", or nothing.
static void put_rest(text *out, const tern_datagen_stats *s) {
    const char *between = "; not kept: ";
    char part[64];
    text_puts(out, "");
    for (int i = 1; i < TERN_DATAGEN_REASONS; i++) {
        if (!s->n_candidates[i]) continue;
        snprintf(part, sizeof part, "%s%lld %s", between, (long long)s->n_candidates[i],
                 tern_datagen_reason_name((tern_datagen_reason)i));
        text_puts(out, part);
        between = ", ";
    }
}

static int report(const datagen_args *args, const tern_datagen_stats *s) {
    double rate = s->seconds > 0 ? (double)s->n_tokens / s->seconds : 0;
    text rest = {0};
    put_rest(&rest, s);
    int status = EXIT_OK;
    if (s->n_records < args->n_records)
        status = fail("%lld prompt%s gave %lld of %d record%s (more with --items, or with weaker "
                      "conditions)%s",
                      (long long)s->n_items, many((uint64_t)s->n_items), (long long)s->n_records,
                      args->n_records, many((uint64_t)args->n_records), rest.ptr);
    else
        fprintf(stderr, "%s: %lld record%s of %lld prompt%s, %lld token%s, %.1f tokens/s%s\n",
                args->out ? args->out : "datagen", (long long)s->n_accepted,
                many((uint64_t)s->n_accepted), (long long)s->n_items, many((uint64_t)s->n_items),
                (long long)s->n_tokens, many((uint64_t)s->n_tokens), rate, rest.ptr);
    free(rest.ptr);
    return status;
}

static int make(datagen_args *args, tern_model *model) {
    tern_datagen_stats stats;
    tern_error err = {0};
    tern_generate_params params = generate_params(&args->sampling);
    tern_datagen_desc *d = &args->desc;
    d->n_records = args->n_records;
    d->n_items_max = args->n_items;
    d->max_tokens = params.max_tokens;
    d->sampling = params.sampling;
    d->stops = params.stops;
    d->n_stops = params.n_stops;
    d->mentions = args->mentions.items, d->n_mentions = args->mentions.n;
    d->required = args->required.items, d->n_required = args->required.n;
    d->forbidden = args->forbidden.items, d->n_forbidden = args->forbidden.n;
    // To the library 0 means the default; here it is meant as 0.
    d->min_quality = d->min_quality > 0 ? d->min_quality : -1;
    d->max_repetition = d->max_repetition > 0 ? d->max_repetition : 1e-6f;
    d->max_similarity = d->max_similarity > 0 ? d->max_similarity : 1e-6f;
    d->path = args->out;
    d->on_record = on_record;
    d->on_progress = show_progress;
    d->user = args;
    tern_status status = tern_datagen(model, d, &stats, &err);
    end_progress();
    if (args->rejected_error.status != TERN_OK) return fail("%s", args->rejected_error.message);
    if (args->rejected_file && stats.n_items > 0 &&
        tern_output_finish(args->rejected_file, &err) != TERN_OK)
        return fail("%s", err.message);
    return status == TERN_OK ? report(args, &stats) : exit_status(status, &err);
}

// ---- Command -----------------------------------------------------------------------------------

static int open_and_make(const command *self, datagen_args *args) {
    int status;
    tern_error err = {0};
    if (!read_inputs(args)) return EXIT_FAILED;
    if (args->rejected && tern_output_open(&args->rejected_file, args->rejected, &err) != TERN_OK)
        return fail("%s", err.message);
    cancel_on_signals(NULL);
    tern_model *model = open_model(self, &args->model, &status);
    if (model) {
        if (!args->desc.raw) note_template(model);
        status = make(args, model);
    }
    tern_model_close(model);
    tern_output_close(args->rejected_file);
    return status;
}

int cmd_datagen(const command *self, int argc, char **argv) {
    datagen_args args = {.sampling = sampling_args_default(), .n_records = 100};
    tern_datagen_desc *d = &args.desc;
    d->min_quality = 0.45f, d->max_repetition = 0.25f, d->max_similarity = 0.7f;
    const option options[] = {
        OPTIONS_GROUP("Prompts"),
        {'p', "prompt", OPTION_TEXT, &args.prompt, "TEXT",
         "the prompt: a Jinja template over a seed's members", .position = 2},
        {'f', "template", OPTION_TEXT, &args.template_file, "FILE", "the same from a file"},
        {0, "system", OPTION_TEXT, &args.system, "TEXT", "a template of the system message"},
        {0, "seeds", OPTION_TEXT, &args.seeds, "FILE",
         "a seed a line: objects in a .jsonl, else lines of text, which are {{ text }}"},
        {0, "raw", OPTION_FLAG, &d->raw, NULL, "no chat: the text goes on from the prompt"},
        OPTIONS_GROUP("Records"),
        {0, "count", OPTION_COUNT, &args.n_records, "N", "records in all (100)", 1, 1000000000},
        {'o', "output", OPTION_TEXT, &args.out, "FILE",
         "where they go, after those that are there (standard output)"},
        {0, "rejected", OPTION_TEXT, &args.rejected, "FILE", "where the others go, with why"},
        {0, "items", OPTION_COUNT, &args.n_items, "N",
         "prompts to try at most, 0: four for each record (0)", 0, 1000000000},
        {0, "candidates", OPTION_COUNT, &d->n_candidates, "N",
         "answers to each prompt; the best one is kept (1)", 1, 256},
        {0, "parallel", OPTION_COUNT, &d->n_parallel, "N", "answers at once (8)", 1, 1024},
        OPTIONS_GROUP("Which answers are kept"),
        {0, "min-quality", OPTION_NUMBER, &d->min_quality, "Q", "a score of at least Q (0.45)", 0,
         1},
        {0, "max-repetition", OPTION_NUMBER, &d->max_repetition, "R",
         "share of runs of four tokens that were there before (0.25)", 0, 1},
        {0, "max-similarity", OPTION_NUMBER, &d->max_similarity, "S",
         "likeness to an earlier record (0.7)", 0, 1},
        {0, "min-tokens", OPTION_COUNT, &d->min_tokens, "N", "tokens at least (0)", 0, 1 << 24},
        {0, "keep-cut", OPTION_FLAG, &d->keep_cut, NULL, "answers that did not end, too"},
        {0, "mention", OPTION_TEXTS, &args.mentions, "TEXT",
         "a template of what must be in the answer; may be repeated"},
        {0, "require", OPTION_TEXTS, &args.required, "R", "an expression that must match"},
        {0, "forbid", OPTION_TEXTS, &args.forbidden, "R", "one that must not"},
        GRAMMAR_OPTIONS(args.grammar),
        MODEL_OPTIONS(args.model),
        TEMPLATE_OPTION(args.model),
        {'c', "context", OPTION_COUNT, &d->n_context, "N",
         "tokens of prompt and answer (2048, at most the model's)", 0, 1 << 24},
        SAMPLING_OPTIONS(args.sampling),
        OPTIONS_END,
    };
    int status, n;
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!args.prompt == !args.template_file)
        return bad_usage("datagen: give a prompt with one of -p and -f");
    if (d->raw && args.system) return bad_usage("datagen: --raw and --system exclude each other");
    const char *wrong = grammar_usage(&args.grammar);
    if (wrong) return bad_usage("datagen: %s", wrong);
    status = open_and_make(self, &args);
    free(args.prompt_text.ptr);
    free(args.seeds_text.ptr);
    free(args.grammar_text.ptr);
    free(args.mentions.items);
    free(args.required.items);
    free(args.forbidden.items);
    free(args.sampling.stops.items);
    free(args.grammar.choices.items);
    return status;
}
