// Quantizes one row: included by head_<isa>.c, where the compiler turns the loops over 16 lanes
// into the vectors of that instruction set. The layout makes all of it vertical: a block is a lane.
#include <math.h>
#include <string.h>

#define EACH_LANE for (int l = 0; l < TERN_HEAD_LANES; l++)

static float sum_of_lanes(const float *lane) {
    float sum = 0;
    EACH_LANE sum += lane[l];
    return sum;
}

// Greatest magnitude of every block (NaN ignored) into top; returns the sum of squares.
static float measure(const float *restrict w, size_t n_groups, float *restrict top) {
    float squares[TERN_HEAD_LANES] = {0};
    for (size_t g = 0; g < n_groups; g++, w += TERN_HEAD_GROUP, top += TERN_HEAD_LANES) {
        float most[TERN_HEAD_LANES] = {0};
        for (int t = 0; t < 32; t++) {
            EACH_LANE {
                float v = w[TERN_HEAD_LANES * t + l], size = fabsf(v);
                most[l] = size > most[l] ? size : most[l];
                squares[l] += v * v;
            }
        }
        memcpy(top, most, sizeof most);
    }
    return sum_of_lanes(squares);
}

typedef struct group_scales {
    float c[TERN_HEAD_LANES];   // 0..255
    float inv[TERN_HEAD_LANES]; // 4 / (rho c), the steps of 6-bit codes in a unit
} group_scales;

static void choose_scales(group_scales *s, const float *restrict top, float rho, uint8_t *bytes) {
    float per_unit = 1 / (8 * rho);
    EACH_LANE {
        int c = (int)(top[l] * per_unit + 0.999f);
        c = c > 255 ? 255 : c;
        bytes[l] = (uint8_t)c;
        s->c[l] = (float)c;
        s->inv[l] = c > 0 ? 4 / (rho * s->c[l]) : 0;
    }
}

typedef struct residuals {
    float squares[TERN_HEAD_PLANES][TERN_HEAD_LANES];
} residuals;

// Encodes a quarter of 64 weights as 6-bit codes, one to a byte of a 32-bit word; padding, from
// n_real on, takes no part in the residual.
static inline __attribute__((always_inline)) void
quantize_quarter(const float *restrict w, const group_scales *s, float rho, int n_real,
                 uint32_t *restrict words, residuals *restrict r) {
    uint32_t word[TERN_HEAD_LANES] = {0};
    float h1 = rho / 2, h2 = rho / 4, h3 = rho / 8;
#pragma GCC unroll 4
    for (int b = 0; b < 4; b++) {
        EACH_LANE {
            float v = w[TERN_HEAD_LANES * b + l], c = s->c[l];
            float part = TERN_HEAD_LANES * b + l < n_real ? 1 : 0;
            int code = (int)(v * s->inv[l] + 32);
            code = code < 0 ? 0 : code;
            code = code > 63 ? 63 : code;
            word[l] |= (uint32_t)code << 8 * b;
            float r1 = part * (v - h1 * (c * (float)(2 * (code >> 2) - 15)));
            float r2 = part * (v - h2 * (c * (float)(2 * (code >> 1) - 31)));
            float r3 = part * (v - h3 * (c * (float)(2 * code - 63)));
            r->squares[0][l] += r1 * r1;
            r->squares[1][l] += r2 * r2;
            r->squares[2][l] += r3 * r3;
        }
    }
    memcpy(words, word, sizeof word);
}

static void quantize_group(tern_head_row *row, size_t g, const float *restrict w, size_t left,
                           const group_scales *s, residuals *r) {
    uint32_t first[TERN_HEAD_LANES] = {0}, second[TERN_HEAD_LANES] = {0};
    size_t n_vectors =
        left < TERN_HEAD_GROUP ? (left + TERN_HEAD_VECTOR - 1) / TERN_HEAD_VECTOR : 4;
    for (size_t j = 0; j < n_vectors; j++) {
        uint32_t even[TERN_HEAD_LANES], odd[TERN_HEAD_LANES], codes[TERN_HEAD_LANES];
        size_t at = TERN_HEAD_VECTOR * j;
        if (left >= at + TERN_HEAD_VECTOR) {
            quantize_quarter(w + at, s, row->rho, 64, even, r);
            quantize_quarter(w + at + 64, s, row->rho, 64, odd, r);
        } else {
            quantize_quarter(w + at, s, row->rho, (int)(left - at), even, r);
            quantize_quarter(w + at + 64, s, row->rho, (int)(left - at) - 64, odd, r);
        }
        EACH_LANE {
            codes[l] = (even[l] >> 2 & 0x0F0F0F0F) | (odd[l] << 2 & 0xF0F0F0F0);
            first[l] |= (even[l] >> 1 & 0x01010101) << 2 * j | (odd[l] & 0x02020202) << 2 * j;
            second[l] |= (even[l] & 0x01010101) << 2 * j | (odd[l] & 0x01010101) << (2 * j + 1);
        }
        memcpy(row->codes + TERN_HEAD_CODE_STEP * (4 * g + j), codes, sizeof codes);
    }
    memcpy(row->bits[0] + 64 * g, first, sizeof first);
    memcpy(row->bits[1] + 64 * g, second, sizeof second);
}

static void quantize(tern_head_row *row, float *w, size_t n) {
    size_t n_groups = (n + TERN_HEAD_GROUP - 1) / TERN_HEAD_GROUP;
    float *top = w + TERN_HEAD_GROUP * n_groups, most = 0;
    float squares = measure(w, n_groups, top);
    for (size_t b = 0; b < TERN_HEAD_LANES * n_groups; b++) most = top[b] > most ? top[b] : most;
    row->norm_w = sqrtf(squares);
    row->rho = most / (8 * 255);
    if (!isfinite(squares) || row->rho < 0x1p-100f) {
        // The copy says nothing: all scales are zero, the residual is the row itself, whose norm is
        // infinite or NaN if the row has such numbers.
        row->rho = 0;
        for (int p = 0; p < TERN_HEAD_PLANES; p++) row->norm_r[p] = row->norm_w;
        for (size_t g = 0; g < n_groups; g++)
            memset(row->scales + TERN_HEAD_SCALE_STEP * g, 0, TERN_HEAD_LANES);
        return;
    }
    residuals r = {0};
    for (size_t g = 0; g < n_groups; g++) {
        group_scales s;
        size_t at = TERN_HEAD_GROUP * g;
        choose_scales(&s, top + TERN_HEAD_LANES * g, row->rho,
                      row->scales + TERN_HEAD_SCALE_STEP * g);
        quantize_group(row, g, w + at, n - at, &s, &r);
    }
    for (int p = 0; p < TERN_HEAD_PLANES; p++) row->norm_r[p] = sqrtf(sum_of_lanes(r.squares[p]));
}
