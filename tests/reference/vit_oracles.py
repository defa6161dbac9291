#!/usr/bin/env python3
"""Writes tests/oracles/vit and vit_timm: tiny ViTs as transformers and as timm have them, an image, and what plain
numpy makes of it in float64 (`make oracles`). Needs numpy.

transformers makes both edges what the model reads, with the bilinear filter; timm the shorter edge a little more,
with the bicubic one, and cuts out the middle. Both resize as Pillow does: fixed-point weights of 22 bits, across,
then down, 8 bits after each.
"""
import json, math, os, sys
import numpy as np
from families_np import difference
from safetensors_np import write_safetensors

WIDTH, FF, HEADS, LAYERS, IMAGE, PATCH, LABELS = 24, 40, 3, 2, 16, 4, 5
ROWS = (IMAGE // PATCH) ** 2 + 1
CASES = {
    "vit": (
        dict(model_type="vit", architectures=["ViTForImageClassification"], hidden_size=WIDTH, intermediate_size=FF,
             num_attention_heads=HEADS, num_hidden_layers=LAYERS, image_size=IMAGE, patch_size=PATCH, num_channels=3,
             layer_norm_eps=1e-6, hidden_act="gelu", qkv_bias=True,
             id2label={str(i): "thing %d" % i for i in range(LABELS)}),
        dict(do_resize=True, size=dict(height=IMAGE, width=IMAGE), resample=2, do_normalize=True,
             image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]),
    ),
    "vit_timm": (
        dict(architecture="vit_wee_patch4_16", num_classes=LABELS, num_features=WIDTH, num_heads=HEADS,
             global_pool="token", pretrained_cfg=dict(crop_pct=0.9, interpolation="bicubic", mean=[0.5] * 3, std=[0.5] * 3)),
        None,
    ),
}
TIMM = {"embeddings.cls_token": "cls_token", "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.projection": "patch_embed.proj", "layernorm": "norm", "classifier": "head",
        "layernorm_before": "norm1", "layernorm_after": "norm2", "attention.output.dense": "attn.proj",
        "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2"}


def cubic(x):
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


def weights(n_in, n_out, filter, reach):
    """[n_out, n_in] integers, 2^22 a row."""
    scale = n_in / n_out
    wide = max(scale, 1.0)
    w = np.zeros((n_out, n_in))
    for i in range(n_out):
        center = (i + 0.5) * scale
        first, last = max(int(center - reach * wide + 0.5), 0), min(int(center + reach * wide + 0.5), n_in)
        for j in range(first, last):
            w[i, j] = filter((j - center + 0.5) / wide)
        w[i] /= w[i].sum()
    return np.trunc(w * 2**22 + np.where(w < 0, -0.5, 0.5)).astype(np.int64)


def resize(x, width, height, bicubic):
    filter, reach = (cubic, 2) if bicubic else (lambda d: max(1 - abs(d), 0.0), 1)
    for axis, n in ((1, width), (0, height)):
        w = weights(x.shape[axis], n, filter, reach)
        x = np.moveaxis(np.tensordot(w, x.astype(np.int64), (1, axis)), 0, axis)
        x = np.clip(x + (1 << 21) >> 22, 0, 255)
    return x.astype(np.uint8)


