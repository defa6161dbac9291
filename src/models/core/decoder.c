// The decoder-only transformer that most small language models are (in Llama's order):
//
//   x = table[ids]
//   per layer:  a = norm(x);  q, k, v = a Wq, a Wk, a Wv;  rotate q and k;  append k, v to the
//   cache
//               x = x + attention(q, K, V) Wo
//               f = norm(x);  x = x + (act(f Wgate) * (f Wup)) Wdown
//   logits = norm(x) Whead
//
// BitNet b1.58 2B-4T adds a norm before Wo and Wdown ("sub-norms"), which bounds the range of the
// values quantized to int8 next, and makes every linear but the head a BitLinear.
//
// Other families combine the blocks below in other ways: each family's file has its own layer, and
// tern_build_stack adds the parts before and after the layers.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

const tern_tensor_row tern_decoder_tensors[] = {TERN_ROWS_LLAMA, TERN_ROWS_END};

const tern_ignored tern_decoder_ignored[] = {TERN_IGNORED_ROPE, {NULL, NULL, NULL}};

// ---- Blocks ------------------------------------------------------------------------------------

tern_vid tern_block_norm(tern_graph *g, tern_vid x, const char *name, int64_t n, double eps) {
    return tern_g_rms_norm(g, x, tern_g_vector(g, name, n), (float)eps);
}

tern_vid tern_block_layer_norm(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                               bool is_biased) {
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    tern_vid b = is_biased ? tern_g_vector(g, bias, c->n_embd) : -1;
    return tern_g_layer_norm(g, x, tern_g_vector(g, weight, c->n_embd), b, (float)c->rms_eps);
}

tern_vid tern_block_biased(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                           int64_t n_out, int64_t n_in) {
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    tern_vid y = tern_block_linear(g, c, x, weight, n_out, n_in);
    return tern_g_bias(g, y, tern_g_vector(g, bias, n_out));
}

// The norm of "blk.%d.attn_q.weight" is "blk.%d.attn_q_norm_in.weight".
static tern_vid input_norm(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                           int64_t n_in) {
    char norm_name[64];
    int stem = (int)(strlen(name) - strlen(".weight"));
    snprintf(norm_name, sizeof norm_name, "%.*s_norm_in.weight", stem, name);
    return tern_block_norm(g, x, norm_name, n_in, c->input_norm_eps);
}

tern_vid tern_block_linear(tern_graph *g, const tern_config *c, tern_vid x, const char *name,
                           int64_t n_out, int64_t n_in) {
    if (c->input_norms) x = input_norm(g, c, x, name, n_in);
    tern_vid w = tern_g_matrix(g, name, n_out, n_in);
    return c->bitlinear ? tern_g_bitlinear(g, x, w) : tern_g_linear(g, x, w);
}

// Keys do not grow: only the query's factor applies to a score.
static tern_vid rotate(tern_graph *g, const tern_config *c, tern_vid x, int64_t n_heads,
                       const tern_rope_attrs *rope, bool is_key) {
    tern_vid factors = -1, longer = -1;
    if (!rope) return x;
    tern_rope_attrs a = *rope;
    if (is_key) a.growth = 0;
    if (a.scaling == TERN_ROPE_FACTORS)
        factors = tern_g_vector(g, "rope_freqs.weight", a.n_rot / 2);
    if (a.scaling == TERN_ROPE_LONG) {
        factors = tern_g_vector(g, "rope_factors_short.weight", a.n_rot / 2);
        longer = tern_g_vector(g, "rope_factors_long.weight", a.n_rot / 2);
    }
    return tern_g_long_rope(g, x, factors, longer, (int32_t)n_heads, (int32_t)c->head_dim, &a);
}

