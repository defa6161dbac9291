// An open model: file, config, tokenizer, template, graphs, bound weights, compiled plan.
#ifndef TERN_RUNTIME_RUNTIME_H
#define TERN_RUNTIME_RUNTIME_H

#include <stdatomic.h>
#include "base/cancel.h"
#include "base/os/os_thread.h"
#include "base/turns.h"
#include "formats/formats.h"
#include "grammar/grammar.h"
#include "graph/graph.h"
#include "input/input.h"
#include "kernels/backend.h"
#include "models/models.h"
#include "tern.h"
#include "tern_embed.h"

// A cache of a placement, for sequences of one kind.
typedef struct tern_placed_cache {
    tern_cache_desc desc;
    tern_cache *cache;
    struct tern_placed_cache *next;
} tern_placed_cache;

// An instance, lent to one run at a time, and the arrays of its batch.
typedef struct tern_placed_instance {
    tern_instance *instance;
    const tern_cache *cache;
    const tern_sequence *last; // the last sequence that used it; only compared
    bool is_taken;
    int32_t *ids, *outputs; // [n_batch]
    tern_chunk *chunks;     // [n_batch]
    int32_t *places;        // [n_batch, 3]; NULL until there is an image
    int32_t *ends;          // [n_batch]; likewise
    float *rows;            // [n_batch, tern_config_given_cols]; likewise
    float *gains;           // [n_batch, n_loras]; NULL: sessions have no scales of adapters
    struct tern_placed_instance *next;
} tern_placed_instance;

// A graph as a device runs it.
typedef struct tern_placed_graph {
    tern_weight **weights; // by value of the fused graph
    tern_plan *plan;
} tern_placed_graph;

// A plan for other numbers of rows than the model's (runner.c).
typedef struct tern_placed_plan {
    tern_weight **weights; // by value of the graph
    tern_plan *plan;
    int graph; // of the model's; -1: its user's own
    int32_t n_rows;
    size_t n_users;
    uint64_t used; // when
    struct tern_placed_plan *next;
} tern_placed_plan;

// A device with the weights bound to it and the plans compiled for it (placement.c).
typedef struct tern_placement {
    const tern_backend *backend;
    tern_device *device;
    tern_turns busy; // the device is in use, where it is not shared; taken after the model's
    tern_mutex pool; // of the lists of instances and plans; taken after all others
    // While it is being opened.
    bool is_automatic;                  // without a GPU, the CPU will do
    bool is_open;                       // the device
    size_t n_settled, n_bound;          // weights
    uint64_t bytes_before, bytes_bound; // of the sources: before the current weight, and with it
    int n_compiled;

    tern_weight **weights; // [the model's n_weights]
    tern_placed_graph graphs[TERN_GRAPHS_MAX];
    // For the main graph.
    tern_placed_cache *caches; // changed under the model's lock
    tern_placed_instance *instances;
    tern_placed_plan *plans; // those kept for other numbers of rows
    uint64_t n_plans_used, n_plans_compiled;
    const char *ternary_layout, *head;
    uint64_t bytes_per_token, bytes_per_token_logits;
    char remark[560]; // why it is not on the requested device, or on the last one
    char text[760];   // the device, with the remark
    size_t n_leases;
    bool was_lost;                 // the model looks for another placement, or has one
    struct tern_placement *before; // the one that was lost
} tern_placement;

// Memory that sessions take while they work and give back, so that idle ones cost nothing. The
// first member of each kind's struct; kept until the model is closed.
typedef struct tern_spare {
    struct tern_spare *next;
    const struct tern_spare_kind *kind;
} tern_spare;
typedef struct tern_spare_kind {
    size_t bytes; // of the kind's struct, which begins as zeros
    void (*free)(tern_spare *s);
} tern_spare_kind;

