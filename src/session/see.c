// Pictures become rows: sized as the model's files say, cut into patches in the order that its
// tower merges them, computed, and remembered (runtime/sights.c).
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "kernels/single.h"
#include "session/session.h"

// ---- Patches -----------------------------------------------------------------------------------

typedef struct looking {
    tern_model *m;
    const tern_vision *v;
    tern_vision_rules rules;
    int32_t columns, rows; // in patches
    size_t n;              // patches
    float *patches;        // [n, tern_vision_patch_cols]
    float *points;         // [n, 2] in the grid of learnt places
    int32_t *places;       // [n, 3]
    float *made;           // rows of several layers, one layer after the other
} looking;

static void close_looking(looking *l) {
    tern_free(l->patches);
    tern_free(l->points);
    tern_free(l->places);
    tern_free(l->made);
}

static tern_status make_room(looking *l, tern_error *err) {
    size_t n_cols = (size_t)tern_vision_patch_cols(l->v);
    l->n = (size_t)l->columns * (size_t)l->rows;
    l->patches = tern_alloc_array(TERN_MEM_SESSION, l->n * n_cols, sizeof *l->patches);
    l->points = tern_alloc_array(TERN_MEM_SESSION, l->n, 2 * sizeof *l->points);
    l->places = tern_alloc_array(TERN_MEM_SESSION, l->n, 3 * sizeof *l->places);
    if (l->patches && l->points && l->places) return TERN_OK;
    return tern_fail_memory(err, l->n * n_cols * sizeof *l->patches);
}

// Patch i: blocks from left to right and down, and so within a block.
static void place_of(const looking *l, size_t i, int32_t *row, int32_t *column) {
    size_t edge = (size_t)l->v->n_merge, each = edge * edge, in_block = i % each;
    size_t block = i / each, across = (size_t)l->columns / edge;
    *row = (int32_t)(block / across * edge + in_block / edge);
    *column = (int32_t)(block % across * edge + in_block % edge);
}

// The first and the last patch have the first and the last place of the grid.
static float point(int32_t i, int32_t n, int64_t side) {
    return n > 1 ? (float)((double)i * (double)(side - 1) / (double)(n - 1)) : 0;
}

static void place_patches(looking *l) {
    for (size_t i = 0; i < l->n; i++) {
        int32_t row, column;
        place_of(l, i, &row, &column);
        l->points[2 * i] = point(row, l->rows, l->v->n_side);
        l->points[2 * i + 1] = point(column, l->columns, l->v->n_side);
        l->places[3 * i] = 0;
        l->places[3 * i + 1] = row;
        l->places[3 * i + 2] = column;
    }
}

// In a patch the colour changes slowest, then the frame, the row and the column. frames: the pixels
// of two, [rows * edge, columns * edge, 3] each.
static void cut_patches(const looking *l, const uint8_t *const frames[TERN_VISION_FRAMES]) {
    const tern_vision_rules *r = &l->rules;
    size_t edge = (size_t)l->v->n_patch, width = (size_t)l->columns * edge;
    float *to = l->patches;
    for (size_t i = 0; i < l->n; i++) {
        int32_t row, column;
        place_of(l, i, &row, &column);
        for (size_t c = 0; c < 3; c++)
            for (size_t f = 0; f < TERN_VISION_FRAMES; f++)
                for (size_t y = (size_t)row * edge; y < (size_t)(row + 1) * edge; y++)
                    for (size_t x = (size_t)column * edge; x < (size_t)(column + 1) * edge; x++) {
                        float level = (float)frames[f][3 * (y * width + x) + c] * r->factor;
                        *to++ = (level - r->mean[c]) / r->deviation[c];
                    }
    }
}

// ---- The tower ---------------------------------------------------------------------------------

typedef struct tower {
    tern_placement *at;
    tern_weight **weights;
    tern_plan *plan;
    tern_single single;
} tower;

static tern_status open_tower(tower *t, const looking *l, const tern_model_graph *g,
                              tern_error *err) {
    const tern_backend *b = t->at->backend;
    tern_cache_desc cache = {.n_context = (int32_t)l->n};
    TERN_TRY(tern_kv_choose(&g->fused, cache.n_context, TERN_KV_F32, &cache.kv_type, err));
    TERN_TRY(tern_placement_weights(t->at, g, g->fused.n_values, &t->weights, err));
    TERN_TRY(b->compile(t->at->device, &g->fused, t->weights, (int32_t)l->n, &t->plan, err));
    return tern_single_open(&t->single, b, t->plan, &g->fused, &cache, err);
}

static void close_tower(tower *t) {
    if (t->single.backend) tern_single_close(&t->single);
    if (t->plan) t->at->backend->plan_free(t->plan);
    tern_free(t->weights);
}

