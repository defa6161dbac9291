// DoRA's factors (arXiv:2402.09353) of an adapter that is trained, a row of the matrix at a time:
//
//   f = m / |row of W + s B A|,   and the inverse of that length; 0 for rows of zeros.
//
// W may stay as its file has it (train_codes.c), and W + s B A is never there as a whole.
#include <string.h>
#include "base/dtype/matrix.h"
#include "kernels/cpu/train/cpu_train.h"

void cpu_train_row_factors(cpu_train_run *run, cpu_train_step *s, const tern_team *team) {
    const tern_float_kernels *k = cpu_train_kernels(run);
    const tern_node *node = s->node;
    const tern_vid w = node->in[1];
    cpu_operands o = cpu_train_operands(run, node);
    const size_t n = cpu_train_cols(run, w), rank = cpu_train_cols(run, node->in[3]);
    const size_t n_out = cpu_train_cols(run, node->in[0]);
    float *row = cpu_train_scratch(run, team), *part = row + n, *room = part + n;
    size_t first, last;
    while (tern_team_claim(&s->counter, n_out, CPU_TRAIN_ROW_BLOCK, &first, &last))
        for (size_t i = first; i < last; i++) {
            if (cpu_train_is_coded(run, w))
                cpu_train_decode(run, w, i, room, row);
            else
                memcpy(row, o.in[1] + i * n, n * sizeof *row);
            for (size_t r = 0; r < rank; r++) {
                k->scale(part, o.in[2] + r * n, o.in[3][i * rank + r] * o.in[4][0], n);
                k->add(row, row, part, n);
            }
            const float length = tern_row_length(row, n);
            o.out[0][i] = length > 0 ? o.in[0][i] / length : 0;
            o.out[1][i] = length > 0 ? 1 / length : 0;
        }
}
