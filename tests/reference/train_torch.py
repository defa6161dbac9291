#!/usr/bin/env python3
"""The training of `tern train --in-order`, again in PyTorch: gradients of the first step and the
losses of the run are compared.

usage: train_torch.py INIT.gguf STEP1.gguf LOG.jsonl SHARD --recipe bitnet|paper|llama --steps N
         --batch-tokens N --seq-len N --rate R --rate-2 R --warmup N --schedule two-stage|cosine

INIT is a checkpoint of step 0 or any model of float weights (`--init` of the run); STEP1 the
checkpoint after one step without clipping, whose first moments are a tenth of the gradients; LOG
the run's log.jsonl with --log-every 1. Needs torch and numpy; float32 arithmetic throughout.
"""
import argparse, json, math, struct, sys
import numpy as np
import torch
import torch.nn.functional as F


def read_gguf(path):
    """Metadata (numbers and strings) and float32 tensors of a GGUF v3 file."""
    data = open(path, "rb").read()
    at = 8
    n_tensors, n_meta = struct.unpack_from("<QQ", data, at)
    at += 16
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def text():
        nonlocal at
        (n,) = struct.unpack_from("<Q", data, at)
        s = data[at + 8 : at + 8 + n]
        at += 8 + n
        return s.decode("utf-8", "replace")

    def value(kind):
        nonlocal at
        if kind == 8:
            return text()
        if kind == 9:
            element, n = struct.unpack_from("<IQ", data, at)
            at += 12
            return [value(element) for _ in range(n)]
        (v,) = struct.unpack_from("<" + sizes[kind], data, at)
        at += struct.calcsize(sizes[kind])
        return v

    meta, infos, tensors = {}, [], {}
    for _ in range(n_meta):
        key = text()
        (kind,) = struct.unpack_from("<I", data, at)
        at += 4
        meta[key] = value(kind)
    for _ in range(n_tensors):
        name = text()
        (n_dims,) = struct.unpack_from("<I", data, at)
        dims = struct.unpack_from("<%dQ" % n_dims, data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * n_dims)
        at += 16 + 8 * n_dims
        infos.append((name, dims, kind, offset))
    align = meta.get("general.alignment", 32)
    base = (at + align - 1) // align * align
    for name, dims, kind, offset in infos:
        assert kind == 0, "%s: only float32 is read" % name
        n = int(np.prod(dims))
        x = np.frombuffer(data, np.float32, n, base + offset).reshape(dims[::-1])
        tensors[name] = torch.tensor(x.copy())
    return meta, tensors


def read_shard(path):
    head = open(path, "rb").read(64)
    assert head[:8] == b"TERNTOKS"
    (width,) = struct.unpack_from("<I", head, 12)
    (end,) = struct.unpack_from("<i", head, 20)
    (n,) = struct.unpack_from("<Q", head, 24)
    ids = np.fromfile(path, np.uint16 if width == 2 else np.uint32, n, offset=64)
    return torch.tensor(ids.astype(np.int64)), end


class Round(torch.autograd.Function):
    """The straight-through estimator: rounding has the gradient 1."""

    @staticmethod
    def forward(_, x, y):
        return y

    @staticmethod
    def backward(_, dy):
        return dy, None


def quantize(x):
    scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return Round.apply(x, (x * scale).round().clamp(-128, 127) / scale)


def ternarize(w):
    gamma = w.abs().mean()
    return Round.apply(w, (w / (gamma + 1e-6)).round().clamp(-1, 1) * gamma)


