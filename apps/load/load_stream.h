// Reads a stream of server-sent events, for a load.
#ifndef TERN_APPS_LOAD_STREAM_H
#define TERN_APPS_LOAD_STREAM_H

#include "apps/load/load.h"
#include "base/strbuf.h"

typedef struct load_stream {
    load_request *request;
    tern_strbuf line; // not ended yet
    tern_strbuf body; // of an answer that is not a stream
} load_stream;

// Takes bytes that arrived at time `now`. False: out of memory.
bool load_stream_take(load_stream *s, const char *bytes, size_t n, double now);
void load_stream_free(load_stream *s);
// The answer has ended. Notes the error in the request, if there is one and none was noted before.
void load_stream_end(load_stream *s);
// The number of a prompt's tokens, from an answer that is not a stream; 0: not given.
size_t load_read_prompt_tokens(const char *json, size_t n);

#endif
