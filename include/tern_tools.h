// tern: tools. What is done to models (conversion, merging of adapters, chains mined from text) and
// found out about them: metadata and graph, perplexity and tasks, whether a device computes
// correctly.
//
//     tern_error err = {0};
//     tern_convert_desc as_q8 = {0};
//     as_q8.type = TERN_TYPE_Q8_0;
//     if (tern_convert("model-folder", "model.gguf", &as_q8, &err) == TERN_OK)
//         tern_inspect("model.gguf", NULL, on_text, user, &err);
//     if (err.status != TERN_OK) puts(err.message);
//
// The rules at the top of tern.h hold here, too.
#ifndef TERN_TOOLS_H
#define TERN_TOOLS_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Element types -----------------------------------------------------------------------------

typedef enum tern_type { // element types to choose from
    TERN_TYPE_AUTO = 0,
    TERN_TYPE_F32,
    TERN_TYPE_F16,
    TERN_TYPE_BF16,
    TERN_TYPE_Q8_0,
    TERN_TYPE_Q4_0,
    TERN_TYPE_Q4_K,
    TERN_TYPE_Q5_K,
    TERN_TYPE_Q6_K,
    TERN_TYPE_TQ1_0,
    TERN_TYPE_TQ2_0,
    TERN_TYPE_I2_S,
    // Small numbers with a scale for each group: only of weights that they hold exactly.
    TERN_TYPE_Q2_0,
    TERN_TYPE_PQ2_0,
    TERN_TYPE_PTQ1_0,
    TERN_TYPE_Q1_0,
    TERN_TYPE_Q4_1,
    TERN_TYPE_Q5_0,
    TERN_TYPE_Q5_1,
    // From here on, as llama.cpp has them, mixtures for conversion: some matrices get more bits.
    // Those with a letter at the end are no types of single tensors.
    TERN_TYPE_Q2_K,
    TERN_TYPE_Q3_K_S,
    TERN_TYPE_Q3_K_M,
    TERN_TYPE_Q3_K_L,
    TERN_TYPE_Q4_K_S,
    TERN_TYPE_Q4_K_M,
    TERN_TYPE_Q5_K_S,
    TERN_TYPE_Q5_K_M,
    TERN_TYPE_IQ4_NL,
    TERN_TYPE_IQ4_XS,
    TERN_TYPE_MXFP4,
    // Folders as MLX has them: codes of 4 or 8 bits with a scale and an offset for each group.
    TERN_TYPE_MLX_Q4,
    TERN_TYPE_MLX_Q8,
} tern_type;
// "q8_0" and so on, case ignored; TERN_TYPE_AUTO if the name is unknown.
TERN_API tern_type tern_type_from_name(const char *name);
TERN_API const char *tern_type_name(tern_type type);

// ---- Inspection --------------------------------------------------------------------------------

typedef struct tern_inspect_desc {
    bool tensors, histogram; // list every tensor; count -1, 0, +1 in the ternary ones
    tern_format format;      // text or JSON
} tern_inspect_desc;
// Metadata of a file or folder, without computing anything.
TERN_API tern_status tern_inspect(const char *path, const tern_inspect_desc *desc,
                                  tern_text_fn on_text, void *user, tern_error *err);
// A graph of the model, by its name, after each pass, and the plan of its buffers. graph: NULL for
// all of them. DOT: the last pass alone.
TERN_API tern_status tern_graph_report(const tern_model *model, const char *graph,
                                       tern_format format, tern_text_fn on_text, void *user,
                                       tern_error *err);

// ---- Computing on arrays -----------------------------------------------------------------------

typedef enum tern_array_type { TERN_ARRAY_F32 = 0, TERN_ARRAY_I32 } tern_array_type;
#define TERN_ARRAY_DIMS 8
typedef struct tern_array {
    const char *name; // of a value of a graph; the caller's
    tern_array_type type;
    int32_t n_dims; // 0: a single number
    int64_t dims[TERN_ARRAY_DIMS]; // outermost first
    void *data; // float or int32_t, row by row
} tern_array;
// A file of numpy: NPY 1.0 to 3.0, little-endian, row by row. Elements of 2 and 8 bytes become
// float and int32_t; one that these cannot hold is an error. Sets all but the name; the data is to
// be freed by tern_array_free.
TERN_API tern_status tern_array_read(tern_array *out, const char *path, tern_error *err);
TERN_API tern_status tern_array_write(const tern_array *array, const char *path, tern_error *err);
TERN_API void tern_array_free(tern_array *array); // its data alone; NULL is allowed

