// Shared by the reader and the writer of shards.
#ifndef TERN_FORMATS_SHARD_PRIVATE_H
#define TERN_FORMATS_SHARD_PRIVATE_H

#define TERN_SHARD_MAGIC     "TERNTOKS"
#define TERN_SHARD_VERSION   1
#define TERN_SHARD_BLOCK_MIN 4096

#endif
