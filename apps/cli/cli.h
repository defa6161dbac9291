// The command line: a table of commands (main.c), a table of options for each (options.c), and what
// the commands share. It uses the public interface and nothing else of the library.
//
// Exit statuses: 0 success, 1 failure, 2 wrong usage, 3 an agent's budget is spent. Every error is
// one line on standard error that begins with "tern: ".
#ifndef TERN_CLI_H
#define TERN_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "tern.h"

// Rows of the tables below omit trailing fields that they do not need.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_BUDGET = 3 };

typedef struct command {
    const char *name, *usage, *summary; // usage: what follows the name in "tern NAME ..."
    int (*run)(const struct command *self, int argc, char **argv); // argv[0]: the name
    const struct command *jobs; // "NAME JOB" each, ends with a NULL name; NULL: none
} command;

extern const command cli_commands[]; // ends with a NULL name
extern const command data_jobs[], train_jobs[], eval_jobs[], memory_jobs[];

int cmd_run(const command *self, int argc, char **argv);
int cmd_chat(const command *self, int argc, char **argv);
int cmd_inspect(const command *self, int argc, char **argv);
int cmd_graph(const command *self, int argc, char **argv);
int cmd_ask(const command *self, int argc, char **argv);
int cmd_agent(const command *self, int argc, char **argv);
int cmd_transcribe(const command *self, int argc, char **argv);
int cmd_speak(const command *self, int argc, char **argv);
int cmd_classify(const command *self, int argc, char **argv);
int cmd_embed(const command *self, int argc, char **argv);
int cmd_compute(const command *self, int argc, char **argv);
int cmd_tokenize(const command *self, int argc, char **argv);
int cmd_detokenize(const command *self, int argc, char **argv);
int cmd_logits(const command *self, int argc, char **argv);
int cmd_convert(const command *self, int argc, char **argv);
int cmd_datagen(const command *self, int argc, char **argv);
int cmd_imatrix(const command *self, int argc, char **argv);
int cmd_mine(const command *self, int argc, char **argv);
int cmd_diagnose(const command *self, int argc, char **argv);
int cmd_bench(const command *self, int argc, char **argv);
int cmd_serve(const command *self, int argc, char **argv);
int cmd_mcp(const command *self, int argc, char **argv);
int cmd_pull(const command *self, int argc, char **argv);
int cmd_list(const command *self, int argc, char **argv);
int cmd_show(const command *self, int argc, char **argv);
int cmd_ps(const command *self, int argc, char **argv);
int cmd_rm(const command *self, int argc, char **argv);
int cmd_train(const command *self, int argc, char **argv);

// One line to standard error; returns the status, so that `return fail(...)` reads naturally.
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));       // EXIT_FAILED
int bad_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));  // EXIT_USAGE

// What a command returns for a status of the library, after printing the message, or that the
// command was stopped and what that leaves. A failure of standard output is reported at the very
// end.
int exit_status(tern_status status, const tern_error *err);

// ---- Options ------------------------------------------------------------------------------------

typedef enum option_kind {
    OPTION_FLAG,   // bool *
    OPTION_COUNT,  // int *, with K, M or G
    OPTION_COUNTS, // count_list *, with commas between
    OPTION_SEED,   // uint64_t *
    OPTION_SIZE,   // uint64_t *, bytes or tokens with K, M or G
    OPTION_NUMBER, // float *
    OPTION_TEXT,   // const char **
    OPTION_MAYBE,  // const char **, "" when the next word is another option or there is none
    OPTION_TEXTS,  // string_list *, may be repeated
    OPTION_CHOICE, // int *: the position in `argument`, "one|two|three"
    OPTION_NAME,   // const char **: one of the words in `argument`
    OPTION_HUB,    // sets the option "model" of the same table to a model of the hub
    OPTION_GROUP,  // a heading in the help
} option_kind;

