#include "formats/shard/shard.h"

#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/file_private.h"
#include "formats/shard/shard_private.h"

struct tern_shard {
    tern_shard_info info;
    tern_mapping map; // for a file; else the bytes are the caller's
    const uint8_t *body, *documents, *spans, *checksums;
    uint64_t body_bytes, n_data; // n_data: bytes of the tokens, without padding
    atomic_uchar *checked;       // [n_blocks] 1: checked and found whole
    char *path;
};

static uint64_t read_le(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static uint32_t read_u32(const uint8_t *p) { return (uint32_t)read_le(p, 4); }

static tern_status bad(const tern_shard *s, tern_error *err, const char *what) {
    return tern_fail(err, TERN_ERR_FORMAT, "%s: %s", s->path, what);
}

// ---- Opening ------------------------------------------------------------------------------------

// Checks the fields that the header alone determines.
static tern_status read_header(tern_shard *s, const uint8_t *h, uint64_t n, tern_error *err) {
    tern_shard_info *info = &s->info;
    if (n < TERN_SHARD_HEADER_BYTES || memcmp(h, TERN_SHARD_MAGIC, 8) != 0)
        return bad(s, err, "not a shard of tokens (it does not begin with " TERN_SHARD_MAGIC ")");
    uint32_t version = read_u32(h + 8);
    if (version < 1 || version > TERN_SHARD_VERSION)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: version %u where %d is known", s->path,
                         version, TERN_SHARD_VERSION);
    if (tern_crc32(0, h, 60) != read_u32(h + 60))
        return bad(s, err, "the header is damaged (its checksum differs)");
    info->token_bytes = read_u32(h + 12);
    info->n_vocab = read_u32(h + 16);
    info->end_id = (int32_t)read_u32(h + 20);
    info->n_tokens = read_le(h + 24, 8);
    info->n_documents = read_le(h + 32, 8);
    info->tokenizer_hash = read_le(h + 40, 8);
    info->block_bytes = read_u32(h + 48);
    info->checksum = read_u32(h + 52);
    info->n_spans = read_u32(h + 56);
    uint32_t block = info->block_bytes;
    if (info->token_bytes != 2 && info->token_bytes != 4)
        return bad(s, err, "tokens of neither 2 nor 4 bytes");
    if (info->n_vocab == 0 || info->n_vocab > INT32_MAX)
        return bad(s, err, "an impossible vocabulary size");
    if (info->end_id < -1 || info->end_id >= (int64_t)info->n_vocab)
        return bad(s, err, "the end-of-document token is not in the vocabulary");
    if (block < TERN_SHARD_BLOCK_MIN || (block & (block - 1)))
        return bad(s, err, "the size of a block is not a power of two from 4096 on");
    if (version == 1 && info->n_spans) return bad(s, err, "bytes 56 to 59 of the header are not 0");
    return TERN_OK;
}

// The position of everything follows from the counts, and must fill the file.
static tern_status lay_out(tern_shard *s, const uint8_t *bytes, uint64_t n, tern_error *err) {
    tern_shard_info *info = &s->info;
    uint64_t room = n - TERN_SHARD_HEADER_BYTES;
    if (info->n_tokens > room / info->token_bytes || info->n_documents > room / 8 ||
        info->n_spans > room / 16)
        return bad(s, err, "the file is cut off: the header promises more than there is");
    s->n_data = info->n_tokens * info->token_bytes;
    s->body_bytes = (s->n_data + 7) / 8 * 8 + info->n_documents * 8 + (uint64_t)info->n_spans * 16;
    info->n_blocks = (s->body_bytes + info->block_bytes - 1) / info->block_bytes;
    uint64_t n_wanted = TERN_SHARD_HEADER_BYTES + s->body_bytes + info->n_blocks * 4;
    if (n != n_wanted)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: has %llu bytes, by its header it must be %llu",
                         s->path, (unsigned long long)n, (unsigned long long)n_wanted);
    s->body = bytes + TERN_SHARD_HEADER_BYTES;
    s->documents = s->body + (s->n_data + 7) / 8 * 8;
    s->spans = s->documents + info->n_documents * 8;
    s->checksums = s->body + s->body_bytes;
    if (tern_crc32(0, s->checksums, info->n_blocks * 4) != info->checksum)
        return bad(s, err, "the list of checksums is damaged (its own checksum differs)");
    s->checked = tern_alloc_array(TERN_MEM_FILE, info->n_blocks + 1, sizeof *s->checked);
    return s->checked ? TERN_OK : tern_fail_memory(err, info->n_blocks);
}

