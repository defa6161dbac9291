// Shared by the tokenizer's tests: tokenizers opened from bytes, files and folders of the optional
// data, and texts.
#ifndef TERN_INPUT_TOKENIZER_TOK_FIXTURE_H
#define TERN_INPUT_TOKENIZER_TOK_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "input/input.h"
#include "tests/support/harness.h"

typedef struct fixture_text {
    char *ptr;
    size_t n;
} fixture_text;

// The whole file, terminated; ptr is NULL if it cannot be read. Freed with tern_free.
static inline fixture_text fixture_read(const char *path) {
    fixture_text t = {0};
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f) return t;
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) >= 0) t.n = (size_t)ftell(f);
    rewind(f);
    t.ptr = tern_alloc(TERN_MEM_MISC, t.n + 1);
    if (t.ptr && fread(t.ptr, 1, t.n, f) != t.n) {
        tern_free(t.ptr);
        t.ptr = NULL;
    }
    fclose(f);
    return t;
}

static inline tern_status fixture_open_json(tern_tokenizer **t, const char *json, size_t n,
                                            const char *tokenizer_config, const char *config,
                                            tern_error *err) {
    tern_file file = {.kind = TERN_FILE_HF, .path = "test", .tokenizer_json = {json, n}};
    tern_status status = TERN_OK;
    *t = NULL;
    if (tokenizer_config)
        status = tern_json_parse(&file.tokenizer_config, tokenizer_config, strlen(tokenizer_config),
                                 err);
    if (status == TERN_OK && config)
        status = tern_json_parse(&file.config, config, strlen(config), err);
    if (status == TERN_OK) status = tern_tokenizer_open(t, &file, err);
    tern_json_free(&file.tokenizer_config);
    tern_json_free(&file.config);
    return status;
}

// Opens a .json of the optional data, a .gguf or a .model. NULL: not there (the test is then
// skipped), or a failed check.
static inline tern_tokenizer *fixture_open(const char *relative_path) {
    const char *path = test_data(relative_path);
    tern_tokenizer *t = NULL;
    tern_error err = {0};
    tern_status status;
    if (!path) return NULL;
    if (strstr(path, ".gguf") || strstr(path, ".model")) {
        tern_file *file = NULL;
        status = tern_file_open(&file, path, &err);
        if (status == TERN_OK) status = tern_tokenizer_open(&t, file, &err);
        if (file) tern_file_close(file);
    } else {
        fixture_text json = fixture_read(path);
        status = fixture_open_json(&t, json.ptr, json.n, NULL, NULL, &err);
        tern_free(json.ptr);
    }
    CHECK_MSG(status == TERN_OK, "%s: %s", relative_path, err.message);
    return t;
}

// The text of ids, terminated.
static inline tern_strbuf fixture_decode(const tern_tokenizer *t, const int32_t *ids, size_t n,
                                         bool with_special) {
    tern_strbuf out = {0};
    tern_decoder d = {.with_special = with_special};
    for (size_t i = 0; i < n; i++) tern_tokenizer_decode(t, &d, ids[i], &out);
    tern_tokenizer_decode_end(&d, &out);
    return out;
}

// A file like an early converter's: without the name of how to split text.
static inline void fixture_put_without_pre(const tern_tokenizer_export *e, tern_gguf_writer *w) {
    tern_gguf_put_str(w, "tokenizer.ggml.model", (tern_str){e->model, strlen(e->model)});
    tern_gguf_put_strings(w, "tokenizer.ggml.tokens", e->tokens, e->n_vocab);
    tern_gguf_put_array(w, "tokenizer.ggml.token_type", TERN_META_I32, e->types, e->n_vocab);
    if (e->merges) tern_gguf_put_strings(w, "tokenizer.ggml.merges", e->merges, e->n_merges);
    if (e->bos >= 0) tern_gguf_put_int(w, "tokenizer.ggml.bos_token_id", TERN_META_U32, e->bos);
    if (e->eos >= 0) tern_gguf_put_int(w, "tokenizer.ggml.eos_token_id", TERN_META_U32, e->eos);
    tern_gguf_put_int(w, "tokenizer.ggml.add_bos_token", TERN_META_BOOL, e->add_bos);
}

// Writes a GGUF file as conversion does, and opens it.
static inline tern_tokenizer *fixture_through_gguf(const tern_tokenizer *t, const char *name,
                                                   bool with_pre) {
    tern_tokenizer_export e;
    tern_error err = {0};
    tern_gguf_writer *w = NULL;
    tern_tokenizer *back = NULL;
    tern_file *file = NULL;
    const char *path = test_tmp(name);
    CHECK(tern_tokenizer_export_gguf(t, &e, &err) == TERN_OK);
    if (err.status || tern_gguf_writer_open(&w, path, 0, &err) != TERN_OK) return NULL;
    uint64_t ne[4] = {4, 1, 1, 1};
    const float zeros[4] = {0};
    tern_status status = tern_gguf_put_str(w, "general.architecture", TERN_STR("llama"));
    if (!with_pre)
        fixture_put_without_pre(&e, w);
    else if (status == TERN_OK)
        status = tern_tokenizer_put_gguf(t, -1, w, &err);
    if (status == TERN_OK) status = tern_gguf_declare(w, "x", TERN_DTYPE_F32, 1, ne);
    if (status == TERN_OK) status = tern_gguf_write(w, zeros, sizeof zeros, &err);
    if (status == TERN_OK) status = tern_gguf_writer_finish(w, &err);
    tern_gguf_writer_free(w);
    if (status == TERN_OK) status = tern_file_open(&file, path, &err);
    if (status == TERN_OK) status = tern_tokenizer_open(&back, file, &err);
    CHECK_MSG(status == TERN_OK, "%s", err.message);
    tern_file_close(file);
    return back;
}

// Encodes and compares with a list of expected ids that ends with -1.
static inline void fixture_check_ids(const tern_tokenizer *t, const char *text, unsigned flags,
                                     const int32_t *expected, int line) {
    tern_ids ids = {0};
    tern_error err = {0};
    tern_status status = tern_tokenizer_encode(t, text, strlen(text), flags, &ids, &err);
    size_t n = 0;
    while (expected[n] >= 0) n++;
    bool same = status == TERN_OK && ids.n == n;
    for (size_t i = 0; same && i < n; i++) same = ids.ids[i] == expected[i];
    char got[256] = "";
    for (size_t i = 0, at = 0; i < ids.n && at < sizeof got - 16; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, "%d ", ids.ids[i]);
    test_check(same, __FILE__, line, "\"%s\" gave %s%s", text, got, err.message);
    tern_free(ids.ids);
}
#define CHECK_IDS(t, text, flags, ...)                                                             \
    fixture_check_ids(t, text, flags, (const int32_t[]){__VA_ARGS__, -1}, __LINE__)

#endif
