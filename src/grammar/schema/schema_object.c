// Objects: the named members in order, then the others.
#include <string.h>
#include "base/alloc.h"
#include "grammar/schema/schema.h"

#define STATES_MAX   50000
#define PATTERNS_MAX 8

typedef struct builder {
    const tern_object *o;
    tern_schema *x;
    tern_rules *r;
    tern_expr *values; // [n_members] name, colon and value; NOTHING: it cannot be there
    tern_expr others;  // the same for all other names
    uint32_t n_counts; // members are counted up to n_counts - 1
    tern_expr *tails;  // [n_counts] what may follow, by the number of members so far
} builder;

static tern_expr text(const builder *b, const char *s) {
    return tern_expr_term(b->r, tern_term_text(b->x->terms, s, strlen(s)));
}

// ---- Members ------------------------------------------------------------------------------------

static tern_status named_member(builder *b, const tern_member *m, tern_expr *out) {
    tern_terms *t = b->x->terms;
    uint32_t demand;
    tern_expr value;
    bool may;
    *out = TERN_EXPR_NOTHING;
    if (m->is_forbidden) return TERN_OK;
    TERN_TRY(tern_schema_object_may_name(b->o, m->name, &may));
    if (!may) return TERN_OK;
    TERN_TRY(tern_schema_object_demand(b->o, m->name, &demand));
    TERN_TRY(tern_schema_demand_expr(b->x, demand, &value));
    tern_term name = tern_schema_name(b->x, m->name);
    *out = tern_expr_cat(b->r, tern_expr_term(b->r, tern_term_cat(t, name, b->x->colon)), value);
    return TERN_OK;
}

// The names that propertyNames allows.
static tern_status names_term(builder *b, tern_term *out) {
    tern_schema *x = b->x;
    *out = x->any_string;
    if (!b->o->has_names) return TERN_OK;
    const tern_demand d = x->demands[b->o->names];
    tern_cases cases = {0};
    *out = TERN_TERM_NOTHING;
    tern_status status = tern_schema_cases(x, tern_demand_items(x, &d), d.n, &cases);
    for (size_t i = 0; i < cases.n && status == TERN_OK; i++) {
        const tern_case *c = &cases.cases[i];
        tern_term one;
        if (!(c->types & TERN_TYPE_STRING)) continue;
        status = tern_schema_names(x, tern_case_facts(&cases, c), c->n, &one);
        if (status == TERN_OK) *out = tern_term_or(x->terms, *out, one);
    }
    tern_schema_cases_free(&cases);
    return status;
}

// A member whose name is in no schema and matches exactly the patterns of the mask.
static tern_status other_member(builder *b, tern_term names, uint32_t mask, tern_expr *out) {
    const tern_object *o = b->o;
    tern_terms *t = b->x->terms;
    tern_term name = names;
    uint32_t demand;
    tern_expr value;
    for (size_t k = 0; k < o->n_patterns; k++) {
        tern_term p = o->patterns[k].term;
        name = tern_term_and(t, name, mask >> k & 1 ? p : tern_term_not(t, p));
    }
    *out = TERN_EXPR_NOTHING;
    if (!tern_term_is_alive(t, name)) return tern_terms_check(t, b->x->err);
    TERN_TRY(tern_schema_object_other_demand(o, mask, &demand));
    TERN_TRY(tern_schema_demand_expr(b->x, demand, &value));
    if (value == TERN_EXPR_NOTHING) return TERN_OK;
    name = tern_schema_quoted(b->x, name);
    tern_expr rest = tern_expr_cat(b->r, tern_expr_term(b->r, b->x->colon), value);
    *out = tern_expr_cat(b->r, tern_expr_open(b->r, name), rest);
    return TERN_OK;
}

static tern_status other_members(builder *b) {
    const tern_object *o = b->o;
    tern_schema *x = b->x;
    tern_term names, *known = tern_alloc_array(TERN_MEM_SESSION, o->n_members + 1, sizeof *known);
    if (!known) return tern_schema_memory(x);
    for (size_t i = 0; i < o->n_members; i++)
        known[i] = tern_schema_spellings(x, o->members[i].name);
    tern_term named = tern_term_either(x->terms, known, o->n_members);
    tern_free(known);
    TERN_TRY(names_term(b, &names));
    if (o->n_members) names = tern_term_and(x->terms, names, tern_term_not(x->terms, named));
    if (o->n_patterns > PATTERNS_MAX)
        return tern_schema_fail(x, o->patterns[PATTERNS_MAX].schema,
                                "more than %d 'patternProperties' at once", PATTERNS_MAX);
    b->others = TERN_EXPR_NOTHING;
    for (uint32_t mask = 0; mask < (uint32_t)1 << o->n_patterns; mask++) {
        tern_expr one;
        TERN_TRY(other_member(b, names, mask, &one));
        b->others = tern_expr_or(b->r, b->others, one);
    }
    return TERN_OK;
}

