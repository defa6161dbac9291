#!/usr/bin/env python3
"""Writes tests/oracles/qwen3vl_sees: a tiny Qwen3-VL, images, and what plain numpy makes of texts with them in float64
(`make oracles`). Needs numpy. The tower is Qwen3.5's (image_tokens_oracles.py), of which rows of layers in between are read, too
("deepstack"): each such layer has a merger, and its rows are added to the image's in the text after one of the first
layers. Written from the paper and from what transformers documents, not from tern.

golden.safetensors: input_ids with one token for each row of the images, image_grid_thw, pixel_values, vis.merged,
vis.deep.N, logits and greedy_ids.

    deepstack_oracles.py --transformers [FOLDER]

asks transformers (4.57 or later, with torch) for the same numbers of the folder, and prints how far they are from its
golden file, and how many of the greedy tokens are the same. transformers computes in float32, so distances below 1e-4
say that the golden file is right.
"""
import json, math, os, sys
import numpy as np
import image_tokens_oracles as o
from safetensors_np import read_safetensors, to_bf16

DEEP = [0, 2]  # layers of the tower
DEPTH, LAYERS, SECTIONS = 3, 3, [4, 2, 2]
o.V_DEPTH = DEPTH
TEXT = dict(model_type="qwen3_vl_text", vocab_size=o.N_VOCAB, hidden_size=o.H, intermediate_size=o.FF, num_hidden_layers=LAYERS,
            num_attention_heads=o.HEADS, num_key_value_heads=1, head_dim=o.DIM, hidden_act="silu", rms_norm_eps=1e-6,
            max_position_embeddings=256, eos_token_id=o.END, tie_word_embeddings=True, attention_bias=False, rope_theta=5000.0,
            rope_scaling=dict(mrope_interleaved=True, mrope_section=SECTIONS, rope_type="default"))
VISION = dict(o.VISION, model_type="qwen3_vl", depth=DEPTH, deepstack_visual_indexes=DEEP)
CONFIG = dict(o.CONFIG, model_type="qwen3_vl", architectures=["Qwen3VLForConditionalGeneration"], text_config=TEXT,
              vision_config=VISION)


def make_weights(random):
    t = {}
    matrix, norm = o.makers(random, t.__setitem__)
    p, v = "model.language_model.", "model.visual."
    t[p + "embed_tokens.weight"] = random.normal(0, 0.7, (o.N_VOCAB, o.H))
    norm(p + "norm", o.H)
    for i in range(LAYERS):
        q = p + "layers.%d." % i
        norm(q + "input_layernorm", o.H)
        norm(q + "post_attention_layernorm", o.H)
        matrix(q + "self_attn.q_proj", o.HEADS * o.DIM, o.H)
        matrix(q + "self_attn.k_proj", o.DIM, o.H)
        matrix(q + "self_attn.v_proj", o.DIM, o.H)
        matrix(q + "self_attn.o_proj", o.H, o.HEADS * o.DIM, gain=2)
        norm(q + "self_attn.q_norm", o.DIM)
        norm(q + "self_attn.k_norm", o.DIM)
        for name, rows, cols in (("gate_proj", o.FF, o.H), ("up_proj", o.FF, o.H), ("down_proj", o.H, o.FF)):
            matrix(q + "mlp." + name, rows, cols)
    t[v + "patch_embed.proj.weight"] = random.normal(0, 0.04, (o.V_H, 3, 2, o.PATCH, o.PATCH))
    t[v + "patch_embed.proj.bias"] = random.normal(0, 0.1, o.V_H)
    t[v + "pos_embed.weight"] = random.normal(0, 0.5, (o.SIDE * o.SIDE, o.V_H))
    for i in range(DEPTH):
        b = v + "blocks.%d." % i
        norm(b + "norm1", o.V_H, True)
        norm(b + "norm2", o.V_H, True)
        matrix(b + "attn.qkv", 3 * o.V_H, o.V_H, True, 2)
        matrix(b + "attn.proj", o.V_H, o.V_H, True)
        matrix(b + "mlp.linear_fc1", o.V_FF, o.V_H, True)
        matrix(b + "mlp.linear_fc2", o.V_H, o.V_FF, True)
    for name, width in [("merger.", o.V_H)] + [("deepstack_merger_list.%d." % i, 4 * o.V_H) for i in range(len(DEEP))]:
        norm(v + name + "norm", width, True)
        matrix(v + name + "linear_fc1", 4 * o.V_H, 4 * o.V_H, True)
        matrix(v + name + "linear_fc2", o.H, 4 * o.V_H, True)
    return {name: to_bf16(x.astype(np.float32)) for name, x in t.items()}


