#!/usr/bin/env python3
"""Writes tests/oracles/qwen35_sees: a tiny Qwen3.5 with its tower, images, and what plain numpy makes of texts with
them in float64 (`make oracles`). Needs numpy.

golden.safetensors: input_ids with one token for each row of the images, image_grid_thw, pixel_values, vis.merged,
logits and greedy_ids of these patches; image, the pixels of another one, and said_ids, what is said after the
prompt that `tern run --image` makes of it.

    image_tokens_oracles.py --shape FOLDER

writes a model of the shape of Qwen3.5-0.8B, tower and text (1.7 GB in BF16), with random weights, and image.png of
768 x 768 pixels: for measuring.
"""
import json, math, os, struct, sys, zlib
import numpy as np
from safetensors_np import to_bf16, write_safetensors
from vit_oracles import resize

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
N_VOCAB = 256 + 8
END, START, IMAGE, VIDEO = 256, 259, 261, 262
H, HEADS, DIM, FF = 32, 2, 16, 40
V_DEPTH, V_H, V_HEADS, V_FF, SIDE, PATCH, MERGE = 2, 24, 3, 32, 4, 16, 2
N_MORE, GAP = 10, 0.02
TEXT = dict(model_type="qwen3_5_text", vocab_size=N_VOCAB, hidden_size=H, intermediate_size=FF, num_hidden_layers=4,
            num_attention_heads=HEADS, num_key_value_heads=1, head_dim=DIM, hidden_act="silu", rms_norm_eps=1e-6,
            linear_conv_kernel_dim=4, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8,
            linear_value_head_dim=8, max_position_embeddings=256, eos_token_id=END, tie_word_embeddings=True,
            layer_types=["linear_attention", "full_attention"] * 2,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75,
                                 mrope_interleaved=True, mrope_section=[2, 2, 2]))
VISION = dict(model_type="qwen3_5_vision", depth=V_DEPTH, hidden_size=V_H, intermediate_size=V_FF, num_heads=V_HEADS,
              num_position_embeddings=SIDE * SIDE, out_hidden_size=H, patch_size=PATCH, spatial_merge_size=MERGE,
              temporal_patch_size=2, in_channels=3, hidden_act="gelu_pytorch_tanh", deepstack_visual_indexes=[])
CONFIG = dict(model_type="qwen3_5", architectures=["Qwen3_5ForConditionalGeneration"], tie_word_embeddings=True,
              image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=START + 1,
              text_config=TEXT, vision_config=VISION)
