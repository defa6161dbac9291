// Tables of chains: short runs of tokens that often follow one another, for speculation.
//
// The file "chain-buckets.bin", version 1. All numbers are little-endian.
//
//     bytes  type   content
//      0     4 B    magic "CHNB"
//      4     u16    version, 1
//      6     u16    entries, 256
//      8     u16    maximum tokens of a chain, 8
//     10     u16    reserved: written as 0, ignored
//     12            entries 0, 1, 2 ... one after the other:
//                   u8    its number
//                   u8    reserved: written as 0, ignored
//                   u16   n, the tokens of the chain; 0: an empty bucket
//                   i32   n tokens
//                   f32   confidence: the mean probability of the tokens after the first
//     end    u32    CRC-32 of all bytes before it; here the file ends
//
// Version 2 is for more buckets than can be tried one by one: an entry's number is a u16, including
// the reserved byte, there are 1 to 65535 entries, the maximum is 2 to 16 tokens, and the
// confidence is followed by
//
//                   u8    n chances: the probability of each token after those before it, in
//                         255ths; the first one's is 0
#ifndef TERN_FORMATS_CHAINS_H
#define TERN_FORMATS_CHAINS_H

#include "base/status.h"
#include "tern_tools.h"

#define TERN_CHAINS_V1_ENTRIES 256
#define TERN_CHAINS_V1_LENGTH  8
#define TERN_CHAINS_V2_LENGTH  16

// From memory, for tests and fuzzing; the bytes are not kept.
tern_status tern_chains_parse(tern_chains **out, const char *name, const uint8_t *bytes, uint64_t n,
                              tern_error *err);

// The first function adds a user of a table: every user closes it, and the last one frees it. The
// others: the version for a table of n entries, by the length of the longest; the m of a version,
// see below.
void tern_chains_hold(const tern_chains *chains);
int tern_chains_version_for(size_t n_entries, int32_t longest);
int tern_chains_match_max(int version);

// The chain that continues the recent tokens: its first m tokens are the last m of `recent`, and it
// has more. Prefers the longest such match, m at most 3 in a table of version 1 and 5 in one of
// version 2; then the likeliest next token (if chances are known), the most confident chain, the
// longest. *n_matched: m. NULL: there is none.
#define TERN_CHAINS_MATCH_MAX 5 // of both versions
const tern_chain *tern_chains_find(const tern_chains *c, const int32_t *recent, size_t n_recent,
                                   size_t *n_matched);
// All prefixes that tern_chains_find can match, one at a time: a chain and its first *n_matched
// tokens. *at begins with 0; false: there are no more.
bool tern_chains_next_prefix(const tern_chains *c, size_t *at, size_t *chain, size_t *n_matched);

#endif
