// Reads a results file (eval_record.c) for comparisons: the metrics of each item, in an order that
// does not depend on the one in which they were computed.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "tasks/eval/eval.h"

// ---- Tasks -------------------------------------------------------------------------------------

static char *copy_text(tern_str s) {
    char *copy = tern_alloc(TERN_MEM_MISC, s.len + 1);
    if (copy) memcpy(copy, s.ptr, s.len);
    return copy;
}

static tern_status add_task(tern_eval_outcomes *o, tern_str name, const tern_lines *l,
                            tern_error *err) {
    if (o->n_tasks == TERN_EVAL_TASKS_MAX)
        return tern_lines_fail(l, err, TERN_ERR_FORMAT, "more than 1024 tasks");
    if (tern_array_reserve(TERN_MEM_MISC, &o->tasks, &o->tasks_capacity, o->n_tasks, 1) != 0)
        return tern_fail_memory(err, (o->n_tasks + 1) * sizeof *o->tasks);
    tern_eval_outcomes_task *t = &o->tasks[o->n_tasks++];
    *t = (tern_eval_outcomes_task){.name = copy_text(name)};
    return t->name ? TERN_OK : tern_fail_memory(err, name.len);
}

// The names of the task's first item.
static tern_status name_metrics(tern_eval_outcomes_task *t, const tern_json_doc *doc,
                                const tern_json *metrics, const tern_lines *l, tern_error *err) {
    if (metrics->n < 1 || metrics->n > TERN_EVAL_METRICS_MAX)
        return tern_lines_fail(l, err, TERN_ERR_FORMAT, "'metrics': expected 1 to 8 of them");
    for (const tern_json *key = tern_json_first(doc, metrics); key;
         key = tern_json_next(doc, metrics, key)) {
        tern_str name = tern_json_str(key);
        t->metrics[t->n_metrics] = copy_text(name);
        if (!t->metrics[t->n_metrics++]) return tern_fail_memory(err, name.len);
    }
    return TERN_OK;
}

// Records of one task follow one another, as a rule: the last one is tried first.
static tern_status find_task(tern_eval_outcomes *o, tern_str name, uint32_t *out,
                             const tern_lines *l, tern_error *err) {
    uint32_t last = o->n ? o->list[o->n - 1].task : 0;
    if (last < o->n_tasks && tern_str_is(name, o->tasks[last].name)) {
        *out = last;
        return TERN_OK;
    }
    for (*out = 0; *out < o->n_tasks; ++*out)
        if (tern_str_is(name, o->tasks[*out].name)) return TERN_OK;
    return add_task(o, name, l, err);
}

// ---- Lines -------------------------------------------------------------------------------------

static tern_status read_values(const tern_eval_outcomes_task *t, const tern_json_doc *doc,
                               const tern_json *metrics, double *values, const tern_lines *l,
                               tern_error *err) {
    for (int i = 0; i < t->n_metrics; i++) {
        const tern_json *v = tern_json_get(doc, metrics, t->metrics[i]);
        if (!tern_json_is(v, TERN_JSON_NUMBER) || (int)metrics->n != t->n_metrics)
            return tern_lines_fail(l, err, TERN_ERR_FORMAT,
                                   "'metrics' are not numbers by the names of the task's first");
        values[i] = tern_json_number(v, 0);
    }
    return TERN_OK;
}

