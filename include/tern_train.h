// tern: training. Text becomes a vocabulary and shards of tokens; these become a model, or an
// adapter for one. docs/data.md and docs/training.md describe the same as commands.
//
//     tern_error err = {0};
//     const char *texts[] = {"texts/"};
//     tern_data_tokenizer_desc vocabulary = {0};
//     tern_data_build_desc shards = {0};
//     tern_train_desc run = {0};
//     vocabulary.source.paths = shards.source.paths = texts;
//     vocabulary.source.n_paths = shards.source.n_paths = 1;
//     shards.tokenizer = "tokenizer.json";
//     shards.valid = 0.01;
//     run.data = "shards";
//     run.out = "run";
//     if (tern_data_tokenizer("tokenizer.json", &vocabulary, NULL, &err) == TERN_OK &&
//         tern_data_build("shards", &shards, NULL, &err) == TERN_OK)
//         tern_train(&run, &err);
//     if (err.status != TERN_OK) puts(err.message);
//
// The rules at the top of tern.h hold here, too.
#ifndef TERN_TRAIN_H
#define TERN_TRAIN_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Text to train on --------------------------------------------------------------------------

typedef struct tern_data_source {
    // Files and folders (their .txt, .jsonl and, with arrays, .json files, by name); also
    // with .gz. JSON: an object per line or an array of objects, with the text as `field` or a
    // conversation (tern_data_shape). Everything else is text with `separator` between documents.
    const char *const *paths;
    size_t n_paths;
    const char *separator; // NULL: "<|endoftext|>"; "": a file is one document
    const char *field;     // NULL: "text", if it is not a conversation
    // [n_paths] How often tern_data_build takes the documents of each: 0.5 a half of them, 2 all
    // twice. Those that are held out are taken once. NULL: all weigh 1.
    const double *weights;
    // The same, read last: held out by tern_data_build, whatever `valid` is.
    const char *const *held_out;
    size_t n_held_out;
} tern_data_source;

typedef struct tern_data_tokenizer_desc {
    tern_data_source source;
    int32_t n_vocab;             // including special tokens and the 256 bytes, 0: 4096
    const char *split;           // "llama-bpe" (NULL), "qwen2", "gpt-2" ...: how words are split
                                 // off
    const char *const *specials; // additional ones, after <|endoftext|>, <|im_start|>, <|im_end|>
    size_t n_specials;
    bool no_bos;     // do not put <|endoftext|> before a text
    uint64_t memory; // bytes for counting words, 0: 512 MiB
    tern_progress_fn on_progress;
    void *user;
} tern_data_tokenizer_desc;

typedef struct tern_data_tokenizer_stats {
    uint64_t n_documents, n_bytes, n_words, n_different_words, n_forgotten_words;
    int32_t n_vocab; // fewer than requested if the text has too few repetitions
    double count_seconds, learn_seconds;
} tern_data_tokenizer_stats;

// Learns a byte-level BPE vocabulary. out: the name of a tokenizer.json, or a folder, which also
// gets a tokenizer_config.json. The same text gives the same file.
TERN_API tern_status tern_data_tokenizer(const char *out, const tern_data_tokenizer_desc *desc,
                                         tern_data_tokenizer_stats *stats, tern_error *err);

// What came from a path, in the training text.
typedef struct tern_data_share {
    uint64_t n_documents, n_tokens;
} tern_data_share;

typedef struct tern_data_build_desc {
    tern_data_source source;
    const char *tokenizer; // a tokenizer.json, a folder with one, or a .gguf
    // Tokens for the end of its vocabulary: a file with one in each line, a .json file with a list
    // of texts, or such a list itself, "[...]"; NULL: none. They are matched before text is
    // split; special ones in chats alone. A model that is trained on these shards
    // (tern_train_desc.init) grows by them.
    const char *add_tokens, *add_special_tokens;
    const char *end;         // token after a document; NULL: <|endoftext|>, else the tokenizer's
    double valid;            // share of the documents to hold out, 0 to 1
    uint64_t seed;           // of the choice
    bool keep_exact;         // keep documents with the same words as an earlier one
    bool drop_near;          // also drop near duplicates
    double threshold;        // their minimum similarity (Jaccard, five-word shingles), 0: 0.8
    uint64_t memory;         // bytes for remembering documents, 0: 1 GiB
    uint64_t shard_tokens;   // start a new shard after this many, 0: 2^26
    const char *licence;     // a line for the manifest, may be NULL
    tern_data_share *shares; // [source.n_paths], for the result; NULL: not wanted
    int n_threads;           // 0: one per core
    tern_progress_fn on_progress;
    // Things done as requested but perhaps not as intended, one sentence per call.
    void (*on_notice)(void *user, const char *sentence);
    void *user;
} tern_data_build_desc;

