// Conversations: messages become tokens that fit a context, and an answer continues when the
// context is full.
//
// A turn begins with a user's message and ends before the next one. If a conversation does not fit,
// whole turns are left out, the oldest first; the system text at the beginning and the newest turn
// always stay. How much is left out depends on the messages alone and moves in steps of a quarter
// of the context: while a conversation grows, the text that the model reads keeps the same
// beginning for many turns, so its keys and values need not be computed again.
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/json/json_write.h"
#include "base/json/part_type.h"
#include "session/session.h"

// A message, and how many images of the conversation come before its own.
typedef struct turn_part {
    bool is_system, is_user;
    size_t first_image, n_images;
    const tern_json *value; // of a request
} turn_part;

// A conversation and which of its messages the model reads: the first n_system, and those from
// `first` on. `last` is where the newest turn begins.
typedef struct reading {
    const tern_model *model;
    size_t n_messages, n_system, first, last, n_images;
    turn_part *parts;             // [n_messages]
    tern_image_tokens **images;   // [n_images]
    const tern_message *messages; // or
    tern_message *kept;           // [n_messages] room for the rendered ones
    tern_json_doc request;
    bool is_request;
} reading;

static tern_status check_images(const tern_message *messages, size_t n, tern_error *err) {
    for (size_t i = 0; i < n; i++) {
        TERN_NEED_ARRAY(messages[i].images, messages[i].n_images);
        for (size_t k = 0; k < messages[i].n_images; k++) TERN_NEED(messages[i].images[k]);
    }
    return TERN_OK;
}

// Room for n messages and their images.
static tern_status make_parts(reading *r, size_t n, size_t n_images, tern_error *err) {
    if (n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "the chat has no messages");
    r->n_messages = n;
    r->parts = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->parts);
    r->images = tern_alloc_array(TERN_MEM_MISC, n_images + 1, sizeof *r->images);
    if (!r->parts || !r->images)
        return tern_fail_memory(err, n * sizeof *r->parts + n_images * sizeof *r->images);
    r->n_images = n_images;
    return TERN_OK;
}

static void set_role(turn_part *p, tern_str role) {
    p->is_user = tern_str_is(role, "user");
    p->is_system = tern_str_is(role, "system") || tern_str_is(role, "developer");
}

static void find_turns(reading *r) {
    const size_t n = r->n_messages;
    while (r->n_system < n && r->parts[r->n_system].is_system) r->n_system++;
    r->first = r->last = r->n_system;
    for (size_t i = r->n_system; i < n; i++)
        if (r->parts[i].is_user) r->last = i;
}

static tern_status open_reading(reading *r, const tern_model *model, const tern_message *messages,
                                size_t n, tern_error *err) {
    *r = (reading){.model = model, .messages = messages};
    if (!model || (!messages && n))
        return tern_fail(err, TERN_ERR_ARGUMENT, "a chat without a model or messages");
    TERN_TRY(check_images(messages, n, err));
    size_t n_images = 0, at = 0;
    for (size_t i = 0; i < n; i++) n_images += messages[i].n_images;
    TERN_TRY(make_parts(r, n, n_images, err));
    for (size_t i = 0; i < n; i++) {
        const char *role = messages[i].role ? messages[i].role : "";
        r->parts[i] = (turn_part){.first_image = at, .n_images = messages[i].n_images};
        set_role(&r->parts[i], (tern_str){role, strlen(role)});
        for (size_t k = 0; k < messages[i].n_images; k++) r->images[at++] = messages[i].images[k];
    }
    find_turns(r);
    r->kept = tern_alloc_array(TERN_MEM_MISC, n, sizeof *r->kept);
    return r->kept ? TERN_OK : tern_fail_memory(err, n * sizeof *r->kept);
}

static size_t count_images(const tern_json_doc *doc, const tern_json *content) {
    size_t n = 0;
    if (!tern_json_is(content, TERN_JSON_ARRAY)) return 0;
    for (const tern_json *part = tern_json_first(doc, content); part;
         part = tern_json_next(doc, content, part)) {
        n += tern_part_is_image(tern_json_str(tern_json_get(doc, part, "type")));
    }
    return n;
}

