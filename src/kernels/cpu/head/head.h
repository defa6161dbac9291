// The exact greedy head: the k greatest logits of W x without reading W in full precision.
//
// (file-top proof: see head.c)
#ifndef TERN_KERNELS_CPU_HEAD_H
#define TERN_KERNELS_CPU_HEAD_H

#include "kernels/cpu/kernels.h"

// Low-bit copy of a head W [n_rows, n_in]; filled by ranges of rows, so that threads share the work.
typedef struct tern_head_screen tern_head_screen;

#endif