typedef struct option {
    char short_name; // 0: none
    const char *name;
    option_kind kind;
    void *target;
    const char *argument; // its name in the help, or the choices
    const char *help;
    double least, most; // of numbers; most 0: no upper limit
    int position; // not 0: words that are no options go to these options, lowest number first,
                  // unless they already have a value by name and take no more
    const char *letters; // several behind one dash, as in -hf; NULL: none
} option;
#define OPTIONS_END {0}
#define OPTIONS_GROUP(title) {.kind = OPTION_GROUP, .help = title}

#define COUNT_LIST_MAX 16
typedef struct count_list {
    int at[COUNT_LIST_MAX];
    size_t n;
} count_list;

// Reads argv; words that are neither options nor their values go to positional (at most n_max).
// Returns true when the command goes on; else *status is what it returns (0 after --help).
bool parse_options(const command *self, const option *options, int argc, char **argv,
                   const char **positional, int n_max, int *n_positional, int *status);
// Sets one value outside of a command line, as chat's /set does. False if it is invalid; `complain`
// then says why.
bool set_option(const option *o, const char *value, char *complaint, size_t size);

// The name that is nearest to a word, of those that are tried; guess.c.
typedef struct guess {
    const char *word;
    size_t length; // of the word
    const char *best; // NULL: none is near
    size_t least;
} guess;
void guess_try(guess *g, const char *name);
// "did you mean --seed? ", or ""; valid until the next call. front: "--".
const char *guess_text(const guess *g, const char *front);

// ---- What several commands take -----------------------------------------------------------------

typedef struct text { // a growing byte string, terminated; free ptr
    char *ptr;
    size_t n, capacity;
} text;

typedef struct string_list {
    const char **items;
    size_t n;
} string_list;

typedef struct model_args {
    string_list loras;
    const char *path, *folder, *device, *template_file, *cpu_features, *mmproj;
    int n_threads, n_batch, ternary, head, thinking, pooling;
    bool verbose, vocab_only, precise;
    bool finds_gpu; // the device is "auto" unless something else is said
} model_args;
// The device that is asked for: by the option, else TERN_DEVICE, else as the command has it; NULL:
// the library's default.
const char *device_of(const model_args *args);
#define MODEL_OPTIONS(m)                                                                           \
    MODEL_OPTIONS_BEGIN(m),                                                                        \
    {'t', "threads", OPTION_COUNT, &(m).n_threads, "N",                                            \
     "threads, 0: one for each core (0)", 0, 1024},                                                \
    MODEL_OPTIONS_END(m)
#define MODEL_OPTIONS_BEGIN(m) /* without the threads, of which tern bench takes several */        \
    OPTIONS_GROUP("Model"),                                                                        \
        {'m',          "model", OPTION_TEXT,                                                       \
         &(m).path,    "MODEL", "a .gguf file, a Hugging Face folder, or a name (`tern list`)",    \
         .position = 1},                                                                           \
        HUB_OPTIONS, MODELS_DIR_OPTION((m).folder), DEVICE_OPTION((m).device)
#define MODELS_DIR_OPTION(target)                                                                  \
    {0, "models-dir", OPTION_TEXT, &(target), "DIR", "where models with names are (TERN_MODELS)"}
// Beside an option "model".
#define HUB_OPTIONS                                                                                \
    {0,                                                                                            \
     "hf-repo",                                                                                    \
     OPTION_HUB,                                                                                   \
     NULL,                                                                                         \
     "OWNER/NAME[:FILE]",                                                                          \
     "a model of Hugging Face, by file or type; it is downloaded if it is not here",               \
     .letters = "hf"},                                                                             \
    {                                                                                              \
        'y', "yes", OPTION_FLAG, &takes_downloads, NULL,                                           \
            "download a model that is not here without asking"                                     \
    }
extern bool takes_downloads; // get_model.c
#define DEVICE_OPTION(target)                                                                      \
    {0, "device", OPTION_NAME, &(target), "cpu|webgpu|auto",                                       \
     "where it runs (TERN_DEVICE; run, chat, serve, mcp, ask, agent: auto; others: cpu)"}
