// Rotary embedding, the store of keys and values, and attention over them.
#include <string.h>
#include "kernels/cpu/ops/ops.h"

static void rotate_heads(cpu_run *run, const cpu_step *step, const tern_node *n, float *row,
                         int32_t n_heads, size_t t) {
    size_t half = (size_t)n->rope.angles.n_rot / 2;
    const float *cos = run->instance->rope_tables + (size_t)step->rope * run->instance->rope_stride;
    const float *sin = cos + (size_t)run->plan->n_batch * half;
    for (int32_t h = 0; h < n_heads; h++)
        kernels(run)->f->rope(row + h * n->rope.head_dim, cos + t * half, sin + t * half,
                              (size_t)n->rope.angles.n_rot, n->rope.angles.halves);
}

static void step_rope(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]);
    const float *x = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t t, last; claim_rows(run, step, run->batch->n_tokens, ROW_BLOCK, &t, &last);)
        for (; t < last; t++) {
            memcpy(y + t * d, x + t * d, d * sizeof *y);
            rotate_heads(run, step, n, y + t * d, n->rope.n_heads, t);
        }
}
const cpu_op cpu_op_ROPE = {.step = step_rope};

#define PAGE_ROWS TERN_PAGE_POSITIONS // a prompt's rows that a thread stores at once

// The rows from t on that go to the page of row t.
static size_t page_end(const cpu_run *run, size_t t, size_t last) {
    const cpu_row *row = &run->instance->rows[t];
    size_t end = t + 1;
    while (end < last && row[end - t].chunk == row->chunk &&
           row[end - t].position % TERN_PAGE_POSITIONS != 0)
        end++;
    return end;
}

// Head by head: positions of a page lie side by side, and a head's part of a page fits the
// first-level cache.
static void store_rows(cpu_run *run, const tern_node *n, const float *k, const float *v, size_t t,
                       size_t last) {
    const tern_vid *states = tern_node_stores(n);
    const tern_vid k_state = states[0], v_state = states[1];
    const tern_page_pool *s = run->instance->page_pool;
    const size_t dim = (size_t)n->rope.head_dim, d = (size_t)n->rope.n_kv_heads * dim;
    const size_t head_bytes =
        tern_kv_head_bytes(cpu_page_pool_kv_type(s), dim, TERN_PAGE_POSITIONS);
    for (size_t end; t < last; t = end) {
        const cpu_row *row = &run->instance->rows[t];
        const tern_chunk *c = &run->batch->chunks[row->chunk];
        const size_t lane = (size_t)row->position % TERN_PAGE_POSITIONS;
        const tern_page *pages = cpu_state_pages(run, c, k_state);
        uint8_t *page = pages[row->position / TERN_PAGE_POSITIONS].memory;
        uint8_t *keys = page + cpu_page_pool_offset(s, k_state);
        uint8_t *values = page + cpu_page_pool_offset(s, v_state);
        end = page_end(run, t, last);
        for (size_t h = 0; h < (size_t)n->rope.n_kv_heads; h++)
            for (size_t i = t; i < end; i++)
                kernels(run)->f->kv_store(&(tern_kv_store_args){.k = keys + h * head_bytes,
                                                                .v = values + h * head_bytes,
                                                                .key = k + i * d + h * dim,
                                                                .value = v + i * d + h * dim,
                                                                .kv_type = cpu_page_pool_kv_type(s),
                                                                .lane = lane + i - t,
                                                                .head_dim = dim});
    }
}

static void step_kv_store(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    const float *k = cpu_value(run, n->in[0]), *v = cpu_value(run, n->in[1]);
    for (size_t t, last; claim_rows(run, step, run->batch->n_tokens, PAGE_ROWS, &t, &last);)
        store_rows(run, n, k, v, t, last);
}
const cpu_op cpu_op_KV_STORE = {.step = step_kv_store};

