// One op, or a few, in a small graph that runs on the scalar CPU backend and on the GPU.
//
// Values come in as rows of embedding tables and go out through a head, so that a problem is built,
// lowered, fused and compiled as a model is, whatever the kernels behind it look like:
//
//     rig r;
//     rig_open(&r, 64);                                      // rows that there are to embed
//     tern_vid x = rig_rows(&r, 192, fill_normal, 1);        // y[t] = row of a table of 64
//     rig_show_all(&r, tern_g_act(&r.g, x, TERN_ACTIVATION_SILU));
//     rig_compare(&r, rig_counts(), RIG_OF_ROW, 1e-6);
//     rig_close(&r);
//
// The two devices, with all features and with the least limits, are opened once for all tests. A
// software adapter is slow, so `make test` runs some of the cases and TERN_TEST_LONG=1 (`make
// test-webgpu`) all of them.
#ifndef TERN_KERNELS_WEBGPU_GPU_RIG_TEST_H
#define TERN_KERNELS_WEBGPU_GPU_RIG_TEST_H

#include "kernels/single_test.h"
#include "tests/support/harness.h"

#define RIG_WEIGHTS 24

typedef struct rig {
    tern_graph g;
    tern_vid ids;
    int64_t n_rows;  // of each table
    int64_t n_shown; // columns of the head's output
    float *shown;    // the CPU's answers, after rig_compare: [tokens, n_shown]
    tern_weight_source sources[RIG_WEIGHTS]; // by value: those of vids
    tern_vid vids[RIG_WEIGHTS];
    int n_sources;
    bool has_ternary;
    bool is_direct;      // the output is not a head's
    bool screens;        // a GPU leaves out most of the head (gpu_screen.c), although it is small
    uint64_t bytes_read; // of results, from the GPU that rig_run_top ran on
    uint64_t n_launches; // that rig_walk started
    uint32_t seed;
} rig;

void rig_open(rig *r, int64_t n_rows);
void rig_close(rig *r);

// Fills row `row` of a table or matrix.
typedef void (*rig_fill)(float *x, int64_t n, int64_t row, uint32_t *seed);
void fill_normal(float *x, int64_t n, int64_t row, uint32_t *seed);
// Plain, tiny, huge, zero, negative, with one great outlier, by turns.
void fill_kinds(float *x, int64_t n, int64_t row, uint32_t *seed);
// Whole numbers up to 127, which always occurs, times a power of two: quantization is the identity.
void fill_integers(float *x, int64_t n, int64_t row, uint32_t *seed);
void fill_codes(float *x, int64_t n, int64_t row, uint32_t *seed);    // -1, 0, 1 times 0.5
void fill_two_bits(float *x, int64_t n, int64_t row, uint32_t *seed); // for Q2_0: scales differ
void fill_plus(float *x, int64_t n, int64_t row, uint32_t *seed);     // 0.5
void fill_minus(float *x, int64_t n, int64_t row, uint32_t *seed);    // -0.5
void fill_unit(float *x, int64_t n, int64_t row, uint32_t *seed); // row of the identity, times 0.5
float rig_random(uint32_t *seed);                                 // -1 .. 1

// Embedded rows of a new table; a vector; a matrix of n_out rows, of any element type that can be
// written; a ternary one where `ternary` (then `type` is F32, the codes are the fill's signs).
tern_vid rig_rows(rig *r, int64_t n_cols, rig_fill fill);
tern_vid rig_rows_of(rig *r, int64_t n_cols, tern_dtype type, rig_fill fill);
// A table of n_rows, for ops that do not find its rows by the token.
tern_vid rig_table(rig *r, int64_t n_rows, int64_t n_cols, tern_dtype type, rig_fill fill);
// Any number of columns: picked from a table with some more.
tern_vid rig_odd_rows(rig *r, int64_t n_cols, rig_fill fill);
// Embedded rows of a table that stays on the host.
tern_vid rig_host_rows(rig *r, int64_t n_cols, tern_dtype type, rig_fill fill);
// n_parts matrices in one weight; a row reads n_read of them.
tern_vid rig_parts(rig *r, int32_t n_parts, int32_t n_read, int64_t n_out, int64_t n_in,
                   tern_dtype type, rig_fill fill);
tern_vid rig_vector(rig *r, int64_t n, rig_fill fill);
tern_vid rig_matrix(rig *r, int64_t n_out, int64_t n_in, tern_dtype type, bool ternary,
                    rig_fill fill);
