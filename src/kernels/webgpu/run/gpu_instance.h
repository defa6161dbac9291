// An instance on the GPU (tern_instance: the scratch of one run), as the files that run batches
// share it.
#ifndef TERN_KERNELS_WEBGPU_GPU_INSTANCE_H
#define TERN_KERNELS_WEBGPU_GPU_INSTANCE_H

#include "kernels/webgpu/device/gpu.h"

#define GPU_LIST_ITEMS 512
typedef struct gpu_list { // struct List of top.wgsl
    uint32_t n;
    float least;
    struct {
        uint32_t id;
        float logit;
    } items[GPU_LIST_ITEMS];
} gpu_list;

// The most greedy steps in one submission, and how long they may take together: work done ahead is
// wasted when the caller does not go on.
#define GPU_STEPS_MAX     8
#define GPU_STEPS_SECONDS 4e-3

// Bytes from one step's run to the next, in the buffer of parameters. The first step is last there:
// its tables have any size, and the pages at their end are those of all steps. The others have room
// for the rows of as many sequences as go ahead.
#define GPU_RUN_BYTES 2816
typedef struct gpu_run { // struct Run of run.wgsl, without the tables
    uint32_t n_tokens, first_pos, n_outputs, first_output, top_k, n_chunks, rows_before;
    uint32_t outputs_at, tiles_at, ends_at;
    uint32_t counts[TERN_DIMS_MAX]; // by dimension of the graph
} gpu_run;
typedef struct gpu_row { // of the tables, one for each token
    uint32_t position, pages_at, chunk_begin, chunk_end;
} gpu_row;
_Static_assert(sizeof(gpu_run) + GPU_STEPS_ROWS * (sizeof(gpu_row) + sizeof(uint32_t)) <=
                       GPU_RUN_BYTES &&
                   GPU_RUN_BYTES % 256 == 0,
               "a step has no room for its rows");
// Index in the tables of the word at an offset in a run.
#define GPU_TABLE_AT(bytes) ((uint32_t)(((bytes) - sizeof(gpu_run)) / sizeof(uint32_t)))

#define GPU_NOTHING_KEPT UINT32_MAX
typedef struct gpu_chunk { // struct Chunk of chunks.wgsl
    uint32_t first_row, n_rows, first_pos;
    uint32_t slot;                  // of its sequence's fixed states
    uint32_t kept_slot, kept_after; // where they are copied to, after how many rows
    uint32_t pages_at, unused;
} gpu_chunk;

// A submission of greedy steps, each of one row of some sequences.
typedef struct gpu_burst {
    int32_t n;                    // steps; 0: there is none
    int32_t n_rows;               // of each step
    int32_t rows[GPU_STEPS_ROWS]; // ascending: which of them are those of the batch
} gpu_burst;

// Greedy steps on tokens that the device itself finds.
typedef struct gpu_steps {
    gpu_burst now;                               // being waited for, or last read
    gpu_burst ahead;                             // the next one, which uses the other readback
    int32_t n_read, n_taken;                     // of now: steps read back, and handed out
    int32_t ids[GPU_STEPS_MAX * GPU_STEPS_ROWS]; // [step][row] of now
    float logits[GPU_STEPS_MAX * GPU_STEPS_ROWS];
    // The last batch, if it was such a step: its sequences and where they were.
    int32_t n_last;
    uint64_t versions[GPU_STEPS_ROWS];
    int32_t positions[GPU_STEPS_ROWS];
    double started, seconds; // when the submission could begin; what a step took
    double seconds_max;      // of a submission: GPU_STEPS_SECONDS, except in tests
} gpu_steps;
// A greedy step of n_rows rows is being waited for, with none after it; 0: something else is.
void gpu_expect_step(gpu_steps *s, int32_t n_rows);

typedef struct gpu_drafts gpu_drafts; // gpu_drafts.c

#define GPU_INPUTS_MAX 4    // besides tokens
typedef struct gpu_origin { // of a chunk: where it is in the batch
    int32_t chunk, row;
} gpu_origin;

