// Sessions and generation: a group for each model, stepped by the page.
#include "web.h"

#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "web_text.h"

WEB_EXPORT(web_session_open) int32_t web_session_open(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_session_close) int32_t web_session_close(int32_t id);
WEB_EXPORT(web_session_info) int32_t web_session_info(int32_t id);
WEB_EXPORT(web_generate) int32_t web_generate(int32_t session, const char *json, uint32_t n);
WEB_EXPORT(web_step) int32_t web_step(int32_t model);
WEB_EXPORT(web_cancel) int32_t web_cancel(int32_t session);

// The page's callbacks during a step; the page must not call the module meanwhile.
WEB_IMPORT(web, text) void js_text(int32_t session, const char *text, uint32_t n);
// For a parsed answer, instead of text. kind: tern_part_kind.
WEB_IMPORT(web, part)
void js_part(int32_t session, int32_t kind, uint32_t call, const char *text, uint32_t n);
WEB_IMPORT(web, logprobs) void js_logprobs(int32_t session, const char *json, uint32_t n);
// While the prompt is read. 0: stop.
WEB_IMPORT(web, prompt) int32_t js_prompt(int32_t session, double fraction);
// Before each token is chosen: the scores may be changed in place. As tern_logits_fn returns.
WEB_IMPORT(web, logits)
int32_t js_logits(int32_t session, float *logits, int32_t n_vocab, const int32_t *ids,
                  uint32_t n_ids);
WEB_IMPORT(web, end) void js_end(int32_t session, const char *json, uint32_t n);

static int32_t last_session;

// ---- Sessions ---------------------------------------------------------------------------------

static web_session *find_in(const web_model *m, int32_t id) {
    web_session *s = m->sessions;
    while (s && s->id != id) s = s->next;
    return s;
}

web_session *web_session_find(int32_t id, tern_error *err) {
    for (const web_model *m = web_model_first(); m; m = m->next) {
        web_session *s = find_in(m, id);
        if (s) return s;
    }
    tern_fail(err, TERN_ERR_ARGUMENT, "there is no session %d", id);
    return NULL;
}

// to: [TERN_LORAS_MAX]
static tern_status read_scales(const web_args *args, const tern_json *array, float *to,
                               tern_session_desc *desc, tern_error *err) {
    if (!array) return TERN_OK;
    if (array->n > TERN_LORAS_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "session: more than %d \"lora_scales\"",
                         TERN_LORAS_MAX);
    for (const tern_json *item = tern_json_first(&args->doc, array); item;
         item = tern_json_next(&args->doc, array, item)) {
        if (!tern_json_is(item, TERN_JSON_NUMBER))
            return tern_fail(err, TERN_ERR_ARGUMENT, "session: \"lora_scales\" must be numbers");
        to[desc->n_lora_scales++] = (float)tern_json_number(item, 0);
    }
    desc->lora_scales = to;
    return TERN_OK;
}

