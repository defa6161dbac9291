// A load's numbers for people, for programs, and as a page with plots.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "apps/load/load_page.h"
#include "base/json/json_write.h"
#include "base/status.h"

enum { P50 = 50, P90 = 90, P99 = 99, MOST = 100 };

static void name_load(const load_row *row, char out[32]) {
    if (row->n_users)
        snprintf(out, 32, "%d user%s", row->n_users, row->n_users == 1 ? "" : "s");
    else
        snprintf(out, 32, "%g a second", row->rate);
}

static double ms(const load_spread *s, int q) { return s->at[q] * 1e3; }

// ---- Markdown ----------------------------------------------------------------------------------

static void put_md(const load_report *r, tern_strbuf *out) {
    tern_strbuf_printf(out, "Prompts of %d tokens", r->n_prompt);
    if (r->n_shared) tern_strbuf_printf(out, ", %d of them shared by all", r->n_shared);
    tern_strbuf_printf(out, ", answers of %d", r->n_answer);
    if (r->range_ratio > 0)
        tern_strbuf_printf(out, ", both plus or minus up to %.0f%%", 100 * r->range_ratio);
    tern_strbuf_puts(out, "; milliseconds: median, 90%, 99%.\n\n");
    tern_strbuf_puts(out,
                     "| server | load | answered | failed | tokens/s | prompt tokens/s | cached "
                     "| first token | between tokens (and most) | request |\n"
                     "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < r->n; i++) {
        const load_row *row = &r->rows[i];
        const load_summary *s = &row->summary;
        char load[32];
        name_load(row, load);
        tern_strbuf_printf(
            out,
            "| %s | %s | %zu | %zu | %.1f | %.0f | %.0f%% | %.0f %.0f %.0f | %.1f %.1f %.1f (%.0f) "
            "| %.0f %.0f %.0f |\n",
            row->server, load, s->n_answered, s->n_failed, s->tokens_per_s, s->prompt_per_s,
            100 * s->cached, ms(&s->first, P50), ms(&s->first, P90), ms(&s->first, P99),
            ms(&s->gap, P50), ms(&s->gap, P90), ms(&s->gap, P99), ms(&s->gap, MOST),
            ms(&s->whole, P50), ms(&s->whole, P90), ms(&s->whole, P99));
    }
}

// ---- JSON --------------------------------------------------------------------------------------

static void put_spread(tern_json_writer *w, const char *key, const load_spread *s) {
    tern_json_open(w, key, '{');
    tern_json_put_int(w, "n", (int64_t)s->n);
    tern_json_put_number(w, "p50", s->at[P50]);
    tern_json_put_number(w, "p90", s->at[P90]);
    tern_json_put_number(w, "p99", s->at[P99]);
    tern_json_put_number(w, "max", s->at[MOST]);
    tern_json_open(w, "quantiles", '[');
    for (int q = 0; q < LOAD_QUANTILES; q++) tern_json_put_number(w, NULL, s->at[q]);
    tern_json_close(w, ']');
    tern_json_close(w, '}');
}

static void put_row(tern_json_writer *w, const load_row *row) {
    const load_summary *s = &row->summary;
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "server", row->server);
    if (row->n_users)
        tern_json_put_int(w, "users", row->n_users);
    else
        tern_json_put_number(w, "rate", row->rate);
    tern_json_put_int(w, "answered", (int64_t)s->n_answered);
    tern_json_put_int(w, "failed", (int64_t)s->n_failed);
    tern_json_put_text(w, "error", s->error);
    tern_json_put_number(w, "seconds", s->seconds);
    tern_json_put_number(w, "tokens_per_second", s->tokens_per_s);
    tern_json_put_number(w, "prompt_tokens_per_second", s->prompt_per_s);
    tern_json_put_number(w, "requests_per_second", s->requests_per_s);
    tern_json_put_number(w, "cached", s->cached);
    put_spread(w, "first_token_seconds", &s->first);
    put_spread(w, "between_tokens_seconds", &s->gap);
    put_spread(w, "request_seconds", &s->whole);
    tern_json_close(w, '}');
}

static void put_json(const load_report *r, tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_int(&w, "prompt_tokens", r->n_prompt);
    tern_json_put_int(&w, "shared_tokens", r->n_shared);
    tern_json_put_int(&w, "answer_tokens", r->n_answer);
    tern_json_put_number(&w, "range_ratio", r->range_ratio);
    tern_json_open(&w, "loads", '[');
    for (size_t i = 0; i < r->n; i++) put_row(&w, &r->rows[i]);
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    tern_strbuf_putc(out, '\n');
}

tern_status load_write(const load_report *report, load_format format, tern_text_fn on_text,
                       void *user, tern_error *err) {
    static void (*const put[])(const load_report *, tern_strbuf *) = {put_md, put_json,
                                                                      load_put_page};
    tern_strbuf out = {0};
    put[format](report, &out);
    tern_status status = TERN_OK;
    if (out.failed)
        status = tern_fail_memory(err, out.len);
    else if (!on_text(user, out.ptr, out.len))
        status = tern_fail(err, TERN_ERR_CANCELLED, "stopped");
    tern_strbuf_free(&out);
    return status;
}
