// The products of a training graph and nothing else: the limit of a step on the CPU.
#ifndef TERN_BENCH_TRAIN_PRODUCTS_H
#define TERN_BENCH_TRAIN_PRODUCTS_H

#include "graph/graph.h"

// The least seconds of four rounds, 0 without memory. n_threads 0: one for each core. *name: what
// multiplies, OpenBLAS or (on one thread) own loops.
double train_products_seconds(const tern_graph *g, int32_t n_tokens, int n_threads,
                              const char **name);

#endif
