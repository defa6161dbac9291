// What a ternary model costs, on text that was not learnt: perplexity, divergence from the float
// model, size and speed, beside the rounded model before training and what people would take
// instead, Q4_K_M and Q2_K with the same importance matrix and the files that the caller has.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/tasks.h"
#include "train/plot/plot.h"
#include "train/ternarize/ternarize.h"

enum { REPORT_TOKENS = 65536, WINDOW = 512, SPEED_TOKENS = 64 };

typedef struct measured {
    const char *name, *key, *path; // path: of a file that the caller has
    uint64_t bytes, n_params;
    double tokens_per_second;
    tern_eval_comparison c;
} measured;

enum { MODEL, TERNARY, START, Q4_K_M, Q2_K, OF_CALLER, COMPARED_MAX = 32 };

typedef struct training { // of the last validation in the log; NAN: unknown
    double step, kl, agreement, sign_flips, zero_changes;
} training;

typedef struct reporting {
    tern_ternarizing *job;
    int32_t *ids; // of held-out documents
    size_t *ends, n_documents, ids_capacity, ends_capacity;
    int32_t window;
    tern_model *model;
    tern_session *session;
    measured rows[OF_CALLER + COMPARED_MAX];
    int n_rows;
    tern_eval_token *tokens; // of the ternary file
    tern_lost lost;
    training training;
    const char *device;
} reporting;

static double bits(const measured *r) {
    return r->n_params ? 8 * (double)r->bytes / (double)r->n_params : 0;
}

// ---- What is asked for -------------------------------------------------------------------------

tern_status tern_ternarize_check_report(const tern_ternarizing *j) {
    const tern_ternarize_desc *d = j->desc;
    if (d->n_compared > COMPARED_MAX)
        return tern_fail(j->err, TERN_ERR_ARGUMENT, "ternarize: %zu files to compare: at most %d",
                         d->n_compared, COMPARED_MAX);
    for (size_t i = 0; i < d->n_compared; i++)
        if (tern_path_look(d->compared[i]) == TERN_PATH_NONE)
            return tern_fail(j->err, TERN_ERR_IO, "ternarize: %s, to compare, is not there",
                             d->compared[i]);
    return tern_ternarize_find_tasks(j);
}

// Another wish is another report.
static void put_asked(const tern_ternarizing *j, tern_strbuf *out) {
    const tern_ternarize_desc *d = j->desc;
    tern_strbuf_printf(out, "%d tokens", (int)d->report_tokens);
    for (size_t i = 0; i < d->n_compared; i++) tern_strbuf_printf(out, ", %s", d->compared[i]);
    if (d->tasks)
        tern_strbuf_printf(out, ", %d items of %s in %s", (int)d->n_task_items, d->tasks,
                           d->tasks_folder);
}

static bool says_asked(const tern_ternarizing *j, const tern_json_doc *doc) {
    tern_strbuf asked = {0};
    put_asked(j, &asked);
    const tern_str is = tern_json_str(tern_json_get(doc, tern_json_root(doc), "asked"));
    const bool same = !asked.failed && is.ptr && tern_str_is(is, tern_strbuf_text(&asked));
    tern_strbuf_free(&asked);
    return same;
}

bool tern_ternarize_is_reported(const tern_ternarizing *j) {
    tern_blob_file *file;
    tern_blob blob;
    tern_hold held = {0};
    tern_json_doc doc = {0};
    if (tern_path_look(j->markdown) == TERN_PATH_NONE) return false;
    if (tern_blob_open(&file, j->json, false, &blob, NULL) != TERN_OK) return false;
    const bool is =
        tern_blob_hold(&blob, &held, NULL) == TERN_OK &&
        tern_json_parse(&doc, (const char *)held.data, (size_t)blob.n, NULL) == TERN_OK &&
        says_asked(j, &doc);
    tern_json_free(&doc);
    tern_blob_release(&held);
    tern_blob_close(file);
    return is;
}

// ---- The text ----------------------------------------------------------------------------------

// Documents from all over the held-out text: every k-th, and of each as much as brings all
// together to the wanted number of tokens.
typedef struct share {
    uint64_t each, step;
} share;

static share share_of(const tern_shard_info *info, uint64_t wanted) {
    const uint64_t n = info->n_documents ? info->n_documents : 1, mean = info->n_tokens / n + 1;
    share s = {wanted / n > WINDOW ? wanted / n : WINDOW, 1};
    const uint64_t taken = mean < s.each ? mean : s.each;
    if (n * taken > wanted) s.step = (n * taken + wanted - 1) / wanted;
    return s;
}

