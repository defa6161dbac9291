// Qwen3.5, the text part: three of four layers mix positions by a gated delta net
// (arXiv:2412.06464), whose state has a fixed size, however long the text is; the fourth by
// attention with a gate.
//
//   per layer:  x = x + mixer(norm(x));  x = x + feed_forward(norm(x))
//   delta net:  q, k, v = silu(conv(norm(x) Wqkv));  z, a, b = norm(x) Wz, norm(x) Wa, norm(x) Wb
//               mixer = (norm_by_head(delta(q, k, v, a, b)) * silu(z)) Wout
//   attention:  q, gate = norm(x) Wq by head;  q and k normed by head;  RoPE turns a quarter of a
//               head;  mixer = (attention(q, k, v) * sigmoid(gate)) Wo
//
// RoPE's three axes (M-RoPE) are the same for text. The vision tower is in qwen_vision.c.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid delta_net(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_delta_attrs *d = &c->delta;
    int64_t v_cols = (int64_t)d->n_v_heads * d->v_dim;
    int64_t cols = 2 * (int64_t)d->n_k_heads * d->head_dim + v_cols;
    tern_vid qkv = tern_block_linear(g, c, x, "blk.%d.attn_qkv.weight", cols, c->n_embd);
    tern_vid z = tern_block_linear(g, c, x, "blk.%d.attn_gate.weight", v_cols, c->n_embd);
    // Decay and strength have too few weights to be worth rounding: they are never BitLinears.
    tern_vid wa = tern_g_matrix(g, "blk.%d.ssm_alpha.weight", d->n_v_heads, c->n_embd);
    tern_vid wb = tern_g_matrix(g, "blk.%d.ssm_beta.weight", d->n_v_heads, c->n_embd);
    tern_vid a = tern_g_linear(g, x, wa), b = tern_g_linear(g, x, wb);
    tern_vid taps = tern_g_array(g, "blk.%d.ssm_conv1d.weight", cols, c->conv_taps);
    tern_vid tail = tern_g_fixed_state(g, "conv_tail.%d", c->conv_taps - 1, cols);
    qkv = tern_g_depthwise_conv(g, qkv, taps, -1, tail, TERN_ACTIVATION_SILU);
    tern_vid decay = tern_g_vector(g, "blk.%d.ssm_a", d->n_v_heads);
    tern_vid bias = tern_g_vector(g, "blk.%d.ssm_dt.bias", d->n_v_heads);
    tern_vid state =
        tern_g_fixed_state(g, "delta.%d", (int64_t)d->n_v_heads * d->head_dim, d->v_dim);
    tern_vid y = tern_g_delta_net(g, qkv, a, b, decay, bias, state, d);
    y = tern_block_norm(g, y, "blk.%d.ssm_norm.weight", d->v_dim, c->rms_eps);
    y = tern_g_mul(g, tern_g_act(g, z, TERN_ACTIVATION_SILU), y);
    return tern_block_linear(g, c, y, "blk.%d.ssm_out.weight", c->n_embd, v_cols);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.head_norms = true, .gate = true, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    tern_vid mixed = c->layers[g->layer] == TERN_LAYER_DELTA
                         ? delta_net(g, c, a)
                         : tern_block_attention(g, c, a, &block);
    x = tern_g_add(g, x, mixed);
    tern_vid f = tern_block_norm(g, x, "blk.%d.post_attention_norm.weight", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, tern_block_feed_forward(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(
        g, c,
        &(tern_stack){.layer = layer,
                      .begin = tern_config_has_vision(c) ? tern_block_given : NULL,
                      .final_norm = "output_norm.weight"},
        err);
}

// ---- Config ------------------------------------------------------------------------------------

#define INTERVAL 4 // by default, each 4th layer is attention

static tern_status read_layers(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool found;
    int64_t interval = INTERVAL;
    unsigned allowed = 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_DELTA;
    TERN_TRY(tern_config_layer_types(s, c, allowed, &found, err));
    if (found || tern_config_layer_flags(s, c, "attention.recurrent_layers", TERN_LAYER_DELTA))
        return TERN_OK;
    tern_config_int(s, "full_attention_interval", "full_attention_interval", &interval);
    if (interval < 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: full_attention_interval is %" PRId64 ", expected 1 or more",
                         interval);
    for (int64_t i = 0; i < c->n_layers; i++)
        c->layers[i] = (i + 1) % interval == 0 ? TERN_LAYER_FULL : TERN_LAYER_DELTA;
    return TERN_OK;
}

// In GGUF the sizes have the names of a state space model's: inner_size is all value heads
// together.
static tern_status read_delta(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t taps, k_heads, v_heads, k_dim, v_dim;
    TERN_TRY(tern_config_need(s, "ssm.conv_kernel", "linear_conv_kernel_dim", 2, 8, &taps, err));
    TERN_TRY(
        tern_config_need(s, "ssm.group_count", "linear_num_key_heads", 1, 4096, &k_heads, err));
    TERN_TRY(tern_config_need(s, "ssm.time_step_rank", "linear_num_value_heads", 1, 4096, &v_heads,
                              err));
    TERN_TRY(tern_config_need(s, "ssm.state_size", "linear_key_head_dim", 1, 4096, &k_dim, err));
    TERN_TRY(
        tern_config_need(s, "ssm.inner_size", "linear_value_head_dim", 1, 1 << 24, &v_dim, err));
    if (v_heads % k_heads != 0 || (gguf && v_dim % v_heads != 0))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " key heads, %" PRId64 " value heads and %" PRId64
                         " dimensions of them do not fit together",
                         k_heads, v_heads, v_dim);
    if (gguf) v_dim /= v_heads;
    if (v_dim > 4096)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: value heads of %" PRId64 " dimensions, expected 1 to 4096",
                         v_dim);
    c->conv_taps = (int32_t)taps;
    c->delta = (tern_delta_attrs){.n_k_heads = (int32_t)k_heads,
                                  .n_v_heads = (int32_t)v_heads,
                                  .head_dim = (int32_t)k_dim,
                                  .v_dim = (int32_t)v_dim,
                                  .tiled = gguf,
                                  .eps = 1e-6f};
    return TERN_OK;
}

