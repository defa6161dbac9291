// SmolLM3: Llama's decoder, in which every fourth layer has no RoPE (arXiv:2501.18795).
#include <inttypes.h>
#include <stdio.h>
#include "models/core/family.h"

#define INTERVAL 4                       // by default, each 4th layer has none
#define LAYERS   "rope.unrotated_layers" // GGUF: a key of our own, for other patterns

static void unrotate_every(tern_config *c, int64_t interval) {
    for (int64_t i = 0; i < c->n_layers; i++) c->unrotated[i] = (i + 1) % interval == 0;
}

// no_rope_layers has a 1 for layers with RoPE, despite its name.
static tern_status read_json_layers(const tern_config_source *s, tern_config *c,
                                    const tern_json *list, tern_error *err) {
    const tern_json_doc *doc = &s->file->config;
    int64_t n = 0;
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e), n++)
        if (n < c->n_layers) c->unrotated[n] = tern_json_int(e, 1) == 0;
    if (n == c->n_layers) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config.json: no_rope_layers has %" PRId64 " entries for %" PRId64 " layers",
                     n, c->n_layers);
}

// Windows are off in the published file; if they are on, the layers without RoPE have them, unless
// layer_types says otherwise. GGUF: a key of our own.
static tern_status read_windows(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool found, gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t window = 0;
    tern_config_int(s, "attention.sliding_window", "sliding_window", &window);
    bool is_on = gguf || tern_config_bool(s, "use_sliding_window", false);
    if (!is_on || window == 0) return TERN_OK;
    if (window < 1 || window > INT32_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "config: sliding_window is %" PRId64, window);
    TERN_TRY(tern_config_layer_types(s, c, 1u << TERN_LAYER_FULL | 1u << TERN_LAYER_WINDOW, &found,
                                     err));
    if (gguf)
        found =
            tern_config_layer_flags(s, c, "attention.sliding_window_pattern", TERN_LAYER_WINDOW);
    if (gguf && !found) return TERN_OK;
    c->window = (int32_t)window;
    for (int64_t i = 0; !found && i < c->n_layers; i++)
        c->layers[i] = c->unrotated[i] ? TERN_LAYER_WINDOW : TERN_LAYER_FULL;
    return TERN_OK;
}

static tern_status read_rotated(const tern_config_source *s, tern_config *c, tern_error *err) {
    bool gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t interval = INTERVAL;
    const tern_json *list = gguf ? NULL : tern_config_json(s, "no_rope_layers");
    if (gguf && tern_config_flags(s, LAYERS, c->n_layers, c->unrotated)) return TERN_OK;
    if (tern_json_is(list, TERN_JSON_ARRAY)) return read_json_layers(s, c, list, err);
    tern_config_int(s, NULL, "no_rope_layer_interval", &interval);
    if (interval < 1)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: no_rope_layer_interval is %" PRId64 ", expected 1 or more",
                         interval);
    unrotate_every(c, interval);
    return TERN_OK;
}

static tern_status read(const tern_config_source *s, tern_config *c, tern_error *err) {
    TERN_TRY(read_rotated(s, c, err));
    return read_windows(s, c, err);
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *c) {
    char key[160];
    bool usual = true;
    if (c->window) TERN_TRY(tern_config_write_windows(w, name, c));
    for (int64_t i = 0; i < c->n_layers; i++)
        usual &= (c->unrotated[i] != 0) == ((i + 1) % INTERVAL == 0);
    if (usual) return TERN_OK;
    snprintf(key, sizeof key, "%s." LAYERS, name);
    return tern_gguf_put_array(w, key, TERN_META_BOOL, c->unrotated, (size_t)c->n_layers);
}

static void write_json(const tern_config *c, tern_strbuf *out) {
    tern_strbuf_puts(out, "  \"no_rope_layers\": [");
    for (int64_t i = 0; i < c->n_layers; i++)
        tern_strbuf_printf(out, "%s%d", i ? ", " : "", !c->unrotated[i]);
    tern_strbuf_puts(out, "],\n");
    if (c->window)
        tern_strbuf_printf(out, "  \"use_sliding_window\": true,\n  \"sliding_window\": %d,\n",
                           (int)c->window);
}

static const char *const gguf_names[] = {"smollm3", NULL};
static const char *const hf_types[] = {"smollm3", NULL};
static const tern_config defaults = {.tied_head = true, .rms_eps = 1e-6, .rope = {.base = 2e6f}};
static const tern_sampling_defaults sampling = {
    .temperature = 0.6f, .top_k = -1, .top_p = 0.95f, .min_p = -1, .repeat_penalty = -1};

static const tern_config sample = {TERN_SAMPLE, .rope = TERN_SAMPLE_ROPE(32),
                                   .act = TERN_ACTIVATION_SILU, .unrotated = {0, 1}};

const tern_arch tern_arch_smollm3 = {
    .name = "smollm3",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "SmolLM3ForCausalLM",
    .tensors = tern_decoder_tensors,
    .ignored = tern_decoder_ignored,
    .defaults = &defaults,
    .differs = tern_config_windows_differ,
    .mixed_layers = true,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .gguf_rope_neighbours = true,
    .graphs = TERN_GRAPHS(TERN_DECODER(tern_build_decoder)),
    .sampling = &sampling,
    .sample = TERN_SAMPLE_CONFIG(sample),
};
