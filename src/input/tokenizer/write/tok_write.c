// A byte-level vocabulary as a tokenizer.json that Hugging Face's tokenizers library and this
// engine load: one learnt here, or one from a GGUF file. A text is split by the expressions; each
// word is spelled in GPT-2's alphabet and merged.
#include <string.h>
#include "input/tokenizer/tok.h"

// Where the entries come from.
typedef struct source {
    const tern_learned *learned; // one of the two is set
    const tern_tokenizer_export *exported;
    size_t n_tokens, n_merges;
    const tern_pre *pre;
    int32_t bos, eos; // put before and after a text, -1: none
} source;

// Tokens matched in the text before anything is split; special ones control the model.
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
    if (s->exported || is_added(s, id, &special))
        tern_strbuf_append(out, text.ptr, text.len);
    else
        tern_alphabet_spell(out, text.ptr, text.len);
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

// Appends scratch as a JSON string; empties scratch.
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

// bos in front of each text, eos after each; {NULL, 0}: none.
static void put_frame(tern_strbuf *out, tern_str bos, int32_t bos_id, tern_str eos,
                      int32_t eos_id) {
    const tern_str texts[] = {bos, eos};
    const int32_t ids[] = {bos_id, eos_id};
    tern_strbuf names[2] = {{0}};
    if (!bos.ptr && !eos.ptr) {
        tern_strbuf_puts(out, "  \"post_processor\": null,\n");
        return;
    }
    for (int i = 0; i < 2; i++)
        if (texts[i].ptr) tern_strbuf_json(&names[i], texts[i].ptr, texts[i].len);
    tern_strbuf_puts(out, "  \"post_processor\": {\"type\": \"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        const char *between = "";
        tern_strbuf_printf(out, ",\n    \"%s\": [", pair ? "pair" : "single");
        for (int type = 0; type <= pair; type++)
            for (int k = 0; k < 3; k++) {
                if (k != 1 && !texts[k / 2].ptr) continue;
                if (k == 1)
                    tern_strbuf_printf(out, "%s{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}",
                                       between, 'A' + type, type);
                else
                    tern_strbuf_printf(out, "%s{\"SpecialToken\": {\"id\": %s, \"type_id\": %d}}",
                                       between, tern_strbuf_text(&names[k / 2]), type);
                between = ",\n      ";
            }
        tern_strbuf_putc(out, ']');
    }
    tern_strbuf_puts(out, ",\n    \"special_tokens\": {");
    for (int i = 0; i < 2; i++) {
        if (!texts[i].ptr || (i && tern_str_eq(bos, eos))) continue;
        const char *name = tern_strbuf_text(&names[i]);
        tern_strbuf_printf(out, "%s%s: {\"id\": %s, \"ids\": [%d], \"tokens\": [%s]}",
                           i && bos.ptr ? ", " : "", name, name, (int)ids[i], name);
    }
    tern_strbuf_puts(out, "}},\n");
    for (int i = 0; i < 2; i++) {
        out->failed |= names[i].failed;
        tern_strbuf_free(&names[i]);
    }
}

static tern_str text_or_none(const tern_tokenizer *t, int32_t id) {
    return id >= 0 ? tern_vocab_text(&t->vocab, id) : (tern_str){NULL, 0};
}

void tern_json_put_frame(const tern_tokenizer *t, tern_strbuf *out) {
    int32_t bos = t->n_prefix ? t->prefix[0] : -1, eos = t->n_suffix ? t->suffix[0] : -1;
    put_frame(out, text_or_none(t, bos), bos, text_or_none(t, eos), eos);
}

// Added tokens are entries of the model, too: this makes the library give them these ids.
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
    tern_strbuf bos = {0}, eos = {0};
    if (s->bos >= 0) spell(s, (size_t)s->bos, &bos);
    if (s->eos >= 0) spell(s, (size_t)s->eos, &eos);
    put_frame(out, (tern_str){bos.ptr, bos.len}, s->bos, (tern_str){eos.ptr, eos.len}, s->eos);
    out->failed |= bos.failed || eos.failed;
    tern_strbuf_free(&bos);
    tern_strbuf_free(&eos);
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
                         .bos = add_bos && l->n_specials > 0 ? 0 : -1,
                         .eos = -1},
               out);
}

// ---- From a file -------------------------------------------------------------------------------

static void put_name(tern_strbuf *out, const tern_tokenizer *t, const char *key, int32_t id) {
    tern_str text = text_or_none(t, id);
    if (!text.ptr) return;
    tern_strbuf_printf(out, "  \"%s\": ", key);
    tern_strbuf_json(out, text.ptr, text.len);
    tern_strbuf_puts(out, ",\n");
}

static tern_status write_byte_level(const tern_tokenizer *t, tern_strbuf *json, tern_error *err) {
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
                         .bos = e.add_bos ? e.bos : -1,
                         .eos = e.add_eos ? e.eos : -1},
               json);
    return TERN_OK;
}

tern_status tern_tokenizer_write_json(const tern_tokenizer *t, tern_str chat_template,
                                      tern_strbuf *json, tern_strbuf *config, tern_error *err) {
    if (t->model != TERN_TOKENS_BPE)
        tern_pieces_write_json(t, json);
    else
        TERN_TRY(t->orders ? tern_scores_write_json(t, json, err) : write_byte_level(t, json, err));
    tern_strbuf_puts(config, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    put_name(config, t, "bos_token", t->bos);
    put_name(config, t, "eos_token", t->eos);
    put_name(config, t, "unk_token", t->unk);
    put_name(config, t, "pad_token", t->pad);
    if (chat_template.ptr) {
        tern_strbuf_puts(config, "  \"chat_template\": ");
        tern_strbuf_json(config, chat_template.ptr, chat_template.len);
        tern_strbuf_puts(config, ",\n");
    }
    tern_strbuf_printf(config,
                       "  \"clean_up_tokenization_spaces\": false,\n"
                       "  \"add_bos_token\": %s,\n  \"add_eos_token\": %s\n}\n",
                       t->n_prefix ? "true" : "false", t->n_suffix ? "true" : "false");
    return json->failed || config->failed ? tern_fail_memory(err, json->len) : TERN_OK;
}
