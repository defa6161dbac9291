// A tokenizer as GGUF metadata, for conversion from tokenizer.json.
//
// Built on first use, since only conversion needs it, and then shared: to its users the tokenizer
// stays immutable.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "input/tokenizer/tok.h"

struct tern_export_store {
    tern_str *tokens, *merges;
    float *scores;
    int32_t *types;
    size_t n_vocab, n_merges;
    tern_strbuf text; // of merges, of names for ids without one, of tokens with a new spelling
};

void tern_export_store_free(tern_export_store *s) {
    if (!s) return;
    tern_free(s->tokens);
    tern_free(s->merges);
    tern_free(s->scores);
    tern_free(s->types);
    tern_strbuf_free(&s->text);
    tern_free(s);
}

static bool allocate(const tern_tokenizer *t, tern_export_store *s) {
    size_t n = (size_t)t->vocab.n;
    s->n_vocab = t->n_model_vocab > t->vocab.n ? (size_t)t->n_model_vocab : n;
    s->tokens = tern_alloc_array(TERN_MEM_TOKENIZER, s->n_vocab + 1, sizeof *s->tokens);
    s->types = tern_alloc_array(TERN_MEM_TOKENIZER, s->n_vocab + 1, sizeof *s->types);
    if (t->model == TERN_TOKENS_WORDPIECE) return s->tokens && s->types;
    if (t->byte_level)
        s->merges = tern_alloc_array(TERN_MEM_TOKENIZER, t->merges.n + 1, sizeof *s->merges);
    else
        s->scores = tern_alloc_array(TERN_MEM_TOKENIZER, s->n_vocab + 1, sizeof *s->scores);
    return s->tokens && s->types && (s->merges || s->scores);
}

// The text moves while it grows, so a string in it is first kept as its offset + 1, without
// pointer.
static tern_str placed(const tern_export_store *s, size_t from) {
    return (tern_str){NULL, s->text.len - from};
}

// In GGUF, BERT's first token of a word has a mark; in other files the rest have one. Names in
// brackets have no mark.
static bool spell_wordpiece(const tern_tokenizer *t, tern_export_store *s, tern_str text) {
    const tern_wordpiece *w = &t->wordpiece;
    bool named = text.len > 1 && *text.ptr == '[' && text.ptr[text.len - 1] == ']';
    if (w->n_first || named) return false;
    bool rest = text.len > w->n_rest && memcmp(text.ptr, w->rest, w->n_rest) == 0;
    size_t skip = rest ? w->n_rest : 0;
    if (!rest) tern_strbuf_puts(&s->text, TERN_SPACE_MARK);
    tern_strbuf_append(&s->text, text.ptr + skip, text.len - skip);
    return true;
}

static void spell_tokens(const tern_tokenizer *t, tern_export_store *s) {
    for (size_t i = 0; i < s->n_vocab; i++) {
        bool real = i < (size_t)t->vocab.n && t->vocab.types[i] != TERN_TOKEN_NONE;
        size_t from = s->text.len;
        if (!real) {
            tern_strbuf_printf(&s->text, "[PAD%zu]", i);
            s->tokens[i] = placed(s, from);
            s->types[i] = TERN_TOKEN_UNUSED;
            continue;
        }
        tern_str text = tern_vocab_text(&t->vocab, (int32_t)i);
        s->tokens[i] = text;
        s->types[i] = t->vocab.types[i];
        if (t->model == TERN_TOKENS_WORDPIECE && s->types[i] == TERN_TOKEN_NORMAL &&
            spell_wordpiece(t, s, text)) {
            s->tokens[i] = placed(s, from);
            continue;
        }
        if (s->types[i] != TERN_TOKEN_USER || !t->space_marks) continue;
        // Added tokens are matched in the raw text, where a space is a space.
        for (size_t k = 0; k < text.len;) {
            bool mark = text.len - k >= 3 && memcmp(text.ptr + k, TERN_SPACE_MARK, 3) == 0;
            tern_strbuf_append(&s->text, mark ? " " : text.ptr + k, 1);
            k += mark ? 3 : 1;
        }
        s->tokens[i] = placed(s, from);
    }
}

static int compare_orders(const void *a, const void *b) {
    uint32_t x = ((const tern_merge *)a)->order, y = ((const tern_merge *)b)->order;
    return (x > y) - (x < y);
}

static bool spell_merges(const tern_tokenizer *t, tern_export_store *s) {
    tern_merge *sorted = tern_alloc_array(TERN_MEM_MISC, t->merges.n + 1, sizeof *sorted);
    if (!sorted) return false;
    for (size_t i = 0; i < t->merges.n_slots; i++)
        if (t->merges.slots[i].left != UINT32_MAX) sorted[s->n_merges++] = t->merges.slots[i];
    qsort(sorted, s->n_merges, sizeof *sorted, compare_orders);
    for (size_t i = 0; i < s->n_merges; i++) {
        size_t from = s->text.len;
        tern_str left = tern_vocab_text(&t->vocab, (int32_t)sorted[i].left);
        tern_str right = tern_vocab_text(&t->vocab, (int32_t)sorted[i].right);
        tern_strbuf_append(&s->text, left.ptr, left.len);
        tern_strbuf_putc(&s->text, ' ');
        tern_strbuf_append(&s->text, right.ptr, right.len);
        s->merges[i] = placed(s, from);
    }
    tern_free(sorted);
    return true;
}

