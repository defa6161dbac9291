// Which weights of a model are trained, and how fast.
//
// Frozen weights have neither gradients nor moments, and nothing is computed backwards below the
// lowest that is trained. Rates differ by layer (arXiv:1801.06146): layer l of n, counted from 1,
// has the rate times decay^(n - l), the table that of l = 0, what follows the layers the whole one.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "train/trainer.h"

// ---- Names -------------------------------------------------------------------------------------

static bool is_word(const char *word, const char *item, size_t n) {
    return word && strlen(word) == n && memcmp(word, item, n) == 0;
}

// "3" and "0-3" are numbers of layers.
static bool fits(const char *part, size_t n, const char *wanted, size_t n_wanted) {
    char *end;
    if (*wanted < '0' || *wanted > '9') return n == n_wanted && memcmp(part, wanted, n) == 0;
    if (*part < '0' || *part > '9') return false;
    long at = strtol(part, NULL, 10), first = strtol(wanted, &end, 10), last = first;
    if (*end == '-' && end < wanted + n_wanted) last = strtol(end + 1, &end, 10);
    return end == wanted + n_wanted && first <= at && at <= last;
}

// Whether the parts of `item` follow each other somewhere in `name`: "layers.0-3" does in
// "model.layers.2.mlp.up_proj.weight".
static bool has_parts(const char *name, const char *item, size_t n) {
    for (const char *begin = name; *begin; begin += strcspn(begin, "."), begin += *begin == '.') {
        const char *part = begin, *wanted = item, *end = item + n;
        while (wanted < end && *part) {
            size_t k = strcspn(part, "."), m = strcspn(wanted, ".,");
            if (!fits(part, k, wanted, m)) break;
            part += k + (part[k] == '.');
            wanted += m + (wanted + m < end);
            if (wanted == end) return true;
        }
    }
    return false;
}

static bool is_norm(const char *name) {
    const char *at = strstr(name, "norm");
    return at && !strchr(at + 4 + strspn(at + 4, "_0123456789"), '_');
}

static bool item_has(const tern_trainer *t, const char *name, const char *item, size_t n) {
    char hf[192];
    tern_role role = tern_arch_role(t->arch, name);
    if (is_word(tern_role_name(role), item, n)) return true;
    if (is_word("norm", item, n)) return is_norm(name);
    if (is_word("router", item, n)) return strstr(name, "ffn_gate_inp") != NULL;
    // A tied head is the table.
    if (is_word("lm_head", item, n) && t->config.tied_head && role == TERN_ROLE_TABLE) return true;
    if (has_parts(name, item, n)) return true;
    return tern_arch_name_to_hf(t->arch, name, hf, sizeof hf) && has_parts(hf, item, n);
}

// ---- Frozen ones -------------------------------------------------------------------------------

static tern_status freeze(const tern_trainer *t, const tern_graph *g, bool *frozen,
                          tern_error *err) {
    size_t n_trained = 0;
    for (const char *at = t->desc.freeze; *at;) {
        size_t n = strcspn(at, ","), n_found = 0;
        for (size_t v = 0; n && v < g->n_values; v++) {
            if (g->values[v].kind != TERN_VALUE_WEIGHT || !item_has(t, g->values[v].name, at, n))
                continue;
            frozen[v] = true;
            n_found++;
        }
        if (n_found == 0)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "train: freeze: no weight of this %s is '%.*s': expected some of "
                             "q,k,v,o,gate,up,down,norm,router, or parts of names in its folder "
                             "or GGUF, such as embed_tokens, lm_head, layers.0-3, self_attn, mlp",
                             t->arch->name, (int)(n < 64 ? n : 64), at);
        at += n + (at[n] == ',');
    }
    for (size_t v = 0; v < g->n_values; v++)
        n_trained += g->values[v].kind == TERN_VALUE_WEIGHT && !frozen[v] &&
                     !tern_tensor_is_sign(g->values[v].name);
    if (n_trained) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "train: freeze: '%s' leaves nothing to train",
                     t->desc.freeze);
}

tern_status tern_parts_frozen(const tern_trainer *t, const tern_graph *g, bool *frozen,
                              tern_error *err) {
    for (size_t v = 0; v < g->n_values; v++)
        frozen[v] = tern_value_is_teacher(&g->values[v]) ||
                    (t->base && !tern_lora_is_trained(&g->values[v]));
    return t->desc.freeze ? freeze(t, g, frozen, err) : TERN_OK;
}

tern_status tern_parts_check(const tern_train_desc *d, tern_error *err) {
    bool layers = d->layer_rate_decay != 0, embeddings = d->embedding_rate != 0;
    if (d->lora_rank && (d->freeze || layers || embeddings))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: freeze, layer_rate_decay and embedding_rate are of whole models: "
                         "the base of an adapter is frozen");
    if (d->bf16_masters && d->lora_rank)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: bf16_masters is for whole models: an adapter stays in floats");
    if (d->dora && !d->lora_rank)
        return tern_fail(err, TERN_ERR_ARGUMENT, "train: dora is a kind of adapter (lora_rank)");
    if (layers && !(d->layer_rate_decay > 0 && d->layer_rate_decay <= 1))
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "train: a layer_rate_decay of %g: expected more than 0, and at most 1",
                         (double)d->layer_rate_decay);
    if (!embeddings || (isfinite(d->embedding_rate) && d->embedding_rate > 0)) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "train: an embedding_rate of %g: expected more than 0",
                     (double)d->embedding_rate);
}

// ---- Rates -------------------------------------------------------------------------------------

static float factor_of(const tern_trainer *t, const char *name) {
    const tern_train_desc *d = &t->desc;
    tern_role role = tern_arch_role(t->arch, name);
    bool table = role == TERN_ROLE_TABLE;
    if (d->embedding_rate > 0 && (table || role == TERN_ROLE_HEAD))
        return d->embedding_rate / d->rate;
    int block = tern_tensor_block(name, NULL);
    int64_t above = table ? t->config.n_layers : block < 0 ? 0 : t->config.n_layers - 1 - block;
    return d->layer_rate_decay > 0 ? powf(d->layer_rate_decay, (float)above) : 1;
}

void tern_parts_set_rates(const tern_trainer *t, tern_graph *update) {
    for (size_t i = 0; i < update->n_nodes; i++) {
        tern_node *n = &update->nodes[i];
        if (n->op == TERN_OP_ADAMW || n->op == TERN_OP_ADAMW8 || n->op == TERN_OP_MUON)
            n->update.factor = factor_of(t, update->values[n->in[0]].name);
    }
}

void tern_parts_describe(const tern_train_desc *d, tern_strbuf *out) {
    if (d->freeze) tern_strbuf_printf(out, ", without %s", d->freeze);
    if (d->layer_rate_decay > 0)
        tern_strbuf_printf(out, ", layers %.9g", (double)d->layer_rate_decay);
    if (d->embedding_rate > 0)
        tern_strbuf_printf(out, ", embeddings %.9g", (double)d->embedding_rate);
}
