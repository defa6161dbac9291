// tern data: prepares text for training. Three jobs, each a command with its own options and help.
#include "apps/cli/console/cli.h"
#include "tern_train.h"

#include <stdlib.h>
#include <string.h>

#define SOURCE_OPTIONS(s)                                                                          \
    OPTIONS_GROUP("Text"),                                                                         \
        {0,           "separator",                                                                 \
         OPTION_TEXT, &(s).separator,                                                              \
         "TEXT",      "between documents of a text file, \"\": none (<|endoftext|>)"},             \
    {                                                                                              \
        0, "field", OPTION_TEXT, &(s).field, "NAME", "of the text in JSON (text)"                  \
    }

// The words that are not options; they live until the program ends.
static void take_paths(tern_data_source *source, int argc) {
    source->paths = must_alloc(NULL, (size_t)argc, sizeof *source->paths);
}

static int finish(tern_status status, const tern_error *err) {
    if (status != TERN_OK) end_progress();
    return exit_status(status, err);
}

static int make_tokenizer(const command *self, int argc, char **argv) {
    tern_data_tokenizer_desc desc = {0};
    tern_data_tokenizer_stats s;
    tern_error err = {0};
    const char *out = NULL;
    string_list specials = {0};
    int n_vocab = 0, status, n;
    const option options[] = {
        {'o', "output", OPTION_TEXT, &out, "NAME",
         "a folder; with .json at its end one tokenizer.json"},
        {0, "vocab", OPTION_COUNT, &n_vocab, "N", "tokens in all (4096)", 257, 1 << 24},
        {0, "special", OPTION_TEXTS, &specials, "TEXT", "one more special token; may be repeated"},
        {0, "split", OPTION_TEXT, &desc.split, "NAME",
         "how words are cut: llama-bpe, qwen2, gpt-2 ... (llama-bpe)"},
        {0, "no-bos", OPTION_FLAG, &desc.no_bos, NULL, "texts do not begin with <|endoftext|>"},
        {0, "memory", OPTION_SIZE, &desc.memory, "SIZE", "for counting words (512M)", 1},
        SOURCE_OPTIONS(desc.source),
        OPTIONS_END,
    };
    take_paths(&desc.source, argc);
    if (!parse_options(self, options, argc, argv, (const char **)desc.source.paths, argc, &n,
                       &status))
        return status;
    if (n == 0 || !out)
        return bad_usage("%s: texts and -o are needed (usage: tern %s %s)", self->name, self->name,
                         self->usage);
    desc.source.n_paths = (size_t)n;
    desc.n_vocab = n_vocab;
    desc.specials = specials.items;
    desc.n_specials = specials.n;
    desc.on_progress = show_progress;
    cancel_on_signals("nothing was written");
    tern_status done = tern_data_tokenizer(out, &desc, &s, &err);
    if (done == TERN_OK) {
        printf("%s: %d tokens from %llu document%s, %llu byte%s, %llu word%s, %llu different\n",
               out, s.n_vocab, (unsigned long long)s.n_documents, many(s.n_documents),
               (unsigned long long)s.n_bytes, many(s.n_bytes), (unsigned long long)s.n_words,
               many(s.n_words), (unsigned long long)s.n_different_words);
        printf("  counted in %.1f s, learnt in %.1f s", s.count_seconds, s.learn_seconds);
        if (s.n_forgotten_words)
            printf(", %llu rare word%s not counted for lack of memory",
                   (unsigned long long)s.n_forgotten_words, many(s.n_forgotten_words));
        printf("\n");
    }
    return finish(done, &err);
}

static void print_split(const char *name, const tern_data_split *s, uint64_t n_all) {
    printf("  %-6s %llu document%s, %llu token%s (%.1f%%)", name,
           (unsigned long long)s->n_documents, many(s->n_documents),
           (unsigned long long)s->n_tokens, many(s->n_tokens),
           n_all ? 100 * (double)s->n_tokens / (double)n_all : 0);
    if (s->n_tokens) printf(", %.3f bytes a token", (double)s->n_bytes / (double)s->n_tokens);
    if (s->n_unscored) printf(", %llu not scored", (unsigned long long)s->n_unscored);
    printf(", %d shard%s\n", s->n_shards, many((uint64_t)s->n_shards));
}

