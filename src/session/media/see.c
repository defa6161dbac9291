// Images become rows: resized as the model's files say, cut into patches in the order in which the
// tower merges them, computed, and cached (runtime/image_tokens.c). Some models see a large image
// as several squares in turn, and then the whole of it.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "runtime/runner.h"
#include "session/session.h"
#include "tern_image.h"

// ---- Patches -----------------------------------------------------------------------------------

// Images are encoded in parts: the squares in turn, and then the whole.
struct tern_image_encoder {
    tern_model *m;
    const tern_vision *v;
    tern_vision_rules rules;
    tern_image_tokens *s, *known;      // being made, or NULL; found in the cache, or NULL
    int32_t whole_width, whole_height; // in pixels, to which the whole image is resized
    bool has_whole;                    // shown, too, after the squares that are cut out of it
    tern_runner runner;                // of the tower
    bool is_running;                   // on a part
    size_t n_squares, part, n_done;    // part: the current one; n_done: rows of those before it
    // The tower's current input.
    const uint8_t *frames[TERN_VISION_FRAMES]; // the first pixel of each
    size_t stride;                             // pixels from a row to the next
    int32_t columns, rows;                     // in patches
    size_t n;                                  // patches
    float *patches;                            // [n, tern_vision_patch_cols]
    float *points;   // [n, tern_vision_point_cols] in the grid of learnt places
    int32_t *places; // [n, 3]
    float *made;     // rows of several layers, one layer after the other
};
typedef struct tern_image_encoder looking;

// At most this many patches at once.
static tern_status make_room(looking *l, size_t n, tern_error *err) {
    size_t n_cols = (size_t)tern_vision_patch_cols(l->v);
    size_t n_point = (size_t)tern_vision_point_cols(l->v);
    l->patches = tern_alloc_array(TERN_MEM_SESSION, n * n_cols, sizeof *l->patches);
    l->points = tern_alloc_array(TERN_MEM_SESSION, n, n_point * sizeof *l->points);
    l->places = tern_alloc_array(TERN_MEM_SESSION, n, 3 * sizeof *l->places);
    if (l->patches && l->points && l->places) return TERN_OK;
    return tern_fail_memory(err, n * n_cols * sizeof *l->patches);
}

// Patch i: blocks from left to right and then down, and likewise within a block.
static void place_of(const looking *l, size_t i, int32_t *row, int32_t *column) {
    size_t edge = (size_t)l->v->n_merge, each = edge * edge, in_block = i % each;
    size_t block = i / each, across = (size_t)l->columns / edge;
    *row = (int32_t)(block / across * edge + in_block / edge);
    *column = (int32_t)(block % across * edge + in_block % edge);
}

// The position of patch i of n along the grid: either the first and the last patch have the first
// and the last place, or all lie as pixels do when images are resized, and cover *width places on
// both sides.
static float point(const tern_vision *v, int32_t i, int32_t n, float *width) {
    double side = (double)v->n_side;
    *width = side > n ? (float)(side / n) : 1;
    if (v->tower->widens) return (float)((i + 0.5) * side / n - 0.5);
    return n > 1 ? (float)(i * (side - 1) / (n - 1)) : 0;
}

static void place_patches(looking *l) {
    size_t n_point = (size_t)tern_vision_point_cols(l->v);
    for (size_t i = 0; i < l->n; i++) {
        int32_t row, column;
        float *to = l->points + i * n_point, height, width;
        place_of(l, i, &row, &column);
        to[0] = point(l->v, row, l->rows, &height);
        to[1] = point(l->v, column, l->columns, &width);
        if (n_point == 4) to[2] = height, to[3] = width;
        l->places[3 * i] = 0;
        l->places[3 * i + 1] = row;
        l->places[3 * i + 2] = column;
    }
}

// The level of a colour, as the tower's input.
static float level(const tern_vision_rules *r, uint8_t byte, size_t c) {
    return ((float)byte * r->factor - r->mean[c]) / r->deviation[c];
}

