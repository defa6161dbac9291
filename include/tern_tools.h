// tern: tools. Conversion of models, merging of adapters, mining of chains, data generation; and
// inspection: metadata and graph, perplexity and tasks, whether a device computes correctly.
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
    // Low-bit values with one scale per group: only for weights that they represent exactly.
    TERN_TYPE_Q2_0,
    TERN_TYPE_PQ2_0,
    TERN_TYPE_PTQ1_0,
    TERN_TYPE_Q1_0,
    TERN_TYPE_Q4_1,
    TERN_TYPE_Q5_0,
    TERN_TYPE_Q5_1,
    // From here on: llama.cpp's mixtures, for conversion: some matrices get more bits. Those that
    // end in _S, _M or _L are not types of single tensors.
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
    // MLX folders: 4-bit or 8-bit codes with one scale and offset per group.
    TERN_TYPE_MLX_Q4,
    TERN_TYPE_MLX_Q8,
} tern_type;
// "q8_0" and so on, case ignored; TERN_TYPE_AUTO if the name is unknown.
TERN_API tern_type tern_type_from_name(const char *name);
TERN_API const char *tern_type_name(tern_type type);

// ---- Inspection --------------------------------------------------------------------------------

typedef struct tern_inspect_desc {
    bool tensors, histogram; // list every tensor; count -1, 0, +1 in ternary tensors
    tern_format format;      // text or JSON
} tern_inspect_desc;
// Metadata of a file or folder, without computing anything.
TERN_API tern_status tern_inspect(const char *path, const tern_inspect_desc *desc,
                                  tern_text_fn on_text, void *user, tern_error *err);
// A graph of the model after each pass, and its buffer plan. graph: its name, NULL: all graphs.
// DOT: only the last pass.
TERN_API tern_status tern_graph_report(const tern_model *model, const char *graph,
                                       tern_format format, tern_text_fn on_text, void *user,
                                       tern_error *err);

// Tokens for filling in between two texts: PREFIX text SUFFIX text MIDDLE, and the answer follows.
// As the file names them, or by the names in the vocabularies of Qwen Coder, StarCoder, DeepSeek,
// CodeLlama, Codestral, GLM and others. -1: none.
typedef struct tern_infill_info {
    int32_t prefix_token, suffix_token, middle_token;
    int32_t pad_token;
    int32_t repository_token, separator_token; // before the name of a repository; of each file
    bool fills_in;                             // the vocabulary has what this takes
    bool suffix_first;                         // SUFFIX text PREFIX text: without a middle
} tern_infill_info;
TERN_API void tern_model_get_infill_info(const tern_model *model, tern_infill_info *info);

// ---- Computing on arrays -----------------------------------------------------------------------

typedef enum tern_array_type { TERN_ARRAY_F32 = 0, TERN_ARRAY_I32 } tern_array_type;
#define TERN_ARRAY_DIMS 8
typedef struct tern_array {
    const char *name; // of a value in a graph; the caller's
    tern_array_type type;
    int32_t n_dims;                // 0: a scalar
    int64_t dims[TERN_ARRAY_DIMS]; // outermost first
    void *data;                    // float or int32_t, row-major
} tern_array;
// A NumPy file: NPY 1.0 to 3.0, little-endian, row-major. Elements of 2 and 8 bytes are converted
// to float and int32_t; values that do not fit are an error. Sets everything except the name; free
// the data with tern_array_free.
TERN_API tern_status tern_array_read(tern_array *out, const char *path, tern_error *err);
TERN_API tern_status tern_array_write(const tern_array *array, const char *path, tern_error *err);
TERN_API void tern_array_free(tern_array *array); // frees only its data; NULL is allowed

typedef struct tern_compute_desc {
    const char *graph; // one of the model's; NULL: the main one
    // Matched by name to the graph's inputs. Leading dimensions of 1 may be left out. "outputs"
    // holds the indices of the rows whose results are wanted; without it, all rows.
    const tern_array *inputs;
    size_t n_inputs;
    // Set their names: of the graph's outputs, or of any value that tern_graph_report shows in the
    // graph as built. The rest is filled in; free the data with tern_array_free.
    tern_array *outputs;
    size_t n_outputs;
    tern_kv_type kv_type; // AUTO: F32
} tern_compute_desc;
// Runs one of the model's graphs once, on a new sequence. Any number of threads may do this on one
// model at a time. Memory: that of the run, which grows with the number of rows.
TERN_API tern_status tern_compute(tern_model *model, const tern_compute_desc *desc,
                                  tern_error *err);
