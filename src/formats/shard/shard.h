// Shards: files of token ids for training, and sets of them read as one long text.
//
// A shard holds whole documents, one after the other, each with its end-of-document token if the
// tokenizer has one. All numbers are little-endian:
//
//     bytes   type  content
//       0     8 B   magic "TERNTOKS"
//       8     u32   version: 1, with spans that are not scored 2
//      12     u32   bytes of a token, 2 or 4
//      16     u32   vocabulary size; every token is smaller
//      20     i32   end-of-document token, -1: none
//      24     u64   tokens
//      32     u64   documents
//      40     u64   hash of the tokenizer (tern_tokenizer_hash), 0: not known
//      48     u32   bytes of a block, a power of two of at least 4096
//      52     u32   CRC-32 of the checksums
//      56     u32   spans that are not scored
//      60     u32   CRC-32 of bytes 0 to 59
//      64           tokens, then zeros up to a multiple of 8: these and what follows is the *body*
//             u64   for each document the index of its first token, rising, the first is 0
//           2 u64   for each span its first token and the one after its last; they rise and do not
//                   overlap
//             u32   for each block of the body its CRC-32; here the file ends
//
// Each block can be checked alone, so a file of any size opens immediately and a block is checked
// when it is first accessed, including the range of its tokens. Errors name the file and the block.
// The header contains only sizes; every offset follows from them, so none can be wrong.
#ifndef TERN_FORMATS_SHARD_H
#define TERN_FORMATS_SHARD_H

#include "base/file/out_set.h"
#include "tern_train.h"

#define TERN_SHARD_HEADER_BYTES 64
#define TERN_SHARD_BLOCK_BYTES  ((uint32_t)1 << 18)

typedef struct tern_shard_info {
    const char *path; // valid while the shard is open
    uint64_t n_tokens, n_documents, tokenizer_hash;
    uint32_t n_vocab, token_bytes, block_bytes;
    int32_t end_id;    // -1: none
    uint32_t n_spans;  // that are not scored: text that a model reads and does not learn
    uint64_t n_blocks; // of the body
    uint32_t checksum; // of the checksums: identifies the whole body
} tern_shard_info;

// ---- Reading: any number of threads ------------------------------------------------------------

typedef struct tern_shard tern_shard;
// Maps the file; checks the header, the checksums' checksum, the documents and the spans.
tern_status tern_shard_open(tern_shard **out, const char *path, tern_error *err);
void tern_shard_close(tern_shard *s);
const tern_shard_info *tern_shard_get_info(const tern_shard *s);
// Copies tokens [first, first + n), which must exist.
tern_status tern_shard_read(tern_shard *s, uint64_t first, uint64_t n, int32_t *ids,
                            tern_error *err);
// Index of the first token of document i, i <= n_documents; the last is n_tokens.
uint64_t tern_shard_document(const tern_shard *s, uint64_t i);
// The document that holds a token, token < n_tokens.
uint64_t tern_shard_document_at(const tern_shard *s, uint64_t token);
typedef struct tern_token_span {
    uint64_t first, end;
} tern_token_span;
// A span that is not scored, i < n_spans.
tern_token_span tern_shard_span(const tern_shard *s, uint64_t i);
// The first span that ends after a token; n_spans: none.
uint64_t tern_shard_span_at(const tern_shard *s, uint64_t token);
// Checks blocks [first, first + n) of the body now; each is checked only once.
tern_status tern_shard_check(tern_shard *s, uint64_t first, uint64_t n, tern_error *err);

// The same from memory, for fuzzing; bytes must outlive the shard.
tern_status tern_shard_open_bytes(tern_shard **out, const char *name, const uint8_t *bytes,
                                  uint64_t n, tern_error *err);

// ---- Writing: streams, and the file appears when it is complete --------------------------------

typedef struct tern_shard_writer tern_shard_writer;
typedef struct tern_shard_desc {
    uint32_t n_vocab; // tokens take 2 bytes up to 65536, else 4
    int32_t end_id;   // -1: none
    uint64_t tokenizer_hash;
    uint32_t block_bytes; // 0: TERN_SHARD_BLOCK_BYTES
} tern_shard_desc;
tern_status tern_shard_writer_open(tern_shard_writer **out, const char *path,
                                   const tern_shard_desc *desc, tern_error *err);
// Opens a writer for a file of a set, which the caller commits.
tern_status tern_shard_writer_open_in(tern_shard_writer **out, tern_out_set *set, const char *name,
                                      const tern_shard_desc *desc, tern_error *err);
