// A lease's states as bytes, and back: one byte for the RoPE factors used, then the bytes of its
// sequence.
#include <string.h>
#include "runtime/lease.h"

// If the sequence does not end where the timeline does, only a prefix is written.
static tern_status write_front(tern_lease *l, int32_t n, tern_sequence_put put, void *user,
                               tern_error *err) {
    tern_sequence *front = NULL;
    TERN_TRY(tern_sequence_swap_in(l->sequence, err));
    TERN_TRY(tern_sequence_fork(l->sequence, n, &front, err));
    tern_status status = tern_sequence_write(front, put, user, err);
    tern_sequence_close(front);
    return status;
}

// The callback that takes or gives a page's bytes may wait for a disk: others use the device
// meanwhile.
typedef struct elsewhere {
    tern_placement *at;
    tern_sequence_put put;
    tern_sequence_get get;
    void *user;
} elsewhere;

static tern_status put_elsewhere(void *user, const void *bytes, size_t n, tern_error *err) {
    const elsewhere *e = user;
    tern_placement_end_use(e->at);
    tern_status status = e->put(e->user, bytes, n, err);
    tern_placement_begin_use(e->at);
    return status;
}

static tern_status get_elsewhere(void *user, void *bytes, size_t n, tern_error *err) {
    const elsewhere *e = user;
    tern_placement_end_use(e->at);
    tern_status status = e->get(e->user, bytes, n, err);
    tern_placement_begin_use(e->at);
    return status;
}

tern_status tern_lease_write(tern_lease *l, int32_t n_positions, tern_sequence_put put, void *user,
                             tern_error *err) {
    const uint8_t is_long = l->is_long;
    if (!l->at) return tern_fail(err, TERN_ERR_DEVICE, "the device was lost");
    TERN_TRY(put(user, &is_long, 1, err));
    tern_placement_begin_use(l->at);
    bool whole = tern_sequence_is_whole(l->sequence, n_positions);
    elsewhere e = {.at = l->at, .put = put, .user = user};
    tern_status status = whole ? tern_sequence_write(l->sequence, put_elsewhere, &e, err)
                               : write_front(l, n_positions, put_elsewhere, &e, err);
    tern_placement_end_use(l->at);
    return status;
}

tern_status tern_lease_read(tern_lease *l, const int32_t *ids, size_t n_ids, tern_sequence_get get,
                            void *user, tern_error *err) {
    uint8_t is_long;
    if (!l->at) return tern_fail(err, TERN_ERR_DEVICE, "the device was lost");
    TERN_TRY(tern_lease_set_ids(l, 0, ids, n_ids, err));
    TERN_TRY(get(user, &is_long, 1, err));
    tern_placement_begin_use(l->at);
    elsewhere e = {.at = l->at, .get = get, .user = user};
    tern_status status = tern_sequence_read(l->sequence, (int32_t)n_ids, get_elsewhere, &e, err);
    tern_placement_end_use(l->at);
    l->n_ids = n_ids;
    l->is_long = is_long != 0;
    return status;
}

#define SWAP(type, a, b)                                                                           \
    do {                                                                                           \
        type swapped_ = a;                                                                         \
        a = b;                                                                                     \
        b = swapped_;                                                                              \
    } while (0)

tern_status tern_lease_take(tern_lease *l, tern_lease *from, tern_error *err) {
    if (!l->at || l->at != from->at || l->cache != from->cache)
        return tern_fail(err, TERN_ERR_DEVICE, "the device was lost");
    SWAP(tern_sequence *, l->sequence, from->sequence);
    SWAP(int32_t *, l->ids, from->ids);
    SWAP(size_t, l->n_ids, from->n_ids);
    SWAP(size_t, l->capacity, from->capacity);
    SWAP(tern_image_tokens **, l->images, from->images);
    SWAP(size_t, l->n_images, from->n_images);
    SWAP(size_t, l->images_capacity, from->images_capacity);
    SWAP(bool, l->is_long, from->is_long);
    return TERN_OK;
}
