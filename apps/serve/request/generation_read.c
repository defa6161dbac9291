// Reads a generation: sampling, limits, prompts. See generation_request.h.
#include "apps/serve/request/long_text.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// ---- The model ---------------------------------------------------------------------------------

void generation_read_model(request *req, const fields *f) {
    tern_str name = field_text(f, "model");
    const char *own = req->model->about.name;
    if (f->error->status) return;
    if (name.len == 0) name = (tern_str){own, strlen(own)};
    req->generation->model = tern_strndup(TERN_MEM_SESSION, name.ptr, name.len);
    if (!req->generation->model) api_fail_memory(f->error);
}

// ---- Limits ------------------------------------------------------------------------------------

void generation_read_max_tokens(request *req, const fields *f, const char *name) {
    req->generation->params.max_tokens =
        (int32_t)field_int(f, name, req->generation->params.max_tokens, 1, INT32_MAX);
}

static bool add_stop(generation *a, tern_str s) {
    char *copy = tern_strndup(TERN_MEM_SESSION, s.ptr, s.len);
    if (!copy) return false;
    a->stops[a->params.n_stops++] = copy;
    return true;
}

void generation_read_stops(request *req, const fields *f, const char *name, size_t n_max) {
    const tern_json *value = field_any(f, name);
    generation *a = req->generation;
    if (!value) return;
    bool is_list = tern_json_is(value, TERN_JSON_ARRAY);
    size_t n = is_list ? value->n : 1;
    if ((!is_list && !tern_json_is(value, TERN_JSON_STRING)) || n > n_max) {
        char wanted[80];
        snprintf(wanted, sizeof wanted, "a string, or up to %zu strings", n_max);
        field_fail(f, name, wanted);
        return;
    }
    a->stops = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *a->stops);
    bool ok = a->stops != NULL;
    const tern_json *item = is_list ? tern_json_first(f->doc, value) : value;
    while (item && ok) {
        tern_str s = tern_json_str(item);
        if (!s.ptr || memchr(s.ptr, 0, s.len)) {
            field_fail(f, name, "strings without zero bytes");
            return;
        }
        if (s.len) ok = add_stop(a, s); // an empty one stops nothing
        item = is_list ? tern_json_next(f->doc, value, item) : NULL;
    }
    if (!ok) api_fail_memory(f->error);
}