static tern_status take_request(reading *r, const tern_chat_request *q, tern_error *err) {
    const tern_json_doc *doc = &r->request;
    TERN_TRY(tern_json_parse(&r->request, q->json, q->n_bytes, err));
    const tern_json *list = tern_json_get(doc, tern_json_root(doc), "messages");
    if (!tern_json_is(list, TERN_JSON_ARRAY))
        return tern_fail(err, TERN_ERR_ARGUMENT, "the request has no \"messages\"");
    TERN_TRY(make_parts(r, list->n, q->n_images, err));
    size_t i = 0, n_images = 0;
    for (const tern_json *m = tern_json_first(doc, list); m; m = tern_json_next(doc, list, m)) {
        turn_part *p = &r->parts[i++];
        *p = (turn_part){.value = m, .first_image = n_images};
        set_role(p, tern_json_str(tern_json_get(doc, m, "role")));
        p->n_images = count_images(doc, tern_json_get(doc, m, "content"));
        n_images += p->n_images;
    }
    if (n_images != q->n_images)
        return tern_fail(err, TERN_ERR_ARGUMENT, "the messages have %zu images, and %zu are given",
                         n_images, q->n_images);
    if (n_images) memcpy(r->images, q->images, n_images * sizeof *r->images);
    find_turns(r);
    return TERN_OK;
}

static tern_status open_request(reading *r, const tern_model *model, const tern_chat_request *q,
                                tern_error *err) {
    *r = (reading){.model = model, .is_request = true};
    TERN_NEED_EACH(q->images, q->n_images);
    tern_status status = take_request(r, q, err);
    return status == TERN_ERR_FORMAT ? tern_fail_prefix(err, status, "the request") : status;
}

static void close_reading(reading *r) {
    tern_json_free(&r->request);
    tern_free(r->parts);
    tern_free(r->images);
    tern_free(r->kept);
}

// Where the turn after the one at `first` begins. Never goes past the newest turn.
static size_t next_turn(const reading *r, size_t first) {
    if (first >= r->last) return r->last;
    for (first++; first < r->last && !r->parts[first].is_user;) first++;
    return first;
}

