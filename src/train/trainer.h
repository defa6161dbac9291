// Private to training: what its files share.
//
//   presets.c      sizes, recipes and schedules as the papers have them
//   trainer.c      graphs, arrays on the device, first weights
//   train.c        the loop: batches, validation, the log, when to keep a checkpoint
//   checkpoint.c   a model with its moments in a GGUF file: written whole or not at all
//   plot.c         a log as a picture
#ifndef TERN_TRAIN_TRAINER_H
#define TERN_TRAIN_TRAINER_H

#include "formats/formats.h"
#include "formats/shard.h"
#include "input/input.h"
#include "kernels/train.h"
#include "models/models.h"

// ---- Presets and schedules ---------------------------------------------------------------------

typedef struct tern_train_preset {
    const char *name;
    int32_t n_layers, n_embd, n_heads, n_ff;
    float rate, rate_2;     // peaks of the two stages
    int32_t batch_tokens, seq_len;
} tern_train_preset;
const tern_train_preset *tern_train_preset_find(const char *name);
// desc with every default filled in from its preset and recipe; *config: the model's.
tern_status tern_train_settle(tern_train_desc *desc, tern_config *config, tern_error *err);

// Learning rate and weight decay of a step, 1 <= step <= n_steps.
float tern_train_rate(const tern_train_desc *d, int64_t step);
float tern_train_decay(const tern_train_desc *d, int64_t step);

// ---- The trainer -------------------------------------------------------------------------------

// A program with the arrays that its graph's values are bound to.
typedef struct tern_train_program {
    tern_graph graph;
    tern_array **arrays; // by value; they belong to the trainer
    tern_program *program;
} tern_train_program;

// Numbers on the device, by name: weights, gradients, moments, sums.
typedef struct tern_slot {
    const char *name;
    tern_array *array;
    uint64_t n_rows, n_cols;
    bool is_weight, is_matrix;
    bool is_ternary; // a master weight that is rounded in use
    bool is_kept;    // part of a checkpoint: weights, moments, the loss so far
} tern_slot;

typedef struct tern_trainer {
    tern_train_desc desc; // all settled
    tern_config config;
    const tern_arch *arch;
    const tern_train_backend *backend;
    tern_trainer_device *device;
    tern_train_program train, update, score; // forward and backward; AdamW; forward alone
    tern_slot *slots;
    size_t n_slots, slots_capacity;
    tern_token_set *data, *valid; // valid: NULL when there is none
    tern_tokenizer *tokenizer;
    char *chat_template;          // of the data's tokenizer_config.json, or NULL
    int32_t end_id;               // of a document, -1: none
    int64_t step;                 // steps done
    int32_t steps_in_loss;        // that the array "loss" holds
    int32_t micro_sequences;      // sequences of one run
    int32_t *ids, *targets, *starts;
    uint8_t *marks;               // [seq_len + 1]
    int32_t *sequence;            // [seq_len + 1]
    uint32_t n_arrays_pending;    // of the gradients that a group is summing
} tern_trainer;

tern_status tern_trainer_open(tern_trainer **out, const tern_train_desc *desc, tern_error *err);
void tern_trainer_close(tern_trainer *t);
tern_slot *tern_trainer_slot(tern_trainer *t, const char *name); // NULL: none
// The first weights: normal with deviation 0.02 (those that end a residual branch divided by
// sqrt(2 layers), as GPT-2's), norms 1; or those of the model desc->init.
tern_status tern_trainer_init_weights(tern_trainer *t, tern_error *err);

// ---- Checkpoints -------------------------------------------------------------------------------

// "OUT/step-00001000.gguf": a model of float master weights that `tern run` loads, with the moments
// as tensors "adam.*", and under tern.train.* the step, the settings that the rest of the run
// depends on, and a CRC-32 of each tensor. Written beside and renamed, so that a name is always a
// whole file; older ones beyond desc->keep are removed after that.
tern_status tern_checkpoint_write(tern_trainer *t, tern_error *err);
// Continues from the newest checkpoint of desc->out whose checksums are right. *found is false when
// there is none. One made with other settings is refused by name of the setting.
tern_status tern_checkpoint_resume(tern_trainer *t, bool *found, tern_error *err);

#endif
