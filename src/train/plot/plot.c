// Training logs as an image: SVG, which every browser shows and every editor can change; or as a
// table, for other programs.
//
// A log's first line describes the run, for the title. The beginning of a run, where the loss falls
// from that of random guessing, may leave the image at the top, so that the rest is readable.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "train/plot/plot.h"
#include "train/trainer.h"

enum { WIDTH = 900, HEIGHT = 520, LEFT = 70, RIGHT = 24, TOP = 60, BOTTOM = 56 };
#define LARGEST 1e15 // larger numbers are neither tokens nor losses

static const char *const colors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};
#define N_COLORS (sizeof colors / sizeof *colors)

typedef struct point {
    double x, y;
} point;
typedef struct series {
    point *points;
    size_t n, capacity;
} series;
typedef struct curves { // of a log
    series train, valid;
    tern_strbuf name, run; // as text for XML; run: its description, may be empty
    bool of_pairs;         // x counts pairs of texts, not tokens
} curves;
typedef struct image {
    curves *logs;
    size_t n_logs;
    double x_max, y_min, y_max;
} image;

// ---- Reading -----------------------------------------------------------------------------------

// Text for XML; invalid characters become question marks.
static void put_text(tern_strbuf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int length = tern_utf8_decode(text + i, n - i, &code);
        if (length <= 0 || code < 32 || code == 127 || code == 0xFFFE || code == 0xFFFF)
            tern_strbuf_putc(out, '?');
        else if (strchr("<>&'\"", text[i]))
            tern_strbuf_printf(out, "&#%d;", text[i]);
        else
            tern_strbuf_append(out, text + i, (size_t)length);
        i += length > 0 ? (size_t)length : 1;
    }
}

// "runs/a/log.jsonl" is the run a; any other file goes by its file name.
static void put_name(tern_strbuf *out, const char *path) {
    const char *name = tern_path_name(path);
    size_t n = strlen(name);
    if (strcmp(name, "log.jsonl") == 0 && name > path) {
        const char *end = name - 1; // the slash
        while (end > path && end[-1] == '/') end--;
        for (name = end; name > path && name[-1] != '/';) name--;
        n = (size_t)(end - name);
    }
    put_text(out, name, n);
}

static void put_run(tern_strbuf *out, const tern_json_doc *doc, const tern_json *run) {
    tern_str recipe = tern_json_str(tern_json_get(doc, run, "recipe"));
    int64_t lora = tern_json_int(tern_json_get(doc, run, "lora"), 0);
    if (!recipe.ptr || out->len) return;
    if (lora > 0) tern_strbuf_printf(out, "an adapter of rank %lld beside a ", (long long)lora);
    put_text(out, recipe.ptr, recipe.len);
    tern_strbuf_printf(out, ", %lld layers of %lld",
                       (long long)tern_json_int(tern_json_get(doc, run, "layers"), 0),
                       (long long)tern_json_int(tern_json_get(doc, run, "embd"), 0));
}

static bool number_of(const tern_json_doc *doc, const char *key, double *out) {
    *out = tern_json_number(tern_json_get(doc, tern_json_root(doc), key), NAN);
    return fabs(*out) < LARGEST;
}

static tern_status take_line(curves *c, const tern_json_doc *doc, tern_error *err) {
    point p;
    series *s = NULL;
    put_run(&c->run, doc, tern_json_get(doc, tern_json_root(doc), "run"));
    if (!number_of(doc, "tokens", &p.x)) c->of_pairs |= number_of(doc, "pairs", &p.x);
    if (!(p.x >= 0) || p.x >= LARGEST) return TERN_OK;
    if (number_of(doc, "valid_loss", &p.y))
        s = &c->valid;
    else if (number_of(doc, "loss", &p.y))
        s = &c->train;
    else
        return TERN_OK;
    if (tern_array_reserve(TERN_MEM_MISC, &s->points, &s->capacity, s->n, 1) != 0)
        return tern_fail_memory(err, sizeof p);
    s->points[s->n++] = p;
    return TERN_OK;
}

