#include "apps/serve/engine/shared_grammar.h"

#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"

#define KEPT_MAX 32 // grammars of a model, with their cached masks

struct shared_grammar {
    shared_grammar *next;
    atomic_size_t n_users;
    tern_grammar *grammar;
    format_wanted of; // text: its own copy
};

tern_grammar *shared_grammar_get(const shared_grammar *g) { return g ? g->grammar : NULL; }

shared_grammar *shared_grammar_hold(shared_grammar *g) {
    if (g) atomic_fetch_add(&g->n_users, 1);
    return g;
}

void shared_grammar_release(shared_grammar *g) {
    if (!g || atomic_fetch_sub(&g->n_users, 1) > 1) return;
    tern_grammar_close(g->grammar);
    tern_strbuf_free(&g->of.text);
    tern_strbuf_free(&g->of.tool);
    tern_strbuf_free(&g->of.tools);
    tern_free(g);
}

// ---- Compiling ---------------------------------------------------------------------------------

// The form; or, if there are tools, calls of them or the form.
static tern_status open_form(tern_grammar **out, const served *s, const format_wanted *w,
                             const tern_grammar_desc *form, tern_error *err) {
    const tern_grammar_desc both = {.kind = TERN_GRAMMAR_CALLS,
                                    .text = tern_strbuf_text(&w->tools),
                                    .n_bytes = w->tools.len,
                                    .one_call = w->one_call,
                                    .prompt = form->prompt,
                                    .otherwise = form};
    return tern_grammar_open(out, s->model, w->tools.len ? &both : form, err);
}

// Choices come as JSON: ["yes", "no"].
static tern_status open_choices(tern_grammar **out, const served *s, const format_wanted *w,
                                tern_grammar_desc *desc, tern_error *err) {
    tern_json_doc doc;
    TERN_TRY(tern_json_parse(&doc, w->text.ptr, w->text.len, err));
    const tern_json *list = tern_json_root(&doc);
    char **choices = tern_alloc_array(TERN_MEM_SESSION, list->n, sizeof *choices);
    size_t n = 0;
    bool ok = choices != NULL;
    for (const tern_json *e = tern_json_first(&doc, list); e && ok;
         e = tern_json_next(&doc, list, e)) {
        const tern_str one = tern_json_str(e);
        choices[n] = tern_strndup(TERN_MEM_SESSION, one.ptr ? one.ptr : "", one.len);
        ok = choices[n++] != NULL;
    }
    desc->choices = (const char *const *)choices;
    desc->n_choices = n;
    tern_status status =
        ok ? open_form(out, s, w, desc, err) : tern_fail_memory(err, list->n * sizeof *choices);
    while (n > 0) tern_free(choices[--n]);
    tern_free(choices);
    tern_json_free(&doc);
    return status;
}

bool format_copy(format_wanted *to, const format_wanted *from) {
    *to = *from;
    to->text = to->tool = to->tools = (tern_strbuf){0};
    tern_strbuf_append(&to->text, tern_strbuf_text(&from->text), from->text.len);
    tern_strbuf_append(&to->tool, tern_strbuf_text(&from->tool), from->tool.len);
    tern_strbuf_append(&to->tools, tern_strbuf_text(&from->tools), from->tools.len);
    return !to->text.failed && !to->tool.failed && !to->tools.failed;
}

tern_status shared_grammar_open(shared_grammar **out, const served *s, const format_wanted *w,
                                tern_error *err) {
    tern_grammar_desc desc = {.kind = w->kind,
                              .text = tern_strbuf_text(&w->text),
                              .n_bytes = w->text.len,
                              .tool = w->tool.len ? w->tool.ptr : NULL,
                              .one_call = w->one_call,
                              .is_optional = w->is_optional,
                              .prompt = *w->prompt ? w->prompt : NULL};
    shared_grammar *g = tern_alloc(TERN_MEM_SESSION, sizeof *g);
    tern_status status = g ? TERN_OK : tern_fail_memory(err, sizeof *g);
    if (g) {
        atomic_init(&g->n_users, 1);
        if (!format_copy(&g->of, w)) status = tern_fail_memory(err, w->text.len);
    }
    if (status == TERN_OK)
        status = w->kind == TERN_GRAMMAR_CHOICES ? open_choices(&g->grammar, s, w, &desc, err)
                                                 : open_form(&g->grammar, s, w, &desc, err);
    if (status == TERN_OK)
        *out = g;
    else
        shared_grammar_release(g);
    return status;
}

// ---- Those that a model has --------------------------------------------------------------------

static bool is_same_text(const tern_strbuf *a, const tern_strbuf *b) {
    return a->len == b->len && memcmp(tern_strbuf_text(a), tern_strbuf_text(b), a->len) == 0;
}

static bool is_same(const shared_grammar *g, const format_wanted *w) {
    return g->of.kind == w->kind && !strcmp(g->of.prompt, w->prompt) &&
           g->of.one_call == w->one_call && g->of.is_optional == w->is_optional &&
           is_same_text(&g->of.tool, &w->tool) && is_same_text(&g->of.tools, &w->tools) &&
           is_same_text(&g->of.text, &w->text);
}

shared_grammar *formats_find(served *s, const format_wanted *w) {
    for (shared_grammar **at = &s->grammars; *at; at = &(*at)->next) {
        shared_grammar *g = *at;
        if (!is_same(g, w)) continue;
        *at = g->next; // the most recently used one is the first
        g->next = s->grammars;
        s->grammars = g;
        return shared_grammar_hold(g);
    }
    return NULL;
}

void formats_add(served *s, shared_grammar *g) {
    g->next = s->grammars;
    s->grammars = shared_grammar_hold(g);
    shared_grammar **at = &s->grammars;
    for (size_t i = 0; *at && i < KEPT_MAX; i++) at = &(*at)->next;
    while (*at) {
        shared_grammar *old = *at;
        *at = old->next;
        shared_grammar_release(old);
    }
}

void formats_free(served *s) {
    while (s->grammars) {
        shared_grammar *g = s->grammars;
        s->grammars = g->next;
        shared_grammar_release(g);
    }
}
