// Filters of text.
#include "input/jinja/jinja.h"

#include <string.h>
#include "base/utf8.h"

#define FILTER(name) static bool filter_##name(jrun *r, const jcall *c, jvalue *out)

// Calls a string method's function with the same arguments, on str(self).
bool tern_jinja_string_method(jrun *r, const jcall *c, const char *name, jvalue *out) {
    jvalue self;
    if (!tern_jinja_to_string(r, c->self, &self)) return false;
    const jbuiltin *method = tern_jinja_find_method(J_STRING, name, strlen(name));
    return tern_jinja_call_method(r, method, self, c->args, out);
}

FILTER(string) { return tern_jinja_to_string(r, c->self, out); }
FILTER(lower) { return tern_jinja_string_method(r, c, "lower", out); }
FILTER(upper) { return tern_jinja_string_method(r, c, "upper", out); }
FILTER(capitalize) { return tern_jinja_string_method(r, c, "capitalize", out); }
FILTER(trim) { return tern_jinja_string_method(r, c, "strip", out); }

FILTER(replace) { // of plain text, unless {% autoescape %} is on
    jcall plain = *c;
    jvalue args[3];
    bool is_safe = tern_jinja_is_markup(c->self);
    uint32_t n = c->arg[2].type == J_MISSING || c->arg[2].type == J_NONE ? 2 : 3;
    for (uint32_t i = 0; i < n; i++) args[i] = c->arg[i];
    for (uint32_t i = 0; i < 2; i++) is_safe = is_safe || tern_jinja_is_markup(args[i]);
    if (!r->autoescape) {
        if (!tern_jinja_markup(r, c->self, false, &plain.self) ||
            !tern_jinja_markup(r, args[0], false, &args[0]) ||
            !tern_jinja_markup(r, args[1], false, &args[1]))
            return false;
    } else if (is_safe && !tern_jinja_is_markup(c->self)) {
        if (!tern_jinja_escape(r, c->self, &plain.self)) return false;
    }
    plain.args = &(jargs){.at = args, .n = n};
    return tern_jinja_string_method(r, &plain, "replace", out);
}

FILTER(center) {
    jvalue width = c->arg[0].type == J_MISSING ? J_INT_OF(80) : c->arg[0];
    const jcall inner = {.self = c->self, .args = &(jargs){.at = &width, .n = 1}};
    return tern_jinja_string_method(r, &inner, "center", out);
}

FILTER(safe) { return tern_jinja_markup(r, c->self, true, out); }
FILTER(escape) { return tern_jinja_escape(r, c->self, out); }

FILTER(forceescape) { // markup, too
    jvalue text;
    return tern_jinja_markup(r, c->self, false, &text) && tern_jinja_escape(r, text, out);
}

static bool change_part(jrun *r, const char *method, const char *s, uint32_t n) {
    const jargs none = {0};
    jvalue text;
    return tern_jinja_call_builtin(r, tern_jinja_find_method(J_STRING, method, strlen(method)),
                                   J_STR_OF(s, n), &none, &text) &&
           tern_jinja_put(r, text.s, text.n);
}

static bool begins_word(const char *s, uint32_t n) { // s begins with a separator of words
    return (*s && strchr("-({[<", *s)) || tern_jinja_space(s, n);
}

// Each run of white space, hyphens or opening brackets begins a new word: the first character
// becomes upper case, the others lower case.
FILTER(title) {
    jvalue s;
    size_t mark = r->out->len;
    if (!tern_jinja_to_string(r, c->self, &s)) return false;
    for (uint32_t i = 0, n; i < s.n; i += n) {
        n = (uint32_t)tern_jinja_char(s.s + i, s.n - i);
        if (begins_word(s.s + i, s.n - i)) {
            if (!tern_jinja_put(r, s.s + i, n)) return false;
            continue;
        }
        uint32_t first = n;
        while (i + n < s.n && !begins_word(s.s + i + n, s.n - i - n)) n++;
        if (!change_part(r, "upper", s.s + i, first) ||
            !change_part(r, "lower", s.s + i + first, n - first))
            return false;
    }
    return tern_jinja_take(r, mark, out);
}

FILTER(wordcount) { // words are runs of \\w
    jvalue s;
    int64_t n = 0;
    if (!tern_jinja_to_string(r, c->self, &s)) return false;
    bool inside = false;
    for (uint32_t i = 0; i < s.n;) {
        uint32_t code = ' ';
        int length = tern_utf8_decode(s.s + i, s.n - i, &code);
        bool word = length > 0 && tern_jinja_is_word(code);
        n += word && !inside;
        inside = word;
        i += length > 0 ? (uint32_t)length : 1;
    }
    *out = J_INT_OF(n);
    return tern_jinja_work_chars(r, s.n);
}

