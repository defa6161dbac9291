// Packed matrices of folders: every layout is written here bit by bit, from its program's
// documentation, and must decode to the original numbers.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "formats/formats.h"
#include "tests/support/harness.h"

// ---- A folder under construction ---------------------------------------------------------------

typedef struct folder {
    char header[8192];
    uint8_t data[1 << 18];
    size_t n_header, n;
} folder;
static folder made;

static void *add(const char *name, const char *dtype, size_t outer, size_t inner, size_t bytes) {
    uint8_t *at = made.data + made.n;
    made.n_header += (size_t)snprintf(
        made.header + made.n_header, sizeof made.header - made.n_header,
        "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu,%zu],\"data_offsets\":[%zu,%zu]}",
        made.n_header ? ',' : '{', name, dtype, outer, inner, made.n, made.n + bytes);
    if (inner == 0) { // a vector: "[n,0]" becomes "[n]"
        char *end = strstr(made.header + made.n_header - 60, ",0],");
        memmove(end, end + 2, strlen(end + 2) + 1);
        made.n_header -= 2;
    }
    memset(at, 0, bytes);
    made.n += bytes;
    return at;
}

static const char *write_folder(const char *config) {
    static char path[400], file[440];
    snprintf(path, sizeof path, "%s", test_tmp("packed"));
    test_folder(path);
    snprintf(file, sizeof file, "%s/config.json", path);
    FILE *f = fopen(file, "wb");
    fputs(config, f);
    fclose(f);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    made.header[made.n_header++] = '}';
    while (made.n_header % 8) made.header[made.n_header++] = ' ';
    uint64_t n = made.n_header;
    f = fopen(file, "wb");
    fwrite(&n, 8, 1, f);
    fwrite(made.header, 1, made.n_header, f);
    fwrite(made.data, 1, made.n, f);
    fclose(f);
    return path;
}

// ---- Numbers -----------------------------------------------------------------------------------

enum { ROWS = 160, COLS = 192 };
static unsigned mixed(unsigned a, unsigned b, unsigned salt) {
    unsigned h = (a * 2654435761u) ^ (b * 40503u + salt * 97u);
    return (h ^ h >> 13) * 2246822519u >> 12;
}
static unsigned code_of(size_t r, size_t c) { return mixed((unsigned)r, (unsigned)c, 1); }
static float scale_of(size_t r, size_t g) {
    float s = (float)(8 + mixed((unsigned)r, (unsigned)g, 2) % 9) / 256;
    return mixed((unsigned)r, (unsigned)g, 3) % 4 ? s : -s;
}
static float bias_of(size_t r, size_t g) {
    return (float)((int)(mixed((unsigned)r, (unsigned)g, 4) % 65) - 32) / 128;
}
static unsigned zero_of(size_t r, size_t g) { return mixed((unsigned)r, (unsigned)g, 5); }

// A field of `bits` in a run of words that are `stride` apart, bit by bit.
static void put_bits(uint32_t *words, size_t stride, size_t field, int bits, unsigned value) {
    for (int b = 0; b < bits; b++) {
        size_t at = field * (size_t)bits + (size_t)b;
        if (value >> b & 1) words[at / 32 * stride] |= 1u << at % 32;
    }
}

static void put_half(void *list, size_t i, float x) {
    uint16_t h = tern_f32_to_f16(x);
    memcpy((uint8_t *)list + 2 * i, &h, 2);
}

// ---- What is written, and what must come out ---------------------------------------------------

typedef enum written {
    MLX,
    MLX_TERNARY,
    MLX_ONE_BIT,
    MXFP4,
    NVFP4,
    MXFP8,
    GPTQ,
    GPTQ_ORDER,
    AWQ,
    AWQ_ROWS,
    PACKED,
    PACKED_ZERO,
    PACKED_ORDER,
    INT8,
    INT8_ZERO,
    FP8_ROW,
    FP8_ALL,
    FP8_BLOCKS
} written;