// One of a model's graphs. Its plan runs the last of the three, the others are kept for `tern
// graph` and for outputs that fusion leaves out.
typedef struct tern_model_graph {
    const char *name;
    tern_graph built;   // as the architecture builds it, with adapters
    tern_graph lowered; // linears by the file's types
    tern_graph fused;
    int32_t *weights; // [built.n_values] a value's index among the model's weights; -1: none
    int32_t n_rows;   // least rows of its plan; 0: the model's n_batch
} tern_model_graph;

// An encoded image (image_tokens.c): its rows have the ids first_id, first_id + 1 ... in texts.
#define TERN_IMAGE_TOKENS_IDS ((int32_t)1 << 30) // the least row id; tokens have lower ids
struct tern_image_tokens {
    struct tern_image_tokens *next;
    tern_model *model;
    size_t n_holders;
    uint64_t used; // when
    uint64_t hash;
    uint8_t *pixels;       // the tower's input, all frames
    size_t n_pixels;       // bytes
    int32_t width, height; // of the whole, in rows
    int32_t across, down;  // tiles that it is also cut into
    int32_t n_rows, first_id;
    int32_t *ids; // [n_ids] its ids in a text: rows, and tokens around them
    size_t n_ids;
    float *rows; // [n_rows, tern_config_given_cols]
};
static inline bool tern_image_tokens_has(const tern_image_tokens *s, int32_t id) {
    return id >= s->first_id && id - s->first_id < s->n_rows;
}
tern_image_tokens *tern_image_tokens_new(void);    // NULL: out of memory
void tern_image_tokens_drop(tern_image_tokens *s); // if it was not kept; NULL is allowed
// The model's image with these pixels, or with this row id, held for the caller; NULL: none.
tern_image_tokens *tern_model_find_image(tern_model *m, const tern_image_tokens *wanted);
tern_image_tokens *tern_model_hold_image(tern_model *m, int32_t id);
void tern_model_release_image(tern_model *m, tern_image_tokens *s);
// Assigns ids to its rows, and holds it for the caller. Replaces each -1 in `ids` by the next row's
// id; if it has no ids, it gets one per row.
tern_status tern_model_keep_image(tern_model *m, tern_image_tokens *s, tern_error *err);
void tern_model_free_images(tern_model *m);
// Adds a vision tower to a GGUF, and reads the config again (tower.c).
typedef struct tern_tower_source {
    const char *model; // path of the model, beside which it is looked for; NULL: nowhere
    const char *mmproj;
    const tern_bytes *bytes; // as in tern_model_desc; NULL: none
} tern_tower_source;
tern_status tern_tower_add(tern_file *file, const tern_tower_source *from, const tern_arch **arch,
                           tern_config *c, tern_error *err);

// A value of a folder's config.json, under its keys joined by points.
typedef struct tern_model_key {
    char *name;
    const tern_json *value;
} tern_model_key;

