// Ops element by element, sixteen rows a workgroup in y. Grid: (16 COLS4 / 256, T / 16).
override COLS4: u32;
override ACT: u32;
override N_ROWS: u32; // of the table
override FACTOR: f32;
override GROUP4: u32; // columns: of every GROUP4 of x those at FIRST4 .. FIRST4 + WIDTH4 - 1
override FIRST4: u32;
override WIDTH4: u32;
override ADD: bool; // to what is there
override EACH4: u32; // turn_columns: [REPEATS][GROUPS][EACH] become [GROUPS][REPEATS][EACH]
override REPEATS: u32;
override GROUPS: u32;

@group(0) @binding(1) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> c: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> z: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> ids: array<u32>;
@group(0) @binding(7) var<storage, read_write> y_half: array<vec2<u32>>; // instead of y
@group(0) @binding(8) var<storage, read_write> z_half: array<vec2<u32>>;

// The element of this thread; false: there is none.
struct Place { at: u32, here: bool }
fn place(group: vec3<u32>, lane: u32) -> Place {
    let i = group.x * 256u + lane;
    let at = group.y * 16u * COLS4 + i;
    return Place(at, i < 16u * COLS4 && at < run.n_tokens * COLS4);
}

@compute @workgroup_size(256)
fn embed(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = a[min(ids[p.at / COLS4], N_ROWS - 1u) * COLS4 + p.at % COLS4]; }
}
// Rows of a piece (a) to their places in the run; the first piece also clears the unscored ones.
// ids: of each row of the run, its index among the scored, or -1.
@compute @workgroup_size(256)
fn put_scored(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.x * 256u + lane;
    let at = group.y * 16u * COLS4 + i;
    if (i >= 16u * COLS4 || at >= run.n_all * COLS4) { return; }
    let index = ids[at / COLS4];
    if (index == 0xffffffffu) {
        if (run.first == 0u) { y[at] = vec4(0.0); }
    } else if (index >= run.first && index < run.first + run.n_tokens) {
        y[at] = a[(index - run.first) * COLS4 + at % COLS4];
    }
}
@compute @workgroup_size(256)
fn add(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = a[p.at] + b[p.at]; }
}
@compute @workgroup_size(256)
fn mul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = a[p.at] * b[p.at]; }
}
@compute @workgroup_size(256)
fn scale(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = a[p.at] * FACTOR; }
}
@compute @workgroup_size(256)
fn bias(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = a[p.at] + b[p.at % COLS4]; }
}
@compute @workgroup_size(256)
fn turn_columns(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    let head = p.at / EACH4;
    let among = head % (GROUPS * REPEATS);
    let source = head - among + among % REPEATS * GROUPS + among / REPEATS;
    if (p.here) { y[p.at] = a[source * EACH4 + p.at % EACH4]; }
}
@compute @workgroup_size(256)
fn columns(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane); // whole groups follow each other, over the ends of rows too
    if (p.here) { y[p.at] = a[p.at / WIDTH4 * GROUP4 + FIRST4 + p.at % WIDTH4]; }
}
// a: the gradient of those columns; y: that of all.
@compute @workgroup_size(256)
fn columns_grad(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (!p.here) { return; }
    let i = p.at % GROUP4;
    let taken = i >= FIRST4 && i < FIRST4 + WIDTH4;
    var dx = vec4(0.0);
    if (taken) { dx = a[p.at / GROUP4 * WIDTH4 + i - FIRST4]; }
    if (ADD) { dx += y[p.at]; }
    if (taken || !ADD) { y[p.at] = dx; }
}
@compute @workgroup_size(256)
fn scale_by(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = a[p.at] * b[0].x; }
}
@compute @workgroup_size(256)
fn cap(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = capped_by(FACTOR, a[p.at]); }
}
// a: x, b: the gradient of its cap.
@compute @workgroup_size(256)
fn cap_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (!p.here) { return; }
    let t = capped_by(FACTOR, a[p.at]) / FACTOR;
    y[p.at] = (1.0 - t * t) * b[p.at];
}
// A factor for each of up to five pieces of the columns.
override END0: u32;
override END1: u32;
override END2: u32;
override END3: u32;
override FACTOR0: f32;
override FACTOR1: f32;
override FACTOR2: f32;
override FACTOR3: f32;
override FACTOR4: f32;
fn factor_of(i: u32) -> f32 {
    if (i < END0) { return FACTOR0; }
    if (i < END1) { return FACTOR1; }
    if (i < END2) { return FACTOR2; }
    if (i < END3) { return FACTOR3; }
    return FACTOR4;
}
@compute @workgroup_size(256)
fn scale_pieces(@builtin(workgroup_id) group: vec3<u32>,
                @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (!p.here) { return; }
    let i = 4u * (p.at % COLS4);
    let factors = vec4(factor_of(i), factor_of(i + 1u), factor_of(i + 2u), factor_of(i + 3u));
    y[p.at] = a[p.at] * factors;
}
@compute @workgroup_size(256)
fn act(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = activate(ACT, a[p.at]); }
}
@compute @workgroup_size(256)
fn glu(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = activate(ACT, a[p.at]) * b[p.at]; }
}

// The derivative of the activation.
fn slope(kind: u32, x: vec4<f32>) -> vec4<f32> {
    if (kind == SILU) {
        let s = 1.0 / (1.0 + safe_exp(-x));
        return s * (1.0 + x * (1.0 - s));
    }
    if (kind == RELU2) { return 2.0 * max(x, vec4(0.0)); }
    if (kind == GELU) {
        let e = bell(x);
        return normal_cdf(x, e) + 0.3989422804 * x * e;
    }
    if (kind == SIGMOID) {
        let s = 1.0 / (1.0 + safe_exp(-x));
        return s * (1.0 - s);
    }
    if (kind == TANH) {
        let y = tanh(clamp(x, vec4(-20.0), vec4(20.0)));
        return 1.0 - y * y;
    }
    if (kind == ASINH) {
        let a = min(abs(x), vec4(1e18));
        return inverseSqrt(a * a + 1.0);
    }
    if (kind == AS_IT_IS) { return vec4(1.0); }
    let u = 0.7978845608028654 * (x + 0.044715 * x * x * x);
    let t = 1.0 - 2.0 / (safe_exp(2.0 * u) + 1.0);
    let du = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}
@compute @workgroup_size(256)
fn act_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (p.here) { y[p.at] = slope(ACT, a[p.at]) * b[p.at]; }
}
// a: gate, b: up, c: gradient of act(gate) * up.
fn of_gate(at: u32) -> vec4<f32> { return slope(ACT, a[at]) * b[at] * c[at]; }
fn of_up(at: u32) -> vec4<f32> { return activate(ACT, a[at]) * c[at]; }
@compute @workgroup_size(256)
fn glu_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (!p.here) { return; }
    y[p.at] = of_gate(p.at);
    z[p.at] = of_up(p.at);
}
@compute @workgroup_size(256)
fn glu_grad_half(@builtin(workgroup_id) group: vec3<u32>,
                 @builtin(local_invocation_index) lane: u32) {
    let p = place(group, lane);
    if (!p.here) { return; }
    y_half[p.at] = halves(of_gate(p.at));
    z_half[p.at] = halves(of_up(p.at));
}
