// Shared by the reader and the writer of shards.
#ifndef TERN_FORMATS_SHARD_PRIVATE_H
#define TERN_FORMATS_SHARD_PRIVATE_H

#define TERN_SHARD_MAGIC     "TERNTOKS"
#define TERN_SHARD_VERSION   2 // 1: without spans
#define TERN_SHARD_BLOCK_MIN 4096

#endif
