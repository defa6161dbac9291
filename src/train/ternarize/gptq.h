// Rounding of matrices by what they multiply.
#ifndef TERN_TRAIN_GPTQ_H
#define TERN_TRAIN_GPTQ_H

#include "base/dtype/dtype.h"
#include "base/status.h"

typedef struct tern_gptq tern_gptq;
tern_status tern_gptq_open(tern_gptq **out, int n_threads, tern_error *err); // closed in any case
void tern_gptq_close(tern_gptq *s);                                          // NULL is allowed
// Rounds shape[0] rows of shape[1] columns (whole blocks) to numbers of a type of trits or signs
// with a scale for each group. products: X^T X of what they multiply, [columns, columns]. The bits
// do not depend on the threads.
tern_status tern_gptq_round(tern_gptq *s, tern_dtype type, float *rows, const size_t shape[2],
                            const float *products, tern_error *err);
uint64_t tern_gptq_bytes(tern_dtype type, uint64_t n_rows, uint64_t n_cols); // of its memory

#endif
