// The list of tools in an agent's prompt, the grammar of its calls, and the results as the model
// reads them.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "session/chat/agent.h"

#define NAME_MAX_BYTES 64

// ---- The list ----------------------------------------------------------------------------------

static bool is_name(const char *s) {
    size_t n = s ? strlen(s) : 0;
    for (size_t i = 0; i < n; i++)
        if (!(s[i] >= 'a' && s[i] <= 'z') && !(s[i] >= 'A' && s[i] <= 'Z') &&
            !(s[i] >= '0' && s[i] <= '9') && s[i] != '_' && s[i] != '-')
            return false;
    return n > 0 && n <= NAME_MAX_BYTES;
}

static tern_status check_tool(const tern_agent *a, size_t i, tern_error *err) {
    const tern_agent_tool *t = &a->tools[i];
    tern_json_doc doc = {0};
    if (!is_name(t->name))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "a tool's name is 1 to %d letters, digits, '_' and '-', and not '%.80s'",
                         NAME_MAX_BYTES, t->name ? t->name : "");
    if (!t->run) return tern_fail(err, TERN_ERR_ARGUMENT, "tool %s: run is NULL", t->name);
    if (tern_agent_find_tool(a, t->name) < i)
        return tern_fail(err, TERN_ERR_ARGUMENT, "two tools are called '%s'", t->name);
    if (!t->parameters) return TERN_OK;
    tern_status status = tern_json_parse(&doc, t->parameters, strlen(t->parameters), err);
    if (status == TERN_OK && !tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT))
        status = tern_fail(err, TERN_ERR_ARGUMENT, "the parameters are no JSON Schema");
    tern_json_free(&doc);
    if (status == TERN_OK) return TERN_OK;
    char place[NAME_MAX_BYTES + 8] = "tool ";
    strcat(place, t->name);
    return tern_fail_prefix(err, status, place);
}

// A tool that the model's template fails with; the others are still used.
static bool is_left_out(const tern_agent_tool *t) { return !t->run; }

// parameters: NULL: the tool's own.
static void put_tool(tern_json_writer *w, const tern_agent_tool *t, const char *parameters) {
    if (!parameters) parameters = t->parameters;
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "type", "function");
    tern_json_open(w, "function", '{');
    tern_json_put_text(w, "name", t->name);
    if (t->description) tern_json_put_text(w, "description", t->description);
    tern_json_put_raw(w, "parameters",
                      parameters ? parameters : "{\"type\":\"object\",\"properties\":{}}");
    tern_json_close(w, '}');
    tern_json_close(w, '}');
}

// ---- What binds calls ---------------------------------------------------------------------------

static tern_status open_grammar(tern_agent *a, tern_grammar **out, const char *tools,
                                tern_error *err) {
    const tern_grammar_desc desc = {.kind = TERN_GRAMMAR_CALLS,
                                    .text = tools,
                                    .is_optional = !a->grammar_must,
                                    .one_call = a->desc.one_call,
                                    .prompt = *a->prompt_end ? a->prompt_end : NULL};
    return tern_grammar_open(out, a->model, &desc, err);
}

static bool is_unknown(tern_status status) {
    return status == TERN_ERR_UNSUPPORTED || status == TERN_ERR_FORMAT;
}

// The list of tools, all or one, without those that are left out.
static void put_list(const tern_agent *a, size_t first, size_t n, tern_strbuf *list) {
    tern_json_writer w = {.out = list};
    tern_strbuf_clear(list);
    tern_json_open(&w, NULL, '[');
    for (size_t i = first; i < first + n; i++)
        if (!is_left_out(&a->tools[i])) put_tool(&w, &a->tools[i], NULL);
    tern_json_close(&w, ']');
}

// Whether the tools, all or one, can constrain calls with their own schemas; *err says why not.
static tern_status try_tools(tern_agent *a, size_t first, size_t n, tern_strbuf *list,
                             tern_error *err) {
    tern_grammar *grammar = NULL;
    put_list(a, first, n, list);
    if (list->failed) return tern_fail_memory(err, list->len);
    tern_status status = open_grammar(a, &grammar, list->ptr, err);
    tern_grammar_close(grammar);
    return status;
}

static const char any_object[] = "{\"type\":\"object\",\"additionalProperties\":true}";

