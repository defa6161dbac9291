#!/usr/bin/env python3
"""A Hugging Face folder of a BitNet, computed as transformers' BitNetForCausalLM computes it, against
tern's logits. Needs torch and numpy; with --transformers the real one is asked instead.

    check_hf.py FOLDER [--tern build/tern] [--model FILE]   # tern on FILE, else on FOLDER itself
    check_hf.py FOLDER --golden golden.safetensors          # against logits that are known
    check_hf.py FOLDER --like OTHER                         # names, types and config of two folders

The arithmetic (transformers 5.17, integrations/bitnet.py and models/bitnet), in float32:

    activations   round(x s) cut to -128..127, s = 127 / max(|x| of the row, 1e-5), divided by s again
    packed        uint8 [n_out / 4, n_in]: the code of row r + k n_out / 4 in bits 2 k of byte r, minus 1;
                  the product times weight_scale (linear_class autobitlinear) or divided by it (bitlinear)
    online        round(W / g) cut to -1..1, times g, g = max(mean|W|, 1e-5)
"""
import argparse, json, os, subprocess, sys, tempfile
import numpy as np
import torch
import torch.nn.functional as F
from files import read_safetensors

TEXT = ("Once upon a time there was a small bear who lived in the forest with his mother. Every morning he "
        "went down to the river to look for fish, and every evening he told her what he had seen.")


def unpack(packed):
    return torch.cat([(packed >> 2 * k) & 3 for k in range(4)]).float() - 1


def quantize(x):
    s = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x * s).round().clamp(-128, 127) / s