typedef struct tern_data_split {
    uint64_t n_documents, n_tokens, n_bytes; // bytes of text
    uint64_t n_unscored; // tokens of messages with "weight": 0 or "train": false: not learnt
    int32_t n_shards;
} tern_data_split;

// What a document is, by its structure. Conversations are rendered with the model's chat template.
typedef enum tern_data_shape {
    TERN_SHAPE_TEXT,
    TERN_SHAPE_MESSAGES,   // "messages", OpenAI's: also tools, tool_calls, reasoning_content
    TERN_SHAPE_SHAREGPT,   // "conversations" of "from" and "value"
    TERN_SHAPE_ALPACA,     // "instruction", "input", "output"
    TERN_SHAPE_COMPLETION, // "prompt" and "completion"
    TERN_SHAPE_PREFERENCE, // "chosen" and "rejected" answers to a "prompt"; the chosen is learnt
    TERN_SHAPE_COUNT
} tern_data_shape;
TERN_API const char *tern_data_shape_name(tern_data_shape shape);

typedef struct tern_data_build_stats {
    tern_data_split train, valid;
    uint64_t n_of_shape[TERN_SHAPE_COUNT]; // documents
    uint64_t n_left_out;                   // messages that are read and not learnt
    uint64_t n_not_drawn;                  // documents, because of weights below 1
    uint64_t n_read, n_same, n_near; // documents: all; dropped as exact and as near duplicates
    int32_t n_new_tokens, first_new_token; // that were added, and the first one's id
    double seconds;
} tern_data_build_stats;

// Writes train-00000.tern ..., valid-00000.tern ..., manifest.json and a copy of the tokenizer to a
// folder (docs/formats.md). The output does not depend on n_threads.
TERN_API tern_status tern_data_build(const char *folder, const tern_data_build_desc *desc,
                                     tern_data_build_stats *stats, tern_error *err);

typedef struct tern_data_inspect_desc {
    const char *tokenizer; // for the sample; NULL: tokenizer.json next to the shard, if any
    tern_format format;    // text or JSON
    int32_t n_sample;      // tokens of the first document to show, 0: 64
} tern_data_inspect_desc;
// Checks a whole shard and reports its contents.
TERN_API tern_status tern_data_inspect(const char *path, const tern_data_inspect_desc *desc,
                                       tern_text_fn on_text, void *user, tern_error *err);

// ---- Training ----------------------------------------------------------------------------------

// A group of processes that train one model. The library has no network code: the program that
// starts the processes supplies the two functions (the command line uses MPI's).
typedef struct tern_comm {
    int rank, size; // rank 0 writes checkpoints and the log
    void *self;
    // All-reduce: data[i] becomes the sum over all ranks, with the same bits on every rank. All
    // ranks begin the same sums in the same order; begin may return before the sum is done, finish
    // waits for all of them.
    bool (*sum_begin)(void *self, float *data, size_t n);
    bool (*sum_finish)(void *self);
} tern_comm;

typedef enum tern_recipe {
    TERN_RECIPE_BITNET = 0, // as BitNet b1.58 2B-4T: squared ReLU, sub-norms (arXiv:2504.12285)
    TERN_RECIPE_PAPER,      // as arXiv:2402.17764: SwiGLU, no sub-norms
    TERN_RECIPE_LLAMA,      // float weights: the baseline
} tern_recipe;

