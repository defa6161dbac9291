// Private to training: shared by its files.
//
//   presets.c      sizes, recipes and schedules as the papers have them
//   trainer.c      graphs, arrays on the device
//   grow.c         a model's vocabulary becomes that of its data, which has new tokens
//   first_weights.c  random, or decoded from a model of any type and format
//   plan.c         what a run needs and will do, before it takes any memory
//   step.c         a step: batches, gradients, the sum over a group, the update
//   train.c        the loop: validation, reports, when to write checkpoints
//   find_rate.c    a short run that finds a learning rate
//   log.c          a run's report, line by line
//   samples.c      what the model says meanwhile
//   parts.c        which weights are trained, and how fast
//   qat.c          which of them are rounded in every step
//   identity.c     what identifies a run: a resumed one must have the same
//   checkpoint.c   a model with its moments in a GGUF file: written whole or not at all
//   lora.c         adapters for a frozen base; peft.c: their checkpoint as a folder for PEFT
//   pairs.c        pairs of texts: for embedding models (contrast.c) and preferences
//   preferences.c  a step of pairs of answers; preference_loss.c: its loss
//   data/          from texts and chats to shards of tokens, and how documents fill windows
//   teacher.c      another model whose logits are learnt; teacher_cache.c: kept in a file,
//                  which teacher_pass.c writes
//   ternarize/     from a float model to a ternary one, by what is here and in tasks
//   plot/          a log as an image
#ifndef TERN_TRAIN_TRAINER_H
#define TERN_TRAIN_TRAINER_H

#include "base/dtype/ternary.h"
#include "base/os/team.h"
#include "base/strbuf.h"
#include "formats/formats.h"
#include "formats/shard/shard.h"
#include "input/input.h"
#include "kernels/train.h"
#include "models/models.h"
#include "tern_train.h"

// ---- Presets and schedules ---------------------------------------------------------------------

typedef struct tern_train_preset {
    const char *name;
    int32_t n_layers, n_embd, n_heads, n_ff;
    float rate, rate_2; // peaks of the two stages
    int32_t batch_tokens, seq_len;
} tern_train_preset;
const tern_train_preset *tern_train_preset_find(const char *name);
// Refuses choices that do not exist.
tern_status tern_train_check(const tern_train_desc *d, tern_error *err);
// desc with every default filled in from its preset and recipe; *config: the model's; an input for
// an adapter.
tern_status tern_train_settle(tern_train_desc *desc, tern_config *config, tern_error *err);

// Sets the number of steps (0: 1000) and the warm-up that follows from it unless one is given.
void tern_train_set_steps(tern_train_desc *d, int64_t n_steps, int64_t wished_warmup);
// Refuses a run whose tokens cannot be counted.
tern_status tern_train_check_length(const tern_train_desc *d, tern_error *err);

// Learning rate and weight decay of a step, 1 <= step <= n_steps.
float tern_train_rate(const tern_train_desc *d, int64_t step);
float tern_train_decay(const tern_train_desc *d, int64_t step);

// The processes that train together, and which of them this is.
static inline int tern_train_ranks(const tern_train_desc *d) { return d->comm ? d->comm->size : 1; }
static inline int tern_train_rank(const tern_train_desc *d) { return d->comm ? d->comm->rank : 0; }

// ---- The trainer -------------------------------------------------------------------------------

typedef struct tern_assistant tern_assistant; // train/data/data.h
typedef struct tern_lora_base tern_lora_base;
typedef struct tern_train_samples tern_train_samples;
typedef struct tern_contrastive tern_contrastive;
typedef struct tern_preferring tern_preferring;
typedef struct tern_teacher tern_teacher;

// Tokens that the data has at the end of the model's vocabulary, and what their texts were before.
typedef struct tern_grown {
    int32_t first, n;
    int64_t n_rows;  // of the model's table before
    tern_ids pieces; // of all new tokens
    size_t *ends;    // [n] of each in pieces
} tern_grown;

