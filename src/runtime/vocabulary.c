// The bytes that a model's tokens add to a text, for grammars.
#include <string.h>
#include "base/alloc.h"
#include "runtime/runtime.h"

// bytes[i] is token i in the middle of a text. Control tokens, which have no text, get a byte that
// no other token contains, and their names.
static tern_status spell(const tern_model *m, tern_strbuf *pool, tern_str *bytes, size_t n,
                         tern_error *err) {
    for (size_t i = 0; i < n; i++) {
        tern_decoder d = {.started = true, .raw = true};
        size_t from = pool->len;
        tern_tokenizer_decode(m->tokenizer, &d, (int32_t)i, pool);
        if (pool->len > from && memchr(pool->ptr + from, TERN_CONTROL_SIGN, pool->len - from))
            pool->len = from;
        if (tern_tokenizer_is_control(m->tokenizer, (int32_t)i)) {
            tern_str name = tern_tokenizer_text(m->tokenizer, (int32_t)i);
            pool->len = from;
            tern_strbuf_putc(pool, (char)TERN_CONTROL_SIGN);
            tern_strbuf_append(pool, name.ptr, name.len);
        }
        bytes[i].len = pool->len - from;
    }
    if (pool->failed) return tern_fail_memory(err, pool->len);
    const char *at = tern_strbuf_text(pool);
    for (size_t i = 0; i < n; at += bytes[i++].len) bytes[i].ptr = at;
    return TERN_OK;
}

static tern_status build(const tern_model *m, tern_vocab_tree **out, tern_error *err) {
    tern_strbuf pool = {0};
    size_t n = (size_t)m->info.n_vocab, n_ends = 0; // ids above the tokenizer's are not its tokens
    const int32_t *all;
    size_t n_all = tern_tokenizer_ends(m->tokenizer, &all);
    tern_str *bytes = tern_alloc_array(TERN_MEM_MISC, n, sizeof *bytes);
    int32_t *ends = tern_alloc_array(TERN_MEM_MISC, n_all, sizeof *ends);
    tern_status status = TERN_OK;
    if (!bytes || !ends) status = tern_fail_memory(err, n * sizeof *bytes);
    for (size_t i = 0; i < n_all && ends; i++)
        if (all[i] < m->info.n_vocab) ends[n_ends++] = all[i];
    if (status == TERN_OK) status = spell(m, &pool, bytes, n, err);
    if (status == TERN_OK) status = tern_vocab_tree_open(out, bytes, n, ends, n_ends, err);
    tern_free(bytes);
    tern_free(ends);
    tern_strbuf_free(&pool);
    return status;
}

tern_status tern_model_vocab_tree(tern_model *m, const tern_vocab_tree **out, tern_error *err) {
    tern_status status = TERN_OK;
    *out = NULL;
    if (!m->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer", m->path);
    tern_mutex_lock(&m->vocab_lock);
    if (!m->vocab_tree) status = build(m, &m->vocab_tree, err);
    *out = m->vocab_tree;
    tern_mutex_unlock(&m->vocab_lock);
    return status;
}
