// A session in a file, or the same bytes in memory, all numbers little-endian:
//
//     0   8  "TERNSESS"
//     8   4  version, 1
//    12   4  0
//    16   8  digest of the model, its arithmetic, the type of keys and values, scales of adapters
//    24   8  n, tokens
//    32   8  hash (tern_hash64) of the bytes before and of the tokens, in two pieces
//    40  4n  tokens
//     .   .  states (runtime/lease_file.c, kernels/sequence_file.c)
//     .   8  hash of the states, piece by piece as they are read
//
// The hashes find accidental damage; someone who can write the file can forge a text's states, but
// cannot make the reader access memory out of bounds.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/file/out_set.h"
#include "session/session.h"

#define MAGIC   "TERNSESS"
#define VERSION 1
#define MEMORY  "memory" // in messages, instead of a path

typedef struct header {
    char magic[8];
    uint32_t version, unused;
    uint64_t digest, n_tokens, hash;
} header;

static uint64_t hash_front(const header *h, const int32_t *ids) {
    uint64_t hash = tern_hash64(0, h, offsetof(header, hash));
    return tern_hash64(hash, ids, (size_t)h->n_tokens * sizeof *ids);
}

tern_status tern_session_digest(tern_session *s, uint64_t *out, tern_error *err) {
    tern_clear(err);
    TERN_NEED(s);
    TERN_NEED(out);
    uint64_t model;
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = tern_model_digest(s->model, &model, err);
    tern_session_leave(&call);
    TERN_TRY(status);
    const uint64_t kv_type = (uint64_t)s->desc.kv_type;
    *out = tern_hash64(model, &kv_type, sizeof kv_type);
    size_t n;
    const float *scales = tern_session_lora_scales(s, &n);
    if (n) *out = tern_hash64(*out, scales, n * sizeof *scales);
    return TERN_OK;
}

// ---- Saving ------------------------------------------------------------------------------------

typedef struct saving {
    tern_output *out;      // or
    tern_text_fn on_bytes; // the caller's
    void *user;
    uint64_t hash;
} saving;

static tern_status write_bytes(const saving *to, const void *bytes, size_t n, tern_error *err) {
    if (to->out) return tern_output_write(to->out, bytes, n, err);
    if (n == 0 || to->on_bytes(to->user, bytes, n)) return TERN_OK;
    return tern_fail(err, TERN_ERR_CANCELLED, "saving was stopped by on_bytes");
}

static tern_status put(void *user, const void *bytes, size_t n, tern_error *err) {
    saving *to = user;
    to->hash = tern_hash64(to->hash, bytes, n);
    TERN_TRY(tern_check_cancelled("saving", err));
    return write_bytes(to, bytes, n, err);
}

static tern_status save(tern_session *s, saving *to, tern_error *err) {
    const int32_t *ids = tern_session_tokens(s);
    header h = {.magic = MAGIC, .version = VERSION, .n_tokens = s->n_tokens};
    TERN_TRY(tern_session_digest(s, &h.digest, err));
    h.hash = hash_front(&h, ids);
    TERN_TRY(write_bytes(to, &h, sizeof h, err));
    TERN_TRY(write_bytes(to, ids, s->n_tokens * sizeof *ids, err));
    TERN_TRY(tern_lease_write(s->lease, (int32_t)s->n_tokens, put, to, err));
    TERN_TRY(write_bytes(to, &to->hash, sizeof to->hash, err));
    return to->out ? tern_output_finish(to->out, err) : TERN_OK;
}

static tern_status check_savable(tern_session *s, const char *path, tern_error *err) {
    TERN_TRY(tern_session_check_idle(s, err));
    const int32_t *ids = tern_session_tokens(s);
    for (size_t i = 0; i < s->n_tokens; i++)
        if (ids[i] >= TERN_IMAGE_TOKENS_IDS) // their meaning ends with the model
            return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: a session with images cannot be saved",
                             path);
    return TERN_OK;
}

static tern_status save_to(tern_session *s, saving *to, tern_error *err) {
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = save(s, to, err);
    tern_session_leave(&call);
    return status;
}

tern_status tern_session_save(tern_session *s, const char *path, tern_error *err) {
    tern_clear(err);
    saving to = {0};
    TERN_NEED(s);
    TERN_NEED(path);
    TERN_TRY(check_savable(s, path, err));
    TERN_TRY(tern_output_open_private(&to.out, path, err));
    tern_status status = save_to(s, &to, err);
    tern_output_close(to.out);
    return status;
}

tern_status tern_session_save_bytes(tern_session *s, tern_text_fn on_bytes, void *user,
                                    tern_error *err) {
    tern_clear(err);
    saving to = {.on_bytes = on_bytes, .user = user};
    TERN_NEED(s);
    TERN_NEED(on_bytes);
    TERN_TRY(check_savable(s, MEMORY, err));
    return save_to(s, &to, err);
}

// ---- Loading -----------------------------------------------------------------------------------

typedef struct loading {
    const char *path;
    int fd;                // or
    const uint8_t *memory; // what is not read yet
    uint64_t hash, n_left; // bytes of the file that are not read yet
    int32_t *ids;
    size_t n_ids;
} loading;

static tern_status fail(const loading *from, tern_error *err, const char *what) {
    return tern_fail(err, TERN_ERR_FORMAT, "%s: %s", from->path, what);
}

