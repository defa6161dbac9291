// Private to the WebGPU backend: shared by its files.
//
//   gpu_library.c   finds the library and its functions
//   gpu_open.c      opens a device, in steps
//   gpu_device.c    an open device: buffers, pipelines, errors; sending and reading back
//   gpu_kernels.h   the table of kernels
//   gpu_shaders.c   the kernels' sources and bindings
//   gpu_weights.c   weights as the kernels read them, sent in pieces
//   gpu_wide.c      codes of four bits and more
//   gpu_plan.c      graph -> list of dispatches
//   ops/            the dispatches of each op
//   gpu_token.c     the same for few tokens: fewer, larger ones
//   gpu_shape.c     how their threads share the products
//   gpu_page_pool.c pages of states
//   gpu_instance.c  scratch of runs
//   gpu_order.c     which rows of a batch are computed together, and where their pages are
//   gpu_encode.c    encodes the dispatches of a batch
//   gpu_screen.c    the greatest logits of many rows without most of the head
//   gpu_run.c       submitting batches, reading back; greedy steps ahead
//   gpu_drafts.c    greedy speculation that the device drafts and verifies itself
//   gpu_results.c   which results are read back, and the k greatest logits in them
//   gpu_trace.c     the values of a batch, node by node
//   gpu_profile.c   how long each kernel takes
//   gpu_policy.c    how many dispatches a submission may have
//   gpu_selftest.c  whether a device can do what the kernels need
//   train/          training: train/gpu_train.h
#ifndef TERN_KERNELS_WEBGPU_GPU_H
#define TERN_KERNELS_WEBGPU_GPU_H

#include <stdatomic.h>
#include "base/os/team.h"
#include "kernels/backend.h"
#include "kernels/rope.h"
#include "kernels/webgpu/device/gpu_kernels.h"
#include "kernels/webgpu/device/wgpu_api.h"

// ---- Pipelines ---------------------------------------------------------------------------------

#define GPU_CONSTANTS 32
#define GPU_BINDINGS  8 // most of a kernel, besides the run; 7 for kernels not for training

// A kernel's specialization constants, named as the WGSL's overrides.
typedef struct gpu_constant {
    const char *name;
    double value;
} gpu_constant;

typedef struct gpu_pipeline {
    gpu_kernel kernel;
    gpu_constant constants[GPU_CONSTANTS];
    int n_constants;
} gpu_pipeline;

static inline void gpu_set(gpu_pipeline *p, const char *name, double value) {
    p->constants[p->n_constants++] = (gpu_constant){name, value};
}

// One that may be needed: the library compiles on threads of its own and calls back.
typedef struct gpu_compiled {
    gpu_pipeline what;
    wgpu_pipeline handle;      // NULL: not yet, or it failed
    bool is_begun, is_pending; // it was begun; it is not finished yet
    tern_device *device;
} gpu_compiled;

// ---- Device ------------------------------------------------------------------------------------

// A request to map a buffer. The library may call back at any time, so this has its own memory: if
// its owner is freed first, the callback frees it.
typedef struct gpu_map {
    bool pending, mapped, is_left;
} gpu_map;

// A buffer that the GPU's results are copied to and mapped from.
typedef struct gpu_readback {
    wgpu_buffer buffer;
    gpu_map *map;
} gpu_readback;
static inline bool gpu_is_pending(const gpu_readback *r) { return r->map && r->map->pending; }

#define GPU_READ_BYTES ((uint64_t)4 << 20) // at a time

