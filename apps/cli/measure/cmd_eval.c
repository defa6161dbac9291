// tern eval: tasks, results files, and the paper's checklist. What reads a text is in eval_text.c.
#include "apps/cli/measure/eval_text.h"
#include "tern_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/os/os_file.h"

// ---- Tasks -------------------------------------------------------------------------------------

typedef struct row { // of the table
    char *task;      // with the file's name, if a task has many
    tern_eval_result result;
} row;

typedef struct suite {
    tern_session *session;
    tern_eval_desc desc;
    const char *folder, *file; // where the items are
    const char *tasks;         // names and files, with commas between
    row *rows;
    size_t n_rows;
} suite;

static void add_row(suite *s, const char *task, const tern_eval_result *result) {
    s->rows = must_alloc(s->rows, s->n_rows + 1, sizeof *s->rows);
    char *copy = must_alloc(NULL, strlen(task) + 1, 1);
    strcpy(copy, task);
    s->rows[s->n_rows++] = (row){copy, *result};
}

static int run_file(suite *s, const char *task, const char *path, const char *name) {
    tern_error err = {0};
    tern_eval_result result;
    s->desc.task = task;
    s->desc.path = path;
    tern_status status = tern_eval_run(s->session, &s->desc, &result, &err);
    if (status != TERN_OK) {
        end_progress();
        return exit_status(status, &err);
    }
    if (result.n_faulty) {
        end_progress();
        fprintf(stderr, "note: %zu of %zu items of %s %s faulty and left out; the first: %s\n",
                result.n_faulty, result.n_faulty + result.n_items, name,
                result.n_faulty == 1 ? "is" : "are", result.fault);
    }
    add_row(s, name, &result);
    return EXIT_OK;
}

// Adds the mean over the rows from `first` on: each metric's mean over the files, as the harness
// does for BLiMP, or over their items, as for MMLU. Files are independent, so their squared errors
// add up.
static void add_mean(suite *s, const char *task, size_t first) {
    size_t n_items = 0;
    bool by_items = !strcmp(task, "mmlu");
    for (size_t i = first; i < s->n_rows; i++) n_items += s->rows[i].result.n_items;
    tern_eval_result mean = {.n_metrics = s->rows[first].result.n_metrics,
                             .n_shots = s->rows[first].result.n_shots};
    for (size_t i = first; i < s->n_rows; i++) {
        const tern_eval_result *r = &s->rows[i].result;
        mean.n_items += r->n_items;
        mean.n_resumed += r->n_resumed;
        mean.n_cut += r->n_cut;
        mean.n_faulty += r->n_faulty;
        double share =
            by_items ? (double)r->n_items / (double)n_items : 1 / (double)(s->n_rows - first);
        for (int m = 0; m < mean.n_metrics; m++) {
            double error = share * r->metrics[m].error;
            memcpy(mean.metrics[m].name, r->metrics[m].name, sizeof mean.metrics[m].name);
            mean.metrics[m].value += share * r->metrics[m].value;
            mean.metrics[m].error += error * error;
        }
    }
    for (int m = 0; m < mean.n_metrics; m++) mean.metrics[m].error = sqrt(mean.metrics[m].error);
    add_row(s, task, &mean);
}

// A task's file, or a folder of them.
static int run_path(suite *s, const char *task, const char *path, const char *title) {
    tern_names entries = {0};
    tern_error err = {0};
    size_t first = s->n_rows;
    int status = EXIT_OK;
    if (tern_path_look(path) != TERN_PATH_FOLDER) return run_file(s, task, path, title);
    if (tern_folder_list(&entries, path, "", ".jsonl", &err) != TERN_OK)
        return fail("%s", err.message);
    const size_t n = entries.n;
    for (size_t i = 0; i < n; i++) {
        text file = {0}, name = {0};
        const char *entry = entries.list[i];
        const char *file_parts[] = {path, "/", entry}, *name_parts[] = {title, "/"};
        for (int k = 0; k < 3; k++) text_puts(&file, file_parts[k]);
        for (int k = 0; k < 2; k++) text_puts(&name, name_parts[k]);
        text_append(&name, entry, strlen(entry) - 6); // without ".jsonl"
        if (status == EXIT_OK) status = run_file(s, task, file.ptr, name.ptr);
        free(file.ptr);
        free(name.ptr);
    }
    tern_names_free(&entries);
    if (n == 0) return fail("%s: there are no .jsonl files in it", path);
    if (status == EXIT_OK) add_mean(s, title, first);
    return status;
}

