// JSON as values of templates: messages, tools and what else a template is given.
#include "input/jinja/jinja.h"

static bool json_number(jrun *r, const tern_json *json, jvalue *out) {
    // A number with a point or an exponent is a float, as in Python.
    uint64_t whole;
    bool is_negative;
    bool is_int = json->n != TERN_JSON_FRACTION && tern_json_whole(json, &whole, &is_negative) &&
                  (is_negative || whole <= INT64_MAX);
    *out = is_int ? J_INT_OF((int64_t)whole) : J_FLOAT_OF(json->number);
    return tern_jinja_work(r, 1);
}

// Recursive, but no deeper than TERN_JSON_DEPTH_MAX.
bool tern_jinja_from_json(jrun *r, const tern_json_doc *doc, const tern_json *json, jvalue *out) {
    switch (json->type) {
    case TERN_JSON_NULL: *out = J_NONE_VALUE; return true;
    case TERN_JSON_BOOL: *out = J_BOOL_OF(json->n != 0); return true;
    case TERN_JSON_NUMBER: return json_number(r, json, out);
    case TERN_JSON_STRING: *out = J_STR_OF(json->text, json->n); return true;
    case TERN_JSON_ARRAY:
        if (!tern_jinja_list_new(r, J_PLAIN, json->n, out)) return false;
        break;
    default:
        if (!tern_jinja_dict_new(r, J_DICT, out)) return false;
        break;
    }
    for (const tern_json *child = tern_json_first(doc, json); child;
         child = tern_json_next(doc, json, child)) {
        jvalue value;
        if (json->type == TERN_JSON_ARRAY) {
            if (!tern_jinja_from_json(r, doc, child, &value) ||
                !tern_jinja_list_add(r, out->list, value))
                return false;
        } else {
            const tern_json *member = tern_json_value_of(doc, child);
            if (!tern_jinja_from_json(r, doc, member, &value) ||
                !tern_jinja_dict_set(r, out->dict, J_STR_OF(child->text, child->n), value))
                return false;
        }
    }
    return true;
}
