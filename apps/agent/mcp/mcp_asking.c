// A server's questions to the user while it runs a tool (MCP's elicitation): a form of a few simple
// fields, asked line by line. The server's texts are shown, each on one line.
#include <string.h>
#include "apps/agent/mcp/mcp_client.h"
#include "base/utf8.h"

#define FIELDS_MAX 50
#define TEXT_MAX   1000 // bytes shown of a server's text

typedef struct form {
    const agent_tools *tools;
    const tern_json_doc *doc;
    const tern_json *schema;
    tern_strbuf text, line;
    tern_json_writer *w;
    bool failed; // no memory
} form;

static void put_words(form *f, tern_str s) {
    size_t n = s.len <= TEXT_MAX ? s.len : tern_utf8_complete_prefix(s.ptr, TEXT_MAX);
    for (size_t i = 0; i < n; i++)
        tern_strbuf_putc(&f->text, strchr("\n\t\r", s.ptr[i]) ? ' ' : s.ptr[i]);
    if (n < s.len) tern_strbuf_puts(&f->text, "...");
}

// Shows f->text and takes a line. False: the user has ended it.
static bool ask(form *f) {
    tern_strbuf_clear(&f->line);
    bool ok = !f->text.failed &&
              f->tools->ask(f->tools->user, tern_strbuf_text(&f->text), f->text.len, &f->line);
    f->failed |= f->text.failed || f->line.failed;
    tern_strbuf_clear(&f->text);
    return ok && !f->failed;
}

static bool line_is(const form *f, const char *a, const char *b) {
    const char *s = tern_strbuf_text(&f->line);
    return !strcmp(s, a) || !strcmp(s, b);
}

// ---- Choices -----------------------------------------------------------------------------------

// The choices for a field: a list of strings, or of objects with "const" and "title".
static const tern_json *choices_of(const form *f, const tern_json *field) {
    static const char *const words[] = {"enum", "oneOf", "anyOf"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const tern_json *list = tern_json_get(f->doc, field, words[i]);
        if (tern_json_is(list, TERN_JSON_ARRAY)) return list;
    }
    return NULL;
}

static tern_str choice_value(const form *f, const tern_json *choice) {
    if (tern_json_is(choice, TERN_JSON_STRING)) return tern_json_str(choice);
    return tern_json_str(tern_json_get(f->doc, choice, "const"));
}

static void put_choices(form *f, const tern_json *list) {
    const char *before = "";
    for (const tern_json *c = tern_json_first(f->doc, list); c && f->text.len < 8 * TEXT_MAX;
         c = tern_json_next(f->doc, list, c)) {
        tern_str title = tern_json_str(tern_json_get(f->doc, c, "title"));
        tern_strbuf_puts(&f->text, before);
        put_words(f, choice_value(f, c));
        if (title.len) tern_strbuf_puts(&f->text, " ("), put_words(f, title);
        if (title.len) tern_strbuf_putc(&f->text, ')');
        before = ", ";
    }
}

static bool is_choice(const form *f, const tern_json *list, tern_str s) {
    for (const tern_json *c = tern_json_first(f->doc, list); c; c = tern_json_next(f->doc, list, c))
        if (tern_str_eq(choice_value(f, c), s)) return true;
    return false;
}

// ---- Values: each writes the line's, or says in f->text what it must be ------------------------

static tern_str trimmed(tern_str s) {
    while (s.len && s.ptr[0] == ' ') s.ptr++, s.len--;
    while (s.len && s.ptr[s.len - 1] == ' ') s.len--;
    return s;
}

// Writes a member's name; its value must follow.
static void put_name(form *f, tern_str name) {
    tern_json_put_bytes(f->w, NULL, name.ptr, name.len);
    tern_strbuf_putc(f->w->out, ':');
    f->w->follows = false;
}

static bool take_choices(form *f, tern_str name, const tern_json *field, const tern_json *list) {
    tern_str rest = {tern_strbuf_text(&f->line), f->line.len};
    tern_strbuf json = {0};
    tern_json_writer w = {.out = &json};
    int64_t n = 0;
    bool ok = true;
    tern_json_open(&w, NULL, '[');
    while (ok && rest.len) {
        const char *comma = memchr(rest.ptr, ',', rest.len);
        size_t len = comma ? (size_t)(comma - rest.ptr) : rest.len, used = len + (comma != NULL);
        tern_str one = trimmed((tern_str){rest.ptr, len});
        ok = is_choice(f, list, one);
        tern_json_put_bytes(&w, NULL, one.ptr, one.len);
        rest = (tern_str){rest.ptr + used, rest.len - used};
        n++;
    }
    tern_json_close(&w, ']');
    ok = ok && n >= tern_json_int(tern_json_get(f->doc, field, "minItems"), 0) &&
         n <= tern_json_int(tern_json_get(f->doc, field, "maxItems"), INT64_MAX);
    if (ok) {
        put_name(f, name);
        tern_json_put_raw(f->w, NULL, tern_strbuf_text(&json));
    } else {
        tern_strbuf_puts(&f->text, "some of these, with commas between: ");
        put_choices(f, list);
    }
    f->failed |= json.failed;
    tern_strbuf_free(&json);
    return ok;
}

