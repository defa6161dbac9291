// From a float model to a ternary one: stages that leave files, so that a run of days can be
// stopped anywhere, looked at between, and repeated from any stage by removing its files.
//
// What each is for: rounding alone leaves a model that knows little; learning from the float
// model's distributions which weights are 0 brings most of it back. Losses of the learnt text prove
// nothing, so the report is of other text only, and has the usual quantizations of the same model
// beside it: a ternary file that is worse than one of its size is of no use.
#include "train/ternarize/ternarize.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tern_tools.h"

enum { LEAST_HELD_OUT = 64 };

static bool is_there(const char *path) { return tern_path_look(path) != TERN_PATH_NONE; }

// ---- Opening -----------------------------------------------------------------------------------

static const char ending[] = ".gguf", work_ending[] = ".work";

// "model.gguf": "model.work".
static char *default_work(const char *out) {
    tern_strbuf path = {0};
    tern_strbuf_append(&path, out, strlen(out) - strlen(ending));
    tern_strbuf_puts(&path, work_ending);
    if (path.failed) tern_strbuf_free(&path);
    return path.ptr;
}

typedef struct file_name {
    char **path;
    const char *name;
} file_name;

static tern_status name_files(tern_ternarizing *j) {
    const tern_ternarize_desc *d = j->desc;
    j->work = d->work ? tern_strdup(TERN_MEM_MISC, d->work) : default_work(d->out);
    if (!j->work) return tern_fail_memory(j->err, strlen(d->out));
    const file_name files[] = {
        {&j->answers, "answers.jsonl"},
        {&j->answered, "answers.json"},
        {&j->data, "data"},
        {&j->manifest, "data/manifest.json"},
        {&j->imatrix, "imatrix.gguf"},
        {&j->rotated, "rotated.gguf"},
        {&j->importance, d->rotate ? "rotated-imatrix.gguf" : "imatrix.gguf"},
        {&j->start, "start.gguf"},
        {&j->run, "heal"},
        {&j->best, "heal/best.gguf"},
        {&j->healed, "heal.json"},
        {&j->exported, "export.json"},
        {&j->markdown, "report.md"},
        {&j->json, "report.json"},
        {&j->plot, "loss.svg"},
        {&j->other, "other.gguf"},
        {&j->results, "results"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        *files[i].path = tern_path_join(j->work, files[i].name);
        if (!*files[i].path) return tern_fail_memory(j->err, strlen(j->work));
    }
    j->floats = d->rotate ? j->rotated : d->model;
    return TERN_OK;
}

static void close_job(tern_ternarizing *j) {
    char *names[] = {j->answers,  j->answered,   j->work,  j->data, j->manifest, j->imatrix,
                     j->rotated,  j->importance, j->start, j->run,  j->best,     j->healed,
                     j->exported, j->markdown,   j->json,  j->plot, j->other,    j->results};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tern_free(names[i]);
    tern_strbuf_free(&j->identity);
}

static tern_status check_desc(tern_ternarizing *j) {
    static const tern_type types[] = {TERN_TYPE_PQ2_0, TERN_TYPE_PTQ1_0, TERN_TYPE_Q2_0,
                                      TERN_TYPE_TQ1_0, TERN_TYPE_TQ2_0,  TERN_TYPE_Q1_0};
    const tern_ternarize_desc *d = j->desc;
    const tern_train_desc *t = &d->train;
    const char *type = d->type ? d->type : "pq2_0";
    size_t i = 0, n = sizeof types / sizeof *types;
    j->type = tern_type_from_name(type);
    while (i < n && types[i] != j->type) i++;
    if (i == n)
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: type '%.32s': expected ptq1_0, pq2_0, q2_0, tq1_0, tq2_0 or "
                         "q1_0",
                         type);
    j->is_gptq = d->start && strcmp(d->start, "gptq") == 0;
    if (d->start && !j->is_gptq && strcmp(d->start, "rtn") != 0)
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: start '%.32s': expected rtn or gptq", d->start);
    if (d->rotate && j->type != TERN_TYPE_PQ2_0 && j->type != TERN_TYPE_PTQ1_0)
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: rotate: files of type %s do not say that their weights are "
                         "rotated: expected pq2_0 or ptq1_0",
                         type);
    if (!tern_name_ends(d->out, ending) || strlen(d->out) == strlen(ending))
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: out '%s': expected a name that ends in .gguf", d->out);
    if (d->source.n_paths == 0)
        return tern_fail(j->err, TERN_ERR_ARGUMENT, "ternarize: there is no text to learn");
    if (d->n_answers < 0 || d->n_answers > 1 << 30 || (d->prompts && !d->n_answers))
        return tern_fail(
            j->err, TERN_ERR_ARGUMENT,
            "ternarize: n_answers %lld%s: expected a count, and one above 0 with prompts",
            (long long)d->n_answers, d->prompts ? " with prompts" : "");
    if (!(d->valid >= 0 && d->valid < 1) || d->measure_tokens < 0 || d->report_tokens < 0)
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: valid %g, measure_tokens %d, report_tokens %d: expected a "
                         "share below 1, and numbers from 0 on",
                         d->valid, d->measure_tokens, d->report_tokens);
    if (t->data || t->out || t->init || t->qat || t->qat_start)
        return tern_fail(
            j->err, TERN_ERR_ARGUMENT,
            "ternarize: data, out, init, qat and qat_start of train follow from the rest");
    if (t->pairs || t->preferences || t->lora_rank)
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: a whole model learns from text: neither pairs, preferences "
                         "nor an adapter (lora_rank)");
    if (t->comm && t->comm->size > 1)
        return tern_fail(j->err, TERN_ERR_UNSUPPORTED, "ternarize: one process does it");
    return tern_ternarize_check_report(j);
}

