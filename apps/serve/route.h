// A row of the routes (routes.c).
#ifndef TERN_SERVE_ROUTE_H
#define TERN_SERVE_ROUTE_H

#include <stddef.h>

struct request;
struct error_format;

typedef enum route_needs {
    NEEDS_NOTHING, // not even a key
    NEEDS_KEY,
    NEEDS_UPLOAD,      // and the body is written as it comes (long_body.h)
    NEEDS_NAME,        // a model's name; the model need not be open
    NEEDS_MODEL,       // open
    NEEDS_MODEL_ALONE, // open; the body may be empty
    NEEDS_MODEL_FORM,  // open; the body is a form
} route_needs;

typedef struct route {
    const char *method, *path; // a path that ends with '/' matches any longer path
    const struct error_format *error_format;
    void (*handle)(struct request *req);
    route_needs needs;
} route;

const route *route_at(size_t i); // NULL: no more

#endif