static bool take_number(form *f, tern_str name, const tern_json *field, bool is_whole) {
    tern_json_doc doc = {0};
    const tern_json *least = tern_json_get(f->doc, field, "minimum");
    const tern_json *most = tern_json_get(f->doc, field, "maximum");
    tern_status status = tern_json_parse(&doc, tern_strbuf_text(&f->line), f->line.len, NULL);
    const tern_json *v = status == TERN_OK ? tern_json_root(&doc) : NULL;
    uint64_t whole;
    bool is_negative, ok = tern_json_is(v, TERN_JSON_NUMBER);
    if (ok && is_whole) ok = tern_json_whole(v, &whole, &is_negative);
    double x = ok ? tern_json_number(v, 0) : 0;
    ok = ok && x >= tern_json_number(least, x) && x <= tern_json_number(most, x);
    if (ok) tern_json_put_member(f->w, name, &doc, v);
    if (!ok) tern_strbuf_puts(&f->text, is_whole ? "a whole number" : "a number");
    if (!ok && least) tern_strbuf_printf(&f->text, ", at least %g", tern_json_number(least, 0));
    if (!ok && most) tern_strbuf_printf(&f->text, ", at most %g", tern_json_number(most, 0));
    f->failed |= status == TERN_ERR_MEMORY;
    tern_json_free(&doc);
    return ok;
}

static bool take_bool(form *f, tern_str name) {
    bool yes = line_is(f, "y", "yes") || line_is(f, "true", "true");
    bool no = line_is(f, "n", "no") || line_is(f, "false", "false");
    if (yes || no)
        put_name(f, name), tern_json_put_bool(f->w, NULL, yes);
    else
        tern_strbuf_puts(&f->text, "yes or no");
    return yes || no;
}

// Its number of characters; -1: invalid UTF-8.
static int64_t count_letters(tern_str s) {
    int64_t n = 0;
    uint32_t code;
    for (size_t i = 0; i < s.len; n++) {
        int len = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (len <= 0) return -1;
        i += (size_t)len;
    }
    return n;
}

static bool take_text(form *f, tern_str name, const tern_json *field) {
    tern_str s = {tern_strbuf_text(&f->line), f->line.len};
    int64_t least = tern_json_int(tern_json_get(f->doc, field, "minLength"), 0);
    int64_t most = tern_json_int(tern_json_get(f->doc, field, "maxLength"), INT64_MAX);
    int64_t n = count_letters(s);
    if (n >= 0 && n >= least && n <= most) {
        put_name(f, name);
        tern_json_put_bytes(f->w, NULL, s.ptr, s.len);
        return true;
    }
    tern_strbuf_printf(&f->text, "a text of at least %lld", (long long)least);
    if (most < INT64_MAX) tern_strbuf_printf(&f->text, " and at most %lld", (long long)most);
    tern_strbuf_puts(&f->text, " letters");
    return false;
}

static bool take_value(form *f, tern_str name, const tern_json *field) {
    tern_str type = tern_json_str(tern_json_get(f->doc, field, "type"));
    const tern_json *items = tern_json_get(f->doc, field, "items");
    const tern_json *list = choices_of(f, items ? items : field);
    if (items && list) return take_choices(f, name, field, list);
    if (list) {
        tern_str s = {tern_strbuf_text(&f->line), f->line.len};
        bool ok = is_choice(f, list, s);
        if (ok) put_name(f, name), tern_json_put_bytes(f->w, NULL, s.ptr, s.len);
        if (!ok) tern_strbuf_puts(&f->text, "one of these: "), put_choices(f, list);
        return ok;
    }
    if (tern_str_is(type, "integer")) return take_number(f, name, field, true);
    if (tern_str_is(type, "number")) return take_number(f, name, field, false);
    if (tern_str_is(type, "boolean")) return take_bool(f, name);
    return take_text(f, name, field);
}

// ---- The form ----------------------------------------------------------------------------------

