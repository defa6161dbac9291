#include "tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "formats/formats.h"

// ---- Numbers: splitmix64, so that a seed gives the same file everywhere -------------------------

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static float normal(uint64_t *state) { // sum of twelve uniforms: near enough
    float sum = -6;
    for (int i = 0; i < 12; i++) sum += (float)(next_random(state) >> 40) * 0x1p-24f;
    return sum;
}

// ---- Tensors -----------------------------------------------------------------------------------

typedef struct writer {
    tern_gguf_writer *w;
    tiny_model_desc d;
    uint64_t random;
    bool declaring; // first pass: names and shapes; second pass: data
    tern_error *err;
} writer;

// Tensors are written in pieces of whole blocks, so that large ones need no memory.
#define PIECE 65536

static tern_status write_ternary_piece(writer *t, tern_dtype type, size_t n, float scale, int8_t *q,
                                       uint8_t *out) {
    for (size_t i = 0; i < n;) { // 42% zeros, as in trained BitNets; a byte decides each
        uint64_t r = next_random(&t->random);
        for (int k = 0; k < 8 && i < n; k++, i++, r >>= 8)
            q[i] = (r & 255) < 74 ? -1 : (r & 255) < 182 ? 0 : 1;
    }
    size_t block = tern_dtype_block_n(type), whole = (n + block - 1) / block * block;
    memset(q + n, 0, whole - n);
    tern_dtype_encode_ternary(type, q, whole, scale, out);
    return tern_gguf_write(t->w, out, whole / block * tern_dtype_block_bytes(type), t->err);
}

// Codes with a scale for each block, near the one that is wanted; a byte decides each number.
static tern_status write_grouped_piece(writer *t, tern_dtype type, size_t n, float scale, int8_t *q,
                                       uint8_t *out) {
    size_t block = tern_dtype_block_n(type), bytes = tern_dtype_block_bytes(type);
    bool one_bit = type == TERN_DTYPE_Q1_0, two_bits = block == 64 || type == TERN_DTYPE_PQ2_0;
    uint8_t *to = out;
    for (size_t first = 0; first < n; first += block, to += bytes) {
        float d = scale * (0.75f + (float)(next_random(&t->random) >> 40) * 0x1p-25f);
        for (size_t i = 0; i < block;) {
            uint64_t r = next_random(&t->random);
            for (int k = 0; k < 8; k++, i++, r >>= 8)
                q[i] = one_bit           ? (r & 1 ? 1 : -1)
                       : (r & 255) < 74  ? -1
                       : (r & 255) < 182 ? 0
                       : (r & 255) < 254 ? 1
                                         : 1 + two_bits;
        }
        tern_dtype_encode_group_codes(type, q, block, d, to);
    }
    return tern_gguf_write(t->w, out, n / block * bytes, t->err);
}

static tern_status write_float_piece(writer *t, tern_dtype type, size_t n, float mean,
                                     float deviation, float *x, uint8_t *out) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) x[i] = mean + deviation * normal(&t->random);
    if (!tern_dtype_bytes(type, n, n, &bytes) || !tern_dtype_encode(type, x, n, out))
        return tern_fail(t->err, TERN_ERR_UNSUPPORTED, "tiny model: cannot write %s",
                         tern_dtype_name(type));
    return tern_gguf_write(t->w, out, bytes, t->err);
}

static tern_status write_data(writer *t, tern_dtype type, size_t n, float mean, float deviation) {
    float *x = tern_alloc_array(TERN_MEM_MISC, PIECE + 256, sizeof *x);
    uint8_t *out = tern_alloc_array(TERN_MEM_MISC, PIECE + 256, sizeof(float));
    bool ternary = tern_dtype_is_ternary(type), grouped = !ternary && tern_dtype_group_n(type);
    tern_status status = x && out ? TERN_OK : tern_fail_memory(t->err, PIECE * sizeof *x);
    for (size_t left = n; status == TERN_OK && left > 0;) {
        size_t take = left < PIECE ? left : PIECE;
        status = grouped   ? write_grouped_piece(t, type, take, deviation * 1.3f, (int8_t *)x, out)
                 : ternary ? write_ternary_piece(t, type, take, deviation * 1.3f, (int8_t *)x, out)
                           : write_float_piece(t, type, take, mean, deviation, x, out);
        left -= take;
    }
    if (status == TERN_OK && type == TERN_DTYPE_I2_S)
        status = tern_gguf_write_i2_s_scale(t->w, deviation * 1.3f, t->err);
    tern_free(x);
    tern_free(out);
    return status;
}