#define FEATURES_OPTION(target)                                                                    \
    {0, "cpu-features", OPTION_NAME, &(target), "scalar|avx2|avx512|neon|dotprod",                 \
     "use at most these instructions"}
#define MODEL_OPTIONS_END(m)                                                                       \
    {'b', "batch", OPTION_COUNT, &(m).n_batch, "N", "prompt tokens computed at once (512)", 1,     \
     65536},                                                                                       \
    {0, "ternary", OPTION_CHOICE, &(m).ternary, "auto|2bit|1.6bit",                                \
     "how ternary weights lie in memory"},                                                         \
    {0, "precise", OPTION_FLAG, &(m).precise, NULL,                                                \
     "float activations where weights have a scale for each group"},                               \
    {0, "head", OPTION_CHOICE, &(m).head, "auto|file|exact|q8_0|q6_k|q4_0",                        \
     "the output head; the last three change the logits"},                                         \
    LORA_OPTION((m).loras),                                                                        \
    {0, "mmproj", OPTION_TEXT, &(m).mmproj, "FILE|none",                                           \
     "the part of a GGUF that sees (mmproj*.gguf beside it)"},                                     \
    FEATURES_OPTION((m).cpu_features),                                                             \
    {0, "verbose", OPTION_FLAG, &(m).verbose, NULL, "say more on standard error"}
#define LORA_OPTION(list)                                                                          \
    {0, "lora", OPTION_TEXTS, &(list), "FILE[=SCALE]",                                             \
     "a LoRA adapter: GGUF, or a folder of PEFT, 0: none of it; may be repeated"}
#define TEMPLATE_OPTION(m)                                                                         \
    {0, "chat-template", OPTION_TEXT, &(m).template_file, "FILE",                                  \
     "a Jinja template instead of the model's own"},                                               \
    {0, "thinking", OPTION_CHOICE, &(m).thinking, "auto|on|off",                                   \
     "whether models that can think before they answer do so"}

typedef struct session_args {
    int n_context, kv_type, n_keep;
    bool shift, profile;
    tern_speculation speculation; // none, unless open_speculation filled it
} session_args;
#define PROFILE_OPTION(s)                                                                          \
    {0, "profile", OPTION_FLAG, &(s).profile, NULL, "time each kernel, and print a table"}
#define SESSION_OPTIONS(s)                                                                         \
    OPTIONS_GROUP("Context"),                                                                      \
    {'c', "context", OPTION_COUNT, &(s).n_context, "N",                                            \
     "tokens of context, 0: the model's, at most 8192 (0)", 0, 1 << 24},                           \
    {0, "kv-type", OPTION_CHOICE, &(s).kv_type, "auto|f32|f16|q8_0", "keys and values"},           \
    {0, "shift-context", OPTION_FLAG, &(s).shift, NULL,                                            \
     "when the context is full, drop its oldest half and go on"},                                  \
    {0, "keep", OPTION_COUNT, &(s).n_keep, "N", "first tokens that are never dropped (4)", 0,     \
     1 << 24}

typedef struct sampling_args {
    tern_sampling sampling;
    int n_max, top_k, window;
    string_list stops;
    bool ignore_end;
    int min_tokens;
    count_list stop_ids, allowed_ids;
    string_list bad_words, breakers;
    const char *samplers;
} sampling_args;
sampling_args sampling_args_default(void);
// Those that chat's /set knows, too.
#define SAMPLING_VALUES(s)                                                                         \
    {'n', "n-predict", OPTION_COUNT, &(s).n_max, "N",                                              \
     "tokens at most, 0: until the model ends (0)", 0, 1 << 24},                                   \
    SAMPLER_VALUES(s)