int32_t web_session_open(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    web_args args = {0};
    tern_session_desc desc = {0};
    int32_t kv = 0, context = 0;
    const tern_json *scales = NULL;
    float lora_scales[TERN_LORAS_MAX];
    const web_field fields[] = {
        {"context", WEB_INT, &context, 0, INT32_MAX, NULL},
        {"kv", WEB_CHOICE, &kv, 0, 0, "auto f32 f16 q8_0"},
        {"lookup", WEB_BOOL, &desc.speculation.lookup, 0, 0, NULL},
        {"online", WEB_BOOL, &desc.speculation.online, 0, 0, NULL},
        {"max_length", WEB_INT, &desc.speculation.max_length, 0, TERN_DRAFT_MAX, NULL},
        {"threshold", WEB_NUMBER, &desc.speculation.threshold, 0, 1, NULL},
        {"token_cost", WEB_NUMBER, &desc.speculation.token_cost, 0, 1e6, NULL},
        {"always", WEB_BOOL, &desc.speculation.always, 0, 0, NULL},
        {"lora_scales", WEB_ARRAY, &scales, 0, 0, NULL},
    };
    web_model *m = web_model_find(model, &err);
    const bool read = m &&
                      web_args_read(&args, "session", json, n, fields,
                                    sizeof fields / sizeof *fields, &err) == TERN_OK &&
                      read_scales(&args, scales, lora_scales, &desc, &err) == TERN_OK;
    web_args_free(&args);
    if (!read) return web_fail(&err);
    web_gpu_enter(false);
    desc.kv_type = (tern_kv_type)kv;
    desc.n_context = context;
    web_session *s = tern_alloc(TERN_MEM_MISC, sizeof *s);
    tern_status status = s ? tern_session_open(&s->session, m->model, &desc, &err)
                           : tern_fail_memory(&err, sizeof *s);
    if (status != TERN_OK) {
        tern_free(s);
        return web_fail(&err);
    }
    s->id = ++last_session;
    s->model = m;
    s->next = m->sessions;
    m->sessions = s;
    return s->id;
}

static void session_free(web_session *s) {
    tern_answer_close(s->answer);
    tern_session_close(s->session);
    tern_free(s);
}

int32_t web_session_close(int32_t id) {
    tern_error err = {0};
    web_session *s = web_session_find(id, &err);
    if (!s) return web_fail(&err);
    web_session **at = &s->model->sessions;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    web_gpu_enter(false);
    session_free(s);
    return 0;
}

void web_sessions_close(web_model *m) {
    tern_group_close(m->group);
    m->group = NULL;
    while (m->sessions) {
        web_session *s = m->sessions;
        m->sessions = s->next;
        session_free(s);
    }
}

int32_t web_session_info(int32_t id) {
    static const char *const kv[] = {"auto", "f32", "f16", "q8_0"};
    tern_error err = {0};
    web_session *s = web_session_find(id, &err);
    if (!s) return web_fail(&err);
    size_t n_scales = 0;
    const float *scales = tern_session_lora_scales(s->session, &n_scales);
    tern_strbuf *b = web_result_begin();
    tern_strbuf_printf(b, "{\"n_context\":%d,\"kv\":\"%s\",\"n_tokens\":%zu,\"lora_scales\":[",
                       tern_session_n_context(s->session), kv[tern_session_kv_type(s->session)],
                       tern_session_n_tokens(s->session));
    for (size_t i = 0; i < n_scales; i++) {
        if (i) tern_strbuf_puts(b, ",");
        tern_strbuf_json_float(b, scales[i]);
    }
    tern_strbuf_puts(b, "]}");
    return web_result_end();
}

// ---- What is heard of a generation ------------------------------------------------------------

static void put_token(tern_strbuf *b, const tern_model *model, const tern_token_logprob *t) {
    tern_strbuf text = {0};
    tern_token_piece(model, t->id, web_append, &text, NULL);
    tern_strbuf_printf(b, "{\"id\":%d,\"logprob\":", t->id);
    tern_strbuf_json_float(b, t->logprob);
    tern_strbuf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < text.len; i++)
        tern_strbuf_printf(b, i ? ",%u" : "%u", (unsigned char)text.ptr[i]);
    tern_strbuf_puts(b, "]}");
    b->failed |= text.failed;
    tern_strbuf_free(&text);
}

// Sends an array of tokens, each [itself, the likeliest...]. If memory runs out none are sent: the
// page gets fewer entries than there are tokens.
static void tell_logprobs(web_session *s) {
    size_t n_tokens = 0, n_each = 0;
    const tern_token_logprob *rows = tern_session_token_logprobs(s->session, &n_tokens, &n_each);
    if (!rows || n_tokens <= s->n_logprobs) return;
    tern_strbuf b = {0};
    for (size_t i = s->n_logprobs; i < n_tokens; i++)
        for (size_t k = 0; k < n_each; k++) {
            tern_strbuf_puts(&b, i == s->n_logprobs && !k ? "[[" : !k ? "],[" : ",");
            put_token(&b, s->model->model, &rows[i * n_each + k]);
        }
    tern_strbuf_puts(&b, "]]");
    s->n_logprobs = n_tokens;
    if (!b.failed) js_logprobs(s->id, b.ptr, (uint32_t)b.len);
    tern_strbuf_free(&b);
}