static tern_status read_outcome(tern_eval_outcomes *o, const tern_json_doc *doc,
                                const tern_lines *l, tern_error *err) {
    const tern_json *root = tern_json_root(doc), *metrics = tern_json_get(doc, root, "metrics");
    tern_str task = tern_json_str(tern_json_get(doc, root, "task"));
    tern_str file = tern_json_str(tern_json_get(doc, root, "file"));
    tern_str hash = tern_json_str(tern_json_get(doc, root, "hash"));
    int64_t item = tern_json_int(tern_json_get(doc, root, "item"), -1);
    tern_eval_outcome out = {.item = (uint64_t)item, .line = l->number};
    if (!task.ptr || !file.ptr || !hash.ptr || item < 0)
        return tern_lines_fail(l, err, TERN_ERR_FORMAT,
                               "expected an item's 'task', 'file', 'item' and 'hash'");
    if (!tern_json_is(metrics, TERN_JSON_OBJECT))
        return tern_lines_fail(l, err, TERN_ERR_FORMAT,
                               "'metrics' are missing, as in files of earlier versions of tern: "
                               "evaluate with a new file");
    out.file = tern_hash64(0, file.ptr, file.len);
    out.hash = tern_hash64(0, hash.ptr, hash.len);
    TERN_TRY(find_task(o, task, &out.task, l, err));
    tern_eval_outcomes_task *t = &o->tasks[out.task];
    if (!t->n_metrics) TERN_TRY(name_metrics(t, doc, metrics, l, err));
    TERN_TRY(read_values(t, doc, metrics, out.values, l, err));
    if (tern_array_reserve(TERN_MEM_MISC, &o->list, &o->capacity, o->n, 1) != 0)
        return tern_fail_memory(err, (o->n + 1) * sizeof *o->list);
    o->list[o->n++] = out;
    return TERN_OK;
}

static tern_status read_line(tern_eval_outcomes *o, const tern_lines *l, tern_error *err) {
    tern_json_doc doc;
    tern_error why = {0};
    tern_status status = tern_json_parse_part(&doc, l->line.ptr, l->line.len, &why);
    if (status != TERN_OK) return tern_lines_fail(l, err, status, why.message);
    if (l->number > 1)
        status = read_outcome(o, &doc, l, err);
    else if (tern_json_int(tern_json_get(&doc, tern_json_root(&doc), "tern_eval"), 0) != 1)
        status = tern_lines_fail(l, err, TERN_ERR_FORMAT,
                                 "not a file of --results: its first line has no \"tern_eval\":1");
    tern_json_free(&doc);
    return status;
}

// ---- The file ----------------------------------------------------------------------------------

static int by_place(const void *a, const void *b) {
    const tern_eval_outcome *x = a, *y = b;
    if (x->task != y->task) return x->task < y->task ? -1 : 1;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

static tern_status sort(tern_eval_outcomes *o, tern_error *err) {
    if (!o->n) return tern_fail(err, TERN_ERR_FORMAT, "%s: there are no items in it", o->path);
    qsort(o->list, o->n, sizeof *o->list, by_place);
    for (size_t i = 0; i < o->n; i++) {
        tern_eval_outcomes_task *t = &o->tasks[o->list[i].task];
        if (i && by_place(&o->list[i - 1], &o->list[i]) == 0)
            return tern_fail(err, TERN_ERR_FORMAT, "%s:%zu: the item is also in line %zu", o->path,
                             o->list[i].line, o->list[i - 1].line);
        if (!t->n++) t->first = i;
    }
    return TERN_OK;
}

tern_status tern_eval_outcomes_read(tern_eval_outcomes *o, const char *path, tern_error *err) {
    tern_lines l = {0};
    bool more = true;
    *o = (tern_eval_outcomes){.path = path};
    tern_status status = tern_lines_open(&l, path, err);
    while (status == TERN_OK && more) {
        status = tern_lines_next(&l, &more, err);
        more = more && l.is_whole; // a run that is not over may be writing its last line
        if (status == TERN_OK && more) status = read_line(o, &l, err);
    }
    tern_lines_close(&l);
    return status == TERN_OK ? sort(o, err) : status;
}

void tern_eval_outcomes_free(tern_eval_outcomes *o) {
    for (size_t i = 0; i < o->n_tasks; i++) {
        for (int k = 0; k < o->tasks[i].n_metrics; k++) tern_free(o->tasks[i].metrics[k]);
        tern_free(o->tasks[i].name);
    }
    tern_free(o->tasks);
    tern_free(o->list);
    *o = (tern_eval_outcomes){0};
}
