// The rows of each tensor, from the input's form to the output's.
//
// Ternary weights are carried as codes and one scale. All others become floats, are put in the
// order and the convention of the output's world and encoded, by all threads, a piece of the rows
// at a time; each row's bytes are the same with any number of threads.
#include <limits.h>
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/convert/convert_private.h"

static int64_t source_row(const item *it, int64_t row) {
    return tern_order_source(&it->moves.rows, row, it->to_gguf);
}

static int64_t source_column(const item *it, int64_t column) {
    return tern_order_source(&it->moves.columns, column, it->to_gguf);
}

tern_status tern_convert_write(conversion *c, const void *bytes, uint64_t n, tern_error *err) {
    return c->gguf ? tern_gguf_write(c->gguf, bytes, n, err) : tern_st_write(c->st, bytes, n, err);
}

// A tensor may be most of a file and take minutes, so progress counts its rows.
static tern_status tell_rows(conversion *c, const item *it, int64_t n, int64_t n_all,
                             tern_error *err) {
    uint64_t bytes = (uint64_t)((double)it->from->bytes * (double)n / (double)n_all);
    if (bytes < c->bytes_told + ((uint64_t)1 << 18)) return TERN_OK;
    c->bytes_told = bytes;
    return tern_convert_tell(c, bytes, err);
}

// I2_S blocks run over the whole tensor, so rows are gathered into whole blocks first.
typedef struct gather {
    int8_t *codes; // codes not written yet, then a row
    size_t n;
    uint8_t *packed;
} gather;

static tern_status write_gathered(conversion *c, const item *it, gather *g, bool at_end,
                                  tern_error *err) {
    size_t block = tern_dtype_block_n(it->type);
    size_t whole = at_end ? (g->n + block - 1) / block * block : g->n / block * block;
    memset(g->codes + g->n, 0, whole > g->n ? whole - g->n : 0);
    tern_dtype_encode_ternary(it->type, g->codes, whole, it->kind.scale, g->packed);
    size_t bytes = whole / block * tern_dtype_block_bytes(it->type);
    TERN_TRY(tern_convert_write(c, g->packed, bytes, err));
    g->n = g->n > whole ? g->n - whole : 0;
    memmove(g->codes, g->codes + whole, g->n);
    return TERN_OK;
}

static tern_status write_ternary_rows(conversion *c, const item *it, tern_codes *codes, gather *g,
                                      tern_error *err) {
    const tern_matrix *v = &codes->rows.m;
    for (int64_t row = 0; row < v->n_rows; row++) {
        const int8_t *q = tern_codes_row(codes, source_row(it, row));
        for (int64_t i = 0; i < v->n_cols; i++)
            g->codes[g->n + (size_t)i] = q[source_column(it, i)];
        g->n += (size_t)v->n_cols;
        TERN_TRY(write_gathered(c, it, g, row == v->n_rows - 1, err));
        TERN_TRY(tell_rows(c, it, row + 1, v->n_rows, err));
    }
    if (it->type != TERN_DTYPE_I2_S) return TERN_OK;
    float tail[8] = {it->kind.scale};
    return tern_convert_write(c, tail, sizeof tail, err);
}

// Four rows a byte: see docs/formats.md. The scale follows as a separate tensor.
static tern_status write_hf_packed(conversion *c, const item *it, tern_codes *codes, uint8_t *bytes,
                                   tern_error *err) {
    const tern_matrix *v = &codes->rows.m;
    int64_t quarter = v->n_rows / 4;
    for (int64_t row = 0; row < quarter; row++) {
        memset(bytes, 0, (size_t)v->n_cols);
        for (int k = 0; k < 4; k++) {
            const int8_t *q = tern_codes_row(codes, source_row(it, row + k * quarter));
            for (int64_t i = 0; i < v->n_cols; i++)
                bytes[i] |= (uint8_t)((q[source_column(it, i)] + 1) << (2 * k));
        }
        TERN_TRY(tern_convert_write(c, bytes, (uint64_t)v->n_cols, err));
        TERN_TRY(tell_rows(c, it, row + 1, quarter, err));
    }
    return tern_convert_write(c, &it->kind.scale, sizeof(float), err);
}

static bool changes_numbers(const item *it) {
    return (it->kind.is_ternary && it->kind.mean > 0) || // masters come out rounded
           it->signs || it->change == TERN_CHANGE_PLUS_ONE || it->change == TERN_CHANGE_MINUS_EXP ||
           it->moves.columns.a != 0 || it->folded[0];
}