static void on_part(void *user, const tern_part *p) {
    const web_session *s = user;
    js_part(s->id, (int32_t)p->kind, p->call, p->text, (uint32_t)p->n_bytes);
}

static bool on_prompt(void *user, const char *phase, double fraction) {
    const web_session *s = user;
    (void)phase;
    return js_prompt(s->id, fraction) != 0;
}

static int32_t on_logits(void *user, const tern_logits *at) {
    const web_session *s = user;
    return js_logits(s->id, at->logits, at->n_vocab, at->ids, (uint32_t)at->n_ids);
}

// False: out of memory, which ends the answer.
static bool on_text(void *user, const char *text, size_t n) {
    web_session *s = user;
    if (s->logprobs) tell_logprobs(s);
    if (s->answer) return tern_answer_put(s->answer, text, n, on_part, s, NULL) == TERN_OK;
    js_text(s->id, text, (uint32_t)n);
    return true;
}

static void put_stats(tern_strbuf *b, const tern_generate_stats *st) {
    static const char *const reasons[] = {"end", "length", "string", "context", "caller"};
    tern_strbuf_printf(b, "\"reason\":\"%s\",\"n_prompt\":%zu,\"n_reused\":%zu,\"n_generated\":%zu",
                       reasons[st->reason], st->n_prompt, st->n_reused, st->n_generated);
    tern_strbuf_puts(b, ",\"prompt_seconds\":");
    tern_strbuf_json_number(b, st->prompt_seconds);
    tern_strbuf_puts(b, ",\"generate_seconds\":");
    tern_strbuf_json_number(b, st->generate_seconds);
    tern_strbuf_printf(b, ",\"seed\":%llu,\"n_steps\":%zu,\"n_drafted\":%zu,\"n_accepted\":%zu",
                       (unsigned long long)st->seed, st->draft.n_steps, st->draft.n_drafted,
                       st->draft.n_accepted);
}

static void on_end(void *user, tern_session *session, const tern_generate_stats *stats,
                   const tern_error *err) {
    web_session *s = user;
    tern_strbuf b = {0};
    size_t n_ids = 0;
    if (s->logprobs) tell_logprobs(s);
    if (s->answer) tern_answer_end(s->answer, on_part, s, NULL);
    tern_answer_close(s->answer);
    s->answer = NULL;
    const int32_t *ids = tern_session_generated(session, &n_ids);
    const char *notice = tern_session_notice(session);
    tern_strbuf_puts(&b, "{");
    put_stats(&b, stats);
    tern_strbuf_printf(&b, ",\"n_dropped\":%zu,\"status\":%d,\"error\":", s->n_dropped,
                       (int)err->status);
    tern_strbuf_json(&b, err->message, strlen(err->message));
    tern_strbuf_puts(&b, ",\"notice\":");
    if (notice)
        tern_strbuf_json(&b, notice, strlen(notice));
    else
        tern_strbuf_puts(&b, "null");
    tern_strbuf_puts(&b, ",\"ids\":[");
    for (size_t i = 0; i < n_ids; i++) tern_strbuf_printf(&b, i ? ",%d" : "%d", ids[i]);
    tern_strbuf_puts(&b, "]}");
    if (b.failed)
        js_end(s->id, "", 0); // "": out of memory
    else
        js_end(s->id, b.ptr, (uint32_t)b.len);
    tern_strbuf_free(&b);
}

// ---- Generating -------------------------------------------------------------------------------