// In a patch the colour changes slowest, then the frame, the row and the column; or, for one frame,
// the row, the column and then the colour.
static float *cut_patch(const looking *l, size_t row, size_t column, float *to) {
    const tern_vision_rules *r = &l->rules;
    size_t edge = (size_t)l->v->n_patch, n_frames = (size_t)l->v->tower->n_frames;
    size_t first = row * edge * l->stride + column * edge;
    for (size_t at = 0; l->v->colors_last && at < edge * edge * 3; at++) {
        size_t pixel = first + at / 3 / edge * l->stride + at / 3 % edge;
        *to++ = level(r, l->frames[0][3 * pixel + at % 3], at % 3);
    }
    for (size_t c = 0; !l->v->colors_last && c < 3; c++)
        for (size_t f = 0; f < n_frames; f++)
            for (size_t at = 0; at < edge * edge; at++) {
                size_t pixel = first + at / edge * l->stride + at % edge;
                *to++ = level(r, l->frames[f][3 * pixel + c], c);
            }
    return to;
}

static void cut_patches(const looking *l) {
    float *to = l->patches;
    for (size_t i = 0; i < l->n; i++) {
        int32_t row, column;
        place_of(l, i, &row, &column);
        to = cut_patch(l, (size_t)row, (size_t)column, to);
    }
}

// ---- The tower ---------------------------------------------------------------------------------

static const tern_graph *tower_of(const looking *l) {
    return &l->m->graphs[tern_model_graph_find(l->m, "vision", NULL)].fused;
}

// Binds memory for the last layer's rows, then for those of the other output layers: n numbers
// each.
static void bind_rows(const looking *l, const tern_graph *g, tern_batch *b, float *made, size_t n) {
    char name[32];
    tern_batch_bind(b, tern_graph_find(g, "rows"), made);
    for (int i = 0; i < (int)l->v->n_deep; i++) {
        snprintf(name, sizeof name, TERN_VISION_DEEP_NAME, i);
        tern_batch_bind(b, tern_graph_find(g, name), made + (size_t)(i + 1) * n);
    }
}

static tern_status begin_tower(looking *l, float *made, size_t n, tern_error *err) {
    const tern_graph *g = tower_of(l);
    tern_batch b = {.n_tokens = (int32_t)l->n,
                    .n_outputs = (int32_t)(l->n / (size_t)(l->v->n_merge * l->v->n_merge)),
                    .places = l->v->tower->turns ? l->places : NULL};
    tern_batch_bind(&b, tern_graph_find(g, "patches"), l->patches);
    tern_batch_bind(&b, tern_graph_find(g, "points"), l->points);
    bind_rows(l, g, &b, made, n);
    return tern_runner_begin(&l->runner, &b, 0, err);
}

// made: [n_rows, n_embd] for each output layer; rows: all layers of a row together.
static void put_beside(const float *made, size_t n_layers, size_t n_rows, size_t n_embd,
                       float *rows) {
    for (size_t k = 0; k < n_layers; k++)
        for (size_t i = 0; i < n_rows; i++)
            memcpy(rows + (i * n_layers + k) * n_embd, made + (k * n_rows + i) * n_embd,
                   n_embd * sizeof *rows);
}

// ---- Parts -------------------------------------------------------------------------------------

// Squares are cut out of one image, which is stored before the whole.
static size_t cut_bytes(const looking *l, const tern_image_tokens *s) {
    return (size_t)s->across * (size_t)s->down * 3 * (size_t)(l->rules.tile * l->rules.tile);
}

static void choose_square(looking *l) {
    size_t tile = (size_t)l->rules.tile, across = (size_t)l->s->across;
    size_t row = l->part / across * tile, column = l->part % across * tile;
    l->columns = l->rows = (int32_t)(l->rules.tile / l->v->n_patch);
    l->stride = across * tile;
    l->frames[0] = l->s->pixels + 3 * (row * l->stride + column);
}

static void choose_whole(looking *l) {
    size_t each = 3 * (size_t)l->whole_width * (size_t)l->whole_height, cut = cut_bytes(l, l->s);
    l->columns = (int32_t)(l->whole_width / l->v->n_patch);
    l->rows = (int32_t)(l->whole_height / l->v->n_patch);
    l->stride = (size_t)l->whole_width;
    for (size_t i = 0; i < TERN_VISION_FRAMES; i++)
        l->frames[i] = l->s->pixels + cut + ((i + 1) * each <= l->s->n_pixels - cut ? i * each : 0);
}

