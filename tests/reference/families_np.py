"""Qwen3, Qwen3.5, LFM2, Gemma 3 and EmbeddingGemma, computed in plain numpy from a Hugging Face folder.

Written from the papers and from what transformers documents, not from tern. `dtype` and `shuffle` as in
decoder_np.py. `family(folder)` chooses the class; run(ids) gives logits (an encoder: its last rows) and
what is left after the table and after each layer; embed(ids) what an embedding model answers.

    families_np.py FOLDER...   # compares each with its own golden.safetensors: prints the differences
"""
import json, os, sys
import numpy as np
from decoder_np import Weights, silu
from safetensors_np import read_safetensors

PREFIXES = ("model.language_model.", "language_model.model.", "model.")
EPSILONS = ("norm_eps", "rms_norm_eps", "layer_norm_eps")
NOT_TEXT = ("model.visual.", "visual.", "vision_tower.", "multi_modal_projector.", "mtp.")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + x.dtype.type(0.044715) * x**3)))


def plain_name(name):
    """A tensor's name without what its repository puts before it."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return "lm_head.weight" if name.endswith("lm_head.weight") else name


def rope_of(c, kind):
    """theta, the factor by which positions are divided, the share of a head that is rotated."""
    r = c.get("rope_parameters") or {}
    if kind in r:
        r = r[kind]
    local = kind == "sliding_attention" and "rope_local_base_freq" in c
    theta = c["rope_local_base_freq"] if local else r.get("rope_theta", c.get("rope_theta"))
    scaling = {} if local else r if "rope_type" in r else c.get("rope_scaling") or {}
    how = scaling.get("rope_type", scaling.get("type", "default"))
    assert how in ("default", "linear") or how in c.get("other_ropes", ()), how
    factor = scaling["factor"] if how == "linear" else 1
    return theta, factor, r.get("partial_rotary_factor", c.get("partial_rotary_factor", 1))


class Family(Weights):
    plus = 0  # what is added to a norm's weights
    other_ropes = ()  # that its class computes
    dense = ()  # an embedding model's matrices after the pooling
    names = {"attn_in": "input_layernorm", "ffn_in": "post_attention_layernorm", "last": "norm", "q": "q_norm",
             "k": "k_norm", "out": "o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}

    def __init__(self, folder, dtype=np.float64, shuffle=None, tensors=None, config=None):
        c = config or json.load(open(os.path.join(folder, "config.json")))
        self.c = dict(c, **c.get("text_config", {}))
        t = read_safetensors(os.path.join(folder, "model.safetensors")) if tensors is None else tensors
        super().__init__({plain_name(k): x for k, x in t.items() if not k.startswith(NOT_TEXT)}, dtype, shuffle)
        self.eps = self.dtype(next(self.c[key] for key in EPSILONS if key in self.c))
        self.n_layers, self.heads = self.c["num_hidden_layers"], self.c["num_attention_heads"]
        self.head_dim = self.c.get("head_dim") or self.c["hidden_size"] // self.heads
        self.kinds = self.layer_kinds()
        self.c["other_ropes"] = self.other_ropes

    def layer_kinds(self):
        return self.c.get("layer_types") or ["full_attention"] * self.n_layers

    def linear(self, x, name):
        y = self.sum_products(x, self.w(name + ".weight"))
        return y + self.w(name + ".bias") if name + ".bias" in self.t else y

    def norm(self, x, name, plus=None):
        w = self.w(name + ".weight") + self.dtype(self.plus if plus is None else plus)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def rotate(self, x, kind):  # [n, heads, head_dim]: the first `rot` of each head, in halves
        theta, factor, share = rope_of(self.c, kind)
        rot = int(self.head_dim * share)
        half = rot // 2
        f, magnitude = self.frequencies(theta ** (-np.arange(half) / half) / factor, len(x))
        angle = np.outer(np.arange(len(x)), f)[:, None]
        c, s = ((magnitude * y(angle)).astype(self.dtype) for y in (np.cos, np.sin))
        a, b = x[..., :half], x[..., half:rot]
        return np.concatenate([a * c - b * s, b * c + a * s, x[..., rot:]], -1)

    def frequencies(self, f, n):
        """Those of the pairs in a text of n tokens, and what cosine and sine are multiplied by."""
        return f, 1

    def sees(self, n, kind):  # [query, key]
        return np.tri(n, dtype=bool)

    def scale(self):
        return self.head_dim**-0.5

    def heads_of(self, x, name):
        return self.linear(x, name).reshape(len(x), -1, self.head_dim)

    def weighted_values(self, q, k, v, kind):
        k, v = (np.repeat(x, self.heads // x.shape[1], 1) for x in (k, v))
        scores = np.einsum("thd,shd->hts", q, k) * self.dtype(self.scale())
        scores = np.where(self.sees(len(q), kind), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hts,shd->thd", e / e.sum(-1, keepdims=True), v)

    def queries(self, a, p):
        """The queries, and the gate of the result (None: no gate)."""
        return self.heads_of(a, p + "q_proj"), None

    def turned(self, q, k, p, kind):
        """Queries and keys as they meet: normed, then rotated."""
        q, k = self.norm(q, p + self.names["q"]), self.norm(k, p + self.names["k"])
        return self.rotate(q, kind), self.rotate(k, kind)

    def attention(self, a, p, kind):
        q, gate = self.queries(a, p)
        k, v = self.heads_of(a, p + "k_proj"), self.heads_of(a, p + "v_proj")
        q, k = self.turned(q, k, p, kind)
        o = self.weighted_values(q, k, v, kind)
        if gate is not None:
            o = o * sigmoid(gate)
        return self.linear(o.reshape(len(a), -1), p + self.names["out"])

    def mixer(self, a, p, kind):
        return self.attention(a, p + "self_attn.", kind)

    act = staticmethod(silu)

    def feed_forward(self, f, p):
        m = self.names
        return self.linear(self.act(self.linear(f, p + m["gate"])) * self.linear(f, p + m["up"]), p + m["down"])

    def layer(self, x, p, kind):
        x = x + self.mixer(self.norm(x, p + self.names["attn_in"]), p, kind)
        return x + self.feed_forward(self.norm(x, p + self.names["ffn_in"]), p)

    def table(self, ids):
        return self.w("embed_tokens.weight")[np.asarray(ids)]

    def rows(self, ids):
        x = self.table(ids)
        hidden = [x]
        for i, kind in enumerate(self.kinds):
            x = self.layer(x, "layers.%d." % i, kind)
            hidden.append(x)
        return self.norm(x, self.names["last"]), hidden

    def run(self, ids):
        y, hidden = self.rows(ids)
        has_head = "lm_head.weight" in self.t
        y = self.sum_products(y, self.w("lm_head.weight" if has_head else "embed_tokens.weight"))
        return self.all_used(y), hidden

    def all_used(self, y):
        unread = set(self.t) - self.used
        assert not unread, "nothing reads %s" % sorted(unread)
        return y

    def embed(self, ids):  # the last token's row
        y = self.rows(ids)[0][-1]
        return y / np.linalg.norm(y)


class Qwen3(Family):
    def run(self, ids):
        if self.c["architectures"] != ["Qwen3Model"]:
            return super().run(ids)
        y, hidden = self.rows(ids)
        return self.all_used(y), hidden


class Qwen35(Family):
    plus = 1
    tiled = False  # whether value head n belongs to key head n % K, as in GGUF, or n / (V / K)

    def layer_kinds(self):
        every = self.c.get("full_attention_interval")
        return self.c.get("layer_types") or [
            "linear_attention" if (i + 1) % every else "full_attention" for i in range(self.n_layers)]

    def queries(self, a, p):
        both = self.linear(a, p + "q_proj").reshape(len(a), self.heads, 2 * self.head_dim)
        return both[..., : self.head_dim], both[..., self.head_dim :]

    def delta_net(self, a, p):
        c, n = self.c, len(a)
        n_k, n_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        x = silu(causal_convolution(self.linear(a, p + "in_proj_qkv"), self.w(p + "conv1d.weight")))
        q, k, v = np.split(x, [n_k * dk, 2 * n_k * dk], 1)
        key_head = np.arange(n_v) % n_k if self.tiled else np.arange(n_v) // (n_v // n_k)
        q, k = (unit(y.reshape(n, n_k, dk))[:, key_head] for y in (q, k))
        q, v = q * self.dtype(dk**-0.5), v.reshape(n, n_v, dv)
        beta = sigmoid(self.linear(a, p + "in_proj_b"))
        decay = np.exp(-np.exp(self.w(p + "A_log")) * softplus(self.linear(a, p + "in_proj_a") + self.w(p + "dt_bias")))
        state, o = np.zeros((n_v, dk, dv), self.dtype), np.empty_like(v)
        for t in range(n):
            state = state * decay[t][:, None, None]
            missing = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t][:, :, None] * missing[:, None]
            o[t] = np.einsum("hkv,hk->hv", state, q[t])
        z = self.linear(a, p + "in_proj_z").reshape(n, n_v, dv)
        o = self.norm(o, p + "norm", plus=0) * silu(z)
        return self.linear(o.reshape(n, -1), p + "out_proj")

    def mixer(self, a, p, kind):
        if kind == "linear_attention":
            return self.delta_net(a, p + "linear_attn.")
        return super().mixer(a, p, kind)


class Lfm2(Family):
    names = {"attn_in": "operator_norm", "ffn_in": "ffn_norm", "last": "embedding_norm", "q": "q_layernorm",
             "k": "k_layernorm", "out": "out_proj", "gate": "feed_forward.w1", "up": "feed_forward.w3",
             "down": "feed_forward.w2"}

    def layer_kinds(self):
        full = self.c.get("full_attn_idxs")
        return self.c.get("layer_types") or [
            "full_attention" if i in full else "conv" for i in range(self.n_layers)]

    def mixer(self, a, p, kind):
        if kind != "conv":
            return super().mixer(a, p, kind)
        b, c, x = np.split(self.linear(a, p + "conv.in_proj"), 3, 1)
        return self.linear(c * causal_convolution(b * x, self.w(p + "conv.conv.weight")), p + "conv.out_proj")


class Gemma3(Family):
    plus = 1
    act = staticmethod(gelu_tanh)

    def layer_kinds(self):
        every = self.c.get("sliding_window_pattern", self.c.get("_sliding_window_pattern", 6))
        return self.c.get("layer_types") or [
            "sliding_attention" if (i + 1) % every else "full_attention" for i in range(self.n_layers)]

    def is_encoder(self):
        return bool(self.c.get("use_bidirectional_attention"))

    def sees(self, n, kind):
        back, window = np.subtract.outer(np.arange(n), np.arange(n)), self.c["sliding_window"]
        if self.is_encoder():  # an odd window is a bound that was halved already
            bound = window - 1 if window % 2 else window // 2
            return np.abs(back) <= bound if kind == "sliding_attention" else np.ones((n, n), bool)
        return (back >= 0) & (back < window) if kind == "sliding_attention" else back >= 0

    def scale(self):
        return self.c["query_pre_attn_scalar"] ** -0.5

    def table(self, ids):
        return super().table(ids) * self.dtype(self.c["hidden_size"] ** 0.5)

    def layer(self, x, p, kind):
        o = self.mixer(self.norm(x, p + "input_layernorm"), p, kind)
        x = x + self.norm(o, p + "post_attention_layernorm")
        f = self.feed_forward(self.norm(x, p + "pre_feedforward_layernorm"), p)
        return x + self.norm(f, p + "post_feedforward_layernorm")

    def run(self, ids):
        if not self.is_encoder():
            return super().run(ids)
        y, hidden = self.rows(ids)
        return self.all_used(y), hidden

    def embed(self, ids):
        y = self.rows(ids)[0].mean(0)
        for w in self.dense:
            y = self.sum_products(y, w.astype(self.dtype))
        return y / np.linalg.norm(y)


def unit(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + x.dtype.type(1e-6))


def causal_convolution(x, w):
    """Each column by itself; w [columns, 1, taps], the last of which is the newest row's."""
    taps = w.shape[-1]
    before = np.concatenate([np.zeros((taps - 1, x.shape[1]), x.dtype), x])
    return sum(before[j : j + len(x)] * w[:, 0, j] for j in range(taps))


