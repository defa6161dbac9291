// A WordPiece or Unigram vocabulary, from GGUF or sentencepiece's .model, as a tokenizer.json.
#include <string.h>
#include "input/tokenizer/tok.h"

static bool has_step(const tern_tokenizer *t, tern_norm_kind kind) {
    for (int i = 0; i < t->normalizer.n_steps; i++)
        if (t->normalizer.steps[i].kind == kind) return true;
    return false;
}

static const char *flag(bool on) { return on ? "true" : "false"; }

// ---- What both have ----------------------------------------------------------------------------

static void put_added(const tern_tokenizer *t, tern_strbuf *out) {
    const char *between = "\n    ";
    tern_strbuf_puts(out, "  \"added_tokens\": [");
    for (int32_t id = 0; id < t->vocab.n; id++) {
        uint8_t type = t->vocab.types[id];
        bool special = type == TERN_TOKEN_CONTROL || type == TERN_TOKEN_UNKNOWN;
        if (!special && type != TERN_TOKEN_USER) continue;
        tern_str text = tern_vocab_text(&t->vocab, id);
        tern_strbuf_printf(out, "%s{\"id\": %d, \"content\": ", between, (int)id);
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_printf(out,
                           ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                           "\"normalized\": false, \"special\": %s}",
                           flag(special));
        between = ",\n    ";
    }
    tern_strbuf_puts(out, "],\n");
}

static void put_ids(const tern_tokenizer *t, const int32_t *ids, int n, bool *any,
                    tern_strbuf *out) {
    for (int i = 0; i < n; i++) {
        tern_str text = tern_vocab_text(&t->vocab, ids[i]);
        tern_strbuf_puts(out,
                         *any ? ", {\"SpecialToken\": {\"id\": " : "{\"SpecialToken\": {\"id\": ");
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_puts(out, ", \"type_id\": 0}}");
        *any = true;
    }
}

static void put_text(const char *name, int type, bool *any, tern_strbuf *out) {
    tern_strbuf_printf(out, "%s{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}", *any ? ", " : "",
                       name, type);
    *any = true;
}

// Every token around or between texts, once.
static void put_table(const tern_tokenizer *t, tern_strbuf *out) {
    int32_t all[3 * TERN_FRAME_MAX];
    int n = 0;
    for (int i = 0; i < t->n_prefix; i++) all[n++] = t->prefix[i];
    for (int i = 0; i < t->n_between; i++) all[n++] = t->between[i];
    for (int i = 0; i < t->n_suffix; i++) all[n++] = t->suffix[i];
    const char *between = "";
    for (int i = 0; i < n; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= all[k] == all[i];
        if (again) continue;
        tern_str text = tern_vocab_text(&t->vocab, all[i]);
        tern_strbuf_puts(out, between);
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_puts(out, ": {\"id\": ");
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_printf(out, ", \"ids\": [%d], \"tokens\": [", (int)all[i]);
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_puts(out, "]}");
        between = ", ";
    }
}

// Ids around a text, and around and between the texts of a pair.
static void put_template(const tern_tokenizer *t, tern_strbuf *out) {
    if (t->n_prefix + t->n_suffix + t->n_between == 0) {
        tern_strbuf_puts(out, "  \"post_processor\": null,\n");
        return;
    }
    tern_strbuf_puts(out, "  \"post_processor\": {\"type\": \"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        bool any = false;
        tern_strbuf_printf(out, ",\n    \"%s\": [", pair ? "pair" : "single");
        put_ids(t, t->prefix, t->n_prefix, &any, out);
        put_text("A", 0, &any, out);
        if (pair) {
            put_ids(t, t->between, t->n_between, &any, out);
            put_text("B", t->model == TERN_TOKENS_WORDPIECE, &any, out);
        }
        put_ids(t, t->suffix, t->n_suffix, &any, out);
        tern_strbuf_putc(out, ']');
    }
    tern_strbuf_puts(out, ",\n    \"special_tokens\": {");
    put_table(t, out);
    tern_strbuf_puts(out, "}},\n");
}

// ---- WordPiece ----------------------------------------------------------------------------------

// Puts the mark on all tokens of a word but the first, whichever tokens had one.
static void spell(const tern_tokenizer *t, int32_t id, tern_strbuf *out) {
    const tern_wordpiece *w = &t->wordpiece;
    tern_str text = tern_vocab_text(&t->vocab, id);
    bool named = text.len > 1 && *text.ptr == '[' && text.ptr[text.len - 1] == ']';
    bool first = w->n_first && text.len > w->n_first && !memcmp(text.ptr, w->first, w->n_first);
    size_t skip = first ? w->n_first : 0;
    if (w->n_first && !first && !named && t->vocab.types[id] == TERN_TOKEN_NORMAL)
        tern_strbuf_puts(out, "##");
    tern_strbuf_append(out, text.ptr + skip, text.len - skip);
}