// Blocks that predict further tokens count as layers in GGUF.
static tern_status drop_predictors(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t n = 0;
    if (!tern_config_int(s, "nextn_predict_layers", NULL, &n)) return TERN_OK;
    if (n < 0 || n >= c->n_layers)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: nextn_predict_layers is %" PRId64 " of %" PRId64 " blocks", n,
                         c->n_layers);
    c->n_layers -= n;
    c->n_ignored_blocks = n;
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    if (!tern_config_bool(s, "attn_output_gate", true))
        return tern_fail(
            err, TERN_ERR_UNSUPPORTED,
            "config.json: attention without a gate (attn_output_gate) is not supported");
    TERN_TRY(drop_predictors(s, c, err));
    TERN_TRY(read_layers(s, c, err));
    TERN_TRY(tern_config_qwen_vision(s, c, err));
    return read_delta(s, c, err);
}

static bool is_every(const tern_config *c, int64_t interval) {
    for (int64_t i = 0; i < c->n_layers; i++)
        if ((c->layers[i] == TERN_LAYER_FULL) != ((i + 1) % interval == 0)) return false;
    return true;
}

// If each n-th layer is attention, one number says it, else a flag per layer.
static tern_status put_layers(tern_gguf_writer *w, const char *name, const tern_config *c) {
    int64_t interval = 1;
    char key[160];
    uint8_t flags[TERN_LAYERS_MAX];
    while (interval <= c->n_layers && !is_every(c, interval)) interval++;
    if (interval <= c->n_layers) {
        snprintf(key, sizeof key, "%s.full_attention_interval", name);
        return tern_gguf_put_int(w, key, TERN_META_U32, interval);
    }
    for (int64_t i = 0; i < c->n_layers; i++) flags[i] = c->layers[i] == TERN_LAYER_DELTA;
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", name);
    return tern_gguf_put_array(w, key, TERN_META_BOOL, flags, (size_t)c->n_layers);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    const tern_delta_attrs *d = &c->delta;
    char key[160];
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {
        {"ssm.conv_kernel", c->conv_taps},
        {"ssm.state_size", d->head_dim},
        {"ssm.group_count", d->n_k_heads},
        {"ssm.time_step_rank", d->n_v_heads},
        {"ssm.inner_size", (int64_t)d->n_v_heads * d->v_dim},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", name, keys[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, keys[i].value));
    }
    TERN_TRY(put_layers(w, name, c));
    return tern_config_write_sections(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    const tern_delta_attrs *d = &c->delta;
    int32_t shares[4];
    tern_config_rope_sections(c, shares);
    tern_strbuf_printf(out,
                       "  \"linear_conv_kernel_dim\": %d,\n  \"linear_num_key_heads\": %d,\n"
                       "  \"linear_num_value_heads\": %d,\n  \"linear_key_head_dim\": %d,\n"
                       "  \"linear_value_head_dim\": %d,\n",
                       (int)c->conv_taps, (int)d->n_k_heads, (int)d->n_v_heads, (int)d->head_dim,
                       (int)d->v_dim);
    if (c->rope.scaling != TERN_ROPE_NONE) return; // rope_scaling has it
    tern_strbuf_printf(out,
                       "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.9g, "
                       "\"partial_rotary_factor\": %.17g, \"mrope_interleaved\": true, "
                       "\"mrope_section\": [%d, %d, %d]},\n",
                       (double)c->rope.base, tern_config_rotary_factor(&c->rope, c->head_dim),
                       (int)shares[0], (int)shares[1], (int)shares[2]);
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"qwen35", NULL};
static const char *const hf_types[] = {"qwen3_5_text", "qwen3_5", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};

static const tern_config sample = {
    TERN_SAMPLE,
    .rope = TERN_SAMPLE_ROPE(8),
    .act = TERN_ACTIVATION_SILU,
    .layers = {TERN_LAYER_DELTA, TERN_LAYER_FULL},
    .conv_taps = 4,
    .delta = {.n_k_heads = 2, .n_v_heads = 4, .head_dim = 24, .v_dim = 20, .eps = 1e-6f}};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_PLUS_ONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_PLUS_ONE),
    TERN_LAYER_NORM("post_attention_norm", "post_attention_layernorm", TERN_CHANGE_PLUS_ONE),
    TERN_ROWS_ATTENTION,
    TERN_LAYER_NORM("attn_q_norm", "self_attn.q_norm", TERN_CHANGE_PLUS_ONE),
    TERN_LAYER_NORM("attn_k_norm", "self_attn.k_norm", TERN_CHANGE_PLUS_ONE),
    TERN_LAYER_ROW("attn_qkv.weight", "linear_attn.in_proj_qkv.weight", .role = TERN_ROLE_MATRIX,
                   .rows = TERN_ORDER_QKV),
    TERN_LAYER_ROW("attn_gate.weight", "linear_attn.in_proj_z.weight", .role = TERN_ROLE_MATRIX,
                   .rows = TERN_ORDER_V_HEADS),
    TERN_LAYER_ROW("ssm_alpha.weight", "linear_attn.in_proj_a.weight", .role = TERN_ROLE_FLOATS,
                   .rows = TERN_ORDER_V_EACH),
    TERN_LAYER_ROW("ssm_beta.weight", "linear_attn.in_proj_b.weight", .role = TERN_ROLE_FLOATS,
                   .rows = TERN_ORDER_V_EACH),
    TERN_LAYER_ROW("ssm_conv1d.weight", "linear_attn.conv1d.weight", .change = TERN_CHANGE_SQUEEZE,
                   .rows = TERN_ORDER_QKV),
    TERN_LAYER_ROW("ssm_a", "linear_attn.A_log", .change = TERN_CHANGE_MINUS_EXP,
                   .columns = TERN_ORDER_V_EACH),
    TERN_LAYER_ROW("ssm_dt.bias", "linear_attn.dt_bias", .columns = TERN_ORDER_V_EACH),
    TERN_LAYER_NORM("ssm_norm", "linear_attn.norm", TERN_CHANGE_NONE),
    TERN_LAYER_ROW("ssm_out.weight", "linear_attn.out_proj.weight", .role = TERN_ROLE_MATRIX,
                   .columns = TERN_ORDER_V_HEADS),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_QWEN_VISION,
    TERN_ROWS_END,
};

static const tern_ignored ignored[] = {
    TERN_IGNORED_ROPE,
    TERN_IGNORED_IMAGES,
    {"mtp.", NULL, "of a block that predicts further tokens, which is not run"},
    {NULL, NULL, NULL},
};

const tern_arch tern_arch_qwen35 = {
    .name = "qwen35",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Qwen3_5ForCausalLM",
    .tensors = tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS(TERN_DECODER(build), TERN_VISION(tern_build_qwen_vision)),
    .media = &(const tern_arch_media){.tower = &tern_tower_qwen},
    .hf_sees = &(const tern_seeing_names){"qwen3_5", "Qwen3_5ForConditionalGeneration",
                                          "qwen3_5_text", "qwen3_5", "Qwen2VLImageProcessorFast"},
    .turns_part = 0.25,
    .mixed_layers = true,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
