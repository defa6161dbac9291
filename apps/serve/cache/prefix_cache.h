// The prefix cache: sessions of finished texts, kept with their keys and values until memory is
// needed, so that a request that begins with the same tokens need not compute them again. They are
// found by their tokens (token_tree.h): a request finds exactly what it could have computed itself,
// and no client can retrieve another's text. Owners have separate texts and never find each
// other's, so the time to the first token reveals nothing about others' requests; nor do texts that
// were computed with different adapters.
//
// A prefix that is used stays; the request continues from a fork, which shares its pages until it
// writes. If states cannot go back to any position (fixed states, windows), an answer leaves
// several prefixes: its prompt, the whole text, and the part that its prompt shares with an earlier
// one.
//
// Prefixes are kept in tiers, each with its memory limit and LRU order. The least recently used
// prefix moves a tier down, and is dropped from the last one. A prefix on disk is loaded back to
// the device in the background before it is used; its file stays. A prefix is not swapped out to
// the host's memory if moving it would cost more than recomputing it, weighted by how often
// prefixes are reused.
//
// Only the engine's thread uses the cache.
#ifndef TERN_SERVE_PREFIX_CACHE_H
#define TERN_SERVE_PREFIX_CACHE_H

#include "apps/serve/cache/prefix_files.h"
#include "apps/serve/cache/token_tree.h"

#define PREFIX_LEAST 16 // tokens: a shorter one is not worth a fork

// On a CPU prefixes that are ready are in the host's memory: --cache-memory limits ON_DEVICE.
typedef enum prefix_tier {
    PREFIX_ON_DEVICE, // ready
    PREFIX_IN_MEMORY, // of a GPU, moved to the host's memory
    PREFIX_ON_DISK,   // on disk only
    PREFIX_TIERS,
} prefix_tier;

// Whose states a text can be continued from: those of the same owner, computed with the same
// adapters.
typedef struct prefix_key {
    size_t owner;        // an index in desc.files.owners
    const float *scales; // of the model's adapters, [as many as it has]; NULL: the session_desc's
} prefix_key;

// The texts of one key.
typedef struct prefix_space {
    size_t owner;
    float *scales; // NULL: the session_desc's; only these texts are kept in files
    token_tree tree;
} prefix_space;

// It has a session exactly if it is not in the disk's tier, and then its node is marked. It is in
// the list of its tier, and is its node's value. A pointer to one is valid until the cache changes:
// the next forget, trim, give_back, take_done or keep.
typedef struct cached_prefix {
    token_node *node;      // its text
    prefix_space *space;   // which has it
    tern_session *session; // NULL: on disk
    prefix_tier tier;
    bool is_moving;      // to disk, from there, or, with a session, a fork of it to disk
    bool is_from_disk;   // loaded from disk and not used since
    bool was_used;       // a request has continued from it
    bool has_images;     // their ids are lost when the model closes: it gets no file
    uint64_t file_bytes; // of its file; 0: none
    double used;         // seconds
    struct cached_prefix *older, *newer; // in its tier, by use
} cached_prefix;

typedef struct prefix_cache_desc {
    uint64_t bytes[PREFIX_TIERS]; // limit of each tier; 0: it is not used
    prefix_files_desc files;      // files.bytes is the disk's
} prefix_cache_desc;

typedef struct prefix_cache_counts {
    uint64_t n_used[PREFIX_TIERS]; // requests that reused one, by its tier
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
    // [n_spaces] one for each owner, then those of other scales, the last used one last.
    prefix_space **spaces;
    size_t n_spaces, capacity, n_owners;
    float *scales; // [n_scales] of the session_desc
    size_t n_scales;
    bool cuts_freely; // a prefix can be forked at any length
    int32_t n_vocab;
    struct {
        cached_prefix *oldest, *newest;
    } lists[PREFIX_TIERS];
    struct {
        double compute, move; // seconds for each token of a prompt, and of a prefix that is moved
        double used;          // share of prefixes that are reused
    } worth;                  // compute is set by the owner, the others are learnt; 0: unknown
    uint64_t moving_bytes;    // on the device, of prefixes on their way to disk
    void (*gone)(void *user, const cached_prefix *prefix); // it is forgotten; may be NULL
    void *user;
    double scanned; // seconds: when the folder was last looked through
    prefix_cache_view view;
} prefix_cache;

// desc.files.model and .session are set in any case.
tern_status prefix_cache_open(prefix_cache *f, const prefix_cache_desc *desc, tern_error *err);
// Writes prefixes that are not on disk yet, as far as they fit there.
void prefix_cache_close(prefix_cache *f);
// The prefix from which most of a prompt's first tokens can be reused; in_memory: not of those on
// disk. *n_common: how many, which leaves at least one token to compute. With cuts_freely the
// prompt may part from the prefix anywhere; otherwise the prompt contains the whole prefix, and
// *n_common is its length. NULL: none shares PREFIX_LEAST tokens.
cached_prefix *prefix_cache_find(const prefix_cache *f, prefix_key key, const int32_t *ids,
                                 size_t n, bool in_memory, size_t *n_common);
// Begins to load a prefix from disk. False: impossible.
bool prefix_cache_fetch(prefix_cache *f, cached_prefix *from);
// A session that begins with n tokens of a prefix in memory, which counts as used. n is as
// prefix_cache_find says: where there are no states, the answer is right too, but all of the n
// tokens are computed again.
tern_status prefix_cache_fork(prefix_cache *f, cached_prefix *from, size_t n, tern_session **out,
                              tern_error *err);
// How many of a prompt's first tokens another text shares, even if no kept prefix ends there: the
// next prompt that shares them could use one.
size_t prefix_cache_common(const prefix_cache *f, prefix_key key, const int32_t *ids, size_t n);
// Keeps a session. Its first n_prompt tokens are a prompt; the first n_shared are those of another
// one, too (0: none). Closes it if it is useless or memory is out. Returns the prefix that has all
// of its tokens; NULL: none.
cached_prefix *prefix_cache_keep(prefix_cache *f, prefix_key key, tern_session *session,
                                 size_t n_prompt, size_t n_shared);
void prefix_cache_forget(prefix_cache *f, cached_prefix *prefix); // and its file
// Moves or forgets prefixes that exceed the limits. other_bytes: bytes that others hold on the
// device.
void prefix_cache_trim(prefix_cache *f, uint64_t other_bytes);
void prefix_cache_add_counts(prefix_cache_counts *sum, const prefix_cache_counts *more);
// Memory is needed now: removes the least recently used prefix from it. False: there is none.
bool prefix_cache_give_back(prefix_cache *f);
// Handles what the files' thread has finished.
void prefix_cache_take_done(prefix_cache *f);
// To be called now and then: writes files of prefixes unused for a while, and looks for other
// servers' files.
void prefix_cache_tidy(prefix_cache *f);

#endif