class Model:
    def __init__(self, meta, tensors, recipe):
        arch = meta["general.architecture"]
        self.n_layers = meta[arch + ".block_count"]
        self.n_heads = meta[arch + ".attention.head_count"]
        self.n_kv = meta[arch + ".attention.head_count_kv"]
        self.eps = meta[arch + ".attention.layer_norm_rms_epsilon"]
        self.theta = meta[arch + ".rope.freq_base"]
        self.recipe, self.halves = recipe, recipe != "llama"
        self.w = {k: v.clone().requires_grad_() for k, v in tensors.items() if not k.startswith("adam.")}

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.w[name]

    def linear(self, x, name):
        w = self.w[name]
        return F.linear(x, w) if self.recipe == "llama" else F.linear(quantize(x), ternarize(w))

    def rope(self, x, pos):
        half = x.shape[-1] // 2
        freq = self.theta ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        angle = pos[..., None].float() * freq
        c, s = angle.cos()[:, :, None], angle.sin()[:, :, None]
        if self.halves:
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * c - b * s, b * c + a * s], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)

    def loss(self, ids, targets, starts):
        n_seq, n = ids.shape
        row = torch.arange(n, device=ids.device)
        sees = (row[None, :, None] >= row[None, None, :]) & (row[None, None, :] >= starts[:, :, None])
        pos = row[None] - starts
        x = self.w["token_embd.weight"][ids]
        for i in range(self.n_layers):
            p = "blk.%d." % i
            a = self.norm(x, p + "attn_norm.weight")
            shape = lambda y, h: y.view(n_seq, n, h, -1)
            q = self.rope(shape(self.linear(a, p + "attn_q.weight"), self.n_heads), pos)
            k = self.rope(shape(self.linear(a, p + "attn_k.weight"), self.n_kv), pos)
            v = shape(self.linear(a, p + "attn_v.weight"), self.n_kv)
            k, v = (y.repeat_interleave(self.n_heads // self.n_kv, 2) for y in (k, v))
            s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
            s = s.masked_fill(~sees[:, None], float("-inf")).softmax(-1)
            o = torch.einsum("bhts,bshd->bthd", s, v).reshape(n_seq, n, -1)
            if self.recipe == "bitnet":
                o = self.norm(o, p + "attn_sub_norm.weight")
            x = x + self.linear(o, p + "attn_output.weight")
            f = self.norm(x, p + "ffn_norm.weight")
            gate, up = self.linear(f, p + "ffn_gate.weight"), self.linear(f, p + "ffn_up.weight")
            h = (gate.relu().square() if self.recipe == "bitnet" else F.silu(gate)) * up
            if self.recipe == "bitnet":
                h = self.norm(h, p + "ffn_sub_norm.weight")
            x = x + self.linear(h, p + "ffn_down.weight")
        head = self.w.get("output.weight", self.w["token_embd.weight"])
        logits = F.linear(self.norm(x, "output_norm.weight"), head)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def batch(ids, end, step, a, device):
    n_seq, n = a.batch_tokens // a.seq_len, a.seq_len
    rows = [(step * n_seq + i) % ((len(ids) - 1) // n) * n for i in range(n_seq)]
    x = torch.stack([ids[r : r + n] for r in rows])
    y = torch.stack([ids[r + 1 : r + n + 1] for r in rows])
    row = torch.arange(n)[None].expand(n_seq, n)
    starts = torch.where(x == end, row, torch.zeros_like(row)).cummax(1).values
    return x.to(device), y.to(device), starts.to(device)


def rate(a, step):
    done = (step - 1) / a.steps
    if a.schedule == "cosine":
        r = a.rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))
    else:
        r = (a.rate if done < 0.5 else a.rate_2) * (1 - done)
    return r * min(1, step / a.warmup)


def main():
    p = argparse.ArgumentParser()
    for name in ("init", "step1", "log", "shard"):
        p.add_argument(name)
    p.add_argument("--recipe", default="bitnet")
    p.add_argument("--schedule", default="two-stage")
    for name, kind in (("steps", int), ("batch-tokens", int), ("seq-len", int), ("warmup", int), ("rate", float), ("rate-2", float)):
        p.add_argument("--" + name, type=kind)
    p.add_argument("--clip", type=float, default=1)
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    meta, tensors = read_gguf(a.init)
    model = Model(meta, {k: v.to(device) for k, v in tensors.items()}, a.recipe)
    ids, end = read_shard(a.shard)

    model.loss(*batch(ids, end, 0, a, device)).backward()
    _, after = read_gguf(a.step1)
    top, bottom, worst = 0.0, 0.0, (0, "")
    for name, w in model.w.items():
        ours = after["adam.m." + name].to(device).view_as(w) * 10
        d, g = (ours - w.grad).norm().item(), w.grad.norm().item()
        top, bottom = top + d * d, bottom + g * g
        worst = max(worst, (d / g, name))
    print("gradient: relative difference %.3g of the whole, at most %.3g (%s)" % (math.sqrt(top / bottom), *worst))

    losses = {}
    for line in open(a.log):
        line = json.loads(line)
        if "loss" in line:
            losses[line["step"]] = line["loss"]
    decays = [w for k, w in model.w.items() if w.dim() == 2]
    others = [w for w in model.w.values() if w.dim() != 2]
    groups = [{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=1, betas=(0.9, 0.95), eps=1e-8)
    worst = (0, 0)
    for step in range(1, a.steps + 1):
        loss = model.loss(*batch(ids, end, step - 1, a, device))
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(model.w.values()), a.clip)
        for g in adam.param_groups:
            g["lr"] = rate(a, step)
        late = a.schedule == "two-stage" and (step - 1) * 2 >= a.steps
        adam.param_groups[0]["weight_decay"] = 0.0 if late else 0.1
        adam.step()
        d = abs(losses[step] - loss.item()) / loss.item()
        worst = max(worst, (d, step))
        if step in (1, 2, 10, 50, 100) or step == a.steps:
            print("step %d: torch %.6f, tern %.6f, relative difference %.2g" % (step, loss.item(), losses[step], d))
    print("losses: relative difference at most %.3g, at step %d" % worst)


if __name__ == "__main__":
    sys.exit(main())