// Where the last layer's rows are made, then those of others that are read: n numbers of each.
static void bind_rows(const looking *l, const tern_graph *g, tern_batch *b, float *made, size_t n) {
    char name[32];
    tern_batch_bind(b, tern_graph_find(g, "rows"), made);
    for (int i = 0; i < (int)l->v->n_deep; i++) {
        snprintf(name, sizeof name, TERN_VISION_DEEP_NAME, i);
        tern_batch_bind(b, tern_graph_find(g, name), made + (size_t)(i + 1) * n);
    }
}

static tern_status run_tower(const looking *l, float *made, size_t n, tern_error *err) {
    const tern_model_graph *g = &l->m->graphs[tern_model_graph_find(l->m, "vision", NULL)];
    tower t = {0};
    tern_batch b = {.n_tokens = (int32_t)l->n,
                    .n_outputs = (int32_t)(l->n / (size_t)(l->v->n_merge * l->v->n_merge)),
                    .places = l->places};
    tern_batch_bind(&b, tern_graph_find(&g->fused, "patches"), l->patches);
    tern_batch_bind(&b, tern_graph_find(&g->fused, "points"), l->points);
    bind_rows(l, &g->fused, &b, made, n);
    TERN_TRY(tern_placement_hold(l->m, &t.at, err));
    tern_placement_begin_use(t.at);
    tern_status status = open_tower(&t, l, g, err);
    if (status == TERN_OK) status = tern_single_run(&t.single, &b, 0, err);
    close_tower(&t);
    tern_placement_end_use(t.at);
    tern_placement_let_go(l->m, t.at);
    return status;
}

// made: for each layer that is read [n_rows, n_embd]; rows: of each row all of them.
static void put_beside(const float *made, size_t n_layers, size_t n_rows, size_t n_embd,
                       float *rows) {
    for (size_t k = 0; k < n_layers; k++)
        for (size_t i = 0; i < n_rows; i++)
            memcpy(rows + (i * n_layers + k) * n_embd, made + (k * n_rows + i) * n_embd,
                   n_embd * sizeof *rows);
}

static tern_status make_rows(looking *l, tern_sight *s, tern_error *err) {
    size_t n_embd = (size_t)l->m->config.n_embd, n_rows = (size_t)s->n_rows;
    size_t n_layers = 1 + (size_t)l->v->n_deep, n = n_rows * n_layers * n_embd;
    s->rows = tern_alloc_array(TERN_MEM_SESSION, n, sizeof *s->rows);
    l->made = tern_alloc_array(TERN_MEM_SESSION, n_layers > 1 ? n : 1, sizeof *l->made);
    if (!s->rows || !l->made) return tern_fail_memory(err, n * sizeof *s->rows);
    float *made = n_layers > 1 ? l->made : s->rows;
    TERN_TRY(run_tower(l, made, n_rows * n_embd, err));
    if (n_layers > 1) put_beside(made, n_layers, n_rows, n_embd, s->rows);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(s->rows[i]))
            return tern_fail(err, TERN_ERR_DEVICE,
                             "%s: a picture gives numbers that are none (NaN or infinite)",
                             l->m->path);
    return TERN_OK;
}

// ---- Sights ------------------------------------------------------------------------------------

static tern_status size_one(const looking *l, const tern_picture *p, uint8_t *to,
                            tern_error *err) {
    int32_t edge = (int32_t)l->v->n_patch;
    tern_picture sized;
    TERN_TRY(tern_picture_resize(&sized, p, l->columns * edge, l->rows * edge, l->rules.filter,
                                 err));
    memcpy(to, sized.rgb, (size_t)sized.width * (size_t)sized.height * 3);
    tern_picture_free(&sized);
    return TERN_OK;
}

// Pixels of all frames, as the tower will be given them: they say whether it is the same picture.
static tern_status size_pictures(looking *l, tern_sight *s, const tern_picture *pictures, size_t n,
                                 tern_error *err) {
    int32_t width, height, edge = (int32_t)l->v->n_patch, merge = (int32_t)l->v->n_merge;
    TERN_TRY(tern_vision_size(&l->rules, edge * merge, pictures->width, pictures->height, &width,
                              &height, err));
    if ((int64_t)(width / edge) * (height / edge) > 65536)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%d x %d pixels would be more than 65,536 patches",
                         (int)width, (int)height);
    l->columns = width / edge;
    l->rows = height / edge;
    s->width = l->columns / merge;
    s->height = l->rows / merge;
    s->n_rows = s->width * s->height;
    size_t each = (size_t)width * (size_t)height * 3;
    s->n_pixels = n * each;
    s->pixels = tern_alloc(TERN_MEM_SESSION, s->n_pixels);
    if (!s->pixels) return tern_fail_memory(err, s->n_pixels);
    for (size_t i = 0; i < n; i++)
        TERN_TRY(size_one(l, &pictures[i], s->pixels + i * each, err));
    s->hash = tern_hash64((uint64_t)width, s->pixels, s->n_pixels);
    return TERN_OK;
}

