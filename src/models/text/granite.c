// Granite 3 and 4 (the dense ones): Llama's decoder with factors of the table's rows, of the scores
// and of each half-layer's output, and a divisor of the logits. In the hybrid Granite 4 models most
// layers mix positions by Mamba-2, and attention has no position encoding.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include "models/core/family.h"

static tern_status read_json(const tern_config_source *s, tern_config *c, tern_error *err) {
    double attention = 1; // as in transformers
    const struct {
        const char *key;
        double *value;
    } scales[] = {{"embedding_multiplier", &c->embedding_scale},
                  {"residual_multiplier", &c->residual_scale},
                  {"logits_scaling", &c->logit_divisor},
                  {"attention_multiplier", &attention}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (tern_config_float(s, NULL, scales[i].key, scales[i].value))
            TERN_TRY(tern_config_check_scale(scales[i].key, *scales[i].value, err));
    c->query_scalar = 1 / (attention * attention);
    return TERN_OK;
}

// A GGUF of a model without RoPE says so with this switch.
static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t has_rope = 1;
    double scale;
    if (s->file->kind != TERN_FILE_GGUF) return read_json(s, c, err);
    tern_config_int(s, "rope.scaling.finetuned", NULL, &has_rope);
    for (int64_t i = 0; i < c->n_layers; i++) c->unrotated[i] = !has_rope;
    if (tern_config_float(s, "attention.scale", NULL, &scale) && scale != 0) {
        TERN_TRY(tern_config_check_scale("attention.scale", scale, err));
        c->query_scalar = 1 / (scale * scale);
    }
    return tern_config_gguf_scales(s, c, err);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"embedding_multiplier\": %.17g,\n  \"residual_multiplier\": %.17g,\n"
                       "  \"logits_scaling\": %.17g,\n  \"attention_multiplier\": %.17g,\n",
                       c->embedding_scale != 0 ? c->embedding_scale : 1,
                       c->residual_scale != 0 ? c->residual_scale : 1,
                       c->logit_divisor != 0 ? c->logit_divisor : 1,
                       1 / sqrt(c->query_scalar > 0 ? c->query_scalar : (double)c->head_dim));
}

static const char *const gguf_names[] = {"granite", NULL};
static const char *const hf_types[] = {"granite", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};
static const tern_sampling_defaults sampling = {
    .temperature = 0, .top_k = -1, .top_p = -1, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {
    TERN_SAMPLE,           .rope = TERN_SAMPLE_ROPE(32), .act = TERN_ACTIVATION_SILU,
    .embedding_scale = 12, .residual_scale = 0.22,       .logit_divisor = 8,
    .query_scalar = 256};

const tern_arch tern_arch_granite = {
    .name = "granite",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "GraniteForCausalLM",
    .tensors = tern_decoder_tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = TERN_WRITER(tern_config_write_scales),
    .write_json = TERN_WRITER(write_json),
    .gguf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};

// ---- Hybrid ------------------------------------------------------------------------------------

static tern_vid hybrid_layer(tern_graph *g, const tern_config *c, tern_vid x) {
    const tern_attention_block block = {.rope = c->unrotated[g->layer] ? NULL : &c->rope};
    tern_vid a = tern_block_norm(g, x, "blk.%d.attn_norm.weight", c->n_embd, c->rms_eps);
    bool is_mamba = c->layers[g->layer] == TERN_LAYER_MAMBA;
    tern_vid mixed = is_mamba ? tern_block_mamba(g, c, a) : tern_block_attention(g, c, a, &block);
    x = tern_block_residual(g, c, x, mixed);
    tern_vid f = tern_block_norm(g, x, "blk.%d.ffn_norm.weight", c->n_embd, c->rms_eps);
    return tern_block_residual(g, c, x, tern_block_feed_forward(g, c, f));
}

static tern_status build_hybrid(tern_graph *g, const tern_config *c, tern_error *err) {
    return tern_build_stack(
        g, c, &(tern_stack){.layer = hybrid_layer, .final_norm = "output_norm.weight"}, err);
}

// Only the tensors show which layers are Mamba-2, and whether their convolutions have biases.
static void read_tensors(const tern_config_source *s, tern_config *c) {
    char name[64];
    for (int64_t i = 0; i < c->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%d.ssm_in.weight", (int)i);
        if (tern_file_tensor(s->file, name)) c->layers[i] = TERN_LAYER_MAMBA;
        snprintf(name, sizeof name, "blk.%d.ssm_conv1d.bias", (int)i);
        if (tern_file_tensor(s->file, name)) c->conv_bias = true;
    }
    const tern_tensor *gate = tern_file_tensor(s->file, "blk.0.ffn_gate.weight");
    if (gate) c->n_ff = (int64_t)gate->ne[1];
}

static tern_status read_hybrid_json(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool found;
    unsigned allowed = 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_MAMBA;
    tern_str positions = tern_config_str(s, NULL, "position_embedding_type");
    for (int64_t i = 0; i < c->n_layers; i++) c->unrotated[i] = !tern_str_is(positions, "rope");
    TERN_TRY(tern_config_layer_types(s, c, allowed, &found, err));
    if (!found) return tern_fail(err, TERN_ERR_FORMAT, "config.json: layer_types is missing");
    return tern_config_need(s, NULL, "shared_intermediate_size", 1, 1 << 22, &c->n_ff, err);
}

static tern_status read_hybrid(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t has_rope = 0;
    c->ssm_norm = true;
    TERN_TRY(read(s, c, err));
    TERN_TRY(tern_config_mamba(s, c, err));
    if (c->ssm.n_groups > 1)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "config: the norm of a state space in %d groups is not supported",
                         (int)c->ssm.n_groups);
    if (s->file->kind != TERN_FILE_GGUF) return read_hybrid_json(s, c, err);
    tern_config_int(s, "rope.scaling.finetuned", NULL, &has_rope);
    for (int64_t i = 0; i < c->n_layers; i++) c->unrotated[i] = !has_rope;
    read_tensors(s, c);
    return TERN_OK;
}

