// Checksums and hashes.
#ifndef TERN_BASE_HASH_H
#define TERN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

// CRC-32 as in zlib, PNG and Ethernet: polynomial 0xEDB88320 (reflected), register and result
// inverted. Begin with 0; a checksum continues that of the preceding bytes: crc32(crc32(0, a), b)
// is that of a and b. It finds every error of up to 32 bits in a row.
uint32_t tern_crc32(uint32_t crc, const void *bytes, size_t n);

// A bijection of 64-bit words in which each bit of the input flips half of the output bits on
// average (the finalizer of splitmix64).
static inline uint64_t tern_mix64(uint64_t x) {
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

// A fast hash of bytes, the same on every machine. Collisions can be chosen by anyone who has the
// seed: untrusted bytes are hashed with a random one. Chains like the checksum, except that the
// boundaries of the pieces matter.
uint64_t tern_hash64(uint64_t seed, const void *bytes, size_t n);

#endif
