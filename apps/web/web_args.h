// Arguments in JSON: an object whose members' names, types and ranges a table lists. Members that
// are not in the table are refused by name.
#ifndef TERN_APPS_WEB_ARGS_H
#define TERN_APPS_WEB_ARGS_H

#include "base/json/json.h"

typedef enum web_kind {
    WEB_STRING, // to: const char *, terminated; text with a zero byte is refused
    WEB_TEXT,   // to: tern_str
    WEB_BOOL,   // to: bool
    WEB_INT,    // to: int32_t
    WEB_COUNT,  // to: uint64_t, a whole number up to 2^53
    WEB_NUMBER, // to: float
    WEB_CHOICE, // to: int32_t, the index of one of the words in `words`
    WEB_ARRAY,  // to: const tern_json *
} web_kind;

typedef struct web_field {
    const char *name;
    web_kind kind;
    void *to;          // unchanged if the member is missing or null
    double min, max;   // of INT and NUMBER, both included
    const char *words; // of CHOICE: "auto cpu webgpu"
} web_field;

// Memory that the values point to.
typedef struct web_args {
    tern_json_doc doc;
    char **strings;
    size_t n_strings, capacity;
} web_args;

// json[0..n) may be empty (n = 0): no members. It must outlive args. what: the function, for
// messages.
tern_status web_args_read(web_args *args, const char *what, const char *json, size_t n,
                          const web_field *fields, size_t n_fields, tern_error *err);
// The same for a nested object.
tern_status web_args_object(web_args *args, const char *what, const tern_json *object,
                            const web_field *fields, size_t n_fields, tern_error *err);
// An array of whole numbers as int32_t; the caller frees it with tern_free.
tern_status web_args_ids(const web_args *args, const char *what, const tern_json *array,
                         int32_t **ids, size_t *n_ids, tern_error *err);
// An array of texts, terminated, which live as long as args. name: the member's, for messages.
tern_status web_args_strings(web_args *args, const char *what, const char *name,
                             const tern_json *array, const char *const **texts, tern_error *err);
void web_args_free(web_args *args);

#endif
