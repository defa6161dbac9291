// How a model expects its images, and the names of its labels.
//
// transformers has the first in preprocessor_config.json, timm in the member pretrained_cfg of
// config.json, a GGUF of ours in keys of "tern.image."; the names are config.json's id2label,
// timm's label_names, or a list of texts.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "models/models.h"

#define KEY       "tern.image."
#define SIDE_MAX  16384
#define LABEL_KEY "tern.labels"
#define CLIP      "clip.vision."

#define VISION_PIXELS_MAX ((int64_t)1 << 28)
#define TILES_MAX         64
#define TILES_MAX_SIDE    8
#define TILE              512 // pixels, for LFM2-VL

// ---- Folders -----------------------------------------------------------------------------------

static int32_t side(const tern_json *j) {
    int64_t n = tern_json_int(j, 0);
    return n >= 1 && n <= SIDE_MAX ? (int32_t)n : 0;
}

static void read_three(const tern_json_doc *doc, const tern_json *list, float out[3]) {
    int i = 0;
    for (const tern_json *e = tern_json_first(doc, list); e && i < 3; i++) {
        out[i] = (float)tern_json_number(e, out[i]);
        e = tern_json_next(doc, list, e);
    }
}

// "size" is a number, the shorter edge, or both edges.
static void read_size(const tern_json_doc *doc, const char *name, int32_t *width, int32_t *height,
                      int32_t *shorter) {
    char member[64];
    const tern_json *size = tern_json_path(doc, name);
    *width = *height = side(size);
    *shorter = 0;
    if (!tern_json_is(size, TERN_JSON_OBJECT)) return;
    snprintf(member, sizeof member, "%s.width", name);
    *width = side(tern_json_path(doc, member));
    snprintf(member, sizeof member, "%s.height", name);
    *height = side(tern_json_path(doc, member));
    snprintf(member, sizeof member, "%s.shortest_edge", name);
    *shorter = side(tern_json_path(doc, member));
}

static tern_status refuse_filter(tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "images are to be resized with a filter that is neither bicubic nor bilinear");
}

static tern_status read_transformers(const tern_json_doc *doc, tern_image_rules *r,
                                     tern_error *err) {
    int32_t width, height, shorter, cut_width, cut_height, none;
    int64_t filter = tern_json_int(tern_json_path(doc, "resample"), 2);
    read_size(doc, "size", &width, &height, &shorter);
    read_size(doc, "crop_size", &cut_width, &cut_height, &none);
    bool cuts = tern_json_bool(tern_json_path(doc, "do_center_crop"), false);
    if (!cuts && width) { // both edges, whatever the shape
        r->width = width;
        r->height = height;
    }
    if (cuts) {
        r->shorter = shorter ? shorter : width;
        r->width = cut_width ? cut_width : width;
        r->height = cut_height ? cut_height : height;
    }
    if (filter != 2 && filter != 3) return refuse_filter(err); // Pillow's numbers
    r->filter = filter == 3 ? TERN_IMAGE_BICUBIC : TERN_IMAGE_BILINEAR;
    r->factor = (float)tern_json_number(tern_json_path(doc, "rescale_factor"), r->factor);
    r->rounds = tern_json_bool(tern_json_path(doc, "tern_crop_rounds"), false);
    if (!tern_json_bool(tern_json_path(doc, "do_normalize"), true)) {
        for (int i = 0; i < 3; i++) r->mean[i] = 0, r->deviation[i] = 1;
        return TERN_OK;
    }
    read_three(doc, tern_json_path(doc, "image_mean"), r->mean);
    read_three(doc, tern_json_path(doc, "image_std"), r->deviation);
    return TERN_OK;
}

// timm first resizes to a larger edge and then crops: 248 to 224 at 0.9, the default share.
static tern_status read_timm(const tern_json_doc *doc, tern_image_rules *r, tern_error *err) {
    tern_str filter = tern_json_str(tern_json_path(doc, "pretrained_cfg.interpolation"));
    double share = tern_json_number(tern_json_path(doc, "pretrained_cfg.crop_pct"), 0.9);
    if (share > 0 && share <= 1) r->shorter = (int32_t)floor(r->width / share);
    if (filter.ptr && !tern_str_is(filter, "bicubic") && !tern_str_is(filter, "bilinear"))
        return refuse_filter(err);
    if (tern_str_is(filter, "bilinear")) r->filter = TERN_IMAGE_BILINEAR;
    read_three(doc, tern_json_path(doc, "pretrained_cfg.mean"), r->mean);
    read_three(doc, tern_json_path(doc, "pretrained_cfg.std"), r->deviation);
    r->rounds = true;
    return TERN_OK;
}

