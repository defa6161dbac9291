// The results file of an evaluation, JSON lines:
//
//   {"tern_eval":1,"model":"m.gguf",...}                                the model, once
//   {"task":"piqa","file":"piqa.jsonl","item":0,"hash":"9f...","logprobs":[-3.1,-4],
//    "greedy":[false,true],"cut":false,"metrics":{"acc":1}}             (in one line)
//
// A generated answer has "answer":"text" in place of logprobs and greedy. A line is written when
// its item is done, so a killed run leaves whole lines, except perhaps the last. Log-probabilities
// read back exactly: a resumed run ends with the same metrics.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "tasks/eval/eval.h"

// ---- Reading -----------------------------------------------------------------------------------

static bool read_scores(const tern_json_doc *doc, const tern_json *root, tern_eval_scores *out) {
    const tern_json *logprobs = tern_json_get(doc, root, "logprobs");
    const tern_json *greedy = tern_json_get(doc, root, "greedy");
    if (!tern_json_is(logprobs, TERN_JSON_ARRAY) || !tern_json_is(greedy, TERN_JSON_ARRAY))
        return false;
    if (logprobs->n < 1 || logprobs->n > TERN_EVAL_ANSWERS_MAX || greedy->n != logprobs->n)
        return false;
    const tern_json *p = tern_json_first(doc, logprobs), *g = tern_json_first(doc, greedy);
    out->n = (int)logprobs->n;
    out->cut = tern_json_bool(tern_json_get(doc, root, "cut"), false);
    for (int i = 0; i < out->n; i++) {
        if (!tern_json_is(p, TERN_JSON_NUMBER) || !tern_json_is(g, TERN_JSON_BOOL)) return false;
        out->logprobs[i] = tern_json_number(p, 0);
        out->greedy[i] = tern_json_bool(g, false);
        p = tern_json_next(doc, logprobs, p);
        g = tern_json_next(doc, greedy, g);
    }
    return true;
}

static bool read_hash(tern_str s, uint64_t *out) {
    char text[17] = "", *end;
    if (s.len != 16) return false;
    memcpy(text, s.ptr, 16);
    *out = strtoull(text, &end, 16);
    return end == text + 16;
}

static bool read_answer(tern_str answer, char **out) {
    *out = tern_alloc(TERN_MEM_MISC, answer.len + 1);
    if (*out) memcpy(*out, answer.ptr, answer.len);
    return *out != NULL;
}

static bool read_record(const tern_json_doc *doc, tern_eval_record *out) {
    const tern_json *root = tern_json_root(doc);
    int64_t item = tern_json_int(tern_json_get(doc, root, "item"), -1);
    out->item = (uint64_t)item;
    tern_str answer = tern_json_str(tern_json_get(doc, root, "answer"));
    out->scores.cut = tern_json_bool(tern_json_get(doc, root, "cut"), false);
    return item >= 0 && read_hash(tern_json_str(tern_json_get(doc, root, "hash")), &out->hash) &&
           (answer.ptr ? read_answer(answer, &out->answer) : read_scores(doc, root, &out->scores));
}

static tern_status keep_record(tern_eval_store *s, const tern_eval_record *r, const tern_lines *l,
                               tern_error *err) {
    if (s->n && r->item <= s->records[s->n - 1].item)
        return tern_lines_fail(l, err, TERN_ERR_FORMAT, "the item is there already");
    if (tern_array_reserve(TERN_MEM_MISC, &s->records, &s->capacity, s->n, 1) != 0)
        return tern_fail_memory(err, (s->n + 1) * sizeof *s->records);
    s->records[s->n++] = *r;
    return TERN_OK;
}

static tern_status read_line(tern_eval_store *s, const tern_lines *l, tern_error *err) {
    tern_json_doc doc;
    tern_error why = {0};
    tern_eval_record record = {0};
    tern_status status = tern_json_parse_part(&doc, l->line.ptr, l->line.len, &why);
    if (status != TERN_OK) return tern_lines_fail(l, err, status, why.message);
    const tern_json *root = tern_json_root(&doc);
    if (tern_str_is(tern_json_str(tern_json_get(&doc, root, "task")), s->task) &&
        tern_str_is(tern_json_str(tern_json_get(&doc, root, "file")), s->items_name))
        status = read_record(&doc, &record)
                     ? keep_record(s, &record, l, err)
                     : tern_lines_fail(l, err, TERN_ERR_FORMAT, "not a record of scores");
    if (status != TERN_OK) tern_free(record.answer);
    tern_json_free(&doc);
    return status;
}

// Reads all whole lines; *end is where the last of them ends.
static tern_status read_all(tern_eval_store *s, tern_lines *l, const char *header, uint64_t *end,
                            tern_error *err) {
    bool more;
    for (*end = 0;; *end = l->end) {
        TERN_TRY(tern_lines_next(l, &more, err));
        if (!more || !l->is_whole) return TERN_OK;
        if (l->number > 1)
            TERN_TRY(read_line(s, l, err));
        else if (strcmp(tern_strbuf_text(&l->line), header))
            return tern_lines_fail(
                l, err, TERN_ERR_ARGUMENT,
                "the results are of another model or context; name another file for these");
    }
}