typedef struct packing {
    const char *config;
    written how;
    int bits;
    size_t cols, group; // group 0: all columns
    tern_dtype type;
} packing;

static bool scattered(written how) { return how == GPTQ_ORDER || how == PACKED_ORDER; }
static size_t group_of(const packing *p, size_t c) {
    size_t group = p->group ? p->group : p->cols, n = p->cols / group;
    return scattered(p->how) ? (c * 7 + c / 5) % n : c / group;
}

static void write_mlx(const packing *p) {
    size_t n = p->cols / p->group, words = p->cols * (size_t)p->bits / 32;
    uint32_t *w = add("m.x.weight", "U32", ROWS, words, ROWS * words * 4);
    uint8_t *s = add("m.x.scales", "F16", ROWS, n, ROWS * n * 2);
    uint8_t *b = add("m.x.biases", "F16", ROWS, n, ROWS * n * 2);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < p->cols; c++) put_bits(w + r * words, 1, c, p->bits, code_of(r, c));
        for (size_t g = 0; g < n; g++) {
            float d = scale_of(r, g);
            put_half(s, r * n + g, p->how == MLX_ONE_BIT ? 2 * d : d);
            put_half(b, r * n + g, p->how == MLX ? bias_of(r, g) : -d);
        }
    }
}

static void write_mlx_floats(const packing *p) {
    int bits = p->how == MXFP8 ? 8 : 4;
    size_t n = p->cols / p->group, words = p->cols * (size_t)bits / 32;
    uint32_t *w = add("m.x.weight", "U32", ROWS, words, ROWS * words * 4);
    uint8_t *s = add("m.x.scales", "U8", ROWS, n, ROWS * n);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < p->cols; c++)
            put_bits(w + r * words, 1, c, bits, code_of(r, c) % 120);
        for (size_t g = 0; g < n; g++) s[r * n + g] = (uint8_t)(100 + zero_of(r, g) % 20);
    }
}

static void write_gptq(const packing *p) {
    bool v1 = !strstr(p->config, "gptq_v2");
    size_t group = p->group ? p->group : p->cols, n = p->cols / group, bits = (size_t)p->bits;
    uint32_t *w = add("m.x.qweight", "I32", p->cols * bits / 32, ROWS, p->cols * bits / 8 * ROWS);
    uint32_t *z = add("m.x.qzeros", "I32", n, ROWS * bits / 32, n * ROWS * bits / 8);
    uint8_t *s = add("m.x.scales", "F16", n, ROWS, n * ROWS * 2);
    int32_t *order = add("m.x.g_idx", "I32", p->cols, 0, p->cols * 4);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < p->cols; c++) put_bits(w + r, ROWS, c, p->bits, code_of(r, c));
        for (size_t g = 0; g < n; g++) {
            put_bits(z + g * (ROWS * bits / 32), 1, r, p->bits, zero_of(r, g) - v1);
            put_half(s, g * ROWS + r, scale_of(r, g));
        }
    }
    for (size_t c = 0; c < p->cols; c++) order[c] = (int32_t)group_of(p, c);
}

static void write_awq(const packing *p) {
    static const size_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7}; // nibble i holds output order[i]
    size_t n = p->cols / p->group;
    uint32_t *w = add("m.x.qweight", "I32", p->cols, ROWS / 8, p->cols * ROWS / 2);
    uint32_t *z = add("m.x.qzeros", "I32", n, ROWS / 8, n * ROWS / 2);
    uint8_t *s = add("m.x.scales", "F16", n, ROWS, n * ROWS * 2);
    for (size_t at = 0; at < ROWS; at++) {
        size_t r = at / 8 * 8 + order[at % 8];
        for (size_t c = 0; c < p->cols; c++) put_bits(w + c * (ROWS / 8), 1, at, 4, code_of(r, c));
        for (size_t g = 0; g < n; g++) {
            put_bits(z + g * (ROWS / 8), 1, at, 4, zero_of(r, g));
            put_half(s, g * ROWS + r, scale_of(r, g));
        }
    }
}

