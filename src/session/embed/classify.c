// Classifies and embeds images: resized and cropped as the model's files say, cut into squares that
// become rows, and read like texts.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "session/session.h"
#include "tern_image.h"

#define HITS 5

typedef struct viewer {
    tern_reader reader;
    tern_image_rules rules;
    int32_t n_rows; // of an image
    tern_classify_hit *hits;
    int32_t n_hits;
    float *scores, *vectors;
} viewer;

// ---- Pixels to rows ----------------------------------------------------------------------------

// The first of `part` pixels that are cut out of the middle; of two equally good ones, the same as
// in the reference of the model's files: Python's round, or the first.
static int32_t middle(int32_t all, int32_t part, bool rounds) {
    int32_t left = all - part;
    return left / 2 + (rounds && left % 2 && left / 2 % 2);
}

// Transformers and torchvision: the shorter edge is given, the longer one is truncated to an
// integer.
static void sizes(const tern_image_rules *r, const tern_image *p, int32_t *width, int32_t *height) {
    *width = r->width;
    *height = r->height;
    if (!r->shorter) return;
    bool wide = p->width >= p->height;
    int64_t longer = wide ? p->width : p->height, shorter = wide ? p->height : p->width;
    int32_t scaled = (int32_t)(longer * r->shorter / shorter);
    *width = wide ? scaled : r->shorter;
    *height = wide ? r->shorter : scaled;
}

// Row 0 stands for the whole image and has no pixels. In a square the colour changes slowest, as in
// the weights.
static void cut_patches(const viewer *v, const tern_image *p, float *out) {
    const tern_image_rules *r = &v->rules;
    int32_t edge = (int32_t)v->reader.m->config.n_patch, side = r->width / edge;
    int32_t left = middle(p->width, r->width, r->rounds);
    int32_t top = middle(p->height, r->height, r->rounds);
    size_t n = (size_t)v->reader.input_width;
    memset(out, 0, n * sizeof *out);
    for (int32_t i = 0; i < v->n_rows - 1; i++) {
        int32_t x0 = left + i % side * edge, y0 = top + i / side * edge;
        float *to = out + (size_t)(i + 1) * n;
        for (int c = 0; c < 3; c++)
            for (int32_t y = 0; y < edge; y++)
                for (int32_t x = 0; x < edge; x++) {
                    size_t at = (size_t)(y0 + y) * (size_t)p->width + (size_t)(x0 + x);
                    float level = (float)p->rgb[3 * at + (size_t)c] * r->factor;
                    *to++ = (level - r->mean[c]) / r->deviation[c];
                }
    }
}

// An image that is much longer than wide would be resized to far more pixels than are used.
static tern_status check_shape(const tern_image *p, tern_error *err) {
    TERN_NEED(p->rgb);
    int64_t longer = p->width > p->height ? p->width : p->height;
    int64_t shorter = p->width > p->height ? p->height : p->width;
    if (shorter < 1 || longer / shorter > 200)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%d x %d pixels: expected at most 200 times as long as wide",
                         (int)p->width, (int)p->height);
    return TERN_OK;
}

static tern_status add_image(viewer *v, const tern_image *p, tern_error *err) {
    tern_reader *r = &v->reader;
    tern_image sized;
    int32_t width, height;
    size_t n = (size_t)v->n_rows, n_floats = n * (size_t)r->input_width;
    TERN_TRY(check_shape(p, err));
    sizes(&v->rules, p, &width, &height);
    TERN_TRY(tern_image_resize(&sized, p, width, height, v->rules.filter, err));
    tern_status status = tern_reader_input(r, n_floats, err);
    if (status == TERN_OK &&
        tern_array_reserve(TERN_MEM_SESSION, &r->ids.ids, &r->ids.capacity, r->ids.n, n) != 0)
        status = tern_fail_memory(err, n * sizeof *r->ids.ids);
    if (status == TERN_OK) {
        cut_patches(v, &sized, r->input_rows + r->n_input);
        r->n_input += n_floats;
        for (int32_t i = 0; i < v->n_rows; i++) r->ids.ids[r->ids.n++] = i;
    }
    tern_image_close(&sized);
    return status == TERN_OK ? tern_reader_add(r, n, err) : status;
}

// ---- Rows to labels ----------------------------------------------------------------------------