typedef enum tern_schedule {
    TERN_SCHEDULE_AUTO = 0,  // two stages for ternary models, cosine for float models
    TERN_SCHEDULE_TWO_STAGE, // learning rate and weight decay change halfway
    TERN_SCHEDULE_COSINE,    // to a tenth of the peak
    TERN_SCHEDULE_CONSTANT,
} tern_schedule;

// On a GPU ADAMW alone.
typedef enum tern_optimizer {
    TERN_OPTIMIZER_ADAMW = 0,
    TERN_OPTIMIZER_ADAMW8BIT, // moments of 8 bits, a quarter of the memory
    TERN_OPTIMIZER_MUON,      // for the matrices of layers; AdamW, with the same rate, for the rest
} tern_optimizer;

// How documents become windows of seq_len tokens. A document attends to itself alone in all of
// them.
typedef enum tern_packing {
    TERN_PACKING_WRAPPED = 0, // all text, one after the other, cut where a window ends
    TERN_PACKING_BFD,         // whole documents, by best fit decreasing; the rest is padding
    TERN_PACKING_NONE,        // a document for each window; the rest is padding
} tern_packing;

// What is learnt from preferences, where p is the model and r the one that it begins with:
typedef enum tern_train_loss {
    TERN_LOSS_AUTO = 0, // DPO
    TERN_LOSS_DPO,      // the chosen answer gains on the rejected one, by p / r (arXiv:2305.18290)
    TERN_LOSS_ORPO,     // the chosen answer, and its odds; without r (arXiv:2403.07691)
    TERN_LOSS_KTO,      // answers with labels, good or bad (arXiv:2402.01306)
} tern_train_loss;

// A line of the log; numbers that it does not have are NAN.
typedef struct tern_train_event {
    int64_t step, n_steps, n_tokens;
    double loss, valid_loss; // nats per token
    double rate, grad_norm, tokens_per_second, seconds_left;
    double pairs_per_second;    // instead of tokens
    double recall_1, recall_10; // share of held-out queries with their positive first, in the top
                                // 10
    // For preferences, in the last step or in those held out: beta times the difference of
    // log(p / r) (ORPO: of the mean log p) between better and worse answers, and how often it is
    // above 0.
    double reward_margin, reward_accuracy;
    // With a teacher: means over the tokens, and how often both like the same one best.
    double cross_entropy, kl, top1_agreement;
    // With valid_loss, qat and init: shares of weights whose rounded sign is another one than at
    // first, and of those that are 0 in one of both alone.
    double sign_flips, zero_changes;
    uint64_t cache_bytes; // while teacher_cache is written, before the first step: its size in all,
    double cache_share;   // and how much of it is there; else 0
    const char *checkpoint;      // just written, or NULL
    const char *prompt, *sample; // of sample_prompts, as the model read it, and its answer; or NULL
    // With valid_loss or ends_early: the least one so far and its step, 0: before training. Unless
    // no_best is set best.gguf gets the weights of that step.
    double best_valid_loss;
    int64_t best_step;
    bool ends_early; // early_stopping_patience has run out: also once if a resumed run had ended so
} tern_train_event;

// Bytes that a run takes at most, by the plan that it is computed by; on the CPU all are the
// host's.
typedef struct tern_train_memory {
    uint64_t weights, gradients, optimizer; // weights: also frozen ones
    uint64_t decoded; // a part of the weights: frozen matrices that are floats on the device
    uint64_t activations, logits; // of micro_tokens; a part of them, of a piece at a time
    uint64_t process;             // taken before: the program, vocabulary and data
    uint64_t host, device;        // all of them. WebGPU does not say what a GPU has
    uint64_t host_available;      // besides `process`; 0: unknown
} tern_train_memory;