// How a token is chosen.
#define SAMPLER_VALUES(s)                                                                          \
    {0, "temp", OPTION_NUMBER, &(s).sampling.temperature, "T", "temperature, 0: greedy (0.8)", 0,  \
     100},                                                                                         \
    {0, "top-k", OPTION_COUNT, &(s).top_k, "K", "the K likeliest tokens, 0: all (40)", 0,          \
     1 << 24},                                                                                     \
    {0, "top-p", OPTION_NUMBER, &(s).sampling.top_p, "P",                                          \
     "the likeliest that reach P, 1: all, 0: one (0.95)", 0, 1},                                   \
    {0, "min-p", OPTION_NUMBER, &(s).sampling.min_p, "P", "at least P of the likeliest (0.05)", 0, \
     1},                                                                                           \
    {0, "repeat-penalty", OPTION_NUMBER, &(s).sampling.repeat_penalty, "R", "1: none (1)", 0, 10}, \
    {0, "frequency-penalty", OPTION_NUMBER, &(s).sampling.frequency_penalty, "F",                  \
     "for each time that a token was there (0)", 0, 10},                                           \
    {0, "presence-penalty", OPTION_NUMBER, &(s).sampling.presence_penalty, "F",                    \
     "for tokens that were there (0)", 0, 10},                                                     \
    {0, "penalty-window", OPTION_COUNT, &(s).window, "N", "last tokens that they see (64)", 1,     \
     1 << 24},                                                                                     \
    {0, "seed", OPTION_SEED, &(s).sampling.seed, "S", "0: another one each time (0)"}
// How else; chat's /set knows these, too.
#define FURTHER_SAMPLERS(s)                                                                        \
    {0, "top-n-sigma", OPTION_NUMBER, &(s).sampling.top_n_sigma, "N",                              \
     "logits at most N standard deviations below the greatest, 0: all (0)", 0, 1000},              \
    {0, "typical-p", OPTION_NUMBER, &(s).sampling.typical_p, "P",                                  \
     "the most typical that exceed P, 0 or 1: all (0)", 0, 1},                                     \
    {0, "xtc-probability", OPTION_NUMBER, &(s).sampling.xtc_probability, "P",                      \
     "now and then none but the least of the likely ones (0)", 0, 1},                              \
    {0, "xtc-threshold", OPTION_NUMBER, &(s).sampling.xtc_threshold, "P",                          \
     "which are those of at least P (0.1)", 0, 1},                                                 \
    {0, "dynatemp-range", OPTION_NUMBER, &(s).sampling.dynatemp_range, "R",                        \
     "temperature goes up and down by R with the entropy (0)", 0, 100},                            \
    {0, "dynatemp-exponent", OPTION_NUMBER, &(s).sampling.dynatemp_exponent, "E", "(1)", 0, 100},  \
    {0, "dry-multiplier", OPTION_NUMBER, &(s).sampling.dry_multiplier, "M",                        \
     "penalty of what continues a repetition (0)", 0, 1000},                                       \
    {0, "dry-base", OPTION_NUMBER, &(s).sampling.dry_base, "B",                                    \
     "times B for each token of it more (1.75)", 1, 1000},                                         \
    {0, "dry-allowed-length", OPTION_COUNT, &(s).sampling.dry_allowed_length, "N",                 \
     "than so many (2)", 0, 1 << 24},                                                              \
    {0, "dry-penalty-last-n", OPTION_COUNT, &(s).sampling.dry_penalty_last_n, "N",                 \
     "among the last N tokens (all)", 0, 1 << 24},                                                 \
    {0, "mirostat", OPTION_COUNT, &(s).sampling.mirostat, "V",                                     \
     "1 or 2: in place of all but temperature (0)", 0, 2},                                         \
    {0, "mirostat-tau", OPTION_NUMBER, &(s).sampling.mirostat_tau, "T",                            \
     "the surprise it aims at, in bits (5)", 0, 1000},                                             \
    {0, "mirostat-eta", OPTION_NUMBER, &(s).sampling.mirostat_eta, "E", "how fast (0.1)", 0, 1000}