tern_status tern_log_next(tern_lines *l, tern_json_doc *doc, bool *more, tern_error *err) {
    for (tern_status status = TERN_ERR_FORMAT; status != TERN_OK;) {
        TERN_TRY(tern_lines_next(l, more, err));
        if (!*more) return TERN_OK;
        status = tern_json_parse(doc, tern_strbuf_text(&l->line), l->line.len, NULL);
        if (status == TERN_ERR_MEMORY) return tern_fail_memory(err, l->line.len);
    }
    return TERN_OK;
}

static tern_status read_log(curves *c, const char *path, tern_error *err) {
    tern_lines l;
    bool more = true;
    put_name(&c->name, path);
    TERN_TRY(tern_lines_open(&l, path, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK) {
        tern_json_doc doc;
        status = tern_log_next(&l, &doc, &more, err);
        if (status != TERN_OK || !more) break;
        status = take_line(c, &doc, err);
        tern_json_free(&doc);
    }
    tern_lines_close(&l);
    if (status == TERN_OK && c->train.n == 0)
        status = tern_fail(err, TERN_ERR_FORMAT, "%s: there is no loss in it yet", path);
    return status;
}

// ---- What is shown -----------------------------------------------------------------------------

static void stretch(image *p, const series *s, double from) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->points[i].x < from) continue;
        p->y_min = fmin(p->y_min, s->points[i].y);
        p->y_max = fmax(p->y_max, s->points[i].y);
    }
}

static void choose_range(image *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_logs; i++) {
        const series *s = &p->logs[i].train;
        for (size_t k = 0; k < s->n; k++) p->x_max = fmax(p->x_max, s->points[k].x);
        n = s->n > n ? s->n : n;
    }
    if (p->x_max <= 0) p->x_max = 1;
    p->y_min = INFINITY;
    p->y_max = -INFINITY;
    for (size_t i = 0; i < p->n_logs; i++) {
        stretch(p, &p->logs[i].train, n < 20 ? 0 : 0.05 * p->x_max);
        stretch(p, &p->logs[i].valid, n < 20 ? 0 : 0.05 * p->x_max);
    }
    double range = fmax(p->y_max - p->y_min, 1e-3 * fmax(1, fabs(p->y_max)));
    p->y_min -= 0.04 * range;
    p->y_max += 0.06 * range;
}

static double x_of(const image *p, double x) {
    return LEFT + x / p->x_max * (WIDTH - LEFT - RIGHT);
}
static double y_of(const image *p, double y) {
    return TOP + (p->y_max - y) / (p->y_max - p->y_min) * (HEIGHT - TOP - BOTTOM);
}

// ---- Drawing -----------------------------------------------------------------------------------

// A step between at most n marks on an axis: 1, 2 or 5 times a power of ten.
static double mark_step(double range, int n) {
    double step = pow(10, floor(log10(range / n)));
    if (range / step > 5 * n) return 10 * step;
    return range / step > 2 * n ? 5 * step : range / step > n ? 2 * step : step;
}

static int digits_of(double step) {
    double n = -floor(log10(step));
    return n < 0 ? 0 : n > 9 ? 9 : (int)n;
}

static void draw_y_axis(const image *p, tern_strbuf *out) {
    double step = mark_step(p->y_max - p->y_min, 8), first = ceil(p->y_min / step);
    for (int i = 0; i < 10 && (first + i) * step <= p->y_max; i++) {
        double y = (first + i) * step;
        tern_strbuf_printf(out,
                           "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#e4e4e4'/>"
                           "<text x='%d' y='%.1f' text-anchor='end'>%.*f</text>\n",
                           LEFT, WIDTH - RIGHT, y_of(p, y), y_of(p, y), LEFT - 8, y_of(p, y) + 4,
                           digits_of(step), y);
    }
}

