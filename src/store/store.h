// The store of tern_memory.h: texts, vectors and a full-text index in one SQLite file. Its
// functions are declared in include/tern_memory.h; this header is shared by its files. Without
// SQLite, store_none.c replaces all of them (mk/config.mk).
//
// Tables (store_open.c): record: the added items; chunk: their pieces with the texts; code and
// vector: a chunk's vector in 8 bits and as floats, separate so that reading all codes reads
// nothing else; words: the index over chunk; meta: facts about the store's model.
#ifndef TERN_STORE_STORE_H
#define TERN_STORE_STORE_H

#include <sqlite3.h>
#include "base/use.h"
#include "memory/memory.h"
#include "tern_embed.h"

struct tern_memory_store {
    tern_use use;
    sqlite3 *db;
    char *path; // of the file
    double wait_seconds;
    bool has_pairs; // in its index; older files lack them
    tern_model *model;
    const tern_model *counter;
    tern_embedding_info embedding;
    const char *query_prompt, *document_prompt; // names of the model's prompts, or NULL
    float *probe;                               // the model's vector of the fixed sentence
    tern_team *team;
    // The store's vectors: their model as last read, and their codes as of `n_deleted` deleted
    // records and chunks. Ids only grow, so new codes are appended.
    int32_t n_dims; // 0: none yet
    char *model_name, *model_path;
    tern_vectors vectors;
    int64_t n_deleted;
};

// ---- Words without blanks (store_pairs.c) -------------------------------------------------------

// Bytes of the first character, and whether it belongs to a script without blanks.
size_t tern_pair_at(const char *text, size_t n, bool *is_pair);
// Writes a text for the index: each pair of such characters becomes a word.
void tern_pairs_put(tern_strbuf *out, const char *text, size_t n);
// Runs a statement with the index's heading and text as its second and third values.
tern_status tern_store_do_words(tern_memory_store *s, sqlite3_stmt *st, tern_str heading,
                                tern_str text, tern_error *err);

// Ends a call with callbacks: a store that a callback closed is closed now.
void tern_store_leave(tern_memory_store *s);

// ---- SQL (store_sql.c) --------------------------------------------------------------------------

// Fills err with SQLite's error: the file, and the reason in words.
tern_status tern_store_fail(const tern_memory_store *s, tern_error *err);
tern_status tern_store_run(tern_memory_store *s, const char *sql, tern_error *err);
// Prepares a statement; end it with sqlite3_finalize.
tern_status tern_store_prepare(tern_memory_store *s, sqlite3_stmt **out, const char *sql,
                               tern_error *err);
tern_status tern_store_step(tern_memory_store *s, sqlite3_stmt *st, bool *has_row, tern_error *err);
// Runs a statement that gives no row; it can be bound again.
tern_status tern_store_do(tern_memory_store *s, sqlite3_stmt *st, tern_error *err);
// The first column of the first row; `otherwise` if there is none. id < 0: nothing is bound.
tern_status tern_store_int(tern_memory_store *s, const char *sql, int64_t id, int64_t otherwise,
                           int64_t *out, tern_error *err);
// begin: "BEGIN" to read one state of the store, "BEGIN IMMEDIATE" to write. end commits if
// `status` is TERN_OK and returns the result, else rolls back.
tern_status tern_store_begin(tern_memory_store *s, const char *begin, tern_error *err);
tern_status tern_store_end(tern_memory_store *s, tern_status status, tern_error *err);
tern_str tern_store_text(sqlite3_stmt *st, int column); // lives until the next step

// ---- The model (store_model.c) ------------------------------------------------------------------

// Computes the fixed sentence's vector by s->model, if there is one.
tern_status tern_store_take_model(tern_memory_store *s, tern_error *err);
// Reads which model the store belongs to, and refuses s->model if it is another. In a transaction.
tern_status tern_store_know_model(tern_memory_store *s, tern_error *err);
// Records the model, before the first vectors are written. In a transaction.
tern_status tern_store_put_model(tern_memory_store *s, tern_error *err);
tern_status tern_store_count_tokens(void *user, const char *text, size_t n, size_t *n_tokens,
                                    tern_error *err); // user: the store

// ---- Filters (store_filter.c) -------------------------------------------------------------------

tern_status tern_store_check_filters(const tern_memory_filter *filters, size_t n, tern_error *err);
typedef struct tern_store_row { // a record as filters see it
    tern_str source, metadata;
    int64_t created;
} tern_store_row;
bool tern_store_fits(const tern_memory_filter *filters, size_t n, const tern_store_row *row);
// Ids of all chunks of records that fit, rising.
tern_status tern_store_allowed(tern_memory_store *s, const tern_memory_filter *filters, size_t n,
                               int64_t **ids, size_t *n_ids, tern_error *err);

// ---- Adding (store_item.c, store_add.c) ---------------------------------------------------------

// An item ready to be stored.
typedef struct tern_store_item {
    tern_strbuf text, source, metadata; // redacted
    bool has_source;
    int64_t created;
    uint64_t digest; // of everything that determines what is stored
    tern_text_chunks chunks;
    float *vectors; // [chunks, n_dims], or NULL
    size_t n_redacted;
} tern_store_item;

tern_status tern_store_make_item(tern_memory_store *s, tern_store_item *out,
                                 const tern_memory_item *item, const tern_memory_add_params *p,
                                 const tern_redactor *redactor, tern_error *err);
// Makes the chunks' vectors, if the store has a model.
tern_status tern_store_embed_item(tern_memory_store *s, tern_store_item *item,
                                  const tern_memory_add_params *p, tern_error *err);
void tern_store_free_item(tern_store_item *item);

// The id of a record of the same source with the same digest; 0: there is none.
tern_status tern_store_find_same(tern_memory_store *s, const tern_store_item *item, int64_t *id,
                                 tern_error *err);
// In a transaction that writes.
tern_status tern_store_write_item(tern_memory_store *s, const tern_store_item *item, bool replace,
                                  int64_t *id, tern_error *err);
tern_status tern_store_check_params(const tern_memory_add_params *p, tern_error *err);

// ---- Records (store_list.c) ---------------------------------------------------------------------

// Deletes a record with its chunks and vectors. In a transaction that writes.
tern_status tern_store_delete(tern_memory_store *s, int64_t id, tern_error *err);
// All records that fit, by id. In a transaction.
tern_status tern_store_each(tern_memory_store *s, const tern_memory_filter *filters, size_t n,
                            bool with_text, tern_memory_record_fn on_record, void *user,
                            tern_error *err);

#endif
