// The identity of a run: everything that its numbers depend on.
//
// It is one flat JSON object. Each checkpoint carries it, and so does the first line of the log; a
// resuming run builds its identity and compares the two, member by member. Settings that only
// affect length or speed are not part of it: the number of steps, what is reported and kept,
// threads, devices, processes, and how many tokens are computed at once.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "train/trainer.h"

static const char *const recipes[] = {"bitnet", "paper", "llama"};
static const char *const schedules[] = {"auto", "two-stage", "cosine", "constant"};
// Checkpoints from before there was a choice have the first.
static const char *const optimizers[] = {"", ", adamw8bit", ", muon"};

// "8867123 tokens, 3f2a91c0": the shards' checksums stand for their contents.
static void put_data(tern_strbuf *out, const char *key, const tern_token_set *set,
                     tern_packing packing) {
    uint32_t sum = 0;
    uint64_t n_tokens = set ? tern_token_set_n_tokens(set) : 0;
    for (size_t i = 0; set && i < tern_token_set_n_shards(set); i++) {
        const tern_shard_info *s = tern_shard_get_info(tern_token_set_shard(set, i));
        const uint64_t parts[] = {s->n_tokens, s->n_documents, s->checksum};
        sum = tern_crc32(sum, parts, sizeof parts);
    }
    // Checkpoints from before there was a choice have the first.
    static const char *const packings[] = {"", ", bfd", ", none"};
    tern_strbuf_printf(out, ",\"%s\":\"%llu tokens, %08x%s\"", key, (unsigned long long)n_tokens,
                       sum, packings[packing]);
}

void tern_identity_put_data(const tern_trainer *t, tern_strbuf *out) {
    put_data(out, "data", t->data, t->desc.packing);
    put_data(out, "held_out", t->valid, t->desc.packing);
}

static void put_shape(tern_strbuf *out, const tern_config *c) {
    tern_strbuf_printf(out,
                       ",\"layers\":%lld,\"embd\":%lld,\"heads\":%lld,\"kv_heads\":%lld,"
                       "\"ff\":%lld,\"context\":%lld,\"act\":\"%s\",\"separate_head\":%s",
                       (long long)c->n_layers, (long long)c->n_embd, (long long)c->n_heads,
                       (long long)c->n_kv_heads, (long long)c->n_ff, (long long)c->n_context,
                       tern_act_name(c->act), c->tied_head ? "false" : "true");
}

// The shortest text that reads back as this float.
static void put_float(tern_strbuf *out, const char *key, float value) {
    char text[32];
    snprintf(text, sizeof text, "%.6g", (double)value);
    if (strtof(text, NULL) != value) snprintf(text, sizeof text, "%.9g", (double)value);
    tern_strbuf_printf(out, ",\"%s\":%s", key, text);
}

// 64-bit numbers are strings: a JSON number is a double.
static void put_course(tern_strbuf *out, const tern_trainer *t) {
    const tern_train_desc *d = &t->desc;
    tern_strbuf_printf(out, ",\"seq_len\":%d,\"batch_tokens\":%d,\"schedule\":\"%s%s", d->seq_len,
                       d->batch_tokens, schedules[d->schedule], optimizers[d->optimizer]);
    if (d->bf16_masters) tern_strbuf_puts(out, ", bf16 masters");
    tern_parts_describe(d, out);
    tern_strbuf_printf(out,
                       "\","
                       "\"warmup\":%lld,\"seed\":\"%llu\",\"in_order\":%s,\"assistant_only\":%s",
                       (long long)t->wished_warmup, (unsigned long long)d->seed,
                       d->in_order ? "true" : "false", d->assistant_only ? "true" : "false");
    put_float(out, "rate", d->rate);
    put_float(out, "rate_2", d->rate_2);
    put_float(out, "weight_decay", d->weight_decay);
    put_float(out, "clip", d->clip);
}

