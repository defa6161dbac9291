// Prepares an item for the store: checks it, redacts it, cuts it into chunks, computes vectors. The
// store is not touched yet, so that no other process waits for a model.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/utf8.h"
#include "store/store.h"

// ---- Text ---------------------------------------------------------------------------------------

static tern_status check_text(const char *text, size_t n, const char *what, tern_error *err) {
    for (size_t at = 0; at < n;) {
        uint32_t code;
        int length = tern_utf8_decode(text + at, n - at, &code);
        if (length <= 0 || code == 0)
            return tern_fail(err, TERN_ERR_FORMAT, "%s: not text in UTF-8 at byte %zu", what,
                             at + 1);
        at += (size_t)length;
    }
    return TERN_OK;
}

typedef struct keeper { // collects the output of the caller's function
    tern_strbuf *out;
} keeper;

static bool keep_piece(void *user, const char *text, size_t n) {
    keeper *k = user;
    tern_strbuf_append(k->out, text, n);
    return !k->out->failed;
}

// Redacts by the rules, then by the caller's function.
static tern_status redact(const tern_memory_add_params *p, const tern_redactor *r, tern_str text,
                          tern_store_item *item, tern_strbuf *out, tern_error *err) {
    tern_strbuf ruled = {0};
    tern_status status =
        tern_redact(r, text.ptr, text.len, p->redact ? &ruled : out, &item->n_redacted, err);
    if (status == TERN_OK && p->redact) {
        keeper k = {out};
        if (!p->redact(p->user, tern_strbuf_text(&ruled), ruled.len, keep_piece, &k))
            status = tern_fail(err, TERN_ERR_CANCELLED, "refused by the caller's redaction");
        else if (out->len != ruled.len ||
                 memcmp(tern_strbuf_text(out), tern_strbuf_text(&ruled), ruled.len) != 0)
            item->n_redacted++;
        if (status == TERN_OK)
            status = check_text(tern_strbuf_text(out), out->len, "redaction", err);
    }
    tern_strbuf_free(&ruled);
    return status == TERN_OK && out->failed ? tern_fail_memory(err, text.len) : status;
}

// ---- Metadata -----------------------------------------------------------------------------------

typedef struct metadata_writer {
    const tern_memory_add_params *p;
    const tern_redactor *redactor;
    const tern_json_doc *doc;
    tern_store_item *item;
    tern_json_writer w;
} metadata_writer;

static tern_status put_metadata(metadata_writer *m, const char *key, const tern_json *value,
                                tern_error *err);

static tern_status put_members(metadata_writer *m, const tern_json *parent, tern_error *err) {
    const tern_json *at = tern_json_first(m->doc, parent);
    for (; at; at = tern_json_next(m->doc, parent, at)) {
        if (parent->type != TERN_JSON_OBJECT) {
            TERN_TRY(put_metadata(m, NULL, at, err));
            continue;
        }
        char *key = tern_strndup(TERN_MEM_MISC, at->text, at->n);
        if (!key) return tern_fail_memory(err, at->n);
        tern_status status = put_metadata(m, key, tern_json_value_of(m->doc, at), err);
        tern_free(key);
        TERN_TRY(status);
    }
    return TERN_OK;
}

// Numbers may be secrets, too: a number that a rule changes becomes a text.
static tern_status put_scalar(metadata_writer *m, const char *key, const tern_json *value,
                              tern_error *err) {
    tern_strbuf before = {0}, after = {0};
    tern_json_writer plain = {.out = &before};
    bool is_text = value->type == TERN_JSON_STRING;
    if (is_text)
        tern_strbuf_append(&before, value->text, value->n);
    else
        tern_json_put_value(&plain, NULL, m->doc, value);
    tern_status status = before.failed ? tern_fail_memory(err, value->n) : TERN_OK;
    if (status == TERN_OK)
        status = check_text(tern_strbuf_text(&before), before.len, "metadata", err);
    if (status == TERN_OK)
        status = redact(m->p, m->redactor, (tern_str){tern_strbuf_text(&before), before.len},
                        m->item, &after, err);
    bool same = after.len == before.len &&
                memcmp(tern_strbuf_text(&after), tern_strbuf_text(&before), before.len) == 0;
    if (status == TERN_OK && same)
        tern_json_put_value(&m->w, key, m->doc, value);
    else if (status == TERN_OK)
        tern_json_put_bytes(&m->w, key, tern_strbuf_text(&after), after.len);
    tern_strbuf_free(&before);
    tern_strbuf_free(&after);
    return status;
}