static bool is_required(const form *f, tern_str name) {
    const tern_json *list = tern_json_get(f->doc, f->schema, "required");
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return false;
    for (const tern_json *e = tern_json_first(f->doc, list); e; e = tern_json_next(f->doc, list, e))
        if (tern_str_eq(tern_json_str(e), name)) return true;
    return false;
}

static void put_field(form *f, tern_str name, const tern_json *field, const tern_json *value) {
    tern_str title = tern_json_str(tern_json_get(f->doc, field, "title"));
    tern_str about = tern_json_str(tern_json_get(f->doc, field, "description"));
    tern_str type = tern_json_str(tern_json_get(f->doc, field, "type"));
    const tern_json *items = tern_json_get(f->doc, field, "items");
    const tern_json *list = choices_of(f, items ? items : field);
    tern_json_writer w = {.out = &f->text};
    put_words(f, title.len ? title : name);
    if (about.len) tern_strbuf_puts(&f->text, ": "), put_words(f, about);
    tern_strbuf_puts(&f->text, " [");
    if (list)
        put_choices(f, list);
    else
        tern_strbuf_puts(&f->text, tern_str_is(type, "boolean")   ? "yes or no"
                                   : tern_str_is(type, "integer") ? "a whole number"
                                   : tern_str_is(type, "number")  ? "a number"
                                                                  : "a text");
    if (items) tern_strbuf_puts(&f->text, "; with commas between");
    if (value) tern_strbuf_puts(&f->text, "; else "), tern_json_put_value(&w, NULL, f->doc, value);
    if (!value && !is_required(f, name)) tern_strbuf_puts(&f->text, "; or nothing");
    tern_strbuf_putc(&f->text, ']');
}

// Asks until a line is a valid value. An empty line is the default, or no value if that is allowed.
static bool ask_field(form *f, tern_str name, const tern_json *field) {
    const tern_json *value = tern_json_get(f->doc, field, "default");
    put_field(f, name, field, value);
    while (ask(f)) {
        if (!f->line.len && value) tern_json_put_member(f->w, name, f->doc, value);
        if (!f->line.len && (value || !is_required(f, name))) return true;
        if (take_value(f, name, field)) return true;
        if (f->failed) return false;
    }
    return false;
}

static bool ask_fields(form *f) {
    const tern_json *list = tern_json_get(f->doc, f->schema, "properties");
    size_t n = 0;
    if (!tern_json_is(list, TERN_JSON_OBJECT)) return true;
    for (const tern_json *key = tern_json_first(f->doc, list); key && n < FIELDS_MAX;
         key = tern_json_next(f->doc, list, key), n++)
        if (!ask_field(f, tern_json_str(key), tern_json_value_of(f->doc, key))) return false;
    return n < FIELDS_MAX;
}

// "accept", "decline" or "cancel".
static const char *ask_user(form *f, const char *server, const tern_json *params) {
    tern_str mode = tern_json_str(tern_json_get(f->doc, params, "mode"));
    if (mode.ptr && !tern_str_is(mode, "form")) return "decline"; // it was not offered
    do {
        tern_strbuf_printf(&f->text, "%s asks you: ", server);
        put_words(f, tern_json_str(tern_json_get(f->doc, params, "message")));
        tern_strbuf_puts(&f->text, " (do you answer? y: yes, n: no)");
        if (!ask(f)) return "cancel";
        if (line_is(f, "n", "no")) return "decline";
    } while (!line_is(f, "y", "yes"));
    return ask_fields(f) ? "accept" : "cancel";
}

bool mcp_ask_user(const agent_tools *t, const char *server, const tern_json_doc *doc,
                  const tern_json *params, tern_strbuf *out) {
    tern_strbuf content = {0};
    tern_json_writer to_content = {.out = &content}, w = {.out = out};
    form f = {.tools = t,
              .doc = doc,
              .schema = tern_json_get(doc, params, "requestedSchema"),
              .w = &to_content};
    tern_json_open(&to_content, NULL, '{');
    const char *action = t->ask ? ask_user(&f, server, params) : "decline";
    tern_json_close(&to_content, '}');
    tern_json_open(&w, NULL, '{');
    tern_json_put_text(&w, "action", action);
    if (!strcmp(action, "accept")) tern_json_put_raw(&w, "content", tern_strbuf_text(&content));
    tern_json_close(&w, '}');
    bool ok = !f.failed && !content.failed && !out->failed;
    tern_strbuf_free(&content);
    tern_strbuf_free(&f.text);
    tern_strbuf_free(&f.line);
    return ok;
}
