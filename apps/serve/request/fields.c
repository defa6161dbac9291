#include "apps/serve/request/fields.h"

#include <stdio.h>
#include <string.h>

fields fields_of_body(request *req, api_error *e) {
    const tern_json *root = req->mcp ? req->arguments : tern_json_root(&req->body);
    if (root && !tern_json_is(root, TERN_JSON_OBJECT))
        api_fail(e, 400, NULL, NULL, "the body must be a JSON object");
    return (fields){&req->body, root, "", e};
}

fields fields_within(const fields *f, const char *name, const char *prefix) {
    const tern_json *inner = field_any(f, name);
    if (inner && !tern_json_is(inner, TERN_JSON_OBJECT)) field_fail(f, name, "an object");
    return (fields){f->doc, inner, prefix, f->error};
}

void field_fail(const fields *f, const char *name, const char *wanted) {
    char param[80];
    snprintf(param, sizeof param, "%s%s", f->prefix, name);
    api_fail(f->error, 400, NULL, param, "'%s' must be %s", param, wanted);
}

const tern_json *field_any(const fields *f, const char *name) {
    const tern_json *value = tern_json_get(f->doc, f->object, name);
    return tern_json_is(value, TERN_JSON_NULL) ? NULL : value;
}

tern_str field_text(const fields *f, const char *name) {
    const tern_json *value = field_any(f, name);
    if (value && !tern_json_is(value, TERN_JSON_STRING)) field_fail(f, name, "a string");
    return tern_json_str(value);
}

bool field_bool(const fields *f, const char *name, bool otherwise) {
    const tern_json *value = field_any(f, name);
    if (value && !tern_json_is(value, TERN_JSON_BOOL)) field_fail(f, name, "true or false");
    return tern_json_bool(value, otherwise);
}

double field_number(const fields *f, const char *name, double otherwise, double min, double max) {
    const tern_json *value = field_any(f, name);
    if (!value) return otherwise;
    double v = tern_json_number(value, min - 1);
    if (tern_json_is(value, TERN_JSON_NUMBER) && v >= min && v <= max) return v;
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a number from %g to %g", min, max);
    field_fail(f, name, wanted);
    return otherwise;
}

int64_t field_int(const fields *f, const char *name, int64_t otherwise, int64_t min, int64_t max) {
    const tern_json *value = field_any(f, name);
    uint64_t whole;
    bool is_negative;
    if (!value) return otherwise;
    if (tern_json_whole(value, &whole, &is_negative) && (is_negative || whole <= INT64_MAX) &&
        (int64_t)whole >= min && (int64_t)whole <= max)
        return (int64_t)whole;
    char wanted[80];
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)min,
             (long long)max);
    field_fail(f, name, wanted);
    return otherwise;
}

const tern_json *field_array(const fields *f, const char *name) {
    const tern_json *value = field_any(f, name);
    if (!value || tern_json_is(value, TERN_JSON_ARRAY)) return value;
    field_fail(f, name, "an array");
    return NULL;
}

void field_refuse(const fields *f, const char *name) {
    const tern_json *value = field_any(f, name);
    char param[80];
    if (!value) return;
    bool is_empty =
        (tern_json_is(value, TERN_JSON_BOOL) && !tern_json_bool(value, true)) ||
        ((tern_json_is(value, TERN_JSON_ARRAY) || tern_json_is(value, TERN_JSON_OBJECT) ||
          tern_json_is(value, TERN_JSON_STRING)) &&
         value->n == 0);
    if (is_empty) return;
    snprintf(param, sizeof param, "%s%s", f->prefix, name);
    api_fail(f->error, 400, "unsupported_parameter", param, "'%s' is not supported by this server",
             param);
}
