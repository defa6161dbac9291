// NanoCodec (NVIDIA, arXiv:2508.05835): the decoder, which turns codes into sound.
//
//   x = pre_conv(digits(codes))
//   per stage:  x = upsample(snake(x));  x = mean over branches of branch(x)
//   branch, of one kernel, per block of one dilation:  y = y + conv2(snake(conv1(snake(y))))
//   sound = post_conv(snake(x)), which the caller clips to -1 .. 1
//
// Everything is causal, so the samples of a code never change: sound comes in pieces that join
// without a seam, if each convolution keeps the last rows that it looks back to. Rows of the graph
// are frames of codes; each stage turns one row into `rate` rows and halves the columns.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "models/core/family.h"

#define FRAMES_MOST   16 // of a batch: 1.3 seconds
#define CHANNELS_MOST 8192
#define TAPS_MOST     64

#define STAGES_MAX   8
#define BRANCHES_MAX 4
#define BLOCKS_MAX   4
typedef struct decoder {
    int32_t n_codes; // of a frame
    int32_t levels[TERN_PIECES_MAX];
    int32_t n_stages, n_branches, n_blocks;
    int32_t rates[STAGES_MAX], kernels[BRANCHES_MAX], dilations[BLOCKS_MAX];
    int32_t in_taps, out_taps;
    bool is_grouped;    // an upsampling convolution has a group for each output
    int64_t n_channels; // before the first stage; each halves them
    int64_t rate;       // samples a second
    int64_t n_frame;    // samples of a frame
} decoder;
TERN_OWN_CONFIG(decoder)

// ---- Graph -------------------------------------------------------------------------------------

static tern_vid snake(tern_graph *g, tern_vid x, const char *name) {
    char alpha[TERN_NAME_BYTES + 8]; // the graph refuses a name that is too long
    snprintf(alpha, sizeof alpha, "%s.alpha", name);
    return x < 0 ? -1 : tern_g_half_snake(g, x, tern_g_vector(g, alpha, g->values[x].cols / 2));
}

static tern_vid convolve(tern_graph *g, tern_vid x, const char *name, int64_t n_in, int64_t n_out,
                         int32_t taps, int32_t dilation) {
    const tern_causal_attrs attrs = {
        .n_in = (int32_t)n_in, .n_out = (int32_t)n_out, .taps = taps, .dilation = dilation};
    return tern_g_conv1d(g, x, name, &attrs);
}

static tern_vid block(tern_graph *g, const decoder *c, tern_vid x, int64_t n, int branch,
                      int number) {
    char name[TERN_NAME_BYTES];
    int32_t taps = c->kernels[branch], dilation = c->dilations[number];
#define NAME(end) (snprintf(name, sizeof name, "blk.%%d.res.%d.%d." end, branch, number), name)
    tern_vid y = snake(g, x, NAME("act1"));
    y = convolve(g, y, NAME("conv1"), n, n, taps, dilation);
    y = snake(g, y, NAME("act2"));
    y = convolve(g, y, NAME("conv2"), n, n, taps, 1);
#undef NAME
    return tern_g_add(g, x, y);
}

static tern_vid stage(tern_graph *g, const decoder *c, tern_vid x, int64_t n_in) {
    int64_t n = n_in / 2;
    const tern_causal_attrs attrs = {.n_in = (int32_t)n_in,
                                     .n_out = (int32_t)n,
                                     .rate = c->rates[g->layer],
                                     .groups = c->is_grouped ? (int32_t)n : 1};
    x = tern_g_upsample_conv(g, snake(g, x, "blk.%d.act"), "blk.%d.up", &attrs);
    tern_vid sum = -1;
    for (int k = 0; k < c->n_branches; k++) {
        tern_vid y = x;
        for (int d = 0; d < c->n_blocks; d++) y = block(g, c, y, n, k, d);
        sum = k ? tern_g_add(g, sum, y) : y;
    }
    return tern_g_scale(g, sum, 1.0f / (float)c->n_branches);
}