// A program with the arrays that its graph's values are bound to.
typedef struct tern_train_program {
    tern_graph graph;
    tern_train_array **arrays; // by value; they belong to the trainer
    tern_program *program;
} tern_train_program;

// Numbers on the device, by name: weights, gradients, moments, sums.
typedef struct tern_slot {
    const char *name;
    tern_train_array *array;
    uint64_t n_rows, n_cols;
    uint64_t n_parts;     // of a weight: stacked matrices, which share its rows; 1: it is one
    uint64_t codes_bytes; // of a frozen matrix that stays as codes; 0: floats
    bool is_weight, is_matrix;
    bool is_decoded; // a frozen matrix that is floats
    bool is_ternary; // a master weight that is rounded in use
    bool is_kept;    // part of a checkpoint: weights, moments, the loss so far
    bool is_packed;  // bytes, not floats: 8-bit moments
    bool is_bf16;    // a master weight in bfloat16, also in checkpoints
    tern_dtype type; // of a weight in the files of the model: F32, or what each step rounds it to
} tern_slot;

// The least loss of held-out text, its step, and how many validations came after it: part of a
// checkpoint.
typedef struct tern_train_best {
    float loss;
    int64_t step, n_since;
    bool is_known;
} tern_train_best;
// Reports that a step owes. A run that is stopped while it makes them has them in its checkpoint.
enum { TERN_DUE_VALID = 1, TERN_DUE_SAMPLES = 2, TERN_DUE_ALL = 3 };

// Takes the next validation; true: it is the best one.
bool tern_train_best_take(tern_train_best *b, int64_t step, double loss);

typedef struct tern_trainer {
    tern_train_desc desc;                // all defaults filled in
    int64_t wished_steps, wished_warmup; // as in the caller's desc, 0: not set
    uint32_t init_sum;                   // CRC-32 of the weights of desc.init, 0: none
    tern_dtype qat;                      // with desc.qat: its type
    tern_team *qat_team;                 // and who rounds to it on the host
    tern_file *qat_start;                // or NULL
    tern_config config;
    tern_config factors; // of desc.init, with those that its GGUF has in its weights
    const tern_arch *arch;
    const tern_train_backend *backend;
    tern_trainer_device *device;
    tern_train_program train, update, score; // forward and backward; AdamW; forward alone
    size_t n_forward; // nodes of the graph of `train` before those of the backward pass
    tern_slot *slots;
    size_t n_slots, slots_capacity;
    tern_train_memory memory;     // planned
    tern_token_set *data, *valid; // valid: NULL when there is none
    bool data_has_spans;          // some of its text is not scored
    tern_tokenizer *tokenizer;
    tern_file *tokenizer_file;       // its source, NULL: the base's
    char *chat_template;             // of the data's tokenizer_config.json, or NULL
    tern_grown grown;                // new tokens of the model
    tern_lora_base *base;            // for an adapter, NULL: all weights are trained
    tern_contrastive *contrastive;   // for an embedding model, which has no `data`; else NULL
    tern_preferring *preferring;     // for preferences, likewise
    tern_teacher *teacher;           // whose logits are learnt, NULL: none
    tern_assistant *assistant;       // which tokens are learnt, NULL: all
    int32_t end_id;                  // of a document, -1: none
    bool has_own_bos;                // a text begins with a token other than end_id
    double share, valid_share;       // scored tokens among those that were looked at
    bool begins_by_marks;            // documents begin where the shards mark it, not at end tokens
    int64_t step;                    // steps done
    int64_t n_damaged;               // damaged checkpoints skipped on resume
    tern_train_best best;            // of the validations so far
    int32_t reports_due;             // TERN_DUE_..., of the last step: not made yet
    tern_train_samples *samples;     // NULL: none
    int32_t steps_in_loss;           // steps summed in the array "loss"
    int64_t scored_in_loss;          // scored tokens in it
    int32_t *ids, *targets, *starts; // of this process' part of a step
    uint8_t *marks;                  // [seq_len + 1]
    int32_t *sequence;               // [seq_len + 1]
    uint32_t n_arrays_pending;       // gradients that the group is summing
} tern_trainer;

