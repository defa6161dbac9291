// Fuzzing of the reader of chain tables: an accepted table can be searched, and rebuilt from its
// own entries. The checksum would keep every mutation out, so each input is also read with its
// checksum corrected.
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "formats/chains.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void read_table(const uint8_t *bytes, size_t n) {
    tern_chains *c, *again;
    tern_error err;
    size_t n_entries, n_matched, most;
    if (tern_chains_parse(&c, "fuzz", bytes, n, &err) != TERN_OK) return;
    const tern_chain *e = tern_chains_entries(c, &n_entries);
    most = (size_t)tern_chains_match_max(tern_chains_version(c));
    for (size_t i = 0; i < n_entries; i++) {
        size_t prefix = e[i].n_tokens > 1 ? (size_t)e[i].n_tokens - 1 : 0;
        const tern_chain *hit = tern_chains_find(c, e[i].tokens, prefix, &n_matched);
        require(!prefix || prefix > most || hit);
        require(!hit || (size_t)hit->n_tokens > n_matched);
    }
    if (tern_chains_create(&again, e, n_entries, &err) == TERN_OK) tern_chains_close(again);
    tern_chains_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    read_table(bytes, n);
    uint8_t *sealed = n >= 4 ? malloc(n) : NULL;
    if (!sealed) return 0;
    memcpy(sealed, bytes, n - 4);
    uint32_t crc = tern_crc32(0, bytes, n - 4);
    for (size_t i = 0; i < 4; i++) sealed[n - 4 + i] = (uint8_t)(crc >> 8 * i);
    read_table(sealed, n);
    free(sealed);
    return 0;
}
