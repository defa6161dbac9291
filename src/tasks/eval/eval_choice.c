// Scoring multiple choice by likelihood, by the rules of lm-evaluation-harness:
//
// - The score of an answer is the sum of ln p over the tokens of " " + continuation, given the
// context. Context and continuation are tokenized together and cut where the context alone would
// end; spaces at the context's end count as the continuation's. An empty context is replaced by the
// BOS token (or by EOS, if there is none).
// - acc: the answer with the greatest score is the right one; among equal ones the first counts.
// acc_norm divides scores by the answer's length in characters, acc_bytes in bytes. If several
// answers are right, acc is their share of the probability of all.
// - Texts longer than the model's context lose tokens at the beginning.
//
// The answers of an item share their context: its keys and values are computed once, since the
// session keeps the common beginning of consecutive calls. The same holds for the examples.
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "session/session.h"
#include "tasks/eval/eval.h"
#include "tern_tools.h"

typedef struct mean { // and its standard error, from a stream
    double sum, squares;
} mean;

static void mean_add(mean *m, double x) {
    m->sum += x;
    m->squares += x * x;
}

static double mean_error(const mean *m, double n) {
    if (n < 2) return NAN;
    double variance = (m->squares - m->sum * m->sum / n) / (n - 1);
    return sqrt((variance > 0 ? variance : 0) / n);
}

typedef struct run {
    tern_session *session;
    const tern_eval_desc *desc;
    const tern_eval_task *task;
    tern_lines lines;
    tern_strbuf examples, text;
    tern_strbuf examples_of; // the description that the examples are of
    bool has_examples;
    tern_eval_item item, example;
    tern_eval_store store;
    tern_ids context, whole;   // tokens
    tern_target_score *scores; // [n_room]
    size_t n_room;
    mean acc, norm, bytes, nll;
    tern_status first_fault; // of the first faulty item
    tern_eval_result *out;
} run;

// ---- Tokens ------------------------------------------------------------------------------------

static tern_status encode(const run *r, const char *text, size_t n, bool begin, tern_ids *out,
                          tern_error *err) {
    unsigned flags = TERN_TOKENIZE_SPECIAL | (begin ? TERN_TOKENIZE_BOS : 0);
    out->n = 0;
    return tern_tokenizer_encode(r->session->model->tokenizer, text, n, flags, out, err);
}

static tern_status push(tern_ids *list, int32_t id, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &list->ids, &list->capacity, list->n, 1) != 0)
        return tern_fail_memory(err, (list->n + 1) * sizeof *list->ids);
    list->ids[list->n++] = id;
    return TERN_OK;
}

// The replacement of an empty context.
static tern_status encode_nothing(run *r, tern_error *err) {
    const tern_tokenizer *t = r->session->model->tokenizer;
    int32_t bos = tern_tokenizer_bos(t), id = bos >= 0 ? bos : tern_tokenizer_eos(t);
    r->context.n = 0;
    if (id >= 0) return push(&r->context, id, err);
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: the tokenizer has neither BOS nor EOS to begin a text with",
                     r->session->model->path);
}

// Leaves the context's tokens in r->context, and those of context and continuation in r->whole; the
// first *n_context of these belong to the context.
static tern_status encode_pair(run *r, int answer, size_t *n_context, tern_error *err) {
    const tern_strbuf *context = tern_eval_context(&r->item, answer);
    const tern_strbuf *continuation = tern_eval_continuation(&r->item, answer);
    tern_strbuf *text = &r->text;
    tern_strbuf_clear(text);
    tern_strbuf_append(text, r->item.description.ptr, r->item.description.len);
    tern_strbuf_append(text, r->examples.ptr, r->examples.len);
    tern_strbuf_append(text, context->ptr, context->len);
    size_t n = text->len;
    bool is_empty = n == 0;
    while (!text->failed && n > 0 && strchr(" \t\n\v\f\r", text->ptr[n - 1])) n--;
    tern_strbuf_putc(text, ' ');
    tern_strbuf_append(text, continuation->ptr, continuation->len);
    if (text->failed) return tern_fail_memory(err, text->len);
    TERN_TRY(encode(r, text->ptr, n, true, &r->context, err));
    TERN_TRY(encode(r, text->ptr, text->len, !is_empty, &r->whole, err));
    *n_context = is_empty ? 0 : r->context.n;
    return is_empty || r->context.n == 0 ? encode_nothing(r, err) : TERN_OK;
}

