// A model made ready: file, config, tokenizer, template, graphs, bound weights, compiled plan.
#ifndef TERN_RUNTIME_RUNTIME_H
#define TERN_RUNTIME_RUNTIME_H

#include "formats/formats.h"
#include "graph/graph.h"
#include "input/input.h"
#include "kernels/backend.h"
#include "models/models.h"

struct tern_model {
    char *path;
    tern_file *file;
    const tern_arch *arch;
    tern_config config;
    tern_tokenizer *tokenizer;
    tern_template *chat_template; // NULL until a chat is formatted without one: see template_error
    tern_error template_error;    // why there is none
    const tern_backend *backend;
    tern_device *device;
    // As the architecture built it; linears lowered to the file's types; fused. The plan runs the
    // last one, the others are kept for `tern graph`.
    tern_graph built, lowered, fused;
    tern_weight **weights; // by value
    tern_plan *plan;
    int32_t n_batch;
    tern_model_info info;
    char name[128], architecture[64];
    char device_text[640]; // where "auto" went to the CPU, with the reason
};

// Session side of the runtime: an instance of the model's plan.
tern_status tern_model_instance(tern_model *model, int32_t n_context, tern_kv_type kv_type,
                                tern_instance **out, tern_error *err);
// Submits a batch and waits for it.
tern_status tern_model_compute(tern_model *model, tern_instance *instance, const tern_batch *batch,
                               tern_error *err);

#endif