static bool collect(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

tern_status tern_chat_encode(const tern_tokenizer *t, tern_str text, tern_ids *out,
                             tern_error *err) {
    unsigned flags = TERN_TOKENIZE_SPECIAL;
    out->n = 0;
    TERN_TRY(tern_tokenizer_encode(t, text.ptr, text.len, flags, out, err));
    bool has_bos = out->n > 0 && out->ids[0] == tern_tokenizer_bos(t);
    if (!tern_tokenizer_adds_bos(t) || has_bos) return TERN_OK;
    out->n = 0;
    return tern_tokenizer_encode(t, text.ptr, text.len, flags | TERN_TOKENIZE_BOS, out, err);
}

static bool is_read(const reading *r, size_t i, size_t first) {
    return i < r->n_system || i >= first;
}

// The text that the model reads.
static tern_status render(reading *r, size_t first, tern_strbuf *text, tern_error *err) {
    size_t n = r->n_system, n_rest = r->n_messages - first;
    memcpy(r->kept, r->messages, n * sizeof *r->kept);
    memcpy(r->kept + n, r->messages + first, n_rest * sizeof *r->kept);
    return tern_chat_format(r->model, r->kept, n + n_rest, collect, text, err);
}

static tern_status render_request(const reading *r, size_t first, tern_strbuf *text,
                                  tern_error *err) {
    const tern_json_doc *doc = &r->request;
    const tern_json *root = tern_json_root(doc);
    tern_strbuf json = {0};
    tern_json_writer w = {.out = &json};
    tern_json_open(&w, NULL, '{');
    for (const tern_json *key = tern_json_first(doc, root); key;
         key = tern_json_next(doc, root, key))
        if (!tern_str_is(tern_json_str(key), "messages"))
            tern_json_put_member(&w, tern_json_str(key), doc, tern_json_value_of(doc, key));
    tern_json_open(&w, "messages", '[');
    for (size_t i = 0; i < r->n_messages; i++)
        if (is_read(r, i, first)) tern_json_put_value(&w, NULL, doc, r->parts[i].value);
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    tern_status status =
        json.failed ? tern_fail_memory(err, json.len)
                    : tern_chat_format_json(r->model, json.ptr, json.len, collect, text, err);
    tern_strbuf_free(&json);
    return status;
}

// Puts the images of what is read where the tokens have their placeholders.
static tern_status place_images(const reading *r, size_t first, tern_ids *ids, tern_error *err) {
    size_t n_images = 0, n_all = ids->n, n_rows;
    if (r->n_images == 0) return TERN_OK;
    tern_ids all = {0};
    tern_image_tokens **images = tern_alloc_array(TERN_MEM_MISC, r->n_images, sizeof *images);
    if (!images) return tern_fail_memory(err, r->n_images * sizeof *images);
    for (size_t i = 0; i < r->n_messages; i++)
        for (size_t k = 0; is_read(r, i, first) && k < r->parts[i].n_images; k++) {
            images[n_images] = r->images[r->parts[i].first_image + k];
            tern_image_tokens_ids(images[n_images++], &n_rows);
            n_all += n_rows;
        }
    if (n_images == 0) {
        tern_free(images);
        return TERN_OK;
    }
    tern_status status = TERN_OK;
    if (tern_array_reserve(TERN_MEM_MISC, &all.ids, &all.capacity, 0, n_all) != 0)
        status = tern_fail_memory(err, n_all * sizeof *all.ids);
    if (status == TERN_OK)
        status = tern_image_tokens_place(r->model, ids, images, n_images, &all, err);
    tern_free(images);
    tern_free(ids->ids);
    *ids = all;
    return status;
}

// The tokens that the model reads if it begins at the message `first`.
static tern_status read_from(reading *r, size_t first, tern_ids *out, tern_error *err) {
    tern_strbuf text = {0};
    tern_status status =
        r->is_request ? render_request(r, first, &text, err) : render(r, first, &text, err);
    if (status == TERN_OK && text.failed) status = tern_fail_memory(err, text.len);
    if (status == TERN_OK)
        status = tern_chat_encode(r->model->tokenizer,
                                  (tern_str){tern_strbuf_text(&text), text.len}, out, err);
    if (status == TERN_OK) status = place_images(r, first, out, err);
    tern_strbuf_free(&text);
    return status;
}

// Moves r->first to the first turn from which at most n_most tokens remain, else to the newest
// turn; *out gets them. Bisects, since each try renders all the messages in question.
static tern_status drop_turns(reading *r, size_t n_most, tern_ids *out, tern_error *err) {
    size_t low = r->first, high = r->last; // the turn lies in low..high
    while (low < high) {
        size_t middle = low + (high - low) / 2, turn = low;
        for (size_t t = low; t <= middle && t < high; t = next_turn(r, t)) turn = t;
        TERN_TRY(read_from(r, turn, out, err));
        if (out->n <= n_most)
            high = turn;
        else
            low = next_turn(r, turn);
    }
    r->first = high;
    return read_from(r, high, out, err);
}

// Tokens that an answer needs at least: with less room, the answer's own tokens would be dropped
// next.
static size_t least_room(size_t n_context) {
    size_t eighth = n_context / 8;
    return eighth > 64 ? 64 : eighth > 0 ? eighth : 1;
}

static size_t dropped(const reading *r) { return r->first - r->n_system; }

static tern_status fit(reading *r, size_t n_context, size_t n_answer, tern_ids *out,
                       tern_error *err) {
    TERN_TRY(read_from(r, r->first, out, err));
    if (n_context == 0) return TERN_OK;
    size_t quarter = n_context / 4, room = n_answer > 0 && n_answer < quarter ? n_answer : quarter;
    if (room < least_room(n_context)) room = least_room(n_context);
    size_t n_most = n_context - room, n_all = out->n;
    if (n_all > n_most && quarter > 0) {
        size_t excess = (n_all - n_most + quarter - 1) / quarter * quarter;
        TERN_TRY(drop_turns(r, excess < n_all ? n_all - excess : 0, out, err));
    }
    if (out->n <= n_context - least_room(n_context)) return TERN_OK;
    return tern_fail(err, TERN_ERR_CONTEXT_FULL,
                     "the newest message%s %zu tokens, too many for a context of %zu",
                     r->n_system ? " and the system text have" : " has", out->n, n_context);
}

static tern_status check_limits(const tern_chat_limits *most, tern_error *err) {
    if (most->n_context >= 0 && most->n_answer >= 0) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s is %d: expected 1 or more, or 0",
                     most->n_context < 0 ? "n_context" : "n_answer",
                     (int)(most->n_context < 0 ? most->n_context : most->n_answer));
}

static tern_status give_tokens(reading *r, const tern_chat_limits *most, tern_ids *out,
                               tern_error *err) {
    tern_ids list = {0};
    tern_status status = fit(r, (size_t)most->n_context, (size_t)most->n_answer, &list, err);
    if (status == TERN_OK) tern_ids_give(out, list.ids, list.n);
    if (status == TERN_OK && most->n_dropped) *most->n_dropped = dropped(r);
    tern_free(list.ids);
    return status;
}