CLASSES = {"qwen3": Qwen3, "qwen3_5": Qwen35, "qwen3_5_text": Qwen35, "lfm2": Lfm2, "gemma3": Gemma3,
           "gemma3_text": Gemma3}


def family(folder, dtype=np.float64, shuffle=None, tensors=None, config=None):
    from dense_np import DENSE

    c = config or json.load(open(os.path.join(folder, "config.json")))
    model = dict(CLASSES, **DENSE)[c["model_type"]](folder, dtype, shuffle, tensors, c)
    dense = [os.path.join(folder or "", "%d_Dense" % i, "model.safetensors") for i in (2, 3)]
    if folder and os.path.exists(dense[0]):
        model.dense = [read_safetensors(path)["linear.weight"] for path in dense]
    return model


def difference(a, b):
    """The greatest relative L2 of a row."""
    a, b = (np.asarray(x, np.float64).reshape(-1, np.shape(x)[-1]) for x in (a, b))
    return (np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)).max()


def check(folder):
    golden = read_safetensors(os.path.join(folder, "golden.safetensors"))
    model, ids = family(folder), golden["input_ids"].reshape(-1)
    y, hidden = model.run(ids)
    want = golden.get("logits", golden.get("last_hidden_state"))
    parts = ["%s %.1e" % ("logits" if "logits" in golden else "last rows", difference(y, want))]
    parts += ["after layer %d %.1e" % (i, difference(x, golden["hidden.%d" % i]))
              for i, x in enumerate(hidden[:-1]) if "hidden.%d" % i in golden]
    for name in ("pooled", "embedding"):
        if name in golden:
            parts.append("%s %.1e" % (name, difference(model.embed(ids), golden[name])))
    if "greedy_ids" in golden:
        known = golden["greedy_ids"].reshape(-1)
        chosen = model.run(known)[0].argmax(1)[len(ids) - 1 : -1]
        parts.append("greedy ids equal: %s" % bool((chosen == known[len(ids) :]).all()))
    print("%s: %s" % (folder, ", ".join(parts)))


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        check(folder)
