// Pairs of texts for training an embedding model, or by preferences, as token ids in memory.
//
// For an embedding model a line of JSON is {"query": ..., "positive": ..., "negatives": [...]}: the
// positive is the right answer to the query, negatives are wrong ones that are hard to tell from
// it. The ids are those that tern_embed would make from the text, cut to the same length. A
// preference is a conversation with two answers, or with one and a label (data_chats.c), rendered
// by the model's template.
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "session/session.h"
#include "train/data/data.h"
#include "train/pairs.h"

// ---- Reading -----------------------------------------------------------------------------------

typedef struct reader {
    tern_pairs *pairs;
    tern_documents *documents;
    const tern_tokenizer *tokenizer;
    size_t length; // maximum tokens of a text
    size_t texts_capacity, firsts_capacity;
} reader;

static tern_status add_text(reader *r, tern_str text, tern_error *err) {
    tern_pairs *p = r->pairs;
    size_t first = p->ids.n;
    if (tern_array_reserve(TERN_MEM_FILE, &p->texts, &r->texts_capacity, p->n_texts, 1) != 0)
        return tern_fail_memory(err, sizeof *p->texts);
    if (text.len == 0) return tern_documents_fail(r->documents, "an empty text", err);
    TERN_TRY(
        tern_tokenizer_encode(r->tokenizer, text.ptr, text.len, TERN_TOKENIZE_BOS, &p->ids, err));
    size_t n = p->ids.n - first;
    if (n == 0) return tern_documents_fail(r->documents, "a text without a token", err);
    if (n > r->length) {
        TERN_TRY(tern_tokenizer_cut(r->tokenizer, p->ids.ids + first, &n, r->length, err));
        p->ids.n = first + n;
        p->n_cut++;
    }
    uint64_t key = tern_hash64(0, p->ids.ids + first, n * sizeof *p->ids.ids);
    p->texts[p->n_texts++] = (tern_pair_text){.first = first, .n = (int32_t)n, .key = key};
    p->checksum = tern_crc32(p->checksum, p->ids.ids + first, n * sizeof *p->ids.ids);
    return TERN_OK;
}

static tern_status add_negatives(reader *r, const tern_json *list, tern_error *err) {
    const tern_json_doc *doc = tern_documents_json(r->documents);
    const char *wrong = "\"negatives\" is not a list of at most 32 texts";
    int32_t n = 0;
    if (!list) return TERN_OK;
    if (!tern_json_is(list, TERN_JSON_ARRAY)) return tern_documents_fail(r->documents, wrong, err);
    for (const tern_json *j = tern_json_first(doc, list); j; j = tern_json_next(doc, list, j)) {
        tern_str text = tern_json_str(j);
        if (!text.ptr || ++n > TERN_NEGATIVES_MAX)
            return tern_documents_fail(r->documents, wrong, err);
        TERN_TRY(add_text(r, text, err));
    }
    if (n > r->pairs->n_negatives_most) r->pairs->n_negatives_most = n;
    return TERN_OK;
}

static tern_status add_pair(reader *r, tern_str query, tern_error *err) {
    tern_pairs *p = r->pairs;
    const tern_json_doc *doc = tern_documents_json(r->documents);
    const tern_json *root = doc ? tern_json_root(doc) : NULL;
    if (!tern_json_is(root, TERN_JSON_OBJECT))
        return tern_documents_fail(r->documents, "pairs are lines of JSON in a .jsonl file", err);
    tern_str positive = tern_json_str(tern_json_get(doc, root, "positive"));
    if (!positive.ptr) return tern_documents_fail(r->documents, "no text as \"positive\"", err);
    if (tern_array_reserve(TERN_MEM_FILE, &p->firsts, &r->firsts_capacity, p->n, 2) != 0)
        return tern_fail_memory(err, sizeof *p->firsts);
    p->firsts[p->n] = p->n_texts;
    TERN_TRY(add_text(r, query, err));
    TERN_TRY(add_text(r, positive, err));
    TERN_TRY(add_negatives(r, tern_json_get(doc, root, "negatives"), err));
    p->firsts[++p->n] = p->n_texts;
    return TERN_OK;
}

static tern_status read_all(reader *r, tern_error *err) {
    tern_document d;
    for (bool more = true;;) {
        TERN_TRY(tern_documents_next(r->documents, &d, &more, err));
        if (!more) return TERN_OK;
        if (d.chat) return tern_documents_fail(r->documents, "a chat is not a pair of texts", err);
        if (!d.is_rest) TERN_TRY(add_pair(r, d.text, err));
    }
}

