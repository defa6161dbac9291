// A session's memory on the GPU, as the files that run batches share it.
#ifndef TERN_KERNELS_WEBGPU_GPU_RUN_H
#define TERN_KERNELS_WEBGPU_GPU_RUN_H

#include "kernels/webgpu/gpu.h"

#define GPU_LIST_ITEMS 512
typedef struct gpu_list { // struct List of top.wgsl
    uint32_t n;
    float least;
    struct {
        uint32_t id;
        float logit;
    } items[GPU_LIST_ITEMS];
} gpu_list;

struct tern_instance {
    tern_plan *plan;
    int32_t n_context;
    gpu_cache cache;
    wgpu_buffer uniform, ids, pool, pool_i8, logits, top_parts, top, lists, parts;
    gpu_readback readbacks[2];
    wgpu_buffer *states; // [n_values], or NULL
    wgpu_buffer *angles; // by rope
    wgpu_group *groups;  // by dispatch
    float *angles_host;  // cosines and sines of a batch
    tern_batch batch;    // on its way
    int32_t chunk_first, chunk_rows;
    bool reads_rows; // of the chunk, since a list was not enough
    bool busy;
    int now; // its readback
    // The run ahead: the step after the batch, on the token that the device itself found greatest.
    // It was started before anyone asked for it, and its readback is the other one.
    bool ahead;
    int32_t ahead_pos, last_id;
    struct gpu_profile *profile; // NULL: nothing is timed
};

// ---- Results (gpu_results.c) -------------------------------------------------------------------

typedef enum gpu_results {
    GPU_RESULTS_NONE,
    GPU_RESULTS_GREATEST, // index and logit, of each row
    GPU_RESULTS_LISTS,    // a gpu_list of each row
    GPU_RESULTS_LOGITS,
} gpu_results;
// What is read back for the chunk.
gpu_results gpu_results_of(const tern_instance *in);
// How much that is. Something always is, since its map tells that the run is over.
uint64_t gpu_results_bytes(const tern_instance *in);
wgpu_buffer gpu_results_buffer(const tern_instance *in);
// Whether that was enough; else the logits are to be read, which are still there.
bool gpu_results_take(const tern_instance *in, const void *mapped);

// ---- Profile (gpu_profile.c) -------------------------------------------------------------------

typedef struct gpu_profile gpu_profile;
tern_status gpu_profile_open(gpu_profile **out, tern_device *d, size_t n_dispatches,
                             tern_error *err);
void gpu_profile_close(gpu_profile *p); // NULL is allowed; after its last map is done
// A pass for the next dispatch of this kernel, which moves so many bytes.
wgpu_pass gpu_profile_pass(gpu_profile *p, wgpu_encoder encoder, gpu_kernel kernel, uint64_t bytes);
// Behind the last dispatch, and behind the submission of the encoder.
void gpu_profile_encode(gpu_profile *p, wgpu_encoder encoder);
void gpu_profile_submitted(gpu_profile *p);
// Whether the times have come; then they are added to the rows.
bool gpu_profile_take(gpu_profile *p);
const tern_profile *gpu_profile_rows(const gpu_profile *p);

#endif