typedef struct request { // the request for a generation
    web_args args;
    tern_str prompt;
    const tern_json *ids, *messages, *stops;
    const tern_json *breakers, *bad_words, *stop_ids, *allowed_ids;
    int32_t *stop_list, *allowed_list; // the last two
    const char *samplers;
    bool apart;                // send the answer's parsed parts
    bool tells_prompt, asks;   // call js_prompt, js_logits
    const char *tools, *after; // for the parts: JSON, and the text before the answer
    int32_t grammar;           // 0: none
    int32_t without;           // drafters, a bit for each
    tern_sampling sampling;
    tern_generate_params params;
} request;

static tern_status request_read_lists(request *r, tern_error *err) {
    tern_generate_params *p = &r->params;
    if (r->samplers)
        memcpy(r->sampling.samplers, r->samplers,
               strnlen(r->samplers, sizeof r->sampling.samplers)); // too long a list is refused
    if (r->breakers) {
        TERN_TRY(web_args_strings(&r->args, "generate", "dry_sequence_breakers", r->breakers,
                                  &p->dry_sequence_breakers, err));
        p->n_dry_sequence_breakers = r->breakers->n;
    }
    if (r->bad_words) {
        TERN_TRY(
            web_args_strings(&r->args, "generate", "bad_words", r->bad_words, &p->bad_words, err));
        p->n_bad_words = r->bad_words->n;
    }
    if (r->stop_ids)
        TERN_TRY(web_args_ids(&r->args, "generate", r->stop_ids, &r->stop_list,
                              &p->n_stop_token_ids, err));
    if (r->allowed_ids)
        TERN_TRY(web_args_ids(&r->args, "generate", r->allowed_ids, &r->allowed_list,
                              &p->n_allowed_token_ids, err));
    for (int k = 0; k < TERN_DRAFTER_COUNT; k++) p->drafts.without[k] = r->without >> k & 1;
    p->stop_token_ids = r->stop_list;
    p->allowed_token_ids = r->allowed_list;
    return TERN_OK;
}

