// Greedy speculation without the host: judges the last run, and drafts for the next one from a
// table of token runs (kernels/draft_table.h). One thread does it, between two runs of the model,
// and leaves its results where the kernels of the next run read them. Its time is that of memory
// loads that depend on each other, so independent loads are issued together; and array indices are
// constants (in unrolled loops), so that arrays stay in registers.
//
// The log has, at p, the token after position p and its logit: top.wgsl writes those of a run from
// the run's first position on, and wrong drafts are overwritten. So it is the text itself, as far
// as it is decided.
struct Drafting { // gpu_draft_state of gpu_drafts.c
    // The next one's Run. Its tables are the host's: rows 0, 1 ... from first_pos on.
    n_tokens: u32,
    first_pos: u32,
    n_outputs: u32,
    first_output: u32,
    top_k: u32,
    n_chunks: u32,
    rows_before: u32,
    outputs_at: u32,
    tiles_at: u32,
    ends_at: u32,
    dims: array<u32, 8>, // counts of run.wgsl
    tables: array<u32, 5u * TOKENS_MAX>,
    n_drafted: u32,   // of its tokens; the rest is filler
    begins: u32,      // nothing has been computed yet
    first_known: u32, // where the log begins
    counts: array<u32, TOKENS_MAX * TOKENS_MAX>, // runs by tokens drafted, and of these accepted
}
override BUCKETS: u32;
override ROW_WORDS: u32;

@group(0) @binding(1) var<storage, read_write> state: Drafting;
@group(0) @binding(2) var<storage, read_write> text_log: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;
@group(0) @binding(4) var<storage, read> table: array<vec4<u32>>;

const TOKENS_MAX = 8u;
const PREFIX_MAX = 5u;
const NONE = 0xffffffffu;

// The last PREFIX_MAX tokens up to a run's first one, then what the run says.
const SAID_MAX = PREFIX_MAX + TOKENS_MAX;
alias Said = array<u32, SAID_MAX>;

// A drafted token is right if the model says it after the token before. All drafts after a wrong
// one are wrong. The token that the model says after the last right one is new in any case. Returns
// how many tokens the run yielded.
fn judge(n: u32, n_drafted: u32, said: ptr<function, Said>) -> u32 {
    var drafted: array<u32, TOKENS_MAX>;
    for (var i = 0u; i < TOKENS_MAX; i++) { drafted[i] = ids[min(i + 1u, n - 1u)]; }
    var right = 0u;
    var goes_on = true;
    for (var i = 0u; i < TOKENS_MAX - 1u; i++) {
        goes_on = goes_on && i + 1u < n && (*said)[PREFIX_MAX + i] == drafted[i];
        right += u32(goes_on);
    }
    state.counts[n_drafted * TOKENS_MAX + min(right, n_drafted)] += 1u;
    return right + 1u;
}

alias Recent = array<u32, PREFIX_MAX>; // tokens, newest first

struct Found { run: u32, n: u32 } // n: tokens of the prefix, 0: none

// The longest prefix that the text ends with.
fn search(recent: ptr<function, Recent>) -> Found {
    var hash: array<u32, PREFIX_MAX>;
    var low: array<vec4<u32>, PREFIX_MAX>;
    var high: array<vec4<u32>, PREFIX_MAX>;
    var h = 0x811c9dc5u;
    for (var i = 0u; i < PREFIX_MAX; i++) {
        h = (h ^ (*recent)[i]) * 0x9e3779b1u;
        h ^= h >> 15u;
        hash[i] = h;
        var b = (h ^ (h >> 13u)) * 0xc2b2ae35u;
        b = (b ^ (b >> 16u)) & (BUCKETS - 1u);
        low[i] = table[2u * b];
        high[i] = table[2u * b + 1u];
    }
    var found = Found(0u, 0u);
    for (var i = 0u; i < PREFIX_MAX; i++) {
        var run = 0u;
        if (low[i].x == hash[i]) { run = low[i].y; }
        if (low[i].z == hash[i]) { run = low[i].w; }
        if (high[i].x == hash[i]) { run = high[i].y; }
        if (high[i].z == hash[i]) { run = high[i].w; }
        if (run > 0u && (*recent)[i] != NONE) { found = Found(run - 1u, i + 1u); }
    }
    return found;
}

fn push(recent: ptr<function, Recent>, token: u32) {
    for (var i = PREFIX_MAX - 1u; i > 0u; i--) { (*recent)[i] = (*recent)[i - 1u]; }
    (*recent)[0] = token;
}

// Follows a run to its end, then looks for the next one, as the host's chains do
// (session/generate/drafters.c). Returns how many tokens it has written after the known one.
fn draft(n: u32, recent: ptr<function, Recent>) -> u32 {
    ids[0] = (*recent)[0];
    var n_drafted = 0u;
    while (n_drafted + 1u < n) {
        let found = search(recent);
        if (found.n == 0u) { break; }
        let row = 2u * BUCKETS + found.run * (ROW_WORDS / 4u);
        let n_before = n_drafted;
        for (var i = found.n; i < ROW_WORDS && n_drafted + 1u < n; i++) {
            let token = table[row + i / 4u][i % 4u];
            if (token == NONE) { break; }
            n_drafted++;
            ids[n_drafted] = token;
            push(recent, token);
        }
        if (n_drafted == n_before) { break; } // another prefix has this hash
    }
    return n_drafted;
}

@compute @workgroup_size(1)
fn judge_and_draft() {
    let n = state.n_tokens;
    let first = state.first_pos;
    let known = state.first_known; // the log has nothing before it
    var said: Said;
    for (var i = 0u; i < SAID_MAX; i++) {
        said[i] = text_log[max(first + min(i, PREFIX_MAX + n - 1u), known + PREFIX_MAX) - PREFIX_MAX].x;
        if (first + i < known + PREFIX_MAX) { said[i] = NONE; }
    }
    var n_new = 0u;
    if (state.begins == 0u) { n_new = judge(n, state.n_drafted, &said); }
    var recent: Recent;
    for (var i = 0u; i < SAID_MAX; i++) {
        if (i < PREFIX_MAX + n_new) { push(&recent, said[i]); }
    }
    state.begins = 0u;
    state.first_pos = first + n_new;
    state.rows_before = first + n_new;
    state.n_drafted = draft(n, &recent);
}
