// The order in which a batch is computed, and the tables where kernels find the sequence and the
// position of each row.
//
// Rows of chunks of up to GPU_FEW tokens ("steps") and of longer ones or of images ("prompts")
// take different kernels, which add up in different orders: what suits a row of weights that is
// read for one token does not suit a tile of many. With TERN_MATMUL_HALF long prompts have other
// products than short ones, too. A row's bits may not depend on what else is in its batch, so the
// chunks of each kind are a request of their own, computed one after the other.
#include <string.h>
#include "base/alloc.h"
#include "kernels/webgpu/run/gpu_instance.h"

static gpu_kind kind_of(const tern_instance *in, const tern_chunk *c) {
    if (c->n_tokens <= GPU_FEW && !c->has_ends) return GPU_STEPS;
    bool is_long = gpu_takes_halves(in->plan->device) && c->n_tokens > GPU_HALF_FROM;
    return is_long ? GPU_LONG_PROMPTS : GPU_SHORT_PROMPTS;
}

// The wanted row i of a batch.
static int32_t wanted(const tern_batch *b, int32_t i) {
    return b->outputs ? b->outputs[i] : b->n_tokens - b->n_outputs + i;
}

static void add_chunks(tern_instance *in, const tern_batch *b, gpu_kind kind) {
    gpu_order *o = &in->order;
    int32_t row = 0, out = 0;
    for (int32_t i = 0; i < b->n_chunks; i++) {
        const tern_chunk *c = &b->chunks[i];
        bool mine = kind_of(in, c) == kind;
        int32_t end = row + c->n_tokens;
        for (; out < b->n_outputs && wanted(b, out) < end; out++) {
            if (!mine) continue;
            o->outputs[o->n_outputs] = o->id + wanted(b, out) - row;
            o->places[o->n_outputs++] = out;
        }
        if (mine) {
            o->origins[o->n_chunks] = (gpu_origin){i, row};
            o->chunks[o->n_chunks++] = *c;
            size_t bytes = (size_t)c->n_tokens * sizeof *o->ids;
            if (b->ids)
                memcpy(o->ids + o->id, b->ids + row, bytes);
            else
                memset(o->ids + o->id, 0, bytes); // the graph may read none
            o->id += c->n_tokens;
        }
        row = end;
    }
}

tern_status gpu_order_fill(tern_instance *in, const tern_batch *b, tern_error *err) {
    gpu_order *o = &in->order;
    TERN_TRY(tern_batch_check(b, in->plan->g, in->plan->n_batch, INT32_MAX, err));
    for (int32_t i = 1; i < b->n_outputs; i++)
        if (wanted(b, i) <= wanted(b, i - 1))
            return tern_fail(err, TERN_ERR_ARGUMENT, "the wanted rows of a batch must ascend");
    o->n_chunks = o->n_outputs = o->id = 0;
    if (gpu_takes_halves(in->plan->device)) add_chunks(in, b, GPU_LONG_PROMPTS);
    add_chunks(in, b, GPU_SHORT_PROMPTS);
    o->n_prompts = o->n_chunks;
    o->n_prompt_outputs = o->n_outputs;
    add_chunks(in, b, GPU_STEPS);
    o->chunk = o->id = o->output = 0;
    in->batch = (gpu_request){.logits = tern_batch_data(b, in->scores),
                              .wants = b->wants,
                              .input_places = b->places,
                              .ends = b->ends};
    tern_batch_counts(b, in->plan->g, in->batch.counts);
    for (int32_t i = 0; i < b->n_bindings; i++) {
        const tern_graph *g = in->plan->g;
        tern_vid v = b->bindings[i].value;
        if (g->values[v].kind == TERN_VALUE_INPUT && in->batch.n_inputs < GPU_INPUTS_MAX)
            in->batch.inputs[in->batch.n_inputs++] = b->bindings[i];
        bool is_other = g->values[v].kind == TERN_VALUE_OUTPUT && !gpu_is_logits(g, v);
        if (is_other) in->batch.others[in->batch.n_others++] = b->bindings[i];
    }
    return TERN_OK;
}

bool gpu_order_has_next(const tern_instance *in) { return in->order.chunk < in->order.n_chunks; }

void gpu_order_go_to(tern_instance *in, int32_t chunk, int32_t id, int32_t output) {
    gpu_order *o = &in->order;
    for (int32_t i = output; i < o->output; i++) o->outputs[i] += id;
    o->chunk = chunk;
    o->id = id;
    o->output = output;
}

