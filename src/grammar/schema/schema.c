// JSON Schema: the document, demands, and the rules of each.
#include "grammar/schema/schema.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/rules/pattern.h"

#define DEPTH_MAX 20 // of demands made by recursion; deeper ones wait in the queue

// ---- Errors -------------------------------------------------------------------------------------

// The JSON pointer of a node.
static void point_to(const tern_schema *x, const tern_json *at, tern_strbuf *out) {
    const tern_json_doc *doc = &x->doc;
    const tern_json *v = tern_json_root(doc);
    tern_strbuf_puts(out, "#");
    while (v != at) {
        size_t index = 0;
        bool is_map = tern_json_is(v, TERN_JSON_OBJECT);
        const tern_json *c = tern_json_first(doc, v), *value = NULL;
        for (; c; c = tern_json_next(doc, v, c), index++) {
            value = is_map ? tern_json_value_of(doc, c) : c;
            if (c <= at && at < &doc->nodes[value->next]) break;
        }
        if (!c) return;
        tern_strbuf_putc(out, '/');
        if (!is_map) tern_strbuf_printf(out, "%zu", index);
        for (size_t i = 0; is_map && i < c->n; i++) {
            if (c->text[i] == '~')
                tern_strbuf_puts(out, "~0");
            else if (c->text[i] == '/')
                tern_strbuf_puts(out, "~1");
            else
                tern_strbuf_putc(out, c->text[i]);
        }
        if (c == at) return;
        v = value;
    }
}

tern_status tern_schema_fail(const tern_schema *x, const tern_json *at, const char *format, ...) {
    tern_strbuf where = {0}, what = {0};
    va_list args;
    va_start(args, format);
    tern_strbuf_vprintf(&what, format, args);
    va_end(args);
    point_to(x, at, &where);
    // If memory ran out, an error may only mean that something could not be read.
    bool out_of_memory = where.failed || what.failed;
    if (!out_of_memory)
        tern_fail(x->err, TERN_ERR_UNSUPPORTED, "the schema at %s: %s", tern_strbuf_text(&where),
                  tern_strbuf_text(&what));
    tern_strbuf_free(&where);
    tern_strbuf_free(&what);
    return out_of_memory ? tern_schema_memory(x) : TERN_ERR_UNSUPPORTED;
}

tern_status tern_schema_memory(const tern_schema *x) {
    return tern_fail_memory(x->err, x->n_demands * sizeof *x->demands);
}

// ---- Keywords -----------------------------------------------------------------------------------

const tern_json *tern_schema_get(const tern_schema *x, const tern_json *schema, const char *name) {
    // Keywords that not all drafts have.
    static const struct {
        const char *name;
        int first, last;
    } some[] = {
        {"const", 6, 9},
        {"contains", 6, 9},
        {"propertyNames", 6, 9},
        {"if", 7, 9},
        {"then", 7, 9},
        {"else", 7, 9},
        {"dependentRequired", 8, 9},
        {"dependentSchemas", 8, 9},
        {"prefixItems", 9, 9},
        {"minContains", 8, 9},
        {"maxContains", 8, 9},
        {"unevaluatedItems", 8, 9},
        {"unevaluatedProperties", 8, 9},
        {"$dynamicRef", 9, 9},
        {"$recursiveRef", 8, 8},
        {"$dynamicAnchor", 9, 9},
        {"$recursiveAnchor", 8, 8},
    };
    const tern_json *v = tern_schema_key(x, schema, (tern_str){name, strlen(name)});
    if (!v || x->is_lenient) return v;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (strcmp(some[i].name, name) == 0)
            return x->draft >= some[i].first && x->draft <= some[i].last ? v : NULL;
    return v;
}

tern_status tern_schema_count(const tern_schema *x, const tern_json *v, uint32_t *out) {
    bool ok = tern_json_is(v, TERN_JSON_NUMBER) && tern_schema_type_of(v) == TERN_TYPE_WHOLE;
    if (!ok || v->number < 0) return tern_schema_fail(x, v, "no whole number from 0 on");
    *out =
        v->n == TERN_JSON_LONG || v->number >= TERN_NO_LIMIT ? TERN_NO_LIMIT : (uint32_t)v->number;
    return TERN_OK;
}

