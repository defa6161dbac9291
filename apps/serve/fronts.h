// Fronts: sessions of texts that are over, kept with their keys and values until memory is needed,
// so that a request that begins as one of them does need not compute that again. They are found by
// their tokens (token_tree.h): a request finds exactly what it could have computed itself, and
// nobody can ask for another's text. Texts of different owners are apart: none finds another's, so
// that how soon an answer begins says nothing of what others have asked.
//
// A front that is used stays; the request goes on from a fork, which shares its pages until it
// writes. Where states cannot go back to any position (fixed states, windows), an answer leaves
// several: its prompt, all of it, and what its prompt has in common with one that came before.
//
// They lie in tiers, each with its share of memory and its order of use. What has not been used for
// longest goes a tier down, and from the last one away. A front on disk comes back to the device
// before it is used, in the background; its file stays. What would take longer to move to the
// host's memory than computing it again is expected to, as often as fronts are used again, is not
// moved.
//
// All of it is the engine's thread's.
#ifndef TERN_SERVE_FRONTS_H
#define TERN_SERVE_FRONTS_H

#include "apps/serve/front_files.h"
#include "apps/serve/token_tree.h"

#define FRONTS_LEAST 16 // tokens: a shorter one is not worth a fork

typedef enum front_tier {
    FRONT_ON_DEVICE, // ready
    FRONT_IN_MEMORY, // a GPU's, moved to the host's memory
    FRONT_ON_DISK,   // only there
    FRONT_TIERS,
} front_tier;

typedef struct kept_front {
    token_node *node;      // its text
    size_t owner;          // whose: a place in desc.files.owners
    tern_session *session; // NULL: on disk
    front_tier tier;
    bool is_moving;                   // to disk, or from there
    bool is_from_disk;                // it came from there and was not used since
    bool was_used;                    // some request went on from it
    bool has_images;                  // whose ids end with the model: it has no file
    uint64_t file_bytes;              // of its file; 0: there is none
    double used;                      // seconds
    struct kept_front *older, *newer; // in its tier, by use
} kept_front;

typedef struct fronts_desc {
    uint64_t bytes[FRONT_TIERS]; // that each tier may have; 0: it is not used
    front_files_desc files;      // files.bytes is the disk's
} fronts_desc;

typedef struct fronts_counts {
    uint64_t n_used[FRONT_TIERS]; // requests that went on from one, by where it was found
    uint64_t n_ids[FRONT_TIERS];  // their tokens
    uint64_t n_not_found, n_evicted;
} fronts_counts;

typedef struct fronts_view {
    uint64_t n[FRONT_TIERS], bytes[FRONT_TIERS]; // as of when they were last trimmed
    fronts_counts counts;
} fronts_view;

typedef struct fronts {
    fronts_desc desc;
    front_files *files; // NULL: none
    token_tree *trees;  // [n_trees] one for each owner
    size_t n_trees;
    bool cuts_freely; // any part of a front is of use
    int32_t n_vocab;
    struct {
        kept_front *oldest, *newest;
    } lists[FRONT_TIERS];
    struct {
        double compute, move; // seconds a token of a prompt takes, and of a front that is moved
        double used;          // how many fronts of all are used again
    } worth;                  // the first set by the owner, the others learnt; 0: not known
    uint64_t moving_bytes;    // on the device, of what goes to disk
    void (*gone)(void *user, const kept_front *front); // it is forgotten; may be NULL
    void *user;
    double scanned; // seconds: when the folder was last looked through
    fronts_view view;
} fronts;

// desc.files.model and .session are set in any case.
tern_status fronts_open(fronts *f, const fronts_desc *desc, tern_error *err);
// Writes what is not on disk yet, as far as there is room for it there.
void fronts_close(fronts *f);
// The front that has most of what a prompt begins with, perhaps only of those in memory; *n_common:
// how much of it is of use, which leaves a token to compute. NULL: none has FRONTS_LEAST tokens.
kept_front *fronts_find(const fronts *f, size_t owner, const int32_t *ids, size_t n, bool in_memory,
                        size_t *n_common);
// Begins to bring one back from disk. False: it cannot be.
bool fronts_fetch(fronts *f, kept_front *from);
// A session that begins with n tokens of a front in memory, which counts as used.
tern_status fronts_fork(fronts *f, kept_front *from, size_t n, tern_session **out, tern_error *err);
// How much of a prompt's front some text begins with, though there may be no front that ends there:
// where several part, the next one may like to find one.
size_t fronts_common(const fronts *f, size_t owner, const int32_t *ids, size_t n);
// Keeps a session, n_prompt of whose tokens are a prompt, and n_part that another one begins with
// (0: none do). It is closed if it is of no use, or there is no memory. Returns the front that has
// it all; NULL: there is none.
kept_front *fronts_keep(fronts *f, size_t owner, tern_session *session, size_t n_prompt,
                        size_t n_part);
void fronts_forget(fronts *f, kept_front *front); // and its file
// Moves and forgets what there is no room for. other_bytes: what is held on the device besides.
void fronts_trim(fronts *f, uint64_t other_bytes);
void fronts_add_counts(fronts_counts *sum, const fronts_counts *more);
// Memory is needed now: the least recently used one leaves it. False: there is none.
bool fronts_give_back(fronts *f);
// What the files' thread has done since.
void fronts_take_done(fronts *f);
// Now and then: files of what has not been used for a while, and a look for those of others.
void fronts_tidy(fronts *f);

#endif