#define SAMPLING_OPTIONS(s)                                                                        \
    OPTIONS_GROUP("Generation (defaults: the model's own, else those in brackets)"),               \
    SAMPLING_VALUES(s),                                                                            \
    {0, "stop", OPTION_TEXTS, &(s).stops, "TEXT", "ends the answer; may be repeated"},             \
    {0, "ignore-eos", OPTION_FLAG, &(s).ignore_end, NULL, "go on after end tokens"},               \
    {0, "min-tokens", OPTION_COUNT, &(s).min_tokens, "N", "no end before N tokens (0)", 0,         \
     1 << 24},                                                                                     \
    {0, "stop-token-ids", OPTION_COUNTS, &(s).stop_ids, "ID,...", "tokens that end the answer",    \
     0, INT32_MAX},                                                                                \
    {0, "allowed-token-ids", OPTION_COUNTS, &(s).allowed_ids, "ID,...", "no others are chosen",    \
     0, INT32_MAX},                                                                                \
    {0, "bad-words", OPTION_TEXTS, &(s).bad_words, "TEXT", "is not written; may be repeated"},     \
    OPTIONS_GROUP("Further samplers (0 or left out: off; docs/cli.md)"),                           \
    FURTHER_SAMPLERS(s),                                                                           \
    {0, "dry-sequence-breakers", OPTION_TEXTS, &(s).breakers, "TEXT",                              \
     "no repetition goes beyond it; may be repeated (\\n : \" *)"},                                \
    {0, "samplers", OPTION_TEXT, &(s).samplers, "LETTERS",                                         \
     "which act, in their order; -: none (" TERN_SAMPLERS ")"}

typedef struct grammar_args {
    const char *schema, *rules, *regex;
    string_list choices;
    bool compact;
} grammar_args;
#define GRAMMAR_OPTIONS(g)                                                                         \
    OPTIONS_GROUP("What the answer may be (docs/grammar.md)"),                                     \
    {0, "schema", OPTION_TEXT, &(g).schema, "FILE",                                                \
     "JSON that satisfies the JSON Schema in FILE, or that is given here"},                        \
    {0, "compact", OPTION_FLAG, &(g).compact, NULL, "with --schema: without blanks"},              \
    {0, "grammar", OPTION_TEXT, &(g).rules, "FILE", "rules: GBNF, or Lark's in FILE.lark"},        \
    {0, "regex", OPTION_TEXT, &(g).regex, "R", "a regular expression that matches all of it"},     \
    {0, "choice", OPTION_TEXTS, &(g).choices, "TEXT", "one of these; may be repeated"}
// What is wrong with them together; NULL: nothing.
const char *grammar_usage(const grammar_args *args);
bool grammar_given(const grammar_args *args);
// What was asked for, which points into args and content. false: said why.
bool describe_grammar(const grammar_args *args, text *content, tern_grammar_desc *out);
// NULL in *out: nothing was asked for. false: said why.
bool open_grammar(const grammar_args *args, tern_model *model, tern_grammar **out);

typedef struct speculation_args {
    const char *chains, *draft_model; // chains: "": next to the model
    int max_length;
    float threshold, token_cost;
    bool lookup, online, visualize;
} speculation_args;
#define SPECULATION_OPTIONS(s)                                                                     \
    OPTIONS_GROUP("Speculation (never changes the text)"),                                         \
    {0, "enable-chains", OPTION_MAYBE, &(s).chains, "[PATH]",                                      \
     "draft from chains (default: chain-buckets.bin next to the model)"},                          \
    {0, "lookup", OPTION_FLAG, &(s).lookup, NULL, "draft from the text itself"},                   \
    {0, "online-chains", OPTION_FLAG, &(s).online, NULL, "draft from what was said so far"},       \
    {0, "draft-model", OPTION_TEXT, &(s).draft_model, "MODEL", "draft with a smaller model"},      \
    {0, "chain-max-length", OPTION_COUNT, &(s).max_length, "N", "tokens drafted at most (8)", 1,   \
     TERN_DRAFT_MAX},                                                                              \
    {0, "chain-threshold", OPTION_NUMBER, &(s).threshold, "P",                                     \
     "greedy: keep drafted tokens only above this probability, too (0)", 0, 1},                    \
    {0, "token-cost", OPTION_NUMBER, &(s).token_cost, "C",                                         \
     "a further token of a run costs C runs of one (measured)", 0, 1000},                          \
    {0, "visualize", OPTION_FLAG, &(s).visualize, NULL, "draw how drafts fared"}

