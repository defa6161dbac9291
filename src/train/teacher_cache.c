// What a teacher says of a text, kept in a file: one pass of the teacher (teacher_pass.c), and then
// as many epochs and students as one likes, which need it no more. A step finds its sequences by
// the number of their window. Numbers are little-endian:
//
//     bytes   type  content
//       0     8 B   magic "TERNTOPK"
//       8     u32   version, 1
//      12     u32   K
//      16     u32   N, drawn from the other tokens
//      20     u32   vocabulary
//      24     u64   windows
//      32     u64   seed of the draws
//      40     u32   tokens of a window
//      44     u32   bytes of the identity
//      48     u32   CRC-32 of all that comes before the rows, this being 0
//      52     u32   0
//      56           identity: an object of JSON, see put_identity
//             u32   for each window its scored tokens
//     then for each window
//             f32   for each scored token 2 (K + N) + 1 numbers, as keep_top has them
//             u32   CRC-32 of the window's targets (i32), then of these numbers
//
// Only one process writes, which has locked the file. It only adds, and what it adds is the same
// whoever does it: so a killed one's work is gone on with where its checksums end.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/os/os_file.h"
#include "tern_tools.h"
#include "train/trainer.h"

#define MAGIC        "TERNTOPK"
#define IDENTITY_MAX 4096

typedef struct head {
    char magic[8];
    uint32_t version, n_top, n_tail, n_vocab;
    uint64_t n_windows, seed;
    uint32_t seq_len, n_identity, sum, unused;
} head;

uint64_t tern_teacher_cache_place(const tern_teacher_cache *c, uint64_t window) {
    return c->head.len + c->firsts[window] * tern_teacher_cache_width(c) * sizeof(float) +
           window * sizeof(uint32_t);
}

const char *tern_teacher_cache_name(const tern_teacher_cache *c) { return c->name; }

// Columns that both have.
static int64_t columns_of(const tern_trainer *t) {
    const tern_graph *g = &t->teacher->graph;
    int64_t n = t->config.n_vocab;
    if (!t->teacher->file) return n;
    int64_t other = g->values[tern_graph_find(g, "logits")].cols;
    return other < n ? other : n;
}

tern_top tern_teacher_cache_top(const tern_trainer *t) {
    return (tern_top){.n_rows = ((int64_t)t->desc.micro_tokens + 3) / 4 * 4, // a GPU reads four
                      .n_top = t->teacher->cache->n_top,
                      .n_cols = columns_of(t),
                      .n_tail = t->teacher->cache->n_tail};
}

void tern_teacher_cache_sizes(const tern_trainer *t, uint64_t *bytes, double *share) {
    const tern_teacher_cache *c = t->teacher ? t->teacher->cache : NULL;
    *bytes = c && c->firsts ? tern_teacher_cache_place(c, c->n) : 0;
    *share = c && c->is_whole ? 1 : *bytes ? (double)c->n_bytes / (double)*bytes : 0;
}

void tern_teacher_cache_close(tern_teacher_cache *c) {
    if (!c) return;
    if (c->fd >= 0) tern_fd_close(c->fd);
    tern_strbuf_free(&c->head);
    tern_free(c->firsts);
    tern_free(c->windows);
    tern_free(c->rows);
    tern_free(c);
}

// ---- What it is of -----------------------------------------------------------------------------

// CRC-32 over the beginnings of the teacher's weights.
static tern_status sum_weights(const tern_teacher *h, uint32_t *sum, tern_error *err) {
    const tern_graph *g = &h->graph;
    uint8_t bytes[4096];
    *sum = 0;
    for (size_t v = 0; v < g->n_values; v++) {
        tern_tensor x;
        if (g->values[v].kind != TERN_VALUE_WEIGHT) continue;
        if (tern_tensor_is_sign(g->values[v].name)) continue;
        TERN_TRY(tern_arch_weight(h->file, h->arch, &g->values[v], &x, err));
        size_t n = x.data.n < sizeof bytes ? (size_t)x.data.n : sizeof bytes;
        TERN_TRY(tern_blob_read(&x.data, 0, n, bytes, err));
        *sum = tern_crc32(*sum, bytes, n);
    }
    return TERN_OK;
}

static tern_status name_teacher(tern_trainer *t, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    uint32_t sum;
    tern_status status = sum_weights(t->teacher, &sum, err);
    if (status != TERN_OK) return tern_fail_prefix(err, status, t->desc.teacher);
    int n = snprintf(c->name, sizeof c->name, "%s, %08x, top %d", t->teacher->arch->name, sum,
                     c->n_top);
    if (c->n_tail)
        snprintf(c->name + n, sizeof c->name - (size_t)n, ", tail %d of seed %llu", c->n_tail,
                 (unsigned long long)c->seed);
    return TERN_OK;
}

