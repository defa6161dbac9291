// The prefix cache: sessions of texts that are over, kept with their keys and values until memory
// is needed, so that a request that begins as one of them does need not compute that again. They
// are found by their tokens (token_tree.h): a request finds exactly what it could have computed
// itself, and nobody can ask for another's text. Texts of different owners are apart: none finds
// another's, so that how soon an answer begins says nothing of what others have asked.
//
// A prefix that is used stays; the request goes on from a fork, which shares its pages until it
// writes. Where states cannot go back to any position (fixed states, windows), an answer leaves
// several: its prompt, all of it, and what its prompt has in common with one that came before.
//
// They lie in tiers, each with its share of memory and its order of use. What has not been used for
// longest goes a tier down, and from the last one away. A prefix on disk comes back to the device
// before it is used, in the background; its file stays. What would take longer to move to the
// host's memory than computing it again is expected to, as often as prefixes are used again, is not
// moved.
//
// All of it is the engine's thread's.
#ifndef TERN_SERVE_PREFIX_CACHE_H
#define TERN_SERVE_PREFIX_CACHE_H

#include "apps/serve/prefix_files.h"
#include "apps/serve/token_tree.h"

#define PREFIX_LEAST 16 // tokens: a shorter one is not worth a fork

typedef enum prefix_tier {
    PREFIX_ON_DEVICE, // ready
    PREFIX_IN_MEMORY, // a GPU's, moved to the host's memory
    PREFIX_ON_DISK,   // only there
    PREFIX_TIERS,
} prefix_tier;

typedef struct cached_prefix {
    token_node *node;      // its text
    size_t owner;          // whose: a place in desc.files.owners
    tern_session *session; // NULL: on disk
    prefix_tier tier;
    bool is_moving;                      // to disk, or from there
    bool is_from_disk;                   // it came from there and was not used since
    bool was_used;                       // some request went on from it
    bool has_images;                     // whose ids end with the model: it has no file
    uint64_t file_bytes;                 // of its file; 0: there is none
    double used;                         // seconds
    struct cached_prefix *older, *newer; // in its tier, by use
} cached_prefix;

typedef struct prefix_cache_desc {
    uint64_t bytes[PREFIX_TIERS]; // that each tier may have; 0: it is not used
    prefix_files_desc files;      // files.bytes is the disk's
} prefix_cache_desc;

typedef struct prefix_cache_counts {
    uint64_t n_used[PREFIX_TIERS]; // requests that went on from one, by where it was found
    uint64_t n_ids[PREFIX_TIERS];  // their tokens
    uint64_t n_not_found, n_evicted;
} prefix_cache_counts;

typedef struct prefix_cache_view {
    uint64_t n[PREFIX_TIERS], bytes[PREFIX_TIERS]; // as of when they were last trimmed
    prefix_cache_counts counts;
} prefix_cache_view;

typedef struct prefix_cache {
    prefix_cache_desc desc;
    prefix_files *files; // NULL: none
    token_tree *trees;   // [n_trees] one for each owner
    size_t n_trees;
    bool cuts_freely; // any part of a prefix is of use
    int32_t n_vocab;
    struct {
        cached_prefix *oldest, *newest;
    } lists[PREFIX_TIERS];
    struct {
        double compute, move; // seconds a token of a prompt takes, and of a prefix that is moved
        double used;          // how many prefixes of all are used again
    } worth;                  // the first set by the owner, the others learnt; 0: not known
    uint64_t moving_bytes;    // on the device, of what goes to disk
    void (*gone)(void *user, const cached_prefix *prefix); // it is forgotten; may be NULL
    void *user;
    double scanned; // seconds: when the folder was last looked through
    prefix_cache_view view;
} prefix_cache;

// desc.files.model and .session are set in any case.
tern_status prefix_cache_open(prefix_cache *f, const prefix_cache_desc *desc, tern_error *err);
// Writes what is not on disk yet, as far as there is room for it there.
void prefix_cache_close(prefix_cache *f);
// The prefix that has most of what a prompt begins with, perhaps only of those in memory;
// *n_common: how much of it is of use, which leaves a token to compute. NULL: none has PREFIX_LEAST
// tokens.
cached_prefix *prefix_cache_find(const prefix_cache *f, size_t owner, const int32_t *ids, size_t n,
                                 bool in_memory, size_t *n_common);
// Begins to bring one back from disk. False: it cannot be.
bool prefix_cache_fetch(prefix_cache *f, cached_prefix *from);
// A session that begins with n tokens of a prefix in memory, which counts as used.
tern_status prefix_cache_fork(prefix_cache *f, cached_prefix *from, size_t n, tern_session **out,
                              tern_error *err);
// How much of a prompt's prefix some text begins with, though there may be no prefix that ends
// there: where several part, the next one may like to find one.
size_t prefix_cache_common(const prefix_cache *f, size_t owner, const int32_t *ids, size_t n);
// Keeps a session, n_prompt of whose tokens are a prompt, and n_part that another one begins with
// (0: none do). It is closed if it is of no use, or there is no memory. Returns the prefix that has
// it all; NULL: there is none.
cached_prefix *prefix_cache_keep(prefix_cache *f, size_t owner, tern_session *session,
                                 size_t n_prompt, size_t n_part);
void prefix_cache_forget(prefix_cache *f, cached_prefix *prefix); // and its file
// Moves and forgets what there is no room for. other_bytes: what is held on the device besides.
void prefix_cache_trim(prefix_cache *f, uint64_t other_bytes);
void prefix_cache_add_counts(prefix_cache_counts *sum, const prefix_cache_counts *more);
// Memory is needed now: the least recently used one leaves it. False: there is none.
bool prefix_cache_give_back(prefix_cache *f);
// What the files' thread has done since.
void prefix_cache_take_done(prefix_cache *f);
// Now and then: files of what has not been used for a while, and a look for those of others.
void prefix_cache_tidy(prefix_cache *f);

#endif
