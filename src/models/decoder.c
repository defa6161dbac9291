// The decoder-only transformer that most small language models are (in Llama's order):
//
//   x = table[ids]
//   per layer:  a = norm(x);  q, k, v = a Wq, a Wk, a Wv;  rotate q and k;  append k, v to the
//   cache
//               x = x + attention(q, K, V) Wo
//               f = norm(x);  x = x + (act(f Wgate) * (f Wup)) Wdown
//   logits = norm(x) Whead
//
// BitNet b1.58 2B-4T adds a norm before Wo and Wdown ("sub-norms"), which bounds the range of what
// is quantized to int8 next, and makes every linear but the head a BitLinear.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/models.h"

typedef struct decoder {
    tern_graph *g;
    const tern_config *c;
    tern_decoder_style style;
} decoder;

const tern_ignored tern_decoder_ignored[] = {
    {".rotary_emb.inv_freq", "RoPE's frequencies are computed from the config"},
    {".attn_rot_embd.weight", "RoPE's frequencies are computed from the config"},
    {NULL, NULL},
};

// The norm of "blk.%d.attn_q.weight" is "blk.%d.attn_q_norm_in.weight".
static tern_vid input_norm(const decoder *d, tern_vid x, const char *name, int64_t n_in) {
    char norm_name[64];
    int stem = (int)(strlen(name) - strlen(".weight"));
    snprintf(norm_name, sizeof norm_name, "%.*s_norm_in.weight", stem, name);
    tern_vid w = tern_g_vector(d->g, norm_name, n_in);
    return tern_g_rms_norm(d->g, x, w, (float)d->c->input_norm_eps);
}

static tern_vid linear(const decoder *d, tern_vid x, const char *name, int64_t n_out,
                       int64_t n_in) {
    if (d->c->input_norms) x = input_norm(d, x, name, n_in);
    tern_vid w = tern_g_matrix(d->g, name, n_out, n_in);
    return d->style.bitlinear ? tern_g_bitlinear(d->g, x, w) : tern_g_linear(d->g, x, w);
}

static tern_vid norm(const decoder *d, tern_vid x, const char *name, int64_t n, double eps) {
    return tern_g_rms_norm(d->g, x, tern_g_vector(d->g, name, n), (float)eps);
}

static tern_vid attention_block(const decoder *d, tern_vid x) {
    const tern_config *c = d->c;
    tern_graph *g = d->g;
    int64_t q_dim = c->n_heads * c->head_dim, kv_dim = c->n_kv_heads * c->head_dim;
    tern_vid a = norm(d, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    tern_vid q = linear(d, a, "blk.%d.attn_q.weight", q_dim, c->n_embd);
    tern_vid k = linear(d, a, "blk.%d.attn_k.weight", kv_dim, c->n_embd);
    tern_vid v = linear(d, a, "blk.%d.attn_v.weight", kv_dim, c->n_embd);
    tern_vid factors = -1;
    if (c->rope.scaling == TERN_ROPE_FACTORS)
        factors = tern_g_vector(g, "rope_freqs.weight", c->rope.n_rot / 2);
    q = tern_g_rope(g, q, factors, (int32_t)c->n_heads, (int32_t)c->head_dim, &c->rope);
    k = tern_g_rope(g, k, factors, (int32_t)c->n_kv_heads, (int32_t)c->head_dim, &c->rope);
    tern_vid keys = tern_g_positional_state(g, "cache_k.%d", kv_dim, (int32_t)c->n_window);
    tern_vid values = tern_g_positional_state(g, "cache_v.%d", kv_dim, (int32_t)c->n_window);
    tern_g_kv_store(g, k, v, keys, values, (int32_t)c->n_kv_heads, (int32_t)c->head_dim);
    tern_vid o = tern_g_attention(
        g, q, keys, values,
        &(tern_attention_attrs){.n_heads = (int32_t)c->n_heads,
                                .n_kv_heads = (int32_t)c->n_kv_heads,
                                .head_dim = (int32_t)c->head_dim,
                                .scale = 1.0f / sqrtf((float)c->head_dim),
                                .window = (int32_t)c->n_window});
    if (d->style.sub_norms) o = norm(d, o, "blk.%d.attn_sub_norm.weight", q_dim, c->rms_eps);
    return tern_g_add(g, x, linear(d, o, "blk.%d.attn_output.weight", c->n_embd, q_dim));
}

static tern_vid feed_forward_block(const decoder *d, tern_vid x) {
    const tern_config *c = d->c;
    tern_graph *g = d->g;
    tern_vid f = norm(d, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    tern_vid gate = linear(d, f, "blk.%d.ffn_gate.weight", c->n_ff, c->n_embd);
    tern_vid up = linear(d, f, "blk.%d.ffn_up.weight", c->n_ff, c->n_embd);
    tern_vid h = tern_g_mul(g, tern_g_act(g, gate, c->act), up);
    if (d->style.sub_norms) h = norm(d, h, "blk.%d.ffn_sub_norm.weight", c->n_ff, c->rms_eps);
    return tern_g_add(g, x, linear(d, h, "blk.%d.ffn_down.weight", c->n_embd, c->n_ff));
}

tern_status tern_build_decoder(tern_graph *g, const tern_config *c, tern_decoder_style style,
                               tern_error *err) {
    decoder d = {g, c, style};
    tern_vid ids = tern_g_input(g, "ids", tern_g_dim(g, "tokens"), 1, TERN_VALUE_I32);
    tern_vid table = tern_g_table(g, "token_embd.weight", c->n_vocab, c->n_embd);
    tern_vid x = tern_g_embed(g, ids, table);
    for (int64_t i = 0; i < c->n_layers && !g->failed; i++) {
        g->layer = (int32_t)i;
        x = attention_block(&d, x);
        x = feed_forward_block(&d, x);
    }
    g->layer = -1;
    tern_vid rows = tern_g_input(g, "outputs", tern_g_dim(g, "outputs"), 1, TERN_VALUE_I32);
    x = norm(&d, tern_g_take_rows(g, x, rows), "output_norm.weight", c->n_embd, c->final_rms_eps);
    const char *head = c->tied_head ? "token_embd.weight" : "output.weight";
    tern_vid logits = tern_g_linear(g, x, tern_g_matrix(g, head, c->n_vocab, c->n_embd));
    tern_g_output(g, tern_g_top_k(g, logits), "top_k");
    tern_g_output(g, logits, "logits");
    return tern_graph_check(g, err);
}
