// Reading, writing and searching tables of chains. The layout is in chains.h.
#include "formats/chains.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/half.h"
#include "base/hash.h"
#include "formats/tensor_writer.h"

enum { HEADER_BYTES = 12, ENTRY_BYTES = 8, FOOTER_BYTES = 4, ENTRIES_MAX = 65535 };

struct tern_chains {
    int version;
    uint16_t max_length;
    tern_chain *entries;
    size_t n_entries;
    int32_t *tokens; // of all entries
    uint32_t *order; // entries that have tokens, in their order: a common front is together
    size_t n_ordered;
};

// ---- Bytes -------------------------------------------------------------------------------------

static uint32_t read_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t read_u32(const uint8_t *p) { return read_u16(p) | read_u16(p + 2) << 16; }

static void put_u16(tern_strbuf *b, uint32_t v) {
    tern_strbuf_append(b, (uint8_t[]){(uint8_t)v, (uint8_t)(v >> 8)}, 2);
}
static void put_u32(tern_strbuf *b, uint32_t v) {
    put_u16(b, v & 0xFFFF);
    put_u16(b, v >> 16);
}

// ---- Making a table ----------------------------------------------------------------------------

// Room for so many entries and tokens; the lists are filled by the caller, then indexed.
static tern_status new_table(tern_chains **out, size_t n_entries, size_t n_tokens,
                             tern_error *err) {
    tern_chains *c = tern_alloc(TERN_MEM_SESSION, sizeof *c);
    *out = NULL;
    if (!c) return tern_fail_memory(err, sizeof *c);
    c->n_entries = n_entries;
    c->entries = tern_alloc_array(TERN_MEM_SESSION, n_entries, sizeof *c->entries);
    c->tokens = tern_alloc_array(TERN_MEM_SESSION, n_tokens, sizeof *c->tokens);
    c->order = tern_alloc_array(TERN_MEM_SESSION, n_entries, sizeof *c->order);
    if (!c->entries || !c->tokens || !c->order) {
        tern_chains_close(c);
        return tern_fail_memory(err, n_entries * sizeof *c->entries + n_tokens * 4);
    }
    *out = c;
    return TERN_OK;
}

void tern_chains_close(tern_chains *c) {
    if (!c) return;
    tern_free(c->entries);
    tern_free(c->tokens);
    tern_free(c->order);
    tern_free(c);
}

// Tokens of a and then of b in the order of a dictionary; a chain comes behind its own front.
static int compare_tokens(const tern_chain *a, const int32_t *b, size_t n_b) {
    size_t n_a = (size_t)a->n_tokens;
    for (size_t i = 0; i < n_a && i < n_b; i++)
        if (a->tokens[i] != b[i]) return a->tokens[i] < b[i] ? -1 : 1;
    return (n_a > n_b) - (n_a < n_b);
}

typedef struct sorted {
    const tern_chain *entry;
    uint32_t index;
} sorted;

static int by_tokens(const void *a, const void *b) {
    const sorted *x = a, *y = b;
    int order = compare_tokens(x->entry, y->entry->tokens, (size_t)y->entry->n_tokens);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static tern_status index_table(tern_chains *c, tern_error *err) {
    sorted *list = tern_alloc_array(TERN_MEM_MISC, c->n_entries, sizeof *list);
    if (!list) return tern_fail_memory(err, c->n_entries * sizeof *list);
    size_t n = 0;
    for (size_t i = 0; i < c->n_entries; i++)
        if (c->entries[i].n_tokens > 0) list[n++] = (sorted){&c->entries[i], (uint32_t)i};
    qsort(list, n, sizeof *list, by_tokens);
    for (size_t i = 0; i < n; i++) c->order[i] = list[i].index;
    c->n_ordered = n;
    tern_free(list);
    return TERN_OK;
}

static tern_status check_entry(const tern_chain *e, size_t index, uint32_t most, tern_error *err) {
    if (e->n_tokens < 0 || (uint32_t)e->n_tokens > most)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu has %d tokens: at most %u are allowed",
                         index, (int)e->n_tokens, (unsigned)most);
    for (int32_t i = 0; i < e->n_tokens; i++)
        if (e->tokens[i] < 0)
            return tern_fail(err, TERN_ERR_FORMAT, "chain %zu: %d is no token", index,
                             (int)e->tokens[i]);
    if (!isfinite(e->confidence) || e->confidence < 0)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu: confidence %g is not 0 or more", index,
                         (double)e->confidence);
    return TERN_OK;
}