// ---- What can be healed ------------------------------------------------------------------------

// Such a matrix would stay in floats, and the model large. Blocks of 64 are the smallest.
static tern_status check_rows(const tern_trainer *t, const tern_graph *g, tern_error *err) {
    const tern_value *left = tern_qat_left(t, g);
    if (!left) return TERN_OK;
    const bool fits = t->qat != TERN_DTYPE_Q2_0 && left->cols % 64 == 0;
    return tern_fail(
        err, TERN_ERR_UNSUPPORTED,
        "%s has rows of %lld weights, which are not whole blocks of %zu, those of %s%s", left->name,
        (long long)left->cols, tern_dtype_block_n(t->qat), tern_dtype_name(t->qat),
        fits ? ": take type q2_0, blocks of 64" : "");
}

static tern_status check_graph(tern_ternarizing *j, const tern_trainer *t, tern_graph *g) {
    tern_error *err = j->err;
    TERN_TRY(tern_arch_build_main(g, t->arch, &t->config, err));
    TERN_TRY(tern_arch_check(t->tokenizer_file, t->arch, &t->config, err));
    if (tern_graph_find(g, "logits") < 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "a %s predicts no tokens", t->arch->name);
    const char *op = tern_graph_untrainable(g);
    if (op)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a %s cannot be healed: training does not compute %s", t->arch->name, op);
    if (j->is_gptq) j->start_bytes = tern_ternarize_start_bytes(t, g);
    TERN_TRY(tern_qat_round(t, g, err));
    return check_rows(t, g, err);
}

static tern_status settle_steps(tern_ternarizing *j, const tern_train_desc *settled) {
    const uint64_t n = j->desc->n_tokens, batch = (uint64_t)settled->batch_tokens;
    if (n && j->heal.n_steps)
        return tern_fail(j->err, TERN_ERR_ARGUMENT,
                         "ternarize: n_tokens and n_steps both say how long it learns");
    if (n > INT64_MAX / 2)
        return tern_fail(j->err, TERN_ERR_ARGUMENT, "ternarize: more tokens than can be counted");
    j->heal.n_steps = n ? (int64_t)((n + batch - 1) / batch) : settled->n_steps;
    return TERN_OK;
}