def logits(t, ids, grids, seen):
    """seen: a row of all layers' for each token of an image."""
    p = "model.language_model."
    x = t[p + "embed_tokens.weight"].astype(np.float64)[ids]
    shown = np.array(ids) == o.IMAGE
    seen = seen.reshape(len(seen), 1 + len(DEEP), o.H)
    x[shown] = seen[:, 0]
    n, at = o.DIM // 2, o.positions(ids, grids)
    axis = [j % 3 if j % 3 and j < 3 * SECTIONS[j % 3] else 0 for j in range(n)]
    angles = np.stack([at[axis[j]] * 5000.0 ** (-j / n) for j in range(n)], 1)
    for i in range(LAYERS):
        q = p + "layers.%d." % i
        a, h = q + "self_attn.", o.rms(x, t[q + "input_layernorm.weight"], 0)
        heads = [o.rms(o.linear(t, a + "%s_proj" % k, h).reshape(len(x), -1, o.DIM), t[a + "%s_norm.weight" % k], 0) for k in "qk"]
        v = o.linear(t, a + "v_proj", h).reshape(len(x), -1, o.DIM)
        x = x + o.linear(t, a + "o_proj", o.attention(o.turn(heads[0], angles), o.turn(heads[1], angles), v, True))
        h = o.rms(x, t[q + "post_attention_layernorm.weight"], 0)
        x = x + o.linear(t, q + "mlp.down_proj", o.silu(o.linear(t, q + "mlp.gate_proj", h)) * o.linear(t, q + "mlp.up_proj", h))
        if i < len(DEEP):
            x[shown] += seen[:, 1 + i]
    return o.rms(x, t[p + "norm.weight"], 0) @ t[p + "embed_tokens.weight"].astype(np.float64).T


def make(random):
    grids = [(1, 2, 6), (1, 4, 2)]
    pixels = random.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    sized, own = o.patches_of(o.resize(pixels, 64, 32, True))
    while True:
        t = make_weights(random)
        values = [to_bf16(random.normal(0, 0.6, (g[1] * g[2], 1536)).astype(np.float32)) for g in grids]
        seen = np.concatenate([o.tower(t, v.astype(np.float64), g[1], g[2], DEEP) for v, g in zip(values, grids)])
        text = lambda n: [int(i) for i in random.integers(2, 250, n)]
        ids = text(5) + [o.START] + [o.IMAGE] * 3 + [o.START + 1] + text(3) + [o.START] + [o.IMAGE] * 2 + [o.START + 1] + text(6)
        greedy = o.say(t, ids, grids, seen, logits)
        prompt = [o.START] + [o.IMAGE] * (own[1] * own[2] // 4) + [o.START + 1] + list(b"What is it?")
        said = greedy and o.say(t, prompt, [own], o.tower(t, sized, own[1], own[2], DEEP), logits)
        if said:
            break
    golden = dict(input_ids=np.array([ids], np.int32), image_grid_thw=np.array(grids, np.int32),
                  pixel_values=np.concatenate(values), greedy_ids=np.array([greedy], np.int32), image=pixels,
                  said_ids=np.array(said[len(prompt) :], np.int32))
    golden["vis.merged"] = np.ascontiguousarray(seen[:, : o.H]).astype(np.float32)
    for i in range(len(DEEP)):
        golden["vis.deep.%d" % i] = np.ascontiguousarray(seen[:, (1 + i) * o.H : (2 + i) * o.H]).astype(np.float32)
    golden["logits"] = logits(t, ids, grids, seen).astype(np.float32)
    return t, golden


def check(folder):
    import torch
    from transformers import Qwen3VLForConditionalGeneration
    torch.set_grad_enabled(False)
    golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.tensor(golden["input_ids"].reshape(1, -1).astype(np.int64))
    given = dict(pixel_values=torch.tensor(golden["pixel_values"].astype(np.float32)),
                 image_grid_thw=torch.tensor(golden["image_grid_thw"].reshape(-1, 3).astype(np.int64)))
    seen = model.model.visual(given["pixel_values"], grid_thw=given["image_grid_thw"])
    rows, deep = (seen.pooler_output, seen.deepstack_features) if hasattr(seen, "pooler_output") else seen
    found = {"vis.merged": rows, **{"vis.deep.%d" % i: x for i, x in enumerate(deep)}}
    kinds = dict(mm_token_type_ids=(ids == o.IMAGE).int())  # transformers 5 asks for it
    try:
        found["logits"] = model(input_ids=ids, **given, **kinds).logits[0]
    except TypeError:
        kinds, found["logits"] = {}, model(input_ids=ids, **given).logits[0]
    for name, x in found.items():
        want = golden[name].reshape(x.shape).astype(np.float64)
        print("%s: %.2g" % (name, np.linalg.norm(x.double().numpy() - want) / np.linalg.norm(want)))
    said = model.generate(input_ids=ids, **given, **kinds, max_new_tokens=o.N_MORE, do_sample=False, eos_token_id=-1)
    print("the same greedy tokens: %d of %d" % ((said[0].numpy() == golden["greedy_ids"].ravel()).sum() - ids.shape[1], o.N_MORE))


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "qwen3vl_sees")
    if sys.argv[1:2] == ["--transformers"]:
        return check(sys.argv[2] if len(sys.argv) > 2 else folder)
    t, golden = make(np.random.default_rng(11))
    o.CONFIG = CONFIG
    o.write(folder, t, golden)


if __name__ == "__main__":
    sys.exit(main())