tern_status tern_chat_tokens(const tern_model *model, const tern_message *messages,
                             size_t n_messages, const tern_chat_limits *limits, tern_ids *out,
                             tern_error *err) {
    tern_clear(err);
    reading r;
    const tern_chat_limits most = limits ? *limits : (tern_chat_limits){0};
    TERN_NEED(out);
    TERN_NEED_ARRAY(out->ids, out->capacity);
    out->n = 0;
    TERN_TRY(check_limits(&most, err));
    tern_status status = open_reading(&r, model, messages, n_messages, err);
    if (status == TERN_OK) status = give_tokens(&r, &most, out, err);
    close_reading(&r);
    return status;
}

tern_status tern_chat_tokens_json(const tern_model *model, const tern_chat_request *request,
                                  const tern_chat_limits *limits, tern_ids *out, tern_error *err) {
    tern_clear(err);
    reading r;
    const tern_chat_limits most = limits ? *limits : (tern_chat_limits){0};
    TERN_NEED(model);
    TERN_NEED(request);
    TERN_NEED(request->json);
    TERN_NEED(out);
    TERN_NEED_ARRAY(out->ids, out->capacity);
    out->n = 0;
    TERN_TRY(check_limits(&most, err));
    tern_status status = open_request(&r, model, request, err);
    if (status == TERN_OK) status = give_tokens(&r, &most, out, err);
    close_reading(&r);
    return status;
}

// ---- Answers -----------------------------------------------------------------------------------

typedef struct answering {
    reading r;
    size_t n_context, n_cut; // n_cut: tokens of the answer's own beginning that were left out
} answering;

// The context is full in the middle of an answer: drop older turns until a quarter is free again;
// when there are none left, half of the remaining room goes to the newest part of the answer.
static tern_status make_room(void *user, const int32_t *said, size_t n_said, tern_ids *out,
                             tern_error *err) {
    answering *a = user;
    size_t n_most = a->n_context - a->n_context / 4, n_kept = n_said;
    if (n_most >= a->n_context) n_most = a->n_context - 1;
    TERN_TRY(drop_turns(&a->r, n_said < n_most ? n_most - n_said : 0, out, err));
    size_t room = out->n < a->n_context ? a->n_context - out->n : 0;
    if (n_said >= room) n_kept = room / 2;
    a->n_cut = n_said - n_kept;
    if (tern_array_reserve(TERN_MEM_MISC, &out->ids, &out->capacity, out->n, n_kept + 1) != 0)
        return tern_fail_memory(err, (out->n + n_kept) * sizeof *out->ids);
    if (n_kept) memcpy(out->ids + out->n, said + n_said - n_kept, n_kept * sizeof *said);
    out->n += n_kept;
    return TERN_OK;
}

#define ANSWER_CONTEXTS 10 // a model that never ends is stopped after this many contexts

tern_status tern_chat_answer(tern_session *session, const tern_message *messages, size_t n_messages,
                             const tern_generate_params *params, tern_chat_stats *stats,
                             tern_error *err) {
    tern_clear(err);
    answering a = {0};
    tern_ids prompt = {0};
    tern_generate_params p = params ? *params : (tern_generate_params){0};
    tern_chat_stats st = {0};
    if (!session) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chat_answer: NULL argument");
    TERN_TRY(tern_session_check_idle(session, err));
    if (p.max_tokens < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "max_tokens is %d: expected 1 or more, or 0",
                         (int)p.max_tokens);
    if (p.append)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "append: the messages are the whole conversation, not what follows it");
    tern_session_call call;
    tern_session_enter(&call, session);
    a.n_context = (size_t)session->n_context;
    int64_t most = (int64_t)session->n_context * ANSWER_CONTEXTS;
    size_t n_answer = p.max_tokens > 0 ? (size_t)p.max_tokens : 0;
    if (p.max_tokens == 0) p.max_tokens = most < INT32_MAX ? (int32_t)most : INT32_MAX;
    tern_status status = open_reading(&a.r, session->model, messages, n_messages, err);
    if (status == TERN_OK) status = fit(&a.r, a.n_context, n_answer, &prompt, err);
    const tern_refit refit = {make_room, &a};
    if (status == TERN_OK)
        status = tern_generate_refit(session, prompt.ids, prompt.n, &p, &refit, &st.generate, err);
    if (status == TERN_OK) st.n_dropped = dropped(&a.r);
    st.n_cut = a.n_cut;
    if (stats) *stats = st;
    tern_session_leave(&call);
    tern_free(prompt.ids);
    close_reading(&a.r);
    return status;
}
