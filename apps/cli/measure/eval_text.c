// tern eval ppl and compare: what is computed over the windows of a text.
#include "apps/cli/measure/eval_text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
#define WINDOW_OPTIONS(convention, desc)                                                           \
    {0, "convention", OPTION_CHOICE, &(convention), "llama.cpp|transformers",                      \
     "how the text is cut into windows"},                                                          \
    {0, "window", OPTION_COUNT, &(desc).window, "N",                                               \
     "tokens of a window (llama.cpp: 512; transformers: the context)", 2, 1 << 24},                \
    {0, "stride", OPTION_COUNT, &(desc).stride, "N",                                               \
     "transformers: tokens from window to window (half a window)", 1, 1 << 24},                    \
    {0, "limit", OPTION_COUNT, &(desc).n_windows, "N", "windows at most, 0: all (0)"}
// clang-format on

static const char *const conventions[] = {"llama.cpp", "transformers"};

// ---- Perplexity --------------------------------------------------------------------------------

// A model that fits a text badly has a perplexity with more digits than fit a table.
void print_value(double x) { printf(x < 1e9 ? "| %.4f " : "| %.6g ", x); }

static void print_perplexity(const tern_perplexity *p, const char *model, const char *file,
                             const char *convention) {
    printf("| %s on %s | |\n|---|---|\n", model, file);
    printf("| perplexity ");
    print_value(p->perplexity);
    printf(p->perplexity < 1e9 ? "± %.4f |\n" : "± %.2g |\n", p->perplexity_error);
    printf("| -ln p for a token | %.5f ± %.5f |\n", p->nll_per_token, p->nll_error);
    printf("| -ln p for a word | %.4f |\n", p->nll_per_word);
    printf("| bits for a byte | %.5f |\n", p->bits_per_byte);
    printf("| scored | %zu of %zu tokens, %zu word%s, %zu byte%s |\n", p->n_scored, p->n_tokens,
           p->scored_words, many(p->scored_words), p->scored_bytes, many(p->scored_bytes));
    printf("| convention | %s: %zu window%s of %d tokens, stride %d |\n", convention, p->n_windows,
           many(p->n_windows), p->window, p->stride);
}

static void print_perplexity_json(const tern_perplexity *p, const char *model, const char *file,
                                  const char *convention) {
    printf("{\"model\":");
    put_json(stdout, model, strlen(model));
    printf(",\"file\":");
    put_json(stdout, file, strlen(file));
    printf(",\"convention\":\"%s\",\"window\":%d,\"stride\":%d,\"n_windows\":%zu,\"n_tokens\":%zu,"
           "\"n_scored\":%zu,\"scored_words\":%zu,\"scored_bytes\":%zu",
           convention, p->window, p->stride, p->n_windows, p->n_tokens, p->n_scored,
           p->scored_words, p->scored_bytes);
    put_number(stdout, "perplexity", "%.10g", p->perplexity);
    put_number(stdout, "perplexity_stderr", "%.6g", p->perplexity_error);
    put_number(stdout, "nll_per_token", "%.10g", p->nll_per_token);
    put_number(stdout, "nll_stderr", "%.6g", p->nll_error);
    put_number(stdout, "nll_per_word", "%.10g", p->nll_per_word);
    put_number(stdout, "bits_per_byte", "%.10g", p->bits_per_byte);
    printf("}\n");
}