// Whether the model can be trained so, by its config and graph; and who it is.
static tern_status check_model(tern_ternarizing *j, tern_trainer *t) {
    tern_graph g;
    TERN_TRY(tern_trainer_read_init(t, j->err));
    TERN_TRY(tern_train_settle(&t->desc, &t->config, j->err));
    TERN_TRY(tern_qat_open(t, j->err));
    tern_graph_init(&g);
    tern_status status = check_graph(j, t, &g);
    tern_graph_free(&g);
    if (status != TERN_OK) return tern_fail_prefix(j->err, status, j->desc->model);
    TERN_TRY(tern_tokenizer_open(&t->tokenizer, t->tokenizer_file, j->err));
    TERN_TRY(settle_steps(j, &t->desc));
    j->settled = t->desc;
    return tern_ternarize_identify(j, t->tokenizer_file, t->tokenizer);
}

static tern_status open_job(tern_ternarizing *j) {
    TERN_TRY(check_desc(j));
    TERN_TRY(name_files(j));
    j->heal = j->desc->train;
    j->heal.qat = tern_type_name(j->type);
    j->heal.data = j->data;
    j->heal.out = j->run;
    j->heal.init = j->desc->model;
    if (!j->heal.teacher) j->heal.teacher = j->desc->model;
    j->heal.resume = true;
    TERN_TRY(tern_train_check(&j->heal, j->err));
    tern_trainer *t = tern_alloc(TERN_MEM_GRAPH, sizeof *t);
    if (!t) return tern_fail_memory(j->err, sizeof *t);
    *t = (tern_trainer){.desc = j->heal};
    tern_status status = check_model(j, t);
    tern_trainer_close(t);
    return status;
}

// ---- Stages ------------------------------------------------------------------------------------

static tern_status count_held_out(const tern_ternarizing *j) {
    tern_token_set *set;
    const tern_token_set_desc d = {.seq_len = 1, .in_order = true};
    TERN_TRY(tern_token_set_open_folder(&set, j->data, "valid", &d, j->err));
    const uint64_t n = set ? tern_token_set_n_tokens(set) : 0;
    tern_token_set_close(set);
    if (n >= LEAST_HELD_OUT) return TERN_OK;
    return tern_fail(j->err, TERN_ERR_ARGUMENT,
                     "%s: %llu tokens are held out, and the report needs %d: hold out other text "
                     "or a greater share (text that is learnt, too, is not held out)",
                     j->data, (unsigned long long)n, LEAST_HELD_OUT);
}

static tern_status mark_done(const tern_ternarizing *j, const char *path) {
    static const char done[] = "{\"done\":true}\n";
    return tern_file_write(path, done, sizeof done - 1, j->err);
}

static tern_status answer(tern_ternarizing *j) {
    TERN_TRY(tern_ternarize_answers(j));
    return mark_done(j, j->answered);
}

static tern_status build_from(tern_ternarizing *j, const tern_data_source *source) {
    const tern_ternarize_desc *d = j->desc;
    const double share = d->source.n_held_out ? 0 : 0.01;
    tern_data_build_stats stats;
    const tern_data_build_desc how = {.source = *source,
                                      .tokenizer = d->model,
                                      .valid = d->valid > 0 ? d->valid : share,
                                      .seed = d->train.seed,
                                      .n_threads = d->train.n_threads,
                                      .on_progress = d->on_progress,
                                      .user = d->user};
    return tern_data_build(j->data, &how, &stats, j->err);
}

// The texts, and after them the answers, if there are any.
static tern_status build(tern_ternarizing *j) {
    tern_data_source source = j->desc->source;
    const size_t n = source.n_paths;
    if (j->desc->n_answers == 0) return build_from(j, &source);
    const char **paths = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *paths);
    double *weights = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *weights);
    tern_status status = paths && weights ? TERN_OK : tern_fail_memory(j->err, n * sizeof *paths);
    for (size_t i = 0; status == TERN_OK && i <= n; i++) {
        paths[i] = i < n ? source.paths[i] : j->answers;
        weights[i] = i < n && source.weights ? source.weights[i] : 1;
    }
    source.paths = paths;
    source.weights = weights;
    source.n_paths = n + 1;
    if (status == TERN_OK) status = build_from(j, &source);
    tern_free(paths);
    tern_free(weights);
    return status;
}