// The model's graphs with their inputs and outputs: name, type, shape, and which graph computes an
// input. graph: NULL: all graphs. TEXT or JSON.
TERN_API tern_status tern_compute_report(const tern_model *model, const char *graph,
                                         tern_format format, tern_text_fn on_text, void *user,
                                         tern_error *err);

// The texts of JSON lines: strings, or the member `field` (NULL: "text") of objects. Each is passed
// to on_text in one piece; blank lines are skipped. Errors name the line.
TERN_API tern_status tern_json_lines(const char *bytes, size_t n_bytes, const char *field,
                                     tern_text_fn on_text, void *user, tern_error *err);

// ---- Conversion --------------------------------------------------------------------------------

typedef struct tern_convert_desc {
    // Adapters to merge: W + B A. Merging into ternary weights needs force_ternary: the sum is
    // rounded to -1, 0, +1 again, with the mean of its absolute values as the scale, so it differs
    // from the model that applies the adapter at run time. Floats, too, are rounded to types of
    // trits or signs with a scale for each group (PQ2_0, PTQ1_0, Q2_0, TQ1_0, TQ2_0, Q1_0) only
    // with it, to the least squared error, embedding and head to Q8_0: such a model is of little
    // use before training (qat in tern_train.h) has healed it.
    const tern_lora *loras;
    size_t n_loras;
    bool force_ternary;
    // For the weight matrices; AUTO: I2_S for ternary ones, else unchanged. Master weights of a
    // BitNet are written rounded, except to a folder, whose config.json asks for the rounding.
    // Tensors whose rows are not a multiple of the type's block get a type with smaller blocks.
    tern_type type;
    // For the embedding table and output head; AUTO: `type`, if that is a float type; if it is a
    // quantized type, the head becomes Q6_K (for Q8_0 and MXFP4: Q8_0) and a separate table `type`;
    // otherwise, and for a BitNet, F16 from a folder, else unchanged.
    tern_type head_type;
    uint64_t split_bytes; // start a new file after this many bytes; 0: one file
    const char *arch;     // GGUF architecture name to write; NULL: chosen by the source
    // Ways in which the output may differ from the expected one, one sentence per call; NULL: none.
    void (*on_note)(void *user, const char *text);
    tern_progress_fn on_progress;
    void *user;
    int n_threads; // 0: one per core. The output does not depend on it
    // A file of tern_imatrix or of llama.cpp: quantization errors are weighted by it. NULL: by the
    // weights alone.
    const char *imatrix;
    int group_size; // for MLX_Q4 and MLX_Q8: columns per scale, 32, 64 or 128; 0: 64
    // Vision part of a GGUF to write into a folder along with it; values as in tern_model_desc.
    const char *mmproj;
} tern_convert_desc;
// in: GGUF or Hugging Face folder. out: a name ending in .gguf, or a folder (safetensors). Streams
// one tensor at a time. An existing `out` stays unchanged until everything is complete; then a
// model in the folder is replaced. A second writer to that folder is refused.
TERN_API tern_status tern_convert(const char *in, const char *out, const tern_convert_desc *desc,
                                  tern_error *err);

// ---- Importance of weights ---------------------------------------------------------------------

typedef struct tern_imatrix_desc {
    const char *text;
    size_t n_bytes;
    const int32_t *ids; // [n_ids] tokens used as they are, in place of the text
    size_t n_ids;
    int window;          // tokens per window; 0: 512, at most the model's context
    int n_windows;       // at most; 0: the whole text
    const char *dataset; // the text's name, for the file; NULL: none
    tern_progress_fn on_progress;
    void *user;
} tern_imatrix_desc;

typedef struct tern_imatrix_stats {
    int64_t n_tokens, n_windows;
    int window;
    size_t n_matrices;
} tern_imatrix_stats;

