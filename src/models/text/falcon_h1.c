// Falcon-H1 (arXiv:2507.22448): attention and Mamba-2 side by side in every layer.
//
//   a = norm(x);  x = x + m_out mamba(a) + a_out attention(a_in a)
//   x = x + feed_forward(norm(x))
//
// A folder's config.json has factors of the values between the parts; GGUF folds them into weights.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid times(tern_graph *g, tern_vid x, double factor) {
    return factor == 1 ? x : tern_g_scale(g, x, (float)factor);
}

static tern_vid feed_forward(tern_graph *g, const tern_config *c, tern_vid x) {
    tern_vid gate = tern_block_linear(g, c, x, "blk.%d.ffn_gate.weight", c->n_ff, c->n_embd);
    tern_vid up = tern_block_linear(g, c, x, "blk.%d.ffn_up.weight", c->n_ff, c->n_embd);
    gate = times(g, gate, c->multipliers.gate);
    tern_vid h = tern_g_mul(g, tern_g_act(g, gate, c->act), up);
    h = tern_block_linear(g, c, h, "blk.%d.ffn_down.weight", c->n_embd, c->n_ff);
    return times(g, h, c->multipliers.down);
}

static tern_vid layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_multipliers *m = &c->multipliers;
    const tern_attention_block block = {.key_scale = (float)m->key, .rope = &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    tern_vid mamba = times(g, tern_block_mamba(g, c, a), m->ssm_out);
    tern_vid attention = tern_block_attention(g, c, times(g, a, m->attention_in), &block);
    attention = times(g, attention, m->attention_out);
    x = tern_g_add(g, x, tern_g_add(g, mamba, attention));
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm", c->n_embd, c->rms_eps);
    return tern_g_add(g, x, feed_forward(g, c, f));
}

static tern_status build(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(g, c, &(tern_stack){.layer = layer, .final_norm = "output_norm.weight"},
                            err);
}

// ---- Config ------------------------------------------------------------------------------------

static tern_status read_list(const tern_config_source *s, const char *name, double *out, int n,
                             tern_error *err) {
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = tern_config_json(s, name), *e = tern_json_first(doc, list);
    if (!list) return TERN_OK;
    for (int i = 0; i < n; i++, e = tern_json_next(doc, list, e)) {
        if (!tern_json_is(e, TERN_JSON_NUMBER))
            return tern_fail(err, TERN_ERR_FORMAT, "config.json: %s has no %d numbers", name, n);
        out[i] = e->number;
    }
    return TERN_OK;
}