// ---- Rows of floats ----------------------------------------------------------------------------

// A piece of a tensor's rows, encoded by all threads.
typedef struct piece {
    const conversion *c;
    const item *it;
    tern_codes *codes;
    int64_t first; // row of the output
    size_t n_rows, row_bytes;
    float *floats;    // [threads][2 * columns]
    float *rounded;   // all rows of the output, which are numbers of its type; NULL: they are not
    uint8_t *encoded; // [n_rows * row_bytes]
    // An MLX folder's scales and biases, which follow all rows' words: [rows][scales_bytes], twice;
    // or NULL.
    uint8_t *scales;
    size_t words_bytes, scales_bytes;
    atomic_size_t counter;
    atomic_llong refused; // the first row that the type cannot hold; LLONG_MAX: none
} piece;

// A row of the output. floats: two rows.
static void read_row(const conversion *c, const item *it, tern_codes *codes, int64_t row,
                     float *floats) {
    const int64_t from = source_row(it, row);
    const size_t n = (size_t)codes->rows.m.n_cols;
    tern_codes_decode(codes, &it->kind, from, floats); // masters come out rounded
    tern_order_columns(&it->moves.columns, it->to_gguf, floats, (int64_t)n, floats + n);
    tern_change_apply(it->change, it->to_gguf, floats, n);
    const double factor = it->folded[0] ? c->arch->folded(&c->config, it->folded, from) : 1;
    for (size_t i = 0; factor != 1 && i < n; i++) floats[i] = (float)((double)floats[i] * factor);
    if (it->signs) c->hadamard(floats, floats, it->signs, n, (size_t)c->rotation.block);
}

// floats: two rows.
static bool encode_row(const piece *p, int64_t row, float *floats, uint8_t *out) {
    const item *it = p->it;
    const tern_matrix *v = &p->codes->rows.m;
    size_t n = (size_t)v->n_cols;
    if (p->rounded) {
        const float *x = p->rounded + (size_t)row * n;
        tern_dtype_round(it->type, x, NULL, n, floats, out);
        return true;
    }
    if (it->same_codes) {
        uint64_t first;
        const uint8_t *at = tern_rows_data(&p->codes->rows, source_row(it, row), &first);
        at += first / tern_dtype_block_n(v->type) * tern_dtype_block_bytes(v->type);
        tern_convert_put_groups(v->type, at, n, it->type, out);
        return true;
    }
    read_row(p->c, it, p->codes, row, floats);
    if (it->mlx_bits) {
        tern_convert_put_mlx(it, floats, n, (uint8_t *)(floats + n), out);
        return true;
    }
    const float *importance = it->importance;
    if (importance && it->importance_of_parts) importance += (size_t)row / it->from->ne[1] * n;
    if (!it->kind.is_ternary && tern_convert_is_forced(p->c->desc, it->type)) {
        tern_dtype_round(it->type, floats, importance, n, floats, out);
        return true;
    }
    return tern_dtype_quantize(it->type, floats, importance, n, out);
}

static void encode_rows(void *ctx, const tern_team *team) {
    piece *p = ctx;
    float *floats = p->floats + (size_t)team->thread * 2 * (size_t)p->codes->rows.m.n_cols;
    for (size_t at, end; tern_team_claim(&p->counter, p->n_rows, 1, &at, &end);) {
        long long row = p->first + (long long)at, seen = atomic_load(&p->refused);
        if (encode_row(p, row, floats, p->encoded + at * p->row_bytes)) continue;
        while (row < seen && !atomic_compare_exchange_weak(&p->refused, &seen, row)) {
        }
    }
}

// Small tensors are not worth waking threads; codes of ternary ones are read through one buffer.
static void encode_piece(piece *p) {
    static const tern_team alone = {.n_threads = 1};
    bool small = (uint64_t)p->n_rows * (uint64_t)p->codes->rows.m.n_cols < 1 << 14;
    atomic_store(&p->counter, 0);
    if (small || p->it->kind.is_ternary)
        encode_rows(p, &alone);
    else
        tern_team_run(p->c->team, encode_rows, p);
}