static size_t n_layers(const looking *l) { return 1 + (size_t)l->v->n_deep; }

// Floats of an image token's row, of all layers.
static size_t row_floats(const looking *l) { return n_layers(l) * (size_t)l->m->config.n_embd; }

// Where the current part's rows go, and how many they are.
static float *rows_of(const looking *l, size_t *n) {
    *n = l->n / (size_t)(l->v->n_merge * l->v->n_merge);
    return l->s->rows + l->n_done * row_floats(l);
}

static tern_status begin_part(looking *l, tern_error *err) {
    size_t n;
    if (l->part < l->n_squares)
        choose_square(l);
    else
        choose_whole(l);
    l->n = (size_t)l->columns * (size_t)l->rows;
    float *rows = rows_of(l, &n);
    place_patches(l);
    cut_patches(l);
    TERN_TRY(
        begin_tower(l, n_layers(l) > 1 ? l->made : rows, n * (size_t)l->m->config.n_embd, err));
    l->is_running = true;
    return TERN_OK;
}

static void end_part(looking *l) {
    size_t n;
    float *rows = rows_of(l, &n);
    if (n_layers(l) > 1) put_beside(l->made, n_layers(l), n, (size_t)l->m->config.n_embd, rows);
    l->n_done += n;
    l->part++;
    l->is_running = false;
}

static tern_status keep(looking *l, tern_image_tokens **out, tern_error *err) {
    tern_image_tokens *s = l->s;
    size_t n = (size_t)s->n_rows * row_floats(l);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(s->rows[i]))
            return tern_fail(err, TERN_ERR_DEVICE, "%s: an image produced NaN or infinity",
                             l->m->path);
    TERN_TRY(tern_model_keep_image(l->m, s, err));
    l->s = NULL;
    *out = s;
    return TERN_OK;
}

// Memory and the tower's plan, for the part with the most patches.
static tern_status open_tower(looking *l, tern_error *err) {
    tern_image_tokens *s = l->s;
    size_t group = (size_t)(l->v->n_merge * l->v->n_merge);
    size_t n = (size_t)s->n_rows * row_floats(l);
    size_t n_square = s->across ? (size_t)(l->rules.tile / l->v->n_patch) : 0;
    size_t n_most = (size_t)(s->width * s->height) * group;
    if (!l->has_whole || n_most < n_square * n_square) n_most = n_square * n_square;
    s->rows = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *s->rows);
    l->made = tern_alloc_array(TERN_MEM_SESSION, n_layers(l) > 1 ? n : 1, sizeof *l->made);
    if (!s->rows || !l->made) return tern_fail_memory(err, n * sizeof *s->rows);
    TERN_TRY(make_room(l, n_most, err));
    const tern_runner_desc desc = {.graph = tern_model_graph_find(l->m, "vision", NULL),
                                   .n_rows = (int32_t)n_most,
                                   .n_context = (int32_t)n_most,
                                   .kv_type = TERN_KV_F32};
    return tern_runner_open(&l->runner, l->m, &desc, err);
}

// ---- Image tokens ------------------------------------------------------------------------------

static tern_status size_one(const looking *l, const tern_image *p, int32_t width, int32_t height,
                            uint8_t *to, tern_error *err) {
    tern_image sized;
    TERN_TRY(tern_image_resize(&sized, p, width, height, l->rules.filter, err));
    memcpy(to, sized.rgb, (size_t)sized.width * (size_t)sized.height * 3);
    tern_image_close(&sized);
    return TERN_OK;
}

// Chooses the sizes of the images that the tower sees.
static tern_status choose_sizes(looking *l, tern_image_tokens *s, const tern_image *p,
                                tern_error *err) {
    int32_t patch = (int32_t)l->v->n_patch, edge = patch * (int32_t)l->v->n_merge;
    int32_t each = (int32_t)(l->rules.tile / edge);
    TERN_TRY(tern_vision_size(&l->rules, edge, p->width, p->height, &l->whole_width,
                              &l->whole_height, err));
    if ((int64_t)(l->whole_width / patch) * (l->whole_height / patch) > 65536)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d x %d pixels would be more than 65,536 patches",
                         (int)l->whole_width, (int)l->whole_height);
    tern_vision_tiles(&l->rules, l->v, p->width, p->height, &s->across, &s->down);
    l->has_whole = s->across == 0 || l->rules.whole_too;
    s->width = l->whole_width / edge;
    s->height = l->whole_height / edge;
    s->n_rows = s->across * s->down * each * each + (l->has_whole ? s->width * s->height : 0);
    return TERN_OK;
}