tern_status tern_pairs_open(tern_pairs **out, const char *path, const tern_tokenizer *tokenizer,
                            int32_t length, tern_error *err) {
    *out = NULL;
    tern_pairs *p = tern_alloc(TERN_MEM_FILE, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    reader r = {.pairs = p, .tokenizer = tokenizer, .length = (size_t)length};
    tern_data_source source = {.paths = &path, .n_paths = 1, .field = "query"};
    tern_status status = tern_documents_open(&r.documents, &source, err);
    if (status == TERN_OK) status = read_all(&r, err);
    tern_documents_close(r.documents);
    if (status == TERN_OK && p->n == 0)
        status = tern_fail(err, TERN_ERR_ARGUMENT, "%s: there are no pairs in it", path);
    if (status == TERN_OK)
        *out = p;
    else
        tern_pairs_close(p);
    return status;
}

// ---- Preferences -------------------------------------------------------------------------------

typedef struct judge {
    tern_pairs *pairs;
    tern_documents *documents;
    const tern_preferences_source *source;
    size_t texts_capacity, firsts_capacity, labels_capacity;
    tern_data_chat chat;
    tern_ids prompt, answer, before; // before: the answer of the line before, without its prompt
    bool has_before;
} judge;

// The tokens of the prompt with an answer; NULL: of the prompt, up to where a model is to answer.
static tern_status encode_answer(judge *j, const char *answer, tern_ids *out, tern_error *err) {
    const tern_tokenizer *tokenizer = j->source->tokenizer;
    const char *wrong;
    tern_strbuf text = {0};
    tern_error inner = {0};
    out->n = 0;
    TERN_TRY(
        tern_data_chat_answer(&j->chat, tern_documents_json(j->documents), answer, &wrong, err));
    if (wrong) return tern_documents_fail(j->documents, wrong, err);
    const tern_strbuf *request = &j->chat.request;
    tern_status status = tern_template_chat_json(j->source->template, tokenizer, request->ptr,
                                                 request->len, &text, &inner);
    if (status == TERN_OK && text.failed) status = tern_fail_memory(&inner, text.len);
    if (status == TERN_OK)
        status =
            tern_chat_encode(tokenizer, (tern_str){tern_strbuf_text(&text), text.len}, out, &inner);
    tern_strbuf_free(&text);
    if (status == TERN_ERR_MEMORY) return tern_fail(err, status, "%s", inner.message);
    return status == TERN_OK ? status : tern_documents_fail(j->documents, inner.message, err);
}

static tern_status append(tern_ids *to, const int32_t *ids, size_t n, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_FILE, &to->ids, &to->capacity, to->n, n) != 0)
        return tern_fail_memory(err, n * sizeof *ids);
    if (n > 0) memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += n;
    return TERN_OK;
}

// A text of the first n_prompt tokens of a prompt, and an answer. *fits: something of it is left.
static tern_status put_text(judge *j, const int32_t *prompt, size_t n_prompt, tern_ids answer,
                            bool *fits, tern_error *err) {
    tern_pairs *p = j->pairs;
    size_t first = p->ids.n, n = n_prompt + answer.n, most = (size_t)j->source->length;
    if (tern_array_reserve(TERN_MEM_FILE, &p->texts, &j->texts_capacity, p->n_texts, 1) != 0)
        return tern_fail_memory(err, sizeof *p->texts);
    TERN_TRY(append(&p->ids, prompt, n_prompt, err));
    TERN_TRY(append(&p->ids, answer.ids, answer.n, err));
    if (n > most) {
        p->ids.n = first + most;
        p->n_cut++;
        n = most;
    }
    if (n_prompt == 0) n_prompt = 1; // nothing comes before the first token
    *fits &= n > n_prompt;
    const int32_t sizes[] = {(int32_t)n, (int32_t)n_prompt};
    p->checksum = tern_crc32(p->checksum, sizes, sizeof sizes);
    p->checksum = tern_crc32(p->checksum, p->ids.ids + first, n * sizeof *p->ids.ids);
    p->texts[p->n_texts++] =
        (tern_pair_text){.first = first, .n = (int32_t)n, .n_prompt = (int32_t)n_prompt};
    return TERN_OK;
}

// A prompt ends where its answer begins, even if the tokens of both together are others there.
static tern_status add_answer(judge *j, const char *name, bool *fits, tern_error *err) {
    TERN_TRY(encode_answer(j, name, &j->answer, err));
    size_t n_prompt = tern_ids_n_common(&j->prompt, &j->answer);
    tern_ids rest = {.ids = j->answer.ids + n_prompt, .n = j->answer.n - n_prompt};
    if (rest.n == 0) return tern_documents_fail(j->documents, "an answer without a token", err);
    return put_text(j, j->answer.ids, n_prompt, rest, fits, err);
}

