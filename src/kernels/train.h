// What a device must do for training: keep arrays, and run graphs over them.
//
//   open ── array (each weight, gradient, moment, sum) ── compile (graph → program) ── run ── read
//
// The arrays outlive the programs: one program (forward and backward) reads the weights that
// another writes (the optimizer). A graph's weights and states are bound to arrays, value by value;
// temporaries belong to the program. Everything is float32, except matrices that are decoded where
// they are read (is_coded): frozen ones in the types of their file, and bfloat16 masters.
//
// run never waits: programs and writes take effect in the order of the calls; a read waits for
// everything before it. So a host that reads the loss only every tenth step keeps a GPU busy.
//
// Logits are computed for the scored rows alone, and in pieces (graph/scored.c): 128 MiB of them on
// the CPU; 512 MiB on a GPU, or what one binding holds.
//
// Results have the same bits in every run on one device: sums have a fixed order. On the CPU they
// depend neither on the number of threads nor on the instruction set (except float products in
// bf16, where each instruction set has its own) nor on the size of a piece, which is a multiple
// of the rows that a product adds up in one chain. One thread at a time may use a device.
#ifndef TERN_KERNELS_TRAIN_H
#define TERN_KERNELS_TRAIN_H

#include "kernels/backend.h"

typedef struct tern_trainer_device tern_trainer_device;
typedef struct tern_train_array tern_train_array; // numbers on the device
typedef struct tern_program tern_program;         // a compiled graph and its temporaries

typedef struct tern_trainer_desc {
    int n_threads;            // of the CPU, 0: one for each core
    const char *cpu_features; // see tern_model_desc
    bool bf16;                // float products may round their factors to bf16 where that is fast
    const tern_webgpu_desc *webgpu; // NULL: the defaults
    uint64_t piece_bytes;           // of the logits that are in memory at once, 0: the device's
} tern_trainer_desc;

// The rows of a frozen matrix, decoded from the caller's codes, which stay until the array is
// freed. Any number of threads call decode at once, each with its own room of
// TERN_TRAIN_ROOM(columns) floats.
typedef struct tern_train_codes {
    void (*decode)(const void *ctx, size_t row, float *room, float *out);
    const void *ctx;
    uint64_t bytes; // in the file
    // For devices that decode themselves: the matrix as its file has it; ternarize: it is ternary.
    // NULL: only decode knows its numbers. row_of: which of its rows a row is; NULL: the same.
    const tern_weight_source *source;
    size_t (*row_of)(const void *ctx, size_t row);
} tern_train_codes;
#define TERN_TRAIN_ROOM(n_cols) (3 * (n_cols) + 512)

// The inputs of a run; a program reads those that its ops need.
typedef struct tern_train_batch {
    int32_t n_tokens;       // rows, at most the program's n_rows
    const int32_t *ids;     // [n_tokens]
    const int32_t *targets; // [n_tokens], -1: not scored; for pool_seq: the document's vector
    const int32_t *starts;  // [n_tokens]: row of the first token of the same document
    // The gradient is of loss_scale * sum of the losses: 1 / (scored tokens of the whole step)
    // makes it that of their mean, however many runs the step is cut into.
    float loss_scale;
    const float *weights; // [n_tokens] of each row's loss in the gradient, NULL: 1
    // fake_quantize gives rounded + unrounded (w - rounded); 0: what a file holds.
    float unrounded;
    // All that keep_top's draws depend on beside the logits: a seed, and where in the whole text
    // the first row is. The rounding of bfloat16 masters depends on the seed, too.
    uint64_t seed, place;
    // adamw (arXiv:1711.05101), step counting from 1, all gradients times
    // min(1, clip / sqrt(grad_norm2)) where clip > 0:
    //   m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2
    //   w = w - rate (m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + decay w)
    // muon: see train_weights.c; momentum is its alone.
    float rate, beta1, beta2, eps, decay, clip, momentum;
    int64_t step;
    // Called after the run's last op that adds to this array: data-parallel training sends it while
    // the backward pass continues. May be NULL. The GPU never calls it: its arrays are read after
    // the run.
    void (*on_array)(void *user, tern_train_array *array);
    void *user;
    // The CPU may stop after the current product, with TERN_ERR_CANCELLED, when the calling thread
    // is to (tern_cancel); gradients and the loss are then partly added to. Not for an optimizer.
    bool can_stop;
} tern_train_batch;

// What programs take of the device's memory: each its own bytes, and all together the largest of
// the shared ones.
typedef struct tern_program_bytes {
    uint64_t own, shared;
    uint64_t logits; // of these: of a piece
} tern_program_bytes;