// A buffer's use: memory is counted by use, see tern_device_memory.
typedef enum gpu_use {
    GPU_USE_WEIGHTS,
    GPU_USE_CACHE,
    GPU_USE_WORK,
    GPU_USE_RESULTS,
    GPU_USES
} gpu_use;
struct tern_device {
    struct gpu_opening *opening; // NULL: it is open
    wgpu_api api;
    wgpu_instance instance;
    wgpu_adapter adapter;
    wgpu_device device;
    wgpu_queue queue;
    uint64_t binding_bytes_max, buffer_bytes_max;
    uint64_t part_bytes_max; // largest part of a weight: a binding's bytes, or fewer
    uint32_t workgroup_size_max, workgroup_bytes_max;
    uint64_t alone_bytes;      // GPU_ALONE_BYTES, except in tests
    uint64_t screen_bytes_min; // least head for gpu_screen.c: GPU_SCREEN_BYTES, except in tests
    bool precise;              // products with codes in groups take float activations
    tern_matmul_precision products; // of prompts with codes in groups
    bool subgroups;                 // of 32 threads
    bool packed_dot;                // dot4I8Packed
    bool matrix;                    // units that multiply int8 by 16 x 16 x 32
    bool matrix_half;               // halves by 16 x 16 x 16, added up as floats
    bool timestamps;                // of compute passes
    bool checks;                    // WebGPU validates every call and index
    bool software;                  // the adapter runs on this processor
    char description[160], line[200];
    char adapter_key[300]; // vendor, device, driver
    char error[400];       // the device's first message since the last check; empty: none
    atomic_bool lost;      // set by the library, on any thread
    uint32_t group;        // most dispatches in a submission; 0: no limit
    uint64_t n_launches;   // submissions of runs, and bytes mapped for the host: tests count them
    uint64_t bytes_read;
    wgpu_module modules[GPU_KERNEL_COUNT]; // by the first kernel that is in the file
    wgpu_layout layouts[GPU_KERNEL_COUNT]; // by kernel
    wgpu_pipeline_layout pipeline_layouts[GPU_KERNEL_COUNT];
    gpu_compiled **pipelines; // each where it stays
    size_t n_pipelines, pipelines_capacity, n_pipeline_hits, n_pipelines_pending;
    // A word that is read back: when it arrives, all that was sent before it has arrived.
    gpu_readback fence;
    double fenced_at;
    uint64_t bytes_on_way;      // sent after it
    gpu_readback reader;        // of GPU_READ_BYTES
    tern_weight_check *compare; // not NULL: gpu_send compares instead
    // Bytes allocated now, by use, and the peak total. Other threads may read while one writes.
    _Atomic uint64_t bytes[GPU_USES], bytes_max;
    // Matrices in tiles are placed one after the other in slabs, so that neighbors can be one
    // dispatch.
    wgpu_buffer *slabs;
    size_t n_slabs, slabs_capacity;
    uint64_t slab_bytes, slab_used, tiles_bytes_left;
    // Threads that pack weights, until the last one is bound; NULL: few weights.
    int n_threads; // wanted
    tern_team *team;
    size_t n_to_bind; // of those announced to gpu_tune, and their heads
};

// A browser has no matrix units, and returns pipelines at once: it compiles them in the background.
#ifdef TERN_NO_MATRIX
#define GPU_MAY_HAVE_MATRIX false
#define GPU_COMPILES_LATER  true
#else
#define GPU_MAY_HAVE_MATRIX true
#define GPU_COMPILES_LATER  false
#endif
static inline bool gpu_takes_halves(const tern_device *d) { // in long prompts
    return GPU_MAY_HAVE_MATRIX && d->products == TERN_MATMUL_HALF;
}
static inline bool gpu_has_matrix(const tern_device *d) { return GPU_MAY_HAVE_MATRIX && d->matrix; }

// Opens only the library, for looking up functions. It is never closed, since its threads may still
// run its code.
tern_status gpu_library_load(const tern_webgpu_desc *desc, void **library, tern_error *err);
tern_status gpu_library_open(wgpu_api *api, const tern_webgpu_desc *desc, tern_error *err);
void gpu_library_close(wgpu_api *api);

// Opening a device: begin, then poll until *done; neither waits. After a failure the device can
// only be closed, which at any time cancels unfinished work. desc: NULL is allowed, else it must
// live until then.
tern_status gpu_device_begin(tern_device **out, const tern_webgpu_desc *desc, tern_error *err);
tern_status gpu_device_poll(tern_device *d, bool *done, tern_error *err);
// Opens a device, and waits for it.
tern_status gpu_device_new(tern_device **out, const tern_webgpu_desc *desc, tern_error *err);
tern_status gpu_device_open(tern_device **out, const tern_device_desc *desc, tern_error *err);
void gpu_device_close(tern_device *d);
// Finds d->group, trying from the size with index `first` on: begin, then poll until *done or a
// failure, then close, which at any time cancels the trials. *first: where another device should
// continue after a failure that lost this one, if gpu_policy_has_more.
typedef struct gpu_policy gpu_policy;
tern_status gpu_policy_begin(gpu_policy **out, tern_device *d, const tern_webgpu_desc *desc,
                             size_t first, tern_error *err);
