// What belongs to a preset's name goes into the request's body, in the interface's own fields: the
// system message and the sampling parameters where the request has none, other messages before the
// request's.
#include "apps/serve/preset_merge.h"

#include <string.h>
#include "apps/serve/request/long_body.h"

typedef enum place { IN_MESSAGES, IN_SYSTEM, IN_INSTRUCTIONS, NOWHERE } place;

typedef struct shape {
    const char *route;
    place system;         // where a system message is
    const char *messages; // the list of messages; NULL: none
    const char *limit;    // what "num_predict" is called
    const char *stop;     // and "stop"; NULL: there is none
    bool has_options;     // parameters are in "options"
} shape;

static const shape shapes[] = {
    {"/api/chat", IN_MESSAGES, "messages", "num_predict", "stop", true},
    {"/api/generate", IN_SYSTEM, NULL, "num_predict", "stop", true},
    {"/v1/chat/completions", IN_MESSAGES, "messages", "max_tokens", "stop", false},
    {"/chat/completions", IN_MESSAGES, "messages", "max_tokens", "stop", false},
    {"/apply-template", IN_MESSAGES, "messages", NULL, NULL, false},
    {"/v1/responses", IN_INSTRUCTIONS, "input", "max_output_tokens", NULL, false},
    {"/v1/responses/input_tokens", IN_INSTRUCTIONS, "input", NULL, NULL, false},
    {"/v1/messages", IN_SYSTEM, "messages", NULL, "stop_sequences", false},
    {"/v1/messages/count_tokens", IN_SYSTEM, "messages", NULL, NULL, false},
    {"/v1/completions", NOWHERE, NULL, "max_tokens", "stop", false},
    {"/v1/fim/completions", NOWHERE, NULL, "max_tokens", "stop", false},
    {"/completion", NOWHERE, NULL, "n_predict", "stop", false},
    {"/completions", NOWHERE, NULL, "n_predict", "stop", false},
    {"/infill", NOWHERE, NULL, "n_predict", "stop", false},
};

typedef struct merge {
    const tern_json_doc *body, *own; // the request's, the preset's
    const tern_json *root, *of;      // their objects
    const shape *shape;
    tern_json_writer w;
} merge;

static const tern_json *member(const tern_json_doc *doc, const tern_json *of, const char *name) {
    const tern_json *value = of ? tern_json_get(doc, of, name) : NULL;
    return tern_json_is(value, TERN_JSON_NULL) ? NULL : value;
}

// ---- Parameters --------------------------------------------------------------------------------

// NULL: this interface does not have it.
static const char *name_here(const merge *m, tern_str name) {
    if (tern_str_is(name, "num_predict")) return m->shape->limit;
    if (tern_str_is(name, "stop")) return m->shape->stop;
    return name.ptr;
}

static bool has_limit(const merge *m, const tern_json *in, const char *name) {
    if (member(m->body, in, name)) return true;
    return m->shape->limit && !strcmp(name, "max_tokens") &&
           member(m->body, in, "max_completion_tokens");
}

// Those that `in`, an object of the request or NULL, does not have.
static void put_parameters(merge *m, const tern_json *in) {
    const tern_json *list = member(m->own, m->of, "parameters");
    char name[64];
    if (!tern_json_is(list, TERN_JSON_OBJECT)) return;
    for (const tern_json *key = tern_json_first(m->own, list); key;
         key = tern_json_next(m->own, list, key)) {
        const tern_str said = tern_json_str(key);
        const char *here = name_here(m, said);
        const size_t n = here == said.ptr ? said.len : here ? strlen(here) : 0;
        if (!n || n >= sizeof name) continue;
        memcpy(name, here, n);
        name[n] = 0;
        if (!has_limit(m, in, name))
            tern_json_put_member(&m->w, (tern_str){name, n}, m->own,
                                 tern_json_value_of(m->own, key));
    }
}

// ---- Messages ----------------------------------------------------------------------------------

static bool is_role(const tern_json_doc *doc, const tern_json *message, const char *role) {
    return tern_json_is(message, TERN_JSON_OBJECT) &&
           tern_str_is(tern_json_str(tern_json_get(doc, message, "role")), role);
}