// One document of n > 0 tokens, its end token included.
tern_status tern_shard_write(tern_shard_writer *w, const int32_t *ids, uint64_t n, tern_error *err);
// Tokens [first, end) of the document that was written last are not scored; in rising order.
tern_status tern_shard_leave_out(tern_shard_writer *w, uint64_t first, uint64_t end,
                                 tern_error *err);
uint64_t tern_shard_writer_n_tokens(const tern_shard_writer *w);
tern_status tern_shard_writer_finish(tern_shard_writer *w, tern_error *err);
void tern_shard_writer_free(tern_shard_writer *w); // without finish: leaves nothing

// ---- Sets: sequences to train on ---------------------------------------------------------------
//
// All tokens of all shards, in the order given, cut into *windows* of seq_len. Sequence i is window
// p(i) and the one token after it, since the last input needs a target, too; an incomplete window
// at the end is left out. Or windows hold whole documents, one or as many as fit, and the rest of a
// window is padding. p is a different permutation in each epoch, computed and not stored: it
// needs no memory, only (epoch, index) has to be saved, and rank r of n takes the indices r, r + n,
// r + 2n ...

typedef struct tern_token_set tern_token_set;
typedef struct tern_token_set_desc {
    uint32_t seq_len;     // tokens of an input
    uint64_t seed;        // of the order
    bool in_order;        // no shuffling: sequence i is window i (for validation)
    bool check_all;       // check every block when opening
    tern_packing packing; // of documents into windows; others than WRAPPED call tern_token_set_pack
} tern_token_set_desc;

// The shards must agree in vocabulary, end token and tokenizer.
tern_status tern_token_set_open(tern_token_set **out, const char *const *paths, size_t n_paths,
                                const tern_token_set_desc *desc, tern_error *err);
// Paths of the shards of a folder made by tern data build, split-00000.tern and on; split: "train"
// or "valid". They are appended; finding none is not an error. A folder whose shards do not match
// its manifest.json, or that has no manifest, is refused: it may mix two builds.
tern_status tern_shard_folder(tern_names *paths, const char *folder, const char *split,
                              tern_error *err);
// The same as a set. *out = NULL: the folder has none.
tern_status tern_token_set_open_folder(tern_token_set **out, const char *folder, const char *split,
                                       const tern_token_set_desc *desc, tern_error *err);
void tern_token_set_close(tern_token_set *set);
// Lays the documents out in windows, once, before any sequence is read. leads: the end token stands
// before a document, as its first input; otherwise its first token does. Nothing to do for WRAPPED.
tern_status tern_token_set_pack(tern_token_set *set, bool leads, tern_error *err);
typedef struct tern_token_set_layout {
    uint64_t n_padding;   // of an epoch: tokens of windows that no document fills
    uint64_t n_truncated; // tokens of documents that are longer than a window, which are not read
} tern_token_set_layout;
tern_token_set_layout tern_token_set_get_layout(const tern_token_set *set);
uint64_t tern_token_set_n_sequences(const tern_token_set *set); // of an epoch
uint64_t tern_token_set_n_tokens(const tern_token_set *set);
size_t tern_token_set_n_shards(const tern_token_set *set);
bool tern_token_set_has_spans(const tern_token_set *set); // that are not scored
tern_shard *tern_token_set_shard(const tern_token_set *set, size_t i);
// The window of sequence `index`, index < n_sequences, in an epoch; a bijection for each epoch.
#define TERN_EPOCH_IN_ORDER UINT64_MAX // an epoch whose sequence i is window i
uint64_t tern_token_set_window(const tern_token_set *set, uint64_t epoch, uint64_t index);
enum tern_token_mark {
    TERN_TOKEN_BEGINS = 1,   // the first of a document
    TERN_TOKEN_UNSCORED = 2, // as a target
    TERN_TOKEN_PADDING = 4,
};
// ids: [seq_len + 1], input ids[0..seq_len), targets ids[1..seq_len]. marks: for each of these a
// sum of tern_token_mark, or NULL. Any number of threads.
tern_status tern_token_set_sequence(tern_token_set *set, uint64_t epoch, uint64_t index,
                                    int32_t *ids, uint8_t *marks, tern_error *err);

// A bijection of [0, n) that depends on the key: a Feistel network over the next even number of
// bits, walked until it lands inside (Black and Rogaway 2002).
uint64_t tern_permute(uint64_t index, uint64_t n, uint64_t key);

#endif