static tern_status check_documents(tern_shard *s, tern_error *err) {
    const tern_shard_info *info = &s->info;
    if ((info->n_documents == 0) != (info->n_tokens == 0))
        return bad(s, err, "tokens without documents, or documents without tokens");
    uint64_t first = (uint64_t)(s->documents - s->body) / info->block_bytes;
    if (info->n_documents) TERN_TRY(tern_shard_check(s, first, info->n_blocks - first, err));
    for (uint64_t i = 0; i < info->n_documents; i++) {
        uint64_t at = tern_shard_document(s, i);
        bool ok = i == 0 ? at == 0 : at > tern_shard_document(s, i - 1);
        if (!ok || at >= info->n_tokens)
            return tern_fail(err, TERN_ERR_FORMAT,
                             "%s: document %llu begins at token %llu, out of order", s->path,
                             (unsigned long long)i, (unsigned long long)at);
    }
    return TERN_OK;
}

// Their blocks are checked with the documents'.
static tern_status check_spans(const tern_shard *s, tern_error *err) {
    uint64_t end = 0;
    for (uint64_t i = 0; i < s->info.n_spans; i++) {
        tern_token_span span = tern_shard_span(s, i);
        if (span.first < end || span.end <= span.first || span.end > s->info.n_tokens)
            return tern_fail(err, TERN_ERR_FORMAT,
                             "%s: span %llu of what is not scored, tokens %llu to %llu, is out of "
                             "order",
                             s->path, (unsigned long long)i, (unsigned long long)span.first,
                             (unsigned long long)span.end);
        end = span.end;
    }
    return TERN_OK;
}

static tern_status open_bytes(tern_shard *s, const uint8_t *bytes, uint64_t n, tern_error *err) {
    TERN_TRY(read_header(s, bytes, n, err));
    TERN_TRY(lay_out(s, bytes, n, err));
    TERN_TRY(check_documents(s, err));
    return check_spans(s, err);
}

static tern_status new_shard(tern_shard **out, const char *path, tern_error *err) {
    tern_shard *s = tern_alloc(TERN_MEM_FILE, sizeof *s);
    *out = NULL;
    if (!s) return tern_fail_memory(err, sizeof *s);
    s->path = tern_strdup(TERN_MEM_FILE, path);
    if (!s->path) {
        tern_free(s);
        return tern_fail_memory(err, strlen(path) + 1);
    }
    s->info.path = s->path;
    *out = s;
    return TERN_OK;
}

tern_status tern_shard_open_bytes(tern_shard **out, const char *name, const uint8_t *bytes,
                                  uint64_t n, tern_error *err) {
    tern_shard *s;
    TERN_TRY(new_shard(&s, name, err));
    tern_status status = open_bytes(s, bytes, n, err);
    if (status != TERN_OK) tern_shard_close(s);
    *out = status == TERN_OK ? s : NULL;
    return status;
}

tern_status tern_shard_open(tern_shard **out, const char *path, tern_error *err) {
    tern_shard *s;
    TERN_TRY(new_shard(&s, path, err));
    tern_status status = tern_mapping_open(&s->map, path, false, err);
    if (status == TERN_OK) status = open_bytes(s, s->map.bytes, s->map.n, err);
    if (status != TERN_OK) tern_shard_close(s);
    *out = status == TERN_OK ? s : NULL;
    return status;
}

