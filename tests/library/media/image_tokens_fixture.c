// See image_tokens_fixture.h.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "tests/support/blobs.h"
#include "formats/formats.h"
#include "tests/library/webgpu/gpu_fixture.h"
#include "tests/support/harness.h"
#include "runtime/runtime.h"
#include "image_tokens_fixture.h"
#include "tern_tools.h"

#define IMAGES_MAX 8

typedef struct oracle {
    const char *folder;
    tern_file *golden;
    tern_model *model;
    const int32_t *ids, *grids; // of the prompt, with one token for each row; frames, rows, columns
    size_t n_ids, n_grids;
    // Of transformers' squares, which a golden file may have instead of patches (pixel_values
    // [colours, y, x] each, and vis.rows); NULL: it has patches.
    float *patches;
    int32_t square_grids[3 * IMAGES_MAX];
} oracle;

static double distance(const float *a, const float *b, size_t n) {
    double d = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(d / all);
}

static const tern_tensor *find(const oracle *o, const char *name) {
    const tern_tensor *t = tern_file_tensor(o->golden, name);
    CHECK_MSG(t, "%s: the golden file has no %s", o->folder, name);
    return t;
}

static const void *golden(const oracle *o, const char *name) {
    const tern_tensor *t = find(o, name);
    return t ? test_bytes(&t->data) : NULL;
}

// The patches of squares, from left to right and down, a pixel's colours beside each other.
static bool cut_squares(oracle *o) {
    const tern_vision *v = &o->model->config.vision;
    const tern_tensor *values = find(o, "pixel_values");
    size_t edge = (size_t)v->n_image, side = (size_t)v->n_side, n_patch = (size_t)v->n_patch;
    size_t n_cols = 3 * n_patch * n_patch, each = 3 * edge * edge;
    size_t n = values && each ? values->bytes / sizeof(float) / each : 0;
    if (!values || values->type != TERN_DTYPE_F32 || n < 1 || n > IMAGES_MAX) return false;
    const float *from = test_bytes(&values->data);
    o->patches = calloc(n * side * side, n_cols * sizeof *o->patches);
    for (size_t i = 0; o->patches && i < n * side * side * n_cols; i++) {
        size_t square = i / n_cols / side / side, patch = i / n_cols % (side * side);
        size_t y = patch / side * n_patch + i % n_cols / 3 / n_patch;
        size_t x = patch % side * n_patch + i % n_cols / 3 % n_patch;
        o->patches[i] = from[square * each + i % 3 * edge * edge + y * edge + x];
    }
    for (size_t i = 0; i < 3 * n; i++) o->square_grids[i] = i % 3 ? (int32_t)side : 1;
    o->grids = o->square_grids;
    o->n_grids = n;
    return o->patches != NULL;
}

// False: not there, or skipped.
static bool open_oracle(oracle *o, const char *folder, const char *model, bool gpu, bool video) {
    char path[512];
    tern_error err = {0};
    *o = (oracle){.folder = folder};
    snprintf(path, sizeof path, "%s/golden.safetensors", folder);
    bool ok = tern_file_open(&o->golden, path, &err) == TERN_OK;
    CHECK_MSG(ok, "%s", err.message);
    if (!ok) return false;
    if (gpu)
        o->model = gpu_open(model, 0);
    else
        CHECK_MSG(tern_model_open(&o->model, model, NULL, &err) == TERN_OK, "%s", err.message);
    const tern_tensor *ids = find(o, "input_ids");
    if (!o->model || !ids) return false;
    o->ids = test_bytes(&ids->data);
    o->n_ids = (size_t)ids->ne[0];
    if (tern_file_tensor(o->golden, "vis.rows")) return cut_squares(o);
    const tern_tensor *grids = find(o, video ? "video_grid_thw" : "image_grid_thw");
    if (!grids) return false;
    o->grids = test_bytes(&grids->data);
    o->n_grids = (size_t)grids->ne[1];
    return true;
}

