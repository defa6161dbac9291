// Safe text, MarkupSafe's Markup: escaping returns it and does not change it. Text that is joined
// with it is escaped, even if autoescape is off: ('<b>'|safe) + '<i>' is "<b>&lt;i&gt;".
#include "input/jinja/jinja.h"

#include <string.h>

bool tern_jinja_escape(jrun *r, jvalue v, jvalue *out) {
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    size_t mark = r->out->len;
    if (!tern_jinja_to_string(r, v, &v)) return false;
    *out = v;
    if (tern_jinja_is_markup(v)) return true;
    for (uint32_t at = 0, n; at < v.n; at += n) {
        const char *hit = v.s[at] ? strchr(from, v.s[at]) : NULL;
        for (n = 1; !hit && at + n < v.n && (!v.s[at + n] || !strchr(from, v.s[at + n]));) n++;
        if (!(hit ? tern_jinja_put(r, to[hit - from], strlen(to[hit - from]))
                  : tern_jinja_put(r, v.s + at, n)))
            return false;
    }
    if (!tern_jinja_take(r, mark, out)) return false;
    out->owner = J_MARKUP;
    return true;
}

bool tern_jinja_markup(jrun *r, jvalue v, bool is_safe, jvalue *out) {
    if (!tern_jinja_to_string(r, v, out)) return false;
    out->owner = is_safe ? J_MARKUP : 0;
    return true;
}

static bool escape_strings(jrun *r, jvalue *items, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (items[i].type == J_STRING && !tern_jinja_escape(r, items[i], &items[i])) return false;
    return true;
}

// Escapes arguments of a method of markup: the new text, the fill, the joined parts.
static bool escape_arguments(jrun *r, const jbuiltin *b, jargs *args) {
    bool joins = !strcmp(b->name, "join"), replaces = !strcmp(b->name, "replace");
    bool fills =
        !strcmp(b->name, "ljust") || !strcmp(b->name, "rjust") || !strcmp(b->name, "center");
    if (!args->n || (!joins && !replaces && !fills)) return true;
    jvalue *copy = tern_jinja_alloc(r, args->n, sizeof *copy);
    if (!copy) return false;
    memcpy(copy, args->at, args->n * sizeof *copy);
    args->at = copy;
    if (!joins) return args->n < 2 || escape_strings(r, copy + 1, 1);
    const jvalue *items;
    uint32_t n;
    if (!tern_jinja_iterate(r, copy[0], &items, &n) ||
        !tern_jinja_list_new(r, J_PLAIN, n, &copy[0]))
        return false;
    for (uint32_t i = 0; i < n; i++) // of any type
        if (!tern_jinja_escape(r, items[i], &copy[0].list->items[i])) return false;
    copy[0].list->n = n;
    return true;
}

bool tern_jinja_call_method(jrun *r, const jbuiltin *b, jvalue self, const jargs *args,
                            jvalue *out) {
    jargs safe = *args;
    bool is_safe = tern_jinja_is_markup(self);
    r->escape_args = is_safe;
    if (is_safe && !escape_arguments(r, b, &safe)) return false;
    if (!tern_jinja_call_builtin(r, b, self, &safe, out)) return false;
    if (self.type != J_STRING) return true;
    if (out->type == J_STRING) out->owner = is_safe ? J_MARKUP : 0;
    for (uint32_t i = 0; is_safe && out->type == J_LIST && i < out->list->n; i++)
        if (out->list->items[i].type == J_STRING) out->list->items[i].owner = J_MARKUP;
    return true;
}