static tern_vid attend(tern_graph *g, const tern_config *c, tern_vid q, tern_vid k, tern_vid v,
                       const tern_attention_block *block) {
    int64_t kv_dim = c->n_kv_heads * c->head_dim;
    tern_vid keys = tern_g_positional_state(g, "cache_k.%d", kv_dim, block->window);
    tern_vid values = tern_g_positional_state(g, "cache_v.%d", kv_dim, block->window);
    tern_g_kv_store(g, k, v, keys, values, (int32_t)c->n_kv_heads, (int32_t)c->head_dim);
    double scalar = c->query_scalar > 0 ? c->query_scalar : (double)c->head_dim;
    return tern_g_attention(g, q, keys, values,
                            &(tern_attention_attrs){.n_heads = (int32_t)c->n_heads,
                                                    .n_kv_heads = (int32_t)c->n_kv_heads,
                                                    .head_dim = (int32_t)c->head_dim,
                                                    .scale = 1.0f / sqrtf((float)scalar),
                                                    .window = block->window,
                                                    .bidirectional = block->bidirectional,
                                                    .images = block->images});
}

typedef struct projections {
    tern_vid q, k, v, gate;
} projections;

static tern_vid biased_linear(tern_graph *g, const tern_config *c, tern_vid x, const char *weight,
                              const char *bias, int64_t n_out) {
    tern_vid y = tern_block_linear(g, c, x, weight, n_out, c->n_embd);
    return bias ? tern_g_bias(g, y, tern_g_vector(g, bias, n_out)) : y;
}

static projections project(tern_graph *g, const tern_config *c, tern_vid x,
                           const tern_attention_block *block) {
    int64_t dim = c->head_dim, q_dim = c->n_heads * dim, kv_dim = c->n_kv_heads * dim;
    int64_t all = q_dim + 2 * kv_dim, q_rows = block->gate ? 2 * q_dim : q_dim;
    bool biases = block->biases;
    projections p = {.gate = -1};
    if (block->fused) {
        tern_vid qkv = tern_block_linear(g, c, x, "blk.%d.attn_qkv.weight", all, c->n_embd);
        p.q = tern_g_columns(g, qkv, all, 0, q_dim);
        p.k = tern_g_columns(g, qkv, all, q_dim, kv_dim);
        p.v = tern_g_columns(g, qkv, all, q_dim + kv_dim, kv_dim);
        return p;
    }
    p.q = biased_linear(g, c, x, "blk.%d.attn_q.weight", biases ? "blk.%d.attn_q.bias" : NULL,
                        q_rows);
    p.k = biased_linear(g, c, x, "blk.%d.attn_k.weight", biases ? "blk.%d.attn_k.bias" : NULL,
                        kv_dim);
    p.v = biased_linear(g, c, x, "blk.%d.attn_v.weight", biases ? "blk.%d.attn_v.bias" : NULL,
                        kv_dim);
    if (block->gate) {
        p.gate = tern_g_columns(g, p.q, 2 * dim, dim, dim);
        p.q = tern_g_columns(g, p.q, 2 * dim, 0, dim);
    }
    return p;
}

static void norm_heads(tern_graph *g, const tern_config *c, const tern_attention_block *block,
                       projections *p) {
    int64_t q_each = block->row_norms ? c->n_heads * c->head_dim : c->head_dim;
    int64_t k_each = block->row_norms ? c->n_kv_heads * c->head_dim : c->head_dim;
    if (!block->head_norms && !block->row_norms) return;
    p->q = tern_block_norm(g, p->q, "blk.%d.attn_q_norm.weight", q_each, c->rms_eps);
    p->k = tern_block_norm(g, p->k, "blk.%d.attn_k_norm.weight", k_each, c->rms_eps);
}

tern_vid tern_block_attention(tern_graph *g, const tern_config *c, tern_vid x,
                              const tern_attention_block *block) {
    int64_t q_dim = c->n_heads * c->head_dim;
    projections p = project(g, c, x, block);
    if (block->key_scale != 0 && block->key_scale != 1)
        p.k = tern_g_scale(g, p.k, block->key_scale);
    if (!block->norms_after_rope) norm_heads(g, c, block, &p);
    p.q = rotate(g, c, p.q, c->n_heads, block->rope, false);
    p.k = rotate(g, c, p.k, c->n_kv_heads, block->rope, true);
    if (block->norms_after_rope) norm_heads(g, c, block, &p);
    tern_vid o = attend(g, c, p.q, p.k, p.v, block);
    if (block->gate) o = tern_g_mul(g, tern_g_act(g, p.gate, TERN_ACTIVATION_SIGMOID), o);
    if (block->sub_norm)
        o = tern_block_norm(g, o, "blk.%d.attn_sub_norm.weight", q_dim, c->rms_eps);
    o = tern_block_linear(g, c, o, "blk.%d.attn_output.weight", c->n_embd, q_dim);
    if (!block->output_bias) return o;
    return tern_g_bias(g, o, tern_g_vector(g, "blk.%d.attn_output.bias", c->n_embd));
}