static void close_oracle(oracle *o) {
    tern_model_close(o->model);
    tern_file_close(o->golden);
    free(o->patches);
}

// ---- The tower ---------------------------------------------------------------------------------

// Whose rows are read: the last one, and others.
static size_t n_layers(const oracle *o) { return 1 + (size_t)o->model->config.vision.n_deep; }

// Patch i of n along the grid: the ends of both are the same, or the middles of what they are.
static float point(const tern_vision *v, int32_t i, int32_t n) {
    float side = (float)v->n_side;
    if (tern_vision_point_cols(v) == 2) return (float)i * (side - 1) / (float)(n - 1);
    return ((float)i + 0.5f) * side / (float)n - 0.5f;
}

static float width(const tern_vision *v, int32_t n) {
    return v->n_side > n ? (float)v->n_side / (float)n : 1;
}

// Where the patches of an image are, in blocks of two by two; and in the grid of learnt places.
static void place(const tern_vision *v, int32_t rows, int32_t columns, int32_t *places,
                  float *points) {
    int64_t n_point = tern_vision_point_cols(v);
    for (int32_t i = 0; i < rows * columns; i++) {
        int32_t block = i / 4, row = block / (columns / 2) * 2 + i % 4 / 2;
        int32_t column = block % (columns / 2) * 2 + i % 2;
        float *to = points + n_point * i;
        places[3 * i] = 0;
        places[3 * i + 1] = row;
        places[3 * i + 2] = column;
        to[0] = point(v, row, rows);
        to[1] = point(v, column, columns);
        if (n_point == 4) to[2] = width(v, rows), to[3] = width(v, columns);
    }
}

// The reference's patches, which are in that order, or from left to right and down, with a pixel's
// colours beside each other; a GGUF's are taken colour by colour.
static void copy_patches(const oracle *o, const float *from, const int32_t *places, size_t n,
                         int32_t columns, float *to) {
    const tern_vision *v = &o->model->config.vision;
    size_t n_cols = (size_t)tern_vision_patch_cols(v), n_pixels = n_cols / 3;
    bool ordered = v->tower->n_frames == 2;
    for (size_t i = 0; i < n; i++) {
        size_t page = (size_t)(places[3 * i + 1] * columns + places[3 * i + 2]);
        const float *patch = from + (ordered ? i : page) * n_cols;
        for (size_t k = 0; k < n_cols; k++)
            to[i * n_cols + k] =
                patch[ordered || v->colors_last ? k : k % n_pixels * 3 + k / n_pixels];
    }
}

// Rows that the tower makes of the reference's patches, those of the last layer, then of others
// that are read: [layers, patches / 4, n_embd]. The caller frees them.
static float *look(const oracle *o, const float *patches, const int32_t grid[3]) {
    const tern_vision *v = &o->model->config.vision;
    size_t n = (size_t)(grid[1] * grid[2]), n_cols = (size_t)tern_vision_patch_cols(v);
    size_t n_deep = n_layers(o) - 1;
    int64_t n_point = tern_vision_point_cols(v);
    size_t each = n / 4 * (size_t)o->model->config.n_embd;
    int32_t *places = calloc(n, 3 * sizeof *places);
    float *points = calloc(n, 4 * sizeof *points), *copy = calloc(n, n_cols * sizeof *copy);
    tern_error err = {0};
    place(v, grid[1], grid[2], places, points);
    copy_patches(o, patches, places, n, grid[2], copy);
    tern_array in[] = {
        {.name = "patches", .n_dims = 2, .dims = {(int64_t)n, (int64_t)n_cols}, .data = copy},
        {.name = "points", .n_dims = 2, .dims = {(int64_t)n, n_point}, .data = points},
        {.name = "places",
         .type = TERN_ARRAY_I32,
         .n_dims = 2,
         .dims = {(int64_t)n, 3},
         .data = places}};
    tern_array out[] = {
        {.name = "rows"}, {.name = "deep.0"}, {.name = "deep.1"}, {.name = "deep.2"}};
    const tern_compute_desc desc = {.graph = "vision",
                                    .inputs = in,
                                    .n_inputs = v->tower->turns ? 3 : 2,
                                    .outputs = out,
                                    .n_outputs = 1 + n_deep};
    CHECK_MSG(tern_compute(o->model, &desc, &err) == TERN_OK, "%s: %s", o->folder, err.message);
    float *rows = calloc(1 + n_deep, each * sizeof *rows);
    for (size_t i = 0; i <= n_deep; i++) {
        if (out[i].data) memcpy(rows + i * each, out[i].data, each * sizeof *rows);
        tern_array_free(&out[i]);
    }
    free(places);
    free(points);
    free(copy);
    return rows;
}

