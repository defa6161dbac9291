// How often the files of a report answer questions rightly: perplexity forgives a model that has
// lost what it knew. Every item's scores are in work/results, a file for each model, so that
// differences have errors item by item.
#include <string.h>
#include "base/alloc.h"
#include "train/ternarize/ternarize.h"

// ---- The list ----------------------------------------------------------------------------------

typedef tern_status (*task_fn)(const tern_ternarizing *j, const char *task, const char *path,
                               void *user);

static bool take_path(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

static tern_status find_task(const tern_ternarizing *j, const char **task, tern_strbuf *path) {
    const char *folder = j->desc->tasks_folder;
    if (!tern_eval_task_known(task))
        return tern_fail(j->err, TERN_ERR_ARGUMENT, "ternarize: there is no task '%s'", *task);
    if (!tern_eval_find_file(*task, folder, take_path, path))
        return tern_fail(j->err, TERN_ERR_IO, "%s: there is no file for %s in it", folder, *task);
    return path->failed ? tern_fail_memory(j->err, path->len) : TERN_OK;
}

// A task of many files, as MMLU's subjects.
static tern_status each_file(const tern_ternarizing *j, const char *task, const char *folder,
                             task_fn on_file, void *user) {
    tern_names names = {0};
    TERN_TRY(tern_folder_list(&names, folder, "", ".jsonl", j->err));
    tern_status status =
        names.n ? TERN_OK
                : tern_fail(j->err, TERN_ERR_IO, "%s: there are no .jsonl files in it", folder);
    for (size_t i = 0; status == TERN_OK && i < names.n; i++) {
        char *path = tern_path_join(folder, names.list[i]);
        status = path ? on_file(j, task, path, user) : tern_fail_memory(j->err, strlen(folder));
        tern_free(path);
    }
    tern_names_free(&names);
    return status;
}

static tern_status one_task(const tern_ternarizing *j, const char *name, task_fn on_file,
                            void *user) {
    const char *task = name;
    tern_strbuf path = {0};
    tern_status status = find_task(j, &task, &path);
    if (status == TERN_OK)
        status = tern_path_look(path.ptr) == TERN_PATH_FOLDER
                     ? each_file(j, task, path.ptr, on_file, user)
                     : on_file(j, task, path.ptr, user);
    tern_strbuf_free(&path);
    return status;
}

static tern_status each_task(const tern_ternarizing *j, task_fn on_file, void *user) {
    const char *rest = j->desc->tasks;
    tern_status status = TERN_OK;
    while (status == TERN_OK && rest && *rest) {
        tern_strbuf name = {0};
        const size_t n = strcspn(rest, ",");
        tern_strbuf_append(&name, rest, n);
        status = name.failed ? tern_fail_memory(j->err, n)
                             : one_task(j, tern_strbuf_text(&name), on_file, user);
        tern_strbuf_free(&name);
        rest += n + (rest[n] == ',');
    }
    return status;
}

static tern_status pass_over(const tern_ternarizing *j, const char *task, const char *path,
                             void *user) {
    (void)j, (void)task, (void)path, (void)user;
    return TERN_OK;
}

tern_status tern_ternarize_find_tasks(const tern_ternarizing *j) {
    const tern_ternarize_desc *d = j->desc;
    if (!d->tasks && !d->tasks_folder && !d->n_task_items) return TERN_OK;
    if (!d->tasks || !*d->tasks || !d->tasks_folder || d->n_task_items < 0)
        return tern_fail(
            j->err, TERN_ERR_ARGUMENT,
            "ternarize: tasks, tasks_folder and n_task_items %d: expected names, where "
            "their files are, and a count",
            (int)d->n_task_items);
    return each_task(j, pass_over, NULL);
}

// ---- Asking ------------------------------------------------------------------------------------

// A file of results that may be another model's begins anew: its header does not tell.
static char *results_of(const tern_ternarizing *j, const char *key) {
    tern_strbuf name = {0};
    tern_strbuf_printf(&name, "%s.jsonl", key);
    char *path = name.failed ? NULL : tern_path_join(j->results, name.ptr);
    tern_strbuf_free(&name);
    return path;
}

typedef struct asking {
    tern_session *session;
    const char *results;
} asking;

static tern_status ask_file(const tern_ternarizing *j, const char *task, const char *path,
                            void *user) {
    const asking *a = user;
    tern_eval_result result;
    const tern_eval_desc d = {.task = task,
                              .path = path,
                              .n_items = j->desc->n_task_items,
                              .results_path = a->results,
                              .on_progress = j->desc->on_progress,
                              .user = j->desc->user};
    return tern_eval_run(a->session, &d, &result, j->err);
}

tern_status tern_ternarize_ask(const tern_ternarizing *j, tern_session *session, const char *key) {
    if (!j->desc->tasks) return TERN_OK;
    TERN_TRY(tern_folder_make(j->results, j->err));
    char *path = results_of(j, key);
    if (!path) return tern_fail_memory(j->err, strlen(j->results));
    tern_file_remove(path);
    asking a = {session, path};
    const tern_status status = each_task(j, ask_file, &a);
    tern_free(path);
    return status;
}

// ---- Saying ------------------------------------------------------------------------------------

// A table's own header has the paths of its files.
static void put_rows(tern_strbuf *out, const tern_strbuf *table) {
    const char *s = tern_strbuf_text(table), *rows = strchr(s, '\n');
    if (rows) tern_strbuf_append(out, rows + 1, table->len - (size_t)(rows + 1 - s));
}

static tern_status put_table(const tern_ternarizing *j, const char *const *paths,
                             const tern_answered *of, tern_strbuf *markdown, tern_strbuf *json) {
    tern_strbuf table = {0};
    tern_status status =
        tern_eval_table(paths, of->n, TERN_TABLE_MARKDOWN, take_path, &table, j->err);
    tern_strbuf_puts(markdown, "\n## Tasks\n\n| task | metric | items |");
    for (size_t i = 0; i < of->n; i++) tern_strbuf_printf(markdown, " %s |", of->names[i]);
    tern_strbuf_putc(markdown, '\n');
    put_rows(markdown, &table);
    markdown->failed |= table.failed;
    tern_strbuf_free(&table);
    if (status == TERN_OK)
        status = tern_eval_table(paths, of->n, TERN_TABLE_JSON, take_path, json, j->err);
    return status;
}

static tern_status put_versus(const tern_ternarizing *j, const char *const *paths,
                              tern_strbuf *markdown, tern_strbuf *json) {
    tern_strbuf table = {0};
    tern_status status =
        tern_eval_significance(paths[0], paths[1], TERN_TABLE_MARKDOWN, take_path, &table, j->err);
    tern_strbuf_puts(markdown, "\nThe float model and the ternary one, item by item:\n\n"
                               "| task | metric | items | float | ternary | difference | greater "
                               "in the first : other | p | test |\n");
    put_rows(markdown, &table);
    markdown->failed |= table.failed;
    tern_strbuf_free(&table);
    tern_strbuf_puts(json, ",\"tasks_lost\":");
    if (status == TERN_OK)
        status =
            tern_eval_significance(paths[0], paths[1], TERN_TABLE_JSON, take_path, json, j->err);
    return status;
}

tern_status tern_ternarize_put_tasks(const tern_ternarizing *j, const tern_answered *of,
                                     tern_strbuf *markdown, tern_strbuf *json) {
    if (!j->desc->tasks) return TERN_OK;
    char **paths = tern_alloc_array(TERN_MEM_MISC, of->n, sizeof *paths);
    tern_status status = paths ? TERN_OK : tern_fail_memory(j->err, of->n * sizeof *paths);
    for (size_t i = 0; paths && i < of->n; i++) {
        paths[i] = results_of(j, of->keys[i]);
        if (!paths[i]) status = tern_fail_memory(j->err, strlen(j->results));
    }
    tern_strbuf_puts(json, ",\"tasks\":");
    if (status == TERN_OK) status = put_table(j, (const char *const *)paths, of, markdown, json);
    if (status == TERN_OK) status = put_versus(j, (const char *const *)paths, markdown, json);
    for (size_t i = 0; paths && i < of->n; i++) tern_free(paths[i]);
    tern_free(paths);
    return status;
}
