// Mixtures: matrices that matter more get more bits.
//
// The rules are llama.cpp's, which files with these names follow (src/llama-quant.cpp,
// llama_tensor_get_type_impl, read in November 2026): the first row that fits decides, and a matrix
// that none fits gets the mixture's own type. Left out are rules for Falcon 40B and Llama 70B.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "tasks/convert/convert_private.h"

typedef enum mix_part {
    PART_OTHER,
    PART_V,
    PART_K,
    PART_DOWN,
    PART_OUTPUT,
    PART_OUTSIDE, // in a mixture of experts: not an expert
} mix_part;

typedef enum mix_place {
    EVERYWHERE,
    FIRST_2,
    FIRST_4,
    FIRST_EIGHTH,
    FIRST_16TH,
    MORE_BITS, // the first and the last eighth and every third layer between
} mix_place;

typedef enum mix_need {
    ALWAYS,
    SHARED_KEYS, // by four query heads or more
    IMPORTANCE,  // is known
    NO_IMPORTANCE,
    EXPERTS,
    EXPERTS_8, // exactly
} mix_need;

typedef struct rule {
    tern_type mixture; // AUTO: all of them
    mix_part part;
    mix_place place;
    mix_need need;
    tern_dtype type;
} rule;

static const rule rules[] = {
    {TERN_TYPE_MXFP4, PART_OUTSIDE, EVERYWHERE, EXPERTS, TERN_DTYPE_Q8_0},

    {TERN_TYPE_AUTO, PART_V, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q8_0},
    {TERN_TYPE_AUTO, PART_K, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q8_0},

    {TERN_TYPE_Q2_K, PART_V, EVERYWHERE, SHARED_KEYS, TERN_DTYPE_Q4_K},
    {TERN_TYPE_Q2_K, PART_V, EVERYWHERE, ALWAYS, TERN_DTYPE_Q3_K},
    {TERN_TYPE_Q2_K, PART_DOWN, EVERYWHERE, ALWAYS, TERN_DTYPE_Q3_K},
    {TERN_TYPE_Q2_K, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q2_K, PART_OUTPUT, EVERYWHERE, ALWAYS, TERN_DTYPE_Q3_K},

    {TERN_TYPE_Q3_K_S, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},

    {TERN_TYPE_Q3_K_M, PART_V, FIRST_2, ALWAYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q3_K_M, PART_V, EVERYWHERE, ALWAYS, TERN_DTYPE_Q4_K},
    {TERN_TYPE_Q3_K_M, PART_DOWN, FIRST_16TH, ALWAYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q3_K_M, PART_DOWN, EVERYWHERE, ALWAYS, TERN_DTYPE_Q4_K},
    {TERN_TYPE_Q3_K_M, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q3_K_M, PART_OUTPUT, EVERYWHERE, ALWAYS, TERN_DTYPE_Q4_K},

    {TERN_TYPE_Q3_K_L, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q3_K},
    {TERN_TYPE_Q3_K_L, PART_V, EVERYWHERE, ALWAYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q3_K_L, PART_DOWN, EVERYWHERE, ALWAYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q3_K_L, PART_OUTPUT, EVERYWHERE, ALWAYS, TERN_DTYPE_Q5_K},

    {TERN_TYPE_Q4_K_S, PART_V, FIRST_4, ALWAYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q4_K_S, PART_DOWN, FIRST_EIGHTH, ALWAYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_Q4_K_S, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},

    {TERN_TYPE_Q4_K_M, PART_V, MORE_BITS, ALWAYS, TERN_DTYPE_Q6_K},
    {TERN_TYPE_Q4_K_M, PART_DOWN, MORE_BITS, ALWAYS, TERN_DTYPE_Q6_K},
    {TERN_TYPE_Q4_K_M, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},

    {TERN_TYPE_Q5_K_M, PART_V, MORE_BITS, ALWAYS, TERN_DTYPE_Q6_K},
    {TERN_TYPE_Q5_K_M, PART_DOWN, MORE_BITS, ALWAYS, TERN_DTYPE_Q6_K},

    {TERN_TYPE_IQ4_NL, PART_V, EVERYWHERE, SHARED_KEYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_IQ4_NL, PART_DOWN, FIRST_EIGHTH, NO_IMPORTANCE, TERN_DTYPE_Q5_K},
    {TERN_TYPE_IQ4_NL, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},
    {TERN_TYPE_IQ4_XS, PART_V, EVERYWHERE, SHARED_KEYS, TERN_DTYPE_Q5_K},
    {TERN_TYPE_IQ4_XS, PART_DOWN, FIRST_EIGHTH, NO_IMPORTANCE, TERN_DTYPE_Q5_K},
    {TERN_TYPE_IQ4_XS, PART_OUTPUT, EVERYWHERE, EXPERTS_8, TERN_DTYPE_Q5_K},

    {TERN_TYPE_Q4_0, PART_DOWN, FIRST_EIGHTH, IMPORTANCE, TERN_DTYPE_Q4_1},
    {TERN_TYPE_Q5_0, PART_DOWN, FIRST_EIGHTH, IMPORTANCE, TERN_DTYPE_Q5_1},
};

