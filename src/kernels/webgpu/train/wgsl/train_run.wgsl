// Comes before every kernel of training: what changes from run to run. A value of T rows lies row
// after row, each padded to whole vec4s.
//
// The gradients of values are scaled by a power of two that makes those of the logits about as
// large as 1, so that none underflows as a float or a half; the gradients of weights are not
// scaled: whatever adds to them multiplies by `unscale`.
struct Run {
    n_tokens: u32, // rows of a value; in the head, of a piece of the scored ones
    n_ids: u32, // different tokens among them
    loss_scale: f32, // times 1 / unscale
    unscale: f32,
    rate: f32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    decay: f32,
    clip: f32,
    correction1: f32, // 1 / (1 - beta1^step)
    correction2: f32,
    first: u32, // of the piece among the scored rows
    n_all: u32, // tokens of the run
    unrounded: f32, // of weights: how much of them is not rounded
}
@group(0) @binding(0) var<uniform> run: Run;

// Four numbers as halves; those out of range become the greatest half.
fn halves(v: vec4<f32>) -> vec2<u32> {
    let x = clamp(v, vec4(-65504.0), vec4(65504.0));
    return vec2(pack2x16float(x.xy), pack2x16float(x.zw));
}
