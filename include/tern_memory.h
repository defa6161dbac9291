// tern: memory. A store of texts (notes, documents, earlier conversations) that finds the passages
// which answer a question.
//
// The design in ten lines:
// 1. A store is a folder with one SQLite file (WAL), so processes can share it, and a text whose
//    add returned survives kills and power loss.
// 2. A *record* is one added item: text, source, metadata. It is stored as *chunks*, cut where its
// structure allows: headings, paragraphs, lines of code, sentences; sizes are tokens of a model.
// 3. Secrets are redacted before anything is stored, by rules that can be listed.
// 4. Each chunk has a vector from an embedding model, as float32 and as Q8_0 (8 bits), and an entry
//    in a full-text index (FTS5). Without a model there is only the index.
// 5. A store recognises its model by the vector of one fixed sentence, and refuses any other model.
// 6. Recall scans all 8-bit vectors (kept in memory, with SIMD, on all cores), recomputes the best
//    from the floats, queries the index for the words, and fuses both lists by rank. A reranker, if
//    the call has one, reads the best of these with the question, and decides their order.
// 7. Filters on source and metadata are applied before the search: they never cost results.
// 8. A token budget is filled with the best hits that fit, counted by the model.
// 9. Deleted means deleted: freed pages are overwritten, `compact` cleans the index and the log.
// 10. Export writes JSON lines, which import reads.
//
//     tern_memory_store *store;
//     tern_memory_item item = {0};
//     tern_memory_query query = {0};
//     tern_memory_hits *hits = NULL;
//     tern_error err = {0};
//     item.text = "The spare key is under the third flowerpot.", item.n_bytes = 43;
//     query.text = "where is the key", query.n_bytes = 16;
//     if (tern_memory_open(&store, "notes.memory", NULL, &err) == TERN_OK &&
//         tern_memory_add(store, &item, NULL, NULL, &err) == TERN_OK &&
//         tern_memory_recall(store, &query, &hits, &err) == TERN_OK && hits->n > 0)
//         puts(hits->list[0].text);
//     tern_memory_hits_free(hits);
//
// The rules at the top of tern.h hold here, too. A store object is used by one thread at a time;
// any number of objects, in any number of processes, may have the same folder open. If the library
// was built without SQLite, every function that can fail fails with TERN_ERR_UNSUPPORTED.
#ifndef TERN_MEMORY_H
#define TERN_MEMORY_H

#include "tern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Stores ------------------------------------------------------------------------------------

typedef struct tern_memory_store tern_memory_store;

typedef struct tern_memory_desc {
    // Computes the vectors; NULL: no vectors, and recall goes by words. A store that has vectors
    // accepts new texts only with its own model.
    tern_model *model;
    // Counts tokens. NULL: the model above or, if there is none, four bytes count as one token.
    const tern_model *counter;
    bool must_exist;     // do not create a new store
    int32_t n_threads;   // that search vectors; 0: one per core
    double wait_seconds; // for other processes to finish writing; 0: 10
} tern_memory_desc;

// Opens the store in `folder`, creating both if needed. TERN_ERR_ARGUMENT: the model is not the one
// that computed the store's vectors.
TERN_API tern_status tern_memory_open(tern_memory_store **out, const char *folder,
                                      const tern_memory_desc *desc, tern_error *err);
TERN_API void tern_memory_close(tern_memory_store *store); // NULL is allowed

typedef struct tern_memory_info {
    int64_t n_records, n_chunks, n_tokens; // tokens of all chunks, overlaps counted twice
    int64_t n_vectors;                     // chunks that have one
    int32_t n_dims;                        // of a vector; 0: the store never had any
    uint64_t n_bytes;                      // of the file and its log
    const char *model_name, *model_path;   // of the model of the vectors; "" if none. Valid until
                                           // the next call with this store
} tern_memory_info;
TERN_API tern_status tern_memory_get_info(tern_memory_store *store, tern_memory_info *info,
                                          tern_error *err);

