// The kernels of training, as rows of GPU_KERNELS (gpu_kernels.h).
#ifndef TERN_KERNELS_WEBGPU_TRAIN_GPU_TRAIN_KERNELS_H
#define TERN_KERNELS_WEBGPU_TRAIN_GPU_TRAIN_KERNELS_H

#ifdef TERN_NO_TRAINING // the two that opening a device knows
#define GPU_TRAIN_KERNELS(ROW) GPU_TRAIN_PRODUCTS(ROW)
#else
#define GPU_TRAIN_KERNELS(ROW) GPU_TRAIN_PRODUCTS(ROW) GPU_TRAIN_OTHERS(ROW)
#endif

#define GPU_TRAIN_PRODUCTS(ROW)                                                                    \
    ROW(GPU_TRAIN_GEMM, "train_gemm", "gemm", "rrw")                                               \
    ROW(GPU_TRAIN_GEMM_MATRIX, "train_gemm_matrix", "gemm", "rrw")

#define GPU_TRAIN_OTHERS(ROW)                                                                      \
    ROW(GPU_TRAIN_HADAMARD, "hadamard", "hadamard", "wrw")                                         \
    ROW(GPU_TRAIN_DECODE, "train_decode", "decode", "rrw")                                         \
    ROW(GPU_TRAIN_DECODE_WIDE, "train_decode_wide", "decode", "rrw")                               \
    ROW(GPU_TRAIN_NORM, "train_rows", "rms_norm", "rr--w")                                         \
    ROW(GPU_TRAIN_QUANTIZE, "train_rows", "quantize", "r---w")                                     \
    ROW(GPU_TRAIN_NORM_QUANTIZE, "train_rows", "norm_quantize", "rr--w")                           \
    ROW(GPU_TRAIN_QUANTIZE_HALF, "train_rows", "quantize_half", "r------w")                        \
    ROW(GPU_TRAIN_NORM_QUANTIZE_HALF, "train_rows", "norm_quantize_half", "rr-----w")              \
    ROW(GPU_TRAIN_NORM_GRAD, "train_rows", "norm_grad", "rrrrww")                                  \
    ROW(GPU_TRAIN_NORM_GRAD_W, "train_rows", "norm_grad_w", "r-r-w-r")                             \
    ROW(GPU_TRAIN_EMBED, "train_elements", "embed", "r--w-r")                                      \
    ROW(GPU_TRAIN_PUT_SCORED, "train_elements", "put_scored", "r--w-r")                            \
    ROW(GPU_TRAIN_ADD, "train_elements", "add", "rr-w")                                            \
    ROW(GPU_TRAIN_MUL, "train_elements", "mul", "rr-w")                                            \
    ROW(GPU_TRAIN_SCALE, "train_elements", "scale", "r--w")                                        \
    ROW(GPU_TRAIN_BIAS, "train_elements", "bias", "rr-w")                                          \
    ROW(GPU_TRAIN_SCALE_BY, "train_elements", "scale_by", "rr-w")                                  \
    ROW(GPU_TRAIN_CAP, "train_elements", "cap", "r--w")                                            \
    ROW(GPU_TRAIN_CAP_GRAD, "train_elements", "cap_grad", "rr-w")                                  \
    ROW(GPU_TRAIN_SCALE_PIECES, "train_elements", "scale_pieces", "r--w")                          \
    ROW(GPU_TRAIN_LAYER_NORM, "train_rows", "layer_norm", "rrr-w")                                 \
    ROW(GPU_TRAIN_LAYER_NORM_GRAD, "train_rows", "layer_norm_grad", "rrr-ww")                      \
    ROW(GPU_TRAIN_ROUTE, "train_mixture", "route", "rr---w")                                       \
    ROW(GPU_TRAIN_ROUTE_GRAD, "train_mixture", "route_grad", "r-rr-w")                             \
    ROW(GPU_TRAIN_MIX, "train_mixture", "mix", "r-r--w")                                           \
    ROW(GPU_TRAIN_MIX_GRAD, "train_mixture", "mix_grad", "--rr-w")                                 \
    ROW(GPU_TRAIN_MIX_GRAD_ROUTE, "train_mixture", "mix_grad_route", "r-rr-w")                     \
    ROW(GPU_TRAIN_EXPERTS, "train_experts", "experts", "rrr-w")                                    \
    ROW(GPU_TRAIN_EXPERTS_GRAD_X, "train_experts", "experts_grad_x", "-rrrw")                      \
    ROW(GPU_TRAIN_SCAN_GATES, "train_scan", "gates", "rrrrrw")                                     \
    ROW(GPU_TRAIN_SCAN, "train_scan", "scan", "rrrrw")                                             \
    ROW(GPU_TRAIN_SCAN_BACK, "train_scan", "scan_back", "rrrrrww")                                 \
    ROW(GPU_TRAIN_SCAN_ROWS, "train_scan", "scan_rows", "rrrrwwww")                                \
    ROW(GPU_TRAIN_SCAN_ROWS_BACK, "train_scan", "scan_rows_back", "rrrrww-w")                      \
    ROW(GPU_TRAIN_SCAN_DOTS, "train_scan", "scan_dots", "rrwrwwww")                                \
    ROW(GPU_TRAIN_SCAN_GATES_BACK, "train_scan", "scan_gates_back", "rrrrrww")                     \
    ROW(GPU_TRAIN_SCAN_HEADS_BACK, "train_scan", "scan_heads_back", "rrrr--w")                     \
    ROW(GPU_TRAIN_EXPERTS_GRAD_W, "train_experts", "experts_grad_w", "rr-rw")                      \
    ROW(GPU_TRAIN_BIAS_GRAD, "train_conv", "bias_grad", "--r--w")                                  \
    ROW(GPU_TRAIN_TURN_COLUMNS, "train_elements", "turn_columns", "r--w")                          \
    ROW(GPU_TRAIN_COLUMNS, "train_elements", "columns", "r--w")                                    \
    ROW(GPU_TRAIN_COLUMNS_GRAD, "train_elements", "columns_grad", "r--w")                          \
    ROW(GPU_TRAIN_DEPTHWISE_CONV, "train_conv", "conv_seq", "rr-rw")                               \
    ROW(GPU_TRAIN_DEPTHWISE_CONV_GRAD_X, "train_conv", "conv_grad_x", "rr-rw")                     \
    ROW(GPU_TRAIN_DEPTHWISE_CONV_GRAD_W, "train_conv", "conv_grad_w", "r-rr-w")                    \
    ROW(GPU_TRAIN_ACT, "train_elements", "act", "r--w")                                            \
    ROW(GPU_TRAIN_GLU, "train_elements", "glu", "rr-w")                                            \
    ROW(GPU_TRAIN_ACT_GRAD, "train_elements", "act_grad", "rr-w")                                  \
    ROW(GPU_TRAIN_GLU_GRAD, "train_elements", "glu_grad", "rrrww")                                 \
    ROW(GPU_TRAIN_GLU_GRAD_HALF, "train_elements", "glu_grad_half", "rrr---ww")                    \
    ROW(GPU_TRAIN_ROUND_HALF, "train_round", "round_half", "--r-w")                                \
    ROW(GPU_TRAIN_TURN, "train_round", "turn", "--r-w")                                            \
    ROW(GPU_TRAIN_TURN_HALF, "train_round", "turn_half", "---rw")                                  \
    ROW(GPU_TRAIN_ROPE, "train_rope", "rope", "rwrr")                                              \
    ROW(GPU_TRAIN_LOSS, "train_loss", "cross_entropy", "rrww")                                     \
    ROW(GPU_TRAIN_LOSS_GRAD, "train_loss", "cross_entropy_grad", "-r--wrr")                        \
    ROW(GPU_TRAIN_DISTILL, "train_distill", "distill", "rrrwwww")                                  \
    ROW(GPU_TRAIN_DISTILL_GRAD, "train_distill", "distill_grad", "-rrw--wr")                       \
    ROW(GPU_TRAIN_KEEP_SCORED, "train_loss", "keep_scored", "r------w")                            \
    ROW(GPU_TRAIN_POOL, "train_pool", "pool_seq", "rrrw")                                          \
    ROW(GPU_TRAIN_POOL_GRAD, "train_pool", "pool_grad", "rrrw")                                    \
    ROW(GPU_TRAIN_ABS_PARTS, "train_sums", "abs_parts", "rw")                                      \
    ROW(GPU_TRAIN_SQUARE_PARTS, "train_sums", "square_parts", "rw")                                \
    ROW(GPU_TRAIN_TERNARIZE, "train_sums", "ternarize", "r-rw")                                    \
    ROW(GPU_TRAIN_TERNARIZE_HALF, "train_sums", "ternarize_half", "r-r---w")                       \
    ROW(GPU_TRAIN_FAKE_QUANTIZE, "train_round", "fake_quantize", "rw")                             \
    ROW(GPU_TRAIN_SUM_PARTS, "train_sums", "sum_parts", "--r-w")                                   \
    ROW(GPU_TRAIN_SUM_ROWS, "train_sums", "sum_rows", "----wr")                                    \
    ROW(GPU_TRAIN_ADD_PARTS, "train_sums", "add_parts", "r--w")                                    \
    ROW(GPU_TRAIN_ZERO, "train_sums", "zero", "---w")                                              \
    ROW(GPU_TRAIN_ADAMW, "train_sums", "adamw", "r--w-rww")                                        \
    ROW(GPU_TRAIN_EMBED_GRAD, "train_embed", "embed_grad", "rrrw")                                 \
    ROW(GPU_TRAIN_ATTENTION, "train_attention", "attention_seq", "rrrrww")                         \
    ROW(GPU_TRAIN_ATTENTION_DELTA, "train_attention_grad", "attention_delta", "rr-r--w")           \
    ROW(GPU_TRAIN_ATTENTION_GRAD_Q, "train_attention_grad", "attention_grad_q", "rrrrrrw")         \
    ROW(GPU_TRAIN_ATTENTION_GRAD_KV, "train_attention_grad", "attention_grad_kv", "rrrrrrww")      \
    ROW(GPU_TRAIN_ATTENTION_MATRIX, "train_attention_matrix", "attention_seq", "rrrrww")           \
    ROW(GPU_TRAIN_GRAD_Q_MATRIX, "train_grad_q_matrix", "attention_grad_q", "rrrrrrw")             \
    ROW(GPU_TRAIN_GRAD_KV_MATRIX, "train_grad_kv_matrix", "attention_grad_kv", "rrrrrrww")

#endif