// What is computed at a time: a batch, or those of its chunks that are of one kind.
typedef struct gpu_request {
    gpu_kind kind;
    const tern_chunk *chunks;
    int32_t n_chunks;
    const int32_t *ids;
    int32_t n_tokens;
    int32_t n_tiles, tile_rows;  // of attention
    const int32_t *outputs;      // rows that are wanted
    const int32_t *places;       // place of each output among the batch's
    const int32_t *input_places; // the batch's, for RoPE; or NULL
    const int32_t *ends;         // the batch's; or NULL
    const gpu_origin *origins;   // of each chunk
    int32_t n_outputs;
    int32_t first_pos; // of its first row
    float *logits;     // or NULL; like the next ones, of the whole batch
    tern_wants wants;
    tern_binding inputs[GPU_INPUTS_MAX]; // rows of floats
    int64_t counts[TERN_DIMS_MAX];       // of the batch, by dimension
    int n_inputs;
    tern_binding others[TERN_BINDINGS_MAX]; // outputs that are wanted, but for the logits
    int n_others;
} gpu_request;

// A batch, with its chunks in the order that they are computed in: prompts, then steps.
typedef struct gpu_order {
    tern_chunk *chunks;  // [n_batch]
    gpu_origin *origins; // [n_batch]
    int32_t *ids;        // [n_batch]
    int32_t *outputs;    // [n_batch] rows that are wanted, counted in the request
    gpu_chunk *sent;     // [n_batch] the request's, as kernels read them
    int32_t *places;     // [n_batch] which of the batch's outputs they are
    int32_t n_chunks, n_outputs;
    int32_t n_prompts, n_prompt_outputs; // of them
    int32_t chunk, id, output;           // where the next request begins
} gpu_order;
// Takes over a batch; then each call makes its next request the instance's, until none is left.
tern_status gpu_order_fill(tern_instance *in, const tern_batch *b, tern_error *err);
bool gpu_order_has_next(const tern_instance *in);
bool gpu_order_next(tern_instance *in);
// Back to where the last request began.
void gpu_order_go_to(tern_instance *in, int32_t chunk, int32_t id, int32_t output);
// Sends the parameters of the request, `ahead` positions further on, and of the greedy steps after
// it, *n_steps in all; makes the bind groups if they are missing. If memory suffices only for fewer
// steps, *n_steps becomes their number.
tern_status gpu_send_runs(tern_instance *in, int32_t ahead, int32_t *n_steps, tern_error *err);

// Cosines and sines of positions that were wanted lately, [position % GPU_ANGLES_KEPT][n_rot]:
// other sequences come to the same ones.
#define GPU_ANGLES_KEPT 1024
typedef struct gpu_angle_memo {
    int32_t *keys; // [GPU_ANGLES_KEPT], of a position and its factors; 0: none
    float *rows;
} gpu_angle_memo;

// What decides which pipelines a request needs.
typedef struct gpu_shape {
    int32_t kind, n_tokens, n_chunks, n_outputs;
} gpu_shape;

struct tern_instance {
    tern_plan *plan;
    tern_page_pool *page_pool;
    tern_vid scores;
    gpu_cache cache;
    gpu_shape made_for; // steps whose pipelines were found made
    bool uses_chunks;   // some kernel binds them
    uint32_t growth;    // gpu_page_pool_growth when the bind groups were made
    uint32_t *tables;   // of the run that is being written
    size_t tables_capacity;
    uint64_t runs_bytes;
    gpu_order order;
    wgpu_buffer runs, chunks, ids, ids_ahead, pool, pool_i8, logits, top_parts, top, lists, parts;
    wgpu_buffer screen_x, screen_lists; // gpu_screen.c
    bool has_copy;                      // the bind groups bind the copy of the head
    gpu_readback readbacks[2];
    wgpu_buffer sent[GPU_HOST_TABLES_MAX]; // rows of tables, by number of the plan's
    struct {
        tern_vid value;
        wgpu_buffer rows;
    } given[GPU_INPUTS_MAX]; // [n_given]
    int n_given;
    wgpu_buffer *angles;                   // by rope
    wgpu_group *groups[GPU_STEPS_MAX + 1]; // by step and dispatch; NULL: not needed yet
    uint32_t made[GPU_STEPS_MAX + 1]; // by step: for which batches (gpu_instance.c) it has groups
    float *angles_host;               // cosines and sines of a batch
    gpu_angle_memo *memos;            // by rope
    gpu_request batch;                // being computed
    int32_t chunk_first, chunk_rows;
    uint64_t piece_work; // the batch's
    size_t piece;        // the dispatch with which its next piece begins; 0: none is left
    bool reads_rows;     // of the chunk, since a list did not suffice
    bool busy;
    bool is_step;       // the request is a greedy step: its results are those of `steps`
    bool passes_steps;  // it is prompts, which leave `steps` to the request after them
    bool was_cancelled; // the last batch, whose map may be pending
    bool is_held;       // the batch, until a readback is free
    double unread;      // since when reading its finished results has failed; 0: it has not
    int now;            // its readback
    gpu_steps steps;    // greedy ones: see "Running ahead" in gpu_run.c
    gpu_drafts *drafts; // NULL: the device does not draft
    struct gpu_profile *profile; // NULL: nothing is timed
};