// The plan of a run, reported before its first step.
typedef struct tern_train_info {
    const char *device;          // and its matrix kernels; valid during the callback
    int64_t n_params, n_ternary; // trained; those rounded in use, to -1, 0 and +1 or to qat's type
    int64_t n_all_params;        // also frozen ones
    tern_train_memory memory;
    uint64_t cache_bytes;    // of teacher_cache on the disk when it is complete; 0: there is none
    double cache_share;      // how much of it is there
    double seconds;          // of all steps, from a run of measured_tokens; NAN: not measured
    int32_t measured_tokens; // with tern_train_plan
    int32_t n_layers, n_embd, seq_len, batch_tokens;
    uint64_t n_tokens, n_valid_tokens; // of the data: for training, held out
    // Windows of an epoch, their tokens that no document fills, and tokens of documents beyond the
    // end of a window, which are not read.
    uint64_t n_windows, n_padding, n_truncated;
    uint64_t n_pairs, n_valid_pairs; // in training with pairs or preferences; else 0
    // Tokens that are scored, as shares of the text that was looked at for it; 1 unless only what
    // assistants say is learnt, or some messages are not. valid_share 0: there is no loss of
    // held-out text.
    double share, valid_share;
    int32_t batch_pairs;
    uint64_t n_cut_texts;                  // of the pairs: longer than seq_len
    int64_t step, n_steps;                 // step > 0: resumed from that step
    double n_epochs;                       // passes over the data in the whole run
    int64_t n_damaged;                     // newer checkpoints that were skipped
    int64_t n_dropped_lines;               // log lines of later steps, which will be written again
    int32_t n_new_tokens, first_new_token; // by which `init` grows, and the first one's id
    uint64_t start_bytes; // memory of tern_ternarize's start "gptq", beside the model; else 0
} tern_train_info;

