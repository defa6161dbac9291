// The kernels, a row of each; their sources and bindings are in gpu_shaders.c.
#ifndef TERN_KERNELS_WEBGPU_GPU_KERNELS_H
#define TERN_KERNELS_WEBGPU_GPU_KERNELS_H

#include "kernels/webgpu/device/gpu_train_kernels.h"

// id, file, entry point, bindings from 1 on: r read-only, w written by some kernel, - none
#define GPU_MODEL_KERNELS(ROW)                                                                     \
    ROW(GPU_EMBED, "embed", "embed", "rrw")                                                        \
    ROW(GPU_WIDE_EMBED, "wide_embed", "embed", "rrw")                                              \
    ROW(GPU_RMS_NORM, "rows", "rms_norm", "w-rw")                                                  \
    ROW(GPU_LAYER_NORM, "rows", "layer_norm", "wrrw")                                              \
    ROW(GPU_NORM_ADD, "rows", "norm_add", "wwrw")                                                  \
    ROW(GPU_NORM_PAIR, "norm_pair", "norm_pair", "wwrrww")                                         \
    ROW(GPU_L2_NORM, "rows", "l2_norm", "w--w")                                                    \
    ROW(GPU_GROUP_NORM, "rows", "group_norm", "w--w")                                              \
    ROW(GPU_QUANTIZE, "rows", "quantize", "w---ww")                                                \
    ROW(GPU_NORM_QUANTIZE, "rows", "norm_quantize", "w-r-ww")                                      \
    ROW(GPU_GLU_NORM_QUANTIZE, "rows_gated", "glu_norm_quantize", "wwr-ww")                        \
    ROW(GPU_ADD, "elementwise", "add", "www")                                                      \
    ROW(GPU_SCALE_ADD, "elementwise", "scale_add", "www")                                          \
    ROW(GPU_MUL, "elementwise", "mul", "www")                                                      \
    ROW(GPU_GLU, "elementwise", "glu", "www")                                                      \
    ROW(GPU_ACT, "elementwise", "act", "w-w")                                                      \
    ROW(GPU_SCALE, "elementwise", "scale", "w-w")                                                  \
    ROW(GPU_BIAS, "elementwise", "bias", "w-wr")                                                   \
    ROW(GPU_SCALE_BY, "elementwise", "scale_by", "w-wr")                                           \
    ROW(GPU_GAIN, "elementwise", "gain", "w-w-r")                                                  \
    ROW(GPU_TAKE_ROWS, "elementwise", "take_rows", "w-w")                                          \
    ROW(GPU_COLUMNS, "columns", "columns", "ww")                                                   \
    ROW(GPU_ODD_BIAS, "columns", "odd_bias", "wwr")                                                \
    ROW(GPU_REPLACE, "input_embeds", "replace", "wrrw")                                            \
    ROW(GPU_ADD_INPUT_EMBEDS, "input_embeds", "add_input_embeds", "wrrw")                          \
    ROW(GPU_ADD_POINT, "input_embeds", "add_point", "wr-wr")                                       \
    ROW(GPU_WINDOWS, "windows", "windows", "ww")                                                   \
    ROW(GPU_ROW_MEANS, "whole_norm", "row_means", "w--w")                                          \
    ROW(GPU_WHOLE_NORM, "whole_norm", "whole_norm", "wrrww")                                       \
    ROW(GPU_SOURCE_STORE, "source_store", "source_store", "rwwwww")                                \
    ROW(GPU_CROSS_ATTENTION, "cross_attention", "cross_attention", "wwwwrr")                       \
    ROW(GPU_CODE_DIGITS, "codec", "code_digits", "----w-r")                                        \
    ROW(GPU_CONV1D, "codec", "conv1d", "rwrwwr")                                                   \
    ROW(GPU_UPSAMPLE_CONV, "codec", "upsample_conv", "rwrwwr")                                     \
    ROW(GPU_TAILS_KEEP, "codec", "tails_keep", "rw-w")                                             \
    ROW(GPU_HALF_SNAKE, "codec", "half_snake", "-wr-w")                                            \
    ROW(GPU_HADAMARD, "hadamard", "hadamard", "wrw")                                               \
    ROW(GPU_POOL_ROWS, "pool", "pool", "rww")                                                      \
    ROW(GPU_DEPTHWISE_CONV, "conv", "conv", "rwrwwr")                                              \
    ROW(GPU_DEPTHWISE_CONV_KEEP, "conv", "conv_keep", "rw-w")                                      \
    ROW(GPU_DEPTHWISE_CONV_FEW, "conv", "conv_few", "rwrwwr")                                      \
    ROW(GPU_DELTA_NET, "delta_net", "delta_net", "rwwwrww")                                        \
    ROW(GPU_SSM, "ssm", "ssm", "rwwrww")                                                           \
    ROW(GPU_SCALE_PIECES, "pieces", "scale_pieces", "ww")                                          \
    ROW(GPU_ROUTE, "route", "route", "w-w")                                                        \
    ROW(GPU_ROUTE_BIASED, "route", "route_biased", "wrw")                                          \
    ROW(GPU_MIX, "route", "mix", "w-ww")                                                           \
    ROW(GPU_EXPERTS, "experts", "experts", "rwww")                                                 \
    ROW(GPU_ROPE, "rope", "rope", "rw--w")                                                         \
    ROW(GPU_KV_STORE, "rope", "kv_store", "--ww-ww")                                               \
    ROW(GPU_ROPE_STORE, "rope", "rope_store", "rwwwwww")                                           \
    ROW(GPU_GEMV1, "ternary_gemv", "gemv1", "rrrw")                                                \
    ROW(GPU_GEMV2, "ternary_gemv", "gemv2", "rrrww")                                               \
    ROW(GPU_GEMV3, "ternary_gemv", "gemv3", "rrrwww")                                              \
    ROW(GPU_WIDE_GEMV1, "wide_gemv", "gemv1", "rrrw")                                              \
    ROW(GPU_WIDE_GEMV2, "wide_gemv", "gemv2", "rrrww")                                             \
    ROW(GPU_WIDE_GEMV3, "wide_gemv", "gemv3", "rrrwww")                                            \
    ROW(GPU_WIDE_GEMM, "wide_gemm", "gemm", "rrrw")                                                \
    ROW(GPU_GEMM, "ternary_gemm_dot", "gemm", "rrrw")                                              \
    ROW(GPU_FLOAT_GEMV, "float_linear", "gemv", "rww")                                             \
    ROW(GPU_FLOAT_GEMV_OPEN, "float_linear", "gemv_open", "rwwr")                                  \
    ROW(GPU_FLOAT_GEMM, "float_linear", "gemm", "rww")                                             \
    ROW(GPU_WIDE_FLOAT, "wide_float", "linear", "rww")                                             \
    ROW(GPU_WIDE_FLOAT_OPEN, "wide_float", "linear_open", "rwwr")                                  \
    ROW(GPU_NORM_LINEAR3, "ternary_token", "norm_linear3", "rrwwww")                               \
    ROW(GPU_NORM_GLU, "ternary_token", "norm_glu", "rrww")                                         \
    ROW(GPU_NORM_LINEAR_ADD, "ternary_token", "norm_linear_add", "rrww")                           \
    ROW(GPU_PARTS_LINEAR_ADD, "ternary_token", "parts_linear_add", "rrww--w")                      \
    ROW(GPU_NORM_LINEAR_SCALED, "ternary_token", "norm_linear_scaled", "rrwww")                    \
    ROW(GPU_PARTS_LINEAR_SCALED, "ternary_token", "parts_linear_scaled", "rrwww-w")                \
    ROW(GPU_ADD_NORM_GLU, "ternary_token", "add_norm_glu", "rrwwww")                               \
    ROW(GPU_WIDE_LINEAR3, "wide_token", "norm_linear3", "rrwwww")                                  \
    ROW(GPU_WIDE_GLU, "wide_token", "norm_glu", "rrww")                                            \
    ROW(GPU_WIDE_LINEAR_ADD, "wide_token", "norm_linear_add", "rrww")                              \
    ROW(GPU_WIDE_PARTS_ADD, "wide_token", "parts_linear_add", "rrww--w")                           \
    ROW(GPU_WIDE_LINEAR_SCALED, "wide_token", "norm_linear_scaled", "rrwww")                       \
    ROW(GPU_WIDE_PARTS_SCALED, "wide_token", "parts_linear_scaled", "rrwww-w")                     \
    ROW(GPU_WIDE_ADD_GLU, "wide_token", "add_norm_glu", "rrwwww")                                  \
    ROW(GPU_ROW_QUANTIZE, "quantize_few", "row_quantize", "-rwww")                                 \
    ROW(GPU_PARTS_QUANTIZE, "quantize_few", "parts_quantize", "-rwww-w")                           \
    ROW(GPU_GLU_QUANTIZE, "quantize_few", "glu_quantize", "wrwww")                                 \
    ROW(GPU_FEW_LINEAR3, "ternary_few", "few_linear3", "rrrwww")                                   \
    ROW(GPU_FEW_GLU, "ternary_few", "few_glu", "rrrw")                                             \
    ROW(GPU_FEW_LINEAR_ADD, "ternary_few", "few_linear_add", "rrrw")                               \
    ROW(GPU_FEW_LINEAR_SCALED, "ternary_few", "few_linear_scaled", "rrrww")                        \
    ROW(GPU_WIDE_FEW_LINEAR3, "wide_few", "few_linear3", "rrrwww")                                 \
    ROW(GPU_WIDE_FEW_GLU, "wide_few", "few_glu", "rrrw")                                           \
    ROW(GPU_WIDE_FEW_LINEAR_ADD, "wide_few", "few_linear_add", "rrrw")                             \
    ROW(GPU_WIDE_FEW_LINEAR_SCALED, "wide_few", "few_linear_scaled", "rrrww")                      \
    ROW(GPU_ATTENTION_TOKEN, "attention_token", "attention_token", "rwr-www")                      \
    ROW(GPU_ATTENTION, "attention", "attention", "wwww")                                           \
    ROW(GPU_ATTENTION_PROMPT, "attention_prompt", "attention_prompt", "wrrw")                      \
    ROW(GPU_TOP_PARTS, "top", "top_parts", "ww")                                                   \
    ROW(GPU_TOP_ROW, "top", "top_row", "-ww-w")                                                    \
    ROW(GPU_TOP_LEAST, "top", "top_least", "-w-w")                                                 \
    ROW(GPU_TOP_LIST, "top", "top_list", "w--w")                                                   \
    ROW(GPU_CHAIN, "selftest", "chain", "rw")                                                      \
    ROW(GPU_FAR, "selftest", "far", "rw")                                                          \
    ROW(GPU_REVERSE, "selftest", "reverse", "rw")                                                  \
    ROW(GPU_REDUCE, "selftest", "reduce", "rw")                                                    \
    ROW(GPU_UNPACK, "selftest", "unpack", "rw")                                                    \
    ROW(GPU_DOTS, "selftest", "dots", "rw")                                                        \
    ROW(GPU_FMAS, "selftest", "fmas", "rw")                                                        \
    ROW(GPU_ACTIVATIONS, "selftest", "activations", "rw")

