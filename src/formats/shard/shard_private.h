// Shared by the files of shards.
#ifndef TERN_FORMATS_SHARD_PRIVATE_H
#define TERN_FORMATS_SHARD_PRIVATE_H

#include "base/status.h"

#define TERN_SHARD_MAGIC     "TERNTOKS"
#define TERN_SHARD_VERSION   2 // 1: without spans
#define TERN_SHARD_BLOCK_MIN 4096

// ---- Documents in windows (token_pack.c) --------------------------------------------------------

typedef struct tern_token_pack {
    uint32_t *documents; // those of window w are documents[firsts[w] .. firsts[w + 1])
    uint32_t *firsts;
    uint32_t n_windows;
} tern_token_pack;
// Packs n documents of these lengths, from 1 to capacity, into few windows of this capacity, which
// is below 2^30.
tern_status tern_token_pack_make(tern_token_pack *out, const uint32_t *lengths, uint32_t n,
                                 uint32_t capacity, tern_error *err);
void tern_token_pack_free(tern_token_pack *pack);

#endif
