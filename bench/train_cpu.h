// Where the time of a training step on the CPU goes.
#ifndef TERN_BENCH_TRAIN_CPU_H
#define TERN_BENCH_TRAIN_CPU_H

#include "kernels/train.h"

typedef struct train_step_time {
    char name[48];
    double seconds, flops; // 0 flops: not a product
} train_step_time;

// Runs the program once more and times each of its steps, from barrier to barrier. Returns how many
// of at most `most` were written.
size_t train_cpu_times(tern_program *program, const tern_train_batch *batch, train_step_time *times,
                       size_t most);
// Floating-point operations a second of the products' inner step on registers alone, by all threads
// at once: the best of several fractions of a second.
double train_cpu_peak(tern_trainer_device *device);

#endif