typedef struct tern_compute_desc {
    const char *graph; // one of the model's; NULL: the main one
    // By the names of the graph's inputs. Leading dimensions of 1 are as good as none. Without
    // "outputs", the indices of the rows whose results are wanted, these are all rows.
    const tern_array *inputs;
    size_t n_inputs;
    // Their names: of the graph's outputs, or of any value that tern_graph_report has in the graph
    // as built. The rest is set; the data is to be freed by tern_array_free.
    tern_array *outputs;
    size_t n_outputs;
    tern_kv_type kv_type; // AUTO: F32
} tern_compute_desc;
// Runs one of the model's graphs once, on a sequence of its own, from the beginning. Any number of
// threads may do so on one model at a time. Memory: the run's, which grows with the rows.
TERN_API tern_status tern_compute(tern_model *model, const tern_compute_desc *desc,
                                  tern_error *err);
// The model's graphs with their inputs and outputs: name, type, shape, and which graph makes an
// input. graph: NULL for all of them. TEXT or JSON.
TERN_API tern_status tern_compute_report(const tern_model *model, const char *graph,
                                         tern_format format, tern_text_fn on_text, void *user,
                                         tern_error *err);

// The texts of JSON lines: strings, or of objects the member `field` (NULL: "text"). Each is passed
// to on_text by itself; blank lines are passed over. Messages name the line.
TERN_API tern_status tern_json_lines(const char *bytes, size_t n_bytes, const char *field,
                                     tern_text_fn on_text, void *user, tern_error *err);

// ---- Conversion --------------------------------------------------------------------------------

typedef struct tern_convert_desc {
    // Adapters to merge: W + B A. Into ternary weights only with force_ternary: the sum is rounded
    // to -1, 0, +1 again, with the mean of its absolute values as the scale, which differs from the
    // model that the adapter makes at run time.
    const tern_lora *loras;
    size_t n_loras;
    bool force_ternary;
    // Of the weight matrices; AUTO: I2_S for ternary ones, else unchanged. Masters of a BitNet are
    // written rounded, except to a folder, whose config.json asks for the rounding. Tensors whose
    // rows are not whole blocks of the type get one with smaller blocks.
    tern_type type;
    // Of embedding and output head; AUTO: a float `type`; where others become codes of some bits,
    // the head Q6_K (of Q8_0 and MXFP4: Q8_0) and a table beside it `type`; else, and for a BitNet,
    // F16 from a folder, else unchanged.
    tern_type head_type;
    uint64_t split_bytes; // begin a new file after this many bytes; 0: one file
    const char *arch;     // GGUF architecture name to write; NULL: chosen by the source
    // How the output differs from what one may expect, a sentence each; NULL: not told.
    void (*on_note)(void *user, const char *text);
    tern_progress_fn on_progress;
    void *user;
    int n_threads; // 0: one for each core. The output is the same with any number
    // A file of tern_imatrix or of llama.cpp: errors count by it where matrices become codes of
    // some bits. NULL: by the weights alone.
    const char *imatrix;
    int group_size; // of MLX_Q4 and MLX_Q8: 32, 64 or 128 columns share a scale; 0: 64
    // A GGUF's part that sees, which a folder gets, too: as in tern_model_desc.
    const char *mmproj;
} tern_convert_desc;
// in: GGUF or Hugging Face folder. out: a name ending in .gguf, or a folder (safetensors).
// Streams one tensor at a time. An existing `out` stays unchanged until all is complete; a model in
// the folder is then replaced, and a second writer of that folder is refused.
TERN_API tern_status tern_convert(const char *in, const char *out, const tern_convert_desc *desc,
                                  tern_error *err);

