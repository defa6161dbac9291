// Conversations: messages as interfaces send them, rendered by the model's template into prompts.
#include <string.h>
#include "apps/serve/request/long_text.h"
#include "apps/serve/request/request_sounds.h"
#include "base/alloc.h"
#include "base/json/part_type.h"

// More than any conversation has. They are assembled on the loop's thread: this many take some
// milliseconds.
#define MESSAGES_MAX 16384

bool messages_add(messages *m, tern_str role, tern_str content, const char *param, api_error *e) {
    if (e->status) return false;
    if (m->n == MESSAGES_MAX) {
        api_fail(e, 400, NULL, param, "there are more than %d messages", MESSAGES_MAX);
        return false;
    }
    if (memchr(role.ptr ? role.ptr : "", 0, role.len) ||
        memchr(content.ptr ? content.ptr : "", 0, content.len)) {
        api_fail(e, 400, NULL, param, "a message with a zero byte");
        return false;
    }
    if (tern_array_reserve(TERN_MEM_SESSION, &m->list, &m->capacity, m->n, 1) != 0) {
        api_fail_memory(e);
        return false;
    }
    char *a = tern_strndup(TERN_MEM_SESSION, role.ptr, role.len);
    char *b = tern_strndup(TERN_MEM_SESSION, content.ptr ? content.ptr : "", content.len);
    if (!a || !b) {
        tern_free(a);
        tern_free(b);
        api_fail_memory(e);
        return false;
    }
    m->list[m->n++] = (chat_message){.role = a, .content = b};
    return true;
}

tern_json_writer messages_more(messages *m) {
    return (tern_json_writer){.out = &m->list[m->n - 1].more, .follows = true};
}

static void drop_images(messages *m, size_t first, size_t n) {
    size_t at = 0, n_gone = 0;
    image *list = m->images.list;
    for (size_t i = 0; i < first; i++) at += m->list[i].n_images;
    for (size_t i = first; i < first + n; i++) n_gone += m->list[i].n_images;
    if (n_gone) memmove(list + at, list + at + n_gone, (m->images.n - at - n_gone) * sizeof *list);
    m->images.n -= n_gone;
    m->n_images -= n_gone;
}

void messages_drop(messages *m, size_t first, size_t n) {
    drop_images(m, first, n);
    for (size_t i = first; i < first + n; i++) {
        tern_free(m->list[i].role);
        tern_free(m->list[i].content);
        tern_strbuf_free(&m->list[i].parts);
        tern_strbuf_free(&m->list[i].more);
    }
    if (n) memmove(m->list + first, m->list + first + n, (m->n - first - n) * sizeof *m->list);
    m->n -= n;
}

void messages_free(messages *m) {
    messages_drop(m, 0, m->n);
    tern_free(m->list);
    tern_strbuf_free(&m->reasoning);
    images_free(&m->images);
    *m = (messages){0};
}

void content_read_images(const fields *f, messages *m, message_content *c, const char *param) {
    const tern_json *list = field_array(f, "images");
    for (const tern_json *item = list ? tern_json_first(f->doc, list) : NULL; item;
         item = tern_json_next(f->doc, list, item)) {
        if (!tern_json_is(item, TERN_JSON_STRING)) field_fail(f, "images", "an array of base64");
        if (f->error->status || !images_add(&m->images, tern_json_str(item), param, f->error))
            return;
        content_place_image(c);
    }
}

void content_free(message_content *c) {
    tern_strbuf_free(&c->text);
    tern_strbuf_free(&c->parts);
    *c = (message_content){0};
}

// Appends the text that is not in the parts yet as a part.
static void place_text(message_content *c) {
    tern_json_writer w = {.out = &c->parts, .follows = c->parts.len > 0};
    size_t n = c->text.len - c->n_placed;
    if (n == 0) return;
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "type", "text");
    tern_json_put_bytes(&w, "text", c->text.ptr + c->n_placed, n);
    tern_json_close(&w, '}');
    c->n_placed = c->text.len;
}

void content_place_image(message_content *c) {
    place_text(c);
    tern_strbuf_puts(&c->parts, c->parts.len ? ",{\"type\":\"image\"}" : "{\"type\":\"image\"}");
}

// On lines of its own.
static bool add_sound(message_content *c, const images *p, const tern_json *part, const char *param,
                      api_error *e) {
    const tern_str said = p ? sound_text(p->heard, part) : (tern_str){NULL, 0};
    if (!said.ptr) {
        api_fail(e, 400, "unsupported_content", param,
                 "'%s' has a recording where only the messages of a conversation have any", param);
        return false;
    }
    const bool begins_line = c->text.len == 0 || c->text.ptr[c->text.len - 1] == '\n';
    if (c->after_sound || !begins_line) tern_strbuf_putc(&c->text, '\n');
    tern_strbuf_append(&c->text, said.ptr, said.len);
    c->after_sound = true;
    return true;
}

