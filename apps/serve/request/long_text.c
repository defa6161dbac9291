#include "apps/serve/request/long_text.h"
#include "apps/serve/request/answer_forms.h"
#include "apps/serve/request/away.h"

#include <string.h>
#include "base/alloc.h"

#define LATER (-1) // api_error.status

typedef struct long_text { // and its tokens
    struct long_text *next;
    char *text;
    size_t n_text;
    unsigned flags;
    bool is_chat;
    images images;
    tern_image_tokens **image_tokens; // [images.n] held until the answer is over
    tern_strbuf end;                  // of the rendered text
    const char *param;
    int32_t *ids; // NULL: the error
    size_t n_ids;
    api_error error;
} long_text;

typedef struct long_texts { // tokenized together
    task task;
    served *model;
    long_text *first, **end;
    format_wanted grammar;    // a grammar to be compiled with them
    bool has_grammar, is_new; // is_new: it is not in the model's list yet
    shared_grammar *opened;   // NULL: the error
    api_error error;
} long_texts;

bool is_refused(const api_error *e) { return e->status != 0 && e->status != LATER; }

static void free_list(long_text *list) {
    for (long_text *next; list; list = next) {
        next = list->next;
        for (size_t i = 0; list->image_tokens && i < list->images.n; i++)
            tern_image_tokens_close(list->image_tokens[i]);
        tern_free(list->image_tokens);
        images_free_copy(&list->images);
        tern_free(list->text);
        tern_strbuf_free(&list->end);
        tern_free(list->ids);
        tern_free(list);
    }
}

// ---- Reading -----------------------------------------------------------------------------------

int32_t *read_text(const served *s, const text_wanted *t, size_t n_more, size_t *n,
                   const char *param, api_error *e) {
    const tern_str text = t->text;
    tern_error err = {0};
    // A text has at most as many tokens as bytes, besides the special tokens around it.
    tern_ids list = {.capacity = text.len + 16};
    list.ids = tern_alloc_array(TERN_MEM_SESSION, list.capacity + n_more, sizeof *list.ids);
    if (!list.ids)
        api_fail_memory(e);
    else if (tern_tokenize(s->model, text.ptr, text.len, t->flags, &list, &err) != TERN_OK)
        api_fail_status(e, &err, param);
    *n = list.n;
    if (list.ids && !e->status && list.n <= list.capacity) return list.ids;
    tern_free(list.ids);
    return NULL;
}

