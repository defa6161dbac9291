// Rows of numbers of any type, 16 at a time, with the same bits as base/dtype/dtype_decode.c, which
// describes the layouts: (q * scale) or (q * scale - min), each step rounding once.
//
// The integer part works on machine words: a shift of 64-bit words and a mask move the bits of 8
// bytes at once, on any instruction set.

typedef uint64_t words32 __attribute__((vector_size(32)));
typedef uint8_t bytes32 __attribute__((vector_size(32)));
typedef uint64_t words16 __attribute__((vector_size(16)));
typedef uint8_t bytes16 __attribute__((vector_size(16)));
// Macros, as 32-byte vectors cannot be passed to functions on every machine.
#define SHR32(v, n) ((bytes32)((words32)(v) >> (n)))
#define SHL32(v, n) ((bytes32)((words32)(v) << (n)))
#define STORE32(p, v)                                                                              \
    do {                                                                                           \
        bytes32 store_ = (v);                                                                      \
        memcpy(p, &store_, 32);                                                                    \
    } while (0)

// One block: weight i is scale[i / 16] * q[i], less min[i / 16] where the type has minima.
typedef struct unpacked {
    _Alignas(64) int8_t q[256];
    _Alignas(64) float scale[16];
    _Alignas(64) float min[16];
} unpacked;

VEC_INLINE uint16_t read_u16(const uint8_t *b) {
    uint16_t v;
    memcpy(&v, b, 2);
    return v;
}

VEC_INLINE void unpack_q8_0(unpacked *u, const uint8_t *b) {
    u->scale[0] = u->scale[1] = vec_f16(read_u16(b));
    memcpy(u->q, b + 2, 32);
}

VEC_INLINE void unpack_q4_0(unpacked *u, const uint8_t *b) {
    bytes16 v;
    memcpy(&v, b + 2, 16);
    bytes16 low = (v & 15) - 8, high = ((bytes16)((words16)v >> 4) & 15) - 8;
    u->scale[0] = u->scale[1] = vec_f16(read_u16(b));
    memcpy(u->q, &low, 16);
    memcpy(u->q + 16, &high, 16);
}

VEC_INLINE void unpack_k_scales(unpacked *u, const uint8_t *b) {
    uint32_t s[3];
    memcpy(s, b + 4, 12);
    int8_t packed[16]; // eight scales, then eight minima
    uint32_t words[4] = {s[0] & 0x3F3F3F3F, (s[2] & 0x0F0F0F0F) | (s[0] >> 2 & 0x30303030),
                         s[1] & 0x3F3F3F3F, (s[2] >> 4 & 0x0F0F0F0F) | (s[1] >> 2 & 0x30303030)};
    memcpy(packed, words, 16);
    float d = vec_f16(read_u16(b)), d_min = vec_f16(read_u16(b + 2)), all[16];
    v16_store(all, v16_from_i8(packed));
    for (int i = 0; i < 8; i++) {
        u->scale[2 * i] = u->scale[2 * i + 1] = d * all[i];
        u->min[2 * i] = u->min[2 * i + 1] = d_min * all[8 + i];
    }
}

VEC_INLINE void unpack_q4_k(unpacked *u, const uint8_t *b) {
    unpack_k_scales(u, b);
    for (int g = 0; g < 4; g++) {
        bytes32 v;
        memcpy(&v, b + 16 + 32 * g, 32);
        STORE32(u->q + 64 * g, v & 15);
        STORE32(u->q + 64 * g + 32, SHR32(v, 4) & 15);
    }
}

VEC_INLINE void unpack_q5_k(unpacked *u, const uint8_t *b) {
    unpack_k_scales(u, b);
    bytes32 high, v;
    memcpy(&high, b + 16, 32);
    for (int g = 0; g < 4; g++) {
        memcpy(&v, b + 48 + 32 * g, 32);
        bytes32 pair = SHR32(high, 2 * g); // bit 0: of the low nibbles, bit 1: of the high ones
        STORE32(u->q + 64 * g, (v & 15) | SHL32(pair & 1, 4));
        STORE32(u->q + 64 * g + 32, (SHR32(v, 4) & 15) | SHL32(pair & 2, 3));
    }
}

VEC_INLINE void unpack_q6_k(unpacked *u, const uint8_t *b) {
    v16 d = v16_set1(vec_f16(read_u16(b + 208)));
    v16_store(u->scale, v16_mul(d, v16_from_i8((const int8_t *)b + 192)));
    for (int half = 0; half < 2; half++) {
        bytes32 low0, low1, high;
        memcpy(&low0, b + 64 * half, 32);
        memcpy(&low1, b + 64 * half + 32, 32);
        memcpy(&high, b + 128 + 32 * half, 32);
        int8_t *q = u->q + 128 * half;
        STORE32(q, ((low0 & 15) | (SHL32(high, 4) & 0x30)) - 32);
        STORE32(q + 32, ((low1 & 15) | (SHL32(high, 2) & 0x30)) - 32);
        STORE32(q + 64, ((SHR32(low0, 4) & 15) | (high & 0x30)) - 32);
        STORE32(q + 96, ((SHR32(low1, 4) & 15) | (SHR32(high, 2) & 0x30)) - 32);
    }
}

