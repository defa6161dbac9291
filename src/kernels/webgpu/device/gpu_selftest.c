// A ladder of checks, from "can it add" to what the real kernels rely on: each step adds little to
// the steps before, so the first one that fails says what a device or its driver cannot do.
// The same is computed here in C; integers and sums of small integers must be the same to the bit.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/fma.h"
#include "base/hash.h"
#include "base/os/os_time.h"
#include "kernels/webgpu/device/gpu.h"

#define STORAGE (WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST | WGPU_BUFFER_COPY_SRC)

// ---- One job -----------------------------------------------------------------------------------

typedef struct job {
    gpu_kernel kernel;
    gpu_constant constants[3];
    int n_constants;
    const uint32_t *x; // [n_x]
    uint32_t n_x, n_y; // words
    uint32_t n_workgroups;
    uint32_t n_times; // x and y change places from one dispatch to the next; 0: once
    uint32_t group;   // most dispatches of a submission, 0: all
    uint64_t bytes;   // of each buffer, 0: what is needed
    uint64_t data_at; // where x lies in its buffer
    uint64_t bind_at; // where the bindings begin
} job;

typedef struct job_memory {
    wgpu_buffer uniform, xy[2];
    wgpu_group groups[2];
} job_memory;

static tern_status open_job(tern_device *d, const job *j, job_memory *m, tern_error *err) {
    uint64_t n = j->n_x > j->n_y ? j->n_x : j->n_y;
    uint64_t bytes = j->bytes ? j->bytes : j->bind_at + n * 4;
    TERN_TRY(gpu_buffer_new(d, GPU_USE_WORK, 32, WGPU_BUFFER_STORAGE | WGPU_BUFFER_COPY_DST,
                            "a self-test", &m->uniform, err));
    for (int i = 0; i < 2; i++) {
        // Only what is read is large.
        uint64_t size = i == 0 ? bytes : j->bind_at + n * 4;
        TERN_TRY(gpu_buffer_new(d, GPU_USE_WORK, size, STORAGE, "a self-test", &m->xy[i], err));
    }
    for (int i = 0; i < 2; i++) {
        wgpu_group_entry entries[3] = {{.buffer = m->uniform, .bytes = UINT64_MAX}};
        for (int k = 0; k < 2; k++)
            entries[1 + k] = (wgpu_group_entry){.binding = (uint32_t)k + 1,
                                                .buffer = m->xy[i == k ? 0 : 1],
                                                .offset = j->bind_at,
                                                .bytes = UINT64_MAX};
        wgpu_group_desc desc = {
            .layout = d->layouts[j->kernel], .n_entries = 3, .entries = entries};
        m->groups[i] = d->api.DeviceCreateBindGroup(d->device, &desc);
    }
    return gpu_check(d, "preparing a self-test", err);
}

static void close_job(tern_device *d, job_memory *m) {
    for (int i = 0; i < 2; i++) {
        if (m->groups[i]) d->api.BindGroupRelease(m->groups[i]);
        gpu_buffer_free(d, GPU_USE_WORK, m->xy[i]);
    }
    gpu_buffer_free(d, GPU_USE_WORK, m->uniform);
}

static void submit_job(tern_device *d, const job *j, job_memory *m, wgpu_pipeline pipeline) {
    const wgpu_api *a = &d->api;
    uint32_t n_times = j->n_times ? j->n_times : 1;
    a->QueueWriteBuffer(d->queue, m->xy[0], j->data_at, j->x, (size_t)j->n_x * 4);
    for (uint32_t i = 0; i < n_times;) {
        wgpu_encoder encoder = a->DeviceCreateCommandEncoder(d->device, NULL);
        wgpu_pass pass = a->CommandEncoderBeginComputePass(encoder, NULL);
        a->ComputePassEncoderSetPipeline(pass, pipeline);
        for (uint32_t k = 0; i < n_times && (j->group == 0 || k < j->group); k++, i++) {
            a->ComputePassEncoderSetBindGroup(pass, 0, m->groups[i % 2], 0, NULL);
            a->ComputePassEncoderDispatchWorkgroups(pass, j->n_workgroups, 1, 1);
        }
        a->ComputePassEncoderEnd(pass);
        a->ComputePassEncoderRelease(pass);
        wgpu_commands commands = a->CommandEncoderFinish(encoder, NULL);
        a->CommandEncoderRelease(encoder);
        a->QueueSubmit(d->queue, 1, &commands);
        a->CommandBufferRelease(commands);
    }
}

