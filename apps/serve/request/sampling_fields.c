// Sampling fields of requests, in all spellings; those of speculation, which change no answer; and
// unsupported fields that would change one, which are refused by name unless their value changes
// nothing.
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "apps/serve/request/generation_request.h"
#include "base/alloc.h"

// Any whole number is a seed. For the library 0 means a random one.
void generation_read_seed(request *req, const fields *f, const char *name) {
    const tern_json *value = field_any(f, name);
    if (!value) return;
    uint64_t seed;
    bool is_negative;
    if (!tern_json_whole(value, &seed, &is_negative)) {
        field_fail(f, name, "a whole number of 64 bits");
        return;
    }
    req->generation->sampling.seed = seed ? seed : 0x9E3779B97F4A7C15u;
}

// ---- Numbers -----------------------------------------------------------------------------------

static void read_number(const fields *f, const char *name, float *to, double min, double max) {
    *to = (float)field_number(f, name, (double)*to, min, max);
}

static void read_whole(const fields *f, const char *name, int32_t *to, int64_t min) {
    *to = (int32_t)field_int(f, name, *to, min, INT32_MAX);
}

// Either name: OpenAI's and llama.cpp's, or vLLM's and Hugging Face's. vLLM's applies to the whole
// text.
static void read_penalties(const fields *f, tern_sampling *s) {
    const bool is_whole = field_any(f, "repetition_penalty") != NULL;
    read_number(f, "repeat_penalty", &s->repeat_penalty, 0, 100);
    read_number(f, "repetition_penalty", &s->repeat_penalty, 0, 100);
    read_number(f, "frequency_penalty", &s->frequency_penalty, -2, 2);
    read_number(f, "presence_penalty", &s->presence_penalty, -2, 2);
    int64_t window = field_int(f, "repeat_last_n", is_whole ? -1 : 64, -1, INT32_MAX);
    if (window == 0) s->repeat_penalty = 1, s->frequency_penalty = s->presence_penalty = 0;
    s->penalty_window = window > 0 ? (int32_t)window : window < 0 ? INT32_MAX : 0;
}

static void read_dry(const fields *f, tern_sampling *s) {
    read_number(f, "dry_multiplier", &s->dry_multiplier, 0, 1e6);
    read_number(f, "dry_base", &s->dry_base, 0, 1e6);
    read_whole(f, "dry_allowed_length", &s->dry_allowed_length, 0);
    read_whole(f, "dry_penalty_last_n", &s->dry_penalty_last_n, -1);
    if (s->dry_base >= 0 && s->dry_base < 1)
        s->dry_multiplier = 0; // llama.cpp's other way to turn it off
}

static void read_others(const fields *f, tern_sampling *s) {
    const double sigma = field_number(f, "top_n_sigma", 0, -1e6, 1e6);
    s->top_n_sigma = sigma > 0 ? (float)sigma : 0;
    s->typical_p = (float)field_number(f, "typical_p", 1, 0, 1);
    if (s->typical_p == 0) s->typical_p = FLT_MIN; // the most typical one alone
    read_number(f, "xtc_probability", &s->xtc_probability, 0, 1);
    read_number(f, "xtc_threshold", &s->xtc_threshold, 0, 1);
    read_number(f, "dynatemp_range", &s->dynatemp_range, 0, 100);
    read_number(f, "dynatemp_exponent", &s->dynatemp_exponent, 0, 100);
    s->mirostat = (int32_t)field_int(f, "mirostat", 0, 0, 2);
    read_number(f, "mirostat_tau", &s->mirostat_tau, 0, 1000);
    read_number(f, "mirostat_eta", &s->mirostat_eta, 0, 1000);
}

// ---- Their order -------------------------------------------------------------------------------

static char letter_of(tern_str name) {
    static const struct {
        const char *name;
        char letter;
    } names[] = {
        {"penalties", 'e'}, {"dry", 'd'},       {"top_n_sigma", 's'}, {"top-n-sigma", 's'},
        {"top_k", 'k'},     {"top-k", 'k'},     {"typ_p", 'y'},       {"typ-p", 'y'},
        {"typical_p", 'y'}, {"typical-p", 'y'}, {"typical", 'y'},     {"typ", 'y'},
        {"top_p", 'p'},     {"top-p", 'p'},     {"nucleus", 'p'},     {"min_p", 'm'},
        {"min-p", 'm'},     {"xtc", 'x'},       {"temperature", 't'}, {"temp", 't'},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_str_is(name, names[i].name)) return names[i].letter;
    return 0;
}

