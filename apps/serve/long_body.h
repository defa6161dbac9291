// Bodies of requests: JSON, or a form, as they are or compressed.
#ifndef TERN_SERVE_LONG_BODY_H
#define TERN_SERVE_LONG_BODY_H

#include "apps/serve/exchange.h"

typedef enum content_encoding {
    ENCODING_NONE,
    ENCODING_GZIP,
    ENCODING_DEFLATE, // zlib's format
} content_encoding;

// By the field Content-Encoding. False: it is one that nobody here reads, and e says so.
bool encoding_read(exchange *x, api_error *e);

// Makes x->body of a text that stays as long as the exchange. False: e says why.
bool body_read(exchange *x, tern_str text, api_error *e);
// Reads the request's body, whatever it is, away if it is long; then go_on is called, with what was
// wrong.
void body_read_then(exchange *x, void (*go_on)(exchange *x, api_error *e));

#endif