bool content_add_part(message_content *c, images *p, const fields *f, const tern_json *item,
                      const char *param) {
    const fields part = {f->doc, item, f->prefix, f->error};
    tern_str type = tern_json_str(tern_json_get(f->doc, item, "type"));
    const bool is_refusal = tern_str_is(type, "refusal"); // the assistant's words, too
    const tern_json *text = tern_json_get(f->doc, item, is_refusal ? "refusal" : "text");
    bool is_text = tern_str_is(type, "text") || tern_str_is(type, "input_text") ||
                   tern_str_is(type, "output_text") || is_refusal;
    if (p && tern_part_is_image(type)) {
        if (!images_add_part(p, &part, param)) return false;
        content_place_image(c);
        return true;
    }
    if (sound_is_part(type)) return add_sound(c, p, item, param, f->error);
    if (is_text && tern_json_is(text, TERN_JSON_STRING)) {
        if (c->after_sound) tern_strbuf_putc(&c->text, '\n');
        c->after_sound = false;
        tern_strbuf_append(&c->text, text->text, text->n);
        return true;
    }
    api_fail(f->error, 400, "unsupported_content", param,
             "'%s' has a part of type '%.*s': the server reads %s only", param,
             type.len < 40 ? (int)type.len : 40, type.ptr ? type.ptr : "",
             p ? "texts, images and recordings" : "text");
    return false;
}

bool content_read(message_content *c, images *p, const fields *f, const tern_json *value,
                  const char *param) {
    if (tern_json_is(value, TERN_JSON_STRING)) {
        tern_strbuf_append(&c->text, value->text, value->n);
        return true;
    }
    if (!tern_json_is(value, TERN_JSON_ARRAY)) {
        api_fail(f->error, 400, NULL, param, "'%s' must be a string, or an array of parts", param);
        return false;
    }
    for (const tern_json *part = tern_json_first(f->doc, value); part;
         part = tern_json_next(f->doc, value, part))
        if (!content_add_part(c, p, f, part, param)) return false;
    return true;
}

bool messages_add_content(messages *m, tern_str role, message_content *c, const char *param,
                          api_error *e) {
    if (c->parts.len) place_text(c);
    if (c->text.failed || c->parts.failed) api_fail_memory(e);
    if (c->parts.len && !tern_str_is(role, "user") && !tern_str_is(role, "tool"))
        api_fail(e, 400, "unsupported_content", param,
                 "an image in a message of the role '%.*s': only the user's and a tool's have any",
                 role.len < 40 ? (int)role.len : 40, role.ptr);
    if (!messages_add(m, role, (tern_str){tern_strbuf_text(&c->text), c->text.len}, param, e))
        return false;
    m->list[m->n - 1].parts = c->parts;
    m->list[m->n - 1].n_images = m->images.n - m->n_images;
    m->n_images = m->images.n;
    c->parts = (tern_strbuf){0};
    return true;
}

// ---- Prompts -----------------------------------------------------------------------------------

static void put_content(tern_json_writer *w, const chat_message *m) {
    if (!m->parts.len) {
        tern_json_put_text(w, "content", m->content);
        return;
    }
    tern_json_open(w, "content", '[');
    tern_strbuf_append(w->out, m->parts.ptr, m->parts.len);
    tern_json_close(w, ']');
}