static bool is_arch(const writer *t, const char *name) { return strcmp(t->d.arch, name) == 0; }

static tern_status vector(writer *t, const char *name, int n) {
    uint64_t ne[1] = {(uint64_t)n};
    if (t->declaring) return tern_gguf_declare(t->w, name, TERN_DTYPE_F32, 1, ne);
    return write_data(t, TERN_DTYPE_F32, (size_t)n, 1, 0.1f);
}

static tern_status matrix(writer *t, const char *name, tern_dtype type, int n_out, int n_in,
                          float deviation) {
    uint64_t ne[2] = {(uint64_t)n_in, (uint64_t)n_out};
    size_t n = (size_t)n_out * (size_t)n_in;
    if (t->declaring) return tern_gguf_declare(t->w, name, type, 2, ne);
    return write_data(t, type, n, 0, deviation);
}

// Rows of the embedding table. A readable model's rows are nearly zero except for spaces, letters
// and merges, so that as logits the others lose to those.
// Gemma's table is multiplied by sqrt(n_embd) where it is looked up.
static tern_status table(writer *t, const char *name) {
    int n = t->d.n_vocab;
    if (t->declaring || !t->d.readable)
        return matrix(t, name, t->d.head_type, n, t->d.n_embd, is_arch(t, "gemma3") ? 0.1f : 0.7f);
    for (int id = 0; id < n; id++) {
        int byte = id - 3;
        bool likely = byte == ' ' || (byte >= 'a' && byte <= 'z') || (id >= 259 && id < 267);
        float deviation = likely ? 0.2f : 0.01f;
        TERN_TRY(write_data(t, t->d.head_type, (size_t)t->d.n_embd, 0, deviation));
    }
    return TERN_OK;
}

#define NAME(text) (snprintf(name, sizeof name, "blk.%d." text ".weight", i), name)

// Of LFM2 every other layer, the first one too, is a short convolution.
static bool convolves(const writer *t, int i) { return is_arch(t, "lfm2") && i % 2 == 0; }

#define TAPS 3
static tern_status convolution(writer *t, int i) {
    const tiny_model_desc *d = &t->d;
    float s = 1 / sqrtf((float)d->n_embd);
    char name[64];
    TERN_TRY(matrix(t, NAME("shortconv.in_proj"), d->type, 3 * d->n_embd, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("shortconv.conv"), TERN_DTYPE_F32, d->n_embd, TAPS, 0.7f));
    return matrix(t, NAME("shortconv.out_proj"), d->type, d->n_embd, d->n_embd, s);
}

// Of Qwen3.5 every fourth layer, the last one too, is attention; the others have 16 heads of a
// delta net, for keys as for values.
static bool is_delta(const writer *t, int i) { return is_arch(t, "qwen35") && i % 4 != 3; }

#define DELTA_HEADS 16
#define DELTA_TAPS  4
static tern_status numbers(writer *t, const char *name, int n, float mean) {
    uint64_t ne[1] = {(uint64_t)n};
    if (t->declaring) return tern_gguf_declare(t->w, name, TERN_DTYPE_F32, 1, ne);
    return write_data(t, TERN_DTYPE_F32, (size_t)n, mean, 0.1f);
}

static tern_status delta_net(writer *t, int i) {
    const tiny_model_desc *d = &t->d;
    const tern_dtype floats = TERN_DTYPE_F32;
    float s = 1 / sqrtf((float)d->n_embd);
    char name[64], plain[64];
    TERN_TRY(matrix(t, NAME("attn_qkv"), d->type, 3 * d->n_embd, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("attn_gate"), d->type, d->n_embd, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("ssm_alpha"), floats, DELTA_HEADS, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("ssm_beta"), floats, DELTA_HEADS, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("ssm_conv1d"), floats, 3 * d->n_embd, DELTA_TAPS, 0.5f));
    snprintf(plain, sizeof plain, "blk.%d.ssm_a", i);
    TERN_TRY(numbers(t, plain, DELTA_HEADS, -1));
    snprintf(plain, sizeof plain, "blk.%d.ssm_dt.bias", i);
    TERN_TRY(numbers(t, plain, DELTA_HEADS, 0));
    TERN_TRY(vector(t, NAME("ssm_norm"), d->n_embd / DELTA_HEADS));
    return matrix(t, NAME("ssm_out"), d->type, d->n_embd, d->n_embd, s);
}