// Where the chunks of a step are in the buffer of chunks.
uint64_t gpu_chunks_at(const tern_instance *in, int32_t step);
void gpu_instance_close_groups(tern_instance *in); // of all steps: the next batch makes them
// Makes the bind groups anew if the buffers of states were replaced, or tables of this many bytes
// need a larger buffer.
tern_status gpu_instance_bind(tern_instance *in, uint64_t table_bytes, tern_error *err);
// Where a step's run begins in the buffer of parameters.
static inline uint64_t gpu_run_at(int32_t step) {
    return (uint64_t)(GPU_STEPS_MAX - 1 - step) * GPU_RUN_BYTES;
}
// Appends the pages of the first n_positions of a sequence to a table; *n words are there.
tern_status gpu_table_pages(tern_instance *in, const tern_sequence *s, int32_t n_positions,
                            size_t *n, tern_error *err);
// Makes the bind groups that the request needs in that step of a submission, unless they exist
// (gpu_instance.c). Those of GPU_STEP_DRAFTS bind the memory of in->drafts where others bind the
// instance's.
#define GPU_STEP_DRAFTS GPU_STEPS_MAX
tern_status gpu_instance_add_step(tern_instance *in, int32_t step, tern_error *err);

// ---- Commands for the queue (gpu_encode.c) ----------------------------------------------------

#define GPU_FIRST_DISPATCHES 16 // the device is idle: it begins while the others are encoded
typedef struct gpu_encoding {
    wgpu_encoder encoder;
    wgpu_pass pass;
    wgpu_pipeline pipeline;
    uint32_t n_dispatches;
    uint32_t at_most; // most dispatches of this submission, doubled for the next; 0: all
    uint32_t step;    // whose bind groups to use
} gpu_encoding;
#define GPU_ALL_NODES (-2)
// The outputs of the instance's batch whose logits the next dispatches compute: from `first` on, as
// many as fit.
void gpu_set_chunk(tern_instance *in, int32_t first);
// Counts the dispatches of the instance's batch, `ahead` positions further on than it says.
uint32_t gpu_encode_dispatches(const tern_instance *in, gpu_encoding *e, int32_t ahead, bool body,
                               int32_t node);
#define GPU_PIECE_BYTES 4 // read back when a piece is over
// Those of the request's next piece, from dispatch `first` on. Returns where the one after it
// begins; 0: it was the last.
size_t gpu_encode_piece(const tern_instance *in, gpu_encoding *e, size_t first);
// Whether the pipelines of the request are made, and all if more requests follow in the batch; else
// begins them.
tern_status gpu_has_kernels(tern_instance *in, bool *has, tern_error *err);
void gpu_encode_dispatch(const tern_instance *in, gpu_encoding *e, wgpu_pipeline pipeline,
                         wgpu_group group, uint32_t x, uint32_t y, uint32_t z);
void gpu_encode_copy(const tern_instance *in, gpu_encoding *e, wgpu_buffer from, uint64_t offset,
                     wgpu_buffer to, uint64_t to_offset, uint64_t bytes);
void gpu_encoding_submit(const tern_instance *in, gpu_encoding *e);
// Cosines and sines of consecutive positions, to the rows of `to` (by rope) from to_row on.
void gpu_send_angles(tern_instance *in, const wgpu_buffer *to, int32_t to_row, int32_t first_pos,
                     int32_t n_tokens, bool is_long);
// Sends the angles of the rows of the instance's batch, `ahead` positions further on, and of the
// steps after it.
void gpu_send_row_angles(tern_instance *in, int32_t ahead, int32_t n_steps);