tern_status gpu_policy_poll(gpu_policy *p, bool *done, size_t *first, tern_error *err);
void gpu_policy_close(gpu_policy *p); // NULL is allowed
bool gpu_policy_has_more(size_t first);
tern_status gpu_selftest(tern_device *d, tern_check_fn on_check, void *ctx, tern_error *err);
// n dependent dispatches, `group` a submission (0: all): begin, then poll until *done; that fails
// if the result is wrong, or takes more than some seconds.
typedef struct gpu_trial gpu_trial;
tern_status gpu_trial_begin(gpu_trial **out, tern_device *d, uint32_t n, uint32_t group,
                            tern_error *err);
tern_status gpu_trial_poll(gpu_trial *c, bool *done, tern_error *err);
void gpu_trial_close(gpu_trial *c); // NULL is allowed
// The one function that waits: lets the library call back until the map is done, for GPU_SECONDS
// at most. docs/webgpu.md lists its uses. In software it also waits for the kernels' compilation:
// half a minute if the library defers that, as browsers do, and more on a busy machine.
#define GPU_SECONDS          20 // that a run may take
#define GPU_SECONDS_SOFTWARE 300
void gpu_wait(tern_device *d, const gpu_readback *r);
// Records an error from a callback or elsewhere, unless there is one already.
void gpu_remember(tern_device *d, const char *what, wgpu_text message);
// Fails with the device's message, if there was one since the last call.
tern_status gpu_check(tern_device *d, const char *doing, tern_error *err);
// All buffers are made and freed here, so that all memory is counted. `usage` is WebGPU's.
tern_status gpu_buffer_new(tern_device *d, gpu_use use, uint64_t bytes, uint64_t usage,
                           const char *what, wgpu_buffer *out, tern_error *err);
void gpu_buffer_free(tern_device *d, gpu_use use, wgpu_buffer b); // NULL is allowed
void gpu_memory(const tern_device *d, tern_device_memory *out);
// Writes into a buffer with COPY_SRC. The library keeps a copy of data in flight: large transfers
// must pause while gpu_is_full, so that the copies stay below some 64 MB.
void gpu_send(tern_device *d, wgpu_buffer b, uint64_t offset, const void *data, uint64_t bytes);
// The same in two steps, for many small pieces: each, and once after the last of them.
void gpu_send_piece(tern_device *d, wgpu_buffer b, uint64_t offset, const void *data,
                    uint64_t bytes);
void gpu_sent(tern_device *d, wgpu_buffer b); // b: one of the buffers written to
bool gpu_is_full(tern_device *d);
// The reverse, in pieces; waits.
typedef struct gpu_piece {
    wgpu_buffer buffer;
    uint64_t offset, bytes;
} gpu_piece;
// Reads several places, one after the other, with one wait per 4 MB instead of one each.
tern_status gpu_read_pieces(tern_device *d, const gpu_piece *pieces, size_t n, void *data,
                            tern_error *err);
tern_status gpu_read(tern_device *d, wgpu_buffer from, uint64_t offset, void *data, uint64_t bytes,
                     tern_error *err);
tern_status gpu_readback_new(tern_device *d, uint64_t bytes, const char *what, gpu_readback *out,
                             tern_error *err);
void gpu_readback_free(tern_device *d, gpu_readback *r); // zeros are allowed, and a pending one
// Requests the first bytes of the buffer; gpu_is_pending until they are there or never will be.
void gpu_readback_map(tern_device *d, gpu_readback *r, uint64_t bytes);
// The same, after submitting a copy from elsewhere into the buffer.
void gpu_readback_copy(tern_device *d, wgpu_buffer from, uint64_t offset, gpu_readback *to,
                       uint64_t bytes);
// The requested bytes, valid until unmapped; NULL: they did not arrive.
const void *gpu_readback_bytes(const tern_device *d, const gpu_readback *r, uint64_t bytes);
void gpu_readback_unmap(const tern_device *d, gpu_readback *r); // if it is mapped
// Whether the library can compile the file of kernel `k`: *has becomes false if not.
void gpu_try_module(tern_device *d, gpu_kernel k, bool *has);
// The pipeline with these constants, from the cache or a new one, which is not begun.
tern_status gpu_pipeline_find(tern_device *d, const gpu_pipeline *wanted, gpu_compiled **out,
                              tern_error *err);
