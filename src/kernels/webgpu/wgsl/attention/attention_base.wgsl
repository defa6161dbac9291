// What a row of attention sees; comes before the kernels of attention, after cache.wgsl.
override WINDOW: u32 = 0u;     // a row sees positions less than this far from its own; 0: any
override AHEAD: u32 = 0u;      // of those after it, less than this far; 0: WINDOW
override CAUSAL: bool = true;  // and none after its own; else all of its sequence's
override IMAGES: bool = false; // rows of an image see to its end
override SOFT_CAP: f32 = 0.0;  // 0: none

const NOTHING = -3.0e38; // next to it any score vanishes

// The first position that a row at `position` sees, and the one after the last.
fn first_seen(position: u32) -> u32 {
    if (WINDOW == 0u || position < WINDOW) { return 0u; }
    return position + 1u - WINDOW;
}
fn ahead() -> u32 { return select(AHEAD, WINDOW, AHEAD == 0u); }
fn end_seen(position: u32, n_positions: u32) -> u32 {
    if (CAUSAL) { return position + 1u; }
    if (WINDOW == 0u) { return n_positions; }
    return min(position + ahead(), n_positions);
}
// Positions that a row's sequence has with this batch.
fn n_positions_of(row: u32) -> u32 { return position_of(row) + chunk_end(row) - row; }
// The end for a row that may be in an image. It never falls from one row of a chunk to the next.
fn end_of(row: u32) -> u32 {
    let own = end_seen(position_of(row), n_positions_of(row));
    if (!IMAGES) { return own; }
    return max(own, image_end(row));
}

fn capped(s: vec4<f32>) -> vec4<f32> { return capped_by(SOFT_CAP, s); }