static tern_status put_metadata(metadata_writer *m, const char *key, const tern_json *value,
                                tern_error *err) {
    bool is_object = value->type == TERN_JSON_OBJECT;
    if (!is_object && value->type != TERN_JSON_ARRAY) return put_scalar(m, key, value, err);
    tern_json_open(&m->w, key, is_object ? '{' : '[');
    TERN_TRY(put_members(m, value, err));
    tern_json_close(&m->w, is_object ? '}' : ']');
    return TERN_OK;
}

static tern_status make_metadata(tern_store_item *out, const char *metadata,
                                 const tern_memory_add_params *p, const tern_redactor *r,
                                 tern_error *err) {
    tern_json_doc doc = {0};
    tern_status status = tern_json_parse(&doc, metadata, strlen(metadata), err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, "metadata");
    metadata_writer m = {p, r, &doc, out, {.out = &out->metadata}};
    if (!tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT))
        status = tern_fail(err, TERN_ERR_FORMAT, "metadata: expected a JSON object");
    else
        status = put_metadata(&m, NULL, tern_json_root(&doc), err);
    tern_json_free(&doc);
    return status == TERN_OK && out->metadata.failed ? tern_fail_memory(err, 1) : status;
}

// ---- Chunks and vectors -------------------------------------------------------------------------

static bool ends_with(const char *name, const char *const *ends) {
    size_t n = strlen(name);
    for (; *ends; ends++)
        if (n > strlen(*ends) && strcmp(name + n - strlen(*ends), *ends) == 0) return true;
    return false;
}

static tern_memory_format format_of(const tern_memory_item *item) {
    static const char *const markdown[] = {".md", ".markdown", ".mdx", NULL};
    static const char *const code[] = {".c",  ".h",   ".cc",   ".cpp",  ".hpp", ".py",   ".js",
                                       ".ts", ".tsx", ".jsx",  ".go",   ".rs",  ".java", ".kt",
                                       ".cs", ".rb",  ".php",  ".sh",   ".lua", ".sql",  ".swift",
                                       ".mk", ".css", ".json", ".yaml", ".yml", ".toml", NULL};
    if (item->format != TERN_MEMORY_AUTO || !item->source)
        return item->format ? item->format : TERN_MEMORY_TEXT;
    if (ends_with(item->source, markdown)) return TERN_MEMORY_MARKDOWN;
    return ends_with(item->source, code) ? TERN_MEMORY_CODE : TERN_MEMORY_TEXT;
}

// A chunk is embedded with its headings, which take tokens, too: hence three quarters of the
// model's limit.
static tern_status cut(tern_memory_store *s, tern_store_item *out, const tern_memory_item *item,
                       const tern_memory_add_params *p, tern_error *err) {
    size_t most = p->chunk_tokens ? (size_t)p->chunk_tokens : 256;
    if (s->model && s->embedding.max_length > 0 && most > (size_t)s->embedding.max_length * 3 / 4 &&
        !p->chunk_tokens)
        most = (size_t)s->embedding.max_length * 3 / 4;
    if (most < 1) most = 1;
    if (p->whole) most = SIZE_MAX / 8;
    size_t overlap = p->overlap_tokens < 0 || p->whole ? 0
                     : p->overlap_tokens               ? (size_t)p->overlap_tokens
                                                       : most / 8;
    tern_chunking how = {
        format_of(item), most, overlap < most ? overlap : most - 1, {tern_store_count_tokens, s}};
    return tern_chunk_text(&out->chunks, tern_strbuf_text(&out->text), out->text.len, &how, err);
}

// Appends a text to embed: a chunk under its headings.
static void put_chunk(const tern_store_item *item, size_t i, tern_strbuf *to) {
    const tern_text_chunk *c = &item->chunks.list[i];
    size_t begin = c->begin, end = c->end;
    tern_chunk_trim(tern_strbuf_text(&item->text), &begin, &end);
    if (c->n_heading) {
        tern_strbuf_append(to, tern_strbuf_text(&item->chunks.headings) + c->heading, c->n_heading);
        tern_strbuf_putc(to, '\n');
    }
    tern_strbuf_append(to, tern_strbuf_text(&item->text) + begin, end - begin);
}