// One task's file, which is given or found in the folder.
static int run_task(suite *s, const char *task) {
    text path = {0};
    const char *slash = strrchr(task, '/');
    if (s->file) return run_path(s, task, s->file, slash ? slash + 1 : task);
    if (!tern_eval_find_file(task, s->folder, text_collect, &path))
        return fail("%s: there is no file for %s in it", s->folder, task);
    int status = run_path(s, task, path.ptr, slash ? slash + 1 : task);
    free(path.ptr);
    return status;
}

static int run_all(suite *s) {
    int status = EXIT_OK;
    for (size_t i = 0; tern_eval_task_name(i) && status == EXIT_OK; i++) {
        text path = {0};
        const char *task = tern_eval_task_name(i);
        if (!tern_eval_find_file(task, s->folder, text_collect, &path))
            fprintf(stderr, "%s: no file for it in %s\n", task, s->folder);
        else if (!strcmp(task, "gsm8k") && !s->desc.shots_path)
            fprintf(stderr, "%s: left out: it needs --shots-file\n", task);
        else
            status = run_path(s, task, path.ptr, task);
        free(path.ptr);
    }
    if (status == EXIT_OK && s->n_rows == 0) return fail("%s: no task's file is there", s->folder);
    return status;
}

static void print_rows(const suite *s) {
    printf("| task | shots | items | metric | value | standard error |\n"
           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < s->n_rows; i++)
        for (int m = 0; m < s->rows[i].result.n_metrics; m++) {
            const tern_eval_metric *metric = &s->rows[i].result.metrics[m];
            printf("| %s | %d | %zu | %s ", s->rows[i].task, s->rows[i].result.n_shots,
                   s->rows[i].result.n_items, metric->name);
            print_value(metric->value);
            print_value(metric->error);
            printf("|\n");
        }
}

static void print_rows_json(const suite *s, const char *model) {
    printf("{\"model\":");
    put_json(stdout, model, strlen(model));
    printf(",\"n_shots\":%d,\"tasks\":[", s->n_rows ? s->rows[0].result.n_shots : 0);
    for (size_t i = 0; i < s->n_rows; i++) {
        const tern_eval_result *r = &s->rows[i].result;
        printf("%s{\"task\":", i ? ",\n" : "\n");
        put_json(stdout, s->rows[i].task, strlen(s->rows[i].task));
        printf(",\"n_items\":%zu,\"n_resumed\":%zu,\"n_cut\":%zu,\"n_faulty\":%zu", r->n_items,
               r->n_resumed, r->n_cut, r->n_faulty);
        if (r->fault[0]) {
            printf(",\"fault\":");
            put_json(stdout, r->fault, strlen(r->fault));
        }
        for (int m = 0; m < r->n_metrics; m++) {
            char name[64];
            snprintf(name, sizeof name, "%s_stderr", r->metrics[m].name);
            put_number(stdout, r->metrics[m].name, "%.10g", r->metrics[m].value);
            put_number(stdout, name, "%.10g", r->metrics[m].error);
        }
        printf("}");
    }
    printf("]}\n");
}

// Cuts the next name off *list, at a comma; the caller frees it. NULL: there is none.
static char *next_task(const char **list) {
    size_t n = strcspn(*list, ",");
    if (!n) return NULL;
    char *name = must_alloc(NULL, n + 1, 1);
    memcpy(name, *list, n);
    name[n] = 0;
    *list += n + ((*list)[n] == ',');
    return name;
}

