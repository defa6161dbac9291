// What a device must do for the runtime. A backend deals with graphs and
// tensors, never with models, tokenizers or files.
//
//   open ── bind (each weight) ── compile (graph + weights → plan) ─┬─ page pool (pages of states)
//                                                                   └─ instance (scratch of runs)
//                                                      submit ─ poll ─ read, per batch
//
// A batch has rows of any number of sequences (sequence.h). A row's bits depend neither on the
// other rows of its batch, nor on how its sequence was split into batches (but see n_same_bits),
// nor on where its pages are.
//
// Long operations do not block: a browser cannot, and a GPU should not. Operations that begin
// (open, bind, submit) are polled by the caller until they are done; on the CPU at once (submit
// returns when the batch is computed), except for batches in pieces. Functions that wait say so.
#ifndef TERN_KERNELS_BACKEND_H
#define TERN_KERNELS_BACKEND_H

#include "base/dtype/matrix.h"
#include "graph/graph.h"
#include "kernels/draft_table.h"
#include "kernels/sequence.h"

typedef struct tern_device tern_device;     // an open backend
typedef struct tern_weight tern_weight;     // a weight as the device's kernels read it
typedef struct tern_plan tern_plan;         // a compiled graph
typedef struct tern_instance tern_instance; // memory of one run at a time: temporaries, results

typedef struct tern_device_desc {
    int n_threads;            // 0: one for each core
    const char *cpu_features; // see tern_model_desc
    tern_ternary_layout ternary;
    bool precise;                   // products with codes in groups take float activations
    tern_matmul_precision products; // see tern_model_desc
    const tern_webgpu_desc *webgpu; // NULL: the defaults
    // Rejects software adapters, which compute on this processor: the CPU backend is faster.
    // Programs that bring WebGPU's functions have chosen the adapter themselves.
    bool only_hardware;
} tern_device_desc;

// A weight as it is in the file.
typedef struct tern_weight_source {
    const char *name;
    tern_dtype type;
    tern_blob data; // of `bytes`, maybe in a file that is not mapped; the file stays open
    uint64_t bytes;
    int64_t n_rows, n_cols;
    float scale;    // I2_S, HF_TERNARY
    bool ternarize; // float master weights: round(w / mean|w|) in -1..1, times mean|w|
    bool is_matrix, is_table, is_head;
    bool on_host;   // a table that stays in the file: a device gets the rows of a batch's tokens
    bool as_floats; // products with it take float activations, even if others are faster
    // A matrix of n_parts stacked parts; a token reads n_parts_read of them. Never ternary. 0: one.
    int32_t n_parts, n_parts_read;
    int32_t n_conv_outputs; // of a convolution of all columns, each [inputs][taps]; 0: not one
    tern_head_mode head;    // for is_head
} tern_weight_source;
// Whether a 1- or 2-bit matrix takes the grouped kernels (TERN_WEIGHT_GROUPED): not if ternary or
// `precise`. All backends must agree, since a model may move between them with its graph. For other
// weights they may differ: if the first backend does not group one, it is bound as_floats. Heads
// that a mode converts are not grouped; "exact" heads keep their few bits.
bool tern_weight_in_groups(const tern_weight_source *s, bool precise);

static inline tern_matrix tern_weight_matrix(const tern_weight_source *s) {
    return (tern_matrix){s->type, s->data, s->n_rows, s->n_cols, s->scale};
}

// The type that a mode converts the head to; false: none.
bool tern_head_type(tern_head_mode mode, tern_dtype *type);

// What bind made of the weight.
typedef struct tern_weight_info {
    tern_weight_kind kind;
    bool
        is_settled; // the rest is final, and a graph can be compiled, though bytes may still travel
    bool is_bound;  // none does
    bool keeps_source;               // every token reads all of the file's data: keep it resident
    uint64_t bytes_per_token;        // read by one token's matrix x vector product
    uint64_t bytes_per_token_greedy; // head: if only the greatest logits are wanted
    const char *layout;              // "1.6-bit", "F16", "exact F16" ...
} tern_weight_info;

// Greedy speculation on the device: starting from one token it drafts from its table, computes runs
// of the token and its draft, verifies them, and continues for several runs before the host gets
// results. They are the same as those of single steps. A backend may do a single step instead.
#define TERN_DRAFTING_MAX 8 // tokens of a run, for any backend
typedef struct tern_drafting {
    const int32_t *before; // the tokens before the batch's, as many as a draft's prefix may have
    int32_t n_before;
    int32_t n_each;   // tokens of a run: the known one and drafts, 2 .. the backend's n_same_bits
    int32_t n_max;    // room for results
    int32_t n_wanted; // at most, now and later: no need to compute further ahead
    // Results.
    int32_t n;      // top_ids[0 .. n - 1] follow; the states hold the batch's token and all but the
                    // last of these
    int32_t n_runs; // of the model
    uint32_t counts[TERN_DRAFTING_MAX][TERN_DRAFTING_MAX]; // by tokens drafted and accepted
} tern_drafting;