// Tools whose schemas are not supported accept any object.
static tern_status loosen(tern_agent *a, tern_error *err) {
    tern_json_writer w = {.out = &a->bound};
    tern_strbuf one = {0};
    tern_status status = TERN_OK;
    tern_strbuf_clear(&a->bound);
    tern_json_open(&w, NULL, '[');
    for (size_t i = 0; i < a->desc.n_tools && status == TERN_OK; i++) {
        tern_error why = {0};
        if (is_left_out(&a->tools[i])) continue;
        status = try_tools(a, i, 1, &one, &why);
        bool unknown = is_unknown(status);
        put_tool(&w, &a->tools[i], unknown ? any_object : NULL);
        if (unknown)
            tern_strbuf_printf(&a->notes, "the calls of %s are not bound by its schema: %s\n",
                               a->tools[i].name, why.message);
        else if (status != TERN_OK && err)
            *err = why;
        if (unknown) status = TERN_OK;
    }
    tern_json_close(&w, ']');
    tern_strbuf_free(&one);
    if (status != TERN_OK || a->bound.failed) return status;
    tern_error why = {0};
    tern_grammar *grammar = NULL;
    status = open_grammar(a, &grammar, a->bound.ptr, &why);
    tern_grammar_close(grammar);
    if (status == TERN_OK) return TERN_OK;
    if (!is_unknown(status)) return tern_fail(err, status, "%s", why.message);
    tern_strbuf_clear(&a->bound); // the family itself is not supported
    tern_strbuf_clear(&a->notes);
    tern_strbuf_printf(&a->notes, "calls are not bound by schemas: %s\n", why.message);
    return TERN_OK;
}

tern_status tern_agent_take_grammar(tern_agent *a, bool must_call, tern_grammar **out,
                                    tern_error *err) {
    *out = NULL;
    if (!a->bound.len && must_call)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s",
                         a->shown.len ? "how this model writes calls is not known"
                                      : "a call must come, and there are no tools");
    if (!a->bound.len) return TERN_OK;
    // Only the prompt's end matters: whether it has begun the reasoning.
    const size_t room = sizeof a->prompt_end - 1, n = a->rendered.len;
    const char *end = tern_strbuf_text(&a->rendered) + (n > room ? n - room : 0);
    if (!a->grammar || strcmp(end, a->prompt_end) || a->grammar_must != must_call) {
        tern_grammar_close(a->grammar);
        a->grammar = NULL;
        a->grammar_must = must_call;
        memcpy(a->prompt_end, end, strlen(end) + 1);
        TERN_TRY(open_grammar(a, &a->grammar, a->bound.ptr, err));
    }
    *out = a->grammar;
    return TERN_OK;
}

// ---- Marks that tools must not forge ------------------------------------------------------------

static int by_first_byte(const void *left, const void *right) {
    const tern_str *a = left, *b = right;
    return (int)(unsigned char)*a->ptr - (int)(unsigned char)*b->ptr;
}

static bool add_mark(agent_texts *t, tern_str text) {
    if (text.len < 3) return true; // just punctuation
    if (tern_array_reserve(TERN_MEM_SESSION, &t->list, &t->capacity, t->n, 1) != 0) return false;
    t->list[t->n++] = text;
    return true;
}

// A result or a tool's description with names of control tokens, or with marks of calls and
// reasoning, could end its turn and pose as the user.
static tern_status collect_marks(tern_agent *a, tern_error *err) {
    const tern_tokenizer *t = a->model->tokenizer;
    const tern_answer_style *style = tern_template_answer_style(a->model->chat_template);
    const char *const marks[] = {style->open,       style->close,       style->quote,
                                 style->think_open, style->think_close, "<tool_response>",
                                 "</tool_response>"};
    bool ok = true;
    for (int32_t id = 0; id < tern_tokenizer_n_vocab(t) && ok; id++)
        if (tern_tokenizer_is_control(t, id)) ok = add_mark(&a->marks, tern_tokenizer_text(t, id));
    for (size_t i = 0; i < sizeof marks / sizeof *marks && ok; i++)
        if (marks[i]) ok = add_mark(&a->marks, (tern_str){marks[i], strlen(marks[i])});
    if (!ok) return tern_fail_memory(err, a->marks.n * sizeof(tern_str));
    if (a->marks.n) qsort(a->marks.list, a->marks.n, sizeof(tern_str), by_first_byte);
    for (size_t i = 0, byte = 0; byte < 257; byte++) {
        while (i < a->marks.n && (unsigned char)*a->marks.list[i].ptr < byte) i++;
        a->marks.from[byte] = i;
    }
    return TERN_OK;
}

static bool begins_mark(const agent_texts *t, const char *text, size_t n) {
    unsigned char first = (unsigned char)*text;
    for (size_t i = t->from[first]; i < t->from[first + 1]; i++)
        if (t->list[i].len <= n && !memcmp(t->list[i].ptr, text, t->list[i].len)) return true;
    return false;
}

