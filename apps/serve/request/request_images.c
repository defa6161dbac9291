#include "apps/serve/request/request_images.h"

#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cancel.h"

#define SMALL_PIXELS (512 * 512) // of "detail": "low", as in OpenAI's interface

// ---- In requests -------------------------------------------------------------------------------

static bool begins(tern_str s, const char *prefix) {
    size_t n = strlen(prefix);
    return s.len >= n && !memcmp(s.ptr, prefix, n);
}

// data:image/png;base64,...: the part behind the comma. The file's bytes show its format.
static bool read_url(tern_str url, tern_str *base64, const char *param, api_error *e) {
    const char *comma = url.len ? memchr(url.ptr, ',', url.len) : NULL;
    if (!begins(url, "data:")) {
        api_fail(e, 400, "unsupported_content", param,
                 "'%s' has an image at an address: this server fetches nothing. Send its bytes: "
                 "data:image/png;base64,...",
                 param);
        return false;
    }
    tern_str head = {url.ptr, comma ? (size_t)(comma - url.ptr) : 0};
    if (!comma || !tern_str_ends(head, ";base64")) {
        api_fail(e, 400, NULL, param, "'%s' has a data: URL without ';base64,'", param);
        return false;
    }
    *base64 = (tern_str){comma + 1, url.len - head.len - 1};
    return true;
}

static bool add(images *p, image one, const char *param, api_error *e) {
    if (one.base64.len == 0)
        api_fail(e, 400, NULL, param, "'%s' has an image of no bytes", param);
    else if (p->n == IMAGES_MAX)
        api_fail(e, 400, NULL, param, "there are more than %d images", IMAGES_MAX);
    else if (tern_array_reserve(TERN_MEM_SESSION, &p->list, &p->capacity, p->n, 1) != 0)
        api_fail_memory(e);
    if (e->status) return false;
    p->list[p->n++] = one;
    return true;
}

bool images_add(images *p, tern_str data, const char *param, api_error *e) {
    image one = {.base64 = data};
    bool is_url = begins(data, "data:") || begins(data, "http:") || begins(data, "https:");
    if (is_url && !read_url(data, &one.base64, param, e)) return false;
    return add(p, one, param, e);
}

// A URL as a string, or an object with it.
static tern_str find_url(const fields *part, tern_str *detail) {
    const tern_json *url = field_any(part, "image_url");
    *detail = tern_json_str(field_any(part, "detail"));
    if (!tern_json_is(url, TERN_JSON_OBJECT)) return tern_json_str(url);
    *detail = tern_json_str(tern_json_get(part->doc, url, "detail"));
    return tern_json_str(tern_json_get(part->doc, url, "url"));
}

bool images_add_part(images *p, const fields *part, const char *param) {
    const tern_json *source = field_any(part, "source");
    tern_str detail = {NULL, 0}, kind = tern_json_str(tern_json_get(part->doc, source, "type"));
    image one = {0};
    if (part->error->status) return false;
    if (tern_str_is(kind, "base64"))
        one.base64 = tern_json_str(tern_json_get(part->doc, source, "data"));
    tern_str url =
        source ? tern_json_str(tern_json_get(part->doc, source, "url")) : find_url(part, &detail);
    if (!one.base64.ptr && !url.ptr) {
        api_fail(part->error, 400, "unsupported_content", param,
                 "'%s' has an image that is neither a data: URL nor base64", param);
        return false;
    }
    if (!one.base64.ptr && !read_url(url, &one.base64, param, part->error)) return false;
    one.is_small = tern_str_is(detail, "low");
    return add(p, one, param, part->error);
}

bool images_copy(images *to, const images *from) {
    *to = (images){0};
    if (from->n == 0) return true;
    to->list = tern_alloc_array(TERN_MEM_SESSION, from->n, sizeof *to->list);
    for (; to->list && to->n < from->n; to->n++) {
        image *one = &to->list[to->n];
        *one = from->list[to->n];
        one->base64.ptr = tern_strndup(TERN_MEM_SESSION, one->base64.ptr, one->base64.len);
        if (!one->base64.ptr) break;
    }
    if (to->n == from->n) return true;
    images_free_copy(to);
    return false;
}

void images_free(images *p) {
    tern_free(p->list);
    *p = (images){0};
}

void images_free_copy(images *p) {
    for (size_t i = 0; i < p->n; i++) tern_free((char *)p->list[i].base64.ptr);
    images_free(p);
}

// ---- Looking at them ---------------------------------------------------------------------------

// Others' tasks have their turns between the pieces.
static tern_status encode(task *by, tern_image_encoder *encoder, tern_image_tokens **out,
                          tern_error *err) {
    tern_status status = TERN_OK;
    while (status == TERN_OK && !*out)
        if (task_pause(by))
            status = tern_image_encoder_poll(encoder, out, err);
        else
            status = tern_fail(err, TERN_ERR_CANCELLED, "the image was cancelled");
    return status;
}

static tern_status see(const image *p, const served *s, task *by, tern_image_tokens **out,
                       tern_error *err) {
    const tern_image_desc desc = {.n_pixels_max = IMAGE_PIXELS_MAX};
    const tern_image_tokens_params params = {.n_pixels_max = p->is_small ? SMALL_PIXELS : 0};
    tern_strbuf bytes = {0};
    tern_image pixels;
    tern_image_encoder *encoder;
    tern_status status = TERN_OK;
    if (!tern_strbuf_unbase64(&bytes, p->base64))
        status = tern_fail(err, TERN_ERR_FORMAT, "this is not base64");
    else if (bytes.failed)
        status = tern_fail_memory(err, p->base64.len);
    else
        status = tern_image_open_bytes(&pixels, tern_strbuf_text(&bytes), bytes.len, &desc, err);
    tern_strbuf_free(&bytes);
    if (status != TERN_OK) return status;
    status = tern_image_encoder_open(&encoder, s->model, &pixels, 1, &params, err);
    tern_image_close(&pixels);
    if (status == TERN_OK) status = encode(by, encoder, out, err);
    tern_image_encoder_close(encoder);
    return status;
}

bool images_see(const images *p, const served *s, task *by, tern_image_tokens **image_tokens,
                const char *param, api_error *e) {
    size_t n_rows = 0, n_rows_max = (size_t)s->n_context, n;
    for (size_t i = 0; i < p->n && !tern_is_cancelled(); i++) {
        tern_error err = {0};
        if (see(&p->list[i], s, by, &image_tokens[i], &err) != TERN_OK) {
            char which[40];
            snprintf(which, sizeof which, "image %zu of %zu", i + 1, p->n);
            tern_fail_prefix(&err, err.status, which);
            api_fail_status(e, &err, param);
            return false;
        }
        tern_image_tokens_ids(image_tokens[i], &n);
        n_rows += n;
        if (n_rows > n_rows_max) {
            api_fail(e, 400, "context_length_exceeded", param,
                     "%zu of %zu images have %zu tokens; the context has room for %zu, the "
                     "answer included",
                     i + 1, p->n, n_rows, n_rows_max);
            return false;
        }
    }
    if (!tern_is_cancelled()) return true;
    api_fail(e, 503, "stopping", NULL, "the server is stopping");
    return false;
}