static void write_awq_rows(const packing *p) {
    size_t n = p->cols / p->group, zw = 2, words = p->cols / 8; // with padding
    uint32_t *w = add("m.x.qweight", "I32", ROWS, words, ROWS * words * 4);
    uint32_t *z = add("m.x.qzeros", "I32", ROWS, zw, ROWS * zw * 4);
    uint8_t *s = add("m.x.scales", "F16", ROWS, zw * 8, ROWS * zw * 8 * 2);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < p->cols; c++) put_bits(w + r * words, 1, c, 4, code_of(r, c));
        for (size_t g = 0; g < n; g++) {
            put_bits(z + r * zw, 1, g, 4, zero_of(r, g));
            put_half(s, r * zw * 8 + g, scale_of(r, g));
        }
    }
}

static void write_packed(const packing *p) {
    size_t group = p->group ? p->group : p->cols, n = p->cols / group, bits = (size_t)p->bits;
    size_t words = (p->cols * bits + 31) / 32;
    uint32_t *w = add("m.x.weight_packed", "I32", ROWS, words, ROWS * words * 4);
    int64_t *shape = add("m.x.weight_shape", "I64", 2, 0, 16);
    uint8_t *s = add("m.x.weight_scale", "F16", ROWS, n, ROWS * n * 2);
    uint32_t *z = NULL;
    int32_t *order = NULL;
    if (p->how == PACKED_ZERO)
        z = add("m.x.weight_zero_point", "I32", ROWS * bits / 32, n, ROWS * bits / 8 * n);
    if (p->how == PACKED_ORDER) order = add("m.x.weight_g_idx", "I32", p->cols, 0, p->cols * 4);
    shape[0] = ROWS;
    shape[1] = (int64_t)p->cols;
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < p->cols; c++) put_bits(w + r * words, 1, c, p->bits, code_of(r, c));
        for (size_t g = 0; g < n; g++) {
            if (z) put_bits(z + g, n, r, p->bits, zero_of(r, g));
            put_half(s, r * n + g, scale_of(r, g));
        }
    }
    for (size_t c = 0; order && c < p->cols; c++) order[c] = (int32_t)group_of(p, c);
}

static void write_bytes(const packing *p) {
    bool fp8 = p->how >= FP8_ROW;
    uint8_t *w = add("m.x.weight", fp8 ? "F8_E4M3" : "I8", ROWS, p->cols, ROWS * p->cols);
    uint8_t *s;
    if (p->how == FP8_ALL) {
        put_half(add("m.x.weight_scale", "F16", 1, 0, 2), 0, scale_of(0, 0));
    } else if (p->how == FP8_BLOCKS) {
        size_t n = (p->cols + 127) / 128, rows = (ROWS + 127) / 128;
        s = add("m.x.weight_scale_inv", "F16", rows, n, rows * n * 2);
        for (size_t i = 0; i < rows * n; i++) put_half(s, i, scale_of(i / n, i % n));
    } else {
        s = add("m.x.weight_scale", "F16", ROWS, 1, ROWS * 2);
        for (size_t r = 0; r < ROWS; r++) put_half(s, r, scale_of(r, 0));
    }
    int8_t *z = p->how == INT8_ZERO ? add("m.x.weight_zero_point", "I8", ROWS, 1, ROWS) : NULL;
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < p->cols; c++)
            w[r * p->cols + c] = (uint8_t)(fp8 ? code_of(r, c) % 120 : code_of(r, c));
        if (z) z[r] = (int8_t)zero_of(r, 0);
    }
}