static void step_rope_store(cpu_run *run, const cpu_step *step, const tern_team *team) {
    (void)team;
    const tern_node *n = step->node;
    size_t q_dim = (size_t)cols(run, n->in[0]), kv_dim = (size_t)cols(run, n->in[1]);
    const float *q = cpu_value(run, n->in[0]), *v = cpu_value(run, n->in[2]);
    float *k = cpu_value(run, n->in[1]), *y = cpu_value(run, n->out[0]);
    for (size_t first, last;
         claim_rows(run, step, run->batch->n_tokens, PAGE_ROWS, &first, &last);) {
        for (size_t t = first; t < last; t++) {
            memcpy(y + t * q_dim, q + t * q_dim, q_dim * sizeof *y);
            rotate_heads(run, step, n, y + t * q_dim, n->rope.n_heads, t);
            rotate_heads(run, step, n, k + t * kv_dim, n->rope.n_kv_heads,
                         t); // k dies here: in place
        }
        store_rows(run, n, k, v, first, last);
    }
}
const cpu_op cpu_op_ROPE_STORE = {.step = step_rope_store};

// A unit of work is a block of a sequence's tokens and some of the query heads that share a
// key/value head; for a single token the heads are split further, so that there is something for
// every thread. The longest units, those of the last tokens, are handed out first.
static void step_attention(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_attention_attrs *a = &n->attention;
    const tern_instance *in = run->instance;
    size_t group = (size_t)(a->n_heads / a->n_kv_heads), dim = (size_t)a->head_dim;
    size_t splits = run->batch->n_tokens == 1 && group % 2 == 0 && team->n_threads > 1 ? 2 : 1;
    size_t heads = group / splits, n_units_h = (size_t)a->n_kv_heads * splits;
    tern_dtype kv_type = cpu_page_pool_kv_type(in->page_pool);
    size_t head_bytes = tern_kv_head_bytes(kv_type, dim, TERN_PAGE_POSITIONS);
    const float *q = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    for (size_t unit, last;
         tern_team_claim(counter(run, step, 0), run->n_blocks * n_units_h, 1, &unit, &last);) {
        const cpu_block *block = &in->blocks[run->n_blocks - 1 - unit / n_units_h];
        const tern_chunk *c = &run->batch->chunks[block->chunk];
        size_t kv_head = unit % n_units_h / splits;
        size_t at = (size_t)block->row * (size_t)a->n_heads * dim + unit % n_units_h * heads * dim;
        tern_attention_args args = {
            .out = y + at,
            .q = q + at,
            .row_stride = (size_t)a->n_heads * dim,
            .n_tokens = (size_t)block->n_rows,
            .n_heads = heads,
            .head_dim = dim,
            .first_pos = (size_t)in->rows[block->row].position,
            .pages = cpu_state_pages(run, c, n->in[1]),
            .k_offset = cpu_page_pool_offset(in->page_pool, n->in[1]) + kv_head * head_bytes,
            .v_offset = cpu_page_pool_offset(in->page_pool, n->in[2]) + kv_head * head_bytes,
            .kv_type = kv_type,
            .causal = !a->bidirectional,
            .window = a->window,
            .ahead = a->ahead,
            .ends = a->images && run->batch->ends ? run->batch->ends + block->row : NULL,
            .n_positions = (size_t)(c->first_pos + c->n_tokens),
            .soft_cap = a->soft_cap,
            .scale = a->scale,
            .scratch = scratch(run, team),
        };
        kernels(run)->f->attention(&args);
    }
}

static size_t attention_scratch(const tern_plan *p, const tern_node *n) {
    (void)p;
    const tern_attention_attrs *a = &n->attention;
    tern_attention_args args = {.n_tokens = CPU_BLOCK_ROWS,
                                .n_heads = (size_t)(a->n_heads / a->n_kv_heads),
                                .head_dim = (size_t)a->head_dim};
    return tern_attention_scratch_floats(&args) * sizeof(float);
}
const cpu_op cpu_op_ATTENTION = {.step = step_attention, .scratch = attention_scratch};

// ---- What a sequence is about ------------------------------------------------------------------
//
// The states are fixed ones, in which keys and values lie as in pages, 16 rows after 16 rows, so
// that the kernels are the same.

typedef struct source {
    uint8_t *page;
    size_t k, v, block, head; // where keys and values begin; bytes of 16 rows, and of a head's
    float *n;                 // how many rows there are
} source;

static source source_of(const cpu_run *run, const tern_node *n, const tern_chunk *c, int first) {
    const tern_page_pool *s = run->instance->page_pool;
    size_t head =
        tern_kv_head_bytes(TERN_DTYPE_F32, (size_t)n->attention.head_dim, TERN_PAGE_POSITIONS);
    source out = {.page = cpu_state_pages(run, c, n->in[first])->memory,
                  .k = cpu_page_pool_offset(s, n->in[first]),
                  .v = cpu_page_pool_offset(s, n->in[first + 1]),
                  .block = (size_t)n->attention.n_kv_heads * head,
                  .head = head};
    out.n = (float *)(void *)(out.page + cpu_page_pool_offset(s, n->in[first + 2]));
    return out;
}

