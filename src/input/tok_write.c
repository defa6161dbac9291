// A byte-level vocabulary as a tokenizer.json that Hugging Face's tokenizers library and this
// engine load: one that was learnt, or one that came from a GGUF file. A text is split by the
// expressions, each word is spelled in GPT-2's alphabet and merged.
#include <string.h>
#include "input/learn.h"
#include "input/tok.h"

// Where the entries come from.
typedef struct source {
    const tern_learned *learned;            // one of the two
    const tern_tokenizer_export *exported;
    size_t n_tokens, n_merges;
    const tern_pre *pre;
    int32_t bos; // put in front of a text, -1: none
} source;

// Tokens that are found in the text before anything is split; special ones control the model.
static bool is_added(const source *s, size_t id, bool *special) {
    if (s->learned) return *special = id < s->learned->n_specials;
    int32_t type = s->exported->types[id];
    *special = type == TERN_TOKEN_CONTROL || type == TERN_TOKEN_UNKNOWN;
    return *special || type == TERN_TOKEN_USER;
}

// Appends a token, spelled in the alphabet unless it is an added one.
static void spell(const source *s, size_t id, tern_strbuf *out) {
    bool special;
    tern_str text = s->learned ? tern_learned_text(s->learned, id) : s->exported->tokens[id];
    if (s->exported || is_added(s, id, &special)) tern_strbuf_append(out, text.ptr, text.len);
    else tern_alphabet_spell(out, text.ptr, text.len);
}

// "left right"; no blank is in the alphabet.
static void spell_merge(const source *s, size_t i, tern_strbuf *out) {
    if (s->exported) {
        tern_strbuf_append(out, s->exported->merges[i].ptr, s->exported->merges[i].len);
        return;
    }
    spell(s, s->learned->merges[2 * i], out);
    tern_strbuf_putc(out, ' ');
    spell(s, s->learned->merges[2 * i + 1], out);
}

// What is in scratch as a JSON string; empties scratch.
static void put_string(tern_strbuf *out, tern_strbuf *scratch) {
    tern_strbuf_json(out, tern_strbuf_text(scratch), scratch->len);
    out->failed |= scratch->failed;
    tern_strbuf_clear(scratch);
}

static void put_added_tokens(tern_strbuf *out, tern_strbuf *scratch, const source *s) {
    bool special, first = true;
    tern_strbuf_puts(out, "  \"added_tokens\": [");
    for (size_t id = 0; id < s->n_tokens; id++) {
        if (!is_added(s, id, &special)) continue;
        tern_strbuf_printf(out, "%s    {\"id\": %zu, \"content\": ", first ? "\n" : ",\n", id);
        spell(s, id, scratch);
        put_string(out, scratch);
        tern_strbuf_printf(out,
                           ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                           "\"normalized\": false, \"special\": %s}",
                           special ? "true" : "false");
        first = false;
    }
    tern_strbuf_puts(out, "\n  ],\n");
}

static void put_pre_tokenizer(tern_strbuf *out, const tern_pre *pre) {
    tern_strbuf_puts(out, "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n");
    size_t n_max = sizeof pre->expressions / sizeof *pre->expressions;
    for (size_t i = 0; i < n_max && pre->expressions[i]; i++) {
        tern_strbuf_puts(out, "    {\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        tern_strbuf_json(out, pre->expressions[i], strlen(pre->expressions[i]));
        tern_strbuf_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false},\n");
    }
    tern_strbuf_puts(out, "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                          "\"trim_offsets\": true, \"use_regex\": false}\n  ]},\n");
}

static void put_post_processor(tern_strbuf *out, tern_strbuf *scratch, const source *s) {
    if (s->bos < 0) {
        tern_strbuf_puts(out, "  \"post_processor\": null,\n");
        return;
    }
    tern_strbuf bos = {0};
    spell(s, (size_t)s->bos, scratch);
    put_string(&bos, scratch);
    const char *name = tern_strbuf_text(&bos);
    tern_strbuf_printf(
        out,
        "  \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
        "    \"single\": [{\"SpecialToken\": {\"id\": %s, \"type_id\": 0}},\n"
        "      {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
        "    \"pair\": [{\"SpecialToken\": {\"id\": %s, \"type_id\": 0}},\n"
        "      {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},\n"
        "      {\"SpecialToken\": {\"id\": %s, \"type_id\": 1}},\n"
        "      {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}],\n"
        "    \"special_tokens\": {%s: {\"id\": %s, \"ids\": [%d], \"tokens\": [%s]}}},\n",
        name, name, name, name, name, (int)s->bos, name);
    out->failed |= bos.failed;
    tern_strbuf_free(&bos);
}