class Vit:
    def __init__(self, c, t, dtype=np.float64):
        self.t, self.dtype = {name: x.astype(dtype) for name, x in t.items()}, dtype

    def linear(self, x, name):
        return x @ self.t[name + ".weight"].reshape(-1, x.shape[-1]).T + self.t[name + ".bias"]

    def norm(self, x, name):
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True) + self.dtype(1e-6)) * self.t[name + ".weight"] + self.t[name + ".bias"]

    def attention(self, x, p):
        q, k, v = (self.linear(x, p + "attention.attention." + part).reshape(len(x), HEADS, -1).transpose(1, 0, 2)
                   for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / self.dtype(math.sqrt(q.shape[-1]))
        y = np.exp(scores - scores.max(-1, keepdims=True))
        y = (y / y.sum(-1, keepdims=True)) @ v
        return self.linear(y.transpose(1, 0, 2).reshape(x.shape), p + "attention.output.dense")

    def run(self, pixels):
        """pixels: [3, IMAGE, IMAGE], normed."""
        n = IMAGE // PATCH
        squares = pixels.reshape(3, n, PATCH, n, PATCH).transpose(1, 3, 0, 2, 4).reshape(n * n, -1)
        x = self.linear(squares.astype(self.dtype), "embeddings.patch_embeddings.projection")
        x = np.concatenate([self.t["embeddings.cls_token"][0], x]) + self.t["embeddings.position_embeddings"][0]
        for i in range(LAYERS):
            p = "encoder.layer.%d." % i
            x = x + self.attention(self.norm(x, p + "layernorm_before"), p)
            f = self.linear(self.norm(x, p + "layernorm_after"), p + "intermediate.dense")
            f = (f * 0.5 * (1 + np.vectorize(math.erf)(f / math.sqrt(2)))).astype(self.dtype)
            x = x + self.linear(f, p + "output.dense")
        first = self.norm(x[0], "layernorm")
        return self.linear(first, "classifier"), first / np.linalg.norm(first)


def make_tensors(random):
    t = {"embeddings.cls_token": random.normal(0, 1, (1, 1, WIDTH)),
         "embeddings.position_embeddings": random.normal(0, 1, (1, ROWS, WIDTH))}

    def linear(name, *shape):
        t[name + ".weight"] = random.normal(0, 0.3, shape)
        t[name + ".bias"] = random.normal(0, 0.3, shape[0])

    def norm(name):
        t[name + ".weight"] = random.uniform(0.7, 1.3, WIDTH)
        t[name + ".bias"] = random.normal(0, 0.2, WIDTH)

    linear("embeddings.patch_embeddings.projection", WIDTH, 3, PATCH, PATCH)
    for i in range(LAYERS):
        p = "encoder.layer.%d." % i
        for part in ("query", "key", "value"):
            linear(p + "attention.attention." + part, WIDTH, WIDTH)
        linear(p + "attention.output.dense", WIDTH, WIDTH)
        linear(p + "intermediate.dense", FF, WIDTH)
        linear(p + "output.dense", WIDTH, FF)
        norm(p + "layernorm_before")
        norm(p + "layernorm_after")
    norm("layernorm")
    linear("classifier", LABELS, WIDTH)
    return {name: x.astype(np.float32) for name, x in t.items()}


def timm_names(t):
    out = {}
    for i in range(LAYERS):
        for end in ("weight", "bias"):
            p = "encoder.layer.%d.attention.attention." % i
            out["blocks.%d.attn.qkv.%s" % (i, end)] = np.concatenate([t[p + "%s.%s" % (k, end)] for k in ("query", "key", "value")])
    for name, x in t.items():
        part, end = (name, "") if name in TIMM else (name.rsplit(".", 1)[0], "." + name.rsplit(".", 1)[1])
        front = ""
        if part.startswith("encoder.layer."):
            i, part = part[len("encoder.layer.") :].split(".", 1)
            front = "blocks.%s." % i
        if part in TIMM:
            out[front + TIMM[part] + end] = x
    return out


def write_case(folder, c, rules, random):
    os.makedirs(folder, exist_ok=True)
    t, timm = make_tensors(random), rules is None
    y, x = np.mgrid[0:29, 0:37]
    image = 128 + 80 * np.sin(x / 3.0)[..., None] * np.cos(y[..., None] / np.array([2.0, 3.0, 5.0])) + random.normal(0, 30, (29, 37, 3))
    image = np.clip(image, 0, 255).astype(np.uint8)
    if timm:
        edge = int(IMAGE / 0.9)
        wide = int(edge * 37 / 29)
        sized = resize(image, wide, edge, True)
        top, left = round((edge - IMAGE) / 2), round((wide - IMAGE) / 2)
        sized, mean, std = sized[top : top + IMAGE, left : left + IMAGE], [0.5] * 3, [0.5] * 3
    else:
        sized, mean, std = resize(image, IMAGE, IMAGE, False), rules["image_mean"], rules["image_std"]
    pixels = ((sized / 255.0 - np.array(mean)) / np.array(std)).transpose(2, 0, 1)
    scores, vector = Vit(c, t).run(pixels)
    error = difference(Vit(c, t, np.float32).run(pixels)[0], scores)
    for name, x in (("config.json", c), ("preprocessor_config.json", rules)):
        if x is not None:
            with open(os.path.join(folder, name), "w") as f:
                f.write(json.dumps(x, indent=1) + "\n")
    named = timm_names(t) if timm else {("" if name.startswith("classifier") else "vit.") + name: x for name, x in t.items()}
    write_safetensors(os.path.join(folder, "model.safetensors"), named)
    write_safetensors(os.path.join(folder, "golden.safetensors"),
                      {"image": image, "sized": np.ascontiguousarray(sized), "scores": scores.astype(np.float32),
                       "embedding": vector.astype(np.float32)})
    print("%s: float32 and float64 differ by at most %.1e" % (folder, error))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "oracles")
    for seed, (name, (c, rules)) in enumerate(CASES.items()):
        write_case(os.path.join(out, name), c, rules, np.random.default_rng(9300 + seed))


if __name__ == "__main__":
    main()