static int head_dim(const writer *t) {
    return t->d.head_dim ? t->d.head_dim : t->d.n_embd / t->d.n_heads;
}

static tern_status attention(writer *t, int i) {
    const tiny_model_desc *d = &t->d;
    bool sub_norms = strncmp(d->arch, "bitnet", 6) == 0;
    bool head_norms = !sub_norms && !is_arch(t, "llama");
    int dim = head_dim(t), kv = dim * d->n_kv_heads;
    int all = d->head_dim ? dim * d->n_heads : d->n_embd;
    float s = 1 / sqrtf((float)d->n_embd);
    char name[64];
    int q_rows = is_arch(t, "qwen35") ? 2 * all : all; // and gates
    TERN_TRY(matrix(t, NAME("attn_q"), d->type, q_rows, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("attn_k"), d->type, kv, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("attn_v"), d->type, kv, d->n_embd, s));
    if (head_norms) TERN_TRY(vector(t, NAME("attn_q_norm"), dim));
    if (head_norms) TERN_TRY(vector(t, NAME("attn_k_norm"), dim));
    if (sub_norms) TERN_TRY(vector(t, NAME("attn_sub_norm"), all));
    return matrix(t, NAME("attn_output"), d->type, d->n_embd, all, s);
}

static tern_status layer(writer *t, int i) {
    const tiny_model_desc *d = &t->d;
    bool sub_norms = strncmp(d->arch, "bitnet", 6) == 0, gemma = is_arch(t, "gemma3");
    bool qwen35 = is_arch(t, "qwen35");
    float s = 1 / sqrtf((float)d->n_embd), down = 1 / sqrtf((float)d->n_ff);
    char name[64];
    TERN_TRY(vector(t, NAME("attn_norm"), d->n_embd));
    TERN_TRY(convolves(t, i)  ? convolution(t, i)
             : is_delta(t, i) ? delta_net(t, i)
                              : attention(t, i));
    if (gemma || qwen35) TERN_TRY(vector(t, NAME("post_attention_norm"), d->n_embd));
    if (!qwen35) TERN_TRY(vector(t, NAME("ffn_norm"), d->n_embd));
    TERN_TRY(matrix(t, NAME("ffn_gate"), d->type, d->n_ff, d->n_embd, s));
    TERN_TRY(matrix(t, NAME("ffn_up"), d->type, d->n_ff, d->n_embd, s));
    if (sub_norms) TERN_TRY(vector(t, NAME("ffn_sub_norm"), d->n_ff));
    TERN_TRY(matrix(t, NAME("ffn_down"), d->type, d->n_embd, d->n_ff, down));
    return gemma ? vector(t, NAME("post_ffw_norm"), d->n_embd) : TERN_OK;
}
#undef NAME

static tern_status tensors(writer *t) {
    TERN_TRY(table(t, "token_embd.weight"));
    for (int i = 0; i < t->d.n_layers; i++) TERN_TRY(layer(t, i));
    TERN_TRY(vector(t, is_arch(t, "lfm2") ? "token_embd_norm.weight" : "output_norm.weight",
                    t->d.n_embd));
    if (!t->d.separate_head) return TERN_OK;
    return table(t, "output.weight");
}

// ---- Metadata ----------------------------------------------------------------------------------

static tern_status put_u32(writer *t, const char *name, int64_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", t->d.arch, name);
    return tern_gguf_put_int(t->w, key, TERN_META_U32, value);
}

// Layers of Gemma's see WINDOW positions, but for every other one, and have a RoPE of their own.
#define WINDOW 12
static tern_status put_delta(writer *t) {
    const tiny_model_desc *d = &t->d;
    TERN_TRY(put_u32(t, "attention.head_count_kv", d->n_kv_heads));
    TERN_TRY(put_u32(t, "full_attention_interval", 4));
    TERN_TRY(put_u32(t, "ssm.conv_kernel", DELTA_TAPS));
    TERN_TRY(put_u32(t, "ssm.state_size", d->n_embd / DELTA_HEADS));
    TERN_TRY(put_u32(t, "ssm.group_count", DELTA_HEADS));
    TERN_TRY(put_u32(t, "ssm.time_step_rank", DELTA_HEADS));
    return put_u32(t, "ssm.inner_size", d->n_embd);
}