// As tern_image_tokens_open keeps them.
static tern_image_tokens *keep(const oracle *o, const float *made, const int32_t grid[3]) {
    size_t n_embd = (size_t)o->model->config.n_embd, n = n_layers(o);
    tern_error err = {0};
    tern_image_tokens *s = tern_image_tokens_new();
    s->model = o->model;
    s->width = grid[2] / 2;
    s->height = grid[1] / 2;
    s->n_rows = s->width * s->height;
    size_t n_rows = (size_t)s->n_rows;
    s->rows = tern_alloc_array(TERN_MEM_SESSION, n * n_rows, n_embd * sizeof *s->rows);
    for (size_t i = 0; i < n * n_rows; i++)
        memcpy(s->rows + (i % n_rows * n + i / n_rows) * n_embd, made + i * n_embd,
               n_embd * sizeof *s->rows);
    CHECK(tern_model_keep_image(o->model, s, &err) == TERN_OK);
    tern_model_hold(o->model); // as tern_image_tokens_open does, for tern_image_tokens_close
    return s;
}

// made: as of look; first: the image's first row in the golden file.
static void check_rows(const oracle *o, const float *made, size_t first, size_t n_rows,
                       double bound) {
    size_t n_embd = (size_t)o->model->config.n_embd;
    for (size_t i = 0; i < n_layers(o); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", o->patches ? "vis.rows" : "vis.merged");
        if (i > 0) snprintf(name, sizeof name, "vis.deep.%zu", i - 1);
        const float *want = golden(o, name);
        if (!want) continue;
        double d = distance(made + i * n_rows * n_embd, want + first * n_embd, n_rows * n_embd);
        CHECK_MSG(d < bound, "%s: %s from row %zu is %g off", o->folder, name, first, d);
    }
}

// All images, or frames of videos; returns how many.
static size_t look_at_all(const oracle *o, bool video, double bound, tern_image_tokens **images) {
    const tern_tensor *values = find(o, video ? "pixel_values_videos" : "pixel_values");
    float *all = values && !o->patches ? calloc(values->ne[0] * values->ne[1], sizeof *all) : NULL;
    const float *patches = all ? all : o->patches;
    CHECK(!all || tern_tensor_decode(values, all, NULL) == TERN_OK);
    size_t n = 0, n_seen = 0;
    for (size_t i = 0; patches && i < o->n_grids; i++)
        for (int32_t f = 0; f < o->grids[3 * i] && n < IMAGES_MAX; f++) {
            const int32_t *grid = o->grids + 3 * i;
            size_t n_patches = (size_t)(grid[1] * grid[2]), n_rows = n_patches / 4;
            float *made = look(o, patches, grid);
            check_rows(o, made, n_seen, n_rows, bound);
            images[n++] = keep(o, made, grid);
            free(made);
            patches += n_patches * (size_t)tern_vision_patch_cols(&o->model->config.vision);
            n_seen += n_rows;
        }
    free(all);
    return n;
}

// ---- Texts with images -----------------------------------------------------------------------