static tern_status read_document(reporting *r, tern_shard *shard, uint64_t i, uint64_t each) {
    const uint64_t first = tern_shard_document(shard, i), end = tern_shard_document(shard, i + 1);
    const uint64_t n = end - first < each ? end - first : each;
    const size_t at = r->n_documents ? r->ends[r->n_documents - 1] : 0;
    if (tern_array_reserve(TERN_MEM_MISC, &r->ids, &r->ids_capacity, at, (size_t)n) != 0 ||
        tern_array_reserve(TERN_MEM_MISC, &r->ends, &r->ends_capacity, r->n_documents, 1) != 0)
        return tern_fail_memory(r->job->err, (size_t)n * sizeof *r->ids);
    TERN_TRY(tern_shard_read(shard, first, n, r->ids + at, r->job->err));
    r->ends[r->n_documents++] = at + (size_t)n;
    return TERN_OK;
}

static tern_status read_text(reporting *r) {
    const tern_ternarizing *j = r->job;
    tern_token_set *set;
    const tern_token_set_desc d = {.seq_len = 1, .in_order = true};
    const int32_t wanted = j->desc->report_tokens ? j->desc->report_tokens : REPORT_TOKENS;
    TERN_TRY(tern_token_set_open_folder(&set, j->data, "valid", &d, j->err));
    if (!set)
        return tern_fail(j->err, TERN_ERR_FORMAT, "%s: there are no shards valid-* in it", j->data);
    tern_shard *shard = tern_token_set_shard(set, 0);
    const tern_shard_info *info = tern_shard_get_info(shard);
    const share s = share_of(info, (uint64_t)wanted);
    tern_status status = TERN_OK;
    for (uint64_t i = 0; status == TERN_OK && i < info->n_documents; i += s.step)
        status = read_document(r, shard, i, s.each);
    tern_token_set_close(set);
    return status;
}

static tern_status make_room(reporting *r) {
    const size_t n = r->n_documents ? r->ends[r->n_documents - 1] : 0;
    r->tokens = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *r->tokens);
    return r->tokens ? TERN_OK : tern_fail_memory(r->job->err, n * sizeof *r->tokens);
}

// ---- What training says ------------------------------------------------------------------------

static double member(const tern_json_doc *doc, const char *name) {
    const tern_json *v = tern_json_get(doc, tern_json_root(doc), name);
    return tern_json_is(v, TERN_JSON_NUMBER) ? v->number : NAN;
}

static void take_line(training *t, const tern_json_doc *doc) {
    if (!tern_json_get(doc, tern_json_root(doc), "valid_loss")) return;
    *t = (training){member(doc, "step"), member(doc, "kl"), member(doc, "top1_agreement"),
                    member(doc, "sign_flips"), member(doc, "zero_changes")};
}

// A run of a step or two may have no loss to draw.
static tern_status plot(const reporting *r, const char *log) {
    tern_error why = {0};
    const tern_status status = tern_train_plot(&log, 1, r->job->plot, &why);
    if (status == TERN_OK || status == TERN_ERR_FORMAT) return TERN_OK;
    return tern_fail(r->job->err, status, "%s", why.message);
}

static tern_status read_log(reporting *r) {
    tern_lines l = {0};
    bool more = true;
    char *path = tern_path_join(r->job->run, "log.jsonl");
    if (!path) return tern_fail_memory(r->job->err, strlen(r->job->run));
    r->training = (training){NAN, NAN, NAN, NAN, NAN};
    tern_status status = tern_lines_open(&l, path, r->job->err);
    while (status == TERN_OK && more) {
        tern_json_doc doc;
        status = tern_log_next(&l, &doc, &more, r->job->err);
        if (status != TERN_OK || !more) break;
        take_line(&r->training, &doc);
        tern_json_free(&doc);
    }
    tern_lines_close(&l);
    if (status == TERN_OK) status = plot(r, path);
    tern_free(path);
    return status;
}

// ---- Models ------------------------------------------------------------------------------------

static bool ignore(void *user, const char *text, size_t n) {
    (void)user, (void)text, (void)n;
    return true;
}

// Steps of greedy generation after a token, the second time.
static tern_status measure_speed(tern_session *s, measured *r, tern_error *err) {
    const tern_sampling greedy = {0};
    const int n = (int)tern_session_n_context(s) > 2 * SPEED_TOKENS ? SPEED_TOKENS : 4;
    const tern_generate_params params = {
        .sampling = &greedy, .max_tokens = n + 1, .ignore_end = true, .on_text = ignore};
    const int32_t first = 0;
    for (int i = 0; i < 2; i++) {
        tern_generate_stats stats;
        tern_session_reset(s);
        TERN_TRY(tern_generate_ids(s, &first, 1, &params, &stats, err));
        const double seconds = stats.generate_seconds;
        r->tokens_per_second = seconds > 0 ? (double)n / seconds : 0;
    }
    return TERN_OK;
}

