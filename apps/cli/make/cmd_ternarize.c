// tern ternarize: a float model becomes a ternary one, and a report says what that costs.
#include "apps/cli/console/cli.h"
#include "apps/cli/make/train_report.h"
#include "tern_train.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Stopping -----------------------------------------------------------------------------------

static volatile sig_atomic_t interrupted;
static tern_cancel cancel;

static bool on_interrupt(void) {
    static const char answer[] = "\ntern: stopping; the same command goes on from here\n";
    interrupted = 1;
    tern_cancel_request(&cancel);
    (void)!write(STDERR_FILENO, answer, sizeof answer - 1);
    return false;
}

static void watch_signals(void) {
    tern_cancel_watch(&cancel);
    system_on_interrupt(on_interrupt, true);
}

// ---- Reporting ----------------------------------------------------------------------------------

typedef struct reporter {
    train_reporter train;
    bool is_planned; // the plan was said, with the time
} reporter;

static void show_stage(void *user, tern_ternarize_stage stage, bool is_done) {
    (void)user;
    end_progress();
    fprintf(stderr, "stage   %s%s\n", tern_ternarize_stage_name(stage), is_done ? ", done" : "");
}

static void show_plan(void *user, const tern_train_info *info) {
    reporter *r = user;
    end_progress();
    if (r->is_planned)
        clock_gettime(CLOCK_MONOTONIC, &r->train.begun);
    else
        train_header(&r->train, info);
    r->train.told_time = r->is_planned;
    r->is_planned = true;
}

static bool show_event(void *user, const tern_train_event *event) {
    reporter *r = user;
    return train_event(&r->train, event);
}

static bool show_step(void *user, const tern_train_event *event) {
    reporter *r = user;
    return train_step(&r->train, event);
}

static int print_report(const char *work) {
    char *path = must_alloc(NULL, strlen(work) + 16, 1);
    text report = {0};
    sprintf(path, "%s/report.md", work);
    const bool ok = text_read(&report, path);
    if (ok) fwrite(report.ptr, 1, report.n, stdout);
    free(report.ptr);
    free(path);
    return ok ? EXIT_OK : EXIT_FAILED;
}

// ---- The command --------------------------------------------------------------------------------

typedef struct ternarize_args {
    const char *model, *stage;
    string_list data, held_out, compared;
    int n_answers, n_task_items;
    int n_steps, batch_tokens, micro_tokens, seq_len, n_warmup, qat_warmup, optimizer, packing;
    int log_every, valid_every, valid_tokens, checkpoint_every, patience, measure_tokens;
    int report_tokens, teacher_top_k, teacher_tail;
    float valid, kd_ratio;
    bool plan, no_report;
} ternarize_args;

static void take_args(tern_ternarize_desc *d, const ternarize_args *a) {
    tern_train_desc *t = &d->train;
    d->source.paths = a->data.items;
    d->source.n_paths = a->data.n;
    d->source.held_out = a->held_out.items;
    d->source.n_held_out = a->held_out.n;
    d->valid = (double)a->valid;
    d->n_answers = a->n_answers;
    d->measure_tokens = a->measure_tokens;
    d->report_tokens = a->report_tokens;
    d->compared = a->compared.items;
    d->n_compared = a->compared.n;
    d->n_task_items = a->n_task_items;
    t->n_steps = a->n_steps;
    t->batch_tokens = a->batch_tokens;
    t->micro_tokens = a->micro_tokens;
    t->seq_len = a->seq_len;
    t->n_warmup = a->n_warmup;
    t->qat_warmup = a->qat_warmup;
    t->optimizer = (tern_optimizer)a->optimizer;
    t->packing = (tern_packing)a->packing;
    t->log_every = a->log_every;
    t->valid_every = a->valid_every;
    t->valid_tokens = a->valid_tokens;
    t->checkpoint_every = a->checkpoint_every;
    t->early_stopping_patience = a->patience;
    t->teacher_top_k = a->teacher_top_k;
    t->teacher_tail = a->teacher_tail;
    t->kd_ratio = a->kd_ratio > 0 ? a->kd_ratio : -1;
}

// One stage, or all; NULL: all.
static bool take_stages(tern_ternarize_desc *d, const ternarize_args *a) {
    const uint32_t report = 1u << TERN_TERNARIZE_REPORT, all = 2 * report - 1;
    d->stages = a->no_report ? all & ~report : all;
    for (int i = 0; a->stage && i < TERN_TERNARIZE_STAGES; i++)
        if (!strcmp(a->stage, tern_ternarize_stage_name((tern_ternarize_stage)i)))
            d->stages = 1u << i;
    return !(a->stage && a->no_report);
}

// "model.gguf": "model.work".
static char *work_beside(const char *out) {
    const size_t n = strlen(out);
    char *work = must_alloc(NULL, n + 8, 1);
    const bool ends = n > 5 && !strcmp(out + n - 5, ".gguf");
    sprintf(work, "%.*s.work", (int)(ends ? n - 5 : n), out);
    return work;
}