struct tern_model {
    atomic_size_t n_users; // its opener, and all objects opened with it and not closed
    atomic_bool is_closed; // by its opener
    char *path;
    tern_file *file;
    void (*on_release)(void *user); // of the bytes that the file reads; NULL: none
    tern_log_fn on_log;             // NULL: nothing is said
    void *user;                     // of both
    tern_model_key *keys;           // [n_keys] of a folder's config: metadata.c
    size_t n_keys, keys_capacity;
    const tern_arch *arch;
    tern_config config;
    tern_adapters adapters;
    // Where sessions have scales of adapters: [n_loras], those that a session has by default.
    float lora_scales[TERN_LORAS_MAX];
    int32_t n_loras;     // 0: they have none
    tern_vid lora_gains; // the main graph's input
    tern_tokenizer *tokenizer;
    tern_template *chat_template; // NULL until a chat is formatted without one: see template_error
    tern_error template_error;    // why there is no template
    tern_device_desc device_desc;
    // The strings that it points to, since a model that lost its device opens another.
    tern_webgpu_desc webgpu;
    char *cpu_features, *webgpu_library, *webgpu_state;
    tern_model_graph graphs[TERN_GRAPHS_MAX]; // the first is the main one, which leases run
    int n_graphs;
    // The weights of all graphs, each once, however many graphs read it.
    size_t n_weights;
    tern_weight_source *sources; // [n_weights]
    float **numbers;             // [n_weights] those that differ from the file's, or NULL
    tern_weight_kind *kinds;     // [n_weights] the input of the passes
    const char *damaged;         // a vector with NaN or infinity in it, NULL: none
    int32_t n_batch;
    uint64_t piece_work; // tern_batch's, for runs; tests set less
    bool vocab_only;
    tern_mutex vocab_lock;
    tern_mutex images_lock; // for images, n_images_used, n_image_ids
    tern_image_tokens *images;
    uint64_t n_images_used;
    int32_t n_image_ids;
    tern_vocab_tree *vocab_tree; // NULL until a grammar is opened; under vocab_lock
    // For the next six: everything else never changes once the model is open.
    tern_mutex lock;
    tern_placement *now;  // NULL: only the tokenizer was opened
    tern_placement *next; // being opened, since `now` was lost; or NULL
    int n_losses;
    tern_spare *spares; // given back
    uint64_t digest;    // 0: not computed yet
    const tern_placement *digest_of;
    tern_model_info info;
    char *name, *architecture; // strings of `info`
    tern_embedding_info embedding;
    tern_strbuf prompts; // texts of `embedding`, or the labels of an image model
    size_t *labels;      // where they begin; NULL: none
};

