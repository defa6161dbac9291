#include "cli_images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_one(tern_image *out, const char *path, const tern_image_desc *desc) {
    tern_error err = {0};
    text bytes = {0};
    bool is_input = strcmp(path, "-") == 0;
    if (is_input && !text_read(&bytes, path)) return false;
    const char *read = bytes.ptr ? bytes.ptr : "";
    tern_status status = is_input ? tern_image_open_bytes(out, read, bytes.n, desc, &err)
                                  : tern_image_open(out, path, desc, &err);
    free(bytes.ptr);
    if (status == TERN_OK) return true;
    fail("%s%s", is_input ? "standard input: " : "", err.message);
    return false;
}

bool read_images(tern_image *out, const char **paths, int n, bool as_stored) {
    const tern_image_desc desc = {.as_stored = as_stored};
    for (int i = 0; i < n; i++)
        if (!read_one(&out[i], paths[i], &desc)) return false;
    return true;
}

void free_images(tern_image *images, int n) {
    for (int i = 0; i < n; i++) tern_image_close(&images[i]);
}

// ---- In prompts --------------------------------------------------------------------------------

void free_image_tokens(tern_image_tokens **image_tokens, int n) {
    for (int i = 0; image_tokens && i < n; i++) tern_image_tokens_close(image_tokens[i]);
    free(image_tokens);
}

tern_image_tokens **see_images(tern_model *model, const char **paths, int n) {
    tern_image_tokens **image_tokens = must_alloc(NULL, (size_t)n + 1, sizeof *image_tokens);
    const tern_image_desc desc = {0};
    for (int i = 0; i < n; i++) {
        tern_error err = {0};
        tern_image image;
        image_tokens[i] = NULL;
        bool ok = read_one(&image, paths[i], &desc);
        if (ok &&
            tern_image_tokens_open(&image_tokens[i], model, &image, 1, NULL, &err) != TERN_OK) {
            fail("%s: %s", paths[i], err.message);
            ok = false;
        }
        tern_image_close(&image);
        if (ok) continue;
        free_image_tokens(image_tokens, i);
        return NULL;
    }
    return image_tokens;
}

// A text that has no places for its images gets them in front.
static void add_places(const tern_model *model, int n, ids *prompt) {
    tern_vision_info info;
    size_t n_before = 0, k = 0;
    tern_model_get_vision_info(model, &info);
    for (size_t i = 0; i < prompt->n; i++)
        if (prompt->ptr[i] == info.image_token) return;
    int32_t around[] = {info.begin_token, info.image_token, info.end_token};
    for (int i = 0; i < 3; i++) n_before += around[i] >= 0 ? (size_t)n : 0;
    int32_t *all = must_alloc(NULL, prompt->n + n_before + 1, sizeof *all);
    for (int p = 0; p < n; p++)
        for (int i = 0; i < 3; i++)
            if (around[i] >= 0) all[k++] = around[i];
    if (prompt->n) memcpy(all + k, prompt->ptr, prompt->n * sizeof *all);
    free(prompt->ptr);
    prompt->ptr = all;
    prompt->n += k;
}

bool place_images(const tern_model *model, tern_image_tokens **image_tokens, int n, bool adds,
                  ids *prompt) {
    tern_error err = {0};
    size_t need = prompt->n;
    if (n == 0) return true;
    if (adds) add_places(model, n, prompt);
    for (int i = 0; i < n; i++) {
        size_t each;
        tern_image_tokens_ids(image_tokens[i], &each);
        need += each + 3;
    }
    int32_t *out = must_alloc(NULL, need + 1, sizeof *out);
    if (tern_image_tokens_place(model, prompt->ptr, prompt->n, image_tokens, (size_t)n, out, need,
                                &need, &err) != TERN_OK) {
        fail("%s", err.message);
        free(out);
        return false;
    }
    free(prompt->ptr);
    *prompt = (ids){.ptr = out, .n = need};
    return true;
}

static void put_quoted(text *out, const char *s, size_t n) {
    text_puts(out, "\"");
    for (size_t i = 0; i < n; i++) {
        char code[8];
        bool plain = (unsigned char)s[i] >= 32 && s[i] != '"' && s[i] != '\\';
        snprintf(code, sizeof code, "\\u%04x", (unsigned)(unsigned char)s[i]);
        text_collect(out, plain ? s + i : code, plain ? 1 : 6);
    }
    text_puts(out, "\"");
}

static void put_message(text *out, const char *role, const char *content, size_t n_bytes,
                        int n_images) {
    text_puts(out, "{\"role\":\"");
    text_puts(out, role);
    text_puts(out, "\",\"content\":[");
    for (int i = 0; i < n_images; i++) text_puts(out, "{\"type\":\"image\"},");
    text_puts(out, "{\"type\":\"text\",\"text\":");
    put_quoted(out, content, n_bytes);
    text_puts(out, "}]}");
}

bool tokenize_chat_with_images(const tern_model *model, const char *system, const text *question,
                               int n_images, ids *out) {
    text request = {0}, rendered = {0};
    tern_error err = {0};
    text_puts(&request, "{\"messages\":[");
    if (system) put_message(&request, "system", system, strlen(system), 0);
    if (system) text_puts(&request, ",");
    put_message(&request, "user", question->ptr ? question->ptr : "", question->n, n_images);
    text_puts(&request, "]}");
    bool ok = tern_chat_format_json(model, request.ptr, request.n, text_collect, &rendered, &err) ==
              TERN_OK;
    if (!ok) fail("%s", err.message);
    if (ok)
        ok = tokenize(model, rendered.ptr ? rendered.ptr : "", rendered.n, TERN_TOKENIZE_SPECIAL,
                      out);
    free(request.ptr);
    free(rendered.ptr);
    return ok;
}