static tern_status put_identity(const tern_trainer *t, tern_strbuf *out, tern_error *err) {
    const tern_teacher_cache *c = t->teacher->cache;
    tern_strbuf_printf(out,
                       "{\"teacher\":\"%s\",\"seq_len\":%d,\"assistant_only\":%s,"
                       "\"begins_by_marks\":%s,\"vocabulary\":%lld,\"held_out_windows\":%llu",
                       c->name, t->desc.seq_len, t->assistant ? "true" : "false",
                       t->begins_by_marks ? "true" : "false", (long long)t->config.n_vocab,
                       (unsigned long long)(c->n - c->n_train));
    tern_identity_put_data(t, out);
    tern_strbuf_printf(out, ",\"tokenizer\":\"%016llx\"}",
                       (unsigned long long)tern_tokenizer_hash(t->tokenizer));
    return out->failed ? tern_fail_memory(err, out->len) : TERN_OK;
}

// ---- The beginning of a file that is there -----------------------------------------------------

static tern_status fail_damaged(const tern_teacher_cache *c, const char *what, tern_error *err) {
    return tern_fail(err, TERN_ERR_FORMAT,
                     "%s: %s: remove it, and it is written again with the teacher", c->path, what);
}

static tern_status read_at(const tern_teacher_cache *c, void *to, size_t n, uint64_t at,
                           tern_error *err) {
    const int64_t got = tern_fd_read_at(c->fd, to, n, at);
    if (got < 0)
        return tern_fail(err, TERN_ERR_IO, "%s: cannot be read: %s", c->path, strerror(errno));
    return got == (int64_t)n ? TERN_OK : fail_damaged(c, "it ends too early", err);
}

// Without a teacher the file says which it was. The name goes into the identity of the run.
static tern_status take_name(const tern_trainer *t, const tern_json_doc *doc, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    tern_str name = tern_json_str(tern_json_get(doc, tern_json_root(doc), "teacher"));
    bool is_plain = name.len > 0 && name.len < sizeof c->name;
    for (size_t i = 0; is_plain && i < name.len; i++)
        is_plain =
            name.ptr[i] >= ' ' && name.ptr[i] <= 'z' && name.ptr[i] != '"' && name.ptr[i] != '\\';
    if (!is_plain) return fail_damaged(c, "its teacher has no name", err);
    if (!t->teacher->file) snprintf(c->name, sizeof c->name, "%.*s", (int)name.len, name.ptr);
    return TERN_OK;
}

static tern_status check_identity(const tern_trainer *t, const char *text, size_t n,
                                  tern_error *err) {
    tern_json_doc doc = {0};
    tern_strbuf mine = {0}, place = {0};
    tern_status status = tern_json_parse(&doc, text, n, err);
    if (status != TERN_OK && status != TERN_ERR_MEMORY)
        status = fail_damaged(t->teacher->cache, "its beginning is damaged", err);
    if (status == TERN_OK) status = take_name(t, &doc, err);
    if (status == TERN_OK) status = put_identity(t, &mine, err);
    tern_strbuf_printf(&place, "%s: the cache", t->desc.teacher_cache);
    if (status == TERN_OK && place.failed) status = tern_fail_memory(err, place.len);
    if (status == TERN_OK)
        status = tern_identity_compare(&mine, &doc, tern_json_root(&doc), place.ptr, err);
    tern_strbuf_free(&place);
    tern_strbuf_free(&mine);
    tern_json_free(&doc);
    return status;
}

// Scored tokens of the windows, to the rows before them.
static tern_status take_counts(tern_teacher_cache *c, const uint32_t *counts, uint32_t most,
                               tern_error *err) {
    uint64_t *firsts = tern_alloc_array(TERN_MEM_MISC, (size_t)c->n + 1, sizeof *firsts);
    if (!firsts) return tern_fail_memory(err, c->n * sizeof *firsts);
    c->firsts = firsts;
    firsts[0] = 0;
    for (uint64_t w = 0; w < c->n; w++) {
        if (counts[w] > most) return fail_damaged(c, "a window has too many tokens", err);
        firsts[w + 1] = firsts[w] + counts[w];
    }
    return TERN_OK;
}