FILTER(indent) { // width or text, first, blank
    const jargs none = {0};
    jvalue s = c->self, lines, by = c->arg[0];
    size_t mark = r->out->len;
    int64_t width;
    if (by.type != J_STRING) {
        if (!tern_jinja_arg_int(r, by, 4, &width)) return false;
        if (!tern_jinja_binary(r, '*', J_STR_LIT(" "), J_INT_OF(width), &by)) return false;
    }
    by.owner = s.owner;
    bool first = tern_jinja_truth(c->arg[1]), blank = tern_jinja_truth(c->arg[2]);
    const jbuiltin *split = tern_jinja_find_method(J_STRING, "splitlines", 10);
    // Adding a newline makes an empty last line count, and fails for values that are not text.
    if (!tern_jinja_binary(r, '+', s, J_STR_LIT("\n"), &lines) ||
        !tern_jinja_call_builtin(r, split, lines, &none, &lines))
        return false;
    for (uint32_t i = 0; i < lines.list->n; i++) {
        jvalue line = lines.list->items[i];
        bool indented = i == 0 ? first : blank || line.n;
        if ((i && !tern_jinja_put(r, "\n", 1)) || (indented && !tern_jinja_put(r, by.s, by.n)) ||
            !tern_jinja_put(r, line.s, line.n))
            return false;
    }
    if (!tern_jinja_take(r, mark, out)) return false;
    out->owner = s.owner;
    return true;
}

FILTER(format) { // "%s" | format(x, ...) or "%(a)s" | format(a=x)
    jvalue text, args;
    const jargs *given = c->args;
    if (given->n && given->n_named)
        return tern_jinja_fail(r, "format of positional and named arguments");
    if (!tern_jinja_to_string(r, c->self, &text)) return false;
    if (given->n_named) {
        if (!tern_jinja_dict_new(r, J_DICT, &args)) return false;
        for (uint32_t i = 0; i < given->n_named; i++)
            if (!tern_jinja_dict_set(r, args.dict, given->named[i].name, given->named[i].value))
                return false;
    } else {
        if (!tern_jinja_list_new(r, J_TUPLE, given->n, &args)) return false;
        for (uint32_t i = 0; i < given->n; i++)
            if (!tern_jinja_list_add(r, args.list, given->at[i])) return false;
    }
    return tern_jinja_binary(r, '%', text, args, out);
}

FILTER(tojson) { // ensure_ascii, indent, separators, sort_keys: as in transformers
    jjson_style style = {.item = TERN_STR(", "), .key = TERN_STR(": ")};
    jvalue indent = c->arg[1], separators = c->arg[2];
    size_t mark = r->out->len;
    style.ascii = tern_jinja_truth(c->arg[0]);
    style.sort = tern_jinja_truth(c->arg[3]);
    if (indent.type != J_MISSING && indent.type != J_NONE) {
        style.pretty = true;
        style.item = TERN_STR(",");
        if (indent.type != J_STRING && !tern_jinja_binary(r, '*', J_STR_LIT(" "), indent, &indent))
            return false;
        style.indent = (tern_str){indent.s, indent.n};
    }
    if (separators.type == J_LIST && separators.list->n == 2 &&
        (!tern_jinja_arg_str(r, separators.list->items[0], NULL, &style.item) ||
         !tern_jinja_arg_str(r, separators.list->items[1], NULL, &style.key)))
        return false;
    return tern_jinja_to_json(r, c->self, &style, 0) && tern_jinja_take(r, mark, out);
}

const jbuiltin tern_jinja_text_filters[] = {
    {"trim", "?chars", filter_trim},
    {"tojson", "?ensure_ascii ?indent ?separators ?sort_keys", filter_tojson},
    {"upper", "", filter_upper},
    {"lower", "", filter_lower},
    {"string", "", filter_string},
    {"replace", "old new ?count", filter_replace},
    {"indent", "?width ?first ?blank", filter_indent},
    {"capitalize", "", filter_capitalize},
    {"title", "", filter_title},
    {"center", "?width", filter_center},
    {"wordcount", "", filter_wordcount},
    {"safe", "", filter_safe},
    {"escape", "", filter_escape},
    {"e", "", filter_escape},
    {"forceescape", "", filter_forceescape},
    {"format", "*", filter_format},
    {0},
};