// Opens the requested table and draft model. If a table that was not named is missing, that is
// reported but no error. close_speculation closes what was opened.
bool open_speculation(const speculation_args *args, const model_args *model,
                      tern_speculation *out);
void close_speculation(tern_speculation *s);
// One line on standard error, and with `visualize` histograms; nothing if nothing was drafted.
void print_drafts(const tern_draft_stats *s, bool visualize);
void put_drafts(FILE *f, const tern_draft_stats *s); // a JSON object

// The adapters that "FILE=SCALE" name; free them with free_loras.
tern_lora *read_loras(const string_list *list);
void free_loras(tern_lora *loras, size_t n);
// The folder of models: as given, else TERN_MODELS, else the user's.
const char *models_folder(const char *given);
// What tern_model_open takes for a path or a model's name, folder as given on the command line.
// One that a hub has and is not here is downloaded if the person says yes, or has said so. Prints
// why it is none, and returns NULL. It lives as long as the program.
const char *resolve_model(const char *folder, const char *name);
struct hub_pull_desc; // apps/hub/hub.h
#define PULL_LEFT "what came stays, and the next pull goes on from there"
// A pull with its progress. *name: what the model is called, NULL: it failed, and the reason is
// printed. Returns the exit status.
int pull_model(struct hub_pull_desc *desc, char **name, size_t *n_new);
const char *size_text(uint64_t bytes, char out[24]); // "1.2 GB"
// How models are opened, as the arguments say; show_progress shows it. Prints what is wrong and
// returns false. What it points to lives until free_model_desc.
bool read_model_desc(const model_args *args, tern_model_desc *out);
void free_model_desc(tern_model_desc *desc);
int no_model(const command *self); // for who needs one: EXIT_USAGE
// Checks that -m is given, makes a path of it, and opens; both print what is wrong and return NULL.
tern_model *open_model(const command *self, model_args *args, int *status);
// Says on stderr if the chat template had to be guessed: for commands that use it.
void note_template(const tern_model *model);
tern_session *open_session(tern_model *model, const session_args *args);
// params points into args.
tern_generate_params generate_params(sampling_args *args);
const char *stop_reason_name(tern_stop_reason reason);
// Reports, in one line on standard error, that the session lost its device since the last call and
// goes on with another.
void print_notice(tern_session *session);
// Speed, seed and why it ended, as one line on standard error.
void print_stats(const tern_generate_stats *stats);
// A line on the GPU memory in use; none on the CPU. cache: its type, or "".
void print_device_memory(FILE *f, const char *cache, const tern_device_memory *m);
void put_device_memory(FILE *f, const tern_device_memory *m); // as a JSON object

// Where the time went: a table, or a JSON array.
void print_profile(FILE *f, const char *title, const tern_profile_row *rows, size_t n);
void put_profile(FILE *f, const tern_profile_row *rows, size_t n);

