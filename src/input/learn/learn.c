#include "input/learn/learn.h"

#include <string.h>
#include "base/alloc.h"

struct tern_bpe_trainer {
    tern_bpe_desc desc;
    const tern_pre *pre;
    tern_splitter splitter;
    tern_pieces pieces;
    tern_strbuf repaired;
    tern_words words;
    tern_learned learned;
    tern_bpe_stats stats;
    bool finished;
};

static tern_status open_trainer(tern_bpe_trainer *t, tern_error *err) {
    tern_bpe_desc *d = &t->desc;
    const char *name = d->pre ? d->pre : "llama-bpe";
    if (!d->min_count) d->min_count = 2;
    if (!d->n_bytes_max) d->n_bytes_max = (size_t)512 << 20;
    t->words.n_bytes_max = d->n_bytes_max;
    t->pre = tern_pre_find((tern_str){name, strlen(name)});
    if (!t->pre || tern_pre_is_raw(t->pre))
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "'%s' is not a known way to split text; llama-bpe, qwen2 and gpt-2 are some", name);
    if (d->n_vocab < 0 || d->n_vocab > TERN_VOCAB_MAX || d->n_specials > 4096 ||
        (size_t)d->n_vocab < 256 + d->n_specials)
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "a vocabulary of %d: expected from %zu (the bytes and special tokens) to %d",
            d->n_vocab, 256 + d->n_specials, TERN_VOCAB_MAX);
    return tern_pre_add_steps(t->pre, &t->splitter, err);
}

tern_status tern_bpe_trainer_open(tern_bpe_trainer **out, const tern_bpe_desc *desc,
                                  tern_error *err) {
    tern_bpe_trainer *t = tern_alloc(TERN_MEM_TOKENIZER, sizeof *t);
    *out = NULL;
    if (!t) return tern_fail_memory(err, sizeof *t);
    t->desc = *desc;
    tern_status status = open_trainer(t, err);
    if (status != TERN_OK)
        tern_bpe_trainer_free(t);
    else
        *out = t;
    return status;
}

tern_status tern_bpe_trainer_add(tern_bpe_trainer *t, const char *text, size_t n, tern_error *err) {
    if (n > TERN_TEXT_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "a text of %zu bytes; %d are possible", n,
                         TERN_TEXT_MAX);
    t->stats.n_bytes += n;
    if (!tern_unicode_is_valid(text, n)) {
        tern_strbuf_clear(&t->repaired);
        tern_unicode_repair(&t->repaired, text, n);
        if (t->repaired.failed) return tern_fail_memory(err, n);
        text = tern_strbuf_text(&t->repaired);
        n = t->repaired.len;
    }
    TERN_TRY(tern_splitter_run(&t->splitter, text, n, true, &t->pieces, err));
    for (size_t i = 0; i < t->pieces.n; i++) {
        tern_piece p = t->pieces.list[i];
        TERN_TRY(tern_words_add(&t->words, t->pieces.text + p.at, p.n, err));
    }
    return TERN_OK;
}

tern_status tern_bpe_trainer_finish(tern_bpe_trainer *t, tern_strbuf *json, tern_error *err) {
    if (t->finished) return tern_fail(err, TERN_ERR_ARGUMENT, "the vocabulary is learnt already");
    t->stats = tern_bpe_trainer_stats(t); // before the words are consumed
    t->finished = true;
    TERN_TRY(tern_learn_merges(&t->learned, &t->words, &t->desc, err));
    t->stats.n_tokens = t->learned.n_tokens;
    t->stats.n_merges = t->learned.n_merges;
    tern_learned_write_json(&t->learned, t->pre, !t->desc.no_bos, json);
    return json->failed ? tern_fail_memory(err, json->capacity * 2) : TERN_OK;
}

tern_bpe_stats tern_bpe_trainer_stats(const tern_bpe_trainer *t) {
    tern_bpe_stats stats = t->stats;
    if (t->finished) return stats;
    stats.n_words = t->words.n_seen;
    stats.n_different = t->words.n;
    stats.n_forgotten = t->words.n_forgotten;
    stats.n_too_long = t->words.n_too_long;
    return stats;
}

void tern_bpe_trainer_free(tern_bpe_trainer *t) {
    if (!t) return;
    tern_splitter_close(&t->splitter);
    tern_pieces_free(&t->pieces);
    tern_strbuf_free(&t->repaired);
    tern_words_free(&t->words);
    tern_learned_free(&t->learned);
    tern_free(t);
}