// Measures each matrix's input activations over a text: the sums of squares per column, separately
// for each expert, into a GGUF file `out` in the format of llama.cpp's imatrix. Memory: that of a
// window, and two doubles per column. Runs on the model's device; other threads may use the model,
// and wait for windows. stats: NULL is allowed.
TERN_API tern_status tern_imatrix(tern_model *model, const char *out, const tern_imatrix_desc *desc,
                                  tern_imatrix_stats *stats, tern_error *err);

// ---- Evaluation (docs/evaluation.md) -----------------------------------------------------------

typedef enum tern_perplexity_convention {
    TERN_PERPLEXITY_LLAMA_CPP = 0, // adjacent windows, each starting with BOS if the tokenizer adds
                                   // one; only the second half of each is scored
    TERN_PERPLEXITY_TRANSFORMERS,  // overlapping windows; every token but the first is scored once
} tern_perplexity_convention;

typedef struct tern_perplexity_desc {
    int window;    // tokens; 0: 512, or with TRANSFORMERS the session's context
    int stride;    // TRANSFORMERS: between the starts of windows; 0: half the window
    int n_windows; // at most; 0: the whole text
    tern_perplexity_convention convention;
    tern_progress_fn on_progress;
    void *user;
} tern_perplexity_desc;

typedef struct tern_perplexity {
    int window, stride; // as used
    size_t n_windows;
    size_t n_tokens;                   // of the whole text, including BOS
    size_t n_scored;                   // tokens scored...
    size_t scored_bytes, scored_words; // ...and their text
    double nll;                        // sum of -ln p over them
    double nll_per_token, nll_error;   // mean and its standard error
    double nll_per_word, bits_per_byte;
    double perplexity, perplexity_error; // exp(nll_per_token) and its standard error
} tern_perplexity;
// How well the model predicts a text. Overwrites the session's timeline.
TERN_API tern_status tern_eval_perplexity(tern_session *session, const char *text, size_t n_bytes,
                                          const tern_perplexity_desc *desc, tern_perplexity *out,
                                          tern_error *err);

// How one number is spread over the scored tokens. The p's are percentiles, between two tokens
// interpolated in a line.
typedef struct tern_distribution {
    double mean, error, rms; // error: standard error of the mean
    double min, p1, p5, p10, median, p90, p95, p99, p999, max;
} tern_distribution;

typedef struct tern_eval_comparison {
    tern_perplexity model, reference;
    // ln(perplexity of the model / of the reference), the mean over tokens of the difference of
    // -ln p. Its error, of these differences, is far below that of either perplexity.
    double log_ratio, log_ratio_error;
    double correlation;   // of both models' ln p of the text's tokens
    tern_distribution kl; // Kullback-Leibler divergence of each token's choice, in nats: the sum of
                          // p_reference (ln p_reference - ln p_model) over the vocabulary
    tern_distribution p_change;      // p of the text's token: the model's less the reference's
    double same_top, same_top_error; // share of tokens where both have one favourite
} tern_eval_comparison;
// How far a model is from a reference, token by token of a text, as llama-perplexity's
// --kl-divergence: what quantization, an adapter, tuning or a cache of another type changes. Both
// must have the same vocabulary; the windows are those of tern_eval_perplexity, which both
// perplexities equal. Needs 64 MB for logits, and 16 bytes for each token. Overwrites the timelines
// of both sessions, which may not be the same one.
TERN_API tern_status tern_eval_compare(tern_session *session, tern_session *reference,
                                       tern_bytes text, const tern_perplexity_desc *desc,
                                       tern_eval_comparison *out, tern_error *err);

// The i-th task that tern_eval_run supports, in the order of the usual tables; NULL after the
// last one. Names are matched ignoring case, '-' and '_': "SIQA", "commonsenseqa".
TERN_API const char *tern_eval_task_name(size_t i);
// Replaces *name by the task's own spelling; a name that ends in .json stays, as it is a task
// file's. False: there is no such task.
TERN_API bool tern_eval_task_known(const char **name);
// Looks in folder and its subfolders for the task's file under its usual names (for BLiMP, which is
// many files: a folder; for task.json: task.jsonl), and passes its path. False: there is none.
TERN_API bool tern_eval_find_file(const char *task, const char *folder, tern_text_fn on_path,
                                  void *user);