// Added tokens are entries of the model, too: so the library gives them these ids.
static void put_model(tern_strbuf *out, tern_strbuf *scratch, const source *s) {
    tern_strbuf_printf(out,
                       "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                       "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                       "    \"fuse_unk\": false, \"byte_fallback\": false, "
                       "\"ignore_merges\": %s,\n    \"vocab\": {",
                       s->pre->ignore_merges ? "true" : "false");
    for (size_t i = 0; i < s->n_tokens; i++) {
        tern_strbuf_puts(out, i ? ",\n      " : "\n      ");
        spell(s, i, scratch);
        put_string(out, scratch);
        tern_strbuf_printf(out, ": %zu", i);
    }
    tern_strbuf_puts(out, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < s->n_merges; i++) {
        tern_strbuf_puts(out, i ? ",\n      " : "\n      ");
        spell_merge(s, i, scratch);
        put_string(out, scratch);
    }
    tern_strbuf_puts(out, "\n    ]}\n}\n");
}

static void write_json(const source *s, tern_strbuf *out) {
    tern_strbuf scratch = {0};
    tern_strbuf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                          "  \"padding\": null,\n");
    put_added_tokens(out, &scratch, s);
    tern_strbuf_puts(out, "  \"normalizer\": null,\n");
    put_pre_tokenizer(out, s->pre);
    put_post_processor(out, &scratch, s);
    tern_strbuf_puts(out, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                          "\"trim_offsets\": true, \"use_regex\": true},\n");
    put_model(out, &scratch, s);
    tern_strbuf_free(&scratch);
}

void tern_learned_write_json(const tern_learned *l, const tern_pre *pre, bool add_bos,
                             tern_strbuf *out) {
    write_json(&(source){.learned = l,
                         .n_tokens = l->n_tokens,
                         .n_merges = l->n_merges,
                         .pre = pre,
                         .bos = add_bos && l->n_specials > 0 ? 0 : -1},
               out);
}

// ---- From a file -------------------------------------------------------------------------------

static void put_name(tern_strbuf *out, const tern_tokenizer_export *e, const char *key,
                     int32_t id) {
    if (id < 0) return;
    tern_strbuf_printf(out, "  \"%s\": ", key);
    tern_strbuf_json(out, e->tokens[id].ptr, e->tokens[id].len);
    tern_strbuf_puts(out, ",\n");
}

tern_status tern_tokenizer_write_json(const tern_tokenizer *t, tern_str chat_template,
                                      tern_strbuf *json, tern_strbuf *config, tern_error *err) {
    tern_tokenizer_export e = {0};
    TERN_TRY(tern_tokenizer_export_gguf(t, &e, err));
    const tern_pre *pre = e.pre ? tern_pre_find((tern_str){e.pre, strlen(e.pre)}) : NULL;
    if (!e.merges || !pre || !pre->expressions[0])
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "a tokenizer of the kind \"%s\" cannot be written as tokenizer.json",
                         e.merges && e.pre ? e.pre : e.model);
    write_json(&(source){.exported = &e,
                         .n_tokens = e.n_vocab,
                         .n_merges = e.n_merges,
                         .pre = pre,
                         .bos = e.add_bos ? e.bos : -1},
               json);
    tern_strbuf_puts(config, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    put_name(config, &e, "bos_token", e.bos);
    put_name(config, &e, "eos_token", e.eos);
    put_name(config, &e, "unk_token", e.unk);
    put_name(config, &e, "pad_token", e.pad);
    if (chat_template.ptr) {
        tern_strbuf_puts(config, "  \"chat_template\": ");
        tern_strbuf_json(config, chat_template.ptr, chat_template.len);
        tern_strbuf_puts(config, ",\n");
    }
    tern_strbuf_printf(config, "  \"clean_up_tokenization_spaces\": false,\n"
                               "  \"add_bos_token\": %s\n}\n", e.add_bos ? "true" : "false");
    return json->failed || config->failed ? tern_fail_memory(err, json->len) : TERN_OK;
}
