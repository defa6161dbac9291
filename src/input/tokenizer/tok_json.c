// tokenizer.json, as Hugging Face's tokenizers library writes it: vocabulary, merges, added tokens,
// decoder and post-processor. Unsupported features are refused by name, since a tokenizer that is
// almost right makes a model silently wrong.
#include <string.h>
#include "base/alloc.h"
#include "input/tokenizer/tok.h"

#define HOLES_MAX 131072 // most ids without a token that are accepted

typedef struct reader {
    tern_tokenizer *t;
    const tern_file *file;
    tern_json_doc doc;
    const tern_json *model, *added;
    tern_str *texts; // [n]
    uint8_t *types;  // [n]
    int32_t n;
    uint64_t n_entries; // of vocabulary and added tokens
    tern_error *err;
} reader;

static const tern_json *get(const reader *r, const tern_json *object, const char *key) {
    return tern_json_get(&r->doc, object, key);
}

static tern_status unsupported(reader *r, const char *what, tern_str name) {
    return tern_fail(r->err, TERN_ERR_UNSUPPORTED, "tokenizer.json: %s \"%.*s\" is not supported",
                     what, (int)(name.len < 80 ? name.len : 80), name.ptr ? name.ptr : "");
}

// ---- Vocabulary ---------------------------------------------------------------------------------

static tern_status note_id(reader *r, tern_str text, const tern_json *id_value, int32_t *id) {
    if (!text.ptr)
        return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: an added token has no content");
    int64_t value = tern_json_int(id_value, -1);
    if (value < 0 || value >= TERN_VOCAB_MAX)
        return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: token \"%.*s\" has no usable id",
                         (int)(text.len < 80 ? text.len : 80), text.ptr ? text.ptr : "");
    *id = (int32_t)value;
    return TERN_OK;
}

static tern_status put_token(reader *r, tern_str text, int32_t id, tern_token_type type) {
    if (r->types[id] != TERN_TOKEN_NONE && !tern_str_eq(r->texts[id], text))
        return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: two tokens have the id %d", id);
    r->texts[id] = text;
    r->types[id] = (uint8_t)type;
    return TERN_OK;
}

static tern_token_type type_of_added(const reader *r, const tern_json *token, tern_str text) {
    if (!tern_json_bool(get(r, token, "special"), false)) return TERN_TOKEN_USER;
    bool unknown = tern_str_eq(text, tern_json_str(get(r, r->model, "unk_token")));
    return unknown ? TERN_TOKEN_UNKNOWN : TERN_TOKEN_CONTROL;
}

static void note_size(reader *r, int32_t id) {
    if (id >= r->n) r->n = id + 1;
    r->n_entries++;
}

// An entry of "vocab": "text": id; of a Unigram ["text", score], where the id is the place.
static tern_status read_entry(reader *r, const tern_json *entry, bool listed, int32_t place,
                              bool measure) {
    bool bytes = tern_json_bool(get(r, r->model, "byte_fallback"), false);
    tern_str text = tern_json_str(listed ? tern_json_first(&r->doc, entry) : entry);
    int32_t id = place;
    if (listed && (!text.ptr || place >= TERN_VOCAB_MAX))
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tokenizer.json: entry %d of model.vocab is not a text with its score",
                         (int)place);
    if (!listed) TERN_TRY(note_id(r, text, tern_json_value_of(&r->doc, entry), &id));
    if (measure) {
        note_size(r, id);
        return TERN_OK;
    }
    return put_token(r, text, id,
                     bytes && tern_byte_token_value(text) >= 0 ? TERN_TOKEN_BYTE
                                                               : TERN_TOKEN_NORMAL);
}

