// Replaces gpu_drafts.c where nobody opens a table of chains, as in WebAssembly: no device drafts.
#include "kernels/webgpu/run/gpu_instance.h"

void gpu_drafts_close(tern_instance *in) { (void)in; }
void gpu_drafts_forget(tern_instance *in) { (void)in; }
bool gpu_drafts_busy(const tern_instance *in) { return (void)in, false; }
bool gpu_drafts_can(const tern_instance *in, const gpu_request *b) {
    return (void)in, (void)b, false;
}
uint64_t gpu_drafts_bytes(const tern_instance *in) { return (void)in, 0; }
wgpu_buffer gpu_drafts_state(const gpu_drafts *d) { return (void)d, NULL; }
wgpu_buffer gpu_drafts_buffer(const gpu_drafts *d, gpu_place place, tern_vid v) {
    return (void)d, (void)place, (void)v, NULL;
}

static tern_status refuse(tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "this build has no tables of chains");
}
tern_status gpu_drafts_open(tern_instance *in, const tern_draft_table *t, tern_error *err) {
    return (void)in, (void)t, refuse(err);
}
tern_status gpu_drafts_submit(tern_instance *in, tern_error *err) { return (void)in, refuse(err); }
tern_status gpu_drafts_take(tern_instance *in, const void *results, tern_error *err) {
    return (void)in, (void)results, refuse(err);
}