tern_status tern_schema_limit(const tern_schema *x, const tern_json *v, bool is_least, bool holds,
                              uint32_t *least, uint32_t *most) {
    uint32_t n = 0;
    if (!v) return TERN_OK;
    TERN_TRY(tern_schema_count(x, v, &n));
    if (!holds) { // the negation of a bound is one of the other kind
        is_least = !is_least;
        if (is_least ? n == TERN_NO_LIMIT : n == 0) { // no count satisfies it
            *least = TERN_NO_LIMIT;
            return TERN_OK;
        }
        n = is_least ? n + 1 : n - 1;
    }
    if (is_least && n > *least) *least = n;
    if (!is_least && n < *most) *most = n;
    return TERN_OK;
}

tern_item tern_schema_item(const tern_schema *x, const tern_json *schema) {
    return (tern_item)(schema - x->doc.nodes) << 1;
}

static tern_status find_draft(tern_schema *x) {
    const tern_json *v = tern_json_get(&x->doc, tern_json_root(&x->doc), "$schema");
    const tern_str uri = tern_json_str(v);
    static const struct {
        const char *name;
        int draft;
    } drafts[] = {{"json-schema.org/draft-04/schema", 4},
                  {"json-schema.org/draft-06/schema", 6},
                  {"json-schema.org/draft-07/schema", 7},
                  {"json-schema.org/draft/2019-09/schema", 8},
                  {"json-schema.org/draft/2020-12/schema", 9}};
    x->draft = 9;
    x->is_lenient = v == NULL;
    if (!v) return TERN_OK;
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts && uri.ptr; i++)
        if (memmem(uri.ptr, uri.len, drafts[i].name, strlen(drafts[i].name))) {
            x->draft = drafts[i].draft;
            return TERN_OK;
        }
    return tern_schema_fail(x, v, "drafts 4, 6, 7, 2019-09 and 2020-12 are known, not this one");
}

// ---- Demands ------------------------------------------------------------------------------------

static int rising(const void *a, const void *b) {
    tern_item x = *(const tern_item *)a, y = *(const tern_item *)b;
    return x < y ? -1 : x > y;
}

static uint64_t hash_items(const tern_item *items, size_t n) {
    return tern_hash64(n, items, n * sizeof *items);
}

static bool grow_slots(tern_schema *x) {
    if (x->n_demands * 2 < x->n_slots) return true;
    size_t more = x->n_slots ? x->n_slots * 2 : 128;
    uint32_t *slots = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < x->n_demands; i++) {
        const tern_demand *d = &x->demands[i];
        size_t at = hash_items(tern_demand_items(x, d), d->n) & (more - 1);
        while (slots[at]) at = (at + 1) & (more - 1);
        slots[at] = (uint32_t)i + 1;
    }
    tern_free(x->slots);
    x->slots = slots;
    x->n_slots = more;
    return true;
}

tern_status tern_schema_demand(tern_schema *x, tern_item *items, size_t n, uint32_t *out) {
    // Drops schemas that are always true.
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const tern_json *s = tern_schema_at(x, items[i]);
        bool is_true = (tern_json_is(s, TERN_JSON_OBJECT) && s->n == 0) || tern_json_bool(s, false);
        bool is_false = tern_json_is(s, TERN_JSON_BOOL) && !is_true;
        if (!(items[i] & 1 ? is_false : is_true)) items[m++] = items[i];
    }
    // Sorts schemas by their place in the document, and so properties, too.
    if (m > 1) qsort(items, m, sizeof *items, rising);
    n = 0;
    for (size_t i = 0; i < m; i++)
        if (n == 0 || items[n - 1] != items[i]) items[n++] = items[i];
    if (!grow_slots(x)) return tern_schema_memory(x);
    size_t mask = x->n_slots - 1, at = hash_items(items, n) & mask;
    for (; x->slots[at]; at = (at + 1) & mask) {
        const tern_demand *d = &x->demands[x->slots[at] - 1];
        if (d->n == n &&
            (n == 0 || memcmp(tern_demand_items(x, d), items, n * sizeof *items) == 0)) {
            *out = x->slots[at] - 1;
            return TERN_OK;
        }
    }
    if (x->n_demands > TERN_SCHEMA_WORK_MAX)
        return tern_schema_fail(x, tern_json_root(&x->doc), "too many alternatives");
    if (tern_array_reserve(TERN_MEM_SESSION, &x->demands, &x->demands_capacity, x->n_demands, 1) !=
            0 ||
        tern_array_reserve(TERN_MEM_SESSION, &x->items, &x->items_capacity, x->n_items, n) != 0)
        return tern_schema_memory(x);
    x->demands[x->n_demands] = (tern_demand){.at = x->n_items, .n = n};
    if (n) memcpy(x->items + x->n_items, items, n * sizeof *items);
    x->n_items += n;
    x->slots[at] = (uint32_t)++x->n_demands;
    *out = (uint32_t)x->n_demands - 1;
    return TERN_OK;
}