tern_status tern_identity_describe(const tern_trainer *t, tern_strbuf *out, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    tern_strbuf_printf(out, "{\"recipe\":\"%s\"", d->init ? t->arch->name : recipes[d->recipe]);
    put_shape(out, &t->config);
    put_course(out, t);
    tern_strbuf_printf(out, ",\"lora\":%d", d->lora_rank);
    put_float(out, "lora_alpha", d->lora_alpha);
    if (d->rslora) tern_strbuf_puts(out, ",\"rslora\":true");
    if (d->dora) tern_strbuf_puts(out, ",\"dora\":true");
    tern_strbuf_puts(out, ",\"lora_targets\":\"");
    if (t->base) tern_lora_put_targets(t->base, out);
    uint32_t init = t->base ? tern_lora_base_sum(t->base) : t->init_sum;
    tern_strbuf_printf(out, "\",\"init\":\"%08x\"", init);
    if (t->contrastive)
        tern_contrastive_describe(t, out);
    else if (t->preferring)
        tern_preferring_describe(t, out);
    else
        tern_identity_put_data(t, out);
    if (t->teacher) tern_teacher_describe(t, out);
    tern_qat_describe(t, out);
    tern_strbuf_printf(out, ",\"tokenizer\":\"%016llx\"}",
                       (unsigned long long)tern_tokenizer_hash(t->tokenizer));
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

// ---- Comparing ---------------------------------------------------------------------------------

static bool same(const tern_json *a, const tern_json *b) {
    if (!b || a->type != b->type) return false;
    switch (a->type) {
    case TERN_JSON_NUMBER: return a->number == b->number;
    case TERN_JSON_STRING: return tern_str_eq(tern_json_str(a), tern_json_str(b));
    default: return a->type == TERN_JSON_BOOL && a->n == b->n;
    }
}

static void put_value(tern_strbuf *out, const tern_json *v) {
    tern_str text = tern_json_str(v);
    if (text.ptr)
        tern_strbuf_append(out, text.ptr, text.len);
    else if (tern_json_is(v, TERN_JSON_NUMBER))
        tern_strbuf_printf(out, "%.9g", v->number);
    else if (tern_json_is(v, TERN_JSON_BOOL))
        tern_strbuf_puts(out, v->n ? "true" : "false");
    else
        tern_strbuf_puts(out, "unknown");
}

static void put_difference(tern_strbuf *out, const char *name, const tern_json *there,
                           const tern_json *here) {
    tern_strbuf_printf(out, "%s%s is ", out->len ? "; " : "", name);
    put_value(out, there);
    tern_strbuf_puts(out, " there and ");
    put_value(out, here);
    tern_strbuf_puts(out, " here");
}

// "rate is 0.006 there and 0.003 here; seed is ...": empty if nothing differs. Members that only a
// few runs have may be there and not here.
static void put_differences(tern_strbuf *out, const tern_json_doc *mine,
                            const tern_json_doc *theirs, const tern_json *run) {
    const tern_json *root = tern_json_root(mine);
    for (const tern_json *key = tern_json_first(mine, root); key;
         key = tern_json_next(mine, root, key)) {
        char name[32]; // the keys come from this file
        tern_str text = tern_json_str(key);
        snprintf(name, sizeof name, "%.*s", (int)text.len, text.ptr);
        const tern_json *here = tern_json_value_of(mine, key);
        const tern_json *there = tern_json_get(theirs, run, name);
        if (!same(here, there)) put_difference(out, name, there, here);
    }
    static const char *const rare[] = {"rslora", "dora", "teacher", "qat"};
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++) {
        const tern_json *there = tern_json_get(theirs, run, rare[i]);
        if (there && !tern_json_get(mine, root, rare[i])) put_difference(out, rare[i], there, NULL);
    }
}

tern_status tern_identity_compare(const tern_strbuf *mine, const tern_json_doc *doc,
                                  const tern_json *run, const char *place, tern_error *err) {
    tern_strbuf differences = {0};
    tern_json_doc parsed = {0};
    tern_status status = tern_json_parse(&parsed, mine->ptr, mine->len, err);
    if (status == TERN_OK) put_differences(&differences, &parsed, doc, run);
    if (status == TERN_OK && differences.failed) status = tern_fail_memory(err, mine->len);
    if (status == TERN_OK && differences.len)
        status =
            tern_fail(err, TERN_ERR_ARGUMENT, "%s is of another run: %s", place, differences.ptr);
    tern_json_free(&parsed);
    tern_strbuf_free(&differences);
    return status;
}

tern_status tern_identity_check(const tern_trainer *t, const tern_json_doc *doc,
                                const tern_json *run, const char *place, tern_error *err) {
    tern_strbuf mine = {0};
    tern_status status = tern_identity_describe(t, &mine, err);
    if (status == TERN_OK) status = tern_identity_compare(&mine, doc, run, place, err);
    tern_strbuf_free(&mine);
    return status;
}