// ---- GGUF --------------------------------------------------------------------------------------

static void read_three_keys(const tern_file *file, const char *key, float out[3]) {
    const tern_meta *list = tern_file_meta(file, key);
    double x;
    for (uint64_t i = 0; list && list->type == TERN_META_ARRAY && i < list->n && i < 3; i++)
        if (tern_meta_element(list, i, &x)) out[i] = (float)x;
}

static tern_status read_gguf(const tern_file *file, tern_image_rules *r, tern_error *err) {
    int64_t shorter = 0, filter = r->filter == TERN_IMAGE_BICUBIC ? 3 : 2;
    double factor = (double)r->factor;
    tern_file_meta_int(file, KEY "shortest_edge", &shorter);
    tern_file_meta_int(file, KEY "resample", &filter);
    tern_file_meta_float(file, KEY "rescale_factor", &factor);
    tern_file_meta_bool(file, KEY "crop_rounds", &r->rounds);
    if (filter != 2 && filter != 3) return refuse_filter(err);
    r->filter = filter == 3 ? TERN_IMAGE_BICUBIC : TERN_IMAGE_BILINEAR;
    r->shorter = shorter >= 0 && shorter <= SIDE_MAX ? (int32_t)shorter : 0;
    r->factor = (float)factor;
    read_three_keys(file, KEY "mean", r->mean);
    read_three_keys(file, KEY "std", r->deviation);
    return TERN_OK;
}

static tern_status write_rules(tern_gguf_writer *w, const tern_image_rules *r) {
    int filter = r->filter == TERN_IMAGE_BICUBIC ? 3 : 2;
    TERN_TRY(tern_gguf_put_int(w, KEY "shortest_edge", TERN_META_U32, r->shorter));
    TERN_TRY(tern_gguf_put_int(w, KEY "resample", TERN_META_U32, filter));
    TERN_TRY(tern_gguf_put_f32(w, KEY "rescale_factor", r->factor));
    TERN_TRY(tern_gguf_put_int(w, KEY "crop_rounds", TERN_META_BOOL, r->rounds));
    TERN_TRY(tern_gguf_put_array(w, KEY "mean", TERN_META_F32, r->mean, 3));
    return tern_gguf_put_array(w, KEY "std", TERN_META_F32, r->deviation, 3);
}

// ---- Both --------------------------------------------------------------------------------------

static tern_status check_colors(const tern_image_rules *r, tern_error *err) {
    bool sound = isfinite(r->factor) && r->factor > 0;
    for (int i = 0; i < 3; i++)
        sound = sound && isfinite(r->mean[i]) && isfinite(r->deviation[i]) && r->deviation[i] > 0;
    if (sound) return TERN_OK;
    return tern_fail(
        err, TERN_ERR_FORMAT,
        "the mean, deviation and factor of an image's colours must be finite, the last "
        "two above 0");
}

static tern_status check(const tern_image_rules *r, const tern_config *c, tern_error *err) {
    TERN_TRY(check_colors(r, err));
    if (r->width == c->n_image && r->height == c->n_image &&
        (r->shorter == 0 || r->shorter >= r->width))
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "images are made %d x %d, but the model reads %lld x %lld", (int)r->width,
                     (int)r->height, (long long)c->n_image, (long long)c->n_image);
}

tern_status tern_images_read(const tern_file *file, const tern_config *c, tern_image_rules *r,
                             tern_error *err) {
    *r = (tern_image_rules){.width = (int32_t)c->n_image,
                            .height = (int32_t)c->n_image,
                            .filter = TERN_IMAGE_BICUBIC,
                            .factor = 1.0F / 255,
                            .mean = {0.5F, 0.5F, 0.5F},
                            .deviation = {0.5F, 0.5F, 0.5F}};
    if (file->kind == TERN_FILE_GGUF)
        TERN_TRY(read_gguf(file, r, err));
    else if (tern_json_root(&file->preprocessor))
        TERN_TRY(read_transformers(&file->preprocessor, r, err));
    else if (tern_json_path(&file->config, "architecture"))
        TERN_TRY(read_timm(&file->config, r, err));
    return check(r, c, err);
}

