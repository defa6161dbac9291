// Text to shards: what the files of `tern data` share. The public functions are in tern_train.h.
//
//     files ─ stream, pieces ─ documents ─→ texts and chats ─┬─→ vocabulary (data_tokenizer.c)
//                                                             └─ sketches, tokens ─→ duplicates
//                                                  dropped ─→ shards and a manifest (data_build.c)
//
// Nothing here holds more than one document of the input, a batch of them, and tables whose size is
// bounded: the input may be larger than memory.
#ifndef TERN_TRAIN_DATA_DATA_H
#define TERN_TRAIN_DATA_DATA_H

#include "base/json/json.h"
#include "base/sketch.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "formats/formats.h"
#include "formats/shard/shard.h"
#include "input/input.h"
#include "tern_train.h"

// ---- Bytes of a file, plain or gzip (data_stream.c) ---------------------------------------------

typedef struct tern_stream tern_stream;
tern_status tern_stream_open(tern_stream **out, const char *path, tern_error *err);
// Reads up to capacity bytes; *n = 0: the end.
tern_status tern_stream_read(tern_stream *s, void *to, size_t capacity, size_t *n, tern_error *err);
double tern_stream_fraction(const tern_stream *s); // share of the file read, 0..1
void tern_stream_close(tern_stream *s);

// ---- Pieces of a file (data_pieces.c) -----------------------------------------------------------

#define TERN_DOCUMENT_MAX   ((size_t)8 << 20)  // bytes; longer ones are cut at the end of a line
#define TERN_DATA_VALUE_MAX ((size_t)64 << 20) // bytes of a line of JSON, or of an array's element

typedef struct tern_data_pieces_desc {
    const char *path;         // it and the separators must outlive the pieces
    bool is_json;             // lines or an array of JSON, else text
    tern_str separator, crlf; // between documents of text; in a file whose lines end in CRLF
} tern_data_pieces_desc;
typedef struct tern_data_pieces_info {
    uint64_t line, element; // of the last piece, from 1; element 0: it is none of an array
    uint64_t n_bytes;       // so far, after unpacking
    uint32_t crc32;         // of these
    bool is_undivided;      // text, without a separator so far
} tern_data_pieces_info;
typedef struct tern_data_pieces tern_data_pieces;
tern_status tern_data_pieces_open(tern_data_pieces **out, const tern_data_pieces_desc *desc,
                                  tern_error *err);
void tern_data_pieces_close(tern_data_pieces *p); // NULL is allowed
// The next piece, without what ends it, perhaps empty; valid until the next call. *more = false:
// there is none.
tern_status tern_data_pieces_next(tern_data_pieces *p, tern_str *piece, bool *more,
                                  tern_error *err);
const tern_data_pieces_info *tern_data_pieces_get_info(const tern_data_pieces *p);
double tern_data_pieces_fraction(const tern_data_pieces *p); // share of the file read, 0..1
// Where text longer than TERN_DOCUMENT_MAX is cut: after a line, else after a character.
size_t tern_document_cut(const char *text);

// ---- The tokenizer next to shards (data_tokenizer.c) ------------------------------------------

// Opens the tokenizer that `tern data build` put next to a folder's shards: tokenizer.json and its
// companions, or a GGUF file of metadata alone. *out = NULL: there is neither.
tern_status tern_data_open_tokenizer(tern_file **out, const char *folder, tern_error *err);
// Puts a tokenizer there: that of `file`, which was opened from `path`.
tern_status tern_data_put_tokenizer(tern_out_set *set, const tern_file *file, const char *path,
                                    tern_error *err);

// ---- New tokens (data_new_tokens.c) ------------------------------------------------------------

typedef struct tern_new_tokens {
    tern_new_token *list; // their texts are its own
    size_t n, capacity;
} tern_new_tokens;
void tern_new_tokens_free(tern_new_tokens *n);
tern_status tern_new_tokens_push(tern_new_tokens *n, tern_str text, bool is_special,
                                 tern_error *err);
// Adds them to the tokenizer of `file`, in memory, and opens it again.
tern_status tern_new_tokens_add(const tern_new_tokens *n, tern_file *file,
                                tern_tokenizer **tokenizer, tern_error *err);
// The same with those that a build names.
tern_status tern_data_add_tokens(const tern_data_build_desc *d, tern_file *file,
                                 tern_tokenizer **tokenizer, tern_data_build_stats *stats,
                                 tern_error *err);

// ---- Conversations (data_chats.c) ---------------------------------------------------------------

typedef struct tern_data_chat {
    tern_data_shape shape; // TEXT: it is none
    size_t n_messages;
    uint32_t *left_out; // indices of the messages that are not to be learnt
    size_t n_left_out, left_out_capacity;
    tern_strbuf request; // as tern_template_chat_json takes it, to be rendered as far as it goes
    tern_strbuf text;    // all contents, one per line
} tern_data_chat;
// Reads an object of any of the shapes. *wrong: why it is none of its shape, or NULL.
tern_status tern_data_chat_read(tern_data_chat *chat, const tern_json_doc *doc, const char **wrong,
                                tern_error *err);
// The same of an object with several answers: its prompt and the one in this member, or, with NULL,
// the prompt up to where a model is to answer.
tern_status tern_data_chat_answer(tern_data_chat *chat, const tern_json_doc *doc,
                                  const char *answer, const char **wrong, tern_error *err);