static bool append(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

void render_chat(const served *s, tern_str conversation, tern_strbuf *out, const char *param,
                 api_error *e) {
    tern_error err = {0};
    if (tern_chat_format_json(s->model, conversation.ptr, conversation.len, append, out, &err) !=
        TERN_OK)
        api_fail_status(e, &err, err.status == TERN_ERR_UNSUPPORTED ? "tools" : param);
    else if (out->failed)
        api_fail_memory(e);
}

#define END_BYTES 64 // of a rendered text: enough to see its end

// Most templates write the BOS token; if one does not, it is added.
static int32_t *read_chat(const served *s, const text_wanted *t, size_t n_more, size_t *n,
                          const char *param, api_error *e) {
    tern_strbuf text = {0};
    int32_t *ids = NULL;
    render_chat(s, t->text, &text, param, e);
    const tern_str all = {tern_strbuf_text(&text), text.len};
    text_wanted rendered = {.text = all, .flags = TERN_TOKENIZE_SPECIAL};
    if (!e->status) ids = read_text(s, &rendered, n_more, n, param, e);
    if (ids && s->info.adds_bos && (*n == 0 || ids[0] != s->info.bos_id)) {
        tern_free(ids);
        rendered.flags |= TERN_TOKENIZE_BOS;
        ids = read_text(s, &rendered, n_more, n, param, e);
    }
    size_t n_end = all.len < END_BYTES ? all.len : END_BYTES;
    if (t->end) tern_strbuf_append(t->end, all.ptr + all.len - n_end, n_end);
    tern_strbuf_free(&text);
    return ids;
}

// Puts the images' rows at their placeholders in the prompt.
static int32_t *place_images(const served *s, const long_text *t, int32_t *ids, size_t *n,
                             api_error *e) {
    tern_error err = {0};
    size_t n_all = *n, each;
    for (size_t i = 0; i < t->images.n; i++) {
        tern_image_tokens_ids(t->image_tokens[i], &each);
        n_all += each;
    }
    const tern_ids prompt = {ids, *n, *n};
    tern_ids all = {.capacity = n_all};
    all.ids = tern_alloc_array(TERN_MEM_SESSION, n_all, sizeof *all.ids);
    if (!all.ids)
        api_fail_memory(e);
    else if (tern_image_tokens_place(s->model, &prompt, t->image_tokens, t->images.n, &all, &err) !=
             TERN_OK)
        api_fail_status(e, &err, t->param);
    tern_free(ids);
    *n = all.n;
    if (!e->status) return all.ids;
    tern_free(all.ids);
    return NULL;
}

static bool see_images(const served *s, task *by, long_text *t) {
    t->image_tokens = tern_alloc_array(TERN_MEM_SESSION, t->images.n, sizeof *t->image_tokens);
    if (!t->image_tokens) api_fail_memory(&t->error);
    return t->image_tokens && images_see(&t->images, s, by, t->image_tokens, t->param, &t->error);
}

static int32_t *read_now(const served *s, const text_wanted *t, size_t n_more, size_t *n,
                         const char *param, api_error *e) {
    if (t->is_chat) return read_chat(s, t, n_more, n, param, e);
    return read_text(s, t, n_more, n, param, e);
}

// On the task's thread.
static void run(task *e) {
    long_texts *l = (long_texts *)e;
    for (long_text *t = l->first; t && task_pause(e); t = t->next) {
        const text_wanted wanted = {
            .text = {t->text, t->n_text}, .flags = t->flags, .is_chat = t->is_chat, .end = &t->end};
        if (t->images.n && !see_images(l->model, e, t)) continue;
        t->ids = read_now(l->model, &wanted, 0, &t->n_ids, t->param, &t->error);
        if (t->ids && t->images.n) t->ids = place_images(l->model, t, t->ids, &t->n_ids, &t->error);
    }
    if (l->has_grammar && !l->opened && !tern_cancel_is_requested(&e->cancel)) {
        l->opened = format_open(l->model, &l->grammar, &l->error);
        l->is_new = true;
    }
}

// ---- Later -------------------------------------------------------------------------------------

static void free_texts(long_texts *l) {
    if (!l) return;
    free_list(l->first);
    tern_strbuf_free(&l->grammar.text);
    tern_strbuf_free(&l->grammar.tool);
    tern_strbuf_free(&l->grammar.tools);
    shared_grammar_release(l->opened);
    tern_free(l);
}

static void keep_grammar(request *req, long_texts *l) {
    if (l->opened) {
        req->known_grammar = shared_grammar_hold(l->opened);
    } else if ((req->grammar_error = tern_alloc(TERN_MEM_SESSION, sizeof *req->grammar_error))) {
        *req->grammar_error = l->error;
        if (!l->error.status) api_fail_full(req->grammar_error); // it never ran
    }
}

static void done(task *e) {
    long_texts *l = (long_texts *)e;
    request *req = e->user;
    if (l->opened && l->is_new) formats_add(l->model, l->opened);
    if (req && l->has_grammar) keep_grammar(req, l);
    if (req) {
        long_text **end = &req->known;
        while (*end) end = &(*end)->next;
        *end = l->first;
        l->first = NULL;
        req->next_known = req->known;
        req->n_read = 0;
        req->task = NULL;
        generation_free(req->generation);
        req->generation = NULL;
        request_handle(req);
    }
    served *model = l->model;
    free_texts(l); // images before their model
    registry_release(model);
}

// A copy: the request may have been freed.
static long_text *copy_wanted(const text_wanted *t, const char *param, api_error *e) {
    long_text *own = tern_alloc(TERN_MEM_SESSION, sizeof *own);
    if (!own) {
        api_fail_memory(e);
        return NULL;
    }
    own->flags = t->flags;
    own->is_chat = t->is_chat;
    own->param = param;
    own->n_text = t->text.len;
    own->text = tern_strndup(TERN_MEM_SESSION, t->text.ptr, t->text.len);
    if (own->text && (!t->images || images_copy(&own->images, t->images))) return own;
    api_fail_memory(e);
    free_list(own);
    return NULL;
}

static long_texts *later_of(request *req) {
    if (!req->later && (req->later = tern_alloc(TERN_MEM_SESSION, sizeof *req->later))) {
        req->later->task.run = run;
        req->later->task.done = done;
        req->later->model = req->model;
        req->later->end = &req->later->first;
    }
    return req->later;
}

static void put_off(request *req, const text_wanted *t, const char *param, api_error *e) {
    api_error failed = {0};
    long_text *own = later_of(req) ? copy_wanted(t, param, &failed) : NULL;
    if (own) {
        *req->later->end = own;
        req->later->end = &own->next;
        api_fail(e, LATER, NULL, param, "later");
        return;
    }
    *e = (api_error){0};
    api_fail_memory(e);
}

static void begin(request *req) {
    long_texts *l = req->later;
    bool sees = false; // images take seconds, for which no text should wait
    for (const long_text *t = l->first; t; t = t->next) sees |= t->images.n > 0;
    if (l->has_grammar) l->opened = formats_find(l->model, &l->grammar);
    req->later = NULL;
    request_run(req, sees ? req->server->tasks : req->server->readers, &l->task, l->model);
}

bool long_text_begin(request *req, const api_error *e) {
    if (e->status != LATER) return false;
    request_then(req, begin);
    return true;
}

void long_text_free(request *req) {
    free_list(req->known);
    free_texts(req->later);
    shared_grammar_release(req->known_grammar);
    tern_free(req->grammar_error);
}

// ---- Asking ------------------------------------------------------------------------------------

static int32_t *take_known(request *req, tern_strbuf *end, size_t n_more, size_t *n, api_error *e) {
    const long_text *t = req->next_known;
    req->next_known = t->next;
    if (!t->ids) {
        *e = t->error;
        return NULL;
    }
    int32_t *ids = tern_alloc_array(TERN_MEM_SESSION, t->n_ids + n_more, sizeof *ids);
    if (!ids) {
        api_fail_memory(e);
        return NULL;
    }
    if (t->n_ids) memcpy(ids, t->ids, t->n_ids * sizeof *ids);
    *n = t->n_ids;
    if (end) tern_strbuf_append(end, tern_strbuf_text(&t->end), t->end.len);
    return ids;
}

// A grammar is never compiled here: with a large vocabulary or a hostile schema this takes long.
shared_grammar *read_grammar(request *req, const format_wanted *w, api_error *e) {
    if (req->grammar_error) {
        *e = *req->grammar_error;
        return NULL;
    }
    if (req->known_grammar) return shared_grammar_hold(req->known_grammar);
    // Only the loop's thread uses the list; it searches it when this is submitted.
    shared_grammar *g = req->is_away ? NULL : formats_find(req->model, w);
    if (g) return g;
    long_texts *l = later_of(req);
    if (!l || !format_copy(&l->grammar, w)) {
        api_fail_memory(e);
        return NULL;
    }
    l->has_grammar = true;
    api_fail(e, LATER, NULL, w->param, "later");
    return NULL;
}

int32_t *read_tokens(request *req, const text_wanted *t, size_t n_more, size_t *n,
                     const char *param, api_error *e) {
    if (is_refused(e)) return NULL;
    req->n_read += t->text.len;
    bool sees = t->images && t->images->n > 0;
    bool is_now = req->is_away || req->n_read <= LONG_TEXT;
    if (is_now && !sees) return read_now(req->model, t, n_more, n, param, e);
    if (req->next_known) return take_known(req, t->end, n_more, n, e);
    put_off(req, t, param, e);
    return NULL;
}