// A member's key as a number; -1: not a number.
static int64_t number_of(tern_str key) {
    int64_t n = 0;
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] < '0' || key.ptr[i] > '9' || n > INT32_MAX) return -1;
        n = 10 * n + (key.ptr[i] - '0');
    }
    return key.len ? n : -1;
}

void tern_images_labels(const tern_file *file, tern_str *labels, size_t n) {
    static const char *const members[] = {"id2label", "label_names", "pretrained_cfg.label_names"};
    const tern_json_doc *doc = &file->config;
    const tern_meta *texts = file->kind == TERN_FILE_GGUF ? tern_file_meta(file, LABEL_KEY) : NULL;
    for (size_t i = 0; i < n; i++)
        labels[i] =
            texts && texts->strings && i < texts->n ? texts->strings[i] : (tern_str){NULL, 0};
    if (file->kind == TERN_FILE_GGUF) return;
    const tern_json *list = NULL;
    for (size_t k = 0; !list && k < sizeof members / sizeof *members; k++)
        list = tern_json_path(doc, members[k]);
    bool keyed = tern_json_is(list, TERN_JSON_OBJECT);
    int64_t place = 0;
    for (const tern_json *e = tern_json_first(doc, list); e; e = tern_json_next(doc, list, e)) {
        int64_t id = keyed ? number_of(tern_json_str(e)) : place++;
        const tern_json *label = keyed ? tern_json_value_of(doc, e) : e;
        if (id >= 0 && (uint64_t)id < n) labels[id] = tern_json_str(label);
    }
}

tern_status tern_images_write_gguf(tern_gguf_writer *w, const tern_file *from, const tern_config *c,
                                   tern_error *err) {
    tern_image_rules r;
    size_t n = (size_t)c->n_labels, n_named = 0;
    if (!c->n_image) return TERN_OK;
    TERN_TRY(tern_images_read(from, c, &r, err));
    TERN_TRY(write_rules(w, &r));
    tern_str *labels = tern_alloc_array(TERN_MEM_FILE, n, sizeof *labels);
    if (!labels) return tern_fail_memory(err, n * sizeof *labels);
    tern_images_labels(from, labels, n);
    for (size_t i = 0; i < n; i++) {
        n_named += labels[i].ptr != NULL;
        if (!labels[i].ptr) labels[i] = TERN_STR("");
    }
    tern_status status = n_named ? tern_gguf_put_strings(w, LABEL_KEY, labels, n) : TERN_OK;
    tern_free(labels);
    return status;
}

// ---- To folders --------------------------------------------------------------------------------

static void put_three(tern_strbuf *out, const char *name, const float x[3]) {
    tern_strbuf_printf(out, "  \"%s\": [%.9g, %.9g, %.9g],\n", name, (double)x[0], (double)x[1],
                       (double)x[2]);
}