// The words of the rows; their scales and biases are kept.
static tern_status write_words(conversion *c, piece *p, tern_error *err) {
    size_t n = p->scales_bytes, all = (size_t)p->codes->rows.m.n_rows * n;
    for (size_t r = 0; r < p->n_rows; r++) {
        const uint8_t *row = p->encoded + r * p->row_bytes;
        uint8_t *to = p->scales + ((size_t)p->first + r) * n;
        TERN_TRY(tern_convert_write(c, row, p->words_bytes, err));
        memcpy(to, row + p->words_bytes, n);
        memcpy(to + all, row + p->words_bytes + n, n);
    }
    return TERN_OK;
}

static tern_status write_pieces(conversion *c, piece *p, size_t most, tern_error *err) {
    const tern_matrix *v = &p->codes->rows.m;
    for (p->first = 0; p->first < v->n_rows; p->first += (int64_t)p->n_rows) {
        size_t left = (size_t)(v->n_rows - p->first);
        p->n_rows = left < most ? left : most;
        encode_piece(p);
        long long refused = atomic_load(&p->refused);
        if (refused < LLONG_MAX)
            return tern_fail(err, TERN_ERR_UNSUPPORTED,
                             "tensor %s (%s) cannot become %s: row %lld is not made of its codes "
                             "times a scale for each %zu",
                             p->it->from->name, tern_dtype_name(v->type),
                             tern_dtype_name(p->it->type), refused,
                             tern_dtype_block_n(p->it->type));
        if (p->scales)
            TERN_TRY(write_words(c, p, err));
        else
            TERN_TRY(tern_convert_write(c, p->encoded, p->n_rows * p->row_bytes, err));
        TERN_TRY(tell_rows(c, p->it, p->first + (int64_t)p->n_rows, v->n_rows, err));
    }
    if (!p->scales) return TERN_OK;
    return tern_convert_write(c, p->scales, 2 * (size_t)v->n_rows * p->scales_bytes, err);
}

// Unchanged, to the bit.
static tern_status copy_rows(conversion *c, const item *it, tern_codes *codes, uint64_t row_bytes,
                             tern_error *err) {
    for (int64_t row = 0; row < codes->rows.m.n_rows; row++) {
        const uint8_t *at = codes->rows.hold.data;
        TERN_TRY(
            tern_convert_write(c, at + (uint64_t)source_row(it, row) * row_bytes, row_bytes, err));
        TERN_TRY(tell_rows(c, it, row + 1, codes->rows.m.n_rows, err));
    }
    return TERN_OK;
}

// All rows, as the caller rounds them; NULL: it does not.
static tern_status let_round(conversion *c, const item *it, tern_codes *codes, float **out,
                             tern_error *err) {
    const size_t shape[2] = {(size_t)codes->rows.m.n_rows, (size_t)codes->rows.m.n_cols};
    bool is_rounded = false;
    *out = NULL;
    if (!c->rounding || it->kind.is_ternary || it->from->n_dims != 2 ||
        !tern_convert_is_forced(c->desc, it->type))
        return TERN_OK;
    float *rows = tern_alloc_array(TERN_MEM_MISC, (shape[0] + 1) * shape[1], sizeof *rows);
    if (!rows) return tern_fail_memory(err, shape[0] * shape[1] * sizeof *rows);
    for (size_t r = 0; r < shape[0]; r++) // each has the next one's room
        read_row(c, it, codes, (int64_t)r, rows + r * shape[1]);
    tern_status status =
        c->rounding->round(c->rounding->user, it->name, it->type, rows, shape, &is_rounded, err);
    if (status == TERN_OK && is_rounded) {
        *out = rows;
        return TERN_OK;
    }
    tern_free(rows);
    return status;
}

#define PIECE_BYTES ((size_t)1 << 20)