// Begins it, unless it is made or being made: its handle is there once gpu_pipelines_poll says
// done, or gpu_pipelines_wait returns. Those are about all that were begun, and fail if one cannot
// be made. A compilation takes a tenth of a second or more, so what is needed together is begun
// together, and what nobody needs is not.
tern_status gpu_pipeline_begin(gpu_compiled *c, tern_error *err);
tern_status gpu_pipelines_poll(tern_device *d, bool *done, tern_error *err);
tern_status gpu_pipelines_wait(tern_device *d, tern_error *err);
// Fails if it was not made.
tern_status gpu_pipeline_check(const gpu_compiled *c, tern_error *err);
// All in one call.
tern_status gpu_pipeline_get(tern_device *d, const gpu_pipeline *wanted, wgpu_pipeline *out,
                             tern_error *err);

// ---- Weights -----------------------------------------------------------------------------------

typedef enum gpu_form {
    GPU_FORM_TILES, // codes, see wgsl/codes.wgsl
    GPU_FORM_F16,
    GPU_FORM_F32,
    GPU_FORM_Q8, // per row: int8s, then an f16 scale for each 32; 16-byte units
    GPU_FORM_VECTOR,
    GPU_FORM_HOST, // not on the device
} gpu_form;

// The layout of codes in tiles: their bits, and the columns that share a scale (64 or 128); 0: the
// matrix has one. 1 or 2 bits: wgsl/codes.wgsl. More: wgsl/wide_codes.wgsl, in groups of 16, 32 or
// 64 columns; longer groups are split.
typedef struct gpu_codes {
    uint8_t bits;
    uint16_t group, super; // super: see tern_dtype_form
    bool has_minima, is_bf16;
} gpu_codes;
static inline bool gpu_is_wide(gpu_codes c) { return c.bits > 2; }

typedef struct gpu_part { // whole rows in one binding
    wgpu_buffer buffer;
    uint64_t offset, bytes;
    int64_t first_row, n_rows;
} gpu_part;

struct tern_weight {
    int64_t n_rows, n_cols;
    tern_weight_info info;
    gpu_form form;
    gpu_codes codes; // of GPU_FORM_TILES
    gpu_part *parts; // one, except for matrices larger than a binding
    size_t n_parts;
    bool owns_buffers; // matrices in tiles are in the device's slabs
    float *vector;     // host copy of a vector
    // GPU_FORM_HOST: the file's table, and room for a row of it, as in the file and as floats.
    tern_matrix table;
    void *table_row;
    float *row;
    tern_weight *head; // for a table that is also the head: the head's own rows, if any
    wgpu_buffer copy;  // of a head, for gpu_screen.c; NULL: none, or not yet
    bool copy_tried;
    struct gpu_sending *sending; // NULL: it is bound
};

