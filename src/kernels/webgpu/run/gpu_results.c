// Which results of a batch are read back, and the k greatest logits in them.
//
// A row of logits is half a megabyte for a vocabulary of 128,256; a token picked at random among
// the k = 40 greatest needs a few of them. Let t be the k-th greatest of the greatest logits of
// GPU_TOP_PARTS_N parts of a row. Then k logits are t or more, and the k greatest are among all
// that are. The device lists these (top.wgsl), about 63 for k = 40 where the great ones are spread
// evenly: with p the chance that a logit reaches t, a part of m stays below with (1 - p)^m = 24/64.
//
// A list does not rely on t being right: if it has room for all logits that reached t, whatever
// that was, and k of them are numbers, then no logit off the list is greater than one on it.
// Otherwise (many ties, NaN, great logits all in one part) the rows are read, as for k above 64.
#include <math.h>
#include <string.h>
#include "kernels/webgpu/run/gpu_instance.h"

gpu_results gpu_results_of(const tern_instance *in) {
    const gpu_request *b = &in->batch;
    if (b->n_outputs == 0 || (!b->logits && b->wants.top_k == 0)) return GPU_RESULTS_NONE;
    if (b->logits || in->reads_rows) return GPU_RESULTS_LOGITS;
    if (b->wants.top_k == 1) return GPU_RESULTS_GREATEST;
    return in->plan->makes_lists && b->wants.top_k <= GPU_TOP_PARTS_N ? GPU_RESULTS_LISTS
                                                                      : GPU_RESULTS_LOGITS;
}

uint64_t gpu_results_bytes(const tern_instance *in) {
    uint64_t rows = (uint64_t)in->chunk_rows;
    switch (gpu_results_of(in)) {
    case GPU_RESULTS_GREATEST: return rows * 8;
    case GPU_RESULTS_LISTS: return rows * sizeof(gpu_list);
    case GPU_RESULTS_LOGITS: return rows * (uint64_t)in->plan->n_vocab * sizeof(float);
    default: return 8;
    }
}

wgpu_buffer gpu_results_buffer(const tern_instance *in) {
    switch (gpu_results_of(in)) {
    case GPU_RESULTS_LISTS: return in->lists;
    case GPU_RESULTS_LOGITS: return in->logits;
    default: return in->top;
    }
}

// True when (a, id a) is to be dropped before (b, id b): smaller, or equal with the higher index.
static bool is_below(float a, int32_t id_a, float b, int32_t id_b) {
    return a < b || (a == b && id_a > id_b);
}

// The k greatest so far, in falling order.
typedef struct top {
    int32_t k;
    int32_t *ids;
    float *values;
} top;

static top top_of_row(const gpu_request *b, size_t number) {
    size_t k = (size_t)b->wants.top_k, row = (size_t)b->places[number];
    top t = {b->wants.top_k, b->wants.top_ids + row * k, b->wants.top_logits + row * k};
    for (size_t i = 0; i < k; i++) {
        t.values[i] = -INFINITY;
        t.ids[i] = INT32_MAX;
    }
    return t;
}

// By insertion: nearly all logits fail the first comparison.
static void offer(const top *t, float x, int32_t id) {
    int32_t at = t->k - 1;
    if (!is_below(t->values[at], t->ids[at], x, id)) return;
    for (; at > 0 && is_below(t->values[at - 1], t->ids[at - 1], x, id); at--) {
        t->values[at] = t->values[at - 1];
        t->ids[at] = t->ids[at - 1];
    }
    t->values[at] = x;
    t->ids[at] = id;
}

static void take_logits(const gpu_request *b, size_t row, const float *logits, size_t n_vocab) {
    if (b->logits)
        memcpy(b->logits + (size_t)b->places[row] * n_vocab, logits, n_vocab * sizeof *logits);
    if (b->wants.top_k == 0) return;
    top t = top_of_row(b, row);
    for (size_t i = 0; i < n_vocab; i++) offer(&t, logits[i], (int32_t)i);
}

static bool take_list(const gpu_request *b, size_t row, const gpu_list *list) {
    if (list->n > GPU_LIST_ITEMS) return false;
    top t = top_of_row(b, row);
    for (uint32_t i = 0; i < list->n; i++)
        offer(&t, list->items[i].logit, (int32_t)list->items[i].id);
    return t.ids[t.k - 1] != INT32_MAX; // NaN is never taken
}

void gpu_results_greatest(const void *mapped, size_t i, int32_t *id, float *logit) {
    memcpy(id, (const char *)mapped + i * 8, 4);
    memcpy(logit, (const char *)mapped + i * 8 + 4, 4);
}