static tern_status heal(tern_ternarizing *j) {
    tern_train_desc d = j->heal;
    d.init = j->floats;
    // With rtn's numbers healing is slower than with those that training rounds the floats to
    // (docs/notebook/training.md).
    if (j->is_gptq) d.qat_start = j->start;
    TERN_TRY(tern_train(&d, j->err));
    return mark_done(j, j->healed);
}

// If no step was better than none, the model is what it began with.
static tern_status export_model(tern_ternarizing *j) {
    const char *best = is_there(j->best) ? j->best : j->start;
    TERN_TRY(tern_ternarize_convert(j, best, j->desc->out, TERN_TYPE_AUTO));
    return mark_done(j, j->exported);
}

// ---- All of them -------------------------------------------------------------------------------

const char *tern_ternarize_stage_name(tern_ternarize_stage stage) {
    static const char *const names[] = {"answers", "data",   "measure", "start",
                                        "heal",    "export", "report"};
    return (unsigned)stage < TERN_TERNARIZE_STAGES ? names[stage] : "unknown";
}

static bool is_done(const tern_ternarizing *j, tern_ternarize_stage stage) {
    const char *const files[TERN_TERNARIZE_STAGES] = {
        j->answered, j->manifest, j->imatrix, j->start, j->healed, j->exported, j->markdown};
    if (stage == TERN_TERNARIZE_ANSWERS && j->desc->n_answers == 0) return true;
    if (stage == TERN_TERNARIZE_EXPORT && !is_there(j->desc->out)) return false;
    if (stage == TERN_TERNARIZE_REPORT) return tern_ternarize_is_reported(j);
    return is_there(files[stage]);
}

// Stages whose files a stage reads.
static tern_status check_needs(const tern_ternarizing *j, tern_ternarize_stage stage) {
    static const unsigned needs[TERN_TERNARIZE_STAGES] = {
        [TERN_TERNARIZE_DATA] = 1u << TERN_TERNARIZE_ANSWERS,
        [TERN_TERNARIZE_MEASURE] = 1u << TERN_TERNARIZE_DATA,
        [TERN_TERNARIZE_START] = 1u << TERN_TERNARIZE_MEASURE,
        [TERN_TERNARIZE_HEAL] = 1u << TERN_TERNARIZE_DATA,
        [TERN_TERNARIZE_EXPORT] = 1u << TERN_TERNARIZE_START | 1u << TERN_TERNARIZE_HEAL,
        [TERN_TERNARIZE_REPORT] = 1u << TERN_TERNARIZE_DATA | 1u << TERN_TERNARIZE_MEASURE |
                                  1u << TERN_TERNARIZE_START | 1u << TERN_TERNARIZE_EXPORT};
    const bool begins = stage == TERN_TERNARIZE_HEAL && j->is_gptq;
    const unsigned needed = needs[stage] | (begins ? 1u << TERN_TERNARIZE_START : 0);
    for (int i = 0; i < TERN_TERNARIZE_STAGES; i++)
        if (needed >> i & 1 && !is_done(j, (tern_ternarize_stage)i))
            return tern_fail(j->err, TERN_ERR_ARGUMENT,
                             "%s: stage %s is not done, and stage %s reads its files", j->work,
                             tern_ternarize_stage_name((tern_ternarize_stage)i),
                             tern_ternarize_stage_name(stage));
    return TERN_OK;
}

static void tell_plan(void *user, const tern_train_info *info) {
    const tern_ternarizing *j = user;
    tern_train_info all = *info;
    all.start_bytes = j->start_bytes;
    j->heal.on_begin(j->heal.user, &all);
}

