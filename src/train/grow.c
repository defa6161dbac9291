// A model that is tuned on data whose vocabulary has new tokens after its own (tern_data_build's
// add_tokens) gets rows for them.
//
// A new token's row begins as the mean of the rows of the tokens that its text was before, in the
// table and in a head of its own alike: so the model reads it at first as it read the text. Rows
// that a file has beyond its vocabulary are used first, as their ids come first.
#include <string.h>
#include "base/alloc.h"
#include "train/data/data.h"
#include "train/trainer.h"

// How many tokens `data` has after those of `own`; -1: it has others, or does not begin with them.
static int32_t count_new(const tern_tokenizer *own, const tern_tokenizer *data) {
    int32_t first = tern_tokenizer_n_named(own), n = tern_tokenizer_n_named(data);
    for (int32_t id = 0; id < first; id++)
        if (!tern_str_eq(tern_tokenizer_text(own, id), tern_tokenizer_text(data, id))) return -1;
    for (int32_t id = first; id < n; id++)
        if (!tern_tokenizer_is_user(data, id) && !tern_tokenizer_is_control(data, id)) return -1;
    return n > first ? n - first : -1;
}

// Appends what the text of a new token is before it is one.
static tern_status split(tern_trainer *t, tern_str text, size_t *end, tern_error *err) {
    tern_ids *pieces = &t->grown.pieces;
    size_t before = pieces->n;
    TERN_TRY(
        tern_tokenizer_encode(t->tokenizer, text.ptr, text.len, TERN_TOKENIZE_PLAIN, pieces, err));
    *end = pieces->n;
    for (size_t i = before; i < pieces->n; i++)
        if (pieces->ids[i] < 0 || pieces->ids[i] >= t->grown.n_rows) *end = before;
    if (*end > before) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: its tokenizer reads the new token '%.*s' as nothing, so there is "
                     "nothing that its row could begin as",
                     t->desc.init, (int)(text.len < 60 ? text.len : 60), text.ptr);
}

static tern_status grow(tern_trainer *t, const tern_tokenizer *data, tern_error *err) {
    tern_grown *g = &t->grown;
    tern_new_tokens added = {0};
    tern_status status = TERN_OK;
    g->ends = tern_alloc_array(TERN_MEM_TOKENIZER, (size_t)g->n, sizeof *g->ends);
    if (!g->ends) return tern_fail_memory(err, (size_t)g->n * sizeof *g->ends);
    for (int32_t i = 0; i < g->n && status == TERN_OK; i++) {
        tern_str text = tern_tokenizer_text(data, g->first + i);
        status = split(t, text, &g->ends[i], err);
        if (status == TERN_OK)
            status = tern_new_tokens_push(&added, text,
                                          tern_tokenizer_is_control(data, g->first + i), err);
    }
    if (status == TERN_OK)
        status = tern_new_tokens_add(&added, t->tokenizer_file, &t->tokenizer, err);
    tern_new_tokens_free(&added);
    int64_t n_vocab = tern_tokenizer_n_vocab(t->tokenizer);
    if (n_vocab > t->config.n_vocab) t->config.n_vocab = n_vocab;
    return status;
}

tern_status tern_grown_open(tern_trainer *t, tern_error *err) {
    tern_file *file = NULL;
    tern_tokenizer *data = NULL;
    TERN_TRY(tern_data_open_tokenizer(&file, t->desc.data, err));
    if (!file) return TERN_OK;
    tern_status status = tern_tokenizer_open(&data, file, err);
    int32_t n = status == TERN_OK ? count_new(t->tokenizer, data) : -1;
    if (n > 0 && t->base)
        status = tern_fail(err, TERN_ERR_UNSUPPORTED,
                           "%s: has %d new tokens, and an adapter has no rows for them: train the "
                           "whole model (without lora_rank) on it",
                           t->desc.data, (int)n);
    else if (n > 0) {
        t->grown = (tern_grown){
            .first = tern_tokenizer_n_named(t->tokenizer), .n = n, .n_rows = t->config.n_vocab};
        status = grow(t, data, err);
    }
    tern_tokenizer_free(data);
    tern_file_close(file);
    return status;
}

void tern_grown_close(tern_grown *g) {
    tern_free(g->pieces.ids);
    tern_free(g->ends);
    *g = (tern_grown){0};
}

bool tern_grown_has(const tern_trainer *t, const tern_slot *s) {
    tern_role role = t->grown.n ? tern_arch_role(t->arch, s->name) : TERN_ROLE_VECTOR;
    return (role == TERN_ROLE_TABLE || role == TERN_ROLE_HEAD) &&
           s->n_rows == (uint64_t)t->config.n_vocab;
}

void tern_grown_fill(const tern_trainer *t, const tern_slot *s, float *data) {
    const tern_grown *g = &t->grown;
    size_t n_cols = (size_t)s->n_cols, at = 0;
    for (int32_t i = 0; i < g->n; i++) {
        float *row = data + (size_t)(g->first + i) * n_cols;
        size_t begin = at, n = g->ends[i] - begin;
        memset(row, 0, n_cols * sizeof *row);
        for (; at < g->ends[i]; at++)
            for (size_t c = 0; c < n_cols; c++)
                row[c] += data[(size_t)g->pieces.ids[at] * n_cols + c];
        for (size_t c = 0; c < n_cols; c++) row[c] /= (float)n;
    }
}