tern_status tern_chains_create(tern_chains **out, const tern_chain *entries, size_t n_entries,
                               tern_error *err) {
    if (!out) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chains_create: out is NULL");
    *out = NULL;
    if (n_entries > ENTRIES_MAX)
        return tern_fail(err, TERN_ERR_ARGUMENT, "%zu chains: a table has at most %d", n_entries,
                         ENTRIES_MAX);
    size_t n_tokens = 0;
    int32_t longest = 0;
    for (size_t i = 0; i < n_entries; i++) {
        TERN_TRY(check_entry(&entries[i], i, TERN_CHAINS_V2_LENGTH, err));
        n_tokens += (size_t)entries[i].n_tokens;
        if (entries[i].n_tokens > longest) longest = entries[i].n_tokens;
    }
    bool fits_v1 = n_entries <= TERN_CHAINS_V1_ENTRIES && longest <= TERN_CHAINS_V1_LENGTH;
    tern_chains *c;
    TERN_TRY(new_table(&c, fits_v1 ? TERN_CHAINS_V1_ENTRIES : n_entries, n_tokens, err));
    c->version = fits_v1 ? 1 : 2;
    c->max_length = fits_v1 ? TERN_CHAINS_V1_LENGTH : (uint16_t)(longest < 2 ? 2 : longest);
    int32_t *to = c->tokens;
    for (size_t i = 0; i < n_entries; to += entries[i++].n_tokens) {
        c->entries[i] = (tern_chain){to, entries[i].n_tokens, entries[i].confidence};
        if (entries[i].n_tokens)
            memcpy(to, entries[i].tokens, (size_t)entries[i].n_tokens * sizeof *to);
    }
    tern_status status = index_table(c, err);
    if (status == TERN_OK) *out = c;
    else tern_chains_close(c);
    return status;
}

int tern_chains_version(const tern_chains *c) {
    return c->version;
}

const tern_chain *tern_chains_entries(const tern_chains *c, size_t *n_entries) {
    *n_entries = c->n_entries;
    return c->entries;
}

// ---- Reading -----------------------------------------------------------------------------------

typedef struct header {
    uint32_t version, n_entries, max_length;
} header;

static tern_status read_header(header *h, const uint8_t *bytes, uint64_t n, tern_error *err) {
    if (n < HEADER_BYTES + FOOTER_BYTES)
        return tern_fail(err, TERN_ERR_FORMAT, "%llu bytes are too few for a table of chains",
                         (unsigned long long)n);
    if (memcmp(bytes, "CHNB", 4) != 0)
        return tern_fail(err, TERN_ERR_FORMAT, "no table of chains: it does not begin with CHNB");
    *h = (header){read_u16(bytes + 4), read_u16(bytes + 6), read_u16(bytes + 8)};
    if (h->version != 1 && h->version != 2)
        return tern_fail(err, TERN_ERR_UNSUPPORTED,
                         "table of chains of version %u: 1 and 2 are known", (unsigned)h->version);
    if (h->version == 1 &&
        (h->n_entries != TERN_CHAINS_V1_ENTRIES || h->max_length != TERN_CHAINS_V1_LENGTH))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%u chains of at most %u tokens: version 1 has %d of at most %d",
                         (unsigned)h->n_entries, (unsigned)h->max_length, TERN_CHAINS_V1_ENTRIES,
                         TERN_CHAINS_V1_LENGTH);
    if (h->n_entries == 0 || h->max_length < 2 || h->max_length > TERN_CHAINS_V2_LENGTH)
        return tern_fail(err, TERN_ERR_FORMAT,
                         "%u chains of at most %u tokens: expected 1 or more, of 2 to %d",
                         (unsigned)h->n_entries, (unsigned)h->max_length, TERN_CHAINS_V2_LENGTH);
    return TERN_OK;
}

