// Bodies of requests, which are JSON. Long ones are not read on the loop's thread: a million
// numbers take a good part of a second, and no stream would go on in the meantime.
#ifndef TERN_SERVE_LONG_BODY_H
#define TERN_SERVE_LONG_BODY_H

#include "apps/serve/exchange.h"

// Bytes of a body that is read on the loop's thread: some milliseconds.
#define LONG_BODY (64 << 10)

// Makes x->body of a text that stays as long as the exchange. False: e says why.
bool body_read(exchange *x, tern_str text, api_error *e);
// If x->text is long, a thread reads it, and go_on is called when x->body is there, or e says why
// not. False: it is short.
bool body_read_later(exchange *x, void (*go_on)(exchange *x, api_error *e));

#endif