static tern_status write_hybrid_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    TERN_TRY(tern_config_write_scales(w, name, c));
    TERN_TRY(tern_config_write_mamba(w, name, c));
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", name);
    return tern_gguf_put_int(w, key, TERN_META_BOOL, !c->unrotated[0]);
}

static void write_hybrid_json(const tern_config *c, tern_strbuf *out) {
    write_json(c, out);
    tern_config_write_mamba_json(c, out);
    tern_strbuf_printf(out,
                       "  \"shared_intermediate_size\": %" PRId64 ",\n"
                       "  \"num_local_experts\": 0,\n  \"position_embedding_type\": \"%s\",\n"
                       "  \"layer_types\": [",
                       c->n_ff, c->unrotated[0] ? "nope" : "rope");
    for (int64_t i = 0; i < c->n_layers; i++)
        tern_strbuf_printf(out, "%s\"%s\"", i ? ", " : "",
                           c->layers[i] == TERN_LAYER_MAMBA ? "mamba" : "attention");
    tern_strbuf_puts(out, "],\n");
}

static const char *const hybrid_gguf_names[] = {"granitehybrid", NULL};
static const char *const hybrid_hf_types[] = {"granitemoehybrid", NULL};
static const tern_config hybrid_sample = {
    TERN_SAMPLE,
    .rope = TERN_SAMPLE_ROPE(32),
    .act = TERN_ACTIVATION_SILU,
    .embedding_scale = 12,
    .residual_scale = 0.22,
    .logit_divisor = 8,
    .query_scalar = 256,
    .layers = {TERN_LAYER_MAMBA, TERN_LAYER_FULL},
    .unrotated = {1, 1},
    .conv_taps = 4,
    .conv_bias = true,
    .ssm = {.n_heads = 6, .head_dim = 20, .n_groups = 1, .n_state = 12},
    .ssm_norm = true,
    .multipliers = {1, 1, {1, 1, 1, 1, 1}, 1, 1, 1, 1, 1}};

static const tern_tensor_row hybrid_tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION_NEIGHBOURS,
    TERN_ROWS_MAMBA,
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_LAYER_ROW("ffn_gate.weight", "shared_mlp.input_linear.weight", .role = TERN_ROLE_GATE,
                   .share = 0, .shares = 2),
    TERN_LAYER_ROW("ffn_up.weight", "shared_mlp.input_linear.weight", .role = TERN_ROLE_UP,
                   .share = 1, .shares = 2),
    TERN_LAYER_MATRIX("ffn_down", "shared_mlp.output_linear", TERN_ROLE_DOWN),
    TERN_ROWS_END,
};

const tern_arch tern_arch_granitehybrid = {
    .name = "granitehybrid",
    .gguf_names = hybrid_gguf_names,
    .hf_types = hybrid_hf_types,
    .hf_class = "GraniteMoeHybridForCausalLM",
    .tensors = hybrid_tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read_hybrid,
    .write_gguf = TERN_WRITER(write_hybrid_gguf),
    .write_json = TERN_WRITER(write_hybrid_json),
    .gguf_rope_neighbours = true,
    .kv_heads_by_layer = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(build_hybrid)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(hybrid_sample),
};