// A trainer that can run: lay_out opens the data and the device and plans the programs, take checks
// that the machine has the memory, and takes it.
tern_status tern_trainer_open(tern_trainer **out, const tern_train_desc *desc, tern_error *err);
tern_status tern_trainer_lay_out(tern_trainer **out, const tern_train_desc *desc, tern_error *err);
tern_status tern_trainer_take(tern_trainer *t, tern_error *err);
void tern_trainer_close(tern_trainer *t);
// Whether steps are of pairs of texts, and not of tokens.
static inline bool tern_trainer_has_pairs(const tern_trainer *t) {
    return t->contrastive || t->preferring;
}
// Reads the shape of desc->init, which is kept open as the source of the tokenizer.
tern_status tern_trainer_read_init(tern_trainer *t, tern_error *err);
// Keeps the chat template of a tokenizer's folder; a GGUF has it in it.
tern_status tern_trainer_take_template(tern_trainer *t, const tern_file *file, tern_error *err);
tern_slot *tern_trainer_slot(tern_trainer *t, const char *name); // NULL: none
// Runs one of the three programs. Where arrays are in the host's memory and no other process waits,
// all but the update stop within it when this thread is cancelled.
tern_status tern_trainer_run(tern_trainer *t, const tern_train_program *p, tern_train_batch *b,
                             tern_error *err);
bool tern_trainer_has_host(const tern_trainer *t); // arrays are in the host's memory
// Initial weights: normal with deviation 0.02 (at the end of a residual branch divided by sqrt(2
// layers), as in GPT-2), norms 1; or those of the model desc->init.
tern_status tern_trainer_init_weights(tern_trainer *t, tern_error *err);
// Normal numbers that depend on the seed and the weight's name alone.
void tern_trainer_normal(const tern_trainer *t, const tern_slot *s, float deviation, float *data);
// A slot's numbers in desc.init, as training begins with them.
tern_status tern_trainer_read_first(const tern_trainer *t, const tern_slot *s, float *data,
                                    tern_error *err);
// Signs of a file whose weights are rotated.
tern_status tern_trainer_write_signs(const tern_trainer *t, const tern_file *file,
                                     const tern_slot *s, tern_error *err);
// What is read but not trained of desc.init: RoPE's factors, which programs read as they are
// compiled, and signs.
tern_status tern_trainer_load_factors(tern_trainer *t, tern_error *err);
bool tern_all_finite(const float *x, uint64_t n); // neither infinite nor NaN

typedef struct tern_weight_rows tern_weight_rows;
// An adapter's base, or a teacher: its weights are read as they run, and not trained (lora.c).
typedef struct tern_frozen {
    const tern_file *file;
    const tern_arch *arch;
    const tern_config *config;
    const tern_config *factors; // that a folder's numbers get, as in a GGUF; NULL: none
    tern_ternary_kind *kinds;   // by value of the built graph
    tern_weight_rows *coded;    // likewise; of those that stay in the file's types
    size_t n_kinds;
    uint32_t sum; // CRC-32 over the beginnings of the weights that were loaded
} tern_frozen;
// The numbers of a graph's weight v in a file, row by row, in GGUF's order. open finds the tensor;
// begin reads it, as codes if `kind` is ternary. close also after a failed open.
struct tern_weight_rows {
    tern_tensor tensor;
    tern_ternary_kind kind;
    tern_codes codes;
    tern_moves moves;   // of rows and columns, into GGUF's order
    tern_change change; // of numbers, likewise
    const tern_frozen *from;
    const char *name; // of the weight
    float *scratch;   // a row, where columns move
};
tern_status tern_weight_rows_open(tern_weight_rows *out, const tern_frozen *from,
                                  const tern_value *v, tern_error *err);
tern_status tern_weight_rows_begin(tern_weight_rows *r, const tern_ternary_kind *kind,
                                   tern_error *err);