// Says what training takes before the first of the stages that read the model.
static tern_status plan(tern_ternarizing *j) {
    tern_train_desc d = j->heal;
    TERN_TRY(tern_ternarize_rotate(j));
    d.init = j->floats;
    d.out = NULL;
    d.resume = false;
    if (d.on_begin) {
        d.on_begin = tell_plan;
        d.on_event = NULL;
        d.on_step = NULL;
        d.user = j;
    }
    return tern_train_plan(&d, j->err);
}

static bool has_begun(const tern_ternarizing *j) {
    return is_there(j->imatrix) || is_there(j->start) || is_there(j->run);
}

static tern_status run_stage(tern_ternarizing *j, tern_ternarize_stage stage) {
    static tern_status (*const run[TERN_TERNARIZE_STAGES])(tern_ternarizing *) = {
        answer, build,        tern_ternarize_measure, tern_ternarize_start,
        heal,   export_model, tern_ternarize_report};
    const bool done = is_done(j, stage);
    if (!done) TERN_TRY(check_needs(j, stage));
    const bool is_wanted = stage != TERN_TERNARIZE_ANSWERS || j->desc->n_answers > 0;
    if (j->desc->on_stage && is_wanted) j->desc->on_stage(j->desc->user, stage, done);
    if (!done && stage >= TERN_TERNARIZE_MEASURE) TERN_TRY(tern_ternarize_rotate(j));
    if (!done) TERN_TRY(run[stage](j));
    return stage == TERN_TERNARIZE_DATA ? count_held_out(j) : TERN_OK;
}

static tern_status run_stages(tern_ternarizing *j) {
    const uint32_t all = (1u << TERN_TERNARIZE_STAGES) - 1,
                   stages = j->desc->stages ? j->desc->stages & all : all;
    const uint32_t of_model = 1u << TERN_TERNARIZE_MEASURE | 1u << TERN_TERNARIZE_HEAL;
    for (int i = 0; i < TERN_TERNARIZE_STAGES; i++) {
        if (!(stages >> i & 1)) continue;
        if (of_model >> i & 1 && stages >> TERN_TERNARIZE_HEAL & 1 && !has_begun(j) &&
            is_there(j->manifest))
            TERN_TRY(plan(j));
        TERN_TRY(run_stage(j, (tern_ternarize_stage)i));
    }
    return TERN_OK;
}

static tern_status plan_only(tern_ternarizing *j) {
    TERN_TRY(run_stage(j, TERN_TERNARIZE_ANSWERS));
    TERN_TRY(run_stage(j, TERN_TERNARIZE_DATA));
    return plan(j);
}

static tern_status in_folder(tern_ternarizing *j, tern_status (*run)(tern_ternarizing *)) {
    tern_lock lock = {0};
    tern_status status = open_job(j);
    if (status == TERN_OK) status = tern_folder_make(j->work, j->err);
    if (status == TERN_OK) status = tern_lock_folder(&lock, j->work, j->err);
    if (status == TERN_OK) status = tern_ternarize_check_identity(j);
    if (status == TERN_OK) status = run(j);
    tern_unlock(&lock);
    close_job(j);
    return status;
}

static tern_status ternarize(const tern_ternarize_desc *desc,
                             tern_status (*run)(tern_ternarizing *), tern_error *err) {
    TERN_NEED(desc);
    TERN_NEED(desc->model);
    TERN_NEED(desc->out);
    TERN_NEED_EACH(desc->source.paths, desc->source.n_paths);
    TERN_NEED_EACH(desc->source.held_out, desc->source.n_held_out);
    TERN_NEED_EACH(desc->compared, desc->n_compared);
    tern_ternarizing j = {.desc = desc, .err = err};
    return in_folder(&j, run);
}

tern_status tern_ternarize(const tern_ternarize_desc *desc, tern_error *err) {
    tern_clear(err);
    return ternarize(desc, run_stages, err);
}

tern_status tern_ternarize_plan(const tern_ternarize_desc *desc, tern_error *err) {
    tern_clear(err);
    return ternarize(desc, plan_only, err);
}