// Two passes over "vocab" and "added_tokens": the first finds the number of ids.
static tern_status read_tokens(reader *r, bool measure) {
    const tern_json *vocab = get(r, r->model, "vocab");
    bool listed = tern_json_is(vocab, TERN_JSON_ARRAY);
    int32_t id = 0;
    for (const tern_json *k = tern_json_first(&r->doc, vocab); k;
         k = tern_json_next(&r->doc, vocab, k), id++)
        TERN_TRY(read_entry(r, k, listed, id, measure));
    for (const tern_json *a = tern_json_first(&r->doc, r->added); a;
         a = tern_json_next(&r->doc, r->added, a)) {
        tern_str text = tern_json_str(get(r, a, "content"));
        TERN_TRY(note_id(r, text, get(r, a, "id"), &id));
        if (measure)
            note_size(r, id);
        else
            TERN_TRY(put_token(r, text, id, type_of_added(r, a, text)));
    }
    return TERN_OK;
}

static tern_status read_vocab(reader *r) {
    bool listed = r->t->model == TERN_TOKENS_UNIGRAM;
    if (!tern_json_is(get(r, r->model, "vocab"), listed ? TERN_JSON_ARRAY : TERN_JSON_OBJECT))
        return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: model.vocab is not an %s",
                         listed ? "array" : "object");
    TERN_TRY(read_tokens(r, true));
    // Ids without a token take as much memory as others: one large id must not take gigabytes.
    if ((uint64_t)r->n > 2 * r->n_entries + HOLES_MAX)
        return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: ids up to %d for %llu tokens",
                         (int)r->n - 1, (unsigned long long)r->n_entries);
    r->texts = tern_alloc_array(TERN_MEM_MISC, (size_t)r->n + 1, sizeof *r->texts);
    r->types = tern_alloc_array(TERN_MEM_MISC, (size_t)r->n + 1, sizeof *r->types);
    if (!r->texts || !r->types) return tern_fail_memory(r->err, (size_t)r->n * 17);
    TERN_TRY(read_tokens(r, false));
    return tern_vocab_init(&r->t->vocab, r->texts, r->types, r->n, r->err);
}

static tern_status read_merges(reader *r) {
    const tern_json *merges = get(r, r->model, "merges");
    if (!tern_json_is(merges, TERN_JSON_ARRAY))
        return tern_fail(r->err, TERN_ERR_FORMAT, "tokenizer.json: model.merges is not an array");
    TERN_TRY(tern_merges_init(&r->t->merges, merges->n, r->err));
    tern_merge_batch batch = {.t = r->t, .strict = true};
    tern_status status = TERN_OK;
    uint32_t order = 0;
    for (const tern_json *m = tern_json_first(&r->doc, merges); m && status == TERN_OK;
         m = tern_json_next(&r->doc, merges, m), order++) {
        tern_str left = tern_json_str(m), right = {0};
        const char *space = left.len > 1 ? memchr(left.ptr + 1, ' ', left.len - 1) : NULL;
        if (space) { // "left right"
            right = (tern_str){space + 1, left.len - (size_t)(space + 1 - left.ptr)};
            left.len = (size_t)(space - left.ptr);
        } else if (tern_json_is(m, TERN_JSON_ARRAY) && m->n == 2) {
            const tern_json *first = tern_json_first(&r->doc, m);
            left = tern_json_str(first);
            right = tern_json_str(tern_json_next(&r->doc, m, first));
        }
        status = tern_merge_batch_add(&batch, left, right, order, r->err);
    }
    if (status == TERN_OK) status = tern_merge_batch_flush(&batch, r->err);
    tern_strbuf_free(&batch.text);
    return status;
}

static tern_status find_model(reader *r) {
    static const char *const names[] = {[TERN_TOKENS_BPE] = "BPE",
                                        [TERN_TOKENS_WORDPIECE] = "WordPiece",
                                        [TERN_TOKENS_UNIGRAM] = "Unigram"};
    tern_str type = tern_json_str(get(r, r->model, "type"));
    if (!type.ptr) { // early files have no type
        r->t->model = get(r, r->model, "max_input_chars_per_word") ? TERN_TOKENS_WORDPIECE
                      : get(r, r->model, "unk_id")                 ? TERN_TOKENS_UNIGRAM
                                                                   : TERN_TOKENS_BPE;
        return TERN_OK;
    }
    for (int i = 0; i < 3; i++) {
        if (!tern_str_is(type, names[i])) continue;
        r->t->model = (tern_token_model)i;
        return TERN_OK;
    }
    return unsupported(r, "a model of type", type);
}