// Valid UTF-8 without zero bytes; marks get a zero-width space after their first character.
static void make_safe(const tern_agent *a, const char *text, size_t n, tern_strbuf *out) {
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int len = tern_utf8_decode(text + i, n - i, &code);
        bool is_bad = len <= 0 || code == 0;
        if (is_bad)
            tern_strbuf_puts(out, "\xEF\xBF\xBD");
        else
            tern_strbuf_append(out, text + i, (size_t)len);
        if (!is_bad && begins_mark(&a->marks, text + i, n - i))
            tern_strbuf_puts(out, "\xE2\x80\x8B");
        i += len > 0 ? (size_t)len : 1;
    }
}

// The list that the model reads. All its texts are the tools': what a server says about its tools
// has escapes, and names of members are texts, too.
static tern_status make_list_safe(tern_agent *a, tern_error *err) {
    tern_json_doc doc;
    tern_strbuf texts = {0}, list = {0};
    tern_json_writer w = {.out = &list};
    size_t at = 0;
    TERN_TRY(tern_json_parse(&doc, tern_strbuf_text(&a->shown), a->shown.len, err));
    for (size_t i = 0; i < doc.n_nodes; i++) {
        tern_json *node = &doc.nodes[i];
        if (node->type != TERN_JSON_STRING) continue;
        size_t before = texts.len;
        make_safe(a, node->text, node->n, &texts);
        node->n = (uint32_t)(texts.len - before);
    }
    for (size_t i = 0; i < doc.n_nodes && !texts.failed; i++) { // they move no more
        if (doc.nodes[i].type != TERN_JSON_STRING) continue;
        doc.nodes[i].text = tern_strbuf_text(&texts) + at;
        at += doc.nodes[i].n;
    }
    if (!texts.failed) tern_json_put_value(&w, NULL, &doc, tern_json_root(&doc));
    bool failed = texts.failed || list.failed;
    tern_json_free(&doc);
    tern_strbuf_free(&texts);
    tern_strbuf_free(failed ? &list : &a->shown);
    if (failed) return tern_fail_memory(err, a->shown.len);
    a->shown = list;
    return TERN_OK;
}

// ---- Results -----------------------------------------------------------------------------------

typedef struct gathering {
    tern_strbuf text; // the first bytes
    size_t n, n_most; // all bytes received; the most to keep
} gathering;

static bool gather(void *user, const char *text, size_t n) {
    gathering *g = user;
    size_t room = g->n_most - g->text.len;
    tern_strbuf_append(&g->text, text, n < room ? n : room);
    g->n += n;
    return g->n <= g->n_most && !g->text.failed;
}

bool tern_agent_run_call(tern_agent *a, const agent_call *c, tern_strbuf *out, size_t *n_before) {
    const tern_agent_tool *tool = c->tool < a->desc.n_tools ? &a->tools[c->tool] : NULL;
    gathering g = {.n_most = a->desc.result_bytes};
    tern_agent_call call;
    bool ok = false;
    tern_agent_call_view(a, c, &call);
    if (!tool) {
        tern_strbuf_printf(&g.text, "There is no tool '%s'.", call.name);
        const char *before = " There are: ";
        for (size_t i = 0; i < a->desc.n_tools; i++) {
            if (is_left_out(&a->tools[i])) continue;
            tern_strbuf_printf(&g.text, "%s%s", before, a->tools[i].name);
            before = ", ";
        }
        g.n = g.text.len;
    } else if (!c->is_whole) {
        tern_strbuf_puts(&g.text, "The call's arguments were no JSON object.");
        g.n = g.text.len;
    } else {
        ok = tool->run(tool->user, &call, gather, &g);
    }
    size_t kept = tern_agent_cut(tern_strbuf_text(&g.text), g.text.len, a->desc.result_bytes);
    if (g.n > kept) kept = tern_utf8_complete_prefix(tern_strbuf_text(&g.text), kept);
    make_safe(a, tern_strbuf_text(&g.text), kept, out);
    if (g.n > kept) tern_strbuf_printf(out, "\n[cut here: more than %zu bytes came]", kept);
    *n_before = g.n;
    out->failed |= g.text.failed;
    tern_strbuf_free(&g.text);
    return ok;
}

// ---- Opening -----------------------------------------------------------------------------------

size_t tern_agent_find_tool(const tern_agent *a, const char *name) {
    for (size_t i = 0; i < a->desc.n_tools; i++)
        if (a->tools[i].name && !is_left_out(&a->tools[i]) && !strcmp(a->tools[i].name, name))
            return i;
    return SIZE_MAX;
}

static bool copy_text(const char **to) {
    if (!*to) return true;
    *to = tern_strdup(TERN_MEM_SESSION, *to);
    return *to != NULL;
}

