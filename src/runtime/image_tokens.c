// Encoded images: the rows that a model's tower made from them, which stand in texts like tokens.
//
// In a timeline each row has its own id, greater than any token's. Equal images have equal ids, and
// different images different ids, for as long as the model is open. So code that compares texts by
// their ids, to find prefixes and share states, works with images unchanged. Rows stay while a
// caller or a lease holds them, and some longer, since the same conversation will come again with
// its next turn.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "runtime/lease.h"

#define KEPT_BYTES ((uint64_t)256 << 20) // of rows and pixels without a holder

static uint64_t bytes_of(const tern_model *m, const tern_image_tokens *s) {
    return s->n_pixels +
           (uint64_t)s->n_rows * (uint64_t)tern_config_given_cols(&m->config) * sizeof *s->rows;
}

static void free_image(tern_image_tokens *s) {
    tern_free(s->rows);
    tern_free(s->pixels);
    tern_free(s->ids);
    tern_free(s);
}

void tern_model_free_images(tern_model *m) {
    for (tern_image_tokens *s = m->images, *next; s; s = next) {
        next = s->next;
        free_image(s);
    }
    m->images = NULL;
}

// Forgets the least recently used. Under the lock.
static void forget_some(tern_model *m) {
    for (;;) {
        uint64_t bytes = 0;
        tern_image_tokens **oldest = NULL;
        for (tern_image_tokens **at = &m->images; *at; at = &(*at)->next) {
            if ((*at)->n_holders > 0) continue;
            bytes += bytes_of(m, *at);
            if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
        }
        if (!oldest || bytes <= KEPT_BYTES) return;
        tern_image_tokens *gone = *oldest;
        *oldest = gone->next;
        free_image(gone);
    }
}

static bool is_of(const tern_image_tokens *s, const tern_image_tokens *wanted) {
    return s->hash == wanted->hash && s->width == wanted->width && s->height == wanted->height &&
           s->across == wanted->across && s->down == wanted->down &&
           s->n_pixels == wanted->n_pixels && memcmp(s->pixels, wanted->pixels, s->n_pixels) == 0;
}

static tern_image_tokens *hold(tern_model *m, tern_image_tokens *s) {
    s->n_holders++;
    s->used = ++m->n_images_used;
    return s;
}

tern_image_tokens *tern_model_find_image(tern_model *m, const tern_image_tokens *wanted) {
    tern_mutex_lock(&m->images_lock);
    tern_image_tokens *s = m->images;
    while (s && !is_of(s, wanted)) s = s->next;
    if (s) hold(m, s);
    tern_mutex_unlock(&m->images_lock);
    return s;
}

tern_image_tokens *tern_model_hold_image(tern_model *m, int32_t id) {
    tern_mutex_lock(&m->images_lock);
    tern_image_tokens *s = m->images;
    while (s && !tern_image_tokens_has(s, id)) s = s->next;
    if (s) hold(m, s);
    tern_mutex_unlock(&m->images_lock);
    return s;
}

void tern_model_release_image(tern_model *m, tern_image_tokens *s) {
    tern_mutex_lock(&m->images_lock);
    s->n_holders--;
    forget_some(m);
    tern_mutex_unlock(&m->images_lock);
}

static tern_status make_ids(tern_image_tokens *s, tern_error *err) {
    s->n_ids = (size_t)s->n_rows;
    s->ids = tern_alloc_array(TERN_MEM_SESSION, s->n_ids, sizeof *s->ids);
    if (!s->ids) return tern_fail_memory(err, s->n_ids * sizeof *s->ids);
    for (size_t i = 0; i < s->n_ids; i++) s->ids[i] = -1;
    return TERN_OK;
}

tern_status tern_model_keep_image(tern_model *m, tern_image_tokens *s, tern_error *err) {
    if (!s->ids) TERN_TRY(make_ids(s, err));
    tern_mutex_lock(&m->images_lock);
    bool fits = m->n_image_ids <= INT32_MAX - TERN_IMAGE_TOKENS_IDS - s->n_rows;
    if (fits) {
        s->first_id = TERN_IMAGE_TOKENS_IDS + m->n_image_ids;
        m->n_image_ids += s->n_rows;
        for (size_t i = 0, row = 0; i < s->n_ids; i++)
            if (s->ids[i] == -1) s->ids[i] = s->first_id + (int32_t)row++;
        s->next = m->images;
        m->images = hold(m, s);
    }
    tern_mutex_unlock(&m->images_lock);
    if (fits) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "%s: the model has seen as many images as it can tell apart; open it again",
                     m->path);
}

tern_image_tokens *tern_image_tokens_new(void) {
    return tern_alloc(TERN_MEM_SESSION, sizeof(tern_image_tokens));
}

void tern_image_tokens_drop(tern_image_tokens *s) {
    if (s) free_image(s);
}

// ---- Of a lease ---------------------------------------------------------------------------------

const tern_image_tokens *tern_lease_image(const tern_lease *l, int32_t id) {
    for (size_t i = l->n_images; i > 0; i--)
        if (tern_image_tokens_has(l->images[i - 1], id)) return l->images[i - 1];
    return NULL;
}