// The results that a batch gives. From a session to the kernels it is this one struct: a session
// says which scores it needs, a group joins what its sessions need and says where it goes, the
// runtime finds the outputs by their names, and a backend reads the rest.
#define TERN_WANTS_MAX 4
typedef struct tern_wants {
    // Outputs of the graph by name, such as "logits", up to the first NULL, and where their rows
    // go; NULL data: not wanted. A backend has them as tern_batch.bindings.
    const char *outputs[TERN_WANTS_MAX];
    void *data[TERN_WANTS_MAX];
    int32_t top_k;     // > 0: the k greatest of each row that the graph's top_k reads
    int32_t *top_ids;  // [rows, top_k], by descending logit; of equals the lower index first
    float *top_logits; // [rows, top_k], the same bits as in the row
    // NULL, or [rows] sets of columns allowed among the greatest: column i in bit i % 64 of word
    // i / 64; a NULL among them allows all. If fewer than top_k are allowed, the last ids are
    // INT32_MAX. Only for backends with takes_masks.
    const uint64_t *const *allowed;
    bool few_ahead; // the caller may change course at any step: a backend that computes greedy
                    // steps ahead computes only one at a time
    tern_drafting *drafting; // not NULL: for one token, whose greatest logit is wanted
} tern_wants;

// Consecutive tokens of one sequence in a batch. Its rows follow the previous chunk's.
typedef struct tern_chunk {
    tern_sequence *sequence; // with room reserved for them
    int32_t n_tokens;        // at least 1
    int32_t first_pos;       // position of the first; the sequence holds those before it
    bool is_long;            // the text uses RoPE's factors for longer texts (TERN_ROPE_LONG)
    bool has_ends;           // some of its rows have tern_batch.ends
    int32_t shift; // RoPE's positions are the sequence's plus this, unless batch.places has them
    // If `keeps`: the page for a copy of the fixed states after the first kept_after tokens.
    bool keeps;
    int32_t kept_after;
    tern_page kept;
} tern_chunk;

// An input or output of the graph by its value; [rows, columns] of the value's type.
typedef struct tern_binding {
    tern_vid value;
    void *data;
} tern_binding;
#define TERN_BINDINGS_MAX 8

// Rows of the dimension "tokens" are the chunks' tokens in order, of "sequences" the chunks, of
// "outputs" the wanted rows. All other dimensions, and all of a graph without tokens, have the rows
// that `counts` says.
typedef struct tern_batch {
    const int32_t *ids; // the input "ids"
    int32_t n_tokens;   // 1 .. the plan's n_batch; 0 of a graph without tokens
    const tern_chunk *chunks;
    int32_t n_chunks;
    // The input "places": RoPE's positions of each row, [n_tokens, 3]; NULL: see tern_chunk.shift.
    const int32_t *places;
    // For attention to whole images (tern_attention_attrs.images): for each row, the position after
    // its image's last one; 0: not in an image; NULL: none is. An image's rows are all in one
    // chunk, which has has_ends.
    const int32_t *ends;
    const int32_t *outputs;        // the input "outputs": wanted rows, ascending; NULL: the last
    int32_t n_outputs;             // 0 .. n_tokens
    int64_t counts[TERN_DIMS_MAX]; // by dimension of the graph, 0 .. the plan's n_batch
    // Other inputs, and the outputs of `wants`. The plan avoids computing unbound outputs where it
    // can.
    tern_binding bindings[TERN_BINDINGS_MAX];
    int32_t n_bindings;
    tern_wants wants; // of the n_outputs rows
    // The range of logits needed for the only wanted row (n_scores 0: all); others are undefined.
    // The CPU skips them, since their weights would be most of the bytes a step reads; a GPU
    // computes all.
    int32_t first_score, n_scores;
    // Not 0: it is computed in pieces of one node or of about this much work (tern_node_work), one
    // with each poll, so that others' batches come in between. It must stay where it is until it is
    // done.
    uint64_t piece_work;
} tern_batch;
// About how many multiplications a node takes in a batch with these rows of its dimensions.
uint64_t tern_node_work(const tern_graph *g, const tern_node *n,
                        const int64_t counts[TERN_DIMS_MAX], const tern_batch *batch);
