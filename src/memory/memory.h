// The parts of a memory other than storage: redacting secrets, cutting texts into chunks, finding
// the nearest vectors, and fusing lists of results. Everything is plain computation, so it also
// runs where SQLite does not. The store: store/store.h.
#ifndef TERN_MEMORY_MEMORY_H
#define TERN_MEMORY_MEMORY_H

#include "base/strbuf.h"
#include "base/os/team.h"
#include "kernels/cpu/kernels.h"
#include "tern_memory.h"

// ---- Redaction (redact.c) -----------------------------------------------------------------------

typedef struct tern_redactor tern_redactor;

// The built-in rules unless `without_rules`, then the patterns, in this order.
tern_status tern_redactor_open(tern_redactor **out, bool without_rules, const char *const *patterns,
                               size_t n_patterns, tern_error *err);
void tern_redactor_close(tern_redactor *r); // NULL is allowed
// Appends the text to `out` with "[redacted NAME]" in place of each match of a rule; adds the
// number of these places to *n_found. text is UTF-8. A pattern that takes too long fails, so that
// nothing slips through.
tern_status tern_redact(const tern_redactor *r, const char *text, size_t n, tern_strbuf *out,
                        size_t *n_found, tern_error *err);

// ---- Chunks (chunk.c) ---------------------------------------------------------------------------

typedef struct tern_token_counter {
    tern_status (*count)(void *user, const char *text, size_t n, size_t *n_tokens, tern_error *err);
    void *user;
} tern_token_counter;

typedef struct tern_text_chunk {
    size_t begin, end;         // bytes of the text
    size_t n_tokens;           // without the white space around it
    size_t line;               // line of its beginning, from 1
    size_t heading, n_heading; // bytes of tern_text_chunks.headings
} tern_text_chunk;

typedef struct tern_text_chunks { // zero-initialise
    tern_text_chunk *list;
    size_t n, capacity;
    tern_strbuf headings; // "Guide > Install", concatenated
} tern_text_chunks;

typedef struct tern_chunking {
    tern_memory_format format; // not AUTO
    size_t max_tokens;         // of a chunk; at least 1
    size_t overlap_tokens;     // less than max_tokens
    tern_token_counter counter;
} tern_chunking;

// The chunks cover the text: each begins where the one before it ends, or earlier by the overlap.
// Only a single character may have more than max_tokens. A text of white space has no chunks.
tern_status tern_chunk_text(tern_text_chunks *out, const char *text, size_t n,
                            const tern_chunking *how, tern_error *err);
void tern_text_chunks_free(tern_text_chunks *c);
// Leaves out empty lines and white space at the ends of text[*begin .. *end).
void tern_chunk_trim(const char *text, size_t *begin, size_t *end);

// ---- Vectors (vectors.c) ------------------------------------------------------------------------

// Vectors in 8 bits (Q8_0: a scale for each 32 numbers), searched by reading all of them.
typedef struct tern_vectors { // begin with tern_vectors_open
    size_t n_dims;            // numbers of a vector
    size_t row_bytes;
    uint8_t *rows; // [n, row_bytes]
    int64_t *ids;  // [n], rising
    size_t n, capacity;
    tern_cpu_kernels kernels;
} tern_vectors;

typedef struct tern_match {
    int64_t id;
    float score;
} tern_match;

void tern_vectors_open(tern_vectors *v, size_t n_dims); // empty
size_t tern_vectors_row_bytes(size_t n_dims);
// row: tern_vectors_row_bytes; vector: [n_dims].
void tern_vectors_encode(uint8_t *row, const float *vector, size_t n_dims);
// id must be greater than all ids before it.
tern_status tern_vectors_add(tern_vectors *v, int64_t id, const uint8_t *row, tern_error *err);
void tern_vectors_clear(tern_vectors *v);
void tern_vectors_free(tern_vectors *v);
typedef struct tern_vectors_query {
    const float *vector;
    const int64_t *allowed; // rising ids, the only ones that are considered; NULL: all
    size_t n_allowed;
    size_t k; // rows wanted
} tern_vectors_query;
// The k rows with the greatest product with the vector, best first, equal ones by id; *n gets their
// number.
tern_status tern_vectors_search(const tern_vectors *v, const tern_team *team,
                                const tern_vectors_query *query, tern_match *out, size_t *n,
                                tern_error *err);
float tern_vectors_dot(const tern_vectors *v, const float *a, const float *b); // [n_dims]

// ---- Lists of results (fuse.c) ------------------------------------------------------------------

typedef struct tern_fused {
    int64_t id;
    float score;      // sum of 1 / (60 + rank)
    int32_t ranks[2]; // in the lists, from 1; 0: not there
} tern_fused;

// Reciprocal rank fusion: a and b are ids, best first. out: room for n_a + n_b. Sorted best first,
// equal ones by id.
void tern_fuse(tern_fused *out, size_t *n, const int64_t *a, size_t n_a, const int64_t *b,
               size_t n_b);

#endif