// The first n messages, with the generation's tools and switches, as tern_chat_format_json takes
// them.
static void put_request(const request *req, const messages *m, size_t n, bool generate,
                        tern_strbuf *out) {
    const generation *a = req->generation;
    tern_json_writer w = {.out = out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_bool(&w, "add_generation_prompt", generate);
    if (a->switches.len) tern_strbuf_append(out, a->switches.ptr, a->switches.len);
    if (a->tools.len) tern_json_put_raw(&w, "tools", a->tools.ptr);
    tern_json_open(&w, "messages", '[');
    for (size_t i = 0; i < n; i++) {
        tern_json_open(&w, NULL, '{');
        tern_json_put_text(&w, "role", m->list[i].role);
        put_content(&w, &m->list[i]);
        tern_strbuf_append(out, tern_strbuf_text(&m->list[i].more), m->list[i].more.len);
        out->failed |= m->list[i].more.failed;
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, ']');
    tern_json_close(&w, '}');
    out->failed |= a->tools.failed || a->switches.failed;
}

void chat_text(const request *req, const messages *m, size_t n, bool generate, tern_strbuf *out,
               api_error *e) {
    tern_strbuf conversation = {0};
    put_request(req, m, n, generate, &conversation);
    if (conversation.failed)
        api_fail_memory(e);
    else
        render_chat(req->model, (tern_str){conversation.ptr, conversation.len}, out, "messages", e);
    tern_strbuf_free(&conversation);
}

// The beginning of an answer is tokenized separately, after the words that make the model answer.
static void add_prompt(request *req, tern_str conversation, const images *p, tern_str begun,
                       api_error *e) {
    size_t n = 0, n_more = 0;
    int32_t *more = NULL;
    if (begun.len) {
        const text_wanted wanted = {.text = begun, .flags = TERN_TOKENIZE_PLAIN};
        more = read_tokens(req, &wanted, 0, &n_more, "messages", e);
    }
    const text_wanted wanted = {
        .text = conversation, .images = p, .is_chat = true, .end = &req->generation->rendered};
    int32_t *ids = read_tokens(req, &wanted, n_more, &n, "messages", e);
    if (ids && n_more) memcpy(ids + n, more, n_more * sizeof *ids);
    tern_free(more);
    tern_strbuf_append(&req->generation->rendered, begun.ptr, begun.len);
    if (ids && e->status)
        tern_free(ids); // the prompt's tokens are there, the beginning's are not
    else if (ids)
        generation_add_prompt(req, ids, n + n_more, "messages", e);
}

void generation_add_chat(request *req, messages *m, bool prefill, api_error *e) {
    tern_strbuf conversation = {0};
    size_t n = req->generation->tools.len;
    if (!e->status && m->n == (size_t)prefill)
        api_fail(e, 400, NULL, "messages", "'messages' must have at least one message");
    req->generation->sees = m->images.n > 0;
    if (m->images.n && !served_sees(req->model))
        api_fail(e, 400, "unsupported_content", "messages",
                 "there is an image, and this model reads text only");
    for (size_t i = 0; i < m->n; i++) n += strlen(m->list[i].content) + m->list[i].more.len;
    if (e->status || !generation_may_fit(req->model, n, "messages", e)) return;
    prefix_hash_take_chat(req, m);
    req->generation->takes_apart = true;
    put_request(req, m, m->n - prefill, !req->generation->is_closed, &conversation);
    const char *begun = prefill ? m->list[m->n - 1].content : "";
    if (conversation.failed)
        api_fail_memory(e);
    else
        add_prompt(req, (tern_str){conversation.ptr, conversation.len}, &m->images,
                   (tern_str){begun, strlen(begun)}, e);
    tern_strbuf_free(&conversation);
}

#define IMAGE_WEIGHT 1024 // bytes that an image counts as: it has a few hundred tokens

static size_t message_bytes(const chat_message *m) {
    return strlen(m->content) + m->more.len + m->n_images * IMAGE_WEIGHT;
}

static bool is_of(const messages *m, size_t i, const char *role) {
    return !strcmp(m->list[i].role, role);
}

// Drops at least a quarter of what may be dropped, up to a message of the user: so that however
// long a conversation is, all of its tries together read a few times its bytes. False: nothing is
// left to drop.
static bool drop_oldest(messages *m) {
    size_t first = 0, last = m->n, all = 0, dropped = 0, n = 0;
    while (first < m->n && is_of(m, first, "system")) first++;
    while (last > first && !is_of(m, last - 1, "user")) last--; // the last turn's first message
    if (last > first) last--;
    for (size_t i = first; i < last; i++) all += message_bytes(&m->list[i]);
    while (first + n < last && (n == 0 || dropped < all / 4 || !is_of(m, first + n, "user")))
        dropped += message_bytes(&m->list[first + n++]);
    messages_drop(m, first, n);
    return n > 0;
}

// Whether the prompt has filled the context, or nearly: then it is dropped.
static bool is_too_long(request *req, api_error *e) {
    generation *a = req->generation;
    const size_t most = (size_t)req->model->n_context, limit = (size_t)a->params.max_tokens;
    const size_t wanted = limit ? limit : 256, room = wanted < most / 4 ? wanted : most / 4;
    if (e->status) return e->code && !strcmp(e->code, "context_length_exceeded");
    return a->n_prompts == 1 && a->prompts[0].n_ids + room > most;
}

void generation_add_chat_cut(request *req, messages *m, bool prefill, api_error *e) {
    generation *a = req->generation;
    generation_add_chat(req, m, prefill, e);
    while (is_too_long(req, e) && drop_oldest(m)) {
        if (a->n_prompts) tern_free(a->prompts[--a->n_prompts].ids);
        tern_strbuf_clear(&a->rendered);
        *e = (api_error){0};
        generation_add_chat(req, m, prefill, e);
    }
}
