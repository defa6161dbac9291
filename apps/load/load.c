// The load itself: many transfers by libcurl on one thread. See load.h.
#include "apps/load/load.h"

#if defined(TERN_CURL)

#include <curl/curl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/load/load_stream.h"
#include "base/alloc.h"
#include "base/json/json_write.h"
#include "base/os/lazy.h"
#include "base/os/os_time.h"
#include "base/status.h"

#define WAIT_MS     20   // at most, until the next check
#define AT_ONCE_MAX 4096 // connections of a load by arrivals

typedef struct transfer { // a connection, and its current request
    CURL *curl;
    load_stream stream;
    tern_strbuf body;
    struct load *load;
    struct transfer *next, *next_idle;
    bool is_open;
} transfer;

typedef struct load {
    const load_desc *desc;
    load_result *result;
    CURLM *multi;
    struct curl_slist *fields;
    char *url;
    double words_a_token, words_besides; // tokens of a prompt: the template's count, too
    double start;
    size_t n_begun, n_done, n_open;
    transfer *all, *idle;
    bool out_of_memory;
} load;

static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// ---- What is asked -----------------------------------------------------------------------------

static void put_words(tern_strbuf *out, uint64_t seed, int n) {
    static const char *const words[] = {
        "river",   "stone", "little", "house",  "morning", "under", "yellow", "door",
        "walked",  "night", "happy",  "tree",   "over",    "water", "friend", "small",
        "green",   "found", "story",  "light",  "garden",  "again", "window", "blue",
        "running", "old",   "summer", "letter", "warm",    "road",  "bird",   "quiet"};
    for (int i = 0; i < n; i++) {
        seed = mix(seed);
        tern_strbuf_printf(out, "%s%s", i ? " " : "", words[seed >> 59]);
    }
}

// A length of request i: all from n (1 - r) to n (1 + r) are as likely. which: prompt or answer.
static int draw_length(const load_desc *d, size_t i, int n, uint64_t which) {
    int least = (int)ceil(n * (1 - d->range_ratio)), most = (int)floor(n * (1 + d->range_ratio));
    if (least < 1) least = 1;
    if (most <= least) return least;
    return least + (int)(mix(mix(d->seed ^ which) + i) % (uint64_t)(most - least + 1));
}

static int words_for(const load *l, int n_tokens) {
    double words = (double)n_tokens * l->words_a_token - l->words_besides;
    return words > 1 ? (int)lround(words) : 1;
}

static void put_body(const load *l, size_t i, int n_words, int n_answer, bool stream,
                     tern_strbuf *out) {
    const load_desc *d = l->desc;
    tern_json_writer w = {.out = out};
    tern_strbuf text = {0};
    int n_shared = d->n_shared < d->n_prompt ? d->n_shared : d->n_prompt;
    int shared = n_shared ? words_for(l, n_shared) : 0;
    if (shared > n_words) shared = n_words;
    put_words(&text, d->seed, shared);
    if (shared && shared < n_words) tern_strbuf_putc(&text, ' ');
    // Different words for each request, from the first word on: the server has no cached prefix
    // beyond the shared one.
    put_words(&text, mix(d->seed + 1) + i, n_words - shared);
    tern_json_open(&w, NULL, '{');
    if (d->model) tern_json_put_text(&w, "model", d->model);
    tern_json_open(&w, "messages", '[');
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "role", "user");
    tern_json_put_text(&w, "content", tern_strbuf_text(&text));
    tern_json_close(&w, '}');
    tern_json_close(&w, ']');
    tern_json_put_int(&w, "max_tokens", n_answer);
    tern_json_put_bool(&w, "ignore_eos", true); // equal lengths; not in OpenAI's API
    tern_json_put_int(&w, "temperature", 0);
    tern_json_put_bool(&w, "stream", stream);
    if (stream) tern_json_put_raw(&w, "stream_options", "{\"include_usage\":true}");
    tern_json_close(&w, '}');
    out->failed |= text.failed;
    tern_strbuf_free(&text);
}

// ---- What comes --------------------------------------------------------------------------------

static size_t on_bytes(char *bytes, size_t size, size_t n, void *user) {
    transfer *t = user;
    long status = 0;
    n *= size;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    t->stream.request->status = (int)status;
    if (load_stream_take(&t->stream, bytes, n, tern_seconds() - t->load->start)) return n;
    t->load->out_of_memory = true;
    return 0;
}

static void set_up(const load *l, CURL *c, double stall_seconds) {
    curl_easy_setopt(c, CURLOPT_URL, l->url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, l->fields);
    curl_easy_setopt(c, CURLOPT_POST, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)stall_seconds);
}