// The score of a token is minus the order of the first merge that makes it, so that the highest
// score merges first, as in the list. Characters, which are not made by a merge, come last.
static void score_tokens(const tern_tokenizer *t, tern_export_store *s) {
    float last = -(float)(t->merges.n + 1);
    for (size_t i = 0; i < s->n_vocab; i++)
        s->scores[i] = s->types[i] == TERN_TOKEN_NORMAL ? last : 0.0f;
    for (size_t i = 0; i < t->merges.n_slots; i++) {
        const tern_merge *m = &t->merges.slots[i];
        if (m->left == UINT32_MAX) continue;
        float score = -(float)m->order;
        if (score > s->scores[m->id] || s->types[m->id] != TERN_TOKEN_NORMAL)
            s->scores[m->id] = score;
    }
}

static void resolve(const tern_export_store *s, tern_str *list, size_t n, size_t *at) {
    for (size_t i = 0; i < n; i++) {
        if (list[i].ptr) continue;
        list[i].ptr = tern_strbuf_text(&s->text) + *at;
        *at += list[i].len;
    }
}

static tern_export_store *build(const tern_tokenizer *t) {
    tern_export_store *s = tern_alloc(TERN_MEM_TOKENIZER, sizeof *s);
    if (!s) return NULL;
    bool ok = allocate(t, s);
    if (ok) spell_tokens(t, s);
    if (ok && s->merges) ok = spell_merges(t, s);
    if (ok && s->scores && t->model == TERN_TOKENS_BPE && !t->orders) score_tokens(t, s);
    for (int32_t i = 0; ok && t->orders && i < t->vocab.n; i++)
        s->scores[i] = tern_score_of_order(t->orders[i]);
    for (int32_t i = 0; ok && t->model == TERN_TOKENS_UNIGRAM && i < t->vocab.n; i++)
        s->scores[i] = (float)t->unigram.scores[i];
    if (!ok || s->text.failed) {
        tern_export_store_free(s);
        return NULL;
    }
    size_t at = 0;
    resolve(s, s->tokens, s->n_vocab, &at);
    resolve(s, s->merges, s->n_merges, &at);
    return s;
}

static bool puts_space_in_front(const tern_tokenizer *t) {
    for (int i = 0; i < t->normalizer.n_steps; i++)
        if (t->normalizer.steps[i].kind == TERN_NORM_PREPEND) return true;
    for (int i = 0; i < t->splitter.n_steps; i++)
        if (t->splitter.steps[i].kind == TERN_STEP_METASPACE &&
            t->splitter.steps[i].prepend != TERN_PREPEND_NEVER)
            return true;
    return false;
}

// Whether several spaces become one: by a step, by an expression, or because words are split there.
static bool squeezes(const tern_tokenizer *t) {
    for (int i = 0; i < t->normalizer.n_steps; i++) {
        const tern_norm_step *s = &t->normalizer.steps[i];
        if (s->kind == TERN_NORM_SQUEEZE) return true;
        if (s->kind == TERN_NORM_REPLACE && s->pattern.text && !strcmp(s->pattern.text, " {2,}"))
            return true;
    }
    for (int i = 0; i < t->splitter.n_steps; i++)
        if (t->splitter.steps[i].pattern.kind == TERN_PATTERN_SPACE) return true;
    return false;
}

// GGUF has keys for three tokens that end a text. Tokens that readers find by name need none.
static void export_ends(const tern_tokenizer *t, tern_tokenizer_export *out) {
    for (size_t i = 0; i < t->n_ends; i++) {
        int32_t id = t->ends[i];
        if (id == out->eos || id == out->eot || tern_tokenizer_is_known_end(t, id)) continue;
        if (out->eot < 0)
            out->eot = id;
        else if (out->eom < 0)
            out->eom = id;
    }
}

