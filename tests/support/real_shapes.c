#include "real_shapes.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "tiny_model.h"

// ---- Shapes, as the models' own config.json has them --------------------------------------------

#define COMMON    .tied_head = true, .bos_id = -1, .eos_id = -1
#define EPS(eps_) .rms_eps = (eps_), .final_rms_eps = (eps_)
#define ROPE(n_rot_, base_)                                                                        \
    { .n_rot = (n_rot_), .halves = true, .base = (base_), .factor = 1 }

const real_shape real_shapes[] = {
    {.name = "qwen3-0.6b",
     .arch = "qwen3",
     .layers = "F",
     .config = {COMMON, EPS(1e-6), .n_vocab = 151936, .n_layers = 28, .n_embd = 1024, .n_ff = 3072,
                .n_heads = 16, .n_kv_heads = 8, .head_dim = 128, .n_context = 40960,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(128, 1e6f)}},
    {.name = "qwen2.5-0.5b",
     .arch = "qwen2",
     .layers = "F",
     .config = {COMMON, EPS(1e-6), .n_vocab = 151936, .n_layers = 24, .n_embd = 896, .n_ff = 4864,
                .n_heads = 14, .n_kv_heads = 2, .head_dim = 64, .n_context = 32768,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e6f), .qkv_biases = true}},
    {.name = "llama-3.2-1b",
     .arch = "llama",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 128256, .n_layers = 16, .n_embd = 2048, .n_ff = 8192,
                .n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .n_context = 131072,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 5e5f)}},
    {.name = "smollm2-135m",
     .arch = "llama",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 49152, .n_layers = 30, .n_embd = 576, .n_ff = 1536,
                .n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .n_context = 8192,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e5f)}},
    {.name = "smollm3-3b",
     .arch = "smollm3",
     .layers = "FFFf",
     .config = {COMMON, EPS(1e-6), .n_vocab = 128256, .n_layers = 36, .n_embd = 2048, .n_ff = 11008,
                .n_heads = 16, .n_kv_heads = 4, .head_dim = 128, .n_context = 65536,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(128, 5e6f)}},
    {.name = "phi-4-mini",
     .arch = "phi3",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 200064, .n_layers = 32, .n_embd = 3072, .n_ff = 8192,
                .n_heads = 24, .n_kv_heads = 8, .head_dim = 128, .n_context = 131072,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(96, 1e4f)}},
    {.name = "granite-3.3-2b",
     .arch = "granite",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 49159, .n_layers = 40, .n_embd = 2048, .n_ff = 8192,
                .n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .n_context = 131072,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e7f), .embedding_scale = 12,
                .residual_scale = 0.22, .logit_divisor = 8, .query_scalar = 4096}},
    {.name = "minicpm4-0.5b",
     .arch = "minicpm",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 73448, .n_layers = 24, .n_embd = 1024, .n_ff = 4096,
                .n_heads = 16, .n_kv_heads = 2, .head_dim = 64, .n_context = 32768,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e4f), .embedding_scale = 12,
                .residual_scale = 0.2857738, .logit_divisor = 4}},
    {.name = "exaone-4-1.2b",
     .arch = "exaone4",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 102400, .n_layers = 30, .n_embd = 2048, .n_ff = 4096,
                .n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .n_context = 65536,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e6f)}},
    {.name = "hunyuan-0.5b",
     .arch = "hunyuan",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 120818, .n_layers = 24, .n_embd = 1024, .n_ff = 3584,
                .n_heads = 16, .n_kv_heads = 8, .head_dim = 128, .n_context = 262144,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(128, 1e4f)}},
    {.name = "ernie-4.5-0.3b",
     .arch = "ernie4_5",
     .layers = "F",
     .config = {COMMON, EPS(1e-5), .n_vocab = 103424, .n_layers = 18, .n_embd = 1024, .n_ff = 3072,
                .n_heads = 16, .n_kv_heads = 2, .head_dim = 128, .n_context = 131072,
                .act = TERN_ACTIVATION_SILU, .rope = {.n_rot = 128, .base = 5e5f, .factor = 1}}},
    {.name = "command-r7b",
     .arch = "cohere2",
     .layers = "WWWF",
     .config = {COMMON, EPS(1e-5), .n_vocab = 256000, .n_layers = 32, .n_embd = 4096, .n_ff = 14336,
                .n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .n_context = 132096,
                .act = TERN_ACTIVATION_SILU, .rope = {.n_rot = 128, .base = 5e4f, .factor = 1},
                .window = 4096, .logit_divisor = 4}},
    {.name = "olmo-2-1b",
     .arch = "olmo2",
     .layers = "F",
     .config = {.bos_id = -1,
                .eos_id = -1,
                EPS(1e-6),
                .n_vocab = 100352,
                .n_layers = 16,
                .n_embd = 2048,
                .n_ff = 8192,
                .n_heads = 16,
                .n_kv_heads = 16,
                .head_dim = 128,
                .n_context = 4096,
                .act = TERN_ACTIVATION_SILU,
                .rope = ROPE(128, 5e5f)}},
    {.name = "qwen3.5-0.8b",
     .arch = "qwen35",
     .layers = "DDDF",
     .config = {COMMON, EPS(1e-6), .n_vocab = 248320, .n_layers = 24, .n_embd = 1024, .n_ff = 3584,
                .n_heads = 8, .n_kv_heads = 2, .head_dim = 256, .n_context = 262144,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e7f), .conv_taps = 4,
                .delta = {.n_k_heads = 16,
                          .n_v_heads = 16,
                          .head_dim = 128,
                          .v_dim = 128,
                          .eps = 1e-6f}}},
    {.name = "lfm2-350m",
     .arch = "lfm2",
     .layers = "CCFCCFCCFCFCFCFC",
     .config = {COMMON, EPS(1e-5), .n_vocab = 65536, .n_layers = 16, .n_embd = 1024, .n_ff = 4608,
                .n_heads = 16, .n_kv_heads = 8, .head_dim = 64, .n_context = 128000,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e6f), .conv_taps = 3}},
    {.name = "lfm2-1.2b",
     .arch = "lfm2",
     .layers = "CCFCCFCCFCFCFCFC",
     .config = {COMMON, EPS(1e-5), .n_vocab = 65536, .n_layers = 16, .n_embd = 2048, .n_ff = 8192,
                .n_heads = 32, .n_kv_heads = 8, .head_dim = 64, .n_context = 128000,
                .act = TERN_ACTIVATION_SILU, .rope = ROPE(64, 1e6f), .conv_taps = 3}},
    {.name = "gemma-3-270m",
     .arch = "gemma3",
     .layers = "WWWWWF",
     .config = {COMMON, EPS(1e-6), .n_vocab = 262144, .n_layers = 18, .n_embd = 640, .n_ff = 2048,
                .n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .n_context = 32768,
                .act = TERN_ACTIVATION_GELU_TANH, .rope = ROPE(256, 1e6f),
                .window_rope = ROPE(256, 1e4f), .window = 512, .query_scalar = 256}},
    {.name = "gemma-3-1b",
     .arch = "gemma3",
     .layers = "WWWWWF",
     .config = {COMMON, EPS(1e-6), .n_vocab = 262144, .n_layers = 26, .n_embd = 1152, .n_ff = 6912,
                .n_heads = 4, .n_kv_heads = 1, .head_dim = 256, .n_context = 32768,
                .act = TERN_ACTIVATION_GELU_TANH, .rope = ROPE(256, 1e6f),
                .window_rope = ROPE(256, 1e4f), .window = 512, .query_scalar = 256}},
    {.name = "gemma-4-e2b",
     .arch = "gemma4",
     .layers = "WWWWF",
     .config = {COMMON, EPS(1e-6), .n_vocab = 262144, .n_layers = 35, .n_embd = 1536, .n_ff = 6144,
                .n_heads = 8, .n_kv_heads = 1, .head_dim = 256, .full_head_dim = 512,
                .n_context = 131072, .act = TERN_ACTIVATION_GELU_TANH,
                .rope = {.n_rot = 512,
                         .halves = true,
                         .base = 1e6f,
                         .factor = 0.25f,
                         .scaling = TERN_ROPE_PROPORTIONAL},
                .window_rope = ROPE(256, 1e4f), .window = 512, .n_shared = 20, .n_per_layer = 256,
                .wide_shared = true, .score_cap = 30}},
    {.name = "falcon-h1-0.5b",
     .arch = "falcon-h1",
     .layers = "F",
     .config = {.bos_id = -1,
                .eos_id = -1,
                EPS(1e-5),
                .n_vocab = 32784,
                .n_layers = 36,
                .n_embd = 1024,
                .n_ff = 2048,
                .n_heads = 8,
                .n_kv_heads = 2,
                .head_dim = 64,
                .n_context = 16384,
                .act = TERN_ACTIVATION_SILU,
                .rope = ROPE(64, 1e11f),
                .embedding_scale = 5.6569,
                .logit_divisor = 25.6,
                .conv_taps = 4,
                .conv_bias = true,
                .ssm = {.n_heads = 24, .head_dim = 64, .n_groups = 1, .n_state = 128},
                .multipliers = {1.25,
                                0.9375,
                                {0.3536, 0.25, 0.3536, 0.5, 0.3536},
                                1,
                                0.9375,
                                0.39,
                                0.8838,
                                0.5859}}},
    {.name = "granite-4-h-350m",
     .arch = "granitehybrid",
     .layers = "MMMMMMMMMMfMMfMMMfMMMMMMMMMfMMMM",
     .config = {COMMON,
                EPS(1e-5),
                .n_vocab = 100352,
                .n_layers = 32,
                .n_embd = 768,
                .n_ff = 2048,
                .n_heads = 12,
                .n_kv_heads = 4,
                .head_dim = 64,
                .n_context = 32768,
                .act = TERN_ACTIVATION_SILU,
                .rope = ROPE(64, 1e4f),
                .embedding_scale = 12,
                .residual_scale = 0.246,
                .logit_divisor = 3,
                .query_scalar = 4096,
                .conv_taps = 4,
                .conv_bias = true,
                .ssm_norm = true,
                .ssm = {.n_heads = 48, .head_dim = 32, .n_groups = 1, .n_state = 128},
                .multipliers = {1, 1, {1, 1, 1, 1, 1}, 1, 1, 1, 1, 1}}},
    {.name = NULL},
};

