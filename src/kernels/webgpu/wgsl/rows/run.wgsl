// Comes before every kernel of inference: what changes from batch to batch.
//
// Values of a run lie in one pool of memory, row after row. A binding that is written by any kernel
// is declared read_write everywhere, since the pool is one buffer, and WebGPU allows a buffer one
// kind of use in a dispatch.
struct Run { // gpu_run of gpu_instance.h
    n_tokens: u32,
    first_pos: u32,    // added to the positions of all rows
    n_outputs: u32,
    first_output: u32, // of those that this pass over the head computes
    top_k: u32,        // how many of the greatest logits are wanted
    n_chunks: u32,
    rows_before: u32,  // of the submission's earlier greedy steps: each has its angles and results
    outputs_at: u32,   // in the tables: the row of each output
    tiles_at: u32,     // the rows of each tile of attention_prompt.wgsl: the first and how many
    ends_at: u32,      // of each row, the position after its image; 0: no row is of one
    counts: array<u32, 8>, // rows by dimension of the graph, TERN_DIMS_MAX
    // First of each row: its position, where its sequence's pages are listed in here, the first row
    // of its chunk, and the row after that. Rows of one chunk are consecutive tokens of a sequence.
    tables: array<u32>,
}
// Storage, since writing to a uniform buffer between two steps costs 20 us on an NVIDIA H200.
@group(0) @binding(0) var<storage, read> run: Run;

fn position_of(row: u32) -> u32 { return run.first_pos + run.tables[4u * row]; }
fn pages_of(row: u32) -> u32 { return run.tables[4u * row + 1u]; }
fn chunk_begin(row: u32) -> u32 { return run.tables[4u * row + 2u]; }
fn chunk_end(row: u32) -> u32 { return run.tables[4u * row + 3u]; }
// The position after a row's image; 0: the row is in no image.
fn image_end(row: u32) -> u32 {
    if (run.ends_at == 0u) { return 0u; }
    return run.tables[run.ends_at + row];
}
fn output_row(i: u32) -> u32 { return run.tables[run.outputs_at + i]; }
