// Turns a demand into cases: keywords that combine schemas are worked out until only keywords about
// values are left. Each choice (anyOf, oneOf, if ...) is tried in turn; contradictions are dropped.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/schema/schema.h"

#define CASES_MAX  2000
#define CHOICE_MAX 80 // nested choices, each a level of recursion
#define DONE_MIN   32 // schemas; fewer are searched one by one

typedef enum choice_kind {
    CHOOSE_ANY,     // one of a list holds
    CHOOSE_SOME,    // at least one holds, and it matters which, for unevaluated...
    CHOOSE_ONE,     // exactly one does
    CHOOSE_NOT_ALL, // one of a list does not hold
    CHOOSE_NOT_ONE, // none or several hold
    CHOOSE_IF,      // `at` is a schema with `if`
    CHOOSE_NOT_IF,
    CHOOSE_BROKEN,  // one of the keywords of schema `at` does not hold
    CHOOSE_NEEDS,   // the property `name` is absent, or those of the list are present, too
    CHOOSE_FOLLOWS, // it is absent, or the schema holds
} choice_kind;

typedef struct choice {
    choice_kind kind;
    const tern_json *at;
    tern_str name;
    const tern_json *element; // of SOME: the last one that was decided; NULL: none
    bool has_one;             // of SOME: one was chosen
    uint32_t scope, parent;
} choice;

// A schema to work out, its scope, and the index + 1 of the one that led to it.
typedef struct scoped {
    tern_item item;
    uint32_t scope, parent;
    bool is_target; // a reference led to it
} scoped;

typedef struct maker {
    tern_schema *x;
    tern_cases *out;
    unsigned types;
    scoped *todo, *done;
    size_t n_todo, todo_capacity, n_done, done_capacity;
    uint32_t *slots; // hash table of done, + 1, by schema; removed in reverse order
    size_t n_slots;
    tern_fact *facts;
    size_t n_facts, facts_capacity;
    choice *choices; // those before `next` are decided
    size_t n_choices, choices_capacity, next;
    int depth;
    bool is_broken;         // the pushed items contradict each other
    uint32_t scope, parent; // of items that are pushed
    bool refers;            // a reference leads to them
} maker;

static tern_status run(maker *m);

// ---- Pushing ------------------------------------------------------------------------------------

static tern_status hold(maker *m, tern_item item) {
    if (tern_array_reserve(TERN_MEM_SESSION, &m->todo, &m->todo_capacity, m->n_todo, 1) != 0)
        return tern_schema_memory(m->x);
    m->todo[m->n_todo++] = (scoped){item, item & 1 ? 0 : m->scope, m->parent, m->refers};
    return TERN_OK;
}

static tern_status yes(maker *m, const tern_json *s) { return hold(m, tern_schema_item(m->x, s)); }
static tern_status no(maker *m, const tern_json *s) {
    return hold(m, tern_item_not(tern_schema_item(m->x, s)));
}

static tern_status fact(maker *m, tern_fact f) {
    if (tern_array_reserve(TERN_MEM_SESSION, &m->facts, &m->facts_capacity, m->n_facts, 1) != 0)
        return tern_schema_memory(m->x);
    f.scope = m->scope;
    m->facts[m->n_facts++] = f;
    return TERN_OK;
}

static tern_status choose(maker *m, choice c) {
    if (tern_array_reserve(TERN_MEM_SESSION, &m->choices, &m->choices_capacity, m->n_choices, 1) !=
        0)
        return tern_schema_memory(m->x);
    c.scope = m->scope;
    c.parent = m->parent;
    m->choices[m->n_choices++] = c;
    return TERN_OK;
}

// ---- What a schema says of types ----------------------------------------------------------------

