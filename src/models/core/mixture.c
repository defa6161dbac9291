// Mixtures of experts: a router sends each row to a few of many feed-forward parts.
//
//   s = softmax(x Wrouter) or sigmoid(x Wrouter);  e = those with the greatest s + bias
//   y = sum over e of w_e (act(x Wgate_e) * (x Wup_e)) Wdown_e,  w_e = s_e, perhaps normed
#include <inttypes.h>
#include <stdio.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

tern_vid tern_block_experts(tern_graph *g, const tern_config *c, tern_vid x) {
    if (c->n_experts == 0 || g->layer < c->n_dense_layers) return tern_block_feed_forward(g, c, x);
    int32_t n = (int32_t)c->n_experts;
    int64_t ff = c->n_ff_expert;
    // transformers adds a millionth to the sum of sigmoids, which may all be close to 0.
    const tern_route_attrs attrs = {.n_chosen = (int32_t)c->n_experts_used,
                                    .sigmoid = c->experts_sigmoid,
                                    .normed = c->experts_normed,
                                    .eps = c->experts_sigmoid ? 1e-6f : 0,
                                    .scale = (float)c->experts_scale};
    tern_vid router = tern_g_matrix(g, "blk.%d.ffn_gate_inp.weight", n, c->n_embd);
    tern_vid bias = c->experts_bias ? tern_g_vector(g, "blk.%d.exp_probs_b.bias", n) : -1;
    tern_vid route = tern_g_route(g, tern_g_linear(g, x, router), bias, &attrs);
    tern_vid w_gate = tern_g_parts(g, "blk.%d.ffn_gate_exps.weight", n, ff, c->n_embd);
    tern_vid w_up = tern_g_parts(g, "blk.%d.ffn_up_exps.weight", n, ff, c->n_embd);
    tern_vid w_down = tern_g_parts(g, "blk.%d.ffn_down_exps.weight", n, c->n_embd, ff);
    tern_vid gate = tern_g_act(g, tern_g_experts(g, x, route, w_gate), c->act);
    tern_vid h = tern_g_mul(g, gate, tern_g_experts(g, x, route, w_up));
    return tern_g_mix(g, tern_g_experts(g, h, route, w_down), route);
}

// ---- Config ------------------------------------------------------------------------------------

// transformers renamed num_experts, and reads both names.
static tern_status read_count(const tern_config_source *s, int64_t *n, tern_error *err) {
    const char *hf = "num_experts";
    if (!tern_config_int(s, NULL, hf, n)) hf = "num_local_experts";
    return tern_config_need(s, "expert_count", hf, 1, 65536, n, err);
}

tern_status tern_config_experts(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF, stated = false;
    char key[160];
    double scale = 0;
    TERN_TRY(read_count(s, &c->n_experts, err));
    int64_t most = c->n_experts < TERN_CHOSEN_MAX ? c->n_experts : TERN_CHOSEN_MAX;
    TERN_TRY(tern_config_need(s, "expert_used_count", "num_experts_per_tok", 1, most,
                              &c->n_experts_used, err));
    TERN_TRY(tern_config_need(s, "expert_feed_forward_length", "moe_intermediate_size", 1, 1 << 22,
                              &c->n_ff_expert, err));
    snprintf(key, sizeof key, "%s.expert_weights_norm", s->prefix);
    c->experts_normed = tern_config_bool(s, "norm_topk_prob", gguf);
    if (gguf && tern_file_meta_bool(s->file, key, &stated)) c->experts_normed = stated;
    tern_config_float(s, "expert_weights_scale", "routed_scaling_factor", &scale);
    c->experts_scale = scale != 0 ? scale : 1;
    return TERN_OK;
}

tern_status tern_config_write_experts(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"expert_count", c->n_experts},
                {"expert_used_count", c->n_experts_used},
                {"expert_feed_forward_length", c->n_ff_expert}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", name, keys[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, keys[i].value));
    }
    snprintf(key, sizeof key, "%s.expert_weights_norm", name);
    TERN_TRY(tern_gguf_put_int(w, key, TERN_META_BOOL, c->experts_normed));
    if (c->experts_scale == 1) return TERN_OK;
    snprintf(key, sizeof key, "%s.expert_weights_scale", name);
    return tern_gguf_put_f32(w, key, (float)c->experts_scale);
}

void tern_config_write_experts_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"num_experts\": %" PRId64 ",\n  \"num_experts_per_tok\": %" PRId64
                       ",\n  \"moe_intermediate_size\": %" PRId64 ",\n  \"norm_topk_prob\": %s,\n",
                       c->n_experts, c->n_experts_used, c->n_ff_expert,
                       c->experts_normed ? "true" : "false");
    if (c->experts_scale != 1)
        tern_strbuf_printf(out, "  \"routed_scaling_factor\": %.17g,\n", c->experts_scale);
}
