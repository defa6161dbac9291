// Granite 3 and 4 (the dense ones): Llama's decoder with a factor of the table's rows, one of the
// scores, one of what each half of a layer adds, and a divisor of the logits.
#include <math.h>
#include "models/family.h"

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

// A GGUF that is not trained with RoPE says so with this switch.
static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    int64_t has_rope = 1;
    if (s->file->kind != TERN_FILE_GGUF) return read_json(s, c, err);
    tern_config_int(s, "rope.scaling.finetuned", NULL, &has_rope);
    for (int64_t i = 0; i < c->n_layers; i++) c->unrotated[i] = !has_rope;
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
static const tern_generation_defaults generation = {
    .temperature = 0, .top_k = -1, .top_p = -1, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {TERN_SAMPLE,
                                   .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU,
                                   .embedding_scale = 12,
                                   .residual_scale = 0.22,
                                   .logit_divisor = 8,
                                   .query_scalar = 256};

static const tern_tensor_row tensors[] = {
    TERN_ROWS_TABLE_AND_HEAD,
    TERN_NORM("output_norm", "model.norm", TERN_CHANGE_NONE),
    TERN_ROWS_ROPE_FACTORS,
    TERN_LAYER_NORM("attn_norm", "input_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_ATTENTION_NEIGHBOURS,
    TERN_LAYER_NORM("ffn_norm", "post_attention_layernorm", TERN_CHANGE_NONE),
    TERN_ROWS_FEED_FORWARD,
    TERN_ROWS_INPUT_NORMS,
    TERN_ROWS_END,
};

const tern_arch tern_arch_granite = {
    .name = "granite",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "GraniteForCausalLM",
    .tensors = tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .read = read,
    .write_gguf = tern_config_write_scales,
    .write_json = write_json,
    .gguf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder)),
    .generation = &generation,
    .sample = &sample,
};