// ---- Rules --------------------------------------------------------------------------------------

// A member after `count` others, and what follows it.
static tern_expr way(builder *b, uint32_t count, tern_expr member, tern_expr tail) {
    tern_expr before = tern_expr_term(b->r, b->x->space);
    if (count) before = tern_expr_cat(b->r, text(b, ","), before);
    return tern_expr_cat(b->r, before, tern_expr_cat(b->r, member, tail));
}

static uint32_t more(const builder *b, uint32_t count) {
    return count + 1 < b->n_counts ? count + 1 : count;
}

static bool is_full(const builder *b, uint32_t count) { return count >= b->o->max; }

// What follows the last named member: other members, and the end.
static void add_end(builder *b) {
    for (uint32_t count = b->n_counts; count-- > 0;) {
        tern_expr close = tern_expr_cat(b->r, tern_expr_term(b->r, b->x->space), text(b, "}"));
        tern_expr sum = count >= b->o->min ? close : TERN_EXPR_NOTHING;
        if (b->others != TERN_EXPR_NOTHING && !is_full(b, count)) {
            if (more(b, count) == count) {
                tern_expr one = way(b, count, b->others, TERN_EXPR_EMPTY);
                sum = tern_expr_cat(b->r, tern_expr_loop(b->r, one), close);
            } else {
                sum = tern_expr_or(b->r, sum, way(b, count, b->others, b->tails[count + 1]));
            }
        }
        b->tails[count] = count % 16 == 15 ? tern_expr_rule(b->r, sum) : sum;
    }
}

static void add_member(builder *b, size_t i) {
    const tern_member *m = &b->o->members[i];
    for (uint32_t count = 0; count < b->n_counts; count++) {
        tern_expr sum = m->is_required ? TERN_EXPR_NOTHING : b->tails[count];
        if (b->values[i] != TERN_EXPR_NOTHING && !is_full(b, count))
            sum = tern_expr_or(b->r, sum, way(b, count, b->values[i], b->tails[more(b, count)]));
        b->tails[count] = i % 16 == 15 ? tern_expr_rule(b->r, sum) : sum;
    }
}

static tern_status build(builder *b, tern_expr *out) {
    const tern_object *o = b->o;
    for (size_t i = 0; i < o->n_members; i++) {
        if (b->x->n_work++ > TERN_SCHEMA_WORK_MAX)
            return tern_schema_fail(b->x, o->facts[0].at, "too many alternatives");
        TERN_TRY(named_member(b, &o->members[i], &b->values[i]));
        // If a required member has no possible value, there is no object: the others need no rules.
        if (o->members[i].is_required && b->values[i] == TERN_EXPR_NOTHING) return TERN_OK;
    }
    TERN_TRY(other_members(b));
    uint32_t n_required = 0;
    for (size_t i = 0; i < o->n_members; i++) n_required += o->members[i].is_required;
    if (b->others != TERN_EXPR_NOTHING && o->min > n_required + 1)
        return tern_schema_fail(b->x, o->facts[0].at,
                                "'minProperties' of names that the schema does not have");
    add_end(b);
    for (size_t i = o->n_members; i-- > 0;) add_member(b, i);
    *out = tern_expr_cat(b->r, text(b, "{"), b->tails[0]);
    return TERN_OK;
}

tern_status tern_schema_object(tern_schema *x, const tern_fact *f, size_t n, tern_expr *out) {
    tern_object o;
    *out = TERN_EXPR_NOTHING;
    tern_status status = tern_schema_object_read(x, f, n, &o);
    if (status == TERN_OK && o.min <= o.max && o.min != TERN_NO_LIMIT) {
        // Members are counted as far as bounds need it, at least whether there is one.
        uint64_t counts = o.max != TERN_NO_LIMIT ? (uint64_t)o.max + 1 : (uint64_t)o.min + 1;
        if (o.max != TERN_NO_LIMIT && counts < 2) counts = 2;
        if (counts < 2) counts = 2;
        builder b = {.o = &o, .x = x, .r = x->rules, .n_counts = (uint32_t)counts};
        if (counts * (o.n_members + 1) > STATES_MAX) {
            status = tern_schema_fail(x, f[0].at, "an object of more than %d members to be counted",
                                      STATES_MAX);
        } else {
            b.values = tern_alloc_array(TERN_MEM_SESSION, o.n_members + 1, sizeof *b.values);
            b.tails = tern_alloc_array(TERN_MEM_SESSION, b.n_counts, sizeof *b.tails);
            status = b.values && b.tails ? build(&b, out) : tern_schema_memory(x);
        }
        tern_free(b.values);
        tern_free(b.tails);
    }
    tern_schema_object_free(&o);
    return status;
}
