// The head's matrix in few bits. What they prove is in head.c.
//
// COPY. A row w [n] is padded with zeros to groups of 512 = 32 x 16 weights, seen as 32 rows of 16
// lanes; each lane of a group is one block of 32 weights with one scale. rho (a float of the row)
// times c (a byte of the block) is the step s of the block's 4-bit codes q: w ~ s (q - 7.5). The 16
// cells of width s tile [-max|w|, max|w|], so that one more bit halves a cell and two quarter it:
//
//     plane 1   4 bits   w^1 = s (2 q - 15) / 2            |w - w^1| <= s/2 per weight
//     plane 2   1 bit    w^2 = s (2 (2q + b) - 31) / 4                  s/4
//     plane 3   1 bit    w^3 = s (2 (4q + 2b + b') - 63) / 8            s/8
//
// For every row the norms |w| and |r_p|, r_p = w - w^p, are kept, rounded up.
//
// In memory, element 16 t + l of a group, t = 4 j + b, is byte 4 l + b of quarter j. A vector of 64
// bytes of codes holds quarter 2 i in the low and 2 i + 1 in the high nibbles; a vector of 64 bytes
// of bits has quarter j in bit j. So the 4 bytes of a 32-bit lane are of one block, as dot-product
// instructions want them, and the 16 scales of a group multiply 16 finished sums at once. Trailing
// vectors of codes that hold only padding are left out. The vectors of four rows (a tile)
// alternate, as do their scales: four rows share each load of x, and memory is still read from
// front to back, as the hardware's prefetching wants it (four streams side by side ran at half the
// speed). For all rows 4.25 bits a weight are read.
#include "base/alloc.h"
#include "kernels/cpu/head/head_parts.h"

enum { MAX_N_IN = 1 << 20 };

static uint64_t lay_out(tern_head *h, uint8_t *memory) {
    uint64_t at = 0, n_rows = h->w.n_rows, n_tiles = tiles_of(n_rows);
    h->codes = part(memory, &at, n_tiles * TERN_HEAD_CODE_STEP * h->n_vectors);
    h->scales = part(memory, &at, n_tiles * TERN_HEAD_SCALE_STEP * h->n_groups);
    for (int i = 0; i < 2; i++)
        h->bits[i] = part(memory, &at, n_tiles * TERN_HEAD_TILE * 64 * h->n_groups);
    h->rho = part(memory, &at, n_rows * sizeof(float));
    h->norm_w = part(memory, &at, n_rows * sizeof(float));
    for (int p = 0; p < TERN_HEAD_PLANES; p++)
        h->norm_r[p] = part(memory, &at, n_rows * sizeof(float));
    return at;
}

tern_status tern_head_create(tern_head **out, const tern_head_matrix *w,
                             const tern_cpu_kernels *kernels, tern_error *err) {
    *out = NULL;
    if (w->n_in == 0 || w->n_in > MAX_N_IN || w->n_rows > INT32_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a head of %zu rows of %zu cannot be screened (rows of 1 to %d)",
                         w->n_rows, w->n_in, MAX_N_IN);
    tern_head *h = tern_alloc(TERN_MEM_WEIGHTS, sizeof *h);
    if (!h) return tern_fail_memory(err, sizeof *h);
    h->w = *w;
    h->f = kernels->f;
    h->k = kernels->h;
    h->n_vectors = (w->n_in + TERN_HEAD_VECTOR - 1) / TERN_HEAD_VECTOR;
    h->n_groups = (w->n_in + TERN_HEAD_GROUP - 1) / TERN_HEAD_GROUP;
    h->rounding = 0x1p-23f * ((float)w->n_in / 16 + 64);
    h->bytes = lay_out(h, NULL);
    h->memory = h->bytes <= SIZE_MAX / 2 ? tern_alloc(TERN_MEM_WEIGHTS, (size_t)h->bytes) : NULL;
    if (!h->memory) {
        tern_status status = tern_fail_memory(err, (size_t)h->bytes);
        tern_free(h);
        return status;
    }
    lay_out(h, h->memory);
    *out = h;
    return TERN_OK;
}

void tern_head_free(tern_head *h) {
    if (!h) return;
    tern_free(h->memory);
    tern_free(h);
}

size_t tern_head_build_scratch_bytes(const tern_head *h) {
    return h->n_groups * (TERN_HEAD_GROUP + TERN_HEAD_LANES) * sizeof(float);
}

uint64_t tern_head_bytes(const tern_head *h) { return h->bytes; }

uint64_t tern_head_screen_bytes(const tern_head *h) {
    uint64_t row = 64 * h->n_vectors + TERN_HEAD_LANES * h->n_groups + 3 * sizeof(float);
    return h->w.n_rows * row; // codes and scales; rho, |w| and |r_1|
}

// The kept |r_1| is never below |r_2| and |r_3|, even if the row happens to lie on the first grid.
// Norms are square roots of float sums: off by less than a factor 1 + G, and each residual by two
// roundings of numbers the size of w. Anything too small to be squared is below 2^-60.
static void round_up_norms(const tern_head *h, size_t r, const tern_head_row *row) {
    float factor = 1 + h->rounding, w = row->norm_w * factor + 0x1p-60f;
    h->norm_w[r] = w;
    for (int p = 0; p < TERN_HEAD_PLANES; p++)
        h->norm_r[p][r] = row->norm_r[p] * factor + w * 0x1p-21f + 0x1p-60f;
    for (int p = 1; p < TERN_HEAD_PLANES; p++)
        if (!(h->norm_r[p][r] <= h->norm_r[0][r])) h->norm_r[0][r] = h->norm_r[p][r];
}

void tern_head_build(tern_head *h, size_t first_row, size_t last_row, void *scratch) {
    const tern_head_matrix *w = &h->w;
    float *floats = scratch;
    for (size_t r = first_row; r < last_row; r++) {
        tern_head_row row = {.codes = codes_of(h, r),
                             .scales = scales_of(h, r),
                             .bits = {bits_of(h, 1, r), bits_of(h, 2, r)}};
        h->f->decode(w->type, (const uint8_t *)w->data + r * w->row_bytes, 0, w->n_in, w->scale,
                     floats);
        h->k->quantize(&row, floats, w->n_in);
        h->rho[r] = row.rho;
        round_up_norms(h, r, &row);
    }
}
