#!/usr/bin/env python3
"""Writes tests/oracles/gemma3_sees: a tiny Gemma 3 with its tower, and what plain numpy makes of texts with images in
float64 (`make oracles`). Needs numpy. Written from the papers and from what transformers documents, not from tern. Windows
of the text are shorter than an image, whose rows see to its end all the same.

golden.safetensors: input_ids with one token for each row of the images, which is row_id, image_grid_thw of each,
pixel_values, vis.merged, logits and greedy_ids; image and said_ids as in image_tokens_oracles.py; square, the image as the
tower sees it; joined_ids: of "a", a line break, the image, a line break and "b".

    gemma3_image_tokens_oracles.py --transformers [FOLDER]

asks transformers (4.57 or later, with torch and torchvision) for the same numbers of the folder, and prints how far they
are from its golden file, and how many of the greedy tokens are the same.

    gemma3_image_tokens_oracles.py --shape FOLDER

writes a model whose tower has the shape of Gemma 3 4B's, with random weights and a text model of next to nothing, and
image.png of 896 x 896 pixels: for measuring.
"""
import json, math, os, sys
import numpy as np
import image_tokens_oracles as o
from safetensors_np import read_safetensors, to_bf16
from vit_oracles import resize

o.SPECIAL = ["<pad>", "<eos>", "<bos>", "<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_turn>", "<end_of_turn>"]
o.IMAGE, o.N_VOCAB = 263, 266
END, START, STOP, LINES = 259, 261, 262, [10, 256, 257]  # one, two and three line breaks
H, HEADS, DIM, FF, WINDOW, SCALAR = 32, 2, 16, 40, 5, 20
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
V_DEPTH, V_H, V_HEADS, V_FF, SIDE, PATCH, MERGE = 2, 24, 3, 32, 6, 14, 2
ROWS, EDGE = (SIDE // MERGE) ** 2, SIDE * PATCH
TEXT = dict(model_type="gemma3_text", vocab_size=o.N_VOCAB, hidden_size=H, intermediate_size=FF, num_hidden_layers=len(LAYERS),
            num_attention_heads=HEADS, num_key_value_heads=1, head_dim=DIM, hidden_activation="gelu_pytorch_tanh",
            rms_norm_eps=1e-6, sliding_window=WINDOW, query_pre_attn_scalar=SCALAR, layer_types=LAYERS,
            max_position_embeddings=256, eos_token_id=END, bos_token_id=260, pad_token_id=258, tie_word_embeddings=True,
            rope_theta=1000000.0, rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0))
VISION = dict(model_type="siglip_vision_model", num_hidden_layers=V_DEPTH, hidden_size=V_H, intermediate_size=V_FF,
              num_attention_heads=V_HEADS, image_size=EDGE, patch_size=PATCH, num_channels=3, vision_use_head=False,
              hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, attention_dropout=0.0)
o.CONFIG = dict(model_type="gemma3", architectures=["Gemma3ForConditionalGeneration"], tie_word_embeddings=True,
                boi_token_index=START, eoi_token_index=STOP, image_token_index=o.IMAGE, mm_tokens_per_image=ROWS,
                eos_token_id=END, text_config=TEXT, vision_config=VISION)
o.IMAGES = dict(image_processor_type="Gemma3ImageProcessor", do_pan_and_scan=None, do_resize=True, resample=2,
                  size=dict(height=EDGE, width=EDGE), do_rescale=True, rescale_factor=1 / 255, do_normalize=True,
                  image_mean=[0.5] * 3, image_std=[0.5] * 3, image_seq_length=ROWS)
o.TEMPLATE = (o.TEMPLATE.replace("<|vision_start|><|image_pad|><|vision_end|>", "<start_of_image>")
              .replace("<|im_start|>", "<start_of_turn>").replace("<|im_end|>", "<end_of_turn>"))


# ---- Weights -----------------------------------------------------------------------------------