static tern_status read_wordpiece(reader *r) {
    tern_str prefix = tern_json_str(get(r, r->model, "continuing_subword_prefix"));
    int64_t most = tern_json_int(get(r, r->model, "max_input_chars_per_word"), 100);
    if (!prefix.ptr) prefix = TERN_STR("##");
    return tern_wordpiece_init(&r->t->wordpiece, (tern_str){0}, prefix, most, r->err);
}

static tern_status read_scores(reader *r) {
    tern_tokenizer *t = r->t;
    const tern_json *vocab = get(r, r->model, "vocab");
    int64_t unk = tern_json_int(get(r, r->model, "unk_id"), -1);
    t->unigram.scores =
        tern_alloc_array(TERN_MEM_TOKENIZER, (size_t)t->vocab.n + 1, sizeof(double));
    if (!t->unigram.scores) return tern_fail_memory(r->err, (size_t)t->vocab.n * 8);
    size_t i = 0;
    for (const tern_json *e = tern_json_first(&r->doc, vocab); e;
         e = tern_json_next(&r->doc, vocab, e), i++) {
        const tern_json *text = tern_json_first(&r->doc, e);
        const tern_json *score = tern_json_next(&r->doc, e, text);
        t->unigram.scores[i] = score ? tern_json_number(score, 0) : 0;
    }
    if (unk >= 0 && unk < t->vocab.n) {
        t->unk = (int32_t)unk;
        t->vocab.types[unk] = TERN_TOKEN_UNKNOWN;
    }
    return tern_unigram_init(t, r->err);
}

static tern_status read_model(reader *r) {
    static const char *const must_be_empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    tern_tokenizer *t = r->t;
    TERN_TRY(find_model(r));
    for (int i = 0; i < 2 && t->model == TERN_TOKENS_BPE; i++) {
        tern_str affix = tern_json_str(get(r, r->model, must_be_empty[i]));
        if (affix.len) return unsupported(r, must_be_empty[i], affix);
    }
    TERN_TRY(read_vocab(r));
    t->byte_fallback = tern_json_bool(get(r, r->model, "byte_fallback"), false);
    t->fuse_unk = tern_json_bool(get(r, r->model, "fuse_unk"), false);
    t->ignore_merges = tern_json_bool(get(r, r->model, "ignore_merges"), false);
    tern_str unk = tern_json_str(get(r, r->model, "unk_token"));
    t->unk = unk.ptr ? tern_vocab_find(&t->vocab, unk.ptr, unk.len) : -1;
    if (t->model == TERN_TOKENS_WORDPIECE) return read_wordpiece(r);
    return t->model == TERN_TOKENS_UNIGRAM ? read_scores(r) : TERN_OK;
}

static tern_status read_added(reader *r) {
    for (const tern_json *a = tern_json_first(&r->doc, r->added); a;
         a = tern_json_next(&r->doc, r->added, a)) {
        tern_added_token token = {
            .text = tern_json_str(get(r, a, "content")),
            .id = (int32_t)tern_json_int(get(r, a, "id"), -1),
            .special = tern_json_bool(get(r, a, "special"), false),
            .single_word = tern_json_bool(get(r, a, "single_word"), false),
            .lstrip = tern_json_bool(get(r, a, "lstrip"), false),
            .rstrip = tern_json_bool(get(r, a, "rstrip"), false),
        };
        if (!tern_json_bool(get(r, a, "normalized"), false)) {
            TERN_TRY(tern_added_push(&r->t->added[0], &token, r->err));
            continue;
        }
        // It is searched in normalized text, so it is normalized, too.
        tern_strbuf buffers[2] = {0};
        tern_matcher matcher = {0};
        tern_status status = TERN_OK;
        if (tern_unicode_is_valid(token.text.ptr, token.text.len))
            status = tern_normalizer_run(&r->t->normalizer, &matcher, buffers, &token.text.ptr,
                                         &token.text.len, r->err);
        if (status == TERN_OK) status = tern_added_push(&r->t->added[1], &token, r->err);
        tern_matcher_close(&matcher);
        tern_strbuf_free(&buffers[0]);
        tern_strbuf_free(&buffers[1]);
        TERN_TRY(status);
    }
    tern_added_sort(&r->t->added[0]);
    tern_added_sort(&r->t->added[1]);
    return TERN_OK;
}