static tern_status request_read(request *r, const char *json, size_t n, tern_error *err) {
    const double float_max = 1e30;
    r->sampling = tern_sampling_default();
    r->params.sampling = &r->sampling;
    const web_field fields[] = {
        {"prompt", WEB_TEXT, &r->prompt, 0, 0, NULL},
        {"ids", WEB_ARRAY, &r->ids, 0, 0, NULL},
        {"messages", WEB_ARRAY, &r->messages, 0, 0, NULL},
        {"max_tokens", WEB_INT, &r->params.max_tokens, 0, INT32_MAX, NULL},
        {"temperature", WEB_NUMBER, &r->sampling.temperature, 0, 100, NULL},
        {"top_k", WEB_INT, &r->sampling.top_k, 0, INT32_MAX, NULL},
        {"top_p", WEB_NUMBER, &r->sampling.top_p, 0, 1, NULL},
        {"min_p", WEB_NUMBER, &r->sampling.min_p, 0, 1, NULL},
        {"repeat_penalty", WEB_NUMBER, &r->sampling.repeat_penalty, 0, float_max, NULL},
        {"frequency_penalty", WEB_NUMBER, &r->sampling.frequency_penalty, -float_max, float_max,
         NULL},
        {"presence_penalty", WEB_NUMBER, &r->sampling.presence_penalty, -float_max, float_max,
         NULL},
        {"penalty_window", WEB_INT, &r->sampling.penalty_window, 0, INT32_MAX, NULL},
        {"top_n_sigma", WEB_NUMBER, &r->sampling.top_n_sigma, 0, float_max, NULL},
        {"typical_p", WEB_NUMBER, &r->sampling.typical_p, 0, 1, NULL},
        {"xtc_probability", WEB_NUMBER, &r->sampling.xtc_probability, 0, 1, NULL},
        {"xtc_threshold", WEB_NUMBER, &r->sampling.xtc_threshold, 0, 1, NULL},
        {"dynatemp_range", WEB_NUMBER, &r->sampling.dynatemp_range, 0, 100, NULL},
        {"dynatemp_exponent", WEB_NUMBER, &r->sampling.dynatemp_exponent, 0, 100, NULL},
        {"dry_multiplier", WEB_NUMBER, &r->sampling.dry_multiplier, 0, float_max, NULL},
        {"dry_base", WEB_NUMBER, &r->sampling.dry_base, 1, float_max, NULL},
        {"dry_allowed_length", WEB_INT, &r->sampling.dry_allowed_length, 0, INT32_MAX, NULL},
        {"dry_penalty_last_n", WEB_INT, &r->sampling.dry_penalty_last_n, -1, INT32_MAX, NULL},
        {"dry_sequence_breakers", WEB_ARRAY, &r->breakers, 0, 0, NULL},
        {"mirostat", WEB_INT, &r->sampling.mirostat, 0, 2, NULL},
        {"mirostat_tau", WEB_NUMBER, &r->sampling.mirostat_tau, 0, 1000, NULL},
        {"mirostat_eta", WEB_NUMBER, &r->sampling.mirostat_eta, 0, 1000, NULL},
        {"samplers", WEB_STRING, &r->samplers, 0, 0, NULL},
        {"min_tokens", WEB_INT, &r->params.min_tokens, 0, INT32_MAX, NULL},
        {"stop_token_ids", WEB_ARRAY, &r->stop_ids, 0, 0, NULL},
        {"allowed_token_ids", WEB_ARRAY, &r->allowed_ids, 0, 0, NULL},
        {"bad_words", WEB_ARRAY, &r->bad_words, 0, 0, NULL},
        {"seed", WEB_COUNT, &r->sampling.seed, 0, 0, NULL},
        {"stop", WEB_ARRAY, &r->stops, 0, 0, NULL},
        {"ignore_end", WEB_BOOL, &r->params.ignore_end, 0, 0, NULL},
        {"logprobs", WEB_BOOL, &r->params.logprobs, 0, 0, NULL},
        {"top_logprobs", WEB_INT, &r->params.n_top_logprobs, 0, TERN_TOP_LOGPROBS_MAX, NULL},
        {"apart", WEB_BOOL, &r->apart, 0, 0, NULL},
        {"tells_prompt", WEB_BOOL, &r->tells_prompt, 0, 0, NULL},
        {"asks", WEB_BOOL, &r->asks, 0, 0, NULL},
        {"tools", WEB_STRING, &r->tools, 0, 0, NULL},
        {"after", WEB_STRING, &r->after, 0, 0, NULL},
        {"grammar", WEB_INT, &r->grammar, 1, INT32_MAX, NULL},
        {"drafts_none", WEB_BOOL, &r->params.drafts.none, 0, 0, NULL},
        {"drafts_without", WEB_INT, &r->without, 0, (1 << TERN_DRAFTER_COUNT) - 1, NULL},
        {"drafts_most", WEB_INT, &r->params.drafts.most, 0, INT32_MAX, NULL},
        {"drafts_least", WEB_INT, &r->params.drafts.least, 0, INT32_MAX, NULL},
        {"drafts_chance", WEB_NUMBER, &r->params.drafts.chance, 0, 1, NULL},
    };
    TERN_TRY(
        web_args_read(&r->args, "generate", json, n, fields, sizeof fields / sizeof *fields, err));
    if ((r->prompt.ptr != NULL) + (r->ids != NULL) + (r->messages != NULL) != 1)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "generate: give one of \"prompt\", \"ids\" and \"messages\"");
    if (r->stops) {
        TERN_TRY(web_args_strings(&r->args, "generate", "stop", r->stops, &r->params.stops, err));
        r->params.n_stops = r->stops->n;
    }
    return request_read_lists(r, err);
}

static void request_free(request *r) {
    tern_free(r->stop_list);
    tern_free(r->allowed_list);
    web_args_free(&r->args);
}