static void print_new_tokens(const tern_data_build_stats *s) {
    int n = s->n_new_tokens, first = s->first_new_token;
    if (n) printf("  %d new token%s, from %d to %d\n", n, many((uint64_t)n), first, first + n - 1);
}

// Only if there are others than plain text.
static void print_shapes(const tern_data_build_stats *s) {
    const char *before = "  read   ";
    if (s->n_of_shape[TERN_SHAPE_TEXT] == s->n_read) return;
    for (int i = 0; i < TERN_SHAPE_COUNT; i++) {
        if (s->n_of_shape[i] == 0) continue;
        printf("%s%llu of %s", before, (unsigned long long)s->n_of_shape[i],
               tern_data_shape_name((tern_data_shape)i));
        before = ", ";
    }
    if (s->n_left_out)
        printf("; %llu message%s not to be learnt", (unsigned long long)s->n_left_out,
               many(s->n_left_out));
    putchar('\n');
}

static void print_shares(const tern_data_build_desc *d, const tern_data_build_stats *s) {
    for (size_t i = 0; i < d->source.n_paths; i++) {
        const tern_data_share *share = &d->shares[i];
        double part = s->train.n_tokens ? (double)share->n_tokens / (double)s->train.n_tokens : 0;
        printf("  %5.1f%% of train: ", 100 * part);
        put_plain(stdout, d->source.paths[i]);
        printf(", %llu document%s, %llu token%s", (unsigned long long)share->n_documents,
               many(share->n_documents), (unsigned long long)share->n_tokens,
               many(share->n_tokens));
        if (d->source.weights) printf(", weight %g", d->source.weights[i]);
        putchar('\n');
    }
}

// "2,0.5": as many as there are paths.
static bool take_weights(tern_data_source *source, const char *list) {
    double *weights = must_alloc(NULL, source->n_paths, sizeof *weights);
    source->weights = weights;
    for (size_t i = 0; i < source->n_paths; i++) {
        char *end;
        weights[i] = strtod(list, &end);
        if (end == list || *end != (i + 1 < source->n_paths ? ',' : 0)) return false;
        list = end + 1;
    }
    return true;
}

static void print_notice_of_build(void *user, const char *sentence) {
    (void)user;
    end_progress();
    fputs("tern: note: ", stderr), put_plain(stderr, sentence), fputc('\n', stderr);
}

