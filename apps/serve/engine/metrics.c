#include "apps/serve/engine/metrics.h"

#include <string.h>

static const double bounds[METRICS_BOUNDS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                              1,     2.5,  5,     10,   30,  60,   120};

void metrics_add(histogram *h, double seconds) {
    size_t i = 0;
    while (i < METRICS_BOUNDS && seconds > bounds[i]) i++;
    h->counts[i]++;
    h->n++;
    h->sum += seconds;
}

void metrics_count_job(metrics *m, model_counts *c, const job *j) {
    const tern_generate_stats *s = &j->stats;
    bool failed = j->error.status != TERN_OK;
    c->n_prompt_tokens += s->n_prompt;
    c->n_cached_tokens += s->n_reused;
    // Those in its events have been counted.
    if (s->n_generated > j->n_sent) c->n_generated_tokens += s->n_generated - j->n_sent;
    c->prompt_seconds += s->prompt_seconds;
    c->generate_seconds += s->generate_seconds;
    m->n_by_reason[failed ? 7 : s->reason]++;
    if (j->started > 0) metrics_add(&m->queued, j->started - j->submitted);
    if (j->first > 0) metrics_add(&m->first_token, j->first - j->submitted);
    if (s->n_generated > 1)
        metrics_add(&m->between_tokens, s->generate_seconds / (double)(s->n_generated - 1));
}

void metrics_count_request(metrics *m, const char *route, int status) {
    size_t i = 0;
    while (i < m->n_requests &&
           (m->requests[i].status != status || strcmp(m->requests[i].route, route) != 0))
        i++;
    if (i == METRICS_ROUTES) return;
    if (i == m->n_requests) m->requests[m->n_requests++] = (route_count){route, status, 0};
    m->requests[i].n++;
}

// ---- Text --------------------------------------------------------------------------------------

static void put_type(tern_strbuf *out, const char *name, const char *type, const char *help) {
    tern_strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

// model, tier: NULL for rows that have none.
static void put_labelled(tern_strbuf *out, const char *name, const char *model, const char *tier,
                         double value) {
    tern_strbuf_puts(out, name);
    if (model) {
        tern_strbuf_puts(out, "{model=");
        tern_strbuf_json(out, model, strlen(model));
        if (tier) tern_strbuf_printf(out, ",tier=\"%s\"", tier);
        tern_strbuf_putc(out, '}');
    }
    tern_strbuf_putc(out, ' ');
    tern_strbuf_json_number(out, value);
    tern_strbuf_putc(out, '\n');
}

static void put_line(tern_strbuf *out, const char *name, const char *model, double value) {
    put_labelled(out, name, model, NULL, value);
}

static void put_histogram(tern_strbuf *out, const char *name, const char *help,
                          const histogram *h) {
    uint64_t sum = 0;
    put_type(out, name, "histogram", help);
    for (size_t i = 0; i < METRICS_BOUNDS; i++) {
        sum += h->counts[i];
        tern_strbuf_printf(out, "%s_bucket{le=\"%g\"} %llu\n", name, bounds[i],
                           (unsigned long long)sum);
    }
    tern_strbuf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum ", name, (unsigned long long)h->n,
                       name);
    tern_strbuf_json_number(out, h->sum);
    tern_strbuf_printf(out, "\n%s_count %llu\n", name, (unsigned long long)h->n);
}

static void put_counts(tern_strbuf *out, const metrics *m) {
    static const char *const reasons[] = {"end",       "length", "stop", "context",
                                          "cancelled", NULL,     NULL,   "error"};
    put_type(out, "tern_requests_total", "counter", "HTTP requests that were answered.");
    for (size_t i = 0; i < m->n_requests; i++)
        tern_strbuf_printf(out, "tern_requests_total{endpoint=\"%s\",status=\"%d\"} %llu\n",
                           m->requests[i].route, m->requests[i].status,
                           (unsigned long long)m->requests[i].n);
    put_type(out, "tern_answers_total", "counter", "Answers that are over, by why.");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i])
            tern_strbuf_printf(out, "tern_answers_total{reason=\"%s\"} %llu\n", reasons[i],
                               (unsigned long long)m->n_by_reason[i]);
}

// ---- Of each model -----------------------------------------------------------------------------

static double rate(uint64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }
static double n_steps(const metrics_model *m) { return (double)(m->counts->n_steps + m->n_steps); }

#define VALUE(name, expression)                                                                    \
    static double name(const metrics_model *m) { return (double)(expression); }
VALUE(is_open, m->is_open)
VALUE(n_loads, m->counts->n_loads)
VALUE(load_seconds, m->counts->load_seconds)
VALUE(weight_bytes, m->is_open ? m->bytes : 0)
VALUE(n_running, m->n_running)
VALUE(n_waiting, m->n_waiting)
VALUE(n_prompt, m->counts->n_prompt_tokens)
VALUE(n_cached, m->counts->n_cached_tokens)
VALUE(n_generated, m->counts->n_generated_tokens)
VALUE(kv_bytes, m->prefixes.bytes[PREFIX_ON_DEVICE])
VALUE(misses, m->counts->prefixes.n_not_found + m->prefixes.counts.n_not_found)
VALUE(evictions, m->counts->prefixes.n_evicted + m->prefixes.counts.n_evicted)
VALUE(prompt_rate,
      rate(m->counts->n_prompt_tokens - m->counts->n_cached_tokens, m->counts->prompt_seconds))