tern_status tern_images_write_json(const tern_file *from, const tern_config *c, tern_strbuf *out,
                                   tern_error *err) {
    tern_image_rules r;
    TERN_TRY(tern_images_read(from, c, &r, err));
    bool cuts = r.shorter > 0;
    tern_strbuf_puts(out, "{\n  \"image_processor_type\": \"ViTImageProcessor\",\n"
                          "  \"do_resize\": true,\n  \"do_rescale\": true,\n"
                          "  \"do_normalize\": true,\n");
    tern_strbuf_printf(out, "  \"do_center_crop\": %s,\n", cuts ? "true" : "false");
    if (cuts) tern_strbuf_printf(out, "  \"size\": {\"shortest_edge\": %d},\n", (int)r.shorter);
    tern_strbuf_printf(out, "  \"%s\": {\"height\": %d, \"width\": %d},\n",
                       cuts ? "crop_size" : "size", (int)r.height, (int)r.width);
    put_three(out, "image_mean", r.mean);
    put_three(out, "image_std", r.deviation);
    if (r.rounds) tern_strbuf_puts(out, "  \"tern_crop_rounds\": true,\n");
    tern_strbuf_printf(out, "  \"resample\": %d,\n  \"rescale_factor\": %.9g\n}\n",
                       r.filter == TERN_IMAGE_BICUBIC ? 3 : 2, (double)r.factor);
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

// transformers counts the labels by their names: those without one get transformers' default names.
tern_status tern_images_put_labels(const tern_file *from, const tern_config *c, tern_strbuf *config,
                                   tern_error *err) {
    size_t n = (size_t)c->n_labels;
    tern_str *labels = tern_alloc_array(TERN_MEM_FILE, n + 1, sizeof *labels);
    if (!labels) return tern_fail_memory(err, n * sizeof *labels);
    tern_images_labels(from, labels, n);
    while (config->len && config->ptr[config->len - 1] != '}') config->len--;
    if (config->len) config->len--;
    while (config->len && config->ptr[config->len - 1] == '\n') config->len--;
    tern_strbuf_puts(config, ",\n  \"id2label\": {");
    for (size_t i = 0; i < n; i++) {
        char name[32];
        int length = snprintf(name, sizeof name, "LABEL_%zu", i);
        tern_str label = labels[i].len ? labels[i] : (tern_str){name, (size_t)length};
        tern_strbuf_printf(config, "%s\n    \"%zu\": ", i ? "," : "", i);
        tern_strbuf_json(config, label.ptr, label.len);
    }
    tern_strbuf_puts(config, "\n  }\n}\n");
    tern_free(labels);
    return config->failed ? tern_fail_memory(err, config->len) : TERN_OK;
}

// ---- Any shape ---------------------------------------------------------------------------------

// "size" has numbers of pixels here, despite its members' names.
static void read_pixels(const tern_json_doc *doc, tern_vision_rules *r) {
    static const char *const least[] = {"size.shortest_edge", "min_pixels"};
    static const char *const most[] = {"size.longest_edge", "max_pixels"};
    for (int i = 1; i >= 0; i--) {
        r->least = tern_json_int(tern_json_path(doc, least[i]), r->least);
        r->most = tern_json_int(tern_json_path(doc, most[i]), r->most);
    }
}

// For towers with tiles: numbers of rows, and how images are cut.
static void read_tiles(const tern_json_doc *doc, const tern_vision *v, tern_vision_rules *r) {
    int64_t block = v->n_patch * v->n_merge, each = block * block;
    int64_t least = tern_json_int(tern_json_path(doc, "min_image_tokens"), r->least / each);
    int64_t most = tern_json_int(tern_json_path(doc, "max_image_tokens"), r->most / each);
    r->least = least > 0 && least < VISION_PIXELS_MAX / each ? least * each : 0;
    r->most = most > 0 && most < VISION_PIXELS_MAX / each ? most * each : 0;
    r->tile = tern_json_int(tern_json_path(doc, "tile_size"), r->tile);
    r->tiles_least = tern_json_int(tern_json_path(doc, "min_tiles"), r->tiles_least);
    r->tiles_most = tern_json_int(tern_json_path(doc, "max_tiles"), r->tiles_most);
    r->tolerance = tern_json_number(tern_json_path(doc, "max_pixels_tolerance"), r->tolerance);
    r->whole_too = tern_json_bool(tern_json_path(doc, "use_thumbnail"), r->whole_too);
    if (!tern_json_bool(tern_json_path(doc, "do_image_splitting"), true)) r->tiles_most = 0;
}

// For towers with tiles of one size.
static tern_status read_longer(const tern_json_doc *doc, tern_vision_rules *r, tern_error *err) {
    int64_t edge = tern_json_int(tern_json_path(doc, "max_image_size.longest_edge"), r->edge);
    r->longer = tern_json_int(tern_json_path(doc, "size.longest_edge"), r->longer);
    if (!tern_json_bool(tern_json_path(doc, "do_image_splitting"), true)) r->tiles_most = 0;
    if (edge == r->edge) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "preprocessor_config.json: squares of %lld pixels a side for a tower that "
                     "sees %lld",
                     (long long)edge, (long long)r->edge);
}

// For towers that read squares of one size.
static tern_status check_square(const tern_json_doc *doc, const tern_vision_rules *r,
                                tern_error *err) {
    int64_t width = tern_json_int(tern_json_path(doc, "size.width"), r->edge);
    int64_t height = tern_json_int(tern_json_path(doc, "size.height"), r->edge);
    if (tern_json_bool(tern_json_path(doc, "do_pan_and_scan"), false))
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "preprocessor_config.json: do_pan_and_scan is not supported");
    if (width == r->edge && height == r->edge) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "preprocessor_config.json: images of %lld x %lld pixels for a tower that "
                     "sees %lld x %lld",
                     (long long)width, (long long)height, (long long)r->edge, (long long)r->edge);
}