const real_shape *real_shape_find(const char *name, size_t n_name) {
    for (const real_shape *s = real_shapes; s->name; s++)
        if (strlen(s->name) == n_name && strncmp(s->name, name, n_name) == 0) return s;
    return NULL;
}

static void narrow_config(tern_config *c, int n) {
    int64_t *const widths[] = {&c->n_embd, &c->n_ff, &c->head_dim, &c->full_head_dim,
                               &c->n_per_layer};
    int32_t *const small[] = {&c->rope.n_rot, &c->window_rope.n_rot, &c->delta.head_dim,
                              &c->delta.v_dim, &c->window};
    for (size_t i = 0; i < 5; i++) *widths[i] /= n;
    for (size_t i = 0; i < 5; i++) *small[i] /= n;
    if (n > 1) c->n_vocab = TINY_N_VOCAB;
}

const tern_arch *real_shape_arch(const real_shape *s) {
    size_t n;
    const tern_arch *const *list = tern_arch_list(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i]->name, s->arch) == 0) return list[i];
    return NULL;
}

tern_config real_shape_config(const real_shape *s) {
    static const char letters[] = "FWCDM"; // in the order of tern_layer_kind
    tern_config c = s->config;
    for (int64_t i = 0; i < c.n_layers; i++) {
        char letter = s->layers[(size_t)i % strlen(s->layers)];
        c.unrotated[i] = islower(letter) != 0;
        c.layers[i] = (uint8_t)(strchr(letters, toupper(letter)) - letters);
    }
    return c;
}