static tern_status build(tern_graph *g, const tern_config *config, tern_error *err) {
    const decoder *c = own(config);
    int64_t n = c->n_channels;
    tern_vid x = tern_g_input(g, "codes", tern_g_dim(g, "tokens"), c->n_codes, TERN_VALUE_I32);
    x = tern_g_code_digits(g, x, c->levels);
    x = convolve(g, x, "pre_conv", x < 0 ? 1 : g->values[x].cols, n, c->in_taps, 1);
    for (int i = 0; i < c->n_stages && !g->failed; i++, n /= 2) {
        g->layer = i;
        x = stage(g, c, x, n);
    }
    g->layer = -1;
    x = convolve(g, snake(g, x, "post_act"), "post_conv", n, 1, c->out_taps, 1);
    tern_g_output(g, x, "sound");
    return tern_graph_check(g, err);
}

// ---- Config ------------------------------------------------------------------------------------

// A list of up to `most` numbers from 1 to `limit`, from either format.
static tern_status read_list(const tern_config_source *s, const char *gguf, const char *hf,
                             int32_t limit, int32_t *out, int32_t most, int32_t *n,
                             tern_error *err) {
    bool is_gguf = s->file->kind == TERN_FILE_GGUF, fits = true;
    char key[160];
    double number = 0;
    *n = 0;
    snprintf(key, sizeof key, "%s.%s", s->prefix, gguf);
    const tern_meta *meta = is_gguf ? tern_file_meta(s->file, key) : NULL;
    for (uint64_t i = 0; meta && fits && i < meta->n; i++, ++*n) {
        fits = *n < most && tern_meta_element(meta, i, &number) && number >= 1 && number <= limit;
        if (fits) out[*n] = (int32_t)number;
    }
    const tern_json_doc *doc = &s->file->config;
    const tern_json *list = is_gguf ? NULL : tern_config_json(s, hf);
    if (!tern_json_is(list, TERN_JSON_ARRAY)) list = NULL;
    for (const tern_json *e = list ? tern_json_first(doc, list) : NULL; e && fits;
         e = tern_json_next(doc, list, e), ++*n) {
        int64_t value = tern_json_int(e, 0);
        fits = *n < most && value >= 1 && value <= limit;
        if (fits) out[*n] = (int32_t)value;
    }
    if (fits && *n > 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "config: %s is not a list of up to %d numbers from 1 to %d",
                     is_gguf ? key : hf, (int)most, (int)limit);
}

static tern_status read_lists(const tern_config_source *s, decoder *c, tern_error *err) {
    int32_t n;
    TERN_TRY(read_list(s, "levels", "vector_quantizer.num_levels_per_group", 256, c->levels,
                       TERN_PIECES_MAX, &n, err));
    TERN_TRY(read_list(s, "rates", "audio_decoder.up_sample_rates", 64, c->rates, STAGES_MAX,
                       &c->n_stages, err));
    TERN_TRY(read_list(s, "kernels", "audio_decoder.resblock_kernel_sizes", TAPS_MOST, c->kernels,
                       BRANCHES_MAX, &c->n_branches, err));
    return read_list(s, "dilations", "audio_decoder.resblock_dilation_sizes", 64, c->dilations,
                     BLOCKS_MAX, &c->n_blocks, err);
}

// Members of config.json that must have the values of all published models.
static tern_status need_text(const tern_config_source *s, const char *hf, const char *value,
                             tern_error *err) {
    tern_str text = tern_config_str(s, NULL, hf);
    if (!text.ptr || tern_str_is(text, value)) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "config.json: %s \"%.*s\" is not supported (%s is)",
                     hf, (int)(text.len < 40 ? text.len : 40), text.ptr, value);
}

static tern_status need_taps(const tern_config_source *s, const char *gguf, const char *hf,
                             int32_t *out, tern_error *err) {
    int64_t n;
    TERN_TRY(tern_config_need(s, gguf, hf, 2, TAPS_MOST, &n, err));
    *out = (int32_t)n;
    return TERN_OK;
}

// The product of the levels, and that of the rates; 0: too large.
static int64_t product(const int32_t *x, int n) {
    int64_t all = 1;
    for (int i = 0; i < n && x[i] > 0; i++) all = all > 0 && all <= 1 << 20 ? all * x[i] : 0;
    return all <= 1 << 24 ? all : 0;
}

