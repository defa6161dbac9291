// Strings: lengths, patterns and formats, as terms of the text between the quotes.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"
#include "grammar/rules/pattern.h"
#include "grammar/schema/schema.h"

// ---- Patterns and formats -----------------------------------------------------------------------

static const tern_cached_term *find_cached(const tern_schema *x, const tern_json *at) {
    for (size_t i = 0; i < x->n_cached; i++)
        if (x->cached[i].at == at) return &x->cached[i];
    return NULL;
}

static tern_status keep(tern_schema *x, const tern_json *at, tern_term term) {
    if (tern_array_reserve(TERN_MEM_SESSION, &x->cached, &x->cached_capacity, x->n_cached, 1) != 0)
        return tern_schema_memory(x);
    x->cached[x->n_cached++] = (tern_cached_term){at, term};
    return TERN_OK;
}

tern_status tern_schema_pattern(tern_schema *x, const tern_json *at, tern_str text,
                                tern_term *out) {
    const tern_cached_term *c = find_cached(x, at);
    tern_error err = {0};
    if (c) {
        *out = c->term;
        return TERN_OK;
    }
    if (!text.ptr) return tern_schema_fail(x, at, "a pattern that is not a string");
    tern_status status =
        tern_pattern_term(x->terms, text.ptr, text.len,
                          (tern_pattern_way){TERN_SPELL_JSON, .is_search = true}, out, &err);
    if (status == TERN_ERR_UNSUPPORTED) return tern_schema_fail(x, at, "%s", err.message);
    if (status != TERN_OK) return tern_fail(x->err, status, "%s", err.message);
    return keep(x, at, *out);
}

#define DAYS                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])"                       \
    "|(?:[02468][048]|[13579][26])00)-02-29)"
// A leap second is at the end of a day of UTC; with other offsets it is left out.
#define TIME                                                                                       \
    "(?:(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"  \
    "|23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00))"
#define CLOCK   "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define BYTE    "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4    "(?:" BYTE "\\." BYTE "\\." BYTE "\\." BYTE ")"
#define H16     "[0-9A-Fa-f]{1,4}"
#define LS32    "(?:" H16 ":" H16 "|" IPV4 ")"
#define H16S(n) "(?:(?:" H16 ":){0," #n "}" H16 ")?"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|" H16S(1) "::(?:" H16 ":){3}" LS32 "|" H16S(2) "::(?:" H16 ":){2}" LS32 "|" H16S(            \
        3) "::" H16 ":" LS32 "|" H16S(4) "::" LS32 "|" H16S(5) "::" H16 "|" H16S(6) "::)"
// No hyphens in the third and fourth place, which are reserved for names in other scripts.
#define LABEL                                                                                      \
    "(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9])?"                                              \
    "|[A-Za-z0-9][A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}"           \
    "[A-Za-z0-9])"
#define HOST  LABEL "(?:\\." LABEL ")*"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define MAIL                                                                                       \
    "(?:" ATEXT "(?:\\." ATEXT ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" HOST "|\\[" IPV4 "\\]"  \
    "|\\[IPv6:" IPV6 "\\])"
