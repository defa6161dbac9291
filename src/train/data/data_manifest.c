// manifest.json: what a folder of shards was made of, and how.
#include <string.h>
#include "train/data/data.h"

static void put_split(tern_strbuf *out, const char *name, const tern_data_split *s) {
    tern_strbuf_printf(out,
                       "  \"%s\": {\"documents\": %llu, \"tokens\": %llu, \"unscored\": %llu, "
                       "\"text_bytes\": %llu, \"shards\": %d},\n",
                       name, (unsigned long long)s->n_documents, (unsigned long long)s->n_tokens,
                       (unsigned long long)s->n_unscored, (unsigned long long)s->n_bytes,
                       s->n_shards);
}

static void put_settings(tern_strbuf *out, const tern_data_manifest *m) {
    const tern_data_build_desc *d = m->desc;
    tern_strbuf_puts(out, "{\n  \"format\": \"tern shards\",\n  \"version\": 1,\n  \"licence\": ");
    if (d->licence)
        tern_strbuf_json(out, d->licence, strlen(d->licence));
    else
        tern_strbuf_puts(out, "null");
    tern_strbuf_puts(out, ",\n  \"tokenizer\": {\"file\": ");
    tern_strbuf_json(out, d->tokenizer, strlen(d->tokenizer));
    tern_strbuf_printf(out, ", \"hash\": \"%016llx\", \"vocabulary\": %u, \"end\": %d},\n",
                       (unsigned long long)m->shard->tokenizer_hash, m->shard->n_vocab,
                       m->shard->end_id);
    tern_strbuf_printf(out, "  \"held_out\": %.6g,\n  \"seed\": %llu,\n", d->valid,
                       (unsigned long long)d->seed);
    tern_strbuf_printf(out, "  \"dropped\": {\"same\": %s, \"near\": %s, \"threshold\": %.6g},\n",
                       !d->keep_exact || d->drop_near ? "true" : "false",
                       d->drop_near ? "true" : "false", d->threshold ? d->threshold : 0.8);
}

static void put_counts(tern_strbuf *out, const tern_data_build_stats *stats) {
    tern_strbuf_printf(out,
                       "  \"documents\": {\"read\": %llu, \"not_drawn\": %llu, \"same\": %llu, "
                       "\"near\": %llu},\n  \"shapes\": {",
                       (unsigned long long)stats->n_read, (unsigned long long)stats->n_not_drawn,
                       (unsigned long long)stats->n_same, (unsigned long long)stats->n_near);
    for (int i = 0; i < TERN_SHAPE_COUNT; i++)
        tern_strbuf_printf(out, "%s\"%s\": %llu", i ? ", " : "",
                           tern_data_shape_name((tern_data_shape)i),
                           (unsigned long long)stats->n_of_shape[i]);
    tern_strbuf_puts(out, "},\n");
}

static void put_sources(tern_strbuf *out, const tern_data_manifest *m) {
    tern_strbuf_puts(out, "  \"sources\": [");
    for (size_t i = 0; i < tern_documents_n_sources(m->documents); i++) {
        const tern_document_source *s = tern_documents_source(m->documents, i);
        tern_strbuf_puts(out, i ? ",\n    {\"file\": " : "\n    {\"file\": ");
        tern_strbuf_json(out, s->path, strlen(s->path));
        tern_strbuf_printf(out,
                           ", \"bytes\": %llu, \"crc32\": \"%08x\", \"weight\": %.6g, "
                           "\"documents\": %llu, \"kept\": %llu, \"train_tokens\": %llu}",
                           (unsigned long long)s->n_bytes, s->crc32, s->weight,
                           (unsigned long long)m->counts[i].n_read,
                           (unsigned long long)m->counts[i].n_kept,
                           (unsigned long long)m->counts[i].n_train_tokens);
    }
}

tern_status tern_data_put_manifest(tern_out_set *set, const tern_data_manifest *m,
                                   tern_error *err) {
    tern_strbuf out = {0};
    put_settings(&out, m);
    put_counts(&out, m->stats);
    put_split(&out, "train", &m->stats->train);
    put_split(&out, "valid", &m->stats->valid);
    put_sources(&out, m);
    tern_strbuf_printf(&out, "\n  ],\n  \"shards\": [%s\n  ]\n}\n", m->shards);
    tern_status status = out.failed ? tern_fail_memory(err, out.len)
                                    : tern_out_put(set, "manifest.json", out.ptr, out.len, err);
    tern_strbuf_free(&out);
    return status;
}
