// A learnt vocabulary as a tokenizer.json that Hugging Face's tokenizers library and this engine
// load. A text is split by the expressions, each word is spelled in GPT-2's alphabet and merged.
#include "input/learn.h"
#include "input/tok.h"

#include <string.h>

static void put_special(tern_strbuf *out, const tern_learned *l, size_t id) {
    tern_str text = tern_learned_text(l, id);
    tern_strbuf_printf(out, "    {\"id\": %zu, \"content\": ", id);
    tern_strbuf_json(out, text.ptr, text.len);
    tern_strbuf_puts(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                          "\"normalized\": false, \"special\": true}");
}

// A token spelled in the alphabet, as a JSON string or as a part of one.
static void put_spelled(tern_strbuf *out, tern_strbuf *scratch, const tern_learned *l, size_t id) {
    tern_str text = tern_learned_text(l, id);
    if (id < l->n_specials) tern_strbuf_append(scratch, text.ptr, text.len);
    else tern_alphabet_spell(scratch, text.ptr, text.len);
    if (out) tern_strbuf_json(out, tern_strbuf_text(scratch), scratch->len);
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

static void put_post_processor(tern_strbuf *out, const tern_learned *l, bool add_bos) {
    if (!add_bos || l->n_specials == 0) {
        tern_strbuf_puts(out, "  \"post_processor\": null,\n");
        return;
    }
    tern_strbuf bos = {0};
    tern_str text = tern_learned_text(l, 0);
    tern_strbuf_json(&bos, text.ptr, text.len);
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
        "    \"special_tokens\": {%s: {\"id\": %s, \"ids\": [0], \"tokens\": [%s]}}},\n",
        name, name, name, name, name, name);
    out->failed |= bos.failed;
    tern_strbuf_free(&bos);
}

static void put_model(tern_strbuf *out, const tern_learned *l, bool ignore_merges) {
    tern_strbuf spelled = {0};
    tern_strbuf_printf(out,
                       "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
                       "    \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n"
                       "    \"fuse_unk\": false, \"byte_fallback\": false, "
                       "\"ignore_merges\": %s,\n    \"vocab\": {",
                       ignore_merges ? "true" : "false");
    for (size_t i = 0; i < l->n_tokens; i++) {
        tern_strbuf_puts(out, i ? ",\n      " : "\n      ");
        tern_strbuf_clear(&spelled);
        put_spelled(out, &spelled, l, i);
        tern_strbuf_printf(out, ": %zu", i);
    }
    tern_strbuf_puts(out, "\n    },\n    \"merges\": [");
    for (size_t i = 0; i < l->n_merges; i++) {
        tern_strbuf_puts(out, i ? ",\n      " : "\n      ");
        tern_strbuf_clear(&spelled);
        put_spelled(NULL, &spelled, l, l->merges[2 * i]); // no blank is in the alphabet
        tern_strbuf_putc(&spelled, ' ');
        put_spelled(out, &spelled, l, l->merges[2 * i + 1]);
    }
    tern_strbuf_puts(out, "\n    ]}\n}\n");
    out->failed |= spelled.failed;
    tern_strbuf_free(&spelled);
}

void tern_learned_write_json(const tern_learned *l, const tern_pre *pre, bool add_bos,
                             tern_strbuf *out) {
    tern_strbuf_puts(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                          "  \"padding\": null,\n  \"added_tokens\": [");
    for (size_t i = 0; i < l->n_specials; i++) {
        tern_strbuf_puts(out, i ? ",\n" : "\n");
        put_special(out, l, i);
    }
    tern_strbuf_puts(out, "\n  ],\n  \"normalizer\": null,\n");
    put_pre_tokenizer(out, pre);
    put_post_processor(out, l, add_bos);
    tern_strbuf_puts(out, "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                          "\"trim_offsets\": true, \"use_regex\": true},\n");
    put_model(out, l, pre->ignore_merges);
}
