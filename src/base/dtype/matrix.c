#include <math.h>
#include "base/dtype/matrix.h"

#define PIECE_BYTES ((uint64_t)4 << 20)

// Elements of HF_TERNARY that share a byte are quarters of the matrix apart: its bytes form
// separate rows, and a piece has rows of one quarter.
static int64_t quarter(const tern_matrix *m) {
    return m->type == TERN_DTYPE_HF_TERNARY ? m->n_rows / 4 : m->n_rows;
}

// Where the bytes of row `row` of a quarter begin (and those of the row before end); a start within
// a block is rounded up.
static uint64_t offset_of(const tern_matrix *m, int64_t row) {
    if (m->type == TERN_DTYPE_HF_TERNARY) return (uint64_t)row * (uint64_t)m->n_cols;
    uint64_t n = tern_dtype_block_n(m->type), elements = (uint64_t)row * (uint64_t)m->n_cols;
    return (elements + n - 1) / n * tern_dtype_block_bytes(m->type);
}

// A piece begins at a multiple of this many rows, so that it begins with a block.
static int64_t step_of(const tern_matrix *m) {
    bool whole =
        m->type == TERN_DTYPE_HF_TERNARY || (uint64_t)m->n_cols % tern_dtype_block_n(m->type) == 0;
    return whole ? 1 : (int64_t)tern_dtype_block_n(m->type);
}

static tern_status hold_all(tern_rows *r, tern_error *err) {
    TERN_TRY(tern_blob_hold(&r->m.data, &r->hold, err));
    r->first = 0;
    r->end = r->m.n_rows;
    return TERN_OK;
}

tern_status tern_rows_open(tern_rows *r, const tern_matrix *m, tern_error *err) {
    tern_rows_open_pieces(r, m);
    return hold_all(r, err);
}

void tern_rows_open_pieces(tern_rows *r, const tern_matrix *m) { *r = (tern_rows){.m = *m}; }

tern_status tern_rows_reach(tern_rows *r, int64_t row, tern_error *err) {
    const tern_matrix *m = &r->m;
    if (row >= r->first && row < r->end) return TERN_OK;
    tern_blob_release(&r->hold);
    r->first = r->end = 0;
    if (m->data.memory || m->data.n <= PIECE_BYTES) return hold_all(r, err);
    int64_t in_quarter = row % quarter(m), step = step_of(m);
    int64_t begin = in_quarter / step * step, left = quarter(m) - begin;
    uint64_t row_bytes = m->data.n / (uint64_t)quarter(m) + 1;
    int64_t n = (int64_t)(PIECE_BYTES / row_bytes) / step * step;
    if (n < step) n = step; // so that the row is among them
    if (n > left) n = left;
    uint64_t from = offset_of(m, begin), to = offset_of(m, begin + n);
    tern_blob piece = tern_blob_part(&m->data, from, to - from);
    TERN_TRY(tern_blob_hold(&piece, &r->hold, err));
    r->first = row - in_quarter + begin;
    r->end = r->first + n;
    return TERN_OK;
}

void tern_rows_close(tern_rows *r) {
    tern_blob_release(&r->hold);
    r->first = r->end = 0;
}

const void *tern_rows_data(const tern_rows *r, int64_t row, uint64_t *first) {
    int64_t n = quarter(&r->m);
    *first = (uint64_t)(row % n - r->first % n) * (uint64_t)r->m.n_cols;
    return r->hold.data;
}

void tern_rows_decode(const tern_rows *r, int64_t row, float *out) {
    uint64_t first;
    const void *data = tern_rows_data(r, row, &first);
    tern_dtype_decode(r->m.type, data, first, (size_t)r->m.n_cols, r->m.scale, out);
}

// Bytes of all blocks with an element of the row; those at its ends may be shared with other rows.
uint64_t tern_matrix_row_bytes(const tern_matrix *m) {
    uint64_t n = tern_dtype_block_n(m->type), cols = (uint64_t)m->n_cols;
    if (m->type == TERN_DTYPE_HF_TERNARY) return 0;
    uint64_t more = cols % n == 0 ? 0 : 2;
    return (cols / n + more) * tern_dtype_block_bytes(m->type);
}

tern_status tern_matrix_decode_row(const tern_matrix *m, int64_t row, void *room, float *out,
                                   tern_error *err) {
    uint64_t n = tern_dtype_block_n(m->type), each = tern_dtype_block_bytes(m->type);
    uint64_t first = (uint64_t)row * (uint64_t)m->n_cols, end = first + (uint64_t)m->n_cols;
    uint64_t from = first / n * each, to = (end + n - 1) / n * each;
    const void *data = m->data.memory ? m->data.memory + from : room;
    if (!m->data.memory) TERN_TRY(tern_blob_read(&m->data, from, to - from, room, err));
    tern_dtype_decode(m->type, data, first % n, (size_t)m->n_cols, m->scale, out);
    return TERN_OK;
}

tern_status tern_matrix_decode(const tern_matrix *m, float *out, tern_error *err) {
    tern_hold h;
    TERN_TRY(tern_blob_hold(&m->data, &h, err));
    tern_dtype_decode(m->type, h.data, 0, (size_t)(m->n_rows * m->n_cols), m->scale, out);
    tern_blob_release(&h);
    return TERN_OK;
}

float tern_row_length(const float *x, size_t n) {
    double sums[8] = {0}, all = 0; // lanes of vectors
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++) sums[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) all += (double)x[i] * (double)x[i];
    for (size_t k = 0; k < 8; k++) all += sums[k];
    return (float)sqrt(all);
}