// llama-server's "samplers": a list of names, or a text of letters.
static void read_samplers(const fields *f, tern_sampling *s) {
    const tern_json *value = field_any(f, "samplers");
    const tern_str letters = tern_json_str(value);
    size_t n = 0;
    bool ok = !value || letters.ptr || tern_json_is(value, TERN_JSON_ARRAY);
    if (!value) return;
    for (const tern_json *item = letters.ptr ? NULL : tern_json_first(f->doc, value); item && ok;
         item = tern_json_next(f->doc, value, item)) {
        const tern_str name = tern_json_str(item);
        const char letter = letter_of(name);
        if (tern_str_is(name, "infill")) continue; // editors send it; nothing takes its place
        ok = letter && n + 1 < sizeof s->samplers;
        if (ok) s->samplers[n++] = letter;
    }
    for (size_t i = 0; i < letters.len && ok; i++) {
        ok = letters.ptr[i] && strchr(TERN_SAMPLERS, letters.ptr[i]) && n + 1 < sizeof s->samplers;
        if (ok) s->samplers[n++] = letters.ptr[i];
    }
    if (n == 0) s->samplers[n++] = '-';
    s->samplers[n] = 0;
    if (!ok)
        field_fail(f, "samplers",
                   "up to 15 of penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc and "
                   "temperature, or letters of " TERN_SAMPLERS);
}

// ---- Lists -------------------------------------------------------------------------------------

static void read_ids(request *req, const fields *f, const char *name, int32_t **ids, size_t *n) {
    const tern_json *list = field_array(f, name);
    const int32_t n_vocab = req->model->info.n_vocab;
    if (!list || f->error->status || list->n == 0) return;
    *ids = tern_alloc_array(TERN_MEM_SESSION, list->n, sizeof **ids);
    if (!*ids) {
        api_fail_memory(f->error);
        return;
    }
    for (const tern_json *item = tern_json_first(f->doc, list); item;
         item = tern_json_next(f->doc, list, item)) {
        const int64_t id = tern_json_int(item, -1);
        if (id < 0 || id >= n_vocab || *n >= (size_t)n_vocab) {
            char wanted[80];
            snprintf(wanted, sizeof wanted, "a list of tokens from 0 to %d, each once",
                     (int)n_vocab - 1);
            field_fail(f, name, wanted);
            return;
        }
        (*ids)[(*n)++] = (int32_t)id;
    }
}

static void read_texts(const fields *f, const char *name, char ***texts, size_t *n, size_t n_max,
                       size_t bytes_max) {
    const tern_json *list = field_array(f, name);
    if (!list || f->error->status) return;
    *texts = tern_alloc_array(TERN_MEM_SESSION, list->n, sizeof **texts);
    bool ok = *texts && list->n <= n_max;
    for (const tern_json *item = ok ? tern_json_first(f->doc, list) : NULL; item && ok;
         item = tern_json_next(f->doc, list, item)) {
        const tern_str s = tern_json_str(item);
        ok = s.len > 0 && s.len <= bytes_max && !memchr(s.ptr, 0, s.len);
        if (ok) ok = ((*texts)[*n] = tern_strndup(TERN_MEM_SESSION, s.ptr, s.len)) != NULL;
        if (ok) ++*n;
    }
    char wanted[80];
    snprintf(wanted, sizeof wanted, "up to %zu strings of 1 to %zu bytes", n_max, bytes_max);
    if (!ok) field_fail(f, name, wanted);
}

// ---- Speculation -------------------------------------------------------------------------------

// llama-server's names of drafters, and which of the command line's does as they do.
static const struct {
    const char *type;
    int drafter; // a tern_drafter; below 0: none
} draft_types[] = {
    {"none", -1},
    {"draft", TERN_DRAFTER_MODEL},
    {"ngram-simple", TERN_DRAFTER_LOOKUP},
    {"ngram-map-k", TERN_DRAFTER_LOOKUP},
    {"ngram-map-k4v", TERN_DRAFTER_LOOKUP},
    {"ngram-mod", TERN_DRAFTER_LOOKUP},
    {"ngram-cache", TERN_DRAFTER_CHAINS},
};

static void read_draft_type(const fields *f, tern_draft_limits *d) {
    static const char name[] = "speculative.type";
    const tern_str type = field_text(f, name);
    if (!type.ptr) return;
    for (size_t i = 0; i < sizeof draft_types / sizeof *draft_types; i++) {
        if (!tern_str_is(type, draft_types[i].type)) continue;
        d->none = draft_types[i].drafter < 0;
        for (int k = 0; k < TERN_DRAFTER_COUNT; k++) d->without[k] = k != draft_types[i].drafter;
        return;
    }
    field_fail(f, name,
               "none, draft, ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod or ngram-cache");
}