// Calls on_task for each task of the list, with its own spelling, until one fails.
static int each_task(suite *s, int (*on_task)(suite *s, const char *task)) {
    const char *rest = s->tasks;
    int status = EXIT_OK;
    char *name;
    while (status == EXIT_OK && (name = next_task(&rest))) {
        const char *task = name;
        bool known = tern_eval_task_known(&task);
        text names = {0};
        for (size_t i = 0; !known && tern_eval_task_name(i); i++) {
            text_puts(&names, i ? ", " : "");
            text_puts(&names, tern_eval_task_name(i));
        }
        status = known ? on_task(s, task)
                       : bad_usage("eval run: no task '%s': expected all, FILE.json, %s", name,
                                   names.ptr);
        free(names.ptr);
        free(name);
    }
    return status;
}

static int count_task(suite *s, const char *task) {
    (void)task;
    s->n_rows++;
    return EXIT_OK;
}

static int check_run(const command *self, suite *s) {
    bool all = s->tasks && !strcmp(s->tasks, "all");
    if (!s->tasks || !*s->tasks)
        return bad_usage("eval run: no task (usage: tern %s %s)", self->name, self->usage);
    int status = all ? EXIT_OK : each_task(s, count_task);
    size_t n_tasks = s->n_rows;
    s->n_rows = 0;
    if (status != EXIT_OK) return status;
    if (all ? !s->folder : !s->file && !s->folder)
        return bad_usage("eval run: %s is needed", all ? "-d" : "-f or -d");
    if (all ? s->file || s->desc.n_shots > 0 : s->file && n_tasks != 1)
        return bad_usage("eval run: -f and --shots are for one task");
    if (s->desc.n_shots > 0 && !s->desc.shots_path)
        return bad_usage("eval run: --shots needs --shots-file");
    if (s->desc.system && !s->desc.apply_chat_template)
        return bad_usage("eval run: --system-instruction needs --apply-chat-template");
    return EXIT_OK;
}

static int run_tasks(suite *s) {
    return strcmp(s->tasks, "all") ? each_task(s, run_task) : run_all(s);
}