// A seed that JSON can hold, so that the page can pass it again.
static void choose_seed(request *r) {
    while (r->sampling.seed == 0) {
        if (getentropy(&r->sampling.seed, sizeof r->sampling.seed) != 0) return;
        r->sampling.seed >>= 11; // 53 bits
    }
}

static tern_status ids_of_request(web_session *s, request *r, tern_ids *ids, tern_error *err) {
    const tern_model *model = s->model->model;
    s->n_dropped = 0;
    if (r->prompt.ptr) return web_ids_of_text(model, r->prompt, true, true, ids, err);
    if (r->ids) return web_args_ids(&r->args, "generate", r->ids, &ids->ids, &ids->n, err);
    const tern_chat_limits limits = {.n_context = tern_session_n_context(s->session),
                                     .n_answer = r->params.max_tokens,
                                     .n_dropped = &s->n_dropped};
    tern_message *messages;
    tern_status status = web_messages_read(&r->args, "generate", r->messages, &messages, err);
    if (status == TERN_OK)
        status = web_ids_of_chat(model, messages, r->messages->n, &limits, ids, err);
    tern_free(messages);
    return status;
}

int32_t web_generate(int32_t session, const char *json, uint32_t n) {
    tern_error err = {0};
    request r = {0};
    tern_ids ids = {0};
    web_session *s = web_session_find(session, &err);
    if (!s) return web_fail(&err);
    web_gpu_enter(false);
    tern_status status = request_read(&r, json, n, &err);
    if (status == TERN_OK && r.grammar) {
        r.params.grammar = web_grammar_find(s->model, r.grammar, &err);
        if (!r.params.grammar) status = err.status;
    }
    if (status == TERN_OK) status = ids_of_request(s, &r, &ids, &err);
    if (status == TERN_OK && !s->model->group)
        status = tern_group_open(&s->model->group, s->model->model, NULL, &err);
    tern_answer *answer = NULL;
    if (status == TERN_OK && r.apart)
        status = tern_answer_open(&answer, s->model->model, r.after, r.tools, &err);
    if (status == TERN_OK) {
        choose_seed(&r);
        r.params.with_special = tern_answer_with_special(answer);
        s->logprobs = r.params.logprobs;
        s->n_logprobs = 0;
        r.params.on_text = on_text;
        if (r.tells_prompt) r.params.on_progress = on_prompt;
        if (r.asks) r.params.on_logits = on_logits;
        r.params.on_end = on_end;
        r.params.user = s;
        status = tern_group_add(s->model->group, s->session, ids.ids, ids.n, &r.params, &err);
    }
    // A request refused because the session is already generating must not replace its parser.
    if (status == TERN_OK)
        s->answer = answer;
    else
        tern_answer_close(answer);
    tern_free(ids.ids);
    request_free(&r);
    return status == TERN_OK ? 0 : web_fail(&err);
}

// 0: nothing runs; 1: a step was done; 2: the GPU is busy; call again after its next event.
int32_t web_step(int32_t model) {
    tern_error err = {0};
    web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    if (!m->group) return 0;
    web_gpu_enter(false);
    bool done = false;
    size_t n_running = 0;
    tern_status status = m->stepping ? TERN_OK : tern_group_begin(m->group, &err);
    m->stepping = status == TERN_OK;
    if (status == TERN_OK) status = tern_group_poll(m->group, &done, &n_running, &err);
    m->stepping = status == TERN_OK && !done;
    if (status != TERN_OK) return web_fail(&err);
    return !done ? 2 : n_running > 0;
}

int32_t web_cancel(int32_t session) {
    tern_error err = {0};
    web_session *s = web_session_find(session, &err);
    if (!s) return web_fail(&err);
    bool done;
    tern_session_cancel(s->session);
    // It ends at once, or when the current step is done.
    if (s->model->group && !s->model->stepping) tern_group_poll(s->model->group, &done, NULL, NULL);
    return 0;
}