// Codes with a scale and an offset. `type` stands for all types of its number of bits: n is the
// block's.
VEC_INLINE void unpack_codes(unpacked *u, bool nibbles, const uint8_t *b, size_t n) {
    float scale, offset;
    memcpy(&scale, b, 4);
    memcpy(&offset, b + 4, 4);
    for (size_t g = 0; g < n / 16; g++) {
        u->scale[g] = scale;
        u->min[g] = -offset;
    }
    for (size_t i = 0; nibbles && i < n; i += 32) {
        bytes16 v;
        memcpy(&v, b + 8 + i / 2, 16);
        bytes16 even = v & 15, odd = (bytes16)((words16)v >> 4) & 15;
        for (int k = 0; k < 16; k++) {
            u->q[i + 2 * (size_t)k] = (int8_t)even[k];
            u->q[i + 2 * (size_t)k + 1] = (int8_t)odd[k];
        }
    }
    for (size_t i = 0; !nibbles && i < n; i += 32) {
        bytes32 v;
        memcpy(&v, b + 8 + i, 32);
        STORE32(u->q + i, v ^ 128); // less 128: unpacked_group adds it
    }
}

VEC_INLINE void unpack(unpacked *u, tern_dtype type, const uint8_t *b, size_t n) {
    switch (type) {
    case TERN_DTYPE_G4_32: unpack_codes(u, true, b, n); break;
    case TERN_DTYPE_G8_32: unpack_codes(u, false, b, n); break;
    case TERN_DTYPE_Q8_0: unpack_q8_0(u, b); break;
    case TERN_DTYPE_Q4_0: unpack_q4_0(u, b); break;
    case TERN_DTYPE_Q4_K: unpack_q4_k(u, b); break;
    case TERN_DTYPE_Q5_K: unpack_q5_k(u, b); break;
    case TERN_DTYPE_Q6_K: unpack_q6_k(u, b); break;
    default: break;
    }
}

VEC_INLINE v16 unpacked_group(const unpacked *u, tern_dtype type, size_t group) {
    v16 q = v16_from_i8(u->q + 16 * group);
    if (type == TERN_DTYPE_G8_32) q = v16_add(q, v16_set1(128));
    v16 w = v16_mul(v16_set1(u->scale[group]), q);
    if (type == TERN_DTYPE_Q4_K || type == TERN_DTYPE_Q5_K || type == TERN_DTYPE_G4_32 ||
        type == TERN_DTYPE_G8_32) {
        w = v16_sub(w, v16_set1(u->min[group]));
    }
    return w;
}

// Elements i..i+15 of plain numbers; n - i remain.
VEC_INLINE v16 load_plain(tern_dtype type, const uint8_t *p, size_t i, size_t n) {
    size_t size = type == TERN_DTYPE_F32 ? 4 : 2;
    uint8_t end[64] = {0};
    const uint8_t *at = p + i * size;
    if (n - i < 16) at = memcpy(end, at, (n - i) * size);
    if (type == TERN_DTYPE_F16) return v16_from_f16(at);
    if (type == TERN_DTYPE_BF16) return v16_from_bf16(at);
    return v16_load((const float *)at);
}

// ---- decode ------------------------------------------------------------------------------------

VEC_INLINE void decode_plain(tern_dtype type, const uint8_t *p, size_t n, float *out) {
    for (size_t i = 0; i < n; i += 16) store_some(out + i, load_plain(type, p, i, n), n - i);
}

VEC_INLINE void decode_blocks(tern_dtype type, const uint8_t *b, size_t n, size_t block_n,
                              size_t block_bytes, float *out) {
    unpacked u;
    for (size_t i = 0; i + block_n <= n; i += block_n, b += block_bytes) {
        unpack(&u, type, b, block_n);
        for (size_t g = 0; g < block_n / 16; g++) {
            v16_store(out + i + 16 * g, unpacked_group(&u, type, g));
        }
    }
}

static void decode(tern_dtype type, const void *data, uint64_t first, size_t n, float scale,
                   float *out) {
    size_t block_n = tern_dtype_block_n(type), block_bytes = tern_dtype_block_bytes(type);
    const uint8_t *b = (const uint8_t *)data + first / block_n * block_bytes;
    switch (type) {
    case TERN_DTYPE_F16: decode_plain(TERN_DTYPE_F16, b, n, out); break;
    case TERN_DTYPE_BF16: decode_plain(TERN_DTYPE_BF16, b, n, out); break;
#ifdef VEC_ONE_LOOP
    case TERN_DTYPE_Q8_0:
    case TERN_DTYPE_Q4_0:
    case TERN_DTYPE_Q4_K:
    case TERN_DTYPE_Q5_K:
    case TERN_DTYPE_Q6_K: decode_blocks(type, b, n, block_n, block_bytes, out); break;
#else
    case TERN_DTYPE_Q8_0: decode_blocks(TERN_DTYPE_Q8_0, b, n, 32, 34, out); break;
    case TERN_DTYPE_Q4_0: decode_blocks(TERN_DTYPE_Q4_0, b, n, 32, 18, out); break;
    case TERN_DTYPE_Q4_K: decode_blocks(TERN_DTYPE_Q4_K, b, n, 256, 144, out); break;
    case TERN_DTYPE_Q5_K: decode_blocks(TERN_DTYPE_Q5_K, b, n, 256, 176, out); break;
    case TERN_DTYPE_Q6_K: decode_blocks(TERN_DTYPE_Q6_K, b, n, 256, 210, out); break;
    case TERN_DTYPE_G4_32:
    case TERN_DTYPE_G4_64:
    case TERN_DTYPE_G4_128:
        decode_blocks(TERN_DTYPE_G4_32, b, n, block_n, block_bytes, out);
        break;
    case TERN_DTYPE_G8_32:
    case TERN_DTYPE_G8_64:
    case TERN_DTYPE_G8_128:
        decode_blocks(TERN_DTYPE_G8_32, b, n, block_n, block_bytes, out);
        break;
#endif
    default: tern_dtype_decode(type, data, first, n, scale, out); break;
    }
}
