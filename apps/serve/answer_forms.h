// What a request says that its answer must be ("response_format" and its like), made a grammar.
// Grammars are kept with the model: a client asks with the same schema again and again. One that is
// not there is compiled on a thread of its own, as long texts are read.
#ifndef TERN_SERVE_ANSWER_FORMS_H
#define TERN_SERVE_ANSWER_FORMS_H

#include "apps/serve/generation.h"

// A grammar in use: by the list of its model, by generations, by jobs that run with it.
typedef struct shared_grammar shared_grammar;
tern_grammar *shared_grammar_get(const shared_grammar *g);
void shared_grammar_release(shared_grammar *g); // any thread; NULL is allowed
shared_grammar *shared_grammar_hold(shared_grammar *g);

bool format_copy(format_wanted *to, const format_wanted *from); // false: no memory
// Compiles it; any thread. NULL: e says why.
shared_grammar *format_open(const served *s, const format_wanted *w, api_error *e);
// The model's list, of the loop's thread: what it has is held, and what is added.
shared_grammar *formats_find(served *s, const format_wanted *w);
void formats_add(served *s, shared_grammar *g);
void formats_free(served *s);

// Opens what was read, when the prompt is known; of the loop's thread.
void generation_open_format(request *req, api_error *e);

// Reads all spellings of it into the generation: OpenAI's "response_format", llama-server's
// "json_schema" and "grammar", vLLM's "guided_..." and "structured_outputs".
void generation_read_formats(request *req, const fields *f);
// {"type": "json_schema", ...}: of "response_format", "text.format" ...
void generation_read_format(request *req, const fields *format, const char *name);
// Ollama's "format": "json", or a schema.
void generation_read_ollama_format(request *req, const fields *f);

#endif
