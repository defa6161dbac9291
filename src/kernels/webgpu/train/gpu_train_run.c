// Running a batch: its rows are checked and sent, one command buffer for the whole program.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/train/gpu_train_steps.h"

// ---- The batch ---------------------------------------------------------------------------------

static tern_status check_ids(const int32_t *ids, int32_t n, int64_t bound, int32_t least,
                             const char *what, tern_error *err) {
    if (bound == 0) return TERN_OK;
    if (!ids) return tern_fail(err, TERN_ERR_ARGUMENT, "the batch has no %s", what);
    for (int32_t i = 0; i < n; i++)
        if (ids[i] < least || ids[i] >= bound)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "row %d of the batch: %s %d is not in %d..%lld", (int)i, what,
                             (int)ids[i], (int)least, (long long)bound - 1);
    return TERN_OK;
}

static tern_status check_batch(const tern_program *p, const tern_train_batch *b, tern_error *err) {
    if (b->n_tokens < 0 || b->n_tokens > p->n_rows)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %d tokens for a program of %d",
                         (int)b->n_tokens, (int)p->n_rows);
    TERN_TRY(check_ids(b->ids, b->n_tokens, p->n_ids, 0, "token", err));
    TERN_TRY(check_ids(b->targets, b->n_tokens, p->n_targets, -1, "target", err));
    for (int32_t t = 0; b->starts && t < b->n_tokens; t++) {
        bool fits = b->starts[t] == t || (t > 0 && b->starts[t] == b->starts[t - 1]);
        if (!fits || t - b->starts[t] >= p->n_span)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "row %d of the batch: it cannot be in a document that starts at row "
                             "%d, where one has at most %d",
                             (int)t, (int)b->starts[t], (int)p->n_span);
    }
    return TERN_OK;
}

static void send(const tern_program *p, wgpu_buffer to, const void *data, size_t n_words) {
    tern_device *gpu = p->device->gpu;
    if (n_words > 0) gpu->api.QueueWriteBuffer(gpu->queue, to, 0, data, n_words * 4);
}

// First row of each row's document and the row after its last; without starts all are one document.
static void send_spans(tern_program *p, const tern_train_batch *b) {
    int32_t *spans = p->host;
    for (int32_t t = b->n_tokens - 1; t >= 0; t--) {
        spans[2 * t] = b->starts ? b->starts[t] : 0;
        bool last = t == b->n_tokens - 1 || spans[2 * t + 2] != spans[2 * t];
        spans[2 * t + 1] = last ? t + 1 : spans[2 * t + 3];
    }
    send(p, p->spans, spans, 2 * (size_t)b->n_tokens);
}

// Rows sorted by token (counting sort) and, for each token found: token, first row in that order,
// number of rows. Returns the number of different tokens.
static uint32_t send_order(tern_program *p, const tern_train_batch *b) {
    int32_t *order = p->host, *found = order + p->n_rows, *at = found + 4 * (size_t)p->n_rows;
    memset(at, 0, ((size_t)p->n_ids + 1) * sizeof *at);
    for (int32_t t = 0; t < b->n_tokens; t++) at[b->ids[t] + 1]++;
    uint32_t n = 0;
    for (int64_t id = 0; id < p->n_ids; id++) {
        int32_t count = at[id + 1];
        at[id + 1] += at[id];
        if (count == 0) continue;
        int32_t one[] = {(int32_t)id, at[id], count, 0};
        memcpy(found + 4 * (size_t)n++, one, sizeof one);
    }
    for (int32_t t = 0; t < b->n_tokens; t++) order[at[b->ids[t]]++] = t;
    send(p, p->order, order, (size_t)b->n_tokens);
    send(p, p->found, found, 4 * (size_t)n);
    return n;
}

// The power of two that scales the gradients of values: the greatest of the logits' become about
// 64, a thousandth of what a half can hold.
static float gradient_scale(const tern_train_batch *b) {
    if (!(b->loss_scale > 1e-30f && b->loss_scale < 1e30f)) return 1;
    return exp2f(6 - roundf(log2f(b->loss_scale)));
}

static void set_uniform(tern_program *p, const tern_train_batch *b, uint32_t n_ids) {
    double step = (double)(b->step > 0 ? b->step : 1);
    float scale = gradient_scale(b);
    p->of_run = (gpu_train_uniform){
        .n_tokens = (uint32_t)b->n_tokens,
        .n_ids = n_ids,
        .loss_scale = b->loss_scale * scale,
        .unscale = 1 / scale,
        .rate = b->rate,
        .beta1 = b->beta1,
        .beta2 = b->beta2,
        .eps = b->eps,
        .decay = b->decay,
        .clip = b->clip,
        .correction1 = (float)(1 / (1 - pow((double)b->beta1, step))),
        .correction2 = (float)(1 / (1 - pow((double)b->beta2, step))),
        .n_all = (uint32_t)b->n_tokens,
        .unrounded = b->unrounded,
    };
}