void tern_data_chat_free(tern_data_chat *chat);

// ---- What is scored of them ---------------------------------------------------------------------

// How many of the first tokens are the same.
size_t tern_ids_n_common(const tern_ids *a, const tern_ids *b);
// The tokens that assistants say (data_assistant.c).
typedef struct tern_assistant tern_assistant;
// Finds in the chat template the mark before an answer.
tern_status tern_assistant_open(tern_assistant **out, const tern_file *file,
                                const tern_tokenizer *t, tern_error *err);
void tern_assistant_close(tern_assistant *s); // NULL is allowed
// Sets targets that are not an answer's to -1; ids[i + 1] is the target of ids[i]. marks: of
// tern_token_set_sequence.
void tern_assistant_mask(const tern_assistant *s, const int32_t *ids, const uint8_t *marks,
                         int32_t n, int32_t *targets);

typedef struct tern_token_spans { // in rising order, apart from each other
    tern_token_span *list;
    size_t n, capacity;
} tern_token_spans;
// A rendered chat, and the messages in it that are not to be learnt.
typedef struct tern_left_out {
    const tern_template *template;
    const tern_tokenizer *tokenizer;
    tern_str request;         // tern_data_chat.request
    const uint32_t *messages; // [n_messages], rising
    size_t n_messages;
} tern_left_out;
// Their tokens among `ids`, those of the request. TERN_ERR_FORMAT: they cannot be found.
tern_status tern_left_out_find(const tern_left_out *l, const tern_ids *ids, tern_token_spans *out,
                               tern_error *err);

// ---- Documents (data_documents.c) ---------------------------------------------------------------

typedef struct tern_document_place {
    size_t source;          // index of the file
    uint64_t line, element; // element 0: it is none of an array
} tern_document_place;

typedef struct tern_document {
    tern_str text;              // valid until the next call; for a chat: all contents, one per line
    const tern_data_chat *chat; // for a chat, else NULL
    tern_document_place place;
    bool is_rest; // what follows in a value of JSON whose text was cut
} tern_document;

typedef struct tern_document_source {
    char *path;
    uint64_t n_bytes;  // of text, after unpacking
    uint32_t crc32;    // of these
    bool is_undivided; // text, without a separator
    bool is_held_out;
    size_t of_path; // of tern_data_source.paths
    double weight;  // of that
} tern_document_source;

typedef struct tern_documents tern_documents;
// Lists the files: folders in the order of their names, recursively.
tern_status tern_documents_open(tern_documents **out, const tern_data_source *source,
                                tern_error *err);
void tern_documents_close(tern_documents *d);
// The next document that is not empty; *more = false: there is none.
tern_status tern_documents_next(tern_documents *d, tern_document *out, bool *more, tern_error *err);
// Begins again with those files whose weight is above this. A file that is another one now fails at
// its end.
void tern_documents_rewind(tern_documents *d, double weight);
// The object that the last document came from; NULL: its file is text. Valid until the next call.
const tern_json_doc *tern_documents_json(const tern_documents *d);
// Fails with a message about that line, or about an earlier one.
tern_status tern_documents_fail(const tern_documents *d, const char *what, tern_error *err);
tern_status tern_documents_fail_at(const tern_documents *d, const tern_document_place *place,
                                   const char *what, tern_error *err);
double tern_documents_fraction(const tern_documents *d); // share of the files read, 0..1
size_t tern_documents_n_sources(const tern_documents *d);
// Counts are complete once the last document was read.
const tern_document_source *tern_documents_source(const tern_documents *d, size_t i);

// ---- Duplicates (data_dedup.c) ------------------------------------------------------------------

typedef enum tern_verdict { TERN_UNIQUE, TERN_SAME, TERN_NEAR } tern_verdict;

typedef struct tern_dedup tern_dedup;
typedef struct tern_dedup_desc {
    bool exact, near;
    double threshold;   // documents at least this similar are near duplicates
    size_t n_bytes_max; // of memory
} tern_dedup_desc;
tern_status tern_dedup_open(tern_dedup **out, const tern_dedup_desc *desc, tern_error *err);
void tern_dedup_close(tern_dedup *d);
// Whether a document like this was seen before; if not, remembers it.
tern_status tern_dedup_check(tern_dedup *d, const tern_sketch *sketch, tern_verdict *verdict,
                             tern_error *err);
uint64_t tern_dedup_n_forgotten(const tern_dedup *d); // documents that are no longer remembered

// ---- What a folder was made of (data_manifest.c) -----------------------------------------------

typedef struct tern_source_count {
    uint64_t n_read, n_kept, n_train_documents, n_train_tokens; // kept: once, in either split
    uint64_t first, n_again; // of builder.taken, for a source that is read again; so far
} tern_source_count;
typedef struct tern_data_manifest {
    const tern_data_build_desc *desc;
    const tern_data_build_stats *stats;
    const tern_shard_desc *shard;
    const tern_documents *documents;
    const tern_source_count *counts; // [n_sources]
    const char *shards;              // their descriptions, as JSON
} tern_data_manifest;
tern_status tern_data_put_manifest(tern_out_set *set, const tern_data_manifest *m, tern_error *err);

#endif