// Screened heads, matrix units, drafts of the device: not in browsers.
#define GPU_NATIVE_KERNELS(ROW)                                                                    \
    ROW(GPU_ATTENTION_MATRIX, "attention_prompt_matrix", "attention_prompt", "wrrw")               \
    ROW(GPU_WIDE_GEMM_MATRIX, "wide_gemm_matrix", "gemm", "rrrw")                                  \
    ROW(GPU_GEMM_MATRIX, "ternary_gemm_matrix", "gemm", "rrrw")                                    \
    ROW(GPU_GEMM_NARROW, "ternary_gemm_narrow", "gemm", "rrrw")                                    \
    ROW(GPU_GEMM_GROUPS, "ternary_gemm_groups", "gemm", "rrrw")                                    \
    ROW(GPU_WIDE_GEMM_HALF, "wide_gemm_half", "gemm", "rrrw")                                      \
    ROW(GPU_GEMM_HALF, "ternary_gemm_half", "gemm", "rrrw")                                        \
    ROW(GPU_HEAD_COPY, "head_copy", "head_copy", "rww")                                            \
    ROW(GPU_WIDE_HEAD_COPY, "wide_head_copy", "head_copy", "rww")                                  \
    ROW(GPU_HEAD_X, "head_x", "head_x", "wwwww")                                                   \
    ROW(GPU_HEAD_SCREEN_DOT, "head_screen_dot", "screen", "rrrrwr")                                \
    ROW(GPU_HEAD_SCREEN_MATRIX, "head_screen_matrix", "screen", "rrrrw")                           \
    ROW(GPU_HEAD_SCREEN_FEW, "head_screen_few", "screen", "rrrrww")                                \
    ROW(GPU_HEAD_LEAST, "head_pick", "head_least", "wrrw")                                         \
    ROW(GPU_HEAD_LIST, "head_pick", "head_list", "w--ww")                                          \
    ROW(GPU_HEAD_EXACT, "head_exact", "head_exact", "rwwr")                                        \
    ROW(GPU_HEAD_OPEN, "head_exact", "head_open", "rwwrw")                                         \
    ROW(GPU_WIDE_HEAD_EXACT, "wide_head_exact", "head_exact", "rwwr")                              \
    ROW(GPU_DRAFT, "draft", "judge_and_draft", "wwwr")
#define GPU_KERNELS(ROW) GPU_MODEL_KERNELS(ROW) GPU_NATIVE_KERNELS(ROW) GPU_TRAIN_KERNELS(ROW)

typedef enum gpu_kernel {
#define ROW(id, file, entry, bindings) id,
    GPU_KERNELS(ROW)
#undef ROW
        GPU_KERNEL_COUNT
} gpu_kernel;

const char *gpu_kernel_file(gpu_kernel k);
const char *gpu_kernel_entry(gpu_kernel k);
const char *gpu_kernel_bindings(gpu_kernel k);
const char *gpu_shader_text(const char *file); // alone
// Files that a kernel's own file builds on, in order, after the prelude; ends with NULL.
const char *const *gpu_shader_base(const char *file);

#endif
