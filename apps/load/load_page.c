// The report as a self-contained page: the table, and plots drawn as SVG.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "apps/load/load_page.h"

enum { WIDTH = 560, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 34, BOTTOM = 44 };

static const char *const colors[] = {"#1f6fb4", "#c4541a", "#2c8a4b", "#8a3fa0", "#9a7b16", "#555"};
enum { N_COLORS = sizeof colors / sizeof *colors };

typedef struct plot {
    tern_strbuf *out;
    double x_most, y_most;
} plot;

static double x_of(const plot *p, double x) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (p->x_most > 0 ? x / p->x_most : 0);
}
static double y_of(const plot *p, double y) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (p->y_most > 0 ? y / p->y_most : 0);
}

static void put_escaped(tern_strbuf *out, const char *text) {
    for (; *text; text++) {
        if (*text == '<')
            tern_strbuf_puts(out, "&lt;");
        else if (*text == '&')
            tern_strbuf_puts(out, "&amp;");
        else if (*text == '"')
            tern_strbuf_puts(out, "&quot;");
        else
            tern_strbuf_putc(out, *text);
    }
}

// A round number not less than v / 4: 1, 2 or 5 times a power of ten.
static double step_for(double v) {
    double power = pow(10, floor(log10(v > 0 ? v / 4 : 1))), least = v > 0 ? v / 4 : 1;
    return power >= least       ? power
           : 2 * power >= least ? 2 * power
           : 5 * power >= least ? 5 * power
                                : 10 * power;
}

static void put_axes(const plot *p, const char *title, const char *x_name) {
    tern_strbuf *o = p->out;
    tern_strbuf_printf(o,
                       "<figure><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">"
                       "<text x=\"%d\" y=\"20\" class=\"t\">%s</text>",
                       WIDTH, HEIGHT, title, LEFT, title);
    double step = step_for(p->y_most);
    for (double y = 0; y <= p->y_most * 1.0001; y += step)
        tern_strbuf_printf(
            o,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" class=\"g\"/><text x=\"%d\" "
            "y=\"%.1f\" class=\"e\">%g</text>",
            LEFT, WIDTH - RIGHT, y_of(p, y), y_of(p, y), LEFT - 6, y_of(p, y) + 4, y);
    step = step_for(p->x_most);
    for (double x = 0; x <= p->x_most * 1.0001; x += step)
        tern_strbuf_printf(o, "<text x=\"%.1f\" y=\"%d\" class=\"m\">%g</text>", x_of(p, x),
                           HEIGHT - BOTTOM + 16, x);
    tern_strbuf_printf(o, "<text x=\"%d\" y=\"%d\" class=\"m\">%s</text>", (WIDTH + LEFT) / 2,
                       HEIGHT - 8, x_name);
}

static void begin_line(const plot *p, size_t color, bool dashed) {
    tern_strbuf_printf(p->out,
                       "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"",
                       colors[color % N_COLORS], dashed ? " stroke-dasharray=\"5 4\"" : "");
}

static void put_point(const plot *p, double x, double y) {
    tern_strbuf_printf(p->out, "%.1f,%.1f ", x_of(p, x), y_of(p, y));
}

static void end_line(const plot *p) { tern_strbuf_puts(p->out, "\"/>"); }

static void put_legend(const plot *p, size_t i, const char *name, const char *more) {
    tern_strbuf_printf(p->out, "<text x=\"%d\" y=\"%d\" fill=\"%s\" class=\"l\">", WIDTH - RIGHT,
                       TOP + 4 + 15 * (int)i, colors[i % N_COLORS]);
    put_escaped(p->out, name);
    put_escaped(p->out, more);
    tern_strbuf_puts(p->out, "</text>");
}

static void end_plot(const plot *p) { tern_strbuf_puts(p->out, "</svg></figure>\n"); }

static double load_of(const load_row *row) { return row->n_users ? row->n_users : row->rate; }

static bool same_server(const load_row *a, const load_row *b) {
    return !strcmp(a->server, b->server);
}

static double speed(const load_summary *s) { return s->tokens_per_s; }
static double first_median(const load_summary *s) { return s->first.at[50] * 1e3; }
static double first_late(const load_summary *s) { return s->first.at[99] * 1e3; }
static double gap_median(const load_summary *s) { return s->gap.at[50] * 1e3; }
static double gap_late(const load_summary *s) { return s->gap.at[99] * 1e3; }

typedef double (*number_of)(const load_summary *s);