// Shows progress on standard error if that is a terminal, and the time left. For tern_progress_fn.
// Returns false, which cancels the operation, after a signal that cancel_on_signals waits for.
bool show_progress(void *user, const char *phase, double fraction);
void end_progress(void); // clears the line, also after a cancellation
// Ctrl-C, SIGTERM and SIGHUP end the command in order: unfinished output is removed. A second one
// ends it at once. For commands that write and call show_progress or was_cancelled. A terminal is
// told at once. left: what a stop leaves, for exit_status, such as "nothing was written"; or NULL.
void cancel_on_signals(const char *left);
bool was_cancelled(void);
// When something began, at which fraction of it, and how far it was last; begins as zeros.
typedef struct progress_clock {
    double began, first, last;
} progress_clock;
// ", 12 s left", or nothing while that would be a guess.
const char *time_left(progress_clock *c, double fraction, char out[48]);

// tern bench --chains: bench_chains.c.
typedef struct chains_bench {
    const speculation_args *speculation;
    session_args *session;
    const char *text; // NULL: only what runs of several tokens cost
    int n_prompts, n_prompt, n_answer, n_repeats, costs_to;
    bool json;
} chains_bench;
int bench_chains(const command *self, model_args *model_options, const chains_bench *b);

// tern bench --parallel: bench_parallel.c.
typedef struct parallel_bench {
    const session_args *session;
    count_list counts; // of sequences
    int n_prompt, n_answer, n_repeats, format; // a position in "md|json|csv"
} parallel_bench;
int bench_parallel(const command *self, model_args *model_options, const parallel_bench *b);

// tern bench --server: bench_server.c.
typedef struct server_bench {
    string_list servers; // addresses
    count_list users;    // at once
    float rate;          // instead of users: requests a second; 0: none
    const char *key, *model;
    int n_requests; // 0: by the load
    int n_prompt, n_answer, n_shared, format; // a position in "md|json|html"
    uint64_t seed;
} server_bench;
int bench_server(const server_bench *b);

// ---- Text ---------------------------------------------------------------------------------------

void text_append(text *t, const char *bytes, size_t n); // exits when memory is out
void text_puts(text *t, const char *s);
bool text_collect(void *user, const char *bytes, size_t n); // a tern_text_fn; user: text *
// The whole of a file, "-": standard input. On failure prints why, and returns false and no text.
bool text_read(text *t, const char *path);
// A text given in words or as a file, of which one is NULL; "-" or neither: standard input.
bool text_given(text *t, const char *words, const char *path);

// Writes to standard output; user is not used. Returns false, which ends the generation, on
// failure.
bool write_out(void *user, const char *bytes, size_t n);
// The same, but a terminal gets nothing that it would obey or that hides itself (base/plain.h).
bool write_shown(void *user, const char *bytes, size_t n);
// Text from elsewhere for people to read, without such things: as one line, or as a text.
void put_plain(FILE *f, const char *s);
void put_running(FILE *f, const char *s);
// Reports a failure of standard output at any time so far; else returns `status`.
int close_out(int status);
// How GPUs are found and used, from the environment: TERN_WEBGPU_LIB and the others of `man tern`.
const tern_webgpu_desc *cli_webgpu(void);
// The group of processes, or NULL for this one alone.
const struct tern_comm *cli_comm(void);
bool ends_with(const char *name, const char *end);
// A JSON string with its quotes.
void put_json(FILE *f, const char *s, size_t n);
// ,"name":value with the number in a format such as "%.3f"; null for NaN and infinity, which JSON
// does not have.
void put_number(FILE *f, const char *name, const char *format, double value);

typedef struct ids {
    int32_t *ptr;
    size_t n;
} ids;
// False after printing why not. The ids are the caller's to free, even after a failure.
bool tokenize(const tern_model *model, const char *s, size_t n, unsigned flags, ids *out);
// The ids of a conversation, preceded by the model's BOS if the template leaves it out.
bool tokenize_chat(const tern_model *model, const tern_message *messages, size_t n, ids *out);

void *must_alloc(void *block, size_t n, size_t size); // realloc that exits when memory is out
double seconds_now(void);
// The end of a noun after a number: "1 chunk", "2 chunks".
static inline const char *many(uint64_t n) {
    return n == 1 ? "" : "s";
}

#endif
