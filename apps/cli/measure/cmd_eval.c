// tern eval: multiple choice, and the paper's checklist. What reads a text is in eval_text.c.
#include "apps/cli/measure/eval_text.h"
#include "tern_tools.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- Multiple choice ---------------------------------------------------------------------------

typedef struct row { // of the table
    char *task;      // with the file's name, if a task has many
    tern_eval_result result;
} row;

typedef struct suite {
    tern_session *session;
    tern_eval_desc desc;
    const char *folder;
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
    tern_status status = tern_eval_choice(s->session, &s->desc, &result, &err);
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

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}
static int is_jsonl(const struct dirent *e) {
    size_t n = strlen(e->d_name);
    return n > 6 && !strcmp(e->d_name + n - 6, ".jsonl");
}

// Adds the mean over the rows from `first` on: each metric's mean over the files, as the harness
// does for BLiMP, or over their items, as for MMLU. Files are independent, so their squared errors
// add up.
static void add_mean(suite *s, const char *task, size_t first) {
    size_t n_items = 0;
    bool by_items = !strcmp(task, "mmlu");
    for (size_t i = first; i < s->n_rows; i++) n_items += s->rows[i].result.n_items;
    tern_eval_result mean = {.n_metrics = s->rows[first].result.n_metrics};
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
            mean.metrics[m].name = r->metrics[m].name;
            mean.metrics[m].value += share * r->metrics[m].value;
            mean.metrics[m].error += error * error;
        }
    }
    for (int m = 0; m < mean.n_metrics; m++) mean.metrics[m].error = sqrt(mean.metrics[m].error);
    add_row(s, task, &mean);
}

// A task's file, or a folder of them.
static int run_path(suite *s, const char *task, const char *path) {
    struct stat st;
    struct dirent **entries = NULL;
    size_t first = s->n_rows;
    int status = EXIT_OK;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) return run_file(s, task, path, task);
    int n = scandir(path, &entries, is_jsonl, by_name);
    for (int i = 0; i < n; i++) {
        text file = {0}, name = {0};
        const char *entry = entries[i]->d_name;
        const char *file_parts[] = {path, "/", entry}, *name_parts[] = {task, "/"};
        for (int k = 0; k < 3; k++) text_puts(&file, file_parts[k]);
        for (int k = 0; k < 2; k++) text_puts(&name, name_parts[k]);
        text_append(&name, entry, strlen(entry) - 6); // without ".jsonl"
        if (status == EXIT_OK) status = run_file(s, task, file.ptr, name.ptr);
        free(file.ptr);
        free(name.ptr);
        free(entries[i]);
    }
    free(entries);
    if (n <= 0) return fail("%s: there are no .jsonl files in it", path);
    if (status == EXIT_OK) add_mean(s, task, first);
    return status;
}

static int run_all(suite *s) {
    int status = EXIT_OK;
    for (size_t i = 0; tern_eval_task_name(i) && status == EXIT_OK; i++) {
        text path = {0};
        const char *task = tern_eval_task_name(i);
        if (tern_eval_find_file(task, s->folder, text_collect, &path))
            status = run_path(s, task, path.ptr);
        else
            fprintf(stderr, "%s: no file for it in %s\n", task, s->folder);
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
            printf("| %s | %d | %zu | %s ", s->rows[i].task, s->desc.n_shots,
                   s->rows[i].result.n_items, metric->name);
            print_value(metric->value);
            print_value(metric->error);
            printf("|\n");
        }
}

static void print_rows_json(const suite *s, const char *model) {
    printf("{\"model\":");
    put_json(stdout, model, strlen(model));
    printf(",\"n_shots\":%d,\"tasks\":[", s->desc.n_shots);
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

static int check_choice(const command *self, suite *s) {
    bool all = s->desc.task && !strcmp(s->desc.task, "all");
    text names = {0};
    int status = EXIT_OK;
    bool known = all || (s->desc.task && tern_eval_task_known(&s->desc.task));
    for (size_t i = 0; tern_eval_task_name(i); i++) {
        text_puts(&names, i ? ", " : "");
        text_puts(&names, tern_eval_task_name(i));
    }
    if (!s->desc.task)
        status = bad_usage("eval choice: no task (usage: tern %s %s)", self->name, self->usage);
    else if (!known)
        status = bad_usage("eval choice: no task '%s': expected all, %s", s->desc.task, names.ptr);
    else if (all ? !s->folder : !s->desc.path && !s->folder)
        status = bad_usage("eval choice: %s is needed", all ? "-d" : "-f or -d");
    else if (all && (s->desc.path || s->desc.n_shots))
        status = bad_usage("eval choice: -f and --shots are for one task");
    else if (s->desc.n_shots && !s->desc.shots_path)
        status = bad_usage("eval choice: --shots needs --shots-file");
    free(names.ptr);
    return status;
}

static int run_choice(suite *s) {
    text path = {0};
    const char *task = s->desc.task;
    if (!strcmp(task, "all")) return run_all(s);
    if (s->desc.path) return run_path(s, task, s->desc.path);
    if (!tern_eval_find_file(task, s->folder, text_collect, &path))
        return fail("%s: there is no file for %s in it", s->folder, task);
    int status = run_path(s, task, path.ptr);
    free(path.ptr);
    return status;
}

static int eval_choice(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    session_args session_options = {.kv_type = TERN_KV_F32};
    suite s = {0};
    int form = OUTPUT_MD, status, n;
    const option options[] = {
        {0, "task", OPTION_TEXT, &s.desc.task, "NAME", "the task, or all"},
        {'f', "file", OPTION_TEXT, &s.desc.path, "FILE", "its JSONL file, or a folder of them"},
        {'d', "dir", OPTION_TEXT, &s.folder, "DIR", "where the files are, under their usual names"},
        {0, "limit", OPTION_COUNT, &s.desc.n_items, "N", "items of each file at most, 0: all (0)"},
        {0, "shots", OPTION_COUNT, &s.desc.n_shots, "N", "answered examples in front (0)", 0, 1000},
        {0, "shots-file", OPTION_TEXT, &s.desc.shots_path, "FILE", "whose first N they are"},
        {0, "results", OPTION_TEXT, &s.desc.results_path, "FILE",
         "keep each item's scores there, and go on where it ends"},
        OUTPUT_OPTION(form),
        MODEL_OPTIONS(model_options),
        SESSION_OPTIONS(session_options),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    status = check_choice(self, &s);
    if (status != EXIT_OK) return status;
    cancel_on_signals(NULL);
    tern_model *model = open_model(self, &model_options, &status);
    s.session = model ? open_session(model, &session_options) : NULL;
    if (model && !s.session) status = EXIT_FAILED;
    s.desc.on_progress = show_progress;
    if (s.session) status = run_choice(&s);
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

const command eval_jobs[] = {
    {"eval ppl", "MODEL -f TEXT [options]", "how well a model predicts a text", eval_ppl, NULL},
    {"eval compare", "MODEL REFERENCE -f TEXT [options]", "how far a model is from another one",
     eval_compare, NULL},
    {"eval choice", "MODEL --task NAME -f FILE [options]", "how often it prefers right answers",
     eval_choice, NULL},
    {"eval paper", "MODEL [-o md|json]", "which properties of the BitNet b1.58 paper it has",
     eval_paper, NULL},
    {0},
};
