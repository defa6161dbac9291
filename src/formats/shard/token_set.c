// Several shards as one text, and its sequences in a computed random order.
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "formats/shard/shard.h"
#include "formats/shard/shard_private.h"

struct tern_token_set {
    tern_token_set_desc desc;
    tern_shard **shards;
    uint64_t *firsts; // [n_shards + 1] index of each shard's first token in the whole text
    size_t n_shards;
    uint64_t n_sequences;
    uint64_t *first_documents; // [n_shards + 1] index of each shard's first document
    uint32_t capacity;         // tokens of documents that a window has room for
    bool leads;
    tern_token_pack pack; // for BFD
    tern_token_set_layout layout;
};

// ---- The order ----------------------------------------------------------------------------------

// A Feistel network is a bijection whatever its round function is, since each round can be undone:
// (left, right) -> (right, left ^ f(right)). It permutes numbers of an even number of bits, at most
// four times as many as needed; a result outside is permuted again until it is inside; this ends,
// since it follows a cycle that began inside. Six rounds: four are enough for large n, but reach
// too few orders of a dozen sequences.
#define FEISTEL_ROUNDS 6

uint64_t tern_permute(uint64_t index, uint64_t n, uint64_t key) {
    int half = 1; // bits
    while (half < 32 && (uint64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, keys[FEISTEL_ROUNDS];
    for (int i = 0; i < FEISTEL_ROUNDS; i++) keys[i] = key = tern_mix64(key + 0x9E3779B97F4A7C15u);
    do {
        uint64_t left = index >> half, right = index & mask;
        for (int i = 0; i < FEISTEL_ROUNDS; i++) {
            uint64_t next = left ^ (tern_mix64(right ^ keys[i]) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= n);
    return index;
}

uint64_t tern_token_set_window(const tern_token_set *set, uint64_t epoch, uint64_t index) {
    if (set->desc.in_order || epoch == TERN_EPOCH_IN_ORDER) return index;
    return tern_permute(index, set->n_sequences, tern_mix64(set->desc.seed) + epoch);
}

// ---- Opening ------------------------------------------------------------------------------------

static tern_status add_shard(tern_token_set *set, const char *path, tern_error *err) {
    tern_shard *shard;
    TERN_TRY(tern_shard_open(&shard, path, err));
    size_t i = set->n_shards++;
    const tern_shard_info *info = tern_shard_get_info(shard), *other;
    set->shards[i] = shard;
    other = tern_shard_get_info(set->shards[0]);
    if (info->n_vocab != other->n_vocab || info->end_id != other->end_id ||
        info->tokenizer_hash != other->tokenizer_hash)
        return tern_fail(err, TERN_ERR_FORMAT, "%s: made with another tokenizer than %s", path,
                         other->path);
    set->first_documents[i + 1] = set->first_documents[i] + info->n_documents;
    if (__builtin_add_overflow(set->firsts[i], info->n_tokens, &set->firsts[i + 1]))
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: too many tokens in all", path);
    return set->desc.check_all ? tern_shard_check(shard, 0, info->n_blocks, err) : TERN_OK;
}

static tern_status open_all(tern_token_set *set, const char *const *paths, size_t n_paths,
                            tern_error *err) {
    if (n_paths == 0) return tern_fail(err, TERN_ERR_ARGUMENT, "no shards are given");
    if (set->desc.seq_len == 0 || set->desc.seq_len > INT32_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "sequences of %u tokens are not possible",
                         set->desc.seq_len);
    set->shards = tern_alloc_array(TERN_MEM_FILE, n_paths, sizeof *set->shards);
    set->firsts = tern_alloc_array(TERN_MEM_FILE, n_paths + 1, sizeof *set->firsts);
    set->first_documents =
        tern_alloc_array(TERN_MEM_FILE, n_paths + 1, sizeof *set->first_documents);
    if (!set->shards || !set->firsts || !set->first_documents)
        return tern_fail_memory(err, n_paths * 16);
    for (size_t i = 0; i < n_paths; i++) TERN_TRY(add_shard(set, paths[i], err));
    if (set->desc.packing != TERN_PACKING_WRAPPED) return TERN_OK;
    uint64_t n = tern_token_set_n_tokens(set);
    set->n_sequences = n ? (n - 1) / set->desc.seq_len : 0;
    if (set->n_sequences == 0)
        return tern_fail(
            err, TERN_ERR_ARGUMENT,
            "%s: %llu tokens in all are less than one sequence of %u and the token after it",
            paths[0], (unsigned long long)n, set->desc.seq_len);
    return TERN_OK;
}

tern_status tern_token_set_open(tern_token_set **out, const char *const *paths, size_t n_paths,
                                const tern_token_set_desc *desc, tern_error *err) {
    tern_token_set *set = tern_alloc(TERN_MEM_FILE, sizeof *set);
    *out = NULL;
    if (!set) return tern_fail_memory(err, sizeof *set);
    set->desc = *desc;
    tern_status status = open_all(set, paths, n_paths, err);
    if (status != TERN_OK)
        tern_token_set_close(set);
    else
        *out = set;
    return status;
}

void tern_token_set_close(tern_token_set *set) {
    if (!set) return;
    for (size_t i = 0; i < set->n_shards; i++) tern_shard_close(set->shards[i]);
    tern_free(set->shards);
    tern_free(set->firsts);
    tern_free(set->first_documents);
    tern_token_pack_free(&set->pack);
    tern_free(set);
}

uint64_t tern_token_set_n_sequences(const tern_token_set *set) { return set->n_sequences; }
uint64_t tern_token_set_n_tokens(const tern_token_set *set) { return set->firsts[set->n_shards]; }
size_t tern_token_set_n_shards(const tern_token_set *set) { return set->n_shards; }
bool tern_token_set_has_spans(const tern_token_set *set) {
    for (size_t i = 0; i < set->n_shards; i++)
        if (tern_shard_get_info(set->shards[i])->n_spans) return true;
    return false;
}
tern_shard *tern_token_set_shard(const tern_token_set *set, size_t i) { return set->shards[i]; }

// ---- Documents in windows -----------------------------------------------------------------------

// The part that holds index x: firsts[low] <= x < firsts[low + 1].
static size_t part_of(const uint64_t *firsts, size_t n, uint64_t x) {
    size_t low = 0, high = n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (firsts[middle] <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void list_lengths(tern_token_set *set, uint32_t *lengths) {
    for (size_t i = 0, at = 0; i < set->n_shards; i++) {
        const tern_shard *s = set->shards[i];
        for (uint64_t d = 0; d < tern_shard_get_info(s)->n_documents; d++, at++) {
            uint64_t n = tern_shard_document(s, d + 1) - tern_shard_document(s, d);
            uint64_t kept = n < set->capacity ? n : set->capacity;
            set->layout.n_truncated += n - kept;
            if (lengths) lengths[at] = (uint32_t)kept;
        }
    }
}

static tern_status pack_tightly(tern_token_set *set, uint64_t n, tern_error *err) {
    if (n > UINT32_MAX - 2)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "%s: %llu documents are too many to pack; take them wrapped",
                         tern_shard_get_info(set->shards[0])->path, (unsigned long long)n);
    uint32_t *lengths = tern_alloc_array(TERN_MEM_FILE, (size_t)n + 1, sizeof *lengths);
    if (!lengths) return tern_fail_memory(err, n * sizeof *lengths);
    list_lengths(set, lengths);
    tern_status status = tern_token_pack_make(&set->pack, lengths, (uint32_t)n, set->capacity, err);
    tern_free(lengths);
    set->n_sequences = set->pack.n_windows;
    return status;
}

tern_status tern_token_set_pack(tern_token_set *set, bool leads, tern_error *err) {
    uint64_t n = set->first_documents[set->n_shards];
    if (set->desc.packing == TERN_PACKING_WRAPPED) return TERN_OK;
    set->leads = leads;
    set->capacity = set->desc.seq_len + !leads;
    set->n_sequences = n;
    if (set->desc.packing == TERN_PACKING_NONE)
        list_lengths(set, NULL);
    else
        TERN_TRY(pack_tightly(set, n, err));
    set->layout.n_padding =
        set->n_sequences * set->capacity - (tern_token_set_n_tokens(set) - set->layout.n_truncated);
    if (set->n_sequences) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT, "%s: there are no documents in it",
                     tern_shard_get_info(set->shards[0])->path);
}

tern_token_set_layout tern_token_set_get_layout(const tern_token_set *set) { return set->layout; }

// ---- Sequences ----------------------------------------------------------------------------------

static void mark(const tern_shard *s, uint64_t first, uint64_t n, uint8_t *marks) {
    uint64_t document = tern_shard_document_at(s, first), at, end = first + n;
    for (; (at = tern_shard_document(s, document)) < end; document++)
        if (at >= first) marks[at - first] |= TERN_TOKEN_BEGINS;
    for (uint64_t i = tern_shard_span_at(s, first); i < tern_shard_get_info(s)->n_spans; i++) {
        tern_token_span span = tern_shard_span(s, i);
        if (span.first >= end) break;
        for (at = span.first < first ? first : span.first; at < span.end && at < end; at++)
            marks[at - first] |= TERN_TOKEN_UNSCORED;
    }
}

// As much of a document as there is room for.
static tern_status read_document(tern_token_set *set, uint64_t document, uint64_t room,
                                 int32_t *ids, uint8_t *marks, uint64_t *n, tern_error *err) {
    size_t i = part_of(set->first_documents, set->n_shards, document);
    uint64_t d = document - set->first_documents[i];
    uint64_t first = tern_shard_document(set->shards[i], d);
    *n = tern_shard_document(set->shards[i], d + 1) - first;
    if (*n > room) *n = room;
    if (marks) mark(set->shards[i], first, *n, marks);
    return tern_shard_read(set->shards[i], first, *n, ids, err);
}

static tern_status read_documents(tern_token_set *set, uint64_t window, int32_t *ids,
                                  uint8_t *marks, tern_error *err) {
    uint64_t n_all = (uint64_t)set->desc.seq_len + 1, at = set->leads, n;
    int32_t end = tern_shard_get_info(set->shards[0])->end_id;
    bool packed = set->desc.packing == TERN_PACKING_BFD;
    uint64_t first = packed ? set->pack.firsts[window] : window;
    uint64_t last = packed ? set->pack.firsts[window + 1] : window + 1;
    if (marks) memset(marks, 0, n_all);
    ids[0] = end < 0 ? 0 : end;
    for (uint64_t k = first; k < last; k++, at += n)
        TERN_TRY(read_document(set, packed ? set->pack.documents[k] : k, n_all - at, ids + at,
                               marks ? marks + at : NULL, &n, err));
    for (; at < n_all; at++) {
        ids[at] = end < 0 ? 0 : end;
        if (marks) marks[at] = TERN_TOKEN_PADDING;
    }
    return TERN_OK;
}

tern_status tern_token_set_sequence(tern_token_set *set, uint64_t epoch, uint64_t index,
                                    int32_t *ids, uint8_t *marks, tern_error *err) {
    if (index >= set->n_sequences)
        return tern_fail(err, TERN_ERR_ARGUMENT, "sequence %llu of %llu is not there",
                         (unsigned long long)index, (unsigned long long)set->n_sequences);
    uint64_t window = tern_token_set_window(set, epoch, index);
    if (set->desc.packing != TERN_PACKING_WRAPPED)
        return read_documents(set, window, ids, marks, err);
    uint64_t token = window * set->desc.seq_len;
    uint64_t n_left = (uint64_t)set->desc.seq_len + 1;
    if (marks) memset(marks, 0, n_left);
    for (size_t i = part_of(set->firsts, set->n_shards, token); n_left > 0; i++) {
        uint64_t first = token - set->firsts[i], n = set->firsts[i + 1] - token;
        if (n > n_left) n = n_left;
        if (n == 0) continue; // an empty shard
        TERN_TRY(tern_shard_read(set->shards[i], first, n, ids, err));
        if (marks) {
            mark(set->shards[i], first, n, marks);
            marks += n;
        }
        ids += n;
        token += n;
        n_left -= n;
    }
    return TERN_OK;
}
