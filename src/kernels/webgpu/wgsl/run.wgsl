// Comes before every kernel of inference: what changes from batch to batch.
//
// Values of a run lie in one pool of memory, row after row. A binding that is written by any kernel
// is declared read_write everywhere, since the pool is one buffer, and WebGPU allows a buffer one
// kind of use in a dispatch.
struct Run {
    n_tokens: u32,
    first_pos: u32,    // position of the first token
    n_outputs: u32,    // the last n tokens' results are wanted
    first_output: u32, // of those that this pass over the head computes
    n_context: u32,    // positions that the caches have room for
    top_k: u32,        // how many of the greatest logits are wanted
    n_chunks: u32,
    step: u32,         // which of the submission's greedy steps; each has angles and a result
}
// Storage, since writing to a uniform buffer between two steps costs 20 us on an NVIDIA H200.
@group(0) @binding(0) var<storage, read> run: Run;
