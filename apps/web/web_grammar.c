// Grammars that restrict answers (docs/grammar.md). The page opens and closes them; generations
// refer to them by id.
#include "web.h"

#include "base/alloc.h"
#include "web_args.h"

WEB_EXPORT(web_grammar_open) int32_t web_grammar_open(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_grammar_close) int32_t web_grammar_close(int32_t id);

// Memory limit of each grammar: a page has less memory than a server, and keeps a few grammars.
#define BYTES_MAX (64u << 20)

struct web_grammar {
    int32_t id;
    tern_grammar *grammar;
    struct web_grammar *next;
};
static int32_t last_grammar;

static web_grammar **place_of(web_model *m, int32_t id) {
    web_grammar **at = &m->grammars;
    while (*at && (*at)->id != id) at = &(*at)->next;
    return at;
}

tern_grammar *web_grammar_find(web_model *m, int32_t id, tern_error *err) {
    const web_grammar *g = *place_of(m, id);
    if (!g) tern_fail(err, TERN_ERR_ARGUMENT, "the model has no grammar %d", id);
    return g ? g->grammar : NULL;
}

static void grammar_free(web_grammar **at) {
    web_grammar *g = *at;
    *at = g->next;
    tern_grammar_close(g->grammar);
    tern_free(g);
}

void web_grammars_close(web_model *m) {
    while (m->grammars) grammar_free(&m->grammars);
}

// ---- Opening ------------------------------------------------------------------------------------

typedef struct wanted {
    web_args args;
    tern_str text, tools;
    const tern_json *choices;
    int32_t kind;
    tern_grammar_desc desc, both; // both: calls of tools, or an answer by desc
} wanted;

static void set_text(tern_grammar_desc *desc, tern_str text) {
    desc->text = text.len ? text.ptr : "";
    desc->n_bytes = text.len;
}

static tern_status wanted_read(wanted *w, const char *json, size_t n, tern_error *err) {
    tern_grammar_desc *d = &w->desc;
    const web_field fields[] = {
        {"kind", WEB_CHOICE, &w->kind, 0, 0, "schema json regex gbnf lark choices calls"},
        {"text", WEB_TEXT, &w->text, 0, 0, NULL},
        {"choices", WEB_ARRAY, &w->choices, 0, 0, NULL},
        {"compact", WEB_BOOL, &d->compact, 0, 0, NULL},
        {"tool", WEB_STRING, &d->tool, 0, 0, NULL},
        {"one_call", WEB_BOOL, &d->one_call, 0, 0, NULL},
        {"optional", WEB_BOOL, &d->is_optional, 0, 0, NULL},
        {"after", WEB_STRING, &d->prompt, 0, 0, NULL},
        {"tools", WEB_TEXT, &w->tools, 0, 0, NULL},
    };
    TERN_TRY(
        web_args_read(&w->args, "grammar", json, n, fields, sizeof fields / sizeof *fields, err));
    d->kind = (tern_grammar_kind)w->kind;
    d->n_bytes_max = BYTES_MAX;
    if (w->text.ptr) set_text(d, w->text);
    if (w->choices) {
        TERN_TRY(web_args_strings(&w->args, "grammar", "choices", w->choices, &d->choices, err));
        d->n_choices = w->choices->n;
    }
    w->both = (tern_grammar_desc){.kind = TERN_GRAMMAR_CALLS,
                                  .n_bytes_max = BYTES_MAX,
                                  .one_call = d->one_call,
                                  .prompt = d->prompt,
                                  .otherwise = d};
    set_text(&w->both, w->tools);
    return TERN_OK;
}

// {"kind", "text"...}: with "tools" the answer is calls of them, or follows the other members.
int32_t web_grammar_open(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    wanted w = {0};
    web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    tern_status status = wanted_read(&w, json, n, &err);
    web_grammar *g = status == TERN_OK ? tern_alloc(TERN_MEM_MISC, sizeof *g) : NULL;
    if (status == TERN_OK)
        status = g ? tern_grammar_open(&g->grammar, m->model, w.tools.len ? &w.both : &w.desc, &err)
                   : tern_fail_memory(&err, sizeof *g);
    web_args_free(&w.args);
    if (status != TERN_OK) {
        tern_free(g);
        return web_fail(&err);
    }
    g->id = ++last_grammar;
    g->next = m->grammars;
    m->grammars = g;
    return g->id;
}

// No generation may still use it.
int32_t web_grammar_close(int32_t id) {
    for (web_model *m = web_model_first(); m; m = m->next) {
        web_grammar **at = place_of(m, id);
        if (!*at) continue;
        grammar_free(at);
        return 0;
    }
    tern_error err = {0};
    tern_fail(&err, TERN_ERR_ARGUMENT, "there is no grammar %d", id);
    return web_fail(&err);
}
