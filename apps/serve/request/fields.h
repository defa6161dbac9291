// The fields of a request's JSON. Unknown ones are ignored, null means absent. The first field of a
// wrong type or out of range is recorded in the error with its name, so that a reader checks once,
// at the end.
#ifndef TERN_SERVE_FIELDS_H
#define TERN_SERVE_FIELDS_H

#include "apps/serve/request/request.h"

typedef struct fields {
    const tern_json_doc *doc;
    const tern_json *object; // NULL: no fields
    const char *prefix;      // of names in errors: "options."; "": none
    api_error *error;
} fields;

// The fields of the request's body, or of a tool call's arguments; an empty body has none.
fields fields_of_body(request *req, api_error *e);
fields fields_within(const fields *f, const char *name, const char *prefix); // of an object

const tern_json *field_any(const fields *f, const char *name); // NULL: absent
tern_str field_text(const fields *f, const char *name);        // {NULL, 0}: absent
bool field_bool(const fields *f, const char *name, bool otherwise);
double field_number(const fields *f, const char *name, double otherwise, double min, double max);
int64_t field_int(const fields *f, const char *name, int64_t otherwise, int64_t min, int64_t max);
const tern_json *field_array(const fields *f, const char *name);
// For an unsupported field that would change the answer: an error unless it is absent, false, or an
// empty array or object.
void field_refuse(const fields *f, const char *name);
void field_fail(const fields *f, const char *name, const char *wanted); // "must be ..."

#endif
