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

// A text without placeholders gets its images in front.
static void add_places(const tern_model *model, int n, ids *prompt) {
    tern_media_info info;
    size_t n_before = 0, k = 0;
    tern_model_get_media_info(model, &info);
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

bool place_images(const tern_model *model, tern_image_tokens **image_tokens, int n, ids *prompt) {
    tern_error err = {0};
    size_t need = prompt->n;
    if (n == 0) return true;
    add_places(model, n, prompt);
    for (int i = 0; i < n; i++) {
        size_t each;
        tern_image_tokens_ids(image_tokens[i], &each);
        need += each + 3;
    }
    const tern_ids before = {prompt->ptr, prompt->n, prompt->n};
    tern_ids out = {must_alloc(NULL, need + 1, sizeof *out.ids), need, 0};
    if (tern_image_tokens_place(model, &before, image_tokens, (size_t)n, &out, &err) != TERN_OK) {
        fail("%s", err.message);
        free(out.ids);
        return false;
    }
    free(prompt->ptr);
    *prompt = (ids){.ptr = out.ids, .n = out.n};
    return true;
}
