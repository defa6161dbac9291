// A server's metrics in Prometheus's format. Only the loop's thread uses them.
#ifndef TERN_SERVE_METRICS_H
#define TERN_SERVE_METRICS_H

#include <stdint.h>
#include "apps/serve/cache/prefix_cache.h"
#include "apps/serve/engine/job.h"
#include "base/strbuf.h"

#define METRICS_BOUNDS 14
typedef struct histogram {
    uint64_t counts[METRICS_BOUNDS + 1]; // at most each bound, and above; not added up
    uint64_t n;
    double sum;
} histogram;

#define METRICS_ROUTES 64
typedef struct route_count {
    const char *route; // static
    int status;
    uint64_t n;
} route_count;

typedef struct model_counts { // of a model, open or not
    uint64_t n_prompt_tokens, n_cached_tokens, n_generated_tokens;
    uint64_t n_steps, n_step_jobs; // until it was last closed
    uint64_t n_loads;
    prefix_cache_counts prefixes; // until it was last closed, too
    double prompt_seconds, generate_seconds, load_seconds;
} model_counts;

typedef struct metrics {
    uint64_t n_by_reason[8]; // answers, by tern_stop_reason; the last: failed
    histogram first_token, between_tokens, queued, request;
    route_count requests[METRICS_ROUTES];
    size_t n_requests;
} metrics;

void metrics_add(histogram *h, double seconds);
// A job that is over. Tokens of its events have been counted in *c.
void metrics_count_job(metrics *m, model_counts *c, const job *j);
void metrics_count_request(metrics *m, const char *route, int status);
typedef struct metrics_model { // current values, besides counters
    const char *name;
    const model_counts *counts;
    size_t n_running, n_waiting;
    uint64_t n_steps, n_step_jobs, bytes;
    prefix_cache_view prefixes;
    bool is_open;
} metrics_model;
// The text format 0.0.4: tern_..., and llama-server's names for dashboards that have them.
void metrics_put(const metrics *m, const metrics_model *models, size_t n, size_t n_connections,
                 tern_strbuf *out);
// Memory and time of the process (process.c). born: when it began, seconds since 1970.
void metrics_put_process(tern_strbuf *out, int64_t born);

#endif