VALUE(answer_rate, rate(m->counts->n_generated_tokens, m->counts->generate_seconds))
VALUE(jobs_a_step, rate(m->counts->n_step_jobs + m->n_step_jobs, n_steps(m)))

static const struct {
    const char *name, *type, *help;
    double (*value)(const metrics_model *m);
} rows[] = {
    {"tern_model_open", "gauge", "Whether the model is open.", is_open},
    {"tern_model_loads_total", "counter", "How often the model was opened.", n_loads},
    {"tern_model_load_seconds_total", "counter", "Time that the openings took.", load_seconds},
    {"tern_model_bytes", "gauge", "Weights of the model while it is open.", weight_bytes},
    {"tern_requests_running", "gauge", "Answers being computed.", n_running},
    {"tern_requests_waiting", "gauge", "Answers waiting for a slot.", n_waiting},
    {"tern_prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.", n_prompt},
    {"tern_prompt_cached_tokens_total", "counter",
     "Tokens of prompts that were not computed again.", n_cached},
    {"tern_generated_tokens_total", "counter", "Tokens of answers.", n_generated},
    {"tern_steps_total", "counter", "Steps of the model.", n_steps},
    {"tern_kv_bytes", "gauge", "Keys and values of texts that are over.", kv_bytes},
    {"tern_cache_misses_total", "counter", "Prompts without a cached prefix.", misses},
    {"tern_cache_evictions_total", "counter", "Texts that were forgotten for want of room.",
     evictions},
    {"llamacpp:prompt_tokens_total", "counter", "As tern_prompt_tokens_total.", n_prompt},
    {"llamacpp:tokens_predicted_total", "counter", "As tern_generated_tokens_total.", n_generated},
    {"llamacpp:prompt_tokens_seconds", "gauge", "Tokens of prompts a second.", prompt_rate},
    {"llamacpp:predicted_tokens_seconds", "gauge", "Tokens of answers a second.", answer_rate},
    {"llamacpp:requests_processing", "gauge", "As tern_requests_running.", n_running},
    {"llamacpp:requests_deferred", "gauge", "As tern_requests_waiting.", n_waiting},
    {"llamacpp:n_decode_total", "counter", "As tern_steps_total.", n_steps},
    {"llamacpp:n_busy_slots_per_decode", "gauge", "Answers in a step, on average.", jobs_a_step},
};

// For the prefix cache, by tier.
#define TIER_VALUE(name, expression)                                                               \
    static double name(const metrics_model *m, prefix_tier t) { return (double)(expression); }
TIER_VALUE(n_prefixes, m->prefixes.n[t])
TIER_VALUE(prefix_bytes, m->prefixes.bytes[t])
TIER_VALUE(n_hits, m->counts->prefixes.n_used[t] + m->prefixes.counts.n_used[t])
TIER_VALUE(n_reused, m->counts->prefixes.n_ids[t] + m->prefixes.counts.n_ids[t])

static const struct {
    const char *name, *type, *help;
    double (*value)(const metrics_model *m, prefix_tier t);
} tier_rows[] = {
    {"tern_cache_texts", "gauge", "Texts that prompts can go on from.", n_prefixes},
    {"tern_cache_bytes", "gauge", "What they take.", prefix_bytes},
    {"tern_cache_hits_total", "counter", "Prompts that went on from one.", n_hits},
    {"tern_cache_reused_tokens_total", "counter", "Tokens of prompts that came from there.",
     n_reused},
};

static void put_tiers(tern_strbuf *out, const metrics_model *models, size_t n) {
    static const char *const tiers[PREFIX_TIERS] = {"device", "memory", "disk"};
    for (size_t k = 0; k < sizeof tier_rows / sizeof *tier_rows; k++) {
        put_type(out, tier_rows[k].name, tier_rows[k].type, tier_rows[k].help);
        for (size_t i = 0; i < n; i++)
            for (int t = 0; t < PREFIX_TIERS; t++)
                put_labelled(out, tier_rows[k].name, models[i].name, tiers[t],
                             tier_rows[k].value(&models[i], (prefix_tier)t));
    }
}

void metrics_put(const metrics *m, const metrics_model *models, size_t n, size_t n_connections,
                 tern_strbuf *out) {
    put_type(out, "tern_connections", "gauge", "Open connections.");
    put_line(out, "tern_connections", NULL, (double)n_connections);
    // A name's lines must stand together.
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        put_type(out, rows[k].name, rows[k].type, rows[k].help);
        for (size_t i = 0; i < n; i++)
            put_line(out, rows[k].name, models[i].name, rows[k].value(&models[i]));
    }
    put_tiers(out, models, n);
    put_counts(out, m);
    put_histogram(out, "tern_time_to_first_token_seconds", "From a request to its first token.",
                  &m->first_token);
    put_histogram(out, "tern_inter_token_seconds", "Mean time between two tokens of an answer.",
                  &m->between_tokens);
    put_histogram(out, "tern_queue_seconds", "From a request to its slot.", &m->queued);
    put_histogram(out, "tern_request_seconds", "From a request to the end of its answer.",
                  &m->request);
}
