"""The decoder of the three recipes in plain PyTorch, differentiated by autograd.

Written from the papers (arXiv:2402.17764, arXiv:2504.12285, arXiv:2106.09685), not from tern: it
shares no code with what it is compared with. Weights have GGUF's names.
"""
import math
import torch
import torch.nn.functional as F


class Round(torch.autograd.Function):
    """The straight-through estimator: rounding has the gradient 1."""

    @staticmethod
    def forward(_, x, y):
        return y

    @staticmethod
    def backward(_, dy):
        return dy, None


# Called with everything that is about to be rounded, for measuring how far it is from an edge
# between two integers.
on_rounding = None


def to_integer(x, low, high):
    """Half to even."""
    if on_rounding:
        on_rounding(x.detach())
    return x.round().clamp(low, high)


def quantize(x):
    """Activations: 8 bits, a row's greatest magnitude becomes 127."""
    scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return Round.apply(x, to_integer(x * scale, -128, 127) / scale)


def ternarize(w, eps):
    """Weights: RoundClip(W / (gamma + eps), -1, 1) gamma, gamma = mean|W|."""
    gamma = w.abs().mean()
    return Round.apply(w, to_integer(w / (gamma + eps), -1, 1) * gamma)


class Decoder:
    """w: weights by name; lora: pairs of A and B by the name of the matrix beside which they are,
    with the factor lora_scale."""

    def __init__(self, w, recipe, n_heads, n_kv, eps=1e-5, theta=10000.0, lora={}, lora_scale=1.0):
        self.w, self.recipe, self.n_heads, self.n_kv = w, recipe, n_heads, n_kv
        self.eps, self.theta, self.lora, self.lora_scale = eps, theta, lora, lora_scale
        self.ternary_eps = 1e-6
        self.halves = recipe != "llama"  # GGUF of Llama has RoPE's pairs side by side
        self.n_layers = sum(k.endswith("attn_q.weight") for k in w)

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.w[name]

    def linear(self, x, name):
        w = self.w[name]
        y = F.linear(x, w) if self.recipe == "llama" else F.linear(quantize(x), ternarize(w, self.ternary_eps))
        if name in self.lora:
            a, b = self.lora[name]
            y = y + self.lora_scale * F.linear(F.linear(x, a), b)
        return y

    def rope(self, x, pos):
        half = x.shape[-1] // 2
        freq = self.theta ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
        angle = pos[..., None].double() * freq
        c, s = angle.cos()[:, :, None].to(x.dtype), angle.sin()[:, :, None].to(x.dtype)
        if self.halves:
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * c - b * s, b * c + a * s], -1)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)

    def attention(self, x, p, pos, sees):
        n_seq, n, _ = x.shape
        heads = lambda name, h: self.linear(x, p + name).view(n_seq, n, h, -1)
        q = self.rope(heads("attn_q.weight", self.n_heads), pos)
        k = self.rope(heads("attn_k.weight", self.n_kv), pos)
        v = heads("attn_v.weight", self.n_kv)
        k, v = (y.repeat_interleave(self.n_heads // self.n_kv, 2) for y in (k, v))
        s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
        s = s.masked_fill(~sees[:, None], float("-inf")).softmax(-1)
        o = torch.einsum("bhts,bshd->bthd", s, v).reshape(n_seq, n, -1)
        if self.recipe == "bitnet":
            o = self.norm(o, p + "attn_sub_norm.weight")
        return self.linear(o, p + "attn_output.weight")

    def feed_forward(self, x, p):
        gate, up = self.linear(x, p + "ffn_gate.weight"), self.linear(x, p + "ffn_up.weight")
        if self.recipe == "bitnet":
            h = self.norm(gate.relu().square() * up, p + "ffn_sub_norm.weight")
        else:
            h = F.silu(gate) * up
        return self.linear(h, p + "ffn_down.weight")

    def loss(self, ids, targets, starts):
        """Mean over the targets that are not -1. starts: the row in which a token's document
        begins; it sees no other document, and its position counts from there."""
        row = torch.arange(ids.shape[1], device=ids.device)
        sees = (row[None, :, None] >= row[None, None, :]) & (row[None, None, :] >= starts[:, :, None])
        pos = row[None] - starts
        x = self.w["token_embd.weight"][ids]
        for i in range(self.n_layers):
            p = "blk.%d." % i
            x = x + self.attention(self.norm(x, p + "attn_norm.weight"), p, pos, sees)
            x = x + self.feed_forward(self.norm(x, p + "ffn_norm.weight"), p)
        head = self.w.get("output.weight", self.w["token_embd.weight"])
        logits = F.linear(self.norm(x, "output_norm.weight"), head)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