typedef struct tern_train_desc {
    const char *data; // folder of `tern data build`: train-*, valid-*, tokenizer.json
    // Folder of checkpoints and log.jsonl, created if needed. A folder that already holds a run is
    // refused without `resume`; no other run may train in it meanwhile.
    const char *out;
    // The model to begin with: a GGUF or folder of any type, decoded to floats, ternary weights to
    // master weights. Recipe, shape and tokenizer are its own, and checkpoints keep what its file
    // says besides. If `data` was built with new tokens at the end of its vocabulary, it grows by
    // them: each one's rows of table and head begin as the means of those of the tokens that its
    // text was before, the others keep their bits. The rest has defaults for tuning: a rate of 0.02
    // / n_embd, of ternary weights 0.05 / n_embd, at least 1e-5, along a cosine, without weight
    // decay; sequences of 512 tokens, 8 a step.
    const char *init;
    // Not NULL: knowledge distillation (arXiv:1503.02531). The loss is
    // (1 - kd_ratio) cross entropy + kd_ratio T^2 KL(teacher || student), both at temperature T. A
    // decoder of any size and family with the vocabulary of `data`; it stays as it is.
    const char *teacher;
    float kd_ratio; // 0: 1; below 0: none, KL is only measured
    // Not NULL: the teacher runs over the text once, before the first step and without the student,
    // and this file keeps its best tokens for each scored one; KL is then of these and "the rest",
    // at temperature 1. A killed pass goes on; with the whole file no teacher is needed.
    const char *teacher_cache;
    int32_t teacher_top_k; // best tokens that are kept, 0: 64, or what the file has
    // How many of the others are drawn beside them, by their probability and `seed`: KL and
    // gradient are then on average those of all tokens. 0: none, or what the file has.
    int32_t teacher_tail;
    // Not NULL: quantization-aware training (arXiv:1712.05877). Every step computes with the
    // matrices of layers as files of this type hold them, "ptq1_0", "pq2_0", "q2_0", "tq1_0",
    // "tq2_0" (trits with a scale for each group), "q1_0", "q4_0" or "q8_0", and with inputs of 8
    // bits, as inference does; gradients go to floats behind them. Checkpoints have that type. For
    // float models, with `init` or the recipe llama.
    const char *qat;
    // With qat and init: a GGUF of the same model in that type. Training begins with its numbers:
    // the floats behind them are those of init, moved no further than needed. NULL: with those that
    // init's are rounded to.
    const char *qat_start;
    // With qat: steps of "warmup quantization", 0: none. Step s of them computes with
    // w + s / qat_warmup (rounded w - w); later ones, and all validations, with what files hold.
    int64_t qat_warmup;
    // Not NULL: trains an embedding model on pairs of texts (a .jsonl file, also with .gz, or a
    // folder): objects with "query", its "positive" and optionally "negatives", a list. Each query
    // must find its positive among all texts of a step, and the other way round (InfoNCE,
    // arXiv:1807.03748). With `init`, shape and tokenizer are the model's; without it, `data` is a
    // folder with a tokenizer. seq_len is the maximum length of a text in tokens.
    const char *pairs;
    // Not NULL: trains `init`, or an adapter for it, by preferences, a file as for `pairs`: objects
    // with a "prompt" and its "chosen" and "rejected" answers, each a text or a list of messages
    // (without a prompt: lists that begin alike); for KTO a "prompt", a "completion" and a "label",
    // true or false. seq_len is the maximum length of a prompt with its answer. The reference is
    // `init`; what it thinks of them is computed once, and kept in out/reference.bin.
    const char *preferences;
    tern_train_loss loss;
    float beta;            // how much the model is kept near the reference; of ORPO, the weight of
                           // the odds; 0: 0.1
    float label_smoothing; // of DPO: the share of pairs that may be the wrong way round, 0 to 0.5
    const char *held_out_pairs; // or preferences, for validation; NULL: none
    int32_t batch_pairs;        // per step, 0: 256, of preferences 16
    int32_t valid_pairs;        // held-out pairs used, at most; 0: 1000
    tern_pooling pooling;       // NONE: that of `init`, else the mean
    float temperature;          // divides the cosines, 0: 0.05; with a teacher the logits, 0: 1
    // The loss is the mean over vectors truncated to these sizes, so that vectors can be truncated
    // later (Matryoshka, arXiv:2205.13147). At most 7; the whole vector is always one more.
    const int32_t *sizes;
    size_t n_sizes;
    // > 0: trains an adapter (LoRA) of this rank for the frozen weights of `init`, which may be any
    // model that runs. Checkpoints are adapters; recipe and shape are the base model's.
    int32_t lora_rank;
    float lora_alpha; // B A is scaled by alpha / rank, 0: twice the rank
    bool rslora;      // by alpha / sqrt(rank) (arXiv:2312.03732), alpha 0: 16
    bool dora;        // with a trained length of each row of the sum (arXiv:2402.09353)
    bool peft;        // with each checkpoint, the adapter also as a folder of PEFT, OUT/peft
    // Some of "q,k,v,o,gate,up,down", or a folder's modules, "q_proj"; NULL and "all-linear": all.
    const char *lora_targets;
    // Weights of `init` that are not trained, which have neither gradients nor moments: some of
    // q,k,v,o,gate,up,down,norm,router, and parts of names in a folder or GGUF, with ranges of
    // layers: "embed_tokens,lm_head,layers.0-3,self_attn". Not with lora_rank; so are these two.
    const char *freeze;
    float layer_rate_decay; // the rate of layer l of n is times this^(n - l), 0: 1 (LLRD)
    float embedding_rate;   // peak rate of table and head, 0: as the others
    bool assistant_only;    // learn only the assistant's tokens in chats; the rest is context
    // Resume from the newest checkpoint in `out`, if there is one. It must be of the same run: only
    // n_steps, reporting, keeping, patience, and where it is computed (device, threads,
    // micro_tokens, gradient_checkpointing, bf16, comm) may differ. With another n_steps the rest
    // follows that run's schedule.
    bool resume;
    const char *preset; // "nano" (default), "tiny", "micro", "small", "medium"
    tern_recipe recipe;
    int32_t n_layers, n_embd, n_heads, n_kv_heads, n_ff, n_context; // 0: the preset's
    const char *act;    // "silu", "relu2", "gelu", "gelu_pytorch_tanh", NULL: the recipe's
    bool separate_head; // a separate output head instead of the embedding table
    int32_t seq_len, batch_tokens; // tokens per sequence; per step (of all processes)
    int32_t micro_tokens;          // computed at once, 0: at most 4096, on a GPU 32768
    // Keep what layers read from each other; compute the rest again in the backward pass: less
    // memory, more time, the same bits (arXiv:1604.06174).
    bool gradient_checkpointing;
    int64_t n_steps; // 0: 1000; a resumed run keeps its number
    tern_schedule schedule;
    tern_optimizer optimizer;
    // Trained matrices and tables are bfloat16, in memory and checkpoints: half of what their
    // floats take. Steps are rounded at random, by `seed` (arXiv:2010.06192). On the CPU; not with
    // lora_rank.
    bool bf16_masters;
    float rate, rate_2;       // peak learning rates of the first and second stage, 0: the preset's
    int64_t n_warmup;         // warm-up steps, 0: a twentieth, at most 375
    float weight_decay, clip; // 0: 0.1 (with init 0) and 1; negative: none
    uint64_t seed;
    bool in_order; // read the shards in order, not shuffled
    tern_packing packing;
    int32_t log_every, valid_every, valid_tokens, checkpoint_every; // 0: 10, 250, 65536, 500
    int32_t keep;                                                   // checkpoints, 0: 2
    // Texts for the model to continue, one a line; in a .jsonl file {"prompt": ...}, or chats as
    // tern_chat_format_json takes them; at most 64. Before the first step and every sample_every
    // (0: valid_every) it says sample_tokens (0: 64) of the likeliest tokens to each, in events and
    // the log. Not for embedding models.
    const char *sample_prompts; // NULL: none
    int32_t sample_every, sample_tokens;
    bool tensorboard; // the log also as a file of events in `out`, for TensorBoard
    // Stops after this number of validations without a lower loss, as at n_steps; 0: never.
    int32_t early_stopping_patience;
    bool no_best; // do not keep the weights with the least loss of held-out text as best.gguf
    const char *device, *cpu_features; // "cpu" (default) or "webgpu"
    const tern_webgpu_desc *webgpu;    // see tern_model_desc
    int n_threads;
    bool bf16;             // float products may round their factors to bf16 where that is fast
    const tern_comm *comm; // NULL: one process
    void (*on_begin)(void *user, const tern_train_info *info);
    // False: write a checkpoint and stop, with TERN_ERR_CANCELLED.
    bool (*on_event)(void *user, const tern_train_event *event);
    // The same after every step, without a loss, and without the speed if the device is behind.
    bool (*on_step)(void *user, const tern_train_event *event);
    void *user;
} tern_train_desc;
// Trains on shards made by `tern data build`. A checkpoint is a model that runs; with the same
// desc, a run that was stopped at any moment resumes to the same numbers, bit for bit. Validation
// finds the best one, which is kept as best.gguf, without what resuming needs.
TERN_API tern_status tern_train(const tern_train_desc *desc, tern_error *err);
// Reports to on_begin what tern_train would do and need, measures its speed for some seconds (not
// of contrastive training), and neither trains nor writes anything; `out` may be NULL. As
// tern_train, it refuses a run that the host's memory cannot hold.
TERN_API tern_status tern_train_plan(const tern_train_desc *desc, tern_error *err);
// A learning rate for this run: TERN_TRAIN_RATES steps whose rate rises from 1e-7 to 1, until the
// loss does (arXiv:1506.01186). Writes nothing; `out` of the desc may be NULL.
#define TERN_TRAIN_RATES 100
typedef struct tern_train_rate_loss {
    double rate, loss, smoothed; // over the last ten steps
} tern_train_rate_loss;
typedef struct tern_train_rates {
    tern_train_rate_loss tried[TERN_TRAIN_RATES];
    size_t n;
    double rate; // to begin with: the smaller of that of the steepest fall, and a tenth of that of
                 // the least loss; NAN: the loss did not fall
} tern_train_rates;
TERN_API tern_status tern_train_find_rate(const tern_train_desc *desc, tern_train_rates *out,
                                          tern_error *err);
