// Writing the key/value cache that cache.wgsl describes and reads.

// The words of a pair. Q8_0 also needs the next pair, which shares the word, and the greatest
// absolute value among the 16 pairs of the scale.
fn encoded(pairs: vec4<f32>, most: f32) -> vec2<u32> {
    if (CACHE == CACHE_F32) { return bitcast<vec2<u32>>(pairs.xy); }
    if (CACHE == CACHE_F16) { return vec2(pack2x16float(pairs.xy), 0u); }
    let scaled = clamp(round(pairs * (127.0 / max(most, 1e-30))), vec4(-127.0), vec4(127.0));
    let bytes = (vec4<u32>(vec4<i32>(scaled)) & vec4(255u)) << vec4(0u, 8u, 16u, 24u);
    return vec2(bytes.x | bytes.y | bytes.z | bytes.w, bitcast<u32>(most / 127.0));
}

// The first of the pairs that share a word or a scale of Q8_0 stores it.
fn store_key(pair: u32, place: u32, words: vec2<u32>) {
    let at = key_at(pair, place);
    if (CACHE == CACHE_F32) {
        keys[2u * at] = words.x;
        keys[2u * at + 1u] = words.y;
    } else if (CACHE == CACHE_F16) {
        keys[at] = words.x;
    } else {
        if (pair % 2u == 0u) { keys[key_at(pair / 2u, place)] = words.x; }
        if (pair % 16u == 0u) { keys[key_at(Q8_SCALES + pair / 16u, place)] = words.y; }
    }
}

fn store_value(pair: u32, place: u32, words: vec2<u32>) {
    let at = place * K_PAIRS + pair;
    let row = place * Q8_ROW;
    if (CACHE == CACHE_F32) {
        values[2u * at] = words.x;
        values[2u * at + 1u] = words.y;
    } else if (CACHE == CACHE_F16) {
        values[at] = words.x;
    } else {
        if (pair % 2u == 0u) { values[row + pair / 2u] = words.x; }
        if (pair % 16u == 0u) { values[row + Q8_SCALES + pair / 16u] = words.y; }
    }
}
