// Private to training through WebGPU: what its files share.
//
//   gpu_train.c       the device, its arrays, reading and writing
//   gpu_train_plan.c  a graph becomes a program: memory, pipelines, bind groups
//   gpu_train_codes.c frozen matrices as codes
//   gpu_train_ops.c   the dispatches of each op; gpu_train_products.c those of products,
//                     gpu_train_attention.c those of attention,
//                     gpu_train_mixture.c those of experts, gpu_train_scan.c those of states
//   gpu_train_run.c   running a batch
//   gpu_train_units.c matrix units or not
//
// Every temporary has a buffer of its own size, which values of the same size share when their
// lifetimes allow it: so a kernel may read one and write another through different kinds of
// binding, and limits on the size of a buffer do not concern the sum. A row of a temporary is
// padded to a multiple of four columns; arrays (weights, gradients, moments) are dense.
#ifndef TERN_KERNELS_WEBGPU_TRAIN_GPU_TRAIN_H
#define TERN_KERNELS_WEBGPU_TRAIN_GPU_TRAIN_H

#include "kernels/train.h"
#include "kernels/webgpu/device/gpu.h"

struct tern_trainer_device {
    tern_device *gpu;
    uint64_t piece_bytes;   // of the widest value of the head, 0: the default
    uint64_t stripe_floats; // of a matrix of codes that are decoded at once; 0: the default
    uint64_t halves_from;   // rows of a product's other factor that are worth rounding one for; 0:
                            // the default
    bool rounds; // factors of products to half precision, which the matrix units multiply
    char description[256];
};

struct tern_train_array {
    tern_trainer_device *device;
    wgpu_buffer buffer;
    uint64_t n;
    // Codes instead, in a form of inference. order: which of its rows each row is; NULL: the
    // same.
    tern_weight *weight;
    wgpu_buffer order;
    bool is_bf16; // GPU_FORM_F16 has those bits
};

// A number of workgroups: n, times the tokens of the run / `each` rounded up where each is not 0.
// GPU_EACH_ID: n for each different token of the run. GPU_EACH_ALL + k: as k, of the tokens of the
// run also in the steps that have rows of a piece.
#define GPU_EACH_ID  UINT32_MAX
#define GPU_EACH_ALL (1u << 30)
typedef struct gpu_count {
    uint32_t n, each;
} gpu_count;

typedef struct gpu_train_step {
    gpu_pipeline what;
    gpu_compiled *pipeline;
    wgpu_group group;
    wgpu_buffer buffers[GPU_BINDINGS]; // in the order of the kernel's, without the unused
    uint64_t offsets[GPU_BINDINGS];
    int n_buffers;
    gpu_count grid[3];
    double flops; // of a product, for each token
} gpu_train_step;

#define GPU_NO_VALUE ((tern_vid)-1)
typedef struct gpu_slot { // a buffer that temporaries of one size share
    uint64_t bytes;
    wgpu_buffer buffer;
    int use;        // of scratch; 0: values
    tern_vid holds; // whose halves a scratch has after the steps so far; GPU_NO_VALUE
} gpu_slot;

typedef struct gpu_train_uniform { // struct Run of train_run.wgsl
    uint32_t n_tokens, n_ids;
    float loss_scale, unscale, rate, beta1, beta2, eps, decay, clip, correction1, correction2;
    uint32_t first, n_all;
    float unrounded;
} gpu_train_uniform;

struct tern_program {
    tern_trainer_device *device;
    tern_graph g; // a copy, with neighbours fused
    tern_train_array *const *arrays;
    int32_t n_rows, n_span;
    int64_t n_ids, n_targets; // bounds of ids and targets; 0: not read
    bool embeds_back;         // rows are sorted by token
    tern_scored_nodes head;   // computed for piece_rows of the scored rows at a time
    int32_t piece_rows;
    size_t head_first, head_end; // the same in steps
    gpu_slot *slots;
    size_t n_slots, slots_capacity;
    wgpu_buffer *buffers; // by value
    bool *is_half;        // by value: halves, which only the matrix units read
    wgpu_buffer uniform, ids, targets, spans, order, found;
    wgpu_buffer taken, places; // rows of a piece; of each row its index among the scored, or -1
    wgpu_buffer weights;       // of the losses of a piece
    tern_rope_list ropes;
    wgpu_buffer *angles; // by rope
    gpu_train_step *steps;
    size_t n_steps, steps_capacity;
    wgpu_buffer decoded; // rows of a matrix that stays as codes; NULL: there is none
    uint64_t bytes;
    bool is_plan;                   // no buffers are made, their bytes are counted
    int32_t *host;                  // rows of a run on their way to the device
    int32_t *scored, *answers;      // [n_rows]: the scored rows of a run, and their targets
    float *shares;                  // [n_rows]: and the weights of their losses
    uint32_t n_tokens, n_ids_found; // of the last run
    gpu_train_uniform of_run;       // likewise
};

