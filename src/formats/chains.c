// Reading, writing and searching tables of chains. The layout is in chains.h.
#include "formats/chains.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include "base/alloc.h"
#include "base/dtype/half.h"
#include "base/hash.h"
#include "formats/tensor_writer.h"

enum { HEADER_BYTES = 12, ENTRY_BYTES = 8, FOOTER_BYTES = 4 };
enum { ENTRIES_MAX = 65535, PROBES_MAX = 256 };

struct tern_chains {
    atomic_size_t n_users;
    int version;
    uint16_t max_length;
    tern_chain *entries;
    size_t n_entries;
    int32_t *tokens;  // of all entries
    uint8_t *chances; // version 2: their chances, likewise
    // A hash table from prefixes of 1 to match_max tokens to the best chain that continues them: 0,
    // or 1 + entry * 8 + tokens of the prefix.
    uint32_t *slots;
    size_t n_slots; // a power of two
    size_t match_max;
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

int tern_chains_version_for(size_t n_entries, int32_t longest) {
    return n_entries <= TERN_CHAINS_V1_ENTRIES && longest <= TERN_CHAINS_V1_LENGTH ? 1 : 2;
}

int tern_chains_match_max(int version) { return version == 1 ? 3 : TERN_CHAINS_MATCH_MAX; }

// Room for n entries and tokens; the caller fills the lists, then indexes them.
static tern_status new_table(tern_chains **out, int version, size_t n_entries, size_t n_tokens,
                             tern_error *err) {
    tern_chains *c = tern_alloc(TERN_MEM_SESSION, sizeof *c);
    *out = NULL;
    if (!c) return tern_fail_memory(err, sizeof *c);
    atomic_init(&c->n_users, 1);
    c->version = version;
    c->n_entries = n_entries;
    c->match_max = (size_t)tern_chains_match_max(version);
    for (c->n_slots = 64; c->n_slots < 2 * c->match_max * n_entries;) c->n_slots *= 2;
    c->entries = tern_alloc_array(TERN_MEM_SESSION, n_entries, sizeof *c->entries);
    c->tokens = tern_alloc_array(TERN_MEM_SESSION, n_tokens, sizeof *c->tokens);
    c->slots = tern_alloc_array(TERN_MEM_SESSION, c->n_slots, sizeof *c->slots);
    if (version > 1) c->chances = tern_alloc_array(TERN_MEM_SESSION, n_tokens, 1);
    if (!c->entries || !c->tokens || !c->slots || (version > 1 && !c->chances)) {
        tern_chains_close(c);
        return tern_fail_memory(err, n_entries * sizeof *c->entries + n_tokens * 5);
    }
    *out = c;
    return TERN_OK;
}

void tern_chains_hold(const tern_chains *chains) {
    tern_chains *c = (tern_chains *)(uintptr_t)chains; // the count is not part of the table's value
    atomic_fetch_add_explicit(&c->n_users, 1, memory_order_relaxed);
}

void tern_chains_close(tern_chains *c) {
    if (!c || atomic_fetch_sub_explicit(&c->n_users, 1, memory_order_acq_rel) > 1) return;
    tern_free(c->entries);
    tern_free(c->tokens);
    tern_free(c->chances);
    tern_free(c->slots);
    tern_free(c);
}

static uint32_t next_chance(const tern_chain *c, size_t n_prefix) {
    return c->chances ? c->chances[n_prefix] : 0;
}

// Whether a is a better continuation than b of the n tokens with which both begin.
static bool is_better(const tern_chain *a, const tern_chain *b, size_t n) {
    uint32_t chance_a = next_chance(a, n), chance_b = next_chance(b, n);
    if (chance_a != chance_b) return chance_a > chance_b;
    if (a->confidence != b->confidence) return a->confidence > b->confidence;
    return a->n_tokens > b->n_tokens;
}

// The slot of a prefix, or the empty one where it would go. NULL: too many collisions, which
// happens only in malicious files; such prefixes are not found.
static uint32_t *slot_of(const tern_chains *c, const int32_t *prefix, size_t n) {
    size_t at = (size_t)tern_hash64(n, prefix, n * sizeof *prefix);
    for (size_t k = 0; k < PROBES_MAX; k++) {
        uint32_t *slot = &c->slots[(at + k) & (c->n_slots - 1)], v = *slot - 1;
        if (!*slot) return slot;
        if (v % 8 == n && memcmp(c->entries[v / 8].tokens, prefix, n * sizeof *prefix) == 0)
            return slot;
    }
    return NULL;
}

static void index_table(tern_chains *c) {
    for (size_t i = 0; i < c->n_entries; i++) {
        const tern_chain *e = &c->entries[i];
        for (size_t n = 1; n <= c->match_max && (int32_t)n < e->n_tokens; n++) {
            uint32_t *slot = slot_of(c, e->tokens, n);
            if (!slot || (*slot && !is_better(e, &c->entries[(*slot - 1) / 8], n))) continue;
            *slot = 1 + (uint32_t)i * 8 + (uint32_t)n;
        }
    }
}

static tern_status check_entry(const tern_chain *e, size_t index, uint32_t most, tern_error *err) {
    if (e->n_tokens < 0 || (uint32_t)e->n_tokens > most)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu has %d tokens: at most %u are allowed",
                         index, (int)e->n_tokens, (unsigned)most);
    TERN_NEED_ARRAY(e->tokens, e->n_tokens);
    for (int32_t i = 0; i < e->n_tokens; i++)
        if (e->tokens[i] < 0)
            return tern_fail(err, TERN_ERR_FORMAT, "chain %zu: %d is not a token", index,
                             (int)e->tokens[i]);
    if (!isfinite(e->confidence) || e->confidence < 0)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu: confidence %g is not 0 or more", index,
                         (double)e->confidence);
    return TERN_OK;
}

