// Functions that the files of Ollama's interface share.
#ifndef TERN_SERVE_OLLAMA_H
#define TERN_SERVE_OLLAMA_H

#include "apps/serve/request/request.h"

// Calls handle when the request's model is open, and keeps it open for its "keep_alive". If the
// field `content` is empty (NULL: it never is) and "keep_alive" is 0, a closed model is not opened,
// and handle is called at once.
void ollama_with_model(request *req, const char *content, void (*handle)(request *req));

// Whether the client may change which models there are. False: e says why.
bool ollama_may_manage(const request *req, api_error *e);

void ollama_time(char out[40]);    // now, as RFC 3339 with a fraction
double ollama_since(double began); // seconds

#endif