// ---- Importance of weights ---------------------------------------------------------------------

typedef struct tern_imatrix_desc {
    int window;          // tokens that are read together; 0: 512, at most the model's context
    int n_windows;       // at most; 0: the whole text
    const char *dataset; // the text's name, for the file; NULL: none
    const int32_t *ids;  // [n_ids] tokens in place of the text; they are read as they are
    size_t n_ids;
    tern_progress_fn on_progress;
    void *user;
} tern_imatrix_desc;

typedef struct tern_imatrix_stats {
    int64_t n_tokens, n_windows;
    int window;
    size_t n_matrices;
} tern_imatrix_stats;

// How large what goes into each matrix is, column by column, over a text: the sums of squares, of
// experts each for itself, into a GGUF file `out` as llama.cpp's imatrix has it. Memory: what a
// window takes, and two doubles for each column. The model's device does it; other threads may use
// the model, and wait for windows. desc, stats: NULL is allowed.
TERN_API tern_status tern_imatrix(tern_model *model, const char *text, size_t n_bytes,
                                  const char *out, const tern_imatrix_desc *desc,
                                  tern_imatrix_stats *stats, tern_error *err);

// ---- Evaluation (docs/evaluation.md) -----------------------------------------------------------

typedef enum tern_perplexity_convention {
    TERN_PERPLEXITY_LLAMA_CPP = 0, // windows side by side, each begun with BOS if the tokenizer
                                   // adds one; only the second half of each is scored
    TERN_PERPLEXITY_TRANSFORMERS,  // overlapping windows; every token but the first is scored once
} tern_perplexity_convention;

typedef struct tern_perplexity_desc {
    int window;    // tokens; 0: 512, or with TRANSFORMERS the session's context
    int stride;    // TRANSFORMERS: from one window's start to the next; 0: half the window
    int n_windows; // at most; 0: the whole text
    tern_perplexity_convention convention;
    tern_progress_fn on_progress;
    void *user;
} tern_perplexity_desc;

typedef struct tern_perplexity {
    int window, stride;               // that were used
    size_t n_windows;
    size_t n_tokens;                  // of the whole text, BOS included
    size_t n_scored;                  // tokens scored...
    size_t scored_bytes, scored_words; // ...and their text
    double nll;                       // sum of -ln p over them
    double nll_per_token, nll_error;  // mean, and its standard error
    double nll_per_word, bits_per_byte;
    double perplexity, perplexity_error; // exp(nll_per_token), and its standard error
} tern_perplexity;
// How well the model predicts a text. Overwrites the session's timeline.
TERN_API tern_status tern_eval_perplexity(tern_session *session, const char *text, size_t n_bytes,
                                          const tern_perplexity_desc *desc, tern_perplexity *out,
                                          tern_error *err);

// The tasks that tern_eval_choice knows, in the order of tables; NULL after the last one. Names
// match ignoring case, '-' and '_': "SIQA", "commonsenseqa".
TERN_API const char *tern_eval_task_name(size_t i);
// Makes *name the task's own name. False: there is no such task.
TERN_API bool tern_eval_task_known(const char **name);
// Looks in folder and its subfolders for the task's file under its usual names (for BLiMP, which is
// many files: a folder), and passes its path. False: there is none.
TERN_API bool tern_eval_find_file(const char *task, const char *folder, tern_text_fn on_path,
                                  void *user);

typedef struct tern_eval_desc {
    const char *task; // as tern_eval_task_name has it
    const char *path; // JSONL
    int n_shots;      // answered examples before each question...
    const char *shots_path; // ...the first ones of this file, which must not be `path`
    int n_items;      // at most; 0: all
    // Each item's scores are appended to this file as they are computed, and items already in it
    // are not computed again; NULL: none. One file serves any number of tasks of one model.
    const char *results_path;
    tern_progress_fn on_progress;
    void *user;
} tern_eval_desc;