// For the steps that follow: rows of the run, or of a piece that begins with scored row `first`.
static void send_uniform(tern_program *p, uint32_t first, uint32_t n_tokens) {
    gpu_train_uniform u = p->of_run;
    u.first = first;
    u.n_tokens = p->n_tokens = n_tokens;
    send(p, p->uniform, &u, sizeof u / 4);
}

// Unscored rows have a target below 0, and no logits. Returns the number of the others.
static uint32_t send_places(tern_program *p, const tern_train_batch *b) {
    uint32_t n = 0;
    for (int32_t t = 0; t < b->n_tokens; t++) {
        bool is_scored = b->targets[t] >= 0;
        p->host[t] = is_scored ? (int32_t)n : -1;
        if (!is_scored) continue;
        p->scored[n] = t;
        p->shares[n] = b->weights ? b->weights[t] : 1;
        p->answers[n++] = b->targets[t];
    }
    send(p, p->places, p->host, (size_t)b->n_tokens);
    return n;
}

// ---- Dispatches --------------------------------------------------------------------------------

static uint32_t count_of(gpu_count c, const tern_program *p) {
    if (c.each == 0) return c.n;
    if (c.each == GPU_EACH_ID) return c.n * p->n_ids_found;
    bool all = c.each >= GPU_EACH_ALL;
    uint32_t each = all ? c.each - GPU_EACH_ALL : c.each;
    return c.n * groups(all ? p->of_run.n_all : p->n_tokens, each);
}

static void encode(const tern_program *p, const gpu_train_step *s, wgpu_pass pass) {
    const wgpu_api *a = &p->device->gpu->api;
    uint32_t size[3];
    for (int i = 0; i < 3; i++) size[i] = count_of(s->grid[i], p);
    if (size[0] == 0 || size[1] == 0 || size[2] == 0) return;
    a->ComputePassEncoderSetPipeline(pass, s->pipeline->handle);
    a->ComputePassEncoderSetBindGroup(pass, 0, s->group, 0, NULL);
    a->ComputePassEncoderDispatchWorkgroups(pass, size[0], size[1], size[2]);
}

// Steps first to end, as many to a submission as the device takes.
static void submit(const tern_program *p, size_t first, size_t end, int repeats) {
    const tern_device *gpu = p->device->gpu;
    const wgpu_api *a = &gpu->api;
    size_t n = (end - first) * (size_t)repeats, group = gpu->group ? gpu->group : n;
    for (size_t at = 0; at < n; at += group) {
        wgpu_encoder encoder = a->DeviceCreateCommandEncoder(gpu->device, NULL);
        wgpu_pass pass = a->CommandEncoderBeginComputePass(encoder, NULL);
        for (size_t i = at; i < n && i < at + group; i++)
            encode(p, &p->steps[first + i % (end - first)], pass);
        a->ComputePassEncoderEnd(pass);
        a->ComputePassEncoderRelease(pass);
        wgpu_commands commands = a->CommandEncoderFinish(encoder, NULL);
        a->CommandEncoderRelease(encoder);
        a->QueueSubmit(gpu->queue, 1, &commands);
        a->CommandBufferRelease(commands);
    }
}

// The steps of the head for one piece after the other. At least once: what unscored rows send back
// is 0.
static void submit_pieces(tern_program *p, uint32_t n_scored) {
    const uint32_t most = (uint32_t)p->piece_rows;
    for (uint32_t at = 0; at == 0 || at < n_scored; at += most) {
        uint32_t n = n_scored - at < most ? n_scored - at : most;
        send(p, p->taken, p->scored + at, n);
        send(p, p->targets, p->answers + at, n);
        send(p, p->weights, p->shares + at, n);
        send_uniform(p, at, n);
        submit(p, p->head_first, p->head_end, 1);
    }
    send_uniform(p, 0, p->of_run.n_all);
}

void gpu_train_repeat(tern_program *p, size_t i, int repeats) {
    bool in_head = i >= p->head_first && i < p->head_end;
    uint32_t most = (uint32_t)p->piece_rows, all = p->of_run.n_all;
    send_uniform(p, 0, in_head && most < all ? most : all);
    submit(p, i, i + 1, repeats);
}

tern_status gpu_train_run(tern_program *p, const tern_train_batch *b, tern_error *err) {
    tern_device *gpu = p->device->gpu;
    TERN_TRY(check_batch(p, b, err));
    p->n_tokens = (uint32_t)b->n_tokens;
    p->n_ids_found = p->embeds_back ? send_order(p, b) : 0;
    send_spans(p, b);
    if (b->ids) send(p, p->ids, b->ids, (size_t)b->n_tokens);
    if (b->targets) send(p, p->targets, b->targets, (size_t)b->n_tokens);
    set_uniform(p, b, p->n_ids_found);
    send_uniform(p, 0, p->n_tokens);
    gpu->n_launches++;
    if (p->head.end == 0)
        submit(p, 0, p->n_steps, 1);
    else {
        uint32_t n_scored = send_places(p, b);
        submit(p, 0, p->head_first, 1);
        submit_pieces(p, n_scored);
        submit(p, p->head_end, p->n_steps, 1);
    }
    gpu->api.InstanceProcessEvents(gpu->instance); // lets the library free what is done
    return gpu_check(gpu, "training", err);
}