// Each user of a model lets it go afterwards; the last one frees it.
void tern_model_hold(const tern_model *m);
void tern_model_let_go(const tern_model *m); // NULL is allowed
// Says a line to the program that opened the model (metadata.c). No lock may be held.
void tern_model_log(const tern_model *m, tern_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Finds the keys of a folder's config.
tern_status tern_model_read_keys(tern_model *m, tern_error *err);
void tern_model_free_keys(tern_model *m);
// A piece of a run, in multiplications: as many as a token takes in a model with a billion
// weights.
#define TERN_PIECE_WORK ((uint64_t)1 << 30)
// A hash of all that states depend on besides their text, never 0 (digest.c). The first call reads
// all weights.
tern_status tern_model_digest(tern_model *m, uint64_t *out, tern_error *err);
// The vocabulary's bytes as grammars read them (vocabulary.c). The first call takes some tens of
// milliseconds. Any thread.
tern_status tern_model_vocab_tree(tern_model *m, const tern_vocab_tree **out, tern_error *err);
// Fills in what tern_model_get_info tells (model_info.c): texts of the file, and the rest once the
// model is open.
tern_status tern_model_fill_names(tern_model *m, tern_error *err);
void tern_model_fill_info(tern_model *m);
// Finds the weights of all built graphs (weights.c).
tern_status tern_model_find_weights(tern_model *m, tern_head_mode head, tern_error *err);
// Marks which weights of a built graph are ternarized and which is the output head. weights: a
// value's index among the sources; NULL: sources are by value.
void tern_model_mark_uses(const tern_graph *g, const int32_t *weights, tern_weight_source *sources);
// The index of the graph with this name; NULL: the main one. -1: none, with a message that lists
// the names.
int tern_model_graph_find(const tern_model *m, const char *name, tern_error *err);
// The graph whose value flows into this input; -1: none, it comes from outside.
int tern_model_flow_from(const tern_model *m, int graph, tern_vid v);
// Passes a finished text to the caller, and frees it in any case.
tern_status tern_text_give(tern_strbuf *text, tern_text_fn on_text, void *user, tern_error *err);
// Writes the ids that fit into the caller's memory, and the number of all.
void tern_ids_give(tern_ids *out, const int32_t *ids, size_t n);
// Fails if a vector holds NaN or infinity, which int8 products would turn into ordinary numbers.
tern_status tern_model_refuse_damaged(const tern_model *m, tern_error *err);
// The settings for embeddings in the model's files (embedding.c).
tern_status tern_model_read_embedding(tern_model *m, tern_error *err);
void tern_model_free_embedding(tern_model *m);
// Whether a text must come in one batch: its rows attend to later ones, or are pooled.
bool tern_model_reads_whole(const tern_model *m);

// Begins to open the device ("cpu", "webgpu", "auto") and to bind all weights to it. Polled until
// *done: graphs can be compiled. Nothing waits, and a poll reads some tens of megabytes at most.
// After a failure it can only be closed, which cancels any unfinished work.
tern_status tern_placement_begin(tern_placement **out, const tern_model *m, const char *device,
                                 tern_error *err);
tern_status tern_placement_poll(tern_placement *p, const tern_model *m, bool *done,
                                tern_error *err);
// After a failure on a GPU that was chosen automatically: the CPU instead, from the beginning, with
// the reason in its description. A failure not caused by the GPU stays.
tern_status tern_placement_go_to_cpu(tern_placement **p, const tern_model *m, tern_status status,
                                     tern_error *err);
tern_weight_kind tern_placement_kind(const tern_placement *p, size_t weight);
// The bound weights of a graph, by value, for n_values values; the caller frees them with
// tern_free.
tern_status tern_placement_weights(const tern_placement *p, const tern_model_graph *g,
                                   size_t n_values, tern_weight ***out, tern_error *err);
// Then compiles the fused graphs, and sends what is left of the weights while the device makes its
// kernels; with both *done, and where they run is described.
tern_status tern_placement_finish(tern_placement *p, const tern_model *m, bool *done,
                                  tern_error *err);
void tern_placement_close(tern_placement *p, const tern_model *m); // NULL is allowed
void tern_placement_free_plans(tern_placement *p);                 // none is in use
// Frees everything except the texts about it.
void tern_placement_give_back(tern_placement *p, const tern_model *m);
// Threads take turns on a device that only one thread may use at a time.
void tern_placement_begin_use(tern_placement *p);
void tern_placement_end_use(tern_placement *p);
// The cache for such sequences, opened when it is first asked for; under the model's lock.
tern_status tern_placement_cache(tern_placement *p, const tern_model *m,
                                 const tern_cache_desc *desc, tern_cache **out, tern_error *err);
// Lends an instance, if possible the one that last ran the sequence; while the device is in use.
tern_status tern_placement_take(tern_placement *p, int32_t n_batch, tern_cache *cache,
                                const tern_sequence *sequence, tern_placed_instance **out,
                                tern_error *err);
// An instance that is never lent to others.
tern_status tern_placement_instance(const tern_placement *p, int32_t n_batch, tern_cache *cache,
                                    tern_placed_instance **out, tern_error *err);
void tern_placement_instance_close(const tern_placement *p, tern_placed_instance *r);
void tern_placement_give(tern_placement *p, tern_placed_instance *r, const tern_sequence *last);
// Ensures that m->now is not lost; opens another one if need be. Polled until *done, by any number
// of threads, under the model's lock. A failure closes the new placement; the next call starts
// over.
#define TERN_LOSSES_MAX 2 // after which a model moves to the CPU
tern_status tern_placement_find(tern_model *m, const char *why, bool *done, tern_error *err);

// The model's placement; if it was lost, waits for another. It stays until it is let go.
tern_status tern_placement_hold(tern_model *m, tern_placement **out, tern_error *err);
void tern_placement_let_go(tern_model *m, tern_placement *p);

// Appends a fused graph and its memory on this device; without the memory while a lost device is
// being replaced.
void tern_model_print_plan(tern_model *m, int graph, tern_format format, tern_strbuf *out);

// A spare of this kind: the last one given back, or a new one. Any thread.
tern_status tern_model_take_spare(tern_model *m, const tern_spare_kind *kind, void *out,
                                  tern_error *err);
void tern_model_give_spare(tern_model *m, tern_spare *s); // NULL is allowed

// ---- Leases (lease.c): a session's side --------------------------------------------------------
//
// A lease is one timeline of tokens on the model's device, wherever that is now. It keeps the
// tokens that its states were computed from, so lost or cut states are recomputed.
typedef struct tern_lease tern_lease;
// While a lost device is being replaced, it gets its placement when it first computes.
tern_status tern_lease_open(tern_lease **out, tern_model *model, int32_t n_context,
                            tern_kv_type kv_type, tern_error *err);
void tern_lease_close(tern_lease *lease); // NULL is allowed
// The scales of the model's adapters, [n_loras], in place of the model's; for a new lease.
void tern_lease_set_loras(tern_lease *lease, const float *scales);
const float *tern_lease_loras(const tern_lease *lease); // [the model's n_loras]
// The longest text that uses RoPE's factors for shorter texts (TERN_ROPE_LONG); INT32_MAX: all do.
int32_t tern_model_short_rope_limit(const tern_model *m);
// Announces the final length, so that the right RoPE factors are used from the start; states with
// the others are recomputed. Without it, a lease that outgrows its factors is recomputed at that
// point.
tern_status tern_lease_announce_length(tern_lease *lease, size_t n_positions, tern_error *err);
// The last position, at most n_positions, that the lease can reach with its current factors.
int32_t tern_lease_rope_limit(const tern_lease *lease, int32_t n_positions);
// Takes the memory for positions up to n_positions, so that computing them allocates nothing.
tern_status tern_lease_reserve(tern_lease *lease, int32_t n_positions, tern_error *err);
// The same and, if there is memory, also for positions that its device may compute ahead.
tern_status tern_lease_reserve_ahead(tern_lease *lease, int32_t n_positions, tern_error *err);
// Another text begins with the first n_positions of this one. *n_left: how many of them need not be
// recomputed. If all, further texts can continue from there, too.
tern_status tern_lease_keep_prefix(tern_lease *lease, int32_t n_positions, int32_t *n_left,
                                   tern_error *err);
// `to`, which is new and has the same n_context and kv_type, begins with the first n_positions of
// this lease. They share the states as far as these can go back there; the rest is computed when it
// is first used.
tern_status tern_lease_fork(tern_lease *lease, int32_t n_positions, tern_lease *to,
                            tern_error *err);
bool tern_lease_forks_anywhere(const tern_lease *lease); // any prefix forks as it is
// Moves its states to the host's memory until it computes again.
tern_status tern_lease_swap_out(tern_lease *lease, tern_error *err);
uint64_t tern_lease_bytes(const tern_lease *lease); // of its states on the device
// Writes the states of its first n_positions, as far as they exist, as bytes.
tern_status tern_lease_write(tern_lease *lease, int32_t n_positions, tern_sequence_put put,
                             void *user, tern_error *err);
// Reads them into a new lease, which gets these tokens and the states that were written.
tern_status tern_lease_read(tern_lease *lease, const int32_t *ids, size_t n_ids,
                            tern_sequence_get get, void *user, tern_error *err);
// Holds the images whose rows are among the ids. TERN_ERR_ARGUMENT: an unknown image.
tern_status tern_lease_hold_images(tern_lease *lease, const int32_t *ids, size_t n,
                                   tern_error *err);
// If an image's rows attend to each other (tern_tower.both_ways), texts are only cut between
// images. The ids begin at such a cut, and the lease holds their images. Returns how many ids,
// about n, can be computed at once.
size_t tern_lease_cut_near(const tern_lease *lease, const int32_t *ids, size_t n_ids, size_t n);
// The last such cut among the lease's first n ids.
size_t tern_lease_last_cut(const tern_lease *lease, size_t n);
// The timeline of `from`, of the same n_context and kv_type, becomes this lease's; `from` is empty.
tern_status tern_lease_take(tern_lease *lease, tern_lease *from, tern_error *err);
// Gives back room that no position uses.
void tern_lease_trim(tern_lease *lease);
// Whether two leases of a model can be in one batch.
bool tern_lease_can_share_batch(const tern_lease *a, const tern_lease *b);
// The tokens of the timeline [all computed or put]; valid until the lease is used.
const int32_t *tern_lease_ids(const tern_lease *lease);
// Makes room for n_ids tokens. If *a and *b (either may be NULL) point into the lease's own ids,
// which may move, they are updated.
tern_status tern_lease_make_room(tern_lease *lease, size_t n_ids, const int32_t **a,
                                 const int32_t **b, tern_error *err);
// Writes tokens where they will be computed, from position `at` on; states from there on are
// forgotten. The ids may be the lease's own.
tern_status tern_lease_set_ids(tern_lease *lease, size_t at, const int32_t *ids, size_t n,
                               tern_error *err);

// How many tokens a batch may have so that each row has the same bits as alone, at most n_batch.
int32_t tern_model_same_bits(tern_model *model);

// Consecutive tokens of a lease, which continue it at first_pos; its states from there on are
// forgotten.
typedef struct tern_work {
    tern_lease *lease;
    const int32_t *ids;
    int32_t n_ids;     // at least 1
    int32_t first_pos; // at most the lease's number of tokens
    int32_t n_outputs; // of the last tokens
    // A position in first_pos .. first_pos + n_ids that the lease may go back to; 0: none.
    // `passing`: it replaces the last passing one; else it is a lasting one.
    int32_t snapshot_at;
    bool passing;
} tern_work;

// A batch that was begun. Its memory, the works and the wanted results are the caller's, and must
// not move until it is done or has failed; nor must the leases.
typedef struct tern_computation {
    tern_model *model;
    const tern_work *work;
    int32_t n_work;
    tern_wants wants;             // rows of the first work, then of the second ...
    tern_placement *at;           // the rest is for lease_compute.c
    tern_placed_instance *placed; // NULL: nothing submitted
    bool is_moving;               // the leases need a placement
    tern_error why;               // what happened to the last placement
    tern_batch batch;             // submitted: all, or
    bool is_part;                 // only missing tokens before it
    int n_losses;
} tern_computation;
// Begins a batch of any number of leases of one model, at most n_batch tokens, without waiting for
// it. Each lease may be used by one thread at a time.
tern_status tern_computation_begin(tern_computation *c, tern_model *model, const tern_work *work,
                                   int32_t n_work, const tern_wants *wants, tern_error *err);
// Continues a batch: to be called until *done or a failure; both end it. If the device
// is lost meanwhile, further polls move the leases to another one and recompute their states there
// first. Never waits.
tern_status tern_computation_poll(tern_computation *c, bool *done, tern_error *err);
// Begins a batch, and waits for it.
tern_status tern_model_compute(tern_model *model, const tern_work *work, int32_t n_work,
                               const tern_wants *wants, tern_error *err);
// Cancels a batch, without waiting: no results are written, and the leases recompute its tokens if
// needed.
void tern_computation_cancel(tern_computation *c);
// The most works in a batch.
int32_t tern_model_works_max(tern_model *model);

bool tern_lease_can_draft(const tern_lease *lease);
// Whether a batch may restrict its greatest scores to allowed tokens. Never changes.
bool tern_lease_takes_masks(const tern_lease *lease);
// From now on batches may ask for drafts from the table, which must outlive the lease.
tern_status tern_lease_open_drafts(tern_lease *lease, const tern_draft_table *table,
                                   tern_error *err);
// Times each kernel from now on; a lease that moves starts over.
tern_status tern_lease_start_profile(tern_lease *lease, tern_error *err);
const tern_profile *tern_lease_profile(const tern_lease *lease); // NULL: not started
// One line about the last move; NULL: none since the last call.
const char *tern_lease_notice(tern_lease *lease);

#endif