// Bytes of the model's tensors: a checkpoint may have moments, too.
static tern_status count_bytes(const char *path, uint64_t *bytes, tern_error *err) {
    tern_file *file;
    TERN_TRY(tern_file_open(&file, path, err));
    *bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        if (!tern_name_begins(file->tensors[i].name, "adam.")) *bytes += file->tensors[i].bytes;
    tern_file_close(file);
    return TERN_OK;
}

static tern_status open_session(const reporting *r, const char *path, measured *row, tern_model **m,
                                tern_session **s) {
    tern_model_info info;
    TERN_TRY(tern_ternarize_open(r->job, path, m));
    tern_model_get_info(*m, &info);
    TERN_TRY(count_bytes(path, &row->bytes, r->job->err));
    row->n_params = info.n_params;
    return tern_session_open(s, *m, &(tern_session_desc){.kv_type = TERN_KV_F32}, r->job->err);
}

static tern_eval_documents documents_of(const reporting *r, int at) {
    return (tern_eval_documents){.ids = r->ids,
                                 .ends = r->ends,
                                 .n = r->n_documents,
                                 .window = r->window,
                                 .tokens = at == TERNARY ? r->tokens : NULL,
                                 .on_progress = r->job->desc->on_progress,
                                 .user = r->job->desc->user};
}

static tern_status compare(reporting *r, int at, const char *path) {
    tern_model *m = NULL;
    tern_session *s = NULL;
    measured *row = &r->rows[at];
    const tern_eval_documents documents = documents_of(r, at);
    tern_status status = open_session(r, path, row, &m, &s);
    if (status == TERN_OK)
        status = tern_eval_compare_documents(s, r->session, &documents, &row->c, r->job->err);
    if (status == TERN_OK) status = measure_speed(s, row, r->job->err);
    if (status == TERN_OK) status = tern_ternarize_ask(r->job, s, row->key);
    tern_session_close(s);
    tern_model_close(m);
    return status;
}

// What people would take instead; the file is removed afterwards.
static tern_status compare_other(reporting *r, int at, tern_type type) {
    const tern_ternarizing *j = r->job;
    tern_status status = tern_ternarize_convert(j, j->desc->model, j->other, type);
    if (status == TERN_OK) status = compare(r, at, j->other);
    tern_file_remove(j->other);
    return status;
}

static tern_status compare_all(reporting *r) {
    const tern_ternarizing *j = r->job;
    measured *of_model = &r->rows[MODEL];
    TERN_TRY(open_session(r, j->desc->model, of_model, &r->model, &r->session));
    tern_model_info info;
    tern_model_get_info(r->model, &info);
    r->device = info.device;
    r->window = info.n_context_train < WINDOW ? info.n_context_train : WINDOW;
    TERN_TRY(compare(r, TERNARY, j->desc->out));
    const tern_eval_documents documents = documents_of(r, TERNARY);
    tern_lost_find(&documents, &r->lost);
    TERN_TRY(compare(r, START, j->start));
    TERN_TRY(compare_other(r, Q4_K_M, TERN_TYPE_Q4_K_M));
    TERN_TRY(compare_other(r, Q2_K, TERN_TYPE_Q2_K));
    for (int i = OF_CALLER; i < r->n_rows; i++) TERN_TRY(compare(r, i, r->rows[i].path));
    of_model->c.model = r->rows[TERNARY].c.reference;
    of_model->c.same_top = 1;
    TERN_TRY(measure_speed(r->session, of_model, j->err));
    return tern_ternarize_ask(j, r->session, of_model->key);
}

// ---- What is written ---------------------------------------------------------------------------

