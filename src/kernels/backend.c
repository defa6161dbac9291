// What all backends have in common.
#include <stdio.h>
#include <string.h>
#include "kernels/backend.h"

tern_status tern_batch_check(const tern_batch *b, int32_t n_batch, int32_t n_context,
                             int64_t n_vocab, tern_error *err) {
    if (b->n_tokens < 1 || b->n_tokens > n_batch || b->n_outputs < 0 ||
        b->n_outputs > b->n_tokens || b->first_pos < 0 || b->first_pos > n_context - b->n_tokens)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a batch of %d tokens at %d does not fit",
                         (int)b->n_tokens, (int)b->first_pos);
    if (b->top_k > n_vocab)
        return tern_fail(err, TERN_ERR_ARGUMENT, "top %d of %lld", (int)b->top_k,
                         (long long)n_vocab);
    return TERN_OK;
}

#define F32_CACHE_BYTES_MAX ((uint64_t)64 << 20)
tern_status tern_kv_choose(const tern_graph *g, int32_t n_context, tern_kv_type wanted,
                           tern_kv_type *out, tern_error *err) {
    uint64_t f32_bytes = 0;
    for (size_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == TERN_VALUE_STATE)
            f32_bytes += (uint64_t)g->values[v].cols * (uint64_t)n_context * sizeof(float);
    *out = wanted;
    if (wanted == TERN_KV_AUTO)
        *out = f32_bytes <= F32_CACHE_BYTES_MAX ? TERN_KV_F32 : TERN_KV_F16;
    for (size_t i = 0; *out == TERN_KV_Q8_0 && i < g->n_nodes; i++)
        if (g->nodes[i].op == TERN_OP_ATTENTION && g->nodes[i].head_dim % 32 != 0)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "a Q8_0 cache needs heads of a multiple of 32 dimensions, not %d",
                             (int)g->nodes[i].head_dim);
    return TERN_OK;
}

void tern_profile_add(tern_profile *p, const char *name, double seconds, uint64_t bytes) {
    size_t i = 0;
    while (i < p->n && strcmp(p->rows[i].name, name) != 0) i++;
    if (i == TERN_PROFILE_ROWS) i--;
    tern_profile_row *r = &p->rows[i];
    if (i == p->n) {
        *r = (tern_profile_row){0};
        snprintf(r->name, sizeof r->name, "%s", name);
        p->n++;
    }
    r->n_calls++;
    r->seconds += seconds;
    r->bytes += bytes;
}

bool tern_head_type(tern_head_mode mode, tern_dtype *type) {
    switch (mode) {
    case TERN_HEAD_Q8_0: *type = TERN_DTYPE_Q8_0; return true;
    case TERN_HEAD_Q6_K: *type = TERN_DTYPE_Q6_K; return true;
    case TERN_HEAD_Q4_0: *type = TERN_DTYPE_Q4_0; return true;
    default: return false;
    }
}
