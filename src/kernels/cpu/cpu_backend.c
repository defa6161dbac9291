// The CPU as a backend: the table of functions, and what is decided when it is opened.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

static void cpu_close(tern_device *d) {
    if (!d) return;
    tern_team_close(d->team);
    tern_free(d);
}

tern_status cpu_team_open(const char *features, int n_threads, tern_cpu_kernels *kernels,
                          tern_team **team, tern_error *err) {
    if (!tern_cpu_kernels_select(features, kernels))
        return tern_fail(err, TERN_ERR_ARGUMENT, "\"%s\" is not a set of CPU features known here",
                         features);
    return tern_team_open(team, n_threads, err);
}

static tern_status cpu_open(tern_device **out, const tern_device_desc *desc, tern_error *err) {
    *out = NULL;
    tern_device *d = tern_alloc(TERN_MEM_GRAPH, sizeof *d);
    if (!d) return tern_fail_memory(err, sizeof *d);
    tern_status status =
        cpu_team_open(desc->cpu_features, desc->n_threads, &d->kernels, &d->team, err);
    if (status != TERN_OK) {
        cpu_close(d);
        return status;
    }
    d->ternary_wanted = desc->ternary;
    d->precise = desc->precise;
    d->packing = desc->ternary == TERN_TERNARY_1_6BIT ? TERN_PACK_1_6BIT : TERN_PACK_2BIT;
    int n = d->team->n_threads;
    snprintf(d->description, sizeof d->description, "cpu %s, %d thread%s", d->kernels.name, n,
             n == 1 ? "" : "s");
    *out = d;
    return TERN_OK;
}

// Opening was completed at once.
static tern_status cpu_open_poll(tern_device *d, bool *done, tern_error *err) {
    (void)d;
    (void)err;
    *done = true;
    return TERN_OK;
}
static tern_status cpu_bind_poll(tern_device *d, tern_weight *w, uint64_t *left, tern_error *err) {
    (void)d;
    (void)w;
    (void)err;
    *left = 0;
    return TERN_OK;
}

static tern_status cpu_compile_poll(tern_plan *p, bool *done, tern_error *err) {
    (void)p;
    (void)err;
    *done = true;
    return TERN_OK;
}

static const char *cpu_describe(tern_device *d) { return d->description; }

static int cpu_n_threads(const tern_device *d) { return d->team->n_threads; }

static void cpu_facts(tern_device *d, tern_fact_fn on_fact, void *ctx) {
    char text[64];
    snprintf(text, sizeof text, "%d", d->team->n_threads);
    on_fact(ctx, "kernels", d->kernels.name);
    on_fact(ctx, "threads", text);
}

// The kernels' own check is the comparison with the scalar ones, which the caller makes.
static tern_status cpu_selftest(tern_device *d, tern_check_fn on_check, void *ctx,
                                tern_error *err) {
    (void)d;
    (void)on_check;
    (void)ctx;
    (void)err;
    return TERN_OK;
}

static int32_t cpu_n_batch(const tern_device *d) {
    (void)d;
    return TERN_BATCH;
}

static bool cpu_is_lost(const tern_device *d) {
    (void)d;
    return false;
}

static void cpu_memory(const tern_device *d, tern_device_memory *out) {
    (void)d;
    *out = (tern_device_memory){0};
}

static const tern_memory_plan *cpu_plan_memory(const tern_plan *p) { return &p->memory; }

const tern_backend tern_backend_cpu = {
    .name = "cpu",
    .n_same_bits = INT32_MAX,
    .n_chunks_max = INT32_MAX,
    .n_batch = cpu_n_batch,
    .is_shared = true,
    .takes_masks = true,
    .open = cpu_open,
    .open_poll = cpu_open_poll,
    .close = cpu_close,
    .describe = cpu_describe,
    .n_threads = cpu_n_threads,
    .is_lost = cpu_is_lost,
    .memory = cpu_memory,
    .tune = cpu_tune,
    .bind = cpu_weight_bind,
    .bind_poll = cpu_bind_poll,
    .unbind = cpu_weight_unbind,
    .weight_info = cpu_weight_info,
    .compile = cpu_compile,
    .compile_poll = cpu_compile_poll,
    .plan_free = cpu_plan_free,
    .plan_memory = cpu_plan_memory,
    .page_pool_open = cpu_page_pool_open,
    .page_pool_close = cpu_page_pool_close,
    .page_positions = cpu_page_positions,
    .page_bytes = cpu_page_bytes,
    .page_new = cpu_page_new,
    .page_free = cpu_page_free,
    .page_copy = cpu_page_copy,
    .page_clear = cpu_page_clear,
    .page_read = cpu_page_read,
    .page_write = cpu_page_write,
    .instance_open = cpu_instance_open,
    .instance_close = cpu_instance_close,
    .submit = cpu_submit,
    .poll = cpu_poll,
    .cancel = cpu_cancel,
    .profile_start = cpu_profile_start,
    .profile_read = cpu_profile_read,
    .facts = cpu_facts,
    .selftest = cpu_selftest,
    .trace = cpu_trace,
};
