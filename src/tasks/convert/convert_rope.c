// RoPE's scaling is numbers in config.json and tensors in GGUF: Llama 3's four numbers become one
// tensor of factors, and two sets of factors two.
#include "tasks/convert/convert_private.h"

#include <string.h>
#include "base/alloc.h"

static const char *const factor_names[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                           "rope_factors_long.weight"};

bool tern_convert_is_rope_factors(const char *name) {
    for (size_t i = 0; i < sizeof factor_names / sizeof *factor_names; i++)
        if (strcmp(name, factor_names[i]) == 0) return true;
    return false;
}

static tern_status read_factors(const conversion *c, const char *name, float *out,
                                tern_error *err) {
    const tern_tensor *t = tern_file_tensor(c->file, name);
    bool fits = t && t->ne[0] == (uint64_t)c->config.rope.n_rot / 2 && t->n_dims == 1 &&
                t->ne[0] <= TERN_ROPE_PAIRS_MAX;
    if (fits) return tern_tensor_decode(t, out, err);
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: not the factors of at most %d pairs, which config.json can have", name,
                     TERN_ROPE_PAIRS_MAX);
}

// Factors other than Llama 3's are written as two equal sets.
tern_status tern_convert_take_rope_factors(conversion *c, tern_error *err) {
    tern_rope_attrs *a = &c->config.rope;
    bool is_one = a->scaling == TERN_ROPE_FACTORS;
    if (c->to_gguf || (!is_one && a->scaling != TERN_ROPE_LONG)) return TERN_OK;
    for (int k = 0; k < 2; k++)
        TERN_TRY(read_factors(c, factor_names[is_one ? 0 : 1 + k], c->factors.of[k], err));
    if (!is_one || tern_rope_llama3_find(a, c->factors.of[0])) return TERN_OK;
    a->scaling = TERN_ROPE_LONG;
    a->n_context_orig = (int32_t)c->config.n_context;
    a->attn_factor = 1;
    return TERN_OK;
}

tern_status tern_convert_add_rope_factors(conversion *c, tern_error *err) {
    const int n = tern_config_n_rope_freqs(&c->config);
    if (!c->to_gguf || n == 0) return TERN_OK;
    c->rope_factors = tern_alloc_array(TERN_MEM_FILE, (size_t)n, sizeof(float));
    if (!c->rope_factors) return tern_fail_memory(err, (size_t)n * sizeof(float));
    tern_config_rope_freqs(&c->config, c->rope_factors);
    c->items[c->n_items++] = (item){.values = c->rope_factors,
                                    .n_values = (uint64_t)n,
                                    .name = "rope_freqs.weight",
                                    .type = TERN_DTYPE_F32};
    return TERN_OK;
}