// All before the windows, which is n_head bytes.
static tern_status read_head(const tern_trainer *t, head h, size_t n_head, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    const uint32_t sum = h.sum;
    uint8_t *bytes = tern_alloc(TERN_MEM_MISC, n_head);
    if (!bytes) return tern_fail_memory(err, n_head);
    const uint8_t *rest = bytes + sizeof h;
    tern_status status = read_at(c, bytes, n_head, 0, err);
    h.sum = 0;
    if (status == TERN_OK &&
        tern_crc32(tern_crc32(0, &h, sizeof h), rest, n_head - sizeof h) != sum)
        status = fail_damaged(c, "its beginning is damaged", err);
    if (status == TERN_OK) {
        tern_strbuf_append(&c->head, bytes, n_head);
        if (c->head.failed) status = tern_fail_memory(err, n_head);
    }
    uint32_t *counts = tern_alloc_array(TERN_MEM_MISC, (size_t)c->n, sizeof *counts);
    if (!counts && status == TERN_OK) status = tern_fail_memory(err, c->n * sizeof *counts);
    if (status == TERN_OK) {
        memcpy(counts, rest + h.n_identity, (size_t)c->n * sizeof *counts);
        status = take_counts(c, counts, h.seq_len, err);
    }
    tern_free(counts);
    tern_free(bytes);
    return status;
}

// Nothing is allocated by a number of the file: all sizes must be this run's.
static tern_status check_head(const tern_trainer *t, const head *h, tern_error *err) {
    const tern_teacher_cache *c = t->teacher->cache;
    char identity[IDENTITY_MAX];
    if (h->n_identity > sizeof identity) return fail_damaged(c, "its beginning is damaged", err);
    size_t n_head = sizeof *h + h->n_identity + (size_t)c->n * sizeof(uint32_t);
    if (h->n_windows == c->n && c->n_bytes < n_head) return TERN_OK; // its writer was killed
    TERN_TRY(read_at(c, identity, h->n_identity, sizeof *h, err));
    TERN_TRY(check_identity(t, identity, h->n_identity, err));
    if (h->n_windows != c->n || h->n_vocab != (uint64_t)t->config.n_vocab ||
        h->seq_len != (uint32_t)t->desc.seq_len)
        return fail_damaged(c, "its beginning is damaged", err);
    return read_head(t, *h, n_head, err);
}

// ---- One that is not ---------------------------------------------------------------------------

tern_status tern_teacher_cache_take(tern_trainer *t, uint64_t window, int32_t row,
                                    int64_t *n_scored, tern_error *err) {
    const tern_teacher_cache *c = t->teacher->cache;
    bool held_out = window >= c->n_train;
    uint64_t at[2] = {TERN_EPOCH_IN_ORDER, held_out ? window - c->n_train : window};
    return tern_trainer_fill(t, held_out ? t->valid : t->data, at, row, n_scored, err);
}

static tern_status make_head(const tern_trainer *t, const uint32_t *counts, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    tern_strbuf identity = {0};
    size_t n = (size_t)c->n * sizeof *counts;
    tern_status status = put_identity(t, &identity, err);
    head h = {.version = 1,
              .n_top = (uint32_t)c->n_top,
              .n_tail = (uint32_t)c->n_tail,
              .seed = c->seed,
              .n_vocab = (uint32_t)t->config.n_vocab,
              .seq_len = (uint32_t)t->desc.seq_len,
              .n_windows = c->n,
              .n_identity = (uint32_t)identity.len};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    if (status == TERN_OK) {
        uint32_t sum = tern_crc32(tern_crc32(0, &h, sizeof h), identity.ptr, identity.len);
        h.sum = tern_crc32(sum, counts, n);
        tern_strbuf_append(&c->head, &h, sizeof h);
        tern_strbuf_append(&c->head, identity.ptr, identity.len);
        tern_strbuf_append(&c->head, counts, n);
        if (c->head.failed) status = tern_fail_memory(err, n);
    }
    tern_strbuf_free(&identity);
    return status;
}

// What it will begin with.
static tern_status count(tern_trainer *t, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    uint32_t *counts = tern_alloc_array(TERN_MEM_MISC, (size_t)c->n, sizeof *counts);
    if (!counts) return tern_fail_memory(err, c->n * sizeof *counts);
    tern_status status = TERN_OK;
    for (uint64_t w = 0; status == TERN_OK && w < c->n; w++) {
        int64_t n_scored = 0;
        status = tern_teacher_cache_take(t, w, 0, &n_scored, err);
        counts[w] = (uint32_t)n_scored;
    }
    if (status == TERN_OK) status = make_head(t, counts, err);
    if (status == TERN_OK) status = take_counts(c, counts, (uint32_t)t->desc.seq_len, err);
    tern_free(counts);
    return status;
}