static tern_status read(const tern_config_source *s, tern_config *config, tern_error *err) {
    decoder *c = own_to_set(config);
    bool is_gguf = s->file->kind == TERN_FILE_GGUF;
    int64_t grouped = 1, n_codes;
    TERN_TRY(need_text(s, "audio_decoder.activation", "half_snake", err));
    TERN_TRY(need_text(s, "audio_decoder.output_activation", "clamp", err));
    TERN_TRY(need_text(s, "audio_decoder.pad_mode", "zeros", err));
    TERN_TRY(read_lists(s, c, err));
    TERN_TRY(tern_config_need(s, "codes", "vector_quantizer.num_groups", 1, 64, &n_codes, err));
    TERN_TRY(tern_config_need(s, "channels", "audio_decoder.base_channels", 2, CHANNELS_MOST,
                              &c->n_channels, err));
    TERN_TRY(tern_config_need(s, "sample_rate", "sample_rate", 1000, 384000, &c->rate, err));
    TERN_TRY(need_taps(s, "in_kernel", "audio_decoder.in_kernel_size", &c->in_taps, err));
    TERN_TRY(need_taps(s, "out_kernel", "audio_decoder.out_kernel_size", &c->out_taps, err));
    tern_config_int(s, "grouped", NULL, &grouped);
    const tern_json *groups = tern_config_json(s, "audio_decoder.n_groups_equal_to_out_channels");
    c->is_grouped = is_gguf ? grouped != 0 : tern_json_bool(groups, true);
    c->n_codes = (int32_t)n_codes;
    c->n_frame = product(c->rates, c->n_stages);
    config->n_vocab = product(c->levels, TERN_PIECES_MAX);
    for (int i = 0; i < c->n_branches; i++)
        if (c->kernels[i] < 2) c->n_frame = 0;
    if (c->n_channels >> c->n_stages == 0 || c->n_frame == 0 || c->n_frame > 1 << 16 ||
        config->n_vocab == 0)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "config: %" PRId64 " channels, %d stages, their rates and the levels of "
                         "codes make no sense together",
                         c->n_channels, (int)c->n_stages);
    config->n_layers = c->n_stages;
    config->n_embd = c->n_channels;
    config->n_context = 1 << 24; // no table limits the positions
    config->n_batch_most = FRAMES_MOST;
    config->bos_id = config->eos_id = -1;
    return TERN_OK;
}

static tern_status write_gguf(tern_gguf_writer *w, const char *name, const tern_config *config) {
    const decoder *c = own(config);
    int n_levels = 0;
    while (n_levels < TERN_PIECES_MAX && c->levels[n_levels] > 0) n_levels++;
    const struct {
        const char *key;
        const int32_t *list;
        int32_t n;
    } lists[] = {{"levels", c->levels, n_levels},
                 {"rates", c->rates, c->n_stages},
                 {"kernels", c->kernels, c->n_branches},
                 {"dilations", c->dilations, c->n_blocks}};
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"codes", c->n_codes},       {"channels", c->n_channels},
                   {"sample_rate", c->rate},    {"in_kernel", c->in_taps},
                   {"out_kernel", c->out_taps}, {"grouped", c->is_grouped}};
    char key[160];
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        snprintf(key, sizeof key, "%s.%s", name, lists[i].key);
        TERN_TRY(tern_gguf_put_array(w, key, TERN_META_I32, lists[i].list, (size_t)lists[i].n));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", name, numbers[i].key);
        TERN_TRY(tern_gguf_put_int(w, key, TERN_META_U32, numbers[i].value));
    }
    return TERN_OK;
}

static void put_list(tern_strbuf *out, const char *name, const int32_t *list, int n) {
    tern_strbuf_printf(out, "    \"%s\": [", name);
    for (int i = 0; i < n && list[i] > 0; i++)
        tern_strbuf_printf(out, "%s%d", i ? ", " : "", (int)list[i]);
    tern_strbuf_puts(out, "]");
}