// An entry's tokens and chances are at `at` in the common arrays.
static void copy_entry(tern_chains *c, size_t index, size_t at, const tern_chain *from) {
    tern_chain *e = &c->entries[index];
    size_t n = (size_t)from->n_tokens;
    uint8_t *chances = c->chances ? c->chances + at : NULL;
    *e = (tern_chain){c->tokens + at, from->n_tokens, from->confidence, chances};
    if (n == 0) return;
    memcpy(c->tokens + at, from->tokens, n * sizeof *c->tokens);
    if (chances && from->chances) memcpy(chances, from->chances, n);
    float all = 255 * (from->confidence < 1 ? from->confidence : 1) + 0.5f;
    for (size_t k = 1; k < n && chances && !from->chances; k++) chances[k] = (uint8_t)all;
}

tern_status tern_chains_create(tern_chains **out, const tern_chain *entries, size_t n_entries,
                               tern_error *err) {
    tern_clear(err);
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED_ARRAY(entries, n_entries);
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
    bool fits_v1 = tern_chains_version_for(n_entries, longest) == 1;
    tern_chains *c;
    TERN_TRY(new_table(&c, fits_v1 ? 1 : 2, fits_v1 ? TERN_CHAINS_V1_ENTRIES : n_entries, n_tokens,
                       err));
    c->max_length = fits_v1 ? TERN_CHAINS_V1_LENGTH : (uint16_t)(longest < 2 ? 2 : longest);
    for (size_t i = 0, at = 0; i < n_entries; at += (size_t)entries[i++].n_tokens)
        copy_entry(c, i, at, &entries[i]);
    index_table(c);
    *out = c;
    return TERN_OK;
}

int tern_chains_version(const tern_chains *c) { return c ? c->version : 0; }

const tern_chain *tern_chains_entries(const tern_chains *c, size_t *n_entries) {
    if (n_entries) *n_entries = c ? c->n_entries : 0;
    return c ? c->entries : NULL;
}

// ---- Reading -----------------------------------------------------------------------------------

// Bytes of a token in an entry.
static size_t token_bytes(int version) { return version == 1 ? 4 : 5; }

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

// The checksum comes first: any damage is reported as damage.
static tern_status check_sum(const uint8_t *bytes, uint64_t n, tern_error *err) {
    uint32_t found = read_u32(bytes + n - FOOTER_BYTES);
    uint32_t computed = tern_crc32(0, bytes, (size_t)n - FOOTER_BYTES);
    if (found == computed) return TERN_OK;
    return tern_fail(err, TERN_ERR_FORMAT,
                     "the checksum is %08x, but its bytes have %08x: damaged or cut off",
                     (unsigned)found, (unsigned)computed);
}

