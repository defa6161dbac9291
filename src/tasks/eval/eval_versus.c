// Models compared item by item, from their results files: whether one is better than another, and
// a table of several.
//
// The same questions were put to both, so what counts is each item's difference, whose spread is
// far below that of either score. Where an item is right or wrong, McNemar's test looks at those
// that one model alone has right: if both were equally good, each of these would be a toss of a
// coin, and p is the binomial probability of a division at least as uneven, exactly. For other
// values p is that of the mean difference over its standard error, by the normal distribution.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/eval/eval.h"

#define P_CLEAR 0.05

// ---- Statistics --------------------------------------------------------------------------------

typedef struct versus {
    double first, other;      // means
    double difference, error; // of other less first
    double p;
    size_t only_first, only_other; // items that one alone has right
    bool exact;                    // McNemar
} versus;

// Twice the probability of at most k heads in n tosses.
static double coin_tosses(size_t k, size_t n) {
    double log_term = -(double)n * log(2), sum = 0;
    for (size_t i = 0; i <= k; i++) {
        sum += exp(log_term);
        log_term += log((double)(n - i) / (double)(i + 1));
    }
    return fmin(1, 2 * sum);
}

// [n] outcomes of the same items; m: which metric.
static versus compare(const tern_eval_outcome *a, const tern_eval_outcome *b, size_t n, int m) {
    versus v = {.exact = true};
    tern_eval_mean differences = {0};
    double count = (double)n;
    for (size_t i = 0; i < n; i++) {
        double x = a[i].values[m], y = b[i].values[m];
        v.exact &= (x == 0 || x == 1) && (y == 0 || y == 1);
        v.only_first += x > y;
        v.only_other += y > x;
        v.first += x;
        v.other += y;
        tern_eval_mean_add(&differences, y - x);
    }
    v.first /= count;
    v.other /= count;
    v.difference = differences.sum / count;
    v.error = tern_eval_mean_error(&differences, count);
    size_t fewer = v.only_first < v.only_other ? v.only_first : v.only_other;
    if (v.exact)
        v.p = coin_tosses(fewer, v.only_first + v.only_other);
    else if (differences.sum == 0)
        v.p = 1;
    else // without a spread there is nothing to judge by
        v.p = v.error > 0 ? erfc(fabs(v.difference) / v.error / sqrt(2)) : NAN;
    return v;
}

// Only -ln p is better when it is smaller.
static double better_by(const char *metric, double difference) {
    return strcmp(metric, "nll") ? difference : -difference;
}

// ---- The same items ----------------------------------------------------------------------------

static const tern_eval_outcomes_task *find_task(const tern_eval_outcomes *o, const char *name) {
    for (size_t i = 0; i < o->n_tasks; i++)
        if (!strcmp(o->tasks[i].name, name)) return &o->tasks[i];
    return NULL;
}

static tern_status check_tasks(const tern_eval_outcomes *a, const tern_eval_outcomes *b,
                               tern_error *err) {
    for (size_t i = 0; i < a->n_tasks; i++)
        if (!find_task(b, a->tasks[i].name))
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: it has no items of %s, which %s has",
                             b->path, a->tasks[i].name, a->path);
    return TERN_OK;
}

static tern_status check_items(const tern_eval_outcomes *a, const tern_eval_outcomes *b,
                               const tern_eval_outcomes_task *s, const tern_eval_outcomes_task *t,
                               tern_error *err) {
    const tern_eval_outcome *x = a->list + s->first, *y = b->list + t->first;
    for (size_t i = 0; i < s->n && i < t->n; i++)
        if (x[i].file != y[i].file || x[i].item != y[i].item || x[i].hash != y[i].hash)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "%s:%zu: not the item of %s:%zu: only answers to the same questions "
                             "(%s) can be compared",
                             b->path, y[i].line, a->path, x[i].line, s->name);
    if (s->n != t->n)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s has %zu items of %s, %s has %zu", b->path,
                         t->n, s->name, a->path, s->n);
    for (int m = 0; m < s->n_metrics || m < t->n_metrics; m++)
        if (m == s->n_metrics || m == t->n_metrics || strcmp(s->metrics[m], t->metrics[m]))
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %s has other metrics than in %s", b->path,
                             s->name, a->path);
    return TERN_OK;
}

