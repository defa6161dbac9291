// Converts vocabularies and checks them by their effect: texts that exercise every rule are
// tokenized with the input's and with the output's tokenizer, and a difference is reported.
#include <string.h>
#include "base/alloc.h"
#include "input/input.h"
#include "tasks/convert/convert_private.h"

// ---- The check ---------------------------------------------------------------------------------

// Spaces in all places, digits, cases, contractions, code, letters with marks in both forms
// (U+00E9, and e with U+0301), scripts without spaces, ligatures, full-width forms, emoji, control
// characters.
static const char *const probes[] = {
    "Hello, world",
    " leading",
    "  two leading",
    "trailing ",
    "trailing  ",
    "a  b   c    d",
    "\n",
    "\n\n",
    " \n x\n\n\ny",
    "\tif (x == 1) {\n\t\treturn y[0];\n\t}",
    "x",
    " ",
    "1234567890 12 345 6,789.01",
    "don't I'LL they've WE'RE",
    "HelloWorld helloWORLD hello_world",
    "caf\u00e9 cafe\u0301",
    "\u00c5ngstr\u00f6m A\u030angstro\u0308m",
    "\uff46\uff55\uff4c\uff4c \ufb01ne \u00bd \u2167",
    "\u65e5\u672c\u8a9e\u306e\u6587",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5",
    "\u041f\u0440\u0438\u0432\u0435\u0442",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea",
    "\u2581under\u2581line",
    "x\u00a0y\u3000z\u2028w",
    "\x01\x02\x7f",
    "http://example.com/a?b=c&d=%20e#f",
    "The quick brown fox jumps over the lazy dog.",
};
#define N_PROBES (sizeof probes / sizeof *probes)
#define N_ADDED  24 // probes with an added token in the middle

static tern_status encode(const tern_tokenizer *t, tern_str text, tern_ids *out, tern_error *err) {
    unsigned flags = TERN_TOKENIZE_BOS | TERN_TOKENIZE_SPECIAL;
    return tern_tokenizer_encode(t, text.ptr, text.len, flags, out, err);
}

static tern_status try_text(const tern_tokenizer *a, const tern_tokenizer *b, tern_str text,
                            bool *differs, tern_error *err) {
    tern_ids x = {0}, y = {0};
    tern_status status = encode(a, text, &x, err);
    if (status == TERN_OK) status = encode(b, text, &y, err);
    *differs = status == TERN_OK &&
               (x.n != y.n || (x.n > 0 && memcmp(x.ids, y.ids, x.n * sizeof *x.ids) != 0));
    tern_free(x.ids);
    tern_free(y.ids);
    return status;
}

// Puts the first text that the two tokenize differently into *found; empty: none.
static tern_status compare(const tern_tokenizer *a, const tern_tokenizer *b, tern_strbuf *found,
                           tern_error *err) {
    bool differs;
    for (size_t i = 0; i < N_PROBES; i++) {
        tern_strbuf_clear(found);
        tern_strbuf_puts(found, probes[i]);
        if (found->failed) return tern_fail_memory(err, found->len);
        TERN_TRY(try_text(a, b, (tern_str){found->ptr, found->len}, &differs, err));
        if (differs) return TERN_OK;
    }
    int32_t n = tern_tokenizer_n_vocab(a), n_tried = 0;
    for (int32_t id = 0; id < n && n_tried < N_ADDED; id++) {
        if (!tern_tokenizer_is_control(a, id)) continue;
        tern_str text = tern_tokenizer_text(a, id);
        tern_strbuf_clear(found);
        tern_strbuf_puts(found, "one ");
        tern_strbuf_append(found, text.ptr, text.len);
        tern_strbuf_puts(found, "two three ");
        tern_strbuf_append(found, text.ptr, text.len);
        tern_strbuf_puts(found, " four");
        if (found->failed) return tern_fail_memory(err, found->len);
        TERN_TRY(try_text(a, b, (tern_str){found->ptr, found->len}, &differs, err));
        if (differs) return TERN_OK;
        n_tried++;
    }
    tern_strbuf_clear(found);
    return TERN_OK;
}

