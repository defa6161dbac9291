// Items that /v1/responses has answered lately, by their ids: clients that take for granted that a
// server stores them (the AI SDK) refer to them in the next request. In memory only, and within a
// budget: the oldest go first.
#ifndef TERN_SERVE_ITEM_STORE_H
#define TERN_SERVE_ITEM_STORE_H

#include "base/strbuf.h"

#define ITEM_STORE_BYTES (4u << 20) // of all items; also what one request may refer to

typedef struct item_store item_store; // any thread may use it

item_store *item_store_open(void); // NULL: no memory
void item_store_close(item_store *s);
// Keeps a copy, if it fits. owner: whose text it is (registry.h).
void item_store_put(item_store *s, size_t owner, tern_str id, tern_str item);
// Appends the item, JSON. False: it is not there, or is another owner's.
bool item_store_get(item_store *s, size_t owner, tern_str id, tern_strbuf *out);

#endif
