// MiniCPM 1, 2 and 4 (arXiv:2404.06395), and with ternary weights BitCPM4: Llama's decoder with
// factors of the table's rows and of each half-layer's output, and a divisor of the logits.
#include <math.h>
#include "models/core/family.h"

// MiniCPM 1's values, which older GGUF files lack.
#define SCALE_EMB      12
#define SCALE_DEPTH    1.4
#define DIM_MODEL_BASE 256

static tern_status set_scales(tern_config *c, double emb, double depth, double base,
                              tern_error *err) {
    TERN_TRY(tern_config_check_scale("scale_emb", emb, err));
    TERN_TRY(tern_config_check_scale("scale_depth", depth, err));
    TERN_TRY(tern_config_check_scale("dim_model_base", base, err));
    c->embedding_scale = emb;
    c->residual_scale = depth / sqrt((double)c->n_layers);
    c->logit_divisor = (double)c->n_embd / base;
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    double emb = gguf ? SCALE_EMB : 1, depth = gguf ? SCALE_DEPTH : 1;
    double base = gguf ? DIM_MODEL_BASE : 1; // folders: their code's default
    tern_config_float(s, NULL, "scale_emb", &emb);
    tern_config_float(s, NULL, "scale_depth", &depth);
    tern_config_float(s, NULL, "dim_model_base", &base);
    TERN_TRY(set_scales(c, emb, depth, base, err));
    return gguf ? tern_config_gguf_scales(s, c, err) : TERN_OK;
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"scale_emb\": %.17g,\n  \"scale_depth\": %.17g,\n"
                       "  \"dim_model_base\": %.17g,\n",
                       c->embedding_scale, c->residual_scale * sqrt((double)c->n_layers),
                       (double)c->n_embd / c->logit_divisor);
}

static const char *const gguf_names[] = {"minicpm", NULL};
static const char *const hf_types[] = {"minicpm", NULL};
static const tern_config defaults = {.rms_eps = 1e-6};
static const tern_sampling_defaults sampling = {
    .temperature = 0.7f, .top_k = -1, .top_p = 0.7f, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {TERN_SAMPLE,
                                   .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU,
                                   .embedding_scale = SCALE_EMB,
                                   .residual_scale = SCALE_DEPTH / 6,
                                   .logit_divisor = 0.375};

const tern_arch tern_arch_minicpm = {
    .name = "minicpm",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "MiniCPMForCausalLM",
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