// One sentence, and the first thing that is read: is it of use?
static void put_verdict(const reporting *r, tern_strbuf *out) {
    const measured *t = &r->rows[TERNARY], *q = &r->rows[Q2_K], *s = &r->rows[START];
    const bool is_larger = t->bytes >= q->bytes, is_worse = t->c.kl.mean > q->c.kl.mean;
    const char *sizes = is_larger ? "larger" : "smaller";
    const char *qualities = is_worse ? "further from the model than" : "nearer to the model than";
    tern_strbuf_printf(out,
                       "The ternary file is %s than Q2_K (%.1f and %.1f MB) %s %s it (KL %.4f "
                       "and %.4f): ",
                       sizes, (double)t->bytes / 1e6, (double)q->bytes / 1e6,
                       is_larger == is_worse ? "and" : "but", qualities, t->c.kl.mean,
                       q->c.kl.mean);
    if (is_larger && is_worse)
        tern_strbuf_puts(out, "take Q2_K.");
    else if (is_larger)
        tern_strbuf_puts(out, "it is worth its size if that matters less.");
    else if (is_worse)
        tern_strbuf_puts(out, "take Q2_K unless the size decides, or heal with more text.");
    else
        tern_strbuf_puts(out, "it replaces Q2_K.");
    for (int i = OF_CALLER; i < r->n_rows; i++)
        if (r->rows[i].bytes <= t->bytes && r->rows[i].c.kl.mean < t->c.kl.mean)
            tern_strbuf_printf(out, " %s is nearer, and not larger (KL %.4f, %.1f MB): take that.",
                               r->rows[i].name, r->rows[i].c.kl.mean,
                               (double)r->rows[i].bytes / 1e6);
    if (t->c.kl.mean >= s->c.kl.mean)
        tern_strbuf_printf(out, " Training has not helped (KL %.4f before it).", s->c.kl.mean);
}

static void put_row(tern_strbuf *out, const measured *r) {
    const tern_eval_comparison *c = &r->c;
    tern_strbuf_printf(out,
                       "| %s | %.2f | %.2f | %.3f ± %.3f | %.4f ± %.4f | %.1f%% ± %.1f%% | "
                       "%.1f |\n",
                       r->name, (double)r->bytes / 1e6, bits(r), c->model.perplexity,
                       c->model.perplexity_error, c->kl.mean, c->kl.error, 100 * c->same_top,
                       100 * c->same_top_error, r->tokens_per_second);
}

static void put_markdown(const reporting *r, tern_strbuf *out) {
    const tern_ternarizing *j = r->job;
    const training *t = &r->training;
    const tern_perplexity *p = &r->rows[MODEL].c.model;
    tern_strbuf_printf(out, "# %s as %s\n\n", tern_path_name(j->desc->model),
                       tern_type_name(j->type));
    put_verdict(r, out);
    tern_strbuf_printf(
        out,
        "\n\nOn %zu tokens of documents that were not learnt, in windows of %d; speeds of "
        "%s. KL and likeliest tokens are those of the float model.\n\n"
        "| file | MB | bits a weight | perplexity | KL | same likeliest token |"
        " tokens/s |\n|---|---:|---:|---:|---:|---:|---:|\n",
        p->n_scored, p->window, r->device);
    for (int i = 0; i < r->n_rows; i++) put_row(out, &r->rows[i]);
    tern_strbuf_printf(out, "\n%lld steps of %d tokens, rate %g, seed %llu.",
                       (long long)j->heal.n_steps, j->settled.batch_tokens, (double)j->settled.rate,
                       (unsigned long long)j->settled.seed);
    if (!isnan(t->sign_flips))
        tern_strbuf_printf(out, " %.3f%% of the signs and %.2f%% of the zeros became others.",
                           100 * t->sign_flips, 100 * t->zero_changes);
    tern_strbuf_puts(out, " The course: loss.svg, heal/log.jsonl.\n");
}

static void put_number(tern_strbuf *out, const char *key, double value) {
    tern_strbuf_printf(out, ",\"%s\":", key);
    tern_strbuf_json_number(out, value);
}

static void put_json_row(tern_strbuf *out, const measured *r) {
    const tern_eval_comparison *c = &r->c;
    tern_strbuf_printf(out, "{\"name\":\"%s\",\"bytes\":%llu", r->key,
                       (unsigned long long)r->bytes);
    if (r->path) {
        tern_strbuf_puts(out, ",\"file\":");
        tern_strbuf_json(out, r->name, strlen(r->name));
    }
    put_number(out, "bits_per_weight", bits(r));
    put_number(out, "perplexity", c->model.perplexity);
    put_number(out, "perplexity_error", c->model.perplexity_error);
    put_number(out, "log_ratio", c->log_ratio);
    put_number(out, "log_ratio_error", c->log_ratio_error);
    put_number(out, "kl", c->kl.mean);
    put_number(out, "kl_error", c->kl.error);
    put_number(out, "top1_agreement", c->same_top);
    put_number(out, "top1_agreement_error", c->same_top_error);
    put_number(out, "tokens_per_second", r->tokens_per_second);
    tern_strbuf_puts(out, "}");
}