static tern_status pipeline_of(tern_device *d, const job *j, wgpu_pipeline *out, tern_error *err) {
    gpu_pipeline wanted = {.kernel = j->kernel, .n_constants = j->n_constants};
    memcpy(wanted.constants, j->constants, sizeof j->constants);
    return gpu_pipeline_get(d, &wanted, out, err);
}

static tern_status run_job(tern_device *d, const job *j, uint32_t *y, tern_error *err) {
    wgpu_pipeline pipeline;
    TERN_TRY(pipeline_of(d, j, &pipeline, err));
    job_memory m = {0};
    tern_status status = open_job(d, j, &m, err);
    if (status == TERN_OK) {
        submit_job(d, j, &m, pipeline);
        uint32_t n_times = j->n_times ? j->n_times : 1;
        status = gpu_read(d, m.xy[n_times % 2], j->bind_at, y, (uint64_t)j->n_y * 4, err);
    }
    close_job(d, &m);
    return status;
}

static void fill(uint32_t *x, uint32_t n, uint64_t seed) {
    for (uint32_t i = 0; i < n; i++) x[i] = (uint32_t)tern_mix64(seed + i);
}

static tern_status compare(const uint32_t *y, const uint32_t *wanted, uint32_t n, tern_error *err) {
    uint32_t i = 0;
    while (i < n && y[i] == wanted[i]) i++;
    if (i == n) return TERN_OK;
    return tern_fail(err, TERN_ERR_DEVICE, "word %u is %u instead of %u", i, y[i], wanted[i]);
}

// ---- The steps ---------------------------------------------------------------------------------

#define WORDS 1024

struct gpu_trial {
    tern_device *device;
    job_memory memory;
    gpu_readback result; // its own: one that never comes must not block the next
    uint32_t n_times;
    double end; // when it counts as hanging
};