static tern_status check_room(const tern_teacher_cache *c, tern_error *err) {
    char *folder = tern_path_folder(c->path);
    if (!folder) return tern_fail_memory(err, strlen(c->path));
    uint64_t all = tern_teacher_cache_place(c, c->n), room = tern_disk_room(folder);
    tern_free(folder);
    if (all - c->n_bytes <= room) return TERN_OK;
    return tern_fail(err, TERN_ERR_IO,
                     "%s: it takes %.3f GB, %.3f of them are missing, and the disk has room for "
                     "%.3f: a smaller teacher_top_k takes less",
                     c->path, (double)all * 1e-9, (double)(all - c->n_bytes) * 1e-9,
                     (double)room * 1e-9);
}

tern_status tern_teacher_cache_plan(tern_trainer *t, tern_error *err) {
    tern_teacher_cache *c = t->teacher ? t->teacher->cache : NULL;
    if (!c || c->is_whole) return TERN_OK;
    if (!c->firsts) TERN_TRY(count(t, err));
    return check_room(c, err);
}

// ---- Opening -----------------------------------------------------------------------------------

// K, N and seed: those that are asked for, or else the file's.
static tern_status choose(const tern_trainer *t, const head *h, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    const uint32_t top = (uint32_t)t->desc.teacher_top_k, tail = (uint32_t)t->desc.teacher_tail;
    const int64_t most = columns_of(t);
    const int64_t n_top = h ? h->n_top : top ? top : most < 64 ? most : 64;
    const int64_t n_tail = h ? h->n_tail : tail;
    if (top && n_top != top)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: it has the best %lld of each token's, and teacher_top_k is %u",
                         c->path, (long long)n_top, (unsigned)top);
    if (tail && n_tail != tail)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: it has %lld of each token's others, and teacher_tail is %u", c->path,
                         (long long)n_tail, (unsigned)tail);
    if (n_top < 1 || n_top + n_tail > most)
        return tern_fail(err, TERN_ERR_ARGUMENT,
                         "%s: the best %lld tokens and %lld others cannot be kept of a vocabulary "
                         "of %lld",
                         c->path, (long long)n_top, (long long)n_tail, (long long)most);
    c->n_top = (int32_t)n_top;
    c->n_tail = (int32_t)n_tail;
    c->seed = h ? h->seed : t->desc.seed;
    return TERN_OK;
}

// Whether a file has a beginning; not if its writer was killed before that.
static tern_status look(tern_teacher_cache *c, head *h, bool *has_head, tern_error *err) {
    *has_head = false;
    if (tern_path_look(c->path) == TERN_PATH_NONE) return TERN_OK;
    TERN_TRY(tern_file_open_regular(&c->fd, c->path, &c->n_bytes, err));
    int64_t n = tern_fd_read_at(c->fd, h, sizeof *h, 0);
    *has_head = n == sizeof *h;
    size_t n_magic = n < 0 ? 0 : n < (int64_t)sizeof h->magic ? (size_t)n : sizeof h->magic;
    if (n >= 0 && memcmp(h->magic, MAGIC, n_magic) == 0 && (!*has_head || h->version == 1))
        return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT, "%s: this is not a cache of a teacher", c->path);
}

static tern_status open_file(tern_trainer *t, tern_error *err) {
    tern_teacher_cache *c = t->teacher->cache;
    head h = {.version = 0};
    bool has_head;
    TERN_TRY(look(c, &h, &has_head, err));
    if (c->fd < 0 && !t->desc.teacher)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: not there, and a teacher has to write it",
                         c->path);
    TERN_TRY(choose(t, has_head ? &h : NULL, err));
    if (t->desc.teacher) TERN_TRY(name_teacher(t, err));
    if (has_head) TERN_TRY(check_head(t, &h, err));
    if (c->firsts && c->n_bytes > tern_teacher_cache_place(c, c->n))
        return fail_damaged(c, "it is too long", err);
    c->is_whole = c->firsts && c->n_bytes == tern_teacher_cache_place(c, c->n);
    if (c->is_whole || t->desc.teacher) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s: not complete, and its teacher has to go on",
                     c->path);
}