#define GPU_HEADER_BYTES 256 // in front of a matrix in tiles: its scale, if it has one
#define GPU_TILE_ROWS    8
// A tile of ternary_gemm_matrix.wgsl; fewer tokens take ternary_gemm_narrow.wgsl.
#define GPU_GEMM_MATRIX_TOKENS  128
#define GPU_GEMM_MATRIX_ROWS    128
#define GPU_GEMM_MATRIX_THREADS 512
#define GPU_GEMM_MATRIX_BYTES   36864
#define GPU_GEMM_GROUPS_BYTES   49152 // of gemm_groups.wgsl
#define GPU_GEMM_HALF_BYTES     36864 // of gemm_half.wgsl
#define GPU_HALF_FROM           128   // tokens of a chunk: with fewer, other products are faster
// For attention_prompt.wgsl.
#define GPU_PROMPT_THREADS 128 // for heads of up to GPU_PROMPT_DIMS; halved for each doubling
#define GPU_PROMPT_DIMS    256
#define GPU_PROMPT_BYTES   28672
// For attention_prompt_matrix.wgsl.
#define GPU_ATTENTION_MATRIX_DIMS  128
#define GPU_ATTENTION_MATRIX_BYTES 48144
#define GPU_MATRIX_BATCH           2048
#define GPU_TILE_SMALL             64
#define GPU_TILE_LARGE             128
#define GPU_TILE_LARGE_FROM        1024 // tokens of a batch: fewer have too few tiles
#define GPU_HEAD_DIM_MAX           512
#define GPU_BLOCK_COLS             64
static inline int64_t gpu_blocks(int64_t n_cols) { return (n_cols + 63) / 64; }
static inline uint64_t gpu_round(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
// For wide codes: groups of a block, words of their scales and minima, and the number that kernels
// add to every code.
static inline size_t gpu_wide_parts(gpu_codes c) { return (size_t)GPU_BLOCK_COLS / c.group; }
static inline size_t gpu_wide_scale_words(gpu_codes c) {
    return !c.super && c.has_minima && gpu_wide_parts(c) == 2 ? 2 : 1;
}
static inline int gpu_wide_offset(gpu_codes c) { return c.has_minima ? 1 << (c.bits - 1) : 0; }
static inline uint64_t gpu_tile_bytes(gpu_codes c, int64_t n_cols) {
    uint64_t blocks = (uint64_t)gpu_blocks(n_cols), n = blocks * GPU_BLOCK_COLS * GPU_TILE_ROWS;
    if (!gpu_is_wide(c)) return n * c.bits / 8 + (c.group ? n / c.group * 2 : 0);
    uint64_t front = c.super ? (uint64_t)n_cols / c.super : 0;
    return n * c.bits / 8 + (blocks * gpu_wide_scale_words(c) + front) * GPU_TILE_ROWS * 4;
}
// Threads of a workgroup that share n numbers: 64 to 1024, a power of two.
static inline uint32_t gpu_threads_for(const tern_device *d, int64_t n) {
    uint32_t threads = 64;
    while (threads < n && threads * 2 <= d->workgroup_size_max && threads < 1024) threads *= 2;
    return threads;
}
// The parameters of hadamard.wgsl, for rows of n_blocks blocks; fails if a workgroup has no room
// for one.
tern_status gpu_set_transform(const tern_device *d, gpu_pipeline *p, const tern_rotation *r,
                              int64_t n_blocks, tern_error *err);
// The parameters of codes.wgsl, or of wide_codes.wgsl.
void gpu_set_codes(gpu_pipeline *p, gpu_codes c);
static inline uint64_t gpu_q8_row_bytes(int64_t n_cols) {
    return gpu_round((uint64_t)(n_cols + n_cols / 16), 16);
}

// The layout of a type's codes of four or more bits, or of a folder's groups of codes, in the
// source and in tiles; false: kernels cannot read them unconverted in rows of this length.
typedef struct gpu_wide {
    tern_dtype_form form;
    gpu_codes codes;
} gpu_wide;
bool gpu_wide_find(const tern_weight_source *s, gpu_wide *out);
// Moves a row into its tile: read its codes, then put them.
typedef struct gpu_wide_row {
    gpu_wide wide;
    tern_dtype_codes parts;
    void *room;
} gpu_wide_row;
bool gpu_wide_row_open(gpu_wide_row *r, const gpu_wide *w, int64_t n_cols); // false: no memory
void gpu_wide_row_close(gpu_wide_row *r);                                   // also of zeros
tern_status gpu_wide_row_read(gpu_wide_row *r, const tern_weight_source *s, tern_rows *rows,
                              int64_t row, tern_error *err);
void gpu_wide_row_put(const gpu_wide_row *r, int64_t n_cols, size_t in_tile, uint32_t *tile);

tern_status gpu_tune(tern_device *d, const tern_weight_source *sources, size_t n, tern_error *err);
tern_status gpu_weight_bind(tern_device *d, const tern_weight_source *s, tern_weight **out,
                            tern_error *err);
tern_status gpu_weight_bind_poll(tern_device *d, tern_weight *w, uint64_t *left, tern_error *err);
// Reads a weight back and compares it with the file.
tern_status gpu_weight_verify(tern_device *d, const tern_weight *w, const tern_weight_source *s,
                              tern_weight_check *out, tern_error *err);
// What tiles of it take, which have the numbers of the file to the bit; 0: it gets none.
// is_ternary: as tern_ternary_find says.
uint64_t gpu_tiles_bytes(const tern_device *d, const tern_weight_source *s, bool is_ternary);
void gpu_weight_unbind(tern_device *d, tern_weight *w);
void gpu_weight_info(const tern_weight *w, tern_weight_info *info);

// ---- Plan --------------------------------------------------------------------------------------

// Where a binding's memory is.
typedef enum gpu_place {
    GPU_POOL,    // offset and bytes in the instance's pool of temporaries
    GPU_POOL_I8, // the same in the pool of quantized values
    GPU_WEIGHT,  // buffer, offset and bytes
    GPU_STATE,   // value `v`
    GPU_ANGLES,  // of rope `v`
    GPU_IDS,
    GPU_SENT,         // rows of host table `v` for the request's tokens
    GPU_INPUT_EMBEDS, // rows of input `v`
    GPU_LOGITS,
    GPU_TOP_PARTS_MEMORY,
    GPU_TOP_MEMORY,
    GPU_TOP_LISTS,
    GPU_PARTS,       // offset and bytes in the memory of attention in parts
    GPU_SCREEN_COPY, // offset and bytes in the copy of the head
    GPU_SCREEN_X,    // and in the rows of x for it
    GPU_SCREEN_LISTS,
    GPU_CHUNKS, // struct Chunk of chunks.wgsl, one for each of the batch
} gpu_place;
typedef struct gpu_binding {
    gpu_place place;
    tern_vid v;
    wgpu_buffer buffer;
    uint64_t offset, bytes;
} gpu_binding;

// The number of workgroups in y.
typedef enum gpu_rows {
    GPU_ROWS_TOKENS,
    GPU_ROWS_OUTPUTS,
    GPU_ROWS_CHUNK,     // outputs that this pass over the head computes
    GPU_ROWS_SEQUENCES, // chunks of the batch
    GPU_ROWS_PARTS,     // tiles of the positions that a row attends to, at most GPU_PARTS_MAX
    GPU_ROWS_TILES,     // tiles of a prompt's rows, of tern_plan.tile_rows at most
    GPU_ROWS_COUNTED,   // plus a dimension of the graph: the batch's count for it
} gpu_rows;
// Kinds of requests, as bits; see gpu_order.c. A row's arithmetic depends only on whether it is a
// step's, a prompt's or a long prompt's.
typedef enum gpu_kind {
    GPU_FEW_STEPS = 1,     // up to GPU_FEW rows
    GPU_MANY_STEPS = 2,    // more rows, of chunks of up to GPU_FEW
    GPU_SHORT_PROMPTS = 4, // chunks of more rows
    GPU_LONG_PROMPTS = 8,  // of more than GPU_HALF_FROM, if products of those take halves
    GPU_STEPS = GPU_FEW_STEPS | GPU_MANY_STEPS,
    GPU_PROMPTS = GPU_SHORT_PROMPTS | GPU_LONG_PROMPTS,
    GPU_ANY = GPU_STEPS | GPU_PROMPTS,
} gpu_kind;
typedef enum gpu_phase {
    GPU_PHASE_BODY,  // always
    GPU_PHASE_HEAD,  // if logits or the greatest of them are wanted
    GPU_PHASE_PARTS, // if only the greatest one is wanted, or lists of a few
    GPU_PHASE_TOP,   // if only the greatest one is wanted
    GPU_PHASE_LIST,  // if lists are wanted
} gpu_phase;

// Whether a dispatch is only for steps whose logits are screened (gpu_screen.c), or only for
// others.
typedef enum gpu_screening { GPU_SCREEN_ANY, GPU_SCREENED, GPU_UNSCREENED } gpu_screening;

// Whether a dispatch is only for batches with tiles of GPU_TILE_LARGE, or only for others.
typedef enum gpu_tiling { GPU_TILES_ANY, GPU_TILES_SMALL, GPU_TILES_LARGE } gpu_tiling;

typedef enum gpu_cache { GPU_CACHE_F32, GPU_CACHE_F16, GPU_CACHE_Q8_0, GPU_CACHES } gpu_cache;
#define GPU_ANY_CACHE ((1u << GPU_CACHES) - 1)

typedef struct gpu_dispatch {
    gpu_pipeline what;
    gpu_compiled *pipeline[GPU_CACHES]; // for the caches of gpu_plan_pipelines; NULL: not for it
    gpu_binding bindings[GPU_BINDINGS]; // in the kernel's order, without the unused
    int n_bindings;
    uint32_t x; // workgroups
    gpu_rows rows;
    uint32_t rows_each;              // rows per workgroup in y
    uint32_t times;                  // rows per row counted by `rows`
    uint32_t kinds;                  // of the batches that include it
    uint32_t tokens_min, tokens_max; // tokens of these if they are GPU_FEW_STEPS
    uint32_t rows_min, rows_max;     // of what `rows` counts
    uint32_t window;                 // of attention, for GPU_ROWS_PARTS
    bool by_token;                   // workgroups in z: one for each token
    gpu_phase phase;
    gpu_screening screen;
    gpu_tiling tiling;
    uint32_t caches; // a bit for each gpu_cache that it reads; 0: it reads none
    int32_t node;    // the graph's node that it computes; of several, the last
} gpu_dispatch;

// Up to this many bytes of a product times its tokens, each token uses the kernels for one token.
#define GPU_ALONE_BYTES     (5 << 20)
#define GPU_FEW             8   // tokens of a sequence that each have the same bits as alone
#define GPU_STEPS_ROWS      128 // most rows of steps computed together
#define GPU_PAGE_POSITIONS  32  // PAGE of cache.wgsl: 32 threads' reads of a key are in one line
#define GPU_TOP_PARTS_N     64
#define GPU_SCREEN_BYTES    ((uint64_t)32 << 20)
#define GPU_SCREEN_ROWS     9   // least rows of x for which a head is screened
#define GPU_SCREEN_LIST     512 // most tokens of the vocabulary left undecided in a row
#define GPU_TOP_THREADS     256
#define GPU_PARTS_MAX       8 // of a token's attention
#define GPU_HOST_TABLES_MAX 4

struct tern_plan {
    tern_device *device;
    const tern_graph *g;
    tern_weight *const *weights;
    int32_t n_batch;
    gpu_dispatch *dispatches;
    size_t n_dispatches, dispatches_capacity;
    tern_rope_list ropes;
    tern_weight *host_tables[GPU_HOST_TABLES_MAX];
    int n_host_tables;
    tern_memory_plan memory;
    // Quantized values are at their offsets in a separate buffer, since a product that reads its
    // activations as read-only, through the near caches, must not write to the same buffer.
    uint64_t i8_bytes;
    uint64_t parts_bytes;   // of a single token's attention, or of means of rows
    wgpu_buffer *constants; // [n_constants] numbers that kernels read, collected from weights
    size_t n_constants, constants_capacity;
    int64_t n_vocab;
    int32_t chunk_rows;            // of logits at a time
    int32_t read_rows;             // of logits that the host reads at a time
    int32_t tile_rows[GPU_CACHES]; // of attention of prompts; 0: not by tiles
    uint32_t only_small;           // the gpu_caches without kernels for GPU_TILE_LARGE
    tern_page_layout layout;
    gpu_dispatch later;    // for GPU_MANY_STEPS, the last dispatch of node `later.node`; x 0: none
    bool makes_lists;      // of the greatest logits
    tern_weight *screened; // the head, if gpu_screen.c has dispatches for it
    uint32_t screened_few; // up to this many rows of few steps are screened
    gpu_compiled *screen_copy;
    bool is_made[GPU_CACHES]; // all pipelines for the cache
};

// Whether a value's rows are in a dimension that only the batch counts (frames of a sound).
static inline bool gpu_is_counted(const tern_graph *g, tern_vid v) {
    return g->values[v].dim != TERN_DIM_NONE && !tern_graph_is_by(g, v, "tokens") &&
           !tern_graph_is_by(g, v, "outputs") && !tern_graph_is_by(g, v, "sequences");
}

// Whether an output comes in pieces, in separate memory: logits, and the values picked from them.
// Other outputs are with the temporaries.
static inline bool gpu_is_logits(const tern_graph *g, tern_vid v) {
    const tern_value *value = &g->values[v];
    if (value->kind != TERN_VALUE_OUTPUT || value->producer < 0) return false;
    if (!tern_graph_is_by(g, v, "outputs")) return false;
    tern_op op = g->nodes[value->producer].op;
    return op == TERN_OP_LINEAR || op == TERN_OP_LINEAR_ADD || op == TERN_OP_TOP_K ||
           op == TERN_OP_LINEAR_TOP_K;
}

// Rows of a value per token: a codec's convolutions make several of one.
static inline int64_t gpu_times(const tern_graph *g, tern_vid v) {
    return tern_graph_is_by(g, v, "tokens") ? g->values[v].times : 1;
}

// Whether the kernels support the columns of all values.
tern_status gpu_check_graph(const tern_graph *g, tern_error *err);
tern_status gpu_compile(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                        int32_t n_batch, tern_plan **out, tern_error *err);
void gpu_plan_free(tern_plan *p);
// Whether the pipelines that compile began are made: those of a text's steps and long prompts.
tern_status gpu_compile_poll(tern_plan *p, bool *done, tern_error *err);
// Finds the pipelines with a kind of cache, and begins all of them, or those of a text's steps and
// long prompts: the others are begun by the first batch that needs them.
tern_status gpu_plan_pipelines(tern_plan *p, gpu_cache cache, bool all, tern_error *err);
// Adds fused dispatches that do the work of *count nodes from node i on, for few tokens; 0: none.
#define GPU_FUSED_MAX 14 // dispatches that this adds
tern_status gpu_token_add(tern_plan *p, size_t i, size_t *count, tern_error *err);
// Web pages compute few texts at a time, and are built without.
#ifdef TERN_NO_SCREENED_HEADS
#define GPU_SCREENS_HEADS 0
#else
#define GPU_SCREENS_HEADS 1
#endif
// Whether logits of this head may be screened, and adding the dispatches for it, which follow the
// head's own. each: vec4s of a row of x per 16 bytes of a row of weights.
bool gpu_screen_can(const tern_plan *p, const tern_weight *w, float soft_cap);
#define GPU_SCREEN_MAX 14 // dispatches
tern_status gpu_screen_add(tern_plan *p, tern_vid x, tern_weight *w, uint32_t each,
                           tern_error *err);
// Memory of a screened head: its copy, in which data about the rows follow their integers; and, for
// a chunk of outputs, rows of x and lists of tokens. 0: nothing is screened.
uint64_t gpu_screen_copy_bytes(const tern_weight *w);
gpu_kernel gpu_screen_copy_kernel(const tern_weight *w);
uint64_t gpu_screen_infos_at(const tern_weight *w);
uint64_t gpu_screen_x_bytes(const tern_plan *p);
uint64_t gpu_screen_list_bytes(const tern_plan *p);
#define GPU_POOL_ALIGN 256 // of memory bound at an offset
// Quantized values: int8 with a scale a row or a block of 64 columns. Bytes of the integers; the
// scales and sums follow them.
static inline bool gpu_is_i8(const tern_value *v) {
    return v->type == TERN_VALUE_I8ROWS || v->type == TERN_VALUE_I8GROUPS;
}
static inline uint64_t gpu_i8_bytes(int64_t n_cols, int32_t n_rows) {
    return gpu_round((uint64_t)gpu_blocks(n_cols) * GPU_BLOCK_COLS * (uint64_t)n_rows,
                     GPU_POOL_ALIGN);
}
// Appends the dispatches of a node: one function per op, in ops/.
typedef tern_status gpu_op_fn(tern_plan *p, const tern_node *n, tern_error *err);

// ---- Instances ---------------------------------------------------------------------------------

tern_status gpu_page_pool_open(tern_plan *p, const tern_page_layout *layout,
                               const tern_cache_desc *desc, tern_page_pool **out, tern_error *err);
void gpu_page_pool_close(tern_page_pool *s);
int32_t gpu_page_positions(const tern_page_pool *s);
uint64_t gpu_page_bytes(const tern_page_pool *s, int group);
tern_status gpu_pages_expect(tern_page_pool *s, int group, int32_t n, tern_error *err);
tern_status gpu_page_new(tern_page_pool *s, int group, tern_page *out, tern_error *err);
void gpu_page_free(tern_page_pool *s, int group, tern_page page);
tern_status gpu_page_copy(tern_page_pool *s, int group, tern_page from, tern_page to,
                          tern_error *err);
tern_status gpu_page_clear(tern_page_pool *s, int group, tern_page page, tern_error *err);
tern_status gpu_page_read(tern_page_pool *s, int group, tern_page page, void *to, tern_error *err);
tern_status gpu_page_write(tern_page_pool *s, int group, tern_page page, const void *from,
                           tern_error *err);
gpu_cache gpu_page_pool_cache(const tern_page_pool *s);
const tern_page_layout *gpu_page_pool_layout(const tern_page_pool *s);
uint64_t gpu_state_bytes(const tern_page_pool *s, tern_vid v); // in a page
// The buffer of a state, [page][state]; NULL: no pages.
wgpu_buffer gpu_page_pool_buffer(const tern_page_pool *s, tern_vid v);
// How often buffers of states have been replaced.
uint32_t gpu_page_pool_growth(const tern_page_pool *s);

tern_status gpu_instance_open(tern_plan *p, tern_page_pool *s, tern_instance **out,
                              tern_error *err);
void gpu_instance_close(tern_instance *i);
tern_status gpu_instance_open_drafts(tern_instance *i, const tern_draft_table *t, tern_error *err);
tern_status gpu_submit(tern_instance *i, const tern_batch *batch, tern_error *err);
tern_status gpu_poll(tern_instance *i, bool *done, tern_error *err);
void gpu_cancel(tern_instance *i);
tern_status gpu_trace(tern_instance *i, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                      tern_error *err);
tern_status gpu_profile_start(tern_instance *i, tern_error *err);
const tern_profile *gpu_profile_read(const tern_instance *i);

#endif