static tern_status read_bytes(loading *from, void *bytes, size_t n, tern_error *err) {
    if (n > from->n_left) return fail(from, err, "the saved session ends too early");
    if (from->memory) {
        if (n) memcpy(bytes, from->memory, n);
        from->memory += n;
        from->n_left -= n;
        return TERN_OK;
    }
    int64_t got = tern_fd_read(from->fd, bytes, n);
    if (got < 0 || (size_t)got != n)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be read", from->path);
    from->n_left -= n;
    return TERN_OK;
}

static tern_status get(void *user, void *bytes, size_t n, tern_error *err) {
    loading *from = user;
    TERN_TRY(tern_check_cancelled("loading", err));
    TERN_TRY(read_bytes(from, bytes, n, err));
    from->hash = tern_hash64(from->hash, bytes, n);
    return TERN_OK;
}

static tern_status check_header(const loading *from, const header *h, uint64_t digest,
                                tern_error *err) {
    if (memcmp(h->magic, MAGIC, sizeof h->magic) != 0)
        return fail(from, err, "not a saved session");
    if (h->version != VERSION)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: a saved session of version %u, this tern reads version %d",
                         from->path, (unsigned)h->version, VERSION);
    if (h->digest != digest)
        return fail(from, err,
                    "saved with another model, adapters, type of keys and values, device or "
                    "version of tern");
    if (h->n_tokens > from->n_left / sizeof(int32_t))
        return fail(from, err, "the saved session ends too early");
    return TERN_OK;
}

// The header and the tokens.
static tern_status load_front(loading *from, tern_session *s, tern_error *err) {
    header h;
    uint64_t digest;
    TERN_TRY(tern_session_digest(s, &digest, err));
    if (!from->memory) TERN_TRY(tern_file_open_regular(&from->fd, from->path, &from->n_left, err));
    TERN_TRY(read_bytes(from, &h, sizeof h, err));
    TERN_TRY(check_header(from, &h, digest, err));
    from->n_ids = (size_t)h.n_tokens;
    from->ids = tern_alloc_array(TERN_MEM_SESSION, from->n_ids, sizeof *from->ids);
    if (!from->ids) return tern_fail_memory(err, from->n_ids * sizeof *from->ids);
    TERN_TRY(read_bytes(from, from->ids, from->n_ids * sizeof *from->ids, err));
    if (hash_front(&h, from->ids) != h.hash)
        return fail(from, err, "the saved session is damaged: its tokens have another checksum");
    return TERN_OK;
}

// A temporary session that reads the states, so that the target stays unchanged if they are
// damaged.
static tern_status load_states(loading *from, tern_lease *l, tern_error *err) {
    uint64_t hash;
    tern_error why = {0};
    tern_status status = tern_lease_read(l, from->ids, from->n_ids, get, from, &why);
    if (status == TERN_ERR_FORMAT && !strstr(why.message, from->path))
        return fail(from, err, why.message);
    if (status != TERN_OK && err) *err = why;
    TERN_TRY(status);
    uint64_t computed = from->hash;
    TERN_TRY(read_bytes(from, &hash, sizeof hash, err));
    if (hash != computed)
        return fail(from, err, "the saved session is damaged: its states have another checksum");
    if (from->n_left > 0) return fail(from, err, "there is more in it than a saved session");
    return TERN_OK;
}

static tern_status load(tern_session *s, loading *from, tern_error *err) {
    tern_lease *fresh;
    TERN_TRY(load_front(from, s, err));
    TERN_TRY(tern_session_check_ids(s, from->ids, from->n_ids, err));
    if (from->n_ids > (size_t)s->n_context)
        return tern_fail(err, TERN_ERR_CONTEXT_FULL,
                         "%s: %zu tokens do not fit into a context of %d", from->path, from->n_ids,
                         (int)s->n_context);
    TERN_TRY(tern_lease_open(&fresh, s->model, s->n_context, s->desc.kv_type, err));
    tern_status status = load_states(from, fresh, err);
    if (status == TERN_OK) status = tern_lease_take(s->lease, fresh, err);
    tern_lease_close(fresh);
    TERN_TRY(status);
    tern_speculator_cut(s->speculator, 0);
    s->n_tokens = from->n_ids;
    return TERN_OK;
}

static void close_loading(loading *from) {
    if (from->fd >= 0) tern_fd_close(from->fd);
    tern_free(from->ids);
}

static tern_status load_from(tern_session *s, loading *from, tern_error *err) {
    TERN_TRY(tern_session_check_idle(s, err));
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = load(s, from, err);
    tern_session_leave(&call);
    close_loading(from);
    return status;
}

tern_status tern_session_load(tern_session *s, const char *path, tern_error *err) {
    tern_clear(err);
    loading from = {.path = path, .fd = -1};
    TERN_NEED(s);
    TERN_NEED(path);
    return load_from(s, &from, err);
}

tern_status tern_session_load_bytes(tern_session *s, const void *bytes, size_t n_bytes,
                                    tern_error *err) {
    tern_clear(err);
    loading from = {.path = MEMORY, .fd = -1, .memory = bytes, .n_left = n_bytes};
    TERN_NEED(s);
    TERN_NEED(bytes);
    return load_from(s, &from, err);
}

tern_status tern_session_peek(tern_session *s, const char *path, tern_ids *out, tern_error *err) {
    tern_clear(err);
    loading from = {.path = path, .fd = -1};
    TERN_NEED(s);
    TERN_NEED(path);
    TERN_NEED(out);
    TERN_NEED_ARRAY(out->ids, out->capacity);
    tern_session_call call;
    tern_session_enter(&call, s);
    tern_status status = load_front(&from, s, err);
    tern_session_leave(&call);
    tern_ids_give(out, from.ids, status == TERN_OK ? from.n_ids : 0);
    close_loading(&from);
    return status;
}