void tern_weight_rows_read(tern_weight_rows *r, int64_t row, float *out);
// For several threads at once, each with a room of TERN_TRAIN_ROOM(columns) floats.
void tern_weight_rows_read_in(const tern_weight_rows *r, int64_t row, float *room, float *out);
void tern_weight_rows_close(tern_weight_rows *r);
// Whether a step may have unscored tokens.
bool tern_trainer_masks(const tern_trainer *t);
// Puts a sequence into rows [row, row + seq_len) and counts the scored tokens. at: the epoch, and
// its number in it.
tern_status tern_trainer_fill(tern_trainer *t, tern_token_set *set, uint64_t at[2], int32_t row,
                              int64_t *n_scored, tern_error *err);

// An event of this step without any numbers.
tern_train_event tern_trainer_event(const tern_trainer *t);
// Rows [first, first + n_tokens) of those that were filled.
tern_train_batch tern_trainer_batch(const tern_trainer *t, int32_t first, int32_t n_tokens);
// Step t->step + 1: its gradients, and the optimizer's update with this rate and decay.
tern_status tern_trainer_step(tern_trainer *t, float rate, float decay, tern_error *err);
// What is added up over steps, or over held-out text: the losses of the tokens. With a teacher
// these are the cross entropies, and there are two more sums.
typedef struct tern_train_sums {
    float loss, kl, agreement;
} tern_train_sums;
tern_status tern_trainer_read_sums(tern_trainer *t, tern_train_sums *out, tern_error *err);
tern_status tern_trainer_write_sums(tern_trainer *t, const tern_train_sums *s, tern_error *err);
tern_status tern_trainer_join_sums(tern_trainer *t, tern_train_sums *s,
                                   tern_error *err);                       // of ranks
double tern_trainer_loss(const tern_trainer *t, const tern_train_sums *s); // that is trained
// Replaces each rank's number by the sum over all.
tern_status tern_trainer_sum(tern_trainer *t, float *x, tern_error *err);

// ---- Parts (parts.c) ---------------------------------------------------------------------------

// Refuses settings that are out of range, and those of whole models for an adapter.
tern_status tern_parts_check(const tern_train_desc *d, tern_error *err);
// Sets frozen[v], zero before, for weights of a model's graph that are not trained.
tern_status tern_parts_frozen(const tern_trainer *t, const tern_graph *g, bool *frozen,
                              tern_error *err);
// Gives each weight's step its factor of the rate.
void tern_parts_set_rates(const tern_trainer *t, tern_graph *update);
// Appends them to the run's identity, inside of a string.
void tern_parts_describe(const tern_train_desc *d, tern_strbuf *out);

// ---- Quantization-aware training (qat.c) -------------------------------------------------------

// Refuses types without a quick rule, and models that are not floats; does nothing without
// desc.qat, and so do these.
tern_status tern_qat_open(tern_trainer *t, tern_error *err);
void tern_qat_close(tern_trainer *t);
// Moves a slot's numbers, as desc.init has them, to those that are rounded to desc.qat_start's.
tern_status tern_qat_take_start(const tern_trainer *t, const tern_slot *s, float *data,
                                tern_error *err);
// Rounds the matrices of a model's graph as its architecture built it.
tern_status tern_qat_round(const tern_trainer *t, tern_graph *g, tern_error *err);
// After it: the first matrix of a layer that stays in floats because its rows are not whole blocks;
// NULL: there is none.
const tern_value *tern_qat_left(const tern_trainer *t, const tern_graph *g);
// The blocks of a slot with a type, which the caller frees even after a failure; masters, its
// numbers, become what these say.
tern_status tern_qat_encode(const tern_trainer *t, const tern_slot *s, float *masters, void **out,
                            uint64_t *bytes, tern_error *err);