static void take_scores(void *user, size_t image, const float *row) {
    const viewer *v = user;
    size_t n = v->reader.width;
    double sum = 0;
    float most = row[0];
    tern_classify_hit *hits = v->hits + image * (size_t)v->n_hits;
    for (size_t i = 1; i < n; i++) most = row[i] > most ? row[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp((double)(row[i] - most));
    if (v->scores) memcpy(v->scores + image * n, row, n * sizeof *row);
    for (int32_t k = 0, n_found = 0; k < (int32_t)n; k++) {
        int32_t at = n_found; // by falling score, ties by label
        while (at > 0 && row[k] > hits[at - 1].score) at--;
        if (at == v->n_hits) continue;
        n_found += n_found < v->n_hits;
        memmove(hits + at + 1, hits + at, (size_t)(n_found - at - 1) * sizeof *hits);
        hits[at] = (tern_classify_hit){.label_id = k,
                                       .score = row[k],
                                       .probability = (float)(exp((double)(row[k] - most)) / sum),
                                       .label = tern_model_label(v->reader.m, k)};
    }
}

static void take_vector(void *user, size_t image, const float *row) {
    const viewer *v = user;
    memcpy(v->vectors + image * v->reader.width, row, v->reader.width * sizeof *row);
}

// ---- The whole ---------------------------------------------------------------------------------

static tern_status settle(viewer *v, const tern_embed_params *p, tern_error *err) {
    tern_reader *r = &v->reader;
    const tern_config *c = &r->m->config;
    int32_t max_length;
    if (r->m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", r->m->path);
    if (!c->n_image)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model reads no images", r->m->path);
    v->n_rows = (int32_t)c->n_vocab;
    r->input = "patches";
    r->input_width = 3 * c->n_patch * c->n_patch;
    r->user = v;
    tern_status status = tern_images_read(r->m->file, c, &v->rules, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, r->m->path);
    return tern_reader_settle(r, p, v->n_rows, &max_length, err);
}

static tern_status view(viewer *v, const tern_image *images, tern_error *err) {
    for (size_t i = 0; i < v->reader.n_texts; i++) {
        char which[40];
        snprintf(which, sizeof which, "image %zu", i + 1);
        tern_status status = add_image(v, &images[i], err);
        if (status == TERN_ERR_ARGUMENT) return tern_fail_prefix(err, status, which);
        if (status != TERN_OK) return status;
    }
    return tern_reader_finish(&v->reader, err);
}

tern_status tern_classify(tern_model *m, const tern_image *images, size_t n_images,
                          const tern_classify_params *params, tern_classify_hit *hits,
                          tern_error *err) {
    tern_clear(err);
    static const tern_classify_params defaults = {0};
    TERN_NEED(m);
    TERN_NEED_ARRAY(images, n_images);
    TERN_NEED_ARRAY(hits, n_images);
    if (!params) params = &defaults;
    int32_t n_labels = (int32_t)m->config.n_labels;
    viewer v = {.reader = {.m = m, .n_texts = n_images, .output = "scores"},
                .hits = hits,
                .n_hits = params->n_hits    ? params->n_hits
                          : n_labels < HITS ? n_labels
                                            : HITS,
                .scores = params->scores};
    v.reader.take = take_scores;
    v.reader.width = (size_t)n_labels;
    const tern_embed_params p = {.on_progress = params->on_progress, .user = params->user};
    tern_model_hold(m);
    tern_status status = settle(&v, &p, err);
    if (status == TERN_OK && !n_labels)
        status = tern_fail(err, TERN_ERR_UNSUPPORTED,
                           "%s: the model makes vectors of images and no labels", m->path);
    if (status == TERN_OK && (v.n_hits < 1 || v.n_hits > n_labels))
        status = tern_fail(err, TERN_ERR_ARGUMENT, "n_hits is %d: expected 1 to %d, or 0 for %d",
                           (int)params->n_hits, (int)n_labels, HITS);
    if (status == TERN_OK) status = view(&v, images, err);
    tern_reader_close(&v.reader);
    tern_model_let_go(m);
    return status;
}

tern_status tern_embed_images(tern_model *m, const tern_image *images, size_t n_images, float *out,
                              tern_error *err) {
    tern_clear(err);
    static const tern_embed_params defaults = {0};
    TERN_NEED(m);
    TERN_NEED_ARRAY(images, n_images);
    TERN_NEED_ARRAY(out, n_images);
    viewer v = {.reader = {.m = m, .n_texts = n_images, .output = "embedding"}, .vectors = out};
    v.reader.take = take_vector;
    v.reader.width = (size_t)m->config.n_embd;
    tern_model_hold(m);
    tern_status status = settle(&v, &defaults, err);
    if (status == TERN_OK) status = view(&v, images, err);
    tern_reader_close(&v.reader);
    tern_model_let_go(m);
    return status;
}