static tern_status read_processor(const tern_json_doc *doc, const tern_vision *v,
                                  tern_image_rules *read, tern_vision_rules *r, tern_error *err) {
    int usual = read->filter == TERN_IMAGE_BICUBIC ? 3 : 2;
    int64_t filter = tern_json_int(tern_json_path(doc, "resample"), usual);
    if (filter == 1 && r->longer) filter = 3; // Lanczos', for which transformers takes this
    if (r->longer)
        TERN_TRY(read_longer(doc, r, err));
    else if (r->edge)
        TERN_TRY(check_square(doc, r, err));
    else if (r->tile)
        read_tiles(doc, v, r);
    else
        read_pixels(doc, r);
    if (filter != 2 && filter != 3) return refuse_filter(err);
    read->filter = filter == 3 ? TERN_IMAGE_BICUBIC : TERN_IMAGE_BILINEAR;
    read->factor =
        (float)tern_json_number(tern_json_path(doc, "rescale_factor"), (double)read->factor);
    read_three(doc, tern_json_path(doc, "image_mean"), read->mean);
    read_three(doc, tern_json_path(doc, "image_std"), read->deviation);
    return TERN_OK;
}

// The same from a tower's GGUF: llama.cpp's keys, and ours for what llama.cpp hard-codes.
static tern_status read_tower(const tern_file *tower, tern_image_rules *read, tern_vision_rules *r,
                              tern_error *err) {
    if (!r->edge) tern_file_meta_int(tower, CLIP "image_min_pixels", &r->least);
    if (!r->edge) tern_file_meta_int(tower, CLIP "image_max_pixels", &r->most);
    if (r->longer) {
        tern_file_meta_int(tower, CLIP "preproc_image_size", &r->longer);
        tern_file_meta_int(tower, KEY "max_tiles", &r->tiles_most);
    } else if (r->tile) {
        tern_file_meta_int(tower, KEY "tile_size", &r->tile);
        tern_file_meta_int(tower, KEY "min_tiles", &r->tiles_least);
        tern_file_meta_int(tower, KEY "max_tiles", &r->tiles_most);
        tern_file_meta_float(tower, KEY "max_pixels_tolerance", &r->tolerance);
        tern_file_meta_bool(tower, KEY "use_thumbnail", &r->whole_too);
    }
    TERN_TRY(read_gguf(tower, read, err));
    read_three_keys(tower, CLIP "image_mean", read->mean);
    read_three_keys(tower, CLIP "image_std", read->deviation);
    return TERN_OK;
}

// Defaults if a family's files do not say otherwise.
static tern_vision_rules usual_rules(const tern_vision *v) {
    int64_t block = v->n_patch * v->n_merge, each = block * block;
    int64_t edge = v->n_image ? v->n_image : v->n_side * v->n_patch;
    tern_vision_rules square = {.edge = edge, .least = edge * edge, .most = edge * edge};
    if (v->tower && v->tower->one_size && v->tower->tiles) {
        square.tile = edge;
        square.longer = 4 * edge;
        square.tiles_most = TILES_MAX;
        square.whole_too = true;
    }
    if (v->tower && v->tower->one_size) return square;
    if (!v->tower || !v->tower->tiles) return (tern_vision_rules){.least = 65536, .most = 16777216};
    return (tern_vision_rules){.least = 64 * each,
                               .most = 256 * each,
                               .one_at_least = true,
                               .tile = TILE,
                               .tiles_least = 2,
                               .tiles_most = 10,
                               .tolerance = 2,
                               .whole_too = true};
}

static tern_status check_longer(const char *path, const tern_vision_rules *r, int64_t most,
                                tern_error *err) {
    if (r->edge * r->edge <= most && r->longer >= 1 && r->longer <= TILES_MAX_SIDE * r->edge &&
        r->tiles_most >= 0 && r->tiles_most <= TILES_MAX)
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s: at most %lld squares of %lld pixels a side, of images whose longer edge "
                     "is %lld, make no sense",
                     path, (long long)r->tiles_most, (long long)r->edge, (long long)r->longer);
}