#define HEX2       "%[0-9A-Fa-f]{2}"
#define U_ASCII    ""
#define U_ALL      "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{EFFFD}"
#define PCHAR(U)   "(?:[A-Za-z0-9._~!$&'()*+,;=:@" U "-]|" HEX2 ")"
#define SEGMENT(U) "(?:[A-Za-z0-9._~!$&'()*+,;=@" U "-]|" HEX2 ")" // without a colon
#define AUTHORITY(U)                                                                               \
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" U "-]|" HEX2 ")*@)?(?:\\[(?:" IPV6                           \
    "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|(?:[A-Za-z0-9._~!$&'()*+,;=" U           \
    "-]|" HEX2 ")*)(?::\\d*)?"
#define PATH(U) "(?:/" PCHAR(U) "*)*"
#define TAIL(U) "(?:\\?(?:" PCHAR(U) "|[/?])*)?(?:#(?:" PCHAR(U) "|[/?])*)?"
#define WHOLE_URI(U)                                                                               \
    "[A-Za-z][A-Za-z0-9+.-]*:(?://" AUTHORITY(U)                                                   \
        PATH(U) "|/(?:" PCHAR(U) "+" PATH(U) ")?|" PCHAR(U) "+" PATH(U) "|)" TAIL(U)
#define RELATIVE(U)                                                                                \
    "(?://" AUTHORITY(U)                                                                           \
        PATH(U) "|/(?:" PCHAR(U) "+" PATH(U) ")?|" SEGMENT(U) "+" PATH(U) "|)" TAIL(U)
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define VARIABLE                                                                                   \
    "(?:[A-Za-z0-9_]|" HEX2 ")(?:\\.?(?:[A-Za-z0-9_]|" HEX2 "))*(?::[1-9]\\d{0,3}|\\*)?"

static const struct {
    const char *name, *pattern; // NULL: known, but no automaton can express it
} formats[] = {
    {"date", DAYS},
    {"time", TIME},
    {"date-time", DAYS "[Tt]" TIME},
    {"duration",
     "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:" CLOCK ")?|" CLOCK ")"},
    {"email", MAIL},
    {"hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", WHOLE_URI(U_ASCII)},
    {"uri-reference", WHOLE_URI(U_ASCII) "|" RELATIVE(U_ASCII)},
    {"iri", WHOLE_URI(U_ALL)},
    {"iri-reference", WHOLE_URI(U_ALL) "|" RELATIVE(U_ALL)},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" POINTER ")"},
    {"uri-template", "(?:[!#$&(-;=?-\\[\\]_a-z~" U_ALL "]|" HEX2 "|\\{[+#./;?&=,!@|]?" VARIABLE
                     "(?:," VARIABLE ")*\\})*"},
    {"regex", NULL},
    {"idn-email", NULL},
    {"idn-hostname", NULL},
};

tern_status tern_schema_format(tern_schema *x, const tern_json *at, bool *known, tern_term *out) {
    const tern_str name = tern_json_str(at);
    *known = false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!tern_str_is(name, formats[i].name)) continue;
        *known = true;
        const char *p = formats[i].pattern;
        if (!p) return tern_schema_fail(x, at, "the format '%s' is not known", formats[i].name);
        const tern_cached_term *c = find_cached(x, at);
        if (c) {
            *out = c->term;
            return TERN_OK;
        }
        TERN_TRY(tern_pattern_term(x->terms, p, strlen(p),
                                   (tern_pattern_way){.spelling = TERN_SPELL_JSON}, out, x->err));
        if (strcmp(formats[i].name, "hostname") == 0)
            *out = tern_term_and(x->terms, *out, tern_term_repeat(x->terms, x->any_char, 1, 253));
        return keep(x, at, *out);
    }
    return TERN_OK;
}

// ---- Strings ------------------------------------------------------------------------------------

typedef struct parts {
    tern_schema *x;
    tern_term all; // of all keywords so far
    uint32_t min, max;
    bool never;
} parts;

static void add(parts *p, tern_term term, bool wanted) {
    if (!wanted) term = tern_term_not(p->x->terms, term);
    p->all = tern_term_and(p->x->terms, p->all, term);
}

static tern_status add_length(parts *p, const tern_json *v, bool is_min, bool wanted) {
    uint32_t n;
    TERN_TRY(tern_schema_count(p->x, v, &n));
    if (!wanted) { // not minLength: shorter; not maxLength: longer
        is_min = !is_min;
        if (is_min ? n == TERN_NO_LIMIT : n == 0) p->never = true;
        n = is_min ? n + 1 : n - 1;
    }
    if (is_min && n > p->min) p->min = n;
    if (!is_min && n < p->max) p->max = n;
    return TERN_OK;
}

static tern_status add_keyword(parts *p, const char *name, const tern_json *v, bool wanted) {
    tern_schema *x = p->x;
    tern_term term = TERN_TERM_NOTHING;
    bool known = true;
    if (!v) return TERN_OK;
    if (strcmp(name, "minLength") == 0) return add_length(p, v, true, wanted);
    if (strcmp(name, "maxLength") == 0) return add_length(p, v, false, wanted);
    if (strcmp(name, "format") == 0)
        TERN_TRY(tern_schema_format(x, v, &known, &term));
    else
        TERN_TRY(tern_schema_pattern(x, v, tern_json_str(v), &term));
    if (known) add(p, term, wanted);
    return TERN_OK;
}

tern_term tern_schema_spellings(tern_schema *x, tern_str s) {
    tern_term all = TERN_TERM_EMPTY;
    for (size_t at = s.len; at > 0;) {
        size_t from = at - 1;
        uint32_t code = 0xFFFD;
        while (from > 0 && ((unsigned char)s.ptr[from] & 0xC0) == 0x80) from--;
        tern_utf8_decode(s.ptr + from, at - from, &code);
        tern_code_range range = {code, code};
        const tern_codes one = {.ranges = &range, .n = 1};
        all = tern_term_cat(x->terms, tern_term_codes(x->terms, &one, TERN_SPELL_JSON), all);
        at = from;
    }
    return all;
}

static void add_not_equal(parts *p, const tern_json *v) {
    if (tern_json_is(v, TERN_JSON_STRING))
        add(p, tern_schema_spellings(p->x, tern_json_str(v)), false);
}

tern_status tern_schema_string(tern_schema *x, const tern_fact *f, size_t n, tern_term *out) {
    static const char *const names[] = {"minLength", "maxLength", "pattern", "format"};
    parts p = {.x = x, .all = TERN_TERM_ALL, .max = TERN_NO_LIMIT};
    const tern_json *grammar = tern_schema_grammar_of(x, f, n);
    if (grammar) return tern_schema_fail(x, grammar, "a grammar of a name, or beside other values");
    for (size_t i = 0; i < n; i++) {
        bool wanted = f[i].kind == TERN_FACT_SCHEMA;
        if (!wanted && f[i].kind != TERN_FACT_NOT) continue;
        for (size_t k = 0; k < 4; k++) {
            if (wanted)
                TERN_TRY(add_keyword(&p, names[k], tern_schema_get(x, f[i].at, names[k]), true));
            else if (tern_str_is(f[i].name, names[k]))
                TERN_TRY(add_keyword(&p, names[k], f[i].at, false));
        }
        if (wanted) continue;
        if (tern_str_is(f[i].name, "const")) add_not_equal(&p, f[i].at);
        if (!tern_str_is(f[i].name, "enum")) continue;
        for (const tern_json *e = tern_json_first(&x->doc, f[i].at); e;
             e = tern_json_next(&x->doc, f[i].at, e))
            add_not_equal(&p, e);
    }
    // If no text is empty anyway, a least length of 1 need not be counted.
    if (p.min == 1 && !tern_term_is_nullable(x->terms, p.all)) p.min = 0;
    bool any_length = p.min == 0 && p.max == TERN_NO_LIMIT;
    bool only_not = p.all == TERN_TERM_ALL || x->terms->nodes[p.all].kind == TERN_KIND_NOT ||
                    x->terms->nodes[p.all].kind == TERN_KIND_BOTH;
    if (!any_length || only_not)
        add(&p, tern_term_repeat(x->terms, x->any_char, p.min, p.max), true);
    *out = p.never ? TERN_TERM_NOTHING : p.all;
    if (!tern_term_is_alive(x->terms, *out)) *out = TERN_TERM_NOTHING;
    return tern_terms_check(x->terms, x->err);
}
