// Strings that are texts of a grammar, of our own keyword: {"type": "string", "x-grammar":
// {"syntax": "lark", "definition": "start: ..."}}. OpenAI's custom tools become schemas with it.
//
// A grammar is not regular in general, so there is no term to intersect: the keyword stands alone
// among those about strings. Its characters are compiled in the spelling of the place.
#include <string.h>
#include "grammar/rules/ebnf.h"
#include "grammar/schema/schema.h"

const tern_json *tern_schema_grammar_of(const tern_schema *x, const tern_fact *f, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_NOT && tern_str_is(f[i].name, TERN_SCHEMA_GRAMMAR))
            return f[i].at;
        const tern_json *v =
            f[i].kind == TERN_FACT_SCHEMA ? tern_schema_get(x, f[i].at, TERN_SCHEMA_GRAMMAR) : NULL;
        if (v) return v;
    }
    return NULL;
}

// Whether the facts say anything else of strings. Values of const and enum are judged elsewhere.
static bool is_alone(const tern_schema *x, const tern_fact *f, size_t n, const tern_json *grammar) {
    static const char *const others[] = {"minLength", "maxLength", "pattern", "format"};
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind == TERN_FACT_NOT) return false;
        if (f[i].kind != TERN_FACT_SCHEMA) continue;
        const tern_json *v = tern_schema_get(x, f[i].at, TERN_SCHEMA_GRAMMAR);
        if (v && v != grammar) return false;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            if (tern_schema_get(x, f[i].at, others[k])) return false;
    }
    return true;
}

tern_status tern_schema_grammar(tern_schema *x, const tern_fact *f, size_t n, tern_expr *out) {
    const tern_json *v = tern_schema_grammar_of(x, f, n);
    const tern_str syntax = tern_json_str(tern_json_get(&x->doc, v, "syntax")),
                   text = tern_json_str(tern_json_get(&x->doc, v, "definition"));
    const tern_json_way *w = x->way;
    const bool is_marked = w->quote.len > 0, is_lark = tern_str_is(syntax, "lark");
    tern_ebnf_way way = {is_lark ? TERN_NOTATION_LARK : TERN_NOTATION_GBNF, TERN_SPELL_JSON, 0};
    tern_error err = {0};
    tern_expr inside;
    *out = TERN_EXPR_NOTHING;
    if (!v) return TERN_OK;
    if (!text.ptr || (!is_lark && !tern_str_is(syntax, "gbnf")))
        return tern_schema_fail(x, v,
                                "{\"syntax\": \"lark\" or \"gbnf\", \"definition\": "
                                "\"...\"} is expected");
    if (!is_alone(x, f, n, v))
        return tern_schema_fail(x, v, "a grammar beside other conditions of a string");
    if (is_marked) {
        way.spelling = TERN_SPELL_UTF8;
        way.within = x->free_text;
    }
    TERN_TRY(tern_schema_work(x, 1 + text.len));
    const tern_status status = tern_ebnf_expr(x->rules, text, &way, &inside, &err);
    if (status == TERN_ERR_UNSUPPORTED) return tern_schema_fail(x, v, "%s", err.message);
    if (status != TERN_OK) return tern_fail(x->err, status, "%s", err.message);
    const tern_term open =
                        is_marked ? tern_term_text(x->terms, w->quote.ptr, w->quote.len) : x->quote,
                    close = is_marked ? tern_term_text(x->terms, w->unquote.ptr, w->unquote.len)
                                      : x->quote;
    *out = tern_expr_cat(x->rules, inside, tern_expr_term(x->rules, close));
    *out = tern_expr_cat(x->rules, tern_expr_term(x->rules, open), *out);
    return tern_terms_check(x->terms, x->err);
}