static void write_all(const packing *p) {
    made.n_header = made.n = 0;
    switch (p->how) {
    case MLX:
    case MLX_TERNARY:
    case MLX_ONE_BIT: write_mlx(p); break;
    case MXFP4:
    case NVFP4:
    case MXFP8: write_mlx_floats(p); break;
    case GPTQ:
    case GPTQ_ORDER: write_gptq(p); break;
    case AWQ: write_awq(p); break;
    case AWQ_ROWS: write_awq_rows(p); break;
    case PACKED:
    case PACKED_ZERO:
    case PACKED_ORDER: write_packed(p); break;
    default: write_bytes(p);
    }
}

static double e4m3(unsigned b) { // b < 0x78: positive
    return b < 8 ? ldexp(b, -9) : ldexp(8 + b % 8, (int)(b / 8) - 10);
}

// By the formulas of the programs, in double.
static double number_of(const packing *p, size_t r, size_t c) {
    static const double e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    size_t g = group_of(p, c);
    unsigned mask = (1u << p->bits) - 1, code = code_of(r, c) & mask, byte = code_of(r, c) % 120;
    double s = (double)scale_of(r, g), power = ldexp(1, (int)(100 + zero_of(r, g) % 20) - 127);
    double nibble = (byte & 8 ? -1 : 1) * e2m1[byte & 7];
    switch (p->how) {
    case MLX: return s * code + (double)bias_of(r, g);
    case MLX_TERNARY: return s * ((double)code - 1);
    case MLX_ONE_BIT: return code ? s : -s;
    case MXFP4: return power * nibble;
    case NVFP4: return e4m3(100 + zero_of(r, g) % 20) * nibble;
    case MXFP8: return power * e4m3(byte);
    case GPTQ:
    case GPTQ_ORDER:
    case AWQ:
    case AWQ_ROWS:
    case PACKED_ZERO: return s * ((double)code - (double)(zero_of(r, g) & mask));
    case PACKED:
    case PACKED_ORDER: return s * ((double)code - (1 << (p->bits - 1)));
    case INT8: return s * (double)(int8_t)code_of(r, c);
    case INT8_ZERO: return s * ((double)(int8_t)code_of(r, c) - (double)(int8_t)zero_of(r, 0));
    case FP8_ROW: return s * e4m3(byte);
    case FP8_ALL: return (double)scale_of(0, 0) * e4m3(byte);
    default: return (double)scale_of(r / 128, c / 128) * e4m3(byte);
    }
}