static int build(const command *self, int argc, char **argv) {
    tern_data_build_desc desc = {0};
    tern_data_build_stats s;
    tern_error err = {0};
    const char *out = NULL;
    string_list held_out = {0};
    const char *weights = NULL;
    float valid = -1, threshold = 0.8f;
    int dedup = 1, n_threads = 0, status, n;
    const option options[] = {
        {0, "tokenizer", OPTION_TEXT, &desc.tokenizer, "FILE",
         "a tokenizer.json, a folder with one, or a .gguf"},
        {0, "add-tokens", OPTION_TEXT, &desc.add_tokens, "FILE",
         "new tokens for its vocabulary, one a line, or a JSON list"},
        {0, "add-special-tokens", OPTION_TEXT, &desc.add_special_tokens, "FILE",
         "the same, for chats alone"},
        {'o', "output", OPTION_TEXT, &out, "FOLDER", "for shards and manifest.json"},
        {0, "valid", OPTION_NUMBER, &valid, "P", "part of the documents to hold out (0.01)", 0, 1},
        {0, "held-out", OPTION_TEXTS, &held_out, "TEXT",
         "hold out all of this file or folder (then --valid is 0); may be repeated"},
        {0, "weights", OPTION_TEXT, &weights, "W,W,...",
         "how often each TEXT is taken, in their order: 0.5 a half of it, 2 twice (1)"},
        {0, "seed", OPTION_SEED, &desc.seed, "S", "of the choice (0)"},
        {0, "dedup", OPTION_CHOICE, &dedup, "none|exact|exact,near",
         "duplicates that are dropped (exact)"},
        {0, "threshold", OPTION_NUMBER, &threshold, "J", "likeness of near duplicates (0.8)", 0.01,
         1},
        {0, "memory", OPTION_SIZE, &desc.memory, "SIZE", "for remembering documents (1G)", 1},
        {0, "shard-tokens", OPTION_SIZE, &desc.shard_tokens, "N", "tokens of a shard (64M)", 1},
        {0, "end", OPTION_TEXT, &desc.end, "TOKEN", "after each document (<|endoftext|>)"},
        {0, "licence", OPTION_TEXT, &desc.licence, "TEXT", "a line for the manifest"},
        {'t', "threads", OPTION_COUNT, &n_threads, "N", "threads, 0: one for each core (0)", 0,
         1024},
        SOURCE_OPTIONS(desc.source),
        OPTIONS_END,
    };
    take_paths(&desc.source, argc);
    if (!parse_options(self, options, argc, argv, (const char **)desc.source.paths, argc, &n,
                       &status))
        return status;
    if (n == 0 || !out || !desc.tokenizer)
        return bad_usage("%s: texts, --tokenizer and -o are needed (usage: tern %s %s)", self->name,
                         self->name, self->usage);
    desc.source.n_paths = (size_t)n;
    if (weights && !take_weights(&desc.source, weights))
        return bad_usage("%s: --weights '%s': expected a number above 0 for each of the %d texts",
                         self->name, weights, n);
    desc.shares = must_alloc(NULL, (size_t)n, sizeof *desc.shares);
    desc.source.held_out = held_out.items;
    desc.source.n_held_out = (size_t)held_out.n;
    desc.valid = valid >= 0 ? valid : held_out.n ? 0 : 0.01;
    desc.threshold = threshold;
    desc.keep_exact = dedup == 0;
    desc.drop_near = dedup == 2;
    desc.n_threads = n_threads;
    desc.on_progress = show_progress;
    cancel_on_signals("nothing was written");
    desc.on_notice = print_notice_of_build;
    tern_status done = tern_data_build(out, &desc, &s, &err);
    free(held_out.items);
    if (done == TERN_OK) {
        printf("%s: %llu document%s read, %llu the same as others, %llu nearly so; %.1f s\n", out,
               (unsigned long long)s.n_read, many(s.n_read), (unsigned long long)s.n_same,
               (unsigned long long)s.n_near, s.seconds);
        print_new_tokens(&s);
        print_shapes(&s);
        uint64_t n_all = s.train.n_tokens + s.valid.n_tokens;
        print_split("train", &s.train, n_all);
        print_split("valid", &s.valid, n_all);
        if (n > 1 || weights) print_shares(&desc, &s);
    }
    return finish(done, &err);
}

static int inspect(const command *self, int argc, char **argv) {
    tern_data_inspect_desc desc = {0};
    tern_error err = {0};
    const char *path;
    bool json = false;
    int status, n, n_sample = 0;
    const option options[] = {
        {0, "json", OPTION_FLAG, &json, NULL, "one JSON object"},
        {0, "tokenizer", OPTION_TEXT, &desc.tokenizer, "FILE",
         "for the sample (tokenizer.json next to the shard)"},
        {'n', "sample", OPTION_COUNT, &n_sample, "N", "tokens that are shown (64)", 1},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, &path, 1, &n, &status)) return status;
    if (n == 0)
        return bad_usage("%s: no shard (usage: tern %s %s)", self->name, self->name, self->usage);
    desc.format = json ? TERN_FORMAT_JSON : TERN_FORMAT_TEXT;
    desc.n_sample = n_sample;
    return exit_status(tern_data_inspect(path, &desc, write_out, NULL, &err), &err);
}

const command data_jobs[] = {
    {"data tokenizer", "TEXT... -o NAME [options]", "learn a byte-level BPE vocabulary",
     make_tokenizer, NULL},
    {"data build", "TEXT... --tokenizer FILE -o FOLDER [options]",
     "tokenize text to shards; drop duplicates, hold a part out", build, NULL},
    {"data inspect", "SHARD [options]", "check a shard and show what is in it", inspect, NULL},
    {0},
};