static void step_source_store(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    size_t d = (size_t)cols(run, n->in[0]), dim = (size_t)n->attention.head_dim;
    const float *k = cpu_value(run, n->in[0]), *v = cpu_value(run, n->in[1]);
    int32_t n_rows = cpu_rows(run, n->in[0]);
    source to = source_of(run, n, &run->batch->chunks[0], 2);
    if (team->thread == 0) *to.n = (float)n_rows;
    for (size_t t, last; claim_rows(run, step, n_rows, ROW_BLOCK, &t, &last);)
        for (; t < last; t++)
            for (size_t h = 0; h < (size_t)n->attention.n_kv_heads; h++) {
                size_t at = t / TERN_PAGE_POSITIONS * to.block + h * to.head;
                kernels(run)->f->kv_store(&(tern_kv_store_args){.k = to.page + to.k + at,
                                                                .v = to.page + to.v + at,
                                                                .key = k + t * d + h * dim,
                                                                .value = v + t * d + h * dim,
                                                                .kv_type = TERN_DTYPE_F32,
                                                                .lane = t % TERN_PAGE_POSITIONS,
                                                                .head_dim = dim});
            }
}
const cpu_op cpu_op_SOURCE_STORE = {.step = step_source_store};

// The scratch begins with a table of pages.
static size_t source_pages(const tern_plan *p, const tern_node *n) {
    size_t pages = (size_t)p->g->values[n->in[1]].rows / TERN_PAGE_POSITIONS;
    return (pages * sizeof(tern_page) + 63) / 64 * 64;
}

static void step_cross_attention(cpu_run *run, const cpu_step *step, const tern_team *team) {
    const tern_node *n = step->node;
    const tern_attention_attrs *a = &n->attention;
    const tern_instance *in = run->instance;
    size_t dim = (size_t)a->head_dim, n_kv = (size_t)a->n_kv_heads;
    size_t heads = (size_t)a->n_heads / n_kv, d = (size_t)a->n_heads * dim;
    const float *q = cpu_value(run, n->in[0]);
    float *y = cpu_value(run, n->out[0]);
    tern_page *pages = scratch(run, team);
    for (size_t unit, last;
         tern_team_claim(counter(run, step, 0), run->n_blocks * n_kv, 1, &unit, &last);) {
        const cpu_block *block = &in->blocks[unit / n_kv];
        source from = source_of(run, n, &run->batch->chunks[block->chunk], 1);
        size_t n_rows = (size_t)*from.n, kv_head = unit % n_kv;
        size_t at = (size_t)block->row * d + kv_head * heads * dim;
        for (size_t i = 0; i * TERN_PAGE_POSITIONS < n_rows; i++)
            pages[i].memory = from.page + i * from.block;
        for (int32_t t = 0; n_rows == 0 && t < block->n_rows; t++)
            memset(y + at + (size_t)t * d, 0, heads * dim * sizeof *y);
        if (n_rows == 0) continue;
        tern_attention_args args = {
            .out = y + at,
            .q = q + at,
            .row_stride = d,
            .n_heads = heads,
            .head_dim = dim,
            .pages = pages,
            .k_offset = from.k + kv_head * from.head,
            .v_offset = from.v + kv_head * from.head,
            .kv_type = TERN_DTYPE_F32,
            .n_positions = n_rows,
            .scale = a->scale,
            .scratch =
                (float *)(void *)((uint8_t *)scratch(run, team) + source_pages(run->plan, n)),
        };
        // Rows stand at positions of another timeline: one by one, all at the first of this one.
        args.n_tokens = 1;
        for (int32_t t = 0; t < block->n_rows; t++, args.q += d, args.out += d)
            kernels(run)->f->attention(&args);
    }
}

static size_t source_scratch(const tern_plan *p, const tern_node *n) {
    return source_pages(p, n) + attention_scratch(p, n);
}
const cpu_op cpu_op_CROSS_ATTENTION = {.step = step_cross_attention, .scratch = source_scratch};