tern_status tern_tokenizer_export_gguf(const tern_tokenizer *t, tern_tokenizer_export *out,
                                       tern_error *err) {
    bool pieces = t->model != TERN_TOKENS_BPE;
    if (t->byte_level && !t->pre)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tokenizer: GGUF has no name for the way this tokenizer splits text");
    if (!t->byte_level && !t->space_marks && !pieces)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "tokenizer: GGUF has no form for BPE that is neither byte-level nor "
                         "SentencePiece's");
    _Atomic(tern_export_store *) *slot = (_Atomic(tern_export_store *) *)(uintptr_t)&t->exported;
    tern_export_store *s = atomic_load(slot);
    if (!s) {
        tern_export_store *fresh = build(t);
        if (!fresh) return tern_fail_memory(err, (size_t)t->vocab.n * 32);
        if (atomic_compare_exchange_strong(slot, &s, fresh))
            s = fresh;
        else
            tern_export_store_free(fresh); // another thread was faster
    }
    // GGUF can end a text with its eos only. A tokenizer that ends texts with another token
    // (Qwen3-Embedding) gets that as eos, and its own eos as the end of a turn.
    int32_t end = t->n_suffix > 0 ? t->suffix[0] : t->eos;
    *out = (tern_tokenizer_export){
        .model = t->model == TERN_TOKENS_WORDPIECE ? "bert"
                 : t->model == TERN_TOKENS_UNIGRAM ? "t5"
                 : t->byte_level                   ? "gpt2"
                                                   : "llama",
        .pre = t->byte_level ? t->pre : "default",
        .tokens = s->tokens,
        .scores = s->scores,
        .types = s->types,
        .merges = s->merges,
        .n_vocab = s->n_vocab,
        .n_merges = s->n_merges,
        .bos = t->bos,
        .eos = end,
        .eot = end != t->eos ? t->eos : -1,
        .eom = -1,
        .unk = t->unk,
        .pad = t->pad,
        .add_bos = tern_tokenizer_adds_bos(t),
        .add_eos = t->n_suffix > 0,
        .add_space_prefix = !t->byte_level && puts_space_in_front(t),
        .squeezes = squeezes(t),
    };
    for (int i = 0; i < t->normalizer.n_steps; i++)
        if (t->normalizer.steps[i].kind == TERN_NORM_CHARSMAP)
            out->charsmap =
                (tern_str){t->normalizer.steps[i].content, t->normalizer.steps[i].n_content};
    export_ends(t, out);
    return TERN_OK;
}

tern_status tern_tokenizer_put_gguf(const tern_tokenizer *t, int32_t begin, tern_gguf_writer *w,
                                    tern_error *err) {
    tern_tokenizer_export e = {0};
    TERN_TRY(tern_tokenizer_export_gguf(t, &e, err));
    if (begin >= 0) {
        e.bos = begin;
        e.add_bos = true;
        if (e.eos < 0) e.eos = begin;
    }
    TERN_TRY(tern_gguf_put_str(w, "tokenizer.ggml.model", (tern_str){e.model, strlen(e.model)}));
    TERN_TRY(tern_gguf_put_str(w, "tokenizer.ggml.pre", (tern_str){e.pre, strlen(e.pre)}));
    TERN_TRY(tern_gguf_put_strings(w, "tokenizer.ggml.tokens", e.tokens, e.n_vocab));
    if (e.scores)
        TERN_TRY(
            tern_gguf_put_array(w, "tokenizer.ggml.scores", TERN_META_F32, e.scores, e.n_vocab));
    TERN_TRY(
        tern_gguf_put_array(w, "tokenizer.ggml.token_type", TERN_META_I32, e.types, e.n_vocab));
    if (e.merges) TERN_TRY(tern_gguf_put_strings(w, "tokenizer.ggml.merges", e.merges, e.n_merges));
    const struct {
        const char *key;
        int32_t id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", e.bos},     {"tokenizer.ggml.eos_token_id", e.eos},
        {"tokenizer.ggml.eot_token_id", e.eot},     {"tokenizer.ggml.eom_token_id", e.eom},
        {"tokenizer.ggml.unknown_token_id", e.unk}, {"tokenizer.ggml.padding_token_id", e.pad}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i].id >= 0) TERN_TRY(tern_gguf_put_int(w, ids[i].key, TERN_META_U32, ids[i].id));
    TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.add_bos_token", TERN_META_BOOL, e.add_bos));
    TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.add_eos_token", TERN_META_BOOL, e.add_eos));
    if (strcmp(e.model, "bert") == 0) { // ids around a text have other names
        int32_t cls = t->n_prefix ? t->prefix[0] : e.bos;
        if (cls >= 0)
            TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.cls_token_id", TERN_META_U32, cls));
        if (e.eos >= 0)
            TERN_TRY(
                tern_gguf_put_int(w, "tokenizer.ggml.seperator_token_id", TERN_META_U32, e.eos));
    } else if (t->n_between > 1) // RoBERTa's and XLM-R's pairs
        TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.seperator_token_id", TERN_META_U32,
                                   t->between[1]));
    bool unigram = strcmp(e.model, "t5") == 0;
    if (unigram)
        TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.remove_extra_whitespaces", TERN_META_BOOL,
                                   e.squeezes));
    if (e.charsmap.len)
        TERN_TRY(tern_gguf_put_array(w, "tokenizer.ggml.precompiled_charsmap", TERN_META_U8,
                                     e.charsmap.ptr, e.charsmap.len));
    if (unigram || strcmp(e.model, "llama") == 0)
        TERN_TRY(tern_gguf_put_int(w, "tokenizer.ggml.add_space_prefix", TERN_META_BOOL,
                                   e.add_space_prefix));
    return TERN_OK;
}