def make_weights(random):
    t = {}
    matrix, norm = o.makers(random, t.__setitem__, 1)
    p, v, m = "model.language_model.", "model.vision_tower.vision_model.", "model.multi_modal_projector."
    t[p + "embed_tokens.weight"] = random.normal(0, 0.25, (o.N_VOCAB, H))
    norm(p + "norm", H)
    for i in range(len(LAYERS)):
        q = p + "layers.%d." % i
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            norm(q + name + "_layernorm", H)
        matrix(q + "self_attn.q_proj", HEADS * DIM, H)
        matrix(q + "self_attn.k_proj", DIM, H)
        matrix(q + "self_attn.v_proj", DIM, H)
        matrix(q + "self_attn.o_proj", H, HEADS * DIM)
        norm(q + "self_attn.q_norm", DIM)
        norm(q + "self_attn.k_norm", DIM)
        for name, rows, cols in (("gate_proj", FF, H), ("up_proj", FF, H), ("down_proj", H, FF)):
            matrix(q + "mlp." + name, rows, cols)
    matrix(v + "embeddings.patch_embedding", V_H, 3 * PATCH * PATCH, True)
    t[v + "embeddings.patch_embedding.weight"] = t[v + "embeddings.patch_embedding.weight"].reshape(V_H, 3, PATCH, PATCH)
    t[v + "embeddings.position_embedding.weight"] = random.normal(0, 0.5, (SIDE * SIDE, V_H))
    o.siglip_weights(matrix, norm, v, V_DEPTH, V_H, V_FF)
    norm(m + "mm_soft_emb_norm", V_H)
    t[m + "mm_input_projection_weight"] = random.normal(0, 1.5 / math.sqrt(V_H), (V_H, H))
    return {name: to_bf16(x.astype(np.float32)) for name, x in t.items()}


# ---- The tower ---------------------------------------------------------------------------------

