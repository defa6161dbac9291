// WebGPU as a backend: the table of functions.
#include <stdio.h>
#include <string.h>
#include "kernels/webgpu/run/gpu_instance.h"

static const char *gpu_describe(tern_device *d) {
    size_t n = d->n_pipelines + d->n_pipeline_hits;
    snprintf(d->line, sizeof d->line, "%s", d->description);
    if (d->n_pipeline_hits > 0) // of a model, not of a test
        snprintf(d->line + strlen(d->line), sizeof d->line - strlen(d->line),
                 ", %zu pipelines (%.0f%% of %zu found in the cache)", d->n_pipelines,
                 100.0 * (double)d->n_pipeline_hits / (double)n, n);
    return d->line;
}
static int gpu_n_threads(const tern_device *d) {
    (void)d;
    return 0;
}
static const struct {
    const char *name;
    wgpu_feature feature;
} features[] = {
    {"timestamp-query", WGPU_TIMESTAMPS},
    {"shader-f16", WGPU_F16},
    {"subgroups", WGPU_SUBGROUPS},
    {"subgroup-matrix", WGPU_SUBGROUP_MATRIX},
};

static void features_text(const tern_device *d, char *text, size_t size) {
    text[0] = 0;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        uint32_t number = d->api.generation->features[features[i].feature];
        size_t n = strlen(text);
        if (d->api.AdapterHasFeature(d->adapter, number))
            snprintf(text + n, size - n, "%s%s", n ? " " : "", features[i].name);
    }
}

static void gpu_facts(tern_device *d, tern_fact_fn on_fact, void *ctx) {
    char text[400];
    wgpu_limits l = {0};
    on_fact(ctx, "adapter", d->adapter_key);
    on_fact(ctx, "library", d->api.path);
    on_fact(ctx, "library's generation", d->api.generation->name);
    features_text(d, text, sizeof text);
    on_fact(ctx, "features", text);
    snprintf(text, sizeof text, "%s%s%s%s", d->subgroups ? "subgroups of 32, " : "",
             gpu_has_matrix(d) ? "matrix units, " : "", d->timestamps ? "timestamps, " : "",
             d->packed_dot ? "dot4I8Packed" : "integer dot by hand");
    on_fact(ctx, "features used", text);
    d->api.AdapterGetLimits(d->adapter, &l);
    snprintf(text, sizeof text,
             "bindings of %llu MB, buffers of %llu MB, %u storage buffers a stage, workgroups of "
             "%u threads and %u KB",
             (unsigned long long)(l.storage_binding_bytes >> 20),
             (unsigned long long)(l.buffer_bytes >> 20), l.storage_buffers, l.workgroup_size,
             l.workgroup_bytes >> 10);
    on_fact(ctx, "limits", text);
    on_fact(ctx, "toggles",
            d->checks ? "disable_workgroup_init; all checks on"
                      : "disable_workgroup_init skip_validation "
                        "disable_robustness, not timestamp_quantization");
    snprintf(text, sizeof text, d->group ? "%u" : "all", d->group);
    on_fact(ctx, "dispatches a submission", text);
}

// Tiles of 512 tokens leave many cores of a device with matrix units idle.
static int32_t gpu_n_batch(const tern_device *d) {
    return gpu_has_matrix(d) ? GPU_MATRIX_BATCH : TERN_BATCH;
}

static bool gpu_is_lost(const tern_device *d) { return d->lost; }
static const tern_memory_plan *gpu_plan_memory(const tern_plan *p) { return &p->memory; }

const tern_backend tern_backend_webgpu = {
    .name = "webgpu",
    .n_same_bits = GPU_FEW, // of one sequence; more are added up in another order (gpu_order.c)
    .open = gpu_device_open,
    .open_poll = gpu_device_poll,
    .close = gpu_device_close,
    .describe = gpu_describe,
    .n_threads = gpu_n_threads,
    .is_lost = gpu_is_lost,
    .memory = gpu_memory,
    .tune = gpu_tune,
    .bind = gpu_weight_bind,
    .bind_poll = gpu_weight_bind_poll,
    .unbind = gpu_weight_unbind,
    .weight_info = gpu_weight_info,
    .compile = gpu_compile,
    .compile_poll = gpu_compile_poll,
    .plan_free = gpu_plan_free,
    .plan_memory = gpu_plan_memory,
    .n_chunks_max = INT32_MAX,
    .n_batch = gpu_n_batch,
    .n_ahead = 2 * GPU_STEPS_MAX,
    .page_pool_open = gpu_page_pool_open,
    .page_pool_close = gpu_page_pool_close,
    .page_positions = gpu_page_positions,
    .page_bytes = gpu_page_bytes,
    .pages_expect = gpu_pages_expect,
    .page_new = gpu_page_new,
    .page_free = gpu_page_free,
    .page_copy = gpu_page_copy,
    .page_clear = gpu_page_clear,
    .page_read = gpu_page_read,
    .page_write = gpu_page_write,
    .instance_open = gpu_instance_open,
    .instance_close = gpu_instance_close,
    .drafts_open = gpu_instance_open_drafts,
    .submit = gpu_submit,
    .poll = gpu_poll,
    .cancel = gpu_cancel,
    .profile_start = gpu_profile_start,
    .profile_read = gpu_profile_read,
    .facts = gpu_facts,
    .selftest = gpu_selftest,
    .verify = gpu_weight_verify,
    .trace = gpu_trace,
};