// Whether a plan and pools of these sizes can run the batch.
tern_status tern_batch_check(const tern_batch *batch, const tern_graph *g, int32_t n_batch,
                             int32_t n_context, tern_error *err);
// RoPE's position of row `row` of the batch, which is row `at` of the chunk; row -1: a step after
// the batch.
void tern_batch_place(const tern_batch *batch, const tern_chunk *c, int32_t row, int32_t at,
                      int32_t place[3]);
// How many rows each dimension of the graph has in the batch.
void tern_batch_counts(const tern_batch *batch, const tern_graph *g, int64_t counts[TERN_DIMS_MAX]);
// The data bound to a value; NULL: none.
void *tern_batch_data(const tern_batch *batch, tern_vid value);
void tern_batch_bind(tern_batch *batch, tern_vid value, void *data); // NULL data is not bound
// The output with the tokens' scores, which has the most columns; -1: none.
tern_vid tern_graph_scores(const tern_graph *g);

// The type of a cache: for TERN_KV_AUTO, F32 if all of it is small, else F16.
// Fails for Q8_0 if a head's dimensions are not a multiple of its blocks.
tern_status tern_kv_choose(const tern_graph *g, int32_t n_context, tern_kv_type wanted,
                           tern_kv_type *out, tern_error *err);

// Time by kernel or op, in the order of first use.
#define TERN_PROFILE_ROWS 64
typedef struct tern_profile {
    tern_profile_row rows[TERN_PROFILE_ROWS];
    size_t n;
} tern_profile;
// Adds a call to the row of that name; when all rows are taken, new names go to the last one.
void tern_profile_add(tern_profile *p, const char *name, double seconds, uint64_t bytes);

// Receives the result of a check; detail describes the error.
typedef void (*tern_check_fn)(void *ctx, const char *name, bool ok, const char *detail);
typedef void (*tern_fact_fn)(void *ctx, const char *name, const char *value);
// Receives a value [n_rows, columns of v] right after the node that computed it.
typedef void (*tern_tap_fn)(void *ctx, tern_vid v, const float *rows, int32_t n_rows);

// A weight on a device compared with the file.
typedef struct tern_weight_check {
    uint64_t n_bytes, n_wrong;
    uint64_t wanted, found; // checksums
} tern_weight_check;

#define TERN_BATCH 512 // tokens of a prompt computed at once, where a device has no wish