// The pixels of all frames, as the tower gets them: equal pixels mean the same image.
static tern_status size_images(looking *l, tern_image_tokens *s, const tern_image *images, size_t n,
                               tern_error *err) {
    TERN_TRY(choose_sizes(l, s, images, err));
    size_t each = 3 * (size_t)l->whole_width * (size_t)l->whole_height, cut = cut_bytes(l, s);
    int32_t tile = (int32_t)l->rules.tile;
    s->n_pixels = cut + (l->has_whole ? n * each : 0);
    s->pixels = tern_alloc(TERN_MEM_SESSION, s->n_pixels);
    if (!s->pixels) return tern_fail_memory(err, s->n_pixels);
    if (cut) TERN_TRY(size_one(l, images, s->across * tile, s->down * tile, s->pixels, err));
    for (size_t i = 0; l->has_whole && i < n; i++)
        TERN_TRY(size_one(l, &images[i], l->whole_width, l->whole_height,
                          s->pixels + cut + i * each, err));
    s->hash = tern_hash64((uint64_t)l->whole_width, s->pixels, s->n_pixels);
    return TERN_OK;
}

// ---- In a text ---------------------------------------------------------------------------------

static tern_status put_text(const looking *l, tern_image_tokens *s, size_t room, const char *text,
                            tern_error *err) {
    tern_ids to = {s->ids + s->n_ids, room - s->n_ids, 0};
    TERN_TRY(tern_tokenize(l->m, text, strlen(text), TERN_TOKENIZE_SPECIAL, &to, err));
    if (to.n > to.capacity)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: \"%s\" is %zu tokens", l->m->path, text, to.n);
    s->n_ids += to.n;
    return TERN_OK;
}

static void put_rows(tern_image_tokens *s, int32_t n) {
    for (int32_t i = 0; i < n; i++) s->ids[s->n_ids++] = -1;
}

// The texts around an image, if its tower has any, and before each of its squares.
#define TOKENS_OF_MARK 24 // if the vocabulary has no token of that name
static tern_status put_ids(const looking *l, tern_image_tokens *s, tern_error *err) {
    int64_t edge = l->v->n_patch * l->v->n_merge, each = l->rules.tile / edge;
    size_t n_squares = (size_t)s->across * (size_t)s->down;
    size_t room = (size_t)s->n_rows + TOKENS_OF_MARK * (n_squares + 3);
    char mark[64];
    if (!l->v->tower->before) return TERN_OK;
    s->ids = tern_alloc_array(TERN_MEM_SESSION, room, sizeof *s->ids);
    if (!s->ids) return tern_fail_memory(err, room * sizeof *s->ids);
    TERN_TRY(put_text(l, s, room, l->v->tower->before, err));
    for (size_t i = 0; i < n_squares; i++) {
        l->v->tower->tile(i / (size_t)s->across, i % (size_t)s->across, mark, sizeof mark);
        TERN_TRY(put_text(l, s, room, mark, err));
        put_rows(s, (int32_t)(each * each));
    }
    const char *whole = n_squares ? l->v->tower->whole : l->v->tower->uncut;
    if (l->has_whole && whole) TERN_TRY(put_text(l, s, room, whole, err));
    if (l->has_whole) put_rows(s, s->width * s->height);
    return put_text(l, s, room, l->v->tower->after, err);
}