// The names of all matrices but the table into list, or only their number.
static size_t list_rotated(const writer *t, tern_str *list, char (*text)[32]) {
    static const char *const usual[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
    static const char *const delta[] = {"attn_qkv", "attn_gate", "ssm_out"};
    static const char *const forward[] = {"ffn_gate", "ffn_up", "ffn_down"};
    size_t n = 0;
    for (int i = 0; i < t->d.n_layers; i++)
        for (int k = 0; k < 7; k++) {
            bool in_delta = is_delta(t, i);
            int n_mixer = in_delta ? 3 : 4;
            if (k - n_mixer >= 3) continue;
            const char *name = k >= n_mixer ? forward[k - n_mixer] : in_delta ? delta[k] : usual[k];
            if (list) {
                snprintf(text[n], sizeof text[n], "blk.%d.%s.weight", i, name);
                list[n] = (tern_str){text[n], strlen(text[n])};
            }
            n++;
        }
    return n;
}

// Random weights are as good rotated as not: what counts is the work.
static tern_status put_rotation(writer *t) {
    const tiny_model_desc *d = &t->d;
    size_t n = list_rotated(t, NULL, NULL), n_signs = (size_t)(d->n_embd + d->n_ff);
    tern_str *names = tern_alloc_array(TERN_MEM_MISC, n, sizeof *names), table = TERN_STR("");
    char(*text)[32] = tern_alloc_array(TERN_MEM_MISC, n, sizeof *text);
    int8_t *signs = tern_alloc(TERN_MEM_MISC, n_signs);
    const int32_t widths[2] = {d->n_embd, d->n_ff};
    tern_status status = names && text && signs ? TERN_OK : tern_fail_memory(t->err, n * 32);
    table = TERN_STR("token_embd.weight");
    for (size_t i = 0; signs && i < n_signs; i++) signs[i] = next_random(&t->random) & 1 ? 1 : -1;
    if (status == TERN_OK) list_rotated(t, names, text);
    TERN_TRY_GOTO(status);
    TERN_TRY_GOTO(tern_gguf_put_int(t->w, "prism.hadamard.version", TERN_META_U32, 2));
    TERN_TRY_GOTO(tern_gguf_put_int(t->w, "prism.hadamard.block_size", TERN_META_U32, d->rotation));
    TERN_TRY_GOTO(tern_gguf_put_str(t->w, "prism.hadamard.transform",
                                    TERN_STR("normalized-sylvester-walsh-hadamard")));
    TERN_TRY_GOTO(tern_gguf_put_str(t->w, "prism.hadamard.axis", TERN_STR("input-last-dimension")));
    TERN_TRY_GOTO(tern_gguf_put_str(t->w, "prism.hadamard.sign_mode", TERN_STR("explicit")));
    TERN_TRY_GOTO(
        tern_gguf_put_array(t->w, "prism.hadamard.sign_widths", TERN_META_I32, widths, 2));
    TERN_TRY_GOTO(
        tern_gguf_put_array(t->w, "prism.hadamard.sign_values", TERN_META_I8, signs, n_signs));
    TERN_TRY_GOTO(tern_gguf_put_strings(t->w, "prism.hadamard.weight_names", names, n));
    TERN_TRY_GOTO(tern_gguf_put_strings(t->w, "prism.hadamard.inverse_weight_names", &table, 1));
    TERN_TRY_GOTO(tern_gguf_put_int(t->w, "prism.hadamard.gdn_v_grouped", TERN_META_BOOL, 1));
fail:
    tern_free(names);
    tern_free(text);
    tern_free(signs);
    return status;
}

static tern_status put_family(writer *t) {
    const tiny_model_desc *d = &t->d;
    char key[96];
    int32_t heads[64];
    uint8_t windows[64];
    uint64_t n = (uint64_t)(d->n_layers < 64 ? d->n_layers : 64);
    for (int i = 0; i < (int)n; i++) {
        heads[i] = convolves(t, i) ? 0 : d->n_kv_heads;
        windows[i] = i % 2 == 0;
    }
    if (is_arch(t, "qwen35")) return put_delta(t);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", d->arch);
    if (!is_arch(t, "lfm2"))
        TERN_TRY(put_u32(t, "attention.head_count_kv", d->n_kv_heads));
    else
        TERN_TRY(tern_gguf_put_array(t->w, key, TERN_META_I32, heads, n));
    if (is_arch(t, "lfm2")) return put_u32(t, "shortconv.l_cache", TAPS);
    if (!is_arch(t, "gemma3")) return TERN_OK;
    TERN_TRY(put_u32(t, "attention.sliding_window", WINDOW));
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", d->arch);
    TERN_TRY(tern_gguf_put_array(t->w, key, TERN_META_BOOL, windows, n));
    snprintf(key, sizeof key, "%s.rope.freq_base_swa", d->arch);
    return tern_gguf_put_f32(t->w, key, 100);
}

static tern_status put_config(writer *t) {
    const tiny_model_desc *d = &t->d;
    char key[96];
    TERN_TRY(tern_gguf_put_str(t->w, "general.architecture", (tern_str){d->arch, strlen(d->arch)}));
    const char *name = t->d.name ? t->d.name : "tiny seeded model";
    TERN_TRY(tern_gguf_put_str(t->w, "general.name", (tern_str){name, strlen(name)}));
    TERN_TRY(put_u32(t, "vocab_size", d->n_vocab));
    TERN_TRY(put_u32(t, "context_length", d->n_context));
    TERN_TRY(put_u32(t, "embedding_length", d->n_embd));
    TERN_TRY(put_u32(t, "block_count", d->n_layers));
    TERN_TRY(put_u32(t, "feed_forward_length", d->n_ff));
    TERN_TRY(put_u32(t, "attention.head_count", d->n_heads));
    TERN_TRY(put_family(t));
    TERN_TRY(put_u32(t, "attention.key_length", head_dim(t)));
    if (d->head_dim) TERN_TRY(put_u32(t, "attention.value_length", head_dim(t)));
    int n_rot = head_dim(t) / (is_arch(t, "qwen35") ? 4 : 1);
    TERN_TRY(put_u32(t, "rope.dimension_count", n_rot));
    if (d->rotation) TERN_TRY(put_rotation(t));
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", d->arch);
    TERN_TRY(tern_gguf_put_f32(t->w, key, 1e-5f));
    snprintf(key, sizeof key, "%s.rope.freq_base", d->arch);
    return tern_gguf_put_f32(t->w, key, 10000);
}

// GPT-2's alphabet: printable bytes stand for themselves, the others for U+0100 and up, in order.
static int byte_character(int byte, char out[4]) {
    uint32_t shifted = 0x100;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
        if (b == byte) return tern_utf8_encode(printable ? (uint32_t)b : shifted, out);
        if (!printable) shifted++;
    }
    return 0;
}