static tern_status check_same(const tern_eval_outcomes *a, const tern_eval_outcomes *b,
                              tern_error *err) {
    TERN_TRY(check_tasks(a, b, err));
    TERN_TRY(check_tasks(b, a, err));
    for (size_t i = 0; i < a->n_tasks; i++)
        TERN_TRY(check_items(a, b, &a->tasks[i], find_task(b, a->tasks[i].name), err));
    return TERN_OK;
}

// ---- Reports -----------------------------------------------------------------------------------

typedef struct report {
    tern_eval_outcomes *files;
    size_t n_files;
    tern_table_format format;
    tern_strbuf out;
    size_t n_rows;
} report;

// One task and metric: what a row of a report is about.
typedef struct row {
    const tern_eval_outcomes_task *task;
    const char *metric;
    int m;
} row;

static const tern_eval_outcome *outcomes_of(const report *r, size_t file, const row *w) {
    const tern_eval_outcomes *o = &r->files[file];
    return o->list + find_task(o, w->task->name)->first;
}

static versus compare_files(const report *r, const row *w, size_t first, size_t other) {
    return compare(outcomes_of(r, first, w), outcomes_of(r, other, w), w->task->n, w->m);
}

static void put_text(report *r, const char *text) { // a cell of Markdown or CSV
    bool quoted = r->format == TERN_TABLE_CSV && strpbrk(text, ",\"\r\n");
    if (quoted) tern_strbuf_putc(&r->out, '"');
    for (const char *p = text; *p; p++) {
        if (quoted && *p == '"') tern_strbuf_putc(&r->out, '"');
        if (r->format == TERN_TABLE_MARKDOWN && *p == '|') tern_strbuf_putc(&r->out, '\\');
        tern_strbuf_putc(&r->out, *p);
    }
    if (quoted) tern_strbuf_putc(&r->out, '"');
}

static void put_name(report *r, const char *name, const char *text) { // a member of JSON
    tern_strbuf_printf(&r->out, "\"%s\":", name);
    tern_strbuf_json(&r->out, text, strlen(text));
    tern_strbuf_putc(&r->out, ',');
}

static void put_number(report *r, const char *name, double value) {
    if (r->format == TERN_TABLE_JSON) tern_strbuf_printf(&r->out, "\"%s\":", name);
    if (r->format == TERN_TABLE_JSON || !isnan(value))
        tern_strbuf_json_number(&r->out, value); // NaN: null, and an empty cell
    tern_strbuf_putc(&r->out, ',');
}

static void put_error(report *r, const char *format, double value, double error) {
    tern_strbuf_printf(&r->out, format, value);
    if (!isnan(error)) tern_strbuf_printf(&r->out, " ± %.4f", error);
}

// What every row begins with.
static void begin_row(report *r, const row *w) {
    if (r->format == TERN_TABLE_JSON) {
        tern_strbuf_puts(&r->out, r->n_rows++ ? ",\n{" : "\n{");
        put_name(r, "task", w->task->name);
        put_name(r, "metric", w->metric);
        tern_strbuf_printf(&r->out, "\"n_items\":%zu,", w->task->n);
        return;
    }
    bool csv = r->format == TERN_TABLE_CSV;
    tern_strbuf_puts(&r->out, csv ? "" : "| ");
    put_text(r, w->task->name);
    tern_strbuf_puts(&r->out, csv ? "," : " | ");
    put_text(r, w->metric);
    tern_strbuf_printf(&r->out, csv ? ",%zu," : " | %zu | ", w->task->n);
}

static void each_row(report *r, void (*print)(report *r, const row *w)) {
    const tern_eval_outcomes *o = &r->files[0];
    for (size_t i = 0; i < o->n_tasks; i++)
        for (int m = 0; m < o->tasks[i].n_metrics; m++)
            print(r, &(row){&o->tasks[i], o->tasks[i].metrics[m], m});
}