static void write_json(const tern_config *config, tern_strbuf *out) {
    const decoder *c = own(config);
    tern_strbuf_printf(out,
                       "  \"sample_rate\": %" PRId64 ",\n  \"samples_per_frame\": %" PRId64
                       ",\n  \"vector_quantizer\": {\n    \"num_groups\": %d,\n",
                       c->rate, c->n_frame, (int)c->n_codes);
    put_list(out, "num_levels_per_group", c->levels, TERN_PIECES_MAX);
    tern_strbuf_puts(out, "\n  },\n  \"audio_decoder\": {\n");
    put_list(out, "up_sample_rates", c->rates, c->n_stages);
    tern_strbuf_puts(out, ",\n");
    put_list(out, "resblock_kernel_sizes", c->kernels, c->n_branches);
    tern_strbuf_puts(out, ",\n");
    put_list(out, "resblock_dilation_sizes", c->dilations, c->n_blocks);
    tern_strbuf_printf(out,
                       ",\n    \"base_channels\": %" PRId64
                       ",\n    \"in_kernel_size\": %d,\n    \"out_kernel_size\": %d,\n"
                       "    \"activation\": \"half_snake\",\n"
                       "    \"output_activation\": \"clamp\",\n    \"pad_mode\": \"zeros\",\n"
                       "    \"n_groups_equal_to_out_channels\": %s\n  },\n",
                       c->n_channels, (int)c->in_taps, (int)c->out_taps,
                       c->is_grouped ? "true" : "false");
}

static tern_codec codec_of(const tern_config *c) {
    const decoder *d = own(c);
    return (tern_codec){.n_codes = d->n_codes, .rate = d->rate, .n_frame = d->n_frame};
}

// ---- Tables ------------------------------------------------------------------------------------

static const char *const gguf_names[] = {"nanocodec", NULL};
static const char *const hf_types[] = {"nanocodec", NULL};

#define CONV(gguf_, hf_)                                                                           \
    TERN_MATRIX(gguf_, "audio_decoder." hf_ ".conv", TERN_ROLE_FLOATS),                            \
        TERN_ROW(gguf_ ".bias", "audio_decoder." hf_ ".conv.bias")
#define SNAKE(gguf_, hf_)                                                                          \
    TERN_ROW(gguf_ ".alpha", "audio_decoder." hf_ ".activation.snake_act.alpha",                   \
             .gguf_column = true)
#define BLOCK(branch_, number_)                                                                    \
    SNAKE("blk.%d.res." branch_ "." number_ ".act1",                                               \
          "res_layers.%d.res_blocks." branch_ ".res_blocks." number_ ".input_activation"),         \
        CONV("blk.%d.res." branch_ "." number_ ".conv1",                                           \
             "res_layers.%d.res_blocks." branch_ ".res_blocks." number_ ".input_conv"),            \
        SNAKE("blk.%d.res." branch_ "." number_ ".act2",                                           \
              "res_layers.%d.res_blocks." branch_ ".res_blocks." number_ ".skip_activation"),      \
        CONV("blk.%d.res." branch_ "." number_ ".conv2",                                           \
             "res_layers.%d.res_blocks." branch_ ".res_blocks." number_ ".skip_conv")
#define BRANCH(branch_)                                                                            \
    BLOCK(branch_, "0"), BLOCK(branch_, "1"), BLOCK(branch_, "2"), BLOCK(branch_, "3")

static const tern_tensor_row tensors[] = {
    CONV("pre_conv", "pre_conv"),
    SNAKE("blk.%d.act", "activations.%d"),
    CONV("blk.%d.up", "up_sample_conv_layers.%d"),
    BRANCH("0"),
    BRANCH("1"),
    BRANCH("2"),
    BRANCH("3"),
    SNAKE("post_act", "post_activation"),
    CONV("post_conv", "post_conv"),
    TERN_ROWS_END,
};

static const char encoder_reason[] = "makes codes of sound: only sound of codes is computed";
static const char training_reason[] = "judges sounds in training";
static const tern_ignored ignored[] = {
    {"audio_encoder.", NULL, encoder_reason},
    {"vector_quantizer.", NULL, "follows from the levels of the codes"},
    {"discriminator.", NULL, training_reason},
    {"speaker_", NULL, training_reason},
    {"gen_loss", NULL, training_reason},
    {"disc_loss", NULL, training_reason},
    {NULL, NULL, NULL},
};

const tern_arch tern_arch_nanocodec = {
    .name = "nanocodec",
    .gguf_names = gguf_names,
    .hf_types = hf_types,
    .hf_class = "AudioCodecModel",
    .tensors = tensors,
    .ignored = ignored,
    .own_config = true,
    .read = read,
    .write_gguf = TERN_WRITER(write_gguf),
    .write_json = TERN_WRITER(write_json),
    .graphs = TERN_GRAPHS({.name = "codec", .build = build}),
    .media = &(const tern_arch_media){.codec = codec_of},
};
