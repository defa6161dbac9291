// Which row of a table a row of the batch gets. Comes before the kernels that read tables, which
// declare the binding `ids`.
override KIND: u32 = 0u;
const OF_POSITION = 1u; // its position's, counted from FIRST
const OF_SEGMENT = 2u;  // its segment's: so many tokens FIRST its sequence has in front of it
override FIRST: u32 = 0u;
override SEGMENTS: u32 = 1u; // of the whole table; what follows is of the last one

var<workgroup> n_ends: atomic<u32>;

// All threads of a workgroup call it together, with the same row.
fn table_row(row: u32, lane: u32) -> u32 {
    if (KIND == OF_POSITION) { return FIRST + position_of(row); }
    if (KIND != OF_SEGMENT) { return ids[row]; }
    if (lane == 0u) { atomicStore(&n_ends, 0u); }
    workgroupBarrier();
    for (var i = chunk_begin(row) + lane; i < row; i += 64u) {
        if (ids[i] == FIRST) { atomicAdd(&n_ends, 1u); }
    }
    workgroupBarrier();
    return min(atomicLoad(&n_ends), SEGMENTS - 1u);
}