bool gpu_results_take(const tern_instance *in, const void *mapped) {
    const gpu_request *b = &in->batch;
    size_t n_vocab = (size_t)in->plan->n_vocab;
    gpu_results wanted = gpu_results_of(in);
    bool enough = true;
    for (size_t i = 0; enough && i < (size_t)in->chunk_rows; i++) {
        size_t row = (size_t)in->chunk_first + i;
        if (wanted == GPU_RESULTS_GREATEST)
            gpu_results_greatest(mapped, i, &b->wants.top_ids[b->places[row]],
                                 &b->wants.top_logits[b->places[row]]);
        else if (wanted == GPU_RESULTS_LISTS)
            enough = take_list(b, row, (const gpu_list *)mapped + i);
        else if (wanted == GPU_RESULTS_LOGITS)
            take_logits(b, row, (const float *)mapped + i * n_vocab, n_vocab);
    }
    return enough;
}

// ---- Other outputs -----------------------------------------------------------------------------

int32_t gpu_rows_of_value(const tern_instance *in, tern_vid v) {
    const tern_graph *g = in->plan->g;
    return tern_graph_is_by(g, v, "outputs")     ? in->batch.n_outputs
           : tern_graph_is_by(g, v, "sequences") ? in->batch.n_chunks
           : gpu_is_counted(g, v)                ? (int32_t)tern_graph_rows(g, v, in->batch.counts)
                                                 : in->batch.n_tokens * (int32_t)gpu_times(g, v);
}

static uint64_t output_bytes(const tern_plan *p, tern_vid v, int32_t n_rows) {
    return (uint64_t)n_rows * (uint64_t)p->g->values[v].cols * sizeof(float);
}

uint64_t gpu_outputs_bytes_max(const tern_plan *p) {
    uint64_t bytes = 0;
    for (size_t v = 0; v < p->g->n_values; v++)
        if (p->g->values[v].kind == TERN_VALUE_OUTPUT && !gpu_is_logits(p->g, (tern_vid)v))
            bytes +=
                output_bytes(p, (tern_vid)v, p->n_batch * (int32_t)gpu_times(p->g, (tern_vid)v));
    return bytes;
}

uint64_t gpu_outputs_bytes(const tern_instance *in) {
    uint64_t bytes = 0;
    for (int i = 0; i < in->batch.n_others; i++) {
        tern_vid v = in->batch.others[i].value;
        bytes += output_bytes(in->plan, v, gpu_rows_of_value(in, v));
    }
    return bytes;
}

void gpu_outputs_encode(const tern_instance *in, gpu_encoding *e, wgpu_buffer to, uint64_t at) {
    for (int i = 0; i < in->batch.n_others; i++) {
        tern_vid v = in->batch.others[i].value;
        uint64_t bytes = output_bytes(in->plan, v, gpu_rows_of_value(in, v));
        if (bytes == 0) continue;
        gpu_encode_copy(in, e, in->pool, in->plan->memory.spans[v].offset, to, at, bytes);
        at += bytes;
    }
}

// Copies rows of the request to their places in the batch.
static void put_rows(const tern_instance *in, const tern_binding *to, const char *from) {
    const tern_graph *g = in->plan->g;
    const gpu_request *b = &in->batch;
    size_t bytes = (size_t)output_bytes(in->plan, to->value, (int32_t)gpu_times(g, to->value));
    char *data = to->data;
    if (tern_graph_is_by(g, to->value, "outputs")) {
        for (int32_t i = 0; i < b->n_outputs; i++, from += bytes)
            memcpy(data + (size_t)b->places[i] * bytes, from, bytes);
        return;
    }
    if (gpu_is_counted(g, to->value)) {
        memcpy(data, from,
               (size_t)output_bytes(in->plan, to->value, gpu_rows_of_value(in, to->value)));
        return;
    }
    bool by_sequence = tern_graph_is_by(g, to->value, "sequences");
    for (int32_t i = 0; i < b->n_chunks; i++) {
        size_t n = by_sequence ? bytes : (size_t)b->chunks[i].n_tokens * bytes;
        size_t row = (size_t)(by_sequence ? b->origins[i].chunk : b->origins[i].row);
        memcpy(data + row * bytes, from, n);
        from += n;
    }
}

void gpu_outputs_take(const tern_instance *in, const void *mapped) {
    const char *at = mapped;
    for (int i = 0; i < in->batch.n_others; i++) {
        tern_vid v = in->batch.others[i].value;
        put_rows(in, &in->batch.others[i], at);
        at += output_bytes(in->plan, v, gpu_rows_of_value(in, v));
    }
}

tern_status gpu_outputs_read(const tern_instance *in, tern_error *err) {
    const tern_plan *p = in->plan;
    for (int i = 0; i < in->batch.n_others; i++) {
        const tern_binding *b = &in->batch.others[i];
        uint64_t bytes = output_bytes(p, b->value, gpu_rows_of_value(in, b->value));
        TERN_TRY(
            gpu_read(p->device, in->pool, p->memory.spans[b->value].offset, b->data, bytes, err));
    }
    return TERN_OK;
}