static void cut_tiles(tern_instance *in) {
    gpu_request *r = &in->batch;
    int32_t each = in->plan->tile_rows[in->cache];
    bool has_large = GPU_MAY_HAVE_MATRIX && !(in->plan->only_small & 1u << in->cache);
    if (each && has_large && r->n_tokens >= GPU_TILE_LARGE_FROM) each = GPU_TILE_LARGE;
    r->tile_rows = each;
    r->n_tiles = 0;
    for (int32_t i = 0; each && i < r->n_chunks; i++)
        r->n_tiles += (r->chunks[i].n_tokens + each - 1) / each;
}

bool gpu_order_next(tern_instance *in) {
    gpu_order *o = &in->order;
    gpu_request *r = &in->batch;
    if (o->chunk == o->n_chunks) return false;
    const tern_chunk *c = &o->chunks[o->chunk];
    const gpu_kind kind = kind_of(in, c);
    int32_t n = 0;
    r->chunks = c;
    r->origins = o->origins + o->chunk;
    r->ids = o->ids + o->id;
    r->n_tokens = r->n_outputs = 0;
    for (; o->chunk + n < o->n_chunks && kind_of(in, &c[n]) == kind; n++) {
        if (kind == GPU_STEPS && n > 0 && r->n_tokens + c[n].n_tokens > GPU_STEPS_ROWS) break;
        r->n_tokens += c[n].n_tokens;
    }
    r->n_chunks = n;
    cut_tiles(in);
    r->kind = kind;
    if (kind == GPU_STEPS) r->kind = r->n_tokens <= GPU_FEW ? GPU_FEW_STEPS : GPU_MANY_STEPS;
    r->first_pos = c->first_pos;
    r->outputs = o->outputs + o->output;
    r->places = o->places + o->output;
    for (; o->output < o->n_outputs && o->outputs[o->output] < o->id + r->n_tokens; o->output++) {
        o->outputs[o->output] -= o->id;
        r->n_outputs++;
    }
    o->chunk += n;
    o->id += r->n_tokens;
    return true;
}

// ---- Tables ------------------------------------------------------------------------------------

static tern_status reserve(tern_instance *in, size_t n, size_t more, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &in->tables, &in->tables_capacity, n, more) != 0)
        return tern_fail_memory(err, (n + more) * sizeof *in->tables);
    return TERN_OK;
}

tern_status gpu_table_pages(tern_instance *in, const tern_sequence *s, int32_t n_positions,
                            size_t *n, tern_error *err) {
    const tern_page_layout *l = gpu_page_pool_layout(in->page_pool);
    size_t n_pages = ((size_t)n_positions + GPU_PAGE_POSITIONS - 1) / GPU_PAGE_POSITIONS;
    TERN_TRY(reserve(in, *n, n_pages * (size_t)l->n_groups, err));
    for (int g = 0; g < l->n_groups; g++) {
        const tern_page *pages = tern_sequence_pages(s, g);
        for (size_t i = 0; i < n_pages; i++)
            in->tables[*n + i * (size_t)l->n_groups + (size_t)g] =
                pages && (g != l->fixed || i == 0) ? pages[i].index : 0;
    }
    *n += n_pages * (size_t)l->n_groups;
    return TERN_OK;
}

static void put_rows(uint32_t *to, const tern_chunk *c, int32_t row, size_t pages_at) {
    for (int32_t i = 0; i < c->n_tokens; i++) {
        const gpu_row r = {(uint32_t)(c->first_pos + i), (uint32_t)pages_at, (uint32_t)row,
                           (uint32_t)(row + c->n_tokens)};
        memcpy(to + 4 * (row + i), &r, sizeof r);
    }
}

// Image ends of the request's rows, whose chunks come in another order in the batch.
static void put_ends(uint32_t *to, const gpu_request *b) {
    for (int32_t i = 0; i < b->n_chunks; to += b->chunks[i++].n_tokens)
        memcpy(to, b->ends + b->origins[i].row, (size_t)b->chunks[i].n_tokens * sizeof *to);
}

static uint32_t *put_tiles(uint32_t *to, const tern_chunk *c, int32_t row, int32_t each) {
    for (int32_t i = 0; each > 0 && i < c->n_tokens; i += each, to += 2) {
        to[0] = (uint32_t)(row + i);
        to[1] = (uint32_t)(c->n_tokens - i < each ? c->n_tokens - i : each);
    }
    return to;
}

