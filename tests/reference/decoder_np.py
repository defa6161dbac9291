"""A Hugging Face folder of a Llama or a BitNet, computed in plain numpy.

Written from the papers and from what transformers documents, not from tern. `dtype` is what
everything is computed in: float64 is the reference; float32, and float32 with its sums in another
order (`shuffle`), show how far the same mathematics is from itself.

    activations   round(x s) cut to -128..127, s = 127 / max(|x| of the row, 1e-5), divided by s again
    packed        uint8 [n_out / 4, n_in]: the code of row r + k n_out / 4 in bits 2 k of byte r, minus 1
    online        round(W / g) cut to -1..1, times g, g = max(mean|W|, 1e-5)
    as it is      a BitNet's folder without quantization_config has weights that are ternary already
"""
import json, os
import numpy as np
from safetensors_np import read_safetensors


def silu(x):
    return x / (1 + np.exp(-x))


class Weights:
    """Named arrays in the type and the order of sums that everything is computed in."""

    def __init__(self, tensors, dtype, shuffle):
        self.t, self.dtype, self.used = dict(tensors), dtype, set()
        self.order = np.random.default_rng(shuffle) if shuffle is not None else None
        self.orders, self.ready = {}, {}

    def w(self, name):
        self.used.add(name)
        if name not in self.ready:
            self.ready[name] = self.t[name].astype(self.dtype)
        return self.ready[name]

    def sum_products(self, x, w):
        """x w^T, its sums in the order of this reference."""
        if self.order is None:
            return x @ w.T
        n = w.shape[1]
        if n not in self.orders:
            self.orders[n] = self.order.permutation(n)
        return x[..., self.orders[n]] @ w[:, self.orders[n]].T


class Folder(Weights):
    def __init__(self, folder, dtype=np.float64, shuffle=None, tensors=None, config=None):
        self.c = config or json.load(open(os.path.join(folder, "config.json")))
        super().__init__(tensors or read_safetensors(os.path.join(folder, "model.safetensors")), dtype, shuffle)
        c = self.c
        self.is_bitnet = c["model_type"] == "bitnet"
        self.head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        self.act = {"relu2": lambda x: np.maximum(x, 0) ** 2, "silu": silu}[c["hidden_act"]]
        rope = c.get("rope_parameters") or {}
        assert rope.get("rope_type", "default") == "default", "no other RoPE is written here"
        self.theta = c.get("rope_theta") or rope["rope_theta"]
        # How far the activation that lies next to an edge between two integers is from it, in steps.
        self.margin = np.inf

    def quantize(self, x):
        s = self.dtype(127) / np.maximum(np.abs(x).max(-1, keepdims=True), self.dtype(1e-5))
        steps = x * s
        self.margin = min(self.margin, np.abs(steps - np.floor(steps) - 0.5).min())
        return np.clip(np.round(steps), -128, 127) / s

    def matrix(self, name):
        """Weights as they are multiplied, and the factor of the product."""
        w = self.t[name + ".weight"]
        self.used.add(name + ".weight")
        if w.dtype == np.uint8:
            scale = self.w(name + ".weight_scale")
            codes = np.concatenate([(w >> 2 * k) & 3 for k in range(4)]).astype(self.dtype) - 1
            return codes, scale if self.c["quantization_config"]["linear_class"] == "autobitlinear" else 1 / scale
        if name not in self.ready:
            w = w.astype(self.dtype)
            if self.c.get("quantization_config", {}).get("quantization_mode") == "online":
                g = np.maximum(np.abs(w).mean(), self.dtype(1e-5))
                w = np.clip(np.round(w / g), -1, 1) * g
            self.ready[name] = w
        return self.ready[name], 1

    def linear(self, x, name):
        w, scale = self.matrix(name)
        return self.sum_products(self.prepare(x), w) * scale

    def prepare(self, x):
        """What a matrix is multiplied with."""
        return self.quantize(x) if self.is_bitnet else x

    def keep(self, x):
        """Keys and values as the cache has them."""
        return x

    def norm(self, x, name, eps=None):
        eps = self.dtype(self.c["rms_norm_eps"] if eps is None else eps)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * self.w(name + ".weight")

    def rotate(self, x):  # [n, heads, head_dim]
        n, half = len(x), self.head_dim // 2
        freq = self.theta ** (-np.arange(half, dtype=np.float64) / half)
        angle = np.outer(np.arange(n), freq)[:, None]
        c, s = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    def attention(self, a, p):
        n, heads, kv = len(a), self.c["num_attention_heads"], self.c["num_key_value_heads"]
        q, k, v = (self.linear(a, p + s + "_proj").reshape(n, -1, self.head_dim) for s in "qkv")
        q, k = self.rotate(q), self.rotate(k)
        k, v = (np.repeat(self.keep(x), heads // kv, 1) for x in (k, v))
        scores = np.einsum("thd,shd->hts", q, k) / self.dtype(np.sqrt(self.head_dim))
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hts,shd->thd", e / e.sum(-1, keepdims=True), v).reshape(n, -1)

    def run(self, ids):
        """Logits [n, n_vocab], and what is left after the table and after each layer [n, n_embd]."""
        c = self.c
        x = self.w("model.embed_tokens.weight")[np.asarray(ids)]
        hidden = [x]
        for i in range(c["num_hidden_layers"]):
            p = "model.layers.%d." % i
            o = self.attention(self.norm(x, p + "input_layernorm"), p + "self_attn.")
            if self.is_bitnet:
                o = self.norm(o, p + "self_attn.attn_sub_norm")
            x = x + self.linear(o, p + "self_attn.o_proj")
            f = self.norm(x, p + "post_attention_layernorm")
            f = self.act(self.linear(f, p + "mlp.gate_proj")) * self.linear(f, p + "mlp.up_proj")
            if self.is_bitnet:
                f = self.norm(f, p + "mlp.ffn_sub_norm")
            x = x + self.linear(f, p + "mlp.down_proj")
            hidden.append(x)
        y = self.norm(x, "model.norm", c.get("final_norm_eps"))
        y = self.sum_products(y, self.w("model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"))
        unread = set(self.t) - self.used
        assert not unread, "nothing reads %s" % sorted(unread)
        return y, hidden

    def greedy(self, ids, n_more):
        ids = list(ids)
        for _ in range(n_more):
            ids.append(int(self.run(ids)[0][-1].argmax()))
        return ids