// ---- Adding ------------------------------------------------------------------------------------

typedef enum tern_memory_format {
    TERN_MEMORY_AUTO = 0, // by the source's file extension; else text
    TERN_MEMORY_TEXT,     // paragraphs and sentences
    TERN_MEMORY_MARKDOWN, // also headings, and code between fences
    TERN_MEMORY_CODE,     // lines; blocks begin after empty ones
} tern_memory_format;

typedef struct tern_memory_item {
    const char *text; // UTF-8 without zero bytes
    size_t n_bytes;
    const char *source;   // where it is from, "notes/garden.md"; NULL: none
    const char *metadata; // a JSON object; NULL: {}
    tern_memory_format format;
    int64_t created; // seconds since 1970; 0: now
} tern_memory_item;

// Passes the text to store in place of `text` to `keep`, in one or more pieces. Return false to
// refuse the text.
typedef bool (*tern_memory_redact_fn)(void *user, const char *text, size_t n_bytes,
                                      tern_text_fn keep, void *keep_user);

typedef struct tern_memory_add_params {
    int32_t chunk_tokens;        // of a chunk at most; 0: 256, or the model's limit
    int32_t overlap_tokens;      // of the end of a chunk that the next one repeats if no heading is
                                 // between them; 0: an eighth of the size; negative: none
    bool whole;                  // one chunk, whatever the size
    bool replace;                // the record replaces those of the same source
    bool keep_secrets;           // no rules: store the text as it is
    const char *const *patterns; // further expressions (PCRE2) to redact
    size_t n_patterns;
    tern_memory_redact_fn redact; // called after the rules; NULL: none
    tern_progress_fn on_progress; // while vectors are computed
    void *user;                   // of both
} tern_memory_add_params;

typedef struct tern_memory_added {
    int64_t id; // of the record
    size_t n_chunks, n_redacted;
    bool was_there; // with `replace`: the same text and metadata were there; nothing was changed
} tern_memory_added;

// If it returns TERN_OK, the whole record is on disk; otherwise nothing of it is.
TERN_API tern_status tern_memory_add(tern_memory_store *store, const tern_memory_item *item,
                                     const tern_memory_add_params *params, tern_memory_added *added,
                                     tern_error *err);

// The i-th redaction rule: its name, which replaces the text, and its expression (PCRE2). NULL:
// there are no more.
TERN_API const char *tern_memory_rule(size_t i, const char **pattern);

// ---- Recall ------------------------------------------------------------------------------------

typedef enum tern_memory_search {
    TERN_MEMORY_HYBRID = 0, // vectors and words, if the store and the call have them
    TERN_MEMORY_VECTORS,
    TERN_MEMORY_WORDS,
} tern_memory_search;

typedef enum tern_memory_compare {
    TERN_MEMORY_EQUAL = 0,
    TERN_MEMORY_NOT_EQUAL,
    TERN_MEMORY_LESS,
    TERN_MEMORY_LESS_EQUAL,
    TERN_MEMORY_GREATER,
    TERN_MEMORY_GREATER_EQUAL,
    TERN_MEMORY_BEGINS, // as text
} tern_memory_compare;

// On a member of the metadata, "author" or "book.year", or on "source" or "created" if the metadata
// has no such member. Two numbers are compared as numbers, everything else as texts by bytes; a
// list matches if one of its elements does. A record without that member matches only NOT_EQUAL.
typedef struct tern_memory_filter {
    const char *key, *value;
    tern_memory_compare compare;
} tern_memory_filter;

typedef struct tern_memory_query {
    const char *text;
    size_t n_bytes;
    int32_t n_most;     // hits; 0: 8
    int32_t max_tokens; // of the context; 0: no limit
    tern_memory_search search;
    const tern_memory_filter *filters; // all must match
    size_t n_filters;
    float least_similarity; // minimum for hits found only by vectors; 0: any
    bool exact;             // compare all vectors as float32: slow, for measurements
    // Reads the question with each of the best `n_candidates` and reorders them (see tern_rerank);
    // NULL: no reranking. No other thread may use it meanwhile.
    tern_model *reranker;
    int32_t n_candidates; // 0: 32; never fewer than n_most, and at most 1000
} tern_memory_query;