IMAGES = dict(size=dict(shortest_edge=1024, longest_edge=8192), patch_size=PATCH, merge_size=MERGE, resample=3,
                temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
            "{% for p in m.content %}{% if p.type == 'image' or 'image_url' in p or 'image' in p %}"
            "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in p %}{{ p.text }}{% endif %}{% endfor %}"
            "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


# ---- Weights -----------------------------------------------------------------------------------

def makers(random, put, plus=0):
    """What makes a matrix and a norm, with biases if wanted. plus: what models add to weights of norms without biases."""
    def matrix(name, rows, cols, bias=False, gain=1.0):
        put(name + ".weight", random.normal(0, gain / math.sqrt(cols), (rows, cols)))
        if bias:
            put(name + ".bias", random.normal(0, 0.1, rows))

    def norm(name, n, biased=False, plus=plus):
        put(name + ".weight", random.uniform(0.6, 1.5, n) - (0 if biased else plus))
        if biased:
            put(name + ".bias", random.normal(0, 0.1, n))

    return matrix, norm


def siglip_weights(matrix, norm, v, depth, n, n_ff):
    for i in range(depth):
        b = v + "encoder.layers.%d." % i
        norm(b + "layer_norm1", n, True)
        norm(b + "layer_norm2", n, True)
        for part in "qkv":
            matrix(b + "self_attn.%s_proj" % part, n, n, True, 2 if part != "v" else 1)
        matrix(b + "self_attn.out_proj", n, n, True)
        matrix(b + "mlp.fc1", n_ff, n, True)
        matrix(b + "mlp.fc2", n, n_ff, True)
    norm(v + "post_layernorm", n, True)


def make_weights(random):
    t = {}

    def put(name, x):
        t[name] = to_bf16(np.asarray(x, np.float32))

    matrix, norm = makers(random, put)

    p = "model.language_model."
    put(p + "embed_tokens.weight", random.normal(0, 0.7, (N_VOCAB, H)))
    norm(p + "norm", H, plus=1)
    n_kv, n_pairs, d = (TEXT[k] for k in ("num_key_value_heads", "linear_num_key_heads", "linear_key_head_dim"))
    mixed = n_pairs * d  # as many heads of keys as of values, of one size
    for i, kind in enumerate(TEXT["layer_types"]):
        q = p + "layers.%d." % i
        norm(q + "input_layernorm", H, plus=1)
        norm(q + "post_attention_layernorm", H, plus=1)
        if kind == "full_attention":
            a = q + "self_attn."
            matrix(a + "q_proj", 2 * HEADS * DIM, H)
            matrix(a + "k_proj", n_kv * DIM, H)
            matrix(a + "v_proj", n_kv * DIM, H)
            matrix(a + "o_proj", H, HEADS * DIM, gain=2)
            norm(a + "q_norm", DIM, plus=0)
            norm(a + "k_norm", DIM, plus=0)
        else:
            a = q + "linear_attn."
            matrix(a + "in_proj_qkv", 3 * mixed, H)
            matrix(a + "in_proj_z", mixed, H)
            matrix(a + "in_proj_a", n_pairs, H)
            matrix(a + "in_proj_b", n_pairs, H)
            put(a + "conv1d.weight", random.normal(0, 0.7, (3 * mixed, 1, 4)))
            put(a + "A_log", np.log(random.uniform(0.02, 1.5, n_pairs)))
            put(a + "dt_bias", random.uniform(-2, 1, n_pairs))
            norm(a + "norm", d)
            matrix(a + "out_proj", H, mixed)
        for name, rows, cols in (("gate_proj", FF, H), ("up_proj", FF, H), ("down_proj", H, FF)):
            matrix(q + "mlp." + name, rows, cols)
    v = "model.visual."
    put(v + "patch_embed.proj.weight", random.normal(0, 0.04, (V_H, 3, 2, PATCH, PATCH)))
    put(v + "patch_embed.proj.bias", random.normal(0, 0.1, V_H))
    put(v + "pos_embed.weight", random.normal(0, 0.5, (SIDE * SIDE, V_H)))
    for i in range(V_DEPTH):
        b = v + "blocks.%d." % i
        norm(b + "norm1", V_H, True)
        norm(b + "norm2", V_H, True)
        matrix(b + "attn.qkv", 3 * V_H, V_H, True, 2)
        matrix(b + "attn.proj", V_H, V_H, True)
        matrix(b + "mlp.linear_fc1", V_FF, V_H, True)
        matrix(b + "mlp.linear_fc2", V_H, V_FF, True)
    norm(v + "merger.norm", V_H, True)
    matrix(v + "merger.linear_fc1", 4 * V_H, 4 * V_H, True)
    matrix(v + "merger.linear_fc2", H, 4 * V_H, True)
    return t


# ---- The tower ---------------------------------------------------------------------------------

def linear(t, name, x):
    y = x @ t[name + ".weight"].astype(np.float64).reshape(t[name + ".weight"].shape[0], -1).T
    return y + t[name + ".bias"] if name + ".bias" in t else y


def layer_norm(t, name, x, eps=1e-6):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[name + ".weight"] + t[name + ".bias"]


def turn(x, angles):
    """Pairs (i, i + n) of heads [rows, heads, dims] by angles [rows, n]."""
    n = angles.shape[1]
    a, b, c, s = x[..., :n], x[..., n : 2 * n], np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s, x[..., 2 * n :]], -1)


