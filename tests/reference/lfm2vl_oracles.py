#!/usr/bin/env python3
"""Writes tests/oracles/lfm2vl_sees: a tiny LFM2-VL, and what plain numpy makes of texts with images in float64 (`make
oracles`). Needs numpy. Written from the papers and from what transformers documents, not from tern.

golden.safetensors: input_ids with one token for each row of what the tower sees, image_grid_thw of each, pixel_values,
vis.merged, logits and greedy_ids; image and said_ids as in image_tokens_oracles.py. large_ids: the prompt of an image that is
cut into squares (large), large_levels: their pixels, one square after the other, then the whole's, large_rows and large_said.

    lfm2vl_oracles.py --transformers [FOLDER]

asks transformers (5 or later, with torch and torchvision) for the same numbers of the folder, and prints how far they
are from its golden file; and whether sizes and squares of many shapes are its processor's.
sizes: for each image its width and height, those of the whole that the model is shown, and how many squares across and
down (0 and 0: none), by the limits of LFM2-VL's own files.

    lfm2vl_oracles.py --shape FOLDER

writes a model whose tower has the shape of LFM2-VL-450M's, with random weights and a text model of next to nothing, and
image.png of 1,536 x 1,024 pixels, which is cut into six squares, and whole.png of 512 x 512: for measuring.
"""
import json, math, os, sys
import numpy as np
import image_tokens_oracles as o
from safetensors_np import read_safetensors, to_bf16
from vit_oracles import resize

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"]
SPECIAL += ["<|img_row_%d_col_%d|>" % (i // 3 + 1, i % 3 + 1) for i in range(9)]
o.SPECIAL, o.N_VOCAB, o.IMAGE = SPECIAL, 256 + len(SPECIAL), 259
START, END, THUMBNAIL, FIRST = 260, 261, 262, 263
H, HEADS, DIM, FF, TAPS, LAYERS = 32, 2, 16, 40, 3, ["conv", "full_attention", "conv"]
V_DEPTH, V_H, V_HEADS, V_FF, SIDE, PATCH, MERGE, BETWEEN = 2, 24, 3, 32, 4, 16, 2, 36
TILE, LEAST, MOST, TILES_LEAST, TILES, TOLERANCE = 64, 2, 4, 2, 6, 2.0
TEXT = dict(model_type="lfm2", vocab_size=o.N_VOCAB, hidden_size=H, intermediate_size=FF, num_hidden_layers=len(LAYERS),
            num_attention_heads=HEADS, num_key_value_heads=1, norm_eps=1e-5, conv_L_cache=TAPS, conv_bias=False,
            block_auto_adjust_ff_dim=False, layer_types=LAYERS, max_position_embeddings=256, eos_token_id=258, bos_token_id=256,
            pad_token_id=256, tie_word_embeddings=True, tie_embedding=True, rope_theta=5000.0,
            rope_parameters=dict(rope_type="default", rope_theta=5000.0))
VISION = dict(model_type="siglip2_vision_model", num_hidden_layers=V_DEPTH, hidden_size=V_H, intermediate_size=V_FF,
              num_attention_heads=V_HEADS, num_patches=SIDE * SIDE, patch_size=PATCH, num_channels=3,
              hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, vision_use_head=False, attention_dropout=0.0)
o.CONFIG = dict(model_type="lfm2_vl", architectures=["Lfm2VlForConditionalGeneration"], tie_word_embeddings=True,
                image_token_id=o.IMAGE, downsample_factor=MERGE, projector_hidden_act="gelu", projector_hidden_size=BETWEEN,
                projector_bias=True, projector_use_layernorm=True, vision_feature_layer=-1, text_config=TEXT, vision_config=VISION)
o.IMAGES = dict(image_processor_type="Lfm2VlImageProcessorFast", downsample_factor=MERGE, do_image_splitting=True,
                  min_tiles=TILES_LEAST, max_tiles=TILES, use_thumbnail=True, min_image_tokens=LEAST, max_image_tokens=MOST,
                  encoder_patch_size=PATCH, tile_size=TILE, max_pixels_tolerance=TOLERANCE, resample=2, do_resize=True,
                  do_rescale=True, rescale_factor=1 / 255, do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3)
o.TEMPLATE = o.TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", "<image>")


# ---- Weights -----------------------------------------------------------------------------------

def make_weights(random):
    t = {}
    matrix, norm = o.makers(random, t.__setitem__)
    p, v, m = "model.language_model.", "model.vision_tower.vision_model.", "model.multi_modal_projector."
    t[p + "embed_tokens.weight"] = random.normal(0, 0.7, (o.N_VOCAB, H))
    norm(p + "embedding_norm", H)
    for i, kind in enumerate(LAYERS):
        q = p + "layers.%d." % i
        norm(q + "operator_norm", H)
        norm(q + "ffn_norm", H)
        if kind == "conv":
            matrix(q + "conv.in_proj", 3 * H, H, gain=1.5)
            t[q + "conv.conv.weight"] = random.normal(0, 0.7, (H, 1, TAPS))
            matrix(q + "conv.out_proj", H, H)
        else:
            a = q + "self_attn."
            matrix(a + "q_proj", HEADS * DIM, H)
            matrix(a + "k_proj", DIM, H)
            matrix(a + "v_proj", DIM, H)
            matrix(a + "out_proj", H, HEADS * DIM, gain=2)
            norm(a + "q_layernorm", DIM)
            norm(a + "k_layernorm", DIM)
        for name, rows, cols in (("w1", FF, H), ("w3", FF, H), ("w2", H, FF)):
            matrix(q + "feed_forward." + name, rows, cols)
    matrix(v + "embeddings.patch_embedding", V_H, 3 * PATCH * PATCH, True)
    t[v + "embeddings.position_embedding.weight"] = random.normal(0, 0.5, (SIDE * SIDE, V_H))
    o.siglip_weights(matrix, norm, v, V_DEPTH, V_H, V_FF)
    norm(m + "layer_norm", MERGE * MERGE * V_H, True)
    matrix(m + "linear_1", BETWEEN, MERGE * MERGE * V_H, True)
    matrix(m + "linear_2", H, BETWEEN, True)
    return {name: to_bf16(x.astype(np.float32)) for name, x in t.items()}


# ---- The tower ---------------------------------------------------------------------------------

def places(n):
    """[n, SIDE]: how places of the grid are mixed where an image has n patches: a triangle around its middle, wider where
    the image has fewer than the grid."""
    width = max(SIDE / n, 1)
    middle = (np.arange(n)[:, None] + 0.5) * SIDE / n - 0.5
    w = np.maximum(1 - np.abs(np.arange(SIDE)[None] - middle) / width, 0)
    return w / w.sum(1, keepdims=True)


def tower(t, patches, rows, columns):
    """patches: from left to right and down."""
    v, m = "model.vision_tower.vision_model.", "model.multi_modal_projector."
    table = t[v + "embeddings.position_embedding.weight"].astype(np.float64).reshape(SIDE, SIDE, V_H)
    grid = np.einsum("ya,xb,abc->yxc", places(rows), places(columns), table)
    h = o.linear(t, v + "embeddings.patch_embedding", patches) + grid.reshape(-1, V_H)
    h = o.siglip(t, v, h, V_DEPTH, V_HEADS)
    h = h.reshape(rows // MERGE, MERGE, columns // MERGE, MERGE, V_H).swapaxes(1, 2).reshape(-1, MERGE * MERGE * V_H)
    u = o.linear(t, m + "linear_1", o.layer_norm(t, m + "layer_norm", h, 1e-5))
    return o.linear(t, m + "linear_2", u / 2 * (1 + np.vectorize(math.erf)(u / math.sqrt(2))))


# ---- The text ----------------------------------------------------------------------------------

def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w.astype(np.float64)


def logits(t, ids, grids, seen):
    p = "model.language_model."
    x = t[p + "embed_tokens.weight"].astype(np.float64)[ids]
    x[np.array(ids) == o.IMAGE] = seen
    angles = np.arange(len(ids))[:, None] * 5000.0 ** (-np.arange(DIM // 2) * 2 / DIM)
    for i, kind in enumerate(LAYERS):
        q = p + "layers.%d." % i
        h = rms(x, t[q + "operator_norm.weight"])
        if kind == "conv":
            b, c, u = np.split(o.linear(t, q + "conv.in_proj", h), 3, -1)
            u = np.concatenate([np.zeros((TAPS - 1, H)), b * u])
            taps = t[q + "conv.conv.weight"][:, 0].astype(np.float64)
            y = c * sum(u[j : j + len(x)] * taps[:, j] for j in range(TAPS))
            x = x + o.linear(t, q + "conv.out_proj", y)
        else:
            a = q + "self_attn."
            heads = [rms(o.linear(t, a + "%s_proj" % k, h).reshape(len(x), -1, DIM), t[a + "%s_layernorm.weight" % k]) for k in "qk"]
            v = o.linear(t, a + "v_proj", h).reshape(len(x), -1, DIM)
            x = x + o.linear(t, a + "out_proj", o.attention(o.turn(heads[0], angles), o.turn(heads[1], angles), v, True))
        h = rms(x, t[q + "ffn_norm.weight"])
        f = q + "feed_forward."
        x = x + o.linear(t, f + "w2", o.silu(o.linear(t, f + "w1", h)) * o.linear(t, f + "w3", h))
    return rms(x, t[p + "embedding_norm.weight"]) @ t[p + "embed_tokens.weight"].astype(np.float64).T


# ---- Images ----------------------------------------------------------------------------------

def whole_size(width, height, edge, least, most):
    """Pixels: multiples of edge, within so many."""
    w, h = (max(edge, round(n / edge) * edge) for n in (width, height))
    if w * h > most:
        beta = math.sqrt(width * height / most)
        w, h = (max(edge, math.floor(n / beta / edge) * edge) for n in (width, height))
    elif w * h < least:
        beta = math.sqrt(least / (width * height))
        w, h = (math.ceil(n * beta / edge) * edge for n in (width, height))
    return w, h


def squares(width, height, tile, least, most):
    """Across and down: those whose shape is nearest; of equal ones the larger where the image has half of its pixels."""
    best, found = math.inf, (1, 1)
    for a, d in sorted(((a, d) for a in range(1, most + 1) for d in range(1, most + 1) if least <= a * d <= most), key=lambda x: x[0] * x[1]):
        off = abs(width / height - a / d)
        if off < best or off == best and width * height > 0.5 * tile * tile * a * d:
            best, found = off, (a, d)
    return found


def shown(pixels, c=o.IMAGES):
    """What the tower sees of an image: its squares and then the whole, or the whole alone; and how many across, down."""
    height, width = pixels.shape[:2]
    edge = c["encoder_patch_size"] * c["downsample_factor"]
    least, most = (c[k] * edge * edge for k in ("min_image_tokens", "max_image_tokens"))
    w, h = whole_size(width, height, edge, least, most)
    rounded = [max(c["encoder_patch_size"], round(n / edge) * edge) for n in (width, height)]
    whole = resize(pixels, w, h, False)
    if rounded[0] * rounded[1] <= most * c["max_pixels_tolerance"]:
        return [whole], (1, 1)
    across, down = squares(width, height, c["tile_size"], c["min_tiles"], c["max_tiles"])
    n, cut = c["tile_size"], resize(pixels, across * c["tile_size"], down * c["tile_size"], False)
    return [cut[y * n : (y + 1) * n, x * n : (x + 1) * n] for y in range(down) for x in range(across)] + [whole], (across, down)


def sizes():
    """Of images of many shapes."""
    random = np.random.default_rng(5)
    given = [(w, h) for w, h in np.exp(random.uniform(0, 8.5, (600, 2))).astype(int).tolist() if max(w, h) < 190 * min(w, h)]
    given += [(w, h) for w in range(16, 2100, 64) for h in (512, 720, 736, 1024, 1536)]
    out = []
    for w, h in given:
        rounded = [max(16, round(n / 32) * 32) for n in (w, h)]
        large = rounded[0] * rounded[1] > 256 * 1024 * 2.0
        out.append((w, h, *whole_size(w, h, 32, 64 * 1024, 256 * 1024), *(squares(w, h, 512, 2, 10) if large else (0, 0))))
    return np.array(out, np.int32)


def patches_of(pixels):
    x = pixels.astype(np.float64) / 127.5 - 1
    rows, columns = x.shape[0] // PATCH, x.shape[1] // PATCH
    return x.reshape(rows, PATCH, columns, PATCH, 3).swapaxes(1, 2).reshape(rows * columns, -1), (1, rows, columns)


def prompt_of(parts, grid, text):
    n = [x.shape[0] * x.shape[1] // (PATCH * MERGE) ** 2 for x in parts]
    ids = [START]
    for i, rows in enumerate(n):
        if len(n) > 1:
            ids.append(THUMBNAIL if i == len(n) - 1 else FIRST + i // grid[0] * 3 + i % grid[0])
        ids += [o.IMAGE] * rows
    return ids + [END] + list(text)


def large():
    y, x, c = np.meshgrid(np.arange(130), np.arange(200), np.arange(3), indexing="ij")
    return ((x * 3 + y * 5 + c * 77) ^ (x // 9 * 31 + y // 7 * 17)).astype(np.uint8)


def see(t, parts):
    return np.concatenate([tower(t, p, g[1], g[2]) for p, g in map(patches_of, parts)])


def make(random):
    grids = [(1, 2, 8), (1, 6, 4)]
    pixels = random.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    one, many = shown(pixels), shown(large())
    assert [x.shape for x in one[0]] == [(32, 64, 3)] and many[1] == (3, 2) and len(many[0]) == 7
    prompts = [prompt_of(*x, b"What is it?") for x in (one, many)]
    while True:
        t = make_weights(random)
        values = [to_bf16(random.normal(0, 0.6, (g[1] * g[2], 768)).astype(np.float32)) for g in grids]
        seen = np.concatenate([tower(t, v.astype(np.float64), g[1], g[2]) for v, g in zip(values, grids)])
        text = lambda n: [int(i) for i in random.integers(2, 250, n)]
        ids = text(5) + [START] + [o.IMAGE] * 4 + [END] + text(3) + [START] + [o.IMAGE] * 6 + [END] + text(6)
        greedy = o.say(t, ids, grids, seen, logits)
        said = greedy and [o.say(t, p, [], see(t, x[0]), logits) for p, x in zip(prompts, (one, many))]
        if said and all(said):
            break
    golden = dict(input_ids=np.array([ids], np.int32), image_grid_thw=np.array(grids, np.int32), pixel_values=np.concatenate(values),
                  greedy_ids=np.array([greedy], np.int32), image=pixels, said_ids=np.array(said[0][len(prompts[0]) :], np.int32),
                  large_ids=np.array(prompts[1], np.int32), large_said=np.array(said[1][len(prompts[1]) :], np.int32),
                  large_levels=np.concatenate([x.reshape(-1) for x in many[0]]))
    golden["sizes"], golden["large_rows"] = sizes(), see(t, many[0]).astype(np.float32)
    golden["vis.merged"] = seen.astype(np.float32)
    golden["logits"] = logits(t, ids, grids, seen).astype(np.float32)
    return t, golden


# ---- transformers ------------------------------------------------------------------------------

def padded(values, grids):
    """As the processor has them: [images, patches, 768], a mask, and shapes."""
    import torch
    n = max(g[1] * g[2] for g in grids)
    x, mask, at = np.zeros((len(grids), n, 768), np.float32), np.zeros((len(grids), n), np.int64), 0
    for i, g in enumerate(grids):
        x[i, : g[1] * g[2]], mask[i, : g[1] * g[2]], at = values[at : at + g[1] * g[2]], 1, at + g[1] * g[2]
    return dict(pixel_values=torch.tensor(x), pixel_attention_mask=torch.tensor(mask),
                spatial_shapes=torch.tensor(np.array(grids)[:, 1:].astype(np.int64)))


def features(model, given):
    rows = model.get_image_features(**given)
    rows = getattr(rows, "pooler_output", rows)
    return np.concatenate([x.numpy() for x in rows]) if isinstance(rows, (list, tuple)) else rows.reshape(-1, H).numpy()


def check(folder):
    import torch, transformers
    from transformers import Lfm2VlForConditionalGeneration, Lfm2VlProcessor, PreTrainedTokenizerFast
    try:
        from transformers import Lfm2VlImageProcessorFast as Processor
    except ImportError:
        from transformers import Lfm2VlImageProcessor as Processor
    torch.set_grad_enabled(False)
    golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
    model, info = Lfm2VlForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    model = model.eval()
    print("transformers", transformers.__version__, {k: sorted(v)[:4] for k, v in info.items() if v})
    off = lambda a, b: np.linalg.norm(np.asarray(a, np.float64).reshape(-1) - b.reshape(-1)) / np.linalg.norm(b.astype(np.float64))

    def say(ids, given, want, name):
        ids = torch.tensor(np.array(ids).reshape(1, -1).astype(np.int64))
        said = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **given, max_new_tokens=len(want), do_sample=False, eos_token_id=-1)
        print(name + ": the same greedy tokens: %d of %d" % ((said[0].numpy()[ids.shape[1] :] == want).sum(), len(want)))

    grids = golden["image_grid_thw"].reshape(-1, 3)
    ids = golden["input_ids"].reshape(-1)
    given = padded(golden["pixel_values"].astype(np.float32), grids)
    print("vis.merged: %.2g" % off(features(model, given), golden["vis.merged"]))
    print("logits: %.2g" % off(model(input_ids=torch.tensor(ids[None].astype(np.int64)), **given).logits[0], golden["logits"]))
    say(ids, given, golden["greedy_ids"].reshape(-1)[len(ids) :], "patches")

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), pad_token="<|endoftext|>", eos_token="<|im_end|>")
    image = Processor(**o.IMAGES)
    processor = Lfm2VlProcessor(image_processor=image, tokenizer=tokenizer)
    for name, pixels, want_ids, want in (("image", golden["image"], None, "said_ids"), ("large", large(), "large_ids", "large_said")):
        x = processor(images=[torch.tensor(pixels).permute(2, 0, 1)], text=["<image>What is it?"], return_tensors="pt")
        parts, grid = shown(pixels)
        ids = x.pop("input_ids")[0].numpy()
        x.pop("attention_mask", None), x.pop("token_type_ids", None)
        print(name, "ids are the same:", np.array_equal(ids, prompt_of(parts, grid, b"What is it?")), x["spatial_shapes"].tolist())
        mask = x["pixel_attention_mask"].bool().numpy()
        mine = np.concatenate([patches_of(p)[0] for p in parts])
        print(name, "levels are at most %.3f off" % (np.abs(x["pixel_values"].numpy()[mask] - mine).max() * 127.5))
        say(ids, dict(x), golden[want].reshape(-1), name)
    usual = {k: v for k, v in o.IMAGES.items() if k not in ("min_image_tokens", "max_image_tokens", "tile_size", "max_tiles")}
    usual.update(min_image_tokens=64, max_image_tokens=256, tile_size=512, max_tiles=10)
    image, random, wrong, worst, n = Processor(**usual), np.random.default_rng(1), [], 0, 0
    given = [(int(a), int(b)) for a, b in np.exp(random.uniform(2.5, 6.8, (20, 2)))]
    given += [(720, 720), (736, 736), (704, 704), (1024, 512), (512, 1024), (10, 1000), (16, 16)]
    for w, h in given:
        pixels = random.integers(0, 256, (h // 16 + 1, w // 16 + 1, 3)).repeat(16, 0).repeat(16, 1)[:h, :w].astype(np.uint8)
        x = image(images=[torch.tensor(pixels).permute(2, 0, 1)], return_row_col_info=True, return_tensors="pt")
        parts, grid = shown(pixels, usual)
        shapes = [[p.shape[0] // 16, p.shape[1] // 16] for p in parts]
        info = [int(np.asarray(x[k]).reshape(-1)[0]) for k in ("image_cols", "image_rows")]
        if x["spatial_shapes"].tolist() != shapes or info != list(grid):
            wrong.append((w, h, x["spatial_shapes"].tolist(), info, shapes, grid))
            continue
        mask = x["pixel_attention_mask"].bool().numpy()
        d = np.abs(x["pixel_values"].numpy()[mask] - np.concatenate([patches_of(p)[0] for p in parts])) * 127.5
        worst, n = max(worst, d.max()), n + (d > 0.5).sum() / d.size
    print("sizes: %d of %d are the same; levels are at most %.3f off, %.4f%% of them are" % (len(given) - len(wrong), len(given), worst, 100 * n / len(given)))
    print(wrong[:5])


def write_shape(folder):
    globals().update(H=1024, HEADS=16, DIM=64, FF=64, V_DEPTH=12, V_H=768, V_HEADS=12, V_FF=3072, SIDE=16, BETWEEN=2560)
    TEXT.update(hidden_size=H, num_attention_heads=HEADS, intermediate_size=FF, max_position_embeddings=4096)
    VISION.update(num_hidden_layers=V_DEPTH, hidden_size=V_H, num_attention_heads=V_HEADS, intermediate_size=V_FF, num_patches=SIDE * SIDE)
    o.CONFIG.update(projector_hidden_size=BETWEEN)
    o.IMAGES.update(min_image_tokens=64, max_image_tokens=256, tile_size=512, max_tiles=10)
    random = np.random.default_rng(3)
    across, down = np.meshgrid(np.arange(1536), np.arange(1024))
    levels = np.stack([across // 6, down // 4, (across + down) // 10], -1) + random.integers(0, 9, (1024, 1536, 3))
    levels = np.clip(levels, 0, 255).astype(np.uint8)
    o.write(folder, make_weights(random), dict(image=levels))
    with open(os.path.join(folder, "whole.png"), "wb") as f:
        f.write(o.png(np.ascontiguousarray(levels[:512, :512])))


def main():
    if sys.argv[1:2] == ["--shape"]:
        return write_shape(sys.argv[2])
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "lfm2vl_sees")
    if sys.argv[1:2] == ["--transformers"]:
        return check(sys.argv[2] if len(sys.argv) > 2 else folder)
    o.write(folder, *make(np.random.default_rng(13)))


if __name__ == "__main__":
    sys.exit(main())
