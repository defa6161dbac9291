// Resizes images, with the same bits as Pillow's resize, which models were trained on.
//
// A pixel of the result is a sum of source pixels around its place, weighted by a filter:
//
//   y[i] = sum over j of x[j] w(i, j),   w(i, j) = f((j + 1/2 - c) / s) / their sum
//
// c = (i + 1/2) n_in / n_out is the place and s = max(1, n_in / n_out) the filter's stretch: if the
// image shrinks, all pixels that become one count, which prevents aliasing of fine lines. Weights
// are fixed-point numbers of 22 bits and sums are integers, so that the result is exact; rows
// first, rounded to 8 bits, then columns.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "media/media.h"

#define BITS 22

typedef struct taps { // of the n_out pixels of one direction
    int32_t n_most;   // maximum for one pixel
    int32_t *first, *n;
    int32_t *weights; // [n_out, n_most]
} taps;

static double cubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static double triangle(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static const struct {
    double (*at)(double x);
    double support;
} filters[] = {[TERN_IMAGE_BICUBIC] = {cubic, 2}, [TERN_IMAGE_BILINEAR] = {triangle, 1}};

static void taps_free(taps *t) {
    tern_free(t->first);
    tern_free(t->n);
    tern_free(t->weights);
}

static int32_t fixed(double w) {
    return (int32_t)(w < 0 ? w * (1 << BITS) - 0.5 : w * (1 << BITS) + 0.5);
}

static tern_status taps_make(taps *t, int32_t n_in, int32_t n_out, tern_image_filter filter,
                             double *row, tern_error *err) {
    double scale = (double)n_in / n_out, stretch = scale > 1 ? scale : 1;
    double support = filters[filter].support * stretch, inverse = 1 / stretch;
    t->first = tern_alloc_array(TERN_MEM_MISC, (size_t)n_out, sizeof *t->first);
    t->n = tern_alloc_array(TERN_MEM_MISC, (size_t)n_out, sizeof *t->n);
    t->weights =
        tern_alloc_array(TERN_MEM_MISC, (size_t)n_out * (size_t)t->n_most, sizeof *t->weights);
    if (!t->first || !t->n || !t->weights)
        return tern_fail_memory(err, (size_t)n_out * (size_t)t->n_most * sizeof *t->weights);
    for (int32_t i = 0; i < n_out; i++) {
        double center = (i + 0.5) * scale, sum = 0;
        int32_t first = (int32_t)(center - support + 0.5), last = (int32_t)(center + support + 0.5);
        if (first < 0 || center - support + 0.5 < 0) first = 0;
        if (last > n_in) last = n_in;
        t->first[i] = first;
        t->n[i] = last - first;
        for (int32_t j = first; j < last; j++)
            sum += row[j - first] = filters[filter].at((j - center + 0.5) * inverse);
        for (int32_t j = 0; j < last - first; j++)
            t->weights[(size_t)i * (size_t)t->n_most + (size_t)j] =
                fixed(sum != 0 ? row[j] / sum : row[j]);
    }
    return TERN_OK;
}

static tern_status taps_open(taps *t, int32_t n_in, int32_t n_out, tern_image_filter filter,
                             tern_error *err) {
    double stretch = n_in > n_out ? (double)n_in / n_out : 1;
    *t = (taps){.n_most = 2 * (int32_t)ceil(filters[filter].support * stretch) + 1};
    double *row = tern_alloc_array(TERN_MEM_MISC, (size_t)t->n_most, sizeof *row);
    if (!row) return tern_fail_memory(err, (size_t)t->n_most * sizeof *row);
    tern_status status = taps_make(t, n_in, n_out, filter, row, err);
    tern_free(row);
    return status;
}

static uint8_t clip(int32_t sum) {
    int32_t value = sum >> BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// Pixel i of a line whose pixels are `step` bytes apart.
static void put(const taps *t, int32_t i, const uint8_t *line, size_t step, uint8_t *to) {
    const int32_t *w = t->weights + (size_t)i * (size_t)t->n_most;
    const uint8_t *x = line + (size_t)t->first[i] * step;
    int32_t sum[3] = {1 << (BITS - 1), 1 << (BITS - 1), 1 << (BITS - 1)};
    for (int32_t j = 0; j < t->n[i]; j++, x += step)
        for (int c = 0; c < 3; c++) sum[c] += x[c] * w[j];
    for (int c = 0; c < 3; c++) to[c] = clip(sum[c]);
}

static tern_status across(tern_image *out, const tern_image *p, int32_t width,
                          tern_image_filter filter, tern_error *err) {
    taps t;
    size_t stride = (size_t)p->width * 3;
    tern_status status = taps_open(&t, p->width, width, filter, err);
    if (status == TERN_OK) status = tern_image_create(out, width, p->height, err);
    for (int32_t y = 0; status == TERN_OK && y < p->height; y++)
        for (int32_t x = 0; x < width; x++)
            put(&t, x, p->rgb + (size_t)y * stride, 3,
                out->rgb + ((size_t)y * (size_t)width + (size_t)x) * 3);
    taps_free(&t);
    return status;
}

static tern_status down(tern_image *out, const tern_image *p, int32_t height,
                        tern_image_filter filter, tern_error *err) {
    taps t;
    size_t stride = (size_t)p->width * 3;
    tern_status status = taps_open(&t, p->height, height, filter, err);
    if (status == TERN_OK) status = tern_image_create(out, p->width, height, err);
    for (int32_t y = 0; status == TERN_OK && y < height; y++)
        for (int32_t x = 0; x < p->width; x++)
            put(&t, y, p->rgb + (size_t)x * 3, stride,
                out->rgb + (size_t)y * stride + (size_t)x * 3);
    taps_free(&t);
    return status;
}

// A direction whose size stays is skipped.
static tern_status resize(tern_image *out, const tern_image *p, int32_t width, int32_t height,
                          tern_image_filter filter, tern_error *err) {
    tern_image between;
    TERN_TRY(tern_image_create(&between, width, height, err)); // checks the size
    tern_image_close(&between);
    if (width == p->width && height == p->height) {
        TERN_TRY(tern_image_create(out, width, height, err));
        memcpy(out->rgb, p->rgb, (size_t)width * (size_t)height * 3);
        return TERN_OK;
    }
    if (height == p->height) return across(out, p, width, filter, err);
    if (width == p->width) return down(out, p, height, filter, err);
    TERN_TRY(across(&between, p, width, filter, err));
    tern_status status = down(out, &between, height, filter, err);
    tern_image_close(&between);
    return status;
}

tern_status tern_image_resize(tern_image *out, const tern_image *p, int32_t width, int32_t height,
                              tern_image_filter filter, tern_error *err) {
    tern_clear(err);
    tern_image resized = {0};
    TERN_NEED(out);
    if (out != p) *out = (tern_image){0};
    TERN_NEED(p);
    TERN_NEED(p->rgb);
    TERN_NEED_ENUM(filter, TERN_IMAGE_BILINEAR);
    TERN_TRY(resize(&resized, p, width, height, filter, err));
    if (out == p) tern_image_close(out); // in place
    *out = resized;
    return TERN_OK;
}