static int by_id(const void *a, const void *b) {
    const tern_logit_bias *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

// Drops repeated ids: the object may be as long as a body, with more keys than the vocabulary has
// ids.
static void drop_doubles(generation *a) {
    size_t n = 0;
    if (a->params.n_biases == 0) return;
    qsort(a->biases, a->params.n_biases, sizeof *a->biases, by_id);
    for (size_t i = 0; i < a->params.n_biases; i++)
        if (n == 0 || a->biases[n - 1].id != a->biases[i].id) a->biases[n++] = a->biases[i];
    a->params.n_biases = n;
}

// "15043", as a member's name.
static int32_t read_id(const served *s, tern_str name) {
    char digits[12], *end = digits;
    snprintf(digits, sizeof digits, "%.*s", name.len < 11 ? (int)name.len : 11, name.ptr);
    long id = strtol(digits, &end, 10);
    bool is_id = !*end && end != digits && digits[0] != '+' && id >= 0 && id < s->info.n_vocab;
    return is_id ? (int32_t)id : -1;
}

#define BIAS_TEXTS 8192 // bytes of all texts: they are read on the loop's thread

// What is left while a list of biases is read.
typedef struct bias_room {
    size_t capacity; // of the list
    size_t left;     // bytes of texts
} bias_room;

static void put_bias(const fields *f, generation *a, int32_t id, float bias, bias_room *room) {
    if (tern_array_reserve(TERN_MEM_SESSION, &a->biases, &room->capacity, a->params.n_biases, 1) !=
        0)
        api_fail_memory(f->error);
    else
        a->biases[a->params.n_biases++] = (tern_logit_bias){id, bias};
}

// A bias of each token of a text. False: it is too long.
static bool add_text_bias(request *req, const fields *f, const char *name, tern_str text,
                          float bias, bias_room *room) {
    const text_wanted wanted = {.text = text, .flags = TERN_TOKENIZE_PLAIN};
    size_t n = 0;
    if (text.len > room->left) return false;
    room->left -= text.len;
    int32_t *ids = read_tokens(req, &wanted, 0, &n, name, f->error);
    for (size_t i = 0; ids && i < n && !f->error->status; i++)
        put_bias(f, req->generation, ids[i], bias, room);
    tern_free(ids);
    return true;
}

// false: never.
static bool read_bias(const tern_json *value, double *bias) {
    const bool is_never = tern_json_is(value, TERN_JSON_BOOL) && !tern_json_bool(value, true);
    *bias = is_never ? (double)-INFINITY : tern_json_number(value, NAN);
    return is_never || isfinite(*bias);
}

// llama-server's form: [[15043, -1.5], [" Hello", false]].
static void read_bias_pairs(request *req, const fields *f, const char *name,
                            const tern_json *list) {
    bias_room room = {.left = BIAS_TEXTS};
    for (const tern_json *pair = tern_json_first(f->doc, list); pair && !f->error->status;
         pair = tern_json_next(f->doc, list, pair)) {
        const tern_json *token = tern_json_first(f->doc, pair);
        const tern_json *value = token ? tern_json_next(f->doc, pair, token) : NULL;
        const tern_str text = tern_json_str(token);
        const int64_t id = tern_json_int(token, -1);
        double bias;
        bool ok = tern_json_is(pair, TERN_JSON_ARRAY) && pair->n == 2 && read_bias(value, &bias);
        if (ok && text.ptr)
            ok = add_text_bias(req, f, name, text, (float)bias, &room);
        else if ((ok = ok && id >= 0 && id < req->model->info.n_vocab))
            put_bias(f, req->generation, (int32_t)id, (float)bias, &room);
        if (!ok)
            field_fail(f, name, "a list of pairs of a token, or a text, and a number or false");
    }
    drop_doubles(req->generation);
}

// {"15043": -100, "5": false}: keys are ids, as strings; or, in llama-server's own routes, texts.
void generation_read_biases(request *req, const fields *f, const char *name) {
    const tern_json *given = field_any(f, name);
    const bool is_llama = req->error_format->is_llamas;
    bias_room room = {.left = BIAS_TEXTS};
    if (tern_json_is(given, TERN_JSON_ARRAY)) {
        read_bias_pairs(req, f, name, given);
        return;
    }
    fields inner = fields_within(f, name, "logit_bias.");
    for (const tern_json *key = inner.object ? tern_json_first(f->doc, inner.object) : NULL;
         key && !f->error->status; key = tern_json_next(f->doc, inner.object, key)) {
        const tern_str said = tern_json_str(key);
        const int32_t id = read_id(req->model, said);
        double bias;
        const bool is_bias = read_bias(tern_json_value_of(f->doc, key), &bias);
        if (id < 0 && !is_llama) {
            field_fail(f, name, "an object whose keys are ids of the vocabulary");
        } else if (!is_bias || (isfinite(bias) && (bias < -100 || bias > 100))) {
            char which[40];
            snprintf(which, sizeof which, "%.*s", said.len < 30 ? (int)said.len : 30, said.ptr);
            field_fail(&inner, which, "false, or a number from -100 to 100");
        } else if (id >= 0) {
            put_bias(f, req->generation, id, (float)bias, &room);
        } else if (!add_text_bias(req, f, name, said, (float)bias, &room)) {
            field_fail(f, name, "an object with at most 8192 bytes of texts");
        }
    }
    drop_doubles(req->generation);
}

// ---- Prompts -----------------------------------------------------------------------------------

static bool are_ids(const served *s, const int32_t *ids, size_t n, const char *param,
                    api_error *e) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->info.n_vocab) {
            api_fail(e, 400, NULL, param, "'%s' has a token that is not in 0..%d", param,
                     (int)s->info.n_vocab - 1);
            return false;
        }
    return true;
}

static bool fits(const served *s, size_t n, const char *param, api_error *e) {
    if (!s->generates)
        api_fail(e, 400, "unsupported_model", "model", "this model generates no text");
    else if (n == 0)
        api_fail(e, 400, NULL, param, "the prompt is empty");
    else if (n >= (size_t)s->n_context)
        api_fail(e, 400, "context_length_exceeded", param,
                 "the prompt has %zu tokens; the context has room for %d, the answer included", n,
                 (int)s->n_context);
    return !is_refused(e);
}