tern_status gpu_trial_begin(gpu_trial **out, tern_device *d, uint32_t n_times, uint32_t group,
                            tern_error *err) {
    uint32_t x[WORDS];
    tern_status status = TERN_OK;
    wgpu_pipeline pipeline;
    *out = NULL;
    gpu_trial *c = tern_alloc(TERN_MEM_MISC, sizeof *c);
    if (!c) return tern_fail_memory(err, sizeof *c);
    *c = (gpu_trial){.device = d, .n_times = n_times, .end = tern_seconds() + GPU_SECONDS};
    fill(x, WORDS, 1);
    const job j = {.kernel = GPU_CHAIN,
                   .constants = {{"N", WORDS}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = WORDS,
                   .n_y = WORDS,
                   .n_workgroups = WORDS / 64,
                   .n_times = n_times,
                   .group = group};
    TERN_TRY_GOTO(pipeline_of(d, &j, &pipeline, err));
    TERN_TRY_GOTO(open_job(d, &j, &c->memory, err));
    TERN_TRY_GOTO(gpu_readback_new(d, sizeof x, "a self-test", &c->result, err));
    submit_job(d, &j, &c->memory, pipeline);
    gpu_readback_copy(d, c->memory.xy[n_times % 2], 0, &c->result, sizeof x);
    *out = c;
    return TERN_OK;
fail:
    gpu_trial_close(c);
    return status;
}

tern_status gpu_trial_poll(gpu_trial *c, bool *done, tern_error *err) {
    tern_device *d = c->device;
    uint32_t x[WORDS], before[WORDS];
    *done = false;
    TERN_TRY(gpu_check(d, "reading back", err));
    bool is_there = !gpu_is_pending(&c->result);
    const uint32_t *y = is_there ? gpu_readback_bytes(d, &c->result, sizeof x) : NULL;
    if (!y && tern_seconds() < c->end) return TERN_OK; // of a lost device: it will say so
    if (!y) return tern_fail(err, TERN_ERR_DEVICE, "the GPU's memory cannot be read");
    fill(x, WORDS, 1);
    for (uint32_t k = 0; k < c->n_times; k++) {
        memcpy(before, x, sizeof x);
        for (uint32_t i = 0; i < WORDS; i++) x[i] = before[(i + 65) % WORDS] * 1664525u + i;
    }
    TERN_TRY(compare(y, x, WORDS, err));
    *done = true;
    return TERN_OK;
}

void gpu_trial_close(gpu_trial *c) {
    if (!c) return;
    gpu_readback_free(c->device, &c->result);
    close_job(c->device, &c->memory);
    tern_free(c);
}

static tern_status run_chain(tern_device *d, uint32_t n, uint32_t group, tern_error *err) {
    gpu_trial *c;
    bool done = false;
    TERN_TRY(gpu_trial_begin(&c, d, n, group, err));
    gpu_wait(d, &c->result);
    tern_status status = TERN_OK;
    while (status == TERN_OK && !done) status = gpu_trial_poll(c, &done, err);
    gpu_trial_close(c);
    return status;
}

static tern_status step_plain(tern_device *d, tern_error *err) { return run_chain(d, 1, 0, err); }
static tern_status step_chain(tern_device *d, tern_error *err) {
    return run_chain(d, 300, d->group, err);
}

// *ran: the device did it, right or wrong.
static tern_status read_far(tern_device *d, uint64_t bytes, uint64_t bind_at, bool *ran,
                            tern_error *err) {
    uint32_t x[WORDS], y[WORDS];
    fill(x, WORDS, 2);
    *ran = false;
    uint64_t data_at = bytes - sizeof x;
    const job j = {.kernel = GPU_FAR,
                   .constants = {{"N", WORDS}, {"AT", (double)((data_at - bind_at) / 4)}},
                   .n_constants = 2,
                   .x = x,
                   .n_x = WORDS,
                   .n_y = WORDS,
                   .n_workgroups = WORDS / 64,
                   .bytes = bytes,
                   .data_at = data_at,
                   .bind_at = bind_at};
    TERN_TRY(run_job(d, &j, y, err));
    *ran = true;
    for (uint32_t i = 0; i < WORDS; i++) x[i]++;
    return compare(y, x, WORDS, err);
}

static tern_status step_offset(tern_device *d, tern_error *err) {
    bool ran;
    for (uint64_t at = 256; at <= 65536; at *= 4) TERN_TRY(read_far(d, at + 16384, at, &ran, err));
    return TERN_OK;
}

// Failures are reported more than once, and late where a browser is in between: reports that arrive
// before the result of a small job belong to something before it.
static void forget_errors(tern_device *d) {
    tern_error why;
    for (int i = 0; i < 2 && !d->lost; i++) {
        run_chain(d, 1, 0, &why);
        gpu_check(d, "", &why);
    }
}

// As large as a binding may be and memory allows: a limit does not promise that much memory, and
// only a computation there shows whether there is any.
#define LARGE_BYTES ((uint64_t)1 << 30)
#define LEAST_BYTES ((uint64_t)64 << 20)
static tern_status step_large(tern_device *d, tern_error *err) {
    uint64_t bytes = d->binding_bytes_max < LARGE_BYTES ? d->binding_bytes_max : LARGE_BYTES;
    for (; !d->lost; bytes /= 2) {
        tern_error why = {0};
        bool ran;
        tern_status status = read_far(d, bytes / 256 * 256, 0, &ran, &why);
        if (ran || status == TERN_ERR_MEMORY) {
            if (err) *err = why;
            return status;
        }
        forget_errors(d);
        if (bytes / 2 < LEAST_BYTES) break;
    }
    if (d->lost) return gpu_check(d, "reading a large buffer", err);
    return tern_fail(err, TERN_OK, "not run: the GPU has no %d MB in one piece",
                     (int)(bytes >> 20));
}

#define THREADS 256
static tern_status step_workgroup(tern_device *d, tern_error *err) {
    uint32_t x[WORDS], y[WORDS], wanted[WORDS];
    fill(x, WORDS, 3);
    for (uint32_t i = 0; i < WORDS; i++)
        wanted[i] = x[i / THREADS * THREADS + THREADS - 1 - i % THREADS];
    const job j = {.kernel = GPU_REVERSE,
                   .constants = {{"THREADS", THREADS}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = WORDS,
                   .n_y = WORDS,
                   .n_workgroups = WORDS / THREADS};
    TERN_TRY(run_job(d, &j, y, err));
    return compare(y, wanted, WORDS, err);
}

static tern_status step_reduce(tern_device *d, tern_error *err) {
    uint32_t x[WORDS], y[3 * WORDS], wanted[3 * WORDS] = {0};
    fill(x, WORDS, 4);
    for (uint32_t i = 0; i < WORDS; i++) x[i] &= 1023;
    for (uint32_t i = 0; i < WORDS; i++)
        for (uint32_t k = 0; k < THREADS; k++) {
            uint32_t v = x[i / THREADS * THREADS + k];
            wanted[3 * i] += v;
            if (v > wanted[3 * i + 1]) wanted[3 * i + 1] = v;
            if (k / 32 == i % THREADS / 32) wanted[3 * i + 2] += 10 * v;
        }
    const job j = {.kernel = GPU_REDUCE,
                   .constants = {{"THREADS", THREADS}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = WORDS,
                   .n_y = 3 * WORDS,
                   .n_workgroups = WORDS / THREADS};
    TERN_TRY(run_job(d, &j, y, err));
    return compare(y, wanted, 3 * WORDS, err);
}

static tern_status step_unpack(tern_device *d, tern_error *err) {
    uint32_t x[WORDS], y[2 * WORDS], wanted[2 * WORDS];
    fill(x, WORDS, 5);
    for (uint32_t i = 0; i < WORDS; i++) {
        wanted[2 * i] = 1024u + (x[i] & 1023) + ((1024u + (x[i] >> 16 & 1023)) << 16);
        wanted[2 * i + 1] = 0;
        for (int k = 0; k < 8; k += 2) wanted[2 * i + 1] += x[i] >> k & 0x03030303u;
    }
    const job j = {.kernel = GPU_UNPACK,
                   .constants = {{"N", 2 * WORDS}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = WORDS,
                   .n_y = 2 * WORDS,
                   .n_workgroups = WORDS / 64};
    TERN_TRY(run_job(d, &j, y, err));
    return compare(y, wanted, 2 * WORDS, err);
}

static tern_status step_dot(tern_device *d, tern_error *err) {
    static const uint32_t ends[] = {0x80808080u, 0x7f7f7f7fu, 0,           0x80808080u,
                                    0x7f80807fu, 0xffffffffu, 0x01010101u, 0x80ff7f01u};
    uint32_t x[WORDS], y[WORDS / 2], wanted[WORDS / 2];
    fill(x, WORDS, 6);
    memcpy(x, ends, sizeof ends);
    for (uint32_t i = 0; i < WORDS / 2; i++) {
        int32_t sum = 0;
        for (int k = 0; k < 32; k += 8)
            sum += (int32_t)(int8_t)(x[2 * i] >> k) * (int8_t)(x[2 * i + 1] >> k);
        wanted[i] = (uint32_t)sum;
    }
    const job j = {.kernel = GPU_DOTS,
                   .constants = {{"N", WORDS / 2}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = WORDS,
                   .n_y = WORDS / 2,
                   .n_workgroups = WORDS / 128};
    TERN_TRY(run_job(d, &j, y, err));
    return compare(y, wanted, WORDS / 2, err);
}

// fma of products that nearly cancel, or are as large as what they are added to.
static tern_status step_fma(tern_device *d, tern_error *err) {
    enum { N = WORDS / 4 };
    uint32_t x[3 * N], y[N], wanted[N];
    fill(x, 3 * N, 7);
    for (uint32_t i = 0; i < N; i++) {
        float v[3];
        for (int k = 0; k < 3; k++) v[k] = (float)(int32_t)x[3 * i + (uint32_t)k] * 0x1p-31f;
        if (i % 2) v[2] = -(v[0] * v[1]);
        memcpy(x + 3 * i, v, sizeof v);
        float sum = tern_fma(v[0], v[1], v[2]);
        memcpy(wanted + i, &sum, sizeof sum);
    }
    const job j = {.kernel = GPU_FMAS,
                   .constants = {{"N", N}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = 3 * N,
                   .n_y = N,
                   .n_workgroups = N / 64};
    TERN_TRY(run_job(d, &j, y, err));
    return compare(y, wanted, N, err);
}

// The results of rows/prelude.wgsl's clamps for any argument are finite, and right within 1e-3 of
// the value or of 1: that is 2 ulp of an exponent of 87.
static bool is_near(float y, double wanted) {
    if (wanted > 3e38) wanted = 3e38;
    return isfinite(y) && fabs((double)y - wanted) <= 1e-3 * fmax(fabs(wanted), 1e-3);
}

static tern_status step_exp(tern_device *d, tern_error *err) {
    static const float values[] = {0,   1,   -1,   20,   -20,   60,   -60,   87,    -87,  88,
                                   -88, 100, -100, 1e4f, -1e4f, 3e8f, -3e8f, 1e-8f, 0.5f, -3};
    enum { N = sizeof values / sizeof *values, EACH = 5 };
    uint32_t x[N], y[EACH * N];
    memcpy(x, values, sizeof x);
    const job j = {.kernel = GPU_ACTIVATIONS,
                   .constants = {{"N", EACH * N}},
                   .n_constants = 1,
                   .x = x,
                   .n_x = N,
                   .n_y = EACH * N,
                   .n_workgroups = 1};
    TERN_TRY(run_job(d, &j, y, err));
    for (int i = 0; i < N; i++) {
        double v = (double)values[i], u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
        double clamped = fmin(fmax(v, -87), 87);
        const double wanted[] = {exp(clamped), v / (1 + exp(fmin(-v, 700))), v > 0 ? v * v : 0,
                                 0.5 * v * erfc(-v / sqrt(2)), 0.5 * v * (1 + tanh(u))};
        static const char *const names[] = {"exp", "silu", "relu2", "gelu", "gelu by tanh"};
        for (int k = 0; k < EACH; k++) {
            float got;
            memcpy(&got, &y[EACH * i + k], 4);
            if (!is_near(got, wanted[k]))
                return tern_fail(err, TERN_ERR_DEVICE, "%s(%g) is %g instead of %g", names[k], v,
                                 (double)got, wanted[k]);
        }
    }
    return TERN_OK;
}

// ---- The ladder --------------------------------------------------------------------------------

static const struct {
    const char *name;
    tern_status (*run)(tern_device *d, tern_error *err);
} steps[] = {
    {"plain compute", step_plain},
    {"binding offsets", step_offset},
    {"large buffers", step_large},
    {"workgroup memory", step_workgroup},
    {"reductions", step_reduce},
    {"packing", step_unpack},
    {"integer dot", step_dot},
    {"fma rounds once", step_fma},
    {"exp and activations at their ends", step_exp},
    {"300 dependent dispatches", step_chain},
};

tern_status gpu_selftest(tern_device *d, tern_check_fn on_check, void *ctx, tern_error *err) {
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        tern_error why = {0};
        tern_status status = steps[i].run(d, &why);
        if (status == TERN_ERR_MEMORY) {
            if (err) *err = why;
            return status;
        }
        on_check(ctx, steps[i].name, status == TERN_OK, why.message);
        if (d->lost) break;
    }
    return TERN_OK;
}
