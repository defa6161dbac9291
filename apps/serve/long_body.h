// Bodies of requests: JSON, or a form, as they are or compressed.
#ifndef TERN_SERVE_LONG_BODY_H
#define TERN_SERVE_LONG_BODY_H

#include "apps/serve/request.h"

typedef enum content_encoding {
    ENCODING_NONE,
    ENCODING_GZIP,
    ENCODING_DEFLATE, // zlib's format
} content_encoding;

// By the field Content-Encoding. False: it is one that nobody here reads, and e says so.
bool encoding_read(request *req, api_error *e);

// Makes req->body of a text that stays as long as the request. False: e says why.
bool body_read(request *req, tern_str text, api_error *e);
// Reads the request's body, whatever it is, away if it is long; then go_on is called, with what was
// wrong.
void body_read_then(request *req, void (*go_on)(request *req, api_error *e));

#endif