static tern_vid gated_down(tern_graph *g, const tern_config *c, tern_vid gate, tern_vid up) {
    tern_vid h = tern_g_mul(g, tern_g_act(g, gate, c->act), up);
    if (c->sub_norms) h = tern_block_norm(g, h, "blk.%d.ffn_sub_norm.weight", c->n_ff, c->rms_eps);
    return tern_block_linear(g, c, h, "blk.%d.ffn_down.weight", c->n_embd, c->n_ff);
}

tern_vid tern_block_feed_forward(tern_graph *g, const tern_config *c, tern_vid x) {
    bool biases = c->ff_biases;
    tern_vid gate = biased_linear(g, c, x, "blk.%d.ffn_gate.weight",
                                  biases ? "blk.%d.ffn_gate.bias" : NULL, c->n_ff);
    tern_vid up = biased_linear(g, c, x, "blk.%d.ffn_up.weight",
                                biases ? "blk.%d.ffn_up.bias" : NULL, c->n_ff);
    tern_vid y = gated_down(g, c, gate, up);
    return biases ? tern_g_bias(g, y, tern_g_vector(g, "blk.%d.ffn_down.bias", c->n_embd)) : y;
}

tern_vid tern_block_fused_feed_forward(tern_graph *g, const tern_config *c, tern_vid x) {
    int64_t both = 2 * c->n_ff;
    tern_vid h = tern_block_linear(g, c, x, "blk.%d.ffn_up.weight", both, c->n_embd);
    tern_vid gate = tern_g_columns(g, h, both, 0, c->n_ff);
    return gated_down(g, c, gate, tern_g_columns(g, h, both, c->n_ff, c->n_ff));
}

tern_vid tern_block_residual(tern_graph *g, const tern_config *c, tern_vid x, tern_vid added) {
    if (c->residual_scale != 0) added = tern_g_scale(g, added, (float)c->residual_scale);
    return tern_g_add(g, x, added);
}