// ---- Decoder and post-processor -----------------------------------------------------------------

static tern_status read_decoder(reader *r, const tern_json *d) {
    tern_tokenizer *t = r->t;
    tern_str type = tern_json_str(get(r, d, "type"));
    if (!tern_json_is(d, TERN_JSON_OBJECT)) return TERN_OK;
    if (tern_str_is(type, "Sequence")) {
        const tern_json *list = get(r, d, "decoders");
        for (const tern_json *e = tern_json_first(&r->doc, list); e;
             e = tern_json_next(&r->doc, list, e)) {
            if (tern_str_is(tern_json_str(get(r, e, "type")), "Sequence"))
                return unsupported(r, "inside a decoder the", TERN_STR("Sequence"));
            TERN_TRY(read_decoder(r, e));
        }
        return TERN_OK;
    }
    if (tern_str_is(type, "WordPiece") && t->model == TERN_TOKENS_WORDPIECE) {
        t->wordpiece.cleans_up = tern_json_bool(get(r, d, "cleanup"), true);
        return TERN_OK;
    }
    if (tern_str_is(type, "ByteLevel") || tern_str_is(type, "ByteFallback") ||
        tern_str_is(type, "Fuse"))
        return TERN_OK;
    if (tern_str_is(type, "Metaspace")) {
        tern_str scheme = tern_json_str(get(r, d, "prepend_scheme"));
        t->space_marks = true;
        t->strip_space =
            !tern_str_is(scheme, "never") && tern_json_bool(get(r, d, "add_prefix_space"), true);
        return TERN_OK;
    }
    if (tern_str_is(type, "Replace")) {
        tern_str from = tern_json_str(get(r, get(r, d, "pattern"), "String"));
        tern_str to = tern_json_str(get(r, d, "content"));
        if (!tern_str_is(from, TERN_SPACE_MARK) || !tern_str_is(to, " "))
            return unsupported(r, "a decoder that replaces", from);
        t->space_marks = true;
        return TERN_OK;
    }
    if (tern_str_is(type, "Strip") && tern_json_int(get(r, d, "stop"), 0) == 0 &&
        tern_str_is(tern_json_str(get(r, d, "content")), " ")) {
        t->strip_space = tern_json_int(get(r, d, "start"), 0) > 0;
        return TERN_OK;
    }
    return unsupported(r, "the decoder", type);
}

// The place of a token: before a text, between the texts of a pair, after the last one.
typedef enum place { BEFORE, BETWEEN, AFTER } place;

static tern_status add_frame(reader *r, place where, int64_t id) {
    tern_tokenizer *t = r->t;
    int *n = where == BEFORE ? &t->n_prefix : where == AFTER ? &t->n_suffix : &t->n_between;
    int32_t *ids = where == BEFORE ? t->prefix : where == AFTER ? t->suffix : t->between;
    if (id < 0 || id >= t->vocab.n || *n == TERN_FRAME_MAX)
        return tern_fail(r->err, TERN_ERR_FORMAT,
                         "tokenizer.json: post_processor adds a token that does not exist");
    ids[(*n)++] = (int32_t)id;
    return TERN_OK;
}

// The ids of a special token of a template.
static tern_status add_named(reader *r, const tern_json *table, tern_str name, place where) {
    for (const tern_json *k = tern_json_first(&r->doc, table); k;
         k = tern_json_next(&r->doc, table, k)) {
        if (!tern_str_eq(tern_json_str(k), name)) continue;
        const tern_json *ids = get(r, tern_json_value_of(&r->doc, k), "ids");
        for (const tern_json *i = tern_json_first(&r->doc, ids); i;
             i = tern_json_next(&r->doc, ids, i))
            TERN_TRY(add_frame(r, where, tern_json_int(i, -1)));
        return TERN_OK;
    }
    return TERN_OK;
}