static tern_status copy_tools(tern_agent *a, const tern_agent_desc *desc, tern_error *err) {
    size_t bytes = desc->n_tools * sizeof *a->tools;
    bool ok = true;
    a->desc.n_tools = 0; // copied so far; the others are still the caller's
    a->tools = tern_alloc_array(TERN_MEM_SESSION, desc->n_tools, sizeof *a->tools);
    if (!a->tools) return tern_fail_memory(err, bytes);
    for (size_t i = 0; i < desc->n_tools && ok; i++) {
        tern_agent_tool t = desc->tools[i];
        // A string that cannot be copied becomes NULL; the later ones must not stay the caller's.
        if (!(ok = copy_text(&t.name))) t.description = NULL;
        if (!ok || !(ok = copy_text(&t.description))) t.parameters = NULL;
        ok = ok && copy_text(&t.parameters);
        a->tools[a->desc.n_tools++] = t;
    }
    return ok ? TERN_OK : tern_fail_memory(err, bytes);
}

static bool ignore(void *user, const char *text, size_t n) {
    (void)user, (void)text, (void)n;
    return true;
}

// Whether the model's template renders these tools.
static tern_status try_template(tern_agent *a, const tern_strbuf *list, tern_error *err) {
    tern_strbuf request = {0};
    if (list->failed) return tern_fail_memory(err, list->len);
    tern_strbuf_printf(&request,
                       "{\"tools\":%s,\"messages\":[{\"role\":\"user\",\"content\":\"?\"}]}",
                       tern_strbuf_text(list));
    tern_status status = request.failed ? tern_fail_memory(err, request.len)
                                        : tern_chat_format_json(a->model, request.ptr, request.len,
                                                                ignore, NULL, err);
    tern_strbuf_free(&request);
    return status;
}

// Leaves out the tools that the template cannot render by themselves, unless it can render none.
static tern_status leave_out(tern_agent *a, const tern_error *failure, tern_error *err) {
    tern_strbuf one = {0};
    tern_status status = TERN_OK;
    size_t n_left = a->desc.n_tools;
    for (size_t i = 0; i < a->desc.n_tools && status != TERN_ERR_MEMORY; i++) {
        tern_error why = {0};
        put_list(a, i, 1, &one);
        status = try_template(a, &one, &why);
        if (status == TERN_OK || status == TERN_ERR_MEMORY) continue;
        tern_strbuf_printf(&a->notes, "the tool %s is left out: %s\n", a->tools[i].name,
                           why.message);
        a->tools[i].run = NULL;
        n_left--;
    }
    tern_strbuf_free(&one);
    if (status == TERN_ERR_MEMORY) return tern_fail_memory(err, a->shown.len);
    if (!n_left || n_left == a->desc.n_tools)
        return tern_fail(err, failure->status, "%s", failure->message);
    put_list(a, 0, a->desc.n_tools, &a->shown);
    return try_template(a, &a->shown, err);
}

tern_status tern_agent_take_tools(tern_agent *a, const tern_agent_desc *desc, tern_error *err) {
    tern_error why = {0};
    if (desc->n_tools == 0) return TERN_OK;
    TERN_TRY(copy_tools(a, desc, err));
    for (size_t i = 0; i < a->desc.n_tools; i++) TERN_TRY(check_tool(a, i, err));
    put_list(a, 0, a->desc.n_tools, &a->shown);
    tern_status status = try_template(a, &a->shown, &why); // gives the best error message
    if (status == TERN_ERR_MEMORY) return tern_fail(err, status, "%s", why.message);
    if (status != TERN_OK) TERN_TRY(leave_out(a, &why, err));
    status = try_tools(a, 0, a->desc.n_tools, &a->bound, &why);
    if (is_unknown(status))
        TERN_TRY(loosen(a, err));
    else if (status != TERN_OK)
        return tern_fail(err, status, "%s", why.message);
    if (a->bound.failed || a->notes.failed) return tern_fail_memory(err, a->bound.len);
    TERN_TRY(collect_marks(a, err));
    return make_list_safe(a, err);
}

void tern_agent_free_tools(tern_agent *a) {
    for (size_t i = 0; a->tools && i < a->desc.n_tools; i++) {
        tern_free((char *)a->tools[i].name);
        tern_free((char *)a->tools[i].description);
        tern_free((char *)a->tools[i].parameters);
    }
    tern_free(a->tools);
    tern_free(a->marks.list);
    tern_strbuf_free(&a->shown);
    tern_strbuf_free(&a->bound);
    tern_strbuf_free(&a->notes);
    tern_grammar_close(a->grammar);
}
