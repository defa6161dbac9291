// Writing shards. The body passes through a buffer of one block, so that its checksum is computed
// in one go; document starts, spans and checksums stay in memory until the end (8 bytes per
// document, 16 per span, 4 per block), and the header, which depends on everything, is written over
// zeros last.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/shard/shard.h"
#include "formats/shard/shard_private.h"

struct tern_shard_writer {
    tern_shard_desc desc;
    tern_out_set own, *out; // out: &own, or the caller's
    tern_out_file file;
    uint8_t *block; // the one being filled
    size_t n_block;
    uint64_t *documents;
    tern_token_span *spans;
    uint32_t *checksums;
    size_t n_documents, documents_capacity, n_checksums, checksums_capacity;
    size_t n_spans, spans_capacity;
    uint64_t n_tokens;
    uint32_t token_bytes;
    bool failed;
};

static void put_le(uint8_t *p, uint64_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static tern_status end_block(tern_shard_writer *w, tern_error *err) {
    if (w->n_block == 0) return TERN_OK;
    if (tern_array_reserve(TERN_MEM_FILE, &w->checksums, &w->checksums_capacity, w->n_checksums,
                           1) != 0)
        return tern_fail_memory(err, w->n_checksums * 8);
    w->checksums[w->n_checksums++] = tern_crc32(0, w->block, w->n_block);
    size_t n = w->n_block;
    w->n_block = 0;
    return tern_out_write(&w->file, w->block, n, err);
}

static tern_status put(tern_shard_writer *w, uint64_t value, uint32_t n_bytes, tern_error *err) {
    put_le(w->block + w->n_block, value, (int)n_bytes); // blocks end where values do
    w->n_block += n_bytes;
    return w->n_block == w->desc.block_bytes ? end_block(w, err) : TERN_OK;
}

static tern_status begin_file(tern_shard_writer *w, tern_out_set *set, const char *path,
                              tern_error *err) {
    static const uint8_t header[TERN_SHARD_HEADER_BYTES];
    w->out = set ? set : &w->own;
    if (!set) TERN_TRY(tern_out_open_file(&w->own, path, err));
    TERN_TRY(tern_out_begin(w->out, set ? path : NULL, &w->file, err));
    return tern_out_write(&w->file, header, sizeof header, err);
}

static tern_status open_writer(tern_shard_writer **out, tern_out_set *set, const char *path,
                               const tern_shard_desc *desc, tern_error *err) {
    uint32_t block = desc->block_bytes ? desc->block_bytes : TERN_SHARD_BLOCK_BYTES;
    *out = NULL;
    if (block < TERN_SHARD_BLOCK_MIN || (block & (block - 1)) || desc->n_vocab == 0 ||
        desc->n_vocab > INT32_MAX || desc->end_id < -1 || desc->end_id >= (int64_t)desc->n_vocab)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%s: no shard can have this description", path);
    tern_shard_writer *w = tern_alloc(TERN_MEM_FILE, sizeof *w);
    if (!w) return tern_fail_memory(err, sizeof *w);
    w->desc = *desc;
    w->desc.block_bytes = block;
    w->token_bytes = desc->n_vocab <= 65536 ? 2 : 4;
    w->block = tern_alloc(TERN_MEM_FILE, block);
    tern_status status = w->block ? TERN_OK : tern_fail_memory(err, block);
    if (status == TERN_OK) status = begin_file(w, set, path, err);
    if (status != TERN_OK)
        tern_shard_writer_free(w);
    else
        *out = w;
    return status;
}

tern_status tern_shard_writer_open(tern_shard_writer **out, const char *path,
                                   const tern_shard_desc *desc, tern_error *err) {
    return open_writer(out, NULL, path, desc, err);
}

tern_status tern_shard_writer_open_in(tern_shard_writer **out, tern_out_set *set, const char *name,
                                      const tern_shard_desc *desc, tern_error *err) {
    return open_writer(out, set, name, desc, err);
}

static tern_status write_document(tern_shard_writer *w, const int32_t *ids, uint64_t n,
                                  tern_error *err) {
    if (n == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "a document without tokens");
    for (uint64_t i = 0; i < n; i++)
        if ((uint32_t)ids[i] >= w->desc.n_vocab)
            return tern_fail(err, TERN_ERR_ARGUMENT, "token %d is not in the vocabulary of %u",
                             ids[i], w->desc.n_vocab);
    if (tern_array_reserve(TERN_MEM_FILE, &w->documents, &w->documents_capacity, w->n_documents,
                           1) != 0)
        return tern_fail_memory(err, w->n_documents * 16);
    w->documents[w->n_documents++] = w->n_tokens;
    w->n_tokens += n;
    for (uint64_t i = 0; i < n; i++) TERN_TRY(put(w, (uint32_t)ids[i], w->token_bytes, err));
    return TERN_OK;
}

tern_status tern_shard_write(tern_shard_writer *w, const int32_t *ids, uint64_t n,
                             tern_error *err) {
    if (w->failed) return tern_fail(err, TERN_ERR_ARGUMENT, "writing the shard failed before");
    tern_status status = write_document(w, ids, n, err);
    w->failed = status != TERN_OK;
    return status;
}

static tern_status leave_out(tern_shard_writer *w, uint64_t first, uint64_t end, tern_error *err) {
    uint64_t document = w->n_documents ? w->documents[w->n_documents - 1] : 0;
    uint64_t least = w->n_spans ? w->spans[w->n_spans - 1].end : 0;
    if (first >= end || end > w->n_tokens - document || document + first < least ||
        w->n_spans == UINT32_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tokens %llu to %llu cannot be left out",
                         (unsigned long long)first, (unsigned long long)end);
    if (tern_array_reserve(TERN_MEM_FILE, &w->spans, &w->spans_capacity, w->n_spans, 1) != 0)
        return tern_fail_memory(err, w->n_spans * 32);
    w->spans[w->n_spans++] = (tern_token_span){document + first, document + end};
    return TERN_OK;
}

tern_status tern_shard_leave_out(tern_shard_writer *w, uint64_t first, uint64_t end,
                                 tern_error *err) {
    if (w->failed) return tern_fail(err, TERN_ERR_ARGUMENT, "writing the shard failed before");
    tern_status status = leave_out(w, first, end, err);
    w->failed = status != TERN_OK;
    return status;
}

uint64_t tern_shard_writer_n_tokens(const tern_shard_writer *w) { return w->n_tokens; }

static void make_header(const tern_shard_writer *w, uint32_t checksum, uint8_t *h) {
    memset(h, 0, TERN_SHARD_HEADER_BYTES);
    memcpy(h, TERN_SHARD_MAGIC, 8);
    put_le(h + 8, w->n_spans ? 2 : 1, 4); // as old as can be: others read the file, too
    put_le(h + 12, w->token_bytes, 4);
    put_le(h + 16, w->desc.n_vocab, 4);
    put_le(h + 20, (uint32_t)w->desc.end_id, 4);
    put_le(h + 24, w->n_tokens, 8);
    put_le(h + 32, w->n_documents, 8);
    put_le(h + 40, w->desc.tokenizer_hash, 8);
    put_le(h + 48, w->desc.block_bytes, 4);
    put_le(h + 52, checksum, 4);
    put_le(h + 56, w->n_spans, 4);
    put_le(h + 60, tern_crc32(0, h, 60), 4);
}

static tern_status finish(tern_shard_writer *w, tern_error *err) {
    uint8_t header[TERN_SHARD_HEADER_BYTES];
    while (w->n_block % 8) TERN_TRY(put(w, 0, 2, err));
    for (size_t i = 0; i < w->n_documents; i++) TERN_TRY(put(w, w->documents[i], 8, err));
    for (size_t i = 0; i < w->n_spans; i++) {
        TERN_TRY(put(w, w->spans[i].first, 8, err));
        TERN_TRY(put(w, w->spans[i].end, 8, err));
    }
    TERN_TRY(end_block(w, err));
    for (size_t i = 0; i < w->n_checksums; i++)
        put_le((uint8_t *)&w->checksums[i], w->checksums[i], 4);
    TERN_TRY(tern_out_write(&w->file, w->checksums, w->n_checksums * 4, err));
    make_header(w, tern_crc32(0, w->checksums, w->n_checksums * 4), header);
    TERN_TRY(tern_out_rewrite(&w->file, 0, header, sizeof header, err));
    TERN_TRY(tern_out_end(&w->file, err));
    return w->out == &w->own ? tern_out_commit(w->out, NULL, err) : TERN_OK;
}

tern_status tern_shard_writer_finish(tern_shard_writer *w, tern_error *err) {
    if (w->failed) return tern_fail(err, TERN_ERR_ARGUMENT, "writing the shard failed before");
    w->failed = true; // refuses all later calls
    return finish(w, err);
}

void tern_shard_writer_free(tern_shard_writer *w) {
    if (!w) return;
    tern_out_drop(&w->file);
    tern_out_close(&w->own);
    tern_free(w->block);
    tern_free(w->documents);
    tern_free(w->spans);
    tern_free(w->checksums);
    tern_free(w);
}
