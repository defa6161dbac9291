#include "apps/serve/cache/prefix_cache.h"

#include <string.h>
#include "base/alloc.h"
#include "base/os/os_time.h"
#include "base/status.h"

// ---- Keys ---------------------------------------------------------------------------------------

#define SPACES_MAX 256 // besides the owners': clients choose scales

static prefix_space *find_space(const prefix_cache *f, prefix_key key) {
    const size_t bytes = f->n_scales * sizeof *key.scales;
    if (!key.scales || !bytes || !memcmp(key.scales, f->scales, bytes)) return f->spaces[key.owner];
    for (size_t i = f->n_spaces; i-- > f->n_owners;) {
        prefix_space *s = f->spaces[i];
        if (s->owner == key.owner && !memcmp(s->scales, key.scales, bytes)) return s;
    }
    return NULL;
}

static void remove_space(prefix_cache *f, size_t at) {
    f->n_spaces--;
    memmove(f->spaces + at, f->spaces + at + 1, (f->n_spaces - at) * sizeof *f->spaces);
}

// One of other scales goes with its last text.
static void forget_space(prefix_cache *f, prefix_space *space) {
    size_t at = f->n_owners;
    if (!space->scales || space->tree.n_nodes > 0) return;
    while (f->spaces[at] != space) at++;
    remove_space(f, at);
    token_tree_free(&space->tree);
    tern_free(space->scales);
    tern_free(space);
}

static void forget_least_used(prefix_cache *f) {
    for (size_t n = f->n_spaces; f->n_spaces == n;) {
        token_node *at = &f->spaces[f->n_owners]->tree.root;
        while (!at->value) at = token_tree_next(at, at);
        prefix_cache_forget(f, at->value);
    }
}

static prefix_space *add_space(prefix_cache *f, prefix_key key) {
    if (tern_array_reserve(TERN_MEM_SESSION, &f->spaces, &f->capacity, f->n_spaces, 1) != 0)
        return NULL;
    prefix_space *s = tern_alloc(TERN_MEM_SESSION, sizeof *s);
    if (!s) return NULL;
    s->owner = key.owner;
    if (key.scales) s->scales = tern_alloc_array(TERN_MEM_SESSION, f->n_scales, sizeof *s->scales);
    if (key.scales && !s->scales) {
        tern_free(s);
        return NULL;
    }
    if (key.scales) memcpy(s->scales, key.scales, f->n_scales * sizeof *s->scales);
    return f->spaces[f->n_spaces++] = s;
}

// The space of a text that is to be kept, which is now the last used one. NULL: no memory.
static prefix_space *use_space(prefix_cache *f, prefix_key key) {
    prefix_space *s = find_space(f, key);
    if (!s) {
        if (f->n_spaces - f->n_owners >= SPACES_MAX) forget_least_used(f);
        return add_space(f, key);
    }
    size_t at = f->n_owners;
    if (!s->scales) return s;
    while (f->spaces[at] != s) at++;
    remove_space(f, at);
    return f->spaces[f->n_spaces++] = s;
}

// ---- Tiers -------------------------------------------------------------------------------------

static void unlink_prefix(prefix_cache *f, cached_prefix *at) {
    *(at->older ? &at->older->newer : &f->lists[at->tier].oldest) = at->newer;
    *(at->newer ? &at->newer->older : &f->lists[at->tier].newest) = at->older;
    f->view.n[at->tier]--;
}

static void link_newest(prefix_cache *f, cached_prefix *at, prefix_tier tier) {
    at->tier = tier;
    at->newer = NULL;
    at->older = f->lists[tier].newest;
    *(at->older ? &at->older->newer : &f->lists[tier].oldest) = at;
    f->lists[tier].newest = at;
    f->view.n[tier]++;
}

static void move_to(prefix_cache *f, cached_prefix *at, prefix_tier tier) {
    unlink_prefix(f, at);
    link_newest(f, at, tier);
}

// It is the last used one of a tier; if in memory, it is what is found for texts that share its
// tokens.
static void touch(prefix_cache *f, cached_prefix *at, prefix_tier tier) {
    at->used = tern_seconds();
    move_to(f, at, tier);
    if (at->session) token_tree_mark(at->node);
}

