// The models of a server: their names, properties and, while open, their schedulers. Models come
// from the command line (`tern serve -m`) or a folder (registry.c); they are opened when a request
// needs them, and closed when unused for long or when another model needs the memory (loading.c).
// Only the loop's thread uses the registry; the opening and closing itself runs on another thread,
// so that other requests do not wait for it.
#ifndef TERN_SERVE_REGISTRY_H
#define TERN_SERVE_REGISTRY_H

#include "apps/hub/hub.h"
#include "apps/serve/http/task.h"
#include "apps/serve/engine/adapters.h"
#include "apps/serve/engine/metrics.h"
#include "apps/serve/engine/model_presets.h"
#include "apps/serve/engine/scheduler.h"
#include "tern_tools.h"
#include "apps/serve/serve.h"
#include "base/strbuf.h"

typedef struct registry registry;
typedef struct served served;

// A caller that waits for a model to open, or asks for one that is open.
typedef struct model_wait {
    struct model_wait *next;
    served *model; // NULL: it does not wait
    // Called once, perhaps before registry_ask returns. Without an error the model is open and
    // held; the caller releases it with registry_release.
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
    const char *device; // NULL: the default
    hub_facts facts;
    bool is_given;        // from the command line, else found in the folder
    bool is_gone, is_bad; // not listed: its file has gone, or cannot be opened
    served_state state;
    // While it is open. `task` writes it until then.
    tern_model *model;
    tern_model_info info;
    scheduler *scheduler;
    int32_t n_context;       // of its sessions
    size_t token_bytes;      // of the longest token
    bool generates;          // else it gives vectors or scores
    tern_infill_info infill; // once it is open
    tern_error error;        // why it could not be opened
    // Its use.
    size_t n_users;  // requests, answers, tasks
    bool is_short;   // there was no memory for it: another model closes before it is tried again
    bool is_leaving; // closes as soon as it is unused; callers that ask wait until it is open again
    double used;     // seconds: when it was last used
    double keep_seconds; // how long it stays open after that; negative: for ever
    double asked;        // when its opening was requested
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
    served **list; // [n] the command line's first, in its order, then by name
    size_t n, capacity;
    tasks *opener;
    uint64_t *owners; // [n_owners] of texts (prefix_cache.h): one for each key, if keys have
                      // separate texts
    size_t n_owners;
    adapters adapters; // of the only model
    served *wanted;    // models that wait for memory, oldest first
    presets presets;   // of the folder
    double looked;     // seconds: when the folder was last scanned
    bool is_first;     // the first model of the command line is opening
    bool stopping;
};

// ---- Names (registry.c) ------------------------------------------------------------------------

// Lists the models. wake: called by any thread when registry_take should be called.
tern_status registry_list(registry **out, const serve_desc *desc, void (*wake)(void *user),
                          void *user, tern_error *err);
// The same, and opens the first one of the command line.
tern_status registry_open(registry **out, const serve_desc *desc, void (*wake)(void *user),
                          void *user, tern_error *err);
void registry_close(registry *r); // waits for models being opened. NULL is allowed
// Finds a model by any of its names or an alias; an empty name means the first one given, or the
// only one. NULL: none, and err says why.
served *registry_find(registry *r, tern_str name, tern_error *err);
// The adapter of that name, which the only model has, or SIZE_MAX: also by an alias, and by
// "MODEL:ADAPTER".
size_t registry_adapter(const registry *r, tern_str name);
// The preset of that name, if it is none of a model; NULL: none.
preset *registry_preset(registry *r, tern_str name);
// The next registry_refresh scans the folder: a file has come or gone.
void registry_look_again(registry *r);
// Scans the folder again, if the last scan is seconds old, for new, changed and missing models.
void registry_refresh(registry *r);
// What it does: "completion", "embedding", "rerank".
const char *served_ability(const served *s);
bool served_sees(const served *s);  // its prompts may have images
bool served_fills(const served *s); // it is open, and fills in between a prefix and a suffix
// The first model that recognizes speech; NULL: none.
served *registry_recognizer(const registry *r);
// The names for lists: each model's, the adapters', then the aliases. i counts from 0; {NULL, 0}:
// no more.
tern_str registry_name(registry *r, size_t i, served **model);

// ---- Coming and going (loading.c) --------------------------------------------------------------

// Calls w->ready when the model is open, or cannot be opened. w is the caller's; to free it
// earlier, call registry_forget first.
void registry_ask(served *s, model_wait *w);
void registry_forget(model_wait *w);
// The same for the first model of the command line, when the server begins: whatever its size, and
// with the progress of the opening.
void registry_ask_first(registry *r, model_wait *w);
void registry_hold(served *s); // adds a user of an open model
void registry_release(served *s);
// Sets how long it stays open after its last use (negative: for ever).
void registry_keep(served *s, double seconds);
// Closes it as soon as it is unused; callers that ask for it meanwhile wait until it is open again.
void registry_drop(served *s);
// Handles models that were opened and closed since the last call.
void registry_take(registry *r);
void registry_tick(registry *r, double now); // once a second
// The owner of the texts of clients with this key (keys.h): an index in r->owners.
size_t registry_owner(const registry *r, size_t key);
// Whether an open model has been in one step for two minutes.
bool registry_is_stuck(const registry *r, double now);
// Opens no more models: callers that wait are refused, running work goes on.
void registry_stop(registry *r);

// For registry.c.
tern_status served_open_now(served *s, tern_error *err);
void served_close_now(served *s);

#endif
