// Private to the grammar folder: JSON Schema, drafts 4 to 2020-12, compiled to rules.
//
//     what a place must satisfy: a set of schemas, some of them negated (a demand)
//       ── allOf, anyOf, oneOf, not, if, $ref worked out ──▶ cases: only keywords are left
//       ── by type ──▶ a term for strings, one for numbers, rules for arrays and objects
//
// Places with the same demand share a rule, so recursion needs no special care: the number of sets
// of the schema's parts is finite. Everything is exact; what cannot be expressed exactly is refused
// with a JSON pointer.
//
// Properties come in the schema's order, followed by those that it does not name.
#ifndef TERN_GRAMMAR_SCHEMA_H
#define TERN_GRAMMAR_SCHEMA_H

#include "base/json/json.h"
#include "grammar/rules/rules.h"

// How values are written: as JSON, or as some families of models write them in calls.
typedef struct tern_json_way {
    bool compact;   // no spaces; else one, or a new line with indentation, between members
    bool is_python; // True, False, None
    // Marks around strings, which then have no escapes: a string without constraints is any text
    // without `forbidden`, others are texts that need no escapes in JSON. Names are bare. Empty:
    // JSON's quotes.
    tern_str quote, unquote, forbidden;
} tern_json_way;

// The rules that texts of the schema satisfy; or those of its property `member`, if that is given.
tern_status tern_schema_expr(tern_rules *r, tern_str schema, const tern_json_way *way,
                             tern_str member, tern_expr *root, tern_error *err);

// ---- Demands ------------------------------------------------------------------------------------

// A schema of the document, by its node's index * 2; + 1: it must not hold.
typedef uint32_t tern_item;
static inline tern_item tern_item_not(tern_item i) { return i ^ 1; }

// Types as bits; whole numbers apart from others.
enum {
    TERN_TYPE_NULL = 1,
    TERN_TYPE_FALSE = 2,
    TERN_TYPE_TRUE = 4,
    TERN_TYPE_WHOLE = 8,
    TERN_TYPE_FRACTION = 16,
    TERN_TYPE_STRING = 32,
    TERN_TYPE_ARRAY = 64,
    TERN_TYPE_OBJECT = 128,
    TERN_TYPE_NUMBER = TERN_TYPE_WHOLE | TERN_TYPE_FRACTION,
    TERN_TYPE_BOOL = TERN_TYPE_FALSE | TERN_TYPE_TRUE,
    TERN_TYPE_ANY = 255,
};

typedef enum tern_fact_kind {
    TERN_FACT_SCHEMA,   // `at` is a schema whose own keywords hold
    TERN_FACT_NOT,      // keyword `name` of schema `of` does not hold; `at` is its value
    TERN_FACT_REQUIRE,  // the property `name` is there
    TERN_FACT_FORBID,   // it is not
    TERN_FACT_PROPERTY, // if it is there, `item` holds for it
    TERN_FACT_CONTAINS, // `low` to `high` elements satisfy `item`
    TERN_FACT_ELEMENT,  // element `low` satisfies `item`, if it is there
    TERN_FACT_LENGTH,   // an array has at least `low` elements
} tern_fact_kind;

typedef struct tern_fact {
    tern_fact_kind kind;
    const tern_json *at, *of;
    tern_str name;
    tern_item item;
    uint32_t low, high;
    uint32_t scope; // of a schema
} tern_fact;

// A schema's unevaluated... keywords apply to the parts of a value that no schema of its scope
// evaluates. The scope is the schema itself and all schemas that hold for the same value because it
// does: those of its allOf, $ref, anyOf ... Scopes are nested. Schemas that do not hold, and those
// that they lead to, are in no scope: 0.
typedef struct tern_scope {
    const tern_json *schema;
    uint32_t parent;
} tern_scope;

// A case: facts that hold together, for values of some types.
typedef struct tern_case {
    unsigned types;
    size_t at, n; // facts
} tern_case;

typedef struct tern_cases {
    tern_case *cases;
    size_t n, capacity;
    tern_fact *facts;
    size_t n_facts, facts_capacity;
} tern_cases;
static inline const tern_fact *tern_case_facts(const tern_cases *of, const tern_case *c) {
    return c->n ? of->facts + c->at : NULL;
}

typedef struct tern_demand {
    size_t at, n; // items
    tern_expr expr;
    bool is_known, is_open; // open: being made
    tern_rule rule;
    bool has_rule;
    uint8_t sat; // 0 not asked, 1 no value satisfies it, 2 one may, 3 being asked
} tern_demand;

typedef struct tern_named {
    const tern_json *at; // a schema with an id or an anchor
    char *uri;           // complete; of an anchor: the document's, "#", and the anchor
} tern_named;

typedef struct tern_cached_term {
    const tern_json *at; // a string: a pattern or a format
    tern_term term;
} tern_cached_term;