tern_status tern_lease_hold_images(tern_lease *l, const int32_t *ids, size_t n, tern_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < TERN_IMAGE_TOKENS_IDS || tern_lease_image(l, ids[i])) continue;
        if (tern_array_reserve(TERN_MEM_SESSION, &l->images, &l->images_capacity, l->n_images, 1) !=
            0)
            return tern_fail_memory(err, (l->n_images + 1) * sizeof(tern_image_tokens *));
        tern_image_tokens *s = tern_model_hold_image(l->model, ids[i]);
        if (!s)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "token %d at place %zu is of an image that the model does not know",
                             (int)ids[i], i + 1);
        l->images[l->n_images++] = s;
    }
    return TERN_OK;
}

void tern_lease_release_images(tern_lease *l, size_t n_ids) {
    size_t kept = 0;
    for (size_t i = 0; i < l->n_images; i++) {
        bool used = false;
        for (size_t k = 0; k < n_ids && !used; k++)
            used = tern_image_tokens_has(l->images[i], l->ids[k]);
        if (used)
            l->images[kept++] = l->images[i];
        else
            tern_model_release_image(l->model, l->images[i]);
    }
    l->n_images = kept;
}

// ---- Images as a whole ------------------------------------------------------------------------

// The index of a row in its image; -1: not an image's id, or the image may be cut anywhere. *n: how
// many rows the image has.
static int32_t row_of(const tern_lease *l, int32_t id, int32_t *n) {
    if (!tern_config_both_ways(&l->model->config) || id < TERN_IMAGE_TOKENS_IDS) return -1;
    const tern_image_tokens *s = tern_lease_image(l, id);
    *n = s ? s->n_rows : 0;
    return s ? id - s->first_id : -1;
}

size_t tern_lease_cut_near(const tern_lease *l, const int32_t *ids, size_t n_ids, size_t n) {
    int32_t n_rows, row = n > 0 && n < n_ids ? row_of(l, ids[n - 1], &n_rows) : -1;
    if (row < 0) return n;
    size_t begin = n > (size_t)row ? n - 1 - (size_t)row : 0, end = begin + (size_t)n_rows;
    if (end > n_ids) end = n_ids; // a part of an image, which is refused
    return end <= (size_t)l->model->n_batch || begin == 0 ? end : begin;
}

size_t tern_lease_last_cut(const tern_lease *l, size_t n) {
    int32_t n_rows, row = n > 0 ? row_of(l, l->ids[n - 1], &n_rows) : -1;
    if (row < 0 || row == n_rows - 1) return n;
    return n > (size_t)row ? n - 1 - (size_t)row : 0;
}

tern_status tern_lease_check_whole(const tern_lease *l, const int32_t *ids, size_t n,
                                   tern_error *err) {
    for (size_t i = 0, begin; i < n; i++) {
        int32_t n_rows, row = row_of(l, ids[i], &n_rows);
        if (row < 0) continue;
        for (begin = i; row == (int32_t)(i - begin) && row < n_rows - 1 && i + 1 < n; i++)
            row = row_of(l, ids[i + 1], &n_rows);
        if (row != (int32_t)(i - begin) || row != n_rows - 1)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "tokens %zu to %zu are a part of an image of %d rows, which see each "
                             "other: all of them are needed, in their order",
                             begin + 1, i + 1, (int)n_rows);
    }
    return TERN_OK;
}

bool tern_lease_image_ends(const tern_lease *l, int32_t first, const int32_t *ids, int32_t n,
                           int32_t *ends) {
    bool any = false;
    for (int32_t i = 0; i < n; i++) {
        int32_t n_rows, row = row_of(l, ids[i], &n_rows);
        ends[i] = row < 0 ? 0 : first + i - row + n_rows;
        any |= row >= 0;
    }
    return any;
}

// ---- Places of images -------------------------------------------------------------------------

// A walk through a timeline: text advances by one position per token; an image is a plane that
// begins at the text's position, and the text after it continues behind its longer edge.
typedef struct walk {
    int32_t next;         // of a text
    int32_t begin, after; // of the last row's image
    int32_t last;         // its id; -1: a text's
} walk;

static void step(const tern_lease *l, walk *w, int32_t id, int32_t place[3]) {
    const tern_image_tokens *s = id >= TERN_IMAGE_TOKENS_IDS ? tern_lease_image(l, id) : NULL;
    bool goes_on = s && w->last >= 0 && id == w->last + 1 && id != s->first_id;
    if (w->last >= 0 && !goes_on) w->next = w->after;
    w->last = s ? id : -1;
    if (!s) {
        place[0] = place[1] = place[2] = w->next++;
        return;
    }
    if (!goes_on) {
        w->begin = w->next;
        w->after = w->begin + (s->width > s->height ? s->width : s->height);
    }
    place[0] = w->begin;
    place[1] = w->begin + (id - s->first_id) / s->width;
    place[2] = w->begin + (id - s->first_id) % s->width;
}

int32_t tern_lease_rope_positions(const tern_lease *l, int32_t first, const int32_t *ids, int32_t n,
                                  int32_t *places) {
    walk w = {.last = -1};
    int32_t unused[3];
    if (l->n_images == 0) return 0;
    for (int32_t i = 0; i < first; i++) step(l, &w, l->ids[i], unused);
    for (int32_t i = 0; i < n; i++) step(l, &w, ids[i], places + 3 * (size_t)i);
    step(l, &w, 0, unused); // where a text would continue
    return unused[0] - (first + n);
}