// Opens the output and reports where it differs from the input's tokenizer.
static tern_status check_written(const conversion *c, const tern_tokenizer *t,
                                 const tern_file *written, const char *kind, tern_error *err) {
    tern_tokenizer *back = NULL;
    tern_strbuf found = {0}, quoted = {0};
    TERN_TRY(tern_tokenizer_open(&back, written, err));
    tern_status status = compare(t, back, &found, err);
    if (status == TERN_OK && found.len) {
        tern_strbuf_json(&quoted, found.ptr, found.len);
        if (quoted.failed)
            status = tern_fail_memory(err, found.len);
        else
            tern_convert_note(c,
                              "the tokenizer has a rule that %s has no form for: other programs "
                              "will split some texts otherwise, as %s",
                              kind, quoted.ptr);
    }
    tern_strbuf_free(&found);
    tern_strbuf_free(&quoted);
    tern_tokenizer_free(back);
    return status;
}

// ---- To a folder -------------------------------------------------------------------------------

tern_status tern_convert_put_tokenizer(conversion *c, tern_strbuf *json, tern_strbuf *config,
                                       tern_strbuf *generation, tern_error *err) {
    tern_tokenizer *t;
    tern_error why = {0};
    tern_str chat = {NULL, 0};
    tern_file_meta_str(c->file, "tokenizer.chat_template", &chat);
    if (!tern_file_meta(c->file, "tokenizer.ggml.tokens")) return TERN_OK;
    TERN_TRY(tern_tokenizer_open(&t, c->file, err));
    const int32_t *ends;
    size_t n_ends = tern_tokenizer_ends(t, &ends);
    tern_sampling_write_json(c->file, ends, n_ends, generation);
    if (generation->failed) {
        tern_tokenizer_free(t);
        return tern_fail_memory(err, generation->len);
    }
    tern_status status = tern_tokenizer_write_json(t, chat, json, config, &why);
    if (status == TERN_ERR_UNSUPPORTED) {
        // The weights are useful without it.
        tern_convert_note(c, "no tokenizer.json is written: %s", why.message);
        tern_strbuf_clear(json);
        status = TERN_OK;
    } else if (status == TERN_OK) {
        tern_file written = {.kind = TERN_FILE_HF,
                             .path = "tokenizer.json",
                             .tokenizer_json = {json->ptr, json->len}};
        tern_json_doc doc = {0};
        status = tern_json_parse(&doc, config->ptr, config->len, err);
        written.tokenizer_config = doc;
        if (status == TERN_OK) status = check_written(c, t, &written, "tokenizer.json", err);
        tern_json_free(&doc);
    } else if (err)
        *err = why;
    tern_tokenizer_free(t);
    return status;
}

// ---- To GGUF -----------------------------------------------------------------------------------

tern_status tern_convert_put_vocabulary(conversion *c, tern_error *err) {
    if (c->file->tokenizer_json.len == 0 && c->file->tokenizer_model.len == 0) return TERN_OK;
    tern_tokenizer *t;
    tern_file *written = NULL;
    TERN_TRY(tern_tokenizer_open(&t, c->file, err));
    tern_status status = tern_tokenizer_put_gguf(t, -1, c->gguf, err);
    if (status == TERN_OK) {
        tern_str chat = c->file->chat_template;
        if (!chat.ptr)
            chat = tern_json_str(tern_json_path(&c->file->tokenizer_config, "chat_template"));
        if (chat.ptr) status = tern_gguf_put_str(c->gguf, "tokenizer.chat_template", chat);
    }
    if (status == TERN_OK) status = tern_gguf_written_meta(c->gguf, &written, err);
    if (status == TERN_OK) status = check_written(c, t, written, "GGUF", err);
    tern_file_close(written);
    tern_tokenizer_free(t);
    return status;
}