static void put_json(const reporting *r, tern_strbuf *out) {
    const tern_ternarizing *j = r->job;
    const training *t = &r->training;
    const char *model = tern_path_name(j->desc->model);
    tern_strbuf verdict = {0}, asked = {0};
    tern_strbuf_puts(out, "{\"model\":");
    tern_strbuf_json(out, model, strlen(model));
    tern_strbuf_printf(out, ",\"type\":\"%s\",\"device\":", tern_type_name(j->type));
    tern_strbuf_json(out, r->device, strlen(r->device));
    tern_strbuf_printf(out, ",\"tokens\":%zu,\"window\":%d,\"steps\":%lld,\"batch_tokens\":%d",
                       r->rows[MODEL].c.model.n_scored, r->rows[MODEL].c.model.window,
                       (long long)j->heal.n_steps, j->settled.batch_tokens);
    put_number(out, "sign_flips", t->sign_flips);
    put_number(out, "zero_changes", t->zero_changes);
    put_verdict(r, &verdict);
    tern_strbuf_puts(out, ",\"verdict\":");
    tern_strbuf_json(out, tern_strbuf_text(&verdict), verdict.len);
    out->failed |= verdict.failed;
    tern_strbuf_free(&verdict);
    for (int i = 0; i < r->n_rows; i++) {
        tern_strbuf_puts(out, i ? "," : ",\"files\":[");
        put_json_row(out, &r->rows[i]);
    }
    tern_strbuf_puts(out, "],\"asked\":");
    put_asked(j, &asked);
    tern_strbuf_json(out, tern_strbuf_text(&asked), asked.len);
    out->failed |= asked.failed;
    tern_strbuf_free(&asked);
}

// After what is said of the files: where the ternary one lost, and what each answered.
static tern_status put_details(const reporting *r, tern_strbuf *markdown, tern_strbuf *json) {
    const char *keys[OF_CALLER + COMPARED_MAX], *names[OF_CALLER + COMPARED_MAX];
    const tern_eval_documents documents = documents_of(r, TERNARY);
    const tern_answered answered = {keys, names, (size_t)r->n_rows};
    for (int i = 0; i < r->n_rows; i++) {
        keys[i] = r->rows[i].key;
        names[i] = r->rows[i].name;
    }
    tern_strbuf_puts(json, ",\"lost\":");
    TERN_TRY(tern_lost_put(&r->lost, &documents, r->model, markdown, json, r->job->err));
    TERN_TRY(tern_ternarize_put_tasks(r->job, &answered, markdown, json));
    tern_strbuf_puts(json, "}\n");
    return TERN_OK;
}

// The markdown is last: it says that the report is whole.
static tern_status write_report(const reporting *r) {
    const tern_ternarizing *j = r->job;
    tern_strbuf json = {0}, markdown = {0};
    put_json(r, &json);
    put_markdown(r, &markdown);
    tern_status status = put_details(r, &markdown, &json);
    if (status == TERN_OK && (json.failed || markdown.failed))
        status = tern_fail_memory(j->err, json.len);
    if (status == TERN_OK) status = tern_file_write(j->json, json.ptr, json.len, j->err);
    if (status == TERN_OK)
        status = tern_file_write(j->markdown, markdown.ptr, markdown.len, j->err);
    tern_strbuf_free(&json);
    tern_strbuf_free(&markdown);
    return status;
}

tern_status tern_ternarize_report(tern_ternarizing *j) {
    reporting r = {.job = j,
                   .rows = {[MODEL] = {.name = "the float model", .key = "float"},
                            [TERNARY] = {.name = "ternary", .key = "ternary"},
                            [START] = {.name = "ternary, before training", .key = "start"},
                            [Q4_K_M] = {.name = "Q4_K_M", .key = "q4_k_m"},
                            [Q2_K] = {.name = "Q2_K", .key = "q2_k"}},
                   .n_rows = OF_CALLER};
    char keys[COMPARED_MAX][32];
    for (size_t i = 0; i < j->desc->n_compared; i++) {
        const char *path = j->desc->compared[i];
        snprintf(keys[i], sizeof keys[i], "compared-%zu", i + 1);
        r.rows[r.n_rows++] = (measured){.name = tern_path_name(path), .key = keys[i], .path = path};
    }
    tern_status status = read_text(&r);
    if (status == TERN_OK) status = make_room(&r);
    if (status == TERN_OK) status = read_log(&r);
    if (status == TERN_OK) status = compare_all(&r);
    if (status == TERN_OK) status = write_report(&r);
    tern_session_close(r.session);
    tern_model_close(r.model);
    tern_free(r.tokens);
    tern_free(r.ids);
    tern_free(r.ends);
    return status;
}