tern_status tiny_model_put_tokenizer(tern_gguf_writer *w) {
    static char text[TINY_N_VOCAB][16], merge_text[TINY_N_VOCAB][16];
    static const char *const pairs[] = {"t h", "th e", "a n", "an d", "i n", "e r", "o n", "r e"};
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    tern_str tokens[TINY_N_VOCAB], merges[8];
    int32_t types[TINY_N_VOCAB];
    for (int i = 0; i < TINY_N_VOCAB; i++) {
        types[i] = i < 3 ? 3 : 1;
        if (i < 3)
            snprintf(text[i], sizeof text[i], "%s", special[i]);
        else if (i < 259)
            text[i][byte_character(i - 3, text[i])] = 0;
        else if (i < 267) {
            const char *pair = pairs[i - 259], *gap = strchr(pair, ' ');
            snprintf(merge_text[i], sizeof merge_text[i], "%s", pair);
            snprintf(text[i], sizeof text[i], "%.*s%s", (int)(gap - pair), pair, gap + 1);
            merges[i - 259] = (tern_str){merge_text[i], strlen(merge_text[i])};
        } else {
            snprintf(text[i], sizeof text[i], "<unused%d>", i - 267);
            types[i] = 5;
        }
        tokens[i] = (tern_str){text[i], strlen(text[i])};
    }
    TERN_TRY(tern_gguf_put_str(w, "tokenizer.ggml.model", TERN_STR("gpt2")));
    TERN_TRY(tern_gguf_put_str(w, "tokenizer.ggml.pre", TERN_STR("gpt-2")));
    TERN_TRY(tern_gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, TINY_N_VOCAB));
    TERN_TRY(
        tern_gguf_put_array(w, "tokenizer.ggml.token_type", TERN_META_I32, types, TINY_N_VOCAB));
    TERN_TRY(tern_gguf_put_strings(w, "tokenizer.ggml.merges", merges, 8));
    TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.bos_token_id", TERN_META_U32, 0));
    TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.eos_token_id", TERN_META_U32, 0));
    return tern_gguf_put_int(w, "tokenizer.ggml.add_bos_token", TERN_META_BOOL, 1);
}

// ---- The whole ---------------------------------------------------------------------------------