// llama-server's fields, and the command line's options: what the server does not draft with,
// nobody can ask for.
static void read_drafts(const fields *f, tern_draft_limits *d) {
    read_draft_type(f, d);
    if (!field_bool(f, "enable_chains", true)) d->without[TERN_DRAFTER_CHAINS] = true;
    if (!field_bool(f, "lookup", true)) d->without[TERN_DRAFTER_LOOKUP] = true;
    if (!field_bool(f, "draft_model", true)) d->without[TERN_DRAFTER_MODEL] = true;
    read_whole(f, "speculative.n_max", &d->most, 0);
    read_whole(f, "speculative.n_min", &d->least, 0);
    read_number(f, "speculative.p_min", &d->chance, 0, 1);
    if (field_any(f, "speculative.n_max") && d->most == 0) d->none = true;
}

// ---- Adapters ----------------------------------------------------------------------------------

#define LORA_SCALE_MAX 1e6

static bool is_empty(const tern_json *list) {
    return tern_json_is(list, TERN_JSON_ARRAY) && list->n == 0;
}

// One of llama-server's list: {"id", "scale"}.
static bool read_adapter(const fields *f, const tern_json *item, size_t n, bool *is_given,
                         float *scales) {
    const int64_t id = tern_json_int(tern_json_get(f->doc, item, "id"), -1);
    const tern_json *scale = tern_json_get(f->doc, item, "scale");
    const double x = tern_json_number(scale, 0);
    if (!tern_json_is(item, TERN_JSON_OBJECT) || id < 0 || (uint64_t)id >= n || is_given[id] ||
        !tern_json_is(scale, TERN_JSON_NUMBER) || !(x >= -LORA_SCALE_MAX && x <= LORA_SCALE_MAX))
        return false;
    is_given[id] = true;
    scales[id] = x != 0 ? (float)x : 0; // not -0, which would be another key of the prefix cache
    return true;
}

void generation_read_adapters(const request *req, const fields *f, const tern_json *list,
                              float *scales) {
    const size_t n = req->server->registry->adapters.n;
    bool is_given[TERN_LORAS_MAX] = {0}, ok = tern_json_is(list, TERN_JSON_ARRAY) && list->n <= n;
    float read[TERN_LORAS_MAX] = {0};
    for (const tern_json *item = ok ? tern_json_first(f->doc, list) : NULL; item && ok;
         item = tern_json_next(f->doc, list, item))
        ok = read_adapter(f, item, n, is_given, read);
    char wanted[140];
    snprintf(wanted, sizeof wanted,
             n ? "a list of {\"id\": 0 to %zu, each once, \"scale\": -1e6 to 1e6}"
               : "left out: this server has no adapters (tern serve --lora)",
             n - 1);
    if (ok && n)
        memcpy(scales, read, n * sizeof *scales);
    else
        field_fail(f, "lora", wanted);
}

void generation_read_sampling(request *req, const fields *f, double temperature_max) {
    generation *a = req->generation;
    tern_sampling *s = &a->sampling;
    tern_generate_params *p = &a->params;
    // Ollama and llama-server take all below 0 for the likeliest token.
    const double least = temperature_max > 2 ? -FLT_MAX : 0;
    const double t = field_number(f, "temperature", (double)s->temperature, least, temperature_max);
    s->temperature = (float)t;
    if (field_any(f, "temperature") && t < 0) s->temperature = 0;
    read_number(f, "top_p", &s->top_p, 0, 1);
    read_number(f, "min_p", &s->min_p, 0, 1);
    const int64_t k = field_int(f, "top_k", s->top_k, -1, INT32_MAX);
    s->top_k = field_any(f, "top_k") && k < 0 ? 0 : (int32_t)k; // vLLM's way to say all
    read_penalties(f, s);
    read_dry(f, s);
    read_others(f, s);
    read_samplers(f, s);
    p->ignore_end = field_bool(f, "ignore_eos", false);
    p->with_special = !field_bool(f, "skip_special_tokens", true);
    read_whole(f, "min_tokens", &p->min_tokens, 0);
    read_drafts(f, &p->drafts);
    const tern_json *loras = field_any(f, "lora");
    if (loras && !is_empty(loras)) generation_read_adapters(req, f, loras, a->lora_scales);
    read_ids(req, f, "stop_token_ids", &a->stop_ids, &p->n_stop_token_ids);
    read_ids(req, f, "allowed_token_ids", &a->allowed_ids, &p->n_allowed_token_ids);
    read_texts(f, "bad_words", &a->bad_words, &p->n_bad_words, 256, 64); // the engine spells them
    read_texts(f, "dry_sequence_breakers", &a->breakers, &p->n_dry_sequence_breakers,
               TERN_BREAKERS_MAX, 4096);
    const int64_t last = field_int(f, "truncate_prompt_tokens", -1, -1, INT32_MAX);
    if (last == 0) field_fail(f, "truncate_prompt_tokens", "-1, or 1 or more");
    a->n_last = last > 0 ? (size_t)last : 0;
    generation_read_seed(req, f, "seed");
    generation_refuse(req, f);
}

