// Writes folders with matrices packed in MLX's form, which formats/hf/hf_packed.c reads and
// describes.
//
// x.weight becomes three tensors: x.weight, words of 32 bits with the codes of a row, the lowest
// bits first; x.scales and x.biases, a number of 16 bits for each group of columns:
//     number = scale * code + bias
// All matrices and tables whose rows are whole groups are packed; MLX recognizes them by x.scales.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/convert/convert_private.h"

static const char end[] = ".weight";

tern_status tern_convert_check_mlx(conversion *c, tern_error *err) {
    static const tern_dtype types[2][3] = {{TERN_DTYPE_G4_32, TERN_DTYPE_G4_64, TERN_DTYPE_G4_128},
                                           {TERN_DTYPE_G8_32, TERN_DTYPE_G8_64, TERN_DTYPE_G8_128}};
    int group = c->desc->group_size ? c->desc->group_size : 64;
    bool is_mlx = tern_type_is_mlx(c->desc->type);
    if (!is_mlx && c->desc->group_size)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "convert: a group size is of mlx-q4 and mlx-q8; "
                         "groups of other types have one size");
    if (!is_mlx) return TERN_OK;
    if (group != 32 && group != 64 && group != 128)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "convert: groups of %d columns: expected 32, 64 or 128", group);
    if (c->config.bitlinear)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a BitNet rounds activations, which MLX's "
                         "groups do not: it would be another model");
    if (c->config.n_experts)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "mixtures of experts cannot be written as MLX has them");
    c->matrix_type = types[c->desc->type == TERN_TYPE_MLX_Q8][group / 64];
    return TERN_OK;
}

bool tern_convert_choose_mlx(const conversion *c, item *it, tern_dtype as_floats) {
    size_t n = strlen(it->name), n_end = sizeof end - 1;
    bool whole = it->from->ne[0] % tern_dtype_block_n(c->matrix_type) == 0;
    bool fits = whole && it->from->n_dims == 2 && n > n_end && !strcmp(it->name + n - n_end, end);
    if (!tern_type_is_mlx(c->desc->type) || !fits) return false;
    it->type = c->matrix_type;
    it->mlx_bits = c->desc->type == TERN_TYPE_MLX_Q8 ? 8 : 4;
    it->mlx_is_bf16 = as_floats == TERN_DTYPE_BF16;
    return true;
}

// The three tensors, in the order in which they are written.
tern_status tern_convert_declare_mlx(conversion *c, const item *it) {
    char name[160];
    int stem = (int)(strlen(it->name) - strlen(end));
    uint64_t cols = it->from->ne[0], rows = it->from->ne[1];
    uint64_t words[] = {rows, cols * (uint64_t)it->mlx_bits / 32};
    uint64_t groups[] = {rows, cols / tern_dtype_block_n(it->type)};
    tern_dtype type = it->mlx_is_bf16 ? TERN_DTYPE_BF16 : TERN_DTYPE_F16;
    TERN_TRY(tern_st_declare(c->st, it->name, TERN_DTYPE_U32, 2, words));
    snprintf(name, sizeof name, "%.*s.scales", stem, it->name);
    TERN_TRY(tern_st_declare(c->st, name, type, 2, groups));
    snprintf(name, sizeof name, "%.*s.biases", stem, it->name);
    return tern_st_declare(c->st, name, type, 2, groups);
}

void tern_convert_mlx_sizes(const item *it, size_t n, size_t *words, size_t *scales) {
    *words = n * (size_t)it->mlx_bits / 8;
    *scales = n / tern_dtype_block_n(it->type) * 2;
}

// A row's words, scales and biases; codes: [n], work space.
void tern_convert_put_mlx(const item *it, const float *x, size_t n, uint8_t *codes, uint8_t *out) {
    size_t words, scales;
    const tern_dtype_affine a = {.bits = it->mlx_bits,
                                 .group = (int)tern_dtype_block_n(it->type),
                                 .is_bf16 = it->mlx_is_bf16};
    tern_convert_mlx_sizes(it, n, &words, &scales);
    // Both are at even addresses: rows are whole groups of at least 16 bytes.
    tern_dtype_quantize_affine(&a, x, n, codes, (uint16_t *)(void *)(out + words),
                               (uint16_t *)(void *)(out + words + scales));
    if (it->mlx_bits == 8) memcpy(out, codes, n);
    for (size_t i = 0; it->mlx_bits == 4 && i < n; i += 2)
        out[i / 2] = (uint8_t)(codes[i] | codes[i + 1] << 4);
}

// The additions to config.json, under both names that programs look for.
void tern_convert_put_mlx_config(const conversion *c, tern_strbuf *json) {
    static const char *const keys[] = {"quantization", "quantization_config"};
    while (json->len > 0 && json->ptr[json->len - 1] != '}') json->len--;
    if (json->len > 0) json->len--;
    while (json->len > 0 && json->ptr[json->len - 1] == '\n') json->len--;
    for (int i = 0; i < 2; i++)
        tern_strbuf_printf(json, ",\n  \"%s\": {\"group_size\": %zu, \"bits\": %d}", keys[i],
                           tern_dtype_block_n(c->matrix_type),
                           c->desc->type == TERN_TYPE_MLX_Q8 ? 8 : 4);
    tern_strbuf_puts(json, "\n}\n");
}
