// Reading the key/value cache. Kernels that use it declare `keys` and `values`, arrays of words,
// and K_PAIRS, the pairs of elements per position in each.
//
// Keys are kept as [pair][position], so that threads that score neighbouring positions read
// neighbouring words; values as [position][pair]. A pair is two words of f32 or one of f16. In Q8_0
// it is half a word of four int8s, [pair / 2], and the scales, one for 16 pairs, [pair / 16],
// follow the last of these: a position has K_PAIRS / 2 + K_PAIRS / 16 words. The numbers are those
// of the CPU.
const CACHE_F32 = 0u; // gpu_cache of gpu.h
const CACHE_F16 = 1u;
const CACHE_Q8_0 = 2u;
override CACHE: u32;
override Q8_SCALES: u32 = K_PAIRS / 2u;
override Q8_ROW: u32 = Q8_SCALES + K_PAIRS / 16u;

// A pair as it is read, before any arithmetic: the two words of f32, the one of f16, or the word of
// a pair and its neighbour with their scale.
fn key_words(pair: u32, position: u32) -> vec2<u32> {
    let at = pair * run.n_context + position;
    if (CACHE == CACHE_F32) { return vec2(keys[2u * at], keys[2u * at + 1u]); }
    if (CACHE == CACHE_F16) { return vec2(keys[at], 0u); }
    return vec2(keys[pair / 2u * run.n_context + position],
                keys[(Q8_SCALES + pair / 16u) * run.n_context + position]);
}

fn value_words(pair: u32, position: u32) -> vec2<u32> {
    let at = position * K_PAIRS + pair;
    if (CACHE == CACHE_F32) { return vec2(values[2u * at], values[2u * at + 1u]); }
    if (CACHE == CACHE_F16) { return vec2(values[at], 0u); }
    let row = position * Q8_ROW;
    return vec2(values[row + pair / 2u], values[row + Q8_SCALES + pair / 16u]);
}

fn decoded(words: vec2<u32>, pair: u32) -> vec2<f32> {
    if (CACHE == CACHE_F32) { return bitcast<vec2<f32>>(words); }
    if (CACHE == CACHE_F16) { return unpack2x16float(words.x); }
    return bytes4(words.x >> (pair % 2u * 16u)).xy * bitcast<f32>(words.y);
}

fn key2(pair: u32, position: u32) -> vec2<f32> { return decoded(key_words(pair, position), pair); }
fn value2(pair: u32, position: u32) -> vec2<f32> {
    return decoded(value_words(pair, position), pair);
}