#define SHOTS_OF_TASK (-1)
static int eval_run(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    session_args session_options = {.kv_type = TERN_KV_F32};
    suite s = {0};
    float temperature = 0;
    int form = OUTPUT_MD, shots = SHOTS_OF_TASK, status, n;
    const option options[] = {
        {0, "tasks", OPTION_TEXT, &s.tasks, "NAMES",
         "tasks or task files, with commas between, or all"},
        {0, "task", OPTION_TEXT, &s.tasks, "NAME", "the same"},
        {'f', "file", OPTION_TEXT, &s.file, "FILE", "one task's JSONL file, or a folder of them"},
        {'d', "dir", OPTION_TEXT, &s.folder, "DIR", "where the files are, under their usual names"},
        {0, "limit", OPTION_COUNT, &s.desc.n_items, "N", "items of each file at most, 0: all (0)"},
        {0, "shots", OPTION_COUNT, &shots, "N", "answered examples in front (the task's)", 0, 1000},
        {0, "shots-file", OPTION_TEXT, &s.desc.shots_path, "FILE", "whose first N they are"},
        {0, "results", OPTION_TEXT, &s.desc.results_path, "FILE",
         "keep each item's scores there, and go on where it ends"},
        {0, "apply-chat-template", OPTION_FLAG, &s.desc.apply_chat_template, NULL,
         "questions are a user's messages"},
        {0, "system-instruction", OPTION_TEXT, &s.desc.system, "TEXT", "a system message"},
        {0, "fewshot-as-multiturn", OPTION_FLAG, &s.desc.shots_as_turns, NULL,
         "examples are turns of the chat"},
        {0, "temp", OPTION_NUMBER, &temperature, "T", "of generated answers (0: greedy)", 0, 100},
        {0, "parallel", OPTION_COUNT, &s.desc.n_parallel, "N", "answers generated at once (8)", 1,
         1024},
        OUTPUT_OPTION(form),
        MODEL_OPTIONS(model_options),
        SESSION_OPTIONS(session_options),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    s.desc.n_shots = shots ? shots : -1; // none, if 0 was asked for
    if (shots == SHOTS_OF_TASK) s.desc.n_shots = 0;
    s.desc.temperature = temperature;
    status = check_run(self, &s);
    if (status != EXIT_OK) return status;
    cancel_on_signals(NULL);
    tern_model *model = open_model(self, &model_options, &status);
    s.session = model ? open_session(model, &session_options) : NULL;
    if (model && !s.session) status = EXIT_FAILED;
    s.desc.on_progress = show_progress;
    if (s.session) status = run_tasks(&s);
    if (s.session && status == EXIT_OK) {
        if (form == OUTPUT_JSON)
            print_rows_json(&s, model_options.path);
        else
            print_rows(&s);
    }
    for (size_t i = 0; i < s.n_rows; i++) free(s.rows[i].task);
    free(s.rows);
    tern_session_close(s.session);
    tern_model_close(model);
    return status;
}

// ---- The paper ---------------------------------------------------------------------------------

static int eval_paper(const command *self, int argc, char **argv) {
    const char *path = NULL;
    int form = OUTPUT_MD, status, n;
    tern_error err = {0};
    const option options[] = {
        {'m', "model", OPTION_TEXT, &path, "MODEL", "a .gguf file, a Hugging Face folder or a name",
         .position = 1},
        HUB_OPTIONS,
        OUTPUT_OPTION(form),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!path)
        return bad_usage("eval paper: no model (usage: tern %s %s)", self->name, self->usage);
    path = resolve_model(NULL, path);
    if (!path) return EXIT_FAILED;
    tern_format format = form == OUTPUT_JSON ? TERN_FORMAT_JSON : TERN_FORMAT_TEXT;
    return exit_status(tern_eval_paper(path, format, write_out, NULL, &err), &err);
}

// ---- Results files -----------------------------------------------------------------------------

static const tern_table_format table_formats[] = {TERN_TABLE_MARKDOWN, TERN_TABLE_JSON,
                                                  TERN_TABLE_CSV};
#define TABLE_OPTION(o)                                                                            \
    { 'o', "output", OPTION_CHOICE, &(o), "md|json|csv", "how it is printed" }

static int eval_significance(const command *self, int argc, char **argv) {
    const char *files[3];
    int form = 0, status, n;
    tern_error err = {0};
    const option options[] = {TABLE_OPTION(form), OPTIONS_END};
    if (!parse_options(self, options, argc, argv, files, 2, &n, &status)) return status;
    if (n < 2)
        return bad_usage("eval significance: two results files are needed (usage: tern %s %s)",
                         self->name, self->usage);
    return exit_status(
        tern_eval_significance(files[0], files[1], table_formats[form], write_out, NULL, &err),
        &err);
}

static int eval_table(const command *self, int argc, char **argv) {
    const char *files[TERN_EVAL_FILES_MAX];
    int form = 0, status, n;
    tern_error err = {0};
    const option options[] = {TABLE_OPTION(form), OPTIONS_END};
    if (!parse_options(self, options, argc, argv, files, TERN_EVAL_FILES_MAX, &n, &status))
        return status;
    if (n < 1)
        return bad_usage("eval table: no results files (usage: tern %s %s)", self->name,
                         self->usage);
    return exit_status(
        tern_eval_table(files, (size_t)n, table_formats[form], write_out, NULL, &err), &err);
}

const command eval_jobs[] = {
    {"eval ppl", "MODEL -f TEXT [options]", "how well a model predicts a text", eval_ppl, NULL},
    {"eval compare", "MODEL REFERENCE -f TEXT [options]", "how far a model is from another one",
     eval_compare, NULL},
    {"eval run", "MODEL --tasks NAMES -d DIR [options]", "how often its answers are right",
     eval_run, NULL},
    {"eval choice", "MODEL --task NAME -f FILE [options]", "the same as eval run", eval_run, NULL},
    {"eval significance", "RESULTS OTHER [-o md|json|csv]",
     "whether one model's results are better than another's", eval_significance, NULL},
    {"eval table", "RESULTS... [-o md|json|csv]", "results of several models side by side",
     eval_table, NULL},
    {"eval paper", "MODEL [-o md|json]", "which properties of the BitNet b1.58 paper it has",
     eval_paper, NULL},
    {0},
};
