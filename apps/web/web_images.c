// Images, for vision models (docs/images.md): the page decodes them and passes pixels.
#include <string.h>
#include "apps/web/web.h"
#include "apps/web/web_text.h"
#include "base/alloc.h"
#include "tern_image.h"

WEB_EXPORT(web_see) int32_t web_see(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_images_place) int32_t web_images_place(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_image_close) int32_t web_image_close(int32_t id);
WEB_EXPORT(web_classify) int32_t web_classify(int32_t model, const char *json, uint32_t n);
WEB_EXPORT(web_embed_images)
int32_t web_embed_images(int32_t model, const char *json, uint32_t n);

#define PIXELS_MAX 89478485 // of an image, as for images from files

struct web_image {
    int32_t id;
    tern_image_tokens *image;
    struct web_image *next;
};
static int32_t last_image;

// ---- Pixels -------------------------------------------------------------------------------------

// {"width", "height", "at"} each: at is the address where the page put its bytes, red, green, blue.
static tern_status read_images(web_args *args, const char *what, const tern_json *array,
                               tern_image **out, tern_error *err) {
    size_t i = 0;
    if (!array) return tern_fail(err, TERN_ERR_ARGUMENT, "%s: \"images\" is missing", what);
    tern_image *list = tern_alloc_array(TERN_MEM_MISC, array->n, sizeof *list);
    *out = list;
    if (!list) return tern_fail_memory(err, array->n * sizeof *list);
    for (const tern_json *item = tern_json_first(&args->doc, array); item;
         item = tern_json_next(&args->doc, array, item), i++) {
        uint64_t at = 0;
        const web_field fields[] = {{"width", WEB_INT, &list[i].width, 1, PIXELS_MAX, NULL},
                                    {"height", WEB_INT, &list[i].height, 1, PIXELS_MAX, NULL},
                                    {"at", WEB_COUNT, &at, 0, 0, NULL}};
        TERN_TRY(web_args_object(args, what, item, fields, 3, err));
        list[i].rgb = (uint8_t *)(uintptr_t)at;
        if (!at || (int64_t)list[i].width * list[i].height > PIXELS_MAX)
            return tern_fail(err, TERN_ERR_ARGUMENT, "%s: %d x %d pixels: expected 1 to %d", what,
                             (int)list[i].width, (int)list[i].height, PIXELS_MAX);
    }
    return TERN_OK;
}

// A call about images, which may wait for the GPU.
typedef struct asking {
    web_model *model;
    web_args args;
    const tern_json *array;
    tern_image *images; // [array->n]
} asking;

// json: "images", and the member `more`. Close it in any case.
static tern_status open_asking(asking *a, int32_t model, const char *what, const char *json,
                               uint32_t n, const web_field *more, tern_error *err) {
    const web_field fields[] = {{"images", WEB_ARRAY, &a->array, 0, 0, NULL}, *more};
    *a = (asking){.model = web_model_find(model, err)};
    if (!a->model) return err->status;
    web_gpu_enter(true);
    TERN_TRY(web_args_read(&a->args, what, json, n, fields, 2, err));
    return read_images(&a->args, what, a->array, &a->images, err);
}

static void close_asking(asking *a) {
    tern_free(a->images);
    web_args_free(&a->args);
}

// ---- In texts -----------------------------------------------------------------------------------

static void close_image(struct web_image *s) {
    tern_image_tokens_close(s->image);
    tern_free(s);
}

void web_images_close(web_model *m) {
    while (m->images) {
        struct web_image *s = m->images;
        m->images = s->next;
        close_image(s);
    }
}

static int32_t add_image(web_model *m, tern_image_tokens *image, tern_error *err) {
    struct web_image *s = tern_alloc(TERN_MEM_MISC, sizeof *s);
    if (!s) {
        tern_image_tokens_close(image);
        tern_fail_memory(err, sizeof *s);
        return web_fail(err);
    }
    *s = (struct web_image){.id = ++last_image, .image = image, .next = m->images};
    m->images = s;
    return s->id;
}

// Encodes an image, or two frames of a video, by the model; returns the image's id.
int32_t web_see(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    asking a;
    tern_image_tokens *image = NULL;
    uint64_t most = 0;
    const web_field more = {"n_pixels_max", WEB_COUNT, &most, 0, 0, NULL};
    tern_status status = open_asking(&a, model, "see", json, n, &more, &err);
    const tern_image_tokens_params params = {.n_pixels_max = (int64_t)most};
    if (status == TERN_OK)
        status =
            tern_image_tokens_open(&image, a.model->model, a.images, a.array->n, &params, &err);
    close_asking(&a);
    return status == TERN_OK ? add_image(a.model, image, &err) : web_fail(&err);
}

static struct web_image **place_of(int32_t id, tern_error *err) {
    for (web_model *m = web_model_first(); m; m = m->next)
        for (struct web_image **at = &m->images; *at; at = &(*at)->next)
            if ((*at)->id == id) return at;
    tern_fail(err, TERN_ERR_ARGUMENT, "there is no image %d", id);
    return NULL;
}

int32_t web_image_close(int32_t id) {
    tern_error err = {0};
    struct web_image **at = place_of(id, &err), *s = at ? *at : NULL;
    if (!s) return web_fail(&err);
    *at = s->next;
    close_image(s);
    return 0;
}

