// Vectors of texts: each text's prompt and tokens, and the pooling of its vector.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/use.h"
#include "session/session.h"

struct tern_embedding {
    tern_use use;
    tern_reader reader;
    const tern_embed_text *texts;
    size_t next;      // the first text that is not in a step
    size_t n_waiting; // tokens of that text if it waits for the next step
    tern_embed_params params;
    const char *prefix; // before each text
    int32_t max_length, n_dims;
    tern_strbuf prefixed;
    float *out; // [n_texts, n_dims]
    float *own; // the same, or NULL: out is the caller's
};
typedef struct tern_embedding embedder;

// ---- What is asked for -------------------------------------------------------------------------

static tern_status find_prefix(embedder *e, tern_error *err) {
    const tern_embedding_info *info = &e->reader.m->embedding;
    const char *name = e->params.prompt ? e->params.prompt : info->default_prompt;
    e->prefix = e->params.prefix ? e->params.prefix : "";
    if (e->params.prefix || !name || !*name) return TERN_OK;
    tern_strbuf list = {0};
    for (size_t i = 0; i < info->n_prompts; i++) {
        if (strcmp(info->prompts[i].name, name) == 0) {
            e->prefix = info->prompts[i].text;
            tern_strbuf_free(&list);
            return TERN_OK;
        }
        tern_strbuf_printf(&list, "%s%s", i ? ", " : "", info->prompts[i].name);
    }
    tern_status status =
        tern_fail(err, TERN_ERR_ARGUMENT, "%s: the model has no prompt \"%s\": it has %s",
                  e->reader.m->path, name, info->n_prompts ? tern_strbuf_text(&list) : "none");
    tern_strbuf_free(&list);
    return status;
}

static tern_status settle(embedder *e, tern_error *err) {
    const tern_embed_params *p = &e->params;
    const tern_model *m = e->reader.m;
    const tern_embedding_info *info = &m->embedding;
    if (m->config.n_image)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the model makes vectors of images and of no texts", m->path);
    if (info->n_labels)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the model is a reranker: it makes scores and no vectors", m->path);
    if (info->n_dims == 0)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: the model's files do not say how it makes a vector of a text; a "
                         "pooling (mean, last or cls) that is given when it is opened does",
                         m->path);
    if (p->n_dims < 0 || p->n_dims > info->n_dims)
        return tern_fail(err, TERN_ERR_ARGUMENT, "n_dims is %d: expected 1 to %d, or 0 for all",
                         (int)p->n_dims, (int)info->n_dims);
    e->n_dims = p->n_dims ? p->n_dims : info->n_dims;
    e->reader.width = (size_t)info->n_dims;
    TERN_TRY(tern_reader_settle(&e->reader, p, info->max_length, &e->max_length, err));
    return find_prefix(e, err);
}

// ---- Tokens ------------------------------------------------------------------------------------

static tern_status take_ids(embedder *e, const tern_embed_text *text, tern_error *err) {
    for (size_t i = 0; i < text->n_ids; i++)
        if (text->ids[i] < 0 || text->ids[i] >= e->reader.m->config.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d at place %zu is not in 0..%lld",
                             (int)text->ids[i], i + 1, (long long)e->reader.m->config.n_vocab - 1);
    tern_ids *ids = &e->reader.ids;
    if (tern_array_reserve(TERN_MEM_SESSION, &ids->ids, &ids->capacity, ids->n, text->n_ids) != 0)
        return tern_fail_memory(err, text->n_ids * sizeof *ids->ids);
    if (text->n_ids) memcpy(ids->ids + ids->n, text->ids, text->n_ids * sizeof *ids->ids);
    ids->n += text->n_ids;
    return TERN_OK;
}

static tern_status encode(embedder *e, const tern_embed_text *text, tern_error *err) {
    const char *words = text->n_bytes ? text->text : "";
    size_t n = text->n_bytes;
    if (text->ids) return take_ids(e, text, err);
    if (!e->reader.m->tokenizer)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model has no tokenizer",
                         e->reader.m->path);
    if (*e->prefix) {
        tern_strbuf_clear(&e->prefixed);
        tern_strbuf_puts(&e->prefixed, e->prefix);
        tern_strbuf_append(&e->prefixed, words, n);
        if (e->prefixed.failed) return tern_fail_memory(err, n);
        words = tern_strbuf_text(&e->prefixed);
        n = e->prefixed.len;
    }
    return tern_tokenizer_encode(e->reader.m->tokenizer, words, n, TERN_TOKENIZE_BOS,
                                 &e->reader.ids, err);
}

// Appends the text's ids; *n: how many.
static tern_status add_text(embedder *e, const tern_embed_text *text, size_t i, size_t *n,
                            tern_error *err) {
    tern_ids *ids = &e->reader.ids;
    size_t before = ids->n;
    bool cut = false;
    TERN_TRY(encode(e, text, err));
    *n = ids->n - before;
    if (*n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "the text is empty: it has no token");
    if (*n > (size_t)e->max_length) {
        cut = true;
        if (text->ids)
            *n = (size_t)e->max_length;
        else
            TERN_TRY(tern_tokenizer_cut(e->reader.m->tokenizer, ids->ids + before, n,
                                        (size_t)e->max_length, err));
        ids->n = before + *n;
    }
    if (e->params.n_tokens) e->params.n_tokens[i] = (int64_t)*n;
    if (e->params.was_cut) e->params.was_cut[i] = cut;
    return TERN_OK;
}

// ---- Vectors -----------------------------------------------------------------------------------

