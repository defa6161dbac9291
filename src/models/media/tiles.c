// What a tower is shown of an image: the size of the whole, and how many tiles it is cut into.
#include <math.h>
#include "models/models.h"

// Rounds ties to even, as Python does.
static int64_t multiple(double x, int64_t edge) {
    return (int64_t)nearbyint(x / (double)edge) * edge;
}

tern_status tern_vision_size(const tern_vision_rules *r, int64_t edge, int32_t width,
                             int32_t height, int32_t *to_width, int32_t *to_height,
                             tern_error *err) {
    if (r->edge && width > 0 && height > 0) {
        *to_width = *to_height = (int32_t)r->edge;
        return TERN_OK;
    }
    double w = width, h = height, e = (double)edge;
    int64_t wide = multiple(w, edge), high = multiple(h, edge);
    if (width < 1 || height < 1 || fmax(w, h) / fmin(w, h) > 200)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%d x %d pixels: expected at most 200 times as long as wide", (int)width,
                         (int)height);
    if (r->one_at_least && wide < edge) wide = edge;
    if (r->one_at_least && high < edge) high = edge;
    if (wide * high > r->most) {
        double beta = sqrt(h * w / (double)r->most);
        wide = (int64_t)floor(w / beta / e) * edge;
        high = (int64_t)floor(h / beta / e) * edge;
    } else if (wide * high < r->least) {
        double beta = sqrt((double)r->least / (h * w));
        wide = (int64_t)ceil(w * beta / e) * edge;
        high = (int64_t)ceil(h * beta / e) * edge;
    }
    *to_width = (int32_t)(wide > edge ? wide : edge);
    *to_height = (int32_t)(high > edge ? high : edge);
    return TERN_OK;
}

// Squares that cover an edge.
static int64_t cover(int64_t edge, int64_t tile) { return (edge + tile - 1) / tile; }

// An image's longer edge becomes r->longer and the other keeps its share, in an even number of
// pixels; both are then raised to whole squares. If they are too many, the longer edge has one
// less.
static void squares_of(const tern_vision_rules *r, int32_t width, int32_t height, int32_t *across,
                       int32_t *down) {
    bool wide = width >= height;
    double shape = (double)width / height;
    *across = *down = 0;
    for (int64_t longer = r->longer; longer > r->tile; longer -= r->tile) {
        int64_t other = (int64_t)(wide ? (double)longer / shape : (double)longer * shape);
        other = other < 1 ? 1 : other + other % 2;
        // The share of the whole number of pixels, as they are then.
        double again = wide ? (double)longer / (double)other : (double)other / (double)longer;
        int64_t n = cover(longer, r->tile), whole = n * r->tile;
        other = (int64_t)(wide ? (double)whole / again : (double)whole * again);
        int64_t m = cover(other < 1 ? 1 : other, r->tile);
        if (n * m > r->tiles_most) continue;
        *across = (int32_t)(wide ? n : m);
        *down = (int32_t)(wide ? m : n);
        return;
    }
}

// The grid whose shape is nearest to the image's; of equal ones the larger, if the image has more
// than half of that grid's pixels.
void tern_vision_tiles(const tern_vision_rules *r, const tern_vision *v, int32_t width,
                       int32_t height, int32_t *across, int32_t *down) {
    int64_t edge = v->n_patch * v->n_merge, wide = multiple(width, edge);
    int64_t high = multiple(height, edge), n_best = INT64_MAX;
    double best = INFINITY, area = (double)width * height;
    *across = *down = 0;
    if (r->longer) {
        squares_of(r, width, height, across, down);
        return;
    }
    if (wide < v->n_patch) wide = v->n_patch;
    if (high < v->n_patch) high = v->n_patch;
    if (!r->tiles_most || !((double)(wide * high) > (double)r->most * r->tolerance)) return;
    for (int64_t n = r->tiles_least; n <= r->tiles_most; n++)
        for (int64_t a = 1; a <= n; a++) {
            double off = fabs((double)width / height - (double)a / (double)(n / a));
            bool larger = n > n_best && area > 0.5 * (double)(r->tile * r->tile * n);
            if (n % a != 0 || off > best || (off == best && !larger)) continue;
            best = off;
            n_best = n;
            *across = (int32_t)a;
            *down = (int32_t)(n / a);
        }
    if (n_best == 1) *across = *down = 0;
}
