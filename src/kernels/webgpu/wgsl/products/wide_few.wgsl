// Products of few.wgsl with codes of wide_codes.wgsl.

// For SPLITS blocks: products [token][split][group][row], scales and minima without the token; rows
// apart to spread the banks.
override PART_NEXT: u32 = GROUP_ROWS + 8u / PARTS;
override N_SCALES: u32 = SPLITS * PARTS * PART_NEXT;
var<workgroup> part: array<f32, TOKENS * N_SCALES>;
var<workgroup> scales: array<vec2<f32>, N_SCALES>;

struct Item { codes: Wide, scales: ScaleWords }
alias Items = array<Item, TILES_MAX>;
fn ask(group: u32, l: Lane, block: u32) -> Items {
    var items: Items;
    let b = min(block, BLOCKS - 1u);
    for (var k = 0u; k < TILES; k++) {
        let tile = tile_at(tile_number(group, l.team * TILES + k));
        items[k] = Item(wide_codes(tile, b, l.row), scale_words(tile, b, l.row));
    }
    return items;
}

// A tile's scales in a block, into their place.
fn keep_scales(at: u32, words: ScaleWords) {
    let s = scales_of(words);
    for (var i = 0u; i < PARTS; i++) {
        scales[at + i * PART_NEXT] = vec2(s.scale[i], s.minimum[i]);
    }
}

// A tile's codes times the tokens from `token` on. Loops over tokens have constant ends, so that they
// are unrolled and the sums stay in registers.
alias Infos = array<vec2<u32>, EACH_MAX>;
fn multiply_tile(codes: Wide, token: u32, block: u32, at: u32, infos: ptr<function, Infos>) {
    var sums: array<vec4<i32>, EACH_MAX>;
    for (var i = 0u; i < 4u; i++) { // of 16 columns each
        let c = quarter(codes, i);
        for (var t = 0u; t < EACH; t++) {
            sums[t][i] = dot16(0, c, columns16(token + t, block * 4u + i));
        }
    }
    for (var t = 0u; t < EACH; t++) {
        let p = products_of(sums[t], (*infos)[t]);
        for (var i = 0u; i < PARTS; i++) {
            part[(token + t) * N_SCALES + at + i * PART_NEXT] = p[i];
        }
    }
}

fn multiply_block(l: Lane, token: u32, block: u32, items: ptr<function, Items>) {
    var infos: Infos;
    for (var t = 0u; t < EACH; t++) {
        infos[t] = q_info[min(token + t, run.n_tokens - 1u) * BLOCKS + block];
    }
    for (var k = 0u; k < TILES; k++) {
        let at = l.block * PARTS * PART_NEXT + (l.team * TILES + k) * 8u + l.row;
        if (token == 0u) { keep_scales(at, (*items)[k].scales); }
        multiply_tile((*items)[k].codes, token, block, at, &infos);
    }
}

// The blocks in order, SPLITS at a time.
fn products(group: u32, lane: u32, r: Result, a: u32, b: u32) -> vec2<f32> {
    var l = lane_of(lane);
    let token = l.team / TEAMS * EACH;
    l.team %= TEAMS;
    var next = ask(group, l, l.block);
    if (STAGED) { stage_rows(lane); }
    var all = vec2(0.0);
    for (var begin = 0u; begin < BLOCKS; begin += SPLITS) {
        let block = begin + l.block;
        var items = next;
        next = ask(group, l, block + SPLITS);
        if (block < BLOCKS) { multiply_block(l, token, block, &items); }
        workgroupBarrier();
        for (var i = 0u; r.is_mine && i < min(SPLITS, BLOCKS - begin); i++) {
            let minus = minus_of(q_info[r.token * BLOCKS + begin + i]);
            for (var k = 0u; k < PARTS; k++) {
                let at = (i * PARTS + k) * PART_NEXT;
                let p = r.token * N_SCALES + at;
                let x = scales[at + a];
                let y = scales[at + b];
                all = vec2(fma_once(x.x, part[p + a], all.x), fma_once(y.x, part[p + b], all.y));
                if (MINIMA) {
                    all = vec2(fma_once(x.y, minus[k], all.x), fma_once(y.y, minus[k], all.y));
                }
            }
        }
        workgroupBarrier();
    }
    return all;
}
