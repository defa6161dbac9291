// The models of a server: what each is called, what it is, and, while it is open, with what it is
// computed. Those that the command line names (`tern serve -m`) and those that lie in a folder
// (registry.c) are opened when a request asks for one and closed when nobody has asked for long, or
// when another one needs the memory (loading.c). All of this is the loop's thread's; only the
// opening and closing itself is done by a thread of its own, so that nobody else waits for it.
#ifndef TERN_SERVE_REGISTRY_H
#define TERN_SERVE_REGISTRY_H

#include "apps/hub/hub.h"
#include "apps/serve/task.h"
#include "apps/serve/metrics.h"
#include "apps/serve/scheduler.h"
#include "apps/serve/serve.h"
#include "base/strbuf.h"

typedef struct registry registry;
typedef struct served served;

// Who waits for a model to open, or asks for one that is.
typedef struct model_wait {
    struct model_wait *next;
    served *model; // NULL: it does not wait
    // Once. Without an error the model is open and held: registry_release. It may be called before
    // registry_ask returns.
    void (*ready)(struct model_wait *w, const tern_error *err);
} model_wait;

typedef enum served_state {
    SERVED_CLOSED,
    SERVED_WANTED, // waits for memory, or for the thread that opens
    SERVED_OPENING,
    SERVED_OPEN,
    SERVED_CLOSING,
} served_state;

struct served {
    task task; // that opens or closes it
    registry *registry;
    hub_model about;    // its name for clients, path, date
    const char *device; // NULL: as all
    hub_facts facts;
    bool is_given;        // by the command line, else found in the folder
    bool is_gone, is_bad; // it is not listed: its file has gone, or cannot be opened
    served_state state;
    // While it is open. `task` writes it until then.
    tern_model *model;
    tern_model_info info;
    scheduler *scheduler;
    int32_t n_context;  // of the sessions
    size_t token_bytes; // of the longest token
    bool generates;     // else it has vectors or scores, and no text
    tern_error error;   // why it could not be opened
    // Its use.
    size_t n_users;      // requests, answers, tasks
    bool is_short;       // there was no memory for it: another one goes before it is tried again
    bool is_leaving;     // closes as soon as nobody uses it; who asks waits until it is open again
    double used;         // seconds: when somebody last did
    double keep_seconds; // after that; negative: for ever
    double asked;        // when the opening began to be waited for
    uint64_t bytes;      // of its weights
    model_wait *waiting; // oldest first
    served *next_wanted;
    model_counts counts;
    struct shared_grammar *grammars; // answer_forms.h; the last used one first
};

struct registry {
    const serve_desc *desc;
    void (*wake)(void *user);
    void *user;
    served **list; // [n] those of the command line first, in its order, then by name
    size_t n, capacity;
    tasks *opener;
    uint64_t *owners; // [n_owners] of texts (prefix_cache.h): one for each key, if these are apart
    size_t n_owners;
    served *wanted; // that wait for memory, oldest first
    double looked;  // seconds: when the folder was last looked through
    bool stopping;
};

// ---- Names (registry.c) ------------------------------------------------------------------------

// Lists what there is; opens the first model that the command line names, so that what is wrong
// with it is said at once. wake: something is to be taken (registry_take), by any thread.
tern_status registry_open(registry **out, const serve_desc *desc, void (*wake)(void *user),
                          void *user, tern_error *err);
void registry_close(registry *r); // waits for what is being opened. NULL is allowed
// The model that a name means, by any of its names or an alias; an empty name is the first that was
// given, or the only one. NULL: none, and err says why.
served *registry_find(registry *r, tern_str name, tern_error *err);
// Looks at the folder again, if that was seconds ago: what has come, changed or gone.
void registry_refresh(registry *r);
// What it is good for, in the field's words: "completion", "embedding", "rerank".
const char *served_ability(const served *s);
bool served_sees(const served *s); // its prompts may have images
// Of the names for lists: each model's, then the aliases. i counts from 0; {NULL, 0}: no more.
tern_str registry_name(registry *r, size_t i, served **model);

// ---- Coming and going (loading.c) --------------------------------------------------------------

// Calls w->ready when the model is open, or cannot be. w is the caller's, who forgets it with
// registry_forget if it has to go before that.
void registry_ask(served *s, model_wait *w);
void registry_forget(model_wait *w);
void registry_hold(served *s); // another user of one that is open
void registry_release(served *s);
// Closes it when nobody uses it (a negative number of seconds: never), counted from its last use.
void registry_keep(served *s, double seconds);
// Closes it when nobody uses it; who asks for it meanwhile waits until it is open again.
void registry_drop(served *s);
// Handles what has been opened and closed since.
void registry_take(registry *r);
void registry_tick(registry *r, double now); // once a second
// Whose texts a client's are that has this key (keys.h): a place in r->owners.
size_t registry_owner(const registry *r, size_t key);
// Whether an open model has been in one step for two minutes.
bool registry_is_stuck(const registry *r, double now);
// Takes no more: who waits is refused, what runs goes on.
void registry_stop(registry *r);

// For registry.c.
tern_status served_open_now(served *s, tern_error *err);
void served_close_now(served *s);

#endif