def attention(q, k, v, causal):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[2])
    if causal:
        s = np.where(np.tri(len(q), dtype=bool), s, -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(len(q), -1)


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def siglip(t, v, h, depth, heads):
    """SigLIP's layers, and the norm after them."""
    for i in range(depth):
        b = v + "encoder.layers.%d." % i
        x = layer_norm(t, b + "layer_norm1", h)
        q, k, w = (linear(t, b + "self_attn.%s_proj" % part, x).reshape(len(h), heads, -1) for part in "qkv")
        h = h + linear(t, b + "self_attn.out_proj", attention(q, k, w, False))
        h = h + linear(t, b + "mlp.fc2", gelu_tanh(linear(t, b + "mlp.fc1", layer_norm(t, b + "layer_norm2", h))))
    return layer_norm(t, v + "post_layernorm", h)


def places(rows, columns):
    """Row and column of the patches, in blocks of MERGE x MERGE."""
    return np.array([(y + j, x + i) for y in range(0, rows, MERGE) for x in range(0, columns, MERGE)
                     for j in range(MERGE) for i in range(MERGE)])


def learnt(table, at, n):
    """The grid's rows at coordinates that end where it ends, one axis after the other."""
    x = at * (SIDE - 1) / (n - 1)
    low = np.minimum(x.astype(int), SIDE - 2)
    return low, (x - low)[:, None]


def merge(t, name, h, normed_after):
    """Four patches to a row; of layers in between the norm is that of all four together."""
    h = h.reshape(-1, 4 * V_H) if normed_after else h
    u = linear(t, name + "linear_fc1", layer_norm(t, name + "norm", h).reshape(-1, 4 * V_H))
    return linear(t, name + "linear_fc2", u / 2 * (1 + np.vectorize(math.erf)(u / math.sqrt(2))))


def tower(t, patches, rows, columns, deep=()):
    """Rows of the last layer, and beside them those of the layers of `deep`."""
    p, d, between = places(rows, columns), V_H // V_HEADS, []
    table = t["model.visual.pos_embed.weight"].astype(np.float64).reshape(SIDE, SIDE, V_H)
    (y, down), (x, right) = learnt(table, p[:, 0], rows), learnt(table, p[:, 1], columns)
    upper = table[y, x] * (1 - right) + table[y, x + 1] * right
    lower = table[y + 1, x] * (1 - right) + table[y + 1, x + 1] * right
    h = linear(t, "model.visual.patch_embed.proj", patches) + upper * (1 - down) + lower * down
    f = 10000.0 ** (-np.arange(d // 4) * 4 / d)
    angles = np.concatenate([p[:, :1] * f, p[:, 1:] * f], 1)
    for i in range(V_DEPTH):
        b = "model.visual.blocks.%d." % i
        q, k, v = linear(t, b + "attn.qkv", layer_norm(t, b + "norm1", h)).reshape(len(h), 3, V_HEADS, d).swapaxes(0, 1)
        h = h + linear(t, b + "attn.proj", attention(turn(q, angles), turn(k, angles), v, False))
        u = linear(t, b + "mlp.linear_fc1", layer_norm(t, b + "norm2", h))
        u = gelu_tanh(u)
        h = h + linear(t, b + "mlp.linear_fc2", u)
        if i in deep:
            between.append(merge(t, "model.visual.deepstack_merger_list.%d." % len(between), h, True))
    return np.concatenate([merge(t, "model.visual.merger.", h, False)] + between, 1)


# ---- The text ----------------------------------------------------------------------------------

def rms(x, w, plus=1):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * (w.astype(np.float64) + plus)


def silu(x):
    return x / (1 + np.exp(-x))


def delta_net(t, a, x):
    qkv = linear(t, a + "in_proj_qkv", x)
    padded = np.concatenate([np.zeros((3, 48)), qkv])
    qkv = silu(sum(padded[j : j + len(x)] * t[a + "conv1d.weight"][:, 0, j] for j in range(4)))
    q, k, v = (qkv[:, i : i + 16].reshape(-1, 2, 8) for i in (0, 16, 32))
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (q, k))
    q = q / math.sqrt(8)
    beta = 1 / (1 + np.exp(-linear(t, a + "in_proj_b", x)))
    step = np.log1p(np.exp(linear(t, a + "in_proj_a", x) + t[a + "dt_bias"]))
    decay = np.exp(-np.exp(t[a + "A_log"].astype(np.float64)) * step)
    state, out = np.zeros((2, 8, 8)), np.zeros((len(x), 2, 8))
    for i in range(len(x)):
        state = state * decay[i][:, None, None]
        read = np.einsum("hkv,hk->hv", state, k[i])
        state = state + np.einsum("hk,hv->hkv", k[i], (v[i] - read) * beta[i][:, None])
        out[i] = np.einsum("hkv,hk->hv", state, q[i])
    out = rms(out, t[a + "norm.weight"], 0) * silu(linear(t, a + "in_proj_z", x)).reshape(-1, 2, 8)
    return linear(t, a + "out_proj", out.reshape(len(x), -1))


def gated_attention(t, a, x, angles):
    qg = linear(t, a + "q_proj", x).reshape(-1, HEADS, 2 * DIM)
    q = rms(qg[..., :DIM], t[a + "q_norm.weight"])
    k = rms(linear(t, a + "k_proj", x).reshape(-1, 1, DIM), t[a + "k_norm.weight"])
    v = linear(t, a + "v_proj", x).reshape(-1, 1, DIM)
    y = attention(turn(q, angles), turn(k, angles), v, True)
    return linear(t, a + "o_proj", y / (1 + np.exp(-qg[..., DIM:].reshape(len(x), -1))))


def positions(ids, grids):
    """Time, row and column of each token: an image lies in a plane, the text after it goes on behind its longer edge."""
    out, at, i, n = np.zeros((3, len(ids)), int), 0, 0, 0
    while i < len(ids):
        if ids[i] != IMAGE:
            out[:, i] = at
            at, i = at + 1, i + 1
            continue
        rows, columns = grids[n][1] // MERGE, grids[n][2] // MERGE
        for k in range(rows * columns):
            out[:, i + k] = at, at + k // columns, at + k % columns
        at, i, n = at + max(rows, columns), i + rows * columns, n + 1
    return out


def logits(t, ids, grids, seen):
    p = "model.language_model."
    x = t[p + "embed_tokens.weight"].astype(np.float64)[ids]
    x[np.array(ids) == IMAGE] = seen
    n = int(DIM * 0.75) // 2
    f, at = 10000.0 ** (-np.arange(n) / n), positions(ids, grids)
    angles = np.stack([at[j % 3] * f[j] for j in range(n)], 1)
    for i, kind in enumerate(TEXT["layer_types"]):
        q = p + "layers.%d." % i
        h = rms(x, t[q + "input_layernorm.weight"])
        x = x + (gated_attention(t, q + "self_attn.", h, angles) if kind == "full_attention" else delta_net(t, q + "linear_attn.", h))
        h = rms(x, t[q + "post_attention_layernorm.weight"])
        x = x + linear(t, q + "mlp.down_proj", silu(linear(t, q + "mlp.gate_proj", h)) * linear(t, q + "mlp.up_proj", h))
    return rms(x, t[p + "norm.weight"]) @ t[p + "embed_tokens.weight"].astype(np.float64).T


def say(t, ids, grids, seen, logits=logits):
    """Greedy; None: two tokens are too near each other for float32 to choose."""
    ids = list(ids)
    for _ in range(N_MORE):
        y = logits(t, ids, grids, seen)[-1]
        best = np.sort(y)[-2:]
        if best[1] - best[0] < GAP * math.sqrt((y * y).mean()) or y.argmax() >= 256:
            return None
        ids.append(int(y.argmax()))
    return ids


# ---- Images ----------------------------------------------------------------------------------

def patches_of(pixels):
    x = pixels.astype(np.float64) / 127.5 - 1
    rows, columns = x.shape[0] // PATCH, x.shape[1] // PATCH
    out = []
    for r, c in places(rows, columns):
        square = x[r * PATCH : (r + 1) * PATCH, c * PATCH : (c + 1) * PATCH].transpose(2, 0, 1)
        out.append(np.repeat(square[:, None], 2, 1).reshape(-1))
    return np.array(out), (1, rows, columns)


def png(pixels):
    part = lambda kind, x: struct.pack(">I", len(x)) + kind + x + struct.pack(">I", zlib.crc32(kind + x))
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows, 9)) + part(b"IEND", b"")