static tern_status check_rules(const tern_file *file, const tern_vision *v,
                               const tern_vision_rules *r, tern_error *err) {
    const char *path = file->tower ? file->tower->path : "preprocessor_config.json";
    if (r->least < 1 || r->most < r->least || r->most > VISION_PIXELS_MAX)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: images of %lld to %lld pixels make no sense",
                         path, (long long)r->least, (long long)r->most);
    int64_t most = VISION_PIXELS_MAX / TILES_MAX; // pixels of a square
    if (r->longer) return check_longer(path, r, most, err);
    if (r->tiles_most == 0) return TERN_OK;
    bool sound = r->tile >= 1 && r->tile <= 256 * v->n_patch && r->tile * r->tile <= most &&
                 r->tile % (v->n_patch * v->n_merge) == 0 && r->tiles_least >= 1 &&
                 r->tiles_most >= r->tiles_least && r->tiles_most <= TILES_MAX &&
                 r->tolerance > 0 && r->tolerance < 1e6;
    if (!sound)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%s: %lld to %lld squares of %lld pixels, of images that are %g times "
                         "too large, make no sense",
                         path, (long long)r->tiles_least, (long long)r->tiles_most,
                         (long long)r->tile, r->tolerance);
    return TERN_OK;
}

// Limits the pixels to that, tiles included.
static void limit(tern_vision_rules *r, int64_t n_pixels_max) {
    int64_t most = n_pixels_max ? n_pixels_max : TERN_VISION_PIXELS;
    int64_t rest = n_pixels_max > r->most ? n_pixels_max - r->most : 0;
    if (n_pixels_max && r->longer && r->tiles_most > n_pixels_max / r->most - 1)
        r->tiles_most = n_pixels_max > r->most ? n_pixels_max / r->most - 1 : 0;
    if (r->edge) return; // of one size
    if (n_pixels_max && r->tiles_most && r->tiles_most > rest / (r->tile * r->tile))
        r->tiles_most = rest / (r->tile * r->tile);
    if (r->tiles_most < r->tiles_least) r->tiles_most = 0;
    if (r->tiles_most == 0) r->tile = 0;
    if (r->most > most) r->most = most;
    if (r->least > r->most) r->least = r->most; // a file's minimum cannot exceed the limit
}

tern_status tern_vision_rules_read(const tern_file *file, const tern_vision *v,
                                   int64_t n_pixels_max, tern_vision_rules *r, tern_error *err) {
    const tern_json_doc *doc = &file->preprocessor;
    *r = usual_rules(v);
    tern_image_rules read = {.factor = 1.0F / 255,
                             .mean = {0.5F, 0.5F, 0.5F},
                             .deviation = {0.5F, 0.5F, 0.5F},
                             .filter = r->longer || !(r->tile || r->edge) ? TERN_IMAGE_BICUBIC
                                                                          : TERN_IMAGE_BILINEAR};
    if (file->tower)
        TERN_TRY(read_tower(file->tower, &read, r, err));
    else if (tern_json_root(doc))
        TERN_TRY(read_processor(doc, v, &read, r, err));
    r->filter = read.filter;
    r->factor = read.factor;
    memcpy(r->mean, read.mean, sizeof r->mean);
    memcpy(r->deviation, read.deviation, sizeof r->deviation);
    TERN_TRY(check_colors(&read, err));
    TERN_TRY(check_rules(file, v, r, err));
    limit(r, n_pixels_max);
    return TERN_OK;
}

static void put_tiles(const tern_vision_rules *r, int64_t each, tern_strbuf *out) {
    tern_strbuf_printf(out,
                       "  \"do_image_splitting\": %s,\n  \"use_thumbnail\": %s,\n"
                       "  \"min_image_tokens\": %lld,\n  \"max_image_tokens\": %lld,\n"
                       "  \"tile_size\": %lld,\n  \"min_tiles\": %lld,\n  \"max_tiles\": %lld,\n"
                       "  \"max_pixels_tolerance\": %.9g,\n",
                       r->tiles_most ? "true" : "false", r->whole_too ? "true" : "false",
                       (long long)(r->least / each), (long long)(r->most / each),
                       (long long)(r->tile ? r->tile : TILE), (long long)r->tiles_least,
                       (long long)(r->tiles_most ? r->tiles_most : r->tiles_least), r->tolerance);
}