// ---- Numbers -----------------------------------------------------------------------------------

typedef struct shape_writer {
    tern_gguf_writer *w;
    const tern_arch *arch;
    tern_config c;
    tern_dtype type;
    uint64_t random;
    tern_error *err;
} shape_writer;

static uint64_t next_random(uint64_t *state) { // splitmix64
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

// The sum of four uniform numbers has a variance of 4 / 12: near enough to a normal one.
static float normal(uint64_t *state) {
    uint64_t r = next_random(state);
    uint32_t sum = (uint32_t)(r & 0xFFFF) + (uint32_t)(r >> 16 & 0xFFFF) +
                   (uint32_t)(r >> 32 & 0xFFFF) + (uint32_t)(r >> 48);
    return ((float)sum / 65536 - 2) * 1.7320508f;
}

// Any bytes are codes. A block is a scale and its codes, whose deviation is that of a uniform one.
static void random_blocks(shape_writer *s, tern_dtype type, size_t n, float deviation,
                          uint8_t *out) {
    size_t block = tern_dtype_block_bytes(type), bytes = n / tern_dtype_block_n(type) * block;
    uint16_t scale = tern_f32_to_f16(deviation / (type == TERN_DTYPE_Q8_0 ? 73.9f : 4.61f));
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t r = next_random(&s->random);
        memcpy(out + i, &r, bytes - i < 8 ? bytes - i : 8);
    }
    for (size_t i = 0; i < bytes; i += block) memcpy(out + i, &scale, sizeof scale);
}