// Shares of the rounded weights with another sign than in desc.init, rounded likewise, and of those
// that are 0 in one of them alone; NAN: there is none, or other types than of trits and signs.
typedef struct tern_qat_moved {
    double sign_flips, zero_changes;
} tern_qat_moved;
tern_status tern_qat_changes(tern_trainer *t, tern_qat_moved *out, tern_error *err);
// How much of the masters a step's rounded matrices still are.
float tern_qat_unrounded(const tern_train_desc *d, int64_t step);
// Appends its part of the run's identity.
void tern_qat_describe(const tern_trainer *t, tern_strbuf *out);

// ---- New tokens (grow.c) -----------------------------------------------------------------------

// If the tokenizer beside the data has new tokens after the model's own, the model's file gets
// them, in memory; t->tokenizer, which is open, is opened again. Else nothing changes.
tern_status tern_grown_open(tern_trainer *t, tern_error *err);
void tern_grown_close(tern_grown *g);
// Whether this weight has a row for each token, and new ones.
bool tern_grown_has(const tern_trainer *t, const tern_slot *s);
// Sets the rows of the new tokens; the others are set.
void tern_grown_fill(const tern_trainer *t, const tern_slot *s, float *data);

// ---- The plan ----------------------------------------------------------------------------------

// Fills t->memory from plans of the programs: nothing is taken.
tern_status tern_plan_memory(tern_trainer *t, tern_error *err);
// Refuses a run that the machine's memory cannot hold, and says what would fit.
tern_status tern_plan_check(tern_trainer *t, tern_error *err);
// Finds the shares of scored tokens; a run that would learn nothing is refused.
tern_status tern_plan_shares(tern_trainer *t, tern_error *err);
tern_train_info tern_plan_info(const tern_trainer *t);

// ---- Frozen models -----------------------------------------------------------------------------

// Lowers its graph as inference does, and says which matrices stay in the file's types.
tern_status tern_frozen_lower(const tern_trainer *t, tern_frozen *f, tern_graph *g,
                              tern_error *err);
// Fills the slot with the numbers of weight w.
tern_status tern_frozen_load(tern_trainer *t, tern_frozen *f, const tern_graph *g, tern_vid w,
                             tern_slot *s, tern_error *err);
void tern_frozen_free(tern_frozen *f); // after the device's arrays

// ---- Teachers (teacher.c) ----------------------------------------------------------------------

// Opens desc->teacher, whose vocabulary must be that of the student's tokenizer, which is open.
tern_status tern_teacher_open(tern_trainer *t, tern_error *err);
void tern_teacher_close(tern_teacher *teacher); // NULL is allowed
// From the student's graph to one that ends in the loss: of both, unless a cache is learnt from.
tern_status tern_teacher_join(tern_trainer *t, tern_graph *g, tern_error *err);
// Fills its slots, before anything is compiled.
tern_status tern_teacher_load(tern_trainer *t, tern_error *err);
// Appends its part of the run's identity.
void tern_teacher_describe(const tern_trainer *t, tern_strbuf *out);

// ---- A teacher's cache (teacher_cache.c) -------------------------------------------------------

typedef struct tern_teacher_cache tern_teacher_cache;
// desc.teacher_cache, which may not be there yet. A file of other text, of another teacher or K is
// refused with the differences.
struct tern_teacher {
    tern_file *file; // NULL: a whole cache needs none
    const tern_arch *arch;
    tern_config config;
    tern_frozen frozen;
    tern_graph graph;          // as inference has it
    tern_teacher_cache *cache; // NULL: it runs in each step
};
tern_status tern_teacher_cache_open(tern_trainer *t, tern_error *err);
void tern_teacher_cache_close(tern_teacher_cache *cache); // NULL is allowed
// *bytes: the whole file, 0: there is no cache; *share: how much of it is there.
void tern_teacher_cache_sizes(const tern_trainer *t, uint64_t *bytes, double *share);
// Finds the size, and fails if the disk has no room for the missing part.
tern_status tern_teacher_cache_plan(tern_trainer *t, tern_error *err);
// Writes the missing windows, for which it loads the teacher and frees it again. Fails if another
// process is writing them.
tern_status tern_teacher_cache_fill(tern_trainer *t, tern_error *err);
tern_top tern_teacher_cache_top(const tern_trainer *t);
// "llama, 8a3f00c1, top 64"
const char *tern_teacher_cache_name(const tern_teacher_cache *cache);
// Without a cache the next two do nothing. Notes which sequence is in the rows from `row` on; gives
// the device what the teacher says of rows [first, first + n_tokens).
void tern_teacher_cache_note(tern_trainer *t, const tern_token_set *set, const uint64_t at[2],
                             int32_t row);