#define QUANT(text)  "{\"quantization_config\":{" text "}}"
#define METHOD(name) "\"quant_method\":\"" name "\""
#define CT           METHOD("compressed-tensors") ",\"format\":"
static const packing packings[] = {
    {"{\"quantization\":{\"group_size\":64,\"bits\":4}}", MLX, 4, 192, 64, TERN_DTYPE_G4_64},
    {"{\"quantization\":{\"group_size\":64,\"bits\":4,\"m.x\":{\"group_size\":32,\"bits\":3}}}",
     MLX, 3, 192, 32, TERN_DTYPE_G4_32},
    {QUANT("\"group_size\":64,\"bits\":5"), MLX, 5, 192, 64, TERN_DTYPE_G8_64},
    {"{\"quantization\":{\"group_size\":128,\"bits\":6}}", MLX, 6, 256, 128, TERN_DTYPE_G8_128},
    {"{\"quantization\":{\"group_size\":32,\"bits\":8}}", MLX, 8, 96, 32, TERN_DTYPE_G8_32},
    {"{\"quantization\":{\"group_size\":128,\"bits\":2}}", MLX, 2, 256, 128, TERN_DTYPE_G4_128},
    {"{\"quantization\":{\"group_size\":128,\"bits\":2}}", MLX_TERNARY, 2, 256, 128,
     TERN_DTYPE_PQ2_0},
    {"{\"quantization\":{\"group_size\":64,\"bits\":2}}", MLX_TERNARY, 2, 192, 64, TERN_DTYPE_Q2_0},
    {"{\"quantization\":{\"group_size\":128,\"bits\":1}}", MLX_ONE_BIT, 1, 256, 128,
     TERN_DTYPE_Q1_0},
    {"{\"quantization\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"}}", MXFP4, 8, 192, 32,
     TERN_DTYPE_MXFP4},
    {"{\"quantization\":{\"group_size\":16,\"bits\":4,\"mode\":\"nvfp4\"}}", NVFP4, 8, 192, 16,
     TERN_DTYPE_F16},
    {"{\"quantization\":{\"group_size\":32,\"bits\":8,\"mode\":\"mxfp8\"}}", MXFP8, 8, 192, 32,
     TERN_DTYPE_F8_32},
    {QUANT(METHOD("gptq") ",\"bits\":4,\"group_size\":64"), GPTQ, 4, 192, 64, TERN_DTYPE_G4_64},
    {QUANT(METHOD("gptq") ",\"bits\":2,\"group_size\":32"), GPTQ, 2, 192, 32, TERN_DTYPE_G4_32},
    {QUANT(METHOD("gptq") ",\"bits\":3,\"group_size\":-1"), GPTQ, 3, 192, 0, TERN_DTYPE_G4_64},
    {QUANT(METHOD("gptq") ",\"bits\":8,\"group_size\":96,\"checkpoint_format\":\"gptq_v2\""), GPTQ,
     8, 192, 96, TERN_DTYPE_G8_32},
    {QUANT(METHOD("gptq") ",\"bits\":4,\"group_size\":64,\"desc_act\":true"), GPTQ_ORDER, 4, 192,
     64, TERN_DTYPE_F32},
    {QUANT(METHOD("auto-round") ",\"packing_format\":\"auto_round:auto_gptq\",\"group_size\":64"),
     GPTQ, 4, 192, 64, TERN_DTYPE_G4_64},
    {QUANT(METHOD("awq") ",\"bits\":4,\"group_size\":64,\"version\":\"gemm\""), AWQ, 4, 192, 64,
     TERN_DTYPE_G4_64},
    {QUANT(METHOD("awq") ",\"w_bit\":4,\"q_group_size\":32"), AWQ, 4, 192, 32, TERN_DTYPE_G4_32},
    {QUANT(METHOD("awq") ",\"bits\":4,\"group_size\":64,\"version\":\"gemv\""), AWQ_ROWS, 4, 192,
     64, TERN_DTYPE_G4_64},
    {QUANT(CT "\"pack-quantized\""), PACKED, 4, 192, 64, TERN_DTYPE_G4_64},
    {QUANT(CT "\"pack-quantized\""), PACKED, 8, 192, 0, TERN_DTYPE_G8_64},
    {QUANT(CT "\"pack-quantized\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":8}},"
              "\"b\":{\"weights\":{\"num_bits\":3}}}"),
     PACKED, 3, 24, 0, TERN_DTYPE_F32}, // as many words as with 4 bits
    {QUANT(CT "\"pack-quantized\""), PACKED_ZERO, 4, 192, 32, TERN_DTYPE_G4_32},
    {QUANT(CT "\"pack-quantized\""), PACKED_ORDER, 4, 192, 64, TERN_DTYPE_F32},
    {QUANT(CT "\"int-quantized\""), INT8, 8, 192, 0, TERN_DTYPE_G8_64},
    {QUANT(CT "\"int-quantized\""), INT8_ZERO, 8, 192, 0, TERN_DTYPE_G8_64},
    {QUANT(CT "\"int-quantized\""), INT8, 8, 100, 0, TERN_DTYPE_F32}, // not whole blocks
    {QUANT(CT "\"float-quantized\""), FP8_ROW, 8, 192, 0, TERN_DTYPE_F8_64},
    {QUANT(METHOD("fp8")), FP8_ALL, 8, 256, 0, TERN_DTYPE_F8_128},
    {QUANT(METHOD("fp8") ",\"weight_block_size\":[128,128]"), FP8_BLOCKS, 8, 192, 128,
     TERN_DTYPE_F8_64},
};
enum { N_PACKINGS = sizeof packings / sizeof *packings };