tern_status tern_vision_rules_write_json(const tern_file *from, const tern_arch *arch,
                                         const tern_vision *v, tern_strbuf *out, tern_error *err) {
    tern_vision_rules r;
    int64_t block = v->n_patch * v->n_merge;
    TERN_TRY(tern_vision_rules_read(from, v, TILES_MAX * VISION_PIXELS_MAX, &r, err));
    tern_strbuf_printf(out, "{\n  \"image_processor_type\": \"%s\",\n", arch->hf_sees->processor);
    tern_strbuf_puts(out, "  \"do_resize\": true,\n  \"do_rescale\": true,\n"
                          "  \"do_normalize\": true,\n  \"do_convert_rgb\": true,\n");
    if (r.longer) {
        tern_strbuf_printf(out,
                           "  \"do_image_splitting\": %s,\n  \"size\": {\"longest_edge\": %lld},\n"
                           "  \"max_image_size\": {\"longest_edge\": %lld},\n",
                           r.tiles_most ? "true" : "false", (long long)r.longer, (long long)r.edge);
    } else if (v->tower->tiles) {
        tern_strbuf_printf(out, "  \"encoder_patch_size\": %lld,\n  \"downsample_factor\": %lld,\n",
                           (long long)v->n_patch, (long long)v->n_merge);
        put_tiles(&r, block * block, out);
    } else if (r.edge) {
        tern_strbuf_printf(out,
                           "  \"do_pan_and_scan\": null,\n  \"image_seq_length\": %lld,\n"
                           "  \"size\": {\"height\": %lld, \"width\": %lld},\n",
                           (long long)((r.edge / block) * (r.edge / block)), (long long)r.edge,
                           (long long)r.edge);
    } else {
        tern_strbuf_printf(out,
                           "  \"size\": {\"shortest_edge\": %lld, \"longest_edge\": %lld},\n"
                           "  \"patch_size\": %lld,\n  \"merge_size\": %lld,\n"
                           "  \"temporal_patch_size\": %lld,\n",
                           (long long)r.least, (long long)r.most, (long long)v->n_patch,
                           (long long)v->n_merge, (long long)v->tower->n_frames);
    }
    put_three(out, "image_mean", r.mean);
    put_three(out, "image_std", r.deviation);
    tern_strbuf_printf(out, "  \"resample\": %d,\n  \"rescale_factor\": %.9g\n}\n",
                       r.filter == TERN_IMAGE_BICUBIC ? 3 : 2, (double)r.factor);
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

static tern_status write_tiles(tern_gguf_writer *w, const tern_vision_rules *r) {
    TERN_TRY(tern_gguf_put_int(w, KEY "tile_size", TERN_META_U32, r->tile));
    TERN_TRY(tern_gguf_put_int(w, KEY "min_tiles", TERN_META_U32, r->tiles_least));
    TERN_TRY(tern_gguf_put_int(w, KEY "max_tiles", TERN_META_U32, r->tiles_most));
    TERN_TRY(tern_gguf_put_f32(w, KEY "max_pixels_tolerance", (float)r->tolerance));
    return tern_gguf_put_int(w, KEY "use_thumbnail", TERN_META_BOOL, r->whole_too);
}

static tern_status write_longer(tern_gguf_writer *w, const tern_vision_rules *r) {
    TERN_TRY(tern_gguf_put_int(w, CLIP "preproc_image_size", TERN_META_U32, r->longer));
    return tern_gguf_put_int(w, KEY "max_tiles", TERN_META_U32, r->tiles_most);
}

tern_status tern_vision_rules_write_gguf(tern_gguf_writer *w, const tern_file *from,
                                         const tern_vision *v, tern_error *err) {
    tern_vision_rules r;
    TERN_TRY(tern_vision_rules_read(from, v, TILES_MAX * VISION_PIXELS_MAX, &r, err));
    int filter = r.filter == TERN_IMAGE_BICUBIC ? 3 : 2;
    if (!r.edge) TERN_TRY(tern_gguf_put_int(w, CLIP "image_min_pixels", TERN_META_U32, r.least));
    if (!r.edge) TERN_TRY(tern_gguf_put_int(w, CLIP "image_max_pixels", TERN_META_U32, r.most));
    TERN_TRY(tern_gguf_put_array(w, CLIP "image_mean", TERN_META_F32, r.mean, 3));
    TERN_TRY(tern_gguf_put_array(w, CLIP "image_std", TERN_META_F32, r.deviation, 3));
    if (r.longer)
        TERN_TRY(write_longer(w, &r));
    else if (v->tower->tiles)
        TERN_TRY(write_tiles(w, &r));
    TERN_TRY(tern_gguf_put_int(w, KEY "resample", TERN_META_U32, filter));
    return tern_gguf_put_f32(w, KEY "rescale_factor", r.factor);
}
