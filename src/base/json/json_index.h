// Finding a root's members by name in constant time, if there are many: a reader of requests looks
// up dozens of names, and each look-up would scan all members.
#ifndef TERN_BASE_JSON_INDEX_H
#define TERN_BASE_JSON_INDEX_H

#include "base/json/json.h"

// From now on tern_json_get of the root takes constant time. It takes 16 bytes or more for each
// member until the document is freed. A document with few members gets no index.
tern_status tern_json_index(tern_json_doc *doc, tern_error *err);

#endif
