// A vocabulary merged by scores (GGUF files of SentencePiece models) as a tokenizer.json: BPE over
// characters with bytes as a last resort, the form of Hugging Face's conversion of SentencePiece
// models.
//
// That form has a list of merges. A token can be made of any two tokens whose texts join to its
// text; the list has all of these pairs, ordered by the token's score, and for one token by the ids
// of left and right.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "input/tokenizer/tok.h"

typedef struct pair {
    uint32_t order; // of the resulting token: smaller comes first
    int32_t left, right;
} pair;

typedef struct pairs {
    pair *list;
    size_t n, capacity;
} pairs;

static bool is_added(const tern_tokenizer *t, int32_t id, bool *special) {
    tern_token_type type = (tern_token_type)t->vocab.types[id];
    *special = type == TERN_TOKEN_CONTROL || type == TERN_TOKEN_UNKNOWN;
    return *special || type == TERN_TOKEN_USER;
}

static bool is_mergeable(const tern_tokenizer *t, int32_t id) {
    tern_str text = tern_vocab_text(&t->vocab, id);
    // In the list a space separates left and right; merged texts have none, as spaces have become
    // marks.
    return text.len > 1 && !memchr(text.ptr, ' ', text.len) &&
           tern_vocab_find_plain(&t->vocab, text.ptr, text.len) == id;
}

static int compare(const void *a, const void *b) {
    const pair *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

static tern_status find_pairs(const tern_tokenizer *t, pairs *out, tern_error *err) {
    const tern_vocab *v = &t->vocab;
    for (int32_t id = 0; id < v->n; id++) {
        if (!is_mergeable(t, id)) continue;
        tern_str text = tern_vocab_text(v, id);
        for (size_t at = 1; at < text.len; at++) {
            if ((text.ptr[at] & 0xC0) == 0x80) continue; // inside a character
            int32_t left = tern_vocab_find_plain(v, text.ptr, at);
            int32_t right = left < 0 ? -1 : tern_vocab_find_plain(v, text.ptr + at, text.len - at);
            if (right < 0) continue;
            if (tern_array_reserve(TERN_MEM_MISC, &out->list, &out->capacity, out->n, 1) != 0)
                return tern_fail_memory(err, (out->n + 1) * sizeof *out->list);
            out->list[out->n++] = (pair){t->orders[id], left, right};
        }
    }
    if (out->n) qsort(out->list, out->n, sizeof *out->list, compare);
    return TERN_OK;
}

static void put_added_tokens(const tern_tokenizer *t, tern_strbuf *out) {
    bool special, first = true;
    tern_strbuf_puts(out, "  \"added_tokens\": [");
    for (int32_t id = 0; id < t->vocab.n; id++) {
        if (!is_added(t, id, &special)) continue;
        tern_str text = tern_vocab_text(&t->vocab, id);
        tern_strbuf_printf(out, "%s    {\"id\": %d, \"content\": ", first ? "\n" : ",\n", (int)id);
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_printf(out,
                           ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                           "\"normalized\": false, \"special\": %s}",
                           special ? "true" : "false");
        first = false;
    }
    tern_strbuf_puts(out, "\n  ],\n");
}

#define MARK "\"\xE2\x96\x81\""

// Writes the steps that put marks before a text and in place of spaces, and those that undo that.
static void put_spaces(const tern_tokenizer *t, tern_strbuf *out) {
    tern_strbuf_puts(out, "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [\n");
    if (t->strip_space)
        tern_strbuf_puts(out, "    {\"type\": \"Prepend\", \"prepend\": " MARK "},\n");
    tern_strbuf_puts(
        out, "    {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": " MARK
             "}\n  ]},\n  \"pre_tokenizer\": null,\n"
             "  \"decoder\": {\"type\": \"Sequence\", \"decoders\": [\n"
             "    {\"type\": \"Replace\", \"pattern\": {\"String\": " MARK
             "}, \"content\": \" \"},\n    {\"type\": \"ByteFallback\"},\n"
             "    {\"type\": \"Fuse\"}");
    if (t->strip_space)
        tern_strbuf_puts(
            out, ",\n    {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
    tern_strbuf_puts(out, "\n  ]},\n");
}

static void put_vocabulary(const tern_tokenizer *t, tern_strbuf *out) {
    bool first = true;
    for (int32_t id = 0; id < t->vocab.n; id++) {
        tern_str text = tern_vocab_text(&t->vocab, id);
        // A JSON object can hold only one of two entries with the same text: the one that look-up
        // finds.
        if (!text.len || tern_vocab_find(&t->vocab, text.ptr, text.len) != id) continue;
        tern_strbuf_puts(out, first ? "\n      " : ",\n      ");
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_printf(out, ": %d", (int)id);
        first = false;
    }
}

static void put_model(const tern_tokenizer *t, const pairs *merges, tern_strbuf *out) {
    tern_str unk = t->unk >= 0 ? tern_vocab_text(&t->vocab, t->unk) : (tern_str){NULL, 0};
    tern_strbuf_puts(out, "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
    if (unk.ptr)
        tern_strbuf_json(out, unk.ptr, unk.len);
    else
        tern_strbuf_puts(out, "null");
    tern_strbuf_puts(out, ",\n    \"continuing_subword_prefix\": null, "
                          "\"end_of_word_suffix\": null,\n    \"fuse_unk\": true, "
                          "\"byte_fallback\": true, \"ignore_merges\": false,\n    \"vocab\": {");
    put_vocabulary(t, out);
    tern_strbuf_puts(out, "\n    },\n    \"merges\": [");
    tern_strbuf both = {0};
    for (size_t i = 0; i < merges->n; i++) {
        tern_str left = tern_vocab_text(&t->vocab, merges->list[i].left);
        tern_str right = tern_vocab_text(&t->vocab, merges->list[i].right);
        tern_strbuf_clear(&both);
        tern_strbuf_append(&both, left.ptr, left.len);
        tern_strbuf_putc(&both, ' ');
        tern_strbuf_append(&both, right.ptr, right.len);
        tern_strbuf_puts(out, i ? ",\n      " : "\n      ");
        tern_strbuf_json(out, tern_strbuf_text(&both), both.len);
    }
    out->failed |= both.failed;
    tern_strbuf_free(&both);
    tern_strbuf_puts(out, "\n    ]}\n}\n");
}

tern_status tern_scores_write_json(const tern_tokenizer *t, tern_strbuf *out, tern_error *err) {
    pairs merges = {0};
    tern_status status = find_pairs(t, &merges, err);
    if (status == TERN_OK) {
        tern_strbuf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                              "  \"padding\": null,\n");
        put_added_tokens(t, out);
        put_spaces(t, out);
        tern_json_put_frame(t, out);
        put_model(t, &merges, out);
        if (out->failed) status = tern_fail_memory(err, out->len);
    }
    tern_free(merges.list);
    return status;
}