static int or_default(int value, int otherwise) { return value ? value : otherwise; }

tern_status tiny_model_write(const char *path, const tiny_model_desc *desc, tern_error *err) {
    writer t = {.d = *desc, .declaring = true, .err = err};
    t.random = desc->seed * 0x9E3779B9u + 1;
    if (!t.d.arch) t.d.arch = "bitnet-b1.58";
    if (t.d.type == TERN_DTYPE_F32 && strncmp(t.d.arch, "bitnet", 6) == 0)
        t.d.type = TERN_DTYPE_I2_S;
    t.d.n_layers = or_default(t.d.n_layers, 2);
    t.d.n_embd = or_default(t.d.n_embd, 128);
    t.d.n_ff = or_default(t.d.n_ff, 384);
    t.d.n_heads = or_default(t.d.n_heads, 4);
    t.d.n_kv_heads = or_default(t.d.n_kv_heads, 2);
    t.d.n_context = or_default(t.d.n_context, 512);
    if (t.d.n_vocab < TINY_N_VOCAB) t.d.n_vocab = TINY_N_VOCAB;
    tern_status status = tern_gguf_writer_open(&t.w, path, desc->split_bytes, err);
    if (status == TERN_OK) status = put_config(&t);
    if (status == TERN_OK) status = tiny_model_put_tokenizer(t.w);
    if (status == TERN_OK) status = tensors(&t);
    t.declaring = false;
    if (status == TERN_OK) status = tensors(&t);
    if (status == TERN_OK) status = tern_gguf_writer_finish(t.w, err);
    tern_gguf_writer_free(t.w);
    return status;
}

// ---- Adapters ----------------------------------------------------------------------------------

typedef struct adapted_matrix { // of the tiny models: 128 wide, keys of 64 columns
    const char *name;
    int n_out, n_in;
} adapted_matrix;
static const adapted_matrix adapted[] = {{"blk.0.attn_q.weight", 128, 128},
                                         {"blk.0.attn_k.weight", 64, 128},
                                         {"blk.1.attn_output.weight", 128, 128},
                                         {"blk.1.ffn_up.weight", 384, 128},
                                         {"blk.0.ffn_down.weight", 128, 384}};
#define N_MATRICES (sizeof adapted / sizeof *adapted)

static bool write_numbers(tern_gguf_writer *w, size_t n, int seed, tern_error *err) {
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] =
            ((float)((uint32_t)(seed * 7919 + (int)i * 104729 + 1) * 2654435761u >> 8) * 0x1p-24f -
             0.5f) *
            0.4f;
    bool ok = tern_gguf_write(w, x, n * sizeof *x, err) == TERN_OK;
    free(x);
    return ok;
}

tern_status tiny_adapter_write(const char *path, const char *arch, int rank, int seed,
                               tern_error *err) {
    tern_gguf_writer *w;
    char name[80];
    TERN_TRY(tern_gguf_writer_open(&w, path, 0, err));
    bool ok = true;
    tern_gguf_put_str(w, "general.type", TERN_STR("adapter"));
    tern_gguf_put_str(w, "general.architecture", (tern_str){arch, strlen(arch)});
    tern_gguf_put_str(w, "adapter.type", TERN_STR("lora"));
    tern_gguf_put_f32(w, "adapter.lora.alpha", (float)(3 * rank));
    const uint64_t r = (uint64_t)rank;
    for (int is_told = 0; is_told < 2; is_told++)
        for (size_t i = 0; i < N_MATRICES; i++) {
            const adapted_matrix *m = &adapted[i];
            const uint64_t n_in = (uint64_t)m->n_in, n_out = (uint64_t)m->n_out;
            if (i > 0 && (int)i % 2 != seed % 2) continue;
            if (is_told) {
                ok &= write_numbers(w, rank * (size_t)m->n_in, seed, err);
                ok &= write_numbers(w, rank * (size_t)m->n_out, seed + 1, err);
                continue;
            }
            snprintf(name, sizeof name, "%s.lora_a", m->name);
            tern_gguf_declare(w, name, TERN_DTYPE_F32, 2, (uint64_t[]){n_in, r});
            snprintf(name, sizeof name, "%s.lora_b", m->name);
            tern_gguf_declare(w, name, TERN_DTYPE_F32, 2, (uint64_t[]){r, n_out});
        }
    ok &= tern_gguf_writer_finish(w, err) == TERN_OK;
    tern_gguf_writer_free(w);
    return ok ? TERN_OK : err->status;
}
