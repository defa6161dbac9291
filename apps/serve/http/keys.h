// Access control: API keys, names of this host, origins of pages.
#ifndef TERN_SERVE_KEYS_H
#define TERN_SERVE_KEYS_H

#include "apps/serve/http/http.h"
#include "apps/serve/serve.h"

// "Authorization: Bearer KEY" or "x-api-key: KEY"; {NULL, 0}: none.
tern_str key_of(const http_request *r);
// Which key it is, or SIZE_MAX. The time taken does not depend on how much of the key is right.
size_t find_key(const serve_list *keys, tern_str key);
// Whether the field Host names this server. Another site's page can make its own domain resolve to
// this server (DNS rebinding), but cannot make a browser send another Host, nor a key. So a server
// without keys, or on a loopback address, or with a list of names, accepts only an address,
// localhost, the machine's name and the listed names; "*" accepts any.
// Whether the server listens on this machine alone, and is asked by a name that no other has.
bool host_is_here(const serve_desc *d, tern_str host);
bool host_is_allowed(const serve_desc *d, tern_str host);
// Whether pages of an origin may send requests: this host's, this machine's, and the allowed ones.
bool origin_is_allowed(const serve_desc *d, tern_str origin, tern_str host);
// Why a request may not change what all clients share; NULL: it may. Whoever may ask, if an option
// says so; else programs of this machine, which need no server to change its user's files. Pages of
// other sites never: what --cors allows is to ask.
const char *manage_refusal(const serve_desc *d, const http_request *http);

#endif