// Plots the losses of one or more logs: an image, .svg, or the numbers, if the name ends in .csv. A
// name with another ending is refused.
TERN_API tern_status tern_train_plot(const char *const *logs, size_t n_logs, const char *out,
                                     tern_error *err);

// ---- From floats to trits ----------------------------------------------------------------------

// What tern_ternarize does, one after the other, and the files that are there once it is done, in
// the folder `work` but for the model.
typedef enum tern_ternarize_stage {
    TERN_TERNARIZE_ANSWERS, // answers.jsonl: what the model itself says, if that is wanted
    TERN_TERNARIZE_DATA,    // data/: the texts as shards of the model's tokens
    TERN_TERNARIZE_MEASURE, // imatrix.gguf: how large the inputs of matrices are (tern_imatrix)
    TERN_TERNARIZE_START,   // start.gguf: the model rounded, as it is before training
    TERN_TERNARIZE_HEAL,    // heal/, heal.json: a run of tern_train that learns from the model
    TERN_TERNARIZE_EXPORT,  // `out`: the best weights of the run; embedding and head in 8 bits
    TERN_TERNARIZE_REPORT,  // report.md, report.json, loss.svg: what all this costs
    TERN_TERNARIZE_STAGES
} tern_ternarize_stage;
TERN_API const char *tern_ternarize_stage_name(tern_ternarize_stage stage); // "answers" ...