// ---- Two models --------------------------------------------------------------------------------

static void versus_row(report *r, const row *w) {
    const versus v = compare_files(r, w, 0, 1);
    const char *test = v.exact ? "McNemar" : "paired";
    begin_row(r, w);
    if (r->format == TERN_TABLE_MARKDOWN) {
        tern_strbuf_printf(&r->out, "%.4f | %.4f | ", v.first, v.other);
        put_error(r, "%+.4f", v.difference, v.error);
        tern_strbuf_printf(&r->out, " | %zu : %zu | ", v.only_first, v.only_other);
        if (!isnan(v.p)) tern_strbuf_printf(&r->out, "%.3g", v.p);
        tern_strbuf_printf(&r->out, " | %s |\n", test);
        return;
    }
    put_number(r, "first", v.first);
    put_number(r, "other", v.other);
    put_number(r, "difference", v.difference);
    put_number(r, "difference_stderr", v.error);
    put_number(r, "first_greater", (double)v.only_first);
    put_number(r, "other_greater", (double)v.only_other);
    put_number(r, "p", v.p);
    tern_strbuf_printf(&r->out, r->format == TERN_TABLE_JSON ? "\"test\":\"%s\"}" : "%s\n", test);
}

static void print_versus(report *r) {
    if (r->format == TERN_TABLE_JSON) {
        tern_strbuf_putc(&r->out, '{');
        put_name(r, "first", r->files[0].path);
        put_name(r, "other", r->files[1].path);
        tern_strbuf_puts(&r->out, "\"metrics\":[");
    } else if (r->format == TERN_TABLE_CSV) {
        tern_strbuf_puts(&r->out, "task,metric,items,first,other,difference,difference_stderr,"
                                  "first_greater,other_greater,p,test\n");
    } else {
        tern_strbuf_puts(&r->out, "| task | metric | items | ");
        put_text(r, r->files[0].path);
        tern_strbuf_puts(&r->out, " | ");
        put_text(r, r->files[1].path);
        tern_strbuf_puts(&r->out, " | difference | greater in the first : other | p | test |\n"
                                  "|---|---|---|---|---|---|---|---|---|\n");
    }
    each_row(r, versus_row);
    if (r->format == TERN_TABLE_JSON) tern_strbuf_puts(&r->out, "]}\n");
}

// ---- Several models ----------------------------------------------------------------------------

// The file that is better than each of the others, beyond chance; n_files: there is none.
static size_t best_file(const report *r, const row *w) {
    for (size_t best = 0; best < r->n_files && r->n_files > 1; best++) {
        size_t other = 0;
        for (; other < r->n_files; other++) {
            if (other == best) continue;
            versus v = compare_files(r, w, other, best);
            if (!(better_by(w->metric, v.difference) > 0 && v.p < P_CLEAR)) break;
        }
        if (other == r->n_files) return best;
    }
    return r->n_files;
}

static void table_cell(report *r, const row *w, size_t file, bool is_best) {
    const tern_eval_outcome *a = outcomes_of(r, file, w);
    tern_eval_mean mean = {0};
    double n = (double)w->task->n;
    for (size_t i = 0; i < w->task->n; i++) tern_eval_mean_add(&mean, a[i].values[w->m]);
    double error = tern_eval_mean_error(&mean, n);
    if (r->format == TERN_TABLE_MARKDOWN) {
        tern_strbuf_puts(&r->out, is_best ? "**" : "");
        put_error(r, "%.4f", mean.sum / n, error);
        tern_strbuf_puts(&r->out, is_best ? "** | " : " | ");
        return;
    }
    put_number(r, "value", mean.sum / n);
    put_number(r, "stderr", error);
    tern_strbuf_printf(&r->out, r->format == TERN_TABLE_JSON ? "\"best\":%s" : "%s",
                       is_best ? "true" : "false");
}

