// Likelihoods of a prompt's own tokens, as evaluation harnesses ask for them. They are computed
// away, in pieces between the steps of running answers, before the answer begins.
#ifndef TERN_SERVE_PROMPT_SCORES_H
#define TERN_SERVE_PROMPT_SCORES_H

#include "apps/serve/request/generation_request.h"

// Fills in the prompts' scores, then generation_begin.
void prompt_scores_begin(request *req, api_error *e);

#endif
