// A run of a task: items are read line by line, put behind their examples, scored or answered, and
// counted; what the results file has is not computed again.
#include "tasks/eval/eval_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_file.h"

static tern_str str_of(const tern_strbuf *b) { return (tern_str){tern_strbuf_text(b), b->len}; }

// ---- Prompts -----------------------------------------------------------------------------------

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// As in the harness: a system message with the description, then the examples in front of the
// question, or as turns of their own.
static tern_status format_chat(tern_eval_job *r, const tern_strbuf *context, tern_strbuf *out,
                               tern_error *err) {
    size_t n = 0, n_turns = r->desc->shots_as_turns && r->n_shots ? (size_t)r->n_shots : 0;
    tern_message *messages = tern_alloc_array(TERN_MEM_MISC, 2 * n_turns + 2, sizeof *messages);
    if (!messages) return tern_fail_memory(err, (2 * n_turns + 2) * sizeof *messages);
    const char *system = r->desc->system ? r->desc->system : "";
    tern_strbuf_clear(&r->system);
    tern_strbuf_clear(&r->user);
    tern_strbuf_puts(&r->system, system);
    if (*system && r->item.description.len) tern_strbuf_puts(&r->system, "\n\n");
    tern_strbuf_append(&r->system, r->item.description.ptr, r->item.description.len);
    if (r->system.len) messages[n++] = (tern_message){"system", r->system.ptr, NULL, 0};
    for (size_t i = 0; i < n_turns; i++) {
        messages[n++] = (tern_message){"user", tern_strbuf_text(&r->shots[i].question), NULL, 0};
        messages[n++] = (tern_message){"assistant", tern_strbuf_text(&r->shots[i].answer), NULL, 0};
    }
    if (!n_turns) tern_strbuf_append(&r->user, r->examples.ptr, r->examples.len);
    tern_strbuf_append(&r->user, context->ptr, context->len);
    messages[n++] = (tern_message){"user", tern_strbuf_text(&r->user), NULL, 0};
    tern_status status = r->system.failed || r->user.failed
                             ? tern_fail_memory(err, r->user.len)
                             : tern_chat_format(r->session->model, messages, n, collect, out, err);
    tern_free(messages);
    return status;
}