#define TERN_EVAL_METRICS_MAX 4
typedef struct tern_eval_metric {
    const char *name; // "acc", "acc_norm", "acc_bytes", "perplexity"
    double value, error; // error: standard error
} tern_eval_metric;
typedef struct tern_eval_result {
    size_t n_items, n_resumed; // scored; of these, read from the results file
    size_t n_cut;              // items too long for the context: their beginning was left out
    tern_eval_metric metrics[TERN_EVAL_METRICS_MAX];
    int n_metrics;
} tern_eval_result;
// Scores a task by the likelihood of its answers, as lm-evaluation-harness does.
TERN_API tern_status tern_eval_choice(tern_session *session, const tern_eval_desc *desc,
                                      tern_eval_result *out, tern_error *err);

// Which of the properties that arXiv:2402.17764 describes a model file has, one line each. TEXT or
// JSON. Nothing is run: only config, graph and weights are examined.
TERN_API tern_status tern_eval_paper(const char *path, tern_format format, tern_text_fn on_text,
                                     void *user, tern_error *err);

// ---- Mining chains -----------------------------------------------------------------------------

typedef struct tern_mine_desc {
    // Shards of tokens, as `tern data build` writes them; a folder stands for its training shards.
    const char *const *shards;
    size_t n_shards;
    // Not 0: mine this many tokens that the model itself writes, always the likeliest, in place of
    // the shards, which, if there are any, supply the beginnings of these texts.
    uint64_t generate_tokens;
    int32_t n_buckets;     // 0: 256, at most 65535
    int32_t max_length;    // of a chain, 0: 8, at most 8
    float min_probability; // of a token after those before it, 0: 0.5
    uint64_t score_tokens; // of the corpus that the model reads, spread over it; 0: 65536
    uint64_t memory;       // bytes for counting, 0: 64 MiB
    const struct tern_comm *comm; // of tern_train.h: each counts a part; NULL: one process
    tern_progress_fn on_progress;
    void *user;
} tern_mine_desc;

typedef struct tern_mine_stats {
    uint64_t n_tokens, n_scored;   // of the corpus, read by the model
    size_t n_candidates, n_chains; // frequent runs of tokens, filled buckets
    double seconds;
} tern_mine_stats;

// Finds the most profitable chains of a corpus: runs of 2 to 8 tokens, ranked by frequency times
// the mean probability of their tokens, as the model gives it or as counted in its own text. The
// same corpus, model and options give the same table.
TERN_API tern_status tern_mine(tern_chains **out, tern_model *model, const tern_mine_desc *desc,
                               tern_mine_stats *stats, tern_error *err);

// ---- Data generation (docs/datagen.md) ---------------------------------------------------------

// What becomes of an answer.
typedef enum tern_datagen_reason {
    TERN_DATAGEN_ACCEPTED = 0,
    TERN_DATAGEN_OUTDONE,    // another candidate of the same prompt was better
    TERN_DATAGEN_CUT,        // by max_tokens, or by the context's end
    TERN_DATAGEN_SHORT,      // empty, or below min_tokens
    TERN_DATAGEN_LACKING,    // one of `mentions` or `required` is not in it
    TERN_DATAGEN_FORBIDDEN,  // one of `forbidden` is
    TERN_DATAGEN_REPETITIVE, // above max_repetition
    TERN_DATAGEN_SIMILAR,    // to an earlier record, above max_similarity
    TERN_DATAGEN_LOW,        // below min_quality
    TERN_DATAGEN_NO_ROOM,    // the prompt is longer than the context: there is no answer
    TERN_DATAGEN_REASONS
} tern_datagen_reason;
TERN_API const char *tern_datagen_reason_name(tern_datagen_reason reason); // "accepted" ...

typedef struct tern_datagen_record {
    const char *line; // JSON, without a newline; lives until the callback returns
    size_t n_bytes;
    tern_datagen_reason reason;
} tern_datagen_record;
// Return false to stop.
typedef bool (*tern_datagen_fn)(void *user, const tern_datagen_record *record);

