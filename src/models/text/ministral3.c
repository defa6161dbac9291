// Ministral 3 (arXiv:2601.08584): Llama's decoder with YaRN, whose queries grow with their
// position. In repositories of vision models it is the text part of a "mistral3". So are older
// Mistrals, which are this model with neither YaRN nor growing queries.
#include <stdio.h>
#include "models/core/family.h"

// RoPE if config.json does not state it, and values missing in an older Mistral's.
static void take_defaults(const tern_config_source *s, bool is_older, tern_config *c) {
    static const char *const names[] = {"rope_parameters", "rope_scaling", "rope_theta"};
    double eps;
    if (s->file->kind == TERN_FILE_GGUF) return;
    if (is_older && !tern_config_float(s, NULL, "rms_norm_eps", &eps))
        c->rms_eps = c->final_rms_eps = 1e-6;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tern_json *j = tern_config_json(s, names[i]);
        if (j && j->type != TERN_JSON_NULL) return;
    }
    c->rope.base = is_older ? 1e4f : 1e6f;
    if (is_older) return;
    c->rope.scaling = TERN_ROPE_YARN;
    c->rope.factor = 16;
    c->rope.n_context_orig = 16384;
    c->rope.beta_fast = 32;
    c->rope.beta_slow = 1;
    c->rope.attn_factor = 1;
    c->rope.growth = 0.1f;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool is_older = tern_config_is_text_of(s, "mistral"); // whose window is 4096 by default
    TERN_TRY(tern_config_window(s, is_older ? 4096 : 0, c, err));
    take_defaults(s, is_older, c);
    if (c->rope.growth == 0 || c->rope.n_rot == c->head_dim) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "config: queries that grow with their position are not supported where RoPE "
                     "turns %d of %d dimensions",
                     (int)c->rope.n_rot, (int)c->head_dim);
}

// yarn_log_multiplier: 1 leaves cosine and sine as they are.
static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    TERN_TRY(tern_config_write_window(w, name, c));
    if (c->rope.attn_factor == 1) {
        snprintf(key, sizeof key, "%s.rope.scaling.yarn_log_multiplier", name);
        TERN_TRY(tern_gguf_put_f32(w, key, 1));
    }
    if (c->rope.growth == 0) return TERN_OK;
    snprintf(key, sizeof key, "%s.attention.temperature_scale", name);
    return tern_gguf_put_f32(w, key, c->rope.growth);
}

static const char *const gguf_names[] = {"mistral3", NULL};
static const char *const hf_types[] = {"ministral3", "mistral3", NULL};
static const tern_config defaults = {.rms_eps = 1e-5, .head_dim = 128, .rope = {.base = 1e6f}};
static const tern_sampling_defaults sampling = {
    .temperature = 0.15f, .top_k = -1, .top_p = -1, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {TERN_SAMPLE,
                                   .rope = {.n_rot = 32,
                                            .base = 10000,
                                            .scaling = TERN_ROPE_YARN,
                                            .factor = 4,
                                            .beta_fast = 32,
                                            .beta_slow = 1,
                                            .attn_factor = 1,
                                            .n_context_orig = 16,
                                            .growth = 0.1f},
                                   .act = TERN_ACTIVATION_SILU};

static const tern_ignored ignored[] = {TERN_IGNORED_ROPE, TERN_IGNORED_IMAGES, {NULL, NULL, NULL}};

const tern_arch tern_arch_ministral3 = {
    .name = "ministral3",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "Ministral3ForCausalLM",
    .tensors = tern_decoder_tensors,
    .ignored = ignored,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(tern_config_write_window_json),
    .rope_grows = true,
    .gguf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