static tern_status embed(tern_memory_store *s, tern_store_item *item,
                         const tern_memory_add_params *p, tern_error *err) {
    size_t n = item->chunks.n, width = (size_t)s->embedding.n_dims;
    tern_strbuf words = {0};
    tern_embed_text *texts = tern_alloc_array(TERN_MEM_MISC, n, sizeof *texts);
    item->vectors = tern_alloc_array(TERN_MEM_MISC, n * width, sizeof *item->vectors);
    tern_status status = TERN_OK;
    if (!texts || !item->vectors) status = tern_fail_memory(err, n * width * sizeof(float));
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        size_t before = words.len;
        put_chunk(item, i, &words);
        texts[i].n_bytes = words.len - before;
        if (words.failed) status = tern_fail_memory(err, words.len);
    }
    if (status == TERN_OK) {
        size_t at = 0;
        for (size_t i = 0; i < n; at += texts[i++].n_bytes) texts[i].text = words.ptr + at;
        const tern_embed_params params = {
            .prompt = s->document_prompt, .on_progress = p->on_progress, .user = p->user};
        status = tern_embed(s->model, texts, n, &params, item->vectors, err);
    }
    tern_free(texts);
    tern_strbuf_free(&words);
    return status;
}

// ---- Items --------------------------------------------------------------------------------------

static void compute_digest(tern_memory_store *s, tern_store_item *item) {
    uint64_t h = tern_hash64(0, tern_strbuf_text(&item->text), item->text.len);
    h = tern_hash64(h, tern_strbuf_text(&item->metadata), item->metadata.len);
    for (size_t i = 0; i < item->chunks.n; i++) { // the same if size_t has 4 bytes
        const uint64_t ends[] = {item->chunks.list[i].begin, item->chunks.list[i].end};
        h = tern_hash64(h, ends, sizeof ends);
    }
    item->digest = tern_mix64(h + (s->model ? 1 : 0)) >> 1; // SQLite's numbers have a sign
}

static tern_status make(tern_memory_store *s, tern_store_item *out, const tern_memory_item *item,
                        const tern_memory_add_params *p, const tern_redactor *r, tern_error *err) {
    const char *text = item->n_bytes ? item->text : "";
    TERN_TRY(check_text(text, item->n_bytes, item->source ? item->source : "text", err));
    TERN_TRY(redact(p, r, (tern_str){text, item->n_bytes}, out, &out->text, err));
    if (item->source) {
        out->has_source = true;
        TERN_TRY(check_text(item->source, strlen(item->source), "source", err));
        TERN_TRY(
            redact(p, r, (tern_str){item->source, strlen(item->source)}, out, &out->source, err));
    }
    TERN_TRY(make_metadata(out, item->metadata ? item->metadata : "{}", p, r, err));
    out->created = item->created;
    TERN_TRY(cut(s, out, item, p, err));
    if (out->chunks.n == 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: the text is empty",
                         item->source ? item->source : "text");
    compute_digest(s, out);
    return TERN_OK;
}

tern_status tern_store_make_item(tern_memory_store *s, tern_store_item *out,
                                 const tern_memory_item *item, const tern_memory_add_params *p,
                                 const tern_redactor *redactor, tern_error *err) {
    *out = (tern_store_item){0};
    tern_status status = make(s, out, item, p, redactor, err);
    if (status != TERN_OK) tern_store_free_item(out);
    return status;
}

tern_status tern_store_embed_item(tern_memory_store *s, tern_store_item *item,
                                  const tern_memory_add_params *p, tern_error *err) {
    return s->model ? embed(s, item, p, err) : TERN_OK;
}

void tern_store_free_item(tern_store_item *item) {
    tern_strbuf_free(&item->text);
    tern_strbuf_free(&item->source);
    tern_strbuf_free(&item->metadata);
    tern_text_chunks_free(&item->chunks);
    tern_free(item->vectors);
    *item = (tern_store_item){0};
}
