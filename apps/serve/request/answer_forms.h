// The form that a request demands of its answer ("response_format" and the like), compiled to a
// grammar. Grammars are cached with the model, since clients send the same schema again and again.
// A missing one is compiled on another thread, as long texts are tokenized.
#ifndef TERN_SERVE_ANSWER_FORMS_H
#define TERN_SERVE_ANSWER_FORMS_H

#include "apps/serve/request/generation_request.h"

// Compiles it; any thread. NULL: e says why.
shared_grammar *format_open(const served *s, const format_wanted *w, api_error *e);

// Opens the grammar that was read, once the prompt is known; on the loop's thread.
void generation_open_format(request *req, api_error *e);

// Reads all spellings of a form into the generation: OpenAI's "response_format", llama-server's
// "json_schema" and "grammar", vLLM's "guided_..." and "structured_outputs".
void generation_read_formats(request *req, const fields *f);
// {"type": "json_schema", ...}, as in "response_format", "text.format" ...
void generation_read_format(request *req, const fields *format, const char *name);
// Ollama's "format": "json", or a schema.
void generation_read_ollama_format(request *req, const fields *f);

#endif