typedef struct tern_backend {
    const char *name;
    // In a chunk of up to this many tokens, each row has the same bits as alone; speculation may
    // compute that many together. Rows of longer chunks have the same bits whatever their lengths.
    int32_t n_same_bits;
    int32_t n_chunks_max; // of a batch
    // Tokens of a prompt that an open device best computes at once: enough to fill it.
    int32_t (*n_batch)(const tern_device *d);
    // Batches with one greedy token per sequence run faster if the sequences have this many more
    // positions reserved.
    int32_t n_ahead;
    // Any number of threads may use a device at once, each with its own instance. Else one at a
    // time, except for is_lost and memory.
    bool is_shared;
    bool takes_masks; // batches may have `allowed`
    // Begins to open a device, which then can be polled and closed. desc must live until it is
    // open.
    tern_status (*open)(tern_device **out, const tern_device_desc *desc, tern_error *err);
    // After a failure it can only be closed.
    tern_status (*open_poll)(tern_device *d, bool *done, tern_error *err);
    void (*close)(tern_device *d); // at any time; cancels unfinished work
    // One line for people: "cpu avx512, 2 threads".
    const char *(*describe)(tern_device *d);
    int (*n_threads)(const tern_device *d); // host threads that compute; 0 for a GPU
    // Whether it is permanently lost: then it can only be closed.
    bool (*is_lost)(const tern_device *d);
    // Bytes used in its own memory; zeros if it computes in the host's.
    void (*memory)(const tern_device *d, tern_device_memory *out);
    // Before the weights are bound, makes choices that need measurements on them.
    tern_status (*tune)(tern_device *d, const tern_weight_source *sources, size_t n,
                        tern_error *err);
    // Begins to bind a weight, one at a time. The source must live until the weight is bound, its
    // data (where the blob's bytes are read from) until it is unbound.
    tern_status (*bind)(tern_device *d, const tern_weight_source *source, tern_weight **out,
                        tern_error *err);
    // Binds some tens of megabytes more, as far as the device takes them now. *left: about how many
    // bytes of the source are still to be read; 0: it is bound. After a failure it can only be
    // unbound.
    tern_status (*bind_poll)(tern_device *d, tern_weight *w, uint64_t *left, tern_error *err);
    void (*unbind)(tern_device *d, tern_weight *w); // at any time
    void (*weight_info)(const tern_weight *w, tern_weight_info *info);
    // weights[v] for every weight value v of the graph; the graph stays the caller's and must
    // outlive the plan.
    tern_status (*compile)(tern_device *d, const tern_graph *g, tern_weight *const *weights,
                           int32_t n_batch, tern_plan **out, tern_error *err);
    // Whether kernels are ready that a device makes on other threads after compile; an instance
    // waits for them.
    tern_status (*compile_poll)(tern_plan *p, bool *done, tern_error *err);
    void (*plan_free)(tern_plan *p);
    const tern_memory_plan *(*plan_memory)(const tern_plan *p);
    // Memory for pages of states. Functions of pages are ordered with the batches submitted before
    // and after them; a page is used by one thread at a time.
    tern_status (*page_pool_open)(tern_plan *p, const tern_page_layout *layout,
                                  const tern_cache_desc *desc, tern_page_pool **out,
                                  tern_error *err);
    void (*page_pool_close)(tern_page_pool *s);
    int32_t (*page_positions)(const tern_page_pool *s);
    uint64_t (*page_bytes)(const tern_page_pool *s, int group);
    // Announces that n pages will be taken soon. NULL: no need.
    tern_status (*pages_expect)(tern_page_pool *s, int group, int32_t n, tern_error *err);
    tern_status (*page_new)(tern_page_pool *s, int group, tern_page *out,
                            tern_error *err); // contents undefined
    void (*page_free)(tern_page_pool *s, int group, tern_page page);
    tern_status (*page_copy)(tern_page_pool *s, int group, tern_page from, tern_page to,
                             tern_error *err);
    tern_status (*page_clear)(tern_page_pool *s, int group, tern_page page, tern_error *err);
    // Waits.
    tern_status (*page_read)(tern_page_pool *s, int group, tern_page page, void *to,
                             tern_error *err);
    tern_status (*page_write)(tern_page_pool *s, int group, tern_page page, const void *from,
                              tern_error *err);
    // For batches over sequences of this pool.
    tern_status (*instance_open)(tern_plan *p, tern_page_pool *s, tern_instance **out,
                                 tern_error *err);
    void (*instance_close)(tern_instance *i);
    // For batches with `drafting`: takes a copy of the table. NULL: the backend cannot draft.
    tern_status (*drafts_open)(tern_instance *i, const tern_draft_table *t, tern_error *err);
    // The results are in the batch's arrays once poll says done.
    tern_status (*submit)(tern_instance *i, const tern_batch *batch, tern_error *err);
    tern_status (*poll)(tern_instance *i, bool *done, tern_error *err);
    // Cancels the submitted batch: its arrays are no longer written, and its effect on the states
    // is unknown. Others may be submitted at once.
    void (*cancel)(tern_instance *i);
    // Times each kernel from now on; the sums so far, or NULL if not started.
    tern_status (*profile_start)(tern_instance *i, tern_error *err);
    const tern_profile *(*profile_read)(const tern_instance *i);
    // For diagnosis: the device's properties.
    void (*facts)(tern_device *d, tern_fact_fn on_fact, void *ctx);
    // Checks the features that the kernels rely on; fails only if it cannot continue. Waits, as do
    // the next two.
    tern_status (*selftest)(tern_device *d, tern_check_fn on_check, void *ctx, tern_error *err);
    // NULL: the device computes with the file's own bytes, or with copies that cannot differ.
    tern_status (*verify)(tern_device *d, const tern_weight *w, const tern_weight_source *source,
                          tern_weight_check *out, tern_error *err);
    // Submits a batch, waits for it, and passes on each F32 value on the way that is not an output.
    tern_status (*trace)(tern_instance *i, const tern_batch *batch, tern_tap_fn on_value, void *ctx,
                         tern_error *err);
} tern_backend;

// Open a device and bind a weight in one call: loops around the polls, so they wait.
tern_status tern_backend_open(const tern_backend *b, tern_device **out,
                              const tern_device_desc *desc, tern_error *err);
tern_status tern_backend_bind(const tern_backend *b, tern_device *d,
                              const tern_weight_source *source, tern_weight **out, tern_error *err);

extern const tern_backend tern_backend_cpu;
extern const tern_backend tern_backend_webgpu;

#endif