static void draw_x_axis(const image *p, tern_strbuf *out) {
    static const char *const names[] = {"", "thousand ", "million ", "billion ", "trillion "};
    bool pairs = p->logs[0].of_pairs;
    int unit = 0;
    double scale = 1, step = mark_step(p->x_max, 10);
    for (; unit < 4 && p->x_max >= 1000 * scale; unit++) scale *= 1000;
    for (int i = 0; i < 12 && i * step <= p->x_max; i++)
        tern_strbuf_printf(out,
                           "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' stroke='#888'/>"
                           "<text x='%.1f' y='%d' text-anchor='middle'>%.*f</text>\n",
                           x_of(p, i * step), x_of(p, i * step), HEIGHT - BOTTOM,
                           HEIGHT - BOTTOM + 5, x_of(p, i * step), HEIGHT - BOTTOM + 20,
                           digits_of(step / scale), i * step / scale);
    tern_strbuf_printf(out,
                       "<path d='M%d %dV%dH%d' fill='none' stroke='#888'/>"
                       "<text x='%d' y='%d' text-anchor='middle'>%s%s read</text>"
                       "<text x='18' y='%d' transform='rotate(-90 18 %d)' "
                       "text-anchor='middle'>loss (nats%s)</text>\n",
                       LEFT, TOP, HEIGHT - BOTTOM, WIDTH - RIGHT, (LEFT + WIDTH - RIGHT) / 2,
                       HEIGHT - 12, names[unit], pairs ? "pairs" : "tokens",
                       (TOP + HEIGHT - BOTTOM) / 2, (TOP + HEIGHT - BOTTOM) / 2,
                       pairs ? "" : " a token");
}

static void draw_series(const image *p, const series *s, const char *color, bool is_valid,
                        tern_strbuf *out) {
    tern_strbuf_printf(out, "<polyline fill='none' stroke='%s' stroke-linejoin='round' %s points='",
                       color, is_valid ? "stroke-width='2.4'" : "stroke-width='1.3' opacity='0.5'");
    for (size_t i = 0; i < s->n; i++)
        tern_strbuf_printf(out, "%.1f,%.1f ", x_of(p, s->points[i].x), y_of(p, s->points[i].y));
    tern_strbuf_puts(out, "'/>\n");
    bool few = s->n <= 40; // few enough to mark each one
    for (size_t i = 0; few && (is_valid || s->n == 1) && i < s->n; i++)
        tern_strbuf_printf(out, "<circle cx='%.1f' cy='%.1f' r='3.2' fill='%s'/>",
                           x_of(p, s->points[i].x), y_of(p, s->points[i].y), color);
}

static void draw_curves(const image *p, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "<clipPath id='area'><rect x='%d' y='%d' width='%d' height='%d'/></clipPath>"
                       "<g clip-path='url(#area)'>\n",
                       LEFT, TOP - 4, WIDTH - LEFT - RIGHT + 4, HEIGHT - TOP - BOTTOM + 4);
    for (size_t i = 0; i < p->n_logs; i++)
        draw_series(p, &p->logs[i].train, colors[i % N_COLORS], false, out);
    for (size_t i = 0; i < p->n_logs; i++)
        if (p->logs[i].valid.n) draw_series(p, &p->logs[i].valid, colors[i % N_COLORS], true, out);
    tern_strbuf_puts(out, "</g>\n");
}

static size_t n_characters(const tern_strbuf *text) {
    size_t n = 0;
    for (size_t i = 0; i < text->len; i++) n += ((unsigned char)text->ptr[i] & 0xC0) != 0x80;
    return n;
}

// The line, and its last value; in the top right corner, which falling curves leave free.
static void draw_entry(const char *color, bool is_valid, double last, int x, int y,
                       tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "<line x1='%d' x2='%d' y1='%d' y2='%d' stroke='%s' %s/>"
                       "<text x='%d' y='%d'>%s</text>"
                       "<text x='%d' y='%d' text-anchor='end'>%.4f</text>\n",
                       x, x + 26, y - 4, y - 4, color,
                       is_valid ? "stroke-width='2.4'" : "stroke-width='1.4' opacity='0.55'",
                       x + 34, y, is_valid ? "held out" : "training", x + 186, y, last);
}

