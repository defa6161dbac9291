// Of Ollama's interface: what its two files share.
#ifndef TERN_SERVE_OLLAMA_H
#define TERN_SERVE_OLLAMA_H

#include "apps/serve/request.h"

// Calls handle when the request's model is open, which then stays for its "keep_alive"; at once,
// and with a model that may be closed, if there is nothing in the field
// `content` (NULL: there always is) and it is to go.
void ollama_with_model(request *req, const char *content, void (*handle)(request *req));

void ollama_time(char out[40]);    // now, as RFC 3339 with a fraction
double ollama_since(double began); // seconds

#endif