static tern_status check(const tern_model *m, const tern_image *images, size_t n, tern_error *err) {
    TERN_NEED_ARRAY(images, n);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    if (!m->config.vision.n_layers)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model reads no images in texts",
                         m->path);
    size_t n_frames = (size_t)m->config.vision.tower->n_frames;
    if (n < 1 || n > n_frames)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%zu images: expected 1%s", n,
                         n_frames > 1 ? ", or 2 frames" : "");
    for (size_t i = 0; i < n; i++) {
        TERN_NEED(images[i].rgb);
        if (images[i].width != images->width || images[i].height != images->height)
            return tern_fail(err, TERN_ERR_ARGUMENT, "two frames are of two sizes");
    }
    return tern_model_refuse_damaged(m, err);
}

// Rows that attend to each other in both directions must be in one batch.
static tern_status check_rows(const tern_model *m, const tern_image_tokens *s, tern_error *err) {
    if (!tern_config_both_ways(&m->config) || s->n_rows <= m->n_batch) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "%s: an image's %d rows see each other, which are more than the %d tokens "
                     "that it was opened for (n_batch)",
                     m->path, (int)s->n_rows, (int)m->n_batch);
}

static tern_status begin(looking *l, const tern_image *images, size_t n_images, tern_error *err) {
    tern_image_tokens *s = l->s = tern_image_tokens_new();
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->model = l->m;
    TERN_TRY(size_images(l, s, images, n_images, err));
    TERN_TRY(check_rows(l->m, s, err));
    l->n_squares = (size_t)s->across * (size_t)s->down;
    l->known = tern_model_find_image(l->m, s);
    if (l->known) return TERN_OK;
    TERN_TRY(put_ids(l, s, err));
    return open_tower(l, err);
}

tern_status tern_image_encoder_open(tern_image_encoder **out, tern_model *m,
                                    const tern_image *images, size_t n_images,
                                    const tern_image_tokens_params *params, tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    TERN_TRY(check(m, images, n_images, err));
    tern_vision_rules rules;
    int64_t most = params ? params->n_pixels_max : 0;
    if (most < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "n_pixels_max is %lld: expected 1 or more, or 0",
                         (long long)most);
    tern_status status = tern_vision_rules_read(m->file, &m->config.vision, most, &rules, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, m->path);
    looking *l = tern_alloc(TERN_MEM_SESSION, sizeof *l);
    if (!l) return tern_fail_memory(err, sizeof *l);
    l->m = m;
    l->v = &m->config.vision;
    l->rules = rules;
    tern_model_hold(m);
    status = begin(l, images, n_images, err);
    if (status == TERN_OK)
        *out = l;
    else
        tern_image_encoder_close(l);
    return status;
}

static tern_status poll(looking *l, tern_image_tokens **out, tern_error *err) {
    bool done = false;
    if (l->known) {
        *out = l->known;
        l->known = NULL;
        return TERN_OK;
    }
    if (!l->s) return tern_fail(err, TERN_ERR_ARGUMENT, "the image is encoded already");
    if (!l->is_running) TERN_TRY(begin_part(l, err));
    TERN_TRY(tern_runner_poll(&l->runner, &done, err));
    if (done) end_part(l);
    return l->part == l->n_squares + l->has_whole ? keep(l, out, err) : TERN_OK;
}

tern_status tern_image_encoder_poll(tern_image_encoder *l, tern_image_tokens **out,
                                    tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(l);
    TERN_TRY(poll(l, out, err));
    if (*out) tern_model_hold(l->m); // for its holder
    return TERN_OK;
}

void tern_image_encoder_close(tern_image_encoder *l) {
    if (!l) return;
    tern_model *m = l->m;
    tern_runner_close(&l->runner);
    tern_image_tokens_drop(l->s);
    if (l->known) tern_model_release_image(m, l->known);
    tern_free(l->patches);
    tern_free(l->points);
    tern_free(l->places);
    tern_free(l->made);
    tern_free(l);
    tern_model_let_go(m);
}

tern_status tern_image_tokens_open(tern_image_tokens **out, tern_model *m, const tern_image *images,
                                   size_t n_images, const tern_image_tokens_params *params,
                                   tern_error *err) {
    tern_clear(err);
    tern_image_encoder *l;
    TERN_NEED(out);
    *out = NULL;
    TERN_TRY(tern_image_encoder_open(&l, m, images, n_images, params, err));
    tern_status status = TERN_OK;
    while (status == TERN_OK && !*out) status = tern_image_encoder_poll(l, out, err);
    tern_image_encoder_close(l);
    return status;
}