class BitNet:
    def __init__(self, folder):
        self.c = c = json.load(open(os.path.join(folder, "config.json")))
        assert c["architectures"] == ["BitNetForCausalLM"] and c["model_type"] == "bitnet", "another architecture"
        self.t = read_safetensors(os.path.join(folder, "model.safetensors"))
        self.q = c["quantization_config"]
        assert self.q["quant_method"] == "bitnet"
        self.head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        self.act = {"relu2": lambda x: x.relu().square(), "silu": F.silu}[c["hidden_act"]]
        self.theta = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]
        self.used = set()

    def w(self, name):
        self.used.add(name)
        return self.t[name].float()

    def linear(self, x, name):
        w = self.t[name + ".weight"]
        self.used.add(name + ".weight")
        if self.q.get("quantization_mode", "offline") == "online":
            g = w.float().abs().mean().clamp(min=1e-5)
            return F.linear(quantize(x), (w.float() / g).round().clamp(-1, 1) * g)
        assert w.dtype == torch.uint8, "%s.weight is not packed" % name
        scale = self.w(name + ".weight_scale")
        y = F.linear(quantize(x), unpack(w))
        return y * scale if self.q["linear_class"] == "autobitlinear" else y / scale

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"]) * self.w(name + ".weight")

    def rotate(self, x, angle):  # [heads, n, head_dim]
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        return x * angle.cos() + turned * angle.sin()

    def logits(self, ids):
        c, n = self.c, len(ids)
        heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
        freq = 1 / self.theta ** (torch.arange(0, self.head_dim, 2).float() / self.head_dim)
        angle = torch.outer(torch.arange(n).float(), freq).repeat(1, 2)
        hidden = torch.triu(torch.full((n, n), float("-inf")), 1)
        x = self.w("model.embed_tokens.weight")[ids]
        for i in range(c["num_hidden_layers"]):
            p = "model.layers.%d." % i
            a = self.norm(x, p + "input_layernorm")
            q, k, v = (self.linear(a, p + "self_attn.%s_proj" % s).view(n, h, -1).transpose(0, 1)
                       for s, h in (("q", heads), ("k", kv), ("v", kv)))
            q, k = self.rotate(q, angle), self.rotate(k, angle)
            k, v = (y.repeat_interleave(heads // kv, 0) for y in (k, v))
            o = (q @ k.transpose(1, 2) / self.head_dim**0.5 + hidden).softmax(-1) @ v
            o = self.norm(o.transpose(0, 1).reshape(n, -1), p + "self_attn.attn_sub_norm")
            x = x + self.linear(o, p + "self_attn.o_proj")
            f = self.norm(x, p + "post_attention_layernorm")
            h = self.act(self.linear(f, p + "mlp.gate_proj")) * self.linear(f, p + "mlp.up_proj")
            x = x + self.linear(self.norm(h, p + "mlp.ffn_sub_norm"), p + "mlp.down_proj")
        head = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
        y = F.linear(self.norm(x, "model.norm"), self.w(head))
        unread = set(self.t) - self.used
        assert not unread, "nothing reads %s" % sorted(unread)
        return y


def logits_of_transformers(folder, ids):
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model(torch.tensor([ids])).logits[0].float()


def logits_of_tern(tern, model, text, ids):
    """Of the text, or of ids if there are any; and the ids."""
    if ids is None:
        run = subprocess.run([tern, "tokenize", "-m", model, "--bos"], input=text.encode(), stdout=subprocess.PIPE, check=True)
        ids = [int(x) for x in run.stdout.split()]
    with tempfile.TemporaryDirectory() as tmp:
        np.array(ids, "<i4").tofile(tmp + "/ids")
        subprocess.run([tern, "logits", "-m", model, "--ids", tmp + "/ids", "-o", tmp + "/logits"], check=True)
        return torch.tensor(np.fromfile(tmp + "/logits", "<f4").reshape(len(ids), -1)), ids


def compare(name, a, b):
    """Relative L2. One value that is rounded to the other side changes all rows behind it, so the rows
    in front of the first such are told apart."""
    by_row = (a - b).norm(dim=1) / b.norm(dim=1)
    flips = (by_row > 1e-5).nonzero()
    first = int(flips[0]) if len(flips) else len(b)
    print("%s: logits differ by %.2g over %d tokens; by at most %.2g in the first %d; the greatest is the same in %d"
          % (name, ((a - b).norm() / b.norm()).item(), len(b), by_row[:first].max().item() if first else 0, first,
             int((a.argmax(1) == b.argmax(1)).sum())))


def shape_of(folder):
    """What transformers looks at, with sizes and layers taken out."""
    tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    kinds = {}
    for k, x in tensors.items():
        name = ".".join("N" if p.isdigit() else p for p in k.split("."))
        kinds[name] = "%s of %d dimensions" % (str(x.dtype).replace("torch.", ""), x.dim())
    config = json.load(open(os.path.join(folder, "config.json")))
    for key, x in config.pop("quantization_config", {}).items():
        config["quantization_config." + key] = x
    return kinds, config


def compare_shapes(ours, theirs):
    (a, c), (b, d) = shape_of(ours), shape_of(theirs)
    print("%d of %d names of tensors are the same" % (len(a.keys() & b.keys()), len(a.keys() | b.keys())))
    for k in sorted(a.keys() | b.keys()):
        if a.get(k) != b.get(k):
            print("tensor %s: %s, there %s" % (k, a.get(k, "none"), b.get(k, "none")))
    for k in sorted(c.keys() | d.keys()):
        if c.get(k) != d.get(k):
            print("config %s: %s, there %s" % (k, json.dumps(c.get(k)), json.dumps(d.get(k))))


@torch.no_grad()
def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--tern", default="build/tern")
    for name in ("model", "golden", "like"):
        p.add_argument("--" + name)
    p.add_argument("--text", default=TEXT)
    p.add_argument("--transformers", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(2)
    if a.like:
        return compare_shapes(a.folder, a.like)
    ids, golden = None, None
    if a.golden:
        golden = read_safetensors(a.golden)
        ids = golden["input_ids"][0].tolist()
    tern, ids = logits_of_tern(a.tern, a.model or a.folder, a.text, ids)
    computed = logits_of_transformers(a.folder, ids) if a.transformers else BitNet(a.folder).logits(ids)
    name = "transformers" if a.transformers else "PyTorch"
    if golden:
        compare("%s and the golden file" % name, computed, golden["logits"][0].float())
        compare("tern and the golden file", tern, golden["logits"][0].float())
    compare("tern and %s" % name, tern, computed)


if __name__ == "__main__":
    sys.exit(main())
