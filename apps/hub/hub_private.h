// What hub's files share. See hub.h for the whole.
#ifndef TERN_HUB_PRIVATE_H
#define TERN_HUB_PRIVATE_H

#include "apps/hub/hub_name.h"
#include "base/os/os_file.h"

#define HUB_STATE ".tern-pull" // in a repository's folder: the files so far of a pull

// ---- hub_store.c -------------------------------------------------------------------------------

// The path of a split set's n-th part, from 1, given any part's path. tern_free it.
char *hub_part_path(const char *first, unsigned part, unsigned n_parts);
uint64_t hub_file_bytes(const char *path); // 0: no file that can be read
// Removes empty folders from `path` up to `root`, which stays.
void hub_remove_empty(const char *root, const char *path);

// ---- hub_plan.c --------------------------------------------------------------------------------

bool hub_is_gguf_model(tern_str name);     // neither a projector nor an importance matrix
bool hub_is_tower(const char *name);       // a GGUF's vision tower, which is beside it
bool hub_is_folder_file(const char *name); // one that the engine reads in a model's folder
bool hub_is_module(const char *name);      // "1_Pooling": a part of an embedding model
char *hub_folder_of(const char *root, const hub_name *n); // of a repository; tern_free it

typedef struct hub_file {
    char *name;      // in the repository, with "/" between folders
    uint64_t bytes;  // UINT64_MAX: unknown
    char digest[65]; // lower-case; "": the hub names none
    bool is_git;     // the digest is that of a git blob: SHA-1 over a header and the content
} hub_file;

// The files to download, in this order: the file that readers look for first comes last.
typedef struct hub_plan { // zero-initialise
    hub_file *files;      // [n]
    size_t n, capacity;
    char licence[64]; // "apache-2.0"; "": the hub names none
    char *commit;     // the commit to download from; NULL: the requested revision
} hub_plan;

// json: the hub's answer to api/models/OWNER/NAME/revision/REVISION?blobs=true. Names that lead
// out of the folder are refused. text_only: leaves out a GGUF's vision tower.
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
    const char *token; // sent to the url's host only, not to redirected ones; NULL: none
    uint64_t from;     // the first byte wanted
    // A successful answer begins, at byte `from`: 0 if the server does not support ranges. Returns
    // false to give up, with why in err.
    bool (*on_begin)(void *user, uint64_t from, tern_error *err);
    bool (*on_bytes)(void *user, const void *bytes, size_t n, tern_error *err);
    bool (*on_wait)(void *user); // once a second or more often; false: cancel
    void *user;
} hub_request;

typedef struct hub_reply {
    int status;        // HTTP status; 0: no answer
    bool was_reached;  // the server was reached
    bool may_go_on;    // the transfer broke off: another try may help
    char message[300]; // the server's message about a refusal; "": none
} hub_reply;
// Fetches a small text into `text`, which is cleared first. on_wait may be NULL.
tern_status hub_get(const char *url, const char *token, bool (*on_wait)(void *user), void *user,
                    tern_strbuf *text, hub_reply *reply, tern_error *err); // hub_text.c
// TERN_OK: the whole body arrived. Redirections are followed, at most 8.
tern_status hub_fetch(const hub_request *r, hub_reply *reply, tern_error *err);

#endif