typedef struct tern_train_backend {
    const char *name;
    tern_status (*open)(tern_trainer_device **out, const tern_trainer_desc *desc, tern_error *err);
    void (*close)(tern_trainer_device *d); // after its programs and arrays
    const char *(*describe)(const tern_trainer_device *d);
    // n zeros, and what they take of the device's memory.
    tern_status (*array_bytes)(const tern_trainer_device *d, uint64_t n, uint64_t *bytes,
                               tern_error *err);
    tern_status (*array_new)(tern_trainer_device *d, uint64_t n, tern_train_array **out,
                             tern_error *err);
    // The same for a weight that is_coded: only programs read it. 0 bytes: the device cannot, and
    // its array is of floats.
    tern_status (*codes_bytes)(const tern_trainer_device *d, const tern_train_codes *codes,
                               uint64_t *bytes, tern_error *err);
    tern_status (*array_of_codes)(tern_trainer_device *d, const tern_train_codes *codes,
                                  tern_train_array **out, tern_error *err);
    bool copies_codes; // the caller's are not needed after that
    // Zeros in bfloat16, for a matrix that is_coded and trained. write rounds to the nearest; a
    // step of an optimizer rounds up or down at random, so that the mean is the number itself: with
    // bits of batch seed, step, the weight's name and index alone. NULL: the device has none.
    tern_status (*array_new_bf16)(tern_trainer_device *d, uint64_t n_rows, uint64_t n_cols,
                                  tern_train_array **out, tern_error *err);
    void (*array_free)(tern_train_array *a); // NULL is allowed
    tern_status (*write)(tern_train_array *a, uint64_t first, uint64_t n, const float *data,
                         tern_error *err);
    tern_status (*read)(tern_train_array *a, uint64_t first, uint64_t n, float *data,
                        tern_error *err);
    // The numbers in the host's memory; NULL: they are elsewhere.
    float *(*host)(tern_train_array *a);
    // arrays[v] for every weight and state of the graph, of rows x cols numbers. The graph stays
    // the caller's and must outlive the program. n_rows: most tokens of a run; n_span: most tokens
    // of a document. arrays NULL: a plan, which takes no memory of the device and cannot run.
    tern_status (*compile)(tern_trainer_device *d, const tern_graph *g,
                           tern_train_array *const *arrays, int32_t n_rows, int32_t n_span,
                           tern_program **out, tern_error *err);
    void (*program_free)(tern_program *p); // NULL is allowed
    tern_program_bytes (*program_bytes)(const tern_program *p);
    tern_status (*run)(tern_program *p, const tern_train_batch *batch, tern_error *err);
} tern_train_backend;

// ---- A loss of vectors (cpu/train/train_contrast.c) --------------------------------------------

// InfoNCE (arXiv:1807.03748): each query must find its own positive among those of all pairs and
// among further texts, and each positive its own query among all queries:
//
//   loss = mean over pairs, both ways, and sizes of -log(e^(s_own / temperature) / sum e^(s / ...))
//
// where s is the cosine of two vectors' first `size` numbers (several sizes: arXiv:2205.13147). A
// text that equals the positive is not a negative: it is left out of the sum. Computed in the
// host's memory whatever the device, since it is small compared to the model: in float32, with sums
// in a fixed order, the same bits with any number of threads.
typedef struct tern_contrast tern_contrast;
#define TERN_CONTRAST_SIZES_MAX 8
typedef struct tern_contrast_desc {
    int n_threads;            // 0: one for each core
    const char *cpu_features; // see tern_model_desc
    int32_t n_pairs, n_texts; // of a call, at most
    int32_t n_cols;           // of a vector
    float temperature;
    const int32_t *sizes; // copied; none: n_cols alone
    size_t n_sizes;
} tern_contrast_desc;
// Texts 0 .. n_pairs - 1 are queries, the next n_pairs their positives, all others negatives.
typedef struct tern_contrast_batch {
    int32_t n_pairs, n_texts;
    const float *vectors; // [n_texts][n_cols], of any length
    const uint64_t *keys; // [n_texts], equal if the texts are
    float *gradient;      // [n_texts][n_cols], of the loss with respect to the vectors, or NULL
    int32_t *ranks; // [n_pairs] or NULL: how many negatives are at least as near to the query as
                    // its positive, by the last size
    double loss;    // result
} tern_contrast_batch;
tern_status tern_contrast_open(tern_contrast **out, const tern_contrast_desc *desc,
                               tern_error *err);
void tern_contrast_close(tern_contrast *c); // NULL is allowed
void tern_contrast_run(tern_contrast *c, tern_contrast_batch *batch);

extern const tern_train_backend tern_train_cpu;
extern const tern_train_backend tern_train_webgpu;

#endif
