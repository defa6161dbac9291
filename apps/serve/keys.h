// Who may ask: API keys, names of this host, origins of pages.
#ifndef TERN_SERVE_KEYS_H
#define TERN_SERVE_KEYS_H

#include "apps/serve/http.h"
#include "apps/serve/serve.h"

// "Authorization: Bearer KEY" or "x-api-key: KEY"; {NULL, 0}: none.
tern_str key_of(const http_request *r);
// Which key it is, or SIZE_MAX. How long it takes does not depend on how much of it is right.
size_t find_key(const serve_list *keys, tern_str key);
// Whether the field Host names this server. A page of another site can make its own name lead here;
// it cannot make a browser send another name, nor a key. So a server without keys, or on a loopback
// address, or that was told its names, answers to an address, localhost, the machine's name and
// these names only; "*" is any.
bool host_is_allowed(const serve_desc *d, tern_str host);
// Whether pages of an origin may ask: those of this very host, of this machine, and those allowed.
bool origin_is_allowed(const serve_desc *d, tern_str origin, tern_str host);

#endif