// Moves it to the disk's tier: its file is written, or will be.
static void leave_memory(prefix_cache *f, cached_prefix *at) {
    at->session = NULL;
    token_tree_unmark(at->node);
    move_to(f, at, PREFIX_ON_DISK);
}

static void set_file(prefix_cache *f, cached_prefix *at, uint64_t bytes) {
    f->view.bytes[PREFIX_ON_DISK] += bytes - at->file_bytes;
    at->file_bytes = bytes;
}

// A task about a prefix's text.
static bool hand_over(prefix_cache *f, prefix_task_kind kind, const cached_prefix *at,
                      tern_session *session) {
    size_t n = at->node->depth;
    int32_t *ids = f->files ? tern_alloc_array(TERN_MEM_SESSION, n, sizeof *ids) : NULL;
    if (!ids) return false;
    token_tree_text(at->node, ids);
    uint64_t bytes = tern_session_bytes(session);
    bool ok = prefix_files_do(f->files, kind, session, at->space->owner, ids, n);
    if (ok) f->moving_bytes += bytes;
    tern_free(ids);
    return ok;
}

static void remove_file(prefix_cache *f, cached_prefix *at) {
    if (!at->file_bytes) return;
    hand_over(f, PREFIX_REMOVE, at, NULL);
    set_file(f, at, 0);
}

void prefix_cache_forget(prefix_cache *f, cached_prefix *at) {
    if (f->gone) f->gone(f->user, at);
    remove_file(f, at);
    unlink_prefix(f, at);
    at->node->value = NULL;
    token_tree_unmark(at->node);
    token_tree_prune(&at->space->tree, at->node);
    forget_space(f, at->space);
    tern_session_close(at->session);
    tern_free(at);
}

// ---- Making room -------------------------------------------------------------------------------

static bool has_file(const token_node *at) {
    const cached_prefix *has = at->value;
    return has && (has->file_bytes || has->is_moving);
}

// Its images' ids are lost when the model closes; scales that a client chose are in no file's name.
static bool has_no_file(const cached_prefix *at) { return at->has_images || at->space->scales; }

#define LOOK_AT_MOST 64 // texts with a common prefix

static bool has_file_below(const token_node *top) {
    const token_node *at = top;
    for (int n = 0; at && n < LOOK_AT_MOST; at = token_tree_next(at, top)) {
        if (has_file(at)) return true;
        n += at->value != NULL;
    }
    return false;
}

// Whether another file already holds 7/8 of this text: so questions about one document, or each
// turn of a chat, are not written again.
static bool is_mostly_in_file(const prefix_cache *f, const cached_prefix *at) {
    size_t n = at->node->depth;
    for (const token_node *k = at->node; k->depth >= n - n / 8 && k->parent; k = k->parent)
        if (f->cuts_freely ? has_file_below(k) : has_file(k)) return true;
    return false;
}

// Whether to write it to disk, where it is not yet. Prefixes that come faster than the disk writes
// are lost.
static bool is_worth_a_file(const prefix_cache *f, const cached_prefix *at) {
    uint64_t room = f->desc.bytes[PREFIX_ON_DISK];
    return f->files && !has_no_file(at) && tern_session_bytes(at->session) <= room &&
           f->moving_bytes <= f->desc.bytes[PREFIX_ON_DEVICE] / 4 && !is_mostly_in_file(f, at);
}

static void evict(prefix_cache *f, cached_prefix *at) {
    if (at->file_bytes || at->is_moving) { // its file exists, or is being written
        tern_session_close(at->session);
        leave_memory(f, at);
    } else if (is_worth_a_file(f, at) && hand_over(f, PREFIX_SAVE, at, at->session)) {
        at->is_moving = true;
        leave_memory(f, at);
    } else {
        prefix_cache_forget(f, at);
        f->view.counts.n_evicted++;
    }
}

bool prefix_cache_give_back(prefix_cache *f) {
    cached_prefix *at = f->lists[PREFIX_IN_MEMORY].oldest;
    if (!at) at = f->lists[PREFIX_ON_DEVICE].oldest;
    if (!at) return false;
    if (at->file_bytes) {
        tern_session_close(at->session);
        leave_memory(f, at);
        return true;
    }
    prefix_cache_forget(f, at);
    f->view.counts.n_evicted++;
    return true;
}