// Queries, keys and values in one matrix count as values.
static mix_part part_of(const char *name) {
    static const struct {
        const char *text;
        mix_part part;
    } parts[] = {{"attn_qkv.weight", PART_V},
                 {"attn_v.weight", PART_V},
                 {"attn_k.weight", PART_K},
                 {"attn_output.weight", PART_OUTPUT},
                 {"ffn_down", PART_DOWN}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].text)) return parts[i].part;
    return PART_OTHER;
}

static int layer_of(const char *name) {
    int layer = tern_tensor_block(name, NULL);
    return layer < 0 ? 0 : layer;
}

static bool is_there(mix_place place, int at, int n) {
    switch (place) {
    case FIRST_2: return at < 2;
    case FIRST_4: return at < 4;
    case FIRST_EIGHTH: return at < n / 8;
    case FIRST_16TH: return at < n / 16;
    case MORE_BITS: return at < n / 8 || at >= 7 * n / 8 || (at - n / 8) % 3 == 2;
    default: return true;
    }
}

static bool is_met(const tern_convert_mixing *m, mix_need need) {
    switch (need) {
    case SHARED_KEYS: return m->n_heads_per_key >= 4;
    case IMPORTANCE: return m->has_importance;
    case NO_IMPORTANCE: return !m->has_importance;
    case EXPERTS: return m->n_experts > 0;
    case EXPERTS_8: return m->n_experts == 8;
    default: return true;
    }
}

bool tern_convert_mix(const tern_convert_mixing *m, const char *name, tern_dtype *type) {
    mix_part part = part_of(name);
    if (m->mixture == TERN_TYPE_Q4_K || m->mixture == TERN_TYPE_Q5_K) return false; // no mixtures
    // Layers without attention have no values, and do not count there.
    int layer = layer_of(name), at = layer, n = m->n_layers;
    for (int i = 0; part == PART_V && m->has_values && i < m->n_layers; i++) {
        at -= i < layer && !m->has_values[i];
        n -= !m->has_values[i];
    }
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const rule *r = &rules[i];
        if (r->mixture != TERN_TYPE_AUTO && r->mixture != m->mixture) continue;
        bool is_part = r->part == part || (r->part == PART_OUTSIDE && !strstr(name, "_exps."));
        if (!is_part || !is_met(m, r->need) || !is_there(r->place, at, n)) continue;
        *type = r->type;
        return true;
    }
    return false;
}

tern_status tern_convert_read_mixing(conversion *c, tern_error *err) {
    const tern_config *k = &c->config;
    size_t n = (size_t)k->n_layers;
    char buffer[128];
    c->has_values = tern_alloc_array(TERN_MEM_FILE, n, sizeof *c->has_values);
    if (!c->has_values) return tern_fail_memory(err, n);
    for (size_t i = 0; i < c->file->n_tensors; i++) {
        const tern_tensor *t = &c->file->tensors[i];
        const char *name = tern_convert_gguf_name(c, t, buffer, sizeof buffer);
        int layer = layer_of(name);
        if (part_of(name) == PART_V && layer >= 0 && (size_t)layer < n) c->has_values[layer] = true;
    }
    c->mixing = (tern_convert_mixing){
        .mixture = c->desc->type,
        .n_layers = (int)n,
        .n_heads_per_key = k->n_kv_heads ? (int)(k->n_heads / k->n_kv_heads) : 1,
        .n_experts = (int)k->n_experts,
        .has_importance = c->desc->imatrix != NULL,
        .has_values = c->has_values,
    };
    return TERN_OK;
}