static void draw_legend(const image *p, tern_strbuf *out) {
    size_t n_rows = 0, widest = 0;
    for (size_t i = 0; i < p->n_logs; i++) {
        size_t n = n_characters(&p->logs[i].name);
        n_rows += 2 + (p->logs[i].valid.n > 0);
        widest = n > widest ? n : widest;
    }
    int width = widest > 24 ? (int)(widest > 60 ? 60 : widest) * 8 + 12 : 204, y = TOP + 8;
    int x = WIDTH - RIGHT - width - 8;
    tern_strbuf_printf(out,
                       "<rect x='%d' y='%d' width='%d' height='%zu' rx='4' fill='white' "
                       "fill-opacity='0.88' stroke='#ccc'/>\n",
                       x, y, width, n_rows * 18 + 10);
    for (size_t i = 0; i < p->n_logs; i++) {
        const curves *c = &p->logs[i];
        const char *color = colors[i % N_COLORS];
        y += 18;
        tern_strbuf_printf(out, "<text x='%d' y='%d' font-weight='bold' fill='%s'>%s</text>\n",
                           x + 8, y, color, tern_strbuf_text(&c->name));
        y += 18;
        draw_entry(color, false, c->train.points[c->train.n - 1].y, x + 8, y, out);
        if (c->valid.n == 0) continue;
        y += 18;
        draw_entry(color, true, c->valid.points[c->valid.n - 1].y, x + 8, y, out);
    }
}

static void draw(const image *p, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 "
                       "0 %d %d' font-family='sans-serif' font-size='13' fill='#333'>\n"
                       "<rect width='100%%' height='100%%' fill='white'/>\n"
                       "<text x='%d' y='34' font-size='18' font-weight='bold'>Training loss",
                       WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    const tern_strbuf *run = &p->logs[0].run;
    if (p->n_logs == 1 && run->len)
        tern_strbuf_printf(out, "<tspan font-size='14' font-weight='normal' dx='12'>%s</tspan>",
                           run->ptr);
    tern_strbuf_puts(out, "</text>\n");
    draw_y_axis(p, out);
    draw_x_axis(p, out);
    draw_curves(p, out);
    draw_legend(p, out);
    tern_strbuf_puts(out, "</svg>\n");
}

// A name without an ending is an image's, too: /dev/stdout.
static tern_status check_ending(const char *path, tern_error *err) {
    const char *ending = strrchr(tern_path_name(path), '.');
    if (!ending || !strcmp(ending, ".svg") || !strcmp(ending, ".csv")) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: a plot is an image, .svg, or a table, .csv; there is no writer for %s",
                     path, ending);
}

static void free_curves(curves *c) {
    tern_free(c->train.points);
    tern_free(c->valid.points);
    tern_strbuf_free(&c->name);
    tern_strbuf_free(&c->run);
}

tern_status tern_train_plot(const char *const *logs, size_t n_logs, const char *path,
                            tern_error *err) {
    tern_clear(err);
    image p = {.n_logs = n_logs};
    tern_strbuf out = {0};
    tern_status status = TERN_OK;
    TERN_NEED_EACH(logs, n_logs);
    TERN_NEED(path);
    if (n_logs == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "an image needs a log");
    TERN_TRY(check_ending(path, err));
    p.logs = tern_alloc_array(TERN_MEM_MISC, n_logs, sizeof *p.logs);
    if (!p.logs) return tern_fail_memory(err, n_logs * sizeof *p.logs);
    for (size_t i = 0; status == TERN_OK && i < n_logs; i++) {
        status = read_log(&p.logs[i], logs[i], err);
        if (p.logs[i].name.failed || p.logs[i].run.failed) out.failed = true;
    }
    if (status == TERN_OK) {
        choose_range(&p);
        if (tern_name_ends(path, ".csv"))
            status = tern_plot_table(logs, n_logs, &out, err);
        else
            draw(&p, &out);
        if (status == TERN_OK)
            status = out.failed ? tern_fail_memory(err, out.capacity)
                                : tern_file_write(path, out.ptr, out.len, err);
    }
    for (size_t i = 0; i < n_logs; i++) free_curves(&p.logs[i]);
    tern_free(p.logs);
    tern_strbuf_free(&out);
    return status;
}
