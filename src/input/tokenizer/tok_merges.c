// The list of merges, from texts to the table of ids.
//
// A large vocabulary has 280,000 merges, and each means three look-ups of texts and one insertion,
// nearly all of them cache misses. So merges are taken in batches and each batch in passes: one
// computes hashes and prefetches, the next one finds the memory in the cache.
#include <string.h>
#include "base/alloc.h"
#include "input/tokenizer/tok.h"

tern_status tern_merge_batch_add(tern_merge_batch *b, tern_str left, tern_str right, uint32_t order,
                                 tern_error *err) {
    tern_merge_text *m = &b->list[b->n++];
    *m = (tern_merge_text){
        .at = b->text.len, .n_left = left.len, .n_right = right.len, .order = order};
    tern_strbuf_append(&b->text, left.ptr, left.len);
    tern_strbuf_append(&b->text, right.ptr, right.len);
    if (b->text.failed) return tern_fail_memory(err, left.len + right.len);
    return b->n == TERN_MERGE_BATCH ? tern_merge_batch_flush(b, err) : TERN_OK;
}

// One of a merge's three texts: left, right, both.
static tern_str part(const tern_merge_batch *b, const tern_merge_text *m, int which) {
    const char *text = tern_strbuf_text(&b->text) + m->at;
    if (which == 1) return (tern_str){text + m->n_left, m->n_right};
    return (tern_str){text, which == 0 ? m->n_left : m->n_left + m->n_right};
}

tern_status tern_merge_batch_flush(tern_merge_batch *b, tern_error *err) {
    const tern_vocab *v = &b->t->vocab;
    tern_merges *merges = &b->t->merges;
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < 3; k++) {
            tern_str text = part(b, &b->list[i], k);
            b->list[i].hash[k] = tern_vocab_hash(text.ptr, text.len);
            __builtin_prefetch(&v->slots[b->list[i].hash[k] & (v->n_slots - 1)]);
        }
    for (int i = 0; i < b->n; i++) // the text of the likely entry, through its offset
        for (int k = 0; k < 3; k++) {
            uint32_t id_1 = v->slots[b->list[i].hash[k] & (v->n_slots - 1)].id_1;
            if (id_1) __builtin_prefetch(&v->offsets[id_1 - 1]);
        }
    for (int i = 0; i < b->n; i++) {
        tern_merge_text *m = &b->list[i];
        for (int k = 0; k < 3; k++) {
            tern_str text = part(b, m, k);
            m->id[k] = tern_vocab_find_hashed(v, m->hash[k], text.ptr, text.len);
        }
        __builtin_prefetch(tern_merges_slot(merges, m->id[0], m->id[1]));
    }
    for (int i = 0; i < b->n; i++) {
        const tern_merge_text *m = &b->list[i];
        if (m->id[0] < 0 || m->id[1] < 0 || m->id[2] < 0) {
            if (!b->strict) continue;
            return tern_fail(err, TERN_ERR_FORMAT,
                             "tokenizer: merge %u is not two tokens that make a third", m->order);
        }
        if (!tern_merges_add(merges, m->id[0], m->id[1], m->order, m->id[2]))
            return tern_fail(err, TERN_ERR_FORMAT,
                             "tokenizer: the merges are made to be slow (at %u)", m->order);
    }
    b->n = 0;
    tern_strbuf_clear(&b->text);
    return TERN_OK;
}