static void put_lines(const load_report *r, const plot *p, number_of value, bool dashed) {
    size_t color = 0;
    for (size_t i = 0, n; i < r->n; i += n, color++) {
        begin_line(p, color, dashed);
        for (n = 0; i + n < r->n && same_server(&r->rows[i], &r->rows[i + n]); n++)
            put_point(p, load_of(&r->rows[i + n]), value(&r->rows[i + n].summary));
        end_line(p);
        if (!dashed) put_legend(p, color, r->rows[i].server, "");
    }
}

// A plot of one number over the load, with a line per server; late (may be NULL): dashed.
static void put_by_load(const load_report *r, const char *title, number_of value, number_of late,
                        tern_strbuf *out) {
    plot p = {.out = out};
    for (size_t i = 0; i < r->n; i++) {
        const load_summary *s = &r->rows[i].summary;
        double y = value(s), z = late ? late(s) : 0;
        if (load_of(&r->rows[i]) > p.x_most) p.x_most = load_of(&r->rows[i]);
        if (y > p.y_most) p.y_most = y;
        if (z > p.y_most) p.y_most = z;
    }
    put_axes(&p, title, r->n && r->rows[0].n_users ? "users" : "requests a second");
    put_lines(r, &p, value, false);
    if (late) put_lines(r, &p, late, true);
    end_plot(&p);
}

// The cumulative distribution of gaps, at the greatest load of each server.
static void put_gaps(const load_report *r, tern_strbuf *out) {
    plot p = {.out = out, .y_most = 100};
    size_t color = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->rows[i].summary.gap.at[99] * 1e3 > p.x_most)
            p.x_most = r->rows[i].summary.gap.at[99] * 1e3;
    put_axes(&p, "gaps between tokens at the greatest load, % at most so long", "ms");
    for (size_t i = 0; i < r->n; i++) {
        if (i + 1 < r->n && same_server(&r->rows[i], &r->rows[i + 1])) continue;
        const load_spread *s = &r->rows[i].summary.gap;
        begin_line(&p, color, false);
        for (int q = 0; q < LOAD_QUANTILES - 1; q++) put_point(&p, s->at[q] * 1e3, q);
        end_line(&p);
        put_legend(&p, color++, r->rows[i].server, "");
    }
    end_plot(&p);
}

static void put_table(const load_report *r, tern_strbuf *out) {
    tern_strbuf_puts(
        out, "<table><tr><th>server<th>load<th>answered<th>failed<th>tokens/s<th>prompt tokens/s"
             "<th>cached<th>first token, ms<th>between tokens, ms<th>request, ms\n");
    for (size_t i = 0; i < r->n; i++) {
        const load_row *row = &r->rows[i];
        const load_summary *s = &row->summary;
        tern_strbuf_puts(out, "<tr><td>");
        put_escaped(out, row->server);
        tern_strbuf_printf(out, "<td>%g%s<td>%zu<td>%zu<td>%.1f<td>%.0f<td>%.0f%%", load_of(row),
                           row->n_users ? " users" : " a second", s->n_answered, s->n_failed,
                           s->tokens_per_s, s->prompt_per_s, 100 * s->cached);
        const load_spread *all[] = {&s->first, &s->gap, &s->whole};
        for (size_t k = 0; k < 3; k++)
            tern_strbuf_printf(out, "<td>%.1f · %.1f · %.1f", all[k]->at[50] * 1e3,
                               all[k]->at[90] * 1e3, all[k]->at[99] * 1e3);
        tern_strbuf_putc(out, '\n');
    }
    tern_strbuf_puts(out, "</table>\n");
}

void load_put_page(const load_report *r, tern_strbuf *out) {
    tern_strbuf_puts(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Load</title><style>"
        "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
        "th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #ddd}"
        "th:first-child,td:first-child{text-align:left}"
        "figure{display:inline-block;width:min(100%,34rem);margin:1rem .5rem}"
        ".g{stroke:#ddd}.t{font-weight:600}text{font-size:12px;fill:#222}"
        ".e,.l{text-anchor:end}.m{text-anchor:middle}</style><h1>Load</h1>\n");
    tern_strbuf_printf(out,
                       "<p>Prompts of %d tokens, %d of them shared by all, answers of %d; lengths "
                       "plus or minus up "
                       "to %.0f%%. Times: median · "
                       "90%% · 99%%; dashed: 99%%.</p>\n",
                       r->n_prompt, r->n_shared, r->n_answer, 100 * r->range_ratio);
    put_table(r, out);
    put_by_load(r, "tokens a second, of all answers", speed, NULL, out);
    put_by_load(r, "first token, ms", first_median, first_late, out);
    put_by_load(r, "between two tokens, ms", gap_median, gap_late, out);
    put_gaps(r, out);
    tern_strbuf_puts(out, "</html>\n");
}