typedef struct tern_eval_desc {
    const char *task;       // see tern_eval_task_name; or a task file, which ends in .json
    const char *path;       // JSONL
    int n_shots;            // answered examples before each question, 0: as the task has it, most
                            // have none; below 0: none...
    const char *shots_path; // ...taken from the start of this file, which must not be `path`
    int n_items;            // at most; 0: all
    // Each item's scores are appended to this file as they are computed, and items already in it
    // are not computed again; NULL: none. One file can hold any number of tasks of one model.
    const char *results_path;
    // Questions as a user's messages, in the model's chat template. system: NULL: none. The
    // examples stand in front of the question, or shots_as_turns: are turns of their own.
    bool apply_chat_template, shots_as_turns;
    const char *system;
    float temperature; // of answers that are generated; 0: the task's, as a rule greedy
    int n_parallel;    // answers generated at once, 0: 8
    tern_progress_fn on_progress;
    void *user;
} tern_eval_desc;

#define TERN_EVAL_METRICS_MAX 8
typedef struct tern_eval_metric {
    char name[64];       // "acc", "acc_norm", "acc_bytes", "perplexity"
    double value, error; // error: standard error
} tern_eval_metric;
typedef struct tern_eval_result {
    size_t n_items, n_resumed; // scored; of these, how many were read from the results file
    size_t n_cut;              // items too long for the context: their beginning was left out
    // Items that cannot be scored (malformed, without a right answer, with an answer longer than
    // the context) and are not among n_items; and the place and reason of the first.
    size_t n_faulty;
    char fault[512];
    tern_eval_metric metrics[TERN_EVAL_METRICS_MAX];
    int n_metrics;
    int n_shots; // examples that were in front of each question
} tern_eval_result;
// Scores a task by the likelihood of its answers, or by what the model generates, as
// lm-evaluation-harness does (docs/evaluation.md). Fails if all items are faulty. Overwrites the
// session's timeline; generation forks it.
TERN_API tern_status tern_eval_run(tern_session *session, const tern_eval_desc *desc,
                                   tern_eval_result *out, tern_error *err);

typedef enum tern_table_format {
    TERN_TABLE_MARKDOWN = 0,
    TERN_TABLE_JSON,
    TERN_TABLE_CSV
} tern_table_format;
// Whether the results file `other` is better than `first`, item by item (two models, or one before
// and after tuning): for each metric the mean difference, its standard error, and p: how probable a
// difference as great is if both are equally good. Fails unless both
// hold the same items of the same tasks.
TERN_API tern_status tern_eval_significance(const char *first, const char *other,
                                            tern_table_format format, tern_text_fn on_text,
                                            void *user, tern_error *err);
// The metrics of up to TERN_EVAL_FILES_MAX results files side by side. The best is marked if it is
// better than each of the others with p below 0.05. Fails as above.
#define TERN_EVAL_FILES_MAX 64
TERN_API tern_status tern_eval_table(const char *const *paths, size_t n_paths,
                                     tern_table_format format, tern_text_fn on_text, void *user,
                                     tern_error *err);

// Which of the properties described in arXiv:2402.17764 a model file has, one line each. TEXT or
// JSON. Nothing is run: only config, graph and weights are examined.
TERN_API tern_status tern_eval_paper(const char *path, tern_format format, tern_text_fn on_text,
                                     void *user, tern_error *err);

// ---- Chains ------------------------------------------------------------------------------------

// A table of chains: short runs of tokens that often follow one another, mined from a corpus by
// `tern mine` and stored in "chain-buckets.bin" (docs/formats.md). Speculation drafts from it. It
// never changes after opening and may be shared by any number of threads.
typedef struct tern_chain {
    const int32_t *tokens; // live as long as the table
    int32_t n_tokens;      // 0: an empty bucket
    float confidence;      // mean probability of the tokens after the first, 0..1 as mined
    // [n_tokens] the probability of each token given those before it, in 255ths; the first is 0.
    // NULL: unknown.
    const uint8_t *chances;
} tern_chain;

TERN_API tern_status tern_chains_open(tern_chains **out, const char *path, tern_error *err);
// From entries, which are copied: up to 256 of at most 8 tokens make a table of version 1, without
// chances; otherwise one of version 2 (65535 entries, 16 tokens), where the confidence stands in
// for unknown chances.
TERN_API tern_status tern_chains_create(tern_chains **out, const tern_chain *entries,
                                        size_t n_entries, tern_error *err);
