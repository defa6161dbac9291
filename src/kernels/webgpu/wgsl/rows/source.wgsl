// The source of a sequence (for example a sound): keys and values of its rows, in fixed states of
// the sequence's slot, [slot][row][columns]. Comes after chunks.wgsl; kernels declare `keys` and
// `values`, and K_PAIRS, the pairs of columns of a row.
override SOURCE_ROWS: u32; // that there is room for

// A row's place; the slot's rows begin at `first`.
fn place_of(first: u32, row: u32) -> u32 { return first + row; }