typedef struct tern_datagen_desc {
    // Jinja templates of the user's message and of the system message (NULL: none), which see the
    // members of a seed as variables. A variable that the seed does not have is an error.
    const char *prompt, *system;
    const char *seeds;       // JSON lines: objects, or strings, which are the member `text`; taken
    size_t n_seed_bytes;     // in turn, again and again. NULL: one seed without members
    bool raw;                // no chat: the model goes on with the prompt's text
    int64_t n_records;       // wanted, with those that are in the file
    int64_t n_items_max;     // prompts to try at most, 0: 4 * n_records + 16
    int32_t n_candidates;    // answers to each prompt, of which the best is kept; 0: 1
    int32_t n_parallel;      // answers that are generated at once, 0: 8. Changes no record
    int32_t n_context;       // tokens of prompt and answer; 0: 2048, at most the model's
    int32_t max_tokens;      // of an answer, 0: 256
    const tern_sampling *sampling; // NULL: tern_sampling_default(). Its seed, 0 too, is that of
                                   // all that is random
    const char *const *stops;      // as in tern_generate_params
    size_t n_stops;
    const tern_grammar_desc *grammar; // what answers may be; NULL: any text
    // Which answers pass. Of the shares 0 is the number named; negative: no such condition.
    int32_t min_tokens;
    float min_quality;    // of the score, 0 to 1; 0.45
    float max_repetition; // share of runs of four tokens that were there before; 0.25
    float max_similarity; // in runs of five words, to an earlier record; 0.7
    const char *const *mentions; // [n_mentions] templates of texts that the answer must have in
    size_t n_mentions;           // it, whatever the case
    const char *const *required, *const *forbidden; // expressions (ECMA-262) that must, or must
    size_t n_required, n_forbidden;                 // not, match somewhere
    bool keep_cut;        // answers that were cut may pass
    // Each record is appended to this file as soon as it is known; those that are in it already, of
    // an earlier call with the same settings, are not made again, and what follows is what would
    // have followed then. Locked while in use. NULL: none.
    const char *path;
    tern_datagen_fn on_record; // of each candidate, in order; those accepted are the records. NULL:
                               // not told
    tern_progress_fn on_progress;
    void *user; // of both
} tern_datagen_desc;

typedef struct tern_datagen_stats {
    int64_t n_records;  // in all, those that were in the file too. Fewer than wanted: n_items_max
                        // was reached
    int64_t n_accepted; // in this call
    int64_t n_items;    // prompts tried
    int64_t n_candidates[TERN_DATAGEN_REASONS]; // by what became of them
    int64_t n_tokens;   // generated
    double seconds;
} tern_datagen_stats;

// Makes training data: answers of the model to prompts from templates, those that pass. Records
// come one by one and in an order that depends on nothing but the model, the seeds and the
// settings. They are chats (or, with `raw`, texts) as tern's training reads them, with the quality
// and with where they are from. The model may be used by other threads. stats: NULL is allowed.
TERN_API tern_status tern_datagen(tern_model *model, const tern_datagen_desc *desc,
                                  tern_datagen_stats *stats, tern_error *err);

// ---- Devices and the machine -------------------------------------------------------------------

typedef struct tern_diagnose_desc {
    const char *model;        // NULL: only the device
    tern_format format;       // text or JSON
    const char *device;       // "cpu" (default), "webgpu", "auto"
    const char *cpu_features; // see tern_model_desc
    const tern_webgpu_desc *webgpu;
    int n_threads;
    bool quick; // do not measure the machine
} tern_diagnose_desc;
// What a device is, and whether it computes correctly: a ladder of small checks, then small models
// with random weights against the CPU's plainest kernels, value by value. With a model also that
// its weights on the device match the file, and its hidden values and logits the CPU's; the first
// tensor that differs is named. *n_failed: checks that failed.
TERN_API tern_status tern_diagnose(const tern_diagnose_desc *desc, tern_text_fn on_text, void *user,
                                   size_t *n_failed, tern_error *err);

typedef struct tern_machine_limits {
    char cpu[64], features[128];
    int n_threads;
    double read_gb_per_s;   // sequential reads of memory by n_threads
    double int8_gmac_per_s; // multiply-accumulates by n_threads, in registers
} tern_machine_limits;
TERN_API tern_status tern_machine_measure(int n_threads, tern_machine_limits *out, tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