tern_vid rig_array(rig *r, int64_t n_rows, int64_t n_cols, rig_fill fill);
// Numbers for a weight that the graph has already, perhaps one of a convolution of n_outputs.
void rig_give(rig *r, const char *name, int32_t n_outputs, rig_fill fill);
// The rows that are wanted.
tern_vid rig_take_rows(rig *r, tern_vid x);
// The graph's output: all columns of x, or 96 from both ends and some between. Times 1, plus zeros:
// exactly the bits of x.
void rig_show(rig *r, tern_vid x);
// Instead of rig_show: x itself is the graph's output, all of it; each batch is a text of its own.
void rig_output(rig *r, tern_vid x);
// Instead of rig_show: a head of n_vocab rows, whose greatest logits can be requested.
void rig_head(rig *r, tern_vid x, int64_t n_vocab, tern_dtype type, rig_fill fill);
// The same with capped scores; 0: they are not.
void rig_capped_head(rig *r, tern_vid x, int64_t n_vocab, tern_dtype type, rig_fill fill,
                     float cap);

// How the tokens come, from position 0 on; ends with 0.
#define RIG_BATCHES 40
#define RIG_SPANS   8
typedef struct rig_batches {
    int32_t n_tokens[RIG_BATCHES];
    tern_kv_type kv_type;
    int32_t first_pos;
    bool plain;                  // also without fusion
    int32_t n_outputs;           // wanted of a batch at most; 0: all
    int32_t spans[RIG_SPANS][2]; // images: from one position to before another; ends with 0
} rig_batches;
rig_batches rig_counts(void); // 1 to 9, 17 and 130 tokens; in the short run fewer
// The first few of a table's cases, or all.
size_t rig_cases(size_t n_all, size_t n_short);

typedef enum rig_measure {
    RIG_OF_ROW,           // errors as parts of the row's greatest value
    RIG_OF_ELEMENT,       // of the element itself
    RIG_QUANTIZED,        // of the row's greatest; one in 200 values may be a step of 1/127 away
    RIG_BEHIND_QUANTIZED, // of the row's greatest; where a value in front of the product fell to
                          // the other side all of the row is off: one row in 8, by 2 steps
} rig_measure;
void rig_compare(rig *r, rig_batches how, rig_measure measure, double tolerance);

// Whether few tokens in one batch, after a batch of n_before, have the same bits as each has alone;
// in the long run on both devices.
void rig_same_bits(rig *r, tern_kv_type kv_type, int32_t n_before);

// For tests of another form: the answers of one backend, [all tokens, n_shown], or NULL.
typedef enum rig_device {
    RIG_CPU,
    RIG_GPU,
    RIG_GPU_LEAST,
    RIG_DEVICES,
    RIG_GPU_NULL = RIG_DEVICES, // computes nothing
} rig_device;
bool rig_has_gpu(void); // else the test is skipped
// How RIG_GPU multiplies codes in groups of long prompts from now on; whether it can.
bool rig_set_products(tern_matmul_precision products);

typedef struct rig_machine { // a rig on a device
    const tern_backend *b;
    tern_device *d;
    tern_graph g;
    tern_weight **weights;
    size_t n_weights;
    tern_plan *plan;
    tern_single single;
} rig_machine;
tern_status rig_set_up(rig_machine *m, const rig *r, rig_device which, bool fused, int32_t n_batch,
                       int32_t n_context, tern_kv_type kv_type, tern_error *err);
void rig_take_down(rig_machine *m); // even if it could not be set up
float *rig_run(rig *r, rig_device device, rig_batches how, bool fused);
// Whether the GPU rounds quotients once, as the CPU does: software adapters do.
bool rig_rounds_quotients(void);
// The k greatest of each of n tokens in one batch, and their logits.
bool rig_run_top(rig *r, rig_device device, int32_t n, int32_t k, int32_t *ids, float *logits);

// n greedy steps on a GPU, each on the token that the one before found, except that every 13th gets
// another token, and the 31st goes back to position 5, or, where a state is fixed, to the
// beginning. seconds: of work that may be done ahead; 0: one step at a time; less than 0: none, and
// the greatest logit is looked for in the whole row. For a graph with a head, and a table with a
// row for each of its tokens.
typedef struct rig_step {
    int32_t id;
    float logit;
} rig_step;
bool rig_walk(rig *r, rig_device device, double seconds, rig_step *steps, int32_t n);

// Follows fixed states: n tokens in one batch, which remembers the states after `kept`; a fork from
// there; the first goes back to `kept`, computes the rest again, is swapped out and in, and goes
// on; then the fork goes on with the same tokens. Checks that all bits are those of the first time.
void rig_replay(rig *r, rig_device device, int32_t n, int32_t kept);

// Whether the library accepts the texts that the problem's kernels have on a device with subgroups.
// Software adapters have none, so their tests never see these texts.
void rig_translate(rig *r);

// Runs the problem on the GPU with the first allocation failing, then the second, and so on, until
// none fails.
void rig_fail_allocations(rig *r);

#endif
