#!/usr/bin/env python3
"""Writes tests/oracles/smolvlm_sees: a tiny SmolVLM, and what plain numpy makes of texts with images in float64 (`make
oracles`). Needs numpy. Written from the papers and from what transformers documents, not from tern.

golden.safetensors: input_ids with one token for each row of what the tower sees, image_grid_thw of each, pixel_values,
vis.merged, logits and greedy_ids; image, which is cut into four squares, image_ids, its prompt, levels, the pixels of the
squares and then the whole's, rows and said_ids; small_ids: the prompt of an image that is not cut; sizes: for each image
its width and height, and how many squares across and down (0 and 0: none) by the limits of SmolVLM 256M's own files.
"""
import math, os, sys
import numpy as np
import image_tokens_oracles as o
from safetensors_np import to_bf16
from vit_oracles import resize

AROUND, WHOLE, GRID = "<fake_token_around_image>", "<global-img>", 4
o.SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", AROUND, WHOLE]
o.SPECIAL += ["<row_%d_col_%d>" % (i // GRID + 1, i % GRID + 1) for i in range(GRID * GRID)]
o.N_VOCAB, o.IMAGE = 256 + len(o.SPECIAL) + 2, 259
END, LINES = 258, 10
H, HEADS, DIM, FF, LAYERS = 32, 2, 16, 40, 2
# A square has a column of pixels that is no patch's, as in the largest of these models.
V_DEPTH, V_H, V_HEADS, V_FF, SIDE, PATCH, MERGE = 2, 24, 3, 32, 4, 8, 2
EDGE, LONGER, ROWS = SIDE * PATCH + 1, 2 * (SIDE * PATCH + 1), (SIDE // MERGE) ** 2
TEXT = dict(model_type="llama", vocab_size=o.N_VOCAB, hidden_size=H, intermediate_size=FF, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, num_key_value_heads=1, head_dim=DIM, hidden_act="silu", rms_norm_eps=1e-5,
            max_position_embeddings=256, eos_token_id=END, bos_token_id=257, pad_token_id=256, tie_word_embeddings=False,
            rope_theta=10000.0, attention_bias=False, mlp_bias=False)
VISION = dict(model_type="smolvlm_vision", num_hidden_layers=V_DEPTH, hidden_size=V_H, intermediate_size=V_FF,
              num_attention_heads=V_HEADS, image_size=EDGE, patch_size=PATCH, num_channels=3,
              hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, attention_dropout=0.0)
o.CONFIG = dict(model_type="smolvlm", architectures=["SmolVLMForConditionalGeneration"], tie_word_embeddings=False,
                image_token_id=o.IMAGE, scale_factor=MERGE, text_config=TEXT, vision_config=VISION)
o.IMAGES = dict(image_processor_type="SmolVLMImageProcessor", do_resize=True, size=dict(longest_edge=LONGER), resample=1,
                do_image_splitting=True, max_image_size=dict(longest_edge=EDGE), do_rescale=True, rescale_factor=1 / 255,
                do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3, do_pad=True)
o.TEMPLATE = o.TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", "<image>")


# ---- Weights -----------------------------------------------------------------------------------

def make_weights(random):
    t = {}
    matrix, norm = o.makers(random, t.__setitem__)
    p, v = "model.text_model.", "model.vision_model."
    t[p + "embed_tokens.weight"] = random.normal(0, 0.7, (o.N_VOCAB, H))
    matrix("lm_head", o.N_VOCAB, H)
    norm(p + "norm", H)
    for i in range(LAYERS):
        q = p + "layers.%d." % i
        norm(q + "input_layernorm", H)
        norm(q + "post_attention_layernorm", H)
        matrix(q + "self_attn.q_proj", HEADS * DIM, H)
        matrix(q + "self_attn.k_proj", DIM, H)
        matrix(q + "self_attn.v_proj", DIM, H)
        matrix(q + "self_attn.o_proj", H, HEADS * DIM, gain=2)
        for name, rows, cols in (("gate_proj", FF, H), ("up_proj", FF, H), ("down_proj", H, FF)):
            matrix(q + "mlp." + name, rows, cols)
    matrix(v + "embeddings.patch_embedding", V_H, 3 * PATCH * PATCH, True)
    t[v + "embeddings.patch_embedding.weight"] = t[v + "embeddings.patch_embedding.weight"].reshape(V_H, 3, PATCH, PATCH)
    t[v + "embeddings.position_embedding.weight"] = random.normal(0, 0.5, (SIDE * SIDE, V_H))
    o.siglip_weights(matrix, norm, v, V_DEPTH, V_H, V_FF)
    matrix("model.connector.modality_projection.proj", H, MERGE * MERGE * V_H)
    return {name: to_bf16(x.astype(np.float32)) for name, x in t.items()}


# ---- The tower and the text --------------------------------------------------------------------

def tower(t, patches):
    """patches: from left to right and down, [y, x, colour] each."""
    v = "model.vision_model."
    by_colour = patches.reshape(-1, PATCH * PATCH, 3).swapaxes(1, 2).reshape(len(patches), -1)
    h = o.linear(t, v + "embeddings.patch_embedding", by_colour) + t[v + "embeddings.position_embedding.weight"].astype(np.float64)
    h = o.siglip(t, v, h, V_DEPTH, V_HEADS)
    h = h.reshape(SIDE // MERGE, MERGE, SIDE // MERGE, MERGE, V_H).swapaxes(1, 2).reshape(-1, MERGE * MERGE * V_H)
    return o.linear(t, "model.connector.modality_projection.proj", h)


def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w.astype(np.float64)


def logits(t, ids, grids, seen):
    p = "model.text_model."
    x = t[p + "embed_tokens.weight"].astype(np.float64)[ids]
    x[np.array(ids) == o.IMAGE] = seen
    angles = np.arange(len(ids))[:, None] * 10000.0 ** (-np.arange(DIM // 2) * 2 / DIM)
    for i in range(LAYERS):
        q, a = p + "layers.%d." % i, p + "layers.%d.self_attn." % i
        h = rms(x, t[q + "input_layernorm.weight"])
        heads = [o.linear(t, a + "%s_proj" % c, h).reshape(len(x), -1, DIM) for c in "qkv"]
        y = o.attention(o.turn(heads[0], angles), o.turn(heads[1], angles), heads[2], True)
        x = x + o.linear(t, a + "o_proj", y)
        h = rms(x, t[q + "post_attention_layernorm.weight"])
        x = x + o.linear(t, q + "mlp.down_proj", o.silu(o.linear(t, q + "mlp.gate_proj", h)) * o.linear(t, q + "mlp.up_proj", h))
    return o.linear(t, "lm_head", rms(x, t[p + "norm.weight"]))


# ---- Images ----------------------------------------------------------------------------------

def squares(width, height, longer, tile):
    """Across and down, as transformers' processor finds them; (0, 0): the image is not cut."""
    shape = width / height
    w, h = (longer, int(longer / shape)) if width >= height else (int(longer * shape), longer)
    w, h = (w, h + h % 2) if width >= height else (w + w % 2, h)
    w, h = max(w, 1), max(h, 1)
    shape, up = w / h, lambda n: math.ceil(n / tile) * tile
    w, h = (up(w), up(int(up(w) / shape))) if w >= h else (up(int(up(h) * shape)), up(h))
    w, h = max(w, tile), max(h, tile)
    return (w // tile, h // tile) if max(w, h) > tile else (0, 0)


def sizes():
    random = np.random.default_rng(5)
    given = [(w, h) for w, h in np.exp(random.uniform(0, 8.5, (600, 2))).astype(int).tolist() if max(w, h) < 190 * min(w, h)]
    given += [(w, h) for w in range(16, 2100, 64) for h in (511, 512, 513, 768, 1024, 1025)]
    return np.array([(w, h, *squares(w, h, 2048, 512)) for w, h in given], np.int32)


def shown(pixels):
    """What the tower sees: the squares and then the whole; and how many across and down."""
    across, down = squares(pixels.shape[1], pixels.shape[0], LONGER, EDGE)
    cut = resize(pixels, across * EDGE, down * EDGE, True) if across else None
    parts = [cut[y * EDGE :, x * EDGE :][:EDGE, :EDGE] for y in range(down) for x in range(across)]
    return parts + [resize(pixels, EDGE, EDGE, True)], (across, down)


def patches_of(pixels):
    x = pixels[: SIDE * PATCH, : SIDE * PATCH].astype(np.float64) / 127.5 - 1
    return x.reshape(SIDE, PATCH, SIDE, PATCH, 3).swapaxes(1, 2).reshape(SIDE * SIDE, -1)


def prompt_of(grid, text):
    mark, rows, ids = (lambda name: 256 + o.SPECIAL.index(name)), [o.IMAGE] * ROWS, []
    for y in range(grid[1]):
        for x in range(grid[0]):
            ids += [mark(AROUND), mark("<row_%d_col_%d>" % (y + 1, x + 1))] + rows
        ids.append(LINES)
    return ids + [LINES] * (grid[1] > 0) + [mark(AROUND), mark(WHOLE)] + rows + [mark(AROUND)] + list(text)


def make(random):
    grids = [(1, SIDE, SIDE)] * 2
    pixels = random.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    pixels[10:30, 20:60] = 255 - pixels[10:30, 20:60] // 4
    parts, grid = shown(pixels)
    assert grid == (2, 2) and len(parts) == 5
    prompt = prompt_of(grid, b"What is it?")
    while True:
        t = make_weights(random)
        values = [to_bf16(random.normal(0, 0.6, (SIDE * SIDE, 3 * PATCH * PATCH)).astype(np.float32)) for g in grids]
        seen = np.concatenate([tower(t, v.astype(np.float64)) for v in values])
        text = lambda n: [int(i) for i in random.integers(2, 250, n)]
        ids = text(5) + [o.IMAGE] * ROWS + text(3) + [o.IMAGE] * ROWS + text(6)
        greedy = o.say(t, ids, grids, seen, logits)
        rows = np.concatenate([tower(t, patches_of(p)) for p in parts])
        said = greedy and o.say(t, prompt, [], rows, logits)
        if said:
            break
    golden = dict(input_ids=np.array([ids], np.int32), image_grid_thw=np.array(grids, np.int32), pixel_values=np.concatenate(values),
                  greedy_ids=np.array([greedy], np.int32), image=pixels, image_ids=np.array(prompt, np.int32),
                  said_ids=np.array(said[len(prompt) :], np.int32), levels=np.concatenate([p.reshape(-1) for p in parts]),
                  rows=rows.astype(np.float32), small_ids=np.array(prompt_of((0, 0), b""), np.int32), sizes=sizes())
    golden["vis.merged"] = seen.astype(np.float32)
    golden["logits"] = logits(t, ids, grids, seen).astype(np.float32)
    return t, golden


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "smolvlm_sees")
    o.write(folder, *make(np.random.default_rng(23)))


if __name__ == "__main__":
    sys.exit(main())
