// A value as a text writes it: between quotes or the marks of a family's calls, and the words of
// JSON or Python.
#include <math.h>
#include <string.h>
#include "grammar/schema/schema.h"

static tern_term text(const tern_schema *x, const char *s) {
    return tern_term_text(x->terms, s, strlen(s));
}

static tern_term cat3(const tern_schema *x, tern_term a, tern_term b, tern_term c) {
    return tern_term_cat(x->terms, a, tern_term_cat(x->terms, b, c));
}

static tern_term marked(const tern_schema *x, tern_term inside) {
    const tern_json_way *w = x->way;
    return cat3(x, tern_term_text(x->terms, w->quote.ptr, w->quote.len), inside,
                tern_term_text(x->terms, w->unquote.ptr, w->unquote.len));
}

tern_term tern_schema_quoted(tern_schema *x, tern_term inside) {
    if (!x->way->quote.len) return cat3(x, x->quote, inside, x->quote);
    if (inside == x->any_string) return marked(x, x->free_text);
    return marked(x, tern_term_and(x->terms, inside, x->plain_text));
}

static tern_term string_literal(const tern_schema *x, tern_str s) {
    if (x->way->quote.len) return marked(x, tern_term_text(x->terms, s.ptr, s.len));
    return cat3(x, x->quote, tern_term_spelled(x->terms, s.ptr, s.len, TERN_SPELL_JSON), x->quote);
}

tern_term tern_schema_name(tern_schema *x, tern_str name) {
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.$";
    bool is_bare = x->way->quote.len && name.len;
    for (size_t i = 0; i < name.len; i++)
        is_bare = is_bare && memchr(plain, name.ptr[i], sizeof plain - 1);
    return is_bare ? tern_term_text(x->terms, name.ptr, name.len) : string_literal(x, name);
}

tern_term tern_schema_word(const tern_schema *x, unsigned type) {
    const bool p = x->way->is_python;
    if (type == TERN_TYPE_TRUE) return text(x, p ? "True" : "true");
    if (type == TERN_TYPE_FALSE) return text(x, p ? "False" : "false");
    return text(x, p ? "None" : "null");
}

tern_term tern_schema_literal(tern_schema *x, const tern_json *v) {
    tern_strbuf b = {0};
    tern_term out = TERN_TERM_NOTHING;
    const tern_json_doc *doc = &x->doc;
    switch ((tern_json_type)v->type) {
    case TERN_JSON_NULL: return tern_schema_word(x, TERN_TYPE_NULL);
    case TERN_JSON_BOOL: return tern_schema_word(x, v->n ? TERN_TYPE_TRUE : TERN_TYPE_FALSE);
    case TERN_JSON_STRING: return string_literal(x, tern_json_str(v));
    case TERN_JSON_NUMBER:
        if (v->n == TERN_JSON_LONG) return tern_term_text(x->terms, v[1].text, v[1].n);
        if (tern_schema_type_of(v) == TERN_TYPE_WHOLE && fabs(v->number) < 1e21)
            tern_strbuf_printf(&b, "%.0f", v->number == 0 ? 0 : v->number); // 1000000, not 1e+06
        else
            tern_strbuf_json_number(&b, v->number);
        out = tern_term_text(x->terms, tern_strbuf_text(&b), b.len);
        tern_strbuf_free(&b);
        return out;
    case TERN_JSON_ARRAY:
        out = text(x, "[");
        for (const tern_json *e = tern_json_first(doc, v); e; e = tern_json_next(doc, v, e)) {
            if (e != v + 1) out = tern_term_cat(x->terms, out, text(x, ","));
            out = cat3(x, out, x->space, tern_schema_literal(x, e));
        }
        return cat3(x, out, x->space, text(x, "]"));
    case TERN_JSON_OBJECT:
        out = text(x, "{");
        for (const tern_json *k = tern_json_first(doc, v); k; k = tern_json_next(doc, v, k)) {
            if (k != v + 1) out = tern_term_cat(x->terms, out, text(x, ","));
            out = cat3(x, out, x->space, tern_schema_name(x, tern_json_str(k)));
            out = cat3(x, out, x->colon, tern_schema_literal(x, tern_json_value_of(doc, k)));
        }
        return cat3(x, out, x->space, text(x, "}"));
    }
    return TERN_TERM_NOTHING;
}
