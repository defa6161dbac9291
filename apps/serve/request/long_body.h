// Bodies of requests: JSON or a form, plain or compressed.
#ifndef TERN_SERVE_LONG_BODY_H
#define TERN_SERVE_LONG_BODY_H

#include "apps/serve/request/request.h"

typedef enum content_encoding {
    ENCODING_NONE,
    ENCODING_GZIP,
    ENCODING_DEFLATE, // zlib's format
} content_encoding;

// Reads the field Content-Encoding. False: the encoding is not supported, and e says so.
bool encoding_read(request *req, api_error *e);

// Parses a text, which must live as long as the request, into req->body. False: e says why.
bool body_read(request *req, tern_str text, api_error *e);
// Reads the request's body, of either kind, away if it is long; then calls go_on with the error, if
// any.
void body_read_then(request *req, void (*go_on)(request *req, api_error *e));

#endif
