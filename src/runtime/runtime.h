// An open model: file, config, tokenizer, template, graphs, bound weights, compiled plan.
#ifndef TERN_RUNTIME_RUNTIME_H
#define TERN_RUNTIME_RUNTIME_H

#include "base/os_thread.h"
#include "formats/formats.h"
#include "graph/graph.h"
#include "input/input.h"
#include "kernels/backend.h"
#include "models/models.h"

// A device with the weights bound to it and the plan compiled for it (placement.c).
typedef struct tern_placement {
    const tern_backend *backend;
    tern_device *device;
    tern_mutex busy;  // the device is in use, where it is not shared; taken after the model's
    tern_weight **weights; // by value
    tern_plan *plan;
    const char *ternary_layout, *head;
    uint64_t bytes_per_token, bytes_per_token_logits;
    char remark[560]; // why it is not where it was asked to be, or was before
    char text[760];   // the device, with that
    size_t n_leases;
    bool was_lost; // the model looks for another place, or has one
    struct tern_placement *before; // what was lost
} tern_placement;

struct tern_model {
    char *path;
    tern_file *file;
    const tern_arch *arch;
    tern_config config;
    tern_adapters adapters;
    tern_tokenizer *tokenizer;
    tern_template *chat_template; // NULL until a chat is formatted without one: see template_error
    tern_error template_error;    // why there is no template
    tern_device_desc device_desc;
    // That it points to, since a model that lost its device opens another one.
    tern_webgpu_desc webgpu;
    char *cpu_features, *webgpu_library, *webgpu_state;
    // As the architecture built it; linears lowered to the file's types; fused. The plan runs the
    // last one, the others are kept for `tern graph`.
    tern_graph built, lowered, fused;
    tern_weight_source *sources; // by value of `built`
    tern_weight_kind *kinds;     // the same: the input of the passes
    const char *damaged; // a vector with NaN or infinity in it, NULL: there is none
    int32_t n_batch;
    bool vocab_only;
    // Of `now` and `n_losses`: everything else never changes once the model is open.
    tern_mutex lock;
    tern_placement *now; // NULL: only the tokenizer was opened
    int n_losses;
    tern_model_info info;
    char *name, *architecture; // that it points to
};

// Marks, by value of the built graph, which weights are ternarized and which is the output head.
void tern_model_mark_uses(const tern_graph *g, tern_weight_source *sources);

typedef tern_status (*tern_bound_fn)(void *ctx, uint64_t bytes, tern_error *err);
// Opens the device ("cpu", "webgpu", "auto") and binds all weights; on_bound may be NULL.
tern_status tern_placement_open(tern_placement **out, const tern_model *m, const char *device,
                                tern_bound_fn on_bound, void *ctx, tern_error *err);
tern_weight_kind tern_placement_kind(const tern_placement *p, tern_vid v);
// Compiles the fused graph, and describes where it runs.
tern_status tern_placement_compile(tern_placement *p, const tern_model *m, tern_error *err);
void tern_placement_close(tern_placement *p, const tern_model *m); // NULL is allowed

// Appends the fused graph and what its memory is here; not the memory while a lost device is to be
// replaced.
void tern_model_print_plan(tern_model *m, tern_format format, tern_strbuf *out);

// Session side of the runtime: a lease is an instance of the model's plan, wherever that is now.
typedef struct tern_lease tern_lease;
tern_status tern_model_instance(tern_model *model, int32_t n_context, tern_kv_type kv_type,
                                tern_lease **out, tern_error *err);
void tern_model_instance_close(tern_model *model, tern_lease *lease); // NULL is allowed
// How many tokens a batch may have so that each row has the same bits as alone, at most n_batch.
int32_t tern_model_same_bits(tern_model *model);
// Submits a batch and waits for it. If the device is lost on the way, the lease moves to another
// one, computes there what came before the batch, and then the batch.
tern_status tern_model_compute(tern_model *model, tern_lease *lease, const tern_batch *batch,
                               tern_error *err);
bool tern_model_can_draft(const tern_lease *lease);
// From now on batches may ask for drafts from the table, which must outlive the lease.
tern_status tern_model_drafts_open(tern_lease *lease, const tern_draft_table *table,
                                   tern_error *err);
// Times each kernel from now on; a lease that moves begins anew.
tern_status tern_model_profile_start(tern_lease *lease, tern_error *err);
const tern_profile *tern_model_profile(const tern_lease *lease); // NULL: it was not started
// One line about the last move; NULL: none since the last call.
const char *tern_model_notice(tern_lease *lease);

#endif