static void measure(prefix_cache *f, uint64_t other_bytes) {
    tern_model_info info;
    tern_model_get_info(f->desc.files.model, &info);
    uint64_t other = other_bytes + f->moving_bytes;
    f->view.bytes[PREFIX_ON_DEVICE] = info.held_bytes > other ? info.held_bytes - other : 0;
    f->view.bytes[PREFIX_IN_MEMORY] = info.swapped_bytes;
}

// A moving average over about 32 prefixes. Never 0: then no prefix would be swapped out, and so
// none found again.
static void note_use(prefix_cache *f, bool used) {
    f->worth.used += ((used ? 1.0 : 0.0) - f->worth.used) / 32;
    if (f->worth.used < 1.0 / 64) f->worth.used = 1.0 / 64;
}

// The cost is one move out, and for each reuse one move back instead of computing; all answers wait
// meanwhile.
static bool is_worth_moving(const prefix_cache *f) {
    return f->worth.move * (1 + f->worth.used) <= f->worth.compute * f->worth.used ||
           f->worth.move <= 0 || f->worth.compute <= 0;
}

static bool swap_out(prefix_cache *f, cached_prefix *at) {
    double began = tern_seconds();
    if (!is_worth_moving(f) || tern_session_swap_out(at->session, NULL) != TERN_OK) return false;
    double each = (tern_seconds() - began) / (double)at->node->depth;
    f->worth.move = f->worth.move > 0 ? f->worth.move + (each - f->worth.move) / 4 : each;
    move_to(f, at, PREFIX_IN_MEMORY);
    return true;
}

// One prefix moves down from the device's or the host's memory, or is forgotten.
static void lower(prefix_cache *f, prefix_tier tier) {
    cached_prefix *at = f->lists[tier].oldest;
    // Shared pages do not move: then a prefix of another tier goes.
    if (!at)
        at = f->lists[PREFIX_ON_DEVICE].oldest ? f->lists[PREFIX_ON_DEVICE].oldest
                                               : f->lists[PREFIX_IN_MEMORY].oldest;
    bool on_device = at->tier == PREFIX_ON_DEVICE;
    if (on_device && !at->was_used) note_use(f, false);
    if (!on_device || f->desc.bytes[PREFIX_IN_MEMORY] == 0 || !swap_out(f, at)) evict(f, at);
}

static void trim_disk(prefix_cache *f) {
    cached_prefix *at = f->lists[PREFIX_ON_DISK].oldest;
    while (f->view.bytes[PREFIX_ON_DISK] > f->desc.bytes[PREFIX_ON_DISK] && at) {
        cached_prefix *newer = at->newer;
        if (!at->is_moving) {
            prefix_cache_forget(f, at);
            f->view.counts.n_evicted++;
        }
        at = newer;
    }
    // Prefixes that are also in memory stay there.
    for (int tier = PREFIX_ON_DISK - 1; tier >= 0; tier--)
        for (at = f->lists[tier].oldest;
             at && f->view.bytes[PREFIX_ON_DISK] > f->desc.bytes[PREFIX_ON_DISK]; at = at->newer)
            remove_file(f, at);
}

void prefix_cache_trim(prefix_cache *f, uint64_t other_bytes) {
    const uint64_t *room = f->desc.bytes, *has = f->view.bytes;
    for (;;) {
        measure(f, other_bytes);
        if (f->view.n[PREFIX_ON_DEVICE] + f->view.n[PREFIX_IN_MEMORY] == 0) break;
        if (has[PREFIX_ON_DEVICE] > room[PREFIX_ON_DEVICE])
            lower(f, PREFIX_ON_DEVICE);
        else if (has[PREFIX_IN_MEMORY] > room[PREFIX_IN_MEMORY])
            lower(f, PREFIX_IN_MEMORY);
        else
            break;
    }
    trim_disk(f);
}