// ---- Values that are listed ---------------------------------------------------------------------

// The list of values that a case allows, if one of its schemas has `enum` or `const`; *one: the
// value of a `const`.
static const tern_json *values_of(const tern_schema *x, const tern_fact *f, size_t n,
                                  const tern_json **one) {
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind != TERN_FACT_SCHEMA) continue;
        *one = tern_schema_get(x, f[i].at, "const");
        if (*one) return *one;
    }
    for (size_t i = 0; i < n; i++) {
        if (f[i].kind != TERN_FACT_SCHEMA) continue;
        const tern_json *list = tern_schema_get(x, f[i].at, "enum");
        if (list) return list;
    }
    return NULL;
}

// Calls back for each value of the list that the case allows.
typedef struct taker {
    tern_status (*take)(tern_schema *x, const tern_json *v, void *to);
    void *to;
} taker;

static tern_status each_value(tern_schema *x, const tern_fact *f, size_t n, unsigned types,
                              bool *has_list, taker by) {
    const tern_json *one = NULL, *list = values_of(x, f, n, &one);
    *has_list = list != NULL;
    if (!list) return TERN_OK;
    const tern_json *e = one ? one : tern_json_first(&x->doc, list);
    for (; e; e = one ? NULL : tern_json_next(&x->doc, list, e)) {
        bool fits = false;
        if (!(tern_schema_type_of(e) & types)) continue;
        TERN_TRY(tern_schema_work(x, 1));
        x->taken = list;
        tern_status status = tern_schema_facts_hold(x, f, n, e, &fits);
        x->taken = NULL;
        TERN_TRY(status);
        if (fits) TERN_TRY(by.take(x, e, by.to));
    }
    return TERN_OK;
}

typedef struct term_list {
    tern_term *terms;
    size_t n, capacity;
} term_list;

static tern_status add_term(tern_schema *x, term_list *l, tern_term a) {
    if (tern_array_reserve(TERN_MEM_SESSION, &l->terms, &l->capacity, l->n, 1) != 0)
        return tern_schema_memory(x);
    l->terms[l->n++] = a;
    return TERN_OK;
}

static tern_status take_literal(tern_schema *x, const tern_json *v, void *to) {
    return add_term(x, to, tern_schema_literal(x, v));
}

static tern_status take_name(tern_schema *x, const tern_json *v, void *to) {
    return add_term(x, to, tern_schema_spellings(x, tern_json_str(v)));
}

tern_status tern_schema_names(tern_schema *x, const tern_fact *f, size_t n, tern_term *out) {
    term_list l = {0};
    bool has_list;
    tern_status status = each_value(x, f, n, TERN_TYPE_STRING, &has_list, (taker){take_name, &l});
    if (status == TERN_OK && !has_list)
        status = tern_schema_string(x, f, n, out);
    else if (status == TERN_OK)
        *out = tern_term_either(x->terms, l.terms, l.n);
    tern_free(l.terms);
    return status;
}

typedef struct value_list {
    const tern_json **values;
    size_t n, max;
} value_list;

static tern_status take_value(tern_schema *x, const tern_json *v, void *to) {
    value_list *l = to;
    for (size_t i = 0; i < l->n && i < l->max; i++)
        if (tern_schema_equal(x, l->values[i], v)) return TERN_OK;
    if (l->n < l->max) l->values[l->n] = v;
    if (l->n <= l->max) l->n++;
    return TERN_OK;
}