void generation_check_limits(request *req, api_error *e) {
    const tern_generate_params *p = &req->generation->params;
    if (!e->status && p->max_tokens > 0 && p->min_tokens > p->max_tokens)
        api_fail(e, 400, NULL, "min_tokens", "'min_tokens' is %d, more than the %d tokens at most",
                 (int)p->min_tokens, (int)p->max_tokens);
    if (!e->status && req->generation->n_last && req->generation->sees)
        api_fail(e, 400, "unsupported_parameter", "truncate_prompt_tokens",
                 "'truncate_prompt_tokens' would cut images");
}

// ---- What is not there -------------------------------------------------------------------------

// Other servers' fields, and those values of each that change nothing here. Absent, null and empty
// ones change nothing, nor does false, unless true is listed.
static const struct {
    const char *name, *neutral;
} unsupported[] = {
    // llama-server
    {"adaptive_target", "-1"},
    {"min_keep", "0 1"},
    {"n_indent", "0"},
    {"post_sampling_probs", ""},
    {"reasoning_budget_message", ""},
    {"reasoning_budget_tokens", "-1"},
    {"response_fields", ""},
    {"t_max_predict_ms", "-1 0"},
    {"t_max_prompt_ms", "-1 0"},
    {"tfs_z", "1"},
    {"thinking_budget_tokens", "-1"},
    // vLLM, SGLang
    {"beam_width", "1"},
    {"chat_template", ""},
    {"custom_logit_processor", ""},
    {"detokenize", "true"},
    {"documents", ""},
    {"include_stop_str_in_output", ""},
    {"length_penalty", "1"},
    {"logits_processors", ""},
    {"logprob_token_ids", ""},
    {"no_stop_trim", ""},
    {"prompt_embeds", ""},
    {"prompt_logprobs", ""},
    {"ebnf", ""},
    {"repetition_detection", ""},
    {"return_token_ids", ""},
    {"return_tokens_as_token_ids", ""},
    {"stop_regex", ""},
    {"structural_tag", ""},
    {"thinking_token_budget", "-1"},
    {"use_beam_search", ""},
    {"vllm_xargs", ""},
    // Transformers, TGI, text-generation-webui, KoboldCpp
    {"adapter_id", ""},
    {"decoder_input_details", ""},
    {"diversity_penalty", "0"},
    {"early_stopping", ""},
    {"encoder_repetition_penalty", "1"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"guidance_scale", "1"},
    {"negative_prompt", ""},
    {"no_repeat_ngram_size", "0"},
    {"num_beams", "1"},
    {"penalty_alpha", "0"},
    {"penalize_newline", "true"},
    {"smoothing_curve", "1"},
    {"smoothing_factor", "0"},
    {"tfs", "1"},
    {"top_a", "0"},
    {"top_n_tokens", "0"},
    {"watermark", ""},
};

static bool is_neutral(const tern_json *value, const char *neutral) {
    char said[32] = "";
    if (tern_json_is(value, TERN_JSON_BOOL) && value->n) snprintf(said, sizeof said, "true");
    if (tern_json_is(value, TERN_JSON_NUMBER)) snprintf(said, sizeof said, "%g", value->number);
    const size_t n = strlen(said);
    for (const char *at = neutral; n && (at = strstr(at, said)); at += n)
        if ((at == neutral || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
    return false;
}

// Those that llama-server's own routes have. Nothing measures how long a prompt takes there either.
static bool is_llamas(const char *name) {
    static const char *const names[] = {"n_indent", "response_fields", "t_max_predict_ms",
                                        "t_max_prompt_ms"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

void generation_refuse(const request *req, const fields *f) {
    const bool is_llama = req->error_format->is_llamas;
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const tern_json *value = field_any(f, unsupported[i].name);
        if (!value || is_neutral(value, unsupported[i].neutral)) continue;
        if (is_llama && is_llamas(unsupported[i].name)) continue;
        field_refuse(f, unsupported[i].name);
        if (strstr(unsupported[i].neutral, "true") && !tern_json_bool(value, true))
            field_fail(f, unsupported[i].name, "true");
    }
}