int eval_ppl(const command *self, int argc, char **argv) {
    model_args model_options = {0};
    session_args session_options = {.kv_type = TERN_KV_F32};
    const char *path = NULL;
    int convention = 0, form = OUTPUT_MD, status, n;
    tern_perplexity_desc desc = {0};
    tern_perplexity result = {0};
    tern_error err = {0};
    text words = {0};
    const option options[] = {
        {'f', "file", OPTION_TEXT, &path, "FILE", "the text; -: standard input", .position = 2},
        WINDOW_OPTIONS(convention, desc),
        OUTPUT_OPTION(form),
        MODEL_OPTIONS(model_options),
        SESSION_OPTIONS(session_options),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    if (!path) return bad_usage("eval ppl: no text (usage: tern %s %s)", self->name, self->usage);
    desc.convention = (tern_perplexity_convention)convention;
    if (!text_read(&words, path)) return EXIT_FAILED;
    tern_model *model = open_model(self, &model_options, &status);
    tern_session *session = model ? open_session(model, &session_options) : NULL;
    if (model && !session) status = EXIT_FAILED;
    if (session) {
        desc.on_progress = show_progress;
        tern_status done = tern_eval_perplexity(session, words.ptr, words.n, &desc, &result, &err);
        status = done == TERN_OK ? EXIT_OK : fail("%s: %s", path, err.message);
    }
    if (session && status == EXIT_OK)
        (form == OUTPUT_JSON ? print_perplexity_json : print_perplexity)(
            &result, model_options.path, path, conventions[convention]);
    tern_session_close(session);
    tern_model_close(model);
    free(words.ptr);
    return status;
}

// ---- Two models --------------------------------------------------------------------------------

// A row of the table, a member of JSON's objects.
static const struct quantile {
    const char *title, *name;
    size_t at; // in tern_distribution
} quantiles[] = {
    {"least", "min", offsetof(tern_distribution, min)},
    {"1%", "p1", offsetof(tern_distribution, p1)},
    {"5%", "p5", offsetof(tern_distribution, p5)},
    {"10%", "p10", offsetof(tern_distribution, p10)},
    {"median", "median", offsetof(tern_distribution, median)},
    {"90%", "p90", offsetof(tern_distribution, p90)},
    {"95%", "p95", offsetof(tern_distribution, p95)},
    {"99%", "p99", offsetof(tern_distribution, p99)},
    {"99.9%", "p999", offsetof(tern_distribution, p999)},
    {"greatest", "max", offsetof(tern_distribution, max)},
};
enum { N_QUANTILES = sizeof quantiles / sizeof *quantiles };

static double quantile_of(const tern_distribution *d, size_t i) {
    return *(const double *)((const char *)d + quantiles[i].at);
}

typedef struct compared {
    tern_eval_comparison result;
    const char *model, *reference, *file, *convention;
} compared;

static void print_comparison(const compared *c) {
    const tern_eval_comparison *r = &c->result;
    const tern_perplexity *p = &r->model;
    printf("| on %s | %s | %s (the reference) |\n|---|---|---|\n| perplexity ", c->file, c->model,
           c->reference);
    print_value(p->perplexity);
    print_value(r->reference.perplexity);
    printf("|\n| -ln p for a token | %.5f | %.5f |\n\n", p->nll_per_token,
           r->reference.nll_per_token);
    printf("| | model against reference |\n|---|---|\n");
    printf("| ln of the perplexities' ratio | %.6f ± %.6f |\n", r->log_ratio, r->log_ratio_error);
    printf("| correlation of ln p | %.4f%% |\n", 100 * r->correlation);
    printf("| same likeliest token | %.3f%% ± %.3f%% |\n", 100 * r->same_top,
           100 * r->same_top_error);
    printf("| scored | %zu of %zu tokens |\n", p->n_scored, p->n_tokens);
    printf("| convention | %s: %zu window%s of %d tokens, stride %d |\n\n", c->convention,
           p->n_windows, many(p->n_windows), p->window, p->stride);
    printf("| of the scored tokens | KL divergence, nats | change of p, %% |\n|---|---|---|\n");
    printf("| mean | %.6f ± %.6f | %.4f ± %.4f |\n", r->kl.mean, r->kl.error,
           100 * r->p_change.mean, 100 * r->p_change.error);
    printf("| root mean square | %.6f | %.4f |\n", r->kl.rms, 100 * r->p_change.rms);
    for (size_t i = 0; i < N_QUANTILES; i++)
        printf("| %s | %.6f | %.4f |\n", quantiles[i].title, quantile_of(&r->kl, i),
               100 * quantile_of(&r->p_change, i));
}

static void put_distribution(const char *name, const tern_distribution *d) {
    printf(",\"%s\":{\"mean\":%.10g", name, d->mean);
    put_number(stdout, "stderr", "%.6g", d->error);
    put_number(stdout, "rms", "%.10g", d->rms);
    for (size_t i = 0; i < N_QUANTILES; i++)
        put_number(stdout, quantiles[i].name, "%.10g", quantile_of(d, i));
    printf("}");
}

static void print_comparison_json(const compared *c) {
    const tern_eval_comparison *r = &c->result;
    const tern_perplexity *p = &r->model;
    const char *const names[] = {"model", c->model, "reference", c->reference, "file", c->file};
    for (size_t i = 0; i < sizeof names / sizeof *names; i += 2) {
        printf("%c\"%s\":", i ? ',' : '{', names[i]);
        put_json(stdout, names[i + 1], strlen(names[i + 1]));
    }
    printf(",\"convention\":\"%s\",\"window\":%d,\"stride\":%d,\"n_windows\":%zu,\"n_tokens\":%zu,"
           "\"n_scored\":%zu",
           c->convention, p->window, p->stride, p->n_windows, p->n_tokens, p->n_scored);
    put_number(stdout, "perplexity", "%.10g", p->perplexity);
    put_number(stdout, "reference_perplexity", "%.10g", r->reference.perplexity);
    put_number(stdout, "log_ratio", "%.10g", r->log_ratio);
    put_number(stdout, "log_ratio_stderr", "%.6g", r->log_ratio_error);
    put_number(stdout, "correlation", "%.10g", r->correlation);
    put_number(stdout, "same_top", "%.10g", r->same_top);
    put_number(stdout, "same_top_stderr", "%.6g", r->same_top_error);
    put_distribution("kl", &r->kl);
    put_distribution("p_change", &r->p_change);
    printf("}\n");
}

// The reference is opened as the model is, but without adapters, whose effect is asked for.
static int run_comparison(const command *self, model_args *model, model_args *reference,
                          const session_args *session, const tern_perplexity_desc *desc,
                          compared *c) {
    int status;
    text words = {0};
    tern_error err = {0};
    tern_session *sessions[2] = {0};
    tern_model *models[2] = {0};
    if (!text_read(&words, c->file)) return EXIT_FAILED;
    models[0] = open_model(self, model, &status);
    if (models[0]) models[1] = open_model(self, reference, &status);
    for (int i = 0; i < 2 && models[1]; i++) sessions[i] = open_session(models[i], session);
    if (models[1] && !(sessions[0] && sessions[1])) status = EXIT_FAILED;
    if (sessions[0] && sessions[1]) {
        const tern_bytes bytes = {words.ptr ? words.ptr : "", words.n};
        tern_status done =
            tern_eval_compare(sessions[0], sessions[1], bytes, desc, &c->result, &err);
        if (done != TERN_OK) end_progress();
        status = exit_status(done, &err);
    }
    c->model = model->path;
    c->reference = reference->path;
    for (int i = 0; i < 2; i++) {
        tern_session_close(sessions[i]);
        tern_model_close(models[i]);
    }
    free(words.ptr);
    return status;
}

int eval_compare(const command *self, int argc, char **argv) {
    model_args model = {0}, reference;
    session_args session = {.kv_type = TERN_KV_F32};
    compared c = {0};
    const char *against = NULL;
    int convention = 0, form = OUTPUT_MD, status, n;
    tern_perplexity_desc desc = {.on_progress = show_progress};
    const option options[] = {
        {0, "reference", OPTION_TEXT, &against, "MODEL", "the model that it is compared with",
         .position = 2},
        {'f', "file", OPTION_TEXT, &c.file, "FILE", "the text; -: standard input", .position = 3},
        WINDOW_OPTIONS(convention, desc),
        OUTPUT_OPTION(form),
        MODEL_OPTIONS(model),
        SESSION_OPTIONS(session),
        OPTIONS_END,
    };
    if (!parse_options(self, options, argc, argv, NULL, 0, &n, &status)) return status;
    const char *missing = !model.path ? "model" : !against ? "reference" : !c.file ? "text" : NULL;
    if (missing)
        return bad_usage("eval compare: no %s (usage: tern %s %s)", missing, self->name,
                         self->usage);
    cancel_on_signals(NULL);
    desc.convention = (tern_perplexity_convention)convention;
    c.convention = conventions[convention];
    reference = model;
    reference.path = against;
    reference.loras = (string_list){0};
    status = run_comparison(self, &model, &reference, &session, &desc, &c);
    if (status == EXIT_OK) (form == OUTPUT_JSON ? print_comparison_json : print_comparison)(&c);
    return status;
}