void prefix_cache_add_counts(prefix_cache_counts *sum, const prefix_cache_counts *more) {
    for (int tier = 0; tier < PREFIX_TIERS; tier++) {
        sum->n_used[tier] += more->n_used[tier];
        sum->n_ids[tier] += more->n_ids[tier];
    }
    sum->n_not_found += more->n_not_found;
    sum->n_evicted += more->n_evicted;
}

// ---- Finding -----------------------------------------------------------------------------------

// Any prefix of the subtree, one in memory if there is one: all of them contain the text up to
// here.
static cached_prefix *any_below(const token_node *top, bool in_memory) {
    if (top->marked) return top->marked->value;
    const token_node *at = in_memory ? NULL : top;
    while (at && !at->value) at = token_tree_next(at, top);
    return at ? at->value : NULL;
}

static bool has_prefix(const token_node *at, bool in_memory) {
    const cached_prefix *has = at->value;
    return has && (has->session || !in_memory);
}

cached_prefix *prefix_cache_find(const prefix_cache *f, prefix_key key, const int32_t *ids,
                                 size_t n, bool in_memory, size_t *n_common) {
    const prefix_space *space = find_space(f, key);
    *n_common = 0;
    if (!space) return NULL;
    // The prompt's last token is always computed, for its logits.
    const token_node *at = token_tree_match(&space->tree, ids, n ? n - 1 : 0, n_common);
    size_t n_same = *n_common; // the first node may be deeper: the prompt parts on the way to it
    for (; at->parent; at = at->parent) {
        cached_prefix *found = NULL;
        *n_common = n_same < at->depth ? n_same : at->depth;
        if (*n_common < PREFIX_LEAST) break;
        if (f->cuts_freely)
            found = any_below(at, in_memory); // it is cut where the prompt parts
        else if (at->depth <= n_same && has_prefix(at, in_memory))
            found = at->value; // there are states only at its end
        if (found) return found;
    }
    *n_common = 0;
    return NULL;
}

size_t prefix_cache_common(const prefix_cache *f, prefix_key key, const int32_t *ids, size_t n) {
    size_t n_common = 0;
    const prefix_space *space = find_space(f, key);
    if (space) token_tree_match(&space->tree, ids, n, &n_common);
    return n_common;
}

bool prefix_cache_fetch(prefix_cache *f, cached_prefix *from) {
    if (!from->is_moving) from->is_moving = hand_over(f, PREFIX_LOAD, from, NULL);
    return from->is_moving;
}

tern_status prefix_cache_fork(prefix_cache *f, cached_prefix *from, size_t n, tern_session **out,
                              tern_error *err) {
    TERN_TRY(tern_session_fork(out, from->session, n, err));
    prefix_tier found = from->is_from_disk ? PREFIX_ON_DISK : from->tier;
    f->view.counts.n_used[found]++;
    f->view.counts.n_ids[found] += n;
    from->is_from_disk = false;
    if (!from->was_used) note_use(f, true);
    from->was_used = true;
    touch(f, from, PREFIX_ON_DEVICE); // if swapped out, it was moved back for the fork
    return TERN_OK;
}

// ---- Keeping -----------------------------------------------------------------------------------

static cached_prefix *make_prefix(prefix_cache *f, prefix_space *space, const int32_t *ids,
                                  size_t n, prefix_tier tier) {
    cached_prefix *made = n >= PREFIX_LEAST ? tern_alloc(TERN_MEM_SESSION, sizeof *made) : NULL;
    token_node *node = made ? token_tree_add(&space->tree, ids, n) : NULL;
    if (!node) {
        tern_free(made);
        return NULL;
    }
    made->node = node;
    made->space = space;
    made->used = tern_seconds();
    for (size_t i = 0; i < n && !made->has_images; i++) made->has_images = ids[i] >= f->n_vocab;
    node->value = made;
    link_newest(f, made, tier);
    return made;
}

// The prefix of exactly this text.
static cached_prefix *find_text(const prefix_space *space, const int32_t *ids, size_t n) {
    size_t n_common;
    const token_node *at = token_tree_match(&space->tree, ids, n, &n_common);
    return n_common == n && at->depth == n ? at->value : NULL;
}