tern_status tern_teacher_cache_open(tern_trainer *t, tern_error *err) {
    const tern_train_desc *d = &t->desc;
    tern_teacher_cache *c = t->teacher->cache = tern_alloc(TERN_MEM_MISC, sizeof *c);
    if (!c) return tern_fail_memory(err, sizeof *c);
    *c = (tern_teacher_cache){.path = d->teacher_cache, .fd = -1};
    uint64_t n_valid = t->valid ? tern_token_set_n_sequences(t->valid) : 0;
    uint64_t most = (uint64_t)(d->valid_tokens / d->seq_len);
    c->n_train = tern_token_set_n_sequences(t->data);
    c->n = c->n_train + (n_valid < most ? n_valid : most);
    TERN_TRY(open_file(t, err));
    size_t n = (size_t)(d->batch_tokens / d->seq_len);
    size_t n_rows = (size_t)d->seq_len * tern_teacher_cache_width(c) + 1;
    c->windows = tern_alloc_array(TERN_MEM_MISC, n, sizeof *c->windows);
    c->rows = tern_alloc_array(TERN_MEM_MISC, n_rows, sizeof *c->rows);
    if (!c->windows || !c->rows) return tern_fail_memory(err, n_rows * sizeof(float));
    return TERN_OK;
}

// ---- Windows -----------------------------------------------------------------------------------

uint32_t tern_teacher_cache_sum(const tern_trainer *t, uint64_t n_rows, int32_t row) {
    const tern_teacher_cache *c = t->teacher->cache;
    uint32_t sum = tern_crc32(0, t->targets + row, (size_t)t->desc.seq_len * sizeof *t->targets);
    return tern_crc32(sum, c->rows, (size_t)n_rows * tern_teacher_cache_width(c) * sizeof *c->rows);
}

// A checksum keeps out accidents, this keeps out the rest.
bool tern_teacher_cache_are_sound(const tern_trainer *t, uint64_t n_rows) {
    const tern_teacher_cache *c = t->teacher->cache;
    size_t k = (size_t)c->n_top + (size_t)c->n_tail, width = tern_teacher_cache_width(c);
    for (size_t i = 0; i < n_rows; i++) {
        const float *ids = c->rows + i * width, *logs = ids + k;
        for (size_t j = 0; j < k; j++)
            if (!(ids[j] >= 0 && ids[j] < (float)t->config.n_vocab)) return false;
        for (size_t j = 0; j <= k; j++)
            if (!(logs[j] >= -1e6f && logs[j] <= 1e-2f)) return false;
    }
    return true;
}

tern_status tern_teacher_cache_read(const tern_trainer *t, uint64_t window, int32_t row,
                                    tern_error *err) {
    const tern_teacher_cache *c = t->teacher->cache;
    uint64_t n = tern_teacher_cache_rows(c, window), n_scored = 0;
    size_t bytes = (size_t)n * tern_teacher_cache_width(c) * sizeof *c->rows;
    uint32_t sum;
    char what[64];
    for (int32_t i = 0; i < t->desc.seq_len; i++) n_scored += t->targets[row + i] >= 0;
    TERN_TRY(read_at(c, c->rows, bytes + sizeof sum, tern_teacher_cache_place(c, window), err));
    memcpy(&sum, (const char *)c->rows + bytes, sizeof sum);
    if (n == n_scored && sum == tern_teacher_cache_sum(t, n, row) &&
        tern_teacher_cache_are_sound(t, n))
        return TERN_OK;
    snprintf(what, sizeof what, "window %llu is damaged, or of another text",
             (unsigned long long)window);
    return fail_damaged(c, what, err);
}

void tern_teacher_cache_note(tern_trainer *t, const tern_token_set *set, const uint64_t at[2],
                             int32_t row) {
    tern_teacher_cache *c = t->teacher ? t->teacher->cache : NULL;
    if (!c) return;
    uint64_t before = set == t->valid ? c->n_train : 0;
    c->windows[row / t->desc.seq_len] = before + tern_token_set_window(set, at[0], at[1]);
}

tern_status tern_teacher_cache_feed(tern_trainer *t, int32_t first, int32_t n_tokens,
                                    tern_error *err) {
    const tern_teacher_cache *c = t->teacher ? t->teacher->cache : NULL;
    uint64_t at = 0, width = c ? tern_teacher_cache_width(c) : 0;
    if (!c) return TERN_OK;
    const tern_slot *slot = tern_trainer_slot(t, TERN_TEACHER_TOP);
    for (int32_t row = first; row < first + n_tokens; row += t->desc.seq_len) {
        uint64_t window = c->windows[row / t->desc.seq_len];
        uint64_t n = tern_teacher_cache_rows(c, window);
        TERN_TRY(tern_teacher_cache_read(t, window, row, err));
        TERN_TRY(t->backend->write(slot->array, at * width, n * width, c->rows, err));
        at += n;
    }
    return TERN_OK;
}