tern_status tern_teacher_cache_feed(tern_trainer *t, int32_t first, int32_t n_tokens,
                                    tern_error *err);

// Between what reads a cache and what writes it.
struct tern_teacher_cache {
    const char *path;
    int fd;              // to read, -1: not there
    uint64_t n_bytes;    // of it, when it was opened
    uint64_t n_train, n; // windows: to learn, and all
    int32_t n_top, n_tail;
    uint64_t seed;     // of the draws
    tern_strbuf head;  // all before the windows; empty: not known yet
    uint64_t *firsts;  // [n + 1] rows before each window; NULL as long
    bool is_whole;     // no window is missing
    char name[96];     // of the teacher, with K and N
    uint64_t *windows; // of the sequences of a step
    float *rows;       // of a window, and its checksum
};

static inline size_t tern_teacher_cache_width(const tern_teacher_cache *c) {
    return 2 * ((size_t)c->n_top + (size_t)c->n_tail) + 1;
}
// Rows of a window.
static inline uint64_t tern_teacher_cache_rows(const tern_teacher_cache *c, uint64_t window) {
    return c->firsts[window + 1] - c->firsts[window];
}
// Where a window begins; of n: the size of the file.
uint64_t tern_teacher_cache_place(const tern_teacher_cache *c, uint64_t window);
// Fills the trainer's rows from `row` on with a window.
tern_status tern_teacher_cache_take(tern_trainer *t, uint64_t window, int32_t row,
                                    int64_t *n_scored, tern_error *err);
// To c->rows, for a window that was taken to `row`.
tern_status tern_teacher_cache_read(const tern_trainer *t, uint64_t window, int32_t row,
                                    tern_error *err);
// The checksum of n_rows in c->rows, and whether a teacher can have said them.
uint32_t tern_teacher_cache_sum(const tern_trainer *t, uint64_t n_rows, int32_t row);
bool tern_teacher_cache_are_sound(const tern_trainer *t, uint64_t n_rows);

// ---- Adapters ----------------------------------------------------------------------------------

// Opens desc->init; t->arch and t->config become the base's.
tern_status tern_lora_open(tern_trainer *t, tern_error *err);
void tern_lora_close(tern_lora_base *base); // NULL is allowed
float tern_lora_scale(const tern_train_desc *d);
const tern_file *tern_lora_file(const tern_lora_base *base);
// The base's graph with the adapter in it, lowered as inference lowers it.
tern_status tern_lora_build(tern_trainer *t, tern_graph *g, tern_error *err);
// Whether this weight is trained, as part of the adapter.
bool tern_lora_is_trained(const tern_value *v);
bool tern_lora_is_base(const tern_value *v); // a weight of the base
// Fills the frozen slots, before anything is compiled; then A and B.
tern_status tern_lora_load_base(tern_trainer *t, tern_error *err);
tern_status tern_lora_init(tern_trainer *t, tern_error *err);
// Metadata of an adapter's file besides the training settings.
tern_status tern_lora_put_meta(const tern_trainer *t, tern_gguf_writer *w);
// Writes OUT/peft: the adapter as transformers' PEFT has it, in the order and with the names of the
// base's folder. can_write fails before the first step if the family cannot be written so.
tern_status tern_peft_can_write(const tern_trainer *t, tern_error *err);
tern_status tern_peft_write(tern_trainer *t, tern_error *err);
// Appends the targets by their names on the command line; a checksum of the base's weights.
void tern_lora_put_targets(const tern_lora_base *base, tern_strbuf *out);
uint32_t tern_lora_base_sum(const tern_lora_base *base);