static transfer *new_transfer(load *l) {
    transfer *t = tern_alloc(TERN_MEM_MISC, sizeof *t);
    if (t) t->curl = curl_easy_init();
    if (!t || !t->curl) {
        tern_free(t);
        l->out_of_memory = true;
        return NULL;
    }
    t->load = l;
    set_up(l, t->curl, l->desc->stall_seconds);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_PRIVATE, t);
    t->next = l->all;
    l->all = t;
    return t;
}

static void begin(load *l) {
    transfer *t = l->idle;
    if (t)
        l->idle = t->next_idle;
    else if (!(t = new_transfer(l)))
        return;
    load_request *r = &l->result->list[l->n_begun];
    tern_strbuf_clear(&t->body);
    tern_strbuf_clear(&t->stream.line);
    tern_strbuf_clear(&t->stream.body);
    t->stream.request = r;
    const load_desc *d = l->desc;
    int n_prompt = draw_length(d, l->n_begun, d->n_prompt, 0x5EED1);
    int n_answer = draw_length(d, l->n_begun, d->n_answer, 0x5EED2);
    put_body(l, l->n_begun, words_for(l, n_prompt), n_answer, true, &t->body);
    if (t->body.failed) l->out_of_memory = true;
    curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, tern_strbuf_text(&t->body));
    curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE, (long)t->body.len);
    r->began = tern_seconds() - l->start;
    if (l->desc->n_users) r->due = r->began;
    curl_multi_add_handle(l->multi, t->curl);
    t->is_open = true;
    l->n_begun++, l->n_open++;
}

static void end(load *l, transfer *t, CURLcode code) {
    load_request *r = t->stream.request;
    r->ended = tern_seconds() - l->start;
    if (code != CURLE_OK && !r->error[0])
        snprintf(r->error, sizeof r->error, "%s", curl_easy_strerror(code));
    load_stream_end(&t->stream);
    curl_multi_remove_handle(l->multi, t->curl);
    t->is_open = false;
    t->next_idle = l->idle;
    l->idle = t;
    l->n_done++, l->n_open--;
}

// ---- When --------------------------------------------------------------------------------------

static bool is_due(const load *l, double now) {
    const load_desc *d = l->desc;
    if (l->n_begun == l->result->n || l->out_of_memory) return false;
    if (d->n_users) return l->n_open < (size_t)d->n_users;
    return l->n_open < AT_ONCE_MAX && l->result->list[l->n_begun].due <= now;
}

static int wait_ms(const load *l, double now) {
    if (l->desc->n_users || l->n_begun == l->result->n) return WAIT_MS;
    double until = (l->result->list[l->n_begun].due - now) * 1e3;
    return until < 1 ? 1 : until < WAIT_MS ? (int)until : WAIT_MS;
}

// Times between arrivals of a Poisson process are exponential.
static void plan_arrivals(const load_desc *d, load_result *out) {
    double at = 0;
    uint64_t seed = mix(d->seed ^ 0xA5A5);
    for (size_t i = 0; i < out->n && !d->n_users; i++) {
        out->list[i].due = at;
        seed = mix(seed);
        at += -log(((double)(seed >> 11) + 0.5) * 0x1p-53) / d->rate;
    }
}

static bool goes_on(const load *l) { return !l->desc->goes_on || l->desc->goes_on(l->desc->user); }

static tern_status run(load *l, tern_error *err) {
    l->start = tern_seconds();
    while (l->n_done < l->result->n) {
        int running = 0, left = 0;
        if (l->out_of_memory) return tern_fail_memory(err, 0);
        if (!goes_on(l)) return tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
        while (is_due(l, tern_seconds() - l->start)) begin(l);
        curl_multi_perform(l->multi, &running);
        for (CURLMsg *m; (m = curl_multi_info_read(l->multi, &left));) {
            transfer *t = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            end(l, t, m->data.result);
        }
        int ms = wait_ms(l, tern_seconds() - l->start);
        curl_multi_poll(l->multi, NULL, 0, is_due(l, tern_seconds() - l->start) ? 0 : ms, NULL);
    }
    l->result->seconds = tern_seconds() - l->start;
    return TERN_OK;
}

// ---- Before ------------------------------------------------------------------------------------

static size_t keep_body(char *bytes, size_t size, size_t n, void *user) {
    tern_strbuf *out = user;
    if (out->len < (1 << 20)) tern_strbuf_append(out, bytes, n * size);
    return n * size;
}

