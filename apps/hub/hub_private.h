// What hub's files share. See hub.h for the whole.
#ifndef TERN_HUB_PRIVATE_H
#define TERN_HUB_PRIVATE_H

#include "apps/hub/hub_name.h"
#include "base/os_file.h"

#define HUB_STATE ".tern-pull" // in a repository's folder: what a pull has so far

// ---- hub_store.c -------------------------------------------------------------------------------

// The n-th part of a split set, from 1, by any part's path. tern_free it.
char *hub_part_path(const char *first, unsigned part, unsigned n_parts);
// Removes folders that are empty, from `path` up to `root`, which stays.
void hub_remove_empty(const char *root, const char *path);

// ---- hub_plan.c --------------------------------------------------------------------------------

bool hub_is_gguf_model(tern_str name);     // no projector, no importance matrix
bool hub_is_tower(const char *name);       // a GGUF's part that sees, which lies beside it
bool hub_is_folder_file(const char *name); // that the engine reads in a model's folder
bool hub_is_module(const char *name);      // "1_Pooling": a part of an embedding model
char *hub_folder_of(const char *root, const hub_name *n); // of a repository; tern_free it

typedef struct hub_file {
    char *name;      // in the repository, with "/" between folders
    uint64_t bytes;  // UINT64_MAX: the hub does not say
    char digest[65]; // lower-case; "": the hub names none
    bool is_git;     // the digest is git's of a blob: SHA-1 over a head and the content
} hub_file;

// What is to be brought, in this order: what readers look for first comes last.
typedef struct hub_plan { // zero-initialise
    hub_file *files;      // [n]
    size_t n, capacity;
    char licence[64]; // "apache-2.0"; "": the hub names none
    char *commit;     // from which; NULL: the revision as it was asked for
} hub_plan;

// json: the hub's answer to api/models/OWNER/NAME/revision/REVISION?blobs=true. Names that lead
// out of the folder are refused. text_only: of a GGUF's files, without the one that it sees with.
tern_status hub_plan_read(hub_plan *out, const hub_name *n, bool text_only, const char *json,
                          size_t n_json, tern_error *err);
void hub_plan_free(hub_plan *plan);

// ---- hub_digest.c ------------------------------------------------------------------------------

typedef struct hub_digest {
    uint32_t state[8];
    uint64_t n; // bytes so far
    unsigned char block[64];
    bool is_sha1; // else SHA-256
} hub_digest;
void hub_digest_begin(hub_digest *d, bool is_sha1);
void hub_digest_add(hub_digest *d, const void *bytes, size_t n);
void hub_digest_end(hub_digest *d, char hex[65]); // terminated: 64 or 40 digits

// ---- hub_fetch.c (libcurl) ---------------------------------------------------------------------

typedef struct hub_request {
    const char *url;
    const char *token; // goes to the url's host and no other one that it leads to; NULL: none
    uint64_t from;     // the first byte that is wanted
    // The answer is a good one, and begins at `from`: 0 if the server would not begin later.
    // Returns false to give up, with why in err.
    bool (*on_begin)(void *user, uint64_t from, tern_error *err);
    bool (*on_bytes)(void *user, const void *bytes, size_t n, tern_error *err);
    bool (*on_wait)(void *user); // once a second or more often; false: cancel
    void *user;
} hub_request;

typedef struct hub_reply {
    int status;        // of HTTP; 0: there was no answer
    bool was_reached;  // there is a server
    bool may_go_on;    // it failed on the way: a further try may help
    char message[300]; // what the server says of a refusal; "": nothing
} hub_reply;
// A small text, appended to `text`, which is cleared before. on_wait may be NULL.
tern_status hub_get(const char *url, const char *token, bool (*on_wait)(void *user), void *user,
                    tern_strbuf *text, hub_reply *reply, tern_error *err); // hub_text.c
// TERN_OK: the whole body came. Redirections are followed, at most 8.
tern_status hub_fetch(const hub_request *r, hub_reply *reply, tern_error *err);

#endif