// ---- Embedding models (contrast.c) -------------------------------------------------------------

// Called in this order: reads the shape of desc->init, if given; opens its tokenizer and the pairs;
// says how many vectors a graph must have room for; allocates what a step needs besides graphs.
tern_status tern_contrastive_open(tern_trainer *t, tern_error *err);
tern_status tern_contrastive_read(tern_trainer *t, tern_error *err);
int64_t tern_contrastive_n_vectors(const tern_trainer *t);
tern_status tern_contrastive_ready(tern_trainer *t, tern_error *err);
uint64_t tern_contrastive_bytes(const tern_trainer *t); // that the last one takes
void tern_contrastive_close(tern_contrastive *c);       // NULL is allowed
// Adds the gradients of step t->step + 1, and its loss to the slot "loss".
tern_status tern_contrastive_step(tern_trainer *t, tern_error *err);
// Loss among the held-out pairs, and the shares of queries whose positive is the nearest of all
// held-out positives, or among the nearest ten.
tern_status tern_contrastive_validate(tern_trainer *t, double *loss, double *recall_1,
                                      double *recall_10, tern_error *err);
bool tern_contrastive_validates(const tern_trainer *t);
void tern_contrastive_info(const tern_trainer *t, tern_train_info *info);
// Appends its part of the run's identity, as members of a JSON object.
void tern_contrastive_describe(const tern_trainer *t, tern_strbuf *out);

// ---- Preferences (preferences.c) ---------------------------------------------------------------

// Called in the order of the contrastive ones; refer: once the first weights are set.
tern_status tern_preferring_open(tern_trainer *t, tern_error *err);
tern_status tern_preferring_read(tern_trainer *t, tern_error *err);
tern_status tern_preferring_ready(tern_trainer *t, tern_error *err);
tern_status tern_preferring_refer(tern_trainer *t, tern_error *err);
void tern_preferring_close(tern_preferring *p); // NULL is allowed
tern_status tern_preferring_step(tern_trainer *t, tern_error *err);
// In the last step: by how much the better answer is rewarded more, and how often it is at all.
void tern_preferring_last(const tern_trainer *t, double *margin, double *accuracy);
bool tern_preferring_validates(const tern_trainer *t);
tern_status tern_preferring_validate(tern_trainer *t, double *loss, double *margin,
                                     double *accuracy, tern_error *err);
void tern_preferring_info(const tern_trainer *t, tern_train_info *info);
void tern_preferring_describe(const tern_trainer *t, tern_strbuf *out);

typedef struct tern_preference_loss {
    tern_train_loss kind; // not AUTO
    float beta, smoothing;
} tern_preference_loss;
typedef struct tern_preference_batch {
    size_t n;
    const double *logs, *reference; // [2 n] of the chosen and the rejected answer of each pair
    const int32_t *n_scored;        // [2 n] their tokens
    const uint8_t *labels;          // [n] for KTO, see tern_pairs; else NULL
    double *slopes;                 // [2 n] result: of the loss by the logs
    double loss, margin, accuracy;  // results
} tern_preference_batch;
void tern_preference_loss_run(const tern_preference_loss *f, tern_preference_batch *b);

// ---- What a run is (identity.c) ----------------------------------------------------------------

// Appends the identity as a JSON object: shape, recipe, schedule, seed, first weights, checksums of
// the data, tokenizer. Call after the first weights are set.
tern_status tern_identity_describe(const tern_trainer *t, tern_strbuf *out, tern_error *err);
// Its parts that say what the text is: members of an object, each after a comma.
void tern_identity_put_data(const tern_trainer *t, tern_strbuf *out);
// Fails with the names and values that differ if `run`, a value of doc or NULL, describes another
// run. place: where it was found.
tern_status tern_identity_check(const tern_trainer *t, const tern_json_doc *doc,
                                const tern_json *run, const char *place, tern_error *err);
