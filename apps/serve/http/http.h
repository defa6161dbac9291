// HTTP/1.1 as bytes: parses what a client sends into a request, and writes answers. It uses neither
// sockets nor time, so all of it can be tested and fuzzed without them.
//
// The reader follows RFC 9112 strictly and refuses what the RFC lets servers tolerate: a line feed
// without a carriage return, a length given twice, a folded line. Two programs that tolerate
// different things see different requests in the same bytes, and that is how requests are smuggled
// past a proxy.
#ifndef TERN_SERVE_HTTP_H
#define TERN_SERVE_HTTP_H

#include <stdint.h>
#include "base/strbuf.h"

typedef struct http_limits {
    size_t head_bytes; // request line and fields together; a body's trailers may have as many again
    size_t n_fields;
    uint64_t body_bytes;     // decoded
    const char *upload_path; // requests to paths below it have other bodies; NULL: none do
    uint64_t upload_bytes;
} http_limits;

typedef struct http_field {
    tern_str name, value; // the value without blanks around it
} http_field;

// Everything lies in the reader and is valid until its next request begins.
typedef struct http_request {
    tern_str method, path, query; // the path as sent, with its %-escapes; the query without '?'
    tern_str host;
    int minor; // of HTTP/1.x: 0 or 1
    const http_field *fields;
    size_t n_fields;
    tern_str body;
    bool keeps_alive;
    bool expects_continue; // asks for "100 Continue" before it sends the body
} http_request;

// The value of a field, whose name is compared without case; {NULL, 0}: there is none.
tern_str http_field_of(const http_request *r, const char *name);
bool http_same_name(tern_str a, const char *b); // without case
// The value of a form's field (http_form.c); {NULL, 0}: the body is not a form, or has no such
// field.
tern_str form_field(const http_request *r, const char *name);
bool form_has(const http_request *r, const char *name, const char *value); // such a field

// ---- Reading -----------------------------------------------------------------------------------

typedef enum http_progress {
    HTTP_MORE,    // bytes are missing
    HTTP_READY,   // a request is complete
    HTTP_REFUSED, // it is not valid: answer with `status`, and close
} http_progress;

typedef enum http_place { // the part expected next
    HTTP_AT_START,        // the request line
    HTTP_AT_FIELD,
    HTTP_AT_BODY, // of a known length
    HTTP_AT_CHUNK_SIZE,
    HTTP_AT_CHUNK,
    HTTP_AT_CHUNK_END,
    HTTP_AT_TRAILER,
    HTTP_AT_END,
} http_place;

typedef struct http_span { // of the reader's text
    size_t at, n;
} http_span;
typedef struct http_field_span {
    http_span name, value;
} http_field_span;

// Zero-initialise it and set the limits; free it with http_reader_free.
typedef struct http_reader {
    http_limits limits;
    http_place place;
    tern_strbuf text; // the lines of the head; while a body is read, its chunk lines after them
    size_t line;      // where the line that is being read begins
    size_t n_trailer; // bytes of trailers so far
    bool skipped_line, is_chunked, has_length;
    bool discards;        // the body is skipped and stays empty
    uint64_t n_discarded; // of the body, or taken out of it
    uint64_t left;        // bytes of the body or the chunk
    tern_strbuf body;
    http_span method, path, query, host;
    http_field_span *spans; // [request.n_fields]
    size_t n_spans, spans_capacity;
    http_field *fields;
    size_t fields_capacity;
    http_request request; // complete with HTTP_READY; its head is there from HTTP_AT_BODY on
    int status;           // of HTTP_REFUSED: 400, 413, 414, 417, 431, 500, 501, 505
    const char *reason;   // a sentence's end: "bare LF"
} http_reader;

// Reads from bytes[0..n) until a request is complete, and sets *n_used. It does not matter how the
// bytes are split over calls.
http_progress http_reader_feed(http_reader *r, const char *bytes, size_t n, size_t *n_used);
void http_reader_next(http_reader *r); // forgets the request; its memory stays
void http_reader_free(http_reader *r);

// Writes a path with its %-escapes decoded, terminated. False: a wrong escape, a zero byte, or no
// memory.
bool http_unescape(tern_str path, tern_strbuf *out);

// ---- Writing -----------------------------------------------------------------------------------

const char *http_reason(int status); // "Not Found"
// A head: begin, any fields, end. Values are written unchanged: callers pass no line ends.
void http_put_status(tern_strbuf *out, int status);
void http_put_field(tern_strbuf *out, const char *name, const char *value);
void http_put_length(tern_strbuf *out, size_t n);
void http_put_head_end(tern_strbuf *out);
// A body whose length is not known: n > 0 bytes at a time, then the end.
void http_put_chunk(tern_strbuf *out, const char *bytes, size_t n);
void http_put_last_chunk(tern_strbuf *out);

#endif
