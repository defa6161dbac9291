#ifndef TERN_SERVE_OPENAPI_H
#define TERN_SERVE_OPENAPI_H

#include "apps/serve/request/request.h"

void serve_openapi(request *req); // GET /openapi.json: the routes that it serves, from their table

#endif