typedef struct tern_ternarize_desc {
    const char *model; // a decoder in floats, GGUF or folder
    const char *out;   // the ternary model, a name that ends in .gguf
    const char *work;  // a folder, created if needed; NULL: `out` with .work in place of .gguf
    // Texts to learn; those that are held out choose the best weights, and the report is of them
    // alone. Without source.held_out `valid` is the share of the documents that is, 0: 0.01.
    tern_data_source source;
    double valid;
    // Not 0: learns this many answers of the model itself, too, which tern_datagen makes; the same
    // prompt may be asked again.
    int64_t n_answers;
    const char *prompts; // lines of JSON, as tern_datagen_desc.seeds; NULL: beginnings of the texts
    const char *type;    // "ptq1_0", "pq2_0" (NULL), "q2_0", "tq1_0", "tq2_0" or "q1_0"
    // How it is rounded before training: "rtn" (NULL), each group by itself; or "gptq", each matrix
    // by the products of its inputs over measure_tokens (arXiv:2210.17323), and experts by "rtn";
    // training then begins with these numbers.
    const char *start;
    // Whether inputs of matrices are rotated before they are rounded, and weights with them: a
    // Walsh-Hadamard transform with random signs, in the work folder's rotated.gguf. Rounding loses
    // less; `out` says it, and few other programs read that. For pq2_0 and ptq1_0, on the CPU.
    bool rotate;
    // How it is healed: rates, lengths, device, threads. `data`, `out`, `init`, `qat`, `qat_start`
    // and `resume` are set here and NULL; the teacher is the model unless there is one, and the
    // loss KL alone unless kd_ratio says otherwise. on_begin gets the plan, with measured seconds,
    // before anything of the model is computed, and again as training begins.
    tern_train_desc train;
    uint64_t n_tokens;      // learnt, instead of train.n_steps
    int32_t measure_tokens; // 0: 131072
    int32_t report_tokens;  // of held-out text, at most, 0: 65536
    // In the report beside these: files of the same model from elsewhere, as the IQ type of equal
    // size; and how often each answers questions rightly. tasks: names and task files of
    // tern_eval_run with commas between, NULL: none; their items are found in tasks_folder, at most
    // n_task_items of each file (0: all).
    const char *const *compared;
    size_t n_compared;
    const char *tasks, *tasks_folder;
    int32_t n_task_items;
    uint32_t stages; // 1 << tern_ternarize_stage, ORed; 0: all
    // Before each stage; is_done: its files are there, and it is passed over.
    void (*on_stage)(void *user, tern_ternarize_stage stage, bool is_done);
    tern_progress_fn on_progress; // of all stages but training
    void *user;                   // of both
} tern_ternarize_desc;
// Makes a float model ternary and reports what that costs: perplexity, KL and likeliest tokens,
// size and speed, beside the model, the rounded model before training, Q4_K_M and Q2_K. The same
// desc goes on after any end, also of the process, to the same model, bit for bit; a stage is
// repeated by removing its files, the report also by asking for another one. A folder that was
// begun with another model, text or setting is refused. A model that cannot be trained so is
// refused before any work.
TERN_API tern_status tern_ternarize(const tern_ternarize_desc *desc, tern_error *err);
// Reports to train.on_begin what training would do and need, and how long it would take, as
// tern_train_plan; does the first two stages alone.
TERN_API tern_status tern_ternarize_plan(const tern_ternarize_desc *desc, tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