// ---- Requests (gpu_run.c) ----------------------------------------------------------------------

// Sends the tokens, angles, inputs and chunks of the instance's request.
tern_status gpu_send_rows(tern_instance *in, tern_error *err);

// ---- Heads of many rows (gpu_screen.c) ---------------------------------------------------------

// Before a request is encoded: makes the copy of the head if this request is the first to use it.
tern_status gpu_screen_prepare(tern_instance *in, tern_error *err);
// Whether the request's logits, in this pass over the head, are screened.
bool gpu_screens(const tern_instance *in);

// ---- Drafts (gpu_drafts.c) ---------------------------------------------------------------------

#define GPU_DRAFTS_READ_BYTES 2048 // of a readback, at most
void gpu_drafts_close(tern_instance *in);
// Without the bind groups of its runs, which gpu_instance.c makes.
tern_status gpu_drafts_open(tern_instance *in, const tern_draft_table *t, tern_error *err);
// The drafts' memory for a binding; NULL: use the instance's.
wgpu_buffer gpu_drafts_buffer(const gpu_drafts *d, gpu_place place, tern_vid v);
wgpu_buffer gpu_drafts_state(const gpu_drafts *d);
// Whether the batch can be answered by drafting; a batch that cannot is a single step.
bool gpu_drafts_can(const tern_instance *in, const gpu_request *b);
tern_status gpu_drafts_submit(tern_instance *in, tern_error *err); // the instance's request
// Whether one of its batches is being waited for.
bool gpu_drafts_busy(const tern_instance *in);
// The size of its results, and reading them when they are mapped.
uint64_t gpu_drafts_bytes(const tern_instance *in);
tern_status gpu_drafts_take(tern_instance *in, const void *results, tern_error *err);
// The text changed course: what was computed ahead is useless.
void gpu_drafts_forget(tern_instance *in);

// ---- Results (gpu_results.c) -------------------------------------------------------------------

typedef enum gpu_results {
    GPU_RESULTS_NONE,
    GPU_RESULTS_GREATEST, // index and logit, of each row
    GPU_RESULTS_LISTS,    // a gpu_list of each row
    GPU_RESULTS_LOGITS,
} gpu_results;
// What to read back for the chunk.
gpu_results gpu_results_of(const tern_instance *in);
// How many bytes. Never 0, since the run is over when they are mapped.
uint64_t gpu_results_bytes(const tern_instance *in);
wgpu_buffer gpu_results_buffer(const tern_instance *in);
// The i-th of results that are GPU_RESULTS_GREATEST.
void gpu_results_greatest(const void *mapped, size_t i, int32_t *id, float *logit);
// Whether that sufficed; else read the logits, which are still there.
bool gpu_results_take(const tern_instance *in, const void *mapped);

// Outputs other than logits follow them in the readback of a batch's body: how many bytes at most,
// and of the instance's batch; copying them there, and from there to where they are wanted.
uint64_t gpu_outputs_bytes_max(const tern_plan *p);
uint64_t gpu_outputs_bytes(const tern_instance *in);
void gpu_outputs_encode(const tern_instance *in, gpu_encoding *e, wgpu_buffer to, uint64_t at);
void gpu_outputs_take(const tern_instance *in, const void *mapped);
tern_status gpu_outputs_read(const tern_instance *in, tern_error *err); // waits
int32_t gpu_rows_of_value(const tern_instance *in, tern_vid v);         // in the instance's batch

// ---- Profile (gpu_profile.c) -------------------------------------------------------------------

typedef struct gpu_profile gpu_profile;
tern_status gpu_profile_open(gpu_profile **out, tern_device *d, size_t n_dispatches,
                             tern_error *err);
void gpu_profile_close(gpu_profile *p); // NULL is allowed
// A pass for the next dispatch of this kernel, which moves n bytes.
wgpu_pass gpu_profile_pass(gpu_profile *p, wgpu_encoder encoder, gpu_kernel kernel, uint64_t bytes);
// After the last dispatch, and after the submission of the encoder.
void gpu_profile_encode(gpu_profile *p, wgpu_encoder encoder);
void gpu_profile_submitted(gpu_profile *p);
// Whether the times have arrived; then they are added to the rows.
bool gpu_profile_take(gpu_profile *p);
const tern_profile *gpu_profile_rows(const gpu_profile *p);

#endif