// The checksum comes first: a damaged file is called damaged, whatever the damage looks like.
static tern_status check_sum(const uint8_t *bytes, uint64_t n, tern_error *err) {
    uint32_t found = read_u32(bytes + n - FOOTER_BYTES);
    uint32_t computed = tern_crc32(0, bytes, (size_t)n - FOOTER_BYTES);
    if (found == computed) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "the checksum is %08x, but its bytes have %08x: damaged or cut off",
                     (unsigned)found, (unsigned)computed);
}

// Entry `index` at *p; the tokens go to `tokens`.
static tern_status read_entry(tern_chain *e, size_t index, const header *h, const uint8_t **p,
                              const uint8_t *end, int32_t *tokens, tern_error *err) {
    if (end - *p < ENTRY_BYTES)
        return tern_fail(err, TERN_ERR_FORMAT, "the file ends in chain %zu", index);
    uint32_t id = h->version == 1 ? (*p)[0] : read_u16(*p), n = read_u16(*p + 2);
    if (id != index)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu is numbered %u", index, (unsigned)id);
    if (n > h->max_length)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu has %u tokens: at most %u are allowed",
                         index, (unsigned)n, (unsigned)h->max_length);
    if ((size_t)(end - *p) < ENTRY_BYTES + 4 * (size_t)n)
        return tern_fail(err, TERN_ERR_FORMAT, "the file ends in chain %zu", index);
    *p += 4;
    for (uint32_t i = 0; i < n; i++, *p += 4) tokens[i] = (int32_t)read_u32(*p);
    *e = (tern_chain){tokens, (int32_t)n, tern_bits_to_f32(read_u32(*p))};
    *p += 4;
    return check_entry(e, index, h->max_length, err);
}

static tern_status parse(tern_chains **out, const uint8_t *bytes, uint64_t n, tern_error *err) {
    header h = {0};
    tern_chains *c;
    TERN_TRY(read_header(&h, bytes, n, err));
    TERN_TRY(check_sum(bytes, n, err));
    // What cannot be there is not allocated for.
    uint64_t room = n - HEADER_BYTES - FOOTER_BYTES;
    if (room < (uint64_t)h.n_entries * ENTRY_BYTES)
        return tern_fail(err, TERN_ERR_FORMAT, "%llu bytes are too few for %u chains",
                         (unsigned long long)n, (unsigned)h.n_entries);
    uint64_t n_tokens = (room - (uint64_t)h.n_entries * ENTRY_BYTES) / 4;
    if (n_tokens > (uint64_t)h.n_entries * h.max_length)
        return tern_fail(err, TERN_ERR_FORMAT, "%llu bytes are too many for %u chains",
                         (unsigned long long)n, (unsigned)h.n_entries);
    TERN_TRY(new_table(&c, h.n_entries, (size_t)n_tokens, err));
    tern_status status = TERN_OK;
    c->version = (int)h.version;
    c->max_length = (uint16_t)h.max_length;
    const uint8_t *p = bytes + HEADER_BYTES, *end = bytes + n - FOOTER_BYTES;
    int32_t *to = c->tokens;
    for (size_t i = 0; i < h.n_entries; to += c->entries[i++].n_tokens)
        TERN_TRY_GOTO(read_entry(&c->entries[i], i, &h, &p, end, to, err));
    if (p != end)
        TERN_TRY_GOTO(tern_fail(err, TERN_ERR_FORMAT, "%zu bytes follow the last chain",
                                (size_t)(end - p)));
    TERN_TRY_GOTO(index_table(c, err));
    *out = c;
    return TERN_OK;
fail:
    tern_chains_close(c);
    return status;
}

