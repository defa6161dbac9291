// The command line: a table of commands (main.c), a table of options for each (options.c), and what
// the commands share. It uses only the library's public interface.
//
// Exit statuses: 0 success, 1 failure, 2 wrong usage, 3 an agent's budget is spent. Every error is
// one line on standard error that begins with "tern: ".
#ifndef TERN_CLI_H
#define TERN_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "apps/system/system.h"
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
int cmd_ternarize(const command *self, int argc, char **argv);

// One line to standard error; returns the status, so that `return fail(...)` reads naturally.
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));      // EXIT_FAILED
int bad_usage(const char *format, ...) __attribute__((format(printf, 1, 2))); // EXIT_USAGE

// The exit status for a status of the library, after printing the message, or that the command was
// stopped and what that leaves. A failure of standard output is reported at the very end.
int exit_status(tern_status status, const tern_error *err);

// ---- Options ------------------------------------------------------------------------------------

typedef enum option_kind {
    OPTION_FLAG,   // bool *
    OPTION_COUNT,  // int *, with K, M or G
    OPTION_COUNTS, // count_list *, separated by commas
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
    int position; // not 0: words that are not options go to these options, lowest number first,
                  // unless they already have a value by name and take no more
    const char *letters; // several after one dash, as in -hf; NULL: none
} option;

#define COUNT_LIST_MAX 16
typedef struct count_list {
    int at[COUNT_LIST_MAX];
    size_t n;
} count_list;

// Reads argv; words that are neither options nor their values go to positional (at most n_max).
// Returns true if the command goes on; else *status is its exit status (0 after --help).
bool parse_options(const command *self, const option *options, int argc, char **argv,
                   const char **positional, int n_max, int *n_positional, int *status);
// Sets one value outside of a command line, as chat's /set does. False if it is invalid; `complain`
// then says why.
bool set_option(const option *o, const char *value, char *complaint, size_t size);

// The tried name that is nearest to a word; guess.c.
typedef struct guess {
    const char *word;
    size_t length;    // of the word
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
    int n_threads, n_batch, ternary, matmul_precision, head, thinking, pooling;
    bool verbose, vocab_only, precise;
    bool finds_gpu; // the device is "auto" by default
} model_args;
// The requested device: the option's, else TERN_DEVICE, else the command's default; NULL: the
// library's.
const char *device_of(const model_args *args);
extern bool takes_downloads; // get_model.c

typedef struct session_args {
    int n_context, kv_type, n_keep;
    bool shift, profile;
    tern_speculation speculation; // none, unless open_speculation filled it
} session_args;

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

typedef struct grammar_args {
    const char *schema, *rules, *regex;
    string_list choices;
    bool compact;
} grammar_args;
// Why they cannot be combined; NULL: they can.
const char *grammar_usage(const grammar_args *args);
bool grammar_given(const grammar_args *args);
// The requested grammar, which points into args and content. False after printing why not.
bool describe_grammar(const grammar_args *args, text *content, tern_grammar_desc *out);
// *out is NULL if none was requested. False after printing why not.
bool open_grammar(const grammar_args *args, tern_model *model, tern_grammar **out);

typedef struct speculation_args {
    const char *chains, *draft_model; // chains: "": next to the model
    int max_length;
    float threshold, token_cost;
    bool lookup, online, visualize;
} speculation_args;

// Opens the requested table and draft model. A missing table that was not named is reported but is
// not an error. close_speculation closes both.
bool open_speculation(const speculation_args *args, const model_args *model, tern_speculation *out);
void close_speculation(tern_speculation *s);
// One line on standard error, and with `visualize` histograms; nothing if nothing was drafted.
void print_drafts(const tern_draft_stats *s, bool visualize);
void put_drafts(FILE *f, const tern_draft_stats *s); // a JSON object

// The adapters that "FILE=SCALE" name; free them with free_loras.
tern_lora *read_loras(const string_list *list);
void free_loras(tern_lora *loras, size_t n);
// The folder of models: the given one, else TERN_MODELS, else the user's.
const char *models_folder(const char *given);
// The path for tern_model_open, from a path or a model's name; folder: as on the command line. A
// model that only a hub has is downloaded if the user agrees, or has agreed by an option. NULL
// after printing why not. The path lives as long as the program.
const char *resolve_model(const char *folder, const char *name);
struct hub_pull_desc; // apps/hub/hub.h
#define PULL_LEFT "what came stays, and the next pull goes on from there"
// A pull with its progress. *name: the model's name, NULL after printing why it failed. Returns the
// exit status.
int pull_model(struct hub_pull_desc *desc, char **name, size_t *n_new);
const char *size_text(uint64_t bytes, char out[24]); // "1.2 GB"
// Fills in how to open models, from the arguments; show_progress shows the progress. False after
// printing an error. What it points to lives until free_model_desc.
bool read_model_desc(const model_args *args, tern_model_desc *out);
void free_model_desc(tern_model_desc *desc);
int no_model(const command *self); // for commands that need a model: EXIT_USAGE
// Checks that -m is given, resolves its path, and opens it; NULL after printing an error.
tern_model *open_model(const command *self, model_args *args, int *status);
// Says on stderr if the chat template had to be guessed: for commands that use it.
void note_template(const tern_model *model);
tern_session *open_session(tern_model *model, const session_args *args);
// params points into args.
tern_generate_params generate_params(sampling_args *args);
const char *stop_reason_name(tern_stop_reason reason);
// Reports, in one line on standard error, that the session lost its device since the last call and
// continues on another.
void print_notice(tern_session *session);
// Speed, seed and the reason for the end, as one line on standard error.
void print_stats(const tern_generate_stats *stats);
// A line on the GPU memory in use; none on the CPU. cache: its type, or "".
void print_device_memory(FILE *f, const char *cache, const tern_device_memory *m);
void put_device_memory(FILE *f, const tern_device_memory *m); // as a JSON object

