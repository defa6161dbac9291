// Bodies of requests: JSON or a form, plain or compressed; or a file.
#ifndef TERN_SERVE_LONG_BODY_H
#define TERN_SERVE_LONG_BODY_H

#include "apps/serve/request/request.h"

typedef enum content_encoding {
    ENCODING_NONE,
    ENCODING_GZIP,
    ENCODING_DEFLATE, // zlib's format
} content_encoding;

// Reads the field Content-Encoding. False: the encoding is not supported, and e says so.
bool encoding_read(request *req, api_error *e);

// Parses a text, which must live as long as the request, into req->body. False: e says why.
bool body_read(request *req, tern_str text, api_error *e);
// Reads the request's body, of either kind, away if it is long; then calls go_on with the error, if
// any.
void body_read_then(request *req, void (*go_on)(request *req, api_error *e));

// ---- Uploads -----------------------------------------------------------------------------------

// A file is written to disk as it comes, piece by piece, on a thread. While a piece is written
// nothing is read from the socket.
#define UPLOAD_PIECE ((size_t)1 << 20)
#define UPLOAD_PATH  "/api/blobs/" // requests to it have bodies of any length

// Prepares to receive a file; nothing is written yet. digest: 64 digits.
void upload_begin(request *req, tern_str digest, api_error *e);
// Writes a piece, which it takes over; then calls the sink's `more`. If req->refusal is set then,
// the upload is over.
void upload_take(request *req, tern_strbuf *piece);
// Writes the rest of the body, which is there, and checks the digest; then calls `then`, unless it
// answered with an error.
void upload_end(request *req, void (*then)(request *req));
void upload_free(struct upload *u); // removes what is not whole; NULL is allowed

#endif