static int run(tern_ternarize_desc *d, const ternarize_args *a) {
    tern_error err = {0};
    tern_train_desc said = d->train; // what the library sets itself
    reporter r = {.train = {.desc = &said,
                            .interrupted = &interrupted,
                            .is_terminal = isatty(STDERR_FILENO)}};
    char *work = work_beside(d->out), *heal;
    if (!d->work) d->work = work;
    heal = must_alloc(NULL, strlen(d->work) + 8, 1);
    sprintf(heal, "%s/heal", d->work);
    d->on_stage = show_stage;
    d->on_progress = show_progress;
    said.init = d->model;
    said.qat = d->type;
    said.out = heal;
    d->train.webgpu = cli_webgpu();
    d->train.on_begin = show_plan;
    d->train.on_event = show_event;
    d->train.on_step = show_step;
    d->train.user = &r;
    watch_signals();
    tern_status done = a->plan ? tern_ternarize_plan(d, &err) : tern_ternarize(d, &err);
    end_progress();
    int status = exit_status(done, &err);
    if (done == TERN_OK && !a->plan && d->stages >> TERN_TERNARIZE_REPORT & 1)
        status = print_report(d->work);
    free(heal);
    free(work);
    return status;
}

int cmd_ternarize(const command *self, int argc, char **argv) {
    tern_ternarize_desc d = {.type = "pq2_0", .train.seed = 1};
    ternarize_args a = {.kd_ratio = 1};
    tern_train_desc *t = &d.train;
    int n, status;
    const option options[] = {
        OPTIONS_GROUP("Data and results"),
        {0, "model", OPTION_TEXT, &a.model, "MODEL", "a decoder in floats, GGUF or folder",
         .position = 1},
        {'o', "out", OPTION_TEXT, &d.out, "FILE", "the ternary model, a name ending in .gguf"},
        {0, "data", OPTION_TEXTS, &a.data, "TEXT",
         "a file or folder to learn; may be repeated, or follow MODEL", .position = 2},
        {0, "held-out", OPTION_TEXTS, &a.held_out, "TEXT",
         "hold out all of this file or folder, for the report; may be repeated"},
        {0, "valid", OPTION_NUMBER, &a.valid, "P",
         "part of the documents to hold out without --held-out (0.01)", 0, 0.9},
        {0, "answers", OPTION_COUNT, &a.n_answers, "N",
         "also learn this many answers of the model itself (0)"},
        {0, "prompts", OPTION_TEXT, &d.prompts, "FILE",
         "what it answers, a JSON string or {\"text\": ...} a line (beginnings of the texts)"},
        {0, "separator", OPTION_TEXT, &d.source.separator, "TEXT",
         "between documents of a text file, \"\": none (<|endoftext|>)"},
        {0, "field", OPTION_TEXT, &d.source.field, "NAME", "of the text in JSON (text)"},
        {0, "assistant-only", OPTION_FLAG, &t->assistant_only, NULL,
         "of chats learn only what the assistant says"},
        OPTIONS_GROUP("What is done"),
        {0, "type", OPTION_NAME, &d.type, "ptq1_0|pq2_0|q2_0|tq1_0|tq2_0|q1_0",
         "of the matrices; docs/formats.md (pq2_0)"},
        {0, "start", OPTION_NAME, &d.start, "rtn|gptq",
         "before training: each group rounded by itself, or by products of inputs (rtn)"},
        {0, "rotate", OPTION_FLAG, &d.rotate, NULL,
         "round in a basis without outliers: Walsh-Hadamard (pq2_0 and ptq1_0)"},
        {0, "plan", OPTION_FLAG, &a.plan, NULL,
         "only say what training would take, memory and time, by the data, which is made"},
        {0, "stage", OPTION_NAME, &a.stage, "answers|data|measure|start|heal|export|report",
         "only this stage (all)"},
        {0, "no-report", OPTION_FLAG, &a.no_report, NULL, "do not compare the model with others"},
        {0, "work", OPTION_TEXT, &d.work, "DIR",
         "for all other files; the same command goes on from there (OUT's name with .work)"},
        {0, "measure-tokens", OPTION_COUNT, &a.measure_tokens, "N",
         "by which inputs of matrices are measured (128K)", 1},
        {0, "report-tokens", OPTION_COUNT, &a.report_tokens, "N",
         "of held-out text, for the report (64K)", 1},
        OPTIONS_GROUP("The report, besides"),
        {0, "compare", OPTION_TEXTS, &a.compared, "FILE",
         "another file of the model, as the IQ type of equal size; may be repeated"},
        {0, "tasks", OPTION_TEXT, &d.tasks, "NAMES",
         "tasks of tern eval run, or task files, with commas between"},
        {'d', "dir", OPTION_TEXT, &d.tasks_folder, "DIR",
         "where their files are, under their usual names"},
        {0, "limit", OPTION_COUNT, &a.n_task_items, "N", "items of each file at most, 0: all (0)"},
        OPTIONS_GROUP("Training"),
        {'n', "steps", OPTION_COUNT, &a.n_steps, "N", "optimizer steps (1000)", 1},
        {0, "tokens", OPTION_SIZE, &d.n_tokens, "N", "to learn, instead of --steps", 1},
        {0, "rate", OPTION_NUMBER, &t->rate, "R", "peak learning rate (0.05 / width)", 0, 10},
        {0, "warmup", OPTION_COUNT, &a.n_warmup, "N", "steps in which the rate rises"},
        {0, "qat-warmup", OPTION_COUNT, &a.qat_warmup, "N",
         "steps in which rounding sets in, from floats on (0)"},
        {0, "batch-tokens", OPTION_COUNT, &a.batch_tokens, "N", "tokens of a step (8 --seq-len)",
         1},
        {0, "seq-len", OPTION_COUNT, &a.seq_len, "N",
         "tokens of a sequence (512, at most the context)", 1, 1 << 24},
        {0, "micro-tokens", OPTION_COUNT, &a.micro_tokens, "N",
         "computed at once (4096, on a GPU 32768)", 1},
        {0, "gradient-checkpointing", OPTION_FLAG, &t->gradient_checkpointing, NULL,
         "compute activations inside layers again: less memory, the same bits"},
        {0, "teacher", OPTION_TEXT, &t->teacher, "MODEL",
         "another one with the same vocabulary (the float model)"},
        {0, "kd-ratio", OPTION_NUMBER, &a.kd_ratio, "W",
         "share of KL to it in the loss, the rest is cross entropy (1)", 0, 1},
        {0, "teacher-cache", OPTION_TEXT, &t->teacher_cache, "FILE",
         "keep what the float model says of the text: it runs once (CPU)"},
        {0, "teacher-top-k", OPTION_COUNT, &a.teacher_top_k, "K", "best tokens in it, of each (64)",
         1},
        {0, "teacher-tail", OPTION_COUNT, &a.teacher_tail, "N", "drawn from the others (0)"},
        {0, "optimizer", OPTION_CHOICE, &a.optimizer, "adamw|adamw8bit|muon",
         "moments of 8 bits; Muon for the matrices of layers (adamw)"},
        {0, "bf16-masters", OPTION_FLAG, &t->bf16_masters, NULL,
         "master weights of 16 bits, rounded at random after each step"},
        {0, "freeze", OPTION_TEXT, &t->freeze, "LIST",
         "not trained: of norm,router, or names: embed_tokens,layers.0-3"},
        {0, "packing", OPTION_CHOICE, &a.packing, "wrapped|bfd|none",
         "documents into sequences: all text, cut; whole ones; one for each (wrapped)"},
        {0, "seed", OPTION_SEED, &t->seed, "S", "of the order and of what is held out (1)"},
        OPTIONS_GROUP("Machine and reports"),
        {0, "device", OPTION_NAME, &t->device, "cpu|webgpu", "where it runs (cpu)"},
        {'t', "threads", OPTION_COUNT, &t->n_threads, "N", "threads, 0: one for each core (0)", 0,
         1024},
        FEATURES_OPTION(t->cpu_features),
        {0, "bf16", OPTION_FLAG, &t->bf16, NULL,
         "round the factors of products to bf16, where the processor is fast at it"},
        {0, "log-every", OPTION_COUNT, &a.log_every, "N", "steps (10)", 1},
        {0, "valid-every", OPTION_COUNT, &a.valid_every, "N", "steps (250)", 1},
        {0, "valid-tokens", OPTION_COUNT, &a.valid_tokens, "N", "of held-out text (65536)", 1},
        {0, "checkpoint-every", OPTION_COUNT, &a.checkpoint_every, "N", "steps (500)", 1},
        {0, "early-stopping-patience", OPTION_COUNT, &a.patience, "N",
         "end after N validations without a lower loss (never)", 1},
        {0, "tensorboard", OPTION_FLAG, &t->tensorboard, NULL,
         "also write the log as a file of TensorBoard's events"},
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!a.model || !d.out || a.data.n == 0)
        return bad_usage("ternarize: MODEL, -o and --data are needed (usage: tern %s %s)",
                         self->name, self->usage);
    if (!take_stages(&d, &a))
        return bad_usage("ternarize: --stage and --no-report exclude another");
    if (!d.tasks != !d.tasks_folder) return bad_usage("ternarize: --tasks goes with --dir");
    if (d.prompts && !a.n_answers) return bad_usage("ternarize: --prompts goes with --answers");
    if (a.n_steps && d.n_tokens)
        return bad_usage("ternarize: --steps and --tokens both say how long it learns");
    take_args(&d, &a);
    d.model = resolve_model(NULL, a.model);
    return d.model ? run(&d, &a) : EXIT_FAILED;
}
