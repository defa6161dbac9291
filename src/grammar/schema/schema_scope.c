// unevaluatedProperties and unevaluatedItems: which schemas evaluate parts of a value for them.
//
// A case lists all schemas that hold, so it is known for each name and place whether one of a scope
// evaluates it. For an anyOf in a scope there is a case for each set of its schemas that hold, not
// for each schema. The case need not exclude the others: if they held, too, more would be evaluated
// and less demanded.
#include "base/alloc.h"
#include "grammar/schema/schema.h"

static const char *const keywords[] = {"unevaluatedProperties", "unevaluatedItems"};

tern_status tern_schema_scope(tern_schema *x, uint32_t parent, const tern_json *schema,
                              uint32_t *scope, bool *is_there) {
    *scope = parent;
    *is_there = false;
    if (!tern_schema_get(x, schema, keywords[0]) && !tern_schema_get(x, schema, keywords[1]))
        return TERN_OK;
    for (uint32_t s = parent; s && !*is_there; s = x->scopes[s].parent)
        *is_there = x->scopes[s].schema == schema;
    if (*is_there) return TERN_OK;
    if (x->n_scopes == 0) x->n_scopes = 1; // 0 is none
    if (tern_array_reserve(TERN_MEM_SESSION, &x->scopes, &x->scopes_capacity, x->n_scopes, 1) != 0)
        return tern_schema_memory(x);
    x->scopes[x->n_scopes] = (tern_scope){schema, parent};
    *scope = (uint32_t)x->n_scopes++;
    return TERN_OK;
}

bool tern_schema_may_evaluate(const tern_schema *x, const tern_json *schema) {
    static const char *const may[] = {"properties",
                                      "patternProperties",
                                      "additionalProperties",
                                      "unevaluatedProperties",
                                      "prefixItems",
                                      "items",
                                      "additionalItems",
                                      "unevaluatedItems",
                                      "contains",
                                      "$ref",
                                      "$dynamicRef",
                                      "$recursiveRef",
                                      "allOf",
                                      "anyOf",
                                      "oneOf",
                                      "if",
                                      "dependentSchemas",
                                      "dependencies"};
    for (size_t i = 0; i < sizeof may / sizeof *may; i++)
        if (tern_json_is(schema, TERN_JSON_OBJECT) && tern_schema_get(x, schema, may[i]))
            return true;
    return false;
}

static bool is_within(const tern_schema *x, uint32_t scope, uint32_t outer) {
    while (scope && scope != outer) scope = x->scopes[scope].parent;
    return scope == outer;
}

tern_status tern_schema_unevaluated(const tern_schema *x, const tern_schema_rest *rest,
                                    const tern_fact *of, const tern_json **out) {
    const tern_fact *f = rest->facts;
    const char *name = rest->name;
    const tern_json *keyword = tern_schema_get(x, of->at, name);
    bool is_evaluated = false;
    *out = NULL;
    if (!keyword) return TERN_OK;
    for (size_t i = 0; i < rest->n && !is_evaluated; i++) {
        if (f[i].kind != TERN_FACT_SCHEMA || !is_within(x, f[i].scope, of->scope)) continue;
        // A nested schema with the same keyword has evaluated all the rest.
        is_evaluated = f[i].scope != of->scope && tern_schema_get(x, f[i].at, name);
        if (!is_evaluated) TERN_TRY(rest->evaluates(&f[i], rest->part, &is_evaluated));
    }
    if (!is_evaluated) *out = keyword;
    return TERN_OK;
}