static void check_numbers(const packing *p, size_t i, const tern_tensor *t) {
    static float got[ROWS * 256];
    tern_error err = {0};
    size_t n_bad = 0;
    REQUIRE(t->ne[0] == p->cols && t->ne[1] == ROWS && t->n_dims == 2);
    REQUIRE_OK(tern_tensor_decode(t, got, &err), err);
    for (size_t k = 0; k < ROWS * p->cols; k++)
        n_bad += (double)got[k] != number_of(p, k / p->cols, k % p->cols);
    CHECK_MSG(n_bad == 0, "case %zu: %zu of %zu numbers", i, n_bad, (size_t)ROWS * p->cols);
}

// All numbers here are exact in float32. Seen to fail: zeros of GPTQ's first version without the
// mask or without the 1, another row of a block of scales, a code that straddles words cut off.
TEST(packed_matrices_are_the_numbers_that_were_packed) {
    for (size_t i = 0; i < N_PACKINGS; i++) {
        const packing *p = &packings[i];
        tern_file *f = NULL;
        tern_error err = {0};
        write_all(p);
        REQUIRE_OK(tern_file_open(&f, write_folder(p->config), &err), err);
        const tern_tensor *t = tern_file_tensor(f, "m.x.weight");
        CHECK_MSG(t && t->type == p->type && f->n_tensors == 1 && f->packing,
                  "case %zu: %s, %zu tensors: %s", i, t ? tern_dtype_name(t->type) : "none",
                  f->n_tensors, f->cannot_unpack ? f->cannot_unpack : "");
        if (t && t->type == p->type) check_numbers(p, i, t);
        tern_file_close(f);
    }
}

// Pieces that begin and end anywhere are parts of the whole. Seen to fail: rows counted from the
// matrix's first although only a piece's are held; a piece from inside a row taken from the row's
// beginning.
TEST(packed_bytes_do_not_depend_on_where_they_are_taken) {
    static uint8_t whole[1 << 19], piece[5000];
    for (size_t i = 0; i < N_PACKINGS; i += 3) {
        tern_file *f = NULL;
        tern_error err = {0};
        write_all(&packings[i]);
        REQUIRE_OK(tern_file_open(&f, write_folder(packings[i].config), &err), err);
        const tern_tensor *t = tern_file_tensor(f, "m.x.weight");
        REQUIRE(t && t->bytes <= sizeof whole);
        REQUIRE_OK(tern_blob_read(&t->data, 0, t->bytes, whole, &err), err);
        for (uint64_t at = 0, n; at < t->bytes; at += n / 2 + 1) {
            n = 1 + mixed((unsigned)at, (unsigned)i, 6) % sizeof piece;
            if (n > t->bytes - at) n = t->bytes - at;
            tern_blob part = tern_blob_part(&t->data, at, n);
            REQUIRE_OK(tern_blob_read(&part, 0, n, piece, &err), err);
            CHECK_MSG(memcmp(piece, whole + at, n) == 0, "case %zu: %llu bytes at %llu", i,
                      (unsigned long long)n, (unsigned long long)at);
        }
        tern_file_close(f);
    }
}

// Older folders have the settings in separate files. Seen to fail: when these were not read.
TEST(packed_settings_may_lie_beside_the_config) {
    static const struct {
        const char *name, *text;
        size_t packing;
    } cases[] = {{"quantize_config.json", "{\"bits\": 4, \"group_size\": 64}", 12},
                 {"quant_config.json", "{\"w_bit\": 4, \"q_group_size\": 64}", 18},
                 {"other.json", "{}", 12}};
    for (size_t i = 0; i < 3; i++) {
        const packing *p = &packings[cases[i].packing];
        char side[440];
        tern_file *f = NULL;
        tern_error err = {0};
        write_all(p);
        const char *path = write_folder("{\"model_type\": \"llama\"}");
        snprintf(side, sizeof side, "%s/%s", path, cases[i].name);
        REQUIRE_OK(tern_file_write(side, cases[i].text, strlen(cases[i].text), &err), err);
        REQUIRE_OK(tern_file_open(&f, path, &err), err);
        const tern_tensor *t = tern_file_tensor(f, "m.x.weight");
        CHECK((t != NULL) == (i < 2) && (f->cannot_unpack != NULL) == (i == 2));
        if (t) check_numbers(p, i, t);
        tern_file_close(f);
        remove(side);
    }
}