static tern_status read_multipliers(const tern_config_source *s, tern_config *c, tern_error *err) {
    tern_multipliers *m = &c->multipliers;
    double mlp[2] = {1, 1}, head = 1;
    const struct {
        const char *key;
        double *value;
    } keys[] = {{"ssm_in_multiplier", &m->ssm_in},
                {"ssm_out_multiplier", &m->ssm_out},
                {"attention_in_multiplier", &m->attention_in},
                {"attention_out_multiplier", &m->attention_out},
                {"key_multiplier", &m->key},
                {"embedding_multiplier", &c->embedding_scale},
                {"lm_head_multiplier", &head}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (tern_config_float(s, NULL, keys[i].key, keys[i].value))
            TERN_TRY(tern_config_check_scale(keys[i].key, *keys[i].value, err));
    TERN_TRY(read_list(s, "ssm_multipliers", m->ssm, 5, err));
    TERN_TRY(read_list(s, "mlp_multipliers", mlp, 2, err));
    m->gate = mlp[0];
    m->down = mlp[1];
    c->logit_divisor = head == 1 ? 0 : 1 / head;
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    TERN_TRY(tern_config_mamba(s, c, err));
    if (gguf) {
        c->conv_bias = tern_file_tensor(s->file, "blk.0.ssm_conv1d.bias") != NULL;
        c->ssm_norm = tern_file_tensor(s->file, "blk.0.ssm_norm.weight") != NULL;
    } else {
        c->ssm_norm = tern_config_bool(s, "mamba_rms_norm", false);
        TERN_TRY(read_multipliers(s, c, err));
    }
    if (!c->ssm_norm) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config: a norm in the state space (mamba_rms_norm) is not supported");
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    return tern_config_write_mamba(w, name, c);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    const tern_multipliers *m = &c->multipliers;
    tern_config_write_mamba_json(c, out);
    tern_strbuf_printf(out,
                       "  \"mamba_d_ssm\": %d,\n  \"mamba_rms_norm\": false,\n"
                       "  \"ssm_in_multiplier\": %.17g,\n  \"ssm_out_multiplier\": %.17g,\n"
                       "  \"attention_in_multiplier\": %.17g,\n"
                       "  \"attention_out_multiplier\": %.17g,\n  \"key_multiplier\": %.17g,\n"
                       "  \"embedding_multiplier\": %.17g,\n  \"lm_head_multiplier\": %.17g,\n"
                       "  \"mlp_multipliers\": [%.17g, %.17g],\n  \"ssm_multipliers\": [",
                       (int)(c->ssm.n_heads * c->ssm.head_dim), m->ssm_in, m->ssm_out,
                       m->attention_in, m->attention_out, m->key,
                       c->embedding_scale != 0 ? c->embedding_scale : 1,
                       c->logit_divisor != 0 ? 1 / c->logit_divisor : 1, m->gate, m->down);
    for (int i = 0; i < 5; i++) tern_strbuf_printf(out, "%s%.17g", i ? ", " : "", m->ssm[i]);
    tern_strbuf_puts(out, "],\n");
}

// ---- Factors in GGUF's weights -----------------------------------------------------------------

static double folded_in(const tern_config *c, int64_t row) {
    const tern_multipliers *m = &c->multipliers;
    int64_t dim = (int64_t)c->ssm.n_heads * c->ssm.head_dim;
    int64_t group = (int64_t)c->ssm.n_groups * c->ssm.n_state;
    const int64_t ends[] = {dim, 2 * dim, 2 * dim + group, 2 * dim + 2 * group};
    int piece = 0;
    while (piece < 4 && row >= ends[piece]) piece++;
    return m->ssm_in * m->ssm[piece];
}

static double folded(const tern_config *c, const char *gguf_name, int64_t row) {
    const tern_multipliers *m = &c->multipliers;
    double table = c->embedding_scale != 0 ? c->embedding_scale : 1;
    const struct {
        const char *end;
        double factor;
    } weights[] = {{"ssm_out.weight", m->ssm_out},
                   {"attn_q.weight", m->attention_in},
                   {"attn_k.weight", m->attention_in * m->key},
                   {"attn_v.weight", m->attention_in},
                   {"attn_output.weight", m->attention_out},
                   {"ffn_gate.weight", m->gate},
                   {"ffn_down.weight", m->down},
                   {"token_embd.weight", table},
                   {"output.weight", c->logit_divisor != 0 ? 1 / c->logit_divisor : 1}};
    size_t n = strlen(gguf_name);
    if (strstr(gguf_name, "ssm_in.weight")) return folded_in(c, row);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        size_t n_end = strlen(weights[i].end);
        bool whole = n == n_end || (n > n_end && gguf_name[n - n_end - 1] == '.');
        if (n >= n_end && whole && strcmp(gguf_name + n - n_end, weights[i].end) == 0)
            return weights[i].factor;
    }
    return 1;
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"falcon-h1", NULL};
static const char *const hf_types[] = {"falcon_h1", NULL};
static const tern_config defaults = {.rms_eps = 1e-5};
static const tern_sampling_defaults sampling = {
    .temperature = 0.1f, .top_k = -1, .top_p = -1, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {
    TERN_SAMPLE,
    .rope = TERN_SAMPLE_ROPE(32),
    .act = TERN_ACTIVATION_SILU,
    .embedding_scale = 5,
    .logit_divisor = 25,
    .conv_taps = 4,
    .conv_bias = true,
    .ssm = {.n_heads = 6, .head_dim = 20, .n_groups = 2, .n_state = 12},
    .multipliers = {1.25, 0.25, {0.35, 0.25, 0.36, 0.5, 0.37}, 1.1, 0.94, 0.39, 0.88, 0.59}};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.final_layernorm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION,
    TERN_ROWS_MAMBA,
    // llama.cpp's converter drops the ".weight" of this one, and its loader wants it so.
    TERN_LAYER_ROW("ffn_norm", "pre_ff_layernorm.weight", .gguf_also = "blk.%d.ffn_norm.weight"),
    TERN_LAYER_MATRIX("ffn_gate", "feed_forward.gate_proj", TERN_ROLE_GATE),
    TERN_LAYER_MATRIX("ffn_up", "feed_forward.up_proj", TERN_ROLE_UP),
    TERN_LAYER_MATRIX("ffn_down", "feed_forward.down_proj", TERN_ROLE_DOWN),
    TERN_ROWS_END,
};

const tern_arch tern_arch_falcon_h1 = {
    .name = "falcon-h1",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "FalconH1ForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .folded = folded,
    .graphs = TERN_GRAPHS(TERN_DECODER(build)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
