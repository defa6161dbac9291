// A run's log, line by line: a file that others read while it grows.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/lines.h"
#include "base/os/os_file.h"
#include "train/plot/plot.h"
#include "train/trainer.h"

struct tern_train_log {
    char *path;
    int fd;
    tern_strbuf line;      // being built
    tern_tfevents *events; // the same for TensorBoard, NULL: not wanted
    int64_t step;          // of the line
    bool is_valid;         // the line is of held-out text
    tern_strbuf tag;
};

// ---- Lines -------------------------------------------------------------------------------------

static tern_status write_line(tern_train_log *log, tern_error *err) {
    if (tern_fd_write(log->fd, log->line.ptr, log->line.len)) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", log->path, strerror(errno));
}

void tern_train_log_begin(tern_train_log *log, const tern_trainer *t) {
    tern_strbuf_clear(&log->line);
    log->step = t->step;
    log->is_valid = false;
    bool pairs = tern_trainer_has_pairs(t);
    tern_strbuf_printf(&log->line, "{\"step\":%lld,\"%s\":%lld", (long long)t->step,
                       pairs ? "pairs" : "tokens",
                       (long long)t->step * (pairs ? t->desc.batch_pairs : t->desc.batch_tokens));
}

// The names that TensorBoard shows are those of transformers: "train/loss", "eval/loss".
static void tag_number(tern_train_log *log, const char *key, double value) {
    static const char valid[] = "valid_";
    if (!log->events) return;
    bool is_valid = strncmp(key, valid, sizeof valid - 1) == 0;
    log->is_valid |= is_valid;
    tern_strbuf_clear(&log->tag);
    tern_strbuf_puts(&log->tag, log->is_valid ? "eval/" : "train/");
    tern_strbuf_puts(&log->tag, strcmp(key, "rate") == 0 ? "learning_rate"
                                : is_valid               ? key + sizeof valid - 1
                                                         : key);
    tern_tfevents_number(log->events, tern_strbuf_text(&log->tag), value);
}

void tern_train_log_number(tern_train_log *log, const char *key, int digits, double value) {
    tag_number(log, key, value);
    tern_strbuf_printf(&log->line, ",\"%s\":", key);
    if (isfinite(value))
        tern_strbuf_printf(&log->line, "%.*g", digits, value);
    else
        tern_strbuf_puts(&log->line, "null"); // JSON has no NaN
}

void tern_train_log_sample(tern_train_log *log, const char *prompt, const char *text) {
    tern_strbuf_puts(&log->line, ",\"prompt\":");
    tern_strbuf_json(&log->line, prompt, strlen(prompt));
    tern_strbuf_puts(&log->line, ",\"sample\":");
    tern_strbuf_json(&log->line, text, strlen(text));
    if (!log->events) return;
    tern_strbuf_clear(&log->tag);
    tern_strbuf_puts(&log->tag, "samples/");
    tern_strbuf_puts(&log->tag, prompt);
    tern_tfevents_text(log->events, tern_strbuf_text(&log->tag), text);
}

void tern_train_log_numbers(tern_train_log *log, const char *key, const double *values, size_t n) {
    tern_strbuf_printf(&log->line, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++)
        tern_strbuf_printf(&log->line, "%s%.5f", i ? "," : "", values[i]);
    tern_strbuf_putc(&log->line, ']');
}

tern_status tern_train_log_end(tern_train_log *log, tern_error *err) {
    tern_strbuf_puts(&log->line, "}\n");
    if (log->line.failed || log->tag.failed) return tern_fail_memory(err, log->line.len);
    TERN_TRY(write_line(log, err));
    return tern_tfevents_flush(log->events, log->step, err);
}

// ---- Opening -----------------------------------------------------------------------------------

typedef struct measured {
    uint64_t n_keep;   // bytes of the lines up to a step
    int64_t n_dropped; // lines after them
    int64_t n_steps;   // of the last line
} measured;

// A line without its end was being written when the process died.
static tern_status measure(const char *path, int64_t step, measured *m, tern_error *err) {
    tern_lines l = {0};
    tern_status status = tern_path_look(path) ? tern_lines_open(&l, path, err) : TERN_OK;
    bool more = l.file != NULL, keeps = true;
    *m = (measured){0};
    while (status == TERN_OK && more) {
        long long of = 0;
        status = tern_lines_next(&l, &more, err);
        if (status != TERN_OK || !more) break;
        sscanf(tern_strbuf_text(&l.line), "{\"step\":%lld", &of);
        keeps &= of <= step && l.is_whole;
        if (keeps)
            m->n_keep = l.end;
        else
            m->n_dropped++;
        if (of > m->n_steps) m->n_steps = of;
    }
    tern_lines_close(&l);
    return status;
}

