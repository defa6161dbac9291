// Products of token.wgsl with codes of wide_codes.wgsl.

// [block][group][row], of products that are added up in order; rows apart to spread the banks
override PART_NEXT: u32 = GROUP_ROWS + 8u / PARTS;
override N_PARTS: u32 = BLOCKS * PARTS * PART_NEXT;
override N_MINIMA: u32 = N_PARTS * u32(MINIMA) + u32(!MINIMA);
var<workgroup> part: array<vec2<f32>, N_PARTS>; // product, scale
var<workgroup> minima: array<f32, N_MINIMA>;

// The weights that a thread multiplies are numbered by step and, within a step, by tile.
override N_ITEMS: u32 = STEPS * TILES;
struct Item { codes: Wide, scales: ScaleWords }
fn item_at(group: u32, l: Lane, k: u32) -> Item {
    let block = min(l.block + k / TILES * SPLITS, BLOCKS - 1u);
    let tile = tile_at(tile_number(group, l.team * TILES + k % TILES));
    return Item(wide_codes(tile, block, l.row), scale_words(tile, block, l.row));
}

// Two of them are in flight at a time.
struct Codes { a: Item, b: Item }
fn ask(group: u32, l: Lane) -> Codes {
    var codes: Codes;
    codes.a = item_at(group, l, 0u);
    if (N_ITEMS > 1u) { codes.b = item_at(group, l, 1u); }
    return codes;
}

// Leaves weights k times their block of the row in `part`.
fn multiply_item(l: Lane, k: u32, item: Item) {
    let block = l.block + k / TILES * SPLITS;
    if (block >= BLOCKS) { return; }
    let x = block * 4u;
    let p = products_of(vec4(dot16(0, quarter(item.codes, 0u), q[x]),
                             dot16(0, quarter(item.codes, 1u), q[x + 1u]),
                             dot16(0, quarter(item.codes, 2u), q[x + 2u]),
                             dot16(0, quarter(item.codes, 3u), q[x + 3u])),
                        infos[block]);
    let s = scales_of(item.scales);
    let at = block * PARTS * PART_NEXT + (l.team * TILES + k % TILES) * 8u + l.row;
    for (var i = 0u; i < PARTS; i++) {
        part[at + i * PART_NEXT] = vec2(p[i], s.scale[i]);
        if (MINIMA) { minima[at + i * PART_NEXT] = s.minimum[i]; }
    }
}

fn multiply(group: u32, lane: u32, l: Lane, asked: Codes) {
    var codes = asked;
    for (var k = 0u; k < N_ITEMS; k += 2u) {
        multiply_item(l, k, codes.a);
        if (k + 2u < N_ITEMS) { codes.a = item_at(group, l, k + 2u); }
        if (k + 1u < N_ITEMS) { multiply_item(l, k + 1u, codes.b); }
        if (k + 3u < N_ITEMS) { codes.b = item_at(group, l, k + 3u); }
    }
    workgroupBarrier();
}

// The workgroup's row i.
fn sum_of(i: u32, row_sum: i32) -> f32 {
    var sum = 0.0;
    for (var b = 0u; b < BLOCKS; b++) {
        var minus = vec4(0.0);
        if (MINIMA) { minus = minus_of(infos[b]); }
        for (var k = 0u; k < PARTS; k++) {
            let at = (b * PARTS + k) * PART_NEXT + i;
            sum = fma_once(part[at].y, part[at].x, sum);
            if (MINIMA) { sum = fma_once(minima[at], minus[k], sum); }
        }
    }
    return sum;
}
