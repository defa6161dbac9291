// Reading the key/value cache. Kernels that use it declare `keys` and `values`, arrays of words,
// and K_PAIRS, the pairs of elements per position in each.
//
// A state's memory is an array of pages of PAGE positions each; a sequence's table says which page
// has its positions 0 .. PAGE - 1, PAGE .. 2 PAGE - 1, and so on. A position's place is its page's
// number times PAGE, plus where in the page it is.
//
// In a page keys are kept as [pair][position], so that threads that score neighbouring positions
// read neighbouring words; values as [position][pair]. A pair is two words of f32 or one of f16. In
// Q8_0 it is half a word of four int8s, [pair / 2], and the scales, one for 16 pairs, [pair / 16],
// follow the last of these: a position has K_PAIRS / 2 + K_PAIRS / 16 words. The numbers are those
// of the CPU.
const CACHE_F32 = 0u; // gpu_cache of gpu.h
const CACHE_F16 = 1u;
const CACHE_Q8_0 = 2u;
override CACHE: u32;
override Q8_SCALES: u32 = K_PAIRS / 2u;
override Q8_ROW: u32 = Q8_SCALES + K_PAIRS / 16u;
override KEY_ROWS: u32 = select(K_PAIRS, Q8_ROW, CACHE == CACHE_Q8_0); // of a page

const PAGE = 32u;          // GPU_PAGE_POSITIONS of gpu.h
override PAGE_GROUPS: u32; // a table has a page of each group of states, then the next pages
override PAGE_GROUP: u32;  // which of them these states belong to

fn place_of(pages: u32, position: u32) -> u32 {
    let page = run.tables[pages + position / PAGE * PAGE_GROUPS + PAGE_GROUP];
    return page * PAGE + position % PAGE;
}

fn key_at(row: u32, place: u32) -> u32 {
    return (place / PAGE * KEY_ROWS + row) * PAGE + place % PAGE;
}

// A pair as it is read, before any arithmetic: the two words of f32, the one of f16, or the word of
// a pair and its neighbour with their scale.
fn key_words(pair: u32, place: u32) -> vec2<u32> {
    if (CACHE == CACHE_Q8_0) {
        return vec2(keys[key_at(pair / 2u, place)], keys[key_at(Q8_SCALES + pair / 16u, place)]);
    }
    let at = key_at(pair, place);
    if (CACHE == CACHE_F32) { return vec2(keys[2u * at], keys[2u * at + 1u]); }
    return vec2(keys[at], 0u);
}

fn value_words(pair: u32, place: u32) -> vec2<u32> {
    let at = place * K_PAIRS + pair;
    if (CACHE == CACHE_F32) { return vec2(values[2u * at], values[2u * at + 1u]); }
    if (CACHE == CACHE_F16) { return vec2(values[at], 0u); }
    let row = place * Q8_ROW;
    return vec2(values[row + pair / 2u], values[row + Q8_SCALES + pair / 16u]);
}

fn decoded(words: vec2<u32>, pair: u32) -> vec2<f32> {
    if (CACHE == CACHE_F32) { return bitcast<vec2<f32>>(words); }
    if (CACHE == CACHE_F16) { return unpack2x16float(words.x); }
    return bytes4(words.x >> (pair % 2u * 16u)).xy * bitcast<f32>(words.y);
}

fn key2(pair: u32, place: u32) -> vec2<f32> { return decoded(key_words(pair, place), pair); }
fn value2(pair: u32, place: u32) -> vec2<f32> { return decoded(value_words(pair, place), pair); }
