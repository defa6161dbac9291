#ifndef TERN_SERVE_PRESET_MERGE_H
#define TERN_SERVE_PRESET_MERGE_H

#include "apps/serve/request/request.h"

// Puts what belongs to req->preset into the body, where the request has none; on any thread. False:
// it cannot be, and e says why.
bool preset_merge(request *req, api_error *e);

#endif