tern_status tern_chains_parse(tern_chains **out, const char *name, const uint8_t *bytes, uint64_t n,
                              tern_error *err) {
    *out = NULL;
    tern_status status = parse(out, bytes, n, err);
    return status == TERN_OK ? status : tern_fail_prefix(err, status, name);
}

tern_status tern_chains_open(tern_chains **out, const char *path, tern_error *err) {
    tern_mapping m;
    if (!out || !path)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chains_open: NULL argument");
    *out = NULL;
    TERN_TRY(tern_mapping_open(&m, path, false, err));
    tern_status status = tern_chains_parse(out, path, m.bytes, m.n, err);
    tern_mapping_close(&m);
    return status;
}

// ---- Writing -----------------------------------------------------------------------------------

static void put_table(tern_strbuf *b, const tern_chains *c) {
    tern_strbuf_append(b, "CHNB", 4);
    put_u16(b, (uint32_t)c->version);
    put_u16(b, (uint32_t)c->n_entries);
    put_u16(b, c->max_length);
    put_u16(b, 0);
    for (size_t i = 0; i < c->n_entries; i++) {
        const tern_chain *e = &c->entries[i];
        put_u16(b, (uint32_t)i); // version 1: a byte and a reserved zero
        put_u16(b, (uint32_t)e->n_tokens);
        for (int32_t k = 0; k < e->n_tokens; k++) put_u32(b, (uint32_t)e->tokens[k]);
        put_u32(b, tern_f32_to_bits(e->confidence));
    }
    put_u32(b, tern_crc32(0, tern_strbuf_text(b), b->len));
}

tern_status tern_chains_save(const tern_chains *c, const char *path, tern_error *err) {
    tern_strbuf b = {0};
    tern_out_set set = {.fd = -1};
    tern_status status = TERN_OK;
    put_table(&b, c);
    if (b.failed) TERN_TRY_GOTO(tern_fail_memory(err, b.len));
    TERN_TRY_GOTO(tern_out_begin(&set, path, err));
    TERN_TRY_GOTO(tern_out_write(&set, b.ptr, b.len, err));
    TERN_TRY_GOTO(tern_out_end(&set, err));
    TERN_TRY_GOTO(tern_out_commit(&set, 0, err));
fail:
    tern_out_free(&set);
    tern_strbuf_free(&b);
    return status;
}

// ---- Searching ---------------------------------------------------------------------------------

static bool is_better(const tern_chain *a, const tern_chain *b) {
    if (a->confidence != b->confidence) return a->confidence > b->confidence;
    return a->n_tokens > b->n_tokens;
}

// The best chain that begins with these tokens and goes on.
static const tern_chain *best_with_front(const tern_chains *c, const int32_t *front, size_t n) {
    size_t low = 0, high = c->n_ordered; // the first chain that is not before the front
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_tokens(&c->entries[c->order[middle]], front, n) < 0) low = middle + 1;
        else high = middle;
    }
    const tern_chain *best = NULL;
    for (; low < c->n_ordered; low++) {
        const tern_chain *e = &c->entries[c->order[low]];
        if ((size_t)e->n_tokens < n || memcmp(e->tokens, front, n * sizeof *front) != 0) break;
        if ((size_t)e->n_tokens > n && (!best || is_better(e, best))) best = e;
    }
    return best;
}

const tern_chain *tern_chains_find(const tern_chains *c, const int32_t *recent, size_t n_recent,
                                   size_t *n_matched) {
    size_t n = n_recent < TERN_CHAINS_MATCH_MAX ? n_recent : TERN_CHAINS_MATCH_MAX;
    for (; n > 0; n--) {
        const tern_chain *best = best_with_front(c, recent + n_recent - n, n);
        *n_matched = n;
        if (best) return best;
    }
    return NULL;
}