static tern_status need_room(run *r, size_t n, tern_error *err) {
    if (n <= r->n_room) return TERN_OK;
    tern_target_score *room = tern_realloc(TERN_MEM_MISC, r->scores, n * sizeof *room);
    if (!room) return tern_fail_memory(err, n * sizeof *room);
    r->scores = room;
    r->n_room = n;
    return TERN_OK;
}

// ---- Scores ------------------------------------------------------------------------------------

// The context is r->context, the continuation the last n ids of r->whole.
static tern_status score_continuation(run *r, int answer, size_t n, tern_eval_scores *scores,
                                      tern_error *err) {
    size_t n_context = (size_t)tern_session_n_context(r->session);
    if (n == 0 || n > n_context)
        return tern_fail(err, n ? TERN_ERR_CONTEXT_FULL : TERN_ERR_FORMAT,
                         "answer %d has %zu tokens: expected 1 to %zu, the context's size",
                         answer + 1, n, n_context);
    // The input is the context and all of the continuation except its last token.
    size_t n_before = r->context.n, most = n_context - (n - 1);
    scores->cut |= n_before > most;
    for (size_t i = 0; i < n; i++)
        TERN_TRY(push(&r->context, r->whole.ids[r->whole.n - n + i], err));
    const int32_t *ids = r->context.ids + n_before - 1; // each followed by the next one
    if (n_before > most) n_before = most;
    TERN_TRY(need_room(r, n, err));
    TERN_TRY(tern_session_sync(r->session, ids - (n_before - 1), n_before - 1, NULL, err));
    TERN_TRY(tern_session_logprobs(r->session, ids, n, ids + 1, r->scores, err));
    scores->logprobs[answer] = 0;
    scores->greedy[answer] = true;
    for (size_t i = 0; i < n; i++) {
        scores->logprobs[answer] += r->scores[i].logprob;
        scores->greedy[answer] &= r->scores[i].best == ids[i + 1];
    }
    if (!isnan(scores->logprobs[answer])) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "answer %d: the model produced NaN or infinity",
                     answer + 1);
}

static tern_status score_item(run *r, tern_eval_scores *scores, tern_error *err) {
    *scores = (tern_eval_scores){.n = r->item.n};
    for (int a = 0; a < r->item.n; a++) {
        size_t n_context;
        TERN_TRY(encode_pair(r, a, &n_context, err));
        size_t n = r->whole.n > n_context ? r->whole.n - n_context : 0;
        TERN_TRY(score_continuation(r, a, n, scores, err));
    }
    return TERN_OK;
}

// ---- Metrics -----------------------------------------------------------------------------------

static size_t n_characters(const tern_strbuf *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->len; i++) n += (s->ptr[i] & 0xC0) != 0x80;
    return n;
}

// What scores are divided by: the lengths of the item's choices; with several contexts these are
// the contexts.
static const tern_strbuf *choice_text(const tern_eval_item *item, int answer) {
    return item->n_contexts > 1 ? tern_eval_context(item, answer)
                                : tern_eval_continuation(item, answer);
}

enum { BY_NOTHING, BY_CHARACTERS, BY_BYTES };

static int likeliest(const tern_eval_item *item, const tern_eval_scores *s, int by) {
    int best = 0;
    double best_score = -INFINITY;
    for (int a = 0; a < s->n; a++) {
        const tern_strbuf *text = choice_text(item, a);
        double score = s->logprobs[a];
        if (by == BY_CHARACTERS) score /= (double)n_characters(text);
        if (by == BY_BYTES) score /= (double)text->len;
        if (score > best_score) {
            best = a;
            best_score = score;
        }
    }
    return best;
}

// The right answers' share of the probability of all answers.
static double right_mass(const tern_eval_item *item, const tern_eval_scores *s) {
    double most = -INFINITY, all = 0, right = 0;
    for (int a = 0; a < s->n; a++) most = fmax(most, s->logprobs[a]);
    for (int a = 0; a < s->n; a++) {
        double p = exp(s->logprobs[a] - most);
        all += p;
        if (item->right >> a & 1) right += p;
    }
    return right / all;
}