tern_status tern_schema_listed(tern_schema *x, uint32_t demand, const tern_json **values,
                               size_t max, size_t *n) {
    const tern_demand d = x->demands[demand];
    value_list l = {values, 0, max};
    tern_cases cases = {0};
    tern_status status = tern_schema_cases(x, tern_demand_items(x, &d), d.n, &cases);
    for (size_t i = 0; i < cases.n && status == TERN_OK; i++) {
        const tern_case *c = &cases.cases[i];
        bool has_list;
        status = each_value(x, tern_case_facts(&cases, c), c->n, c->types, &has_list,
                            (taker){take_value, &l});
        if (!has_list) l.n = max + 1;
    }
    tern_schema_cases_free(&cases);
    *n = l.n;
    return status;
}

// ---- Cases become expressions -------------------------------------------------------------------

static tern_status add_types(tern_schema *x, const tern_fact *f, const tern_case *c,
                             tern_expr *sum) {
    tern_rules *r = x->rules;
    tern_term term, plain = TERN_TERM_NOTHING;
    tern_expr e;
    for (unsigned type = TERN_TYPE_NULL; type <= TERN_TYPE_TRUE; type *= 2)
        if (c->types & type) plain = tern_term_or(x->terms, plain, tern_schema_word(x, type));
    *sum = tern_expr_or(r, *sum, tern_expr_term(r, plain));
    if (c->types & TERN_TYPE_NUMBER) {
        TERN_TRY(tern_schema_number(x, f, c->n, c->types & TERN_TYPE_NUMBER, &term));
        *sum = tern_expr_or(r, *sum, tern_expr_open(r, term));
    }
    if (c->types & TERN_TYPE_STRING && tern_schema_grammar_of(x, f, c->n)) {
        TERN_TRY(tern_schema_grammar(x, f, c->n, &e));
        *sum = tern_expr_or(r, *sum, e);
    } else if (c->types & TERN_TYPE_STRING) {
        TERN_TRY(tern_schema_string(x, f, c->n, &term));
        *sum = tern_expr_or(r, *sum, tern_expr_open(r, tern_schema_quoted(x, term)));
    }
    if (c->types & TERN_TYPE_ARRAY) {
        TERN_TRY(tern_schema_array(x, f, c->n, &e));
        *sum = tern_expr_or(r, *sum, e);
    }
    if (c->types & TERN_TYPE_OBJECT) {
        TERN_TRY(tern_schema_object(x, f, c->n, &e));
        *sum = tern_expr_or(r, *sum, e);
    }
    return TERN_OK;
}

static tern_status add_case(tern_schema *x, const tern_fact *f, const tern_case *c,
                            tern_expr *sum) {
    term_list l = {0};
    bool has_list;
    tern_status status = each_value(x, f, c->n, c->types, &has_list, (taker){take_literal, &l});
    if (status == TERN_OK && !has_list)
        status = add_types(x, f, c, sum);
    else if (status == TERN_OK)
        *sum = tern_expr_or(x->rules, *sum,
                            tern_expr_term(x->rules, tern_term_either(x->terms, l.terms, l.n)));
    tern_free(l.terms);
    return status;
}

static tern_status make(tern_schema *x, uint32_t demand) {
    tern_cases cases = {0};
    const tern_demand d = x->demands[demand];
    tern_expr sum = TERN_EXPR_NOTHING;
    x->demands[demand].is_open = true;
    x->depth++;
    tern_status status = tern_schema_cases(x, tern_demand_items(x, &d), d.n, &cases);
    for (size_t i = 0; i < cases.n && status == TERN_OK; i++)
        status = add_case(x, tern_case_facts(&cases, &cases.cases[i]), &cases.cases[i], &sum);
    tern_schema_cases_free(&cases);
    x->depth--;
    tern_demand *now = &x->demands[demand];
    now->is_open = false;
    now->is_known = true;
    if (status != TERN_OK) return status;
    // A single term stays a term, so that it is joined with its neighbours; others become rules.
    if (!now->has_rule && (sum == TERN_EXPR_NOTHING || tern_expr_is_term(x->rules, sum))) {
        now->expr = sum;
        return TERN_OK;
    }
    if (!now->has_rule) now->rule = tern_rules_new(x->rules);
    now->has_rule = true;
    tern_rules_define(x->rules, now->rule, sum);
    now->expr = tern_expr_call(x->rules, now->rule);
    return TERN_OK;
}

