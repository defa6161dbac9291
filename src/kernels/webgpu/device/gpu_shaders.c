// The kernels' texts, embedded at build, and what each kernel binds.
#include <string.h>
#include "kernels/webgpu/device/gpu.h"

static const struct {
    const char *file, *text;
} shaders[] = {
#include "webgpu_wgsl.inc"
};

static const struct {
    const char *file, *entry, *bindings;
} kernels[] = {
#define ROW(id, file, entry, bindings) {file, entry, bindings},
#if defined(TERN_NO_TRAINING) // browsers
    GPU_MODEL_KERNELS(ROW)
#else
    GPU_KERNELS(ROW)
#endif
#undef ROW
};

const char *gpu_kernel_file(gpu_kernel k) { return kernels[k].file; }
const char *gpu_kernel_entry(gpu_kernel k) { return kernels[k].entry; }
const char *gpu_kernel_bindings(gpu_kernel k) { return kernels[k].bindings; }

const char *const *gpu_shader_base(const char *file) {
    enum { MOST = 6 };
    static const struct {
        const char *file, *base[MOST];
    } bases[] = {
        {"attention", {"cache", "attention_base", "attention_row"}},
        {"attention_prompt", {"cache", "attention_base"}},
        {"attention_token", {"cache", "cache_store", "attention_base"}},
        {"codec", {"chunks"}},
        {"conv", {"chunks"}},
        {"delta_net", {"chunks", "softplus"}},
        {"embed", {"codes", "table_row"}},
        {"experts", {"float_rows"}},
        {"float_linear", {"float_rows", "float_dot"}},
        {"ssm", {"chunks", "softplus"}},
        {"pool", {"chunks"}},
        {"rope", {"cache", "cache_store"}},
        {"rows", {"rows_base"}},
        {"cross_attention", {"chunks", "source", "attention_base", "attention_row"}},
        {"source_store", {"chunks", "source"}},
        {"rows_gated", {"rows_base"}},
        {"quantize_few", {"ternary_row"}},
        {"ternary_few", {"codes", "codes_vec", "ternary_tiles", "few"}},
        {"ternary_gemm_dot", {"codes", "gemm", "ternary_gemm"}},
        {"ternary_gemv", {"codes", "codes_vec", "gemv"}},
        {"ternary_token", {"codes", "codes_vec", "ternary_row", "ternary_tiles", "token"}},
        {"wide_embed", {"wide_codes", "table_row"}},
        {"wide_few", {"wide_codes", "ternary_tiles", "few"}},
        {"wide_float", {"wide_codes", "wide_chain"}},
        {"wide_gemm", {"wide_codes", "gemm", "wide_tile"}},
        {"wide_gemv", {"wide_codes", "gemv"}},
        {"wide_token", {"wide_codes", "ternary_row", "ternary_tiles", "token"}},
#if !defined(TERN_NO_TRAINING)
        {"attention_prompt_matrix", {"cache", "attention_base", "attention_sums"}},
        {"head_copy", {"float_rows", "head_bound"}},
        {"head_exact", {"float_rows", "float_dot", "head_bound"}},
        {"head_pick", {"head_bound"}},
        {"head_screen_dot", {"head_bound", "head_screen"}},
        {"head_screen_few", {"head_bound", "head_screen"}},
        {"head_screen_matrix", {"head_bound", "head_screen"}},
        {"head_x", {"head_bound"}},
        {"ternary_gemm_groups", {"codes", "gemm", "ternary_gemm", "gemm_groups"}},
        {"ternary_gemm_half", {"codes", "gemm", "ternary_gemm", "gemm_half"}},
        {"ternary_gemm_matrix", {"codes", "gemm", "ternary_gemm"}},
        {"ternary_gemm_narrow", {"codes", "gemm", "ternary_gemm"}},
        {"wide_gemm_half", {"wide_codes", "gemm", "wide_tile", "gemm_half"}},
        {"wide_gemm_matrix", {"wide_codes", "gemm", "wide_tile", "gemm_groups"}},
        {"wide_head_copy", {"wide_codes", "wide_chain", "head_bound", "head_copy"}},
        {"train_attention_matrix", {"attention_sums", "train_attention_units"}},
        {"train_decode", {"codes", "train_decode_rows"}},
        {"train_decode_wide", {"wide_codes", "train_decode_rows"}},
        {"train_grad_kv_matrix", {"attention_sums", "train_attention_units"}},
        {"train_grad_q_matrix", {"attention_sums", "train_attention_units"}},
        {"wide_head_exact", {"wide_codes", "wide_chain"}},
#endif
    };
    static const char *const none[] = {NULL};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
        if (strcmp(bases[i].file, file) == 0) return bases[i].base;
    return none;
}

const char *gpu_shader_text(const char *file) {
    for (size_t i = 0; i < sizeof shaders / sizeof *shaders; i++)
        if (strcmp(shaders[i].file, file) == 0) return shaders[i].text;
    return "";
}
