// The members of a config that both formats have unchanged: one table for reading and writing.
#ifndef TERN_MODELS_CONFIG_FIELDS_H
#define TERN_MODELS_CONFIG_FIELDS_H

#include "models/core/family.h"

// gguf: the key after "<architecture>."; hf: the member of config.json.
typedef struct tern_int_field {
    size_t offset;
    const char *gguf, *hf;
    bool is_required; // and at least 1; else 0 if absent
    int64_t most;
} tern_int_field;

#define TERN_N_INT_FIELDS 8
extern const tern_int_field tern_int_fields[TERN_N_INT_FIELDS];

#define TERN_HEAD_DIM_MAX 65536
#define TERN_GGUF_EPS     "attention.layer_norm_rms_epsilon"
#define TERN_HF_EPS       "rms_norm_eps" // unless the architecture has another name
#define TERN_GGUF_ACT     "hidden_activation"
#define TERN_HF_ACT       "hidden_act"

const char *tern_layer_kind_name(tern_layer_kind kind); // in layer_types

#endif