// The reference's ids with those of the images; each image's tokens are put there one by one.
static void put_images(const oracle *o, tern_image_tokens **images, int32_t *ids) {
    const tern_vision *v = &o->model->config.vision;
    // Of rows, where that is another than an image's place.
    const tern_tensor *own = tern_file_tensor(o->golden, "row_id");
    int64_t row_id = own ? *(const int32_t *)test_bytes(&own->data) : v->image_id;
    size_t k = 0, row = 0;
    for (size_t i = 0; i < o->n_ids; i++) {
        bool seen = o->ids[i] == row_id || o->ids[i] == v->video_id;
        ids[i] = seen ? images[k]->ids[row++] : o->ids[i];
        if (seen && row == (size_t)images[k]->n_rows) k++, row = 0;
    }
}

static void check_logits(const oracle *o, tern_session *s, const int32_t *ids, double bound) {
    const float *want = golden(o, "logits");
    size_t n_vocab = (size_t)o->model->config.n_vocab, first = 7;
    float *logits = calloc(o->n_ids, n_vocab * sizeof *logits);
    tern_error err = {0};
    // In two pieces, so that one may end within an image.
    CHECK_MSG(tern_session_logits(s, ids, first, logits, &err) == TERN_OK, "%s", err.message);
    CHECK_MSG(tern_session_logits(s, ids + first, o->n_ids - first, logits + first * n_vocab,
                                  &err) == TERN_OK,
              "%s", err.message);
    double d = want ? distance(logits, want, o->n_ids * n_vocab) : 1;
    CHECK_MSG(d < bound, "%s: logits are %g off", o->folder, d);
    free(logits);
}

static void check_greedy(const oracle *o, tern_session *s, const int32_t *ids) {
    const tern_tensor *t = find(o, "greedy_ids");
    const int32_t *want = t ? test_bytes(&t->data) : NULL;
    size_t n_want = t ? (size_t)t->ne[0] - o->n_ids : 0, n = 0;
    const tern_sampling greedy = {0};
    const tern_generate_params params = {
        .sampling = &greedy, .max_tokens = (int32_t)n_want, .ignore_end = true};
    tern_error err = {0};
    CHECK_MSG(tern_generate_ids(s, ids, o->n_ids, &params, NULL, &err) == TERN_OK, "%s",
              err.message);
    const int32_t *said = tern_session_generated(s, &n);
    CHECK_MSG(want && n == n_want && memcmp(said, want + o->n_ids, n * sizeof *said) == 0,
              "%s: the text after the images is another", o->folder);
}

void image_check(const char *folder, const char *model, bool gpu, bool video, double bound) {
    oracle o;
    int32_t ids[1024];
    tern_image_tokens *images[IMAGES_MAX] = {0};
    tern_session *s = NULL;
    tern_error err = {0};
    if (open_oracle(&o, folder, model, gpu, video) && o.n_ids <= 1024) {
        size_t n = look_at_all(&o, video, bound, images);
        put_images(&o, images, ids);
        REQUIRE_OK(tern_session_open(&s, o.model, NULL, &err), err);
        check_logits(&o, s, ids, bound);
        tern_session_reset(s);
        check_greedy(&o, s, ids);
        for (size_t i = 0; i < n; i++) tern_image_tokens_close(images[i]);
        tern_session_close(s);
    }
    close_oracle(&o);
}

void image_say(tern_session *s, const int32_t *ids, size_t n, int32_t said[10], size_t *n_reused) {
    const tern_sampling greedy = {0};
    const tern_generate_params params = {.sampling = &greedy, .max_tokens = 10, .ignore_end = true};
    tern_generate_stats stats = {0};
    tern_error err = {0};
    size_t n_said = 0;
    CHECK_MSG(tern_generate_ids(s, ids, n, &params, &stats, &err) == TERN_OK, "%s", err.message);
    const int32_t *list = tern_session_generated(s, &n_said);
    CHECK(n_said == 10);
    if (n_said == 10) memcpy(said, list, 10 * sizeof *said);
    if (n_reused) *n_reused = stats.n_reused;
}
