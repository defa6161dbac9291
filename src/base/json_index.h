// Finding members of a document's root by their names at once, where there are many: a reader of
// requests asks for dozens of names, and each would look at all members.
#ifndef TERN_BASE_JSON_INDEX_H
#define TERN_BASE_JSON_INDEX_H

#include "base/json.h"

// From now on tern_json_get of the root takes the same time whatever the root has. It takes 16
// bytes or more for each member until the document is freed. A document with few members stays as
// it is.
tern_status tern_json_index(tern_json_doc *doc, tern_error *err);

#endif
