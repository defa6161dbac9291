// The screened head: finds the k greatest of the logits W x without reading most of W, for one x or
// for several at a time. Greedy answers need one of them, sampled ones their top-k.
//
// A low-bit copy of W proves that nearly every row cannot be among the k greatest; the few
// remaining rows are computed in full. The answer is the same, in ids and in bits, as if all rows
// had been computed by tern_float_kernels.matvec and the greatest chosen (equal values: the lower
// id first; NaN never). Why: head.c.
//
// Where only some rows are allowed, the answer is the greatest of these. A few are computed in
// full, without a look at the copy; else blocks of rows without an allowed one are passed over.
//
// The copy (tern_head) is built once and shared; a query belongs to one run. Threads share the
// work by ranges, with their own barriers in between:
//
//     one thread:   tern_head_begin(q, x, n_x, k, allowed)
//     all threads:  do {
//                       barrier
//                       for each claimed range of [0, tern_head_n_items(q)):
//                           tern_head_work(q, first, last)
//                       barrier
//     one thread:       more = tern_head_next(q, ids, values)
//                   } while (more)
#ifndef TERN_KERNELS_CPU_HEAD_H
#define TERN_KERNELS_CPU_HEAD_H

#include "base/status.h"
#include "kernels/cpu/kernels.h"

typedef struct tern_head_matrix {
    tern_dtype type;
    const void *data; // row r at data + r * row_bytes; must stay where it is
    size_t row_bytes, n_rows, n_in;
    float scale; // of I2_S, else unused
} tern_head_matrix;

typedef struct tern_head tern_head;
typedef struct tern_head_query tern_head_query;

// Allocates; then the copy must be built, every row once. TERN_ERR_UNSUPPORTED for shapes that the
// proof does not cover (n_in above 2^20).
tern_status tern_head_create(tern_head **out, const tern_head_matrix *w,
                             const tern_cpu_kernels *kernels, tern_error *err);
void tern_head_free(tern_head *h);
// Any thread, disjoint ranges. scratch (64): tern_head_build_scratch_bytes for this thread alone,
// zeroed before its first use.
size_t tern_head_build_scratch_bytes(const tern_head *h);
void tern_head_build(tern_head *h, size_t first_row, size_t last_row, void *scratch);
uint64_t tern_head_bytes(const tern_head *h);        // of the whole copy
uint64_t tern_head_screen_bytes(const tern_head *h); // the least that every query reads

// For up to n_max vectors at a time (at most TERN_HEAD_VECTORS_MAX), which share the reading.
#define TERN_HEAD_VECTORS_MAX 32
tern_status tern_head_query_create(tern_head_query **out, const tern_head *h, size_t n_max,
                                   tern_error *err);
void tern_head_query_free(tern_head_query *q);
size_t tern_head_query_max(const tern_head_query *q);

// x [n_x, n_in] must stay until the end; k >= 1. allowed: NULL, or [n_x] sets of rows, row r in bit
// r % 64 of word r / 64, which must stay, too; a NULL among them is all rows.
void tern_head_begin(tern_head_query *q, const float *x, size_t n_x, int32_t k,
                     const uint64_t *const *allowed);
// Ranges begin at multiples of the block and, except for the last, end at them.
size_t tern_head_n_items(const tern_head_query *q);
size_t tern_head_block(const tern_head_query *q);
void tern_head_work(tern_head_query *q, size_t first, size_t last);
// True: another round of work. False: ids and values [n_x, k] hold the answers, best first; places
// without a row have the id INT32_MAX and the value -infinity. In between they are scratch.
bool tern_head_next(tern_head_query *q, int32_t *ids, float *values);

// How far the rows of the last query got for vector i.
typedef struct tern_head_stats {
    bool is_deep;        // all bits were read at once, since the query before made it likely to pay
    size_t n_refined[2]; // for which the first and the second extra bit was read
    size_t n_exact;      // read in full
    uint64_t bytes;      // read in all, for one vector alone
} tern_head_stats;
tern_head_stats tern_head_query_stats(const tern_head_query *q, size_t i);

#endif