// "single" has the ids around a text; from "pair" only the middle is used.
static tern_status read_template(reader *r, const tern_json *p) {
    const tern_json *table = get(r, p, "special_tokens");
    for (int pair = 0; pair < 2; pair++) {
        const tern_json *list = get(r, p, pair ? "pair" : "single");
        int n_texts = 0;
        for (const tern_json *e = tern_json_first(&r->doc, list); e;
             e = tern_json_next(&r->doc, list, e)) {
            n_texts += get(r, e, "Sequence") != NULL;
            tern_str name = tern_json_str(get(r, get(r, e, "SpecialToken"), "id"));
            if (!name.ptr || (pair && n_texts != 1)) continue;
            place where = pair ? BETWEEN : n_texts ? AFTER : BEFORE;
            TERN_TRY(add_named(r, table, name, where));
        }
    }
    return TERN_OK;
}

static tern_status read_post_processor(reader *r, const tern_json *p) {
    tern_str type = tern_json_str(get(r, p, "type"));
    if (!tern_json_is(p, TERN_JSON_OBJECT) || tern_str_is(type, "ByteLevel")) return TERN_OK;
    if (tern_str_is(type, "TemplateProcessing")) return read_template(r, p);
    if (tern_str_is(type, "RobertaProcessing") || tern_str_is(type, "BertProcessing")) {
        const tern_json *cls = get(r, p, "cls"), *sep = get(r, p, "sep"); // ["<s>", 0]
        for (int i = 0; i < 2; i++) {
            const tern_json *pair = i ? sep : cls, *name = tern_json_first(&r->doc, pair);
            const tern_json *id = name ? tern_json_next(&r->doc, pair, name) : NULL;
            TERN_TRY(add_frame(r, i ? AFTER : BEFORE, tern_json_int(id, -1)));
        }
        // RoBERTa's ends the first text and begins the second one.
        for (int i = tern_str_is(type, "BertProcessing") ? 1 : 0; i < 2; i++)
            TERN_TRY(add_frame(r, BETWEEN, r->t->suffix[0]));
        return TERN_OK;
    }
    if (!tern_str_is(type, "Sequence")) return unsupported(r, "the post-processor", type);
    const tern_json *list = get(r, p, "processors");
    for (const tern_json *e = tern_json_first(&r->doc, list); e;
         e = tern_json_next(&r->doc, list, e)) {
        if (tern_str_is(tern_json_str(get(r, e, "type")), "Sequence"))
            return unsupported(r, "inside a post-processor the", TERN_STR("Sequence"));
        TERN_TRY(read_post_processor(r, e));
    }
    return TERN_OK;
}

// ---- Special tokens -----------------------------------------------------------------------------

// tokenizer_config.json names tokens by text, plain or as {"content": text}.
static int32_t named_token(const reader *r, const char *key) {
    const tern_json_doc *c = &r->file->tokenizer_config;
    const tern_json *value = tern_json_get(c, tern_json_root(c), key);
    tern_str text = tern_json_str(value);
    if (!text.ptr) text = tern_json_str(tern_json_get(c, value, "content"));
    return text.ptr ? tern_vocab_find(&r->t->vocab, text.ptr, text.len) : -1;
}

// config.json and generation_config.json have ids, one or a list.
static int32_t token_id(const reader *r, const tern_json_doc *c, const char *key, bool ends) {
    const tern_json *value = tern_json_get(c, tern_json_root(c), key);
    if (!value) value = tern_json_get(c, tern_json_path(c, "text_config"), key);
    int64_t first = tern_json_int(value, -1);
    if (ends) tern_tokenizer_add_end(r->t, first);
    if (tern_json_is(value, TERN_JSON_ARRAY)) {
        first = tern_json_int(tern_json_first(c, value), -1);
        for (const tern_json *e = tern_json_first(c, value); ends && e;
             e = tern_json_next(c, value, e))
            tern_tokenizer_add_end(r->t, tern_json_int(e, -1));
    }
    return first >= 0 && first < r->t->vocab.n ? (int32_t)first : -1;
}