// ---- What is wrong -----------------------------------------------------------------------------

static void damage(const char *tensor, const char *old, const char *other) {
    char *at = strstr(made.header, tensor);
    at = at ? strstr(at, old) : NULL;
    test_check(at && strlen(old) == strlen(other), __FILE__, __LINE__, "%s: no %s", tensor, old);
    if (at) memcpy(at, other, strlen(other));
}

TEST(packed_matrices_are_refused_in_one_line) {
    static const struct {
        size_t packing;
        const char *config, *tensor, *old, *other, *says;
        bool opens; // and can be listed
    } cases[] = {
        {0, NULL, "m.x.scales", "[160,3]", "[80,6] ", "m.x.scales", false},
        {0, NULL, "m.x.biases", "biases", "biasis", "mode \"\"", true},
        {0, "{\"quantization\":{\"group_size\":64,\"bits\":7}}", NULL, "", "", "of 7 bits", true},
        {9, "{\"quantization\":{\"group_size\":32,\"mode\":\"odd\"}}", NULL, "", "", "\"odd\"",
         true},
        {12, NULL, "m.x.scales", "scales", "scalez", "no 'scales'", false},
        {12, NULL, "m.x.qzeros", "[3,20]", "[2,30]", "2, 3, 4 or 8", true},
        {12, QUANT(METHOD("gptq") ",\"checkpoint_format\":\"marlin\""), NULL, "", "", "\"marlin\"",
         true},
        {18, QUANT(METHOD("awq") ",\"version\":\"gemv_fast\""), NULL, "", "", "\"gemv_fast\"",
         true},
        {21, QUANT(CT "\"marlin-24\""), NULL, "", "", "\"marlin-24\"", true},
        {21, NULL, "m.x.weight_shape", "[2]", "[1]", "weight_shape", false},
        {23, QUANT(CT "\"pack-quantized\""), NULL, "", "", "num_bits", false},
        {26, NULL, "m.x.weight_scale", "[160,1]", "[80,2] ", "weight_scale", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const packing *p = &packings[cases[i].packing];
        tern_file *f = NULL;
        tern_error err = {0};
        write_all(p);
        if (cases[i].tensor) damage(cases[i].tensor, cases[i].old, cases[i].other);
        const char *path = write_folder(cases[i].config ? cases[i].config : p->config);
        tern_status status = tern_file_open(&f, path, &err);
        const char *said = status == TERN_OK ? f->cannot_unpack : err.message;
        CHECK_MSG((status == TERN_OK) == cases[i].opens, "case %zu: %s", i, err.message);
        CHECK_MSG(said && strstr(said, cases[i].says) && !strchr(said, '\n'), "case %zu: %s", i,
                  said ? said : "nothing");
        if (status == TERN_OK) tern_file_close(f);
    }
}

// Every allocation of opening and decoding fails in turn. Seen to fail: a tensor was taken for
// absent when memory for its name ran out.
TEST(packed_folders_survive_failing_memory) {
    static const size_t which[] = {0, 16, 24, 25};
    static float numbers[ROWS * 256];
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        const packing *p = &packings[which[i]];
        write_all(p);
        const char *path = write_folder(p->config);
        bool done = false;
        for (int n = 1; !done; n++) {
            tern_file *f = NULL;
            tern_error err = {0};
            REQUIRE(n < 1000);
            tern_mem_fail_at((uint64_t)n);
            tern_status status = tern_file_open(&f, path, &err);
            if (status == TERN_OK)
                status = tern_tensor_decode(tern_file_tensor(f, "m.x.weight"), numbers, &err);
            tern_mem_fail_at(0);
            done = status == TERN_OK;
            CHECK_MSG(done || status == TERN_ERR_MEMORY, "%s", err.message);
            tern_file_close(f);
        }
        double got = (double)numbers[p->cols + 1], want = number_of(p, 1, 1);
        CHECK_MSG(got == want, "case %zu: %g, not %g", which[i], got, want);
    }
}