// The ids behind those that they continue, with the one BOS token of these. NULL: no memory, and e
// says so.
static int32_t *join(request *req, int32_t *ids, size_t *n, api_error *e) {
    const generation_prompt *before = &req->generation->before;
    const tern_model_info *info = &req->model->info;
    const size_t skip = *n && info->adds_bos && ids[0] == info->bos_id;
    int32_t *all = tern_alloc_array(TERN_MEM_SESSION, before->n_ids + *n, sizeof *all);
    if (all) {
        memcpy(all, before->ids, before->n_ids * sizeof *all);
        memcpy(all + before->n_ids, ids + skip, (*n - skip) * sizeof *all);
        *n += before->n_ids - skip;
    } else {
        api_fail_memory(e);
    }
    tern_free(ids);
    return all;
}

void generation_add_prompt(request *req, int32_t *ids, size_t n, const char *param, api_error *e) {
    generation *a = req->generation;
    if (a->before.n_ids && !(ids = join(req, ids, &n, e))) return;
    if (a->n_last && n > a->n_last) {
        memmove(ids, ids + n - a->n_last, a->n_last * sizeof *ids);
        n = a->n_last;
    }
    generation_prompt *grown = NULL;
    if (a->n_prompts >= req->server->desc->n_queue + req->server->desc->n_parallel)
        api_fail(e, 429, "queue_full", NULL, "that many prompts at once do not fit in the queue");
    if (fits(req->model, n, param, e)) {
        grown = tern_realloc(TERN_MEM_SESSION, a->prompts, (a->n_prompts + 1) * sizeof *a->prompts);
        if (!grown) api_fail_memory(e);
    }
    if (!grown) {
        tern_free(ids);
        return;
    }
    a->prompts = grown;
    a->prompts[a->n_prompts++] = (generation_prompt){.ids = ids, .n_ids = n};
}

void generation_add_given(request *req, int32_t *ids, size_t n, const char *param, api_error *e) {
    if (are_ids(req->model, ids, n, param, e))
        generation_add_prompt(req, ids, n, param, e);
    else
        tern_free(ids);
}

// A text that is far too long is refused before it is tokenized, which would delay all other
// requests. Some tokenizers drop blanks: hence the 4.
bool generation_may_fit(const served *s, size_t n_bytes, const char *param, api_error *e) {
    size_t most = (size_t)s->n_context * s->token_bytes * 4;
    if (!s->generates)
        api_fail(e, 400, "unsupported_model", "model", "this model generates no text");
    else if (n_bytes > most)
        api_fail(e, 400, "context_length_exceeded", param,
                 "the prompt has more than %d tokens; the context has room for %d, the answer "
                 "included",
                 (int)s->n_context, (int)s->n_context);
    return !is_refused(e);
}

void generation_add_text(request *req, tern_str text, const char *param, api_error *e) {
    size_t n;
    const text_wanted wanted = {.text = text,
                                .flags = TERN_TOKENIZE_SPECIAL |
                                         (req->generation->is_bare ? 0u : TERN_TOKENIZE_BOS)};
    if (is_refused(e) || !generation_may_fit(req->model, text.len, param, e)) return;
    prefix_hash_take_text(req, text);
    int32_t *ids = read_tokens(req, &wanted, 0, &n, param, e);
    if (ids) generation_add_prompt(req, ids, n, param, e);
}

static int32_t *read_ids(const fields *f, const tern_json *array) {
    size_t n = 0;
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, array->n, sizeof *ids);
    if (!ids) api_fail_memory(f->error);
    for (const tern_json *item = ids ? tern_json_first(f->doc, array) : NULL; item;
         item = tern_json_next(f->doc, array, item)) {
        int64_t id = tern_json_int(item, -1);
        ids[n++] = id <= INT32_MAX ? (int32_t)id : -1;
    }
    return ids;
}

void generation_read_before(request *req, const fields *f, const char *name) {
    generation_prompt *before = &req->generation->before;
    const tern_json *array = field_array(f, name);
    if (!array || !array->n || f->error->status) return;
    before->ids = read_ids(f, array);
    if (before->ids && are_ids(req->model, before->ids, array->n, name, f->error))
        before->n_ids = array->n;
}

void generation_add_ids(request *req, const fields *f, const tern_json *array, const char *param) {
    if (f->error->status) return;
    int32_t *ids = read_ids(f, array);
    if (ids) generation_add_given(req, ids, array->n, param, f->error);
}