#define PIECE 65536
static tern_status write_numbers(shape_writer *s, tern_dtype type, uint64_t n, float mean,
                                 float deviation) {
    float *x = tern_alloc_array(TERN_MEM_MISC, PIECE, sizeof *x);
    uint8_t *out = tern_alloc_array(TERN_MEM_MISC, PIECE, sizeof *x);
    tern_status status = x && out ? TERN_OK : tern_fail_memory(s->err, PIECE * sizeof *x);
    for (uint64_t left = n; status == TERN_OK && left > 0;) {
        uint64_t take = left < PIECE ? left : PIECE, bytes = 0;
        bool known = tern_dtype_bytes(type, take, take, &bytes);
        if (known && (type == TERN_DTYPE_Q8_0 || type == TERN_DTYPE_Q4_0)) {
            random_blocks(s, type, (size_t)take, deviation, out);
        } else if (known && tern_dtype_is_float(type)) {
            for (size_t i = 0; i < take; i++) x[i] = mean + deviation * normal(&s->random);
            known = tern_dtype_encode(type, x, (size_t)take, out);
        } else {
            known = false;
        }
        status = known ? tern_gguf_write(s->w, out, bytes, s->err)
                       : tern_fail(s->err, TERN_ERR_UNSUPPORTED, "a shape cannot be written in %s",
                                   tern_dtype_name(type));
        left -= take;
    }
    tern_free(x);
    tern_free(out);
    return status;
}

// ---- Tensors -----------------------------------------------------------------------------------

static tern_dtype type_of(const shape_writer *s, const tern_value *v) {
    tern_role role = tern_arch_role(s->arch, v->name);
    bool plain = role == TERN_ROLE_VECTOR || role == TERN_ROLE_FLOATS;
    return plain || v->cols % (int64_t)tern_dtype_block_n(s->type) ? TERN_DTYPE_F32 : s->type;
}

static tern_status declare(shape_writer *s, const tern_value *v) {
    uint64_t ne[2] = {(uint64_t)v->cols, (uint64_t)v->rows};
    return tern_gguf_declare(s->w, v->name, type_of(s, v), v->rows > 1 ? 2 : 1, ne);
}

// Weights keep the size of what they are multiplied with, norms and factors are near 1, what a
// delta net forgets with is below 0, and biases are small.
static tern_status write_value(shape_writer *s, const tern_value *v) {
    uint64_t n = (uint64_t)v->cols * (uint64_t)v->rows;
    bool factor = strstr(v->name, "norm") || strstr(v->name, "scale");
    float mean = factor ? 1 : strstr(v->name, "ssm_a") && v->rows == 1 ? -1 : 0;
    float deviation = v->rows > 1 ? 1 / sqrtf((float)v->cols) : 0.1f;
    return write_numbers(s, type_of(s, v), n, mean, deviation);
}

// Gemma 4's pairs that do not turn, as llama.cpp has them: an infinite divisor.
static tern_status rope_factors(shape_writer *s, bool declaring) {
    const tern_rope_attrs *r = &s->c.rope;
    uint64_t ne[1] = {(uint64_t)r->n_rot / 2};
    if (r->scaling != TERN_ROPE_PROPORTIONAL) return TERN_OK;
    if (declaring) return tern_gguf_declare(s->w, "rope_freqs.weight", TERN_DTYPE_F32, 1, ne);
    for (int i = 0; i < r->n_rot / 2; i++) {
        float factor = i < (int)((float)r->n_rot * r->factor) / 2 ? 1 : 1e30f;
        TERN_TRY(tern_gguf_write(s->w, &factor, sizeof factor, s->err));
    }
    return TERN_OK;
}

static tern_status put_all(shape_writer *s, const tern_graph *g, const char *name) {
    const char *arch = s->arch->gguf_names[0];
    TERN_TRY(tern_gguf_put_str(s->w, "general.architecture", (tern_str){arch, strlen(arch)}));
    TERN_TRY(tern_gguf_put_str(s->w, "general.name", (tern_str){name, strlen(name)}));
    TERN_TRY(tern_config_write_gguf(s->w, s->arch, arch, &s->c));
    TERN_TRY(tiny_model_put_tokenizer(s->w));
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < g->n_values; i++) {
            const tern_value *v = &g->values[i];
            if (v->kind != TERN_VALUE_WEIGHT) continue;
            TERN_TRY(pass == 0 ? declare(s, v) : write_value(s, v));
        }
        TERN_TRY(rope_factors(s, pass == 0));
    }
    return tern_gguf_writer_finish(s->w, s->err);
}

tern_status real_shape_write(const char *path, const real_shape *shape, tern_dtype type, int narrow,
                             unsigned seed, tern_error *err) {
    shape_writer s = {.arch = real_shape_arch(shape),
                      .c = real_shape_config(shape),
                      .type = type,
                      .random = seed,
                      .err = err};
    tern_graph g;
    narrow_config(&s.c, narrow);
    tern_graph_init(&g);
    tern_status status = tern_arch_build_main(&g, s.arch, &s.c, err);
    if (status == TERN_OK) status = tern_gguf_writer_open(&s.w, path, 0, err);
    if (status == TERN_OK) status = put_all(&s, &g, shape->name);
    tern_gguf_writer_free(s.w);
    tern_graph_free(&g);
    return status;
}