TERN_API tern_status tern_chains_save(const tern_chains *chains, const char *path, tern_error *err);
TERN_API void tern_chains_close(tern_chains *chains); // NULL is allowed
TERN_API int tern_chains_version(const tern_chains *chains);
TERN_API const tern_chain *tern_chains_entries(const tern_chains *chains, size_t *n_entries);

// ---- Mining chains -----------------------------------------------------------------------------

typedef struct tern_mine_desc {
    // Shards of tokens as written by `tern data build`; a folder stands for its training shards.
    const char *const *shards;
    size_t n_shards;
    // Not 0: mine this many tokens that the model itself generates greedily, in place of the
    // shards; these, if there are any, supply the beginnings of its texts.
    uint64_t generate_tokens;
    int32_t n_buckets;            // 0: 256, at most 65535
    int32_t max_length;           // of a chain, 0: 8, at most 8
    float min_probability;        // of a token given those before it, 0: 0.5
    uint64_t score_tokens;        // of the corpus that the model scores, spread over it; 0: 65536
    uint64_t memory;              // bytes for the counting, 0: 64 MiB
    const struct tern_comm *comm; // see tern_train.h: each process counts a part; NULL: one process
    tern_progress_fn on_progress;
    void *user;
} tern_mine_desc;

typedef struct tern_mine_stats {
    uint64_t n_tokens, n_scored;   // in the corpus; scored by the model
    size_t n_candidates, n_chains; // frequent runs of tokens, filled buckets
    double seconds;
} tern_mine_stats;

// Finds the most profitable chains of a corpus: runs of 2 to 8 tokens, ranked by frequency times
// the mean probability of their tokens, given by the model or counted in its own text. The same
// corpus, model and options give the same table.
TERN_API tern_status tern_mine(tern_chains **out, tern_model *model, const tern_mine_desc *desc,
                               tern_mine_stats *stats, tern_error *err);

// ---- Data generation (docs/data.md) ------------------------------------------------------------

// Why an answer was accepted or rejected.
typedef enum tern_datagen_reason {
    TERN_DATAGEN_ACCEPTED = 0,
    TERN_DATAGEN_OUTDONE,    // another candidate of the same prompt was better
    TERN_DATAGEN_CUT,        // by max_tokens, or by the end of the context
    TERN_DATAGEN_SHORT,      // empty, or below min_tokens
    TERN_DATAGEN_LACKING,    // one of `mentions` or `required` is missing
    TERN_DATAGEN_FORBIDDEN,  // one of `forbidden` is in it
    TERN_DATAGEN_REPETITIVE, // above max_repetition
    TERN_DATAGEN_SIMILAR,    // to an earlier record, above max_similarity
    TERN_DATAGEN_LOW,        // below min_quality
    TERN_DATAGEN_NO_ROOM,    // the prompt is longer than the context: no answer
    TERN_DATAGEN_REASONS
} tern_datagen_reason;
TERN_API const char *tern_datagen_reason_name(tern_datagen_reason reason); // "accepted" ...

typedef struct tern_datagen_record {
    const char *line; // JSON, without a newline; valid until the callback returns
    size_t n_bytes;
    tern_datagen_reason reason;
} tern_datagen_record;
// Return false to stop.
typedef bool (*tern_datagen_fn)(void *user, const tern_datagen_record *record);