def tower(t, patches):
    """patches: from left to right and down, [y, x, colour] each."""
    v, m = "model.vision_tower.vision_model.", "model.multi_modal_projector."
    by_colour = patches.reshape(-1, PATCH * PATCH, 3).swapaxes(1, 2).reshape(len(patches), -1)
    h = o.linear(t, v + "embeddings.patch_embedding", by_colour) + t[v + "embeddings.position_embedding.weight"].astype(np.float64)
    h = o.siglip(t, v, h, V_DEPTH, V_HEADS)
    h = h.reshape(SIDE // MERGE, MERGE, SIDE // MERGE, MERGE, V_H).mean((1, 3)).reshape(-1, V_H)
    return o.rms(h, t[m + "mm_soft_emb_norm.weight"]) @ t[m + "mm_input_projection_weight"].astype(np.float64)


# ---- The text ----------------------------------------------------------------------------------

def images_of(ids):
    """The number of each token's image; -1: it is of none."""
    is_row = np.array(ids) == o.IMAGE
    begins = is_row & ~np.concatenate([[False], is_row[:-1]])
    return np.where(is_row, np.cumsum(begins) - 1, -1)


def attention(q, k, v, sees):
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = np.where(sees, np.einsum("ihd,jhd->hij", q, k) / math.sqrt(SCALAR), -np.inf)
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", s / s.sum(-1, keepdims=True), v).reshape(len(q), -1)


def logits(t, ids, grids, seen):
    p = "model.language_model."
    x = t[p + "embed_tokens.weight"].astype(np.float64)[ids] * math.sqrt(H)
    x[np.array(ids) == o.IMAGE] = seen
    at, image = np.arange(len(ids)), images_of(ids)
    behind = at[:, None] - at
    same = (image[:, None] == image) & (image >= 0)
    for i, kind in enumerate(LAYERS):
        q, a = p + "layers.%d." % i, p + "layers.%d.self_attn." % i
        full = kind == "full_attention"
        sees = (same | (behind >= 0)) & (full | (behind < WINDOW))
        angles = at[:, None] / (8 if full else 1) * (1e6 if full else 1e4) ** (-np.arange(DIM // 2) * 2 / DIM)
        h = o.rms(x, t[q + "input_layernorm.weight"])
        heads = [o.rms(o.linear(t, a + "%s_proj" % c, h).reshape(len(x), -1, DIM), t[a + "%s_norm.weight" % c]) for c in "qk"]
        v = o.linear(t, a + "v_proj", h).reshape(len(x), -1, DIM)
        y = o.linear(t, a + "o_proj", attention(o.turn(heads[0], angles), o.turn(heads[1], angles), v, sees))
        x = x + o.rms(y, t[q + "post_attention_layernorm.weight"])
        h = o.rms(x, t[q + "pre_feedforward_layernorm.weight"])
        y = o.linear(t, q + "mlp.down_proj", o.gelu_tanh(o.linear(t, q + "mlp.gate_proj", h)) * o.linear(t, q + "mlp.up_proj", h))
        x = x + o.rms(y, t[q + "post_feedforward_layernorm.weight"])
    return o.rms(x, t[p + "norm.weight"]) @ t[p + "embed_tokens.weight"].astype(np.float64).T


# ---- Images ----------------------------------------------------------------------------------

def patches_of(pixels):
    x = pixels.astype(np.float64) / 127.5 - 1
    return x.reshape(SIDE, PATCH, SIDE, PATCH, 3).swapaxes(1, 2).reshape(SIDE * SIDE, -1)


def image(before=1, after=1):
    """The tokens of an image, with so many line breaks more than one on both sides."""
    return [LINES[before], START] + [o.IMAGE] * ROWS + [STOP, LINES[after]]


def make(random):
    grids = [(1, SIDE, SIDE)] * 2
    pixels = random.integers(0, 256, (45, 70, 3), dtype=np.uint8)
    pixels[10:30, 20:60] = 255 - pixels[10:30, 20:60] // 4
    sized = resize(pixels, EDGE, EDGE, False)
    while True:
        t = make_weights(random)
        values = [to_bf16(random.normal(0, 0.6, (SIDE * SIDE, 3 * PATCH * PATCH)).astype(np.float32)) for g in grids]
        seen = np.concatenate([tower(t, v.astype(np.float64)) for v in values])
        text = lambda n: [int(i) for i in random.integers(2, 250, n)]
        ids = text(5) + image() + text(3) + image() + text(6)
        greedy = o.say(t, ids, grids, seen, logits)
        prompt = image() + list(b"What is it?")
        said = greedy and o.say(t, prompt, grids[:1], tower(t, patches_of(sized)), logits)
        if said:
            break
    golden = dict(input_ids=np.array([ids], np.int32), image_grid_thw=np.array(grids, np.int32), row_id=np.array([o.IMAGE], np.int32),
                  pixel_values=np.concatenate(values), greedy_ids=np.array([greedy], np.int32), image=pixels, square=sized,
                  said_ids=np.array(said[len(prompt) :], np.int32),
                  joined_ids=np.array([97, LINES[2]] + image()[1:-1] + [LINES[2], 98], np.int32))
    golden["vis.merged"] = seen.astype(np.float32)
    golden["logits"] = logits(t, ids, grids, seen).astype(np.float32)
    return t, golden


def write(folder, t, golden):
    usual = o.tokenizer

    def tokenizer():
        x, space = usual(), "\u2581"
        for i, token in enumerate(x["added_tokens"]):
            token["id"] = 258 + i
        own = lambda b: space if b == 32 else chr(b) if b == 10 or 32 < b < 127 else "<0x%02X>" % b
        x["normalizer"] = dict(type="Replace", pattern=dict(String=" "), content=space)
        x["pre_tokenizer"] = dict(type="Split", pattern=dict(String=" "), behavior="MergedWithPrevious", invert=False)
        x["decoder"] = dict(type="Sequence", decoders=[dict(type="Replace", pattern=dict(String=space), content=" "),
                                                       dict(type="ByteFallback"), dict(type="Fuse")])
        x["model"].update(byte_fallback=True, vocab={own(b): b for b in range(256)} | {"\n\n": LINES[1], "\n\n\n": LINES[2]},
                          merges=[["\n", "\n"], ["\n\n", "\n"]])
        return x

    o.tokenizer = tokenizer
    o.write(folder, t, golden)


def write_shape(folder):
    globals().update(V_DEPTH=27, V_H=1152, V_HEADS=16, V_FF=4304, SIDE=64, MERGE=4, H=2560, HEADS=1, LAYERS=["full_attention"])
    TEXT.update(hidden_size=H, num_attention_heads=1, num_hidden_layers=1, layer_types=LAYERS, max_position_embeddings=4096)
    VISION.update(num_hidden_layers=V_DEPTH, hidden_size=V_H, num_attention_heads=V_HEADS, intermediate_size=V_FF, image_size=896)
    o.CONFIG.update(mm_tokens_per_image=256)
    o.IMAGES.update(size=dict(height=896, width=896), image_seq_length=256)
    random = np.random.default_rng(3)
    across, down = np.meshgrid(np.arange(896), np.arange(896))
    levels = np.stack([across // 4, down // 4, (across + down) // 8], -1) + random.integers(0, 9, (896, 896, 3))
    write(folder, make_weights(random), dict(image=np.clip(levels, 0, 255).astype(np.uint8)))


# ---- transformers ------------------------------------------------------------------------------

def squares_of(patches):
    """[images, colours, y, x], as transformers has them."""
    x = patches.astype(np.float32).reshape(-1, SIDE, SIDE, PATCH, PATCH, 3)
    return x.transpose(0, 5, 1, 3, 2, 4).reshape(-1, 3, EDGE, EDGE)


def check(folder):
    import torch, transformers
    from transformers import PreTrainedTokenizerFast, Gemma3ForConditionalGeneration, Gemma3ImageProcessor, Gemma3Processor
    torch.set_grad_enabled(False)
    print("transformers", transformers.__version__)
    golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
    model = Gemma3ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    def tell(name, x, want):
        want = want.reshape(x.shape).astype(np.float64)
        print("%s: %.2g" % (name, np.linalg.norm(x.double().numpy() - want) / np.linalg.norm(want)))

    def say(ids, pixels, want, name):
        ids = torch.tensor(ids.reshape(1, -1).astype(np.int64))
        given = dict(pixel_values=pixels, token_type_ids=(ids == o.IMAGE).int())
        given["attention_mask"] = torch.ones_like(ids)
        said = model.generate(input_ids=ids, **given, max_new_tokens=o.N_MORE, do_sample=False, eos_token_id=-1)
        print("%s: %d of %d greedy tokens are the same" % (name, (said[0].numpy()[-o.N_MORE :] == want.ravel()[-o.N_MORE :]).sum(), o.N_MORE))

    pixels = torch.tensor(squares_of(golden["pixel_values"]))
    rows = model.model.get_image_features(pixels)
    tell("rows", rows if torch.is_tensor(rows) else rows.pooler_output, golden["vis.merged"])
    ids = torch.tensor(golden["input_ids"].reshape(1, -1).astype(np.int64))
    kinds = (ids == o.IMAGE).int()
    out = model(input_ids=ids, pixel_values=pixels, token_type_ids=kinds, attention_mask=torch.ones_like(ids))
    tell("logits", out.logits[0], golden["logits"])
    say(golden["input_ids"], pixels, golden["greedy_ids"], "two images")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), pad_token="<pad>", eos_token="<eos>")
    for name, text in dict(boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>").items():
        setattr(tokenizer, name, text)
        setattr(tokenizer, name + "_id", tokenizer.convert_tokens_to_ids(text))
    processor = Gemma3Processor(image_processor=Gemma3ImageProcessor(**{k: v for k, v in o.IMAGES.items() if k != "image_processor_type"}),
                                tokenizer=tokenizer, image_seq_length=ROWS)
    own = [torch.tensor(golden["image"]).permute(2, 0, 1)]
    x = processor(images=own, text=["<start_of_image>What is it?"], return_tensors="pt")
    print("ids are the same:", x["input_ids"][0].tolist() == image() + list(b"What is it?"))
    d = np.abs(x["pixel_values"].numpy() - squares_of(patches_of(golden["square"]))) * 127.5
    print("levels are at most %.3f off, %.4f%% of them are" % (d.max(), 100 * (d > 0.5).mean()))
    say(x["input_ids"][0].numpy(), x["pixel_values"], golden["said_ids"], "the image")
    x = processor(images=own, text=["a\n<start_of_image>\nb"], return_tensors="pt")
    print("ids beside line breaks are the same:", x["input_ids"][0].tolist() == golden["joined_ids"].tolist())


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracles", "gemma3_sees")
    if sys.argv[1:2] == ["--transformers"]:
        return check(sys.argv[2] if len(sys.argv) > 2 else folder)
    if sys.argv[1:2] == ["--shape"]:
        return write_shape(sys.argv[2])
    write(folder, *make(np.random.default_rng(17)))


if __name__ == "__main__":
    sys.exit(main())