// The same for another object, "mine".
tern_status tern_identity_compare(const tern_strbuf *mine, const tern_json_doc *doc,
                                  const tern_json *run, const char *place, tern_error *err);

// ---- The log (log.c) ---------------------------------------------------------------------------

// "OUT/log.jsonl": a JSON object per line. The first one is {"run": its identity, ...}, all others
// begin with "step". Each line is written at once and in one piece, so that others may follow the
// file; the last line of a killed process may lack its end.
typedef struct tern_train_log tern_train_log;
// Begins a log; keep: the existing one continues after step t->step. *n_dropped: lines of later
// steps, which the run will write again.
tern_status tern_train_log_open(tern_train_log **out, const tern_trainer *t, bool keep,
                                int64_t *n_dropped, tern_error *err);
void tern_train_log_close(tern_train_log *log); // NULL is allowed
// A line: begin, numbers, end. Infinities and NaN become null.
void tern_train_log_begin(tern_train_log *log, const tern_trainer *t);
void tern_train_log_number(tern_train_log *log, const char *key, int digits, double value);
void tern_train_log_numbers(tern_train_log *log, const char *key, const double *values, size_t n);
void tern_train_log_sample(tern_train_log *log, const char *prompt, const char *text);
tern_status tern_train_log_end(tern_train_log *log, tern_error *err);
// The last step in a folder's log, 0: none.
tern_status tern_train_log_steps(const char *folder, int64_t *n_steps, tern_error *err);
// Fails if the log in desc.out belongs to another run; a missing log is not an error.
tern_status tern_train_log_check(const tern_trainer *t, tern_error *err);

// ---- Samples (samples.c) -----------------------------------------------------------------------

// What the model says to the prompts of desc.sample_prompts, as a session computes it: its weights
// are written to OUT/sample.gguf, opened on the CPU, and removed.
tern_status tern_samples_open(tern_trainer *t, tern_error *err); // reads the prompts
void tern_samples_close(tern_train_samples *s);                  // NULL is allowed
typedef tern_status (*tern_sample_fn)(void *user, const char *prompt, const char *text,
                                      tern_error *err);
tern_status tern_samples_make(tern_trainer *t, tern_sample_fn on_sample, void *user,
                              tern_error *err);

// ---- Checkpoints -------------------------------------------------------------------------------

// "OUT/step-00001000.gguf": a model of float master weights that `tern run` loads, with the moments
// as tensors "adam.*", and under tern.train.* the step, the number of steps, the run's identity,
// and a CRC-32 of each tensor. Written whole under another name, then renamed; older ones beyond
// desc->keep are removed after that. An adapter's file has A and B only, since other programs read
// no file with more; the moments are in "OUT/step-00001000.adam.gguf", which is complete before the
// adapter gets its name. If a value is not finite, fails and leaves the existing files.
tern_status tern_checkpoint_write(tern_trainer *t, tern_error *err);
// "OUT/NAME": the weights alone, a model or an adapter that nothing is resumed from.
tern_status tern_checkpoint_write_weights(tern_trainer *t, const char *name, tern_error *err);
// After resuming: if best.gguf is not that of t->best, which a run that went on from here has
// replaced, it is written again, if the weights are those of the checkpoint, or else removed.
tern_status tern_checkpoint_check_best(tern_trainer *t, tern_error *err);
// Fails, before the first step, if the model or its tokenizer cannot be written to a checkpoint.
tern_status tern_checkpoint_try(tern_trainer *t, tern_error *err);
// Continues from the newest checkpoint of desc->out whose checksums are right. *found is false if
// there is none. One of another run is refused with the names of the differences. t->desc.n_steps
// becomes the checkpoint's unless the caller gave one. Then removes old ones, as writing does.
tern_status tern_checkpoint_resume(tern_trainer *t, bool *found, tern_error *err);
// How many checkpoints a folder has, and the step of the newest.
tern_status tern_checkpoint_count(const char *folder, size_t *n, int64_t *newest, tern_error *err);

#endif
