// What a sequence is about: keys and values of so many rows, in fixed states of the sequence's slot,
// [slot][row][columns]. Comes after chunks.wgsl; kernels declare `keys` and `values`, and K_PAIRS,
// the pairs of columns of a row.
override SOURCE_ROWS: u32; // that there is room for

// A row's place, of the rows from `slot` on.
fn place_of(first: u32, row: u32) -> u32 { return first + row; }
