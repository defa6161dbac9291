// A training log as a picture: SVG, which every browser shows and every editor can change.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/strbuf.h"
#include "train/trainer.h"

enum { WIDTH = 860, HEIGHT = 480, LEFT = 64, RIGHT = 20, TOP = 20, BOTTOM = 48 };

typedef struct point {
    double x, y;
} point;
typedef struct series {
    const char *name;
    bool is_valid;
    point *points;
    size_t n, capacity;
} series;
typedef struct picture {
    series *series; // two for each log: training and validation
    size_t n_series;
    double x_max, y_min, y_max;
} picture;

static bool number_of(const char *line, const char *key, double *out) {
    const char *at = strstr(line, key);
    if (!at) return false;
    char *end;
    *out = strtod(at + strlen(key), &end);
    return end != at + strlen(key) && isfinite(*out);
}

static tern_status read_log(picture *p, const char *path, series *train, series *valid,
                            tern_error *err) {
    char line[4096];
    FILE *f = fopen(path, "r");
    if (!f) return tern_fail(err, TERN_ERR_IO, "%s: %s", path, strerror(errno));
    tern_status status = TERN_OK;
    while (status == TERN_OK && fgets(line, sizeof line, f)) {
        double tokens, loss;
        bool is_valid = number_of(line, "\"valid_loss\":", &loss);
        if (!number_of(line, "\"tokens\":", &tokens)) continue;
        if (!is_valid && !number_of(line, "\"loss\":", &loss)) continue;
        series *s = is_valid ? valid : train;
        if (tern_array_reserve(TERN_MEM_MISC, &s->points, &s->capacity, s->n, 1) != 0)
            status = tern_fail_memory(err, sizeof *s->points);
        else
            s->points[s->n++] = (point){tokens, loss};
        p->x_max = fmax(p->x_max, tokens);
        p->y_min = fmin(p->y_min, loss);
        p->y_max = fmax(p->y_max, loss);
    }
    fclose(f);
    if (status == TERN_OK && train->n == 0)
        status = tern_fail(err, TERN_ERR_FORMAT, "%s: there is no loss in it", path);
    return status;
}

static double x_of(const picture *p, double x) {
    return LEFT + x / p->x_max * (WIDTH - LEFT - RIGHT);
}
static double y_of(const picture *p, double y) {
    return TOP + (p->y_max - y) / (p->y_max - p->y_min) * (HEIGHT - TOP - BOTTOM);
}

// A step between marks of about n on the axis: 1, 2 or 5 times a power of ten.
static double mark_step(double range, int n) {
    double step = pow(10, floor(log10(range / n)));
    while (range / step > n) step *= range / step > 2.5 * n ? 2.5 : 2;
    return step;
}

static void draw_axes(const picture *p, tern_strbuf *out) {
    double step = mark_step(p->y_max - p->y_min, 8);
    for (double y = ceil(p->y_min / step) * step; y <= p->y_max; y += step)
        tern_strbuf_printf(out,
                           "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#ddd'/>"
                           "<text x='%d' y='%.1f' text-anchor='end'>%.4g</text>\n",
                           LEFT, WIDTH - RIGHT, y_of(p, y), y_of(p, y), LEFT - 6, y_of(p, y) + 4,
                           y);
    step = mark_step(p->x_max, 8);
    for (double x = 0; x <= p->x_max; x += step)
        tern_strbuf_printf(out, "<text x='%.1f' y='%d' text-anchor='middle'>%.4gM</text>\n",
                           x_of(p, x), HEIGHT - BOTTOM + 18, x / 1e6);
    tern_strbuf_printf(out,
                       "<text x='%d' y='%d' text-anchor='middle'>tokens</text>"
                       "<text x='14' y='%d' transform='rotate(-90 14 %d)' "
                       "text-anchor='middle'>loss (nats a token)</text>\n",
                       (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, HEIGHT / 2, HEIGHT / 2);
}

static void draw_series(const picture *p, size_t index, tern_strbuf *out) {
    static const char *const colors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};
    const series *s = &p->series[index];
    const char *color = colors[index / 2 % 5];
    if (s->n == 0) return;
    tern_strbuf_printf(out, "<polyline fill='none' stroke='%s' stroke-width='%s'%s points='", color,
                       s->is_valid ? "2.2" : "1", s->is_valid ? "" : " opacity='0.55'");
    for (size_t i = 0; i < s->n; i++)
        tern_strbuf_printf(out, "%.1f,%.1f ", x_of(p, s->points[i].x), y_of(p, s->points[i].y));
    tern_strbuf_printf(out, "'/>\n<text x='%d' y='%d' text-anchor='end' fill='%s'>", WIDTH - RIGHT,
                       TOP + 16 + (int)index * 17, color);
    for (const char *c = s->name; *c; c++) { // a file's name may be anything
        if (*c == '<' || *c == '&')
            tern_strbuf_printf(out, "&#%d;", *c);
        else
            tern_strbuf_putc(out, *c);
    }
    tern_strbuf_printf(out, "%s %.4f</text>\n", s->is_valid ? " validation" : "",
                       s->points[s->n - 1].y);
}

static tern_status write_text(const char *path, const tern_strbuf *text, tern_error *err) {
    if (text->failed) return tern_fail_memory(err, text->capacity);
    return tern_file_write(path, text->ptr, text->len, err);
}

static tern_status draw(picture *p, const char *const *logs, size_t n_logs, const char *svg,
                        tern_error *err) {
    for (size_t i = 0; i < n_logs; i++) {
        p->series[2 * i] = (series){.name = logs[i]};
        p->series[2 * i + 1] = (series){.name = logs[i], .is_valid = true};
        TERN_TRY(read_log(p, logs[i], &p->series[2 * i], &p->series[2 * i + 1], err));
    }
    if (p->y_max <= p->y_min) p->y_max = p->y_min + 1;
    if (p->x_max <= 0) p->x_max = 1;
    tern_strbuf out = {0};
    tern_strbuf_printf(&out,
                       "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
                       "font-family='sans-serif' font-size='12'>\n<rect width='100%%' "
                       "height='100%%' fill='white'/>\n",
                       WIDTH, HEIGHT);
    draw_axes(p, &out);
    for (size_t i = 0; i < p->n_series; i++) draw_series(p, i, &out);
    tern_strbuf_puts(&out, "</svg>\n");
    tern_status status = write_text(svg, &out, err);
    tern_strbuf_free(&out);
    return status;
}

tern_status tern_train_plot(const char *const *logs, size_t n_logs, const char *svg,
                            tern_error *err) {
    picture p = {.n_series = 2 * n_logs, .y_min = INFINITY, .y_max = -INFINITY};
    p.series = tern_alloc_array(TERN_MEM_MISC, p.n_series + 1, sizeof *p.series);
    if (!p.series) return tern_fail_memory(err, p.n_series * sizeof *p.series);
    tern_status status = draw(&p, logs, n_logs, svg, err);
    for (size_t i = 0; i < p.n_series; i++) tern_free(p.series[i].points);
    tern_free(p.series);
    return status;
}