// Asks how many tokens a prompt of n words has.
static tern_status count_tokens(const load *l, int n_words, size_t *n_tokens, tern_error *err) {
    tern_strbuf body = {0}, answer = {0};
    load_request told = {0};
    load_stream stream = {.request = &told};
    CURL *c = curl_easy_init();
    tern_status status = TERN_OK;
    long http = 0;
    put_body(l, 0, n_words, 1, false, &body);
    if (!c || body.failed) status = tern_fail_memory(err, body.len);
    if (status == TERN_OK) {
        set_up(l, c, l->desc->stall_seconds);
        curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, keep_body);
        curl_easy_setopt(c, CURLOPT_WRITEDATA, &answer);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, body.ptr);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)body.len);
        CURLcode code = curl_easy_perform(c);
        curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &http);
        told.status = (int)http;
        if (code != CURLE_OK)
            status = tern_fail(err, TERN_ERR_IO, "%s: %s", l->url, curl_easy_strerror(code));
        else if (http != 200 && load_stream_take(&stream, tern_strbuf_text(&answer), answer.len, 0))
            load_stream_end(&stream);
    }
    if (status == TERN_OK && told.error[0])
        status = tern_fail(err, TERN_ERR_IO, "%s: %s", l->url, told.error);
    *n_tokens = load_read_prompt_tokens(tern_strbuf_text(&answer), answer.len);
    if (status == TERN_OK && !*n_tokens)
        status =
            tern_fail(err, TERN_ERR_FORMAT, "%s: the answer has no usage.prompt_tokens", l->url);
    curl_easy_cleanup(c);
    tern_strbuf_free(&body);
    tern_strbuf_free(&answer);
    load_stream_free(&stream);
    return status;
}

// Two texts show how many tokens a word has, and how many the template adds.
static tern_status measure_words(load *l, tern_error *err) {
    enum { FEW = 16, MANY = 80 };
    size_t few, many;
    TERN_TRY(count_tokens(l, FEW, &few, err));
    TERN_TRY(count_tokens(l, MANY, &many, err));
    if (many <= few)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: longer prompts have no more tokens", l->url);
    l->words_a_token = (double)(MANY - FEW) / (double)(many - few);
    l->words_besides = (double)few * l->words_a_token - FEW;
    return TERN_OK;
}

static bool add_field(load *l, const char *name, const char *value) {
    tern_strbuf line = {0};
    tern_strbuf_printf(&line, "%s: %s", name, value);
    struct curl_slist *more = line.failed ? NULL : curl_slist_append(l->fields, line.ptr);
    tern_strbuf_free(&line);
    if (more) l->fields = more;
    return more != NULL;
}

static tern_status prepare(load *l, tern_error *err) {
    const load_desc *d = l->desc;
    tern_strbuf url = {0}, bearer = {0};
    size_t n = strlen(d->url);
    while (n && d->url[n - 1] == '/') n--;
    bool has_v1 = n >= 3 && !memcmp(d->url + n - 3, "/v1", 3);
    tern_strbuf_printf(&url, "%.*s%s/chat/completions", (int)n, d->url, has_v1 ? "" : "/v1");
    l->url = url.ptr;
    if (d->key) tern_strbuf_printf(&bearer, "Bearer %s", d->key);
    bool ok = !url.failed && !bearer.failed && add_field(l, "Content-Type", "application/json") &&
              (!d->key || add_field(l, "Authorization", bearer.ptr));
    tern_strbuf_free(&bearer);
    l->multi = curl_multi_init();
    l->result->list =
        tern_alloc_array(TERN_MEM_MISC, (size_t)d->n_requests, sizeof *l->result->list);
    if (!ok || !l->multi || !l->result->list) return tern_fail_memory(err, 0);
    l->result->n = (size_t)d->n_requests;
    plan_arrivals(d, l->result);
    return measure_words(l, err);
}

static void close_load(load *l) {
    for (transfer *t = l->all, *next; t; t = next) {
        next = t->next;
        if (t->is_open) curl_multi_remove_handle(l->multi, t->curl);
        curl_easy_cleanup(t->curl);
        load_stream_free(&t->stream);
        tern_strbuf_free(&t->body);
        tern_free(t);
    }
    curl_multi_cleanup(l->multi);
    curl_slist_free_all(l->fields);
    tern_free(l->url);
}

bool load_is_possible(void) { return true; }

tern_status load_run(const load_desc *desc, load_result *out, tern_error *err) {
    load l = {.desc = desc, .result = out};
    *out = (load_result){0};
    TERN_TRY(TERN_LAZY_LOAD(curl, err));
    curl_global_init(CURL_GLOBAL_DEFAULT);
    tern_status status = prepare(&l, err);
    if (status == TERN_OK) status = run(&l, err);
    close_load(&l);
    return status;
}

#else

#include "base/status.h"

bool load_is_possible(void) { return false; }

tern_status load_run(const load_desc *desc, load_result *out, tern_error *err) {
    (void)desc;
    *out = (load_result){0};
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "this program was built without libcurl");
}

#endif