// ---- Floats that are ternary -------------------------------------------------------------------

#define PROJECTION(name) "model.layers.0.mlp." name "_proj.weight"
static size_t rows_of_scale;
static double ternary_of(size_t r, size_t c) {
    return (double)((int)(code_of(r, c) % 3) - 1) * fabs((double)scale_of(r / rows_of_scale, 0));
}

// One number of the last row of the second matrix is `odd`, if that is not 0.
static const char *write_ternary_floats(const char *config, float odd) {
    made.n_header = made.n = 0;
    for (int k = 0; k < 2; k++) {
        size_t cols = k ? 256 : COLS;
        const char *name = k ? PROJECTION("down") : PROJECTION("up");
        uint8_t *w = add(name, "F16", ROWS, cols, ROWS * cols * 2);
        for (size_t i = 0; i < ROWS * cols; i++)
            put_half(w, i, (float)ternary_of(i / cols, i % cols));
        if (k && odd != 0) put_half(w, ROWS * cols - 1, odd);
    }
    put_half(add("model.embed_tokens.weight", "F16", 1, COLS, COLS * 2), 3, 0.5f);
    return write_folder(config);
}

// Seen to fail: with the first row alone looked at; with the table included; with one scale.
TEST(packed_floats_that_are_ternary_become_codes) {
    static const struct {
        const char *config;
        size_t rows_of_scale;
        float odd;
        bool codes;
    } cases[] = {
        {"{\"model_type\": \"llama\"}", 32, 0, true},
        {"{\"model_type\": \"llama\"}", 32, 0.37f, false}, // trained as floats
        {"{\"model_type\": \"llama\"}", ROWS, 0, false},   // one scale per matrix, as in a BitNet
        {"{\"quantization_config\": {\"quant_method\": \"bitnet\", \"quantization_mode\": "
         "\"online\"}}",
         32, 0, false},
    };
    static float got[ROWS * 256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tern_file *f = NULL;
        tern_error err = {0};
        rows_of_scale = cases[i].rows_of_scale;
        const char *path = write_ternary_floats(cases[i].config, cases[i].odd);
        REQUIRE_OK(tern_file_open(&f, path, &err), err);
        const tern_tensor *up = tern_file_tensor(f, PROJECTION("up"));
        const tern_tensor *down = tern_file_tensor(f, PROJECTION("down"));
        REQUIRE(up && down);
        CHECK_MSG(up->type == (cases[i].codes ? TERN_DTYPE_Q2_0 : TERN_DTYPE_F16) &&
                      down->type == (cases[i].codes ? TERN_DTYPE_PQ2_0 : TERN_DTYPE_F16) &&
                      (f->packing != NULL) == cases[i].codes,
                  "case %zu: %s, %s", i, tern_dtype_name(up->type), tern_dtype_name(down->type));
        CHECK(tern_file_tensor(f, "model.embed_tokens.weight")->type == TERN_DTYPE_F16);
        REQUIRE_OK(tern_tensor_decode(down, got, &err), err);
        size_t n_bad = 0;
        for (size_t k = 0; k + 1 < ROWS * 256; k++)
            n_bad += (double)got[k] != ternary_of(k / 256, k % 256);
        CHECK_MSG(n_bad == 0, "case %zu: %zu numbers", i, n_bad);
        tern_file_close(f);
    }
}