void tern_shard_close(tern_shard *s) {
    if (!s) return;
    tern_mapping_close(&s->map);
    tern_free((void *)s->checked);
    tern_free(s->path);
    tern_free(s);
}

const tern_shard_info *tern_shard_get_info(const tern_shard *s) { return &s->info; }

// ---- Checking -----------------------------------------------------------------------------------

static int32_t token_at(const tern_shard *s, uint64_t i) {
    const uint8_t *p = s->body + i * s->info.token_bytes;
    return (int32_t)(s->info.token_bytes == 2 ? read_le(p, 2) : read_le(p, 4));
}

static tern_status check_block(const tern_shard *s, uint64_t block, tern_error *err) {
    const tern_shard_info *info = &s->info;
    uint64_t from = block * info->block_bytes, to = from + info->block_bytes;
    if (to > s->body_bytes) to = s->body_bytes;
    if (tern_crc32(0, s->body + from, to - from) != read_u32(s->checksums + block * 4))
        return tern_fail(
            err, TERN_ERR_FORMAT,
            "%s: block %llu of %llu (bytes %llu to %llu) is damaged: its checksum differs", s->path,
            (unsigned long long)block, (unsigned long long)info->n_blocks,
            (unsigned long long)(from + TERN_SHARD_HEADER_BYTES),
            (unsigned long long)(to - 1 + TERN_SHARD_HEADER_BYTES));
    uint64_t first = from / info->token_bytes, last = to / info->token_bytes;
    if (last > info->n_tokens) last = info->n_tokens;
    for (uint64_t i = first; i < last; i++)
        if ((uint32_t)token_at(s, i) >= info->n_vocab)
            return tern_fail(err, TERN_ERR_FORMAT, "%s: token %llu is %u, the vocabulary has %u",
                             s->path, (unsigned long long)i, (uint32_t)token_at(s, i),
                             info->n_vocab);
    return TERN_OK;
}

tern_status tern_shard_check(tern_shard *s, uint64_t first, uint64_t n, tern_error *err) {
    for (uint64_t i = first; i < first + n; i++) {
        if (atomic_load_explicit(&s->checked[i], memory_order_relaxed)) continue;
        TERN_TRY(check_block(s, i, err)); // two threads may both do it, harmlessly
        atomic_store_explicit(&s->checked[i], 1, memory_order_relaxed);
    }
    return TERN_OK;
}

// ---- Reading ------------------------------------------------------------------------------------

tern_status tern_shard_read(tern_shard *s, uint64_t first, uint64_t n, int32_t *ids,
                            tern_error *err) {
    const tern_shard_info *info = &s->info;
    if (n == 0) return TERN_OK;
    if (first > info->n_tokens || n > info->n_tokens - first)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: tokens %llu to %llu are not there", s->path,
                         (unsigned long long)first, (unsigned long long)(first + n - 1));
    uint64_t from = first * info->token_bytes / info->block_bytes;
    uint64_t to = ((first + n) * info->token_bytes - 1) / info->block_bytes;
    TERN_TRY(tern_shard_check(s, from, to - from + 1, err));
    for (uint64_t i = 0; i < n; i++) ids[i] = token_at(s, first + i);
    return TERN_OK;
}

uint64_t tern_shard_document(const tern_shard *s, uint64_t i) {
    return i < s->info.n_documents ? read_le(s->documents + i * 8, 8) : s->info.n_tokens;
}

uint64_t tern_shard_document_at(const tern_shard *s, uint64_t token) {
    uint64_t low = 0, high = s->info.n_documents; // document `low` begins at or before the token
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (tern_shard_document(s, middle) <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

tern_token_span tern_shard_span(const tern_shard *s, uint64_t i) {
    const uint8_t *p = s->spans + i * 16;
    return (tern_token_span){read_le(p, 8), read_le(p + 8, 8)};
}

uint64_t tern_shard_span_at(const tern_shard *s, uint64_t token) {
    uint64_t low = 0, high = s->info.n_spans; // spans before `low` end at or before the token
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (tern_shard_span(s, middle).end <= token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