void tern_image_tokens_close(tern_image_tokens *s) {
    if (!s) return;
    tern_model *m = s->model; // s may be freed below
    tern_model_release_image(m, s);
    tern_model_let_go(m);
}

const int32_t *tern_image_tokens_ids(const tern_image_tokens *s, size_t *n_ids) {
    if (n_ids) *n_ids = s ? s->n_ids : 0;
    return s ? s->ids : NULL;
}

// ---- Prompts -----------------------------------------------------------------------------------

static bool is_place(const tern_vision *v, int32_t id) {
    return v->n_layers && (id == v->image_id || id == v->video_id);
}

static tern_status add(tern_ids *to, const int32_t *ids, size_t n, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_SESSION, &to->ids, &to->capacity, to->n, n) != 0)
        return tern_fail_memory(err, (to->n + n) * sizeof *to->ids);
    if (n) memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += n;
    return TERN_OK;
}

// How many line breaks a token consists of; 0: it has other text.
static size_t n_breaks(const tern_model *m, int32_t id) {
    tern_strbuf text = {0};
    tern_decoder decoder = {.started = true};
    if (!m->tokenizer || id < 0 || id >= m->info.n_vocab) return 0;
    tern_tokenizer_decode(m->tokenizer, &decoder, id, &text);
    size_t n = text.len;
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != '\n') n = 0;
    tern_strbuf_free(&text);
    return n;
}

#define BREAKS_MAX 64 // longer runs stay as they are

// Adds ids where an image may begin or end. Line breaks on both sides of the seam are tokenized
// together, as if the text had been tokenized as a whole.
static tern_status join(const tern_model *m, tern_ids *to, const int32_t *ids, size_t n,
                        tern_error *err) {
    char breaks[BREAKS_MAX];
    int32_t room[BREAKS_MAX];
    tern_ids joined = {room, BREAKS_MAX, 0};
    size_t before = 0, after = 0, first = to->n, i = 0, each;
    for (; i < n && (each = n_breaks(m, ids[i])) > 0; i++) after += each;
    for (; after && first && (each = n_breaks(m, to->ids[first - 1])) > 0; first--) before += each;
    if (!before || before + after > BREAKS_MAX) return add(to, ids, n, err);
    memset(breaks, '\n', before + after);
    TERN_TRY(tern_tokenize(m, breaks, before + after, 0, &joined, err));
    to->n = first;
    TERN_TRY(add(to, joined.ids, joined.n, err));
    return add(to, ids + i, n - i, err);
}

tern_status tern_image_tokens_place(const tern_model *m, const tern_ids *prompt,
                                    tern_image_tokens *const *images, size_t n_images,
                                    tern_ids *out, tern_error *err) {
    tern_clear(err);
    TERN_NEED(m);
    TERN_NEED(prompt);
    TERN_NEED_ARRAY(prompt->ids, prompt->n);
    TERN_NEED_EACH(images, n_images);
    TERN_NEED(out);
    TERN_NEED_ARRAY(out->ids, out->capacity);
    const int32_t *ids = prompt->ids;
    size_t n_places = 0;
    tern_ids all = {0};
    tern_status status = TERN_OK;
    bool beside = false; // after an image
    for (size_t i = 0; status == TERN_OK && i < prompt->n; i++) {
        bool here = is_place(&m->config.vision, ids[i]) && n_places++ < n_images;
        size_t n = 1;
        const int32_t *from = here ? tern_image_tokens_ids(images[n_places - 1], &n) : &ids[i];
        status = here || beside ? join(m, &all, from, n, err) : add(&all, from, n, err);
        beside = here;
    }
    if (status == TERN_OK && n_places != n_images)
        status = tern_fail(err, TERN_ERR_ARGUMENT,
                           "%zu images for %zu places: the text must have as many %s or what the "
                           "model's template writes",
                           n_images, n_places,
                           m->config.vision.n_layers ? m->config.vision.tower->tokens[0].text
                                                     : "tokens for images");
    tern_ids_give(out, all.ids, status == TERN_OK ? all.n : 0); // it may be the prompt itself
    tern_free(all.ids);
    return status;
}