// Finds images by their ids; *n_rows: rows of all of them.
static tern_status find_images(const int32_t *ids, size_t n, tern_image_tokens **images,
                               size_t *n_rows, tern_error *err) {
    *n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        size_t each;
        struct web_image **at = place_of(ids[i], err);
        if (!at) return TERN_ERR_ARGUMENT;
        images[i] = (*at)->image;
        tern_image_tokens_ids(images[i], &each);
        *n_rows += each;
    }
    return TERN_OK;
}

typedef struct placing {
    web_args args;
    tern_ids prompt, out;
    int32_t *image_ids;
    size_t n_images;
    tern_image_tokens **images;
} placing;

static tern_status place(placing *p, const web_model *m, const char *json, uint32_t n,
                         tern_error *err) {
    const tern_json *ids = NULL, *images = NULL;
    size_t n_rows;
    const web_field fields[] = {{"ids", WEB_ARRAY, &ids, 0, 0, NULL},
                                {"images", WEB_ARRAY, &images, 0, 0, NULL}};
    TERN_TRY(web_args_read(&p->args, "place", json, n, fields, 2, err));
    if (!ids || !images)
        return tern_fail(err, TERN_ERR_ARGUMENT, "place: \"ids\" and \"images\" are needed");
    TERN_TRY(web_args_ids(&p->args, "place", ids, &p->prompt.ids, &p->prompt.n, err));
    TERN_TRY(web_args_ids(&p->args, "place", images, &p->image_ids, &p->n_images, err));
    p->images = tern_alloc_array(TERN_MEM_MISC, p->n_images, sizeof *p->images);
    if (!p->images) return tern_fail_memory(err, p->n_images * sizeof *p->images);
    TERN_TRY(find_images(p->image_ids, p->n_images, p->images, &n_rows, err));
    p->out.capacity = p->prompt.n + n_rows;
    p->out.ids = tern_alloc_array(TERN_MEM_MISC, p->out.capacity, sizeof *p->out.ids);
    if (!p->out.ids) return tern_fail_memory(err, p->out.capacity * sizeof *p->out.ids);
    return tern_image_tokens_place(m->model, &p->prompt, p->images, p->n_images, &p->out, err);
}

// {"ids", "images"}: puts images into a prompt; the result is like web_tokenize's.
int32_t web_images_place(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    placing p = {0};
    const web_model *m = web_model_find(model, &err);
    if (!m) return web_fail(&err);
    tern_status status = place(&p, m, json, n, &err);
    int32_t answer = status == TERN_OK ? web_put_ids(p.out.ids, p.out.n, 0) : web_fail(&err);
    tern_free(p.prompt.ids);
    tern_free(p.image_ids);
    tern_free(p.images);
    tern_free(p.out.ids);
    web_args_free(&p.args);
    return answer;
}

// ---- What they show -----------------------------------------------------------------------------

static int32_t put_hits(const tern_classify_hit *hits, size_t n_images, size_t n_hits) {
    tern_strbuf *b = web_result_begin();
    for (size_t i = 0; i < n_images * n_hits; i++) {
        const tern_classify_hit *h = &hits[i];
        tern_strbuf_puts(b, i == 0 ? "[[" : i % n_hits == 0 ? "],[" : ",");
        tern_strbuf_printf(b, "{\"id\":%d,\"label\":", (int)h->label_id);
        tern_strbuf_json(b, h->label, strlen(h->label));
        tern_strbuf_puts(b, ",\"score\":");
        tern_strbuf_json_float(b, h->score);
        tern_strbuf_puts(b, ",\"probability\":");
        tern_strbuf_json_float(b, h->probability);
        tern_strbuf_puts(b, "}");
    }
    tern_strbuf_puts(b, n_images ? "]]" : "[]");
    return web_result_end();
}

static tern_status classify(const asking *a, tern_classify_params *params, tern_classify_hit **hits,
                            tern_error *err) {
    tern_media_info info;
    tern_model_get_media_info(a->model->model, &info);
    if (!params->n_hits || params->n_hits > info.n_labels)
        params->n_hits = info.n_labels < 5 ? info.n_labels : 5;
    size_t n = a->array->n * (size_t)params->n_hits;
    *hits = tern_alloc_array(TERN_MEM_MISC, n, sizeof **hits);
    if (!*hits) return tern_fail_memory(err, n * sizeof **hits);
    return tern_classify(a->model->model, a->images, a->array->n, params, *hits, err);
}

// The likeliest labels for each image.
int32_t web_classify(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    asking a;
    tern_classify_params params = {0};
    tern_classify_hit *hits = NULL;
    const web_field more = {"n_hits", WEB_INT, &params.n_hits, 0, INT32_MAX, NULL};
    tern_status status = open_asking(&a, model, "classify", json, n, &more, &err);
    if (status == TERN_OK) status = classify(&a, &params, &hits, &err);
    int32_t answer =
        status == TERN_OK ? put_hits(hits, a.array->n, (size_t)params.n_hits) : web_fail(&err);
    tern_free(hits);
    close_asking(&a);
    return answer;
}

// Writes vectors of images to the address `to`: [images, n_dims].
int32_t web_embed_images(int32_t model, const char *json, uint32_t n) {
    tern_error err = {0};
    asking a;
    uint64_t to = 0;
    const web_field more = {"to", WEB_COUNT, &to, 0, 0, NULL};
    tern_status status = open_asking(&a, model, "embed", json, n, &more, &err);
    if (status == TERN_OK)
        status =
            tern_embed_images(a.model->model, a.images, a.array->n, (float *)(uintptr_t)to, &err);
    close_asking(&a);
    return status == TERN_OK ? 0 : web_fail(&err);
}