static tern_status type_bit(maker *m, const tern_json *v, unsigned *types) {
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = {{"null", TERN_TYPE_NULL},     {"boolean", TERN_TYPE_BOOL},
                 {"integer", TERN_TYPE_WHOLE}, {"number", TERN_TYPE_NUMBER},
                 {"string", TERN_TYPE_STRING}, {"array", TERN_TYPE_ARRAY},
                 {"object", TERN_TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tern_str_is(tern_json_str(v), names[i].name)) {
            *types |= names[i].bit;
            return TERN_OK;
        }
    return tern_schema_fail(m->x, v, "an unknown type");
}

static tern_status read_types(maker *m, const tern_json *v, unsigned *types) {
    *types = 0;
    if (!tern_json_is(v, TERN_JSON_ARRAY)) return type_bit(m, v, types);
    for (const tern_json *e = tern_json_first(&m->x->doc, v); e;
         e = tern_json_next(&m->x->doc, v, e))
        TERN_TRY(type_bit(m, e, types));
    return TERN_OK;
}

static tern_status limit_types(maker *m, const tern_json *s) {
    const tern_json *type = tern_schema_get(m->x, s, "type"), *v;
    unsigned types;
    if (type) {
        TERN_TRY(read_types(m, type, &types));
        m->types &= types;
    }
    v = tern_schema_get(m->x, s, "const");
    if (v) m->types &= tern_schema_type_of(v);
    v = tern_schema_get(m->x, s, "enum");
    if (!v) return TERN_OK;
    if (!tern_json_is(v, TERN_JSON_ARRAY)) return tern_schema_fail(m->x, v, "no list of values");
    m->types &= tern_schema_types_in(m->x, v);
    return TERN_OK;
}

// ---- A schema that holds ------------------------------------------------------------------------

static tern_status need_list(maker *m, const tern_json *v) {
    if (tern_json_is(v, TERN_JSON_ARRAY)) return TERN_OK;
    return tern_schema_fail(m->x, v, "no list of schemas");
}

static tern_status reference(maker *m, const tern_json *s, bool holds, bool *is_one) {
    static const char *const names[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    *is_one = false;
    for (size_t i = 0; i < 3; i++) {
        const tern_json *ref = tern_schema_get(m->x, s, names[i]), *to;
        if (!ref) continue;
        TERN_TRY(tern_schema_resolve(m->x, ref, &to));
        // Which schema rebinds the name is known only while values are judged.
        if (i == 1 && tern_schema_get(m->x, to, "$dynamicAnchor"))
            return tern_schema_fail(m->x, ref, "a dynamic reference");
        if (i == 2 && tern_json_bool(tern_schema_get(m->x, to, "$recursiveAnchor"), false))
            return tern_schema_fail(m->x, ref, "a recursive reference with an anchor");
        *is_one = true;
        m->refers = true;
        const tern_status status = holds ? yes(m, to) : no(m, to);
        m->refers = false;
        TERN_TRY(status);
    }
    return TERN_OK;
}

static bool ref_hides_rest(const tern_schema *x, const tern_json *s) {
    return x->draft < 8 && tern_schema_get(x, s, "$ref") != NULL;
}

// dependencies, and the two keywords that replaced it.
static tern_status dependencies(maker *m, const tern_json *s) {
    static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    const tern_json_doc *doc = &m->x->doc;
    for (size_t i = 0; i < 3; i++) {
        const tern_json *map = tern_schema_get(m->x, s, names[i]);
        if (!map) continue;
        if (!tern_json_is(map, TERN_JSON_OBJECT)) return tern_schema_fail(m->x, map, "no object");
        for (const tern_json *k = tern_json_first(doc, map); k; k = tern_json_next(doc, map, k)) {
            const tern_json *v = tern_json_value_of(doc, k);
            bool is_list = tern_json_is(v, TERN_JSON_ARRAY);
            TERN_TRY(choose(m, (choice){.kind = is_list ? CHOOSE_NEEDS : CHOOSE_FOLLOWS,
                                        .at = v,
                                        .name = tern_json_str(k)}));
        }
    }
    return TERN_OK;
}

static tern_status each(maker *m, const tern_json *list, bool holds) {
    TERN_TRY(need_list(m, list));
    for (const tern_json *e = tern_json_first(&m->x->doc, list); e;
         e = tern_json_next(&m->x->doc, list, e))
        TERN_TRY(holds ? yes(m, e) : no(m, e));
    return TERN_OK;
}

static bool says_nothing(const tern_json *s) {
    return tern_json_bool(s, false) || (tern_json_is(s, TERN_JSON_OBJECT) && s->n == 0);
}

// Whether it matters which schemas of a list hold.
static bool counts(const maker *m, const tern_json *list) {
    if (!m->scope || !tern_json_is(list, TERN_JSON_ARRAY)) return false;
    for (const tern_json *e = tern_json_first(&m->x->doc, list); e;
         e = tern_json_next(&m->x->doc, list, e))
        if (tern_schema_may_evaluate(m->x, e)) return true;
    return false;
}

static tern_status holds(maker *m, const tern_json *s) {
    tern_schema *x = m->x;
    const tern_json *v;
    bool is_ref, is_there;
    if (tern_json_is(s, TERN_JSON_BOOL)) {
        m->is_broken = m->is_broken || !tern_json_bool(s, true);
        return TERN_OK;
    }
    if (!tern_json_is(s, TERN_JSON_OBJECT)) return tern_schema_fail(x, s, "no schema");
    TERN_TRY(tern_schema_scope(x, m->scope, s, &m->scope, &is_there));
    if (is_there) return TERN_OK;
    TERN_TRY(reference(m, s, true, &is_ref));
    if (ref_hides_rest(x, s)) return TERN_OK;
    TERN_TRY(limit_types(m, s));
    TERN_TRY(fact(m, (tern_fact){.kind = TERN_FACT_SCHEMA, .at = s}));
    if ((v = tern_schema_get(x, s, "allOf"))) TERN_TRY(each(m, v, true));
    if ((v = tern_schema_get(x, s, "not"))) TERN_TRY(no(m, v));
    if ((v = tern_schema_get(x, s, "anyOf")))
        TERN_TRY(choose(m, (choice){.kind = counts(m, v) ? CHOOSE_SOME : CHOOSE_ANY, .at = v}));
    if ((v = tern_schema_get(x, s, "oneOf")))
        TERN_TRY(choose(m, (choice){.kind = CHOOSE_ONE, .at = v}));
    if (tern_schema_get(x, s, "if") &&
        (m->scope || tern_schema_get(x, s, "then") || tern_schema_get(x, s, "else")))
        TERN_TRY(choose(m, (choice){.kind = CHOOSE_IF, .at = s}));
    return dependencies(m, s);
}

// ---- Choices ------------------------------------------------------------------------------------

static size_t slot_of(const maker *m, const scoped *what) {
    return tern_mix64(what->item >> 1) & (m->n_slots - 1);
}

static void put_in(maker *m, size_t i) {
    size_t at = slot_of(m, &m->done[i]);
    while (m->slots[at]) at = (at + 1) & (m->n_slots - 1);
    m->slots[at] = (uint32_t)i + 1;
}

static tern_status add_done(maker *m, scoped what) {
    if (tern_array_reserve(TERN_MEM_SESSION, &m->done, &m->done_capacity, m->n_done, 1) != 0)
        return tern_schema_memory(m->x);
    m->done[m->n_done++] = what;
    if (m->n_done < DONE_MIN && !m->n_slots) return TERN_OK;
    if (m->n_done * 2 < m->n_slots) {
        put_in(m, m->n_done - 1);
        return TERN_OK;
    }
    const size_t more = m->n_slots ? m->n_slots * 2 : 4 * DONE_MIN;
    uint32_t *slots = tern_alloc_array(TERN_MEM_SESSION, more, sizeof *slots);
    if (!slots) return tern_schema_memory(m->x);
    tern_free(m->slots);
    m->slots = slots;
    m->n_slots = more;
    for (size_t i = 0; i < m->n_done; i++) put_in(m, i);
    return TERN_OK;
}

static void take_back(maker *m) {
    const scoped last = m->done[--m->n_done];
    if (!m->n_slots) return;
    size_t at = slot_of(m, &last);
    while (m->slots[at] && m->slots[at] != m->n_done + 1) at = (at + 1) & (m->n_slots - 1);
    m->slots[at] = 0;
}

// The next entry of `done` for the same schema; *at: where the search stands.
static const scoped *next_done(const maker *m, const scoped *what, size_t *at) {
    if (!m->n_slots) {
        while (*at < m->n_done && m->done[*at].item >> 1 != what->item >> 1) ++*at;
        return *at < m->n_done ? &m->done[(*at)++] : NULL;
    }
    for (size_t slot; (slot = m->slots[(slot_of(m, what) + *at) & (m->n_slots - 1)]);) {
        ++*at;
        if (m->done[slot - 1].item >> 1 == what->item >> 1) return &m->done[slot - 1];
    }
    return NULL;
}

// Whether references alone lead from a schema to itself.
static bool leads_to_itself(const maker *m, const scoped *what) {
    bool is_target = what->is_target;
    for (uint32_t i = what->parent; i && is_target; i = m->done[i - 1].parent) {
        if (m->done[i - 1].item >> 1 == what->item >> 1) return true;
        is_target = m->done[i - 1].is_target;
    }
    return false;
}

typedef struct saved {
    unsigned types;
    uint32_t scope, parent;
    size_t n_done, n_facts, n_choices, next;
} saved;

static saved save(const maker *m) {
    return (saved){m->types, m->scope, m->parent, m->n_done, m->n_facts, m->n_choices, m->next};
}

// Goes on with the items pushed since `save`, and removes them again.
static tern_status go(maker *m, saved s) {
    tern_status status = TERN_OK;
    if (m->x->n_work++ > TERN_SCHEMA_WORK_MAX || m->x->n_choosing > CHOICE_MAX)
        status = tern_schema_fail(m->x, tern_json_root(&m->x->doc), "too many alternatives");
    if (status == TERN_OK) status = tern_schema_work(m->x, 1 + m->n_facts / 8);
    m->depth++;
    m->x->n_choosing++;
    for (size_t i = 0, k = m->n_todo; i + 1 < k; i++) { // reversed: the last is taken first
        const scoped item = m->todo[--k];
        m->todo[k] = m->todo[i];
        m->todo[i] = item;
    }
    if (status == TERN_OK && !m->is_broken && m->types) status = run(m);
    m->depth--;
    m->x->n_choosing--;
    m->is_broken = false;
    m->types = s.types;
    m->scope = s.scope;
    m->parent = s.parent;
    m->n_todo = 0;
    while (m->n_done > s.n_done) take_back(m);
    m->n_facts = s.n_facts;
    m->n_choices = s.n_choices;
    m->next = s.next;
    return status;
}

static const tern_json *next_of(const maker *m, const tern_json *list, const tern_json *e) {
    return e ? tern_json_next(&m->x->doc, list, e) : tern_json_first(&m->x->doc, list);
}

static tern_status disjoint(maker *m, const tern_json *a, const tern_json *b, bool *out) {
    tern_item pair[2] = {tern_schema_item(m->x, a), tern_schema_item(m->x, b)};
    uint32_t demand;
    bool may;
    *out = false;
    if (m->depth > 20 || m->x->n_choosing > CHOICE_MAX / 2) return TERN_OK;
    TERN_TRY(tern_schema_work(m->x, 1));
    TERN_TRY(tern_schema_demand(m->x, pair, 2, &demand));
    TERN_TRY(tern_schema_may_hold(m->x, demand, m->depth + 1, &may));
    *out = !may;
    return TERN_OK;
}

// One holds and the others do not; no fact is needed for those that cannot hold beside it.
static tern_status choose_one(maker *m, const tern_json *list) {
    TERN_TRY(need_list(m, list));
    for (const tern_json *a = NULL; (a = next_of(m, list, a));) {
        saved s = save(m);
        TERN_TRY(yes(m, a));
        for (const tern_json *b = NULL; (b = next_of(m, list, b));) {
            bool apart = false;
            if (b == a) continue;
            TERN_TRY(disjoint(m, a, b, &apart));
            if (!apart) TERN_TRY(no(m, b));
        }
        TERN_TRY(go(m, s));
    }
    return TERN_OK;
}

static tern_status choose_not_one(maker *m, const tern_json *list) {
    TERN_TRY(need_list(m, list));
    saved s = save(m);
    TERN_TRY(each(m, list, false));
    TERN_TRY(go(m, s));
    for (const tern_json *a = NULL; (a = next_of(m, list, a));)
        for (const tern_json *b = a; (b = next_of(m, list, b));) {
            TERN_TRY(yes(m, a));
            TERN_TRY(yes(m, b));
            TERN_TRY(go(m, s));
        }
    return TERN_OK;
}

static tern_status choose_in(maker *m, const tern_json *list, bool wanted) {
    TERN_TRY(need_list(m, list));
    for (const tern_json *a = NULL; (a = next_of(m, list, a));) {
        saved s = save(m);
        TERN_TRY(wanted ? yes(m, a) : no(m, a));
        TERN_TRY(go(m, s));
    }
    return TERN_OK;
}

// Tries the next one holding, and without a demand on it (schema_scope.c).
static tern_status choose_some(maker *m, const choice *c) {
    TERN_TRY(need_list(m, c->at));
    const tern_json *e = next_of(m, c->at, c->element);
    choice more = {.kind = CHOOSE_SOME, .at = c->at, .element = e, .has_one = true};
    saved s = save(m);
    if (!e) return c->has_one ? go(m, s) : TERN_OK;
    TERN_TRY(yes(m, e));
    TERN_TRY(choose(m, more));
    TERN_TRY(go(m, s));
    more.has_one = c->has_one;
    TERN_TRY(choose(m, more));
    return go(m, s);
}

static tern_status choose_if(maker *m, const tern_json *s, bool wanted) {
    static const char *const names[] = {"then", "else"};
    const tern_json *condition = tern_schema_get(m->x, s, "if");
    for (int i = 0; i < 2; i++) {
        const tern_json *follows = tern_schema_get(m->x, s, names[i]);
        saved before = save(m);
        if (!follows && !wanted) continue; // an absent keyword cannot be broken
        // Without `then`, the second case need not exclude that the condition holds.
        if (i == 0)
            TERN_TRY(yes(m, condition));
        else if (!wanted || tern_schema_get(m->x, s, "then"))
            TERN_TRY(no(m, condition));
        if (follows) TERN_TRY(wanted ? yes(m, follows) : no(m, follows));
        TERN_TRY(go(m, before));
    }
    return TERN_OK;
}

static tern_status require(maker *m, tern_str name, bool is_there) {
    tern_fact_kind kind = is_there ? TERN_FACT_REQUIRE : TERN_FACT_FORBID;
    return fact(m, (tern_fact){.kind = kind, .name = name});
}

static tern_status require_all(maker *m, const tern_json *list) {
    for (const tern_json *e = NULL; (e = next_of(m, list, e));) {
        if (!tern_json_is(e, TERN_JSON_STRING)) return tern_schema_fail(m->x, e, "no name");
        TERN_TRY(require(m, tern_json_str(e), true));
    }
    return TERN_OK;
}

static tern_status choose_needs(maker *m, const choice *c) {
    saved s = save(m);
    if (!(m->types & TERN_TYPE_OBJECT)) return go(m, s);
    TERN_TRY(require(m, c->name, false));
    TERN_TRY(go(m, s));
    m->types &= TERN_TYPE_OBJECT;
    TERN_TRY(require(m, c->name, true));
    TERN_TRY(c->kind == CHOOSE_NEEDS ? require_all(m, c->at) : yes(m, c->at));
    return go(m, s);
}

// ---- A schema that does not hold: one of its keywords does not ----------------------------------

// Goes on with the pushed facts, for values of some types only.
static tern_status go_with(maker *m, saved s, unsigned types) {
    m->types &= types;
    return go(m, s);
}

static tern_status break_types(maker *m, const tern_json *s) {
    const tern_json *v = tern_schema_get(m->x, s, "type");
    saved before = save(m);
    unsigned types;
    if (v) {
        TERN_TRY(read_types(m, v, &types));
        TERN_TRY(go_with(m, before, ~types));
    }
    static const char *const names[] = {"const", "enum"};
    for (size_t i = 0; i < 2; i++) {
        v = tern_schema_get(m->x, s, names[i]);
        if (!v) continue;
        tern_fact f = {
            .kind = TERN_FACT_NOT, .at = v, .of = s, .name = {names[i], strlen(names[i])}};
        const unsigned gone = tern_schema_fact_values(m->x, &f);
        TERN_TRY(fact(m, f));
        const unsigned single = TERN_TYPE_NULL | TERN_TYPE_FALSE | TERN_TYPE_TRUE;
        TERN_TRY(go_with(m, before, ~(gone & single)));
    }
    return TERN_OK;
}

// Keywords about one type, which the file of that type handles.
static tern_status break_plain(maker *m, const tern_json *s) {
    static const struct {
        const char *name;
        unsigned types;
    } plain[] = {
        {"minLength", TERN_TYPE_STRING},         {"maxLength", TERN_TYPE_STRING},
        {"pattern", TERN_TYPE_STRING},           {"format", TERN_TYPE_STRING},
        {"minimum", TERN_TYPE_NUMBER},           {"maximum", TERN_TYPE_NUMBER},
        {"exclusiveMinimum", TERN_TYPE_NUMBER},  {"exclusiveMaximum", TERN_TYPE_NUMBER},
        {"multipleOf", TERN_TYPE_NUMBER},        {"minItems", TERN_TYPE_ARRAY},
        {"maxItems", TERN_TYPE_ARRAY},           {"uniqueItems", TERN_TYPE_ARRAY},
        {"minProperties", TERN_TYPE_OBJECT},     {"maxProperties", TERN_TYPE_OBJECT},
        {TERN_SCHEMA_GRAMMAR, TERN_TYPE_STRING},
    };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const tern_json *v = tern_schema_get(m->x, s, plain[i].name);
        saved before = save(m);
        if (!v || !(m->types & plain[i].types)) continue;
        // Draft 4's exclusiveMinimum is a part of minimum.
        if (tern_json_is(v, TERN_JSON_BOOL) && !tern_json_bool(v, false)) continue;
        if (tern_json_is(v, TERN_JSON_BOOL) && i >= 6 && i <= 7) continue;
        if (i == 3) {
            bool known;
            tern_term ignored;
            TERN_TRY(tern_schema_format(m->x, v, &known, &ignored));
            if (!known) continue;
        }
        TERN_TRY(fact(m, (tern_fact){.kind = TERN_FACT_NOT,
                                     .at = v,
                                     .of = s,
                                     .name = {plain[i].name, strlen(plain[i].name)}}));
        TERN_TRY(go_with(m, before, plain[i].types));
    }
    return TERN_OK;
}

static tern_status break_objects(maker *m, const tern_json *s) {
    const tern_json_doc *doc = &m->x->doc;
    const tern_json *v = tern_schema_get(m->x, s, "required");
    saved before = save(m);
    if (!(m->types & TERN_TYPE_OBJECT)) return TERN_OK;
    for (const tern_json *e = NULL; v && (e = next_of(m, v, e));) {
        TERN_TRY(require(m, tern_json_str(e), false));
        TERN_TRY(go_with(m, before, TERN_TYPE_OBJECT));
    }
    v = tern_schema_get(m->x, s, "properties");
    for (const tern_json *k = v ? tern_json_first(doc, v) : NULL; k;
         k = tern_json_next(doc, v, k)) {
        const tern_json *p = tern_json_value_of(doc, k);
        if (says_nothing(p)) continue;
        TERN_TRY(require(m, tern_json_str(k), true));
        TERN_TRY(fact(m, (tern_fact){.kind = TERN_FACT_PROPERTY,
                                     .name = tern_json_str(k),
                                     .item = tern_item_not(tern_schema_item(m->x, p))}));
        TERN_TRY(go_with(m, before, TERN_TYPE_OBJECT));
    }
    static const char *const left_out[] = {"additionalProperties", "patternProperties",
                                           "propertyNames", "unevaluatedProperties"};
    for (size_t i = 0; i < 4; i++) {
        v = tern_schema_get(m->x, s, left_out[i]);
        if (v && !says_nothing(v))
            return tern_schema_fail(m->x, v, "'%s' that must not hold is not known", left_out[i]);
    }
    static const char *const needs[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    for (size_t i = 0; i < 3; i++) {
        v = tern_schema_get(m->x, s, needs[i]);
        for (const tern_json *k = v ? tern_json_first(doc, v) : NULL; k;
             k = tern_json_next(doc, v, k)) {
            const tern_json *then = tern_json_value_of(doc, k);
            bool is_list = tern_json_is(then, TERN_JSON_ARRAY);
            for (const tern_json *e = NULL; is_list && (e = next_of(m, then, e));) {
                TERN_TRY(require(m, tern_json_str(k), true));
                TERN_TRY(require(m, tern_json_str(e), false));
                TERN_TRY(go_with(m, before, TERN_TYPE_OBJECT));
            }
            if (is_list) continue;
            TERN_TRY(require(m, tern_json_str(k), true));
            TERN_TRY(no(m, then));
            TERN_TRY(go_with(m, before, TERN_TYPE_OBJECT));
        }
    }
    return TERN_OK;
}

static tern_status break_element(maker *m, const tern_json *s, uint32_t index, saved before) {
    const tern_item item = tern_item_not(tern_schema_item(m->x, s));
    if (says_nothing(s)) return TERN_OK;
    TERN_TRY(fact(m, (tern_fact){.kind = TERN_FACT_ELEMENT, .item = item, .low = index}));
    TERN_TRY(fact(m, (tern_fact){.kind = TERN_FACT_LENGTH, .low = index + 1}));
    return go_with(m, before, TERN_TYPE_ARRAY);
}

static tern_status break_contains(maker *m, const tern_json *s, saved before) {
    const tern_json *v = tern_schema_get(m->x, s, "contains");
    const tern_json *min = tern_schema_get(m->x, s, "minContains"),
                    *max = tern_schema_get(m->x, s, "maxContains");
    uint32_t low = 1, high = TERN_NO_LIMIT;
    if (!v) return TERN_OK;
    tern_fact f = {.kind = TERN_FACT_CONTAINS, .item = tern_schema_item(m->x, v)};
    if (min) TERN_TRY(tern_schema_count(m->x, min, &low));
    if (max) TERN_TRY(tern_schema_count(m->x, max, &high));
    if (low > 0) {
        f.high = low - 1;
        TERN_TRY(fact(m, f));
        TERN_TRY(go_with(m, before, TERN_TYPE_ARRAY));
    }
    if (high == TERN_NO_LIMIT) return TERN_OK;
    f.low = high + 1;
    f.high = TERN_NO_LIMIT;
    TERN_TRY(fact(m, f));
    return go_with(m, before, TERN_TYPE_ARRAY);
}

static tern_status break_arrays(maker *m, const tern_json *s) {
    const tern_json *prefix = tern_schema_get(m->x, s, "prefixItems"),
                    *rest = tern_schema_get(m->x, s, "items");
    saved before = save(m);
    uint32_t n = 0;
    if (!(m->types & TERN_TYPE_ARRAY)) return TERN_OK;
    if (tern_json_is(rest, TERN_JSON_ARRAY)) {
        prefix = rest;
        rest = tern_schema_get(m->x, s, "additionalItems");
    }
    for (const tern_json *e = NULL; prefix && (e = next_of(m, prefix, e)); n++)
        TERN_TRY(break_element(m, e, n, before));
    if (rest && !says_nothing(rest)) {
        if (n) return tern_schema_fail(m->x, rest, "this, where it must not hold, is not known");
        const tern_item item = tern_item_not(tern_schema_item(m->x, rest));
        TERN_TRY(fact(
            m, (tern_fact){
                   .kind = TERN_FACT_CONTAINS, .item = item, .low = 1, .high = TERN_NO_LIMIT}));
        TERN_TRY(go_with(m, before, TERN_TYPE_ARRAY));
    }
    const tern_json *v = tern_schema_get(m->x, s, "unevaluatedItems");
    if (v && !says_nothing(v)) return tern_schema_fail(m->x, v, "'unevaluatedItems' is not known");
    return break_contains(m, s, before);
}

static tern_status choose_broken(maker *m, const tern_json *s) {
    const tern_json *v;
    saved before = save(m);
    bool is_ref;
    TERN_TRY(reference(m, s, false, &is_ref));
    if (is_ref) TERN_TRY(go(m, before));
    if (ref_hides_rest(m->x, s)) return TERN_OK;
    TERN_TRY(break_types(m, s));
    TERN_TRY(break_plain(m, s));
    TERN_TRY(break_objects(m, s));
    TERN_TRY(break_arrays(m, s));
    if ((v = tern_schema_get(m->x, s, "allOf"))) TERN_TRY(choose_in(m, v, false));
    if ((v = tern_schema_get(m->x, s, "anyOf"))) {
        TERN_TRY(each(m, v, false));
        TERN_TRY(go(m, before));
    }
    if ((v = tern_schema_get(m->x, s, "oneOf"))) TERN_TRY(choose_not_one(m, v));
    if ((v = tern_schema_get(m->x, s, "not"))) {
        TERN_TRY(yes(m, v));
        TERN_TRY(go(m, before));
    }
    if (tern_schema_get(m->x, s, "if")) TERN_TRY(choose_if(m, s, false));
    return TERN_OK;
}

// ---- The machine --------------------------------------------------------------------------------

static tern_status emit(maker *m) {
    tern_cases *out = m->out;
    if (out->n >= CASES_MAX)
        return tern_schema_fail(m->x, tern_json_root(&m->x->doc), "too many alternatives");
    if (tern_array_reserve(TERN_MEM_SESSION, &out->cases, &out->capacity, out->n, 1) != 0 ||
        tern_array_reserve(TERN_MEM_SESSION, &out->facts, &out->facts_capacity, out->n_facts,
                           m->n_facts) != 0)
        return tern_schema_memory(m->x);
    out->cases[out->n++] = (tern_case){m->types, out->n_facts, m->n_facts};
    if (m->n_facts) memcpy(out->facts + out->n_facts, m->facts, m->n_facts * sizeof *m->facts);
    out->n_facts += m->n_facts;
    return TERN_OK;
}

static tern_status make_choice(maker *m) {
    const choice c = m->choices[m->next++];
    m->scope = c.scope;
    m->parent = c.parent;
    switch (c.kind) {
    case CHOOSE_ANY: return choose_in(m, c.at, true);
    case CHOOSE_SOME: return choose_some(m, &c);
    case CHOOSE_ONE: return choose_one(m, c.at);
    case CHOOSE_NOT_ALL: return choose_in(m, c.at, false);
    case CHOOSE_NOT_ONE: return choose_not_one(m, c.at);
    case CHOOSE_IF: return choose_if(m, c.at, true);
    case CHOOSE_NOT_IF: return choose_if(m, c.at, false);
    case CHOOSE_BROKEN: return choose_broken(m, c.at);
    case CHOOSE_NEEDS:
    case CHOOSE_FOLLOWS: return choose_needs(m, &c);
    }
    return TERN_OK;
}

static tern_status take(maker *m, scoped what) {
    const tern_item item = what.item;
    const tern_json *s = tern_schema_at(m->x, item);
    const scoped *other;
    m->scope = what.scope;
    TERN_TRY(tern_schema_work(m->x, 1));
    for (size_t at = 0; (other = next_done(m, &what, &at));) {
        if (leads_to_itself(m, &what))
            return tern_schema_fail(m->x, s, "its references lead back to it, and say nothing");
        if (other->item == item && other->scope == what.scope) return TERN_OK;
        m->is_broken = m->is_broken || other->item == tern_item_not(item);
        if (m->is_broken) return TERN_OK;
    }
    TERN_TRY(add_done(m, what));
    m->parent = (uint32_t)m->n_done;
    if (!(item & 1)) return holds(m, s);
    if (tern_json_is(s, TERN_JSON_BOOL)) {
        m->is_broken = m->is_broken || tern_json_bool(s, true);
        return TERN_OK;
    }
    if (!tern_json_is(s, TERN_JSON_OBJECT)) return tern_schema_fail(m->x, s, "no schema");
    return choose(m, (choice){.kind = CHOOSE_BROKEN, .at = s});
}

// Works out all items of todo, then makes the next choice or, if none is left, a case.
static tern_status run(maker *m) {
    while (m->n_todo && !m->is_broken && m->types) {
        size_t from = --m->n_todo;
        TERN_TRY(take(m, m->todo[from]));
        // Reversed: the last item is taken first, and items shall keep their order.
        for (size_t i = from, k = m->n_todo; i + 1 < k; i++) {
            const scoped item = m->todo[--k];
            m->todo[k] = m->todo[i];
            m->todo[i] = item;
        }
    }
    m->n_todo = 0;
    if (m->is_broken || !m->types) return TERN_OK;
    return m->next < m->n_choices ? make_choice(m) : emit(m);
}

tern_status tern_schema_cases(tern_schema *x, const tern_item *items, size_t n, tern_cases *out) {
    maker m = {.x = x, .out = out, .types = TERN_TYPE_ANY};
    tern_status status = TERN_OK;
    // The last item is taken first, and facts shall come in the order of schemas.
    for (size_t i = n; i-- > 0 && status == TERN_OK;) status = hold(&m, items[i]);
    if (status == TERN_OK) status = run(&m);
    tern_free(m.todo);
    tern_free(m.done);
    tern_free(m.slots);
    tern_free(m.facts);
    tern_free(m.choices);
    return status;
}

void tern_schema_cases_free(tern_cases *c) {
    tern_free(c->cases);
    tern_free(c->facts);
    *c = (tern_cases){0};
}