// Where the time went: a table, or a JSON array.
void print_profile(FILE *f, const char *title, const tern_profile_row *rows, size_t n);
void put_profile(FILE *f, const tern_profile_row *rows, size_t n);

// A tern_progress_fn that shows progress and the time left on standard error, if that is a
// terminal. Returns false, which cancels the operation, after a signal that cancel_on_signals waits
// for.
bool show_progress(void *user, const char *phase, double fraction);
void end_progress(void); // clears the line, also after a cancellation
// Ctrl-C, SIGTERM and SIGHUP end the command in order: unfinished output is removed. A second one
// ends it at once. For commands that write and call show_progress or was_cancelled. On a terminal a
// note appears at once. left: what a stop leaves, for exit_status, such as "nothing was written";
// or NULL.
void cancel_on_signals(const char *left);
bool was_cancelled(void);
// When a phase began, at which fraction, and the last fraction; zero-initialise.
typedef struct progress_clock {
    double began, first, last;
} progress_clock;
// ", 12 s left", or nothing while the time is a guess.
const char *time_left(progress_clock *c, double fraction, char out[48]);

// tern bench --chains: bench_chains.c.
typedef struct chains_bench {
    const speculation_args *speculation;
    session_args *session;
    const char *text; // NULL: only the cost of runs of several tokens
    int n_prompts, n_prompt, n_answer, n_repeats, costs_to;
    bool json;
} chains_bench;
int bench_chains(const command *self, model_args *model_options, const chains_bench *b);

// tern bench --parallel: bench_parallel.c.
typedef struct parallel_bench {
    const session_args *session;
    count_list counts;                         // numbers of sequences
    int n_prompt, n_answer, n_repeats, format; // a position in "md|json|csv"
} parallel_bench;
int bench_parallel(const command *self, model_args *model_options, const parallel_bench *b);

// tern bench --server: bench_server.c.
typedef struct server_bench {
    string_list servers; // addresses
    count_list users;    // numbers of concurrent users
    float rate;          // instead of users: requests per second; 0: none
    float range_ratio;   // of lengths, see load_desc
    const char *key, *model;
    int n_requests;                           // 0: chosen by the load
    int n_prompt, n_answer, n_shared, format; // a position in "md|json|html"
    uint64_t seed;
} server_bench;
int bench_server(const server_bench *b);

// ---- Text ---------------------------------------------------------------------------------------

void text_append(text *t, const char *bytes, size_t n); // exits if memory runs out
void text_puts(text *t, const char *s);
bool text_collect(void *user, const char *bytes, size_t n); // a tern_text_fn; user: text *
// The whole of a file, "-": standard input. On failure prints why, and returns false and no text.
bool text_read(text *t, const char *path);
// A text given in words or as a file (the other is NULL); "-" or neither: standard input.
bool text_given(text *t, const char *words, const char *path);

// Writes to standard output; user is not used. Returns false, which ends the generation, on
// failure.
bool write_out(void *user, const char *bytes, size_t n);
// The same, but without characters that a terminal obeys or that are invisible (base/plain.h).
bool write_shown(void *user, const char *bytes, size_t n);
// Text from elsewhere for people to read, without such characters: as one line, or as a text.
void put_plain(FILE *f, const char *s);
void put_running(FILE *f, const char *s);
// Reports an earlier failure of standard output; else returns `status`.
int close_out(int status);
// How GPUs are found and used, from the environment: TERN_WEBGPU_LIB and the other variables of
// `man tern`.
const tern_webgpu_desc *cli_webgpu(void);
// The group of processes, or NULL for this one alone.
const struct tern_comm *cli_comm(void);
bool ends_with(const char *name, const char *end);
// A JSON string with its quotes.
void put_json(FILE *f, const char *s, size_t n);
void text_json(text *t, const char *s, size_t n);
// A name in a folder of the user, which the caller frees; NULL: there is no such folder.
char *user_file(user_folder which, const char *name);
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

void *must_alloc(void *block, size_t n, size_t size); // realloc that exits if memory runs out
double seconds_now(void);
// The plural ending of a noun after a number: "1 chunk", "2 chunks".
static inline const char *many(uint64_t n) { return n == 1 ? "" : "s"; }

#include "options.h"

#endif