// The first line, or the one that says where a resumed run continued.
static tern_status write_head(tern_train_log *log, const tern_trainer *t, bool is_first,
                              tern_error *err) {
    const char *device = t->backend->describe(t->device);
    if (is_first) {
        tern_strbuf_clear(&log->line);
        tern_strbuf_puts(&log->line, "{\"run\":");
        TERN_TRY(tern_identity_describe(t, &log->line, err));
    } else {
        tern_train_log_begin(log, t);
        tern_strbuf_puts(&log->line, ",\"resumed\":true");
    }
    tern_strbuf_printf(&log->line, ",\"n_steps\":%lld,\"device\":", (long long)t->desc.n_steps);
    tern_strbuf_json(&log->line, device, strlen(device));
    return tern_train_log_end(log, err);
}

static tern_status open_log(tern_train_log *log, const tern_trainer *t, bool keep,
                            int64_t *n_dropped, tern_error *err) {
    measured m;
    log->path = tern_path_join(t->desc.out, "log.jsonl");
    if (!log->path) return tern_fail_memory(err, strlen(t->desc.out));
    TERN_TRY(measure(log->path, t->step, &m, err));
    *n_dropped = m.n_dropped;
    if (!keep) m.n_keep = 0;
    TERN_TRY(tern_file_open_log(&log->fd, log->path, m.n_keep, false, err));
    int64_t first = t->step > 0 ? t->step + 1 : 0; // to be written again
    if (t->desc.tensorboard) TERN_TRY(tern_tfevents_open(&log->events, t->desc.out, first, err));
    return write_head(log, t, m.n_keep == 0, err);
}

tern_status tern_train_log_open(tern_train_log **out, const tern_trainer *t, bool keep,
                                int64_t *n_dropped, tern_error *err) {
    tern_train_log *log = tern_alloc(TERN_MEM_MISC, sizeof *log);
    *out = NULL;
    *n_dropped = 0;
    if (!log) return tern_fail_memory(err, sizeof *log);
    log->fd = -1;
    tern_status status = open_log(log, t, keep, n_dropped, err);
    if (status != TERN_OK)
        tern_train_log_close(log);
    else
        *out = log;
    return status;
}

void tern_train_log_close(tern_train_log *log) {
    if (!log) return;
    if (log->fd >= 0) tern_fd_close(log->fd);
    tern_tfevents_close(log->events);
    tern_strbuf_free(&log->line);
    tern_strbuf_free(&log->tag);
    tern_free(log->path);
    tern_free(log);
}

tern_status tern_train_log_steps(const char *folder, int64_t *n_steps, tern_error *err) {
    measured m = {0};
    char *path = tern_path_join(folder, "log.jsonl");
    tern_status status = path ? measure(path, 0, &m, err) : tern_fail_memory(err, strlen(folder));
    *n_steps = m.n_steps;
    tern_free(path);
    return status;
}

// ---- Whose log it is ---------------------------------------------------------------------------

static tern_status check_first_line(const tern_trainer *t, const char *path, tern_error *err) {
    tern_lines l;
    tern_json_doc doc = {0};
    bool more;
    TERN_TRY(tern_lines_open(&l, path, err));
    tern_status status = tern_lines_next(&l, &more, err);
    // A process that was killed at the start leaves nothing to compare with, and nothing to lose.
    if (status == TERN_OK && more && l.is_whole) {
        status = tern_json_parse(&doc, tern_strbuf_text(&l.line), l.line.len, err);
        if (status == TERN_OK)
            status = tern_identity_check(t, &doc, tern_json_get(&doc, tern_json_root(&doc), "run"),
                                         path, err);
        else if (status != TERN_ERR_MEMORY)
            status = tern_lines_fail(&l, err, TERN_ERR_FORMAT, "is not a line of a run's log");
    }
    tern_json_free(&doc);
    tern_lines_close(&l);
    return status;
}

tern_status tern_train_log_check(const tern_trainer *t, tern_error *err) {
    char *path = tern_path_join(t->desc.out, "log.jsonl");
    if (!path) return tern_fail_memory(err, strlen(t->desc.out));
    tern_status status = tern_path_look(path) ? check_first_line(t, path, err) : TERN_OK;
    tern_free(path);
    return status;
}