static tern_status look(looking *l, tern_sight *s, tern_error *err) {
    const uint8_t *frames[TERN_VISION_FRAMES];
    size_t each = (size_t)s->n_rows * 3 * (size_t)(l->v->n_patch * l->v->n_patch) *
                  (size_t)(l->v->n_merge * l->v->n_merge);
    for (size_t i = 0; i < TERN_VISION_FRAMES; i++)
        frames[i] = s->pixels + (i * each < s->n_pixels ? i * each : 0);
    TERN_TRY(make_room(l, err));
    place_patches(l);
    cut_patches(l, frames);
    TERN_TRY(make_rows(l, s, err));
    return tern_model_keep_sight(l->m, s, err);
}

static tern_status check(const tern_model *m, const tern_picture *pictures, size_t n,
                         tern_error *err) {
    TERN_NEED_ARRAY(pictures, n);
    if (m->vocab_only)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: only its tokenizer was opened", m->path);
    if (!m->config.vision.n_layers)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: the model reads no pictures in texts",
                         m->path);
    if (n < 1 || n > TERN_VISION_FRAMES)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%zu pictures: expected 1, or 2 frames", n);
    for (size_t i = 0; i < n; i++) {
        TERN_NEED(pictures[i].rgb);
        if (pictures[i].width != pictures->width || pictures[i].height != pictures->height)
            return tern_fail(err, TERN_ERR_ARGUMENT, "two frames are of two sizes");
    }
    return tern_model_refuse_damaged(m, err);
}

tern_status tern_sight_open(tern_sight **out, tern_model *m, const tern_picture *pictures,
                            size_t n_pictures, const tern_sight_params *params, tern_error *err) {
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(m);
    TERN_TRY(check(m, pictures, n_pictures, err));
    looking l = {.m = m, .v = &m->config.vision};
    int64_t most = params ? params->n_pixels_max : 0;
    if (most < 0)
        return tern_fail(err, TERN_ERR_ARGUMENT, "n_pixels_max is %lld: expected 1 or more, or 0",
                         (long long)most);
    tern_status status = tern_vision_rules_read(m->file, most, &l.rules, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, m->path);
    tern_sight *s = tern_sight_new();
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->model = m;
    status = size_pictures(&l, s, pictures, n_pictures, err);
    if (status == TERN_OK) *out = tern_model_find_sight(m, s);
    if (status == TERN_OK && !*out) {
        status = look(&l, s, err);
        if (status == TERN_OK) *out = s;
    }
    if (*out != s) tern_sight_drop(s);
    close_looking(&l);
    return status;
}

void tern_sight_close(tern_sight *s) {
    if (s) tern_model_let_sight_go(s->model, s);
}

const int32_t *tern_sight_ids(const tern_sight *s, size_t *n_ids) {
    if (n_ids) *n_ids = s ? (size_t)s->n_rows : 0;
    return s ? s->ids : NULL;
}

// ---- Prompts -----------------------------------------------------------------------------------

static bool is_place(const tern_vision *v, int32_t id) {
    return v->n_layers && (id == v->picture_id || id == v->video_id);
}

tern_status tern_sights_place(const tern_model *m, const int32_t *ids, size_t n_ids,
                              tern_sight *const *sights, size_t n_sights, int32_t *out,
                              size_t capacity, size_t *n_out, tern_error *err) {
    TERN_NEED(m);
    TERN_NEED(n_out);
    TERN_NEED_ARRAY(ids, n_ids);
    TERN_NEED_EACH(sights, n_sights);
    TERN_NEED_ARRAY(out, capacity);
    size_t n_places = 0;
    *n_out = 0;
    for (size_t i = 0; i < n_ids; i++) {
        const int32_t *from = &ids[i];
        size_t n = 1;
        if (is_place(&m->config.vision, ids[i]) && n_places++ < n_sights)
            from = tern_sight_ids(sights[n_places - 1], &n);
        if (*n_out + n <= capacity) memcpy(out + *n_out, from, n * sizeof *out);
        *n_out += n;
    }
    if (n_places != n_sights)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%zu pictures for %zu places: the text must have as many <|image_pad|> or "
                         "what the model's template writes", n_sights, n_places);
    if (*n_out > capacity)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL, "%zu tokens with the pictures: there is room "
                         "for %zu", *n_out, capacity);
    return TERN_OK;
}