static void count(run *r, const tern_eval_scores *s) {
    const tern_eval_item *item = &r->item;
    bool greedy = r->task->metrics & TERN_EVAL_PERPLEXITY;
    if (r->task->metrics & TERN_EVAL_MASS)
        mean_add(&r->acc, right_mass(item, s));
    else
        mean_add(&r->acc, greedy ? s->greedy[0] : likeliest(item, s, BY_NOTHING) == item->gold);
    mean_add(&r->norm, likeliest(item, s, BY_CHARACTERS) == item->gold);
    mean_add(&r->bytes, likeliest(item, s, BY_BYTES) == item->gold);
    mean_add(&r->nll, -s->logprobs[0]);
    r->out->n_items++;
    r->out->n_cut += s->cut;
}

static void add_metric(tern_eval_result *out, const char *name, double value, double error) {
    out->metrics[out->n_metrics++] = (tern_eval_metric){name, value, error};
}

static void finish(run *r) {
    unsigned metrics = r->task->metrics;
    double n = (double)r->out->n_items;
    add_metric(r->out, "acc", r->acc.sum / n, mean_error(&r->acc, n));
    if (metrics & TERN_EVAL_NORM) {
        add_metric(r->out, "acc_norm", r->norm.sum / n, mean_error(&r->norm, n));
        add_metric(r->out, "acc_bytes", r->bytes.sum / n, mean_error(&r->bytes, n));
    }
    if (metrics & TERN_EVAL_PERPLEXITY) { // the error of exp(x) is exp(x) times that of x
        double perplexity = exp(r->nll.sum / n);
        add_metric(r->out, "perplexity", perplexity, perplexity * mean_error(&r->nll, n));
    }
}

// ---- Running -----------------------------------------------------------------------------------

static tern_status read_item(run *r, tern_lines *l, tern_eval_item *item, tern_error *err) {
    tern_error why = {0};
    tern_str line = {tern_strbuf_text(&l->line), l->line.len};
    tern_status status = tern_eval_item_read(item, r->task, line, &why);
    return status == TERN_OK ? TERN_OK : tern_lines_fail(l, err, status, why.message);
}

static tern_str str_of(const tern_strbuf *b) { return (tern_str){tern_strbuf_text(b), b->len}; }

static void add_example(run *r) {
    const tern_strbuf *context = tern_eval_context(&r->example, r->example.gold);
    const tern_strbuf *continuation = tern_eval_continuation(&r->example, r->example.gold);
    tern_strbuf_append(&r->examples, context->ptr, context->len);
    tern_strbuf_putc(&r->examples, ' ');
    tern_strbuf_append(&r->examples, continuation->ptr, continuation->len);
    tern_strbuf_puts(&r->examples, "\n\n");
}

// The first n_shots items of a file that have the description of r->item (in MMLU: its subject),
// with their right answers and an empty line after each. Kept until the description changes.
static tern_status read_examples(run *r, tern_error *err) {
    tern_lines l;
    tern_status status = TERN_OK;
    tern_str about = str_of(&r->item.description);
    if (r->desc->n_shots <= 0 || (r->has_examples && tern_str_eq(str_of(&r->examples_of), about)))
        return TERN_OK;
    r->has_examples = true;
    tern_strbuf_clear(&r->examples);
    tern_strbuf_clear(&r->examples_of);
    tern_strbuf_append(&r->examples_of, about.ptr, about.len);
    TERN_TRY(tern_lines_open(&l, r->desc->shots_path, err));
    for (int n = 0; n < r->desc->n_shots;) {
        bool more;
        TERN_TRY_GOTO(tern_lines_next(&l, &more, err));
        if (!more)
            TERN_TRY_GOTO(tern_fail(err, TERN_ERR_ARGUMENT, "%s has only %d items of %d%s", l.path,
                                    n, r->desc->n_shots, about.len ? " for a subject" : ""));
        TERN_TRY_GOTO(read_item(r, &l, &r->example, err));
        if (!tern_str_eq(str_of(&r->example.description), about)) continue;
        add_example(r);
        n++;
    }
    if (r->examples.failed || r->examples_of.failed)
        status = tern_fail_memory(err, r->examples.len);
fail:
    tern_lines_close(&l);
    return status;
}