// The tables of the request; their pages reach `ahead` positions further.
static tern_status put_request(tern_instance *in, size_t begin, int32_t ahead, size_t *n,
                               gpu_run *run, tern_error *err) {
    const gpu_request *b = &in->batch;
    size_t rows = 4 * (size_t)b->n_tokens, outputs = (size_t)b->n_outputs;
    size_t ends = rows + outputs + 2 * (size_t)b->n_tiles;
    bool any_ends = b->ends && (b->kind & GPU_PROMPTS);
    size_t fixed = ends + (any_ends ? (size_t)b->n_tokens : 0);
    int32_t row = 0;
    *n = begin + fixed;
    TERN_TRY(reserve(in, begin, fixed, err));
    run->outputs_at = (uint32_t)rows;
    run->tiles_at = (uint32_t)(rows + outputs);
    run->ends_at = any_ends ? (uint32_t)ends : 0;
    if (any_ends) put_ends(in->tables + begin + ends, b);
    for (size_t i = 0; i < outputs; i++) in->tables[begin + rows + i] = (uint32_t)b->outputs[i];
    size_t tiles = begin + rows + outputs;
    for (int32_t i = 0; i < b->n_chunks; i++) {
        const tern_chunk *c = &b->chunks[i];
        size_t at = *n;
        TERN_TRY(gpu_table_pages(in, c->sequence, c->first_pos + c->n_tokens + ahead, n, err));
        put_rows(in->tables + begin, c, row, at - begin);
        uint32_t *to = put_tiles(in->tables + tiles, c, row, b->tile_rows);
        tiles = (size_t)(to - in->tables);
        row += c->n_tokens;
    }
    return TERN_OK;
}

// The run of a later greedy step: the first one's rows and outputs, each a position later. All
// steps share the first one's pages, which lie words_each words further away for each step in
// between.
static void put_step(uint32_t *to, const uint32_t *first, uint32_t step, size_t words_each) {
    gpu_run run;
    memcpy(&run, first, sizeof run);
    run.first_pos += step;
    run.rows_before = step * run.n_tokens;
    memcpy(to, &run, sizeof run);
    uint32_t *rows = to + sizeof run / sizeof *to;
    memcpy(rows, first + sizeof run / sizeof *to, 5 * (size_t)run.n_tokens * sizeof *to);
    for (uint32_t i = 0; i < run.n_tokens; i++) rows[4 * i + 1] += step * (uint32_t)words_each;
}

// Binding may replace the buffers of all steps, so it comes first.
static tern_status bind_steps(tern_instance *in, size_t n_words, int32_t *n_steps,
                              tern_error *err) {
    TERN_TRY(gpu_instance_bind(in, n_words * sizeof *in->tables, err));
    for (int32_t i = 1; i < *n_steps; i++) {
        tern_status status = gpu_instance_add_step(in, i, err);
        if (status == TERN_ERR_MEMORY)
            *n_steps = i;
        else
            TERN_TRY(status);
    }
    return TERN_OK;
}

tern_status gpu_send_runs(tern_instance *in, int32_t ahead, int32_t *n_steps, tern_error *err) {
    const gpu_request *b = &in->batch;
    const tern_device *d = in->plan->device;
    enum { STEP = GPU_RUN_BYTES / sizeof(uint32_t), HEADER = sizeof(gpu_run) / sizeof(uint32_t) };
    gpu_run run = {.n_tokens = (uint32_t)b->n_tokens,
                   .first_pos = (uint32_t)ahead,
                   .n_outputs = (uint32_t)b->n_outputs,
                   .first_output = (uint32_t)in->chunk_first,
                   .top_k = (uint32_t)b->wants.top_k,
                   .n_chunks = (uint32_t)b->n_chunks};
    const int32_t n_wanted = *n_steps;
    for (int32_t i = 0; i < TERN_DIMS_MAX; i++) run.counts[i] = (uint32_t)b->counts[i];
    size_t first = (size_t)(n_wanted - 1) * STEP, n;
    TERN_TRY(reserve(in, 0, first + HEADER, err));
    TERN_TRY(put_request(in, first + HEADER, ahead + n_wanted - 1, &n, &run, err));
    memcpy(in->tables + first, &run, sizeof run);
    TERN_TRY(bind_steps(in, n - first, n_steps, err));
    size_t begin = (size_t)(n_wanted - *n_steps) * STEP; // the last step is the first here
    for (int32_t i = 1; i < *n_steps; i++)
        put_step(in->tables + first - (size_t)i * STEP, in->tables + first, (uint32_t)i, STEP);
    d->api.QueueWriteBuffer(d->queue, in->runs, gpu_run_at(*n_steps - 1), in->tables + begin,
                            (n - begin) * sizeof *in->tables);
    return TERN_OK;
}
