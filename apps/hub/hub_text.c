// Small texts from servers: a hub's listing, the models that a server has in memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "apps/hub/hub_private.h"
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/status.h"

#define TEXT_MOST ((size_t)64 << 20)

typedef struct text_fetch {
    tern_strbuf *text;
    bool (*on_wait)(void *user);
    void *user;
} text_fetch;

static bool text_begins(void *user, uint64_t from, tern_error *err) {
    text_fetch *t = user;
    (void)from;
    (void)err;
    tern_strbuf_clear(t->text);
    return true;
}

static bool text_comes(void *user, const void *bytes, size_t n, tern_error *err) {
    text_fetch *t = user;
    tern_strbuf_append(t->text, bytes, n);
    if (t->text->failed)
        tern_fail_memory(err, n);
    else if (t->text->len > TEXT_MOST)
        tern_fail(err, TERN_ERR_FORMAT, "the answer has no end");
    else
        return true;
    return false;
}

static bool text_waits(void *user) {
    text_fetch *t = user;
    return !t->on_wait || t->on_wait(t->user);
}

tern_status hub_get(const char *url, const char *token, bool (*on_wait)(void *user), void *user,
                    tern_strbuf *text, hub_reply *reply, tern_error *err) {
    text_fetch t = {text, on_wait, user};
    const hub_request r = {.url = url,
                           .token = token,
                           .on_begin = text_begins,
                           .on_bytes = text_comes,
                           .on_wait = text_waits,
                           .user = &t};
    return hub_fetch(&r, reply, err);
}

// ---- What a server has in memory ---------------------------------------------------------------

void hub_running_free(hub_running *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        tern_free(list[i].name);
        tern_free(list[i].until);
    }
    tern_free(list);
}

static char *text_of(const tern_json_doc *doc, const tern_json *object, const char *key) {
    tern_str s = tern_json_str(tern_json_get(doc, object, key));
    return tern_strndup(TERN_MEM_MISC, s.ptr ? s.ptr : "", s.len);
}

static uint64_t bytes_of(const tern_json_doc *doc, const tern_json *object, const char *key) {
    int64_t n = tern_json_int(tern_json_get(doc, object, key), 0);
    return n > 0 ? (uint64_t)n : 0;
}

static tern_status read_running(hub_running **list, size_t *n, const tern_json_doc *doc,
                                const char *server, tern_error *err) {
    const tern_json *models = tern_json_get(doc, tern_json_root(doc), "models");
    if (!tern_json_is(models, TERN_JSON_ARRAY))
        return tern_fail(err, TERN_ERR_FORMAT, "%s: it does not say which models it has", server);
    *list = tern_alloc_array(TERN_MEM_MISC, models->n, sizeof **list);
    if (!*list) return tern_fail_memory(err, models->n * sizeof **list);
    for (const tern_json *m = tern_json_first(doc, models); m; m = tern_json_next(doc, models, m)) {
        hub_running *r = &(*list)[(*n)++];
        *r = (hub_running){.name = text_of(doc, m, "name"),
                           .until = text_of(doc, m, "expires_at"),
                           .bytes = bytes_of(doc, m, "size"),
                           .device_bytes = bytes_of(doc, m, "size_vram"),
                           .n_context = (int64_t)bytes_of(doc, m, "context_length")};
        if (!r->name || !r->until) return tern_fail_memory(err, 0);
        const size_t length = strlen(r->name), tag = strlen(":latest");
        if (length > tag && !strcmp(r->name + length - tag, ":latest")) r->name[length - tag] = 0;
        if (!strncmp(r->until, "9999", 4)) r->until[0] = 0; // servers write this for "never"
    }
    return TERN_OK;
}

tern_status hub_ask_running(hub_running **list, size_t *n, const char *server, const char *key,
                            tern_error *err) {
    tern_strbuf url = {0}, text = {0};
    tern_json_doc doc = {0};
    hub_reply reply;
    size_t length = strlen(server);
    *list = NULL;
    *n = 0;
    while (length > 0 && server[length - 1] == '/') length--;
    tern_strbuf_printf(&url, "%.*s/api/ps", (int)length, server);
    tern_status status = url.failed ? tern_fail_memory(err, length) : TERN_OK;
    if (status == TERN_OK) status = hub_get(url.ptr, key, NULL, NULL, &text, &reply, err);
    if (status == TERN_OK) status = tern_json_parse(&doc, tern_strbuf_text(&text), text.len, err);
    if (status == TERN_OK) status = read_running(list, n, &doc, server, err);
    if (status != TERN_OK) {
        hub_running_free(*list, *n);
        *list = NULL;
        *n = 0;
    }
    tern_json_free(&doc);
    tern_strbuf_free(&text);
    tern_strbuf_free(&url);
    return status;
}