static void put_message(merge *m, const char *role, tern_str content) {
    tern_json_open(&m->w, NULL, '{');
    tern_json_put_text(&m->w, "role", role);
    tern_json_put_bytes(&m->w, "content", content.ptr, content.len);
    tern_json_close(&m->w, '}');
}

static void put_messages(merge *m) {
    const tern_json *own = member(m->own, m->of, "messages"),
                    *given = member(m->body, m->root, m->shape->messages);
    const tern_str system = tern_json_str(member(m->own, m->of, "system"));
    const bool is_list = tern_json_is(given, TERN_JSON_ARRAY);
    const tern_json *first = is_list ? tern_json_first(m->body, given) : NULL;
    if (!is_list && !tern_json_is(given, TERN_JSON_STRING)) {
        if (given) tern_json_put_value(&m->w, m->shape->messages, m->body, given);
        return;
    }
    tern_json_open(&m->w, m->shape->messages, '[');
    if (m->shape->system == IN_MESSAGES && first && system.len &&
        !is_role(m->body, first, "system") && !is_role(m->body, first, "developer"))
        put_message(m, "system", system);
    for (const tern_json *e = first || !is_list ? tern_json_first(m->own, own) : NULL; e;
         e = tern_json_next(m->own, own, e))
        tern_json_put_value(&m->w, NULL, m->own, e);
    for (const tern_json *e = first; e; e = tern_json_next(m->body, given, e))
        tern_json_put_value(&m->w, NULL, m->body, e);
    if (!is_list) put_message(m, "user", tern_json_str(given));
    tern_json_close(&m->w, ']');
}

// ---- The body ----------------------------------------------------------------------------------

static void put_body(merge *m) {
    static const char *const names[] = {NULL, "system", "instructions", NULL};
    const char *system = names[m->shape->system];
    const tern_json *own = member(m->own, m->of, "system"),
                    *options = m->shape->has_options ? member(m->body, m->root, "options") : NULL;
    tern_json_open(&m->w, NULL, '{');
    for (const tern_json *key = tern_json_first(m->body, m->root); key;
         key = tern_json_next(m->body, m->root, key)) {
        const tern_str name = tern_json_str(key);
        const bool is_own = (m->shape->messages && tern_str_is(name, m->shape->messages)) ||
                            (m->shape->has_options && tern_str_is(name, "options"));
        if (!is_own) tern_json_put_member(&m->w, name, m->body, tern_json_value_of(m->body, key));
    }
    if (system && own && !member(m->body, m->root, system))
        tern_json_put_value(&m->w, system, m->own, own);
    if (m->shape->messages) put_messages(m);
    if (m->shape->has_options) tern_json_open(&m->w, "options", '{');
    for (const tern_json *key =
             tern_json_is(options, TERN_JSON_OBJECT) ? tern_json_first(m->body, options) : NULL;
         key; key = tern_json_next(m->body, options, key))
        tern_json_put_member(&m->w, tern_json_str(key), m->body, tern_json_value_of(m->body, key));
    put_parameters(m, m->shape->has_options ? options : m->root);
    if (m->shape->has_options) tern_json_close(&m->w, '}');
    tern_json_close(&m->w, '}');
}

bool preset_merge(request *req, api_error *e) {
    const preset *p = req->preset;
    const shape *s = NULL;
    tern_json_doc own = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (req->route && !strcmp(req->route, shapes[i].route)) s = &shapes[i];
    const tern_json *root = tern_json_root(&req->body);
    if (!s || !tern_json_is(root, TERN_JSON_OBJECT)) return true;
    if (tern_json_parse(&own, p->json, p->n_json, NULL) != TERN_OK) {
        api_fail_memory(e);
        return false;
    }
    merge m = {.body = &req->body,
               .own = &own,
               .root = root,
               .of = tern_json_root(&own),
               .shape = s,
               .w = {.out = &req->merged}};
    put_body(&m);
    tern_json_free(&own);
    if (req->merged.failed) {
        api_fail_memory(e);
        return false;
    }
    tern_json_free(&req->body);
    return body_read(req, (tern_str){req->merged.ptr, req->merged.len}, e);
}