def tokenizer():
    """Bytes and marks; of a larger vocabulary the rest are names that no text has."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    vocab = {chr(b if b in printable else next(other)): b for b in range(256)}
    vocab.update(("<%d>" % i, i) for i in range(256 + max(8, len(SPECIAL)), N_VOCAB))
    added = [dict(id=256 + i, content=s, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
             for i, s in enumerate(SPECIAL)]
    return dict(version="1.0", added_tokens=added, normalizer=None,
                pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
                decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
                post_processor=None, model=dict(type="BPE", dropout=None, unk_token=None, byte_fallback=False, vocab=vocab, merges=[]))


def make(random):
    grids = [(1, 4, 6), (1, 6, 2)]
    pixels = random.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    pixels[10:30, 20:60] = 255 - pixels[10:30, 20:60] // 4
    sized, own = patches_of(resize(pixels, 64, 32, True))
    while True:
        t = make_weights(random)
        values = [to_bf16(random.normal(0, 0.6, (g[1] * g[2], 1536)).astype(np.float32)) for g in grids]
        merged = [tower(t, v.astype(np.float64), g[1], g[2]) for v, g in zip(values, grids)]
        text = lambda n: [int(i) for i in random.integers(2, 250, n)]
        ids = text(5) + [START] + [IMAGE] * 6 + [START + 1] + text(3) + [START] + [IMAGE] * 3 + [START + 1] + text(6)
        seen = np.concatenate(merged)
        greedy = say(t, ids, grids, seen)
        prompt = [START] + [IMAGE] * (own[1] * own[2] // 4) + [START + 1] + list(b"What is it?")
        said = greedy and say(t, prompt, [own], tower(t, sized, own[1], own[2]))
        if said:
            break
    golden = dict(input_ids=np.array([ids], np.int32), image_grid_thw=np.array(grids, np.int32),
                  pixel_values=np.concatenate(values), greedy_ids=np.array([greedy], np.int32), image=pixels,
                  said_ids=np.array(said[len(prompt) :], np.int32))
    golden["vis.merged"] = seen.astype(np.float32)
    golden["logits"] = logits(t, ids, grids, seen).astype(np.float32)
    return t, golden


def write(folder, t, golden):
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), t, set(t))
    with open(os.path.join(folder, "image.png"), "wb") as f:
        f.write(png(golden["image"]))
    write_safetensors(os.path.join(folder, "golden.safetensors"), golden, {"pixel_values"})
    files = {"config.json": CONFIG, "preprocessor_config.json": IMAGES, "tokenizer.json": tokenizer(),
             "tokenizer_config.json": dict(chat_template=TEMPLATE, eos_token="<|im_end|>")}
    for name, x in files.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(json.dumps(x, ensure_ascii=name == "tokenizer.json", indent=None if name.startswith("tok") else 1) + "\n")


def write_shape(folder):
    globals().update(N_VOCAB=248320, H=1024, HEADS=8, DIM=256, FF=3584, V_DEPTH=12, V_H=768, V_HEADS=12, V_FF=3072, SIDE=48)
    TEXT.update(vocab_size=N_VOCAB, hidden_size=H, intermediate_size=FF, num_hidden_layers=24, num_attention_heads=HEADS,
                num_key_value_heads=2, head_dim=DIM, linear_num_key_heads=16, linear_num_value_heads=16, linear_key_head_dim=128,
                linear_value_head_dim=128, max_position_embeddings=262144, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 6,
                rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True,
                                     mrope_section=[11, 11, 10]))
    VISION.update(depth=V_DEPTH, hidden_size=V_H, num_heads=V_HEADS, intermediate_size=V_FF, num_position_embeddings=SIDE * SIDE, out_hidden_size=H)
    IMAGES.update(size=dict(shortest_edge=65536, longest_edge=16777216))
    random = np.random.default_rng(3)
    across, down = np.meshgrid(np.arange(768), np.arange(768))
    levels = np.stack([across // 3, down // 3, (across + down) // 6], -1) + random.integers(0, 9, (768, 768, 3))
    write(folder, make_weights(random), dict(image=np.clip(levels, 0, 255).astype(np.uint8)))


def main():
    if sys.argv[1:2] == ["--shape"]:
        return write_shape(sys.argv[2])
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "qwen35_sees")
    write(folder, *make(np.random.default_rng(7)))


if __name__ == "__main__":
    sys.exit(main())
