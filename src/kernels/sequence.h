// Sequences: how timelines of tokens are kept on a device, the same for all backends.
//
// The states that a graph describes are stored in pages. A page of a positional group holds a fixed
// number of consecutive positions of all states with one window; a page of the fixed group holds
// all fixed-size states of one sequence. Pages are reference-counted: sequences with a common
// prefix share its pages, and one that is about to write into a shared page gets its own copy. A
// backend only makes, copies, moves and frees pages; which sequence holds which page is decided
// here.
//
// Going back: positional states are cut, at no cost, as far as windows have kept their pages.
// Further back, and with fixed-size states, a sequence can go back only to positions with a
// snapshot, which holds the fixed-size states and the pages that windows reach from there. A
// sequence keeps a few snapshots; the caller recomputes the positions after one. So
// tern_sequence_cut returns how many positions are left.
//
// A cache may be used by several threads; a sequence by one at a time.
#ifndef TERN_KERNELS_SEQUENCE_H
#define TERN_KERNELS_SEQUENCE_H

#include "graph/graph.h"
#include "kernels/page.h"

#define TERN_PAGE_GROUPS 6 // windows of one graph, and the fixed states
typedef struct tern_page_group {
    tern_state_kind kind;
    int32_t window; // positional: how many positions back are ever read; 0: all
} tern_page_group;

// Which states share pages.
typedef struct tern_page_layout {
    tern_page_group groups[TERN_PAGE_GROUPS];
    int n_groups;
    int fixed; // the group of the fixed states, or -1
} tern_page_layout;
tern_status tern_page_layout_of(const tern_graph *g, tern_page_layout *out, tern_error *err);
// Whether the value is a state stored in pages.
bool tern_is_paged(const tern_value *v);
// The group of a state of the graph.
int tern_page_group_of(const tern_page_layout *l, const tern_value *state);

typedef struct tern_page_pool tern_page_pool; // a backend's memory for pages
typedef struct tern_cache tern_cache;         // a page pool and the holders of its pages
typedef struct tern_sequence tern_sequence;

struct tern_backend;
struct tern_plan;
typedef struct tern_cache_desc {
    tern_kv_type kv_type; // not AUTO
    int32_t n_context;    // of a sequence at most
} tern_cache_desc;

tern_status tern_cache_open(tern_cache **out, const struct tern_backend *backend,
                            struct tern_plan *plan, const tern_graph *g,
                            const tern_cache_desc *desc, tern_error *err);
void tern_cache_close(tern_cache *c); // after all its sequences; NULL is allowed
tern_page_pool *tern_cache_page_pool(const tern_cache *c);
// Bytes of all pages, free ones included.
uint64_t tern_cache_bytes(const tern_cache *c);
// Adds the bytes of pages that sequences hold: on the device, and moved to the host's memory.
void tern_cache_used(tern_cache *c, uint64_t *device, uint64_t *host);

tern_status tern_sequence_open(tern_sequence **out, tern_cache *c, tern_error *err);
void tern_sequence_close(tern_sequence *s);           // NULL is allowed
int32_t tern_sequence_length(const tern_sequence *s); // positions that it holds
// Changes with every change to its positions, by 1 with tern_sequence_advance; no two sequences of
// a cache ever have the same.
uint64_t tern_sequence_version(const tern_sequence *s);
// Whether its states can go back to any earlier position without recomputing.
bool tern_sequence_cuts_freely(const tern_sequence *s);

// Makes room for positions up to n_positions, so that computing them allocates nothing. Shared
// pages that would be written are copied.
tern_status tern_sequence_reserve(tern_sequence *s, int32_t n_positions, tern_error *err);
// Gives back the room after its positions.
void tern_sequence_trim(tern_sequence *s);
// Up to which position, at most n_positions, a run may write now: those reserved and not shared.
int32_t tern_sequence_room(const tern_sequence *s, int32_t n_positions);
// Positions up to n_positions have been computed, in reserved room. Gives back pages that no window
// reaches any more.
void tern_sequence_advance(tern_sequence *s, int32_t n_positions);
// Instead of that, if the run failed: positional states are as before, fixed ones unknown;
// tern_sequence_cut to the present length restores them.
void tern_sequence_abandon(tern_sequence *s);
// Goes back to at most n_positions. Returns how many are left: fewer where only a snapshot, or the
// beginning, could be restored.
tern_status tern_sequence_cut(tern_sequence *s, int32_t n_positions, int32_t *n_left,
                              tern_error *err);
// Prepares a snapshot at `position`, which the next run passes: the backend copies the fixed states
// at that point to *out. After tern_sequence_advance the sequence can go back there. A passing
// snapshot replaces the last passing one; of more than TERN_SNAPSHOTS lasting ones, the one
// furthest back is dropped. *wanted false: the backend has nothing to do.
#define TERN_SNAPSHOTS 3
tern_status tern_sequence_snapshot(tern_sequence *s, int32_t position, bool passing, tern_page *out,
                                   bool *wanted, tern_error *err);
// The same for the present position, as a lasting snapshot.
tern_status tern_sequence_remember(tern_sequence *s, tern_error *err);
// A new sequence with the first positions of this one: at most n_positions, as many as can be
// shared (see its tern_sequence_length). This one does not change.
tern_status tern_sequence_fork(tern_sequence *s, int32_t n_positions, tern_sequence **out,
                               tern_error *err);
// Moves the pages that only this sequence holds to the host's memory, and back. A sequence that is
// swapped out must be swapped in before it is used in a batch.
tern_status tern_sequence_swap_out(tern_sequence *s, tern_error *err);
tern_status tern_sequence_swap_in(tern_sequence *s, tern_error *err);
bool tern_sequence_is_out(const tern_sequence *s);
// Bytes of its pages, snapshots included, each divided by the number of its holders.
uint64_t tern_sequence_bytes(const tern_sequence *s);

// A sequence as bytes, and back (sequence_file.c). They include all that later positions may read,
// and the snapshots.
// The sequence stays where it is, on the device or swapped out.
typedef tern_status (*tern_sequence_put)(void *user, const void *bytes, size_t n, tern_error *err);
typedef tern_status (*tern_sequence_get)(void *user, void *bytes, size_t n, tern_error *err);
bool tern_sequence_is_whole(const tern_sequence *s, int32_t n_positions); // and ends by there
tern_status tern_sequence_write(const tern_sequence *s, tern_sequence_put put, void *user,
                                tern_error *err);
// Reads into a new sequence of a cache of the same kind; after a failure it must be closed. At most
// n_positions. The bytes are not trusted.
tern_status tern_sequence_read(tern_sequence *s, int32_t n_positions, tern_sequence_get get,
                               void *user, tern_error *err);

// For backends: the pages of a group, by position / positions of a page; those that no window
// reaches are zero. The fixed group has one, at 0.
const tern_page *tern_sequence_pages(const tern_sequence *s, int group);

#endif