// Entry `index` at *p; its tokens and chances go to `at` in the common arrays, which have room for
// the bytes of the file except the fixed bytes of every entry (parse). So an entry must not use
// bytes that later entries need: else the first entries of a truncated table would write past the
// end.
static tern_status read_entry(tern_chains *c, size_t index, size_t at, const uint8_t **p,
                              const uint8_t *end, tern_error *err) {
    size_t left = (size_t)(end - *p), fixed = (c->n_entries - index) * ENTRY_BYTES;
    if (left < fixed) return tern_fail(err, TERN_ERR_FORMAT, "the file ends in chain %zu", index);
    uint32_t id = c->version == 1 ? (*p)[0] : read_u16(*p), n = read_u16(*p + 2);
    if (id != index)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu is numbered %u", index, (unsigned)id);
    if (n > c->max_length)
        return tern_fail(err, TERN_ERR_FORMAT, "chain %zu has %u tokens: at most %u are allowed",
                         index, (unsigned)n, (unsigned)c->max_length);
    if (left - fixed < token_bytes(c->version) * (size_t)n)
        return tern_fail(err, TERN_ERR_FORMAT, "the file ends in chain %zu or after it", index);
    int32_t *tokens = c->tokens + at;
    uint8_t *chances = c->chances ? c->chances + at : NULL;
    *p += 4;
    for (uint32_t i = 0; i < n; i++, *p += 4) tokens[i] = (int32_t)read_u32(*p);
    c->entries[index] = (tern_chain){tokens, (int32_t)n, tern_bits_to_f32(read_u32(*p)), chances};
    *p += 4;
    for (uint32_t i = 0; i < n && chances; i++) chances[i] = *(*p)++;
    return check_entry(&c->entries[index], index, c->max_length, err);
}

static tern_status parse(tern_chains **out, const uint8_t *bytes, uint64_t n, tern_error *err) {
    header h = {0};
    tern_chains *c;
    TERN_TRY(read_header(&h, bytes, n, err));
    TERN_TRY(check_sum(bytes, n, err));
    // Allocates nothing for impossible counts.
    uint64_t room = n - HEADER_BYTES - FOOTER_BYTES;
    if (room < (uint64_t)h.n_entries * ENTRY_BYTES)
        return tern_fail(err, TERN_ERR_FORMAT, "%llu bytes are too few for %u chains",
                         (unsigned long long)n, (unsigned)h.n_entries);
    uint64_t n_tokens = (room - (uint64_t)h.n_entries * ENTRY_BYTES) / token_bytes((int)h.version);
    if (n_tokens > (uint64_t)h.n_entries * h.max_length)
        return tern_fail(err, TERN_ERR_FORMAT, "%llu bytes are too many for %u chains",
                         (unsigned long long)n, (unsigned)h.n_entries);
    TERN_TRY(new_table(&c, (int)h.version, h.n_entries, (size_t)n_tokens, err));
    tern_status status = TERN_OK;
    c->max_length = (uint16_t)h.max_length;
    const uint8_t *p = bytes + HEADER_BYTES, *end = bytes + n - FOOTER_BYTES;
    for (size_t i = 0, at = 0; i < h.n_entries; at += (size_t)c->entries[i++].n_tokens)
        TERN_TRY_GOTO(read_entry(c, i, at, &p, end, err));
    if (p != end)
        TERN_TRY_GOTO(
            tern_fail(err, TERN_ERR_FORMAT, "%zu bytes follow the last chain", (size_t)(end - p)));
    index_table(c);
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
    tern_clear(err);
    tern_mapping m;
    TERN_NEED(out);
    *out = NULL;
    TERN_NEED(path);
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
        if (e->chances) tern_strbuf_append(b, e->chances, (size_t)e->n_tokens);
    }
    put_u32(b, tern_crc32(0, tern_strbuf_text(b), b->len));
}

tern_status tern_chains_save(const tern_chains *c, const char *path, tern_error *err) {
    tern_clear(err);
    tern_strbuf b = {0};
    tern_status status = TERN_OK;
    TERN_NEED(c);
    TERN_NEED(path);
    put_table(&b, c);
    if (b.failed) TERN_TRY_GOTO(tern_fail_memory(err, b.len));
    TERN_TRY_GOTO(tern_file_write(path, b.ptr, b.len, err));
fail:
    tern_strbuf_free(&b);
    return status;
}

// ---- Searching ---------------------------------------------------------------------------------

const tern_chain *tern_chains_find(const tern_chains *c, const int32_t *recent, size_t n_recent,
                                   size_t *n_matched) {
    size_t n = n_recent < c->match_max ? n_recent : c->match_max;
    for (; n > 0; n--) {
        const uint32_t *slot = slot_of(c, recent + n_recent - n, n);
        *n_matched = n;
        if (slot && *slot) return &c->entries[(*slot - 1) / 8];
    }
    return NULL;
}

bool tern_chains_next_prefix(const tern_chains *c, size_t *at, size_t *chain, size_t *n_matched) {
    while (*at < c->n_slots) {
        uint32_t slot = c->slots[(*at)++];
        if (slot == 0) continue;
        *chain = (slot - 1) / 8;
        *n_matched = (slot - 1) % 8;
        return true;
    }
    return false;
}