// ---- Writing -----------------------------------------------------------------------------------

static tern_status write_line(tern_eval_store *s, tern_error *err) {
    if (s->line.failed) return tern_fail_memory(err, s->line.len);
    if (fwrite(s->line.ptr, 1, s->line.len, s->file) == s->line.len && fflush(s->file) == 0)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", s->path, strerror(errno));
}

static tern_status open_locked(tern_eval_store *s, tern_error *err) {
    int fd;
    TERN_TRY(tern_file_open_log(&fd, s->path, UINT64_MAX, false, err));
    s->file = fdopen(fd, "ab");
    if (s->file) return TERN_OK;
    tern_fd_close(fd);
    return tern_fail_memory(err, BUFSIZ);
}

static tern_status cut_and_begin(tern_eval_store *s, uint64_t end, const char *header,
                                 tern_error *err) {
    if (!tern_fd_cut(fileno(s->file), end))
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", s->path, strerror(errno));
    if (end > 0) return TERN_OK;
    tern_strbuf_printf(&s->line, "%s\n", header);
    return write_line(s, err);
}

tern_status tern_eval_store_open(tern_eval_store *s, const char *path, const char *header,
                                 const char *task, const char *items_name, tern_error *err) {
    tern_lines l = {0};
    uint64_t end = 0;
    tern_status status = TERN_OK;
    *s = (tern_eval_store){.path = path, .task = task, .items_name = items_name};
    TERN_TRY_GOTO(open_locked(s, err)); // lock first: later lines are this store's
    TERN_TRY_GOTO(tern_lines_open(&l, path, err));
    TERN_TRY_GOTO(read_all(s, &l, header, &end, err));
    TERN_TRY_GOTO(cut_and_begin(s, end, header, err));
fail:
    tern_lines_close(&l);
    if (status != TERN_OK) tern_eval_store_close(s);
    return status;
}

tern_status tern_eval_store_find(tern_eval_store *s, uint64_t item, uint64_t hash, int n_answers,
                                 const tern_eval_record **out, tern_error *err) {
    *out = NULL;
    while (s->next < s->n && s->records[s->next].item < item) s->next++;
    if (s->next == s->n || s->records[s->next].item != item) return TERN_OK;
    const tern_eval_record *r = &s->records[s->next];
    if (r->hash != hash || r->scores.n != n_answers || !r->answer != (n_answers > 0))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: its scores of item %llu of %s were had with another text or other "
                         "examples; name another file for these",
                         s->path, (unsigned long long)item + 1, s->items_name);
    *out = r;
    return TERN_OK;
}

static void put_scores(tern_strbuf *line, const tern_eval_record *record) {
    const tern_eval_scores *r = &record->scores;
    if (record->answer) {
        tern_strbuf_puts(line, "\"answer\":");
        tern_strbuf_json(line, record->answer, strlen(record->answer));
        return;
    }
    tern_strbuf_puts(line, "\"logprobs\":[");
    for (int i = 0; i < r->n; i++) {
        if (i) tern_strbuf_putc(line, ',');
        tern_strbuf_json_number(line, r->logprobs[i]);
    }
    tern_strbuf_puts(line, "],\"greedy\":[");
    for (int i = 0; i < r->n; i++)
        tern_strbuf_printf(line, "%s%s", i ? "," : "", r->greedy[i] ? "true" : "false");
    tern_strbuf_putc(line, ']');
}

tern_status tern_eval_store_add(tern_eval_store *s, const tern_eval_record *record,
                                tern_error *err) {
    const tern_eval_scores *r = &record->scores;
    tern_strbuf_clear(&s->line);
    tern_strbuf_puts(&s->line, "{\"task\":");
    tern_strbuf_json(&s->line, s->task, strlen(s->task));
    tern_strbuf_puts(&s->line, ",\"file\":");
    tern_strbuf_json(&s->line, s->items_name, strlen(s->items_name));
    tern_strbuf_printf(&s->line, ",\"item\":%llu,\"hash\":\"%016llx\",",
                       (unsigned long long)record->item, (unsigned long long)record->hash);
    put_scores(&s->line, record);
    tern_strbuf_printf(&s->line, ",\"cut\":%s,\"metrics\":{", r->cut ? "true" : "false");
    for (int i = 0; i < record->n_metrics; i++) {
        if (i) tern_strbuf_putc(&s->line, ',');
        tern_strbuf_json(&s->line, record->metrics[i].name, strlen(record->metrics[i].name));
        tern_strbuf_putc(&s->line, ':');
        tern_strbuf_json_number(&s->line, record->metrics[i].value);
    }
    tern_strbuf_puts(&s->line, "}}\n");
    return write_line(s, err);
}

void tern_eval_store_close(tern_eval_store *s) {
    if (s->file) fclose(s->file);
    for (size_t i = 0; i < s->n; i++) tern_free(s->records[i].answer);
    tern_free(s->records);
    tern_strbuf_free(&s->line);
    *s = (tern_eval_store){0};
}