static void put_wordpiece(const tern_tokenizer *t, tern_strbuf *out) {
    const tern_wordpiece *w = &t->wordpiece;
    tern_str unk = t->unk >= 0 ? tern_vocab_text(&t->vocab, t->unk) : TERN_STR("[UNK]");
    tern_strbuf token = {0};
    const char *between = "\n      ";
    tern_strbuf_printf(out,
                       "  \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": %s, "
                       "\"handle_chinese_chars\": %s, \"strip_accents\": %s, \"lowercase\": %s},\n"
                       "  \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},\n",
                       flag(has_step(t, TERN_NORM_CLEAN)), flag(has_step(t, TERN_NORM_PAD_HAN)),
                       flag(has_step(t, TERN_NORM_NO_MARKS)), flag(has_step(t, TERN_NORM_LOWER)));
    put_template(t, out);
    tern_strbuf_printf(out,
                       "  \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": "
                       "%s},\n  \"model\": {\"type\": \"WordPiece\", \"unk_token\": ",
                       flag(w->cleans_up));
    tern_strbuf_json(out, unk.ptr, unk.len);
    tern_strbuf_puts(out, ", \"continuing_subword_prefix\": ");
    if (w->n_first)
        tern_strbuf_puts(out, "\"##\"");
    else
        tern_strbuf_json(out, w->rest, w->n_rest);
    tern_strbuf_printf(out, ", \"max_input_chars_per_word\": %zu,\n    \"vocab\": {", w->max_chars);
    for (int32_t id = 0; id < t->vocab.n; id++) {
        if (t->vocab.types[id] == TERN_TOKEN_NONE) continue;
        tern_strbuf_clear(&token);
        spell(t, id, &token);
        tern_strbuf_puts(out, between);
        tern_strbuf_json(out, tern_strbuf_text(&token), token.len);
        tern_strbuf_printf(out, ": %d", (int)id);
        between = ",\n      ";
    }
    tern_strbuf_puts(out, "}}\n}\n");
    out->failed |= token.failed;
    tern_strbuf_free(&token);
}

// ---- Unigram ------------------------------------------------------------------------------------

static void put_unigram(const tern_tokenizer *t, tern_strbuf *out) {
    const tern_normalizer *z = &t->normalizer;
    const char *between = "", *prepend = has_step(t, TERN_NORM_PREPEND) ? "always" : "never";
    tern_strbuf_puts(out, "  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < z->n_steps; i++) {
        if (z->steps[i].kind != TERN_NORM_CHARSMAP) continue;
        tern_strbuf_puts(out, "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
        tern_strbuf_base64(out, z->steps[i].content, z->steps[i].n_content);
        tern_strbuf_puts(out, "\"}");
        between = ", ";
    }
    if (has_step(t, TERN_NORM_SQUEEZE))
        tern_strbuf_printf(out,
                           "%s{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": true}, "
                           "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, "
                           "\"content\": \" \"}",
                           between);
    tern_strbuf_puts(out, "]},\n");
    for (int k = 0; k < 2; k++) {
        if (k) put_template(t, out);
        tern_strbuf_printf(out,
                           "  \"%s\": {\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", "
                           "\"prepend_scheme\": \"%s\", \"split\": true},\n",
                           k ? "decoder" : "pre_tokenizer", prepend);
    }
    tern_strbuf_printf(out,
                       "  \"model\": {\"type\": \"Unigram\", \"unk_id\": %d, "
                       "\"byte_fallback\": %s,\n    \"vocab\": [",
                       (int)(t->unk >= 0 ? t->unk : 0), flag(t->byte_fallback));
    for (int32_t id = 0; id < t->vocab.n; id++) {
        tern_str text = tern_vocab_text(&t->vocab, id);
        tern_strbuf_puts(out, id ? ",\n      [" : "\n      [");
        tern_strbuf_json(out, text.ptr, text.len);
        tern_strbuf_puts(out, ", ");
        tern_strbuf_json_number(out, t->unigram.scores[id]);
        tern_strbuf_putc(out, ']');
    }
    tern_strbuf_puts(out, "\n    ]}\n}\n");
}

void tern_pieces_write_json(const tern_tokenizer *t, tern_strbuf *out) {
    tern_strbuf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                          "  \"padding\": null,\n");
    put_added(t, out);
    if (t->model == TERN_TOKENS_WORDPIECE)
        put_wordpiece(t, out);
    else
        put_unigram(t, out);
}