tern_status tern_schema_demand_expr(tern_schema *x, uint32_t demand, tern_expr *out) {
    const tern_demand *d = &x->demands[demand];
    if (!d->is_known && !d->is_open && x->depth < DEPTH_MAX) TERN_TRY(make(x, demand));
    tern_demand *now = &x->demands[demand];
    if (!now->is_known && !now->has_rule) {
        now->has_rule = true;
        now->rule = tern_rules_new(x->rules);
        now->expr = tern_expr_call(x->rules, now->rule);
        if (!now->is_open) { // too deep: made later
            if (tern_array_reserve(TERN_MEM_SESSION, &x->queue, &x->queue_capacity, x->n_queue,
                                   1) != 0)
                return tern_schema_memory(x);
            x->queue[x->n_queue++] = demand;
        }
    }
    *out = x->demands[demand].expr;
    return TERN_OK;
}

// ---- Whether a value may be left ----------------------------------------------------------------

static tern_status may_object(tern_schema *x, const tern_fact *f, size_t n, int depth, bool *out) {
    tern_object o;
    uint32_t n_required = 0, demand;
    tern_status status = tern_schema_object_read(x, f, n, &o);
    *out = o.min <= o.max;
    for (size_t i = 0; i < o.n_members && status == TERN_OK && *out; i++) {
        if (!o.members[i].is_required) continue;
        n_required++;
        if (o.members[i].is_forbidden)
            *out = false;
        else
            status = tern_schema_object_demand(&o, o.members[i].name, &demand);
        if (status == TERN_OK && *out) status = tern_schema_may_hold(x, demand, depth + 1, out);
    }
    if (n_required > o.max) *out = false;
    tern_schema_object_free(&o);
    return status;
}

static tern_status note_value(tern_schema *x, const tern_json *v, void *to) {
    (void)x;
    (void)v;
    *(bool *)to = true;
    return TERN_OK;
}

static tern_status may_case(tern_schema *x, const tern_fact *f, const tern_case *c, int depth,
                            bool *out) {
    bool has_list;
    tern_term term;
    *out = false;
    TERN_TRY(each_value(x, f, c->n, c->types, &has_list, (taker){note_value, out}));
    if (has_list || *out) return TERN_OK;
    *out = c->types & (TERN_TYPE_NULL | TERN_TYPE_BOOL);
    if (!*out && c->types & TERN_TYPE_NUMBER) {
        TERN_TRY(tern_schema_number(x, f, c->n, c->types & TERN_TYPE_NUMBER, &term));
        *out = term != TERN_TERM_NOTHING;
    }
    if (c->types & TERN_TYPE_STRING && tern_schema_grammar_of(x, f, c->n)) {
        *out = true; // whether it has a text shows when it is made
    } else if (!*out && c->types & TERN_TYPE_STRING) {
        TERN_TRY(tern_schema_string(x, f, c->n, &term));
        *out = term != TERN_TERM_NOTHING;
    }
    if (!*out && c->types & TERN_TYPE_ARRAY) {
        tern_array a;
        TERN_TRY(tern_schema_array_read(x, f, c->n, &a));
        *out = a.min <= a.max;
        for (uint32_t i = 0; i < a.min && i < a.n_fixed && *out; i++) {
            uint32_t demand;
            TERN_TRY(tern_schema_array_demand(&a, i, NULL, 0, &demand));
            TERN_TRY(tern_schema_may_hold(x, demand, depth + 1, out));
        }
    }
    if (!*out && c->types & TERN_TYPE_OBJECT) return may_object(x, f, c->n, depth, out);
    return TERN_OK;
}

tern_status tern_schema_may_hold(tern_schema *x, uint32_t demand, int depth, bool *out) {
    const tern_demand d = x->demands[demand];
    tern_cases cases = {0};
    *out = d.sat != 1;
    if (d.sat || depth > 8) return TERN_OK;
    x->demands[demand].sat = 3;
    tern_status status = tern_schema_cases(x, tern_demand_items(x, &d), d.n, &cases);
    *out = false;
    for (size_t i = 0; i < cases.n && status == TERN_OK && !*out; i++)
        status = may_case(x, tern_case_facts(&cases, &cases.cases[i]), &cases.cases[i], depth, out);
    tern_schema_cases_free(&cases);
    x->demands[demand].sat = *out ? 2 : 1;
    return status;
}

