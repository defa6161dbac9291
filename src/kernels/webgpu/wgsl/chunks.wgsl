// The chunks of a batch: rows of one sequence each. Comes before the kernels that go by sequence.
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