// The leading part of a vector of length 1 is shorter: makes its length 1 again.
static void take(void *user, size_t text, const float *row) {
    const embedder *e = user;
    const tern_embedding_info *info = &e->reader.m->embedding;
    size_t n = (size_t)e->n_dims;
    float *out = e->out + text * n;
    double sum = 0;
    memcpy(out, row, n * sizeof *out);
    if (e->n_dims == info->n_dims || info->any_length) return;
    for (size_t i = 0; i < n; i++) sum += (double)row[i] * (double)row[i];
    double scale = 1 / fmax(sqrt(sum), 1e-12);
    for (size_t i = 0; i < n; i++) out[i] = (float)((double)row[i] * scale);
}

// ---- Steps -------------------------------------------------------------------------------------

// Puts texts into a step until it is full, and begins it; *done: no text was left.
static tern_status begin_step(embedder *e, bool *done, tern_error *err) {
    tern_reader *r = &e->reader;
    for (; e->next < r->n_texts; e->next++) {
        if (!e->n_waiting) {
            char which[40];
            snprintf(which, sizeof which, "text %zu", e->next + 1);
            tern_status status = add_text(e, &e->texts[e->next], e->next, &e->n_waiting, err);
            if (status != TERN_OK) return tern_fail_prefix(err, status, which);
        }
        if (tern_reader_is_full(r, e->n_waiting)) return tern_reader_begin(r, err);
        TERN_TRY(tern_reader_put(r, e->n_waiting, err));
        e->n_waiting = 0;
    }
    *done = r->n == 0;
    return *done ? TERN_OK : tern_reader_begin(r, err);
}

static tern_status go_on(embedder *e, bool *done, tern_error *err) {
    if (e->reader.is_running) {
        bool computed = false;
        TERN_TRY(tern_reader_poll(&e->reader, &computed, err));
        if (!computed) return TERN_OK;
    }
    if (e->use.is_closed) return tern_fail(err, TERN_ERR_CANCELLED, "the embedding was closed");
    return begin_step(e, done, err);
}

tern_status tern_embed_poll(tern_embedding *e, bool *done, const float **vectors, tern_error *err) {
    tern_clear(err);
    TERN_NEED(e);
    TERN_NEED(done);
    TERN_NEED(vectors);
    *done = false;
    *vectors = NULL;
    TERN_TRY(tern_use_begin(&e->use, "the embedding", err));
    tern_status status = go_on(e, done, err);
    const bool is_closed = tern_use_end(&e->use);
    if (*done && !is_closed) *vectors = e->out;
    if (is_closed) tern_embed_close(e);
    return status;
}

static tern_status check_texts(const tern_model *m, const tern_embed_text *texts, size_t n_texts,
                               tern_error *err) {
    TERN_NEED_ARRAY(texts, n_texts);
    for (size_t i = 0; i < n_texts; i++) {
        TERN_NEED_ARRAY(texts[i].text, texts[i].n_bytes);
        TERN_NEED_ARRAY(texts[i].ids, texts[i].n_ids);
    }
    if (!m->vocab_only) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
}

static tern_status need_vectors(embedder *e, tern_error *err) {
    const size_t n = e->reader.n_texts, row_bytes = (size_t)e->n_dims * sizeof *e->own;
    if (e->out || n == 0) return TERN_OK;
    e->out = e->own = tern_alloc_array(TERN_MEM_SESSION, n, row_bytes);
    return e->own ? TERN_OK : tern_fail_memory(err, n * row_bytes);
}

// vectors NULL: in memory of its own.
static tern_status embed_open(embedder **out, tern_model *m, const tern_embed_text *texts,
                              size_t n_texts, const tern_embed_params *params, float *vectors,
                              tern_error *err) {
    static const tern_embed_params defaults = {0};
    *out = NULL;
    TERN_NEED(m);
    TERN_TRY(check_texts(m, texts, n_texts, err));
    embedder *e = tern_alloc(TERN_MEM_SESSION, sizeof *e);
    if (!e) return tern_fail_memory(err, sizeof *e);
    *e = (embedder){.reader = {.m = m, .n_texts = n_texts, .output = "embedding"},
                    .texts = texts,
                    .params = params ? *params : defaults,
                    .out = vectors};
    tern_model_hold(m);
    e->reader.take = take;
    e->reader.user = e;
    tern_status status = settle(e, err);
    if (status == TERN_OK) status = need_vectors(e, err);
    if (status == TERN_OK)
        *out = e;
    else
        tern_embed_close(e);
    return status;
}

tern_status tern_embed_begin(tern_embedding **out, tern_model *m, const tern_embed_text *texts,
                             size_t n_texts, const tern_embed_params *params, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    return embed_open(out, m, texts, n_texts, params, NULL, err);
}

void tern_embed_close(tern_embedding *e) {
    if (!e || tern_use_waits(&e->use)) return;
    tern_reader_close(&e->reader);
    tern_strbuf_free(&e->prefixed);
    tern_free(e->own);
    tern_model_let_go(e->reader.m);
    tern_free(e);
}

tern_status tern_embed(tern_model *m, const tern_embed_text *texts, size_t n_texts,
                       const tern_embed_params *params, float *out, tern_error *err) {
    tern_clear(err);
    tern_embedding *e;
    const float *vectors;
    TERN_NEED_ARRAY(out, n_texts);
    TERN_TRY(embed_open(&e, m, texts, n_texts, params, out, err));
    tern_status status = TERN_OK;
    for (bool done = false; status == TERN_OK && !done;)
        status = tern_embed_poll(e, &done, &vectors, err);
    tern_embed_close(e);
    return status;
}
