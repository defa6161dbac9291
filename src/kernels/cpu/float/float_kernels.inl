// The float kernels of one instruction set: included by float_<isa>.c after its vec_<isa>.h.
#include <math.h>
#include <string.h>
#include "base/dtype/fma.h"
#include "kernels/cpu/float/delta_net.h"
#include "kernels/cpu/float/float_kernels.h"
#include "kernels/cpu/float/kv_cache.h"

#include "kernels/cpu/float/vec_math.inl"
#include "kernels/cpu/float/elementwise.inl"
#include "kernels/cpu/float/groups.inl"
#if !defined(TERN_NO_TRAINING)
#include "kernels/cpu/float/gradients.inl"
#endif
#include "kernels/cpu/float/unpack.inl"
#include "kernels/cpu/float/matmul.inl"
#include "kernels/cpu/float/attention.inl"
#include "kernels/cpu/float/conv.inl"
#include "kernels/cpu/float/delta_net.inl"
#include "kernels/cpu/float/ssm.inl"
#include "kernels/cpu/float/codec.inl"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

const tern_float_kernels JOIN(tern_float_kernels_, VEC_NAME) = {
    .name = TEXT(VEC_NAME),
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
    .quantize_i8 = quantize_i8,
    .quantize_groups = quantize_groups,
    .hadamard = hadamard,
    .add = add,
    .mul = mul,
    .scale = scale_row,
    .act = act_row,
    .glu = glu,
    .softplus = softplus,
    .rope = rope,
    .decode = decode,
    .matmul = matmul,
    .matvec = matvec,
    .kv_store = kv_store,
    .attention = attention,
    .conv = conv,
    .delta_net = delta_net,
    .ssm = ssm,
    .conv1d = conv1d,
    .upsample_conv = upsample_conv,
    .half_snake = half_snake,
    .argmax = argmax,
    .dot = dot,
    .exp_sum = exp_sum,
    .exp_scaled = exp_scaled,
    .soft_cap = soft_cap,
#if !defined(TERN_NO_TRAINING)
    .sum_abs = sum_abs,
    .fake_quantize = fake_quantize,
    .fake_quantize_groups = fake_quantize_groups,
    .ternarize = ternarize,
    .act_grad = act_grad,
    .glu_grad = glu_grad,
    .rms_norm_grad = rms_norm_grad,
    .softmax_grad = softmax_grad,
    .soft_cap_grad = soft_cap_grad,
    .conv_grad_x = conv_grad_x,
    .conv_grad_w = conv_grad_w,
    .adamw = adamw,
#endif
};