static void table_row(report *r, const row *w) {
    const size_t best = best_file(r, w);
    const bool text = r->format == TERN_TABLE_MARKDOWN, json = r->format == TERN_TABLE_JSON;
    if (r->format != TERN_TABLE_CSV) begin_row(r, w);
    if (json) tern_strbuf_puts(&r->out, "\"models\":[");
    for (size_t i = 0; i < r->n_files; i++) {
        if (json) {
            tern_strbuf_puts(&r->out, i ? ",{" : "{");
            put_name(r, "results", r->files[i].path);
        } else if (!text) {
            begin_row(r, w);
            put_text(r, r->files[i].path);
            tern_strbuf_putc(&r->out, ',');
        }
        table_cell(r, w, i, i == best);
        if (!text) tern_strbuf_putc(&r->out, json ? '}' : '\n');
    }
    if (text) r->out.len--, tern_strbuf_putc(&r->out, '\n'); // in place of the last space
    if (json) tern_strbuf_puts(&r->out, "]}");
}

static void print_table(report *r) {
    if (r->format == TERN_TABLE_JSON) {
        tern_strbuf_puts(&r->out, "{\"metrics\":[");
    } else if (r->format == TERN_TABLE_CSV) {
        tern_strbuf_puts(&r->out, "task,metric,items,results,value,stderr,best\n");
    } else {
        tern_strbuf_puts(&r->out, "| task | metric | items |");
        for (size_t i = 0; i < r->n_files; i++) {
            tern_strbuf_putc(&r->out, ' ');
            put_text(r, r->files[i].path);
            tern_strbuf_puts(&r->out, " |");
        }
        tern_strbuf_puts(&r->out, "\n|---|---|---|");
        for (size_t i = 0; i < r->n_files; i++) tern_strbuf_puts(&r->out, "---|");
        tern_strbuf_putc(&r->out, '\n');
    }
    each_row(r, table_row);
    if (r->format == TERN_TABLE_JSON) tern_strbuf_puts(&r->out, "]}\n");
}

// ---- Entries -----------------------------------------------------------------------------------

typedef struct receiver {
    tern_text_fn on_text;
    void *user;
} receiver;

static tern_status make_report(const char *const *paths, report *r, void (*print)(report *r),
                               const receiver *to, tern_error *err) {
    tern_status status = TERN_OK;
    r->files = tern_alloc_array(TERN_MEM_MISC, r->n_files, sizeof *r->files);
    if (!r->files) return tern_fail_memory(err, r->n_files * sizeof *r->files);
    for (size_t i = 0; i < r->n_files; i++) {
        TERN_TRY_GOTO(tern_eval_outcomes_read(&r->files[i], paths[i], err));
        if (i) TERN_TRY_GOTO(check_same(&r->files[0], &r->files[i], err));
    }
    print(r);
    if (r->out.failed)
        status = tern_fail_memory(err, r->out.len);
    else if (!to->on_text(to->user, r->out.ptr, r->out.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "the report was stopped");
fail:
    for (size_t i = 0; i < r->n_files; i++) tern_eval_outcomes_free(&r->files[i]);
    tern_free(r->files);
    tern_strbuf_free(&r->out);
    return status;
}

tern_status tern_eval_significance(const char *first, const char *other, tern_table_format format,
                                   tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    TERN_NEED(first);
    TERN_NEED(other);
    TERN_NEED(on_text);
    TERN_NEED_ENUM(format, TERN_TABLE_CSV);
    report r = {.format = format, .n_files = 2};
    const receiver to = {on_text, user};
    return make_report((const char *const[]){first, other}, &r, print_versus, &to, err);
}

tern_status tern_eval_table(const char *const *paths, size_t n_paths, tern_table_format format,
                            tern_text_fn on_text, void *user, tern_error *err) {
    tern_clear(err);
    TERN_NEED(on_text);
    if (n_paths < 1 || n_paths > TERN_EVAL_FILES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a table of %zu results files: expected 1 to %d",
                         n_paths, TERN_EVAL_FILES_MAX);
    TERN_NEED_EACH(paths, n_paths);
    TERN_NEED_ENUM(format, TERN_TABLE_CSV);
    report r = {.format = format, .n_files = n_paths};
    const receiver to = {on_text, user};
    return make_report(paths, &r, print_table, &to, err);
}