// An item that cannot be scored is counted and left out; any other failure ends the run.
static tern_status leave_out(run *r, tern_status status, const tern_error *why, tern_error *err) {
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

static tern_status one_item(run *r, tern_error *err) {
    tern_error fault = {0};
    tern_eval_record record = {.item = r->lines.number - 1};
    const tern_eval_scores *known = NULL;
    tern_status read = read_item(r, &r->lines, &r->item, &fault);
    if (read != TERN_OK) return leave_out(r, read, &fault, err);
    TERN_TRY(read_examples(r, err));
    record.hash = tern_hash64(0, tern_strbuf_text(&r->examples), r->examples.len);
    record.hash = tern_hash64(record.hash, tern_strbuf_text(&r->lines.line), r->lines.line.len);
    if (r->store.file)
        TERN_TRY(tern_eval_store_find(&r->store, record.item, record.hash, r->item.n, &known, err));
    if (known) {
        record.scores = *known;
        r->out->n_resumed++;
    } else {
        tern_error why = {0};
        tern_status status = score_item(r, &record.scores, &why);
        if (status != TERN_OK) {
            (void)tern_lines_fail(&r->lines, &fault, status, why.message);
            return leave_out(r, status, &fault, err);
        }
        if (r->store.file) TERN_TRY(tern_eval_store_add(&r->store, &record, err));
    }
    count(r, &record.scores);
    return TERN_OK;
}

static tern_status all_items(run *r, tern_error *err) {
    const tern_eval_desc *d = r->desc;
    uint64_t n_bytes = tern_fd_size(fileno(r->lines.file));
    for (bool more = true; more && (!d->n_items || r->out->n_items < (size_t)d->n_items);) {
        TERN_TRY(tern_lines_next(&r->lines, &more, err));
        if (more && r->lines.line.len) TERN_TRY(one_item(r, err));
        double done = d->n_items ? (double)r->out->n_items / d->n_items
                                 : (double)r->lines.end / ((double)n_bytes + 1);
        if (!tern_progress(d->on_progress, d->user, d->task, more ? done : 1))
            return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    }
    if (r->out->n_items) return TERN_OK;
    if (r->out->n_faulty) return tern_fail(err, r->first_fault, "%s", r->out->fault);
    return tern_fail(err, TERN_ERR_FORMAT, "%s: there are no items in it", d->path);
}

static tern_status open_store(run *r, tern_error *err) {
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

tern_status tern_eval_choice(tern_session *session, const tern_eval_desc *desc,
                             tern_eval_result *out, tern_error *err) {
    tern_clear(err);
    run r = {.session = session, .desc = desc, .out = out};
    tern_status status = TERN_OK;
    TERN_NEED(session);
    TERN_NEED(desc);
    TERN_NEED(desc->task);
    TERN_NEED(desc->path);
    TERN_NEED(out);
    *out = (tern_eval_result){0};
    r.task = tern_eval_task_find(desc->task);
    if (!r.task) return tern_fail(err, TERN_ERR_ARGUMENT, "there is no task '%s'", desc->task);
    if (!session->model->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer",
                         session->model->path);
    if (desc->n_shots > 0 && (!desc->shots_path || !strcmp(desc->shots_path, desc->path)))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "examples need a file of their own, else the answers are known");
    tern_session_call call;
    tern_session_enter(&call, session);
    TERN_TRY_GOTO(tern_lines_open(&r.lines, desc->path, err));
    TERN_TRY_GOTO(open_store(&r, err));
    TERN_TRY_GOTO(all_items(&r, err));
    finish(&r);
fail:
    tern_session_leave(&call);
    tern_lines_close(&r.lines);
    tern_eval_store_close(&r.store);
    tern_eval_item_free(&r.item);
    tern_eval_item_free(&r.example);
    tern_strbuf_free(&r.examples);
    tern_strbuf_free(&r.examples_of);
    tern_strbuf_free(&r.text);
    tern_free(r.context.ids);
    tern_free(r.whole.ids);
    tern_free(r.scores);
    return status;
}
