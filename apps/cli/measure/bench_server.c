// tern bench --server: a load for servers, by concurrent users or by arrivals, and a report.
#include "apps/load/load.h"
#include "apps/cli/console/cli.h"

#include <stdlib.h>
#include <string.h>

static bool not_cancelled(void *user) {
    (void)user;
    return !was_cancelled();
}

static int print(const server_bench *b, const load_report *r) {
    tern_error err = {0};
    return exit_status(load_write(r, (load_format)b->format, write_out, NULL, &err), &err);
}

static int measure(const server_bench *b, size_t i_load, load_row *row, char error[200]) {
    const load_desc desc = {.url = row->server,
                            .key = b->key,
                            .model = b->model,
                            .n_users = row->n_users,
                            .rate = row->rate,
                            .n_requests = b->n_requests       ? b->n_requests
                                          : row->n_users > 10 ? 4 * row->n_users
                                                              : 40,
                            .n_prompt = b->n_prompt,
                            .n_answer = b->n_answer,
                            .n_shared = b->n_shared,
                            .range_ratio = (double)b->range_ratio,
                            .seed = b->seed + 1000003 * i_load, // other texts: none is cached yet
                            .stall_seconds = 300,
                            .goes_on = not_cancelled};
    load_result result;
    tern_error err = {0};
    int status = EXIT_OK;
    if (load_run(&desc, &result, &err) != TERN_OK)
        status = fail("bench: %s", err.message);
    else if (!load_summarize(&result, &row->summary))
        status = fail("out of memory");
    if (row->summary.error) {
        snprintf(error, 200, "%s", row->summary.error);
        row->summary.error = error; // the result is freed
        fprintf(stderr, "tern: bench: %s: %zu of %zu requests failed, the first with: %s\n",
                row->server, row->summary.n_failed, result.n, error);
    }
    load_free(&result);
    return status;
}

int bench_server(const server_bench *b) {
    size_t n_loads = b->rate > 0 ? 1 : b->users.n, n = b->servers.n * n_loads;
    int status = EXIT_OK;
    cancel_on_signals(NULL);
    if (!load_is_possible()) return fail("bench: this program was built without libcurl");
    load_row *rows = must_alloc(NULL, n, sizeof *rows);
    char(*errors)[200] = must_alloc(NULL, n, sizeof *errors);
    memset(rows, 0, n * sizeof *rows);
    // All servers in turn at each load: other work on the machine then affects all of them.
    for (size_t k = 0; k < n_loads && status == EXIT_OK; k++)
        for (size_t i = 0; i < b->servers.n && status == EXIT_OK; i++) {
            load_row *row = &rows[i * n_loads + k];
            row->server = b->servers.items[i];
            if (b->rate > 0)
                row->rate = (double)b->rate;
            else
                row->n_users = b->users.at[k];
            status = measure(b, k, row, errors[i * n_loads + k]);
        }
    const load_report report = {rows,        n,           b->n_prompt,
                                b->n_answer, b->n_shared, (double)b->range_ratio};
    if (status == EXIT_OK) status = print(b, &report);
    for (size_t i = 0; i < n && status == EXIT_OK; i++)
        if (!rows[i].summary.n_answered)
            status = fail("bench: %s answered nothing", rows[i].server);
    free(rows);
    free(errors);
    return status;
}