// ---- The whole ----------------------------------------------------------------------------------

// The terms of strings between marks.
static void make_marked(tern_schema *x) {
    tern_terms *t = x->terms;
    const tern_str bad = x->way->forbidden;
    tern_byteset escaped = tern_byteset_range(0, 31);
    tern_byteset_add(&escaped, '\\');
    tern_byteset_add(&escaped, '"');
    tern_term around = tern_term_cat(t, tern_term_text(t, bad.ptr, bad.len), TERN_TERM_ALL);
    tern_term clean = tern_term_not(t, tern_term_cat(t, TERN_TERM_ALL, around));
    tern_term any = tern_term_repeat(t, tern_term_any_code(t, TERN_SPELL_UTF8), 0, TERN_NO_LIMIT);
    tern_term no_escape = tern_term_cat(t, tern_term_set(t, escaped), TERN_TERM_ALL);
    no_escape = tern_term_not(t, tern_term_cat(t, TERN_TERM_ALL, no_escape));
    x->free_text = tern_term_and(t, any, clean);
    x->plain_text = tern_term_and(t, x->free_text, no_escape);
}

static tern_status make_terms(tern_schema *x) {
    static const char usual[] = "(?: |\\n[ \\t]{0,40})?";
    const tern_pattern_way way = {.spelling = TERN_SPELL_UTF8};
    tern_terms *t = x->terms;
    x->any_char = tern_term_any_code(t, TERN_SPELL_JSON);
    x->any_string = tern_term_repeat(t, x->any_char, 0, TERN_NO_LIMIT);
    x->quote = tern_term_byte(t, '"');
    x->space = TERN_TERM_EMPTY;
    x->colon = tern_term_byte(t, ':');
    if (x->way->quote.len) make_marked(x);
    if (x->way->compact) return tern_terms_check(t, x->err);
    TERN_TRY(tern_pattern_term(t, usual, sizeof usual - 1, way, &x->space, x->err));
    x->colon = tern_term_cat(t, x->colon, tern_term_repeat(t, tern_term_byte(t, ' '), 0, 1));
    return tern_terms_check(t, x->err);
}

static tern_status compile(tern_schema *x, tern_str text_of, tern_str member, tern_expr *root) {
    uint32_t demand;
    tern_item item;
    TERN_TRY(tern_json_parse(&x->doc, text_of.ptr, text_of.len, x->err));
    if (x->doc.n_nodes >= UINT32_MAX / 2)
        return tern_fail(x->err, TERN_ERR_UNSUPPORTED, "the schema is too large");
    TERN_TRY(tern_schema_index(x));
    TERN_TRY(find_draft(x));
    TERN_TRY(make_terms(x));
    TERN_TRY(tern_schema_collect(x));
    const tern_json *at = tern_json_root(&x->doc);
    const tern_json *map = member.ptr ? tern_json_get(&x->doc, at, "properties") : NULL;
    const tern_json *of_member = tern_schema_key(x, map, member);
    if (of_member) at = of_member;
    item = tern_schema_item(x, at);
    TERN_TRY(tern_schema_demand(x, &item, 1, &demand));
    TERN_TRY(tern_schema_demand_expr(x, demand, root));
    while (x->n_queue) {
        demand = x->queue[--x->n_queue];
        if (!x->demands[demand].is_known) TERN_TRY(make(x, demand));
    }
    return tern_terms_check(x->terms, x->err);
}

tern_status tern_schema_expr(tern_rules *r, tern_str schema, const tern_json_way *way,
                             tern_str member, tern_expr *root, tern_error *err) {
    tern_error unused;
    tern_schema x = {.rules = r, .terms = r->terms, .way = way, .err = err ? err : &unused};
    tern_status status = compile(&x, schema, member, root);
    tern_schema_index_free(&x);
    tern_json_free(&x.doc);
    for (size_t i = 0; i < x.n_named; i++) tern_free(x.named[i].uri);
    tern_free(x.named);
    tern_free(x.scopes);
    tern_free(x.demands);
    tern_free(x.items);
    tern_free(x.slots);
    tern_free(x.queue);
    tern_free(x.cached);
    return status;
}