static tern_status read_label(judge *j, tern_error *err) {
    const tern_json_doc *doc = tern_documents_json(j->documents);
    const tern_json *label = tern_json_get(doc, tern_json_root(doc), "label");
    tern_pairs *p = j->pairs;
    if (!tern_json_is(label, TERN_JSON_BOOL))
        return tern_documents_fail(j->documents, "a \"label\" that is neither true nor false", err);
    if (tern_array_reserve(TERN_MEM_FILE, &p->labels, &j->labels_capacity, p->n, 1) != 0)
        return tern_fail_memory(err, sizeof *p->labels);
    p->labels[p->n] = tern_json_bool(label, false);
    return TERN_OK;
}

static tern_status add_labelled(judge *j, bool *fits, tern_error *err) {
    TERN_TRY(read_label(j, err));
    TERN_TRY(add_answer(j, "completion", fits, err));
    // The first line has none before it: its own takes the place.
    size_t n_prompt = tern_ids_n_common(&j->prompt, &j->answer);
    const int32_t *own = j->answer.ids + n_prompt;
    if (!j->has_before) TERN_TRY(append(&j->before, own, j->answer.n - n_prompt, err));
    TERN_TRY(put_text(j, j->answer.ids, n_prompt, j->before, fits, err));
    j->has_before = true;
    j->before.n = 0;
    return append(&j->before, own, j->answer.n - n_prompt, err);
}

static tern_status add_preference(judge *j, const tern_data_chat *chat, tern_error *err) {
    tern_pairs *p = j->pairs;
    bool fits = true, labelled = j->source->labelled;
    size_t n_ids = p->ids.n, n_texts = p->n_texts;
    if (!chat || chat->shape != (labelled ? TERN_SHAPE_COMPLETION : TERN_SHAPE_PREFERENCE))
        return tern_documents_fail(j->documents,
                                   labelled ? "no \"prompt\" with \"completion\" and \"label\""
                                            : "no \"chosen\" and \"rejected\" answers",
                                   err);
    if (tern_array_reserve(TERN_MEM_FILE, &p->firsts, &j->firsts_capacity, p->n, 2) != 0)
        return tern_fail_memory(err, sizeof *p->firsts);
    p->firsts[p->n] = p->n_texts;
    TERN_TRY(encode_answer(j, NULL, &j->prompt, err));
    if (labelled)
        TERN_TRY(add_labelled(j, &fits, err));
    else {
        TERN_TRY(add_answer(j, "chosen", &fits, err));
        TERN_TRY(add_answer(j, "rejected", &fits, err));
    }
    if (fits) {
        p->firsts[++p->n] = p->n_texts;
        return TERN_OK;
    }
    p->ids.n = n_ids;
    p->n_texts = n_texts;
    p->n_without++;
    return TERN_OK;
}

static tern_status judge_all(judge *j, tern_error *err) {
    tern_document d;
    for (bool more = true;;) {
        TERN_TRY(tern_documents_next(j->documents, &d, &more, err));
        if (!more) return TERN_OK;
        if (!d.is_rest) TERN_TRY(add_preference(j, d.chat, err));
    }
}

tern_status tern_pairs_open_preferences(tern_pairs **out, const tern_preferences_source *source,
                                        tern_error *err) {
    *out = NULL;
    tern_pairs *p = tern_alloc(TERN_MEM_FILE, sizeof *p);
    if (!p) return tern_fail_memory(err, sizeof *p);
    judge j = {.pairs = p, .source = source};
    tern_data_source files = {.paths = &source->path, .n_paths = 1};
    tern_status status = tern_documents_open(&j.documents, &files, err);
    if (status == TERN_OK) status = judge_all(&j, err);
    tern_documents_close(j.documents);
    tern_data_chat_free(&j.chat);
    tern_free(j.prompt.ids);
    tern_free(j.answer.ids);
    tern_free(j.before.ids);
    if (status == TERN_OK && p->n == 0)
        status = tern_fail(err, TERN_ERR_ARGUMENT,
                           "%s: there are no preferences in it whose answers begin within %d "
                           "tokens",
                           source->path, (int)source->length);
    if (status == TERN_OK)
        *out = p;
    else
        tern_pairs_close(p);
    return status;
}

void tern_pairs_close(tern_pairs *p) {
    if (!p) return;
    tern_free(p->ids.ids);
    tern_free(p->texts);
    tern_free(p->firsts);
    tern_free(p->labels);
    tern_free(p);
}
