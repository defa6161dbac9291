#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "apps/load/load.h"
#include "base/alloc.h"

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Quantiles are interpolated linearly between two values.
static void spread(double *values, size_t n, load_spread *out) {
    *out = (load_spread){.n = n};
    if (!n) return;
    qsort(values, n, sizeof *values, by_value);
    for (int q = 0; q < LOAD_QUANTILES; q++) {
        double at = (double)q / (LOAD_QUANTILES - 1) * (double)(n - 1), below = floor(at);
        size_t i = (size_t)below, k = i + 1 < n ? i + 1 : i;
        out->at[q] = values[i] + (values[k] - values[i]) * (at - below);
    }
}

static size_t count_gaps(const load_result *r) {
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) n += r->list[i].n_pieces ? r->list[i].n_pieces - 1 : 0;
    return n;
}

static void sum_up(const load_result *r, load_summary *s) {
    size_t n_answer = 0, n_prompt = 0, n_cached = 0;
    for (size_t i = 0; i < r->n; i++) {
        const load_request *q = &r->list[i];
        if (q->error[0]) {
            s->n_failed++;
            if (!s->error) s->error = q->error;
            continue;
        }
        s->n_answered++;
        n_answer += q->n_answer, n_prompt += q->n_prompt, n_cached += q->n_cached;
    }
    s->seconds = r->seconds;
    double seconds = r->seconds > 0 ? r->seconds : 1e-9;
    s->tokens_per_s = (double)n_answer / seconds;
    s->prompt_per_s = (double)n_prompt / seconds;
    s->requests_per_s = (double)s->n_answered / seconds;
    s->cached = n_prompt ? (double)n_cached / (double)n_prompt : 0;
}

bool load_summarize(const load_result *r, load_summary *out) {
    size_t n_gaps = count_gaps(r), n = 0, k = 0;
    double *first = tern_alloc_array(TERN_MEM_MISC, r->n, sizeof *first);
    double *whole = tern_alloc_array(TERN_MEM_MISC, r->n, sizeof *whole);
    double *gaps = tern_alloc_array(TERN_MEM_MISC, n_gaps, sizeof *gaps);
    bool ok = first && whole && gaps;
    *out = (load_summary){0};
    if (ok) sum_up(r, out);
    for (size_t i = 0; i < r->n && ok; i++) {
        const load_request *q = &r->list[i];
        if (q->error[0]) continue;
        first[n] = q->first - q->due; // waiting for a free connection counts, too
        whole[n++] = q->ended - q->due;
        for (size_t p = 1; p < q->n_pieces; p++) gaps[k++] = q->pieces[p] - q->pieces[p - 1];
    }
    if (ok) {
        spread(first, n, &out->first);
        spread(whole, n, &out->whole);
        spread(gaps, k, &out->gap);
    }
    tern_free(first);
    tern_free(whole);
    tern_free(gaps);
    return ok;
}

void load_free(load_result *r) {
    for (size_t i = 0; i < r->n; i++) tern_free(r->list[i].pieces);
    tern_free(r->list);
    *r = (load_result){0};
}
