// Fuzzing of the reader of token shards: whatever it accepts must be readable in full, with every
// token in the vocabulary. Random changes never pass a checksum, so each input is also tried with
// its checksums corrected.
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "formats/shard/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void read_everything(tern_shard *s) {
    const tern_shard_info *info = tern_shard_get_info(s);
    tern_error err;
    if (tern_shard_check(s, 0, info->n_blocks, &err) != TERN_OK) return;
    for (uint64_t d = 0; d < info->n_documents; d++) {
        uint64_t from = tern_shard_document(s, d), to = tern_shard_document(s, d + 1);
        require(from < to && to <= info->n_tokens && tern_shard_document_at(s, to - 1) == d);
        for (uint64_t i = from; i < to; i++) {
            int32_t id;
            require(tern_shard_read(s, i, 1, &id, &err) == TERN_OK);
            require(id >= 0 && (uint32_t)id < info->n_vocab);
        }
    }
    for (uint64_t i = 0, end = 0; i < info->n_spans; i++) {
        tern_token_span span = tern_shard_span(s, i);
        require(end <= span.first && span.first < span.end && span.end <= info->n_tokens);
        require(tern_shard_span_at(s, span.end - 1) == i);
        end = span.end;
    }
}

static void open_once(const uint8_t *bytes, size_t n) {
    tern_shard *s;
    tern_error err;
    if (tern_shard_open_bytes(&s, "fuzz", bytes, n, &err) != TERN_OK) return;
    read_everything(s);
    tern_shard_close(s);
}

static uint64_t get(const uint8_t *bytes, int n_bytes) {
    uint64_t v = 0;
    memcpy(&v, bytes, (size_t)n_bytes);
    return v;
}

// All checksums if the header's counts are believable; else only the header's.
static void repair(uint8_t *b, size_t n) {
    uint64_t token_bytes = get(b + 12, 4), n_tokens = get(b + 24, 8), n_documents = get(b + 32, 8);
    uint64_t block = get(b + 48, 4), n_spans = get(b + 56, 4);
    if (n_tokens < n && n_documents < n && n_spans < n && token_bytes <= 4 && block >= 4096) {
        uint64_t body = (n_tokens * token_bytes + 7) / 8 * 8 + n_documents * 8 + n_spans * 16;
        uint64_t n_blocks = (body + block - 1) / block;
        if (64 + body + n_blocks * 4 == n) {
            for (uint64_t i = 0; i < n_blocks; i++) {
                uint64_t left = body - i * block;
                uint32_t crc = tern_crc32(0, b + 64 + i * block, left < block ? left : block);
                memcpy(b + 64 + body + i * 4, &crc, 4);
            }
            uint32_t crc = tern_crc32(0, b + 64 + body, n_blocks * 4);
            memcpy(b + 52, &crc, 4);
        }
    }
    uint32_t crc = tern_crc32(0, b, 60);
    memcpy(b + 60, &crc, 4);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    open_once(bytes, n);
    if (n < TERN_SHARD_HEADER_BYTES) return 0;
    uint8_t *copy = malloc(n);
    require(copy != NULL);
    memcpy(copy, bytes, n);
    repair(copy, n);
    open_once(copy, n);
    free(copy);
    return 0;
}
