// Sizes of the delta net's scratch (float/delta_net.inl).
#ifndef TERN_KERNELS_CPU_FLOAT_DELTA_NET_H
#define TERN_KERNELS_CPU_FLOAT_DELTA_NET_H

enum {
    DELTA_NET_ROWS = 32, // of one tile: q and k of 128 dimensions are 16 KB each
    DELTA_NET_COLS = 64  // of the state at once, at most: 32 KB with dk = 128
};

#endif