typedef struct tern_schema {
    tern_rules *rules;
    tern_terms *terms;
    tern_json_doc doc;
    int draft;       // 4, 6, 7, 8 (2019-09), 9 (2020-12)
    bool is_lenient; // no draft is named: keywords of older ones count, too
    tern_error *err;
    tern_named *named;
    size_t n_named, named_capacity;
    tern_demand *demands;
    size_t n_demands, demands_capacity;
    tern_item *items;
    size_t n_items, items_capacity;
    uint32_t *slots; // hash table of demands, + 1
    size_t n_slots;
    uint32_t *queue; // demands with a rule that is not made yet
    size_t n_queue, queue_capacity;
    tern_cached_term *cached;
    size_t n_cached, cached_capacity;
    const tern_json *taken; // the `enum` whose own values are being judged
    tern_scope *scopes;
    size_t n_scopes, scopes_capacity;
    uint32_t *key_slots, *key_owners; // names in large objects: key nodes, and their objects
    size_t n_key_slots;
    int depth, n_choosing, n_judging; // depths of recursion
    size_t n_work;                    // cases and members so far
    const tern_json_way *way;
    // Terms that are used everywhere.
    tern_term any_char, quote, any_string, space, colon;
    tern_term free_text, plain_text; // between marks
} tern_schema;

static inline const tern_item *tern_demand_items(const tern_schema *x, const tern_demand *d) {
    return d->n ? x->items + d->at : NULL;
}

#define TERN_SCHEMA_WORK_MAX 200000