tern_status tern_eval_run_front(tern_eval_job *r, int answer, tern_strbuf *out, tern_error *err) {
    const tern_strbuf *context = tern_eval_context(&r->item, answer);
    tern_strbuf_clear(out);
    if (r->desc->apply_chat_template) {
        TERN_TRY(format_chat(r, context, out, err));
    } else {
        tern_strbuf_append(out, r->item.description.ptr, r->item.description.len);
        tern_strbuf_append(out, r->examples.ptr, r->examples.len);
        tern_strbuf_append(out, context->ptr, context->len);
    }
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

tern_status tern_eval_run_encode(const tern_eval_job *r, tern_str text, bool begin, tern_ids *out,
                                 tern_error *err) {
    const tern_tokenizer *t = r->session->model->tokenizer;
    if (begin && r->desc->apply_chat_template) return tern_chat_encode(t, text, out, err);
    unsigned flags = TERN_TOKENIZE_SPECIAL | (begin ? TERN_TOKENIZE_BOS : 0);
    out->n = 0;
    return tern_tokenizer_encode(t, text.ptr, text.len, flags, out, err);
}

// ---- Metrics -----------------------------------------------------------------------------------

void tern_eval_put_metric(tern_eval_record *record, const char *name, double value) {
    tern_eval_metric *m = &record->metrics[record->n_metrics++];
    snprintf(m->name, sizeof m->name, "%s", name);
    m->value = value;
}

void tern_eval_mean_add(tern_eval_mean *m, double x) {
    m->sum += x;
    m->squares += x * x;
}

double tern_eval_mean_error(const tern_eval_mean *m, double n) {
    if (n < 2) return NAN;
    double variance = (m->squares - m->sum * m->sum / n) / (n - 1);
    return sqrt((variance > 0 ? variance : 0) / n);
}

tern_status tern_eval_run_count(tern_eval_job *r, const tern_eval_record *record, bool was_known,
                                tern_error *err) {
    if (r->store.file && !was_known) TERN_TRY(tern_eval_store_add(&r->store, record, err));
    for (int i = 0; i < record->n_metrics; i++)
        tern_eval_mean_add(&r->means[i], record->metrics[i].value);
    memcpy(r->out->metrics, record->metrics, sizeof record->metrics); // their names
    r->out->n_metrics = record->n_metrics;
    r->out->n_items++;
    r->out->n_resumed += was_known;
    r->out->n_cut += record->scores.cut;
    return TERN_OK;
}

static void finish(tern_eval_job *r) {
    double n = (double)r->out->n_items;
    for (int i = 0; i < r->out->n_metrics; i++) {
        tern_eval_metric *m = &r->out->metrics[i];
        m->value = r->means[i].sum / n;
        m->error = tern_eval_mean_error(&r->means[i], n);
        if (strcmp(m->name, "nll")) continue;
        snprintf(m->name, sizeof m->name, "perplexity");
        m->value = exp(m->value); // the error of exp(x) is exp(x) times that of x
        m->error *= m->value;
    }
}

// ---- Examples ----------------------------------------------------------------------------------

static tern_status read_item(tern_eval_job *r, tern_lines *l, tern_eval_item *item,
                             tern_error *err) {
    tern_error why = {0};
    tern_status status = r->is_own ? tern_eval_file_item(&r->file, str_of(&l->line), item, &why)
                                   : tern_eval_item_read(item, r->task, str_of(&l->line), &why);
    return status == TERN_OK ? TERN_OK : tern_lines_fail(l, err, status, why.message);
}

static void add_example(tern_eval_job *r, tern_eval_shot *shot) {
    const tern_strbuf *context = tern_eval_context(&r->example, r->example.gold);
    const tern_strbuf *continuation = tern_eval_continuation(&r->example, r->example.gold);
    tern_strbuf_clear(&shot->question);
    tern_strbuf_clear(&shot->answer);
    tern_strbuf_append(&shot->question, context->ptr, context->len);
    tern_strbuf_append(&shot->answer, continuation->ptr, continuation->len);
    tern_strbuf_append(&r->examples, context->ptr, context->len);
    tern_strbuf_puts(&r->examples, r->between);
    tern_strbuf_append(&r->examples, continuation->ptr, continuation->len);
    tern_strbuf_puts(&r->examples, r->after_shot);
    r->examples.failed |= shot->question.failed || shot->answer.failed;
}

// The first n_shots items of a file that have the description of r->item (in MMLU: its subject),
// with their right answers. Kept until the description changes.
static tern_status read_examples(tern_eval_job *r, tern_error *err) {
    tern_lines l;
    tern_status status = TERN_OK;
    tern_str about = str_of(&r->item.description);
    if (!r->n_shots || (r->has_examples && tern_str_eq(str_of(&r->examples_of), about)))
        return TERN_OK;
    r->has_examples = true;
    tern_strbuf_clear(&r->examples);
    tern_strbuf_clear(&r->examples_of);
    tern_strbuf_append(&r->examples_of, about.ptr, about.len);
    TERN_TRY(tern_lines_open(&l, r->desc->shots_path, err));
    for (int n = 0; n < r->n_shots;) {
        bool more;
        TERN_TRY_GOTO(tern_lines_next(&l, &more, err));
        if (!more)
            TERN_TRY_GOTO(tern_fail(err, TERN_ERR_ARGUMENT, "%s has only %d items of %d%s", l.path,
                                    n, r->n_shots, about.len ? " for a subject" : ""));
        TERN_TRY_GOTO(read_item(r, &l, &r->example, err));
        if (!tern_str_eq(str_of(&r->example.description), about)) continue;
        add_example(r, &r->shots[n++]);
    }
    if (r->examples.failed || r->examples_of.failed)
        status = tern_fail_memory(err, r->examples.len);
fail:
    tern_lines_close(&l);
    return status;
}

// ---- Items -------------------------------------------------------------------------------------

tern_status tern_eval_run_leave_out(tern_eval_job *r, tern_status status, const tern_error *why,
                                    tern_error *err) {
    if (status != TERN_ERR_FORMAT && status != TERN_ERR_CONTEXT_FULL) {
        if (err) *err = *why;
        return status;
    }
    if (r->out->n_faulty++ == 0) {
        r->first_fault = status;
        snprintf(r->out->fault, sizeof r->out->fault, "%s", why->message);
    }
    return TERN_OK;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    return tern_hash64(hash, text, strlen(text) + 1);
}

// Covers all that decides what the item asks, but not the model's chat template: the items of two
// models can be compared.
static uint64_t hash_item(const tern_eval_job *r) {
    const tern_eval_desc *d = r->desc;
    const tern_eval_item *item = &r->item;
    uint64_t hash = tern_hash64(0, tern_strbuf_text(&r->examples), r->examples.len);
    hash = tern_hash64(hash, tern_strbuf_text(&r->lines.line), r->lines.line.len);
    if (d->apply_chat_template) {
        hash = hash_text(hash, d->shots_as_turns ? "turns" : "chat");
        hash = hash_text(hash, d->system ? d->system : "");
    }
    if (!r->is_own) return hash;
    hash = tern_hash64(hash, tern_strbuf_text(&item->description), item->description.len);
    hash = tern_hash64(hash, tern_strbuf_text(&item->contexts[0]), item->contexts[0].len);
    hash = hash_text(hash, r->between);
    for (int i = 0; i < item->n_continuations; i++)
        hash = tern_hash64(hash, tern_strbuf_text(&item->continuations[i]),
                           item->continuations[i].len);
    for (int i = 0; r->file.generates && i < r->file.n_stops; i++)
        hash = hash_text(hash, r->file.stops[i]);
    const float numbers[] = {(float)r->file.max_tokens, r->file.temperature};
    return r->file.generates ? tern_hash64(hash, numbers, sizeof numbers) : hash;
}

static tern_status score_or_know(tern_eval_job *r, tern_eval_record *record,
                                 const tern_eval_record *known, tern_error *err) {
    tern_error why = {0}, fault = {0};
    tern_status status = TERN_OK;
    if (known)
        record->scores = known->scores;
    else
        status = tern_eval_choice_score(r, &record->scores, &why);
    if (status != TERN_OK) {
        (void)tern_lines_fail(&r->lines, &fault, status, why.message);
        return tern_eval_run_leave_out(r, status, &fault, err);
    }
    tern_eval_choice_judge(r, record);
    return tern_eval_run_count(r, record, known != NULL, err);
}

static tern_status one_item(tern_eval_job *r, tern_error *err) {
    tern_error fault = {0};
    tern_eval_record record = {.item = r->lines.number - 1};
    const tern_eval_record *known = NULL;
    tern_status read = read_item(r, &r->lines, &r->item, &fault);
    if (read != TERN_OK) return tern_eval_run_leave_out(r, read, &fault, err);
    TERN_TRY(read_examples(r, err));
    record.hash = hash_item(r);
    const bool generates = r->file.generates;
    if (r->store.file)
        TERN_TRY(tern_eval_store_find(&r->store, record.item, record.hash,
                                      generates ? 0 : r->item.n, &known, err));
    if (!generates) return score_or_know(r, &record, known, err);
    record.scores.cut = known && known->scores.cut;
    return tern_eval_generate(r, &record, known ? known->answer : NULL, err);
}

static tern_status all_items(tern_eval_job *r, tern_error *err) {
    const tern_eval_desc *d = r->desc;
    uint64_t n_bytes = tern_fd_size(fileno(r->lines.file));
    size_t n_begun = 0;
    for (bool more = true; more && (!d->n_items || n_begun < (size_t)d->n_items);) {
        const size_t n_faulty = r->out->n_faulty;
        TERN_TRY(tern_lines_next(&r->lines, &more, err));
        if (more && r->lines.line.len) {
            TERN_TRY(one_item(r, err));
            n_begun += r->file.generates || r->out->n_faulty == n_faulty;
        }
        r->done = d->n_items ? (double)n_begun / d->n_items
                             : (double)r->lines.end / ((double)n_bytes + 1);
        if (!more) r->done = 1;
        if (!tern_progress(d->on_progress, d->user, r->task->name, r->done))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    if (r->file.generates) TERN_TRY(tern_eval_generate_finish(r, err));
    if (r->out->n_items) return TERN_OK;
    if (r->out->n_faulty) return tern_fail(err, r->first_fault, "%s", r->out->fault);
    return tern_fail(err, TERN_ERR_FORMAT, "%s: there are no items in it", d->path);
}

// ---- The run -----------------------------------------------------------------------------------

static tern_status open_store(tern_eval_job *r, tern_error *err) {
    tern_strbuf header = {0};
    const tern_model_info *info = &r->session->model->info;
    if (!r->desc->results_path) return TERN_OK;
    tern_strbuf_puts(&header, "{\"tern_eval\":1,\"model\":");
    tern_strbuf_json(&header, tern_path_name(info->path), strlen(tern_path_name(info->path)));
    tern_strbuf_printf(&header, ",\"weights\":%llu,\"bytes\":%llu,\"context\":%d}",
                       (unsigned long long)info->n_params, (unsigned long long)info->file_bytes,
                       (int)tern_session_n_context(r->session));
    tern_status status =
        header.failed ? tern_fail_memory(err, header.len)
                      : tern_eval_store_open(&r->store, r->desc->results_path, header.ptr,
                                             r->task->name, tern_path_name(r->desc->path), err);
    tern_strbuf_free(&header);
    return status;
}

// A built-in task by its name, or a task file.
static tern_status open_task(tern_eval_job *r, tern_error *err) {
    const char *name = r->desc->task;
    r->task = tern_eval_task_find(name);
    r->between = " ";
    r->after_shot = "\n\n";
    if (r->task && !r->task->definition) return TERN_OK;
    if (!r->task && !tern_name_ends(name, ".json"))
        return tern_fail(err, TERN_ERR_ARGUMENT, "there is no task '%s'", name);
    TERN_TRY(tern_eval_file_open(&r->file, name, r->task ? r->task->definition : NULL, err));
    r->is_own = true;
    r->own = (tern_eval_task){.name = r->file.name, .metrics = r->file.metrics};
    r->task = &r->own;
    r->between = r->file.target_delimiter;
    r->after_shot = r->file.shots_delimiter;
    if (r->desc->temperature > 0) r->file.temperature = r->desc->temperature;
    return TERN_OK;
}

static tern_status open_shots(tern_eval_job *r, tern_error *err) {
    const tern_eval_desc *d = r->desc;
    r->n_shots = d->n_shots ? d->n_shots : r->file.n_shots;
    if (r->n_shots < 0) r->n_shots = 0;
    r->out->n_shots = r->n_shots;
    if (r->n_shots && (!d->shots_path || !strcmp(d->shots_path, d->path)))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: %d example%s: they need a file of their own, else the answers are "
                         "known",
                         r->task->name, r->n_shots, r->n_shots == 1 ? "" : "s");
    r->shots = tern_alloc_array(TERN_MEM_MISC, (size_t)r->n_shots + 1, sizeof *r->shots);
    return r->shots ? TERN_OK : tern_fail_memory(err, (size_t)r->n_shots * sizeof *r->shots);
}

static void close_run(tern_eval_job *r) {
    tern_eval_generate_close(r);
    tern_lines_close(&r->lines);
    tern_eval_store_close(&r->store);
    tern_eval_item_free(&r->item);
    tern_eval_item_free(&r->example);
    for (int i = 0; r->shots && i < r->n_shots; i++) {
        tern_strbuf_free(&r->shots[i].question);
        tern_strbuf_free(&r->shots[i].answer);
    }
    tern_free(r->shots);
    tern_eval_file_close(&r->file);
    tern_strbuf_free(&r->examples);
    tern_strbuf_free(&r->examples_of);
    tern_strbuf_free(&r->system);
    tern_strbuf_free(&r->user);
    tern_strbuf_free(&r->text);
    tern_free(r->context.ids);
    tern_free(r->whole.ids);
    tern_free(r->scores);
}

tern_status tern_eval_run(tern_session *session, const tern_eval_desc *desc, tern_eval_result *out,
                          tern_error *err) {
    tern_clear(err);
    tern_eval_job r = {.session = session, .desc = desc, .out = out};
    tern_status status = TERN_OK;
    TERN_NEED(session);
    TERN_NEED(desc);
    TERN_NEED(desc->task);
    TERN_NEED(desc->path);
    TERN_NEED(out);
    *out = (tern_eval_result){0};
    if (desc->n_parallel < 0 || !(desc->temperature >= 0))
        return tern_fail(err, TERN_ERR_ARGUMENT, "n_parallel or temperature is below 0");
    if (desc->system && !desc->apply_chat_template)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a system message needs the chat template");
    tern_session_call call = {0};
    bool entered = false;
    TERN_TRY_GOTO(open_task(&r, err));
    if (!session->model->tokenizer)
        TERN_TRY_GOTO(tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer",
                                session->model->path));
    TERN_TRY_GOTO(open_shots(&r, err));
    if (!r.file.generates) tern_session_enter(&call, session);
    entered = !r.file.generates;
    TERN_TRY_GOTO(tern_lines_open(&r.lines, desc->path, err));
    TERN_TRY_GOTO(open_store(&r, err));
    TERN_TRY_GOTO(all_items(&r, err));
    finish(&r);
fail:
    if (entered) tern_session_leave(&call);
    close_run(&r);
    return status;
}