// add_bos_token and add_eos_token of tokenizer_config.json override the post-processor.
static void read_frame_switch(const reader *r, const char *key, int32_t id, int32_t *frame,
                              int *n_frame) {
    const tern_json_doc *c = &r->file->tokenizer_config;
    const tern_json *value = tern_json_get(c, tern_json_root(c), key);
    if (!tern_json_is(value, TERN_JSON_BOOL) || id < 0) return;
    if (tern_json_bool(value, false) && *n_frame == 0)
        frame[(*n_frame)++] = id;
    else if (!tern_json_bool(value, false) && *n_frame == 1 && frame[0] == id)
        *n_frame = 0;
}

static void read_specials(reader *r) {
    tern_tokenizer *t = r->t;
    const tern_json_doc *config = &r->file->config, *generation = &r->file->generation_config;
    t->bos = named_token(r, "bos_token");
    t->eos = named_token(r, "eos_token");
    t->pad = named_token(r, "pad_token");
    if (t->unk < 0) t->unk = named_token(r, "unk_token");
    int32_t eos = token_id(r, config, "eos_token_id", true);
    int32_t eos_generation = token_id(r, generation, "eos_token_id", true);
    if (t->eos < 0) t->eos = eos >= 0 ? eos : eos_generation;
    if (t->bos < 0) t->bos = token_id(r, config, "bos_token_id", false);
    // For BERT, and for a folder without those files.
    if (t->bos < 0 && t->n_prefix == 1) t->bos = t->prefix[0];
    if (t->eos < 0 && t->n_suffix == 1) t->eos = t->suffix[0];
    tern_tokenizer_add_end(t, t->eos);
    tern_tokenizer_add_known_ends(t);
    read_frame_switch(r, "add_bos_token", t->bos, t->prefix, &t->n_prefix);
    read_frame_switch(r, "add_eos_token", t->eos, t->suffix, &t->n_suffix);
    int64_t rows = tern_json_int(tern_json_path(config, "vocab_size"), 0);
    if (rows <= 0) rows = tern_json_int(tern_json_path(config, "text_config.vocab_size"), 0);
    t->n_model_vocab = rows > 0 && rows <= TERN_VOCAB_MAX ? (int32_t)rows : 0;
}

static tern_status read_all(reader *r) {
    const tern_json *root = tern_json_root(&r->doc);
    tern_tokenizer *t = r->t;
    r->model = get(r, root, "model");
    r->added = get(r, root, "added_tokens");
    TERN_TRY(read_model(r));
    TERN_TRY(tern_tokenizer_json_normalizer(t, &r->doc, get(r, root, "normalizer"), r->err));
    TERN_TRY(tern_tokenizer_json_splitter(t, &r->doc, get(r, root, "pre_tokenizer"), r->err));
    TERN_TRY(read_decoder(r, get(r, root, "decoder")));
    TERN_TRY(read_post_processor(r, get(r, root, "post_processor")));
    tern_tokenizer_index_bytes(t);
    if (t->model == TERN_TOKENS_BPE) TERN_TRY(read_merges(r));
    TERN_TRY(read_added(r));
    read_specials(r);
    t->pre = t->byte_level ? tern_pre_name(&t->splitter, t->ignore_merges) : NULL;
    return TERN_OK;
}

tern_status tern_tokenizer_load_json(tern_tokenizer *t, const tern_file *file, tern_error *err) {
    reader r = {.t = t, .file = file, .err = err};
    tern_status status =
        tern_json_parse(&r.doc, file->tokenizer_json.ptr, file->tokenizer_json.len, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, "tokenizer.json");
    status = read_all(&r);
    tern_json_free(&r.doc);
    tern_free(r.texts);
    tern_free(r.types);
    return status;
}