// Forgets prefixes that this one contains: they are not needed twice, in memory or on disk.
static void forget_within(prefix_cache *f, const cached_prefix *kept) {
    for (token_node *at = kept->node->parent, *next; f->cuts_freely && at; at = next) {
        cached_prefix *part = at->value;
        next =
            at->parent; // forgetting may remove this node, but none above it, since `kept` is below
        if (!part) continue;
        if (kept->file_bytes || !(part->file_bytes || part->is_moving))
            prefix_cache_forget(f, part);
        else if (part->session) {
            tern_session_close(part->session);
            leave_memory(f, part);
        }
    }
}

static cached_prefix *keep(prefix_cache *f, prefix_space *space, tern_session *session, size_t n) {
    const int32_t *ids = tern_session_tokens(session);
    size_t n_common;
    const token_node *at = token_tree_match(&space->tree, ids, n, &n_common);
    cached_prefix *kept = find_text(space, ids, n), *longer = NULL;
    if (!kept && f->cuts_freely && n_common == n && n > 0) longer = any_below(at, true);
    if (longer) { // it contains all of this one
        touch(f, longer, longer->tier);
        tern_session_close(session);
        return longer;
    }
    if (!kept) kept = make_prefix(f, space, ids, n, PREFIX_ON_DEVICE);
    if (!kept) {
        tern_session_close(session);
        return NULL;
    }
    tern_session_close(kept->session); // the newer one shares more pages with those in use
    kept->session = session;
    touch(f, kept, PREFIX_ON_DEVICE);
    forget_within(f, kept);
    return kept;
}

// The first n tokens of a session that can be forked there.
static void keep_first(prefix_cache *f, prefix_space *space, tern_session *session, size_t n) {
    tern_session *first;
    if (n >= PREFIX_LEAST && n <= tern_session_n_tokens(session) &&
        tern_session_fork(&first, session, n, NULL) == TERN_OK)
        keep(f, space, first, n);
}

cached_prefix *prefix_cache_keep(prefix_cache *f, prefix_key key, tern_session *session,
                                 size_t n_prompt, size_t n_shared) {
    tern_session *alone;
    prefix_space *space = use_space(f, key);
    if (!space) {
        tern_session_close(session);
        return NULL;
    }
    size_t n = tern_session_n_tokens(session);
    if (!f->cuts_freely) {
        keep_first(f, space, session, n_shared);
        // For another answer to this prompt, which computes the last token again.
        if (n >= n_prompt && n_prompt) keep_first(f, space, session, n_prompt - 1);
        // A fork without the snapshots that the session could go back to.
        if (tern_session_fork(&alone, session, n, NULL) == TERN_OK) {
            tern_session_close(session);
            session = alone;
        }
    }
    cached_prefix *kept = keep(f, space, session, n);
    if (!kept) forget_space(f, space);
    return kept;
}

// ---- Files -------------------------------------------------------------------------------------

#define IDLE_SECONDS 60 // then a prefix is written to a file even if memory suffices
#define SCAN_SECONDS 10

static void take_saved(prefix_cache *f, const prefix_task *t, cached_prefix *at) {
    if (at) at->is_moving = false;
    if (t->is_done && at) {
        set_file(f, at, t->bytes);
        forget_within(f, at);
    } else if (t->is_done) {
        prefix_files_do(f->files, PREFIX_REMOVE, NULL, t->owner, t->ids, t->n);
    } else if (at && !at->session) {
        prefix_cache_forget(f, at);
    }
}

static void take_loaded(prefix_cache *f, prefix_task *t, cached_prefix *at) {
    if (!at) return;
    at->is_moving = false;
    if (at->session) return; // it was computed meanwhile
    if (!t->is_done) {
        set_file(f, at, 0);
        prefix_cache_forget(f, at);
        return;
    }
    at->session = t->session;
    at->is_from_disk = true;
    t->session = NULL;
    touch(f, at, PREFIX_ON_DEVICE);
}

static void take_found(prefix_cache *f, const prefix_task *t, cached_prefix *at) {
    if (!at) at = make_prefix(f, f->spaces[t->owner], t->ids, t->n, PREFIX_ON_DISK);
    if (!at) return;
    set_file(f, at, t->bytes);
    forget_within(f, at);
}

