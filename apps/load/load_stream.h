// A stream of server-sent events, as a load hears it.
#ifndef TERN_APPS_LOAD_STREAM_H
#define TERN_APPS_LOAD_STREAM_H

#include "apps/load/load.h"
#include "base/strbuf.h"

typedef struct load_stream {
    load_request *request;
    tern_strbuf line; // not ended yet
    tern_strbuf body; // of an answer that is no stream
} load_stream;

// Bytes that came at a time. False: no memory.
bool load_stream_take(load_stream *s, const char *bytes, size_t n, double now);
void load_stream_free(load_stream *s);
// The answer has ended. Notes in the request what went wrong, if nothing did so before.
void load_stream_end(load_stream *s);
// The tokens of a prompt, by an answer that is no stream; 0: it does not say.
size_t load_read_prompt_tokens(const char *json, size_t n);

#endif
