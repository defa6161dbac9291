// Chats as a model reads them, beside those that shards hold: tokenizers with the templates of
// models and of tests.
#ifndef TERN_TESTS_LEARNT_FIXTURE_H
#define TERN_TESTS_LEARNT_FIXTURE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "formats/shard/shard.h"
#include "input/input.h"
#include "session/session.h"
#include "tests/support/harness.h"
#include "train/data/data.h"

typedef struct path {
    char text[700];
} path;

static inline path path_of(const char *folder, const char *name) {
    path p;
    int n = snprintf(p.text, sizeof p.text, "%s/%s", folder, name);
    CHECK(n > 0 && (size_t)n < sizeof p.text);
    return p;
}

typedef struct speaker {
    tern_file *file;
    tern_tokenizer *tokenizer;
    tern_template *template;
    const char *end; // of documents, NULL: the usual one
} speaker;

static inline tern_status open_speaker(speaker *s, const path *tokenizer, tern_error *err) {
    TERN_TRY(tern_file_open(&s->file, tokenizer->text, err));
    TERN_TRY(tern_tokenizer_open(&s->tokenizer, s->file, err));
    return tern_template_for_model(&s->template, s->file, s->tokenizer, NULL, err);
}

static inline void close_speaker(speaker *s) {
    tern_template_free(s->template);
    tern_tokenizer_free(s->tokenizer);
    tern_file_close(s->file);
}

// Those that a model reads: the steps of tern_chat_answer_json.
static inline tern_status read_as_model(const speaker *s, const char *request, tern_ids *out,
                                        tern_error *err) {
    tern_strbuf text = {0};
    tern_status status =
        tern_template_chat_json(s->template, s->tokenizer, request, strlen(request), &text, err);
    if (status == TERN_OK)
        status =
            tern_chat_encode(s->tokenizer, (tern_str){tern_strbuf_text(&text), text.len}, out, err);
    tern_strbuf_free(&text);
    return status;
}

// A folder with a byte-level vocabulary and a template.
static inline path make_tokenizer(const char *template) {
    path folder = path_of(test_tmp("chats_tok"), ""), text = path_of(test_tmp("chats.txt"), "");
    folder.text[strlen(folder.text) - 1] = text.text[strlen(text.text) - 1] = 0;
    const char *source = text.text;
    tern_error err = {0};
    static const char words[] = "rain in Ulm, no rain in Ulm, it says none; be brief, hi there";
    test_write(text.text, words, sizeof words - 1);
    tern_data_tokenizer_desc desc = {.source = {.paths = &source, .n_paths = 1}, .n_vocab = 280};
    tern_status status = tern_data_tokenizer(folder.text, &desc, NULL, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    test_write(path_of(folder.text, "chat_template.jinja").text, template, strlen(template));
    return folder;
}

// A folder with the template of one model and the vocabulary of its family.
static inline bool borrow(path *folder, const char *tokenizer, const char *template_name) {
    path from = path_of(test_data("tokenizers"), tokenizer);
    snprintf(folder->text, sizeof folder->text, "%s", test_tmp("borrowed"));
    test_folder(folder->text);
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < 2; i++) {
        path to = path_of(folder->text, names[i]);
        unlink(to.text);
        if (symlink(path_of(from.text, names[i]).text, to.text) != 0) return false;
    }
    path to = path_of(folder->text, "chat_template.jinja");
    unlink(to.text);
    path source = path_of(test_data("chat-templates"), template_name ? template_name : "");
    return !template_name || symlink(source.text, to.text) == 0;
}

#endif