typedef struct tern_memory_hit {
    int64_t id, record; // of the chunk and its record
    const char *text;   // terminated
    size_t n_bytes;
    const char *source;   // "" if there is none
    const char *heading;  // "Guide > Install", the headings above it, or ""
    const char *metadata; // JSON, "{}" if there is none
    int64_t created;
    int32_t n_tokens;
    int32_t first_line;             // in the record's text, from 1
    float score;                    // of rank fusion: the sum of 1 / (60 + rank) over the lists
    float similarity;               // cosine; NaN: unknown
    int32_t vector_rank, word_rank; // from 1; 0: not in that list
    float relevance;                // the reranker's score; NaN: not reranked
} tern_memory_hit;

typedef struct tern_memory_hits {
    const tern_memory_hit *list; // the best first
    size_t n;
    const char *context; // their texts separated by empty lines, for a prompt
    size_t n_bytes;
    int64_t n_tokens; // of the context
} tern_memory_hits;

// *out is the caller's to free, even without a hit, and may outlive the store.
TERN_API tern_status tern_memory_recall(tern_memory_store *store, const tern_memory_query *query,
                                        tern_memory_hits **out, tern_error *err);
TERN_API void tern_memory_hits_free(tern_memory_hits *hits); // NULL is allowed

// ---- What is there ------------------------------------------------------------------------------

typedef struct tern_memory_record {
    int64_t id;
    const char *source, *metadata; // "" and "{}" if there are none
    int64_t created;
    int64_t n_chunks, n_tokens, n_bytes;
    const char *text; // only of tern_memory_show
} tern_memory_record;

// Return false to stop. The record's pointers are valid during the callback, which must not use the
// store.
typedef bool (*tern_memory_record_fn)(void *user, const tern_memory_record *record);

// All records that match the filters, ordered by id.
TERN_API tern_status tern_memory_list(tern_memory_store *store, const tern_memory_filter *filters,
                                      size_t n_filters, tern_memory_record_fn on_record, void *user,
                                      tern_error *err);
// One record with its text. TERN_ERR_ARGUMENT: there is none.
TERN_API tern_status tern_memory_show(tern_memory_store *store, int64_t id,
                                      tern_memory_record_fn on_record, void *user, tern_error *err);
// Deletes records: one by its id, or those that match all filters (at least one filter). *n_records
// (may be NULL) gets their number.
TERN_API tern_status tern_memory_forget(tern_memory_store *store, int64_t id, tern_error *err);
TERN_API tern_status tern_memory_forget_where(tern_memory_store *store,
                                              const tern_memory_filter *filters, size_t n_filters,
                                              int64_t *n_records, tern_error *err);
// Frees space and leaves no deleted data in the index, the file and its log. Waits for other
// processes to finish reading and writing.
TERN_API tern_status tern_memory_compact(tern_memory_store *store, tern_error *err);

// One line of JSON per record: {"text", "source", "metadata", "created"}. on_text gets it in
// pieces.
TERN_API tern_status tern_memory_export(tern_memory_store *store, const tern_memory_filter *filters,
                                        size_t n_filters, tern_text_fn on_text, void *user,
                                        tern_error *err);
// Adds the records of such lines; a line may also be a string, or have a text alone. All lines are
// checked before the first is added. If adding then fails (a full disk), *n_records (may be NULL)
// says how many of the first ones are in the store.
TERN_API tern_status tern_memory_import(tern_memory_store *store, const char *lines, size_t n_bytes,
                                        const tern_memory_add_params *params, int64_t *n_records,
                                        tern_error *err);

#ifdef __cplusplus
}
#endif
#endif