void prefix_cache_take_done(prefix_cache *f) {
    prefix_task *t = f->files ? prefix_files_take(f->files) : NULL;
    for (prefix_task *next; t; t = next) {
        next = t->next;
        cached_prefix *at = find_text(f->spaces[t->owner], t->ids, t->n);
        f->moving_bytes -= t->held;
        if (t->kind == PREFIX_SAVE)
            take_saved(f, t, at);
        else if (t->kind == PREFIX_LOAD)
            take_loaded(f, t, at);
        else if (t->kind == PREFIX_FOUND)
            take_found(f, t, at);
        prefix_task_free(t);
    }
}

void prefix_cache_tidy(prefix_cache *f) {
    double now = tern_seconds();
    if (!f->files) return;
    if (now > f->scanned + SCAN_SECONDS && prefix_files_do(f->files, PREFIX_SCAN, NULL, 0, NULL, 0))
        f->scanned = now;
    cached_prefix *at = f->lists[PREFIX_ON_DEVICE].newest;
    while (at &&
           (at->file_bytes || at->is_moving || has_no_file(at) || at->used > now - IDLE_SECONDS))
        at = at->older;
    tern_session *copy;
    if (!at || !is_worth_a_file(f, at) ||
        tern_session_fork(&copy, at->session, at->node->depth, NULL) != TERN_OK)
        return;
    at->is_moving = hand_over(f, PREFIX_SAVE, at, copy);
    if (!at->is_moving) tern_session_close(copy);
}

// ---- Beginning and end -------------------------------------------------------------------------

tern_status prefix_cache_open(prefix_cache *f, const prefix_cache_desc *desc, tern_error *err) {
    tern_session *probe;
    tern_model_info info;
    *f = (prefix_cache){.desc = *desc, .worth.used = 0.5};
    size_t n_owners = desc->files.owners ? desc->files.n_owners : 1;
    tern_model_get_info(desc->files.model, &info);
    f->n_vocab = info.n_vocab;
    for (; f->n_owners < n_owners; f->n_owners++)
        if (!add_space(f, (prefix_key){.owner = f->n_owners}))
            return tern_fail_memory(err, n_owners * sizeof *f->spaces);
    if (tern_session_open(&probe, desc->files.model, &desc->files.session, NULL) == TERN_OK) {
        const float *scales = tern_session_lora_scales(probe, &f->n_scales);
        f->scales = tern_alloc_array(TERN_MEM_SESSION, f->n_scales + 1, sizeof *f->scales);
        if (f->scales && scales) memcpy(f->scales, scales, f->n_scales * sizeof *scales);
        f->cuts_freely = tern_session_cuts_freely(probe);
        tern_session_close(probe);
        if (!f->scales) return tern_fail_memory(err, (f->n_scales + 1) * sizeof *f->scales);
    }
    if (!desc->files.folder) return TERN_OK;
    TERN_TRY(prefix_files_open(&f->files, &desc->files, err));
    prefix_cache_take_done(f); // the files that were found
    trim_disk(f);
    return TERN_OK;
}

static void save_all(prefix_cache *f) {
    uint64_t bytes = 0, room = f->desc.bytes[PREFIX_ON_DISK];
    for (int tier = 0; tier < PREFIX_ON_DISK; tier++)
        for (cached_prefix *at = f->lists[tier].newest; at; at = at->older) {
            if (at->file_bytes || at->is_moving || has_no_file(at) || is_mostly_in_file(f, at))
                continue;
            bytes += tern_session_bytes(at->session);
            at->is_moving = bytes <= room && hand_over(f, PREFIX_SAVE, at, at->session);
            if (at->is_moving) at->session = NULL;
        }
}

void prefix_cache_close(prefix_cache *f) {
    if (f->files) save_all(f);
    prefix_files_close(f->files);
    f->files = NULL;
    for (int tier = 0; tier < PREFIX_TIERS; tier++)
        while (f->lists[tier].oldest) prefix_cache_forget(f, f->lists[tier].oldest);
    while (f->n_spaces > 0) {
        prefix_space *s = f->spaces[--f->n_spaces];
        token_tree_free(&s->tree);
        tern_free(s);
    }
    tern_free(f->spaces);
    tern_free(f->scales);
    f->spaces = NULL;
    f->scales = NULL;
}