// The schema's keyword, if the draft has it; else NULL.
const tern_json *tern_schema_get(const tern_schema *x, const tern_json *schema, const char *name);
// "the schema at POINTER: ..."
tern_status tern_schema_fail(const tern_schema *x, const tern_json *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tern_status tern_schema_memory(const tern_schema *x);
// Counts work; fails when the budget is used up.
static inline tern_status tern_schema_work(const tern_schema *x, uint64_t n) {
    return tern_terms_work(x->terms, n) ? TERN_OK : tern_terms_check(x->terms, x->err);
}
tern_item tern_schema_item(const tern_schema *x, const tern_json *schema);
static inline const tern_json *tern_schema_at(const tern_schema *x, tern_item i) {
    return &x->doc.nodes[i >> 1];
}
// A whole number that is not negative: a length, a count. Huge ones are TERN_NO_LIMIT.
tern_status tern_schema_count(const tern_schema *x, const tern_json *v, uint32_t *out);
// Narrows a range of counts by a bound v (NULL: none), or, unless `holds`, by its negation. *least
// TERN_NO_LIMIT: no count is left.
tern_status tern_schema_limit(const tern_schema *x, const tern_json *v, bool is_least, bool holds,
                              uint32_t *least, uint32_t *most);

// ---- Names in objects (schema_index.c) ----------------------------------------------------------

tern_status tern_schema_index(tern_schema *x); // of the document that was read
void tern_schema_index_free(tern_schema *x);
// The value of a member of an object of the document; NULL: there is none.
const tern_json *tern_schema_key(const tern_schema *x, const tern_json *object, tern_str name);

// ---- References (schema_refs.c) -----------------------------------------------------------------

tern_status tern_schema_collect(tern_schema *x);
tern_status tern_schema_resolve(const tern_schema *x, const tern_json *ref, const tern_json **out);

// ---- Cases (schema_cases.c) ---------------------------------------------------------------------

tern_status tern_schema_cases(tern_schema *x, const tern_item *items, size_t n, tern_cases *out);
void tern_schema_cases_free(tern_cases *c);

// ---- Scopes (schema_scope.c) --------------------------------------------------------------------

// The scope of a schema: a new one within `parent` if it has unevaluated... keywords, else
// `parent`. *is_there: `parent` is in a scope of this schema already: the schema leads to itself.
tern_status tern_schema_scope(tern_schema *x, uint32_t parent, const tern_json *schema,
                              uint32_t *scope, bool *is_there);
// Whether a schema may evaluate parts of the value that it holds for.
bool tern_schema_may_evaluate(const tern_schema *x, const tern_json *schema);
// *out: what keyword `name` of fact `of` demands of `part`; NULL: nothing. `evaluates` is called
// for the facts in its scope: whether one evaluates the part.
typedef struct tern_schema_rest {
    const tern_fact *facts; // all of the value
    size_t n;
    const char *name;
    tern_status (*evaluates)(const tern_fact *f, const void *part, bool *out);
    const void *part;
} tern_schema_rest;
tern_status tern_schema_unevaluated(const tern_schema *x, const tern_schema_rest *rest,
                                    const tern_fact *of, const tern_json **out);

// ---- Demands (schema.c) -------------------------------------------------------------------------

// The number of a demand, which never changes; sorts items.
tern_status tern_schema_demand(tern_schema *x, tern_item *items, size_t n, uint32_t *out);
tern_status tern_schema_demand_expr(tern_schema *x, uint32_t demand, tern_expr *out);
// false only if certainly no value satisfies it.
tern_status tern_schema_may_hold(tern_schema *x, uint32_t demand, int depth, bool *out);
// The values that a demand lists, each once. *n max + 1: it lists none, or more than `max`.
tern_status tern_schema_listed(tern_schema *x, uint32_t demand, const tern_json **values,
                               size_t max, size_t *n);

// ---- Literals (schema_literal.c) ----------------------------------------------------------------

// A string with this inside, which is in JSON's spelling.
tern_term tern_schema_quoted(tern_schema *x, tern_term inside);
// The name of a member.
tern_term tern_schema_name(tern_schema *x, tern_str name);
tern_term tern_schema_word(const tern_schema *x, unsigned type); // true, false, null
// A literal in JSON, with the usual spaces.
tern_term tern_schema_literal(tern_schema *x, const tern_json *v);

// ---- By type ------------------------------------------------------------------------------------

// What strings may be, without quotes (schema_string.c).
tern_status tern_schema_string(tern_schema *x, const tern_fact *f, size_t n, tern_term *out);
// The same, where a list of values may be given; all spellings count.
tern_status tern_schema_names(tern_schema *x, const tern_fact *f, size_t n, tern_term *out);
// All spellings of a string, without quotes.
tern_term tern_schema_spellings(tern_schema *x, tern_str s);
// The pattern's texts in JSON's spelling.
tern_status tern_schema_pattern(tern_schema *x, const tern_json *pattern, tern_str text,
                                tern_term *out);
// Texts of a format; *known false: the format is only an annotation.
tern_status tern_schema_format(tern_schema *x, const tern_json *format, bool *known,
                               tern_term *out);
// The grammar that strings must satisfy (schema_grammar.c); NULL: none is demanded.
#define TERN_SCHEMA_GRAMMAR "x-grammar"
const tern_json *tern_schema_grammar_of(const tern_schema *x, const tern_fact *f, size_t n);
// Strings of it, with their quotes; NOTHING if n facts demand no grammar.
tern_status tern_schema_grammar(tern_schema *x, const tern_fact *f, size_t n, tern_expr *out);
tern_status tern_schema_number(tern_schema *x, const tern_fact *f, size_t n, unsigned types,
                               tern_term *out);

// What facts say of arrays (schema_array.c).
typedef struct tern_contains {
    tern_item item;
    uint32_t low, high;
} tern_contains;
typedef struct tern_array {
    tern_schema *x;
    const tern_fact *facts;
    size_t n_facts;
    uint32_t min, max;
    uint32_t n_fixed; // all elements after these have the same demand
    bool unique;
    tern_contains contains[4];
    size_t n_contains;
} tern_array;
tern_status tern_schema_array_read(tern_schema *x, const tern_fact *f, size_t n, tern_array *out);
// The demand on the element, with more items.
tern_status tern_schema_array_demand(const tern_array *a, uint32_t index, const tern_item *more,
                                     size_t n_more, uint32_t *out);
tern_status tern_schema_array(tern_schema *x, const tern_fact *f, size_t n, tern_expr *out);

// What facts say of objects (schema_members.c), and their rules (schema_object.c).
typedef struct tern_member {
    tern_str name;
    bool is_required, is_forbidden;
} tern_member;
typedef struct tern_key_pattern {
    const tern_json *of, *schema; // whose patternProperties; the value's schema
    tern_term term;
} tern_key_pattern;
typedef struct tern_object {
    tern_schema *x;
    const tern_fact *facts;
    size_t n_facts;
    uint32_t min, max;
    tern_member *members; // in the schema's order
    size_t n_members, members_capacity;
    uint32_t *slots; // hash table of them, + 1
    size_t n_slots;
    tern_key_pattern *patterns;
    size_t n_patterns, patterns_capacity;
    uint32_t names; // the demand on names, of propertyNames
    bool has_names;
} tern_object;
tern_status tern_schema_object_read(tern_schema *x, const tern_fact *f, size_t n, tern_object *out);
void tern_schema_object_free(tern_object *o);
// The demand on the value of a property.
tern_status tern_schema_object_demand(const tern_object *o, tern_str name, uint32_t *out);
// The demand on values whose names are in no schema and match exactly the patterns of the mask.
tern_status tern_schema_object_other_demand(const tern_object *o, uint32_t mask, uint32_t *out);
// Whether propertyNames allows a name.
tern_status tern_schema_object_may_name(const tern_object *o, tern_str name, bool *out);
tern_status tern_schema_object(tern_schema *x, const tern_fact *f, size_t n, tern_expr *out);

// Values (schema_value.c): whether one satisfies a demand, or the facts of a case.
tern_status tern_schema_holds(tern_schema *x, uint32_t demand, const tern_json *v, bool *out);
tern_status tern_schema_facts_hold(tern_schema *x, const tern_fact *f, size_t n, const tern_json *v,
                                   bool *out);
unsigned tern_schema_type_of(const tern_json *v);
// The types of a list's elements, as for `enum`.
unsigned tern_schema_types_in(const tern_schema *x, const tern_json *list);
// The types of the values that a fact about `const` or `enum` lists; 0: another fact.
unsigned tern_schema_fact_values(const tern_schema *x, const tern_fact *f);
bool tern_schema_equal(const tern_schema *x, const tern_json *a, const tern_json *b);

#endif