static tern_status write_float_rows(conversion *c, const item *it, tern_codes *codes,
                                    tern_error *err) {
    const tern_matrix *v = &codes->rows.m;
    size_t n_threads = (size_t)c->team->n_threads, n = (size_t)v->n_cols;
    uint64_t row_bytes;
    piece p = {.c = c, .it = it, .codes = codes};
    tern_dtype_bytes(it->type, n, n, &row_bytes);
    if (it->type == v->type && !it->mlx_bits && !changes_numbers(it))
        return copy_rows(c, it, codes, row_bytes, err);
    if (it->mlx_bits) {
        tern_convert_mlx_sizes(it, n, &p.words_bytes, &p.scales_bytes);
        row_bytes = p.words_bytes + 2 * p.scales_bytes;
        p.scales = tern_alloc_array(TERN_MEM_MISC, (size_t)v->n_rows, 2 * p.scales_bytes);
    }
    size_t most = PIECE_BYTES / (size_t)row_bytes;
    tern_status status = let_round(c, it, codes, &p.rounded, err);
    if (most < 4 * n_threads) most = 4 * n_threads;
    if (most > (size_t)v->n_rows) most = (size_t)v->n_rows;
    p.row_bytes = (size_t)row_bytes;
    atomic_init(&p.refused, LLONG_MAX);
    p.floats = tern_alloc_array(TERN_MEM_MISC, n_threads, 2 * n * sizeof *p.floats);
    p.encoded = tern_alloc_array(TERN_MEM_MISC, most, (size_t)row_bytes);
    if (status == TERN_OK && (!p.floats || !p.encoded || (it->mlx_bits && !p.scales)))
        status = tern_fail_memory(err, n_threads * 2 * n * sizeof *p.floats + most * row_bytes);
    if (status == TERN_OK) status = write_pieces(c, &p, most, err);
    tern_free(p.rounded);
    tern_free(p.floats);
    tern_free(p.encoded);
    tern_free(p.scales);
    return status;
}

// ---- Tensors -----------------------------------------------------------------------------------

// Puts W and its adapter's part into floats, as if the file had them. A ternary output is rounded
// from there, like master weights.
static tern_status merge_adapter(item *it, tern_matrix *m, float **floats, tern_error *err) {
    size_t n = (size_t)m->n_cols, n_rows = (size_t)m->n_rows;
    tern_codes codes;
    tern_ternary_kind kind = it->kind.mean > 0 ? (tern_ternary_kind){0} : it->kind; // masters as is
    *floats = tern_alloc_array(TERN_MEM_MISC, n_rows, n * sizeof **floats);
    if (!*floats) return tern_fail_memory(err, n_rows * n * sizeof **floats);
    bool is_whole = true;
    TERN_TRY(tern_codes_open(&codes, m, &kind, false, err));
    for (int64_t row = 0; row < m->n_rows; row++) {
        float *sum = *floats + (size_t)row * n;
        tern_codes_decode(&codes, &kind, row, sum);
        tern_adapter_merge_row(it->adapter, row, sum);
        for (size_t i = 0; i < n; i++) is_whole &= isfinite(sum[i]) != 0;
    }
    tern_codes_close(&codes);
    if (!is_whole)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "tensor %s: with the adapter some of its numbers are not numbers (NaN or "
                         "infinite)",
                         it->from->name);
    m->type = TERN_DTYPE_F32;
    m->data = tern_blob_of(*floats, n_rows * n * sizeof(float));
    m->scale = 1;
    return tern_ternary_find(m, it->kind.is_ternary, &it->kind, err);
}

static tern_status write_ternary(conversion *c, const item *it, tern_codes *codes,
                                 tern_error *err) {
    size_t n = (size_t)codes->rows.m.n_cols;
    gather g = {.codes = tern_alloc(TERN_MEM_MISC, 2 * n + 1024),
                .packed = tern_alloc(TERN_MEM_MISC, n * sizeof(float) + 1024)};
    tern_status status;
    if (!g.codes || !g.packed)
        status = tern_fail_memory(err, n * sizeof(float));
    else if (it->type == TERN_DTYPE_HF_TERNARY)
        status = write_hf_packed(c, it, codes, g.packed, err);
    else
        status = write_ternary_rows(c, it, codes, &g, err);
    tern_free(g.codes);
    tern_free(g.packed);
    return status;
}

static tern_status write_matrix(conversion *c, const item *it, const tern_matrix *m,
                                tern_error *err) {
    tern_codes codes;
    bool as_codes = it->type == TERN_DTYPE_HF_TERNARY ||
                    (it->kind.is_ternary && tern_dtype_holds_ternary(it->type));
    TERN_TRY(tern_codes_open(&codes, m, &it->kind, false, err));
    tern_status status =
        as_codes ? write_ternary(c, it, &codes, err) : write_float_rows(c, it, &codes, err);
    tern_codes_close(&codes);
    return status;
}

tern_status tern_convert_write_item(conversion *c, const item *it, tern_error *err) {
    tern_matrix m = tern_tensor_matrix(it->from);
    float *floats = NULL;
    item merged = *it;
    tern_status status = it->adapter ? merge_adapter(&merged, &m, &floats, err) : TERN_OK;
    if (status == TERN_OK) status = write_matrix(c, &merged, &m, err);
    tern_free(floats);
    return status;
}