tern_vid tern_block_normed_after(tern_graph *g, const tern_config *c, tern_vid x,
                                 const tern_attention_block *block) {
    tern_vid a = tern_block_attention(g, c, x, block);
    a = tern_block_norm(g, a, "blk.%d.post_attention_norm.weight", c->n_embd, c->rms_eps);
    x = tern_g_add(g, x, a);
    tern_vid f = tern_block_feed_forward(g, c, x);
    f = tern_block_norm(g, f, "blk.%d.post_ffw_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, f);
}

// ---- Before and after the layers ---------------------------------------------------------------

// Divides the rows instead of the logits, since they are shorter.
static void add_logits(tern_graph *g, const tern_config *c, tern_vid x) {
    if (c->logit_divisor != 0) x = tern_g_scale(g, x, (float)(1 / c->logit_divisor));
    const char *head = c->tied_head ? "token_embd.weight" : "output.weight";
    tern_vid w = tern_g_matrix(g, head, c->n_vocab, c->n_embd);
    tern_vid logits = c->score_cap != 0 ? tern_g_capped_linear(g, x, w, (float)c->score_cap)
                                        : tern_g_linear(g, x, w);
    tern_g_output(g, tern_g_top_k(g, logits), "top_k");
    tern_g_output(g, logits, "logits");
}

void tern_block_embedding(tern_graph *g, const tern_config *c, tern_vid pooled) {
    tern_vid y = pooled;
    if (c->n_dense) {
        y = tern_g_linear(g, y, tern_g_matrix(g, "dense_2.weight", c->n_dense, c->n_embd));
        y = tern_g_linear(g, y, tern_g_matrix(g, "dense_3.weight", c->n_embd, c->n_dense));
    }
    tern_g_output(g, c->any_length ? tern_g_scale(g, y, 1) : tern_g_l2_norm(g, y), "embedding");
}

// Pools all rows x of a sequence to one vector.
static tern_vid pool(tern_graph *g, const tern_config *c, tern_vid x) {
    static const tern_pool_kind kinds[] = {[TERN_POOLING_MEAN] = TERN_POOL_MEAN,
                                           [TERN_POOLING_LAST] = TERN_POOL_LAST,
                                           [TERN_POOLING_FIRST] = TERN_POOL_FIRST};
    tern_vid y = tern_g_pool(g, x, tern_g_dim(g, "sequences"), kinds[c->pooling]);
    tern_g_call(g, y, "pooled");
    return y;
}

bool tern_config_scores(const tern_config *c) { return c->pooling == TERN_POOLING_NONE; }

bool tern_config_pools(const tern_config *c) { return c->pooling != TERN_POOLING_NONE; }

static void name_hidden(tern_graph *g, tern_vid x, int64_t n_layers_before) {
    char name[32];
    snprintf(name, sizeof name, "hidden.%d", (int)n_layers_before);
    tern_g_call(g, x, name);
}

tern_status tern_build_stack(tern_graph *g, const tern_config *c, const tern_stack *stack,
                             tern_error *err) {
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid x = tern_g_embed(g, ids, tern_g_table(g, "token_embd.weight", c->n_vocab, c->n_embd));
    float scale = stack->embedding_scale != 0 ? stack->embedding_scale : (float)c->embedding_scale;
    if (scale != 0) x = tern_g_scale(g, x, scale);
    if (stack->begin) x = stack->begin(g, c, ids, x);
    for (int64_t i = 0; i < c->n_layers && !g->failed; i++) {
        name_hidden(g, x, i);
        g->layer = (int32_t)i;
        x = stack->layer(g, c, x);
    }
    g->layer = -1;
    tern_vid rows = tern_g_input(g, "outputs", tern_g_dim(g, "outputs"), 1, TERN_VALUE_I32);
    if (c->pooling == TERN_POOLING_NONE) x = tern_g_take_rows(g, x, rows);
    if (stack->final_norm && stack->layer_norm)
        x = tern_block_layer_norm(g, c, x, stack->final_norm, stack->norm_bias);
    else if (stack->final_norm)
        x = tern_block_norm(g, x, stack->final_norm, c->n_embd, c->final_rms_eps);
    name_hidden(g, x, c->n_layers);
    if (c->pooling == TERN_POOLING_NONE) {
        add_logits(g, c, x);
    } else {
        tern_g_output(g, tern_g_take_rows(g, x, rows), "hidden");
        tern_vid pooled = pool(g, c, x);
        if (stack->end)
            stack->end(g, c, pooled);
        else
            tern_block_embedding(g, c, pooled);
    }
    return tern_graph_check(g, err);
}

// ---- Llama's and BitNet's layers ---------------------------------------------------------------

tern_vid tern_block_llama(tern_graph *g, const tern_config *c, tern_vid x) {
    bool windowed = c->layers[g->layer] == TERN_LAYER_WINDOW;
    const tern_attention_block block = {.sub_norm = c->sub_norms,
                                        .biases = c->qkv_biases,
                                        .output_bias = c->output_biases,
                                        .window = windowed ? c->window : (int32_t)c->n_window,
                                        .rope = c->unrotated[g->layer] ? NULL : &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    x = tern_block_residual(g, c, x, tern_block_attention(g, c, a, &block));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_block_residual(g, c, x, tern_block_feed_forward(g, c, f));
}

tern_status tern_build_decoder(tern_graph *g, const tern_config *c, tern_error *err) {
    const tern_stack stack = {.layer = tern_block_llama, .final_norm = "output_norm.weight"};
    return tern_build_stack(g, c, &stack, err);
}
