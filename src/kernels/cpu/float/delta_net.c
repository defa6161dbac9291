#include "kernels/cpu/float/delta_net.h"
#include "kernels/cpu/kernels.h"

size_t tern_delta_net_scratch_floats(size_t dk) {
    return 2 * DELTA_NET_ROWS + (2 * DELTA_NET_ROWS + DELTA_NET_COLS) * dk;
}