typedef struct tern_datagen_desc {
    // Jinja templates of the user's message and of the system message (NULL: none), with the
    // members of a seed as variables. A variable that the seed does not have is an error.
    const char *prompt, *system;
    const char *seeds;    // JSON lines: objects, or strings, which are the member `text`; taken
    size_t n_seed_bytes;  // in turn, again and again. NULL: one seed without members
    bool raw;             // no chat: the model continues the prompt's text
    int64_t n_records;    // wanted, including those already in the file
    int64_t n_items_max;  // prompts to try at most, 0: 4 * n_records + 16
    int32_t n_candidates; // answers per prompt; the best is kept; 0: 1
    int32_t n_parallel;   // answers generated at once, 0: 8. Does not change the records
    int32_t n_context;    // for prompt and answer, in tokens; 0: 2048, at most the model's
    int32_t max_tokens;   // of an answer, 0: 256
    const tern_sampling *sampling; // NULL: tern_sampling_default(). Its seed, even 0, determines
                                   // all that is random
    const char *const *stops;      // as in tern_generate_params
    size_t n_stops;
    const tern_grammar_desc *grammar; // constrains the answers; NULL: any text
    // Which answers pass. For the three floats, 0 is the number named; negative: no such condition.
    int32_t min_tokens;
    float min_quality;           // minimum score, 0 to 1; 0.45
    float max_repetition;        // share of runs of four tokens that occurred before; 0.25
    float max_similarity;        // to an earlier record, in runs of five words; 0.7
    const char *const *mentions; // [n_mentions] templates of texts that the answer must have in
    size_t n_mentions;           // it, whatever the case
    const char *const *required, *const *forbidden; // expressions (ECMA-262) that must, or must
    size_t n_required, n_forbidden;                 // not, match somewhere
    bool keep_cut;                                  // answers that were cut off may pass
    // Each record is appended to this file as soon as it is decided. Records already in it, from an
    // earlier call with the same settings, are not generated again, and the others are the same as
    // that call would have produced. Locked while in use. NULL: none.
    const char *path;
    tern_datagen_fn on_record; // called for each candidate, in order; accepted ones are the
                               // records. NULL: none
    tern_progress_fn on_progress;
    void *user; // of both
} tern_datagen_desc;

typedef struct tern_datagen_stats {
    int64_t n_records;  // in all, including those already in the file. Fewer than wanted:
                        // n_items_max was reached
    int64_t n_accepted; // in this call
    int64_t n_items;    // prompts tried
    int64_t n_candidates[TERN_DATAGEN_REASONS]; // by reason
    int64_t n_tokens;                           // generated
    double seconds;
} tern_datagen_stats;

// Makes training data: the model's answers to prompts from templates, filtered. Records come one by
// one, in an order that depends only on the model, the seeds and the settings. They are chats (or,
// with `raw`, texts) in the form that tern's training reads, with their quality and origin. Other
// threads may use the model meanwhile. stats: NULL is allowed.
TERN_API tern_status tern_datagen(tern_model *model, const tern_datagen_desc *desc,
                                  tern_datagen_stats *stats, tern_error *err);

// ---- Writing files -----------------------------------------------------------------------------

// Every file that the library writes goes into a private folder next to its destination, is synced,
// and is renamed when complete. Until then the old file stays unchanged, whatever fails. A symbolic
// link's target is replaced, not the link; devices, pipes and /dev/stdout are written to directly.
TERN_API tern_status tern_file_write(const char *path, const void *bytes, size_t n,
                                     tern_error *err);

// The same in pieces.
typedef struct tern_output tern_output;
TERN_API tern_status tern_output_open(tern_output **out, const char *path, tern_error *err);
TERN_API tern_status tern_output_write(tern_output *output, const void *bytes, size_t n,
                                       tern_error *err);
TERN_API tern_status tern_output_finish(tern_output *output, tern_error *err);
// NULL is allowed. Unless finish succeeded, the destination is unchanged.
TERN_API void tern_output_close(tern_output *output);

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
// Describes a device, and checks whether it computes correctly: a series of small checks, then
// small models with random weights compared with the CPU's scalar reference kernels, value by
// value. With a model, also that its weights on the device match the file, and its hidden values
// and logits the CPU's; the first tensor that differs is named. *n_failed: checks that failed.
TERN_API tern_status tern_diagnose(const tern_diagnose_desc *desc, tern_text_fn on_text, void *user,
                                   size_t *n_failed, tern_error *err);

typedef struct tern_machine_limits {
    char cpu[64], features[128];
    int n_threads;
    double read_gb_per_second;   // sequential reads of memory by n_threads
    double int8_gmac_per_second; // multiply-accumulates by n_threads, in registers
} tern_machine_limits;
TERN_API tern_status tern_machine_measure(int n_threads, tern_machine_limits *out, tern_error *err);
// A table (Markdown) of how fast the CPU's integer kernels are at each level of instructions that
// this processor has, on one thread and data in a cache. Takes seconds.
TERN_API tern_status tern_machine_report(tern_text_fn on_text, void *user, tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