// ---- gpu_train_plan.c --------------------------------------------------------------------------

tern_status gpu_train_compile(tern_trainer_device *d, const tern_graph *g,
                              tern_train_array *const *arrays, int32_t n_rows, int32_t n_span,
                              tern_program **out, tern_error *err);
void gpu_train_program_free(tern_program *p);
// A buffer for data that lives no longer than the steps of one op: the same for the same use (1, 2;
// 3: p->decoded) and size.
tern_status gpu_train_scratch(tern_program *p, int use, uint64_t bytes, wgpu_buffer *out,
                              tern_error *err);
tern_status gpu_train_slot(tern_program *p, int use, uint64_t bytes, gpu_slot **out,
                           tern_error *err);
// Most rows of a value with as many as tokens, or as a piece has.
static inline uint64_t gpu_train_rows(const tern_program *p, tern_vid v) {
    bool in_piece = p->head.end > 0 && p->g.values[v].dim == p->head.dim;
    return (uint64_t)(in_piece ? p->piece_rows : p->n_rows);
}
#define GPU_TRAIN_TILE 128 // rows that the matrix units write at once, even past the last one
static inline uint64_t gpu_train_rows_in_memory(const tern_program *p, tern_vid v) {
    const tern_value *value = &p->g.values[v];
    return value->dim == TERN_DIM_NONE ? (uint64_t)value->rows
                                       : gpu_round(gpu_train_rows(p, v), GPU_TRAIN_TILE);
}
// Columns of a row in memory.
static inline uint64_t gpu_train_stride(int64_t n_cols) { return gpu_round((uint64_t)n_cols, 4); }
// Whether the matrix units compute a product with m rows (0: tokens) and n columns, in pieces of
// 16 x 16.
static inline bool gpu_train_by_units(const tern_program *p, uint64_t m, uint64_t n) {
    return p->device->rounds && m % 16 == 0 && n % 16 == 0;
}

// ---- gpu_train_ops.c ---------------------------------------------------------------------------

#define GPU_TRAIN_STEPS 8 // of a node at most
// Appends the steps of a node.
tern_status gpu_train_add_node(tern_program *p, const tern_node *n, tern_error *err);

// ---- gpu_train_products.c ----------------------------------------------------------------------

// Whether an input of a node is a factor that the matrix units may read as halves.
bool gpu_train_takes_halves(const tern_program *p, const tern_node *n, int input);
// Before the steps of a head in pieces, which are repeated: its weight as halves.
tern_status gpu_train_add_head_halves(tern_program *p, tern_error *err);
// Steps that come next may not follow those so far.
void gpu_train_forget_halves(tern_program *p);

// ---- gpu_train_codes.c -------------------------------------------------------------------------

tern_status gpu_train_codes_bytes(const tern_trainer_device *d, const tern_train_codes *codes,
                                  uint64_t *bytes, tern_error *err);
tern_status gpu_train_array_of_codes(tern_trainer_device *d, const tern_train_codes *codes,
                                     tern_train_array **out, tern_error *err);
// The size of p->decoded; 0: the program reads no codes.
uint64_t gpu_train_decoded_bytes(const tern_program *p);
// Most steps of a node that decode.
size_t gpu_train_decoding_steps(const tern_program *p, const tern_node *n);
// Rows of w that a product takes at once: all, unless w is coded.
uint64_t gpu_train_stripe(const tern_program *p, tern_vid w);
// The step that decodes n rows from `first` on to p->decoded.
void gpu_train_add_decoded(tern_program *p, tern_vid w, uint64_t first, uint64_t n);
// For ops other than products and lookups: their coded inputs are decoded, and become p->decoded.
void gpu_train_decode_inputs(tern_program *p, const tern_node *n);
void gpu_train_add_embed_of_codes(tern_program *p, const tern_node *n);

// ---- gpu_train.c -------------------------------------------------------------------------------

tern_status gpu_train_array_new(tern_trainer_device *d, uint64_t n, tern_train_array **out,
                                tern_error *err);
void gpu_train_array_free(tern_train_array *a);
tern_status gpu_train_write(tern_train_array *a, uint64_t first, uint64_t n, const float *data,
                            tern_error *err);
tern_status gpu_train_read(tern_train_array *a, uint64_t first, uint64_t n, float *data,
                           tern_error *err);

// ---- gpu_train_units.c -------------------------------------------------------------------------

// Whether a small model gets the same gradients, up to rounding, with the matrix units as without.
bool gpu_train_rounding_works(tern_trainer_device *d);

// ---- gpu_train_run.c ---------------------------------------------------------------------------

tern_status gpu_train_run(tern_program *p, const tern_train_batch *batch, tern_error *err);
// For measurements: step i of the program again, `repeats` times, on the batch of the last run; of
// the head, one piece of it.
void gpu_train_repeat(tern_program *p, size_t i, int repeats);

#endif
