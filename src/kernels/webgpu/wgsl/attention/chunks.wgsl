// The chunks of a batch: rows of one sequence each. Comes before the kernels that go by sequence,
// which declare the binding `chunks`.
struct Chunk {
    first_row: u32,
    n_rows: u32,
    first_pos: u32,  // position of the first row
    slot: u32,       // of the sequence's fixed states
    kept_slot: u32,  // where these are copied to; NOTHING_KEPT: nowhere
    kept_after: u32, // after how many rows
    pages_at: u32,   // where its table of pages begins
    unused: u32,
}
const NOTHING_KEPT = 0xffffffffu;

// By halving: the last chunk that begins at the row or before it.
fn chunk_of_row(row: u32) -> u32 {
    var first = 0u;
    var end = run.n_chunks;
    while (end - first > 1u) {
        let middle = (first + end) / 2u;
        if (chunks[middle].first_row <= row) { first = middle; } else { end = middle; }
    }
    return first;
}
