// A hash table of names in large objects: there may be many thousands of properties and
// definitions, and each is looked up by name.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "grammar/schema/schema.h"

#define INDEXED_MIN 16 // members; in smaller objects they are searched one by one

static size_t slot_of(const tern_schema *x, uint32_t object, tern_str name) {
    return tern_hash64(x->terms->secret + object, name.ptr, name.len) & (x->n_key_slots - 1);
}

// The key node of a name, or where it would stand.
static size_t find_slot(const tern_schema *x, uint32_t object, tern_str name) {
    size_t at = slot_of(x, object, name), n = 0;
    for (; x->key_slots[at]; at = (at + 1) & (x->n_key_slots - 1), tern_terms_probe(x->terms, ++n))
        if (x->key_owners[at] == object &&
            tern_str_eq(tern_json_str(&x->doc.nodes[x->key_slots[at]]), name))
            break;
    return at;
}

tern_status tern_schema_index(tern_schema *x) {
    const tern_json *nodes = x->doc.nodes;
    size_t n_keys = 0;
    for (size_t i = 0; i < x->doc.n_nodes; i++)
        if (nodes[i].type == TERN_JSON_OBJECT && nodes[i].n >= INDEXED_MIN) n_keys += nodes[i].n;
    if (n_keys == 0) return TERN_OK;
    for (x->n_key_slots = 64; x->n_key_slots < 2 * n_keys;) x->n_key_slots *= 2;
    x->key_slots = tern_alloc_array(TERN_MEM_SESSION, x->n_key_slots, sizeof *x->key_slots);
    x->key_owners = tern_alloc_array(TERN_MEM_SESSION, x->n_key_slots, sizeof *x->key_owners);
    if (!x->key_slots || !x->key_owners) return tern_schema_memory(x);
    for (uint32_t i = 0; i < x->doc.n_nodes; i++) {
        const tern_json *object = &nodes[i];
        if (object->type != TERN_JSON_OBJECT || object->n < INDEXED_MIN) continue;
        for (const tern_json *k = tern_json_first(&x->doc, object); k;
             k = tern_json_next(&x->doc, object, k)) {
            const size_t at = find_slot(x, i, tern_json_str(k));
            if (x->key_slots[at]) continue; // the first of the same name counts
            x->key_slots[at] = (uint32_t)(k - nodes);
            x->key_owners[at] = i;
        }
    }
    x->terms->work += n_keys;
    return TERN_OK;
}

const tern_json *tern_schema_key(const tern_schema *x, const tern_json *object, tern_str name) {
    if (!tern_json_is(object, TERN_JSON_OBJECT)) return NULL;
    if (object->n >= INDEXED_MIN && x->n_key_slots) {
        x->terms->work++;
        const size_t at = find_slot(x, (uint32_t)(object - x->doc.nodes), name);
        return x->key_slots[at] ? tern_json_value_of(&x->doc, &x->doc.nodes[x->key_slots[at]])
                                : NULL;
    }
    x->terms->work += 1 + object->n / 8;
    for (const tern_json *k = tern_json_first(&x->doc, object); k;
         k = tern_json_next(&x->doc, object, k))
        if (tern_str_eq(tern_json_str(k), name)) return tern_json_value_of(&x->doc, k);
    return NULL;
}

void tern_schema_index_free(tern_schema *x) {
    tern_free(x->key_slots);
    tern_free(x->key_owners);
    x->key_slots = x->key_owners = NULL;
}
